"""What benchmarks/bbob.py makes of runs: tables beside the archived anchors, a picture, COCO data folders."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from bbob_runs import FINAL, TARGETS

ANCHORS = Path(__file__).parent / "data" / "bbob_anchors.csv"  # from the COCO data archive, evaluations (ERT)
ANCHOR_TARGETS = ("1e1", "1e-1", "1e-3", "1e-5", "1e-7")
DECADES = [10.0**exponent for exponent in range(1, -9, -1)]

Runs = list[dict[str, Any]]


def hits_at(runs: Runs, target: float) -> list[int | None]:
    """Evaluations of each run until the target, None where it was missed."""
    place = int(np.argmin(np.abs(np.log10(TARGETS) - math.log10(target))))
    return [run["hits"][place] for run in runs]


def ert(runs: Runs, target: float) -> float:
    """Expected running time: evaluations of all runs up to the target, over the number of runs that reached it."""
    hits = hits_at(runs, target)
    spent = sum(run["evaluations"] if hit is None else hit for run, hit in zip(runs, hits, strict=True))
    reached = sum(hit is not None for hit in hits)
    return spent / reached if reached else math.inf


def solved(runs: Runs, targets: Iterable[float]) -> float:
    """Share of (run, target) that was reached."""
    return float(np.mean([hit is not None for target in targets for hit in hits_at(runs, target)]))


def anchors() -> dict[str, dict[tuple[int, int], dict[str, float]]]:
    """{algorithm: {(dim, function): {target or "hits": number}}}."""
    out: dict[str, dict[tuple[int, int], dict[str, float]]] = {}
    with ANCHORS.open(newline="") as file:
        for row in csv.DictReader(file):
            numbers = {name: float(row[name]) for name in (*ANCHOR_TARGETS, "hits")}
            out.setdefault(row["algorithm"], {})[int(row["dim"]), int(row["function"])] = numbers
    return out


def select(runs: Runs, **wanted: int) -> Runs:
    return [run for run in runs if all(run[name] == value for name, value in wanted.items())]


def tables(results: list[dict[str, Any]]) -> str:
    """A table for each dimension, the results side by side with the anchors."""
    dims = sorted({run["dim"] for result in results for run in result["runs"]})
    return "\n\n".join(_table(results, dim) for dim in dims)


def _table(results: list[dict[str, Any]], dim: int) -> str:
    known = {name: rows for name, rows in anchors().items() if (dim, 1) in rows}
    labels = [result["label"] for result in results]
    functions = sorted({run["function"] for result in results for run in select(result["runs"], dim=dim)})
    rows = []
    for function in functions:
        row = [str(function)]
        for result in results:
            runs = select(result["runs"], dim=dim, function=function)
            hits = [hit is not None for hit in hits_at(runs, FINAL)]
            row += [f"{solved(runs, DECADES):.0%}", f"{sum(hits)}/{len(hits)}", _count(ert(runs, 1e-7))]
            row[-3:] = row[-3:] if runs else ["", "", ""]
        for found in known.values():
            hits_of = found[dim, function]["hits"]
            row.append(_count(found[dim, function]["1e-7"]) + (f" ({hits_of:.0f})" if hits_of < 15 else ""))
        rows.append(row)
    heads = ["f", *(head for label in labels for head in (f"{label}: targets", "1e-8", "ERT 1e-7")), *known]
    lines = [f"{dim}-D: ERT at 1e-7 in evaluations; of anchors, (runs of 15 that reached 1e-8) if not all", ""]
    lines += _markdown(heads, rows)
    lines.append("")
    for result in results:
        runs = select(result["runs"], dim=dim)
        if runs:
            lines.append(
                f"{result['label']}: {solved(runs, DECADES):.1%} of (function, instance, target) over 1e1 .. 1e-8, "
                f"{solved(runs, [FINAL]):.1%} of runs at 1e-8; {result['budget']} x {dim} evaluations a run; "
                f"{sum(run['seconds'] for run in runs):.0f} s in all, compilation included"
            )
    return "\n".join(lines)


def _count(value: float) -> str:
    if math.isinf(value):
        return "inf"
    return f"{value:.0f}" if value < 1e4 else f"{value:.2e}".replace("e+0", "e")


def _markdown(heads: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(2, *map(len, column)) for column in zip(heads, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return [line(heads), "| " + " | ".join("-" * (width - 1) + ":" for width in widths) + " |", *map(line, rows)]


def draw(results: list[dict[str, Any]], file: Path) -> None:
    """Share of (function, instance, target) reached by evaluations, over 51 targets; anchors by their ERT at five."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    dims = sorted({run["dim"] for result in results for run in result["runs"]})
    figure, axes = plt.subplots(1, len(dims), figsize=(1.5 + 5 * len(dims), 4.5), sharey=True, squeeze=False)
    for axis, dim in zip(axes[0], dims, strict=True):
        for result in results:
            runs = select(result["runs"], dim=dim)
            if runs:
                lengths = [hit for run in runs for hit in run["hits"]]
                _step(axis, lengths, dim, label=result["label"], linewidth=2)
                axis.axvline(result["budget"], color="0.85", zorder=0)
        functions = {run["function"] for result in results for run in select(result["runs"], dim=dim)}
        for name, found in anchors().items():
            wanted = [found[dim, function] for function in functions if (dim, function) in found]
            lengths = [numbers[target] for numbers in wanted for target in ANCHOR_TARGETS]
            if lengths:
                _step(axis, lengths, dim, label=f"{name} (ERT)", linestyle=":", linewidth=1)
        axis.set(xscale="log", ylim=(0, 1), title=f"BBOB, {dim}-D", xlabel="evaluations / dimension")
    axes[0, 0].set_ylabel("share of targets reached")
    axes[0, -1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    figure.tight_layout()
    figure.savefig(file, dpi=150)
    plt.close(figure)


def _step(axis: Any, lengths: list[Any], dim: int, **style: Any) -> None:
    reached = np.sort([length for length in lengths if length is not None and math.isfinite(length)]) / dim
    axis.step(reached, np.arange(1, len(reached) + 1) / len(lengths), where="post", **style)


# --- COCO data folders ------------------------------------------------------------------------------------------------


def write_coco(result: dict[str, Any], folder: Path) -> None:
    """A folder that cocopp reads, named like the algorithm in it."""
    from galapax.problems.bbob import optimal_value

    functions = sorted({run["function"] for run in result["runs"]})
    for function in functions:
        blocks = []
        for dim in sorted({run["dim"] for run in select(result["runs"], function=function)}):
            runs = sorted(select(result["runs"], function=function, dim=dim), key=lambda run: run["instance"])
            stem = f"data_f{function}/bbobexp_f{function}_DIM{dim}"
            ends = ", ".join(f"{run['instance']}:{run['evaluations']}|{_precision(run['final'])}" for run in runs)
            blocks.append(
                f"suite = 'bbob', funcId = {function}, DIM = {dim}, Precision = 1.000e-08, algId = "
                f"'{result['label']}', coco_version = '2.8.2', logger = 'bbob', data_format = 'bbob-new2'\n"
                f"% {result['about']}\n{stem}.dat, {ends}"
            )
            (folder / stem).parent.mkdir(parents=True, exist_ok=True)
            for ending, rows_of in ((".dat", _rows_by_target), (".tdat", _rows_by_evaluation)):
                text = "".join(_section(run, rows_of(run), optimal_value(function, run["instance"])) for run in runs)
                (folder / f"{stem}{ending}").write_text(text)
        (folder / f"bbobexp_f{function}.info").write_text("\n".join(blocks))


def _precision(value: float) -> str:
    return f"{max(value, 0.0):.1e}"


def _section(run: dict[str, Any], rows: list[tuple[int, float]], f_opt: float) -> str:
    head = (
        f"% f evaluations | g evaluations | best noise-free fitness - Fopt ({f_opt:.12e}) + sum g_i+ | "
        "measured fitness | best measured fitness or single-digit g-values | x1 | x2...\n"
    )
    return head + "".join(f"{count} 0 {best:+.9e} {best + f_opt:+.9e} {best + f_opt:+.9e}\n" for count, best in rows)


def _rows_by_target(run: dict[str, Any]) -> list[tuple[int, float]]:
    rows = [(count, best) for count, best in run["trace"]]
    return rows if rows[-1][0] == run["evaluations"] else [*rows, (run["evaluations"], run["final"])]


def _rows_by_evaluation(run: dict[str, Any]) -> list[tuple[int, float]]:
    """At 10^(k/20) evaluations and at 1, 2 and 5 times powers of ten times the dimension, and at the end."""
    last, dim = run["evaluations"], run["dim"]
    powers = range(int(20 * math.log10(last)) + 1)
    wanted = {int(10 ** (k / 20)) for k in powers} | {f * dim * 10 ** (k // 20) for k in powers for f in (1, 2, 5)}
    counts = [count for count, _ in run["trace"]]
    rows = []
    for count in sorted(w for w in wanted if counts[0] <= w < last):
        rows.append((count, run["trace"][int(np.searchsorted(counts, count, "right")) - 1][1]))
    return [*rows, (last, run["final"])]
