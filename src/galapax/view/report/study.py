"""The page of a sweep or a comparison."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from galapax.measures.statistics import describe
from galapax.results.result import all_runs
from galapax.results.study import SIGNIFICANCE_LEVEL, Study, scores
from galapax.view import data, maps, study_data, tables
from galapax.view.report.charts import steps
from galapax.view.report.page import Page, hint_text
from galapax.view.report.parts import fact_list, file_section, numbers, pair_table, plain_table, setting_rows, words


def study_page(study: Study) -> str:
    """The report of a sweep or a comparison: tables, convergence, running times, final values, tests."""
    compared = study.kind == "comparison"
    first = study.results[0]
    what = "Comparison of algorithms" if compared else f"Sweep of {first.settings['algorithm']} on {first.problem.name}"
    out = Page(what)
    axes = "".join(
        f"<p class='sub'>{escape(name)}: {escape(', '.join(_label(v) for v in values))}</p>"
        for name, values in study.axes.items()
    )
    out.add(f"<h1>{escape(what)}</h1>{axes}")
    whole = all(len(all_runs(r)) == r.settings["runs"] for r in study.results) and "Stopped" not in study.message
    out.add(f'<div class="message{"" if whole else " failed"}">{escape(study.message)}</div>')
    facts = [(f"{name}s" if compared else name, str(len(values))) for name, values in study.axes.items()]
    facts += [
        ("runs each", f"{len(all_runs(first)):,}"),
        ("evaluations in all", f"{sum(r.nfev for r in study.results):,}"),
    ]
    seconds = sum(r.timings["run"] for r in study.results) if compared else first.timings["run"]
    out.add(fact_list([*facts, ("time of the runs", f"{seconds:.3g} s")]))
    for grid in tables.grids(study) if compared else ():
        out.section(grid.title)
        out.add(tables.html(grid))
    if not compared:
        _study_cells(out, study)
        _heat_map(out, study)
    _study_convergence(out, study)
    _study_times(out, study)
    _study_ends(out, study)
    if compared:
        _study_tests(out, study)
    out.section("Settings")
    if compared:
        _study_settings(out, study)
    shared = {k: first.settings[k] for k in ("runs", "seed", "dtype", "device", "maximize", "versions")}
    if not compared:
        shared = {k: first.settings[k] for k in ("problem", "algorithm", "generations", "stall")} | shared
    out.add(pair_table(setting_rows(shared)))
    files = {"summary.csv": "the table above, all columns", "runs.csv": "every run",
             "curves.csv": "values by generation", "summary.md": "the tables as Markdown",
             "summary.tex": "the tables as LaTeX", "data.npz": "all arrays, for NumPy",
             "study.json": "all settings"}  # fmt: skip
    file_section(out, files)
    return out.html()


def _study_settings(out: Page, study: Study) -> None:
    """What each algorithm could spend and had to reach, and its hyper-parameters."""
    rows = []
    for labels, result, target in zip(study.labels, study.results, study.targets, strict=True):
        spent = all_runs(result).nfev
        aim = "" if target is None else f"{target:.9g}"
        own = ", ".join(f"{name}={_label(value)}" for name, value in result.settings.get("hyperparameters", {}).items())
        found = scores(result)[~np.isnan(scores(result))]
        spread = f"{np.subtract(*np.quantile(found, (0.75, 0.25))):.3g}" if len(found) else "–"
        rows.append([labels["problem"], labels["algorithm"], f"{int(np.max(spent)):,}", aim, spread, words(own)])
    heads = ["problem", "algorithm", "evaluations", "target", "spread", "hyper-parameters"]
    out.add(plain_table(heads, rows, (2, 3, 4)))
    out.add('<p class="note">evaluations: of one run, at most; spread: between the quartiles of the final values.</p>')


def _study_cells(out: Page, study: Study) -> None:
    """One row for each setting of a sweep."""
    out.section("Results by setting")
    summary = study.summary()
    names = list(dict.fromkeys(name for row in summary for name in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in summary]
        number = all(value is None or isinstance(value, int | float) for value in values)
        columns.append(numbers([np.nan if v is None else v for v in values], 9) if number else [str(v) for v in values])
    medians = np.array([describe(scores(result))["median"] for result in study.results])
    best = {} if np.isnan(medians).all() else {int(np.nanargmin(medians)): "best median"}
    out.table(
        "cells",
        {
            "names": names, "data": columns, "labels": best, "total": len(study), "what": "settings", "file": "summary",
            "title": "The settings of the sweep",
        },
    )  # fmt: skip
    out.add(
        '<p class="note">Over the runs of each setting. '
        + "success: the fraction of runs that reached the target; ert: evaluations per success; low and high: their "
        "95 % intervals. "
        * any(target is not None for target in study.targets)
        + hint_text("Click a heading to sort; filter in the row below it.")
        + "</p>"
    )


def _label(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _heat_map(out: Page, study: Study) -> None:
    """The medians over the first two hyper-parameters, each cell in the colour of its value."""
    if len(study.axes) < 2:
        return
    drawn = study_data.heat_map(study)
    shown = np.log10(drawn.values) if drawn.log else drawn.values
    if not np.isfinite(shown).any():
        return
    low, high = np.nanmin(shown), np.nanmax(shown)
    out.section(f"{drawn.up} and {drawn.across}")
    texts = np.array(tables.apart(drawn.values.ravel().tolist(), 3)).reshape(drawn.values.shape)
    rows = []
    for name, values, places, told in zip(drawn.rows, drawn.values, shown, texts, strict=True):
        cells = []
        for value, place, text in zip(values, places, told, strict=True):
            share = 0.0 if high == low else (place - low) / (high - low)
            style = f"background: {_shade(share)}; color: {'#fff' if share > 0.55 else '#111'}"
            cells.append("<td>–</td>" if np.isnan(value) else f'<td style="{style}">{text}</td>')
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>')
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in drawn.columns)
    corner = f"{escape(drawn.up)} ↓ &nbsp; {escape(drawn.across)} →"
    more = " Of further hyper-parameters the best value counts." if len(study.axes) > 2 else ""
    out.add(
        f'<div class="wide" tabindex="0"><table class="heat"><thead><tr><th>{corner}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="note">{escape(drawn.name.capitalize())}; lighter is better.{more}</p>'
    )


def _shade(share: float) -> str:
    """From light yellow for the best to dark violet for the worst, along viridis."""
    stops = ((253, 231, 37), (94, 201, 98), (33, 145, 140), (59, 82, 139), (68, 1, 84))
    at = min(share, 0.9999) * (len(stops) - 1)
    first, second = stops[int(at)], stops[int(at) + 1]
    part = at - int(at)
    return "rgb({} {} {})".format(*(round(a + (b - a) * part) for a, b in zip(first, second, strict=True)))


def _study_convergence(out: Page, study: Study) -> None:
    out.section("Convergence")
    panels = study_data.study_convergence(study)
    banded = all(curve.lower is not None for panel in panels for curve in panel.curves)
    what = "Median and middle half" if banded else "Median"
    out.add(f"<p class='lead'>{what} of the runs by {panels[0].across}. {hint_text('Click a name to hide it.')}</p>")
    out.add('<div class="small-multiples">' if len(panels) > 1 else "<div>")
    for number, panel in enumerate(panels, 1):
        if not panel.curves:
            why = "no history was kept" if study.value == "fun" else "the problem has no reference point"
            out.add(f"<p>{escape(panel.title)}: {why}.</p>")
            continue
        xs, series = _series(panel, 12_000 // len(study))
        spec = {
            "kind": "lines", "file": f"convergence-{number}", "xs": xs, "series": series,
            "x": {"name": panel.across, "log": False},
            "y": {"name": panel.name, "log": data.wants_log(np.concatenate([curve.y for curve in panel.curves]))},
            "alt": f"{panel.title + ': ' if panel.title else ''}{panel.name} by {panel.across}, {len(series)} curves",
        }  # fmt: skip
        out.chart(spec, title=panel.title)
    out.add("</div>")


def _series(panel: study_data.Panel, most: int) -> tuple[list[list[Any]], list[dict[str, Any]]]:
    """The curves of a panel as the script draws them, thinned to about `most` points each, after the x they share."""
    xs: list[list[Any]] = []
    series = []
    for curve in panel.curves:
        rows = steps(len(curve.x), max(60, min(400, most)))
        x = curve.x[rows].tolist()
        if x not in xs:
            xs.append(x)
        bands = []
        if curve.lower is not None and curve.upper is not None:
            low, high = numbers(curve.lower[rows], 5), numbers(curve.upper[rows], 5)
            bands = [{"name": "middle half", "low": low, "high": high, "opacity": 0.18}]
        one = {"name": curve.label, "x": xs.index(x), "y": numbers(curve.y[rows], 5), "bands": bands}
        series.append({**one, "c": curve.colour, "dash": curve.stroke})
    return xs, series


def _study_times(out: Page, study: Study) -> None:
    panel = study_data.running_times(study)
    if not panel.curves:
        return
    out.section("Share of targets reached")
    count = len(study.axes["problem"]) if study.kind == "comparison" else 1
    xs, series = _series(panel, 12_000 // len(panel.curves))
    spec = {
        "kind": "lines", "file": "running-times", "xs": xs, "series": [one | {"step": True} for one in series],
        "x": {"name": panel.across, "log": True},
        "y": {"name": panel.name, "log": False, "share": True, "percent": True},
        "alt": "Share of targets reached by evaluations: the empirical distribution of running times",
    }  # fmt: skip
    note = (
        f"The empirical distribution of running times, over all runs{'' if count == 1 else f' and {count} problems'}: "
        f"{data.TARGETS} targets per problem between its first and its best known value, spaced evenly on "
        "a logarithmic "
        "scale. Curves further left and higher are better."
    )
    out.chart(spec, note)


def _study_ends(out: Page, study: Study) -> None:
    out.section("Distribution of final values")
    out.add("<p class='lead'>The share of runs that ended at least as close.</p>")
    panels = study_data.study_ends(study)
    out.add('<div class="small-multiples">' if len(panels) > 1 else "<div>")
    for number, panel in enumerate(panels, 1):
        if not panel.curves:
            out.add(f"<p>{escape(panel.title)}: no run found a feasible point.</p>")
            continue
        xs: list[list[Any]] = []
        series = []
        for curve in panel.curves:
            rows = maps.thinned(len(curve.x), max(40, 6000 // len(study))) if len(curve.x) else np.zeros(0, int)
            one = {"name": curve.label, "x": len(xs), "y": numbers(curve.y[rows], 4), "step": "all"}
            series.append({**one, "c": curve.colour, "dash": curve.stroke})
            xs.append(numbers(curve.x[rows], 5))
        spec = {
            "kind": "lines", "file": f"final-values-{number}", "xs": xs, "series": series,
            "x": {"name": panel.across, "log": data.wants_log(np.concatenate([curve.x for curve in panel.curves]))},
            "y": {"name": panel.name, "log": False, "share": True, "percent": True},
            "alt": f"{panel.title + ': ' if panel.title else ''}{panel.name} by {panel.across}",
        }  # fmt: skip
        out.chart(spec, title=panel.title)
    out.add("</div>")


def _study_tests(out: Page, study: Study) -> None:
    tests = [
        (problem, t.first, t.second, t.p, t.adjusted, t.effect)
        for problem in study.axes["problem"]
        if len(study.along("algorithm", problem=problem)) > 1
        for t in study.tests(problem)
    ]
    if not tests:
        return
    out.section("Pairs")
    rows = []
    for problem, one, other, p, adjusted, effect in tests:
        better = "" if adjusted >= SIGNIFICANCE_LEVEL else one if effect > 0.5 else other
        rows.append([problem, one, other, f"{p:.3g}", f"{adjusted:.3g}", f"{effect:.2f}", better])
    head = ["problem", "first", "second", "p", "p, Holm", "chance that first is better", "better"]
    out.add(plain_table(head, rows, range(3, 6), sort=True))
    kind = "Wilcoxon signed ranks" if study.paired else "Mann-Whitney"
    out.add(
        f'<p class="note">{kind}, with Holm\'s correction; "better" where that is below {SIGNIFICANCE_LEVEL:g}.</p>'
    )
