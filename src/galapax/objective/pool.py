"""Executors for evaluations, and the calls of the user's functions that their processes make.

An executor is passed by the user, or is a process pool that is created and closed here. The functions are sent once to
each worker and kept there by a key; a task brings the key and some rows. A worker that does not know the key says so,
and is sent the functions with the rows.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures  # which loads its pools when they are asked for
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, NamedTuple

import jax
import numpy as np

from galapax.core.checks import abbreviate, as_float_array
from galapax.core.errors import InputError, describe_traceback, warn
from galapax.core.options import Workers
from galapax.core.problem import OUTPUT_NAMES, Evaluation

MAX_FUNCTIONS_IN_WORKER = 8  # each entry holds the functions of one run


class Failure(NamedTuple):
    """Why a point has no values. odd: what came is nothing that a black box may return, rather than bad luck.
    sizes: how many numbers came by which name, if they did and were not finite.
    traceback: the user's lines, where a function raised an exception. location: the last of them, in a few words.
    is_penalty: the function returned an infinite value, which is how many write a penalty.
    """

    error: str
    odd: bool = False
    sizes: tuple[tuple[str, int], ...] = ()
    cause: Exception | SystemExit | None = None  # in this process
    traceback: str = ""
    location: str = ""
    is_penalty: bool = False


Answer = dict[str, np.ndarray] | Failure  # of one point: the numbers by name ("fun", "ineq", "eq")


class CallOutcome(NamedTuple):
    """An evaluation of one point. seconds: in the functions. process: that made it, None if it was lost."""

    answer: Answer
    seconds: float = math.nan
    process: int | None = None


class Functions(NamedTuple):
    """The functions of a problem. vectorized: they take several points (n, d) at once."""

    calls: dict[str, Callable[..., object]]
    vectorized: bool = False


class TaskResult(NamedTuple):
    """The result of a task.

    process: that did it. missing: the worker does not know the functions. unloadable: what went wrong when it tried to
    load them.
    """

    calls: list[CallOutcome]
    process: int
    missing: bool = False
    unloadable: str = ""


_functions: dict[str, Functions] = {}


def register_functions(key: str, functions: Functions) -> None:
    """Register functions in this process, where threads find them without pickling."""
    _functions[key] = functions
    while len(_functions) > MAX_FUNCTIONS_IN_WORKER:
        del _functions[next(iter(_functions))]


def forget_functions(key: str) -> None:
    _functions.pop(key, None)


def prepare() -> None:
    """In a worker process that we started: leave the accelerator alone, and Ctrl-C to the process that waits."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    jax.config.update("jax_platforms", "cpu")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def work(key: str, payload: bytes | None, rows: np.ndarray, serial: int) -> TaskResult:
    """Evaluate the rows of a task. serial: makes tasks distinct, since some schedulers compute equal ones once."""
    if key not in _functions:
        if payload is None:
            return TaskResult([], os.getpid(), missing=True)
        try:
            register_functions(key, Functions(*pickle.loads(payload)))
        except Exception as error:
            return TaskResult([], os.getpid(), unloadable=f"{type(error).__name__}: {error}")
    calls = call_functions(_functions[key], rows)
    # an exception may hold what cannot be pickled
    return TaskResult([call._replace(answer=_without_cause(call.answer)) for call in calls], os.getpid())


def _without_cause(answer: Answer) -> Answer:
    return answer._replace(cause=None) if isinstance(answer, Failure) else answer


def call_functions(functions: Functions, points: np.ndarray) -> list[CallOutcome]:
    """Evaluate points (n, d) in this process."""
    if not functions.vectorized:
        return [call_point(functions.calls, x) for x in points]
    start = time.perf_counter()
    answers = evaluate_vectorized(functions.calls, points)
    seconds = (time.perf_counter() - start) / max(1, len(points))
    return [CallOutcome(answer, seconds, os.getpid()) for answer in answers]


def call_point(calls: Mapping[str, Callable[..., object]], x: np.ndarray) -> CallOutcome:
    """Evaluate one point (d,) in this process."""
    start = time.perf_counter()
    answer = evaluate_point(calls, x)
    return CallOutcome(answer, time.perf_counter() - start, os.getpid())


