"""The figures of a result's report page: front, convergence, runs, maps, the last population."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import Any

import jax
import numpy as np

from galapax.core.algorithm import Population
from galapax.core.problem import Problem, ProblemDescription, missing_function
from galapax.results.many_answers import Illumination
from galapax.results.result import History, Result, all_runs
from galapax.view import animation, figure_data, maps, summary_tables
from galapax.view.report.page import (
    ChartSpec,
    ReportPage,
    data_uri,
    format_number,
    hint_span,
    image_tag,
    json_numbers,
    pair_table,
    plain_table,
)

MAX_TABLE_NUMBERS = 150_000  # of a table of points; what is left out is in the CSV files
MAX_FRONT_ROWS = 5000
MAX_POINT_COLUMNS = 100  # of a table of points
MAX_TOOLTIP_LINES = 18
MAX_PARALLEL_AXES = 20  # variables on parallel axes
MAX_CURVE_POINTS = 1200
ESTIMATE_NOTE = "With four objectives and more the hypervolume is estimated along random directions."
REFINEMENT_NOTE = (
    "At a mark “gradient refinement” no generation was made: a local optimiser refined the best point by its gradient."
)
MAX_PAIRED_OBJECTIVES = 7  # objectives of which every pair is drawn


def add_elites(out: ReportPage, illumination: Illumination) -> None:
    """Add the map of an Illumination with two measures, and what it says in numbers."""
    out.section("The map")
    out.add(f"<p>{escape('; '.join(illumination.describe_map()))}.</p>")
    values, names = illumination.values, illumination.names
    if values.ndim != 2 or not len(illumination):
        return
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    share = (np.nan_to_num(values, nan=low) - low) / (high - low if high > low else 1.0)
    shade = share if illumination.maximizes else 1 - share
    pixels = maps.apply_colormap(np.rint(255 * shade))
    pixels[np.isnan(values)] = 255  # no elite: as the page's paper
    image = image_tag(pixels.swapaxes(0, 1)[::-1], "Value of the elite of each cell", "rows")
    limits = [
        f"{name} from {format_number(a, 4)} to {format_number(b, 4)}"
        for name, (a, b) in zip(names, illumination.ranges, strict=True)
    ]
    caption = (
        f"Across: {limits[0]}. Up: {limits[1]}. Light: good, dark: bad, values from {format_number(low, 5)} to "
        f"{format_number(high, 5)}; white: no elite."
    )
    out.add(
        f'<figure><div class="strip one"><div>{image}</div></div><figcaption>{escape(caption)}</figcaption></figure>'
    )


def add_front(out: ReportPage, result: Result) -> None:
    out.section("Front")
    out.add(f"<p>{escape(summary_tables.front_summary(result))}</p>")
    F = np.asarray(result.F, np.float64)
    names, table = _front_columns(result)
    points = summary_tables.front_points(result)
    n_columns = min(len(names), MAX_POINT_COLUMNS)
    max_points = min(MAX_FRONT_ROWS, max(50, MAX_TABLE_NUMBERS // n_columns))
    rows = np.union1d(maps.thin_indices(len(F), max_points), list(points.values())).astype(int)
    rotate = " Drag to rotate." if F.shape[1] == 3 else ""
    hint = f"Click a point to see its whole recipe beside the figure, and its row in the table below.{rotate}"
    out.chart(_front_chart(result, names, points, rows), hint=hint)
    if F.shape[1] > 2:
        _add_objective_charts(out, result, names, points, rows)
    if len(rows) > 1:
        out.add('<div data-ask="front"></div>')
    heads, values, recipe = summary_tables.front_rows(result)
    out.add("<h3>Marked points</h3>")
    out.add(plain_table(["", "unit", *heads], values + recipe, range(2, 2 + len(heads))))
    out.add("<h3>Trade-offs between neighbouring points</h3>")
    out.add(f"<p>{escape(summary_tables.STEP_NOTE)}</p>")
    heads, neighbours = summary_tables.step_rows(result)
    # words stay on one line: the table scrolls
    neighbours = [[cell.replace(" ", "\u00a0") if i < 2 else cell for i, cell in enumerate(row)] for row in neighbours]
    out.add(plain_table(heads, neighbours, range(2, len(heads))))
    out.add("<h3>All recipes</h3>")
    position = {int(row): i for i, row in enumerate(rows)}
    texts: dict[int, str] = {}
    for text, row in points.items():
        texts[position[row]] = f"{texts[position[row]]}, {text}" if position[row] in texts else text
    out.table(
        "front",
        {
            "names": names[:n_columns], "data": [json_numbers(column[rows], 7) for column in table[:n_columns]],
            "labels": texts, "number": rows.tolist(), "total": len(F), "what": "points", "file": "front",
            "title": "The solutions of the front", "objectives": F.shape[1], "signs": result.signs.tolist(),
            "words": _choice_labels(result.problem, F.shape[1], n_columns),
        },
    )  # fmt: skip
    omitted = [f"{len(F) - len(rows):,} points"] * (len(rows) < len(F))
    omitted += [f"{len(names) - n_columns:,} columns"] * (n_columns < len(names))
    out.add(
        f'<p class="note">{hint_span("Click a heading to sort; below it, filter with < 3, >= 2 or 1..2.")}'
        + (f" Not shown here, but in front.csv: {' and '.join(omitted)}." if omitted else "")
        + "</p>"
    )


def _front_columns(result: Result) -> tuple[list[str], list[np.ndarray]]:
    """The table of a front by columns, with their names: objectives, variables, derived quantities."""
    problem, derived = result.problem, result.get("derived", {})
    names = [*problem.objective_names(result.F.shape[1]), *problem.variable_names(), *derived]
    columns = [*np.asarray(result.F, np.float64).T, *np.asarray(result.X, np.float64).T]
    columns += [np.asarray(values, np.float64) for values in derived.values()]
    return [problem.with_unit(name) for name in names], columns


def _choice_labels(problem: ProblemDescription, before: int, columns: int) -> dict[int, list[str]]:
    """Labels of the codes of choices and flags, by column."""
    if problem.space is None:
        return {}
    return {
        before + i: [variable.show(code) for code in range(int(variable.upper) + 1)]
        for i, variable in enumerate(problem.space.variables[: columns - before])
        if variable.kind in ("choice", "boolean") and not variable.numeric
    }


def _front_chart(result: Result, names: list[str], points: dict[str, int], rows: np.ndarray) -> ChartSpec:
    """Specify the scatter chart of the front. rows: those that the page has."""
    m, n_columns = result.F.shape[1], min(len(names), MAX_POINT_COLUMNS)
    position = {int(row): i for i, row in enumerate(rows)}
    marks = [
        {"row": position[row], "kind": "knee" if text == "knee" else "end", "short": _short_mark(text)}
        for text, row in points.items()
    ]
    spec: ChartSpec = {
        "kind": "scatter", "file": "front", "table": "front", "tall": 0.58, "one": "point", "recipe": True,
        "what": f"found, {len(result.F):,} points",
        "use": {"x": 0, "y": 1, "z": 2 if m == 3 else -1, "colour": 2 if m > 2 else -1},
        "choices": list(range(n_columns)), "tip": list(range(min(n_columns, MAX_TOOLTIP_LINES))), "marks": marks,
        "more": f"… {len(names) - MAX_TOOLTIP_LINES} more" if len(names) > MAX_TOOLTIP_LINES else "",
        "alt": f"The front: {names[0]} across, {names[1]} up, {len(rows)} points; the table below has the numbers.",
    }  # fmt: skip
    true_front = figure_data.true_front(result.problem, 400 if m == 2 else 600)
    if true_front is not None:
        spec["truth"] = {"columns": list(range(m)), "data": [json_numbers(column, 5) for column in true_front.T]}
    if (forecast := result.get("forecast")) is not None:
        spec["forecast"] = {"objectives": m, "next": forecast.next.tolist(), "front": forecast.front.tolist()}
    return spec


def _add_objective_charts(
    out: ReportPage, result: Result, names: list[str], points: dict[str, int], rows: np.ndarray
) -> None:
    """Add the charts of three and more objectives: all of them on parallel axes, and every pair."""
    m, position = result.F.shape[1], {int(row): i for i, row in enumerate(rows)}
    further_columns = list(range(m, min(len(names), MAX_POINT_COLUMNS)))[:MAX_PARALLEL_AXES]
    spec: ChartSpec = {
        "kind": "parallel", "file": "front", "table": "front", "axes": list(range(m)), "more": further_columns,
        "tall": 0.5,
        "alt": f"The front on parallel axes, {m} objectives, one line per point; the table below has the numbers.",
    }  # fmt: skip
    note = "One line per point, coloured by the first objective."
    hint = "Drag along an axis to keep a range of it, double-click to keep all again; figures and table follow."
    out.chart(spec, note, title="All objectives", hint=hint)
    marks = [
        {"row": position[row], "kind": "knee" if text == "knee" else "end"}
        for text, row in points.items()
        if not text.startswith("chosen")
    ]
    spec = {
        "kind": "matrix", "file": "front", "table": "front", "axes": list(range(min(m, MAX_PAIRED_OBJECTIVES))),
        "marks": marks, "tall": 0.9,
        "alt": f"Every pair of {min(m, MAX_PAIRED_OBJECTIVES)} objectives, one dot per point.",
    }  # fmt: skip
    note_of_pairs = f"The first {MAX_PAIRED_OBJECTIVES} of {m} objectives." if m > MAX_PAIRED_OBJECTIVES else ""
    out.chart(
        spec,
        note_of_pairs,
        title="Every pair of objectives",
        hint="Hover over a point to highlight it in the other plots.",
    )


def _short_mark(text: str) -> str:
    return "knee" if text == "knee" else "chosen" if text.startswith("chosen") else "best of each"


def add_convergence(out: ReportPage, result: Result) -> None:
    history = figure_data.ensemble_history(result)
    out.section("Convergence")
    if history is None or not len(history):
        out.add("<p>No history was kept; use keep=gx.Keep(history=True) to keep the values of every generation.</p>")
        return
    history = thin_history(history, result.runs is not None)
    for objective in figure_data.panels(result):
        curve = figure_data.convergence(result, history, objective)
        if not np.isfinite(curve.best).any():
            out.add("<p>No run found a feasible point, so there is nothing to draw.</p>")
            break
        series = band_series(curve.values, "best" if len(curve.best) == 1 else "median")
        if len(curve.best) == 1 and curve.margin is not None:
            low, high = (json_numbers(curve.values[0] + way * curve.margin[0]) for way in (-1, 1))
            series[0]["bands"] = [{"name": "95 % interval", "low": low, "high": high, "opacity": 0.25}]
        is_single = len(curve.best) == 1 and figure_data.has_population(result)
        if is_single and history.violation is None and "F" not in result:
            series += _population_series(result, history)
        file = f"convergence{'' if objective is None else f'-{objective + 1}'}"
        spec = line_chart(history, series, curve.name, curve.log, file)
        spec["events"] = [{"name": name, "at": at} for name, at in curve.events().items() if at]
        estimate_note = "" if curve.margin is None else ESTIMATE_NOTE
        refinement_note = REFINEMENT_NOTE if curve.refinements else ""
        out.chart(spec, " ".join(filter(None, (describe_bands(curve.best), estimate_note, refinement_note))))
    if history.violation is not None and not result.feasible:
        out.add("<h3>Violation of the best point</h3>")
        violation = np.atleast_2d(np.asarray(history.violation, np.float64))
        series = band_series(violation, "least violation" if len(violation) == 1 else "median")
        spec = line_chart(history, series, "violation", figure_data.needs_log_scale(violation), "violation")
        out.chart(spec, describe_bands(violation))
    if history.feasible_share is not None and figure_data.has_population(result):
        out.add("<h3>Feasible share of the population</h3>")
        share = np.atleast_2d(np.asarray(history.feasible_share, np.float64))
        series = band_series(share, "share" if len(share) == 1 else "median")
        spec = line_chart(history, series, "feasible share", False, "feasible-share")
        spec["y"]["share"] = True
        out.chart(spec, describe_bands(share))


def _population_series(result: Result, history: History) -> list[ChartSpec]:
    """Series of the population's mean and worst of a single run, as distances where its best is one."""
    series = []
    for index, (values, name) in enumerate(((history.mean, "mean"), (history.worst, "worst")), 1):
        distances, _ = figure_data.distance(result, np.where(np.isfinite(values), values, np.nan))
        series.append(
            {
                "name": f"{name} of the population",
                "c": index,
                "x": 0,
                "y": json_numbers(distances),
                "thin": True,
                "dash": index,
            }
        )
    return series


