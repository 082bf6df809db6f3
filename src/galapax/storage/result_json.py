"""Converts results to and from JSON: everything but population, history and other tables."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, MinMaxProblem, Problem, ProblemDescription, missing_function
from galapax.core.stop import Stop
from galapax.core.variables import Space, boolean, choice, integer, real
from galapax.objective.failures import Failed
from galapax.results.result import Result
from galapax.storage.files import FORMAT, to_json

REQUIRED_KEYS = ("x", "fun", "success", "message", "feasible", "violation", "nit", "nfev", "n_failed", "seed",
                 "ineq", "eq", "timings", "settings")  # fmt: skip
OPTIONAL_KEYS = (
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
)  # of `minimax`, of several objectives, or of later versions

BOUND_KEYS = ("lower", "upper", "y_lower", "y_upper")
PROBLEM_KEYS = {"name", "title", "source", "variables", "objectives", "constraint_names", "units", "derived",
                "reference_point", "hypervolume", "eq_tolerance", "optimum"}  # fmt: skip

# types of the entries
RESULT_TYPES: dict[str, Any] = {"success": bool, "feasible": bool, "message": str, "nit": int, "nfev": int,
                                "n_failed": int, "seed": int, "timings": dict, "settings": dict,
                                "problem": dict}  # fmt: skip
SETTINGS_TYPES: dict[str, Any] = {"maximize": bool, "blackbox": bool, "vectorized": bool, "algorithm": str,
                                  "problem": str, "dtype": str, "device": str, "runs": int, "first_run": int,
                                  "hyperparameters": dict, "versions": dict}  # fmt: skip
TIMINGS_TYPES: dict[str, Any] = dict.fromkeys(("compile", "run", "device", "host", "held"), (int, float))
# without which a result cannot be shown; the others came with later versions
REQUIRED_ENTRIES = {
    "settings": ("maximize", "algorithm", "dtype", "device", "runs", "first_run"),
    "timings": ("compile", "run", "host"),
}
STUDY_TYPES: dict[str, Any] = {
    "kind": str,
    "axes": dict,
    "labels": list,
    "targets": list,
    "message": str,
    "paired": bool,
}


def result_to_json(result: Result) -> dict[str, Any]:
    """Convert a result to JSON types: everything but the population and the history."""
    problem = result.problem
    description = {
        "name": problem.name,
        "title": problem.title,
        "source": problem.source,
        "functions": function_names(problem),
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
        description["space"] = {
            "named": problem.space.named,
            "variables": [asdict(variable) for variable in problem.space.variables],
        }
    if isinstance(problem, MinMaxProblem):
        description |= {"y_lower": problem.y_bounds.lower, "y_upper": problem.y_bounds.upper}
    entries = {
        name: result[name] for name in (*REQUIRED_KEYS, *OPTIONAL_KEYS) if name in REQUIRED_KEYS or name in result
    }
    entries["failures"] = [failure._asdict() for failure in result.get("failures", ())]
    if "evaluations" in result:
        errors = result.evaluations.error
        entries["evaluation_errors"] = [[int(row), str(errors[row])] for row in np.flatnonzero(errors != "")]
    named_solution = {"params": result.params} if problem.space is not None else {}
    return to_json({"format": FORMAT, **entries, **named_solution, "problem": description})


def function_names(problem: ProblemDescription) -> list[str]:
    """List which of fun, ineq and eq a problem has."""
    names = ("fun", "ineq", "eq") if isinstance(problem, Problem) else ("fun",)
    return [name for name in names if getattr(problem, name) is not None]


def _parse_problem(description: dict[str, Any]) -> ProblemDescription:
    """Build a problem that can be shown but not evaluated."""
    bound_arrays = {name: _parse_floats(description.pop(name), name) for name in BOUND_KEYS if name in description}
    bounds = Bounds(bound_arrays["lower"], bound_arrays["upper"])
    space = _parse_space(description.pop("space", None))
    functions: dict[str, Any] = dict.fromkeys(description.pop("functions"), missing_function)
    for name in ("optimum", "hypervolume"):
        description[name] = None if description.get(name) is None else _parse_number(description[name], name)
    if description.get("reference_point") is not None:
        description["reference_point"] = _parse_floats(description["reference_point"], "reference_point").tolist()
    try:
        if "y_lower" in bound_arrays:
            metadata = {name: description[name] for name in ("name", "title", "source", "optimum")}
            y_bounds = Bounds(bound_arrays["y_lower"], bound_arrays["y_upper"])
            return MinMaxProblem(x_bounds=bounds, y_bounds=y_bounds, **functions, **metadata)
        if description.get("derived"):
            description["derived"] = dict.fromkeys(description["derived"], missing_function)
        metadata = {name: description[name] for name in PROBLEM_KEYS & description.keys()}
        if space is not None:
            if not (
                np.array_equal(bounds.lower, space.bounds.lower) and np.array_equal(bounds.upper, space.bounds.upper)
            ):
                raise ValueError("its variables are not those of its bounds")
            return Problem(bounds=space.bounds, space=space, **functions, **metadata)
        return Problem(bounds=bounds, **functions, **metadata)
    except InputError as error:
        raise ValueError(f"its problem is not valid: {error}") from None


def _parse_space(description: Any) -> Space | None:
    """Build the declared variables, which validates them."""
    if description is None:
        return None
    variables = []
    for entry in description["variables"]:
        kind, metadata = entry["kind"], {name: entry[name] for name in ("name", "unit")}
        if kind == "choice":
            variables.append(choice(*entry["labels"], **metadata))
        elif kind == "boolean":
            variables.append(boolean(name=entry["name"]))
        elif kind == "integer":
            variables.append(integer(entry["lower"], entry["upper"], **metadata))
        else:
            variables.append(real(entry["lower"], entry["upper"], log=entry["log"], **metadata))
    return Space(tuple(variables), bool(description["named"]))


def result_from_json(data: dict[str, Any]) -> Result:
    """Build a result from the output of `result_to_json`; raise a ValueError, KeyError or TypeError for other data."""
    _check_types(data, RESULT_TYPES, required=True)
    for name, types in (("settings", SETTINGS_TYPES), ("timings", TIMINGS_TYPES)):
        _check_types(data[name], {key: types[key] for key in REQUIRED_ENTRIES[name]}, required=True)
        _check_types(data[name], types, required=False)
    result = Result({name: data[name] for name in REQUIRED_KEYS})
    result["stop"] = Stop(data.get("stop", "budget"))  # results saved by earlier versions do not say it
    result["problem"] = _parse_problem(data["problem"])
    is_multi_objective = isinstance(data["fun"], list)
    result["fun"] = _parse_floats(data["fun"], "fun") if is_multi_objective else _parse_number(data["fun"], "fun")
    result["failures"] = _parse_failures(data.get("failures", ()))
    for name in ("chosen", "polish", "n_cached", "command", "worst_case_nfev"):
        if name in data:
            result[name] = data[name]
    for name in ("hypervolume", "hypervolume_error"):
        if name in data:
            result[name] = _parse_number(data[name], name)
    result["violation"] = math.inf if data["violation"] is None else _parse_number(data["violation"], "violation")
    for name in ("y", "worst_cases"):
        if name in data:
            result[name] = np.array(data[name], np.float64)
    for name in ("worst_case", "worst_case_sure"):
        if name in data:
            result[name] = _parse_number(data[name], name)
    for name in ("x", "ineq", "eq"):
        result[name] = None if data[name] is None else _parse_floats(data[name], name)
    if result.x is None or result.x.size != result.problem.dim or (is_multi_objective and result.fun.size < 2):
        raise ValueError("the length of x or fun does not match its problem")
    return result


def check_study(description: dict[str, Any], n_cells: int) -> None:
    """Raise a ValueError unless a study's description matches its number of cells; convert its targets."""
    _check_types(description, STUDY_TYPES, required=True)
    if not n_cells == len(description["labels"]) == len(description["targets"]):
        raise ValueError("there must be a label and a target for each cell")
    axes = description["axes"]
    if not all(isinstance(values, list) for values in axes.values()):
        raise ValueError("its axes are not lists")
    for labels in description["labels"]:
        if labels.keys() != axes.keys() or any(labels[name] not in axes[name] for name in axes):
            raise ValueError("its labels are not on its axes")
    description["targets"] = [
        None if target is None else _parse_number(target, "targets") for target in description["targets"]
    ]


