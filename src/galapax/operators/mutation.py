"""Mutants from parents: as in differential evolution, and polynomial."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from galapax.core.evaluation import Population
from galapax.core.problem import Bounds
from galapax.numerics import random
from galapax.numerics.materialise import apply_flattened
from galapax.operators.selection import best_index


def partners(key: Array, n: int, count: int, besides: Array | None = None) -> Array:
    """For each of n individuals `count` distinct others, none of them itself, (count, n).

    besides: a row, or one for each individual, that is not drawn; the individual's own unless given.

    Every such choice is equally likely. The j-th pick is drawn among the n - 1 - j that are left and moved past those
    already taken, in rising order: no rejection, no permutation, memory O(n).
    """
    words = random.bits(key, (count, n))
    taken = [jnp.arange(n, dtype=jnp.int32) if besides is None else besides.astype(jnp.int32)]
    picks = []
    for j in range(count):
        pick = random.scale_to(words[j], n - 1 - j)
        for other in taken:
            pick = past(pick, other)
        picks.append(pick)
        taken = _insert(taken, pick)
    return jnp.stack(picks)


def past(pick: Array, other: Array) -> Array:
    """A pick among rows without `other`, counted without it, as a row among all."""
    return pick + (pick >= other).astype(jnp.int32)


def _insert(rising: list[Array], value: Array) -> list[Array]:
    out = []
    for element in rising:
        out.append(jnp.minimum(element, value))
        value = jnp.maximum(element, value)
    return [*out, value]


def rand_1(key: Array, parents: Population, weight: Any) -> Array:
    """A random member plus the weighted difference of two others (DE/rand/1), (n, d)."""
    base, plus, minus = _rows(parents.x, partners(key, parents.x.shape[0], 3))
    return base + weight * (plus - minus)


def best_1(key: Array, parents: Population, weight: Any) -> Array:
    """The best member plus the weighted difference of two others (DE/best/1), (n, d)."""
    plus, minus = _rows(parents.x, partners(key, parents.x.shape[0], 2))
    return parents.x[best_index(parents)] + weight * (plus - minus)


def _rows(x: Array, indices: Array) -> Array:
    # one gather for all partners, with indices known to be in range: a third faster on a CPU than one gather each
    return x.at[indices].get(mode="promise_in_bounds")


def polynomial_mutation(
    key: Array, x: Array, bounds: Bounds, index: Any, rate: Any, at_least_one: Array | None = None
) -> Array:
    """Each gene of x (n, d) moved with probability `rate`, within the box.

    at_least_one: (n,) bool, rows of which one gene, a random one, moves in any case.

    Deb & Goyal (1996), Computer Science and Informatics 26(4):30-45, in the form of the program of the authors of
    NSGA-II: the move, in units of the gene's range, has density proportional to (1 - |move|)^index on either side, up
    to the wall, each side being chosen with probability 1/2. index: the greater, the smaller the moves; eta_m.
    """
    key_gene, key_move = random.split(key)
    u = random.uniform(key_move, x.shape, x.dtype)
    power = index + 1

    def moved(x: Array, u: Array, lower: Array, upper: Array) -> Array:
        down, span = u < 0.5, upper - lower
        tail = 2 * jnp.where(down, u, 1 - u)  # in (0, 1]: 0 is a move to the wall, 1 none
        room = jnp.where(down, x - lower, upper - x) / span
        # `log1p` and `expm1`, since near a wall the moves towards it are tiny, and in float32 they would vanish
        cut = -jnp.expm1(power * jnp.log1p(-jnp.clip(room, 0, 1)))
        move = -jnp.expm1(jnp.log1p(-(1 - tail) * cut) / power)
        return jnp.clip(x + jnp.where(down, -move, move) * span, lower, upper)

    moves = random.bernoulli(key_gene, rate, x.shape)
    if at_least_one is not None:
        forced = random.integers(random.fold_in(key, 2), (x.shape[0], 1), x.shape[1])
        moves |= at_least_one[:, None] & (lax.broadcasted_iota(jnp.int32, x.shape, 1) == forced)
    return jnp.where(moves, apply_flattened(moved, x, u, bounds.lower, bounds.upper), x)


def add_difference(key: Array, x: Array, bounds: Bounds, weight: float = 0.5) -> Array:
    """Each row of x (n, d) moved by `weight` times the difference of two random rows, and clipped to the box.

    Clipping and not bouncing back: solutions of constrained problems often lie on the box, and this reaches it.
    """
    n = x.shape[0]
    a, b = (x.at[rows].get(mode="promise_in_bounds") for rows in random.integers(key, (2, n), n))
    return jnp.clip(x + weight * (a - b), bounds.lower, bounds.upper)
