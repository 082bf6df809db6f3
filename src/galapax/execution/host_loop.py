"""The host loop, the same for every engine: runs chunks of generations and calls the observers between them.

A chunk runs without the host. Between chunks come progress, callback, Ctrl-C, the deadline and the live page. The runs
of an ensemble are cut into slices (see arguments.py), which advance chunk by chunk.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from jax import Array

from galapax.core.errors import InputError
from galapax.core.problem import Columns, Population
from galapax.core.stop import RUNNING, STOP_CODES, Interrupts, Stop
from galapax.execution.arguments import KnownPoints
from galapax.execution.observers import ChunkView
from galapax.execution.search import Carry, Finished, Search
from galapax.execution.state import (
    BatchCheckpoint,
    CheckpointWriter,
    Chunk,
    DeviceChunk,
    Outcome,
    Track,
    arrays_to_host,
    build_outcome,
    concatenate_chunks,
    join_runs,
    keep_on_device,
    merge_snapshots,
    take_runs,
    to_host,
    truncate,
)
from galapax.numerics.compile_cache import CompileTimer
from galapax.objective.blackbox import BlackBox

if TYPE_CHECKING:
    from galapax.execution.observers import Viewer


@dataclass
class Slice:
    """Runs of a batch that one program computes, with their state.

    Every slice of an ensemble has the same number of rows; the last is filled up with copies of its last run.
    """

    search: Search
    keys: Array | np.ndarray  # (S, 2)
    cells: np.ndarray  # (S,), which runs share their hyper-parameters
    run_numbers: np.ndarray  # (S,)
    initial: Array | np.ndarray | None  # starting points (k, d), (S, k, d), or None
    known: KnownPoints | None  # for an algorithm that learns from them
    active_rows: np.ndarray  # the rows to compute; the others fill the slice up
    device: jax.Device | jax.sharding.Sharding | None = None  # or devices that share its populations
    carry: Carry | None = None
    track: Track = field(default_factory=lambda: Track.start(0))
    history: list[Chunk] = field(default_factory=list)  # rows (g, columns, S)
    last_rows: list[Array] = field(default_factory=list)  # of history, the last chunk's, in pieces, on the device

    @property
    def columns(self) -> Columns:
        return self.search.columns

    @property
    def n_cells(self) -> int:
        """How many cells its runs belong to."""
        return int(self.cells[-1] - self.cells[0]) + 1

    @property
    def cell_ids(self) -> np.ndarray:
        """The cells of its rows, from 0; -1 for rows that are not active."""
        cells = (self.cells - self.cells[0]).astype(np.int32)
        if len(self.active_rows) == len(cells):
            return cells
        cell_ids = np.full(len(cells), -1, np.int32)
        cell_ids[self.active_rows] = cells[self.active_rows]
        return cell_ids

    @property
    def active_track(self) -> Track:
        """The tracks of its active rows."""
        return self.track if len(self.active_rows) == len(self.cells) else take_runs(self.track, self.active_rows)


class Engine(Protocol):
    """Computes the generations of slices."""

    clock: CompileTimer  # how long it waited for the compiler
    max_generations: int  # of a chunk

    def begin(self, slices: list[Slice]) -> None:
        """Initialise the carries of slices."""

    def memory(self) -> dict[str, object] | None:
        """Return the engine's own state for a checkpoint, as plain data; None if it has none."""

    def restore(self, slices: list[Slice], carries: list[list[np.ndarray]]) -> None:
        """Restore the carries of slices from a checkpoint."""

    def pace(self, slices: list[Slice]) -> tuple[int, float]:
        """Return generations and seconds of the fastest chunk of the same program; (0, 0) if it has not run yet."""

    def plan(self, length: int, seconds: float) -> int:
        """Return how many generations the next chunk has, given the length and the seconds of the previous one."""

    def advance(self, slices: list[Slice], first: int, count: int) -> Sequence[Sequence[Array | np.ndarray]]:
        """Compute `count` generations of each slice from number `first` on.

        Sets `last_rows`, the rows of history (at least count, columns, S), and returns packed chunk summaries of each
        slice, in order, without waiting for the device.
        """

    def finish(self, slices: list[Slice]) -> list[Finished]:
        """Return the results of the slices' runs."""

    def survivors(self, slice_: Slice) -> Population:
        """Return the survivors of a slice's runs, (S, n, ...)."""

    def precompile(self, slice_: Slice) -> Iterator[None]:
        """Compile the programs that a slice will need, one at each step of the iterator; nothing is computed.

        Ends where another thread is compiling them.
        """


