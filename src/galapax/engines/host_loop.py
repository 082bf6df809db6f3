"""The host's loop, the same for every engine: chunks of generations, and between them a look at what goes on.

A chunk runs without the host. Between chunks the host looks: progress, callback, Ctrl-C, time, the live page. The runs
of an ensemble are cut into slices (see slices.py), which take turns chunk by chunk.
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
from galapax.core.evaluation import Population
from galapax.core.record import Columns
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.engines.batch_checkpoint import BatchCheckpoint, CheckpointWriter, FinishedBatch, arrays_of
from galapax.engines.histories import Chunk, DeviceChunk, concatenate_chunks, keep_on_device, to_host, truncate
from galapax.engines.interrupts import Interrupts
from galapax.engines.live_view import ChunkView
from galapax.engines.outcome import Outcome, Track, outcome
from galapax.engines.programs import CompileTimer
from galapax.engines.search import Carry, Finished, Search


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
        chosen = np.full(len(cells), -1, np.int32)
        chosen[self.wanted] = cells[self.wanted]
        return chosen

    @property
    def known(self) -> Track:
        """Of the runs that are wanted."""
        return self.track if len(self.wanted) == len(self.cells) else self.track.rows(self.wanted)


class Engine(Protocol):
    """How the generations of a slice are made."""

    clock: CompileTimer  # how long it waited for the compiler
    most: int  # generations of a chunk

    def begin(self, parts: list[Slice]) -> None:
        """Set their carries before the first generation."""

    def memory(self) -> Any:
        """What it remembers besides, as plain data; None if nothing."""

    def restore(self, parts: list[Slice], carries: list[list[np.ndarray]]) -> None:
        """Set their carries to those that were kept, see engines/batch_checkpoint.py."""

    def pace(self, parts: list[Slice]) -> tuple[int, float]:
        """Generations of a chunk, and the seconds that it took, where the same program has run before; else (0, 0)."""

    def plan(self, length: int, seconds: float) -> int:
        """How many generations the next chunk has, from those of the last one and the seconds that it took."""

    def advance(self, parts: list[Slice], first: int, count: int) -> list[list[Any]]:
        """Make `count` generations of each slice from number `first` on, and leave the rows of history (at least count,
        columns, S) in its `latest`: packed tallies of each, in order, which nobody has waited for yet.
        """

    def finish(self, parts: list[Slice]) -> list[Finished]:
        """What is left of their runs."""

    def survivors(self, part: Slice) -> Population:
        """Of all its runs, (S, n, ...)."""

    def precompile(self, part: Slice) -> Iterator[None]:
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
    """What the host looks at between chunks."""

    interrupts: Interrupts
    deadline: float | None = None  # by time.perf_counter
    starts: Callable[[int], None] = lambda first_run: None  # told when a batch begins, with its first run's number
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
    """What slices do between chunks besides being looked at; with others elsewhere they keep step, and stop together.

    See engines/islands.py.
    """

    lockstep: bool  # every process makes the same chunks

    def generations_until(self, made: int) -> int:
        """The most generations of the next chunk."""

    def is_due(self, made: int) -> bool:
        """Whether something is to be done after generation `made`."""

    def migrate(self, clock: CompileTimer, parts: list[Slice], made: int) -> None:
        """Do it."""

    def local_part(self, known: FinishedBatch | BatchCheckpoint | None) -> FinishedBatch | BatchCheckpoint | None:
        """The part of what is known of a batch that is this process's."""

    def all_gather(self, track: Track) -> Track:
        """What all processes know of the batch, from what this one does of its slices."""

    def agree_on_stop(self, stopped: Stop | None) -> Stop | None:
        """Why all of them stop, if so."""