def add_runs(out: ReportPage, result: Result) -> None:
    runs = result.runs
    assert runs is not None
    out.section("Runs")
    out.add(pair_table(summary_tables.run_rows(result)))
    for panel, file in (
        (figure_data.final_shares(result), "final-values"),
        (figure_data.target_hits(result), "running-times"),
    ):
        if panel is not None:
            out.chart(panel_chart(panel, file, MAX_CURVE_POINTS), title=panel.title)
    rows = maps.thin_indices(len(runs), MAX_FRONT_ROWS)
    fun = np.asarray(runs.fun, np.float64).reshape(len(runs), -1)
    columns: dict[str, np.ndarray] = {"run": runs.number}
    value_names = [figure_data.WORST_FOUND_NAME] if "worst_case" in result else figure_data.objective_names(result)
    columns |= dict(zip(value_names, fun.T, strict=True))
    if runs.hypervolume is not None:
        columns["hypervolume"] = runs.hypervolume
    if result.problem.constrained:
        columns["violation"] = runs.violation
    if result.get("worst_cases") is not None:
        columns[figure_data.WORST_CHECKED_NAME] = np.asarray(result.worst_cases)
    columns |= {"generations": runs.nit, "evaluations": runs.nfev, "failed": runs.n_failed}
    out.add("<h3>Every run</h3>")
    success = ["yes" if done else "no" for done in runs.success[rows]]
    out.table(
        "runs",
        {
            "names": [*columns, "success"], "data": [*(json_numbers(c[rows], 9) for c in columns.values()), success],
            "labels": {}, "total": len(runs), "digits": 9, "what": "runs", "file": "runs", "title": "The runs",
        },
    )  # fmt: skip


