"""What `minimize` promises: when it stops, what it says, what it counts, and what its Result holds."""

import copy
import csv
import dataclasses
import json
import pickle
import shutil
import signal
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import OptimizeResult
from scipy.stats import binomtest

import galapax as gx
from galapax.engines import xla
from galapax.numerics import devices

BOX = [(1.5, 4.0), (-7.0, -2.0)]
LOWER, UPPER = np.array(BOX).T
N = 12


def bowl(x):
    return (x[0] - 2.0) ** 2 + (x[1] + 2.5) ** 2


def bowl_in_numpy(x):
    return (x[..., 0] - 2.0) ** 2 + (x[..., 1] + 2.5) ** 2


def solve(fun=bowl, bounds=BOX, **settings):
    """By DE with constraints too, where the default is EpsilonDE, which takes three times as long to compile."""
    settings = {
        "algorithm": "de",
        "population": N,
        "generations": 20,
        "compute": gx.Compute(dtype="float64"),
        **settings,
    }
    return gx.minimize(fun, bounds, polish=False, **settings)


def recording(fun=bowl_in_numpy):
    """A black box that keeps the points it was called with."""

    def call(x):
        call.points.append(x.copy())
        return fun(x)

    call.points = []
    return call


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_generations_are_made_and_counted():
    res = solve(generations=17)
    assert (res.nit, res.nfev, len(res.history)) == (17, 17 * N, 17)
    assert res.message == "Stopped: generation limit (17) reached."
    assert res.feasible and not res.success  # no rule that it was given says that it is done


def test_a_thousand_generations_unless_told_otherwise():
    assert solve(generations=None, tolerance=0).nit == 1000


def test_a_run_that_has_converged_is_done_unless_told_otherwise():
    res = solve(generations=2000)
    assert res.success and res.stop == "tolerance" and res.nit < 2000 and res.nit % 50 == 0
    assert res.message == f"Stopped: search converged in generation {res.nit}."
    spread = np.ptp(res.population, axis=0) / (UPPER - LOWER)
    alike = np.ptp(res.population_fitness) <= 4 * np.finfo(float).eps * res.fun
    assert spread.max() <= (1e-11**0.5 if alike else 1e-11)
    looser = solve(generations=2000, tolerance=1e-4)
    assert looser.success and looser.nit < res.nit and np.ptp(looser.population, axis=0).max() > 1e-9
    endless = solve(generations=2000, tolerance=0)
    assert not endless.success and endless.stop == "budget" and endless.nit == 2000
    assert not solve(generations=2000, target=-1.0).success  # it converged to what it was not asked for


@pytest.mark.parametrize("bad", [-1e-9, 1.0, np.nan, "small"])
def test_a_tolerance_is_a_share_of_the_box(bad):
    with pytest.raises(gx.InputError, match="tolerance"):
        solve(tolerance=bad)


@pytest.mark.slow
def test_a_run_that_cannot_get_on_says_so_and_is_no_success():
    res = solve(lambda x: jnp.floor(x[0]), algorithm="cmaes", generations=300)  # flat around the least value
    assert res.stop == "stall" and not res.success and res.nit < 300
    assert res.message == f"Stopped: no further progress possible after generation {res.nit}."


def test_target_reached_is_success_and_stops_at_once():
    res = solve(target=1e-3, generations=500)
    assert res.success and res.nit < 500 and res.nfev == res.nit * N
    assert "target reached" in res.message and str(res.nit) in res.message
    assert res.fun <= 1e-3 and res.history.best[-1] == res.fun
    assert np.all(res.history.best[:-1] > 1e-3)


def test_target_not_reached_is_no_success():
    res = solve(target=-1.0)
    assert not res.success and res.nit == 20
    assert "target was not reached" in res.message
    assert np.isfinite(res.fun)


@pytest.mark.parametrize("blackbox", [False, True], ids=["compiled", "black box"])
@pytest.mark.parametrize("easy", [1e300, np.inf])
def test_a_target_that_anything_meets_is_met_in_the_first_generation(blackbox, easy):
    res = solve(bowl_in_numpy if blackbox else bowl, target=easy, blackbox=blackbox)
    assert res.nit == 1 and res.success


def test_no_target_is_reached_by_failing():
    res = solve(lambda x: x[0] * jnp.nan, target=np.inf, on_failure="worst")
    assert not res.success and "target reached" not in res.message


@pytest.mark.parametrize("limit", [N, N + 1, 5 * N - 1, 5 * N])
def test_max_evaluations_is_never_exceeded(limit):
    fun = recording()
    black = solve(fun, generations=None, max_evaluations=limit, blackbox=True)
    assert black.nfev == len(fun.points) == limit // N * N <= limit
    assert solve(generations=None, max_evaluations=limit).nfev == black.nfev


def test_max_evaluations_counts_for_each_run():
    res = solve(generations=None, max_evaluations=5 * N, runs=3)
    assert res.runs.nfev.tolist() == [5 * N] * 3 and res.nfev == 15 * N


def test_the_tighter_of_generations_and_max_evaluations_holds():
    assert solve(generations=3, max_evaluations=100 * N).nit == 3
    assert solve(generations=100, max_evaluations=3 * N).nit == 3


