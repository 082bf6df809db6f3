"""Problems of pymoo, pygmo, COCO and IOHprofiler as ours. They are black boxes: called, point by point or many at once.

Classes and not closures, so that `workers=` can send them to other processes, as far as the problems themselves can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from galapax.core.box import Bounds
from galapax.core.errors import InputError
from galapax.core.problem import Problem
from galapax.core.values import Values, from_fun
from galapax.core.variables import Variable, choice, flag, integer, real


def from_pymoo(problem: Any) -> Problem:
    """A pymoo problem, with its constraints, several objectives and mixed variables (`vars`)."""
    for name in ("evaluate", "n_obj", "n_var"):
        if not hasattr(problem, name):
            raise InputError(f"from_pymoo takes a pymoo Problem; {type(problem).__name__} has no {name!r}.")
    declared = getattr(problem, "vars", None)
    mixed = isinstance(declared, Mapping) and not all(type(v).__name__ == "Real" for v in declared.values())
    variables: Any
    if isinstance(declared, Mapping) and mixed:
        variables = {str(name): _pymoo_variable(variable) for name, variable in declared.items()}
    else:
        variables = _pymoo_box(problem)
    front = _PymooFront(problem) if problem.n_obj > 1 and callable(getattr(problem, "pareto_front", None)) else None
    return Problem(
        _Pymoo(problem, tuple(map(str, declared)) if isinstance(declared, Mapping) and mixed else None),
        variables,
        ineq=from_fun if getattr(problem, "n_ieq_constr", 0) else None,
        eq=from_fun if getattr(problem, "n_eq_constr", 0) else None,
        name=_name(problem, "name"),
        title="a problem of pymoo",
        objectives=[f"f{i + 1}" for i in range(problem.n_obj)] if problem.n_obj > 1 else None,
        front=front,
        blackbox=True,
        vectorized=True,
    )


def _pymoo_box(problem: Any) -> Bounds:
    if problem.xl is None or problem.xu is None:
        raise InputError("the pymoo problem has no xl and xu: galapax needs limits for each variable.")
    size = (int(problem.n_var),)
    lower, upper = (np.broadcast_to(np.asarray(side, np.float64), size).copy() for side in (problem.xl, problem.xu))
    return Bounds(lower, upper)


def _pymoo_variable(variable: Any) -> Variable:
    kind = type(variable).__name__
    if kind in ("Real", "Integer"):
        low, high = variable.bounds
        return integer(int(low), int(high)) if kind == "Integer" else real(float(low), float(high))
    if kind == "Choice":
        return choice(*variable.options)
    if kind == "Binary":
        return flag()
    raise InputError(f"a pymoo variable of the kind {kind} has no counterpart here: real, integer, choice and flag do.")


@dataclass(frozen=True, eq=False)
class _Pymoo:
    problem: Any
    names: tuple[str, ...] | None  # of mixed variables, which pymoo has as dicts

    def __call__(self, x: Any) -> Values:
        if self.names is None:
            given = np.atleast_2d(x)
        else:
            columns = [np.asarray(x[name]).tolist() for name in self.names]
            rows = [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]
            given = np.array(rows, object)
        out = self.problem.evaluate(given, return_as_dictionary=True)
        limits = {name: out.get(part) for name, part in (("ineq", "G"), ("eq", "H"))}
        some = {name: v if v is not None and np.size(v) else None for name, v in limits.items()}
        return Values(fun=np.asarray(out["F"], np.float64), **some)


@dataclass(frozen=True, eq=False)
class _PymooFront:
    problem: Any

    def __call__(self, n: int) -> np.ndarray:
        points = self.problem.pareto_front()
        if points is None:
            raise InputError("the pymoo problem does not know its front.")
        rows = np.unique(np.linspace(0, len(points) - 1, min(n, len(points))).astype(int))
        return np.asarray(points, np.float64)[rows]


def from_pygmo(problem: Any) -> Problem:
    """A pygmo problem, or a user-defined one (UDP) by itself: an object with `fitness` and `get_bounds`.

    As in pygmo, fitness gives objectives, then equalities, then inequalities, and the last `get_nix` variables are
    integers.
    """
    for name in ("fitness", "get_bounds"):
        if not callable(getattr(problem, name, None)):
            raise InputError(f"from_pygmo takes a problem with fitness and get_bounds; {short_type(problem)} has none.")
    lower, upper = (np.asarray(side, np.float64) for side in problem.get_bounds())
    usual = {"get_nobj": 1, "get_nec": 0, "get_nic": 0}
    counts = {name: _count(problem, name, count) for name, count in usual.items()}
    return Problem(
        _Pygmo(problem, *counts.values()),
        _with_integers(lower, upper, lower.size - _count(problem, "get_nix", 0), lower.size),
        ineq=from_fun if counts["get_nic"] else None,
        eq=from_fun if counts["get_nec"] else None,
        name=_name(problem, "get_name"),
        title="a problem of pygmo",
        objectives=[f"f{i + 1}" for i in range(counts["get_nobj"])] if counts["get_nobj"] > 1 else None,
        blackbox=True,
    )


@dataclass(frozen=True, eq=False)
class _Pygmo:
    problem: Any
    objectives: int
    equalities: int
    inequalities: int

    def __call__(self, x: np.ndarray) -> Values:
        values = np.asarray(self.problem.fitness(x), np.float64)
        ends = np.cumsum([self.objectives, self.equalities, self.inequalities])
        fun, eq, ineq = np.split(values, ends[:2])
        return Values(fun, ineq if self.inequalities else None, eq if self.equalities else None)


def from_coco(problem: Any) -> Problem:
    """A problem of a COCO suite (`cocoex.Suite`): bbob, bbob-constrained, bbob-biobj, bbob-mixint and so on."""
    for name in ("lower_bounds", "upper_bounds", "number_of_objectives"):
        if not hasattr(problem, name):
            raise InputError(f"from_coco takes a problem of cocoex; {short_type(problem)} has no {name!r}.")
    whole = int(getattr(problem, "number_of_integer_variables", 0) or 0)
    lower, upper = (np.asarray(side, np.float64) for side in (problem.lower_bounds, problem.upper_bounds))
    count = int(problem.number_of_objectives)
    limits = int(getattr(problem, "number_of_constraints", 0) or 0)
    return Problem(
        _Coco(problem, limits),
        _with_integers(lower, upper, 0, whole),
        ineq=from_fun if limits else None,
        name=_name(problem, "id"),
        title="a problem of COCO",
        objectives=[f"f{i + 1}" for i in range(count)] if count > 1 else None,
        blackbox=True,
    )


@dataclass(frozen=True, eq=False)
class _Coco:
    problem: Any
    constraints: int

    def __call__(self, x: np.ndarray) -> Values:
        limits = np.asarray(self.problem.constraint(x), np.float64) if self.constraints else None
        return Values(np.asarray(self.problem(x), np.float64), limits)


def from_ioh(problem: Any) -> Problem:
    """A problem of IOHprofiler (`ioh.get_problem`), as one to be minimised: maximised ones change their sign."""
    for name in ("bounds", "meta_data"):
        if not hasattr(problem, name):
            raise InputError(f"from_ioh takes a problem of ioh; {short_type(problem)} has no {name!r}.")
    size = int(problem.meta_data.n_variables)
    sides = (np.broadcast_to(np.asarray(side, np.float64), (size,)) for side in (problem.bounds.lb, problem.bounds.ub))
    lower, upper = sides
    largest = "MAX" in str(problem.meta_data.optimization_type)
    discrete = "Int" in type(problem).__name__ or "int" in str(getattr(problem.bounds.lb, "dtype", ""))
    known = getattr(problem.optimum, "y", None)
    best = None if known is None or not np.isfinite(known) else float(-known if largest else known)
    return Problem(
        _Ioh(problem, largest, discrete),
        _with_integers(lower, upper, 0, size if discrete else 0),
        name=str(problem.meta_data.name),
        title="a problem of IOHprofiler" + (", with the sign changed" if largest else ""),
        optimum=best,
        blackbox=True,
    )


@dataclass(frozen=True, eq=False)
class _Ioh:
    problem: Any
    largest: bool
    discrete: bool

    def __call__(self, x: np.ndarray) -> float:
        value = float(self.problem(x.astype(int) if self.discrete else x))
        return -value if self.largest else value


def _with_integers(lower: np.ndarray, upper: np.ndarray, first: int, end: int) -> Any:
    """A box, or variables of which those from `first` to before `end` are integers."""
    if first >= end:
        return Bounds(lower.copy(), upper.copy())
    pairs = list(zip(lower.tolist(), upper.tolist(), strict=True))
    return [integer(int(a), int(b)) if first <= i < end else real(a, b) for i, (a, b) in enumerate(pairs)]


def _count(problem: Any, name: str, usual: int) -> int:
    ask = getattr(problem, name, None)
    return int(ask()) if callable(ask) else usual


def _name(problem: Any, attribute: str) -> str:
    found = getattr(problem, attribute, None)
    found = found() if callable(found) else found
    return found if isinstance(found, str) and found else type(problem).__name__


def short_type(value: Any) -> str:
    return f"an object of type {type(value).__name__}"
