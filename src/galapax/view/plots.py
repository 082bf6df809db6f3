"""Figures of results and studies, with matplotlib. Each function returns a Figure; nothing is shown or saved here.

What they show is computed in view/figure_data.py.
"""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import ColorType

from galapax.core.checks import escape_mathtext
from galapax.core.errors import InputError
from galapax.core.problem import ProblemDescription
from galapax.results.many_answers import Illumination
from galapax.results.result import Result, all_runs
from galapax.results.study import Study
from galapax.view import figure_data, maps
from galapax.view.summary_tables import format_distinct

# --- what all figures share -------------------------------------------------------------------------------------------

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#6b7280"  # Okabe and Ito's, safe for the colour-blind
PALETTE = (BLUE, ORANGE, GREEN, "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#B8A800")
LINE_STYLES = ("-", "--", ":", "-.")
COLORMAP = "viridis"  # perceptually even, safe for the colour-blind


AxesLike: TypeAlias = Axes | Sequence[Axes] | np.ndarray  # one for each panel


class NotebookFigure(Figure):
    """A Figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def open_axes(ax: Axes | None, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return the figure and axes to draw into: the user's, or new ones of this size. options: of new axes."""
    if ax is not None:
        return ax.figure, ax
    figure = NotebookFigure(figsize=size, layout="constrained")
    return figure, figure.subplots(**options)


def check_axes(ax: AxesLike, count: int) -> list[Axes]:
    """Return the user's axes as a list, one for each of `count` panels; raise if there are more or fewer."""
    grid = [ax] if isinstance(ax, Axes) else list(np.ravel(np.asarray(ax, object)))
    if len(grid) != count:
        raise InputError(f"this figure has {count} panels: give ax as a list of {count} axes; got {len(grid)}.")
    return grid


def outside_legend(figure: Figure, axes: Axes, ax: Axes | None, **options: Any) -> None:
    """Place the legend outside the axes in a figure of ours; in the user's figure, inside the axes."""
    if ax is None:
        figure.legend(frameon=False, **options)
    else:
        axes.legend(**options | {"loc": "best", "fontsize": "small", "ncols": 1, "framealpha": 0.6})


def curve_colour(code: float) -> ColorType:
    """The colour of a curve, see `figure_data.Curve`."""
    return PALETTE[int(code)] if code == int(code) else colormaps[COLORMAP](0.95 * code)


def wrap_title(text: str, figure: Figure, letters: float = 10) -> str:
    """Wrap a text to the figure's width, with this many letters per inch."""
    lines = (textwrap.fill(line, max(12, int(letters * figure.get_figwidth()))) for line in text.split("\n"))
    return escape_mathtext("\n".join(lines))


def labels(problem: ProblemDescription) -> list[str]:
    """Names of the variables, escaped for mathtext."""
    return [escape_mathtext(name) for name in figure_data.labels(problem)]


def objective_names(result: Result) -> list[str]:
    """Names of the objectives, escaped for mathtext."""
    return [escape_mathtext(name) for name in figure_data.objective_names(result)]


def set_title(axes: Axes, result: Result, suffix: str = "") -> None:
    figure: Any = axes.figure
    width_share = 1.0 if isinstance(figure, NotebookFigure) else axes.get_position().width  # of the user's figure
    axes.set_title(wrap_title(figure_data.result_title(result) + suffix, figure, 10 * width_share), loc="left")


# --- convergence ------------------------------------------------------------------------------------------------------


def convergence(result: Result, ax: AxesLike | None = None) -> Figure:
    """Draw the best value by generation: its distance to the best known value where there is one, on a log scale.

    For several runs the median, the middle half and the whole range. Of several objectives it is the hypervolume, or
    where there is none a panel for each. ax: axes to draw into, one for each panel.
    """
    objectives = figure_data.panels(result)
    if ax is None:
        height = 4.5 if objectives == [None] else 1.2 + 2.1 * len(objectives)
        figure: Any = NotebookFigure(figsize=(8, height), layout="constrained")
        grid = figure.subplots(len(objectives), squeeze=False, sharex=True)[:, 0]
    else:
        grid = check_axes(ax, len(objectives))
        figure = grid[0].figure
    for objective, axes in zip(objectives, grid, strict=True):
        draw_convergence(axes, result, objective=objective)
    for axes in grid[:-1]:
        axes.set_xlabel("")
    set_title(grid[0], result)
    return figure


