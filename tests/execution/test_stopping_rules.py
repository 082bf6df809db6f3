"""When a run ends: generations, targets, budgets, seconds and patience hold, and the message says which."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.bowl import LOWER, UPPER, N, bowl, bowl_in_numpy, recording, solve

import galapax as gx
from galapax.numerics import devices


def test_generations_are_made_and_counted():
    res = solve(generations=17)
    assert (res.nit, res.nfev, len(res.history)) == (17, 17 * N, 17)
    assert res.message == "Stopped: generation limit (17) reached."
    assert res.feasible and not res.success  # no rule that it was given says that it is done


def test_a_thousand_generations_by_default():
    assert solve(generations=None, tolerance=0).nit == 1000


def test_a_run_that_has_converged_ends_unless_tolerance_is_zero():
    res = solve(generations=2000)
    assert res.success and res.stop == "tolerance" and res.nit < 2000 and res.nit % 50 == 0
    assert res.message == f"Converged in generation {res.nit}."
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
    assert res.message == f"Stopped after generation {res.nit}: the search cannot continue."


def test_target_reached_is_success_and_stops_at_once():
    res = solve(target=1e-3, generations=500)
    assert res.success and res.nit < 500 and res.nfev == res.nit * N
    assert "Target reached" in res.message and str(res.nit) in res.message
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
    assert not res.success and "Target reached" not in res.message


@pytest.mark.parametrize("limit", [N, N + 1, 5 * N - 1, 5 * N])
def test_max_evaluations_is_never_exceeded(limit):
    fun = recording()
    black = solve(fun, generations=None, max_evaluations=limit, blackbox=True)
    assert black.nfev == len(fun.points) == limit  # the last generation of a black box may be partial
    assert solve(generations=None, max_evaluations=limit).nfev == limit // N * N


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
        and res.message == f"Stopped: time limit (0.5 s) reached after generation {res.nit:,}."
    )


def test_max_seconds_ends_slow_black_boxes(clock):
    def slow(x):
        clock.wait(0.01)
        return bowl_in_numpy(x)

    res = solve(slow, generations=None, max_seconds=1.5, blackbox=True)
    assert 1 < res.nit <= 5 and "time limit" in res.message  # a generation takes about 0.4 s


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
