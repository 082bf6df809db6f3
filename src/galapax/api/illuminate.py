"""Many kinds of good solutions: the best one for each combination of measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from galapax.algorithms import CMAMAE, ILLUMINATION_ALGORITHMS, MAPElites
from galapax.algorithms.cma_mae import MIN_SAMPLES
from galapax.api.minimize import minimize
from galapax.core.algorithm import Budget
from galapax.core.checks import abbreviate, as_float_array, check_bool, check_integer, pluralize
from galapax.core.errors import InputError, ObjectiveCountError, unknown_name_error
from galapax.core.options import Compute, FailurePolicy, Keep, Workers, suggest_keywords
from galapax.core.problem import Problem, Shape, stack_constraints
from galapax.execution.arguments import shrink_population_to_budget
from galapax.execution.observers import Progress
from galapax.results.many_answers import Illumination

Measures = Callable[[Any], Any] | Sequence[Callable[[Any], Any] | str] | Mapping[str, Callable[[Any], Any]]
EVALUATIONS_PER_CELL = 50  # of a run that nothing limits


@suggest_keywords
def illuminate(
    fun: Callable[[Any], Any],
    bounds: Any,
    *,
    measures: Measures,
    ranges: Any,
    cells: int | Sequence[int] = 100,
    algorithm: str | MAPElites | CMAMAE = "map_elites",
    ineq: Any = None,
    eq: Any = None,
    maximize: bool = False,
    x0: Any = None,
    generations: int | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    runs: int | range = 1,
    seed: int | None = 0,
    blackbox: bool = False,
    workers: int | Workers | Any = None,
    on_failure: FailurePolicy | None = None,
    callback: Callable[[Progress], Any] | None = None,
    progress: bool | None = None,
    live: Any = False,
    checkpoint: Any = None,
    resume: Any = None,
    keep: Keep | None = None,
    compute: Compute | None = None,
) -> Illumination:
    """Find the best solution for each cell of a grid over measures: a map of good designs, not only the best one.

    fun: a function of one solution x (d,) to a number, as in `minimize`.
    measures: what a solution is like, in numbers: a function to (m,), a list of functions or a dict of named functions
        to a number each; or a list of names, of what `fun` returns after its value.
    ranges: (low, high) of each measure, a list or a dict by name. What lies beyond belongs to the cell at the border.
    cells: number of cells along each measure, one number for all or one each.
    algorithm: "map_elites" (the default), which varies elites; "cma_mae", CMA-ES searches that improve cell after cell,
        for real variables whose measures are hard to spread; or an instance of gx.MAPElites or gx.CMAMAE with other
        settings.
    ineq, eq, maximize, x0: as in `minimize`. Only feasible solutions become elites.
    generations, max_evaluations, max_seconds: limits. If nothing limits a run, it makes 50 evaluations for each cell.
        With few max_evaluations an algorithm given by name has fewer candidates in a generation, for ten of them.
    runs, seed, blackbox, workers, checkpoint and the rest: as in `minimize`.
    Returns an Illumination: `x`, `fun` and `measures` of the elites, `coverage`, `qd_score()`, `values` as a grid,
    `nearest(...)`, `plot()`, `to_dataframe()`, `save()`; `result` is the run as a Result.
    """
    names, function = _combine(fun, measures)
    limits = _parse_ranges(ranges, names)
    names = names or [f"measure{i + 1}" for i in range(len(limits))]
    grid = _parse_cells(cells, len(limits))
    maximize = check_bool(maximize, "maximize")
    problem = Problem(
        function, bounds, ineq=stack_constraints("ineq", ineq), eq=stack_constraints("eq", eq),
        objectives=["fun", *names], name=fun.__name__ if hasattr(fun, "__name__") else type(fun).__name__,
    )  # fmt: skip
    solver = _resolve_algorithm(algorithm)
    solver = replace(solver, cells=grid, ranges=limits)
    solver.validate()
    if isinstance(algorithm, str) and max_evaluations is not None:
        solver = _shrink_to_budget(solver, problem, check_integer(max_evaluations, "max_evaluations", 1))
    if generations is None and max_evaluations is None and max_seconds is None:
        generations = max(1, EVALUATIONS_PER_CELL * int(np.prod(grid)) // solver.population)
    try:
        result = minimize(
            problem, algorithm=solver, maximize=[maximize, *[False] * len(limits)], x0=x0, generations=generations,
            max_evaluations=max_evaluations, max_seconds=max_seconds, restarts=None, polish=False, runs=runs, seed=seed,
            blackbox=blackbox, workers=workers, on_failure=on_failure, callback=callback, progress=progress, live=live,
            checkpoint=checkpoint, resume=resume, keep=keep, compute=compute,
        )  # fmt: skip
    except ObjectiveCountError as error:
        raise InputError(
            f"measures returned {pluralize(error.n_objectives - 1, 'value')} beside the one of fun, and ranges has "
            f"{len(limits)}: give a pair (low, high) for each value that measures returns."
        ) from None
    return Illumination(result)


@dataclass(frozen=True)
class WithMeasures:
    """A function of a solution that returns its value and then its measures. A class, so that processes can get it."""

    functions: tuple[Callable[..., Any], ...]

    def __call__(self, x: Any) -> Any:
        values = [function(x) for function in self.functions]
        xp = jnp if any(not isinstance(v, int | float | np.ndarray | np.generic | list | tuple) for v in values) else np
        return xp.concatenate([xp.ravel(xp.asarray(value)) for value in values])


def _combine(fun: Callable[..., Any], measures: Measures) -> tuple[list[str], Callable[..., Any]]:
    """Return the names of the measures, if they have some, and the function that returns value and measures."""
    if callable(measures):
        return [], WithMeasures((fun, measures))
    if isinstance(measures, Mapping):
        names, functions = [str(name) for name in measures], list[Any](measures.values())
    elif isinstance(measures, Sequence) and not isinstance(measures, str) and len(measures):
        if all(isinstance(measure, str) for measure in measures):
            return [str(measure) for measure in measures], fun
        functions = list[Any](measures)
        names = [getattr(f, "__name__", "") for f in functions]
        names = names if all(name.isidentifier() for name in names) and len(set(names)) == len(names) else []
    else:
        functions, names = [measures], []
    if not functions or not all(callable(function) for function in functions):
        raise InputError(
            "measures must be a function, a list or a dict of functions, or a list of names of what fun returns after "
            f"its value; got {abbreviate(measures)}."
        )
    return names, WithMeasures((fun, *functions))


def _parse_ranges(ranges: Any, names: list[str]) -> tuple[tuple[float, float], ...]:
    if isinstance(ranges, Mapping):
        if set(ranges) != set(names):
            raise InputError(
                f"ranges must have an entry for each measure, {', '.join(names) or 'which have no names here'}; it has "
                f"{', '.join(map(str, ranges))}."
            )
        ranges = [ranges[name] for name in names]
    try:
        array = as_float_array(ranges)
    except ValueError:
        array = np.empty(0)
    if array.ndim != 2 or array.shape[1] != 2 or (names and len(array) != len(names)):
        wanted = f"the {len(names)} measures {', '.join(names)}" if names else "each measure"
        raise InputError(f"ranges must be a pair (low, high) for {wanted}, got {abbreviate(ranges)}.")
    return tuple((float(low), float(high)) for low, high in array)


def _parse_cells(cells: int | Sequence[int], count: int) -> tuple[int, ...]:
    grid: tuple[Any, ...] = tuple(cells) if isinstance(cells, Sequence | np.ndarray) else (cells,) * count
    if len(grid) != count:
        raise InputError(f"cells must be one number, or one for each of {count} measures; got {abbreviate(cells)}.")
    return tuple(int(n) if isinstance(n, np.integer) else n for n in grid)


def _shrink_to_budget(solver: Any, problem: Problem, max_evaluations: int) -> Any:
    """Return the algorithm with few enough candidates in a generation for some generations within the budget."""
    if isinstance(solver, CMAMAE):
        samples = min(solver.samples, max(MIN_SAMPLES, max_evaluations))
        n_searches = max(1, max_evaluations // (solver.traits.min_generations * samples))
        return replace(solver, samples=samples, searches=min(solver.searches, n_searches))
    shape = Shape(1 + len(solver.ranges))
    return shrink_population_to_budget(solver, problem.dim, shape, Budget(None, max_evaluations))


def _resolve_algorithm(algorithm: str | MAPElites | CMAMAE) -> Any:
    if isinstance(algorithm, MAPElites | CMAMAE):
        return algorithm
    if algorithm not in ILLUMINATION_ALGORITHMS:
        raise unknown_name_error("algorithm of illuminate", algorithm, ILLUMINATION_ALGORITHMS)
    return ILLUMINATION_ALGORITHMS[algorithm]()
