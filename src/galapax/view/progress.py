"""The progress line of a run, with the time left: on a terminal by carriage returns, or in a notebook's cell output."""

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
from types import ModuleType
from typing import Any, Protocol

from galapax.execution.observers import Progress, Waiting, time_left

SHOW_AFTER_SECONDS = 1.0  # a shorter run shows no line unless asked to
BAR_WIDTH = 20  # characters
LONG_RUN_SECONDS = 10.0  # a run that takes longer prints its estimated duration first
COMPILING_TEXT = "compiling …"
# the fields of a line, the most important first; the last are left out where not all fit
FIELD_PRIORITY = ("left", "runs", "best", "title", "generation", "violation", "bar", "feasible", "speed")


@contextmanager
def progress_line(enabled: bool | None, title: str) -> Iterator[Callable[[Progress | Waiting], None]]:
    """Open a progress line; yields the function that shows a Progress on it, or for how long no worker has been alive.

    enabled: None for "on a terminal or in a notebook, after a while". Until there is a Progress, the line says that the
    program is being compiled.
    """
    output = _choose_output()
    if enabled is False or (enabled is None and isinstance(output, _Log)):
        yield lambda state: None
        return
    line = _Line(title, output, show_after=0.0 if enabled else SHOW_AFTER_SECONDS)
    timer = threading.Timer(SHOW_AFTER_SECONDS, line.show_compiling)  # no one calls while JAX compiles
    timer.daemon = True
    if enabled:
        line.show_compiling()
    else:
        timer.start()
    try:
        yield line.show
    finally:
        timer.cancel()
        line.close()


class _Output(Protocol):
    """Where the progress line is written."""

    interval: float  # seconds between two lines

    def update(self, text: str, share: float | None) -> None:
        """Replace the line, where that is possible."""

    def print_line(self, text: str) -> None:
        """Print a line that stays."""

    def clear(self) -> None:
        """Remove the line: the run is over."""


def _choose_output() -> _Output:
    shell = sys.modules.get("IPython")
    if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        return _Cell(shell.display)
    return _Terminal() if sys.stderr.isatty() else _Log()


@dataclass
class _Terminal:
    """A terminal: one line that is overwritten."""

    interval: float = 0.1
    last_line: str = ""

    def update(self, text: str, share: float | None) -> None:
        text = text[: _terminal_width()]
        sys.stderr.write("\r" + text.ljust(len(self.last_line)))
        sys.stderr.flush()
        self.last_line = text

    def print_line(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(len(self.last_line)) + "\n")
        self.last_line = ""

    def clear(self) -> None:
        if self.last_line:
            sys.stderr.write("\r" + " " * len(self.last_line) + "\r")
            sys.stderr.flush()


@dataclass
class _Log:
    """A file or a pipe: a new line every few seconds."""

    interval: float = 5.0

    def update(self, text: str, share: float | None) -> None:
        self.print_line(text)

    def print_line(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def clear(self) -> None:
        pass


@dataclass
class _Cell:
    """A notebook's cell output, updated in place.

    An output cannot be removed again: so there is none before the run is known to be long, and the estimated duration
    stays at the end.
    """

    display_module: ModuleType  # IPython's module `display`
    interval: float = 0.25
    handle: Any = None
    headline: str = ""

    def update(self, text: str, share: float | None) -> None:
        if not self.headline:
            return
        bar = "" if share is None else f'<progress value="{share:.4f}" max="1"></progress> '
        lines = [escape(self.headline)] + [bar + escape(text)] * bool(text)
        bundle = {"text/plain": "\n".join(filter(None, (self.headline, text))), "text/html": "<br>".join(lines)}
        if self.handle is None:
            self.handle = self.display_module.display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)

    def print_line(self, text: str) -> None:
        self.headline = text
        self.update("", None)

    def clear(self) -> None:
        self.update("", None)


