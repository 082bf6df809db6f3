"""Who dominates whom: counts, fronts, crowding and niches of n points with m objectives, all minimised.

Throughout, objectives are (n, m), violation is (n,) or None for a problem without constraints, and domination is that
of Deb, Pratap, Agarwal & Meyarivan (2002), IEEE Trans. Evol. Comput. 6(2):182-197, doi:10.1109/4235.996017: less
violation beats more, so that feasible points beat the rest, and at equal violation one point must be no worse in
every objective and better in one. Equal points do not dominate each other. A point with NaN or an infinity failed:
everything that did not fail dominates it.

All is array code with fixed shapes, for `jit` and `vmap`, and memory stays O(n). Two forms of the same work are needed,
and `devices.on_cpu()` chooses: a CPU runs loops over the points, each a short vector operation or a binary search;
on a GPU every step of a loop is a kernel, so there comparisons of all pairs are fused into reductions.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from galapax.numerics import devices, random
from galapax.operators.ranking import (
    columns_of,
    counts_of,
    dominates_columns,
    finite_or_zero,
    ranks_by_chains,
    ranks_by_peeling,
    ranks_by_pushing,
    ranks_by_sweep,
    sound_values,
)
from galapax.operators.reductions import COUNTED, MAX, MIN, SUM, Columns, over_others, rows_by, split
from galapax.operators.selection import feasible

PEELED_FROM = 4096  # points with two objectives that a GPU ranks front after front; of fewer it compares all pairs
DRAWS = 128  # comparisons with random points that one reduction makes


def dominance_counts(objectives: Array, violation: Array | None = None) -> Array:
    """How many of the points dominate each one, (n,) int32."""
    columns, m = columns_of(objectives, violation)
    return counts_of(columns, m)


def first_front(objectives: Array, violation: Array | None = None) -> Array:
    """Which points are feasible, did not fail, and are dominated by none, (n,) bool."""
    sound = feasible(objectives, violation)
    if objectives.shape[1] <= 2 and devices.on_cpu():
        return sound & (ranks(objectives, violation) == 0)
    return sound & (dominance_counts(objectives, violation) == 0)


def ranks(objectives: Array, violation: Array | None = None, enough: int | None = None) -> Array:
    """The front of each point, (n,) int32: 0 for those none dominates, then 0 for the rest without them plus 1, ...

    It is the length of the longest chain of points that ends in this one, each dominating the next. Infeasible points
    come in fronts after all feasible ones, in order of their violation, failed ones last. enough: that many points
    need their rank; others may get any that comes after those.
    """
    if not devices.on_cpu():
        if objectives.shape[1] == 2 and violation is None and objectives.shape[0] >= PEELED_FROM:
            return ranks_by_peeling(objectives, enough)
        return ranks_by_chains(objectives, violation)
    if objectives.shape[1] <= 2:
        return ranks_by_sweep(objectives, violation)[0]
    return ranks_by_pushing(objectives, violation)


def ranks_and_crowding(
    objectives: Array, violation: Array | None = None, enough: int | None = None
) -> tuple[Array, Array]:
    """`ranks`, and `crowding_distance` in those fronts; for two objectives on a CPU in one go. enough: see `ranks`."""
    if objectives.shape[1] <= 2 and devices.on_cpu():
        return ranks_by_sweep(objectives, violation)
    rank = ranks(objectives, violation, enough)
    return rank, crowding_distance(objectives, rank)


def dominates(objectives: Array, violation: Array | None, others: Array, their_violation: Array | None) -> Array:
    """Row by row, whether a point dominates its like among the others, (n,) bool."""
    a, m = columns_of(objectives, violation)
    return dominates_columns(a, columns_of(others, their_violation)[0], m)


def crowding_distance(objectives: Array, rank: Array) -> Array:
    """The crowding distance of each point among those of the same rank, (n,), +inf at the ends of a front.

    Deb et al. (2002), section III.B: the sum over the objectives of the distance between the two neighbours, in units
    of the front's range. Among equal values neighbours go by row, rising in the first objective and falling in the
    others, so that of equal points at the end of a front with two objectives one is an end and not two. An objective
    in which a front has no range adds nothing; failed points get 0 but for their ends.
    """
    if devices.on_cpu() or objectives.shape[0] > COUNTED:
        return crowding_by_sorting(objectives, rank)
    return crowding_by_pairs(objectives, rank)


def dominated_by_drawn(key: Array, objectives: Array, violation: Array | None, rows: Array, drawn: int) -> Array:
    """For each of these rows (k, q), whether one of `drawn` random points dominates it, (k, q) bool.

    The k rows of a column share the random points they are compared with.
    """
    columns, m = columns_of(objectives, violation)
    n, q = columns[0].shape[0], rows.shape[1]
    mine = tuple(c.at[rows].get(mode="promise_in_bounds") for c in columns)

    def beaten(index: Array) -> Array:  # by the points `index`, (..., q) -> (..., k, q)
        theirs = tuple(c.at[index].get(mode="promise_in_bounds")[..., None, :] for c in columns)
        return dominates_columns(theirs, mine, m)

    size = 1 if devices.on_cpu() else min(drawn, DRAWS)

    def add(i: Any, found: Array) -> Array:
        index = random.integers(random.fold_in(key, i), (size, q), n)
        return found | jnp.any(beaten(index) & (i * size + jnp.arange(size) < drawn)[:, None, None], axis=0)

    found = jnp.zeros(rows.shape, bool)
    return add(0, found) if size == drawn else lax.fori_loop(0, -(-drawn // size), add, found)


def scaled(points: Array, counted: Array) -> Array:
    """Each column of points (n, m) in units of its range among the rows that are counted (n,); rows that are not finite
    become 0."""
    inside = counted[:, None]
    low = jnp.min(jnp.where(inside, points, jnp.inf), axis=0)
    span = jnp.max(jnp.where(inside, points, -jnp.inf), axis=0) - low
    usable = (span > 0) & jnp.isfinite(span)
    shifted = points - jnp.where(usable, low, 0)
    return finite_or_zero(shifted / jnp.where(usable, span, 1))


def mean_distance(points: Array, counted: Array | None = None) -> Array:
    """The mean Euclidean distance between two different rows of points (n, m), a scalar; 0 for a single row.

    counted: (n,) bool, which rows take part; the others may hold anything.
    """
    n = points.shape[0]
    weight = jnp.ones(n, points.dtype) if counted is None else counted.astype(points.dtype)
    safe = jnp.where(weight[:, None] > 0, points, 0)

    def term(row: Columns, other: Columns) -> Columns:
        return (_distance(row, other[:-1]) * other[-1],)

    (sums,) = over_others(term, (SUM,), split(safe), (*split(safe), weight))
    size = jnp.sum(weight)
    return jnp.sum(sums * weight) / jnp.maximum(size * (size - 1), 1)


def niche_counts(points: Array, radius: Any, others: Array | None = None, counted: Array | None = None) -> Array:
    """How crowded it is around each row of points (n, m): the sum of sh(d) over the rows of `others` (q, m), (n,).

    sh(d) = 1 - d / radius for Euclidean distances d < radius, and 0 beyond (Goldberg & Richardson 1987). Without
    `others` the points themselves are meant, and each counts itself as 1, with a radius of 0 too.
    counted: (q,) bool, which of the others take part; the rest may hold anything.
    """
    others = points if others is None else others
    weight = jnp.ones(others.shape[0], points.dtype) if counted is None else counted.astype(points.dtype)
    safe = jnp.where(weight[:, None] > 0, others, 0)
    # a radius of 0 leaves the equal points: each of them has d = 0 and shares fully
    scale = 1 / jnp.maximum(jnp.asarray(radius, points.dtype), jnp.finfo(points.dtype).tiny)

    def term(row: Columns, other: Columns) -> Columns:
        d = _distance(row, other[:-1])
        return (jnp.where(d > 0, jnp.maximum(1 - d * scale, 0), 1) * other[-1],)

    return over_others(term, (SUM,), split(points), (*split(safe), weight))[0]


def _distance(row: Columns, other: Columns) -> Array:
    return jnp.sqrt(sum(((p - q) ** 2 for p, q in zip(row, other, strict=True)), start=jnp.zeros((), row[0].dtype)))


def crowding_by_sorting(objectives: Array, rank: Array) -> Array:
    """`crowding_distance` by sorting once for each objective."""
    n = objectives.shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    total = jnp.zeros(n, objectives.dtype)
    for k, values in enumerate(split(sound_values(objectives))):
        tie = rows if k == 0 else -rows
        by_front, sorted_values, signed = lax.sort((rank, values, tie), num_keys=3)
        order = signed if k == 0 else -signed
        starts = jnp.concatenate([jnp.ones(1, bool), by_front[1:] != by_front[:-1]])
        ends = jnp.concatenate([starts[1:], jnp.ones(1, bool)])
        low = sorted_values[lax.cummax(jnp.where(starts, rows, 0))]
        high = sorted_values[lax.cummin(jnp.where(ends, rows, n - 1), reverse=True)]
        gap = jnp.roll(sorted_values, -1) - jnp.roll(sorted_values, 1)
        span = high - low
        share = jnp.where(span > 0, gap / jnp.where(span > 0, span, 1), 0)
        total += jnp.zeros_like(total).at[order].set(jnp.where(starts | ends, jnp.inf, share))
    return total


def crowding_by_pairs(objectives: Array, rank: Array) -> Array:
    """`crowding_distance` by comparing all pairs, without sorting."""
    n, m = objectives.shape
    rows = jnp.arange(n, dtype=jnp.int32)
    columns = (*split(sound_values(objectives)), jnp.asarray(rank), rows)

    def term(row: Columns, other: Columns) -> Columns:
        same = row[-2] == other[-2]
        out: list[Array] = []
        for k in range(m):
            mine, theirs = row[k], other[k]
            earlier = other[-1] < row[-1] if k == 0 else other[-1] > row[-1]
            before = same & ((theirs < mine) | ((theirs == mine) & earlier))
            after = same & ((theirs > mine) | ((theirs == mine) & ~earlier & (other[-1] != row[-1])))
            for wanted in (before, same):
                out.append(jnp.where(wanted, theirs, -jnp.inf))
            for wanted in (after, same):
                out.append(jnp.where(wanted, theirs, jnp.inf))
        return tuple(out)

    found = over_others(term, (MAX, MAX, MIN, MIN) * m, columns, columns)
    total = jnp.zeros(n, objectives.dtype)
    for k in range(m):
        left, high, right, low = found[4 * k : 4 * k + 4]
        span = high - low
        share = jnp.where(span > 0, (right - left) / jnp.where(span > 0, span, 1), 0)
        total += jnp.where(jnp.isfinite(left) & jnp.isfinite(right), share, jnp.inf)
    return total


def best_rows(rank: Array, spread: Array, count: int) -> Array:
    """The `count` best rows by lower rank, then greater spread, then lower row, (count,) int32.

    rank: (n,) int32. spread: (n,), at least 0, may be +inf; compared in float32.
    """
    n = rank.shape[0]
    if devices.on_cpu() or n > COUNTED:
        margin = jnp.sort(rank)[count - 1]  # the last rank of which some are taken; one sort of plain numbers is cheap
    else:
        (reached,) = over_others(lambda row, other: ((other[0] <= row[0]).astype(jnp.int32),), (SUM,), (rank,), (rank,))
        margin = jnp.min(jnp.where(reached >= count, rank, n))
    inside = jnp.clip(spread.astype(jnp.float32), 0, jnp.finfo(jnp.float32).max)
    keys = jnp.where(rank < margin, jnp.inf, jnp.where(rank == margin, inside, -1))
    if devices.on_cpu() or n > COUNTED:
        return lax.top_k(keys, count)[1]
    return rows_by(-keys)[:count]
