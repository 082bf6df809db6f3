"""The engine that compiles chunks of generations with XLA."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from galapax.core.evaluation import Population
from galapax.core.stop import RUNNING
from galapax.execution import search as searching
from galapax.execution.host_loop import Slice
from galapax.execution.search import Carry, Finished, Search
from galapax.execution.slices import map_on_threads
from galapax.execution.state import restore_arrays, summarize_chunk
from galapax.numerics import devices, random
from galapax.numerics.compile_cache import UNCHECKED_BYTES, CompileTimer, Program
from galapax.numerics.devices import device_put_cached

CHUNK_SECONDS = 0.1  # on a CPU the host looks about this often,
CALL_SECONDS = 8e-3  # but a slice's part of a chunk should take this long, as its state must come into the cache again,
MAX_CHUNK_SECONDS = 0.5  # unless the host would look less often than this
LENGTHS = (500, 100, 50, 10, 1)  # of chunks on a GPU, in generations or in periods of an algorithm
MAX_GPU_GENERATIONS = 1000  # generations between two looks on a GPU, at most
MAX_GPU_CHUNK_SECONDS = 0.25  # seconds that a chunk on a GPU should take at most
GPU_OPTIONS: dict[str, str | bool] = {
    "xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"
}  # else the state is copied


class XlaEngine:
    """An Engine for objectives that JAX traces.

    steps: rounds of loops that one evaluation takes one after another; it limits chunks on a GPU.
    threads: how many slices a CPU computes at once.
    """

    def __init__(self, search: Search, clock: CompileTimer, width: int, steps: int, threads: int = 1) -> None:
        self.clock, self.threads = clock, threads
        self.slices = 1  # in the last chunk
        self.known: Hashable = None  # what its pace is remembered by
        self.on_cpu = devices.on_cpu()
        population, dim = search.algorithm.population, search.bounds.dim
        self.rows = _max_cpu_chunk(width, population)
        self.longest = _max_gpu_chunk(steps, width * population * dim)
        self.most = self.rows if self.on_cpu else MAX_GPU_GENERATIONS if self.longest == LENGTHS[0] else self.longest

    def begin(self, batches: list[Slice]) -> None:
        places = devices.local_devices()
        for i, batch in enumerate(batches):
            batch.place = places[i * len(places) // len(batches)] if len(places) > 1 else None
            if batch.search.spread:
                batch.place = NamedSharding(devices.make_mesh(batch.search.spread), PartitionSpec())
        for group in _group_by_device(batches):
            _put_on_device(group)

        def begin_program(batch: Slice) -> Program:
            return self.clock.program(*_begin_program(batch))

        def begin(batch: Slice, program: Any) -> None:
            batch.carry = program(batch.search, batch.keys, batch.initial)

        self._each(batches, begin_program, begin)

    def memory(self) -> Any:
        return None

    def restore(self, batches: list[Slice], carries: list[list[np.ndarray]]) -> None:
        self.begin(batches)
        for batch, arrays in zip(batches, carries, strict=True):
            batch.carry = restore_arrays(batch.carry, arrays, batch.place)

    def pace(self, batches: list[Slice]) -> tuple[int, float]:
        search, self.slices = batches[0].search, len(batches)
        shape = len(batches), self.threads, len(batches[0].cells), search.bounds.dim, search.bounds.lower.dtype
        self.known = (jax.tree.structure(search), *shape)
        return _paces.get(self.known, (0, 0.0))

    def plan(self, length: int, seconds: float) -> int:
        if not self.on_cpu:
            return self.most
        if length == 0:
            return 1  # a generation may take long: time the first before asking for more
        _remember_pace(self.known, length, seconds)
        min_seconds = CALL_SECONDS * self.slices / min(self.slices, self.threads)
        target_seconds = max(CHUNK_SECONDS, min(min_seconds, MAX_CHUNK_SECONDS))
        return max(1, min(self.rows, int(length * min(8.0, target_seconds / max(seconds, 1e-9)))))

    def advance(self, batches: list[Slice], first: int, count: int) -> list[list[Any]]:
        self.slices = len(batches)
        if not self.on_cpu:
            places = len(_group_by_device(batches))
            return map_on_threads(places, lambda batch: self._static_chunks(batch, first, count), batches)
        span = np.array([first, count], np.int32)  # one transfer

        def chunk(batch: Slice) -> Program:
            return self.clock.program(*self._chunk_of(batch, span))

        def advance(batch: Slice, program: Any) -> list[Any]:
            batch.carry, rows, summary = program(batch.search, batch.keys, batch.carry, span)
            batch.latest = [rows]
            return [np.asarray(summary)]  # waits, so that a thread has one slice in its core's cache

        return self._each(batches, chunk, advance)

    def _each(
        self, batches: list[Slice], program: Callable[[Slice], Program], work: Callable[[Slice, Any], Any]
    ) -> list[Any]:
        """work(part, program) of every slice, on the threads; slices on one device share their program."""
        programs = {group[0].place: program(group[0]) for group in _group_by_device(batches)}
        threads = (
            _threads_that_fit(self.threads, max(program.working_bytes for program in programs.values()))
            if self.on_cpu
            else self.threads
        )
        return map_on_threads(threads, lambda batch: work(batch, programs[batch.place]), batches)

    def _chunk_of(self, batch: Slice, span: np.ndarray) -> tuple[Any, ...]:
        """The program of a slice's chunks on a CPU, see `CompileTimer.program`."""
        arguments = (batch.search, batch.keys, batch.carry, span)
        return _chunk, (self.rows,), arguments, (2,), batch.search.algorithm.traits.fast_compile

    def precompile(self, batch: Slice) -> Iterator[None]:
        if not self.on_cpu or batch.search.spread or len(devices.local_devices()) > 1:
            return
        clock = CompileTimer(waits=False)
        _put_on_device([batch])
        begin_program = clock.program(*_begin_program(batch))
        yield
        batch.carry = begin_program.zeros_like_output()
        clock.program(*self._chunk_of(batch, np.zeros(2, np.int32)))
        yield
        clock.program(*_finish_program(batch, device_put_cached(batch.relative)))

    def _static_chunks(self, batch: Slice, first: int, count: int) -> list[Any]:
        options = GPU_OPTIONS if devices.platform() == "gpu" else None
        pieces, summaries = [], []
        for start, length in _split_into_chunks(
            first, count, batch.search.algorithm.period, batch.search.round, self.longest
        ):
            arguments = (batch.search, batch.keys, batch.carry, device_put_cached(np.int32(start), batch.place))
            batch.carry, rows, summary = self.clock.call(
                _static_chunk, (length,), *arguments, donate=(2,), options=options
            )
            pieces.append(rows)
            summaries.append(summary)
        batch.latest = pieces
        return summaries

    def finish(self, batches: list[Slice]) -> list[Finished]:
        cells = {id(batch): device_put_cached(batch.relative, batch.place) for batch in batches}
        programs = {
            key: self.clock.program(*_finish_program(batch, cells[id(batch)]))
            for key, batch in {(batch.span, batch.place): batch for batch in batches}.items()
        }

        def finish(batch: Slice) -> Finished:
            return programs[batch.span, batch.place](batch.search, batch.carry, cells[id(batch)])

        return map_on_threads(self.threads, finish, batches)

    def survivors(self, batch: Slice) -> Population:
        return self.clock.call(searching.survivors, (), batch.carry)


