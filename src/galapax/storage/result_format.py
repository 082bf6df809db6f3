"""Converts results and studies to JSON types and named arrays, and back.

JSON has what is said of a result in a few numbers and words; the arrays have population, front, history, runs and
snapshots. Data from a file are checked as they are read: a ValueError, KeyError or TypeError says what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from galapax.core.algorithm import Forecast
from galapax.core.checks import abbreviate, as_integer_if_whole
from galapax.core.errors import InputError
from galapax.core.problem import (
    Bounds,
    MinMaxProblem,
    Population,
    Problem,
    ProblemDescription,
    check_direction_count,
    check_maximize,
    missing_function,
)
from galapax.core.space import Space
from galapax.core.stop import Stop
from galapax.core.variables import boolean, choice, integer, real
from galapax.objective.evaluation_log import Failed
from galapax.results.evaluations import N_CALL_COLUMNS, Evaluations, evaluations_from_table
from galapax.results.front import Front
from galapax.results.many_answers import Minima
from galapax.results.result import History, Result, Robust, Runs, find_start, record_start
from galapax.results.study import Study

FORMAT = 1

JSON = dict[str, Any]  # names and values, as `json.loads` returns them
Arrays = dict[str, np.ndarray]

# --- JSON -------------------------------------------------------------------------------------------------------------

REQUIRED_KEYS = ("stop", "x", "fun", "success", "message", "feasible", "violation", "nit", "nfev", "n_failed", "seed",
                 "ineq", "eq", "timings", "settings")  # fmt: skip
OPTIONAL_KEYS = (
    "y",
    "worst_case",
    "worst_case_sure",
    "worst_case_nfev",
    "worst_cases",
    "hypervolume",
    "hypervolume_error",
    "confidence",
    "chosen",
    "polish",
    "refinements",
    "restarted",
    "n_cached",
    "command",
    "fun_interval",
    "unseen",
)  # of `minimax`, of several objectives, or of what was asked for

BOUND_KEYS = ("lower", "upper", "y_lower", "y_upper")
PROBLEM_KEYS = {"name", "title", "source", "variables", "objectives", "constraint_names", "units", "derived",
                "reference_point", "hypervolume", "eq_tolerance", "optimum"}  # fmt: skip

# types of the entries
RESULT_TYPES: dict[str, object] = {"success": bool, "feasible": bool, "message": str, "nit": int, "nfev": int,
                                "n_failed": int, "seed": int, "timings": dict, "settings": dict,
                                "problem": dict}  # fmt: skip
SETTINGS_TYPES: dict[str, object] = {"maximize": bool | list, "blackbox": bool, "vectorized": bool, "algorithm": str,
                                  "problem": str, "dtype": str, "device": str, "runs": int, "first_run": int,
                                  "hyperparameters": dict, "versions": dict}  # fmt: skip
TIMINGS_TYPES: dict[str, object] = dict.fromkeys(("compile", "run", "device", "host", "held"), (int, float))
# without which a result cannot be shown
REQUIRED_ENTRIES = {
    "settings": ("maximize", "algorithm", "dtype", "device", "runs", "first_run"),
    "timings": ("compile", "run", "host"),
}
STUDY_TYPES: dict[str, object] = {
    "kind": str,
    "axes": dict,
    "labels": list,
    "targets": list,
    "message": str,
    "paired": bool,
    "stop": str,
}
STUDY_FIELDS = ("kind", "axes", "labels", "targets", "message", "paired", "stop")


def to_json(value: object) -> Any:
    """Convert a value to JSON types; NaN and infinities become null."""
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def study_to_json(study: Study) -> JSON:
    """Convert a study to JSON types: everything but the arrays of its cells."""
    description = {name: getattr(study, name) for name in STUDY_FIELDS}
    cells = [result_to_json(result) for result in study.results]
    return to_json({"format": FORMAT, **description, "cells": cells})


def study_from_json(data: JSON) -> Study:
    """Build a study from the output of `study_to_json`; its cells have no arrays yet."""
    results = [result_from_json(cell) for cell in data["cells"]]
    _check_study(data, len(results))
    targets = [None if target is None else _parse_number(target, "targets") for target in data["targets"]]
    description = {name: data[name] for name in STUDY_FIELDS}
    return Study(**description | {"targets": targets, "stop": Stop(data["stop"])}, results=results)


def result_to_json(result: Result) -> JSON:
    """Convert a result to JSON types: everything but the population and the history."""
    problem = result.problem
    description: JSON = {
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
            "is_mapping": problem.space.is_mapping,
            "variables": [asdict(variable) for variable in problem.space.variables],
        }
    if isinstance(problem, MinMaxProblem):
        description |= {"y_lower": problem.y_bounds.lower, "y_upper": problem.y_bounds.upper}
    entries = {
        name: result[name] for name in (*REQUIRED_KEYS, *OPTIONAL_KEYS) if name in REQUIRED_KEYS or name in result
    }
    if "robust" in result:
        reports = (result.robust,) if isinstance(result.robust, Robust) else result.robust
        entries["robust"] = [report._asdict() for report in reports]
    if "minima" in result:
        entries["minima"] = result.minima.as_json()
    entries["failures"] = [failure._asdict() for failure in result.get("failures", ())]
    if "evaluations" in result:
        errors = result.evaluations.error
        entries["evaluation_errors"] = [[int(row), str(errors[row])] for row in np.flatnonzero(errors != "")]
    started = find_start(result)
    entries |= {} if started is None else {"started": started}
    params = {"params": result.params} if problem.space is not None else {}
    return to_json({"format": FORMAT, **entries, **params, "problem": description})


def function_names(problem: ProblemDescription) -> list[str]:
    """List which of fun, ineq and eq a problem has."""
    names = ("fun", "ineq", "eq") if isinstance(problem, Problem) else ("fun",)
    return [name for name in names if getattr(problem, name) is not None]


def _parse_problem(description: JSON) -> ProblemDescription:
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
        metadata["when"] = {name: list(map(_to_label, values)) for name, values in entry["when"]} or None
        if kind == "choice":
            variables.append(choice(list(map(_to_label, entry["labels"])), **metadata))
        elif kind == "boolean":
            variables.append(boolean(name=entry["name"], when=metadata["when"]))
        elif kind == "integer":
            variables.append(
                integer(entry["lower"], entry["upper"], step=as_integer_if_whole(entry["step"]), **metadata)
            )
        else:
            variables.append(real(entry["lower"], entry["upper"], log=entry["log"], step=entry["step"], **metadata))
    return Space(tuple(variables), bool(description["is_mapping"]))


def _to_label(value: object) -> Any:
    """Convert a JSON list to a tuple, which is a label."""
    return tuple(map(_to_label, value)) if isinstance(value, list) else value


def result_from_json(data: JSON) -> Result:
    """Build a result from the output of `result_to_json`; raise a ValueError, KeyError or TypeError for other data."""
    _check_types(data, RESULT_TYPES, required=True)
    for name, types in (("settings", SETTINGS_TYPES), ("timings", TIMINGS_TYPES)):
        _check_types(data[name], {key: types[key] for key in REQUIRED_ENTRIES[name]}, required=True)
        _check_types(data[name], types, required=False)
    result = Result({name: data[name] for name in REQUIRED_KEYS})
    if isinstance(data.get("started"), str):
        record_start(result, data["started"])
    result["stop"] = Stop(data["stop"])
    result["problem"] = _parse_problem(data["problem"])
    is_multi_objective = isinstance(data["fun"], list)
    result["fun"] = _parse_floats(data["fun"], "fun") if is_multi_objective else _parse_number(data["fun"], "fun")
    n_objectives = np.size(result.fun)
    check_direction_count(check_maximize(result.settings["maximize"]), n_objectives, result.problem.name)
    result["failures"] = _parse_failures(data.get("failures", ()))
    if "evaluation_errors" in data:
        result["evaluation_errors"] = _parse_evaluation_errors(data["evaluation_errors"])
    for name in ("chosen", "polish", "refinements", "restarted", "n_cached", "command", "worst_case_nfev"):
        if name in data:
            result[name] = data[name]
    for name in ("hypervolume", "hypervolume_error"):
        if name in data:
            result[name] = _parse_number(data[name], name)
    if "confidence" in data:
        confidence = data["confidence"]
        result["confidence"] = None if confidence is None else _parse_number(confidence, "confidence")
    result["violation"] = math.inf if data["violation"] is None else _parse_number(data["violation"], "violation")
    for name in ("y", "worst_cases"):
        if name in data:
            result[name] = np.array(data[name], np.float64)
    if "robust" in data:
        reports = tuple(map(_parse_robust, data["robust"]))
        result["robust"] = reports[0] if len(reports) == 1 else reports
    if "fun_interval" in data:
        result["fun_interval"] = _parse_floats(data["fun_interval"], "fun_interval")
        if result.fun_interval.shape != (2,):
            raise ValueError("its fun_interval does not have two ends")
    if "minima" in data:
        result["minima"] = Minima.from_json(data["minima"])
    for name in ("worst_case", "worst_case_sure", "unseen"):
        if name in data:
            result[name] = _parse_number(data[name], name)
    for name in ("x", "ineq", "eq"):
        result[name] = None if data[name] is None else _parse_floats(data[name], name)
    if result.x is None or result.x.size != result.problem.dim or (is_multi_objective and result.fun.size < 2):
        raise ValueError("the length of x or fun does not match its problem")
    return result


def _parse_robust(data: JSON) -> Robust:
    interval = _parse_floats(data["interval"], "interval")
    chances = data["probability_interval"]
    return Robust(
        str(data["measure"]),
        _parse_number(data["value"], "value"),
        np.where(np.isnan(interval), np.inf, interval) if data["measure"] == "worst" else interval,
        int(data["n_samples"]),
        _parse_floats(data["outcomes"], "outcomes"),
        None if data["probability"] is None else _parse_number(data["probability"], "probability"),
        None if chances is None else _parse_floats(chances, "probability_interval"),
    )


def _check_study(description: JSON, n_cells: int) -> None:
    """Raise a ValueError unless a study's description fits its number of cells."""
    _check_types(description, STUDY_TYPES, required=True)
    if not n_cells == len(description["labels"]) == len(description["targets"]):
        raise ValueError("there must be a label and a target for each cell")
    axes = description["axes"]
    if not all(isinstance(values, list) for values in axes.values()):
        raise ValueError("its axes are not lists")
    for labels in description["labels"]:
        if labels.keys() != axes.keys() or any(labels[name] not in axes[name] for name in axes):
            raise ValueError("its labels are not on its axes")


