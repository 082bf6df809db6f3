"""The host loop, the same for every engine: runs chunks of generations and calls the observers between them.

A chunk runs without the host. Between chunks come progress, callback, Ctrl-C, the deadline and the live page. The runs
of an ensemble are cut into slices (see slices.py), which advance chunk by chunk.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from galapax.core.errors import InputError
from galapax.core.evaluation import Columns, Population
from galapax.core.interrupts import Interrupts
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.execution.live_view import ChunkView
from galapax.execution.search import Carry, Finished, Search
from galapax.execution.state import (
    BatchCheckpoint,
    CheckpointWriter,
    Chunk,
    DeviceChunk,
    FinishedBatch,
    Outcome,
    Track,
    arrays_to_host,
    build_outcome,
    concatenate_chunks,
    keep_on_device,
    to_host,
    truncate,
)
from galapax.numerics.compile_cache import CompileTimer


@dataclass
class Slice:
    """Some runs of an ensemble, computed together, and where they stand.

    Every slice of an ensemble has the same number of runs; the last is filled up with copies of its last run.
    """

    search: Search
    keys: Any  # (S, 2)
    cells: np.ndarray  # (S,), which runs share their hyper-parameters
    initial: Any  # starting points (k, d), (S, k, d), or None
    wanted: np.ndarray  # the places of the runs that are; the others fill the slice up
    place: jax.Device | jax.sharding.Sharding | None = None  # the device, or devices, that compute it
    carry: Carry | None = None
    track: Track = field(default_factory=lambda: Track.start(0))
    history: list[Chunk] = field(default_factory=list)  # rows (g, columns, S)
    latest: list[Any] = field(default_factory=list)  # the last chunk's rows, in pieces, on the device

    @property
    def columns(self) -> Columns:
        return self.search.columns

    @property
    def span(self) -> int:
        """How many cells its runs reach over."""
        return int(self.cells[-1] - self.cells[0]) + 1

    @property
    def relative(self) -> np.ndarray:
        """The cells of its runs, from 0; -1 for those that are not wanted."""
        cells = (self.cells - self.cells[0]).astype(np.int32)
        if len(self.wanted) == len(cells):
            return cells
        cell_ids = np.full(len(cells), -1, np.int32)
        cell_ids[self.wanted] = cells[self.wanted]
        return cell_ids

    @property
    def known(self) -> Track:
        """Of the runs that are wanted."""
        return self.track if len(self.wanted) == len(self.cells) else self.track.rows(self.wanted)


class Engine(Protocol):
    """Computes the generations of slices."""

    clock: CompileTimer  # how long it waited for the compiler
    most: int  # generations of a chunk

    def begin(self, batches: list[Slice]) -> None:
        """Set their carries before the first generation."""

    def memory(self) -> Any:
        """Return the engine's own state for a checkpoint, as plain data; None if it has none."""

    def restore(self, batches: list[Slice], carries: list[list[np.ndarray]]) -> None:
        """Set their carries from a checkpoint, see execution/state.py."""

    def pace(self, batches: list[Slice]) -> tuple[int, float]:
        """Return generations and seconds of the fastest chunk of the same program; (0, 0) if it has not run yet."""

    def plan(self, length: int, seconds: float) -> int:
        """How many generations the next chunk has, from those of the last one and the seconds that it took."""

    def advance(self, batches: list[Slice], first: int, count: int) -> list[list[Any]]:
        """Make `count` generations of each slice from number `first` on, and leave the rows of history (at least count,
        columns, S) in its `latest`: packed tallies of each, in order, which nobody has waited for yet.
        """

    def finish(self, batches: list[Slice]) -> list[Finished]:
        """Return the results of their runs."""

    def survivors(self, batch: Slice) -> Population:
        """Of all its runs, (S, n, ...)."""

    def precompile(self, batch: Slice) -> Iterator[None]:
        """Make programs that a slice which has not begun will need, one after the other, as far as that can be done;
        nothing is computed. Ends where another thread is making them.
        """


class Viewer(Protocol):
    """Observer called between the chunks of a batch; may pause or stop it. Called in the run's thread."""

    max_generations: int  # generations that the next chunk may have

    def on_chunk(self, made: int, before: Track, now: Track, glance: ChunkView, last: bool) -> None:
        """After generation `made`. before, now: ahead of the chunk and after it. last: no chunk follows.

        What glance looks at is on the device, and the next chunk takes its memory.
        """

    def wait_if_paused(self, interrupted: Callable[[], bool]) -> Stop | None:
        """Return once the run may go on, or Ctrl-C came; an answer stops the run."""


