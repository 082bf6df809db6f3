"""What a process of benchmarks/bbob.py does: runs of one algorithm on the instances of one BBOB function.

A run is recorded as the evaluation count at which each target precision was first reached, and as its trace: a row
whenever the best f - f_opt passes a twentieth of a decade, as COCO logs it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

TARGETS = [10.0 ** (exponent / 5) for exponent in range(10, -41, -1)]  # 1e2 to 1e-8, five a decade
FINAL = 1e-8
LAST_LEVEL = -160  # of 1e-8, in twentieths of a decade

PEERS = ("pycma-bipop", "pycma-bipop-unbounded", "scipy-de")


def solve(function: int, dim: int, instances: list[int], plan: dict[str, Any]) -> list[dict[str, Any]]:
    """One record for each instance. All of them share one compiled program."""
    run = _ours if plan["peer"] is None else _peer
    return [run(function, dim, instance, plan) for instance in instances]


def _ours(function: int, dim: int, instance: int, plan: dict[str, Any]) -> dict[str, Any]:
    """A run of galapax. Evaluations are counted at the ends of generations, which is never to its advantage."""
    import galapax as gx
    from galapax import algorithms

    gx.cache.enable()  # of two processes with the same function the second may find its program
    name = plan["algorithm"]
    began = time.perf_counter()
    result = gx.minimize(
        gx.problems.bbob(function, dim, instance),
        algorithm=None if name == "default" else algorithms.get(name, **plan["settings"]),
        restarts=_restarts(plan["restarts"]),
        polish="auto" if plan["polish"] else False,
        max_evaluations=plan["budget"] * dim,
        target=FINAL,
        seed=instance + plan["seed"],
        progress=False,
        compute=gx.Compute(dtype=plan["dtype"]),
    )
    spent, rows = time.perf_counter() - began, result.history
    made = record(function, dim, instance, rows.nfev, rows.best, int(result.nfev), spent)
    made["trace"].insert(0, [1, float(rows.worst[0])])  # cocopp wants a first evaluation: the first generation's worst
    return made


def _restarts(given: str) -> Any:
    """A name as minimize takes it, or a portfolio with other shares."""
    name, _, settings = given.partition(":")
    if name != "portfolio":
        return None if name == "none" else given
    from galapax.algorithms.portfolio import Portfolio

    return Portfolio(**{key: float(value) for key, value in (pair.split("=") for pair in settings.split(",") if pair)})


def _peer(function: int, dim: int, instance: int, plan: dict[str, Any]) -> dict[str, Any]:
    """A run of another library on pycma's functions, every evaluation counted."""
    from cma import bbobbenchmarks

    fun, f_opt = bbobbenchmarks.instantiate(function, instance)
    counted = Counted(fun, f_opt, plan["budget"] * dim)
    began = time.perf_counter()
    with suppress(Ended):
        (_scipy_de if plan["peer"] == "scipy-de" else _pycma)(counted, dim, instance + plan["seed"], plan["peer"])
    spent = time.perf_counter() - began
    return record(function, dim, instance, counted.counts, counted.bests, counted.count, spent)


def _pycma(counted: Counted, dim: int, seed: int, kind: str) -> None:
    """BIPOP-CMA-ES as pycma has it: start anywhere in [-4, 4], step size 2, restarts until the budget is spent."""
    import cma

    options: dict[str, Any] = {"verbose": -9, "seed": seed, "maxfevals": math.inf}
    if kind == "pycma-bipop":
        options["bounds"] = [-5, 5]  # by pycma's own default, a transformation; BoundPenalty misses f1 at times
    random = np.random.default_rng(seed)
    cma.fmin2(
        counted, lambda: random.uniform(-4.0, 4.0, dim), 2.0, options, restarts=10**4, bipop=True,
        parallel_objective=counted,
    )  # fmt: skip


def _scipy_de(counted: Counted, dim: int, seed: int, kind: str) -> None:
    """differential_evolution with its own defaults, started again until the budget is spent."""
    from scipy.optimize import differential_evolution

    for start in range(10**6):
        differential_evolution(counted.one, [(-5.0, 5.0)] * dim, rng=np.random.default_rng([seed, start]))


class Ended(Exception):
    """The budget is spent, or the last target reached."""


class Counted:
    """A function that counts its evaluations in the order of their rows, and ends the run."""

    def __init__(self, fun: Callable[..., Any], f_opt: float, budget: int) -> None:
        self._fun, self._f_opt, self._budget = fun, f_opt, budget
        self.count, self.counts, self.bests = 0, [], []

    def __call__(self, x: Any) -> Any:
        """The values of one or of several solutions."""
        rows = np.atleast_2d(np.asarray(x, float))
        values = np.asarray(self._fun(rows)).reshape(-1)
        for value in values[: self._budget - self.count] - self._f_opt:
            self.count += 1
            if not self.bests or value < self.bests[-1]:
                self.counts.append(self.count)
                self.bests.append(float(value))
                if value <= FINAL:
                    raise Ended
        if self.count >= self._budget:
            raise Ended
        return list(values) if np.ndim(x[0]) else float(values[0])

    def one(self, x: Any) -> float:
        return self(x)


def record(
    function: int, dim: int, instance: int, counts: Any, bests: Any, evaluations: int, seconds: float
) -> dict[str, Any]:
    """A run in JSON's own types. counts, bests: evaluations and the best f - f_opt after them, never growing."""
    counts, bests = np.asarray(counts), np.asarray(bests, float)
    hits = []
    for target in TARGETS:
        first = int(np.argmax(bests <= target))
        hits.append(int(counts[first]) if bests[first] <= target else None)
    with np.errstate(divide="ignore"):
        levels = np.maximum(np.ceil(20.0 * np.log10(np.maximum(bests, 0.0))), LAST_LEVEL)
    new = np.append(True, levels[1:] < levels[:-1])
    return {
        "function": function,
        "dim": dim,
        "instance": instance,
        "evaluations": int(evaluations),
        "final": float(bests[-1]),
        "hits": hits,
        "trace": [[int(count), float(best)] for count, best in zip(counts[new], bests[new], strict=True)],
        "seconds": round(seconds, 3),
    }
