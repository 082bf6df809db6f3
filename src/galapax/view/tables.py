"""The tables of a result or a study: worked out once, written as Markdown, LaTeX, HTML or in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from galapax.measures import statistics
from galapax.results.front import trade_offs
from galapax.results.result import Result, all_runs, constraint_names, finite_quantiles
from galapax.results.study import SIGNIFICANCE_LEVEL, Study, comparison_sign, scores
from galapax.view import data

SHOWN = 12  # variables or constraints listed one by one
MOST = 12  # digits of a value; further ones are rounding
VALUES = ("best", "median", "mean", "worst")
ACTIVE = 1e-4  # how far from its limit an inequality still counts as active
ACTIVE_NOTE = "active: within 1e-4 of its limit"


class Cell(NamedTuple):
    text: str
    bold: bool = False


class Grid(NamedTuple):
    """A table as it is to be shown."""

    title: str
    header: list[str]
    rows: list[list[Cell]]
    note: str


def grids(study: Study) -> list[Grid]:
    """The tables of a study, the most telling first."""
    if study.kind == "sweep":
        return [_cells(study)]
    return [_values(study)] + ([_running_times(study)] if any(t is not None for t in study.targets) else [])


def _cells(study: Study) -> Grid:
    """One row for each setting of a sweep, the best median in bold."""
    summary = study.summary()
    several = study.value == "hypervolume"
    summary = [{name.removeprefix("hypervolume_"): value for name, value in row.items()} for row in summary]
    numbers = (*VALUES, "feasible", "success", "ert")  # the rest is in summary.csv
    shown = [name for name in summary[0] if name in (*study.axes, *numbers)]
    medians = [statistics.describe(scores(result))["median"] for result in study.results]
    best = -1 if np.isnan(medians).all() else int(np.nanargmin(medians))
    told = {name: apart([row[name] for row in summary], 5 if several else 3) for name in shown if name in VALUES}
    rows = []
    for i, row in enumerate(summary):
        row = {name: _number(name, value) for name, value in row.items()} | {n: told[n][i] for n in told}
        row |= {name: f"{v:.12g}" if isinstance(v, float) else str(v) for name, v in study.labels[i].items()}
        if "success" in shown:
            row["success"] += f" ({100 * summary[i]['success_low']:.0f}–{100 * summary[i]['success_high']:.0f})"
        rows.append([Cell(row[name], i == best) for name in shown])
    return Grid(
        f"{study.results[0].problem.name} · {study.results[0].settings['algorithm']}",
        shown,
        rows,
        ("Hypervolume of the front, over" if several else "Over")
        + " the runs of each setting; the best median is in bold."
        + (" success: fraction of runs that reached the target, with a 95 % interval." if "success" in shown else ""),
    )


def _values(study: Study) -> Grid:
    """Median of the runs, problem by problem."""
    names = study.axes["algorithm"]
    rows = []
    for problem in study.axes["problem"]:
        found = study.along("algorithm", problem=problem)
        medians = {name: statistics.describe(scores(result))["median"] for name, result in found.items()}
        if not found:
            continue
        best = min(medians, key=lambda name: (math.isnan(medians[name]), medians[name]))
        alike = {best} | {
            other
            for pair in (study.tests(problem) if len(found) > 1 else [])
            for one, other in ((pair.first, pair.second), (pair.second, pair.first))
            if one == best and pair.adjusted >= SIGNIFICANCE_LEVEL
        }
        row = [Cell(problem)]
        texts = dict(zip(found, apart([comparison_sign(found[name]) * medians[name] for name in found]), strict=True))
        for name in names:
            if name not in found:
                row.append(Cell("not run"))
                continue
            mark = " ≈" if name in alike and name != best and not math.isnan(medians[name]) else ""
            row.append(Cell(texts[name] + mark, name == best and not math.isnan(medians[best])))
        rows.append(row)
    note = (
        f"Median of {len(all_runs(study.results[0]))} runs. The best is in bold; ≈ marks results that do "
        "not differ from it significantly "
        f"({'Wilcoxon signed ranks' if study.paired else 'Mann-Whitney'}, Holm's correction, "
        f"level {SIGNIFICANCE_LEVEL:g})."
    )
    if len(study) == len(study.axes["problem"]) * len(names) and len(names) > 1 and len(rows) > 1:
        ranks = study.ranks()
        rows.append([Cell("average rank")] + [Cell(f"{r:.2f}") for r in ranks.average_ranks])
        note += f" Friedman's test over the problems: p = {ranks.p:.3g}."
    rows.append([Cell("seconds in all")] + [Cell(_seconds(study, name)) for name in names])
    if study.value == "hypervolume":
        note = "Hypervolume of the front; larger is better. " + note
        return Grid("Final hypervolumes", ["problem", *names], rows, note)
    return Grid("Final values", ["problem", *names], rows, note)


def _running_times(study: Study) -> Grid:
    """Evaluations per success, problem by problem."""
    rows = []
    for problem in study.axes["problem"]:
        row = [Cell(problem)]
        found = {
            labels["algorithm"]: study.success(i)
            for i, labels in enumerate(study.labels)
            if labels["problem"] == problem and study.targets[i] is not None
        }
        least = min((s["ert"] for s in found.values()), default=math.inf)
        for name in study.axes["algorithm"]:
            if name not in found:
                row.append(Cell("–"))
                continue
            own = found[name]
            ert = f"{own['ert']:,.0f}" if math.isfinite(own["ert"]) else "∞"
            row.append(Cell(f"{ert} ({own['success']:.0%})", own["ert"] == least < math.inf))
        rows.append(row)
    note = "Evaluations per success (expected running time); in brackets, the fraction of runs that reached the target."
    return Grid("Running times", ["problem", *study.axes["algorithm"]], rows, note)


def _seconds(study: Study, algorithm: str) -> str:
    return f"{sum(r.timings['run'] for labels, r in study if labels['algorithm'] == algorithm):.3g}"


def apart(values: Sequence[float], least: int = 6) -> list[str]:
    """Numbers as text, each with the fewest digits that tell it from all others: at least `least`, at most `MOST`."""
    out = ["none feasible" if math.isnan(value) else "" for value in values]
    for digits in range(least, MOST + 1):
        texts = [f"{value:.{digits}g}" for value in values]
        meant: dict[str, set[float]] = {}
        for text, value in zip(texts, values, strict=True):
            meant.setdefault(text, set()).add(value)
        for i, text in enumerate(texts):
            if not out[i] and (len(meant[text]) == 1 or digits == MOST):
                out[i] = text
    return out


def _number(name: str, value: Any) -> str:
    if name in ("success", "feasible"):
        return f"{value:.1%}"
    if name == "ert":
        return f"{value:,.0f}" if math.isfinite(value) else "∞"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def markdown(study: Study) -> str:
    def plain(text: str) -> str:
        return " ".join(text.split()).replace("|", "\\|")

    out = []
    for grid in grids(study):
        head = "| " + " | ".join(map(plain, grid.header)) + " |"
        lines = [f"## {plain(grid.title)}", "", head, "| --- " * len(grid.header) + "|"]
        for row in grid.rows:
            lines.append("| " + " | ".join(f"**{plain(c.text)}**" if c.bold else plain(c.text) for c in row) + " |")
        out.append("\n".join([*lines, "", grid.note]))
    return "\n\n".join(out) + "\n"


LATEX = {"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
         "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "≈": r"$\approx$", "∞": r"$\infty$", "–": "--",
         "·": r"$\cdot$"}  # fmt: skip


def latex(study: Study) -> str:
    """Tables for \\input, with the rules of the booktabs package."""

    def plain(text: str) -> str:
        return "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))

    out = []
    for grid in grids(study):
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{plain(grid.title)}. {plain(grid.note)}}}"]
        lines += [r"\begin{tabular}{l" + "r" * (len(grid.header) - 1) + "}", r"\toprule"]
        lines += [" & ".join(plain(h) for h in grid.header) + r" \\", r"\midrule"]
        for row in grid.rows:
            lines.append(" & ".join(rf"\textbf{{{plain(c.text)}}}" if c.bold else plain(c.text) for c in row) + r" \\")
        out.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]))
    return "\n\n".join(out) + "\n"


def html(grid: Grid) -> str:
    head = "".join(f"<th{' class=n' if k else ''}>{escape(name)}</th>" for k, name in enumerate(grid.header))
    lines = []
    for row in grid.rows:
        texts = (f"<b>{escape(c.text)}</b>" if c.bold else escape(c.text) for c in row)
        lines.append("<tr>" + "".join(f"<td{' class=n' if k else ''}>{t}</td>" for k, t in enumerate(texts)) + "</tr>")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div><p class="note">{escape(grid.note)}</p>'


# --- one result -------------------------------------------------------------------------------------------------------


def front_points(result: Result) -> dict[str, int]:
    """The rows of a front that tables show: its ends, its knee, and what the user chose, {label: row}."""
    word = "least" if result.sign > 0 else "most"
    names = result.problem.objective_names(result.F.shape[1])
    points = {f"{word} {name}": row for name, row in zip(names, data.front_ends(result), strict=True)}
    if result.knee is not None:
        points["knee"] = result.knee
    if result.get("chosen") is not None:
        how, row = _chosen(result)
        points[f"chosen: {how}"] = row
    return points


def _marked(result: Result) -> dict[int, str]:
    """Each of those rows once, {row: labels}: with many objectives one point is often the best in several."""
    word = "least" if result.sign > 0 else "most"
    found: dict[int, list[str]] = {}
    for label, row in front_points(result).items():
        found.setdefault(row, []).append(label)
    marked = {}
    for row, labels in found.items():
        best = [label.removeprefix(f"{word} ") for label in labels if label.startswith(f"{word} ")]
        others = [label for label in labels if not label.startswith(f"{word} ")]
        marked[row] = ", ".join([f"{word} {_some(best)}"] * bool(best) + others)
    return marked


def _some(names: list[str]) -> str:
    """Names in a heading, not more than fit there."""
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]} and {len(names) - 2} more"


def _chosen(result: Result) -> tuple[str, int]:
    """How the user chose, in words, and the row."""
    how: Any = result.chosen
    if isinstance(how, str):
        return how, result.choose(how)
    if not isinstance(how, dict):
        return ", ".join(f"{w:g}" for w in how), result.choose(how)
    if "asked" in how:
        return "by answers", how["asked"]
    ((kind, values),) = how.items()
    word = {"reference": "near", "aspiration": "reaches"}[kind]
    return f"{word} {', '.join(f'{v:g}' for v in values)}", result.choose(**how)


def front_rows(result: Result) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Headings, one for each of `front_points`; then objectives and recipe as rows: name, unit, and a cell a point."""
    problem, points = result.problem, _marked(result)
    rows = list(points)

    def line(name: str, values: np.ndarray, i: int | None = None) -> list[str]:
        declared = i is not None and problem.space is not None and problem.space.discrete[i]
        chosen = values[rows].tolist()
        cells = [problem.show(i or 0, value) for value in chosen] if declared else apart(chosen, 5)
        return [name, (problem.units or {}).get(name, ""), *cells]

    names = problem.objective_names(result.F.shape[1])
    values = [line(name, result.F[:, k]) for k, name in enumerate(names)]
    recipe = [line(name, result.X[:, i], i) for i, name in list(enumerate(problem.variable_names()))[:SHOWN]]
    if problem.dim > SHOWN:
        recipe.append([f"… {problem.dim - SHOWN} more variables", "", *[""] * len(rows)])
    recipe += [line(name, column) for name, column in result.get("derived", {}).items()]
    return list(points.values()), values, recipe


