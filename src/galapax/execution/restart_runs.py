"""The state of a run that restarts: its finished searches, and the outcome that they are merged into."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from galapax.core.algorithm import Algorithm, Budget, Shared
from galapax.core.evaluation import HISTORY_FIRST_COLUMN, Columns, Record, Shape
from galapax.core.interrupts import Interrupts
from galapax.core.restarts import MIN_AGREEING_SEARCHES, NextSearch, SearchSummary, count_agreeing_searches
from galapax.core.stop import RUNNING, STOP_CODES, UNLIMITED, Stop, stop_from_code
from galapax.execution.batch_runner import BatchRunner
from galapax.execution.host_loop import Viewer, Watch
from galapax.execution.live_view import ChunkView
from galapax.execution.polish import apply_polish, precompile_polish, run_polish, why_not_polishable
from galapax.execution.state import Outcome, Survivors, Track, to_host
from galapax.execution.task import Task, trace_task
from galapax.numerics import random
from galapax.numerics.compile_cache import PROGRAMS, CompileTimer
from galapax.objective.blackbox import BlackBox


@dataclass
class RestartState:
    """One run: its finished searches and their outcomes."""

    row: int  # among the runs of the task
    cell: int
    key: np.ndarray  # (2,)
    past: list[SearchSummary] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)  # of one run each
    sizes: list[int] = field(default_factory=list)  # runs of the slices
    stop: Stop | None = None

    @property
    def evaluations(self) -> int:
        return sum(search.evaluations for search in self.past)

    @property
    def generations(self) -> int:
        return sum(int(outcome.track.generations[0]) for outcome in self.outcomes)

    def next_key(self) -> np.ndarray:
        """Return the key of the next search; the first search has the run's."""
        return self.key if not self.past else random.search_key(self.key, len(self.past))

    def policy_rng(self) -> np.random.Generator:
        """Return the random generator for the restart policy, a new one after each search."""
        return np.random.default_rng([*map(int, self.key), len(self.past)])


def generations_since_best(run: RestartState) -> int:
    """Count the generations of the searches after the one with the best value."""
    best = min(range(len(run.past)), key=lambda i: (run.past[i].violation, run.past[i].best))
    return sum(int(outcome.track.generations[0]) for outcome in run.outcomes[best + 1 :])


def merge_tracks(run: RestartState) -> Track:
    """Merge the tracks of a run's finished searches."""
    track = Track.start(1)
    for outcome in run.outcomes:
        track = add_search(track, outcome.track)
    if run.stop in STOP_CODES:
        track.reason = np.array([STOP_CODES[run.stop]])
    return track


def add_search(earlier: Track, latest: Track) -> Track:
    """Merge the tracks of earlier searches with that of the latest one, run by run."""
    better = (latest.violation < earlier.violation) | (
        (latest.violation == earlier.violation) & (latest.best <= earlier.best)
    )
    reached_target = latest.reason == STOP_CODES[Stop.TARGET]
    return Track(
        generations=earlier.generations + latest.generations,
        evaluations=earlier.evaluations + latest.evaluations,
        best=np.where(better, latest.best, earlier.best),
        violation=np.where(better, latest.violation, earlier.violation),
        failed=earlier.failed + latest.failed,
        reason=np.where(reached_target, latest.reason, RUNNING),
        skipped=earlier.skipped + latest.skipped,
        feasible_share=latest.feasible_share,
        hypervolume=latest.hypervolume,
    )


def build_outcome(
    task: Task, runs: list[RestartState], populations: dict[int, Survivors], stopped: Stop | None, device_seconds: float
) -> Outcome:
    """Merge the searches of each run into the outcome of whole runs."""
    histories = [_merge_histories(task, run) for run in runs] if task.options.keep.history else []
    longest = max((len(rows) for rows in histories), default=0)
    padded = [np.pad(rows, ((0, longest - len(rows)), (0, 0)), "edge") for rows in histories]
    best = [min(run.outcomes, key=lambda outcome: (outcome.track.violation[0], outcome.track.best[0])) for run in runs]
    return Outcome(
        track=Track.join([merge_tracks(run) for run in runs]),
        history=np.stack(padded) if padded else None,
        x=np.concatenate([outcome.x for outcome in best]),
        populations=populations,
        fronts=[],
        opponents=None,
        stopped=stopped,
        device_seconds=device_seconds,
        sizes=[run.sizes for run in runs],
        searches=[(count_agreeing_searches(run.past), len(run.past)) for run in runs],
    )


def _merge_histories(task: Task, run: RestartState) -> np.ndarray:
    """Concatenate the histories of a run's searches to (G, columns), with the best so far in every row."""
    columns: Columns = task.columns
    merged: list[np.ndarray] = []
    for outcome in run.outcomes:
        history = to_host(outcome.history)
        assert history is not None
        rows = history[0].copy()
        if merged:
            previous, record = (Record.unpack(r, columns, HISTORY_FIRST_COLUMN) for r in (merged[-1][-1:], rows))
            worse = record.best[:, 0] >= previous.best[:, 0]  # of equals the earlier is the answer
            if record.violation is not None:
                worse = (record.violation > previous.violation) | ((record.violation == previous.violation) & worse)
            for name in ("best", "violation", "x"):
                values, best_so_far = getattr(record, name), getattr(previous, name)
                if values is not None:
                    values[worse] = best_so_far
        merged.append(rows)
    return np.concatenate(merged)


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
    restarts = task.restarts
    assert restarts is not None
    if task.options.polish is not False and why_not_polishable(task) is None:
        task = _with_gradients(task)
    elif _is_sequential_blackbox(task):
        task = replace(task, restarts=restarts.one_by_one(task.problem.dim, _evaluation_limit(task)))
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
        first_generation = 1 if task.options.blackbox else bound.population + task.repairs * (1 + task.problem.dim)
        if first_generation > max_evaluations:
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


def _is_sequential_blackbox(task: Task) -> bool:
    """Return whether the task is a black box evaluated one point at a time and limited by evaluations only."""
    is_sequential = task.options.blackbox and not task.options.vectorized and task.options.workers.pool is None
    has_no_generation_limit = task.rules.generations == UNLIMITED
    starts_a_simplex = task.initial is None or task.initial.shape[-2] <= task.problem.dim + 1
    return is_sequential and has_no_generation_limit and starts_a_simplex and not task.problem.constrained


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
