"""Checkpoints: a run that was stopped or killed goes on, bit for bit, as if nothing had been."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params
from support.killed_runs import (
    BOX,
    CALLS,
    assert_identical,
    collect_arrays,
    kill_repeatedly,
    start_process,
    wait_for,
    waves,
)
from support.paths import TESTS, with_test_modules
from typer.testing import CliRunner

import galapax as gx
from galapax.cli.app import app
from galapax.core.stop import Stop
from galapax.execution import compiled
from galapax.fused import backend as fused
from galapax.numerics import devices
from galapax.results.evaluations import Evaluations
from galapax.storage import checkpoint


def same(one, other):
    """Whether two results are the same in all that was computed, to the bit."""
    assert set(one) == set(other)
    for name in set(one) - {"timings", "settings", "problem"}:
        assert alike(one[name], other[name]), name
    return True


def in_order(evaluations):
    _, rows = replace(evaluations, seconds=0 * evaluations.worker, worker=0 * evaluations.worker).table()
    return rows[np.lexsort(rows.T)]


def alike(a, b):
    if isinstance(a, Evaluations):  # how long a call took and where it was made are not computed, and a generation
        return len(a) == len(b) and alike(in_order(a), in_order(b))  # that begins again may make its calls in turn
    if isinstance(a, dict):
        return set(a) == set(b) and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if hasattr(a, "__dict__") and not isinstance(a, np.ndarray):
        return alike(vars(a), vars(b))
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return a == b or (a != a and b != b)


def interrupted(file, stops, call, **options):
    """The result of a call that its callback stops at these generations, each time to go on from the file."""
    for number, stop in enumerate(stops):
        with pytest.MonkeyPatch.context() as patch:
            for backend in (compiled.XlaBackend, fused.KernelBackend):  # a GPU would look a thousand generations later
                patch.setattr(backend, "plan", lambda backend, length, seconds: 4)
            how = {"checkpoint": file} if not number else {"resume": file}
            result = call(**options, **how, callback=lambda p: p.generation >= stop)  # noqa: B023 (used at once)
        assert result.stop is Stop.CALLBACK
    return call(**options, resume=file)


# relatives of others are left out
SINGLE = sorted(name for name, kind in gx.algorithms.ALGORITHMS.items()
                if not kind.traits.multi_objective and name not in ("random", "jso", "lsrtde"))  # fmt: skip


@pytest.mark.parametrize("algorithm", params(SINGLE, quick={"ga"}))
def test_every_algorithm_goes_on_as_if_it_had_never_stopped(tmp_path, algorithm):
    def call(polish=False, **options):
        return gx.minimize(
            waves, BOX, algorithm, generations=60, seed=4, tolerance=0, restarts=None, polish=polish, **options
        )

    whole = call(keep=gx.Keep(snapshots=[3, 50]))
    assert same(interrupted(tmp_path / "a", (7, 31), call, keep=gx.Keep(snapshots=[3, 50])), whole)


@pytest.mark.parametrize("name", params(sorted(set(CALLS) - {"sweep"}), quick={"ensemble", "front"}))
def test_whatever_is_run_goes_on(tmp_path, name):
    whole = CALLS[name](seed=2, polish=False)
    assert same(interrupted(tmp_path / "a", (5, 17), CALLS[name], seed=2, polish=False), whole)


@pytest.mark.slow
def test_a_sweep_goes_on_with_the_cell_that_it_was_in(tmp_path):
    whole = CALLS["sweep"](runs=2)
    study = interrupted(tmp_path / "a", (5,), CALLS["sweep"], runs=2)
    assert len(study.results) == 4
    assert all(map(same, study.results, whole.results))


@pytest.mark.slow
def test_a_comparison_and_a_game_go_on(tmp_path):
    problem = gx.problems.get("minmax_saddle")

    def play(polish=False, **options):
        return gx.minimax(problem, generations=80, polish=polish, **options)

    assert same(interrupted(tmp_path / "game", (25,), play), play())
    again = {"max_evaluations": 600, "runs": 3}
    file = tmp_path / "study"
    first = gx.compare(["branin"], ["de", "ga"], **again, checkpoint=file)
    second = gx.compare(["branin"], ["de", "ga"], **again, resume=file)
    assert all(map(same, first.results, second.results))


def test_a_run_that_is_over_can_be_given_more_generations(tmp_path):
    def call(generations, polish=False, **options):
        return gx.minimize(waves, BOX, "de", generations=generations, tolerance=0, polish=polish, **options)

    call(20, checkpoint=tmp_path / "a")
    again = call(20, resume=tmp_path / "a")
    assert same(again, call(20)) and again.nit == 20
    assert same(call(50, resume=tmp_path / "a"), call(50))


@pytest.mark.slow
def test_an_ensemble_of_several_slices_goes_on(tmp_path):
    def call(polish=False, **options):
        return gx.minimize(waves, BOX, "ga", runs=130, generations=25, polish=polish, **options)

    assert same(interrupted(tmp_path / "a", (9,), call), call())


# --- a process that is killed ---


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_process_killed_again_and_again_comes_to_the_same_end(tmp_path):
    """Without a polish, and beside the same run in this process: a program and a process less."""
    file = tmp_path / "b"
    assert kill_repeatedly("ensemble", file, 1, seed=1, polish=False) == 1
    wait_for(start_process("ensemble", file, polish=False))
    assert_identical(collect_arrays(CALLS["ensemble"](seed=2, polish=False)), dict(np.load(f"{file}.npz")))


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs SIGTERM")
def test_sigterm_leaves_the_last_state_and_ends_the_process(tmp_path):
    file = tmp_path / "b"
    running = start_process("ensemble", file, 0.1)
    while running.poll() is None and not file.exists():
        time.sleep(0.005)
    time.sleep(1.0)
    running.terminate()
    running.communicate(timeout=120)
    assert running.returncode == -signal.SIGTERM
    wait_for(start_process("ensemble", file))
    wait_for(start_process("ensemble", tmp_path / "a"))
    assert np.array_equal(np.load(f"{file}.npz")["runs_x"], np.load(tmp_path / "a.npz")["runs_x"])


# --- files ---


def short(polish=False, **options):
    return gx.minimize(waves, BOX, "de", generations=30, tolerance=0, polish=polish, **options)


def test_the_file_before_serves_where_the_last_is_damaged(tmp_path):
    file, whole = tmp_path / "a", short()
    short(checkpoint=gx.Checkpoint(file, generations=5))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.warns(UserWarning, match="checksum does not match.*which is older"):
        assert same(short(resume=file), whole)
    file.unlink()
    with pytest.warns(UserWarning, match="is missing; continuing"):
        assert same(short(resume=file), whole)


@pytest.mark.parametrize(
    ("change", "other"),
    [
        ({"seed": 1}, "different run: .*seed \\(0 there, 1 here\\)"),
        ({"compute": gx.Compute(dtype="float32")}, "different run: .*precision"),
        ({"algorithm": "ga"}, "different run: .*algorithm \\(de there, ga here\\)"),
        ({"algorithm": gx.DE(weight=0.9)}, "different run: .*hyper-parameters"),
        ({"bounds": [(-5.0, 4.0)] * 3}, "different run: .*box"),
        ({"fun": lambda x: jnp.sum(x**2)}, "different run: .*functions"),
        ({"runs": 2}, "different run: .*runs"),
    ],
)
def test_another_run_is_refused_and_what_differs_is_named(tmp_path, change, other):
    given = {"fun": waves, "bounds": BOX, "algorithm": "de", "generations": 10, "polish": False}
    gx.minimize(**given, checkpoint=tmp_path / "a")
    with pytest.raises(gx.InputError, match=other):
        gx.minimize(**given | change, resume=tmp_path / "a")


def test_arguments_that_cannot_be_meant_are_refused_before_the_run(tmp_path):
    short(checkpoint=tmp_path / "a")
    for options, sentence in [
        ({"checkpoint": tmp_path / "a"}, "already exists"),
        ({"checkpoint": tmp_path}, "must be a file; .* is a folder"),
        ({"checkpoint": "a\0b"}, "cannot be used: .*null"),
        ({"resume": "x" * 5000}, "cannot be used: .*too long"),
        ({"resume": os.devnull}, "must be a file; .* is something else"),  # nor is a pipe waited for
        ({"checkpoint": tmp_path / "no" / "a"}, "does not exist"),
        ({"checkpoint": 3}, "must be the path of a file"),
        ({"resume": tmp_path / "b"}, "there is no checkpoint"),
        ({"resume": True}, "resume=True continues from the file given as checkpoint"),
        ({"resume": 1.5}, "resume must be"),
    ]:
        with pytest.raises(gx.InputError, match=sentence):
            short(**options)
    with pytest.raises(gx.InputError, match="at least 0"):
        gx.Checkpoint("a", seconds=-1)


def test_a_folder_that_cannot_be_written_to_is_found_out_at_once(tmp_path, monkeypatch):
    def full(path, *chunks):
        raise OSError(30, "Read-only file system")

    calls = []
    monkeypatch.setattr(checkpoint.atomic, "write_bytes", full)
    with pytest.raises(gx.InputError, match=r"cannot be written: .*Read-only"):
        short(checkpoint=tmp_path / "a", callback=calls.append)
    assert not calls


FULL_DISK = """
import resource, signal, sys, warnings
import galapax as gx
from galapax.execution import compiled
from test_checkpoint import waves, BOX
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

