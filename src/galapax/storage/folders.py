"""A saved run or study: a folder of plain files that other tools read."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from galapax.core.errors import InputError
from galapax.core.stop import Stop
from galapax.results.result import Result, Runs, all_runs
from galapax.results.study import Study, curve_rows
from galapax.storage.atomic import Drawings, replace_run
from galapax.storage.files import (
    FORMAT,
    label_columns,
    naming_file_errors,
    read_json,
    read_npz,
    write_csv,
    write_json,
    write_npz,
    write_rows,
)
from galapax.storage.manifest import Saved
from galapax.storage.result_json import check_study, parse_evaluation_errors, result_from_json, result_to_json
from galapax.storage.tables import (
    check_runs,
    first_variable,
    front_table,
    fronts_table,
    history_table,
    named_arrays,
    parse_fronts,
    parse_histories,
    parse_history,
    parse_runs,
    parse_snapshots,
    read_evaluations,
    read_front,
    read_table,
    runs_table,
    snapshot_arrays,
    value_names,
)


def save(result: Result, folder: str | Path, pictures: Drawings | None = None) -> Path:
    """Write `result` to `folder`: result.json, history.csv, population.csv, for several objectives front.csv; for
    several runs runs.csv, histories.npz with the history of every run, and fronts.csv with every run's front; the
    populations that were kept in snapshots.npz; every call of a black box in evaluations.csv; with matplotlib, pictures
    and a page too; manifest.json lists them all.

    What an earlier run left there is replaced, all at once, and only when the new files are written.
    """

    def write_numbers(path: Path) -> None:
        names, values = result.problem.variable_names(), value_names(result)

        def write(file: str, heads: list[str], rows: np.ndarray) -> None:
            first = first_variable(file, heads, result, values)
            write_csv(path / file, heads, rows, label_columns(result.problem, first))

        if result.history is not None:
            write("history.csv", *history_table(result.history, names, values))
        if result.runs is not None:
            write("runs.csv", *runs_table(result.runs, names, values))
            if result.runs.history is not None:
                write_npz(path / "histories.npz", named_arrays(result.runs.history))
            if result.runs.fronts is not None:
                write("fronts.csv", *fronts_table(result.runs, names, values))
        table = np.column_stack([result.population, result.population_fitness])
        write("population.csv", [*names, *values], table)
        if "F" in result:
            write("front.csv", *front_table(result))
        if "evaluations" in result:
            write("evaluations.csv", *result.evaluations.table())
        if result.get("snapshots"):
            write_npz(path / "snapshots.npz", snapshot_arrays(result.snapshots))
        write_json(path / "result.json", {"manifest": True, **result_to_json(result)})

    return replace_run(Path(folder), write_numbers, pictures or {})


def load(folder: str | Path) -> Result | Study:
    """Read a saved run or study. Its problem's functions are not in the files: it can be looked at, not replayed."""
    for attempt in count():
        saved = Saved(Path(folder))
        try:
            return _load_study(saved) if saved.about == "study.json" else _load_result(saved)
        except InputError:
            if attempt == 10 or not saved.is_replaced():  # by a save that came in between
                raise
    raise AssertionError


def _load_result(saved: Saved) -> Result:
    path = saved.folder
    data = read_json(saved, "result.json")
    with naming_file_errors(path / "result.json"):
        result = result_from_json(data)
    d, values = result.x.size, value_names(result)
    table, _ = read_table(saved, "population.csv", result, d + len(values))
    is_multi_objective = len(values) > 1
    result["population"], result["population_fitness"] = (
        table[:, :d],
        table[:, d:] if is_multi_objective else table[:, -1],
    )
    if is_multi_objective:
        read_front(result, saved, values)
    result["history"] = result["runs"] = None
    if saved.has("history.csv"):
        table, names = read_table(saved, "history.csv", result)
        with naming_file_errors(path / "history.csv"):
            result["history"] = parse_history(table, names, result, values)
    if saved.has("runs.csv"):
        table, names = read_table(saved, "runs.csv", result)
        with naming_file_errors(path / "runs.csv"):
            result["runs"] = parse_runs(table, names, values, d)
        if saved.has("histories.npz"):
            arrays = read_npz(saved, "histories.npz")
            with naming_file_errors(path / "histories.npz"):
                result["runs"] = replace(result["runs"], history=parse_histories(arrays, len(result["runs"])))
        if is_multi_objective:
            table, _ = read_table(saved, "fronts.csv", result, 1 + d + len(values), may_be_empty=True)
            with naming_file_errors(path / "fronts.csv"):
                result["runs"] = replace(result["runs"], fronts=parse_fronts(table, result["runs"].number, d))
    if saved.has("evaluations.csv"):
        with naming_file_errors(path / "result.json"):
            errors = parse_evaluation_errors(data)
        read_evaluations(result, saved, values, errors)
    result["snapshots"] = {}
    if saved.has("snapshots.npz"):
        arrays = read_npz(saved, "snapshots.npz")
        with naming_file_errors(path / "snapshots.npz"):
            result["snapshots"] = parse_snapshots(arrays, result)
    return result


