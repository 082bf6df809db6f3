"""A saved run or study: a folder of plain files that other tools read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from galapax.core.errors import InputError
from galapax.core.stop import Stop
from galapax.results.result import History, Result, Runs, all_runs
from galapax.results.study import Study, curve_rows
from galapax.storage.files import (
    FORMAT,
    emptied,
    read_csv,
    read_json,
    whole,
    write_csv,
    write_json,
    write_npz,
    write_rows,
)
from galapax.storage.plain import from_plain, plain_result
from galapax.storage.tables import (
    arrays_of,
    front_table,
    fronts_from,
    fronts_table,
    history_from,
    history_table,
    read_front,
    runs_from,
    runs_table,
    snapshot_arrays,
    snapshots_from,
    value_names,
)

Drawings = Mapping[str, Callable[[Path], object]]  # {file name: writes that file}, of what others draw into a folder


def save(result: Result, folder: str | Path, pictures: Drawings | None = None) -> Path:
    """Write `result` to `folder`: result.json, history.csv, population.csv, for several objectives front.csv; for
    several runs runs.csv, histories.npz with the history of every run, and fronts.csv with every run's front; the
    populations that were kept in snapshots.npz; with matplotlib, pictures and a page too.

    What an earlier run left there is removed first. result.json is written last and in one move, so that a folder which
    has it is complete.
    """
    path = Path(folder)
    with emptied(path):
        names, values = result.problem.variable_names(), value_names(result)
        if result.history is not None:
            write_csv(path / "history.csv", *history_table(result.history, names, values))
        if result.runs is not None:
            write_csv(path / "runs.csv", *runs_table(result.runs, names, values))
            if result.runs.history is not None:
                write_npz(path / "histories.npz", arrays_of(result.runs.history))
            if result.runs.fronts is not None:
                write_csv(path / "fronts.csv", *fronts_table(result.runs, names, values))
        table = np.column_stack([result.population, result.population_fitness])
        write_csv(path / "population.csv", [*names, *values], table)
        if "F" in result:
            write_csv(path / "front.csv", *front_table(result))
        if result.get("snapshots"):
            write_npz(path / "snapshots.npz", snapshot_arrays(result.snapshots))
        for name, draw in (pictures or {}).items():
            draw(path / name)
        write_json(path / "result.json", plain_result(result))
    return path


def load(folder: str | Path) -> Result | Study:
    """Read a saved run or study. Its problem's functions are not in the files: it can be looked at, not replayed."""
    path = Path(folder)
    if (path / "study.json").is_file():
        return _load_study(path)
    file = path / "result.json"
    if not file.is_file():
        raise InputError(f"{path} holds no saved run: there is no result.json or study.json in it.")
    with whole(file):
        result = from_plain(read_json(file))
    d, values = result.x.size, value_names(result)
    table, _ = read_csv(path / "population.csv", d + len(values))
    several = len(values) > 1
    result["population"], result["population_fitness"] = table[:, :d], table[:, d:] if several else table[:, -1]
    if several:
        read_front(result, path / "front.csv", values)
    history, runs, histories = path / "history.csv", path / "runs.csv", path / "histories.npz"
    result["history"] = result["runs"] = None
    if history.is_file():
        with whole(history):
            result["history"] = history_from(*read_csv(history), result, values)
    if runs.is_file():
        every = None
        if histories.is_file():
            with whole(histories), np.load(histories) as arrays:
                every = History(**arrays)
        table, names = read_csv(runs)
        with whole(runs):
            result["runs"] = replace(runs_from(table, names, values, d), history=every)
        if several:
            fronts = path / "fronts.csv"
            with whole(fronts):
                own = fronts_from(read_csv(fronts, 1 + d + len(values), may_be_empty=True)[0], result["runs"].number, d)
                result["runs"] = replace(result["runs"], fronts=own)
    snapshots = path / "snapshots.npz"
    result["snapshots"] = {}
    if snapshots.is_file():
        with whole(snapshots), np.load(snapshots) as arrays:
            result["snapshots"] = snapshots_from(arrays, result)
    return result