def draw_convergence(
    axes: Axes, result: Result, colour: str = BLUE, label: str | None = None, objective: int | None = None
) -> None:
    """Draw the convergence of a result, or of one of its objectives, into axes that may hold others already."""
    history = figure_data.ensemble_history(result)
    if history is None:
        axes.text(0.5, 0.5, "No history was kept.", ha="center", transform=axes.transAxes)
        return
    curve = figure_data.convergence(result, history, objective)
    is_ensemble = len(curve.values) > 1
    low, lower, middle, upper, high = figure_data.quantile_bands(curve.values)
    axes.plot(
        curve.generation,
        middle,
        color=colour,
        lw=1.8,
        label=escape_mathtext(label or ("median" if is_ensemble else "best")),
    )
    if is_ensemble:
        axes.fill_between(curve.generation, lower, upper, color=colour, alpha=0.35, lw=0, label="middle half")
        axes.fill_between(curve.generation, low, high, color=colour, alpha=0.12, lw=0, label="all runs")
    elif curve.margin is not None:
        ends = (curve.values[0] - curve.margin[0], curve.values[0] + curve.margin[0])
        axes.fill_between(curve.generation, *ends, color=colour, alpha=0.25, lw=0, label="95 % interval")
    if curve.first_feasible is not None:
        axes.axvline(curve.first_feasible, color=GREY, lw=1, ls=":")
        axes.annotate(
            "first feasible", (curve.first_feasible, 1), xycoords=("data", "axes fraction"), xytext=(4, -12),
            textcoords="offset points", color=GREY, fontsize=9,
        )  # fmt: skip
    for generation in (*curve.restarts, *curve.refinements):
        axes.axvline(generation, color=GREY, lw=1, ls=":")
    if curve.restarts:
        axes.annotate(
            figure_data.RESTART_NAME, (curve.restarts[0], 1), xycoords=("data", "axes fraction"), xytext=(4, -12),
            textcoords="offset points", color=GREY, fontsize=9,
        )  # fmt: skip
    if curve.refinements:
        is_right = curve.refinements[0] > 0.5 * curve.generation[-1]
        axes.annotate(
            figure_data.REFINEMENT_NAME, (curve.refinements[0], 0), xycoords=("data", "axes fraction"),
            xytext=(-4 if is_right else 4, 6), ha="right" if is_right else "left", textcoords="offset points",
            color=GREY, fontsize=9,
        )  # fmt: skip
    if curve.log:
        axes.set_yscale("log")
    axes.set_xlabel("generation")
    axes.set_ylabel(escape_mathtext(curve.name))
    axes.set_xlim(1, max(2, int(curve.generation[-1])))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


# --- fronts -----------------------------------------------------------------------------------------------------------

MAX_PARALLEL_LINES = 400  # individuals in parallel coordinates


def front(result: Result, ax: Axes | None = None) -> Figure:
    """Draw the non-dominated solutions: a plane for two objectives, space for three, parallel axes for more.

    Beside them the true front where it is known, the knee, and the best of each objective.
    """
    if "F" not in result:
        raise InputError(
            "a front needs several objectives, and this result has one: use plot.convergence() or plot.landscape()."
        )
    F, knee = np.asarray(result.F, np.float64), result.knee
    if knee is None:
        raise InputError("this result has no feasible solution, so there is no front to draw.")
    if F.shape[1] <= 3:
        return _front_in_space(result, F, knee, ax)
    figure, axes = open_axes(ax, (9, 5))
    names = objective_names(result)
    _draw_parallel(axes, F, F.min(axis=0), F.max(axis=0), names, F[:, 0], names[0], F[knee], "knee")
    axes.set_xlabel("objective")
    axes.set_ylabel("from the lowest to the highest value on the front")
    set_title(axes, result)
    return figure