@dataclass
class Watch:
    """Everything the host checks between chunks: Ctrl-C, deadline, callback, snapshots, live page and checkpoint."""

    interrupts: Interrupts
    deadline: float | None = None  # by time.perf_counter
    starts: Callable[[int], None] = lambda first_run: None  # told when a batch begins, with its first run's number
    on_search: Callable[[str, int], None] = lambda algorithm, generation: None  # before a search of a run that restarts
    notify: Callable[[int, Track], Stop | None] | None = None  # told (generation, track); an answer stops the run
    callback: bool = False  # the user's function is told, too: the first time after one generation where one is timed
    snapshots: tuple[int, ...] = ()  # generations after which whole populations are kept
    taken: dict[int, list[Population]] = field(default_factory=dict)  # those kept, (R, n, ...), one per slice
    viewer: Viewer | None = None
    asked: Stop | None = None  # what `notify` last answered, where that must be known afterwards
    journal: CheckpointWriter | None = None
    pending: Callable[[], BatchCheckpoint] = lambda: BatchCheckpoint(
        0, [], [], [], {}
    )  # where the batch stood before the chunk that is under way
    restored: bool = False  # some of it was read from a file: generations that took no time
    held: float = 0.0  # seconds that the viewer held the run up; they do not count against the deadline

    @property
    def late(self) -> bool:
        return self.deadline is not None and time.perf_counter() >= self.deadline + self.held

    def look(self) -> bool:
        """Between two evaluations of a black box: whether it is late; a generation may take hours, so what is known of
        it is noted, too.
        """
        if self.journal is not None and self.journal.due(0):
            self.journal.save(self.pending())
        return self.late


class ChunkHook(Protocol):
    """An action between chunks, such as a migration; processes that share it keep step and stop together.

    See execution/island_runs.py.
    """

    lockstep: bool  # every process makes the same chunks

    def generations_until(self, generation: int) -> int:
        """The most generations of the next chunk."""

    def is_due(self, generation: int) -> bool:
        """Whether something is to be done after generation `made`."""

    def migrate(self, clock: CompileTimer, batches: list[Slice], generation: int) -> None:
        """Do it."""

    def local_part(self, checkpoint: FinishedBatch | BatchCheckpoint | None) -> FinishedBatch | BatchCheckpoint | None:
        """Return this process's share of a batch's checkpoint."""

    def all_gather(self, track: Track) -> Track:
        """Gather the tracks of all processes' slices."""

    def agree_on_stop(self, stop: Stop | None) -> Stop | None:
        """Return why all processes stop, if one of them does."""


def run_batch(
    engine: Engine,
    batches: list[Slice],
    *,
    limit: int,
    watch: Watch,
    keep_history: bool,
    between: ChunkHook | None = None,
) -> Outcome:
    """Run slices side by side until every run is finished or something asks to stop."""
    checkpoint = watch.journal.begin_batch() if watch.journal is not None else None
    if between is not None:
        checkpoint = between.local_part(checkpoint)
    watch.restored = watch.restored or checkpoint is not None
    if isinstance(checkpoint, FinishedBatch):
        _check_not_extended(checkpoint.outcome.track, limit)
        _merge_snapshots(watch.taken, checkpoint.taken)
        return checkpoint.outcome
    watch.pending = lambda: _checkpoint_now(engine, batches, 0, {})
    generation = _begin_or_restore(engine, batches, checkpoint, watch)
    snapshots: dict[int, list[Population]] = {} if checkpoint is None else dict(checkpoint.taken)
    track = Track.join([batch.known for batch in batches])
    track = track if between is None else between.all_gather(track)
    device_seconds, (length, seconds) = 0.0, (0, 0.0) if watch.callback else engine.pace(batches)
    if generation >= limit or bool((track.reason != RUNNING).all()):  # it was over when it was kept
        return _finish_batch(engine, batches, watch, snapshots, generation, None, device_seconds, None)
    while True:
        next_snapshot = bisect_right(watch.snapshots, generation)  # they are in order
        snapshot_generation = watch.snapshots[next_snapshot] if next_snapshot < len(watch.snapshots) else limit
        max_length = limit if watch.viewer is None else watch.viewer.max_generations
        planned_length = engine.most if between is not None and between.lockstep else engine.plan(length, seconds)
        length = min(planned_length, limit - generation, snapshot_generation - generation, max_length)
        before_chunk = [] if watch.journal is None else [StateBeforeChunk.of(batch) for batch in batches]
        watch.pending = partial(_checkpoint_before_chunk, engine, batches, generation, before_chunk, dict(snapshots))
        if between is not None:
            length = min(length, between.generations_until(generation))
            if between.is_due(generation):
                between.migrate(engine.clock, batches, generation)
        start = time.perf_counter()
        running = [batch for batch in batches if (batch.known.reason == RUNNING).any()]
        compile_seconds_before = engine.clock.compile_seconds
        finished = _advance(
            engine, batches, running, generation + 1, length, keep_history, generation + length >= limit
        )
        before, track = track, Track.join([batch.known for batch in batches])
        if between is not None:
            track = between.all_gather(track)
        seconds = time.perf_counter() - start - (engine.clock.compile_seconds - compile_seconds_before)
        device_seconds += seconds
        generation += length
        is_over = generation >= limit or bool((track.reason != RUNNING).all())
        stop = _notify_observers(watch, generation, before, track, batches, is_over)
        if between is not None:
            stop = between.agree_on_stop(stop)
        is_last = is_over or stop is not None
        is_snapshot = generation == snapshot_generation and next_snapshot < len(watch.snapshots)
        _take_snapshots(engine, batches, snapshots, {generation} if is_snapshot else set())
        if watch.journal is not None and (is_last or watch.journal.due(generation)):
            # by Ctrl-C or the deadline, within the generation
            was_cut_short = any(batch.track.skipped.any() for batch in batches)
            watch.journal.save(
                watch.pending() if was_cut_short else _checkpoint_now(engine, batches, generation, snapshots)
            )
        if is_last:
            return _finish_batch(engine, batches, watch, snapshots, generation, stop, device_seconds, finished)


