"""The front door: check what was asked for, choose algorithm and engine, run, and return a Result."""

from __future__ import annotations

import dataclasses
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax import algorithms, indicators, random
from galapax.algorithm import Algorithm, Population, Shape, Shared
from galapax.algorithms.archive import Archived
from galapax.checks import number, positive, reals, short, whole
from galapax.engines import host, xla
from galapax.engines.loop import (
    NEVER,
    RUNNING,
    STALL,
    TARGET,
    Outcome,
    Progress,
    Rules,
    Track,
    Watch,
    best_run,
    check_rules,
    columns,
)
from galapax.errors import EvaluationError, InputError
from galapax.evaluate import (
    check_fit,
    differentiable,
    evaluate_points,
    objective_count,
    probe,
    trace,
)
from galapax.front import Front, choose, front_of, union
from galapax.problem import Bounds, MinMaxProblem, Problem
from galapax.progress import progress_line
from galapax.result import History, Result, Runs
from galapax.version import __version__
from galapax.view.live import Facts, Live, as_live, watching

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
    history: bool | str = True,
    snapshots: Sequence[int] = (),
    initial: Any = None,
    archive: int | None = None,
    on_failure: str | None = None,
    live: Any = False,
) -> Result:
    """Find the x in a box that minimises `fun`, and say how it went.

    fun: a function of one solution, x of shape (d,) to a scalar, or to (m,) for m objectives, written with jax.numpy;
        or a Problem.
    bounds: one (lower, upper) pair per variable; a Problem has its own.
    ineq, eq: constraints; x is feasible when every ineq(x) <= 0 and every eq(x) = 0 (to 1e-4).
    algorithm: a name (`galapax list`), an instance such as DE(weight=0.7), or None for a good default.
    population: individuals of the algorithm, if not its own default.
    generations: at most so many (1000 unless max_evaluations or max_seconds is given).
    target: stop a run once its best feasible value is at least as good. max_evaluations: per run. max_seconds: in all.
    stall: stop a run after so many generations without a better value. (With two objectives the value that target and
        stall mean is the hypervolume up to the Problem's reference_point.)
    runs: independent runs, computed together; run r makes the same random draws as first_run=r alone.
    maximize: look for the largest value instead. vectorized: the functions take a whole population (n, d).
    blackbox: call the functions as plain Python with NumPy arrays; an exception counts as a failed evaluation.
    dtype: "float32" or "float64"; by default float64 on a CPU and for constraints, float32 on an accelerator.
    callback: called between chunks of generations with a Progress; returning True stops the run.
    progress: show a progress line (by default on a terminal, for runs that take a while).
    history: keep values by generation; "x" keeps the best x of each generation too.
    snapshots: generations after which the whole population is kept, in `result.snapshots`.
    initial: points (k, d) to start from, at most a whole population, shared by all runs; or (runs, k, d), each its own.
        The rest of the first population is random.
    archive: with several objectives, keep so many of the non-dominated points seen, and take the front from those
        rather than from the last population.
    on_failure: what NaN, inf or an exception means: "worst" (never chosen, counted in n_failed) or "raise". Unless
        it is given, an objective that fails everywhere is refused at once.
    live: show the run on a page in the browser while it goes on; True, a port number, or a galapax.Live.
    """
    problem, algorithm = problem_of(fun, bounds, algorithm, ineq, eq)
    objectives = objective_count(problem, blackbox, vectorized) if algorithm is None else 1
    solver = algorithms.resolve(algorithm, problem.constrained, objectives)
    if population is not None:
        solver = dataclasses.replace(solver, population=population)  # type: ignore[type-var]
    if archive is not None:
        solver = archived(solver, archive)
    results, _ = solve(
        prepare(
            problem,
            (solver,),
            generations=generations,
            runs=runs,
            seed=seed,
            first_run=first_run,
            target=target,
            max_evaluations=max_evaluations,
            max_seconds=max_seconds,
            stall=stall,
            maximize=maximize,
            vectorized=vectorized,
            blackbox=blackbox,
            dtype=dtype,
            callback=callback,
            progress=progress,
            history=history,
            snapshots=snapshots,
            initial=initial,
            on_failure=on_failure,
            live=live,
        )
    )
    return results[0]


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
        return "float64" if constrained or blackbox or jax.default_backend() == "cpu" else "float32"
    try:
        kind = np.dtype(dtype).name
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


