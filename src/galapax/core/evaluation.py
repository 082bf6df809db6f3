"""Evaluations of candidates, populations of evaluated individuals, and records of generations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array


class Shape(NamedTuple):
    """The number of objectives and constraints of one evaluation."""

    objectives: int = 1
    ineq: int = 0
    eq: int = 0

    @property
    def constrained(self) -> bool:
        return self.ineq + self.eq > 0


class Evaluation(NamedTuple):
    """The evaluation of n candidates. A failed one has objectives and violation +inf: it loses to any other."""

    objectives: Array  # (n, m), to be minimised
    violation: Array | None  # (n,), 0 when feasible; None for a problem without constraints
    failed: Array  # (n,), number of evaluations with NaN, inf or an exception: a bool with one per candidate
    ineq: Array | None = None  # (n, p)
    eq: Array | None = None  # (n, q)
    again: Array | None = None  # (n,), evaluations of failed points that this candidate replaced
    lost: Array | None = None  # (n,), failures among those and other evaluations for this candidate
    known: Array | None = None  # (n,) bool, whether the values were known before and cost no evaluation

    @property
    def fitness(self) -> Array:
        return self.objectives[..., 0]


class Population(NamedTuple):
    """n individuals with their evaluations."""

    x: Array  # (n, d)
    objectives: Array  # (n, m), +inf before the first evaluation
    violation: Array | None  # (n,), or None for a problem without constraints

    @property
    def fitness(self) -> Array:
        return self.objectives[..., 0]


def empty_population(x: Array, shape: Shape) -> Population:
    """Create individuals that lose to any evaluated one, so that the first generation is no special case."""
    worst = jnp.full((x.shape[0], shape.objectives), jnp.inf, x.dtype)
    return Population(x, worst, worst[:, 0] if shape.constrained else None)


def as_population(candidates: Array, evaluation: Evaluation) -> Population:
    """Combine candidates and their evaluation into a population."""
    return Population(candidates, evaluation.objectives, evaluation.violation)


OUTPUT_NAMES = ("fun", "ineq", "eq")


class Values(NamedTuple):
    """Return value of a black box that computes objective and constraints at once; a dict with these keys also works.

    fun: a number, or one for each objective. ineq, eq: constraints, a number or several each; feasible when every ineq
        <= 0 and every eq = 0 (to 1e-4).
    """

    fun: Any
    ineq: Any = None
    eq: Any = None


def returned_by_fun(x: Any) -> Any:
    """Placeholder for constraints that a black box returns together with its objective; it is never called."""
    raise NotImplementedError("these constraints are returned by fun, together with its value.")


class Columns(NamedTuple):
    """The columns of a packed record."""

    shape: Shape
    hypervolume: bool  # whether there are several objectives and a reference point
    x: int = 0  # number of variables of the best individual

    @property
    def width(self) -> int:
        """The number of columns."""
        constraints = 2 if self.shape.constrained else 0
        return 3 + 3 * self.shape.objectives + constraints + self.hypervolume + self.is_estimated + self.x

    @property
    def is_estimated(self) -> bool:
        """Whether the hypervolume is an estimate with a standard error."""
        return self.hypervolume and self.shape.objectives > MAX_EXACT_HYPERVOLUME_OBJECTIVES


MAX_EXACT_HYPERVOLUME_OBJECTIVES = 3  # objectives whose hypervolume is not estimated, see metrics/hypervolume.py
FAILED_COLUMN = 1  # failed evaluations; the next column counts all evaluations
HISTORY_FIRST_COLUMN = 2  # the columns before it only serve to count


class Record(NamedTuple):
    """The values of one generation of one run; several records have their axes in front."""

    active: Any  # 1, or 0 after the run has ended
    failed: Any  # number of failed evaluations
    evaluations: Any  # number of evaluations
    best: Any  # (m,) see execution/search.py
    mean: Any  # (m,)
    worst: Any  # (m,)
    violation: Any = None  # with constraints: of the best
    feasible_share: Any = None  # with constraints
    hypervolume: Any = None
    hypervolume_error: Any = None  # standard error, where it is an estimate
    x: Any = None  # (d,) of the best

    def pack(self, dtype: Any) -> Array:
        """Pack the record of one run into a row of numbers."""
        columns = [jnp.asarray(field, dtype).reshape(-1) for field in self if field is not None]
        return jnp.concatenate(columns)

    @staticmethod
    def unpack(rows: Any, columns: Columns, first: int = 0, axis: int = -1) -> Record:
        """Unpack rows that were packed along an axis. first: number of columns that are missing at the left.

        Fields that are single numbers lose the axis.
        """
        m, position = columns.shape.objectives, -first
        leading = (slice(None),) * (rows.ndim + axis if axis < 0 else axis)

        def take(width: int | None) -> Any:
            nonlocal position
            start = position
            position += width or 1
            if start < 0:
                return None
            return rows[(*leading, start if width is None else slice(start, start + width))]

        counts = [take(None) for _ in range(3)]
        values = [take(m) for _ in range(3)]
        constraints = [take(None) if columns.shape.constrained else None for _ in range(2)]
        hypervolume = take(None) if columns.hypervolume else None
        error = take(None) if columns.is_estimated else None
        x = take(columns.x) if columns.x else None
        return Record._make([*counts, *values, *constraints, hypervolume, error, x])
