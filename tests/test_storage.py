"""Saved runs that cannot be lost: whose files they are, how one run takes another's place, what damage says."""

import contextlib
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import with_test_modules
from hypothesis import given, settings
from hypothesis import strategies as st
from saved_runs import made, same, study, with_labels
from typer.testing import CliRunner

import galapax as gx
from galapax.cli import output
from galapax.cli.app import app
from galapax.core import checks
from galapax.storage import atomic, export, manifest, result_folder
from galapax.view import saving

OLD, NEW = made(1), made(2, runs=3)


def call(*arguments):
    outcome = CliRunner().invoke(app, list(map(str, arguments)))
    return outcome.exit_code, " ".join(outcome.output.split())


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# --- whose files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [made, study])
@pytest.mark.parametrize(
    "name", ["arrays.npz", "summary.csv", "history.csv", "report.html", "result.json", "manifest.json"]
)
def test_a_file_that_galapax_did_not_write_is_never_touched(name, kind, tmp_path):
    (tmp_path / name).write_bytes(b"mine")
    needed = name in (*manifest.FILES_OF_KIND["study.json" if kind is study else "result.json"], manifest.NAME)
    if needed:
        with pytest.raises(gx.InputError, match=rf"holds {name}, which galapax did not write.*another folder"):
            kind().save(tmp_path)
        assert contents(tmp_path) == {name: b"mine"}
    else:
        kind().save(tmp_path)
        assert (tmp_path / name).read_bytes() == b"mine" and same(gx.load(tmp_path), kind())


@pytest.mark.parametrize(
    ("command", "name"),
    [(("solve", "branin"), "runs.csv"), (("sweep", "branin", "--set", "fr=1,2"), "summary.csv"),
     (("compare", "-p", "branin", "-a", "de,ga"), "arrays.npz")],
)  # fmt: skip
def test_force_refuses_a_users_file_before_the_run(command, name, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"mine")
    monkeypatch.chdir(tmp_path)
    code, said = call(*command, "--out", ".", "--force")
    assert code == 2 and f"holds {name}, which galapax did not write; nothing was changed" in said
    assert contents(tmp_path) == {name: b"mine"}


def test_a_run_replaces_the_files_of_a_study_and_nothing_else(tmp_path):
    study().save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    NEW.save(tmp_path)
    assert same(gx.load(tmp_path), NEW) and (tmp_path / "notes.txt").read_text() == "mine"
    listed = json.loads((tmp_path / "manifest.json").read_text())["files"]
    assert {f.name for f in tmp_path.iterdir()} == {*listed, "manifest.json", "notes.txt"}


def test_what_somebody_added_to_a_file_of_a_run_is_kept_aside(tmp_path):
    study().save(tmp_path)
    file = tmp_path / "summary.md"
    edited = file.read_text() + "\nWhat we learned: a lot.\n"
    file.write_text(edited)
    with pytest.warns(UserWarning, match=r"changed since galapax wrote it; it is kept as summary\.changed-\w{8}\.md"):
        study(5).save(tmp_path)
    (kept,) = tmp_path.glob("summary.changed-*.md")
    assert kept.read_text() == edited and same(gx.load(tmp_path), study(5))


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


