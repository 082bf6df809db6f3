"""Results of random numbers of every kind that a report can show."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np

import galapax as gx
from galapax.core.problem import Problem, box
from galapax.core.stop import Stop
from galapax.results.result import History, Result, Runs
from galapax.results.study import Study


def history(runs, generations, *, constrained=False, m=1, seed=0):
    """Made up, but of the right shapes and falling."""
    rng = np.random.default_rng(seed)
    shape = (runs, generations) if runs else (generations,)
    shape += (m,) if m > 1 else ()
    axis = 1 if runs else 0
    best = np.minimum.accumulate(10.0 ** rng.uniform(-8, 2, shape), axis=axis)
    share = np.sort(rng.random(shape[: axis + 1]), axis=axis) if constrained else None
    violation = np.where(np.arange(generations) < 3, 1.0, 0.0) * np.ones(shape[: axis + 1]) if constrained else None
    generation = np.arange(1, generations + 1)
    return History(generation, 100 * generation, best, 2 * best + 1, 3 * best + 2, violation, share)


def make_result(problem, *, runs=0, generations=50, n=40, m=1, kept=True, **fields):
    """A Result with arrays of the right shapes, without a run."""
    rng = np.random.default_rng(1)
    d = problem.dim
    x = problem.bounds.lower + problem.bounds.span * rng.random((n, d))
    fitness = rng.random((n, m)) if m > 1 else rng.random(n)
    history_of_one = history(0, generations, constrained=problem.constrained, m=m) if kept else None
    every = None
    if runs:
        counts = np.full(runs, generations)
        of_all = history(runs, generations, constrained=problem.constrained) if kept else None
        fun, success = 10.0 ** rng.uniform(-8, 0, runs), rng.random(runs) < 0.7
        every = Runs(
            np.arange(runs),
            x[np.zeros(runs, int)],
            fun,
            np.zeros(runs),
            counts,
            100 * counts,
            0 * counts,
            success,
            of_all,
        )
    settings = {"problem": problem.name, "algorithm": "de", "hyperparameters": {}, "first_run": 0, "seed": 3,
                "patience": None, "runs": runs or 1,
                "maximize": False, "blackbox": False, "vectorized": False, "dtype": "float64", "device": "CPU",
                "generations": generations, "stall": None, "versions": {"galapax": "1", "jax": "2"}}  # fmt: skip
    values: dict[str, Any] = {
        "problem": problem, "x": x[0], "fun": fitness[0] if m > 1 else float(fitness[0]), "success": True,
        "message": "Done.", "stop": Stop.BUDGET,
        "nit": generations, "nfev": 100 * generations, "n_failed": 0, "seed": 3, "feasible": True,
        "violation": 0.0, "ineq": None, "eq": None, "population": x, "population_fitness": fitness, "snapshots": {},
        "history": history_of_one, "runs": every, "timings": {"compile": 1.0, "run": 0.5, "host": 0.1},
        "settings": settings,
    }  # fmt: skip
    if m > 1:
        first = np.linspace(0, 1, n)
        front = np.column_stack([first, 1 - np.sqrt(first), *rng.random((m - 2, n))])
        values |= {"X": x, "F": front, "G": None, "H": None, "CV": np.zeros(n), "hypervolume": None}
    return Result(values | fields)


def two_objectives(**fields):
    names = {
        "variables": ["flour", "water", "salt"],
        "objectives": ["cost", "time"],
        "units": {"cost": "€", "flour": "g"},
    }
    problem = Problem(lambda x: x[:2], box(0, 1, 3), name="bread", **names)
    return make_result(problem, m=2, **fields)


@cache
def solved():
    """A real run with constraints and snapshots."""
    return gx.minimize(
        Problem(
            lambda x: jnp.sum(x**2), box(-5, 5, 4), ineq=lambda x: jnp.stack([1 - x[0], x[1] - 4]), name="corner",
            variables=["width", "height", "depth", "angle"], constraint_names=["wide enough", "not too high"],
        ),
        gx.DE(population=30),
        generations=250,
        keep=gx.Keep(snapshots=[1, 10, 250]), polish=False,
    )  # fmt: skip


@cache
def study():
    problem = gx.problems.get("branin")
    cells = [make_result(problem, runs=8, generations=30) for _ in range(4)]
    labels = [{"problem": p, "algorithm": a} for p in ("one", "two") for a in ("de", "ga")]
    axes = {"problem": ["one", "two"], "algorithm": ["de", "ga"]}
    return Study("comparison", axes, labels, cells, [0.4] * 4, "All were run.")


def sweep_of(count):
    problem = gx.problems.get("branin")
    cells = [make_result(problem, runs=5, generations=30) for _ in range(count)]
    weights = np.linspace(0.1, 0.9, count).tolist()
    return Study("sweep", {"weight": weights}, [{"weight": w} for w in weights], cells, [None] * count, "All were run.")


def numbers_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
