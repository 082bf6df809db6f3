"""Hu, Qi & Qian (2015), a parallel multi-objective evolutionary algorithm: tables 2 to 6, and fronts.

`galapax reproduce moea`, or `python -m galapax.papers.moea_2015` where the command line's extras are missing.

The paper ran four ZDT variants and gasoline blending, 100 generations, 20 trials each, with NSGA-II and NPGA on a Core
i3 M380 and its own algorithm on a GeForce GT 540M, and prints mean times alone. Here each of the three runs on each
device, one trial after another as there; and since nothing is gained by a fast run that finds nothing, the share of the
exact hypervolume that it covers and its distance from the true front are printed too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from galapax import problems
from galapax.algorithms.npga import NPGA
from galapax.algorithms.nsga2 import NSGA2
from galapax.algorithms.sharing_moea import SharingMOEA
from galapax.api.minimize import minimize
from galapax.core.options import Compute, Keep
from galapax.core.problem import Problem
from galapax.metrics import indicators
from galapax.numerics import devices
from galapax.papers.reproduction import Log, Measurement, describe_machine, main
from galapax.results.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOEA_PROBLEMS = {
    "ZDT1": "moea_zdt1",
    "ZDT2": "moea_zdt2",
    "ZDT3": "moea_zdt3",
    "ZDT6": "moea_zdt6",
    "ZDT6, 6 pi": "moea_zdt6_6pi",
    "blending": "blending",
}
MOEA_ALGORITHMS: dict[str, type[NSGA2] | type[NPGA] | type[SharingMOEA]] = {
    "NSGA-II": NSGA2,
    "NPGA": NPGA,
    "MOEA": SharingMOEA,
}
MOEA_POPULATIONS = (1024, 2048, 4096)
MOEA_GENERATIONS, N_TRIALS = 100, 20
MAX_TRIAL_SECONDS = (20.0, 3.0)  # for all trials of population 1024, and of a larger one: after it no trial is begun
N_FRONT_POINTS = 1000  # points of the true front
# tables 2 to 6: mean seconds of NSGA-II and NPGA on the CPU and of the paper's algorithm on the GPU, by population
MOEA_PAPER_TIMES = {
    "ZDT1": ((38.13, 33.241, 1.616), (150.238, 132.107, 5.487), (600.891, 544.516, 19.717)),
    "ZDT2": ((37.354, 31.232, 1.799), (142.619, 124.227, 5.717), (570.674, 510.278, 20.906)),
    "ZDT3": ((37.71, 33.616, 1.754), (146.939, 133.197, 5.564), (616.045, 560.056, 19.739)),
    "ZDT6": ((34.234, 30.022, 1.676), (131.755, 120.309, 5.826), (519.933, 480.713, 21.392)),
    "blending": ((34.721, 33.494, 1.537), (132.737, 135.713, 5.373), (529.958, 590.514, 19.554)),
}
PAPER_DEVICES = {"NSGA-II": "Core i3 M380", "NPGA": "Core i3 M380", "MOEA": "GeForce GT 540M"}


def measure(quick: bool, log: Log = lambda line: None) -> Measurement:
    """Run everything on the device that JAX uses here."""
    trials, began = 2 if quick else N_TRIALS, time.perf_counter()
    out: Measurement = {**describe_machine(), "trials": trials, "cells": {}, "fronts": {}}
    cells = [
        (name, kind, n)
        for name in MOEA_PROBLEMS
        for kind in MOEA_ALGORITHMS
        for n in MOEA_POPULATIONS
        if not (quick and n > MOEA_POPULATIONS[0]) and not (name == "ZDT6, 6 pi" and (quick or n > MOEA_POPULATIONS[0]))
    ]
    log(f"compiling {len(cells)} programs")
    # on a CPU the program is the same for any number of generations
    length = 1 if devices.on_cpu() else MOEA_GENERATIONS
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda cell: _solve(cell[0], cell[1], cell[2], seed=0, generations=length), cells))
    for name, kind, n in cells:
        results: list[Result] = []
        while len(results) < trials:
            results.append(_solve(name, kind, n, seed=len(results)))
            if sum(r.timings["run"] for r in results) > MAX_TRIAL_SECONDS[n > MOEA_POPULATIONS[0]]:
                break
        cell = _summarize_trials(name, results)
        out["cells"][f"{name} {kind} {n}"] = cell
        if n == MOEA_POPULATIONS[0]:
            out["fronts"][f"{name} {kind}"] = _thin_front(results[0].F).tolist()
        log(f"{name}, {kind}, N = {n}: {cell['seconds']:.3g} s, {cell['hypervolume'][1]:.2%} of the hypervolume")
    out["minutes"] = (time.perf_counter() - began) / 60
    return out


def _get_problem(name: str) -> Problem:
    problem = problems.get(MOEA_PROBLEMS[name])
    assert isinstance(problem, Problem)
    return problem


def _solve(name: str, kind: str, n: int, seed: int, generations: int = MOEA_GENERATIONS) -> Result:
    """Run one trial, in single precision without constraints and in double with them."""
    problem = _get_problem(name)
    dtype = "float32" if problem.ineq is None else "float64"
    algorithm = NSGA2(population=n, published=True) if kind == "NSGA-II" else MOEA_ALGORITHMS[kind](population=n)
    return minimize(
        problem,
        algorithm,
        generations=generations,
        seed=seed,
        progress=False,
        keep=Keep(history=False),
        compute=Compute(dtype=dtype),
    )


def _summarize_trials(name: str, results: list[Result]) -> Measurement:
    """Summarise the trials of one algorithm and population: seconds, hypervolume, distances to the true front."""
    problem = _get_problem(name)
    assert problem.hypervolume is not None and problem.front is not None
    true = problem.front(N_FRONT_POINTS)
    low, span = true.min(axis=0), np.ptp(true, axis=0)
    shares = [float(r.hypervolume or 0.0) / problem.hypervolume for r in results]
    distance = {"igd": indicators.igd, "igd_plus": indicators.igd_plus}
    return {
        "trials": len(results),
        "seconds": float(np.mean([r.timings["run"] for r in results])),
        "hypervolume": [float(v) for v in (np.min(shares), np.median(shares), np.max(shares))],
        # of objectives in units of the true front's range
        **{
            key: float(np.median([f((r.F - low) / span, (true - low) / span) if len(r.F) else np.inf for r in results]))
            for key, f in distance.items()
        },
        "points": float(np.median([len(r.F) for r in results])),
    }


def _thin_front(front: np.ndarray, max_points: int = 60) -> np.ndarray:
    """Take at most `max_points` points of a front (k, 2), evenly along it."""
    rows = np.argsort(front[:, 0])
    return (
        front[rows[np.unique(np.linspace(0, len(rows) - 1, max_points).astype(int))]]
        if len(rows) > max_points
        else front
    )


def tables(measurements: dict[str, Measurement]) -> str:
    first = next(iter(measurements.values()))
    lines = [
        f"NSGA-II, NPGA and the paper's MOEA: {MOEA_GENERATIONS} generations, {first['trials']} trials; ZDT in "
        "float32, blending in float64. "
        + "; ".join(
            f"{place}: {c['device']}, {c['machine']}, measured in {c['minutes']:.1f} minutes"
            for place, c in measurements.items()
        )
        + f"; jax {first['versions']['jax']}. The paper: "
        + "; ".join(f"{kind} on a {device}" for kind, device in PAPER_DEVICES.items())
        + ".",
    ]
    for number, name in enumerate(MOEA_PAPER_TIMES, start=2):
        title = f"Table {number}: {name}, mean seconds a run"
        heads = ("NSGA-II", "NPGA", "MOEA", "NSGA-II/MOEA", "NPGA/MOEA")
        lines += ["", f"{title:<44}" + "".join(f"{h:>14}" for h in heads)]
        for i, n in enumerate(MOEA_POPULATIONS):
            if f"{name} MOEA {n}" not in first["cells"]:
                continue
            lines.append(_format_times(f"N = {n}, paper: CPU, CPU, GPU", MOEA_PAPER_TIMES[name][i]))
            ours = {
                place: [column["cells"][f"{name} {kind} {n}"]["seconds"] for kind in MOEA_ALGORITHMS]
                for place, column in measurements.items()
            }
            if "GPU" in ours:
                lines.append(_format_times(f"N = {n}, here: CPU, CPU, GPU", [*ours["CPU"][:2], ours["GPU"][2]]))
            for place, seconds in ours.items():
                lines.append(_format_times(f"N = {n}, here: all on the {place}", seconds))
    lines += [
        "  The last two columns are the paper's speed-ups, of devices and algorithms together. Here the MOEA compares",
        "  all with all, as the paper's does, while NSGA-II ranks two objectives by sorting, which takes less time.",
    ]
    headings = ("median", "least", "greatest", "IGD", "IGD+", "points", "trials")
    lines += ["", f"{'Share of the exact hypervolume, and distance':<44}" + "".join(f"{h:>11}" for h in headings)]
    for name in MOEA_PROBLEMS:
        for n in MOEA_POPULATIONS:
            for kind in MOEA_ALGORITHMS:
                for place, column in measurements.items():
                    cell = column["cells"].get(f"{name} {kind} {n}")
                    if cell is None:
                        continue
                    least, median, most = cell["hypervolume"]
                    label = f"  {name}, N = {n}, {kind}, {place}"
                    shares = "".join(f"{v:>11.2%}" for v in (median, least, most))
                    distance = f"{cell['igd']:>11.2g}{cell['igd_plus']:>11.2g}"
                    lines.append(f"{label:<44}{shares}{distance}{cell['points']:>11.0f}{cell['trials']:>11}")
    lines += [
        "  The paper prints none of these. IGD and IGD+ are medians, in units of the true front's range; points is how",
        "  many the front has, the median. ZDT6 has 4 pi in its sine as printed; 6 pi is usual. With constraints",
        "  NSGA-II makes half of its children by differences of parents, which blending needs.",
    ]
    return "\n".join(lines)


def _format_times(label: str, seconds: Sequence[float]) -> str:
    nsga2, npga, moea = seconds
    return f"{'  ' + label:<44}{nsga2:>14.4g}{npga:>14.4g}{moea:>14.4g}{nsga2 / moea:>14.3g}{npga / moea:>14.3g}"


def figures(measurements: dict[str, Measurement]) -> dict[str, Figure]:
    """Draw the fronts found beside the true ones, and seconds by population."""
    return {"fronts.png": _plot_fronts(measurements), "times.png": _plot_seconds(measurements)}


ALGORITHM_STYLES = {"NSGA-II": ("#0072B2", "o"), "NPGA": ("#D55E00", "^"), "MOEA": ("#009E73", "s")}


def _plot_fronts(measurements: dict[str, Measurement]) -> Figure:
    from matplotlib.figure import Figure

    place, column = list(measurements.items())[-1]
    figure = Figure(figsize=(13, 8), layout="constrained")
    for axes, name in zip(figure.subplots(2, 3).flat, MOEA_PROBLEMS, strict=True):
        if f"{name} MOEA" not in column["fronts"]:
            axes.set_axis_off()
            continue
        problem = _get_problem(name)
        assert problem.front is not None and problem.reference_point is not None
        true = problem.front(N_FRONT_POINTS)
        # wide enough for what is near the front; what is far from it is counted, not drawn
        low, high = true.min(axis=0), np.asarray(problem.reference_point)
        margin = (0.15, 0.9) * (high - low)
        for kind, (colour, marker) in ALGORITHM_STYLES.items():
            front = np.array(column["fronts"][f"{name} {kind}"]).reshape(-1, 2)
            in_view = (front <= high + margin).all(axis=1)
            share = column["cells"][f"{name} {kind} {MOEA_POPULATIONS[0]}"]["hypervolume"][1]
            label = f"{kind}, {share:.1%}" + ("" if in_view.all() else f" ({np.mean(~in_view):.0%} out of view)")
            # two of them lie on each other along the front: small marks inside hollow ones
            marker_style: dict[str, Any] = {"ms": 3} if kind == "MOEA" else {"ms": 7, "mfc": "none"}
            axes.plot(*front[in_view].T, marker, color=colour, label=label, **marker_style)
        jumps = np.where(np.diff(true[:, 0]) > 10 * np.median(np.diff(true[:, 0])))[0] + 1
        for i, segment in enumerate(np.split(true, jumps) if name == "ZDT3" else [true]):
            axes.plot(*segment.T, color="black", lw=1, label="true front" if i == 0 else None, zorder=3)
        axes.set_xlim(low[0] - margin[0] / 2, high[0] + margin[0])
        bottom, top = low[1] - margin[1] / 12, high[1] + margin[1]
        axes.set_ylim(bottom, top + 0.45 * (top - bottom))  # the legend has the upper part to itself
        units, names = problem.units or {}, problem.objectives or ("f1", "f2")
        for label_axis, objective in zip((axes.set_xlabel, axes.set_ylabel), names, strict=True):
            label_axis(f"{objective} ({units[objective]})" if objective in units else objective)
        axes.set_title(name, loc="left")
        axes.grid(alpha=0.25)
        axes.legend(
            frameon=False, fontsize=8, title="median share of the hypervolume", title_fontsize=8, loc="upper right"
        )
    figure.suptitle(f"Fronts of one trial, N = {MOEA_POPULATIONS[0]}, {MOEA_GENERATIONS} generations, {place}")
    return figure


def _plot_seconds(measurements: dict[str, Measurement]) -> Figure:
    from matplotlib.figure import Figure

    sizes = [n for n in MOEA_POPULATIONS if f"ZDT1 MOEA {n}" in next(iter(measurements.values()))["cells"]]
    figure = Figure(figsize=(15, 4), layout="constrained")
    panels = figure.subplots(1, len(MOEA_PAPER_TIMES), sharey=True)
    for axes, name in zip(panels, MOEA_PAPER_TIMES, strict=True):
        for i, (kind, (colour, marker)) in enumerate(ALGORITHM_STYLES.items()):
            printed = [MOEA_PAPER_TIMES[name][k][i] for k in range(len(sizes))]
            device = "GPU" if kind == "MOEA" else "CPU"
            axes.plot(sizes, printed, marker + "--", color=colour, mfc="white", label=f"paper: {kind}, {device}")
            for place, column in measurements.items():
                ours = [column["cells"][f"{name} {kind} {n}"]["seconds"] for n in sizes]
                line = "-" if place == "CPU" else ":"
                axes.plot(sizes, ours, marker + line, color=colour, label=f"here: {kind}, {place}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.set_xlabel("population N")
        axes.set_title(name, loc="left")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel(f"seconds a run of {MOEA_GENERATIONS} generations")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


if __name__ == "__main__":
    main("moea")
