"""The objective over two variables, with the populations on it, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from galapax.core.errors import InputError
from galapax.core.problem import Evaluation, Problem, missing_function
from galapax.results.result import Result
from galapax.view import figure_data, maps
from galapax.view.plots import (
    BLUE,
    GREY,
    ORANGE,
    PALETTE,
    labels,
    objective_names,
    open_axes,
    outside_legend,
    set_title,
)
from galapax.view.summary_tables import format_distinct

MAX_SCATTERED_POINTS = 2000  # individuals of each population


def landscape(
    result: Result,
    variables: Sequence[int | str] = (0, 1),
    *,
    window: Sequence[tuple[float, float]] | None = None,
    objective: int = 0,
    points: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the objective over two variables, the others held at the best x, with the populations on it.

    variables: two numbers from 0, or two names; of a problem with one variable a curve is drawn. window: (lower, upper)
    pair for each of the two, instead of the whole box. objective: which, of several. The last population is drawn, and
    some that `snapshots` kept. What violates an inequality is paler; where an equality holds is a line. points: of the
    grid along each variable (161; 31 for a black box, where each point is a call).
    """
    problem = figure_data.restore_functions(result.problem)
    if "y" in result or not isinstance(problem, Problem):
        raise InputError("a landscape needs an objective of x only, and this is a min-max result.")
    if problem.fun is missing_function:
        raise InputError(
            "this result was loaded without its objective, so no landscape can be drawn: call minimize again, or set "
            "result.problem = problem."
        )
    sides = points or (31 if result.settings["blackbox"] else 161)
    if problem.dim == 1:
        return _draw_one_variable(result, problem, 4 * sides, objective, ax)
    first, second = _two_variables(problem, variables)
    limits = _window(problem, (first, second), window)
    across, up = (np.linspace(low, high, sides) for low, high in limits)
    grid = np.tile(np.asarray(result.x, np.float64), (sides * sides, 1))
    grid[:, first], grid[:, second] = (side.ravel() for side in np.meshgrid(across, up))
    values = _evaluate_grid(problem.fun, grid, result)[:, objective].reshape(sides, sides)
    figure, axes = open_axes(ax, (7.6, 5.8))
    _draw_contours(axes, across, up, values, objective_names(result)[objective])
    handles = _draw_constraints(axes, across, up, grid, problem, result)
    for x, style in _population_styles(result):
        handles += axes.plot(x[:, first], x[:, second], ls="", **style)
    handles += axes.plot(
        result.x[first], result.x[second], ls="", marker="*", ms=17, color=ORANGE, mec="black", mew=1,
        label="knee" if "F" in result else "best",
    )  # fmt: skip
    names = labels(problem)
    axes.set(xlabel=names[first], ylabel=names[second], xlim=limits[0], ylim=limits[1])
    others_name = "variable" if problem.dim == 3 else f"{problem.dim - 2} variables"
    fixed_note = "" if problem.dim == 2 else f"\nthe other {others_name} held at the best x"
    set_title(axes, result, fixed_note)
    unique_handles = {handle.get_label(): handle for handle in handles}
    outside_legend(figure, axes, ax, handles=list(unique_handles.values()), loc="outside lower center", ncols=4)
    return figure


def _window(
    problem: Problem, indices: tuple[int, int], window: Sequence[tuple[float, float]] | None
) -> list[tuple[float, float]]:
    """The drawn range of the two variables."""
    if window is None:
        return [(float(problem.bounds.lower[i]), float(problem.bounds.upper[i])) for i in indices]
    limits = [(float(low), float(high)) for low, high in window]
    if len(limits) != 2 or not all(low < high for low, high in limits):
        raise InputError(f"window must be two (lower, upper) pairs, such as [(0, 1), (0, 2)]; got {window!r}.")
    return limits


def _draw_constraints(
    axes: Axes, across: np.ndarray, up: np.ndarray, grid: np.ndarray, problem: Problem, result: Result
) -> list[Artist]:
    """Pale what violates an inequality, draw where an equality holds as a line; return the legend's handles."""
    shape = len(up), len(across)
    handles: list[Artist] = []
    if problem.ineq is not None:
        violation = np.nanmax(_evaluate_grid(problem.ineq, grid, result), axis=1).reshape(shape)
        if (violation > 0).any():
            axes.contourf(across, up, violation, levels=[0, violation.max() + 1], colors=["white"], alpha=0.65)
            handles.append(Patch(facecolor="#d9dde3", edgecolor="black", label="infeasible"))
        if (violation > 0).any() and (violation <= 0).any():
            axes.contour(across, up, violation, levels=[0], colors="black", linewidths=1)
    for h in _evaluate_grid(problem.eq, grid, result).T if problem.eq is not None else ():
        if h.min() < 0 < h.max():
            axes.contour(across, up, h.reshape(shape), levels=[0], colors=PALETTE[4], linewidths=1.6)
            handles.append(axes.plot([], [], color=PALETTE[4], lw=1.6, label="equality holds")[0])
    return handles


