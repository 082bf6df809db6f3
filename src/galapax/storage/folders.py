"""A saved run: a folder of plain files that other tools read."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from galapax.core.errors import InputError
from galapax.core.evaluation import Population
from galapax.core.problem import Bounds, Problem, unavailable
from galapax.results.front import Front
from galapax.results.result import History, Result, Runs, all_runs, constraint_names
from galapax.results.study import Study, curve_rows

FORMAT = 1
Drawings = Mapping[str, Callable[[Path], object]]  # {file name: writes that file}, of what others draw into a folder


# All that a folder may hold, the drawings too: what an earlier run left there must not stand for this one's.
FILES = (
    "result.json",
    "history.csv",
    "population.csv",
    "front.csv",
    "runs.csv",
    "fronts.csv",
    "histories.npz",
    "snapshots.npz",
    "convergence.png",
    "front.png",
    "report.html",
)
STUDY_FILES = (
    "study.json",
    "data.npz",
    "runs.csv",
    "curves.csv",
    "summary.csv",
    "summary.md",
    "summary.tex",
    "convergence.png",
    "ecdf.png",
    "report.html",
)


def save(result: Result, folder: str | Path, pictures: Drawings | None = None) -> Path:
    """Write `result` to `folder`: result.json, history.csv, population.csv, for several objectives front.csv; for
    several runs runs.csv, histories.npz with the history of every run, and fronts.csv with every run's front; the
    populations that were kept in snapshots.npz.

    pictures: further files and what writes each, given its path; `Result.save` has the views draw them.
    What an earlier run left there is removed first. result.json is written last and in one move, so that a folder which
    has it is complete.
    """
    path = Path(folder)
    with _emptied(path):
        names, values = result.problem.variable_names(), _value_names(result)
        if result.history is not None:
            _write_csv(path / "history.csv", *_history_table(result.history, names, values))
        if result.runs is not None:
            _write_csv(path / "runs.csv", *_runs_table(result.runs, names, values))
            if result.runs.history is not None:
                _write_npz(path / "histories.npz", _arrays(result.runs.history))
            if result.runs.fronts is not None:
                _write_csv(path / "fronts.csv", *_fronts_table(result.runs, names, values))
        table = np.column_stack([result.population, result.population_fitness])
        _write_csv(path / "population.csv", [*names, *values], table)
        if "F" in result:
            _write_csv(path / "front.csv", *front_table(result))
        if result.get("snapshots"):
            _write_npz(path / "snapshots.npz", _snapshot_arrays(result.snapshots))
        for name, draw in (pictures or {}).items():
            draw(path / name)
        _write_json(path / "result.json", plain_result(result))
    return path


def load(folder: str | Path) -> Result | Study:
    """Read a saved run or study. Its problem's functions are not in the files: it can be looked at, not replayed."""
    path = Path(folder)
    if (path / "study.json").is_file():
        return _load_study(path)
    file = path / "result.json"
    if not file.is_file():
        raise InputError(f"{path} holds no saved run: there is no result.json or study.json in it.")
    with _whole(file):
        result = _from_summary(_read_json(file))
    d, values = result.x.size, _value_names(result)
    table, _ = _read_csv(path / "population.csv", d + len(values))
    several = len(values) > 1
    result["population"], result["population_fitness"] = table[:, :d], table[:, d:] if several else table[:, -1]
    if several:
        _read_front(result, path / "front.csv", values)
    history, runs, histories = path / "history.csv", path / "runs.csv", path / "histories.npz"
    result["history"] = result["runs"] = None
    if history.is_file():
        with _whole(history):
            result["history"] = _history_from(*_read_csv(history), result, values)
    if runs.is_file():
        every = None
        if histories.is_file():
            with _whole(histories), np.load(histories) as arrays:
                every = History(**arrays)
        table, names = _read_csv(runs)
        with _whole(runs):
            result["runs"] = replace(_runs_from(table, names, values, d), history=every)
        if several:
            fronts = path / "fronts.csv"
            with _whole(fronts):
                own = _fronts_from(
                    _read_csv(fronts, 1 + d + len(values), may_be_empty=True)[0], result["runs"].number, d
                )
                result["runs"] = replace(result["runs"], fronts=own)
    snapshots = path / "snapshots.npz"
    result["snapshots"] = {}
    if snapshots.is_file():
        with _whole(snapshots), np.load(snapshots) as arrays:
            result["snapshots"] = _snapshots_from(arrays, result)
    return result


