"""scipy's words for a problem: args, constraints and integrality, as galapax's functions and variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from galapax.api.constraints import stack_constraints
from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.core.problem import Function
from galapax.core.space import is_variables, variables_from_integrality


def convert_problem(
    fun: Any, bounds: Any, args: Any = (), constraints: Any = None, integrality: Any = None
) -> tuple[Any, Any, Any, Any]:
    """fun, bounds, ineq and eq from what scipy's functions take."""
    ineq = eq = None
    if integrality is not None:
        if is_variables(bounds):
            raise InputError("variables say themselves which are integers: leave integrality out.")
        bounds = variables_from_integrality(bounds, integrality)
    if not (isinstance(args, tuple) and not args):
        fun = _with_args(fun, tuple(args) if isinstance(args, tuple | list) else (args,))
    if constraints is not None:
        inequalities, equalities = _from_scipy(constraints, isinstance(bounds, Mapping))
        ineq, eq = stack_constraints("ineq", inequalities), stack_constraints("eq", equalities)
        ineq, eq = (
            (inequalities[0] if len(inequalities) == 1 else ineq),
            (equalities[0] if len(equalities) == 1 else eq),
        )
    return fun, bounds, ineq, eq


# Classes and not closures, so that a problem can be sent to other processes.


@dataclass(frozen=True)
class _Partial:
    """A function with further arguments after x."""

    function: Function
    further: tuple[Any, ...]

    def __call__(self, x: Any) -> Any:
        return self.function(x, *self.further)

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


@dataclass(frozen=True, eq=False)
class _Within:
    """One side of lower <= function <= upper, as numbers that are to be at most 0, or 0 where sides are equal."""

    function: Function
    side: str  # "lower", "upper" or "equal"
    limits: np.ndarray  # (k,), or of one number for all values
    rows: np.ndarray | None  # (k,): which values they are of; None for all

    def __call__(self, x: Any) -> Any:
        values = self.function(x)
        xp = np if isinstance(values, int | float | np.ndarray | np.generic) else jnp
        values = xp.atleast_1d(xp.asarray(values))
        chosen = values if self.rows is None else values[self.rows]
        return self.limits - chosen if self.side == "lower" else chosen - self.limits


@dataclass(frozen=True, eq=False)
class _Linear:
    matrix: np.ndarray

    def __call__(self, x: Any) -> Any:
        return self.matrix @ x


@dataclass(frozen=True)
class _Negated:
    """scipy's constraint of at least 0 as one of at most 0."""

    function: Function

    def __call__(self, x: Any) -> Any:
        value = self.function(x)
        return -np.asarray(value) if isinstance(value, list | tuple) else -value


def _with_args(function: Any, further: tuple[Any, ...]) -> Any:
    if isinstance(function, list | tuple):
        return [_with_args(one, further) for one in function]
    return _Partial(function, further) if callable(function) else function


def _from_scipy(constraints: Any, has_names: bool) -> tuple[list[Function], list[Function]]:
    """Inequalities and equalities from scipy's constraints: its objects, dicts, or a list of these."""
    ineq: list[Function] = []
    eq: list[Function] = []
    is_list = isinstance(constraints, Sequence) and not isinstance(constraints, str)
    for one in constraints if is_list else [constraints]:
        if isinstance(one, Mapping) and one.get("type") in ("ineq", "eq") and callable(one.get("fun")):
            function = _with_args(one["fun"], tuple(one.get("args", ()))) if one.get("args") else one["fun"]
            (eq if one["type"] == "eq" else ineq).append(function if one["type"] == "eq" else _Negated(function))
        elif hasattr(one, "lb") and hasattr(one, "ub"):
            _add_sides(one, has_names, ineq, eq)
        else:
            raise InputError(
                "constraints takes scipy's NonlinearConstraint, LinearConstraint or Bounds, its dicts, or a list of "
                f"these; for functions write ineq (met when g(x) <= 0) and eq (when h(x) = 0); got {abbreviate(one)}."
            )
    return ineq, eq


def _add_sides(one: Any, has_names: bool, ineq: list[Function], eq: list[Function]) -> None:
    """What an object with lower and upper limits asks for."""
    if hasattr(one, "fun"):
        function: Function = one.fun
    elif has_names:
        raise InputError("linear constraints are of a vector x, and these variables have names: give them in a list.")
    else:
        matrix: Any = getattr(one, "A", np.eye(np.size(one.lb)))
        dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
        function = _Linear(np.atleast_2d(np.asarray(dense, np.float64)))
    lower, upper = np.broadcast_arrays(np.asarray(one.lb, np.float64), np.asarray(one.ub, np.float64))
    for side, mask, limits in (
        ("equal", lower == upper, lower),
        ("lower", (lower != upper) & np.isfinite(lower), lower),
        ("upper", (lower != upper) & np.isfinite(upper), upper),
    ):
        if mask.any():
            rows = None if mask.all() else np.flatnonzero(mask)
            (eq if side == "equal" else ineq).append(_Within(function, side, np.atleast_1d(limits[mask]), rows))
