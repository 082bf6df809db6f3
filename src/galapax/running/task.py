"""A call of `minimize` and its like, checked: what is to be run, as plain data."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from galapax import algorithms
from galapax.algorithms.archive import Archived
from galapax.core.algorithm import Algorithm, Budget, Shared
from galapax.core.checks import as_written, flag, positive, whole
from galapax.core.errors import InputError
from galapax.core.evaluation import Shape
from galapax.core.islands import Islands
from galapax.core.problem import Described, MinMaxProblem, Problem
from galapax.core.record import Columns
from galapax.core.restarts import Restarts
from galapax.core.stop import NEVER, Rules
from galapax.engines.points import probe
from galapax.engines.search import Search, Traced
from galapax.evaluation.executors import Calls
from galapax.evaluation.failures import RESAMPLES, check_policy
from galapax.evaluation.fit import check_fit, objective_count
from galapax.evaluation.formulas import trace
from galapax.metrics import indicators
from galapax.numerics import devices, random
from galapax.running.arguments import (
    afforded,
    check_islands,
    engine_named,
    goals_of,
    kept_for_polish,
    limit_of,
    polish_of,
    precision_of,
    repairs_of,
    snapshots_of,
    spread_of,
    starting_genes,
    threads_of,
    tolerance_of,
)
from galapax.running.calls import check_asynchronous, checked_calls, is_called
from galapax.running.memory import check_memory, check_population

REMEMBERED = 100_000  # points, if there are no more: a black box is not called twice with one
MOST_EVALUATIONS = 1_000_000  # of a run that nothing limits, unless that are fewer generations than these
FEWEST_GENERATIONS = 1000


@dataclass(frozen=True)
class Task:
    """What is to be run: every one of the solvers makes that many runs."""

    problem: Described  # as one of genes, see core/variables.py
    declared: Described  # as it was given: what a Result shows
    objective: Traced | None  # None for a black box
    consts: Any  # the arrays of the objective
    steps: int  # see `Formulas.steps`
    shape: Shape  # of a black box a guess, until it was called
    solvers: tuple[Algorithm, ...]  # as they were given, alike in all that shapes the program
    bound: tuple[Algorithm, ...]  # the same, for this problem
    repairs: int  # candidates repaired a generation
    differences: bool  # whether by differences of values
    rules: Rules
    budget: Budget  # of one population
    evaluation_limit: int | None  # of a run, with all its islands
    runs: int
    first_run: int
    alone: bool  # a single run, not one of an ensemble
    guessed: bool  # a black box of which only calling it tells how many objectives it has
    probes: int  # points of a black box that may be called before it is known whether the algorithm fits
    seed: int
    max_seconds: float | None
    maximize: bool
    vectorized: bool
    blackbox: bool
    dtype: str
    history: bool | str
    snapshots: tuple[int, ...]
    initial: np.ndarray | None
    on_failure: str | None
    restarts: Restarts | None = None
    calls: Calls = field(default_factory=Calls)  # how a black box is called
    polish: bool | str = False  # refine the best of each run by its gradient: True, False or "auto"
    threads: int = 1  # slices that a CPU computes at once
    spread: int = 0  # devices that share the evaluation of a generation
    islands: Islands | None = None  # several populations per run
    engine: str = "auto"  # one of ENGINES

    @property
    def population(self) -> int:
        return self.bound[0].population

    @property
    def total(self) -> int:
        """Runs of all solvers together, one solver's after the other's."""
        return self.runs * len(self.solvers)

    @property
    def sign(self) -> float:
        """What turns values to be minimised into the user's: -1 where they are maximised."""
        return -1.0 if self.maximize else 1.0

    @property
    def columns(self) -> Columns:
        """Of the history's rows."""
        return Columns(self.shape, self.rules.reference is not None, self.problem.dim if self.history == "x" else 0)

    def decoded(self, genes: np.ndarray) -> np.ndarray:
        """x (..., d) of genes (..., d)."""
        return genes if self.problem.space is None else self.problem.space.decode(genes)

    def of_cell(self, i: int) -> Task:
        """The task of one solver alone."""
        return replace(self, solvers=self.solvers[i : i + 1], bound=self.bound[i : i + 1])

    def search(self) -> Search:
        """All its runs as one: a hyper-parameter that differs between the solvers has one value for each run."""
        kind = np.dtype(self.dtype)

        def stack(*values: Any) -> Any:
            if isinstance(values[0], Shared):
                return values[0]
            column = np.array(values, kind)
            return column[0] if (column == column[0]).all() else np.repeat(column, self.runs)

        return Search(
            algorithm=jax.tree.map(stack, *self.bound, is_leaf=lambda leaf: isinstance(leaf, Shared)),
            bounds=self.problem.bounds.rounded(kind),
            rules=self.rules.as_arrays(kind),
            consts=self.consts,
            shape=self.shape,
            objective=self.objective,
            repairs=self.repairs,
            differences=self.differences,
            freeze=self.blackbox or self.rules.by_run,
            leaves=self.blackbox or devices.on_cpu(),
            with_x=self.history == "x",
            resamples=RESAMPLES if self.on_failure == "resample" else 0,
            only_codes=self.problem.space is not None and bool(self.problem.space.discrete.all()),
            spread=self.spread if self.spread > 1 else 0,
        )


