"""What a problem returns for candidates, and populations of evaluated individuals."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array


class Shape(NamedTuple):
    """How many numbers one evaluation gives."""

    objectives: int = 1
    ineq: int = 0
    eq: int = 0

    @property
    def constrained(self) -> bool:
        return self.ineq + self.eq > 0


class Evaluation(NamedTuple):
    """What the problem says of n candidates. A failed one has objectives and violation +inf: it loses to any other."""

    objectives: Array  # (n, m), to be minimised
    violation: Array | None  # (n,), 0 when feasible; None for a problem without constraints
    failed: Array  # (n,), how many of its evaluations gave NaN, inf or an exception: a bool where it has one
    ineq: Array | None = None  # (n, p)
    eq: Array | None = None  # (n, q)
    again: Array | None = None  # (n,), evaluations of points that failed, in whose place this candidate came
    lost: Array | None = None  # (n,), how many evaluations failed of those, and of others made for this candidate

    @property
    def fitness(self) -> Array:
        return self.objectives[..., 0]


class Population(NamedTuple):
    """n individuals with what is known of them."""

    x: Array  # (n, d)
    objectives: Array  # (n, m), +inf before the first evaluation
    violation: Array | None  # (n,), or None for a problem without constraints

    @property
    def fitness(self) -> Array:
        return self.objectives[..., 0]


def empty_population(x: Array, shape: Shape) -> Population:
    """Individuals that lose to anything evaluated, which spares a special first generation."""
    worst = jnp.full((x.shape[0], shape.objectives), jnp.inf, x.dtype)
    return Population(x, worst, worst[:, 0] if shape.constrained else None)


def as_population(candidates: Array, evaluation: Evaluation) -> Population:
    return Population(candidates, evaluation.objectives, evaluation.violation)


OUTPUT_NAMES = ("fun", "ineq", "eq")


class Values(NamedTuple):
    """What `fun` of a black box may return, so that a simulator runs once for a point; a dict of the same does too.

    fun: a number, or one for each objective. ineq, eq: constraints, a number or several each; feasible when every ineq
        <= 0 and every eq = 0 (to 1e-4).
    """

    fun: Any
    ineq: Any = None
    eq: Any = None


def returned_by_fun(x: Any) -> Any:
    """Stands for a constraint of a problem whose values come with those of `fun`; it is never called."""
    raise NotImplementedError("these constraints are returned by fun, together with its value.")


class Columns(NamedTuple):
    """Which parts a packed record has."""

    shape: Shape
    hypervolume: bool  # several objectives and a reference point
    x: int = 0  # how many variables of the best individual are kept

    @property
    def width(self) -> int:
        """Numbers in a row."""
        constraints = 2 if self.shape.constrained else 0
        return 3 + 3 * self.shape.objectives + constraints + self.hypervolume + self.is_estimated + self.x

    @property
    def is_estimated(self) -> bool:
        """Whether the hypervolume is an estimate, which has an error."""
        return self.hypervolume and self.shape.objectives > MAX_EXACT_HYPERVOLUME_OBJECTIVES


MAX_EXACT_HYPERVOLUME_OBJECTIVES = 3  # objectives whose hypervolume is not estimated, see measures/hypervolumes.py
FAILED_COLUMN = 1  # the column of failed evaluations; that of those made is the next
HISTORY_FIRST_COLUMN = 2  # the columns from here on are history; those before it serve for counting alone


class Record(NamedTuple):
    """What a generation of one run is remembered by; many of them have their axes in front."""

    active: Any  # 1, or 0 for a row that a finished run did not make
    failed: Any  # evaluations that failed
    evaluations: Any  # evaluations made
    best: Any  # (m,) see `engines.search.summary`
    mean: Any  # (m,)
    worst: Any  # (m,)
    violation: Any = None  # with constraints: of the best
    feasible_share: Any = None  # with constraints
    hypervolume: Any = None
    hypervolume_error: Any = None  # standard error, where it is an estimate
    x: Any = None  # (d,) of the best

    def pack(self, dtype: Any) -> Array:
        """One run's record as a row of numbers."""
        columns = [jnp.asarray(field, dtype).reshape(-1) for field in self if field is not None]
        return jnp.concatenate(columns)

    @staticmethod
    def unpack(rows: Any, columns: Columns, first: int = 0, axis: int = -1) -> Record:
        """The parts of rows that were packed along an axis. first: how many columns are left out at the left.

        Parts that are single numbers lose the axis.
        """
        m, at = columns.shape.objectives, -first
        ahead = (slice(None),) * (rows.ndim + axis if axis < 0 else axis)

        def take(width: int | None) -> Any:
            nonlocal at
            start = at
            at += width or 1
            if start < 0:
                return None
            return rows[(*ahead, start if width is None else slice(start, start + width))]

        counts = [take(None) for _ in range(3)]
        values = [take(m) for _ in range(3)]
        constraints = [take(None) if columns.shape.constrained else None for _ in range(2)]
        hypervolume = take(None) if columns.hypervolume else None
        error = take(None) if columns.is_estimated else None
        x = take(columns.x) if columns.x else None
        return Record._make([*counts, *values, *constraints, hypervolume, error, x])
