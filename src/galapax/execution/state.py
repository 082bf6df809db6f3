"""What the host knows of a batch: chunk summaries, histories, tracks, outcomes and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.core.algorithm import Forecast
from galapax.core.errors import InputError
from galapax.core.problem import FAILED_COLUMN, HISTORY_FIRST_COLUMN, Columns, Population, Record
from galapax.core.restarts import Agreement
from galapax.core.stop import RUNNING, Stop
from galapax.execution.search import REASON, Finished, LastSamples, StopState
from galapax.numerics import compile_cache, devices

if TYPE_CHECKING:
    from galapax.execution.host_loop import Slice


N_INTEGER_COLUMNS = 4  # of a chunk's packed numbers: integers in the bits of floats, as one array is fetched faster


def summarize_chunk(
    columns: Columns, history: Array, n_generations: Array | np.int32, stop_state: StopState | None
) -> tuple[Array, Array]:
    """Return the columns of a chunk's history that users see, (g, columns, R), and the numbers that `Track.add` takes,
    (9, R), so that the history can stay on the device.

    n_generations: rows that the running runs computed; those beyond are zeros. Rows that a finished run did not
    compute have `active` 0.
    """
    dtype = history.dtype
    records = Record.unpack(history, columns, axis=1)
    if stop_state is None:  # the usual case in fewer kernels
        counts = jnp.sum(history[:, FAILED_COLUMN : FAILED_COLUMN + 2].astype(jnp.int32), axis=0, dtype=jnp.int32)
        row = lax.dynamic_index_in_dim(history, n_generations - 1, keepdims=False)
        n_generations, reason = jnp.broadcast_to(n_generations, counts[0].shape), jnp.full_like(counts[0], RUNNING)
    else:
        active = jnp.asarray(records.active) > 0
        n_generations = jnp.sum(active, axis=0, dtype=jnp.int32)
        counts_active = jnp.where(active[:, None], history[:, FAILED_COLUMN : FAILED_COLUMN + 2], 0)
        counts = jnp.sum(counts_active.astype(jnp.int32), axis=0, dtype=jnp.int32)
        reason = stop_state.stop_columns[:, REASON].astype(jnp.int32)
        last_index = jnp.broadcast_to(jnp.maximum(n_generations - 1, 0), (1, *history.shape[1:]))
        row = jnp.take_along_axis(history, last_index, axis=0)[0]
    last = Record.unpack(row, columns, axis=0)
    best = last.best[0]
    violation, feasible_share = last.violation, last.feasible_share
    if not columns.shape.constrained:
        violation, feasible_share = jnp.where(jnp.isfinite(best), 0.0, jnp.inf).astype(dtype), jnp.ones_like(best)
    hypervolume = jnp.full_like(best, jnp.nan) if last.hypervolume is None else last.hypervolume
    integers = (n_generations, counts[0], counts[1], reason)  # in the order of a Track's columns
    bits = [lax.bitcast_convert_type(c.astype(f"int{8 * dtype.itemsize}"), dtype) for c in integers]
    values = (best, violation, feasible_share, hypervolume, last.mean[0])
    packed = jnp.stack([*bits, *map(jnp.asarray, values)])
    return history[:, HISTORY_FIRST_COLUMN:], packed


MAX_BYTES_FETCHED_AT_ONCE = 2**24  # bytes of a chunk that are not fetched at once
MAX_MEMORY_SHARE = 1 / 16  # of the memory that is free, which all such chunks of a batch may take


class DeviceChunk(NamedTuple):
    """The history of a chunk that is still on the device."""

    pieces: list[Array]  # rows (g, columns, R), one piece after another
    length: int  # so many rows of them count

    @property
    def size(self) -> int:
        """Bytes on the device."""
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def rows(self) -> np.ndarray:
        return np.concatenate(jax.device_get(self.pieces))[: self.length]


Chunk = np.ndarray | DeviceChunk  # rows (g, columns, R)


def keep_on_device(latest: list[list[Array]], earlier: list[list[Chunk]]) -> bool:
    """Return whether the history of the last chunk stays on the device. earlier: the chunks of each slice so far."""
    if (
        devices.on_cpu()
        or (size := sum(piece.nbytes for batch_pieces in latest for piece in batch_pieces)) <= MAX_BYTES_FETCHED_AT_ONCE
    ):
        return False
    before = sum(chunk.size for batch_pieces in earlier for chunk in batch_pieces if isinstance(chunk, DeviceChunk))
    return before + size < MAX_MEMORY_SHARE * devices.free_memory()


def truncate(pieces: list[np.ndarray], length: int) -> np.ndarray:
    """Return the first `length` rows of a fetched chunk."""
    rows = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    # no view of a larger array, which would keep all of it
    return rows if len(rows) == length else rows[:length].copy()


def concatenate_chunks(chunks: list[Chunk]) -> np.ndarray | None:
    """Return all rows, on the host."""
    rows = [chunk.rows if isinstance(chunk, DeviceChunk) else chunk for chunk in chunks]
    return np.concatenate(rows) if len(rows) > 1 else rows[0] if rows else None


class LazyHistory:
    """A history (R, G, columns) that was left on the device."""

    def __init__(self, chunks: list[Chunk], generations: np.ndarray) -> None:
        self._chunks, self._generations = chunks, generations

    @cached_property
    def array(self) -> np.ndarray:
        rows = concatenate_chunks(self._chunks)
        assert rows is not None
        self._chunks = [rows]
        return _runs_first(rows, self._generations)

    def of_run(self, run: int) -> np.ndarray:
        """Return the history of one run, (1, G, columns)."""
        number = np.int32(run)
        pieces = []
        for chunk in self._chunks:
            if isinstance(chunk, DeviceChunk):
                run_pieces = [compile_cache.call(_slice_run, (), piece, number) for piece in chunk.pieces]
                pieces.append(np.concatenate(jax.device_get(run_pieces))[: chunk.length])
            else:
                pieces.append(chunk[:, :, run : run + 1])
        rows = np.concatenate(pieces)[: int(self._generations.max())]
        return _runs_first(rows, self._generations[run : run + 1], len(rows))


def _slice_run(rows: Array, run: Array) -> Array:
    return lax.dynamic_slice_in_dim(rows, run, 1, axis=2)


def of_run(history: np.ndarray | LazyHistory, run: int) -> np.ndarray:
    """Return the history of one run, (1, G, columns)."""
    return history.of_run(run) if isinstance(history, LazyHistory) else history[run : run + 1]


def to_host(history: np.ndarray | LazyHistory | None) -> np.ndarray | None:
    return history.array if isinstance(history, LazyHistory) else history


def build_history(chunks: list[Chunk], generations: np.ndarray) -> np.ndarray | LazyHistory:
    """Build the history (R, G, columns) of runs; the last row of a finished run is repeated. generations: (R,)."""
    if any(isinstance(chunk, DeviceChunk) for chunk in chunks):
        return LazyHistory(chunks, generations)
    rows = concatenate_chunks(chunks)
    assert rows is not None
    return _runs_first(rows, generations)


def _runs_first(rows: np.ndarray, generations: np.ndarray, n_generations: int | None = None) -> np.ndarray:
    """Transpose rows (g, columns, R) to (R, G, columns). most: G; by default the length of the longest run."""
    history = rows.transpose(2, 0, 1)[:, : int(generations.max()) if n_generations is None else n_generations]
    if int(generations.min()) == history.shape[1]:
        return history
    last = np.minimum(np.arange(history.shape[1])[None, :], generations[:, None] - 1)
    return np.take_along_axis(history, last[:, :, None], axis=1)


class Track(NamedTuple):
    """What the host knows of each run, all (R,), of all chunks so far."""

    generations: np.ndarray
    failed: np.ndarray
    evaluations: np.ndarray
    reason: np.ndarray  # why it is finished, see core/stop.py
    best: np.ndarray
    violation: np.ndarray
    feasible_share: np.ndarray  # of the survivors; 1 without constraints
    hypervolume: np.ndarray  # NaN without a reference point
    mean: np.ndarray  # value of the survivors, the first objective
    skipped: np.ndarray  # points of the last generation that Ctrl-C left unevaluated

    @staticmethod
    def start(runs: int) -> Track:
        zeros, worst = _broadcast_scalar(0, runs), _broadcast_scalar(np.inf, runs)
        share, hypervolume = _broadcast_scalar(1.0, runs), _broadcast_scalar(np.nan, runs)
        return Track(zeros, zeros, zeros, zeros, worst, worst, share, hypervolume, worst, zeros)

    @property
    def merit(self) -> np.ndarray:
        """The value by which runs of equal violation are compared; less is better."""
        without = np.isnan(self.hypervolume)
        return self.best if without.all() else np.where(without, self.best, -self.hypervolume)

    @property
    def best_run(self) -> int:
        """The run with the best value, feasible ones first."""
        return first_best(self.violation, self.merit)

    def add(self, packed: np.ndarray) -> Track:
        """Return the track after a chunk, of which `summarize_chunk` packed these numbers (9, R)."""
        integers = packed[:N_INTEGER_COLUMNS].view(f"int{8 * packed.itemsize}")
        new = Track._make([*integers, *packed[N_INTEGER_COLUMNS:], self.skipped])
        has_moved = new.generations > 0
        all_moved = bool(has_moved.all())

        def latest(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            return _widen(new) if all_moved else np.where(has_moved, new, old)

        counts = (self.generations + new.generations, self.failed + new.failed, self.evaluations + new.evaluations)
        values = map(latest, new[N_INTEGER_COLUMNS:-1], self[N_INTEGER_COLUMNS:-1])
        return Track._make([*counts, _widen(new.reason), *values, self.skipped])


Rows = TypeVar("Rows")  # a tree of arrays with a row for each run


def take_runs(rows: Rows, chosen: slice | np.ndarray) -> Rows:
    """Return the rows of these runs."""
    return jax.tree.map(lambda a: a[chosen], rows)


def join_runs(pieces: Sequence[Rows]) -> Rows:
    """Concatenate the rows of several groups of runs."""
    return pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *a: np.concatenate(a), *pieces)


MIN_RUNS_TO_BROADCAST = 1000  # runs from which memory counts


def _broadcast_scalar(value: float, runs: int) -> np.ndarray:
    """Return a read-only broadcast of a scalar to shape (runs,): touching new memory is most of what a hundred thousand
    runs cost between two chunks.
    """
    kind = np.int64 if isinstance(value, int) else np.float64
    return np.full(runs, value, kind) if runs < MIN_RUNS_TO_BROADCAST else np.broadcast_to(kind(value), runs)


def _widen(values: np.ndarray) -> np.ndarray:
    """Return integers or floats (R,) in 64 bits; a broadcast scalar where all runs agree."""
    wide = np.int64 if values.dtype.kind == "i" else np.float64
    if len(values) < MIN_RUNS_TO_BROADCAST:
        return values.astype(wide)
    first = values[0]
    all_equal = np.isnan(values) if np.isnan(first) else values == first
    return np.broadcast_to(first.astype(wide), len(values)) if all_equal.all() else values.astype(wide)


def first_best(violation: np.ndarray, merit: np.ndarray) -> int:
    """Return the run with the least violation and, among those, the least merit; the first of several, NaN last.

    Sorting a hundred thousand runs would take long.
    """
    among = _least(violation, np.ones(len(violation), bool))
    return int(np.argmax(_least(merit, among)))


def _least(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return where values (R,) are least among the rows of a mask."""
    least = np.fmin.reduce(values, where=mask, initial=np.nan)
    is_least: np.ndarray = mask & (values == least)
    return mask if np.isnan(least) else is_least


