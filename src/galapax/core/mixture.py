"""Fractions that add up: an equality that is better solved than searched for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.checks import check_finite
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, Function, Problem, as_bounds
from galapax.core.space import NumberArray


def mixture(
    fun: Function,
    bounds: object,
    *,
    total: float = 1.0,
    balance: int | str = -1,
    ineq: Function | None = None,
    eq: Function | None = None,
    variables: Sequence[str] | None = None,
    constraint_names: Sequence[str] | None = None,
    derived: Mapping[str, Function] | None = None,
    **described: object,
) -> Problem:
    """Create a Problem of d amounts that add up to `total`, with one of them eliminated.

    Random points of a box almost never add up to the total, so that a search with this as an equality constraint spends
    its time on it. Here one amount, `balance` (its name or number; by default the last), makes up the remainder: the
    search has d - 1 variables, and two inequalities keep the balance within its bounds. Tables and front.csv show it as
    a derived quantity.

    fun, ineq, eq, derived: functions of all d amounts, as in Problem. bounds, variables: of all d amounts.
    constraint_names: of ineq and eq; the two for the balance are named automatically. described: further fields of
    Problem, such as objectives, units, reference_point.
    """
    box = as_bounds(bounds)
    names = list(variables) if variables is not None else [f"x{i + 1}" for i in range(box.dim)]
    if box.dim < 2:
        raise InputError("a mixture needs at least two amounts.")
    if len(names) != box.dim:
        raise InputError(f"variables has {len(names)} names for {box.dim} amounts; give one name per amount.")
    if isinstance(balance, str):
        if balance not in names:
            raise InputError(f"balance must be one of {', '.join(names)}; got {balance!r}.")
        row = names.index(balance)
    elif isinstance(balance, int | np.integer) and -box.dim <= balance < box.dim:
        row = int(balance) % box.dim
    else:
        raise InputError(f"balance must be the name or the number of an amount; got {balance!r}.")
    amount_sum = check_finite(total, "total")
    if not box.lower.sum() <= amount_sum <= box.upper.sum():
        raise InputError(
            f"no amounts within bounds add up to total = {amount_sum:g}: they add up to at least {box.lower.sum():g} "
            f"and at most {box.upper.sum():g}."
        )
    independent = np.delete(np.arange(box.dim), row)
    low, high, balance_name = float(box.lower[row]), float(box.upper[row]), names[row]

    complete = _Complete(row, amount_sum)
    balance_quantity = {balance_name: _Balance(complete)}
    fields: dict[str, Any] = {"name": getattr(fun, "__name__", type(fun).__name__), **described}
    return Problem(
        _FunctionOfAll(fun, complete),
        Bounds(box.lower[independent], box.upper[independent]),
        ineq=_BalanceLimits(ineq, complete, low, high),
        eq=None if eq is None else _FunctionOfAll(eq, complete),
        variables=[names[i] for i in independent],
        constraint_names=_add_balance_names(
            constraint_names, eq, [f"{balance_name} <= {high:g}", f"{balance_name} >= {low:g}"]
        ),
        derived={
            **balance_quantity,
            **{name: _FunctionOfAll(function, complete) for name, function in (derived or {}).items()},
        },
        **fields,
    )


# Classes and not closures, so that a problem can be sent to other processes.


@dataclass(frozen=True)
class _Complete:
    """All d amounts (..., d) from the others (..., d - 1)."""

    row: int
    total: float

    def __call__(self, x: NumberArray) -> NumberArray:
        xp = _array_namespace(x)
        balance = self.total - xp.sum(x, axis=-1, keepdims=True)
        return xp.concatenate([x[..., : self.row], balance, x[..., self.row :]], axis=-1)


@dataclass(frozen=True)
class _Balance:
    """The amount that makes up the balance."""

    complete: _Complete

    def __call__(self, x: Array | np.ndarray) -> Any:
        return self.complete(x)[..., self.complete.row]


@dataclass(frozen=True)
class _FunctionOfAll:
    """A function of all amounts as one of the others."""

    function: Function
    complete: _Complete

    def __call__(self, x: Array | np.ndarray) -> Any:
        return self.function(self.complete(x))


@dataclass(frozen=True)
class _BalanceLimits:
    """The user's inequalities, and those that keep the balance within its bounds."""

    ineq: Function | None
    complete: _Complete
    low: float
    high: float

    def __call__(self, x: NumberArray) -> NumberArray:
        xp = _array_namespace(x)
        amounts = self.complete(x)
        balance = amounts[..., self.complete.row : self.complete.row + 1]
        constraints = [balance - self.high, self.low - balance]
        if self.ineq is not None:
            user_values = xp.asarray(self.ineq(amounts))
            constraints.insert(0, user_values if user_values.ndim == x.ndim else user_values[..., None])
        return xp.concatenate(constraints, axis=-1)


def _array_namespace(x: object) -> ModuleType:
    return np if isinstance(x, np.ndarray) else jnp


def _add_balance_names(names: Sequence[str] | None, eq: Function | None, balance_names: list[str]) -> list[str] | None:
    if names is None:
        return None
    if eq is not None:
        raise InputError("constraint_names cannot be given for a mixture with further equalities; remove them.")
    return [*names, *balance_names]
