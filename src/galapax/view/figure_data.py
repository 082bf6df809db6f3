"""The data of all figures, computed once and drawn by plots/ (matplotlib) and by report/ (SVG) alike.

Plain arrays and names; nothing here knows how it is drawn.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from galapax import problems
from galapax.core.errors import InputError
from galapax.core.problem import Problem, ProblemDescription, missing_function
from galapax.metrics.indicators import moocore
from galapax.metrics.statistics import (
    by_evaluations,
    critical_difference,
    describe,
    ecdf,
    ecdf_over_targets,
    hits,
    log_targets,
    quantile_curves,
)
from galapax.results.result import History, Result, Robust, all_runs, has_cells
from galapax.results.study import (
    SIGNIFICANCE_LEVEL,
    Labels,
    Study,
    best_known,
    comparison_sign,
    curves,
    has_curves,
    reference_value,
    scores,
    value_name,
)
from galapax.view import maps

MAX_MARKED_RESTARTS = 60  # of a run, in a chart
RESTART_NAME = "restart"
REFINEMENT_NAME = "gradient refinement"  # the polish, as charts call it
ZERO_NAME = "value of exactly 0"  # which a logarithmic scale does not show
N_TARGETS = 51  # of a problem, between its first value and its best known one
Z_95 = 1.96  # standard errors on either side of a 95 % confidence interval
MEAN_NAME = "mean at x, estimated"  # of a random objective
INTERVAL_NAME = "its 95 % interval"
WORST_FOUND_NAME = "worst value found"  # of an x in a min-max search: another y may be worse
WORST_CHECKED_NAME = "worst case, checked"

VERDICT_FOUND, VERDICT_ENDED, VERDICT_FAILED = "found", "ended", "failed"


def robust_reports(result: Result) -> tuple[Robust, ...]:
    """Return what fresh samples say of a robust answer, for each measure; nothing of other answers."""
    reports = result.get("robust", ())
    reports = (reports,) if isinstance(reports, Robust) else reports
    return tuple(report for report in reports if len(report.outcomes))


def robust_rows(result: Result) -> list[tuple[str, str]]:
    """Return what fresh samples say of a robust answer, as names and texts."""
    rows = []
    reports = robust_reports(result)
    for report in reports:
        rows.append((f"{report.measure} in fresh samples", f"{report.value:.8g}"))
        rows.append((INTERVAL_NAME, format_interval(report.interval)))
    for report in reports[:1]:
        low, middle, high = (f"{report.outcomes[percent]:.6g}" for percent in (5, 50, 95))
        rows.append(("outcomes at x: 5 %, median, 95 %", f"{low}, {middle}, {high}"))
        if report.probability is not None and report.probability_interval is not None:
            rows.append(("probability of keeping the constraints", f"{report.probability:.4g}"))
            rows.append((INTERVAL_NAME, format_interval(report.probability_interval)))
    return rows


def format_interval(interval: np.ndarray) -> str:
    """Format a confidence interval; without fresh evaluations there is none."""
    if not np.isfinite(interval).all():
        return "unknown: x was not evaluated again"
    return f"{interval[0]:.6g} to {interval[1]:.6g}"


def verdict(result: Result) -> str:
    """Classify a result: it succeeded, it failed (infeasible, or target missed), or it ended without a criterion."""
    if result.success:
        return VERDICT_FOUND
    return VERDICT_FAILED if not result.feasible or result.settings.get("target") is not None else VERDICT_ENDED


# --- names ------------------------------------------------------------------------------------------------------------


def method(result: Result) -> str:
    """The algorithm, and how its runs restarted, if they did."""
    name, restarts = str(result.settings["algorithm"]), result.settings.get("restarts")
    return name if restarts is None else f"{name} with restarts ({restarts})"


def problem_title(problem: ProblemDescription) -> str:
    """The name of a problem and its title."""
    name = "Unnamed function" if problem.name == "<lambda>" else problem.name
    return f"{name}: {problem.title}" if name and problem.title else problem.title or name


def result_title(result: Result) -> str:
    runs = f", {len(result.runs):,} runs" if result.runs is not None else ""
    return f"{problem_title(result.problem)} · {result.settings['algorithm']}{runs}"


def labels(problem: ProblemDescription) -> list[str]:
    """Names of the variables, with their units where the problem has them."""
    return [problem.with_unit(name) for name in problem.variable_names()]


def objective_names(result: Result) -> list[str]:
    problem = result.problem
    if "F" not in result and problem.objectives is None:
        return ["objective"]
    return [problem.with_unit(name) for name in problem.objective_names(np.size(result.fun))]


def cell_name(labels: Labels) -> str:
    """Name a cell of a sweep by its hyper-parameters."""
    return ", ".join(f"{name} {v:.6g}" if isinstance(v, float) else f"{name} {v}" for name, v in labels.items())


def distance_name(value: str, is_known: bool) -> str:
    """The axis label of `distance_above`. value: as `Study.value`. is_known: the reference is the best known value."""
    if value == "hypervolume":
        return "hypervolume below " + ("the true front's" if is_known else "the best found")
    return f"distance to the best {'known value' if is_known else 'value found'}"


# --- distances, bands, scales -----------------------------------------------------------------------------------------


def distance_above(values: np.ndarray, reference: float) -> np.ndarray:
    """The distance of values, to be minimised, above a reference value; what is not finite stays as it is.

    Never less than the rounding of numbers of this size: it, and the tolerance on equalities, let a run end a hair
    below the published optimum.
    """
    if not math.isfinite(reference):  # no run found anything: there is nothing to measure from
        return values
    floor = np.finfo(np.float64).eps * max(1.0, abs(reference))
    return np.where(np.isfinite(values), np.maximum(values - reference, floor), values)


def quantile_bands(values: np.ndarray) -> np.ndarray:
    """Quantiles over the runs, generation by generation, where at least one run has a value: (5, G)."""
    out = np.full((5, values.shape[1]), np.nan)
    has_value = np.isfinite(values).any(axis=0)
    out[:, has_value] = np.nanquantile(values[:, has_value], (0, 0.25, 0.5, 0.75, 1), axis=0)
    return out


def needs_log_scale(values: ArrayLike) -> bool:
    """Whether a logarithmic scale shows these values better: all positive, and over more than a magnitude."""
    array = np.asarray(values, np.float64)
    finite = array[np.isfinite(array)]
    return bool(finite.size and finite.min() > 0 and finite.max() > 20 * finite.min())


def reaches_zero_on_log_scale(values: np.ndarray) -> bool:
    """Whether values would be drawn on a logarithmic scale if they did not come to exactly 0, where a curve may end."""
    return bool((values == 0).any() and not (values < 0).any() and needs_log_scale(values[values > 0]))


def known_value(result: Result) -> float | None:
    """The best known value, or of several objectives the true front's hypervolume; None of what is maximised."""
    optimum = best_known(result)
    return None if optimum is None else comparison_sign(result) * optimum