def test_a_run_whose_manifest_was_deleted_is_no_saved_run(tmp_path):
    OLD.save(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(gx.InputError, match=r"contains no saved run: it has no manifest\.json"):
        gx.load(tmp_path)


def test_the_tables_of_a_run_are_written_for_people_and_never_read(tmp_path):
    for i, run in enumerate((NEW, made(3, runs=3, m=2, snapshots=True), study())):
        folder = run.save(tmp_path / str(i))
        for file in folder.glob("*.csv"):
            file.write_text("edited in a spreadsheet")
        assert same(gx.load(folder), run)


def test_an_export_into_the_folder_of_a_run_leaves_its_tables_and_refuses_those_of_another(tmp_path):
    """A table that somebody changed, or that belongs to another run, is not overwritten."""
    folder = NEW.save(tmp_path / "run")
    before = contents(folder)
    files = export.write_csv_files(gx.load(folder), folder)
    assert {file.name for file in files} - before.keys() == {"answer.csv"}
    assert contents(folder).items() >= before.items()
    with pytest.raises(gx.InputError, match=r"history\.csv belongs to another saved run.*choose another folder"):
        export.write_csv_files(OLD, folder)
    assert same(gx.load(folder), NEW)


def test_a_front_and_the_derived_quantities_of_every_kind_come_back_as_they_were(tmp_path):
    """Violations and derived numbers cannot be computed again without the problem's functions."""
    run = made(3, runs=3, m=2)
    run["CV"] = run["CV"] + 1e-9
    run["derived"] = {"../mass": np.arange(4.0), "cost\x00": np.ones(4)}
    run["problem"] = run.problem.with_(derived=dict.fromkeys(run["derived"], abs))
    loaded = gx.load(run.save(tmp_path / "front"))
    assert np.array_equal(loaded.CV, run.CV) and list(loaded.derived) == list(loaded.problem.derived)
    assert all(map(np.array_equal, loaded.derived.values(), run.derived.values()))
    one = made(1)
    one["derived"] = {"mass": 2.5}
    one["problem"] = one.problem.with_(derived={"mass": abs})
    assert gx.load(one.save(tmp_path / "single")).derived == {"mass": 2.5}


# --- one run in another's place ---------------------------------------------------------------------------------------

KILLED = """
import os, random, signal, sys, time, warnings
from pathlib import Path
from saved_runs import made, same, study
import galapax as gx
from galapax.storage import manifest, result_folder

folder, steps, times, seed = Path(sys.argv[1]), sys.argv[2] == "steps", int(sys.argv[3]), int(sys.argv[4])
runs = [made(1, n=40), made(2, runs=30, n=40, generations=60), study(3)]
kinds = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}
random.seed(seed)

def put(run):
    pictures = {"report.html": lambda file: file.write_text("page"), "convergence.png": lambda file: 1 / 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result_folder.save(run, folder, pictures)

def child(k):
    count = 0
    def hook(event, arguments):
        nonlocal count
        if event in kinds:
            count += 1
            if count == k:
                os.kill(os.getpid(), signal.SIGKILL)
    if steps:  # dies at the k-th thing that it does to files
        sys.addaudithook(hook)
        put(new)
        os._exit(0)
    while True:
        for run in runs:
            put(run)

found, k, done = set(), 0, 0
put(runs[0])
while done < times if not steps else True:
    old = gx.load(folder)
    new = next(run for run in runs if not same(run, old))
    k += 1
    pid = os.fork()
    if pid == 0:
        child(k)
    if not steps:
        time.sleep(random.uniform(0.002, 0.25))
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    left = gx.load(folder)  # as it is, before anybody tidies up
    which = [same(run, left) for run in runs]
    assert any(which), (k, old, left)
    if steps:
        assert same(left, old) or same(left, new), k
    found.add("old" if same(left, old) else "new")
    if not os.WIFSIGNALED(status):
        break
    done += 1
    put(runs[k % len(runs)])  # the next save works, and leaves nothing of the one that was killed
    assert same(gx.load(folder), runs[k % len(runs)])
    stray = {f.name for f in folder.iterdir() if not f.name.endswith(".part")} - {"manifest.json"}
    assert stray == manifest.Saved(folder).files.keys(), (k, stray)
print(done, sorted(found))
"""


def apart(command):
    """A process that finds the tests' own modules."""
    own = with_test_modules()
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=own)


def killed(folder, how, times=0, seed=0):
    arguments = [sys.executable, "-W", "ignore", "-c", KILLED, folder, how, str(times), str(seed)]
    return apart(arguments)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
def test_a_process_killed_at_any_step_of_a_save_leaves_the_old_run_or_the_new(tmp_path):
    outcome = killed(tmp_path / "run", "steps")
    assert outcome.returncode == 0, outcome.stderr
    done, found = outcome.stdout.split(" ", 1)
    assert int(done) > 30 and "new" in found and "old" in found


