"""The noisy BBOB functions: values under the noise against pycma's, and the noise against its distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import galapax as gx
from galapax.problems.bbob import NOISY_FUNCTIONS

N_DRAWS = 4000
LEVEL = 1e-4  # of each of the tests of a distribution below


def draws(function, x, seed=0):
    """Independent values at one point, in float64."""
    fun = gx.problems.bbob_noisy(function, len(x)).fun
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), N_DRAWS)
        return np.asarray(jax.jit(jax.vmap(lambda key: fun(jnp.asarray(x), key)))(keys))


def value(function, x, instance=1):
    with jax.enable_x64(True):
        return float(gx.problems.bbob_noisy(function, len(x), instance, noise=False).fun(jnp.asarray(x)))


@pytest.mark.parametrize("function", [101, 105, 114, 118, 119, 123, 125, 130])
def test_values_under_the_noise_are_those_of_pycma(function):
    benchmarks = pytest.importorskip("cma.bbobbenchmarks")
    for instance in (1, 4):
        oracle, f_opt = benchmarks.instantiate(function, instance)
        for x in np.random.default_rng(function).uniform(-6, 6, (3, 5)):
            _, expected = oracle._evalfull(x.copy())
            assert value(function, x, instance) + f_opt == pytest.approx(float(expected), rel=1e-9)


def test_the_families_are_the_ten_of_the_report():
    benchmarks = pytest.importorskip("cma.bbobbenchmarks")
    assert sorted(NOISY_FUNCTIONS) == sorted(benchmarks.noisyIDs)


def test_gaussian_noise_is_a_log_normal_factor():
    x = np.full(5, 1.0)
    factors = (draws(107, x) - 1.01e-8) / value(107, x)
    assert stats.kstest(np.log(factors), "norm").pvalue > LEVEL
    factors = (draws(101, x) - 1.01e-8) / value(101, x)
    assert stats.kstest(np.log(factors), "norm", (0, 0.01)).pvalue > LEVEL


@pytest.mark.parametrize(("function", "strength"), [(108, 1.0), (102, 0.01)])
def test_uniform_noise_is_that_of_an_independent_program(function, strength):
    x, rng = np.full(5, 1.0), np.random.default_rng(1)
    f = value(function, x)
    shrink, grow = rng.uniform(size=(2, N_DRAWS))
    expected = f * shrink**strength * np.maximum(1, (1e9 / f) ** (strength * (0.49 + 1 / 5) * grow))
    assert stats.ks_2samp(draws(function, x), expected).pvalue > LEVEL


@pytest.mark.parametrize(("function", "alpha", "probability"), [(109, 1.0, 0.2), (103, 0.01, 0.05)])
def test_cauchy_noise_is_seldom_and_heavy_tailed(function, alpha, probability):
    x = np.full(5, 1.0)
    ratios = (draws(function, x) - value(function, x) - 1.01e-8) / alpha - 1000
    is_disturbed = np.abs(ratios) > 1e-6
    assert stats.binomtest(int(is_disturbed.sum()), N_DRAWS, probability).pvalue > LEVEL
    assert stats.kstest(ratios[is_disturbed], "cauchy").pvalue > LEVEL  # what is cut off is below 1 in 3000


def test_noise_ends_near_the_optimum_and_penalties_have_none():
    optimum = gx.problems.bbob_noisy(107, 5).solutions[0]
    assert np.ptp(draws(107, optimum + 1e-5)) == 0.0
    far = np.full(5, 6.0)
    assert draws(107, far).min() > 500.0


def test_a_search_finds_the_optimum_of_a_noisy_function():
    result = gx.minimize(gx.problems.bbob_noisy(101, 3), max_evaluations=3000)
    assert value(101, np.asarray(result.x, float)) < 1e-2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((100, 5), "function must be 101 to 130, the number of a noisy BBOB function; got 100"), ((101, 1), "dim must")],
)
def test_numbers_outside_the_suite_are_refused(arguments, message):
    with pytest.raises(gx.InputError, match=message):
        gx.problems.bbob_noisy(*arguments)
