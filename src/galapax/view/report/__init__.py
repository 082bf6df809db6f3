"""A saved run as one HTML page that needs nothing else: no network, no other file.

The page holds its numbers as JSON, thinned so that it stays small, and a script of our own (the *.js here, 30 kB) draws
them as SVG: curves with bands, and points in the plane or in space, with what the pointer can ask of them. SVG follows
the reader's light or dark colours, is sharp in print, and reads at any width; a plotting library's script would make
every page larger by megabytes. What the figures show is worked out in view/data.py.
"""

from galapax.view.report.charts import STEPS
from galapax.view.report.figures import POINTS
from galapax.view.report.result import page
from galapax.view.report.study import study_page

__all__ = ["POINTS", "STEPS", "page", "study_page"]
