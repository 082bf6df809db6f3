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
from galapax.measures.statistics import describe, ecdf, ecdf_over_targets, log_targets, quantile_curves
from galapax.results.result import History, Result, all_runs
from galapax.results.study import (
    Study,
    best_known,
    curves,
    has_curves,
    reference_value,
    scores,
    sign_of,
    value_name,
)

TARGETS = 51  # of a problem, between its first value and its best known one
COLOURS, STROKES = 8, 4  # of their own, before curves share them
NORMAL = 1.96  # standard errors on either side that hold 95 %
BANDED = 6  # curves whose bands do not hide each other
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
    return None if known is None else sign_of(result) * known


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
    return gap(sign_of(result) * best, known), distance_name(value, True)


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
    upward = sign_of(result) < 0
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
        below = values <= sign_of(result) * float(target)
        at = np.sort(nfev[np.arange(len(runs)), below.argmax(axis=1)][below.any(axis=1)])
        if not len(at):
            return None
        share = np.arange(1, len(at) + 1) / len(runs)
        ends = float(max(runs.nfev.max(), at[-1]))
        return Hits(np.append(at, ends), np.append(share, share[-1]), "share of runs that reached the target")
    goals = _targets(value_name(result), {"": result})
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


# --- a study ----------------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """One curve of a study's figure."""

    label: str
    x: np.ndarray  # (G,)
    y: np.ndarray  # (G,) NaN where there is no value
    lower: np.ndarray | None  # (G,) of the band around it, if it has one
    upper: np.ndarray | None
    colour: float  # a whole number: one of the `COLOURS`; between 0 and 1: on a scale of as many as there are
    stroke: int  # one of the `STROKES`


class Panel(NamedTuple):
    """One figure of a study: the algorithms on a problem, or the settings of a sweep."""

    title: str
    across: str  # what x is
    known: bool  # whether distances are to the best known value, or to the best found
    name: str  # what y is
    curves: list[Curve]


def groups(study: Study) -> dict[str, dict[str, Result]]:
    """Results by label that share a figure: the algorithms on each problem, or all settings of a sweep."""
    if study.kind == "comparison":
        found = {name: study.along("algorithm", problem=name) for name in study.axes["problem"]}
        return {name: own for name, own in found.items() if own}
    return {"": {cell_name(labels): result for labels, result in study}}


def _style(study: Study, label: str, place: int) -> tuple[float, int]:
    """Colour and stroke of a curve; in a sweep the first axis has the colours and the others the strokes."""
    if study.kind == "comparison":
        place = [str(a) for a in study.axes["algorithm"]].index(label)
        return place % COLOURS, place // COLOURS % STROKES
    first, *others = study.axes.values()
    strokes = max(1, math.prod(len(v) for v in others))
    row = place // strokes % len(first)
    colour = row if len(first) <= COLOURS else 0.001 + 0.998 * row / (len(first) - 1)
    return colour, place % strokes % STROKES


def study_convergence(study: Study) -> list[Panel]:
    """The distance to the best value by evaluations, or in a sweep by generation: median and middle half of the runs.

    Where many curves share a figure they have no bands. A figure without a curve is of results that kept no values by
    generation.
    """
    across = "evaluations" if study.kind == "comparison" else "generation"
    out = []
    for title, found in groups(study).items():
        reference, known = _reference(found)
        drawn = []
        for place, (label, result) in enumerate(found.items()):
            history = all_runs(result).history
            if history is None or not has_curves(result):
                continue
            distances = gap(curves(result), reference)
            lower, middle, upper = (_finite(c) for c in quantile_curves(distances, (0.25, 0.5, 0.75)))
            x = history.nfev if study.kind == "comparison" else history.generation
            few = len(found) <= BANDED
            band = {"lower": lower if few else None, "upper": upper if few else None}
            colour, stroke = _style(study, label, place)
            drawn.append(Curve(label, x, middle, **band, colour=colour, stroke=stroke))
        out.append(Panel(title, across, known, distance_name(study.value, known), drawn))
    return out


