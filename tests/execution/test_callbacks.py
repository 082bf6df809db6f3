"""Callbacks and Ctrl-C: what a callback learns of a run, and how it or the user ends one."""

import json
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from support.bowl import N, bowl, bowl_in_numpy, solve

import galapax as gx


def test_a_callback_receives_the_progress(clock):
    told = []
    res = solve(generations=3000, callback=told.append, max_seconds=5000.0, tolerance=0)
    assert len(told) > 1 and all(isinstance(state, gx.Progress) for state in told)
    assert [s.generation for s in told] == sorted({s.generation for s in told}) and told[-1].generation == 3000
    for state in told:
        assert state.nfev == state.generation * N
        assert state.fun == res.history.best[state.generation - 1]
        assert (state.generations, state.runs, state.violation, state.max_seconds) == (3000, 1, 0.0, 5000.0)
    seconds = [s.seconds for s in told]
    whole = sum(res.timings[part] for part in ("compile", "run", "host"))
    assert seconds == sorted(seconds) and 0 < seconds[0] < seconds[-1] < whole


def test_a_callback_receives_the_generation_in_which_the_run_ended():
    told = []
    res = solve(generations=3000, callback=told.append)
    assert res.stop == "tolerance" and told[-1].generation == res.nit and told[-1].nfev == res.nfev


def test_callback_of_a_black_box_comes_after_every_generation():
    told = []
    res = solve(bowl_in_numpy, callback=told.append, blackbox=True)
    assert [s.generation for s in told] == list(range(1, 21))
    assert [s.fun for s in told] == res.history.best.tolist()


def test_callback_of_an_ensemble_counts_all_runs():
    told = []
    res = solve(runs=5, target=1e-3, generations=3000, callback=told.append)
    assert told[-1].runs == 5 and told[-1].runs_done == 5
    assert told[-1].nfev == res.nfev and told[-1].fun == res.fun


def test_callback_of_an_ensemble_in_batches_counts_each_run_once(in_batches):
    in_batches(3)
    told = []
    res = solve(runs=10, target=-1.0, callback=told.append)
    assert max(s.runs_done for s in told) == told[-1].runs_done == 10
    assert [s.nfev for s in told] == sorted(s.nfev for s in told) and told[-1].nfev == res.nfev == 10 * 20 * N
    assert told[-1].fun == res.fun


def test_progress_counts_runs_that_were_not_started(in_batches):
    in_batches(3)
    res = solve(runs=10, generations=10**6, callback=lambda state: True, tolerance=0)
    assert len(res.runs) == 3 and res.runs.number.tolist() == [0, 1, 2]
    assert "Only 3 of 10 runs were started" in res.message and not res.success
    assert res.nfev == res.runs.nfev.sum()


def test_a_callback_receives_no_generations_without_a_limit():
    told = []
    solve(generations=None, max_seconds=0.2, callback=told.append)
    assert {s.generations for s in told} == {None}


@pytest.mark.parametrize("yes", [True, np.True_], ids=["True", "numpy.True_"])
def test_callback_returning_true_stops(yes):
    res = solve(bowl_in_numpy, callback=lambda state: yes if state.generation >= 5 else None, blackbox=True)
    assert res.nit == 5 and np.isfinite(res.fun)
    assert res.message == "Stopped by the callback after generation 5."
    compiled = solve(generations=10**6, callback=lambda state: yes, tolerance=0)
    assert compiled.nit < 10**6 and "Stopped by the callback" in compiled.message


def test_callback_sees_what_the_user_means_when_maximizing():
    told = []
    res = solve(lambda x: -bowl(x), maximize=True, callback=told.append)
    assert told[-1].fun == res.fun == pytest.approx(-solve().fun)


def test_an_exception_in_the_callback_reaches_the_caller():
    class Enough(Exception):
        pass

    def callback(state):
        raise Enough

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Enough):
        solve(callback=callback)
    assert signal.getsignal(signal.SIGINT) is before