@needs_fork
def test_a_process_killed_while_it_saves_again_and_again_leaves_a_whole_run(tmp_path):
    outcome = killed(tmp_path / "run", "any time", times=4)
    assert outcome.returncode == 0 and outcome.stdout.startswith("4"), outcome.stderr


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_processes_killed_while_they_save_leave_whole_runs(seed, tmp_path):
    outcome = killed(tmp_path / "run", "any time", times=40, seed=seed)
    assert outcome.returncode == 0 and outcome.stdout.startswith("40"), outcome.stderr


FULL = """
import resource, sys
from saved_runs import made
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    made(2, runs=40, generations=80, snapshots=True).save(sys.argv[1])
except OSError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.parametrize("limit", [0, 700, 20_000, 60_000])
def test_a_full_disk_costs_the_new_run_and_not_the_old(limit, tmp_path):
    pytest.importorskip("resource")
    OLD.save(tmp_path)
    before = contents(tmp_path)
    command = [sys.executable, "-c", FULL, str(tmp_path), str(limit)]
    outcome = apart(command)
    assert outcome.returncode == 7, outcome.stderr
    assert "could not be saved to" in outcome.stdout
    assert "The result itself is intact, and so is the run that was saved there before." in outcome.stdout
    assert contents(tmp_path) == before and same(gx.load(tmp_path), OLD)


def test_a_full_disk_for_pictures_costs_the_pictures(tmp_path):
    pytest.importorskip("resource")
    program = FULL.replace("made(2, runs=40, generations=80, snapshots=True)", "made(2)")
    command = [sys.executable, "-c", program, str(tmp_path), "8000"]
    outcome = apart(command)
    assert outcome.returncode == 0 and "convergence.png could not be drawn (OSError" in outcome.stderr, outcome.stderr
    assert same(gx.load(tmp_path), made(2)) and not (tmp_path / "convergence.png").exists()


def test_a_picture_that_fails_costs_that_picture(tmp_path):
    def fails(file):
        file.write_bytes(b"half of a pic")
        raise ZeroDivisionError("no room for the legend")

    pictures = {"convergence.png": fails, "report.html": lambda file: file.write_text("drawn")}
    with pytest.warns(UserWarning, match=r"convergence\.png could not be drawn \(ZeroDivisionError: no room"):
        result_folder.save(NEW, tmp_path, pictures)
    assert same(gx.load(tmp_path), NEW)
    assert (tmp_path / "report.html").read_text() == "drawn" and not (tmp_path / "convergence.png").exists()


def test_what_a_killed_first_save_left_does_not_fill_a_folder(tmp_path):
    with atomic.staging_folder(tmp_path) as stage:
        (stage / "history.csv").write_bytes(b"half")
        output.check_folder(tmp_path, force=False)


# --- saves that wait for their last moves: whose they are ------------------------------------------------------------


def leave_pending(run, folder):
    """Save a run as a process does that is killed right after the one move that counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "finish", lambda *about: None)
        result_folder.save(run, folder)
    return folder / atomic.PENDING


def change_record(pending, **changes):
    file = pending / atomic.RECORD
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def plant_another_folders_save(folder, victim):
    made(9).save(folder.parent / "elsewhere")
    shutil.move(leave_pending(NEW, folder.parent / "elsewhere"), folder / atomic.PENDING)


def plant_a_first_save(folder, victim):
    shutil.move(leave_pending(NEW, folder.parent / "empty"), folder / atomic.PENDING)


def plant_a_file_beside(folder, victim):
    (leave_pending(NEW, folder) / "thesis.tex").write_text("not galapax's")


def plant_a_manifest_of_other_names(folder, victim):
    pending = leave_pending(NEW, folder)
    rows = json.loads((pending / manifest.NAME).read_text())["files"] | {"notes.txt": {"bytes": 4, "sha256": ""}}
    data = {"format": 1, "files": rows, "checksum": manifest._checksum_rows(rows)}
    (pending / manifest.NAME).write_text(json.dumps(data))
    (pending / "notes.txt").write_text("other")


def plant_removals(*names):
    def plant(folder, victim):
        change_record(leave_pending(NEW, folder), remove=[name.replace("VICTIM", str(victim)) for name in names])

    return plant


def plant_a_linked_file(folder, victim):
    file = leave_pending(NEW, folder) / "runs.csv"
    file.unlink()
    file.symlink_to(victim)


