"""A result in JSON's own types, and back: everything but its population, history and other tables."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, MinMaxProblem, Problem, ProblemDescription, missing_function
from galapax.core.stop import Stop
from galapax.core.variables import Space, choice, flag, integer, real
from galapax.evaluation.failures import Failed
from galapax.results.result import Result
from galapax.storage.files import FORMAT, to_json

KEPT = ("x", "fun", "success", "message", "feasible", "violation", "nit", "nfev", "n_failed", "seed", "ineq", "eq",
        "timings", "settings")  # fmt: skip
AT_TIMES = (
    "stop",
    "y",
    "worst_case",
    "worst_case_sure",
    "worst_case_nfev",
    "worst_cases",
    "hypervolume",
    "hypervolume_error",
    "chosen",
    "polish",
    "n_cached",
    "command",
)  # of `minimax`; of several objectives

SIDES = ("lower", "upper", "y_lower", "y_upper")
DESCRIBED = {"name", "title", "source", "variables", "objectives", "constraint_names", "units", "derived",
             "reference_point", "hypervolume", "eq_tolerance", "optimum"}  # fmt: skip

# what JSON has to hold
TYPES: dict[str, Any] = {"success": bool, "feasible": bool, "message": str, "nit": int, "nfev": int, "n_failed": int,
                         "seed": int, "timings": dict, "settings": dict, "problem": dict}  # fmt: skip
SETTINGS: dict[str, Any] = {"maximize": bool, "blackbox": bool, "vectorized": bool, "algorithm": str, "problem": str,
                            "dtype": str, "device": str, "runs": int, "first_run": int, "hyperparameters": dict,
                            "versions": dict}  # fmt: skip
TIMINGS: dict[str, Any] = dict.fromkeys(("compile", "run", "device", "host", "held"), (int, float))
# without which a result cannot be shown; the others came with later versions
SHOWN = {
    "settings": ("maximize", "algorithm", "dtype", "device", "runs", "first_run"),
    "timings": ("compile", "run", "host"),
}
STUDY: dict[str, Any] = {"kind": str, "axes": dict, "labels": list, "targets": list, "message": str, "paired": bool}


def plain_result(result: Result) -> dict[str, Any]:
    """The result in JSON's own types: everything but the population and the history."""
    problem = result.problem
    described = {
        "name": problem.name,
        "title": problem.title,
        "source": problem.source,
        "functions": functions_of(problem),
        "lower": problem.bounds.lower,
        "upper": problem.bounds.upper,
        "variables": problem.variable_names(),
        "objectives": problem.objectives,
        "constraint_names": problem.constraint_names,
        "units": problem.units,
        "derived": list(problem.derived) if problem.derived else None,
        "reference_point": problem.reference_point,
        "hypervolume": problem.hypervolume,
        "eq_tolerance": problem.eq_tolerance,
        "optimum": problem.optimum,
    }
    if problem.space is not None:
        described["space"] = {
            "named": problem.space.named,
            "variables": [asdict(variable) for variable in problem.space.variables],
        }
    if isinstance(problem, MinMaxProblem):
        described |= {"y_lower": problem.y_bounds.lower, "y_upper": problem.y_bounds.upper}
    kept = {name: result[name] for name in (*KEPT, *AT_TIMES) if name in KEPT or name in result}
    kept["failures"] = [{"x": failed.x, "error": failed.error} for failed in result.get("failures", ())]
    named = {"named": result.named} if problem.space is not None else {}
    return to_json({"format": FORMAT, **kept, **named, "problem": described})


def functions_of(problem: ProblemDescription) -> list[str]:
    """The names of the functions that it has."""
    names = ("fun", "ineq", "eq") if isinstance(problem, Problem) else ("fun",)
    return [name for name in names if getattr(problem, name) is not None]


def _problem_from(described: dict[str, Any]) -> ProblemDescription:
    """A problem that can be looked at, not evaluated."""
    sides = {name: _floats(described.pop(name), name) for name in SIDES if name in described}
    bounds = Bounds(sides["lower"], sides["upper"])
    space = _space_from(described.pop("space", None))
    functions: dict[str, Any] = dict.fromkeys(described.pop("functions"), missing_function)
    for name in ("optimum", "hypervolume"):
        described[name] = None if described.get(name) is None else _number(described[name], name)
    if described.get("reference_point") is not None:
        described["reference_point"] = _floats(described["reference_point"], "reference_point").tolist()
    try:
        if "y_lower" in sides:
            told = {name: described[name] for name in ("name", "title", "source", "optimum")}
            y_bounds = Bounds(sides["y_lower"], sides["y_upper"])
            return MinMaxProblem(x_bounds=bounds, y_bounds=y_bounds, **functions, **told)
        if described.get("derived"):
            described["derived"] = dict.fromkeys(described["derived"], missing_function)
        told = {name: described[name] for name in DESCRIBED & described.keys()}
        if space is not None:
            if not (
                np.array_equal(bounds.lower, space.bounds.lower) and np.array_equal(bounds.upper, space.bounds.upper)
            ):
                raise ValueError("its variables are not those of its bounds")
            return Problem(bounds=space.bounds, space=space, **functions, **told)
        return Problem(bounds=bounds, **functions, **told)
    except InputError as error:
        raise ValueError(f"its problem is not valid: {error}") from None