def add_maps(out: ReportPage, result: Result) -> None:
    populations = maps.stored_populations(result) if result.get("snapshots") else {}
    heading = "Stored populations"
    if not populations:
        fitness = np.asarray(result.population_fitness, np.float64).reshape(len(result.population), -1)
        populations = {result.nit: Population(result.population, fitness, None)}  # type: ignore[arg-type]
        heading = "The last population"
    has_fitness = bool(result.get("snapshots")) or not result.problem.constrained  # else nobody knows who is feasible
    populations = animation.choose_generations(populations)
    rows, genome = (animation.MapScale(result, populations, form, "box", 2**15) for form in ("variables", "genome"))
    out.section("Maps")
    names = result.problem.variable_names()
    pixel_text = f"{'four' if len(names) > 3 else len(names)} variable{'s' * (len(names) > 1)} in its colour"
    variable_text = ", ".join(names) if len(names) <= 12 else f"{names[0]} to {names[-1]}"
    run_note = f" of run {_best_run(result)}, the best" if result.runs is not None else ""
    lines = [
        f"{heading}{run_note}. One row per individual, "
        f"best at the top, one column per variable ({escape(variable_text)}): lower bound "
        '<span class="key colours"></span> upper bound.',
        f"Next, the genome-convergence map: one pixel per individual, {pixel_text}.",
    ]
    if has_fitness:
        infeasible = ', infeasible <span class="key orange"></span>' if genome.infeasible else ""
        objective = escape(figure_data.objective_names(result)[0])
        lines.append(
            f'Last, the fitness: best <span class="key grey"></span> worst {objective}'
            f"{infeasible}{', on a logarithmic scale' if genome.log else ''}."
        )
    if not result.get("snapshots"):
        lines.append(hint_span("To see earlier populations here, keep them with keep=gx.Keep(snapshots=[1, 10, 100])."))
    out.add(f"<p>{' '.join(lines)}</p>")
    columns = []
    for generation, add_population in populations.items():
        generation_text = f"generation {generation:,}"
        pixels = rows.genes(add_population)
        images = [
            image_tag(
                pixels[:, maps.thin_indices(pixels.shape[1], 400)],
                f"Variables of the individuals, {generation_text}",
                "rows",
            ),
            image_tag(genome.genes(add_population), f"Genome-convergence map, {generation_text}", "tile"),
        ]
        if has_fitness:
            images.append(
                image_tag(genome.fitness(add_population), f"Fitness-convergence map, {generation_text}", "tile")
            )
        if len(populations) == 1:  # side by side
            columns += [f"<div>{image}</div>" for image in images]
        else:
            columns.append(f"<div><h3>{generation_text}</h3>{''.join(images)}</div>")
    kind = "strip one" if len(populations) == 1 else "strip"
    out.add(
        f'<figure><div class="{kind}">{"".join(columns)}</div>'
        f"<figcaption>{escape(rows.caption())} {escape(genome.caption())}</figcaption></figure>"
    )


