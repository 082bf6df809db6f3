"""The report pages: of one result, and of a sweep or a comparison."""

from __future__ import annotations

from html import escape

import numpy as np

from galapax.metrics.statistics import describe
from galapax.results.many_answers import Illumination
from galapax.results.result import Result, all_runs, find_start, has_cells
from galapax.results.study import SIGNIFICANCE_LEVEL, Study, scores
from galapax.view import figure_data, summary_tables
from galapax.view.report import figures
from galapax.view.report.figures import panel_chart
from galapax.view.report.page import (
    POSITION_HEADING,
    Html,
    ReportPage,
    fact_list,
    file_section,
    format_brief,
    format_count,
    format_number,
    hint_span,
    json_numbers,
    pair_table,
    plain_table,
    setting_rows,
    wrap_words,
)

TIMING_NAMES = {
    "compile": "compiling",
    "run": "running",
    "device": "of which waiting for the device",
    "host": "everything else",
    "held": "held by the live page",
}
MINIMA_NOTE = "Share: of the samples in the niche of a minimum. Found: how many searches ended there."
IMPORTANCES_NOTE = (
    "The share of the objective's variance over the whole box in which a variable takes part, alone or with others, in "
    "trees fitted to the evaluations. Where the search has hardly been, effects are underestimated."
)
MAX_LISTED_VARIABLES = 300  # variables or constraints in a table at most


def render_result(result: Result) -> str:
    """Render the report of a result: answer, constraints, front, convergence, maps, runs, cost, settings."""
    settings, title = result.settings, figure_data.problem_title(result.problem)
    out = ReportPage(f"{title} · {settings['algorithm']}")
    runs = f", {len(result.runs):,} runs" if result.runs is not None else ""
    out.add(
        f"<h1>{escape(title)}</h1><p>{escape(_task_sentence(result))}</p>"
        f'<p class="sub">{escape(figure_data.method(result))}, seed '
        f"{result.seed}{runs}, {escape(settings['dtype'])} on {escape(str(settings['device']))}</p>"
    )
    out.add(_message_box(result), fact_list(_result_facts(result)))
    illumination = Illumination(result) if has_cells(result) else None
    if illumination is not None:
        figures.add_elites(out, illumination)
    elif result.knee is not None:
        figures.add_front(out, result)
    if "minima" in result and len(result.minima):
        _add_minima(out, result)
    _add_answer(out, result)
    if result.ineq is not None or result.eq is not None:
        _add_constraints(out, result)
    figures.add_convergence(out, result)
    if result.runs is not None:
        figures.add_runs(out, result)
    if not figure_data.has_population(result):
        figures.add_evaluations(out, result)
    else:
        if illumination is None and "minima" not in result:
            figures.add_maps(out, result)
        if "F" not in result:
            figures.add_population(out, result)
    _add_importances(out, result)
    _add_problem(out, result)
    out.section("Cost")
    out.add(pair_table(_cost_rows(result)))
    out.section("Settings")
    repeat_rows = [("command to reproduce", result.command)] if result.get("command") else []
    out.add(pair_table(repeat_rows + setting_rows(settings)))
    file_section(out, _result_files(result))
    return out.html()


def _add_minima(out: ReportPage, result: Result) -> None:
    out.section("Minima" if result.sign > 0 else "Maxima")
    out.add(
        f"<p>{escape(MINIMA_NOTE)} About {result.unseen:.2g} of the starts may lead to others.</p>",
        plain_table(*summary_tables.minima_rows(result), (0, 1, 2)),
    )


def _message_box(result: Result) -> str:
    if result.feasible:
        kind = {
            figure_data.VERDICT_FOUND: "",
            figure_data.VERDICT_ENDED: " ended",
            figure_data.VERDICT_FAILED: " failed",
        }[figure_data.verdict(result)]
        return f'<div class="message{kind}">{escape(result.message)}</div>'
    return (
        f'<div class="message failed"><b>No feasible point</b>{escape(result.message)} Shown below is the point '
        "with the smallest constraint violation.</div>"
    )


