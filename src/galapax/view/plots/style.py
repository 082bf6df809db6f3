"""What all pictures share: colours, the kind of figure, titles."""

from __future__ import annotations

import io
import textwrap
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from galapax.core.names import for_mathtext
from galapax.core.problem import Described
from galapax.results.result import Result
from galapax.view import data

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#8c8c8c"  # Okabe and Ito's, safe for the colour-blind
COLOURS = (BLUE, ORANGE, GREEN, "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#B8A800")
STROKES = ("-", "--", ":", "-.")
SEQUENCE = "viridis"  # perceptually even, safe for the colour-blind


class Picture(Figure):
    """A Figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def canvas(ax: Axes | None, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """The figure and axes to draw into: the user's, or new ones of this size. options: of new axes."""
    if ax is not None:
        return ax.figure, ax
    figure = Picture(figsize=size, layout="constrained")
    return figure, figure.subplots(**options)


def outside_legend(figure: Any, axes: Axes, ax: Axes | None, **options: Any) -> None:
    """A legend outside the axes of our own figure; in the user's figure, inside the axes."""
    if ax is None:
        figure.legend(frameon=False, **options)
    else:
        axes.legend(**options | {"loc": "best", "fontsize": "small", "ncols": 1, "framealpha": 0.6})


def paint(place: float) -> Any:
    """The colour of a curve, see `study_data.Curve`."""
    return COLOURS[int(place)] if place == int(place) else colormaps[SEQUENCE](0.95 * place)


def wrapped(text: str, figure: Any, letters: float = 10) -> str:
    """A text in as many lines as it takes, with this many letters per inch of the figure's width."""
    lines = (textwrap.fill(line, max(12, int(letters * figure.get_figwidth()))) for line in text.split("\n"))
    return for_mathtext("\n".join(lines))


def labels(problem: Described) -> list[str]:
    """Names of the variables as a picture takes them."""
    return [for_mathtext(name) for name in data.labels(problem)]


def objective_names(result: Result) -> list[str]:
    """Names of the objectives as a picture takes them."""
    return [for_mathtext(name) for name in data.objective_names(result)]


def set_title(axes: Axes, result: Result, more: str = "") -> None:
    figure: Any = axes.figure
    share = 1.0 if isinstance(figure, Picture) else axes.get_position().width  # of the user's figure
    axes.set_title(wrapped(data.title_of(result) + more, figure, 10 * share), loc="left")
