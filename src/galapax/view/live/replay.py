"""Replay of a finished run on the live page, from its history and snapshots.

It has the interface that a page uses of a `LiveSession`. Nothing is computed again: a position moves along the history.
It also lists the runs that were saved in the same folder.
"""

from __future__ import annotations

import bisect
import json
import math
import secrets
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from galapax.core.problem import Problem, missing_function
from galapax.execution import observers
from galapax.execution.observers import Facts
from galapax.results.result import Result
from galapax.view import figure_data, maps
from galapax.view.live.messages import (
    ContourGrids,
    JsonObject,
    describe_run,
    pack_frame,
    pick_quantiles,
    sample_spread,
    to_json_number,
)
from galapax.view.live.session import COMMANDS, MAX_LIVE_POINTS, MAX_SPEED, MIN_SPEED, SPEED_ERROR, PageServer

REPLAY_SECONDS = 12.0  # duration of a replay, unless the viewer chooses another speed
TICK_SECONDS = 0.1


class Replay:
    """Plays a result on a page."""

    def __init__(self, result: Result, page: PageServer, folder: Path | None = None) -> None:
        problem = figure_data.restore_functions(result.problem)
        can_evaluate = (
            isinstance(problem, Problem) and problem.fun is not missing_function and not result.settings["blackbox"]
        )
        limit = max(int(result.nit), 1)
        self.facts = Facts(problem, result.settings, len(result.population), limit, can_evaluate)
        self.page, self.folder, self.result = page, folder, result
        self.name = secrets.token_hex(6)
        self._sign = result.sign
        self._curve = _curve_points(result)
        self._generations = [row[0] or 0 for row in self._curve]
        self._frames = _stored_frames(result)
        self._lock = threading.Lock()
        self._speed = max(1.0, limit / REPLAY_SECONDS)
        self._position, self._moved_at, self._is_paused, self._curve_version = 0.0, time.perf_counter(), True, 0
        self._has_started = False  # it starts with the first viewer
        self._contour_grids = ContourGrids(self.facts)
        threading.Thread(target=self._tick, name="galapax replay", daemon=True).start()

    def _tick(self) -> None:
        """Notify the pages while the position moves."""
        while True:
            time.sleep(TICK_SECONDS)
            if self.page.seconds_without_viewers() > 0:
                continue
            with self._lock:
                if not self._has_started:
                    self._has_started = True
                    self._set_position(0.0, False)
                is_moving = not self._is_paused
                if is_moving and self._current_position() >= self._last_generation:
                    self._set_position(float(self._last_generation), True)
            if is_moving:
                self.page.notify_viewers()

    @property
    def _last_generation(self) -> int:
        return int(self.facts.generations or 1)

    def _current_position(self) -> float:
        if self._is_paused:
            return self._position
        return min(float(self._last_generation), self._position + (time.perf_counter() - self._moved_at) * self._speed)

    def _set_position(self, position: float, is_paused: bool) -> None:
        self._curve_version += position < self._position  # points already sent are not there yet
        self._position, self._moved_at, self._is_paused = position, time.perf_counter(), is_paused

    def command(self, name: object, value: Any = None) -> str:
        """Execute a command of a page; return an error message, or "" on success."""
        if not isinstance(name, str) or name not in COMMANDS:
            return f"The command must be one of {', '.join(COMMANDS)}."
        with self._lock:
            position = self._current_position()
            if name == "speed":
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                if value is not None and not (is_number and MIN_SPEED <= value <= MAX_SPEED):
                    return SPEED_ERROR
                self._set_position(position, self._is_paused)
                self._speed = MAX_SPEED if value is None else float(value)
            elif name == "resume":
                self._set_position(0.0 if position >= self._last_generation else position, False)
            elif name == "pause":
                self._set_position(position, True)
            elif name == "step":
                self._set_position(min(float(self._last_generation), math.floor(position) + 1.0), True)
            elif name == "stop":
                self._set_position(float(self._last_generation), True)
        self.page.notify_viewers()
        return ""

    def release(self) -> None:
        """Pause the replay: another run is shown now."""
        with self._lock:
            self._set_position(self._current_position(), True)

    def expect_viewer(self) -> None:
        """Do nothing: a replay starts with its first viewer in any case."""

    def message(self, version: int, sent: int) -> tuple[JsonObject, int, int]:
        """Make the message for a page that has `sent` points of the curve's `version`; return it with both updated."""
        with self._lock:
            position, is_paused, curve_version = self._current_position(), self._is_paused, self._curve_version
        generation = max(1, math.floor(position))
        has_ended = position >= self._last_generation
        is_full = version != curve_version
        rows = self._curve[: bisect.bisect_right(self._generations, generation)]
        frame = sum(g <= generation for g in self._frames)
        text = {
            "session": self.name, "replay": True,
            "state": "finished" if has_ended else "paused" if is_paused else "running",
            "message": f"Replay of a finished run. {self.result.message}" if has_ended else "",
            "generation": generation,
            "paused": is_paused, "speed": None if self._speed >= MAX_SPEED else round(self._speed, 2), "run": 0,
            "frame": frame + 1000 * curve_version, "seconds": self.result.timings.get("run", 0.0), "first_run": 0,
            "is_full": is_full, "points": rows[0 if is_full else sent :], **self._summary(generation),
        }  # fmt: skip
        return text, curve_version, len(rows)

    def _summary(self, generation: int) -> JsonObject:
        """Summarise the run at that generation."""
        history, runs = figure_data.ensemble_history(self.result), self.result.runs
        if history is None:
            return {"nfev": int(self.result.nfev)}
        row = min(generation, len(history)) - 1
        nfev = np.atleast_2d(history.nfev)[:, row]
        out: JsonObject = {"nfev": int(nfev.sum() if len(nfev) > 1 else nfev[0] * (1 if runs is None else len(runs)))}
        run_history = self.result.history if self.result.history is not None else history
        if np.ndim(self.result.fun) == 0 and run_history.best.ndim == 1:
            out["best"] = to_json_number(float(run_history.best[row]))
        if run_history.violation is not None and run_history.feasible_share is not None:
            out |= {
                "violation": to_json_number(float(run_history.violation[row])),
                "share": float(np.ravel(run_history.feasible_share)[row]),
            }
        if runs is not None and runs.fronts is None:
            best = self._sign * np.asarray(history.best[:, row], float)
            out |= {"values": sample_spread(best, self._sign), "batch_runs": len(runs)}
            out["runs_done"] = int((runs.nit <= generation).sum())
        return out

    def frame(self) -> bytes:
        """The latest snapshot up to the current position, as a `LiveSession` sends it."""
        with self._lock:
            position, version = self._current_position(), self._curve_version
        generations = [g for g in self._frames if g <= max(1, math.floor(position))]
        if not generations:
            return b""
        return pack_frame(
            len(generations) + 1000 * version, generations[-1], 0, self._frames[generations[-1]], self.result.signs
        )

    def describe(self) -> JsonObject:
        """Describe what does not change during the replay."""
        return {"session": self.name, **describe_run(self.facts)}

    def contours(self, first: int, second: int, objective: int, recompute: bool) -> JsonObject:
        best = (int(self.result.nit), _encode_genes(self.result, np.asarray(self.result.x, float)))
        return self._contour_grids.get((first, second, objective), lambda: best, recompute)


