"""The engine for traced objectives: chunks of generations compiled by a backend, XLA or the fused compiler.

`select_engine` decides which backend a task gets and says why. The fused compiler is imported only when it is needed.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from galapax.core.errors import InputError
from galapax.core.problem import CandidateEvaluation, Population
from galapax.core.stop import RUNNING
from galapax.execution import search as searching
from galapax.execution.host_loop import Slice
from galapax.execution.memory import map_on_threads
from galapax.execution.search import Carry, Finished, Search, TracedObjective
from galapax.execution.state import restore_arrays, summarize_chunk
from galapax.execution.task import Task
from galapax.numerics import devices, random
from galapax.numerics.compile_cache import PROGRAMS, UNCHECKED_BYTES, CompileTimer, Program
from galapax.numerics.devices import device_put_cached
from galapax.objective.hoist_constants import Constants

CHUNK_SECONDS = 0.1  # on a CPU the host looks about this often,
CALL_SECONDS = 8e-3  # but a slice's part of a chunk should take this long, as its state must come into the cache again,
MAX_CHUNK_SECONDS = 0.5  # unless the host would look less often than this
LENGTHS = (500, 100, 50, 10, 1)  # of chunks on a GPU, in generations or in periods of an algorithm
MAX_GPU_GENERATIONS = 1000  # generations between two looks on a GPU, at most
MAX_GPU_CHUNK_SECONDS = 0.25  # seconds that a chunk on a GPU should take at most
GPU_OPTIONS: dict[str, str | bool] = {
    "xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"
}  # else the state is copied


ProgramCall = tuple[
    Any, ...
]  # the arguments of `CompileTimer.program`: a function, its static and its other arguments, options
Pace = tuple[int, float]  # generations of a chunk, and its seconds


class Backend(Protocol):
    """How a `CompiledEngine` computes the chunks of its slices: by XLA, or by a kernel of the fused compiler."""

    threads: int  # that compute slices at once
    max_generations: int  # of a chunk

    def assign_devices(self, batches: list[Slice]) -> None:
        """Set the device of each slice."""

    def can_precompile(self, batch: Slice) -> bool:
        """Return whether the programs of a slice can be compiled before it begins."""

    def init_program(self, batch: Slice) -> ProgramCall:
        """Return the program that computes the first carry of a slice, called with search, keys and initial points."""

    def load(self, batch: Slice) -> None:
        """Prepare what the chunks of a slice with a carry need besides it, such as a kernel."""

    def precompile_chunk(self, batch: Slice, clock: CompileTimer) -> Iterator[None]:
        """Compile what the first chunk of a slice needs, a program at each step."""

    def recall_pace(self, batches: list[Slice]) -> Pace:
        """Return the pace of the same program when it last ran; (0, 0) if it has not."""

    def plan_chunk(self, length: int, seconds: float) -> int:
        """Return how many generations the next chunk has, given the length and the seconds of the previous one."""

    def advance(self, batches: list[Slice], first: int, count: int) -> Sequence[Sequence[Array | np.ndarray]]:
        """See `Engine.advance`."""


class CompiledEngine:
    """An Engine whose chunks of generations are compiled by a backend."""

    def __init__(self, backend: Backend, clock: CompileTimer) -> None:
        self.backend, self.clock = backend, clock
        self.max_generations = backend.max_generations
        self.pace, self.plan, self.advance = backend.recall_pace, backend.plan_chunk, backend.advance

    def begin(self, batches: list[Slice]) -> None:
        self.backend.assign_devices(batches)
        for group in group_by_device(batches):
            _put_on_device(group)

        def init_program(batch: Slice) -> Program:
            return self.clock.program(*self.backend.init_program(batch))

        def init(batch: Slice, program: Program) -> None:
            batch.carry = program(*self.backend.init_program(batch)[2])

        map_slices(self.backend.threads, batches, init_program, init)
        for batch in batches:
            self.backend.load(batch)

    def memory(self) -> None:
        return None

    def restore(self, batches: list[Slice], carries: list[list[np.ndarray]]) -> None:
        self.begin(batches)
        for batch, arrays in zip(batches, carries, strict=True):
            batch.carry = restore_arrays(batch.carry, arrays, batch.device)

    def finish(self, batches: list[Slice]) -> list[Finished]:
        cells = {id(batch): device_put_cached(batch.cell_ids, batch.device) for batch in batches}
        programs = {
            key: self.clock.program(*_finish_program(batch, cells[id(batch)]))
            for key, batch in {(batch.n_cells, batch.device): batch for batch in batches}.items()
        }

        def finish(batch: Slice) -> Finished:
            return programs[batch.n_cells, batch.device](*_finish_program(batch, cells[id(batch)])[2])

        return map_on_threads(self.backend.threads, finish, batches)

    def survivors(self, batch: Slice) -> Population:
        return self.clock.call(searching.survivors, (), batch.carry)

    def precompile(self, batch: Slice) -> Iterator[None]:
        if not self.backend.can_precompile(batch):
            return
        clock = CompileTimer(waits=False)
        _put_on_device([batch])
        init_program = clock.program(*self.backend.init_program(batch))
        yield
        batch.carry = init_program.zeros_like_output()
        self.backend.load(batch)
        yield from self.backend.precompile_chunk(batch, clock)
        clock.program(*_finish_program(batch, device_put_cached(batch.cell_ids)))


class XlaBackend:
    """Compiles chunks with XLA.

    steps: rounds of loops that one evaluation takes one after another; it limits chunks on a GPU.
    threads: how many slices a CPU computes at once.
    """

    def __init__(self, search: Search, clock: CompileTimer, width: int, steps: int, threads: int = 1) -> None:
        self.clock, self.threads = clock, threads
        self.n_slices = 1  # in the last chunk
        self.program_key: Hashable = None  # by which its pace is remembered
        self.is_stepping = False  # the last chunk was computed generation by generation
        self.is_compiling = False  # in the background, the program of whole chunks
        self.on_cpu = devices.on_cpu()
        population, dim = search.algorithm.population, search.bounds.dim
        self.rows = _max_cpu_chunk(width, population)
        self.longest = _max_gpu_chunk(steps, width * population * dim)
        gpu_generations = MAX_GPU_GENERATIONS if self.longest == LENGTHS[0] else self.longest
        self.max_generations = self.rows if self.on_cpu else gpu_generations

    def assign_devices(self, batches: list[Slice]) -> None:
        available = devices.local_devices()
        for i, batch in enumerate(batches):
            batch.device = available[i * len(available) // len(batches)] if len(available) > 1 else None
            if batch.search.n_devices:
                batch.device = NamedSharding(devices.make_mesh(batch.search.n_devices), PartitionSpec())

    def can_precompile(self, batch: Slice) -> bool:
        return self.on_cpu and not batch.search.n_devices and len(devices.local_devices()) == 1

    def init_program(self, batch: Slice) -> ProgramCall:
        search = batch.search if batch.search.has_start else batch.search.without_objective()
        return Search.init_and_start, (), (search, batch.keys, batch.initial)

    def load(self, batch: Slice) -> None:
        """Do nothing: a chunk needs the carry alone."""

    def precompile_chunk(self, batch: Slice, clock: CompileTimer) -> Iterator[None]:
        whole = self._cpu_chunk(batch, np.zeros(2, np.int32))
        if not batch.search.isolates_evaluation:
            clock.program(*whole)
            yield
        elif PROGRAMS.find(*whole) is None:
            place, history = np.zeros(2, np.int32), self._zero_rows(batch)
            evaluation = clock.program(*_evaluate_program(batch, place)).zeros_like_output()
            yield
            step = clock.program(*_step_program(batch, history, place, evaluation))
            yield
            batch.carry, rows = step.zeros_like_output()
            clock.program(*_summary_program(batch, rows, np.int32(1)))
            yield

    def recall_pace(self, batches: list[Slice]) -> Pace:
        search, self.n_slices = batches[0].search, len(batches)
        shape = len(batches), self.threads, len(batches[0].cells), search.bounds.dim, search.bounds.lower.dtype
        self.program_key = (jax.tree.structure(search), *shape)
        return _paces.get(self.program_key, (0, 0.0))

    def plan_chunk(self, length: int, seconds: float) -> int:
        if not self.on_cpu:
            return self.max_generations
        if length == 0:
            return 1  # a generation may take long: time the first before asking for more
        if not self.is_stepping:
            _remember_pace(self.program_key, length, seconds)
        min_seconds = CALL_SECONDS * self.n_slices / min(self.n_slices, self.threads)
        target_seconds = max(CHUNK_SECONDS, min(min_seconds, MAX_CHUNK_SECONDS))
        return max(1, min(self.rows, int(length * min(8.0, target_seconds / max(seconds, 1e-9)))))

    def advance(self, batches: list[Slice], first: int, count: int) -> Sequence[Sequence[Array | np.ndarray]]:
        self.n_slices = len(batches)
        if not self.on_cpu:
            n_devices = len(group_by_device(batches))
            return map_on_threads(n_devices, lambda batch: self._static_chunks(batch, first, count), batches)
        span = np.array([first, count], np.int32)  # one transfer

        self.is_stepping = batches[0].search.isolates_evaluation and not self._has_chunk_program(batches[0])
        if self.is_stepping:
            return [[self._step(batches[0], first, count)]]

        def chunk(batch: Slice) -> Program:
            return self.clock.program(*self._cpu_chunk(batch, span))

        def advance(batch: Slice, program: Program) -> Sequence[Array | np.ndarray]:
            batch.carry, rows, summary = program(batch.search, batch.keys, batch.carry, span)
            batch.last_rows = [rows]
            return [np.asarray(summary)]  # waits, so that a thread has one slice in its core's cache

        return map_slices(self.threads, batches, chunk, advance)

    def _has_chunk_program(self, batch: Slice) -> bool:
        """Return whether the program of a slice's chunks is in memory or on disk.

        It is compiled once it pays, beside the generations: in the second call that needs it, or once stepping has
        taken as long as compiling takes. Then a single core compiles it, too. Until then the evaluation is all that is
        compiled for a new objective.
        """
        stepped = _stepped.get(_program_id(batch))
        function, static, arguments, donate, quick = self._cpu_chunk(batch, np.zeros(2, np.int32))
        if PROGRAMS.find(function, static, arguments, donate, quick, on_disk=stepped is None) is not None:
            return True
        if stepped is None or self.is_compiling:
            return False
        pays_alone = stepped.seconds >= MAX_STEPPED_SECONDS
        if not pays_alone and stepped.clock() is self.clock:
            return False
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), batch.carry)

        def compile_chunk() -> Iterator[object]:
            carry = jax.device_put(jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes))
            idle = replace(batch, carry=carry)  # the batch's is overwritten meanwhile
            yield CompileTimer(waits=False).program(*self._cpu_chunk(idle, np.zeros(2, np.int32)))

        self.is_compiling = PROGRAMS.precompile(compile_chunk)
        return pays_alone and not self.is_compiling

    def _step(self, batch: Slice, first: int, count: int) -> np.ndarray:
        """Compute a slice's chunk generation by generation; return its summary.

        The bits are those of the chunk's program: the evaluation is compiled apart from the rest there, too, and the
        rest is the same loop around it.
        """
        history, place = self._zero_rows(batch), np.array([first, 0], np.int32)
        evaluate_call = _evaluate_program(batch, place)
        evaluate, consts = self.clock.program(*evaluate_call), batch.search.consts
        evaluation = evaluate(*evaluate_call[2])
        step = self.clock.program(*_step_program(batch, history, place, evaluation))
        search, n_generations = batch.search.without_objective(), 0
        start = time.thread_time()  # of Python: the evaluations take as long in the chunk's program
        for i in range(count):
            batch.carry, history = step(search, batch.keys, batch.carry, history, place, evaluation)
            n_generations = i + 1
            if n_generations == count or _has_ended(batch.carry):
                break
            place = np.array([first, i + 1], np.int32)
            evaluation = evaluate(consts, batch.carry.state.candidates, place)
        _remember_stepped(batch, time.thread_time() - start, self.clock)
        summary_call = _summary_program(batch, history, np.int32(n_generations))
        rows, summary = self.clock.program(*summary_call)(*summary_call[2])
        batch.last_rows = [rows]
        return np.asarray(summary)

    def _zero_rows(self, batch: Slice) -> np.ndarray:
        """Return an empty history of a chunk."""
        return np.zeros((self.rows, batch.columns.width, len(batch.cells)), batch.search.bounds.lower.dtype)

    def _cpu_chunk(self, batch: Slice, span: np.ndarray) -> ProgramCall:
        """Return the program of a slice's chunks on a CPU, of any length."""
        arguments = (batch.search, batch.keys, batch.carry, span)
        return _chunk, (self.rows,), arguments, (2,), batch.search.algorithm.traits.fast_compile

    def _static_chunks(self, batch: Slice, first: int, count: int) -> list[Array]:
        """Compute a slice's generations by chunks of the lengths that programs are compiled for."""
        options = GPU_OPTIONS if devices.platform() == "gpu" else None
        pieces, summaries = [], []
        for start, length in _split_into_chunks(
            first, count, batch.search.algorithm.period, batch.search.round, self.longest
        ):
            arguments = (batch.search, batch.keys, batch.carry, device_put_cached(np.int32(start), batch.device))
            batch.carry, rows, summary = self.clock.call(
                _static_chunk, (length,), *arguments, donate=(2,), options=options
            )
            pieces.append(rows)
            summaries.append(summary)
        batch.last_rows = pieces
        return summaries


