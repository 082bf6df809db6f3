"""Converts the arrays of a result to tables with column names, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from galapax.core.algorithm import Population
from galapax.core.evaluation import MAX_EXACT_HYPERVOLUME_OBJECTIVES
from galapax.results.evaluations import N_CALL_COLUMNS, evaluations_from_table
from galapax.results.front import Front
from galapax.results.result import History, Result, Runs, constraint_names
from galapax.storage.files import Labels, label_columns, naming_file_errors, parse_counts, read_csv
from galapax.storage.manifest import Saved


def read_table(
    saved: Saved, name: str, result: Result, columns: int | None = None, may_be_empty: bool = False
) -> tuple[np.ndarray, list[str]]:
    """The numbers of one of a result's tables, and the names of its columns; a choice is the place of its label."""

    def labels(names: list[str]) -> Labels:
        return label_columns(result.problem, first_variable(name, names, result, value_names(result)))

    return read_csv(saved, name, columns, may_be_empty, labels)


def value_names(result: Result) -> list[str]:
    """Headings for the value of a solution: "fun", or the names of several objectives."""
    return result.problem.objective_names(len(result.fun)) if np.ndim(result.fun) else ["fun"]


def history_table(history: History, variables: list[str], values: list[str]) -> tuple[list[str], np.ndarray]:
    names, columns = ["generation", "nfev"], [history.generation, history.nfev]
    for name in ("best", "mean", "worst"):
        names += [name] if len(values) == 1 else [f"{name} {value}" for value in values]
        columns += [getattr(history, name)]
    for name in ("violation", "feasible_share", "hypervolume", "hypervolume_error"):
        if getattr(history, name) is not None:
            names.append(name)
            columns.append(getattr(history, name))
    if history.x is not None:
        names += variables
        columns.append(history.x)
    return names, np.column_stack(columns)


def first_variable(table: str, names: list[str], result: Result, values: list[str]) -> int | None:
    """The column of the first variable in a table of a saved run; None where it has none.

    By place, not by name: a variable may be called as another column is.
    """
    if table == "history.csv":
        first = _history_columns(names, result, values)[1]
        return first if first < len(names) else None
    places = {
        "population.csv": 0,
        "front.csv": 0,
        "fronts.csv": 1,
        "evaluations.csv": N_CALL_COLUMNS,
        "runs.csv": len(names) - result.x.size,
    }
    return places[table]


def _history_columns(names: list[str], result: Result, values: list[str]) -> tuple[dict[str, int], int]:
    """Find the optional columns of a history by name, and the first column of x."""
    m, d = len(values), result.x.size
    first_x, columns = 2 + 3 * m, {}
    # by place and number, not by name: a variable may have been called as one of these is
    if result.problem.constrained:
        columns = {"violation": first_x, "feasible_share": first_x + 1}
        first_x += 2
    n_remaining = len(names) - first_x
    volumes = ("hypervolume", "hypervolume_error")[: 1 + (m > MAX_EXACT_HYPERVOLUME_OBJECTIVES)]
    if n_remaining == d + len(volumes) or (n_remaining == len(volumes) and names[first_x] == "hypervolume"):
        columns |= {name: first_x + i for i, name in enumerate(volumes)}
        first_x += len(volumes)
    return columns, first_x


def parse_history(table: np.ndarray, names: list[str], result: Result, values: list[str]) -> History:
    m, d = len(values), result.x.size
    generation, nfev = parse_counts(table[:, 0]), parse_counts(table[:, 1])
    stats = [table[:, 2 + i * m : 2 + (i + 1) * m] for i in range(3)]
    best, mean, worst = stats if m > 1 else (stat[:, 0] for stat in stats)
    columns, first_x = _history_columns(names, result, values)
    optional_columns = {name: table[:, i] for name, i in columns.items()}
    x = table[:, first_x:] if first_x < len(names) else None
    if x is not None and x.shape[1] != d:
        raise ValueError("rows or columns are missing")
    return History(generation, nfev, best, mean, worst, **optional_columns, x=x)


def parse_histories(arrays: dict[str, np.ndarray], runs: int) -> History:
    """The histories of all runs, each array (R, G, ...) but those that all runs share."""
    history = History(**arrays)
    length = history.generation.shape
    if len(length) != 1 or history.nfev.shape not in (length, (runs, *length)):
        raise ValueError("rows or columns are missing")
    for name in arrays.keys() - {"generation", "nfev"}:
        if arrays[name].shape[:2] != (runs, *length):
            raise ValueError(f"its array {name} has the shape {arrays[name].shape}")
    return history


def runs_table(runs: Runs, variables: list[str], values: list[str]) -> tuple[list[str], np.ndarray]:
    names = ["run", *values, "violation", "nit", "nfev", "n_failed", "success"]
    columns = [runs.number, runs.fun, runs.violation, runs.nit, runs.nfev, runs.n_failed, runs.success]
    if runs.hypervolume is not None:
        names.append("hypervolume")
        columns.append(runs.hypervolume)
    return [*names, *variables], np.column_stack([*(np.asarray(p, np.float64) for p in columns), runs.x])


