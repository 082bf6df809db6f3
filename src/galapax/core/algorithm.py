"""What an algorithm is: hyper-parameters in a frozen dataclass, the run in a state, two pure functions.

`state.candidates` waits for its evaluation; `step` takes that evaluation, selects, and breeds the next candidates. An
engine needs no more, whether it evaluates on the device, in a process pool or by hand.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.problem import Bounds


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
    failed: Array  # (n,) bool: NaN, inf or an exception came back
    ineq: Array | None = None  # (n, p)
    eq: Array | None = None  # (n, q)

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


class State(Protocol):
    """What every algorithm's state shows to engines; the rest is its own affair."""

    @property
    def candidates(self) -> Array: ...  # (n, d), waiting for their evaluation

    @property
    def parents(self) -> Population: ...  # the survivors; with one objective the best individual so far is among them


@runtime_checkable
class Algorithm(Protocol):
    """The contract. `several_objectives` says which problems it is for.

    An algorithm may also have `period`, a number of generations, and `interlude(key, state, shape)`, which is called
    after each such period; `prelude(state, evaluation, shape)`, which takes what it needs for the whole run from the
    evaluation of the first candidates, before the first step, and leaves the candidates as they are; and `repairs`, a
    whole number: so many of its candidates a generation are moved onto the
    constraints that they violate before they are evaluated, where the problem has equalities and JAX can differentiate.
    """

    several_objectives: ClassVar[bool]

    @property
    def population(self) -> int: ...

    def check(self) -> None:
        """Refuse hyper-parameters that cannot work, with an InputError."""

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> Any:
        """The first candidates and empty parents."""

    def step(self, key: Array, state: Any, evaluation: Evaluation) -> Any:
        """Select among parents and evaluated candidates, then breed the next candidates."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Shared:
    """Arrays among the hyper-parameters that all runs of a batch share; any other array has one value for each run."""

    value: Any


def static(default: Any) -> Any:
    """A hyper-parameter that shapes the program (a size, a function) rather than being data in it."""
    return dataclasses.field(default=default, metadata={"static": True})


def unevaluated(x: Array, shape: Shape) -> Population:
    """Individuals that lose to anything evaluated, which spares a special first generation."""
    worst = jnp.full((x.shape[0], shape.objectives), jnp.inf, x.dtype)
    return Population(x, worst, worst[:, 0] if shape.constrained else None)


def evaluated(candidates: Array, evaluation: Evaluation) -> Population:
    return Population(candidates, evaluation.objectives, evaluation.violation)
