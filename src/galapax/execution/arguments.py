"""Derive limits, populations, slices and starting points from the options; refuse what does not fit the problem or
the memory."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from galapax.algorithms.archive import Archived
from galapax.algorithms.cmaes import CMAES, is_for_surrogate
from galapax.algorithms.ehvi import EHVI
from galapax.algorithms.reevaluated import reevaluates
from galapax.core.algorithm import (
    Algorithm,
    Budget,
    count_repairs,
    estimate_cost,
)
from galapax.core.checks import abbreviate, as_float_array, check_number
from galapax.core.errors import InputError, OutOfMemory, format_bytes
from galapax.core.options import Islands, Options, Workers
from galapax.core.problem import (
    BLACK_BOX_EQ_TOLERANCE,
    CandidateEvaluation,
    Problem,
    ProblemDescription,
    Shape,
    count_directions,
    derive_eq_tolerance,
    objective_signs,
    orient,
    returned_by_fun,
)
from galapax.core.restarts import Restarts
from galapax.core.stop import UNLIMITED
from galapax.numerics import devices
from galapax.objective.evaluation_log import summarise
from galapax.objective.function_identity import is_differentiable
from galapax.operators.ranking import ranks_and_crowding
from galapax.results.evaluations import parse_known_values

if TYPE_CHECKING:
    from galapax.execution.task import Task

DEFAULT_TOLERANCE = {"float64": 1e-11, "float32": 1e-6}  # as a share of the box
MAX_DEFAULT_EVALUATIONS = 1_000_000  # of a run that nothing limits
MIN_SHRUNK_POPULATION = 8  # individuals that a population has at least where few evaluations make it smaller
CONSTRAINED_POLISH_RESERVE_PER_VARIABLE = (
    600  # evaluations a variable that are left for a polish under constraints, if that is not much
)
MIN_RECHECKED_EVALUATIONS = 200  # of a black box, from which one more of its answer is a small price
MIN_REPAIRED_GENERATIONS = 20  # generations that a budget must allow for repairs by differences


def default_dtype(dtype: Any, constrained: bool, blackbox: bool) -> str:
    """Return the precision of a run: the requested one, or the default for the problem and the device."""
    if dtype is not None:
        return str(dtype)
    # a penalty or a tolerance of 1e-4 on large numbers has no meaning in float32
    return "float64" if constrained or blackbox or devices.on_cpu() else "float32"


def count_named_objectives(problem: Problem, options: Options) -> int | None:
    """Return the number of objectives, if they are named, have a direction each, or have known values."""
    if options.initial is not None:
        return int(options.initial.shape.objectives)
    n_directions = count_directions(options.maximize)
    return n_directions if problem.objectives is None else len(problem.objectives)


def default_evaluations(dim: int) -> int:
    """Return the default budget of a run that restarts."""
    return max(20_000, min(10_000 * dim, MAX_DEFAULT_EVALUATIONS))


def count_workers(pool: object) -> int:
    """Return how many evaluations are made at once, as far as a pool says; 1 without one."""
    if pool is None:
        return 1
    if isinstance(pool, int):
        return os.cpu_count() or 1 if pool == -1 else pool
    size = getattr(pool, "_max_workers", None)
    return size if isinstance(size, int) and size > 0 else 1


def choose_surrogate(solver: Algorithm, evaluations: int | None, dim: int, workers: int = 1) -> Algorithm:
    """Return CMA-ES with a surrogate, where a black box has so few evaluations that each must be dear.

    evaluations: limit of a black box for whose run a surrogate may be the default. workers: evaluations at a time.
    """
    if not isinstance(solver, CMAES) or solver.surrogate is False:
        return solver
    if solver.surrogate is None and not is_for_surrogate(evaluations, dim):
        return solver
    return replace(solver, surrogate=True, batch=workers if solver.batch is None and workers > 1 else solver.batch)


def generation_limit(solver: Algorithm, options: Options) -> int:
    """Return the limit of generations of a run."""
    if options.generations is None:
        is_open_ended = options.max_evaluations is not None or options.max_seconds is not None
        return UNLIMITED if is_open_ended else solver.traits.default_generations
    return min(options.generations, UNLIMITED)


def parse_goals(problem: Problem, options: Options) -> tuple[float, int, np.ndarray | None]:
    """Return target, patience and reference point of the stopping rules, for minimisation."""
    reference = None
    if problem.reference_point is not None:
        try:
            corner = as_float_array(problem.reference_point)
        except ValueError:
            corner = np.zeros(0)
        if corner.ndim != 1 or not corner.size or not np.isfinite(corner).all():
            raise InputError(
                f"reference_point must be finite numbers, one per objective; got {abbreviate(problem.reference_point)}."
            )
        if corner.size > 1:
            n_directions = count_directions(options.maximize)
            if n_directions not in (None, corner.size):
                raise InputError(
                    f"maximize and reference_point need an entry for each objective; they have {n_directions} and "
                    f"{corner.size}."
                )
            reference = orient(corner, options.maximize)
    goal = -math.inf
    if options.target is not None:
        larger_is_better = reference is not None or objective_signs(options.maximize)[0] < 0  # a hypervolume always is
        goal = check_number(options.target, "target")
        goal = -goal if larger_is_better else goal
    return goal, UNLIMITED if options.patience is None else min(options.patience, UNLIMITED), reference


def reserve_for_polish(max_evaluations: int, problem: ProblemDescription, solver: Algorithm, dtype: str) -> int:
    """Return the evaluations that a constrained search reserves for the polish, which may make its best feasible."""
    if (
        not isinstance(problem, Problem)
        or not problem.constrained
        or solver.traits.multi_objective
        or dtype != "float64"
    ):
        return 0
    return int(min(CONSTRAINED_POLISH_RESERVE_PER_VARIABLE * problem.dim, 0.05 * max_evaluations))


def shrink_population_to_budget(solver: Algorithm, dim: int, shape: Shape, budget: Budget) -> Algorithm:
    """Return the algorithm with a population small enough for some generations within the budget.

    For those whose size the user has left to us. Where not even the smallest population can be paid, the budget is
    refused.
    """
    if isinstance(solver, Archived):
        return replace(solver, inner=shrink_population_to_budget(solver.inner, dim, shape, budget))
    if budget.evaluations is None:
        return solver
    default_size = solver.bind(dim, shape, budget).population
    size = min(
        default_size,
        max(MIN_SHRUNK_POPULATION, budget.evaluations // solver.traits.min_generations),
        budget.evaluations,
    )
    if size == default_size:
        return solver
    for population in range(size, default_size):  # the smallest that it can have: a refusal names that one
        try:
            smaller = replace(solver, population=population)  # type: ignore[type-var]
            smaller.validate()
            smaller.bind(dim, shape, budget)
        except InputError:
            continue
        return smaller
    return solver


def plan_repairs(
    problem: ProblemDescription, solver: Algorithm, is_called: bool, asynchronous: bool, max_evaluations: int | None
) -> tuple[int, bool]:
    """Return how many candidates a generation repairs, and whether by finite differences.

    Differences are for functions that are called, or that JAX cannot differentiate for one solution. A run with few
    max_evaluations repairs nothing.
    """
    if asynchronous or not isinstance(problem, Problem) or problem.eq is None or not count_repairs(solver):
        return 0, False
    if not is_called and is_differentiable(problem):
        return count_repairs(solver), False
    evaluations_per_generation = solver.population + count_repairs(solver) * (1 + problem.dim)
    is_affordable = max_evaluations is None or max_evaluations >= MIN_REPAIRED_GENERATIONS * evaluations_per_generation
    return (count_repairs(solver), True) if is_affordable else (0, False)


def check_islands(
    islands: Islands, solver: Algorithm, population: int, restarts: Restarts | None, workers: Workers
) -> None:
    islands.check(population)
    if isinstance(solver, CMAES) and solver.surrogate:
        raise InputError(
            "islands exchange points of whole generations, and CMA-ES with a surrogate evaluates a few samples of one: "
            "leave surrogate=True out, or islands."
        )
    if restarts is not None:
        raise InputError("a run on islands does not restart: leave restarts out, or islands.")
    if workers.asynchronous:
        raise InputError("asynchronous=True has one population: leave islands out.")


def check_noisy(solver: Algorithm, options: Options) -> None:
    """Refuse what cannot work on values that are random."""
    if solver.traits.multi_objective and not (reevaluates(solver) or isinstance(solver, EHVI)):
        raise InputError(
            f"{type(solver).__name__} compares single values, which are lucky draws: take gx.NSGA2, whose survivors "
            "are evaluated again."
        )
    refused = {
        "islands": (options.islands is not None, "they exchange individuals by their values, which are lucky draws"),
        "polish": (options.polish is True, "the gradient of a random draw is not that of the mean"),
        "archive": (options.keep.archive is not None, "it keeps single values, which are lucky draws"),
        "vectorized": (options.vectorized and not options.blackbox, "each solution has a key of its own"),
        "memoize": (bool(options.workers.memoize), "each call of a random objective gives another value"),
        "asynchronous": (options.workers.asynchronous, "it compares single values"),
    }
    for name, (is_given, why) in refused.items():
        if is_given:
            raise InputError(f"{name} does not go with a random objective, since {why}: remove {name}.")


def rechecks_answer(solver: Algorithm, options: Options, max_evaluations: int | None) -> bool:
    """Return whether the answer of a black box is evaluated once more, to see whether the values are random."""
    return (
        options.blackbox
        and not options.noisy
        and max_evaluations is not None
        and max_evaluations >= MIN_RECHECKED_EVALUATIONS
        and not solver.traits.multi_objective
        and options.islands is None
        and not (options.workers.memoize or options.workers.asynchronous)
    )


def count_devices(options: Options) -> int:
    """Return how many devices share the evaluation of a generation; 0 where one computes all of it."""
    if options.compute.devices is None:
        return 0
    engine = options.compute.engine
    for is_given, instead in (
        (options.blackbox, "a black box is called in processes by workers="),
        (options.vectorized, "a function with vectorized=True takes the whole population at once"),
        (options.n_runs > 1, "the runs of an ensemble are spread over the devices anyway"),
        (options.islands is not None, "islands are spread over the devices anyway"),
        (engine not in ("auto", "xla"), f"engine={engine!r} uses one device"),
    ):
        if is_given:
            raise InputError(
                f'devices="all" lets all devices evaluate one population, and {instead}: leave devices out.'
            )
    return len(devices.local_devices())


def parse_initial_points(
    initial: ArrayLike, problem: ProblemDescription, population: int, runs: int
) -> np.ndarray | None:
    """Return the genes of starting points as (k, d), or (runs, k, d) when every run has its own."""
    if initial is None:
        return None
    bounds, space = problem.bounds, problem.space
    try:
        points = as_float_array(initial) if space is None else space.parse_points(initial)
    except InputError:
        raise
    except ValueError:
        raise InputError(f"x0 must be real numbers, one point per row; got {abbreviate(initial)}.") from None
    d = bounds.dim
    if points.ndim == 1 and points.shape == (d,):
        points = points[None]
    if points.ndim not in (2, 3) or points.shape[-1] != d or (points.ndim == 3 and points.shape[0] != runs):
        raise InputError(
            f"x0 must be one point of {d} numbers, or points of shape (k, {d}), the same for every run, "
            f"or ({runs}, k, {d}), separate for each run; got shape {points.shape}."
        )
    if not 1 <= points.shape[-2] <= population:
        raise InputError(
            f"x0 may have 1 to {population} points, a whole population; got {points.shape[-2]}. "
            "Give fewer, or a larger population."
        )
    outside = ~((points >= bounds.lower) & (points <= bounds.upper))  # NaN is outside, too
    if outside.any():
        first = tuple(int(i) for i in np.argwhere(outside)[0])
        rows = points.reshape(-1, d)
        which = "" if len(rows) == 1 else f" of point {first[:-1] if points.ndim == 3 else first[0]}"
        count = "" if len(rows) == 1 else f" ({int(outside.any(axis=-1).sum())} of {len(rows)} points do not)"
        raise InputError(
            f"x0 must lie inside the bounds{count}: variable {first[-1]}{which} is {points[first]:g}, "
            f"and its bounds are {bounds.lower[first[-1]]:g} and {bounds.upper[first[-1]]:g}."
        )
    return points if space is None else space.encode(points)


# --- known values as a search takes them up: as genes, judged like evaluations of its own -----------------------------


class KnownPoints(NamedTuple):
    """Evaluated points, with values to be minimised."""

    x: Any  # (k, d) genes, in NumPy
    evaluation: CandidateEvaluation  # in NumPy

    def astype(self, dtype: str) -> KnownPoints:
        """Return the points in the precision of a run."""
        objectives, violation, failed, ineq, eq = self.evaluation[:5]
        columns = [None if values is None else np.asarray(values, dtype) for values in (violation, ineq, eq)]
        evaluation = CandidateEvaluation(np.asarray(objectives, dtype), columns[0], failed, *columns[1:])  # type: ignore[arg-type]
        return KnownPoints(self.x.astype(dtype), evaluation)

    def choose_first(self, size: int) -> np.ndarray:
        """Return the genes of the best points, at most `size`: with several objectives the front, then the next."""
        sound = np.flatnonzero(~np.asarray(self.evaluation.failed))
        sound = np.sort(sound[np.unique(self.x[sound], axis=0, return_index=True)[1]])  # each point once
        violation = None if self.evaluation.violation is None else jnp.asarray(self.evaluation.violation[sound])
        rank, crowding = ranks_and_crowding(jnp.asarray(self.evaluation.objectives[sound]), violation)
        order = np.lexsort((-np.asarray(crowding), np.asarray(rank)))
        return self.x[sound[order[:size]]]


def take_known_values(problem: Problem, options: Options) -> tuple[Problem, Options]:
    """Parse the known values of a call; return the problem with what they tell of it, and the options with them."""
    if options.initial is None:
        return problem, options
    if not options.blackbox:
        raise InputError(
            "initial is for functions that are called: a compiled one evaluates known points again in no time, so give "
            "them as x0; if fun is plain Python, also give blackbox=True."
        )
    if options.x0 is not None:
        raise InputError("with initial a search begins at the best known points: leave x0 out.")
    known = parse_known_values(options.initial, problem)
    returned = [name for name in ("ineq", "eq") if getattr(known, name) is not None and getattr(problem, name) is None]
    problem = problem.with_(**dict.fromkeys(returned, returned_by_fun))
    if known.eq is not None and problem.eq_tolerance is None and np.isfinite(known.eq).any():
        problem = problem.with_(eq_tolerance=derive_eq_tolerance(known.eq, BLACK_BOX_EQ_TOLERANCE))
    return problem, dataclasses.replace(options, initial=known)


def judge_known_values(options: Options, problem: ProblemDescription) -> KnownPoints | None:
    """Return the known values of a call as its search sees them."""
    known, space = options.initial, problem.space
    if known is None:
        return None
    genes = known.x if space is None else space.round_codes(space.encode(known.x))
    return KnownPoints(
        genes, summarise(orient(known.fun, options.maximize), known.ineq, known.eq, problem.eq_tolerance, np)
    )


# --- memory: how many runs fit, and how an ensemble is cut into slices ------------------------------------------------

# numbers of one array of a slice on a CPU; fewer make XLA's fixed costs felt, more fall out of the innermost cache
MAX_CPU_SLICE_VALUES = 2**13
MAX_CPU_SLICE_RUNS = 64
# runs in a slice of native kernels; no powers of two, which caches cannot hold side by side
NATIVE_SLICE_RUNS = (48, 272, 1040, 4112)
MANY_SLICES, WIDER_FACTOR = 128, 4  # an ensemble of so many slices has fewer, wider ones: still enough for every core


def slice_width(algorithm: Algorithm, dim: int, runs: int, fit: int, native: bool = False) -> int:
    """Return how many runs a slice has.

    runs: of the ensemble. fit: how many fit into memory. native: whether C kernels compute them.
    """
    if native:
        return next(
            (n for n in NATIVE_SLICE_RUNS if n >= min(runs, NATIVE_SLICE_RUNS[-1]) and n <= fit),
            min(fit, NATIVE_SLICE_RUNS[-1]),
        )
    if devices.on_cpu():
        usual = 2 ** int(
            math.log2(max(1, min(MAX_CPU_SLICE_RUNS, MAX_CPU_SLICE_VALUES // estimate_cost(algorithm, dim))))
        )
        return (
            usual * WIDER_FACTOR if usual == MAX_CPU_SLICE_RUNS and runs >= MANY_SLICES * MAX_CPU_SLICE_RUNS else usual
        )
    slices = max(math.ceil(runs / fit), min(runs, len(devices.local_devices()) * devices.process_count()))
    return math.ceil(runs / slices)


def pad_slice_width(runs: int) -> int:
    """Return the size of a slice for groups of about so many runs on an accelerator.

    How many runs of an ensemble need the same search differs from call to call, and each size is another program.
    """
    exponent = math.ceil(math.log2(runs))
    if exponent > 10:  # where a run more takes time
        step = 2 ** (exponent - 3)
        return math.ceil(runs / step) * step
    return 4 ** math.ceil(exponent / 2)


def runs_that_fit(size: int, row: int, population: int) -> int:
    """Return how many runs fit into the free memory; refuse one that does not fit alone.

    size: bytes of a run's state. row: of its history in a chunk.
    """
    free = devices.free_memory()
    if size > free:
        raise InputError(
            f"one run with a population of {abbreviate(population)} needs at least {format_bytes(size)} and "
            f"{format_bytes(free)} are free on the {devices.default_device().device_kind}: use a smaller population."
        )
    return max(1, int(0.5 * free / (2 * size + row)))  # twice the state for what a generation needs besides it


# bytes that a black box takes for each point: of a generation, for each of its variables, and in the cache. Resident
# memory grew by 1000 bytes a point of 2 variables and 2050 of 20, and by 490 a point in the cache.
BYTES_PER_POINT, BYTES_PER_VARIABLE, BYTES_PER_CACHED_POINT = 900, 60, 480

NEGLIGIBLE_SHARE = 0.05  # of the free memory: below it a coarse bound of the state's size is enough
# upper bounds of what an algorithm's state holds: arrays of a population, and square matrices of the variables
MAX_STATE_ARRAYS, MAX_STATE_MATRICES = 32, 16


def check_population(population: int | None, dim: int) -> None:
    """Refuse a population that does not fit into memory, before anything is allocated. None: it is chosen later."""
    if population is not None:
        runs_that_fit(8 * int(population) * dim, 0, population)  # candidates and parents, at the least


def check_memory(task: Task) -> int:
    """Return how many runs fit into memory at once; refuse a run, a history or snapshots that do not fit."""
    item_size = np.dtype(task.dtype).itemsize
    row_size = task.columns.width * item_size
    n_runs = int(NEGLIGIBLE_SHARE * devices.free_memory()) // (max_state_size(task) + 1024 * row_size)
    if n_runs < task.total:
        n_runs = runs_that_fit(_state_size(task), 1024 * row_size, task.population)
    if task.options.blackbox:
        n_runs = min(n_runs, _check_blackbox_memory(task))
    # a single run is often ended by hand
    if (
        task.options.keep.history
        and task.rules.generations != UNLIMITED
        and task.total > 1
        and task.options.max_seconds is None
    ):
        what = f"the history of {task.total} runs over {task.rules.generations} generations takes"
        _check_host_memory(
            what,
            task.total * int(task.rules.generations) * row_size,
            "keep=gx.Keep(history=False), or fewer runs or generations",
        )
    n_snapshots = sum(g <= int(task.rules.generations) for g in task.options.keep.snapshots)
    snapshot_size = task.total * task.population * (task.problem.dim + task.shape.objectives + 1) * item_size
    _check_host_memory(
        f"{n_snapshots} snapshots of {task.total} x {task.population} individuals take",
        n_snapshots * snapshot_size,
        "fewer of them",
    )
    return n_runs


def _check_blackbox_memory(task: Task) -> int:
    """Return how many runs of a black box fit into memory at once: each point of a generation is a Python object."""
    generation_size = task.population * (BYTES_PER_POINT + BYTES_PER_VARIABLE * task.problem.dim)
    _check_host_memory(
        f"the calls of one generation of {task.population} points take", generation_size, "a smaller population"
    )
    if task.options.workers.memoize and task.rules.generations != UNLIMITED and task.options.max_seconds is None:
        points = task.total * task.population * int(task.rules.generations)
        if task.problem.space is not None:
            points = int(min(points, task.problem.space.combinations))
        cache_size = points * (BYTES_PER_CACHED_POINT + 8 * task.problem.dim)
        _check_host_memory(
            f"a cache of {points} points takes",
            cache_size,
            "workers=gx.Workers(memoize=False), or fewer runs or generations",
        )
    return max(1, devices.host_memory() // (2 * generation_size))


def _check_host_memory(what: str, needed: int, instead: str) -> None:
    free = devices.host_memory()
    if needed > free:
        raise InputError(f"{what} {format_bytes(needed)} and {format_bytes(free)} of memory are free: use {instead}.")


def max_state_size(task: Task) -> int:
    """Return an upper bound of the bytes of a run's state, for any algorithm, without tracing it."""
    values = task.problem.dim + task.shape.objectives + task.shape.ineq + task.shape.eq + 8
    return 8 * (MAX_STATE_ARRAYS * int(task.population) * values + MAX_STATE_MATRICES * task.problem.dim**2)


