"""How much hypervolume each point of a front adds to that of the others, and which to leave out one after another.

For two and three objectives, exactly. Points lie in [0, 1], and volumes reach to `corner` > 1 in every objective.
Memory stays O(n). As elsewhere `devices.on_cpu()` chooses the form: rows of a grid one after another, or many at once.

The grid has the cells between the values of f1 and f2 of n points, and who is lowest over each. Its rows are the
intervals of f1, its columns those of f2. Points go by their level, their place by f3: the two lowest levels of many are
found by minima alone, in integers of two bytes. What reaches over a cell is found block by block: of a block of rows,
of as many such blocks, and of all before, so that a few wide kernels take the place of a scan's many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.numerics import devices, random
from galapax.numerics.jaxpr import Tree, materialise
from galapax.operators.pairwise import argsort_rows

MAX_CELLS_IN_MEMORY = 2**22

LowestTwo = tuple[Array, Array]  # of many levels the least and the second least, n for none


def block_size(n: int) -> int:
    """Return how many of n rows, and columns, are a block; measured on an H200 with 200 and 2048."""
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
    """Return the volume that the point of each column has to itself, (n,): over its cells up to who is second.

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
    """Return which cells have the same two as the one before them."""
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
    """Return the two lowest over each cell of these rows, (rows, columns), and after the last of them, (columns,)."""
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


MAX_EXACT_OBJECTIVES = 3  # objectives


def select_by_hypervolume(objectives: Array, rank: Array, count: int, corner: ArrayLike) -> Array:
    """Select the `count` rows of the first fronts, of the last one those who add most hypervolume, (count,) int32.

    objectives: (n, m), m of two or three. rank: (n,) int32, each one's front. corner: where
    volumes end, in units of the last front's range from its least values on. Earlier rows come first.
    """
    last = jnp.sort(rank)[count - 1]
    front = rank == last
    drop = jnp.sum(rank <= last, dtype=jnp.int32) - count
    sound = front & jnp.all(jnp.isfinite(objectives), axis=1)
    survives = drop_least_contributors(materialise(scale_to_unit_box(objectives, sound)), front, drop, corner)
    return argsort_rows(jnp.where((rank < last) | survives, 0, 1))[:count]


def scale_to_unit_box(objectives: Array, counted: Array) -> Array:
    """Scale the objectives (n, m) by their range among the rows that count (n,), which end in [0, 1]; the others, and
    objectives without a range, become 0.
    """
    inside = counted[:, None]
    low = jnp.min(jnp.where(inside, objectives, jnp.inf), axis=0)
    span = jnp.max(jnp.where(inside, objectives, -jnp.inf), axis=0) - low
    usable = inside & (span > 0) & jnp.isfinite(span)
    return jnp.where(usable, (objectives - low) / jnp.where(span > 0, span, 1), 0)


def drop_least_contributors(points: Array, front: Array, drop: Array, corner: ArrayLike) -> Array:
    """Who of a front stays when `drop` members have left, each time who adds the least hypervolume, (n,) bool.

    points: (n, m) in [0, 1]. front: (n,) bool, of whom none dominates another. drop: int32, how many leave.
    Several leave in one round: those who add less than all whose own share their leaving would change, and who are
    among the `drop` least. What a point adds never falls when others leave, so that with two objectives the same stay
    as one at a time. With three, a point may become somebody's neighbour within a round, which is seen in the next.
    """
    corner = jnp.asarray(corner, points.dtype)
    measured = {2: _measure_two_objectives, 3: _measure_three_objectives}[points.shape[1]](points, corner)

    def leave(state: tuple[Array, Array]) -> tuple[Array, Array]:
        stays, n_to_drop = state
        rank, least = measured(stays, n_to_drop)  # of each by what it adds, and the least among its neighbours'
        goes = stays & (rank < least) & (rank < n_to_drop)
        return stays & ~goes, n_to_drop - jnp.sum(goes, dtype=jnp.int32)

    return lax.while_loop(lambda state: state[1] > 0, leave, (front, jnp.asarray(drop, jnp.int32)))[0]


