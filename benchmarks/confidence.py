"""How often is a success of the default right, and how often does a solved run say so? BBOB, without a target.

A run has solved its function if it reached f_opt + 1e-8. A success is wrong if its value is not within 1e-6 of f_opt.
"wasted" is the share of a solved run's evaluations after the last improvement: after its best value first came within
1e-8 of its last one. Thresholds and policies were chosen on instances 11 to 13 in 2 and 5 variables.

    python benchmarks/confidence.py                                    # instances 1 to 3 in 2 to 20 variables
    python benchmarks/confidence.py --dims 2 --functions 1 3 8 21      # a minute
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

import numpy as np

import galapax as gx


class SolvedRun(NamedTuple):
    """A run, judged."""

    function: int
    instance: int
    error: float  # f - f_opt
    success: bool
    confidence: float
    evaluations: int
    wasted: int  # evaluations after the last improvement

    @property
    def solved(self) -> bool:
        return self.error <= 1e-8

    @property
    def wrong(self) -> bool:
        return self.success and self.error > 1e-6


def solve(function: int, dim: int, instance: int, budget: int, options: dict[str, Any]) -> SolvedRun:
    """Make a run that does not know the best value."""
    problem = gx.problems.bbob(function, dim, instance)
    result = gx.minimize(problem, max_evaluations=budget * dim, seed=instance, progress=False, **options)
    best = result.history.best
    first = int(np.argmax(best <= best[-1] + 1e-8))
    wasted = int(result.nfev - result.history.nfev[first])
    confidence = np.nan if result.confidence is None else result.confidence
    return SolvedRun(function, instance, float(result.fun), result.success, confidence, result.nfev, wasted)


def print_row(dim: int, runs: list[SolvedRun]) -> None:
    solved, successes = [run for run in runs if run.solved], [run for run in runs if run.success]
    wrong = [run for run in runs if run.wrong]
    say_so = sum(run.success for run in solved) / max(1, len(solved))
    wasted = float(np.mean([run.wasted / run.evaluations for run in solved])) if solved else np.nan
    n_evaluations = float(np.mean([run.evaluations for run in runs]))
    names = ", ".join(f"f{run.function} ({run.confidence:.2f})" for run in wrong)
    print(
        f"| {dim} | {len(runs)} | {len(solved)} | {len(successes)} | {len(wrong)} {f': {names}' if wrong else ''}"
        f"| {say_so:.0%} | {wasted:.0%} | {n_evaluations:,.0f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 3, 5, 10, 20])
    parser.add_argument("--functions", type=int, nargs="+", default=list(range(1, 25)))
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--budget", type=int, default=10_000, help="evaluations of a run, times the dimension")
    parser.add_argument("--gradients", action="store_true", help="as a user has it; by default polish=False")
    given = parser.parse_args()
    gx.cache.enable()
    options: dict[str, Any] = {} if given.gradients else {"polish": False}
    print("| variables | runs | solved | success | wrong | solved that say so | wasted | evaluations of a run |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for dim in given.dims:
        runs = []
        for function in given.functions:
            runs += [solve(function, dim, instance, given.budget, options) for instance in given.instances]
            print(f"f{function} in {dim}-D: {[(f'{r.error:.1e}', r.success) for r in runs[-3:]]}", file=sys.stderr)
        print_row(dim, runs)


if __name__ == "__main__":
    main()
