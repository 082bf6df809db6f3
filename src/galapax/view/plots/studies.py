"""Figures of a study: the final values of its cells, and a map of two hyper-parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from galapax.core.names import for_mathtext
from galapax.results.study import Study
from galapax.view import data, study_data
from galapax.view.plots.curves import given_axes
from galapax.view.plots.style import STROKES, Picture, canvas, paint
from galapax.view.tables import apart


def final_values(study: Study, ax: Any = None) -> Figure:
    """For each problem, the share of runs that ended at least as close to the best value."""
    panels = study_data.study_ends(study)
    if ax is None:
        figure: Any = Picture(figsize=(max(6.5, 4.6 * len(panels)), 4.2), layout="constrained")
        grid = list(figure.subplots(1, len(panels), squeeze=False)[0])
    else:
        grid = given_axes(ax, len(panels))
        figure = grid[0].figure
    for axes, panel in zip(grid, panels, strict=True):
        for curve in panel.curves:
            style = {"color": paint(curve.colour), "ls": STROKES[curve.stroke], "lw": 1.8}
            axes.step(curve.x, curve.y, where="post", label=for_mathtext(curve.label), **style)
        if data.wants_log(np.concatenate([curve.x for curve in panel.curves] or [np.zeros(0)])):
            axes.set_xscale("log")
        axes.set(xlabel=for_mathtext(panel.across), ylabel=panel.name, ylim=(0, 1.02))
        first = study.results[0]
        axes.set_title(for_mathtext(panel.title or f"{first.problem.name} · {first.settings['algorithm']}"), loc="left")
        axes.grid(alpha=0.25)
        if panel.curves:
            axes.legend(frameon=False, fontsize="small")
    return figure


def heatmap(study: Study, ax: Any = None) -> Figure:
    """The median of the runs over two swept hyper-parameters, a cell for each pair of values."""
    drawn = study_data.heat_map(study)
    figure, axes = canvas(ax, (1.8 + 0.9 * max(4, len(drawn.columns)), 1.6 + 0.7 * max(3, len(drawn.rows))))
    shown = axes.imshow(np.log10(drawn.values) if drawn.log else drawn.values, cmap="viridis_r", aspect="auto")
    axes.set_xticks(range(len(drawn.columns)), drawn.columns)
    axes.set_yticks(range(len(drawn.rows)), drawn.rows)
    axes.set(xlabel=for_mathtext(drawn.across), ylabel=for_mathtext(drawn.up))
    low, high = shown.get_clim()
    texts = apart(drawn.values.ravel().tolist(), 3)
    for (row, column), value in np.ndenumerate(drawn.values):
        if np.isfinite(value):
            place = (np.log10(value) if drawn.log else value) - low
            dark = place > 0.5 * (high - low)  # the colours run from light to dark
            text = texts[row * len(drawn.columns) + column]
            axes.text(column, row, text, ha="center", va="center", color="white" if dark else "black")
    axes.set_title(for_mathtext(f"{drawn.title}: {drawn.name}"), loc="left")
    return figure
