"""HTML representations for notebooks of results, runs, histories, studies and problems: a small table and a figure.

The figures are inline SVG, so that they need no package and follow the colours of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import wrap

import numpy as np

from galapax.core.checks import HTMLRepr, pluralize
from galapax.core.problem import MinMaxProblem, Problem, ProblemDescription
from galapax.results.many_answers import Illumination
from galapax.results.result import History, Result, Runs, has_cells
from galapax.results.study import Study
from galapax.view import figure_data
from galapax.view.maps import thin_indices
from galapax.view.summary_tables import (
    answer_notes,
    answer_values,
    build_tables,
    constraint_rows,
    format_distinct,
    run_rows,
)

MAX_NOTEBOOK_ROWS = 8  # rows of a table
SVG_WIDTH, SVG_HEIGHT, SVG_MARGIN, LABEL_WIDTH = 300, 150, 6, 60  # of a picture, and the room for numbers beside it
MAX_SVG_POINTS = 150  # of a curve
CAPTION_LETTERS = 60  # that fit under it in a line
SVG_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c8c", "#b8a800")
SVG_BLUE, SVG_ORANGE = SVG_COLOURS[:2]
FAINT = "color-mix(in srgb, currentColor 55%, transparent)"


def to_html(obj: HTMLRepr) -> str:
    """Render a Result, Runs, History, Study or problem as HTML."""
    if isinstance(obj, Result):
        return _result_html(obj) if "problem" in obj else _flex_box(_text_line(repr(obj)))
    if isinstance(obj, Runs):
        return _flex_box(_html_table(_run_rows(obj)), _histogram_svg(_final_values(obj), "final values"))
    if isinstance(obj, History):
        name = "best value" if obj.hypervolume is None else "hypervolume"
        values = np.atleast_2d(_history_values(obj))
        return _flex_box(
            _html_table(_history_rows(obj)),
            _curve_svg(values, f"{name} by generation", figure_data.needs_log_scale(values)),
        )
    if isinstance(obj, Study):
        return _study_html(obj)
    assert isinstance(obj, ProblemDescription)
    return _problem_html(obj)


def _result_html(result: Result) -> str:
    mark = "✓" if result.success else "•" if result.feasible else "✗"
    head = f"<b>{escape(figure_data.result_title(result))}</b><br>{mark} {escape(result.message)}"
    values = ((result.problem.with_unit(name), value) for name, value in answer_values(result))
    rows = [(escape(name), f"<b>{value:.8g}</b>") for name, value in values]
    rows += [(escape(name), escape(text)) for name, text in answer_notes(result)]
    names = [result.problem.with_unit(name) for name in result.problem.variable_names()]
    texts = [result.problem.show(i, float(result.x[i])) for i in range(min(len(names), MAX_NOTEBOOK_ROWS))]
    rows += [(escape(name), escape(text)) for name, text in zip(names, texts, strict=False)]
    if len(names) > MAX_NOTEBOOK_ROWS:
        rows.append(("…", f"{len(names) - MAX_NOTEBOOK_ROWS} more variables"))
    active = [name for name, _, _, state in constraint_rows(result) if state == "active"]
    violated = [name for name, _, _, state in constraint_rows(result) if state == "violated"]
    rows += [("violated", escape(", ".join(violated)))] if violated else []
    rows += [("active constraints", escape(", ".join(active)))] if active else []
    if has_cells(result):
        rows.insert(0, ("map", escape(Illumination(result).describe_map()[0])))
    elif "F" in result:
        rows.insert(0, ("front", f"{len(result.F):,} points; below is the knee"))
    if result.runs is not None:
        rows += [(f"{escape(name)} of {len(result.runs)} runs" if name == "median" else escape(name), escape(text))
                 for name, text in run_rows(result) if "quartile" not in name]  # fmt: skip
    if result.get("confidence") is not None:
        rows.append(("confidence", f"{result.confidence:.1%}"))
    rows.append(("evaluations", f"{result.nfev:,} in {pluralize(result.nit, 'generation')}, seed {result.seed}"))
    return _flex_box(_text_line(head), _html_table(rows), _result_svg(result))


def _result_svg(result: Result) -> str:
    """Draw the front of two or more objectives, else the convergence."""
    if "F" in result and not has_cells(result):
        names = figure_data.objective_names(result)
        return _points_svg(result.F[:, :2], result.knee, names[:2]) if len(result.F) else ""
    history = figure_data.ensemble_history(result)
    if history is None:
        return ""
    curve = figure_data.convergence(result, history, figure_data.panels(result)[0])
    return _curve_svg(curve.values, f"{curve.name} by generation", curve.log, curve.refinements)


def _run_rows(runs: Runs) -> list[tuple[str, str]]:
    rate, low, high = runs.success_rate()
    rows = [("runs", f"{len(runs):,}"), ("success", f"{rate:.1%} ({low:.1%} to {high:.1%})")]
    if len(_final_values(runs)):
        names = ("best" if runs.fronts is None else "smallest", "median", "largest")
        quantiles = np.quantile(_final_values(runs), (0, 0.5, 1)).tolist()
        rows += list(zip(names, format_distinct(quantiles), strict=True))
    rows.append(("evaluations", f"{int(runs.nfev.sum()):,} in all"))
    return rows


def _final_values(runs: Runs) -> np.ndarray:
    """The finite final values of the runs; of several objectives their hypervolumes."""
    values = runs.fun if runs.fronts is None else runs.hypervolume
    array = np.zeros(0) if values is None else np.asarray(values, np.float64)
    return array[np.isfinite(array)]


def _history_rows(history: History) -> list[tuple[str, str]]:
    runs = [] if history.runs is None else [("runs", f"{history.runs:,}")]
    last = np.ravel(np.atleast_2d(_history_values(history))[:, -1])
    range_text = " to ".join(dict.fromkeys(format_distinct([float(np.nanmin(last)), float(np.nanmax(last))])))
    name = "best" if history.hypervolume is None else "hypervolume"
    return [("generations", f"{len(history):,}"), *runs, (f"final {name}", range_text)]


def _history_values(history: History) -> np.ndarray:
    """The values to draw: (G,) or (R, G)."""
    if history.hypervolume is not None:
        return np.asarray(history.hypervolume, np.float64)
    is_multi_objective = history.best.ndim - (history.runs is not None) > 1
    return np.asarray(history.best[..., 0] if is_multi_objective else history.best, np.float64)


def _study_html(study: Study) -> str:
    head = f"<b>{study.kind.capitalize()}</b>: {escape(study.extent)}<br>{escape(study.message)}"
    if not study.results:
        return _flex_box(_text_line(head))
    grid = build_tables(study)[0]
    names = "".join(f'<th style="text-align:left;padding:1px 8px">{escape(name)}</th>' for name in grid.header)
    body = "".join(
        "<tr>" + "".join(f'<td style="padding:1px 8px">{_bold_if(cell.text, cell.bold)}</td>' for cell in row) + "</tr>"
        for row in grid.rows[: 2 * MAX_NOTEBOOK_ROWS]
    )
    more = f"… {len(grid.rows) - 2 * MAX_NOTEBOOK_ROWS} more rows" if len(grid.rows) > 2 * MAX_NOTEBOOK_ROWS else ""
    table = f'<table style="border-collapse:collapse"><tr>{names}</tr>{body}</table>'
    return _flex_box(_text_line(head), table, _text_line(more), _text_line(escape(grid.note)), _study_svg(study))


def _bold_if(text: str, bold: bool) -> str:
    return f"<b>{escape(text)}</b>" if bold else escape(text)


def _study_svg(study: Study) -> str:
    """Draw the median of each cell's runs by evaluations, on the first problem."""
    panel = figure_data.study_convergence(study)[0]
    name = f"{panel.title + ': ' if panel.title else ''}median {panel.name} by {panel.across}"
    return _panel_svg(panel._replace(curves=panel.curves[: len(SVG_COLOURS)]), name)


