"""One run as the live page sees it: what has been seen so far, and what the page may ask of the run.

The run's thread calls `start`, `look`, `hold`, `finish` and `fail`; the server's threads call the rest. Neither waits
for the other: the run leaves a new frame where the old one was, and a page takes whichever is there when it is ready.
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

from galapax.core.stop import NEVER, RUNNING, Stop
from galapax.engines import glimpse
from galapax.engines.outcome import Track
from galapax.numerics import devices
from galapax.results.result import objective_sign
from galapax.running.observers import Facts, Progress, time_left
from galapax.view.live.contours import Contours
from galapax.view.live.messages import described, packed, plain

BETWEEN_FRAMES = 0.2  # seconds; a frame that is dear to make comes less often
BETWEEN_ROWS = 0.2  # and three times that while nobody watches
FIRST_ROWS, DENSITY = 100, 1.2  # values are kept of these generations, and then at least of each so many times later
SHARE = 0.02  # of the run's time that looking at it may take
POINTS = 2000  # of a curve, at most
SLOWEST, FASTEST = 0.1, 1e6  # generations a second
FIRST_SPEED, DOUBLES, FAST_ENOUGH = 8.0, 1.5, 2000.0  # a slow start: generations a second, seconds in which they double
ARRIVAL = 4.0  # seconds that a slow start waits for a browser that was opened
PATIENCE = 10.0  # seconds after which a run that is held up goes on, once nobody watches it any more
COMMANDS = ("pause", "resume", "step", "stop", "speed", "run")


def _next_chunk(made: int) -> int:
    """Generations until the page looks again: few at first, where most happens, and a quarter more each time. A GPU has
    programs for some lengths only.
    """
    return max(1, made // 4) if devices.on_cpu() else max(100, made // 4 // 500 * 500)


class Page(Protocol):
    """The server, as a session sees it."""

    def wake(self) -> None:
        """Tell the pages that there is something new."""

    def trouble(self, sentence: str) -> None:
        """Tell the user."""

    def lonely(self) -> float:
        """For how many seconds nobody has watched any more; 0 while somebody does, inf if nobody came yet."""


class Session:
    """A Viewer (see engines/drive.py) that keeps what the pages show."""

    def __init__(self, facts: Facts, page: Page, paused: bool = False, slow_start: bool = False) -> None:
        self.facts, self.page = facts, page
        self.name = secrets.token_hex(6)  # pages see by it that another run is shown
        self.most = 1 if paused or slow_start else NEVER
        self._gentle = slow_start  # until the viewer chooses a pace, or a while has passed
        self._seen_at: float | None = None  # since when somebody watches
        self._awaited = 0.0  # until when the first viewer is waited for
        self.folder: Path | None = None  # where the run was saved, once it was
        self.again: Callable[[], Any] | None = None  # plays the run again, once it is over
        self._changed = threading.Condition()
        self._sign = objective_sign(facts.settings)
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
        self._now: tuple[Track, Track, glimpse.Glance] | None = None
        self._track: Track | None = None
        self._summed: tuple[Track | None, dict[str, Any]] = (None, {})
        self._points: list[list[float | None]] = []
        self._version = 0  # changes when points already sent are no longer the ones kept
        self._speeds: deque[tuple[float, int, Progress | None]] = deque(maxlen=30)
        self._heard: Progress | None = None
        self._frame: tuple[int, int, glimpse.Survivors] | None = None  # generation, run
        self._frames = 0
        self._packed: tuple[int, bytes] = (0, b"")
        self._contours = Contours(facts)

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

    def hear(self, state: Progress) -> None:
        """What the callback is told, before `look`."""
        self._heard = state

    def look(self, made: int, before: Track, now: Track, glance: glimpse.Glance, last: bool) -> None:
        """Keep what is due of the run after generation `made`."""
        if not self._broken:
            with self._apart():
                self._look(made, before, now, glance, last)

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Whatever goes wrong inside is the page's trouble and not the run's."""
        try:
            yield
        except Exception as error:
            self._broken, self._now = True, None
            self.release()
            self.page.trouble(
                f"The live page has stopped updating ({type(error).__name__}: {error}). The run continues."
            )

    def _look(self, made: int, before: Track, now: Track, glance: glimpse.Glance, last: bool) -> None:
        began = time.perf_counter()
        if self._state == "starting":
            self._state = "running"
        fresh = made > self._made
        if fresh:
            self._chunk_start, self._made = self._made, made
        self._reached = int(now.generations.max())  # less than `made` where every run finished within the chunk
        self._now = (before, now, glance)
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

    def hold(self, interrupted: Callable[[], bool]) -> Stop | None:
        """Wait while the page holds the run up; Stop.PAGE if it stops the run."""
        began = time.perf_counter()
        try:
            return self._hold(interrupted)
        finally:
            self._now = None  # the next chunk takes its memory
            self._released, self._released_at = self._made, time.perf_counter()
            self._held += self._released_at - began

    def _hold(self, interrupted: Callable[[], bool]) -> Stop | None:
        while True:
            with self._changed:
                if PATIENCE < self.page.lonely() < math.inf:  # whoever held it up has left
                    self._release()
                self._state = "paused" if self._paused else "running"
                if self._stop:
                    return Stop.PAGE
                if interrupted():
                    return None
                if self._steps:
                    self._steps, self.most = self._steps - 1, 1
                    return None
                wait, speed = 0.1, self._pace()
                if not self._paused:
                    if speed is None:
                        self.most = _next_chunk(self._made)
                        return None
                    self.most = max(1, int(speed * BETWEEN_FRAMES))
                    # a chunk begun before the speed was chosen may be longer, and is not waited for
                    due = self._released_at + min(self._made - self._released, self.most) / speed
                    wait = min(wait, due - time.perf_counter())
                    if wait <= 0:
                        return None
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
        before, now, glance = self._now
        self._rows_made = self._made
        length = now.generations - before.generations
        shape = glance.shape
        longest = int(length.max())
        chosen = np.unique(np.linspace(0, longest - 1, glimpse.ROWS).astype(np.int32)) if longest else np.zeros(0, int)
        if not len(chosen):
            return
        run = min(self._run, len(length) - 1)
        rows, median, spread = glance.rows(np.resize(chosen, glimpse.ROWS), run, before, now)
        m, single = shape.objectives, len(length) == 1
        start = self._chunk_start
        share = float(now.feasible_share.mean())
        points: list[list[float | None]] = []
        for i, row in enumerate(chosen.tolist()):
            final = row == longest - 1
            nothing = np.full(m, np.nan)
            best, worst = (part[i].astype(float) * self._sign for part in (rows.best, rows.worst))
            if int(length[run]) == 0:
                best = worst = nothing
            middle = median.astype(float) * self._sign if final else nothing
            shares = float(rows.feasible_share[i]) if shape.constrained and single else share
            values = [*best, *middle, *worst]
            values.append(shares if shape.constrained and (single or final) else math.nan)
            if spread is not None:
                values += (spread[i].astype(float) * self._sign).tolist()
            elif rows.hypervolume is not None and int(length[run]):
                values.append(float(rows.hypervolume[i]))
            points.append([start + row + 1, *(plain(v) for v in values)])
        with self._changed:
            self._points += points
            if len(self._points) > POINTS:
                self._points = self._points[:-1:2] + self._points[-1:]
                self._version += 1
            self._track = now
            self._speeds.append((time.perf_counter(), int(now.evaluations.sum()), self._heard))

    def _take_frame(self) -> None:
        assert self._now is not None
        run = min(self._run, len(self._now[1].best) - 1)
        taken = jax.tree.map(np.asarray, self._now[2].survivors(run))
        with self._changed:
            self._track = self._now[1]
            self._frame, self._frames = (self._reached, self._run, taken), self._frames + 1
        self.page.wake()

    def expect(self) -> None:
        """A browser was opened: a slow start waits for it a little, so that the first generations are seen."""
        self._awaited = time.perf_counter() + ARRIVAL

    def _pace(self) -> float | None:
        """Generations a second that the run may make now; None for as many as it can."""
        if not self._gentle:
            return self._speed
        now = time.perf_counter()
        if self.page.lonely() > 0:  # with nobody there it need not be slow
            return FIRST_SPEED if self._seen_at is None and now < self._awaited and self._made else None
        self._seen_at = now if self._seen_at is None else self._seen_at
        pace = FIRST_SPEED * 2 ** ((now - self._seen_at) / DOUBLES)
        self._gentle = pace < FAST_ENOUGH
        return pace

    # the server's threads

    def command(self, name: Any, value: Any = None) -> str:
        """Do what a page asks for; a sentence if that cannot be done."""
        if not isinstance(name, str) or name not in COMMANDS:
            return f"The command must be one of {', '.join(COMMANDS)}."
        number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**32
        with self._changed:
            over, again = self._state in ("finished", "failed"), self.again
        if over and name == "resume" and again is not None:
            again()
            return ""
        with self._changed:
            if over:
                return "The run has ended."
            if name == "pause":
                self._paused = True
            elif name == "resume":
                self._paused, self._steps = False, 0
                self._speeds.clear()  # what was measured before the pause is not how fast it goes now
            elif name == "step":
                self._paused, self._steps = True, min(self._steps + 1, 100)
            elif name == "stop":
                self._stop = True
            elif name == "run":
                if not number or value != int(value) or not 0 <= value < self.facts.settings["runs"]:
                    return f"Run numbers go from 0 to {self.facts.settings['runs'] - 1}."
                self._run = int(value)
            else:
                if value is not None and not (number and SLOWEST <= value <= FASTEST):
                    return (
                        f"The speed must be from {SLOWEST:g} to {FASTEST:g} generations per second, or null (fastest)."
                    )
                self._speed = None if value is None else float(value)
                self._speeds.clear()
            if name not in ("run", "stop"):
                self._gentle = False  # from now on the viewer sets the pace
            self._changed.notify_all()
        self.page.wake()
        return ""

    def release(self) -> None:
        """Let the run go on by itself."""
        with self._changed:
            self._release()
            self._changed.notify_all()

    def _release(self) -> None:
        self._paused, self._steps, self._speed, self._gentle = False, 0, None, False

    def message(self, version: int, sent: int) -> tuple[dict[str, Any], int, int]:
        """What is new for a page that has `sent` points of the curve's `version`: the message, and the two for it."""
        with self._changed:  # the run waits for this lock: nothing that takes long
            whole = version != self._version
            version, points = self._version, self._points[0 if whole else sent :]
            sent = len(self._points)
            track, speeds = self._track, tuple(self._speeds)
            text = {
                "session": self.name,
                "state": self._state,
                "message": self._message,
                "generation": self._reached,
                "held": self._paused,
                "speed": self._speed,
                "again": self.again is not None,
                "gentle": self._gentle and self._seen_at is not None and self._state == "running",
                "run": self._run,
                "frame": self._frames,
                "seconds": (self._ended or time.perf_counter()) - self._began,
                "first_run": self._first_run,
                "whole": whole,
                "points": points,
            }
        if track is not None:
            text |= self._summary(track)
        text |= self._times(speeds, text["state"])
        return text, version, sent

    def _times(self, speeds: tuple[tuple[float, int, Progress | None], ...], state: str) -> dict[str, float]:
        """Speed, time left and time in all, as far as they are known. Time that the page held the run up is no speed of
        the run: it goes on faster once nobody slows it down.
        """
        if not speeds or state == "paused":
            return {}
        (began, before, earlier), (now, after, latest) = speeds[0], speeds[-1]
        out = {"evaluations_per_second": (after - before) / (now - began)} if now > began else {}
        if latest is None or state != "running":
            return out
        left = time_left(latest, earlier)
        if left is None:
            return out
        if self._speed is not None and latest.generations:
            left = max(left, (latest.generations - latest.generation) / self._speed)
        return out | {"left": left, "in_all": latest.seconds + left}

    def _summary(self, track: Track) -> dict[str, Any]:
        """Numbers of all runs, worked out once for all pages."""
        known, numbers = self._summed
        if known is track:
            return numbers
        row = track.best_run
        done = (track.reason != RUNNING) | (track.generations >= (self.facts.generations or NEVER))
        numbers = {
            "nfev": int(track.evaluations.sum()),
            "best": plain(self._sign * float(track.best[row])),
            "violation": plain(float(track.violation[row])),
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
            numbers["values"] = [plain(self._sign * v) for v in some[at]]
        self._summed = (track, numbers)
        return numbers

    def frame(self) -> bytes:
        """The last frame: length of the header, header (JSON), objectives, violation (float64), genes (float32)."""
        with self._changed:
            taken, number = self._frame, self._frames
        if taken is None:
            return b""
        if self._packed[0] == number:
            return self._packed[1]
        self._packed = (number, packed(number, *taken, self._sign))
        return self._packed[1]

    def describe(self) -> dict[str, Any]:
        """What does not change during the run."""
        return {"session": self.name, **described(self.facts)}

    def contours(self, first: int, second: int, objective: int, anew: bool) -> dict[str, Any]:
        """The objective over two variables, the others as in the best individual; {"why": ...} where there is none."""

        def best() -> tuple[int, np.ndarray] | None:  # asked when the grid's turn comes, which may be a while later
            with self._changed:
                taken = self._frame
            return None if taken is None else (taken[0], np.asarray(taken[2].best, float))

        return self._contours.of((first, second, objective), best, anew)