class Survivors(NamedTuple):
    """The last population of a cell's best run."""

    rank: tuple[float, float]  # violation and merit of that run
    population: Population  # (n, ...)


class Polish(NamedTuple):
    """The best points of R runs after refining them by their gradients; it adds a row to the history."""

    x: np.ndarray  # (R, d), never worse than before
    best: np.ndarray  # (R,)
    violation: np.ndarray  # (R,)
    expected_gain: np.ndarray  # (R,), what another step would gain; 0 where none was made
    evaluations: np.ndarray  # (R,) that it took; 0 for runs that were not tried
    better: np.ndarray  # (R,) bool
    smooth: np.ndarray  # (R,) bool: the gradient agreed with the function
    converged: np.ndarray  # (R,) bool: it ended by itself and not for want of evaluations

    def __str__(self) -> str:
        n_better, n_evaluations = int(self.better.sum()), int(self.evaluations.sum())
        text = f"{n_better} of {len(self.better)} runs refined, in {n_evaluations} evaluations"
        n_rough = int(((self.evaluations > 0) & ~self.smooth).sum())
        return text + (f"; for {n_rough} of them the gradient does not agree with the function" if n_rough else "")


class Estimate(NamedTuple):
    """The answers of runs of a random objective, from evaluations after the search."""

    interval: np.ndarray  # (R, 2) 95 % confidence interval of the mean at x; NaN where there is none
    evaluations: np.ndarray  # (R,) that it took
    merit: np.ndarray  # (R,) by which the best run is chosen, from values that are in no estimate; less is better
    values_at_x: np.ndarray | None = None  # (R, 2), of a black box: the two which showed that they are random


