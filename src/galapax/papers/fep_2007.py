"""Fok, Wong & Wong (2007), fast evolutionary programming on graphics hardware: Table I and figures 6 and 7.

`galapax reproduce fep`, or `python -m galapax.papers.fep_2007` where the command line's extras are missing.

The paper ran five functions of 32 variables for 2000 generations and 20 trials on a Pentium IV and a GeForce 6800
Ultra.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

import jax
import numpy as np
from jax import Array

from galapax import problems
from galapax.algorithms.ep import FEP, EPState
from galapax.api.minimize import minimize
from galapax.core.options import Compute
from galapax.core.problem import Population
from galapax.execution.observers import Progress
from galapax.numerics import devices, random
from galapax.objective.traced import trace
from galapax.papers.reproduction import Log, Measurement, describe_machine, main

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def mutate(
    x: np.ndarray, eta: np.ndarray, step: np.ndarray, noise: np.ndarray, shared_noise: np.ndarray, min_eta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mutate all parents (n, k): x moves by the parents' eta, and eta is mutated log-normally."""
    k = x.shape[1]
    scale = np.exp(shared_noise / np.sqrt(2 * k) + noise / np.sqrt(2 * np.sqrt(k)))
    return x + eta * step, np.maximum(eta * scale, min_eta)


