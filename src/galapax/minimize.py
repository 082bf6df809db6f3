"""The front door: check what was asked for, choose the algorithm, run, and return a Result."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from galapax import algorithms
from galapax.core.algorithm import Algorithm
from galapax.core.errors import InputError
from galapax.core.problem import Problem
from galapax.core.restarts import Restarts
from galapax.engines.interrupts import interrupts
from galapax.evaluation.blackbox import BlackBox, Discovered
from galapax.results.result import Result
from galapax.running.calls import is_called
from galapax.running.observers import Progress, observers
from galapax.running.solve import solve
from galapax.running.task import archived, fitting, prepare, problem_of


def minimize(
    fun: Problem | Callable[..., Any],
    bounds: Any = None,
    algorithm: str | Algorithm | None = None,
    *,
    ineq: Callable[..., Any] | None = None,
    eq: Callable[..., Any] | None = None,
    generations: int | None = None,
    population: int | None = None,
    runs: int = 1,
    seed: int = 0,
    first_run: int | None = None,
    target: float | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    stall: int | None = None,
    tolerance: float | None = None,
    restarts: str | Restarts | None = "auto",
    polish: bool | str = "auto",
    maximize: bool = False,
    vectorized: bool = False,
    blackbox: bool = False,
    dtype: Any = None,
    callback: Callable[[Progress], Any] | None = None,
    progress: bool | None = None,
    history: bool | str = True,
    snapshots: Sequence[int] = (),
    initial: Any = None,
    archive: int | None = None,
    on_failure: str | None = None,
    executor: Any = None,
    workers: int | None = None,
    timeout: float | None = None,
    retries: int = 0,
    cache: bool = False,
    asynchronous: bool = False,
    live: Any = False,
    checkpoint: Any = None,
    resume: Any = None,
    engine: str = "auto",
) -> Result:
    """Find the x in a box that minimises `fun`, and say how it went.

    fun: a function of one solution, x of shape (d,) to a scalar, or to (m,) for m objectives, written with jax.numpy;
        or a Problem.
    bounds: one (lower, upper) pair per variable; a Problem has its own.
    ineq, eq: constraints; x is feasible when every ineq(x) <= 0 and every eq(x) = 0 (to 1e-4).
    algorithm: a name (`galapax list`), an instance such as DE(weight=0.7), or None for a good default.
    population: individuals of the algorithm, if not its own default.
    generations: at most so many (unless something limits a run: 1000, or 10 000 evaluations a variable where it
        restarts, at least 20 000 and at most a million; 6000 of the default with constraints, or a million
        evaluations).
    target: stop a run once its best feasible value is at least as good. max_evaluations: per run. max_seconds: in all.
    stall: stop a run after so many generations without a better value. (With two objectives the value that target and
        stall mean is the hypervolume up to the Problem's reference_point.)
    tolerance: stop a run that has converged: its population lies within this share of the box in every variable. By
        default 1e-11 (1e-6 in float32); 0 lets it go on.
    restarts: what a run does that has converged or cannot get on: "plain" searches again, "ipop" with twice the
        population each time, "bipop" with large and small ones in turn, "portfolio" gives L-SHADE its part; None ends
        the run. "auto" is "portfolio" for the default algorithm of one objective without constraints, else None. A run
        that restarts ends once five searches came to the same best value, unless it has a target.
    polish: refine the best of each run by its gradient, a quasi-Newton method inside the box (with constraints on the
        augmented Lagrangian): never worse, never beyond max_evaluations, and counted in nfev, a gradient as 4
        evaluations. "auto" does so where JAX has a gradient of one objective that agrees with the function, for runs
        that neither reached their target nor converged; True refines converged ones, too. `result.polish` says what
        became of it.
    runs: independent runs, computed together, in slices of a fixed size: run r is the same to the last bit in every
        ensemble on a CPU, whatever `runs` is, and with first_run=r by itself; `result.run(r)` makes it again. (A single
        run without first_run is computed on its own: it makes the same draws as run 0, and may round differently.)
    first_run: number of the first run.
    maximize: look for the largest value instead. vectorized: the functions take a whole population (n, d).
    blackbox: call the functions as plain Python with NumPy arrays; an exception or an odd return counts as a failed
        evaluation. `fun` may then return its constraints, too, as a dict or gx.Values: {"fun": ..., "ineq": ...}.
    dtype: "float32" or "float64"; by default float64 on a CPU and for constraints, float32 on an accelerator.
    callback: called between chunks of generations with a Progress; returning True stops the run.
    progress: show a progress line (by default on a terminal, for runs that take a while).
    history: keep values by generation; "x" keeps the best x of each generation too.
    snapshots: generations after which the whole population is kept, in `result.snapshots`.
    initial: points (k, d) to start from, at most a whole population, shared by all runs; or (runs, k, d), each its own.
        The rest of the first population is random.
    archive: with several objectives, keep so many of the non-dominated points seen, and take the front from those
        rather than from the last population.
    on_failure: what NaN, inf or an exception means: "worst" (never chosen, counted in n_failed), "raise", or
        "resample" (a random point of the box takes its place, up to three times, each counted in nfev). Unless it is
        given, it is "worst", and an objective that fails everywhere is refused at once.
    workers: call the functions in so many processes, -1 for one on each core. executor: or by an executor of the
        concurrent.futures kind (a pool, Dask's client.get_executor(), mpi4py.futures), or a function that makes one.
        Both mean blackbox=True; the run is the same as without.
    timeout: seconds for one evaluation, with workers or executor; retries: how often one that failed is tried again.
    cache: call the functions once for each point, should it come again; `result.n_cached` counts those.
    asynchronous: with DE and workers or executor, breed the next candidate as soon as one is evaluated, so that no
        worker waits for the slowest. Such a run cannot be repeated.
    live: show the run on a page in the browser while it goes on; True, a port number, or a galapax.Live.
    checkpoint: a file to keep the run in, written every minute and in the end, or a galapax.Checkpoint. A run that was
        killed, stopped or out of time goes on from it as if nothing had been, bit for bit.
    resume: the checkpoint to go on from, with the other arguments as they were; True for the file of `checkpoint`, if
        it is there. max_seconds counts anew.
    engine: "xla" compiles the run with XLA; "fused" makes one GPU kernel of objective and algorithm (docs/fused.md),
        or says why it cannot; "auto" takes the faster one. `result.engine` says which it was, and why.
    """
    began = time.perf_counter()
    problem, algorithm = problem_of(fun, bounds, algorithm, ineq, eq)
    watchers = observers(callback, progress, live, checkpoint, resume)
    if asynchronous and watchers.journal is not None:
        raise InputError(
            "asynchronous=True makes a run that cannot be repeated, nor gone on with: leave checkpoint out."
        )
    blackbox = is_called(blackbox, executor, workers)
    options: dict[str, Any] = {
        "generations": generations,
        "runs": runs,
        "seed": seed,
        "first_run": first_run,
        "target": target,
        "max_evaluations": max_evaluations,
        "max_seconds": max_seconds,
        "stall": stall,
        "tolerance": tolerance,
        "polish": polish,
        "maximize": maximize,
        "vectorized": vectorized,
        "blackbox": blackbox,
        "dtype": dtype,
        "history": history,
        "snapshots": snapshots,
        "initial": initial,
        "on_failure": on_failure,
        "executor": executor,
        "workers": workers,
        "timeout": timeout,
        "retries": retries,
        "cache": cache,
        "asynchronous": asynchronous,
        "engine": engine,
    }

    def run(problem: Problem, solver: Algorithm, guessed: bool = False, known: BlackBox | None = None) -> Result:
        options["restarts"] = algorithms.restarts_of(restarts, None if algorithm is not None else solver)
        if population is not None:
            solver = dataclasses.replace(solver, population=population)  # type: ignore[type-var]
        if archive is not None:
            solver = archived(solver, archive)
        task = prepare(problem, (solver,), guessed=guessed, **options)
        results, _ = solve(task, watchers.about(task), began, known)
        return results[0]

    with interrupts():
        guessed = algorithm is None and blackbox and problem.objectives is None
        try:
            if algorithm is not None:
                return run(problem, algorithms.resolve(algorithm))
            return run(problem, fitting(problem, blackbox, vectorized, dtype, population), guessed)
        except Discovered as found:  # a black box, which only calling it could show
            problem = found.box.described
            solver = algorithms.resolve(algorithm, problem.constrained, found.box.shape.objectives)
            return run(problem, solver, known=found.box)