@dataclass
class _Line:
    """The progress line of one run. The timer that says "compiling" is another thread, hence the lock."""

    title: str
    output: _Output
    show_after: float
    last_drawn_at: float = -math.inf
    first: Progress | None = None
    has_estimate: bool = False  # the duration has been estimated, and printed if it is long
    closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def show_compiling(self) -> None:
        with self.lock:
            if self.first is None and not self.closed:
                self.output.update(f"{self.title}  {COMPILING_TEXT}", None)

    def show(self, state: Progress | Waiting) -> None:
        with self.lock:
            if isinstance(state, Waiting):
                self._show_waiting(state.seconds)
                return
            self.first = self.first or state
            seconds_left = None if self.has_estimate else time_left(state, self.first)
            if seconds_left is not None:
                self.has_estimate = True
                if seconds_left >= LONG_RUN_SECONDS:
                    self.output.print_line(f"{self.title}: {describe_duration(state, seconds_left)}")
            now = time.perf_counter()
            if state.seconds < self.show_after or now - self.last_drawn_at < self.output.interval:
                return
            if isinstance(self.output, _Terminal):
                self.output.update(fit_to_width(self.title, state, self.first, _terminal_width()), None)
            else:
                self.output.update(
                    "  ".join([self.title, *describe_progress(state, self.first).values()]), finished_share(state)
                )
            self.last_drawn_at = now

    def _show_waiting(self, seconds: float) -> None:
        """Show for how long no worker has been alive."""
        now = time.perf_counter()
        if now - self.last_drawn_at >= self.output.interval:
            self.output.update(f"{self.title}  no worker has been alive for {_format_duration(seconds)}", None)
            self.last_drawn_at = now

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.output.clear()


def _format_rate(rate: float) -> str:
    """Format evaluations per second with three digits: 0.5, 62.3, 176,000."""
    rounded = float(f"{rate:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def describe_duration(state: Progress, seconds_left: float) -> str:
    """Estimate the duration of the whole run in words. seconds_left: from now on."""
    total = seconds_left + state.working
    runs = f" of {state.runs} runs" if state.runs > 1 else ""
    if state.max_seconds is not None and state.seconds + seconds_left >= state.max_seconds * (1 - 1e-9):
        return f"{_format_duration(state.max_seconds)}, the time limit"
    if state.generations and state.shares[0] == max(state.shares):
        return f"about {_format_duration(total)} for {state.generations:,} generations{runs}"
    return f"about {_format_duration(total)} for {state.max_evaluations:,} evaluations{runs}"


def fit_to_width(title: str, state: Progress, first: Progress | None, width: int) -> str:
    """Format title, bar and numbers on one line of this width, dropping the least important of what does not fit."""
    fields = {"title": title, "bar": format_bar(state), **describe_progress(state, first)}
    chosen: dict[str, str] = {}
    for name in FIELD_PRIORITY:
        candidate = {key: text for key, text in fields.items() if text and (key in chosen or key == name)}
        if len("  ".join(candidate.values())) <= width:
            chosen = candidate
    return "  ".join(chosen.values())


def format_bar(state: Progress) -> str:
    """Format the finished share as a bar with per cent; empty where it is not known."""
    share = finished_share(state)
    if share is None:
        return ""
    full = round(BAR_WIDTH * share)
    return "█" * full + "░" * (BAR_WIDTH - full) + f" {share:4.0%}"


def finished_share(state: Progress) -> float | None:
    """The finished share of the run: of its generations, evaluations or time, whichever ends it first."""
    shares = state.shares + ([state.seconds / state.max_seconds] if state.max_seconds else [])
    return min(1.0, max(shares)) if shares else None


def describe_progress(state: Progress, first: Progress | None = None) -> dict[str, str]:
    """Format the fields of a Progress, by name; with an earlier one also the speed since then."""
    limit = f"/{state.generations}" if state.generations else ""
    fields = {"generation": f"generation {state.generation}{limit}"}
    fields["best"] = f"best {state.fun:.6g}" if state.hypervolume is None else f"hypervolume {state.hypervolume:.6g}"
    if state.feasible_share is not None:
        fields["feasible"] = f"{state.feasible_share:.0%} feasible"
    if state.violation > 0:
        fields["violation"] = f"violation {state.violation:.2g}"
    if state.runs > 1:
        fields["runs"] = f"{state.runs_done}/{state.runs} runs done"
    if first is not None and state.seconds > first.seconds:
        fields["speed"] = f"{_format_rate((state.nfev - first.nfev) / (state.seconds - first.seconds))} evaluations/s"
    seconds_left = time_left(state, first)
    if seconds_left is not None:
        fields["left"] = f"{_format_duration(seconds_left)} left"
    return fields


def _terminal_width() -> int:
    """One character less than the terminal is wide: some wrap when the last column is taken."""
    return max(shutil.get_terminal_size().columns - 1, 0)


def _format_duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