def solve(job: Job) -> tuple[list[Result], str]:
    """Run a job, in batches of runs as large as memory allows: the Result of each solver, and what stopped it early.

    Fewer results than solvers come back when it was stopped before a solver's first run.
    """
    began = time.perf_counter()
    problem, kind = job.problem, job.dtype
    # float64 is switched on for this run alone: importing or using galapax changes no setting of JAX
    with (
        jax.enable_x64(kind == "float64"),
        progress_line(job.progress, job.title) as show,
        watching(job.live, lambda: _facts(job)) as session,
    ):
        box = problem.bounds.rounded(kind)
        algorithm = _stacked(job, kind)
        initial = None if job.initial is None else np.clip(job.initial.astype(kind), box.lower, box.upper)
        watch = Watch(snapshots=job.snapshots, viewer=session)
        _try_derived(job, box)
        engine: Callable[..., Outcome]
        if job.blackbox:
            black_box = host.BlackBox(
                problem,
                dtype=kind,
                maximize=job.maximize,
                vectorized=job.vectorized,
                raise_failures=job.on_failure == "raise",
            )
            engine, batch = partial(host.run, black_box), job.total
        else:
            together = job.population if job.vectorized else 0
            formulas = trace(problem, kind, maximize=job.maximize, vectorized=together)
            _check_shape(job, formulas.shape)
            if job.on_failure is None:
                probe(formulas, problem.bounds, kind)
            one = _stacked(dataclasses.replace(job, solvers=job.solvers[:1]), kind)
            at_once = xla.runs_at_once(one, box, formulas.shape, job.total)
            engine, batch = partial(xla.run, formulas), math.ceil(job.total / math.ceil(job.total / at_once))
            _check_history(job, formulas.shape)
        ready = time.perf_counter()
        if job.max_seconds is not None:
            watch.deadline = began + job.max_seconds
        outcomes: list[Outcome] = []
        keys = random.run_keys(job.seed, job.first_run, job.runs)
        for start in range(0, job.total, batch):
            rows = np.arange(batch) + min(start, job.total - batch)  # all batches of one size
            known = start - int(rows[0])  # runs that an earlier batch has already
            watch.notify = _notifier(job, outcomes, known, began, show)
            runs = rows % job.runs
            if session is not None:
                session.start(first_run=job.first_run + int(runs[0]))
            outcome = engine(
                _of_rows(algorithm, rows),
                box,
                job.rules,
                keys=keys[runs],
                cells=rows // job.runs,
                initial=initial[runs] if initial is not None and initial.ndim == 3 else initial,
                watch=watch,
                keep_history=bool(job.history),
                with_x=job.history == "x",
                repairs=job.repairs,
            )
            outcomes.append(outcome.of_runs(slice(known, None)))
            for populations in watch.taken.values():
                populations[-1] = jax.tree.map(lambda a: a[known:], populations[-1])  # noqa: B023 (used at once)
            if outcome.stopped:
                break
        done = time.perf_counter()
        total = Outcome.join(outcomes)
        starts = range(0, len(total.x), job.runs)
        cells = [total.of_runs(slice(first, first + job.runs)) for first in starts]

        def constraints(x: np.ndarray) -> dict[str, np.ndarray]:
            """Their values at points (k, d), {"ineq": (k, p), "eq": (k, q)}, those there are."""
            if not problem.constrained:
                return {}
            if not len(x):
                counts = (black_box if job.blackbox else formulas).shape
                return {name: np.zeros((0, n)) for name, n in (("ineq", counts.ineq), ("eq", counts.eq)) if n}
            if job.blackbox:
                each = [black_box.at(point) for point in x]
                return {name: np.stack([values[name] for values in each]) for name in each[0] if name != "fun"}
            values = evaluate_points(formulas, x, kind)
            found = {name: getattr(values, name) for name in ("ineq", "eq")}
            return {name: value for name, value in found.items() if value is not None}

        details = [_details(job, cell, constraints) for cell in cells]
    timings = {"compile": total.compile_seconds, "run": done - ready - total.compile_seconds - watch.held}
    timings["device"] = total.device_seconds
    timings["host"] = time.perf_counter() - began - timings["compile"] - timings["run"] - watch.held
    if watch.held:
        timings["held"] = watch.held
    results = []
    for i, (cell, first) in enumerate(zip(cells, starts, strict=True)):
        alone = dataclasses.replace(job, solvers=(job.solvers[i],))
        result = _result(alone, cell, cell.populations[i].population, details[i], dict(timings))
        reached = int(cell.track.generations.max())
        result["snapshots"] = {
            g: _snapshot(job, parts, slice(first, first + job.runs))
            for g, parts in sorted(watch.taken.items())
            if g <= reached
        }
        object.__setattr__(result, "_replay", partial(_replay, alone, cell))
        object.__setattr__(result, "_opponents", cell.opponents)
        if job.blackbox and black_box.first_error and result.n_failed:
            result.message += f" First failure: {black_box.first_error}."
        results.append(result)
    if session is not None:
        session.finish(results[0].message)
    return results, total.stopped


