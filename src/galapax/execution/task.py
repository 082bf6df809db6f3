"""A validated request: problem, algorithms, limits and options of a call, as plain data."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from galapax import algorithms, problems
from galapax.algorithms.archive import Archived
from galapax.algorithms.de import DE
from galapax.algorithms.ehvi import EHVI, is_for_front_models
from galapax.algorithms.model_search import ModelSearch, is_for_models
from galapax.algorithms.reevaluated import Reevaluated, reevaluates
from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Shared,
    with_python_integers,
)
from galapax.core.checks import check_integer
from galapax.core.errors import InputError, warn
from galapax.core.options import Options, threads_from_environment
from galapax.core.problem import (
    Columns,
    EqTolerance,
    MinMaxProblem,
    Problem,
    ProblemDescription,
    Shape,
    check_direction_count,
    check_tolerance,
    derive_eq_tolerance,
    objective_signs,
)
from galapax.core.restarts import Restarts
from galapax.core.stop import UNLIMITED, Rules
from galapax.execution.arguments import (
    DEFAULT_TOLERANCE,
    MAX_DEFAULT_EVALUATIONS,
    KnownPoints,
    check_islands,
    check_memory,
    check_noisy,
    check_population,
    choose_surrogate,
    count_devices,
    count_named_objectives,
    count_workers,
    default_dtype,
    default_evaluations,
    generation_limit,
    judge_known_values,
    parse_goals,
    parse_initial_points,
    plan_repairs,
    rechecks_answer,
    reserve_for_polish,
    shrink_population_to_budget,
)
from galapax.execution.search import Search, TracedObjective
from galapax.metrics import indicators
from galapax.numerics import devices, random
from galapax.objective.evaluation_log import RESAMPLES
from galapax.objective.function_identity import check_compatibility, count_objectives, has_key_parameter
from galapax.objective.hoist_constants import Constants
from galapax.objective.traced import Formulas, Traced, probe, sample_equalities, trace
from galapax.problems import adapters

MAX_MEMOIZED_POINTS = 100_000  # a black box on a grid of no more points is not called twice with one
MIN_DEFAULT_GENERATIONS = 1000  # of a run that nothing limits, even if they take more evaluations than usual
NOISY_SEARCH_SHARE = 2 / 3  # of the evaluations of a random objective, for the search; the others estimate its answer


@dataclass(frozen=True)
class Task:
    """A validated request: every one of its solvers makes `runs` runs."""

    problem: ProblemDescription  # as a function of genes, see core/space.py
    declared: ProblemDescription  # as the user wrote it: what a Result shows
    options: Options  # with defaults resolved
    objective: TracedObjective | None  # None for a black box
    consts: Constants | None  # the arrays of the objective
    steps: int  # see `Formulas.steps`
    shape: Shape  # of a black box a guess, until it was called
    solvers: tuple[Algorithm, ...]  # as the user wrote them, alike in all that shapes the program
    bound: tuple[Algorithm, ...]  # the same, for this problem
    repairs: int  # candidates repaired a generation
    differences: bool  # whether by differences of values
    rules: Rules
    budget: Budget  # of one population
    evaluation_limit: int | None  # of a run, with all its islands
    initial: np.ndarray | None  # genes of starting points
    known: KnownPoints | None  # evaluated points to begin with
    restarts: Restarts | None
    n_devices: int  # that share the evaluation of a generation; 0 where one makes all of it
    is_single_run: bool  # a run by itself, not one of an ensemble
    engine: str  # as asked; later the one that was selected

    @property
    def population(self) -> int:
        return self.bound[0].population

    @property
    def runs(self) -> int:
        """Runs of each solver."""
        return self.options.n_runs

    @property
    def first_run(self) -> int:
        return self.options.first_run

    @property
    def seed(self) -> int:
        assert self.options.seed is not None
        return self.options.seed

    @property
    def dtype(self) -> str:
        """The precision of the run."""
        return str(self.options.compute.dtype)

    @property
    def total(self) -> int:
        """Runs of all solvers together, one solver's after the other's."""
        return self.runs * len(self.solvers)

    @property
    def signs(self) -> np.ndarray:
        """The factors from minimised values to the user's, see `objective_signs`."""
        return objective_signs(self.options.maximize)

    @property
    def sign(self) -> float:
        """The factor of the first objective, often the only one."""
        return float(self.signs[0])

    @property
    def columns(self) -> Columns:
        """The columns of the history."""
        dim = self.problem.dim if self.options.keep.history == "x" else 0
        return Columns(self.shape, self.rules.reference is not None, dim)

    def with_eq_tolerance(self, tolerance: EqTolerance) -> Task:
        """Return the task with a tolerance of equalities that was derived from their values."""
        problem, declared = (p.with_(eq_tolerance=tolerance) for p in (self.problem, self.declared))
        return replace(self, problem=problem, declared=declared)

    def with_options(self, **changes: Any) -> Task:
        """Return the task with other values of some options."""
        return replace(self, options=replace(self.options, **changes))

    def decode(self, genes: np.ndarray) -> np.ndarray:
        """Return x (..., d) of genes (..., d)."""
        return genes if self.problem.space is None else self.problem.space.decode(genes)

    def of_cell(self, i: int) -> Task:
        """Return the task of one solver alone."""
        if len(self.solvers) == 1:
            return self
        return replace(self, solvers=self.solvers[i : i + 1], bound=self.bound[i : i + 1])

    def search(self) -> Search:
        """Build the Search of all runs; a hyper-parameter that differs between solvers has one value for each run."""
        dtype, options = np.dtype(self.dtype), self.options

        def stack(*values: object) -> np.ndarray | Shared:
            if isinstance(values[0], Shared):
                return values[0]
            column = np.array(values, dtype)
            return column[0] if (column == column[0]).all() else np.repeat(column, self.runs)

        return Search(
            algorithm=jax.tree.map(stack, *self.bound, is_leaf=lambda leaf: isinstance(leaf, Shared)),
            bounds=self.problem.bounds.round_inwards(dtype),
            rules=self.rules.as_arrays(dtype),
            consts=self.consts,
            shape=self.shape,
            objective=self.objective,
            repairs=self.repairs,
            differences=self.differences,
            per_run_stopping=options.blackbox or self.rules.by_run,
            stop_when_all_done=options.blackbox or devices.on_cpu(),
            record_best_x=options.keep.history == "x",
            resamples=RESAMPLES if options.on_failure == "resample" else 0,
            all_discrete=self.problem.space is not None and bool(self.problem.space.discrete.all()),
            n_devices=self.n_devices if self.n_devices > 1 else 0,
            noisy=bool(options.noisy),
            splits_last=self.rules.evaluations is not None and options.blackbox,
            isolates_evaluation=self.may_step,
        )

    @property
    def may_step(self) -> bool:
        """Whether generations may be computed one by one, by programs that most objectives share, see `XlaBackend`."""
        options = self.options
        return (
            devices.on_cpu()
            and (self.is_single_run or self.restarts is not None)
            and self.engine == "xla"
            and isinstance(self.objective, Formulas)
            and not self.objective.has_large_constants
            and not (self.repairs or self.n_devices or options.islands or options.noisy)
            and options.on_failure != "resample"
        )


