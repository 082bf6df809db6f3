"""Crossover and mutation of real genes together, as NSGA-II and its relatives breed."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from galapax.core.checks import in_range
from galapax.core.problem import Bounds
from galapax.numerics import random
from galapax.numerics.materialise import materialise
from galapax.operators.crossover import simulated_binary_crossover
from galapax.operators.mutation import add_difference, polynomial_mutation


def even(count: int) -> int:
    """The least even number of at least `count`."""
    return count + count % 2


def breed(
    key: Array,
    x: Array,
    bounds: Bounds,
    crossover_rate: Any,
    crossover_index: Any,
    mutation_rate: Any,
    mutation_index: Any,
    copies: bool = True,
) -> Array:
    """Two children of each row in the first half of x (n, d), n even, and its like in the second half, (n, d).

    mutation_rate: None for one gene on average. copies: whether a child may be a copy of its parent; otherwise one gene
    of a child that crossover left as it was mutates in any case.
    """
    key_cross, key_mutate = random.split(key)
    a, b = materialise(jnp.split(x, 2))
    children = materialise(simulated_binary_crossover(key_cross, a, b, bounds, crossover_index, crossover_rate))
    rate = 1 / x.shape[1] if mutation_rate is None else mutation_rate
    crossed = jnp.concatenate(children)
    same = None if copies else jnp.all(crossed == x, axis=1)
    return polynomial_mutation(key_mutate, crossed, bounds, mutation_index, rate, same)


def some_by_differences(key: Array, children: Array, x: Array, bounds: Bounds, share: Any) -> tuple[Array, Array]:
    """The children (n, d), a share of them replaced by their parents x (n, d) moved by differences of others.

    And which they are, (n,) bool.
    """
    key_which, key_move = random.split(key)
    moved = materialise(add_difference(key_move, materialise(x), bounds))
    which = random.bernoulli(key_which, share, (x.shape[0], 1))
    return jnp.where(which, moved, children), which[:, 0]


def share_by_survival(share: Array, moved: Array, stays: Array) -> Array:
    """The share of children to make by differences next, as they survive more or less often than the others.

    share: of late. moved, stays: (n,) bool, which children of this generation were made so, and which survived.
    A tenth of the way to the fourth power of the two chances beside each other; the power makes a difference of chances
    count. Neither kind is given up.
    """
    chances = [(jnp.sum(stays & made) + 1) / (jnp.sum(made) + 2) for made in (moved, ~moved)]
    ours, others = (chance.astype(share.dtype) ** 4 for chance in chances)
    return jnp.clip(share + (ours / (ours + others) - share) / 10, 0.05, 0.95)


def check_variation(crossover_rate: Any, crossover_index: Any, mutation_rate: Any, mutation_index: Any) -> None:
    """Refuse what `breed` cannot use."""
    in_range(crossover_rate, "crossover_rate", 0.0, 1.0)
    if mutation_rate is not None:
        in_range(mutation_rate, "mutation_rate", 0.0, 1.0)
    in_range(crossover_index, "crossover_index", 0.0, 1000.0)
    in_range(mutation_index, "mutation_index", 0.0, 1000.0)
