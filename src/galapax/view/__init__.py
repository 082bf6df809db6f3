"""Views: they draw results and run nothing.

Importing this room teaches results to draw and to save themselves, and runs to be watched, see core/hooks.py. What
needs matplotlib is imported when a picture is asked for.
"""

from galapax.core import hooks
from galapax.view import accessor, live, notebook, progress, saving

hooks.offer("plot", accessor.Plot)
hooks.offer("plot_study", accessor.StudyPlot)
hooks.offer("html", notebook.html)
hooks.offer("save", saving.save)
hooks.offer("save_study", saving.save_study)
hooks.offer("progress_line", progress.progress_line)
hooks.offer("live_page", live.watching)
hooks.offer("live_page_up", live.is_served)
