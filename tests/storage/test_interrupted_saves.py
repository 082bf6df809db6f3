"""How one saved run takes the place of another, whenever the process is killed and whatever lies in its way."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from support.paths import with_test_modules
from support.saved_runs import call_shell, is_same, random_run, random_study, read_files

import galapax as gx
from galapax.cli import output
from galapax.storage import atomic, result_folder
from galapax.view import accessor

OLD, NEW = random_run(1), random_run(2, runs=3)


# --- one run in another's place ---------------------------------------------------------------------------------------

KILLED = """
import os, random, signal, sys, time, warnings
from pathlib import Path
from support.saved_runs import random_run, is_same, random_study
import galapax as gx
from galapax.storage import result_folder
from galapax.storage import atomic

folder, steps, times, seed = Path(sys.argv[1]), sys.argv[2] == "steps", int(sys.argv[3]), int(sys.argv[4])
runs = [random_run(1, n=40), random_run(2, runs=30, n=40, generations=60), random_study(3)]
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
    new = next(run for run in runs if not is_same(run, old))
    k += 1
    pid = os.fork()
    if pid == 0:
        child(k)
    if not steps:
        time.sleep(random.uniform(0.002, 0.25))
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    left = gx.load(folder)  # as it is, before anybody tidies up
    which = [is_same(run, left) for run in runs]
    assert any(which), (k, old, left)
    if steps:
        assert is_same(left, old) or is_same(left, new), k
    found.add("old" if is_same(left, old) else "new")
    if not os.WIFSIGNALED(status):
        break
    done += 1
    put(runs[k % len(runs)])  # the next save works, and leaves nothing of the one that was killed
    assert is_same(gx.load(folder), runs[k % len(runs)])
    stray = {f.name for f in folder.iterdir() if not f.name.endswith(".part")} - {"manifest.json"}
    assert stray == atomic.SavedFiles(folder).files.keys(), (k, stray)
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


@pytest.mark.slow
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
from support.saved_runs import random_run
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    random_run(2, runs=40, generations=80, snapshots=True).save(sys.argv[1])
except OSError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 700, 20_000, 60_000])
def test_a_full_disk_costs_the_new_run_and_not_the_old(limit, tmp_path):
    pytest.importorskip("resource")
    OLD.save(tmp_path)
    before = read_files(tmp_path)
    command = [sys.executable, "-c", FULL, str(tmp_path), str(limit)]
    outcome = apart(command)
    assert outcome.returncode == 7, outcome.stderr
    assert "could not be saved to" in outcome.stdout
    assert "The result itself is intact, and so is the run that was saved there before." in outcome.stdout
    assert read_files(tmp_path) == before and is_same(gx.load(tmp_path), OLD)


@pytest.mark.slow
def test_a_full_disk_for_pictures_costs_the_pictures(tmp_path):
    pytest.importorskip("resource")
    program = FULL.replace("random_run(2, runs=40, generations=80, snapshots=True)", "random_run(2)")
    command = [sys.executable, "-c", program, str(tmp_path), "8000"]
    outcome = apart(command)
    assert outcome.returncode == 0 and "convergence.png could not be drawn (OSError" in outcome.stderr, outcome.stderr
    assert is_same(gx.load(tmp_path), random_run(2)) and not (tmp_path / "convergence.png").exists()


def test_a_picture_that_fails_costs_that_picture(tmp_path):
    def fails(file):
        file.write_bytes(b"half of a pic")
        raise ZeroDivisionError("no room for the legend")

    pictures = {"convergence.png": fails, "report.html": lambda file: file.write_text("drawn")}
    with pytest.warns(UserWarning, match=r"convergence\.png could not be drawn \(ZeroDivisionError: no room"):
        result_folder.save(NEW, tmp_path, pictures)
    assert is_same(gx.load(tmp_path), NEW)
    assert (tmp_path / "report.html").read_text() == "drawn" and not (tmp_path / "convergence.png").exists()


def test_what_a_killed_first_save_left_does_not_fill_a_folder(tmp_path):
    with atomic.staging_folder(tmp_path) as stage:
        (stage / "history.csv").write_bytes(b"half")
        output.check_folder(tmp_path, force=False)


# --- saves that wait for their last moves: whose they are ------------------------------------------------------------


