"""Reductions over all pairs of rows with memory O(n), and sorting of rows: the basis of dominance and niches.

Two forms of the same work are needed, and `devices.on_cpu()` chooses: a CPU runs loops over the points, each a short
vector operation; on a GPU every step of a loop is a kernel, so there comparisons of all pairs are fused into
reductions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.numerics import devices

MAX_FUSED_PAIRS = 2**28  # beyond so many pairs a reduction goes by tiles of rows, whatever XLA would make of it
CPU_GROUP = 8  # points that one step of a loop on a CPU compares with all others
COUNTED = 8192  # up to so many points a GPU orders by comparing all pairs, which is one kernel; a sort is a dozen
LONGEST = 4096  # others that one reduction goes over; XLA takes minutes to compile longer ones

Columns = tuple[Array, ...]  # one array a column


def split(points: Array) -> Columns:
    return tuple(jnp.asarray(points)[:, k] for k in range(points.shape[1]))


class Reduction(NamedTuple):
    pair: Callable[[Array, Array], Array]
    whole: Callable[..., Array]
    start: Callable[[Any], Any]


SUM = Reduction(jnp.add, jnp.sum, lambda dtype: 0)
MAX = Reduction(jnp.maximum, jnp.max, lambda dtype: _limits(dtype)[0])
MIN = Reduction(jnp.minimum, jnp.min, lambda dtype: _limits(dtype)[1])


def _limits(dtype: Any) -> tuple[Any, Any]:
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).min, jnp.iinfo(dtype).max
    return -jnp.inf, jnp.inf


def over_others(
    term: Callable[[Columns, Columns], Columns], reductions: tuple[Reduction, ...], rows: Columns, others: Columns
) -> Columns:
    """For each row the terms with all others, reduced: columns (n,), one for each of the `reductions`.

    term(row, other): its columns for a row and another one, which may be arrays of any shape, from theirs.
    """
    if devices.on_cpu():
        return reduce_in_turn(term, reductions, rows, others)
    n, q = rows[0].shape[0], others[0].shape[0]
    return reduce_by_tiles(term, reductions, rows, others, min(n, max(1, MAX_FUSED_PAIRS // q)))


def reduce_in_turn(
    term: Callable[[Columns, Columns], Columns], reductions: tuple[Reduction, ...], rows: Columns, others: Columns
) -> Columns:
    """`over_others` by a loop over the others, a few at a time, each step a vector operation over the rows."""
    q = others[0].shape[0]

    def add(j: Any, totals: Columns) -> Columns:
        terms = term(rows, tuple(c[j] for c in others))
        return tuple(r.pair(total, t) for r, total, t in zip(reductions, totals, terms, strict=True))

    def group(g: Array, totals: Columns) -> Columns:
        for i in range(CPU_GROUP):
            totals = add(g * CPU_GROUP + i, totals)
        return totals

    shapes = jax.eval_shape(lambda: term(rows, tuple(c[0] for c in others)))
    totals = tuple(jnp.full(s.shape, r.start(s.dtype), s.dtype) for r, s in zip(reductions, shapes, strict=True))
    totals = lax.fori_loop(0, q // CPU_GROUP, group, totals)
    for j in range(q - q % CPU_GROUP, q):
        totals = add(j, totals)
    return totals


def reduce_by_tiles(
    term: Callable[[Columns, Columns], Columns],
    reductions: tuple[Reduction, ...],
    rows: Columns,
    others: Columns,
    tile: int,
) -> Columns:
    """`over_others` by reductions into which XLA fuses the comparisons of `tile` rows with all others."""
    n, q = rows[0].shape[0], others[0].shape[0]

    def whole(part: Columns) -> Columns:
        totals: Columns = ()
        for start in range(0, q, LONGEST):
            terms = term(tuple(c[:, None] for c in part), tuple(c[None, start : start + LONGEST] for c in others))
            some = tuple(r.whole(t, axis=1) for r, t in zip(reductions, terms, strict=True))
            totals = tuple(r.pair(a, b) for r, a, b in zip(reductions, totals, some, strict=True)) if totals else some
        return totals

    if tile >= n:
        return whole(rows)
    padded = -(-n // tile) * tile
    tiles = tuple(jnp.pad(c, (0, padded - n)).reshape(-1, tile) for c in rows)
    return tuple(out.reshape(-1)[:n] for out in lax.map(whole, tiles))


def rows_by(*keys: Array) -> Array:
    """The rows by rising keys (n,), the first key first, among equals the lower row first, (n,) int32."""
    n = keys[0].shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    if devices.on_cpu() or n > COUNTED:
        return lax.sort((*keys, rows), num_keys=len(keys), is_stable=True)[-1]

    def term(row: Columns, other: Columns) -> Columns:
        before = other[-1] < row[-1]
        for mine, theirs in zip(reversed(row[:-1]), reversed(other[:-1]), strict=True):
            before = (theirs < mine) | ((theirs == mine) & before)
        return (before.astype(jnp.int32),)

    (place,) = over_others(term, (SUM,), (*keys, rows), (*keys, rows))
    return jnp.zeros(n, jnp.int32).at[place].set(rows, unique_indices=True, mode="promise_in_bounds")


MAX_STORED_PAIRS = 2**20  # values of a table that are held in memory


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
    size = max(1, MAX_STORED_PAIRS // others)
    if n <= size:
        return function(rows)
    blocks = -(-n // size)
    padded = jnp.concatenate([rows, jnp.broadcast_to(rows[:1], (blocks * size - n, rows.shape[1]))])
    out = lax.map(function, padded.reshape(blocks, size, -1))
    return out.reshape(blocks * size, *out.shape[2:])[:n]