def as_problem(source: object) -> Any:
    """Return the built-in problem of that name, or a problem of another library converted; anything else as it is."""
    if isinstance(source, str):
        return problems.get(source)
    if isinstance(source, Problem | MinMaxProblem) or inspect.isfunction(source):
        return source
    return adapters.convert_problem(source)


def problem_of(
    fun: Any, bounds: Any, algorithm: Any, ineq: Any = None, eq: Any = None, eq_tolerance: EqTolerance | None = None
) -> tuple[Problem, str | Algorithm | None]:
    """Return problem and algorithm from the first arguments of `minimize` and its like."""
    fun = as_problem(fun)
    if isinstance(fun, Problem) and algorithm is None and isinstance(bounds, str | Algorithm | type):
        bounds, algorithm = None, bounds  # a Problem has its bounds, so what follows it is the algorithm
    if isinstance(fun, MinMaxProblem):
        raise InputError(f"{fun.name} is a min-max problem: use gx.minimax.")
    eq_tolerance = check_tolerance(eq_tolerance)
    if not isinstance(fun, Problem):
        return Problem(fun, bounds, ineq=ineq, eq=eq, eq_tolerance=eq_tolerance), algorithm
    library = type(bounds).__module__.partition(".")[0]
    if library in ("pymoo", "pygmo"):
        raise InputError(
            f"{type(bounds).__name__} is an algorithm of {library}: give one of galapax, such as 'nsga2' or "
            "gx.NSGA2(population=40), or None."
        )
    if bounds is not None or ineq is not None or eq is not None:
        raise InputError(
            "a Problem has its own bounds, ineq and eq: remove them, or change the problem with problem.with_."
        )
    return (fun if eq_tolerance is None else fun.with_(eq_tolerance=eq_tolerance)), algorithm


