"""The engine for traced objectives: chunks of generations compiled by a backend, XLA or the fused compiler.

`select_engine` decides which backend a task gets and says why. The fused compiler is imported only when it is needed.
"""

from __future__ import annotations

import contextlib
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
from galapax.execution.search import Carry, Finished, Search, TracedObjective
from galapax.execution.state import restore_arrays, summarize_chunk
from galapax.execution.task import Task
from galapax.numerics import devices, random
from galapax.numerics.compile_cache import PROGRAMS, STEPS, UNCHECKED_BYTES, CompileTimer, Program, ProgramCall
from galapax.numerics.devices import device_put_cached, map_on_threads
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


Pace = tuple[int, float]  # generations of a chunk, and its seconds


class Backend(Protocol):
    """How a `CompiledEngine` computes the chunks of its slices: by XLA, or by a kernel of the fused compiler."""

    threads: int  # that compute slices at once
    max_generations: int  # of a chunk

    def assign_devices(self, slices: list[Slice]) -> None:
        """Set the device of each slice."""

    def can_precompile(self, slice_: Slice) -> bool:
        """Return whether the programs of a slice can be compiled before it begins."""

    def init_program(self, slice_: Slice) -> ProgramCall:
        """Return the program that computes the first carry of a slice, called with search, keys and initial points."""

    def load(self, slice_: Slice) -> None:
        """Prepare what the chunks of a slice with a carry need besides it, such as a kernel."""

    def precompile_chunk(self, slice_: Slice, clock: CompileTimer) -> Iterator[None]:
        """Compile what the first chunk of a slice needs, a program at each step."""

    def pace(self, slices: list[Slice]) -> Pace:
        """Return the pace of the same program when it last ran; (0, 0) if it has not."""

    def plan(self, length: int, seconds: float) -> int:
        """Return how many generations the next chunk has, given the length and the seconds of the previous one."""

    def advance(self, slices: list[Slice], first: int, count: int) -> Sequence[Sequence[Array | np.ndarray]]:
        """See `Engine.advance`."""