def _stored_frames(result: Result) -> dict[int, observers.PopulationSample]:
    """The snapshots and the last population, by generation."""
    out = {}
    for g, population in (maps.stored_populations(result) if result.get("snapshots") else {}).items():
        out[int(g)] = _sample_population(
            result, np.asarray(population.x), np.asarray(population.objectives), population.violation
        )
    fitness = np.asarray(result.population_fitness, np.float64)
    values = result.signs * fitness.reshape(len(result.population), -1)
    out.setdefault(int(result.nit), _sample_population(result, np.asarray(result.population), values, None))
    return dict(sorted(out.items()))


def _sample_population(
    result: Result, x: np.ndarray, values: np.ndarray, violation: ArrayLike | None
) -> observers.PopulationSample:
    rows = maps.thin_indices(len(x), observers.MAX_INDIVIDUALS)
    objectives = values.reshape(len(x), -1)[rows]
    violations = None if violation is None else np.asarray(violation)[rows]
    genes = _encode_genes(result, x[rows])[:, : observers.MAX_VARIABLES].astype(np.float32)
    return observers.PopulationSample(genes, objectives, violations, _encode_genes(result, np.asarray(result.x)))


def _encode_genes(result: Result, x: np.ndarray) -> np.ndarray:
    """Encode x (..., d) as the genes that the search moved."""
    space = result.problem.space
    return x if space is None else space.encode(x)


