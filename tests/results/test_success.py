"""What a run says of its answer: success means that the answer itself is where the search converged."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.stop import Stop

NEWTON = 1e-5  # of the box: a point from which Newton's step is no longer counts as stationary


def vincent(x, xp=jnp):
    return -xp.mean(xp.sin(10 * xp.log(x)))


def waves(x, xp=jnp):
    return xp.sum(10 + 9 * xp.cos(2 * np.pi * np.array([3.0, 4.0]) * x))


def rastrigin(x, xp=jnp):
    return xp.sum(x**2 - 10 * xp.cos(2 * np.pi * x) + 10)


def uneven(x, xp=jnp):
    return xp.sum(xp.sin(3 * x) + 0.3 * xp.sin(11 * x) + 0.01 * x**2)


MANY_MINIMA = {
    "rastrigin 1": (rastrigin, [(-5.12, 5.0)]),
    "rastrigin 2": (rastrigin, [(-5.12, 5.0)] * 2),
    "vincent 1": (vincent, [(0.25, 10.0)]),
    "vincent 2": (vincent, [(0.25, 10.0)] * 2),
    "waves": (waves, [(0.0, 1.0)] * 2),
    "uneven 1": (uneven, [(-4.0, 5.0)]),
    "uneven 2": (uneven, [(-4.0, 5.0)] * 2),
}


def stationary(fun, points, box):
    """Which points (k, d) are stationary in the box, by Newton's step in each variable."""
    lower, upper = np.array(box).T
    with jax.enable_x64(True):
        slopes = np.asarray(jax.vmap(jax.grad(fun))(jnp.asarray(points))) * (upper - lower)
        bends = (
            np.asarray(jax.vmap(lambda x: jnp.diag(jax.hessian(fun)(x)))(jnp.asarray(points))) * (upper - lower) ** 2
        )
    held = ((points <= lower) & (slopes > 0)) | ((points >= upper) & (slopes < 0))
    return np.all(held | (np.abs(slopes) <= NEWTON * np.maximum(np.abs(bends), 1e-3)), axis=1)


def check_successes(name, runs, seed, polish=False, **options):
    fun, box = MANY_MINIMA[name]
    called = (lambda x: fun(x, np)) if options.get("blackbox") else fun
    result = gx.minimize(
        called, box, runs=runs, seed=seed, compute=gx.Compute(dtype="float64"), polish=polish, **options
    )
    points = np.asarray(result.runs.x).reshape(runs, -1)
    wrong = result.runs.success & ~stationary(fun, points, box)
    assert not wrong.any(), f"{int(wrong.sum())} of {runs} runs succeed at a point that is not stationary"
    return result


CALLS = [
    {"polish": False},
    {"polish": "auto"},
    {"blackbox": True},
    {"polish": False, "islands": 2},
    {"polish": False, "algorithm": None, "restarts": None},
    {"polish": False, "algorithm": None, "max_evaluations": 3000},
]


@pytest.mark.parametrize("options", CALLS, ids=str)
@pytest.mark.parametrize("name", ["rastrigin 1", "rastrigin 2"])
def test_no_run_succeeds_at_a_point_that_is_not_stationary(name, options):
    check_successes(name, 40, 1, **{"algorithm": "cmaes", **options})


@pytest.mark.slow
@pytest.mark.parametrize("options", CALLS, ids=str)
@pytest.mark.parametrize("name", MANY_MINIMA)
def test_no_run_of_many_succeeds_at_a_point_that_is_not_stationary(name, options):
    for seed in (2, 3):
        check_successes(name, 200, seed, **{"algorithm": "cmaes", **options})


def lucky_run(polish=False, **options):
    """A run whose best point is not where its search converged."""
    fun, box = MANY_MINIMA["rastrigin 1"]
    every = gx.minimize(fun, box, "cmaes", runs=20, seed=1, polish=False)
    number = int(np.flatnonzero(~every.runs.success)[0])
    return every, gx.minimize(fun, box, "cmaes", seed=1, runs=range(number, number + 1), polish=polish, **options)


def test_a_search_that_converged_to_a_worse_point_than_its_best_says_so():
    every, result = lucky_run(polish=False)
    assert result.stop is Stop.ELSEWHERE and not result.success and result.feasible
    assert result.fun == result.history.best.min() == pytest.approx(rastrigin(result.x, np), rel=1e-9)
    generation = int(np.argmax(result.history.best == result.fun)) + 1
    worse = np.median(result.population_fitness[1:])
    assert worse > result.fun + 1e-3
    assert result.message == (
        f"Converged to {worse:.8g} at another point in generation {result.nit}. x is the best point "
        f"evaluated (sampled in generation {generation}), and not known to be a minimum: refine or search again from "
        "it (x0=result.x), or use restarts."
    )
    without = lucky_run(polish=False, keep=gx.Keep(history=False))[1]
    assert without.stop is Stop.ELSEWHERE and "evaluated, and not known" in without.message
    assert not every.success or every.stop is Stop.TOLERANCE


def test_the_polish_of_such_a_run_begins_at_its_best_point_and_makes_it_a_success():
    _, plain = lucky_run(polish=False)
    _, polished = lucky_run(polish="auto")
    assert polished.success and polished.stop is Stop.TOLERANCE and polished.nfev > plain.nfev
    assert polished.fun < plain.fun and abs(polished.x[0] - plain.x[0]) < 0.5
    assert stationary(rastrigin, polished.x[None], [(-5.12, 5.0)]).all()
    assert "the polish of its best point converged" in polished.message
    _, short = lucky_run(polish="auto", max_evaluations=plain.nfev + 3)
    assert not short.success and short.nfev <= plain.nfev + 3


UNIMODAL = {
    "sphere": lambda x: jnp.sum((x - 0.3) ** 2),
    "with an offset": lambda x: 1.0 + jnp.sum((x - 0.3) ** 2),
    "ill-conditioned": lambda x: jnp.sum(10.0 ** (3 * jnp.arange(x.size)) * (x - 0.3) ** 2),
    "not smooth": lambda x: jnp.sum(jnp.abs(x - 0.3)),
    "in a corner": jnp.sum,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNIMODAL)
def test_every_run_on_one_minimum_converges_to_its_answer(name, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = gx.minimize(
            UNIMODAL[name], [(-5.0, 5.0)] * 2, "cmaes", runs=60, seed=4, polish=False, compute=gx.Compute(dtype=dtype)
        )
    assert result.runs.success.all()
