"""minima: all minima of a function, or the best ones, as a table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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
from galapax.execution.task import Task, default_evaluations, prepare_task, problem_of, resolve_options
from galapax.local.niches import Minimum, NicheSearch
from galapax.numerics.compile_cache import CompileTimer
from galapax.objective.blackbox import BlackBox
from galapax.objective.evaluation_log import summarise
from galapax.objective.traced import Traced, evaluate_points
from galapax.results.many_answers import Minima
from galapax.results.result import Result

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
    seed: int | None = 0,
    blackbox: bool = False,
    vectorized: bool = False,
    workers: int | Workers | Any = None,
    compute: Compute | None = None,
) -> Result:
    """Find all minima of `fun` inside the bounds, or the best ones, and report them as a table.

    A sample of the box is divided into niches by looking for hills between its points, a CMA-ES searches each niche,
    and further samples follow: more points of the box, points as far from known minima as these are from one another,
    points around promising ones, and wider searches, whichever finds more.

    fun, bounds, ineq, eq, eq_tolerance, maximize, seed, max_seconds, blackbox, vectorized, workers, compute: as in
        `minimize`; one objective.
    global_only: only the best minima are of interest, and others that are equal to them to about 1e-6 of the range of
        the values. within: or those worse than the best by at most so much, in units of fun. By default all minima are.
    unseen: the search ends once it estimates that, of the random points from which minima of interest are reached, no
        more than this share lead to ones that it does not know (`result.unseen`); 0 uses all evaluations.
    max_evaluations: at most so many. The default is 10 000 for each variable, at least 20 000 and at most a million.
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
    task = prepare_task(problem, (CMAES(),), replace(options, generations=1))
    with interrupts() as interrupt_state, jax.enable_x64(task.dtype == "float64"), open_black_box(task) as box:
        clock = CompileTimer()
        evaluator = ScoreEvaluator(task, box)
        if box is not None:
            interrupt_state.raises = lambda: box.calling
            if max_seconds is not None:
                box.late = lambda: time.perf_counter() - began > max_seconds
        assert options.max_evaluations is not None and options.seed is not None
        search = NicheSearch(
            task.problem.bounds.dim,
            options.seed,
            options.max_evaluations,
            within=0.0 if global_only else math.inf if within is None else within,
            unseen=float(unseen),
            snap=evaluator.snap,
        )
        stop = run_search(search, evaluator, lambda: bool(interrupt_state.seen), began, max_seconds)
        return assemble(task, search, evaluator, stop, float(unseen), began, clock.compile_seconds)


class ScoreEvaluator:
    """Evaluates points of the unit box by one number, the less the better: feasible ones by their value."""

    def __init__(self, task: Task, box: BlackBox | None) -> None:
        self.task, self.box, self.n_failed = task, box, 0
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

    def evaluate(self, x: np.ndarray) -> CandidateEvaluation:
        genes = self.genes(x)
        if self.box is None:
            traced = Traced(self.task.objective, self.task.consts)  # type: ignore[arg-type]
            rows = next((size for size in PROGRAM_ROWS if size >= len(x)), PROGRAM_ROWS[-1])
            return evaluate_points(traced, genes, self.task.dtype, rows)
        raw = self.box(genes, np.full(len(genes), self.task.first_run))
        if raw["fun"].shape[1] != 1:
            raise InputError(f"minima needs one objective, and fun returned {raw['fun'].shape[1]} numbers.")
        if "eq" in raw:
            self.box.settle_eq_tolerance(raw["eq"])
        self.box.complete_generation()
        return summarise(raw["fun"], raw.get("ineq"), raw.get("eq"), self.box.eq_tolerance, np)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The scores (n,) of points x (n, d)."""
        evaluation = self.evaluate(x)
        value = np.asarray(evaluation.objectives, np.float64)[:, 0]
        failed = np.asarray(evaluation.failed) | ~np.isfinite(value)
        self.n_failed += int(failed.sum())
        if evaluation.violation is None:
            return np.where(failed, np.inf, value)
        violation = np.where(failed, 0.0, np.asarray(evaluation.violation, np.float64))
        # 1 / (1 + v) keeps the order of violations from 1e-16 on
        beyond = INFEASIBLE * (1.0 + violation / (1.0 + violation))
        return np.where(failed, np.inf, np.where(violation > 0, beyond, value))


def run_search(
    search: NicheSearch,
    evaluate: ScoreEvaluator,
    is_interrupted: Callable[[], bool],
    began: float,
    max_seconds: float | None,
) -> Stop:
    """Evaluate what the search asks for until it is done, and return why it ended."""
    moves = search.run()
    try:
        x = next(moves)
        while True:
            x = moves.send(evaluate(x))
            if is_interrupted() or (evaluate.box is not None and evaluate.box.interrupted):
                return Stop.INTERRUPT
            if evaluate.box is not None and evaluate.box.halted:
                return Stop.WORKERS
            if max_seconds is not None and time.perf_counter() - began > max_seconds:
                return Stop.TIME
    except StopIteration:
        return Stop.TOLERANCE if search.is_done else Stop.BUDGET


def assemble(
    task: Task,
    search: NicheSearch,
    evaluator: ScoreEvaluator,
    stop: Stop,
    unseen: float,
    began: float,
    compile_seconds: float,
) -> Result:
    """Build the Result of a search."""
    box, sign = evaluator.box, task.sign
    entries = sorted(search.best_minima(), key=lambda minimum: minimum.score)
    if not entries and len(search.known.x):  # it ended before anything converged
        row = int(np.argmin(search.known.score))
        entries = [Minimum(search.known.x[row], float(search.known.score[row]))]
    genes = evaluator.genes(np.array([minimum.x for minimum in entries]).reshape(-1, search.dim))
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
        share=np.array([minimum.samples for minimum in entries]) / max(1, search.n_samples),
        found=np.array([minimum.found for minimum in entries], int),
        verified=np.array([minimum.is_verified for minimum in entries], bool),
    )
    estimate = search.estimate_unseen()
    feasible = bool(len(table) and violation[0] <= 0)
    seconds = time.perf_counter() - began
    result = Result(
        problem=problem if box is None or box.eq_tolerance is None else problem.with_(eq_tolerance=box.eq_tolerance),
        x=table.x[0] if len(table) else np.full(problem.dim, np.nan),
        fun=float(values[0]) if len(table) else math.nan,
        success=stop is Stop.TOLERANCE and feasible,
        message=_message(stop, len(table), estimate, unseen),
        stop=stop,
        nit=search.n_rounds,
        nfev=search.evaluations,
        n_failed=evaluator.n_failed,
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
    result.settings |= {"within": search.within if math.isfinite(search.within) else None, "unseen": unseen}
    if box is not None:
        result["evaluations"] = tabulate_calls(task, box)
        result["failures"] = tuple(failed._replace(x=task.decode(failed.x)) for failed in box.failures)
    return result


def _message(stop: Stop, count: int, estimate: float, unseen: float) -> str:
    number = pluralize(count, "minimum", "minima")
    share = f"about {estimate:.2g} of the starts may lead to others"
    if stop is Stop.TOLERANCE:
        return f"Found {number}, and {share}: no more than unseen={unseen:g}."
    if stop is Stop.BUDGET:
        return f"Found {number} with all evaluations; {share}."
    return f"Stopped ({stop.value}) with {number}; {share}."
