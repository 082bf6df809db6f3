"""Runs on islands: each island is a row of its group, like a run of its own, and individuals migrate between them.

An island's best survivors come to another island as candidates and are evaluated there, so no algorithm knows of it.
Between two chunks the host carries them from slice to slice, wherever those are: on another thread, device or machine.
That takes a few numbers an island, and each island is computed as it would be without the others.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.algorithm import (
    Algorithm,
    State,
    insert_immigrants,
    is_shared,
)
from galapax.core.options import Islands
from galapax.core.problem import HISTORY_FIRST_COLUMN, Population, Record
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.execution.batch_runner import Group
from galapax.execution.host_loop import BatchView, RunContext, Slice
from galapax.execution.observers import ChunkView
from galapax.execution.search import REASON, Carry, Search, active_state, run_axes
from galapax.execution.state import BatchCheckpoint, Outcome, Track, join_runs, merge_populations, to_host
from galapax.execution.task import Task
from galapax.metrics.indicators import non_dominated
from galapax.numerics import devices, random
from galapax.numerics.compile_cache import CompileTimer
from galapax.operators.ranking import first_front


class Migration:
    """The migrations of a batch of runs, whose rows are in order of islands, then runs.

    share: which of the processes' slices these are, see numerics/devices.py.
    """

    def __init__(self, islands: Islands, seed: int, target: float, share: devices.ProcessShard) -> None:
        self.islands, self.seed, self.target, self.share = islands, seed, target, share
        self.lockstep = share.is_distributed

    def generations_until(self, generation: int) -> int:
        """Generations until the next migration."""
        return self.islands.migrate_every - generation % self.islands.migrate_every

    def is_due(self, generation: int) -> bool:
        return generation > 0 and generation % self.islands.migrate_every == 0 and self.islands.count > 1

    def migrate(self, clock: CompileTimer, slices: list[Slice], generation: int) -> None:
        """Send migrants between the islands, after generation `generation`."""
        islands, number = self.islands, np.int32(generation + 1)
        fixed = (islands.migrants, islands.send == "best")
        sent_by_batch = jax.device_get(
            [
                clock.call(_select_emigrants, fixed, slice_.search, slice_.keys, slice_.carry, number)
                for slice_ in slices
            ]
        )
        emigrants = self.share.gather(
            [rows[slice_.active_rows] for rows, slice_ in zip(sent_by_batch, slices, strict=True)]
        )
        leaving = emigrants.reshape(islands.count, -1, *emigrants.shape[1:])  # (islands, runs, m, d)
        source, rank = islands.routes(generation // islands.migrate_every, self.seed)
        runs = np.arange(leaving.shape[1])
        arriving = leaving[source[:, None, :], runs[None, :, None], rank[:, None, :]].reshape(emigrants.shape)
        is_over = self._rows_of_finished_runs(slices)
        first_row = self.share.first
        for slice_ in slices:
            rows_here = np.minimum(
                first_row + np.arange(len(slice_.cells)), first_row + len(slice_.active_rows) - 1
            )  # the last fills the slice up
            arguments = (slice_.search, slice_.keys, slice_.carry, arriving[rows_here], is_over[rows_here], number)
            slice_.carry = clock.call(_insert_immigrants, (islands.replace == "worst",), *arguments)
            first_row += len(slice_.active_rows)

    def local_part(self, checkpoint: Outcome | BatchCheckpoint | None) -> Outcome | BatchCheckpoint | None:
        if checkpoint is None or not self.share.is_distributed:
            return checkpoint
        pieces = self.share.slices
        if isinstance(checkpoint, Outcome):
            return checkpoint.of_runs(slice(self.share.first, self.share.first + self.share.local))
        snapshots = {g: populations[pieces.start : pieces.stop] for g, populations in checkpoint.snapshots.items()}
        carries, tracks, history = (
            getattr(checkpoint, name)[pieces.start : pieces.stop] for name in ("carries", "tracks", "history")
        )
        return checkpoint._replace(carries=carries, tracks=tracks, history=history, snapshots=snapshots)

    def all_gather(self, track: Track) -> Track:
        return join_runs(devices.all_gather_object(track)) if self.share.is_distributed else track

    def agree_on_stop(self, stop: Stop | None) -> Stop | None:
        reasons = devices.all_gather_object(stop) if self.share.is_distributed else [stop]
        return next((reason for reason in reasons if reason is not None), None)

    def _rows_of_finished_runs(self, slices: list[Slice]) -> np.ndarray:
        """Return which rows belong to a run of which some island has reached the target."""
        hit_target = [slice_.active_track.reason == STOP_CODES[Stop.TARGET] for slice_ in slices]
        if not math.isfinite(self.target):
            return np.zeros(self.share.total, bool)
        all_hit = self.share.gather(hit_target).reshape(self.islands.count, -1)
        return np.broadcast_to(all_hit.any(axis=0), all_hit.shape).reshape(-1)


def _select_emigrants(count: int, best: bool, search: Search, keys: Array, carry: Carry, number: Array) -> Array:
    """Return the individuals that leave each island, (S, m, d)."""
    state = active_state(carry)

    def one(key: Array, population: Population) -> Array:
        return select_emigrants(
            random.fold_in(random.fold_in(key, number), random.Stream.EMIGRATION), population, count, best
        )

    return jax.vmap(one)(keys, state.parents)


def _insert_immigrants(
    worst: bool, search: Search, keys: Array, carry: Carry, arriving: Array, over: Array, number: Array
) -> Carry:
    """Return the carry with arrivals (S, m, d) among the next candidates. over: (S,), runs that end by their target."""
    state = carry.state
    in_use = search.counts(carry, number)
    count = arriving.shape[1]

    def one(algorithm: Algorithm, key: Array, state: State, arrivals: Array, n_used: Array) -> State:
        key = random.fold_in(random.fold_in(key, number), random.Stream.IMMIGRATION)
        rows = select_replaced_rows(key, state.parents, state.candidates.shape[0], n_used, count, worst)
        return insert_immigrants(algorithm, state, rows, arrivals)

    axes = run_axes(state)
    insert = jax.vmap(one, in_axes=(search.setting_axes, 0, axes, 0, 0), out_axes=axes)
    new_state = insert(search.algorithm, keys, state, arriving, in_use)
    stop_state = carry.stop_state
    if stop_state is not None:
        running = stop_state.stop_columns[:, REASON] == RUNNING
        reason = jnp.where(over & running, STOP_CODES[Stop.TARGET], stop_state.stop_columns[:, REASON])
        stop_state = stop_state._replace(stop_columns=stop_state.stop_columns.at[:, REASON].set(reason))
    return Carry(new_state, stop_state)


class IslandSchedule:
    """Every run has several islands, each a row of its group.

    row, width: of the only run, and the rows of its slices.
    """

    def __init__(self, task: Task, row: int | None = None, width: int | None = None) -> None:
        assert task.options.islands is not None
        self.task, self.islands, self.width = task, task.options.islands, width
        self.is_replay = row is not None
        self.rows = np.arange(task.total) if row is None else np.array([row])
        self.outcomes: list[Outcome] = []

    def next_groups(self) -> list[Group]:
        return [] if self.outcomes else [self._build_group()]

    def _build_group(self) -> Group:
        """Build the group of all islands; its rows are in order of islands, then runs."""
        task, rows, n_islands = self.task, self.rows, self.islands.count
        dtype = np.dtype(task.dtype)
        keys = random.run_keys(task.seed, task.first_run, task.runs)[rows % task.runs]
        initial = task.initial
        if initial is not None and initial.ndim == 3:
            initial = np.tile(initial[rows % task.runs], (n_islands, 1, 1))
        search = task.search()

        def tile_islands(leaf: Array) -> Array | np.ndarray:
            return leaf if is_shared(leaf) or not leaf.ndim else np.tile(leaf[rows].astype(dtype), n_islands)

        rules = search.rules
        if search.splits_last:
            assert task.evaluation_limit is not None  # to the last evaluation: some islands make one more than others
            shares = (task.evaluation_limit + np.arange(n_islands)[::-1]) // n_islands
            rules = rules._replace(evaluations=np.repeat(shares, len(rows)).astype(dtype))
        algorithm = jax.tree.map(tile_islands, search.algorithm, is_leaf=is_shared)
        search = replace(search, algorithm=algorithm, rules=rules)
        # on an accelerator the islands of a single run fill the device only together
        is_single_run = task.is_single_run and devices.on_cpu()
        island_task = replace(
            task, solvers=task.solvers[:1], bound=task.bound[:1], is_single_run=is_single_run, initial=initial
        ).with_options(runs=range(task.first_run, task.first_run + n_islands * len(rows)))
        return Group(
            island_task,
            search,
            keys=np.concatenate([random.island_keys(keys, island) for island in range(n_islands)]),
            cells=np.tile(rows // task.runs, n_islands),
            run_numbers=np.tile(task.first_run + rows % task.runs, n_islands),
            initial=initial,
            rows_per_run=n_islands,
            width=self.width,
            exchange=partial(Migration, self.islands, task.seed, float(task.rules.target)),
            is_local=self.is_replay,
        )

    def announce(self, group: Group, runs: np.ndarray, context: RunContext) -> None:
        context.on_batch_start(self.task.first_run + int(self.rows[runs[0]]) % self.task.runs)

    def view(self, group: Group, runs: np.ndarray) -> BatchView:
        n_islands = self.islands.count

        def read_survivors(chunk: ChunkView, run: int) -> Population:
            """Read the survivors of all islands of a run."""
            return merge_populations([chunk.population(island * len(runs) + run) for island in range(n_islands)])

        to_runs = partial(_merge_tracks, n_islands=n_islands)
        return BatchView(to_runs=to_runs, read_survivors=read_survivors, finished=tuple(self.outcomes))

    def record(self, group: Group, runs: np.ndarray, outcome: Outcome) -> Outcome:
        self.outcomes.append(_merge_outcome(self.task, outcome, self.islands.count))
        return self.outcomes[-1]

    def merge(self) -> Outcome:
        return Outcome.join(self.outcomes)

    def only(self, row: int, sizes: list[int]) -> IslandSchedule:
        return IslandSchedule(self.task, row, sizes[0])


def _merge_tracks(rows: Track, n_islands: int) -> Track:
    """Merge the tracks of islands into those of runs."""

    def by_run(values: np.ndarray) -> np.ndarray:
        return values.reshape(n_islands, -1)

    best = _best_islands(rows, n_islands)
    runs = np.arange(best.shape[0])
    reasons = by_run(rows.reason)
    reached_target, is_running = (reasons == STOP_CODES[Stop.TARGET]).any(axis=0), (reasons == RUNNING).any(axis=0)
    is_exhausted = (reasons == STOP_CODES[Stop.BUDGET]).any(axis=0)
    final_reason = np.where(
        is_exhausted, STOP_CODES[Stop.BUDGET], reasons[best, runs]
    )  # the island that has the answer says how
    reason = np.where(reached_target, STOP_CODES[Stop.TARGET], np.where(is_running, RUNNING, final_reason))
    volumes = by_run(rows.hypervolume)
    return Track(
        generations=by_run(rows.generations).max(axis=0),
        evaluations=by_run(rows.evaluations).sum(axis=0),
        best=by_run(rows.best)[best, runs],
        violation=by_run(rows.violation)[best, runs],
        failed=by_run(rows.failed).sum(axis=0),
        reason=reason,
        skipped=by_run(rows.skipped).sum(axis=0),
        feasible_share=by_run(rows.feasible_share).mean(axis=0),
        hypervolume=volumes.max(axis=0),
        mean=by_run(rows.mean)[best, runs],
    )


def _best_islands(rows: Track, n_islands: int) -> np.ndarray:
    """Return the number of each run's best island, (runs,)."""
    violation, merit = (values.reshape(n_islands, -1) for values in (rows.violation, rows.merit))
    return np.lexsort((merit, violation), axis=0)[0]


