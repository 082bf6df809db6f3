"""The progress line of a run on a terminal, drawn with nothing but carriage returns."""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from galapax.running.observers import Progress

PATIENCE = 1.0  # seconds before a line appears by itself
BAR = 20  # characters
SLOW = 5.0  # seconds to the first report, from which on the time left is estimated from the start
COMPILING = "compiling …"
# what a line keeps where not all of it fits, the most important first
IMPORTANT = ("left", "runs", "best", "title", "generation", "violation", "bar", "feasible", "speed")


@contextmanager
def progress_line(wanted: bool | None, title: str) -> Iterator[Callable[[Progress], None]]:
    """A function that shows a Progress on one line. wanted: yes, no, or None for "on a terminal, after a while".

    Until there is a Progress, the line says that the program is being compiled.
    """
    moving = sys.stderr.isatty()
    if wanted is False or (wanted is None and not moving):
        yield lambda state: None
        return
    line = _Line(title, moving, patience=0.0 if wanted else PATIENCE)
    waiting = threading.Timer(PATIENCE, line.compiling)  # no one calls while JAX compiles
    waiting.daemon = True
    if wanted:
        line.compiling()
    else:
        waiting.start()
    try:
        yield line.show
    finally:
        waiting.cancel()
        line.close()


@dataclass
class _Line:
    """What stands on the terminal. The timer that says "compiling" is another thread, hence the lock."""

    title: str
    moving: bool  # a line that is written over; elsewhere a line now and then, each on its own
    patience: float
    drawn: str = ""
    last: float = -math.inf  # when a Progress was drawn
    first: Progress | None = None
    closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def compiling(self) -> None:
        with self.lock:
            if self.first is None and not self.closed:
                self._write(f"{self.title}  {COMPILING}")

    def show(self, state: Progress) -> None:
        with self.lock:
            self.first = self.first or state
            now = time.perf_counter()
            if state.seconds < self.patience or now - self.last < (0.1 if self.moving else 5.0):
                return
            text = "  ".join([self.title, *describe(state, self.first).values()])
            self._write(fitted(self.title, state, self.first, _width()) if self.moving else text)
            self.last = now

    def close(self) -> None:
        with self.lock:
            self.closed = True
            if self.drawn and self.moving:
                sys.stderr.write("\r" + " " * len(self.drawn) + "\r")
                sys.stderr.flush()

    def _write(self, text: str) -> None:
        if self.moving:
            text = text[: _width()]
            sys.stderr.write("\r" + text.ljust(len(self.drawn)))
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()
        self.drawn = text


def fitted(title: str, state: Progress, first: Progress | None, width: int) -> str:
    """Title, bar and numbers on one line of this width; of what does not fit, the least important is left out."""
    parts = {"title": title, "bar": bar(state), **describe(state, first)}
    kept: dict[str, str] = {}
    for name in IMPORTANT:
        with_it = {own: text for own, text in parts.items() if text and (own in kept or own == name)}
        if len("  ".join(with_it.values())) <= width:
            kept = with_it
    return "  ".join(kept.values())


def bar(state: Progress) -> str:
    """How much of the run is over, drawn and in per cent; nothing where that is not known."""
    share = done(state)
    if share is None:
        return ""
    full = round(BAR * share)
    return "█" * full + "░" * (BAR - full) + f" {share:4.0%}"


def done(state: Progress) -> float | None:
    """How much of the run is over: of its generations, evaluations or time, whichever ends it first."""
    limits = [(state.generation, state.generations), (state.seconds, state.max_seconds)]
    limits.append((state.nfev, state.max_evaluations))
    shares = [made / limit for made, limit in limits if limit]
    return min(1.0, max(shares)) if shares else None


def describe(state: Progress, first: Progress | None = None) -> dict[str, str]:
    """What to say of a Progress, by name; with an earlier one also the speed since then (before it lies the
    compilation).
    """
    limit = f"/{state.generations}" if state.generations else ""
    parts = {"generation": f"generation {state.generation}{limit}"}
    parts["best"] = f"best {state.fun:.6g}" if state.hypervolume is None else f"hypervolume {state.hypervolume:.6g}"
    if state.feasible_share is not None:
        parts["feasible"] = f"{state.feasible_share:.0%} feasible"
    if state.violation > 0:
        parts["violation"] = f"violation {state.violation:.2g}"
    if state.runs > 1:
        parts["runs"] = f"{state.runs_done}/{state.runs} runs done"
    if first is not None and state.seconds > first.seconds:
        parts["speed"] = f"{(state.nfev - first.nfev) / (state.seconds - first.seconds):.3g} evaluations/s"
        left = state.seconds_left(first)
        if left is not None:
            parts["left"] = f"{_duration(left)} left"
    elif state.called and state.seconds >= SLOW:  # one generation takes that long: say what is to come at once
        left = state.seconds_left()
        if left is not None:
            parts["left"] = f"about {_duration(left)} left"
    return parts


def _width() -> int:
    """Of a line; one character less than the terminal, which some wrap when its last column is taken."""
    return max(shutil.get_terminal_size().columns - 1, 0)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
