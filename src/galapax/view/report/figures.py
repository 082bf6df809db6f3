"""The figures of a result's page: front, convergence, runs, maps, the last population."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from galapax.core.algorithm import Population
from galapax.core.problem import Described
from galapax.results.result import History, Result, all_runs
from galapax.view import data, films, maps, tables
from galapax.view.report.charts import STEPS, banded, bands_note, curves, thinned
from galapax.view.report.ground import landscape
from galapax.view.report.page import Page, hint_text
from galapax.view.report.parts import numbers, pair_table, picture, plain_table

NUMBERS = 150_000  # in a table of points at most; what is left out is in the CSV files
POINTS = 5000  # of a front at most
COLUMNS = 100  # of a table of points at most
IN_TIP = 18  # lines that the pointer shows of a point
AXES = 20  # variables on parallel axes at most
ESTIMATED = "With four objectives and more the hypervolume is estimated along random directions."
PAIRED = 7  # objectives of which every pair is drawn


def front(out: Page, result: Result) -> None:
    out.section("Front")
    out.add(f"<p>{escape(tables.front_summary(result))}</p>")
    F = np.asarray(result.F, np.float64)
    names, table = _front_columns(result)
    points = tables.front_points(result)
    wide = min(len(names), COLUMNS)
    most = min(POINTS, max(50, NUMBERS // wide))
    kept = np.union1d(maps.thinned(len(F), most), list(points.values())).astype(int)
    rotate = " Drag to rotate." if F.shape[1] == 3 else ""
    hint = f"Click a point to see its whole recipe beside the figure, and its row in the table below.{rotate}"
    out.chart(_front_chart(result, names, points, kept), hint=hint)
    if F.shape[1] > 2:
        _many_charts(out, result, names, points, kept)
    if len(kept) > 1:
        out.add('<div data-ask="front"></div>')
    heads, values, recipe = tables.front_rows(result)
    out.add("<h3>Marked points</h3>")
    out.add(plain_table(["", "unit", *heads], values + recipe, range(2, 2 + len(heads))))
    out.add("<h3>A step to a neighbour</h3>")
    out.add(f"<p>{escape(tables.STEP_NOTE)}</p>")
    heads, steps = tables.step_rows(result)
    # words stay on one line: the table scrolls
    steps = [[cell.replace(" ", "\u00a0") if i < 2 else cell for i, cell in enumerate(row)] for row in steps]
    out.add(plain_table(heads, steps, range(2, len(heads))))
    out.add("<h3>All recipes</h3>")
    at = {int(row): i for i, row in enumerate(kept)}
    texts: dict[int, str] = {}
    for text, row in points.items():
        texts[at[row]] = f"{texts[at[row]]}, {text}" if at[row] in texts else text
    out.table(
        "front",
        {
            "names": names[:wide], "data": [numbers(column[kept], 7) for column in table[:wide]], "labels": texts,
            "number": (kept + 1).tolist(), "total": len(F), "what": "points", "file": "front",
            "title": "The solutions of the front", "objectives": F.shape[1], "sign": result.sign,
            "words": _words(result.problem, F.shape[1], wide),
        },
    )  # fmt: skip
    left = [f"{len(F) - len(kept):,} points"] * (len(kept) < len(F))
    left += [f"{len(names) - wide:,} columns"] * (wide < len(names))
    out.add(
        f'<p class="note">{hint_text("Click a heading to sort; below it, filter with < 3, >= 2 or 1..2.")}'
        + (f" Not shown here, but in front.csv: {' and '.join(left)}." if left else "")
        + "</p>"
    )


def _front_columns(result: Result) -> tuple[list[str], list[np.ndarray]]:
    """The table of a front by columns, with their names: objectives, variables, derived quantities."""
    problem, derived = result.problem, result.get("derived", {})
    names = [*problem.objective_names(result.F.shape[1]), *problem.variable_names(), *derived]
    columns = [*np.asarray(result.F, np.float64).T, *np.asarray(result.X, np.float64).T]
    columns += [np.asarray(values, np.float64) for values in derived.values()]
    return [problem.with_unit(name) for name in names], columns


def _words(problem: Described, before: int, columns: int) -> dict[int, list[str]]:
    """The words that numbers stand for, by column: of choices that are no numbers, and of switches."""
    if problem.space is None:
        return {}
    return {
        before + i: [variable.show(code) for code in range(int(variable.upper) + 1)]
        for i, variable in enumerate(problem.space.variables[: columns - before])
        if variable.kind in ("choice", "flag") and not variable.numeric
    }


def _front_chart(result: Result, names: list[str], points: dict[str, int], kept: np.ndarray) -> dict[str, Any]:
    """The front as points. kept: the rows that the page has."""
    m, wide = result.F.shape[1], min(len(names), COLUMNS)
    at = {int(row): i for i, row in enumerate(kept)}
    marks = [
        {"row": at[row], "kind": "knee" if text == "knee" else "end", "short": _short_mark(text)}
        for text, row in points.items()
    ]
    spec: dict[str, Any] = {
        "kind": "scatter", "file": "front", "table": "front", "tall": 0.58, "one": "point", "recipe": True,
        "what": f"found, {len(result.F):,} points",
        "use": {"x": 0, "y": 1, "z": 2 if m == 3 else -1, "colour": 2 if m > 2 else -1},
        "choices": list(range(wide)), "tip": list(range(min(wide, IN_TIP))), "marks": marks,
        "more": f"… {len(names) - IN_TIP} more" if len(names) > IN_TIP else "",
        "alt": f"The front: {names[0]} across, {names[1]} up, {len(kept)} points; the table below has the numbers.",
    }  # fmt: skip
    truth = data.true_front(result.problem, 400 if m == 2 else 600)
    if truth is not None:
        spec["truth"] = {"columns": list(range(m)), "data": [numbers(column, 5) for column in truth.T]}
    return spec


def _many_charts(out: Page, result: Result, names: list[str], points: dict[str, int], kept: np.ndarray) -> None:
    """Three objectives and more: all of them on parallel axes, and every pair."""
    m, at = result.F.shape[1], {int(row): i for i, row in enumerate(kept)}
    more = list(range(m, min(len(names), COLUMNS)))[:AXES]
    spec: dict[str, Any] = {
        "kind": "parallel", "file": "front", "table": "front", "axes": list(range(m)), "more": more, "tall": 0.5,
        "alt": f"The front on parallel axes, {m} objectives, one line per point; the table below has the numbers.",
    }  # fmt: skip
    note = "One line per point, coloured by the first objective."
    hint = "Drag along an axis to keep a range of it, double-click to keep all again; figures and table follow."
    out.chart(spec, note, title="All objectives", hint=hint)
    marks = [
        {"row": at[row], "kind": "knee" if text == "knee" else "end"}
        for text, row in points.items()
        if not text.startswith("chosen")
    ]
    spec = {
        "kind": "matrix", "file": "front", "table": "front", "axes": list(range(min(m, PAIRED))), "marks": marks,
        "tall": 0.9, "alt": f"Every pair of {min(m, PAIRED)} objectives, one dot per point.",
    }  # fmt: skip
    left = f"The first {PAIRED} of {m} objectives." if m > PAIRED else ""
    out.chart(
        spec, left, title="Every pair of objectives", hint="Point at a dot to see where it is in the other pairs."
    )


def _short_mark(text: str) -> str:
    return "knee" if text == "knee" else "chosen" if text.startswith("chosen") else "best of each"


def convergence(out: Page, result: Result) -> None:
    history = data.history_of(result)
    out.section("Convergence")
    if history is None or not len(history):
        out.add("<p>No history was kept; use history=True to keep the values of every generation.</p>")
        return
    history = thinned(history, result.runs is not None)
    for objective in data.panels(result):
        drawn = data.convergence(result, history, objective)
        if not np.isfinite(drawn.best).any():
            out.add("<p>No run found a feasible point, so there is nothing to draw.</p>")
            break
        series = banded(drawn.values, "best" if len(drawn.best) == 1 else "median")
        if len(drawn.best) == 1 and drawn.margin is not None:
            low, high = (numbers(drawn.values[0] + way * drawn.margin[0]) for way in (-1, 1))
            series[0]["bands"] = [{"name": "95 % interval", "low": low, "high": high, "opacity": 0.25}]
        if len(drawn.best) == 1 and history.violation is None and "F" not in result:
            series += _population_series(result, history)
        file = f"convergence{'' if objective is None else f'-{objective + 1}'}"
        spec = curves(history, series, drawn.name, drawn.log, file)
        if drawn.first_feasible is not None:
            spec["marks"] = [{"x": drawn.first_feasible, "text": "first feasible"}]
        estimated = "" if drawn.margin is None else ESTIMATED
        out.chart(spec, " ".join(filter(None, (bands_note(drawn.best), estimated))))
    if history.violation is not None and not result.feasible:
        out.add("<h3>Violation of the best point</h3>")
        violation = np.atleast_2d(np.asarray(history.violation, np.float64))
        series = banded(violation, "least violation" if len(violation) == 1 else "median")
        spec = curves(history, series, "violation", data.wants_log(violation), "violation")
        out.chart(spec, bands_note(violation))
    if history.feasible_share is not None:
        out.add("<h3>Feasible share of the population</h3>")
        share = np.atleast_2d(np.asarray(history.feasible_share, np.float64))
        series = banded(share, "share" if len(share) == 1 else "median")
        spec = curves(history, series, "feasible share", False, "feasible-share")
        spec["y"] |= {"share": True, "percent": True}
        out.chart(spec, bands_note(share))


def _population_series(result: Result, history: History) -> list[dict[str, Any]]:
    """Mean and worst of the population of a single run, drawn as its best is."""
    series = []
    for place, (part, name) in enumerate(((history.mean, "mean"), (history.worst, "worst")), 1):
        drawn, _ = data.distance(result, np.where(np.isfinite(part), part, np.nan))
        series.append(
            {"name": f"{name} of the population", "c": place, "x": 0, "y": numbers(drawn), "thin": True, "dash": place}
        )
    return series


def runs_of(out: Page, result: Result) -> None:
    runs = result.runs
    assert runs is not None
    out.section("Runs")
    out.add(pair_table(tables.run_rows(result)))
    found = data.final_shares(result)
    if found is not None:
        out.chart(_shares_chart(found, len(runs)), title="Distribution of the final values")
    soon = data.hits(result)
    if soon is not None:
        out.chart(_hits_chart(soon), title="Evaluations until success")
    rows = maps.thinned(len(runs), POINTS)
    fun = np.asarray(runs.fun, np.float64).reshape(len(runs), -1)
    columns: dict[str, np.ndarray] = {"run": runs.number}
    values = [data.MET] if "worst_case" in result else data.objective_names(result)
    columns |= dict(zip(values, fun.T, strict=True))
    if runs.hypervolume is not None:
        columns["hypervolume"] = runs.hypervolume
    if result.problem.constrained:
        columns["violation"] = runs.violation
    if result.get("worst_cases") is not None:
        columns[data.CHECKED] = np.asarray(result.worst_cases)
    columns |= {"generations": runs.nit, "evaluations": runs.nfev, "failed": runs.n_failed}
    out.add("<h3>Every run</h3>")
    good = ["yes" if done else "no" for done in runs.success[rows]]
    out.table(
        "runs",
        {
            "names": [*columns, "success"], "data": [*(numbers(c[rows], 9) for c in columns.values()), good],
            "labels": {}, "total": len(runs), "digits": 9, "what": "runs", "file": "runs", "title": "The runs",
        },
    )  # fmt: skip


def _shares_chart(found: data.Shares, count: int) -> dict[str, Any]:
    rows = maps.thinned(len(found.x), STEPS)
    step = "before" if found.upward else "all"
    return {
        "kind": "lines", "file": "final-values", "xs": [numbers(found.x[rows])],
        "series": [{"name": "runs", "c": 0, "x": 0, "y": numbers(found.share[rows]), "step": step}],
        "x": {"name": found.name, "log": found.log},
        "y": {"name": "share of runs at least as good", "log": False, "share": True, "percent": True},
        "alt": f"Share of the {count} runs whose {found.name} is at least as good",
    }  # fmt: skip


def _hits_chart(soon: data.Hits) -> dict[str, Any]:
    rows = maps.thinned(len(soon.evaluations), STEPS)
    return {
        "kind": "lines", "file": "running-times", "xs": [numbers(soon.evaluations[rows])],
        "series": [{"name": "runs", "c": 0, "x": 0, "y": numbers(soon.share[rows]), "step": "all"}],
        "x": {"name": "evaluations of a run", "log": True},
        "y": {"name": soon.name, "log": False, "share": True, "percent": True},
        "alt": f"By evaluations, the {soon.name}",
    }  # fmt: skip


def maps_of(out: Page, result: Result) -> None:
    kept = maps.snapshots_of(result) if result.get("snapshots") else {}
    told = "Stored populations"
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
        f"{told}{f' of run {_best_run(result)}, the best' if result.runs is not None else ''}. One row per individual, "
        f"best at the top, one column per variable ({escape(short)}): lower bound "
        '<span class="key colours"></span> upper bound.',
        "Next, the genome-convergence map: one pixel per individual, four variables in its colour.",
    ]
    if grey:
        infeasible = ', infeasible <span class="key orange"></span>' if genome.infeasible else ""
        lines.append(
            f'Last, the fitness: best <span class="key grey"></span> worst {escape(data.objective_names(result)[0])}'
            f"{infeasible}{', on a logarithmic scale' if genome.log else ''}."
        )
    if not result.get("snapshots"):
        lines.append(hint_text("To see earlier populations here, keep them with snapshots=[1, 10, 100]."))
    out.add(f"<p>{' '.join(lines)}</p>")
    columns = []
    for generation, population in kept.items():
        when = f"generation {generation:,}"
        pixels = rows.genes(population)
        pictures = [
            picture(pixels[:, maps.thinned(pixels.shape[1], 400)], f"Variables of the individuals, {when}", "rows"),
            picture(genome.genes(population), f"Genome-convergence map, {when}", "tile"),
        ]
        if grey:
            pictures.append(picture(genome.fitness(population), f"Fitness-convergence map, {when}", "tile"))
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


def population(out: Page, result: Result) -> None:
    """The last population over two variables, as many as are asked for."""
    x, fitness = np.asarray(result.population, np.float64), np.asarray(result.population_fitness, np.float64)
    names = [*data.labels(result.problem), *data.objective_names(result)]
    if result.problem.dim < 2:
        return
    d = min(result.problem.dim, COLUMNS - 1)
    kept = maps.thinned(len(x), min(2000, NUMBERS // (2 * d)))
    if np.isfinite(fitness).any() and not result.problem.constrained:
        kept = np.union1d(kept, [np.argmin(np.where(np.isfinite(fitness), result.sign * fitness, np.inf))])
    columns = [*x[kept].T[:d], fitness[kept]]
    shown = [*names[:d], names[-1]]
    ground = landscape(result)
    out.section("Landscape and last population" if ground else "Last population")
    out.tables["population"] = {
        "names": shown, "data": [numbers(column, 6) for column in columns], "labels": {}, "total": len(x),
        "number": (kept + 1).tolist(), "file": "population", "what": "individuals", "title": "The last population",
        "words": _words(result.problem, 0, d),
    }  # fmt: skip
    spec = {
        "kind": "scatter", "file": "population", "table": "population", "tall": 0.5, "one": "individual",
        "what": f"{len(kept):,} of {len(x):,} individuals" if len(kept) < len(x) else f"{len(x):,} individuals",
        "use": {"x": 0, "y": 1, "z": -1, "colour": d}, "choices": list(range(d + 1)), "marks": [],
        "tip": [d, *range(min(d, IN_TIP - 1))], "more": f"… {d + 1 - IN_TIP} more" * (d + 1 > IN_TIP),
        "alt": "The last population over two variables",
    }  # fmt: skip
    note = "The colour shows the value of the individual."
    if ground:
        spec |= {"ground": ground}
        striped = " Infeasible regions are striped." if result.ineq is not None else ""
        note += f" Behind the points is the objective: darker is better.{striped}"
    out.chart(spec, note, hint="Choose the variables above.")