STEP_NOTE = (
    "What the nearest point that is better in an objective gives and takes: the change of every objective on the way "
    "there, from the marked points."
)


def step_rows(result: Result) -> tuple[list[str], list[list[str]]]:
    """Headings; and for each point of `front_points` and each neighbour the changes of all objectives on the way."""
    problem, m, points = result.problem, result.F.shape[1], _marked(result)
    names = problem.objective_names(m)
    neighbours, changes = trade_offs(np.asarray(result.F, np.float64), result.sign, list(points))
    rows = []
    for i, point in enumerate(points.values()):
        for row in dict.fromkeys(neighbours[i][neighbours[i] >= 0].tolist()):
            towards = np.flatnonzero(neighbours[i] == row)
            cells = [f"{changes[i, towards[0], k]:+.4g}" for k in range(m)]
            rows.append([point, f"better {_some([names[j] for j in towards])}", *cells])
    return ["from", "towards", *(problem.with_unit(name) for name in names)], rows


def front_summary(result: Result) -> str:
    """How many points the front has, and how good it is where that can be told."""
    text = f"{len(result.F)} points on the front"
    if result.get("hypervolume") is not None:
        whose = "the best run's hypervolume" if result.runs is not None else "hypervolume"
        text += f"; {whose} {result.hypervolume:.6g}"
        if result.get("hypervolume_error") is not None:
            text += f" (an estimate, ± {data.NORMAL * result.hypervolume_error:.2g} with 95 % confidence)"
        exact = data.known_value(result)
        if exact is not None:
            text += f", {result.hypervolume / exact:.2%} of the true front's"
    return text + "."


