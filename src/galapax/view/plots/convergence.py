"""The convergence of a result: its best value by generation."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from galapax.core.checks import escape_mathtext
from galapax.results.result import Result
from galapax.view import figure_data
from galapax.view.plots.style import BLUE, GREY, AxesLike, NotebookFigure, check_axes, set_title


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
    if curve.log:
        axes.set_yscale("log")
    axes.set_xlabel("generation")
    axes.set_ylabel(escape_mathtext(curve.name))
    axes.set_xlim(1, max(2, int(curve.generation[-1])))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
