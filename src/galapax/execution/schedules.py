"""Schedules: which runs are computed next, and how their outcomes become those of whole runs.

Independent runs are one group; runs that restart are computed search after search; runs on islands
(island_schedule.py) have a row for each island. `run_schedule` computes all of them, and a run is replayed by the
schedule `schedule.only(row, sizes)`.

A run that restarts is a sequence of searches, and searches that are the same program are computed together: those with
equal algorithm and population size. So an ensemble in which some runs restart with twice the population and others with
the first one still fills the device.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from galapax.algorithms import algorithm_name
from galapax.core.algorithm import Algorithm, Budget, Shared
from galapax.core.problem import HISTORY_FIRST_COLUMN, Bounds, Columns, Population, Record
from galapax.core.restarts import (
    ROUNDING_ULPS,
    STOP_CONFIDENCE,
    NextSearch,
    SearchSummary,
    estimate_confidence,
    find_known_point,
    summarize_agreement,
    summarize_search,
)
from galapax.core.stop import RUNNING, STOP_CODES, UNLIMITED, Stop, stop_from_code
from galapax.execution.batch_runner import BatchRunner, Group, select_rows
from galapax.execution.host_loop import BatchView, RunContext
from galapax.execution.observers import ChunkView
from galapax.execution.polish import apply_polish, precompile_polish, refine_best_points, why_not_polishable
from galapax.execution.search import LastSamples
from galapax.execution.state import (
    Outcome,
    Survivors,
    Track,
    best_of_run,
    join_runs,
    merge_populations,
    take_runs,
    to_host,
)
from galapax.execution.task import Task, trace_task
from galapax.numerics import random
from galapax.numerics.compile_cache import PROGRAMS, CompileTimer


class Schedule(Protocol):
    """Decides which groups of runs are computed next, and merges what came of them."""

    def next_groups(self) -> list[Group]:
        """Return the groups that can be computed now; none when all runs are over."""

    def announce(self, group: Group, runs: np.ndarray, context: RunContext) -> None:
        """Tell the live page which batch begins."""

    def view(self, group: Group, runs: np.ndarray) -> BatchView:
        """Return how a batch of the group is reported to the observers."""

    def record(self, group: Group, runs: np.ndarray, outcome: Outcome) -> Outcome:
        """Record the outcome of a batch and return it, refined where the schedule does so."""

    def merge(self) -> Outcome:
        """Return the outcome of all runs that were started."""

    def only(self, row: int, sizes: list[int]) -> Schedule:
        """Return the schedule of one run alone, in slices of the sizes that it was computed in."""


def run_schedule(schedule: Schedule, context: RunContext) -> Outcome:
    """Compute the groups of a schedule until all runs are over or something asks to stop."""
    stopped = None
    while stopped is None and (groups := schedule.next_groups()):
        for group in groups:
            stopped = _run_group(schedule, group, context).stopped
            if stopped is not None:
                break
    return schedule.merge()


def _run_group(schedule: Schedule, group: Group, context: RunContext) -> Outcome:
    """Compute a group in batches; return the outcome of the last."""
    runner = BatchRunner(group, context)

    def compute(runs: np.ndarray) -> Outcome:
        schedule.announce(group, runs, context)
        return runner.compute_batch(runs, schedule.view(group, runs))

    for runs, outcome in runner.iterate_batches(compute):
        outcome = schedule.record(group, runs, outcome)
        if outcome.stopped is not None:
            break
    return outcome


@dataclass
class IndependentSchedule:
    """Every run is computed once, apart from the others."""

    task: Task
    row: int | None = None  # the only run
    width: int | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    def next_groups(self) -> list[Group]:
        if self.outcomes:
            return []
        task, n_cells = self.task, self.task.total // self.task.runs
        keys = np.tile(random.run_keys(task.seed, task.first_run, task.runs), (n_cells, 1))
        cells = np.repeat(np.arange(n_cells), task.runs)
        initial = task.initial
        if initial is not None and initial.ndim == 3 and n_cells > 1:
            initial = np.tile(initial, (n_cells, 1, 1))
        run_numbers = np.tile(task.first_run + np.arange(task.runs), n_cells)
        group = Group(task, task.search(), keys, cells, run_numbers, initial, width=self.width)
        return [group if self.row is None else self._group_of_run(group, self.row)]

    def _group_of_run(self, group: Group, row: int) -> Group:
        """Return the slice that a run was computed in, with the other runs inactive."""
        assert self.width is not None
        first = row // self.width * self.width
        rows = slice(first, min(first + self.width, self.task.total))
        initial = group.initial
        if initial is not None and initial.ndim == 3:
            initial = initial[rows]
        return replace(
            group,
            search=select_rows(group.search, rows),
            keys=group.keys[rows],
            cells=group.cells[rows],
            run_numbers=group.run_numbers[rows],
            initial=initial,
            active_rows=np.array([row - first]),
            is_local=True,
        )

    def announce(self, group: Group, runs: np.ndarray, context: RunContext) -> None:
        context.on_batch_start(self.task.first_run + int(runs[0]) % self.task.runs)

    def view(self, group: Group, runs: np.ndarray) -> BatchView:
        return BatchView(finished=tuple(self.outcomes))

    def record(self, group: Group, runs: np.ndarray, outcome: Outcome) -> Outcome:
        self.outcomes.append(outcome)
        return outcome

    def merge(self) -> Outcome:
        return Outcome.join(self.outcomes)

    def only(self, row: int, sizes: list[int]) -> IndependentSchedule:
        return IndependentSchedule(self.task, row, sizes[0])


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
    track: Track = field(default_factory=lambda: Track.start(1))  # of all searches

    @property
    def evaluations(self) -> int:
        return sum(search.evaluations for search in self.past)

    @property
    def generations(self) -> int:
        return sum(int(outcome.track.generations[0]) for outcome in self.outcomes)

    def next_key(self) -> np.ndarray:
        """Return the key of the next search; the first search has the run's."""
        return self.key if not self.past else random.search_key(self.key, len(self.past))

    def known_point(self, bounds: Bounds) -> np.ndarray:
        """Return value and x of the best point so far, (1 + d,); NaN where no search has converged to it."""
        known = find_known_point(self.past)
        if known is None:
            return np.full(1 + bounds.dim, np.nan)
        return np.append(known.best, bounds.lower + bounds.span * known.x)

    def policy_rng(self) -> np.random.Generator:
        """Return the random generator for the restart policy, a new one after each search."""
        return np.random.default_rng([*map(int, self.key), len(self.past)])