def outcomes(result: Result, ax: Axes | None = None) -> Figure:
    """Draw the distribution of fun at x in fresh samples, and the measures with their intervals."""
    figure, axes = open_axes(ax, (7.0, 4.2))
    reports = figure_data.robust_reports(result)
    values = reports[0].outcomes
    axes.plot(values, np.linspace(0, 100, len(values)), color=BLUE, lw=1.8, label="outcomes")
    for report, colour in zip(reports, itertools.cycle(PALETTE[1:]), strict=False):
        axes.axvline(report.value, color=colour, lw=1.2, ls="--", label=f"{report.measure}: {report.value:.6g}")
        if np.isfinite(report.interval).all():
            axes.axvspan(*report.interval, color=colour, alpha=0.25, lw=0)
    axes.set(xlabel="fun at x", ylabel="share of the samples below [%]", ylim=(0, 100))
    axes.legend(frameon=False)
    set_title(axes, result)
    return figure


def _front_in_space(result: Result, F: np.ndarray, knee: int, ax: Axes | None) -> Figure:
    """Scatter two or three objectives."""
    is_flat, names, ends = F.shape[1] == 2, objective_names(result), np.unique(figure_data.front_ends(result))
    true_front = figure_data.true_front(result.problem, 1000 if is_flat else 600)
    figure, axes = open_axes(ax, (7.5, 5 if is_flat else 6.4), subplot_kw={} if is_flat else {"projection": "3d"})
    if not is_flat and not hasattr(axes, "set_zlabel"):
        raise InputError('a front of three objectives needs ax with projection="3d".')
    scatter_options: dict[str, Any] = {} if is_flat else {"depthshade": False}
    if true_front is not None:
        axes.scatter(*true_front.T, s=3 if is_flat else 2, color=GREY, label="true front", zorder=1, **scatter_options)
    found_label = f"found, {len(F):,} points"
    axes.scatter(*F.T, s=22, color=BLUE, edgecolor="white", lw=0.4, label=found_label, zorder=2, **scatter_options)
    axes.scatter(
        *F[ends].T, s=70, marker="^", color=GREEN, edgecolor="black", label="best of each", zorder=3, **scatter_options
    )
    axes.scatter(
        *F[[knee]].T, s=90, marker="D", color=ORANGE, edgecolor="black", label="knee", zorder=4, **scatter_options
    )
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    axes.grid(alpha=0.25)
    if is_flat:
        set_title(axes, result)
    else:
        axes.set_zlabel(names[2])
        axes.view_init(elev=25, azim=40)
        axes.set_box_aspect(None, zoom=0.88)
        if ax is None:
            figure.suptitle(wrap_title(figure_data.result_title(result), figure), x=0.02, ha="left", fontsize=12)
    axes.legend(frameon=False)
    return figure