Output = TypeVar("Output")


def map_slices(
    threads: int, batches: list[Slice], program: Callable[[Slice], Program], work: Callable[[Slice, Program], Output]
) -> list[Output]:
    """Return work(slice, program) of every slice, computed on threads; slices on one device share their program."""
    programs = {group[0].device: program(group[0]) for group in group_by_device(batches)}
    if devices.on_cpu():
        threads = _threads_that_fit(threads, max(each.working_bytes for each in programs.values()))
    return map_on_threads(threads, lambda batch: work(batch, programs[batch.device]), batches)


def _finish_program(batch: Slice, cells: Array) -> ProgramCall:
    """Return the program that extracts the results of a slice."""
    return searching.finish, (batch.n_cells,), (batch.search.without_objective(), batch.carry, cells)


def _evaluate_program(batch: Slice, place: np.ndarray) -> ProgramCall:
    """Return the program that evaluates the candidates of a slice. place: see `_step_generation`."""
    search = batch.search
    assert batch.carry is not None
    arguments = (search.consts, batch.carry.state.candidates, place)
    return _evaluate_candidates, (search.objective,), arguments, (), search.algorithm.traits.fast_compile


def _step_program(batch: Slice, history: np.ndarray, place: np.ndarray, evaluation: CandidateEvaluation) -> ProgramCall:
    """Return the program that completes a generation whose candidates are evaluated, and writes its row of history."""
    search = batch.search.without_objective()
    arguments = (search, batch.keys, batch.carry, history, place, evaluation)
    return _step_generation, (), arguments, (2, 3), search.algorithm.traits.fast_compile


