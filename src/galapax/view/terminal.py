"""Results and registries as tables in the terminal."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from galapax import algorithms, problems
from galapax.core.problem import Problem
from galapax.results.result import Result, all_runs
from galapax.results.study import Study
from galapax.view.data import CHECKED, ENDED, FAILED, FOUND, MET, known_value, method, objective_names, verdict
from galapax.view.tables import ACTIVE_NOTE, SHOWN, constraint_rows, front_rows, front_summary, grids, run_rows

MARKS = {FOUND: ("✓ ", "green"), ENDED: ("• ", "dim"), FAILED: ("✗ ", "red")}
SHORT = {"variables": "vars", "objectives": "obj", "ineq": "g≤0", "eq": "h=0"}  # headings for 80 columns


def result_table(result: Result) -> RenderableType:
    """What a run gave: the answer first, then constraints, then what it cost."""
    problem, settings = result.problem, result.settings
    parts: list[RenderableType] = []
    head = Text()
    head.append(f"{problem.title or problem.name}\n", style="bold")
    head.append(f"{method(result)}, seed {result.seed}, {settings['dtype']} on {settings['device']}\n", style="dim")
    head.append(*MARKS[verdict(result)])
    head.append(result.message)
    parts.append(head)
    parts.append(_front(result) if "F" in result and len(result.F) else _answer(result))
    constraints = _constraints(result)
    if constraints is not None:
        parts.append(constraints)
    if result.runs is not None:
        parts.append(_runs(result))
    times = result.timings
    parts.append(
        Text(
            f"{result.nit} generations, {result.nfev:,} evaluations"
            + (f" ({result.n_failed:,} failed)" if result.n_failed else "")
            + f"; {times['run']:.3g} s running, {times['compile']:.3g} s compiling, {times['host']:.3g} s other.",
            style="dim",
        )
    )
    parts += [Text(f"failed: {error}, at x = {point(x)}", style="dim") for x, error in result.get("failures", ())[:3]]
    return Group(*parts)


def point(x: np.ndarray) -> str:
    """A point in a line."""
    return np.array2string(x, precision=6, threshold=10, edgeitems=4, separator=", ", max_line_width=10**6)


def _answer(result: Result) -> Table:
    problem = result.problem
    table = Table(title_justify="left", show_header=True, header_style="bold")
    for name in ("", "value", "lower", "upper"):
        table.add_column(name, justify="right" if name else "left")
    what = MET if "worst_case" in result else "minimum" if result.sign > 0 else "maximum"
    whats = [what] if np.ndim(result.fun) == 0 else objective_names(result)
    if "worst_case" in result:
        table.add_row(CHECKED, f"[bold]{result.worst_case:.10g}[/]", "", "")
    for name, value in zip(whats, np.atleast_1d(result.fun), strict=True):
        table.add_row(name, f"[bold]{value:.10g}[/]", "", "")
    known = known_value(result) if np.ndim(result.fun) == 0 else None
    if known is not None:
        table.add_row("best known", f"{known:.10g}", "", "")
    table.add_section()
    for i, name in list(enumerate(problem.variable_names()))[:SHOWN]:
        ends = ("", "") if problem.choices(i) else problem.limits(i)  # choices without an order have no bounds
        table.add_row(escape(problem.with_unit(name)), escape(problem.show(i, result.x[i])), *map(escape, ends))
    if problem.dim > SHOWN:
        table.add_row("…", f"{problem.dim - SHOWN} more", "", "")
    for name, value in result.get("derived", {}).items() if np.ndim(result.fun) == 0 else ():
        table.add_row(problem.with_unit(name), f"{value:.8g}", "", "")
    if "worst_case" in result:
        table.add_section()
        for i, value in list(enumerate(result.y))[:SHOWN]:
            table.add_row(f"worst y{i + 1}", f"{value:.8g}", "", "")
    return table


def _front(result: Result) -> RenderableType:
    heads, values, recipe = front_rows(result)
    table = Table(header_style="bold", box=SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    table.add_column("")
    table.add_column("unit" if result.problem.units else "")
    for head in heads:
        table.add_column(head, justify="right")
    for row in values:
        table.add_row(*row[:2], *(f"[bold]{cell}[/]" for cell in row[2:]))
    table.add_section()
    for row in recipe:
        table.add_row(*row)
    return Group(Text(front_summary(result)), table)


def _constraints(result: Result) -> Table | None:
    if result.ineq is None and result.eq is None:
        return None
    rows = constraint_rows(result)
    table = Table(
        header_style="bold", title="at the knee" if "F" in result else None, title_justify="left",
        caption=ACTIVE_NOTE if result.ineq is not None else None, caption_justify="left",
    )  # fmt: skip
    for name in ("constraint", "value", "needed", ""):
        table.add_column(name, justify="left" if name in ("constraint", "") else "right")
    for name, value, needed, state in rows[:SHOWN]:
        style = {"violated": "red", "active": "yellow"}.get(state, "")
        table.add_row(name, f"{value:.4g}", needed, f"[{style}]{state}[/]" if style else state)
    if len(rows) > SHOWN:
        table.add_row("…", f"{len(rows) - SHOWN} more", "", "")
    return table


def _runs(result: Result) -> Table:
    table = Table(header_style="bold")
    table.add_column(f"over {len(result.runs or ())} runs")
    table.add_column("", justify="right")
    for row in run_rows(result):
        table.add_row(*row)
    return table


def study_tables(study: Study, bold: bool = True) -> RenderableType:
    """The tables of a sweep or a comparison. bold: whether there are bold letters; a star marks the best else."""
    star, where = ("", "in bold") if bold else (" *", "marked *")
    parts: list[RenderableType] = []
    for grid in grids(study):
        table = Table(title=grid.title, title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD)
        table.padding = (0, 1, 0, 0)
        for i, name in enumerate(grid.header):
            table.add_column(name, justify="right" if i else "left")
        for row in grid.rows:
            best = ((f"{cell.text}{star}", "bold green") if cell.bold else (cell.text, "") for cell in row)
            table.add_row(*(Text(*cell) for cell in best))
        parts += [table, Text(grid.note.replace("in bold", where), style="dim")]
    whole = all(len(all_runs(r)) == r.settings["runs"] for r in study.results) and "Stopped" not in study.message
    return Group(*parts, Text.assemble(("✓ ", "green") if whole else ("✗ ", "red"), study.message))


def algorithm_facts() -> list[dict[str, Any]]:
    """Name, what it is, and hyper-parameters of every algorithm."""
    facts = []
    for name, kind in algorithms.ALGORITHMS.items():
        defaults = algorithms.settings_of(kind())
        facts.append(
            {
                "name": name,
                "objectives": "several" if kind.several_objectives else "one",
                "description": (kind.__doc__ or "").strip().splitlines()[0],
                "hyper-parameters": ", ".join(
                    f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in defaults.items()
                ),
            }
        )
    return facts


def problem_facts() -> list[dict[str, Any]]:
    """Name, size and optimum of every built-in problem."""
    facts = []
    for name in problems.PROBLEMS:
        problem = problems.get(name)
        if not isinstance(problem, Problem):
            sizes = problem.x_bounds.dim + problem.y_bounds.dim
            counts = {"objectives": 1, "ineq": 0, "eq": 0}
        else:
            x = jax.ShapeDtypeStruct((problem.dim,), np.float32)

            def count(function: Any, x: Any = x) -> int:
                return 0 if function is None else int(np.prod(jax.eval_shape(function, x).shape))

            sizes = problem.dim
            counts = {"objectives": count(problem.fun), "ineq": count(problem.ineq), "eq": count(problem.eq)}
        best = problem.optimum
        shown = "" if best is None else f"{best:.7g}"
        facts.append({"name": name, "variables": sizes, **counts, "best known": shown, "description": problem.title})
    return facts


def fact_table(title: str, facts: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    for name in facts[0]:
        long = name in ("description", "hyper-parameters")
        number = title == "problems" and name not in ("name", "description")
        table.add_column(
            SHORT.get(name, name),
            justify="right" if number else "left",
            no_wrap=not long,
        )
    for fact in facts:
        table.add_row(*(str(v) for v in fact.values()))
    return table
