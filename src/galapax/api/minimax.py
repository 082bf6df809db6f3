"""Min-max problems: the x whose worst case is least."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax import problems
from galapax.algorithms.cde import CoevolutionaryDE
from galapax.algorithms.minmax_cde import Arena, GameCDE
from galapax.api.keyword_hints import suggest_keywords
from galapax.api.minimize import minimize
from galapax.core.algorithm import Shared
from galapax.core.checks import abbreviate, as_float_array
from galapax.core.errors import InputError
from galapax.core.evaluation import Shape
from galapax.core.interrupts import Interrupts, interrupts
from galapax.core.options import LEAVES, Compute, Keep, Options, read
from galapax.core.problem import MinMaxProblem, Problem
from galapax.core.stop import UNLIMITED, Rules, Stop
from galapax.execution.observers import Progress, observers
from galapax.execution.solve import solve
from galapax.execution.task import Task, build_task, check_not_tracing
from galapax.local.minmax_refinement import RefinedMinMax, refine_minmax
from galapax.local.worst_case import Check, worst_cases
from galapax.numerics import random
from galapax.objective.game import TracedGame, trace_game
from galapax.operators.differential import best_1, rand_1
from galapax.results.result import Result, all_runs, attach_replay, find_opponents, find_replay, record_late_interrupt

SHORT, LONG = 200, 4000  # generations, with the polish and without
SCENARIO_GENERATIONS = 4000
MEMORY = 50  # worst y of earlier cycles that x goes on to be judged by


@suggest_keywords
def minimax(
    fun: str | MinMaxProblem | Callable[..., Any],
    x_bounds: Any = None,
    y_bounds: Any = None,
    *,
    scenarios: Any = None,
    algorithm: Any = None,
    population: int | None = None,
    generations: int | None = None,
    max_seconds: float | None = None,
    polish: bool | str = "auto",
    runs: int | range = 1,
    seed: int | None = 0,
    on_failure: str | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress: bool | None = None,
    live: Any = False,
    checkpoint: Any = None,
    resume: Any = None,
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
    game: Any = problems.as_problem(fun)
    options = Options.parse(arguments | {"polish": False})
    check_taken(options, "minimax")
    if not isinstance(options.keep.history, bool):
        raise InputError(f"history must be True or False, got {options.keep.history!r}.")
    compute = dataclasses.replace(options.compute, dtype=options.compute.dtype or "float64")
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
        options = dataclasses.replace(options, generations=SHORT if refine else LONG)
    dtype = str(compute.dtype)
    with interrupts() as noted, jax.enable_x64(dtype == "float64"):
        traced = trace_game(problem.fun, problem.x_bounds.dim, problem.y_bounds.dim, dtype)
        solver = _solver(problem, algorithm, population, traced, dtype)
        if on_failure is None:
            _probe(traced, problem, dtype)
        task = build_task(problem, (solver,), options, Shape(), Rules(UNLIMITED, -math.inf, UNLIMITED))
        task = dataclasses.replace(task, objective=traced.game, consts=traced.consts)
        results, _ = solve(task, watchers.about(task), began)
        return _checked(results[0], task, traced, noted, refine)


# leaves of Options that `minimax` takes, besides who watches
TAKEN = (
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


def check_taken(options: Options, verb: str) -> None:
    """Refuse options that do not apply to min-max problems."""
    for name, leaf in LEAVES.items():
        if name not in (*TAKEN, "islands") and read(options, name) != leaf.default:
            raise InputError(f"{verb} does not take {leaf.field}: remove it from {leaf.group or 'the call'}.")


def usual(problem: MinMaxProblem) -> CoevolutionaryDE:
    """The algorithm that a min-max problem gets by default."""
    return CoevolutionaryDE(memory=MEMORY, mutation=rand_1 if problem.x_bounds.dim <= 10 else best_1)


def _solver(problem: MinMaxProblem, algorithm: Any, population: int | None, traced: TracedGame, kind: str) -> GameCDE:
    """The game that x and y play, with the settings of a CDE."""
    if algorithm is not None and not isinstance(algorithm, CoevolutionaryDE):
        raise InputError(
            f"minimax needs a gx.CoevolutionaryDE, which has populations of both x and y; got {abbreviate(algorithm)}."
        )
    given = usual(problem) if algorithm is None else algorithm
    if population is not None:
        given = dataclasses.replace(given, population=population)
    given.validate()
    return GameCDE(
        payoff=traced.game,
        arena=Shared(Arena(problem.y_bounds.round_inwards(kind), traced.consts)),
        population=given.population,
        mutation=given.mutation,
        x_generations=given.x_generations,
        y_generations=given.y_generations,
        memory=given.memory,
        weight=given.weight,
        crossover_rate=given.crossover_rate,
    )


def _probe(traced: TracedGame, problem: MinMaxProblem, kind: str) -> None:
    """Refuse a function that fails at every one of a few pairs."""
    rng = np.random.default_rng(0)
    points = [b.lower + b.span * rng.random((8, b.dim)) for b in (problem.x_bounds, problem.y_bounds)]
    table = np.asarray(traced.game(traced.consts, *(jnp.asarray(p, kind) for p in points)))
    if not np.isfinite(table).any():
        raise InputError(
            "fun returned NaN or inf at all 64 pairs of x and y that were tried: check the formula. If only a small "
            'part of the boxes is defined, pass on_failure="worst" to search for it.'
        )


def _checked(result: Result, task: Task, traced: TracedGame, noted: Interrupts, refine: bool) -> Result:
    """The result of the run whose worst case is least, by independent searches for the worst y of each run's x; refine:
    these x polished first.
    """
    assert isinstance(task.problem, MinMaxProblem)
    runs, opponents = all_runs(result), find_opponents(result)
    assert opponents is not None
    boxes = (task.problem.x_bounds.round_inwards(task.dtype), task.problem.y_bounds.round_inwards(task.dtype))
    some = (traced, runs.x.astype(task.dtype), opponents)
    answer = None
    if refine:
        answer = refine_minmax(*some, boxes, task.seed, runs.number, noted)
        check, x = answer.check, answer.x
    else:
        check, x = worst_cases(*some, boxes[1], task.seed, runs.number, noted), runs.x
    value = np.where(np.isfinite(runs.fun), check.value, np.inf)
    best = int(np.argmin(value))
    replay = find_replay(result)

    def again(number: int) -> Result:
        """A run once more, with its polish and worst case."""
        assert replay is not None
        alone, row = replay(number), int(np.flatnonzero(runs.number == number)[0])
        _refine(alone, answer, row)
        _say(alone, check, row)
        return alone

    if result.runs is not None and not np.array_equal(runs.x[best], result.x):
        assert replay is not None
        alone = replay(int(runs.number[best]))  # with its population, which is kept for one run alone
        # why the ensemble ended is said of the whole, not of the run that was made again
        for name in ("x", "fun", "nit", "population", "population_fitness", "history"):
            result[name] = alone[name]
    if result.runs is not None:
        result["worst_cases"] = value
        if answer is not None:
            fun = np.where(answer.better, answer.value, runs.fun)
            parts = {"x": x, "fun": fun, "nfev": runs.nfev + answer.pairs}
            runs = dataclasses.replace(runs, **parts, success=runs.success | answer.converged)
        result["runs"] = dataclasses.replace(runs, nfev=runs.nfev + check.pairs)
    _refine(result, answer, best)
    _say(result, check, best)
    attach_replay(result, again, opponents)
    if noted.seen and result.stop is not Stop.INTERRUPT:
        record_late_interrupt(result)
    return result


def _refine(result: Result, answer: RefinedMinMax | None, row: int) -> None:
    """Put the polished x of a run into a result, and say what came of it."""
    if answer is None:
        return
    rows = slice(None) if result.runs is not None else slice(row, row + 1)
    better, spent = answer.better[rows], int(answer.pairs[rows].sum())
    result["nfev"] += spent
    result["polish"] = f"{int(better.sum())} of {len(better)} runs refined, in {spent} pairs of x and y"
    if answer.better[row]:
        result["x"], result["fun"] = answer.x[row], float(answer.value[row])
    if answer.converged[row] and result.stop is Stop.BUDGET:
        result.update(stop=Stop.TOLERANCE, success=True)
        result["message"] = "Converged: refining x with gradients no longer improves its worst case."


def _say(result: Result, checks: Check, row: int) -> None:
    """Add the worst case of a run, and how sure it is, to a result."""
    worst, met = float(checks.value[row]), float(result.fun)
    result["worst_case"], result["y"] = worst, checks.y[row]
    result["worst_case_sure"] = float(checks.agreeing[row])
    spent = checks.pairs if result.runs is not None else checks.pairs[row : row + 1]
    result["worst_case_nfev"] = int(spent.sum())
    result["nfev"] += result.worst_case_nfev
    if math.isnan(worst):
        result["message"] += " The worst case was not checked."
    elif worst > met + 1e-6 * max(1.0, abs(met)):
        result["message"] += (
            f" An independent search found a worse case ({worst:.6g}) than this search did ({met:.6g})."
        )
    if not math.isnan(worst) and not checks.settled[row]:
        result["message"] += (
            f" The searches for the worst case do not agree ({checks.agreeing[row]:.0%} of them found this "
            "value): the true worst case "
            "may be even worse."
        )
        result["success"] = False


def _scenarios(scenarios: Any) -> np.ndarray:
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
    """The least worst case over a finite set: an ordinary objective of x."""

    def worst(x: jax.Array) -> jax.Array:
        return jnp.max(jax.vmap(lambda y: fun(x, y))(jnp.asarray(scenarios, x.dtype)))

    of_x = Problem(worst, x_bounds, name=getattr(fun, "__name__", "fun"))
    trace_game(fun, of_x.dim, scenarios.shape[1], "float32")  # for its words on what is wrong
    result = minimize(of_x, algorithm=algorithm, **options)
    with jax.enable_x64(options["compute"].dtype == "float64"):
        values = np.array([float(fun(jnp.asarray(result.x), jnp.asarray(y))) for y in scenarios])
    if result.runs is not None:
        result["worst_cases"] = result.runs.fun
    result["y"] = scenarios[int(np.argmax(values))]
    result["worst_case"] = result.fun
    return result
