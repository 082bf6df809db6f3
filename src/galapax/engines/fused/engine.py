"""The fused engine: a chunk of generations of independent runs is one kernel launch.

The number of generations is an argument of the kernel, so that chunks of any length share it; only the history rows
that the XLA program around it allocates come from a small set of sizes. A run that has ended leaves the kernel's loop.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import buffer_callback

from galapax.core.algorithm import estimate_cost
from galapax.core.evaluation import Population
from galapax.core.stability import experimental
from galapax.engines import search as searching
from galapax.engines.batch_checkpoint import restore_arrays
from galapax.engines.chunk_summary import summarize_chunk
from galapax.engines.fused import kernel as kernels
from galapax.engines.fused.cpu_kernel import CpuKernel
from galapax.engines.fused.cuda import CudaKernel, current_device
from galapax.engines.fused.generation_table import TABLE_GENERATIONS
from galapax.engines.fused.graph import NotFusible
from galapax.engines.fused.kernel import Layout, drop_previous_state
from galapax.engines.fused.kernel_source import KernelSource, LaunchShape
from galapax.engines.host_loop import Slice
from galapax.engines.programs import CompileTimer
from galapax.engines.search import Carry, Finished, Search
from galapax.engines.threads import map_on_threads
from galapax.numerics import devices
from galapax.numerics.transfers import device_put_cached

KERNEL_CHUNK_SECONDS = 0.1  # a chunk takes about so long, then the host polls its observers
MAX_KERNEL_CHUNK_SECONDS = 0.5  # or so long on a CPU, where a chunk would be shorter than the generation table
MAX_FIRST_CHUNK = 1000  # generations, so that observers see something of a short run
CPU_SHAPE = LaunchShape(for_cpu=True)
MAX_CACHED_KERNELS = 32
HISTORY_ROWS = (10, 100, 1000, 10_000, 40_000)  # sizes of the history that programs are compiled for
MAX_HISTORY_BYTES = 2**29  # of a chunk, on the device


class Kernel(Protocol):
    """Compiled code of a kernel, for a GPU or a CPU."""

    text: KernelSource

    def call(self, context: Any, outputs: list[Any], *inputs: Any) -> None:
        """Run the kernel; called by `jax.experimental.buffer_callback`."""


@lru_cache(maxsize=64)
def build_kernel(digest: str, text: KernelSource, for_cpu: bool) -> Kernel:
    """Compile the source of a kernel. digest: of the source, by which the cache knows it."""
    return CpuKernel(text) if for_cpu else CudaKernel(text)


_kernel_cache: OrderedDict[Hashable, Kernel | str] = OrderedDict()  # or why there is none; the latest last
_compile_locks: dict[Hashable, threading.Lock] = {}  # a second thread waits for a kernel instead of compiling it too


def compile_kernel(search: Search, runs: int, for_cpu: bool, clock: CompileTimer) -> Kernel:
    """Return the kernel for so many runs, or raise NotFusible. clock: measures the time, unless it was cached."""
    shape = CPU_SHAPE if for_cpu else current_device().choose_shape(_work_per_generation(search), runs)
    key = kernels.kernel_key(search), shape, for_cpu, devices.compile_settings()
    with _compile_locks.setdefault(key, threading.Lock()):
        kernel = _kernel_cache.pop(key, None)
        if kernel is None:
            start = clock.begin()
            try:
                text = kernels.generate_source(search, runs, shape)
                kernel = build_kernel(text.digest, text, for_cpu)
            except NotFusible as error:
                kernel = str(error)
            clock.end(start)
        _kernel_cache[key] = kernel
    if len(_kernel_cache) > MAX_CACHED_KERNELS:
        with contextlib.suppress(KeyError):
            _compile_locks.pop(_kernel_cache.popitem(last=False)[0])
    if isinstance(kernel, str):
        raise NotFusible(kernel)
    return kernel


def _work_per_generation(search: Search) -> int:
    """Return how many numbers a generation of a run computes, about."""
    dim = search.bounds.dim
    return max(search.algorithm.population * dim, estimate_cost(search.algorithm, dim))


Call = tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]  # a function, its static and its other arguments
Pace = tuple[int, float]  # generations of the last chunk, and its seconds
_paces: WeakKeyDictionary[Kernel, dict[int, Pace]] = WeakKeyDictionary()  # by number of runs


@experimental
class FusedEngine:
    """An Engine whose chunks are generated kernels.

    for_cpu: kernels for this machine's CPU instead of a GPU, where `threads` threads share the runs of a batch.
    """

    def __init__(
        self, search: Search, clock: CompileTimer, width: int, steps: int, for_cpu: bool = False, threads: int = 1
    ) -> None:
        self.clock, self.for_cpu, self.threads = clock, for_cpu, threads if for_cpu else 1
        row_bytes = search.columns.width * width * search.bounds.lower.dtype.itemsize
        history_bytes = min(MAX_HISTORY_BYTES, devices.free_memory() // 8)
        # on a CPU compiling another program takes longer than clearing some rows
        has_room = HISTORY_ROWS[1] * row_bytes <= history_bytes
        self.rows = HISTORY_ROWS[1:] if for_cpu and has_room else HISTORY_ROWS
        self.most = next((r for r in reversed(self.rows) if r * row_bytes <= history_bytes), HISTORY_ROWS[0])
        # estimated seconds of a generation, for the first chunk: barriers, latency of one run, throughput of all runs
        work = _work_per_generation(search)
        latency = work * (1e-8 if for_cpu else 1e-9 if width > 1 else 1e-10)
        throughput = width * work * (1e-8 if for_cpu else 1e-11)
        self.generation_seconds = (1 + steps) * (3e-6 + latency + throughput)
        self._kernels: dict[int, tuple[Kernel, Layout]] = {}  # by id of the batch
        self.paces, self.runs = dict[int, Pace](), 0  # of the current kernel, and how many runs it computes

    def begin(self, batches: list[Slice]) -> None:
        _transfer(batches)
        for batch in batches:
            batch.carry = self._call(_begin_program(batch))
            self._load_kernel(batch)

    def _load_kernel(self, batch: Slice) -> None:
        """Compile the kernel of a batch, whose carry is initialised, or take it from the cache."""
        assert batch.carry is not None
        kernel = compile_kernel(batch.search, len(batch.cells), self.for_cpu, self.clock)
        self._kernels[id(batch)] = kernel, kernels.find_layout(batch.search, batch.carry)

    def memory(self) -> Any:
        return None

    def restore(self, batches: list[Slice], carries: list[list[np.ndarray]]) -> None:
        self.begin(batches)
        for batch, arrays in zip(batches, carries, strict=True):
            batch.carry = restore_arrays(batch.carry, arrays)

    def pace(self, batches: list[Slice]) -> Pace:
        kernel, _ = self._kernels[id(batches[0])]
        self.paces, self.runs = _paces.setdefault(kernel, {}), sum(len(batch.cells) for batch in batches)
        return self.paces.get(self.runs, (0, 0.0))

    def plan(self, length: int, seconds: float) -> int:
        if length == 0:
            return max(1, min(self.most, MAX_FIRST_CHUNK, int(KERNEL_CHUNK_SECONDS / 4 / self.generation_seconds)))
        self.paces[self.runs] = length, seconds
        generation_seconds = max(seconds, 1e-9) / length
        target = KERNEL_CHUNK_SECONDS / generation_seconds
        if self.for_cpu:
            target = max(target, min(TABLE_GENERATIONS, MAX_KERNEL_CHUNK_SECONDS / generation_seconds))
        return max(1, min(self.most, 8 * length, int(target)))

    def advance(self, batches: list[Slice], first: int, count: int) -> list[list[Any]]:
        calls = [self._chunk_program(batch, first, count) for batch in batches]
        # on a CPU a second batch keeps the threads busy while the history of the first is summarised
        results = map_on_threads(min(2, self.threads), self._call, calls, "slices")
        for batch, (carry, history, _) in zip(batches, results, strict=True):
            batch.carry, batch.latest = carry, [history]
        return [[tally] for _, _, tally in results]

    def _chunk_program(self, batch: Slice, first: int, count: int) -> Call:
        """Return the call that computes a chunk of a batch, see `CompileTimer.program`."""
        rows = next(r for r in self.rows if r >= count)
        kernel, layout = self._kernels[id(batch)]
        if isinstance(kernel, CpuKernel):
            kernel.threads = self.threads
        span = np.array([first, count, rows, batch.wanted.max() + 1], np.int32)
        span, constants = device_put_cached((span, list(kernel.text.constants)))
        return _run_chunk, (kernel, layout, rows), (batch.search, batch.keys, batch.carry, span, constants)

    def finish(self, batches: list[Slice]) -> list[Finished]:
        return [self._call(_finish_program(batch)) for batch in batches]

    def _call(self, call: Call) -> Any:
        function, static, arguments = call
        return self.clock.call(function, static, *arguments)

    def survivors(self, batch: Slice) -> Population:
        return self.clock.call(searching.survivors, (), batch.carry)

    def precompile(self, batch: Slice) -> Iterator[None]:
        clock = CompileTimer(waits=False)
        _transfer([batch])
        program = clock.program(*_begin_program(batch))
        yield
        batch.carry = program.zeros_like_output()
        self._load_kernel(batch)
        clock.program(*self._chunk_program(batch, 0, self.plan(0, 0.0)))
        yield
        clock.program(*_finish_program(batch))


def _transfer(batches: list[Slice]) -> None:
    """Move what the batches share, and what each has for itself, onto the device in one transfer."""
    first = batches[0].search
    shared = first.bounds, first.rules, first.consts
    per_batch = [(b.search.algorithm, b.keys, b.initial, b.search.rules.evaluations) for b in batches]
    (bounds, rules, consts), per_batch = device_put_cached((shared, per_batch))
    for batch, (algorithm, keys, initial, evaluations) in zip(batches, per_batch, strict=True):
        batch.keys, batch.initial = keys, initial
        batch.search = replace(
            batch.search,
            algorithm=algorithm,
            bounds=bounds,
            rules=rules._replace(evaluations=evaluations),
            consts=consts,
        )


def _begin_program(batch: Slice) -> Call:
    """Return the call that initialises the carry of a batch."""
    return _init_carry, (), (batch.search, batch.keys, batch.initial)


def _finish_program(batch: Slice) -> Call:
    """Return the call that extracts the results of a batch, see `CompileTimer.program`."""
    return searching.finish, (batch.span,), (batch.search, batch.carry, device_put_cached(batch.relative))


def _init_carry(search: Search, keys: Array, initial: Array | None) -> Carry:
    return drop_previous_state(search.init_and_start(keys, initial))


def _run_chunk(
    kernel: Kernel,
    layout: Layout,
    rows: int,
    search: Search,
    keys: Array,
    carry: Carry,
    span: Array,
    constants: list[Array],
) -> tuple[Carry, Array, Array]:
    """Compute `span[1]` generations from number `span[0]` on: the new carry, their history and its summary."""
    leaves, structure = jax.tree.flatten(carry)
    runs, dtype = keys.shape[0], carry.state.candidates.dtype
    per_run = [i for i, is_per_run in enumerate(layout.carried) if is_per_run]
    shapes = [jax.ShapeDtypeStruct(leaves[i].shape, leaves[i].dtype) for i in per_run]
    history = jax.ShapeDtypeStruct((rows, search.columns.width, runs), dtype)
    scratch = jax.ShapeDtypeStruct((max(16, kernel.text.scratch_bytes * runs),), jnp.uint8)
    call = buffer_callback.buffer_callback(kernel.call, [*shapes, history, scratch])
    outputs = call(*jax.tree.leaves(search), *leaves, keys, span, *constants)
    for i, new in zip(per_run, outputs, strict=False):
        leaves[i] = new
    carry = jax.tree.unflatten(structure, leaves)
    return carry, *summarize_chunk(search, outputs[len(per_run)], span[1], carry)