def _summary_program(batch: Slice, history: Array | np.ndarray, count: np.int32) -> ProgramCall:
    """Return the program that summarises a chunk whose generations were computed one by one."""
    return summarize_chunk, (), (batch.search.without_objective(), history, count, batch.carry)


def _has_ended(carry: Carry) -> bool:
    """Return whether all runs of a slice have ended."""
    if carry.stop_state is None:
        return False
    return bool((np.asarray(carry.stop_state.stop_columns)[:, searching.REASON] != RUNNING).all())


def _program_id(batch: Slice) -> Hashable:
    """Return what the programs of a slice have in common in every call."""
    bounds = batch.search.bounds
    return jax.tree.structure(batch.search), bounds.dim, bounds.lower.dtype


class Stepped(NamedTuple):
    """How long generations of a program were computed one by one, and in which call first."""

    seconds: float
    clock: weakref.ref[CompileTimer]  # every call has its own


_stepped: OrderedDict[Hashable, Stepped] = OrderedDict()
MAX_STEPPED_SECONDS = 0.3  # of one program; compiling it takes about so long


def _remember_stepped(batch: Slice, seconds: float, clock: CompileTimer) -> None:
    key = _program_id(batch)
    before = _stepped.pop(key, Stepped(0.0, weakref.ref(clock)))
    _stepped[key] = before._replace(seconds=before.seconds + seconds)
    if len(_stepped) > MAX_PACES:
        _stepped.popitem(last=False)


