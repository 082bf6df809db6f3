"""The backend of fused kernels: a chunk of generations of independent runs is one kernel launch.

The number of generations is an argument of the kernel, so that chunks of any length share it; only the history rows
that the XLA program around it allocates come from a small set of sizes. A run that has ended leaves the kernel's loop.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import buffer_callback

from galapax.core.algorithm import estimate_cost
from galapax.core.errors import experimental
from galapax.execution.compiled import Pace
from galapax.execution.host_loop import Slice
from galapax.execution.search import REASON, Carry, Search
from galapax.execution.state import summarize_chunk
from galapax.fused import kernel as kernels
from galapax.fused.array_ir import NotFusible
from galapax.fused.cpu_kernel import CpuKernel, describe_compiler
from galapax.fused.cuda import CudaKernel, current_device
from galapax.fused.element_codegen import TABLE_GENERATIONS
from galapax.fused.kernel import Layout, drop_previous_state
from galapax.fused.kernel_source import KernelSource, LaunchShape
from galapax.numerics import compile_cache, devices, disk_cache, random
from galapax.numerics.compile_cache import CompileTimer, ProgramCall
from galapax.numerics.devices import device_put_cached, map_on_threads

KERNEL_CHUNK_SECONDS = 0.1  # a chunk takes about so long, then the host polls its observers
MAX_KERNEL_CHUNK_SECONDS = 0.5  # or so long on a CPU, where a chunk would be shorter than the generation table
MAX_FIRST_CHUNK = 1000  # generations, so that observers see something of a short run
CPU_SHAPE = LaunchShape(for_cpu=True)
MAX_CACHED_KERNELS = 32
CHECKED_GENERATIONS = 3  # by which a kernel for a CPU is compared with XLA
MIN_AGREEMENT = 0.5  # of the numbers of a generation; 0.72 was the least where ties were decided by rounding
MIN_CHECKED_ARRAY = 64  # smaller arrays are compared together
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
                if isinstance(kernel, CpuKernel):
                    check_kernel(kernel, search)
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


def check_kernel(kernel: CpuKernel, search: Search) -> None:
    """Refuse machine code whose first generations are not XLA's: C compilers miscompile some loops.

    Of one run, each from the state that XLA computed; once for each kernel and compiler, as the disk cache keeps the
    outcome. Some individuals may differ, since rounding decides between almost equal ones.
    """
    name = disk_cache.key_of("checked", kernel.text.digest, describe_compiler())
    if CHECKED_GENERATIONS == 0 or disk_cache.load_value(name, "kernel"):
        return
    search, keys = kernels.select_first_run(search), random.run_keys(0, 0, 1)
    carry = compile_cache.call(_init_carry, (), search, keys, None)
    per_run = kernels.find_layout(search, carry).carried
    for number in range(CHECKED_GENERATIONS):
        if carry.stop_state is not None and _reason(carry):
            break
        inputs = (*jax.tree.leaves(search), *jax.tree.leaves(carry), keys, np.array([number, 1, 1, 1], np.int32))
        carry, row = compile_cache.call(kernels.run_generation, (), search, carry, keys, np.int32(number))
        expected = [np.asarray(a) for a, varies in zip(jax.tree.leaves(carry), per_run, strict=True) if varies]
        expected.append(np.asarray(row)[None])
        outputs = [np.empty_like(a) for a in expected]
        kernel([np.ascontiguousarray(np.asarray(a)) for a in inputs], outputs)
        agreement = min(_count_equal(a, b) / a.size for a, b in _pair_arrays(outputs, expected))
        if agreement < MIN_AGREEMENT:
            raise NotFusible(
                f"what the C compiler built computes something else than XLA ({agreement:.0%} of the numbers agree "
                "after a generation); another compiler, or a newer one, may do better"
            )
    disk_cache.save_value(name, "kernel", True)


def _reason(carry: Carry) -> int:
    """Return the termination code of the only run."""
    assert carry.stop_state is not None
    return int(np.asarray(carry.stop_state.stop_columns)[0, REASON])


def _pair_arrays(outputs: list[np.ndarray], expected: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pair the arrays of two computations; all small ones are one pair."""
    is_large = [a.size >= MIN_CHECKED_ARRAY for a in outputs]
    pairs = [(a, b) for a, b, large in zip(outputs, expected, is_large, strict=True) if large]
    small = [
        np.concatenate([np.ravel(a).astype(float) for a, large in zip(arrays, is_large, strict=True) if not large])
        for arrays in (outputs, expected)
        if not all(is_large)
    ]
    return [*pairs, (small[0], small[1])] if small else pairs


