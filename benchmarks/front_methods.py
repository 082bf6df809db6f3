"""Which method for how many objectives, with and without constraints: four methods on 39 problems.

    python benchmarks/front_methods.py                      all problems, 11 seeds of ours and 5 of pymoo's
    python benchmarks/front_methods.py wfg4 mw8 --alone     some, without pymoo; --methods sms_emoa: one method of ours
    python benchmarks/front_methods.py "wfg2 of three" --below 0.8    and how many runs get below that in f3

Median share of the front's hypervolume (exact, moocore; 0 for a run without a feasible point), from seed 1000 on: no
setting was chosen by these seeds. All methods evaluate the same number of points: populations of 100 with two
objectives, else 92 with three and 212 with five, where SMS-EMOA has no number; MOEA/D has one individual less for each
of its directions, and as many generations more. pymoo's is its NSGA-II with two objectives and its NSGA-III with more,
on the same compiled functions.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from typing import Any

import front_problems
import harness
import numpy as np
from fronts import as_pymoo

import galapax as gx
from galapax.metrics import indicators
from galapax.operators.contributions import MAX_EXACT_OBJECTIVES
from galapax.operators.niching import DEFAULT_DIVISIONS, two_layer_lattice

ZDT = ("zdt1", "zdt2", "zdt3", "zdt4", "zdt6")
PROBLEMS = {  # name: number of objectives where it can be chosen
    **dict.fromkeys(ZDT), "wfg1": 2, "wfg4": 2,
    **dict.fromkeys(("tnk", "osy", "welded_beam", "mw1", "mw2", "mw3", "mw13", "blending")),
    **dict.fromkeys(("dtlz1", "dtlz2", "dtlz3", "dtlz4", "dtlz5", "dtlz7", "crashworthiness")),
    **{f"{name} of three": 3 for name in front_problems.WFG},
    **dict.fromkeys(("c1_dtlz1", "c1_dtlz3", "c2_dtlz2", "c3_dtlz1", "c3_dtlz4", "mw4", "mw8", "car_side_impact")),
    "water_resources": None,
}  # fmt: skip
METHODS = {"nsga2": "NSGA-II", "nsga3": "NSGA-III", "moead": "MOEA/D", "sms_emoa": "SMS-EMOA"}
SEED = 1000  # the first


def problem_of(name: str) -> Any:
    return front_problems.get(name.split()[0], PROBLEMS[name])


def sizes(m: int) -> tuple[int, int]:
    """Population and generations."""
    return {2: (100, 200), 3: (92, 250), 5: (212, 100)}[m]


def ours(problem: Any, solver: Any, generations: int, runs: int, seed: int) -> Iterator[np.ndarray]:
    """The front of each run."""
    result = gx.minimize(
        problem,
        solver,
        generations=generations,
        runs=runs,
        seed=seed,
        progress=False,
        keep=gx.Keep(history=False),
        compute=gx.Compute(dtype="float64"),
    )
    for front in [result] if result.runs is None else result.runs.fronts:
        yield front.F


def pymoo(problem: Any, m: int, runs: int, first: int) -> Iterator[np.ndarray]:
    """The same of pymoo's."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.algorithms.moo.nsga3 import NSGA3
    from pymoo.optimize import minimize

    population, generations = sizes(m)
    with as_pymoo(problem) as same:
        for seed in range(first, first + runs):
            solver = NSGA2(pop_size=population)
            if m > 2:
                solver = NSGA3(ref_dirs=two_layer_lattice(m, DEFAULT_DIVISIONS[m]), pop_size=population)
            found = minimize(same, solver, ("n_gen", generations), seed=seed)
            yield np.empty((0, m)) if found.F is None else np.atleast_2d(found.F)


def measured(problem: Any, fronts: Iterator[np.ndarray], below: float) -> tuple[float, float]:
    """Of these fronts the median share of the hypervolume, and how many get below that in the last objective."""
    found, corner = list(fronts), np.array(problem.reference_point)
    shares = [indicators.volume(front, corner) / problem.hypervolume for front in found]
    return float(np.median(shares)), float(np.mean([np.any(front[:, -1] < below) for front in found]))


def row(name: str, methods: list[str], runs: int, peers: int, seed: int = SEED, below: float | None = None) -> str:
    """One line of the table."""
    problem, began = problem_of(name), time.perf_counter()
    m = len(problem.reference_point)
    population, generations = sizes(m)
    directions = two_layer_lattice(m, DEFAULT_DIVISIONS[m])
    solvers: dict[str, tuple[Any, int]] = {
        "nsga2": (gx.NSGA2(population=population), generations),
        "nsga3": (gx.NSGA3(population=population, divisions=DEFAULT_DIVISIONS[m]), generations),
        "moead": (gx.MOEAD(population=len(directions)), round(generations * population / len(directions))),
        "sms_emoa": (gx.SMSEMOA(population=population), generations),
    }
    asked = [method for method in methods if m <= MAX_EXACT_OBJECTIVES or method != "sms_emoa"]
    level = np.inf if below is None else below
    found = {method: measured(problem, ours(problem, *solvers[method], runs, seed), level) for method in asked}
    best = max(share for share, _ in found.values())
    if peers:
        found["pymoo"] = measured(problem, pymoo(problem, m, peers, seed), level)
    cells = []
    for column in [*methods, "pymoo"] if peers else methods:
        share, reached = found.get(column, (np.nan, np.nan))
        bold = "**" * (share > best - 5e-4)
        count = "" if below is None else f" ({reached:.0%})"
        cells.append(f"{bold}{share:.3f}{bold}{count}" if column in found else "")
    kind = "yes" if problem.constrained else "no"
    return f"| {name.split()[0]} | {m} | {kind} | {' | '.join(cells)} | {time.perf_counter() - began:.0f}"


def main() -> None:
    parser = harness.make_parser(__doc__, runs=11, seed=SEED)
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--peer-runs", type=int, default=5)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--alone", action="store_true", help="without pymoo")
    parser.add_argument("--below", type=float, help="also the share of runs with less than this in the last objective")
    given = parser.parse_args()
    peers = given.peer_runs if not given.alone and importlib.util.find_spec("pymoo") else 0
    heads = [METHODS[method] for method in given.methods] + ["pymoo"] * bool(peers)
    print(f"| problem | objectives | constraints | {' | '.join(heads)} | seconds")
    for name in given.problems:
        print(row(name, given.methods, given.runs, peers, given.seed, given.below), flush=True)


if __name__ == "__main__":
    main()
