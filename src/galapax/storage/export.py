"""A saved run or study for other programs: its tables as CSV, or everything in one JSON file."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from galapax.results.result import Result, all_runs
from galapax.results.study import Study
from galapax.storage.files import FILES, STUDY_FILES, to_json
from galapax.storage.folders import load


def to_csv(folder: str | Path, out: str | Path | None = None) -> list[Path]:
    """Copy the tables of a saved run or study to `out`, and write the populations it kept as snapshots.csv.

    A saved run's tables are CSV files already, so that without `out` only snapshots.csv is new.
    """
    saved, path = load(folder), Path(folder)
    there = path if out is None else Path(out)
    there.mkdir(parents=True, exist_ok=True)
    files = []
    for table in _tables(path, saved):
        if there.resolve() != path.resolve():
            shutil.copyfile(table, there / table.name)
        files.append(there / table.name)
    if isinstance(saved, Result) and saved.snapshots:
        names, rows = _snapshot_table(saved)
        file = there / "snapshots.csv"
        with file.open("w", encoding="utf-8", newline="") as lines:
            csv.writer(lines, lineterminator="\n").writerow(names)
            np.savetxt(lines, rows, delimiter=",", fmt="%.17g")
        files.append(file)
    return files


def to_one_json(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write a saved run or study as one JSON file: what result.json or study.json says, and each table by columns.

    out: a file that ends in .json, or a folder for export.json; by default the run's own.
    """
    saved, path = load(folder), Path(folder)
    file = path if out is None else Path(out)
    file = file if file.suffix == ".json" else file / "export.json"
    about = "study.json" if isinstance(saved, Study) else "result.json"
    data: dict[str, Any] = json.loads((path / about).read_text(encoding="utf-8"))
    for table in _tables(path, saved):
        with table.open(encoding="utf-8", newline="") as lines:
            names, *rows = list(csv.reader(lines))
        columns = zip(*rows, strict=True) if rows else ([] for _ in names)
        data[table.stem] = {name: [_number(c) for c in column] for name, column in zip(names, columns, strict=True)}
    if isinstance(saved, Result) and saved.snapshots:
        names, values = _snapshot_table(saved)
        data["snapshots"] = dict(zip(names, values.T, strict=True))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(to_json(data), allow_nan=False) + "\n", encoding="utf-8")
    return file


def _tables(path: Path, saved: Result | Study) -> list[Path]:
    known = STUDY_FILES if isinstance(saved, Study) else FILES
    return [path / name for name in known if name.endswith(".csv") and (path / name).is_file()]


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
