"""What people bring from other libraries: accepted where it has one meaning, else answered with its word here."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import jax.numpy as jnp
import numpy as np

from galapax.core.checks import short
from galapax.core.errors import InputError, UnknownArgument, unknown_name
from galapax.core.problem import Function, Problem
from galapax.core.space import is_variables, with_integers

P = ParamSpec("P")
R = TypeVar("R")

_LIMIT = "generations, max_evaluations, max_seconds, target, stall or tolerance, several at once if you like"
_PROGRESS = "a progress line appears by itself on a terminal; progress=True or False decides it"
WORDS = {
    "maxiter": "write generations",
    "max_iter": "write generations",
    "niter": "write generations",
    "n_gen": "write generations",
    "ngen": "write generations",
    "gen": "write generations",
    "n_iter": "write generations",
    "iterations": "write generations",
    "epochs": "write generations",
    "gens": "write generations",
    "max_generations": "write generations",
    "maxfun": "write max_evaluations",
    "maxfev": "write max_evaluations",
    "maxfevals": "write max_evaluations",
    "max_nfev": "write max_evaluations",
    "n_evals": "write max_evaluations",
    "n_eval": "write max_evaluations",
    "n_trials": "write max_evaluations",
    "budget": "write max_evaluations",
    "termination": f"write {_LIMIT}",
    "popsize": "write population, the number of individuals (scipy multiplies its popsize by the number of variables)",
    "pop_size": "write population",
    "pop": "write population",
    "npop": "write population",
    "n_pop": "write population",
    "NP": "write population",
    "F": "write algorithm=gx.DE(weight=0.5)",
    "CR": "write algorithm=gx.DE(crossover_rate=0.9)",
    "cxpb": "write algorithm=gx.GA() or another with the rates that it has; galapax list shows them",
    "mutpb": "write algorithm=gx.GA() or another with the rates that it has; galapax list shows them",
    "sigma0": "write algorithm=gx.CMAES(spread=0.2), a share of the box",
    "stop_fitness": "write target",
    "ftarget": "write target",
    "tol": "write tolerance, a share of the box within which a population counts as converged",
    "atol": "write tolerance, a share of the box within which a population counts as converged",
    "ftol": "write stall, generations without a better value, or tolerance, a share of the box",
    "xtol": "write tolerance, a share of the box",
    "tolfun": "write stall, generations without a better value, or tolerance, a share of the box",
    "tolx": "write tolerance, a share of the box",
    "method": 'write algorithm, such as algorithm="de"',
    "solver": 'write algorithm, such as algorithm="de"',
    "sampler": 'write algorithm, such as algorithm="cmaes"',
    "strategy": "write algorithm=gx.DE(mutation=gx.rand_1) for rand1bin, or gx.best_1 for best1bin",
    "mutation": "write algorithm=gx.DE(weight=0.5)",
    "recombination": "write algorithm=gx.DE(crossover_rate=0.9)",
    "updating": "leave it out: a generation is always evaluated together (scipy's 'deferred'), and asynchronous=True "
    "does without generations",
    "disp": f"leave it out: {_PROGRESS}",
    "verbose": f"leave it out: {_PROGRESS}",
    "show_progress_bar": f"leave it out: {_PROGRESS}",
    "n_jobs": "write workers, -1 for all cores; functions of jax.numpy need none",
    "parallel": "write workers, -1 for all cores; functions of jax.numpy need none",
    "device": "leave it out: JAX chooses the device, a GPU if it has one; JAX_PLATFORMS=cpu keeps it from that",
    "gpu": "leave it out: JAX chooses the device, a GPU if it has one; JAX_PLATFORMS=cpu keeps it from that",
    "repeats": "write runs",
    "repetitions": "write runs",
    "rng": "write seed, a whole number, or None to have one drawn",
    "random_state": "write seed, a whole number, or None to have one drawn",
    "random_seed": "write seed, a whole number, or None to have one drawn",
    "direction": "write maximize=True, or leave it out",
    "directions": "write maximize=True for all objectives; turn single ones by returning them with a minus sign",
    "maximise": "write maximize=True",
    "minimise": "leave it out: values are minimised unless maximize=True",
    "minimize": "leave it out: values are minimised unless maximize=True",
    "init": "write initial, points to start from",
    "sampling": "write initial, points to start from",
    "lb": "write bounds, one (lower, upper) pair per variable",
    "ub": "write bounds, one (lower, upper) pair per variable",
    "lower": "write bounds, one (lower, upper) pair per variable",
    "upper": "write bounds, one (lower, upper) pair per variable",
    "dim": "leave it out: bounds has one (lower, upper) pair per variable, such as [(-5, 5)] * 10",
    "objective": "write fun, or give the function first, without a name",
    "name": "write gx.Problem(fun, bounds, name=...) in place of fun and bounds",
    "names": "give the names in bounds: {'width': gx.real(0, 1), ...}",
    "log": "write gx.real(1e-3, 10, log=True) in bounds, for each variable that is to have a logarithmic scale",
    "out": "leave it out and save the result: result.save('runs/first')",
    "save": "leave it out and save the result: result.save('runs/first')",
    "jac": "leave it out: gradients come from JAX, where the polish needs them",
    "hess": "leave it out: gradients come from JAX, where the polish needs them",
    "options": f"give its entries as arguments: {_LIMIT}",
    "save_history": "leave it out: history is kept; history='x' keeps the best x of each generation too",
    "return_all": "write history='x'",
    "callbacks": "write callback, a function of a Progress; returning True stops the run",
}

LISTED = 12  # arguments that a sentence names


def welcoming(function: Callable[P, R]) -> Callable[P, R]:
    """A verb that answers words of other libraries, and takes scipy's `minimize(f, x0, bounds=B)`."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def verb(*given: Any, **named: Any) -> R:
        positional = list(given)
        if len(positional) == 2 and "bounds" in named and "x0" in known:
            named.setdefault("x0", positional.pop())
        for name in named:
            if name not in known:
                raise answered(name, known, function.__name__, named[name])
        return function(*positional, **named)

    return verb


