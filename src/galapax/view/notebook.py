"""What a notebook shows of a result, its runs, a history, a study or a problem: a few lines and a small picture.

The pictures are drawn here as inline SVG, so that they need no package and follow the colours of the page.
"""

from __future__ import annotations

from html import escape
from textwrap import wrap
from typing import Any

import numpy as np

from galapax.core.problem import Described, MinMaxProblem, Problem
from galapax.results.result import History, Result, Runs
from galapax.results.study import Study
from galapax.view import data, study_data
from galapax.view.maps import thinned
from galapax.view.tables import apart, constraint_rows, grids, run_rows

SHOWN = 8  # rows of a table
WIDE, HIGH, EDGE, ROOM = 300, 150, 6, 60  # of a picture, and the room for numbers beside it
LETTERS = 60  # that fit under it in a line
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c8c", "#b8a800")
BLUE, ORANGE = COLOURS[:2]
SOFT = "color-mix(in srgb, currentColor 55%, transparent)"


def html(shown: Any) -> str:
    """The object in HTML."""
    if isinstance(shown, Result):
        return _result(shown) if "problem" in shown else _box(_line(repr(shown)))
    if isinstance(shown, Runs):
        return _box(_table(_runs(shown)), _histogram(_final(shown), "final values"))
    if isinstance(shown, History):
        name = "best value" if shown.hypervolume is None else "hypervolume"
        drawn = np.atleast_2d(_followed(shown))
        return _box(_table(_history(shown)), _curve(drawn, f"{name} by generation", data.wants_log(drawn)))
    if isinstance(shown, Study):
        return _study(shown)
    return _problem(shown)


def _result(result: Result) -> str:
    good = "✓" if result.success else "•" if result.feasible else "✗"
    head = f"<b>{escape(data.title_of(result))}</b><br>{good} {escape(result.message)}"
    rows = [(name, f"<b>{value:.8g}</b>") for name, value in _answers(result)]
    names = [result.problem.with_unit(name) for name in result.problem.variable_names()]
    shown = [result.problem.show(i, float(result.x[i])) for i in range(min(len(names), SHOWN))]
    rows += [(escape(name), escape(text)) for name, text in zip(names, shown, strict=False)]
    if len(names) > SHOWN:
        rows.append(("…", f"{len(names) - SHOWN} more variables"))
    active = [name for name, _, _, state in constraint_rows(result) if state == "active"]
    broken = [name for name, _, _, state in constraint_rows(result) if state == "violated"]
    rows += [("violated", escape(", ".join(broken)))] if broken else []
    rows += [("active constraints", escape(", ".join(active)))] if active else []
    if "F" in result:
        rows.insert(0, ("front", f"{len(result.F):,} points; below is the knee"))
    if result.runs is not None:
        rows += [(f"{escape(name)} of {len(result.runs)} runs" if name == "median" else escape(name), escape(text))
                 for name, text in run_rows(result) if "quartile" not in name]  # fmt: skip
    rows.append(("evaluations", f"{result.nfev:,} in {result.nit:,} generations, seed {result.seed}"))
    return _box(_line(head), _table(rows), _picture(result))


def _answers(result: Result) -> list[tuple[str, float]]:
    """What the answer is worth, by name: of a min-max problem first the worst case that was checked."""
    if "worst_case" in result:
        return [(data.CHECKED, float(result.worst_case)), (data.MET, float(result.fun))]
    if np.ndim(result.fun):
        return list(zip(map(escape, data.objective_names(result)), result.fun.tolist(), strict=True))
    return [("maximum" if result.sign < 0 else "minimum", float(result.fun))]


def _picture(result: Result) -> str:
    """The front of two or more objectives, else how the best value fell."""
    if "F" in result:
        names = data.objective_names(result)
        return _points(result.F[:, :2], result.knee, names[:2]) if len(result.F) else ""
    history = data.history_of(result)
    if history is None:
        return ""
    drawn = data.convergence(result, history)
    return _curve(drawn.values, f"{drawn.name} by generation", drawn.log)


