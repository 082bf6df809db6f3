"""Runs that restart: each is a sequence of searches, and runs whose next searches are alike are computed together.

Searches are alike when they are the same program: the same algorithm with a population of the same size. So an ensemble
in which some runs restart with twice the population and others with the first one fills the device all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from galapax.core.algorithm import Algorithm, Budget, Shared
from galapax.core.evaluation import Shape
from galapax.core.restarts import MIN_AGREEING_SEARCHES, NextSearch, SearchSummary, count_agreeing_searches
from galapax.core.stop import STOP_CODES, UNLIMITED, Stop, stop_from_code
from galapax.engines.host_loop import Viewer, Watch
from galapax.engines.interrupts import Interrupts
from galapax.engines.live_view import ChunkView
from galapax.engines.outcome import Outcome, Survivors, Track
from galapax.engines.programs import PROGRAMS, CompileTimer
from galapax.evaluation.blackbox import BlackBox
from galapax.numerics import random
from galapax.running.batch_runner import BatchRunner
from galapax.running.polish import apply_polish, precompile_polish, run_polish, why_not_polishable
from galapax.running.restart_state import RestartState, add_search, build_outcome, generations_since_best, merge_tracks
from galapax.running.task import Task, trace_task

MAX_SEARCHES = 2**16  # of one run
POLISH_RESERVE_PER_VARIABLE = 50  # evaluations reserved for the polish, if that is not much of the budget
DESCENT_EVALUATIONS_PER_VARIABLE = 200  # that the descent after a sprint may take
MIN_COMPILE_SECONDS = 0.5  # of compiling so far, from which on it pays to precompile the searches to come


@dataclass
class SearchGroup:
    """Runs whose next searches are the same program and are computed together."""

    runs: list[RestartState] = field(default_factory=list)
    bound: list[Algorithm] = field(default_factory=list)
    legs: list[NextSearch] = field(default_factory=list)
    max_evaluations: list[float] = field(default_factory=list)


def run_with_restarts(
    task: Task,
    interrupts: Interrupts,
    clock: CompileTimer,
    box: BlackBox | None,
    watch: Watch,
    only: int | None = None,
    sizes: list[int] | None = None,
) -> Outcome:
    """Compute every run of a task, restarting each until its policy ends it.

    only, sizes: compute just this run, in slices of these sizes.
    """
    assert task.restarts is not None
    if task.options.polish is not False and why_not_polishable(task) is None:
        task = _with_gradients(task)
    keys = random.run_keys(task.seed, task.first_run, task.runs)
    rows = range(task.total) if only is None else [only]
    runs = [RestartState(row, row // task.runs, keys[row % task.runs]) for row in rows]
    populations: dict[int, Survivors] = {}
    stopped: Stop | None = None
    device_seconds = 0.0
    precompiled: set[Hashable] = set()
    while stopped is None and any(run.stop is None for run in runs):
        for group in _group_searches(task, box, [run for run in runs if run.stop is None]):
            # with a limit of generations there may be no other search
            if clock.compile_seconds > MIN_COMPILE_SECONDS and task.rules.generations == UNLIMITED:
                _precompile_next(task, group, interrupts, box, precompiled)
            size = None if sizes is None else sizes[len(group.runs[0].past)]
            outcome = _run_group(task, group, runs, interrupts, clock, box, watch, size)
            device_seconds += outcome.device_seconds
            for cell, survivors in outcome.populations.items():
                populations[cell] = min(populations.get(cell, survivors), survivors, key=lambda s: s.rank)
            stopped = outcome.stopped
            if stopped is not None:
                break
    for run in runs:
        if run.stop is None:
            run.stop = stopped or Stop.BUDGET
    started = [run for run in runs if run.outcomes]
    return build_outcome(task, started, populations, stopped, device_seconds)


def _group_searches(task: Task, box: BlackBox | None, runs: list[RestartState]) -> list[SearchGroup]:
    """Group runs by the program of their next search; runs that have none get their termination reason."""
    groups: dict[Hashable, SearchGroup] = {}
    for run in runs:
        leg = _next_search(task, run)
        if isinstance(leg, Stop):
            run.stop = leg
            continue
        bound, max_evaluations = _bind_search(task, run, leg, _known_shape(task, box))
        if bound.population + task.repairs * (1 + task.problem.dim) > max_evaluations:
            run.stop = Stop.BUDGET
            continue
        generations_left = _generations_left(task, run)
        group = groups.setdefault((jax.tree.structure(bound), generations_left, leg.polish), SearchGroup())
        group.runs.append(run)
        group.bound.append(bound)
        group.legs.append(leg)
        group.max_evaluations.append(max_evaluations)
    return list(groups.values())


def _bind_search(task: Task, run: RestartState, leg: NextSearch, shape: Shape) -> tuple[Algorithm, float]:
    """Return the algorithm of a search, bound to the problem, and the evaluations it may use."""
    max_evaluations = min(leg.evaluations, _evaluation_limit(task) - run.evaluations)
    budget = Budget(None, None if math.isinf(max_evaluations) else int(max_evaluations))
    return leg.algorithm.bind(task.problem.dim, shape, budget), max_evaluations


def _precompile_next(
    task: Task, group: SearchGroup, interrupts: Interrupts, box: BlackBox | None, precompiled: set[Hashable]
) -> None:
    """Compile in the background the programs of the searches that are likely to follow, and of the polish.

    precompiled: those already requested; extended here.
    """
    assert task.restarts is not None
    run, leg = group.runs[0], group.legs[0]
    evaluations_left = _evaluation_limit(task) - run.evaluations
    for likely in task.restarts.predict_next(task.solvers[run.cell], run.past, leg, evaluations_left):
        bound, max_evaluations = _bind_search(task, run, likely, _known_shape(task, box))
        structure = jax.tree.structure(bound)
        if structure not in precompiled and bound.population <= max_evaluations:
            precompiled.add(structure)
            count = len(group.runs)
            likely_group = SearchGroup(group.runs, [bound] * count, [likely] * count, [max_evaluations] * count)
            PROGRAMS.precompile(partial(_precompile_group, task, likely_group, interrupts, box))
    if precompiled and "polish" not in precompiled:
        precompiled.add("polish")
        PROGRAMS.precompile(partial(precompile_polish, task))


def _precompile_group(task: Task, group: SearchGroup, interrupts: Interrupts, box: BlackBox | None) -> Iterator[None]:
    """Compile the programs of a group's searches, one at each step of the iterator."""
    return _build_runner(task, group, interrupts, CompileTimer(), box, None).precompile()


