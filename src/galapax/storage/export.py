"""The tables of a result or a study: as CSV text, as one JSON file, and as pandas DataFrames.

Nothing here is ever read back: `result_folder.load` reads result.json and arrays.npz.
"""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from galapax.core.checks import escape_csv, unique_headings
from galapax.core.errors import InputError, MissingPackage
from galapax.core.problem import ProblemDescription
from galapax.core.space import Space
from galapax.results.evaluations import N_CALL_COLUMNS, Evaluations
from galapax.results.many_answers import Minima
from galapax.results.result import History, Result, Runs, all_runs, constraint_names
from galapax.results.study import Row, Study, curve_rows
from galapax.storage import atomic
from galapax.storage.atomic import write_bytes
from galapax.storage.result_format import result_to_json, study_to_json, to_json

if TYPE_CHECKING:
    from pandas import DataFrame


class Table(NamedTuple):
    """Numbers in columns with names. The variables of a problem are consecutive columns."""

    names: list[str]
    rows: np.ndarray  # (r, columns)
    first_variable: int | None = None  # its column; None where there are no variables
    counts: tuple[int, ...] = ()  # columns of whole numbers
    booleans: tuple[int, ...] = ()


# --- tables of a result -----------------------------------------------------------------------------------------------


def result_tables(result: Result) -> dict[str, Table]:
    """Build the tables of a saved run by name: history (of the best run), runs, fronts, population and front."""
    variables, values, tables = result.problem.variable_names(), value_names(result), {}
    if result.history is not None:
        tables["history"] = history_table(result.history, variables, values)
    if result.runs is not None:
        tables["runs"] = runs_table(result.runs, variables, values)
        if result.runs.fronts is not None:
            tables["fronts"] = fronts_table(result.runs, variables, values)
    tables["population"] = population_table(result)
    if "F" in result:
        tables["front"] = front_table(result)
    if "evaluations" in result:
        tables["evaluations"] = evaluations_table(result.evaluations)
    return tables


def study_tables(study: Study) -> dict[str, list[Row]]:
    """Build the tables of a saved study by name: a row for each run, for each cell, and for points of its curves."""
    return {"runs": study.rows(), "summary": study.summary(), "curves": curve_rows(study)}


def value_names(result: Result) -> list[str]:
    """Return the headings for the value of a solution: "fun", or the names of several objectives."""
    return result.problem.objective_names(len(result.fun)) if np.ndim(result.fun) else ["fun"]


def population_table(result: Result) -> Table:
    """Build the table of the survivors, one row each: variables and values."""
    rows = np.column_stack([result.population, result.population_fitness])
    return Table([*result.problem.variable_names(), *value_names(result)], rows, 0)


def history_table(history: History, variables: list[str], values: list[str]) -> Table:
    """Build the table of a single run's history, one row a generation."""
    names, columns = ["generation", "nfev"], [history.generation, history.nfev]
    for name in ("best", "mean", "worst"):
        names += [name] if len(values) == 1 else [f"{name} {value}" for value in values]
        columns += [getattr(history, name)]
    for name in ("violation", "feasible_share", "hypervolume", "hypervolume_error"):
        if getattr(history, name) is not None:
            names.append(name)
            columns.append(getattr(history, name))
    first_variable = None if history.x is None else len(names)
    if history.x is not None:
        names += variables
        columns.append(history.x)
    return Table(names, np.column_stack(columns), first_variable, counts=(0, 1))


def histories_table(history: History, variables: list[str], values: list[str]) -> Table:
    """Build the table of an ensemble's history, one row for each run and generation."""
    tables = [history_table(history.of_run(run), variables, values) for run in range(len(history.best))]
    rows = [np.column_stack([np.full(len(table.rows), run), table.rows]) for run, table in enumerate(tables)]
    first_variable = tables[0].first_variable
    return Table(
        ["run", *tables[0].names],
        np.concatenate(rows),
        None if first_variable is None else first_variable + 1,
        counts=(0, 1, 2),
    )


def runs_table(runs: Runs, variables: list[str], values: list[str]) -> Table:
    """Build the table of an ensemble, one row a run."""
    names = ["run", *values, "violation", "nit", "nfev", "n_failed", "success"]
    m = len(values)
    columns = [runs.number, runs.fun, runs.violation, runs.nit, runs.nfev, runs.n_failed, runs.success]
    if runs.hypervolume is not None:
        names.append("hypervolume")
        columns.append(runs.hypervolume)
    if runs.confidence is not None:
        names.append("confidence")
        columns.append(runs.confidence)
    rows = np.column_stack([*(np.asarray(column, np.float64) for column in columns), runs.x])
    return Table([*names, *variables], rows, len(names), counts=(0, m + 2, m + 3, m + 4), booleans=(m + 5,))


def front_table(result: Result) -> Table:
    """Build the table of the front, one row a solution: variables, derived quantities, objectives, constraints."""
    problem = result.problem
    columns = [result.X, *result.get("derived", {}).values(), result.F]
    columns += [constraints for constraints in (result.G, result.H) if constraints is not None]
    names = [*problem.variable_names(), *(problem.derived or ()), *value_names(result)]
    if result.G is not None or result.H is not None:
        names += constraint_names(result)
    return Table(names, np.column_stack(columns), 0)