def _problem_html(problem: ProblemDescription) -> str:
    head = f"<b>{escape(problem.title or problem.name)}</b>"
    kind = "min-max problem" if isinstance(problem, MinMaxProblem) else "problem"
    rows = [(kind, f"{escape(problem.name)}, {pluralize(problem.dim, 'variable')}")]
    if isinstance(problem, Problem) and problem.constrained:
        kinds = [
            name
            for name, constraint in (("inequalities", problem.ineq), ("equalities", problem.eq))
            if constraint is not None
        ]
        rows.append(("constraints", " and ".join(kinds)))
    if problem.objectives is not None:
        rows.append(("objectives", escape(", ".join(problem.objectives))))
    if problem.optimum is not None:
        rows.append(("best known value", f"{problem.optimum:.8g}"))
    if problem.source:
        rows.append(("source", escape(problem.source)))
    front = figure_data.true_front(problem, 200)
    picture = _bounds_svg(problem)
    if front is not None and len(front):
        picture = _points_svg(front[:, :2], None, problem.objective_names(front.shape[1])[:2], "true front")
    return _flex_box(_text_line(head), _html_table(rows), picture)


# --- HTML and SVG -----------------------------------------------------------------------------------------------------


def _flex_box(*children: str) -> str:
    """Lay out lines over the whole width, tables and figures side by side where there is room."""
    style = "display:flex;flex-wrap:wrap;gap:4px 24px;align-items:flex-start;max-width:56em;line-height:1.4"
    return f'<div style="{style}">{"".join(filter(None, children))}</div>'