def resolve_options(problem: Problem, options: Options) -> Options:
    """Fill in what the problem decides: whether its functions are called, and which take whole populations."""
    workers = options.workers
    blackbox = options.blackbox or problem.blackbox or workers.pool is not None
    if (workers.retries or workers.memoize) and not blackbox:
        raise InputError("retries and memoize apply to black boxes only: give blackbox=True or workers.")
    if blackbox and workers.memoize is None:
        is_small = problem.space is not None and problem.space.combinations <= MAX_MEMOIZED_POINTS
        workers = replace(workers, memoize=is_small and not workers.asynchronous and not options.noisy)
    takes_key = has_key_parameter(problem.fun)
    noisy = takes_key if options.noisy is None else options.noisy
    if not noisy and takes_key and not blackbox:
        raise InputError("fun takes a JAX key, so it is random: leave noisy out, or give a function of x alone.")
    if options.compute.threads is not None and blackbox:
        raise InputError("threads is for functions that JAX traces; a black box is called in processes by workers=.")
    dtype = default_dtype(options.compute.dtype, problem.constrained, blackbox)
    return replace(
        options,
        seed=random.resolve_seed(options.seed),
        noisy=noisy,
        blackbox=blackbox,
        vectorized=options.vectorized or problem.vectorized,
        workers=workers,
        compute=replace(options.compute, dtype=dtype, threads=None if blackbox else resolve_threads(options)),
    )


def resolve_threads(options: Options) -> int:
    """Return how many threads compute the slices of traced runs."""
    return options.compute.threads or threads_from_environment() or devices.count_cores()


def default_algorithm(problem: Problem, options: Options, objectives: int | None = None) -> Algorithm:
    """Choose an algorithm that fits a problem. A black box is called by the run alone: until then it has one objective,
    or two where an archive is asked for, unless they are named. options: resolved. objectives: if that is known.
    """
    if objectives is None:
        objectives = count_named_objectives(problem, options) or 1 + (options.keep.archive is not None)
    if options.blackbox:
        limit = options.max_evaluations if _leaves_search_open(options) else None
        workers = count_workers(options.workers.pool)
        if objectives == 1 and not options.noisy and is_for_models(limit, problem.dim):
            return ModelSearch(population=workers, eq_tolerance=problem.eq_tolerance)
        if is_for_front_models(limit, problem.dim, objectives):
            return EHVI(population=workers)
    else:
        n_vectorized = (options.population or 1) if options.vectorized else 0
        objectives = count_objectives(problem, str(options.compute.dtype), n_vectorized)
        is_named = count_named_objectives(problem, options) is not None or problem.reference_point is not None
        if not is_named and not options.vectorized:
            check_vector_objective(problem, objectives)
    default = algorithms.resolve_algorithm(
        None, problem.constrained, objectives, discrete_dim(problem), options.population
    )
    return algorithms.choose_for_many_variables(default, problem.dim, options.max_evaluations)


