"""The front door: check what was asked for, choose algorithm and engine, run, and return a Result."""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from galapax import algorithms, random
from galapax.algorithm import Algorithm, Population
from galapax.checks import number, positive, whole
from galapax.engines import host, xla
from galapax.engines.loop import NEVER, RUNNING, STALL, TARGET, Outcome, Progress, Rules, Track, Watch, best_run
from galapax.errors import EvaluationError, InputError
from galapax.evaluate import check_fit, evaluate_points, probe, trace
from galapax.problem import MinMaxProblem, Problem
from galapax.progress import progress_line
from galapax.result import History, Result, Runs
from galapax.version import __version__

DEFAULT_GENERATIONS = 1000


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
    first_run: int = 0,
    target: float | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    stall: int | None = None,
    maximize: bool = False,
    vectorized: bool = False,
    blackbox: bool = False,
    dtype: Any = None,
    callback: Callable[[Progress], Any] | None = None,
    progress: bool | None = None,
    history: bool = True,
    snapshots: Sequence[int] = (),
    on_failure: str | None = None,
) -> Result:
    """Find the x in a box that minimises `fun`, and say how it went.

    fun: a function of one solution, x of shape (d,) to a scalar, written with jax.numpy; or a Problem.
    bounds: one (lower, upper) pair per variable; a Problem has its own.
    ineq, eq: constraints; x is feasible when every ineq(x) <= 0 and every eq(x) = 0 (to 1e-4).
    algorithm: a name (`galapax list`), an instance such as DE(weight=0.7), or None for a good default.
    population: individuals of the algorithm, if not its own default.
    generations: at most so many (1000 unless max_evaluations or max_seconds is given).
    target: stop a run once its best feasible value is at least as good. max_evaluations: per run. max_seconds: in all.
    stall: stop a run after so many generations without a better value.
    runs: independent runs, computed together; run r makes the same random draws as first_run=r alone.
    maximize: look for the largest value instead. vectorized: the functions take a whole population (n, d).
    blackbox: call the functions as plain Python with NumPy arrays; an exception counts as a failed evaluation.
    dtype: "float32" or "float64"; by default float64 on a CPU and for constraints, float32 on an accelerator.
    callback: called between chunks of generations with a Progress; returning True stops the run.
    progress: show a progress line (by default on a terminal, for runs that take a while). history: keep it.
    snapshots: generations after which the whole population is kept, in `result.snapshots`.
    on_failure: what NaN, inf or an exception means: "worst" (never chosen, counted in n_failed) or "raise". Unless
        it is given, an objective that fails everywhere is refused at once.
    """
    if isinstance(fun, Problem) and algorithm is None and isinstance(bounds, str | Algorithm):
        bounds, algorithm = None, bounds  # a Problem has its bounds, so what follows it is the algorithm
    if not isinstance(fun, Problem):
        if isinstance(fun, MinMaxProblem):
            raise InputError(f"{fun.name} is a min-max problem, of x and y; minimize takes a function of x alone.")
        fun = Problem(fun, bounds, ineq=ineq, eq=eq)
    elif bounds is not None or ineq is not None or eq is not None:
        raise InputError("a Problem carries its own bounds, ineq and eq: leave them out or use problem.with_.")
    solver = algorithms.resolve(algorithm)
    if population is not None:
        solver = dataclasses.replace(solver, population=population)  # type: ignore[type-var]
    solver.check()
    if not (on_failure is None or (isinstance(on_failure, str) and on_failure in ("worst", "raise"))):
        raise InputError(f'on_failure must be "worst" or "raise", got {on_failure!r}.')
    if callback is not None and not callable(callback):
        raise InputError(f"callback must be a function of one Progress, got {callback!r}.")
    if whole(first_run, "first_run", 0) + whole(runs, "runs", 1) > 2**32:
        raise InputError(f"run numbers go up to 2**32; first_run={first_run} and runs={runs} reach beyond.")
    random.key(seed)
    return _solve(
        Job(
            problem=fun,
            algorithm=solver,
            rules=_rules(solver.population, generations, target, max_evaluations, max_seconds, stall, maximize),
            runs=int(runs),
            first_run=int(first_run),
            seed=int(seed),
            max_seconds=None if max_seconds is None else positive(max_seconds, "max_seconds"),
            maximize=bool(maximize),
            vectorized=bool(vectorized),
            blackbox=bool(blackbox),
            dtype=_dtype(dtype, fun.constrained, blackbox),
            callback=callback,
            progress=progress,
            history=bool(history),
            snapshots=tuple(sorted({whole(g, "snapshots", 1) for g in snapshots})),
            on_failure=on_failure,
        )
    )


