"""GAGPU (manual, version 1.1): a thousand tests of the three-parent GA on Ackley and Goldstein-Price.

`galapax reproduce gagpu`, or `python -m galapax.papers.gagpu_manual` where the command line's extras are missing.

The public code has 3840 children, 30 generations, FR 2.0, SIG 0.5 and 1000 tests, which it makes one after another, all
from the same first population, in single precision, with the box enforced at the start alone. Here they are one
computation. It compares absolute values, which is the same for these functions, as neither has negative ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from galapax import problems
from galapax.algorithms.ga import ThreeParentGA
from galapax.core.options import Compute, Options
from galapax.core.problem import Problem
from galapax.execution.solve import solve
from galapax.execution.task import prepare_task, resolve_options
from galapax.papers.reproduction import Log, Measurement, describe_machine, main
from galapax.results.study import curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_CHILDREN, GAGPU_GENERATIONS = 3840, 30
FR_SIGMA_PAIRS = (
    (2.0, 0.5),
    (1.0, 0.01),
    (1.0, 1.5),
    (1.5, 2.0),
)  # FR and SIG: public code, manual's figure 1, earlier versions
GAGPU_PROBLEMS = {"Ackley, 2 variables": 2, "Ackley, 3 variables": 3, "Goldstein-Price": 0}
SAMPLE_MICROSECONDS = (675.072, 673.632, 674.592)  # "CUDA Elapsed time" of the manual's sample run, one test each
SAMPLE_X = ((3.63859e-07, 1.81323e-07), (3.1201e-07, -1.02122e-07), (2.72103e-07, -8.53891e-08))
# the manual's TestHist.txt, 16 tests, generations 1 to 5: their mean
SAMPLE_HISTORY = (0.0283716, 0.0266376, 0.0237868, 0.0136176, 0.0100929)


def measure(quick: bool, log: Log = lambda line: None) -> Measurement:
    """Run all tests on the device that JAX uses here."""
    tests = 100 if quick else 1000
    out: Measurement = {**describe_machine(), "dtype": "float32", "tests": tests, "cells": {}, "alone": {}}
    for name, dim in GAGPU_PROBLEMS.items():
        problem = problems.get("gagpu_ackley", dim=dim) if dim else problems.get("gagpu_goldstein_price")
        assert isinstance(problem, Problem)
        bounds = problem.bounds
        initial = bounds.lower + bounds.span * np.random.default_rng(0).random((N_CHILDREN, bounds.dim))
        solvers = tuple(ThreeParentGA(N_CHILDREN, fr, sigma, bounds_at_start_only=True) for fr, sigma in FR_SIGMA_PAIRS)
        # as many generations as the manual's
        options = Options(
            generations=GAGPU_GENERATIONS, tolerance=0, polish=False, x0=initial, runs=tests,
            compute=Compute(dtype="float32"),
        )  # fmt: skip
        options = resolve_options(problem, options)
        task = prepare_task(problem, solvers, options)
        results, _ = solve(task)
        timings = results[0].timings
        for (fr, sigma), result in zip(FR_SIGMA_PAIRS, results, strict=True):
            assert result.runs is not None and problem.optimum is not None
            error = curves(result) - float(problem.optimum)
            out["cells"][f"{name} {fr:g} {sigma:g}"] = {
                "mean": error.mean(axis=0).tolist(),
                "median": float(np.median(error[:, -1])),
                "share": float(np.mean(error[:, -1] <= 1e-3)),
                "device": timings["device"] / (tests * len(FR_SIGMA_PAIRS)),
                "run": timings["run"] / (tests * len(FR_SIGMA_PAIRS)),
            }
        log(f"{name}: {len(FR_SIGMA_PAIRS)} settings of {tests} tests in {timings['run']:.3g} s")
        # one test alone, as the sample run made it, after compilation; its generations alone from a longer run's time
        device, run = _time_one_test(problem, solvers[0], options)
        longer, _ = _time_one_test(problem, solvers[0], replace(options, generations=11 * GAGPU_GENERATIONS))
        out["alone"][name] = {"device": device, "run": run, "generations": (longer - device) / 10}
    return out


def _time_one_test(problem: Problem, solver: ThreeParentGA, options: Options) -> tuple[float, float]:
    """Measure seconds of one test, waiting for the device and in all; the best of ten after one that compiles."""
    task = prepare_task(problem, (solver,), replace(options, runs=1))
    timings = [solve(task)[0][0].timings for _ in range(11)][1:]
    return min(t["device"] for t in timings), min(t["run"] for t in timings)


def tables(measurements: dict[str, Measurement]) -> str:
    first = next(iter(measurements.values()))
    lines = [
        f"The three-parent GA: {N_CHILDREN} children, {GAGPU_GENERATIONS} generations, {first['tests']} tests a batch, "
        "float32. "
        + "; ".join(f"{name}: {c['device']}, {c['machine']}" for name, c in measurements.items())
        + f"; jax {first['versions']['jax']}.",
        "",
        f"{'Distance to the minimum after 30 generations':<48}{'mean':>12}{'median':>12}{'within 1e-3':>13}",
    ]
    for place, column in measurements.items():
        for name in GAGPU_PROBLEMS:
            for fr, sigma in FR_SIGMA_PAIRS:
                cell = column["cells"][f"{name} {fr:g} {sigma:g}"]
                label = f"  {place}: {name}, FR {fr:g}, SIGMA {sigma:g}"
                lines.append(f"{label:<48}{cell['mean'][-1]:>12.3g}{cell['median']:>12.3g}{cell['share']:>13.1%}")
    sizes = ", ".join(f"{np.abs(x).max():.2g}" for x in SAMPLE_X)
    lines += [
        f"  The manual's sample (Ackley, 2 variables) prints a best fitness of 0 at points of size {sizes}:",
        "  rounding of single precision; in double precision their values are 1.1e-6, 9.3e-7 and 8.1e-7. Rounding also",
        "  lets Goldstein-Price end a little below its minimum of 3.",
        "",
        f"{'Mean best fitness, Ackley, 2 variables':<48}" + "".join(f"{'gen ' + str(g):>10}" for g in range(1, 6)),
    ]
    for place, column in measurements.items():
        for fr, sigma in FR_SIGMA_PAIRS:
            curve = column["cells"][f"Ackley, 2 variables {fr:g} {sigma:g}"]["mean"][:5]
            lines.append(f"{f'  {place}: FR {fr:g}, SIGMA {sigma:g}':<48}" + "".join(f"{v:>10.3g}" for v in curve))
    lines.append(f"{'  manual, 16 tests, settings not given':<48}" + "".join(f"{v:>10.3g}" for v in SAMPLE_HISTORY))
    lines += ["", f"{'Microseconds a test':<48}{'generations':>16}{'with its call':>16}{'and results':>16}"]
    for place, column in measurements.items():
        for name in GAGPU_PROBLEMS:
            alone, batch = (
                column["alone"][name],
                column["cells"][f"{name} {FR_SIGMA_PAIRS[0][0]:g} {FR_SIGMA_PAIRS[0][1]:g}"],
            )
            for label, t in (("alone", alone), (f"one of {len(FR_SIGMA_PAIRS) * column['tests']}", batch)):
                generations = f"{t['generations'] * 1e6:.1f}" if "generations" in t else ""
                times = f"{generations:>16}{t['device'] * 1e6:>16.1f}{t['run'] * 1e6:>16.1f}"
                lines.append(f"{f'  {place}: {name}, {label}':<48}{times}")
    lines.append(f"{'  manual, Ackley, 2 variables, alone':<48}{np.mean(SAMPLE_MICROSECONDS):>16.1f}")
    return "\n".join(lines)


def figures(measurements: dict[str, Measurement]) -> dict[str, Figure]:
    """Draw the manual's figures: mean error by generation, one curve for each pair of FR and SIGMA."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.2), layout="constrained")
    place, column = list(measurements.items())[-1]
    for axes, name in zip(figure.subplots(1, len(GAGPU_PROBLEMS)), GAGPU_PROBLEMS, strict=True):
        for (fr, sigma), colour in zip(FR_SIGMA_PAIRS, ("#0072B2", "#E69F00", "#009E73", "#D55E00"), strict=True):
            curve = np.array(column["cells"][f"{name} {fr:g} {sigma:g}"]["mean"])
            curve = np.where(curve > 1e-12, curve, np.nan)  # beyond lies the rounding of single precision
            axes.plot(np.arange(1, len(curve) + 1), curve, color=colour, lw=1.8, label=f"{fr:g}, {sigma:g}")
        axes.set_yscale("log")
        axes.set_title(f"{name} ({column['tests']} tests, {place})", loc="left")
        axes.set_xlabel("generation")
        axes.grid(alpha=0.25)
        axes.legend(title="FR, SIGMA", frameon=False)
        axes.set_ylabel("mean distance to the minimum")
    return {"convergence.png": figure}


if __name__ == "__main__":
    main("gagpu")