def study_ends(study: Study) -> list[Panel]:
    """The share of runs that ended at least as close. A figure without a curve is of runs that found nothing."""
    out = []
    for title, found in groups(study).items():
        reference, known = _reference(found)
        drawn = []
        for place, (label, result) in enumerate(found.items()):
            x, share = ecdf(gap(scores(result), reference))
            drawn.append(Curve(label, x, share, None, None, *_style(study, label, place)))
        found_any = any(len(curve.x) for curve in drawn)
        out.append(Panel(title, distance_name(study.value, known), known, "share of runs", drawn if found_any else []))
    return out


class HeatMap(NamedTuple):
    """The median of the runs over two hyper-parameters."""

    title: str
    across: str
    up: str
    columns: list[str]
    rows: list[str]
    values: np.ndarray  # (rows, columns), NaN where there is none
    name: str
    log: bool


def heat_map(study: Study) -> HeatMap:
    """Of a sweep over two hyper-parameters; of more, the best median over the others."""
    if study.kind != "sweep" or len(study.axes) < 2:
        raise InputError("a heat map needs a sweep over two hyper-parameters.")
    (up, rows), (across, columns) = list(study.axes.items())[:2]
    reference, known = _reference({cell_name(labels): result for labels, result in study})
    values = np.full((len(rows), len(columns)), np.nan)
    for labels, result in study:
        where = rows.index(labels[up]), columns.index(labels[across])
        median = describe(gap(scores(result), reference))["median"]
        values[where] = np.fmin(values[where], median)
    name = f"median {distance_name(study.value, known)}"
    texts = [[f"{v:.6g}" if isinstance(v, float) else str(v) for v in values_] for values_ in (columns, rows)]
    title = f"{study.results[0].problem.name} · {study.results[0].settings['algorithm']}"
    return HeatMap(title, across, up, texts[0], texts[1], values, name, wants_log(values))


def running_times(study: Study) -> Panel:
    """The share of targets reached by evaluations, see `target_shares`; the title says how many problems count."""
    shares = target_shares(study)
    counted = sum(all(map(has_curves, found.values())) for found in groups(study).values())
    title = f"{counted} problem{'s' * (counted != 1)}, {TARGETS} targets each" if counted else ""
    drawn = [
        Curve(label, nfev, share, None, None, *_style(study, label, place))
        for place, (label, (nfev, share)) in enumerate(shares.items())
    ]
    return Panel(title, "evaluations", True, "share of targets reached", drawn)


def target_shares(study: Study) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each algorithm, or each setting of a sweep: evaluations, and the share of targets reached by then.

    The empirical distribution of running times over all problems and runs, with 51 targets a problem between its first
    value and its best known one, evenly on a logarithmic scale.
    """
    shares: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for found in groups(study).values():
        targets = _targets(study.value, found)
        if targets is None:
            continue
        for label, result in found.items():
            history = all_runs(result).history
            assert history is not None
            share = ecdf_over_targets(curves(result), history.nfev, targets)
            shares.setdefault(label, []).append((history.nfev, share))
    return {label: _averaged(parts) for label, parts in shares.items()}


def _targets(value: str, found: dict[str, Result]) -> np.ndarray | None:
    """The targets on one problem; None where there is nothing to reach, or no values by generation."""
    if not all(map(has_curves, found.values())):
        return None
    reference, _ = _reference(found)
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


def _averaged(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The mean of step functions (x, y), at the steps of the one that has most."""
    steps = max((nfev for nfev, _ in parts), key=len)
    total = np.zeros(len(steps))
    for nfev, share in parts:
        at = np.searchsorted(nfev, steps, side="right") - 1
        total += np.where(at >= 0, share[np.maximum(at, 0)], 0.0)
    return steps, total / len(parts)


def _reference(found: dict[str, Result]) -> tuple[float, bool]:
    """The value that distances are measured from, and whether it is the best known one."""
    results = list(found.values())
    return reference_value(results), best_known(results[0]) is not None


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
