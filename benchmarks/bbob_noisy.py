"""The noisy BBOB suite, judged as COCO does: by the value without noise of the points that were evaluated.

    python benchmarks/bbob_noisy.py [--dims 5] [--budget 1000] [--instances 1 2 3] [--functions 101 107] [--peer]

For each of the 30 functions the share of 51 targets from 1e2 to 1e-8 that a run reached within --budget times the
dimension evaluations, and the value without noise at the answer, as medians over the instances. galapax is the plain
call with `noisy=True`; --peer adds pycma's CMA-ES with restarts of doubled population. Both run on pycma's functions
(pip install cma), whose values are those of `gx.problems.bbob_noisy`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import harness
import numpy as np
from bbob_runs import TARGETS, Ended

import galapax as gx

FUNCTIONS = range(101, 131)


class Noisy:
    """A noisy function that counts its evaluations and keeps the lowest value without noise."""

    def __init__(self, function: int, instance: int, budget: int, seed: int) -> None:
        from cma import bbobbenchmarks

        self._oracle, self.f_opt = bbobbenchmarks.instantiate(function, instance)
        self._budget, self.count, self.best = budget, 0, math.inf
        np.random.seed(seed)  # noqa: NPY002 - from which pycma draws

    def __call__(self, x: Any) -> Any:
        rows = np.array(np.atleast_2d(x), float)
        values, means = self._oracle._evalfull(rows)
        means = np.atleast_1d(means)[: max(0, self._budget - self.count)] - self.f_opt
        self.best = min(self.best, float(np.min(means, initial=math.inf)))
        self.count += len(rows)
        if self.count > self._budget:
            raise Ended
        return np.atleast_1d(values) - self.f_opt if np.ndim(x) > 1 else float(values[0] - self.f_opt)

    def mean(self, x: np.ndarray) -> float:
        return float(np.atleast_1d(self._oracle._evalfull(np.atleast_2d(np.array(x, float)))[1])[0] - self.f_opt)


def with_galapax(fun: Noisy, dim: int, budget: int, seed: int) -> np.ndarray:
    result = gx.minimize(
        fun, [(-5, 5)] * dim, blackbox=True, vectorized=True, noisy=True, max_evaluations=budget, seed=seed,
        progress=False,
    )  # fmt: skip
    return np.asarray(result.x)


def with_pycma(fun: Noisy, dim: int, budget: int, seed: int) -> np.ndarray:
    import cma

    random, searches = np.random.default_rng(seed), []
    with suppress(Ended):
        for restart in range(100):
            options = {"verbose": -9, "seed": seed + 1 + restart, "bounds": [-5, 5], "maxfevals": math.inf,
                       "popsize": (4 + int(3 * math.log(dim))) * 2**restart}  # fmt: skip
            search = cma.CMAEvolutionStrategy(random.uniform(-4, 4, dim), 2.0, options)
            searches.append(search)
            while not search.stop():
                x = search.ask()
                search.tell(x, list(fun(np.array(x))))
    return np.clip(searches[-1].result.xfavorite, -5, 5)


def main() -> None:
    parser = harness.make_parser(__doc__, seed=0)
    parser.add_argument("--dims", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--functions", type=int, nargs="+", default=list(FUNCTIONS))
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--budget", type=int, default=1000, help="evaluations of a run, times the dimension")
    parser.add_argument("--peer", action="store_true", help="pycma's CMA-ES with growing populations beside it")
    given = parser.parse_args()
    methods: dict[str, Callable[[Noisy, int, int, int], np.ndarray]] = {"galapax": with_galapax}
    if given.peer:
        methods["pycma IPOP"] = with_pycma
    print(harness.describe_machine("cma"))
    for dim in given.dims:
        columns = [f"{name}: {what}" for name in methods for what in ("targets", "mean at x", "s")]
        table = harness.Table(f"{dim}-D", *columns)
        shares: dict[str, list[float]] = {name: [] for name in methods}
        for function in given.functions:
            cells: list[str] = []
            for name, method in methods.items():
                reached, means, start = [], [], time.process_time()
                for instance in given.instances:
                    fun = Noisy(function, instance, given.budget * dim, given.seed + instance)
                    x = method(fun, dim, given.budget * dim, given.seed + instance)
                    reached.append(float(np.mean([fun.best <= target for target in TARGETS])))
                    means.append(fun.mean(x))
                seconds = (time.process_time() - start) / len(given.instances)
                shares[name].append(float(np.mean(reached)))
                cells += [f"{np.mean(reached):.1%}", f"{np.median(means):.2g}", f"{seconds:.1f}"]
            table.add(f"f{function}", *cells)
        table.add("mean", *[cell for name in methods for cell in (f"{np.mean(shares[name]):.1%}", "", "")])


if __name__ == "__main__":
    main()