LISTS_BY_RUN = ("fronts", "sizes", "agreement", "by_method", "refinements", "further_searches")  # empty, or (R,)


@dataclass
class Outcome:
    """What a batch of R runs left: tracks, histories, best points, populations."""

    track: Track
    history: np.ndarray | LazyHistory | None  # (R, G, columns), from the column KEPT of a Record on
    x: np.ndarray  # (R, d), best of each run
    populations: dict[int, Survivors]  # of each cell's best run
    fronts: list[Population]  # of several objectives: of each run the feasible non-dominated individuals, (k, ...)
    opponents: np.ndarray | None  # (R, ...), what an algorithm played against in the end, if it does
    stopped: Stop | None = None  # what ended it before the runs' own rules did
    device_seconds: float = 0.0  # spent waiting for chunks of generations
    sizes: list[list[int]] = field(default_factory=list)  # of each run: how many runs the slices of its searches had
    agreement: list[Agreement] = field(default_factory=list)  # of each run that restarts: of its searches
    by_method: list[list[int]] = field(default_factory=list)  # of each run: evaluations of each method, if it has some
    polish: Polish | str | None = None  # what it came to, or why it was not tried; None if it was not asked for
    snapshots: dict[int, Population] = field(default_factory=dict)  # whole populations (R, n, ...) by generation
    refinements: list[list[int]] = field(default_factory=list)  # of each run: rows of its history made after a search
    further_searches: list[list[int]] = field(default_factory=list)  # of each run that restarts: where they begin
    forecast: Forecast | None = None  # of several objectives: what each run's models expect, (R, ...)
    last: LastSamples | None = None  # of a random objective
    estimate: Estimate | None = None  # the same

    @property
    def merit(self) -> np.ndarray:
        """The value by which runs of equal violation are compared, (R,); less is better."""
        return self.track.merit if self.estimate is None else self.estimate.merit

    @property
    def best_run(self) -> int:
        """The run whose answer is the best, feasible ones first."""
        return first_best(self.track.violation, self.merit)

    def of_runs(self, chosen: slice | np.ndarray) -> Outcome:
        """Return the outcome of these runs. The history ends with the longest of them."""
        track, is_polished = take_runs(self.track, chosen), isinstance(self.polish, Polish)
        n_rows = int(track.generations.max(initial=0)) + is_polished + (self.estimate is not None)
        history = to_host(self.history)
        names = ("x", "opponents", "snapshots", "last", "forecast", "estimate", *["polish"] * is_polished)
        fields = take_runs({name: getattr(self, name) for name in names}, chosen)
        for name in LISTS_BY_RUN:
            values = getattr(self, name)
            fields[name] = [values[r] for r in np.arange(len(self.x))[chosen]] if values else []
        return replace(self, track=track, history=None if history is None else history[chosen, :n_rows], **fields)

    @staticmethod
    def join(batches: list[Outcome], stopped: Stop | None = None, device_seconds: float = 0.0) -> Outcome:
        """Concatenate the outcomes of batches. stopped, device_seconds: of the whole, besides theirs."""
        stopped = stopped or next((b.stopped for b in batches if b.stopped is not None), None)
        seconds = device_seconds + sum(b.device_seconds for b in batches)
        if len(batches) == 1:
            is_same = stopped is batches[0].stopped and not device_seconds
            return batches[0] if is_same else replace(batches[0], stopped=stopped, device_seconds=seconds)
        populations: dict[int, Survivors] = {}
        for batch in batches:
            for cell, survivors_of_cell in batch.populations.items():
                populations[cell] = min(
                    populations.get(cell, survivors_of_cell), survivors_of_cell, key=lambda survivors: survivors.rank
                )
        fields: dict[str, Any] = {name: [value for b in batches for value in getattr(b, name)] for name in LISTS_BY_RUN}
        for name in ("x", "opponents", "last", "forecast"):
            pieces = [piece for b in batches if (piece := getattr(b, name)) is not None]
            fields[name] = join_runs(pieces) if pieces else None
        return Outcome(
            track=join_runs([b.track for b in batches]),
            history=_merge_histories([history for b in batches if (history := to_host(b.history)) is not None]),
            populations=populations,
            stopped=stopped,
            device_seconds=seconds,
            snapshots=merge_snapshots([{g: [population] for g, population in b.snapshots.items()} for b in batches]),
            **fields,
        )


