"""A memory for algorithms with several objectives: the non-dominated points seen so far, beside the population.

An algorithm keeps as many points as its population has room for, and loses others that nobody dominates. Wrapped in
`Archived` it runs just the same, and every point it evaluates is offered to an archive of limited size. Where there are
too many, those in the most crowded places go first, by the crowding distance of NSGA-II.
"""

from __future__ import annotations

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
from galapax.numerics.materialise import materialise
from galapax.operators.ranking import ranks_and_crowding, select_best_rows
from galapax.operators.selection import concatenate_optional, take


class ArchivedState(NamedTuple):
    candidates: Array
    parents: Population
    front: Population  # (size, ...) the archive; unused places hold unevaluated or dominated points
    inner: Any  # the wrapped algorithm's state without its candidates and parents, which are those above


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Archived(Algorithm[ArchivedState]):
    """`inner` with an archive of at most `size` non-dominated points."""

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
        return _wrap_state(inner, empty_population(first, shape))

    def with_initial_points(self, state: ArchivedState, points: Array) -> ArchivedState:
        return _wrap_state(insert_initial_points(self.inner, _unwrap_state(state), points), state.front)

    def with_immigrants(self, state: ArchivedState, rows: Array, points: Array) -> ArchivedState:
        return _wrap_state(insert_immigrants(self.inner, _unwrap_state(state), rows, points), state.front)

    def start(self, state: ArchivedState, evaluation: Evaluation, shape: Shape) -> ArchivedState:
        return _wrap_state(self.inner.start(_unwrap_state(state), evaluation, shape), state.front)

    def step(self, key: Array, state: ArchivedState, evaluation: Evaluation) -> ArchivedState:
        old, new = state.front, as_population(state.candidates, evaluation)
        union = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), old, new)
        rank, crowding = ranks_and_crowding(
            union.objectives, concatenate_optional(old.violation, new.violation), self.size
        )
        front = materialise(take(select_best_rows(rank, crowding, self.size), union))
        return _wrap_state(self.inner.step(key, _unwrap_state(state), evaluation), front)

    def cycle(self, key: Array, state: ArchivedState, shape: Shape) -> ArchivedState:
        return _wrap_state(self.inner.cycle(key, _unwrap_state(state), shape), state.front)

    def evaluations(self, state: ArchivedState, number: Any) -> Any:
        return count_evaluations(self.inner, _unwrap_state(state), number)

    def solutions(self, state: ArchivedState) -> Population:
        return state.front


def _wrap_state(inner: Any, front: Population) -> ArchivedState:
    return ArchivedState(inner.candidates, inner.parents, front, inner._replace(candidates=None, parents=None))


def _unwrap_state(state: ArchivedState) -> Any:
    """The wrapped algorithm's own state."""
    return state.inner._replace(candidates=state.candidates, parents=state.parents)


def unwrap(algorithm: Algorithm) -> Algorithm:
    """The algorithm itself, without an archive."""
    return algorithm.inner if isinstance(algorithm, Archived) else algorithm
