"""Quality-diversity: how much of a map CMA-MAE and MAP-Elites fill, how well, and how fast.

The problems are those of Fontaine & Nikolaidis (2023), arXiv:2205.10752, with 100 variables and 100 x 100 cells: sphere
and Rastrigin with linear projections as measures, and the arm with the place of its hand. In the papers the variables
have no bounds; here the box is ten times as wide as the range in which a measure is linear. QD scores are shares of
what a grid full of optima would have.

    python benchmarks/illuminate.py                     # 1000 generations of 540 candidates
    python benchmarks/illuminate.py --generations 10000 # as in the literature
    python benchmarks/illuminate.py --population 65536  # MAP-Elites alone, as a GPU likes it
    python benchmarks/illuminate.py --runs 3            # means of three seeds; beside pyribs, if that is installed
    python benchmarks/illuminate.py --runs 10 --seed 100 --algorithm map_elites

pyribs gets the same problems without bounds, the same starts and steps, and as many evaluations: 15 emitters of 36
with its improvement ranking for CMA-MAE, one of 540 for MAP-Elites. It evaluates by NumPy here, all candidates at once;
that takes little of its time.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable

import harness
import jax.numpy as jnp
import numpy as np
from jax import Array

import galapax as gx

DIM = 100
LIMIT, OPTIMUM = 5.12, 0.4 * 5.12
Problem = tuple[Callable[[Array], Array], Callable[[Array], Array], list[tuple[float, float]], float, float]


def project(x: Array) -> Array:
    """Sums over both halves of what lies within the limits; beyond them a variable counts the less the farther."""
    folded = jnp.where(jnp.abs(x) <= LIMIT, x, LIMIT / jnp.where(x == 0, 1, x))
    return jnp.sum(folded.reshape(2, -1), axis=1)


def sphere(x: Array) -> Array:
    return jnp.sum((x - OPTIMUM) ** 2)


def rastrigin(x: Array) -> Array:
    y = x - OPTIMUM
    return jnp.sum(10 + y**2 - 10 * jnp.cos(2 * jnp.pi * y))


def hand(x: Array) -> Array:
    angles = jnp.cumsum(x)
    return jnp.stack([jnp.sum(jnp.cos(angles)), jnp.sum(jnp.sin(angles))])


PROJECTED = [(-LIMIT * DIM / 2, LIMIT * DIM / 2)] * 2
CORNER = np.full(DIM, -LIMIT)
PROBLEMS: dict[str, Problem] = {  # objective, measures, ranges, half the width of the box, the value of no worth
    "sphere": (sphere, project, PROJECTED, 10 * LIMIT, float(sphere(jnp.asarray(CORNER)))),
    "rastrigin": (rastrigin, project, PROJECTED, 10 * LIMIT, float(rastrigin(jnp.asarray(CORNER)))),
    "arm": (jnp.var, hand, [(-DIM, DIM)] * 2, np.pi, 1.0),
}


def measure(name: str, algorithm: gx.MAPElites | gx.CMAMAE, generations: int, seed: int) -> tuple[float, ...]:
    """Coverage, QD score, seconds and evaluations of a run."""
    fun, measures, ranges, half_width, worst = PROBLEMS[name]
    found = gx.illuminate(
        fun, [(-half_width, half_width)] * DIM, measures=measures, ranges=ranges, algorithm=algorithm,
        x0=np.zeros((1, DIM)), generations=generations, seed=seed, compute=gx.Compute(dtype="float32", threads=1),
    )  # fmt: skip
    quality = found.qd_score(worst) / worst / found.values.size
    return found.coverage, quality, found.result.timings["run"], found.result.nfev


def evaluate_numpy(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,) and measures (n, 2) of solutions (n, 100)."""
    if name == "arm":
        angles = np.cumsum(x, axis=1)
        return np.var(x, axis=1), np.stack([np.cos(angles).sum(axis=1), np.sin(angles).sum(axis=1)], axis=1)
    y = x - OPTIMUM
    value = np.sum(y**2 if name == "sphere" else 10 + y**2 - 10 * np.cos(2 * np.pi * y), axis=1)
    folded = np.where(np.abs(x) <= LIMIT, x, LIMIT / np.where(x == 0, 1, x))
    return value, folded.reshape(len(x), 2, -1).sum(axis=2)