compiled.XlaBackend.plan = lambda engine, length, seconds: 4

def fill(progress):
    if progress.generation >= 20:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    result = gx.minimize(waves, BOX, "de", generations=60, tolerance=0, polish=False, callback=fill,
                         checkpoint=gx.Checkpoint(sys.argv[1], generations=5))
assert result.nit == 60
print(sum("could not be written" in str(w.message) for w in said))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits on files")
@pytest.mark.skipif(not devices.on_cpu(), reason="a GPU's compiler writes files, too")
def test_a_full_disk_costs_no_run_and_no_checkpoint(tmp_path):
    own = with_test_modules(TESTS / "storage")
    said = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "a")], capture_output=True, text=True, env=own
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.split() == ["1"]
    kept = checkpoint.read(tmp_path / "a")["sections"][0]["batch"]
    assert 1 <= kept.generation <= 40
    options = {"generations": 60, "tolerance": 0, "polish": False}
    assert same(
        gx.minimize(waves, BOX, "de", **options, resume=tmp_path / "a"), gx.minimize(waves, BOX, "de", **options)
    )


def test_damaged_bytes_give_a_sentence_and_never_another_run(tmp_path):
    """With a checksum that fits, too: what is inside is looked at before it is used."""
    short(checkpoint=tmp_path / "a")
    good, rng = (tmp_path / "a").read_bytes(), random.Random(3)
    (tmp_path / "a.1").unlink()
    for number in range(60):
        data = bytearray(good)
        if number % 3 == 0:
            del data[rng.randrange(len(data)) :]
        elif number % 3 == 1:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:  # a stranger's file: the checksum is right
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(checkpoint.MAGIC) + checkpoint.CHECKSUM_BYTES, len(data) // 3)] = rng.randrange(
                    256
                )
            body = bytes(data[len(checkpoint.MAGIC) + checkpoint.CHECKSUM_BYTES :])
            data = checkpoint.MAGIC + checkpoint.hashlib.sha256(body).digest() + body
        if bytes(data) == good:
            continue
        (tmp_path / "b").write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                checkpoint.read(tmp_path / "b")
            except gx.InputError:
                continue
        assert number % 3 == 2, "a damaged file was taken for a sound one"