_paces: dict[Hashable, tuple[int, float]] = {}  # generations of a chunk and its seconds, of programs that have run
MAX_PACES = 256  # of them, at most


def _remember_pace(program_key: Hashable, length: int, seconds: float) -> None:
    """Remember the fastest observed chunk of a program; slower ones include interference."""
    best_length, best_seconds = _paces.get(program_key, (0, 0.0))
    if program_key is not None and (not best_length or seconds * best_length < best_seconds * length):
        if len(_paces) >= MAX_PACES:
            _paces.clear()
        _paces[program_key] = length, seconds


def _threads_that_fit(threads: int, needs: int) -> int:
    """Return how many threads there is memory for; fewer take longer and change no result. needs: bytes of each."""
    if needs <= UNCHECKED_BYTES:
        return threads
    return max(1, min(threads, int(0.8 * devices.free_memory() / needs)))


def group_by_device(batches: list[Slice]) -> list[list[Slice]]:
    """Return the slices of each device."""
    groups: dict[Hashable, list[Slice]] = {}
    for batch in batches:
        groups.setdefault(batch.device, []).append(batch)
    return list(groups.values())


def _put_on_device(batches: list[Slice]) -> None:
    """Transfer what slices share, and what each has for itself, to their device at once."""
    search = batches[0].search
    # the limit of evaluations differs from run to run where runs restart
    per_batch = [
        (batch.search.algorithm, batch.keys, batch.initial, batch.search.rules.evaluations) for batch in batches
    ]
    (bounds, rules, consts), per_batch = device_put_cached(
        ((search.bounds, search.rules, search.consts), per_batch), batches[0].device
    )
    for batch, (algorithm, keys, initial, evaluations) in zip(batches, per_batch, strict=True):
        batch.keys, batch.initial = keys, initial
        limits = rules._replace(evaluations=evaluations)
        batch.search = replace(batch.search, algorithm=algorithm, bounds=bounds, rules=limits, consts=consts)


