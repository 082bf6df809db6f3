"""A run that is over, played again on the live page: its history and the populations that it kept.

It answers what a page asks as a `Session` does. Nothing is computed again: the pointer moves along the history.
"""

from __future__ import annotations

import bisect
import math
import secrets
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from galapax.core.problem import Problem, unavailable
from galapax.engines import glimpse
from galapax.results.result import Result
from galapax.running.observers import Facts
from galapax.view import figure_data, maps
from galapax.view.live.contours import Contours
from galapax.view.live.messages import described, packed, plain
from galapax.view.live.session import COMMANDS, FASTEST, POINTS, SLOWEST, Page

LENGTH = 12.0  # seconds that a replay takes, unless the viewer chooses another speed
TICK = 0.1  # seconds between two looks


class Replay:
    """Plays a result on a page."""

    def __init__(self, result: Result, page: Page, folder: Path | None = None) -> None:
        problem = figure_data.restore_functions(result.problem)
        callable_ = isinstance(problem, Problem) and problem.fun is not unavailable and not result.settings["blackbox"]
        limit = max(int(result.nit), 1)
        self.facts = Facts(problem, result.settings, len(result.population), limit, callable_)
        self.page, self.folder, self.result = page, folder, result
        self.name = secrets.token_hex(6)
        self._sign = result.sign
        self._rows = _points(result)
        self._generations = [row[0] or 0 for row in self._rows]
        self._frames = _frames(result)
        self._lock = threading.Lock()
        self._speed = max(1.0, limit / LENGTH)
        self._at, self._since, self._held, self._version = 0.0, time.perf_counter(), True, 0
        self._begun = False  # it begins when somebody comes
        self._contours = Contours(self.facts)
        threading.Thread(target=self._tick, name="galapax replay", daemon=True).start()

    def _tick(self) -> None:
        """Wake the pages while the pointer moves."""
        while True:
            time.sleep(TICK)
            if self.page.lonely() > 0:
                continue
            with self._lock:
                if not self._begun:
                    self._begun = True
                    self._move(0.0, False)
                moved = not self._held
                if moved and self._now() >= self._last:
                    self._move(float(self._last), True)
            if moved:
                self.page.wake()

    @property
    def _last(self) -> int:
        return int(self.facts.generations or 1)

    def _now(self) -> float:
        if self._held:
            return self._at
        return min(float(self._last), self._at + (time.perf_counter() - self._since) * self._speed)

    def _move(self, to: float, held: bool) -> None:
        self._version += to < self._at  # points already sent are not there yet
        self._at, self._since, self._held = to, time.perf_counter(), held

    def command(self, name: Any, value: Any = None) -> str:
        """Do what a page asks for; a sentence if that cannot be done."""
        if not isinstance(name, str) or name not in COMMANDS:
            return f"The command must be one of {', '.join(COMMANDS)}."
        with self._lock:
            now = self._now()
            if name == "speed":
                number = isinstance(value, int | float) and not isinstance(value, bool)
                if value is not None and not (number and SLOWEST <= value <= FASTEST):
                    return (
                        f"The speed must be from {SLOWEST:g} to {FASTEST:g} generations per second, or null (fastest)."
                    )
                self._move(now, self._held)
                self._speed = FASTEST if value is None else float(value)
            elif name == "resume":
                self._move(0.0 if now >= self._last else now, False)
            elif name == "pause":
                self._move(now, True)
            elif name == "step":
                self._move(min(float(self._last), math.floor(now) + 1.0), True)
            elif name == "stop":
                self._move(float(self._last), True)
        self.page.wake()
        return ""

    def release(self) -> None:
        """Another run is shown now."""
        with self._lock:
            self._move(self._now(), True)

    def expect(self) -> None:
        """It begins when somebody comes, in any case."""

    def message(self, version: int, sent: int) -> tuple[dict[str, Any], int, int]:
        """What is new for a page that has `sent` points of the curve's `version`: the message, and the two for it."""
        with self._lock:
            at, held, current = self._now(), self._held, self._version
        generation = max(1, math.floor(at))
        over = at >= self._last
        whole = version != current
        rows = self._rows[: bisect.bisect_right(self._generations, generation)]
        frame = sum(g <= generation for g in self._frames)
        text = {
            "session": self.name, "state": "finished" if over else "paused" if held else "running", "replay": True,
            "message": f"Replay of a finished run. {self.result.message}" if over else "", "generation": generation,
            "held": held, "speed": None if self._speed >= FASTEST else round(self._speed, 2), "run": 0,
            "frame": frame + 1000 * current, "seconds": self.result.timings.get("run", 0.0), "first_run": 0,
            "whole": whole, "points": rows[0 if whole else sent :], **self._numbers(generation),
        }  # fmt: skip
        return text, current, len(rows)

    def _numbers(self, generation: int) -> dict[str, Any]:
        """Numbers of the run at that generation."""
        history, runs = figure_data.ensemble_history(self.result), self.result.runs
        if history is None:
            return {"nfev": int(self.result.nfev)}
        row = min(generation, len(history)) - 1
        nfev = np.atleast_2d(history.nfev)[:, row]
        out: dict[str, Any] = {
            "nfev": int(nfev.sum() if len(nfev) > 1 else nfev[0] * (1 if runs is None else len(runs)))
        }
        own = self.result.history if self.result.history is not None else history
        if np.ndim(self.result.fun) == 0 and own.best.ndim == 1:
            out["best"] = plain(float(own.best[row]))
        if own.violation is not None and own.feasible_share is not None:
            out |= {"violation": plain(float(own.violation[row])), "share": float(np.ravel(own.feasible_share)[row])}
        if runs is not None and runs.fronts is None:
            values = np.sort(self._sign * np.asarray(history.best[:, row], float))
            at = np.linspace(0, len(values) - 1, min(len(values), 512)).astype(int)
            out |= {"values": [plain(self._sign * v) for v in values[at]], "batch_runs": len(runs)}
            out["runs_done"] = int((runs.nit <= generation).sum())
        return out

    def frame(self) -> bytes:
        """The last population that was kept up to now, as a `Session` sends it."""
        with self._lock:
            at, version = self._now(), self._version
        known = [g for g in self._frames if g <= max(1, math.floor(at))]
        if not known:
            return b""
        return packed(len(known) + 1000 * version, known[-1], 0, self._frames[known[-1]], self._sign)

    def describe(self) -> dict[str, Any]:
        """What does not change."""
        return {"session": self.name, **described(self.facts)}

    def contours(self, first: int, second: int, objective: int, anew: bool) -> dict[str, Any]:
        best = (int(self.result.nit), _genes(self.result, np.asarray(self.result.x, float)))
        return self._contours.of((first, second, objective), lambda: best, anew)


