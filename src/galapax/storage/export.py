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
from galapax.storage.files import csv_text, label_cells, labels_of, to_json, whole
from galapax.storage.folders import load
from galapax.storage.manifest import KNOWN, Saved
from galapax.storage.tables import first_variable, value_names

SNAPSHOT_VARIABLES = 3  # their first column, after generation, run and individual


def to_csv(folder: str | Path, out: str | Path | None = None) -> list[Path]:
    """Copy the tables of a saved run or study to `out`; of a run write the answer as answer.csv, and the populations it
    kept as snapshots.csv.

    A saved run's tables are CSV files already, so that without `out` only snapshots.csv is new.
    """
    loaded, path = load(folder), Path(folder)
    there = path if out is None else Path(out)
    there.mkdir(parents=True, exist_ok=True)
    files = []
    for name, content in _tables(path).items():
        if there.resolve() != path.resolve():
            write_bytes(there / name, content)
        files.append(there / name)
    if isinstance(loaded, Result):
        files.append(there / "answer.csv")
        write_bytes(files[-1], _answer(loaded).encode())
    if isinstance(loaded, Result) and loaded.snapshots:
        names, rows = _snapshot_table(loaded)
        files.append(there / "snapshots.csv")
        write_bytes(files[-1], csv_text(names, rows, labels_of(loaded.problem, SNAPSHOT_VARIABLES)).encode())
    return files


def to_one_json(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write a saved run or study as one JSON file: what result.json or study.json says, and each table by columns.

    out: a file that ends in .json, or a folder for export.json; by default the run's own.
    """
    loaded, path = load(folder), Path(folder)
    file = path if out is None else Path(out)
    file = file if file.suffix == ".json" else file / "export.json"
    saved = Saved(path)
    data: dict[str, Any] = json.loads(saved.read(saved.about))
    data.pop("manifest", None)  # of the folder, not of this file
    for name, content in _tables(path).items():
        names, *rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        labels = _labels(name, names, loaded)
        data[Path(name).stem] = {
            n: [labels[i].get(c, c) if i in labels else _number(c) for c in column]
            for i, (n, column) in enumerate(zip(names, columns, strict=True))
        }
    if isinstance(loaded, Result) and loaded.snapshots:
        names, values = _snapshot_table(loaded)
        data["snapshots"] = dict(zip(unique_headings(names), values.T, strict=True))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, json.dumps(to_json(data), allow_nan=False).encode(), b"\n")
    return file


def _labels(name: str, names: list[str], loaded: Result | Study) -> dict[int, dict[str, Any]]:
    """The labels that the cells of some columns of a table stand for: JSON needs no apostrophes. By column and cell."""
    if isinstance(loaded, Study):
        return {}
    first = first_variable(name, names, loaded, value_names(loaded))
    columns = labels_of(loaded.problem, first)
    return {i: dict(zip(label_cells(own), own, strict=True)) for i, own in columns.items()}


def _answer(result: Result) -> str:
    """The answer as a table: what, its value, its unit."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["name", "value", "unit"])
    problem, units = result.problem, result.problem.units or {}
    several = np.ndim(result.fun) > 0
    names = problem.objective_names(len(result.fun)) if several else ["fun"]
    rows: list[tuple[str, Any]] = list(zip(names, np.atleast_1d(result.fun).tolist(), strict=True))
    rows += [("feasible", result.feasible), ("violation", result.violation)] if problem.constrained else []
    rows += problem.named(result.x).items()
    if not several:
        rows += result.get("derived", {}).items()
    for name, value in rows:
        writer.writerow([escape_csv(name), escape_csv(value), escape_csv(units.get(name, ""))])
    return out.getvalue()


def _tables(path: Path) -> dict[str, bytes]:
    """The tables that a run wrote, by name."""
    saved, out = Saved(path), {}
    for name in KNOWN[saved.about]:
        if name.endswith(".csv") and saved.has(name):
            with whole(path / name):
                out[name] = saved.read(name)
    return out


def _snapshot_table(result: Result) -> tuple[list[str], np.ndarray]:
    """The populations as one table: a row for each individual of each run at each generation."""
    numbers = all_runs(result).number
    parts = []
    for g, kept in result.snapshots.items():
        x, objectives = (np.asarray(a) if result.runs is not None else np.asarray(a)[None] for a in kept[:2])
        runs, n = x.shape[:2]
        columns = [np.full(runs * n, g), np.repeat(numbers, n), np.tile(np.arange(n), runs), *x.reshape(runs * n, -1).T]
        columns += list(objectives.reshape(runs * n, -1).T)
        if kept.violation is not None:
            columns.append(np.asarray(kept.violation).ravel())
        parts.append(np.column_stack(columns))
    count = objectives.shape[-1]
    names = ["fun"] if count == 1 else result.problem.objective_names(count)
    names += ["violation"] if kept.violation is not None else []
    return ["generation", "run", "individual", *result.problem.variable_names(), *names], np.concatenate(parts)


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
