"""The generation of differential evolution, for whatever is judged by one number.

Storn & Price (1997), Journal of Global Optimization 11:341-359, doi:10.1023/A:1008202821328; genes that leave the box
are bounced back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from galapax.core.evaluation import Population
from galapax.core.problem import Bounds
from galapax.numerics import random
from galapax.operators.crossover import binomial_crossover
from galapax.operators.repair import bounce_back

Mutation = Callable[..., Array]


def next_trials(key: Array, parents: Population, bounds: Bounds, mutation: Mutation, weight: Any, rate: Any) -> Array:
    """A trial for each parent, (n, d): mutated, crossed with it, and brought back into the box."""
    key_mutate, key_cross, key_repair = random.split(key, 3)
    crossed = binomial_crossover(key_cross, parents.x, mutation(key_mutate, parents, weight), rate)
    return bounce_back(key_repair, crossed, parents.x, bounds)


def generation(
    key: Array,
    rows: Array,
    judge: Callable[[Array], Array],
    bounds: Bounds,
    mutation: Mutation,
    weight: Any,
    rate: Any,
) -> Array:
    """Rows (n, d + 1), genes and in the last column what `judge` (n, d) -> (n,) says of them, a generation later.

    One array, since on a GPU a second one of another shape is another kernel.
    """
    parents = Population(rows[:, :-1], rows[:, -1:], None)
    trials = next_trials(key, parents, bounds, mutation, weight, rate)
    new = judge(trials)
    return jnp.where((new <= rows[:, -1])[:, None], jnp.concatenate([trials, new[:, None]], axis=1), rows)
