"""scipy's words for a problem: args, constraints, integrality, fixed variables and map-like workers."""

from __future__ import annotations

import importlib.util
import multiprocessing
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from galapax.core.checks import abbreviate, check_integer
from galapax.core.errors import InputError
from galapax.core.problem import Function, Population, stack_constraints
from galapax.core.space import is_variables, variables_from_integrality
from galapax.numerics import devices
from galapax.objective.pool import Functions
from galapax.objective.remote import pickle_functions
from galapax.operators.selection import no_worse

if TYPE_CHECKING:
    from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint

    Constraint: TypeAlias = NonlinearConstraint | LinearConstraint | Bounds
    Map: TypeAlias = Callable[..., Iterable[Any]]  # as the builtin

EQUALITY_WIDTH = 1e-4  # |h(x)| up to which differential_evolution, which has no gradients, takes h(x) = 0 as met


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

    def __call__(self, x: np.ndarray) -> Any:
        return self.function(x, *self.further)

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


@dataclass(frozen=True)
class FirstOfPair:
    """The value of a function that returns (value, gradient)."""

    function: Function

    def __call__(self, *arguments: Any) -> Any:
        value, _gradient = self.function(*arguments)
        return value

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

    def __call__(self, x: ArrayLike) -> Any:
        values = _as_vector(self.function(x))
        chosen = values if self.rows is None else values[self.rows]
        return self.limits - chosen if self.side == "lower" else chosen - self.limits


@dataclass(frozen=True, eq=False)
class _Linear:
    matrix: np.ndarray

    def __call__(self, x: ArrayLike) -> Any:
        return self.matrix @ x


@dataclass(frozen=True)
class _Negated:
    """scipy's constraint of at least 0 as one of at most 0."""

    function: Function

    def __call__(self, x: ArrayLike) -> Any:
        value = self.function(x)
        return -_as_vector(value) if isinstance(value, list | tuple) else -value


def _as_vector(values: Any) -> Any:
    """What a constraint returned, as an array of NumPy, or of JAX where it is or holds one."""
    is_traced = any(
        isinstance(value, jax.Array) for value in (values if isinstance(values, list | tuple) else [values])
    )
    xp = jnp if is_traced else np
    return xp.atleast_1d(xp.asarray(values))


def _with_args(function: object, further: tuple[object, ...]) -> Any:
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


def constraint_values(constraint: object, x: np.ndarray) -> Any:
    """Evaluate a constraint object of scipy's at x."""
    if hasattr(constraint, "fun"):
        return constraint.fun(x)
    return constraint.A @ x if hasattr(constraint, "A") else x


# --- a whole population by scipy's rules ------------------------------------------------------------------------------


