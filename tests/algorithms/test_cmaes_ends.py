"""What CMA-ES alone promises: where its first samples come from, and when its search is over."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.algorithms.cmaes import FIRST_MEAN_SHARE, constants

BOX = [(1.5, 4.0), (-7.0, -2.0), (-0.5, 9.5)]
LOWER, UPPER = np.array(BOX).T


def first_samples(run, **settings):
    """In shares of the box."""
    x = gx.Optimizer(BOX, gx.CMAES(**{"population": 400, "sigma0": 0.01, **settings}), seed=3, run=run).ask_generation()
    return (x - LOWER) / (UPPER - LOWER)


def test_first_samples_spread_around_a_mean_that_each_run_draws_in_the_middle_of_the_box():
    means = []
    for run in range(40):
        unit = first_samples(run)
        means.append(unit.mean(axis=0))
        np.testing.assert_allclose(unit.std(axis=0), 0.01, rtol=0.2)
    edge = (1 - FIRST_MEAN_SHARE) / 2
    assert np.all((np.array(means) > edge - 0.005) & (np.array(means) < 1 - edge + 0.005))
    for column in np.array(means).T:
        filled, _ = np.histogram(column, bins=4, range=(edge, 1 - edge))
        assert filled.sum() >= 38 and filled.min() >= 2


@pytest.mark.slow
def test_the_first_point_given_is_the_mean_and_the_others_are_evaluated_as_they_are():
    seen = []

    def fun(x):
        seen.append(x.copy())
        return ((x - LOWER) ** 2).sum(axis=1)

    given = np.array([[2.0, -3.0, 4.0], [3.9, -6.5, 9.0]])
    algorithm = gx.CMAES(population=12, sigma0=1e-6)
    gx.minimize(fun, BOX, algorithm, generations=1, x0=given, blackbox=True, vectorized=True)
    points = np.concatenate(seen)
    np.testing.assert_array_equal(points[:2], given)
    assert len(points) == 12 and np.abs((points[2:] - given[0]) / (UPPER - LOWER)).max() < 6e-6


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["lower corner", "upper corner"])
def test_an_optimum_in_a_corner_is_one_to_which_a_search_converges(sign):
    """Many samples are moved onto the corner there and have the same value, which is no plateau."""
    res = gx.minimize(lambda x: sign * jnp.sum(x), BOX, "cmaes", seed=1, polish=False)
    assert res.success and res.stop == "tolerance"
    np.testing.assert_array_equal(res.x, LOWER if sign > 0 else UPPER)


def test_a_plateau_is_no_convergence():
    res = gx.minimize(lambda x: jnp.floor(jnp.sum(x**2)), BOX, "cmaes", polish=False)
    assert res.stop == "stall" and not res.success


@pytest.mark.parametrize("dim", [1, 2, 3, 10, 40])
def test_weights_of_any_number_of_samples_leave_the_matrix_positive(dim):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count in (4, 5, 12, 100, 1000, 5000):
            k = constants(dim, count)
            weights = np.asarray(jax.jit(k.weight)(np.arange(1.0, count + 1)))
            assert weights[: count // 2].sum() == pytest.approx(1, rel=1e-5) and np.all(weights[count // 2 :] <= 0)
            assert weights.sum() == pytest.approx(k.total, abs=1e-4)
            assert 1 - k.c_1 - k.c_mu * weights[weights > 0].sum() >= -1e-6