def test_max_seconds_ends_an_endless_run(clock):
    began = clock.now
    res = solve(generations=None, max_seconds=0.5, tolerance=0)
    assert 0.5 <= clock.now - began < 0.7  # a few looks later
    assert (
        res.feasible
        and not res.success
        and res.message == f"Stopped: time limit (0.5 s) reached after generation {res.nit}."
    )


def test_max_seconds_ends_slow_black_boxes(clock):
    def slow(x):
        clock.wait(0.01)
        return bowl_in_numpy(x)

    res = solve(slow, generations=None, max_seconds=0.5, blackbox=True)
    assert 1 < res.nit <= 5 and "time limit" in res.message  # a generation takes at least 0.12 s


def test_max_seconds_ends_slow_compiled_objectives(clock):
    def wait(x):
        clock.wait(0.02)
        return x[0]

    def slow(x):  # a quarter of a second for a generation
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential")

    res = solve(slow, generations=None, max_seconds=0.5, compute=gx.Compute(dtype="float32"))
    assert "time limit" in res.message
    assert res.nit <= (3 if devices.on_cpu() else 64)  # a GPU's chunks are as long as loops and callbacks let them be


def test_stall_stops_after_so_many_generations_without_a_better_value():
    res = solve(lambda x: jnp.floor(x[0]), patience=6, generations=300)  # 1 is found soon, and is the least
    found = int(np.argmin(res.history.best)) + 1
    assert res.nit == found + 6 and res.fun == 1.0
    assert res.feasible and not res.success and "no improvement for 6 generations" in res.message


def test_stall_is_not_reached_while_values_improve():
    better = np.flatnonzero(np.diff(solve(generations=60).history.best, prepend=np.inf))
    longest = int(np.diff(better, append=60).max()) - 1  # generations in a row without a better value
    assert longest >= 2
    assert solve(generations=60, patience=longest + 1).message == "Stopped: generation limit (60) reached."
    assert f"no improvement for {longest} generations" in solve(generations=60, patience=longest).message


@pytest.mark.parametrize("blackbox", [False, True], ids=["compiled", "black box"])
def test_a_huge_stall_is_no_stall(blackbox):
    assert solve(bowl_in_numpy if blackbox else bowl, patience=2**40, blackbox=blackbox).nit == 20


# --- progress and callback --------------------------------------------------------------------------------------------


def test_callback_is_told_the_progress(clock):
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


def test_callback_is_told_the_generation_in_which_the_run_ended():
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


def test_runs_that_were_not_started_are_told(in_batches):
    in_batches(3)
    res = solve(runs=10, generations=10**6, callback=lambda state: True, tolerance=0)
    assert len(res.runs) == 3 and res.runs.number.tolist() == [0, 1, 2]
    assert "Only 3 of 10 runs were started" in res.message and not res.success
    assert res.nfev == res.runs.nfev.sum()


def test_callback_without_a_limit_of_generations_is_told_none():
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
res = gx.minimize(lambda x: jnp.sum((x - 1.0) ** 2), [(-5.0, 4.0)] * 3, generations=10**9, callback=started)
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


# --- maximize, vectorized, blackbox -----------------------------------------------------------------------------------


def test_maximize_finds_the_largest_value_and_keeps_its_sign():
    res = solve(maximize=True, population=40, generations=200)
    corner = np.array([4.0, -7.0])
    np.testing.assert_allclose(res.x, corner, atol=1e-2)
    assert res.fun == pytest.approx(bowl_in_numpy(corner), rel=1e-2)
    assert np.all(np.diff(res.history.best) >= 0) and res.history.best[-1] == res.fun
    assert np.all(res.history.worst <= res.history.mean) and np.all(res.history.mean <= res.history.best)
    np.testing.assert_allclose(res.population_fitness, bowl_in_numpy(res.population))
    assert res.population_fitness.max() == res.fun


def test_maximize_is_minimizing_the_negative():
    largest, least = solve(lambda x: -bowl(x), maximize=True), solve()
    assert largest.fun == -least.fun
    assert np.array_equal(largest.x, least.x)
    assert np.array_equal(largest.history.worst, -least.history.worst)


def test_target_when_maximizing_is_a_value_to_rise_to():
    res = solve(maximize=True, target=20.0, generations=300)
    assert res.success and res.fun >= 20.0 and np.all(res.history.best[:-1] < 20.0)
    assert res.settings["target"] == 20.0
    assert not solve(maximize=True, target=30.0).success  # the corner has 24.25


def test_maximize_reports_the_runs_with_their_signs():
    res = solve(maximize=True, runs=4)
    assert res.fun == res.runs.fun.max()
    np.testing.assert_allclose(res.runs.fun, bowl_in_numpy(res.runs.x))
    assert np.all(np.diff(res.runs.history.best, axis=1) >= 0)


@pytest.mark.parametrize("runs", [1, 3])
def test_vectorized_is_the_same_as_one_at_a_time(runs):
    shapes = []

    def rows(x):
        shapes.append(x.shape)
        return (x[:, 0] - 2.0) ** 2 + (x[:, 1] + 2.5) ** 2

    single, many = solve(runs=runs), solve(rows, vectorized=True, runs=runs)
    assert set(shapes) == {(N, 2)}
    np.testing.assert_allclose(many.x, single.x, rtol=1e-9)
    np.testing.assert_allclose(many.history.best, single.history.best, rtol=1e-9)


