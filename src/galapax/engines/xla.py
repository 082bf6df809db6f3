"""The xla engine: objective and algorithm compiled into one program that runs whole chunks of generations.

On a CPU the chunk's length is an argument and follows the clock, which changes no program. On a GPU it is part of the
program, since a loop whose end the device must ask the host for costs a round trip each generation; so lengths come
from a small set, and a second call with other generations compiles nothing.
"""

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
from galapax.engines import search as searching
from galapax.engines.batch_checkpoint import with_arrays
from galapax.engines.chunk_summary import summarize_chunk
from galapax.engines.host_loop import Slice
from galapax.engines.programs import SMALL, CompileTimer, Program
from galapax.engines.search import Carry, Finished, Search
from galapax.engines.threads import on_threads
from galapax.numerics import devices, random
from galapax.numerics.transfers import device_put_cached

CHUNK_SECONDS = 0.1  # on a CPU the host looks about this often,
CALL_SECONDS = 8e-3  # but a slice's part of a chunk should take this long, as its state must come into the cache again,
MOST_SECONDS = 0.5  # unless the host would look less often than this
LENGTHS = (500, 100, 50, 10, 1)  # of chunks on a GPU, in generations or in periods of an algorithm
LOOK = 1000  # generations between two looks on a GPU, at most
SLOW = 0.25  # seconds that a chunk on a GPU should take at most
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
        self.rows = _cpu_rows(width, population)
        self.longest = _longest(steps, width * population * dim)
        self.most = self.rows if self.on_cpu else LOOK if self.longest == LENGTHS[0] else self.longest

    def begin(self, parts: list[Slice]) -> None:
        places = devices.local_devices()
        for i, part in enumerate(parts):
            part.place = places[i * len(places) // len(parts)] if len(places) > 1 else None
            if part.search.spread:
                part.place = NamedSharding(devices.make_mesh(part.search.spread), PartitionSpec())
        for together in _by_place(parts):
            _put(together)

        def begun(part: Slice) -> Program:
            return self.clock.program(*_begun(part))

        def begin(part: Slice, program: Any) -> None:
            part.carry = program(part.search, part.keys, part.initial)

        self._each(parts, begun, begin)

    def memory(self) -> Any:
        return None

    def restore(self, parts: list[Slice], carries: list[list[np.ndarray]]) -> None:
        self.begin(parts)
        for part, kept in zip(parts, carries, strict=True):
            part.carry = with_arrays(part.carry, kept, part.place)

    def pace(self, parts: list[Slice]) -> tuple[int, float]:
        search, self.slices = parts[0].search, len(parts)
        shape = len(parts), self.threads, len(parts[0].cells), search.bounds.dim, search.bounds.lower.dtype
        self.known = (jax.tree.structure(search), *shape)
        return _paces.get(self.known, (0, 0.0))

    def plan(self, length: int, seconds: float) -> int:
        if not self.on_cpu:
            return self.most
        if length == 0:
            return 1  # a generation may take long: time the first before asking for more
        _remember(self.known, length, seconds)
        call = CALL_SECONDS * self.slices / min(self.slices, self.threads)
        wanted = max(CHUNK_SECONDS, min(call, MOST_SECONDS))
        return max(1, min(self.rows, int(length * min(8.0, wanted / max(seconds, 1e-9)))))

    def advance(self, parts: list[Slice], first: int, count: int) -> list[list[Any]]:
        self.slices = len(parts)
        if not self.on_cpu:
            places = len(_by_place(parts))
            return on_threads(places, lambda part: self._static_chunks(part, first, count), parts)
        span = np.array([first, count], np.int32)  # one transfer

        def chunk(part: Slice) -> Program:
            return self.clock.program(*self._chunk_of(part, span))

        def advance(part: Slice, program: Any) -> list[Any]:
            part.carry, rows, tally = program(part.search, part.keys, part.carry, span)
            part.latest = [rows]
            return [np.asarray(tally)]  # waits, so that a thread has one slice in its core's cache

        return self._each(parts, chunk, advance)

    def _each(
        self, parts: list[Slice], program: Callable[[Slice], Program], work: Callable[[Slice, Any], Any]
    ) -> list[Any]:
        """work(part, program) of every slice, on the threads; slices on one device share their program."""
        programs = {together[0].place: program(together[0]) for together in _by_place(parts)}
        threads = _that_fit(self.threads, max(own.needs for own in programs.values())) if self.on_cpu else self.threads
        return on_threads(threads, lambda part: work(part, programs[part.place]), parts)

    def _chunk_of(self, part: Slice, span: np.ndarray) -> tuple[Any, ...]:
        """The program of a slice's chunks on a CPU, see `CompileTimer.program`."""
        arguments = (part.search, part.keys, part.carry, span)
        return _chunk, (self.rows,), arguments, (2,), part.search.algorithm.traits.fast_compile

    def precompile(self, part: Slice) -> Iterator[None]:
        if not self.on_cpu or part.search.spread or len(devices.local_devices()) > 1:
            return
        clock = CompileTimer(waits=False)
        _put([part])
        begun = clock.program(*_begun(part))
        yield
        part.carry = begun.zeros_like_output()
        clock.program(*self._chunk_of(part, np.zeros(2, np.int32)))
        yield
        clock.program(*_finish(part, device_put_cached(part.relative)))

    def _static_chunks(self, part: Slice, first: int, count: int) -> list[Any]:
        options = GPU_OPTIONS if devices.platform() == "gpu" else None
        pieces, tallies = [], []
        for start, length in _cut(first, count, part.search.algorithm.period, part.search.round, self.longest):
            arguments = (part.search, part.keys, part.carry, device_put_cached(np.int32(start), part.place))
            part.carry, rows, tally = self.clock.call(
                _static_chunk, (length,), *arguments, donate=(2,), options=options
            )
            pieces.append(rows)
            tallies.append(tally)
        part.latest = pieces
        return tallies

    def finish(self, parts: list[Slice]) -> list[Finished]:
        cells = {id(part): device_put_cached(part.relative, part.place) for part in parts}
        programs = {
            key: self.clock.program(*_finish(part, cells[id(part)]))
            for key, part in {(part.span, part.place): part for part in parts}.items()
        }

        def finish(part: Slice) -> Finished:
            return programs[part.span, part.place](part.search, part.carry, cells[id(part)])

        return on_threads(self.threads, finish, parts)

    def survivors(self, part: Slice) -> Population:
        return self.clock.call(searching.survivors, (), part.carry)


def _begun(part: Slice) -> tuple[Any, ...]:
    """The program that begins a slice, see `CompileTimer.program`."""
    return Search.begun, (), (part.search, part.keys, part.initial)


def _finish(part: Slice, cells: Array) -> tuple[Any, ...]:
    """The program that makes what is left of a slice, see `CompileTimer.program`."""
    return searching.finish, (part.span,), (part.search, part.carry, cells)


_paces: dict[Hashable, tuple[int, float]] = {}  # generations of a chunk and its seconds, of programs that have run
PACES = 256  # of them, at most


def _remember(known: Hashable, length: int, seconds: float) -> None:
    """The quickest of a program's chunks: others were held up."""
    count, taken = _paces.get(known, (0, 0.0))
    if known is not None and (not count or seconds * count < taken * length):
        if len(_paces) >= PACES:
            _paces.clear()
        _paces[known] = length, seconds


def _that_fit(threads: int, needs: int) -> int:
    """How many threads there is memory for, if each needs so much: fewer take longer, and change no result."""
    if needs <= SMALL:
        return threads
    return max(1, min(threads, int(0.8 * devices.free_memory() / needs)))


def _by_place(parts: list[Slice]) -> list[list[Slice]]:
    """Slices that are on one device together."""
    places: dict[Any, list[Slice]] = {}
    for part in parts:
        places.setdefault(part.place, []).append(part)
    return list(places.values())


def _put(parts: list[Slice]) -> None:
    """What slices share, and each one's own, onto their device in one transfer."""
    first = parts[0].search
    # the limit of evaluations differs from run to run where runs restart
    own = [(part.search.algorithm, part.keys, part.initial, part.search.rules.evaluations) for part in parts]
    (bounds, rules, consts), own = device_put_cached(((first.bounds, first.rules, first.consts), own), parts[0].place)
    for part, (algorithm, keys, initial, evaluations) in zip(parts, own, strict=True):
        part.keys, part.initial = keys, initial
        limits = rules._replace(evaluations=evaluations)
        part.search = replace(part.search, algorithm=algorithm, bounds=bounds, rules=limits, consts=consts)


def _chunk(rows: int, search: Search, keys: Array, carry: Carry, span: Array) -> tuple[Carry, Array, Array]:
    """`span[1]` generations from number `span[0]` on, at most `rows`: their history and tally."""

    def body(i: Any, both: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, history = both
        number = span[0] + i
        carry, row = search.generation(carry, _fold_all(keys, number), number)
        return carry, lax.dynamic_update_index_in_dim(history, row, i, axis=0)

    start = (carry, _blank(search, rows, keys, carry))
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
    ahead = jax.vmap(partial(_fold_all, keys))(first + jnp.arange(length, dtype=jnp.int32))

    def body(ends: bool | None, i: Any, both: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, history = both
        own = lax.dynamic_index_in_dim(ahead, i, keepdims=False)
        carry, row = search.generation(carry, own, first + i, ends)
        return carry, lax.dynamic_update_index_in_dim(history, row, i, axis=0)

    size = search.round

    def rounds(i: Any, both: tuple[Carry, Array]) -> tuple[Carry, Array]:
        """A round of generations; what follows it costs no question to the host, nor does the loop's end."""
        both = lax.fori_loop(0, size - 1, lambda j, both: body(False, i * size + j, both), both)
        return body(True, i * size + size - 1, both)

    start = (carry, _blank(search, length, keys, carry))
    if size > 1 and length % size == 0:  # such a chunk begins with a round, see `_cut`
        carry, history = lax.fori_loop(0, length // size, rounds, start)
    else:
        carry, history = lax.fori_loop(0, length, partial(body, None), start)
    return carry, *summarize_chunk(search, history, jnp.int32(length), carry)


def _fold_all(keys: Array, number: Any) -> Array:
    """The keys (R, 2) of a generation."""
    return jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)


def _blank(search: Search, rows: int, keys: Array, carry: Carry) -> Array:
    return jnp.zeros((rows, search.columns.width, keys.shape[0]), carry.state.candidates.dtype)


def _cut(first: int, count: int, period: int, size: int, longest: int) -> list[tuple[int, int]]:
    """Chunks (first number, length) of the lengths there are programs for.

    Whole rounds of `size` generations go together, so that the program knows where they end. What begins within one
    goes on to its end: generation by generation where an algorithm has a period, else by any of the lengths.
    """
    chunks, at, end = [], first, first + count
    unit = max(1, period)
    while at < end:
        within = (at - 1) % size
        room = min(end - at, size - within) if within else end - at
        fitting = [k * unit for k in LENGTHS if k * unit <= min(room, max(unit, longest))]
        length = 1 if (at - 1) % unit or not fitting else fitting[0]
        chunks.append((at, length))
        at += length
    return chunks


def _cpu_rows(runs: int, population: int) -> int:
    """The longest chunk on a CPU: history for so many generations is kept on the device, and failures are counted in
    32 bits.
    """
    return min(max(64, min(1024, 2**13 // runs)), max(1, 2**31 // population))


def _longest(steps: int, genes: int) -> int:
    """The most generations in a chunk on a GPU, from what one takes at least: launches, and numbers to move.

    From sizes and never from a clock, so that a run is the same program every time.
    """
    seconds = 3e-6 * (10 + steps) + genes * 1e-11
    return max(1, min(LENGTHS[0], int(SLOW / seconds)))