def run_batch(
    engine: Engine,
    parts: list[Slice],
    *,
    limit: int,
    watch: Watch,
    keep_history: bool,
    between: ChunkHook | None = None,
) -> Outcome:
    """Run slices side by side until every run is finished or something asks to stop."""
    known = watch.journal.begin_batch() if watch.journal is not None else None
    if between is not None:
        known = between.local_part(known)
    watch.restored = watch.restored or known is not None
    if isinstance(known, FinishedBatch):
        _check_whole(known.outcome.track, limit)
        _merge(watch.taken, known.taken)
        return known.outcome
    watch.pending = lambda: _standing(engine, parts, 0, {})
    made = _begin(engine, parts, known, watch)
    taken: dict[int, list[Population]] = {} if known is None else dict(known.taken)
    track = Track.join([part.known for part in parts])
    track = track if between is None else between.all_gather(track)
    waited, (length, took) = 0.0, (0, 0.0) if watch.callback else engine.pace(parts)
    if made >= limit or bool((track.reason != RUNNING).all()):  # it was over when it was kept
        return _finished(engine, parts, watch, taken, made, None, waited, None)
    while True:
        at = bisect_right(watch.snapshots, made)  # they are in order
        until = watch.snapshots[at] if at < len(watch.snapshots) else limit
        most = limit if watch.viewer is None else watch.viewer.max_generations
        planned = engine.most if between is not None and between.lockstep else engine.plan(length, took)
        length = min(planned, limit - made, until - made, most)
        ahead = [] if watch.journal is None else [Ahead.of(part) for part in parts]
        watch.pending = partial(_before, engine, parts, made, ahead, dict(taken))
        if between is not None:
            length = min(length, between.generations_until(made))
            if between.is_due(made):
                between.migrate(engine.clock, parts, made)
        start = time.perf_counter()
        going = [part for part in parts if (part.known.reason == RUNNING).any()]
        compiled = engine.clock.compile_seconds
        left = _advance(engine, parts, going, made + 1, length, keep_history, made + length >= limit)
        before, track = track, Track.join([part.known for part in parts])
        if between is not None:
            track = between.all_gather(track)
        took = time.perf_counter() - start - (engine.clock.compile_seconds - compiled)
        waited += took
        made += length
        ended = made >= limit or bool((track.reason != RUNNING).all())
        stopped = _look(watch, made, before, track, parts, ended)
        if between is not None:
            stopped = between.agree_on_stop(stopped)
        last = ended or stopped is not None
        _take_snapshots(engine, parts, taken, {made} if made == until and at < len(watch.snapshots) else set())
        if watch.journal is not None and (last or watch.journal.due(made)):
            cut = any(part.track.skipped.any() for part in parts)  # by Ctrl-C or the clock, within the generation
            watch.journal.save(watch.pending() if cut else _standing(engine, parts, made, taken))
        if last:
            return _finished(engine, parts, watch, taken, made, stopped, waited, left)


def _check_whole(track: Track, limit: int) -> None:
    """Refuse more generations for a batch that is over: its populations are gone, and others would get them alone."""
    open_ended = track.generations[track.reason == RUNNING]
    if len(open_ended) and int(open_ended.max()) < limit:
        raise InputError(
            f"the first {len(track.best)} runs of this checkpoint ended at their limit of {int(open_ended.max())} "
            f"generations and were computed in parts, so they cannot be given {limit}: continue with the limit that "
            "they had, or start again."
        )


def _begin(engine: Engine, parts: list[Slice], known: BatchCheckpoint | None, watch: Watch) -> int:
    """Begin a batch, or put it where it stood: how many generations it has made."""
    if known is None or not known.made:
        for part in parts:
            part.track = Track.start(len(part.cells))
        try:
            engine.begin(parts)
        except Exception:
            if watch.journal is not None:
                watch.journal.save(watch.pending())
            raise
        return 0
    engine.restore(parts, known.carries)
    for part, track, rows in zip(parts, known.tracks, known.history, strict=True):
        part.track, part.history = track, [] if rows is None else [rows]
    return known.made


class Ahead(NamedTuple):
    """A slice before a chunk. The engine may take the memory of the carry, except where it only calls functions."""

    carry: Any
    track: Track
    chunks: int  # of history

    @staticmethod
    def of(part: Slice) -> Ahead:
        return Ahead(part.carry, replace(part.track), len(part.history))


def _before(
    engine: Engine, parts: list[Slice], made: int, ahead: list[Ahead], taken: dict[int, list[Population]]
) -> BatchCheckpoint:
    """Where a batch stood before the chunk that is under way, or was cut short."""
    if not made:
        return _standing(engine, parts, 0, {})
    history = [concatenate_chunks(part.history[: was.chunks]) for part, was in zip(parts, ahead, strict=True)]
    carries, tracks = [arrays_of(was.carry) for was in ahead], [was.track for was in ahead]
    return BatchCheckpoint(made, carries, tracks, history, taken, engine.memory(), *_sizes(parts))


def _standing(engine: Engine, parts: list[Slice], made: int, taken: dict[int, list[Population]]) -> BatchCheckpoint:
    """Where a batch stands, in memory of the host; before its first generation nothing but its sizes is needed."""
    if not made:
        return BatchCheckpoint(0, [], [], [], {}, engine.memory(), *_sizes(parts))
    history = [concatenate_chunks(part.history) for part in parts]
    for part, rows in zip(parts, history, strict=True):
        part.history = [] if rows is None else [rows]
    carries, tracks = [arrays_of(part.carry) for part in parts], [replace(part.track) for part in parts]
    return BatchCheckpoint(made, carries, tracks, history, dict(taken), engine.memory(), *_sizes(parts))


