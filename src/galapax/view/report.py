"""A saved run as one HTML page that needs nothing else: no network, no other file.

The page holds its numbers as JSON, thinned so that it stays small, and a script of our own (report.js, 30 kB) draws
them as SVG: curves with bands, and points in the plane or in space, with what the pointer can ask of them. SVG follows
the reader's light or dark colours, is sharp in print, and reads at any width; a plotting library's script would make
every page larger by megabytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from galapax.core.evaluation import Population
from galapax.measures.statistics import describe, ecdf, quantile_curves
from galapax.results.result import History, Result, all_runs
from galapax.results.study import SIGNIFICANT, Study, best_known, curves, has_curves, reference_value, scores
from galapax.view import films, maps, plots, tables

STEPS = 1200  # points of a curve at most
NUMBERS = 150_000  # in a table of points at most; what is left out is in the CSV files
POINTS = 5000  # of a front at most
COLUMNS = 100  # of a table of points at most
LISTED = 300  # variables or constraints in a table at most
WITHIN = "within its bounds"  # a column that a phone has no room for
IN_TIP = 18  # lines that the pointer shows of a point


class Page:
    """The parts of a page in their order, and the numbers that its figures and tables draw."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []
        self.sections: list[tuple[str, str]] = []
        self.charts: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}

    def add(self, *parts: str) -> None:
        self.parts += parts

    def section(self, title: str) -> None:
        name = f"s{len(self.sections) + 1}"
        self.sections.append((name, title))
        self.add(f'<h2 id="{name}">{escape(title)}</h2>')

    def chart(self, spec: dict[str, Any], note: str = "", title: str = "") -> None:
        name = f"c{len(self.charts)}"
        self.charts[name] = spec
        head = f"<h3>{escape(title)}</h3>" if title else ""
        under = f"<figcaption>{escape(note)}</figcaption>" if note else ""
        self.add(f'<figure data-chart="{name}">{head}<div class="chart"></div>{under}</figure>')

    def table(self, name: str, spec: dict[str, Any]) -> None:
        self.tables[name] = spec
        self.add(f'<div data-table="{escape(name)}"></div>')

    def html(self) -> str:
        style, script = (
            Path(__file__).with_name(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")
        )
        # nothing but this very script may run here, and nothing may be fetched, whatever a name contains
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        numbers = json.dumps(
            {"charts": self.charts, "tables": self.tables}, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).replace("<", "\\u003c")
        links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in self.sections)
        head, *rest = self.parts
        return "\n".join(
            [
                '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{escape(self.title)}</title>\n<style>{style}</style></head>\n<body>",
                f'<header>{head}<nav aria-label="Sections">{links}</nav></header>\n<main>',
                "<noscript><p class='message failed'>The figures are drawn by a script, which is switched off here. "
                "The pictures and CSV files beside this page show the same numbers.</p></noscript>",
                *rest,
                f'</main>\n<script type="application/json" id="data">{numbers}</script>',
                f"<script>{script}</script>\n</body></html>\n",
            ]
        )


# --- one result -------------------------------------------------------------------------------------------------------


def page(result: Result) -> str:
    """The report: the answer, constraints, front, convergence, maps, runs, cost, and what is needed to repeat it."""
    problem, settings = result.problem, result.settings
    named = f"{problem.name}: {problem.title}" if problem.title else problem.name
    named = "A function without a name" if named == "<lambda>" else named
    out = Page(f"{named} · {settings['algorithm']}")
    runs = f", {len(result.runs):,} runs" if result.runs is not None else ""
    out.add(
        f'<h1>{escape(named)}</h1><p>{escape(_task(result))}</p><p class="sub">{escape(settings["algorithm"])}, seed '
        f"{result.seed}{runs}, {escape(settings['dtype'])} on {escape(str(settings['device']))}</p>"
    )
    out.add(_message(result), _facts(_result_facts(result)))
    if "F" in result and len(result.F):
        _front(out, result)
    _answer(out, result)
    if result.ineq is not None or result.eq is not None:
        _constraints(out, result)
    _convergence(out, result)
    if result.runs is not None:
        _runs(out, result)
    _maps(out, result)
    if "F" not in result:
        _population(out, result)
    _solved(out, result)
    out.section("Cost")
    out.add(_pairs(_cost_rows(result)))
    out.section("Settings")
    out.add(_pairs(_setting_rows(settings)))
    _files(out, _result_files(result))
    return out.html()


def _message(result: Result) -> str:
    if result.feasible:
        return f'<div class="message{"" if result.success else " failed"}">{escape(result.message)}</div>'
    return (
        f'<div class="message failed"><b>No feasible point</b>{escape(result.message)} What follows is the point that '
        "violates the constraints least.</div>"
    )


