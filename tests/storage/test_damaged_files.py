"""Damaged files of saved runs: loading gives the run that was saved, or an error that says what is wrong."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from support import zip_bombs
from support.cases import params, product
from support.paths import TESTS, with_test_modules
from support.saved_runs import is_same, random_run, random_study, sign
from typer.testing import CliRunner

import galapax as gx
from galapax.cli.app import app
from galapax.view import accessor, report

OLD, NEW = random_run(1), random_run(2, runs=3)


def call(*arguments):
    outcome = CliRunner().invoke(app, list(map(str, arguments)))
    return outcome.exit_code, " ".join(outcome.output.split())


def cut(data):
    return data[: len(data) // 2]


def one_bit(data):
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


def cut_at_a_line(data):
    return b"".join(data.splitlines(keepends=True)[:-1])


FILES = ["result.json", "arrays.npz"]
DAMAGES = [
    pytest.param(cut, r"it is truncated: \d+ of \d+ bytes are present", id="cut"),
    pytest.param(cut_at_a_line, "it is truncated", id="cut at a line"),
    pytest.param(lambda data: data + b"1", r"it has \d+ bytes instead of \d+", id="longer"),
    pytest.param(one_bit, "its content .*: the checksum in manifest.json differs", id="one bit"),
    pytest.param(lambda data: None, "it is missing", id="missing"),
    pytest.param(lambda data: b"", "it is truncated: 0 of", id="empty"),
]


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    params(
        product(FILES, DAMAGES),
        quick={"result.json-cut at a line", "result.json-longer", "arrays.npz-cut", "arrays.npz-one bit"},
    ),
)
def test_each_kind_of_damage_has_its_message(damage, sentence, name, tmp_path):
    file = NEW.save(tmp_path) / name
    left = damage(file.read_bytes())
    file.unlink() if left is None else file.write_bytes(left)
    with pytest.raises(gx.InputError, match=rf"{name} is damaged \({sentence}.*; repeat the run"):
        gx.load(tmp_path)


CHANGES = [
    {"message": 5}, {"success": "yes"}, {"feasible": None}, {"nit": "6"}, {"nfev": 1.5}, {"seed": []},
     {"settings": []}, {"settings": {}}, {"settings": {"maximize": True}}, {"timings": {"run": "long"}},
     {"timings": 3}, {"timings": {}},
     {"x": [1.0]}, {"x": ["1", "2", "3"]}, {"x": None}, {"fun": "low"}, {"fun": True}, {"violation": "none"},
     {"problem": None}, {"problem": {"name": 5}}, {"ineq": {}}, {"fun": 10**400}, {"format": -1}, {"format": 1e999},
     {"stop": "somehow"},
]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    params(
        CHANGES,
        quick={
            "{'nit': '6'}",
            "{'nfev': 1.5}",
            "{'settings': []}",
            "{'timings': {'run': 'long'}}",
            "{'timings': 3}",
            "{'timings': {}}",
            "{'x': [1.0]}",
            "{'stop': 'somehow'}",
        },
        ids=lambda change: str(change)[:40],
    ),
)
def test_values_of_another_type_are_damage_and_not_the_reports_trouble(change, tmp_path):
    file = OLD.save(tmp_path) / "result.json"
    data = json.loads(file.read_text())
    if isinstance(change.get("problem"), dict):
        change = {"problem": data["problem"] | change["problem"]}
    file.write_text(json.dumps(data | change))
    sign(tmp_path)
    with pytest.raises(gx.InputError, match=r"result\.json is damaged \("):
        gx.load(tmp_path)


def test_deep_nesting_is_damage(tmp_path):
    folder = NEW.save(tmp_path)
    file = folder / "result.json"
    whole = file.read_bytes()
    for content in (
        b"[" * 200_000,
        b'{"format": ' + b'{"a":' * 100_000,
        b'{"format": 1e999}',
        b'{"format": ' + b"9" * 5000 + b"}",
    ):
        file.write_bytes(content)
        sign(folder)
        with pytest.raises(gx.InputError, match=r"result\.json is damaged"):
            gx.load(folder)
    file.write_bytes(whole)
    assert is_same(gx.load(sign(folder)), NEW)


ARRAY_DAMAGES = {
    "missing": lambda arrays: arrays.pop("history.best"),
    "a stranger": lambda arrays: arrays.update(thesis=np.zeros(3)),
    "another length": lambda arrays: arrays.update({"history.best": arrays["history.best"][:-1]}),
    "another width": lambda arrays: arrays.update(population=arrays["population"][:, :2]),
    "another number of runs": lambda arrays: arrays.update({"runs.nfev": arrays["runs.nfev"][:2]}),
    "an axis too many": lambda arrays: arrays.update({"runs.fun": arrays["runs.fun"][:, None]}),
    "numbers for flags": lambda arrays: arrays.update({"runs.success": arrays["runs.success"].astype(float)}),
    "fractions for counts": lambda arrays: arrays.update({"history.generation": arrays["history.generation"] + 0.5}),
    "flags for numbers": lambda arrays: arrays.update(population=arrays["population"] > 0),
    "fronts of other sizes": lambda arrays: arrays.update({"runs.fronts.size": arrays["runs.fronts.size"] + 1}),
    "fronts of negative sizes": lambda arrays: arrays.update({"runs.fronts.size": np.array([13, -5, 4])}),
    "a snapshot of no generation": lambda arrays: arrays.update({"snapshots.x.x": arrays["snapshots.1.x"]}),
    "a front for each run less": lambda arrays: arrays.update({"runs.fronts.size": np.array([8, 4])}),
}


@pytest.mark.parametrize("damage", ARRAY_DAMAGES.values(), ids=ARRAY_DAMAGES)
def test_arrays_that_do_not_fit_together_are_damage(damage, tmp_path):
    folder = random_run(3, runs=3, m=2, snapshots=True).save(tmp_path)
    file = folder / "arrays.npz"
    arrays = dict(np.load(file))
    damage(arrays)
    np.savez(file, **arrays)
    with pytest.raises(gx.InputError, match=r"arrays\.npz is damaged \("):
        gx.load(sign(folder))


def test_an_array_of_more_numbers_than_its_bytes_is_damage(tmp_path):
    folder = NEW.save(tmp_path)
    file = folder / "arrays.npz"
    file.write_bytes(file.read_bytes().replace(b"(6,)", b"(9999999999999,)", 1))
    with pytest.raises(gx.InputError, match=r"arrays\.npz is damaged"):
        gx.load(sign(folder))


def test_a_newer_manifest_is_named(tmp_path):
    file = OLD.save(tmp_path) / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 7}))
    with pytest.raises(gx.InputError, match="format 7, written by a newer galapax"):
        gx.load(tmp_path)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    OLD.save(tmp_path)
    for make in (os.mkfifo, os.mkdir):
        shutil.rmtree(tmp_path)
        file = OLD.save(tmp_path) / "arrays.npz"
        file.unlink()
        make(file)
        with pytest.raises(gx.InputError, match=r"arrays\.npz is damaged \(it is missing"):
            gx.load(tmp_path)


def test_an_export_needs_no_saved_tables(tmp_path):
    folder = random_study().save(tmp_path / "run")
    whole = (folder / "curves.csv").read_bytes()
    (folder / "curves.csv").write_bytes(cut_at_a_line(whole))
    code, _ = call("view", folder, "--export", "csv", "--out", tmp_path / "tables")
    assert code == 0 and (tmp_path / "tables" / "curves.csv").read_bytes() == whole


# --- archives that unpack to more than they are -----------------------------------------------------------------------


def test_an_archive_is_not_unpacked_beyond_its_own_size(tmp_path):
    """The largest memory that a process ever had does not shrink, so that one process tries them all."""
    pytest.importorskip("resource")
    script = TESTS / "support" / "zip_bombs.py"
    out = subprocess.run([sys.executable, script, tmp_path], env=with_test_modules(), check=True, capture_output=True)
    rows = [json.loads(line) for line in out.stdout.splitlines()]
    assert len(rows) == len(zip_bombs.BOMBS)
    for name, grown, said in rows:
        assert "arrays.npz is damaged" in said, (name, said)
        assert grown < 16, (name, grown)  # MiB, where unpacking takes 128


# --- fuzz: whatever happens to the bytes, the answer is the run that was saved or a sentence --------------------------

RUNS = {"single": OLD, "ensemble": NEW, "front": random_run(3, runs=3, m=2, snapshots=True), "study": random_study()}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders to copy, without pictures, which are never read."""
    folder = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accessor, "can_draw", lambda: False)
        return {name: run.save(folder / name) for name, run in RUNS.items()}