def _runs(runs: Runs) -> list[tuple[str, str]]:
    rate, low, high = runs.success_rate()
    rows = [("runs", f"{len(runs):,}"), ("success", f"{rate:.1%} ({low:.1%} to {high:.1%})")]
    if len(_final(runs)):
        rows += list(zip(("best" if runs.fronts is None else "smallest", "median", "largest"),
                         apart(np.quantile(_final(runs), (0, 0.5, 1)).tolist()), strict=True))  # fmt: skip
    rows.append(("evaluations", f"{int(runs.nfev.sum()):,} in all"))
    return rows


def _final(runs: Runs) -> np.ndarray:
    """The final values of the runs that are finite, or of fronts the hypervolumes."""
    values = runs.fun if runs.fronts is None else runs.hypervolume
    found = np.zeros(0) if values is None else np.asarray(values, np.float64)
    return found[np.isfinite(found)]


def _history(history: History) -> list[tuple[str, str]]:
    runs = [] if history.runs is None else [("runs", f"{history.runs:,}")]
    last = np.ravel(np.atleast_2d(_followed(history))[:, -1])
    ends = " to ".join(dict.fromkeys(apart([float(np.nanmin(last)), float(np.nanmax(last))])))
    name = "best" if history.hypervolume is None else "hypervolume"
    return [("generations", f"{len(history):,}"), *runs, (f"final {name}", ends)]


def _followed(history: History) -> np.ndarray:
    """The values to draw: (G,) or (R, G)."""
    if history.hypervolume is not None:
        return np.asarray(history.hypervolume, np.float64)
    several = history.best.ndim - (history.runs is not None) > 1
    return np.asarray(history.best[..., 0] if several else history.best, np.float64)


def _study(study: Study) -> str:
    head = f"<b>{study.kind.capitalize()}</b>: {escape(study.extent)}<br>{escape(study.message)}"
    if not study.results:
        return _box(_line(head))
    grid = grids(study)[0]
    names = "".join(f'<th style="text-align:left;padding:1px 8px">{escape(name)}</th>' for name in grid.header)
    body = "".join(
        "<tr>" + "".join(f'<td style="padding:1px 8px">{_strong(cell.text, cell.bold)}</td>' for cell in row) + "</tr>"
        for row in grid.rows[: 2 * SHOWN]
    )
    more = f"… {len(grid.rows) - 2 * SHOWN} more rows" if len(grid.rows) > 2 * SHOWN else ""
    table = f'<table style="border-collapse:collapse"><tr>{names}</tr>{body}</table>'
    return _box(_line(head), table, _line(more), _line(escape(grid.note)), _medians(study))


def _strong(text: str, bold: bool) -> str:
    return f"<b>{escape(text)}</b>" if bold else escape(text)


def _medians(study: Study) -> str:
    """The median of each cell's runs by evaluations, on the first problem."""
    panel = study_data.study_convergence(study)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = [(np.asarray(c.x, np.float64), np.log10(c.y), c.colour) for c in panel.curves[: len(COLOURS)]]
    drawn = [(x[np.isfinite(y)], y[np.isfinite(y)], c) for x, y, c in drawn if x.ndim == 1 and np.isfinite(y).any()]
    if not drawn:
        return ""
    across = max(float(x[-1]) for x, _, _ in drawn)
    low, high = (float(end(y)) for end, y in ((f, np.concatenate([y for _, y, _ in drawn])) for f in (np.min, np.max)))
    body = ""
    for x, y, colour in drawn:
        kept = thinned(len(x), 150)
        path = _path(_scaled(x[kept], WIDE, 0.0, across), _scaled(y[kept], HIGH, low, high, upward=True))
        own = COLOURS[int(colour * (len(COLOURS) - 1)) if 0 < colour < 1 else int(colour) % len(COLOURS)]
        body += f'<path d="{path}" fill="none" stroke="{own}" stroke-width="1.8"/>'
    name = f"{panel.title + ': ' if panel.title else ''}median {panel.name} by {panel.across}"
    return _svg(body, name, f"{10**low:.3g}", f"{10**high:.3g}")


