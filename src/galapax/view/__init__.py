"""Views: they draw results and run nothing.

Importing this room teaches results to draw and to save themselves, and runs to be watched, see core/hooks.py. What
needs matplotlib is imported when a picture is asked for.
"""

from galapax.core import hooks

hooks.offer("plot", "galapax.view.accessor", "Plot")
hooks.offer("plot_study", "galapax.view.accessor", "StudyPlot")
hooks.offer("html", "galapax.view.notebook", "html")
hooks.offer("save", "galapax.view.saving", "save")
hooks.offer("save_study", "galapax.view.saving", "save_study")
hooks.offer("progress_line", "galapax.view.progress", "progress_line")
hooks.offer("live_page", "galapax.view.live", "watching")
hooks.offer("live_page_up", "galapax.view.live", "is_served")
