"""A memory for algorithms with several objectives: the non-dominated points seen so far, beside the population.

An algorithm keeps as many points as its population has room for, and loses others that nobody dominates. Wrapped in
`Archived` it runs just the same, and every point it evaluates is offered to an archive of limited size. Where there are
too many, those in the most crowded places go first, by the crowding distance of NSGA-II.

No point of the archive is dominated by a feasible point that the run has evaluated, in the run's precision. A bounded
archive alone does not have that property: it drops a non-dominated point, and later a point that the dropped one
dominates comes in (Lopez-Ibanez, Knowles & Laumanns (2011), EMO, LNCS 6576:58-72, doi:10.1007/978-3-642-19893-9_5). So
the objectives of dropped points are remembered, too. A new point enters

- if it dominates a point of the archive: whatever dominated it would dominate that one, too; or
- if no point of the archive dominates it, and none that was dropped is as good in every objective.

What is remembered is limited as well: of too many dropped points those that lie closest are replaced by their least
values in each objective. That may refuse a point that nobody dominates, but never lets in one that somebody does.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Traits,
    count_evaluations,
    count_repairs,
    insert_immigrants,
    insert_initial_points,
    static,
)
from galapax.core.checks import check_integer
from galapax.core.evaluation import Evaluation, Population, Shape, as_population, empty_population
from galapax.core.problem import Bounds
from galapax.numerics.jaxpr import materialise
from galapax.operators.pairwise import MAX, MIN, Columns, reduce_over_others, split_columns
from galapax.operators.ranking import (
    crowding_distance,
    first_front,
    is_feasible,
    ranks_and_crowding,
    select_best_rows,
)
from galapax.operators.selection import concatenate_optional, take

MIN_DROPPED = 256  # dropped points that are remembered, at least


class ArchivedState(NamedTuple):
    candidates: Array
    parents: Population
    front: Population  # (size, ...) the archive; unused places hold unevaluated or dominated points
    dropped: Array  # (k, m) objectives; each non-dominated point that was dropped is no better than one; +inf: unused
    inner: Any  # the wrapped algorithm's state without its candidates and parents, which are those above


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Archived(Algorithm[ArchivedState]):
    """`inner` with an archive of at most `size` non-dominated points, none of which is dominated by a feasible point
    that the run has evaluated.
    """

    inner: Any
    size: int = static(1000)

    traits: ClassVar[Traits] = Traits(multi_objective=True)

    @property
    def population(self) -> int:
        return self.inner.population

    def validate(self) -> None:
        self.inner.validate()
        check_integer(self.size, "archive", 1)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        return replace(self, inner=self.inner.bind(dim, shape, budget))

    @property
    def period(self) -> int:
        return self.inner.period

    def n_repairs(self) -> int:
        return count_repairs(self.inner)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> ArchivedState:
        inner = self.inner.init(key, bounds, shape)
        first = jnp.broadcast_to(bounds.lower, (self.size, bounds.dim))
        dropped = jnp.full((max(MIN_DROPPED, self.size), shape.objectives), jnp.inf, bounds.lower.dtype)
        return _wrap_state(inner, empty_population(first, shape), dropped)

    def with_initial_points(self, state: ArchivedState, points: Array) -> ArchivedState:
        return _wrap_state(insert_initial_points(self.inner, _unwrap_state(state), points), state.front, state.dropped)

    def with_immigrants(self, state: ArchivedState, rows: Array, points: Array) -> ArchivedState:
        return _wrap_state(
            insert_immigrants(self.inner, _unwrap_state(state), rows, points), state.front, state.dropped
        )

    def start(self, state: ArchivedState, evaluation: Evaluation, shape: Shape) -> ArchivedState:
        return _wrap_state(self.inner.start(_unwrap_state(state), evaluation, shape), state.front, state.dropped)

    def step(self, key: Array, state: ArchivedState, evaluation: Evaluation) -> ArchivedState:
        old, new = state.front, admit(as_population(state.candidates, evaluation), state.front, state.dropped)
        union = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), old, new)
        violation = concatenate_optional(old.violation, new.violation)
        rank, crowding = ranks_and_crowding(union.objectives, violation, self.size)
        rows = select_best_rows(rank, crowding, self.size)
        front = materialise(take(rows, union))
        leaving = jnp.flatnonzero(jnp.ones(rank.shape, bool).at[rows].set(False), size=self.population)
        was_needed = (is_feasible(union.objectives, violation) & (rank == 0))[leaving]
        fresh = jnp.where(was_needed[:, None], union.objectives[leaving], jnp.inf)
        dropped = materialise(remember_dropped(state.dropped, fresh, front))
        return _wrap_state(self.inner.step(key, _unwrap_state(state), evaluation), front, dropped)

    def cycle(self, key: Array, state: ArchivedState, shape: Shape) -> ArchivedState:
        return _wrap_state(self.inner.cycle(key, _unwrap_state(state), shape), state.front, state.dropped)

    def evaluations(self, state: ArchivedState, number: Any) -> Any:
        return count_evaluations(self.inner, _unwrap_state(state), number)

    def solutions(self, state: ArchivedState) -> Population:
        return state.front


def admit(new: Population, front: Population, dropped: Array) -> Population:
    """Return the new points with those marked as failed that may not enter the archive, see the module's docstring."""
    members = jnp.where(is_feasible(front.objectives, front.violation)[:, None], front.objectives, jnp.inf)
    refused = _is_matched(new.objectives, dropped) & ~_dominates_any(new.objectives, members)
    if new.violation is None:
        return new._replace(objectives=jnp.where(refused[:, None], jnp.inf, new.objectives))
    refused &= new.violation <= 0
    return new._replace(
        objectives=jnp.where(refused[:, None], jnp.inf, new.objectives),
        violation=jnp.where(refused, jnp.inf, new.violation),
    )


