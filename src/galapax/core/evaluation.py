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
