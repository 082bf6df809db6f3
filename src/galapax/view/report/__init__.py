"""Render a result or a study as one self-contained HTML page: no network, no other file.

The page holds its numbers as JSON, thinned so that it stays small, and a script of our own (in web/, shared with the
live page) draws them as SVG: curves with bands, and points in the plane or in space, with tooltips. SVG follows the
reader's light or dark colours, is sharp in print, and reads at any width; a plotting library's script would make every
page larger by megabytes. What the figures show is computed in view/figure_data.py.
"""

from galapax.view.report.figures import MAX_CURVE_POINTS, MAX_FRONT_ROWS
from galapax.view.report.pages import render_result, render_study

__all__ = ["MAX_CURVE_POINTS", "MAX_FRONT_ROWS", "render_result", "render_study"]
