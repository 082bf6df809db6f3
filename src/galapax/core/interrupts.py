"""Ctrl-C, noted instead of raised, so that nothing is cut in two and nothing that was computed is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """Whether Ctrl-C came. at_once: tells whether it is also to be raised where it comes, in a user's own code."""

    def __init__(self) -> None:
        self.seen = False
        self.at_once: Callable[[], bool] = lambda: False


_current: list[Interrupts] = []


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Note the first Ctrl-C from here on; a second one raises as usual. Inside another of its kind, that one holds.

    A call of the library opens it first and leaves it last, so that Ctrl-C is not lost between batches, or cells of a
    study, or while the result is put together.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is None:
        yield Interrupts()
        return
    if _current:
        yield _current[-1]
        return
    noted = Interrupts()

    def note(signum: int, frame: Any) -> None:
        noted.seen = True
        signal.signal(signal.SIGINT, previous)
        if noted.at_once():
            raise KeyboardInterrupt

    _current.append(noted)
    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        _current.pop()
        signal.signal(signal.SIGINT, previous)