def _result_facts(result: Result) -> list[tuple[str, str]]:
    problem, optimum = result.problem, figure_data.known_value(result)
    out = []
    if "minima" in result:
        out.append(("minima" if result.sign > 0 else "maxima", f"{len(result.minima):,}"))
    if has_cells(result):
        illumination = Illumination(result)
        out += [("cells with an elite", f"{len(illumination):,}"), ("coverage", f"{illumination.coverage:.1%}")]
        out += [("best elite", format_brief(illumination.fun[illumination.best]))] if len(illumination) else []
    elif "F" in result:
        out.append(("points on the front", f"{len(result.F):,}"))
        if result.get("hypervolume") is not None and len(result.F):
            error = result.get("hypervolume_error")
            margin = "" if error is None else f" ± {format_number(figure_data.Z_95 * error, 2)}"
            out.append(("hypervolume", format_number(result.hypervolume, 6) + margin))
            if optimum is not None:
                out.append(("of the true front's", f"{result.hypervolume / optimum:.2%}"))
    else:
        value_label = "value there" if not result.feasible else "minimum found" if result.sign > 0 else "maximum found"
        if "worst_case" in result:
            out.append((figure_data.WORST_CHECKED_NAME, format_brief(result.worst_case)))
            value_label = "worst value met"  # as `data.MET` says, on one line
        out.append((value_label, format_brief(result.fun)))
        if optimum is not None:
            out.append(("best known", format_brief(optimum)))
    if problem.constrained:
        out.append(("feasible", "yes" if result.feasible else "no"))
        out += [("total violation", format_number(result.violation, 6))] * (not result.feasible)
    if result.runs is not None:
        has_verdict = result.settings.get("target") is not None or result.runs.success.any()
        success_label = "runs that converged" if result.settings.get("target") is None else "successful runs"
        out += [(success_label, f"{int(result.runs.success.sum()):,} of {len(result.runs):,}")] * bool(has_verdict)
    if result.get("confidence") is not None:
        out.append(("confidence", f"{result.confidence:.1%}"))
    out += [("evaluations", f"{result.nfev:,}"), ("generations", f"{result.nit:,}")]
    out.append(("time of the run", f"{result.timings['run']:.3g} s"))
    return out


def _task_sentence(result: Result) -> str:
    """State the optimisation problem in a sentence."""
    problem = result.problem
    groups = ((result.ineq, "inequality constraint"), (result.eq, "equality constraint"))
    constraints = " and ".join(format_count(len(values), word) for values, word in groups if values is not None)
    verb = "Minimise" if result.sign > 0 else "Maximise"
    if "worst_case" in result:
        worst_case = f"the worst case over {format_count(len(result.y), 'variable')} y"
        task = f"{verb} over {format_count(problem.dim, 'variable')} x {worst_case}"
    elif len(set(result.signs.tolist())) > 1:
        task = f"{summary_tables.name_goals(result)} over {format_count(problem.dim, 'variable')}"
        task = task[0].upper() + task[1:]
    elif has_cells(result):
        objective, *measures = problem.objective_names(np.size(result.fun))
        kinds = f"each cell of a map of {format_count(len(measures), 'measure')} ({', '.join(measures)})"
        task = f"{verb} {objective} in {kinds} over {format_count(problem.dim, 'variable')}"
    else:
        task = f"{verb} {format_count(np.size(result.fun), 'objective')} over {format_count(problem.dim, 'variable')}"
    return task + (f", subject to {constraints}." if constraints else ".")


def _add_importances(out: ReportPage, result: Result) -> None:
    """Add how much each variable matters, of a black box with enough evaluations."""
    tables = []
    for objective, name in enumerate(figure_data.objective_names(result)):
        shares, doubt = figure_data.importances(result, objective)
        if doubt:
            out.section("Which variables matter")
            out.add(f"<p>{escape(f'Not shown: {doubt}')}</p>")
        if not shares:
            return
        rows: list[list[str]] = []
        for variable, share in list(shares.items())[:MAX_LISTED_VARIABLES]:
            mark = f'<i style="left: calc({min(100.0, 100 * share):.2f}% - 0.17rem)"></i>'
            rows.append([variable, f"{share:.1%}", Html(f'<span class="bar">{mark}</span>')])
        tables.append(plain_table([f"variable, for {name}", "share", ""], rows, (1,)))
    out.section("Which variables matter")
    out.add(f"<p>{escape(IMPORTANCES_NOTE)}</p>", *tables)


def _add_problem(out: ReportPage, result: Result) -> None:
    problem, m = result.problem, np.size(result.fun)
    out.section("What was solved")
    rows = [("name", problem.name)] + [("title", problem.title)] * bool(problem.title)
    rows += [("task", _task_sentence(result))] + [("source", problem.source)] * bool(problem.source)
    names = [problem.with_unit(n) for n in problem.objective_names(m)] if m > 1 else []
    if has_cells(result):
        rows += [("objective", names[0]), ("measures", ", ".join(names[1:]))]
    elif m > 1:
        rows.append(("objectives", ", ".join(names)))
    if problem.optimum is not None:
        rows.append(("best known value", f"{problem.optimum:.12g}"))
    if problem.hypervolume is not None:
        rows.append(("hypervolume of the true front", f"{problem.hypervolume:.8g}"))
    if problem.reference_point is not None:
        rows.append(("reference point", ", ".join(f"{v:g}" for v in problem.reference_point)))
    out.add(pair_table(rows))