def best_of_run(outcome: Outcome, row: int) -> Population:
    """Return the best point of a run that is over, or its front."""
    if outcome.fronts:
        return outcome.fronts[row]
    track = outcome.track
    return Population(outcome.x[[row]], track.best[[row], None], track.violation[[row]])  # type: ignore[arg-type]


def merge_populations(populations: list[Population]) -> Population:
    """Concatenate populations, in NumPy; without constraints the violation is 0."""
    violations = [np.zeros(len(p.x)) if p.violation is None else p.violation for p in populations]
    x, objectives = (np.concatenate(arrays) for arrays in zip(*((p.x, p.objectives) for p in populations), strict=True))
    return Population(x, objectives, np.concatenate(violations))  # type: ignore[arg-type]


def merge_snapshots(snapshots: Sequence[dict[int, list[Population]]]) -> dict[int, Population]:
    """Concatenate the populations (R, n, ...) of each generation, over batches or slices."""
    generations = sorted({g for by_generation in snapshots for g in by_generation})
    return {g: join_runs([p for by_generation in snapshots for p in by_generation.get(g, [])]) for g in generations}


def _merge_histories(histories: list[np.ndarray]) -> np.ndarray | None:
    """Concatenate the histories of several batches; shorter ones repeat their last row."""
    longest = max((h.shape[1] for h in histories), default=0)
    padded = [
        h if h.shape[1] == longest else np.pad(h, ((0, 0), (0, longest - h.shape[1]), (0, 0)), "edge")
        for h in histories
    ]
    return np.concatenate(padded) if padded else None


