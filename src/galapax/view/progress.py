"""How far a run is and how long it will take: a line on a terminal, drawn with nothing but carriage returns, or in the
output of a notebook's cell.
"""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any, Protocol

from galapax.running.observers import Progress, Waiting, time_left

PATIENCE = 1.0  # seconds before a line appears by itself
BAR = 20  # characters
LONG = 10.0  # seconds: a run that takes longer says so before it goes on
COMPILING = "compiling …"
# what a line keeps where not all of it fits, the most important first
IMPORTANT = ("left", "runs", "best", "title", "generation", "violation", "bar", "feasible", "speed")


@contextmanager
def progress_line(wanted: bool | None, title: str) -> Iterator[Callable[[Progress | Waiting], None]]:
    """A function that shows a Progress on one line, or for how long no worker has been alive. wanted: yes, no, or None
    for "on a terminal or in a notebook, after a while".

    Until there is a Progress, the line says that the program is being compiled.
    """
    place = _place()
    if wanted is False or (wanted is None and isinstance(place, _Log)):
        yield lambda state: None
        return
    line = _Line(title, place, patience=0.0 if wanted else PATIENCE)
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


class _Place(Protocol):
    """Where progress is shown."""

    every: float  # seconds between two lines

    def now(self, text: str, share: float | None) -> None:
        """Show this, in place of what was shown before where that is possible."""

    def stay(self, text: str) -> None:
        """Show this, and leave it there."""

    def clear(self) -> None:
        """It is over."""


def _place() -> _Place:
    shell = sys.modules.get("IPython")
    if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        return _Cell(shell.display)
    return _Terminal() if sys.stderr.isatty() else _Log()


@dataclass
class _Terminal:
    """One line that is written over."""

    every: float = 0.1
    drawn: str = ""

    def now(self, text: str, share: float | None) -> None:
        text = text[: _width()]
        sys.stderr.write("\r" + text.ljust(len(self.drawn)))
        sys.stderr.flush()
        self.drawn = text

    def stay(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(len(self.drawn)) + "\n")
        self.drawn = ""

    def clear(self) -> None:
        if self.drawn:
            sys.stderr.write("\r" + " " * len(self.drawn) + "\r")
            sys.stderr.flush()


@dataclass
class _Log:
    """A file or a pipe: a line now and then, each on its own."""

    every: float = 5.0

    def now(self, text: str, share: float | None) -> None:
        self.stay(text)

    def stay(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def clear(self) -> None:
        pass


@dataclass
class _Cell:
    """An output of a notebook's cell that is shown anew. An output cannot be taken away again: so there is none before
    it is known that the run is long, and at the end what was said of that is left.
    """

    shown: Any  # IPython's module `display`
    every: float = 0.25
    handle: Any = None
    kept: str = ""

    def now(self, text: str, share: float | None) -> None:
        if not self.kept:
            return
        bar = "" if share is None else f'<progress value="{share:.4f}" max="1"></progress> '
        lines = [escape(self.kept)] + [bar + escape(text)] * bool(text)
        bundle = {"text/plain": "\n".join(filter(None, (self.kept, text))), "text/html": "<br>".join(lines)}
        if self.handle is None:
            self.handle = self.shown.display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)

    def stay(self, text: str) -> None:
        self.kept = text
        self.now("", None)

    def clear(self) -> None:
        self.now("", None)


@dataclass
class _Line:
    """What is shown of one run. The timer that says "compiling" is another thread, hence the lock."""

    title: str
    place: _Place
    patience: float
    last: float = -math.inf  # when a Progress was drawn
    first: Progress | None = None
    told: bool = False  # how long it will take
    closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def compiling(self) -> None:
        with self.lock:
            if self.first is None and not self.closed:
                self.place.now(f"{self.title}  {COMPILING}", None)

    def show(self, state: Progress | Waiting) -> None:
        with self.lock:
            if isinstance(state, Waiting):
                self._wait(state.seconds)
                return
            self.first = self.first or state
            left = None if self.told else time_left(state, self.first)
            if left is not None:
                self.told = True
                if left >= LONG:
                    self.place.stay(f"{self.title}: {beforehand(state, left)}")
            now = time.perf_counter()
            if state.seconds < self.patience or now - self.last < self.place.every:
                return
            if isinstance(self.place, _Terminal):
                self.place.now(fitted(self.title, state, self.first, _width()), None)
            else:
                self.place.now("  ".join([self.title, *describe(state, self.first).values()]), done(state))
            self.last = now

    def _wait(self, seconds: float) -> None:
        """Show for how long no worker has been alive."""
        now = time.perf_counter()
        if now - self.last >= self.place.every:
            self.place.now(f"{self.title}  no worker has been alive for {_duration(seconds)}", None)
            self.last = now

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.place.clear()


def beforehand(state: Progress, left: float) -> str:
    """How long the whole run will take. left: seconds from now on."""
    total = left + state.working
    runs = f" of {state.runs} runs" if state.runs > 1 else ""
    if state.max_seconds is not None and state.seconds + left >= state.max_seconds * (1 - 1e-9):
        return f"{_duration(state.max_seconds)}, the time limit"
    if state.generations and state.shares[0] == max(state.shares):
        return f"about {_duration(total)} for {state.generations} generations{runs}"
    return f"about {_duration(total)} for {state.max_evaluations} evaluations{runs}"


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
    shares = state.shares + ([state.seconds / state.max_seconds] if state.max_seconds else [])
    return min(1.0, max(shares)) if shares else None


def describe(state: Progress, first: Progress | None = None) -> dict[str, str]:
    """What to say of a Progress, by name; with an earlier one also the speed since then."""
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
    left = time_left(state, first)
    if left is not None:
        parts["left"] = f"{_duration(left)} left"
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
