"""Non-dominated sorting, domination counts, crowding and niche counts of n points with m objectives, all minimised.

Throughout, objectives are (n, m), violation is (n,) or None for a problem without constraints, and domination is that
of Deb, Pratap, Agarwal & Meyarivan (2002), IEEE Trans. Evol. Comput. 6(2):182-197, doi:10.1109/4235.996017: less
violation beats more, so that feasible points beat the rest, and at equal violation one point must be no worse in
every objective and better in one. Equal points do not dominate each other. A point with NaN or an infinity failed:
everything that did not fail dominates it.

All is array code with fixed shapes, for `jit` and `vmap`, and memory stays O(n). Two forms of the same work are needed,
and `devices.on_cpu()` chooses: a CPU runs loops over the points, each a short vector operation or a binary search;
on a GPU every step of a loop is a kernel, so there comparisons of all pairs are fused into reductions. Ranks are
computed in four ways, of which `ranks` chooses one. Inside, points are columns: m objectives, then the violation where
there is one, +inf for failed points.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.numerics import devices, random
from galapax.operators.pairwise import (
    MAX,
    MAX_PAIRWISE_SORTED,
    MIN,
    SUM,
    Columns,
    argsort_rows,
    reduce_over_others,
    split_columns,
)

MIN_PEELED_POINTS = (
    4096  # points with two objectives that XLA ranks front after front on a GPU; of fewer it compares all pairs
)
MAX_SAMPLED_COMPARISONS = 128  # comparisons with random points that one reduction makes


def is_feasible(objectives: Array, violation: Array | None) -> Array:
    """Return which rows did not fail and violate nothing, (n,) bool."""
    sound = jnp.all(jnp.isfinite(objectives), axis=1)
    return sound if violation is None else sound & (violation <= 0)


def dominance_counts(objectives: Array, violation: Array | None = None) -> Array:
    """Count how many of the points dominate each one, (n,) int32."""
    columns, m = to_columns(objectives, violation)
    return count_dominators(columns, m)


def first_front(objectives: Array, violation: Array | None = None) -> Array:
    """Return which points are feasible, did not fail, and are dominated by none, (n,) bool."""
    sound = is_feasible(objectives, violation)
    if objectives.shape[1] <= 2 and devices.on_cpu():
        return sound & (ranks(objectives, violation) == 0)
    return sound & (dominance_counts(objectives, violation) == 0)


def ranks(objectives: Array, violation: Array | None = None, enough: int | None = None) -> Array:
    """Return the front of each point, (n,) int32: 0 for those none dominates, then 0 for the rest without them plus 1,
    ...

    It is the length of the longest chain of points that ends in this one, each dominating the next. Infeasible points
    come in fronts after all feasible ones, in order of their violation, failed ones last. enough: that many points
    need their rank; others may get any that comes after those.
    """
    if not devices.on_cpu():
        is_long = devices.tracing_for_fused() or objectives.shape[0] >= MIN_PEELED_POINTS
        if objectives.shape[1] == 2 and violation is None and is_long:
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
    a, m = to_columns(objectives, violation)
    return dominates_columns(a, to_columns(others, their_violation)[0], m)


def crowding_distance(objectives: Array, rank: Array) -> Array:
    """Return the crowding distance of each point among those of the same rank, (n,), +inf at the ends of a front.

    Deb et al. (2002), section III.B: the sum over the objectives of the distance between the two neighbours, in units
    of the front's range. Among equal values neighbours go by row, rising in the first objective and falling in the
    others, so that of equal points at the end of a front with two objectives one is an end and not two. An objective
    in which a front has no range adds nothing; failed points get 0 but for their ends.
    """
    if devices.on_cpu() or objectives.shape[0] > MAX_PAIRWISE_SORTED:
        return crowding_by_sorting(objectives, rank)
    return crowding_by_pairs(objectives, rank)


def dominated_by_sample(key: Array, objectives: Array, violation: Array | None, rows: Array, sample_size: int) -> Array:
    """For each of these rows (k, q), whether one of `sample_size` random points dominates it, (k, q) bool.

    The k rows of a column share the random points they are compared with.
    """
    columns, m = to_columns(objectives, violation)
    n, q = columns[0].shape[0], rows.shape[1]
    mine = tuple(c.at[rows].get(mode="promise_in_bounds") for c in columns)

    def beaten(index: Array) -> Array:  # by the points `index`, (..., q) -> (..., k, q)
        theirs = tuple(c.at[index].get(mode="promise_in_bounds")[..., None, :] for c in columns)
        return dominates_columns(theirs, mine, m)

    size = 1 if devices.on_cpu() else min(sample_size, MAX_SAMPLED_COMPARISONS)

    def add(i: Array | int, dominated: Array) -> Array:
        index = random.integers(random.fold_in(key, i), (size, q), n)
        return dominated | jnp.any(beaten(index) & (i * size + jnp.arange(size) < sample_size)[:, None, None], axis=0)

    dominated = jnp.zeros(rows.shape, bool)
    return add(0, dominated) if size == sample_size else lax.fori_loop(0, -(-sample_size // size), add, dominated)


def scale_to_range(points: Array, counted: Array) -> Array:
    """Scale each column of points (n, m) by its range among the rows that are counted (n,); rows that are not finite
    become 0.
    """
    inside = counted[:, None]
    low = jnp.min(jnp.where(inside, points, jnp.inf), axis=0)
    span = jnp.max(jnp.where(inside, points, -jnp.inf), axis=0) - low
    usable = (span > 0) & jnp.isfinite(span)
    shifted = points - jnp.where(usable, low, 0)
    return finite_or_zero(shifted / jnp.where(usable, span, 1))


def mean_distance(points: Array, counted: Array | None = None) -> Array:
    """Return the mean Euclidean distance between two different rows of points (n, m), a scalar; 0 for a single row.

    counted: (n,) bool, which rows take part; the others may hold anything.
    """
    n = points.shape[0]
    weight = jnp.ones(n, points.dtype) if counted is None else counted.astype(points.dtype)
    safe = jnp.where(weight[:, None] > 0, points, 0)

    def term(row: Columns, other: Columns) -> Columns:
        return (_distance(row, other[:-1]) * other[-1],)

    (sums,) = reduce_over_others(term, (SUM,), split_columns(safe), (*split_columns(safe), weight))
    size = jnp.sum(weight)
    return jnp.sum(sums * weight) / jnp.maximum(size * (size - 1), 1)


def niche_counts(points: Array, radius: ArrayLike, others: Array | None = None, counted: Array | None = None) -> Array:
    """Measure the crowding around each row of points (n, m): the sum of sh(d) over the rows of `others` (q, m), (n,).

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

    return reduce_over_others(term, (SUM,), split_columns(points), (*split_columns(safe), weight))[0]


