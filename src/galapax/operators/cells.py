"""The cells between the values of f1 and f2 of n points, and who is lowest over each, as a GPU computes them.

Rows are the intervals of f1, columns those of f2. Points go by their level, their place by f3: the two lowest levels of
many are found by minima alone, in integers of two bytes. What reaches over a cell is found block by block: of a block
of rows, of as many such blocks, and of all before, so that a few wide kernels take the place of a scan's many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from galapax.numerics.jaxpr import Tree
from galapax.operators.pairwise import argsort_rows

MAX_CELLS_IN_MEMORY = 2**22

LowestTwo = tuple[Array, Array]  # of many levels the least and the second least, n for none


def block_size(n: int) -> int:
    """How many rows, and columns, of n are a block; measured on an H200 with 200 and 2048."""
    return 16 if n < 1024 else 32


class Cells(NamedTuple):
    """Cells of n points. Columns are padded to whole blocks; those have no height."""

    column: Array  # (n,) of the point at which each row begins
    widths: Array  # (n,) of the rows
    heights: Array  # (columns,)
    level: Array  # (n,) of the point at which each row begins; n for who does not count
    column_level: Array  # (columns,) the level of the point of each column; -1 for none
    home: Array  # (n + 1,) the column of each level
    f3: Array  # (n + 1,) of each level, and the corner's


def build_cells(column: Array, widths: Array, heights: Array, f3: Array, corner: Array) -> Cells:
    """column, widths: (n,) of each row. heights, f3: (n,) of each column; who has the corner's f3 does not count."""
    n = column.shape[0]
    values = f3[column]
    rows = argsort_rows(values)
    level = jnp.zeros_like(rows).at[rows].set(jnp.arange(n, dtype=jnp.int32), unique_indices=True)
    level = jnp.where(values < corner, level, n)
    column_level = jnp.zeros_like(level).at[column].set(jnp.where(level < n, level, -1), unique_indices=True)
    more = (0, -n % block_size(n))
    small = jnp.int16 if n < 2**15 - 1 else jnp.int32
    return Cells(
        column,
        widths,
        jnp.pad(heights, more),
        level.astype(small),
        jnp.pad(column_level, more, constant_values=-1).astype(small),
        jnp.append(column[rows], jnp.int32(n)),
        jnp.append(values[rows], corner),
    )


def volumes(cells: Cells) -> Array:
    """What the point of each column has to itself, (n,): over its cells up to who is second.

    A point's cells of a row lie beside each other and begin at its own column. So it has cells in the block of that
    column, and in later blocks only as the one that reaches into them from before. Nothing is added to an address: on a
    GPU the order of such sums is left to chance, and the last bits with it.
    """
    n = cells.column.shape[0]
    block = block_size(n)
    blocks = cells.column_level.reshape(-1, block)
    number = jnp.arange(blocks.shape[0], dtype=jnp.int32)

    def visit(total: Array, lowest: LowestTwo, widths: Array) -> Array:
        first, second = lowest
        mine = widths[:, None] * cells.heights * (cells.f3[second] - cells.f3[first])
        mine, first = (a.reshape(-1, *blocks.shape) for a in (mine, first))
        near = jnp.where(first[:, :, None] == blocks[..., None], mine[:, :, None], 0).sum(axis=(0, 3))
        from_before = cells.home[first] // block < number[:, None]
        reaching, passed = first[:, :, 0], jnp.where(from_before, mine, 0).sum(axis=2)
        leaving = first[:, :, -1]
        later = (reaching[:, None] == leaving[..., None]) & (number > number[:, None])
        far = jnp.where(later, passed[:, None], 0).sum(axis=2)
        return total + near + jnp.where(leaving[..., None] == blocks, far[..., None], 0).sum(axis=0)

    total = visit_cells(cells, visit, jnp.zeros(blocks.shape, cells.f3.dtype))
    return total.ravel()[:n]


def least_neighbour_rank(cells: Cells, rank: Array, below: Array) -> Array:
    """Of the points of the columns, (n,) int32, the least rank among neighbours: two who are lowest over some cell.

    rank: (n,) int32 of the points of the columns. Only neighbours count both of whose ranks are less than `below`.
    """
    n = rank.shape[0]
    ranks = rank.at[cells.home].get(mode="fill", fill_value=n)

    def visit(least: Array, lowest: LowestTwo, _: Array) -> Array:
        first, second = lowest
        one, other = ranks[first], ranks[second]
        # the first cell of the first row with these two is enough
        skipped = _equals_previous(lowest, 0) | _equals_previous(lowest, 1) | (jnp.maximum(one, other) >= below)
        least = least.at[jnp.where(skipped, n, first).ravel()].min(other.ravel(), mode="drop")
        return least.at[jnp.where(skipped, n, second).ravel()].min(one.ravel(), mode="drop")

    least = visit_cells(cells, visit, jnp.full(n, n, jnp.int32))
    return jnp.full(n, n, jnp.int32).at[cells.home[:n]].set(least, unique_indices=True)


