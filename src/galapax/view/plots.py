"""Pictures of results, with matplotlib. Each function returns a Figure; nothing is shown or saved here."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from galapax import problems
from galapax.core.errors import InputError
from galapax.core.problem import Problem, unavailable
from galapax.measures import indicators
from galapax.measures.statistics import ecdf_over_targets, log_targets, quantile_curves
from galapax.results.result import History, Result, all_runs
from galapax.results.study import Study, best_known, curves, has_curves, reference_value, scores
from galapax.view import maps

BLUE, ORANGE, GREEN, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#8c8c8c",
)  # Okabe and Ito's colours, safe for the colour-blind


class Picture(Figure):
    """A Figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def convergence(result: Result) -> Figure:
    """The best value by generation: its distance to the best known value where there is one, on a logarithmic scale.

    For several runs the median, the middle half and the whole range. Of several objectives it is the hypervolume, or
    where there is none a panel for each.
    """
    several: list[str] = []
    if "F" in result and (result.history is None or result.history.hypervolume is None):
        several = objective_names(result)
    figure = Picture(figsize=(8, 4.5 if not several else 1.2 + 2.1 * len(several)), layout="constrained")
    panels = figure.subplots(max(1, len(several)), squeeze=False, sharex=True)[:, 0]
    for i, axes in enumerate(panels):
        draw_convergence(axes, result, objective=i if several else None)
    for axes in panels[:-1]:
        axes.set_xlabel("")
    _set_title(panels[0], result)
    return figure


def draw_convergence(
    axes: Axes, result: Result, colour: str = BLUE, label: str | None = None, objective: int | None = None
) -> None:
    """Draw the convergence of a result, or of one of its objectives, into axes that may hold others already."""
    history = result.history if result.runs is None else result.runs.history
    if history is None:
        axes.text(0.5, 0.5, "No history was kept.", ha="center", transform=axes.transAxes)
        return
    best, (values, name) = best_values(result, history, objective)
    low, lower, middle, upper, high = bands(values)
    axes.plot(history.generation, middle, color=colour, lw=1.8, label=label or ("median" if len(best) > 1 else "best"))
    if len(best) > 1:
        axes.fill_between(history.generation, lower, upper, color=colour, alpha=0.35, lw=0, label="middle half")
        axes.fill_between(history.generation, low, high, color=colour, alpha=0.12, lw=0, label="all runs")
    _mark_feasible(axes, history, best)
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() > 0 and finite.max() > 20 * finite.min():
        axes.set_yscale("log")
    axes.set_xlabel("generation")
    axes.set_ylabel(name)
    axes.set_xlim(1, max(2, int(history.generation[-1])))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def best_values(result: Result, history: History, objective: int | None) -> tuple[np.ndarray, tuple[np.ndarray, str]]:
    """By run and generation (R, G): the best value of a feasible point, NaN before there is one; and what is drawn of
    it, with its name. Of several objectives it is this one, or the hypervolume.
    """
    several = np.ndim(result.fun) > 0
    volume = several and objective is None
    kept = history.hypervolume if volume else history.best if objective is None else history.best[..., objective]
    best = np.atleast_2d(np.asarray(kept, np.float64)).copy()
    if history.violation is not None:
        best[np.atleast_2d(history.violation) > 0] = np.nan  # a value that no feasible point has says nothing
    best[~np.isfinite(best)] = np.nan
    if not several:
        return best, distance(result, best)
    if objective is not None:
        return best, (best, f"best {objective_names(result)[objective]}")
    exact = result.problem.hypervolume
    if exact is None or result.settings["maximize"]:
        return best, (best, "hypervolume")
    return best, (np.maximum(exact - best, 1e-12 * exact), "hypervolume missing to the true front's")


def distance(result: Result, best: np.ndarray) -> tuple[np.ndarray, str]:
    optimum = result.problem.optimum
    if optimum is None or result.settings["maximize"]:
        return best, "best value"
    gap = best - optimum
    # rounding, and the tolerance on equalities, let a run end a hair below the published optimum
    floor = np.finfo(np.float64).eps * max(1.0, abs(optimum))
    return np.where(np.isnan(gap), np.nan, np.maximum(gap, floor)), "best value − best known value"