def _problem(problem: Described) -> str:
    head = f"<b>{escape(problem.title or problem.name)}</b>"
    kind = "min-max problem" if isinstance(problem, MinMaxProblem) else "problem"
    rows = [(kind, f"{escape(problem.name)}, {problem.dim} variables")]
    if isinstance(problem, Problem) and problem.constrained:
        given = [
            name for name, part in (("inequalities", problem.ineq), ("equalities", problem.eq)) if part is not None
        ]
        rows.append(("constraints", " and ".join(given)))
    if problem.objectives is not None:
        rows.append(("objectives", escape(", ".join(problem.objectives))))
    if problem.optimum is not None:
        rows.append(("best known value", f"{problem.optimum:.8g}"))
    if problem.source:
        rows.append(("source", escape(problem.source)))
    front = data.true_front(problem, 200)
    picture = _bounds(problem)
    if front is not None and len(front):
        picture = _points(front[:, :2], None, problem.objective_names(front.shape[1])[:2], "true front")
    return _box(_line(head), _table(rows), picture)


# --- parts ------------------------------------------------------------------------------------------------------------


def _box(*parts: str) -> str:
    """Lines over the whole width, tables and pictures side by side where there is room."""
    style = "display:flex;flex-wrap:wrap;gap:4px 24px;align-items:flex-start;max-width:56em;line-height:1.4"
    return f'<div style="{style}">{"".join(filter(None, parts))}</div>'


def _line(text: str) -> str:
    return f'<div style="white-space:pre-wrap;width:100%">{text}</div>' if text else ""


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f'<tr><td style="text-align:left;padding:1px 12px 1px 0;color:{SOFT}">{a}</td>'
        f'<td style="text-align:left;padding:1px 0">{b}</td></tr>'
        for a, b in rows
    )
    return f'<table style="margin:4px 0">{cells}</table>'


def _svg(body: str, name: str, low: str = "", high: str = "") -> str:
    """A frame of axes with what is drawn, its name under it, and the ends of its vertical scale beside it."""
    text = f'font-size="10" fill="{SOFT}"'
    frame = f'<path d="M{EDGE} {EDGE}V{HIGH - EDGE}H{WIDE - EDGE}" fill="none" stroke="{SOFT}"/>'
    ends = f'<text x="{WIDE}" y="{EDGE + 9}" {text}>{escape(high)}</text>'
    ends += f'<text x="{WIDE}" y="{HIGH - EDGE}" {text}>{escape(low)}</text>'
    lines = wrap(name, LETTERS)
    under = "".join(
        f'<text x="{EDGE}" y="{HIGH + 10 + 12 * k}" {text}>{escape(line)}</text>' for k, line in enumerate(lines)
    )
    deep = HIGH + 4 + 12 * len(lines)
    return (
        f'<svg role="img" aria-label="{escape(name)}" width="{WIDE + ROOM}" height="{deep}" '
        f'viewBox="0 0 {WIDE + ROOM} {deep}" style="margin:4px 0;flex:none">{frame}{body}{ends}{under}</svg>'
    )


def _scaled(values: np.ndarray, size: int, low: float, high: float, upward: bool = False) -> np.ndarray:
    share = (values - low) / ((high - low) or 1.0)
    place = EDGE + share * (size - 2 * EDGE)
    return size - place if upward else place