def _known_shape(task: Task, box: BlackBox | None) -> Shape:
    """Return the number of objectives and constraints; for a black box they are known once it was called."""
    return task.shape if box is None or not box.widths else box.shape


def _generations_left(task: Task, run: RestartState) -> int:
    limit = int(task.rules.generations)
    return UNLIMITED if limit == UNLIMITED else limit - run.generations


def _evaluation_limit(task: Task) -> float:
    return math.inf if task.rules.evaluations is None else float(task.rules.evaluations)


def _with_gradients(task: Task) -> Task:
    """Return the task with a restart policy that uses gradients, and with evaluations reserved for the polish."""
    assert task.restarts is not None
    rules, max_evaluations = task.rules, _evaluation_limit(task)
    if math.isfinite(max_evaluations):
        first = task.population + task.repairs * (1 + task.problem.dim)
        reserve = min(POLISH_RESERVE_PER_VARIABLE * task.problem.dim, 0.05 * max_evaluations)
        rules = rules._replace(evaluations=max(first, max_evaluations - reserve))
    return replace(task, rules=rules, restarts=task.restarts.with_gradients(task.problem.dim))


def _next_search(task: Task, run: RestartState) -> NextSearch | Stop:
    """Ask the restart policy for the next search of a run, or return why there is none."""
    assert task.restarts is not None
    past = run.past
    if past:
        if past[-1].stop is Stop.TARGET:
            return Stop.TARGET
        # a target that was asked for is looked for until the budget is spent
        if not math.isfinite(task.rules.target) and count_agreeing_searches(past) >= MIN_AGREEING_SEARCHES:
            return Stop.TOLERANCE
        if task.rules.generations != UNLIMITED and run.generations >= task.rules.generations:
            return Stop.BUDGET
        if generations_since_best(run) >= task.rules.stall:
            return Stop.STALL
        if len(past) >= MAX_SEARCHES:
            return Stop.BUDGET
    rng = run.policy_rng()
    return task.restarts.next(task.solvers[run.cell], past, _evaluation_limit(task) - run.evaluations, rng.random)


