"""What the figures of studies show: worked out here once, drawn by plots (matplotlib) and by the report (SVG) alike."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from galapax.core.errors import InputError
from galapax.measures.statistics import by_evaluations, describe, ecdf, ecdf_over_targets, quantile_curves
from galapax.results.result import Result, all_runs
from galapax.results.study import Study, curves, has_curves, scores
from galapax.view.data import TARGETS, cell_name, distance_name, gap, reference_of, targets_of, wants_log

COLOURS, STROKES = 8, 4  # of their own, before curves share them
BANDED = 6  # curves whose bands do not hide each other


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
        reference, known = reference_of(found)
        drawn = []
        for place, (label, result) in enumerate(found.items()):
            history = all_runs(result).history
            if history is None or not has_curves(result):
                continue
            distances, x = gap(curves(result), reference), history.generation
            if study.kind == "comparison":
                x, distances = by_evaluations(distances, history.nfev)
            lower, middle, upper = (_finite(c) for c in quantile_curves(distances, (0.25, 0.5, 0.75)))
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
        reference, known = reference_of(found)
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
    reference, known = reference_of({cell_name(labels): result for labels, result in study})
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
        targets = targets_of(study.value, found)
        if targets is None:
            continue
        for label, result in found.items():
            history = all_runs(result).history
            assert history is not None
            nfev, best = by_evaluations(curves(result), history.nfev)
            shares.setdefault(label, []).append((nfev, ecdf_over_targets(best, nfev, targets)))
    return {label: _averaged(parts) for label, parts in shares.items()}


def _averaged(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The mean of step functions (x, y), at the steps of the one that has most."""
    steps = max((nfev for nfev, _ in parts), key=len)
    total = np.zeros(len(steps))
    for nfev, share in parts:
        at = np.searchsorted(nfev, steps, side="right") - 1
        total += np.where(at >= 0, share[np.maximum(at, 0)], 0.0)
    return steps, total / len(parts)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