def _count_equal(a: np.ndarray, b: np.ndarray) -> int:
    """Count the numbers that agree up to rounding, relative to the largest of the array."""
    if a.dtype.kind != "f":
        return int((a == b).sum())
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 1.0
    tolerance = 1e-3 if a.dtype == np.float32 else 1e-6
    return int(np.isclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True).sum())


def _work_per_generation(search: Search) -> int:
    """Return how many numbers a generation of a run computes, about."""
    dim = search.bounds.dim
    return max(search.algorithm.population * dim, estimate_cost(search.algorithm, dim))


_paces: WeakKeyDictionary[Kernel, dict[int, Pace]] = WeakKeyDictionary()  # by number of runs


@experimental
class KernelBackend:
    """Computes chunks by kernels of the fused compiler, for a GPU or a CPU.

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
        self.max_generations = next((r for r in reversed(self.rows) if r * row_bytes <= history_bytes), HISTORY_ROWS[0])
        # estimated seconds of a generation, for the first chunk: barriers, latency of one run, throughput of all runs
        work = _work_per_generation(search)
        latency = work * (1e-8 if for_cpu else 1e-9 if width > 1 else 1e-10)
        throughput = width * work * (1e-8 if for_cpu else 1e-11)
        self.generation_seconds = (1 + steps) * (3e-6 + latency + throughput)
        self._kernels: dict[int, tuple[Kernel, Layout]] = {}  # by id of the batch
        self.paces, self.runs = dict[int, Pace](), 0  # of the current kernel, and how many runs it computes

    def assign_devices(self, batches: list[Slice]) -> None:
        """Leave all slices on the default device."""

    def can_precompile(self, batch: Slice) -> bool:
        return True

    def init_program(self, batch: Slice) -> ProgramCall:
        return ProgramCall(_init_carry, (), (batch.search, batch.keys, batch.initial))

    def load(self, batch: Slice) -> None:
        """Compile the kernel of a slice, whose carry is initialised, or take it from the cache."""
        assert batch.carry is not None
        kernel = compile_kernel(batch.search, len(batch.cells), self.for_cpu, self.clock)
        self._kernels[id(batch)] = kernel, kernels.find_layout(batch.search, batch.carry)

    def precompile_chunk(self, batch: Slice, clock: CompileTimer) -> Iterator[None]:
        clock.program(self._chunk(batch, 0, self.plan(0, 0.0)))
        yield

    def pace(self, batches: list[Slice]) -> Pace:
        kernel, _ = self._kernels[id(batches[0])]
        self.paces, self.runs = _paces.setdefault(kernel, {}), sum(len(batch.cells) for batch in batches)
        return self.paces.get(self.runs, (0, 0.0))

    def plan(self, length: int, seconds: float) -> int:
        if length == 0:
            first = int(KERNEL_CHUNK_SECONDS / 4 / self.generation_seconds)
            return max(1, min(self.max_generations, MAX_FIRST_CHUNK, first))
        self.paces[self.runs] = length, seconds
        generation_seconds = max(seconds, 1e-9) / length
        target = KERNEL_CHUNK_SECONDS / generation_seconds
        if self.for_cpu:
            target = max(target, min(TABLE_GENERATIONS, MAX_KERNEL_CHUNK_SECONDS / generation_seconds))
        return max(1, min(self.max_generations, 8 * length, int(target)))

    def advance(self, batches: list[Slice], first: int, count: int) -> list[list[Array]]:
        chunks = [self._chunk(batch, first, count) for batch in batches]

        def call(chunk: ProgramCall) -> Any:
            return self.clock.program(chunk)(*chunk.arguments)

        # on a CPU a second batch keeps the threads busy while the history of the first is summarised
        results = map_on_threads(min(2, self.threads), call, chunks, "slices")
        for batch, (carry, history, _) in zip(batches, results, strict=True):
            batch.carry, batch.last_rows = carry, [history]
        return [[summary] for _, _, summary in results]

    def _chunk(self, batch: Slice, first: int, count: int) -> ProgramCall:
        """Return the call that computes a chunk of a slice."""
        rows = next(r for r in self.rows if r >= count)
        kernel, layout = self._kernels[id(batch)]
        if isinstance(kernel, CpuKernel):
            kernel.threads = self.threads
        span = np.array([first, count, rows, batch.active_rows.max() + 1], np.int32)
        span, constants = device_put_cached((span, list(kernel.text.constants)))
        return ProgramCall(_run_chunk, (kernel, layout, rows), (batch.search, batch.keys, batch.carry, span, constants))


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
    return carry, *summarize_chunk(search.columns, outputs[len(per_run)], span[1], carry.stop_state)
