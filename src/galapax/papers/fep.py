"""Fok, Wong & Wong (2007), fast evolutionary programming on graphics hardware: Table I and figures 6 and 7.

`galapax reproduce fep`, or `python -m galapax.papers.fep` where the command line's extras are missing. The paper ran
five functions of 32 variables for 2000 generations and 20 trials on a Pentium IV and a GeForce 6800 Ultra.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from galapax import problems
from galapax.algorithms.ep import FEP, EPState
from galapax.core.evaluation import Population
from galapax.evaluation.formulas import trace
from galapax.minimize import minimize
from galapax.numerics import devices, random
from galapax.papers import yardstick
from galapax.papers.common import Paper, machine, main
from galapax.running.observers import Progress

FUNCTIONS = ("f1", "f2", "f3", "f4", "f5")
SIZES = (400, 800, 3200, 6400)
PARTS = ("selection", "evaluation", "mutation")
# the printed numbers: growth of the time from mu = 400 (I A), seconds on f5 by part (I B), GPU over CPU (I C)
PAPER_GROWTH = {
    "GPU": {800: (1.0, 1.0, 1.0, 1.0, 1.0), 3200: (2.02,) * 5, 6400: (3.11, 3.09, 3.04, 3.05, 3.05)},
    "CPU": {
        800: (2.01, 2.02, 2.02, 2.02, 2.02),
        3200: (8.3, 8.24, 8.37, 8.12, 8.29),
        6400: (16.57, 16.45, 16.75, 16.4, 16.53),
    },
}
PAPER_PARTS = {
    "GPU": {
        400: (4.14, 26.46, 2.19),
        800: (7.33, 21.84, 3.61),
        3200: (26.72, 26.12, 13.46),
        6400: (52.57, 21.96, 25.61),
    },
    "CPU": {
        400: (3.32, 7.28, 16.19),
        800: (6.7, 14.86, 32.49),
        3200: (28.26, 60.25, 133.52),
        6400: (56.69, 118.91, 267.3),
    },
}
PAPER_SPEEDUP = {
    400: (0.62, 0.85, 0.62, 0.93, 0.82),
    800: (1.25, 1.71, 1.25, 1.88, 1.65),
    3200: (2.55, 3.45, 2.57, 3.74, 3.35),
    6400: (3.31, 4.5, 3.42, 5.02, 4.42),
}


def measure(quick: bool, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Run everything on the device that JAX uses here. Times are seconds for one trial of `generations` generations."""
    generations, trials, timed = (100, 4, 8) if quick else (2000, 20, 50)
    out: dict[str, Any] = {
        **machine(),
        "dtype": "float32",
        "generations": generations,
        "trials": trials,
        "seconds": {},
        "numpy": {},
        "parts": {},
        "numpy_parts": {},
        "curves": {},
        "clock": {},
    }
    for mu in SIZES:
        for name in FUNCTIONS:
            problem = problems.get(f"fep_{name}")
            ticks: list[tuple[int, float]] = []

            def tick(p: Progress, ticks: list[tuple[int, float]] = ticks) -> None:
                ticks.append((p.generation, p.seconds))

            result = minimize(
                problem,
                FEP(population=mu, initial_step=1.0),
                generations=generations,
                tolerance=0,  # the tables are of so many generations, also of those after convergence
                runs=trials,
                dtype="float32",
                progress=False,
                callback=tick,
                polish=False,
            )
            assert result.runs is not None and result.runs.history is not None
            key = f"{name} {mu}"
            out["seconds"][key] = result.timings["run"] / trials
            out["curves"][key] = result.runs.history.best.mean(axis=0).tolist()
            # counted back from the end, since checks and compilation come before the first generation
            ran, end = result.timings["run"], ticks[-1][1]
            out["clock"][key] = [(0, 0.0)] + [(g, max(0.0, ran - (end - s)) / trials) for g, s in ticks]
            say(f"{key}: {out['seconds'][key]:.3g} s a trial, mean best {np.mean(result.runs.fun):.4g}")
            if devices.on_cpu():
                taken, parts = time_numpy(name, mu, timed)
                out["numpy"][key] = taken / (timed - 1) * generations
                if name == "f5":
                    out["numpy_parts"][str(mu)] = [parts[p] / (timed - 1) * generations for p in PARTS]
        out["parts"][str(mu)] = [seconds * generations for seconds in time_parts(mu)]
    return out


