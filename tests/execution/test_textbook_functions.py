"""The default on textbook functions of two variables with many minima: how many of 20 seeds find the best one."""

import jax.numpy as jnp
import pytest

import galapax as gx


def eggholder(v):
    x, y = v
    return -(y + 47) * jnp.sin(jnp.sqrt(jnp.abs(x / 2 + y + 47))) - x * jnp.sin(jnp.sqrt(jnp.abs(x - (y + 47))))


def drop_wave(v):
    squared = v[0] ** 2 + v[1] ** 2
    return -(1 + jnp.cos(12 * jnp.sqrt(squared))) / (0.5 * squared + 2)


def cross_in_tray(v):
    x, y = v
    ridge = jnp.exp(jnp.abs(100 - jnp.sqrt(x * x + y * y) / jnp.pi))
    return -1e-4 * (jnp.abs(jnp.sin(x) * jnp.sin(y) * ridge) + 1) ** 0.1


def holder_table(v):
    x, y = v
    return -jnp.abs(jnp.sin(x) * jnp.cos(y) * jnp.exp(jnp.abs(1 - jnp.sqrt(x * x + y * y) / jnp.pi)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "width", "best"),
    [
        (eggholder, 512.0, -959.6406627208507),
        (drop_wave, 5.12, -1.0),
        (cross_in_tray, 10.0, -2.062611870822739),
        (holder_table, 10.0, -19.208502567767606),
    ],
)
def test_the_best_of_many_minima_is_found(function, width, best):
    runs = gx.minimize(function, [(-width, width)] * 2, runs=20, seed=1, progress=False).runs
    found = runs.fun - best <= 1e-6 * abs(best)
    assert runs.nfev.max() <= 20_000 and found.sum() >= 17
    assert (runs.success & ~found).sum() <= 2
