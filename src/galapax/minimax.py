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

from galapax.algorithms.cde import CDE
from galapax.algorithms.game import Arena, GameCDE
from galapax.core.algorithm import Shared
from galapax.core.checks import reals, short, whole
from galapax.core.errors import InputError
from galapax.core.evaluation import Shape
from galapax.core.problem import MinMaxProblem, Problem
from galapax.core.stop import NEVER, Rules, Stop
from galapax.engines.interrupts import Interrupts, interrupts
from galapax.engines.worst_case import Check, worst_cases
from galapax.evaluation.failures import check_policy
from galapax.evaluation.game import TracedGame, trace_game
from galapax.minimize import minimize
from galapax.operators.mutation import best_1, rand_1
from galapax.results.result import Result, all_runs
from galapax.running.observers import Progress, observers
from galapax.running.solve import solve
from galapax.running.task import Task, assembled, check_outside, precision_of

MEMORY = 50  # worst y of earlier cycles that x goes on to be judged by


def minimax(
    fun: MinMaxProblem | Callable[..., Any],
    x_bounds: Any = None,
    y_bounds: Any = None,
    *,
    scenarios: Any = None,
    algorithm: Any = None,
    population: int | None = None,
    generations: int = 4000,
    runs: int = 1,
    seed: int = 0,
    first_run: int | None = None,
    max_seconds: float | None = None,
    dtype: Any = "float64",
    on_failure: str | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress: bool | None = None,
    history: bool = True,
    live: Any = False,
) -> Result:
    """Find the x in its box whose worst case over y is least: min over x of max over y of fun(x, y).

    fun: a function of x (dx,) and y (dy,) to a number, written with jax.numpy; or a MinMaxProblem.
    x_bounds, y_bounds: one (lower, upper) pair for each variable. scenarios: instead of y_bounds, the only y that there
        are, one a row.
    algorithm: a CDE, or with scenarios any algorithm. By default one that remembers the worst y of earlier cycles, so
        that the order of min and max is kept where they cannot be exchanged, and that follows its best individuals
        where there are more than 10 variables. generations: of x; those of y come on top.
    runs, seed, first_run, max_seconds, on_failure and the rest: as in `minimize`. A pair of x and y whose value is not
        a finite number has failed: its x loses to any other.
    Returns a Result: `x`; `fun`, its worst value among the y of the search; `worst_case`, the largest value that
    independent searches for the worst y at x found (or the y that x was searched against, should one be worse), which
    is the one to rely on, and `y`, which attains it; `worst_case_sure`, the share of those searches that agree on it.
    Where only one of them found it, a worse one may have been missed, and `message` says so. Of several runs the one
    with the least worst case is returned; `worst_cases` has all of them. nfev counts pairs of x and y.
    """
    began = time.perf_counter()
    watchers = observers(callback, progress, live)
    kind = precision_of(dtype, True, False)
    if not isinstance(history, bool):
        raise InputError(f"history must be True or False, got {history!r}.")
    shared: dict[str, Any] = {
        "runs": runs,
        "seed": seed,
        "first_run": first_run,
        "max_seconds": max_seconds,
        "on_failure": on_failure,
        "history": history,
    }
    if scenarios is not None:
        if isinstance(fun, MinMaxProblem):
            raise InputError("a MinMaxProblem has a box of y; give its fun and x_bounds to minimax with scenarios.")
        if y_bounds is not None:
            raise InputError("give y_bounds or scenarios, not both.")
        shared |= {"dtype": kind, "callback": callback, "progress": progress, "live": live}
        whole(generations, "generations", 1)
        return _over_scenarios(fun, x_bounds, _scenarios(scenarios), algorithm, population, generations, shared)
    if not isinstance(fun, MinMaxProblem):
        problem = MinMaxProblem(fun, x_bounds, y_bounds)
    elif x_bounds is not None or y_bounds is not None:
        raise InputError("a MinMaxProblem carries its own bounds: leave x_bounds and y_bounds out.")
    else:
        problem = fun
    check_outside()
    check_policy(on_failure)
    with interrupts() as noted, jax.enable_x64(kind == "float64"):
        traced = trace_game(problem.fun, problem.x_bounds.dim, problem.y_bounds.dim, kind)
        solver = _solver(problem, algorithm, population, traced, kind)
        if on_failure is None:
            _probe(traced, problem, kind)
        rules = Rules(NEVER, -math.inf, NEVER)
        task = assembled(problem, (solver,), Shape(), kind, rules=rules, generations=generations, **shared)
        task = dataclasses.replace(task, objective=traced.game, consts=traced.consts)
        results, _ = solve(task, watchers.about(task), began)
        return _checked(results[0], task, traced, noted)


