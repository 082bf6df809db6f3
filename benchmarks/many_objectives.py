"""How close NSGA-III and MOEA/D come to the points where the reference directions meet the fronts of DTLZ1 to 4.

    python benchmarks/many_objectives.py                3, 5 and 8 objectives, 10 runs, beside the published numbers
    python benchmarks/many_objectives.py --objectives 3 10 --runs 20
    python benchmarks/many_objectives.py --hypervolume --runs 8

IGD as in Deb & Jain (2014), IEEE Trans. Evol. Comput. 18(4):577-601: against those points, not a dense front; best,
median and worst, in thousandths. Generations and directions are the paper's. NSGA-II has the population of NSGA-III.
"""

from __future__ import annotations

import time

import front_problems
import harness
import numpy as np

import galapax as gx
from galapax.core.algorithm import Algorithm
from galapax.metrics import indicators
from galapax.operators.niching import DEFAULT_DIVISIONS, two_layer_lattice

GENERATIONS = {
    "dtlz1": {3: 400, 5: 600, 8: 750, 10: 1000},
    "dtlz2": {3: 250, 5: 350, 8: 500, 10: 750},
    "dtlz3": {3: 1000, 5: 1000, 8: 1000, 10: 1500},
    "dtlz4": {3: 600, 5: 1000, 8: 1250, 10: 2000},
}
# best, median and worst of 20 runs, tables III and IV of the paper, in thousandths; MOEA/D with PBI
PUBLISHED = {
    "NSGA3": {
        "dtlz1": {3: (0.488, 1.308, 4.880), 5: (0.5116, 0.9799, 1.979), 8: (2.044, 3.979, 8.721),
                  10: (2.215, 3.462, 6.869)},
        "dtlz2": {3: (1.262, 1.357, 2.114), 5: (4.254, 4.982, 5.862), 8: (13.71, 15.71, 18.11),
                  10: (13.50, 15.28, 16.97)},
        "dtlz3": {3: (0.9751, 4.007, 6.665), 5: (3.086, 5.960, 11.96), 8: (12.44, 23.75, 96.49),
                  10: (8.849, 11.88, 20.83)},
        "dtlz4": {3: (0.2915, 0.5970, 428.6), 5: (0.9849, 1.255, 1.721), 8: (5.079, 7.054, 605.1),
                  10: (5.694, 6.337, 107.6)},
    },
    "MOEAD": {
        "dtlz1": {3: (0.4095, 1.495, 4.743), 5: (0.3179, 0.6372, 1.635), 8: (3.914, 6.106, 8.537),
                  10: (3.872, 5.073, 6.130)},
        "dtlz2": {3: (0.5432, 0.6406, 0.8006), 5: (1.219, 1.437, 1.727), 8: (3.097, 3.763, 5.198),
                  10: (2.474, 2.778, 3.235)},
    },
}  # fmt: skip


def targets(name: str, m: int) -> np.ndarray:
    """The points where the directions meet the front."""
    w = two_layer_lattice(m, DEFAULT_DIVISIONS[m])
    return w / 2 if name == "dtlz1" else w / np.linalg.norm(w, axis=1, keepdims=True)


def distances(name: str, m: int, algorithm: Algorithm, runs: int) -> np.ndarray:
    """The IGD of each run."""
    problem = gx.problems.get(name, objectives=m)
    result = gx.minimize(
        problem,
        algorithm,
        generations=GENERATIONS[name][m],
        runs=runs,
        progress=False,
        keep=gx.Keep(history=False),
        compute=gx.Compute(dtype="float64"),
    )
    fronts = [result] if result.runs is None else result.runs.fronts
    return np.array([gx.indicators.igd(front.F, targets(name, m)) for front in fronts])


def shares(runs: int) -> None:
    """Of three objectives the share of the true front's hypervolume, NSGA-II, NSGA-III and SMS-EMOA."""
    budgets = {"dtlz1": 400, "dtlz2": 250, "dtlz3": 500, "dtlz4": 300, "dtlz7": 250, "c2_dtlz2": 250}
    print(f"hypervolume, worst / median / best of {runs} runs, populations of 92")
    for name, generations in budgets.items():
        problem = front_problems.get(name)
        for solver in (gx.NSGA2(population=92), gx.NSGA3(), gx.SMSEMOA(population=92)):
            result = gx.minimize(
                problem, solver, generations=generations, runs=runs, progress=False, compute=gx.Compute(dtype="float64")
            )
            fronts = [result] if result.runs is None else result.runs.fronts
            found = [indicators.volume(f.F, np.array(problem.reference_point)) / problem.hypervolume for f in fronts]
            line = " / ".join(f"{v:.4f}" for v in (np.min(found), np.median(found), np.max(found)))
            print(f"{name:>8} {generations:>5}  {type(solver).__name__:>7} {line}", flush=True)


def cell(values: tuple[float, ...] | None) -> str:
    return "" if values is None else " / ".join(f"{v:.3g}" for v in values)


def main() -> None:
    parser = harness.make_parser(__doc__, runs=10)
    parser.add_argument("--problems", nargs="*", default=list(GENERATIONS))
    parser.add_argument("--objectives", nargs="*", type=int, default=[3, 5, 8])
    parser.add_argument("--nsga2", action="store_true", help="NSGA-II instead")
    parser.add_argument("--hypervolume", action="store_true", help="of three objectives, beside NSGA-II, instead")
    given = parser.parse_args()
    if given.hypervolume:
        shares(given.runs)
        return
    kinds = {"NSGA3": gx.NSGA3, "MOEAD": gx.MOEAD}
    print(f"IGD in thousandths, best / median / worst of {given.runs} runs")
    print(f"{'problem':>8} {'m':>3} {'generations':>11}  {'method':>6} {'galapax':>24} {'published':>24}  seconds")
    for m in given.objectives:
        for name in given.problems:
            solvers: dict[str, Algorithm] = {label: kind() for label, kind in kinds.items()}
            if given.nsga2:
                solvers = {"NSGA2": gx.NSGA2(population=-(-len(two_layer_lattice(m, DEFAULT_DIVISIONS[m])) // 4) * 4)}
            for label, solver in solvers.items():
                began = time.perf_counter()
                found = 1000 * distances(name, m, solver, given.runs)
                ours = cell((found.min(), float(np.median(found)), found.max()))
                paper = cell(PUBLISHED.get(label, {}).get(name, {}).get(m))
                took = time.perf_counter() - began
                print(f"{name:>8} {m:>3} {GENERATIONS[name][m]:>11}  {label:>6} {ours:>24} {paper:>24}  {took:.0f}",
                      flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