# --- one result -------------------------------------------------------------------------------------------------------


class Convergence(NamedTuple):
    """The convergence of R runs: the best values by generation, and the values to draw."""

    generation: np.ndarray  # (G,)
    best: np.ndarray  # (R, G) of a feasible point, NaN before there is one
    values: np.ndarray  # (R, G) what is drawn: the distance to the best known value where there is one
    name: str  # of these values
    log: bool  # whether they are drawn on a logarithmic scale
    first_feasible: int | None  # the generation, where it is not the first
    margin: np.ndarray | None  # (R, G) half of the 95 % interval, where the values are estimates
    refinements: list[int]  # entries of `generation` that are gradient refinements and not generations
    restarts: list[int]  # generations of a single run with which a further search began
    zero: int | None = None  # on a logarithmic scale, the generation where the (median) value comes to exactly 0

    def events(self) -> dict[str, list[int]]:
        """Generations to mark, by what happened there."""
        firsts = (("first feasible", self.first_feasible), (ZERO_NAME, self.zero))
        events = {name: [] if generation is None else [generation] for name, generation in firsts}
        return events | {RESTART_NAME: self.restarts, REFINEMENT_NAME: self.refinements}


def ensemble_history(result: Result) -> History | None:
    """The history of all runs of an ensemble, or of the single run."""
    return result.history if result.runs is None else result.runs.history