def _distance(row: Columns, other: Columns) -> Array:
    return jnp.sqrt(sum(((p - q) ** 2 for p, q in zip(row, other, strict=True)), start=jnp.zeros((), row[0].dtype)))


def crowding_by_sorting(objectives: Array, rank: Array) -> Array:
    """`crowding_distance` by sorting once for each objective."""
    n = objectives.shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    total = jnp.zeros(n, objectives.dtype)
    for k, values in enumerate(split_columns(zero_failed(objectives))):
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
    columns = (*split_columns(zero_failed(objectives)), jnp.asarray(rank), rows)

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

    reduced = reduce_over_others(term, (MAX, MAX, MIN, MIN) * m, columns, columns)
    total = jnp.zeros(n, objectives.dtype)
    for k in range(m):
        left, high, right, low = reduced[4 * k : 4 * k + 4]
        span = high - low
        share = jnp.where(span > 0, (right - left) / jnp.where(span > 0, span, 1), 0)
        total += jnp.where(jnp.isfinite(left) & jnp.isfinite(right), share, jnp.inf)
    return total


def select_best_rows(rank: Array, spread: Array, count: int) -> Array:
    """Select the `count` best rows by lower rank, then greater spread, then lower row, (count,) int32.

    rank: (n,) int32. spread: (n,), at least 0, may be +inf; compared in float32.
    """
    n = rank.shape[0]
    if devices.on_cpu() or n > MAX_PAIRWISE_SORTED:
        margin = jnp.sort(rank)[count - 1]  # the last rank of which some are taken; one sort of plain numbers is cheap
    else:
        (reached,) = reduce_over_others(
            lambda row, other: ((other[0] <= row[0]).astype(jnp.int32),), (SUM,), (rank,), (rank,)
        )
        margin = jnp.min(jnp.where(reached >= count, rank, n))
    inside = jnp.clip(spread.astype(jnp.float32), 0, jnp.finfo(jnp.float32).max)
    keys = jnp.where(rank < margin, jnp.inf, jnp.where(rank == margin, inside, -1))
    if devices.on_cpu() or n > MAX_PAIRWISE_SORTED:
        return lax.top_k(keys, count)[1]
    return argsort_rows(-keys)[:count]