def flip(rng, data, _):
    at = rng.integers(len(data), size=rng.integers(1, 4))
    out = bytearray(data)
    for place in at:
        out[place] ^= 1 << rng.integers(8)
    return bytes(out)


def truncate(rng, data, _):
    return data[: rng.integers(len(data))]


def swap(rng, data, others):
    return others[rng.integers(len(others))]


def empty(rng, data, _):
    return b""


def huge(rng, data, _):
    """A number in it becomes one that is too large for anything."""
    digits = [i for i, byte in enumerate(data) if 48 <= byte < 58]
    at = digits[rng.integers(len(digits))] if digits else 0
    number = (b"9" * 30, b"1e999", b"-9223372036854775809", b"9" * 5000, b"nan", b"0x7f")[rng.integers(6)]
    return data[:at] + number + data[at + 1 :]


def nest(rng, data, _):
    at = rng.integers(len(data))
    return data[:at] + (b"[" * 100_000 if rng.integers(2) else b'{"a":' * 100_000) + data[at:]


def middle(rng, data, _):
    start, end = sorted(rng.integers(len(data) + 1, size=2))
    return data[:start] + data[end:]


def noise(rng, data, _):
    at = rng.integers(len(data))
    return data[:at] + rng.bytes(rng.integers(1, 40)) + data[at:]


