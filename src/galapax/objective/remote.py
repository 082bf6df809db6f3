"""How long no worker has been alive, and when a run stops waiting for one."""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import pickle
import queue
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import BrokenExecutor
from typing import NamedTuple

import numpy as np

from galapax.core.checks import pluralize
from galapax.core.errors import InputError, warn
from galapax.core.options import Workers
from galapax.objective import pool
from galapax.objective.pool import CallOutcome, Failure, Functions, Pool, TaskResult

AUTO_WORKERS_TIMEOUT = 300.0  # seconds without a living worker, where the executor can tell
CHECK_SECONDS = 0.5  # between two looks at which workers are alive
QUIET_SECONDS = 5.0  # without a living worker, before somebody is told: one may be about to start again


class WorkerLiveness:
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
        """Note that a worker said something, or that its task ended."""
        self._had_workers, self._has_warned, self._last_sign = True, False, time.perf_counter()

    def is_due(self) -> bool:
        """Return whether it is time for another check."""
        now = time.perf_counter()
        if now < self._next_check:
            return False
        self._next_check = now + CHECK_SECONDS
        return True

    def check(self, n_alive: int | None, cause: str = "") -> str:
        """Return why to stop waiting for workers, "" to go on. n_alive: how many there are. cause: why there are none,
        if known.
        """
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
                warn(f"no worker is alive{because}. The run waits for one, {patience}.")
        return ""

    def _limit(self) -> float | None:
        """Seconds to wait for workers, None for ever."""
        if isinstance(self.timeout, str):
            return AUTO_WORKERS_TIMEOUT if self.n_alive is not None and self._had_workers else None
        return self.timeout


IN_CHUNKS, ONE_PER_TASK, ONE_AT_A_TIME = range(
    3
)  # how rows are sent: those whose pool broke next by themselves, then one at a time
MAX_TASK_SECONDS = 1.0  # seconds that a task of several rows should take at most
MAX_CRASHES_PER_ROW = 3  # pool crashes at which a streamed row may be present
MAX_FAILED_STARTS = 2  # pools that may break before the first answer
TIMEOUT_GRACE_SECONDS = 1.0  # seconds beyond the limit for a task to arrive, where nobody tells when it began
SLOW_CALLS_BEFORE_WARNING = 3  # calls whose time is compared with that of the functions
STARTUP_SECONDS = 60.0  # seconds beyond the limit for workers that may have to start first
RESTART_SECONDS, MAX_RESTART_SECONDS = 1.0, 30.0  # before a pool that could not start is started again; each doubles it


class Chunk(NamedTuple):
    """Rows for one task. payload: the functions, if they are sent along. sent: when, by time.perf_counter."""

    rows: list[int]
    payload: bytes | None = None
    sent: float = math.inf


