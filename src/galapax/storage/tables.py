"""The arrays of a result as tables, a heading for each column, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from galapax.core.algorithm import Population
from galapax.core.record import MAX_EXACT_HYPERVOLUME_OBJECTIVES
from galapax.results.front import Front
from galapax.results.result import History, Result, Runs, constraint_names
from galapax.storage.files import Labels, counts, labels_of, read_csv, whole
from galapax.storage.manifest import Saved


def read_table(
    saved: Saved, name: str, result: Result, columns: int | None = None, may_be_empty: bool = False
) -> tuple[np.ndarray, list[str]]:
    """The numbers of one of a result's tables, and the names of its columns; a choice is the place of its label."""

    def labels(names: list[str]) -> Labels:
        return labels_of(result.problem, first_variable(name, names, result, value_names(result)))

    return read_csv(saved, name, columns, may_be_empty, labels)


def value_names(result: Result) -> list[str]:
    """Headings for the value of a solution: "fun", or the names of several objectives."""
    return result.problem.objective_names(len(result.fun)) if np.ndim(result.fun) else ["fun"]


def history_table(history: History, variables: list[str], values: list[str]) -> tuple[list[str], np.ndarray]:
    names, parts = ["generation", "nfev"], [history.generation, history.nfev]
    for name in ("best", "mean", "worst"):
        names += [name] if len(values) == 1 else [f"{name} {value}" for value in values]
        parts += [getattr(history, name)]
    for name in ("violation", "feasible_share", "hypervolume", "hypervolume_error"):
        if getattr(history, name) is not None:
            names.append(name)
            parts.append(getattr(history, name))
    if history.x is not None:
        names += variables
        parts.append(history.x)
    return names, np.column_stack(parts)


def first_variable(table: str, names: list[str], result: Result, values: list[str]) -> int | None:
    """The column of the first variable in a table of a saved run; None where it has none.

    By place, not by name: a variable may be called as another column is.
    """
    if table == "history.csv":
        first = _history_columns(names, result, values)[1]
        return first if first < len(names) else None
    places = {"population.csv": 0, "front.csv": 0, "fronts.csv": 1, "runs.csv": len(names) - result.x.size}
    return places[table]


def _history_columns(names: list[str], result: Result, values: list[str]) -> tuple[dict[str, int], int]:
    """Where the columns are that not every history has, by name, and where those of x begin."""
    m, d = len(values), result.x.size
    at, columns = 2 + 3 * m, {}
    # by place and number, not by name: a variable may have been called as one of these is
    if result.problem.constrained:
        columns = {"violation": at, "feasible_share": at + 1}
        at += 2
    left = len(names) - at
    volumes = ("hypervolume", "hypervolume_error")[: 1 + (m > MAX_EXACT_HYPERVOLUME_OBJECTIVES)]
    if left == d + len(volumes) or (left == len(volumes) and names[at] == "hypervolume"):
        columns |= {name: at + i for i, name in enumerate(volumes)}
        at += len(volumes)
    return columns, at


def history_from(table: np.ndarray, names: list[str], result: Result, values: list[str]) -> History:
    m, d = len(values), result.x.size
    generation, nfev = counts(table[:, 0]), counts(table[:, 1])
    stats = [table[:, 2 + i * m : 2 + (i + 1) * m] for i in range(3)]
    best, mean, worst = stats if m > 1 else (part[:, 0] for part in stats)
    columns, at = _history_columns(names, result, values)
    further = {name: table[:, i] for name, i in columns.items()}
    x = table[:, at:] if at < len(names) else None
    if x is not None and x.shape[1] != d:
        raise ValueError("rows or columns are missing")
    return History(generation, nfev, best, mean, worst, **further, x=x)


def histories_from(arrays: dict[str, np.ndarray], runs: int) -> History:
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
    parts = [runs.number, runs.fun, runs.violation, runs.nit, runs.nfev, runs.n_failed, runs.success]
    if runs.hypervolume is not None:
        names.append("hypervolume")
        parts.append(runs.hypervolume)
    return [*names, *variables], np.column_stack([*(np.asarray(p, np.float64) for p in parts), runs.x])


