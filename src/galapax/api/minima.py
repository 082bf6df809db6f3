"""minima: all minima of a function, or the best ones, as a table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import jax
import numpy as np

from galapax.algorithms.cmaes import CMAES
from galapax.core.checks import check_bool, check_range, pluralize
from galapax.core.errors import InputError
from galapax.core.options import Compute, Options, Workers, suggest_keywords
from galapax.core.problem import CandidateEvaluation, EqTolerance, Maximize, Problem
from galapax.core.stop import Stop, interrupts
from galapax.execution.assemble import SolutionEvaluator, settings_of, tabulate_calls
from galapax.execution.batch_runner import open_black_box
from galapax.execution.polish import MAX_SLICE_RUNS, check_polish, refine_arguments, why_not_polishable
from galapax.execution.task import Task, default_evaluations, prepare_task, problem_of, resolve_options
from galapax.local.niches import DescentEnds, Descents, Minimum, NicheSearch, estimate_unseen
from galapax.local.refine import RefinedRuns, refine
from galapax.numerics.compile_cache import CompileTimer
from galapax.numerics.devices import on_cpu
from galapax.objective.blackbox import BlackBox
from galapax.objective.evaluation_log import summarise
from galapax.objective.traced import Traced, evaluate_points
from galapax.results.many_answers import Minima
from galapax.results.result import Result, Runs, attach_replay

DESCENT_ROWS = 16  # descents that a compiled program makes at once on a CPU
SAME_MINIMUM = 1e-4  # minima of several runs that are nearer than this share of the box are one
PROGRAM_ROWS = (16, 64, 256, 512, 1024, 2048, 4096)  # points that a compiled program evaluates at once
INFEASIBLE = 1e300  # scores from here on are of infeasible points, the less the nearer to feasible


@suggest_keywords
def minima(
    fun: str | Problem | Callable[..., Any],
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
    compute: Compute | None = None,
) -> Result:
    """Find all minima of `fun` inside the bounds, or the best ones, and report them as a table.

    A sample of the box is divided into niches by looking for hills between its points. Each niche is searched by a
    quasi-Newton descent, where JAX has the gradient, or by a CMA-ES. Further samples follow: more points of the box,
    points as far from known minima as these are from one another, points around promising ones, and wider searches,
    whichever finds more.

    fun, bounds, ineq, eq, eq_tolerance, maximize, seed, max_seconds, blackbox, vectorized, workers, compute: as in
        `minimize`; one objective.
    global_only: only the best minima are of interest, and others that are equal to them to about 1e-6 of the range of
        the values. within: or those worse than the best by at most so much, in units of fun. By default all minima are.
    unseen: the search ends once it estimates that, of the random points from which minima of interest are reached, no
        more than this share lead to ones that it does not know (`result.unseen`); 0 uses all evaluations.
    max_evaluations: at most so many a run. The default is 10 000 for each variable, at least 20 000 and at most a
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
        arguments["max_evaluations"] = default_evaluations(problem.dim)
    options = resolve_options(problem, Options.parse(arguments))
    if check_bool(global_only, "global_only") and within is not None:
        raise InputError("give global_only or within, not both: within=1e-3 asks for minima that good.")
    if within is not None:
        within = float(check_range(within, "within", 0.0, math.inf))
    check_range(unseen, "unseen", 0.0, 1.0)
    if options.workers.asynchronous:
        raise InputError("minima evaluates whole generations: remove asynchronous=True from the workers.")
    if options.noisy:
        raise InputError("minima needs values without noise: average them in fun.")
    if options.compute.dtype is None:  # single precision would not tell neighbouring minima apart
        options = replace(options, compute=replace(options.compute, dtype="float64"))
    task = prepare_task(problem, (CMAES(),), replace(options, generations=1))
    check_polish(task)
    descends = options.polish is not False and may_descend(task)
    with interrupts() as interrupt_state, jax.enable_x64(task.dtype == "float64"), open_black_box(task) as box:
        clock = CompileTimer()
        evaluator = ScoreEvaluator(task, box, clock)
        if box is not None:
            interrupt_state.raises = lambda: box.calling
            if max_seconds is not None:
                box.late = lambda: time.perf_counter() - began > max_seconds
        assert options.max_evaluations is not None and options.seed is not None
        searches = [
            NicheSearch(
                task.problem.bounds.dim,
                (options.seed, number),
                options.max_evaluations,
                within=0.0 if global_only else math.inf if within is None else within,
                unseen=float(unseen),
                snap=evaluator.snap,
                descends=descends,
            )
            for number in range(options.first_run, options.first_run + options.n_runs)
        ]
        stop = run_searches(searches, evaluator, lambda: bool(interrupt_state.seen), began, max_seconds)
        return assemble(task, searches, evaluator, stop, float(unseen), began)