def test_a_checkpoint_holds_plain_data_alone():
    with pytest.raises(TypeError, match="cannot hold a"):
        checkpoint.pack({"a": object()})
    raw = b"".join(checkpoint.pack({"a": [1, (2.5, None)], 3: np.arange(4, dtype=np.int32), "s": Stop.TIME}))
    back = checkpoint.unpack(raw)
    assert back["a"] == [1, (2.5, None)] and back["s"] is Stop.TIME and back[3].dtype == np.int32
    with pytest.raises(checkpoint.CorruptFileError, match="not a checkpoint"):
        checkpoint.unpack(b"PK\x03\x04")
    with pytest.raises(checkpoint.CorruptFileError, match="another version"):
        checkpoint.unpack(raw.replace(b"checkpoint 1", b"checkpoint 9"))


# --- callbacks and the command line ---


def test_what_a_callback_raises_comes_with_the_result_so_far(tmp_path):
    def callback(progress):
        if progress.generation >= 10:
            raise RuntimeError("no more paper")

    with pytest.raises(RuntimeError, match="no more paper") as caught:
        short(callback=callback, checkpoint=tmp_path / "a")
    assert caught.value.result.nit >= 10 and np.isfinite(caught.value.result.fun)
    assert same(short(resume=tmp_path / "a"), short())


