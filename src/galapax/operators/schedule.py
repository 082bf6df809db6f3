"""How far a run has come, and populations that shrink with it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import Budget


class Horizon(NamedTuple):
    """When a run will end, as data: inf where nothing says so."""

    generations: float
    evaluations: float


def horizon_of(budget: Budget) -> Horizon:
    return Horizon(*(math.inf if limit is None else float(limit) for limit in budget))


def progress(horizon: Horizon | None, generations: Array, evaluations: Array, dtype: Any) -> Array:
    """The share of a run that is over after so many generations and evaluations, by the limit that is nearer; 0 where
    there is none.
    """
    if horizon is None:
        return jnp.zeros((), dtype)
    shares = [made.astype(dtype) / limit for made, limit in zip((generations, evaluations), horizon, strict=True)]
    return jnp.minimum(jnp.maximum(*shares), 1).astype(dtype)


def shrunk(first: int, last: int, progress: Array) -> Array:
    """The size of a population that falls linearly from `first` to `last`, int32.

    Tanabe & Fukunaga (2014), IEEE CEC, 1658-1665, doi:10.1109/CEC.2014.6900380, equation 10.
    """
    return rounded(first + (last - first) * progress)


def rounded(value: Array) -> Array:
    """The nearest whole number, halves up, int32."""
    return jnp.floor(value + 0.5).astype(jnp.int32)
