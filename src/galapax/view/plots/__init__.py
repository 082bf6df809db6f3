"""Figures of results and studies, with matplotlib. Each function returns a Figure; nothing is shown or saved here.

What they show is computed in view/figure_data.py.
"""

from galapax.view.figure_data import labels, objective_names, result_title
from galapax.view.plots.convergence import convergence, draw_convergence
from galapax.view.plots.fronts import front, parallel
from galapax.view.plots.landscapes import landscape
from galapax.view.plots.study_figures import final_values, heatmap, running_times, study_convergence
from galapax.view.plots.style import BLUE, COLORMAP, GREEN, GREY, ORANGE, PALETTE, NotebookFigure, wrap_title

__all__ = [
    "BLUE",
    "COLORMAP",
    "GREEN",
    "GREY",
    "ORANGE",
    "PALETTE",
    "NotebookFigure",
    "convergence",
    "draw_convergence",
    "final_values",
    "front",
    "heatmap",
    "labels",
    "landscape",
    "objective_names",
    "parallel",
    "result_title",
    "running_times",
    "study_convergence",
    "wrap_title",
]
