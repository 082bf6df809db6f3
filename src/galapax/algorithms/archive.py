"""Bounded archive of non-dominated points, for any algorithm with several objectives.

A population has limited room, so an algorithm loses non-dominated points. `Archived` wraps an algorithm without
changing its search, and offers every evaluated point to an archive. When the archive is full, the most crowded points
are dropped, by the crowding distance of NSGA-II.

No point of the archive is dominated by a feasible point that the run has evaluated, in the run's precision. A bounded
archive alone does not have that property: it drops a non-dominated point, and later accepts a point that the dropped
one dominates (Lopez-Ibanez, Knowles & Laumanns (2011), EMO, LNCS 6576:58-72, doi:10.1007/978-3-642-19893-9_5). So
the objectives of dropped points are stored, too. A new point enters

- if it dominates a point of the archive: whatever dominated it would dominate that one, too; or
- if no point of the archive dominates it, and none that was dropped is as good in every objective.

The number of stored points is limited as well: the closest ones are merged into their least values in each objective.
That may refuse a non-dominated point, but never accepts a dominated one.
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
    State,
    Traits,
    count_evaluations,
    count_repairs,
    insert_immigrants,
    insert_initial_points,
    static,
)
from galapax.core.checks import check_integer
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
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

MIN_STORED_DROPPED = 256  # room for dropped points, at least


class ArchivedState(NamedTuple):
    candidates: Array
    parents: Population
    front: Population  # (size, ...) the archive; unused rows hold unevaluated or dominated points
    dropped: Array  # (k, m) objectives, each dropped point is weakly dominated by one of them; +inf: unused
    inner: Any  # the wrapped algorithm's state without its candidates and parents, which are those above


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Archived(Algorithm[ArchivedState]):
    """`inner` with an archive of at most `size` non-dominated points, none of which is dominated by a feasible point
    that the run has evaluated.
    """

    inner: Algorithm
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
        dropped = jnp.full((max(MIN_STORED_DROPPED, self.size), shape.objectives), jnp.inf, bounds.lower.dtype)
        return _wrap_state(inner, empty_population(first, shape), dropped)

    def with_initial_points(self, state: ArchivedState, points: Array) -> ArchivedState:
        return _wrap_state(insert_initial_points(self.inner, _unwrap_state(state), points), state.front, state.dropped)

    def with_immigrants(self, state: ArchivedState, rows: Array, points: Array) -> ArchivedState:
        return _wrap_state(
            insert_immigrants(self.inner, _unwrap_state(state), rows, points), state.front, state.dropped
        )

    def start(self, state: ArchivedState, evaluation: CandidateEvaluation, shape: Shape) -> ArchivedState:
        return _wrap_state(self.inner.start(_unwrap_state(state), evaluation, shape), state.front, state.dropped)

    def step(self, key: Array, state: ArchivedState, evaluation: CandidateEvaluation) -> ArchivedState:
        old, new = state.front, admit(as_population(state.candidates, evaluation), state.front, state.dropped)
        union = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), old, new)
        violation = concatenate_optional(old.violation, new.violation)
        rank, crowding = ranks_and_crowding(union.objectives, violation, self.size)
        rows = select_best_rows(rank, crowding, self.size)
        front = materialise(take(rows, union))
        leaving = jnp.flatnonzero(jnp.ones(rank.shape, bool).at[rows].set(False), size=self.population)
        is_non_dominated = (is_feasible(union.objectives, violation) & (rank == 0))[leaving]
        newly_dropped = jnp.where(is_non_dominated[:, None], union.objectives[leaving], jnp.inf)
        dropped = materialise(store_dropped(state.dropped, newly_dropped, front))
        return _wrap_state(self.inner.step(key, _unwrap_state(state), evaluation), front, dropped)

    def cycle(self, key: Array, state: ArchivedState, shape: Shape) -> ArchivedState:
        return _wrap_state(self.inner.cycle(key, _unwrap_state(state), shape), state.front, state.dropped)

    def evaluations(self, state: ArchivedState, number: Array | int) -> Array | int:
        return count_evaluations(self.inner, _unwrap_state(state), number)

    def solutions(self, state: ArchivedState) -> Population:
        return state.front


def admit(new: Population, front: Population, dropped: Array) -> Population:
    """Mark the new points that may not enter the archive as failed; the module's docstring has the rule."""
    members = jnp.where(is_feasible(front.objectives, front.violation)[:, None], front.objectives, jnp.inf)
    refused = _is_weakly_dominated(new.objectives, dropped) & ~_dominates_any(new.objectives, members)
    if new.violation is None:
        return new._replace(objectives=jnp.where(refused[:, None], jnp.inf, new.objectives))
    refused &= new.violation <= 0
    return new._replace(
        objectives=jnp.where(refused[:, None], jnp.inf, new.objectives),
        violation=jnp.where(refused, jnp.inf, new.violation),
    )


