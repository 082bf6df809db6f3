"""Reductions over all pairs of rows with memory O(n), and sorting of rows: the basis of dominance and niches.

Two forms of the same work are needed, and `devices.on_cpu()` chooses: a CPU runs loops over the points, each a short
vector operation; on a GPU every step of a loop is a kernel, so there comparisons of all pairs are fused into
reductions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from galapax.numerics import devices

MAX_FUSED_PAIRS = 2**28  # more pairs are reduced in tiles of rows, whatever XLA would make of them
CPU_UNROLL = 8  # points that one step of a loop on a CPU compares with all others
MAX_PAIRWISE_SORTED = (
    8192  # up to so many points a GPU orders by comparing all pairs, which is one kernel; a sort is a dozen
)
MAX_REDUCTION_LENGTH = 4096  # others that one reduction goes over; XLA takes minutes to compile longer ones

Columns = tuple[Array, ...]  # one array a column


def split_columns(points: Array) -> Columns:
    return tuple(jnp.asarray(points)[:, k] for k in range(points.shape[1]))


class Reduction(NamedTuple):
    """A reduction as a binary operation, as one along an axis, and its identity element by dtype."""

    combine: Callable[[Array, Array], Array]
    reduce: Callable[..., Array]
    identity: Callable[[DTypeLike], float]


SUM = Reduction(jnp.add, jnp.sum, lambda dtype: 0)
MAX = Reduction(jnp.maximum, jnp.max, lambda dtype: _limits(dtype)[0])
MIN = Reduction(jnp.minimum, jnp.min, lambda dtype: _limits(dtype)[1])


def _limits(dtype: DTypeLike) -> tuple[float, float]:
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).min, jnp.iinfo(dtype).max
    return -jnp.inf, jnp.inf


def reduce_over_others(
    term: Callable[[Columns, Columns], Columns], reductions: tuple[Reduction, ...], rows: Columns, others: Columns
) -> Columns:
    """Reduce for each row the terms with all others: columns (n,), one for each of the `reductions`.

    term(row, other): its columns for a row and another one, which may be arrays of any shape, from theirs.
    """
    if devices.on_cpu():
        return reduce_by_loop(term, reductions, rows, others)
    n, q = rows[0].shape[0], others[0].shape[0]
    return reduce_by_tiles(term, reductions, rows, others, min(n, max(1, MAX_FUSED_PAIRS // q)))


def reduce_by_loop(
    term: Callable[[Columns, Columns], Columns], reductions: tuple[Reduction, ...], rows: Columns, others: Columns
) -> Columns:
    """`reduce_over_others` by a loop over the others, a few at a time, each step a vector operation over the rows."""
    q = others[0].shape[0]

    def add(j: ArrayLike, totals: Columns) -> Columns:
        terms = term(rows, tuple(c[j] for c in others))
        return tuple(r.combine(total, t) for r, total, t in zip(reductions, totals, terms, strict=True))

    def group(g: Array, totals: Columns) -> Columns:
        for i in range(CPU_UNROLL):
            totals = add(g * CPU_UNROLL + i, totals)
        return totals

    shapes = jax.eval_shape(lambda: term(rows, tuple(c[0] for c in others)))
    totals = tuple(jnp.full(s.shape, r.identity(s.dtype), s.dtype) for r, s in zip(reductions, shapes, strict=True))
    totals = lax.fori_loop(0, q // CPU_UNROLL, group, totals)
    for j in range(q - q % CPU_UNROLL, q):
        totals = add(j, totals)
    return totals


def reduce_by_tiles(
    term: Callable[[Columns, Columns], Columns],
    reductions: tuple[Reduction, ...],
    rows: Columns,
    others: Columns,
    tile: int,
) -> Columns:
    """`reduce_over_others` by reductions into which XLA fuses the comparisons of `tile` rows with all others."""
    n, q = rows[0].shape[0], others[0].shape[0]

    def reduce_tile(tile_rows: Columns) -> Columns:
        totals: Columns = ()
        for start in range(0, q, MAX_REDUCTION_LENGTH):
            terms = term(
                tuple(c[:, None] for c in tile_rows),
                tuple(c[None, start : start + MAX_REDUCTION_LENGTH] for c in others),
            )
            partial_totals = tuple(r.reduce(t, axis=1) for r, t in zip(reductions, terms, strict=True))
            totals = (
                tuple(r.combine(a, b) for r, a, b in zip(reductions, totals, partial_totals, strict=True))
                if totals
                else partial_totals
            )
        return totals

    if tile >= n:
        return reduce_tile(rows)
    padded = -(-n // tile) * tile
    tiles = tuple(jnp.pad(c, (0, padded - n)).reshape(-1, tile) for c in rows)
    return tuple(out.reshape(-1)[:n] for out in lax.map(reduce_tile, tiles))


def argsort_rows(*keys: Array) -> Array:
    """Sort rows by rising keys (n,), the first key first, among equals the lower row first; return rows (n,) int32."""
    n = keys[0].shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    if devices.on_cpu() or n > MAX_PAIRWISE_SORTED:
        return lax.sort((*keys, rows), num_keys=len(keys), is_stable=True)[-1]

    def term(row: Columns, other: Columns) -> Columns:
        before = other[-1] < row[-1]
        for mine, theirs in zip(reversed(row[:-1]), reversed(other[:-1]), strict=True):
            before = (theirs < mine) | ((theirs == mine) & before)
        return (before.astype(jnp.int32),)

    (place,) = reduce_over_others(term, (SUM,), (*keys, rows), (*keys, rows))
    return jnp.zeros(n, jnp.int32).at[place].set(rows, unique_indices=True, mode="promise_in_bounds")


MAX_STORED_PAIRS = 2**20  # values of a table of pairs held in memory


def all_pairs(function: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """function of every row of `a` (n, ...) with every column of `b` (..., m), (n, m).

    To be reduced along the last axis, which XLA does on a GPU without storing the table.
    """
    return jax.vmap(lambda one: jax.vmap(lambda other: function(one, other), in_axes=1)(b))(a)


def map_in_tiles(function: Callable[[Array], Array], rows: Array, others: int) -> Array:
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