def answered(name: str, known: Iterable[str], verb: str, value: Any = None) -> InputError:
    """The sentence about a keyword that is not one here."""
    if name in WORDS:
        same = re.fullmatch(r"write \w+", WORDS[name]) and isinstance(value, int | float)
        return UnknownArgument(f"{verb} has no {name!r}: {WORDS[name]}{f'={value}' if same else ''}.")
    known = list(known)
    listed = f"help(gx.{verb}) lists all {len(known)}." if len(known) > LISTED else None
    return UnknownArgument(str(unknown_name(f"argument of {verb}", name, known, listed)))


def described(
    fun: Any, bounds: Any, ineq: Any, eq: Any, *, args: Any = (), constraints: Any = None, integrality: Any = None
) -> tuple[Any, Any, Any, Any]:
    """fun, bounds, ineq and eq with what scipy's words add to them."""
    if isinstance(fun, Problem):
        for name, value in (("args", args), ("constraints", constraints), ("integrality", integrality)):
            if value is not None and not _nothing(value):
                raise InputError(f"a Problem has its functions and variables: leave {name} out or use problem.with_.")
        return fun, bounds, ineq, eq
    if integrality is not None:
        if is_variables(bounds):
            raise InputError("variables say themselves which are integers: leave integrality out.")
        bounds = with_integers(bounds, integrality)
    if not _nothing(args):
        further = tuple(args) if isinstance(args, tuple | list) else (args,)
        fun, ineq, eq = _with_args(fun, further), _with_args(ineq, further), _with_args(eq, further)
    ineq, eq = _joined("ineq", ineq), _joined("eq", eq)
    if constraints is not None:
        own_ineq, own_eq = _from_scipy(constraints, isinstance(bounds, Mapping))
        ineq, eq = _both(ineq, own_ineq), _both(eq, own_eq)
    return fun, bounds, ineq, eq


def _nothing(args: Any) -> bool:
    return isinstance(args, tuple) and not args