def _sizes(parts: list[Slice]) -> tuple[int, int]:
    """How many runs slices have together, and how many one has."""
    return sum(len(part.wanted) for part in parts), len(parts[0].cells)


def _finished(
    engine: Engine,
    parts: list[Slice],
    watch: Watch,
    taken: dict[int, list[Population]],
    made: int,
    stopped: Stop | None,
    waited: float,
    left: list[Finished] | None,
) -> Outcome:
    """The outcome of a batch that is over. left: of its runs, if that has come with the last chunk."""
    # a batch that ends before a snapshot shows its last survivors there, beside others that go on
    _take_snapshots(engine, parts, taken, {g for g in watch.snapshots if g > made})
    left = jax.device_get(engine.finish(parts)) if left is None else left
    done = [outcome(part, own) for part, own in zip(parts, left, strict=True)]
    _merge(watch.taken, taken)
    total = Outcome.join(done, stopped=stopped, device_seconds=waited)
    if watch.journal is not None and stopped is None:
        total = replace(total, history=to_host(total.history))
        watch.journal.finish_batch(FinishedBatch(total, taken))
    return total


def _merge(every: dict[int, list[Population]], own: dict[int, list[Population]]) -> None:
    for g, kept in own.items():
        every.setdefault(g, []).extend(kept)


def _advance(
    engine: Engine, parts: list[Slice], going: list[Slice], first: int, count: int, keep: bool, last: bool
) -> list[Finished] | None:
    """A chunk of every slice that goes on; all that the host needs of it comes in one transfer. keep: the history.
    last: no generation may follow, so that what is left of the runs comes with it.
    """
    tallies: Any = engine.advance(going, first, count)
    latest = [part.latest for part in going]
    away = keep and not keep_on_device(latest, [part.history for part in parts])
    left = engine.finish(parts) if last else None
    tallies, rows, left = jax.device_get((tallies, latest if away else None, left))  # waits for the device
    ends = np.cumsum([len(part.cells) for part in going])
    for own in zip(*tallies, strict=True):  # of all slices at once, as each small operation takes its time
        whole = Track.join([part.track for part in going]).add(own[0] if len(own) == 1 else np.concatenate(own, axis=1))
        for part, end in zip(going, ends, strict=True):
            part.track = whole.rows(slice(end - len(part.cells), end))
    for i, part in enumerate(going if keep else []):
        part.history.append(truncate(rows[i], count) if away else DeviceChunk(part.latest, count))
    return left


def _look(watch: Watch, made: int, before: Track, now: Track, parts: list[Slice], ended: bool) -> Stop | None:
    """Tell whoever watches what the last chunk brought; why to stop, if so."""
    made = min(made, int(now.generations.max()))  # all runs may have ended within the chunk
    stopped = Stop.INTERRUPT if watch.interrupts.seen else None
    asked = watch.notify(made, now) if watch.notify is not None and stopped is None else None
    if stopped is None and (not ended or _is_cut(now)):
        stopped = asked or (Stop.TIME if watch.late else None)
    if watch.viewer is None:
        return stopped
    glance = ChunkView(parts)
    watch.viewer.on_chunk(made, before, now, glance, stopped is not None or ended)
    if stopped is None and not ended:
        start = time.perf_counter()
        stopped = watch.viewer.wait_if_paused(lambda: watch.interrupts.seen)
        stopped = stopped or (Stop.INTERRUPT if watch.interrupts.seen else None)
        watch.held += time.perf_counter() - start
        if stopped is not None:
            watch.viewer.on_chunk(made, before, now, glance, True)
    return stopped


def _is_cut(track: Track) -> bool:
    """Whether a run has spent its budget on paper only, as some points of its last generation were not evaluated."""
    spent = (track.reason == RUNNING) | (track.reason == STOP_CODES[Stop.BUDGET])
    return bool((spent & (track.skipped > 0)).any())


def _take_snapshots(engine: Engine, parts: list[Slice], taken: dict[int, list[Population]], due: set[int]) -> None:
    if not due:
        return
    for part in parts:
        kept = jax.tree.map(lambda a: np.asarray(a)[part.wanted], engine.survivors(part))  # noqa: B023 (used at once)
        for g in due:
            taken.setdefault(g, []).append(kept)