def save_study(study: Study, folder: str | Path, pictures: Drawings | None = None) -> Path:
    """Write a study to `folder`: its tables (runs.csv, summary.csv, curves.csv), and study.json with data.npz, from
    which `load` makes it again. study.json is written last.

    pictures: further files and what writes each, given its path: figures, a page, the summary as Markdown and LaTeX.
    """
    path = Path(folder)
    with emptied(path):
        write_rows(path / "runs.csv", study.rows())
        write_rows(path / "summary.csv", study.summary())
        write_rows(path / "curves.csv", curve_rows(study))
        arrays = [_cell_arrays(result) for result in study.results]
        write_npz(path / "data.npz", {f"{i}.{name}": a for i, own in enumerate(arrays) for name, a in own.items()})
        for name, draw in (pictures or {}).items():
            draw(path / name)
        described = {
            name: getattr(study, name) for name in ("kind", "axes", "labels", "targets", "message", "paired", "stop")
        }
        cells = [plain_result(result) for result in study.results]
        write_json(path / "study.json", {"format": FORMAT, **described, "cells": cells})
    return path


def _cell_arrays(result: Result) -> dict[str, np.ndarray]:
    """The arrays of a study's cell by name: runs, population, "front.X", "history.best" and so on."""
    runs = all_runs(result)
    parts = arrays_of(replace(runs, history=None, fronts=None)) | {
        "population": result.population,
        "population_fitness": result.population_fitness,
    }
    if "F" in result:
        parts |= {f"front.{name}": result[name] for name in ("X", "F", "G", "H", "CV") if result[name] is not None}
        parts |= {f"derived.{name}": values for name, values in result.get("derived", {}).items()}
        parts["fronts"] = fronts_table(runs, result.problem.variable_names(), value_names(result))[1]
    if runs.history is not None:
        parts |= {f"history.{name}": values for name, values in arrays_of(runs.history).items()}
    return parts


def _load_study(path: Path) -> Study:
    file, data_file = path / "study.json", path / "data.npz"
    with whole(file):
        described = read_json(file)
        results = [from_plain(cell) for cell in described.pop("cells")]
        described["stop"] = Stop(described.get("stop", "budget"))
        if not len(results) == len(described["labels"]) == len(described["targets"]):
            raise ValueError("there must be a label and a target for each cell")
    with whole(data_file), np.load(data_file) as data:
        for i, result in enumerate(results):
            own = {name.partition(".")[2]: data[name] for name in data.files if name.partition(".")[0] == str(i)}
            history, front, derived = (_parts(own, name) for name in ("history", "front", "derived"))
            result["population"], result["population_fitness"] = own.pop("population"), own.pop("population_fitness")
            fronts = own.pop("fronts", None)
            runs = Runs(**own, history=History(**history) if history else None)
            if fronts is not None:
                runs = replace(runs, fronts=fronts_from(fronts, runs.number, result.x.size))
                result.update({name: front.get(name) for name in ("X", "F", "G", "H", "CV")})
                if result.problem.derived:
                    result["derived"] = derived
            result["history"] = None if runs.history is None else runs.history.of_run(_best_of(runs, result))
            result["runs"] = runs if len(runs) > 1 else None
    with whole(file):
        return Study(**described, results=results)


def _parts(arrays: dict[str, Any], name: str) -> dict[str, Any]:
    """Take what is called "name.part" out of the arrays, by part."""
    found = [key for key in arrays if key.startswith(f"{name}.")]
    return {key.partition(".")[2]: arrays.pop(key) for key in found}


def _best_of(runs: Runs, result: Result) -> int:
    """The row of the run that the result shows."""
    if runs.fronts is None:
        return int(np.flatnonzero((runs.x == result.x).all(axis=1))[0])
    merit = -runs.hypervolume if runs.hypervolume is not None else np.zeros(len(runs))
    return int(np.lexsort((merit, runs.violation))[0])