def _space_from(described: Any) -> Space | None:
    """The declared variables, made anew so that what cannot be is noticed."""
    if described is None:
        return None
    made = []
    for one in described["variables"]:
        kind, told = one["kind"], {name: one[name] for name in ("name", "unit")}
        if kind == "choice":
            made.append(choice(*one["labels"], **told))
        elif kind == "flag":
            made.append(flag(name=one["name"]))
        elif kind == "integer":
            made.append(integer(one["lower"], one["upper"], **told))
        else:
            made.append(real(one["lower"], one["upper"], log=one["log"], **told))
    return Space(tuple(made), bool(described["named"]))


def from_plain(data: dict[str, Any]) -> Result:
    """A result from what `plain_result` made of it; a ValueError or the like where that is not what came."""
    _check(data, TYPES, needed=True)
    for name, kind in (("settings", SETTINGS), ("timings", TIMINGS)):
        _check(data[name], {part: kind[part] for part in SHOWN[name]}, needed=True)
        _check(data[name], kind, needed=False)
    result = Result({name: data[name] for name in KEPT})
    result["stop"] = Stop(data.get("stop", "budget"))  # results saved by earlier versions do not say it
    result["problem"] = _problem_from(data["problem"])
    several = isinstance(data["fun"], list)
    result["fun"] = _floats(data["fun"], "fun") if several else _number(data["fun"], "fun")
    result["failures"] = _failures(data.get("failures", ()))
    for name in ("chosen", "polish", "n_cached", "command", "worst_case_nfev"):
        if name in data:
            result[name] = data[name]
    for name in ("hypervolume", "hypervolume_error"):
        if name in data:
            result[name] = _number(data[name], name)
    result["violation"] = math.inf if data["violation"] is None else _number(data["violation"], "violation")
    for name in ("y", "worst_cases"):
        if name in data:
            result[name] = np.array(data[name], np.float64)
    for name in ("worst_case", "worst_case_sure"):
        if name in data:
            result[name] = _number(data[name], name)
    for name in ("x", "ineq", "eq"):
        result[name] = None if data[name] is None else _floats(data[name], name)
    if result.x is None or result.x.size != result.problem.dim or (several and result.fun.size < 2):
        raise ValueError("the length of x or fun does not match its problem")
    return result


def check_study(described: dict[str, Any], cells: int) -> None:
    """Whether a study's description is of its cells."""
    _check(described, STUDY, needed=True)
    if not cells == len(described["labels"]) == len(described["targets"]):
        raise ValueError("there must be a label and a target for each cell")
    axes = described["axes"]
    if not all(isinstance(values, list) for values in axes.values()):
        raise ValueError("its axes are not lists")
    for labels in described["labels"]:
        if labels.keys() != axes.keys() or any(labels[name] not in axes[name] for name in axes):
            raise ValueError("its labels are not on its axes")
    described["targets"] = [None if t is None else _number(t, "targets") for t in described["targets"]]


def _check(data: Any, types: dict[str, Any], needed: bool) -> None:
    """Whether entries are of their types; JSON's true is no number."""
    if not isinstance(data, dict):
        raise ValueError(f"it has {abbreviate(data)} where names and values belong")
    for name, kind in types.items():
        if name not in data and not needed:
            continue
        value = data[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"its {name} is {abbreviate(value)}")


def _failures(data: Any) -> tuple[Failed, ...]:
    if not all(isinstance(one, dict) and isinstance(one.get("error"), str) for one in data):
        raise ValueError("its failures are not points with errors")
    return tuple(Failed(_floats(one.get("x"), "failures"), one["error"]) for one in data)


def _floats(values: Any, name: str) -> np.ndarray:
    if not isinstance(values, list):
        raise ValueError(f"its {name} is {abbreviate(values)}")
    return np.array([_number(value, name) for value in values], np.float64)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ValueError(f"its {name} has {abbreviate(value)} where a number belongs")
    return math.nan if value is None else float(value)
