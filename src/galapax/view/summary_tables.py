"""The tables of a result or a study: computed once, rendered as Markdown, LaTeX, HTML or in the terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from galapax.metrics import statistics
from galapax.results.front import trade_offs
from galapax.results.result import Result, all_runs, constraint_names, finite_quantiles
from galapax.results.study import SIGNIFICANCE_LEVEL, Study, comparison_sign, scores
from galapax.view import figure_data

MAX_LISTED_MINIMA = 100  # in a table
MAX_LISTED_ROWS = 12  # variables or constraints of a table
MAX_DIGITS = 12  # of a value; further ones are rounding
VALUE_COLUMNS = ("best", "median", "mean", "worst")
ACTIVE_TOLERANCE = 1e-4  # how far from its limit an inequality still counts as active
ACTIVE_NOTE = "active: within 1e-4 of its limit"


class Cell(NamedTuple):
    text: str
    bold: bool = False


class SummaryTable(NamedTuple):
    """A table of text cells, ready to be rendered."""

    title: str
    header: list[str]
    rows: list[list[Cell]]
    note: str


def build_tables(study: Study) -> list[SummaryTable]:
    """The tables of a study, the most telling first."""
    if study.kind == "sweep":
        return [_sweep_table(study)]
    tables = [_value_table(study)]
    if any(target is not None for target in study.targets):
        tables.append(_running_time_table(study))
    if any(len(all_runs(result)) > 1 for result in study.results):
        tables.append(_mean_table(study))
    return tables


def _sweep_table(study: Study) -> SummaryTable:
    """Tabulate a sweep: one row for each setting, the best median in bold."""
    summary = study.summary()
    is_multi_objective = study.value == "hypervolume"
    summary = [{name.removeprefix("hypervolume_"): value for name, value in row.items()} for row in summary]
    number_columns = (*VALUE_COLUMNS, "feasible", "success", "ert")  # the rest is in summary.csv
    columns = [name for name in summary[0] if name in (*study.axes, *number_columns)]
    medians = [statistics.describe(scores(result))["median"] for result in study.results]
    best = -1 if np.isnan(medians).all() else int(np.nanargmin(medians))
    value_texts = {
        name: format_distinct([row[name] for row in summary], 5 if is_multi_objective else 3)
        for name in columns
        if name in VALUE_COLUMNS
    }
    rows = []
    for i, row in enumerate(summary):
        row = {name: _format_number(name, value) for name, value in row.items()} | {
            n: value_texts[n][i] for n in value_texts
        }
        row |= {name: f"{v:.12g}" if isinstance(v, float) else str(v) for name, v in study.labels[i].items()}
        if "success" in columns:
            row["success"] += f" ({100 * summary[i]['success_low']:.0f}–{100 * summary[i]['success_high']:.0f})"
        rows.append([Cell(row[name], i == best) for name in columns])
    return SummaryTable(
        f"{study.results[0].problem.name} · {study.results[0].settings['algorithm']}",
        columns,
        rows,
        ("Hypervolume of the front, over" if is_multi_objective else "Over")
        + " the runs of each setting; the best median is in bold."
        + (" success: fraction of runs that reached the target, with a 95 % interval." if "success" in columns else ""),
    )


def _value_table(study: Study) -> SummaryTable:
    """Tabulate the median of the runs, problem by problem."""
    names = study.axes["algorithm"]
    rows = []
    for problem in study.axes["problem"]:
        results = study.along("algorithm", problem=problem)
        if not results:
            continue
        stats = {name: statistics.describe(scores(result)) for name, result in results.items()}
        medians = {name: values["median"] for name, values in stats.items()}
        best = min(medians, key=lambda name: (math.isnan(medians[name]), medians[name]))
        tied = {best} | {
            other
            for pair in (study.tests(problem) if len(results) > 1 else [])
            for one, other in ((pair.first, pair.second), (pair.second, pair.first))
            if one == best and pair.adjusted >= SIGNIFICANCE_LEVEL
        }
        row = [Cell(problem)]
        texts = dict(
            zip(
                results,
                format_distinct([comparison_sign(results[name]) * medians[name] for name in results]),
                strict=True,
            )
        )
        for name in names:
            if name not in results:
                row.append(Cell("not run"))
                continue
            mark = "" if math.isnan(stats[name]["iqr"]) else f" ({format_digits(stats[name]['iqr'], 2)})"
            mark += " ≈" if name in tied and name != best and not math.isnan(medians[name]) else ""
            row.append(Cell(texts[name] + mark, name == best and not math.isnan(medians[best])))
        rows.append(row)
    note = (
        f"Median of {len(all_runs(study.results[0]))} runs, and in brackets the interquartile range. The best is in "
        "bold; ≈ marks results that do not differ from it significantly "
        f"({'Wilcoxon signed ranks' if study.paired else 'Mann-Whitney'}, Holm's correction, "
        f"level {SIGNIFICANCE_LEVEL:g})."
    )
    if len(study) == len(study.axes["problem"]) * len(names) and len(names) > 1 and len(rows) > 1:
        ranks = study.ranks()
        rows.append([Cell("average rank")] + [Cell(f"{r:.2f}") for r in ranks.average_ranks])
        note += f" Friedman's test over the problems: p = {ranks.p:.3g}."
    rows.append([Cell("total time (s)")] + [Cell(_total_seconds(study, name)) for name in names])
    if study.value == "hypervolume":
        note = "Hypervolume of the front; larger is better. " + note
        return SummaryTable("Final hypervolumes", ["problem", *names], rows, note)
    return SummaryTable("Final values", ["problem", *names], rows, note)


def _mean_table(study: Study) -> SummaryTable:
    """Tabulate mean and standard deviation of the runs, problem by problem."""
    rows = []
    for problem in study.axes["problem"]:
        results = study.along("algorithm", problem=problem)
        stats = {name: statistics.describe(scores(result)) for name, result in results.items()}
        signed = [comparison_sign(results[name]) * s["mean"] + 0.0 for name, s in stats.items()]  # + 0.0: no -0
        means = format_distinct(signed, 3)
        cells = {}
        for (name, values), mean in zip(stats.items(), means, strict=True):
            deviation = "" if math.isnan(values["std"]) else f" ± {format_digits(values['std'], 2)}"
            missing = f" ({values['missing']} missing)" if 0 < values["missing"] < values["count"] else ""
            cells[name] = Cell(mean + deviation + missing)
        if cells:
            rows.append([Cell(problem), *(cells.get(name, Cell("not run")) for name in study.axes["algorithm"])])
    note = (
        f"Mean and standard deviation of {len(all_runs(study.results[0]))} runs. Runs that found nothing feasible are "
        "missing and do not count."
    )
    return SummaryTable("Means", ["problem", *study.axes["algorithm"]], rows, note)


def _running_time_table(study: Study) -> SummaryTable:
    """Tabulate evaluations per success, problem by problem."""
    rows = []
    for problem in study.axes["problem"]:
        row = [Cell(problem)]
        successes = {
            labels["algorithm"]: study.success(i)
            for i, labels in enumerate(study.labels)
            if labels["problem"] == problem and study.targets[i] is not None
        }
        least = min((s["ert"] for s in successes.values()), default=math.inf)
        for name in study.axes["algorithm"]:
            if name not in successes:
                row.append(Cell("–"))
                continue
            success = successes[name]
            ert = f"{success['ert']:,.0f}" if math.isfinite(success["ert"]) else "∞"
            row.append(Cell(f"{ert} ({success['success']:.0%})", success["ert"] == least < math.inf))
        rows.append(row)
    note = "Evaluations per success (expected running time); in brackets, the fraction of runs that reached the target."
    return SummaryTable("Running times", ["problem", *study.axes["algorithm"]], rows, note)


def _total_seconds(study: Study, algorithm: str) -> str:
    return f"{sum(r.timings['run'] for labels, r in study if labels['algorithm'] == algorithm):.3g}"


def format_digits(value: float, digits: int) -> str:
    """Format a number with so many significant digits, below a million without a power of ten."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e6 else text