def bands(values: np.ndarray) -> np.ndarray:
    """Quantiles over the runs, generation by generation, where at least one run has a value: (5, G)."""
    out = np.full((5, values.shape[1]), np.nan)
    known = np.isfinite(values).any(axis=0)
    out[:, known] = np.nanquantile(values[:, known], (0, 0.25, 0.5, 0.75, 1), axis=0)
    return out


def _mark_feasible(axes: Axes, history: History, best: np.ndarray) -> None:
    if history.violation is None:
        return
    known = np.isfinite(best).any(axis=0)
    if known.any() and not known[0]:
        first = int(history.generation[np.argmax(known)])
        axes.axvline(first, color=GREY, lw=1, ls=":")
        axes.annotate(
            "first feasible", (first, 1), xycoords=("data", "axes fraction"), xytext=(4, -12),
            textcoords="offset points", color=GREY, fontsize=9,
        )  # fmt: skip


def title_of(result: Result) -> str:
    runs = f", {len(result.runs)} runs" if result.runs is not None else ""
    problem = result.problem
    name = f"{problem.name}: {problem.title}" if problem.name and problem.title else problem.title or problem.name
    return f"{name} · {result.settings['algorithm']}{runs}"


def wrapped(text: str, figure: Any, letters: int = 10) -> str:
    """A text in as many lines as it takes, with so many letters an inch of the figure's width."""
    return "\n".join(textwrap.fill(line, int(letters * figure.get_figwidth())) for line in text.split("\n"))


def _set_title(axes: Axes, result: Result, more: str = "") -> None:
    axes.set_title(wrapped(title_of(result) + more, axes.figure), loc="left")


# Okabe and Ito's colours, then the same with other strokes
COLOURS = (BLUE, ORANGE, GREEN, "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#B8A800")
STROKES = ("-", "--", ":", "-.")