def time_numpy(name: str, mu: int, generations: int) -> tuple[float, dict[str, float]]:
    """Seconds of the NumPy yardstick, in all and by part; the first generation only evaluates."""
    problem = problems.get(f"fep_{name}")
    lower, upper = problem.bounds.lower, problem.bounds.upper
    start = time.perf_counter()
    _, parts = yardstick.run(NUMPY[name], lower, upper, population=mu, generations=generations)
    return time.perf_counter() - start, parts


NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "f1": lambda x: (x**2).sum(axis=1),
    "f2": lambda x: (np.cumsum(x, axis=1) ** 2).sum(axis=1),
    "f3": lambda x: (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (x[:, :-1] - 1) ** 2).sum(axis=1),
    "f4": lambda x: -(x * np.sin(np.sqrt(np.abs(x)))).sum(axis=1),
    "f5": lambda x: (x**2 - 10 * np.cos(2 * np.pi * x) + 10).sum(axis=1),
}


def time_parts(mu: int, generations: int = 100) -> list[float]:
    """Seconds a generation on f5 of selection, evaluation and mutation, each alone in a loop of its own.

    In a run they are compiled together, so that their sum exceeds the time of a generation.
    """
    problem = problems.get("fep_f5")
    algorithm = FEP(population=mu, initial_step=1.0)
    box = problem.bounds.rounded("float32")
    formulas = trace(problem, "float32")
    key = random.run_keys(0, 0, 1)[0]
    state = jax.jit(lambda key: algorithm.init(key, box))(key)
    fitness = jax.jit(lambda x: formulas(x))(state.candidates).objectives
    state = state._replace(parents=Population(state.candidates, fitness, None))

    def select(i: Any, state: EPState) -> EPState:
        offspring = state.parents._replace(objectives=state.parents.objectives * 0.999)
        parents, steps = algorithm.select(random.fold(key, i), state, offspring)
        return state._replace(parents=parents, steps=steps)

    def evaluate(i: Any, state: EPState) -> EPState:
        values = formulas(state.candidates).objectives
        return state._replace(candidates=state.candidates + 1e-30 * values)

    def mutate(i: Any, state: EPState) -> EPState:
        x, steps = algorithm.breed(random.fold(key, i), state.candidates, state.candidate_steps, state.bounds)
        return state._replace(candidates=x, candidate_steps=steps)

    seconds = []
    for part in (select, evaluate, mutate):
        run = jax.jit(lambda state, part=part: jax.lax.fori_loop(0, generations, part, state))
        jax.block_until_ready(run(state))
        start = time.perf_counter()
        jax.block_until_ready(run(state))
        seconds.append((time.perf_counter() - start) / generations)
    return seconds


