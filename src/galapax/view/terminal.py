"""Results and registries as tables in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from galapax import algorithms, problems
from galapax.core.checks import pluralize
from galapax.core.problem import Problem
from galapax.results.many_answers import Illumination
from galapax.results.result import Result, all_runs, has_cells
from galapax.results.study import Study
from galapax.view.figure_data import (
    VERDICT_ENDED,
    VERDICT_FAILED,
    VERDICT_FOUND,
    method,
    verdict,
)
from galapax.view.summary_tables import (
    ACTIVE_NOTE,
    MAX_LISTED_ROWS,
    answer_notes,
    answer_values,
    build_tables,
    constraint_rows,
    front_rows,
    front_summary,
    minima_rows,
    run_rows,
)

VERDICT_MARKS = {VERDICT_FOUND: ("✓ ", "green"), VERDICT_ENDED: ("• ", "dim"), VERDICT_FAILED: ("✗ ", "red")}
N_MINIMA_FACTS = 3  # columns of the table of minima before its variables
MAX_WIDTH = 10_000  # of a table that is measured
SHORT_HEADINGS = {"variables": "vars", "objectives": "obj", "ineq": "g≤0", "eq": "h=0"}  # headings for 80 columns


def result_table(result: Result) -> RenderableType:
    """Tabulate a result: the answer first, then constraints, then evaluations and times."""
    problem, settings = result.problem, result.settings
    renderables: list[RenderableType] = []
    head = Text()
    head.append(f"{problem.title or problem.name}\n", style="bold")
    head.append(f"{method(result)}, seed {result.seed}, {settings['dtype']} on {settings['device']}\n", style="dim")
    head.append(*VERDICT_MARKS[verdict(result)])
    head.append(result.message)
    renderables.append(head)
    if "minima" in result and len(result.minima):
        renderables.append(MinimaTable(result))
    elif has_cells(result):
        renderables.append(Text("\n".join(Illumination(result).describe_map())))
    else:
        renderables.append(_front_table(result) if "F" in result and len(result.F) else _answer_table(result))
    constraints = _constraint_table(result)
    if constraints is not None:
        renderables.append(constraints)
    if result.runs is not None:
        renderables.append(_run_table(result))
    times = result.timings
    renderables.append(
        Text(
            f"{pluralize(result.nit, 'generation')}, {pluralize(result.nfev, 'evaluation')}"
            + (f" ({result.n_failed:,} failed)" if result.n_failed else "")
            + f"; {times['run']:.3g} s running, {times['compile']:.3g} s compiling, {times['host']:.3g} s other.",
            style="dim",
        )
    )
    renderables += [
        Text(f"failed: {f.error}, at x = {format_point(f.x)}", style="dim") for f in result.get("failures", ())[:3]
    ]
    return Group(*renderables)


def format_point(x: np.ndarray) -> str:
    """Format a point on one line."""
    return np.array2string(x, precision=6, threshold=10, edgeitems=4, separator=", ", max_line_width=10**6)


def _answer_table(result: Result) -> Table:
    problem = result.problem
    table = Table(title_justify="left", show_header=True, header_style="bold")
    for name in ("", "value", "lower", "upper"):
        table.add_column(name, justify="right" if name else "left")
    for name, value in answer_values(result):
        table.add_row(escape(problem.with_unit(name)), f"[bold]{value:.10g}[/]", "", "")
    for name, text in answer_notes(result):
        table.add_row(name, text, "", "")
    table.add_section()
    for i, name in list(enumerate(problem.variable_names()))[:MAX_LISTED_ROWS]:
        limits = ("", "") if problem.choices(i) else problem.limits(i)  # choices without an order have no bounds
        table.add_row(escape(problem.with_unit(name)), escape(problem.show(i, result.x[i])), *map(escape, limits))
    if problem.dim > MAX_LISTED_ROWS:
        table.add_row("…", f"{problem.dim - MAX_LISTED_ROWS} more", "", "")
    for name, value in result.get("derived", {}).items() if np.ndim(result.fun) == 0 else ():
        table.add_row(problem.with_unit(name), f"{value:.8g}", "", "")
    if "worst_case" in result:
        table.add_section()
        for i, value in list(enumerate(result.y))[:MAX_LISTED_ROWS]:
            table.add_row(f"worst y{i + 1}", f"{value:.8g}", "", "")
    return table


def _front_table(result: Result) -> RenderableType:
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


@dataclass(frozen=True)
class MinimaTable:
    """The table of minima, with as many variables as the terminal has room for."""

    result: Result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        n_variables = len(minima_rows(self.result)[0]) - N_MINIMA_FACTS - 1
        table = self.build(n_variables)
        while (
            n_variables
            and console.measure(table, options=options.update(max_width=MAX_WIDTH)).maximum > options.max_width
        ):
            n_variables -= 1
            table = self.build(n_variables)
        yield table
        n_hidden = self.result.problem.dim - n_variables
        if n_hidden:
            yield Text(
                f"{pluralize(n_hidden, 'more variable')} in --json, and in the files that --out saves.", style="dim"
            )

    def build(self, n_variables: int) -> Table:
        """Build the table with the first so many variables."""
        heads, rows = minima_rows(self.result)
        shown = [*range(N_MINIMA_FACTS + n_variables), len(heads) - 1]
        table = Table(header_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for i in shown:
            table.add_column(escape(heads[i]), justify="right", no_wrap=True)
        for row in rows[:MAX_LISTED_ROWS]:
            table.add_row(*(escape(row[i]) for i in shown))
        if len(rows) > MAX_LISTED_ROWS:
            table.add_row(f"and {len(self.result.minima) - MAX_LISTED_ROWS} more")
        return table


def _constraint_table(result: Result) -> Table | None:
    if result.ineq is None and result.eq is None:
        return None
    rows = constraint_rows(result)
    table = Table(
        header_style="bold", title_justify="left",
        title="at the best elite" if has_cells(result) else "at the knee" if "F" in result else None,
        caption=ACTIVE_NOTE if result.ineq is not None else None, caption_justify="left",
    )  # fmt: skip
    for name in ("constraint", "value", "needed", ""):
        table.add_column(name, justify="left" if name in ("constraint", "") else "right")
    for name, value, needed, state in rows[:MAX_LISTED_ROWS]:
        style = {"violated": "red", "active": "yellow"}.get(state, "")
        table.add_row(name, f"{value:.4g}", needed, f"[{style}]{state}[/]" if style else state)
    if len(rows) > MAX_LISTED_ROWS:
        table.add_row("…", f"{len(rows) - MAX_LISTED_ROWS} more", "", "")
    return table


def _run_table(result: Result) -> Table:
    table = Table(header_style="bold")
    table.add_column(f"over {pluralize(len(result.runs or ()), 'run')}")
    table.add_column("", justify="right")
    for row in run_rows(result):
        table.add_row(*row)
    return table


def study_tables(study: Study, bold: bool = True) -> RenderableType:
    """Tabulate a sweep or a comparison. bold: mark the best in bold; else by a star."""
    star, best_note = ("", "in bold") if bold else (" *", "marked *")
    renderables: list[RenderableType] = []
    for grid in build_tables(study):
        table = Table(title=grid.title, title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD)
        table.padding = (0, 1, 0, 0)
        for i, name in enumerate(grid.header):
            table.add_column(name, justify="right" if i else "left")
        for row in grid.rows:
            best = ((f"{cell.text}{star}", "bold green") if cell.bold else (cell.text, "") for cell in row)
            table.add_row(*(Text(*cell) for cell in best))
        renderables += [table, Text(grid.note.replace("in bold", best_note), style="dim")]
    is_complete = all(len(all_runs(r)) == r.settings["runs"] for r in study.results) and "Stopped" not in study.message
    return Group(*renderables, Text.assemble(("✓ ", "green") if is_complete else ("✗ ", "red"), study.message))


def algorithm_facts() -> list[dict[str, str]]:
    """Name, what it is, and hyper-parameters of every algorithm."""
    facts = []
    for name, kind in (algorithms.ALGORITHMS | algorithms.MODEL_ALGORITHMS).items():
        defaults = algorithms.plain_settings(kind())
        facts.append(
            {
                "name": name,
                "objectives": "several" if kind.traits.multi_objective else "one",
                "description": (kind.__doc__ or "").strip().splitlines()[0],
                "hyper-parameters": ", ".join(
                    f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in defaults.items()
                ),
            }
        )
    return facts


def problem_facts() -> list[dict[str, str | int]]:
    """Name, size and optimum of every built-in problem."""
    facts = []
    for name in problems.PROBLEMS:
        problem = problems.get(name)
        if not isinstance(problem, Problem):
            sizes = problem.x_bounds.dim + problem.y_bounds.dim
            counts = {"objectives": 1, "ineq": 0, "eq": 0}
        else:
            x = jax.ShapeDtypeStruct((problem.dim,), np.float32)

            def count(function: Callable[..., object] | None, x: jax.ShapeDtypeStruct = x) -> int:
                return 0 if function is None else int(np.prod(jax.eval_shape(function, x).shape))

            sizes = problem.dim
            counts = {"objectives": count(problem.fun), "ineq": count(problem.ineq), "eq": count(problem.eq)}
        best_known = problem.optimum
        optimum = "" if best_known is None else f"{best_known:.7g}"
        facts.append({"name": name, "variables": sizes, **counts, "best known": optimum, "description": problem.title})
    return facts


def fact_table(title: str, facts: Sequence[Mapping[str, object]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    for name in facts[0]:
        is_long = name in ("description", "hyper-parameters")
        is_number = title == "problems" and name not in ("name", "description")
        table.add_column(
            SHORT_HEADINGS.get(name, name),
            justify="right" if is_number else "left",
            no_wrap=not is_long,
        )
    for fact in facts:
        table.add_row(*(str(v) for v in fact.values()))
    return table
