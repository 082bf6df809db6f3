"""A saved run or study for other programs: its tables as CSV, or everything in one JSON file."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from galapax.core.checks import escape_csv, unique_headings
from galapax.results.result import Result, all_runs
from galapax.results.study import Study
from galapax.storage.atomic import write_bytes
from galapax.storage.files import csv_text, label_cells, label_columns, naming_file_errors, to_json
from galapax.storage.folders import load
from galapax.storage.manifest import FILES_OF_KIND, Saved
from galapax.storage.tables import first_variable, value_names

SNAPSHOT_VARIABLES = 3  # their first column, after generation, run and individual


def to_csv(folder: str | Path, out: str | Path | None = None) -> list[Path]:
    """Copy the tables of a saved run or study to `out`; of a run write the answer as answer.csv, and the populations it
    kept as snapshots.csv.

    A saved run's tables are CSV files already, so that without `out` only snapshots.csv is new.
    """
    run_or_study, path = load(folder), Path(folder)
    target = path if out is None else Path(out)
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for name, content in _read_tables(path).items():
        if target.resolve() != path.resolve():
            write_bytes(target / name, content)
        files.append(target / name)
    if isinstance(run_or_study, Result):
        files.append(target / "answer.csv")
        write_bytes(files[-1], _answer_csv(run_or_study).encode())
    if isinstance(run_or_study, Result) and run_or_study.snapshots:
        names, rows = _snapshot_table(run_or_study)
        files.append(target / "snapshots.csv")
        write_bytes(files[-1], csv_text(names, rows, label_columns(run_or_study.problem, SNAPSHOT_VARIABLES)).encode())
    return files


def to_one_json(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write a saved run or study as one JSON file: what result.json or study.json says, and each table by columns.

    out: a file that ends in .json, or a folder for export.json; by default the run's own.
    """
    run_or_study, path = load(folder), Path(folder)
    file = path if out is None else Path(out)
    file = file if file.suffix == ".json" else file / "export.json"
    saved = Saved(path)
    data: dict[str, Any] = json.loads(saved.read(saved.about))
    data.pop("manifest", None)  # of the folder, not of this file
    for name, content in _read_tables(path).items():
        names, *rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        labels = _cell_labels(name, names, run_or_study)
        data[Path(name).stem] = {
            heading: [labels[i].get(cell, cell) if i in labels else _parse_cell(cell) for cell in column]
            for i, (heading, column) in enumerate(zip(names, columns, strict=True))
        }
    if isinstance(run_or_study, Result) and run_or_study.snapshots:
        names, values = _snapshot_table(run_or_study)
        data["snapshots"] = dict(zip(unique_headings(names), values.T, strict=True))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, json.dumps(to_json(data), allow_nan=False).encode(), b"\n")
    return file


def _cell_labels(name: str, names: list[str], run_or_study: Result | Study) -> dict[int, dict[str, Any]]:
    """Map cells to labels for each column of choices: JSON needs no apostrophes."""
    if isinstance(run_or_study, Study):
        return {}
    first = first_variable(name, names, run_or_study, value_names(run_or_study))
    columns = label_columns(run_or_study.problem, first)
    return {
        i: dict(zip(label_cells(column_labels), column_labels, strict=True)) for i, column_labels in columns.items()
    }


def _answer_csv(result: Result) -> str:
    """The answer as a table: what, its value, its unit."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["name", "value", "unit"])
    problem, units = result.problem, result.problem.units or {}
    is_multi_objective = np.ndim(result.fun) > 0
    names = problem.objective_names(len(result.fun)) if is_multi_objective else ["fun"]
    rows: list[tuple[str, Any]] = list(zip(names, np.atleast_1d(result.fun).tolist(), strict=True))
    rows += [("feasible", result.feasible), ("violation", result.violation)] if problem.constrained else []
    rows += problem.params(result.x).items()
    if not is_multi_objective:
        rows += result.get("derived", {}).items()
    for name, value in rows:
        writer.writerow([escape_csv(name), escape_csv(value), escape_csv(units.get(name, ""))])
    return out.getvalue()


def _read_tables(path: Path) -> dict[str, bytes]:
    """Read the tables of a saved run by name."""
    saved, contents = Saved(path), {}
    for name in FILES_OF_KIND[saved.about]:
        if name.endswith(".csv") and saved.has(name):
            with naming_file_errors(path / name):
                contents[name] = saved.read(name)
    return contents


def _snapshot_table(result: Result) -> tuple[list[str], np.ndarray]:
    """The populations as one table: a row for each individual of each run at each generation."""
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
    return ["generation", "run", "individual", *result.problem.variable_names(), *names], np.concatenate(blocks)


def _parse_cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