def problem_of(fun: Any, bounds: Any, algorithm: Any, ineq: Any = None, eq: Any = None) -> tuple[Problem, Any]:
    """A problem and an algorithm from the arguments with which `minimize` and its like begin."""
    if isinstance(fun, Problem) and algorithm is None and isinstance(bounds, str | Algorithm | type):
        bounds, algorithm = None, bounds  # a Problem has its bounds, so what follows it is the algorithm
    if isinstance(fun, MinMaxProblem):
        raise InputError(f"{fun.name} is a min-max problem: use gx.minimax.")
    if not isinstance(fun, Problem):
        return Problem(fun, bounds, ineq=ineq, eq=eq), algorithm
    if bounds is not None or ineq is not None or eq is not None:
        raise InputError(
            "a Problem has its own bounds, ineq and eq: remove them, or change the problem with problem.with_."
        )
    return fun, algorithm


def fitting(
    problem: Problem, blackbox: Any, vectorized: Any, dtype: Any, population: Any = None, archive: bool = False
) -> Algorithm:
    """The default algorithm for a problem. A black box is called by the run alone: until then it has one objective, or
    two where an archive is asked for, unless they are named.
    """
    objectives = 1 + archive if problem.objectives is None else len(problem.objectives)
    if not blackbox:
        together = (population or 1) if vectorized else 0
        objectives = objective_count(problem, precision_of(dtype, problem.constrained, blackbox), together)
        named = problem.objectives is not None or problem.reference_point is not None
        if not named and not vectorized:
            ask_for_sum(problem, objectives)
    return algorithms.resolve(None, problem.constrained, objectives, mixed(problem), population)


def ask_for_sum(problem: Problem, objectives: int) -> None:
    """Ask whether as many objectives as there are variables are meant."""
    if objectives == problem.dim >= 3:
        warnings.warn(
            f"fun of {problem.name!r} returns {objectives} numbers, as many as there are variables, and they are "
            "taken as objectives. Was a sum forgotten? If so return one number, such as jnp.sum(...); if not, name "
            "them by Problem(..., objectives=[...]).",
            stacklevel=4,
        )


def begin_with(task: Task, points: np.ndarray) -> Task:
    """The task with first candidates (runs, k, d) that were drawn, and partly called, before it was known what the
    problem is; unless the user gave as many, which are the same then.
    """
    if task.initial is not None and task.initial.shape[-2] >= points.shape[1]:
        return task
    return replace(task, initial=points[:, : task.population])


def mixed(problem: Problem) -> int:
    """The number of variables, if some of them are integers or choices; else 0."""
    return problem.dim if problem.space is not None and problem.space.discrete.any() else 0


def archived(solver: Algorithm, size: int) -> Algorithm:
    """The algorithm with an archive of that size."""
    if not solver.traits.multi_objective:
        raise InputError(
            f"archive applies to several objectives, and {algorithms.name_of(solver)} minimises one: remove it."
        )
    return Archived(solver, size)