def _add_answer(out: ReportPage, result: Result) -> None:
    problem, bounds, knee = result.problem, result.problem.bounds, result.knee
    title = "The knee of the front" if knee is not None else "Answer" if result.feasible else "Best point"
    out.section("The best elite" if has_cells(result) and result.feasible else title)
    units = problem.units or {}
    rows: list[list[str]] = []

    def line(
        name: str, value: str | float, low: str = "", high: str = "", position: str = "", digits: int = 10
    ) -> None:
        text = value if isinstance(value, str) else format_number(value, digits)
        rows.append([name, units.get(name, ""), text, low, high, position])

    for name, value in summary_tables.answer_values(result):
        line(name, value, digits=12)
    for name, text in summary_tables.answer_notes(result, digits=12):
        line(name, text)
    for i, name in list(enumerate(problem.variable_names()))[:MAX_LISTED_VARIABLES]:
        share = 100 * (result.x[i] - bounds.lower[i]) / ((bounds.upper[i] - bounds.lower[i]) or 1.0)
        mark = f'<i style="left: calc({share:.2f}% - 0.17rem)"></i>'
        bar = Html(f'<span class="bar" title="{share:.1f} % of the way">{mark}</span>')
        value_text = result.x[i] if problem.space is None else problem.show(i, result.x[i])
        choices = problem.choices(i)
        low, high = ("", "") if choices else problem.limits(i)
        line(name, value_text, low, high, f"one of {', '.join(choices)}" if choices else bar)
    for name, value in result.get("derived", {}).items():
        values = np.ravel(value)
        if len(values):  # one number, or of several objectives one for each point of the front
            line(name, values[knee or 0])
    for i, value in list(enumerate(result.get("y", ())))[:MAX_LISTED_VARIABLES]:
        line(f"worst y{i + 1}", value)
    out.add(plain_table(["name", "unit", "value", "lower", "upper", POSITION_HEADING], rows, (2, 3, 4)))
    if problem.dim > MAX_LISTED_VARIABLES:
        out.add(
            f'<p class="note">The first {MAX_LISTED_VARIABLES} of {problem.dim:,} variables; '
            "result.json has them all.</p>"
        )


def _add_constraints(out: ReportPage, result: Result) -> None:
    out.section("Constraints")
    rows = summary_tables.constraint_rows(result)
    state = [s for *_, s in rows]
    counts = [f"{state.count(word)} {word}" for word in ("violated", "active", "slack") if word in state]
    prefix = "At the best elite: " if has_cells(result) else "At the knee: " if result.knee is not None else ""
    note = f" ({summary_tables.ACTIVE_NOTE})" if result.ineq is not None else ""
    out.add(f"<p>{prefix}{', '.join(counts)}{note}.</p>")
    cells = [
        [name, format_number(value, 6), needed, Html(f'<span class="{state}">{state}</span>')]
        for name, value, needed, state in sorted(rows[:MAX_LISTED_VARIABLES], key=lambda row: row[3] != "violated")
    ]
    out.add(plain_table(["constraint", "value", "needed", "state"], cells, (1,)))
    if len(rows) > MAX_LISTED_VARIABLES:
        out.add(f'<p class="note">The first {MAX_LISTED_VARIABLES} of {len(rows):,}; result.json has them all.</p>')


def _cost_rows(result: Result) -> list[tuple[str, str]]:
    rows = [("generations", f"{result.nit:,}"), ("evaluations", f"{result.nfev:,}"), ("failed", f"{result.n_failed:,}")]
    times = result.timings
    if times.get("run"):
        rows.append(("evaluations per second", f"{result.nfev / times['run']:,.0f}"))
    started = find_start(result)
    rows += [] if started is None else [("started", started.replace("T", " ").replace("Z", " UTC"))]
    return rows + [(TIMING_NAMES.get(name, name), f"{value:.4g} s") for name, value in times.items()]


def _result_files(result: Result) -> dict[str, str]:
    population = "the elite of each cell" if has_cells(result) else "the last population"
    files = {"result.json": "answer, settings and timings", "population.csv": population}
    if result.history is not None:
        files["history.csv"] = "values by generation" + (" of the best run" if result.runs is not None else "")
    if "evaluations" in result:
        files["evaluations.csv"] = "every call of the black box"
    if "F" in result:
        files["front.csv"] = "the best elite" if has_cells(result) else "the front with its recipes"
    if result.runs is not None:
        files["runs.csv"] = "every run"
        if result.runs.fronts is not None:
            files["fronts.csv"] = "every run's front"
    return files | {"arrays.npz": "all arrays, for NumPy"}