def repair(x: np.ndarray, parents: np.ndarray, lower: np.ndarray, upper: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Move genes that left the box to a share of the way from the bound they crossed to their parent."""
    wall = np.where(x < lower, lower, upper)
    return np.where((x < lower) | (x > upper), wall + share * (parents - wall), x)


def tournament_scores(fitness: np.ndarray, opponents: np.ndarray) -> np.ndarray:
    """Count the wins of each of 2n individuals over its opponents (q, 2n); q + 1 for the best; failed ones below."""
    wins = (fitness[None, :] <= fitness[opponents]).sum(axis=0)
    wins[fitness == fitness.min()] = len(opponents) + 1
    failed = np.arange(len(fitness)) >= len(fitness) // 2
    return np.where(np.isfinite(fitness), wins + 2, failed)


def select_survivors(scores: np.ndarray) -> np.ndarray:
    """Select the half with the highest scores, earlier ones first among equals; parents stay in their rows."""
    n = len(scores) // 2
    selected = np.sort(np.argsort(-scores, kind="stable")[:n])
    rows = np.full(n, -1)
    parents = selected[selected < n]
    rows[parents] = parents
    rows[rows < 0] = selected[selected >= n]
    return rows


def run(
    fun: Callable[[np.ndarray], np.ndarray],
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    population: int,
    generations: int,
    opponents: int = 10,
    initial_step: float = 1.0,
    least_step: float = 1e-3,
    dtype: Literal["float32", "float64"] = "float32",
    seed: int = 0,
) -> tuple[np.ndarray, dict[str, float]]:
    """Run FEP on fun of (n, k); return the best value by generation, and seconds by phase of a generation."""
    rng = np.random.default_rng(seed)
    n, k = population, len(lower)
    lower, upper = lower.astype(dtype), upper.astype(dtype)
    x = (lower + (upper - lower) * rng.random((n, k), dtype=dtype)).astype(dtype)
    eta = np.full((n, k), initial_step, dtype)
    fitness = fun(x)
    best = [fitness.min()]
    seconds = dict.fromkeys(("selection", "evaluation", "mutation"), 0.0)
    for _ in range(generations - 1):
        start = time.perf_counter()
        step = rng.standard_cauchy((n, k)).astype(dtype)
        noise, shared_noise = rng.standard_normal((n, k), dtype=dtype), rng.standard_normal((n, 1), dtype=dtype)
        mutants, child_eta = mutate(x, eta, step, noise, shared_noise, least_step)
        child = repair(mutants, x, lower, upper, rng.random((n, k), dtype=dtype)).astype(dtype)
        seconds["mutation"] += time.perf_counter() - start
        start = time.perf_counter()
        child_fitness = fun(child)
        seconds["evaluation"] += time.perf_counter() - start
        start = time.perf_counter()
        all_fitness = np.concatenate([fitness, child_fitness])
        rows = select_survivors(tournament_scores(all_fitness, rng.integers(0, 2 * n, (opponents, 2 * n))))
        x, eta = np.concatenate([x, child])[rows], np.concatenate([eta, child_eta])[rows].astype(dtype)
        fitness = all_fitness[rows]
        seconds["selection"] += time.perf_counter() - start
        best.append(fitness.min())
    return np.array(best), seconds


FEP_FUNCTIONS = ("f1", "f2", "f3", "f4", "f5")
FEP_POPULATIONS = (400, 800, 3200, 6400)
PHASES = ("selection", "evaluation", "mutation")
# the printed numbers: growth of the time from mu = 400 (I A), seconds on f5 by phase (I B), GPU over CPU (I C)
PAPER_GROWTH = {
    "GPU": {800: (1.0, 1.0, 1.0, 1.0, 1.0), 3200: (2.02,) * 5, 6400: (3.11, 3.09, 3.04, 3.05, 3.05)},
    "CPU": {
        800: (2.01, 2.02, 2.02, 2.02, 2.02),
        3200: (8.3, 8.24, 8.37, 8.12, 8.29),
        6400: (16.57, 16.45, 16.75, 16.4, 16.53),
    },
}
PAPER_PHASES = {
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


def measure(quick: bool, log: Log = lambda line: None) -> Measurement:
    """Run everything on the device that JAX uses here. Times are seconds for one trial of `generations` generations."""
    generations, trials, numpy_generations = (100, 4, 8) if quick else (2000, 20, 50)
    out: Measurement = {
        **describe_machine(),
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
    for mu in FEP_POPULATIONS:
        for name in FEP_FUNCTIONS:
            problem = problems.get(f"fep_{name}")
            clock: list[tuple[int, float]] = []

            def record_time(p: Progress, clock: list[tuple[int, float]] = clock) -> None:
                clock.append((p.generation, p.seconds))

            result = minimize(
                problem,
                FEP(population=mu, initial_step=1.0),
                generations=generations,
                tolerance=0,  # the tables count all generations, also those after convergence
                runs=trials,
                progress=False,
                callback=record_time,
                polish=False,
                compute=Compute(dtype="float32"),
            )
            assert result.runs is not None and result.runs.history is not None
            key = f"{name} {mu}"
            out["seconds"][key] = result.timings["run"] / trials
            out["curves"][key] = result.runs.history.best.mean(axis=0).tolist()
            # counted back from the end, since checks and compilation come before the first generation
            run_seconds, end = result.timings["run"], clock[-1][1]
            out["clock"][key] = [(0, 0.0)] + [(g, max(0.0, run_seconds - (end - s)) / trials) for g, s in clock]
            log(f"{key}: {out['seconds'][key]:.3g} s a trial, mean best {np.mean(result.runs.fun):.4g}")
            if devices.on_cpu():
                numpy_seconds, phase_seconds = time_numpy(name, mu, numpy_generations)
                out["numpy"][key] = numpy_seconds / (numpy_generations - 1) * generations
                if name == "f5":
                    out["numpy_parts"][str(mu)] = [
                        phase_seconds[p] / (numpy_generations - 1) * generations for p in PHASES
                    ]
        out["parts"][str(mu)] = [seconds * generations for seconds in time_phases(mu)]
    return out


def time_numpy(name: str, mu: int, generations: int) -> tuple[float, dict[str, float]]:
    """Measure seconds of the NumPy baseline, in all and by phase; the first generation only evaluates."""
    problem = problems.get(f"fep_{name}")
    lower, upper = problem.bounds.lower, problem.bounds.upper
    start = time.perf_counter()
    _, phase_seconds = run(NUMPY_FUNCTIONS[name], lower, upper, population=mu, generations=generations)
    return time.perf_counter() - start, phase_seconds


NUMPY_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "f1": lambda x: (x**2).sum(axis=1),
    "f2": lambda x: (np.cumsum(x, axis=1) ** 2).sum(axis=1),
    "f3": lambda x: (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (x[:, :-1] - 1) ** 2).sum(axis=1),
    "f4": lambda x: -(x * np.sin(np.sqrt(np.abs(x)))).sum(axis=1),
    "f5": lambda x: (x**2 - 10 * np.cos(2 * np.pi * x) + 10).sum(axis=1),
}


def time_phases(mu: int, generations: int = 100) -> list[float]:
    """Measure seconds a generation on f5 of selection, evaluation and mutation, each alone in a loop of its own.

    In a run they are compiled together, so that their sum exceeds the time of a generation.
    """
    problem = problems.get("fep_f5")
    algorithm = FEP(population=mu, initial_step=1.0)
    box = problem.bounds.round_inwards("float32")
    formulas = trace(problem, "float32")
    key = random.run_keys(0, 0, 1)[0]
    state = jax.jit(lambda key: algorithm.init(key, box))(key)
    fitness = jax.jit(lambda x: formulas(x))(state.candidates).objectives
    state = state._replace(parents=Population(state.candidates, fitness, None))

    def select(i: Array, state: EPState) -> EPState:
        offspring = state.parents._replace(objectives=state.parents.objectives * 0.999)
        parents, steps = algorithm.select(random.fold_in(key, i), state, offspring)
        return state._replace(parents=parents, steps=steps)

    def evaluate(i: Array, state: EPState) -> EPState:
        values = formulas(state.candidates).objectives
        return state._replace(candidates=state.candidates + 1e-30 * values)

    def mutate(i: Array, state: EPState) -> EPState:
        x, steps = algorithm.breed(random.fold_in(key, i), state.candidates, state.candidate_steps, state.bounds)
        return state._replace(candidates=x, candidate_steps=steps)

    seconds = []
    for phase in (select, evaluate, mutate):
        run = jax.jit(lambda state, phase=phase: jax.lax.fori_loop(0, generations, phase, state))
        jax.block_until_ready(run(state))
        start = time.perf_counter()
        jax.block_until_ready(run(state))
        seconds.append((time.perf_counter() - start) / generations)
    return seconds


def tables(measurements: dict[str, Measurement]) -> str:
    """Format Table I, ours beside the paper's, from the measurements {"CPU": ..., "GPU": ...} that there are."""
    first = next(iter(measurements.values()))
    lines = [
        "Fast evolutionary programming, k = 32, q = 10, float32; "
        f"{first['generations']} generations, mean of {first['trials']} trials in one batch. "
        + "; ".join(f"{name}: {c['device']}, {c['machine']}" for name, c in measurements.items())
        + f"; jax {first['versions']['jax']}. NumPy: plain NumPy on that CPU, one trial."
    ]
    sources: dict[str, dict[str, float]] = {name: c["seconds"] for name, c in measurements.items()}
    cpu = measurements.get("CPU")
    if cpu:
        sources["NumPy"] = cpu["numpy"]
    lines += ["", f"Table I(A): seconds a trial{'':18}" + "".join(f"{f:>10}" for f in FEP_FUNCTIONS)]
    for name, seconds in sources.items():
        lines += [
            f"  {name:<8} mu = {mu:<24}" + _format_row(seconds[f"{f} {mu}"] for f in FEP_FUNCTIONS)
            for mu in FEP_POPULATIONS
        ]
    lines += ["", f"Growth of the time from mu = 400{'':12}" + "".join(f"{f:>10}" for f in FEP_FUNCTIONS)]
    for mu in FEP_POPULATIONS[1:]:
        for name, seconds in sources.items():
            lines.append(
                f"  {name:<8} mu = {mu:<24}"
                + _format_row(seconds[f"{f} {mu}"] / seconds[f"{f} 400"] for f in FEP_FUNCTIONS)
            )
        for name, growth in PAPER_GROWTH.items():
            lines.append(f"  paper, {name:<4} mu = {mu:<21}" + _format_row(growth[mu]))
    lines += ["", f"Table I(B): f5, seconds{'':21}" + "".join(f"{p:>12}" for p in PHASES)]
    for mu in FEP_POPULATIONS:
        for name, column in measurements.items():
            lines.append(f"  {name:<8} mu = {mu:<24}" + _format_row(column["parts"][str(mu)], 12))
        if cpu:
            lines.append(f"  {'NumPy':<8} mu = {mu:<24}" + _format_row(cpu["numpy_parts"][str(mu)], 12))
        for name, phases in PAPER_PHASES.items():
            lines.append(f"  paper, {name:<4} mu = {mu:<21}" + _format_row(phases[mu], 12))
    if cpu:
        lines += ["", f"Table I(C): speed-up over NumPy{'':13}" + "".join(f"{f:>10}" for f in FEP_FUNCTIONS)]
        for mu in FEP_POPULATIONS:
            for name, column in measurements.items():
                ratios = (cpu["numpy"][f"{f} {mu}"] / column["seconds"][f"{f} {mu}"] for f in FEP_FUNCTIONS)
                lines.append(f"  {name:<8} mu = {mu:<24}" + _format_row(ratios))
            lines.append(f"  paper, GPU over CPU, mu = {mu:<9}      " + _format_row(PAPER_SPEEDUP[mu]))
    return "\n".join(lines)


def _format_row(values: Iterable[float], width: int = 10) -> str:
    return "".join(f"{v:>{width}.3g}" for v in values)


def figures(measurements: dict[str, Measurement]) -> dict[str, Figure]:
    """Draw figure 6 (mean best fitness) and figure 7 (time), by generation."""
    from matplotlib.figure import Figure

    figures_by_name = {}
    for title, name in (("Figure 6: mean best fitness", "fitness"), ("Figure 7: seconds a trial", "time")):
        figure = Figure(figsize=(15, 3.6 * len(measurements)), layout="constrained")
        grid = figure.subplots(len(measurements), len(FEP_FUNCTIONS), squeeze=False)
        for row, (place, column) in zip(grid, measurements.items(), strict=True):
            for axes, function in zip(row, FEP_FUNCTIONS, strict=True):
                for mu, colour in zip(FEP_POPULATIONS, ("#56B4E9", "#0072B2", "#E69F00", "#D55E00"), strict=True):
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
        figures_by_name[f"{name}.png"] = figure
    return figures_by_name


if __name__ == "__main__":
    main("fep")