def parse_runs(table: np.ndarray, names: list[str], values: list[str], d: int) -> Runs:
    m = len(values)
    has_hypervolume = len(names) == m + 7 + d
    if len(names) != m + 6 + has_hypervolume + d:
        raise ValueError("rows or columns are missing")
    fun = table[:, 1 : 1 + m] if m > 1 else table[:, 1]
    violation, nit, nfev, n_failed, success = table[:, m + 1 : m + 6].T
    return Runs(
        number=parse_counts(table[:, 0]),
        x=table[:, m + 6 + has_hypervolume :],
        fun=fun,
        violation=violation,
        nit=parse_counts(nit),
        nfev=parse_counts(nfev),
        n_failed=parse_counts(n_failed),
        success=success > 0,
        history=None,
        hypervolume=table[:, m + 6] if has_hypervolume else None,
    )


def check_runs(runs: Runs, d: int) -> None:
    """Raise a ValueError unless all arrays have the same number of runs."""
    if any(array.shape[:1] != runs.number.shape for array in named_arrays(runs).values()) or runs.x.shape[1:] != (d,):
        raise ValueError("rows or columns are missing")


def front_table(result: Result) -> tuple[list[str], np.ndarray]:
    """The front with one row a solution: variables, derived quantities, objectives, constraints."""
    problem = result.problem
    columns = [result.X, *result.get("derived", {}).values(), result.F]
    columns += [constraints for constraints in (result.G, result.H) if constraints is not None]
    names = [*problem.variable_names(), *(problem.derived or ()), *value_names(result)]
    if result.G is not None or result.H is not None:
        names += constraint_names(result)
    return names, np.column_stack(columns)


def read_front(result: Result, saved: Saved, values: list[str]) -> None:
    table, names = read_table(saved, "front.csv", result, may_be_empty=True)
    with naming_file_errors(saved.folder / "front.csv"):
        derived = list(result.problem.derived or ())
        d, m = result.x.size, len(values)
        widths = (d, len(derived), m, *(0 if g is None else g.size for g in (result.ineq, result.eq)))
        if len(names) != sum(widths):
            raise ValueError("rows or columns are missing")
        result["X"], derived_columns, result["F"], ineq, eq = np.split(table, np.cumsum(widths)[:-1], axis=1)
        result["G"], result["H"] = (None if columns.shape[1] == 0 else columns for columns in (ineq, eq))
        result["CV"] = np.maximum(ineq, 0).sum(axis=1)
        result["CV"] += np.maximum(np.abs(eq) - result.problem.eq_tolerance, 0).sum(axis=1)
        if derived:
            result["derived"] = dict(zip(derived, derived_columns.T, strict=True))


def read_evaluations(result: Result, saved: Saved, values: list[str], errors: dict[int, str]) -> None:
    """Read every call of a black box. errors: why calls failed, by row."""
    table, names = read_table(saved, "evaluations.csv", result, may_be_empty=True)
    with naming_file_errors(saved.folder / "evaluations.csv"):
        n_ineq, n_eq = (0 if g is None else g.size for g in (result.ineq, result.eq))
        widths = (len(values), n_ineq, n_eq)
        if len(names) != N_CALL_COLUMNS + result.x.size + sum(widths) + any(widths[1:]):
            raise ValueError("rows or columns are missing")
        result["evaluations"] = evaluations_from_table(result.problem, table, widths, errors)


def fronts_table(runs: Runs, variables: list[str], values: list[str]) -> tuple[list[str], np.ndarray]:
    """The front of every run, one row a solution, with its run's number."""
    fronts = runs.fronts or []
    run_numbers = np.repeat(runs.number, [len(front) for front in fronts])
    table = np.column_stack([run_numbers, np.concatenate([f.X for f in fronts]), np.concatenate([f.F for f in fronts])])
    return ["run", *variables, *values], table


def parse_fronts(table: np.ndarray, numbers: np.ndarray, d: int) -> list[Front]:
    rows_by_run = [table[table[:, 0] == number, 1:] for number in numbers]
    return [Front(rows[:, :d], rows[:, d:], None, None, np.zeros(len(rows))) for rows in rows_by_run]


def snapshot_arrays(snapshots: dict[int, Population]) -> dict[str, np.ndarray]:
    """By name: "100.x", "100.objectives" and so on for generation 100."""
    arrays = {
        f"{g}.{name}": values for g, population in snapshots.items() for name, values in population._asdict().items()
    }
    return {name: np.asarray(values) for name, values in arrays.items() if values is not None}


def parse_snapshots(arrays: dict[str, np.ndarray], result: Result) -> dict[int, Population]:
    shape = result.population.shape if result.runs is None else (len(result.runs), *result.population.shape)
    populations = {}
    for g in sorted({int(name.partition(".")[0]) for name in arrays}):
        fields: dict[str, Any] = {name: arrays[f"{g}.{name}"] for name in Population._fields if f"{g}.{name}" in arrays}
        population = Population(**{"violation": None} | fields)
        if (
            population.x.shape[-1] != shape[-1]
            or population.x.ndim != len(shape)
            or population.x.shape[:-1] != population.fitness.shape
        ):
            raise ValueError(f"the population of generation {g} has the shape {population.x.shape}")
        populations[g] = population
    return populations


def named_arrays(source: Any) -> dict[str, np.ndarray]:
    """The arrays of a History or Runs by name."""
    values = {f.name: getattr(source, f.name) for f in fields(source)}
    return {name: value for name, value in values.items() if value is not None}