# --- the page of a sweep or a comparison ------------------------------------------------------------------------------


def render_study(study: Study) -> str:
    """Render the report of a sweep or a comparison: tables, convergence, running times, final values, tests."""
    is_comparison = study.kind == "comparison"
    first = study.results[0]
    title = (
        "Comparison of algorithms"
        if is_comparison
        else f"Sweep of {first.settings['algorithm']} on {first.problem.name}"
    )
    out = ReportPage(title)
    axes = "".join(
        f"<p class='sub'>{escape(name)}: {escape(', '.join(_format_label(v) for v in values))}</p>"
        for name, values in study.axes.items()
    )
    out.add(f"<h1>{escape(title)}</h1>{axes}")
    is_complete = all(len(all_runs(r)) == r.settings["runs"] for r in study.results) and "Stopped" not in study.message
    out.add(f'<div class="message{"" if is_complete else " failed"}">{escape(study.message)}</div>')
    facts = [(f"{name}s" if is_comparison else name, str(len(values))) for name, values in study.axes.items()]
    facts += [
        ("runs each", f"{len(all_runs(first)):,}"),
        ("total evaluations", f"{sum(r.nfev for r in study.results):,}"),
    ]
    seconds = sum(r.timings["run"] for r in study.results) if is_comparison else first.timings["run"]
    out.add(fact_list([*facts, ("time of the runs", f"{seconds:.3g} s")]))
    for grid in summary_tables.build_tables(study) if is_comparison else ():
        out.section(grid.title)
        rows = [[Html(f"<b>{escape(cell.text)}</b>") if cell.bold else cell.text for cell in row] for row in grid.rows]
        out.add(plain_table(grid.header, rows, range(1, len(grid.header))), f'<p class="note">{escape(grid.note)}</p>')
    if not is_comparison:
        _add_cells(out, study)
        _add_heat_map(out, study)
    _add_convergence(out, study)
    _add_running_times(out, study)
    _add_final_values(out, study)
    if is_comparison:
        _add_tests(out, study)
    out.section("Settings")
    if is_comparison:
        _add_settings(out, study)
    names = ["runs", "seed", "dtype", "device", "maximize", "versions"]
    shared = {k: first.settings[k] for k in names if k in first.settings}
    if not is_comparison:
        shared = {k: first.settings[k] for k in ("problem", "algorithm", "generations", "patience")} | shared
    out.add(pair_table(setting_rows(shared)))
    files = {"summary.csv": "the table above, all columns", "runs.csv": "every run",
             "curves.csv": "values by generation", "summary.md": "the tables as Markdown",
             "summary.tex": "the tables as LaTeX", "arrays.npz": "all arrays, for NumPy",
             "study.json": "all settings"}  # fmt: skip
    file_section(out, files)
    return out.html()


def _add_settings(out: ReportPage, study: Study) -> None:
    """Add a table of each algorithm's evaluations, target and hyper-parameters."""
    rows = []
    for labels, result, target in zip(study.labels, study.results, study.targets, strict=True):
        nfev = all_runs(result).nfev
        aim = "" if target is None else f"{target:.9g}"
        hyperparameters = ", ".join(
            f"{name}={_format_label(value)}" for name, value in result.settings.get("hyperparameters", {}).items()
        )
        final_values = scores(result)[~np.isnan(scores(result))]
        spread = f"{np.subtract(*np.quantile(final_values, (0.75, 0.25))):.3g}" if len(final_values) else "–"
        rows.append(
            [labels["problem"], labels["algorithm"], f"{int(np.max(nfev)):,}", aim, spread, wrap_words(hyperparameters)]
        )
    heads = ["problem", "algorithm", "evaluations", "target", "spread", "hyper-parameters"]
    out.add(plain_table(heads, rows, (2, 3, 4)))
    out.add('<p class="note">evaluations: of one run, at most; spread: between the quartiles of the final values.</p>')


def _add_cells(out: ReportPage, study: Study) -> None:
    """Add a table with one row for each setting of a sweep."""
    out.section("Results by setting")
    summary = study.summary()
    names = list(dict.fromkeys(name for row in summary for name in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in summary]
        is_number = all(value is None or isinstance(value, int | float) for value in values)
        columns.append(
            json_numbers([np.nan if v is None else v for v in values], 9) if is_number else [str(v) for v in values]
        )
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
        + hint_span("Click a heading to sort; filter in the row below it.")
        + "</p>"
    )