def _merge_outcome(task: Task, islands: Outcome, n_islands: int) -> Outcome:
    """Merge the outcome of islands into that of runs."""
    best = _best_islands(islands.track, n_islands)
    runs = np.arange(len(best))
    track, rows = _merge_tracks(islands.track, n_islands), to_host(islands.history)
    fronts = []
    if islands.fronts:
        fronts = [
            _merge_fronts([islands.fronts[island * len(runs) + run] for island in range(n_islands)]) for run in runs
        ]
    return Outcome(
        track=track,
        history=None if rows is None else _merge_histories(task, rows, islands.track.generations, n_islands),
        x=islands.x.reshape(n_islands, len(runs), -1)[best, runs],
        populations=islands.populations,
        fronts=fronts,
        opponents=None,
        stopped=islands.stopped,
        device_seconds=islands.device_seconds,
        sizes=islands.sizes[: len(runs)],
        refinements=islands.refinements[: len(runs)],
        snapshots={g: _merge_populations(population, n_islands) for g, population in islands.snapshots.items()},
    )


def _merge_populations(population: Population, n_islands: int) -> Population:
    """Concatenate the populations of a run's islands: (islands * runs, n, ...) to (runs, islands * n, ...)."""

    def merge(rows: np.ndarray) -> np.ndarray:
        return np.concatenate(list(rows.reshape(n_islands, -1, *rows.shape[1:])), axis=1)

    return jax.tree.map(merge, population)