def save_study(study: Study, folder: str | Path, pictures: Drawings | None = None) -> Path:
    """Write a study to `folder`: its tables (runs.csv, summary.csv, curves.csv), and study.json with data.npz, from
    which `load` makes it again. study.json is written last.

    pictures: further files and what writes each, given its path: figures, a page, the summary as Markdown and LaTeX.
    """
    path = Path(folder)
    with _emptied(path):
        _write_rows(path / "runs.csv", study.rows())
        _write_rows(path / "summary.csv", study.summary())
        _write_rows(path / "curves.csv", curve_rows(study))
        arrays = [_cell_arrays(result) for result in study.results]
        _write_npz(path / "data.npz", {f"{i}.{name}": a for i, own in enumerate(arrays) for name, a in own.items()})
        for name, draw in (pictures or {}).items():
            draw(path / name)
        described = {name: getattr(study, name) for name in ("kind", "axes", "labels", "targets", "message", "paired")}
        cells = [plain_result(result) for result in study.results]
        _write_json(path / "study.json", {"format": FORMAT, **described, "cells": cells})
    return path


def _cell_arrays(result: Result) -> dict[str, np.ndarray]:
    """The arrays of a study's cell by name: runs, population, "front.X", "history.best" and so on."""
    runs = all_runs(result)
    parts = _arrays(replace(runs, history=None, fronts=None)) | {
        "population": result.population,
        "population_fitness": result.population_fitness,
    }
    if "F" in result:
        parts |= {f"front.{name}": result[name] for name in ("X", "F", "G", "H", "CV") if result[name] is not None}
        parts |= {f"derived.{name}": values for name, values in result.get("derived", {}).items()}
        parts["fronts"] = _fronts_table(runs, result.problem.variable_names(), _value_names(result))[1]
    if runs.history is not None:
        parts |= {f"history.{name}": values for name, values in _arrays(runs.history).items()}
    return parts


def _load_study(path: Path) -> Study:
    file, data_file = path / "study.json", path / "data.npz"
    with _whole(file):
        described = _read_json(file)
        results = [_from_summary(cell) for cell in described.pop("cells")]
        if not len(results) == len(described["labels"]) == len(described["targets"]):
            raise ValueError("there must be a label and a target for each cell")
    with _whole(data_file), np.load(data_file) as data:
        for i, result in enumerate(results):
            own = {name.partition(".")[2]: data[name] for name in data.files if name.partition(".")[0] == str(i)}
            history, front, derived = (_parts(own, name) for name in ("history", "front", "derived"))
            result["population"], result["population_fitness"] = own.pop("population"), own.pop("population_fitness")
            fronts = own.pop("fronts", None)
            runs = Runs(**own, history=History(**history) if history else None)
            if fronts is not None:
                runs = replace(runs, fronts=_fronts_from(fronts, runs.number, result.x.size))
                result.update({name: front.get(name) for name in ("X", "F", "G", "H", "CV")})
                if result.problem.derived:
                    result["derived"] = derived
            result["history"] = None if runs.history is None else runs.history.of_run(_best_of(runs, result))
            result["runs"] = runs if len(runs) > 1 else None
    with _whole(file):
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


def _snapshot_arrays(snapshots: dict[int, Population]) -> dict[str, np.ndarray]:
    """By name: "100.x", "100.objectives" and so on for generation 100."""
    parts = {f"{g}.{name}": values for g, kept in snapshots.items() for name, values in kept._asdict().items()}
    return {name: np.asarray(values) for name, values in parts.items() if values is not None}


def _snapshots_from(arrays: Any, result: Result) -> dict[int, Population]:
    shape = result.population.shape if result.runs is None else (len(result.runs), *result.population.shape)
    out = {}
    for g in sorted({int(name.partition(".")[0]) for name in arrays.files}):
        parts = {name: arrays[f"{g}.{name}"] for name in Population._fields if f"{g}.{name}" in arrays.files}
        kept = Population(**{"violation": None} | parts)
        if kept.x.shape[-1] != shape[-1] or kept.x.ndim != len(shape) or kept.x.shape[:-1] != kept.fitness.shape:
            raise ValueError(f"the population of generation {g} has the shape {kept.x.shape}")
        out[g] = kept
    return out


def _arrays(record: Any) -> dict[str, np.ndarray]:
    """The arrays of a History or Runs by name."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return {name: value for name, value in values.items() if value is not None}


@contextmanager
def _emptied(path: Path) -> Iterator[None]:
    """A folder without what an earlier run left in it; a full disk or a missing right is told in a sentence."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in (*FILES, *STUDY_FILES):
            (path / name).unlink(missing_ok=True)
        yield
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"The run could not be saved to {path}: {why}. The result itself is intact.") from error