def study_convergence(study: Study) -> Figure:
    """How the cells of a study converge.

    A comparison has a panel for each problem: median and middle half of the runs by evaluations, for each algorithm. A
    sweep has a curve for each setting: the mean of the runs by generation.
    """
    if study.kind == "sweep":
        return _sweep_convergence(study)
    names = [p for p in study.axes["problem"] if study.along("algorithm", problem=p)]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Picture(figsize=(max(6.5, 4.6 * columns), 3.6 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.ravel()[len(names) :]:
        axes.set_visible(False)
    styles = _styles(study.axes["algorithm"])
    for axes, name in zip(grid.ravel(), names, strict=False):
        found = study.along("algorithm", problem=name)
        results = list(found.values())
        reference = reference_value(results)
        floor = np.finfo(np.float64).eps * max(1.0, abs(reference))
        for label, result in found.items():
            history = all_runs(result).history
            if history is None or not has_curves(result):
                continue
            best = curves(result)
            gap = np.where(np.isfinite(best), np.maximum(best - min(reference, np.finfo(float).max), floor), np.inf)
            lower, middle, upper = (_finite(c) for c in quantile_curves(gap, (0.25, 0.5, 0.75)))
            axes.plot(history.nfev, middle, label=label, lw=1.7, **styles[label])
            axes.fill_between(history.nfev, lower, upper, color=styles[label]["color"], alpha=0.2, lw=0)
        _log_scale(axes)
        _say_if_empty(axes, study)
        axes.set_title(results[0].problem.name, loc="left")
        axes.set_xlabel("evaluations")
        axes.grid(alpha=0.25)
    known = all(best_known(r) is not None for r in study.results)
    what = "distance to the best known value" if known else "distance to the best value found"
    if study.value == "hypervolume":
        what = "hypervolume missing to " + ("the true front's" if known else "the best found")
    for row in grid:
        row[0].set_ylabel(what)
    shown: dict[str, Any] = {}
    for axes in grid.ravel():
        handles, labels = axes.get_legend_handles_labels()
        shown |= dict(zip(labels, handles, strict=True))
    if shown:
        figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=min(4, len(shown)), frameon=False)
    return figure


def _sweep_convergence(study: Study) -> Figure:
    figure = Picture(figsize=(8.5, 4.8), layout="constrained")
    axes = figure.subplots()
    names = list(study.axes)
    first = _styles([str(v) for v in study.axes[names[0]]])
    reference = reference_value(study.results)
    floor = np.finfo(np.float64).eps * max(1.0, abs(reference))
    for labels, result in study:
        history = all_runs(result).history
        if history is None or not has_curves(result):
            continue
        place = sum(study.axes[n].index(labels[n]) for n in names[1:])
        colour = first[str(labels[names[0]])]["color"]
        gap = _finite(np.maximum(curves(result).mean(axis=0) - reference, floor))
        stroke = STROKES[place % len(STROKES)]
        axes.plot(history.generation, gap, color=colour, ls=stroke, lw=1.6, label=cell_name(labels))
    _log_scale(axes)
    axes.set_xlabel("generation")
    known = best_known(study.results[0]) is not None
    if study.value == "hypervolume":
        axes.set_ylabel("mean hypervolume missing to " + ("the true front's" if known else "the best found"))
    else:
        axes.set_ylabel("mean of the best values − " + ("best known" if known else "best found"))
    problem = study.results[0].problem
    runs = len(all_runs(study.results[0]))
    axes.set_title(f"{problem.name} · {study.results[0].settings['algorithm']}, {runs} runs each", loc="left")
    axes.grid(alpha=0.25)
    _say_if_empty(axes, study)
    if axes.get_lines() and len(study) <= 40:
        figure.legend(loc="outside right upper", frameon=False, fontsize=9 if len(study) <= 16 else 7)
    return figure


def running_times(study: Study) -> Figure:
    """By evaluations, the share of targets reached, see `target_shares`."""
    figure = Picture(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    styles = _styles(study.axes["algorithm"])
    shares = target_shares(study)
    for label, (nfev, share) in shares.items():
        axes.step(nfev, share, where="post", label=label, lw=1.8, **styles[label])
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("evaluations")
    axes.set_ylabel("share of targets reached")
    found = (study.along("algorithm", problem=name).values() for name in study.axes["problem"])
    counted = sum(bool(results) and all(map(has_curves, results)) for results in found)
    if counted:
        axes.set_title(f"{counted} problem{'s' * (counted != 1)}, 51 targets each", loc="left")
    axes.grid(alpha=0.25)
    _say_if_empty(axes, study)
    if shares:
        axes.legend(frameon=False, loc="upper left")
    return figure


def target_shares(study: Study) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each algorithm, or each setting of a sweep: evaluations, and the share of targets reached by then.

    The empirical distribution of running times over all problems and runs, with 51 targets a problem between its first
    value and its best known one, evenly on a logarithmic scale.
    """
    if study.kind == "sweep":
        groups = [{cell_name(labels): result for labels, result in study}]
    else:
        groups = [found for name in study.axes["problem"] if (found := study.along("algorithm", problem=name))]
    shares: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for found in groups:
        if not all(map(has_curves, found.values())):
            continue
        reference = reference_value(list(found.values()))
        begin = np.concatenate([curves(result)[:, 0] for result in found.values()])
        begin = begin[np.isfinite(begin)]
        if begin.size == 0:  # nothing feasible at first: count from the worst end
            begin = np.concatenate([scores(result) for result in found.values()])
            begin = begin[np.isfinite(begin)]
        start = float(np.median(begin)) if begin.size else np.nan
        if not start > reference:
            continue
        single = any(result.settings["dtype"] == "float32" for result in found.values())
        precision = 1e-4 if single else 1e-8
        if study.value == "hypervolume":
            precision = 1e-2  # n points cover a front to about 1 / n, however long they are given
        targets = log_targets(reference, start, precision=precision)
        for label, result in found.items():
            history = all_runs(result).history
            assert history is not None
            share = ecdf_over_targets(curves(result), history.nfev, targets)
            shares.setdefault(label, []).append((history.nfev, share))
    out = {}
    for label, parts in shares.items():
        steps = max((nfev for nfev, _ in parts), key=len)
        total = np.zeros(len(steps))
        for nfev, share in parts:
            at = np.searchsorted(nfev, steps, side="right") - 1
            total += np.where(at >= 0, share[np.maximum(at, 0)], 0.0)
        out[label] = steps, total / len(parts)
    return out


def cell_name(labels: dict[str, Any]) -> str:
    """A cell of a sweep in words."""
    return ", ".join(f"{name} {v:.6g}" if isinstance(v, float) else f"{name} {v}" for name, v in labels.items())


def _styles(names: list[str]) -> dict[str, dict[str, Any]]:
    return {
        name: {"color": COLOURS[i % len(COLOURS)], "ls": STROKES[i // len(COLOURS) % len(STROKES)]}
        for i, name in enumerate(names)
    }


def _say_if_empty(axes: Axes, study: Study) -> None:
    """Why there is no curve."""
    if axes.get_lines():
        return
    why = "No history was kept."
    if study.value == "hypervolume":
        why = "The hypervolume by generation is\nmeasured for two objectives only."
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color=GREY)
    axes.tick_params(labelbottom=False, labelleft=False)


def _log_scale(axes: Axes) -> None:
    """A logarithmic scale, where something is drawn that it can show."""
    drawn = [np.asarray(line.get_ydata(), np.float64) for line in axes.get_lines()]
    if any((np.isfinite(y) & (y > 0)).any() for y in drawn):
        axes.set_yscale("log")


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)


# What follows draws populations, fronts and objectives. Everything that a result may lack is asked for in a sentence.

DOTS, LINES = 2000, 400  # individuals drawn at most as dots or lines
SEQUENCE = "viridis"  # perceptually even, safe for the colour-blind


def front(result: Result) -> Figure:
    """The non-dominated solutions: a plane for two objectives, space for three, parallel axes for more.

    Beside them the true front where it is known, the knee, and the best of each objective.
    """
    if "F" not in result:
        raise InputError(
            "a front is of several objectives, and this result has one: use plot.convergence() or plot.landscape()."
        )
    F = np.asarray(result.F, np.float64)
    if not len(F):
        raise InputError("this result has no feasible solution, so there is no front to draw.")
    sign = -1.0 if result.settings["maximize"] else 1.0
    names = objective_names(result)
    knee = indicators.knee(sign * F)
    if F.shape[1] > 3:
        figure = Picture(figsize=(9, 5), layout="constrained")
        axes: Any = figure.subplots()
        low, high = F.min(axis=0), F.max(axis=0)
        _draw_parallel(axes, F, low, high, names, F[:, 0], names[0], F[knee], "knee")
        axes.set_xlabel("objective")
        axes.set_ylabel("from the least to the most on the front")
        _set_title(axes, result)
        return figure
    truth = true_front(result.problem, 1000 if F.shape[1] == 2 else 600)
    extremes = np.unique(np.argmin(sign * F, axis=0))
    figure = Picture(figsize=(7.5, 5) if F.shape[1] == 2 else (7.5, 6.4), layout="constrained")
    axes = figure.subplots(subplot_kw={"projection": "3d"} if F.shape[1] == 3 else {})
    solid: dict[str, Any] = {"depthshade": False} if F.shape[1] == 3 else {}
    if truth is not None:
        axes.scatter(*truth.T, s=3 if F.shape[1] == 2 else 2, color=GREY, label="true front", zorder=1, **solid)
    axes.scatter(
        *F.T, s=22, color=BLUE, edgecolor="white", lw=0.4, label=f"found, {len(F):,} points", zorder=2, **solid
    )
    axes.scatter(
        *F[extremes].T, s=70, marker="^", color=GREEN, edgecolor="black", label="best of each", zorder=3, **solid
    )
    axes.scatter(*F[[knee]].T, s=90, marker="D", color=ORANGE, edgecolor="black", label="knee", zorder=4, **solid)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    axes.grid(alpha=0.25)
    if F.shape[1] == 3:
        axes.set_zlabel(names[2])
        axes.view_init(elev=25, azim=40)
        axes.set_box_aspect(None, zoom=0.88)
        figure.suptitle(wrapped(title_of(result), figure), x=0.02, ha="left", fontsize=12)
    else:
        _set_title(axes, result)
    axes.legend(frameon=False)
    return figure


def parallel(result: Result, generation: int | None = None) -> Figure:
    """A line for each solution of the front, or each survivor, over all variables, each from bound to bound.

    Its colour is the first objective. The best solution (the knee of a front) is drawn thick.
    generation: the population that `snapshots` kept there, instead of the last one.
    """
    problem = result.problem
    if generation is not None:
        kept = maps.snapshots_of(result, [generation])[generation]
        x, values, best = np.asarray(kept.x), maps.fitness_of(kept), "knee" if "F" in result else "best in the end"
    elif "F" in result:
        x, values, best = np.asarray(result.X), np.asarray(result.F)[:, 0], "knee"
    else:
        x, values, best = np.asarray(result.population), np.asarray(result.population_fitness), "best"
    rows = maps.thinned(len(x), LINES) if len(x) else np.zeros(0, int)
    height = 4.8 + min(2.0, 0.05 * max(map(len, labels(problem))))  # room for names that are written aslant
    figure = Picture(figsize=(min(14.0, max(7.5, 3 + 0.45 * problem.dim)), height), layout="constrained")
    axes = figure.subplots()
    lower, upper = np.asarray(problem.bounds.lower), np.asarray(problem.bounds.upper)
    objective = objective_names(result)[0]
    _draw_parallel(axes, x[rows], lower, upper, labels(problem), values[rows], objective, np.asarray(result.x), best)
    some = "" if len(rows) == len(x) else f", {len(rows):,} of {len(x):,} lines"
    axes.set_xlabel("variable" + some)
    axes.set_ylabel("from lower to upper bound")
    _set_title(axes, result, f", generation {generation:,}" if generation else "")
    return figure


def _draw_parallel(
    axes: Axes,
    table: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    names: list[str],
    values: np.ndarray,
    value_name: str,
    best: np.ndarray,
    best_name: str,
) -> None:
    """Rows of a table (k, c) as lines over c axes that run from `low` to `high`, coloured by their values (k,)."""
    places = np.arange(table.shape[1])
    span = np.where(high > low, high - low, 1.0)
    order = np.argsort(-np.where(np.isfinite(values), values, np.inf), kind="stable")  # the least is drawn last
    lines = np.stack([np.broadcast_to(places, table.shape), (table - low) / span], axis=-1)[order]
    finite = values[np.isfinite(values)]
    norm = Normalize(float(finite.min()), float(finite.max())) if finite.size else Normalize(0, 1)
    shade = max(0.25, min(0.9, 30 / max(1, len(table))))
    colours = np.where(np.isfinite(values), values, finite.max(initial=0.0))[order]
    axes.add_collection(LineCollection(list(lines), array=colours, cmap=SEQUENCE, norm=norm, alpha=shade, lw=1.2))
    thick = {"lw": 2.4, "marker": "o", "ms": 4} if len(places) <= 60 else {"lw": 1.2}
    axes.plot(places, (best - low) / span, color=COLOURS[3], label=best_name, **thick)
    for place in places if len(places) <= 60 else ():
        axes.axvline(float(place), color=GREY, lw=0.6, alpha=0.6, zorder=0)
    axes.set_xlim(-0.3, len(places) - 0.7)
    axes.set_ylim(-0.06, 1.06)
    shown = maps.thinned(len(places), 32)
    long = max(map(len, names)) > 110 / len(shown)
    axes.set_xticks(
        shown, [names[i] for i in shown], rotation=35 if long else 0, ha="right" if long else "center",
        rotation_mode="anchor" if long else "default",
    )  # fmt: skip
    if len(places) <= 12:
        axes.set_yticks([])
        for place, bottom, top in zip(places, low, high, strict=True):
            axes.annotate(f"{bottom:.4g}", (place, -0.01), ha="center", va="top", fontsize=8, color="#505050")
            axes.annotate(f"{top:.4g}", (place, 1.01), ha="center", va="bottom", fontsize=8, color="#505050")
    else:
        axes.set_yticks([0, 1], ["lower", "upper"])
    bar = axes.figure.colorbar(ScalarMappable(norm, SEQUENCE), ax=axes, pad=0.02)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.8g}")
    bar.set_label(value_name)
    axes.figure.legend(loc="outside lower right", frameon=False)


def landscape(
    result: Result,
    variables: Sequence[int | str] = (0, 1),
    *,
    window: Any = None,
    objective: int = 0,
    points: int | None = None,
) -> Figure:
    """The objective over two variables, the others held at the best x, and where the populations were.

    variables: two numbers from 0, or two names; of a problem with one variable a curve is drawn. window: a (from, to)
    pair for each of the two, instead of the whole box. objective: which, of several. The last population is drawn, and
    some that `snapshots` kept. What violates an inequality is paler; where an equality holds is a line. points: of the
    grid along each variable (161; 31 for a black box, where each point is a call).
    """
    problem = _with_functions(result.problem)
    if "y" in result:
        raise InputError("a landscape is of an objective of x alone, and this result is of a game of x and y.")
    if problem.fun is unavailable:
        raise InputError(
            "this result was loaded without its objective, so there is no landscape: call minimize again, or give the "
            "result its problem, result.problem = problem."
        )
    sides = points or (31 if result.settings["blackbox"] else 161)
    if problem.dim == 1:
        return _curve(result, problem, 4 * sides, objective)
    first, second = _two_variables(problem, variables)
    lower, upper = np.asarray(problem.bounds.lower), np.asarray(problem.bounds.upper)
    ends = [(lower[i], upper[i]) for i in (first, second)]
    if window is not None:
        ends = [(float(low), float(high)) for low, high in window]
        if len(ends) != 2 or not all(low < high for low, high in ends):
            raise InputError(f"window must be two (from, to) pairs, such as [(0, 1), (0, 2)]; got {window!r}.")
    across, up = (np.linspace(low, high, sides) for low, high in ends)
    grid = np.tile(np.asarray(result.x, np.float64), (sides * sides, 1))
    grid[:, first], grid[:, second] = (side.ravel() for side in np.meshgrid(across, up))
    values = _values(problem.fun, grid, result)[:, objective].reshape(sides, sides)
    figure = Picture(figsize=(7.6, 5.8), layout="constrained")
    axes = figure.subplots()
    _draw_contours(axes, across, up, values, objective_names(result)[objective])
    handles: list[Any] = []
    if problem.ineq is not None:
        broken = np.nanmax(_values(problem.ineq, grid, result), axis=1).reshape(sides, sides)
        if (broken > 0).any():
            axes.contourf(across, up, broken, levels=[0, broken.max() + 1], colors=["white"], alpha=0.65)
            handles.append(Patch(facecolor="#d9dde3", edgecolor="black", label="infeasible"))
        if (broken > 0).any() and (broken <= 0).any():
            axes.contour(across, up, broken, levels=[0], colors="black", linewidths=1)
    for h in _values(problem.eq, grid, result).T if problem.eq is not None else ():
        if h.min() < 0 < h.max():
            axes.contour(across, up, h.reshape(sides, sides), levels=[0], colors=COLOURS[4], linewidths=1.6)
            handles.append(axes.plot([], [], color=COLOURS[4], lw=1.6, label="equality holds")[0])
    for x, style in _clouds(result):
        handles += axes.plot(x[:, first], x[:, second], ls="", **style)
    handles += axes.plot(
        result.x[first], result.x[second], ls="", marker="*", ms=17, color=ORANGE, mec="black", mew=1,
        label="knee" if "F" in result else "best",
    )  # fmt: skip
    names = labels(problem)
    axes.set(xlabel=names[first], ylabel=names[second])
    axes.set(xlim=ends[0], ylim=ends[1])
    others = "variable" if problem.dim == 3 else f"{problem.dim - 2} variables"
    held = "" if problem.dim == 2 else f"\nthe other {others} held at the best x"
    _set_title(axes, result, held)
    unique = {handle.get_label(): handle for handle in handles}
    figure.legend(handles=list(unique.values()), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _curve(result: Result, problem: Problem, count: int, objective: int) -> Figure:
    """The objective over the only variable."""
    across = np.linspace(problem.bounds.lower[0], problem.bounds.upper[0], count)[:, None]
    values = _values(problem.fun, across, result)[:, objective]
    figure = Picture(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(across[:, 0], values, color=BLUE, lw=1.8)
    if problem.ineq is not None:
        broken = np.nanmax(_values(problem.ineq, across, result), axis=1) > 0
        axes.fill_between(
            across[:, 0], 0, 1, where=broken, transform=axes.get_xaxis_transform(), facecolor="none", edgecolor=GREY,
            hatch="////", lw=0, label="infeasible",
        )  # fmt: skip
    for x, style in _clouds(result):
        axes.plot(x[:, 0], _values(problem.fun, x, result)[:, objective], ls="", **style)
    at_best = _values(problem.fun, np.asarray(result.x)[None], result)[0, objective]
    axes.plot(result.x[0], at_best, ls="", marker="*", ms=17, color=ORANGE, mec="black", label="best")
    axes.set(xlabel=labels(problem)[0], ylabel=objective_names(result)[objective])
    _set_title(axes, result)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def _clouds(result: Result) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """Populations to scatter, thinned, oldest first and palest, and how to draw each."""
    kept = maps.snapshots_of(result) if result.get("snapshots") else {}
    shown = [g for g in kept if g != result.nit]
    shown = [shown[i] for i in maps.thinned(len(shown), 3)] if shown else []
    clouds = []
    for i, g in enumerate(shown):
        colour = colormaps["OrRd"](0.65 * i / max(1, len(shown) - 1))
        clouds.append((np.asarray(kept[g].x), {"color": colour, "label": f"generation {g:,}"}))
    last = np.asarray(result.X if "F" in result else result.population)
    label = "front" if "F" in result else f"last population, {result.nit:,}"
    clouds.append((last, {"color": colormaps["OrRd"](0.95), "label": label}))
    dot = {"marker": "o", "ms": 5, "mec": "black", "mew": 0.5}
    return [(x[maps.thinned(len(x), DOTS)], dot | style) for x, style in clouds if len(x)]


def _draw_contours(axes: Axes, across: np.ndarray, up: np.ndarray, values: np.ndarray, name: str) -> None:
    """Filled contours at quantiles of the values, so that valleys show whatever the range is."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise InputError("the objective gave no finite value on the grid, so there is nothing to draw.")
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, 25) ** 1.3))
    if len(edges) < 3:
        edges = np.linspace(finite.min() - 0.5, finite.max() + 0.5, 3)
    shown = axes.contourf(
        across, up, np.ma.masked_invalid(values), levels=edges, cmap="Blues_r", norm=BoundaryNorm(edges, 256)
    )
    axes.contour(
        across, up, np.ma.masked_invalid(values), levels=edges[1:-1:2], colors="white", linewidths=0.4, alpha=0.6
    )
    bar = axes.figure.colorbar(shown, ax=axes, pad=0.02, spacing="uniform")
    bar.set_ticks(list(edges[:: max(1, len(edges) // 6)]))
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    bar.set_label(name)


def _values(function: Any, x: np.ndarray, result: Result) -> np.ndarray:
    """What a function of the problem gives at points (k, d): (k, m), NaN where it fails."""
    settings = result.settings
    if settings["blackbox"]:
        rows = function(x) if settings["vectorized"] else [_attempt(function, point) for point in x]
        width = max((np.size(row) for row in rows), default=1)
        return np.array([np.broadcast_to(np.ravel(row), width) for row in rows], np.float64)
    with jax.enable_x64(True):
        values = jax.jit(function if settings["vectorized"] else jax.vmap(function))(x)
        return np.asarray(values, np.float64).reshape(len(x), -1)


def _attempt(function: Any, x: np.ndarray) -> Any:
    try:
        return function(x)
    except Exception:
        return np.nan


def _two_variables(problem: Problem, variables: Sequence[int | str]) -> tuple[int, int]:
    names = problem.variable_names()
    found = [names.index(v) if isinstance(v, str) and v in names else v for v in variables]
    good = [isinstance(v, int | np.integer) and not isinstance(v, bool) and 0 <= v < problem.dim for v in found]
    if len(found) != 2 or not all(good) or found[0] == found[1]:
        raise InputError(
            f"variables must be two of 0 to {problem.dim - 1}, or two names ({', '.join(names[:4])}"
            f"{', …' if len(names) > 4 else ''}); got {tuple(variables)!r}."
        )
    return int(found[0]), int(found[1])


def _with_functions(problem: Problem) -> Problem:
    """A problem that was loaded from a file, with its functions again where it is a built-in one."""
    if problem.fun is not unavailable or problem.name not in problems.PROBLEMS:
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


def true_front(problem: Problem, points: int) -> np.ndarray | None:
    """Points of the true front (k, m), where it is known."""
    known = _with_functions(problem).front
    return None if known is None else np.asarray(known(points), np.float64)


def labels(problem: Problem) -> list[str]:
    """Names of the variables, with their units where the problem has them."""
    return [problem.with_unit(name) for name in problem.variable_names()]


def objective_names(result: Result) -> list[str]:
    problem = result.problem
    if "F" not in result and problem.objectives is None:
        return ["objective"]
    return [problem.with_unit(name) for name in problem.objective_names(np.size(result.fun))]
