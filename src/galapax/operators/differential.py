"""Differential evolution: mutation, binomial crossover, and a generation for whatever is scored by one number.

Storn & Price (1997), Journal of Global Optimization 11:341-359, doi:10.1023/A:1008202821328; genes that leave the box
are bounced back.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.problem import Bounds, Population
from galapax.numerics import random
from galapax.operators.sampling import bounce_back
from galapax.operators.selection import best_index

Mutation = Callable[..., Array]


def draw_partners(key: Array, n: int, count: int, besides: Array | None = None) -> Array:
    """For each of n individuals `count` distinct others, none of them itself, (count, n).

    besides: a row, or one for each individual, that is not drawn; the individual's own unless given.

    Every such choice is equally likely. The j-th pick is drawn among the n - 1 - j that are left and moved past those
    already taken, in rising order: no rejection, no permutation, memory O(n).
    """
    words = random.bits(key, (count, n))
    excluded = [jnp.arange(n, dtype=jnp.int32) if besides is None else besides.astype(jnp.int32)]
    picks = []
    for j in range(count):
        pick = random.scale_to(words[j], n - 1 - j)
        for other in excluded:
            pick = skip_row(pick, other)
        picks.append(pick)
        excluded = _insert(excluded, pick)
    return jnp.stack(picks)


def skip_row(pick: Array, other: Array) -> Array:
    """A pick among rows without `other`, counted without it, as a row among all."""
    return pick + (pick >= other).astype(jnp.int32)


def _insert(rising: list[Array], value: Array) -> list[Array]:
    out = []
    for element in rising:
        out.append(jnp.minimum(element, value))
        value = jnp.maximum(element, value)
    return [*out, value]


def rand_1(key: Array, parents: Population, weight: ArrayLike) -> Array:
    """A random member plus the weighted difference of two others (DE/rand/1), (n, d)."""
    base, plus, minus = _gather_rows(parents.x, draw_partners(key, parents.x.shape[0], 3))
    return base + weight * (plus - minus)


def best_1(key: Array, parents: Population, weight: ArrayLike) -> Array:
    """The best member plus the weighted difference of two others (DE/best/1), (n, d)."""
    plus, minus = _gather_rows(parents.x, draw_partners(key, parents.x.shape[0], 2))
    return parents.x[best_index(parents)] + weight * (plus - minus)


def _gather_rows(x: Array, indices: Array) -> Array:
    # one gather for all partners, with indices known to be in range: a third faster on a CPU than one gather each
    return x.at[indices].get(mode="promise_in_bounds")


def add_difference(key: Array, x: Array, bounds: Bounds, weight: float = 0.5) -> Array:
    """Each row of x (n, d) moved by `weight` times the difference of two random rows, and clipped to the box.

    Clipping and not bouncing back: solutions of constrained problems often lie on the box, and this reaches it.
    """
    n = x.shape[0]
    a, b = (x.at[rows].get(mode="promise_in_bounds") for rows in random.integers(key, (2, n), n))
    return jnp.clip(x + weight * (a - b), bounds.lower, bounds.upper)


def binomial_crossover(key: Array, target: Array, donor: Array, rate: ArrayLike) -> Array:
    """Take each gene from `donor` with probability `rate`, and at least one per row. All (n, d)."""
    return jnp.where(crossover_mask(key, target.shape, rate), donor, target)


def crossover_mask(key: Array, shape: tuple[int, ...], rate: ArrayLike) -> Array:
    """Which genes (n, d) binomial crossover takes from the donor: each with probability `rate`, and at least one."""
    key_gene, key_forced = random.split(key)
    n, d = shape
    forced = random.integers(key_forced, (n,), d)
    return random.bernoulli(key_gene, rate, (n, d)) | (lax.broadcasted_iota(jnp.int32, (n, d), 1) == forced[:, None])


def breed_trials(
    key: Array, parents: Population, bounds: Bounds, mutation: Mutation, weight: ArrayLike, rate: ArrayLike
) -> Array:
    """A trial for each parent, (n, d): mutated, crossed with it, and brought back into the box."""
    key_mutate, key_cross, key_repair = random.split(key, 3)
    crossed = binomial_crossover(key_cross, parents.x, mutation(key_mutate, parents, weight), rate)
    return bounce_back(key_repair, crossed, parents.x, bounds)


def evolve_generation(
    key: Array,
    rows: Array,
    judge: Callable[[Array], Array],
    bounds: Bounds,
    mutation: Mutation,
    weight: ArrayLike,
    rate: ArrayLike,
) -> Array:
    """Rows (n, d + 1), genes and in the last column what `judge` (n, d) -> (n,) says of them, a generation later.

    One array, since on a GPU a second one of another shape is another kernel.
    """
    parents = Population(rows[:, :-1], rows[:, -1:], None)
    trials = breed_trials(key, parents, bounds, mutation, weight, rate)
    new = judge(trials)
    return jnp.where((new <= rows[:, -1])[:, None], jnp.concatenate([trials, new[:, None]], axis=1), rows)
