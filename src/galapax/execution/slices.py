"""How an ensemble is cut into slices of one size, and the threads that compute them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from galapax.core.algorithm import Algorithm, estimate_cost
from galapax.core.checks import abbreviate
from galapax.core.errors import InputError, format_bytes
from galapax.numerics import devices, processes

# numbers of one array of a slice on a CPU; fewer make XLA's fixed costs felt, more fall out of the innermost cache
CACHED = 2**13
MOST = 64  # runs in a slice on a CPU
NATIVE = (
    48,
    272,
    1040,
    4112,
)  # runs in a slice of native kernels; no powers of two, which caches cannot hold side by side
MANY, WIDER = 128, 4  # an ensemble of so many slices has fewer, so many times as wide: still enough for every core


def width(algorithm: Algorithm, dim: int, runs: int, fit: int, native: bool = False) -> int:
    """Return how many runs a slice has.

    runs: of the ensemble. fit: how many fit into memory. native: whether C kernels compute them.
    """
    if native:
        return next((n for n in NATIVE if n >= min(runs, NATIVE[-1]) and n <= fit), min(fit, NATIVE[-1]))
    if devices.on_cpu():
        usual = 2 ** int(math.log2(max(1, min(MOST, CACHED // estimate_cost(algorithm, dim)))))
        return usual * WIDER if usual == MOST and runs >= MANY * MOST else usual
    slices = max(math.ceil(runs / fit), min(runs, len(devices.local_devices()) * processes.process_count()))
    return math.ceil(runs / slices)


def runs_that_fit(size: int, row: int, population: int) -> int:
    """Return how many runs fit into the free memory; refuse one that does not fit alone.

    size: bytes of a run's state. row: of its history in a chunk.
    """
    free = devices.free_memory()
    if size > free:
        raise InputError(
            f"one run with a population of {abbreviate(population)} needs at least {format_bytes(size)} and "
            f"{format_bytes(free)} are free on the {devices.default_device().device_kind}: use a smaller population."
        )
    return max(1, int(0.5 * free / (2 * size + row)))  # twice the state for what a generation needs besides it


Item = TypeVar("Item")
Result = TypeVar("Result")
_lock = threading.Lock()
_pools: dict[tuple[str, int], ThreadPoolExecutor] = {}


def map_on_threads(
    count: int, work: Callable[[Item], Result], items: Iterable[Item], name: str = "galapax"
) -> list[Result]:
    """Return [work(item) for item in items], computed by at most `count` threads; the first error ends it.

    name: of the thread pool. Work that calls this function needs a pool of another name, or all threads could wait.
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
    """Return a thread pool, which is kept: starting threads takes longer than a short chunk."""
    with _lock:
        if (name, count) not in _pools:
            _pools[name, count] = ThreadPoolExecutor(count, name)
        return _pools[name, count]