@pytest.mark.slow
def test_vectorized_with_constraints_is_the_same_as_one_at_a_time():
    # DE, since EpsilonDE repairs by differences where it takes many solutions, which differ in the last digits
    single = solve(algorithm="de", ineq=lambda x: 3.0 - x[0], eq=lambda x: x[0] + x[1], generations=40)
    many = solve(
        lambda x: jax.vmap(bowl)(x),
        algorithm="de",
        ineq=lambda x: 3.0 - x[:, 0],
        eq=lambda x: x[:, :1] + x[:, 1:],
        vectorized=True,
        generations=40,
    )
    np.testing.assert_allclose(many.x, single.x, rtol=1e-9)
    np.testing.assert_allclose(many.ineq, single.ineq, rtol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"runs": 3}, {"maximize": True}, {"target": 0.1}], ids=str)
def test_a_black_box_makes_the_same_run_as_a_compiled_objective(settings):
    compiled, black = solve(**settings), solve(bowl_in_numpy, blackbox=True, **settings)
    rows = solve(bowl_in_numpy, blackbox=True, vectorized=True, **settings)
    for res in (black, rows):
        assert (res.nit, res.nfev, res.message) == (compiled.nit, compiled.nfev, compiled.message)
        np.testing.assert_allclose(res.x, compiled.x, rtol=1e-9)
        np.testing.assert_allclose(res.population, compiled.population, rtol=1e-9)
        np.testing.assert_allclose(res.history.mean, compiled.history.mean, rtol=1e-9)


def test_a_black_box_is_called_with_one_numpy_point_that_it_may_change():
    def fun(x):
        assert type(x) is np.ndarray and x.shape == (2,) and x.dtype == np.float64
        value = bowl_in_numpy(x)
        x[:] = np.nan
        return value

    def ineq(x):
        assert np.isfinite(x).all()
        return -1.0

    res = solve(fun, algorithm="de", ineq=ineq, blackbox=True, on_failure="raise")
    np.testing.assert_allclose(res.x, solve(algorithm="de").x, rtol=1e-9)


def test_a_black_box_is_called_once_for_each_evaluation():
    fun = recording()
    res = solve(fun, blackbox=True, runs=3, target=0.1, generations=50)
    assert len(set(res.runs.nit)) > 1
    assert len(fun.points) == res.nfev == res.runs.nfev.sum()


# --- failures ---------------------------------------------------------------------------------------------------------


def test_exceptions_are_failures_and_the_first_one_is_told():
    def fun(x):
        calls.append(x)
        if x[0] > 3.0:
            raise ValueError(f"valve {len(calls)} is shut")
        return bowl_in_numpy(x)

    calls = []
    res = solve(fun, blackbox=True)
    bad = [i for i, x in enumerate(calls) if x[0] > 3.0]
    assert res.feasible and res.n_failed == len(bad) > 1 and res.nfev == len(calls)
    assert f"First failure: fun raised ValueError: valve {bad[0] + 1} is shut." in res.message
    assert res.fun == min(bowl_in_numpy(x) for x in calls if x[0] <= 3.0)


def test_a_constraint_that_raises_is_a_failure_too():
    def ineq(x):
        if x[0] > 3.0:
            raise RuntimeError("no pressure")
        return x[1] + 3.0

    res = solve(bowl_in_numpy, ineq=ineq, blackbox=True)
    assert res.n_failed > 0 and res.feasible and "ineq raised RuntimeError: no pressure" in res.message


def test_failures_raise_when_asked_for():
    def fun(x):
        raise ValueError("the valve is shut")

    with pytest.raises(gx.EvaluationError, match=r"fun raised ValueError: the valve is shut, at x = \[") as caught:
        solve(fun, blackbox=True, on_failure="raise")
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "bad", [np.nan, pytest.param(np.inf, marks=pytest.mark.slow), pytest.param(-np.inf, marks=pytest.mark.slow)]
)
def test_bad_values_raise_when_asked_for(bad):
    with pytest.raises(gx.EvaluationError, match=r"NaN or inf at \d+ of (the )?\d+ points"):
        solve(lambda x: jnp.where(x[0] > 3.0, bad, bowl(x)), on_failure="raise")
    with pytest.raises(gx.EvaluationError, match=rf"fun returned {bad}, at x = \[3"):
        solve(lambda x: bad if x[0] > 3.0 else bowl_in_numpy(x), on_failure="raise", blackbox=True)


def test_nothing_raises_when_nothing_fails():
    assert solve(on_failure="raise").n_failed == 0


def test_worst_searches_on_where_a_point_tried_first_would_be_refused():
    def needle(x):
        return jnp.where((x[0] < 1.6) & (x[1] > -2.5), x[0], jnp.nan)

    with pytest.raises(gx.InputError, match="on_failure"):
        solve(needle)
    res = solve(needle, algorithm="random", population=400, on_failure="worst")
    assert res.feasible and 1.5 <= res.fun < 1.6 and res.n_failed > 0.9 * res.nfev