_sizes: dict[Hashable, int] = {}


def _state_size(task: Task) -> int:
    """Return the bytes of a run's state, cached, since tracing it takes longer than a short run."""
    key = (jax.tree.structure(task.bound[0]), task.problem.dim, task.dtype, task.shape)
    if key not in _sizes:
        search = replace(task.of_cell(0).search(), per_run_stopping=True)
        state = jax.eval_shape(search.begin, jax.ShapeDtypeStruct((1, 2), np.uint32))
        _sizes[key] = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return _sizes[key]


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that the device has not enough memory.

    The needs of the objective are only known when it is compiled, and those of other processes never.
    """
    return isinstance(error, OutOfMemory) or "RESOURCE_EXHAUSTED" in str(error)


def out_of_memory_message(width: int, population: int, error: Exception, is_resumed: bool = False) -> str:
    """Return the message for slices of `width` runs that do not fit. is_resumed: they continue from a checkpoint."""
    what = "one run" if width == 1 else f"a slice of {width} runs"
    why, free = f" ({str(error).splitlines()[0][:200]})", devices.free_memory()
    if isinstance(error, OutOfMemory):
        why, free = f" It needs {format_bytes(error.needed)}.", error.free
    instead = "use a smaller population, or an objective that needs less memory"
    if width > 1:
        instead = f"use fewer runs than {width} at a time (runs=, or runs=range(0, 100)), or a smaller population"
    if is_resumed:  # in other slices its last bits would be others
        instead = "a checkpoint continues in slices as large as they were, so end other programs, or start again"
    return (
        f"{what} with a population of {population} does not fit into the {format_bytes(free)} that are free on the "
        f"{devices.default_device().device_kind}: {instead}.{why}"
    )
