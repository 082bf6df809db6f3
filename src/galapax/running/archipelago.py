"""Runs on islands: each island is a row of the computation, and a run is what its islands come to together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from galapax.core.algorithm import is_shared
from galapax.core.errors import InputError, format_bytes
from galapax.core.evaluation import Population
from galapax.core.record import HISTORY_FIRST_COLUMN, Record
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.engines.drive import Watch
from galapax.engines.histories import fetched
from galapax.engines.interrupts import Interrupts
from galapax.engines.islands import Exchange
from galapax.engines.outcome import Outcome, Track
from galapax.engines.programs import Clock
from galapax.evaluation.blackbox import BlackBox
from galapax.metrics.indicators import non_dominated
from galapax.numerics import devices, random
from galapax.running.computation import Computation
from galapax.running.task import Task


def archipelago(
    task: Task,
    noted: Interrupts,
    clock: Clock,
    box: BlackBox | None,
    watch: Watch,
    only: int | None = None,
    sizes: list[int] | None = None,
) -> Outcome:
    """Every run of a task with its islands, in batches of whole runs. only, sizes: just this run, by this process
    alone, in slices of this size.
    """
    assert task.options.islands is not None
    count = task.options.islands.count
    rows = np.arange(task.total) if only is None else np.array([only])
    run = _computation(task, rows, noted, clock, box, None if sizes is None else sizes[0])
    if run.together < count and len(rows) * count > run.together:
        raise InputError(
            f"{count} islands with a population of {task.population} each do not fit into the "
            f"{format_bytes(devices.free_memory())} that are free: take fewer islands or a smaller population."
        )
    outcomes: list[Outcome] = []

    def compute(chosen: np.ndarray) -> Outcome:
        inner = _watch(watch, task, outcomes, len(rows), count)
        watch.starts(task.first_run + int(rows[chosen[0]]) % task.runs)
        places = np.concatenate([island * len(rows) + chosen for island in range(count)])
        own = run.batch(places, inner, exchange=_exchange(task), alone=only is not None)
        _keep(watch, inner, len(chosen), count)
        watch.held = inner.held
        return _of_runs(task, own, count)

    for _, outcome in run.batches(watch.journal, compute, rows_each=count):
        outcomes.append(outcome)
        if outcome.stopped is not None:
            break
    return Outcome.join(outcomes)


def _computation(
    task: Task, rows: np.ndarray, noted: Interrupts, clock: Clock, box: BlackBox | None, size: int | None
) -> Computation:
    """Rows in order of islands, then runs."""
    assert task.options.islands is not None
    count, kind = task.options.islands.count, np.dtype(task.dtype)
    keys = random.run_keys(task.seed, task.first_run, task.runs)[rows % task.runs]
    initial = task.initial
    if initial is not None and initial.ndim == 3:
        initial = np.tile(initial[rows % task.runs], (count, 1, 1))
    search = task.search()

    def of_islands(leaf: Any) -> Any:
        return leaf if is_shared(leaf) or not leaf.ndim else np.tile(leaf[rows].astype(kind), count)

    search = replace(search, algorithm=jax.tree.map(of_islands, search.algorithm, is_leaf=is_shared))
    # on an accelerator the islands of a single run fill the device only together
    alone = task.is_single_run and devices.on_cpu()
    own = replace(
        task, solvers=task.solvers[:1], bound=task.bound[:1], is_single_run=alone, initial=initial
    ).with_options(runs=range(task.first_run, task.first_run + count * len(rows)))
    return Computation(
        own, noted, clock, box, search=search,
        keys=np.concatenate([random.island_keys(keys, island) for island in range(count)]),
        cells=np.tile(rows // task.runs, count), size=size,
    )  # fmt: skip


def _exchange(task: Task) -> Any:
    assert task.options.islands is not None
    islands, seed, target = task.options.islands, task.seed, float(task.rules.target)
    return lambda share: Exchange(islands, seed, target, share)


def _watch(watch: Watch, task: Task, earlier: list[Outcome], total: int, count: int) -> Watch:
    """What looks at the islands, and tells of whole runs."""
    inner = Watch(watch.interrupts, watch.deadline, snapshots=watch.snapshots, viewer=watch.viewer, held=watch.held)
    inner.callback = watch.callback
    inner.journal = watch.journal
    before = [outcome.track for outcome in earlier]

    def notify(made: int, now: Track) -> Stop | None:
        assert watch.notify is not None
        done = Track.join([*before, _track(now, count)])
        missing = total - len(done.best)
        return watch.notify(made, Track.join([done, Track.start(missing)]) if missing else done)

    inner.notify = notify if watch.notify is not None else None
    return inner


def _keep(watch: Watch, inner: Watch, runs: int, count: int) -> None:
    """Snapshots of whole runs: the populations of their islands one after the other."""

    def of_runs(*parts: Any) -> Any:
        rows = np.concatenate(parts)
        rows = rows.reshape(count, runs, *rows.shape[1:])
        return np.concatenate(list(rows), axis=1)

    for g, parts in inner.taken.items():
        watch.taken.setdefault(g, []).append(jax.tree.map(of_runs, *parts))


def _track(rows: Track, count: int) -> Track:
    """What is known of runs, from what is known of their islands."""

    def by_run(values: np.ndarray) -> np.ndarray:
        return values.reshape(count, -1)

    best = _best_islands(rows, count)
    runs = np.arange(best.shape[0])
    reasons = by_run(rows.reason)
    reached, running = (reasons == STOP_CODES[Stop.TARGET]).any(axis=0), (reasons == RUNNING).any(axis=0)
    spent = (reasons == STOP_CODES[Stop.BUDGET]).any(axis=0)
    ended = np.where(spent, STOP_CODES[Stop.BUDGET], reasons[best, runs])  # the island that has the answer says how
    reason = np.where(reached, STOP_CODES[Stop.TARGET], np.where(running, RUNNING, ended))
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


def _best_islands(rows: Track, count: int) -> np.ndarray:
    """The number of each run's best island, (runs,)."""
    violation, merit = (part.reshape(count, -1) for part in (rows.violation, rows.merit))
    return np.lexsort((merit, violation), axis=0)[0]