def _result_facts(result: Result) -> list[tuple[str, str]]:
    problem, maximize = result.problem, result.settings["maximize"]
    facts = []
    if "F" in result:
        facts.append(("points on the front", f"{len(result.F):,}"))
        if result.get("hypervolume") is not None and len(result.F):
            facts.append(("hypervolume", _number(result.hypervolume, 6)))
            if problem.hypervolume is not None and not maximize:
                facts.append(("of the true front's", f"{result.hypervolume / problem.hypervolume:.2%}"))
    else:
        found = "value there" if not result.feasible else "maximum found" if maximize else "minimum found"
        facts.append((found, _brief(result.fun)))
        if "worst_case" in result:
            facts.append(("worst case, checked", _brief(result.worst_case)))
        if problem.optimum is not None and not maximize:
            facts.append(("best known", _brief(problem.optimum)))
    if problem.constrained:
        facts.append(("feasible", "yes" if result.feasible else "no"))
        facts += [("violation in all", _number(result.violation, 6))] * (not result.feasible)
    if result.runs is not None:
        facts.append(("successful runs", f"{int(result.runs.success.sum()):,} of {len(result.runs):,}"))
    facts += [("evaluations", f"{result.nfev:,}"), ("generations", f"{result.nit:,}")]
    facts.append(("time of the run", f"{result.timings['run']:.3g} s"))
    return facts


def _task(result: Result) -> str:
    """What was to be done, in a sentence."""
    problem = result.problem
    parts = ((result.ineq, "inequality constraint"), (result.eq, "equality constraint"))
    limits = " and ".join(_count(len(part), word) for part, word in parts if part is not None)
    verb = "Maximise" if result.settings["maximize"] else "Minimise"
    if "worst_case" in result:
        task = (
            f"{verb} over {_count(problem.dim, 'variable')} x the worst case over {_count(len(result.y), 'variable')} y"
        )
    else:
        task = f"{verb} {_count(np.size(result.fun), 'objective')} over {_count(problem.dim, 'variable')}"
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
    out.add(_pairs(rows))


def _answer(out: Page, result: Result) -> None:
    problem, bounds = result.problem, result.problem.bounds
    empty = "F" in result and not len(result.F)
    out.section(
        "The knee of the front" if "F" in result and not empty else "Answer" if result.feasible else "Best point"
    )
    units = problem.units or {}
    rows: list[list[str]] = []

    def line(name: str, value: float, low: str = "", high: str = "", place: str = "", digits: int = 10) -> None:
        rows.append([name, units.get(name, ""), _number(value, digits), low, high, place])

    if np.ndim(result.fun):
        names = problem.objective_names(len(result.fun))
    else:
        names = [
            "value, not feasible" if not result.feasible else "maximum" if result.settings["maximize"] else "minimum"
        ]
    for name, value in zip(names, np.atleast_1d(result.fun), strict=True):
        line(name, value, digits=12)
    if problem.optimum is not None and not np.ndim(result.fun):
        line("best known", problem.optimum, digits=12)
    if "worst_case" in result:
        line("worst case, checked by a search of its own", result.worst_case, digits=12)
    for i, name in list(enumerate(problem.variable_names()))[:LISTED]:
        share = 100 * (result.x[i] - bounds.lower[i]) / (bounds.upper[i] - bounds.lower[i])
        mark = f'<i style="left: calc({share:.2f}% - 0.17rem)"></i>'
        bar = Html(f'<span class="bar" title="{share:.1f} % of the way">{mark}</span>')
        line(name, result.x[i], f"{bounds.lower[i]:g}", f"{bounds.upper[i]:g}", bar)
    for name, value in result.get("derived", {}).items():
        at = np.ravel(value)
        row = result.choose("knee") if "F" in result and not empty else 0
        if len(at) > row:
            line(name, at[row])
    for i, value in list(enumerate(result.get("y", ())))[:LISTED]:
        line(f"worst y{i + 1}", value)
    out.add(_grid(["name", "unit", "value", "from", "to", WITHIN], rows, (2, 3, 4)))
    if problem.dim > LISTED:
        out.add(f'<p class="note">The first {LISTED} of {problem.dim:,} variables; result.json has them all.</p>')


