"""The progress line of a run on a terminal, drawn with nothing but carriage returns."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from galapax.engines.loop import Progress

PATIENCE = 1.0  # seconds before a line appears by itself


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
        text = f"{title}  {describe(state, first)}"
        if moving:
            sys.stderr.write("\r" + text.ljust(len(drawn)))
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()
        drawn, last = text, now

    try:
        yield show
    finally:
        if drawn and moving:
            sys.stderr.write("\r" + " " * len(drawn) + "\r")
            sys.stderr.flush()


def describe(state: Progress, first: Progress | None = None) -> str:
    """A Progress in one line; with an earlier one also the speed since then (before it lies the compilation)."""
    limit = f"/{state.generations}" if state.generations else ""
    parts = [f"generation {state.generation}{limit}"]
    parts.append(f"best {state.fun:.6g}" if state.hypervolume is None else f"hypervolume {state.hypervolume:.6g}")
    if state.violation > 0:
        parts.append(f"violation {state.violation:.2g}")
    if state.runs > 1:
        parts.append(f"{state.runs_done}/{state.runs} runs done")
    if first is not None and state.seconds > first.seconds:
        seconds, made = state.seconds - first.seconds, state.generation - first.generation
        parts.append(f"{(state.nfev - first.nfev) / seconds:.3g} evaluations/s")
        if state.generations and made > 0:
            parts.append(f"{seconds * (state.generations - state.generation) / made:.0f} s left")
    return "  ".join(parts)
