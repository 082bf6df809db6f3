"""Whose files are in a folder of a saved run, and which of them a new run may replace."""

import contextlib
import json
import shutil

import pytest
from support.paths import DATA
from support.saved_runs import as_before_manifests, is_same, random_run, random_study
from typer.testing import CliRunner

import galapax as gx
from galapax.cli.app import app
from galapax.storage import manifest
from galapax.view import saving

OLD, NEW = random_run(1), random_run(2, runs=3)


def call(*arguments):
    outcome = CliRunner().invoke(app, list(map(str, arguments)))
    return outcome.exit_code, " ".join(outcome.output.split())


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# --- whose files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [random_run, random_study])
@pytest.mark.parametrize(
    "name", ["data.npz", "summary.csv", "history.csv", "report.html", "result.json", "manifest.json"]
)
def test_a_file_that_galapax_did_not_write_is_never_touched(name, kind, tmp_path):
    (tmp_path / name).write_bytes(b"mine")
    needed = name in (*manifest.FILES_OF_KIND["study.json" if kind is random_study else "result.json"], manifest.NAME)
    if needed:
        with pytest.raises(gx.InputError, match=rf"holds {name}, which galapax did not write.*another folder"):
            kind().save(tmp_path)
        assert contents(tmp_path) == {name: b"mine"}
    else:
        kind().save(tmp_path)
        assert (tmp_path / name).read_bytes() == b"mine" and is_same(gx.load(tmp_path), kind())


@pytest.mark.parametrize(
    ("command", "name"),
    [(("solve", "branin"), "runs.csv"), (("sweep", "branin", "--set", "fr=1,2"), "summary.csv"),
     (("compare", "-p", "branin", "-a", "de,ga"), "data.npz")],
)  # fmt: skip
def test_force_refuses_a_users_file_before_the_run(command, name, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"mine")
    monkeypatch.chdir(tmp_path)
    code, said = call(*command, "--out", ".", "--force")
    assert code == 2 and f"holds {name}, which galapax did not write; nothing was changed" in said
    assert contents(tmp_path) == {name: b"mine"}


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
    data = {"format": 1, "files": rows, "checksum": manifest._checksum_rows(rows)}
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
            patch.setattr(saving, "can_draw", lambda: False)
            with contextlib.suppress(OSError):
                NEW.save(folder)
        assert victim.read_text() == "mine"


# --- folders from before there were manifests -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(OLD, marks=pytest.mark.slow),
        NEW,
        pytest.param(random_run(3, runs=3, m=2, snapshots=True), marks=pytest.mark.slow),
        random_study(),
    ],
    ids=range(4),
)
def test_a_folder_without_a_manifest_still_loads(run, tmp_path):
    assert is_same(gx.load(as_before_manifests(run.save(tmp_path))), run)


def test_a_folder_that_an_earlier_version_wrote_loads_and_is_replaced(tmp_path):
    folder = shutil.copytree(DATA / "run-without-manifest", tmp_path / "run")
    loaded = gx.load(folder)
    assert loaded.problem.name == "spring" and len(loaded.runs) == 2 and list(loaded.snapshots) == [1]
    assert loaded.history.x.shape == (4, 3) and loaded.runs.history.violation.shape == (2, 4)
    loaded.save(folder)
    assert (folder / "manifest.json").is_file() and is_same(gx.load(folder), loaded)


def test_of_a_folder_without_a_manifest_only_files_that_galapax_is_known_to_write_are_replaced(tmp_path):
    NEW.save(tmp_path)
    as_before_manifests(tmp_path)
    (tmp_path / "data.npz").write_bytes(b"mine")  # a study's name, and here was never a study
    (tmp_path / "notes.txt").write_bytes(b"mine")
    OLD.save(tmp_path)
    assert is_same(gx.load(tmp_path), OLD) and not (tmp_path / "runs.csv").exists()
    assert (tmp_path / "data.npz").read_bytes() == (tmp_path / "notes.txt").read_bytes() == b"mine"
    with pytest.raises(gx.InputError, match=r"holds data\.npz"):
        random_study().save(tmp_path)


def test_files_of_a_run_that_lost_its_result_are_nobodys(tmp_path):
    as_before_manifests(NEW.save(tmp_path))
    (tmp_path / "result.json").write_text('{"my": "results"}')
    before = contents(tmp_path)
    with pytest.raises(gx.InputError, match=r"result\.json.*which galapax did not write"):
        OLD.save(tmp_path)
    assert contents(tmp_path) == before


def test_a_run_whose_manifest_was_deleted_is_damaged(tmp_path):
    OLD.save(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(gx.InputError, match=r"result\.json is damaged .*manifest\.json, which is missing"):
        gx.load(tmp_path)