def _of_rows(algorithm: Algorithm, rows: np.ndarray) -> Algorithm:
    """The hyper-parameters of these runs."""

    def pick(leaf: Any) -> Any:
        return leaf if isinstance(leaf, Shared) or not leaf.ndim else leaf[rows]

    return jax.tree.map(pick, algorithm, is_leaf=lambda leaf: isinstance(leaf, Shared))


def check_traceable(job: Job) -> None:
    """Refuse what only tracing shows: functions that JAX cannot trace, too many objectives, too large a population."""
    if not job.blackbox:
        with jax.enable_x64(job.dtype == "float64"):
            together = job.population if job.vectorized else 0
            shape = trace(job.problem, job.dtype, maximize=job.maximize, vectorized=together).shape
            _check_shape(job, shape)
            one = _stacked(dataclasses.replace(job, solvers=job.solvers[:1]), job.dtype)
            xla.runs_at_once(one, job.problem.bounds.rounded(job.dtype), shape, job.total)
            _check_history(job, shape)


def check_comparable(job: Job) -> None:
    """Refuse fronts without a reference point, when their hypervolumes are to be compared."""
    if job.solvers[0].several_objectives and job.problem.reference_point is None:
        raise InputError(
            f"runs with several objectives are compared by their hypervolume, and {job.problem.name!r} has no "
            "reference_point to measure it from: give it one by problem.with_(reference_point=...), a point that is "
            "worse in every objective than those of interest."
        )
    if job.problem.reference_point is not None and len(job.problem.reference_point) > 2:
        indicators.moocore()  # it measures more than two objectives, and would be missed only after the runs


def _stacked(job: Job, kind: str) -> Algorithm:
    """The solvers as one: a hyper-parameter that differs between them has one value for each run of the job."""

    def stack(*values: Any) -> Any:
        if isinstance(values[0], Shared):
            return values[0]
        column = np.array(values, kind)
        return column[0] if (column == column[0]).all() else np.repeat(column, job.runs)

    return jax.tree.map(stack, *job.solvers, is_leaf=lambda leaf: isinstance(leaf, Shared))


def _check_shape(job: Job, shape: Shape) -> None:
    """Refuse an algorithm or a stopping rule that does not fit the number of objectives."""
    check_fit(job.solvers[0], job.problem, shape)
    check_rules(job.rules, job.problem, shape)


def _check_history(job: Job, shape: Shape) -> None:
    """Refuse an ensemble's history that the host's memory cannot hold. (A single run is often ended by hand.)"""
    if not job.history or job.rules.generations == NEVER or job.total == 1 or job.max_seconds is not None:
        return
    width = columns(shape, job.rules, job.problem.dim if job.history == "x" else 0) * np.dtype(job.dtype).itemsize
    needed = job.total * int(job.rules.generations) * width
    free = xla.host_memory()
    if needed > free:
        raise InputError(
            f"the history of {job.total} runs over {job.rules.generations} generations takes {needed / 2**30:.1f} GiB "
            f"and {free / 2**30:.1f} GiB of memory are free: pass history=False, or ask for fewer runs or generations."
        )