def _merge_fronts(fronts: list[Population]) -> Population:
    """Merge the fronts of a run's islands: what is not dominated among all of them."""
    merged = join_runs(fronts)
    if merged.violation is not None and len(merged.violation):  # an island may not have found a feasible point
        least = merged.violation == merged.violation.min()
        merged = jax.tree.map(lambda a: a[least], merged)
    is_on_front = non_dominated(np.asarray(merged.objectives))
    return jax.tree.map(lambda a: a[is_on_front], merged)


def _merge_histories(task: Task, rows: np.ndarray, n_generations: np.ndarray, n_islands: int) -> np.ndarray:
    """Merge the histories of islands to (runs, G, columns): the best of all, the mean of means, the sum of evaluations.

    n_generations: of each island; those that ended before others repeat their last row, with no evaluations.
    """
    columns = task.columns
    rows = rows.copy()
    is_finished = np.arange(rows.shape[1]) >= n_generations[:, None]
    Record.unpack(rows, columns, HISTORY_FIRST_COLUMN).evaluations[is_finished] = 0
    by_island = rows.reshape(n_islands, -1, *rows.shape[1:])
    merged = by_island[0].copy()
    islands, record = (Record.unpack(r, columns, HISTORY_FIRST_COLUMN) for r in (by_island, merged))
    record.evaluations[...] = islands.evaluations.sum(axis=0)
    record.mean[...] = islands.mean.mean(axis=0)
    record.worst[...] = islands.worst.max(axis=0)
    if columns.shape.objectives > 1:
        record.best[...] = islands.best.min(axis=0)
        if islands.violation is not None and record.violation is not None:
            record.violation[...] = islands.violation.min(axis=0)
    else:
        violation = np.zeros_like(islands.best[..., 0]) if islands.violation is None else islands.violation
        best_island = np.lexsort((islands.best[..., 0], violation), axis=0)[0]
        for name in ("best", "violation", "x"):
            values = getattr(islands, name)
            if values is not None:
                index = best_island.reshape(1, *best_island.shape, *(1,) * (values.ndim - 1 - best_island.ndim))
                getattr(record, name)[...] = np.take_along_axis(values, index, axis=0)[0]
    if islands.feasible_share is not None and record.feasible_share is not None:
        record.feasible_share[...] = islands.feasible_share.mean(axis=0)
    if islands.hypervolume is not None and record.hypervolume is not None:
        record.hypervolume[...] = islands.hypervolume.max(axis=0)
        if islands.hypervolume_error is not None and record.hypervolume_error is not None:
            best_island = islands.hypervolume.argmax(axis=0)[None]
            record.hypervolume_error[...] = np.take_along_axis(islands.hypervolume_error, best_island, axis=0)[0]
    return merged


