"""What calling a black box costs beyond the box itself: in this process, and by processes that take 10 ms a point.

    python benchmarks/blackbox.py [--workers 8] [--quick]

Prints microseconds an evaluation in process at a population of 1000, beside pymoo's where it is installed (the same
algorithm, objective and generations; both after a first run), and how much longer than the ideal, points x 10 ms /
workers, generations take with worker processes. Starting the workers is printed by itself: it happens once a run.
"""

from __future__ import annotations

import time

import harness
import numpy as np

import galapax as gx

N, DIM = 1000, 10
BOX = [(-5.0, 10.0)] * DIM
NAP = 0.01


def nothing(x):
    return 0.0


def sleeping(x):
    time.sleep(NAP)
    return float(x @ x)


def called(generations):
    """Seconds an evaluation of an objective that does nothing."""
    result = gx.minimize(nothing, BOX, "de", population=N, generations=generations, blackbox=True, tolerance=0)
    return result.timings["run"] / result.nfev


def by_pymoo(generations):
    from pymoo.algorithms.soo.nonconvex.de import DE
    from pymoo.core.problem import ElementwiseProblem
    from pymoo.optimize import minimize

    class Nothing(ElementwiseProblem):
        def __init__(self):
            super().__init__(n_var=DIM, n_obj=1, xl=np.full(DIM, -5.0), xu=np.full(DIM, 10.0))

        def _evaluate(self, x, out, *rest, **more):
            out["F"] = nothing(x)

    start = time.perf_counter()
    minimize(Nothing(), DE(pop_size=N), ("n_gen", generations), seed=1, verbose=False)
    return (time.perf_counter() - start) / (generations * N)


def by_workers(workers, population, generations):
    """(seconds of the generations after the first, their ideal, seconds until the first was there)"""
    marks = []

    def note(state):
        marks.append(time.perf_counter() - start)

    start = time.perf_counter()
    settings = {"population": population, "generations": generations, "tolerance": 0}
    gx.minimize(sleeping, BOX, "de", workers=workers, callback=note, **settings)
    return marks[-1] - marks[0], (generations - 1) * population * NAP / workers, marks[0]


def main():
    parser = harness.make_parser(__doc__, rounds=3)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    generations = 10 if options.quick else 50
    print(harness.describe_machine("pymoo"))
    here = harness.time_calls(lambda: called(generations), options.rounds).results
    print(f"in process, population {N}: {1e6 * min(here):.1f} us an evaluation")
    try:
        there = harness.time_calls(lambda: by_pymoo(generations), options.rounds).results
        print(f"pymoo: {1e6 * min(there):.1f} us an evaluation")
    except ModuleNotFoundError:
        print("pymoo is not installed")
    for population in (160, 400, 1000):
        taken, ideal, first = by_workers(options.workers, population, 4 if options.quick else 11)
        print(
            f"{options.workers} processes, {1000 * NAP:g} ms a point, population {population}: {taken:.3f} s, ideal "
            f"{ideal:.3f} s, {100 * (taken / ideal - 1):.1f} % more; first generation after {first:.1f} s"
        )


if __name__ == "__main__":
    main()