def contributions(points: Array, front: Array, corner: ArrayLike) -> Array:
    """Return what each member of the front (n,) adds to the hypervolume of the others, (n,); 0 for those outside it."""
    corner = jnp.asarray(corner, points.dtype)
    if points.shape[1] == 2:
        order = argsort_rows(points[:, 0], points[:, 1])
        added = _areas_between_neighbours(points[order], front[order], corner)[0]
    else:
        grid, order = _grid(points, corner)
        f3 = jnp.where(front[order], points[order, 2], corner)
        added = _volumes(grid, f3) if devices.on_cpu() else volumes(_cells(grid, f3))
    return jnp.zeros_like(added).at[order].set(added, unique_indices=True)


def _rank_by_contribution(added: Array, stays: Array) -> Array:
    """Return the place of each of those who stay by what they add, (n,) int32; the others come last.

    Equals come in no order: in that of their rows only one of many equal points beside each other would leave a round.
    """
    rows = jnp.arange(added.shape[0], dtype=jnp.int32)
    order = argsort_rows(jnp.where(stays, added, jnp.inf), random.mix_word(rows.astype(jnp.uint32)))
    return jnp.zeros_like(order).at[order].set(rows, unique_indices=True)


# ranks by what points add, and the least among their neighbours, of those who stay when so many have yet to leave
Measure = Callable[[Array, Array], tuple[Array, Array]]


def _restore_row_order(order: Array, measure: Measure) -> Measure:
    """Return a measure of points that are in some order in the order of rows."""
    place = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=jnp.int32), unique_indices=True)

    def measure_rows(stays: Array, n_to_drop: Array) -> tuple[Array, Array]:
        rank, least = measure(stays[order], n_to_drop)
        return rank[place], least[place]

    return measure_rows


def _measure_two_objectives(points: Array, corner: Array) -> Measure:
    """Measure contributions of two objectives: neighbours are those before and after in the order of the first."""
    order = argsort_rows(points[:, 0], points[:, 1])
    ordered, n = points[order], points.shape[0]

    def measure(stays: Array, _: Array) -> tuple[Array, Array]:
        added, before, after = _areas_between_neighbours(ordered, stays, corner)
        rank = _rank_by_contribution(added, stays)
        beside = [jnp.where((at >= 0) & (at < n), rank.at[at].get(mode="clip"), n) for at in (before, after)]
        return rank, jnp.minimum(*beside)

    return _restore_row_order(order, measure)


def _areas_between_neighbours(ordered: Array, stays: Array, corner: Array) -> tuple[Array, Array, Array]:
    """Return the areas that points (n, 2) in order add, and the row before and after of those who stay, -1 and n where
    there is none.
    """
    n = ordered.shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    none = jnp.full(1, -1, jnp.int32), jnp.full(1, n, jnp.int32)
    before = jnp.concatenate([none[0], lax.cummax(jnp.where(stays, rows, -1))[:-1]])
    after = jnp.concatenate([lax.cummin(jnp.where(stays, rows, n), reverse=True)[1:], none[1]])
    above = jnp.where(before < 0, corner, ordered[:, 1].at[before].get(mode="clip"))
    right = jnp.where(after >= n, corner, ordered[:, 0].at[after].get(mode="clip"))
    return jnp.where(stays, (right - ordered[:, 0]) * (above - ordered[:, 1]), 0), before, after


class _CellGrid(NamedTuple):
    """Cells between the values of f1 and f2 of n points. Points go by their place in the order of f2."""

    place: Array  # (n,) of the point at which each interval of f1 begins
    widths: Array  # (n,) of the intervals of f1
    heights: Array  # (n,) of the intervals of f2
    corner: Array


class _Lowest(NamedTuple):
    """Of the points that reach over each cell, those of the least and second least f3: n for none, at the corner."""

    first: Array
    second: Array
    low: Array
    high: Array