def _identity(track: Track) -> Track:
    return track


@dataclass(frozen=True)
class BatchView:
    """How the rows of a batch are reported to the observers: as runs of the task.

    offset: generations that these runs computed before the batch. to_runs: turns the tracks of its rows into those of
    runs. read_survivors: reads the population of one of these runs. finished: outcomes of runs that are over and not
    among them. follows_runs: whether the live page, too, is shown runs instead of rows.
    """

    offset: int = 0
    to_runs: Callable[[Track], Track] = _identity
    read_survivors: Callable[[ChunkView, int], Population] = ChunkView.population
    finished: tuple[Outcome, ...] = ()
    follows_runs: bool = False


Notify = Callable[[int, Track, Sequence[Outcome]], Stop | None]


@dataclass
class RunContext:
    """What all batches of a call share: the compile timer, the black box, and what the host checks between chunks.

    That is Ctrl-C, deadline, callback, snapshots, live page and checkpoint.
    """

    interrupts: Interrupts
    clock: CompileTimer
    box: BlackBox | None = None
    deadline: float | None = None  # by time.perf_counter
    on_batch_start: Callable[[int], None] = lambda first_run: None  # called with the number of the batch's first run
    on_search: Callable[[str, int], None] = lambda algorithm, generation: None  # before a search of a run that restarts
    notify: Notify | None = None  # called with generation, tracks, outcomes of finished runs; may return why to stop
    callback: bool = False  # there is a user's callback: the first chunk is one generation where chunks are timed
    pace: int | None = None  # generations between two calls of the user's callback
    read_survivors: Callable[[int], Population] | None = None  # of a run, as genes, until the next chunk
    snapshots: Sequence[int] = ()  # generations of a run after which whole populations are kept, in order
    viewer: Viewer | None = None
    requested_stop: Stop | None = None  # what `notify` returned last
    journal: CheckpointWriter | None = None
    pending: Callable[[], BatchCheckpoint] = lambda: BatchCheckpoint(
        0, [], [], [], {}
    )  # the state of the batch before the chunk that is running
    restored: bool = False  # some generations were read from a checkpoint and took no time
    paused_seconds: float = 0.0  # by the viewer; they do not count against the deadline

    @property
    def is_past_deadline(self) -> bool:
        return self.deadline is not None and time.perf_counter() >= self.deadline + self.paused_seconds

    def may_continue(self) -> bool:
        """Return whether neither Ctrl-C nor the deadline asks to stop."""
        return not (self.interrupts.seen or self.is_past_deadline)

    def poll(self) -> bool:
        """Return whether the deadline has passed, between two evaluations of a black box.

        A generation may take hours, so the evaluations so far are saved, too, when a checkpoint is due.
        """
        if self.journal is not None and self.journal.due(0):
            self.journal.save(self.pending())
        return self.is_past_deadline

    @contextmanager
    def saving_calls(self) -> Iterator[None]:
        """Save the calls of a black box that were made before an error, as a resumed run need not make them again."""
        try:
            yield
        except Exception:
            if self.journal is not None and self.pending().box is not None:
                self.journal.save(self.pending())
            raise