class CompiledEngine:
    """An Engine whose chunks of generations are compiled by a backend."""

    def __init__(self, backend: Backend, clock: CompileTimer) -> None:
        self.backend, self.clock = backend, clock
        self.max_generations = backend.max_generations
        self.pace, self.plan, self.advance = backend.pace, backend.plan, backend.advance

    def begin(self, slices: list[Slice]) -> None:
        self.backend.assign_devices(slices)
        for group in group_by_device(slices):
            _put_on_device(group)

        def init(slice_: Slice, program: Program, arguments: tuple[Any, ...]) -> None:
            slice_.carry = program(*arguments)

        map_slices(self.backend.threads, slices, self.backend.init_program, self.clock.program, init)
        for slice_ in slices:
            self.backend.load(slice_)

    def memory(self) -> None:
        return None

    def restore(self, slices: list[Slice], carries: list[list[np.ndarray]]) -> None:
        self.begin(slices)
        for slice_, arrays in zip(slices, carries, strict=True):
            slice_.carry = restore_arrays(slice_.carry, arrays, slice_.device)

    def finish(self, slices: list[Slice]) -> list[Finished]:
        calls = [_finish_program(slice_, device_put_cached(slice_.cell_ids, slice_.device)) for slice_ in slices]
        keys = [(slice_.n_cells, slice_.device) for slice_ in slices]
        programs = {key: self.clock.program(call) for key, call in dict(zip(keys, calls, strict=True)).items()}

        def finish(i: int) -> Finished:
            return programs[keys[i]](*calls[i].arguments)

        return map_on_threads(self.backend.threads, finish, range(len(slices)))

    def survivors(self, slice_: Slice) -> Population:
        return self.clock.call(searching.survivors, (), slice_.carry)

    def precompile(self, slice_: Slice) -> Iterator[None]:
        if not self.backend.can_precompile(slice_):
            return
        clock = CompileTimer(waits=False)
        _put_on_device([slice_])
        init_program = clock.program(self.backend.init_program(slice_))
        yield
        slice_.carry = init_program.zeros_like_output()
        self.backend.load(slice_)
        yield from self.backend.precompile_chunk(slice_, clock)
        clock.program(_finish_program(slice_, device_put_cached(slice_.cell_ids)))


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
        self.has_step_programs = False
        self.on_cpu = devices.on_cpu()
        population, dim = search.algorithm.population, search.bounds.dim
        self.rows = _max_cpu_chunk(width, population)
        self.longest = _max_gpu_chunk(steps, width * population * dim)
        gpu_generations = MAX_GPU_GENERATIONS if self.longest == LENGTHS[0] else self.longest
        self.max_generations = self.rows if self.on_cpu else gpu_generations

    def assign_devices(self, slices: list[Slice]) -> None:
        available = devices.local_devices()
        for i, slice_ in enumerate(slices):
            slice_.device = available[i * len(available) // len(slices)] if len(available) > 1 else None
            if slice_.search.n_devices:
                slice_.device = NamedSharding(devices.make_mesh(slice_.search.n_devices), PartitionSpec())

    def can_precompile(self, slice_: Slice) -> bool:
        return self.on_cpu and not slice_.search.n_devices and len(devices.local_devices()) == 1

    def init_program(self, slice_: Slice) -> ProgramCall:
        search = slice_.search if slice_.search.has_start else slice_.search.without_generation()
        return ProgramCall(Search.init_and_start, (), (search, slice_.keys, slice_.initial))

    def load(self, slice_: Slice) -> None:
        """Do nothing: a chunk needs the carry alone."""

    def precompile_chunk(self, slice_: Slice, clock: CompileTimer) -> Iterator[None]:
        chunk = self._cpu_chunk(slice_, np.zeros(2, np.int32))
        if not slice_.search.isolates_evaluation:
            clock.program(chunk)
            yield
        elif PROGRAMS.find(chunk) is None:
            yield from self._compile_steps(slice_, clock)

    def _compile_steps(self, slice_: Slice, clock: CompileTimer) -> Iterator[None]:
        """Compile the programs of `_step`, one at each step of the iterator; the slice gets another carry."""
        place, history = np.zeros(2, np.int32), self._zero_rows(slice_)
        evaluation = clock.program(_evaluate_program(slice_, place)).zeros_like_output()
        yield
        step = clock.program(_step_program(slice_, history, place, evaluation))
        yield
        slice_.carry, rows = step.zeros_like_output()
        clock.program(_summary_program(slice_, rows, np.int32(1)))
        yield

    def pace(self, slices: list[Slice]) -> Pace:
        search, self.n_slices = slices[0].search, len(slices)
        shape = len(slices), self.threads, len(slices[0].cells), search.bounds.dim, search.bounds.lower.dtype
        self.program_key = (jax.tree.structure(search), *shape)
        return _paces.get(self.program_key, (0, 0.0))

    def plan(self, length: int, seconds: float) -> int:
        if not self.on_cpu:
            return self.max_generations
        if length == 0:
            return 1  # a generation may take long: time the first before asking for more
        if not self.is_stepping:
            _remember_pace(self.program_key, length, seconds)
        min_seconds = CALL_SECONDS * self.n_slices / min(self.n_slices, self.threads)
        target_seconds = max(CHUNK_SECONDS, min(min_seconds, MAX_CHUNK_SECONDS))
        return max(1, min(self.rows, int(length * min(8.0, target_seconds / max(seconds, 1e-9)))))

    def advance(self, slices: list[Slice], first: int, count: int) -> Sequence[Sequence[Array | np.ndarray]]:
        self.n_slices = len(slices)
        if not self.on_cpu:
            n_devices = len(group_by_device(slices))
            return map_on_threads(n_devices, lambda slice_: self._static_chunks(slice_, first, count), slices)
        span = np.array([first, count], np.int32)  # one transfer

        may_step = slices[0].search.isolates_evaluation and slices[0].device is None
        chunk_program = self._chunk_program(slices[0], span) if may_step else None
        self.is_stepping = may_step and chunk_program is None
        if self.is_stepping:
            if len(slices) > 1 and not self.has_step_programs:  # before several threads need them
                list(self._compile_steps(replace(slices[0]), self.clock))
                self.has_step_programs = True
            return map_on_threads(self.threads, lambda slice_: [self._step(slice_, span)], slices)

        def compile_chunk(call: ProgramCall) -> Program:
            return chunk_program or self.clock.program(call)

        def advance(slice_: Slice, program: Program, arguments: tuple[Any, ...]) -> Sequence[Array | np.ndarray]:
            slice_.carry, rows, summary = program(*arguments)
            slice_.last_rows = [rows]
            return [np.asarray(summary)]  # waits, so that a thread has one slice in its core's cache

        return map_slices(self.threads, slices, partial(self._cpu_chunk, span=span), compile_chunk, advance)

    def _chunk_program(self, slice_: Slice, span: np.ndarray) -> Program | None:
        """Return the program of a slice's chunks, if it is there or worth compiling, see `StepSchedule`."""

        def idle_call() -> ProgramCall:  # the slice's carry is overwritten meanwhile
            carry = jax.device_put(jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), slice_.carry))
            return self._cpu_chunk(replace(slice_, carry=carry), span)

        return STEPS.program(self._cpu_chunk(slice_, span), self.clock, idle_call)

    def _step(self, slice_: Slice, span: np.ndarray) -> np.ndarray:
        """Compute a slice's chunk generation by generation; return its summary.

        The bits are those of the chunk's program: the evaluation is compiled apart from the rest there, too, and the
        rest is the same loop around it.
        """
        (first, count), history = span, self._zero_rows(slice_)
        place = np.array([first, 0], np.int32)
        evaluate_call = _evaluate_program(slice_, place)
        evaluate, consts = self.clock.program(evaluate_call), slice_.search.consts
        evaluation = evaluate(*evaluate_call.arguments)
        step = self.clock.program(_step_program(slice_, history, place, evaluation))
        search, n_generations = slice_.search.without_objective(), 0
        with STEPS.timing(self._cpu_chunk(slice_, span), self.clock):
            for i in range(count):
                slice_.carry, history = step(search, slice_.keys, slice_.carry, history, place, evaluation)
                n_generations = i + 1
                if n_generations == count or _has_ended(slice_.carry):
                    break
                place = np.array([first, i + 1], np.int32)
                evaluation = evaluate(consts, slice_.carry.state.candidates, place)
        summary_call = _summary_program(slice_, history, np.int32(n_generations))
        rows, summary = self.clock.program(summary_call)(*summary_call.arguments)
        slice_.last_rows = [rows]
        return np.asarray(summary)

    def _zero_rows(self, slice_: Slice) -> np.ndarray:
        """Return an empty history of a chunk."""
        return np.zeros((self.rows, slice_.columns.width, len(slice_.cells)), slice_.search.bounds.lower.dtype)

    def _cpu_chunk(self, slice_: Slice, span: np.ndarray) -> ProgramCall:
        """Return the program of a slice's chunks on a CPU, of any length."""
        arguments = (slice_.search, slice_.keys, slice_.carry, span)
        return ProgramCall(_chunk, (self.rows,), arguments, (2,), slice_.search.algorithm.traits.fast_compile)

    def _static_chunks(self, slice_: Slice, first: int, count: int) -> list[Array]:
        """Compute a slice's generations by chunks of the lengths that programs are compiled for."""
        options = GPU_OPTIONS if devices.platform() == "gpu" else None
        pieces, summaries = [], []
        for start, length in _split_into_chunks(
            first, count, slice_.search.algorithm.period, slice_.search.round, self.longest
        ):
            arguments = (slice_.search, slice_.keys, slice_.carry, device_put_cached(np.int32(start), slice_.device))
            slice_.carry, rows, summary = self.clock.call(
                _static_chunk, (length,), *arguments, donate=(2,), options=options
            )
            pieces.append(rows)
            summaries.append(summary)
        slice_.last_rows = pieces
        return summaries