def test_progress_is_shown_when_asked_for_and_not_otherwise(capsys):
    solve(progress=False)
    solve()
    assert capsys.readouterr().err == ""
    solve(progress=True)
    shown = capsys.readouterr()
    assert "generation" in shown.err and "best" in shown.err and shown.out == ""


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------

COMPILED = """
import jax.numpy as jnp, galapax as gx
def started(state):
    if state.generation >= 16 and not started.said:
        started.said = True
        print("started", flush=True)
started.said = False
box = [(-5.0, 4.0)] * 3
res = gx.minimize(lambda x: jnp.sum((x - 1.0) ** 2), box, generations=10**9, callback=started, polish=False)
"""

BLACKBOX = """
import time, numpy as np, galapax as gx
def fun(x):
    time.sleep(0.001)
    return float(np.sum((x - 1.0) ** 2))
def started(state):
    if state.generation == 2:
        print("started", flush=True)
res = gx.minimize(fun, [(-5.0, 4.0)] * 3, population=12, generations=10**9, callback=started, blackbox=True)
"""

REPORT = """
import json
print(json.dumps([type(res).__name__, res.success, res.fun, res.message, res.nit, res.nfev]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to a process on Windows")
@pytest.mark.parametrize(
    "script", [COMPILED, pytest.param(BLACKBOX, marks=pytest.mark.slow)], ids=["compiled", "black box"]
)
def test_ctrl_c_ends_a_run_with_the_best_so_far(script):
    with subprocess.Popen([sys.executable, "-c", script + REPORT], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "started\n"
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=600)
        finally:
            process.kill()
    assert process.returncode == 0
    kind, success, fun, message, nit, nfev = json.loads(out)
    assert kind == "Result" and success is False
    assert np.isfinite(fun) and nit > 0 and nfev > 0
    assert "Ctrl-C" in message and "best result so far" in message


@pytest.mark.parametrize("blackbox", [False, True], ids=["compiled", "black box"])
def test_ctrl_c_between_two_generations_loses_nothing(blackbox):
    before = signal.getsignal(signal.SIGINT)

    def press(state):
        if not press.done:
            press.done = True
            signal.raise_signal(signal.SIGINT)

    press.done = False
    fun, generations = (bowl_in_numpy, 200) if blackbox else (bowl, 10**6)
    try:
        res = solve(fun, callback=press, blackbox=blackbox, generations=generations, tolerance=0)
    except KeyboardInterrupt:
        pytest.fail("the run was lost")
    assert not res.success and "Ctrl-C" in res.message
    assert 0 < res.nit < generations and np.isfinite(res.fun)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("ctrl_c_raises")
@pytest.mark.parametrize("blackbox", [False, True], ids=["compiled", "black box"])
def test_a_second_ctrl_c_raises_as_usual(blackbox):
    before = signal.getsignal(signal.SIGINT)

    def press_twice(state):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        solve(bowl_in_numpy if blackbox else bowl, callback=press_twice, blackbox=blackbox, generations=200)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("call", [2 * N + 7, 5, 1], ids=["later", "first generation", "first call"])
def test_ctrl_c_inside_a_black_box_counts_what_was_evaluated(call):
    before = signal.getsignal(signal.SIGINT)

    def fun(x):
        if len(done) == call - 1:
            signal.raise_signal(signal.SIGINT)
        done.append(bowl_in_numpy(x))
        return done[-1]

    done = []
    res = solve(fun, blackbox=True)
    assert not res.success and "Ctrl-C" in res.message
    assert res.nfev == len(done) == call - 1 and res.n_failed == 0
    assert res.fun == min(done) if done else np.isnan(res.fun)
    assert signal.getsignal(signal.SIGINT) is before


def test_runs_outside_the_main_thread_work():
    found = []
    thread = threading.Thread(target=lambda: found.append(solve()))
    thread.start()
    thread.join()
    assert found[0].fun == solve().fun
