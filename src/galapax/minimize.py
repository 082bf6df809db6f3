"""The front door: check what was asked for, choose the algorithm, run, and return a Result."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from galapax import algorithms
from galapax.core.algorithm import Algorithm
from galapax.core.checks import flag
from galapax.core.errors import InputError
from galapax.core.islands import Islands, islands_of
from galapax.core.problem import Problem
from galapax.core.restarts import Restarts
from galapax.engines.interrupts import interrupts
from galapax.evaluation.blackbox import Discovered
from galapax.numerics import random
from galapax.results.result import Result
from galapax.running.calls import is_called
from galapax.running.habits import described, starting, welcoming
from galapax.running.observers import Progress, observers
from galapax.running.solve import solve
from galapax.running.task import archived, ask_for_sum, begin_with, fitting, mixed, prepare, problem_of


@welcoming
def minimize(
    fun: Problem | Callable[..., Any],
    bounds: Any = None,
    algorithm: str | Algorithm | None = None,
    *,
    ineq: Any = None,
    eq: Any = None,
    generations: int | None = None,
    population: int | None = None,
    runs: int = 1,
    seed: int | None = 0,
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
    workers_timeout: float | str | None = "auto",
    cache: bool | None = None,
    asynchronous: bool = False,
    threads: int | None = None,
    spread: bool = False,
    islands: int | Islands | None = None,
    live: Any = False,
    checkpoint: Any = None,
    resume: Any = None,
    engine: str = "auto",
    args: Any = (),
    x0: Any = None,
    constraints: Any = None,
    integrality: Any = None,
) -> Result:
    """Find the x inside the bounds that minimises `fun`, and report how the search went.

    fun: a function of one solution, x of shape (d,) to a scalar, or to (m,) for m objectives, written with jax.numpy;
        or a Problem.
    bounds: one (lower, upper) pair per variable; or variables in a dict or a list: gx.real, gx.integer, gx.choice and
        gx.flag. With a dict the functions get a mapping of named values. A Problem has its own.
    ineq, eq: constraints, a function or a list of them; x is feasible when every ineq(x) <= 0 and every eq(x) = 0 (to
        1e-4).
    algorithm: a name (`galapax list`), an instance such as DE(weight=0.7), or None for a good default.
    population: number of individuals, if not the algorithm's default. Unless the algorithm is an instance, the default
        is smaller where max_evaluations would otherwise allow fewer than 10 generations.
    generations: the maximum number. If nothing limits a run: 1000; with restarts 10 000 evaluations per variable, at
        least 20 000 and at most a million; for the default with constraints 6000 or a million evaluations.
    target: stop a run once its best feasible value is at least this good.
    max_evaluations: limit per run. max_seconds: limit for the whole call.
    stall: stop a run after this many generations without improvement. (With several objectives, target and stall refer
        to the hypervolume up to the Problem's reference_point; of four and more it is an estimate.)
    tolerance: stop a run that has converged: its population spans less than this fraction of the box in every
        variable. The default is 1e-11 (1e-6 in float32); 0 disables the rule.
    restarts: what to do when a run has converged or makes no more progress: "plain" searches again, "ipop" doubles the
        population each time, "bipop" alternates large and small populations, "portfolio" also gives L-SHADE a share;
        None ends the run. "auto" is "portfolio" for the default algorithm of one objective without constraints, else
        None. A run with restarts ends once five searches found the same best value, unless it has a target.
    polish: refine the best point of each run with its gradient, by a quasi-Newton method inside the box (with
        constraints on the augmented Lagrangian): never worse, never beyond max_evaluations, and counted in nfev, a
        gradient as 4 evaluations. "auto" does so if JAX has a gradient of one objective that agrees with the function,
        for runs that neither reached their target nor converged; True also refines converged runs. `result.polish`
        reports what it did.
    runs: independent runs, computed together in slices of a fixed size: `result.run(r)` repeats run r to the last bit.
        On a CPU it is also the same in every ensemble of fewer than 8192 runs, and alone with first_run=r. (A single
        run without first_run is computed alone: it makes the same random draws as run 0, but may round differently.)
    first_run: number of the first run. seed: repeats a run; None draws one, which is in `result.seed`.
    maximize: maximise instead. vectorized: the functions take the whole population (n, d).
    blackbox: call the functions as plain Python with NumPy arrays; an exception or an invalid return value counts as a
        failed evaluation. `fun` may then also return its constraints, as a dict or gx.Values:
        {"fun": ..., "ineq": ...}.
    dtype: "float32" or "float64"; by default float64 on a CPU and for constraints, float32 on an accelerator.
    callback: called between chunks of generations with a Progress; returning True stops the run.
    progress: show a progress line (by default on a terminal and in a notebook, for runs that take a while). A long run
        says how long it will take as soon as its first generations were timed.
    history: keep the values of every generation; "x" also keeps the best x of each generation.
    snapshots: generations whose whole population is kept, in `result.snapshots`.
    initial: starting points (k, d), at most a whole population, shared by all runs; or (runs, k, d), separate for each
        run. The rest of the first population is random.
    archive: with several objectives, the number of non-dominated points to keep; the front is then taken from these
        instead of the last population.
    on_failure: how to treat NaN, inf or an exception: "worst" (never chosen, counted in n_failed), "raise", or
        "resample" (try a random point of the box instead, up to three times, each counted in nfev). The default is
        "worst", except that an objective that fails everywhere is rejected at once.
    workers: call the functions in this many processes, -1 for one per core. executor: or with a concurrent.futures
        executor (a pool, Dask's client.get_executor(), mpi4py.futures), or a function that creates one. Both imply
        blackbox=True; the run is the same as without them.
    timeout: seconds for one evaluation, with workers or executor. retries: how many times to retry a failed one.
    workers_timeout: seconds without a living worker after which the run ends with the best result so far; until then it
        continues as soon as there is one. "auto" is 300 once there were workers, if the executor knows how many are
        alive (processes, Dask), and else None, for ever. With another executor (MPI): seconds without an answer.
    cache: never call a black box twice with the same point; `result.n_cached` counts the points found in the cache. By
        default where there are at most 100 000 points: integers, choices and switches alone.
    asynchronous: with DE and workers or executor, create the next candidate as soon as one is evaluated, so that no
        worker waits for the slowest. Such a run cannot be repeated.
    threads: number of threads that compute the runs of an ensemble on a CPU; by default one per core that the process
        may use (or GALAPAX_THREADS). The result is identical to the bit for any number.
    spread: let all GPUs (or other devices) of the machine evaluate one population together, an equal part each, for
        objectives that take long or populations of a million. Rounding may differ from a run on one device.
    islands: several populations per run that exchange individuals: a galapax.Islands, or how many. `runs` are then runs
        of whole archipelagos, max_evaluations is that of all islands of a run together, and `population` that of one.
        By default the algorithm is DE for one objective, or EpsilonDE with constraints.
    live: show the run on a page in the browser: True, a port number, or a galapax.Live.
    checkpoint: a file to save the run to, every minute and at the end, or a galapax.Checkpoint. A run that was killed,
        stopped or out of time continues from it as if it had never been interrupted, bit for bit.
    resume: the checkpoint to continue from, with the other arguments unchanged; True for the file of `checkpoint`, if
        it exists. max_seconds starts again.
    engine: "xla" compiles the run with XLA; "fused" makes one GPU kernel of objective and algorithm (docs/fused.md), or
        says why it cannot; "native" makes one for this machine's CPU with its C compiler, the fastest way to many small
        runs there; "auto" takes the kernel where there is an NVIDIA GPU and it pays, and else XLA. `result.engine` says
        which it was, and why.
    args, x0, constraints, integrality: as in scipy: further arguments of the functions, a starting point, its
        constraint objects, and a mask of the integer variables.
    """
    began = time.perf_counter()
    if not isinstance(bounds, str | Algorithm | type):
        further = {"args": args, "constraints": constraints, "integrality": integrality}
        fun, bounds, ineq, eq = described(fun, bounds, ineq, eq, **further)
    problem, algorithm = problem_of(fun, bounds, algorithm, ineq, eq)
    seed, initial = random.resolve_seed(seed), starting(initial, x0)
    watchers = observers(callback, progress, live, checkpoint, resume)
    if flag(asynchronous, "asynchronous") and watchers.journal is not None:
        raise InputError("a run with asynchronous=True can be neither repeated nor resumed: remove checkpoint.")
    blackbox = is_called(flag(blackbox, "blackbox") or problem.blackbox, executor, workers)
    vectorized = flag(vectorized, "vectorized") or problem.vectorized
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
        "workers_timeout": workers_timeout,
        "cache": cache,
        "asynchronous": asynchronous,
        "threads": threads,
        "spread": spread,
        "islands": islands_of(islands),
        "engine": engine,
    }

    def run(problem: Problem, solver: Algorithm, guessed: bool = False, discovered: Discovered | None = None) -> Result:
        if islands is not None and algorithm is None:
            solver = algorithms.for_islands(solver)
        options["restarts"] = algorithms.restarts_of(restarts, None if algorithm is not None else solver)
        if population is not None:
            solver = dataclasses.replace(solver, population=population)  # type: ignore[type-var]
        if archive is not None:
            solver = archived(solver, archive)
        sized = population is not None or isinstance(algorithm, Algorithm)
        probes = algorithm is None and blackbox and discovered is None
        task = prepare(problem, (solver,), guessed=guessed, sized=sized, probes=probes, **options)
        if discovered is not None and discovered.points is not None:
            task = begin_with(task, discovered.points)
        results, _ = solve(task, watchers.about(task), began, None if discovered is None else discovered.box)
        return results[0]

    with interrupts():
        guessed = algorithm is None and blackbox and problem.objectives is None
        try:
            if algorithm is not None:
                return run(problem, algorithms.resolve(algorithm))
            solver = fitting(problem, blackbox, vectorized, dtype, population, archive is not None)
            return run(problem, solver, guessed)
        except Discovered as discovered:  # a black box, which only calling it could show
            box = discovered.box
            if problem.objectives is None and problem.reference_point is None and not vectorized:
                ask_for_sum(problem, box.shape.objectives)
            problem = problem.with_(**box.found)
            objectives = box.shape.objectives
            solver = algorithms.resolve(algorithm, problem.constrained, objectives, mixed(problem), population)
            return run(problem, solver, discovered=discovered)
