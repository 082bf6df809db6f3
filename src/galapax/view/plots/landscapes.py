"""The objective over two variables, with the populations on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from galapax.core.errors import InputError
from galapax.core.problem import Problem, unavailable
from galapax.core.values import Values
from galapax.results.result import Result
from galapax.view import data, maps
from galapax.view.plots.style import (
    BLUE,
    COLOURS,
    GREY,
    ORANGE,
    canvas,
    labels,
    objective_names,
    outside_legend,
    set_title,
)
from galapax.view.tables import apart

DOTS = 2000  # individuals drawn at most


def landscape(
    result: Result,
    variables: Sequence[int | str] = (0, 1),
    *,
    window: Any = None,
    objective: int = 0,
    points: int | None = None,
    ax: Any = None,
) -> Figure:
    """The objective over two variables, the others held at the best x, and where the populations were.

    variables: two numbers from 0, or two names; of a problem with one variable a curve is drawn. window: (lower, upper)
    pair for each of the two, instead of the whole box. objective: which, of several. The last population is drawn, and
    some that `snapshots` kept. What violates an inequality is paler; where an equality holds is a line. points: of the
    grid along each variable (161; 31 for a black box, where each point is a call).
    """
    problem = data.with_functions(result.problem)
    if "y" in result or not isinstance(problem, Problem):
        raise InputError("a landscape needs an objective of x only, and this is a min-max result.")
    if problem.fun is unavailable:
        raise InputError(
            "this result was loaded without its objective, so no landscape can be drawn: call minimize again, or set "
            "result.problem = problem."
        )
    sides = points or (31 if result.settings["blackbox"] else 161)
    if problem.dim == 1:
        return _curve(result, problem, 4 * sides, objective, ax)
    first, second = _two_variables(problem, variables)
    ends = _window(problem, (first, second), window)
    across, up = (np.linspace(low, high, sides) for low, high in ends)
    grid = np.tile(np.asarray(result.x, np.float64), (sides * sides, 1))
    grid[:, first], grid[:, second] = (side.ravel() for side in np.meshgrid(across, up))
    values = _values(problem.fun, grid, result)[:, objective].reshape(sides, sides)
    figure, axes = canvas(ax, (7.6, 5.8))
    _draw_contours(axes, across, up, values, objective_names(result)[objective])
    handles = _draw_constraints(axes, across, up, grid, problem, result)
    for x, style in _clouds(result):
        handles += axes.plot(x[:, first], x[:, second], ls="", **style)
    handles += axes.plot(
        result.x[first], result.x[second], ls="", marker="*", ms=17, color=ORANGE, mec="black", mew=1,
        label="knee" if "F" in result else "best",
    )  # fmt: skip
    names = labels(problem)
    axes.set(xlabel=names[first], ylabel=names[second], xlim=ends[0], ylim=ends[1])
    others = "variable" if problem.dim == 3 else f"{problem.dim - 2} variables"
    held = "" if problem.dim == 2 else f"\nthe other {others} held at the best x"
    set_title(axes, result, held)
    unique = {handle.get_label(): handle for handle in handles}
    outside_legend(figure, axes, ax, handles=list(unique.values()), loc="outside lower center", ncols=4)
    return figure


def _window(problem: Problem, chosen: tuple[int, int], window: Any) -> list[tuple[float, float]]:
    """From where to where the two variables are drawn."""
    if window is None:
        return [(float(problem.bounds.lower[i]), float(problem.bounds.upper[i])) for i in chosen]
    ends = [(float(low), float(high)) for low, high in window]
    if len(ends) != 2 or not all(low < high for low, high in ends):
        raise InputError(f"window must be two (lower, upper) pairs, such as [(0, 1), (0, 2)]; got {window!r}.")
    return ends


def _draw_constraints(
    axes: Axes, across: np.ndarray, up: np.ndarray, grid: np.ndarray, problem: Problem, result: Result
) -> list[Any]:
    """What violates an inequality paler, where an equality holds as a line; returns what the legend has of them."""
    square = len(up), len(across)
    handles: list[Any] = []
    if problem.ineq is not None:
        broken = np.nanmax(_values(problem.ineq, grid, result), axis=1).reshape(square)
        if (broken > 0).any():
            axes.contourf(across, up, broken, levels=[0, broken.max() + 1], colors=["white"], alpha=0.65)
            handles.append(Patch(facecolor="#d9dde3", edgecolor="black", label="infeasible"))
        if (broken > 0).any() and (broken <= 0).any():
            axes.contour(across, up, broken, levels=[0], colors="black", linewidths=1)
    for h in _values(problem.eq, grid, result).T if problem.eq is not None else ():
        if h.min() < 0 < h.max():
            axes.contour(across, up, h.reshape(square), levels=[0], colors=COLOURS[4], linewidths=1.6)
            handles.append(axes.plot([], [], color=COLOURS[4], lw=1.6, label="equality holds")[0])
    return handles


def _curve(result: Result, problem: Problem, count: int, objective: int, ax: Any) -> Figure:
    """The objective over the only variable."""
    across = np.linspace(problem.bounds.lower[0], problem.bounds.upper[0], count)[:, None]
    values = _values(problem.fun, across, result)[:, objective]
    figure, axes = canvas(ax, (8, 4.5))
    axes.plot(across[:, 0], values, color=BLUE, lw=1.8)
    if problem.ineq is not None:
        broken = np.nanmax(_values(problem.ineq, across, result), axis=1) > 0
        axes.fill_between(
            across[:, 0], 0, 1, where=broken, transform=axes.get_xaxis_transform(), facecolor="none", edgecolor=GREY,
            hatch="////", lw=0, label="infeasible",
        )  # fmt: skip
    for x, style in _clouds(result):
        axes.plot(x[:, 0], _values(problem.fun, x, result)[:, objective], ls="", **style)
    at_best = _values(problem.fun, np.asarray(result.x)[None], result)[0, objective]
    axes.plot(result.x[0], at_best, ls="", marker="*", ms=17, color=ORANGE, mec="black", label="best")
    axes.set(xlabel=labels(problem)[0], ylabel=objective_names(result)[objective])
    set_title(axes, result)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def _clouds(result: Result) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """Populations to scatter, thinned, oldest first and palest, and how to draw each."""
    kept = maps.snapshots_of(result) if result.get("snapshots") else {}
    shown = [g for g in kept if g != result.nit]
    shown = [shown[i] for i in maps.thinned(len(shown), 3)] if shown else []
    clouds = []
    for i, g in enumerate(shown):
        colour = colormaps["OrRd"](0.65 * i / max(1, len(shown) - 1))
        clouds.append((np.asarray(kept[g].x), {"color": colour, "label": f"generation {g:,}"}))
    last = np.asarray(result.X if "F" in result else result.population)
    label = "front" if "F" in result else f"last population, {result.nit:,}"
    clouds.append((last, {"color": colormaps["OrRd"](0.95), "label": label}))
    dot = {"marker": "o", "ms": 5, "mec": "black", "mew": 0.5}
    return [(x[maps.thinned(len(x), DOTS)], dot | style) for x, style in clouds if len(x)]


def _draw_contours(axes: Axes, across: np.ndarray, up: np.ndarray, values: np.ndarray, name: str) -> None:
    """Filled contours at quantiles of the values, so that valleys show whatever the range is."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise InputError("the objective has no finite value on the grid, so there is nothing to draw.")
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, 25) ** 1.3))
    if len(edges) < 3:
        edges = np.linspace(finite.min() - 0.5, finite.max() + 0.5, 3)
    shown = axes.contourf(
        across, up, np.ma.masked_invalid(values), levels=edges, cmap="Blues_r", norm=BoundaryNorm(edges, 256)
    )
    axes.contour(
        across, up, np.ma.masked_invalid(values), levels=edges[1:-1:2], colors="white", linewidths=0.4, alpha=0.6
    )
    bar = axes.figure.colorbar(shown, ax=axes, pad=0.02, spacing="uniform")
    marked = edges[:: max(1, len(edges) // 6)].tolist()
    bar.set_ticks(marked, labels=apart(marked, 3))
    bar.set_label(name)


def _values(function: Any, x: np.ndarray, result: Result) -> np.ndarray:
    """What a function of the problem gives at points (k, d): (k, m), NaN where it fails."""
    settings = result.settings
    if settings["blackbox"]:
        rows = function(x) if settings["vectorized"] else [_attempt(function, point) for point in x]
        width = max((np.size(row) for row in rows), default=1)
        return np.array([np.broadcast_to(np.ravel(row), width) for row in rows], np.float64)
    with jax.enable_x64(True):
        values = jax.jit(function if settings["vectorized"] else jax.vmap(function))(x)
        return np.asarray(values, np.float64).reshape(len(x), -1)


def _attempt(function: Any, x: np.ndarray) -> Any:
    try:
        value = function(x)
        return value["fun"] if isinstance(value, dict) else value.fun if isinstance(value, Values) else value
    except Exception:
        return np.nan


def _two_variables(problem: Problem, variables: Sequence[int | str]) -> tuple[int, int]:
    names = problem.variable_names()
    found = [names.index(v) if isinstance(v, str) and v in names else v for v in variables]
    good = [isinstance(v, int | np.integer) and not isinstance(v, bool) and 0 <= v < problem.dim for v in found]
    if len(found) != 2 or not all(good) or found[0] == found[1]:
        raise InputError(
            f"variables must be two of 0 to {problem.dim - 1}, or two names ({', '.join(names[:4])}"
            f"{', …' if len(names) > 4 else ''}); got {tuple(variables)!r}."
        )
    return int(found[0]), int(found[1])
