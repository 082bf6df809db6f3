"""Black boxes of which few evaluations can be had: the BBOB functions and constrained designs, called point by point.

    python benchmarks/few.py [--dim 5] [--instances 1 2 3] [--methods default SLSQP] [--constrained] [--processes 8]
        [--marks 100 200 500 1000] [--overhead]

Prints the share of targets (f - f_opt of 10, 1, 0.1, 0.01, 1e-3, 1e-5 and 1e-7, of 24 functions) that are reached after
10 d, 25 d, 50 d and 100 d evaluations (or other marks), and the mean of log10(f - f_opt): the default, its search by
models alone (`models`: no JAX around it, other random numbers), CMA-ES with restarts as the default has it, with a
surrogate up to 1000 d (`cmaes`), always (`surrogate`) or never (`no surrogate`), pycma's lq-CMA-ES and BIPOP, and from
random starts scipy's COBYQA, SLSQP, COBYQA for 10 d evaluations and then SLSQP, and Nelder-Mead. Differences count as
evaluations. Optuna's TPE where it is installed.
With --constrained, the median of the best feasible value of constrained problems after 10 d, 25 d and 50 d evaluations,
and how many runs were within 1e-4 of the best known value, relative to it, after 25 d: the default, which must keep
constraints exactly, and from random starts scipy's COBYQA, COBYLA and SLSQP, which may break them by 1e-3. Instances
are seeds.
With --overhead, CPU time that is spent outside the objective: milliseconds an evaluation of each search of the
portfolio, and seconds from the end of `import galapax` to the first evaluation that a model asks for, in a new process
with an empty disk cache.
The default was tuned on instances 11 to 13 of the BBOB functions and on seeds 100 to 119 of constrained problems.
Needs pycma, on whose functions all run (pip install cma).
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from itertools import repeat
from typing import Any

import cma
import jax
import numpy as np
from bbob_runs import Counted, Ended
from cma import bbobbenchmarks
from scipy.optimize import NonlinearConstraint, minimize

import galapax as gx
from galapax.local.few_evaluations import METHODS as SEARCHES
from galapax.local.few_evaluations import FewEvaluations
from galapax.local.mixed_descent import Grid

MARKS = (10, 25, 50, 100)  # evaluations a variable
CONSTRAINED_MARKS = (10, 25, 50)
TARGETS = (1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-5, 1e-7)
FUNCTIONS = range(1, 25)
CONSTRAINED = ("g01", "g04", "g06", "g07", "g09", "g10", "g16", "g18", "g19", "spring")
CONSTRAINED_METHODS = ("default", "COBYQA", "COBYLA", "SLSQP")
SOLVED = 1e-4  # difference from the best known value, relative to it
SOLVED_MARK = 25


def ours(algorithm: gx.CMAES | None) -> Callable[..., None]:
    def run(fun: Any, dim: int, seed: int, limit: int) -> None:
        restarts = "auto" if algorithm is None else "portfolio"
        gx.minimize(
            fun, [(-5.0, 5.0)] * dim, algorithm, restarts=restarts, blackbox=True, max_evaluations=limit, seed=seed,
            progress=False,
        )  # fmt: skip

    return run


def models(fun: Any, dim: int, seed: int, limit: int) -> None:
    search = FewEvaluations(dim, seed)
    while True:
        points = search.ask(1)
        search.tell(np.array([fun(-5.0 + 10.0 * u) for u in points]))


def pycma(fun: Any, dim: int, seed: int, limit: int) -> None:
    random = np.random.default_rng(seed)
    options = {"verbose": -9, "seed": seed + 1, "bounds": [-5, 5], "maxfevals": 10**9}
    cma.fmin2(fun, lambda: random.uniform(-4, 4, dim), 2.0, options, restarts=100, bipop=True)


def lq_cmaes(fun: Any, dim: int, seed: int, limit: int) -> None:
    random = np.random.default_rng(seed)
    for restart in range(10**6):
        options = {"verbose": -9, "seed": 1000 * seed + restart + 1, "bounds": [-5, 5], "maxfevals": 10**9}
        cma.fmin_lq_surr2(fun, random.uniform(-4, 4, dim), 2.0, options=options)


def scipys(method: str, **options: Any) -> Callable[..., None]:
    def run(fun: Any, dim: int, seed: int, limit: int) -> None:
        random = np.random.default_rng(seed)
        while True:
            minimize(fun, random.uniform(-4, 4, dim), method=method, bounds=[(-5, 5)] * dim, options=options)

    return run


def nelder_mead(fun: Any, dim: int, seed: int, limit: int) -> None:
    random = np.random.default_rng(seed)
    while True:
        x = random.uniform(-4, 4, dim)
        options = {"initial_simplex": np.vstack([x, x + np.diag(np.where(x > 3, -2.0, 2.0))]), "xatol": 1e-6}
        minimize(fun, x, method="Nelder-Mead", bounds=[(-5, 5)] * dim, options=options | {"fatol": 1e-8})


def cobyqa_then_slsqp(fun: Any, dim: int, seed: int, limit: int) -> None:
    random = np.random.default_rng(seed)
    while True:
        first = minimize(
            fun, random.uniform(-4, 4, dim), method="COBYQA", bounds=[(-5, 5)] * dim, options={"maxfev": 10 * dim}
        )
        minimize(fun, first.x, method="SLSQP", bounds=[(-5, 5)] * dim)


def optuna_tpe(fun: Any, dim: int, seed: int, limit: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
    study.optimize(
        lambda trial: fun(np.array([trial.suggest_float(f"x{i}", -5.0, 5.0) for i in range(dim)])),
        n_trials=limit,
    )


METHODS: dict[str, Callable[..., None]] = {
    "default": ours(None),
    "models": models,
    "cmaes": ours(gx.CMAES()),
    "surrogate": ours(gx.CMAES(surrogate=True)),
    "no surrogate": ours(gx.CMAES(surrogate=False)),
    "lq-CMA-ES": lq_cmaes,
    "pycma": pycma,
    "COBYQA": scipys("COBYQA"),
    "SLSQP": scipys("SLSQP"),
    "COBYQA, SLSQP": cobyqa_then_slsqp,
    "Nelder-Mead": nelder_mead,
    "Optuna TPE": optuna_tpe,
}


def precisions(method: str, function: int, instance: int, dim: int, marks: list[int]) -> list[float]:
    """The best f - f_opt after each number of evaluations."""
    fun, best = bbobbenchmarks.instantiate(function, instance)
    counted = Counted(fun, best, marks[-1] * dim)
    with suppress(Ended, gx.EvaluationError):
        METHODS[method](lambda x: counted.one(np.asarray(x, float)), dim, instance, marks[-1] * dim)
    steps = list(zip(counted.counts, counted.bests, strict=True))
    return [min(value for count, value in steps if count <= mark * dim) for mark in marks]


def print_bbob(dim: int, instances: list[int], methods: list[str], marks: list[int], processes: int) -> None:
    """Print the shares of targets reached on the BBOB functions."""
    cases = [(function, instance) for function in FUNCTIONS for instance in instances]
    print(f"{dim} variables, {len(cases)} runs: share of targets, mean log10(f - f_opt)")
    print("| | " + " | ".join(f"{mark} d" for mark in marks) + " | ms an evaluation |")
    print("| --- |" + " --- |" * (len(marks) + 1))
    with ProcessPoolExecutor(processes) as pool:
        for name in methods:
            start = time.perf_counter()
            values = np.array(
                list(pool.map(precisions, repeat(name), *zip(*cases, strict=True), repeat(dim), repeat(marks)))
            )
            milliseconds = 1e3 * processes * (time.perf_counter() - start) / len(cases) / dim / marks[-1]
            cells = [
                f"{np.mean([column <= target for target in TARGETS]):.1%} / "
                f"{np.mean([math.log10(max(value, 1e-8)) for value in column]):.2f}"
                for column in values.T
            ]
            print(f"| {name} | " + " | ".join(cells) + f" | {milliseconds:.1f} |", flush=True)


def best_feasible(name: str, method: str, seed: int) -> list[float]:
    """The best feasible value after each number of evaluations, inf before the first one."""
    problem = gx.problems.get(name)
    dim, limit = problem.dim, CONSTRAINED_MARKS[-1] * problem.dim
    lower, upper = (np.asarray(side, float) for side in (problem.bounds.lower, problem.bounds.upper))
    functions = {"fun": problem.fun, "ineq": problem.ineq}
    compiled = {name: jax.jit(function) for name, function in functions.items() if function is not None}
    best = [math.inf]

    def evaluate(x: Any) -> dict[str, Any]:
        if len(best) > limit:
            raise Ended
        with jax.enable_x64(True):
            values = {name: np.asarray(function(np.asarray(x, float)), float) for name, function in compiled.items()}
        is_feasible = bool(np.all(values["ineq"] <= (0.0 if method == "default" else 1e-3)))
        best.append(min(best[-1], values["fun"].item() if is_feasible else math.inf))
        return values

    with suppress(Ended, gx.EvaluationError):
        if method == "default":
            box = list(zip(lower.tolist(), upper.tolist(), strict=True))
            gx.minimize(evaluate, box, blackbox=True, max_evaluations=limit, seed=seed, progress=False)
        else:
            search_from_random_starts(evaluate, method, lower, upper, np.random.default_rng(seed))
    best += [best[-1]] * (limit + 1 - len(best))
    return [best[mark * dim] for mark in CONSTRAINED_MARKS]


def search_from_random_starts(
    evaluate: Callable[..., Any], method: str, lower: np.ndarray, upper: np.ndarray, random: np.random.Generator
) -> None:
    """Run a method of scipy on the unit box again and again; a point that it asks for twice counts once."""
    known: dict[bytes, dict[str, Any]] = {}

    def values(u: np.ndarray) -> dict[str, Any]:
        u = np.clip(np.asarray(u, float), 0, 1)
        if u.tobytes() not in known:
            known[u.tobytes()] = evaluate(lower + u * (upper - lower))
        return known[u.tobytes()]

    constraint = NonlinearConstraint(lambda u: np.atleast_1d(values(u)["ineq"]), -np.inf, 0.0)
    unlimited = {"COBYQA": {"maxfev": 10**6, "maxiter": 10**6}, "COBYLA": {"maxiter": 10**6}}
    while True:
        start = random.uniform(size=len(lower))
        minimize(
            lambda u: values(u)["fun"].item(), start, method=method, bounds=[(0, 1)] * len(lower),
            constraints=constraint, options=unlimited.get(method, {}),
        )  # fmt: skip


def print_constrained(seeds: list[int], methods: list[str], processes: int) -> None:
    """Print the best feasible values of constrained problems, and how many runs solved them."""
    print(
        f"median of {len(seeds)} runs, best feasible value after " + " / ".join(f"{m} d" for m in CONSTRAINED_MARKS)
        + f"; in brackets: runs that solved the problem in {SOLVED_MARK} d"
    )  # fmt: skip
    print("| | d | best known | " + " | ".join(methods) + " |")
    print("| --- | --- | --- |" + " --- |" * len(methods))
    with ProcessPoolExecutor(processes) as pool:
        for name in CONSTRAINED:
            problem = gx.problems.get(name)
            assert problem.optimum is not None
            limit = problem.optimum + SOLVED * abs(problem.optimum)
            cells = []
            for method in methods:
                runs = np.array(list(pool.map(best_feasible, repeat(name), repeat(method), seeds)))
                n_solved = int(np.sum(runs[:, CONSTRAINED_MARKS.index(SOLVED_MARK)] <= limit))
                medians = " / ".join("none" if math.isinf(m) else f"{m:.6g}" for m in np.median(runs, axis=0))
                cells.append(f"{medians} ({n_solved})")
            print(f"| {name} | {problem.dim} | {problem.optimum:.6g} | " + " | ".join(cells) + " |", flush=True)


def measure_searches(dim: int, evaluations: int) -> None:
    """Print the CPU time that each search of the portfolio takes to ask for a point."""
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(dim, dim)))[0]
    half_integers = Grid(np.where(np.arange(dim) % 2, 11, 0), np.zeros(dim, bool))

    def ripples(x: np.ndarray) -> float:
        return float(np.sum(x**2 - 10 * np.cos(2 * np.pi * x)))

    def ellipsoid(x: np.ndarray) -> float:
        return float(np.sum(1e3 ** np.linspace(0, 1, dim) * (rotation @ x) ** 2))

    def limits(x: np.ndarray) -> np.ndarray:
        return np.array([[float(x @ x) - 1.0, 0.5 - x[0] * x[-1]]])

    problems = {
        "sum over variables": (ripples, None, None),
        "ellipsoid": (ellipsoid, None, None),
        "two constraints": (ellipsoid, limits, None),
        "half of them integers": (ellipsoid, None, half_integers),
    }
    print(f"{dim} variables, {evaluations} evaluations: CPU milliseconds an evaluation of each search")
    for name, (fun, ineq, grid) in problems.items():
        search, times = FewEvaluations(dim, seed=1, grid=grid), [[0.0, 0] for _ in SEARCHES]
        for _ in range(evaluations):
            start, before = time.process_time(), search.evaluations.copy()
            x = 10.0 * search.ask()[0] - 4.0
            asking = time.process_time() - start
            values = np.array([fun(x)]), None if ineq is None else ineq(x)
            start = time.process_time()
            search.tell(*values)
            spent = times[int(np.argmax(search.evaluations - before))]
            spent[0] += asking + time.process_time() - start
            spent[1] += 1
        cells = [f"{s} {1e3 * t / n:.1f} ({n})" for s, (t, n) in zip(SEARCHES, times, strict=True) if n]
        print(f"{name}: " + ", ".join(cells), flush=True)


COLD_START = """
import time
import galapax as gx
start, times = time.process_time(), []
def fun(x):
    times.append(time.process_time() - start)
    value = float(sum((i + 1) * (x[i] - 0.3) ** 2 for i in range({dim})))
    return {{"fun": value, "ineq": [1 - x[0] - x[{dim} - 1]]}} if {constrained} else value