def _leaves_search_open(options: Options) -> bool:
    """Return whether nothing was asked for that a search by models does not have."""
    return (
        (options.generations, options.population, options.islands) == (None, None, None)
        and np.ndim(options.x0) <= 1
        and options.restarts == "auto"
        and not (options.vectorized or options.workers.asynchronous)
        and options.compute.dtype == "float64"  # differences and covariances need it
    )


MAX_UNNAMED_OBJECTIVES = 15  # as many as studies of many objectives have; more are residuals, or a missing sum


def check_vector_objective(problem: Problem, objectives: int) -> None:
    """Warn where fun returns as many objectives as there are variables, and refuse very many: a sum may be missing."""
    if objectives > MAX_UNNAMED_OBJECTIVES:
        raise InputError(
            f"fun of {problem.name!r} returns {objectives} numbers, and each would be an objective: return one number. "
            "Of residuals that is the sum of their squares. If they are objectives, name them with "
            "Problem(..., objectives=[...])."
        )
    if objectives == problem.dim >= 3:
        warn(
            f"fun of {problem.name!r} returns {objectives} numbers, as many as there are variables, and they are "
            "taken as objectives. Did you forget jnp.sum? If they are objectives, name them with "
            "Problem(..., objectives=[...])."
        )


def begin_with(task: Task, points: np.ndarray) -> Task:
    """Return the task with the first candidates (runs, k, d) that were drawn before the problem was known.

    Some of them were called already. Starting points of the user, if as many, are the same.
    """
    if not points.shape[1]:
        return task
    if task.initial is not None and task.initial.shape[-2] >= points.shape[1]:
        return task
    return replace(task, initial=points[:, : task.population])


def discrete_dim(problem: Problem) -> int:
    """Return the number of variables, if some of them are integers or choices; else 0."""
    return problem.dim if problem.space is not None and problem.space.discrete.any() else 0


def with_archive(solver: Algorithm, size: int, problem: Problem | None = None) -> Algorithm:
    """Return the algorithm with an archive of this size. problem: if the algorithm is the default for it."""
    if not solver.traits.multi_objective and problem is not None:
        raise InputError(_one_objective_message(problem))
    if not solver.traits.multi_objective:
        raise InputError(
            f"archive applies to several objectives, and {algorithms.algorithm_name(solver)} minimises one: remove it."
        )
    return Archived(solver, size)


def prepare_task(
    problem: Problem,
    solvers: tuple[Algorithm, ...],
    options: Options,
    restarts: Restarts | None = None,
    *,
    population_given: bool = True,
) -> Task:
    """Check options that must fit together and trace the problem's functions.

    What cannot be done is refused here, before anything is compiled. options: resolved. The others: see `build_task`.
    """
    check_not_tracing()
    if options.noisy:
        check_noisy(solvers[0], options)
    solvers = tuple(with_python_integers(solver) for solver in solvers)
    for solver in solvers:
        solver.validate()
    if options.workers.asynchronous:
        _check_asynchronous(solvers, options, restarts)
    tolerance = DEFAULT_TOLERANCE[str(options.compute.dtype)] if options.tolerance is None else options.tolerance
    if solvers[0].traits.multi_objective:
        tolerance = 0.0  # no front converges to a point, and a program in which no run ends before others is quicker
    rules = Rules(UNLIMITED, *parse_goals(problem, options), tolerance=tolerance)
    n_objectives = count_named_objectives(problem, options)
    if n_objectives is not None:
        check_direction_count(options.maximize, n_objectives, problem.name)
    shape = Shape(n_objectives or 1, int(problem.ineq is not None), int(problem.eq is not None))
    if options.initial is not None:
        shape = options.initial.shape
    task = build_task(
        problem,
        solvers,
        options,
        shape,
        rules,
        restarts,
        population_given=population_given,
    )
    if not options.blackbox:
        return trace_task(task)
    with jax.enable_x64(task.dtype == "float64"):
        check_memory(task)
    return task