def leave_pending(run, folder):
    """Save a run as a process does that is killed right after the one move that counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "move_pending", lambda *about: None)
        result_folder.save(run, folder)
    return folder / atomic.PENDING


def change_record(pending, **changes):
    file = pending / atomic.RECORD
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def plant_another_folders_save(folder, victim):
    random_run(9).save(folder.parent / "elsewhere")
    shutil.move(leave_pending(NEW, folder.parent / "elsewhere"), folder / atomic.PENDING)


def plant_a_first_save(folder, victim):
    shutil.move(leave_pending(NEW, folder.parent / "empty"), folder / atomic.PENDING)


def plant_a_file_beside(folder, victim):
    (leave_pending(NEW, folder) / "thesis.tex").write_text("not galapax's")


def plant_a_manifest_of_other_names(folder, victim):
    pending = leave_pending(NEW, folder)
    rows = json.loads((pending / atomic.MANIFEST).read_text())["files"] | {"notes.txt": {"bytes": 4, "sha256": ""}}
    data = {"format": 1, "files": rows, "checksum": atomic._checksum_rows(rows)}
    (pending / atomic.MANIFEST).write_text(json.dumps(data))
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
    file = leave_pending(NEW, folder) / atomic.MANIFEST
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
    "removal of the manifest": plant_removals(atomic.MANIFEST),
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
    before = read_files(folder)
    plant(folder, victim)
    planted = sorted(file.name for file in (folder / atomic.PENDING).iterdir())
    assert is_same(gx.load(folder), OLD)
    for save in (random_run(7).save, random_study().save):
        with pytest.raises(gx.InputError, match=r"holds files that no save of galapax into .* nothing was changed"):
            save(folder)
    assert victim.read_text() == "mine" and sorted(file.name for file in (folder / atomic.PENDING).iterdir()) == planted
    assert {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()} == before and is_same(gx.load(folder), OLD)
    shutil.rmtree(folder / atomic.PENDING)  # as the sentence says
    NEW.save(folder)
    assert is_same(gx.load(folder), NEW) and (folder / "notes.txt").read_text() == "mine"


def test_a_linked_folder_of_a_save_is_not_followed(tmp_path):
    folder = tmp_path / "run"
    OLD.save(folder)
    pending = shutil.move(leave_pending(NEW, folder), tmp_path / "outside")
    planted = read_files(tmp_path / "outside")
    (folder / atomic.PENDING).symlink_to(pending, target_is_directory=True)
    assert is_same(gx.load(folder), OLD)
    with pytest.raises((OSError, gx.InputError)):
        random_run(7).save(folder)
    assert is_same(gx.load(folder), OLD) and read_files(tmp_path / "outside") == planted


def test_a_save_is_not_finished_over_a_file_that_became_a_users(tmp_path):
    """Somebody put a file, or a link, where the killed save would move its own."""
    for stand_in in (lambda file: file.write_text("mine"), lambda file: file.symlink_to(tmp_path / "thesis.tex")):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        (tmp_path / "thesis.tex").write_text("mine")
        OLD.save(folder)  # without runs.csv
        leave_pending(NEW, folder)
        stand_in(folder / "runs.csv")
        assert is_same(gx.load(folder), OLD)
        with pytest.raises(gx.InputError, match="nothing was changed"):
            random_run(7).save(folder)
        assert (folder / "runs.csv").read_text() == (tmp_path / "thesis.tex").read_text() == "mine"


STOPPED = """
import os, shutil, signal, sys
from pathlib import Path
from support.saved_runs import random_run, is_same, random_study
import galapax as gx
from galapax.storage import atomic, result_folder
from galapax.storage import atomic

folder, before, new = Path(sys.argv[1]), sys.argv[2], random_run(2, runs=3)

def start():
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    if before == "a study":
        result_folder.save(random_study(), folder)
    elif before != "nothing":
        result_folder.save(random_run(1), folder)

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
        atomic.move_pending(folder)

moves = 0
while True:
    start()
    status = in_a_process(save_killed_after, moves)
    assert is_same(gx.load(folder), new), moves
    if not os.WIFSIGNALED(status):
        break
    assert (folder / atomic.PENDING / atomic.MANIFEST).is_file()
    assert in_a_process(finish) == 0
    listed = atomic.SavedFiles(folder).files
    assert {file.name for file in folder.iterdir()} == {*listed, atomic.MANIFEST, "notes.txt"}, moves
    assert is_same(gx.load(folder), new), moves
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
    before = read_files(tmp_path)
    monkeypatch.setattr(result_folder, "result_to_arrays", lambda result: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        random_run(3, snapshots=True).save(tmp_path)
    assert read_files(tmp_path) == before


def test_a_save_that_waits_for_its_last_moves_is_read_as_it_is_and_finished_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(accessor, "can_draw", lambda: False)
    OLD.save(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "move_pending", lambda *about: None)
        result_folder.save(NEW, tmp_path)  # as if killed right after the one move that counts
    assert (tmp_path / atomic.PENDING).is_dir() and is_same(gx.load(tmp_path), NEW)
    tmp_path.chmod(0o555)  # reading needs no right to write
    assert is_same(gx.load(tmp_path), NEW)
    tmp_path.chmod(0o755)
    random_run(7).save(tmp_path)
    assert is_same(gx.load(tmp_path), random_run(7)) and not (tmp_path / atomic.PENDING).exists()
    assert not (tmp_path / "runs.csv").exists()


def test_a_reader_that_meets_a_save_reads_the_new_run(tmp_path, monkeypatch):
    OLD.save(tmp_path)
    read, calls = atomic.SavedFiles.read, []

    def saved_in_between(self, name):
        if name == "arrays.npz" and not calls:
            calls.append(name)
            result_folder.save(NEW, tmp_path)
        return read(self, name)

    monkeypatch.setattr(atomic.SavedFiles, "read", saved_in_between)
    assert is_same(gx.load(tmp_path), NEW)


@pytest.mark.slow
def test_the_command_line_says_what_could_not_be_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(accessor, "_draw", lambda *about: 1 / 0)
    code, said = call_shell("solve", "branin", "-n", 6, "-g", 3, "--out", tmp_path / "run", "--no-cache", "--quiet")
    assert code == 0 and said.startswith(
        "galapax: convergence.png could not be drawn (ZeroDivisionError: division by zero)"
    )
    assert gx.load(tmp_path / "run").nit == 3 and (tmp_path / "run" / "report.html").exists()