class ChunkHook(Protocol):
    """An action between chunks, such as a migration; processes that share it keep step and stop together.

    See execution/island_schedule.py.
    """

    lockstep: bool  # every process makes the same chunks

    def generations_until(self, generation: int) -> int:
        """Return the maximum length of the next chunk, so that it ends where the action is due."""

    def is_due(self, generation: int) -> bool:
        """Return whether the action is due after generation `made`."""

    def migrate(self, clock: CompileTimer, slices: list[Slice], generation: int) -> None:
        """Exchange individuals between the slices."""

    def local_part(self, checkpoint: Outcome | BatchCheckpoint | None) -> Outcome | BatchCheckpoint | None:
        """Return this process's share of a batch's checkpoint."""

    def all_gather(self, track: Track) -> Track:
        """Gather the tracks of all processes' slices."""

    def agree_on_stop(self, stop: Stop | None) -> Stop | None:
        """Return why all processes stop, if one of them does."""


def run_batch(
    engine: Engine,
    slices: list[Slice],
    *,
    limit: int,
    context: RunContext,
    keep_history: bool,
    view: BatchView,
    between: ChunkHook | None = None,
) -> Outcome:
    """Run slices side by side until every run is finished or something asks to stop."""
    watched_generations = tuple(g - view.offset for g in context.snapshots if g > view.offset)
    checkpoint = context.journal.begin_batch() if context.journal is not None else None
    if between is not None:
        checkpoint = between.local_part(checkpoint)
    context.restored = context.restored or checkpoint is not None
    if isinstance(checkpoint, Outcome):
        _check_not_extended(checkpoint.track, limit)
        return checkpoint
    context.pending = lambda: _checkpoint_now(engine, slices, 0, {})
    generation = _begin_or_restore(engine, slices, checkpoint)
    snapshots: dict[int, list[Population]] = {} if checkpoint is None else dict(checkpoint.snapshots)
    track = join_runs([slice_.active_track for slice_ in slices])
    track = track if between is None else between.all_gather(track)
    device_seconds, (length, seconds) = 0.0, (0, 0.0) if context.callback else engine.pace(slices)
    if generation >= limit or bool((track.reason != RUNNING).all()):  # the checkpoint was written at its end
        unreached = [g for g in watched_generations if g > generation]
        return _finish_batch(engine, slices, context, snapshots, unreached, None, device_seconds, None)
    while True:
        next_snapshots = watched_generations[bisect_right(watched_generations, generation) :][:1]
        length = _plan_chunk(engine, context, between, generation, min([limit, *next_snapshots]), (length, seconds))
        if context.journal is not None:  # used by the host engine alone: compiled ones overwrite the carries
            before_chunk = [replace(b, history=list(b.history)) for b in slices]
            context.pending = partial(_checkpoint_now, engine, before_chunk, generation, dict(snapshots))
        if between is not None and between.is_due(generation):
            between.migrate(engine.clock, slices, generation)
        start = time.perf_counter()
        running = [slice_ for slice_ in slices if (slice_.active_track.reason == RUNNING).any()]
        compile_seconds_before = engine.clock.compile_seconds
        with context.saving_calls() if not generation else nullcontext():
            finished = _advance(
                engine, slices, running, generation + 1, length, keep_history, generation + length >= limit
            )
        before, track = track, join_runs([slice_.active_track for slice_ in slices])
        if between is not None:
            track = between.all_gather(track)
        seconds = time.perf_counter() - start - (engine.clock.compile_seconds - compile_seconds_before)
        device_seconds += seconds
        generation += length
        is_over = generation >= limit or bool((track.reason != RUNNING).all())
        stop = _notify_observers(context, view, generation, before, track, slices, is_over)
        if between is not None:
            stop = between.agree_on_stop(stop)
        is_last = is_over or stop is not None
        if generation in next_snapshots:
            _take_snapshots(engine, slices, snapshots, [generation])
        if context.journal is not None and (is_last or context.journal.due(generation)):
            # by Ctrl-C or the deadline, within the generation
            was_cut_short = any(slice_.track.skipped.any() for slice_ in slices)
            context.journal.save(
                context.pending() if was_cut_short else _checkpoint_now(engine, slices, generation, snapshots)
            )
        if is_last:
            unreached = [g for g in watched_generations if g > generation]
            return _finish_batch(engine, slices, context, snapshots, unreached, stop, device_seconds, finished)