def _best_run(result: Result) -> int:
    return int(all_runs(result).number[maps.best_run_row(result)])


def add_population(out: ReportPage, result: Result) -> None:
    """Add a scatter chart of the last population over two variables of the reader's choice."""
    x, fitness = np.asarray(result.population, np.float64), np.asarray(result.population_fitness, np.float64)
    if result.problem.dim < 2:
        return
    d = min(result.problem.dim, MAX_POINT_COLUMNS - 1)
    rows = maps.thin_indices(len(x), min(2000, MAX_TABLE_NUMBERS // (2 * d)))
    if np.isfinite(fitness).any() and not result.problem.constrained:
        rows = np.union1d(rows, [np.argmin(np.where(np.isfinite(fitness), result.sign * fitness, np.inf))])
    background = landscape_image(result)
    points = "last population" if "minima" not in result else "minima" if result.sign > 0 else "maxima"
    out.section(f"Landscape and {points}" if background else points.capitalize())
    spec = _point_chart(out, result, x, fitness, rows, "population", "individual")
    spec["alt"] = f"The {points} over two variables"
    note = "The colour shows the value of the individual."
    if background:
        spec |= {"ground": background}
        striped = " Infeasible regions are striped." if result.ineq is not None else ""
        note += f" Behind the points is the objective: darker is better.{striped}"
    out.chart(spec, note, hint="Choose the variables above.")


def add_evaluations(out: ReportPage, result: Result) -> None:
    """Add what a black box returned, evaluation by evaluation, and where: for a search that has no population."""
    points = figure_data.evaluated_points(result)
    if points is None:
        return
    run_note = f" Those of run {_best_run(result)}, the best." if result.runs is not None else ""
    out.section("Evaluations")
    shown = early_dense_indices(len(points.rows), MAX_CURVE_POINTS)
    series: list[ChartSpec] = [
        {"name": name, "c": colour, "x": 0, "y": json_numbers(values[shown]), "dots": True}
        for name, colour, values in (
            ("evaluation", 1, np.where(points.infeasible, np.nan, points.values)),
            ("infeasible", 4, np.where(points.infeasible, points.values, np.nan)),
        )
        if np.isfinite(values).any()
    ]
    series.append({"name": "best so far", "c": 0, "x": 0, "y": json_numbers(points.best[shown])})
    spec: ChartSpec = {
        "kind": "lines", "file": "values", "series": series, "xs": [(shown + 1).tolist()],
        "x": {"name": "evaluation", "log": False}, "y": {"name": points.name, "log": points.log},
        "alt": f"{points.name} by evaluation, from 1 to {len(points.rows)}",
    }  # fmt: skip
    out.chart(spec, f"One dot for each evaluation that gave a value.{run_note}", title="Values")
    x = np.asarray(result.evaluations.x, np.float64)[points.rows]
    fun = np.asarray(result.evaluations.fun, np.float64)[points.rows]
    best = np.flatnonzero((x == result.x).all(axis=1))[:1]
    rows = np.union1d(maps.thin_indices(len(x), MAX_FRONT_ROWS // 2), best).astype(int)
    spec = _point_chart(out, result, x, fun, rows, "evaluations", "evaluation")
    spec["marks"] = [{"row": row, "kind": "knee", "short": "best"} for row in np.searchsorted(rows, best).tolist()]
    spec["alt"] = "The evaluated points over two variables"
    note = "The colour shows the value of the point."
    out.chart(spec, note, title="Where they are", hint="Choose the variables above.")


def _point_chart(
    out: ReportPage, result: Result, x: np.ndarray, values: np.ndarray, rows: np.ndarray, table: str, word: str
) -> ChartSpec:
    """Add a table of points (n, d) with their values, and specify its scatter chart over two variables.

    rows: those that the page has. table: the name of the table and of its file. word: what one point is.
    """
    d = min(result.problem.dim, MAX_POINT_COLUMNS - 1)
    names = [*figure_data.labels(result.problem)[:d], figure_data.objective_names(result)[-1]]
    out.tables[table] = {
        "names": names, "data": [json_numbers(column, 6) for column in (*x[rows].T[:d], values[rows])], "labels": {},
        "total": len(x), "number": rows.tolist(), "file": table, "what": f"{word}s", "title": f"The {word}s",
        "words": _choice_labels(result.problem, 0, d),
    }  # fmt: skip
    return {
        "kind": "scatter", "file": table, "table": table, "tall": 0.5, "one": word,
        "what": f"{len(rows):,} of {len(x):,} {word}s" if len(rows) < len(x) else f"{len(x):,} {word}s",
        "use": {"x": 0, "y": 1, "z": -1, "colour": d}, "choices": list(range(d + 1)), "marks": [],
        "tip": [d, *range(min(d, MAX_TOOLTIP_LINES - 1))],
        "more": f"… {d + 1 - MAX_TOOLTIP_LINES} more" * (d + 1 > MAX_TOOLTIP_LINES),
    }  # fmt: skip


# --- curves by generation ---------------------------------------------------------------------------------------------


def describe_bands(values: np.ndarray) -> str:
    return f"Median, middle half and whole range over {len(values):,} runs." if len(values) > 1 else ""


def thin_history(history: History, is_ensemble: bool) -> History:
    """Thin a history: half of its generations evenly spaced, half denser among the early ones, where most happens."""
    rows = early_dense_indices(len(history), MAX_CURVE_POINTS)
    axis = 1 if is_ensemble else 0
    columns: dict[str, Any] = {
        name: None if (values := getattr(history, name)) is None else np.take(values, rows, axis)
        for name in ("best", "mean", "worst", "violation", "feasible_share", "hypervolume", "hypervolume_error")
    }
    nfev = np.take(history.nfev, rows, -1)  # (R, G) where the runs differ in it
    return replace(history, generation=history.generation[rows], nfev=nfev, x=None, **columns)


def early_dense_indices(count: int, max_points: int) -> np.ndarray:
    if count <= max_points:
        return np.arange(count)
    early = np.geomspace(1, count, max_points // 2).astype(int) - 1
    return np.union1d(maps.thin_indices(count, max_points // 2), early)


def band_series(values: np.ndarray, name: str) -> list[ChartSpec]:
    """Make the series of values by run and generation (R, G): that of the only run, or the median with its bands."""
    if len(values) == 1:
        return [{"name": name, "c": 0, "x": 0, "y": json_numbers(values[0])}]
    low, lower, middle, upper, high = (json_numbers(row) for row in figure_data.quantile_bands(values))
    bands = [{"name": "middle half", "low": lower, "high": upper, "opacity": 0.35}]
    bands.append({"name": "all runs", "low": low, "high": high, "opacity": 0.14})
    return [{"name": name, "c": 0, "x": 0, "y": middle, "bands": bands}]


def panel_chart(panel: figure_data.Panel, file: str, max_points: int) -> ChartSpec:
    """Specify the chart of a panel, each curve thinned to about `max_points`."""
    xs: list[list[float | None]] = []
    series = []
    for curve in panel.curves:
        rows = early_dense_indices(len(curve.x), max_points)
        x = json_numbers(curve.x[rows], 9)
        if x not in xs:
            xs.append(x)
        bands = []
        if curve.lower is not None and curve.upper is not None:
            low, high = json_numbers(curve.lower[rows], 5), json_numbers(curve.upper[rows], 5)
            bands = [{"name": "middle half", "low": low, "high": high, "opacity": 0.18}]
        numbers = {"x": xs.index(x), "y": json_numbers(curve.y[rows]), "bands": bands}
        style = {"c": curve.colour, "dash": curve.stroke, "step": panel.step}
        series.append({"name": curve.label, **numbers, **style})
    return {
        "kind": "lines", "file": file, "xs": xs, "series": series,
        "x": {"name": panel.across, "log": panel.log_x},
        "y": {"name": panel.name, "log": panel.log_y, "share": bool(panel.step)},
        "alt": f"{panel.title + ': ' if panel.title else ''}{panel.name} by {panel.across}, {len(series)} curves",
    }  # fmt: skip


def line_chart(history: History, series: list[ChartSpec], name: str, log: bool, file: str) -> ChartSpec:
    return {
        "kind": "lines", "file": file, "series": series, "xs": [history.generation.tolist()],
        "x": {"name": "generation", "log": False}, "y": {"name": name, "log": log},
        "also": {"name": "evaluations", "values": np.median(np.atleast_2d(history.nfev), axis=0).tolist()},
        "alt": f"{name} by generation, from 1 to {int(history.generation[-1])}",
    }  # fmt: skip


# --- the objective over two variables, behind the population ----------------------------------------------------------

BACKGROUND_PIXELS = 360  # pixels along each variable: ripples of a hundred periods show as ripples
STRIPE_PIXELS = 9  # pixels that a stripe of infeasible points is wide
N_QUANTILES = 33  # between which colours are interpolated
DARK_BLUE, LIGHT_BLUE = np.array([11, 74, 134]), np.array([235, 243, 250])


def landscape_image(result: Result) -> ChartSpec | None:
    """Draw the objective of two variables on a grid, low values dark, infeasible ones striped; None if impossible.

    A black box is not called for it, and neither is a function that fails.
    """
    problem = figure_data.restore_functions(result.problem)
    if not isinstance(problem, Problem) or problem.dim != 2 or problem.fun is missing_function:
        return None
    if result.settings["blackbox"] or result.settings["vectorized"] or "y" in result or "fun_interval" in result:
        return None
    lower, upper = np.asarray(problem.bounds.lower), np.asarray(problem.bounds.upper)
    across, up = (np.linspace(low, high, BACKGROUND_PIXELS) for low, high in zip(lower, upper, strict=True))
    grid = np.stack([side.ravel() for side in np.meshgrid(across, up)], axis=1)
    try:
        values = _evaluate_points(problem.fun, grid)[:, 0]
        is_infeasible = (
            np.zeros(len(grid), bool) if problem.ineq is None else _evaluate_points(problem.ineq, grid).max(axis=1) > 0
        )
    except Exception:  # whatever a user's function raises on a grid, the report is written without this picture
        return None
    if not np.isfinite(values).any():
        return None
    pixels = _colour_by_quantile(result.sign * values, is_infeasible)
    return {
        "image": data_uri(pixels),
        "x": [float(lower[0]), float(upper[0])],
        "y": [float(lower[1]), float(upper[1])],
        "equal": bool(0.5 <= (upper[1] - lower[1]) / (upper[0] - lower[0]) <= 2.0),
    }


def _evaluate_points(function: Callable[..., object], points: np.ndarray) -> np.ndarray:
    """Evaluate a function at points (k, d): (k, m). Not compiled: that would take longer than this."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(function)(points), np.float64).reshape(len(points), -1)


def _colour_by_quantile(values: np.ndarray, is_infeasible: np.ndarray) -> np.ndarray:
    """Colour values by their quantile, so that valleys show: (side, side, 3), the first row on top.

    Smoothly: bands with edges would beat with the pixels of a screen.
    """
    finite = values[np.isfinite(values)]
    edges, first = np.unique(np.quantile(finite, np.linspace(0, 1, N_QUANTILES) ** 1.3), return_index=True)
    share = np.interp(np.where(np.isfinite(values), values, edges[-1]), edges, first / (N_QUANTILES - 1))
    pixels = DARK_BLUE + (LIGHT_BLUE - DARK_BLUE) * share[:, None]
    rows, columns = np.divmod(np.arange(len(values)), BACKGROUND_PIXELS)
    striped = is_infeasible & ((rows + columns) % (2 * STRIPE_PIXELS) < STRIPE_PIXELS)
    pixels[striped] = 0.45 * pixels[striped] + 0.55 * np.array([150, 150, 150])
    return pixels.reshape(BACKGROUND_PIXELS, BACKGROUND_PIXELS, 3)[::-1].round().astype(np.uint8)