space = [gx.integer(-5, 5) if {integers} and i % 2 else gx.real(-5, 5) for i in range({dim})]
gx.minimize(fun, space, blackbox=True, max_evaluations={dim} + 5, progress=False)
print(times[{dim} + 2])
"""


def measure_cold_start() -> None:
    """Print the CPU time from the import to the first evaluation after the design of d + 2 points."""
    for dim in (2, 10, 20):
        for kind in ("plain", "constrained", "integers"):
            script = COLD_START.format(dim=dim, constrained=kind == "constrained", integers=kind == "integers")
            with tempfile.TemporaryDirectory() as cache:
                run = subprocess.run(
                    [sys.executable, "-c", script], env=os.environ | {"GALAPAX_CACHE": cache}, capture_output=True,
                    text=True, check=True,
                )  # fmt: skip
            print(f"{dim} variables, {kind}: {float(run.stdout.split()[-1]):.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", help="all that are installed, unless they are named")
    parser.add_argument("--marks", type=int, nargs="+", default=list(MARKS), help="evaluations a variable")
    parser.add_argument("--constrained", action="store_true")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    if options.overhead:
        measure_searches(options.dim, 50 * options.dim)
        measure_cold_start()
    elif options.constrained:
        print_constrained(options.instances, options.methods or list(CONSTRAINED_METHODS), options.processes)
    else:
        left_out = {"surrogate", "no surrogate"} | (set() if find_spec("optuna") else {"Optuna TPE"})
        methods = options.methods or [name for name in METHODS if name not in left_out]
        print_bbob(options.dim, options.instances, methods, options.marks, options.processes)


if __name__ == "__main__":
    main()