def _frames(result: Result) -> dict[int, glimpse.Survivors]:
    """The populations that were kept, and the last one, by generation."""
    out = {}
    for g, kept in (maps.stored_populations(result) if result.get("snapshots") else {}).items():
        out[int(g)] = _thinned(result, np.asarray(kept.x), np.asarray(kept.objectives), kept.violation)
    fitness = np.asarray(result.population_fitness, np.float64)
    values = result.sign * fitness.reshape(len(result.population), -1)
    out.setdefault(int(result.nit), _thinned(result, np.asarray(result.population), values, None))
    return dict(sorted(out.items()))


def _thinned(result: Result, x: np.ndarray, values: np.ndarray, violation: Any) -> glimpse.Survivors:
    rows = maps.thin_indices(len(x), glimpse.INDIVIDUALS)
    signed = values.reshape(len(x), -1)[rows]
    broken = None if violation is None else np.asarray(violation)[rows]
    genes = _genes(result, x[rows])[:, : glimpse.VARIABLES].astype(np.float32)
    return glimpse.Survivors(genes, signed, broken, _genes(result, np.asarray(result.x)))


def _genes(result: Result, x: np.ndarray) -> np.ndarray:
    """What a search moved of x (..., d)."""
    space = result.problem.space
    return x if space is None else space.encode(x)


def _points(result: Result) -> list[list[float | None]]:
    """Rows of the curve, as `Session` makes them; the median individual is not in a history."""
    every, own = figure_data.ensemble_history(result), result.history
    if every is None:
        return []
    own = every if own is None else own
    several = np.ndim(result.fun) > 0
    spread = None
    if result.runs is not None and not several:
        ordered = np.sort(result.sign * np.asarray(every.best, float), axis=0)
        spread = result.sign * ordered[np.rint(np.array(glimpse.QUANTILES) * (len(ordered) - 1)).astype(int)]
    out = []
    for row in maps.thin_indices(len(own), POINTS).tolist():
        best, worst = (np.atleast_1d(part[row]) for part in (own.best, own.worst))
        share = math.nan if own.feasible_share is None else float(np.ravel(own.feasible_share[row])[0])
        values = [*best, *[math.nan] * len(best), *worst, share]
        if spread is not None:
            values += spread[:, row].tolist()
        elif own.hypervolume is not None:
            values.append(float(np.ravel(own.hypervolume[row])[0]))
        out.append([int(own.generation[row]), *(plain(v) for v in values)])
    return out
