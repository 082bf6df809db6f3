"""Weights and rates of differential evolution that learn from those that worked."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from galapax.core.evaluation import Population
from galapax.numerics import random


def lehmer_mean(values: Array, weights: Array, power: int) -> tuple[Array, Array]:
    """The sum of values ** power over that of values ** (power - 1), both weighted, along the last axis.

    Values at least 0, (..., n), and weights (n,). Also whether the lower sum was 0, in which case the mean is 0.
    """
    total = jnp.sum(weights * values ** (power - 1), axis=-1)
    return jnp.sum(weights * values**power, axis=-1) / jnp.where(total > 0, total, 1), total <= 0


def remember(memory: Array, tried: Array, worked: Array) -> Array:
    """The memory (2, h) with the mean of the columns of `tried` (2, n) that `worked` (n,) in front; the oldest goes.

    The mean is Lehmer's with power 3, which favours large ones. Where nothing worked, nothing changes.
    """
    mean, _ = lehmer_mean(tried, worked.astype(tried.dtype), 3)
    return jnp.where(jnp.any(worked), jnp.concatenate([mean[:, None], memory[:, :-1]], axis=1), memory)


def gains(old: Population, new: Population, better: Array) -> Array:
    """What each success of new over old gained, (n,): in the objective, or in the violation where that differs; 0 for
    the others.

    The two are not of one scale, so each is in units of its mean over the successes of its kind.
    """
    most = jnp.finfo(old.fitness.dtype).max

    def scaled(gain: Array, counted: Array) -> Array:
        gain = jnp.minimum(jnp.where(counted, gain, 0), most)
        largest = jnp.max(gain)
        share = gain / jnp.where(largest > 0, largest, 1)  # sums of large gains could overflow
        mean = jnp.sum(share) / jnp.maximum(jnp.sum(counted.astype(gain.dtype)), 1)
        return share / jnp.where(mean > 0, mean, 1)

    if old.violation is None or new.violation is None:
        return scaled(old.fitness - new.fitness, better)
    level = old.violation == new.violation
    by_objective = scaled(old.fitness - new.fitness, better & level)
    return by_objective + scaled(old.violation - new.violation, better & ~level)


def to_archive(
    key: Array, archive: Array, filled: Array, capacity: Array, losers: Array, lost: Array
) -> tuple[Array, Array]:
    """The archive (c, d), whose first `filled` rows are in use, with those of the losers (n, d) that `lost` (n,); and
    how many rows are in use then.

    They take the next free rows up to `capacity`, then random rows. Of several for one row the last stays, whatever
    the device.
    """
    n, rows = losers.shape[0], jnp.arange(losers.shape[0], dtype=jnp.int32)
    place = filled + jnp.cumsum(lost, dtype=jnp.int32) - 1
    place = jnp.where(place < capacity, place, random.scale_to(random.bits(key, (n,)), capacity))
    place = jnp.where(lost, place, archive.shape[0])
    comes = jnp.full(archive.shape[0], -1, jnp.int32).at[place].max(rows, mode="drop")
    taken = losers.at[jnp.maximum(comes, 0)].get(mode="promise_in_bounds")
    filled = jnp.minimum(filled + jnp.sum(lost, dtype=jnp.int32), capacity)
    return jnp.where((comes >= 0)[:, None], taken, archive), filled