def _draw_one_variable(result: Result, problem: Problem, count: int, objective: int, ax: Axes | None) -> Figure:
    """Draw the objective over the only variable."""
    across = np.linspace(problem.bounds.lower[0], problem.bounds.upper[0], count)[:, None]
    values = _evaluate_grid(problem.fun, across, result)[:, objective]
    figure, axes = open_axes(ax, (8, 4.5))
    axes.plot(across[:, 0], values, color=BLUE, lw=1.8)
    if problem.ineq is not None:
        is_infeasible = np.nanmax(_evaluate_grid(problem.ineq, across, result), axis=1) > 0
        axes.fill_between(
            across[:, 0], 0, 1, where=is_infeasible, transform=axes.get_xaxis_transform(), facecolor="none",
            edgecolor=GREY, hatch="////", lw=0, label="infeasible",
        )  # fmt: skip
    for x, style in _population_styles(result):
        axes.plot(x[:, 0], _evaluate_grid(problem.fun, x, result)[:, objective], ls="", **style)
    at_best = _evaluate_grid(problem.fun, np.asarray(result.x)[None], result)[0, objective]
    axes.plot(result.x[0], at_best, ls="", marker="*", ms=17, color=ORANGE, mec="black", label="best")
    axes.set(xlabel=labels(problem)[0], ylabel=objective_names(result)[objective])
    set_title(axes, result)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def _population_styles(result: Result) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """The populations to scatter, thinned, oldest first and palest, with matplotlib's style for each."""
    snapshots = maps.stored_populations(result) if result.get("snapshots") else {}
    generations = [g for g in snapshots if g != result.nit]
    generations = [generations[i] for i in maps.thin_indices(len(generations), 3)] if generations else []
    styles = []
    for i, g in enumerate(generations):
        colour = colormaps["OrRd"](0.65 * i / max(1, len(generations) - 1))
        styles.append((np.asarray(snapshots[g].x), {"color": colour, "label": f"generation {g:,}"}))
    last = np.asarray(result.X if "F" in result else result.population)
    label = "front" if "F" in result else f"last population, {result.nit:,}"
    if "minima" in result:
        label = f"{len(result.minima):,} minima" if result.sign > 0 else f"{len(result.minima):,} maxima"
    styles.append((last, {"color": colormaps["OrRd"](0.95), "label": label}))
    marker_style = {"marker": "o", "ms": 5, "mec": "black", "mew": 0.5}
    return [(x[maps.thin_indices(len(x), MAX_SCATTERED_POINTS)], marker_style | style) for x, style in styles if len(x)]


def _draw_contours(axes: Axes, across: np.ndarray, up: np.ndarray, values: np.ndarray, name: str) -> None:
    """Draw filled contours at quantiles of the values, so that valleys show whatever the range is."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise InputError("the objective has no finite value on the grid, so there is nothing to draw.")
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, 25) ** 1.3))
    if len(edges) < 3:
        edges = np.linspace(finite.min() - 0.5, finite.max() + 0.5, 3)
    filled = axes.contourf(
        across, up, np.ma.masked_invalid(values), levels=edges, cmap="Blues_r", norm=BoundaryNorm(edges, 256)
    )
    axes.contour(
        across, up, np.ma.masked_invalid(values), levels=edges[1:-1:2], colors="white", linewidths=0.4, alpha=0.6
    )
    bar = axes.figure.colorbar(filled, ax=axes, pad=0.02, spacing="uniform")
    ticks = edges[:: max(1, len(edges) // 6)].tolist()
    bar.set_ticks(ticks, labels=format_distinct(ticks, 3))
    bar.set_label(name)


def _evaluate_grid(function: Callable[..., Any], x: np.ndarray, result: Result) -> np.ndarray:
    """Evaluate a function of the problem at points (k, d): (k, m), NaN where it fails."""
    settings = result.settings
    if settings["blackbox"]:
        rows = function(x) if settings["vectorized"] else [_evaluate_or_nan(function, point) for point in x]
        width = max((np.size(row) for row in rows), default=1)
        return np.array([np.broadcast_to(np.ravel(row), width) for row in rows], np.float64)
    with jax.enable_x64(True):
        values = jax.jit(function if settings["vectorized"] else jax.vmap(function))(x)
        return np.asarray(values, np.float64).reshape(len(x), -1)


def _evaluate_or_nan(function: Callable[..., object], x: np.ndarray) -> Any:
    try:
        value = function(x)
        return value["fun"] if isinstance(value, dict) else value.fun if isinstance(value, Evaluation) else value
    except Exception:
        return np.nan


def _two_variables(problem: Problem, variables: Sequence[int | str]) -> tuple[int, int]:
    names = problem.variable_names()
    indices = [names.index(v) if isinstance(v, str) and v in names else v for v in variables]
    is_valid = [isinstance(v, int | np.integer) and not isinstance(v, bool) and 0 <= v < problem.dim for v in indices]
    if len(indices) != 2 or not all(is_valid) or indices[0] == indices[1]:
        raise InputError(
            f"variables must be two of 0 to {problem.dim - 1}, or two names ({', '.join(names[:4])}"
            f"{', …' if len(names) > 4 else ''}); got {tuple(variables)!r}."
        )
    return int(indices[0]), int(indices[1])