def _write_json(file: Path, data: dict[str, Any]) -> None:
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(to_json(data), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(file)


def _write_npz(file: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(file, allow_pickle=False, **arrays)


def _read_json(file: Path) -> dict[str, Any]:
    data = json.loads(file.read_text(encoding="utf-8"))
    version = int(data.pop("format"))
    if version > FORMAT:
        raise InputError(f"{file} has format {version}, written by a newer galapax; this one reads up to {FORMAT}.")
    return data


@contextmanager
def _whole(file: Path) -> Iterator[None]:
    """Name the file when what is in it is not what should be."""
    try:
        yield
    except InputError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError, BadZipFile) as error:
        raise InputError(
            f"{file} is damaged ({type(error).__name__}: {error}); the run has to be made again."
        ) from None


def _from_summary(data: dict[str, Any]) -> Result:
    data.pop("format", None)  # of a study's cell
    described = data.pop("problem")
    result = Result({name: data[name] for name in KEPT})
    bounds = Bounds(np.array(described.pop("lower"), np.float64), np.array(described.pop("upper"), np.float64))
    functions: dict[str, Any] = dict.fromkeys(described.pop("functions"), unavailable)
    if described.get("derived"):
        described["derived"] = dict.fromkeys(described["derived"], unavailable)
    result["problem"] = Problem(bounds=bounds, **functions, **described)
    several = isinstance(data["fun"], list)
    result["fun"] = np.array(data["fun"], np.float64) if several else _number(data["fun"])
    if "chosen" in data:
        result["chosen"] = data["chosen"]
    if "hypervolume" in data:
        result["hypervolume"] = _number(data["hypervolume"])
    result["violation"] = math.inf if data["violation"] is None else float(data["violation"])
    for name in ("y", "worst_cases"):
        if name in data:
            result[name] = np.array(data[name], np.float64)
    if "worst_case" in data:
        result["worst_case"] = _number(data["worst_case"])
    for name in ("x", "ineq", "eq"):
        result[name] = None if data[name] is None else np.array(data[name], np.float64)
    return result


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


KEPT = ("x", "fun", "success", "message", "feasible", "violation", "nit", "nfev", "n_failed", "seed", "ineq", "eq",
        "timings", "settings")  # fmt: skip
AT_TIMES = ("y", "worst_case", "worst_cases", "hypervolume", "chosen")  # of `minimax`; of several objectives


def plain_result(result: Result) -> dict[str, Any]:
    """The result in JSON's own types: everything but the population and the history."""
    problem = result.problem
    described = {
        "name": problem.name,
        "title": problem.title,
        "source": problem.source,
        "functions": [name for name in ("fun", "ineq", "eq") if getattr(problem, name) is not None],
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
    kept = {name: result[name] for name in (*KEPT, *AT_TIMES) if name in KEPT or name in result}
    return to_json({"format": FORMAT, **kept, "problem": described})


def to_json(value: Any) -> Any:
    """JSON's own types; numbers that JSON lacks (NaN, inf) become null."""
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


def _value_names(result: Result) -> list[str]:
    """Headings for the value of a solution: "fun", or the names of several objectives."""
    return result.problem.objective_names(len(result.fun)) if np.ndim(result.fun) else ["fun"]


def _history_table(history: History, variables: list[str], values: list[str]) -> tuple[list[str], np.ndarray]:
    names, parts = ["generation", "nfev"], [history.generation, history.nfev]
    for name in ("best", "mean", "worst"):
        names += [name] if len(values) == 1 else [f"{name} {value}" for value in values]
        parts += [getattr(history, name)]
    for name in ("violation", "feasible_share", "hypervolume"):
        if getattr(history, name) is not None:
            names.append(name)
            parts.append(getattr(history, name))
    if history.x is not None:
        names += variables
        parts.append(history.x)
    return names, np.column_stack(parts)


def _history_from(table: np.ndarray, names: list[str], result: Result, values: list[str]) -> History:
    m = len(values)
    generation, nfev = table[:, 0].astype(int), table[:, 1].astype(int)
    stats = [table[:, 2 + i * m : 2 + (i + 1) * m] for i in range(3)]
    best, mean, worst = stats if m > 1 else (part[:, 0] for part in stats)
    at = 2 + 3 * m
    further = {}
    for name in ("violation", "feasible_share", "hypervolume"):
        if names[at : at + 1] == [name]:
            further[name], at = table[:, at], at + 1
    x = table[:, at:] if at < len(names) else None
    if result.problem.constrained != ("violation" in further) or (x is not None and x.shape[1] != result.x.size):
        raise ValueError("rows or columns are missing")
    return History(generation, nfev, best, mean, worst, **further, x=x)


def _runs_table(runs: Runs, variables: list[str], values: list[str]) -> tuple[list[str], np.ndarray]:
    names = ["run", *values, "violation", "nit", "nfev", "n_failed", "success"]
    parts = [runs.number, runs.fun, runs.violation, runs.nit, runs.nfev, runs.n_failed, runs.success]
    if runs.hypervolume is not None:
        names.append("hypervolume")
        parts.append(runs.hypervolume)
    return [*names, *variables], np.column_stack([*(np.asarray(p, np.float64) for p in parts), runs.x])


def _runs_from(table: np.ndarray, names: list[str], values: list[str], d: int) -> Runs:
    m = len(values)
    measured = names[m + 6 : m + 7] == ["hypervolume"]
    if len(names) != m + 6 + measured + d:
        raise ValueError("rows or columns are missing")
    fun = table[:, 1 : 1 + m] if m > 1 else table[:, 1]
    violation, nit, nfev, n_failed, success = table[:, m + 1 : m + 6].T
    return Runs(
        number=table[:, 0].astype(int),
        x=table[:, m + 6 + measured :],
        fun=fun,
        violation=violation,
        nit=nit.astype(int),
        nfev=nfev.astype(int),
        n_failed=n_failed.astype(int),
        success=success > 0,
        history=None,
        hypervolume=table[:, m + 6] if measured else None,
    )


def front_table(result: Result) -> tuple[list[str], np.ndarray]:
    """The front with one row a solution: variables, derived quantities, objectives, constraints."""
    problem = result.problem
    parts = [result.X, *result.get("derived", {}).values(), result.F]
    parts += [part for part in (result.G, result.H) if part is not None]
    names = [*problem.variable_names(), *(problem.derived or ()), *_value_names(result)]
    if result.G is not None or result.H is not None:
        names += constraint_names(result)
    return names, np.column_stack(parts)


def _read_front(result: Result, file: Path, values: list[str]) -> None:
    table, names = _read_csv(file, may_be_empty=True)
    with _whole(file):
        derived = list(result.problem.derived or ())
        d, m = result.x.size, len(values)
        counts = (d, len(derived), m, *(0 if at is None else at.size for at in (result.ineq, result.eq)))
        if len(names) != sum(counts):
            raise ValueError("rows or columns are missing")
        result["X"], extra, result["F"], ineq, eq = np.split(table, np.cumsum(counts)[:-1], axis=1)
        result["G"], result["H"] = (None if part.shape[1] == 0 else part for part in (ineq, eq))
        result["CV"] = np.zeros(len(table))
        if derived:
            result["derived"] = dict(zip(derived, extra.T, strict=True))


def _fronts_table(runs: Runs, variables: list[str], values: list[str]) -> tuple[list[str], np.ndarray]:
    """The front of every run, one row a solution, with its run's number."""
    fronts = runs.fronts or []
    own = np.repeat(runs.number, [len(front) for front in fronts])
    table = np.column_stack([own, np.concatenate([f.X for f in fronts]), np.concatenate([f.F for f in fronts])])
    return ["run", *variables, *values], table


def _fronts_from(table: np.ndarray, numbers: np.ndarray, d: int) -> list[Front]:
    own = [table[table[:, 0] == number, 1:] for number in numbers]
    return [Front(rows[:, :d], rows[:, d:], None, None, np.zeros(len(rows))) for rows in own]


def _write_csv(file: Path, names: list[str], table: np.ndarray) -> None:
    with file.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerow(names)
        np.savetxt(out, table, delimiter=",", fmt="%.17g")


def _write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    """A table with the names of all its rows' columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _read_csv(file: Path, columns: int | None = None, may_be_empty: bool = False) -> tuple[np.ndarray, list[str]]:
    """The numbers of a table, and the names of its columns."""
    with _whole(file), file.open(encoding="utf-8", newline="") as lines:
        names, *rows = list(csv.reader(lines))
        table = np.array([[float(cell) for cell in row] for row in rows], np.float64)
        if may_be_empty and not rows:
            table = np.zeros((0, len(names)))
        if table.ndim != 2 or table.shape[1] != len(names) or (columns is not None and table.shape[1] != columns):
            raise ValueError("rows or columns are missing")
        return table, names