def _build_runner(
    task: Task, group: SearchGroup, interrupts: Interrupts, clock: CompileTimer, box: BlackBox | None, size: int | None
) -> BatchRunner:
    """Build the runner that computes one search of each run of a group."""
    dtype, count = np.dtype(task.dtype), len(group.runs)
    generations_left = _generations_left(task, group.runs[0])
    group_task = replace(
        task,
        solvers=(group.legs[0].algorithm,),
        bound=(group.bound[0],),
        rules=task.rules._replace(generations=generations_left, stall=UNLIMITED, evaluations=math.inf),
        initial=_initial_points(task, group),
    ).with_options(runs=range(task.first_run, task.first_run + count), keep=replace(task.options.keep, snapshots=()))
    if task.options.vectorized and not task.options.blackbox and group.bound[0].population != task.population:
        group_task = trace_task(group_task)  # such a function knows how many solutions it is given

    def stack(*values: Any) -> Any:
        if isinstance(values[0], Shared):
            return values[0]
        return np.array(values, dtype)  # one for each run, be they the same: another program would round otherwise

    search = group_task.search()
    search = replace(
        search,
        algorithm=jax.tree.map(stack, *group.bound, is_leaf=lambda leaf: isinstance(leaf, Shared)),
        rules=search.rules._replace(evaluations=np.array(group.max_evaluations, dtype)),
    )
    return BatchRunner(
        group_task, interrupts, clock, box, search=search, keys=np.stack([run.next_key() for run in group.runs]),
        cells=np.array([run.cell for run in group.runs]), size=size,
    )  # fmt: skip


def _run_group(
    task: Task,
    group: SearchGroup,
    runs: list[RestartState],
    interrupts: Interrupts,
    clock: CompileTimer,
    box: BlackBox | None,
    watch: Watch,
    size: int | None,
) -> Outcome:
    """Compute one search of each run of a group, in batches, and record how each ended."""
    runner = _build_runner(task, group, interrupts, clock, box, size)
    outcomes = []

    def compute(rows: np.ndarray) -> Outcome:
        batch_runs = [group.runs[row] for row in rows]
        inner = _watch_group(watch, task, runs, batch_runs)
        if box is not None:
            box.late = inner.look
        outcome = runner.compute_batch(rows, inner)
        if inner.asked is not None:  # a search that was over at once does not go on, but the run would
            outcome = replace(outcome, stopped=outcome.stopped or inner.asked)
        _merge_watch(watch, inner, batch_runs, outcome)
        return outcome

    for rows, outcome in runner.iterate_batches(watch.journal, compute):
        batch_runs = [group.runs[row] for row in rows]
        outcomes.append(outcome)
        if group.legs[0].polish and outcomes[-1].stopped is None:
            evaluations_left = [_evaluation_limit(task) - run.evaluations for run in batch_runs]
            outcomes[-1] = _refine_outcome(
                runner.task, clock, outcomes[-1], evaluations_left, lambda: not (interrupts.seen or watch.late)
            )
        for i, run in enumerate(batch_runs):
            search = outcomes[-1].of_runs(slice(i, i + 1))
            _record_search(task, run, group.legs[rows[i]], runner.task.population, search)
        if outcomes[-1].stopped is not None:
            break
    return Outcome.join(outcomes)


def _refine_outcome(
    task: Task, clock: CompileTimer, outcome: Outcome, evaluations_left: list[float], may_continue: Callable[[], bool]
) -> Outcome:
    """Refine the best points of finished searches by their gradients; this counts as one more generation."""
    track = outcome.track
    max_evaluations = np.minimum(
        np.array(evaluations_left) - track.evaluations, DESCENT_EVALUATIONS_PER_VARIABLE * task.problem.dim
    )
    max_evaluations = np.where(track.reason == STOP_CODES[Stop.TARGET], 0, max_evaluations)
    polished_runs = run_polish(task, clock, outcome.x, track.best, track.violation, max_evaluations, may_continue)
    if not polished_runs.about.evaluations.any():
        return outcome
    refined = apply_polish(task, outcome, polished_runs)
    reason = np.where(
        polished_runs.about.converged & (refined.track.reason != STOP_CODES[Stop.TARGET]),
        STOP_CODES[Stop.TOLERANCE],
        refined.track.reason,
    )
    new_track = replace(refined.track, reason=reason, generations=track.generations + 1)
    return replace(refined, track=new_track, polish=None)


