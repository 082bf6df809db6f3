"""Figures of results and studies, with matplotlib. Each function returns a Figure; nothing is shown or saved here.

What they show is computed in view/figure_data.py.
"""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import ColorType, LineStyleType

from galapax.core.checks import escape_mathtext
from galapax.core.errors import InputError
from galapax.core.problem import ProblemDescription
from galapax.results.many_answers import Illumination
from galapax.results.result import Result, all_runs
from galapax.results.study import Study
from galapax.view import figure_data, maps
from galapax.view.summary_tables import format_distinct

# --- what all figures share -------------------------------------------------------------------------------------------

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#6b7280"  # Okabe and Ito's, safe for the colour-blind
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


def open_panels(
    ax: AxesLike | None, count: int, size: tuple[float, float], columns: int = 1, **options: Any
) -> tuple[Any, list[Axes]]:
    """Return the figure and the axes of `count` panels: the user's, or new ones in rows of so many columns."""
    if ax is None:
        figure = NotebookFigure(figsize=size, layout="constrained")
        axes = figure.subplots(-(-count // columns), columns, squeeze=False, **options).ravel()
        for unused in axes[count:]:
            unused.set_visible(False)
        return figure, list(axes[:count])
    grid = [ax] if isinstance(ax, Axes) else list(np.ravel(np.asarray(ax, object)))
    if len(grid) != count:
        raise InputError(f"this figure has {count} panels: give ax as a list of {count} axes; got {len(grid)}.")
    return grid[0].figure, grid


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


# --- convergence ------------------------------------------------------------------------------------------------------


def convergence(result: Result, ax: AxesLike | None = None) -> Figure:
    """Draw the best value by generation: its distance to the best known value where there is one, on a log scale.

    For several runs the median, the middle half and the whole range. Of several objectives it is the hypervolume, or
    where there is none a panel for each. ax: axes to draw into, one for each panel.
    """
    objectives = figure_data.panels(result)
    height = 4.5 if objectives == [None] else 1.2 + 2.1 * len(objectives)
    figure, grid = open_panels(ax, len(objectives), (8, height), sharex=True)
    for objective, axes in zip(objectives, grid, strict=True):
        draw_convergence(axes, result, objective=objective)
    for axes in grid[:-1]:
        axes.set_xlabel("")
    set_title(grid[0], result)
    return figure


def draw_convergence(
    axes: Axes, result: Result, colour: str = BLUE, label: str | None = None, objective: int | None = None
) -> None:
    """Draw the convergence of a result, or of one of its objectives, into axes that may hold others already."""
    history = figure_data.ensemble_history(result)
    if history is None:
        axes.text(0.5, 0.5, "No history was kept.", ha="center", transform=axes.transAxes)
        return
    curve = figure_data.convergence(result, history, objective)
    is_ensemble = len(curve.values) > 1
    low, lower, middle, upper, high = figure_data.quantile_bands(curve.values)
    axes.plot(
        curve.generation,
        middle,
        color=colour,
        lw=1.8,
        label=escape_mathtext(label or ("median" if is_ensemble else "best")),
    )
    if is_ensemble:
        axes.fill_between(curve.generation, lower, upper, color=colour, alpha=0.35, lw=0, label="middle half")
        axes.fill_between(curve.generation, low, high, color=colour, alpha=0.12, lw=0, label="all runs")
    elif curve.margin is not None:
        ends = (curve.values[0] - curve.margin[0], curve.values[0] + curve.margin[0])
        axes.fill_between(curve.generation, *ends, color=colour, alpha=0.25, lw=0, label="95 % interval")
    styles: tuple[LineStyleType, ...] = ((0, (2, 3)), (0, (6, 3)), "-.", ":")
    events = [(name, generations) for name, generations in curve.events().items() if generations]
    for (name, generations), style in zip(events, styles, strict=False):
        _mark_event(axes, generations, name, style)
    if curve.log:
        axes.set_yscale("log", nonpositive="clip" if is_ensemble else "mask")  # the curve ends where it comes to 0
    axes.set_xlabel("generation")
    axes.set_ylabel(escape_mathtext(curve.name))
    axes.set_xlim(1, max(2, int(curve.generation[-1])))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def _mark_event(axes: Axes, generations: Sequence[int], name: str, style: LineStyleType) -> None:
    """Draw a line at each of these generations; its name is in the legend, where it hides no curve."""
    for generation in generations:
        axes.axvline(generation, color=GREY, lw=1, ls=style, label=name if generation == generations[0] else None)


# --- fronts -----------------------------------------------------------------------------------------------------------

MAX_PARALLEL_LINES = 400  # individuals in parallel coordinates
MAX_BARS = 30  # variables in a figure of importances


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


def outcomes(result: Result, ax: Axes | None = None) -> Figure:
    """Draw the distribution of fun at x in fresh samples, and the measures with their intervals."""
    figure, axes = open_axes(ax, (7.0, 4.2))
    reports = figure_data.robust_reports(result)
    values = reports[0].outcomes
    axes.plot(values, np.linspace(0, 100, len(values)), color=BLUE, lw=1.8, label="outcomes")
    for report, colour in zip(reports, itertools.cycle(PALETTE[1:]), strict=False):
        axes.axvline(report.value, color=colour, lw=1.2, ls="--", label=f"{report.measure}: {report.value:.6g}")
        if np.isfinite(report.interval).all():
            axes.axvspan(*report.interval, color=colour, alpha=0.25, lw=0)
    axes.set(xlabel="fun at x", ylabel="share of the samples below [%]", ylim=(0, 100))
    axes.legend(frameon=False)
    set_title(axes, result)
    return figure


def attainment(result: Result, shares: Sequence[float] = (0.25, 0.5, 0.75), ax: Axes | None = None) -> Figure:
    """Draw what a share of the runs of two objectives attains."""
    surfaces = figure_data.attainment({"": result}, shares)
    figure, axes = open_axes(ax, (7.5, 5))
    _draw_surfaces(axes, surfaces, result)
    set_title(axes, result)
    return figure


def study_attainment(study: Study, share: float = 0.5, ax: AxesLike | None = None) -> Figure:
    """Draw what a share of the runs attains, of each algorithm, a panel for each problem."""
    panels = figure_data.results_by_panel(study)
    figure, grid = open_panels(ax, len(panels), (max(6.5, 4.6 * len(panels)), 4.2), len(panels))
    for axes, (title, results) in zip(grid, panels.items(), strict=True):
        first = next(iter(results.values()))
        _draw_surfaces(axes, figure_data.attainment(results, (share,)), first)
        axes.set_title(escape_mathtext(f"{title or first.problem.name}: {share:.0%} of the runs"), loc="left")
    return figure


def _draw_surfaces(axes: Any, surfaces: list[figure_data.Attainment], result: Result) -> None:
    """Draw attainment surfaces of two objectives as steps, over the true front where it is known."""
    true_front = figure_data.true_front(result.problem, 1000)
    if true_front is not None:
        axes.scatter(*true_front.T, s=3, color=GREY, label="true front", zorder=1)
    where = "post" if result.signs[0] > 0 else "pre"  # the corners are the points, and the steps lead away from them
    for surface in surfaces:
        style = {"color": PALETTE[surface.colour % len(PALETTE)], "lw": 1.8}
        axes.step(surface.x, surface.y, where=where, label=escape_mathtext(surface.label), **style)
    names = objective_names(result)
    axes.set(xlabel=names[0], ylabel=names[1])
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def importances(result: Result, objective: int = 0, ax: Axes | None = None) -> Figure:
    """Draw how much each variable matters, the most important on top; of many variables the first ones."""
    shares = list(result.importances(objective).items())[:MAX_BARS]
    figure, axes = open_axes(ax, (7, 1.4 + 0.32 * len(shares)))
    names = [escape_mathtext(name) for name, _ in shares]
    axes.barh(names, [100 * share for _, share in shares], color=BLUE)
    axes.invert_yaxis()
    axes.set_xlabel("share of the variance in which the variable takes part [%]")
    axes.grid(alpha=0.25, axis="x")
    set_title(axes, result, f"\nimportance for {figure_data.objective_names(result)[objective]}")
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
    if (forecast := result.get("forecast")) is not None:
        _draw_forecast(axes, forecast.front, "o", PALETTE[5], "the models between")
        _draw_forecast(axes, forecast.next, "*", PALETTE[3], "next evaluations")
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


def _draw_forecast(axes: Axes, points: np.ndarray, marker: str, colour: str, label: str) -> None:
    """Draw expected objectives (k, 3, m), in the plane with their 95 % intervals."""
    low, middle, high = np.moveaxis(points, 1, 0)
    size, zorder = (3, 1.5) if marker == "o" else (12, 5)
    if points.shape[2] == 2:
        errors = np.stack([middle - low, high - middle])
        options: dict[str, Any] = {"xerr": errors[:, :, 0], "yerr": errors[:, :, 1], "elinewidth": 0.8}
        options |= {"fmt": marker, "ms": size, "color": colour, "alpha": 0.8, "zorder": zorder}
        axes.errorbar(middle[:, 0], middle[:, 1], label=f"{label}, 95 %", **options)
    else:
        axes.plot(*middle.T, marker, ms=size, color=colour, alpha=0.8, label=label, zorder=zorder)


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


# --- studies ----------------------------------------------------------------------------------------------------------

MAX_LEGEND_ENTRIES = 40


def study_convergence(study: Study, ax: AxesLike | None = None) -> Figure:
    """Draw how the cells of a study converge: median and middle half of the runs.

    A comparison has a panel for each problem, by evaluations; a sweep has a curve for each setting, by generation.
    """
    return _draw_study(study, figure_data.study_convergence(study), ax)


def final_values(study: Study, ax: AxesLike | None = None) -> Figure:
    """Draw for each problem the share of runs that ended at least as close to the best value."""
    return _draw_study(study, figure_data.study_final_values(study), ax)


def running_times(study: Study, ax: Axes | None = None) -> Figure:
    """Draw the share of targets reached by evaluations, see `figure_data.target_shares`."""
    panel = figure_data.running_times(study)
    figure, axes = open_axes(ax, (8, 4.5))
    _draw_panel(axes, study, panel)
    axes.set_ylabel(escape_mathtext(panel.name))
    if panel.curves:
        axes.legend(frameon=False, loc="upper left")
    return figure


def _draw_study(study: Study, panels: list[figure_data.Panel], ax: AxesLike | None) -> Figure:
    """Draw the panels of a comparison as small multiples with one legend, or the only one of a sweep."""
    columns = min(3, len(panels)) if ax is None else 1
    size = (max(6.5, 4.6 * columns), 3.6 * -(-len(panels) // columns) + 0.6)
    figure, grid = open_panels(ax, len(panels), size if study.kind == "comparison" else (8.5, 4.8), columns)
    names = {panel.name for panel in panels}
    name = names.pop() if len(names) == 1 else figure_data.distance_name(study.value, is_known=False)
    handles: dict[str, Artist] = {}
    for number, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
        _draw_panel(axes, study, panel)
        axes.set_ylabel(escape_mathtext(name) if number % columns == 0 else "")
        handles |= {str(curve.get_label()): curve for curve in axes.get_lines()}
    options: dict[str, Any] = {"handles": list(handles.values()), "frameon": False}
    if not handles or len(handles) > MAX_LEGEND_ENTRIES:
        return figure
    if ax is not None:
        grid[0].legend(**options, fontsize="small")
    elif study.kind == "comparison":
        figure.legend(**options, loc="outside upper center", ncols=min(4, len(handles)))
    else:
        figure.legend(**options, loc="outside right upper", fontsize=9 if len(handles) <= 16 else 7)
    return figure


def _draw_panel(axes: Axes, study: Study, panel: figure_data.Panel) -> None:
    """Draw the curves of a panel, and its title, or why it has none."""
    for curve in panel.curves:
        colour = curve_colour(curve.colour)
        axes.plot(
            curve.x, curve.y, label=escape_mathtext(curve.label), lw=1.7, color=colour, ls=LINE_STYLES[curve.stroke],
            drawstyle="steps-post" if panel.step else "default",
        )  # fmt: skip
        if curve.lower is not None and curve.upper is not None:
            axes.fill_between(curve.x, curve.lower, curve.upper, color=colour, alpha=0.2, lw=0)
    if panel.log_x:
        axes.set_xscale("log")
    elif not panel.step:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
    if panel.log_y:
        axes.set_yscale("log")
    if panel.step:
        axes.set_ylim(0, 1.02)
    axes.set_xlabel(escape_mathtext(panel.across))
    first, n_runs = study.results[0], len(all_runs(study.results[0]))
    sweep_title = f"{first.problem.name} · {first.settings['algorithm']}, {n_runs} runs each"
    axes.set_title(escape_mathtext(panel.title or sweep_title), loc="left")
    axes.grid(alpha=0.25)
    if not panel.curves:
        reason = "No run found a feasible point." if panel.step else "No history was kept."
        if study.value == "hypervolume":
            reason = "No hypervolume by generation:\nthe problem has no reference point."
        axes.text(0.5, 0.5, reason, ha="center", va="center", transform=axes.transAxes, color=GREY)
        axes.tick_params(labelbottom=False, labelleft=False)


def critical_difference(study: Study, ax: Axes | None = None) -> Figure:
    """Draw the average ranks of a comparison; a bar joins algorithms that do not differ significantly (Nemenyi)."""
    data = figure_data.study_ranks(study)
    k = len(data.names)
    half = -(-k // 2)
    figure, axes = open_axes(ax, (8, 1.5 + 0.28 * (half + len(data.groups))))
    bars = 0.5 * (1 + len(data.groups))
    axes.hlines(0, 1, k, color="black", lw=1)
    for rank in range(1, k + 1):
        axes.vlines(rank, -0.12, 0, color="black", lw=1)
        axes.annotate(str(rank), (rank, -0.2), ha="center", va="bottom")
    for i, (name, rank) in enumerate(zip(data.names, data.ranks, strict=True)):
        is_left = i < half
        level, end = bars + 0.6 * (i if is_left else k - 1 - i), 0.75 if is_left else k + 0.25
        axes.plot([rank, rank, end], [0, level, level], color=GREY, lw=1)
        side = {"ha": "right", "xytext": (-4, 0)} if is_left else {"ha": "left", "xytext": (4, 0)}
        label = escape_mathtext(f"{name}  {rank:.2f}" if is_left else f"{rank:.2f}  {name}")
        axes.annotate(label, (end, level), textcoords="offset points", va="center", **side)
    for i, (first, last) in enumerate(data.groups):
        axes.hlines(0.4 + 0.5 * i, data.ranks[first] - 0.04, data.ranks[last] + 0.04, color=BLUE, lw=4)
    title = (
        f"Average ranks over {data.n_problems} problems; critical difference {data.difference:.2f}, p = {data.p:.3g}"
    )
    axes.set_title(wrap_title(title, figure), loc="left")
    margin = 0.09 * k * max(4, *map(len, data.names)) / 4
    axes.set(xlim=(0.75 - margin, k + 0.25 + margin), ylim=(bars + 0.6 * half, -0.9))
    axes.axis("off")
    return figure


def heatmap(study: Study, ax: Axes | None = None) -> Figure:
    """Draw the median of the runs over two swept hyper-parameters, a cell for each pair of values."""
    heat_map = figure_data.study_heat_map(study)
    figure, axes = open_axes(ax, (1.8 + 0.9 * max(4, len(heat_map.columns)), 1.6 + 0.7 * max(3, len(heat_map.rows))))
    image = axes.imshow(np.log10(heat_map.values) if heat_map.log else heat_map.values, cmap="viridis_r", aspect="auto")
    axes.set_xticks(range(len(heat_map.columns)), heat_map.columns)
    axes.set_yticks(range(len(heat_map.rows)), heat_map.rows)
    axes.set(xlabel=escape_mathtext(heat_map.across), ylabel=escape_mathtext(heat_map.up))
    low, high = image.get_clim()
    texts = format_distinct(heat_map.values.ravel().tolist(), 3)
    for (row, column), value in np.ndenumerate(heat_map.values):
        if np.isfinite(value):
            level = (np.log10(value) if heat_map.log else value) - low
            is_dark = level > 0.5 * (high - low)  # the colours run from light to dark
            text = texts[row * len(heat_map.columns) + column]
            axes.text(column, row, text, ha="center", va="center", color="white" if is_dark else "black")
    axes.set_title(escape_mathtext(f"{heat_map.title}: {heat_map.name}"), loc="left")
    return figure


def elites(illumination: Illumination, ax: Axes | None = None) -> Figure:
    """Draw the value of each cell's elite over one or two measures; cells without one stay empty."""
    names = [escape_mathtext(name) for name in illumination.names]
    if len(names) > 2:
        raise InputError(
            f"a map has one or two measures, and these are {len(names)}: draw a slice of `values`, or two columns of "
            "to_dataframe()."
        )
    figure, axes = open_axes(ax, (6.4, 4.8))
    title = f"{len(illumination):,} of {illumination.values.size:,} cells have an elite"
    axes.set_title(wrap_title(title, figure), loc="left")
    label = "best value" if illumination.maximizes else "best (least) value"
    if len(names) == 1:
        (low, high), count = illumination.ranges[0], illumination.cells[0]
        centres = low + (np.arange(count) + 0.5) * (high - low) / count
        axes.plot(centres, illumination.values, ".", color=BLUE, markersize=4)
        axes.set(xlabel=names[0], ylabel=label, xlim=(low, high))
        return figure
    image = axes.imshow(
        illumination.values.T, origin="lower", aspect="auto", interpolation="nearest",
        extent=tuple(illumination.ranges.ravel()), cmap=COLORMAP if illumination.maximizes else f"{COLORMAP}_r",
    )  # fmt: skip
    axes.set(xlabel=names[0], ylabel=names[1])
    figure.colorbar(image, ax=axes, label=label)
    return figure