def _snapshot(job: Job, parts: list[Population], chosen: slice) -> Population:
    """The populations of these runs out of all batches: (n, ...) for a single run, else (R, n, ...)."""
    populations = jax.tree.map(lambda *a: np.concatenate(a)[chosen], *parts)
    if job.maximize:
        populations = populations._replace(objectives=-populations.objectives)
    return jax.tree.map(lambda a: a[0], populations) if job.runs == 1 else populations


def _replay(job: Job, total: Outcome, run: int) -> Result:
    """One run of an ensemble alone; where time, Ctrl-C or a callback ended it, to the same generation."""
    rules = job.rules
    if total.stopped:
        rules = rules._replace(generations=int(total.track.generations[run - job.first_run]))
    initial = job.initial
    if initial is not None and initial.ndim == 3:
        initial = initial[run - job.first_run][None]
    alone = dataclasses.replace(job, rules=rules, runs=1, first_run=run, initial=initial)
    results, _ = solve(dataclasses.replace(alone, max_seconds=None, callback=None, progress=False, live=None))
    return results[0]


def _notifier(
    job: Job, earlier: list[Outcome], known: int, began: float, show: Callable[[Progress], None]
) -> Callable[[int, Track], str]:
    """What the engine calls between chunks: tells progress line and callback, and says why to stop, if so."""

    def state_of(track: Track) -> tuple[float, float, float, float]:
        row = best_run(track)
        return tuple(float(part[row]) for part in (track.violation, track.merit, track.best, track.hypervolume))  # type: ignore[return-value]

    before = sum(int(outcome.track.generations.sum()) * job.evaluations for outcome in earlier)
    best_before = [state_of(o.track) for o in earlier]

    def notify(generation: int, track: Track) -> str:
        track = track.rows(slice(known, None))
        ended = (track.reason != RUNNING) | (track.generations >= job.rules.generations)
        violation, _, best, volume = min([*best_before, state_of(track)])
        state = Progress(
            generation=generation,
            generations=None if job.rules.generations == NEVER else int(job.rules.generations),
            nfev=before + int(track.generations.sum()) * job.evaluations,
            fun=-best if job.maximize else best,
            hypervolume=None if math.isnan(volume) else volume,
            violation=violation,
            runs_done=sum(len(o.x) for o in earlier) + int(ended.sum()),
            runs=job.total,
            seconds=time.perf_counter() - began,
            max_seconds=job.max_seconds,
            feasible_share=float(track.feasible_share.mean()) if job.problem.constrained else None,
        )
        show(state)
        failed = int(track.failed.sum())
        if job.on_failure == "raise" and failed:
            raise EvaluationError(
                f"fun or a constraint returned NaN or inf at {failed} of the {state.nfev} points evaluated so far."
            )
        if job.on_failure is None and failed == int(track.generations.sum()) * job.population:
            return "failures"
        answer = job.callback(state) if job.callback is not None else None
        return "callback" if isinstance(answer, bool | np.bool_) and answer else ""

    return notify


@dataclass(frozen=True)
class Details:
    """What is worked out about an outcome while its precision is set: the best point, and of several objectives the
    fronts.
    """

    at_best: dict[str, np.ndarray]  # constraints at the best x
    derived: dict[str, Any]  # the problem's derived quantities at the best x, or on the front
    front: Front | None = None  # of all runs together
    fronts: list[Front] | None = None  # of each run


def _details(job: Job, total: Outcome, constraints: Callable[[np.ndarray], dict[str, np.ndarray]]) -> Details:
    best = total.x[best_run(total.track)][None]
    if not total.fronts:
        derived = {name: float(values[0]) for name, values in _derived(job, best).items()}
        return Details({name: rows[0] for name, rows in constraints(best).items()}, derived)
    sign = -1.0 if job.maximize else 1.0
    front = front_of(union(total.fronts), sign, constraints)
    fronts = [front_of(own, sign, None) for own in total.fronts]
    if len(front):
        best = front.X[choose(front.F, sign, "knee")][None]
    return Details({name: rows[0] for name, rows in constraints(best).items()}, _derived(job, front.X), front, fronts)