def fronts_table(runs: Runs, variables: list[str], values: list[str]) -> Table:
    """Build the table of every run's front, one row a solution, with its run's number."""
    fronts = runs.fronts or []
    run_numbers = np.repeat(runs.number, [len(front) for front in fronts])
    rows = np.column_stack([run_numbers, np.concatenate([f.X for f in fronts]), np.concatenate([f.F for f in fronts])])
    return Table(["run", *variables, *values], rows, 1)


def evaluations_table(evaluations: Evaluations) -> Table:
    """Build the table of every call of a black box."""
    return Table(*evaluations.table(), first_variable=N_CALL_COLUMNS, counts=(0, 1, 2), booleans=(4,))


def snapshots_table(result: Result) -> Table:
    """Build the table of the snapshots: a row for each individual of each run at each generation."""
    numbers = all_runs(result).number
    blocks = []
    for g, population in result.snapshots.items():
        x, objectives = (np.asarray(a) if result.runs is not None else np.asarray(a)[None] for a in population[:2])
        runs, n = x.shape[:2]
        columns = [np.full(runs * n, g), np.repeat(numbers, n), np.tile(np.arange(n), runs), *x.reshape(runs * n, -1).T]
        columns += list(objectives.reshape(runs * n, -1).T)
        if population.violation is not None:
            columns.append(np.asarray(population.violation).ravel())
        blocks.append(np.column_stack(columns))
    n_objectives = objectives.shape[-1]
    names = ["fun"] if n_objectives == 1 else result.problem.objective_names(n_objectives)
    names += ["violation"] if population.violation is not None else []
    ids = ["generation", "run", "individual"]
    return Table([*ids, *result.problem.variable_names(), *names], np.concatenate(blocks), len(ids))


# --- CSV --------------------------------------------------------------------------------------------------------------


def csv_files(source: Result | Study) -> dict[str, str]:
    """Format the tables of a run or a study as CSV, by file name."""
    if isinstance(source, Study):
        return {f"{name}.csv": _format_rows(rows) for name, rows in study_tables(source).items()}
    tables = result_tables(source)
    return {f"{name}.csv": _format_table(table, source.problem) for name, table in tables.items()}


def write_csv_files(source: Result | Study, folder: Path) -> list[Path]:
    """Write the tables of a run or a study to a folder; of a run also the answer, and the populations it kept.

    Tables that the run itself has saved there stay as they are.
    """
    texts = csv_files(source)
    if isinstance(source, Result):
        texts["answer.csv"] = _format_answer(source)
        if source.snapshots:
            texts["snapshots.csv"] = _format_table(snapshots_table(source), source.problem)
    folder.mkdir(parents=True, exist_ok=True)
    saved_files = atomic.owned_files(folder)
    for name, text in texts.items():
        if name not in saved_files:
            write_bytes(folder / name, text.encode())
        elif (folder / name).read_bytes() != text.encode():
            raise InputError(f"{folder / name} belongs to another saved run, or was changed: choose another folder.")
    return [folder / name for name in texts]


def _format_table(table: Table, problem: ProblemDescription) -> str:
    """Format a table as CSV, with labels in the columns whose numbers encode them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(unique_headings(table.names))
    labels = _label_columns(table, problem)
    if not labels:
        np.savetxt(out, table.rows, delimiter=",", fmt="%.17g")
        return out.getvalue()
    cells = {i: [escape_csv(label) for label in column_labels] for i, column_labels in labels.items()}
    for row in table.rows.tolist():
        writer.writerow(cells[i][int(v)] if i in cells and math.isfinite(v) else f"{v:.17g}" for i, v in enumerate(row))
    return out.getvalue()


def _label_columns(table: Table, problem: ProblemDescription) -> dict[int, tuple[object, ...]]:
    """Map the columns that hold choices among texts to their labels."""
    if problem.space is None or table.first_variable is None:
        return {}
    variables = enumerate(problem.space.variables, table.first_variable)
    return {column: v.labels for column, v in variables if v.kind == "choice" and not v.numeric}


def _format_rows(rows: list[Row]) -> str:
    """Format rows as CSV, with the union of their columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(unique_headings(names))
    writer.writerows([escape_csv(row[name]) if name in row else "" for name in names] for row in rows)
    return out.getvalue()