def measure_pyribs(name: str, label: str, step: float, generations: int, seed: int) -> tuple[float, ...]:
    """The same of pyribs, which maximises: the share by which a value is better than that of no worth."""
    from ribs.archives import GridArchive
    from ribs.emitters import EvolutionStrategyEmitter, IsoLineEmitter
    from ribs.schedulers import Scheduler

    *_, ranges, half_width, worst = PROBLEMS[name]
    grid = {"solution_dim": DIM, "dims": (100, 100), "ranges": ranges}
    sigma = step * 2 * half_width
    result = GridArchive(**grid, seed=seed)
    if label == "cma_mae":
        archive = GridArchive(**grid, learning_rate=0.01, threshold_min=0.0, seed=seed)
        settings = {"x0": np.zeros(DIM), "sigma0": sigma, "ranker": "imp", "batch_size": 36}
        emitters = [EvolutionStrategyEmitter(archive, **settings, seed=15 * seed + i) for i in range(15)]
        scheduler = Scheduler(archive, emitters, result_archive=result)
    else:
        first = np.random.default_rng(seed).uniform(-half_width, half_width, (540, DIM))
        first[0] = 0
        settings = {"iso_sigma": sigma / 5, "line_sigma": 0.2, "batch_size": 540, "seed": seed}
        emitters = [IsoLineEmitter(result, initial_solutions=first, **settings)]
        scheduler = Scheduler(result, emitters)
    began, nfev = time.perf_counter(), 0
    for _ in range(generations):
        x = scheduler.ask()
        value, measures = evaluate_numpy(name, x)
        scheduler.tell(1 - value / worst, measures)
        nfev += len(x)
    gains = np.asarray(result.data("objective"))
    return result.stats.coverage, float(gains.sum()) / 10_000, time.perf_counter() - began, nfev


def main() -> None:
    parser = harness.make_parser(__doc__, runs=1, seed=0, only=True)
    parser.add_argument("--generations", type=int, default=1000, help="of 540 candidates each (%(default)s)")
    parser.add_argument("--population", type=int, help="of MAP-Elites alone")
    parser.add_argument("--algorithm", choices=["cma_mae", "map_elites"], help="only this one")
    options = parser.parse_args()
    size = options.population or 540
    print(harness.describe_machine("galapax"))
    print(f"{options.generations:,} generations of {size:,}, {DIM} variables, 100 x 100 cells, float32")
    print(
        f"{'problem':10} {'algorithm':18} {'coverage':>9} {'QD score':>9} {'seconds':>8} {'evaluations/s':>14}",
        flush=True,
    )
    has_pyribs = importlib.util.find_spec("ribs") is not None and options.population is None
    seeds = range(options.seed, options.seed + options.runs)
    for name, (*_, half_width, worst) in PROBLEMS.items():
        if not harness.is_selected(name, options.only):
            continue
        step = (0.5 if name != "arm" else 0.2) / (2 * half_width)
        solvers = [gx.MAPElites(population=size, iso=step / 5, line=0.2)]
        if options.population is None:
            solvers.insert(0, gx.CMAMAE(worst=worst, sigma0=step))
        for algorithm in solvers:
            label = gx.algorithms.algorithm_name(algorithm)
            if options.algorithm not in (None, label):
                continue
            show(name, label, [measure(name, algorithm, options.generations, seed) for seed in seeds])
            if has_pyribs:
                measure_pyribs(name, label, step, 2, 0)  # compiles
                show(
                    name, f"pyribs {label}", [measure_pyribs(name, label, step, options.generations, s) for s in seeds]
                )


def show(name: str, label: str, rows: list[tuple[float, ...]]) -> None:
    """Print the means of some runs, and the standard deviation of the QD score."""
    coverage, quality, seconds, nfev = np.mean(rows, axis=0)
    spread = f" +- {np.std([row[1] for row in rows]):.1%}" if len(rows) > 1 else ""
    print(
        f"{name:10} {label:18} {coverage:9.1%} {quality:9.1%} {seconds:8.1f} {nfev / seconds:14,.0f}{spread}",
        flush=True,
    )


if __name__ == "__main__":
    main()
