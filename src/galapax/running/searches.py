"""Runs that restart: each is a row of searches, and the runs whose next searches are alike go on together.

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
from galapax.engines.drive import Viewer, Watch
from galapax.engines.glimpse import Glance
from galapax.engines.interrupts import Interrupts
from galapax.engines.outcome import Outcome, Survivors, Track
from galapax.engines.programs import PROGRAMS, Clock
from galapax.evaluation.blackbox import BlackBox
from galapax.numerics import random
from galapax.running.computation import Computation
from galapax.running.courses import Course, joined, since_better, together, track_of
from galapax.running.polish import ahead, cannot, polished, with_polished
from galapax.running.task import Task, trace_task

SEARCHES = 2**16  # of one run, at most
RESERVED = 50  # evaluations a variable that are left for the polish, if that is not much of the budget
DESCENT = 200  # evaluations a variable that the descent after a sprint may take
COLD = 0.5  # seconds of compiling from which on it is worth while to compile what will come meanwhile


@dataclass
class Group:
    """Runs whose next searches are alike."""

    courses: list[Course] = field(default_factory=list)
    bound: list[Algorithm] = field(default_factory=list)
    legs: list[NextSearch] = field(default_factory=list)
    most: list[float] = field(default_factory=list)  # evaluations


def searches(
    task: Task,
    noted: Interrupts,
    clock: Clock,
    box: BlackBox | None,
    watch: Watch,
    only: int | None = None,
    sizes: list[int] | None = None,
) -> Outcome:
    """Every run of a task until its policy ends it. only, sizes: just this run, in slices of these sizes."""
    restarts = task.restarts
    assert restarts is not None
    if task.options.polish is not False and cannot(task) is None:
        task = _with_gradients(task)
    elif _called_one_by_one(task):
        task = replace(task, restarts=restarts.one_by_one(task.problem.dim, _limit(task)))
    keys = random.run_keys(task.seed, task.first_run, task.runs)
    rows = range(task.total) if only is None else [only]
    courses = [Course(row, row // task.runs, keys[row % task.runs]) for row in rows]
    populations: dict[int, Survivors] = {}
    stopped: Stop | None = None
    seconds = 0.0
    sent: set[Hashable] = set()
    while stopped is None and any(course.stop is None for course in courses):
        for group in _groups(task, box, [course for course in courses if course.stop is None]):
            if (
                clock.compile_seconds > COLD and task.rules.generations == UNLIMITED
            ):  # else there may be no other search
                _make_ready(task, group, noted, box, sent)
            size = None if sizes is None else sizes[len(group.courses[0].past)]
            outcome = _go_on(task, group, courses, noted, clock, box, watch, size)
            seconds += outcome.device_seconds
            for cell, left in outcome.populations.items():
                populations[cell] = min(populations.get(cell, left), left, key=lambda survivors: survivors.rank)
            stopped = outcome.stopped
            if stopped is not None:
                break
    for course in courses:
        if course.stop is None:
            course.stop = stopped or Stop.BUDGET
    begun = [course for course in courses if course.parts]
    return joined(task, begun, populations, stopped, seconds)


def _groups(task: Task, box: BlackBox | None, courses: list[Course]) -> list[Group]:
    """The next searches of runs, those that are alike together; runs that are done are told why."""
    groups: dict[Hashable, Group] = {}
    for course in courses:
        leg = _next(task, course)
        if isinstance(leg, Stop):
            course.stop = leg
            continue
        bound, most = _bound(task, course, leg, _shape(task, box))
        if bound.population + task.repairs * (1 + task.problem.dim) > most:
            course.stop = Stop.BUDGET
            continue
        left = UNLIMITED if task.rules.generations == UNLIMITED else int(task.rules.generations) - course.generations
        group = groups.setdefault((jax.tree.structure(bound), left, leg.polish), Group())
        group.courses.append(course)
        group.bound.append(bound)
        group.legs.append(leg)
        group.most.append(most)
    return list(groups.values())


def _bound(task: Task, course: Course, leg: NextSearch, shape: Shape) -> tuple[Algorithm, float]:
    """The algorithm of a search, and how many evaluations it may make."""
    most = min(leg.evaluations, _limit(task) - course.evaluations)
    budget = Budget(None, None if math.isinf(most) else int(most))
    return leg.algorithm.bind(task.problem.dim, shape, budget), most


def _make_ready(task: Task, group: Group, noted: Interrupts, box: BlackBox | None, sent: set[Hashable]) -> None:
    """Have the programs compiled, meanwhile, of the searches that are likely to follow, and of the polish. sent: which
    of them were before.
    """
    assert task.restarts is not None
    course, leg = group.courses[0], group.legs[0]
    left = _limit(task) - course.evaluations
    for later in task.restarts.predict_next(task.solvers[course.cell], course.past, leg, left):
        bound, most = _bound(task, course, later, _shape(task, box))
        kind = jax.tree.structure(bound)
        if kind not in sent and bound.population <= most:
            sent.add(kind)
            count = len(group.courses)
            alike = Group(group.courses, [bound] * count, [later] * count, [most] * count)
            PROGRAMS.ahead(partial(_programs, task, alike, noted, box))
    if sent and "polish" not in sent:
        sent.add("polish")
        PROGRAMS.ahead(partial(ahead, task))


def _programs(task: Task, group: Group, noted: Interrupts, box: BlackBox | None) -> Iterator[None]:
    """Make those of a group's searches, one after the other."""
    return _computation(task, group, noted, Clock(), box, None).ahead()