def _check_not_extended(track: Track, limit: int) -> None:
    """Refuse more generations for a batch that is over: its populations are gone, and others would get them alone."""
    open_ended = track.generations[track.reason == RUNNING]
    if len(open_ended) and int(open_ended.max()) < limit:
        raise InputError(
            f"the first {len(track.best)} runs of this checkpoint ended at their limit of {int(open_ended.max())} "
            f"generations and were computed in parts, so they cannot be given {limit}: continue with the limit that "
            "they had, or start again."
        )


def _begin_or_restore(engine: Engine, batches: list[Slice], checkpoint: BatchCheckpoint | None, watch: Watch) -> int:
    """Begin a batch or restore it from its checkpoint; return how many generations it has made."""
    if checkpoint is None or not checkpoint.made:
        for batch in batches:
            batch.track = Track.start(len(batch.cells))
        try:
            engine.begin(batches)
        except Exception:
            if watch.journal is not None:
                watch.journal.save(watch.pending())
            raise
        return 0
    engine.restore(batches, checkpoint.carries)
    for batch, track, rows in zip(batches, checkpoint.tracks, checkpoint.history, strict=True):
        batch.track, batch.history = track, [] if rows is None else [rows]
    return checkpoint.made


class StateBeforeChunk(NamedTuple):
    """A slice before a chunk. The engine may take the memory of the carry, except where it only calls functions."""

    carry: Any
    track: Track
    chunks: int  # of history

    @staticmethod
    def of(batch: Slice) -> StateBeforeChunk:
        return StateBeforeChunk(batch.carry, replace(batch.track), len(batch.history))


def _checkpoint_before_chunk(
    engine: Engine,
    batches: list[Slice],
    generation: int,
    before_chunk: list[StateBeforeChunk],
    snapshots: dict[int, list[Population]],
) -> BatchCheckpoint:
    """Return the state of a batch before the chunk that is running, or was cut short."""
    if not generation:
        return _checkpoint_now(engine, batches, 0, {})
    history = [
        concatenate_chunks(batch.history[: state.chunks]) for batch, state in zip(batches, before_chunk, strict=True)
    ]
    carries, tracks = [arrays_to_host(state.carry) for state in before_chunk], [state.track for state in before_chunk]
    return BatchCheckpoint(generation, carries, tracks, history, snapshots, engine.memory(), *_batch_sizes(batches))


def _checkpoint_now(
    engine: Engine, batches: list[Slice], generation: int, snapshots: dict[int, list[Population]]
) -> BatchCheckpoint:
    """Return the state of a batch, copied to the host; before its first generation only its sizes are needed."""
    if not generation:
        return BatchCheckpoint(0, [], [], [], {}, engine.memory(), *_batch_sizes(batches))
    history = [concatenate_chunks(batch.history) for batch in batches]
    for batch, rows in zip(batches, history, strict=True):
        batch.history = [] if rows is None else [rows]
    carries, tracks = [arrays_to_host(batch.carry) for batch in batches], [replace(batch.track) for batch in batches]
    return BatchCheckpoint(
        generation, carries, tracks, history, dict(snapshots), engine.memory(), *_batch_sizes(batches)
    )