def format_distinct(values: Sequence[float], min_digits: int = 6) -> list[str]:
    """Format numbers, each with the fewest digits that tell it from all others, from `min_digits` to `MAX_DIGITS`."""
    out = ["none feasible" if math.isnan(value) else "" for value in values]
    for digits in range(min_digits, MAX_DIGITS + 1):
        texts = [format_digits(value, digits) for value in values]
        values_by_text: dict[str, set[float]] = {}
        for text, value in zip(texts, values, strict=True):
            values_by_text.setdefault(text, set()).add(value)
        for i, text in enumerate(texts):
            if not out[i] and (len(values_by_text[text]) == 1 or digits == MAX_DIGITS):
                out[i] = text
    return out


def _format_number(name: str, value: Any) -> str:
    if name in ("success", "feasible"):
        return f"{value:.1%}"
    if name == "ert":
        return f"{value:,.0f}" if math.isfinite(value) else "∞"
    return format_digits(value, 3) if isinstance(value, float) else str(value)


def markdown(study: Study) -> str:
    def plain(text: str) -> str:
        return " ".join(text.split()).replace("|", "\\|")

    out = []
    for table in build_tables(study):
        head = "| " + " | ".join(map(plain, table.header)) + " |"
        lines = [f"## {plain(table.title)}", "", head, "| --- " * len(table.header) + "|"]
        for row in table.rows:
            lines.append("| " + " | ".join(f"**{plain(c.text)}**" if c.bold else plain(c.text) for c in row) + " |")
        out.append("\n".join([*lines, "", table.note]))
    return "\n\n".join(out) + "\n"


