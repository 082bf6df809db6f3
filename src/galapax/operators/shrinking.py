"""Populations that shrink as their run goes on: how far it has come, and which rows are in use."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import Budget
from galapax.core.checks import size, whole
from galapax.core.errors import InputError
from galapax.core.evaluation import Population
from galapax.operators.constraints import PASSING, epsilon_level, first_level, relaxed
from galapax.operators.reductions import rows_by

FEWEST = 18  # individuals, unless another number is given
ROUNDS = 50  # generations of the first size that a budget of evaluations should allow


class Horizon(NamedTuple):
    """When a run will end, as data: inf where nothing says so."""

    generations: float
    evaluations: float


def check_sizes(first: Any, last: Any) -> None:
    """Refuse sizes of a population, at first (None for a usual one) and at last, that cannot work."""
    why = "each individual needs two partners as well as the best"
    size(last, "last_population", 4, why)
    if first is not None and whole(first, "population", 4, why) < last:
        raise InputError(f"last_population must be at most population, {first}; got {last}.")


def first_size(usual: int, last: int, budget: Budget) -> int:
    """The usual size of a first population, or less where the evaluations do not suffice for it."""
    most = usual if budget.evaluations is None else budget.evaluations // ROUNDS
    return max(min(usual, most), FEWEST, last)


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


def in_use(counted: Array, population: Population) -> Population:
    """The population with the rows that do not count as if never evaluated."""
    violation = population.violation
    return population._replace(
        objectives=jnp.where(counted[:, None], population.objectives, jnp.inf),
        violation=None if violation is None else jnp.where(counted, violation, jnp.inf),
    )


def best_first(population: Population, level: Array, first_stays: bool) -> Array:
    """The rows by what they are worth at a level of relaxation, (n,); first_stays: the first row stays the first."""
    judged = relaxed(population, level)
    keys = [judged.fitness] if judged.violation is None else [judged.violation, judged.fitness]
    if first_stays:
        keys.insert(0, (jnp.arange(len(judged.fitness)) > 0).astype(jnp.int32))
    return rows_by(*keys)


def relaxation(known: Array, generations: Array, trials: Population, reached: Array, until: Any, power: Any) -> Any:
    """What the constraints are relaxed by at first and in this generation, the first one being number 1.

    At first a share of the first trials passes; from then on it falls, to 0 after `until` generations or half of the
    run, whichever is sooner. known: the first level, from the second generation on.
    """
    assert trials.violation is not None
    first = jnp.where(generations == 1, first_level(trials.violation, PASSING), known)
    share = jnp.maximum((generations - 1).astype(first.dtype) / until, 2 * reached)
    return first, epsilon_level(first, share, 1, power)
