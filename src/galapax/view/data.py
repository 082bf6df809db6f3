"""What the figures show: worked out here once, drawn by plots (matplotlib) and by the report (SVG) alike.

Plain arrays and names; nothing here knows how it is drawn.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from galapax import problems
from galapax.core.errors import InputError
from galapax.core.problem import Described, Problem, unavailable
from galapax.measures.statistics import ecdf, ecdf_over_targets, log_targets
from galapax.results.result import History, Result, all_runs
from galapax.results.study import (
    best_known,
    comparison_sign,
    curves,
    has_curves,
    reference_value,
    scores,
    value_name,
)

TARGETS = 51  # of a problem, between its first value and its best known one
NORMAL = 1.96  # standard errors on either side that hold 95 %
MET = "worst value found"  # what a min-max search has of an x: another y may be worse
CHECKED = "worst case, checked"

FOUND, ENDED, FAILED = "found", "ended", "failed"


def verdict(result: Result) -> str:
    """What came of a run: it found what it was to find, or failed to, or ended with an answer that nothing judges."""
    if result.success:
        return FOUND
    return FAILED if not result.feasible or result.settings.get("target") is not None else ENDED


# --- names ------------------------------------------------------------------------------------------------------------


def method(result: Result) -> str:
    """The algorithm, and how its runs restarted, if they did."""
    name, restarts = str(result.settings["algorithm"]), result.settings.get("restarts")
    return name if restarts is None else f"{name} with restarts ({restarts})"


def problem_title(problem: Described) -> str:
    """The name of a problem and what it is."""
    name = "Unnamed function" if problem.name == "<lambda>" else problem.name
    return f"{name}: {problem.title}" if name and problem.title else problem.title or name


def title_of(result: Result) -> str:
    runs = f", {len(result.runs):,} runs" if result.runs is not None else ""
    return f"{problem_title(result.problem)} · {result.settings['algorithm']}{runs}"


def labels(problem: Described) -> list[str]:
    """Names of the variables, with their units where the problem has them."""
    return [problem.with_unit(name) for name in problem.variable_names()]


def objective_names(result: Result) -> list[str]:
    problem = result.problem
    if "F" not in result and problem.objectives is None:
        return ["objective"]
    return [problem.with_unit(name) for name in problem.objective_names(np.size(result.fun))]


def cell_name(labels: dict[str, Any]) -> str:
    """A cell of a sweep in words."""
    return ", ".join(f"{name} {v:.6g}" if isinstance(v, float) else f"{name} {v}" for name, v in labels.items())


def distance_name(value: str, known: bool) -> str:
    """What `gap` gives. value: as `Study.value` has it. known: whether the reference is the best known value."""
    if value == "hypervolume":
        return "hypervolume below " + ("the true front's" if known else "the best found")
    return f"distance to the best {'known value' if known else 'value found'}"


# --- distances, bands, scales -----------------------------------------------------------------------------------------


def gap(values: np.ndarray, reference: float) -> np.ndarray:
    """How far values, to be minimised, lie above a reference value; what is not finite stays as it is.

    Never less than the rounding of numbers of this size: it, and the tolerance on equalities, let a run end a hair
    below the published optimum.
    """
    if not math.isfinite(reference):  # no run found anything: there is nothing to measure from
        return values
    floor = np.finfo(np.float64).eps * max(1.0, abs(reference))
    return np.where(np.isfinite(values), np.maximum(values - reference, floor), values)


def bands(values: np.ndarray) -> np.ndarray:
    """Quantiles over the runs, generation by generation, where at least one run has a value: (5, G)."""
    out = np.full((5, values.shape[1]), np.nan)
    known = np.isfinite(values).any(axis=0)
    out[:, known] = np.nanquantile(values[:, known], (0, 0.25, 0.5, 0.75, 1), axis=0)
    return out


def wants_log(values: Any) -> bool:
    """Whether a logarithmic scale shows these values better: all positive, and over more than a magnitude."""
    drawn = np.asarray(values, np.float64)
    finite = drawn[np.isfinite(drawn)]
    return bool(finite.size and finite.min() > 0 and finite.max() > 20 * finite.min())


def known_value(result: Result) -> float | None:
    """The best known value, or of several objectives the true front's hypervolume; None of what is maximised."""
    known = best_known(result)
    return None if known is None else comparison_sign(result) * known