LATEX_ESCAPES = {
    "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "≈": r"$\approx$", "∞": r"$\infty$", "–": "--",
    "·": r"$\cdot$", "±": r"$\pm$",
}  # fmt: skip
NUMBER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?)(?:e([+-]\d+))?(?![\w.])")


def latex(study: Study) -> str:
    """Render tables for \\input, with the rules of the booktabs package, labels, and powers of ten."""

    def plain(text: str) -> str:
        return "".join(LATEX_ESCAPES.get(letter, letter) for letter in " ".join(text.split()))

    def typeset(match: re.Match[str]) -> str:
        """A number with its power of ten, or its minus sign, as mathematics."""
        digits, exponent = match.groups()
        if exponent is not None:
            return rf"${digits} \times 10^{{{int(exponent)}}}$"
        return f"${digits}$" if digits.startswith("-") else digits

    def render(cell: Cell, is_number: bool) -> str:
        text = NUMBER.sub(typeset, plain(cell.text)) if is_number else plain(cell.text)
        # \textbf leaves mathematics as it is
        return r"\textbf{" + re.sub(r"\$([^$]*)\$", r"$\\mathbf{\1}$", text) + "}" if cell.bold else text

    out = []
    for table in build_tables(study):
        label = re.sub(r"\W+", "-", table.title.lower()).strip("-")
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{plain(table.title)}. {plain(table.note)}}}"]
        lines.append(rf"\label{{tab:{label}}}")
        lines += [r"\begin{tabular}{l" + "r" * (len(table.header) - 1) + "}", r"\toprule"]
        lines += [" & ".join(plain(h) for h in table.header) + r" \\", r"\midrule"]
        for row in table.rows:
            lines.append(" & ".join(render(cell, i > 0) for i, cell in enumerate(row)) + r" \\")
        out.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]))
    return "\n\n".join(out) + "\n"


GOALS = (("minimise", "least"), ("maximise", "most"))  # the verb, and which end of an objective it reaches

# --- one result -------------------------------------------------------------------------------------------------------


def answer_values(result: Result) -> list[tuple[str, float]]:
    """Return the values of the answer, by name: of a min-max problem first the worst case that was checked."""
    if np.ndim(result.fun):
        return list(zip(result.problem.objective_names(len(result.fun)), result.fun.tolist(), strict=True))
    if "worst_case" in result:
        worst_case = (figure_data.WORST_CHECKED_NAME, float(result.worst_case))
        return [worst_case, (figure_data.WORST_FOUND_NAME, float(result.fun))]
    name = "minimum" if result.sign > 0 else "maximum"
    if "fun_interval" in result:
        name = figure_data.MEAN_NAME
    return [(name if result.feasible else "value, not feasible", float(result.fun))]


def answer_notes(result: Result, digits: int = 10) -> list[tuple[str, str]]:
    """Return what else is known of the value: its interval, what fresh samples say, and the best known value."""
    rows = []
    if "fun_interval" in result:
        rows.append((figure_data.INTERVAL_NAME, figure_data.format_interval(result.fun_interval)))
    rows += figure_data.robust_rows(result)
    optimum = figure_data.known_value(result) if np.ndim(result.fun) == 0 else None
    return rows if optimum is None else [*rows, ("best known", f"{optimum:.{digits}g}")]