def _check_types(data: Any, types: dict[str, Any], required: bool) -> None:
    """Raise a ValueError for an entry of another type; a bool does not count as a number."""
    if not isinstance(data, dict):
        raise ValueError(f"it has {abbreviate(data)} where names and values belong")
    for name, expected_type in types.items():
        if name not in data and not required:
            continue
        value = data[name]
        is_number = isinstance(value, bool) and expected_type in (int, (int, float))
        if not isinstance(value, expected_type) or is_number:
            raise ValueError(f"its {name} is {abbreviate(value)}")


def _parse_failures(data: Any) -> tuple[Failed, ...]:
    if not all(isinstance(entry, dict) and isinstance(entry.get("error"), str) for entry in data):
        raise ValueError("its failures are not points with errors")
    texts = ((entry["error"], str(entry.get("traceback", ""))) for entry in data)
    points = (_parse_floats(entry.get("x"), "failures") for entry in data)
    return tuple(Failed(x, *text) for x, text in zip(points, texts, strict=True))


def _parse_evaluation_errors(entries: object) -> dict[int, str]:
    """Return why calls of a black box failed, by row of its evaluations."""
    if not isinstance(entries, list) or not all(isinstance(entry, list) and len(entry) == 2 for entry in entries):
        raise ValueError("its evaluation_errors are not rows with errors")
    return {int(row): str(error) for row, error in entries}