def test_what_a_callback_raises_in_a_sweep_comes_with_the_whole_study_so_far():
    def callback(progress):
        done.append(progress)
        if len(done) > 1 and done[-1].generation <= done[-2].generation:  # the second population has begun
            raise RuntimeError("no more paper")

    done = []
    axes = {"weight": [0.4, 0.8], "population": [10, 20]}
    with pytest.raises(RuntimeError, match="no more paper") as caught:
        gx.sweep(waves, BOX, gx.DE, **axes, runs=2, generations=40, tolerance=0, polish=False, callback=callback)
    study = caught.value.result
    assert [label["population"] for label in study.labels] == [10, 20, 10, 20] and len(study.results) == 4
    assert [len(result.runs) for result in study.results] == [2] * 4 and study.stop is Stop.CALLBACK
    assert [study.results[i].nit for i in (0, 2)] == [40, 40]


@pytest.mark.slow
def test_the_command_line_goes_on(tmp_path):
    run, file = CliRunner(), tmp_path / "run.ckpt"
    options = ["solve", "branin", "-a", "de", "-g", "40", "--seed", "3", "--json"]
    whole = run.invoke(app, options)
    kept = run.invoke(app, [*options, "--checkpoint", str(file), "--checkpoint-every", "0"])
    again = run.invoke(app, ["resume", str(file), "--json"])
    assert whole.exit_code == kept.exit_code == again.exit_code == 0, again.output
    assert '"fun"' in whole.output and whole.output.split('"timings"')[0] == again.output.split('"timings"')[0]
    problem = tmp_path / "bowl.py"
    problem.write_text("def fun(x):\n    return (x**2).sum()\n\nbounds = [(-1, 1)] * 2\n")
    run.invoke(app, ["solve", str(problem), "-a", "de", "-g", "5", "--checkpoint", str(tmp_path / "b")])
    refused = run.invoke(app, ["resume", str(tmp_path / "b")])
    assert refused.exit_code == 2 and "which resuming would run" in " ".join(refused.stderr.split())
    assert run.invoke(app, ["resume", str(tmp_path / "b"), str(problem)]).exit_code == 0
    assert run.invoke(app, ["resume", str(tmp_path / "c")]).exit_code == 2


# --- black boxes ---


class Simulator:
    """Counts its calls, and which points they were for."""

    def __init__(self):
        self.calls = []
        self.before = lambda number: None

    def __call__(self, x):
        self.before(len(self.calls))
        self.calls.append(x.tobytes())
        if x[0] > 4.9:
            raise ValueError("burst")
        return float(np.sum(x**2 + 3 * np.sin(5 * x)))


def called(fun, generations=12, **options):
    return gx.minimize(fun, BOX, "de", population=10, generations=generations, blackbox=True, tolerance=0, **options)


def test_a_black_box_goes_on_and_no_call_is_made_twice(tmp_path):
    whole, parts = Simulator(), Simulator()
    expected = called(whole)
    called(parts, checkpoint=tmp_path / "a", callback=lambda p: p.generation >= 5)
    result = called(parts, resume=tmp_path / "a")
    assert same(result, expected) and result.n_failed == expected.n_failed
    assert parts.calls == whole.calls


