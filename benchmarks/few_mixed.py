"""Black boxes of integers and real numbers of which few evaluations can be had: discretised BBOB functions.

    python benchmarks/few_mixed.py [--dim 5] [--instances 1 2 3] [--methods default EpsilonDE pycma]

Prints the share of targets (f - f_opt of 10, 1, 0.1, 0.01, 1e-3, 1e-5 and 1e-7, of 24 functions) that are reached after
25 d, 50 d and 100 d evaluations. As in bbob-mixint of COCO (Tušar, Brockhoff & Hansen 2019,
doi:10.1145/3321707.3321868), a fifth of the variables each has 2, 4, 8 and 16 values, evenly spaced inside [-5, 5], and
a fifth is real; the function is shifted so that its optimum is on the grid. The scaling of the suite is left out, so
its published shares cannot be compared with these. pycma is its BIPOP-CMA-ES with `integer_variables`.
The default was tuned on instances 11 and 12. Gear train, pressure vessel and others: `mixed.py --few 100`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cma
import jax
import numpy as np

import galapax as gx

MARKS = (25, 50, 100)  # evaluations a variable
TARGETS = (1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-5, 1e-7)
FUNCTIONS = range(1, 25)
LEVELS = (2, 4, 8, 16, 0)  # values of the variables of each fifth, 0 for real ones


class Ended(Exception):
    """Raised when the budget is spent."""


class MixedFunction:
    """A BBOB function on a grid; it counts its evaluations and remembers the best value after each."""

    def __init__(self, function: int, dim: int, instance: int) -> None:
        problem = gx.problems.bbob(function, dim, instance)
        self.levels = np.repeat(LEVELS, dim // len(LEVELS))
        self.variables = [gx.integer(0, int(n) - 1) if n else gx.real(-5.0, 5.0) for n in self.levels]
        self.lower = np.where(self.levels > 0, -0.5, -5.0)
        self.upper = np.where(self.levels > 0, self.levels - 0.5, 5.0)
        optimum = np.asarray(problem.solutions)[0]
        codes = np.round((optimum + 5) / 10 * (self.levels + 1) - 1)
        nearest = self.to_inner(np.clip(codes, 0, np.maximum(self.levels - 1, 0)))
        self.shift = np.where(self.levels > 0, optimum - nearest, 0.0)
        self.fun, self.budget = jax.jit(problem.fun), MARKS[-1] * dim
        self.bests: list[float] = []

    def to_inner(self, x: np.ndarray) -> np.ndarray:
        """The places of codes in [-5, 5]; real variables stay where they are."""
        return np.where(self.levels > 0, -5 + 10 * (x + 1) / (self.levels + 1), x)

    def __call__(self, x: Any) -> float:
        if len(self.bests) >= self.budget:
            raise Ended
        with jax.enable_x64(True):
            value = float(self.fun(self.to_inner(np.asarray(x, float)) + self.shift))
        self.bests.append(min(value, self.bests[-1]) if self.bests else value)
        return value


def ours(algorithm: str | None) -> Callable[[MixedFunction, int], None]:
    def run(fun: MixedFunction, seed: int) -> None:
        gx.minimize(fun, fun.variables, algorithm, blackbox=True, max_evaluations=fun.budget, seed=seed, progress=False)

    return run


def pycma(fun: MixedFunction, seed: int) -> None:
    random, span, discrete = np.random.default_rng(seed), fun.upper - fun.lower, fun.levels > 0
    options = {"verbose": -9, "seed": seed + 1, "bounds": [fun.lower.tolist(), fun.upper.tolist()]}
    options |= {"CMA_stds": span.tolist(), "integer_variables": np.flatnonzero(discrete).tolist(), "maxfevals": 10**9}

    def call(x: np.ndarray) -> float:
        x = np.clip(x, fun.lower, fun.upper)
        return fun(np.where(discrete, np.clip(np.round(x), 0, fun.levels - 1), x))

    cma.fmin2(call, lambda: fun.lower + span * random.uniform(size=len(span)), 0.25, options, restarts=100, bipop=True)


METHODS = {"default": ours(None), "EpsilonDE": ours("epsilon_de"), "pycma": pycma}


def reached_targets(method: Callable[[MixedFunction, int], None], function: int, instance: int, dim: int) -> list[int]:
    """How many targets are reached after each number of evaluations."""
    fun = MixedFunction(function, dim, instance)
    with suppress(Ended, gx.EvaluationError):
        method(fun, instance)
    bests = [fun.bests[min(mark * dim, len(fun.bests)) - 1] for mark in MARKS]
    return [sum(best <= target for target in TARGETS) for best in bests]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    cases = [(function, instance) for function in FUNCTIONS for instance in options.instances]
    print(f"{options.dim} variables, {len(cases)} runs: share of targets")
    print("| | " + " | ".join(f"{mark} d" for mark in MARKS) + " | ms an evaluation |")
    print("| --- |" + " --- |" * (len(MARKS) + 1))
    for name in options.methods:
        start = time.process_time()
        counts = np.array([reached_targets(METHODS[name], *case, options.dim) for case in cases])
        milliseconds = 1e3 * (time.process_time() - start) / len(cases) / options.dim / MARKS[-1]
        shares = " | ".join(f"{share:.1%}" for share in counts.mean(axis=0) / len(TARGETS))
        print(f"| {name} | {shares} | {milliseconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