def _curve(values: np.ndarray, name: str, log: bool = False) -> str:
    """Curves (R, G): one as a line, several as their median over the range of the middle half."""
    drawn = np.asarray(values, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.log10(drawn) if log else drawn
    drawn = np.where(np.isfinite(drawn), drawn, np.nan)
    columns = thinned(drawn.shape[1], 150)
    bands = data.bands(drawn[:, columns])[1:4]
    known = np.isfinite(bands).all(axis=0)
    if not known.any():
        return ""
    low, high = float(bands[:, known].min()), float(bands[:, known].max())
    x = _scaled(columns[known].astype(float), WIDE, 0.0, max(1.0, drawn.shape[1] - 1.0))
    lower, middle, upper = (_scaled(band[known], HIGH, low, high, upward=True) for band in bands)
    body = f'<path d="{_path(x, middle)}" fill="none" stroke="{BLUE}" stroke-width="1.8"/>'
    if len(drawn) > 1:
        around = _path(np.concatenate([x, x[::-1]]), np.concatenate([lower, upper[::-1]]))
        body = f'<path d="{around}Z" fill="{BLUE}" opacity="0.25"/>' + body
        name += ", median and middle half"
    return _svg(body, name, *apart([10**end if log else end for end in (low, high)], 3))


def _points(F: np.ndarray, knee: int | None, names: list[str], what: str = "front") -> str:
    rows = thinned(len(F), 300)
    low, high = F.min(axis=0), F.max(axis=0)
    x, y = _scaled(F[:, 0], WIDE, low[0], high[0]), _scaled(F[:, 1], HIGH, low[1], high[1], upward=True)
    body = "".join(f'<circle cx="{x[i]:.1f}" cy="{y[i]:.1f}" r="2.2" fill="{BLUE}"/>' for i in rows)
    if knee is not None:
        body += f'<circle cx="{x[knee]:.1f}" cy="{y[knee]:.1f}" r="4.5" fill="{ORANGE}" stroke="currentColor"/>'
    return _svg(body, f"{what}: {names[0]} across, {names[1]} up", *apart([float(low[1]), float(high[1])], 3))


def _histogram(values: np.ndarray, name: str) -> str:
    if not len(values):
        return ""
    log = data.wants_log(values)
    counts, edges = np.histogram(np.log10(values) if log else values, bins=24)
    width = (WIDE - 2 * EDGE) / len(counts)
    tall = _scaled(counts.astype(float), HIGH, 0.0, float(counts.max()), upward=True)
    body = "".join(
        f'<rect x="{EDGE + k * width:.1f}" y="{y:.1f}" width="{width - 1:.1f}" '
        f'height="{HIGH - EDGE - y:.1f}" fill="{BLUE}"/>'
        for k, y in enumerate(tall)
    )
    ends = apart([float(10**edge if log else edge) for edge in (edges[0], edges[-1])], 4)
    return _svg(body, f"{name}, {ends[0]} to {ends[1]}", "", f"{counts.max()} runs")


def _bounds(problem: Described) -> str:
    """A bar for each variable from its lower to its upper bound, with the known solution on it."""
    names, shown = problem.variable_names(), min(problem.dim, SHOWN)
    known = getattr(problem, "solutions", None)
    best = None if known is None else np.atleast_2d(np.asarray(known, np.float64))[0]
    step, body = (HIGH - 2 * EDGE) / shown, ""
    for i in range(shown):
        y, low, high = EDGE + (i + 0.5) * step, problem.bounds.lower[i], problem.bounds.upper[i]
        text = f'font-size="10" fill="{SOFT}" y="{y + 3:.1f}"'
        body += (
            f'<line x1="110" x2="{WIDE - 60}" y1="{y:.1f}" y2="{y:.1f}" stroke="{BLUE}" stroke-width="3" '
            'opacity="0.5"/>'
        )
        body += f'<text x="{EDGE + 4}" {text}>{escape(names[i][:9])}</text>'
        first, last = (escape(end[:9]) for end in problem.limits(i))
        body += f'<text x="106" text-anchor="end" {text}>{first}</text><text x="{WIDE - 56}" {text}>{last}</text>'
        if best is not None and len(best) == problem.dim:
            x = 110 + (best[i] - low) / (high - low) * (WIDE - 170)
            body += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{ORANGE}" stroke="currentColor"/>'
    what = "bounds" + (", with the best known solution" if best is not None else "")
    return _svg(body, what + (f" (first {shown} variables)" if shown < problem.dim else ""))


def _path(x: np.ndarray, y: np.ndarray) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