# --- one result -------------------------------------------------------------------------------------------------------


class Convergence(NamedTuple):
    """The best values of R runs by generation, and what is drawn of them."""

    generation: np.ndarray  # (G,)
    best: np.ndarray  # (R, G) of a feasible point, NaN before there is one
    values: np.ndarray  # (R, G) what is drawn: the distance to the best known value where there is one
    name: str  # of these values
    log: bool  # whether they are drawn on a logarithmic scale
    first_feasible: int | None  # the generation, where it is not the first
    margin: np.ndarray | None  # (R, G) half of the 95 % interval, where the values are estimates


def history_of(result: Result) -> History | None:
    """The values by generation of all runs."""
    return result.history if result.runs is None else result.runs.history


def panels(result: Result) -> list[int | None]:
    """The objectives that have a chart of their own; None for one of a single value, or of the hypervolume."""
    history = history_of(result)
    if "F" in result and (history is None or history.hypervolume is None):
        return list(range(np.size(result.fun)))
    return [None]


def convergence(result: Result, history: History, objective: int | None = None) -> Convergence:
    """How a result came to be, see `panels` for `objective`. history: that of all runs, or some of its generations."""
    several = np.ndim(result.fun) > 0
    volume = several and objective is None
    kept = history.hypervolume if volume else history.best if objective is None else history.best[..., objective]
    best = np.atleast_2d(np.asarray(kept, np.float64)).copy()
    if history.violation is not None:
        best[np.atleast_2d(history.violation) > 0] = np.nan  # a value that no feasible point has says nothing
    best[~np.isfinite(best)] = np.nan
    values, name = distance(result, best) if objective is None else (best, f"best {objective_names(result)[objective]}")
    known = np.asarray(np.isfinite(best).any(axis=0))
    late = history.violation is not None and known.any() and not known[0]
    first = int(history.generation[np.argmax(known)]) if late else None
    margin = None
    if volume and history.hypervolume_error is not None:
        margin = NORMAL * np.atleast_2d(np.asarray(history.hypervolume_error, np.float64))
    return Convergence(history.generation, best, values, name, wants_log(values), first, margin)


def distance(result: Result, best: np.ndarray) -> tuple[np.ndarray, str]:
    """What is drawn of the best values (or hypervolumes) of a result, and its name.

    The distance to the best known value, where there is one. Of a min-max search the value itself: x may have met no
    bad y yet, so that a value below the best known one is no sign of success.
    """
    if "worst_case" in result:
        return best, MET
    known, value = best_known(result), value_name(result)
    if known is None:
        return best, "best value" if value == "fun" else value
    return gap(comparison_sign(result) * best, known), distance_name(value, True)


class Shares(NamedTuple):
    """An empirical distribution: the share of runs that came to x or better."""

    x: np.ndarray
    share: np.ndarray
    name: str
    log: bool
    upward: bool  # whether more is better, so that the share falls


def final_shares(result: Result) -> Shares | None:
    """How the final values of the runs are distributed; None where no run has one."""
    runs = all_runs(result)
    if result.get("worst_cases") is not None:
        values, name = np.asarray(result.worst_cases, np.float64), CHECKED
    elif runs.fronts is not None:
        volumes = np.full(len(runs), np.nan) if runs.hypervolume is None else runs.hypervolume
        values, name = np.asarray(volumes, np.float64), "hypervolume"
    else:
        values, name = distance(result, np.where(runs.feasible, np.asarray(runs.fun, np.float64), np.nan))
        name = "final value" if name == "best value" else name
    if not np.isfinite(values).any():
        return None
    upward = comparison_sign(result) < 0
    x, share = ecdf(-values if upward else values)
    if upward:
        x, share = -x[::-1], share[::-1]
    return Shares(x, share, name, wants_log(values), upward)