def _plan_chunk(
    engine: Engine,
    context: RunContext,
    between: ChunkHook | None,
    generation: int,
    limit: int,
    last_chunk: tuple[int, float],
) -> int:
    """Return how many generations the chunk after `generation` has. limit: the last generation that it may have.
    last_chunk: length and seconds of the one before.
    """
    length = engine.max_generations if between is not None and between.lockstep else engine.plan(*last_chunk)
    length = min(length, limit - generation)
    if context.viewer is not None:
        length = min(length, context.viewer.max_generations)
    if context.pace is not None:
        length = min(length, context.pace - generation % context.pace)
    return length if between is None else min(length, between.generations_until(generation))


def _check_not_extended(track: Track, limit: int) -> None:
    """Refuse more generations for a finished batch, whose populations are gone: only other batches would get them."""
    open_ended = track.generations[track.reason == RUNNING]
    if len(open_ended) and int(open_ended.max()) < limit:
        raise InputError(
            f"the first {len(track.best)} runs of this checkpoint ended at their limit of {int(open_ended.max())} "
            f"generations and were computed in parts, so they cannot be given {limit}: continue with the limit that "
            "they had, or start again."
        )


def _begin_or_restore(engine: Engine, slices: list[Slice], checkpoint: BatchCheckpoint | None) -> int:
    """Begin a batch or restore it from its checkpoint; return how many generations it has made."""
    if checkpoint is None or not checkpoint.generation:
        for slice_ in slices:
            slice_.track = Track.start(len(slice_.cells))
        engine.begin(slices)
        return 0
    engine.restore(slices, checkpoint.carries)
    for slice_, track, rows in zip(slices, checkpoint.tracks, checkpoint.history, strict=True):
        slice_.track, slice_.history = track, [] if rows is None else [rows]
    return checkpoint.generation


def _checkpoint_now(
    engine: Engine, slices: list[Slice], generation: int, snapshots: dict[int, list[Population]]
) -> BatchCheckpoint:
    """Return the state of a batch, copied to the host; before its first generation only its sizes are needed."""
    if not generation:
        return BatchCheckpoint(0, [], [], [], {}, engine.memory(), *_batch_sizes(slices))
    history = [concatenate_chunks(slice_.history) for slice_ in slices]
    for slice_, rows in zip(slices, history, strict=True):
        slice_.history = [] if rows is None else [rows]
    carries, tracks = [arrays_to_host(slice_.carry) for slice_ in slices], [slice_.track for slice_ in slices]
    return BatchCheckpoint(
        generation, carries, tracks, history, dict(snapshots), engine.memory(), *_batch_sizes(slices)
    )


def _batch_sizes(slices: list[Slice]) -> tuple[int, int]:
    """Return the runs of all slices together, and the width of one."""
    return sum(len(slice_.active_rows) for slice_ in slices), len(slices[0].cells)


def _finish_batch(
    engine: Engine,
    slices: list[Slice],
    context: RunContext,
    snapshots: dict[int, list[Population]],
    unreached: list[int],
    stop: Stop | None,
    device_seconds: float,
    finished: list[Finished] | None,
) -> Outcome:
    """Build the outcome of a batch that is over.

    unreached: generations of snapshots after its last one. finished: the results of its runs, if they came with the
    last chunk.
    """
    _take_snapshots(engine, slices, snapshots, unreached)  # its last survivors, beside those of other batches
    finished = jax.device_get(engine.finish(slices)) if finished is None else finished
    outcomes = [build_outcome(slice_, slice_finished) for slice_, slice_finished in zip(slices, finished, strict=True)]
    total = Outcome.join(outcomes, stopped=stop, device_seconds=device_seconds)
    if snapshots:
        total = replace(total, snapshots=merge_snapshots([snapshots]))
    if context.journal is not None and stop is None:
        total = replace(total, history=to_host(total.history))
        context.journal.finish_batch(total)
    return total


