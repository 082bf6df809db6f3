"""A saved run: a folder of plain files that other tools read."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from galapax.errors import InputError
from galapax.problem import Bounds, Problem, unavailable
from galapax.result import History, Result, Runs

FORMAT = 1


FILES = ("result.json", "history.csv", "population.csv", "runs.csv", "convergence.png", "report.html")


def save(result: Result, folder: str | Path) -> Path:
    """Write `result` to `folder`: result.json, history.csv, population.csv, runs.csv; with matplotlib, pictures too.

    What an earlier run left there is removed first. result.json is written last and in one move, so that a folder which
    has it is complete.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (path / name).unlink(missing_ok=True)
        names = result.problem.variable_names()
        if result.history is not None:
            _write_csv(path / "history.csv", *_history_table(result.history))
        if result.runs is not None:
            _write_csv(path / "runs.csv", *_runs_table(result.runs, names))
        table = np.column_stack([result.population, result.population_fitness])
        _write_csv(path / "population.csv", [*names, "fun"], table)
        _draw(result, path)
        part = path / "result.json.part"
        part.write_text(json.dumps(plain_result(result), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(path / "result.json")
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"The run could not be saved to {path}: {why}. The result itself is intact.") from error
    return path


def load(folder: str | Path) -> Result:
    """Read a saved run. Its problem's functions are not in the files, so it can be looked at but not replayed."""
    path = Path(folder)
    file = path / "result.json"
    if not file.is_file():
        raise InputError(f"{path} holds no saved run: there is no result.json in it.")
    with _whole(file):
        data = json.loads(file.read_text(encoding="utf-8"))
        version = int(data.pop("format"))
    if version > FORMAT:
        raise InputError(f"{file} has format {version}, written by a newer galapax; this one reads up to {FORMAT}.")
    with _whole(file):
        result = _from_summary(data)
    table = _read_csv(path / "population.csv", result.x.size + 1)
    result["population"], result["population_fitness"] = table[:, :-1], table[:, -1]
    history, runs = path / "history.csv", path / "runs.csv"
    with _whole(history):
        result["history"] = _history_from(_read_csv(history)) if history.is_file() else None
    result["runs"] = _runs_from(_read_csv(runs, 7 + result.x.size)) if runs.is_file() else None
    return result


@contextmanager
def _whole(file: Path) -> Iterator[None]:
    """Name the file when what is in it is not what should be."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(
            f"{file} is damaged ({type(error).__name__}: {error}); the run has to be made again."
        ) from None


def _from_summary(data: dict[str, Any]) -> Result:
    described = data.pop("problem")
    result = Result({name: data[name] for name in KEPT})
    bounds = Bounds(np.array(described.pop("lower"), np.float64), np.array(described.pop("upper"), np.float64))
    functions: dict[str, Any] = dict.fromkeys(described.pop("functions"), unavailable)
    result["problem"] = Problem(bounds=bounds, **functions, **described)
    result["fun"] = math.nan if data["fun"] is None else float(data["fun"])
    result["violation"] = math.inf if data["violation"] is None else float(data["violation"])
    for name in ("x", "ineq", "eq"):
        result[name] = None if data[name] is None else np.array(data[name], np.float64)
    return result


KEPT = ("x", "fun", "success", "message", "feasible", "violation", "nit", "nfev", "n_failed", "seed", "ineq", "eq",
        "timings", "settings")  # fmt: skip


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
        "constraint_names": problem.constraint_names,
        "eq_tolerance": problem.eq_tolerance,
        "optimum": problem.optimum,
    }
    return _plain({"format": FORMAT, **{name: result[name] for name in KEPT}, "problem": described})


def _plain(value: Any) -> Any:
    """JSON's own types; numbers that JSON lacks (NaN, inf) become null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _history_table(history: History) -> tuple[list[str], np.ndarray]:
    names = ["generation", "nfev", "best", "mean", "worst"]
    parts = [history.generation, history.nfev, history.best, history.mean, history.worst]
    if history.violation is not None and history.feasible_share is not None:
        names += ["violation", "feasible_share"]
        parts += [history.violation, history.feasible_share]
    return names, np.column_stack(parts)


def _history_from(table: np.ndarray) -> History:
    columns = table.T
    return History(columns[0].astype(int), columns[1].astype(int), *columns[2:])


def _runs_table(runs: Runs, variables: list[str]) -> tuple[list[str], np.ndarray]:
    names = ["run", "fun", "violation", "nit", "nfev", "n_failed", "success", *variables]
    parts = [runs.number, runs.fun, runs.violation, runs.nit, runs.nfev, runs.n_failed, runs.success, *runs.x.T]
    return names, np.column_stack([np.asarray(p, np.float64) for p in parts])


def _runs_from(table: np.ndarray) -> Runs:
    columns = table.T
    number, nit, nfev, n_failed = (columns[i].astype(int) for i in (0, 3, 4, 5))
    fun, violation, success, x = columns[1], columns[2], columns[6] > 0, table[:, 7:]
    return Runs(number, x, fun, violation, nit, nfev, n_failed, success, history=None)


def _write_csv(file: Path, names: list[str], table: np.ndarray) -> None:
    with file.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerow(names)
        np.savetxt(out, table, delimiter=",", fmt="%.17g")


def _read_csv(file: Path, columns: int | None = None) -> np.ndarray:
    with _whole(file), file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))[1:]
        table = np.array([[float(cell) for cell in row] for row in rows], np.float64)
        if table.ndim != 2 or (columns is not None and table.shape[1] != columns):
            raise ValueError("rows or columns are missing")
        return table


def _draw(result: Result, path: Path) -> None:
    try:
        from galapax.view import plots, report
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] not in ("matplotlib", "PIL"):
            raise
        return  # the numbers are saved all the same; the pictures need the `view` extra
    plots.convergence(result).savefig(path / "convergence.png", dpi=150)
    (path / "report.html").write_text(report.page(result), encoding="utf-8")