def _batch_sizes(batches: list[Slice]) -> tuple[int, int]:
    """Return the runs of all slices together, and the width of one."""
    return sum(len(batch.wanted) for batch in batches), len(batches[0].cells)


def _finish_batch(
    engine: Engine,
    batches: list[Slice],
    watch: Watch,
    snapshots: dict[int, list[Population]],
    generation: int,
    stop: Stop | None,
    device_seconds: float,
    finished: list[Finished] | None,
) -> Outcome:
    """The outcome of a batch that is over. left: of its runs, if that has come with the last chunk."""
    # a batch that ends before a snapshot shows its last survivors there, beside others that go on
    _take_snapshots(engine, batches, snapshots, {g for g in watch.snapshots if g > generation})
    finished = jax.device_get(engine.finish(batches)) if finished is None else finished
    outcomes = [build_outcome(batch, batch_finished) for batch, batch_finished in zip(batches, finished, strict=True)]
    _merge_snapshots(watch.taken, snapshots)
    total = Outcome.join(outcomes, stopped=stop, device_seconds=device_seconds)
    if watch.journal is not None and stop is None:
        total = replace(total, history=to_host(total.history))
        watch.journal.finish_batch(FinishedBatch(total, snapshots))
    return total


def _merge_snapshots(snapshots: dict[int, list[Population]], more: dict[int, list[Population]]) -> None:
    for g, populations in more.items():
        snapshots.setdefault(g, []).extend(populations)


def _advance(
    engine: Engine,
    batches: list[Slice],
    running: list[Slice],
    first: int,
    count: int,
    keep_history: bool,
    is_last: bool,
) -> list[Finished] | None:
    """A chunk of every slice that goes on; all that the host needs of it comes in one transfer. keep: the history.
    last: no generation may follow, so that what is left of the runs comes with it.
    """
    summaries: Any = engine.advance(running, first, count)
    last_rows = [batch.latest for batch in running]
    fetch_history = keep_history and not keep_on_device(last_rows, [batch.history for batch in batches])
    finished = engine.finish(batches) if is_last else None
    summaries, rows, finished = jax.device_get(
        (summaries, last_rows if fetch_history else None, finished)
    )  # waits for the device
    ends = np.cumsum([len(batch.cells) for batch in running])
    for chunk_summaries in zip(
        *summaries, strict=True
    ):  # of all slices at once, as each small operation takes its time
        track = Track.join([batch.track for batch in running]).add(
            chunk_summaries[0] if len(chunk_summaries) == 1 else np.concatenate(chunk_summaries, axis=1)
        )
        for batch, end in zip(running, ends, strict=True):
            batch.track = track.rows(slice(end - len(batch.cells), end))
    for i, batch in enumerate(running if keep_history else []):
        batch.history.append(truncate(rows[i], count) if fetch_history else DeviceChunk(batch.latest, count))
    return finished


def _notify_observers(
    watch: Watch, generation: int, before: Track, now: Track, batches: list[Slice], is_over: bool
) -> Stop | None:
    """Call the observers after a chunk; return why to stop, if so."""
    generation = min(generation, int(now.generations.max()))  # all runs may have ended within the chunk
    stop = Stop.INTERRUPT if watch.interrupts.seen else None
    requested_stop = watch.notify(generation, now) if watch.notify is not None and stop is None else None
    if stop is None and (not is_over or _is_cut(now)):
        stop = requested_stop or (Stop.TIME if watch.late else None)
    if watch.viewer is None:
        return stop
    chunk_view = ChunkView(batches)
    watch.viewer.on_chunk(generation, before, now, chunk_view, stop is not None or is_over)
    if stop is None and not is_over:
        start = time.perf_counter()
        stop = watch.viewer.wait_if_paused(lambda: watch.interrupts.seen)
        stop = stop or (Stop.INTERRUPT if watch.interrupts.seen else None)
        watch.held += time.perf_counter() - start
        if stop is not None:
            watch.viewer.on_chunk(generation, before, now, chunk_view, True)
    return stop


def _is_cut(track: Track) -> bool:
    """Whether a run has spent its budget on paper only, as some points of its last generation were not evaluated."""
    spent = (track.reason == RUNNING) | (track.reason == STOP_CODES[Stop.BUDGET])
    return bool((spent & (track.skipped > 0)).any())


def _take_snapshots(
    engine: Engine, batches: list[Slice], snapshots: dict[int, list[Population]], due: set[int]
) -> None:
    if not due:
        return
    for batch in batches:
        survivors = jax.tree.map(lambda a: np.asarray(a)[batch.wanted], engine.survivors(batch))  # noqa: B023 (used at once)
        for g in due:
            snapshots.setdefault(g, []).append(survivors)