def plant_a_linked_manifest(folder, victim):
    file = leave_pending(NEW, folder) / manifest.NAME
    shutil.move(file, folder.parent / "manifest.json")
    file.symlink_to(folder.parent / "manifest.json")


def plant_a_linked_record(folder, victim):
    file = leave_pending(NEW, folder) / atomic.RECORD
    shutil.move(file, folder.parent / "record")
    file.symlink_to(folder.parent / "record")


def plant_a_folder(folder, victim):
    file = leave_pending(NEW, folder) / "runs.csv"
    file.unlink()
    file.mkdir()


def plant_a_pipe_as_record(folder, victim):
    file = leave_pending(NEW, folder) / atomic.RECORD
    file.unlink()
    os.mkfifo(file)


def plant_a_long_record(folder, victim):
    change_record(leave_pending(NEW, folder), padding="x" * 2**17)


def plant_no_record(folder, victim):
    (leave_pending(NEW, folder) / atomic.RECORD).unlink()


PLANTS = {
    "the save of another folder": plant_another_folders_save,
    "the first save of another folder": plant_a_first_save,
    "a file that no manifest lists": plant_a_file_beside,
    "a manifest of other names": plant_a_manifest_of_other_names,
    "removal of a user's file": plant_removals("notes.txt"),
    "removal outside": plant_removals("../thesis.tex"),
    "removal by an absolute path": plant_removals("VICTIM"),
    "removal of the manifest": plant_removals(manifest.NAME),
    "removal of no text": lambda folder, victim: change_record(leave_pending(NEW, folder), remove=[3]),
    "removal of one text": lambda folder, victim: change_record(leave_pending(NEW, folder), remove="notes.txt"),
    "a linked file": plant_a_linked_file,
    "a linked manifest": plant_a_linked_manifest,
    "a linked record": plant_a_linked_record,
    "a folder for a file": plant_a_folder,
    "a pipe as record": plant_a_pipe_as_record,
    "a long record": plant_a_long_record,
    "no record": plant_no_record,
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_a_planted_save_is_neither_read_nor_finished(plant, tmp_path):
    victim, folder = tmp_path / "thesis.tex", tmp_path / "run"
    victim.write_text("mine")
    OLD.save(folder)
    (folder / "notes.txt").write_text("mine")
    before = contents(folder)
    plant(folder, victim)
    planted = sorted(file.name for file in (folder / atomic.PENDING).iterdir())
    assert same(gx.load(folder), OLD)
    for save in (made(7).save, study().save):
        with pytest.raises(gx.InputError, match=r"holds files that no save of galapax into .* nothing was changed"):
            save(folder)
    assert victim.read_text() == "mine" and sorted(file.name for file in (folder / atomic.PENDING).iterdir()) == planted
    assert {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()} == before and same(gx.load(folder), OLD)
    shutil.rmtree(folder / atomic.PENDING)  # as the sentence says
    NEW.save(folder)
    assert same(gx.load(folder), NEW) and (folder / "notes.txt").read_text() == "mine"


def test_a_linked_folder_of_a_save_is_not_followed(tmp_path):
    folder = tmp_path / "run"
    OLD.save(folder)
    pending = shutil.move(leave_pending(NEW, folder), tmp_path / "outside")
    planted = contents(tmp_path / "outside")
    (folder / atomic.PENDING).symlink_to(pending, target_is_directory=True)
    assert same(gx.load(folder), OLD)
    with pytest.raises((OSError, gx.InputError)):
        made(7).save(folder)
    assert same(gx.load(folder), OLD) and contents(tmp_path / "outside") == planted


def test_a_save_is_not_finished_over_a_file_that_became_a_users(tmp_path):
    """Somebody put a file, or a link, where the killed save would move its own."""
    for stand_in in (lambda file: file.write_text("mine"), lambda file: file.symlink_to(tmp_path / "thesis.tex")):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        (tmp_path / "thesis.tex").write_text("mine")
        OLD.save(folder)  # without runs.csv
        leave_pending(NEW, folder)
        stand_in(folder / "runs.csv")
        assert same(gx.load(folder), OLD)
        with pytest.raises(gx.InputError, match="nothing was changed"):
            made(7).save(folder)
        assert (folder / "runs.csv").read_text() == (tmp_path / "thesis.tex").read_text() == "mine"


STOPPED = """
import os, shutil, signal, sys
from pathlib import Path
from saved_runs import made, same, study
import galapax as gx
from galapax.storage import atomic, manifest, result_folder

folder, before, new = Path(sys.argv[1]), sys.argv[2], made(2, runs=3)

def start():
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    if before == "a study":
        result_folder.save(study(), folder)
    elif before != "nothing":
        result_folder.save(made(1), folder)

def save_killed_after(moves):  # of single files out of the folder of the save, the manifest last
    replace = os.replace
    def count(source, target):
        nonlocal moves
        if Path(source).parent.name == atomic.PENDING:
            if moves == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            moves -= 1
        replace(source, target)
    os.replace = count
    result_folder.save(new, folder)

def in_a_process(task, *arguments):
    pid = os.fork()
    if pid == 0:
        task(*arguments)
        os._exit(0)
    return os.waitpid(pid, 0)[1]

def finish():
    with atomic.folder_lock(folder):
        atomic.finish(folder, manifest.NAME, manifest.accept_pending)

moves = 0
while True:
    start()
    status = in_a_process(save_killed_after, moves)
    assert same(gx.load(folder), new), moves
    if not os.WIFSIGNALED(status):
        break
    assert (folder / atomic.PENDING / manifest.NAME).is_file()
    assert in_a_process(finish) == 0
    listed = manifest.Saved(folder).files
    assert {file.name for file in folder.iterdir()} == {*listed, manifest.NAME, "notes.txt"}, moves
    assert same(gx.load(folder), new), moves
    moves += 1
print(moves)
"""


@needs_fork
@pytest.mark.parametrize("before", ["nothing", "a run", "a study"])
def test_a_killed_save_is_read_as_saved_and_finished_by_the_next_process(before, tmp_path):
    outcome = apart([sys.executable, "-c", STOPPED, tmp_path / "run", before])
    assert outcome.returncode == 0, outcome.stderr
    assert int(outcome.stdout) == 6  # result.json, arrays.npz, three tables, the manifest


def test_numbers_that_cannot_be_written_leave_the_run_that_was_there(tmp_path, monkeypatch):
    OLD.save(tmp_path)
    before = contents(tmp_path)
    monkeypatch.setattr(result_folder, "result_to_arrays", lambda result: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        made(3, snapshots=True).save(tmp_path)
    assert contents(tmp_path) == before


def test_a_save_that_waits_for_its_last_moves_is_read_as_it_is_and_finished_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "can_draw", lambda: False)
    OLD.save(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "finish", lambda *about: None)
        result_folder.save(NEW, tmp_path)  # as if killed right after the one move that counts
    assert (tmp_path / atomic.PENDING).is_dir() and same(gx.load(tmp_path), NEW)
    tmp_path.chmod(0o555)  # reading needs no right to write
    assert same(gx.load(tmp_path), NEW)
    tmp_path.chmod(0o755)
    made(7).save(tmp_path)
    assert same(gx.load(tmp_path), made(7)) and not (tmp_path / atomic.PENDING).exists()
    assert not (tmp_path / "runs.csv").exists()


def test_a_reader_that_meets_a_save_reads_the_new_run(tmp_path, monkeypatch):
    OLD.save(tmp_path)
    read, calls = manifest.Saved.read, []

    def saved_in_between(self, name):
        if name == "arrays.npz" and not calls:
            calls.append(name)
            result_folder.save(NEW, tmp_path)
        return read(self, name)

    monkeypatch.setattr(manifest.Saved, "read", saved_in_between)
    assert same(gx.load(tmp_path), NEW)


def test_the_command_line_says_what_could_not_be_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "_draw", lambda *about: 1 / 0)
    code, said = call("solve", "branin", "-n", 6, "-g", 3, "--out", tmp_path / "run", "--no-cache", "--quiet")
    assert code == 0 and said.startswith(
        "galapax: convergence.png could not be drawn (ZeroDivisionError: division by zero)"
    )
    assert gx.load(tmp_path / "run").nit == 3 and (tmp_path / "run" / "report.html").exists()