def store_dropped(dropped: Array, newly_dropped: Array, front: Population) -> Array:
    """Add points (n, m) to the stored dropped ones (k, m); rows of +inf are unused.

    A point that the archive dominates is not stored: the archive refuses whatever it would refuse.
    """
    count = dropped.shape[0]
    members = jnp.where(is_feasible(front.objectives, front.violation)[:, None], front.objectives, jnp.inf)
    points = jnp.concatenate([dropped, newly_dropped])
    is_needed = first_front(jnp.concatenate([points, members]))[: points.shape[0]]
    points = jnp.where(is_needed[:, None], points, jnp.inf)
    rank = jnp.where(is_needed, 0, 1)
    rows = select_best_rows(rank, crowding_distance(points, rank), count)
    chosen = points[rows]
    surplus = jnp.where(is_needed.at[rows].set(False)[:, None], points, jnp.inf)
    return chosen.at[_find_nearest(surplus, chosen)].min(surplus)


def _is_weakly_dominated(points: Array, others: Array) -> Array:
    """Whether one of the others is no worse than a point (n, m) in every objective, (n,) bool."""

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

    (dominates,) = reduce_over_others(is_better, (MAX,), split_columns(points), split_columns(others))
    return dominates > 0


def _find_nearest(points: Array, others: Array) -> Array:
    """Find the row of the others closest to each point (n, m), scaled by their range in each objective, (n,)."""
    is_used = jnp.isfinite(others)
    low = jnp.min(jnp.where(is_used, others, jnp.inf), axis=0)
    span = jnp.max(jnp.where(is_used, others, -jnp.inf), axis=0) - low
    scale = jnp.where(jnp.isfinite(span) & (span > 0), span, 1)
    rows, numbers = split_columns(points / scale), jnp.arange(others.shape[0], dtype=jnp.int32)
    columns = (*split_columns(jnp.where(is_used, others / scale, jnp.inf)), numbers)

    def distance(row: Columns, other: Columns) -> Array:
        squares = [(a - b) ** 2 for a, b in zip(row, other, strict=True)]
        total = functools.reduce(jnp.add, squares)
        return jnp.where(jnp.isnan(total), jnp.inf, total)

    (least,) = reduce_over_others(lambda r, o: (distance(r, o[:-1]),), (MIN,), rows, columns)

    def number(row: Columns, other: Columns) -> Columns:
        return (jnp.where(distance(row[:-1], other[:-1]) <= row[-1], other[-1], others.shape[0] - 1),)

    (nearest,) = reduce_over_others(number, (MIN,), (*rows, least), columns)
    return nearest


def _all(conditions: list[Array]) -> Array:
    return functools.reduce(jnp.logical_and, conditions)


def _wrap_state(inner: State, front: Population, dropped: Array) -> ArchivedState:
    remainder = inner._replace(candidates=None, parents=None)
    return ArchivedState(inner.candidates, inner.parents, front, dropped, remainder)


def _unwrap_state(state: ArchivedState) -> State:
    """Rebuild the state of the wrapped algorithm."""
    return state.inner._replace(candidates=state.candidates, parents=state.parents)