def _format_label(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _add_heat_map(out: ReportPage, study: Study) -> None:
    """Add a table of the medians over the first two hyper-parameters, each cell in the colour of its value."""
    if len(study.axes) < 2:
        return
    heat_map = figure_data.study_heat_map(study)
    levels = np.log10(heat_map.values) if heat_map.log else heat_map.values
    if not np.isfinite(levels).any():
        return
    low, high = np.nanmin(levels), np.nanmax(levels)
    out.section(f"{heat_map.up} and {heat_map.across}")
    texts = np.array(summary_tables.format_distinct(heat_map.values.ravel().tolist(), 3)).reshape(heat_map.values.shape)
    rows = []
    for name, values, row_levels, row_texts in zip(heat_map.rows, heat_map.values, levels, texts, strict=True):
        cells = []
        for value, level, text in zip(values, row_levels, row_texts, strict=True):
            share = 0.0 if high == low else (level - low) / (high - low)
            style = f"background: {_viridis_colour(share)}; color: {'#fff' if share > 0.55 else '#111'}"
            cells.append("<td>–</td>" if np.isnan(value) else f'<td style="{style}">{text}</td>')
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>')
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heat_map.columns)
    corner = f"{escape(heat_map.up)} ↓ &nbsp; {escape(heat_map.across)} →"
    more = " Of further hyper-parameters the best value counts." if len(study.axes) > 2 else ""
    out.add(
        f'<div class="wide" tabindex="0"><table class="heat"><thead><tr><th>{corner}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="note">{escape(heat_map.name.capitalize())}; lighter is better.{more}</p>'
    )


def _viridis_colour(share: float) -> str:
    """Interpolate viridis, from light yellow for the best to dark violet for the worst."""
    stops = ((253, 231, 37), (94, 201, 98), (33, 145, 140), (59, 82, 139), (68, 1, 84))
    position = min(share, 0.9999) * (len(stops) - 1)
    first, second = stops[int(position)], stops[int(position) + 1]
    fraction = position - int(position)
    return "rgb({} {} {})".format(*(round(a + (b - a) * fraction) for a, b in zip(first, second, strict=True)))


def _add_convergence(out: ReportPage, study: Study) -> None:
    out.section("Convergence")
    panels = figure_data.study_convergence(study)
    has_bands = all(curve.lower is not None for panel in panels for curve in panel.curves)
    what = "Median and middle half" if has_bands else "Median"
    out.add(f"<p class='lead'>{what} of the runs by {panels[0].across}. {hint_span('Click a name to hide it.')}</p>")
    why = "no history was kept" if study.value == "fun" else "the problem has no reference point"
    _add_panels(out, panels, "convergence", why)


def _add_running_times(out: ReportPage, study: Study) -> None:
    panel = figure_data.running_times(study)
    if not panel.curves:
        return
    out.section("Share of targets reached")
    count = len(study.axes["problem"]) if study.kind == "comparison" else 1
    note = (
        f"The empirical distribution of running times, over all runs{'' if count == 1 else f' and {count} problems'}: "
        f"{figure_data.N_TARGETS} targets per problem between its first and its best known value, spaced evenly on "
        "a logarithmic scale. Curves further left and higher are better."
    )
    out.chart(panel_chart(panel, "running-times", _max_points(len(panel.curves))), note)


def _add_final_values(out: ReportPage, study: Study) -> None:
    out.section("Distribution of final values")
    out.add("<p class='lead'>The share of runs that ended at least as close.</p>")
    _add_panels(out, figure_data.study_final_values(study), "final-values", "no run found a feasible point")


def _add_panels(out: ReportPage, panels: list[figure_data.Panel], file: str, why_empty: str) -> None:
    """Add a chart for each problem of a comparison, side by side; of a sweep the only one."""
    n_curves = sum(len(panel.curves) for panel in panels)
    out.add('<div class="small-multiples">' if len(panels) > 1 else "<div>")
    for number, panel in enumerate(panels, 1):
        if panel.curves:
            out.chart(panel_chart(panel, f"{file}-{number}", _max_points(n_curves)), title=panel.title)
        else:
            out.add(f"<p>{escape(panel.title)}: {why_empty}.</p>")
    out.add("</div>")


def _max_points(n_curves: int) -> int:
    """Return how many points a curve may have on a page with so many."""
    return max(60, min(400, 12_000 // n_curves))


def _add_tests(out: ReportPage, study: Study) -> None:
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