def _initial_points(task: Task, group: SearchGroup) -> np.ndarray | None:
    """Return the user's starting points for a group of first searches, None for later ones."""
    if task.initial is None or group.runs[0].past:
        return None
    if task.initial.ndim == 2:
        return task.initial
    return task.initial[[run.row % task.runs for run in group.runs]]


def _record_search(task: Task, run: RestartState, leg: NextSearch, population: int, outcome: Outcome) -> None:
    """Add a finished search to the state of its run."""
    track, box = outcome.track, task.problem.bounds
    stop = outcome.stopped or stop_from_code(int(track.reason[0]))
    x = (np.asarray(outcome.x[0], np.float64) - box.lower) / box.span
    evaluations, best = int(track.evaluations[0]), float(track.best[0])
    run.past.append(SearchSummary(leg.kind, population, evaluations, best, float(track.violation[0]), x, stop))
    run.outcomes.append(outcome)
    run.sizes += outcome.sizes[0]


def _watch_group(watch: Watch, task: Task, runs: list[RestartState], group: list[RestartState]) -> Watch:
    """Return the Watch of a group's searches, which reports to `watch` about whole runs."""
    offset = group[0].generations
    rows = {run.row: i for i, run in enumerate(runs)}
    group_rows = np.array([rows[run.row] for run in group])
    finished = Track.join([merge_tracks(run) for run in runs])

    def all_tracks(now: Track) -> Track:
        """The tracks of all runs, those of the group as they stand now."""
        group_track = add_search(finished.rows(group_rows), now)
        columns = {}
        for name, value in vars(finished).items():
            value = value.copy()
            value[group_rows] = getattr(group_track, name)
            columns[name] = value
        return Track(**columns)

    def notify(generation: int, now: Track) -> Stop | None:
        assert watch.notify is not None
        inner.asked = watch.notify(offset + generation, all_tracks(now))
        return inner.asked

    viewer: Viewer | None = watch.viewer
    if viewer is not None and len(runs) == 1:
        viewer = _OffsetViewer(viewer, offset, all_tracks)
    snapshots = tuple(g - offset for g in watch.snapshots if g > offset)
    if not group[0].past or len(runs) > 1:
        watch.starts(task.first_run + group[0].row % task.runs)
    inner = Watch(watch.interrupts, watch.deadline, snapshots=snapshots, viewer=viewer, held=watch.held)
    inner.callback = watch.callback
    inner.journal = watch.journal
    inner.notify = notify if watch.notify is not None else None
    return inner


def _merge_watch(watch: Watch, inner: Watch, group: list[RestartState], outcome: Outcome) -> None:
    """Add the snapshots of a search, and how long it was paused, to the Watch of the whole runs."""
    offset = group[0].generations
    n_generations = int(outcome.track.generations.max())
    watch.taken |= {offset + g: populations for g, populations in inner.taken.items() if g <= n_generations}
    watch.held = inner.held


class _OffsetViewer:
    """Shows the searches of a run to a Viewer as one run: generations are counted on."""

    def __init__(self, viewer: Viewer, offset: int, all_tracks: Any) -> None:
        self._viewer, self._offset, self._all_tracks = viewer, offset, all_tracks
        self.max_generations = viewer.max_generations

    def on_chunk(self, generation: int, before: Track, now: Track, glance: ChunkView, last: bool) -> None:
        self._viewer.on_chunk(self._offset + generation, self._all_tracks(before), self._all_tracks(now), glance, last)

    def wait_if_paused(self, interrupted: Callable[[], bool]) -> Stop | None:
        stop = self._viewer.wait_if_paused(interrupted)
        self.max_generations = self._viewer.max_generations
        return stop
