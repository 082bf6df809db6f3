"""Adaptation during a run: weights and rates that learn from success, and populations that shrink."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from galapax.core.algorithm import Budget
from galapax.core.checks import check_integer, check_size
from galapax.core.errors import InputError
from galapax.core.problem import Population
from galapax.numerics import random
from galapax.operators.constraint_handling import INITIAL_PASSING_SHARE, epsilon_level, initial_level, relax_violation
from galapax.operators.pairwise import argsort_rows

MIN_FIRST_POPULATION = 18  # individuals, unless another number is given
MIN_BUDGET_GENERATIONS = 50  # generations of the first size that a budget of evaluations should allow


def lehmer_mean(values: Array, weights: Array, power: int) -> tuple[Array, Array]:
    """Return the sum of values ** power over that of values ** (power - 1), both weighted, along the last axis.

    Values at least 0, (..., n), and weights (n,). Also whether the lower sum was 0, in which case the mean is 0.
    """
    total = jnp.sum(weights * values ** (power - 1), axis=-1)
    return jnp.sum(weights * values**power, axis=-1) / jnp.where(total > 0, total, 1), total <= 0


def update_memory(memory: Array, parameters: Array, worked: Array) -> Array:
    """Put the mean of the successful columns of `parameters` (2, n) in front of the memory (2, h); the oldest goes.

    worked: (n,) bool, which columns succeeded.

    The mean is Lehmer's with power 3, which favours large ones. Where nothing worked, nothing changes.
    """
    mean, _ = lehmer_mean(parameters, worked.astype(parameters.dtype), 3)
    return jnp.where(jnp.any(worked), jnp.concatenate([mean[:, None], memory[:, :-1]], axis=1), memory)


def success_gains(old: Population, new: Population, better: Array) -> Array:
    """Return the gain of each success of new over old, (n,): in the objective, or in the violation where that differs;
    0 for the others.

    The two are not of one scale, so each is in units of its mean over the successes of its kind.
    """
    most = jnp.finfo(old.fitness.dtype).max

    def scale(gain: Array, counted: Array) -> Array:
        gain = jnp.minimum(jnp.where(counted, gain, 0), most)
        largest = jnp.max(gain)
        share = gain / jnp.where(largest > 0, largest, 1)  # sums of large gains could overflow
        mean = jnp.sum(share) / jnp.maximum(jnp.sum(counted.astype(gain.dtype)), 1)
        return share / jnp.where(mean > 0, mean, 1)

    if old.violation is None or new.violation is None:
        return scale(old.fitness - new.fitness, better)
    level = old.violation == new.violation
    by_objective = scale(old.fitness - new.fitness, better & level)
    return by_objective + scale(old.violation - new.violation, better & ~level)


def add_to_archive(
    key: Array, archive: Array, filled: Array, capacity: Array, losers: Array, lost: Array
) -> tuple[Array, Array]:
    """Add to the archive (c, d), whose first `filled` rows are in use, those of the losers (n, d) that `lost` (n,);
    also return how many rows are then in use.

    They take the next free rows up to `capacity`, then random rows. Of several for one row the last stays, whatever
    the device.
    """
    n, rows = losers.shape[0], jnp.arange(losers.shape[0], dtype=jnp.int32)
    place = filled + jnp.cumsum(lost, dtype=jnp.int32) - 1
    place = jnp.where(place < capacity, place, random.scale_to(random.bits(key, (n,)), capacity))
    place = jnp.where(lost, place, archive.shape[0])
    comes = jnp.full(archive.shape[0], -1, jnp.int32).at[place].max(rows, mode="drop")
    replacement = losers.at[jnp.maximum(comes, 0)].get(mode="promise_in_bounds")
    filled = jnp.minimum(filled + jnp.sum(lost, dtype=jnp.int32), capacity)
    return jnp.where((comes >= 0)[:, None], replacement, archive), filled


class Horizon(NamedTuple):
    """When a run will end, as data: inf where nothing says so."""

    generations: float
    evaluations: float


def check_sizes(first: int | None, last: int) -> None:
    """Refuse sizes of a population, at first (None for a usual one) and at last, that cannot work."""
    why = "each individual needs two partners as well as the best"
    check_size(last, "last_population", 4, why)
    if first is not None and check_integer(first, "population", 4, why) < last:
        raise InputError(f"last_population must be at most population, {first}; got {last}.")


def initial_population_size(usual: int, last: int, budget: Budget) -> int:
    """Return the usual size of a first population, or less where the evaluations do not suffice for it."""
    most = usual if budget.evaluations is None else budget.evaluations // MIN_BUDGET_GENERATIONS
    return max(min(usual, most), MIN_FIRST_POPULATION, last)


def horizon_from_budget(budget: Budget) -> Horizon:
    return Horizon(*(math.inf if limit is None else float(limit) for limit in budget))


def share_of_run(horizon: Horizon | None, generations: Array, evaluations: Array, dtype: DTypeLike) -> Array:
    """Return the share of a run that is over after so many generations and evaluations, by the limit that is nearer; 0
    where there is none.
    """
    if horizon is None:
        return jnp.zeros((), dtype)
    shares = [spent.astype(dtype) / limit for spent, limit in zip((generations, evaluations), horizon, strict=True)]
    return jnp.minimum(jnp.maximum(*shares), 1).astype(dtype)


def linear_population_size(first: int, last: int, progress: Array) -> Array:
    """Return the size of a population that falls linearly from `first` to `last`, int32.

    Tanabe & Fukunaga (2014), IEEE CEC, 1658-1665, doi:10.1109/CEC.2014.6900380, equation 10.
    """
    return round_half_up(first + (last - first) * progress)


def round_half_up(value: Array) -> Array:
    """Return the nearest whole number, halves up, int32."""
    return jnp.floor(value + 0.5).astype(jnp.int32)


def mask_unused(counted: Array, population: Population) -> Population:
    """Return the population with the rows that do not count as if never evaluated."""
    violation = population.violation
    return population._replace(
        objectives=jnp.where(counted[:, None], population.objectives, jnp.inf),
        violation=None if violation is None else jnp.where(counted, violation, jnp.inf),
    )


def argsort_by_quality(population: Population, level: Array, first_stays: bool) -> Array:
    """Sort the rows by their quality at a level of relaxation, (n,); first_stays: the first row stays the first."""
    judged = relax_violation(population, level)
    keys = [judged.fitness] if judged.violation is None else [judged.violation, judged.fitness]
    if first_stays:
        keys.insert(0, (jnp.arange(len(judged.fitness)) > 0).astype(jnp.int32))
    return argsort_rows(*keys)


def relaxation_levels(
    first_epsilon: Array, generations: Array, trials: Population, progress: Array, until: ArrayLike, power: ArrayLike
) -> tuple[Array, Array]:
    """Return the levels by which the constraints are relaxed at first and in this generation, the first one being
    number 1.

    At first a share of the first trials passes; from then on it falls, to 0 after `until` generations or half of the
    run, whichever is sooner. first_epsilon: the first level, from the second generation on.
    """
    assert trials.violation is not None
    first = jnp.where(generations == 1, initial_level(trials.violation, INITIAL_PASSING_SHARE), first_epsilon)
    share = jnp.maximum((generations - 1).astype(first.dtype) / until, 2 * progress)
    return first, epsilon_level(first, share, 1, power)
