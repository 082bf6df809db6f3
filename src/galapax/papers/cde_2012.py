"""Fabris & Krohling (2012), co-evolutionary differential evolution on graphics hardware: tables 2 to 6.

`galapax reproduce cde`, or `python -m galapax.papers.cde_2012` where the command line's extras are missing.

The paper ran six problems, one min-max problem and five constrained ones, 20 times each, with 200 cycles of 20
generations of x and 20 of y, on an Athlon X2 and a GeForce GTX 285, in single precision. Here they run in double
precision, as one batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from galapax import problems
from galapax.algorithms.cde import CoevolutionaryDE
from galapax.api.minimax import minimax
from galapax.api.minimize import minimize
from galapax.core.options import Keep
from galapax.core.problem import MinMaxProblem
from galapax.operators.variation import best_1, rand_1
from galapax.papers.reproduction import Log, Measurement, describe_machine, main
from galapax.results.result import Result, all_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CDE_PROBLEMS = {"P1": "cde_p1", "P2": "g01", "P3": "g07", "P4": "g09", "P5": "g10", "P6": "spring"}
DE_VARIANTS = {"rand/1/bin": rand_1, "best/1/bin": best_1}
CDE_POPULATIONS = (50, 100)
N_CYCLES, N_RUNS = 200, 20
# tables 3 and 5: best, median, mean, standard deviation, worst. Their headings of median and mean are exchanged (as
# printed, some means could not be means of values between best and worst); here each number is under its right name.
PAPER_VALUES = {
    "rand/1/bin": {
        "P1": (0.0, 0.0, 0.0, 0.0, 0.0),
        "P2": (-15.0, -15.0, -14.87, 0.56, -12.45),
        "P3": (24.47, 24.48, 24.48, 0.0, 24.51),
        "P4": (680.63, 680.63, 680.63, 0.0, 680.63),
        "P5": (7047.83, 7048.03, 7049.34, 2.1, 7054.14),
        "P6": (0.01, 0.01, 0.01, 0.0, 0.01),
    },
    "best/1/bin": {
        "P1": (0.0, 0.0, 0.0, 0.02, -0.09),
        "P2": (-15.0, -13.83, -13.76, 3.74, -11.28),
        "P3": (24.47, 24.48, 24.48, 0.01, 24.49),
        "P4": (680.63, 680.63, 680.63, 0.0, 680.64),
        "P5": (7047.87, 7052.44, 7066.34, 32.74, 7184.93),
        "P6": (0.01, 0.01, 0.01, 0.0, 0.01),
    },
}
# tables 2, 4 and 6: milliseconds of a run on the GPU and on the CPU, by variant and population
CDE_PAPER_TIMES = {
    ("rand/1/bin", 50): {
        "P1": (4584.8, 19800.5), "P2": (934.0, 3910.0), "P3": (866.2, 8355.0),
        "P4": (674.7, 7620.0), "P5": (683.3, 2955.0), "P6": (550.8, 7395.0),
    },
    ("best/1/bin", 50): {
        "P1": (5277.0, 19690.0), "P2": (1405.2, 3710.0), "P3": (1376.8, 8145.0),
        "P4": (1186.1, 7510.0), "P5": (1187.7, 2800.0), "P6": (1173.0, 7435.0),
    },
    ("rand/1/bin", 100): {
        "P1": (5006.8, 90251.0), "P2": (1300.1, 14852.9), "P3": (1162.0, 32673.0),
        "P4": (858.2, 29993.0), "P5": (907.0, 11384.0), "P6": (486.5, 29210.0),
    },
}  # fmt: skip


def measure(quick: bool, log: Log = lambda line: None) -> Measurement:
    """Run everything on the device that JAX uses here."""
    cycles, runs = (20, 5) if quick else (N_CYCLES, N_RUNS)
    out: Measurement = {**describe_machine(), "dtype": "float64", "cycles": cycles, "runs": runs, "cells": {}}
    for variant, mutation in DE_VARIANTS.items():
        for n in CDE_POPULATIONS:
            if (variant, n) not in CDE_PAPER_TIMES or (quick and n > 50):
                continue
            for name in CDE_PROBLEMS:
                algorithm = CoevolutionaryDE(population=n, mutation=mutation)
                result = _solve(name, algorithm, cycles, runs)
                cell: Measurement = {"values": _summarize_runs(result), "batch": result.timings["run"]}
                cell["feasible"] = float(all_runs(result).feasible.mean())
                if not quick:
                    _solve(name, algorithm, cycles, 1)
                    cell["alone"] = min(_solve(name, algorithm, cycles, 1).timings["run"] for _ in range(2))
                out["cells"][f"{variant} {n} {name}"] = cell
                log(
                    f"{variant}, n = {n}, {name}: median {cell['values'][1]:.6g}, {cell['batch']:.3g} s for {runs} runs"
                )
    return out


def _solve(name: str, algorithm: CoevolutionaryDE, cycles: int, runs: int) -> Result:
    problem = problems.get(CDE_PROBLEMS[name])
    generations = cycles * algorithm.x_generations
    if isinstance(problem, MinMaxProblem):
        return minimax(
            problem, algorithm=algorithm, generations=generations, runs=runs, progress=False, keep=Keep(history=False)
        )
    return minimize(
        problem,
        algorithm,
        generations=generations,
        tolerance=0,
        polish=False,
        runs=runs,
        progress=False,
        keep=Keep(history=False),
    )


def _summarize_runs(result: Result) -> list[float]:
    """Best, median, mean, standard deviation and worst of the runs that found something feasible."""
    runs = all_runs(result)
    values = runs.fun[runs.feasible]
    if not values.size:
        return [float("nan")] * 5
    return [float(v) for v in (values.min(), np.median(values), values.mean(), values.std(), values.max())]


def tables(measurements: dict[str, Measurement]) -> str:
    first = next(iter(measurements.values()))
    heads = ("best", "median", "mean", "std", "worst")
    lines = [
        f"Co-evolutionary DE, {first['cycles']} cycles of 20 + 20 generations, {first['runs']} runs a batch, float64. "
        + "; ".join(f"{name}: {c['device']}, {c['machine']}" for name, c in measurements.items())
        + f"; jax {first['versions']['jax']}. Values are of feasible points (constraints to 1e-6, equalities to 1e-4)."
    ]
    for number, variant in ((3, "rand/1/bin"), (5, "best/1/bin")):
        lines += ["", f"{f'Table {number}: values, {variant}, n = 50':<40}" + "".join(f"{h:>13}" for h in heads)]
        for name, problem in CDE_PROBLEMS.items():
            for place, column in measurements.items():
                cell = column["cells"][f"{variant} 50 {name}"]
                values = "".join(f"{v:>13.6g}" for v in cell["values"])
                share = "" if cell["feasible"] == 1 else f"  {cell['feasible']:.0%} feasible"
                lines.append(f"{f'  {name} ({problem}), {place}':<40}{values}{share}")
            printed = "".join(f"{v:>13.6g}" for v in PAPER_VALUES[variant][name])
            lines.append(f"{'    paper':<40}{printed}")
    lines.append(
        "  The paper's best of P5 lies below the minimum, 7049.248: it lists penalised values of infeasible points."
    )
    for number, (variant, n) in ((2, ("rand/1/bin", 50)), (4, ("best/1/bin", 50)), (6, ("rand/1/bin", 100))):
        if f"{variant} {n} P1" not in first["cells"]:
            continue
        title = f"Table {number}: milliseconds, {variant}, n = {n}"
        lines += ["", f"{title:<48}" + "".join(f"{p:>10}" for p in CDE_PROBLEMS)]
        for place, column in measurements.items():
            cells = [column["cells"][f"{variant} {n} {p}"] for p in CDE_PROBLEMS]
            if "alone" in cells[0]:
                lines.append(f"{f'  {place}, a run alone':<48}" + _format_row(1e3 * c["alone"] for c in cells))
            share = 1e3 / column["runs"]
            lines.append(f"{f'  {place}, a run of the batch':<48}" + _format_row(share * c["batch"] for c in cells))
        for i, place in enumerate(("GPU", "CPU")):
            lines.append(
                f"{f'  paper, {place}':<48}" + _format_row(CDE_PAPER_TIMES[variant, n][p][i] for p in CDE_PROBLEMS)
            )
        if n == 100:
            for place, column in measurements.items():
                for kind in ("alone", "batch"):
                    pairs = [
                        [column["cells"][f"{variant} {m} {p}"][kind] for m in CDE_POPULATIONS] for p in CDE_PROBLEMS
                    ]
                    lines.append(
                        f"{f'  growth from n = 50, {place}, {kind}':<48}" + _format_row(b / a for a, b in pairs)
                    )
            for i, place in enumerate(("GPU", "CPU")):
                pairs = [[CDE_PAPER_TIMES[variant, m][p][i] for m in CDE_POPULATIONS] for p in CDE_PROBLEMS]
                lines.append(f"{f'  growth from n = 50, paper, {place}':<48}" + _format_row(b / a for a, b in pairs))
    return "\n".join(lines)


def _format_row(values: Iterable[float]) -> str:
    return "".join(f"{v:>10.4g}" for v in values)


def figures(measurements: dict[str, Measurement]) -> dict[str, Figure]:
    """Draw the milliseconds of a run, problem by problem."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    bars: dict[str, list[float]] = {
        f"{place}, a run of the batch": [
            1e3 * column["cells"][f"rand/1/bin 50 {p}"]["batch"] / column["runs"] for p in CDE_PROBLEMS
        ]
        for place, column in measurements.items()
    }
    bars |= {
        f"paper, {place}": [CDE_PAPER_TIMES["rand/1/bin", 50][p][i] for p in CDE_PROBLEMS]
        for i, place in enumerate(("GPU", "CPU"))
    }
    width = 0.8 / len(bars)
    for i, (label, values) in enumerate(bars.items()):
        colour = ("#0072B2", "#E69F00", "#009E73", "#D55E00")[i]
        axes.bar(np.arange(len(CDE_PROBLEMS)) + i * width, values, width, label=label, color=colour)
    axes.set_yscale("log")
    axes.set_xticks(np.arange(len(CDE_PROBLEMS)) + 0.4 - width / 2, list(CDE_PROBLEMS))
    axes.set_ylabel("milliseconds a run")
    axes.set_title(f"CDE/rand/1/bin, n = 50, {next(iter(measurements.values()))['cycles']} cycles", loc="left")
    axes.legend(frameon=False)
    axes.grid(alpha=0.25, axis="y")
    return {"times.png": figure}


if __name__ == "__main__":
    main("cde")
