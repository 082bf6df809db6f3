"""The report page of one result."""

from __future__ import annotations

from html import escape

import numpy as np

from galapax.results.illumination import Illumination, has_cells
from galapax.results.result import Result
from galapax.view import figure_data, summary_tables
from galapax.view.report import figures
from galapax.view.report.page import (
    POSITION_HEADING,
    Html,
    ReportPage,
    fact_list,
    file_section,
    format_brief,
    format_count,
    format_number,
    pair_table,
    plain_table,
    setting_rows,
)

TIMING_NAMES = {
    "compile": "compiling",
    "run": "running",
    "device": "of which waiting for the device",
    "host": "everything else",
    "held": "held by the live page",
}
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
    _add_answer(out, result)
    if result.ineq is not None or result.eq is not None:
        _add_constraints(out, result)
    figures.add_convergence(out, result)
    if result.runs is not None:
        figures.add_runs(out, result)
    if illumination is None:
        figures.add_maps(out, result)
    if "F" not in result:
        figures.add_population(out, result)
    _add_problem(out, result)
    out.section("Cost")
    out.add(pair_table(_cost_rows(result)))
    out.section("Settings")
    repeat_rows = [("command to reproduce", result.command)] if result.get("command") else []
    out.add(pair_table(repeat_rows + setting_rows(settings)))
    file_section(out, _result_files(result))
    return out.html()


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
    if has_cells(result):
        out.append(("cells with an elite", f"{len(Illumination(result)):,}"))
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
    else:
        task = f"{verb} {format_count(np.size(result.fun), 'objective')} over {format_count(problem.dim, 'variable')}"
    return task + (f", subject to {constraints}." if constraints else ".")


def _add_problem(out: ReportPage, result: Result) -> None:
    problem, m = result.problem, np.size(result.fun)
    out.section("What was solved")
    rows = [("name", problem.name)] + [("title", problem.title)] * bool(problem.title)
    rows += [("task", _task_sentence(result))] + [("source", problem.source)] * bool(problem.source)
    if m > 1:
        rows.append(("objectives", ", ".join(problem.with_unit(n) for n in problem.objective_names(m))))
    if problem.optimum is not None:
        rows.append(("best known value", f"{problem.optimum:.12g}"))
    if problem.hypervolume is not None:
        rows.append(("hypervolume of the true front", f"{problem.hypervolume:.8g}"))
    if problem.reference_point is not None:
        rows.append(("reference point", ", ".join(f"{v:g}" for v in problem.reference_point)))
    out.add(pair_table(rows))


def _add_answer(out: ReportPage, result: Result) -> None:
    problem, bounds, knee = result.problem, result.problem.bounds, result.knee
    out.section("The knee of the front" if knee is not None else "Answer" if result.feasible else "Best point")
    units = problem.units or {}
    rows: list[list[str]] = []

    def line(
        name: str, value: str | float, low: str = "", high: str = "", position: str = "", digits: int = 10
    ) -> None:
        text = value if isinstance(value, str) else format_number(value, digits)
        rows.append([name, units.get(name, ""), text, low, high, position])

    if "worst_case" in result:
        line("worst case, checked by an independent search", result.worst_case, digits=12)
    for name, value in zip(_value_names(result), np.atleast_1d(result.fun), strict=True):
        line(name, value, digits=12)
    if "fun_interval" in result:
        line(figure_data.INTERVAL_NAME, figure_data.format_interval(result.fun_interval))
    for name, text in figure_data.robust_rows(result):
        line(name, text)
    if problem.optimum is not None and not np.ndim(result.fun):
        line("best known", problem.optimum, digits=12)
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


def _value_names(result: Result) -> list[str]:
    """The names of the answer's value, or of its objectives."""
    if np.ndim(result.fun):
        return result.problem.objective_names(len(result.fun))
    if "worst_case" in result:
        return [figure_data.WORST_FOUND_NAME]
    if "fun_interval" in result and result.feasible:
        return [figure_data.MEAN_NAME]
    return ["value, not feasible" if not result.feasible else "minimum" if result.sign > 0 else "maximum"]


def _add_constraints(out: ReportPage, result: Result) -> None:
    out.section("Constraints")
    rows = summary_tables.constraint_rows(result)
    state = [s for *_, s in rows]
    counts = [f"{state.count(word)} {word}" for word in ("violated", "active", "slack") if word in state]
    prefix = "At the knee: " if result.knee is not None else ""
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
    return rows + [(TIMING_NAMES.get(name, name), f"{value:.4g} s") for name, value in times.items()]


def _result_files(result: Result) -> dict[str, str]:
    files = {"result.json": "answer, settings and timings", "population.csv": "the last population"}
    if result.history is not None:
        files["history.csv"] = "values by generation" + (" of the best run" if result.runs is not None else "")
    if "F" in result:
        files["front.csv"] = "the front with its recipes"
    if result.runs is not None:
        files["runs.csv"] = "every run"
        if result.runs.fronts is not None:
            files["fronts.csv"] = "every run's front"
    return files | {"arrays.npz": "all arrays, for NumPy"}
