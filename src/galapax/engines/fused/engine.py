"""The fused engine: whole chunks of generations in one kernel, each run for itself.

The kernel makes as many generations as it is told, so the length of a chunk is data; the rows of history that a program
has room for come from a small set. A run that has ended leaves the kernel: nothing is computed that is thrown away.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
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
from galapax.engines import search as searching
from galapax.engines.drive import Slice
from galapax.engines.fused import kernel as kernels
from galapax.engines.fused.cuda import CudaKernel, present
from galapax.engines.fused.generation_table import TABLE_GENERATIONS as AHEAD
from galapax.engines.fused.graph import NotFusible
from galapax.engines.fused.host import HostKernel
from galapax.engines.fused.kernel import Layout, settled
from galapax.engines.fused.kernel_source import KernelSource, LaunchShape
from galapax.engines.journal import with_arrays
from galapax.engines.programs import Clock
from galapax.engines.search import Carry, Finished, Search
from galapax.engines.tally import told
from galapax.engines.threads import on_threads
from galapax.numerics import devices
from galapax.numerics.transfers import device_put_cached

CHUNK_SECONDS = 0.1  # the host looks about so often,
MOST_SECONDS = 0.5  # or so often, where a native kernel would make fewer generations than its table of keys has
FIRST = 1000  # the first time after as many generations at most, so that what watches a short run sees some of it
HOST = LaunchShape(for_cpu=True)
KEPT = 32  # kernels that are remembered, by what they were made of
ROWS = (10, 100, 1000, 10_000, 40_000)  # generations that programs have room for
HISTORY = 2**29  # bytes of a chunk's history on the device, at most


class Kernel(Protocol):
    text: KernelSource

    def call(self, context: Any, outputs: list[Any], *inputs: Any) -> None:
        """As `jax.experimental.buffer_callback` calls it."""


@lru_cache(maxsize=64)
def kernel_of(source: str, text: KernelSource, host: bool) -> Kernel:
    """The machine code of a text. source: what it is known by."""
    return HostKernel(text) if host else CudaKernel(text)


_known: OrderedDict[Hashable, Kernel | str] = OrderedDict()  # or why there is none
_making: dict[Hashable, threading.Lock] = {}  # so that another thread waits for a kernel instead of making it, too


def compiled(search: Search, runs: int, host: bool, clock: Clock) -> Kernel:
    """The kernel of so many runs, or NotFusible. clock: is told how long it took, unless it was made before."""
    form = HOST if host else present().form(_work(search), runs)
    key = kernels.key_of(search), form, host, devices.compile_settings()
    with _making.setdefault(key, threading.Lock()):
        found = _known.pop(key, None)
        if found is None:
            start = clock.begin()
            try:
                text = kernels.text_of(search, runs, form)
                found = kernel_of(text.digest, text, host)
            except NotFusible as error:
                found = str(error)
            clock.end(start)
        _known[key] = found  # as the latest
    if len(_known) > KEPT:
        with contextlib.suppress(KeyError):
            _making.pop(_known.popitem(last=False)[0])
    if isinstance(found, str):
        raise NotFusible(found)
    return found


def _work(search: Search) -> int:
    """Numbers that a generation of a run handles."""
    dim = search.bounds.dim
    return max(search.algorithm.population * dim, estimate_cost(search.algorithm, dim))


Call = tuple[Any, tuple[Any, ...], tuple[Any, ...]]  # a function, what is fixed of its arguments, and the others
Pace = tuple[int, float]  # generations of a chunk, and its seconds
_paces: WeakKeyDictionary[Kernel, dict[int, Pace]] = WeakKeyDictionary()  # of kernels that have run, by how many runs


class Fused:
    """An Engine of generated kernels.

    host: built for this machine's processor instead of a GPU. threads: so many share out the runs of a slice there.
    """

    def __init__(
        self, search: Search, clock: Clock, width: int, steps: int, host: bool = False, threads: int = 1
    ) -> None:
        self.clock, self.host, self.threads = clock, host, threads if host else 1
        row = search.columns.width * width * search.bounds.lower.dtype.itemsize
        room = min(HISTORY, devices.free_memory() // 8)
        # on the host compiling another program takes longer than clearing some rows
        self.rows = ROWS[1:] if host and ROWS[1] * row <= room else ROWS
        self.most = next((r for r in reversed(self.rows) if r * row <= room), ROWS[0])
        # about what a generation takes, for the first chunk: barriers, a run's own work, and that of all runs
        work = _work(search)
        alone = work * (1e-8 if host else 1e-9 if width > 1 else 1e-10)
        self.guess = (1 + steps) * (3e-6 + alone + width * work * (1e-8 if host else 1e-11))
        self._kernels: dict[int, tuple[Kernel, Layout]] = {}  # of each slice
        self.paces, self.runs = dict[int, Pace](), 0  # of its kernel, and how many runs it makes

    def begin(self, parts: list[Slice]) -> None:
        _put(parts)
        for part in parts:
            part.carry = self._called(_begin(part))
            self._know(part)

    def _know(self, part: Slice) -> None:
        """Have the kernel of a slice, which has begun."""
        assert part.carry is not None
        made = compiled(part.search, len(part.cells), self.host, self.clock)
        self._kernels[id(part)] = made, kernels.layout_of(part.search, part.carry)

    def memory(self) -> Any:
        return None

    def restore(self, parts: list[Slice], carries: list[list[np.ndarray]]) -> None:
        self.begin(parts)
        for part, kept in zip(parts, carries, strict=True):
            part.carry = with_arrays(part.carry, kept)

    def pace(self, parts: list[Slice]) -> Pace:
        made, _ = self._kernels[id(parts[0])]
        self.paces, self.runs = _paces.setdefault(made, {}), sum(len(part.cells) for part in parts)
        return self.paces.get(self.runs, (0, 0.0))

    def plan(self, length: int, seconds: float) -> int:
        if length == 0:
            return max(1, min(self.most, FIRST, int(CHUNK_SECONDS / 4 / self.guess)))
        self.paces[self.runs] = length, seconds
        each = max(seconds, 1e-9) / length
        wanted = max(CHUNK_SECONDS / each, min(AHEAD, MOST_SECONDS / each) if self.host else 0)
        return max(1, min(self.most, 8 * length, int(wanted)))

    def advance(self, parts: list[Slice], first: int, count: int) -> list[list[Any]]:
        calls = [self._chunk_of(part, first, count) for part in parts]
        # on the host a second slice keeps the threads busy while the first one's history is looked through
        made = on_threads(min(2, self.threads), self._called, calls, "slices")
        for part, (carry, history, _) in zip(parts, made, strict=True):
            part.carry, part.latest = carry, [history]
        return [[tally] for _, _, tally in made]

    def _chunk_of(self, part: Slice, first: int, count: int) -> Call:
        """The program of a slice's generations, see `Clock.program`."""
        rows = next(r for r in self.rows if r >= count)
        made, layout = self._kernels[id(part)]
        if isinstance(made, HostKernel):
            made.threads = self.threads
        span = np.array([first, count, rows, part.wanted.max() + 1], np.int32)
        span, arrays = device_put_cached((span, list(made.text.constants)))
        return _chunk, (made, layout, rows), (part.search, part.keys, part.carry, span, arrays)

    def finish(self, parts: list[Slice]) -> list[Finished]:
        return [self._called(_finish(part)) for part in parts]

    def _called(self, call: Call) -> Any:
        function, fixed, arguments = call
        return self.clock.call(function, fixed, *arguments)

    def survivors(self, part: Slice) -> Population:
        return self.clock.call(searching.survivors, (), part.carry)

    def ahead(self, part: Slice) -> Iterator[None]:
        clock = Clock(waits=False)
        _put([part])
        begun = clock.program(*_begin(part))
        yield
        part.carry = begun.blank()
        self._know(part)
        clock.program(*self._chunk_of(part, 0, self.plan(0, 0.0)))
        yield
        clock.program(*_finish(part))