def _derived(job: Job, x: np.ndarray) -> dict[str, np.ndarray]:
    """The problem's derived quantities at points (k, d), {name: (k,)}; NaN where a black box raised an exception."""
    out = {}
    for name, function in (job.problem.derived or {}).items():
        if job.blackbox:
            values = np.array([_derived_one(name, function, point.copy()) for point in x.astype(np.float64)])
        else:
            values = np.asarray(jax.vmap(function)(jnp.asarray(x, job.dtype))) if len(x) else np.zeros(0)
        out[name] = values.astype(np.float64)
    return out


def _derived_one(name: str, function: Callable[..., Any], x: np.ndarray) -> float:
    try:
        value = np.asarray(function(x))
    except Exception:
        return math.nan
    _check_derived(name, value)
    return float(value)


def _check_derived(name: str, value: Any) -> None:
    """A derived quantity is one real number."""
    if value.shape != () or value.dtype.kind not in "biuf":
        what = f"shape {value.shape}" if value.shape else f"type {value.dtype}"
        raise InputError(f"derived quantity {name!r} must be one number of a solution; it returned {what}.")


def _try_derived(job: Job, box: Bounds) -> None:
    """Refuse derived quantities that cannot be worked out, before a run is made and lost."""
    for name, function in (job.problem.derived or {}).items():
        if job.blackbox:
            _derived_one(name, function, np.asarray((box.lower + box.upper) / 2, np.float64))
            continue
        try:
            shape = jax.eval_shape(function, jax.ShapeDtypeStruct((box.dim,), job.dtype))
        except Exception as error:
            raise InputError(
                f"derived quantity {name!r} raised {type(error).__name__} when called with one solution x of shape "
                f"({box.dim},): {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
            ) from error
        _check_derived(name, shape)


def _result(job: Job, total: Outcome, survivors: Population, details: Details, timings: dict[str, float]) -> Result:
    track = total.track
    sign = -1.0 if job.maximize else 1.0
    best = best_run(track)
    nfev = track.generations.astype(np.int64) * job.evaluations - track.skipped
    failed = track.failed - track.skipped
    found = np.isfinite(track.best)
    feasible = found & (track.violation <= 0)
    wanted = track.reason == TARGET if math.isfinite(job.rules.target) else feasible & (total.stopped in ("", "time"))
    history = _history(job, total.history)
    x, fun = total.x, np.where(found, sign * track.best, np.nan)
    several: dict[str, Any] = {}
    volume = None
    if details.front is not None and details.fronts is not None:
        front = details.front
        several = {name: getattr(front, name) for name in ("X", "F", "G", "H", "CV")}
        x, fun = _knees(total, details.fronts, sign)
        if job.rules.reference is not None:
            volume = track.hypervolume.astype(np.float64)
            several["hypervolume"] = float(volume[best])
    if job.problem.derived:
        several["derived"] = details.derived
    result = Result(
        problem=job.problem,
        x=x[best].astype(np.float64),
        fun=float(fun[best]) if fun.ndim == 1 else fun[best],
        success=bool(wanted[best] and total.stopped != "interrupt" and len(nfev) == job.runs),
        message=_message(job, total, best, details.front),
        nit=int(track.generations[best]),
        nfev=int(nfev.sum()),
        n_failed=int(failed.sum()),
        seed=job.seed,
        feasible=bool(feasible[best]),
        violation=float(track.violation[best]),
        ineq=details.at_best.get("ineq"),
        eq=details.at_best.get("eq"),
        population=survivors.x,
        population_fitness=sign * (survivors.objectives if several else survivors.fitness),
        history=history.of_run(best) if history else None,
        runs=None,
        timings=timings,
        settings=_settings(job),
        **several,
    )
    if details.front is not None and len(details.front):
        knee = choose(details.front.F, sign, "knee")
        result.x, result.fun = details.front.X[knee], details.front.F[knee]
    if job.runs > 1:
        result.runs = Runs(
            number=job.first_run + np.arange(len(nfev)),
            x=x,
            fun=fun,
            violation=track.violation,
            nit=track.generations,
            nfev=nfev,
            n_failed=failed,
            success=wanted,
            history=history,
            fronts=details.fronts,
            hypervolume=volume,
        )
    return result


