"""All global optima of the CEC 2013 niching suite by `gx.minima`, with the suite's budgets and its way of counting.

    python benchmarks/minima.py [--functions 1 2 3] [--runs 3] [--first-seed 100]

Prints for every function the peak ratio (the share of the global optima found, the mean over runs and the accuracies
1e-1 to 1e-5) and the static F1 score (the harmonic mean of that and of the share of the reported points that are
optima), with the seconds of a run. Only values are used, no gradients. The suite's rule is 50 runs (`make minima`).
Published means of 50 runs, from the suite's repository (GECCO 2016 to 2019): HillVallEA19 0.8916 and 0.9335, HillVallEA
0.8851 and 0.9297, RS-CMSA-ES 0.8557 and 0.9106, SDE-Ga 0.8329 and 0.8835, NEA2+ 0.8071 and 0.8548.
The constants of the search were chosen while looking at seed 0 of this suite; the table uses others, but the same
functions.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import galapax as gx
from galapax.problems.cec2013_niching import ACCURACIES, NICHING_FUNCTIONS, count_optima


def score(function: int, table: gx.Minima) -> tuple[float, float]:
    """The peak ratio and the static F1 score of reported minima, means over the accuracies."""
    n_optima = NICHING_FUNCTIONS[function].n_optima
    ratios, scores = [], []
    for accuracy in ACCURACIES:
        count = count_optima(function, table.x, table.fun, accuracy)
        ratios.append(count / n_optima)
        scores.append(2 * count / (len(table) + n_optima))  # of precision count / len and recall count / n_optima
    return float(np.mean(ratios)), float(np.mean(scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, nargs="+", default=list(NICHING_FUNCTIONS))
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=100)
    arguments = parser.parse_args()
    means = []
    print(f"{'function':32} {'optima':>6} {'peak ratio':>10} {'F1':>6} {'seconds':>8}", flush=True)
    for function in arguments.functions:
        definition, problem = NICHING_FUNCTIONS[function], gx.problems.niching(function)
        began, rows = time.perf_counter(), []
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.runs):
            limit = definition.max_evaluations
            result = gx.minima(problem, global_only=True, unseen=0.0, max_evaluations=limit, seed=seed)
            assert result.nfev <= limit
            rows.append(score(function, result.minima))
        seconds = (time.perf_counter() - began) / arguments.runs
        ratio, f1 = np.mean(rows, axis=0)
        means.append((ratio, f1))
        name = f"F{function} {definition.title}"
        print(f"{name:32} {definition.n_optima:6d} {ratio:10.3f} {f1:6.3f} {seconds:8.1f}", flush=True)
    ratio, f1 = np.mean(means, axis=0)
    print(f"{'mean':32} {'':6} {ratio:10.4f} {f1:6.4f}")


if __name__ == "__main__":
    main()