def _equals_previous(lowest: LowestTwo, axis: int) -> Array:
    """Which cells have the same two as the one before them."""
    count = lowest[0].shape[axis] - 1
    head, tail = ([lax.slice_in_dim(a, start, start + count, axis=axis) for a in lowest] for start in (0, 1))
    same = (head[0] == tail[0]) & (head[1] == tail[1])
    return jnp.pad(same, [(1, 0) if i == axis else (0, 0) for i in range(2)])


def visit_cells(cells: Cells, visit: Callable[[Tree, LowestTwo, Array], Tree], start: Tree) -> Tree:
    """visit(found, lowest, widths) of all cells, as many rows at once as memory allows."""
    n, columns = cells.level.shape[0], cells.heights.shape[0]
    block_rows = block_size(n) ** 2
    rows = max(1, min(-(-n // block_rows), MAX_CELLS_IN_MEMORY // columns // block_rows)) * block_rows
    more = (0, -n % rows)
    # what is padded has no width, and reaches over no cell
    tiles = (
        jnp.pad(cells.column, more, constant_values=columns).reshape(-1, rows),
        jnp.pad(cells.level, more, constant_values=n).reshape(-1, rows),
        jnp.pad(cells.widths, more).reshape(-1, rows),
    )
    nobody = jnp.full(columns, n, cells.level.dtype)
    if tiles[0].shape[0] == 1:
        lowest, _ = _lowest(tiles[0][0], tiles[1][0], (nobody, nobody), n)
        return visit(start, lowest, tiles[2][0])

    def tile(
        state: tuple[LowestTwo, Tree], tile_rows: tuple[Array, Array, Array]
    ) -> tuple[tuple[LowestTwo, Tree], None]:
        before, result = state
        lowest, before = _lowest(tile_rows[0], tile_rows[1], before, n)
        return (before, visit(result, lowest, tile_rows[2])), None

    return lax.scan(tile, ((nobody, nobody), start), tiles)[0][1]


def _lowest(column: Array, level: Array, before: LowestTwo, n: int) -> tuple[LowestTwo, LowestTwo]:
    """The two lowest over each cell of these rows, (rows, columns), and after the last of them, (columns,)."""
    columns, block = before[0].shape[0], block_size(n)
    at = jnp.arange(columns, dtype=jnp.int32)
    column, level = (a.reshape(-1, block) for a in (column, level))
    none = jnp.full((), n, level.dtype)
    points = [jnp.where(at >= column[:, k, None], level[:, k, None], none) for k in range(block)]
    one = _merge_all([(p, none) for p in points])  # of each block of rows
    by_block = _map_two(one, lambda a: a.reshape(-1, block, columns))
    block_lowest = [(by_block[0][:, k], by_block[1][:, k]) for k in range(block)]
    many = _merge_all(block_lowest)  # of each block of blocks
    ahead = [before]
    for s in range(many[0].shape[0]):
        ahead.append(_merge_two(ahead[-1], (many[0][s], many[1][s])))
    lowest = jnp.stack([two[0] for two in ahead[:-1]])[:, None], jnp.stack([two[1] for two in ahead[:-1]])[:, None]
    place = jnp.arange(block)[:, None]
    for k in range(block - 1):  # of the blocks before, in the same block of blocks
        first, second = block_lowest[k]
        later = place > k
        earlier = jnp.where(later, first[:, None], none), jnp.where(later, second[:, None], none)
        lowest = _merge_two(lowest, earlier)
    lowest = _map_two(lowest, lambda a: a.reshape(-1, 1, columns))
    for k in range(block):  # of the rows up to this one, in the same block
        lowest = _merge_two(lowest, (jnp.where(place >= k, points[k][:, None], none), none))
    return _map_two(lowest, lambda a: a.reshape(-1, columns)), ahead[-1]


def _merge_all(pairs: list[LowestTwo]) -> LowestTwo:
    lowest = pairs[0]
    for two in pairs[1:]:
        lowest = _merge_two(lowest, two)
    return lowest


def _map_two(two: LowestTwo, change: Callable[[Array], Array]) -> LowestTwo:
    return change(two[0]), change(two[1])


def _merge_two(a: LowestTwo, b: LowestTwo) -> LowestTwo:
    return jnp.minimum(a[0], b[0]), jnp.minimum(jnp.maximum(a[0], b[0]), jnp.minimum(a[1], b[1]))