def _constraints(out: Page, result: Result) -> None:
    out.section("Constraints")
    rows = tables.constraint_rows(result)
    state = [s for *_, s in rows]
    told = [f"{state.count(word)} {word}" for word in ("violated", "active", "slack") if word in state]
    out.add(f"<p>{'At the knee: ' if 'F' in result and len(result.F) else ''}{', '.join(told)}.</p>")
    cells = [
        [name, _number(value, 6), needed, Html(f'<span class="{state}">{state}</span>')]
        for name, value, needed, state in sorted(rows[:LISTED], key=lambda row: row[3] != "violated")
    ]
    out.add(_grid(["constraint", "value", "needed", "state"], cells, (1,)))
    if len(rows) > LISTED:
        out.add(f'<p class="note">The first {LISTED} of {len(rows):,}; result.json has them all.</p>')


def _front(out: Page, result: Result) -> None:
    problem = result.problem
    out.section("Front")
    out.add(f"<p>{escape(tables.front_summary(result))}</p>")
    F, X = np.asarray(result.F, np.float64), np.asarray(result.X, np.float64)
    m = F.shape[1]
    derived = {name: np.asarray(values, np.float64) for name, values in result.get("derived", {}).items()}
    names = [problem.with_unit(n) for n in [*problem.objective_names(m), *problem.variable_names(), *derived]]
    table = [*F.T, *X.T, *derived.values()]
    points = tables.front_points(result)
    wide = min(len(names), COLUMNS)
    most = min(POINTS, max(50, NUMBERS // wide))
    kept = np.union1d(maps.thinned(len(F), most), list(points.values())).astype(int)
    at = {int(row): i for i, row in enumerate(kept)}
    texts: dict[int, str] = {}
    for text, row in points.items():
        texts[at[row]] = f"{texts[at[row]]}, {text}" if at[row] in texts else text
    marks = [
        {"row": at[row], "kind": "knee" if text == "knee" else "end", "short": _short_mark(text)}
        for text, row in points.items()
    ]
    spec: dict[str, Any] = {
        "kind": "scatter", "file": "front", "table": "front", "tall": 0.58, "one": "point",
        "what": f"found, {len(F):,} points",
        "use": {"x": 0, "y": 1, "z": 2 if m == 3 else -1, "colour": 2 if m > 2 else -1},
        "choices": list(range(wide)), "tip": list(range(min(wide, IN_TIP))), "marks": marks,
        "more": f"… {len(names) - IN_TIP} more" if len(names) > IN_TIP else "",
        "alt": f"The front: {names[0]} across, {names[1]} up, {len(kept)} points; the table below has the numbers.",
    }  # fmt: skip
    truth = plots.true_front(problem, 400 if m == 2 else 600)
    if truth is not None:
        spec["truth"] = {"columns": list(range(m)), "data": [_numbers(column, 5) for column in truth.T]}
    hint = "Point at a dot for its recipe, click it to find it in the table below."
    out.chart(spec, hint + (" Drag to turn the box." if m == 3 else ""))
    heads, values, recipe = tables.front_rows(result)
    out.add("<h3>Marked points</h3>")
    out.add(_grid(["", "unit", *heads], values + recipe, range(2, 2 + len(heads))))
    out.add("<h3>All recipes</h3>")
    out.table(
        "front",
        {
            "names": names[:wide], "data": [_numbers(column[kept], 7) for column in table[:wide]], "labels": texts,
            "number": (kept + 1).tolist(), "total": len(F), "what": "points", "file": "front",
            "title": "The solutions of the front",
        },
    )  # fmt: skip
    left = [f"{len(F) - len(kept):,} points"] * (len(kept) < len(F))
    left += [f"{len(names) - wide:,} columns"] * (wide < len(names))
    out.add(
        '<p class="note">Click a heading to sort; filter by &lt;&nbsp;3, &gt;=&nbsp;2 or 1..2 under it.'
        + (f" Left out here, and in front.csv: {' and '.join(left)}." if left else "")
        + "</p>"
    )


def _short_mark(text: str) -> str:
    return "knee" if text == "knee" else "chosen" if text.startswith("chosen") else "best of each"


def _convergence(out: Page, result: Result) -> None:
    history = result.history if result.runs is None else result.runs.history
    out.section("Convergence")
    if history is None or not len(history):
        out.add("<p>No history was kept; history=True keeps the values of every generation.</p>")
        return
    history = _thinned(history, result.runs is not None)
    several: list[int | None] = [None]
    if "F" in result and history.hypervolume is None:
        several = list(range(np.size(result.fun)))
    for objective in several:
        best, (values, name) = plots.best_values(result, history, objective)
        if not np.isfinite(best).any():
            out.add("<p>No run had a feasible point whose value could be drawn.</p>")
            break
        series = _banded(values, "best" if len(best) == 1 else "median")
        if len(best) == 1 and objective is None and history.violation is None and "F" not in result:
            for part, kind in ((history.mean, "mean of the population"), (history.worst, "worst of the population")):
                drawn, _ = plots.distance(result, np.where(np.isfinite(part), part, np.nan)[None])
                series.append(
                    {"name": kind, "c": len(series), "x": 0, "y": _numbers(drawn[0]), "thin": True, "dash": len(series)}
                )
        spec = _curves(
            history, series, name, _log(values), f"convergence{'' if objective is None else f'-{objective + 1}'}"
        )
        known = np.isfinite(best).any(axis=0)
        if history.violation is not None and not known[0]:
            spec["marks"] = [{"x": int(history.generation[np.argmax(known)]), "text": "first feasible"}]
        out.chart(spec, _bands_note(best))
    if history.violation is not None and not result.feasible:
        out.add("<h3>Violation of the best point</h3>")
        violation = np.atleast_2d(np.asarray(history.violation, np.float64))
        series = _banded(violation, "least violation" if len(violation) == 1 else "median")
        out.chart(_curves(history, series, "violation", _log(violation), "violation"), _bands_note(violation))
    if history.feasible_share is not None:
        out.add("<h3>Feasible share of the population</h3>")
        share = np.atleast_2d(np.asarray(history.feasible_share, np.float64))
        spec = _curves(
            history, _banded(share, "share" if len(share) == 1 else "median"), "feasible share", False, "feasible-share"
        )
        spec["y"] |= {"share": True, "percent": True}
        out.chart(spec, _bands_note(share))


def _bands_note(values: np.ndarray) -> str:
    return f"Median, middle half and whole range over {len(values):,} runs." if len(values) > 1 else ""


def _thinned(history: History, several: bool) -> History:
    """Some of the generations: half of them evenly spaced, half closer at first, where most happens."""
    rows = _steps(len(history), STEPS)
    axis = 1 if several else 0
    parts: dict[str, Any] = {
        name: None if (part := getattr(history, name)) is None else np.take(part, rows, axis)
        for name in ("best", "mean", "worst", "violation", "feasible_share", "hypervolume")
    }
    return replace(history, generation=history.generation[rows], nfev=history.nfev[rows], x=None, **parts)


def _steps(count: int, most: int) -> np.ndarray:
    if count <= most:
        return np.arange(count)
    early = np.geomspace(1, count, most // 2).astype(int) - 1
    return np.union1d(maps.thinned(count, most // 2), early)


def _banded(values: np.ndarray, name: str) -> list[dict[str, Any]]:
    """One curve of values by run and generation (R, G): that of the only run, or the median with its bands."""
    if len(values) == 1:
        return [{"name": name, "c": 0, "x": 0, "y": _numbers(values[0])}]
    low, lower, middle, upper, high = (_numbers(row) for row in plots.bands(values))
    bands = [{"name": "middle half", "low": lower, "high": upper, "opacity": 0.35}]
    bands.append({"name": "all runs", "low": low, "high": high, "opacity": 0.14})
    return [{"name": name, "c": 0, "x": 0, "y": middle, "bands": bands}]


def _curves(history: History, series: list[dict[str, Any]], name: str, log: bool, file: str) -> dict[str, Any]:
    return {
        "kind": "lines", "file": file, "series": series, "xs": [history.generation.tolist()],
        "x": {"name": "generation", "log": False}, "y": {"name": name, "log": log},
        "also": {"name": "evaluations", "values": history.nfev.tolist()},
        "alt": f"{name} by generation, from 1 to {int(history.generation[-1])}",
    }  # fmt: skip


def _runs(out: Page, result: Result) -> None:
    runs = result.runs
    assert runs is not None
    out.section("Runs")
    out.add(_pairs(tables.run_rows(result)))
    volume = runs.fronts is not None
    values = runs.hypervolume if volume else np.where(runs.feasible, np.asarray(runs.fun, np.float64), np.nan)
    if values is not None and np.isfinite(values).any():
        name = "hypervolume" if volume else "final value"
        if not volume:
            drawn, name = plots.distance(result, values[None])
            values, name = drawn[0], name.replace("best value", "final value")
        upward = volume or result.settings["maximize"]  # the share of runs that are at least as good
        x, share = ecdf(-values if upward else values)
        x = -x[::-1] if upward else x
        share = share[::-1] if upward else share
        rows = maps.thinned(len(x), STEPS)
        step = "before" if upward else "all"
        spec = {
            "kind": "lines", "file": "final-values", "xs": [_numbers(x[rows])],
            "series": [{"name": "runs", "c": 0, "x": 0, "y": _numbers(share[rows]), "step": step}],
            "x": {"name": name, "log": _log(values)},
            "y": {"name": "share of runs at least as good", "log": False, "share": True, "percent": True},
            "alt": f"Share of the {len(runs)} runs whose {name} is at least as good",
        }  # fmt: skip
        out.chart(spec, title="Distribution of the final values")
    rows = maps.thinned(len(runs), POINTS)
    fun = np.asarray(runs.fun, np.float64).reshape(len(runs), -1)
    columns: dict[str, np.ndarray] = {"run": runs.number}
    columns |= dict(zip(plots.objective_names(result), fun.T, strict=True))
    if runs.hypervolume is not None:
        columns["hypervolume"] = runs.hypervolume
    if result.problem.constrained:
        columns["violation"] = runs.violation
    if result.get("worst_cases") is not None:
        columns["worst case"] = np.asarray(result.worst_cases)
    columns |= {"generations": runs.nit, "evaluations": runs.nfev, "failed": runs.n_failed}
    out.add("<h3>Every run</h3>")
    good = ["yes" if done else "no" for done in runs.success[rows]]
    out.table(
        "runs",
        {
            "names": [*columns, "success"], "data": [*(_numbers(c[rows], 9) for c in columns.values()), good],
            "labels": {}, "total": len(runs), "digits": 9, "what": "runs", "file": "runs", "title": "The runs",
        },
    )  # fmt: skip


def _maps(out: Page, result: Result) -> None:
    kept = maps.snapshots_of(result) if result.get("snapshots") else {}
    told = "Populations that were kept"
    if not kept:
        fitness = np.asarray(result.population_fitness, np.float64).reshape(len(result.population), -1)
        kept = {result.nit: Population(result.population, fitness, None)}  # type: ignore[arg-type]
        told = "The last population"
    grey = bool(result.get("snapshots")) or not result.problem.constrained  # else nobody knows who is feasible
    kept = films.chosen(kept)
    rows, genome = (films.MapScale(result, kept, form, "box", 2**15) for form in ("variables", "genome"))
    out.section("Maps")
    names = result.problem.variable_names()
    short = ", ".join(names) if len(names) <= 12 else f"{names[0]} to {names[-1]}"
    lines = [
        f"{told}{f' of run {_best_run(result)}, the best' if result.runs is not None else ''}. One row an individual, "
        f"the best on top, one column a variable ({escape(short)}): lower bound "
        '<span class="key colours"></span> upper bound.',
        "Then the genome-convergence map: four variables in the colour of a pixel, one pixel an individual.",
    ]
    if grey:
        infeasible = ', infeasible <span class="key orange"></span>' if genome.infeasible else ""
        lines.append(
            f'Last the fitness: best <span class="key grey"></span> worst {escape(plots.objective_names(result)[0])}'
            f"{infeasible}{', on a logarithmic scale' if genome.log else ''}."
        )
    if not result.get("snapshots"):
        lines.append("Earlier populations are here when snapshots=[1, 10, 100], say, kept them.")
    out.add(f"<p>{' '.join(lines)}</p>")
    columns = []
    for generation, population in kept.items():
        when = f"generation {generation:,}"
        pixels = rows.genes(population)
        pictures = [
            _picture(pixels[:, maps.thinned(pixels.shape[1], 400)], f"Variables of the individuals, {when}", "rows"),
            _picture(genome.genes(population), f"Genome-convergence map, {when}", "tile"),
        ]
        if grey:
            pictures.append(_picture(genome.fitness(population), f"Fitness-convergence map, {when}", "tile"))
        if len(kept) == 1:  # side by side
            columns += [f"<div>{picture}</div>" for picture in pictures]
        else:
            columns.append(f"<div><h3>{when}</h3>{''.join(pictures)}</div>")
    kind = "strip one" if len(kept) == 1 else "strip"
    out.add(
        f'<figure><div class="{kind}">{"".join(columns)}</div>'
        f"<figcaption>{escape(rows.caption())} {escape(genome.caption())}</figcaption></figure>"
    )


def _best_run(result: Result) -> int:
    return int(all_runs(result).number[maps.best_row(result)])


def _population(out: Page, result: Result) -> None:
    """The last population over two variables, as many as are asked for."""
    x, fitness = np.asarray(result.population, np.float64), np.asarray(result.population_fitness, np.float64)
    names = [*plots.labels(result.problem), *plots.objective_names(result)]
    if result.problem.dim < 2:
        return
    d = min(result.problem.dim, COLUMNS - 1)
    kept = maps.thinned(len(x), min(2000, NUMBERS // (2 * d)))
    best = np.argmax if result.settings["maximize"] else np.argmin
    if np.isfinite(fitness).any() and not result.problem.constrained:
        bad = -np.inf if result.settings["maximize"] else np.inf
        kept = np.union1d(kept, [best(np.where(np.isfinite(fitness), fitness, bad))])
    columns = [*x[kept].T[:d], fitness[kept]]
    shown = [*names[:d], names[-1]]
    out.section("Last population")
    out.tables["population"] = {
        "names": shown, "data": [_numbers(column, 6) for column in columns], "labels": {}, "total": len(x),
        "number": (kept + 1).tolist(), "file": "population", "what": "individuals", "title": "The last population",
    }  # fmt: skip
    spec = {
        "kind": "scatter", "file": "population", "table": "population", "tall": 0.5, "one": "individual",
        "what": f"{len(kept):,} of {len(x):,} individuals" if len(kept) < len(x) else f"{len(x):,} individuals",
        "use": {"x": 0, "y": 1, "z": -1, "colour": d}, "choices": list(range(d + 1)), "marks": [],
        "tip": [d, *range(min(d, IN_TIP - 1))], "more": f"… {d + 1 - IN_TIP} more" * (d + 1 > IN_TIP),
        "alt": "The last population over two variables",
    }  # fmt: skip
    out.chart(spec, "Choose the variables above; the colour is the value of the individual.")


# --- a study ----------------------------------------------------------------------------------------------------------


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
    out.add(_facts([*facts, ("time of the runs", f"{seconds:.3g} s")]))
    for grid in tables.grids(study) if compared else ():
        out.section(grid.title)
        out.add(tables.html(grid))
    if not compared:
        _study_cells(out, study)
    groups = _groups(study)
    _study_convergence(out, study, groups)
    _study_times(out, study)
    _study_ends(out, study, groups)
    if compared:
        _study_tests(out, study)
    out.section("Settings")
    shared = {k: first.settings[k] for k in ("runs", "seed", "dtype", "device", "maximize", "versions")}
    if not compared:
        shared = {k: first.settings[k] for k in ("problem", "algorithm", "generations", "stall")} | shared
    out.add(_pairs(_setting_rows(shared)))
    files = {"summary.csv": "the table above, all columns", "runs.csv": "every run",
             "curves.csv": "values by generation", "summary.md": "the tables as Markdown",
             "summary.tex": "the tables as LaTeX", "data.npz": "all arrays, for NumPy",
             "study.json": "all settings"}  # fmt: skip
    _files(out, files)
    return out.html()


def _study_cells(out: Page, study: Study) -> None:
    """One row for each setting of a sweep."""
    out.section("Results by setting")
    summary = study.summary()
    names = list(dict.fromkeys(name for row in summary for name in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in summary]
        number = all(value is None or isinstance(value, int | float) for value in values)
        columns.append(
            _numbers([np.nan if v is None else v for v in values], 9) if number else [str(v) for v in values]
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
        '<p class="note">Over the runs of each setting. success: the share of the runs that reached the target; ert: '
        "evaluations per success; low and high: their 95 % intervals. Click a heading to sort, filter under it.</p>"
        if any(target is not None for target in study.targets)
        else '<p class="note">Over the runs of each setting. Click a heading to sort, filter under it.</p>'
    )


def _groups(study: Study) -> dict[str, dict[str, Result]]:
    """Results by label that share a figure: the algorithms on each problem, or all settings of a sweep."""
    if study.kind == "comparison":
        found = {name: study.along("algorithm", problem=name) for name in study.axes["problem"]}
        return {name: own for name, own in found.items() if own}
    return {"": {plots.cell_name(labels): result for labels, result in study}}


def _label(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _style(study: Study, label: str, place: int) -> dict[str, float]:
    """The colour and the stroke of a curve; in a sweep the first axis has the colours and the others the strokes."""
    if study.kind == "comparison":
        place = [str(a) for a in study.axes["algorithm"]].index(label)
        return {"c": place % 8, "dash": place // 8 % 4}
    first, *others = study.axes.values()
    strokes = max(1, math.prod(len(v) for v in others))
    row = place // strokes % len(first)
    c = row if len(first) <= 8 else 0.001 + 0.998 * row / (len(first) - 1)  # too many for colours of their own: a scale
    return {"c": c, "dash": place % strokes % 4}


def _study_convergence(out: Page, study: Study, groups: dict[str, dict[str, Result]]) -> None:
    out.section("Convergence")
    many = len(study) > 12
    if study.kind == "comparison":
        out.add("<p>Median and middle half of the runs by evaluations.</p>")
    else:
        out.add(
            "<p>Median of the runs by generation"
            + ("" if many else ", with the middle half")
            + ". Click a name to hide it.</p>"
        )
    out.add('<div class="small-multiples">' if len(groups) > 1 else "<div>")
    for number, (title, found) in enumerate(groups.items(), 1):
        reference = reference_value(list(found.values()))
        known = best_known(next(iter(found.values()))) is not None
        floor = np.finfo(np.float64).eps * max(1.0, abs(reference))
        series: list[dict[str, Any]] = []
        xs: list[list[Any]] = []
        for place, (label, result) in enumerate(found.items()):
            history = all_runs(result).history
            if history is None or not has_curves(result):
                continue
            steps = _steps(len(history), max(60, min(400, 12_000 // len(study))))
            best = curves(result)[:, steps]
            gap = np.where(np.isfinite(best), np.maximum(best - min(reference, np.finfo(float).max), floor), np.inf)
            lower, middle, upper = (_numbers(c, 5) for c in quantile_curves(gap, (0.25, 0.5, 0.75)))
            x = (history.nfev if study.kind == "comparison" else history.generation)[steps].tolist()
            if x not in xs:
                xs.append(x)
            bands = (
                []
                if many and len(found) > 6
                else [{"name": "middle half", "low": lower, "high": upper, "opacity": 0.18}]
            )
            series.append({"name": label, "x": xs.index(x), "y": middle, "bands": bands, **_style(study, label, place)})
        if not series:
            why = "no history was kept" if study.value == "fun" else "hypervolume by generation is for two objectives"
            out.add(f"<p>{escape(title)}: {why}.</p>")
            continue
        across = "evaluations" if study.kind == "comparison" else "generation"
        name = _distance_name(study, known)
        spec = {
            "kind": "lines", "file": f"convergence-{number}", "xs": xs, "series": series,
            "x": {"name": across, "log": False},
            "y": {"name": name, "log": _log(v for s in series for v in s["y"] if v is not None)},
            "alt": f"{title + ': ' if title else ''}{name} by {across}, {len(series)} curves",
        }  # fmt: skip
        out.chart(spec, title=title)
    out.add("</div>")


def _distance_name(study: Study, known: bool) -> str:
    if study.value == "hypervolume":
        return f"hypervolume missing to the {'true front' if known else 'best run'}'s"
    return f"distance to the best {'known value' if known else 'value found'}"


def _study_times(out: Page, study: Study) -> None:
    found = plots.target_shares(study)
    if not found:
        return
    out.section("Share of targets reached")
    count = len(study.axes["problem"]) if study.kind == "comparison" else 1
    series, xs = [], []
    for place, (label, (nfev, share)) in enumerate(found.items()):
        steps = _steps(len(nfev), max(60, min(400, 12_000 // len(found))))
        x = nfev[steps].tolist()
        if x not in xs:
            xs.append(x)
        series.append(
            {
                "name": label,
                "x": xs.index(x),
                "y": _numbers(share[steps], 4),
                "step": True,
                **_style(study, label, place),
            }
        )
    spec = {
        "kind": "lines", "file": "running-times", "xs": xs, "series": series, "x": {"name": "evaluations", "log": True},
        "y": {"name": "share of targets reached", "log": False, "share": True, "percent": True},
        "alt": "Share of targets reached by evaluations: the empirical distribution of running times",
    }  # fmt: skip
    note = (
        f"The empirical distribution of running times, over all runs{'' if count == 1 else f' and {count} problems'}: "
        "51 targets a problem between its first value and its best known one, evenly on a logarithmic scale. Further "
        "left and up is better."
    )
    out.chart(spec, note)


def _study_ends(out: Page, study: Study, groups: dict[str, dict[str, Result]]) -> None:
    out.section("Distribution of final values")
    out.add("<p>The share of runs that ended at least as close.</p>")
    out.add('<div class="small-multiples">' if len(groups) > 1 else "<div>")
    for number, (title, found) in enumerate(groups.items(), 1):
        reference = reference_value(list(found.values()))
        known = best_known(next(iter(found.values()))) is not None
        floor = np.finfo(np.float64).eps * max(1.0, abs(reference)) if math.isfinite(reference) else 0.0
        series, xs = [], []
        for place, (label, result) in enumerate(found.items()):
            ends = scores(result)
            x, share = ecdf(np.maximum(ends - reference, floor) if np.isfinite(ends).any() else ends)
            rows = maps.thinned(len(x), max(40, 6000 // len(study))) if len(x) else np.zeros(0, int)
            xs.append(_numbers(x[rows], 5))
            series.append(
                {
                    "name": label,
                    "x": len(xs) - 1,
                    "y": _numbers(share[rows], 4),
                    "step": "all",
                    **_style(study, label, place),
                }
            )
        if not any(xs):
            out.add(f"<p>{escape(title)}: no run found a feasible point.</p>")
            continue
        name = _distance_name(study, known)
        spec = {
            "kind": "lines", "file": f"final-values-{number}", "xs": xs, "series": series,
            "x": {"name": name, "log": _log(v for x in xs for v in x)},
            "y": {"name": "share of runs", "log": False, "share": True, "percent": True},
            "alt": f"{title + ': ' if title else ''}share of runs by {name}",
        }  # fmt: skip
        out.chart(spec, title=title)
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
        better = "" if adjusted >= SIGNIFICANT else one if effect > 0.5 else other
        rows.append([problem, one, other, f"{p:.3g}", f"{adjusted:.3g}", f"{effect:.2f}", better])
    head = ["problem", "first", "second", "p", "p, Holm", "chance that first is better", "better"]
    out.add(_grid(head, rows, range(3, 6), sort=True))
    kind = "Wilcoxon signed ranks" if study.paired else "Mann-Whitney"
    out.add(f'<p class="note">{kind}, with Holm\'s correction; "better" where that is below {SIGNIFICANT:g}.</p>')


# --- parts of a page --------------------------------------------------------------------------------------------------


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
        + "</dl>"
    )


def _cost_rows(result: Result) -> list[tuple[str, str]]:
    rows = [("generations", f"{result.nit:,}"), ("evaluations", f"{result.nfev:,}"), ("failed", f"{result.n_failed:,}")]
    times = result.timings
    if times.get("run"):
        rows.append(("evaluations a second", f"{result.nfev / times['run']:,.0f}"))
    return rows + [(f"seconds, {name}", f"{value:.4g}") for name, value in times.items()]


def _setting_rows(settings: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for name, value in settings.items():
        if isinstance(value, dict):
            rows.append((name, ", ".join(f"{k} {v}" for k, v in value.items())))
        elif value is not None:
            text = str(value)
            rows.append((name, text if len(text) < 2000 else text[:2000] + " …"))
    return rows


def _pairs(rows: Sequence[tuple[str, str]]) -> str:
    lines = [f'<th scope="row">{escape(a)}</th><td class="setting">{escape(b)}</td>' for a, b in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide pairs"><table><tbody>{body}</tbody></table></div>'


class Html(str):
    """What is markup already."""


def _grid(head: Sequence[str], rows: list[list[str]], numeric: Iterable[int], sort: bool = False) -> str:
    """A table; columns without a single entry are left out."""
    right = set(numeric)
    kept = [k for k in range(len(head)) if any(row[k] for row in rows)]

    def kind(k: int) -> str:
        return ' class="n"' if k in right else ' class="place"' if head[k] == WITHIN else ""

    top = "".join(f'<th scope="col"{kind(k)}>{escape(head[k])}</th>' for k in kept)
    lines = ("".join(f"<td{kind(k)}>{_markup(row[k])}</td>" for k in kept) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    options = ' class="recipes" data-sort' if sort else ""
    table = f"<table{options}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>'


def _markup(text: str) -> str:
    return text if isinstance(text, Html) else escape(text)


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
        files["snapshots.npz"] = "the populations that were kept, for NumPy"
    return files


def _files(out: Page, files: dict[str, str]) -> None:
    out.section("Data")
    links = "".join(f'<li><a href="{name}">{name}</a>: {escape(text)}</li>' for name, text in files.items())
    out.add(
        "<p>Figures and tables above give their numbers by “CSV ↓”, thinned where there are "
        f"very many. In full they are in the folder where this page was written:</p><ul>{links}</ul>"
        '<p class="note">Written by galapax. In Python, gx.load(folder) reads it all again.</p>'
    )


def _count(number: int, word: str) -> str:
    many = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{number:,} {word if number == 1 else many}"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "none"


def _brief(value: float) -> str:
    text = _number(value, 8)
    return _number(value, 4) if "e" in text and text != "none" else text


def _numbers(values: Any, digits: int = 7) -> list[Any]:
    """JSON's numbers, rounded; null for what is not finite."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in np.asarray(values, np.float64).tolist()]


def _log(values: Any) -> bool:
    """Whether a logarithmic scale shows these values better: all positive, and over more than a magnitude."""
    drawn = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, np.float64)
    finite = drawn[np.isfinite(drawn)]
    return bool(finite.size and finite.min() > 0 and finite.max() > 20 * finite.min())


def _picture(pixels: np.ndarray, alt: str, kind: str) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, format="PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img class="{kind}" alt="{escape(alt)}" src="data:image/png;base64,{data}">'