def evaluate_point(calls: Mapping[str, Callable[..., object]], x: np.ndarray) -> Answer:
    """Evaluate one point (d,) by calling the functions."""
    answer: dict[str, np.ndarray] = {}
    failure: Failure | None = None
    for name, function in calls.items():
        try:
            value = function(x.copy())
        except (Exception, SystemExit) as error:  # a program that is called as a function may want to exit
            return _exception_failure(name, error)
        values = _split_values(name, value, calls)
        if isinstance(values, Failure):
            return values
        for key, raw in values:
            numbers = _parse_point(key, raw)
            if not isinstance(numbers, Failure):
                answer[key] = numbers
            elif numbers.odd:
                return numbers
            else:  # what else came back says how many numbers there are
                sizes = numbers.sizes if failure is None else (*failure.sizes, *numbers.sizes)
                failure = (failure or numbers)._replace(sizes=sizes)
        if failure is not None:
            return failure._replace(sizes=(*((key, values.size) for key, values in answer.items()), *failure.sizes))
    return answer


def evaluate_vectorized(calls: Mapping[str, Callable[..., object]], points: np.ndarray) -> list[Answer]:
    """Evaluate points (n, d) by one call of each vectorized function."""
    columns: dict[str, np.ndarray] = {}
    failures: dict[int, Failure] = {}
    for name, function in calls.items():
        try:
            value = function(points.copy())
        except (Exception, SystemExit) as error:
            return [_exception_failure(name, error)] * len(points)
        values = _split_values(name, value, calls)
        if isinstance(values, Failure):
            return [values] * len(points)
        for key, raw in values:
            rows = _parse_points(key, raw, points)
            if isinstance(rows, Failure):
                return [rows] * len(points)
            columns[key] = rows
            for i in np.flatnonzero(~_is_usable(key, rows)):
                failures.setdefault(int(i), _non_finite_failure(key, rows[i]))
    return [failures.get(i) or {name: rows[i] for name, rows in columns.items()} for i in range(len(points))]


def _exception_failure(name: str, error: Exception | SystemExit) -> Failure:
    try:
        text = str(error)
    except Exception:  # of a class that somebody wrote
        text = "an exception without a text"
    trace, location = describe_traceback(error)
    return Failure(f"{name} raised {type(error).__name__}: {text}", cause=error, traceback=trace, location=location)


def _split_values(name: str, value: Any, calls: Mapping[str, object]) -> Sequence[tuple[str, object]] | Failure:
    """Split a returned value by name: fun may return objective and constraints together."""
    if isinstance(value, Evaluation):
        value = value._asdict()
    try:
        value = dict(value) if name == "fun" and isinstance(value, Mapping) else value
    except Exception as error:  # of a class that somebody wrote
        return _exception_failure(name, error)
    if name != "fun" or not isinstance(value, dict) or "fun" not in value:
        return ((name, value),)
    entries = [(key, raw) for key, raw in value.items() if raw is not None or key == "fun"]
    for key, _ in entries:
        if key not in OUTPUT_NAMES:
            return Failure(f'fun returned a dict with {key!r}; it may have "fun", "ineq" and "eq".', odd=True)
        if key != "fun" and key in calls:
            return Failure(
                f"fun returned {key}, and a function {key} was given as well: give only one of them.", odd=True
            )
    return entries


def _parse_point(name: str, value: object) -> np.ndarray | Failure:
    """Convert the value of one point to an array (k,), or return a Failure."""
    if isinstance(value, float) and math.isfinite(value):  # NumPy's float64 is one; the usual case, quickly
        return np.array([value])
    if np.ma.is_masked(value):
        return Failure(f"{name} returned a masked value: {abbreviate(value)}", odd=True)
    try:
        numbers = as_float_array(value)
    except ValueError:
        return _type_failure(name, value)
    if numbers.ndim > 1 or numbers.size == 0:
        return Failure(f"{name} of one solution must return a number or a vector; got shape {numbers.shape}.", odd=True)
    numbers = numbers.ravel()
    return numbers if _is_usable(name, numbers[None])[0] else _non_finite_failure(name, numbers)


def _parse_points(name: str, value: object, points: np.ndarray) -> np.ndarray | Failure:
    """Convert the values of several points to an array (n, k), or return a Failure."""
    try:
        values = as_float_array(value)  # masked entries are NaN
    except ValueError:
        return _type_failure(name, value)
    if values.ndim not in (1, 2) or len(values) != len(points) or not values.size:
        return Failure(
            f"{name} with vectorized=True is given x of shape {points.shape} and must return {len(points)} values, "
            f"shape (n,) or (n, m); it returned shape {values.shape}.",
            odd=True,
        )
    return values.reshape(len(points), -1)


def _is_usable(name: str, rows: np.ndarray) -> np.ndarray:
    """Return which rows (n, k) have usable values: finite, or -inf for an inequality, which is satisfied."""
    return (np.isfinite(rows) | ((name == "ineq") & (rows == -np.inf))).all(axis=1)


def _non_finite_failure(name: str, numbers: np.ndarray) -> Failure:
    is_penalty = bool(np.isinf(numbers).any() and not np.isnan(numbers).any())
    return Failure(f"{name} returned {_format_numbers(numbers)}", sizes=((name, numbers.size),), is_penalty=is_penalty)