def runs_from(table: np.ndarray, names: list[str], values: list[str], d: int) -> Runs:
    m = len(values)
    measured = len(names) == m + 7 + d
    if len(names) != m + 6 + measured + d:
        raise ValueError("rows or columns are missing")
    fun = table[:, 1 : 1 + m] if m > 1 else table[:, 1]
    violation, nit, nfev, n_failed, success = table[:, m + 1 : m + 6].T
    return Runs(
        number=counts(table[:, 0]),
        x=table[:, m + 6 + measured :],
        fun=fun,
        violation=violation,
        nit=counts(nit),
        nfev=counts(nfev),
        n_failed=counts(n_failed),
        success=success > 0,
        history=None,
        hypervolume=table[:, m + 6] if measured else None,
    )


def check_runs(runs: Runs, d: int) -> None:
    """Whether all arrays are of as many runs."""
    if any(array.shape[:1] != runs.number.shape for array in arrays_of(runs).values()) or runs.x.shape[1:] != (d,):
        raise ValueError("rows or columns are missing")


def front_table(result: Result) -> tuple[list[str], np.ndarray]:
    """The front with one row a solution: variables, derived quantities, objectives, constraints."""
    problem = result.problem
    parts = [result.X, *result.get("derived", {}).values(), result.F]
    parts += [part for part in (result.G, result.H) if part is not None]
    names = [*problem.variable_names(), *(problem.derived or ()), *value_names(result)]
    if result.G is not None or result.H is not None:
        names += constraint_names(result)
    return names, np.column_stack(parts)


def read_front(result: Result, saved: Saved, values: list[str]) -> None:
    table, names = read_table(saved, "front.csv", result, may_be_empty=True)
    with whole(saved.folder / "front.csv"):
        derived = list(result.problem.derived or ())
        d, m = result.x.size, len(values)
        counts = (d, len(derived), m, *(0 if at is None else at.size for at in (result.ineq, result.eq)))
        if len(names) != sum(counts):
            raise ValueError("rows or columns are missing")
        result["X"], extra, result["F"], ineq, eq = np.split(table, np.cumsum(counts)[:-1], axis=1)
        result["G"], result["H"] = (None if part.shape[1] == 0 else part for part in (ineq, eq))
        result["CV"] = np.maximum(ineq, 0).sum(axis=1)
        result["CV"] += np.maximum(np.abs(eq) - result.problem.eq_tolerance, 0).sum(axis=1)
        if derived:
            result["derived"] = dict(zip(derived, extra.T, strict=True))


def fronts_table(runs: Runs, variables: list[str], values: list[str]) -> tuple[list[str], np.ndarray]:
    """The front of every run, one row a solution, with its run's number."""
    fronts = runs.fronts or []
    own = np.repeat(runs.number, [len(front) for front in fronts])
    table = np.column_stack([own, np.concatenate([f.X for f in fronts]), np.concatenate([f.F for f in fronts])])
    return ["run", *variables, *values], table


def fronts_from(table: np.ndarray, numbers: np.ndarray, d: int) -> list[Front]:
    own = [table[table[:, 0] == number, 1:] for number in numbers]
    return [Front(rows[:, :d], rows[:, d:], None, None, np.zeros(len(rows))) for rows in own]


def snapshot_arrays(snapshots: dict[int, Population]) -> dict[str, np.ndarray]:
    """By name: "100.x", "100.objectives" and so on for generation 100."""
    parts = {f"{g}.{name}": values for g, kept in snapshots.items() for name, values in kept._asdict().items()}
    return {name: np.asarray(values) for name, values in parts.items() if values is not None}


def snapshots_from(arrays: dict[str, np.ndarray], result: Result) -> dict[int, Population]:
    shape = result.population.shape if result.runs is None else (len(result.runs), *result.population.shape)
    out = {}
    for g in sorted({int(name.partition(".")[0]) for name in arrays}):
        parts: dict[str, Any] = {name: arrays[f"{g}.{name}"] for name in Population._fields if f"{g}.{name}" in arrays}
        kept = Population(**{"violation": None} | parts)
        if kept.x.shape[-1] != shape[-1] or kept.x.ndim != len(shape) or kept.x.shape[:-1] != kept.fitness.shape:
            raise ValueError(f"the population of generation {g} has the shape {kept.x.shape}")
        out[g] = kept
    return out


def arrays_of(record: Any) -> dict[str, np.ndarray]:
    """The arrays of a History or Runs by name."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return {name: value for name, value in values.items() if value is not None}
