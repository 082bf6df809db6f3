"""How much hypervolume each point of a front adds to that of the others, and which to leave out one after another.

For two and three objectives, exactly. Points lie in [0, 1], and volumes reach to `corner` > 1 in every objective.
Memory stays O(n). As elsewhere `devices.on_cpu()` chooses the form: rows of a grid one after another, or many at once
(`cells.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.numerics import devices, random
from galapax.numerics.jaxpr import Tree, materialise
from galapax.operators import cells
from galapax.operators.pairwise import argsort_rows

MAX_EXACT_OBJECTIVES = 3  # objectives


def select_by_hypervolume(objectives: Array, rank: Array, count: int, corner: ArrayLike) -> Array:
    """The `count` rows of the first fronts, of the last one those who add most hypervolume, (count,) int32.

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
    """The objectives (n, m) in units of their range among the rows that count (n,), which end in [0, 1]; the
    others, and objectives without a range, become 0.
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
    """What each member of the front (n,) adds to the hypervolume of the others, (n,); 0 for those outside it."""
    corner = jnp.asarray(corner, points.dtype)
    if points.shape[1] == 2:
        order = argsort_rows(points[:, 0], points[:, 1])
        added = _areas_between_neighbours(points[order], front[order], corner)[0]
    else:
        grid, order = _grid(points, corner)
        f3 = jnp.where(front[order], points[order, 2], corner)
        added = _volumes(grid, f3) if devices.on_cpu() else cells.volumes(_cells(grid, f3))
    return jnp.zeros_like(added).at[order].set(added, unique_indices=True)


def _rank_by_contribution(added: Array, stays: Array) -> Array:
    """The place of each of those who stay by what they add, (n,) int32; the others come last.

    Equals come in no order: in that of their rows only one of many equal points beside each other would leave a round.
    """
    rows = jnp.arange(added.shape[0], dtype=jnp.int32)
    order = argsort_rows(jnp.where(stays, added, jnp.inf), random.mix_word(rows.astype(jnp.uint32)))
    return jnp.zeros_like(order).at[order].set(rows, unique_indices=True)


# ranks by what points add, and the least among their neighbours, of those who stay when so many have yet to leave
Measure = Callable[[Array, Array], tuple[Array, Array]]


def _restore_row_order(order: Array, measure: Measure) -> Measure:
    """A measure of points in some order, as one of rows."""
    place = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=jnp.int32), unique_indices=True)

    def measure_rows(stays: Array, n_to_drop: Array) -> tuple[Array, Array]:
        rank, least = measure(stays[order], n_to_drop)
        return rank[place], least[place]

    return measure_rows


def _measure_two_objectives(points: Array, corner: Array) -> Measure:
    """Two objectives: neighbours are those before and after in the order of the first."""
    order = argsort_rows(points[:, 0], points[:, 1])
    ordered, n = points[order], points.shape[0]

    def measure(stays: Array, _: Array) -> tuple[Array, Array]:
        added, before, after = _areas_between_neighbours(ordered, stays, corner)
        rank = _rank_by_contribution(added, stays)
        beside = [jnp.where((at >= 0) & (at < n), rank.at[at].get(mode="clip"), n) for at in (before, after)]
        return rank, jnp.minimum(*beside)

    return _restore_row_order(order, measure)


def _areas_between_neighbours(ordered: Array, stays: Array, corner: Array) -> tuple[Array, Array, Array]:
    """What points (n, 2) in order add, and the row before and after of those who stay, -1 and n where there is none."""
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
        rank = _rank_by_contribution(cells.volumes(grid_cells), stays)
        return rank, cells.least_neighbour_rank(grid_cells, rank, n_to_drop)

    return _restore_row_order(order, one_by_one if devices.on_cpu() else at_once)


def _cells(grid: _CellGrid, f3: Array) -> cells.Cells:
    return cells.build_cells(grid.place, grid.widths, grid.heights, f3, grid.corner)


def _volumes(grid: _CellGrid, f3: Array) -> Array:
    """What points with these f3 (n,) add: over each cell the lowest has what lies below the second to itself."""

    def visit(total: Array, lowest: _Lowest, width: Array) -> Array:
        return total.at[lowest.first].add(width * grid.heights * (lowest.high - lowest.low), mode="drop")

    return _sweep(grid, f3, visit, jnp.zeros_like(f3))


def _least_neighbour_rank(grid: _CellGrid, f3: Array, rank: Array) -> Array:
    """The least rank among the neighbours of each point, (n,) int32; n where there is none."""
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
    """The two lowest of those and of a point with these values (n,) of f3; of equals those who were there."""
    lower, between = value < a.low, value < a.high
    return _Lowest(
        first=jnp.where(lower, place, a.first),
        second=jnp.where(lower, a.first, jnp.where(between, place, a.second)),
        low=jnp.minimum(a.low, value),
        high=jnp.minimum(a.high, jnp.maximum(a.low, value)),
    )