def panels(result: Result) -> list[int | None]:
    """The objectives that have a chart of their own; None for one of a single value, or of the hypervolume."""
    history = ensemble_history(result)
    if has_cells(result):
        return [0]  # the other values are measures
    if "F" in result and (history is None or history.hypervolume is None):
        return list(range(np.size(result.fun)))
    return [None]


def convergence(result: Result, history: History, objective: int | None = None) -> Convergence:
    """Compute the convergence of a result. objective: see `panels`. history: of all runs, perhaps thinned."""
    is_multi_objective = np.ndim(result.fun) > 0
    is_hypervolume = is_multi_objective and objective is None
    history_values = (
        history.hypervolume if is_hypervolume else history.best if objective is None else history.best[..., objective]
    )
    best = np.atleast_2d(np.asarray(history_values, np.float64)).copy()
    if history.violation is not None:
        best[np.atleast_2d(history.violation) > 0] = np.nan  # a value that no feasible point has says nothing
    best[~np.isfinite(best)] = np.nan
    values, name = distance(result, best) if objective is None else (best, f"best {objective_names(result)[objective]}")
    has_value = np.asarray(np.isfinite(best).any(axis=0))
    starts_infeasible = history.violation is not None and has_value.any() and not has_value[0]
    first = int(history.generation[np.argmax(has_value)]) if starts_infeasible else None
    margin = None
    if is_hypervolume and history.hypervolume_error is not None:
        margin = Z_95 * np.atleast_2d(np.asarray(history.hypervolume_error, np.float64))
    ends_at_zero = reaches_zero_on_log_scale(values)
    is_zero = quantile_bands(values)[2] == 0 if ends_at_zero else np.zeros(len(history), bool)
    return Convergence(
        history.generation,
        best,
        values,
        name,
        ends_at_zero or needs_log_scale(values),
        first,
        margin,
        refinement_generations(result),
        restart_generations(result),
        int(history.generation[np.argmax(is_zero)]) if is_zero.any() else None,
    )


def refinement_generations(result: Result) -> list[int]:
    """The entries of the history's generations that are refinements by the gradient.

    Those of a single run; of an ensemble the last one, after all generations, where most runs have theirs.
    """
    history = ensemble_history(result)
    if result.runs is None or history is None:
        return list(result.get("refinements", []))
    return [len(history)] if len(history) > result.runs.nit.max() else []


class EvaluatedPoints(NamedTuple):
    """What a black box returned for a run of one objective, point by point in the order of the evaluations."""

    rows: np.ndarray  # (n,) of result.evaluations
    values: np.ndarray  # (n,) as the convergence is drawn; NaN for a failure
    infeasible: np.ndarray  # (n,) bool
    best: np.ndarray  # (n,) the best of the feasible ones so far, NaN before there is one
    name: str  # of these values
    log: bool  # whether they are drawn on a logarithmic scale


def has_population(result: Result) -> bool:
    """Whether there is more than one individual to show: a search by models goes from point to point."""
    return len(result.population) > 1 or "minima" in result


def evaluated_points(result: Result) -> EvaluatedPoints | None:
    """The evaluations of a black box, of an ensemble those of its best run; None where there are none to draw."""
    if "evaluations" not in result or np.ndim(result.fun) or "minima" in result:
        return None
    evaluations, runs = result.evaluations, all_runs(result)
    best_run = runs.number[maps.best_run_row(result)]
    rows = np.flatnonzero((evaluations.run < 0) | (evaluations.run == best_run))
    values = np.asarray(evaluations.fun, np.float64)[rows]
    values = np.where(evaluations.failed[rows] | ~np.isfinite(values), np.nan, values)
    if not np.isfinite(values).any():
        return None
    infeasible = np.zeros(len(rows), bool) if evaluations.violation is None else ~(evaluations.violation[rows] <= 0)
    best = np.where(infeasible | np.isnan(values), np.inf, result.sign * values)
    best, name = distance(result, _inf_to_nan(result.sign * np.minimum.accumulate(best)))
    name = objective_names(result)[0] if best_known(result) is None else name
    is_log = needs_log_scale(best) or reaches_zero_on_log_scale(best)
    return EvaluatedPoints(rows, distance(result, values)[0], infeasible, best, name, is_log)


