"""Whose files are in a folder of a saved run, and which of them a new run may replace."""

import contextlib
import json
import shutil

import numpy as np
import pytest
from support.saved_runs import call_shell, is_same, random_run, random_study, read_files

import galapax as gx
from galapax.storage import atomic, export
from galapax.view import accessor

OLD, NEW = random_run(1), random_run(2, runs=3)


# --- whose files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [random_run, random_study])
@pytest.mark.parametrize(
    "name", ["arrays.npz", "summary.csv", "history.csv", "report.html", "result.json", "manifest.json"]
)
def test_a_file_that_galapax_did_not_write_is_never_touched(name, kind, tmp_path):
    (tmp_path / name).write_bytes(b"mine")
    needed = name in (*atomic.FILES_OF_KIND["study.json" if kind is random_study else "result.json"], atomic.MANIFEST)
    if needed:
        with pytest.raises(gx.InputError, match=rf"holds {name}, which galapax did not write.*another folder"):
            kind().save(tmp_path)
        assert read_files(tmp_path) == {name: b"mine"}
    else:
        kind().save(tmp_path)
        assert (tmp_path / name).read_bytes() == b"mine" and is_same(gx.load(tmp_path), kind())


@pytest.mark.parametrize(
    ("command", "name"),
    [(("solve", "branin"), "runs.csv"), (("sweep", "branin", "--set", "fr=1,2"), "summary.csv"),
     (("compare", "-p", "branin", "-a", "de,ga"), "arrays.npz")],
)  # fmt: skip
def test_force_refuses_a_users_file_before_the_run(command, name, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"mine")
    monkeypatch.chdir(tmp_path)
    code, said = call_shell(*command, "--out", ".", "--force")
    assert code == 2 and f"holds {name}, which galapax did not write; nothing was changed" in said
    assert read_files(tmp_path) == {name: b"mine"}


def test_a_run_replaces_the_files_of_a_study_and_nothing_else(tmp_path):
    random_study().save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    NEW.save(tmp_path)
    assert is_same(gx.load(tmp_path), NEW) and (tmp_path / "notes.txt").read_text() == "mine"
    listed = json.loads((tmp_path / "manifest.json").read_text())["files"]
    assert {f.name for f in tmp_path.iterdir()} == {*listed, "manifest.json", "notes.txt"}


def test_a_file_of_a_run_that_somebody_edited_is_set_aside(tmp_path):
    random_study().save(tmp_path)
    file = tmp_path / "summary.md"
    edited = file.read_text() + "\nWhat we learned: a lot.\n"
    file.write_text(edited)
    with pytest.warns(UserWarning, match=r"changed since galapax wrote it; it is kept as summary\.changed-\w{8}\.md"):
        random_study(5).save(tmp_path)
    (kept,) = tmp_path.glob("summary.changed-*.md")
    assert kept.read_text() == edited and is_same(gx.load(tmp_path), random_study(5))


def test_a_manifest_that_names_other_peoples_files_is_not_believed(tmp_path):
    """It may come with a folder from anywhere, and what a manifest names is removed by the next save."""
    outside, folder = tmp_path / "thesis.tex", tmp_path / "run"
    outside.write_text("mine")
    folder.mkdir()
    rows = {"result.json": {"bytes": 2, "sha256": ""}, "../thesis.tex": {"bytes": 4, "sha256": ""}}
    data = {"format": 1, "files": rows, "checksum": atomic._checksum_rows(rows)}
    (folder / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(gx.InputError, match="not a manifest that galapax wrote"):
        gx.load(folder)
    with pytest.raises(gx.InputError, match="galapax did not write"):
        OLD.save(folder)
    assert outside.read_text() == "mine"


def test_links_in_a_folder_are_refused_and_not_followed(tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("mine")
    OLD.save(folder)
    (folder / "population.csv").unlink()
    (folder / "population.csv").symlink_to(victim)
    with pytest.raises(gx.InputError, match=r"holds population\.csv, which galapax did not write"):
        NEW.save(folder)
    assert victim.read_text() == "mine"
    for name in ("result.json.part", ".galapax-new"):  # where a temporary might be expected
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / name).symlink_to(victim)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(accessor, "can_draw", lambda: False)
            with contextlib.suppress(OSError):
                NEW.save(folder)
        assert victim.read_text() == "mine"


def test_a_run_whose_manifest_was_deleted_is_no_saved_run(tmp_path):
    OLD.save(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(gx.InputError, match=r"contains no saved run: it has no manifest\.json"):
        gx.load(tmp_path)


def test_the_tables_of_a_run_are_written_for_people_and_never_read(tmp_path):
    for i, run in enumerate((NEW, random_run(3, runs=3, m=2, snapshots=True), random_study())):
        folder = run.save(tmp_path / str(i))
        for file in folder.glob("*.csv"):
            file.write_text("edited in a spreadsheet")
        assert is_same(gx.load(folder), run)


def test_an_export_into_the_folder_of_a_run_leaves_its_tables_and_refuses_those_of_another(tmp_path):
    """A table that somebody changed, or that belongs to another run, is not overwritten."""
    folder = NEW.save(tmp_path / "run")
    before = read_files(folder)
    files = export.write_csv_files(gx.load(folder), folder)
    assert {file.name for file in files} - before.keys() == {"answer.csv"}
    assert read_files(folder).items() >= before.items()
    with pytest.raises(gx.InputError, match=r"history\.csv belongs to another saved run.*choose another folder"):
        export.write_csv_files(OLD, folder)
    assert is_same(gx.load(folder), NEW)


def test_a_front_and_the_derived_quantities_of_every_kind_come_back_as_they_were(tmp_path):
    """Violations and derived numbers cannot be computed again without the problem's functions."""
    run = random_run(3, runs=3, m=2)
    run["CV"] = run["CV"] + 1e-9
    run["derived"] = {"../mass": np.arange(4.0), "cost\x00": np.ones(4)}
    run["problem"] = run.problem.with_(derived=dict.fromkeys(run["derived"], abs))
    loaded = gx.load(run.save(tmp_path / "front"))
    assert np.array_equal(loaded.CV, run.CV) and list(loaded.derived) == list(loaded.problem.derived)
    assert all(map(np.array_equal, loaded.derived.values(), run.derived.values()))
    one = random_run(1)
    one["derived"] = {"mass": 2.5}
    one["problem"] = one.problem.with_(derived={"mass": abs})
    assert gx.load(one.save(tmp_path / "single")).derived == {"mass": 2.5}
