"""A Result from what an engine gave."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax import algorithms
from galapax.algorithms.archive import Archived
from galapax.core.algorithm import Population
from galapax.core.errors import InputError
from galapax.core.problem import Bounds
from galapax.engines.loop import (
    NEVER,
    STALL,
    TARGET,
    Outcome,
    best_run,
)
from galapax.results.front import Front, choose, front_of, union
from galapax.results.result import History, Result, Runs
from galapax.running.task import Job
from galapax.version import __version__


@dataclass(frozen=True)
class Details:
    """What is worked out about an outcome while its precision is set: the best point, and of several objectives the
    fronts.
    """

    at_best: dict[str, np.ndarray]  # constraints at the best x
    derived: dict[str, Any]  # the problem's derived quantities at the best x, or on the front
    front: Front | None = None  # of all runs together
    fronts: list[Front] | None = None  # of each run


def details_of(job: Job, total: Outcome, constraints: Callable[[np.ndarray], dict[str, np.ndarray]]) -> Details:
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


def try_derived(job: Job, box: Bounds) -> None:
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


def result_of(job: Job, total: Outcome, survivors: Population, details: Details, timings: dict[str, float]) -> Result:
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
        settings=settings_of(job),
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


def settings_of(job: Job) -> dict[str, Any]:
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
