"""Files that are there whole or not at all."""

import os
import stat
import subprocess
import sys
import time

import pytest

import galapax as gx
from galapax.papers.reproduction import Paper, reproduce
from galapax.storage import atomic


def test_a_file_is_written_whole_and_leaves_nothing_beside_it(tmp_path):
    file = tmp_path / "state"
    atomic.write_bytes(file, b"one, ", b"two")
    atomic.write_bytes(file, b"three, ", b"four")
    assert file.read_bytes() == b"three, four"
    assert os.listdir(tmp_path) == ["state"]


def test_a_failure_leaves_the_file_that_was_there_and_no_temporary(tmp_path):
    file = tmp_path / "state"
    atomic.write_bytes(file, b"old")
    with pytest.raises(TypeError):
        atomic.write_bytes(file, b"new", "not bytes")
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.slow
def test_a_disk_that_is_full_leaves_the_file_that_was_there(tmp_path):
    pytest.importorskip("resource")
    file = tmp_path / "state"
    atomic.write_bytes(file, b"old")
    program = (
        "import resource, sys, pathlib\n"
        "from galapax.storage import atomic\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    atomic.write_bytes(pathlib.Path(sys.argv[1]), b'x' * 900, b'y' * 900)\n"
        "except OSError as error:\n"
        "    sys.exit(7 if error.filename == sys.argv[1] else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, file], check=False).returncode == 7
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


def test_a_link_is_replaced_and_what_it_points_to_is_not_touched(tmp_path):
    victim, file = tmp_path / "victim", tmp_path / "state"
    victim.write_bytes(b"mine")
    file.symlink_to(victim)
    atomic.write_bytes(file, b"new")
    assert victim.read_bytes() == b"mine"
    assert file.read_bytes() == b"new" and not file.is_symlink()


def test_a_written_file_has_the_rights_that_any_new_file_has(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    atomic.write_bytes(tmp_path / "ours", b"")
    rights = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "ours")}
    assert len(rights) == 1


def test_temporaries_of_killed_processes_go_once_they_are_old_and_other_files_stay(tmp_path):
    old, folder, young, foreign = (tmp_path / atomic.temporary_name() for _ in range(4))
    foreign = tmp_path / "data.part"
    for file in (old, young, foreign):
        file.write_bytes(b"")
    folder.mkdir()
    (folder / "history.csv").write_bytes(b"")
    long_ago = time.time() - 2 * atomic.STALE_FOLDER_SECONDS
    for path in (old, folder, foreign):
        os.utime(path, (long_ago, long_ago))
    atomic.write_bytes(tmp_path / "state", b"new")
    assert {p.name for p in tmp_path.iterdir()} == {young.name, "data.part", "state"}


class Torn:
    """A figure whose drawing ends half way."""

    def savefig(self, file, **options):
        file.write(b"half")
        raise RuntimeError("no more ink")


def test_pictures_of_papers_and_of_views_are_whole_or_not_at_all(tmp_path, monkeypatch):
    nothing = {"device": "CPU"}
    paper = Paper("", "", lambda quick, say: nothing, lambda columns: "table", lambda columns: {"a.png": Torn()})
    (tmp_path / "a.png").write_bytes(b"before")
    with pytest.raises(RuntimeError, match="no more ink"):
        reproduce(paper, True, tmp_path)
    result = gx.minimize(lambda x: x[0] ** 2, [(-1.0, 1.0)], "random", population=4, generations=2, blackbox=True)
    (tmp_path / "convergence.png").write_bytes(b"before")
    monkeypatch.setattr(type(result.plot), "convergence", lambda plot: Torn())
    with pytest.raises(RuntimeError, match="no more ink"):
        result.plot.save(tmp_path)
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert kept.pop("measured.json") == b'{"CPU": {"device": "CPU"}}\n' and kept.pop("tables.txt") == b"table\n"
    assert kept == {"a.png": b"before", "convergence.png": b"before"}
