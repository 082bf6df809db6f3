"""Runs on islands: each island is a row of the batch, and the rows of a run are merged into its outcome."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from galapax.core.algorithm import is_shared
from galapax.core.errors import InputError, format_bytes
from galapax.core.evaluation import Population
from galapax.core.record import HISTORY_FIRST_COLUMN, Record
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.engines.histories import to_host
from galapax.engines.host_loop import Watch
from galapax.engines.interrupts import Interrupts
from galapax.engines.islands import Migration
from galapax.engines.outcome import Outcome, Track, best_of_run, merge_populations
from galapax.engines.programs import CompileTimer
from galapax.evaluation.blackbox import BlackBox
from galapax.metrics.indicators import non_dominated
from galapax.numerics import devices, random
from galapax.running.batch_runner import BatchRunner
from galapax.running.task import Task


def run_islands(
    task: Task,
    interrupts: Interrupts,
    clock: CompileTimer,
    box: BlackBox | None,
    watch: Watch,
    only: int | None = None,
    sizes: list[int] | None = None,
) -> Outcome:
    """Compute every run of a task with its islands, in batches of whole runs.

    only, sizes: compute just this run, by this process alone, in slices of this size.
    """
    assert task.options.islands is not None
    n_islands = task.options.islands.count
    rows = np.arange(task.total) if only is None else np.array([only])
    runner = _build_runner(task, rows, interrupts, clock, box, None if sizes is None else sizes[0])
    if runner.max_concurrent_runs < n_islands and len(rows) * n_islands > runner.max_concurrent_runs:
        raise InputError(
            f"{n_islands} islands with a population of {task.population} each do not fit into the "
            f"{format_bytes(devices.free_memory())} that are free: take fewer islands or a smaller population."
        )
    outcomes: list[Outcome] = []

    def compute(batch_rows: np.ndarray) -> Outcome:
        inner = _watch_islands(watch, task, outcomes, len(rows), n_islands)
        watch.starts(task.first_run + int(rows[batch_rows[0]]) % task.runs)
        island_rows = np.concatenate([island * len(rows) + batch_rows for island in range(n_islands)])
        islands = runner.compute_batch(island_rows, inner, exchange=_exchange_factory(task), is_local=only is not None)
        _merge_snapshots(watch, inner, len(batch_rows), n_islands)
        watch.held = inner.held
        return _merge_outcome(task, islands, n_islands)

    for _, outcome in runner.iterate_batches(watch.journal, compute, rows_each=n_islands):
        outcomes.append(outcome)
        if outcome.stopped is not None:
            break
    return Outcome.join(outcomes)


def _build_runner(
    task: Task, rows: np.ndarray, interrupts: Interrupts, clock: CompileTimer, box: BlackBox | None, size: int | None
) -> BatchRunner:
    """Build the runner of all islands; its rows are ordered by island, then by run."""
    assert task.options.islands is not None
    n_islands, dtype = task.options.islands.count, np.dtype(task.dtype)
    keys = random.run_keys(task.seed, task.first_run, task.runs)[rows % task.runs]
    initial = task.initial
    if initial is not None and initial.ndim == 3:
        initial = np.tile(initial[rows % task.runs], (n_islands, 1, 1))
    search = task.search()

    def tile_islands(leaf: Any) -> Any:
        return leaf if is_shared(leaf) or not leaf.ndim else np.tile(leaf[rows].astype(dtype), n_islands)

    search = replace(search, algorithm=jax.tree.map(tile_islands, search.algorithm, is_leaf=is_shared))
    # on an accelerator the islands of a single run fill the device only together
    is_single_run = task.is_single_run and devices.on_cpu()
    island_task = replace(
        task, solvers=task.solvers[:1], bound=task.bound[:1], is_single_run=is_single_run, initial=initial
    ).with_options(runs=range(task.first_run, task.first_run + n_islands * len(rows)))
    return BatchRunner(
        island_task, interrupts, clock, box, search=search,
        keys=np.concatenate([random.island_keys(keys, island) for island in range(n_islands)]),
        cells=np.tile(rows // task.runs, n_islands), size=size,
    )  # fmt: skip


def _exchange_factory(task: Task) -> Any:
    assert task.options.islands is not None
    islands, seed, target = task.options.islands, task.seed, float(task.rules.target)
    return lambda share: Migration(islands, seed, target, share)


def _watch_islands(watch: Watch, task: Task, outcomes: list[Outcome], total: int, n_islands: int) -> Watch:
    """Return the Watch of the islands, which reports to `watch` about whole runs."""
    inner = Watch(watch.interrupts, watch.deadline, snapshots=watch.snapshots, viewer=watch.viewer, held=watch.held)
    inner.callback = watch.callback
    inner.pace = watch.pace
    inner.journal = watch.journal
    earlier = [outcome.track for outcome in outcomes]

    def read_survivors(n_runs: int, run: int) -> Population:
        """The survivors of all islands of a run. n_runs: of the present batch."""
        for outcome in outcomes:
            if run < len(outcome.x):
                return best_of_run(outcome, run)
            run -= len(outcome.x)
        assert inner.read_survivors is not None
        return merge_populations([inner.read_survivors(i * n_runs + run) for i in range(n_islands)])

    def notify(generation: int, now: Track) -> Stop | None:
        assert watch.notify is not None
        watch.read_survivors = partial(read_survivors, len(now.best) // n_islands)
        started = Track.join([*earlier, _merge_tracks(now, n_islands)])
        n_missing = total - len(started.best)
        return watch.notify(generation, Track.join([started, Track.start(n_missing)]) if n_missing else started)

    inner.notify = notify if watch.notify is not None else None
    return inner


def _merge_snapshots(watch: Watch, inner: Watch, runs: int, n_islands: int) -> None:
    """Merge the snapshots of islands into those of runs: the populations of a run's islands concatenated."""

    def concatenate_islands(*populations: Any) -> Any:
        rows = np.concatenate(populations)
        rows = rows.reshape(n_islands, runs, *rows.shape[1:])
        return np.concatenate(list(rows), axis=1)

    for g, populations in inner.taken.items():
        watch.taken.setdefault(g, []).append(jax.tree.map(concatenate_islands, *populations))


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
    )


def _merge_fronts(fronts: list[Population]) -> Population:
    """Merge the fronts of a run's islands: what is not dominated among all of them."""
    merged: Population = jax.tree.map(lambda *a: np.concatenate(a), *fronts)
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
        if islands.violation is not None:
            record.violation[...] = islands.violation.min(axis=0)
    else:
        violation = np.zeros_like(islands.best[..., 0]) if islands.violation is None else islands.violation
        best_island = np.lexsort((islands.best[..., 0], violation), axis=0)[0]
        for name in ("best", "violation", "x"):
            values = getattr(islands, name)
            if values is not None:
                index = best_island.reshape(1, *best_island.shape, *(1,) * (values.ndim - 1 - best_island.ndim))
                getattr(record, name)[...] = np.take_along_axis(values, index, axis=0)[0]
    if islands.feasible_share is not None:
        record.feasible_share[...] = islands.feasible_share.mean(axis=0)
    if islands.hypervolume is not None:
        record.hypervolume[...] = islands.hypervolume.max(axis=0)
    if islands.hypervolume_error is not None:
        best_island = islands.hypervolume.argmax(axis=0)[None]
        record.hypervolume_error[...] = np.take_along_axis(islands.hypervolume_error, best_island, axis=0)[0]
    return merged