def _shape(task: Task, box: BlackBox | None) -> Shape:
    """How many numbers the functions give; of a black box that is known once it was called."""
    return task.shape if box is None or not box.widths else box.shape


def _limit(task: Task) -> float:
    return math.inf if task.rules.evaluations is None else float(task.rules.evaluations)


def _with_gradients(task: Task) -> Task:
    """A task whose objective has a gradient: its policy may use that, and evaluations are left to polish the best."""
    assert task.restarts is not None
    rules, most = task.rules, _limit(task)
    if math.isfinite(most):
        first = task.population + task.repairs * (1 + task.problem.dim)
        rules = rules._replace(evaluations=max(first, most - min(RESERVED * task.problem.dim, 0.05 * most)))
    return replace(task, rules=rules, restarts=task.restarts.with_gradients(task.problem.dim))


def _called_one_by_one(task: Task) -> bool:
    """Whether it is a black box that nothing calls for several points at once, and only evaluations limit it."""
    alone = task.options.blackbox and not task.options.vectorized and task.options.workers.pool is None
    unlimited = task.rules.generations == UNLIMITED
    return alone and unlimited and task.initial is None and not task.problem.constrained


def _next(task: Task, course: Course) -> NextSearch | Stop:
    """The next search of a run, or why there is none."""
    assert task.restarts is not None
    past = course.past
    if past:
        if past[-1].stop is Stop.TARGET:
            return Stop.TARGET
        # a target that was asked for is looked for until the budget is spent
        if not math.isfinite(task.rules.target) and count_agreeing_searches(past) >= MIN_AGREEING_SEARCHES:
            return Stop.TOLERANCE
        if task.rules.generations != UNLIMITED and course.generations >= task.rules.generations:
            return Stop.BUDGET
        if since_better(course) >= task.rules.stall:
            return Stop.STALL
        if len(past) >= SEARCHES:
            return Stop.BUDGET
    draws = course.draws()
    return task.restarts.next(task.solvers[course.cell], past, _limit(task) - course.evaluations, draws.random)


def _computation(
    task: Task, group: Group, noted: Interrupts, clock: Clock, box: BlackBox | None, size: int | None
) -> Computation:
    """What makes one search of each run of a group."""
    kind, count = np.dtype(task.dtype), len(group.courses)
    first = group.courses[0]
    left = UNLIMITED if task.rules.generations == UNLIMITED else int(task.rules.generations) - first.generations
    own = replace(
        task,
        solvers=(group.legs[0].algorithm,),
        bound=(group.bound[0],),
        rules=task.rules._replace(generations=left, stall=UNLIMITED, evaluations=math.inf),
        initial=_initial(task, group),
    ).with_options(runs=range(task.first_run, task.first_run + count), keep=replace(task.options.keep, snapshots=()))
    if task.options.vectorized and not task.options.blackbox and group.bound[0].population != task.population:
        own = trace_task(own)  # such a function knows how many solutions it is given

    def stack(*values: Any) -> Any:
        if isinstance(values[0], Shared):
            return values[0]
        return np.array(values, kind)  # one for each run, be they the same: another program would round otherwise

    search = own.search()
    search = replace(
        search,
        algorithm=jax.tree.map(stack, *group.bound, is_leaf=lambda leaf: isinstance(leaf, Shared)),
        rules=search.rules._replace(evaluations=np.array(group.most, kind)),
    )
    return Computation(
        own, noted, clock, box, search=search, keys=np.stack([c.own_key() for c in group.courses]),
        cells=np.array([c.cell for c in group.courses]), size=size,
    )  # fmt: skip


def _go_on(
    task: Task,
    group: Group,
    courses: list[Course],
    noted: Interrupts,
    clock: Clock,
    box: BlackBox | None,
    watch: Watch,
    size: int | None,
) -> Outcome:
    """One search of each run of a group."""
    run = _computation(task, group, noted, clock, box, size)
    outcomes = []

    def compute(rows: np.ndarray) -> Outcome:
        chosen = [group.courses[row] for row in rows]
        inner = _watch(watch, task, courses, chosen)
        if box is not None:
            box.late = inner.look
        found = run.batch(rows, inner)
        if inner.asked is not None:  # a search that was over at once does not go on, but the run would
            found = replace(found, stopped=found.stopped or inner.asked)
        _settle(watch, inner, chosen, found)
        return found

    for rows, made in run.batches(watch.journal, compute):
        chosen = [group.courses[row] for row in rows]
        outcomes.append(made)
        if group.legs[0].polish and outcomes[-1].stopped is None:
            left_over = [_limit(task) - course.evaluations for course in chosen]
            outcomes[-1] = _refined(run.task, clock, outcomes[-1], left_over, lambda: not (noted.seen or watch.late))
        for i, course in enumerate(chosen):
            _take(task, course, group.legs[rows[i]], run, outcomes[-1].of_runs(slice(i, i + 1)))
        if outcomes[-1].stopped is not None:
            break
    return Outcome.join(outcomes)


