"""A call of `minimize` and its like, checked: what is to be run, as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from galapax import algorithms
from galapax.algorithms.archive import Archived
from galapax.algorithms.de import DE
from galapax.core.algorithm import Algorithm
from galapax.core.checks import number, positive, reals, short, whole
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, MinMaxProblem, Problem
from galapax.engines.loop import (
    NEVER,
    Progress,
    Rules,
)
from galapax.evaluation.fit import differentiable, objective_count
from galapax.numerics import random
from galapax.numerics.devices import on_cpu
from galapax.view.live import Live, as_live

DEFAULT_GENERATIONS = 1000


def archived(solver: Algorithm, size: int) -> Algorithm:
    """The algorithm with an archive of that size."""
    if not solver.several_objectives:
        raise InputError(
            f"archive is for several objectives, and {algorithms.name_of(solver)} minimises one: leave it out."
        )
    return Archived(solver, size)


def problem_of(fun: Any, bounds: Any, algorithm: Any, ineq: Any = None, eq: Any = None) -> tuple[Problem, Any]:
    """A problem and an algorithm from the arguments with which `minimize` and its like begin."""
    if isinstance(fun, Problem) and algorithm is None and isinstance(bounds, str | Algorithm | type):
        bounds, algorithm = None, bounds  # a Problem has its bounds, so what follows it is the algorithm
    if isinstance(fun, MinMaxProblem):
        raise InputError(f"{fun.name} is a min-max problem, of x and y; minimize takes a function of x alone.")
    if not isinstance(fun, Problem):
        return Problem(fun, bounds, ineq=ineq, eq=eq), algorithm
    if bounds is not None or ineq is not None or eq is not None:
        raise InputError("a Problem carries its own bounds, ineq and eq: leave them out or use problem.with_.")
    return fun, algorithm


def fitting(problem: Problem, blackbox: Any, vectorized: Any, dtype: Any, population: Any = None) -> Algorithm:
    """The default algorithm for a problem. A black box is called by the run alone: it must name several objectives."""
    objectives = 1 if problem.objectives is None else len(problem.objectives)
    if not blackbox:
        together = (population or DE().population) if vectorized else 0
        objectives = objective_count(problem, precision_of(dtype, problem.constrained, blackbox), together)
    return algorithms.resolve(None, problem.constrained, objectives)


def prepare(
    problem: Problem,
    solvers: tuple[Algorithm, ...],
    *,
    generations: Any = None,
    runs: Any = 1,
    seed: Any = 0,
    first_run: Any = 0,
    target: Any = None,
    max_evaluations: Any = None,
    max_seconds: Any = None,
    stall: Any = None,
    maximize: Any = False,
    vectorized: Any = False,
    blackbox: Any = False,
    dtype: Any = None,
    callback: Any = None,
    progress: Any = None,
    history: Any = True,
    snapshots: Any = (),
    initial: Any = None,
    on_failure: Any = None,
    live: Any = False,
    label: str = "",
) -> Job:
    """Check the arguments of `minimize` and make a Job of them.

    solvers: the settings of the algorithm to run, alike in all that shapes the program (see `algorithm.static`).
    """
    for solver in solvers:
        solver.check()
    population = solvers[0].population
    if not (on_failure is None or (isinstance(on_failure, str) and on_failure in ("worst", "raise"))):
        raise InputError(f'on_failure must be "worst" or "raise", got {on_failure!r}.')
    if callback is not None and not callable(callback):
        raise InputError(f"callback must be a function of one Progress, got {callback!r}.")
    if whole(first_run, "first_run", 0) + whole(runs, "runs", 1) > 2**32:
        raise InputError(f"run numbers go up to 2**32; first_run={first_run} and runs={runs} reach beyond.")
    if not (isinstance(history, bool) or (isinstance(history, str) and history == "x")):
        raise InputError(f'history must be True, False or "x" (with the best x of each generation), got {history!r}.')
    random.key(seed)
    repairs = 0 if blackbox or vectorized or problem.eq is None else getattr(solvers[0], "repairs", 0)
    if repairs and not differentiable(problem):
        repairs = 0
    evaluations = population + repairs * (1 + problem.dim)
    return Job(
        problem=problem,
        solvers=solvers,
        repairs=repairs,
        evaluations=evaluations,
        rules=_rules(
            problem, population, evaluations, generations, target, max_evaluations, max_seconds, stall, maximize
        ),
        runs=int(runs),
        first_run=int(first_run),
        seed=int(seed),
        max_seconds=None if max_seconds is None else positive(max_seconds, "max_seconds"),
        maximize=bool(maximize),
        vectorized=bool(vectorized),
        blackbox=bool(blackbox),
        dtype=precision_of(dtype, problem.constrained, blackbox),
        callback=callback,
        progress=progress,
        history=history,
        snapshots=tuple(sorted({whole(g, "snapshots", 1) for g in snapshots})),
        initial=_initial(initial, problem.bounds, population, int(runs)),
        on_failure=on_failure,
        live=as_live(live),
        title=f"{label}{problem.name} · {algorithms.name_of(solvers[0])}",
    )


@dataclass(frozen=True)
class Job:
    """A call of `minimize` or `sweep`, checked: every one of the solvers makes that many runs."""

    problem: Problem
    solvers: tuple[Algorithm, ...]
    repairs: int  # candidates repaired a generation; each takes the values and the d partial derivatives at a point
    evaluations: int  # that a generation counts for
    rules: Rules
    runs: int
    first_run: int
    seed: int
    max_seconds: float | None
    maximize: bool
    vectorized: bool
    blackbox: bool
    dtype: str
    callback: Callable[[Progress], Any] | None
    progress: bool | None
    history: bool | str
    snapshots: tuple[int, ...]
    initial: np.ndarray | None
    on_failure: str | None
    live: Live | None
    title: str  # of its progress line

    @property
    def population(self) -> int:
        return self.solvers[0].population

    @property
    def total(self) -> int:
        """Runs of all solvers together, one solver's after the other's."""
        return self.runs * len(self.solvers)


def _rules(
    problem: Problem,
    population: int,
    evaluations: int,
    generations: int | None,
    target: float | None,
    max_evaluations: int | None,
    max_seconds: float | None,
    stall: int | None,
    maximize: bool,
) -> Rules:
    open_ended = max_evaluations is not None or max_seconds is not None
    limit = NEVER if open_ended else DEFAULT_GENERATIONS
    if generations is not None:
        limit = min(whole(generations, "generations", 1), NEVER)
    if max_evaluations is not None:
        least = f"one generation evaluates the population of {population}"
        if evaluations > population:
            least = f"one generation takes {evaluations} for the population of {population}"
        limit = min(limit, whole(max_evaluations, "max_evaluations", evaluations, least) // evaluations)
    reference = None
    if problem.reference_point is not None:
        given = problem.reference_point
        try:
            corner = reals(given)
        except ValueError:
            corner = np.zeros(0)
        if corner.ndim != 1 or not corner.size or not np.isfinite(corner).all():
            raise InputError(f"reference_point must be finite numbers, one per objective; got {short(given)}.")
        if corner.size == 2:
            reference = -corner if maximize else corner
    goal = -math.inf
    if target is not None:
        larger_is_better = maximize or reference is not None  # a hypervolume always is
        goal = -number(target, "target") if larger_is_better else number(target, "target")
    return Rules(limit, goal, NEVER if stall is None else min(whole(stall, "stall", 1), NEVER), reference)


def precision_of(dtype: Any, constrained: bool, blackbox: bool) -> str:
    if dtype is None:
        # a penalty or a tolerance of 1e-4 on large numbers has no meaning in float32
        return "float64" if constrained or blackbox or on_cpu() else "float32"
    try:
        kind = repr(dtype) if isinstance(dtype, np.generic) else np.dtype(dtype).name  # a number is no type
    except (TypeError, ValueError, SyntaxError):  # NumPy parses strings such as "01"
        kind = repr(dtype)
    if kind not in ("float32", "float64"):
        raise InputError(f'dtype must be "float32" or "float64", got {dtype!r}.')
    return kind


def _initial(initial: Any, bounds: Bounds, population: int, runs: int) -> np.ndarray | None:
    """Starting points as (k, d), or (runs, k, d) when every run has its own."""
    if initial is None:
        return None
    try:
        points = reals(initial)
    except ValueError:
        raise InputError(f"initial must be points of real numbers, one row each; got {short(initial)}.") from None
    d = bounds.dim
    if points.ndim == 1 and points.shape == (d,):
        points = points[None]
    if points.ndim not in (2, 3) or points.shape[-1] != d or (points.ndim == 3 and points.shape[0] != runs):
        raise InputError(
            f"initial must have shape (k, {d}), points for every run, or ({runs}, k, {d}), points of each run's own; "
            f"got shape {points.shape}."
        )
    if not 1 <= points.shape[-2] <= population:
        raise InputError(
            f"initial may have 1 to {population} points, a whole population; got {points.shape[-2]}. "
            "Give fewer, or a larger population."
        )
    outside = ~((points >= bounds.lower) & (points <= bounds.upper))  # NaN is outside, too
    if outside.any():
        first = tuple(int(i) for i in np.argwhere(outside)[0])
        raise InputError(
            f"initial must lie in the box; {int(outside.any(axis=-1).sum())} of its points do not: "
            f"variable {first[-1]} of point {first[:-1] if points.ndim == 3 else first[0]} is {points[first]:g}, "
            f"and its bounds are {bounds.lower[first[-1]]:g} and {bounds.upper[first[-1]]:g}."
        )
    return points