def build_task(
    problem: ProblemDescription,
    solvers: tuple[Algorithm, ...],
    options: Options,
    shape: Shape,
    rules: Rules,
    restarts: Restarts | None = None,
    *,
    population_given: bool = True,
) -> Task:
    """Build a Task whose functions are not traced yet.

    population_given: whether the user has chosen the population; else a small budget makes it smaller.
    """
    declared, dtype, blackbox, islands = problem, str(options.compute.dtype), options.blackbox, options.islands
    if isinstance(problem, Problem) and problem.space is not None:
        problem.space.check(dtype)
        problem = problem.in_genes()
    random.root_key(options.seed)  # type: ignore[arg-type]  # refuses what is no seed
    problem.bounds.round_inwards(dtype)  # refuses a box that this precision does not hold, before anything is compiled
    limit = generation_limit(solvers[0], options)
    evaluation_limit = budget_evaluations = options.max_evaluations
    is_unlimited = options.generations is None and options.max_seconds is None
    if islands is not None and budget_evaluations is not None:  # each island has its share
        budget_evaluations = check_integer(budget_evaluations // islands.count, "max_evaluations of each island", 1)
    if restarts is not None:
        if is_unlimited and budget_evaluations is None:
            limit, budget_evaluations = UNLIMITED, default_evaluations(problem.dim)
            evaluation_limit = budget_evaluations
        if len(options.keep.snapshots) and (options.n_runs > 1 or len(solvers) > 1):
            raise InputError(
                "snapshots of several restarting runs would have populations of different sizes: remove snapshots, "
                "or make a single run."
            )
    elif options.noisy and is_unlimited and budget_evaluations is None:
        limit, budget_evaluations = UNLIMITED, default_evaluations(problem.dim)
        evaluation_limit = budget_evaluations
    if budget_evaluations is not None and rechecks_answer(solvers[0], options, budget_evaluations):
        budget_evaluations -= 1
    budget = Budget(None if limit == UNLIMITED else limit, budget_evaluations)
    search_budget = _reserve_for_estimate(budget) if options.noisy else budget
    budget_evaluations = search_budget.evaluations
    for solver in solvers:
        check_population(solver.population, problem.dim)
    if not population_given:
        solvers = tuple(shrink_population_to_budget(solver, problem.dim, shape, search_budget) for solver in solvers)
    solvers = _choose_surrogates(solvers, options, problem.dim)
    if options.noisy:
        solvers = tuple(map(_prepare_for_noise, solvers))
    bound = tuple(solver.bind(problem.dim, shape, budget) for solver in solvers)
    check_population(bound[0].population, problem.dim)
    population = bound[0].population
    is_called = blackbox or options.vectorized
    repairs, differences = plan_repairs(problem, bound[0], is_called, options.workers.asynchronous, budget_evaluations)
    if islands is not None:
        check_islands(islands, bound[0], population, restarts, options.workers)
    evaluations = population + repairs * (1 + problem.dim)
    _check_noisy_budget(options, search_budget, evaluations)
    if (
        restarts is not None or not bound[0].traits.fixed_evaluations
    ):  # without a limit, too, so that the same program serves
        rules = rules._replace(evaluations=math.inf if budget_evaluations is None else budget_evaluations)
    if budget_evaluations is not None and options.blackbox and not (population_given and restarts is None):
        rules = rules._replace(evaluations=budget_evaluations)
    elif budget_evaluations is not None and rules.evaluations is not None:
        fewer = "; a smaller population needs fewer" if population_given else ""
        least = f"the first generation needs {evaluations} evaluations{fewer}"
        check_integer(budget_evaluations, "max_evaluations", evaluations, least)
    elif budget_evaluations is not None:
        least = f"one generation evaluates the population of {population}; a smaller population needs fewer"
        if repairs:
            least = f"one generation needs {evaluations} evaluations for the population of {population}"
        name = "max_evaluations" if islands is None else f"max_evaluations of each of the {islands.count} islands"
        check_integer(budget_evaluations, name, evaluations, least)
        reserve = 0
        if not blackbox and not options.noisy and options.polish is not False:
            reserve = reserve_for_polish(budget_evaluations, problem, solvers[0], dtype)
        n_evaluations = max(evaluations, budget_evaluations - reserve)
        limit = min(limit, n_evaluations // evaluations)
        if options.blackbox:
            limit = generation_limit(solvers[0], options)
            rules = rules._replace(evaluations=n_evaluations)
        elif options.on_failure == "resample":  # a generation takes as many more as fail in it
            rules = rules._replace(evaluations=n_evaluations)
    elif is_unlimited:
        limit = min(limit, max(MIN_DEFAULT_GENERATIONS, MAX_DEFAULT_EVALUATIONS // evaluations))
    return Task(
        problem=problem,
        declared=declared,
        options=options,
        objective=None,
        consts=None,
        steps=0,
        shape=shape,
        solvers=solvers,
        bound=bound,
        repairs=repairs,
        differences=differences,
        rules=rules._replace(generations=limit),
        budget=budget,
        evaluation_limit=evaluation_limit,
        initial=parse_initial_points(options.x0, declared, population, options.n_runs),
        known=judge_known_values(options, declared),
        restarts=restarts,
        n_devices=count_devices(options),
        is_single_run=options.runs == 1 and len(solvers) == 1,
        engine=options.compute.engine,
    )


def _reserve_for_estimate(budget: Budget) -> Budget:
    """Return what the search of a random objective may use of a budget; the rest is for the estimate of its answer."""
    n = budget.evaluations
    return budget._replace(evaluations=None if n is None else max(1, int(NOISY_SEARCH_SHARE * n)))


def _check_noisy_budget(options: Options, search_budget: Budget, n_first: int) -> None:
    """Refuse fewer evaluations than the search of a random objective needs for its first generation."""
    if options.noisy and search_budget.evaluations is not None and search_budget.evaluations < n_first:
        raise InputError(
            f"max_evaluations must be at least {math.ceil(n_first / NOISY_SEARCH_SHARE)}: the first generation needs "
            f"{n_first} evaluations, and a third of all estimate the mean at x; got {options.max_evaluations}."
        )


def _prepare_for_noise(solver: Algorithm) -> Algorithm:
    """Return the solver with its survivors compared by means: those of its models, or of several values."""
    if isinstance(solver, EHVI):
        return replace(solver, noisy=True)
    return Reevaluated(solver) if solver.traits.multi_objective and reevaluates(solver) else solver


def _choose_surrogates(solvers: tuple[Algorithm, ...], options: Options, dim: int) -> tuple[Algorithm, ...]:
    """Return the solvers, CMA-ES with a surrogate where that is the default: where nobody counts generations."""
    counts_generations = options.generations is not None or options.patience is not None or len(options.keep.snapshots)
    is_open = options.blackbox and not (counts_generations or options.islands is not None or options.noisy)
    limit, workers = options.max_evaluations if is_open else None, count_workers(options.workers.pool)
    return tuple(choose_surrogate(solver, limit, dim, workers) for solver in solvers)


def trace_task(task: Task) -> Task:
    """Return the task with its functions traced by JAX."""
    assert isinstance(task.problem, Problem)
    with jax.enable_x64(task.dtype == "float64"):
        n_vectorized = task.population if task.options.vectorized else 0
        traced = trace(
            task.problem,
            task.dtype,
            maximize=task.options.maximize,
            vectorized=n_vectorized,
            is_random=bool(task.options.noisy),
        )
        if task.problem.eq is not None:
            task, traced = _settle_eq_tolerance(task, traced)
        bound = tuple(solver.bind(task.problem.dim, traced.formulas.shape, task.budget) for solver in task.solvers)
        task = replace(
            task,
            objective=traced.formulas,
            consts=traced.consts,
            steps=traced.formulas.steps,
            shape=traced.formulas.shape,
            bound=bound,
        )
        check_shape(task, task.shape)
        check_memory(task)
        if task.options.on_failure is None:
            probe(traced, task.problem.bounds, task.dtype)
    return task


def _settle_eq_tolerance(task: Task, traced: Traced) -> tuple[Task, Traced]:
    """Derive the tolerance of equalities from their spread over the box; warn if a given one accepts any point."""
    assert isinstance(task.problem, Problem)
    equalities = sample_equalities(traced, task.problem.bounds, task.dtype)
    tolerance = task.problem.eq_tolerance
    if tolerance is None:
        tolerance = derive_eq_tolerance(equalities)
        traced = traced._replace(formulas=traced.formulas.with_eq_tolerance(tolerance))
        return task.with_eq_tolerance(tolerance), traced
    largest = np.max(np.abs(equalities), axis=0)
    if (largest <= tolerance).any():
        j = int(np.argmax(largest <= tolerance))
        warn(
            f"equality constraint {j + 1} is within its eq_tolerance at all {len(equalities)} points tried in the box "
            f"(|h| is at most {largest[j]:.2g}), so it constrains nothing: leave eq_tolerance out, or give one that is "
            "small in the unit of h."
        )
    return task, traced


def check_not_tracing() -> None:
    """Refuse to run inside a function that JAX is tracing, or with compilation switched off."""
    if devices.is_forked():
        raise InputError(
            "this process was forked after JAX had started and would hang: start processes with "
            'multiprocessing.get_context("spawn").'
        )
    if devices.CONFIG.jax_disable_jit:
        raise InputError("jax_disable_jit is on, but galapax needs to compile: switch it off for this call.")
    if devices.is_tracing():
        raise InputError(
            "galapax was called inside jax.jit or another transformation of JAX: it compiles its runs itself; call it "
            "from plain Python."
        )


def _check_asynchronous(solvers: tuple[Algorithm, ...], options: Options, restarts: Restarts | None) -> None:
    """Refuse what cannot go on while some candidates are still being evaluated."""
    if len(solvers) > 1 or not isinstance(solvers[0], DE) or restarts is not None:
        raise InputError(
            "asynchronous=True is for DE, whose candidates each compete with their own parent, and without restarts; "
            f'got {algorithms.algorithm_name(solvers[0])}: give algorithm="de".'
        )
    refused = {
        "runs": options.runs != 1,
        "vectorized": options.vectorized,
        "memoize": bool(options.workers.memoize),
        "on_failure": options.on_failure == "resample",
    }
    for name, is_given in refused.items():
        if is_given:
            raise InputError(f"asynchronous=True makes a single run, one point at a time: remove {name}.")


def _one_objective_message(problem: Problem) -> str:
    return f"archive applies to several objectives, and fun of {problem.name!r} returns one number: remove it."


def check_shape(task: Task, shape: Shape) -> None:
    """Refuse an algorithm or a stopping rule that does not fit the number of objectives."""
    assert isinstance(task.problem, Problem)
    if shape.objectives == 1 and isinstance(task.solvers[0], Archived):
        raise InputError(_one_objective_message(task.problem))
    check_direction_count(task.options.maximize, shape.objectives, task.problem.name)
    check_compatibility(task.solvers[0], task.problem, shape)
    if shape.objectives > 1 and task.restarts is not None:
        raise InputError(f"restarts apply to one objective, and {task.problem.name!r} has {shape.objectives}.")
    needs_reference = math.isfinite(task.rules.target) or task.rules.stall != UNLIMITED
    if shape.objectives > 1 and task.rules.reference is None and needs_reference:
        raise InputError(
            f"target and patience judge a front by its hypervolume up to a reference_point, and {task.problem.name!r} "
            "has none: add one with problem.with_(reference_point=...), or remove target and patience."
        )


def check_comparable(task: Task) -> None:
    """Refuse fronts without a reference point, when their hypervolumes are to be compared."""
    if task.solvers[0].traits.multi_objective and task.problem.reference_point is None:
        raise InputError(
            f"runs with several objectives are compared by hypervolume, and {task.problem.name!r} has no "
            "reference_point to measure it from: give it one by problem.with_(reference_point=...), a point that is "
            "worse in every objective than those of interest."
        )
    if task.problem.reference_point is not None and len(task.problem.reference_point) > 3:
        indicators.moocore()  # it measures more than three objectives, and would be missed only after the runs