def _begin_program(batch: Slice) -> tuple[Any, ...]:
    """The program that begins a slice, see `CompileTimer.program`."""
    return Search.init_and_start, (), (batch.search, batch.keys, batch.initial)


def _finish_program(batch: Slice, cells: Array) -> tuple[Any, ...]:
    """The program that makes what is left of a slice, see `CompileTimer.program`."""
    return searching.finish, (batch.span,), (batch.search, batch.carry, cells)


_paces: dict[Hashable, tuple[int, float]] = {}  # generations of a chunk and its seconds, of programs that have run
MAX_PACES = 256  # of them, at most


def _remember_pace(program_key: Hashable, length: int, seconds: float) -> None:
    """The quickest of a program's chunks: others were held up."""
    best_length, best_seconds = _paces.get(program_key, (0, 0.0))
    if program_key is not None and (not best_length or seconds * best_length < best_seconds * length):
        if len(_paces) >= MAX_PACES:
            _paces.clear()
        _paces[program_key] = length, seconds


def _threads_that_fit(threads: int, needs: int) -> int:
    """How many threads there is memory for, if each needs so much: fewer take longer, and change no result."""
    if needs <= UNCHECKED_BYTES:
        return threads
    return max(1, min(threads, int(0.8 * devices.free_memory() / needs)))


def _group_by_device(batches: list[Slice]) -> list[list[Slice]]:
    """Slices that are on one device together."""
    places: dict[Any, list[Slice]] = {}
    for batch in batches:
        places.setdefault(batch.place, []).append(batch)
    return list(places.values())


def _put_on_device(batches: list[Slice]) -> None:
    """What slices share, and each one's own, onto their device in one transfer."""
    search = batches[0].search
    # the limit of evaluations differs from run to run where runs restart
    per_batch = [
        (batch.search.algorithm, batch.keys, batch.initial, batch.search.rules.evaluations) for batch in batches
    ]
    (bounds, rules, consts), per_batch = device_put_cached(
        ((search.bounds, search.rules, search.consts), per_batch), batches[0].place
    )
    for batch, (algorithm, keys, initial, evaluations) in zip(batches, per_batch, strict=True):
        batch.keys, batch.initial = keys, initial
        limits = rules._replace(evaluations=evaluations)
        batch.search = replace(batch.search, algorithm=algorithm, bounds=bounds, rules=limits, consts=consts)