def _text_line(text: str) -> str:
    return f'<div style="white-space:pre-wrap;width:100%">{text}</div>' if text else ""


def _html_table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f'<tr><td style="text-align:left;padding:1px 12px 1px 0;color:{FAINT}">{a}</td>'
        f'<td style="text-align:left;padding:1px 0">{b}</td></tr>'
        for a, b in rows
    )
    return f'<table style="margin:4px 0">{cells}</table>'


def _svg_figure(body: str, name: str, low: str = "", high: str = "") -> str:
    """Wrap SVG elements in a frame of axes, with the name as caption and the ends of the vertical scale beside it."""
    text = f'font-size="10" fill="{FAINT}"'
    corner = f"M{SVG_MARGIN} {SVG_MARGIN}V{SVG_HEIGHT - SVG_MARGIN}H{SVG_WIDTH - SVG_MARGIN}"
    frame = f'<path d="{corner}" fill="none" stroke="{FAINT}"/>'
    labels = f'<text x="{SVG_WIDTH}" y="{SVG_MARGIN + 9}" {text}>{escape(high)}</text>'
    labels += f'<text x="{SVG_WIDTH}" y="{SVG_HEIGHT - SVG_MARGIN}" {text}>{escape(low)}</text>'
    lines = wrap(name, CAPTION_LETTERS)
    caption = "".join(
        f'<text x="{SVG_MARGIN}" y="{SVG_HEIGHT + 10 + 12 * k}" {text}>{escape(line)}</text>'
        for k, line in enumerate(lines)
    )
    height = SVG_HEIGHT + 4 + 12 * len(lines)
    return (
        f'<svg role="img" aria-label="{escape(name)}" width="{SVG_WIDTH + LABEL_WIDTH}" height="{height}" '
        f'viewBox="0 0 {SVG_WIDTH + LABEL_WIDTH} {height}" style="margin:4px 0;flex:none">'
        f"{frame}{body}{labels}{caption}</svg>"
    )


def _scale_to_pixels(values: np.ndarray, size: int, low: float, high: float, upward: bool = False) -> np.ndarray:
    share = (values - low) / ((high - low) or 1.0)
    pixels = SVG_MARGIN + share * (size - 2 * SVG_MARGIN)
    return size - pixels if upward else pixels


def _curve_svg(values: np.ndarray, name: str, log: bool = False, refinements: Sequence[int] = ()) -> str:
    """Draw curves (R, G): one as a line, several as their median with the interquartile band.

    refinements: generations, from 1, that are gradient refinements and get a dashed line.
    """
    columns = thin_indices(values.shape[1], MAX_SVG_POINTS)
    lower, middle, upper = figure_data.quantile_bands(np.where(np.isfinite(values), values, np.nan)[:, columns])[1:4]
    curve = figure_data.Curve("", columns + 1, middle)
    if len(values) > 1:
        curve, name = curve._replace(lower=lower, upper=upper), f"{name}, median and middle half"
    return _panel_svg(figure_data.Panel("", "", "", [curve], log_y=log), name, refinements)


def _panel_svg(panel: figure_data.Panel, name: str, refinements: Sequence[int] = ()) -> str:
    """Draw the curves of a panel, the only one with its band."""
    curves = []
    for curve in panel.curves:
        rows = thin_indices(len(curve.x), MAX_SVG_POINTS)
        has_band = curve.lower is not None and len(panel.curves) == 1
        drawn = (curve.lower, curve.y, curve.upper) if has_band else (curve.y,)
        lines = np.stack([line[rows] for line in drawn if line is not None])
        if panel.log_y:
            with np.errstate(divide="ignore", invalid="ignore"):
                lines = np.log10(lines)
        has_value = np.isfinite(lines).all(axis=0)
        if has_value.any():
            curves.append((curve.x[rows][has_value].astype(float), lines[:, has_value], curve.colour))
    if not curves:
        return ""
    low, high = (float(end([end(lines) for _, lines, _ in curves])) for end in (np.min, np.max))
    x_ends = (min(x[0] for x, _, _ in curves), max(x[-1] for x, _, _ in curves))
    body = ""
    for x, lines, colour in curves:
        across = _scale_to_pixels(x, SVG_WIDTH, *x_ends)
        up = _scale_to_pixels(lines, SVG_HEIGHT, low, high, upward=True)
        stroke = SVG_COLOURS[int(colour * (len(SVG_COLOURS) - 1)) if 0 < colour < 1 else int(colour) % len(SVG_COLOURS)]
        if len(up) > 1:
            band = _svg_path(np.concatenate([across, across[::-1]]), np.concatenate([up[0], up[2][::-1]]))
            body += f'<path d="{band}Z" fill="{stroke}" opacity="0.25"/>'
        body += f'<path d="{_svg_path(across, up[len(up) // 2])}" fill="none" stroke="{stroke}" stroke-width="1.8"/>'
    for generation in refinements:
        mark = float(_scale_to_pixels(np.array(float(generation)), SVG_WIDTH, *x_ends))
        body += (
            f'<line x1="{mark:.1f}" x2="{mark:.1f}" y1="{SVG_MARGIN}" y2="{SVG_HEIGHT - SVG_MARGIN}" stroke="{FAINT}" '
            f'stroke-dasharray="2 3"><title>{figure_data.REFINEMENT_NAME}</title></line>'
        )
    if refinements:
        name += f", dashed: {figure_data.REFINEMENT_NAME}"
    return _svg_figure(body, name, *format_distinct([10**end if panel.log_y else end for end in (low, high)], 3))


