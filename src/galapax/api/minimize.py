"""minimize: check the arguments, choose the algorithm, run it, and return a Result."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from galapax import algorithms
from galapax.core.algorithm import Algorithm
from galapax.core.errors import InputError
from galapax.core.options import Compute, FailurePolicy, Islands, Keep, Options, RestartName, Workers, suggest_keywords
from galapax.core.problem import EqTolerance, Problem, Shape, returned_by_fun, stack_constraints
from galapax.core.restarts import Restarts
from galapax.core.stop import interrupts
from galapax.execution.arguments import take_known_values
from galapax.execution.observers import Progress, observers
from galapax.execution.solve import solve
from galapax.execution.task import (
    Task,
    begin_with,
    check_vector_objective,
    default_algorithm,
    prepare_task,
    problem_of,
    resolve_options,
    with_archive,
)
from galapax.results.result import Result


@suggest_keywords
def minimize(
    fun: str | Problem | Callable[[Any], Any] | Callable[[Any, Any], Any],
    bounds: Any = None,
    algorithm: str | Algorithm[Any] | None = None,
    *,
    ineq: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None = None,
    eq: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None = None,
    eq_tolerance: EqTolerance | None = None,
    maximize: bool | Sequence[bool] | np.ndarray = False,
    noisy: bool | None = None,
    x0: Any = None,
    initial: Any = None,
    population: int | None = None,
    generations: int | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    target: float | None = None,
    patience: int | None = None,
    tolerance: float | None = None,
    restarts: RestartName | Restarts | None = "auto",
    polish: bool | Literal["auto"] = "auto",
    islands: int | Islands | None = None,
    runs: int | range = 1,
    seed: int | None = 0,
    blackbox: bool = False,
    vectorized: bool = False,
    workers: int | Workers | Any = None,
    on_failure: FailurePolicy | None = None,
    callback: Callable[[Progress], object] | None = None,
    progress: bool | None = None,
    live: object = False,
    checkpoint: object = None,
    resume: object = None,
    keep: Keep | None = None,
    compute: Compute | None = None,
) -> Result:
    """Find the x inside the bounds that minimises `fun`, and report how the search went.

    fun: a function of one solution, x of shape (d,) to a scalar, or to (m,) for m objectives, written with jax.numpy;
        or a Problem, or the name of a built-in one (`galapax list`), or a problem of pymoo, pygmo, COCO or IOHprofiler.
    bounds: one (lower, upper) pair per variable; or variables in a dict or a list: gx.real, gx.integer, gx.choice and
        gx.boolean. With a dict the functions get a mapping of named values. A Problem has its own.
    algorithm: a name (`galapax list`), an instance such as DE(weight=0.7), or None for a good default.
    ineq, eq: constraints, a function or a list of them; x is feasible when every ineq(x) <= 0 and every eq(x) = 0 (to
        eq_tolerance, by default 1e-8, of a black box 1e-6, of the spread of each equality over the box).
    maximize: True maximises instead; of several objectives also a list, as in [True, False]: True or False for each.
    noisy: whether `fun` is random, so that its mean is minimised; by default if it is fun(x, key), with a JAX key as
        parameter `key` or `rng_key`, which is another one in each call. x is then the point with the best estimated
        mean, `fun` an estimate from fresh evaluations at x, and `result.fun_interval` its 95 % confidence interval.
    x0: a starting point (d,), or points (k, d), at most a whole population, shared by all runs; or (runs, k, d),
        separate for each run. The rest of the first population is random. CMA-ES begins at a single point with a small
        step; with few evaluations models do so, too, unless the middle of the box is better.
    initial: points whose values are known, of a black box: gx.Evaluated(X, F, ineq=..., eq=...), a pandas DataFrame
        with a column for each variable and for the objective, a Result, its evaluations, or the path of a saved run or
        its evaluations.csv; NaN means failed. They cost nothing (nfev and max_evaluations count new calls), the search
        begins with the best of them, models learn from all, and `result.evaluations` has them as generation 0.
    population: number of individuals, if not the algorithm's default. Unless the algorithm is an instance, the default
        is smaller where max_evaluations would otherwise allow fewer than 10 generations.
    generations: the maximum number. If nothing limits a run: 1000; with restarts 10 000 evaluations per variable, at
        least 20 000 and at most a million; for the default with constraints 6000 or a million evaluations.
    max_evaluations: limit per run, never exceeded, and by a black box used to the last one. max_seconds: limit for the
        whole call.
    target: stop a run once its best feasible value is at least this good.
    patience: stop a run after this many generations without improvement. (With several objectives, target and patience
        refer to the hypervolume up to the Problem's reference_point; of four and more it is an estimate.)
    tolerance: stop a run that has converged: its population spans less than this fraction of the box in every
        variable. The default is 1e-11 (1e-6 in float32); 0 disables the rule.
    restarts: what to do when a run has converged or makes no more progress: "plain" searches again, "ipop" doubles the
        population each time, "bipop" alternates large and small populations, "portfolio" also gives L-SHADE a share;
        None ends the run. "auto" is "portfolio" for the default algorithm of one objective without constraints, else
        None. A run with restarts ends once `result.confidence` is 0.95, unless it has a target.
    polish: refine the best point of each run with its gradient, by a quasi-Newton method inside the box (with
        constraints on the augmented Lagrangian): never worse, never beyond max_evaluations, and counted in nfev, a
        gradient as 4 evaluations. "auto" does so if JAX has a gradient of one objective that agrees with the function,
        for runs that neither reached their target nor converged; True also refines converged runs. `result.polish`
        reports what it did.
    islands: several populations per run that exchange individuals: a galapax.Islands, or how many. `runs` are then runs
        of whole archipelagos, max_evaluations is that of all islands of a run together, and `population` that of one.
        By default the algorithm is DE for one objective, or EpsilonDE with constraints.
    runs: independent runs, computed together in slices of a fixed size: `result.run(r)` repeats run r to the last bit.
        A range such as range(17, 20) makes the runs with these numbers. On a CPU a run is the same in every ensemble of
        fewer than 8192 runs. (A single run is computed alone: it makes the same random draws as run 0 of an ensemble,
        but may round differently.)
    seed: repeats a run; None draws one, which is in `result.seed`.
    blackbox: call the functions as plain Python with NumPy arrays; an exception or an invalid return value counts as a
        failed evaluation. `fun` may then also return its constraints, as a dict or gx.Evaluation:
        {"fun": ..., "ineq": ...}.
    vectorized: the functions take the whole population (n, d).
    workers: call the functions in this many processes, -1 for one per core; or with a concurrent.futures executor, or a
        function that creates one; or a gx.Workers, which also has time limits, retries and memory. Implies
        blackbox=True; the run is the same as without them, except that searches by models (the default for at most 100
        evaluations per variable, or 300, and CMA-ES for at most 1000) evaluate a point for each worker at a time.
    on_failure: how to treat NaN, inf or an exception: "worst" (never chosen, counted in n_failed), "raise", or
        "resample" (try a random point of the box instead, up to three times, each counted in nfev). The default is
        "worst", except that an objective that fails everywhere is rejected at once, and that an exception in the first
        call of a black box is raised.
    callback: called between chunks of generations with a Progress; returning True stops the run.
    progress: show a progress line (by default on a terminal and in a notebook, for runs that take a while). A long run
        says how long it will take as soon as its first generations were timed.
    live: show the run on a page in the browser: True, a port number, or a galapax.Live.
    checkpoint: a file to save the run to, every minute and at the end, or a galapax.Checkpoint. A run that was killed,
        stopped or out of time continues from it as if it had never been interrupted, bit for bit.
    resume: the checkpoint to continue from, with the other arguments unchanged; True for the file of `checkpoint`, if
        it exists. max_seconds starts again.
    keep: further contents of the result, such as gx.Keep(history="x", snapshots=[1, 10], archive=300).
    compute: engine, precision, threads and devices, such as gx.Compute(dtype="float32").
    """
    arguments, began = locals(), time.perf_counter()
    problem, algorithm = problem_of(
        fun, bounds, algorithm, stack_constraints("ineq", ineq), stack_constraints("eq", eq), eq_tolerance
    )
    problem, options = take_known_values(problem, resolve_options(problem, Options.parse(arguments)))
    watchers = observers(callback, progress, live, checkpoint, resume)
    if options.workers.asynchronous and watchers.journal is not None:
        raise InputError("a run with asynchronous=True can be neither repeated nor resumed: remove checkpoint.")

    def build(problem: Problem, solver: Algorithm) -> Task:
        if options.islands is not None and algorithm is None:
            solver = algorithms.default_for_islands(solver)
        default = solver if algorithm is None else None
        strategy = algorithms.parse_restarts(options.restarts, default, bool(options.noisy))
        if population is not None:
            solver = dataclasses.replace(solver, population=population)  # type: ignore[type-var]
        if options.keep.archive is not None:
            solver = with_archive(solver, options.keep.archive, None if algorithm is not None else problem)
        is_sized = population is not None or isinstance(algorithm, Algorithm)
        return prepare_task(problem, (solver,), options, strategy, population_given=is_sized)

    def adapt(shape: Shape, first_points: Callable[[], np.ndarray]) -> Task | None:
        """Return the task of a black box that gives other numbers than was assumed; None if it gives the same."""
        names = [name for name in ("ineq", "eq") if getattr(shape, name) and getattr(problem, name) is None]
        expected = 2 if task.solvers[0].traits.multi_objective else 1
        if not names and (is_named or shape.objectives in (1, expected)):
            return None
        if problem.objectives is None and problem.reference_point is None and not options.vectorized:
            check_vector_objective(problem, shape.objectives)
        seen = problem.with_(**dict.fromkeys(names, returned_by_fun))
        if algorithm is not None:  # it begins with the same points
            return build(seen, algorithms.resolve_algorithm(algorithm, seen.constrained, shape.objectives))
        return begin_with(build(seen, default_algorithm(seen, options, shape.objectives)), first_points())

    with interrupts():
        is_named = algorithm is not None or problem.objectives is not None or options.maximize not in (True, False)
        solver = default_algorithm(problem, options) if algorithm is None else algorithms.resolve_algorithm(algorithm)
        task = build(problem, solver)
        results, _ = solve(task, watchers.about(task), began, adapt if options.blackbox else None)
        return results[0]
