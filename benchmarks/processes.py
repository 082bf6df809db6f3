"""Work spread over processes, each bound to a core of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def spread(function: Callable[..., Any], work: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[tuple[Any, Any]]:
    """(arguments, function(*arguments)) for all of `work`, begun in its order, as they are done."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    for core in cores():
        queue.put(core)
    with ProcessPoolExecutor(max(1, min(jobs, len(cores()), len(work))), context, _bind, (queue,)) as pool:
        left = {pool.submit(function, *arguments): arguments for arguments in work}
        while left:
            for done in wait(left, return_when=FIRST_COMPLETED).done:
                yield left.pop(done), done.result()


def _bind(queue: Any) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {queue.get()})
