"""Executors for evaluations: one passed by the user, or a process pool that is created and closed here."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent import futures  # which loads its pools when they are asked for
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.core.options import Workers
from galapax.core.user_code import warn
from galapax.objective import worker

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
        """The threads of all workers that the scheduler knows; none while there is no contact to it."""
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
        """How many workers are alive now; None where the executor cannot tell, as with MPI."""
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

    def find_tasks_without_process(self) -> set[futures.Future[worker.TaskResult]]:
        """Tasks of Pebble whose process has exited with code 0, as STOP in Fortran does: Pebble takes that for a
        regular end and waits for their results.
        """
        manager: Any = getattr(self.executor, "_pool_manager", None)
        try:
            processes, tasks = manager.worker_manager.workers, manager.task_manager.tasks
            return {task.future for task in list(tasks.values()) if task.started and task.worker_id not in processes}
        except (AttributeError, RuntimeError):  # not Pebble's; RuntimeError: its threads changed them meanwhile
            return set()

    def submit(self, *task: object, limit: float | None = None) -> futures.Future[worker.TaskResult]:
        """Send a task to `worker.work`. limit: seconds after which a pool that can ends it."""
        if self.enforces_timeout:
            scheduled: futures.Future[worker.TaskResult] = self.executor.schedule(worker.work, args=task, timeout=limit)
            return scheduled
        submitted: futures.Future[worker.TaskResult] = self.executor.submit(worker.work, *task)
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
        return futures.ProcessPoolExecutor(count, mp_context=context, initializer=worker.prepare)
    return ProcessPool(max_workers=count, initializer=worker.prepare, context=context)


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
    """Block SIGINT while spawning workers; each unblocks it once its handler is installed, see `worker.prepare`."""
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
