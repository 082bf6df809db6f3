"""Pictures of results, with matplotlib. Each function returns a Figure; nothing is shown or saved here."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from galapax.result import History, Result, all_runs
from galapax.statistics import ecdf_over_targets, log_targets, quantile_curves
from galapax.study import Study, curves, reference_value, scores

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
    best, (values, name) = _curves(result, history)
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


def _curves(result: Result, history: History) -> tuple[np.ndarray, tuple[np.ndarray, str]]:
    """By run and generation (R, G): the best value of a feasible point, NaN before there is one; and what is drawn of
    it, with its name. Of several objectives it is the hypervolume, or the first objective where there is none.
    """
    several = np.ndim(result.fun) > 0
    if several and history.hypervolume is not None:
        best = np.atleast_2d(np.asarray(history.hypervolume, np.float64)).copy()
    else:
        kept = np.asarray(history.best, np.float64)
        best = np.atleast_2d(kept[..., 0] if several else kept).copy()
    if history.violation is not None:
        best[np.atleast_2d(history.violation) > 0] = np.nan  # a value that no feasible point has says nothing
    best[~np.isfinite(best)] = np.nan
    if not several:
        return best, _distance(result, best)
    exact = result.problem.hypervolume
    if history.hypervolume is None:
        return best, (best, f"best {result.problem.objective_names(len(result.fun))[0]}")
    if exact is None or result.settings["maximize"]:
        return best, (best, "hypervolume")
    return best, (np.maximum(exact - best, 1e-12 * exact), "hypervolume missing to the true front")


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


# Okabe and Ito's colours, then the same with other strokes
COLOURS = (BLUE, ORANGE, GREEN, "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#B8A800")
STROKES = ("-", "--", ":", "-.")


def study_convergence(study: Study) -> Figure:
    """How the cells of a study converge.

    A comparison has a panel for each problem: median and middle half of the runs by evaluations, for each algorithm. A
    sweep has a curve for each setting: the mean of the runs by generation.
    """
    if study.kind == "sweep":
        return _sweep_convergence(study)
    names = [p for p in study.axes["problem"] if study.along("algorithm", problem=p)]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(max(6.5, 4.6 * columns), 3.6 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.ravel()[len(names) :]:
        axes.set_visible(False)
    styles = _styles(study.axes["algorithm"])
    for axes, name in zip(grid.ravel(), names, strict=False):
        found = study.along("algorithm", problem=name)
        results = list(found.values())
        reference = reference_value(results)
        floor = np.finfo(np.float64).eps * max(1.0, abs(reference))
        for label, result in found.items():
            history = all_runs(result).history
            if history is None:
                continue
            best = curves(result)
            gap = np.where(np.isfinite(best), np.maximum(best - min(reference, np.finfo(float).max), floor), np.inf)
            lower, middle, upper = (_finite(c) for c in quantile_curves(gap, (0.25, 0.5, 0.75)))
            axes.plot(history.nfev, middle, label=label, lw=1.7, **styles[label])
            axes.fill_between(history.nfev, lower, upper, color=styles[label]["color"], alpha=0.2, lw=0)
        _log_scale(axes)
        axes.set_title(results[0].problem.name, loc="left")
        axes.set_xlabel("evaluations")
        axes.grid(alpha=0.25)
    known = all(r.problem.optimum is not None for r in study.results)
    for row in grid:
        row[0].set_ylabel("distance to the best known value" if known else "distance to the best value found")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False)
    return figure


def _sweep_convergence(study: Study) -> Figure:
    figure = Figure(figsize=(8.5, 4.8), layout="constrained")
    axes = figure.subplots()
    names = list(study.axes)
    first = _styles([str(v) for v in study.axes[names[0]]])
    reference = reference_value(study.results)
    floor = np.finfo(np.float64).eps * max(1.0, abs(reference))
    for labels, result in study:
        history = all_runs(result).history
        if history is None:
            continue
        place = sum(study.axes[n].index(labels[n]) for n in names[1:])
        colour = first[str(labels[names[0]])]["color"]
        gap = _finite(np.maximum(curves(result).mean(axis=0) - reference, floor))
        label = ", ".join(f"{n} {v:g}" if isinstance(v, float) else f"{n} {v}" for n, v in labels.items())
        axes.plot(history.generation, gap, color=colour, ls=STROKES[place % len(STROKES)], lw=1.6, label=label)
    _log_scale(axes)
    axes.set_xlabel("generation")
    axes.set_ylabel(
        "mean of the best values − " + ("best known" if study.results[0].problem.optimum is not None else "best found")
    )
    problem = study.results[0].problem
    runs = len(all_runs(study.results[0]))
    axes.set_title(f"{problem.name} · {study.results[0].settings['algorithm']}, {runs} runs each", loc="left")
    axes.grid(alpha=0.25)
    if len(study) <= 40:
        figure.legend(loc="outside right upper", frameon=False, fontsize=9 if len(study) <= 16 else 7)
    return figure


def running_times(study: Study) -> Figure:
    """By evaluations, the share of targets reached, over all problems and runs: the empirical distribution of running
    times, with 51 targets a problem between its first value and its best known one, evenly on a logarithmic scale.
    """
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    styles = _styles(study.axes["algorithm"])
    shares: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for name in study.axes["problem"]:
        found = study.along("algorithm", problem=name)
        if not found:
            continue
        reference = reference_value(list(found.values()))
        begin = np.concatenate([curves(result)[:, 0] for result in found.values()])
        begin = begin[np.isfinite(begin)]
        if begin.size == 0:  # nothing feasible at first: count from the worst end
            begin = np.concatenate([scores(result) for result in found.values()])
            begin = begin[np.isfinite(begin)]
        start = float(np.median(begin)) if begin.size else np.nan
        if not start > reference:
            continue
        single = any(result.settings["dtype"] == "float32" for result in found.values())
        targets = log_targets(reference, start, precision=1e-4 if single else 1e-8)
        for label, result in found.items():
            history = all_runs(result).history
            assert history is not None
            share = ecdf_over_targets(curves(result), history.nfev, targets)
            shares.setdefault(label, []).append((history.nfev, share))
    for label, parts in shares.items():
        steps = max((nfev for nfev, _ in parts), key=len)
        total = np.zeros(len(steps))
        for nfev, share in parts:
            at = np.searchsorted(nfev, steps, side="right") - 1
            total += np.where(at >= 0, share[np.maximum(at, 0)], 0.0)
        axes.step(steps, total / len(parts), where="post", label=label, lw=1.8, **styles[label])
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("evaluations")
    axes.set_ylabel("share of targets reached")
    axes.set_title(f"{len(study.axes['problem'])} problems, 51 targets each", loc="left")
    axes.grid(alpha=0.25)
    if shares:
        axes.legend(frameon=False, loc="upper left")
    return figure


def _styles(names: list[str]) -> dict[str, dict[str, Any]]:
    return {
        name: {"color": COLOURS[i % len(COLOURS)], "ls": STROKES[i // len(COLOURS) % len(STROKES)]}
        for i, name in enumerate(names)
    }


def _log_scale(axes: Axes) -> None:
    """A logarithmic scale, where something is drawn that it can show."""
    drawn = [np.asarray(line.get_ydata(), np.float64) for line in axes.get_lines()]
    if any((np.isfinite(y) & (y > 0)).any() for y in drawn):
        axes.set_yscale("log")


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