Output = TypeVar("Output")


def map_slices(
    threads: int,
    slices: list[Slice],
    call: Callable[[Slice], ProgramCall],
    compile_: Callable[[ProgramCall], Program],
    work: Callable[[Slice, Program, tuple[Any, ...]], Output],
) -> list[Output]:
    """Return work(slice, program, arguments) of every slice, computed on threads; slices on one device share their
    program. call: of a slice. compile_: returns the program of a call.
    """
    calls = [call(slice_) for slice_ in slices]
    programs = {
        device: compile_(call) for device, call in {s.device: c for s, c in zip(slices, calls, strict=True)}.items()
    }
    if devices.on_cpu():
        threads = _threads_that_fit(threads, max(each.working_bytes for each in programs.values()))

    def work_on(i: int) -> Output:
        return work(slices[i], programs[slices[i].device], calls[i].arguments)

    return map_on_threads(threads, work_on, range(len(slices)))


def _finish_program(slice_: Slice, cells: Array) -> ProgramCall:
    """Return the program that extracts the results of a slice."""
    arguments = (slice_.search.without_generation(), slice_.carry, cells)
    return ProgramCall(searching.finish, (slice_.n_cells,), arguments)


def _evaluate_program(slice_: Slice, place: np.ndarray) -> ProgramCall:
    """Return the program that evaluates the candidates of a slice. place: see `_step_generation`."""
    search = slice_.search
    assert slice_.carry is not None
    arguments = (search.consts, slice_.carry.state.candidates, place)
    quick = search.algorithm.traits.fast_compile
    return ProgramCall(_evaluate_candidates, (search.objective,), arguments, quick=quick)


