"""A result in JSON's own types, and back: everything but its population, history and other tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from galapax.core.problem import Bounds, Problem, unavailable
from galapax.results.result import Result
from galapax.storage.files import FORMAT, to_json

KEPT = ("x", "fun", "success", "message", "feasible", "violation", "nit", "nfev", "n_failed", "seed", "ineq", "eq",
        "timings", "settings")  # fmt: skip
AT_TIMES = ("y", "worst_case", "worst_cases", "hypervolume", "chosen")  # of `minimax`; of several objectives


def plain_result(result: Result) -> dict[str, Any]:
    """The result in JSON's own types: everything but the population and the history."""
    problem = result.problem
    described = {
        "name": problem.name,
        "title": problem.title,
        "source": problem.source,
        "functions": [name for name in ("fun", "ineq", "eq") if getattr(problem, name) is not None],
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
    kept = {name: result[name] for name in (*KEPT, *AT_TIMES) if name in KEPT or name in result}
    return to_json({"format": FORMAT, **kept, "problem": described})


def from_plain(data: dict[str, Any]) -> Result:
    data.pop("format", None)  # of a study's cell
    described = data.pop("problem")
    result = Result({name: data[name] for name in KEPT})
    bounds = Bounds(np.array(described.pop("lower"), np.float64), np.array(described.pop("upper"), np.float64))
    functions: dict[str, Any] = dict.fromkeys(described.pop("functions"), unavailable)
    if described.get("derived"):
        described["derived"] = dict.fromkeys(described["derived"], unavailable)
    result["problem"] = Problem(bounds=bounds, **functions, **described)
    several = isinstance(data["fun"], list)
    result["fun"] = np.array(data["fun"], np.float64) if several else _number(data["fun"])
    if "chosen" in data:
        result["chosen"] = data["chosen"]
    if "hypervolume" in data:
        result["hypervolume"] = _number(data["hypervolume"])
    result["violation"] = math.inf if data["violation"] is None else float(data["violation"])
    for name in ("y", "worst_cases"):
        if name in data:
            result[name] = np.array(data[name], np.float64)
    if "worst_case" in data:
        result["worst_case"] = _number(data["worst_case"])
    for name in ("x", "ineq", "eq"):
        result[name] = None if data[name] is None else np.array(data[name], np.float64)
    return result


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
