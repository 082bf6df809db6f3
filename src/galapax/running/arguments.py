"""What single arguments of `minimize` and its like mean; those that mean nothing are refused with a sentence."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np

from galapax.algorithms.archive import Archived
from galapax.core.algorithm import Algorithm, Budget, count_repairs
from galapax.core.checks import as_written, finite, items, number, reals, short, whole
from galapax.core.errors import InputError
from galapax.core.evaluation import Shape
from galapax.core.islands import Islands
from galapax.core.problem import Described, Problem
from galapax.core.restarts import Restarts
from galapax.core.stop import NEVER
from galapax.evaluation.executors import Calls
from galapax.evaluation.fit import differentiable
from galapax.numerics import devices

ENGINES = ("auto", "xla", "fused", "native")
TOLERANCE = {"float64": 1e-11, "float32": 1e-6}  # as a share of the box
FEWEST = 8  # individuals that a population has at least where few evaluations make it smaller
RESERVED = 600  # evaluations a variable that are left for a polish under constraints, if that is not much
FEWEST_REPAIRED = 20  # generations that a budget must allow for repairs by differences


def precision_of(dtype: Any, constrained: bool, blackbox: bool) -> str:
    if dtype is None:
        # a penalty or a tolerance of 1e-4 on large numbers has no meaning in float32
        return "float64" if constrained or blackbox or devices.on_cpu() else "float32"
    try:
        kind = repr(dtype) if isinstance(dtype, np.generic) else np.dtype(dtype).name  # a number is no type
    except (TypeError, ValueError, SyntaxError):  # NumPy parses strings such as "01"
        kind = repr(dtype)
    if kind not in ("float32", "float64"):
        raise InputError(f'dtype must be "float32" or "float64", got {dtype!r}.')
    return kind


def limit_of(solver: Algorithm, generations: Any, max_evaluations: Any, max_seconds: Any) -> int:
    """Generations that a run may make."""
    open_ended = max_evaluations is not None or max_seconds is not None
    if generations is None:
        return NEVER if open_ended else solver.traits.default_generations
    return min(whole(as_written(generations), "generations", 1), NEVER)


def goals_of(problem: Problem, target: Any, stall: Any, maximize: Any) -> tuple[float, int, np.ndarray | None]:
    """Target, stall and reference point of the rules, all to be minimised."""
    reference = None
    if problem.reference_point is not None:
        given = problem.reference_point
        try:
            corner = reals(given)
        except ValueError:
            corner = np.zeros(0)
        if corner.ndim != 1 or not corner.size or not np.isfinite(corner).all():
            raise InputError(f"reference_point must be finite numbers, one per objective; got {short(given)}.")
        if corner.size > 1:
            reference = -corner if maximize else corner
    goal = -math.inf
    if target is not None:
        larger_is_better = maximize or reference is not None  # a hypervolume always is
        goal = -number(target, "target") if larger_is_better else number(target, "target")
    return goal, NEVER if stall is None else min(whole(stall, "stall", 1), NEVER), reference


def tolerance_of(given: Any, dtype: str) -> float:
    if given is None:
        return TOLERANCE[dtype]
    value = finite(given, "tolerance")
    if not 0 <= value < 1:
        raise InputError(f"tolerance is a fraction of the box, at least 0 and below 1; got {value:g}. 0 disables it.")
    return value


def kept_for_polish(most: int, problem: Described, solver: Algorithm, dtype: str) -> int:
    """Evaluations that a search under constraints leaves for the polish, which may make its answer feasible."""
    if (
        not isinstance(problem, Problem)
        or not problem.constrained
        or solver.traits.multi_objective
        or dtype != "float64"
    ):
        return 0
    return int(min(RESERVED * problem.dim, 0.05 * most))


def afforded(solver: Algorithm, dim: int, shape: Shape, budget: Budget) -> Algorithm:
    """The algorithm with a population small enough for the evaluations it has to last some generations.

    For those whose size the user has left to us. Where not even the smallest population can be paid, the budget is
    refused.
    """
    if isinstance(solver, Archived):
        return replace(solver, inner=afforded(solver.inner, dim, shape, budget))
    if budget.evaluations is None:
        return solver
    usual = solver.bind(dim, shape, budget).population
    size = min(usual, max(FEWEST, budget.evaluations // solver.traits.min_generations), budget.evaluations)
    if size == usual:
        return solver
    for population in range(size, usual):  # the smallest that it can have: a refusal names that one
        try:
            smaller = replace(solver, population=population)  # type: ignore[type-var]
            smaller.validate()
            smaller.bind(dim, shape, budget)
        except InputError:
            continue
        return smaller
    return solver


def repairs_of(
    problem: Described, solver: Algorithm, called: bool, asynchronous: bool, most: int | None
) -> tuple[int, bool]:
    """How many candidates a generation are to be repaired, and whether by differences of values: where they are called,
    or JAX cannot derive the constraints as functions of one solution. A run of few evaluations, `most`, needs these for
    its candidates.
    """
    if asynchronous or not isinstance(problem, Problem) or problem.eq is None or not count_repairs(solver):
        return 0, False
    if not called and differentiable(problem):
        return count_repairs(solver), False
    generation = solver.population + count_repairs(solver) * (1 + problem.dim)
    enough = most is None or most >= FEWEST_REPAIRED * generation
    return (count_repairs(solver), True) if enough else (0, False)


def polish_of(given: Any) -> bool | str:
    if isinstance(given, bool | np.bool_):
        return bool(given)
    if isinstance(given, str) and given == "auto":
        return given
    raise InputError(f'polish must be "auto", True or False, got {short(given)}.')


def check_islands(islands: Islands, population: int, restarts: Restarts | None, calls: Calls) -> None:
    islands.check(population)
    if restarts is not None:
        raise InputError("a run on islands does not restart: leave restarts out, or islands.")
    if calls.asynchronous:
        raise InputError("asynchronous=True has one population: leave islands out.")


def threads_of(given: Any, blackbox: bool) -> int:
    if given is not None and blackbox:
        raise InputError("threads is for functions that JAX traces; a black box is called in processes by workers=.")
    if given is not None:
        return whole(given, "threads", 1)
    named = os.environ.get("GALAPAX_THREADS", "")
    if named and not (named.isdigit() and int(named)):
        raise InputError(f"GALAPAX_THREADS must be a number of threads, at least 1; it is {named!r}.")
    return int(named) if named else devices.count_cores()


def spread_of(given: Any, blackbox: bool, vectorized: Any, runs: int, islands: Any, engine: Any) -> int:
    """How many devices share the evaluation of a generation; 0 where one makes all of it."""
    if not isinstance(given, bool):
        raise InputError(f"spread must be True or False, got {given!r}.")
    if not given:
        return 0
    for wrong, instead in (
        (blackbox, "a black box is called in processes by workers="),
        (vectorized, "a function with vectorized=True takes the whole population at once"),
        (runs > 1, "the runs of an ensemble are spread over the devices anyway"),
        (islands is not None, "islands are spread over the devices anyway"),
        (engine not in ("auto", "xla"), f"engine={engine!r} uses one device"),
    ):
        if wrong:
            raise InputError(f"spread=True lets all devices evaluate one population, and {instead}: leave spread out.")
    return len(devices.local_devices())


def engine_named(given: Any) -> str:
    if isinstance(given, str) and given in ENGINES:
        return given
    raise InputError(f"engine must be one of {', '.join(map(repr, ENGINES))}, got {short(given)}.")


def snapshots_of(given: Any) -> tuple[int, ...]:
    listed = items(given, "snapshots must be a list of generations, such as [1, 10, 100]")
    return tuple(sorted({whole(g, "snapshots", 1) for g in listed}))


def starting_genes(initial: Any, problem: Described, population: int, runs: int) -> np.ndarray | None:
    """Genes of starting points as (k, d), or (runs, k, d) when every run has its own."""
    if initial is None:
        return None
    bounds, space = problem.bounds, problem.space
    try:
        points = reals(initial) if space is None else space.points(initial)
    except InputError:
        raise
    except ValueError:
        raise InputError(f"initial (or x0) must be real numbers, one point per row; got {short(initial)}.") from None
    d = bounds.dim
    if points.ndim == 1 and points.shape == (d,):
        points = points[None]
    if points.ndim not in (2, 3) or points.shape[-1] != d or (points.ndim == 3 and points.shape[0] != runs):
        raise InputError(
            f"initial (or x0) must be one point of {d} numbers, or points of shape (k, {d}), the same for every run, "
            f"or ({runs}, k, {d}), separate for each run; got shape {points.shape}."
        )
    if not 1 <= points.shape[-2] <= population:
        raise InputError(
            f"initial may have 1 to {population} points, a whole population; got {points.shape[-2]}. "
            "Give fewer, or a larger population."
        )
    outside = ~((points >= bounds.lower) & (points <= bounds.upper))  # NaN is outside, too
    if outside.any():
        first = tuple(int(i) for i in np.argwhere(outside)[0])
        rows = points.reshape(-1, d)
        which = "" if len(rows) == 1 else f" of point {first[:-1] if points.ndim == 3 else first[0]}"
        count = "" if len(rows) == 1 else f" ({int(outside.any(axis=-1).sum())} of {len(rows)} points do not)"
        raise InputError(
            f"initial (or x0) must lie inside the bounds{count}: variable {first[-1]}{which} is {points[first]:g}, "
            f"and its bounds are {bounds.lower[first[-1]]:g} and {bounds.upper[first[-1]]:g}."
        )
    return points if space is None else space.encode(points)