def test_a_run_without_any_finite_value_says_so():
    res = solve(lambda x: x[0] * jnp.nan, on_failure="worst", generations=3)
    assert not res.success and not res.feasible and np.isnan(res.fun)
    assert (res.nit, res.nfev, res.n_failed) == (3, 3 * N, 3 * N)
    assert "No point has a finite value" in res.message
    assert np.all((res.x >= LOWER) & (res.x <= UPPER))


def test_history_of_no_finite_value_claims_no_mean():
    res = solve(lambda x: x[0] * jnp.nan, on_failure="worst", generations=3)
    assert not np.isfinite(res.history.mean).any()


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_black_box_whose_first_twenty_points_fail_ends_there(vectorized):
    fun = recording(lambda x: np.full(len(x) if vectorized else (), np.nan))
    res = solve(fun, blackbox=True, vectorized=vectorized, generations=100_000)
    assert not res.success and np.isnan(res.fun) and res.nit == 2
    assert res.nfev == res.n_failed == 2 * N == sum(np.atleast_2d(x).shape[0] for x in fun.points)
    assert "every evaluation failed (NaN, inf or an exception)" in res.message and "worst" in res.message


def test_a_first_generation_that_fails_is_no_end_where_there_are_values():
    """A sixteenth of the box is defined, and the first eight points of the default are often outside."""

    def root(x):
        return jnp.sum(jnp.sqrt(x) + (x - 1.0) ** 2)

    res = gx.minimize(
        root, [(-5.0, 5.0)] * 4, "cmaes", population=8, restarts="plain", max_evaluations=4000, polish=False
    )
    first = np.asarray(res.history.best)[0]
    assert not np.isfinite(first) and res.n_failed > 8 and abs(res.fun - 3.70663287) < 1e-3


def test_a_black_box_that_always_raises_tells_the_exception():
    def fun(x):
        raise OSError("solver not found")

    res = solve(fun, blackbox=True)
    assert not res.success and res.nit == 2 and "OSError: solver not found" in res.message


# --- constraints ------------------------------------------------------------------------------------------------------


def spring_in_numpy(x):
    wire, coil, turns = x
    shear = (4 * coil**2 - wire * coil) / (12566 * (coil * wire**3 - wire**4)) + 1 / (5108 * wire**2)
    limits = [
        1 - coil**3 * turns / (71785 * wire**4),
        shear - 1,
        1 - 140.45 * wire / (coil**2 * turns),
        (wire + coil) / 1.5 - 1,
    ]
    return (turns + 2) * coil * wire**2, np.array(limits)


def g06_in_numpy(x):
    limits = [-((x[0] - 5) ** 2) - (x[1] - 5) ** 2 + 100, (x[0] - 6) ** 2 + (x[1] - 5) ** 2 - 82.81]
    return (x[0] - 10) ** 3 + (x[1] - 20) ** 3, np.array(limits)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "formula"), [("spring", spring_in_numpy), ("g06", g06_in_numpy)])
def test_inequalities_hold_at_the_solution(name, formula):
    problem = gx.problems.get(name)
    res = gx.minimize(problem, population=100, generations=600, polish=False)
    value, limits = formula(res.x)
    assert res.feasible and res.violation == 0.0
    assert np.all(limits <= 1e-12)
    np.testing.assert_allclose(res.ineq, limits, rtol=1e-9, atol=1e-12)
    assert res.eq is None
    assert res.fun == pytest.approx(value, rel=1e-12)
    assert problem.optimum - 1e-9 <= res.fun <= problem.optimum + 0.05 * abs(problem.optimum)


@pytest.mark.slow
def test_equalities_hold_to_the_tolerance():
    # the nearest point of the line x1 = -x0 - 0.2 to (2, -2.5) is (2.15, -2.35)
    res = solve(eq=lambda x: x[0] + x[1] + 0.2, algorithm=None, population=40, generations=300)
    assert res.feasible and res.violation == 0.0 and res.ineq is None
    np.testing.assert_allclose(res.eq, [res.x.sum() + 0.2], atol=1e-12)
    assert abs(res.eq[0]) <= 1e-4
    np.testing.assert_allclose(res.x, [2.15, -2.35], atol=2e-2)
    assert res.fun == pytest.approx(0.045, rel=1e-2)


@pytest.mark.slow
def test_the_tolerance_of_equalities_is_the_problems():
    problem = gx.Problem(bowl, BOX, eq=lambda x: x[0] + x[1] + 0.2, eq_tolerance=0.1)
    res = gx.minimize(problem, population=40, generations=300, polish=False)
    assert res.feasible and 0.05 < abs(res.eq[0]) <= 0.1  # the cheapest side of the strip
    assert res.fun < 0.045


def test_violation_adds_up_what_each_constraint_lacks():
    # x0 >= 6 is out of reach by 2 or more, x1 >= 0 by 2 or more: the best is the upper corner, 4 in all
    res = solve(
        lambda x: x[0], ineq=lambda x: jnp.stack([6.0 - x[0], -x[1], x[0] - 50.0]), population=40, generations=200
    )
    assert not res.success and not res.feasible
    np.testing.assert_allclose(res.x, UPPER, atol=1e-3)
    np.testing.assert_allclose(res.ineq, [6.0 - res.x[0], -res.x[1], res.x[0] - 50.0])
    assert res.violation == pytest.approx(6.0 - res.x[0] - res.x[1], rel=1e-12)
    assert res.violation == pytest.approx(4.0, abs=1e-3)
    assert "No feasible point was found" in res.message and "4" in res.message
    assert res.fun == pytest.approx(res.x[0])