def may_descend(task: Task) -> bool:
    """Return whether searches may use gradients: those of real variables."""
    space = task.problem.space
    return why_not_polishable(task) is None and (space is None or not space.discrete.any())


class ScoreEvaluator:
    """Evaluates points of the unit box by one number, the less the better: feasible ones by their value."""

    def __init__(self, task: Task, box: BlackBox | None, clock: CompileTimer) -> None:
        self.task, self.box, self.clock = task, box, clock
        self.n_failed = np.zeros(task.runs, int)
        self.bounds = task.problem.bounds.round_inwards(np.dtype(task.dtype))

    def genes(self, x: np.ndarray) -> np.ndarray:
        lower, upper = (np.asarray(side, np.float64) for side in (self.bounds.lower, self.bounds.upper))
        return np.clip(lower + (upper - lower) * x, lower, upper)

    def snap(self, x: np.ndarray) -> np.ndarray:
        """Points of the unit box at the codes of integers and choices."""
        space = self.task.problem.space
        if space is None or not space.discrete.any():
            return x
        lower, upper = (np.asarray(side, np.float64) for side in (self.bounds.lower, self.bounds.upper))
        return (space.round_codes(self.genes(x)) - lower) / (upper - lower)

    def evaluate(self, x: np.ndarray, runs: np.ndarray) -> CandidateEvaluation:
        genes = self.genes(x)
        if self.box is None:
            traced = Traced(self.task.objective, self.task.consts)  # type: ignore[arg-type]
            rows = next((size for size in PROGRAM_ROWS if size >= len(x)), PROGRAM_ROWS[-1])
            return evaluate_points(traced, genes, self.task.dtype, rows)
        raw = self.box(genes, self.task.first_run + runs)
        if raw["fun"].shape[1] != 1:
            raise InputError(f"minima needs one objective, and fun returned {raw['fun'].shape[1]} numbers.")
        if "eq" in raw:
            self.box.settle_eq_tolerance(raw["eq"])
        self.box.complete_generation()
        return summarise(raw["fun"], raw.get("ineq"), raw.get("eq"), self.box.eq_tolerance, np)

    def __call__(self, x: np.ndarray, runs: np.ndarray) -> np.ndarray:
        """The scores (n,) of points x (n, d) of these runs (n,), from 0."""
        evaluation = self.evaluate(x, runs)
        value = np.asarray(evaluation.objectives, np.float64)[:, 0]
        failed = np.asarray(evaluation.failed) | ~np.isfinite(value)
        self.n_failed += np.bincount(runs[failed], minlength=len(self.n_failed))
        violation = None if evaluation.violation is None else np.asarray(evaluation.violation, np.float64)
        return merge_violation(value, violation, failed)

    def descend(self, x: np.ndarray, limits: np.ndarray) -> DescentEnds:
        """Descend from points x (k, d) by the gradient, each with so many evaluations (k,)."""
        genes, rows = self.genes(x), DESCENT_ROWS if on_cpu() else MAX_SLICE_RUNS
        blocks = []
        for start in range(0, len(x), rows):
            block = slice(start, start + rows)
            padded = np.resize(genes[block], (rows, genes.shape[1]))
            shares = np.where(np.arange(rows) < len(genes[block]), np.resize(limits[block], rows), 0)
            refined = self.clock.call(refine, (self.task.objective,), *refine_arguments(self.task, padded, shares))
            blocks.append(jax.tree.map(lambda a: np.asarray(a)[: len(genes[block])], refined))  # noqa: B023
        ends: RefinedRuns = jax.tree.map(lambda *arrays: np.concatenate(arrays), *blocks)
        lower, upper = (np.asarray(side, np.float64) for side in (self.bounds.lower, self.bounds.upper))
        violation = np.asarray(ends.violation, np.float64) if self.task.problem.constrained else None
        value = np.asarray(ends.value, np.float64)
        scores = merge_violation(value, violation, ~np.isfinite(value) | ~np.isfinite(ends.violation))
        places = np.clip((np.asarray(ends.x, np.float64) - lower) / (upper - lower), 0, 1)
        return DescentEnds(places, scores, np.asarray(ends.evaluations), np.asarray(ends.smooth))


