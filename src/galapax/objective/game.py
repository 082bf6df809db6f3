"""Objective of a min-max problem: a function of x and y, traced once and evaluated for all pairs."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from galapax.algorithms.minmax_cde import judge
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Function
from galapax.numerics.jaxpr import Jaxpr
from galapax.objective.hoist_constants import Constants, HoistedPrograms, call
from galapax.objective.traced import text_of, trace_one


@dataclass(frozen=True, eq=False)
class Game:
    """A function of x and y as a JAX program, equal to another's when the programs are equal.

    Arrays and numbers that the function closes over are data (`Constants`).
    """

    program: Jaxpr
    text: str
    is_random: ClassVar[bool] = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Game) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, consts: Constants, x: Array, y: Array) -> Array:
        """Return the values of all pairs of x (n, dx) and y (m, dy): (n, m)."""
        return jax.vmap(lambda one: jax.vmap(lambda other: self.one(consts, one, other))(y))(x)

    def evaluate(self, consts: Constants, state: Any) -> CandidateEvaluation:
        """Judge `state.candidates` (R, n, dx) by `state.opponents` (R, dy, k): each x by the worst y that it meets."""
        worst, failed = jax.vmap(lambda x, y: judge(self, consts, x, y))(state.candidates, state.opponents)
        return CandidateEvaluation(worst[..., None], None, failed)

    def repair(self, consts: Constants, x: Array, bounds: Bounds) -> Array:
        """Return x unchanged: a game has no constraints."""
        return x

    def one(self, consts: Constants, x: Array, y: Array) -> Array:
        """Return the value of one pair."""
        (out,) = call(self.program, consts, jnp.concatenate([x, y]))
        return out.reshape(()).astype(x.dtype)


class TracedGame(NamedTuple):
    game: Game
    consts: Constants


def trace_game(fun: Function, x_dim: int, y_dim: int, dtype: DTypeLike) -> TracedGame:
    """Turn a function of x and y into a JAX program, or say what is wrong with it."""
    if not callable(fun):
        raise InputError(f"fun must be a function of x and y, got {fun!r}.")
    try:
        inspect.signature(fun).bind(None, None)
    except ValueError:
        pass  # a builtin without a signature
    except TypeError:
        signature = inspect.signature(fun)
        raise InputError(f"fun must take two arguments, x and y; it is defined as {signature}.") from None
    closed, n_values = trace_one("fun", lambda both: fun(both[:x_dim], both[x_dim:]), x_dim + y_dim, dtype, 0)
    if n_values != 1:
        raise InputError(
            f"fun must return one number, the value that x minimises and y maximises; it returned {n_values}."
        )
    hoisted = HoistedPrograms([closed])
    (program,) = hoisted.programs()
    return TracedGame(Game(program, f"{x_dim} {y_dim} {text_of(program)}"), hoisted.constants)
