"""Deferred Ctrl-C: record the interrupt instead of raising it, so that the run returns its result so far."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Whether Ctrl-C was pressed. raises: returns whether to raise as well, as inside a user's objective."""

    def __init__(self) -> None:
        self.seen = False
        self.raises: Callable[[], bool] = lambda: False


_current: list[Interrupts] = []


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Record the first Ctrl-C inside the context; a second one raises as usual. Nested contexts share the outermost.

    A verb opens it before anything else and closes it last, so that no Ctrl-C is lost between batches, between the
    cells of a study, or while the result is assembled.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is None:
        yield Interrupts()
        return
    if _current:
        yield _current[-1]
        return
    state = Interrupts()

    def record_interrupt(signum: int, frame: FrameType | None) -> None:
        state.seen = True
        signal.signal(signal.SIGINT, previous)
        if state.raises():
            raise KeyboardInterrupt

    _current.append(state)
    signal.signal(signal.SIGINT, record_interrupt)
    try:
        yield state
    finally:
        _current.pop()
        signal.signal(signal.SIGINT, previous)
