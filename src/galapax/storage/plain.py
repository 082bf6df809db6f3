"""A result in JSON's own types, and back: everything but its population, history and other tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from galapax.core.problem import Bounds, Described, MinMaxProblem, Problem, unavailable
from galapax.core.stop import Stop
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
    "worst_cases",
    "hypervolume",
    "chosen",
    "polish",
    "n_cached",
)  # of `minimax`; of several objectives

SIDES = ("lower", "upper", "y_lower", "y_upper")


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
    if isinstance(problem, MinMaxProblem):
        described |= {"y_lower": problem.y_bounds.lower, "y_upper": problem.y_bounds.upper}
    kept = {name: result[name] for name in (*KEPT, *AT_TIMES) if name in KEPT or name in result}
    kept["failures"] = [{"x": failed.x, "error": failed.error} for failed in result.get("failures", ())]
    return to_json({"format": FORMAT, **kept, "problem": described})


def functions_of(problem: Described) -> list[str]:
    """The names of the functions that it has."""
    names = ("fun", "ineq", "eq") if isinstance(problem, Problem) else ("fun",)
    return [name for name in names if getattr(problem, name) is not None]


def _problem_from(described: dict[str, Any]) -> Described:
    """A problem that can be looked at, not evaluated."""
    sides = {name: np.array(described.pop(name), np.float64) for name in SIDES if name in described}
    bounds = Bounds(sides["lower"], sides["upper"])
    functions: dict[str, Any] = dict.fromkeys(described.pop("functions"), unavailable)
    if "y_lower" in sides:
        told = {name: described[name] for name in ("name", "title", "source", "optimum")}
        return MinMaxProblem(x_bounds=bounds, y_bounds=Bounds(sides["y_lower"], sides["y_upper"]), **functions, **told)
    if described.get("derived"):
        described["derived"] = dict.fromkeys(described["derived"], unavailable)
    return Problem(bounds=bounds, **functions, **described)


def from_plain(data: dict[str, Any]) -> Result:
    data.pop("format", None)  # of a study's cell
    described = data.pop("problem")
    result = Result({name: data[name] for name in KEPT})
    result["stop"] = Stop(data.get("stop", "budget"))  # results saved by earlier versions do not say it
    result["problem"] = _problem_from(described)
    several = isinstance(data["fun"], list)
    result["fun"] = np.array(data["fun"], np.float64) if several else _number(data["fun"])
    result["failures"] = tuple(Failed(np.array(f["x"], np.float64), f["error"]) for f in data.get("failures", ()))
    for name in ("chosen", "polish", "n_cached"):
        if name in data:
            result[name] = data[name]
    if "hypervolume" in data:
        result["hypervolume"] = _number(data["hypervolume"])
    result["violation"] = math.inf if data["violation"] is None else float(data["violation"])
    for name in ("y", "worst_cases"):
        if name in data:
            result[name] = np.array(data[name], np.float64)
    for name in ("worst_case", "worst_case_sure"):
        if name in data:
            result[name] = _number(data[name])
    for name in ("x", "ineq", "eq"):
        result[name] = None if data[name] is None else np.array(data[name], np.float64)
    return result


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