def test_no_target_is_reached_outside_the_feasible_region():
    res = solve(ineq=lambda x: 6.0 - x[0], target=100.0)
    assert not res.success and res.nit == 20


def test_feasible_comes_before_the_better_value():
    fun, points = recording(), None
    res = solve(fun, ineq=lambda x: 3.0 - x[0], blackbox=True)
    points = np.array(fun.points)
    allowed = points[points[:, 0] >= 3.0]
    assert res.fun == bowl_in_numpy(allowed).min() > bowl_in_numpy(points).min()
    assert res.feasible


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"runs": 3}, marks=pytest.mark.slow),
        {"compute": gx.Compute(dtype="float32")},
        {"maximize": True},
    ],
    ids=str,
)
def test_a_black_box_tells_its_constraints_at_the_solution_too(settings):
    res = solve(bowl_in_numpy, ineq=lambda x: [3.0 - x[0], x[1]], blackbox=True, generations=150, **settings)
    assert res.feasible and res.eq is None
    np.testing.assert_allclose(res.ineq, [3.0 - res.x[0], res.x[1]], rtol=1e-6, atol=1e-6)


def test_a_black_box_tells_its_equalities_at_the_solution_too():
    res = solve(bowl_in_numpy, eq=lambda x: x[0] + x[1], blackbox=True)
    np.testing.assert_allclose(res.eq, [res.x.sum()], rtol=1e-9)


def test_history_of_constraints_is_kept():
    res = solve(ineq=lambda x: 3.0 - x[0], generations=40)
    assert res.history.violation.shape == res.history.feasible_share.shape == (40,)
    assert np.all(np.diff(res.history.violation) <= 0) and res.history.violation[-1] == 0
    assert np.all((res.history.feasible_share >= 0) & (res.history.feasible_share <= 1))
    assert res.history.feasible_share[-1] == np.mean(res.population[:, 0] >= 3.0)
    assert solve().history.violation is None and solve().history.feasible_share is None


def test_constraints_compute_in_float64_and_may_be_told_otherwise():
    assert solve(ineq=lambda x: 3.0 - x[0], compute=gx.Compute(dtype=None)).settings["dtype"] == "float64"
    assert solve(ineq=lambda x: 3.0 - x[0], compute=gx.Compute(dtype="float32")).settings["dtype"] == "float32"


# --- the Result -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def single():
    return solve()


