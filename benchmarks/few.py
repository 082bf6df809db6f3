"""Black boxes of which few evaluations can be had: the BBOB functions, called point by point.

    python benchmarks/few.py [--dim 5] [--instances 1 2 3]

Prints the mean over the 24 functions of log10(f - f_opt) after so many evaluations, and in how many of the runs the
default was ahead of and behind each other method: `cmaes` that restarts, pycma's BIPOP, and from random starts scipy's
Nelder-Mead with a first simplex of a fifth of the box, Powell, and L-BFGS-B, whose finite differences count as
evaluations. Needs pycma, on whose functions all run (pip install cma).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cma
import numpy as np
from bbob_runs import Counted, Ended
from cma import bbobbenchmarks
from scipy.optimize import minimize

import galapax as gx

MARKS = (50, 100, 200, 500)
FUNCTIONS = range(1, 25)


def ours(algorithm: str | None) -> Callable[..., None]:
    def run(fun: Any, dim: int, seed: int) -> None:
        restarts = "auto" if algorithm is None else "portfolio"
        gx.minimize(
            fun, [(-5.0, 5.0)] * dim, algorithm, restarts=restarts, blackbox=True, max_evaluations=MARKS[-1], seed=seed,
            progress=False,
        )  # fmt: skip

    return run


def pycma(fun: Any, dim: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    options = {"verbose": -9, "seed": seed + 1, "bounds": [-5, 5], "maxfevals": 10**9}
    cma.fmin2(fun, lambda: random.uniform(-4, 4, dim), 2.0, options, restarts=100, bipop=True)


def nelder_mead(fun: Any, dim: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    while True:
        x = random.uniform(-4, 4, dim)
        options = {"initial_simplex": np.vstack([x, x + np.diag(np.where(x > 3, -2.0, 2.0))]), "xatol": 1e-6}
        minimize(fun, x, method="Nelder-Mead", bounds=[(-5, 5)] * dim, options=options | {"fatol": 1e-8})


def scipys(method: str) -> Callable[..., None]:
    def run(fun: Any, dim: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        while True:
            minimize(fun, random.uniform(-4, 4, dim), method=method, bounds=[(-5, 5)] * dim)

    return run


METHODS = {
    "default": ours(None),
    "cmaes": ours("cmaes"),
    "pycma": pycma,
    "Nelder-Mead": nelder_mead,
    "Powell": scipys("Powell"),
    "L-BFGS-B": scipys("L-BFGS-B"),
}


def precisions(method: Callable[..., None], function: int, instance: int, dim: int) -> list[float]:
    """log10 of the best f - f_opt after each number of evaluations."""
    fun, best = bbobbenchmarks.instantiate(function, instance)
    counted = Counted(fun, best, MARKS[-1])
    with suppress(Ended, gx.EvaluationError):
        method(lambda x: counted.one(np.asarray(x, float)), dim, instance)
    made = list(zip(counted.counts, counted.bests, strict=True))
    found = [min(best for count, best in made if count <= mark) for mark in MARKS]
    return [math.log10(max(value, 1e-8)) for value in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 2, 3])
    given = parser.parse_args()
    cases = [(function, instance) for function in FUNCTIONS for instance in given.instances]
    found = {
        name: np.array([precisions(method, *case, given.dim) for case in cases]) for name, method in METHODS.items()
    }
    print(f"{given.dim} variables, {len(cases)} runs: mean log10(f - f_opt), and share ahead / behind of the default")
    print("| evaluations | " + " | ".join(METHODS) + " |")
    print("| --- |" + " --- |" * len(METHODS))
    for column, mark in enumerate(MARKS):
        own, cells = found["default"][:, column], []
        for name, values in found.items():
            theirs = values[:, column]
            ahead, behind = np.mean(own < theirs - 1e-9), np.mean(own > theirs + 1e-9)
            cells.append(f"{theirs.mean():.2f}" + (f" ({ahead:.0%} / {behind:.0%})" if name != "default" else ""))
        print(f"| {mark} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