def _points_svg(F: np.ndarray, knee: int | None, names: list[str], what: str = "front") -> str:
    rows = thin_indices(len(F), 300)
    low, high = F.min(axis=0), F.max(axis=0)
    x, y = (
        _scale_to_pixels(F[:, 0], SVG_WIDTH, low[0], high[0]),
        _scale_to_pixels(F[:, 1], SVG_HEIGHT, low[1], high[1], upward=True),
    )
    body = "".join(f'<circle cx="{x[i]:.1f}" cy="{y[i]:.1f}" r="2.2" fill="{SVG_BLUE}"/>' for i in rows)
    if knee is not None:
        body += f'<circle cx="{x[knee]:.1f}" cy="{y[knee]:.1f}" r="4.5" fill="{SVG_ORANGE}" stroke="currentColor"/>'
    return _svg_figure(
        body, f"{what}: {names[0]} across, {names[1]} up", *format_distinct([float(low[1]), float(high[1])], 3)
    )


def _histogram_svg(values: np.ndarray, name: str) -> str:
    if not len(values):
        return ""
    log = figure_data.needs_log_scale(values)
    counts, edges = np.histogram(np.log10(values) if log else values, bins=24)
    width = (SVG_WIDTH - 2 * SVG_MARGIN) / len(counts)
    tops = _scale_to_pixels(counts.astype(float), SVG_HEIGHT, 0.0, float(counts.max()), upward=True)
    body = "".join(
        f'<rect x="{SVG_MARGIN + k * width:.1f}" y="{y:.1f}" width="{width - 1:.1f}" '
        f'height="{SVG_HEIGHT - SVG_MARGIN - y:.1f}" fill="{SVG_BLUE}"/>'
        for k, y in enumerate(tops)
    )
    range_ends = format_distinct([float(10**edge if log else edge) for edge in (edges[0], edges[-1])], 4)
    return _svg_figure(body, f"{name}, {range_ends[0]} to {range_ends[1]}", "", f"{counts.max()} runs")


def _bounds_svg(problem: ProblemDescription) -> str:
    """Draw a bar for each variable from its lower to its upper bound, with the known solution on it."""
    names, n_shown = problem.variable_names(), min(problem.dim, MAX_NOTEBOOK_ROWS)
    solutions = getattr(problem, "solutions", None)
    best = None if solutions is None else np.atleast_2d(np.asarray(solutions, np.float64))[0]
    step, body = (SVG_HEIGHT - 2 * SVG_MARGIN) / n_shown, ""
    for i in range(n_shown):
        y, low, high = SVG_MARGIN + (i + 0.5) * step, problem.bounds.lower[i], problem.bounds.upper[i]
        text = f'font-size="10" fill="{FAINT}" y="{y + 3:.1f}"'
        body += (
            f'<line x1="110" x2="{SVG_WIDTH - 60}" y1="{y:.1f}" y2="{y:.1f}" stroke="{SVG_BLUE}" stroke-width="3" '
            'opacity="0.5"/>'
        )
        body += f'<text x="{SVG_MARGIN + 4}" {text}>{escape(names[i][:9])}</text>'
        first, last = (escape(end[:9]) for end in problem.limits(i))
        body += f'<text x="106" text-anchor="end" {text}>{first}</text><text x="{SVG_WIDTH - 56}" {text}>{last}</text>'
        if best is not None and len(best) == problem.dim:
            x = 110 + (best[i] - low) / (high - low) * (SVG_WIDTH - 170)
            body += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{SVG_ORANGE}" stroke="currentColor"/>'
    what = "bounds" + (", with the best known solution" if best is not None else "")
    return _svg_figure(body, what + (f" (first {n_shown} variables)" if n_shown < problem.dim else ""))


def _svg_path(x: np.ndarray, y: np.ndarray) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