class RemoteEvaluator:
    """Evaluates points by the workers of a pool. halt_reason: why it had to stop, empty if it has not."""

    def __init__(self, functions: Functions, workers: Workers) -> None:
        self.pool = Pool(workers)
        self.timeout = workers.timeout
        self.halt_reason = ""
        self._functions = functions
        self._key = uuid.uuid4().hex
        self._payload: bytes | None = None
        self._by_value = False  # pickled by cloudpickle
        self._serial = itertools.count()
        self._row_seconds = math.nan  # as measured in the last task
        self._met: set[int] = set()  # processes of this pool that ever said something
        self._started = False  # whether the pool's workers have all been there
        self._answered = False  # whether one ever evaluated something
        self._lost = 0  # pools or workers
        self._timed_out: list[futures.Future[TaskResult]] = []  # tasks that were given up and still hold a worker
        self._landed: queue.SimpleQueue[futures.Future[TaskResult]] = queue.SimpleQueue()
        self._waiting: deque[Chunk] = deque()
        self._flying: dict[futures.Future[TaskResult], Chunk] = {}
        self._retry_alone: list[Chunk] = []  # rows to be tried with more care
        self._seen_breaking: Counter[int] = Counter()
        self._points = np.zeros((0, 0))
        self._reached = 0  # so many of them were sent
        self._calls: list[CallOutcome | None] = []
        self._spent = 0.0  # seconds in the functions, of the last call
        self._unpaid: int | None = 0  # calls in which handing over took longer than that, or None if it pays
        self.liveness = WorkerLiveness(workers.workers_timeout)
        self._without_process: set[futures.Future[TaskResult]] = set()  # tasks whose process was gone at the last check
        self._restart_at: float | None = None  # when to start a pool again that could not start
        self._restart_pause = RESTART_SECONDS
        self._restart_error = ""
        pool.register_functions(self._key, functions)

    def _cancel_pending(self) -> None:
        """Cancel the tasks in flight and forget the waiting ones."""
        for future in self._flying:
            future.cancel()
        self._flying, self._waiting = {}, deque()

    def close(self) -> None:
        self._cancel_pending()
        pool.forget_functions(self._key)
        self.pool.close()

    def __call__(self, points: np.ndarray, late: Callable[[], bool]) -> list[CallOutcome | None]:
        """Evaluate points and return what came of them; None for those that were not reached once it was late."""
        self._cancel_pending()
        self._points, self._calls, self._reached = points, [None] * len(points), 0
        self._retry_alone = []
        self.liveness.reset()
        steady, start, self._spent = self._started, time.perf_counter(), 0.0
        try:
            for level in (IN_CHUNKS, ONE_PER_TASK, ONE_AT_A_TIME):
                self._waiting, self._retry_alone = deque(self._retry_alone), []
                self._run_level(level, late)
        finally:  # Ctrl-C, too
            self._cancel_pending()
        self._started = True
        if (
            steady
            and self._unpaid is not None
            and all(call is not None and isinstance(call.answer, dict) for call in self._calls)
        ):
            self._warn_if_slower(time.perf_counter() - start)
        return self._calls

    def _warn_if_slower(self, elapsed: float) -> None:
        """Say so where handing points over takes longer than evaluating them. Once is not enough: the machine may have
        been busy.
        """
        workers = min(self.pool.workers, len(self._points))
        overhead = elapsed - self._spent / workers
        self._unpaid = None if overhead <= self._spent or self._unpaid is None else self._unpaid + 1
        if self._unpaid == SLOW_CALLS_BEFORE_WARNING:
            self._unpaid = None
            warn(
                f"{workers} workers took {1e3 * elapsed:.2g} ms for a generation of {len(self._points)} points, and "
                f"evaluating them took {1e3 * self._spent:.2g} ms of it: the run is faster without workers: "
                "use blackbox=True alone."
            )

    def check_count(self, rows: int) -> None:
        """Say so where there are more workers than points of a generation."""
        if self.pool.workers > rows:
            warn(
                f"{self.pool.workers} workers evaluate {rows} points at a time, so some have nothing to do: give a "
                "larger population, more runs, or fewer workers."
            )

    @property
    def calls(self) -> list[CallOutcome | None]:
        """What has come so far of the points that are being evaluated."""
        return self._calls

    def start_stream(self, points: np.ndarray, n_sent: int) -> None:
        """Start evaluating the first of some points one by one as workers become free.

        `poll` returns results; `send` evaluates a row again, whose point may have changed.
        """
        self._points, self._calls, self._reached = points, [None] * len(points), len(points)
        self._waiting, self._retry_alone = deque(Chunk([row]) for row in range(n_sent)), []

    @property
    def under_way(self) -> list[int]:
        """The rows of points that workers have, or are sent again as their pool broke."""
        lost = [row for row, times in self._seen_breaking.items() if times]
        return lost + [row for chunk in (*self._flying.values(), *self._retry_alone) for row in chunk.rows]

    def send(self, row: int) -> None:
        self._waiting.append(Chunk([row]))

    def poll(self, late: Callable[[], bool], max_rows: int) -> list[tuple[int, CallOutcome]]:
        """Wait for rows of the stream that were evaluated, one to `max_rows`; none once it is late or halted."""
        self.liveness.reset()
        while not self.halt_reason:
            self._retry_crashed()
            self._restart_if_due()
            while (
                len(self._flying) < self._max_in_flight(ONE_PER_TASK)
                and not self.halt_reason
                and (chunk := self._next(ONE_PER_TASK))
            ):
                self._send(chunk)
            if not self._flying and not self.halt_reason and self._is_reachable:
                self.halt_reason = f"all workers have exceeded the limit of {self.timeout or 0:g} s for an evaluation"
            for future in self._wait_for_tasks():
                if future in self._flying:
                    self._process_result(future, self._flying.pop(future), ONE_PER_TASK)
            self._expire()
            self._check_workers()
            results = [(row, call) for row, call in enumerate(self._calls) if call is not None][:max_rows]
            for row, _ in results:
                self._calls[row] = None
                self._seen_breaking[row] = 0
            if results or late():
                return results
        return []

    def _retry_crashed(self) -> None:
        """Retry rows whose pool crashed; a row present at three crashes is blamed and marked failed."""
        chunks, self._retry_alone = self._retry_alone, []
        for chunk in chunks:
            row = chunk.rows[0]
            self._seen_breaking[row] += 1
            if self._seen_breaking[row] < MAX_CRASHES_PER_ROW:
                self._waiting.append(chunk)
            else:
                self._calls[row] = CallOutcome(Failure("the worker process was lost"))

    def chunk_size(self, n_remaining: int) -> int:
        """Return how many of the remaining rows the next task takes: fewer and fewer, so that the workers end together,
        but not so few that handing them over takes longer than the rest, nor so many that nobody looks at the clock.
        """
        if not self._row_seconds > 0:
            return 1  # an evaluation may take long: time the first before sending more
        min_rows = math.ceil(self.pool.task_seconds / self._row_seconds)
        limit = (
            MAX_TASK_SECONDS if self.timeout is None else min(MAX_TASK_SECONDS, self.timeout / 4)
        )  # it then holds for a whole task
        max_rows = max(1, int(limit / self._row_seconds))
        return min(max(min_rows, math.ceil(n_remaining / (2 * self.pool.workers))), max_rows, n_remaining)

    def _next(self, level: int) -> Chunk | None:
        """Return the next chunk to send."""
        if self._waiting:
            return self._waiting.popleft()
        n_remaining = len(self._points) - self._reached
        if level != IN_CHUNKS or not n_remaining:
            return None
        first, self._reached = self._reached, self._reached + self.chunk_size(n_remaining)
        return Chunk(list(range(first, self._reached)))

    def _run_level(self, level: int, late: Callable[[], bool]) -> None:
        """Send all waiting chunks at this level and process their results."""
        while not self.halt_reason:
            self._restart_if_due()
            while (
                len(self._flying) < self._max_in_flight(level) and not self.halt_reason and (chunk := self._next(level))
            ):
                self._send(chunk)
            if not self._flying and not self.halt_reason and self._is_reachable:
                if self._max_in_flight(level):
                    return
                self.halt_reason = f"all workers have exceeded the limit of {self.timeout:g} s for an evaluation"
            for future in self._wait_for_tasks():
                if future in self._flying:  # else it was lost with its pool
                    self._process_result(future, self._flying.pop(future), level)
            self._expire()
            self._check_workers()
            if late() and (self._answered or self.liveness.n_alive == 0):  # else there is something to wait for
                self._retry_alone = []
                return

    def _max_in_flight(self, level: int) -> int:
        """Return how many tasks may be in flight."""
        if not self._is_reachable:
            return 0
        if level == ONE_AT_A_TIME:
            return 1
        workers = self.pool.workers
        if level == IN_CHUNKS and (self.timeout is None or self.pool.enforces_timeout):
            return 2 * workers  # the next ones wait where the workers are
        self._timed_out = [future for future in self._timed_out if not future.done()]
        return max(0, workers - len(self._timed_out))

    def _send(self, chunk: Chunk) -> None:
        limit = self.timeout
        try:
            task = (self._key, chunk.payload, self._points[chunk.rows], next(self._serial))
            future = self.pool.submit(*task, limit=limit)
        except Exception as error:
            # RuntimeError: it was shut down; OSError: the system has no room for another process
            if not isinstance(error, BrokenExecutor | RuntimeError | OSError) and not self.pool.is_broken:
                raise
            self._waiting.appendleft(chunk)
            self._renew(error)
            return
        self._flying[future] = chunk._replace(sent=time.perf_counter())
        future.add_done_callback(self._landed.put)

    def _wait_for_tasks(self) -> list[futures.Future[TaskResult]]:
        """Wait up to 50 ms for a task to end; return those that have."""
        done = []
        try:
            done.append(self._landed.get(timeout=0.05))
            while True:
                done.append(self._landed.get_nowait())
        except queue.Empty:
            return done

    def _process_result(self, future: futures.Future[TaskResult], chunk: Chunk, level: int) -> None:
        """Store the answers of a finished task, or handle its failure."""
        try:
            task_result = future.result()
        except BrokenExecutor as error:  # and with it all tasks under way, one of which did it
            lost = [chunk, *self._flying.values()]
            never_started = not self._met  # a process that starts says first that it does not know the functions
            self._flying = {}
            self._renew(error)
            if never_started:
                self._waiting.extendleft(Chunk(other.rows) for other in reversed(lost))
            elif level == ONE_AT_A_TIME:
                self._calls[chunk.rows[0]] = CallOutcome(_crash_failure(error))
            else:
                self._retry_alone += [Chunk([row]) for other in lost for row in other.rows]
            return
        except (Exception, futures.CancelledError) as error:
            if isinstance(error, futures.CancelledError) and self.pool.is_dask:
                self._waiting.appendleft(chunk)  # a client that loses its scheduler cancels what it had sent
                return
            self.liveness.note_answer()  # of whoever saw the worker end
            if isinstance(error, futures.TimeoutError | TimeoutError):
                self._give_up(chunk, self._timeout_failure())
            else:
                self._note_loss(error)
                if (
                    level < ONE_AT_A_TIME and not self.pool.enforces_timeout
                ):  # it may have been beside the one that did it
                    self._retry_alone += [Chunk([row]) for row in chunk.rows]
                else:
                    self._give_up(chunk, _crash_failure(error))
            return
        self._met.add(task_result.process)
        self._lost, self._restart_pause, self._restart_error = 0, RESTART_SECONDS, ""
        self.liveness.note_answer()
        self._started |= os.getpid() in self._met or len(self._met) >= self.pool.workers
        if task_result.missing or task_result.unloadable:
            if task_result.missing or chunk.payload is self._payload:  # else they were made anew since
                self._load(task_result.unloadable)
            self._waiting.appendleft(chunk._replace(payload=self._payload))
            return
        self._answered = True
        seconds = sum(call.seconds for call in task_result.calls)
        self._spent += seconds
        self._row_seconds = seconds / len(chunk.rows)
        for row, call in zip(chunk.rows, task_result.calls, strict=True):
            self._calls[row] = call

    def _give_up(self, chunk: Chunk, failure: Failure) -> None:
        """Mark the row of a lost task as failed; the rows of a larger one are retried one per task."""
        if len(chunk.rows) == 1:
            self._calls[chunk.rows[0]] = CallOutcome(failure)
        else:
            self._retry_alone += [Chunk([row]) for row in chunk.rows]

    def _expire(self) -> None:
        """Give up tasks that exceed the timeout, where the pool does not enforce it."""
        if self.timeout is None or self.pool.enforces_timeout:
            return
        deadline = time.perf_counter() - self.timeout - (TIMEOUT_GRACE_SECONDS if self._started else STARTUP_SECONDS)
        expired = [future for future, chunk in self._flying.items() if chunk.sent < deadline]
        for future in expired:
            self._give_up(self._flying.pop(future), self._timeout_failure())
            if not future.cancel():
                self._timed_out.append(future)
        if expired and self._timed_out and self.pool.is_renewable:
            self._send_again()
            self._restart(TimeoutError("its workers hang"))

    def _send_again(self) -> None:
        """Queue all tasks in flight again, for another pool."""
        self._waiting.extendleft(self._flying.values())
        self._flying, self._timed_out = {}, []
        self._met, self._started = set(), False

    def _renew(self, error: BaseException) -> None:
        """Replace a broken pool; after a pause if it fails to start."""
        self._note_loss(error)
        self._send_again()
        if self._lost >= MAX_FAILED_STARTS:
            self._restart_later(error)
        else:
            self._restart(error)

    def _restart(self, error: BaseException) -> None:
        """Make the pool again. error: what became of the last one."""
        if not self.pool.is_renewable:
            self.halt_reason = (
                f"the executor is broken ({type(error).__name__}: {error}), and only one that is given as a function "
                "which makes it, workers=lambda: ..., can be made again"
            )
            return
        try:
            self.pool.renew()
        except Exception as failure:  # such as OSError: no memory, or too many processes
            if not self._answered:
                raise
            self._restart_later(failure)
        else:
            self._restart_at = None

    def _restart_later(self, error: BaseException) -> None:
        """Start the pool again after a pause, which is twice as long the next time."""
        self._restart_error = f"{type(error).__name__}: {error}"
        self._restart_at = time.perf_counter() + self._restart_pause
        self._restart_pause = min(2 * self._restart_pause, MAX_RESTART_SECONDS)

    def _restart_if_due(self) -> None:
        """Start a pool again whose pause is over."""
        if self._restart_at is not None and time.perf_counter() >= self._restart_at:
            self._restart(BrokenExecutor(self._restart_error))

    @property
    def _is_reachable(self) -> bool:
        """Whether there is a pool to which tasks can be sent now."""
        return self._restart_at is None and self.pool.is_reachable

    def _check_workers(self) -> None:
        """End the run once no worker has been alive for too long, and give up tasks whose process is gone."""
        if self.halt_reason or not self.liveness.is_due():
            return
        if self._restart_at is None and self.pool.is_broken:
            self._renew(BrokenExecutor("it has stopped"))
        self._give_up_tasks_without_process()
        n_alive = self.pool.count_alive() if self._restart_at is None else 0
        if self._lost >= MAX_FAILED_STARTS and self.pool.is_local:
            n_alive = 0  # processes that end as soon as they start
        if n_alive == 0:  # a task that nobody works on does not exceed its time limit
            now = time.perf_counter()
            self._flying = {future: chunk._replace(sent=now) for future, chunk in self._flying.items()}
        cause = f"the pool cannot start ({self._restart_error})" if self._restart_error else ""
        reason = self.liveness.check(n_alive, cause)
        if reason and not self.halt_reason:
            n_points = sum(len(chunk.rows) for chunk in (*self._flying.values(), *self._waiting, *self._retry_alone))
            n_points += len(self._points) - self._reached
            self.halt_reason = (
                f"{reason} while {pluralize(n_points, 'point')} waited{f', {cause}' if cause else ''}; with a "
                "checkpoint, resume=True continues the run once there are workers again"
            )

    def _give_up_tasks_without_process(self) -> None:
        """Tasks that the pool itself waits for in vain. Twice in a row: an answer may be on its way."""
        lost = self.pool.find_tasks_without_process() & self._flying.keys()
        for future in lost & self._without_process:
            self._give_up(self._flying.pop(future), Failure("the worker process was lost (it exited with code 0)"))
            future.cancel()  # else the pool would wait for it when it is closed
        self._without_process = lost

    def _note_loss(self, error: BaseException) -> None:
        """Raise if workers die before returning a first result (usually a missing `__main__` guard)."""
        self._lost += 1
        self._lost = 0 if self._met else self._lost
        if (
            self._lost >= MAX_FAILED_STARTS and self.pool.is_local and not self._answered
        ):  # else there is a result to keep
            raise InputError(
                f"the worker processes stop before they evaluate anything ({type(error).__name__}: {error}). In a "
                'script, put the call under `if __name__ == "__main__":`, because each process imports the '
                "script first."
            )

    def _load(self, error: str) -> None:
        """Pickle the functions for sending. error: why a worker could not load them as they were."""
        if error and (self._by_value or importlib.util.find_spec("cloudpickle") is None):
            raise InputError(
                f"a worker cannot load {_describe(self._functions)} ({error}): move the functions to a module that the "
                "workers can import" + ("." if self._by_value else ", or install cloudpickle (galapax[workers]).")
            )
        if self._payload is None or error:
            self._payload, self._by_value = pickle_functions(self._functions, by_value=bool(error))

    def _timeout_failure(self) -> Failure:
        return Failure(f"no answer within the limit of {self.timeout:g} s")