def parallel(result: Result, generation: int | None = None, ax: Axes | None = None) -> Figure:
    """Draw a line for each solution of the front, or each survivor, over all variables, each from bound to bound.

    Its colour is the first objective. The best solution (the knee of a front) is drawn thick.
    generation: the population that `snapshots` kept there, instead of the last one.
    """
    problem = result.problem
    if generation is not None:
        population = maps.stored_populations(result, [generation])[generation]
        x, values, best_name = (
            np.asarray(population.x),
            maps.feasible_fitness(population),
            "knee" if "F" in result else "final best",
        )
    elif "F" in result:
        x, values, best_name = np.asarray(result.X), np.asarray(result.F)[:, 0], "knee"
    else:
        x, values, best_name = np.asarray(result.population), np.asarray(result.population_fitness), "best"
    rows = maps.thin_indices(len(x), MAX_PARALLEL_LINES) if len(x) else np.zeros(0, int)
    names = labels(problem)
    height = 4.8 + min(2.0, 0.05 * max(map(len, names)))  # room for names that are written aslant
    figure, axes = open_axes(ax, (min(14.0, max(7.5, 3 + 0.45 * problem.dim)), height))
    lower, upper = np.asarray(problem.bounds.lower), np.asarray(problem.bounds.upper)
    objective = objective_names(result)[0]
    ends = [problem.limits(i) for i in range(problem.dim)] if problem.space is not None else None
    _draw_parallel(axes, x[rows], lower, upper, names, values[rows], objective, np.asarray(result.x), best_name, ends)
    count_note = "" if len(rows) == len(x) else f", {len(rows):,} of {len(x):,} lines"
    axes.set_xlabel("variable" + count_note)
    axes.set_ylabel("from lower to upper bound")
    set_title(axes, result, f", generation {generation:,}" if generation else "")
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
    ends: list[tuple[str, str]] | None = None,
) -> None:
    """Draw rows of a table (k, c) as lines over c axes from `low` to `high`, coloured by their values (k,)."""
    columns = np.arange(table.shape[1])
    span = np.where(high > low, high - low, 1.0)
    order = np.argsort(-np.where(np.isfinite(values), values, np.inf), kind="stable")  # the least is drawn last
    lines = np.stack([np.broadcast_to(columns, table.shape), (table - low) / span], axis=-1)[order]
    finite = values[np.isfinite(values)]
    norm = Normalize(float(finite.min()), float(finite.max())) if finite.size else Normalize(0, 1)
    opacity = max(0.25, min(0.9, 30 / max(1, len(table))))
    colours = np.where(np.isfinite(values), values, finite.max(initial=0.0))[order]
    axes.add_collection(LineCollection(list(lines), array=colours, cmap=COLORMAP, norm=norm, alpha=opacity, lw=1.2))
    best_style = {"lw": 2.4, "marker": "o", "ms": 4} if len(columns) <= 60 else {"lw": 1.2}
    axes.plot(columns, (best - low) / span, color=PALETTE[3], label=best_name, **best_style)
    for column in columns if len(columns) <= 60 else ():
        axes.axvline(float(column), color=GREY, lw=0.6, alpha=0.6, zorder=0)
    axes.set_xlim(-0.3, len(columns) - 0.7)
    axes.set_ylim(-0.06, 1.06)
    ticks = maps.thin_indices(len(columns), 32)
    is_long = max(map(len, names)) > 110 / len(ticks)
    axes.set_xticks(
        ticks, [names[i] for i in ticks], rotation=35 if is_long else 0, ha="right" if is_long else "center",
        rotation_mode="anchor" if is_long else "default",
    )  # fmt: skip
    if len(columns) <= 12:
        axes.set_yticks([])
        ends = ends or [(f"{bottom:.4g}", f"{top:.4g}") for bottom, top in zip(low, high, strict=True)]
        for column, (bottom, top) in zip(columns, ends, strict=True):
            axes.annotate(bottom, (column, -0.01), ha="center", va="top", fontsize=8, color="#505050")
            axes.annotate(top, (column, 1.01), ha="center", va="bottom", fontsize=8, color="#505050")
    else:
        axes.set_yticks([0, 1], ["lower", "upper"])
    bar = axes.figure.colorbar(ScalarMappable(norm, COLORMAP), ax=axes, pad=0.02)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.8g}")
    bar.set_label(value_name)
    if isinstance(axes.figure, NotebookFigure):
        axes.figure.legend(loc="outside lower right", frameon=False)
    else:  # the user's own figure, which may hold other legends
        axes.legend(frameon=False, fontsize="small")


# --- studies ----------------------------------------------------------------------------------------------------------


def study_convergence(study: Study, ax: AxesLike | None = None) -> Figure:
    """Draw how the cells of a study converge: median and middle half of the runs.

    A comparison has a panel for each problem, by evaluations; a sweep has a curve for each setting, by generation.
    """
    panels = figure_data.study_convergence(study)
    return _one_panel(study, panels[0], ax) if study.kind == "sweep" else _small_multiples(study, panels, ax)