# --- who leaves an island, and whose place an arrival takes: n individuals, d genes, m migrants -----------------------


def select_emigrants(key: Array, population: Population, count: int, best: bool) -> Array:
    """Copies (m, d) of the individuals that leave, in order: the best, or any."""
    n, n_objectives = population.objectives.shape
    words = random.bits(key, (n,))
    failed = ~jnp.isfinite(population.objectives).all(axis=-1)
    if not best:
        order = jnp.lexsort((words, failed))
    elif n_objectives > 1:  # any of the first front
        order = jnp.lexsort((words, ~first_front(population.objectives, population.violation), failed))
    else:
        order = jnp.lexsort(_sort_keys(population))
    return population.x[order[:count]]


def select_replaced_rows(key: Array, parents: Population, rows: int, in_use: Array, count: int, worst: bool) -> Array:
    """Select which of the `rows` candidates make room for arrivals, (m,); those beyond the first `in_use` are never
    evaluated.

    A candidate's parent is the one with its number, where there are as many.
    """
    unused = jnp.arange(rows, dtype=jnp.int32) >= in_use
    if worst and parents.objectives.shape[0] == rows and parents.objectives.shape[1] == 1:
        order = jnp.lexsort((*_sort_keys(parents), ~unused))
        return order[rows - count :]
    order = jnp.lexsort((random.bits(key, (rows,)), unused))
    return order[:count]


def _sort_keys(population: Population) -> tuple[Array, ...]:
    """Return the keys to sort by, the most important last: feasible ones first, then the better."""
    values = population.objectives[:, 0]
    return (values,) if population.violation is None else (values, population.violation)