def _step_program(
    slice_: Slice, history: np.ndarray, place: np.ndarray, evaluation: CandidateEvaluation
) -> ProgramCall:
    """Return the program that completes a generation whose candidates are evaluated, and writes its row of history."""
    search = slice_.search.without_objective()
    arguments = (search, slice_.keys, slice_.carry, history, place, evaluation)
    return ProgramCall(_step_generation, (), arguments, (2, 3), search.algorithm.traits.fast_compile)


def _summary_program(slice_: Slice, history: Array | np.ndarray, count: np.int32) -> ProgramCall:
    """Return the program that summarises a chunk whose generations were computed one by one."""
    assert slice_.carry is not None
    stop_state = slice_.carry.stop_state
    if stop_state is not None:  # no population, so that it is the same program for every algorithm
        stop_state = stop_state._replace(state=None)
    return ProgramCall(summarize_chunk, (slice_.search.columns,), (history, count, stop_state))


def _has_ended(carry: Carry) -> bool:
    """Return whether all runs of a slice have ended."""
    if carry.stop_state is None:
        return False
    return bool((np.asarray(carry.stop_state.stop_columns)[:, searching.REASON] != RUNNING).all())


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


def group_by_device(slices: list[Slice]) -> list[list[Slice]]:
    """Return the slices of each device."""
    groups: dict[Hashable, list[Slice]] = {}
    for slice_ in slices:
        groups.setdefault(slice_.device, []).append(slice_)
    return list(groups.values())


def _put_on_device(slices: list[Slice]) -> None:
    """Transfer what slices share, and what each has for itself, to their device at once."""
    search = slices[0].search
    # some rules differ from run to run where runs restart
    per_slice = [(s.search.algorithm, s.keys, s.initial, s.search.rules.by_row()) for s in slices]
    (bounds, rules, consts), per_slice = device_put_cached(
        ((search.bounds, search.rules, search.consts), per_slice), slices[0].device
    )
    for slice_, (algorithm, keys, initial, rules_by_row) in zip(slices, per_slice, strict=True):
        slice_.keys, slice_.initial = keys, initial
        slice_rules = rules._replace(**rules_by_row)
        slice_.search = replace(slice_.search, algorithm=algorithm, bounds=bounds, rules=slice_rules, consts=consts)


def _chunk(rows: int, search: Search, keys: Array, carry: Carry, span: Array) -> tuple[Carry, Array, Array]:
    """Compute `span[1]` generations from number `span[0]` on, at most `rows`: the carry, their history and summary."""
    history = _zero_history(search, rows, keys, carry)
    carry, history = _iterate(search, keys, carry, history, span[0], jnp.int32(0), span[1])
    return carry, *summarize_chunk(search.columns, history, span[1], carry.stop_state)


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

    def body(i: Array | int, loop_state: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, history = loop_state
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
    return carry, *summarize_chunk(search.columns, history, jnp.int32(length), carry.stop_state)


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


MAX_FUSED_FRONT_RATIO = 8  # of several runs only fronts so many times smaller were measured, and faster by one kernel
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
    traits = task.solvers[0].traits
    if traits.multi_objective:  # benchmarks/gpu.py --only fronts
        has_intrinsic = task.shape.objectives == 2 and not task.shape.constrained
        limit = traits.max_fused_front if task.total == 1 else traits.max_fused_front // MAX_FUSED_FRONT_RATIO
        if not has_intrinsic or task.population > limit:
            return "such a front is ranked faster by many kernels"
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