def remember_dropped(dropped: Array, fresh: Array, front: Population) -> Array:
    """Return what is to be remembered, (k, m) again, after the points `fresh` (n, m) were dropped from the archive;
    rows of +inf are none.

    What a point of the archive dominates need not be remembered: whatever it would refuse, the archive does.
    """
    count = dropped.shape[0]
    members = jnp.where(is_feasible(front.objectives, front.violation)[:, None], front.objectives, jnp.inf)
    points = jnp.concatenate([dropped, fresh])
    needed = first_front(jnp.concatenate([points, members]))[: points.shape[0]]
    points = jnp.where(needed[:, None], points, jnp.inf)
    rank = jnp.where(needed, 0, 1)
    rows = select_best_rows(rank, crowding_distance(points, rank), count)
    chosen = points[rows]
    rest = jnp.where(needed.at[rows].set(False)[:, None], points, jnp.inf)
    return chosen.at[_nearest(rest, chosen)].min(rest)


def _is_matched(points: Array, others: Array) -> Array:
    """Whether one of the others is as good as a point (n, m) in every objective, (n,) bool."""

    def is_as_good(row: Columns, other: Columns) -> Columns:
        return (_all([b <= a for a, b in zip(row, other, strict=True)]).astype(jnp.int32),)

    (matched,) = reduce_over_others(is_as_good, (MAX,), split_columns(points), split_columns(others))
    return (matched > 0) & jnp.all(jnp.isfinite(points), axis=1)


def _dominates_any(points: Array, others: Array) -> Array:
    """Whether a point (n, m) dominates one of the others that is finite, (n,) bool."""

    def is_better(row: Columns, other: Columns) -> Columns:
        pairs = list(zip(row, other, strict=True))
        better = _all([a <= b for a, b in pairs]) & ~_all([a == b for a, b in pairs]) & (other[0] < jnp.inf)
        return (better.astype(jnp.int32),)

    (found,) = reduce_over_others(is_better, (MAX,), split_columns(points), split_columns(others))
    return found > 0


def _nearest(points: Array, others: Array) -> Array:
    """The row of the others that is closest to each point (n, m), in units of their range in each objective, (n,)."""
    known = jnp.isfinite(others)
    low = jnp.min(jnp.where(known, others, jnp.inf), axis=0)
    span = jnp.max(jnp.where(known, others, -jnp.inf), axis=0) - low
    scale = jnp.where(jnp.isfinite(span) & (span > 0), span, 1)
    rows, numbers = split_columns(points / scale), jnp.arange(others.shape[0], dtype=jnp.int32)
    columns = (*split_columns(jnp.where(known, others / scale, jnp.inf)), numbers)

    def distance(row: Columns, other: Columns) -> Array:
        squares = [(a - b) ** 2 for a, b in zip(row, other, strict=True)]
        total = functools.reduce(jnp.add, squares)
        return jnp.where(jnp.isnan(total), jnp.inf, total)

    (least,) = reduce_over_others(lambda r, o: (distance(r, o[:-1]),), (MIN,), rows, columns)

    def number(row: Columns, other: Columns) -> Columns:
        return (jnp.where(distance(row[:-1], other[:-1]) <= row[-1], other[-1], others.shape[0] - 1),)

    (nearest,) = reduce_over_others(number, (MIN,), (*rows, least), columns)
    return nearest


def _all(parts: list[Array]) -> Array:
    return functools.reduce(jnp.logical_and, parts)


def _wrap_state(inner: Any, front: Population, dropped: Array) -> ArchivedState:
    rest = inner._replace(candidates=None, parents=None)
    return ArchivedState(inner.candidates, inner.parents, front, dropped, rest)


def _unwrap_state(state: ArchivedState) -> Any:
    """The wrapped algorithm's own state."""
    return state.inner._replace(candidates=state.candidates, parents=state.parents)


def unwrap(algorithm: Algorithm) -> Algorithm:
    """The algorithm itself, without an archive."""
    return algorithm.inner if isinstance(algorithm, Archived) else algorithm
