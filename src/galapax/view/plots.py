"""Pictures of results, with matplotlib. Each function returns a Figure; nothing is shown or saved here."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from galapax.result import History, Result

BLUE, ORANGE, GREEN, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#8c8c8c",
)  # Okabe and Ito's colours, safe for the colour-blind


def convergence(result: Result) -> Figure:
    """The best value by generation: its distance to the best known value where there is one, on a logarithmic scale.

    For several runs the median, the middle half and the whole range.
    """
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    draw_convergence(axes, result)
    axes.set_title(_title(result), loc="left")
    return figure


def draw_convergence(axes: Axes, result: Result, colour: str = BLUE, label: str | None = None) -> None:
    """Draw the convergence of a result into axes that may hold others already."""
    history = result.history if result.runs is None else result.runs.history
    if history is None:
        axes.text(0.5, 0.5, "No history was kept.", ha="center", transform=axes.transAxes)
        return
    best = np.atleast_2d(np.asarray(history.best, np.float64)).copy()
    if history.violation is not None:
        best[np.atleast_2d(history.violation) > 0] = np.nan  # a value that no feasible point has says nothing
    best[~np.isfinite(best)] = np.nan
    values, name = _distance(result, best)
    low, lower, middle, upper, high = _bands(values)
    axes.plot(history.generation, middle, color=colour, lw=1.8, label=label or ("median" if len(best) > 1 else "best"))
    if len(best) > 1:
        axes.fill_between(history.generation, lower, upper, color=colour, alpha=0.35, lw=0, label="middle half")
        axes.fill_between(history.generation, low, high, color=colour, alpha=0.12, lw=0, label="all runs")
    _mark_feasible(axes, history, best)
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() > 0 and finite.max() > 20 * finite.min():
        axes.set_yscale("log")
    axes.set_xlabel("generation")
    axes.set_ylabel(name)
    axes.set_xlim(1, max(2, int(history.generation[-1])))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def _distance(result: Result, best: np.ndarray) -> tuple[np.ndarray, str]:
    optimum = result.problem.optimum
    if optimum is None or result.settings["maximize"]:
        return best, "best value"
    gap = best - optimum
    # rounding, and the tolerance on equalities, let a run end a hair below the published optimum
    floor = np.finfo(np.float64).eps * max(1.0, abs(optimum))
    return np.where(np.isnan(gap), np.nan, np.maximum(gap, floor)), "best value − best known value"


def _bands(values: np.ndarray) -> np.ndarray:
    """Quantiles over the runs, generation by generation, where at least one run has a value: (5, G)."""
    out = np.full((5, values.shape[1]), np.nan)
    known = np.isfinite(values).any(axis=0)
    out[:, known] = np.nanquantile(values[:, known], (0, 0.25, 0.5, 0.75, 1), axis=0)
    return out


def _mark_feasible(axes: Axes, history: History, best: np.ndarray) -> None:
    if history.violation is None:
        return
    known = np.isfinite(best).any(axis=0)
    if known.any() and not known[0]:
        first = int(history.generation[np.argmax(known)])
        axes.axvline(first, color=GREY, lw=1, ls=":")
        axes.annotate(
            "first feasible", (first, 1), xycoords=("data", "axes fraction"), xytext=(4, -12),
            textcoords="offset points", color=GREY, fontsize=9,
        )  # fmt: skip


def _title(result: Result) -> str:
    runs = f", {len(result.runs)} runs" if result.runs is not None else ""
    return f"{result.problem.title or result.problem.name} · {result.settings['algorithm']}{runs}"