def _small_multiples(study: Study, panels: list[figure_data.Panel], ax: AxesLike | None) -> Figure:
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    if ax is None:
        figure: Any = NotebookFigure(figsize=(max(6.5, 4.6 * columns), 3.6 * rows + 0.6), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
    else:
        grid = np.array(check_axes(ax, len(panels)), object)[:, None]
        figure = grid[0, 0].figure
    for axes in grid.ravel()[len(panels) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.ravel(), panels, strict=False):
        _draw_panel(axes, study, panel)
        axes.set_title(escape_mathtext(panel.title), loc="left")
    name = figure_data.distance_name(study.value, all(panel.has_known_optimum for panel in panels))
    for row in grid:
        row[0].set_ylabel(name)
    legend_handles: dict[str, Artist] = {}
    for axes in grid.ravel():
        handles, labels = axes.get_legend_handles_labels()
        legend_handles |= dict(zip(labels, handles, strict=True))
    if legend_handles and ax is not None:
        grid[0, 0].legend(legend_handles.values(), legend_handles.keys(), frameon=False, fontsize="small")
    elif legend_handles:
        figure.legend(
            legend_handles.values(),
            legend_handles.keys(),
            loc="outside upper center",
            ncols=min(4, len(legend_handles)),
            frameon=False,
        )
    return figure


def _one_panel(study: Study, panel: figure_data.Panel, ax: Any) -> Figure:
    figure, axes = open_axes(ax, (8.5, 4.8))
    _draw_panel(axes, study, panel)
    axes.set_ylabel(escape_mathtext(panel.name))
    first, runs = study.results[0], len(all_runs(study.results[0]))
    title = f"{first.problem.name} · {first.settings['algorithm']}, {runs} runs each"
    axes.set_title(escape_mathtext(title), loc="left")
    if panel.curves and len(study) <= 40:
        outside_legend(figure, axes, ax, loc="outside right upper", fontsize=9 if len(study) <= 16 else 7)
    return figure


def _draw_panel(axes: Axes, study: Study, panel: figure_data.Panel) -> None:
    for curve in panel.curves:
        colour = curve_colour(curve.colour)
        axes.plot(
            curve.x, curve.y, label=escape_mathtext(curve.label), lw=1.7, color=colour, ls=LINE_STYLES[curve.stroke]
        )
        if curve.lower is not None and curve.upper is not None:
            axes.fill_between(curve.x, curve.lower, curve.upper, color=colour, alpha=0.2, lw=0)
    if any((curve.y > 0).any() for curve in panel.curves):
        axes.set_yscale("log")
    axes.set_xlabel(panel.across)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.25)
    _explain_if_empty(axes, study)


