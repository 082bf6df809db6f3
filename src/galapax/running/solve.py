"""Run a job in batches of runs as large as memory allows, and make Results of what comes out."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from galapax.core.algorithm import Algorithm, Population, Shape, Shared
from galapax.core.errors import EvaluationError, InputError
from galapax.engines import host, xla
from galapax.engines.loop import (
    NEVER,
    RUNNING,
    Outcome,
    Progress,
    Track,
    Watch,
    best_run,
    check_rules,
    columns,
)
from galapax.engines.points import evaluate_points, probe
from galapax.evaluation.fit import check_fit
from galapax.evaluation.formulas import trace
from galapax.measures import indicators
from galapax.numerics import random
from galapax.results.result import Result
from galapax.running.assemble import details_of, result_of, settings_of, try_derived
from galapax.running.task import Job
from galapax.view.live import Facts, watching
from galapax.view.progress import progress_line


def solve(job: Job) -> tuple[list[Result], str]:
    """Run a job, in batches of runs as large as memory allows: the Result of each solver, and what stopped it early.

    Fewer results than solvers come back when it was stopped before a solver's first run.
    """
    began = time.perf_counter()
    problem, kind = job.problem, job.dtype
    # float64 is switched on for this run alone: importing or using galapax changes no setting of JAX
    with (
        jax.enable_x64(kind == "float64"),
        progress_line(job.progress, job.title) as show,
        watching(job.live, lambda: _facts(job)) as session,
    ):
        box = problem.bounds.rounded(kind)
        algorithm = _stacked(job, kind)
        initial = None if job.initial is None else np.clip(job.initial.astype(kind), box.lower, box.upper)
        watch = Watch(snapshots=job.snapshots, viewer=session)
        try_derived(job, box)
        engine: Callable[..., Outcome]
        if job.blackbox:
            black_box = host.BlackBox(
                problem,
                dtype=kind,
                maximize=job.maximize,
                vectorized=job.vectorized,
                raise_failures=job.on_failure == "raise",
            )
            engine, batch = partial(host.run, black_box), job.total
        else:
            together = job.population if job.vectorized else 0
            traced = trace(problem, kind, maximize=job.maximize, vectorized=together)
            _check_shape(job, traced.shape)
            if job.on_failure is None:
                probe(traced, problem.bounds, kind)
            one = _stacked(dataclasses.replace(job, solvers=job.solvers[:1]), kind)
            at_once = xla.runs_at_once(one, box, traced.shape, job.total)
            engine, batch = partial(xla.run, traced), math.ceil(job.total / math.ceil(job.total / at_once))
            _check_history(job, traced.shape)
        ready = time.perf_counter()
        if job.max_seconds is not None:
            watch.deadline = began + job.max_seconds
        outcomes: list[Outcome] = []
        keys = random.run_keys(job.seed, job.first_run, job.runs)
        for start in range(0, job.total, batch):
            rows = np.arange(batch) + min(start, job.total - batch)  # all batches of one size
            known = start - int(rows[0])  # runs that an earlier batch has already
            watch.notify = _notifier(job, outcomes, known, began, show)
            runs = rows % job.runs
            if session is not None:
                session.start(first_run=job.first_run + int(runs[0]))
            outcome = engine(
                _of_rows(algorithm, rows),
                box,
                job.rules,
                keys=keys[runs],
                cells=rows // job.runs,
                initial=initial[runs] if initial is not None and initial.ndim == 3 else initial,
                watch=watch,
                keep_history=bool(job.history),
                with_x=job.history == "x",
                repairs=job.repairs,
            )
            outcomes.append(outcome.of_runs(slice(known, None)))
            for populations in watch.taken.values():
                populations[-1] = jax.tree.map(lambda a: a[known:], populations[-1])  # noqa: B023 (used at once)
            if outcome.stopped:
                break
        done = time.perf_counter()
        total = Outcome.join(outcomes)
        starts = range(0, len(total.x), job.runs)
        cells = [total.of_runs(slice(first, first + job.runs)) for first in starts]

        def constraints(x: np.ndarray) -> dict[str, np.ndarray]:
            """Their values at points (k, d), {"ineq": (k, p), "eq": (k, q)}, those there are."""
            if not problem.constrained:
                return {}
            if not len(x):
                counts = (black_box if job.blackbox else traced).shape
                return {name: np.zeros((0, n)) for name, n in (("ineq", counts.ineq), ("eq", counts.eq)) if n}
            if job.blackbox:
                each = [black_box.at(point) for point in x]
                return {name: np.stack([values[name] for values in each]) for name in each[0] if name != "fun"}
            values = evaluate_points(traced, x, kind)
            found = {name: getattr(values, name) for name in ("ineq", "eq")}
            return {name: value for name, value in found.items() if value is not None}

        details = [details_of(job, cell, constraints) for cell in cells]
    timings = {"compile": total.compile_seconds, "run": done - ready - total.compile_seconds - watch.held}
    timings["device"] = total.device_seconds
    timings["host"] = time.perf_counter() - began - timings["compile"] - timings["run"] - watch.held
    if watch.held:
        timings["held"] = watch.held
    results = []
    for i, (cell, first) in enumerate(zip(cells, starts, strict=True)):
        alone = dataclasses.replace(job, solvers=(job.solvers[i],))
        result = result_of(alone, cell, cell.populations[i].population, details[i], dict(timings))
        reached = int(cell.track.generations.max())
        result["snapshots"] = {
            g: _snapshot(job, parts, slice(first, first + job.runs))
            for g, parts in sorted(watch.taken.items())
            if g <= reached
        }
        object.__setattr__(result, "_replay", partial(_replay, alone, cell))
        object.__setattr__(result, "_opponents", cell.opponents)
        if job.blackbox and black_box.first_error and result.n_failed:
            result.message += f" First failure: {black_box.first_error}."
        results.append(result)
    if session is not None:
        session.finish(results[0].message)
    return results, total.stopped


def _of_rows(algorithm: Algorithm, rows: np.ndarray) -> Algorithm:
    """The hyper-parameters of these runs."""

    def pick(leaf: Any) -> Any:
        return leaf if isinstance(leaf, Shared) or not leaf.ndim else leaf[rows]

    return jax.tree.map(pick, algorithm, is_leaf=lambda leaf: isinstance(leaf, Shared))


def check_traceable(job: Job) -> None:
    """Refuse what only tracing shows: functions that JAX cannot trace, too many objectives, too large a population."""
    if not job.blackbox:
        with jax.enable_x64(job.dtype == "float64"):
            together = job.population if job.vectorized else 0
            shape = trace(job.problem, job.dtype, maximize=job.maximize, vectorized=together).shape
            _check_shape(job, shape)
            one = _stacked(dataclasses.replace(job, solvers=job.solvers[:1]), job.dtype)
            xla.runs_at_once(one, job.problem.bounds.rounded(job.dtype), shape, job.total)
            _check_history(job, shape)


def check_comparable(job: Job) -> None:
    """Refuse fronts without a reference point, when their hypervolumes are to be compared."""
    if job.solvers[0].several_objectives and job.problem.reference_point is None:
        raise InputError(
            f"runs with several objectives are compared by their hypervolume, and {job.problem.name!r} has no "
            "reference_point to measure it from: give it one by problem.with_(reference_point=...), a point that is "
            "worse in every objective than those of interest."
        )
    if job.problem.reference_point is not None and len(job.problem.reference_point) > 2:
        indicators.moocore()  # it measures more than two objectives, and would be missed only after the runs


def _stacked(job: Job, kind: str) -> Algorithm:
    """The solvers as one: a hyper-parameter that differs between them has one value for each run of the job."""

    def stack(*values: Any) -> Any:
        if isinstance(values[0], Shared):
            return values[0]
        column = np.array(values, kind)
        return column[0] if (column == column[0]).all() else np.repeat(column, job.runs)

    return jax.tree.map(stack, *job.solvers, is_leaf=lambda leaf: isinstance(leaf, Shared))


def _check_shape(job: Job, shape: Shape) -> None:
    """Refuse an algorithm or a stopping rule that does not fit the number of objectives."""
    check_fit(job.solvers[0], job.problem, shape)
    check_rules(job.rules, job.problem, shape)


def _check_history(job: Job, shape: Shape) -> None:
    """Refuse an ensemble's history that the host's memory cannot hold. (A single run is often ended by hand.)"""
    if not job.history or job.rules.generations == NEVER or job.total == 1 or job.max_seconds is not None:
        return
    width = columns(shape, job.rules, job.problem.dim if job.history == "x" else 0) * np.dtype(job.dtype).itemsize
    needed = job.total * int(job.rules.generations) * width
    free = xla.host_memory()
    if needed > free:
        raise InputError(
            f"the history of {job.total} runs over {job.rules.generations} generations takes {needed / 2**30:.1f} GiB "
            f"and {free / 2**30:.1f} GiB of memory are free: pass history=False, or ask for fewer runs or generations."
        )


def _snapshot(job: Job, parts: list[Population], chosen: slice) -> Population:
    """The populations of these runs out of all batches: (n, ...) for a single run, else (R, n, ...)."""
    populations = jax.tree.map(lambda *a: np.concatenate(a)[chosen], *parts)
    if job.maximize:
        populations = populations._replace(objectives=-populations.objectives)
    return jax.tree.map(lambda a: a[0], populations) if job.runs == 1 else populations


def _replay(job: Job, total: Outcome, run: int) -> Result:
    """One run of an ensemble alone; where time, Ctrl-C or a callback ended it, to the same generation."""
    rules = job.rules
    if total.stopped:
        rules = rules._replace(generations=int(total.track.generations[run - job.first_run]))
    initial = job.initial
    if initial is not None and initial.ndim == 3:
        initial = initial[run - job.first_run][None]
    alone = dataclasses.replace(job, rules=rules, runs=1, first_run=run, initial=initial)
    results, _ = solve(dataclasses.replace(alone, max_seconds=None, callback=None, progress=False, live=None))
    return results[0]


def _notifier(
    job: Job, earlier: list[Outcome], known: int, began: float, show: Callable[[Progress], None]
) -> Callable[[int, Track], str]:
    """What the engine calls between chunks: tells progress line and callback, and says why to stop, if so."""

    def state_of(track: Track) -> tuple[float, float, float, float]:
        row = best_run(track)
        return tuple(float(part[row]) for part in (track.violation, track.merit, track.best, track.hypervolume))  # type: ignore[return-value]

    before = sum(int(outcome.track.generations.sum()) * job.evaluations for outcome in earlier)
    best_before = [state_of(o.track) for o in earlier]

    def notify(generation: int, track: Track) -> str:
        track = track.rows(slice(known, None))
        ended = (track.reason != RUNNING) | (track.generations >= job.rules.generations)
        violation, _, best, volume = min([*best_before, state_of(track)])
        state = Progress(
            generation=generation,
            generations=None if job.rules.generations == NEVER else int(job.rules.generations),
            nfev=before + int(track.generations.sum()) * job.evaluations,
            fun=-best if job.maximize else best,
            hypervolume=None if math.isnan(volume) else volume,
            violation=violation,
            runs_done=sum(len(o.x) for o in earlier) + int(ended.sum()),
            runs=job.total,
            seconds=time.perf_counter() - began,
            max_seconds=job.max_seconds,
            feasible_share=float(track.feasible_share.mean()) if job.problem.constrained else None,
        )
        show(state)
        failed = int(track.failed.sum())
        if job.on_failure == "raise" and failed:
            raise EvaluationError(
                f"fun or a constraint returned NaN or inf at {failed} of the {state.nfev} points evaluated so far."
            )
        if job.on_failure is None and failed == int(track.generations.sum()) * job.population:
            return "failures"
        answer = job.callback(state) if job.callback is not None else None
        return "callback" if isinstance(answer, bool | np.bool_) and answer else ""

    return notify


def _facts(job: Job) -> Facts:
    """What the live page must know of a job."""
    return Facts(
        problem=job.problem,
        settings=settings_of(job),
        population=job.population,
        evaluations=job.evaluations,
        generations=None if job.rules.generations == NEVER else int(job.rules.generations),
        contours=not job.blackbox and getattr(job.solvers[0], "game", None) is None,
    )
