"""A saved run: a folder of plain files that other tools read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from galapax.errors import InputError
from galapax.result import History, Result, Runs

FORMAT = 1


def save(result: Result, folder: str | Path) -> Path:
    """Write `result` to `folder`: result.json, history.csv, population.csv, runs.csv; with matplotlib, pictures too.

    result.json is written last and in one move, so that a folder which has it is complete.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if result.history is not None:
            _write_csv(path / "history.csv", *_history_table(result.history))
        if result.runs is not None:
            _write_csv(path / "runs.csv", *_runs_table(result.runs, result.problem.variable_names()))
        names = result.problem.variable_names()
        _write_csv(
            path / "population.csv", [*names, "fun"], np.column_stack([result.population, result.population_fitness])
        )
        _draw(result, path)
        part = path / "result.json.part"
        part.write_text(json.dumps(plain_result(result), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(path / "result.json")
    except OSError as error:
        raise OSError(
            f"The run could not be saved to {path}: {error.strerror or error}. The result itself is intact."
        ) from error
    return path


def load(folder: str | Path) -> Result:
    """Read a saved run. Its problem's functions are not in the files, so it can be looked at but not replayed."""
    path = Path(folder)
    file = path / "result.json"
    if not file.is_file():
        raise InputError(f"{path} holds no saved run: there is no result.json in it.")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        version = data.pop("format")
    except (json.JSONDecodeError, KeyError, AttributeError) as error:
        raise InputError(f"{file} is damaged ({error}); the run has to be made again.") from None
    if version > FORMAT:
        raise InputError(f"{file} has format {version}, written by a newer galapax; this one reads up to {FORMAT}.")
    result = Result(data)
    result["fun"] = math.nan if result.fun is None else result.fun
    result["violation"] = math.inf if result.violation is None else result.violation
    for name in ("x", "ineq", "eq"):
        result[name] = None if result[name] is None else np.array(result[name], np.float64)
    table = np.genfromtxt(path / "population.csv", delimiter=",", skip_header=1, ndmin=2)
    result["population"], result["population_fitness"] = table[:, :-1], table[:, -1]
    result["history"] = _read_history(path / "history.csv")
    result["runs"] = _read_runs(path / "runs.csv", len(result.x))
    return result


def plain_result(result: Result) -> dict[str, Any]:
    """The result in JSON's own types: everything but the population and the history."""
    keep = (
        "fun",
        "success",
        "message",
        "feasible",
        "violation",
        "nit",
        "nfev",
        "n_failed",
        "seed",
        "timings",
        "settings",
    )
    out: dict[str, Any] = {"format": FORMAT, "x": result.x}
    out.update({name: result[name] for name in keep})
    out.update({"ineq": result.ineq, "eq": result.eq, "variables": result.problem.variable_names()})
    out["bounds"] = {"lower": result.problem.bounds.lower, "upper": result.problem.bounds.upper}
    out["optimum"] = result.problem.optimum
    return _plain(out)


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


def _read_history(file: Path) -> History | None:
    if not file.is_file():
        return None
    table = np.genfromtxt(file, delimiter=",", skip_header=1, ndmin=2).T
    return History(table[0].astype(int), table[1].astype(int), *table[2:])


def _runs_table(runs: Runs, variables: list[str]) -> tuple[list[str], np.ndarray]:
    names = ["run", "fun", "violation", "nit", "nfev", "n_failed", "success", *variables]
    parts = [runs.number, runs.fun, runs.violation, runs.nit, runs.nfev, runs.n_failed, runs.success, *runs.x.T]
    return names, np.column_stack([np.asarray(p, np.float64) for p in parts])


def _read_runs(file: Path, dim: int) -> Runs | None:
    if not file.is_file():
        return None
    table = np.genfromtxt(file, delimiter=",", skip_header=1, ndmin=2).T
    whole = [table[i].astype(int) for i in (0, 3, 4, 5)]
    return Runs(
        number=whole[0], x=table[-dim:].T, fun=table[1], violation=table[2], nit=whole[1], nfev=whole[2],
        n_failed=whole[3], success=table[6] > 0, history=None,
    )  # fmt: skip


def _write_csv(file: Path, names: list[str], table: np.ndarray) -> None:
    with file.open("w", encoding="utf-8", newline="\n") as out:
        out.write(",".join(names) + "\n")
        np.savetxt(out, table, delimiter=",", fmt="%.17g")


def _draw(result: Result, path: Path) -> None:
    try:
        from galapax.view import plots, report
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] not in ("matplotlib", "PIL"):
            raise
        return  # the numbers are saved all the same; the pictures need the `view` extra
    plots.convergence(result).savefig(path / "convergence.png", dpi=150)
    (path / "report.html").write_text(report.page(result), encoding="utf-8")