def running_times(study: Study, ax: Axes | None = None) -> Figure:
    """Draw the share of targets reached by evaluations, see `figure_data.target_shares`."""
    panel = figure_data.running_times(study)
    figure, axes = open_axes(ax, (8, 4.5))
    for curve in panel.curves:
        axes.step(
            curve.x, curve.y, where="post", label=escape_mathtext(curve.label), lw=1.8,
            color=curve_colour(curve.colour), ls=LINE_STYLES[curve.stroke],
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(escape_mathtext(panel.name))
    axes.set_title(escape_mathtext(panel.title), loc="left")
    axes.grid(alpha=0.25)
    _explain_if_empty(axes, study)
    if panel.curves:
        axes.legend(frameon=False, loc="upper left")
    return figure


def _explain_if_empty(axes: Axes, study: Study) -> None:
    """Say in empty axes why there is no curve."""
    if axes.get_lines():
        return
    reason = "No history was kept."
    if study.value == "hypervolume":
        reason = "No hypervolume by generation:\nthe problem has no reference point."
    axes.text(0.5, 0.5, reason, ha="center", va="center", transform=axes.transAxes, color=GREY)
    axes.tick_params(labelbottom=False, labelleft=False)


def final_values(study: Study, ax: AxesLike | None = None) -> Figure:
    """Draw for each problem the share of runs that ended at least as close to the best value."""
    panels = figure_data.study_final_values(study)
    if ax is None:
        figure: Any = NotebookFigure(figsize=(max(6.5, 4.6 * len(panels)), 4.2), layout="constrained")
        grid = list(figure.subplots(1, len(panels), squeeze=False)[0])
    else:
        grid = check_axes(ax, len(panels))
        figure = grid[0].figure
    for axes, panel in zip(grid, panels, strict=True):
        for curve in panel.curves:
            style = {"color": curve_colour(curve.colour), "ls": LINE_STYLES[curve.stroke], "lw": 1.8}
            axes.step(curve.x, curve.y, where="post", label=escape_mathtext(curve.label), **style)
        if figure_data.needs_log_scale(np.concatenate([curve.x for curve in panel.curves] or [np.zeros(0)])):
            axes.set_xscale("log")
        axes.set(xlabel=escape_mathtext(panel.across), ylabel=panel.name, ylim=(0, 1.02))
        first = study.results[0]
        axes.set_title(
            escape_mathtext(panel.title or f"{first.problem.name} · {first.settings['algorithm']}"), loc="left"
        )
        axes.grid(alpha=0.25)
        if panel.curves:
            axes.legend(frameon=False, fontsize="small")
    return figure


def heatmap(study: Study, ax: Axes | None = None) -> Figure:
    """Draw the median of the runs over two swept hyper-parameters, a cell for each pair of values."""
    heat_map = figure_data.study_heat_map(study)
    figure, axes = open_axes(ax, (1.8 + 0.9 * max(4, len(heat_map.columns)), 1.6 + 0.7 * max(3, len(heat_map.rows))))
    image = axes.imshow(np.log10(heat_map.values) if heat_map.log else heat_map.values, cmap="viridis_r", aspect="auto")
    axes.set_xticks(range(len(heat_map.columns)), heat_map.columns)
    axes.set_yticks(range(len(heat_map.rows)), heat_map.rows)
    axes.set(xlabel=escape_mathtext(heat_map.across), ylabel=escape_mathtext(heat_map.up))
    low, high = image.get_clim()
    texts = format_distinct(heat_map.values.ravel().tolist(), 3)
    for (row, column), value in np.ndenumerate(heat_map.values):
        if np.isfinite(value):
            level = (np.log10(value) if heat_map.log else value) - low
            is_dark = level > 0.5 * (high - low)  # the colours run from light to dark
            text = texts[row * len(heat_map.columns) + column]
            axes.text(column, row, text, ha="center", va="center", color="white" if is_dark else "black")
    axes.set_title(escape_mathtext(f"{heat_map.title}: {heat_map.name}"), loc="left")
    return figure


def elites(illumination: Illumination, ax: Axes | None = None) -> Figure:
    """Draw the value of each cell's elite over one or two measures; cells without one stay empty."""
    names = [escape_mathtext(name) for name in illumination.names]
    if len(names) > 2:
        raise InputError(
            f"a map has one or two measures, and these are {len(names)}: draw a slice of `values`, or two columns of "
            "to_dataframe()."
        )
    figure, axes = open_axes(ax, (6.4, 4.8))
    title = f"{len(illumination):,} of {illumination.values.size:,} cells have an elite"
    axes.set_title(wrap_title(title, figure), loc="left")
    label = "best value" if illumination.maximizes else "best (least) value"
    if len(names) == 1:
        (low, high), count = illumination.ranges[0], illumination.cells[0]
        centres = low + (np.arange(count) + 0.5) * (high - low) / count
        axes.plot(centres, illumination.values, ".", color=BLUE, markersize=4)
        axes.set(xlabel=names[0], ylabel=label, xlim=(low, high))
        return figure
    image = axes.imshow(
        illumination.values.T, origin="lower", aspect="auto", interpolation="nearest",
        extent=tuple(illumination.ranges.ravel()), cmap=COLORMAP if illumination.maximizes else f"{COLORMAP}_r",
    )  # fmt: skip
    axes.set(xlabel=names[0], ylabel=names[1])
    figure.colorbar(image, ax=axes, label=label)
    return figure