def _of_runs(task: Task, islands: Outcome, count: int) -> Outcome:
    """The outcome of runs from that of their islands."""
    best = _best_islands(islands.track, count)
    runs = np.arange(len(best))
    track, rows = _track(islands.track, count), fetched(islands.history)
    fronts = []
    if islands.fronts:
        fronts = [_front([islands.fronts[island * len(runs) + run] for island in range(count)]) for run in runs]
    return Outcome(
        track=track,
        history=None if rows is None else _history(task, rows, islands.track.generations, count),
        x=islands.x.reshape(count, len(runs), -1)[best, runs],
        populations=islands.populations,
        fronts=fronts,
        opponents=None,
        stopped=islands.stopped,
        device_seconds=islands.device_seconds,
        sizes=islands.sizes[: len(runs)],
    )


def _front(parts: list[Population]) -> Population:
    """What is not dominated among the fronts of a run's islands."""
    every: Population = jax.tree.map(lambda *a: np.concatenate(a), *parts)
    if every.violation is not None and len(every.violation):  # an island may not have found a feasible point
        least = every.violation == every.violation.min()
        every = jax.tree.map(lambda a: a[least], every)
    kept = non_dominated(np.asarray(every.objectives))
    return jax.tree.map(lambda a: a[kept], every)


def _history(task: Task, rows: np.ndarray, made: np.ndarray, count: int) -> np.ndarray:
    """History (runs, G, columns) from that of the islands: the best of all, the mean of means, evaluations added up.

    made: the generations of each island; those that ended before others repeat their last row, at no cost.
    """
    columns = task.columns
    rows = rows.copy()
    over = np.arange(rows.shape[1]) >= made[:, None]
    Record.unpack(rows, columns, HISTORY_FIRST_COLUMN).evaluations[over] = 0
    every = rows.reshape(count, -1, *rows.shape[1:])
    merged = every[0].copy()
    own, new = Record.unpack(every, columns, HISTORY_FIRST_COLUMN), Record.unpack(merged, columns, HISTORY_FIRST_COLUMN)
    new.evaluations[...] = own.evaluations.sum(axis=0)
    new.mean[...] = own.mean.mean(axis=0)
    new.worst[...] = own.worst.max(axis=0)
    if columns.shape.objectives > 1:
        new.best[...] = own.best.min(axis=0)
        if own.violation is not None:
            new.violation[...] = own.violation.min(axis=0)
    else:
        violation = np.zeros_like(own.best[..., 0]) if own.violation is None else own.violation
        first = np.lexsort((own.best[..., 0], violation), axis=0)[0]
        for name in ("best", "violation", "x"):
            values = getattr(own, name)
            if values is not None:
                at = first.reshape(1, *first.shape, *(1,) * (values.ndim - 1 - first.ndim))
                getattr(new, name)[...] = np.take_along_axis(values, at, axis=0)[0]
    if own.feasible_share is not None:
        new.feasible_share[...] = own.feasible_share.mean(axis=0)
    if own.hypervolume is not None:
        new.hypervolume[...] = own.hypervolume.max(axis=0)
    if own.hypervolume_error is not None:
        first = own.hypervolume.argmax(axis=0)[None]
        new.hypervolume_error[...] = np.take_along_axis(own.hypervolume_error, first, axis=0)[0]
    return merged
