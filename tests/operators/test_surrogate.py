"""The quadratic surrogate: what it fits, where it is least, how it compares ranks, and which points it remembers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import kendalltau

from galapax.operators import surrogate
from galapax.operators.surrogate import (
    append_samples,
    count_coefficients,
    create_archive,
    latest_rows,
    rank_correlation,
)

fit_surrogate = jax.jit(surrogate.fit_surrogate)
minimize_in_ball = jax.jit(surrogate.minimize_in_ball, static_argnums=(1, 2))


def quadratic(dim, seed, definite=True):
    """A random quadratic function of rows."""
    random = np.random.default_rng(seed)
    root, center = random.normal(size=(dim, dim)), random.normal(size=dim)
    hessian = root @ root.T if definite else root + root.T
    return lambda u: 3.0 + 0.5 * np.einsum("...i,ij,...j", u - center, hessian, u - center)


@pytest.mark.parametrize("dim", [2, 7, 40])
def test_enough_points_give_the_function_itself(dim):
    random = np.random.default_rng(dim)
    fun = quadratic(dim, dim) if dim < 40 else lambda u: u @ np.arange(dim) + 2 * np.sum(u**2, axis=-1)
    u, fresh = random.normal(size=(2 * count_coefficients(dim), dim)), random.normal(size=(20, dim))
    with jax.enable_x64(True):
        model = fit_surrogate(jnp.asarray(u), jnp.asarray(fun(u)))
        predicted = np.asarray(model.predict(jnp.asarray(fresh)))
    np.testing.assert_allclose(predicted, fun(fresh), rtol=1e-5, atol=1e-5 * np.ptp(fun(u)))


def test_few_points_give_a_linear_model_and_fewer_none():
    random = np.random.default_rng(0)
    u, fresh = random.normal(size=(9, 6)), random.normal(size=(5, 6))
    with jax.enable_x64(True):
        model = fit_surrogate(jnp.asarray(u), jnp.asarray(u @ np.arange(6.0) + 1))
        np.testing.assert_allclose(model.predict(jnp.asarray(fresh)), fresh @ np.arange(6.0) + 1, atol=1e-6)
        assert model.is_fitted and not fit_surrogate(jnp.asarray(u[:8]), jnp.ones(8)).is_fitted


def test_failed_points_do_not_count():
    random = np.random.default_rng(1)
    u, fun = random.normal(size=(60, 3)), quadratic(3, 1)
    values = np.where(u[:, 0] > 1, np.inf, fun(u))
    with jax.enable_x64(True):
        model = fit_surrogate(jnp.asarray(u), jnp.asarray(values))
        np.testing.assert_allclose(model.predict(jnp.asarray(u)), fun(u), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("radius", [0.3, 3.0, 30.0])
def test_the_least_point_of_a_ball_is_that_of_scipy(definite, radius):
    fun, u = quadratic(4, 5, definite), np.random.default_rng(2).normal(size=(60, 4))
    with jax.enable_x64(True):
        point = np.asarray(minimize_in_ball(fit_surrogate(jnp.asarray(u), jnp.asarray(fun(u))), 4, radius))
    ball = {"type": "ineq", "fun": lambda s: radius**2 - s @ s}
    starts = np.random.default_rng(3).normal(size=(10, 4))
    least = min(minimize(fun, s, method="SLSQP", constraints=ball, options={"ftol": 1e-12}).fun for s in starts)
    assert np.linalg.norm(point) <= radius * (1 + 1e-6)
    assert fun(point) <= least + 1e-4 * (1 + abs(least))


def test_rank_correlation_is_kendalls():
    random = np.random.default_rng(4)
    for n in (3, 12, 30):
        a, b = random.normal(size=n), random.integers(0, 5, n).astype(float)
        b += 0.5 * a
        b[1] = b[0]
        chosen = np.arange(30) < n
        padded = [jnp.asarray(np.r_[values, random.normal(size=30 - n)]) for values in (a, b)]
        assert rank_correlation(*padded, jnp.asarray(chosen)) == pytest.approx(kendalltau(a, b).statistic, abs=1e-6)


def test_the_archive_holds_the_latest_points():
    archive = create_archive(5, 1, np.dtype(np.float32))
    for first in range(0, 12, 3):
        x = jnp.arange(first, first + 4.0)[:, None]
        archive = append_samples(archive, x, x[:, 0], jnp.array([True, True, False, True]))
    assert archive.n_points == 12
    np.testing.assert_array_equal(archive.values[latest_rows(archive, 5)], [12, 10, 9, 9, 7])