def _check_types(data: Any, types: dict[str, Any], required: bool) -> None:
    """Raise a ValueError for an entry of another type; a bool does not count as a number."""
    if not isinstance(data, dict):
        raise ValueError(f"it has {abbreviate(data)} where names and values belong")
    for name, expected_type in types.items():
        if name not in data and not required:
            continue
        value = data[name]
        if not isinstance(value, expected_type) or (isinstance(value, bool) and expected_type is not bool):
            raise ValueError(f"its {name} is {abbreviate(value)}")


def _parse_failures(data: Any) -> tuple[Failed, ...]:
    if not all(isinstance(entry, dict) and isinstance(entry.get("error"), str) for entry in data):
        raise ValueError("its failures are not points with errors")
    texts = ((entry["error"], str(entry.get("traceback", ""))) for entry in data)
    points = (_parse_floats(entry.get("x"), "failures") for entry in data)
    return tuple(Failed(x, *text) for x, text in zip(points, texts, strict=True))


def parse_evaluation_errors(data: dict[str, Any]) -> dict[int, str]:
    """Return why calls of a black box failed, by row of evaluations.csv."""
    entries = data.get("evaluation_errors", [])
    if not isinstance(entries, list) or not all(isinstance(entry, list) and len(entry) == 2 for entry in entries):
        raise ValueError("its evaluation_errors are not rows with errors")
    return {int(_parse_number(row, "evaluation_errors")): str(error) for row, error in entries}


def _parse_floats(values: Any, name: str) -> np.ndarray:
    if not isinstance(values, list):
        raise ValueError(f"its {name} is {abbreviate(values)}")
    return np.array([_parse_number(value, name) for value in values], np.float64)


def _parse_number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ValueError(f"its {name} has {abbreviate(value)} where a number belongs")
    return math.nan if value is None else float(value)