def generations_since_best(run: RestartState) -> int:
    """Count the generations of the searches after the one with the best value."""
    best = min(range(len(run.past)), key=lambda i: (run.past[i].violation, run.past[i].best))
    return sum(int(outcome.track.generations[0]) for outcome in run.outcomes[best + 1 :])


def refinement_rows(run: RestartState) -> list[int]:
    """List the rows of a run's history that are refinements by the gradient and not generations."""
    rows, offset = [], 0
    for outcome in run.outcomes:
        rows += [offset + row for row in outcome.refinements[0]]
        offset += int(outcome.track.generations[0])
    return rows


def search_rows(run: RestartState) -> list[int]:
    """List the rows of a run's history in which a further search begins."""
    lengths = [int(outcome.track.generations[0]) for outcome in run.outcomes]
    return np.cumsum(lengths)[:-1].tolist()


def find_track(run: RestartState) -> Track:
    """Return the track of a run's finished searches, with the reason why it ended, if it has."""
    return run.track._replace(reason=np.array([STOP_CODES[run.stop]])) if run.stop in STOP_CODES else run.track


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
        mean=latest.mean,
    )


def merge_searches(
    task: Task, runs: list[RestartState], populations: dict[int, Survivors], stopped: Stop | None, device_seconds: float
) -> Outcome:
    """Merge the searches of each run into the outcome of whole runs."""
    histories = [_merge_histories(task, run) for run in runs] if task.options.keep.history else []
    longest = max((len(rows) for rows in histories), default=0)
    padded = [np.pad(rows, ((0, longest - len(rows)), (0, 0)), "edge") for rows in histories]
    best = [min(run.outcomes, key=lambda outcome: (outcome.track.violation[0], outcome.track.best[0])) for run in runs]
    track = join_runs([find_track(run) for run in runs])
    return Outcome(
        track=track._replace(mean=np.array([outcome.track.mean[0] for outcome in best])),
        history=np.stack(padded) if padded else None,
        x=np.concatenate([outcome.x for outcome in best]),
        populations=populations,
        fronts=[],
        opponents=None,
        stopped=stopped,
        device_seconds=device_seconds,
        sizes=[run.sizes for run in runs],
        agreement=[summarize_agreement(run.past) for run in runs],
        refinements=[refinement_rows(run) for run in runs],
        further_searches=[search_rows(run) for run in runs],
        snapshots=_merge_snapshots(runs[0]) if len(runs) == 1 else {},  # one run alone has any
        last=_merge_last(runs, best) if task.options.noisy else None,
    )