def build_outcome(slice_: Slice, finished: Finished) -> Outcome:
    """Build the outcome of a slice's runs from what `finish` returned."""
    track, cells = slice_.track, slice_.cells
    survivors_by_cell, fronts = {}, []
    for i, cell in enumerate(range(int(cells[0]), int(cells[-1]) + 1)):
        rows_of_cell = slice_.active_rows[cells[slice_.active_rows] == cell]
        if not len(rows_of_cell):
            continue
        row = (
            track.best_run if len(rows_of_cell) == len(cells) else rows_of_cell[take_runs(track, rows_of_cell).best_run]
        )
        rank = (float(track.violation[row]), float(track.merit[row]))
        index = i if finished.individuals is None else row
        survivors = jax.tree.map(lambda a: a[index], finished.survivors)  # noqa: B023 (used at once)
        if not slice_.search.algorithm.traits.fixed_evaluations:  # rows that are not in use were never evaluated
            in_use = np.isfinite(survivors.objectives).all(axis=-1)
            survivors = jax.tree.map(lambda a: np.asarray(a)[in_use], survivors) if in_use.any() else survivors  # noqa: B023
        survivors_by_cell[cell] = Survivors(rank, survivors)
    if finished.individuals is not None and finished.is_on_front is not None:
        individuals, on_front = finished.individuals, finished.is_on_front
        fronts = [jax.tree.map(lambda a: a[r][on_front[r]], individuals) for r in range(len(cells))]  # noqa: B023
    history = build_history(slice_.history, track.generations) if slice_.history else None
    x, opponents = np.asarray(finished.x), None if finished.opponents is None else np.asarray(finished.opponents)
    total = Outcome(
        track, history, x, survivors_by_cell, fronts, opponents, sizes=[[len(cells)]] * len(cells),
        refinements=[[]] * len(cells),
        by_method=[] if finished.by_method is None else np.asarray(finished.by_method).tolist(),
        last=None if finished.last is None else jax.tree.map(np.asarray, finished.last),
        forecast=None if finished.forecast is None else jax.tree.map(np.asarray, finished.forecast),
    )  # fmt: skip
    return total.of_runs(slice_.active_rows) if len(slice_.active_rows) < len(cells) else total