# --- names ------------------------------------------------------------------------------------------------------------

NAMES = ["US$ {net vs AU$", "$\\frac{1}$", "a\rb", "a\nb", "\ud800", "=cmd|' /C calc'!A0", "<script>alert(1)</script>",
         "../../etc/passwd", "nul\x00", "\u202egnp.exe", "mean", "fun", "fun", "généré ✓", "x,y", '"quoted"', "'", "",
         "generation", "x" * 300, "_hidden", "%.17g", "{}", "\\", "#"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:30])
def test_any_text_is_a_name(name, tmp_path):
    about = {"name": name or "nameless", "title": name, "source": name, "variables": [name, name + "2", "c"],
             "objectives": [name, "other"], "constraint_names": [name, "c2"], "derived": None,
             "units": {name + "2": name}}  # fmt: skip
    run = made(4, runs=2, m=2, snapshots=True, **about)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the font may lack a letter
        warnings.filterwarnings("error", message=".*could not be drawn.*")
        run.save(tmp_path)
    loaded = gx.load(tmp_path)
    assert same(loaded, run) and loaded.problem.variables == run.problem.variable_names()
    for file in tmp_path.glob("*.csv"):
        with file.open(encoding="utf-8", newline="") as lines:
            header = next(csv.reader(lines))
        assert len(set(header)) == len(header) and not any(cell.lstrip().startswith(("=", "+", "@")) for cell in header)
    assert {f.name for f in tmp_path.iterdir()} <= {*manifest.ALL_FILE_NAMES, manifest.NAME}
    assert "<script>alert(1)" not in (tmp_path / "report.html").read_text(encoding="utf-8")


