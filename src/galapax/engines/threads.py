"""The threads that the slices of an ensemble run on.

XLA's own threads gain little on programs as small as a slice, and several programs side by side scale with the cores.
One program serves all slices, and no slice knows of another, so the number of threads changes no result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from galapax.numerics import devices

Item = TypeVar("Item")
Result = TypeVar("Result")
_lock = threading.Lock()
_pools: dict[tuple[str, int], ThreadPoolExecutor] = {}


def map_on_threads(
    count: int, work: Callable[[Item], Result], items: Iterable[Item], name: str = "galapax"
) -> list[Result]:
    """[work(item) for item in items], by at most `count` threads; the first error ends it. name: of the threads; work
    that calls this function, too, needs threads of another name, or all could wait for one that is free.
    """
    all_items = list(items)
    if count == 1 or len(all_items) < 2:
        return [work(item) for item in all_items]
    settings = devices.capture_jax_config()
    queue = iter(enumerate(all_items))
    results: dict[int, Result] = {}
    queue_lock, failed = threading.Lock(), threading.Event()

    def run_worker() -> None:
        with settings():
            while not failed.is_set():
                with queue_lock:
                    entry = next(queue, None)
                if entry is None:
                    return
                try:
                    results[entry[0]] = work(entry[1])
                except BaseException:
                    failed.set()
                    raise

    pool = _pool(name, count)
    futures = [pool.submit(run_worker) for _ in range(min(count, len(all_items)))]
    try:
        wait(futures)
    finally:
        failed.set()  # if Ctrl-C ended the wait
    for future in futures:
        future.result()
    return [results[i] for i in range(len(all_items))]


def _pool(name: str, count: int) -> ThreadPoolExecutor:
    """Kept, since starting threads takes longer than a short chunk does."""
    with _lock:
        if (name, count) not in _pools:
            _pools[name, count] = ThreadPoolExecutor(count, name)
        return _pools[name, count]
