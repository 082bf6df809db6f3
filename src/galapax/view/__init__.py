"""Views: they draw results and run nothing.

Importing this room teaches results to draw and to save themselves, see results/hooks.py. What needs matplotlib is
imported when a picture is asked for.
"""

from galapax.results import hooks
from galapax.view import accessor, saving

hooks.offer("plot", accessor.Plot)
hooks.offer("save", saving.save)
hooks.offer("save_study", saving.save_study)
