"""Termination: the rules of a run, the reasons why it ended with a sentence for each, and deferred Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from numpy.typing import DTypeLike

from galapax.core.checks import pluralize


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


UNLIMITED = 2**31 - 1


class Stop(StrEnum):
    """Termination reason of a run. The value is for files and programs, `by` for tables."""

    BUDGET = "budget"  # the limit of generations or evaluations was reached
    TARGET = "target"
    TOLERANCE = "tolerance"  # the search converged to the answer
    KNOWN = "known"  # the search closed in on the best point of the searches before it
    ELSEWHERE = "elsewhere"  # the search converged to a worse point than one that it had sampled before
    STALL = "stall"
    INTERRUPT = "interrupt"
    TIME = "time"
    CALLBACK = "callback"
    PAGE = "page"
    FAILURES = "failures"
    WORKERS = "workers"  # no worker is left

    @property
    def early(self) -> bool:
        """Whether it was ended from outside, before its own rules applied."""
        return self not in STOP_CODES

    @property
    def done(self) -> bool:
        """Whether the run reached its target or converged."""
        return self in (Stop.TARGET, Stop.TOLERANCE)

    @property
    def by(self) -> str:
        """What ended the run, for tables."""
        return _BY[self]

    def sentence(
        self,
        generation: int,
        rules: Rules,
        seconds: float | None = None,
        limits: tuple[int | None, int | None] = (None, None),
        spent: int | None = None,
    ) -> str:
        """Write the reason as a sentence. limits: of generations and evaluations. spent: evaluations of the run."""
        if self is Stop.BUDGET:
            missed = " The target was not reached." if np.isfinite(rules.target) else ""
            generations, evaluations = limits
            if evaluations is not None and generation != generations:
                duration = pluralize(generation, "generation")
                if spent is not None and spent != evaluations:
                    return (
                        f"Stopped after {spent:,} of {evaluations:,} evaluations ({duration}): another generation "
                        f"would exceed the limit.{missed}"
                    )
                return f"Stopped: evaluation limit ({evaluations:,}) reached after {duration}.{missed}"
            return f"Stopped: generation limit ({generation:,}) reached.{missed}"
        if self is Stop.STALL and generation < int(rules.stall):
            return f"Stopped after generation {generation:,}: the search cannot continue."
        return _SENTENCES[self].format(generation=generation, stall=rules.stall, seconds=seconds or 0.0)


_BY = {
    Stop.BUDGET: "the budget",
    Stop.TARGET: "the target",
    Stop.TOLERANCE: "convergence",
    Stop.ELSEWHERE: "convergence to a worse point",
    Stop.KNOWN: "closing in on a known point",
    Stop.STALL: "stall",
    Stop.INTERRUPT: "Ctrl-C",
    Stop.TIME: "the time limit",
    Stop.CALLBACK: "the callback",
    Stop.PAGE: "the live page",
    Stop.FAILURES: "failed evaluations",
    Stop.WORKERS: "lost workers",
}
_SENTENCES = {
    Stop.TARGET: "Target reached in generation {generation:,}.",
    Stop.TOLERANCE: "Converged in generation {generation:,}.",
    Stop.ELSEWHERE: "Converged in generation {generation:,}, but to a worse point than the best one.",
    Stop.KNOWN: "Converged in generation {generation:,} to the best point of the searches before.",
    Stop.STALL: "Stopped: no improvement for {stall:,} generations (generation {generation:,}).",
    Stop.INTERRUPT: "Stopped by Ctrl-C after generation {generation:,}; this is the best result so far.",
    Stop.TIME: "Stopped: time limit ({seconds:g} s) reached after generation {generation:,}.",
    Stop.CALLBACK: "Stopped by the callback after generation {generation:,}.",
    Stop.PAGE: "Stopped from the live page after generation {generation:,}; this is the best result so far.",
    Stop.FAILURES: "Stopped: every evaluation failed (NaN, inf or an exception), so there is no best point. If only a "
    'small part of the box can be evaluated, pass on_failure="worst" to search for it.',
    Stop.WORKERS: "Stopped after generation {generation:,}: no workers are left; this is the best result so far.",
}

RUNNING = 0
STOP_CODES = {
    Stop.TARGET: 1,
    Stop.STALL: 2,
    Stop.TOLERANCE: 3,
    Stop.BUDGET: 4,
    Stop.ELSEWHERE: 5,
    Stop.KNOWN: 6,
}  # codes of a run's own rules on the device; RUNNING for none of them


def stop_from_code(code: int) -> Stop:
    """Return the reason of a code; the budget for a run that was still active."""
    return next((stop for stop, stop_code in STOP_CODES.items() if stop_code == code), Stop.BUDGET)


Limit = float | np.ndarray | Array  # as the user wrote it, on the host, or on the device


class Rules(NamedTuple):
    """The termination rules of a run. All are data, so that no rule changes the program."""

    generations: int | np.int32  # limit
    target: Limit  # stop once the best feasible value is at most this
    stall: int | np.int32  # stop after this many generations without a better value
    reference: Array | np.ndarray | None = None  # (m,): with several objectives better means more hypervolume up to it
    tolerance: Limit = 0.0  # stop a search whose population spans less than this share of the box; 0 for never
    evaluations: Limit | None = None  # limit, for algorithms whose generations take different numbers of evaluations
    known: Array | np.ndarray | None = None  # (R, 1 + d): value and x of each run's best so far, near which to stop

    def as_arrays(self, dtype: DTypeLike) -> Rules:
        reference = None if self.reference is None else np.asarray(self.reference, dtype)
        evaluations = None if self.evaluations is None else np.asarray(self.evaluations, dtype)
        return Rules(
            np.int32(self.generations),
            np.asarray(self.target, dtype),
            np.int32(self.stall),
            reference,
            np.asarray(self.tolerance, dtype),
            evaluations,
            None if self.known is None else np.asarray(self.known, dtype),
        )

    def of_runs(self, rows: slice | np.ndarray) -> Rules:
        """Return the rules of these runs, where some differ from run to run."""
        return self._replace(**{name: value[rows] for name, value in self.by_row().items()})

    def by_row(self) -> dict[str, Any]:
        """Return the rules that have a value for each run, by name."""
        fields = {"evaluations": self.evaluations, "known": self.known}
        return {name: value for name, value in fields.items() if np.ndim(value) > 0}  # type: ignore[arg-type]

    @property
    def by_run(self) -> bool:
        """Whether a run can end before the others of its batch."""
        by_value = self.target > -np.inf or int(self.stall) < UNLIMITED
        return bool(by_value or self.tolerance > 0 or self.evaluations is not None)
