"""Quality-diversity: how much of a map CMA-MAE and MAP-Elites fill, how well, and how fast.

The problems are those of Fontaine & Nikolaidis (2023), arXiv:2205.10752, with 100 variables and 100 x 100 cells: sphere
and Rastrigin with linear projections as measures, and the arm with the place of its hand. In the papers the variables
have no bounds; here the box is ten times as wide as the range in which a measure is linear. QD scores are shares of
what a grid full of optima would have.

    python benchmarks/illuminate.py                     # 1000 generations of 540 candidates
    python benchmarks/illuminate.py --generations 10000 # as in the literature
"""

from __future__ import annotations

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


def main() -> None:
    parser = harness.make_parser(__doc__, runs=1, seed=0, only=True)
    parser.add_argument("--generations", type=int, default=1000, help="of 540 candidates each (%(default)s)")
    options = parser.parse_args()
    print(harness.describe_machine("galapax"))
    print(f"{options.generations:,} generations of 540, {DIM} variables, 100 x 100 cells, float32")
    print(f"{'problem':10} {'algorithm':11} {'coverage':>9} {'QD score':>9} {'seconds':>8} {'evaluations/s':>14}")
    for name, (fun, measures, ranges, half_width, worst) in PROBLEMS.items():
        if not harness.is_selected(name, options.only):
            continue
        step = (0.5 if name != "arm" else 0.2) / (2 * half_width)
        for algorithm in (gx.CMAMAE(worst=worst, sigma0=step), gx.MAPElites(population=540, iso=step / 5, line=0.2)):
            rows = []
            for seed in range(options.seed, options.seed + options.runs):
                found = gx.illuminate(
                    fun, [(-half_width, half_width)] * DIM, measures=measures, ranges=ranges, algorithm=algorithm,
                    x0=np.zeros((1, DIM)), generations=options.generations, seed=seed,
                    compute=gx.Compute(dtype="float32", threads=1),
                )  # fmt: skip
                quality = found.qd_score(worst) / worst / found.values.size
                rows.append((found.coverage, quality, found.result.timings["run"], found.result.nfev))
            coverage, quality, seconds, nfev = np.mean(rows, axis=0)
            label = gx.algorithms.algorithm_name(algorithm)
            print(f"{name:10} {label:11} {coverage:9.1%} {quality:9.1%} {seconds:8.1f} {nfev / seconds:14,.0f}")


if __name__ == "__main__":
    main()