def prepare(
    problem: Problem,
    solvers: tuple[Algorithm, ...],
    *,
    target: Any = None,
    stall: Any = None,
    tolerance: Any = None,
    maximize: Any = False,
    vectorized: Any = False,
    blackbox: Any = False,
    dtype: Any = None,
    on_failure: Any = None,
    executor: Any = None,
    workers: Any = None,
    timeout: Any = None,
    retries: Any = 0,
    cache: Any = None,
    asynchronous: Any = False,
    workers_timeout: Any = "auto",
    **options: Any,
) -> Task:
    """Check the arguments of `minimize` and trace the problem's functions: what cannot be done is refused here, before
    anything is compiled. options: those of `assembled`.
    """
    check_outside()
    maximize, vectorized = flag(maximize, "maximize"), flag(vectorized, "vectorized")
    for solver in solvers:
        solver.validate()
    check_policy(on_failure)
    blackbox = is_called(blackbox, executor, workers)
    if cache is None:
        few = problem.space is not None and problem.space.combinations <= REMEMBERED
        cache = blackbox and few and asynchronous is False
    calls = checked_calls(blackbox, executor, workers, timeout, retries, cache, asynchronous, workers_timeout)
    if calls.asynchronous:
        check_asynchronous(solvers, on_failure, vectorized, cache, options)
    kind = precision_of(dtype, problem.constrained, blackbox)
    share = tolerance_of(tolerance, kind)
    if solvers[0].traits.multi_objective:
        share = 0.0  # no front converges to a point, and a program in which no run ends before others is quicker
    rules = Rules(NEVER, *goals_of(problem, target, stall, maximize), tolerance=share)
    shape = Shape(len(problem.objectives or "1"), int(problem.ineq is not None), int(problem.eq is not None))
    task = assembled(
        problem,
        solvers,
        shape,
        kind,
        rules=rules,
        maximize=maximize,
        vectorized=vectorized,
        blackbox=blackbox,
        on_failure=on_failure,
        calls=calls,
        **options,
    )
    if not blackbox:
        return traced(task)
    with jax.enable_x64(kind == "float64"):
        check_memory(task)
    return task


