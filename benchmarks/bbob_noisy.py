"""The noisy BBOB suite, judged as COCO does: by the value without noise of the points that were evaluated.

    python benchmarks/bbob_noisy.py [--dims 5] [--budget 1000] [--instances 1 2 3] [--functions 101 107] [--peer]

For each of the 30 functions: how many of seven targets (10, 1, 0.1, 1e-2, 1e-3, 1e-5 and 1e-7 above the optimum) have
an expected running time over the instances of at most --budget times the dimension evaluations; the share of 51 targets
from 1e2 to 1e-8 that a run reached; and the value without noise at the answer, a median. The last row has the share of
all (function, target) by the first measure, which is that of published tables, and the mean of the second. galapax is
the plain call with `noisy=True`; --peer adds pycma's CMA-ES with restarts of doubled population. Both run on pycma's
functions (pip install cma), whose values are those of `gx.problems.bbob_noisy`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import harness
import numpy as np
from bbob_runs import TARGETS, Ended

import galapax as gx

FUNCTIONS = range(101, 131)
TABLE_TARGETS = (1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-5, 1e-7)  # of COCO's tables


class Noisy:
    """A noisy function that counts its evaluations, and until which the value without noise reached each target."""

    def __init__(self, function: int, instance: int, budget: int, seed: int) -> None:
        from cma import bbobbenchmarks

        self._oracle, self.f_opt = bbobbenchmarks.instantiate(function, instance)
        self._budget, self.count, self.best = budget, 0, math.inf
        self.hits: dict[float, int] = {}
        np.random.seed(seed)  # noqa: NPY002 - from which pycma draws

    def __call__(self, x: Any) -> Any:
        rows = np.array(np.atleast_2d(x), float)
        values, means = self._oracle._evalfull(rows)
        means = np.atleast_1d(means)[: max(0, self._budget - self.count)] - self.f_opt
        self.best = min(self.best, float(np.min(means, initial=math.inf)))
        for target in TABLE_TARGETS:
            if self.best <= target and target not in self.hits:
                self.hits[target] = self.count + 1 + int(np.argmax(means <= target))
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


METHODS: dict[str, Callable[[Noisy, int, int, int], np.ndarray]] = {"galapax": with_galapax, "pycma IPOP": with_pycma}


class Row(NamedTuple):
    """What the runs of a method on the instances of a function came to."""

    solved: int  # targets whose expected running time is within the budget
    reached: float  # share of the 51 targets
    mean: float  # at the answer, without noise
    seconds: float


def measure(function: int, dim: int, name: str, instances: list[int], budget: int, seed: int) -> Row:
    """Run a method on the instances of a function. budget: evaluations of a run."""
    runs, means, start = [], [], time.process_time()
    for instance in instances:
        runs.append(Noisy(function, instance, budget, seed + instance))
        means.append(runs[-1].mean(METHODS[name](runs[-1], dim, budget, seed + instance)))
    seconds = (time.process_time() - start) / len(instances)
    solved = 0
    for target in TABLE_TARGETS:
        evaluations = sum(run.hits.get(target, min(run.count, budget)) for run in runs)
        n_hits = sum(target in run.hits for run in runs)
        solved += n_hits > 0 and evaluations / n_hits <= budget
    reached = float(np.mean([[run.best <= target for target in TARGETS] for run in runs]))
    return Row(solved, reached, float(np.median(means)), seconds)


def main() -> None:
    parser = harness.make_parser(__doc__, seed=0)
    parser.add_argument("--dims", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--functions", type=int, nargs="+", default=list(FUNCTIONS))
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--budget", type=int, default=1000, help="evaluations of a run, times the dimension")
    parser.add_argument("--peer", action="store_true", help="pycma's CMA-ES with growing populations beside it")
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    arguments = parser.parse_args()
    names = list(METHODS) if arguments.peer else ["galapax"]
    print(harness.describe_machine("cma"))
    for dim in arguments.dims:
        columns = [f"{name}: {what}" for name in names for what in ("of 7", "of 51", "mean at x", "s")]
        table = harness.Table(f"{dim}-D", *columns)
        work = [
            (function, dim, name, arguments.instances, arguments.budget * dim, arguments.seed)
            for function in arguments.functions
            for name in names
        ]
        rows: dict[tuple[int, str], Row] = {}
        for (function, _, name, *_), row in harness.map_on_cores(measure, work, arguments.jobs):
            rows[function, name] = row
            print(f"f{function} {name}: {row}", file=sys.stderr, flush=True)
        for function in arguments.functions:
            cells: list[str] = []
            for name in names:
                row = rows[function, name]
                cells += [str(row.solved), f"{row.reached:.1%}", f"{row.mean:.2g}", f"{row.seconds:.1f}"]
            table.add(f"f{function}", *cells)
        totals: list[str] = []
        for name in names:
            of_method = [rows[function, name] for function in arguments.functions]
            solved = sum(row.solved for row in of_method) / len(TABLE_TARGETS) / len(of_method)
            totals += [f"{solved:.1%}", f"{np.mean([row.reached for row in of_method]):.1%}", "", ""]
        table.add("all", *totals)


if __name__ == "__main__":
    main()