@pytest.fixture(scope="module")
def saved_single(single, tmp_path_factory):
    return single.save(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def saved(saved_single, tmp_path):
    """A folder with the saved run `single`, to be damaged."""
    return shutil.copytree(saved_single, tmp_path / "saved")


@pytest.fixture(scope="module")
def ensemble():
    """Six runs, of which three reach the target."""
    middle = float(np.median(solve(runs=6, generations=12).runs.fun))
    return solve(runs=6, target=middle, generations=12)


@pytest.fixture(scope="module")
def constrained():
    return solve(ineq=lambda x: jnp.stack([3.0 - x[0], x[1]]), eq=lambda x: x[0] + x[1])


def test_a_result_is_used_like_scipys(single):
    scipys = OptimizeResult(x=np.zeros(2), fun=1.0, success=True, message="", nit=1, nfev=1)
    assert isinstance(single, dict) and set(scipys) <= set(single)
    for name in single:
        assert single[name] is getattr(single, name)
        assert name in dir(single)
    assert list(single.keys()) == list(single) and len(single.values()) == len(single)
    assert "x" in single and single.get("jac") is None
    assert (lambda x, fun, **rest: fun)(**single) == single.fun


def test_an_unknown_attribute_of_a_result_is_an_attribute_error(single):
    with pytest.raises(AttributeError, match="jac"):
        single.jac  # noqa: B018
    assert not hasattr(single, "jac")
    with pytest.raises(KeyError):
        single["jac"]


def test_setting_an_attribute_of_a_result_sets_its_key(single):
    own = gx.Result(single)
    own.note = "mine"
    assert own["note"] == own.note == "mine" and "note" not in single


def test_a_result_shows_what_matters(single, ensemble):
    for res in (single, ensemble):
        text = repr(res)
        assert res.message in text and str(res.fun)[:6] in text
        for name in ("success", "fun", "x", "nit", "nfev", "seed"):
            assert f"{name}: " in text
    assert "runs: 6" in repr(ensemble) and "runs" not in repr(single)
    assert repr(gx.Result()) == ""


def test_a_result_says_what_was_asked_for():
    res = solve(algorithm=gx.DE(population=N, weight=0.7, mutation=gx.best_1), seed=3, patience=9, target=0.5, runs=2)
    asked = res.settings
    assert (asked["algorithm"], asked["problem"]) == ("de", "bowl")
    assert asked["hyperparameters"] == {
        "population": N,
        "mutation": "best_1",
        "weight": 0.7,
        "crossover_rate": 0.9,
    }
    assert (asked["generations"], asked["seed"], asked["patience"], asked["target"]) == (20, 3, 9, 0.5)
    assert (asked["runs"], asked["first_run"]) == (2, 0)
    assert set(asked["versions"]) == {"galapax", "jax", "numpy", "python"}
    json.dumps(asked)


def test_timings_add_up_to_the_whole(clock):
    for seed in (1, 5):
        began = clock.now
        res = solve(lambda x: jnp.sum(x) * 1.125, seed=seed)
        whole = clock.now - began
        assert set(res.timings) == {"compile", "run", "device", "host"}
        assert all(seconds >= 0 for seconds in res.timings.values())
        assert 0 < res.timings["device"] <= res.timings["run"]
        total = sum(res.timings[part] for part in ("compile", "run", "host"))
        assert total == pytest.approx(whole, abs=0.05)  # of a clock that only its readers move on
    assert res.timings["compile"] == 0.0  # of the second call


def leaves(value):
    """Everything inside a Result, however deep."""
    if dataclasses.is_dataclass(value) and not isinstance(value, gx.Problem | gx.Bounds):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


@pytest.mark.parametrize("which", ["single", "ensemble", "constrained"])
def test_nothing_in_a_result_is_a_jax_array(which, request):
    res = request.getfixturevalue(which)
    found = list(leaves(res))
    assert any(isinstance(value, np.ndarray) for value in found)
    assert not any(isinstance(value, jax.Array) for value in found)
    assert type(res.x) is np.ndarray and type(res.fun) is float and type(res.success) is bool
    assert type(res.nit) is int and type(res.nfev) is int and type(res.n_failed) is int


def test_jax_numbers_as_hyper_parameters_stay_out_of_the_result():
    res = solve(algorithm=gx.DE(population=N, weight=jnp.asarray(0.5)))
    assert not any(isinstance(value, jax.Array) for value in leaves(res))


@pytest.mark.parametrize("which", ["single", "ensemble", "constrained"])
def test_a_result_can_be_pickled(which, request):
    res = request.getfixturevalue(which)
    again = pickle.loads(pickle.dumps(res))
    assert isinstance(again, gx.Result)
    assert again.message == res.message and again.fun == res.fun and again.timings == res.timings
    assert np.array_equal(again.x, res.x) and np.array_equal(again.history.best, res.history.best)
    if res.runs is not None:
        assert np.array_equal(again.runs.fun, res.runs.fun)
    with pytest.raises(gx.InputError, match=r"runs=range\(0, 1\)"):
        again.run(0)


def test_a_copied_result_is_complete(single, tmp_path):
    for again in (copy.copy(single), copy.deepcopy(single), pickle.loads(pickle.dumps(single))):
        assert set(again) == set(single) and again.problem.name == "bowl"
    assert np.array_equal(gx.load(again.save(tmp_path)).x, single.x)


def test_a_run_is_replayed_by_its_number(ensemble):
    assert ensemble.run(4).fun == pytest.approx(ensemble.runs.fun[4])
    assert ensemble.run(np.int64(4)).settings["first_run"] == 4
    later = solve(runs=range(7, 8))
    assert later.run(7).fun == later.fun
    for wrong in (6, -1, "a", None, 1.5):
        with pytest.raises(gx.InputError, match=r"run must be one of 0 to 5"):
            ensemble.run(wrong)


def test_a_run_that_was_stopped_from_outside_is_replayed_to_the_same_generation():
    res = solve(runs=6, generations=3000, callback=lambda state: True)
    assert 0 < res.nit < 3000
    again = res.run(2)
    assert again.nit == res.runs.nit[2]
    np.testing.assert_allclose(again.fun, res.runs.fun[2], rtol=1e-9)


# --- Runs and History -------------------------------------------------------------------------------------------------


def runs_with(success, fun=None, nfev=None):
    n = len(success)
    zeros = np.zeros(n)
    fun = zeros if fun is None else fun
    nfev = np.full(n, 100) if nfev is None else nfev
    return gx.Runs(np.arange(n), zeros[:, None], fun, zeros, zeros, nfev, zeros, np.array(success, bool), None)


@pytest.mark.parametrize("hits", [0, 1, 4, 9, 10])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_success_rate_comes_with_wilsons_interval(hits, confidence):
    rate, low, high = runs_with([True] * hits + [False] * (10 - hits)).success_rate(confidence)
    expected = binomtest(hits, 10).proportion_ci(confidence_level=confidence, method="wilson")
    assert rate == hits / 10
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_success_rate_is_for_95_percent_unless_told_otherwise(ensemble):
    assert ensemble.runs.success_rate() == ensemble.runs.success_rate(0.95)
    assert ensemble.runs.success_rate()[0] == 0.5


def test_quantiles_are_of_the_final_values():
    fun = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    runs = runs_with([True] * 5, fun=fun)
    assert runs.quantiles().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert runs.quantiles((0.5, 0.9)).tolist() == np.quantile(fun, [0.5, 0.9]).tolist()
    assert runs.quantiles(0.5) == 3.0


def test_expected_running_time_is_all_evaluations_per_success():
    assert runs_with([True, False, True], nfev=np.array([30, 100, 20])).ert() == 75.0
    assert runs_with([False, False]).ert() == np.inf


def test_an_ensemble_reports_each_run(ensemble):
    runs = ensemble.runs
    assert len(runs) == 6 and runs.x.shape == (6, 2)
    for part in (runs.fun, runs.violation, runs.nit, runs.nfev, runs.n_failed, runs.success, runs.feasible):
        assert part.shape == (6,)
    assert runs.feasible.all() and runs.success.dtype == bool
    np.testing.assert_allclose(runs.fun, bowl_in_numpy(runs.x))
    assert np.array_equal(runs.success, runs.fun <= ensemble.settings["target"])
    assert np.array_equal(runs.nfev, runs.nit * N) and ensemble.nfev == runs.nfev.sum()
    assert ensemble.nit == runs.nit[np.argmin(runs.fun)]
    assert ensemble.success == runs.success[np.argmin(runs.fun)]


def test_the_best_of_runs_is_the_best_feasible_one():
    res = solve(lambda x: x[0], ineq=lambda x: 3.9 - x[0], runs=8, generations=1)
    assert 0 < res.runs.feasible.sum() < 8 and not res.runs.success.any()
    assert res.feasible and res.fun == res.runs.fun[res.runs.feasible].min()


def test_runs_without_target_succeed_when_they_converged_to_a_feasible_point():
    res = solve(runs=8, generations=300)
    assert 0 < res.runs.success.sum() < 8  # some take longer
    assert np.array_equal(res.runs.success, res.runs.nit < 300)
    nowhere = solve(lambda x: x[0], ineq=lambda x: 1.0 + bowl(x), generations=2000)  # least violated at one point
    assert nowhere.stop == "tolerance" and not nowhere.feasible and not nowhere.success


def test_history_shapes(single, ensemble):
    assert single.runs is None and len(single.history) == 20
    for part in ("generation", "nfev", "best", "mean", "worst"):
        assert getattr(single.history, part).shape == (20,)
    longest = ensemble.runs.nit.max()
    assert ensemble.runs.history.generation.shape == ensemble.runs.history.nfev.shape == (longest,)
    for part in ("best", "mean", "worst"):
        assert getattr(ensemble.runs.history, part).shape == (6, longest)
        assert getattr(ensemble.history, part).shape == (longest,)
        best = int(np.argmin(ensemble.runs.fun))
        assert np.array_equal(getattr(ensemble.history, part), getattr(ensemble.runs.history, part)[best])


def test_history_is_left_out_when_not_wanted():
    assert solve(keep=gx.Keep(history=False)).history is None
    res = solve(runs=3, keep=gx.Keep(history=False))
    assert res.history is None and res.runs.history is None
    assert np.array_equal(res.runs.fun, solve(runs=3).runs.fun)


# --- saving and loading -----------------------------------------------------------------------------------------------


def assert_same_content(loaded, res):
    for name in ("message", "success", "feasible", "nit", "nfev", "n_failed", "seed", "timings", "settings"):
        assert loaded[name] == res[name], name
    for name in ("x", "fun", "violation", "ineq", "eq", "population", "population_fitness"):
        np.testing.assert_array_equal(loaded[name], res[name]) if res[name] is not None else loaded[name] is None
    if res.history is None:
        assert loaded.history is None
    else:
        for part in dataclasses.fields(gx.History):
            expected = getattr(res.history, part.name)
            found = getattr(loaded.history, part.name)
            assert found is None if expected is None else np.array_equal(found, expected)
    if res.runs is None:
        assert loaded.runs is None
    else:
        for part in dataclasses.fields(gx.Runs):
            if part.name != "history":
                np.testing.assert_array_equal(getattr(loaded.runs, part.name), getattr(res.runs, part.name))


@pytest.mark.parametrize("which", ["single", "ensemble", "constrained"])
def test_a_saved_run_is_loaded_as_it_was(which, request, tmp_path):
    res = request.getfixturevalue(which)
    folder = res.save(tmp_path / "new" / which)
    assert folder == tmp_path / "new" / which and (folder / "result.json").is_file()
    loaded = gx.load(folder)
    assert isinstance(loaded, gx.Result)
    assert_same_content(loaded, res)
    assert repr(loaded) == repr(res)
    with pytest.raises(gx.InputError, match=r"runs=range\(0, 1\)"):
        loaded.run(0)


@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"runs": 3}, marks=pytest.mark.slow), pytest.param({"maximize": True}, marks=pytest.mark.slow)],
    ids=str,
)
def test_a_run_without_any_finite_value_is_loaded_as_it_was(settings, tmp_path):
    res = solve(lambda x: x[0] * jnp.nan, on_failure="worst", generations=3, **settings)
    loaded = gx.load(res.save(tmp_path))
    assert np.isnan(loaded.fun) and loaded.violation == np.inf
    assert_same_content(loaded, res)