def _advance(
    engine: Engine,
    slices: list[Slice],
    running: list[Slice],
    first: int,
    count: int,
    keep_history: bool,
    is_last: bool,
) -> list[Finished] | None:
    """Compute a chunk of every running slice, and fetch what the host needs of it in one transfer.

    is_last: no generation can follow, so that the results of the runs are fetched with it.
    """
    summaries: Any = engine.advance(running, first, count)
    last_rows = [slice_.last_rows for slice_ in running]
    fetch_history = keep_history and not keep_on_device(last_rows, [slice_.history for slice_ in slices])
    finished = engine.finish(slices) if is_last else None
    summaries, rows, finished = jax.device_get(
        (summaries, last_rows if fetch_history else None, finished)
    )  # waits for the device
    ends = np.cumsum([len(slice_.cells) for slice_ in running])
    for chunk_summaries in zip(
        *summaries, strict=True
    ):  # of all slices at once, as each small operation takes its time
        track = join_runs([slice_.track for slice_ in running]).add(
            chunk_summaries[0] if len(chunk_summaries) == 1 else np.concatenate(chunk_summaries, axis=1)
        )
        for slice_, end in zip(running, ends, strict=True):
            slice_.track = take_runs(track, slice(end - len(slice_.cells), end))
    for i, slice_ in enumerate(running if keep_history else []):
        slice_.history.append(truncate(rows[i], count) if fetch_history else DeviceChunk(slice_.last_rows, count))
    return finished


def _notify_observers(
    context: RunContext,
    view: BatchView,
    generation: int,
    before: Track,
    now: Track,
    slices: list[Slice],
    is_over: bool,
) -> Stop | None:
    """Call the observers after a chunk; return why to stop, if so."""
    generation = min(generation, int(now.generations.max()))  # all runs may have ended within the chunk
    stop = Stop.INTERRUPT if context.interrupts.seen else None
    chunk_view = ChunkView(slices)
    context.read_survivors = partial(view.read_survivors, chunk_view)
    context.requested_stop = None
    if context.notify is not None and stop is None:
        context.requested_stop = context.notify(view.offset + generation, view.to_runs(now), view.finished)
    if stop is None and (not is_over or _is_cut(now)):
        stop = context.requested_stop or (Stop.TIME if context.is_past_deadline else None)
    if context.viewer is None:
        return stop
    if view.follows_runs:
        generation, before, now = view.offset + generation, view.to_runs(before), view.to_runs(now)
    context.viewer.on_chunk(generation, before, now, chunk_view, stop is not None or is_over)
    if stop is None and not is_over:
        start = time.perf_counter()
        stop = context.viewer.wait_if_paused(lambda: context.interrupts.seen)
        stop = stop or (Stop.INTERRUPT if context.interrupts.seen else None)
        context.paused_seconds += time.perf_counter() - start
        if stop is not None:
            context.viewer.on_chunk(generation, before, now, chunk_view, True)
    return stop


def _is_cut(track: Track) -> bool:
    """Return whether some points of a run's last generation were counted but not evaluated."""
    spent = (track.reason == RUNNING) | (track.reason == STOP_CODES[Stop.BUDGET])
    return bool((spent & (track.skipped > 0)).any())


def _take_snapshots(
    engine: Engine, slices: list[Slice], snapshots: dict[int, list[Population]], generations: list[int]
) -> None:
    """Add the present survivors to the snapshots of these generations."""
    if not generations:
        return
    for slice_ in slices:
        survivors = jax.tree.map(lambda a: np.asarray(a)[slice_.active_rows], engine.survivors(slice_))  # noqa: B023 (used at once)
        for generation in generations:
            snapshots.setdefault(generation, []).append(survivors)
