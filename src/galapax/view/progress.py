"""The progress line of a run on a terminal, drawn with nothing but carriage returns."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from galapax.running.observers import Progress, offer_line

PATIENCE = 1.0  # seconds before a line appears by itself
BAR = 20  # characters
SPEED = "evaluations/s"


@offer_line
@contextmanager
def progress_line(wanted: bool | None, title: str) -> Iterator[Callable[[Progress], None]]:
    """A function that shows a Progress on one line. wanted: yes, no, or None for "on a terminal, after a while"."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda state: None
        return
    drawn, last = "", 0.0
    first: Progress | None = None
    moving = sys.stderr.isatty()  # elsewhere a line now and then, each on its own
    between = 0.1 if moving else 5.0

    def show(state: Progress) -> None:
        nonlocal drawn, last, first
        first = first or state
        now = time.perf_counter()
        if (wanted is None and state.seconds < PATIENCE) or (drawn and now - last < between):
            return
        if moving:
            text = fitted(title, state, first, shutil.get_terminal_size().columns - 1)
            sys.stderr.write("\r" + text.ljust(len(drawn)))
        else:
            text = "  ".join([title, *describe(state, first)])
            sys.stderr.write(text + "\n")
        sys.stderr.flush()
        drawn, last = text, now

    try:
        yield show
    finally:
        if drawn and moving:
            sys.stderr.write("\r" + " " * len(drawn) + "\r")
            sys.stderr.flush()


def fitted(title: str, state: Progress, first: Progress | None, width: int) -> str:
    """Title, bar and numbers on one line of this width; what does not fit is left out, the bar and the speed first."""
    share = done(state)
    parts = [title, *describe(state, first)]
    if share is not None:
        full = round(BAR * share)
        barred = [title, "█" * full + "░" * (BAR - full) + f" {share:4.0%}", *parts[1:]]
        if len("  ".join(barred)) <= width:
            return "  ".join(barred)
    if len("  ".join(parts)) > width:
        parts = [part for part in parts if not part.endswith(SPEED)]
    while len(parts) > 1 and len("  ".join(parts)) > width:
        parts.pop()
    return "  ".join(parts)[: max(width, 0)]


def done(state: Progress) -> float | None:
    """How much of the run is over: of its generations or its time, whichever ends it first."""
    limits = [(state.generation, state.generations), (state.seconds, state.max_seconds)]
    shares = [made / limit for made, limit in limits if limit]
    return min(1.0, max(shares)) if shares else None


def describe(state: Progress, first: Progress | None = None) -> list[str]:
    """What to say of a Progress; with an earlier one also the speed since then (before it lies the compilation)."""
    limit = f"/{state.generations}" if state.generations else ""
    parts = [f"generation {state.generation}{limit}"]
    parts.append(f"best {state.fun:.6g}" if state.hypervolume is None else f"hypervolume {state.hypervolume:.6g}")
    if state.feasible_share is not None:
        parts.append(f"{state.feasible_share:.0%} feasible")
    if state.violation > 0:
        parts.append(f"violation {state.violation:.2g}")
    if state.runs > 1:
        parts.append(f"{state.runs_done}/{state.runs} runs done")
    if first is not None and state.seconds > first.seconds:
        seconds, made = state.seconds - first.seconds, state.generation - first.generation
        parts.append(f"{(state.nfev - first.nfev) / seconds:.3g} {SPEED}")
        left = []
        if state.generations and made > 0:
            left.append(seconds * (state.generations - state.generation) / made)
        if state.max_seconds is not None:
            left.append(max(0.0, state.max_seconds - state.seconds))
        if left:
            parts.append(f"{_duration(min(left))} left")
    return parts


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
