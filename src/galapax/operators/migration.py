"""Who leaves an island, and whose place an arrival takes. One run each; n individuals, d genes, m migrants."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from galapax.core.problem import Population
from galapax.numerics import random
from galapax.operators.ranking import first_front


def select_emigrants(key: Array, population: Population, count: int, best: bool) -> Array:
    """Copies (m, d) of the individuals that leave, in order: the best, or any."""
    n, n_objectives = population.objectives.shape
    words = random.bits(key, (n,))
    failed = ~jnp.isfinite(population.objectives).all(axis=-1)
    if not best:
        order = jnp.lexsort((words, failed))
    elif n_objectives > 1:  # any of the first front
        order = jnp.lexsort((words, ~first_front(population.objectives, population.violation), failed))
    else:
        order = jnp.lexsort(_sort_keys(population))
    return population.x[order[:count]]


def select_replaced_rows(key: Array, parents: Population, rows: int, in_use: Array, count: int, worst: bool) -> Array:
    """Which of the `rows` candidates make room for arrivals, (m,); those beyond the first `in_use` are never evaluated.

    A candidate's parent is the one with its number, where there are as many.
    """
    unused = jnp.arange(rows, dtype=jnp.int32) >= in_use
    if worst and parents.objectives.shape[0] == rows and parents.objectives.shape[1] == 1:
        order = jnp.lexsort((*_sort_keys(parents), ~unused))
        return order[rows - count :]
    order = jnp.lexsort((random.bits(key, (rows,)), unused))
    return order[:count]


def _sort_keys(population: Population) -> tuple[Array, ...]:
    """What to sort by, the most important last: feasible ones first, then the better."""
    values = population.objectives[:, 0]
    return (values,) if population.violation is None else (values, population.violation)
