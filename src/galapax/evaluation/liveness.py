"""How long no worker has been alive, and when a run stops waiting for one."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

AUTO_WORKERS_TIMEOUT = 300.0  # seconds without a living worker, where the executor can tell
CHECK_SECONDS = 0.5  # between two looks at which workers are alive
QUIET_SECONDS = 5.0  # without a living worker, before somebody is told: one may be about to start again


class Liveness:
    """Watches for how long no worker has been alive. A worker that evaluates for hours is alive.

    timeout: seconds without one after which `check` gives a reason to end the run, None for never. "auto": 300 s once
    there were workers, where the executor can tell; a queue may take hours to start the first one.
    n_alive: workers at the last check, None where the executor cannot tell. Then the time since the last answer counts.
    on_wait: called with the seconds for which no worker has been alive, again and again.
    """

    def __init__(self, timeout: float | str | None) -> None:
        self.timeout = timeout
        self.n_alive: int | None = None
        self.on_wait: Callable[[float], None] = lambda seconds: None
        self._last_sign = time.perf_counter()
        self._next_check = 0.0
        self._had_workers = False
        self._has_warned = False  # of the present wait

    def reset(self) -> None:
        """Start the clock: from now on workers have something to do."""
        self._last_sign = time.perf_counter()

    def note_answer(self) -> None:
        """A worker said something, or what it did ended."""
        self._had_workers, self._has_warned, self._last_sign = True, False, time.perf_counter()

    def is_due(self) -> bool:
        """Whether it is time for another check."""
        now = time.perf_counter()
        if now < self._next_check:
            return False
        self._next_check = now + CHECK_SECONDS
        return True

    def check(self, n_alive: int | None, cause: str = "") -> str:
        """Why to stop waiting for workers, if so. n_alive: how many there are. cause: why there are none, if known."""
        self.n_alive = n_alive
        if n_alive:
            self.note_answer()
            return ""
        limit, silence = self._limit(), time.perf_counter() - self._last_sign
        if limit is not None and silence >= limit:
            state = "has answered" if n_alive is None else "has been alive"
            return f"no worker {state} for {limit:g} s (workers_timeout)"
        if n_alive == 0 and silence >= QUIET_SECONDS:
            self.on_wait(silence)
            if not self._has_warned:
                self._has_warned = True
                patience = "until there is one" if limit is None else f"up to {limit:g} s (workers_timeout)"
                because = f": {cause}" if cause else ""
                warnings.warn(f"no worker is alive{because}. The run waits for one, {patience}.", stacklevel=2)
        return ""

    def _limit(self) -> float | None:
        """Seconds to wait for workers, None for ever."""
        if isinstance(self.timeout, str):
            return AUTO_WORKERS_TIMEOUT if self.n_alive is not None and self._had_workers else None
        return self.timeout