def _parse_floats(values: object, name: str) -> np.ndarray:
    if not isinstance(values, list):
        raise ValueError(f"its {name} is {abbreviate(values)}")
    return np.array([_parse_number(value, name) for value in values], np.float64)


def _parse_number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ValueError(f"its {name} has {abbreviate(value)} where a number belongs")
    return math.nan if value is None else float(value)


# --- arrays -----------------------------------------------------------------------------------------------------------

# The axes of each array. Two arrays that share an axis have the same length along it; "objectives" is no axis where
# there is one objective.
POPULATION_AXES = {"population": "individuals variables", "population_fitness": "individuals objectives"}
FRONT_AXES = {"X": "points variables", "F": "points objectives", "G": "points ineq", "H": "points eq", "CV": "points"}
HISTORY_AXES = {
    "generation": "generations",
    "nfev": "generations",
    "best": "generations objectives",
    "mean": "generations objectives",
    "worst": "generations objectives",
    "violation": "generations",
    "feasible_share": "generations",
    "x": "generations variables",
    "hypervolume": "generations",
    "hypervolume_error": "generations",
}
RUNS_AXES = {
    "number": "runs",
    "x": "runs variables",
    "fun": "runs objectives",
    "violation": "runs",
    "nit": "runs",
    "nfev": "runs",
    "n_failed": "runs",
    "success": "runs",
    "hypervolume": "runs",
    "fun_interval": "runs ends",
    "confidence": "runs",
}
RUN_FRONTS_AXES = {"size": "runs", "X": "rows variables", "F": "rows objectives", "CV": "rows"}
SNAPSHOT_AXES = {"x": "individuals variables", "objectives": "individuals values", "violation": "individuals"}
FORECAST_AXES = {"x": "next variables", "next": "next levels objectives", "front": "gaps levels objectives"}
OPTIONAL_ARRAYS = {"violation", "feasible_share", "x", "hypervolume", "hypervolume_error", "G", "H"}
COUNT_ARRAYS = {"generation", "nfev", "number", "nit", "n_failed", "size"}