def starting(initial: Any, x0: Any) -> Any:
    """Starting points, by either name."""
    if x0 is not None and initial is not None:
        raise InputError("x0 and initial both give starting points: leave one out.")
    return initial if x0 is None else x0


# Classes and not closures, so that a problem can be sent to other processes.


@dataclass(frozen=True)
class _Partly:
    """A function with further arguments after x."""

    function: Function
    further: tuple[Any, ...]

    def __call__(self, x: Any) -> Any:
        return self.function(x, *self.further)

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


@dataclass(frozen=True)
class _All:
    """Several constraint functions as one."""

    functions: tuple[Function, ...]

    def __call__(self, x: Any) -> Any:
        values = [function(x) for function in self.functions]
        xp = jnp if any(not isinstance(v, int | float | np.ndarray | np.generic | list | tuple) for v in values) else np
        return xp.concatenate([xp.ravel(xp.asarray(value)) for value in values])


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
class _Turned:
    """scipy's constraint of at least 0 as one of at most 0."""

    function: Function

    def __call__(self, x: Any) -> Any:
        value = self.function(x)
        return -np.asarray(value) if isinstance(value, list | tuple) else -value


def _with_args(function: Any, further: tuple[Any, ...]) -> Any:
    if isinstance(function, list | tuple):
        return [_with_args(one, further) for one in function]
    return _Partly(function, further) if callable(function) else function


def _joined(name: str, given: Any) -> Any:
    """One constraint function from a list of them."""
    if not isinstance(given, list | tuple):
        return given
    for one in given:
        if not callable(one):
            raise InputError(f"{name} must be a function of one solution, or a list of them; it has {short(one)}.")
    return _All(tuple(given)) if given else None


def _both(first: Any, second: list[Function]) -> Any:
    functions = ([first] if first is not None else []) + second
    return functions[0] if len(functions) == 1 else _All(tuple(functions)) if functions else None


def _from_scipy(given: Any, named: bool) -> tuple[list[Function], list[Function]]:
    """Inequalities and equalities from scipy's constraints: its objects, dicts, or a list of these."""
    ineq: list[Function] = []
    eq: list[Function] = []
    several = isinstance(given, Sequence) and not isinstance(given, str)
    for one in given if several else [given]:
        if isinstance(one, Mapping) and one.get("type") in ("ineq", "eq") and callable(one.get("fun")):
            function = _with_args(one["fun"], tuple(one.get("args", ()))) if one.get("args") else one["fun"]
            (eq if one["type"] == "eq" else ineq).append(function if one["type"] == "eq" else _Turned(function))
        elif hasattr(one, "lb") and hasattr(one, "ub"):
            _add_sides(one, named, ineq, eq)
        else:
            raise InputError(
                "constraints takes scipy's NonlinearConstraint, LinearConstraint or Bounds, its dicts, or a list of "
                f"these; for functions write ineq (met when g(x) <= 0) and eq (when h(x) = 0); got {short(one)}."
            )
    return ineq, eq


def _add_sides(one: Any, named: bool, ineq: list[Function], eq: list[Function]) -> None:
    """What an object with lower and upper limits asks for."""
    if hasattr(one, "fun"):
        function: Function = one.fun
    elif named:
        raise InputError("linear constraints are of a vector x, and these variables have names: give them in a list.")
    else:
        matrix: Any = getattr(one, "A", np.eye(np.size(one.lb)))
        dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
        function = _Linear(np.atleast_2d(np.asarray(dense, np.float64)))
    lower, upper = np.broadcast_arrays(np.asarray(one.lb, np.float64), np.asarray(one.ub, np.float64))
    for side, wanted, limits in (
        ("equal", lower == upper, lower),
        ("lower", (lower != upper) & np.isfinite(lower), lower),
        ("upper", (lower != upper) & np.isfinite(upper), upper),
    ):
        if wanted.any():
            rows = None if wanted.all() else np.flatnonzero(wanted)
            (eq if side == "equal" else ineq).append(_Within(function, side, np.atleast_1d(limits[wanted]), rows))