MAX_SQUARED_BLOCK = 32  # blocks of so many points are chained by squares on a GPU, larger ones from halves
NO_CHAIN = -(2**29)
MIN_SPLIT_POINTS, SPLIT_PIECES = 512, 6  # from so many points on they are ranked in so many pieces on a CPU
FRONTS_PER_CHECK = 4  # fronts after which a GPU asks whether there are enough, which takes longer than one of them
MAX_UNROLLED_BLOCKS = 8  # up to so many blocks are settled one after another without a loop


def finite_or_zero(values: Array) -> Array:
    return jnp.where(jnp.isfinite(values), values, 0)


def zero_failed(objectives: Array) -> Array:
    """With 0 in place of the rows that failed."""
    return jnp.where(jnp.all(jnp.isfinite(objectives), axis=1, keepdims=True), objectives, 0)


def to_columns(objectives: Array, violation: Array | None) -> tuple[Columns, int]:
    """Objectives and violation as columns, +inf for failed points, and the number of objectives."""
    failed = ~jnp.all(jnp.isfinite(objectives), axis=1)
    if violation is not None:
        failed |= ~jnp.isfinite(violation)
    columns = split_columns(jnp.where(failed[:, None], jnp.inf, objectives))
    if violation is not None:
        columns = (*columns, jnp.where(failed, jnp.inf, jnp.maximum(violation, 0)))
    return columns, objectives.shape[1]


def dominates_columns(a: Columns, b: Columns, m: int) -> Array:
    """Return whether `a` dominates `b`, both as columns with m objectives, after broadcasting."""
    no_worse, no_better = a[0] <= b[0], a[0] >= b[0]
    for p, q in zip(a[1:m], b[1:m], strict=True):
        no_worse &= p <= q
        no_better &= p >= q
    pareto = no_worse & ~no_better
    if len(a) == m:
        return pareto
    return (a[m] < b[m]) | ((a[m] == b[m]) & pareto)


def count_dominators(columns: Columns, m: int) -> Array:
    def term(row: Columns, other: Columns) -> Columns:
        return (dominates_columns(other, row, m).astype(jnp.int32),)

    return reduce_over_others(term, (SUM,), columns, columns)[0]


def ranks_by_sweep(objectives: Array, violation: Array | None = None) -> tuple[Array, Array]:
    """Ranks and crowding distances of at most two objectives, in O(n log n): sort, then place one point after another.

    Points come in order of (violation, f1, f2). A front's last point has the least f2 in it, so a point lies behind a
    front if that f2 is no greater than its own, and the fronts behind which it lies are the first ones: a binary search
    finds the next. The front's last point becomes its left neighbour, which spares sorting again for the crowding.
    Of a batch of runs each is swept by itself, since a step for all of them at once would not write in place.
    """
    columns, m = to_columns(objectives, violation)
    return jax.custom_batching.sequential_vmap(partial(_sweep, m))(*columns)