HOSTILE = [["=x", "'=x", "''=x"], ["-1", "'-1", "1"], ["nan", "'nan", "inf", "-inf"], ["", "'", "''"], ["5", 5, "'5"],
           ["auto", 5, 10, 0.5, -1], [" =x", "' =x", "=x"], ['"', '""', ",", "a,b"], ["＝x", "'＝x"],
           ["@a", "+1", "'@a", "'+1"], ["1e3", 1000, "1000.0"], ["\u00a0=x", "'\u00a0=x"]]  # fmt: skip
texts = st.one_of(
    st.text(st.sampled_from("'=+-@ax1 ,\"\n＝"), max_size=4), st.text(max_size=6),
    st.sampled_from(["nan", "inf", "-inf", "'nan", "5", "0", "True"]), st.integers(-9, 9), st.floats(-9, 9),
)  # fmt: skip


def labelled(labels, **about):
    """A run with those labels; None where `choice` refuses them."""
    try:
        return with_labels(made(2, runs=2, snapshots=True, n=max(5, len(labels)), **about), *labels)
    except gx.InputError:
        return None


@contextlib.contextmanager
def fresh_folder():
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(saving, "can_draw", lambda: False)
        yield Path(folder)


def check_labels(labels, **about):
    """Every label comes back from the folder of a run, and none looks like a formula in a table."""
    run = labelled(labels, **about)
    if run is None:
        return
    with fresh_folder() as folder:
        run.save(folder / "run")
        loaded = gx.load(folder / "run")
        assert same(loaded, run)
        files = export.write_csv_files(loaded, folder / "tables")
        export.write_json_file(loaded, folder / "all.json")
        data = json.loads((folder / "all.json").read_text())
        variable = run.problem.space.variables[1]
        expected = [variable.value(place) for place in run.population[:, 1]]
        assert list(data["population"].values())[1] == expected
        for file in files:
            with file.open(encoding="utf-8", newline="") as lines:
                rows = list(csv.reader(lines))
            cells = [cell for row in rows for cell in row if not is_number(cell)]
            assert not any(cell.lstrip().startswith(("=", "+", "-", "@", "＝")) for cell in cells), file
            if file.name == "population.csv" and all(isinstance(label, str) for label in variable.labels):
                assert [checks.from_csv(row[1]) for row in rows[1:]] == expected
    if not variable.numeric:
        for table in ("runs", "population"):
            frame = run.to_dataframe(table)
            places = run.runs.x if table == "runs" else run.population
            assert list(frame.iloc[:, -2 if table == "runs" else 1]) == [variable.value(p) for p in places[:, 1]]
            assert same(list(loaded.to_dataframe(table).iloc[:, 1]), list(frame.iloc[:, 1]))


