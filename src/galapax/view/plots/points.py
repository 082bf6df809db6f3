"""Fronts, and solutions as lines over parallel axes. What a result may lack is asked for in a sentence."""

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
from galapax.view import data, maps
from galapax.view.plots.style import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    SEQUENCE,
    Picture,
    canvas,
    labels,
    objective_names,
    set_title,
    wrapped,
)

LINES = 400  # individuals drawn at most


def front(result: Result, ax: Any = None) -> Figure:
    """The non-dominated solutions: a plane for two objectives, space for three, parallel axes for more.

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
    figure, axes = canvas(ax, (9, 5))
    names = objective_names(result)
    _draw_parallel(axes, F, F.min(axis=0), F.max(axis=0), names, F[:, 0], names[0], F[knee], "knee")
    axes.set_xlabel("objective")
    axes.set_ylabel("from the lowest to the highest value on the front")
    set_title(axes, result)
    return figure


def _front_in_space(result: Result, F: np.ndarray, knee: int, ax: Any) -> Figure:
    """Two or three objectives as points."""
    flat, names, ends = F.shape[1] == 2, objective_names(result), np.unique(data.front_ends(result))
    truth = data.true_front(result.problem, 1000 if flat else 600)
    figure, axes = canvas(ax, (7.5, 5 if flat else 6.4), subplot_kw={} if flat else {"projection": "3d"})
    if not flat and not hasattr(axes, "set_zlabel"):
        raise InputError('a front of three objectives needs ax with projection="3d".')
    solid: dict[str, Any] = {} if flat else {"depthshade": False}
    if truth is not None:
        axes.scatter(*truth.T, s=3 if flat else 2, color=GREY, label="true front", zorder=1, **solid)
    found = f"found, {len(F):,} points"
    axes.scatter(*F.T, s=22, color=BLUE, edgecolor="white", lw=0.4, label=found, zorder=2, **solid)
    axes.scatter(*F[ends].T, s=70, marker="^", color=GREEN, edgecolor="black", label="best of each", zorder=3, **solid)
    axes.scatter(*F[[knee]].T, s=90, marker="D", color=ORANGE, edgecolor="black", label="knee", zorder=4, **solid)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    axes.grid(alpha=0.25)
    if flat:
        set_title(axes, result)
    else:
        axes.set_zlabel(names[2])
        axes.view_init(elev=25, azim=40)
        axes.set_box_aspect(None, zoom=0.88)
        if ax is None:
            figure.suptitle(wrapped(data.title_of(result), figure), x=0.02, ha="left", fontsize=12)
    axes.legend(frameon=False)
    return figure


def parallel(result: Result, generation: int | None = None, ax: Any = None) -> Figure:
    """A line for each solution of the front, or each survivor, over all variables, each from bound to bound.

    Its colour is the first objective. The best solution (the knee of a front) is drawn thick.
    generation: the population that `snapshots` kept there, instead of the last one.
    """
    problem = result.problem
    if generation is not None:
        kept = maps.snapshots_of(result, [generation])[generation]
        x, values, best = np.asarray(kept.x), maps.fitness_of(kept), "knee" if "F" in result else "final best"
    elif "F" in result:
        x, values, best = np.asarray(result.X), np.asarray(result.F)[:, 0], "knee"
    else:
        x, values, best = np.asarray(result.population), np.asarray(result.population_fitness), "best"
    rows = maps.thinned(len(x), LINES) if len(x) else np.zeros(0, int)
    names = labels(problem)
    height = 4.8 + min(2.0, 0.05 * max(map(len, names)))  # room for names that are written aslant
    figure, axes = canvas(ax, (min(14.0, max(7.5, 3 + 0.45 * problem.dim)), height))
    lower, upper = np.asarray(problem.bounds.lower), np.asarray(problem.bounds.upper)
    objective = objective_names(result)[0]
    ends = [problem.limits(i) for i in range(problem.dim)] if problem.space is not None else None
    _draw_parallel(axes, x[rows], lower, upper, names, values[rows], objective, np.asarray(result.x), best, ends)
    some = "" if len(rows) == len(x) else f", {len(rows):,} of {len(x):,} lines"
    axes.set_xlabel("variable" + some)
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
    """Rows of a table (k, c) as lines over c axes that run from `low` to `high`, coloured by their values (k,)."""
    places = np.arange(table.shape[1])
    span = np.where(high > low, high - low, 1.0)
    order = np.argsort(-np.where(np.isfinite(values), values, np.inf), kind="stable")  # the least is drawn last
    lines = np.stack([np.broadcast_to(places, table.shape), (table - low) / span], axis=-1)[order]
    finite = values[np.isfinite(values)]
    norm = Normalize(float(finite.min()), float(finite.max())) if finite.size else Normalize(0, 1)
    shade = max(0.25, min(0.9, 30 / max(1, len(table))))
    colours = np.where(np.isfinite(values), values, finite.max(initial=0.0))[order]
    axes.add_collection(LineCollection(list(lines), array=colours, cmap=SEQUENCE, norm=norm, alpha=shade, lw=1.2))
    thick = {"lw": 2.4, "marker": "o", "ms": 4} if len(places) <= 60 else {"lw": 1.2}
    axes.plot(places, (best - low) / span, color=COLOURS[3], label=best_name, **thick)
    for place in places if len(places) <= 60 else ():
        axes.axvline(float(place), color=GREY, lw=0.6, alpha=0.6, zorder=0)
    axes.set_xlim(-0.3, len(places) - 0.7)
    axes.set_ylim(-0.06, 1.06)
    shown = maps.thinned(len(places), 32)
    long = max(map(len, names)) > 110 / len(shown)
    axes.set_xticks(
        shown, [names[i] for i in shown], rotation=35 if long else 0, ha="right" if long else "center",
        rotation_mode="anchor" if long else "default",
    )  # fmt: skip
    if len(places) <= 12:
        axes.set_yticks([])
        ends = ends or [(f"{bottom:.4g}", f"{top:.4g}") for bottom, top in zip(low, high, strict=True)]
        for place, (bottom, top) in zip(places, ends, strict=True):
            axes.annotate(bottom, (place, -0.01), ha="center", va="top", fontsize=8, color="#505050")
            axes.annotate(top, (place, 1.01), ha="center", va="bottom", fontsize=8, color="#505050")
    else:
        axes.set_yticks([0, 1], ["lower", "upper"])
    bar = axes.figure.colorbar(ScalarMappable(norm, SEQUENCE), ax=axes, pad=0.02)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.8g}")
    bar.set_label(value_name)
    if isinstance(axes.figure, Picture):
        axes.figure.legend(loc="outside lower right", frameon=False)
    else:  # the user's own figure, which may hold other legends
        axes.legend(frameon=False, fontsize="small")
