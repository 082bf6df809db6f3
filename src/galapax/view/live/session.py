"""One run as the live page sees it: what has been seen so far, and what the page may ask of the run.

The run's thread calls `start`, `look`, `hold`, `finish` and `fail`; the server's threads call the rest. Neither waits
for the other: the run leaves a new frame where the old one was, and a page takes whichever is there when it is ready.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import secrets
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import numpy as np

from galapax.core.algorithm import Shape
from galapax.engines import glimpse
from galapax.engines.loop import NEVER, RUNNING, Carry, Track, best_run
from galapax.engines.points import evaluate_points
from galapax.evaluation.formulas import Traced, trace
from galapax.view.live import Facts

BETWEEN_FRAMES = 0.2  # seconds; a frame that is dear to make comes less often
BETWEEN_ROWS = 0.2  # and three times that while nobody watches
FIRST_ROWS, DENSITY = 100, 1.2  # values are kept of these generations, and then at least of each so many times later
SHARE = 0.02  # of the run's time that looking at it may take
POINTS = 2000  # of a curve, at most
SLOWEST, FASTEST = 0.1, 1e6  # generations a second
PATIENCE = 10.0  # seconds after which a run that is held up goes on, once nobody watches it any more
FRONT = 400  # points of a true front
SIDE, BLOCK = 72, 648  # a grid of contours has SIDE * SIDE points, evaluated so many at a time
SLOW_CONTOURS = 8.0  # seconds that a grid may take
_contouring = threading.Lock()
# a thread inside JAX when the process ends would abort it
atexit.register(_contouring.acquire, timeout=20.0)

COMMANDS = ("pause", "resume", "step", "stop", "speed", "run")


class Page(Protocol):
    """The server, as a session sees it."""

    def wake(self) -> None:
        """Tell the pages that there is something new."""

    def trouble(self, sentence: str) -> None:
        """Tell the user."""

    def lonely(self) -> float:
        """For how many seconds nobody has watched any more; 0 while somebody does, inf if nobody came yet."""


class Session:
    """A Viewer (see engines/loop.py) that keeps what the pages show."""

    def __init__(self, facts: Facts, page: Page, paused: bool = False) -> None:
        self.facts, self.page = facts, page
        self.name = secrets.token_hex(6)  # pages see by it that another run is shown
        self.most = 1 if paused else NEVER
        self._changed = threading.Condition()
        self._sign = -1.0 if facts.settings["maximize"] else 1.0
        self._began, self._ended = time.perf_counter(), 0.0
        self._state, self._message = "starting", ""
        self._paused, self._steps, self._stop = paused, 0, False
        self._speed: float | None = None
        self._run, self._first_run = 0, facts.settings["first_run"]
        self._reached = self._chunk_start = 0
        self._made, self._released, self._released_at, self._held = 0, 0, 0.0, 0.0
        self._rows_at = self._frame_at = 0.0
        self._rows_made = 0
        self._costs: dict[str, deque[float]] = {kind: deque(maxlen=5) for kind in ("rows", "frame")}
        self._broken = False
        self._now: tuple[Track, Track, Any, Carry] | None = None
        self._track: Track | None = None
        self._summed: tuple[Track | None, dict[str, Any]] = (None, {})
        self._points: list[list[float | None]] = []
        self._version = 0  # changes when points already sent are no longer the ones kept
        self._speeds: deque[tuple[float, int, int]] = deque(maxlen=30)
        self._frame: tuple[int, int, glimpse.Survivors] | None = None  # generation, run
        self._frames = 0
        self._packed: tuple[int, bytes] = (0, b"")
        self._contours: dict[tuple[int, int, int], dict[str, Any]] = {}
        self._traced: Traced | None = None

    # the run's thread

    def start(self, first_run: int) -> None:
        """A batch of runs begins, the first of them with this number."""
        with self._changed:
            self._first_run = first_run
            self._made = self._released = self._rows_made = self._reached = 0
            self._points, self._version = [], self._version + 1
            self._speeds.clear()
            self._released_at = time.perf_counter()
        self.page.wake()

    def look(self, made: int, before: Track, now: Track, history: Any, carry: Carry, last: bool) -> None:
        """Keep what is due of the run after generation `made`."""
        if not self._broken:
            with self._apart():
                self._look(made, before, now, history, carry, last)

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Whatever goes wrong inside is the page's trouble and not the run's."""
        try:
            yield
        except Exception as error:
            self._broken, self._now = True, None
            self.release()
            self.page.trouble(f"The live page shows no more ({type(error).__name__}: {error}). The run goes on.")

    def _look(self, made: int, before: Track, now: Track, history: Any, carry: Carry, last: bool) -> None:
        began = time.perf_counter()
        if self._state == "starting":
            self._state = "running"
        fresh = made > self._made
        if fresh:
            self._chunk_start, self._made = self._made, made
        self._reached = int(now.generations.max())  # less than `made` where every run finished within the chunk
        self._now = (before, now, history, carry)
        watched = self.page.lonely() == 0
        early = made <= FIRST_ROWS or made >= DENSITY * self._rows_made
        if fresh and (early or last or began >= self._rows_at):
            self._take_rows()
            self._rows_at = began + self._gap("rows", BETWEEN_ROWS if watched else 3 * BETWEEN_ROWS, began)
        began = time.perf_counter()
        if last or (watched and began >= self._frame_at):
            self._take_frame()
            self._frame_at = began + self._gap("frame", BETWEEN_FRAMES, began)

    def _gap(self, what: str, least: float, began: float) -> float:
        """Seconds until the next look of this kind, so that looks take little of the time.

        The least of the last few costs counts: the first compiles, and others may have waited for a busy machine.
        """
        costs = self._costs[what]
        costs.append(time.perf_counter() - began)
        return max(least, min(costs) / SHARE) if len(costs) > 1 else least

    def hold(self, interrupted: Callable[[], bool]) -> str:
        """Wait while the page holds the run up; "page" if it stops the run."""
        began = time.perf_counter()
        try:
            return self._hold(interrupted)
        finally:
            self._now = None  # the next chunk takes its memory
            self._released, self._released_at = self._made, time.perf_counter()
            self._held += self._released_at - began

    def _hold(self, interrupted: Callable[[], bool]) -> str:
        while True:
            with self._changed:
                if PATIENCE < self.page.lonely() < math.inf:  # whoever held it up has left
                    self._release()
                self._state = "paused" if self._paused else "running"
                if self._stop:
                    return "page"
                if interrupted():
                    return ""
                if self._steps:
                    self._steps, self.most = self._steps - 1, 1
                    return ""
                wait = 0.1
                if not self._paused:
                    if self._speed is None:
                        # short chunks at first, where most happens; a GPU's programs make chunks of one length only
                        self.most = max(1, self._made // 4) if jax.default_backend() == "cpu" else NEVER
                        return ""
                    self.most = max(1, int(self._speed * BETWEEN_FRAMES))
                    # a chunk begun before the speed was chosen may be longer, and is not waited for
                    due = self._released_at + min(self._made - self._released, self.most) / self._speed
                    wait = min(wait, due - time.perf_counter())
                    if wait <= 0:
                        return ""
            if self._now is not None:  # a run that is held up shows where it stands
                with self._apart():
                    if self._rows_made != self._made:
                        self._take_rows()
                    if self._frame is None or self._frame[:2] != (self._reached, self._run):
                        self._take_frame()
            with self._changed:
                if not self._stop:
                    self._changed.wait(wait)

    def finish(self, message: str) -> None:
        """The run ended, for this reason."""
        self._end("finished", message)

    def fail(self, message: str) -> None:
        """The run ended with an error."""
        self._end("failed", message)

    def _end(self, state: str, message: str) -> None:
        with self._changed:
            self._state, self._message = state, message
            self._now, self._ended = None, time.perf_counter()
        self.page.wake()

    def _take_rows(self) -> None:
        assert self._now is not None
        before, now, history, carry = self._now
        self._rows_made = self._made
        length = now.generations - before.generations
        shape = _shape(carry)
        longest = int(length.max())
        chosen = np.unique(np.linspace(0, longest - 1, glimpse.ROWS).astype(np.int32)) if longest else np.zeros(0, int)
        if not len(chosen):
            return
        run = min(self._run, len(length) - 1)
        padded = np.resize(chosen, glimpse.ROWS)
        dtype = history.dtype
        taken = glimpse.rows(
            shape,
            carry,
            history,
            padded.astype(np.int32),
            np.int32(run),
            length.astype(np.int32),
            before.best.astype(dtype),
            before.violation.astype(dtype),
        )
        rows, median, spread = jax.device_get(taken)
        m, single = shape.objectives, len(length) == 1
        start = self._chunk_start
        share = float(now.feasible_share.mean())
        points: list[list[float | None]] = []
        for i, row in enumerate(chosen.tolist()):
            final = row == longest - 1
            own = rows[i, : 3 * m].astype(float) * self._sign
            if int(length[run]) == 0:
                own = np.full(3 * m, np.nan)
            middle = median.astype(float) * self._sign if final else np.full(m, np.nan)
            shares = float(rows[i, 3 * m + 1]) if shape.constrained and single else share
            values = [*own[:m], *middle, *own[2 * m :]]
            values.append(shares if shape.constrained and (single or final) else math.nan)
            if spread is not None:
                values += (spread[i].astype(float) * self._sign).tolist()
            points.append([start + row + 1, *(_plain(v) for v in values)])
        with self._changed:
            self._points += points
            if len(self._points) > POINTS:
                self._points = self._points[:-1:2] + self._points[-1:]
                self._version += 1
            self._track = now
            made = int(now.generations.sum())
            self._speeds.append((time.perf_counter() - self._held, made * self.facts.evaluations, self._made))

    def _take_frame(self) -> None:
        assert self._now is not None
        carry, runs = self._now[3], len(self._now[1].best)
        run = min(self._run, runs - 1)
        taken = jax.tree.map(np.asarray, jax.device_get(glimpse.survivors(carry, np.int32(run))))
        with self._changed:
            self._track = self._now[1]
            self._frame, self._frames = (self._reached, self._run, taken), self._frames + 1
        self.page.wake()

    # the server's threads

    def command(self, name: Any, value: Any = None) -> str:
        """Do what a page asks for; a sentence if that cannot be done."""
        if not isinstance(name, str) or name not in COMMANDS:
            return f"A command is one of {', '.join(COMMANDS)}."
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**32
        with self._changed:
            if self._state in ("finished", "failed"):
                return "The run has ended."
            if name == "pause":
                self._paused = True
            elif name == "resume":
                self._paused, self._steps = False, 0
            elif name == "step":
                self._paused, self._steps = True, min(self._steps + 1, 100)
            elif name == "stop":
                self._stop = True
            elif name == "run":
                if not number or value != int(value) or not 0 <= value < self.facts.settings["runs"]:
                    return f"The runs are numbered 0 to {self.facts.settings['runs'] - 1}."
                self._run = int(value)
            else:
                if value is not None and not (number and SLOWEST <= value <= FASTEST):
                    return f"A speed is from {SLOWEST:g} to {FASTEST:g} generations a second, or null for the fastest."
                self._speed = None if value is None else float(value)
            self._changed.notify_all()
        self.page.wake()
        return ""

    def release(self) -> None:
        """Let the run go on by itself."""
        with self._changed:
            self._release()
            self._changed.notify_all()

    def _release(self) -> None:
        self._paused, self._steps, self._speed = False, 0, None

    def message(self, version: int, sent: int) -> tuple[dict[str, Any], int, int]:
        """What is new for a page that has `sent` points of the curve's `version`: the message, and the two for it."""
        with self._changed:  # the run waits for this lock: nothing that takes long
            whole = version != self._version
            version, points = self._version, self._points[0 if whole else sent :]
            sent = len(self._points)
            track, speeds, left = self._track, tuple(self._speeds), (self.facts.generations or 0) - self._made
            text = {
                "session": self.name,
                "state": self._state,
                "message": self._message,
                "generation": self._reached,
                "held": self._paused,
                "speed": self._speed,
                "run": self._run,
                "frame": self._frames,
                "seconds": (self._ended or time.perf_counter()) - self._began,
                "first_run": self._first_run,
                "whole": whole,
                "points": points,
            }
        if track is not None:
            text |= self._summary(track)
        if len(speeds) > 1 and speeds[-1][0] > speeds[0][0]:
            seconds, evaluations, generations = (b - a for a, b in zip(speeds[0], speeds[-1], strict=True))
            text["evaluations_per_second"] = evaluations / seconds
            if self.facts.generations and generations > 0:
                rate = min(generations / seconds, text["speed"] or math.inf)
                text["left"] = left / rate
        return text, version, sent

    def _summary(self, track: Track) -> dict[str, Any]:
        """Numbers of all runs, worked out once for all pages."""
        known, numbers = self._summed
        if known is track:
            return numbers
        row = best_run(track)
        done = (track.reason != RUNNING) | (track.generations >= (self.facts.generations or NEVER))
        numbers = {
            "nfev": int(track.generations.sum()) * self.facts.evaluations,
            "best": _plain(self._sign * float(track.best[row])),
            "violation": _plain(float(track.violation[row])),
            "batch_runs": len(track.best),
            "runs_done": int(done.sum()),
        }
        if self.facts.problem.constrained:
            numbers["share"] = float(track.feasible_share.mean())
            numbers["feasible_runs"] = int((track.violation <= 0).sum())
        if len(track.best) > 1:
            feasible = track.best[(track.violation <= 0) & np.isfinite(track.best)]
            some = np.sort(feasible[:: max(1, len(feasible) // 4096)])
            at = np.linspace(0, len(some) - 1, min(len(some), 512)).astype(int)
            numbers["values"] = [_plain(self._sign * v) for v in some[at]]
        self._summed = (track, numbers)
        return numbers

    def frame(self) -> bytes:
        """The last frame: length of the header, header (JSON), objectives, violation (float64), x (float32)."""
        with self._changed:
            taken, number = self._frame, self._frames
        if taken is None:
            return b""
        if self._packed[0] == number:
            return self._packed[1]
        generation, run, some = taken
        objectives = self._sign * np.asarray(some.objectives, np.float64)
        shown, variables = some.x.shape
        header = {
            "frame": number,
            "generation": generation,
            "run": run,
            "shown": shown,
            "variables": variables,
            "objectives": objectives.shape[1],
            "violation": some.violation is not None,
        }
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 4) % 8)  # arrays begin at a multiple of their size
        parts = [struct.pack("<I", len(text)), text, objectives.astype("<f8").tobytes()]
        if some.violation is not None:
            parts.append(some.violation.astype("<f8").tobytes())
        parts.append(some.x.astype("<f4").tobytes())
        self._packed = (number, b"".join(parts))
        return self._packed[1]

    def describe(self) -> dict[str, Any]:
        """What does not change during the run."""
        problem, settings = self.facts.problem, self.facts.settings
        front = None
        if problem.front is not None and not settings["maximize"]:
            with contextlib.suppress(Exception):  # a user's function; without it the page lacks the front alone
                front = [[_plain(v) for v in point] for point in np.asarray(problem.front(FRONT), float)]
        shown = min(problem.dim, glimpse.VARIABLES)
        return {
            "session": self.name,
            "name": problem.name,
            "title": problem.title or problem.name,
            "variables": problem.variable_names()[:shown],
            "dim": problem.dim,
            "lower": np.asarray(problem.bounds.lower, float)[:shown].tolist(),
            "upper": np.asarray(problem.bounds.upper, float)[:shown].tolist(),
            "objectives": list(problem.objectives or ()),
            "constrained": problem.constrained,
            "optimum": None if settings["maximize"] else problem.optimum,
            "front": front,
            "population": self.facts.population,
            "shown": min(self.facts.population, glimpse.INDIVIDUALS),
            "generations": self.facts.generations,
            "contours": self.facts.contours,
            "settings": _shown(settings),
        }

    def contours(self, first: int, second: int, objective: int, anew: bool) -> dict[str, Any]:
        """The objective over two variables, the others as in the best individual; {"why": ...} where there is none."""
        problem, name = self.facts.problem, (first, second, objective)
        shown = min(problem.dim, glimpse.VARIABLES)
        if not (0 <= first < shown and 0 <= second < shown and first != second and objective >= 0):
            return {"why": "Choose two different variables."}
        if not self.facts.contours:
            return {"why": "No contours: the objective cannot be called beside the run."}
        with _contouring:  # one grid at a time, whatever pages ask for
            if name in self._contours and not (anew and problem.dim > 2):
                return self._contours[name]
            try:
                grid = self._grid(first, second, objective)
            except Exception as error:  # whatever a user's function raises, the page says it and the run goes on
                return {"why": f"No contours: {type(error).__name__}: {error}"}
            self._contours[name] = grid
            return grid

    def _grid(self, first: int, second: int, objective: int) -> dict[str, Any]:
        problem, settings = self.facts.problem, self.facts.settings
        lower, upper = (np.asarray(side, float) for side in (problem.bounds.lower, problem.bounds.upper))
        with self._changed:
            taken = self._frame
        at = (lower + upper) / 2 if taken is None else np.asarray(taken[2].best, float)
        points = np.tile(at, (SIDE * SIDE, 1))
        across, up = (np.linspace(lower[i], upper[i], SIDE) for i in (first, second))
        points[:, first], points[:, second] = np.tile(across, SIDE), np.repeat(up, SIDE)
        kind = settings["dtype"]
        with jax.enable_x64(kind == "float64"):
            if self._traced is None:
                rows = self.facts.population if settings["vectorized"] else 0
                self._traced = trace(problem, kind, maximize=settings["maximize"], vectorized=rows)
            traced = self._traced
            if objective >= traced.shape.objectives:
                return {"why": "Choose one of the objectives."}
            values, violations, began = [], [], 0.0
            for start in range(0, len(points), BLOCK):
                out = evaluate_points(traced, points[start : start + BLOCK], kind, rows=BLOCK)
                values.append(np.asarray(out.objectives)[:, objective])
                violations.append(np.zeros(len(values[-1])) if out.violation is None else np.asarray(out.violation))
                began = began or time.perf_counter()  # after the compilation
                if time.perf_counter() - began > SLOW_CONTOURS:
                    return {"why": "No contours: the objective takes too long."}
        z = self._sign * np.concatenate(values).astype(float)
        return {
            "side": SIDE,
            "generation": 0 if taken is None else taken[0],
            "values": [_plain(float(f"{v:.6g}")) for v in z],
            "feasible": (np.concatenate(violations) <= 0).astype(int).tolist(),
        }


def _shape(carry: Carry) -> Shape:
    """As far as `glimpse.rows` asks: how many objectives, and whether there are constraints."""
    parents = carry.proposed.parents
    return Shape(parents.objectives.shape[-1], 0 if parents.violation is None else 1)


def _shown(value: Any) -> Any:
    """A setting as JSON can have it."""
    if isinstance(value, dict):
        return {str(k): _shown(v) for k, v in value.items()}
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _plain(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