def _merge_last(runs: list[RestartState], best: list[Outcome]) -> LastSamples:
    """Merge where the searches of runs under noise ended: the last samples of each run's best search, and the centres
    of its next best ones.
    """
    samples = []
    n_points = max(outcome.last.points.shape[1] for outcome in best if outcome.last is not None)
    for run, outcome in zip(runs, best, strict=True):
        ends = sorted(run.outcomes, key=lambda o: (o is not outcome, o.track.violation[0], o.track.best[0]))
        centres = [np.asarray(end.last.centre)[0] for end in ends if end.last is not None]
        centres += centres[:1] * MAX_RIVALS  # so that all runs have as many
        last = outcome.last
        assert last is not None
        rows = np.arange(n_points) % last.points.shape[1]  # so many of each run
        rivals = jnp.asarray(np.stack(centres[1 : 1 + MAX_RIVALS])[None])
        samples.append(last._replace(points=last.points[:, rows], violation=last.violation[:, rows], rivals=rivals))
    return join_runs(samples)


def _merge_snapshots(run: RestartState) -> dict[int, Population]:
    """Merge the snapshots of a run's searches, by generation of the run."""
    snapshots: dict[int, Population] = {}
    offset = 0
    for outcome in run.outcomes:
        n_generations = int(outcome.track.generations.max())
        snapshots |= {offset + g: population for g, population in outcome.snapshots.items() if g <= n_generations}
        offset += n_generations
    return snapshots


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
MAX_RIVALS = 3  # searches of a run under noise whose ends are compared with that of the best
POLISH_RESERVE_PER_VARIABLE = 50  # evaluations reserved for the polish, if that is not much of the budget
DESCENT_EVALUATIONS_PER_VARIABLE = 200  # that a descent may take
MAX_GAIN_AT_END = 1e-3  # of all that a descent gained: the most that another step may promise where it has converged
MIN_COMPILE_SECONDS = 0.5  # of compiling so far, from which on it pays to precompile the searches to come


@dataclass(frozen=True)
class BoundSearch:
    """The next search of a run, its algorithm bound to the problem and to the evaluations that it may use."""

    state: RestartState
    search: NextSearch
    bound: Algorithm
    max_evaluations: float


@dataclass
class SearchGroup(Group):
    """Runs whose next searches are the same program, with these searches."""

    searches: list[BoundSearch] = field(default_factory=list)