def _knees(total: Outcome, fronts: list[Front], sign: float) -> tuple[np.ndarray, np.ndarray]:
    """x (R, d) and objectives (R, m) at the knee of each run's front; of an empty one the least bad x and NaN."""
    x = total.x.astype(np.float64).copy()
    fun = np.full((len(x), fronts[0].F.shape[1]), np.nan)
    for r, front in enumerate(fronts):
        if len(front):
            knee = choose(front.F, sign, "knee")
            x[r], fun[r] = front.X[knee], front.F[knee]
    return x, fun


def _history(job: Job, rows: np.ndarray | None) -> History | None:
    """History (R, G) from the engine's rows (R, G, columns)."""
    if rows is None:
        return None
    x = rows[:, :, rows.shape[2] - job.problem.dim :] if job.history == "x" else None
    rows = rows if x is None else rows[:, :, : -job.problem.dim]
    volume = None
    if job.rules.reference is not None:
        rows, volume = rows[:, :, :-1], rows[:, :, -1]
    m = (rows.shape[2] - (2 if job.problem.constrained else 0)) // 3
    best, mean, worst = (rows[:, :, i * m : (i + 1) * m] for i in range(3))
    if job.maximize:
        best, mean, worst = -best, -mean, -worst
    if m == 1:
        best, mean, worst = best[..., 0], mean[..., 0], worst[..., 0]
    generation = np.arange(1, rows.shape[1] + 1)
    violation, share = (rows[:, :, -2], rows[:, :, -1]) if job.problem.constrained else (None, None)
    return History(generation, generation * job.evaluations, best, mean, worst, violation, share, x, volume)


def _message(job: Job, total: Outcome, best: int, front: Front | None) -> str:
    """Why it ended, in a sentence or two."""
    track, sign = total.track, -1.0 if job.maximize else 1.0
    generations = int(track.generations[best])
    if total.stopped == "failures":
        return "Stopped: every point evaluated so far gave NaN, inf or an exception; there is no best point."
    if total.stopped == "interrupt":
        why = f"Stopped by Ctrl-C after generation {generations}; this is the best so far."
    elif total.stopped == "time":
        why = f"The time limit of {job.max_seconds:g} s was reached after generation {generations}."
    elif total.stopped == "page":
        why = f"Stopped from the live page after generation {generations}; this is the best so far."
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
    elif job.rules.reference is not None and front is not None and len(front):
        outside = int((sign * front.F >= job.rules.reference).any(axis=1).sum())
        if outside:
            why += (
                f" {outside} of the {len(front)} points on the front lie beyond the reference point "
                f"({', '.join(f'{sign * r:g}' for r in job.rules.reference)}) and add nothing to the hypervolume."
            )
    return why


def _facts(job: Job) -> Facts:
    """What the live page must know of a job."""
    return Facts(
        problem=job.problem,
        settings=_settings(job),
        population=job.population,
        evaluations=job.evaluations,
        generations=None if job.rules.generations == NEVER else int(job.rules.generations),
        contours=not job.blackbox and getattr(job.solvers[0], "game", None) is None,
    )


def _settings(job: Job) -> dict[str, Any]:
    """Everything needed to ask for the same again, as plain values."""
    limit = int(job.rules.generations)
    goal = job.rules.target
    return {
        "problem": job.problem.name,
        "algorithm": algorithms.name_of(job.solvers[0]),
        "hyperparameters": algorithms.settings_of(job.solvers[0]),
        "archive": job.solvers[0].size if isinstance(job.solvers[0], Archived) else None,
        "generations": None if limit == NEVER else limit,
        "target": (-goal if job.maximize or job.rules.reference is not None else goal) if math.isfinite(goal) else None,
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