def restart_generations(result: Result) -> list[int]:
    """The generations with which a further search began; those of a single run, the latest if they are many."""
    return [] if result.runs is not None else list(result.get("restarted", []))[-MAX_MARKED_RESTARTS:]


def distance(result: Result, best: np.ndarray) -> tuple[np.ndarray, str]:
    """The values to draw for the best values (or hypervolumes) of a result, and their name.

    The distance to the best known value, where there is one. Of a min-max search the value itself: x may have met no
    bad y yet, so that a value below the best known one is no sign of success.
    """
    if "worst_case" in result:
        return best, WORST_FOUND_NAME
    optimum, value = best_known(result), value_name(result)
    if optimum is None:
        return best, "best value" if value == "fun" else value
    return distance_above(comparison_sign(result) * best, optimum), distance_name(value, True)


class Curve(NamedTuple):
    """One curve of a panel."""

    label: str
    x: np.ndarray  # (G,)
    y: np.ndarray  # (G,) NaN where there is no value
    lower: np.ndarray | None = None  # (G,) of the band around it, if it has one
    upper: np.ndarray | None = None
    colour: float = 0  # a whole number: below `N_COLOURS`; between 0 and 1: on a scale of as many as there are
    stroke: int = 0  # below `N_LINE_STYLES`


class Panel(NamedTuple):
    """A chart of curves: of a result's runs, of the algorithms on a problem, or of the settings of a sweep."""

    title: str
    across: str  # what x is
    name: str  # what y is
    curves: list[Curve]
    log_x: bool = False
    log_y: bool = False
    step: str = ""  # of shares, which hold until the next value: "all" from 0 upwards, "before" downwards to 0


def final_shares(result: Result) -> Panel | None:
    """The share of runs whose final value is at least as good; None where no run has one."""
    runs = all_runs(result)
    if result.get("worst_cases") is not None:
        values, name = np.asarray(result.worst_cases, np.float64), WORST_CHECKED_NAME
    elif runs.fronts is not None:
        volumes = np.full(len(runs), np.nan) if runs.hypervolume is None else runs.hypervolume
        values, name = np.asarray(volumes, np.float64), "hypervolume"
    else:
        values, name = distance(result, np.where(runs.feasible, np.asarray(runs.fun, np.float64), np.nan))
        name = "final value" if name == "best value" else name
    if not np.isfinite(values).any():
        return None
    sign = comparison_sign(result)
    x, share = ecdf(sign * values)
    step = "all"
    if sign < 0:  # more is better, so that the share falls
        x, share, step = -x[::-1], share[::-1], "before"
    name_y, title = "share of runs at least as good", "Distribution of the final values"
    return Panel(title, name, name_y, [Curve("runs", x, share)], needs_log_scale(values), step=step)


def target_hits(result: Result) -> Panel | None:
    """The running-time distribution of an ensemble; None where there are no values by generation.

    With a target the share of runs that reached it, else the share of 51 targets between the first value and the best.
    """
    runs, target = all_runs(result), result.settings.get("target")
    if len(runs) < 2 or runs.history is None or not has_curves(result) or "worst_case" in result:
        return None
    values = curves(result)
    if target is not None:
        nfev, share = ecdf(hits(values, runs.history.nfev, comparison_sign(result) * float(target)))
        if not len(nfev):
            return None
        nfev, share = np.append(nfev, max(runs.nfev.max(), nfev[-1])), np.append(share, share[-1])
        return _running_time_panel(nfev, share, "share of runs that reached the target")
    targets = problem_targets(value_name(result), {"": result})
    if targets is None or runs.history.nfev.ndim > 1:
        return None
    shares = ecdf_over_targets(values, runs.history.nfev, targets)
    return _running_time_panel(runs.history.nfev, shares, "share of targets reached")


def _running_time_panel(nfev: np.ndarray, share: np.ndarray, name: str) -> Panel:
    title, across = "Evaluations until success", "evaluations of a run"
    return Panel(title, across, name, [Curve("runs", nfev, share)], log_x=True, step="all")


def front_ends(result: Result) -> list[int]:
    """The row of the front that is best in each objective."""
    return np.argmin(result.signs * np.asarray(result.F), axis=0).tolist()


