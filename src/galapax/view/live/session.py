"""The state of a running run for the live page: curve, latest frame, and the viewer's commands.

The run's thread calls `on_batch_start`, `on_progress`, `on_chunk`, `wait_if_paused`, `finish` and `fail`; the server's
threads call the rest. Neither waits for the other: the run replaces the latest frame, and a page takes whichever is
there when it is ready.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from galapax.core.problem import Record, objective_signs
from galapax.core.stop import RUNNING, UNLIMITED, Stop
from galapax.execution import observers
from galapax.execution.observers import Facts, Progress, ProgressView, time_left
from galapax.execution.state import Outcome, Track
from galapax.numerics import devices
from galapax.view.live.messages import (
    ContourGrids,
    JsonObject,
    describe_run,
    pack_frame,
    pick_quantiles,
    sample_spread,
    to_json_number,
)

FRAME_INTERVAL = 0.2  # seconds; a frame that is expensive to make comes less often
ROW_INTERVAL = 0.2  # seconds, and three times that without viewers
N_DENSE_ROWS = 100  # generations of which every chunk's values are recorded,
ROW_GROWTH = 1.2  # and then at least whenever the generation has grown by this factor
MAX_OVERHEAD = 0.02  # share of the run's time that the live page may take
MAX_LIVE_POINTS = 2000  # of a curve
MAX_MARKED_SEARCHES = 60  # restarts that a page is sent, the latest
MIN_SPEED, MAX_SPEED = 0.1, 1e6  # generations per second
INITIAL_SPEED = 8.0  # of a slow start, generations per second
SPEED_DOUBLING_SECONDS = 1.5
FULL_SPEED = 2000.0  # generations per second at which a slow start ends
BROWSER_WAIT_SECONDS = 4.0  # that a slow start waits for a browser that was opened
ABANDONED_SECONDS = 10.0  # after which a paused run goes on, once its last viewer has left
SPEED_ERROR = f"The speed must be from {MIN_SPEED:g} to {MAX_SPEED:g} generations per second, or null (fastest)."
COMMANDS = ("pause", "resume", "step", "stop", "speed", "run")


def _next_chunk_length(generation: int) -> int:
    """Generations of the next chunk: few at first, where most happens, and a quarter more each time.

    A GPU has programs for some lengths only.
    """
    return max(1, generation // 4) if devices.on_cpu() else max(100, generation // 4 // 500 * 500)


def _carry_best(rows: Record[np.ndarray], before: Track, run: int) -> np.ndarray:
    """The best value of the whole run in each row, (ROWS, 1): a restarted search begins with a worse one."""
    violation = np.zeros(len(rows.best)) if rows.violation is None else rows.violation
    earlier = before.violation[run], before.best[run]
    is_worse = (violation > earlier[0]) | ((violation == earlier[0]) & (rows.best[:, 0] > earlier[1]))
    return np.where(is_worse[:, None], earlier[1], rows.best)


class PageServer(Protocol):
    """The server, as a session sees it."""

    def notify_viewers(self) -> None:
        """Wake the pages: there is something new."""

    def warn(self, sentence: str) -> None:
        """Warn the user."""

    def seconds_without_viewers(self) -> float:
        """Seconds since the last viewer left; 0 while somebody watches, inf if nobody came yet."""


class LiveSession:
    """The Viewer (see execution/host_loop.py) of a run that is shown on the live page."""

    def __init__(self, facts: Facts, page: PageServer, paused: bool = False, slow_start: bool = False) -> None:
        self.facts, self.page = facts, page
        self.name = secrets.token_hex(6)  # tells pages that another run is shown
        self.max_generations = 1 if paused or slow_start else UNLIMITED
        self._is_slow_start = slow_start  # until the viewer chooses a pace, or a while has passed
        self._watched_since: float | None = None
        self._browser_deadline = 0.0  # until when a slow start waits for its first viewer
        self.folder: Path | None = None  # where the run was saved, once it was
        self.replay: Callable[[], object] | None = None  # plays the run again, once it is over
        self._condition = threading.Condition()
        self._signs = objective_signs(facts.settings["maximize"])
        self._sign = float(self._signs[0])  # of one objective
        self._started_at, self._ended_at = time.perf_counter(), 0.0
        self._state, self._message = "starting", ""
        self._is_paused, self._pending_steps, self._stop_requested = paused, 0, False
        self._speed: float | None = None
        self._shown_run, self._first_run = 0, facts.settings["first_run"]
        self._generation = self._chunk_start = 0
        self._chunk_end, self._resumed_from, self._resumed_at, self._paused_seconds = 0, 0, 0.0, 0.0
        self._next_rows_at = self._next_frame_at = 0.0
        self._rows_until = 0
        self._costs: dict[str, deque[float]] = {kind: deque(maxlen=5) for kind in ("rows", "frame")}
        self._has_failed = False
        self._chunk: tuple[Track, Track, ProgressView] | None = None
        self._track: Track | None = None
        self._cached_summary: tuple[Track | None, JsonObject] = (None, {})
        self._curve: list[list[float | None]] = []
        self._searches: list[tuple[int, str]] = []  # generation before each search of a run that restarts, algorithm
        self._after_search: tuple[int, str] | None = None  # the row of the curve that came after it, and what added it
        self._answer: int | None = None  # the run whose answer is the result's, once that is known
        self._interval: np.ndarray | None = None  # (2,), of the mean at that answer, of a random objective
        self._curve_version = 0  # changes when points already sent are no longer the ones kept
        self._samples: deque[tuple[float, int, Progress | None]] = deque(maxlen=30)
        self._progress: Progress | None = None
        self._frame: tuple[int, int, observers.PopulationSample] | None = None  # generation, run
        self._n_frames = 0
        self._packed_frame: tuple[int, bytes] = (0, b"")
        self._contour_grids = ContourGrids(facts)

    # the run's thread

    def on_batch_start(self, first_run: int) -> None:
        """Reset the curve for a batch of runs, the first of which has this number."""
        with self._condition:
            self._first_run = first_run
            self._chunk_end = self._resumed_from = self._rows_until = self._generation = 0
            self._curve, self._curve_version = [], self._curve_version + 1
            self._searches, self._after_search = [], None
            self._samples.clear()
            self._resumed_at = time.perf_counter()
        self.page.notify_viewers()

    def on_search(self, algorithm: str, generation: int) -> None:
        """Note that a run that restarts begins another search, after this many generations."""
        with self._condition:
            self._searches = [*self._searches, (generation, algorithm)][-MAX_MARKED_SEARCHES:]

    def on_answers(self, outcome: Outcome) -> None:
        """Add the answers after their refinement by the gradient, or the estimates of their means, to the curve, as
        one more row.
        """
        with self._isolate_errors():
            track, estimate = outcome.track, outcome.estimate
            best_run, what = outcome.best_run, "gradient refinement" if estimate is None else "estimate of the mean"
            values = self._sign * np.sort(np.where(track.violation <= 0, track.best, np.inf))
            row = [math.nan] * len(self._curve[-1][1:]) if self._curve else [math.nan] * 3
            row[0] = self._sign * float(track.best[best_run])
            if len(values) > 1:
                row[-len(observers.QUANTILES) :] = pick_quantiles(values)
            generation = int(track.generations.max()) + 1
            with self._condition:
                self._curve.append([generation, *(to_json_number(v) for v in row)])
                self._track, self._after_search, self._answer = track, (generation, what), best_run
                if estimate is not None and np.isfinite(estimate.interval[best_run]).all():
                    self._interval = np.sort(self._sign * estimate.interval[best_run])
            self.page.notify_viewers()

    def on_progress(self, state: Progress) -> None:
        """Store the Progress of the chunk; called before `on_chunk`."""
        self._progress = state

    def on_chunk(self, generation: int, before: Track, now: Track, chunk_view: ProgressView, is_last: bool) -> None:
        """Record the rows and the frame that are due after this generation."""
        if not self._has_failed:
            with self._isolate_errors():
                self._update(generation, before, now, chunk_view, is_last)

    @contextlib.contextmanager
    def _isolate_errors(self) -> Iterator[None]:
        """Turn an exception of the live page into a warning: the run goes on without it."""
        try:
            yield
        except Exception as error:
            self._has_failed, self._chunk = True, None
            self.release()
            self.page.warn(f"The live page has stopped updating ({type(error).__name__}: {error}). The run continues.")

    def _update(self, generation: int, before: Track, now: Track, chunk_view: ProgressView, is_last: bool) -> None:
        start_time = time.perf_counter()
        if self._state == "starting":
            self._state = "running"
        is_new = generation > self._chunk_end
        if is_new:
            self._chunk_start, self._chunk_end = self._chunk_end, generation
        # less than `generation` where every run finished within the chunk
        self._generation = int(now.generations.max())
        self._chunk = (before, now, chunk_view)
        is_watched = self.page.seconds_without_viewers() == 0
        is_due_early = generation <= N_DENSE_ROWS or generation >= ROW_GROWTH * self._rows_until
        if is_new and (is_due_early or is_last or start_time >= self._next_rows_at):
            self._record_rows()
            self._next_rows_at = start_time + self._next_interval(
                "rows", ROW_INTERVAL if is_watched else 3 * ROW_INTERVAL, start_time
            )
        start_time = time.perf_counter()
        if is_last or (is_watched and start_time >= self._next_frame_at):
            self._record_frame()
            self._next_frame_at = start_time + self._next_interval("frame", FRAME_INTERVAL, start_time)

    def _next_interval(self, kind: str, min_interval: float, start_time: float) -> float:
        """Seconds until the next recording of this kind, such that recording takes at most MAX_OVERHEAD of the time.

        The least of the last few costs counts: the first compiles, and others may have waited for a busy machine.
        """
        costs = self._costs[kind]
        costs.append(time.perf_counter() - start_time)
        return max(min_interval, min(costs) / MAX_OVERHEAD) if len(costs) > 1 else min_interval

    def wait_if_paused(self, interrupted: Callable[[], bool]) -> Stop | None:
        """Wait while the viewer pauses or slows the run; return Stop.PAGE if the viewer stops it."""
        start_time = time.perf_counter()
        try:
            return self._wait(interrupted)
        finally:
            self._chunk = None  # the next chunk takes its memory
            self._resumed_from, self._resumed_at = self._chunk_end, time.perf_counter()
            self._paused_seconds += self._resumed_at - start_time

    def _wait(self, interrupted: Callable[[], bool]) -> Stop | None:
        while True:
            with self._condition:
                if ABANDONED_SECONDS < self.page.seconds_without_viewers() < math.inf:  # whoever paused it has left
                    self._release()
                self._state = "paused" if self._is_paused else "running"
                if self._stop_requested:
                    return Stop.PAGE
                if interrupted():
                    return None
                if self._pending_steps:
                    self._pending_steps, self.max_generations = self._pending_steps - 1, 1
                    return None
                wait, speed = 0.1, self._pace()
                if not self._is_paused:
                    if speed is None:
                        self.max_generations = _next_chunk_length(self._chunk_end)
                        return None
                    self.max_generations = max(1, int(speed * FRAME_INTERVAL))
                    # a chunk begun before the speed was chosen may be longer, and is not waited for
                    due = self._resumed_at + min(self._chunk_end - self._resumed_from, self.max_generations) / speed
                    wait = min(wait, due - time.perf_counter())
                    if wait <= 0:
                        return None
            if self._chunk is not None:  # a paused run shows where it stands
                with self._isolate_errors():
                    if self._rows_until != self._chunk_end:
                        self._record_rows()
                    if self._frame is None or self._frame[:2] != (self._generation, self._shown_run):
                        self._record_frame()
            with self._condition:
                if not self._stop_requested:
                    self._condition.wait(wait)

    def finish(self, message: str) -> None:
        """Show that the run ended, with its message."""
        self._end("finished", message)

    def fail(self, message: str) -> None:
        """Show that the run ended with an error."""
        self._end("failed", message)

    def _end(self, state: str, message: str) -> None:
        with self._condition:
            self._state, self._message = state, message
            self._chunk, self._ended_at = None, time.perf_counter()
        self.page.notify_viewers()

    def _record_rows(self) -> None:
        assert self._chunk is not None
        before, now, chunk_view = self._chunk
        self._rows_until = self._chunk_end
        length = now.generations - before.generations
        shape = chunk_view.shape
        longest = int(length.max())
        if not longest:
            return
        offsets = np.unique(np.linspace(0, longest - 1, observers.ROWS).astype(np.int32))
        run = min(self._shown_run, len(length) - 1)
        rows, median, spread = chunk_view.rows(np.resize(offsets, observers.ROWS), run, before, now)
        best_so_far = _carry_best(rows, before, run) if shape.objectives == 1 else rows.best
        m, is_single_run = shape.objectives, len(length) == 1
        first_row = self._chunk_start
        mean_share = float(now.feasible_share.mean())
        points: list[list[float | None]] = []
        for i, row in enumerate(offsets.tolist()):
            is_last_row = row == longest - 1
            no_values = np.full(m, np.nan)
            best, worst = (values[i].astype(float) * self._signs for values in (best_so_far, rows.worst))
            if int(length[run]) == 0:
                best = worst = no_values
            median_values = median.astype(float) * self._signs if is_last_row else no_values
            feasible_share = (
                float(rows.feasible_share[i]) if rows.feasible_share is not None and is_single_run else mean_share
            )
            values = [*best, *median_values, *worst]
            values.append(feasible_share if shape.constrained and (is_single_run or is_last_row) else math.nan)
            if spread is not None:
                values += (spread[i].astype(float) * self._sign).tolist()
            elif rows.hypervolume is not None and int(length[run]):
                values.append(float(rows.hypervolume[i]))
            points.append([first_row + row + 1, *(to_json_number(v) for v in values)])
        with self._condition:
            self._curve += points
            if len(self._curve) > MAX_LIVE_POINTS:
                self._curve = self._curve[:-1:2] + self._curve[-1:]
                self._curve_version += 1
            self._track = now
            self._samples.append((time.perf_counter(), int(now.evaluations.sum()), self._progress))

    def _record_frame(self) -> None:
        assert self._chunk is not None
        run = min(self._shown_run, len(self._chunk[1].best) - 1)
        survivors = jax.tree.map(np.asarray, self._chunk[2].survivors(run))
        with self._condition:
            self._track = self._chunk[1]
            self._frame, self._n_frames = (self._generation, self._shown_run, survivors), self._n_frames + 1
        self.page.notify_viewers()

    def expect_viewer(self) -> None:
        """Let a slow start wait a little for the browser that was opened, so that the first generations are seen."""
        self._browser_deadline = time.perf_counter() + BROWSER_WAIT_SECONDS

    def _pace(self) -> float | None:
        """Generations per second that the run may make now; None for full speed."""
        if not self._is_slow_start:
            return self._speed
        now = time.perf_counter()
        if self.page.seconds_without_viewers() > 0:  # with nobody there it need not be slow
            is_expected = self._watched_since is None and now < self._browser_deadline
            return INITIAL_SPEED if is_expected and self._chunk_end else None
        self._watched_since = now if self._watched_since is None else self._watched_since
        pace = INITIAL_SPEED * 2 ** ((now - self._watched_since) / SPEED_DOUBLING_SECONDS)
        self._is_slow_start = pace < FULL_SPEED
        return pace

    # the server's threads

    def command(self, name: object, value: Any = None) -> str:
        """Execute a command of a page; return an error message, or "" on success."""
        if not isinstance(name, str) or name not in COMMANDS:
            return f"The command must be one of {', '.join(COMMANDS)}."
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**32
        with self._condition:
            has_ended, replay = self._state in ("finished", "failed"), self.replay
        if has_ended and name == "resume" and replay is not None:
            replay()
            return ""
        with self._condition:
            if has_ended:
                return "The run has ended."
            if name == "pause":
                self._is_paused = True
            elif name == "resume":
                self._is_paused, self._pending_steps = False, 0
                self._samples.clear()  # what was measured before the pause is not how fast it goes now
            elif name == "step":
                self._is_paused, self._pending_steps = True, min(self._pending_steps + 1, 100)
            elif name == "stop":
                self._stop_requested = True
            elif name == "run":
                if not is_number or value != int(value) or not 0 <= value < self.facts.settings["runs"]:
                    return f"Run numbers go from 0 to {self.facts.settings['runs'] - 1}."
                self._shown_run = int(value)
            else:
                if value is not None and not (is_number and MIN_SPEED <= value <= MAX_SPEED):
                    return SPEED_ERROR
                self._speed = None if value is None else float(value)
                self._samples.clear()
            if name not in ("run", "stop"):
                self._is_slow_start = False  # from now on the viewer sets the pace
            self._condition.notify_all()
        self.page.notify_viewers()
        return ""

    def release(self) -> None:
        """Let the run go on by itself."""
        with self._condition:
            self._release()
            self._condition.notify_all()

    def _release(self) -> None:
        self._is_paused, self._pending_steps, self._speed, self._is_slow_start = False, 0, None, False

    def message(self, version: int, sent: int) -> tuple[JsonObject, int, int]:
        """Make the message for a page that has `sent` points of the curve's `version`; return it with both updated."""
        with self._condition:  # the run waits for this lock: nothing that takes long
            is_full = version != self._curve_version
            version, points = self._curve_version, self._curve[0 if is_full else sent :]
            sent = len(self._curve)
            track, speeds = self._track, tuple(self._samples)
            text = {
                "session": self.name,
                "state": self._state,
                "message": self._message,
                "generation": self._generation,
                "paused": self._is_paused,
                "speed": self._speed,
                "can_replay": self.replay is not None,
                "slow_start": self._is_slow_start and self._watched_since is not None and self._state == "running",
                "run": self._shown_run,
                "frame": self._n_frames,
                "seconds": (self._ended_at or time.perf_counter()) - self._started_at,
                "first_run": self._first_run,
                "searches": self._searches,
                "after_search": self._after_search,
                "interval": None if self._interval is None else [to_json_number(end) for end in self._interval],
                "is_full": is_full,
                "points": points,
            }
        if track is not None:
            text |= self._summary(track)
        text |= self._estimate_times(speeds, text["state"])
        return text, version, sent

    def _estimate_times(self, speeds: tuple[tuple[float, int, Progress | None], ...], state: str) -> dict[str, float]:
        """Estimate speed, time left and total time, as far as possible.

        Time for which the page paused the run does not count: it goes on faster once nobody slows it down.
        """
        if not speeds or state == "paused":
            return {}
        (first_time, first_nfev, first), (last_time, last_nfev, latest) = speeds[0], speeds[-1]
        out = {}
        if last_time > first_time:
            out["evaluations_per_second"] = (last_nfev - first_nfev) / (last_time - first_time)
        if latest is None or state != "running":
            return out
        seconds_left = time_left(latest, first)
        if seconds_left is None:
            return out
        if self._speed is not None and latest.generations:
            seconds_left = max(seconds_left, (latest.generations - latest.generation) / self._speed)
        return out | {"left": seconds_left, "total_seconds": latest.seconds + seconds_left}

    def _summary(self, track: Track) -> JsonObject:
        """Summarise all runs, once for all pages."""
        cached_track, numbers = self._cached_summary
        if cached_track is track:
            return numbers
        row = track.best_run if self._answer is None else self._answer
        is_done = (track.reason != RUNNING) | (track.generations >= (self.facts.generations or UNLIMITED))
        numbers = {
            "nfev": int(track.evaluations.sum()),
            "best": to_json_number(self._sign * float(track.best[row])),
            "violation": to_json_number(float(track.violation[row])),
            "batch_runs": len(track.best),
            "runs_done": int(is_done.sum()),
        }
        if self.facts.problem.constrained:
            numbers["share"] = float(track.feasible_share.mean())
            numbers["feasible_runs"] = int((track.violation <= 0).sum())
        if len(track.best) > 1:
            numbers["values"] = sample_spread(track.best[track.violation <= 0], self._sign)
        self._cached_summary = (track, numbers)
        return numbers

    def frame(self) -> bytes:
        """The latest frame: length of the header, header (JSON), objectives, violation (float64), genes (float32)."""
        with self._condition:
            latest, number = self._frame, self._n_frames
        if latest is None:
            return b""
        if self._packed_frame[0] == number:
            return self._packed_frame[1]
        self._packed_frame = (number, pack_frame(number, *latest, self._signs))
        return self._packed_frame[1]

    def describe(self) -> JsonObject:
        """Describe what does not change during the run."""
        return {"session": self.name, **describe_run(self.facts)}

    def contours(self, first: int, second: int, objective: int, recompute: bool) -> JsonObject:
        """The objective over two variables, the others as in the best individual; {"why": ...} where there is none."""

        def best() -> tuple[int, np.ndarray] | None:  # called when the grid's turn comes, which may be a while later
            with self._condition:
                latest = self._frame
            return None if latest is None else (latest[0], np.asarray(latest[2].best, float))

        return self._contour_grids.get((first, second, objective), best, recompute)