def front_points(result: Result) -> dict[str, int]:
    """The rows of a front that tables show: its ends, its knee, and what the user chose, {label: row}."""
    labels = [f"{word} {name}" for word, name in _name_ends(result)]
    points = dict(zip(labels, figure_data.front_ends(result), strict=True))
    if result.knee is not None:
        points["knee"] = result.knee
    if result.get("chosen") is not None:
        how, row = _describe_choice(result)
        points[f"chosen: {how}"] = row
    return points


def _label_rows(result: Result) -> dict[int, str]:
    """Join the labels of `front_points` by row: with many objectives one point is often the best in several."""
    ends = _name_ends(result)
    labels_by_row: dict[int, list[str]] = {}
    for label, row in front_points(result).items():
        labels_by_row.setdefault(row, []).append(label)
    row_labels = {}
    for row, labels in labels_by_row.items():
        texts = []
        for _, word in GOALS:
            best = [name for end, name in ends if end == word and f"{word} {name}" in labels]
            texts += [f"{word} {_abbreviate(best)}"] * bool(best)
        end_labels = {f"{word} {name}" for word, name in ends}
        row_labels[row] = ", ".join(texts + [label for label in labels if label not in end_labels])
    return row_labels


def name_goals(result: Result) -> str:
    """Return which objectives are minimised and which maximised, as part of a sentence."""
    ends = _name_ends(result)
    groups = ((verb, [name for end, name in ends if end == word]) for verb, word in GOALS)
    return " and ".join(f"{verb} {', '.join(names)}" for verb, names in groups if names)


def _name_ends(result: Result) -> list[tuple[str, str]]:
    """Return for each objective whether the least or the most of it is best, and its name."""
    names = result.problem.objective_names(result.F.shape[1])
    return [("least" if sign > 0 else "most", name) for sign, name in zip(result.signs, names, strict=True)]


def _abbreviate(names: list[str]) -> str:
    """Join names for a heading; more than three are abbreviated."""
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]} and {len(names) - 2} more"


def _describe_choice(result: Result) -> tuple[str, int]:
    """Describe how the user chose a point of the front, and return its row."""
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


def minima_rows(result: Result) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table of `gx.minima`: value, share, searches, whether verified, and variables."""
    table, problem = result.minima, result.problem
    count = min(len(table), MAX_LISTED_MINIMA)
    names = problem.variable_names()[:MAX_LISTED_ROWS]
    heads = ["value", "share", "found", *[problem.with_unit(name) for name in names], ""]
    rows = [
        [
            *(f"{table.fun[k]:.10g}", f"{table.share[k]:.2%}", str(table.found[k])),
            *(problem.show(i, table.x[k, i]) for i in range(len(names))),
            "" if table.verified[k] else "not verified",
        ]
        for k in range(count)
    ]
    if len(table) > count:
        rows.append([f"and {len(table) - count} more", *[""] * (len(heads) - 1)])
    return heads, rows


def front_rows(result: Result) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Headings, one for each of `front_points`; then objectives and recipe as rows: name, unit, and a cell a point."""
    problem, points = result.problem, _label_rows(result)
    rows = list(points)

    def line(name: str, values: np.ndarray, i: int | None = None) -> list[str]:
        is_discrete = i is not None and problem.space is not None and problem.space.variables[i].discrete
        row_values = values[rows].tolist()
        cells = [problem.show(i or 0, value) for value in row_values] if is_discrete else format_distinct(row_values, 5)
        return [name, (problem.units or {}).get(name, ""), *cells]

    names = problem.objective_names(result.F.shape[1])
    values = [line(name, result.F[:, k]) for k, name in enumerate(names)]
    recipe = [line(name, result.X[:, i], i) for i, name in list(enumerate(problem.variable_names()))[:MAX_LISTED_ROWS]]
    if problem.dim > MAX_LISTED_ROWS:
        recipe.append([f"… {problem.dim - MAX_LISTED_ROWS} more variables", "", *[""] * len(rows)])
    recipe += [line(name, column) for name, column in result.get("derived", {}).items()]
    return list(points.values()), values, recipe


STEP_NOTE = "Change in each objective when moving from a marked point to the nearest point that improves one of them."


