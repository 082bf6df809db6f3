"""Convert problems of pymoo, pygmo, COCO and IOHprofiler into ours.

The problems become black boxes, evaluated point by point or many at once. Their objectives are classes, not closures,
so that `workers=` can send them to other processes, as far as the problems themselves can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from galapax.core.errors import InputError
from galapax.core.problem import Evaluation, Problem, returned_by_fun
from galapax.core.space import Bounds
from galapax.core.variables import Variable, boolean, choice, integer, real

if TYPE_CHECKING:
    import cocoex
    import ioh
    import pygmo
    from pymoo.core.problem import Problem as PymooProblem
    from pymoo.core.variable import Variable as PymooVariable


def convert_problem(source: object) -> Any:
    """Convert a problem of another library, known by its attributes; return anything else as it is."""
    for names, convert in (
        (("evaluate", "n_obj", "n_var"), from_pymoo),
        (("fitness", "get_bounds"), from_pygmo),
        (("lower_bounds", "upper_bounds", "number_of_objectives"), from_coco),
        (("bounds", "meta_data", "optimum"), from_ioh),
    ):
        if all(hasattr(source, name) for name in names):
            return convert(source)
    return source


def from_pymoo(problem: PymooProblem) -> Problem:
    """Convert a pymoo problem, with its constraints, several objectives and mixed variables (`vars`)."""
    for name in ("evaluate", "n_obj", "n_var"):
        if not hasattr(problem, name):
            raise InputError(f"from_pymoo takes a pymoo Problem; {type(problem).__name__} has no {name!r}.")
    declared = getattr(problem, "vars", None)
    is_mixed = isinstance(declared, Mapping) and not all(type(v).__name__ == "Real" for v in declared.values())
    variables: Any  # Bounds, or Variables by name
    if isinstance(declared, Mapping) and is_mixed:
        variables = {str(name): _pymoo_variable(variable) for name, variable in declared.items()}
    else:
        variables = _pymoo_box(problem)
    front = _PymooFront(problem) if problem.n_obj > 1 and callable(getattr(problem, "pareto_front", None)) else None
    return Problem(
        _PymooObjective(problem, tuple(map(str, declared)) if isinstance(declared, Mapping) and is_mixed else None),
        variables,
        ineq=returned_by_fun if getattr(problem, "n_ieq_constr", 0) else None,
        eq=returned_by_fun if getattr(problem, "n_eq_constr", 0) else None,
        name=_problem_name(problem, "name"),
        title="a problem of pymoo",
        objectives=[f"f{i + 1}" for i in range(problem.n_obj)] if problem.n_obj > 1 else None,
        front=front,
        blackbox=True,
        vectorized=True,
    )


def _pymoo_box(problem: PymooProblem) -> Bounds:
    if problem.xl is None or problem.xu is None:
        raise InputError("the pymoo problem has no xl and xu: galapax needs limits for each variable.")
    size = (int(problem.n_var),)
    lower, upper = (np.broadcast_to(np.asarray(side, np.float64), size).copy() for side in (problem.xl, problem.xu))
    return Bounds(lower, upper)


def _pymoo_variable(variable: PymooVariable) -> Variable:
    kind = type(variable).__name__
    if kind in ("Real", "Integer"):
        low, high = variable.bounds
        return integer(int(low), int(high)) if kind == "Integer" else real(float(low), float(high))
    if kind == "Choice":
        return choice(*variable.options)
    if kind == "Binary":
        return boolean()
    raise InputError(
        f"a pymoo variable of the kind {kind} has no counterpart here: real, integer, choice and boolean do."
    )


@dataclass(frozen=True, eq=False)
class _PymooObjective:
    problem: PymooProblem
    names: tuple[str, ...] | None  # of mixed variables, which pymoo has as dicts

    def __call__(self, x: np.ndarray) -> Evaluation:
        if self.names is None:
            points = np.atleast_2d(x)
        else:
            columns = [np.asarray(x[name]).tolist() for name in self.names]
            rows = [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]
            points = np.array(rows, object)
        out = self.problem.evaluate(points, return_as_dictionary=True)
        groups = {name: out.get(key) for name, key in (("ineq", "G"), ("eq", "H"))}
        constraints = {name: v if v is not None and np.size(v) else None for name, v in groups.items()}
        return Evaluation(fun=np.asarray(out["F"], np.float64), **constraints)


@dataclass(frozen=True, eq=False)
class _PymooFront:
    problem: PymooProblem

    def __call__(self, n: int) -> np.ndarray:
        points = self.problem.pareto_front()
        if points is None:
            raise InputError("the pymoo problem does not know its front.")
        rows = np.unique(np.linspace(0, len(points) - 1, min(n, len(points))).astype(int))
        return np.asarray(points, np.float64)[rows]


def from_pygmo(problem: pygmo.problem) -> Problem:
    """Convert a pygmo problem, or a user-defined one (UDP) by itself: an object with `fitness` and `get_bounds`.

    As in pygmo, fitness gives objectives, then equalities, then inequalities, and the last `get_nix` variables are
    integers.
    """
    for name in ("fitness", "get_bounds"):
        if not callable(getattr(problem, name, None)):
            raise InputError(
                f"from_pygmo takes a problem with fitness and get_bounds; {_describe_type(problem)} has none."
            )
    lower, upper = (np.asarray(side, np.float64) for side in problem.get_bounds())
    defaults = {"get_nobj": 1, "get_nec": 0, "get_nic": 0}
    counts = {name: _count(problem, name, count) for name, count in defaults.items()}
    return Problem(
        _PygmoObjective(problem, *counts.values()),
        _with_integers(lower, upper, lower.size - _count(problem, "get_nix", 0), lower.size),
        ineq=returned_by_fun if counts["get_nic"] else None,
        eq=returned_by_fun if counts["get_nec"] else None,
        name=_problem_name(problem, "get_name"),
        title="a problem of pygmo",
        objectives=[f"f{i + 1}" for i in range(counts["get_nobj"])] if counts["get_nobj"] > 1 else None,
        blackbox=True,
    )


@dataclass(frozen=True, eq=False)
class _PygmoObjective:
    problem: pygmo.problem
    objectives: int
    equalities: int
    inequalities: int

    def __call__(self, x: np.ndarray) -> Evaluation:
        values = np.asarray(self.problem.fitness(x), np.float64)
        ends = np.cumsum([self.objectives, self.equalities, self.inequalities])
        fun, eq, ineq = np.split(values, ends[:2])
        return Evaluation(fun, ineq if self.inequalities else None, eq if self.equalities else None)


def from_coco(problem: cocoex.Problem) -> Problem:
    """Convert a problem of a COCO suite (`cocoex.Suite`): bbob, bbob-constrained, bbob-biobj, bbob-mixint and so on."""
    for name in ("lower_bounds", "upper_bounds", "number_of_objectives"):
        if not hasattr(problem, name):
            raise InputError(f"from_coco takes a problem of cocoex; {_describe_type(problem)} has no {name!r}.")
    n_integers = int(getattr(problem, "number_of_integer_variables", 0) or 0)
    lower, upper = (np.asarray(side, np.float64) for side in (problem.lower_bounds, problem.upper_bounds))
    n_objectives = int(problem.number_of_objectives)
    n_constraints = int(getattr(problem, "number_of_constraints", 0) or 0)
    return Problem(
        _CocoObjective(problem, n_constraints),
        _with_integers(lower, upper, 0, n_integers),
        ineq=returned_by_fun if n_constraints else None,
        name=_problem_name(problem, "id"),
        title="a problem of COCO",
        objectives=[f"f{i + 1}" for i in range(n_objectives)] if n_objectives > 1 else None,
        blackbox=True,
    )


@dataclass(frozen=True, eq=False)
class _CocoObjective:
    problem: cocoex.Problem
    constraints: int

    def __call__(self, x: np.ndarray) -> Evaluation:
        inequalities = np.asarray(self.problem.constraint(x), np.float64) if self.constraints else None
        return Evaluation(np.asarray(self.problem(x), np.float64), inequalities)


def from_ioh(problem: ioh.ProblemType) -> Problem:
    """Convert a problem of IOHprofiler (`ioh.get_problem`); one that is maximised changes its sign."""
    for name in ("bounds", "meta_data"):
        if not hasattr(problem, name):
            raise InputError(f"from_ioh takes a problem of ioh; {_describe_type(problem)} has no {name!r}.")
    size = int(problem.meta_data.n_variables)
    sides = (np.broadcast_to(np.asarray(side, np.float64), (size,)) for side in (problem.bounds.lb, problem.bounds.ub))
    lower, upper = sides
    is_maximised = "MAX" in str(problem.meta_data.optimization_type)
    is_integer = "Int" in type(problem).__name__ or "int" in str(getattr(problem.bounds.lb, "dtype", ""))
    optimum = getattr(problem.optimum, "y", None)
    optimum_to_minimise = (
        None if optimum is None or not np.isfinite(optimum) else float(-optimum if is_maximised else optimum)
    )
    return Problem(
        _IohObjective(problem, is_maximised, is_integer),
        _with_integers(lower, upper, 0, size if is_integer else 0),
        name=str(problem.meta_data.name),
        title="a problem of IOHprofiler" + (", with the sign changed" if is_maximised else ""),
        optimum=optimum_to_minimise,
        blackbox=True,
    )


@dataclass(frozen=True, eq=False)
class _IohObjective:
    problem: ioh.ProblemType
    is_maximised: bool
    is_integer: bool

    def __call__(self, x: np.ndarray) -> float:
        value = float(self.problem(x.astype(int) if self.is_integer else x))
        return -value if self.is_maximised else value


def _with_integers(lower: np.ndarray, upper: np.ndarray, first: int, end: int) -> Any:
    """Make a box, or variables of which those from `first` to before `end` are integers."""
    if first >= end:
        return Bounds(lower.copy(), upper.copy())
    pairs = list(zip(lower.tolist(), upper.tolist(), strict=True))
    return [integer(int(a), int(b)) if first <= i < end else real(a, b) for i, (a, b) in enumerate(pairs)]


def _count(problem: pygmo.problem, name: str, default: int) -> int:
    method = getattr(problem, name, None)
    return int(method()) if callable(method) else default


def _problem_name(problem: object, attribute: str) -> str:
    name = getattr(problem, attribute, None)
    name = name() if callable(name) else name
    return name if isinstance(name, str) and name else type(problem).__name__


def _describe_type(value: object) -> str:
    return f"an object of type {type(value).__name__}"