class RestartSchedule:
    """Every run is restarted until its policy ends it.

    row, sizes: of the only run, and the runs in the slices of its searches.
    """

    def __init__(self, task: Task, context: RunContext, row: int | None = None, sizes: list[int] | None = None) -> None:
        self.asked_task = task
        if task.options.polish is not False and why_not_polishable(task) is None:
            task = _with_gradients(task)
        self.task, self.context, self.sizes = task, context, sizes
        keys = random.run_keys(task.seed, task.first_run, task.runs)
        rows = range(task.total) if row is None else [row]
        self.states = [RestartState(row, row // task.runs, keys[row % task.runs]) for row in rows]
        self.populations: dict[int, Survivors] = {}
        self.stopped: Stop | None = None
        self.device_seconds = 0.0
        self._precompiled: set[Hashable] = set()

    def next_groups(self) -> list[Group]:
        """Group the next searches by their program; a run that has none gets its termination reason."""
        groups: dict[Hashable, list[BoundSearch]] = {}
        for state in self.states:
            search = self._bind_next_search(state) if state.stop is None else Stop.BUDGET
            if isinstance(search, Stop):
                state.stop = state.stop or search
                continue
            has_start = search.search.start is not None
            program = (
                jax.tree.structure(search.bound),
                _generations_left(self.task, state),
                search.search.polish,
                has_start,
            )
            groups.setdefault(program, []).append(search)
        out: list[Group] = []
        for searches in groups.values():
            group = self._build_group(searches)
            # with a limit of generations there may be no other search
            is_unlimited = self.task.rules.generations == UNLIMITED
            if searches[0].search.polish:
                self._precompile_polish(when_compiling=True)
            if is_unlimited and self.context.clock.compile_seconds > MIN_COMPILE_SECONDS:
                self._precompile_likely(group)
            out.append(group)
        return out

    def _bind_next_search(self, state: RestartState) -> BoundSearch | Stop:
        """Return the next search of a run, or why there is none."""
        search = _next_search(self.task, state)
        if isinstance(search, Stop):
            return search
        if search.polish and _generations_left(self.task, state) <= search.generations:  # it counts as one more
            search = search._replace(polish=False)
        bound = self._bind(state, search)
        n_first = bound.bound.population + self.task.repairs * (1 + self.task.problem.dim)
        return Stop.BUDGET if n_first > bound.max_evaluations else bound

    def _bind(self, state: RestartState, search: NextSearch) -> BoundSearch:
        """Bind the algorithm of a search to the problem and to the evaluations that it may use."""
        max_evaluations = min(search.evaluations, _evaluation_limit(self.task) - state.evaluations)
        budget = Budget(None, None if math.isinf(max_evaluations) else int(max_evaluations))
        box = self.context.box  # its shape is known once it was called
        shape = self.task.shape if box is None or not box.widths else box.shape
        return BoundSearch(state, search, search.algorithm.bind(self.task.problem.dim, shape, budget), max_evaluations)

    def _build_group(self, searches: list[BoundSearch]) -> SearchGroup:
        """Build the group that computes these searches."""
        task, first = self.task, searches[0]
        dtype, states = np.dtype(task.dtype), [search.state for search in searches]
        rules = task.rules._replace(
            generations=min(_generations_left(task, first.state), first.search.generations),
            stall=UNLIMITED,
            evaluations=math.inf,
        )
        group_task = replace(
            task,
            solvers=(first.search.algorithm,),
            bound=(first.bound,),
            rules=rules,
            initial=_initial_points(task, searches),
            known=None if states[0].past else task.known,
        ).with_options(
            runs=range(task.first_run, task.first_run + len(states)), keep=replace(task.options.keep, snapshots=())
        )
        if task.options.vectorized and not task.options.blackbox and first.bound.population != task.population:
            group_task = trace_task(group_task)  # such a function knows how many solutions it is given

        def stack(*values: object) -> np.ndarray | Shared:
            if isinstance(values[0], Shared):
                return values[0]
            return np.array(values, dtype)  # one for each run, even if equal: another program would round otherwise

        search = group_task.search()
        search = replace(
            search,
            algorithm=jax.tree.map(stack, *[s.bound for s in searches], is_leaf=lambda leaf: isinstance(leaf, Shared)),
            rules=search.rules._replace(
                evaluations=np.array([s.max_evaluations for s in searches], dtype), known=self._known_points(states)
            ),
            # before descents; a fused kernel is compiled for whole searches anyway
            only_evaluates=first.search.polish and first.search.generations == 1 and task.engine == "xla",
        )
        return SearchGroup(
            group_task,
            search,
            keys=np.stack([state.next_key() for state in states]),
            cells=np.array([state.cell for state in states]),
            run_numbers=np.array([self.task.first_run + state.row % self.task.runs for state in states]),
            initial=group_task.initial,
            width=None if self.sizes is None else self.sizes[len(first.state.past)],
            searches=searches,
        )

    def _known_points(self, states: list[RestartState]) -> np.ndarray | None:
        """Return value and x of the best point of each run, near which its next search may end, see `Rules.known`."""
        task = self.task
        assert task.restarts is not None
        is_random_or_constrained = task.options.noisy or task.shape.constrained or task.shape.objectives > 1
        if not task.restarts.ends_near_known or is_random_or_constrained:
            return None
        return np.stack([state.known_point(task.problem.bounds) for state in states]).astype(task.dtype)

    def _precompile_likely(self, group: SearchGroup) -> None:
        """Compile in the background the programs of the searches that are likely to follow, and of the polish."""
        task, first = self.task, group.searches[0]
        state = first.state
        assert task.restarts is not None
        evaluations_left = _evaluation_limit(task) - state.evaluations
        solver = task.solvers[state.cell]
        for likely in task.restarts.predict_next(solver, state.past, first.search, evaluations_left):
            bound = self._bind(state, likely)
            structure = jax.tree.structure(bound.bound)
            if structure not in self._precompiled and bound.bound.population <= bound.max_evaluations:
                self._precompiled.add(structure)
                searches = [replace(bound, state=each.state) for each in group.searches]
                PROGRAMS.precompile(partial(self._precompile, searches))
        if self._precompiled:
            self._precompile_polish()

    def _precompile_polish(self, when_compiling: bool = False) -> None:
        """Compile the descents of the polish in the background, once."""
        if "polish" not in self._precompiled:
            self._precompiled.add("polish")
            PROGRAMS.precompile(partial(precompile_polish, self.task), when_compiling)

    def _precompile(self, searches: list[BoundSearch]) -> Iterator[None]:
        """Compile the programs of these searches, one at each step of the iterator."""
        context = replace(self.context, clock=CompileTimer())
        return BatchRunner(self._build_group(searches), context).precompile()

    def announce(self, group: Group, runs: np.ndarray, context: RunContext) -> None:
        assert isinstance(group, SearchGroup)
        first, is_single = group.searches[runs[0]], len(self.states) == 1
        state = first.state
        if not state.past or not is_single:
            context.on_batch_start(self.task.first_run + state.row % self.task.runs)
        if is_single:
            context.on_search(algorithm_name(first.search.algorithm), state.generations)

    def view(self, group: Group, runs: np.ndarray) -> BatchView:
        """Report whole runs: the searches of the batch are added to those before."""
        assert isinstance(group, SearchGroup)
        batch = [group.searches[run].state for run in runs]
        row_numbers = {state.row: i for i, state in enumerate(self.states)}
        rows = np.array([row_numbers[state.row] for state in batch])
        finished = join_runs([find_track(state) for state in self.states])

        def to_runs(now: Track) -> Track:
            track = Track._make(column.copy() for column in finished)
            for column, values in zip(track, add_search(take_runs(finished, rows), now), strict=True):
                column[rows] = values
            return track

        def read_survivors(chunk: ChunkView, run: int) -> Population:
            """Read the survivors of a run's present search, and the best points of its earlier ones."""
            best = [best_of_run(outcome, 0) for outcome in self.states[run].outcomes]
            return merge_populations([*best, *(chunk.population(int(row)) for row in np.flatnonzero(rows == run))])

        return BatchView(batch[0].generations, to_runs, read_survivors, follows_runs=len(self.states) == 1)

    def record(self, group: Group, runs: np.ndarray, outcome: Outcome) -> Outcome:
        """Add the finished searches to the states of their runs."""
        assert isinstance(group, SearchGroup)
        if self.context.requested_stop is not None:  # the searches may have ended by themselves, but not the runs
            outcome = replace(outcome, stopped=outcome.stopped or self.context.requested_stop)
        batch = [group.searches[run] for run in runs]
        if batch[0].search.polish and outcome.stopped is None:
            evaluations_left = [_evaluation_limit(self.task) - each.state.evaluations for each in batch]
            outcome = _refine_outcome(group.task, self.context, outcome, evaluations_left)
        for i, each in enumerate(batch):
            search = outcome.of_runs(slice(i, i + 1))
            _record_search(self.task, each.state, each.search, group.task.population, search)
        for cell, survivors in outcome.populations.items():
            self.populations[cell] = min(self.populations.get(cell, survivors), survivors, key=lambda s: s.rank)
        self.stopped = outcome.stopped
        self.device_seconds += outcome.device_seconds
        return outcome

    def merge(self) -> Outcome:
        for state in self.states:
            if state.stop is None:
                state.stop = self.stopped or Stop.BUDGET
        started = [state for state in self.states if state.outcomes]
        return merge_searches(self.task, started, self.populations, self.stopped, self.device_seconds)

    def only(self, row: int, sizes: list[int]) -> RestartSchedule:
        return RestartSchedule(self.asked_task, self.context, row, sizes)


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
        if not math.isfinite(task.rules.target) and estimate_confidence(past) >= STOP_CONFIDENCE:
            return Stop.TOLERANCE
        if task.rules.generations != UNLIMITED and run.generations >= task.rules.generations:
            return Stop.BUDGET
        if generations_since_best(run) >= task.rules.stall:
            return Stop.STALL
        if len(past) >= MAX_SEARCHES:
            return Stop.BUDGET
    rng = run.policy_rng()
    return task.restarts.next(task.solvers[run.cell], past, _evaluation_limit(task) - run.evaluations, rng.random)


def _refine_outcome(task: Task, context: RunContext, outcome: Outcome, evaluations_left: list[float]) -> Outcome:
    """Refine the best points of finished searches by their gradients; this counts as one more generation."""
    track = outcome.track
    max_evaluations = np.minimum(
        np.array(evaluations_left) - track.evaluations, DESCENT_EVALUATIONS_PER_VARIABLE * task.problem.dim
    )
    max_evaluations = np.where(track.reason == STOP_CODES[Stop.TARGET], 0, max_evaluations)
    polish = refine_best_points(task, context.clock, outcome, max_evaluations, context.may_continue)
    if not polish.evaluations.any():
        return outcome
    # where the slope is infinite, as of a root at its zero, a descent is stuck, however early it ends
    max_gain = MAX_GAIN_AT_END * (np.asarray(track.best) - polish.best)
    max_gain += ROUNDING_ULPS * np.finfo(task.dtype).eps * np.abs(polish.best)
    converged = polish.converged & (polish.expected_gain <= max_gain)
    refined = apply_polish(task, outcome, polish)
    reason = np.where(
        converged & (refined.track.reason != STOP_CODES[Stop.TARGET]),
        STOP_CODES[Stop.TOLERANCE],
        refined.track.reason,
    )
    mean = np.where(converged, refined.track.best + polish.expected_gain, track.mean)
    new_track = refined.track._replace(reason=reason, generations=track.generations + 1, mean=mean)
    return replace(refined, track=new_track, polish=None)


def _initial_points(task: Task, searches: list[BoundSearch]) -> np.ndarray | None:
    """Return the user's starting points for first searches, and for later ones those of the restart policy."""
    states, box = [each.state for each in searches], task.problem.bounds
    starts = [each.search.start for each in searches if each.search.start is not None]
    if starts:  # all searches of a group have one, or none has
        return np.stack([np.asarray(box.lower + box.span * start) for start in starts])[:, None]
    if task.initial is None or states[0].past:
        return None
    if task.initial.ndim == 2:
        return task.initial
    return task.initial[[state.row % task.runs for state in states]]


def _record_search(task: Task, run: RestartState, search: NextSearch, population: int, outcome: Outcome) -> None:
    """Add a finished search to the state of its run."""
    track, box = outcome.track, task.problem.bounds
    stop = outcome.stopped or stop_from_code(int(track.reason[0]))
    x = (np.asarray(outcome.x[0], np.float64) - box.lower) / box.span
    best, violation, mean = float(track.best[0]), float(track.violation[0]), float(track.mean[0])
    evaluations, eps = int(track.evaluations[0]), float(np.finfo(task.dtype).eps)
    run.past.append(summarize_search(run.past, search, population, evaluations, x, best, violation, mean, stop, eps))
    run.outcomes.append(outcome)
    run.track = add_search(run.track, track)
    run.sizes += outcome.sizes[0]
