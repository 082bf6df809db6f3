"""What all matplotlib figures share: colours, line styles, figure class, axes, titles."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import ColorType

from galapax.core.checks import escape_mathtext
from galapax.core.errors import InputError
from galapax.core.problem import ProblemDescription
from galapax.results.result import Result
from galapax.view import figure_data

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#8c8c8c"  # Okabe and Ito's, safe for the colour-blind
PALETTE = (BLUE, ORANGE, GREEN, "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#B8A800")
LINE_STYLES = ("-", "--", ":", "-.")
COLORMAP = "viridis"  # perceptually even, safe for the colour-blind


AxesLike: TypeAlias = Axes | Sequence[Axes] | np.ndarray  # one for each panel


class NotebookFigure(Figure):
    """A Figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def open_axes(ax: Axes | None, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return the figure and axes to draw into: the user's, or new ones of this size. options: of new axes."""
    if ax is not None:
        return ax.figure, ax
    figure = NotebookFigure(figsize=size, layout="constrained")
    return figure, figure.subplots(**options)


def check_axes(ax: AxesLike, count: int) -> list[Axes]:
    """Return the user's axes as a list, one for each of `count` panels; raise if there are more or fewer."""
    grid = [ax] if isinstance(ax, Axes) else list(np.ravel(np.asarray(ax, object)))
    if len(grid) != count:
        raise InputError(f"this figure has {count} panels: give ax as a list of {count} axes; got {len(grid)}.")
    return grid


def outside_legend(figure: Figure, axes: Axes, ax: Axes | None, **options: Any) -> None:
    """Place the legend outside the axes in a figure of ours; in the user's figure, inside the axes."""
    if ax is None:
        figure.legend(frameon=False, **options)
    else:
        axes.legend(**options | {"loc": "best", "fontsize": "small", "ncols": 1, "framealpha": 0.6})


def curve_colour(code: float) -> ColorType:
    """The colour of a curve, see `figure_data.Curve`."""
    return PALETTE[int(code)] if code == int(code) else colormaps[COLORMAP](0.95 * code)


def wrap_title(text: str, figure: Figure, letters: float = 10) -> str:
    """Wrap a text to the figure's width, with this many letters per inch."""
    lines = (textwrap.fill(line, max(12, int(letters * figure.get_figwidth()))) for line in text.split("\n"))
    return escape_mathtext("\n".join(lines))


def labels(problem: ProblemDescription) -> list[str]:
    """Names of the variables, escaped for mathtext."""
    return [escape_mathtext(name) for name in figure_data.labels(problem)]


def objective_names(result: Result) -> list[str]:
    """Names of the objectives, escaped for mathtext."""
    return [escape_mathtext(name) for name in figure_data.objective_names(result)]


def set_title(axes: Axes, result: Result, suffix: str = "") -> None:
    figure: Any = axes.figure
    width_share = 1.0 if isinstance(figure, NotebookFigure) else axes.get_position().width  # of the user's figure
    axes.set_title(wrap_title(figure_data.result_title(result) + suffix, figure, 10 * width_share), loc="left")