class Hits(NamedTuple):
    """By evaluations, the share of runs that have reached a target, or of targets reached by the runs."""

    evaluations: np.ndarray
    share: np.ndarray
    name: str


def hits(result: Result) -> Hits | None:
    """How soon the runs of an ensemble succeed: with a target the share of runs that reached it, else the share of 51
    targets between the first value and the best one; None where that cannot be told.
    """
    runs, target = all_runs(result), result.settings.get("target")
    if len(runs) < 2 or runs.history is None or not has_curves(result) or "worst_case" in result:
        return None
    values = curves(result)
    nfev = np.broadcast_to(runs.history.nfev, values.shape)  # each run may count its own
    if target is not None:
        below = values <= comparison_sign(result) * float(target)
        at = np.sort(nfev[np.arange(len(runs)), below.argmax(axis=1)][below.any(axis=1)])
        if not len(at):
            return None
        share = np.arange(1, len(at) + 1) / len(runs)
        ends = float(max(runs.nfev.max(), at[-1]))
        return Hits(np.append(at, ends), np.append(share, share[-1]), "share of runs that reached the target")
    goals = targets_of(value_name(result), {"": result})
    if goals is None or runs.history.nfev.ndim > 1:
        return None
    return Hits(runs.history.nfev, ecdf_over_targets(values, runs.history.nfev, goals), "share of targets reached")


def front_ends(result: Result) -> list[int]:
    """The row of the front that is best in each objective."""
    return np.argmin(result.sign * np.asarray(result.F), axis=0).tolist()


def true_front(problem: Described, points: int) -> np.ndarray | None:
    """Points of the true front (k, m), where it is known."""
    known = with_functions(problem).front
    return None if known is None else np.asarray(known(points), np.float64)


def with_functions(problem: Described) -> Described:
    """A problem that was loaded from a file, with its functions again where it is a built-in one."""
    if not isinstance(problem, Problem) or problem.fun is not unavailable or problem.name not in problems.PROBLEMS:
        return problem
    for size in ({}, {"dim": problem.dim}):
        try:
            known = problems.get(problem.name, **size)
        except InputError:
            continue
        described = isinstance(known, Problem) and (known.title, known.source) == (problem.title, problem.source)
        if described and known.dim == problem.dim:
            same = np.array_equal(known.bounds.lower, problem.bounds.lower)
            if same and np.array_equal(known.bounds.upper, problem.bounds.upper):
                return known
    return problem


def targets_of(value: str, found: dict[str, Result]) -> np.ndarray | None:
    """The targets on one problem; None where there is nothing to reach, or no values by generation."""
    if not all(map(has_curves, found.values())):
        return None
    reference, _ = reference_of(found)
    begin = np.concatenate([curves(result)[:, 0] for result in found.values()])
    begin = begin[np.isfinite(begin)]
    if begin.size == 0:  # nothing feasible at first: count from the worst end
        begin = np.concatenate([scores(result) for result in found.values()])
        begin = begin[np.isfinite(begin)]
    start = float(np.median(begin)) if begin.size else np.nan
    if not start > reference:
        return None
    single = any(result.settings["dtype"] == "float32" for result in found.values())
    precision = 1e-4 if single else 1e-8
    if value == "hypervolume":
        precision = 1e-2  # n points cover a front to about 1 / n, however long they are given
    return log_targets(reference, start, precision=precision)


def reference_of(found: dict[str, Result]) -> tuple[float, bool]:
    """The value that distances are measured from, and whether it is the best known one."""
    results = list(found.values())
    return reference_value(results), best_known(results[0]) is not None