class BatchCheckpoint(NamedTuple):
    """The state of a batch between two generations; a list has an entry for each of its slices."""

    generation: int  # how many were computed
    carries: list[list[np.ndarray]]  # the arrays of each carry, in order
    tracks: list[Track]
    history: list[np.ndarray | None]  # rows (made, columns, S)
    snapshots: dict[int, list[Population]]  # by generation
    box: dict[str, object] | None = None  # what a black box remembers
    runs: int = 0  # of the batch
    width: int = 0  # runs of a slice: on an accelerator it depends on the memory that was free, and so do the last bits


class CheckpointWriter(Protocol):
    """Saves the state of a task's batches so that a killed run can resume bit for bit."""

    def begin_batch(self) -> Outcome | BatchCheckpoint | None:
        """Return what the checkpoint knows of the batch that begins now."""

    def sizes(self) -> tuple[int, int] | None:
        """Return the runs of the batch that begins next and the width of its slices, if the checkpoint has it."""

    def restart_batch(self) -> None:
        """Begin the present batch once more, with fewer runs."""

    def due(self, generation: int) -> bool:
        """Return whether to save after this generation."""

    def save(self, checkpoint: BatchCheckpoint) -> None:
        """Save the state of the present batch."""

    def finish_batch(self, outcome: Outcome) -> None:
        """Record the outcome of the present batch, which ended by its own rules."""


def arrays_to_host(carry: object) -> list[np.ndarray]:
    """Copy the arrays of a carry to the host."""
    return [np.array(leaf) for leaf in jax.device_get(jax.tree.leaves(carry))]


def restore_arrays(
    carry: object, arrays: list[np.ndarray], device: jax.Device | jax.sharding.Sharding | None = None
) -> Any:
    """Return a carry of the same structure with the arrays of a checkpoint, on this device."""
    leaves, structure = jax.tree.flatten(carry)
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(array.shape, array.dtype) for array in arrays]:
        raise InputError(
            "the checkpoint does not match this run: its arrays have different sizes. It was written by another "
            "version or with other settings."
        )
    return jax.tree.unflatten(structure, jax.device_put(arrays, device))


class CheckpointSession(CheckpointWriter, Protocol):
    """Writes the checkpoints of a call; see storage/checkpoint.py."""

    memory: dict[str, object] | None  # what the black box of the present task remembered

    def open(self, task: dict[str, str], title: str) -> None:
        """Begin a task with this fingerprint."""

    def close(self) -> None:
        """End the task."""


class MultiprocessCheckpoint:
    """A CheckpointSession that gathers the state of all processes and writes it in the first."""

    memory: dict[str, object] | None = None

    def __init__(self, inner: CheckpointSession) -> None:
        self.inner = inner

    def open(self, task: dict[str, str], title: str) -> None:
        self.inner.open(task, title)

    def close(self) -> None:
        self.inner.close()

    def begin_batch(self) -> Outcome | BatchCheckpoint | None:
        return self.inner.begin_batch()

    def sizes(self) -> tuple[int, int] | None:
        return self.inner.sizes()

    def restart_batch(self) -> None:
        self.inner.restart_batch()

    def due(self, generation: int) -> bool:
        return bool(devices.all_gather_object(self.inner.due(generation))[0])

    def save(self, standing: BatchCheckpoint) -> None:
        gathered: list[BatchCheckpoint] = devices.all_gather_object(standing)
        carries, tracks, history = (
            [item for each in gathered for item in getattr(each, name)] for name in ("carries", "tracks", "history")
        )
        snapshots, runs = _merge_snapshots([each.snapshots for each in gathered]), sum(each.runs for each in gathered)
        self.inner.save(
            standing._replace(carries=carries, tracks=tracks, history=history, snapshots=snapshots, runs=runs)
        )

    def finish_batch(self, outcome: Outcome) -> None:
        self.inner.finish_batch(Outcome.join(devices.all_gather_object(outcome)))


def _merge_snapshots(snapshots: list[dict[int, list[Population]]]) -> dict[int, list[Population]]:
    """Merge the snapshots of all processes, by generation."""
    return {g: [p for by_generation in snapshots for p in by_generation[g]] for g in snapshots[0]}