def _grid(points: Array, corner: Array) -> tuple[_CellGrid, Array]:
    order = argsort_rows(points[:, 1])
    x, y = points[order, 0], points[order, 1]
    place = argsort_rows(x)
    widths, heights = (jnp.diff(values, append=corner[None]) for values in (x[place], y))
    return _CellGrid(place, widths, heights, corner), order


def _measure_three_objectives(points: Array, corner: Array) -> Measure:
    """Three objectives: neighbours are two between whom nobody lies over some cell of f1 and f2."""
    grid, order = _grid(points, corner)
    z = points[order, 2]

    def one_by_one(stays: Array, _: Array) -> tuple[Array, Array]:
        f3 = jnp.where(stays, z, corner)
        rank = _rank_by_contribution(_volumes(grid, f3), stays)
        return rank, _least_neighbour_rank(grid, f3, rank)

    def at_once(stays: Array, n_to_drop: Array) -> tuple[Array, Array]:
        grid_cells = _cells(grid, jnp.where(stays, z, corner))
        rank = _rank_by_contribution(volumes(grid_cells), stays)
        return rank, least_neighbour_rank(grid_cells, rank, n_to_drop)

    return _restore_row_order(order, one_by_one if devices.on_cpu() else at_once)


def _cells(grid: _CellGrid, f3: Array) -> Cells:
    return build_cells(grid.place, grid.widths, grid.heights, f3, grid.corner)


def _volumes(grid: _CellGrid, f3: Array) -> Array:
    """Return the volumes that points with these f3 (n,) add: over each cell the lowest has what lies below the second
    to itself.
    """

    def visit(total: Array, lowest: _Lowest, width: Array) -> Array:
        return total.at[lowest.first].add(width * grid.heights * (lowest.high - lowest.low), mode="drop")

    return _sweep(grid, f3, visit, jnp.zeros_like(f3))


def _least_neighbour_rank(grid: _CellGrid, f3: Array, rank: Array) -> Array:
    """Return the least rank among the neighbours of each point, (n,) int32; n where there is none."""
    n = f3.shape[0]

    def visit(least: Array, lowest: _Lowest, _: Array) -> Array:
        first, second = (rank.at[rows].get(mode="fill", fill_value=n) for rows in (lowest.first, lowest.second))
        updates = jnp.concatenate([lowest.first, lowest.second]), jnp.concatenate([second, first])
        return least.at[updates[0]].min(updates[1], mode="drop")

    return _sweep(grid, f3, visit, jnp.full(n, n, jnp.int32))


def _sweep(grid: _CellGrid, f3: Array, visit: Callable[[Tree, _Lowest, Array], Tree], start: Tree) -> Tree:
    """Visit all cells, interval after interval of f1: visit(found, lowest, width)."""
    n = f3.shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    nobody, far = jnp.full(n, n, jnp.int32), jnp.broadcast_to(grid.corner, n)

    def one(k: Array, state: tuple[_Lowest, Tree]) -> tuple[_Lowest, Tree]:
        lowest, result = state
        place = grid.place[k]
        value = jnp.where(rows >= place, f3[place], grid.corner)
        lowest = _insert_lowest(lowest, place, value)
        return lowest, visit(result, lowest, grid.widths[k])

    return lax.fori_loop(0, n, one, (_Lowest(nobody, nobody, far, far), start))[1]


def _insert_lowest(a: _Lowest, place: Array, value: Array) -> _Lowest:
    """Return the two lowest of those and of a point with these values (n,) of f3; of equals those who were there."""
    lower, between = value < a.low, value < a.high
    return _Lowest(
        first=jnp.where(lower, place, a.first),
        second=jnp.where(lower, a.first, jnp.where(between, place, a.second)),
        low=jnp.minimum(a.low, value),
        high=jnp.minimum(a.high, jnp.maximum(a.low, value)),
    )