def _put(parts: list[Slice]) -> None:
    """What the slices share, and each one's own, onto the device in one transfer."""
    first = parts[0].search
    own = [(part.search.algorithm, part.keys, part.initial, part.search.rules.evaluations) for part in parts]
    (bounds, rules, consts), own = device_put_cached(((first.bounds, first.rules, first.consts), own))
    for part, (algorithm, keys, initial, evaluations) in zip(parts, own, strict=True):
        part.keys, part.initial = keys, initial
        part.search = replace(
            part.search,
            algorithm=algorithm,
            bounds=bounds,
            rules=rules._replace(evaluations=evaluations),
            consts=consts,
        )


def _begin(part: Slice) -> Call:
    """The program that begins a slice."""
    return _begun, (), (part.search, part.keys, part.initial)


def _finish(part: Slice) -> Call:
    """The program of what is left of a slice, see `Clock.program`."""
    return searching.finish, (part.span,), (part.search, part.carry, device_put_cached(part.relative))


def _begun(search: Search, keys: Array, initial: Array | None) -> Carry:
    return settled(search.begun(keys, initial))


def _chunk(
    kernel: Kernel, layout: Layout, rows: int, search: Search, keys: Array, carry: Carry, span: Array, arrays: list[Any]
) -> tuple[Carry, Array, Array]:
    """`span[1]` generations from number `span[0]` on: the new carry, their history and tally."""
    leaves, structure = jax.tree.flatten(carry)
    runs, kind = keys.shape[0], carry.state.candidates.dtype
    moving = [i for i, own in enumerate(layout.carried) if own]
    shapes = [jax.ShapeDtypeStruct(leaves[i].shape, leaves[i].dtype) for i in moving]
    history = jax.ShapeDtypeStruct((rows, search.columns.width, runs), kind)
    scratch = jax.ShapeDtypeStruct((max(16, kernel.text.scratch_bytes * runs),), jnp.uint8)
    call = buffer_callback.buffer_callback(kernel.call, [*shapes, history, scratch])
    out = call(*jax.tree.leaves(search), *leaves, keys, span, *arrays)
    for i, new in zip(moving, out, strict=False):
        leaves[i] = new
    carry, made = jax.tree.unflatten(structure, leaves), out[len(moving)]
    return carry, *told(search, made, span[1], carry)