def result_to_arrays(result: Result) -> Arrays:
    """Collect the arrays of a result by name: "population", "history.best", "runs.fun", "snapshots.100.x" and so on."""
    arrays = {name: result[name] for name in POPULATION_AXES}
    if "F" in result:
        arrays |= {name: result[name] for name in FRONT_AXES if result[name] is not None}
    arrays |= {f"derived.{i}": values for i, values in enumerate(result.get("derived", {}).values())}
    if result.history is not None:
        arrays |= _named_arrays("history.", result.history, HISTORY_AXES)
    if result.runs is not None:
        arrays |= _named_arrays("runs.", result.runs, RUNS_AXES)
        if result.runs.history is not None:
            arrays |= _named_arrays("runs.history.", result.runs.history, HISTORY_AXES)
        if result.runs.fronts is not None:
            fronts = result.runs.fronts
            arrays["runs.fronts.size"] = np.array([len(front) for front in fronts])
            for name in ("X", "F", "CV"):
                arrays[f"runs.fronts.{name}"] = np.concatenate([getattr(front, name) for front in fronts])
    for generation, population in result.get("snapshots", {}).items():
        arrays |= _named_arrays(f"snapshots.{generation}.", population, SNAPSHOT_AXES)
    if result.get("forecast") is not None:
        arrays |= {f"forecast.{name}": getattr(result.forecast, name) for name in FORECAST_AXES}
    if "evaluations" in result:
        arrays["evaluations"] = result.evaluations.table()[1]
    return {name: np.asarray(array) for name, array in arrays.items()}


def _named_arrays(prefix: str, source: History | Runs | Population, names: Mapping[str, str]) -> Arrays:
    """Collect the arrays of an object that are not None, by name."""
    arrays = {f"{prefix}{name}": getattr(source, name) for name in names}
    return {name: array for name, array in arrays.items() if array is not None}


def add_arrays(result: Result, arrays: Arrays) -> None:
    """Complete a result of `result_from_json` by the output of `result_to_arrays`, and check that they fit together."""
    reader = _ArrayReader(arrays, result)
    result.update(reader.take("", POPULATION_AXES))
    if reader.m is not None:
        result.update(dict.fromkeys(FRONT_AXES) | reader.take("", FRONT_AXES))
    names = getattr(result.problem, "derived", None) or {}
    if any(f"derived.{i}" in arrays for i in range(len(names))):
        axes = {f"derived.{i}": "" if reader.m is None else "points" for i in range(len(names))}
        values = reader.take("", axes).values()
        result["derived"] = {
            name: value if value.ndim else float(value) for name, value in zip(names, values, strict=True)
        }
    result["history"] = _read_history(reader, "history.") if "history.generation" in arrays else None
    result["runs"] = _read_runs(reader, arrays) if "runs.number" in arrays else None
    generations = {name.split(".")[1] for name in arrays if name.startswith("snapshots.")}
    result["snapshots"] = {}
    for generation in sorted(map(int, generations)):
        reader.sizes.pop("individuals", None)  # a restart may have changed the population
        axes = {name: f"{'runs ' * (result.runs is not None)}{axis}" for name, axis in SNAPSHOT_AXES.items()}
        population: dict[str, Any] = reader.take(f"snapshots.{generation}.", axes, optional={"violation"})
        result["snapshots"][generation] = Population(**{"violation": None} | population)
    if "forecast.x" in arrays:
        result["forecast"] = Forecast(**reader.take("forecast.", FORECAST_AXES, optional=set()))
    if "evaluations" in arrays:
        result["evaluations"] = _read_evaluations(reader, result)
    result.pop("evaluation_errors", None)
    reader.check_all_read()


