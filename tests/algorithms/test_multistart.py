"""Descents by differences from many places, a member of the default search."""

import jax.numpy as jnp
import numpy as np

import galapax as gx
from galapax.algorithms.multistart import Multistart
from galapax.core.stop import Stop

PEAKS = np.random.default_rng(4).uniform(-4, 4, (6, 5))
HEIGHTS = np.array([10.0, 8.0, 7.0, 6.0, 5.0, 4.0])


def peaks(x):
    """Six wide peaks, upside down."""
    return -jnp.max(HEIGHTS * jnp.exp(-jnp.sum((x - PEAKS) ** 2, axis=1) / 20))


def count_minima(fun, dim, **options):
    return gx.minimize(
        fun, [(-5.0, 5.0)] * dim, Multistart(), restarts=None, polish=False, max_evaluations=20_000, **options
    )


def test_descents_from_many_places_find_the_highest_peak():
    result = count_minima(peaks, 5, runs=8, seed=1)
    assert result.runs.success.all()  # most of the minima are known: not rugged
    assert (result.runs.fun < -10 + 1e-4).sum() >= 7 and np.median(result.runs.nfev) < 6000


def test_descents_on_a_rugged_function_end_soon_and_without_success():
    def rugged(x):
        return jnp.sum(x**2) + 10 * jnp.sum(jnp.cos(7 * x)) * jnp.cos(5 * jnp.sum(x))

    result = count_minima(rugged, 6, seed=1)
    assert result.stop is Stop.STALL and result.nfev < 6000


def test_descents_stay_in_the_box_and_end_at_its_corner():
    result = count_minima(lambda x: jnp.sum(x) + 0.1 * jnp.sum(x**2), 3)
    assert result.x.tolist() == [-5.0] * 3 and result.stop is Stop.TOLERANCE


def test_failed_evaluations_end_a_descent():
    result = count_minima(lambda x: jnp.where(x[0] > 0, jnp.nan, jnp.sum((x + 1) ** 2)), 3)
    assert result.fun < 1e-6