def assembled(
    problem: Described,
    solvers: tuple[Algorithm, ...],
    shape: Shape,
    dtype: str,
    *,
    rules: Rules,
    generations: Any = None,
    runs: Any = 1,
    seed: Any = 0,
    first_run: Any = None,
    max_evaluations: Any = None,
    max_seconds: Any = None,
    maximize: bool = False,
    vectorized: bool = False,
    blackbox: bool = False,
    history: Any = True,
    snapshots: Any = (),
    initial: Any = None,
    on_failure: str | None = None,
    guessed: bool = False,
    probes: bool = False,
    restarts: Restarts | None = None,
    polish: Any = False,
    engine: Any = "auto",
    calls: Calls = Calls(),
    threads: Any = None,
    spread: Any = False,
    islands: Islands | None = None,
    sized: bool = True,
) -> Task:
    """A Task that no function is in yet, from arguments that are checked here.

    sized: whether the user has chosen the population; else a small budget makes it smaller.
    """
    declared = problem
    if isinstance(problem, Problem) and problem.space is not None:
        problem.space.check(dtype)
        problem = problem.coded()
    first = 0 if first_run is None else whole(first_run, "first_run", 0)
    if first + whole(runs, "runs", 1) > 2**32:
        raise InputError(f"run numbers go up to 2**32; first_run={first} and runs={runs} exceed that.")
    if not (isinstance(history, bool) or (isinstance(history, str) and history == "x")):
        raise InputError(f'history must be True, False or "x" (with the best x of each generation), got {history!r}.')
    random.root_key(seed)
    problem.bounds.rounded(dtype)  # refuses a box that this precision does not hold, before anything is compiled
    max_evaluations = as_written(max_evaluations)
    limit = limit_of(solvers[0], generations, max_evaluations, max_seconds)
    evaluation_limit = None if max_evaluations is None else whole(max_evaluations, "max_evaluations", 1)
    most = evaluation_limit
    if islands is not None and most is not None:  # each island has its share
        most = whole(most // islands.count, "max_evaluations of each island", 1)
    if restarts is not None:
        if generations is None and max_seconds is None and most is None:
            limit, most = NEVER, default_evaluations(problem.dim)
            evaluation_limit = most
        if len(snapshots_of(snapshots)) and (int(runs) > 1 or len(solvers) > 1):
            raise InputError(
                "snapshots of several restarting runs would have populations of different sizes: remove snapshots, "
                "or make a single run."
            )
    budget = Budget(None if limit == NEVER else limit, most)
    for solver in solvers:
        check_population(solver.population, problem.dim)
    if not sized:
        solvers = tuple(afforded(solver, problem.dim, shape, budget) for solver in solvers)
    bound = tuple(solver.bind(problem.dim, shape, budget) for solver in solvers)
    check_population(bound[0].population, problem.dim)
    population = bound[0].population
    repairs, differences = repairs_of(problem, bound[0], blackbox or vectorized, calls.asynchronous, most)
    if islands is not None:
        check_islands(islands, population, restarts, calls)
    evaluations = population + repairs * (1 + problem.dim)
    if (
        restarts is not None or not bound[0].traits.fixed_evaluations
    ):  # without a limit, too, so that the same program serves
        rules = rules._replace(evaluations=math.inf if most is None else most)
    if most is not None and rules.evaluations is not None:
        fewer = "; a smaller population needs fewer" if sized else ""
        least = f"the first generation needs {evaluations} evaluations{fewer}"
        whole(most, "max_evaluations", evaluations, least)
    elif most is not None:
        least = f"one generation evaluates the population of {population}; a smaller population needs fewer"
        if repairs:
            least = f"one generation needs {evaluations} evaluations for the population of {population}"
        whole(most, "max_evaluations", evaluations, least)
        kept = 0 if blackbox or polish is False else kept_for_polish(most, problem, solvers[0], dtype)
        most = max(evaluations, most - kept)
        limit = min(limit, most // evaluations)
        if on_failure == "resample":  # a generation takes as many more as fail in it
            rules = rules._replace(evaluations=most)
    elif generations is None and max_seconds is None:
        limit = min(limit, max(FEWEST_GENERATIONS, MOST_EVALUATIONS // evaluations))
    return Task(
        problem=problem,
        declared=declared,
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
        runs=int(runs),
        first_run=first,
        alone=int(runs) == 1 and first_run is None and len(solvers) == 1,
        guessed=guessed,
        probes=population if probes else 0,
        seed=int(seed),
        max_seconds=None if max_seconds is None else positive(max_seconds, "max_seconds"),
        maximize=maximize,
        vectorized=vectorized,
        blackbox=blackbox,
        dtype=dtype,
        history=history,
        snapshots=snapshots_of(snapshots),
        initial=starting_genes(initial, declared, population, int(runs)),
        on_failure=on_failure,
        restarts=restarts,
        polish=polish_of(polish),
        engine=engine_named(engine),
        calls=calls,
        threads=threads_of(threads, blackbox),
        spread=spread_of(spread, blackbox, vectorized, int(runs), islands, engine),
        islands=islands,
    )


def default_evaluations(dim: int) -> int:
    """What a run that restarts may spend, unless the user says so."""
    return max(20_000, min(10_000 * dim, MOST_EVALUATIONS))


def traced(task: Task) -> Task:
    """The task with its functions as JAX programs."""
    assert isinstance(task.problem, Problem)
    with jax.enable_x64(task.dtype == "float64"):
        together = task.population if task.vectorized else 0
        found = trace(task.problem, task.dtype, maximize=task.maximize, vectorized=together)
        bound = tuple(solver.bind(task.problem.dim, found.formulas.shape, task.budget) for solver in task.solvers)
        task = replace(
            task,
            objective=found.formulas,
            consts=found.consts,
            steps=found.formulas.steps,
            shape=found.formulas.shape,
            bound=bound,
        )
        check_shape(task, task.shape)
        check_memory(task)
        if task.on_failure is None:
            probe(found, task.problem.bounds, task.dtype)
    return task


def check_outside() -> None:
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


def check_shape(task: Task, shape: Shape) -> None:
    """Refuse an algorithm or a stopping rule that does not fit the number of objectives."""
    assert isinstance(task.problem, Problem)
    if shape.objectives == 1 and isinstance(task.solvers[0], Archived):
        raise InputError(
            f"archive applies to several objectives, and fun of {task.problem.name!r} returns one number: remove it."
        )
    check_fit(task.solvers[0], task.problem, shape)
    if shape.objectives > 1 and task.restarts is not None:
        raise InputError(f"restarts apply to one objective, and {task.problem.name!r} has {shape.objectives}.")
    asked = math.isfinite(task.rules.target) or task.rules.stall != NEVER
    if shape.objectives > 1 and task.rules.reference is None and asked:
        raise InputError(
            f"target and stall judge a front by its hypervolume up to a reference_point, and {task.problem.name!r} has "
            "none: add one with problem.with_(reference_point=...), or remove target and stall."
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