def _format_answer(result: Result) -> str:
    """Format the answer as CSV: name, value, unit."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["name", "value", "unit"])
    problem, units = result.problem, result.problem.units or {}
    rows: list[tuple[str, object]] = list(zip(value_names(result), np.atleast_1d(result.fun).tolist(), strict=True))
    rows += [("feasible", result.feasible), ("violation", result.violation)] if problem.constrained else []
    rows += problem.params(result.x).items()
    if not np.ndim(result.fun):
        rows += result.get("derived", {}).items()
    for name, value in rows:
        writer.writerow([escape_csv(name), escape_csv(value), escape_csv(units.get(name, ""))])
    return out.getvalue()


# --- one JSON file ----------------------------------------------------------------------------------------------------


def write_json_file(source: Result | Study, file: Path) -> None:
    """Write a run or a study as one JSON file: what result.json or study.json says, and each table by columns."""
    if isinstance(source, Study):
        data = study_to_json(source)
        for name, rows in study_tables(source).items():
            headings = dict.fromkeys(heading for row in rows for heading in row)
            data[name] = {heading: [row.get(heading) for row in rows] for heading in headings}
    else:
        tables = result_tables(source) | ({"snapshots": snapshots_table(source)} if source.snapshots else {})
        data = result_to_json(source)
        for name, table in tables.items():
            data[name] = decode_columns(table, source.problem)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, json.dumps(to_json(data), allow_nan=False).encode(), b"\n")


def decode_columns(table: Table, problem: ProblemDescription) -> dict[str, list[object]]:
    """Return the columns of a table by heading, with labels where numbers encode them."""
    labels = _label_columns(table, problem)
    columns = [
        [labels[i][int(v)] if math.isfinite(v) else v for v in column] if i in labels else column
        for i, column in enumerate(table.rows.T.tolist())
    ]
    return dict(zip(unique_headings(table.names), columns, strict=True))


# --- pandas -----------------------------------------------------------------------------------------------------------


def to_dataframe(source: Result | Runs | History | Study | Evaluations | Minima, table: str | None = None) -> DataFrame:
    """Convert a table of a result, its runs, a history, a study, evaluations or minima to a pandas DataFrame."""
    if isinstance(source, Evaluations):
        return _evaluations_dataframe(source)
    if isinstance(source, Minima):
        return _import_pandas().DataFrame(source.columns())
    if isinstance(source, Study):
        if table not in (None, "runs", "summary"):
            raise InputError(f'table must be "runs" or "summary"; got {table!r}.')
        return _import_pandas().DataFrame(source.summary() if table == "summary" else source.rows())
    if isinstance(source, Result):
        return _result_dataframe(source, table)
    if isinstance(source, Runs):
        values = _number_names("f", source.fun) if source.fun.ndim > 1 else ["fun"]
        return _build_dataframe(runs_table(source, _number_names("x", source.x), values))
    is_multi_objective = source.best.ndim - (source.runs is not None) > 1
    values = _number_names("f", source.best) if is_multi_objective else ["fun"]
    build = history_table if source.runs is None else histories_table
    return _build_dataframe(build(source, _number_names("x", source.x), values))


def _result_dataframe(result: Result, name: str | None) -> DataFrame:
    is_multi_objective = "F" in result
    name = name or ("front" if is_multi_objective else "population" if result.runs is None else "runs")
    variables, values = result.problem.variable_names(), value_names(result)
    if name == "front" and is_multi_objective:
        table = front_table(result)
    elif name == "runs":
        table = runs_table(all_runs(result), variables, values)
    elif name == "population":
        table = population_table(result)
    elif name == "history":
        history = result.history if result.runs is None else result.runs.history
        if history is None:
            raise InputError("this result has no history: run it again with keep=gx.Keep(history=True).")
        table = (history_table if result.runs is None else histories_table)(history, variables, values)
        if result.runs is None and "refinements" in result:
            frame = _build_dataframe(table, result.problem.space)
            frame["refinement"] = frame["generation"].isin(result.refinements)
            return frame
    elif name == "evaluations":
        if "evaluations" not in result:
            raise InputError("only a black box has a table of its evaluations: call minimize with blackbox=True.")
        return _evaluations_dataframe(result.evaluations)
    else:
        names = ["front"] * is_multi_objective + ["runs", "history", "population"]
        names += ["evaluations"] * ("evaluations" in result)
        raise InputError(f"table must be one of {', '.join(names)}; got {name!r}.")
    return _build_dataframe(table, result.problem.space)


def _evaluations_dataframe(evaluations: Evaluations) -> DataFrame:
    frame = _build_dataframe(evaluations_table(evaluations), evaluations.space)
    frame["error"] = evaluations.error
    return frame


def _build_dataframe(table: Table, space: Space | None = None) -> DataFrame:
    """Build a DataFrame; discrete variables become integers, labels and booleans."""
    columns = unique_headings(table.names)
    dtypes: dict[str, type] = {columns[i]: np.int64 for i in table.counts}
    dtypes |= {columns[i]: bool for i in table.booleans}
    frame = _import_pandas().DataFrame(np.asarray(table.rows, np.float64), columns=columns).astype(dtypes)
    if space is not None and table.first_variable is not None:
        for i, variable in enumerate(space.variables, table.first_variable):
            if variable.discrete:
                frame[columns[i]] = [variable.value(number) for number in frame[columns[i]]]
    return frame


def _number_names(letter: str, values: np.ndarray | None) -> list[str]:
    """Name the columns of an array x1, x2, ...; none without an array."""
    return [] if values is None else [f"{letter}{i + 1}" for i in range(np.shape(values)[-1])]


def _import_pandas() -> ModuleType:
    try:
        import pandas
    except ModuleNotFoundError:
        raise MissingPackage('DataFrames need the package pandas: pip install "galapax[notebook]".') from None
    return pandas
