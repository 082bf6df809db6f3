"""A saved run as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from galapax.result import Result
from galapax.study import Study
from galapax.view import plots, tables
from galapax.view.terminal import constraint_rows, front_rows, front_summary, run_rows

STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #6a737d; --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --soft: #9198a1; --good: #3fb950; --bad: #f85149; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2rem; }
p.sub { color: var(--soft); margin-top: 0.2rem; }
p.message { border-left: 4px solid var(--good); padding-left: 0.8rem; } p.message.failed { border-color: var(--bad); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.25rem 1rem 0.25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n { text-align: right; } div.wide { overflow-x: auto; }
img { max-width: 100%; height: auto; background: white; border-radius: 6px; }
.violated { color: var(--bad); } .active { font-weight: 600; }
"""


def page(result: Result) -> str:
    """The report: the answer, constraints, runs, convergence, cost, and everything needed to repeat it."""
    problem = result.problem
    title = f"{problem.title or problem.name} · {result.settings['algorithm']}"
    parts = [
        f"<h1>{escape(problem.title or problem.name)}</h1>",
        f'<p class="sub">{escape(result.settings["algorithm"])}, seed {result.seed}'
        + (f", {len(result.runs)} runs" if result.runs is not None else "")
        + "</p>",
        f'<p class="message{"" if result.success else " failed"}">{escape(result.message)}</p>',
    ]
    if "F" in result and len(result.F):
        heads, values, recipe = front_rows(result)
        parts += [
            "<h2>Front</h2>",
            f"<p>{escape(front_summary(result))}</p>",
            _table(["", "unit", *heads], values + recipe),
        ]
    else:
        parts += ["<h2>Answer</h2>", _table(["", "value", "from", "to"], _answer_rows(result))]
    if result.ineq is not None or result.eq is not None:
        rows = [(name, f"{value:.6g}", needed, state) for name, value, needed, state in constraint_rows(result)]
        parts += ["<h2>Constraints</h2>", _table(["constraint", "value", "needed", ""], rows)]
    if result.runs is not None:
        parts += ["<h2>Runs</h2>", _table(["", ""], run_rows(result))]
    parts += ["<h2>Convergence</h2>", _picture(plots.convergence(result), "convergence by generation")]
    parts += ["<h2>Cost</h2>", _table(["", ""], _cost_rows(result))]
    parts += ["<h2>Settings</h2>", _table(["", ""], _setting_rows(result.settings))]
    return _document(title, parts)


def study_page(study: Study) -> str:
    """The report of a sweep or a comparison."""
    title = "Comparison of algorithms" if study.kind == "comparison" else "Sweep over hyper-parameters"
    axes = "; ".join(f"{name}: {', '.join(map(str, values))}" for name, values in study.axes.items())
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="sub">{escape(axes)}</p>',
        f'<p class="message">{escape(study.message)}</p>',
    ]
    for grid in tables.grids(study):
        parts += [f"<h2>{escape(grid.title)}</h2>", tables.html(grid)]
    parts += ["<h2>Convergence</h2>", _picture(plots.study_convergence(study), "convergence by evaluations")]
    if study.kind == "comparison":
        parts += ["<h2>Share of targets reached</h2>", _picture(plots.running_times(study), "running times")]
        tests = [
            (problem, t.first, t.second, f"{t.p:.3g}", f"{t.adjusted:.3g}", f"{t.effect:.2f}")
            for problem in study.axes["problem"]
            if len(study.along("algorithm", problem=problem)) > 1
            for t in study.tests(problem)
        ]
        names = ["problem", "first", "second", "p", "p, Holm", "effect (chance that first is better)"]
        parts += ["<h2>Pairs</h2>", _table(names, tests)]
    settings = study.results[0].settings
    shared = {k: settings[k] for k in ("runs", "seed", "dtype", "device", "maximize", "versions")}
    if study.kind == "sweep":
        shared = {k: settings[k] for k in ("problem", "algorithm", "generations", "stall")} | shared
    parts += ["<h2>Settings</h2>", _table(["", ""], _setting_rows(shared))]
    return _document(title, parts)


def _document(title: str, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _answer_rows(result: Result) -> list[Any]:
    bounds = result.problem.bounds
    what = ["maximum" if result.settings["maximize"] else "minimum"]
    what = what if np.ndim(result.fun) == 0 else result.problem.objective_names(len(result.fun))
    rows = [(name, f"{value:.12g}", "", "") for name, value in zip(what, np.atleast_1d(result.fun), strict=True)]
    if result.problem.optimum is not None:
        rows.append(("best known", f"{result.problem.optimum:.12g}", "", ""))
    for i, name in enumerate(result.problem.variable_names()):
        rows.append((name, f"{result.x[i]:.10g}", f"{bounds.lower[i]:g}", f"{bounds.upper[i]:g}"))
    return rows


def _cost_rows(result: Result) -> list[Any]:
    rows = [("generations", f"{result.nit:,}"), ("evaluations", f"{result.nfev:,}"), ("failed", f"{result.n_failed:,}")]
    return rows + [(f"seconds, {name}", f"{value:.4g}") for name, value in result.timings.items()]


def _setting_rows(settings: dict[str, Any]) -> list[Any]:
    rows = []
    for name, value in settings.items():
        if isinstance(value, dict):
            rows.append((name, ", ".join(f"{k} {v}" for k, v in value.items())))
        elif value is not None:
            rows.append((name, str(value)))
    return rows


def _table(names: list[str], rows: list[Any]) -> str:
    head = "".join(f"<th>{escape(n)}</th>" for n in names) if any(names) else ""
    lines = [f"<tr>{head}</tr>"] if head else []
    for row in rows:
        cells = "".join(
            f'<td class="{escape(str(c)) if c in ("violated", "active") else ""}">{escape(str(c))}</td>' for c in row
        )
        lines.append(f"<tr>{cells}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _picture(figure: Figure, alt: str) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{alt}" src="data:image/png;base64,{data}">'
