"""Figures of a study: convergence, running times, final values, and a heat map of two hyper-parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from galapax.core.checks import escape_mathtext
from galapax.results.result import all_runs
from galapax.results.study import Study
from galapax.view import figure_data
from galapax.view.plots.style import (
    GREY,
    LINE_STYLES,
    AxesLike,
    NotebookFigure,
    check_axes,
    curve_colour,
    open_axes,
    outside_legend,
)
from galapax.view.summary_tables import format_distinct


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