def constraint_rows(result: Result) -> list[tuple[str, float, str, str]]:
    """Name, value, what is needed and how it stands ("active", "slack", "violated") for every constraint at x.

    An inequality is active within `ACTIVE` of its limit, which tables say by `ACTIVE_NOTE`.
    """
    ineq = np.zeros(0) if result.ineq is None else result.ineq
    eq = np.zeros(0) if result.eq is None else result.eq
    names = constraint_names(result)
    rows = []
    for name, g in zip(names[: len(ineq)], ineq.tolist(), strict=True):
        rows.append((name, g, "<= 0", "violated" if g > 0 else "active" if g >= -ACTIVE else "slack"))
    tolerance = result.problem.eq_tolerance
    for name, h in zip(names[len(ineq) :], eq.tolist(), strict=True):
        rows.append((name, h, f"0 ± {tolerance:g}", "violated" if abs(h) > tolerance else "active"))
    return rows


def run_rows(result: Result) -> list[tuple[str, str]]:
    """How the final values of the runs spread, how many succeeded, and what a success costs.

    The values are those that runs are compared by: of several objectives the hypervolume, and of a min-max search the
    worst case that was checked.
    """
    runs = result.runs
    assert runs is not None
    values, of = None, ""
    if result.get("worst_cases") is not None:
        values, of = np.asarray(result.worst_cases, np.float64), " of the worst cases"
    elif runs.fronts is None or runs.hypervolume is not None:
        values, of = runs.final_values(), "" if runs.fronts is None else " hypervolume"
    rows = []
    if values is not None:
        quantiles = {"best": 0.0, "lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75, "worst": 1.0}
        found = finite_quantiles(comparison_sign(result) * values, list(quantiles.values())) * comparison_sign(result)
        rows = [(name + of, f"{value:.10g}") for name, value in zip(quantiles, found.tolist(), strict=True)]
        failed = int((~np.isfinite(values)).sum())
        rows += [("runs without a valid value", f"{failed:,} of {len(runs):,} runs")] * bool(failed)
    aimed = result.settings.get("target") is not None
    if aimed or runs.success.any():  # else nothing judged them
        rate, low, high = runs.success_rate()
        rows.append(("successful" if aimed else "converged", f"{rate:.1%} ({low:.1%} to {high:.1%})"))
        rows += [("evaluations per success", f"{runs.ert():,.0f}")] * aimed
    return rows