def is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("labels", HOSTILE, ids=ascii)
def test_labels_that_look_alike_in_a_table_load_as_they_were(labels, m):
    check_labels(labels, m=m)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(texts, min_size=1, max_size=4), st.text(max_size=3))
def test_any_labels_load_as_they_were(labels, text):
    check_labels([text, *labels])


@given(st.text() | st.text(st.sampled_from("'=+-@ x\n")))
def test_a_cell_gives_the_text_back_and_is_no_formula(text):
    line = checks.clean_name(text, "a cell")
    assert checks.from_csv(checks.escape_csv(text)) == line
    assert not checks.escape_csv(text).lstrip().startswith(("=", "+", "-", "@"))


@pytest.mark.parametrize("name", ["=b", "fun", "generation", "'", "run"])
def test_labels_are_found_by_place_whatever_their_variable_is_called(name):
    check_labels(["=x", "'=x", "y"], variables=["a", name, "c"])


def test_a_missing_value_in_a_column_of_labels_stays_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "can_draw", lambda: False)
    run = with_labels(made(1), "nan", "inf", "x")
    run.population[:4, 1] = np.nan, np.inf, -np.inf, 0
    run.save(tmp_path)
    assert same(gx.load(tmp_path), run)


def test_labels_that_are_the_same_on_one_line_are_refused():
    with pytest.raises(gx.InputError, match=r"'a\\nb' and 'a b', which are the same on one line of text"):
        gx.choice("a\nb", "a b")


def test_a_dollar_in_a_name_is_drawn_as_one():
    run = made(4, name="US$ {net vs AU$", variables=["a$", "b$", "c"])
    axes = run.plot.convergence().axes[0]
    assert axes.get_title(loc="left").startswith(r"US\$ {net vs AU\$")
    run.plot.parallel().canvas.draw()


def test_labels_of_a_study_are_safe_as_cells(tmp_path):
    of = study()
    of = gx.Study("comparison", {"problem": ["made"], "algorithm": ["=1+1", "US$ {a$"]},
                  [{"problem": "made", "algorithm": a} for a in ("=1+1", "US$ {a$")], of.results, [None, None],
                  "Done.")  # fmt: skip
    of.save(tmp_path)
    with (tmp_path / "summary.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["algorithm"] for row in rows] == ["'=1+1", "US$ {a$"]
    assert gx.load(tmp_path).axes == of.axes


@pytest.mark.parametrize("reserved", ["violation", "hypervolume", "feasible_share"])
@pytest.mark.parametrize("argument", ["variables", "objectives"])
def test_names_of_our_own_columns_are_refused_when_the_problem_is_made(reserved, argument):
    with pytest.raises(
        gx.InputError, match=f"{argument} has '{reserved}', which is a reserved column name in saved tables"
    ):
        gx.Problem(lambda x: x, gx.box(0, 1, 2), **{argument: [reserved, "b"]})


@pytest.mark.parametrize(
    "about",
    [{"variables": [1, 2]}, {"name": 5}, {"title": b"bytes"}, {"source": None}, {"objectives": ["a", None]},
     {"constraint_names": [0.5]}, {"units": {"x1": 3}}, {"derived": {3: abs}}],
    ids=str,
)  # fmt: skip
def test_a_name_that_is_no_text_is_refused_when_the_problem_is_made(about):
    with pytest.raises(gx.InputError, match="must be text, got "):
        gx.Problem(lambda x: x[0], gx.box(0, 1, 2), **about)


@pytest.mark.parametrize("about", [{"name": 5}, {"title": 5}])
def test_a_min_max_problem_takes_text_for_names_too(about):
    with pytest.raises(gx.InputError, match="must be text, got 5"):
        gx.MinMaxProblem(lambda x, y: x[0], gx.box(0, 1, 2), gx.box(0, 1, 2), **about)