DAMAGES = [flip, truncate, swap, empty, huge, nest, middle, noise]


def fuzz(saved, folder, numbers, signed):
    """Damage one file of a folder at a time; return how many of the damages were noticed."""
    sentences = []
    for number in numbers:
        rng = np.random.default_rng(number)
        which = list(RUNS)[number % len(RUNS)]
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(saved[which], folder)
        files = sorted(file for file in folder.iterdir() if file.suffix != ".csv")  # tables are never read
        file = files[rng.integers(len(files))]
        damage = DAMAGES[number // len(RUNS) % len(DAMAGES)]
        whole = file.read_bytes()
        file.write_bytes(damage(rng, whole, [other.read_bytes() for other in files]))
        if signed and file.name != "manifest.json":
            sign(folder)
        about = f"{number}: {damage.__name__} of {file.name} of {which}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                loaded = gx.load(folder)
        except gx.InputError as error:
            sentences.append(str(error))
            continue
        except Exception as error:
            raise AssertionError(f"{about}: {type(error).__name__}: {error}") from error
        if signed:  # a changed digit is a number like any other; it must only be one that can be shown
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    report.render_study(loaded) if isinstance(loaded, gx.Study) else report.render_result(loaded)
                except Exception as error:
                    raise AssertionError(f"{about}: the report: {type(error).__name__}: {error}") from error
        else:
            assert is_same(loaded, RUNS[which]), about
    assert all(len(sentence) < 1000 and "\n" not in sentence for sentence in sentences)
    return len(sentences)


def test_damaged_bytes_give_the_run_that_was_saved_or_a_sentence(saved, tmp_path):
    assert fuzz(saved, tmp_path / "run", range(64), signed=False) > 40


def test_damaged_bytes_with_a_manifest_that_fits_give_a_sentence_or_what_can_be_shown(saved, tmp_path):
    assert fuzz(saved, tmp_path / "run", range(64), signed=True) > 30


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("signed", [False, True])
def test_much_more_damage_gives_the_run_that_was_saved_or_a_sentence(signed, part, saved, tmp_path):
    fuzz(saved, tmp_path / "run", range(1000 * part + 1000, 1000 * part + 2000), signed)


def test_a_path_without_a_run_is_an_input_error(tmp_path):
    for path in (tmp_path / "nowhere", Path("a\x00b"), tmp_path / ("x" * 300)):
        with pytest.raises(gx.InputError):
            gx.load(path)