def save_study(study: Study, folder: str | Path, pictures: Drawings | None = None) -> Path:
    """Write a study to `folder`: its tables (runs.csv, summary.csv, curves.csv), and study.json with data.npz, from
    which `load` makes it again.

    pictures: further files and what writes each, given its path: figures, a page, the summary as Markdown and LaTeX.
    """

    def write_numbers(path: Path) -> None:
        write_rows(path / "runs.csv", study.rows())
        write_rows(path / "summary.csv", study.summary())
        write_rows(path / "curves.csv", curve_rows(study))
        arrays = [_cell_arrays(result) for result in study.results]
        write_npz(
            path / "data.npz",
            {f"{i}.{name}": a for i, cell_arrays in enumerate(arrays) for name, a in cell_arrays.items()},
        )
        description = {
            name: getattr(study, name) for name in ("kind", "axes", "labels", "targets", "message", "paired", "stop")
        }
        cells = [result_to_json(result) for result in study.results]
        write_json(path / "study.json", {"format": FORMAT, "manifest": True, **description, "cells": cells})

    return replace_run(Path(folder), write_numbers, pictures or {})


def _cell_arrays(result: Result) -> dict[str, np.ndarray]:
    """The arrays of a study's cell by name: runs, population, "front.X", "history.best" and so on."""
    runs = all_runs(result)
    arrays = named_arrays(replace(runs, history=None, fronts=None)) | {
        "population": result.population,
        "population_fitness": result.population_fitness,
    }
    if "F" in result:
        arrays |= {f"front.{name}": result[name] for name in ("X", "F", "G", "H", "CV") if result[name] is not None}
        arrays |= {f"derived.{name}": values for name, values in result.get("derived", {}).items()}
        arrays["fronts"] = fronts_table(runs, result.problem.variable_names(), value_names(result))[1]
    if runs.history is not None:
        arrays |= {f"history.{name}": values for name, values in named_arrays(runs.history).items()}
    return arrays


def _load_study(saved: Saved) -> Study:
    file, data_file = saved.folder / "study.json", saved.folder / "data.npz"
    description = read_json(saved, "study.json")
    with naming_file_errors(file):
        results = [result_from_json(cell) for cell in description.pop("cells")]
        description["stop"] = Stop(description.get("stop", "budget"))
        check_study(description, len(results))
    data = read_npz(saved, "data.npz")
    with naming_file_errors(data_file):
        for i, result in enumerate(results):
            arrays: dict[str, Any] = {
                key.partition(".")[2]: data[key] for key in data if key.partition(".")[0] == str(i)
            }
            history, front, derived = (_pop_group(arrays, name) for name in ("history", "front", "derived"))
            result["population"], result["population_fitness"] = (
                arrays.pop("population"),
                arrays.pop("population_fitness"),
            )
            fronts = arrays.pop("fronts", None)
            runs = Runs(**arrays, history=None)
            check_runs(runs, result.x.size)
            if history:
                runs = replace(runs, history=parse_histories(history, len(runs)))
            if fronts is not None:
                runs = replace(runs, fronts=parse_fronts(fronts, runs.number, result.x.size))
                result.update({name: front.get(name) for name in ("X", "F", "G", "H", "CV")})
                if result.problem.derived:
                    result["derived"] = derived
            result["history"] = None if runs.history is None else runs.history.of_run(_best_run(runs, result))
            result["runs"] = runs if len(runs) > 1 else None
    with naming_file_errors(file):
        return Study(**description, results=results)


def _pop_group(arrays: dict[str, Any], name: str) -> dict[str, Any]:
    """Pop the arrays called "name.key", by key."""
    keys = [key for key in arrays if key.startswith(f"{name}.")]
    return {key.partition(".")[2]: arrays.pop(key) for key in keys}


def _best_run(runs: Runs, result: Result) -> int:
    """The row of the run that the result shows."""
    if runs.fronts is None:
        return int(np.flatnonzero((runs.x == result.x).all(axis=1))[0])
    merit = -runs.hypervolume if runs.hypervolume is not None else np.zeros(len(runs))
    return int(np.lexsort((merit, runs.violation))[0])
