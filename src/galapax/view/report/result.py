"""The page of one result."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from galapax.results.result import Result
from galapax.view import data, tables
from galapax.view.report import figures
from galapax.view.report.page import Page
from galapax.view.report.parts import (
    WITHIN,
    Html,
    brief,
    count,
    fact_list,
    file_section,
    number,
    pair_table,
    plain_table,
    setting_rows,
)

TIMES = {"compile": "compiling", "run": "running", "device": "of it waiting for the device", "host": "everything else",
         "held": "held by the live page"}  # fmt: skip
LISTED = 300  # variables or constraints in a table at most


def page(result: Result) -> str:
    """The report: the answer, constraints, front, convergence, maps, runs, cost, and what is needed to repeat it."""
    settings, named = result.settings, data.problem_title(result.problem)
    out = Page(f"{named} · {settings['algorithm']}")
    runs = f", {len(result.runs):,} runs" if result.runs is not None else ""
    out.add(
        f'<h1>{escape(named)}</h1><p>{escape(_task(result))}</p><p class="sub">{escape(data.method(result))}, seed '
        f"{result.seed}{runs}, {escape(settings['dtype'])} on {escape(str(settings['device']))}</p>"
    )
    out.add(_message(result), fact_list(_result_facts(result)))
    if result.knee is not None:
        figures.front(out, result)
    _answer(out, result)
    if result.ineq is not None or result.eq is not None:
        _constraints(out, result)
    figures.convergence(out, result)
    if result.runs is not None:
        figures.runs_of(out, result)
    figures.maps_of(out, result)
    if "F" not in result:
        figures.population(out, result)
    _solved(out, result)
    out.section("Cost")
    out.add(pair_table(_cost_rows(result)))
    out.section("Settings")
    again = [("to repeat it", result.command)] if result.get("command") else []
    out.add(pair_table(again + setting_rows(settings)))
    file_section(out, _result_files(result))
    return out.html()


def _message(result: Result) -> str:
    if result.feasible:
        kind = {data.FOUND: "", data.ENDED: " ended", data.FAILED: " failed"}[data.verdict(result)]
        return f'<div class="message{kind}">{escape(result.message)}</div>'
    return (
        f'<div class="message failed"><b>No feasible point</b>{escape(result.message)} Shown below is the point '
        "with the smallest constraint violation.</div>"
    )


def _result_facts(result: Result) -> list[tuple[str, str]]:
    problem, known = result.problem, data.known_value(result)
    out = []
    if "F" in result:
        out.append(("points on the front", f"{len(result.F):,}"))
        if result.get("hypervolume") is not None and len(result.F):
            error = result.get("hypervolume_error")
            margin = "" if error is None else f" ± {number(data.NORMAL * error, 2)}"
            out.append(("hypervolume", number(result.hypervolume, 6) + margin))
            if known is not None:
                out.append(("of the true front's", f"{result.hypervolume / known:.2%}"))
    else:
        found = "value there" if not result.feasible else "minimum found" if result.sign > 0 else "maximum found"
        if "worst_case" in result:
            out.append((data.CHECKED, brief(result.worst_case)))
            found = "worst value met"  # as `data.MET` says, on one line
        out.append((found, brief(result.fun)))
        if known is not None:
            out.append(("best known", brief(known)))
    if problem.constrained:
        out.append(("feasible", "yes" if result.feasible else "no"))
        out += [("total violation", number(result.violation, 6))] * (not result.feasible)
    if result.runs is not None:
        judged = result.settings.get("target") is not None or result.runs.success.any()
        what = "runs that converged" if result.settings.get("target") is None else "successful runs"
        out += [(what, f"{int(result.runs.success.sum()):,} of {len(result.runs):,}")] * bool(judged)
    out += [("evaluations", f"{result.nfev:,}"), ("generations", f"{result.nit:,}")]
    out.append(("time of the run", f"{result.timings['run']:.3g} s"))
    return out


def _task(result: Result) -> str:
    """What was to be done, in a sentence."""
    problem = result.problem
    parts = ((result.ineq, "inequality constraint"), (result.eq, "equality constraint"))
    limits = " and ".join(count(len(part), word) for part, word in parts if part is not None)
    verb = "Minimise" if result.sign > 0 else "Maximise"
    if "worst_case" in result:
        task = (
            f"{verb} over {count(problem.dim, 'variable')} x the worst case over {count(len(result.y), 'variable')} y"
        )
    else:
        task = f"{verb} {count(np.size(result.fun), 'objective')} over {count(problem.dim, 'variable')}"
    return task + (f", subject to {limits}." if limits else ".")


def _solved(out: Page, result: Result) -> None:
    problem, m = result.problem, np.size(result.fun)
    out.section("What was solved")
    rows = [("name", problem.name)] + [("title", problem.title)] * bool(problem.title)
    rows += [("task", _task(result))] + [("source", problem.source)] * bool(problem.source)
    if m > 1:
        rows.append(("objectives", ", ".join(problem.with_unit(n) for n in problem.objective_names(m))))
    if problem.optimum is not None:
        rows.append(("best known value", f"{problem.optimum:.12g}"))
    if problem.hypervolume is not None:
        rows.append(("hypervolume of the true front", f"{problem.hypervolume:.8g}"))
    if problem.reference_point is not None:
        rows.append(("reference point", ", ".join(f"{v:g}" for v in problem.reference_point)))
    out.add(pair_table(rows))


def _answer(out: Page, result: Result) -> None:
    problem, bounds, knee = result.problem, result.problem.bounds, result.knee
    out.section("The knee of the front" if knee is not None else "Answer" if result.feasible else "Best point")
    units = problem.units or {}
    rows: list[list[str]] = []

    def line(name: str, value: Any, low: str = "", high: str = "", place: str = "", digits: int = 10) -> None:
        text = value if isinstance(value, str) else number(value, digits)
        rows.append([name, units.get(name, ""), text, low, high, place])

    if "worst_case" in result:
        line("worst case, checked by an independent search", result.worst_case, digits=12)
    for name, value in zip(_value_names(result), np.atleast_1d(result.fun), strict=True):
        line(name, value, digits=12)
    if problem.optimum is not None and not np.ndim(result.fun):
        line("best known", problem.optimum, digits=12)
    for i, name in list(enumerate(problem.variable_names()))[:LISTED]:
        share = 100 * (result.x[i] - bounds.lower[i]) / (bounds.upper[i] - bounds.lower[i])
        mark = f'<i style="left: calc({share:.2f}% - 0.17rem)"></i>'
        bar = Html(f'<span class="bar" title="{share:.1f} % of the way">{mark}</span>')
        own = result.x[i] if problem.space is None else problem.show(i, result.x[i])
        choices = problem.choices(i)
        low, high = ("", "") if choices else problem.limits(i)
        line(name, own, low, high, f"one of {', '.join(choices)}" if choices else bar)
    for name, value in result.get("derived", {}).items():
        at = np.ravel(value)
        if len(at):  # one number, or of several objectives one for each point of the front
            line(name, at[knee or 0])
    for i, value in list(enumerate(result.get("y", ())))[:LISTED]:
        line(f"worst y{i + 1}", value)
    out.add(plain_table(["name", "unit", "value", "lower", "upper", WITHIN], rows, (2, 3, 4)))
    if problem.dim > LISTED:
        out.add(f'<p class="note">The first {LISTED} of {problem.dim:,} variables; result.json has them all.</p>')


def _value_names(result: Result) -> list[str]:
    """What the value of the answer is called, or the values of its objectives."""
    if np.ndim(result.fun):
        return result.problem.objective_names(len(result.fun))
    if "worst_case" in result:
        return [data.MET]
    return ["value, not feasible" if not result.feasible else "minimum" if result.sign > 0 else "maximum"]


def _constraints(out: Page, result: Result) -> None:
    out.section("Constraints")
    rows = tables.constraint_rows(result)
    state = [s for *_, s in rows]
    told = [f"{state.count(word)} {word}" for word in ("violated", "active", "slack") if word in state]
    where = "At the knee: " if result.knee is not None else ""
    note = f" ({tables.ACTIVE_NOTE})" if result.ineq is not None else ""
    out.add(f"<p>{where}{', '.join(told)}{note}.</p>")
    cells = [
        [name, number(value, 6), needed, Html(f'<span class="{state}">{state}</span>')]
        for name, value, needed, state in sorted(rows[:LISTED], key=lambda row: row[3] != "violated")
    ]
    out.add(plain_table(["constraint", "value", "needed", "state"], cells, (1,)))
    if len(rows) > LISTED:
        out.add(f'<p class="note">The first {LISTED} of {len(rows):,}; result.json has them all.</p>')


def _cost_rows(result: Result) -> list[tuple[str, str]]:
    rows = [("generations", f"{result.nit:,}"), ("evaluations", f"{result.nfev:,}"), ("failed", f"{result.n_failed:,}")]
    times = result.timings
    if times.get("run"):
        rows.append(("evaluations per second", f"{result.nfev / times['run']:,.0f}"))
    return rows + [(TIMES.get(name, name), f"{value:.4g} s") for name, value in times.items()]


def _result_files(result: Result) -> dict[str, str]:
    files = {"result.json": "answer, settings and timings", "population.csv": "the last population"}
    if result.history is not None:
        files["history.csv"] = "values by generation" + (" of the best run" if result.runs is not None else "")
    if "F" in result:
        files["front.csv"] = "the front with its recipes"
    if result.runs is not None:
        files["runs.csv"] = "every run"
        if result.runs.history is not None:
            files["histories.npz"] = "values by generation of every run, for NumPy"
        if result.runs.fronts is not None:
            files["fronts.csv"] = "every run's front"
    if result.get("snapshots"):
        files["snapshots.npz"] = "the stored populations, for NumPy"
    return files
