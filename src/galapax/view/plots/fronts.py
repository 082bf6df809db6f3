"""Fronts, and solutions in parallel coordinates. An error says what a result lacks for a figure."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from galapax.core.errors import InputError
from galapax.results.result import Result
from galapax.view import figure_data, maps
from galapax.view.plots.style import (
    BLUE,
    COLORMAP,
    GREEN,
    GREY,
    ORANGE,
    PALETTE,
    NotebookFigure,
    labels,
    objective_names,
    open_axes,
    set_title,
    wrap_title,
)

MAX_PARALLEL_LINES = 400  # individuals in parallel coordinates


def front(result: Result, ax: Axes | None = None) -> Figure:
    """Draw the non-dominated solutions: a plane for two objectives, space for three, parallel axes for more.

    Beside them the true front where it is known, the knee, and the best of each objective.
    """
    if "F" not in result:
        raise InputError(
            "a front needs several objectives, and this result has one: use plot.convergence() or plot.landscape()."
        )
    F, knee = np.asarray(result.F, np.float64), result.knee
    if knee is None:
        raise InputError("this result has no feasible solution, so there is no front to draw.")
    if F.shape[1] <= 3:
        return _front_in_space(result, F, knee, ax)
    figure, axes = open_axes(ax, (9, 5))
    names = objective_names(result)
    _draw_parallel(axes, F, F.min(axis=0), F.max(axis=0), names, F[:, 0], names[0], F[knee], "knee")
    axes.set_xlabel("objective")
    axes.set_ylabel("from the lowest to the highest value on the front")
    set_title(axes, result)
    return figure


def _front_in_space(result: Result, F: np.ndarray, knee: int, ax: Axes | None) -> Figure:
    """Scatter two or three objectives."""
    is_flat, names, ends = F.shape[1] == 2, objective_names(result), np.unique(figure_data.front_ends(result))
    true_front = figure_data.true_front(result.problem, 1000 if is_flat else 600)
    figure, axes = open_axes(ax, (7.5, 5 if is_flat else 6.4), subplot_kw={} if is_flat else {"projection": "3d"})
    if not is_flat and not hasattr(axes, "set_zlabel"):
        raise InputError('a front of three objectives needs ax with projection="3d".')
    scatter_options: dict[str, Any] = {} if is_flat else {"depthshade": False}
    if true_front is not None:
        axes.scatter(*true_front.T, s=3 if is_flat else 2, color=GREY, label="true front", zorder=1, **scatter_options)
    found_label = f"found, {len(F):,} points"
    axes.scatter(*F.T, s=22, color=BLUE, edgecolor="white", lw=0.4, label=found_label, zorder=2, **scatter_options)
    axes.scatter(
        *F[ends].T, s=70, marker="^", color=GREEN, edgecolor="black", label="best of each", zorder=3, **scatter_options
    )
    axes.scatter(
        *F[[knee]].T, s=90, marker="D", color=ORANGE, edgecolor="black", label="knee", zorder=4, **scatter_options
    )
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    axes.grid(alpha=0.25)
    if is_flat:
        set_title(axes, result)
    else:
        axes.set_zlabel(names[2])
        axes.view_init(elev=25, azim=40)
        axes.set_box_aspect(None, zoom=0.88)
        if ax is None:
            figure.suptitle(wrap_title(figure_data.result_title(result), figure), x=0.02, ha="left", fontsize=12)
    axes.legend(frameon=False)
    return figure


def parallel(result: Result, generation: int | None = None, ax: Axes | None = None) -> Figure:
    """Draw a line for each solution of the front, or each survivor, over all variables, each from bound to bound.

    Its colour is the first objective. The best solution (the knee of a front) is drawn thick.
    generation: the population that `snapshots` kept there, instead of the last one.
    """
    problem = result.problem
    if generation is not None:
        population = maps.stored_populations(result, [generation])[generation]
        x, values, best_name = (
            np.asarray(population.x),
            maps.feasible_fitness(population),
            "knee" if "F" in result else "final best",
        )
    elif "F" in result:
        x, values, best_name = np.asarray(result.X), np.asarray(result.F)[:, 0], "knee"
    else:
        x, values, best_name = np.asarray(result.population), np.asarray(result.population_fitness), "best"
    rows = maps.thin_indices(len(x), MAX_PARALLEL_LINES) if len(x) else np.zeros(0, int)
    names = labels(problem)
    height = 4.8 + min(2.0, 0.05 * max(map(len, names)))  # room for names that are written aslant
    figure, axes = open_axes(ax, (min(14.0, max(7.5, 3 + 0.45 * problem.dim)), height))
    lower, upper = np.asarray(problem.bounds.lower), np.asarray(problem.bounds.upper)
    objective = objective_names(result)[0]
    ends = [problem.limits(i) for i in range(problem.dim)] if problem.space is not None else None
    _draw_parallel(axes, x[rows], lower, upper, names, values[rows], objective, np.asarray(result.x), best_name, ends)
    count_note = "" if len(rows) == len(x) else f", {len(rows):,} of {len(x):,} lines"
    axes.set_xlabel("variable" + count_note)
    axes.set_ylabel("from lower to upper bound")
    set_title(axes, result, f", generation {generation:,}" if generation else "")
    return figure


def _draw_parallel(
    axes: Axes,
    table: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    names: list[str],
    values: np.ndarray,
    value_name: str,
    best: np.ndarray,
    best_name: str,
    ends: list[tuple[str, str]] | None = None,
) -> None:
    """Draw rows of a table (k, c) as lines over c axes from `low` to `high`, coloured by their values (k,)."""
    columns = np.arange(table.shape[1])
    span = np.where(high > low, high - low, 1.0)
    order = np.argsort(-np.where(np.isfinite(values), values, np.inf), kind="stable")  # the least is drawn last
    lines = np.stack([np.broadcast_to(columns, table.shape), (table - low) / span], axis=-1)[order]
    finite = values[np.isfinite(values)]
    norm = Normalize(float(finite.min()), float(finite.max())) if finite.size else Normalize(0, 1)
    opacity = max(0.25, min(0.9, 30 / max(1, len(table))))
    colours = np.where(np.isfinite(values), values, finite.max(initial=0.0))[order]
    axes.add_collection(LineCollection(list(lines), array=colours, cmap=COLORMAP, norm=norm, alpha=opacity, lw=1.2))
    best_style = {"lw": 2.4, "marker": "o", "ms": 4} if len(columns) <= 60 else {"lw": 1.2}
    axes.plot(columns, (best - low) / span, color=PALETTE[3], label=best_name, **best_style)
    for column in columns if len(columns) <= 60 else ():
        axes.axvline(float(column), color=GREY, lw=0.6, alpha=0.6, zorder=0)
    axes.set_xlim(-0.3, len(columns) - 0.7)
    axes.set_ylim(-0.06, 1.06)
    ticks = maps.thin_indices(len(columns), 32)
    is_long = max(map(len, names)) > 110 / len(ticks)
    axes.set_xticks(
        ticks, [names[i] for i in ticks], rotation=35 if is_long else 0, ha="right" if is_long else "center",
        rotation_mode="anchor" if is_long else "default",
    )  # fmt: skip
    if len(columns) <= 12:
        axes.set_yticks([])
        ends = ends or [(f"{bottom:.4g}", f"{top:.4g}") for bottom, top in zip(low, high, strict=True)]
        for column, (bottom, top) in zip(columns, ends, strict=True):
            axes.annotate(bottom, (column, -0.01), ha="center", va="top", fontsize=8, color="#505050")
            axes.annotate(top, (column, 1.01), ha="center", va="bottom", fontsize=8, color="#505050")
    else:
        axes.set_yticks([0, 1], ["lower", "upper"])
    bar = axes.figure.colorbar(ScalarMappable(norm, COLORMAP), ax=axes, pad=0.02)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.8g}")
    bar.set_label(value_name)
    if isinstance(axes.figure, NotebookFigure):
        axes.figure.legend(loc="outside lower right", frameon=False)
    else:  # the user's own figure, which may hold other legends
        axes.legend(frameon=False, fontsize="small")