def _curve_points(result: Result) -> list[list[float | None]]:
    """Rows of the curve, as `LiveSession` records them; a history lacks the median individual."""
    ensemble, run_history = figure_data.ensemble_history(result), result.history
    if ensemble is None:
        return []
    run_history = ensemble if run_history is None else run_history
    is_multi_objective = np.ndim(result.fun) > 0
    quantiles = None
    if result.runs is not None and not is_multi_objective:
        sorted_values = np.sort(result.sign * np.asarray(ensemble.best, float), axis=0)
        quantiles = result.sign * pick_quantiles(sorted_values)
    out = []
    for row in maps.thin_indices(len(run_history), MAX_LIVE_POINTS).tolist():
        best, worst = (np.atleast_1d(values[row]) for values in (run_history.best, run_history.worst))
        share = math.nan if run_history.feasible_share is None else float(np.ravel(run_history.feasible_share[row])[0])
        values = [*best, *[math.nan] * len(best), *worst, share]
        if quantiles is not None:
            values += quantiles[:, row].tolist()
        elif run_history.hypervolume is not None:
            values.append(float(np.ravel(run_history.hypervolume[row])[0]))
        out.append([int(run_history.generation[row]), *(to_json_number(v) for v in values)])
    return out


# --- runs saved in the same folder ------------------------------------------------------------------------------------

MAX_LISTED_RUNS = 40
MAX_RESULT_BYTES = 2_000_000  # of a result.json; a larger one is not listed


def find_report(folder: Path | None, name: str) -> Path | None:
    """Find the report of the run called `name` in the folder beside this one; of this one, where no name is given."""
    if folder is None:
        return None
    if name and name not in {run["name"] for run in sibling_runs(folder)}:
        return None  # a name that is none of ours leads nowhere
    page = (folder.parent / name if name else folder) / "report.html"
    return page if page.is_file() else None


def sibling_runs(folder: Path | None) -> list[JsonObject]:
    """Summaries of the runs saved in the same parent folder as this one, the latest first."""
    if folder is None:
        return []
    candidates = []
    try:
        for path in folder.resolve().parent.iterdir():
            file = path / "result.json"
            if file.is_file() and file.stat().st_size < MAX_RESULT_BYTES:
                candidates.append((file.stat().st_mtime, file))
    except OSError:
        return []
    out = []
    for _, file in sorted(candidates, reverse=True)[:MAX_LISTED_RUNS]:
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
            settings = saved["settings"]
            out.append(
                {
                    "name": file.parent.name,
                    "problem": str(settings["problem"]),
                    "algorithm": str(settings["algorithm"]),
                    "fun": saved["fun"],
                    "feasible": bool(saved["feasible"]),
                    "nfev": int(saved["nfev"]),
                    "seed": int(saved["seed"]),
                    "runs": int(settings.get("runs", 1)),
                    "report": (file.parent / "report.html").is_file(),
                    "shown": file.parent.resolve() == folder.resolve(),
                }
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a folder that somebody else wrote, or that is being written
    return out