def tables(columns: dict[str, dict[str, Any]]) -> str:
    """Table I, ours beside the paper's, from the measurements {"CPU": ..., "GPU": ...} that there are."""
    first = next(iter(columns.values()))
    lines = [
        "Fast evolutionary programming, k = 32, q = 10, float32; "
        f"{first['generations']} generations, mean of {first['trials']} trials in one batch. "
        + "; ".join(f"{name}: {c['device']}, {c['machine']}" for name, c in columns.items())
        + f"; jax {first['versions']['jax']}. NumPy: plain NumPy on that CPU, one trial."
    ]
    sources: dict[str, dict[str, float]] = {name: c["seconds"] for name, c in columns.items()}
    cpu = columns.get("CPU")
    if cpu:
        sources["NumPy"] = cpu["numpy"]
    lines += ["", f"Table I(A): seconds a trial{'':18}" + "".join(f"{f:>10}" for f in FUNCTIONS)]
    for name, seconds in sources.items():
        lines += [f"  {name:<8} mu = {mu:<24}" + _row(seconds[f"{f} {mu}"] for f in FUNCTIONS) for mu in SIZES]
    lines += ["", f"Growth of the time from mu = 400{'':12}" + "".join(f"{f:>10}" for f in FUNCTIONS)]
    for mu in SIZES[1:]:
        for name, seconds in sources.items():
            lines.append(
                f"  {name:<8} mu = {mu:<24}" + _row(seconds[f"{f} {mu}"] / seconds[f"{f} 400"] for f in FUNCTIONS)
            )
        for name, growth in PAPER_GROWTH.items():
            lines.append(f"  paper, {name:<4} mu = {mu:<21}" + _row(growth[mu]))
    lines += ["", f"Table I(B): f5, seconds{'':21}" + "".join(f"{p:>12}" for p in PARTS)]
    for mu in SIZES:
        for name, column in columns.items():
            lines.append(f"  {name:<8} mu = {mu:<24}" + _row(column["parts"][str(mu)], 12))
        if cpu:
            lines.append(f"  {'NumPy':<8} mu = {mu:<24}" + _row(cpu["numpy_parts"][str(mu)], 12))
        for name, parts in PAPER_PARTS.items():
            lines.append(f"  paper, {name:<4} mu = {mu:<21}" + _row(parts[mu], 12))
    if cpu:
        lines += ["", f"Table I(C): speed-up over NumPy{'':13}" + "".join(f"{f:>10}" for f in FUNCTIONS)]
        for mu in SIZES:
            for name, column in columns.items():
                ratios = (cpu["numpy"][f"{f} {mu}"] / column["seconds"][f"{f} {mu}"] for f in FUNCTIONS)
                lines.append(f"  {name:<8} mu = {mu:<24}" + _row(ratios))
            lines.append(f"  paper, GPU over CPU, mu = {mu:<9}      " + _row(PAPER_SPEEDUP[mu]))
    return "\n".join(lines)


def _row(values: Any, width: int = 10) -> str:
    return "".join(f"{v:>{width}.3g}" for v in values)


def figures(columns: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Figure 6 (mean best fitness) and figure 7 (time), by generation."""
    from matplotlib.figure import Figure

    pictures = {}
    for title, name in (("Figure 6: mean best fitness", "fitness"), ("Figure 7: seconds a trial", "time")):
        figure = Figure(figsize=(15, 3.6 * len(columns)), layout="constrained")
        grid = figure.subplots(len(columns), len(FUNCTIONS), squeeze=False)
        for row, (place, column) in zip(grid, columns.items(), strict=True):
            for axes, function in zip(row, FUNCTIONS, strict=True):
                for mu, colour in zip(SIZES, ("#56B4E9", "#0072B2", "#E69F00", "#D55E00"), strict=True):
                    if name == "fitness":
                        curve = np.array(column["curves"][f"{function} {mu}"])
                        axes.plot(np.arange(1, len(curve) + 1), curve, color=colour, label=f"μ = {mu}")
                    else:
                        ticks = np.array(column["clock"][f"{function} {mu}"])
                        axes.plot(ticks[:, 0], ticks[:, 1], color=colour, label=f"μ = {mu}")
                if name == "fitness" and function != "f4":
                    axes.set_yscale("log")
                axes.set_title(f"{function}, {place}", loc="left")
                axes.set_xlabel("generation")
                axes.grid(alpha=0.25)
        grid[0][0].legend(frameon=False)
        figure.suptitle(title)
        pictures[f"{name}.png"] = figure
    return pictures


PAPER = Paper("galapax.papers.fep", "Fast evolutionary programming", measure, tables, figures)

if __name__ == "__main__":
    main(PAPER)
