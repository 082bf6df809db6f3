"""Tables of all pairs, reduced without being stored."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

PAIRS_AT_ONCE = 2**20  # values of a table that are held in memory


def all_pairs(function: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """function of every row of `a` (n, ...) with every column of `b` (..., m), (n, m).

    To be reduced along the last axis, which XLA does on a GPU without storing the table.
    """
    return jax.vmap(lambda one: jax.vmap(lambda other: function(one, other), in_axes=1)(b))(a)


def in_tiles(function: Callable[[Array], Array], rows: Array, others: int) -> Array:
    """function of all rows (n, k), which gives (n, ...); with blocks of rows one after another where a table with so
    many others is large.
    """
    n = rows.shape[0]
    size = max(1, PAIRS_AT_ONCE // others)
    if n <= size:
        return function(rows)
    blocks = -(-n // size)
    padded = jnp.concatenate([rows, jnp.broadcast_to(rows[:1], (blocks * size - n, rows.shape[1]))])
    out = lax.map(function, padded.reshape(blocks, size, -1))
    return out.reshape(blocks * size, *out.shape[2:])[:n]