class FixedVariables:
    """Variables whose bounds are equal, which scipy allows: they are excluded from the search."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self.free, self.values = lower < upper, lower.copy()

    def add_fixed(self, x: np.ndarray) -> np.ndarray:
        """Complete the free variables (..., free) to all of them, (..., d)."""
        out = np.broadcast_to(self.values, (*x.shape[:-1], self.values.size)).copy()
        out[..., self.free] = x
        return out


class PopulationObjective:
    """The user's function and constraints, with a count of calls of the function."""

    def __init__(
        self,
        func: Callable[..., Any],
        args: object,
        constraints: Constraint | Sequence[Constraint] | None,
        fixed: FixedVariables,
        vectorized: bool,
    ) -> None:
        if not callable(func):
            raise InputError(f"func must be a function of x, got {abbreviate(func)}.")
        extra_args = tuple(args) if isinstance(args, tuple | list) else (args,)
        self.func = (lambda x: func(x, *extra_args)) if extra_args else func
        self.constraints: list[Constraint] = [constraints]
        if constraints is None or isinstance(constraints, Sequence):
            self.constraints = list(constraints or ())
        for constraint in self.constraints:
            if not (hasattr(constraint, "lb") and hasattr(constraint, "ub")):
                raise InputError(
                    "constraints must be scipy's NonlinearConstraint, LinearConstraint or Bounds, as in "
                    f"differential_evolution; got {abbreviate(constraint)}."
                )
        self.fixed, self.vectorized = fixed, vectorized
        self.n_calls = 0
        self.map: Map = map
        self.survivors: Population | None = None  # of the generations so far, all variables
        self.error: BaseException | None = None  # what the user's function raised

    def __call__(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """Values (n,) and violation (n, 1) at points (n, free); the function is called where nothing is violated."""
        x = self.fixed.add_fixed(points)
        fun = np.zeros(len(x))
        try:
            violations = np.array([self.violations(row).sum() for row in x]) if self.constraints else np.zeros(len(x))
            is_feasible = violations <= 0
            if self.survivors is not None and len(x) != len(self.survivors.x):  # the answer alone: its constraints
                return {"fun": fun, "ineq": violations[:, None]}
            if is_feasible.any():
                fun[is_feasible] = self.values(x[is_feasible])
        except Exception as error:
            self.error = error
            raise
        fitness = np.where(np.isfinite(fun), fun, np.inf)[:, None]
        columns: Any = (x, fitness, violations if self.constraints else None)
        trials = Population(*columns)
        self.survivors = trials if self.survivors is None else _select(trials, self.survivors)
        return {"fun": fun} | ({"ineq": violations[:, None]} if self.constraints else {})

    def values(self, x: np.ndarray) -> np.ndarray:
        self.n_calls += len(x)
        if self.vectorized:
            return np.asarray(self.func(x.T), np.float64).ravel()
        return np.array([float(np.squeeze(value)) for value in self.map(self.func, x)])

    def value(self, x: np.ndarray) -> float:
        return float(self.values(np.asarray(x)[None])[0])

    def violations(self, x: np.ndarray) -> np.ndarray:
        """Violation of each constraint at x, concatenated; equalities have a tolerance."""
        gaps = []
        for constraint in self.constraints:
            value = np.atleast_1d(constraint_values(constraint, x)).astype(np.float64).ravel()
            lower, upper = (
                np.broadcast_to(np.asarray(side, np.float64), value.shape) for side in (constraint.lb, constraint.ub)
            )
            tolerance = np.where(lower == upper, EQUALITY_WIDTH, 0.0)
            gap = np.maximum(np.maximum(lower - value, value - upper) - tolerance, 0)
            gaps.append(np.where(np.isnan(value), np.inf, gap))
        return np.concatenate(gaps)


def _select(trials: Any, parents: Any) -> Any:
    """Keep the better of each trial and its parent, as `DE.step` does."""
    is_better = np.asarray(no_worse(trials, parents))
    x, fitness = (np.where(is_better[:, None], a, b) for a, b in zip(trials[:2], parents[:2], strict=True))
    violation = None if trials.violation is None else np.where(is_better, trials.violation, parents.violation)
    survivors: Any = (x, fitness, violation)  # of NumPy
    return Population(*survivors)


@contextmanager
def open_map(workers: int | Map) -> Iterator[Map]:
    """Open the map-like callable that evaluates points: the user's, the builtin, or a process pool's."""
    if callable(workers):
        yield workers
    elif workers == 1:
        yield map
    else:
        n_workers = devices.count_cores() if workers == -1 else check_integer(workers, "workers", 1, "-1 for all cores")
        # an executor says when its processes end, where multiprocessing.Pool would replace them for ever
        pool = ProcessPoolExecutor(n_workers, mp_context=multiprocessing.get_context("spawn"))
        with pool:
            try:
                yield lambda function, x: pool.map(
                    _PickledFunction(function), x, chunksize=-(-len(x) // (4 * n_workers))
                )
            except BrokenProcessPool as error:
                raise InputError(
                    'the worker processes ended: put the call under `if __name__ == "__main__":`, unless the function '
                    "itself ends them."
                ) from error


class _PickledFunction:
    """A function pickled for worker processes: by value where they cannot import it, if cloudpickle is installed."""

    def __init__(self, function: Callable[..., object]) -> None:
        by_value = importlib.util.find_spec("cloudpickle") is not None
        self.payload, _ = pickle_functions(Functions({"func": function}), by_value)

    def __call__(self, x: np.ndarray) -> Any:
        return _unpickle(self.payload)(x)


@lru_cache(maxsize=1)
def _unpickle(payload: bytes) -> Callable[..., object]:
    function: Callable[..., object] = pickle.loads(payload)[0]["func"]
    return function