def test_a_run_without_history_is_loaded_as_it_was(tmp_path):
    res = solve(keep=gx.Keep(history=False))
    assert_same_content(gx.load(res.save(tmp_path)), res)


def test_saving_into_the_same_folder_leaves_nothing_of_the_earlier_run(ensemble, single, tmp_path):
    ensemble.save(tmp_path)
    assert_same_content(gx.load(single.save(tmp_path)), single)
    without = solve(keep=gx.Keep(history=False))
    assert_same_content(gx.load(without.save(tmp_path)), without)


def test_saved_files_are_what_other_tools_read(constrained, ensemble, tmp_path):
    constrained.save(tmp_path)
    data = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert data["format"] == 1 and data["x"] == constrained.x.tolist()
    header, *rows = (tmp_path / "history.csv").read_text(encoding="utf-8").splitlines()
    assert header == "generation,nfev,best,mean,worst,violation,feasible_share" and len(rows) == 20
    header, *rows = (tmp_path / "population.csv").read_text(encoding="utf-8").splitlines()
    assert header == "x1,x2,fun" and len(rows) == N
    ensemble.save(tmp_path)
    header, *rows = (tmp_path / "runs.csv").read_text(encoding="utf-8").splitlines()
    assert header == "run,fun,violation,nit,nfev,n_failed,success,x1,x2" and len(rows) == 6


