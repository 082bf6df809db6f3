"""Min-max problems: the x whose worst case is least."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.algorithms.coevolution import CDE
from galapax.core.algorithm import Population, Shared
from galapax.core.checks import reals, short, whole
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, MinMaxProblem, Problem
from galapax.engines import programs
from galapax.engines.loop import Progress
from galapax.evaluation.game import Game, TracedGame, trace_game
from galapax.minimize import minimize
from galapax.numerics import random
from galapax.operators.crossover import binomial_crossover
from galapax.operators.mutation import best_1, rand_1
from galapax.operators.repair import bounce_back
from galapax.operators.sampling import uniform_in
from galapax.results.result import Result, all_runs
from galapax.running.solve import solve
from galapax.running.task import precision_of, prepare

MEMORY = 50  # worst y of earlier cycles that x goes on to be judged by
CHECKS, CHECK_POPULATION, CHECK_GENERATIONS = 4, 100, 500  # independent searches for the worst case of the answer


class Arena(NamedTuple):
    """The box of y, and the arrays that the function closes over."""

    bounds: Bounds
    consts: Any


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
    max_seconds: float | None = None,
    dtype: Any = "float64",
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
    Returns a Result: `x`; `fun`, its worst value among the y of the search; `worst_case`, the value of an independent
    search for the worst y at x (or of the y that x was searched against, should one be worse), which is the one to rely
    on, and `y`, which attains it. Of several runs the one with the least worst case is returned; `worst_cases` has all
    of them.
    """
    if isinstance(fun, MinMaxProblem):
        if x_bounds is not None or y_bounds is not None:
            raise InputError("a MinMaxProblem carries its own bounds: leave x_bounds and y_bounds out.")
        problem = fun
    else:
        if scenarios is not None and y_bounds is not None:
            raise InputError("give y_bounds or scenarios, not both.")
        if scenarios is not None:
            rows = _scenarios(scenarios)
            y_bounds = [(low, high) for low, high in zip(rows.min(axis=0), rows.max(axis=0), strict=True)]
            y_bounds = [(low, high if high > low else low + 1.0) for low, high in y_bounds]
        problem = MinMaxProblem(fun, x_bounds, y_bounds, name=getattr(fun, "__name__", "fun"))
    shared: dict[str, Any] = {
        "runs": runs,
        "seed": seed,
        "max_seconds": max_seconds,
        "dtype": precision_of(dtype, True, False),
        "callback": callback,
        "progress": progress,
        "history": history,
        "live": live,
    }
    if scenarios is not None:
        if isinstance(fun, MinMaxProblem):
            raise InputError("a MinMaxProblem has a box of y; give its fun and x_bounds to minimax with scenarios.")
        return _over_scenarios(problem, _scenarios(scenarios), algorithm, population, generations, shared)
    if algorithm is not None and not isinstance(algorithm, CDE):
        raise InputError(
            f"minimax needs a gx.CDE, which has a population of y besides that of x; got {short(algorithm)}."
        )
    usual = CDE(memory=MEMORY, mutation=rand_1 if problem.x_bounds.dim <= 10 else best_1)
    solver = algorithm if algorithm is not None else usual
    if population is not None:
        solver = dataclasses.replace(solver, population=population)
    solver.check()
    kind = shared["dtype"]
    with jax.enable_x64(kind == "float64"):
        traced = trace_game(problem.fun, problem.x_bounds.dim, problem.y_bounds.dim, kind)
        y_box = problem.y_bounds.rounded(kind)
    _probe(traced, problem, kind)
    solver = dataclasses.replace(solver, game=traced.game, arena=Shared(Arena(y_box, traced.consts)))
    # the objective of x alone is settled by the algorithm, which knows y
    of_x = Problem(_nothing, problem.x_bounds, name=problem.name, title=problem.title, source=problem.source)
    of_x = of_x.with_(optimum=problem.optimum)
    results, _ = solve(prepare(of_x, (solver,), generations=generations, **shared))
    result = results[0]
    pairs = solver.population * (solver.population + solver.memory)
    of_y = solver.population * (1 if solver.memory else solver.population) * (solver.y_generations + 1)
    made = all_runs(result).nit
    result["nfev"] = int(np.sum(made * pairs + made // solver.x_generations * (of_y + pairs)))
    return _checked(result, traced, y_box, kind)


def _nothing(x: jax.Array) -> jax.Array:
    return 0.0 * x[0]


def _scenarios(scenarios: Any) -> np.ndarray:
    try:
        rows = reals(scenarios)
    except ValueError:
        raise InputError(f"scenarios must be numbers, one scenario a row; got {short(scenarios)}.") from None
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise InputError(f"scenarios must be finite numbers, one scenario a row; got an array of shape {rows.shape}.")
    return rows


def _probe(traced: TracedGame, problem: MinMaxProblem, kind: str) -> None:
    """Refuse a function that fails at every one of a few pairs."""
    rng = np.random.default_rng(0)
    points = [b.lower + b.span * rng.random((8, b.dim)) for b in (problem.x_bounds, problem.y_bounds)]
    with jax.enable_x64(kind == "float64"):
        table = np.asarray(traced.game(traced.consts, *(jnp.asarray(p, kind) for p in points)))
    if not np.isfinite(table).any():
        raise InputError("fun returned NaN or inf at all 64 pairs of x and y that were tried: check the formula.")


def _checked(result: Result, traced: TracedGame, box: Bounds, kind: str) -> Result:
    """The result of the run whose worst case is least, by an independent search for the worst y of each run's x."""
    runs, (game, consts) = all_runs(result), traced
    keys = random.run_keys(result.seed, 2**31, len(runs))
    with jax.enable_x64(kind == "float64"):
        x = runs.x.astype(kind)
        y, worst = jax.device_get(programs.call(_worst, (game, CHECK_GENERATIONS), consts, x, box, keys))
        y_met, met = jax.device_get(programs.call(_worst_met, (game,), consts, x, result._opponents))
    worse = met > worst  # the search itself may have met a worse y
    y = np.where(worse[:, None], y_met, y)
    worst = np.where(np.isnan(runs.fun), np.inf, np.where(worse, met, worst))
    best = int(np.argmin(worst))
    if result.runs is not None and not np.array_equal(runs.x[best], result.x):
        alone = result.run(int(runs.number[best]))  # with its population, which is kept for one run alone
        for name in ("x", "fun", "nit", "population", "population_fitness", "history", "success", "message"):
            result[name] = alone[name]
    result["worst_case"], result["y"] = float(worst[best]), y[best]
    if result.runs is not None:
        result["worst_cases"] = worst
    if worst[best] > result.fun + 1e-6 * max(1.0, abs(worst[best])):
        worse = f"{worst[best]:.6g}, than the {result.fun:.6g} that this one met"
        result.message += f" An independent search found a worse case, {worse}."
    return result


def _worst_met(game: Game, consts: Any, x: Array, opponents: Array) -> tuple[Array, Array]:
    """The worst of the opponents (R, dy, k) for each x (R, dx), and its value."""

    def one(x: Array, y: Array) -> tuple[Array, Array]:
        values = game(consts, x[None], y.T)[0]
        values = jnp.where(jnp.isnan(values), -jnp.inf, values)
        return y[:, jnp.argmax(values)], jnp.max(values)

    return jax.vmap(one)(x, opponents)


def _worst(game: Game, generations: int, consts: Any, x: Array, box: Bounds, keys: Array) -> tuple[Array, Array]:
    """The y that maximises against each x (R, dx), found by differential evolution from scratch; and its value."""
    n = CHECK_POPULATION

    def search(x: Array, key: Array) -> tuple[Array, Array]:
        def worth(y: Array) -> Array:
            values = game(consts, x[None], y)[0]
            return jnp.where(jnp.isnan(values), jnp.inf, -values)

        def generation(i: Any, both: tuple[Array, Array]) -> tuple[Array, Array]:
            y, own = both
            key_mutate, key_cross, key_repair = random.split(random.fold(key, i), 3)
            mutants = rand_1(key_mutate, Population(y, own[:, None], None), 0.5)
            trials = bounce_back(key_repair, binomial_crossover(key_cross, y, mutants, 0.9), y, box)
            new = worth(trials)
            return jnp.where((new <= own)[:, None], trials, y), jnp.minimum(new, own)

        first = uniform_in(random.fold(key, generations), box, n)
        if 2**box.dim <= n // 2:  # the worst case is often a corner
            first = jnp.concatenate([box.lower + box.span * corners(box.dim), first])[:n]
        y, own = lax.fori_loop(0, generations, generation, (first, worth(first)))
        return y[jnp.argmin(own)], -jnp.min(own)

    def best_of_several(x: Array, key: Array) -> tuple[Array, Array]:
        y, value = jax.vmap(lambda i: search(x, random.fold(key, i)))(jnp.arange(CHECKS))
        best = jnp.argmax(value)
        return y[best], value[best]

    return jax.vmap(best_of_several)(x, keys)


def corners(dim: int) -> np.ndarray:
    """The corners of the unit cube, (2**dim, dim)."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=dim)))


def _over_scenarios(
    problem: MinMaxProblem,
    scenarios: np.ndarray,
    algorithm: Any,
    population: int | None,
    generations: int,
    shared: dict[str, Any],
) -> Result:
    """The least worst case over a finite set."""
    whole(generations, "generations", 1)
    trace_game(problem.fun, problem.x_bounds.dim, scenarios.shape[1], "float32")  # for its words on what is wrong
    fun = problem.fun

    def worst(x: jax.Array) -> jax.Array:
        return jnp.max(jax.vmap(lambda y: fun(x, y))(jnp.asarray(scenarios, x.dtype)))

    of_x = Problem(worst, problem.x_bounds, name=problem.name, title=problem.title)
    result = minimize(of_x, algorithm=algorithm, population=population, generations=generations, **shared)
    with jax.enable_x64(shared["dtype"] == "float64"):
        values = np.array([float(fun(jnp.asarray(result.x), jnp.asarray(y))) for y in scenarios])
    if result.runs is not None:
        result["worst_cases"] = result.runs.fun
    result["y"] = scenarios[int(np.argmax(values))]
    result["worst_case"] = result.fun
    return result