def _format_numbers(numbers: np.ndarray) -> str:
    return f"{numbers[0]:g}" if numbers.size == 1 else abbreviate([float(v) for v in numbers])


def _type_failure(name: str, value: object) -> Failure:
    hint = " (is the `return` missing?)" if value is None else ""
    if isinstance(value, Mapping):
        hint = " (several objectives are a list; a dict has fun, and ineq and eq if there are constraints)"
    what = "a number or a vector of real numbers"
    return Failure(f"{name} must return {what}; it returned {abbreviate(value)}{hint}.", odd=True)


MIN_LOCAL_TASK_SECONDS, MIN_REMOTE_TASK_SECONDS = (
    0.01,
    0.1,
)  # seconds that a task should take at least: 20 times what handing it over takes


class Pool:
    """An executor, and how to create it again after a crash.

    enforces_timeout: whether it ends tasks that take too long by itself.
    is_owned: whether it was made here, and is closed here.
    """

    def __init__(self, workers: Workers) -> None:
        self._make_executor, user_executor = _executor_factory(workers)
        self._user_executor = user_executor
        self.executor: Any = user_executor if user_executor is not None else self._make_executor()  # type: ignore[misc]

    @property
    def is_owned(self) -> bool:
        return self.executor is not self._user_executor

    @property
    def enforces_timeout(self) -> bool:
        return hasattr(self.executor, "schedule")  # Pebble's

    @property
    def is_local(self) -> bool:
        """Whether tasks stay on this machine."""
        return self.enforces_timeout or isinstance(
            self.executor, futures.ProcessPoolExecutor | futures.ThreadPoolExecutor
        )

    @property
    def task_seconds(self) -> float:
        return MIN_LOCAL_TASK_SECONDS if self.is_local else MIN_REMOTE_TASK_SECONDS

    @property
    def workers(self) -> int:
        """How many tasks run at once, now; a cluster may grow."""
        if self._client is not None:
            return max(1, self._count_dask_threads())
        context = getattr(self.executor, "_context", None)  # Pebble's
        for holder, name in ((context, "workers"), (self.executor, "_max_workers"), (self.executor, "num_workers")):
            count = getattr(holder, name, None)
            if isinstance(count, int) and count > 0:
                return count
        return os.cpu_count() or 1

    @property
    def _client(self) -> Any:
        """Dask's, if the executor is one of Dask's."""
        client: Any = getattr(self.executor, "_client", None)
        return client if hasattr(client, "nthreads") else None

    @property
    def is_dask(self) -> bool:
        return self._client is not None

    def _count_dask_threads(self) -> int:
        """Return the threads of all workers that the scheduler knows; none while there is no contact to it."""
        if not self.is_reachable:
            return 0
        try:
            return sum(self._client.nthreads().values())
        except (OSError, AttributeError, RuntimeError):  # the scheduler has just left, or the client was closed
            return 0

    @property
    def is_reachable(self) -> bool:
        """Whether tasks can be sent now: a client of Dask that has lost its scheduler tries to connect again."""
        return not self.is_dask or getattr(self._client, "status", "running") == "running"

    @property
    def is_broken(self) -> bool:
        """Whether it will never do a task again, though its tasks may not say so."""
        if self.is_dask:
            return getattr(self._client, "status", "running") == "closed"
        return self.enforces_timeout and not getattr(self.executor, "active", True)

    def count_alive(self) -> int | None:
        """Return how many workers are alive now; None where the executor cannot tell, as with MPI."""
        if self.is_dask:
            return self._count_dask_threads()
        if self.is_broken:
            return 0
        if self.enforces_timeout or isinstance(self.executor, futures.ThreadPoolExecutor):
            return self.workers  # Pebble replaces processes by itself, and threads do not die
        processes = getattr(self.executor, "_processes", None)
        if not isinstance(processes, dict):
            return None
        try:
            sentinels = [process.sentinel for process in list(processes.values())]
            return len(sentinels) - len(connection.wait(sentinels, timeout=0))
        except (AttributeError, OSError, ValueError):  # one was closed meanwhile, or they are of another kind
            return None

    def find_tasks_without_process(self) -> set[futures.Future[TaskResult]]:
        """Tasks of Pebble whose process has exited with code 0, as STOP in Fortran does: Pebble takes that for a
        regular end and waits for their results.
        """
        manager: Any = getattr(self.executor, "_pool_manager", None)
        try:
            processes, tasks = manager.worker_manager.workers, manager.task_manager.tasks
            return {task.future for task in list(tasks.values()) if task.started and task.worker_id not in processes}
        except (AttributeError, RuntimeError):  # not Pebble's; RuntimeError: its threads changed them meanwhile
            return set()

    def submit(self, *task: object, limit: float | None = None) -> futures.Future[TaskResult]:
        """Send a task to `work`. limit: seconds after which a pool that can ends it."""
        if self.enforces_timeout:
            scheduled: futures.Future[TaskResult] = self.executor.schedule(work, args=task, timeout=limit)
            return scheduled
        submitted: futures.Future[TaskResult] = self.executor.submit(work, *task)
        return submitted

    @property
    def is_renewable(self) -> bool:
        """Whether it is known how to make another executor of this kind."""
        return self._make_executor is not None

    def renew(self) -> None:
        """Make another executor in place of one that broke or hangs."""
        assert self._make_executor is not None
        if self.is_owned or isinstance(
            self.executor, futures.ProcessPoolExecutor
        ):  # a broken or hanging one serves nobody else
            _terminate(self.executor)
        self.executor = self._make_executor()

    def close(self) -> None:
        if self.is_owned:
            _terminate(self.executor)


