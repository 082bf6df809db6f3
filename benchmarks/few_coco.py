"""Few evaluations on two suites of COCO: bbob-mixint (integers) and bbob-constrained.

    python benchmarks/few_coco.py bbob-mixint [--dim 5] [--instances 1 2 3] [--methods default pycma] [--processes 2]

Prints the share of targets (f - f_opt of 10, 1, 0.1, 0.01, 1e-3, 1e-5 and 1e-7, of all functions of the suite) that are
reached after 10 d, 25 d, 50 d and 100 d evaluations by points that break no constraint by more than 1e-10. A point
whose objective and constraints are evaluated counts once. Published results of the suites have other targets and
count objective and constraints apart, so their shares cannot be compared digit by digit. pycma is BIPOP-CMA-ES with
`integer_variables`; scipy's methods begin at random points, again and again, and differences count.
Nothing was tuned on these suites. Needs coco-experiment, which is a package of its own, and pycma.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import Any

import cocoex
import numpy as np
from few import TARGETS, search_from_random_starts

import galapax as gx

MARKS = (10, 25, 50, 100)  # evaluations a variable
FEASIBLE = 1e-10  # violation that rounding of the suite's own optima has
N_FUNCTIONS = {"bbob-mixint": 24, "bbob-constrained": 54}


class Ended(gx.EvaluationError):
    """Raised when the budget is spent."""


class Counted:
    """A function of a suite that remembers the best feasible f - f_opt after each evaluation."""

    def __init__(self, suite: str, function: int, dim: int, instance: int) -> None:
        options = f"dimensions:{dim} function_indices:{function} instance_indices:{instance}"
        self.suite = cocoex.Suite(suite, "", options)  # a problem lives as long as its suite
        self.problem = self.suite[0]
        self.optimum, self.bests, self.budget = find_optimum(self.problem), [math.inf], MARKS[-1] * dim
        self.is_constrained = self.problem.number_of_constraints > 0
        self.lower, self.upper = np.array(self.problem.lower_bounds), np.array(self.problem.upper_bounds)
        self.is_integer = np.arange(dim) < self.problem.number_of_integer_variables

    def __call__(self, x: Any) -> dict[str, Any]:
        if len(self.bests) > self.budget:
            raise Ended
        x = np.asarray(x, float)
        values: dict[str, Any] = {"fun": np.array(self.problem(x))}
        if self.is_constrained:
            values["ineq"] = np.array(self.problem.constraint(x))
        is_feasible = bool(np.all(values.get("ineq", 0.0) <= FEASIBLE))
        self.bests.append(min(self.bests[-1], float(values["fun"]) - self.optimum if is_feasible else math.inf))
        return values


def find_optimum(problem: Any) -> float:
    """The least value of a problem, which the suite writes into a file of the working folder."""
    folder = os.getcwd()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        try:
            problem._best_parameter("print")
            return float(problem(np.loadtxt(os.listdir(scratch)[0])))
        finally:
            os.chdir(folder)


def default(fun: Counted, seed: int) -> None:
    sides = zip(fun.lower.tolist(), fun.upper.tolist(), fun.is_integer, strict=True)
    variables = [gx.integer(int(low), int(high)) if whole else gx.real(low, high) for low, high, whole in sides]
    answer = fun if fun.is_constrained else (lambda x: float(fun(x)["fun"]))
    gx.minimize(answer, variables, blackbox=True, max_evaluations=fun.budget, seed=seed, progress=False)


def pycma(fun: Counted, seed: int) -> None:
    import cma

    random, span = np.random.default_rng(seed), fun.upper - fun.lower
    low, high = (
        np.where(fun.is_integer, fun.lower - 0.5, fun.lower),
        np.where(fun.is_integer, fun.upper + 0.5, fun.upper),
    )
    options = {"verbose": -9, "seed": seed + 1, "bounds": [low.tolist(), high.tolist()], "maxfevals": 10**9}
    options |= {"CMA_stds": (span + fun.is_integer).tolist()}
    options |= {"integer_variables": np.flatnonzero(fun.is_integer).tolist()}

    def call(x: np.ndarray) -> float:
        x = np.clip(x, fun.lower, fun.upper)
        return float(fun(np.where(fun.is_integer, np.clip(np.round(x), fun.lower, fun.upper), x))["fun"])

    cma.fmin2(call, lambda: low + (high - low) * random.uniform(size=len(low)), 0.25, options, restarts=100, bipop=True)


def scipys(method: str) -> Callable[[Counted, int], None]:
    def run(fun: Counted, seed: int) -> None:
        search_from_random_starts(fun, method, fun.lower, fun.upper, np.random.default_rng(seed))

    return run


METHODS: dict[str, dict[str, Callable[[Counted, int], None]]] = {
    "bbob-mixint": {"default": default, "pycma": pycma},
    "bbob-constrained": {
        "default": default, "COBYLA": scipys("COBYLA"), "COBYQA": scipys("COBYQA"), "SLSQP": scipys("SLSQP")
    },
}  # fmt: skip


def count_targets(suite: str, method: str, function: int, dim: int, instance: int) -> list[int]:
    """How many targets are reached after each number of evaluations."""
    fun = Counted(suite, function, dim, instance)
    with warnings.catch_warnings(), suppress(Ended, gx.EvaluationError):
        warnings.simplefilter("ignore")
        METHODS[suite][method](fun, instance)
    bests = [fun.bests[min(mark * dim, len(fun.bests) - 1)] for mark in MARKS]
    return [sum(best <= target for target in TARGETS) for best in bests]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(METHODS))
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    functions = range(1, N_FUNCTIONS[options.suite] + 1)
    cases = [(function, instance) for function in functions for instance in options.instances]
    print(f"{options.suite}, {options.dim} variables, {len(cases)} runs: share of targets")
    print("| | " + " | ".join(f"{mark} d" for mark in MARKS) + " |")
    print("| --- |" + " --- |" * len(MARKS))
    for name in options.methods or METHODS[options.suite]:
        tasks = [(options.suite, name, function, options.dim, instance) for function, instance in cases]
        with ProcessPoolExecutor(options.processes) as pool:
            counts = np.array(list(pool.map(count_targets, *zip(*tasks, strict=True))))
        shares = " | ".join(f"{share:.1%}" for share in counts.mean(axis=0) / len(TARGETS))
        print(f"| {name} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
