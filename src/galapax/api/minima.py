"""minima: all minima of a function, or the best ones, as a table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import numpy as np

from galapax.algorithms.cmaes import CMAES
from galapax.api.trials import (
    Trial,
    evaluated_elsewhere,
    judge_answers,
    match_points,
    parse_points,
    parse_values,
    shape_of,
)
from galapax.core.checks import abbreviate, check_bool, check_integer, check_range, pluralize
from galapax.core.errors import InputError, ObjectiveCountError
from galapax.core.options import Compute, Options, Workers, suggest_keywords
from galapax.core.problem import EqTolerance, Maximize, Problem, Shape
from galapax.core.stop import Stop, interrupts
from galapax.execution.assemble import SolutionEvaluator, settings_of, tabulate_calls
from galapax.execution.batch_runner import open_black_box
from galapax.execution.niche_run import INFEASIBLE, MinimaRun, ScoreEvaluator, merge_violation, read_violation
from galapax.execution.observers import Facts, Progress, observers, open_observers
from galapax.execution.polish import check_polish, why_not_polishable
from galapax.execution.solve import open_checkpoint
from galapax.execution.task import Task, prepare_task, problem_of, resolve_options
from galapax.local.niches import Descents, Minimum, NicheSearch, count_samples, estimate_unseen
from galapax.numerics.compile_cache import CompileTimer
from galapax.results.many_answers import Minima
from galapax.results.result import History, Result, Runs, attach_replay

SAME_MINIMUM = 1e-4  # minima of several runs that are nearer than this share of the box are one


@suggest_keywords
def minima(
    fun: str | Problem | Callable[[Any], Any],
    bounds: Any = None,
    *,
    ineq: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    eq: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    eq_tolerance: EqTolerance | None = None,
    maximize: Maximize = False,
    global_only: bool = False,
    within: float | None = None,
    unseen: float = 0.01,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    polish: bool | Literal["auto"] = "auto",
    runs: int | range = 1,
    seed: int | None = 0,
    blackbox: bool = False,
    vectorized: bool = False,
    workers: int | Workers | Any = None,
    callback: Callable[[Progress], Any] | None = None,
    progress: bool | None = None,
    live: Any = False,
    checkpoint: Any = None,
    resume: Any = None,
    compute: Compute | None = None,
) -> Result:
    """Find all minima of `fun` inside the bounds, or the best ones, and report them as a table.

    A sample of the box is divided into niches by looking for hills between its points. Each niche is searched by a
    quasi-Newton descent, where JAX has the gradient, or by a CMA-ES. Further samples follow: more points of the box,
    points as far from known minima as these are from one another, points around promising ones, and wider searches,
    whichever finds more.

    fun, bounds, ineq, eq, eq_tolerance, maximize, seed, max_seconds, blackbox, vectorized, workers, callback, progress,
    live, checkpoint, resume, compute: as in `minimize`; one objective. A generation is here a round: a sample and the
        searches that begin there.
    global_only: only the best minima are of interest, and others that are equal to them to about 1e-6 of the range of
        the values. within: or those worse than the best by at most so much, in units of fun. By default all minima are.
    unseen: the search ends once it estimates that, of the random points from which minima of interest are reached, no
        more than this share lead to ones that it does not know (`result.unseen`); 0 uses all evaluations.
    max_evaluations: at most so many a run. The default is 25 000 for each variable, at least 100 000 and at most a
        million. A gradient counts as 4 evaluations.
    polish: False searches by values alone; True insists on gradients.
    runs: so many independent searches, computed together. The table is then that of all of them, and `result.run(k)`
        has the one of run k.
    Returns a Result whose x and fun are the best minimum, with `minima`, the table (see Minima), and `unseen`;
    its population is the minima of the table. `success` means that it ended by `unseen`.
    """
    arguments, began = locals(), time.perf_counter()
    problem, _ = problem_of(fun, bounds, CMAES(), ineq, eq, eq_tolerance)
    if max_evaluations is None:
        arguments["max_evaluations"] = default_limit(problem.dim)
    options = resolve_options(problem, Options.parse(arguments))
    limit = parse_interest(global_only, within, unseen)
    check_integer(
        options.max_evaluations,
        "max_evaluations",
        count_samples(problem.dim),
        "a search evaluates at least one generation",
    )
    if options.workers.asynchronous:
        raise InputError("minima evaluates whole generations: remove asynchronous=True from the workers.")
    if options.noisy:
        raise InputError("minima needs values without noise: average them in fun.")
    if options.compute.dtype is None:  # single precision would not tell neighbouring minima apart
        options = replace(options, compute=replace(options.compute, dtype="float64"))
    try:
        task = prepare_task(problem, (CMAES(),), replace(options, generations=1))
    except ObjectiveCountError as error:
        raise InputError(
            f"minima takes one objective, and fun of {problem.name!r} returns {error.n_objectives} numbers: return one "
            "of them, or find their front with minimize."
        ) from None
    check_polish(task)
    descends = options.polish is not False and may_descend(task)
    watchers = observers(callback, progress, live, checkpoint, resume)
    watchers = replace(watchers, title=f"{problem.name} · minima")
    facts = {name: str(arguments[name]) for name in ("global_only", "within", "unseen", "max_evaluations")}
    with (
        interrupts() as interrupt_state,
        jax.enable_x64(task.dtype == "float64"),
        open_observers(watchers, lambda: describe_search(task)) as (show, page),
        open_black_box(task, interrupt_state) as box,
        open_checkpoint(task, watchers, interrupt_state, facts) as journal,
    ):
        assert options.max_evaluations is not None and options.seed is not None
        evaluator = ScoreEvaluator(task, box, CompileTimer())
        searches = [
            NicheSearch(
                task.problem.bounds.dim,
                (options.seed, number),
                options.max_evaluations,
                within=limit,
                unseen=float(unseen),
                snap=evaluator.snap,
                descends=descends,
            )
            for number in range(options.first_run, options.first_run + options.n_runs)
        ]
        run = MinimaRun(task, searches, evaluator, began, watchers.callback, show, page, journal)
        if box is not None:
            if max_seconds is not None:
                box.late = run.is_late
            box.recall(None if journal is None else journal.memory)
        stop = run.finish(lambda: bool(interrupt_state.seen))
        result = assemble(task, searches, evaluator, stop, float(unseen), began)
        if page is not None:
            page.finish(result.message)
        if run.callback_error is not None:
            run.callback_error.result = result  # type: ignore[attr-defined]
            raise run.callback_error
        return result


def default_limit(dim: int) -> int:
    """Return how many evaluations a search for minima may make by default: many minima take more than one."""
    return min(max(100_000, 25_000 * dim), 1_000_000)


def describe_search(task: Task) -> Facts:
    """Return the facts that the live page shows."""
    settings = settings_of(task) | {"algorithm": "minima", "hyperparameters": {}, "generations": None}
    contours = not task.options.blackbox and isinstance(task.problem, Problem)
    return Facts(task.problem, settings, task.population, None, contours)


def parse_interest(global_only: object, within: object, unseen: object) -> float:
    """Check what decides which minima are of interest, and when enough are known; return by how much they may be worse.

    inf where every minimum counts.
    """
    check_range(unseen, "unseen", 0.0, 1.0)
    if check_bool(global_only, "global_only"):
        if within is not None:
            raise InputError("give global_only or within, not both: within=1e-3 asks for minima that good.")
        return 0.0
    return math.inf if within is None else float(check_range(within, "within", 0.0, math.inf))


class MinimaOptimizer:
    """The search of `minima` for an objective that is evaluated elsewhere: ask for points, tell their values.

    >>> opt = MinimaOptimizer([(-2, 2)] * 2, seed=1)
    >>> while not opt.is_done:
    ...     x = opt.ask_generation()
    ...     opt.tell(x, (x[:, 0] ** 2 - 1) ** 2 + x[:, 1] ** 2)
    >>> len(opt.best.minima)
    2

    `ask()` gives one trial, `ask(k)` at most k, and `ask_generation()` all points that wait, as an array (n, d). `tell`
    takes any of them, in any order, with values as those of an Optimizer. `best` is the result so far.

    bounds: as in Optimizer. The others: as in `minima`. eq_tolerance: of equalities that are told, 1e-6 by default.
    """

    def __init__(
        self,
        bounds: Any,
        *,
        maximize: Maximize = False,
        global_only: bool = False,
        within: float | None = None,
        unseen: float = 0.01,
        max_evaluations: int | None = None,
        seed: int | None = 0,
        eq_tolerance: float = 1e-6,
    ) -> None:
        self.began, self.unseen, self.eq_tolerance = time.perf_counter(), float(unseen), eq_tolerance
        limit = parse_interest(global_only, within, unseen)
        self.problem = Problem(evaluated_elsewhere, bounds, name="ask and tell")
        max_evaluations = default_limit(self.problem.dim) if max_evaluations is None else max_evaluations
        arguments = {"maximize": maximize, "max_evaluations": max_evaluations, "seed": seed, "blackbox": True}
        options = resolve_options(self.problem, Options.parse(arguments | {"compute": Compute(dtype="float64")}))
        self.task = prepare_task(self.problem, (CMAES(),), replace(options, generations=1))
        self.evaluator = ScoreEvaluator(self.task, None, CompileTimer())
        assert options.max_evaluations is not None
        self.search = NicheSearch(
            self.task.problem.bounds.dim,
            (self.task.seed, 0),
            options.max_evaluations,
            within=limit,
            unseen=self.unseen,
            snap=self.evaluator.snap,
        )
        self._moves, self._n_trials = self.search.run(), 0
        self._shape: Shape | None = None  # of the values; None until some were told
        self._out: dict[int, Trial] = {}  # trials that were handed out, by place
        self.is_done = False
        self._wait(next(self._moves))

    def _wait(self, points: np.ndarray | Descents) -> None:
        """Wait for the values of these points."""
        assert isinstance(points, np.ndarray)
        self._places = points  # in the unit box
        self._points = self.task.decode(self.evaluator.genes(points))
        self._scores = np.full(len(points), np.nan)  # NaN of those that wait
        self._out.clear()

    def ask(self, k: int | None = None) -> Trial | list[Trial]:
        """Return a Trial, or with k a list of at most k; without k one that is out is repeated if no other waits."""
        waiting = np.flatnonzero(np.isnan(self._scores)).tolist()
        if not waiting:
            raise InputError("the search is done: see `best`, or begin another one with unseen=0 or more evaluations.")
        fresh = [place for place in waiting if place not in self._out]
        if k is not None:
            return [self._hand_out(place) for place in fresh[: check_integer(k, "k", 1)]]
        return self._hand_out(fresh[0] if fresh else min(waiting, key=lambda place: self._out[place].number))

    def _hand_out(self, place: int) -> Trial:
        x = self._points[place].copy()
        self._out[place] = Trial(self._n_trials, x, self.problem.params(x))
        self._n_trials += 1
        return self._out[place]

    def ask_generation(self) -> np.ndarray:
        """Return the points (n, d) that wait for their values; the same ones until they are told, none at the end."""
        return self._points[np.isnan(self._scores)].copy()

    def tell(self, points: Any, values: Any, *, ineq: Any = None, eq: Any = None) -> None:
        """Give the values of points that were asked for, one or many, in any order; as in Optimizer.tell."""
        x, is_one = parse_points(points, self.problem, self._out.values())
        answers = parse_values(values, ineq, eq, len(x), is_one)
        shape = next((shape_of(answer) for answer in answers if isinstance(answer, dict)), None)
        if shape is not None and shape.objectives != 1:
            raise InputError(f"minima needs one objective, and a point came with {shape.objectives} values.")
        waiting = np.flatnonzero(np.isnan(self._scores)).tolist()
        places = match_points(x, self._points, waiting, self.problem.bounds.span)
        if None in places:
            raise InputError(f"{abbreviate(points)} was not asked for, or its value is known: tell points of ask().")
        self._shape = shape = self._shape or shape
        merits = judge_answers(answers, shape or Shape(), self.task.options.maximize, self.eq_tolerance)
        is_constrained = shape is not None and shape.ineq + shape.eq > 0
        for place, answer, (violation, value) in zip(places, answers, merits, strict=True):
            failed = np.array([not isinstance(answer, dict) or not math.isfinite(value)])
            limits = np.array([violation]) if is_constrained else None
            self._scores[place] = merge_violation(np.array([value]), limits, failed)[0]
            self.evaluator.n_failed += int(failed[0])
            self.search.note_sample(self._places[place], float(self._scores[place]))
        if not np.isnan(self._scores).any():
            try:
                self._wait(self._moves.send(self._scores))
            except StopIteration:
                self.is_done = True

    @property
    def nfev(self) -> int:
        """Values that were told."""
        return self.search.evaluations + (0 if self.is_done else int((~np.isnan(self._scores)).sum()))

    @property
    def best(self) -> Result:
        """The result so far, with the table of minima."""
        stop = None if self.is_done else Stop.CALLBACK
        result = assemble(self.task, [self.search], self.evaluator, stop, self.unseen, self.began)
        result["nfev"] = self.nfev
        if not self.is_done:
            result["message"] = result.message.replace(f"Stopped ({Stop.CALLBACK.value}) with", "So far")
        return result


def may_descend(task: Task) -> bool:
    """Return whether searches may use gradients: those of real variables."""
    space = task.problem.space
    return why_not_polishable(task) is None and (space is None or not space.discrete.any())


def assemble(
    task: Task,
    searches: Sequence[NicheSearch],
    evaluator: ScoreEvaluator,
    stop: Stop | None,
    unseen: float,
    began: float,
) -> Result:
    """Build the Result of the searches; of several, that of all of them, which has those of the single ones."""
    results = [build_result(task, [search], evaluator, stop, unseen, began, [k]) for k, search in enumerate(searches)]
    result = results[0]
    if len(results) > 1:
        result = build_result(task, searches, evaluator, stop, unseen, began, range(len(searches)))
        names = ("x", "fun", "violation", "nit", "nfev", "n_failed", "success")
        columns: dict[str, Any] = {name: np.array([single[name] for single in results]) for name in names}
        history = build_history(searches, task.sign, task.problem.constrained)
        result["runs"] = Runs(number=task.first_run + np.arange(len(results)), history=history, **columns)
        result["history"] = None if history is None else history.of_run(int(np.argmin(task.sign * columns["fun"])))
    attach_replay(result, lambda number: results[number - task.first_run])
    return result


def build_result(
    task: Task,
    searches: Sequence[NicheSearch],
    evaluator: ScoreEvaluator,
    stop: Stop | None,
    unseen: float,
    began: float,
    rows: Sequence[int],
) -> Result:
    """Build the Result of some searches, those with these numbers from 0."""
    box, sign = evaluator.box, task.sign
    entries = merge_minima(searches)
    genes = evaluator.genes(np.array([minimum.x for minimum in entries]).reshape(-1, task.problem.bounds.dim))
    constraints = SolutionEvaluator(task, box).evaluate(genes) if len(entries) else None
    scores = np.array([minimum.score for minimum in entries])
    violation = read_violation(scores) if constraints is None else np.asarray(constraints.violation, np.float64)
    values = np.where(scores >= INFEASIBLE, np.nan, sign * scores)
    problem = task.declared
    n_counted = sum(search.n_basin for search in searches)
    counts = [minimum.basin if n_counted else minimum.samples for minimum in entries]
    n_counted = n_counted or sum(counts)  # of a search that was stopped, the samples that led to them
    table = Minima(
        variables=problem.variable_names(),
        x=task.decode(genes),
        fun=values,
        violation=violation,
        share=np.array(counts) / max(1, n_counted),
        found=np.array([minimum.found for minimum in entries], int),
        verified=np.array([minimum.is_verified for minimum in entries], bool),
    )
    estimate = estimate_unseen(entries)
    feasible = bool(len(table) and violation[0] <= 0)
    seconds, compile_seconds = time.perf_counter() - began, evaluator.clock.compile_seconds
    if stop is None or all(search.is_done for search in searches):
        stop = Stop.TOLERANCE if all(search.is_done for search in searches) else Stop.BUDGET
    result = Result(
        problem=problem if box is None or box.eq_tolerance is None else problem.with_(eq_tolerance=box.eq_tolerance),
        x=table.x[0] if len(table) else np.full(problem.dim, np.nan),
        fun=float(values[0]) if len(table) else math.nan,
        success=stop is Stop.TOLERANCE and feasible,
        message=_message(stop, len(table), estimate, unseen, feasible or not len(table)),
        stop=stop,
        nit=max(1, *(search.n_rounds for search in searches)),
        nfev=sum(search.evaluations for search in searches),
        n_failed=int(evaluator.n_failed[list(rows)].sum()),
        seed=task.seed,
        feasible=feasible,
        violation=float(violation[0]) if len(table) else math.inf,
        ineq=None if constraints is None or constraints.ineq is None else np.asarray(constraints.ineq[0]),
        eq=None if constraints is None or constraints.eq is None else np.asarray(constraints.eq[0]),
        minima=table,
        unseen=estimate,
        population=table.x,
        population_fitness=table.fun,
        snapshots={},
        history=build_history(searches, sign, task.problem.constrained) if len(searches) == 1 else None,
        runs=None,
        timings={"compile": compile_seconds, "run": seconds - compile_seconds, "device": 0.0, "host": 0.0},
        settings=settings_of(task) | {"algorithm": "minima", "hyperparameters": {}, "generations": None},
        derived={},
        failures=(),
    )
    within = searches[0].within
    result.settings |= {"within": within if math.isfinite(within) else None, "unseen": unseen}
    result.settings |= {"runs": len(rows), "first_run": task.first_run + rows[0]}
    if box is not None:
        result["evaluations"] = tabulate_calls(task, box)
        result["failures"] = tuple(failed._replace(x=task.decode(failed.x)) for failed in box.failures)
    return result


def build_history(searches: Sequence[NicheSearch], sign: float, is_constrained: bool) -> History | None:
    """Return a row for each round of a search, of several searches with their last rows repeated."""
    length = max(search.n_rounds for search in searches)
    if min(search.n_rounds for search in searches) == 0:
        return None
    rows = [search.rounds + search.rounds[-1:] * (length - search.n_rounds) for search in searches]
    table = np.array(rows, np.float64)  # (R, G, 5)
    scores = table[..., 2:]
    best, mean, worst = np.moveaxis(np.where(scores >= INFEASIBLE, np.nan, sign * scores), -1, 0)
    history = History(
        generation=1 + np.arange(length),
        nfev=table[..., 0].astype(int),
        best=best,
        mean=mean,
        worst=worst,
        violation=read_violation(scores[..., 0]) if is_constrained else None,
    )
    return history if len(searches) > 1 else history.of_run(0)


def merge_minima(searches: Sequence[NicheSearch]) -> list[Minimum]:
    """Return the minima of interest of all searches, the best first; of those at the same place one.

    Where there is none, the best point known: that with the least violation, if none is feasible.
    """
    rows = [[m for m in search.best_minima() if m.score < INFEASIBLE] for search in searches]
    best = min((search.best + search.within for search in searches), default=math.inf)
    entries = sorted((minimum for row in rows for minimum in row), key=lambda minimum: minimum.score)
    merged: list[Minimum] = []
    for minimum in entries:
        if minimum.score > best:
            break
        same = next((m for m in merged if np.max(np.abs(m.x - minimum.x)) <= SAME_MINIMUM), None)
        if same is None or len(searches) == 1:
            merged.append(replace(minimum))
            continue
        same.samples, same.found = same.samples + minimum.samples, same.found + minimum.found
        same.basin += minimum.basin
        same.is_verified |= minimum.is_verified
    if not merged:  # they ended before anything converged, or met nothing feasible
        points = [point for search in searches for point in (search.best_sample, *search.minima)]
        points = [point for point in points if math.isfinite(point.score)]
        merged = sorted(points, key=lambda point: point.score)[:1]
    return merged


def _message(stop: Stop, count: int, estimate: float, unseen: float, is_feasible: bool) -> str:
    if not is_feasible:
        begin = "Found" if stop in (Stop.TOLERANCE, Stop.BUDGET) else f"Stopped ({stop.value}) with"
        return f"{begin} no feasible point: the row is that with the least violation, and has no value."
    number = pluralize(count, "minimum", "minima")
    share = f"about {estimate:.2g} of the starts may lead to others"
    if stop is Stop.TOLERANCE:
        return f"Found {number}, and {share}: no more than unseen={unseen:g}."
    if stop is Stop.BUDGET:
        return f"Found {number} with all evaluations; {share}."
    return f"Stopped ({stop.value}) with {number}; {share}."
