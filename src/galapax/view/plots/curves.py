"""Values by generation and by evaluations: of a result, and of a study."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from galapax.core.errors import InputError
from galapax.core.names import for_mathtext
from galapax.results.result import Result, all_runs
from galapax.results.study import Study
from galapax.view import data, study_data
from galapax.view.plots.style import BLUE, GREY, STROKES, Picture, canvas, outside_legend, paint, set_title


def convergence(result: Result, ax: Any = None) -> Figure:
    """The best value by generation: its distance to the best known value where there is one, on a logarithmic scale.

    For several runs the median, the middle half and the whole range. Of several objectives it is the hypervolume, or
    where there is none a panel for each. ax: axes to draw into, one for each panel.
    """
    objectives = data.panels(result)
    if ax is None:
        height = 4.5 if objectives == [None] else 1.2 + 2.1 * len(objectives)
        figure: Any = Picture(figsize=(8, height), layout="constrained")
        grid = figure.subplots(len(objectives), squeeze=False, sharex=True)[:, 0]
    else:
        grid = given_axes(ax, len(objectives))
        figure = grid[0].figure
    for objective, axes in zip(objectives, grid, strict=True):
        draw_convergence(axes, result, objective=objective)
    for axes in grid[:-1]:
        axes.set_xlabel("")
    set_title(grid[0], result)
    return figure


def given_axes(ax: Any, count: int) -> list[Axes]:
    """The axes that a user gave for this many panels."""
    grid = [ax] if isinstance(ax, Axes) else list(np.ravel(ax))
    if len(grid) != count:
        raise InputError(f"this figure has {count} panels: give ax as a list of {count} axes; got {len(grid)}.")
    return grid


def draw_convergence(
    axes: Axes, result: Result, colour: str = BLUE, label: str | None = None, objective: int | None = None
) -> None:
    """Draw the convergence of a result, or of one of its objectives, into axes that may hold others already."""
    history = data.history_of(result)
    if history is None:
        axes.text(0.5, 0.5, "No history was kept.", ha="center", transform=axes.transAxes)
        return
    drawn = data.convergence(result, history, objective)
    several = len(drawn.values) > 1
    low, lower, middle, upper, high = data.bands(drawn.values)
    axes.plot(
        drawn.generation, middle, color=colour, lw=1.8, label=for_mathtext(label or ("median" if several else "best"))
    )
    if several:
        axes.fill_between(drawn.generation, lower, upper, color=colour, alpha=0.35, lw=0, label="middle half")
        axes.fill_between(drawn.generation, low, high, color=colour, alpha=0.12, lw=0, label="all runs")
    elif drawn.margin is not None:
        ends = (drawn.values[0] - drawn.margin[0], drawn.values[0] + drawn.margin[0])
        axes.fill_between(drawn.generation, *ends, color=colour, alpha=0.25, lw=0, label="95 % interval")
    if drawn.first_feasible is not None:
        axes.axvline(drawn.first_feasible, color=GREY, lw=1, ls=":")
        axes.annotate(
            "first feasible", (drawn.first_feasible, 1), xycoords=("data", "axes fraction"), xytext=(4, -12),
            textcoords="offset points", color=GREY, fontsize=9,
        )  # fmt: skip
    if drawn.log:
        axes.set_yscale("log")
    axes.set_xlabel("generation")
    axes.set_ylabel(for_mathtext(drawn.name))
    axes.set_xlim(1, max(2, int(drawn.generation[-1])))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def study_convergence(study: Study, ax: Any = None) -> Figure:
    """How the cells of a study converge: median and middle half of the runs.

    A comparison has a panel for each problem, by evaluations; a sweep has a curve for each setting, by generation.
    """
    panels = study_data.study_convergence(study)
    return _one_panel(study, panels[0], ax) if study.kind == "sweep" else _small_multiples(study, panels, ax)


def _small_multiples(study: Study, panels: list[study_data.Panel], ax: Any) -> Figure:
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    if ax is None:
        figure: Any = Picture(figsize=(max(6.5, 4.6 * columns), 3.6 * rows + 0.6), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
    else:
        grid = np.array(given_axes(ax, len(panels)), object)[:, None]
        figure = grid[0, 0].figure
    for axes in grid.ravel()[len(panels) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.ravel(), panels, strict=False):
        _draw_panel(axes, study, panel)
        axes.set_title(for_mathtext(panel.title), loc="left")
    name = data.distance_name(study.value, all(panel.known for panel in panels))
    for row in grid:
        row[0].set_ylabel(name)
    shown: dict[str, Any] = {}
    for axes in grid.ravel():
        handles, labels = axes.get_legend_handles_labels()
        shown |= dict(zip(labels, handles, strict=True))
    if shown and ax is not None:
        grid[0, 0].legend(shown.values(), shown.keys(), frameon=False, fontsize="small")
    elif shown:
        figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=min(4, len(shown)), frameon=False)
    return figure


def _one_panel(study: Study, panel: study_data.Panel, ax: Any) -> Figure:
    figure, axes = canvas(ax, (8.5, 4.8))
    _draw_panel(axes, study, panel)
    axes.set_ylabel(for_mathtext(panel.name))
    first, runs = study.results[0], len(all_runs(study.results[0]))
    title = f"{first.problem.name} · {first.settings['algorithm']}, {runs} runs each"
    axes.set_title(for_mathtext(title), loc="left")
    if panel.curves and len(study) <= 40:
        outside_legend(figure, axes, ax, loc="outside right upper", fontsize=9 if len(study) <= 16 else 7)
    return figure


def _draw_panel(axes: Axes, study: Study, panel: study_data.Panel) -> None:
    for curve in panel.curves:
        own = paint(curve.colour)
        axes.plot(curve.x, curve.y, label=for_mathtext(curve.label), lw=1.7, color=own, ls=STROKES[curve.stroke])
        if curve.lower is not None and curve.upper is not None:
            axes.fill_between(curve.x, curve.lower, curve.upper, color=own, alpha=0.2, lw=0)
    if any((curve.y > 0).any() for curve in panel.curves):
        axes.set_yscale("log")
    axes.set_xlabel(panel.across)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.25)
    _say_if_empty(axes, study)


def running_times(study: Study, ax: Any = None) -> Figure:
    """By evaluations, the share of targets reached, see `study_data.target_shares`."""
    panel = study_data.running_times(study)
    figure, axes = canvas(ax, (8, 4.5))
    for curve in panel.curves:
        axes.step(
            curve.x, curve.y, where="post", label=for_mathtext(curve.label), lw=1.8, color=paint(curve.colour),
            ls=STROKES[curve.stroke],
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(for_mathtext(panel.name))
    axes.set_title(for_mathtext(panel.title), loc="left")
    axes.grid(alpha=0.25)
    _say_if_empty(axes, study)
    if panel.curves:
        axes.legend(frameon=False, loc="upper left")
    return figure


def _say_if_empty(axes: Axes, study: Study) -> None:
    """Why there is no curve."""
    if axes.get_lines():
        return
    why = "No history was kept."
    if study.value == "hypervolume":
        why = "No hypervolume by generation:\nthe problem has no reference point."
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color=GREY)
    axes.tick_params(labelbottom=False, labelleft=False)