def _sweep(m: int, *columns: Array) -> tuple[Array, Array]:
    n = columns[0].shape[0]
    constrained = len(columns) > m
    columns = (columns[0], columns[m - 1], *columns[m:])  # one objective is taken twice
    rows = jnp.arange(n, dtype=jnp.int32)
    *keys, order = lax.sort((*columns[2:], *columns[:2], rows), num_keys=len(columns), is_stable=True)
    f1, f2 = keys[-2:]
    differs = jnp.stack([k[1:] != k[:-1] for k in keys]).any(axis=0)
    fresh = jnp.concatenate([jnp.ones(1, bool), differs])  # not equal to the point before it
    group = jnp.zeros(n, bool)  # the first of those with its violation
    if constrained:
        group = jnp.concatenate([jnp.zeros(1, bool), keys[0][1:] != keys[0][:-1]])
    halves = [2**bit for bit in reversed(range(n.bit_length()))]

    def place(i: Array, carry: _SweepState) -> _SweepState:
        # all that went before a new group of violation dominates it: its fronts come after those there are
        base = jnp.where(group[i], carry.fronts, carry.base)
        front_index = base
        for half in halves:
            next_index = front_index + half
            behind = carry.least[jnp.minimum(next_index, n) - 1] <= f2[i]
            front_index = jnp.where((next_index <= carry.fronts) & behind, next_index, front_index)
        front = jnp.where(fresh[i], front_index, carry.front)
        return _SweepState(
            least=carry.least.at[front].set(f2[i]),
            links=carry.links.at[i].set(carry.links[n + front]).at[n + front].set(i),
            ranks=carry.ranks.at[i].set(front),
            front=front,
            base=base,
            fronts=jnp.maximum(carry.fronts, front + 1),
        )

    zeros, zero, nobody = jnp.zeros(n, jnp.int32), jnp.zeros((), jnp.int32), jnp.full(2 * n, -1, jnp.int32)
    end = lax.fori_loop(0, n, place, _SweepState(jnp.zeros(n, f2.dtype), nobody, zeros, zero, zero, zero))
    left, last = end.links[:n], end.links[n:][end.ranks]
    right = nobody[:n].at[jnp.where(left >= 0, left, n)].set(rows, mode="drop")
    first = zeros.at[jnp.where(left >= 0, n, end.ranks)].set(rows, mode="drop")[end.ranks]
    crowding = jnp.zeros(n, f1.dtype)
    for values in (f1, f2)[:m]:
        finite = finite_or_zero(values)
        span = jnp.abs(finite[last] - finite[first])
        gap = jnp.abs(finite[right] - finite[left])
        crowding += jnp.where(span > 0, gap / jnp.where(span > 0, span, 1), 0)
    crowding = jnp.where((left < 0) | (right < 0), jnp.inf, crowding)
    return zeros.at[order].set(end.ranks), jnp.zeros_like(crowding).at[order].set(crowding)


class _SweepState(NamedTuple):
    least: Array  # (n,) by front: f2 of its last point
    links: Array  # (2n,) the left neighbour of each point, then the last point of each front, -1 for none; as one array
    # XLA writes it in place, as two it would copy them for every point
    ranks: Array  # (n,) by point
    front: Array  # of the point before
    base: Array  # the first front of this group of violation
    fronts: Array  # how many there are