def true_front(problem: ProblemDescription, points: int) -> np.ndarray | None:
    """Points of the true front (k, m), where it is known."""
    front = restore_functions(problem).front
    return None if front is None else np.asarray(front(points), np.float64)


def restore_functions(problem: ProblemDescription) -> ProblemDescription:
    """Give a problem that was loaded from a file its functions again, where it is a built-in one."""
    if not isinstance(problem, Problem) or problem.fun is not missing_function or problem.name not in problems.PROBLEMS:
        return problem
    for size in ({}, {"dim": problem.dim}):
        try:
            builtin = problems.get(problem.name, **size)
        except InputError:
            continue
        is_same = isinstance(builtin, Problem) and (builtin.title, builtin.source) == (problem.title, problem.source)
        if is_same and builtin.dim == problem.dim:
            is_same_lower = np.array_equal(builtin.bounds.lower, problem.bounds.lower)
            if is_same_lower and np.array_equal(builtin.bounds.upper, problem.bounds.upper):
                return builtin
    return problem


def problem_targets(value: str, results: dict[str, Result]) -> np.ndarray | None:
    """The targets on one problem; None where there is nothing to reach, or no values by generation."""
    if not all(map(has_curves, results.values())):
        return None
    reference, _ = reference_value_of(results)
    first_values = np.concatenate([curves(result)[:, 0] for result in results.values()])
    first_values = first_values[np.isfinite(first_values)]
    if first_values.size == 0:  # nothing feasible at first: count from the worst end
        first_values = np.concatenate([scores(result) for result in results.values()])
        first_values = first_values[np.isfinite(first_values)]
    start = float(np.median(first_values)) if first_values.size else np.nan
    if not start > reference:
        return None
    is_float32 = any(result.settings["dtype"] == "float32" for result in results.values())
    precision = 1e-4 if is_float32 else 1e-8
    if value == "hypervolume":
        precision = 1e-2  # n points cover a front to about 1 / n, however long they are given
    return log_targets(reference, start, precision=precision)


def reference_value_of(by_label: dict[str, Result]) -> tuple[float, bool]:
    """The value that distances are measured from, and whether it is the best known one."""
    results = list(by_label.values())
    return reference_value(results), best_known(results[0]) is not None


# --- studies ----------------------------------------------------------------------------------------------------------

N_COLOURS, N_LINE_STYLES = 8, 4  # of their own, before curves share them
MAX_BANDED_CURVES = 6  # bands of more curves would hide each other


def results_by_panel(study: Study) -> dict[str, dict[str, Result]]:
    """Group results, by label, that share a panel: the algorithms on each problem, or all settings of a sweep."""
    if study.kind == "comparison":
        panels = {name: study.along("algorithm", problem=name) for name in study.axes["problem"]}
        return {name: results for name, results in panels.items() if results}
    return {"": {cell_name(labels): result for labels, result in study}}


def _curve_style(study: Study, label: str, index: int) -> tuple[float, int]:
    """Colour and stroke of a curve; in a sweep the first axis has the colours and the others the strokes."""
    if study.kind == "comparison":
        index = [str(a) for a in study.axes["algorithm"]].index(label)
        return index % N_COLOURS, index // N_COLOURS % N_LINE_STYLES
    first, *others = study.axes.values()
    strokes = max(1, math.prod(len(v) for v in others))
    row = index // strokes % len(first)
    colour = row if len(first) <= N_COLOURS else 0.001 + 0.998 * row / (len(first) - 1)
    return colour, index % strokes % N_LINE_STYLES