@dataclass(frozen=True)
class Job:
    """A call of `minimize`, checked."""

    problem: Problem
    algorithm: Algorithm
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
    history: bool
    snapshots: tuple[int, ...]
    on_failure: str | None


def _rules(
    population: int,
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
        limit = min(limit, whole(max_evaluations, "max_evaluations", population, least) // population)
    goal = -math.inf
    if target is not None:
        goal = -number(target, "target") if maximize else number(target, "target")
    return Rules(limit, goal, NEVER if stall is None else min(whole(stall, "stall", 1), NEVER))


def _dtype(dtype: Any, constrained: bool, blackbox: bool) -> str:
    if dtype is None:
        # a penalty or a tolerance of 1e-4 on large numbers has no meaning in float32
        return "float64" if constrained or blackbox or jax.default_backend() == "cpu" else "float32"
    try:
        kind = np.dtype(dtype).name
    except TypeError:
        kind = repr(dtype)
    if kind not in ("float32", "float64"):
        raise InputError(f'dtype must be "float32" or "float64", got {dtype!r}.')
    return kind


def _solve(job: Job) -> Result:
    """Run a job, in batches of runs as large as memory allows, and describe the outcome."""
    began = time.perf_counter()
    problem, kind = job.problem, job.dtype
    # float64 is switched on for this run alone: importing or using galapax changes no setting of JAX
    with jax.enable_x64(kind == "float64"), progress_line(job.progress, _title(job)) as show:
        box = problem.bounds.rounded(kind)
        algorithm = jax.tree.map(lambda leaf: np.asarray(leaf, kind), job.algorithm)
        watch = Watch(snapshots=job.snapshots)
        if job.blackbox:
            black_box = host.BlackBox(
                problem,
                dtype=kind,
                maximize=job.maximize,
                vectorized=job.vectorized,
                raise_failures=job.on_failure == "raise",
            )
            batch = job.runs

            def run(keys: Any) -> Outcome:
                return host.run(black_box, algorithm, box, job.rules, keys=keys, watch=watch, keep_history=job.history)
        else:
            rows = job.algorithm.population if job.vectorized else 0
            formulas = trace(problem, kind, maximize=job.maximize, vectorized=rows)
            check_fit(job.algorithm, problem, formulas.shape)
            if job.on_failure is None:
                probe(formulas, problem.bounds, kind)
            at_once = xla.runs_at_once(algorithm, box, formulas.shape, job.runs)
            batch = math.ceil(job.runs / math.ceil(job.runs / at_once))

            def run(keys: Any) -> Outcome:
                return xla.run(formulas, algorithm, box, job.rules, keys=keys, watch=watch, keep_history=job.history)

        ready = time.perf_counter()
        if job.max_seconds is not None:
            watch.deadline = began + job.max_seconds
        outcomes: list[Outcome] = []
        starts = [min(start, job.runs - batch) for start in range(0, job.runs, batch)]  # all batches of one size
        for start in starts:
            known = len(outcomes) * batch - start  # runs that an earlier batch has already
            watch.notify = _notifier(job, outcomes, known, began, show)
            outcome = run(random.run_keys(job.seed, job.first_run + start, batch))
            outcomes.append(outcome.from_run(known))
            for populations in watch.taken.values():
                populations[-1] = jax.tree.map(lambda a: a[known:], populations[-1])  # noqa: B023 (used at once)
            if outcome.stopped:
                break
        done = time.perf_counter()
        total = Outcome.join(outcomes)
        best = total.x[best_run(total.track)]
        at_best: dict[str, np.ndarray] = {}
        if problem.constrained and job.blackbox:
            at_best = black_box.at(best)
        elif problem.constrained:
            values = evaluate_points(formulas, best[None], kind)
            at_best = {name: getattr(values, name)[0] for name in ("ineq", "eq") if getattr(values, name) is not None}
    compiling = sum(outcome.compile_seconds for outcome in outcomes)
    timings = {"compile": compiling, "run": done - ready - compiling}
    timings["host"] = time.perf_counter() - began - compiling - timings["run"]
    result = _result(job, total, at_best, timings)
    result["snapshots"] = {g: _snapshot(job, parts) for g, parts in watch.taken.items()}
    object.__setattr__(result, "_replay", lambda r: _solve(_alone(job, total, r)))
    if job.blackbox and black_box.first_error:
        result.message += f" First failure: {black_box.first_error}."
    return result


def _snapshot(job: Job, parts: list[Population]) -> Population:
    """The populations of all batches as one: (n, ...) for a single run, else (R, n, ...)."""
    whole_batch = jax.tree.map(lambda *a: np.concatenate(a), *parts)
    if job.maximize:
        whole_batch = whole_batch._replace(objectives=-whole_batch.objectives)
    return jax.tree.map(lambda a: a[0], whole_batch) if job.runs == 1 else whole_batch


def _alone(job: Job, total: Outcome, run: int) -> Job:
    """The job of one run of an ensemble; where time, Ctrl-C or a callback ended it, to the same generation."""
    rules = job.rules
    if total.stopped:
        rules = rules._replace(generations=int(total.track.generations[run - job.first_run]))
    return dataclasses.replace(job, rules=rules, runs=1, first_run=run, max_seconds=None, callback=None, progress=False)


def _notifier(
    job: Job, earlier: list[Outcome], known: int, began: float, show: Callable[[Progress], None]
) -> Callable[[int, Track], str]:
    """What the engine calls between chunks: tells progress line and callback, and says why to stop, if so."""
    n = job.algorithm.population
    before = sum(int(outcome.track.generations.sum()) * n for outcome in earlier)
    best_before = [(float(o.track.violation.min()), float(o.track.best[best_run(o.track)])) for o in earlier]

    def notify(generation: int, track: Track) -> str:
        track = track.rows(slice(known, None))
        row = best_run(track)
        ended = (track.reason != RUNNING) | (track.generations >= job.rules.generations)
        violation, best = min([*best_before, (float(track.violation[row]), float(track.best[row]))])
        state = Progress(
            generation=generation,
            generations=None if job.rules.generations == NEVER else int(job.rules.generations),
            nfev=before + int(track.generations.sum()) * n,
            fun=-best if job.maximize else best,
            violation=violation,
            runs_done=sum(len(o.x) for o in earlier) + int(ended.sum()),
            runs=job.runs,
            seconds=time.perf_counter() - began,
            max_seconds=job.max_seconds,
        )
        show(state)
        failed = int(track.failed.sum())
        if job.on_failure == "raise" and failed:
            raise EvaluationError(
                f"fun or a constraint returned NaN or inf at {failed} of the {state.nfev} points evaluated so far."
            )
        if job.on_failure is None and failed == int(track.generations.sum()) * n:
            return "failures"
        answer = job.callback(state) if job.callback is not None else None
        return "callback" if isinstance(answer, bool | np.bool_) and answer else ""

    return notify


def _result(job: Job, total: Outcome, at_best: dict[str, np.ndarray], timings: dict[str, float]) -> Result:
    track, n = total.track, job.algorithm.population
    sign = -1.0 if job.maximize else 1.0
    best = best_run(track)
    nfev = track.generations.astype(np.int64) * n
    found = np.isfinite(track.best)
    feasible = found & (track.violation <= 0)
    wanted = track.reason == TARGET if math.isfinite(job.rules.target) else feasible & (total.stopped in ("", "time"))
    history = _history(job, total.history)
    result = Result(
        problem=job.problem,
        x=total.x[best].astype(np.float64),
        fun=float(sign * track.best[best]) if found[best] else math.nan,
        success=bool(wanted[best] and total.stopped != "interrupt" and len(nfev) == job.runs),
        message=_message(job, total, best),
        nit=int(track.generations[best]),
        nfev=int(nfev.sum()) - total.skipped,
        n_failed=int(track.failed.sum()) - total.skipped,
        seed=job.seed,
        feasible=bool(feasible[best]),
        violation=float(track.violation[best]),
        ineq=at_best.get("ineq"),
        eq=at_best.get("eq"),
        population=total.population.x,
        population_fitness=sign * total.population.fitness,
        history=history.of_run(best) if history else None,
        runs=None,
        timings=timings,
        settings=_settings(job),
    )
    if job.runs > 1:
        result.runs = Runs(
            number=job.first_run + np.arange(len(nfev)),
            x=total.x,
            fun=np.where(found, sign * track.best, np.nan),
            violation=track.violation,
            nit=track.generations,
            nfev=nfev,
            n_failed=track.failed,
            success=wanted,
            history=history,
        )
    return result


def _history(job: Job, rows: np.ndarray | None) -> History | None:
    """History (R, G) from the engine's rows (R, G, columns)."""
    if rows is None:
        return None
    m = (rows.shape[2] - (2 if job.problem.constrained else 0)) // 3
    best, mean, worst = (rows[:, :, i * m : (i + 1) * m] for i in range(3))
    if job.maximize:
        best, mean, worst = -best, -mean, -worst
    if m == 1:
        best, mean, worst = best[..., 0], mean[..., 0], worst[..., 0]
    generation = np.arange(1, rows.shape[1] + 1)
    tail = (rows[:, :, -2], rows[:, :, -1]) if job.problem.constrained else (None, None)
    return History(generation, generation * job.algorithm.population, best, mean, worst, *tail)


def _message(job: Job, total: Outcome, best: int) -> str:
    """Why it ended, in a sentence or two."""
    track = total.track
    generations = int(track.generations[best])
    if total.stopped == "failures":
        return "Stopped: every point evaluated so far gave NaN, inf or an exception; there is no best point."
    if total.stopped == "interrupt":
        why = f"Stopped by Ctrl-C after generation {generations}; this is the best so far."
    elif total.stopped == "time":
        why = f"The time limit of {job.max_seconds:g} s was reached after generation {generations}."
    elif total.stopped == "callback":
        why = f"Stopped by the callback after generation {generations}."
    elif track.reason[best] == TARGET:
        why = f"The target was reached in generation {generations}."
    elif track.reason[best] == STALL:
        why = f"No better value in {job.rules.stall} generations; stopped after generation {generations}."
    else:
        why = f"All {generations} generations were made."
        if math.isfinite(job.rules.target):
            why += " The target was not reached."
    if len(track.best) < job.runs:
        why += f" Of {job.runs} runs {len(track.best)} were started."
    if not np.isfinite(track.best[best]):
        why += " No point gave a finite value."
    elif not track.violation[best] <= 0:
        why += f" No feasible point was found; x violates the constraints by {track.violation[best]:.3g} in all."
    return why


def _settings(job: Job) -> dict[str, Any]:
    """Everything needed to ask for the same again, as plain values."""
    limit = int(job.rules.generations)
    goal = job.rules.target
    return {
        "problem": job.problem.name,
        "algorithm": algorithms.name_of(job.algorithm),
        "hyperparameters": algorithms.settings_of(job.algorithm),
        "generations": None if limit == NEVER else limit,
        "target": (-goal if job.maximize else goal) if math.isfinite(goal) else None,
        "stall": None if job.rules.stall == NEVER else int(job.rules.stall),
        "max_seconds": job.max_seconds,
        "runs": job.runs,
        "first_run": job.first_run,
        "seed": job.seed,
        "maximize": job.maximize,
        "vectorized": job.vectorized,
        "blackbox": job.blackbox,
        "dtype": job.dtype,
        "device": "CPU" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    return {
        "galapax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _title(job: Job) -> str:
    return f"{job.problem.name} · {algorithms.name_of(job.algorithm)}"
