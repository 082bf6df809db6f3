"""Tournaments for parents among individuals with several objectives."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from galapax.core.evaluation import Population
from galapax.numerics import random
from galapax.operators.dominance import dominates
from galapax.operators.reductions import rows_by
from galapax.operators.selection import take


def domination_tournament(key: Array, parents: Population, spread: Array, count: int) -> Array:
    """The winners of `count` tournaments of two, (count,) int32: who dominates the other, or else has greater spread.

    spread: (n,). Of equals the first wins.
    """
    a, b = _pairs(key, spread.shape[0], count)
    first, second = (take(rows, (parents.objectives, parents.violation)) for rows in (a, b))
    wins, loses = dominates(*second, *first), dominates(*first, *second)
    crowded = take(b, spread) > take(a, spread)
    return jnp.where(wins | (crowded & ~loses), b, a)


def least_of_two(key: Array, values: Array, count: int) -> Array:
    """The winners of `count` tournaments of two, (count,) int32: who has the lesser value (n,); of equals the first."""
    a, b = _pairs(key, values.shape[0], count)
    return jnp.where(take(b, values) < take(a, values), b, a)


def _pairs(key: Array, n: int, count: int) -> tuple[Array, Array]:
    """Of n rows, who meets whom in `count` tournaments.

    Rows meet in random orders of all of them, the first with the second and so on: every row takes part as often as any
    other, and those who breed with each other are rarely one and the same.
    """
    orders = [rows_by(random.bits(k, (n,))) for k in random.split(key, -(-2 * count // n))]
    pairs = jnp.concatenate(orders)[: 2 * count].reshape(count, 2)
    return pairs[:, 0], pairs[:, 1]