def study_convergence(study: Study) -> list[Panel]:
    """The distance to the best value by evaluations, or in a sweep by generation: median and middle half of the runs.

    Where many curves share a figure they have no bands. A figure without a curve is of results that kept no values by
    generation.
    """
    across = "evaluations" if study.kind == "comparison" else "generation"
    out = []
    for title, results in results_by_panel(study).items():
        reference, is_known = reference_value_of(results)
        panel_curves = []
        for index, (label, result) in enumerate(results.items()):
            history = all_runs(result).history
            if history is None or not has_curves(result):
                continue
            distances, x = distance_above(curves(result), reference), history.generation
            if study.kind == "comparison":
                x, distances = by_evaluations(distances, history.nfev)
            lower, median, upper = (_inf_to_nan(c) for c in quantile_curves(distances, (0.25, 0.5, 0.75)))
            has_bands = len(results) <= MAX_BANDED_CURVES
            band = {"lower": lower if has_bands else None, "upper": upper if has_bands else None}
            colour, stroke = _curve_style(study, label, index)
            panel_curves.append(Curve(label, x, median, **band, colour=colour, stroke=stroke))
        log = any((curve.y > 0).any() for curve in panel_curves)  # as distances are shown everywhere
        name = distance_name(study.value, is_known)
        out.append(Panel(title, across, name, panel_curves, log_y=log))
    return out


def study_final_values(study: Study) -> list[Panel]:
    """The share of runs that ended at least as close. A figure without a curve is of runs that found nothing."""
    out = []
    for title, results in results_by_panel(study).items():
        reference, is_known = reference_value_of(results)
        panel_curves = []
        for index, (label, result) in enumerate(results.items()):
            x, share = ecdf(distance_above(scores(result), reference))
            panel_curves.append(Curve(label, x, share, None, None, *_curve_style(study, label, index)))
        values = np.concatenate([curve.x for curve in panel_curves])
        across, log = distance_name(study.value, is_known), needs_log_scale(values)
        out.append(Panel(title, across, "share of runs", panel_curves if len(values) else [], log, step="all"))
    return out


MAX_IMPORTANCE_VARIABLES = 50  # of which a report has the importances: more take seconds


class CriticalDifference(NamedTuple):
    """Average ranks of algorithms over problems, and which do not differ significantly."""

    names: list[str]  # the best first
    ranks: np.ndarray  # (k,) ascending
    difference: float  # that is significant
    groups: list[tuple[int, int]]  # first and last of algorithms in a row that do not differ; none within another
    n_problems: int
    p: float  # of Friedman's test


def has_ranks(study: Study) -> bool:
    """Whether every algorithm was run on every problem, two of each at least."""
    sizes = [len(values) for values in study.axes.values()]
    return study.kind == "comparison" and min(sizes) > 1 and len(study) == math.prod(sizes)


def study_ranks(study: Study) -> CriticalDifference:
    """Compute the average ranks of a comparison and their critical difference (Nemenyi)."""
    if not has_ranks(study):
        raise InputError(
            "average ranks need a comparison of at least two algorithms on at least two problems, every algorithm on "
            f"every problem; this study has {study.extent}. {study.message if study.stop.early else ''}".rstrip()
        )
    test, names = study.ranks(), [str(name) for name in study.axes["algorithm"]]
    order = np.argsort(test.average_ranks, kind="stable")
    ranks, n_problems = test.average_ranks[order], len(study.axes["problem"])
    difference = critical_difference(n_problems, len(names), SIGNIFICANCE_LEVEL)
    last = np.searchsorted(ranks, ranks + difference, side="right") - 1  # of the group that begins with each
    is_new = np.diff(last, prepend=-1) > 0
    groups = [(first, int(last[first])) for first in np.flatnonzero(is_new & (last > np.arange(len(last)))).tolist()]
    return CriticalDifference([names[i] for i in order], ranks, difference, groups, n_problems, test.p)


class Attainment(NamedTuple):
    """One attainment surface: the border of what this share of the runs dominates."""

    label: str
    x: np.ndarray  # (k,) corners of the surface, ascending
    y: np.ndarray
    colour: int