def ranks_by_pushing(objectives: Array, violation: Array | None = None) -> Array:
    """Ranks for any number of objectives, in n steps of O(n m): each point in turn pushes those it dominates back.

    Points come in lexicographic order, in which nobody is dominated by a later one, so a point's rank is settled when
    its turn comes, and it is compared with later ones alone: in pieces, of which each leaves out those before it. The
    first objective needs no comparing then, and that two points are equal shows by the number of their group.
    """
    columns, m = to_columns(objectives, violation)
    n = columns[0].shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    *keys, order = lax.sort((*columns[m:], *columns[:m], rows), num_keys=len(columns), is_stable=True)
    differs = jnp.stack([k[1:] != k[:-1] for k in keys]).any(axis=0)
    group = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(differs, dtype=jnp.int32)])
    lacks, compared = keys[: len(keys) - m], keys[len(keys) - m + 1 :]

    def push(start: int, j: Array | int, ranks: Array) -> Array:  # ranks: of the points from `start` on
        behind = group[start:] > group[j]
        for values in compared:
            behind &= values[j] <= values[start:]
        for values in lacks:
            behind |= values[j] < values[start:]
        return jnp.maximum(ranks, jnp.where(behind, ranks[j - start] + 1, 0))

    pieces = 1 if n < MIN_SPLIT_POINTS else SPLIT_PIECES
    cuts = [n * k // pieces for k in range(pieces + 1)]
    ranks, final = jnp.zeros(n, jnp.int32), []
    for start, end in pairwise(cuts):
        ranks = lax.fori_loop(start, end, partial(push, start), ranks)
        final.append(ranks[: end - start])
        ranks = ranks[end - start :]
    return jnp.zeros(n, jnp.int32).at[order].set(jnp.concatenate(final))


def ranks_by_chains(objectives: Array, violation: Array | None = None, block: int | None = None) -> Array:
    """Ranks for any number of objectives, in few steps that each compare many pairs, as a GPU likes it.

    Points come in order of how many dominate them, in which nobody is dominated by a later one, in blocks of `block`
    points, a power of two. First the longest chains inside each block are found, for all blocks at once, by joining
    halves log2(block) times. Then block after block: how far earlier blocks push each point back, plus the longest
    chain inside the block that leads on from there. That is O(n^2 m) comparisons in n / block steps, however many
    fronts.
    """
    columns, m = to_columns(objectives, violation)
    n = columns[0].shape[0]
    block = block or min(512 if n > 2**14 else 256, 2 ** max(n - 1, 1).bit_length())
    order = argsort_rows(count_dominators(columns, m))
    padded = -(-n // block) * block
    ordered = tuple(jnp.pad(c[order], (0, padded - n), constant_values=jnp.inf) for c in columns)
    chains = _chains(ordered, m, block)

    def ranks_of(block_points: Columns, inside: Array, before: Columns, ranks: Array) -> Array:
        """Of the points of a block, with the chains inside it, after others whose ranks are known."""

        def term(row: Columns, other: Columns) -> Columns:  # those not yet settled, at -1, push nobody
            return (jnp.where(dominates_columns(other[:-1], row, m), other[-1] + 1, 0),)

        (pushed,) = reduce_over_others(term, (MAX,), block_points, (*before, ranks))
        return jnp.max(inside + pushed[None, :], axis=1)

    def settle(b: Array, ranks: Array) -> Array:
        block_points = tuple(lax.dynamic_slice_in_dim(c, b * block, block) for c in ordered)
        inside = lax.dynamic_index_in_dim(chains, b, keepdims=False)
        return lax.dynamic_update_slice_in_dim(ranks, ranks_of(block_points, inside, ordered, ranks), b * block, axis=0)

    blocks = padded // block
    if blocks > MAX_UNROLLED_BLOCKS:
        final = lax.fori_loop(0, blocks, settle, jnp.full(padded, -1, jnp.int32))
    else:
        final = jnp.max(chains[0], axis=1)
        for b in range(1, blocks):
            here, before = (tuple(c[i:j] for c in ordered) for i, j in ((b * block, (b + 1) * block), (0, b * block)))
            final = jnp.concatenate([final, ranks_of(here, chains[b], before, final)])
    return jnp.zeros(n, jnp.int32).at[order].set(final[:n])


def ranks_by_peeling(objectives: Array, enough: int | None = None) -> Array:
    """Ranks for two objectives without constraints, front after front, for a GPU; once `enough` points have theirs, all
    others get one rank after them. Of equal points the first stands for all.
    """
    columns, _ = to_columns(objectives, None)
    n = columns[0].shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    f1, f2, order = lax.sort((*columns, rows), num_keys=2, is_stable=True)
    fresh = jnp.concatenate([jnp.ones(1, bool), (f1[1:] != f1[:-1]) | (f2[1:] != f2[:-1])])
    first = lax.cummax(jnp.where(fresh, rows, 0))
    fronts = front_numbers(jnp.where(fresh, f2, jnp.inf), np.int32(n if enough is None else enough))
    return jnp.zeros(n, jnp.int32).at[order].set(fronts[first], unique_indices=True)


@random.as_intrinsic
def front_numbers(values: Array, enough: Array) -> Array:
    """The front of each point in order of the first objective, by its second one, `values` (n,), (n,) int32.

    A point is in the first front if its value is less than that of all before it. That is asked of all at once, in
    blocks, by a minimum over the blocks before and one within the block. values: +inf for points that have no front:
    they get the number after the last one, as have all others once `enough` points have theirs.
    """
    n = values.shape[0]
    block = 2 ** (n.bit_length() // 2)
    blocks = -(-n // block)
    values = jnp.pad(values, (0, blocks * block - n), constant_values=jnp.inf).reshape(blocks, block)

    def least_before(a: Array) -> Array:
        """Return the least of those before each along the last axis."""
        size = a.shape[-1]
        earlier = jnp.arange(size)[None, :] < jnp.arange(size)[:, None]
        return jnp.min(jnp.where(earlier, a[..., None, :], jnp.inf), axis=-1)

    def peel(carry: _PeelState) -> _PeelState:
        unranked = jnp.where(carry.ranks < n, jnp.inf, values)
        before = least_before(jnp.min(unranked, axis=1))
        front = unranked < jnp.minimum(least_before(unranked), before[:, None])
        count = jnp.sum(front, dtype=jnp.int32)
        ranks = jnp.where(front, carry.front, carry.ranks)
        return _PeelState(ranks, carry.front + (count > 0), carry.placed + count, count)

    def peel_some(carry: _PeelState) -> _PeelState:
        for _ in range(FRONTS_PER_CHECK):
            carry = peel(carry)
        return carry

    zero = jnp.zeros((), jnp.int32)
    start = _PeelState(jnp.full(values.shape, n, jnp.int32), zero, zero, zero + 1)
    end = lax.while_loop(lambda carry: (carry.placed < enough) & (carry.last > 0), peel_some, start)
    return jnp.minimum(end.ranks, end.front).reshape(-1)[:n]


class _PeelState(NamedTuple):
    ranks: Array  # (blocks, block), n for those that have none yet
    front: Array  # the next
    placed: Array  # how many have a rank
    last: Array  # how many the last front had


def _chains(ordered: Columns, m: int, block: int) -> Array:
    """In each block the length of the longest chain from j to i, (blocks, i, j) int32: 0 from i to i, NO_CHAIN if none.

    In matrices where the sum is a maximum and the product a sum, each square doubles the length of the chains it knows:
    that gives short blocks, in few kernels. Then with the chains of two halves, those of the whole that cross from one
    to the other are chain, one domination, chain: two products, and far less work than squares.
    """
    size = min(block, MAX_SQUARED_BLOCK)
    points = tuple(c.reshape(-1, size) for c in ordered)
    step = dominates_columns(tuple(c[:, None, :] for c in points), tuple(c[:, :, None] for c in points), m)
    itself = jnp.where(jnp.eye(size, dtype=bool), 0, NO_CHAIN).astype(jnp.int32)
    chains = jnp.where(step, 1, itself)
    for _ in range((size - 1).bit_length()):
        chains = jnp.maximum(chains, _longest(chains, chains))
    while size < block:
        halves = tuple(c.reshape(-1, 2, size) for c in ordered)
        first = tuple(c[:, 0, None, :] for c in halves)
        second = tuple(c[:, 1, :, None] for c in halves)
        # (pairs, i in the second, j in the first)
        step = jnp.where(dominates_columns(first, second, m), 1, NO_CHAIN).astype(jnp.int32)
        chains = chains.reshape(-1, 2, size, size)
        upper, lower = chains[:, 0], chains[:, 1]
        across = _longest(lower, _longest(step, upper))
        nothing = jnp.full_like(across, NO_CHAIN)
        top = jnp.concatenate([upper, nothing], axis=2)
        chains = jnp.concatenate([top, jnp.concatenate([across, lower], axis=2)], axis=1)
        size *= 2
    return chains


def _longest(a: Array, b: Array) -> Array:
    """max over k of a[i, k] + b[k, j], kept from running off below NO_CHAIN."""
    return jnp.maximum(jnp.max(a[:, :, :, None] + b[:, None, :, :], axis=2), NO_CHAIN)
