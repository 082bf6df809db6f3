"""How an ensemble is cut into slices, which threads compute them, and how much memory a task needs.

A task that does not fit into memory is refused before the run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import jax
import numpy as np

from galapax.core.algorithm import Algorithm, estimate_cost
from galapax.core.checks import abbreviate
from galapax.core.errors import InputError, OutOfMemory, format_bytes
from galapax.core.stop import UNLIMITED
from galapax.numerics import devices

if TYPE_CHECKING:
    from galapax.execution.task import Task


# numbers of one array of a slice on a CPU; fewer make XLA's fixed costs felt, more fall out of the innermost cache
MAX_CPU_SLICE_VALUES = 2**13
MAX_CPU_SLICE_RUNS = 64
# runs in a slice of native kernels; no powers of two, which caches cannot hold side by side
NATIVE_SLICE_RUNS = (48, 272, 1040, 4112)
MANY_SLICES, WIDER_FACTOR = 128, 4  # an ensemble of so many slices has fewer, wider ones: still enough for every core


def slice_width(algorithm: Algorithm, dim: int, runs: int, fit: int, native: bool = False) -> int:
    """Return how many runs a slice has.

    runs: of the ensemble. fit: how many fit into memory. native: whether C kernels compute them.
    """
    if native:
        return next(
            (n for n in NATIVE_SLICE_RUNS if n >= min(runs, NATIVE_SLICE_RUNS[-1]) and n <= fit),
            min(fit, NATIVE_SLICE_RUNS[-1]),
        )
    if devices.on_cpu():
        usual = 2 ** int(
            math.log2(max(1, min(MAX_CPU_SLICE_RUNS, MAX_CPU_SLICE_VALUES // estimate_cost(algorithm, dim))))
        )
        return (
            usual * WIDER_FACTOR if usual == MAX_CPU_SLICE_RUNS and runs >= MANY_SLICES * MAX_CPU_SLICE_RUNS else usual
        )
    slices = max(math.ceil(runs / fit), min(runs, len(devices.local_devices()) * devices.process_count()))
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


# bytes that a black box takes for each point: of a generation, for each of its variables, and in the cache. Resident
# memory grew by 1000 bytes a point of 2 variables and 2050 of 20, and by 490 a point in the cache.
BYTES_PER_POINT, BYTES_PER_VARIABLE, BYTES_PER_CACHED_POINT = 900, 60, 480

NEGLIGIBLE_SHARE = 0.05  # of the free memory: below it a coarse bound of the state's size is enough
# upper bounds of what an algorithm's state holds: arrays of a population, and square matrices of the variables
MAX_STATE_ARRAYS, MAX_STATE_MATRICES = 32, 16


def check_population(population: int | None, dim: int) -> None:
    """Refuse a population that does not fit into memory, before anything is allocated. None: it is chosen later."""
    if population is not None:
        runs_that_fit(8 * int(population) * dim, 0, population)  # candidates and parents, at the least


def check_memory(task: Task) -> int:
    """Return how many runs fit into memory at once; refuse a run, a history or snapshots that do not fit."""
    item_size = np.dtype(task.dtype).itemsize
    row_size = task.columns.width * item_size
    n_runs = int(NEGLIGIBLE_SHARE * devices.free_memory()) // (max_state_size(task) + 1024 * row_size)
    if n_runs < task.total:
        n_runs = runs_that_fit(_state_size(task), 1024 * row_size, task.population)
    if task.options.blackbox:
        n_runs = min(n_runs, _check_blackbox_memory(task))
    # a single run is often ended by hand
    if (
        task.options.keep.history
        and task.rules.generations != UNLIMITED
        and task.total > 1
        and task.options.max_seconds is None
    ):
        what = f"the history of {task.total} runs over {task.rules.generations} generations takes"
        _check_host_memory(
            what,
            task.total * int(task.rules.generations) * row_size,
            "keep=gx.Keep(history=False), or fewer runs or generations",
        )
    n_snapshots = sum(g <= int(task.rules.generations) for g in task.options.keep.snapshots)
    snapshot_size = task.total * task.population * (task.problem.dim + task.shape.objectives + 1) * item_size
    _check_host_memory(
        f"{n_snapshots} snapshots of {task.total} x {task.population} individuals take",
        n_snapshots * snapshot_size,
        "fewer of them",
    )
    return n_runs


def _check_blackbox_memory(task: Task) -> int:
    """Return how many runs of a black box fit into memory at once: each point of a generation is a Python object."""
    generation_size = task.population * (BYTES_PER_POINT + BYTES_PER_VARIABLE * task.problem.dim)
    _check_host_memory(
        f"the calls of one generation of {task.population} points take", generation_size, "a smaller population"
    )
    if task.options.workers.memoize and task.rules.generations != UNLIMITED and task.options.max_seconds is None:
        points = task.total * task.population * int(task.rules.generations)
        if task.problem.space is not None:
            points = int(min(points, task.problem.space.combinations))
        cache_size = points * (BYTES_PER_CACHED_POINT + 8 * task.problem.dim)
        _check_host_memory(
            f"a cache of {points} points takes",
            cache_size,
            "workers=gx.Workers(memoize=False), or fewer runs or generations",
        )
    return max(1, devices.host_memory() // (2 * generation_size))


def _check_host_memory(what: str, needed: int, instead: str) -> None:
    free = devices.host_memory()
    if needed > free:
        raise InputError(f"{what} {format_bytes(needed)} and {format_bytes(free)} of memory are free: use {instead}.")


def max_state_size(task: Task) -> int:
    """Return an upper bound of the bytes of a run's state, for any algorithm, without tracing it."""
    values = task.problem.dim + task.shape.objectives + task.shape.ineq + task.shape.eq + 8
    return 8 * (MAX_STATE_ARRAYS * int(task.population) * values + MAX_STATE_MATRICES * task.problem.dim**2)


_sizes: dict[Hashable, int] = {}


def _state_size(task: Task) -> int:
    """Return the bytes of a run's state, cached, since tracing it takes longer than a short run."""
    key = (jax.tree.structure(task.bound[0]), task.problem.dim, task.dtype, task.shape)
    if key not in _sizes:
        search = replace(task.of_cell(0).search(), per_run_stopping=True)
        state = jax.eval_shape(search.begin, jax.ShapeDtypeStruct((1, 2), np.uint32))
        _sizes[key] = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return _sizes[key]


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that the device has not enough memory.

    The needs of the objective are only known when it is compiled, and those of other processes never.
    """
    return isinstance(error, OutOfMemory) or "RESOURCE_EXHAUSTED" in str(error)


def out_of_memory_message(width: int, population: int, error: Exception, is_resumed: bool = False) -> str:
    """Return the message for slices of `width` runs that do not fit. is_resumed: they continue from a checkpoint."""
    what = "one run" if width == 1 else f"a slice of {width} runs"
    why, free = f" ({str(error).splitlines()[0][:200]})", devices.free_memory()
    if isinstance(error, OutOfMemory):
        why, free = f" It needs {format_bytes(error.needed)}.", error.free
    instead = "use a smaller population, or an objective that needs less memory"
    if width > 1:
        instead = f"use fewer runs than {width} at a time (runs=, or runs=range(0, 100)), or a smaller population"
    if is_resumed:  # in other slices its last bits would be others
        instead = "a checkpoint continues in slices as large as they were, so end other programs, or start again"
    return (
        f"{what} with a population of {population} does not fit into the {format_bytes(free)} that are free on the "
        f"{devices.default_device().device_kind}: {instead}.{why}"
    )