def attainment(results: dict[str, Result], shares: Sequence[float]) -> list[Attainment]:
    """Compute empirical attainment surfaces (Grunert da Fonseca et al. 2001), of each result at each share of its runs.

    With several results the colour tells them apart, else the share.
    """
    out = []
    for i, (label, result) in enumerate(results.items()):
        fronts, signs = all_runs(result).fronts, result.signs
        if fronts is None or len(signs) != 2:
            raise InputError("attainment surfaces are of two objectives.")
        sets = [signs * np.asarray(front.F, np.float64) for front in fronts if len(front)]
        if not sets:
            continue
        points = np.concatenate(sets)
        numbers = np.repeat(np.arange(len(sets)), [len(front) for front in sets])
        levels = [100 * share * len(fronts) / len(sets) for share in shares]  # runs without a front attain nothing
        reached = [level for level in levels if level <= 100]
        surfaces = moocore("attainment surfaces").eaf(points, numbers, percentiles=reached)
        for k, (level, share) in enumerate(zip(levels, shares, strict=True)):
            is_level = np.isclose(surfaces[:, 2], level) & (level <= 100)
            corners = signs * surfaces[is_level, :2]
            corners = corners[np.argsort(corners[:, 0])]
            name = f"{share:.0%} of the runs" if not label else label if len(shares) == 1 else f"{label}, {share:.0%}"
            out.append(Attainment(name, corners[:, 0], corners[:, 1], i if len(results) > 1 else k))
    return out


def importances(result: Result, objective: int = 0) -> tuple[dict[str, float], str]:
    """How much each variable matters, and why the evaluations do not say, where that may surprise.

    Empty of what is no black box, or has too few evaluations or too many variables.
    """
    if result.problem.dim > MAX_IMPORTANCE_VARIABLES:
        return {}, ""
    try:
        with warnings.catch_warnings(action="error"):
            return result.importances(objective), ""
    except InputError:
        return {}, ""
    except UserWarning as doubt:
        return {}, str(doubt)


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


def study_heat_map(study: Study) -> HeatMap:
    """Compute the heat map of a sweep over two hyper-parameters; of more, the best median over the others."""
    if study.kind != "sweep" or len(study.axes) < 2:
        raise InputError("a heat map needs a sweep over two hyper-parameters.")
    (up, rows), (across, columns) = list(study.axes.items())[:2]
    reference, is_known = reference_value_of({cell_name(labels): result for labels, result in study})
    values = np.full((len(rows), len(columns)), np.nan)
    for labels, result in study:
        cell = rows.index(labels[up]), columns.index(labels[across])
        median = describe(distance_above(scores(result), reference))["median"]
        values[cell] = np.fmin(values[cell], median)
    name = f"median {distance_name(study.value, is_known)}"
    texts = [[f"{v:.6g}" if isinstance(v, float) else str(v) for v in axis_values] for axis_values in (columns, rows)]
    title = f"{study.results[0].problem.name} · {study.results[0].settings['algorithm']}"
    return HeatMap(title, across, up, texts[0], texts[1], values, name, needs_log_scale(values))


def running_times(study: Study) -> Panel:
    """The share of targets reached by evaluations, see `target_shares`; the title says how many problems count."""
    shares = target_shares(study)
    n_problems = sum(all(map(has_curves, results.values())) for results in results_by_panel(study).values())
    title = f"{n_problems} problem{'s' * (n_problems != 1)}, {N_TARGETS} targets each" if n_problems else ""
    panel_curves = [
        Curve(label, nfev, share, None, None, *_curve_style(study, label, index))
        for index, (label, (nfev, share)) in enumerate(shares.items())
    ]
    return Panel(title, "evaluations", "share of targets reached", panel_curves, log_x=True, step="all")


def target_shares(study: Study) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each algorithm, or each setting of a sweep: evaluations, and the share of targets reached by then.

    The empirical distribution of running times over all problems and runs, with 51 targets a problem between its first
    value and its best known one, evenly on a logarithmic scale.
    """
    shares: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for results in results_by_panel(study).values():
        targets = problem_targets(study.value, results)
        if targets is None:
            continue
        for label, result in results.items():
            history = all_runs(result).history
            assert history is not None
            nfev, best = by_evaluations(curves(result), history.nfev)
            shares.setdefault(label, []).append((nfev, ecdf_over_targets(best, nfev, targets)))
    return {label: _average_steps(step_functions) for label, step_functions in shares.items()}


def _average_steps(step_functions: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Average step functions (x, y), at the steps of the one that has most."""
    steps = max((nfev for nfev, _ in step_functions), key=len)
    total = np.zeros(len(steps))
    for nfev, share in step_functions:
        index = np.searchsorted(nfev, steps, side="right") - 1
        total += np.where(index >= 0, share[np.maximum(index, 0)], 0.0)
    return steps, total / len(step_functions)


def _inf_to_nan(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