def pickle_functions(functions: Functions, by_value: bool) -> tuple[bytes, bool]:
    """Pickle functions; return the bytes, and whether cloudpickle was used (for lambdas and notebook functions)."""
    if not by_value:
        try:
            return pickle.dumps(tuple(functions)), False
        except Exception:
            pass
    try:
        import cloudpickle
    except ModuleNotFoundError:
        raise InputError(
            f"{_describe(functions)} cannot be pickled and sent to workers: define it with def at the top of a module, "
            "or install cloudpickle (galapax[workers]), which supports lambdas and functions defined in a notebook."
        ) from None
    try:
        return cloudpickle.dumps(tuple(functions)), True
    except Exception as error:
        raise InputError(
            f"{_describe(functions)} cannot be sent to workers: it contains an object that cannot be pickled ({error})."
        ) from error


def _describe(functions: Functions) -> str:
    """Name the functions, for a message."""
    named = (f"{name} ({getattr(f, '__qualname__', type(f).__name__)})" for name, f in functions.calls.items())
    return ", ".join(named)


def _crash_failure(error: BaseException) -> Failure:
    attempts = getattr(error, "allowed_failures", None)  # of Dask's KilledWorker
    if isinstance(attempts, int):
        return Failure(
            f"the worker process was lost ({type(error).__name__}: each of the {attempts + 1} workers that tried to "
            "evaluate it died)"
        )
    code = getattr(error, "exitcode", None)  # of Pebble's
    return Failure(
        f"the worker process was lost ({type(error).__name__}: {error}{f', exit code {code}' if code else ''})"
    )