def test_names_with_commas_stay_one_column(tmp_path):
    problem = gx.Problem(bowl, BOX, variables=("width, mm", 'the "depth"'))
    solve(problem, None).save(tmp_path)
    with (tmp_path / "population.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["width, mm", 'the "depth"', "fun"] and {len(row) for row in rows} == {3}


def test_a_loaded_run_can_be_saved_again(single, tmp_path):
    loaded = gx.load(single.save(tmp_path / "first"))
    assert_same_content(gx.load(loaded.save(tmp_path / "second")), single)


def test_jax_numbers_as_hyper_parameters_can_be_saved(tmp_path):
    res = solve(algorithm=gx.DE(population=N, weight=jnp.asarray(0.5)))
    assert gx.load(res.save(tmp_path)).settings["hyperparameters"]["weight"] == 0.5


DAMAGES = {
    "empty": "",
    "cut off": '{"format": 1, "x": [1.0, 2.0',
    "not JSON": "hello",
    "a list": "[1, 2]",
    "a number": "3",
    "no format": '{"x": [1.0, 2.0]}',
    "format of another type": '{"format": "one"}',
    "no content": '{"format": 1}',
    "x of another type": '{"format": 1, "x": "here"}',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_named(damage, saved):
    (saved / "result.json").write_text(DAMAGES[damage], encoding="utf-8")
    with pytest.raises(gx.InputError, match=r"saved.* damaged"):
        gx.load(saved)


def test_bytes_that_are_no_text_are_damage(saved):
    (saved / "result.json").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(gx.InputError, match=r"saved.* damaged"):
        gx.load(saved)


@pytest.mark.parametrize("content", [None, "", "x1,x2,fun\n", "x1,x2,fun\n1.0,2.0\n", "x1,x2,fun\n1,a,b\n"], ids=repr)
def test_a_missing_or_damaged_table_is_damage(content, saved):
    table = saved / "population.csv"
    if content is None:
        table.unlink()
    else:
        table.write_text(content, encoding="utf-8")
    with pytest.raises(gx.InputError, match=r"saved.* damaged"):
        gx.load(saved)


@pytest.mark.parametrize(
    "content", ["", "generation,nfev\n1,12\n", "generation,nfev,best,mean,worst\n1,12,a,b,c\n"], ids=repr
)
def test_a_damaged_history_is_damage(content, saved):
    (saved / "history.csv").write_text(content, encoding="utf-8")
    with pytest.raises(gx.InputError, match=r"saved.* damaged"):
        gx.load(saved)


def test_a_future_format_is_refused(saved):
    file = saved / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), "format": 99}), encoding="utf-8")
    with pytest.raises(gx.InputError, match=r"format 99, written by a newer galapax; this one reads up to \d"):
        gx.load(saved)


def test_a_folder_without_a_run_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(gx.InputError, match="contains no saved run"):
            gx.load(folder)


def test_a_folder_that_cannot_be_written_is_told_and_the_result_kept(single, tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way", encoding="utf-8")
    for folder in (file, file / "below"):
        with pytest.raises(OSError, match=r"could not be saved to .*file.*The result itself is intact"):
            single.save(folder)
    assert file.read_text(encoding="utf-8") == "in the way"
    assert gx.load(single.save(tmp_path / "elsewhere")).fun == single.fun


@pytest.mark.parametrize("period", [0, 3, 20])
@pytest.mark.parametrize(("first", "count"), [(1, 1000), (1, 997), (4, 61), (41, 20), (500, 1)])
def test_chunks_on_a_gpu_come_from_a_small_set_and_are_whole_periods_where_they_can_be(first, count, period):
    chunks = xla._split_into_chunks(first, count, period, period or 50, 500)
    numbers = [number for start, length in chunks for number in range(start, start + length)]
    assert numbers == list(range(first, first + count))
    unit = max(1, period)
    for start, length in chunks:
        assert length == 1 or (length in [k * unit for k in xla.LENGTHS] and (start - 1) % unit == 0)
        # the program of whole rounds asks at the end of each whether a run rests: it must begin with one
        assert length % (period or 50) or (start - 1) % (period or 50) == 0


def test_a_slow_objective_has_short_chunks_on_a_gpu():
    lengths = [xla._max_gpu_chunk(steps, genes=500) for steps in (5, 1_000, 20_000, 10**6)]
    assert lengths[0] == 500 and lengths == sorted(lengths, reverse=True) and lengths[-1] == 1
    assert xla._max_gpu_chunk(5, genes=2**33) < 10