def _refined(task: Task, clock: Clock, outcome: Outcome, left: list[float], goes_on: Callable[[], bool]) -> Outcome:
    """The outcome of searches, what they found refined by its gradient; that counts as one more generation."""
    track = outcome.track
    most = np.minimum(np.array(left) - track.evaluations, DESCENT * task.problem.dim)
    most = np.where(track.reason == STOP_CODES[Stop.TARGET], 0, most)
    found = polished(task, clock, outcome.x, track.best, track.violation, most, goes_on)
    if not found.about.evaluations.any():
        return outcome
    refined = with_polished(task, outcome, found)
    reason = np.where(
        found.about.converged & (refined.track.reason != STOP_CODES[Stop.TARGET]),
        STOP_CODES[Stop.TOLERANCE],
        refined.track.reason,
    )
    after = replace(refined.track, reason=reason, generations=track.generations + 1)
    return replace(refined, track=after, polish=None)


def _initial(task: Task, group: Group) -> np.ndarray | None:
    """The user's starting points, for first searches alone."""
    if task.initial is None or group.courses[0].past:
        return None
    if task.initial.ndim == 2:
        return task.initial
    return task.initial[[course.row % task.runs for course in group.courses]]


def _take(task: Task, course: Course, leg: NextSearch, run: Computation, part: Outcome) -> None:
    """Note how a run's search ended."""
    track, box = part.track, task.problem.bounds
    stop = part.stopped or stop_from_code(int(track.reason[0]))
    x = (np.asarray(part.x[0], np.float64) - box.lower) / box.span
    spent, best = int(track.evaluations[0]), float(track.best[0])
    course.past.append(SearchSummary(leg.kind, run.task.population, spent, best, float(track.violation[0]), x, stop))
    course.parts.append(part)
    course.sizes += part.sizes[0]


def _watch(watch: Watch, task: Task, courses: list[Course], group: list[Course]) -> Watch:
    """What looks at a search, and tells of the whole runs."""
    offset = group[0].generations
    rows = {course.row: i for i, course in enumerate(courses)}
    places = np.array([rows[course.row] for course in group])
    known = Track.join([track_of(course) for course in courses])

    def whole(now: Track) -> Track:
        """The tracks of all runs, those of the group as they stand now."""
        here = together(known.rows(places), now)
        parts = {}
        for name, value in vars(known).items():
            value = value.copy()
            value[places] = getattr(here, name)
            parts[name] = value
        return Track(**parts)

    def notify(made: int, now: Track) -> Stop | None:
        assert watch.notify is not None
        inner.asked = watch.notify(offset + made, whole(now))
        return inner.asked

    viewer: Viewer | None = watch.viewer
    if viewer is not None and len(courses) == 1:
        viewer = _Later(viewer, offset, whole)
    shifted = tuple(g - offset for g in watch.snapshots if g > offset)
    if not group[0].past or len(courses) > 1:
        watch.starts(task.first_run + group[0].row % task.runs)
    inner = Watch(watch.interrupts, watch.deadline, snapshots=shifted, viewer=viewer, held=watch.held)
    inner.callback = watch.callback
    inner.journal = watch.journal
    inner.notify = notify if watch.notify is not None else None
    return inner


def _settle(watch: Watch, inner: Watch, group: list[Course], outcome: Outcome) -> None:
    """Keep the snapshots of a search, and how long it was held up."""
    offset = group[0].generations
    made = int(outcome.track.generations.max())
    watch.taken |= {offset + g: kept for g, kept in inner.taken.items() if g <= made}
    watch.held = inner.held


class _Later:
    """A Viewer of a run that sees its searches one after the other as one."""

    def __init__(self, viewer: Viewer, offset: int, whole: Any) -> None:
        self._viewer, self._offset, self._whole = viewer, offset, whole
        self.max_generations = viewer.max_generations

    def on_chunk(self, made: int, before: Track, now: Track, glance: Glance, last: bool) -> None:
        self._viewer.on_chunk(self._offset + made, self._whole(before), self._whole(now), glance, last)

    def wait_if_paused(self, interrupted: Callable[[], bool]) -> Stop | None:
        stop = self._viewer.wait_if_paused(interrupted)
        self.max_generations = self._viewer.max_generations
        return stop