@pytest.mark.parametrize("cache", [False, True])
def test_ctrl_c_within_a_generation_keeps_the_calls_that_were_made(tmp_path, cache):
    whole, parts = Simulator(), Simulator()
    expected = called(whole, workers=gx.Workers(memoize=cache))

    for number, options in ((7, {"checkpoint": tmp_path / "a"}), (34, {"resume": tmp_path / "a"})):
        parts.before = lambda made: signal.raise_signal(signal.SIGINT) if made == number else None  # noqa: B023
        result = called(parts, workers=gx.Workers(memoize=cache), **options)
        assert result.stop is Stop.INTERRUPT and len(parts.calls) == number
    parts.before = lambda made: None
    assert same(called(parts, resume=tmp_path / "a", workers=gx.Workers(memoize=cache)), expected)
    assert parts.calls == whole.calls


def test_a_generation_is_saved_while_it_is_evaluated(tmp_path, monkeypatch):
    """As it is after a kill in the middle of a long generation: nobody came to write at its end."""
    whole, parts = Simulator(), Simulator()
    expected = called(whole)
    monkeypatch.setattr(
        checkpoint, "MAX_WRITE_SHARE", 1e9
    )  # however long writing takes, it is done between any two calls
    file, saved, last = tmp_path / "a", {}, [b""]

    def copy(made):
        if made in (3, 26):
            time.sleep(0.3)  # the file is written in a thread of its own
            last[0] = file.read_bytes()
        if made in (4, 27):
            deadline = time.monotonic() + 20
            while file.read_bytes() == last[0] and time.monotonic() < deadline:
                time.sleep(0.02)
            saved[made] = file.read_bytes()

    parts.before = copy
    called(parts, checkpoint=gx.Checkpoint(file, seconds=0))
    for number, data in saved.items():
        (tmp_path / "b").write_bytes(data)
        again = Simulator()
        assert same(called(again, resume=tmp_path / "b"), expected)
        assert again.calls == whole.calls[len(whole.calls) - len(again.calls) :]
        assert len(again.calls) <= len(whole.calls) - number, "at most calls since the last write are lost"


@pytest.mark.slow
def test_constraints_and_restarts_of_a_black_box_go_on(tmp_path):
    def call(**options):
        return gx.minimize(
            lambda x: float(np.sum(x**2)), BOX, ineq=lambda x: 1.0 - x[0], blackbox=True, generations=25, **options
        )

    assert same(interrupted(tmp_path / "a", (4, 11), call), call())

    def search(**options):
        return gx.minimize(lambda x: float(np.sum(x**2)), BOX, blackbox=True, max_evaluations=1500, **options)

    assert same(interrupted(tmp_path / "b", (40, 90), search), search())


def test_asynchronous_runs_are_refused(tmp_path):
    with pytest.raises(gx.InputError, match="remove checkpoint"):
        gx.minimize(waves, BOX, "de", checkpoint=tmp_path / "a", workers=gx.Workers(2, asynchronous=True))


@pytest.mark.parametrize("last", [3, 12, 25, 64], ids=["first points", "later ones", "differences", "a generation"])
def test_a_simulator_with_constraints_is_never_called_twice_for_a_point(tmp_path, last):
    """Its constraints are found by calling it, and points are tried for their differences: each stage may be cut."""

    def call(limit, **options):
        calls = []

        def fun(x):
            calls.append(x)
            if len(calls) > limit:
                raise KeyboardInterrupt
            return {"fun": float(x[0]), "eq": float(x[0] ** 2 + x[1] ** 2 - 1)}

        given = {"population": 20, "generations": 3, "blackbox": True, "tolerance": 0, "polish": False}
        return gx.minimize(fun, [(-2.0, 3.0)] * 2, "epsilon_de", **given, **options), len(calls)

    whole, count = call(10**9)
    call(last, checkpoint=tmp_path / "a")
    result, rest = call(10**9, resume=tmp_path / "a")
    assert same(result, whole) and last + rest == count == whole.nfev
