"""Pictures of results, with matplotlib. Each function returns a Figure; nothing is shown or saved here.

What they show is worked out in view/data.py.
"""

from galapax.view.data import labels, objective_names, title_of
from galapax.view.plots.curves import convergence, draw_convergence, running_times, study_convergence
from galapax.view.plots.landscapes import landscape
from galapax.view.plots.points import front, parallel
from galapax.view.plots.studies import final_values, heatmap
from galapax.view.plots.style import BLUE, COLOURS, GREEN, GREY, ORANGE, SEQUENCE, Picture, wrapped

__all__ = [
    "BLUE",
    "COLOURS",
    "GREEN",
    "GREY",
    "ORANGE",
    "SEQUENCE",
    "Picture",
    "convergence",
    "draw_convergence",
    "final_values",
    "front",
    "heatmap",
    "labels",
    "landscape",
    "objective_names",
    "parallel",
    "running_times",
    "study_convergence",
    "title_of",
    "wrapped",
]
