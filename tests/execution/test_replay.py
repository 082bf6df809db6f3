"""Replay: a run is the same to the last bit alone, in its ensemble, and in batches of any size.

With programs as users get them, since it is optimisation that makes rounding depend on the shape of a batch.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params, product
from support.compilations import ON_CPU

import galapax as gx
from galapax.core.stop import Stop
from galapax.execution import arguments, batch_runner
from galapax.numerics import devices

pytestmark = pytest.mark.usefixtures("well_compiled")

RUNS, GENERATIONS = 100, 25
SOME = (0, 24, 63, 64, 99)  # ends of slices among them
MATRIX = np.cos(np.arange(400.0)).reshape(20, 20)  # a matrix product rounds by the shape of its batch, too


def rotated_rastrigin(x):
    z = jnp.asarray(MATRIX, x.dtype) @ x
    return jnp.sum(z**2 - 10 * jnp.cos(2 * jnp.pi * z)) + jnp.sum(jnp.abs(x))


def two(x):
    return jnp.stack([jnp.sum((x - 0.3) ** 2), rotated_rastrigin(x)])


ONE = gx.Problem(rotated_rastrigin, [(-4.0, 5.5)] * 20)
SEVERAL = gx.Problem(two, [(-4.0, 5.5)] * 20, reference_point=[400.0, 2000.0])
CONSTRAINED = ONE.with_(ineq=lambda x: jnp.sum(x) - 3.0)


@cache
def ensemble(name, dtype, runs=RUNS, polish=False, **options):
    kind = gx.algorithms.ALGORITHMS[name]
    problem = SEVERAL if kind.traits.multi_objective else CONSTRAINED if name in ("cde", "epsilon_de") else ONE
    return gx.minimize(
        problem,
        algorithm=kind(population=12),
        runs=runs,
        generations=GENERATIONS,
        seed=3,
        compute=gx.Compute(dtype=dtype),
        polish=polish,
        **options,
    )


def assert_same_bits(alone, whole, row):
    runs = whole.runs
    assert (alone.nit, alone.nfev, alone.n_failed) == (runs.nit[row], runs.nfev[row], runs.n_failed[row])
    for part in ("best", "mean", "worst"):
        assert np.array_equal(getattr(alone.history, part), getattr(runs.history, part)[row, : alone.nit]), part
    if runs.fronts is None:
        assert np.array_equal(alone.x, runs.x[row]) and alone.fun == runs.fun[row]
    else:
        assert np.array_equal(alone.X, runs.fronts[row].X) and np.array_equal(alone.F, runs.fronts[row].F)


@pytest.mark.parametrize(
    ("name", "dtype"), params(product(gx.algorithms.ALGORITHMS, ["float32", "float64"]), quick={"de-float32"})
)
def test_a_run_of_an_ensemble_is_replayed_to_the_bit(name, dtype):
    whole = ensemble(name, dtype)
    for row in SOME:
        assert_same_bits(whole.run(row), whole, row)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("de", "float32"),
        pytest.param("ga", "float64", marks=pytest.mark.slow),
        pytest.param("cde", "float64", marks=pytest.mark.slow),
    ],
)
def test_a_run_is_the_same_in_ensembles_of_other_sizes(name, dtype, monkeypatch):
    """On a CPU: slices are of one size whatever was asked for."""
    if not devices.on_cpu():
        pytest.skip("on a GPU a slice is as large as the ensemble")
    whole = ensemble(name, dtype)
    other = ensemble(name, dtype, runs=range(23, 26))
    assert np.array_equal(other.runs.x, whole.runs.x[23:26]) and np.array_equal(other.runs.fun, whole.runs.fun[23:26])
    one = ensemble(name, dtype, runs=range(24, 25))
    assert np.array_equal(one.x, whole.runs.x[24]) and one.fun == whole.runs.fun[24]
    monkeypatch.setattr(arguments, "NEGLIGIBLE_SHARE", 0.0)
    monkeypatch.setattr(arguments, "runs_that_fit", lambda *about: 10)  # memory for ten: whole slices
    split = ensemble.__wrapped__(name, dtype)
    assert np.array_equal(split.runs.x, whole.runs.x) and np.array_equal(split.runs.fun, whole.runs.fun)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_runs_that_stop_by_themselves_are_replayed_to_the_bit(dtype):
    goal = float(np.median(ensemble("de", dtype).runs.history.best[:, 15]))
    whole = ensemble("de", dtype, target=goal)
    assert len(set(whole.runs.nit)) > 5
    for row in SOME:
        alone = whole.run(row)
        assert_same_bits(alone, whole, row)
        assert alone.success == whole.runs.success[row]


@ON_CPU  # a GPU makes all of these generations between two looks
def test_a_run_that_a_callback_stopped_is_replayed_up_to_there():
    whole = ensemble("de", "float32", callback=lambda state: state.generation >= 5)
    assert whole.stop is Stop.CALLBACK and whole.nit < GENERATIONS
    assert_same_bits(whole.run(24), whole, 24)


@pytest.mark.slow
def test_the_runs_of_a_sweep_are_replayed_to_the_bit():
    study = gx.sweep(
        ONE, None, gx.ThreeParentGA(population=12), fr=[1.0, 1.5], sigma=[0.1, 0.5], runs=25, generations=10, seed=3
    )
    for cell in study.results:
        assert_same_bits(cell.run(24), cell, 24)


def test_a_run_of_a_black_box_is_replayed_without_calls_for_the_others():
    calls = []

    def fun(x):
        calls.append(1)
        return float(np.sum(np.cos(3 * x) + x**2))

    whole = gx.minimize(fun, [(-2.0, 3.0)] * 3, "de", population=8, runs=20, generations=6, blackbox=True)
    assert len(calls) == whole.nfev == 20 * 8 * 6
    calls.clear()
    assert_same_bits(whole.run(13), whole, 13)
    assert len(calls) == 8 * 6


def test_slices_depend_on_the_size_of_a_run_but_for_very_many():
    if not devices.on_cpu():
        pytest.skip("on a GPU a slice is as large as memory allows")
    for runs in (2, 100, 8000, 10**6):
        assert arguments.slice_width(gx.DE(population=64), 2, runs, fit=10**9) == (64 if runs < 8192 else 256)
        assert arguments.slice_width(gx.DE(population=1000), 32, runs, fit=10**9) == 1
        assert arguments.slice_width(gx.CoevolutionaryDE(), 10, runs, fit=10**9) == 2


def test_a_run_of_very_many_is_replayed_to_the_bit_in_a_batch_as_wide(monkeypatch):
    if not devices.on_cpu():
        pytest.skip("on a GPU a slice is as large as memory allows")
    monkeypatch.setattr(arguments, "MANY_SLICES", 2)
    small = {
        "population": 12,
        "generations": GENERATIONS,
        "seed": 3,
        "polish": False,
        "compute": gx.Compute(dtype="float32"),
    }
    problem = gx.problems.get("goldstein_price")
    whole = gx.minimize(problem, algorithm="de", runs=150, **small)
    sizes = []
    own = batch_runner.BatchRunner.__init__

    def noted(run, *given, **named):
        own(run, *given, **named)
        sizes.append(run.width)

    monkeypatch.setattr(batch_runner.BatchRunner, "__init__", noted)
    for row in (0, 64, 149):
        assert_same_bits(whole.run(row), whole, row)
    assert sizes == [256] * 3