def step_rows(result: Result) -> tuple[list[str], list[list[str]]]:
    """Headings; and for each point of `front_points` and each neighbour the changes of all objectives on the way."""
    problem, m, points = result.problem, result.F.shape[1], _label_rows(result)
    names = problem.objective_names(m)
    neighbours, changes = trade_offs(np.asarray(result.F, np.float64), result.signs, list(points))
    rows = []
    for i, point in enumerate(points.values()):
        for row in dict.fromkeys(neighbours[i][neighbours[i] >= 0].tolist()):
            objectives = np.flatnonzero(neighbours[i] == row)
            cells = [f"{changes[i, objectives[0], k]:+.4g}" for k in range(m)]
            rows.append([point, f"better {_abbreviate([names[j] for j in objectives])}", *cells])
    return ["from", "towards", *(problem.with_unit(name) for name in names)], rows


def front_summary(result: Result) -> str:
    """Summarise the front: number of points, and hypervolume where there is one."""
    text = f"{len(result.F)} points on the front"
    if result.get("hypervolume") is not None:
        whose = "the best run's hypervolume" if result.runs is not None else "hypervolume"
        text += f"; {whose} {result.hypervolume:.6g}"
        if result.get("hypervolume_error") is not None:
            text += f" (an estimate, ± {figure_data.Z_95 * result.hypervolume_error:.2g} with 95 % confidence)"
        exact = figure_data.known_value(result)
        if exact is not None:
            text += f", {result.hypervolume / exact:.2%} of the true front's"
    return text + "."


def constraint_rows(result: Result) -> list[tuple[str, float, str, str]]:
    """Name, value, what is needed and how it stands ("active", "slack", "violated") for every constraint at x.

    An inequality is active within `ACTIVE_TOLERANCE` of its limit, which tables say by `ACTIVE_NOTE`.
    """
    ineq = np.zeros(0) if result.ineq is None else result.ineq
    eq = np.zeros(0) if result.eq is None else result.eq
    names = constraint_names(result)
    rows = []
    for name, g in zip(names[: len(ineq)], ineq.tolist(), strict=True):
        rows.append((name, g, "<= 0", "violated" if g > 0 else "active" if g >= -ACTIVE_TOLERANCE else "slack"))
    tolerances = np.broadcast_to(result.problem.eq_tolerance or 0.0, len(eq)).tolist()
    for name, h, tolerance in zip(names[len(ineq) :], eq.tolist(), tolerances, strict=True):
        rows.append((name, h, f"0 ± {tolerance:g}", "violated" if abs(h) > tolerance else "active"))
    return rows


def run_rows(result: Result) -> list[tuple[str, str]]:
    """Quantiles of the runs' final values, success rate, and evaluations per success.

    The values are those that runs are compared by: of several objectives the hypervolume, and of a min-max search the
    worst case that was checked.
    """
    runs = result.runs
    assert runs is not None
    values, suffix = None, ""
    if result.get("worst_cases") is not None:
        values, suffix = np.asarray(result.worst_cases, np.float64), " of the worst cases"
    elif runs.fronts is None or runs.hypervolume is not None:
        values, suffix = runs.final_values(), "" if runs.fronts is None else " hypervolume"
    rows = []
    if values is not None:
        sign = comparison_sign(result)
        # from best to worst; of values where more is better the upper quartile is the better one
        better, worse = ("lower quartile", "upper quartile") if sign > 0 else ("upper quartile", "lower quartile")
        quantiles = {"best": 0.0, better: 0.25, "median": 0.5, worse: 0.75, "worst": 1.0}
        values_at = finite_quantiles(sign * values, list(quantiles.values())) * sign
        rows = [(name + suffix, f"{value:.10g}") for name, value in zip(quantiles, values_at.tolist(), strict=True)]
        n_failed = int((~np.isfinite(values)).sum())
        rows += [("runs without a valid value", f"{n_failed:,} of {len(runs):,} runs")] * bool(n_failed)
    has_target = result.settings.get("target") is not None
    if has_target or runs.success.any():  # else nothing judged them
        rate, low, high = runs.success_rate()
        rows.append(("successful" if has_target else "converged", f"{rate:.1%} ({low:.1%} to {high:.1%})"))
        rows += [("evaluations per success", f"{runs.ert():,.0f}")] * has_target
    return rows