def _executor_factory(workers: Workers) -> tuple[Callable[[], Any] | None, Any]:
    """Return a function that creates the executor, if known, and the executor of the user, if there is one."""
    if workers.processes is not None:
        count = os.cpu_count() or 1 if workers.processes == -1 else workers.processes
        return (lambda: _start_processes(count)), None
    executor = workers.executor
    if isinstance(executor, type) or not hasattr(executor, "submit"):  # a class makes executors, too
        return (lambda: _as_executor(executor())), None
    executor = _as_executor(executor)
    if type(executor) is futures.ThreadPoolExecutor:
        return (lambda: futures.ThreadPoolExecutor(executor._max_workers)), executor
    if type(executor) is futures.ProcessPoolExecutor:
        size: int | None = getattr(executor, "_max_workers", None)
        settings: dict[str, Any] = {
            "mp_context": getattr(executor, "_mp_context", None),
            "initializer": getattr(executor, "_initializer", None),
            "initargs": getattr(executor, "_initargs", ()),
        }
        return (lambda: futures.ProcessPoolExecutor(size, **settings)), executor
    return None, executor


def _as_executor(executor: object) -> Any:
    """Return the executor of a Dask client, or the executor itself; warn of one that forks."""
    if hasattr(executor, "get_executor"):
        return executor.get_executor(pure=False)
    if not hasattr(executor, "submit"):
        raise InputError(
            f"executor is a function that must return an executor with a submit method; it returned "
            f"{abbreviate(executor)}."
        )
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        warn(
            "the executor forks its processes, which can hang because JAX uses threads: create it with "
            'mp_context=multiprocessing.get_context("spawn"), or give workers=N.'
        )
    return executor


def _start_processes(count: int) -> Any:
    """Start a process pool: Pebble's if installed, which can kill and replace single processes."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # its script makes workers without a guard
        raise InputError('a worker process cannot start workers: put the call under `if __name__ == "__main__":`.')
    context = _Context()
    try:
        from pebble import ProcessPool
    except ModuleNotFoundError:
        return futures.ProcessPoolExecutor(count, mp_context=context, initializer=prepare)
    return ProcessPool(max_workers=count, initializer=prepare, context=context)


def _terminate(executor: Any) -> None:
    """Terminate an executor at once, with its running tasks."""
    if hasattr(executor, "schedule"):
        executor.stop()
        executor.join()
        return
    for process in list((getattr(executor, "_processes", None) or {}).values()):
        process.kill()
    if isinstance(executor, futures.ProcessPoolExecutor | futures.ThreadPoolExecutor):
        executor.shutdown(wait=isinstance(executor, futures.ProcessPoolExecutor), cancel_futures=True)
    elif hasattr(executor, "shutdown"):
        executor.shutdown(wait=False)


_environment = threading.Lock()


@contextmanager
def _without_accelerator() -> Iterator[None]:
    """Set JAX_PLATFORMS=cpu while spawning workers: their first imports may already query JAX for its devices."""
    with _environment:
        before = os.environ.get("JAX_PLATFORMS")
        os.environ["JAX_PLATFORMS"] = "cpu"
        try:
            yield
        finally:
            if before is None:
                del os.environ["JAX_PLATFORMS"]
            else:
                os.environ["JAX_PLATFORMS"] = before


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Block SIGINT while spawning workers; each unblocks it once its handler is installed, see `prepare`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Process(SpawnProcess):
    def start(self) -> None:
        with _without_accelerator(), _sigint_blocked():
            super().start()


class _Context(SpawnContext):
    """Processes that are spawned, never forked: a fork beside the threads of JAX can hang."""

    Process = _Process