def merge_violation(value: np.ndarray, violation: np.ndarray | None, failed: np.ndarray) -> np.ndarray:
    """Return scores (n,): values of feasible points, above all of them the others by their violation, inf if failed."""
    if violation is None:
        return np.where(failed, np.inf, value)
    violation = np.where(failed, 0.0, violation)
    # 1 / (1 + v) keeps the order of violations from 1e-16 on
    beyond = INFEASIBLE * (1.0 + violation / (1.0 + violation))
    return np.where(failed, np.inf, np.where(violation > 0, beyond, value))


def run_searches(
    searches: Sequence[NicheSearch],
    evaluate: ScoreEvaluator,
    is_interrupted: Callable[[], bool],
    began: float,
    max_seconds: float | None,
) -> Stop | None:
    """Evaluate what the searches ask for, together, until they are done; return what stopped them before, if any."""
    moves = [search.run() for search in searches]
    requests = {row: next(move) for row, move in enumerate(moves)}
    while requests:
        answers: dict[int, np.ndarray | DescentEnds] = {}
        samples = {row: request for row, request in requests.items() if not isinstance(request, Descents)}
        if samples:
            x, counts = np.concatenate([*samples.values()]), [len(points) for points in samples.values()]
            scores = evaluate(x, np.repeat([*samples], counts))
            answers |= zip(samples, np.split(scores, np.cumsum(counts)[:-1]), strict=True)
        descents = {row: request for row, request in requests.items() if isinstance(request, Descents)}
        if descents:
            counts = [len(request.x) for request in descents.values()]
            limits = np.repeat([request.limit for request in descents.values()], counts)
            ends = evaluate.descend(np.concatenate([request.x for request in descents.values()]), limits)
            columns = [np.split(column, np.cumsum(counts)[:-1]) for column in ends]
            answers |= {row: DescentEnds(*parts) for row, *parts in zip(descents, *columns, strict=True)}
        requests = {}
        for row, answer in answers.items():
            with suppress(StopIteration):
                requests[row] = moves[row].send(answer)
        if is_interrupted() or (evaluate.box is not None and evaluate.box.interrupted):
            return Stop.INTERRUPT
        if evaluate.box is not None and evaluate.box.halted:
            return Stop.WORKERS
        if max_seconds is not None and time.perf_counter() - began > max_seconds:
            return Stop.TIME
    return None


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
        columns = {name: np.array([single[name] for single in results]) for name in names}
        result["runs"] = Runs(number=task.first_run + np.arange(len(results)), history=None, **columns)
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
    violation = np.zeros(len(entries)) if constraints is None else np.asarray(constraints.violation, np.float64)
    values = np.array([minimum.score for minimum in entries])
    values = np.where(np.abs(values) >= INFEASIBLE, np.nan, sign * values)
    problem = task.declared
    table = Minima(
        variables=problem.variable_names(),
        x=task.decode(genes),
        fun=values,
        violation=violation,
        share=np.array([minimum.samples for minimum in entries]) / max(1, sum(search.n_samples for search in searches)),
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
        message=_message(stop, len(table), estimate, unseen),
        stop=stop,
        nit=max(search.n_rounds for search in searches),
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
        history=None,
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


def merge_minima(searches: Sequence[NicheSearch]) -> list[Minimum]:
    """Return the minima of interest of all searches, the best first; of those at the same place one."""
    rows = [search.best_minima() for search in searches]
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
        same.is_verified |= minimum.is_verified
    if not merged:  # they ended before anything converged
        known = [(search.known, int(np.argmin(search.known.score))) for search in searches if len(search.known.x)]
        points = [Minimum(visited.x[row], float(visited.score[row])) for visited, row in known]
        merged = sorted(points, key=lambda minimum: minimum.score)[:1]
    return merged


def _message(stop: Stop, count: int, estimate: float, unseen: float) -> str:
    number = pluralize(count, "minimum", "minima")
    share = f"about {estimate:.2g} of the starts may lead to others"
    if stop is Stop.TOLERANCE:
        return f"Found {number}, and {share}: no more than unseen={unseen:g}."
    if stop is Stop.BUDGET:
        return f"Found {number} with all evaluations; {share}."
    return f"Stopped ({stop.value}) with {number}; {share}."