def usual(problem: MinMaxProblem) -> CDE:
    """The algorithm that a min-max problem gets by default."""
    return CDE(memory=MEMORY, mutation=rand_1 if problem.x_bounds.dim <= 10 else best_1)


def _solver(problem: MinMaxProblem, algorithm: Any, population: int | None, traced: TracedGame, kind: str) -> GameCDE:
    """The game that x and y play, with the settings of a CDE."""
    if algorithm is not None and not isinstance(algorithm, CDE):
        raise InputError(
            f"minimax needs a gx.CDE, which has a population of y besides that of x; got {short(algorithm)}."
        )
    given = usual(problem) if algorithm is None else algorithm
    if population is not None:
        given = dataclasses.replace(given, population=population)
    given.check()
    return GameCDE(
        payoff=traced.game,
        arena=Shared(Arena(problem.y_bounds.rounded(kind), traced.consts)),
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


def _checked(result: Result, task: Task, traced: TracedGame, noted: Interrupts) -> Result:
    """The result of the run whose worst case is least, by independent searches for the worst y of each run's x."""
    assert isinstance(task.problem, MinMaxProblem)
    runs, opponents = all_runs(result), result.opponents
    assert opponents is not None
    box = task.problem.y_bounds.rounded(task.dtype)
    checks = worst_cases(traced, runs.x.astype(task.dtype), opponents, box, task.seed, runs.number, noted)
    value = np.where(np.isfinite(runs.fun), checks.value, np.inf)
    best = int(np.argmin(value))
    replay = result.replay

    def again(number: int) -> Result:
        """A run once more, with its worst case."""
        assert replay is not None
        alone = replay(number)
        _say(alone, checks, int(np.flatnonzero(runs.number == number)[0]))
        return alone

    if result.runs is not None and not np.array_equal(runs.x[best], result.x):
        assert replay is not None
        alone = replay(int(runs.number[best]))  # with its population, which is kept for one run alone
        # why the ensemble ended is said of the whole, not of the run that was made again
        for name in ("x", "fun", "nit", "population", "population_fitness", "history"):
            result[name] = alone[name]
    if result.runs is not None:
        result["worst_cases"] = value
    _say(result, checks, best)
    result.attach(again, opponents)
    if noted.seen and result.stop is not Stop.INTERRUPT:
        result.late_interrupt()
    return result


def _say(result: Result, checks: Check, row: int) -> None:
    """Add the worst case of a run, and how sure it is, to a result."""
    worst, met = float(checks.value[row]), float(result.fun)
    result["worst_case"], result["y"] = worst, checks.y[row]
    result["worst_case_sure"] = float(checks.agreeing[row])
    if math.isnan(worst):
        result["message"] += " The worst case was not checked."
    elif worst > met + 1e-6 * max(1.0, abs(met)):
        result["message"] += (
            f" An independent search found a worse case, {worst:.6g}, than the {met:.6g} that this one met."
        )
    if not math.isnan(worst) and not checks.settled[row]:
        result["message"] += (
            f" The searches for it do not agree ({checks.agreeing[row]:.0%} of them came to it): the true worst case "
            "may be worse still."
        )
        result["success"] = False


def _scenarios(scenarios: Any) -> np.ndarray:
    try:
        rows = reals(scenarios)
    except ValueError:
        raise InputError(f"scenarios must be numbers, one scenario a row; got {short(scenarios)}.") from None
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise InputError(f"scenarios must be finite numbers, one scenario a row; got an array of shape {rows.shape}.")
    return rows


def _over_scenarios(
    fun: Callable[..., Any],
    x_bounds: Any,
    scenarios: np.ndarray,
    algorithm: Any,
    population: int | None,
    generations: int,
    shared: dict[str, Any],
) -> Result:
    """The least worst case over a finite set: an ordinary objective of x."""

    def worst(x: jax.Array) -> jax.Array:
        return jnp.max(jax.vmap(lambda y: fun(x, y))(jnp.asarray(scenarios, x.dtype)))

    of_x = Problem(worst, x_bounds, name=getattr(fun, "__name__", "fun"))
    trace_game(fun, of_x.dim, scenarios.shape[1], "float32")  # for its words on what is wrong
    result = minimize(of_x, algorithm=algorithm, population=population, generations=generations, **shared)
    with jax.enable_x64(shared["dtype"] == "float64"):
        values = np.array([float(fun(jnp.asarray(result.x), jnp.asarray(y))) for y in scenarios])
    if result.runs is not None:
        result["worst_cases"] = result.runs.fun
    result["y"] = scenarios[int(np.argmax(values))]
    result["worst_case"] = result.fun
    return result