def _read_evaluations(reader: _ArrayReader, result: Result) -> Evaluations:
    """Read every call of a black box, which is one table."""
    table = reader.arrays["evaluations"]
    reader.unread.discard("evaluations")
    widths = (reader.m or 1, reader.sizes["ineq"], reader.sizes["eq"])
    n_columns = N_CALL_COLUMNS + result.x.size + sum(widths) + any(widths[1:])
    if table.dtype.kind != "f" or table.ndim != 2 or table.shape[1] != n_columns:
        raise ValueError(f"its array evaluations needs {n_columns} columns of numbers, not {table.shape}")
    return evaluations_from_table(result.problem, table, widths, result.get("evaluation_errors", {}))


def _read_history(reader: _ArrayReader, prefix: str, ensemble: bool = False) -> History:
    axes = dict(HISTORY_AXES)
    if ensemble:
        shared = {"generation"} if reader.arrays[f"{prefix}nfev"].ndim == 2 else {"generation", "nfev"}
        axes = {name: axis if name in shared else f"runs {axis}" for name, axis in axes.items()}
    reader.sizes.pop("generations", None)
    return History(**reader.take(prefix, axes))


def _read_runs(reader: _ArrayReader, arrays: Arrays) -> Runs:
    columns: dict[str, Any] = reader.take("runs.", RUNS_AXES, optional={"hypervolume", "fun_interval", "confidence"})
    runs = Runs(**columns, history=None)
    if "runs.history.generation" in arrays:
        runs = replace(runs, history=_read_history(reader, "runs.history.", ensemble=True))
    if "runs.fronts.size" in arrays:
        table = reader.take("runs.fronts.", RUN_FRONTS_AXES)
        sizes = table.pop("size")
        if (sizes < 0).any() or sizes.sum() != len(table["CV"]):
            raise ValueError("its array runs.fronts.size does not fit the fronts")
        columns_by_run = [np.split(table[name], np.cumsum(sizes)[:-1]) for name in ("X", "F", "CV")]
        fronts = [Front(x, f, None, None, violation) for x, f, violation in zip(*columns_by_run, strict=True)]
        runs = replace(runs, fronts=fronts)
    return runs


class _ArrayReader:
    """Takes arrays by name and checks that each has numbers of its kind, and axes as long as those before."""

    def __init__(self, arrays: Arrays, result: Result) -> None:
        self.arrays, self.unread = arrays, set(arrays)
        self.m = len(result.fun) if np.ndim(result.fun) else None
        self.sizes = {"ends": 2, "variables": result.x.size, "objectives": self.m or 1, "values": self.m or 1}
        self.sizes |= {name: 0 if result[name] is None else result[name].size for name in ("ineq", "eq")}

    def take(self, prefix: str, axes: Mapping[str, str], optional: set[str] = OPTIONAL_ARRAYS) -> Arrays:
        """Return the arrays of a group without the prefix of their names."""
        group = {}
        for name, axis_names in axes.items():
            if f"{prefix}{name}" in self.arrays:
                group[name] = self._read(prefix + name, name, axis_names.split())
            elif name not in optional:
                raise ValueError(f"its array {prefix}{name} is missing")
        return group

    def _read(self, full_name: str, name: str, axes: list[str]) -> np.ndarray:
        array = self.arrays[full_name]
        self.unread.discard(full_name)
        kinds = "iu" if name in COUNT_ARRAYS else "b" if name == "success" else "f"
        if self.m is None:
            axes = [axis for axis in axes if axis != "objectives"]
        fits = array.ndim == len(axes) and all(
            self.sizes.setdefault(axis, size) == size for axis, size in zip(axes, array.shape, strict=True)
        )
        if array.dtype.kind not in kinds or not fits:
            raise ValueError(f"its array {full_name} has the shape {array.shape} and the type {array.dtype}")
        return array

    def check_all_read(self) -> None:
        if self.unread:
            raise ValueError(f"its array {abbreviate(min(self.unread))} has no place in a result")
