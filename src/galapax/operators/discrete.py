"""Candidates on the grid of codes: what makes any algorithm one for integers and choices. See core/space.py.

A code that arithmetic left between two whole numbers is rounded at random, up with the chance of its fraction, so that
a step of half a code is not lost; where codes have no order it is drawn anew, since what lies between two of them means
nothing. Some candidates then have one of their codes moved by at least a step, as in Hansen (2011), INRIA research
report 7751, section 3: differences between individuals vanish in a code long before the real variables have settled,
and nothing else would try another one. Where all variables are codes, so is every candidate that is there already.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from galapax.core.space import Bounds, DiscreteGrid
from galapax.numerics import random
from galapax.operators.selection import find_duplicates

CODE_MUTATION_RATE = 0.2  # chance that a candidate has a code moved


def round_codes(x: Array, bounds: Bounds) -> Array:
    """x (..., d) with its codes rounded."""
    grid = bounds.grid
    if grid is None:
        return x
    return jnp.where(grid.discrete, jnp.clip(jnp.round(x), grid.first, grid.last), x)


def snap_to_grid(key: Array, x: Array, individuals: Array, bounds: Bounds, all_discrete: bool) -> Array:
    """Round candidates x (n, d) to codes, and move some of them. individuals: (k, d), those that are there already.

    all_discrete: whether all variables are codes, so that equal candidates are common; those are moved, too.
    """
    grid = bounds.grid
    assert grid is not None
    key_round, key_draw, key_which, key_move, key_again = random.split(key, 5)
    below = jnp.floor(x)
    up = random.uniform(key_round, x.shape, jnp.float32).astype(x.dtype) < x - below
    random_code = grid.first + jnp.floor((grid.last - grid.first + 1) * random.uniform(key_draw, x.shape, x.dtype))
    code = jnp.where(grid.unordered & (x != below), random_code, below + up)
    x = jnp.where(grid.discrete, jnp.clip(code, grid.first, grid.last), x)
    moved = random.bernoulli(key_which, CODE_MUTATION_RATE, (x.shape[0],))
    x = jnp.where(moved[:, None], move_one_code(key_move, x, grid), x)
    if not all_discrete:
        return x
    rows = jnp.concatenate([individuals, x])
    copies = find_duplicates(rows, jnp.ones(rows.shape[0], bool))[individuals.shape[0] :]
    return jnp.where(copies[:, None], move_one_code(key_again, x, grid), x)


def move_one_code(key: Array, x: Array, grid: DiscreteGrid) -> Array:
    """x (n, d) with one code of each row moved: to any other where codes have no order, else up or down by a number of
    steps whose logarithm is uniform, at least one.
    """
    key_gene, key_far, key_way = random.split(key, 3)
    n, d = x.shape
    lot = jnp.where(grid.discrete, random.uniform(key_gene, (n, d), jnp.float32), -1.0)
    chosen = jnp.arange(d) == jnp.argmax(lot, axis=1)[:, None]
    count = grid.last - grid.first + 1
    share = random.uniform(key_far, (n, 1), x.dtype)
    # of c codes the others are 1 to c - 1 away
    far = jnp.clip(jnp.floor(jnp.exp(share * jnp.log(count))), 1, jnp.maximum(count - 1, 1))
    other = grid.first + (x - grid.first + 1 + jnp.floor(share * (count - 1))) % count
    up = random.bernoulli(key_way, 0.5, (n, 1))
    fits_up, fits_down = x + far <= grid.last, x - far >= grid.first
    way = jnp.where((up & fits_up) | ~fits_down, far, -far)
    ordered = jnp.clip(x + way, grid.first, grid.last)
    return jnp.where(chosen & grid.discrete, jnp.where(grid.unordered, other, ordered), x)