def _chunk(rows: int, search: Search, keys: Array, carry: Carry, span: Array) -> tuple[Carry, Array, Array]:
    """`span[1]` generations from number `span[0]` on, at most `rows`: their history and tally."""

    def body(i: Any, both: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, history = both
        number = span[0] + i
        carry, row = search.generation(carry, _fold_all(keys, number), number)
        return carry, lax.dynamic_update_index_in_dim(history, row, i, axis=0)

    start = (carry, _zero_history(search, rows, keys, carry))
    if carry.frozen is None:
        carry, history = lax.fori_loop(0, span[1], body, start)
    else:  # until the last run is finished

        def goes_on(at: tuple[Array, tuple[Carry, Array]]) -> Array:
            i, (carry, _) = at
            assert carry.frozen is not None
            return (i < span[1]) & jnp.any(carry.frozen.marks[:, searching.REASON] == RUNNING)

        _, (carry, history) = lax.while_loop(goes_on, lambda at: (at[0] + 1, body(*at)), (jnp.int32(0), start))
    return carry, *summarize_chunk(search, history, span[1], carry)


def _static_chunk(length: int, search: Search, keys: Array, carry: Carry, first: Array) -> tuple[Carry, Array, Array]:
    """`length` generations from number `first` on, a number known when the program is made."""
    # drawn ahead, since in the loop it would be a kernel of its own
    generation_keys = jax.vmap(partial(_fold_all, keys))(first + jnp.arange(length, dtype=jnp.int32))

    def body(ends: bool | None, i: Any, carry_and_history: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, history = carry_and_history
        keys_now = lax.dynamic_index_in_dim(generation_keys, i, keepdims=False)
        carry, row = search.generation(carry, keys_now, first + i, ends)
        return carry, lax.dynamic_update_index_in_dim(history, row, i, axis=0)

    size = search.round

    def rounds(i: Any, carry_and_history: tuple[Carry, Array]) -> tuple[Carry, Array]:
        """A round of generations; what follows it costs no question to the host, nor does the loop's end."""
        carry_and_history = lax.fori_loop(
            0, size - 1, lambda j, carry_and_history: body(False, i * size + j, carry_and_history), carry_and_history
        )
        return body(True, i * size + size - 1, carry_and_history)

    start = (carry, _zero_history(search, length, keys, carry))
    if size > 1 and length % size == 0:  # such a chunk begins with a round, see `_split_into_chunks`
        carry, history = lax.fori_loop(0, length // size, rounds, start)
    else:
        carry, history = lax.fori_loop(0, length, partial(body, None), start)
    return carry, *summarize_chunk(search, history, jnp.int32(length), carry)


def _fold_all(keys: Array, number: Any) -> Array:
    """The keys (R, 2) of a generation."""
    return jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)


def _zero_history(search: Search, rows: int, keys: Array, carry: Carry) -> Array:
    return jnp.zeros((rows, search.columns.width, keys.shape[0]), carry.state.candidates.dtype)


def _split_into_chunks(first: int, count: int, period: int, size: int, longest: int) -> list[tuple[int, int]]:
    """Chunks (first number, length) of the lengths there are programs for.

    Whole rounds of `size` generations go together, so that the program knows where they end. What begins within one
    goes on to its end: generation by generation where an algorithm has a period, else by any of the lengths.
    """
    chunks, start, end = [], first, first + count
    unit = max(1, period)
    while start < end:
        within = (start - 1) % size
        room = min(end - start, size - within) if within else end - start
        fitting = [k * unit for k in LENGTHS if k * unit <= min(room, max(unit, longest))]
        length = 1 if (start - 1) % unit or not fitting else fitting[0]
        chunks.append((start, length))
        start += length
    return chunks


def _max_cpu_chunk(runs: int, population: int) -> int:
    """The longest chunk on a CPU: history for so many generations is kept on the device, and failures are counted in
    32 bits.
    """
    return min(max(64, min(1024, 2**13 // runs)), max(1, 2**31 // population))


def _max_gpu_chunk(steps: int, genes: int) -> int:
    """The most generations in a chunk on a GPU, from what one takes at least: launches, and numbers to move.

    From sizes and never from a clock, so that a run is the same program every time.
    """
    seconds = 3e-6 * (10 + steps) + genes * 1e-11
    return max(1, min(LENGTHS[0], int(MAX_GPU_CHUNK_SECONDS / seconds)))