def _chunk(rows: int, search: Search, keys: Array, carry: Carry, span: Array) -> tuple[Carry, Array, Array]:
    """Compute `span[1]` generations from number `span[0]` on, at most `rows`: the carry, their history and summary."""
    history = _zero_history(search, rows, keys, carry)
    carry, history = _iterate(search, keys, carry, history, span[0], jnp.int32(0), span[1])
    return carry, *summarize_chunk(search, history, span[1], carry)


def _iterate(
    search: Search,
    keys: Array,
    carry: Carry,
    history: Array,
    first: Array,
    start: Array,
    end: Array,
    evaluation: CandidateEvaluation | None = None,
) -> tuple[Carry, Array]:
    """Compute the generations of a chunk that belong to its rows `start` to `end` - 1; write these rows of `history`.

    first: number of the generation of row 0. evaluation: see `Search.generation`.
    """

    def body(i: Array | int, both: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, history = both
        number = first + i
        carry, row = search.generation(carry, _fold_all(keys, number), number, evaluation=evaluation)
        return carry, lax.dynamic_update_index_in_dim(history, row, i, axis=0)

    if carry.stop_state is None:
        return lax.fori_loop(start, end, body, (carry, history))

    def goes_on(at: tuple[Array, tuple[Carry, Array]]) -> Array:  # until the last run is finished
        i, (carry, _) = at
        assert carry.stop_state is not None
        return (i < end) & jnp.any(carry.stop_state.stop_columns[:, searching.REASON] == RUNNING)

    return lax.while_loop(goes_on, lambda at: (at[0] + 1, body(*at)), (start, (carry, history)))[1]


def _evaluate_candidates(
    objective: TracedObjective, consts: Constants, candidates: Array, place: Array
) -> CandidateEvaluation:
    return searching.evaluate_isolated(objective, consts, candidates, place[0] + place[1])


def _step_generation(
    search: Search, keys: Array, carry: Carry, history: Array, place: Array, evaluation: CandidateEvaluation
) -> tuple[Carry, Array]:
    """Compute one generation, whose candidates have been evaluated. place: [generation of row 0, row of history]."""
    return _iterate(search, keys, carry, history, place[0], place[1], place[1] + 1, evaluation)


def _static_chunk(length: int, search: Search, keys: Array, carry: Carry, first: Array) -> tuple[Carry, Array, Array]:
    """Compute `length` generations from number `first` on; the length is static."""
    # drawn ahead, since in the loop it would be a kernel of its own
    generation_keys = jax.vmap(partial(_fold_all, keys))(first + jnp.arange(length, dtype=jnp.int32))

    def body(ends: bool | None, i: Array | int, carry_and_history: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, history = carry_and_history
        keys_now = lax.dynamic_index_in_dim(generation_keys, i, keepdims=False)
        carry, row = search.generation(carry, keys_now, first + i, ends)
        return carry, lax.dynamic_update_index_in_dim(history, row, i, axis=0)

    size = search.round

    def rounds(i: Array | int, carry_and_history: tuple[Carry, Array]) -> tuple[Carry, Array]:
        """Compute a round of generations, after which the program may branch without asking the host."""
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


def _fold_all(keys: Array, number: Array | int) -> Array:
    """Return the keys (R, 2) of a generation."""
    return jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)


def _zero_history(search: Search, rows: int, keys: Array, carry: Carry) -> Array:
    return jnp.zeros((rows, search.columns.width, keys.shape[0]), carry.state.candidates.dtype)


def _split_into_chunks(first: int, count: int, period: int, size: int, longest: int) -> list[tuple[int, int]]:
    """Split generations into chunks (first number, length) of the lengths that programs are compiled for.

    Whole rounds of `size` generations stay together, so that the program knows where they end. A chunk that begins
    within a round ends with it: generation by generation where an algorithm has a period, else by any of the lengths.
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
    """Return the maximum length of a chunk on a CPU; its history is allocated, and failures are counted in 32 bits."""
    return min(max(64, min(1024, 2**13 // runs)), max(1, 2**31 // population))


def _max_gpu_chunk(steps: int, genes: int) -> int:
    """Return the maximum length of a chunk on a GPU, from the least time of a generation: launches and memory traffic.

    It follows from sizes and never from a clock, so that a run is the same program every time.
    """
    seconds = 3e-6 * (10 + steps) + genes * 1e-11
    return max(1, min(LENGTHS[0], int(MAX_GPU_CHUNK_SECONDS / seconds)))


MAX_FUSED_SIZE = 2**22  # population x variables of a run up to which one kernel is faster (docs/fused.md)


class EngineChoice(NamedTuple):
    """The engine of a task and the reason for it, as a Result reports them."""

    name: str  # "xla", "fused", "native", or "host" for functions that are called
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def select_engine(task: Task, clock: CompileTimer) -> EngineChoice:
    """Select the engine for a task; refuse a requested one that cannot compute it. clock: measures compile time."""
    requested = task.engine
    if task.options.blackbox:
        if requested in ("fused", "native"):
            raise InputError(
                f'engine="{requested}" compiles the functions, and these are called as plain Python: leave engine out.'
            )
        return EngineChoice("host", "the functions are called as plain Python")
    if requested == "xla":
        return EngineChoice("xla", "as asked")
    if task.options.noisy:
        if requested != "auto":
            raise InputError(
                f'engine="{requested}" has no keys of JAX, which a random objective takes: leave engine out.'
            )
        return EngineChoice("xla", "the objective is random")
    if task.n_devices:
        reason = (
            f"{task.n_devices} devices share the population" if task.n_devices > 1 else "one device: nothing to spread"
        )
        return EngineChoice("xla", reason)
    if task.options.islands is not None:
        if requested != "auto":
            raise InputError(
                f'engine="{requested}" makes each run by itself, and islands exchange individuals: leave engine out.'
            )
        return EngineChoice("xla", "islands exchange individuals")
    if requested == "auto" and (why := _why_not_fused(task)):
        return EngineChoice("xla", why)
    from galapax.fused.array_ir import NotFusible

    try:
        _compile_fused_kernel(task, "native" if requested == "native" else "fused", clock)
    except (NotFusible, RuntimeError) as error:
        if requested == "auto":
            return EngineChoice("xla", str(error))
        raise InputError(f'engine="{requested}" cannot make this run: {error}. engine="auto" can.') from None
    return EngineChoice("fused", "one kernel is faster") if requested == "auto" else EngineChoice(requested, "as asked")


def _why_not_fused(task: Task) -> str:
    """Return why a fused kernel would not be faster; "" where it may be. Imports nothing of its compiler."""
    if devices.platform() != "gpu":
        return f"runs on the {devices.platform().upper()}"
    if task.solvers[0].traits.multi_objective:  # benchmarks/gpu.py --only fronts
        return "a front is ranked faster by many kernels"
    size = task.population * task.problem.dim
    if size > MAX_FUSED_SIZE:
        return f"for {size} numbers a generation one kernel is no faster"
    n_devices = len(devices.local_devices())
    return f"{n_devices} devices share the runs" if n_devices > 1 and task.total > 1 else ""


def _compile_fused_kernel(task: Task, engine: str, clock: CompileTimer) -> None:
    """Generate and compile the kernel, which is then cached; raise NotFusible where that is impossible."""
    from galapax.fused import cpu_kernel, cuda
    from galapax.fused.array_ir import NotFusible

    if engine == "fused":
        cuda.current_device()
    elif not devices.on_cpu():
        kind = devices.default_device().device_kind
        raise NotFusible(f"native kernels need JAX on a CPU (JAX_PLATFORMS=cpu), and JAX runs on {kind}")
    elif cpu_kernel.find_compiler() is None:
        raise NotFusible("no C compiler was found on this machine")
    with jax.enable_x64(task.dtype == "float64"):
        _compile_kernel(task.search(), task.total, engine, clock)


def _compile_kernel(search: Search, runs: int, engine: str, clock: CompileTimer) -> None:
    from galapax.fused.backend import compile_kernel

    compile_kernel(search, runs, engine == "native", clock)


def build_engine(task: Task, search: Search, clock: CompileTimer, width: int, runs: int) -> CompiledEngine:
    """Build the engine of some runs; a larger population may need another backend. search: of `runs` runs."""
    threads = task.options.compute.threads or 1
    backend: Backend = XlaBackend(search, clock, width, task.steps, threads)
    if task.engine in ("fused", "native"):
        from galapax.fused.array_ir import NotFusible
        from galapax.fused.backend import KernelBackend

        with contextlib.suppress(NotFusible):
            _compile_kernel(search, runs, task.engine, clock)
            backend = KernelBackend(search, clock, width, task.steps, task.engine == "native", threads)
    return CompiledEngine(backend, clock)
