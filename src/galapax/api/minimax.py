"""Min-max problems: the x whose worst case is least."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from galapax.algorithms.cde import CoevolutionaryDE
from galapax.algorithms.minmax_cde import Arena, GameCDE
from galapax.api.minimize import minimize
from galapax.core.algorithm import Shared
from galapax.core.checks import abbreviate, as_float_array
from galapax.core.errors import InputError
from galapax.core.options import LEAVES, Compute, FailurePolicy, Keep, Options, read, suggest_keywords
from galapax.core.problem import MinMaxProblem, Problem, Shape
from galapax.core.stop import UNLIMITED, Interrupts, Rules, Stop, interrupts
from galapax.execution.observers import Progress, observers
from galapax.execution.solve import solve
from galapax.execution.task import Task, as_problem, build_task, check_not_tracing, resolve_threads
from galapax.local.minmax_refinement import RefinedMinMax, WorstCaseCheck, find_worst_cases, refine_minmax
from galapax.numerics import random
from galapax.objective.game import TracedGame, trace_game
from galapax.operators.variation import best_1, rand_1
from galapax.results.result import Result, all_runs, attach_replay, find_opponents, find_replay, record_late_interrupt

GENERATIONS_WITH_POLISH, GENERATIONS_WITHOUT_POLISH = 200, 4000
SCENARIO_GENERATIONS = 4000
MEMORY_SIZE = 50  # worst y of earlier cycles that stay opponents of x


@suggest_keywords
def minimax(
    fun: str | MinMaxProblem | Callable[[Any, Any], Any],
    x_bounds: Any = None,
    y_bounds: Any = None,
    *,
    scenarios: object = None,
    algorithm: Any = None,
    population: int | None = None,
    generations: int | None = None,
    max_seconds: float | None = None,
    polish: bool | Literal["auto"] = "auto",
    runs: int | range = 1,
    seed: int | None = 0,
    on_failure: FailurePolicy | None = None,
    callback: Callable[[Progress], object] | None = None,
    progress: bool | None = None,
    live: object = False,
    checkpoint: object = None,
    resume: object = None,
    keep: Keep | None = None,
    compute: Compute | None = None,
) -> Result:
    """Find the x inside its bounds with the smallest worst case over y: min over x of max over y of fun(x, y).

    fun: a function of x (dx,) and y (dy,) to a number, written with jax.numpy; or a MinMaxProblem, or its name.
    x_bounds, y_bounds: one (lower, upper) pair per variable. scenarios: instead of y_bounds, a finite set of y, one
        per row.
    algorithm: a CDE, or with scenarios any algorithm. By default one that remembers the worst y of earlier cycles, so
        that the order of min and max is kept where they cannot be exchanged, and that follows its best individuals
        where there are more than 10 variables. generations: of x; those of y come on top. The default is 200 with
        the polish, else 4000.
    polish: refine x with gradients afterwards, against y that follow it ("auto": unless an algorithm is given); the
        worst case never gets worse. For functions that are not smooth in x and y, x may stay as it is.
    runs, seed, max_seconds, on_failure, checkpoint and the rest: as in `minimize`; of keep the history (True or False),
        of compute dtype (float64 by default) and threads. A pair of x and y whose value is not a finite number has
        failed: its x loses to any other.
    Returns a Result: `x`; `fun`, its worst value among the y of the search; `worst_case`, the largest value found by
    independent searches for the worst y at x (or during the run, if that is worse), which is the value to rely on, and
    `y`, where it occurs; `worst_case_sure`, the share of those searches that agree on it. If only one of them found it,
    a worse case may have been missed, and `message` says so. With several runs, the one with the smallest worst case is
    returned; `worst_cases` has all of them. nfev counts pairs of x and y, those of the independent searches included:
    `worst_case_nfev` is their number. With scenarios, it counts x, each of which meets every scenario.
    """
    arguments, began = locals(), time.perf_counter()
    game: Any = as_problem(fun)
    options = Options.parse(arguments | {"polish": False})
    refuse_other_options(options, "minimax")
    if not isinstance(options.keep.history, bool):
        raise InputError(f"history must be True or False, got {options.keep.history!r}.")
    compute = dataclasses.replace(
        options.compute, dtype=options.compute.dtype or "float64", threads=resolve_threads(options)
    )
    options = dataclasses.replace(options, seed=random.resolve_seed(seed), compute=compute)
    if scenarios is not None:
        if isinstance(game, MinMaxProblem):
            raise InputError(
                "a MinMaxProblem has bounds for y; to use scenarios, pass its fun and x_bounds to minimax."
            )
        if y_bounds is not None:
            raise InputError("give y_bounds or scenarios, not both.")
        shared = {name: arguments[name] for name in ("callback", "progress", "live", "checkpoint", "resume", "runs")}
        shared |= {name: arguments[name] for name in ("population", "max_seconds", "on_failure", "keep")}
        shared |= {"seed": options.seed, "compute": compute}
        generations = SCENARIO_GENERATIONS if generations is None else options.generations
        return _over_scenarios(game, x_bounds, _scenarios(scenarios), algorithm, generations=generations, **shared)
    watchers = observers(callback, progress, live, checkpoint, resume)
    if not isinstance(game, MinMaxProblem):
        problem = MinMaxProblem(game, x_bounds, y_bounds)
    elif x_bounds is not None or y_bounds is not None:
        raise InputError("a MinMaxProblem has its own bounds: remove x_bounds and y_bounds.")
    else:
        problem = game
    check_not_tracing()
    if not (isinstance(polish, bool) or (isinstance(polish, str) and polish == "auto")):
        raise InputError(f'polish must be True, False or "auto", got {polish!r}.')
    refine = polish is True or (polish == "auto" and algorithm is None)
    if generations is None:
        options = dataclasses.replace(
            options, generations=GENERATIONS_WITH_POLISH if refine else GENERATIONS_WITHOUT_POLISH
        )
    dtype = str(compute.dtype)
    with interrupts() as interrupt_state, jax.enable_x64(dtype == "float64"):
        traced = trace_game(problem.fun, problem.x_bounds.dim, problem.y_bounds.dim, dtype)
        solver = _solver(problem, algorithm, population, traced, dtype)
        if on_failure is None:
            _probe(traced, problem, dtype)
        task = build_task(problem, (solver,), options, Shape(), Rules(UNLIMITED, -math.inf, UNLIMITED))
        task = dataclasses.replace(task, objective=traced.game, consts=traced.consts)
        results, _ = solve(task, watchers.about(task), began)
        return _check_worst_cases(results[0], task, traced, interrupt_state, refine)


# leaves of Options that `minimax` accepts, besides observers
ACCEPTED_OPTIONS = (
    "population",
    "generations",
    "max_seconds",
    "polish",
    "runs",
    "seed",
    "on_failure",
    "history",
    "dtype",
    "threads",
)


def refuse_other_options(options: Options, verb: str) -> None:
    """Refuse options that do not apply to min-max problems."""
    for name, leaf in LEAVES.items():
        if name not in (*ACCEPTED_OPTIONS, "islands") and read(options, name) != leaf.default:
            raise InputError(f"{verb} does not take {leaf.field}: remove it from {leaf.group or 'the call'}.")


def default_coevolution(problem: MinMaxProblem) -> CoevolutionaryDE:
    """Return the default algorithm of a min-max problem."""
    return CoevolutionaryDE(memory=MEMORY_SIZE, mutation=rand_1 if problem.x_bounds.dim <= 10 else best_1)


def _solver(
    problem: MinMaxProblem, algorithm: object, population: int | None, traced: TracedGame, dtype: str
) -> GameCDE:
    """Build the co-evolution of x and y with the hyper-parameters of a CoevolutionaryDE."""
    if algorithm is not None and not isinstance(algorithm, CoevolutionaryDE):
        raise InputError(
            f"minimax needs a gx.CoevolutionaryDE, which has populations of both x and y; got {abbreviate(algorithm)}."
        )
    settings = default_coevolution(problem) if algorithm is None else algorithm
    if population is not None:
        settings = dataclasses.replace(settings, population=population)
    settings.validate()
    return GameCDE(
        payoff=traced.game,
        arena=Shared(Arena(problem.y_bounds.round_inwards(dtype), traced.consts)),
        population=settings.population,
        mutation=settings.mutation,
        x_generations=settings.x_generations,
        y_generations=settings.y_generations,
        memory=settings.memory,
        weight=settings.weight,
        crossover_rate=settings.crossover_rate,
    )


def _probe(traced: TracedGame, problem: MinMaxProblem, dtype: str) -> None:
    """Refuse a function that fails at every one of a few pairs."""
    rng = np.random.default_rng(0)
    points = [b.lower + b.span * rng.random((8, b.dim)) for b in (problem.x_bounds, problem.y_bounds)]
    table = np.asarray(traced.game(traced.consts, *(jnp.asarray(p, dtype) for p in points)))
    if not np.isfinite(table).any():
        raise InputError(
            "fun returned NaN or inf at all 64 pairs of x and y that were tried: check the formula. If only a small "
            'part of the boxes is defined, pass on_failure="worst" to search for it.'
        )


def _check_worst_cases(
    result: Result, task: Task, traced: TracedGame, interrupt_state: Interrupts, refine: bool
) -> Result:
    """Return the result of the run with the smallest worst case, found by independent searches over y for each run.

    refine: polish these x first.
    """
    assert isinstance(task.problem, MinMaxProblem)
    runs, opponents = all_runs(result), find_opponents(result)
    assert opponents is not None
    boxes = (task.problem.x_bounds.round_inwards(task.dtype), task.problem.y_bounds.round_inwards(task.dtype))
    search_arguments = (traced, runs.x.astype(task.dtype), opponents)
    answer = None
    if refine:
        answer = refine_minmax(*search_arguments, boxes, task.seed, runs.number, interrupt_state)
        check, x = answer.check, answer.x
    else:
        check, x = find_worst_cases(*search_arguments, boxes[1], task.seed, runs.number, interrupt_state), runs.x
    value = np.where(np.isfinite(runs.fun), check.value, np.inf)
    best = int(np.argmin(value))
    replay = find_replay(result)

    def replay_checked(number: int) -> Result:
        """Replay a run, with its polish and worst case."""
        assert replay is not None
        alone, row = replay(number), int(np.flatnonzero(runs.number == number)[0])
        _apply_refinement(alone, answer, row)
        _report_worst_case(alone, check, row)
        return alone

    if result.runs is not None and not np.array_equal(runs.x[best], result.x):
        assert replay is not None
        alone = replay(int(runs.number[best]))  # with its population, which is kept for one run alone
        # `stop` and `message` describe the ensemble, not the run that was replayed
        for name in ("x", "fun", "nit", "population", "population_fitness", "history"):
            result[name] = alone[name]
    if result.runs is not None:
        result["worst_cases"] = value
        if answer is not None:
            fun = np.where(answer.is_better, answer.value, runs.fun)
            success = runs.success | answer.has_converged
            runs = dataclasses.replace(runs, x=x, fun=fun, nfev=runs.nfev + answer.n_pairs, success=success)
        result["runs"] = dataclasses.replace(runs, nfev=runs.nfev + check.n_pairs)
    _apply_refinement(result, answer, best)
    _report_worst_case(result, check, best)
    attach_replay(result, replay_checked, opponents)
    if interrupt_state.seen and result.stop is not Stop.INTERRUPT:
        record_late_interrupt(result)
    return result


def _apply_refinement(result: Result, answer: RefinedMinMax | None, row: int) -> None:
    """Put the polished x of a run into a result, and report the polish."""
    if answer is None:
        return
    rows = slice(None) if result.runs is not None else slice(row, row + 1)
    is_better, spent = answer.is_better[rows], int(answer.n_pairs[rows].sum())
    result["nfev"] += spent
    result["polish"] = f"{int(is_better.sum())} of {len(is_better)} runs refined, in {spent} pairs of x and y"
    if answer.is_better[row]:
        result["x"], result["fun"] = answer.x[row], float(answer.value[row])
    if answer.has_converged[row] and result.stop is Stop.BUDGET:
        result.update(stop=Stop.TOLERANCE, success=True)
        result["message"] = "Converged: refining x with gradients no longer improves its worst case."


def _report_worst_case(result: Result, checks: WorstCaseCheck, row: int) -> None:
    """Add the worst case of a run, and how many searches agree on it, to a result."""
    worst, known = float(checks.value[row]), float(result.fun)
    result["worst_case"], result["y"] = worst, checks.y[row]
    result["worst_case_sure"] = float(checks.agreeing[row])
    spent = checks.n_pairs if result.runs is not None else checks.n_pairs[row : row + 1]
    result["worst_case_nfev"] = int(spent.sum())
    result["nfev"] += result.worst_case_nfev
    if math.isnan(worst):
        result["message"] += " The worst case was not checked."
    elif worst > known + 1e-6 * max(1.0, abs(known)):
        result["message"] += (
            f" An independent search found a worse case ({worst:.6g}) than this search did ({known:.6g})."
        )
    if not math.isnan(worst) and not checks.is_confirmed[row]:
        result["message"] += (
            f" The searches for the worst case do not agree ({checks.agreeing[row]:.0%} of them found this "
            "value): the true worst case "
            "may be even worse."
        )
        result["success"] = False


def _scenarios(scenarios: object) -> np.ndarray:
    try:
        rows = as_float_array(scenarios)
    except ValueError:
        raise InputError(f"scenarios must be numbers, one scenario per row; got {abbreviate(scenarios)}.") from None
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise InputError(f"scenarios must be finite numbers, one scenario per row; got an array of shape {rows.shape}.")
    return rows


def _over_scenarios(
    fun: Callable[..., Any],
    x_bounds: Any,
    scenarios: np.ndarray,
    algorithm: Any,
    **options: Any,
) -> Result:
    """Minimise the worst case over a finite set of scenarios, which is an ordinary objective of x."""

    def worst(x: jax.Array) -> jax.Array:
        return jnp.max(jax.vmap(lambda y: fun(x, y))(jnp.asarray(scenarios, x.dtype)))

    problem = Problem(worst, x_bounds, name=getattr(fun, "__name__", "fun"))
    trace_game(fun, problem.dim, scenarios.shape[1], "float32")  # for its error messages
    result = minimize(problem, algorithm=algorithm, **options)
    with jax.enable_x64(options["compute"].dtype == "float64"):
        values = np.array([float(fun(jnp.asarray(result.x), jnp.asarray(y))) for y in scenarios])
    if result.runs is not None:
        result["worst_cases"] = result.runs.fun
    result["y"] = scenarios[int(np.argmax(values))]
    result["worst_case"] = result.fun
    return result
