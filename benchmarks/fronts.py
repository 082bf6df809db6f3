"""How much of the front NSGA-II finds, beside pymoo's at the same budget where that is installed.

    python benchmarks/fronts.py                     ZDT, DTLZ2, gasoline blending, WFG, MW, OSY, TNK; 20 seeds
    python benchmarks/fronts.py zdt4 --runs 5

Both evaluate the same compiled functions in double precision. A run of g generations evaluates g populations, the first
one included. The hypervolume is exact (moocore), as a share of the true front's. Seeds begin at 1000, since our rates
were chosen by seeds below.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import front_problems
import harness
import jax
import numpy as np

import galapax as gx

# population and generations; of blending 100 000 evaluations
BUDGETS = dict.fromkeys(("zdt1", "zdt2", "zdt3", "zdt4", "zdt6", "dtlz2"), (100, 250)) | {"blending": (200, 500)}
# 20 000 evaluations, as other comparisons have
BUDGETS |= dict.fromkeys(("tnk", "osy", "wfg1", "wfg4", "mw1", "mw2", "mw13"), (100, 200))


def ours(
    problem: gx.Problem,
    population: int,
    generations: int,
    runs: int,
    seed: int = 0,
    published: bool = False,
    differences: float | None = None,
) -> Iterator[np.ndarray]:
    """The front of each run (k, m)."""
    solver = gx.NSGA2(population=population, published=published, differences=differences)
    result = gx.minimize(
        problem,
        solver,
        generations=generations,
        runs=runs,
        seed=seed,
        progress=False,
        compute=gx.Compute(dtype="float64"),
    )
    for front in [result] if result.runs is None else result.runs.fronts:
        yield front.F


@contextmanager
def as_pymoo(problem: gx.Problem) -> Iterator[Any]:
    """The same compiled functions as a problem of pymoo's, in double precision."""
    from pymoo.core.problem import Problem

    objectives = jax.jit(jax.vmap(problem.fun))
    limits = None if problem.ineq is None else jax.jit(jax.vmap(lambda x: jax.numpy.ravel(problem.ineq(x))))

    class Same(Problem):
        def _evaluate(self, x: Any, out: Any, *args: Any, **kwargs: Any) -> None:
            out["F"] = np.asarray(objectives(x))
            if limits is not None:
                out["G"] = np.asarray(limits(x))

    with jax.enable_x64(True):
        middle = (problem.bounds.lower + problem.bounds.upper)[None] / 2
        counts = [f(middle).shape[1] if f is not None else 0 for f in (objectives, limits)]
        yield Same(
            problem.dim,
            n_obj=counts[0],
            n_ieq_constr=counts[1],
            xl=problem.bounds.lower,
            xu=problem.bounds.upper,
        )


def pymoo(problem: gx.Problem, population: int, generations: int, runs: int, seed: int = 0) -> Iterator[np.ndarray]:
    """The same of pymoo's NSGA-II as it comes, with its own crossover and mutation rates."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.optimize import minimize

    with as_pymoo(problem) as same:
        for own in range(seed, seed + runs):
            found = minimize(same, NSGA2(pop_size=population), ("n_gen", generations), seed=own)
            yield np.empty((0, same.n_obj)) if found.F is None else found.F


def share(problem: gx.Problem, fronts: Iterator[np.ndarray]) -> np.ndarray:
    """The hypervolume of each front in units of the true one's."""
    return np.array([gx.indicators.hypervolume(f, problem.reference_point) / problem.hypervolume for f in fronts])


def main() -> None:
    parser = harness.make_parser(__doc__, runs=20, seed=1000)
    parser.add_argument("problems", nargs="*", default=list(BUDGETS))
    parser.add_argument("--generations", type=int, help="in place of the problem's own number")
    parser.add_argument("--published", action="store_true", help="ours as in the paper, with copies")
    parser.add_argument("--differences", type=float, help="ours with this share of children made by differences")
    parser.add_argument("--alone", action="store_true", help="without pymoo")
    given = parser.parse_args()
    peer = not given.alone and importlib.util.find_spec("pymoo") is not None
    own = partial(ours, published=given.published, differences=given.differences)
    print(f"NSGA-II, median (least to greatest) of {given.runs} runs, share of the exact hypervolume")
    if not peer and not given.alone:
        print("pymoo is not installed")
    print(f"{'problem':>9} {'N':>5} {'generations':>12} {'galapax':>28} {'pymoo':>28} {'ratio':>7}   seconds")
    for name in given.problems:
        problem, cells, medians, took = front_problems.get(name), [], [], []
        n, generations = BUDGETS[name][0], given.generations or BUDGETS[name][1]
        for solver in (own, pymoo) if peer else (own,):
            began = time.perf_counter()
            shares = share(problem, solver(problem, n, generations, given.runs, given.seed))
            took.append(time.perf_counter() - began)
            medians.append(np.median(shares))
            cells.append(f"{medians[-1]:.3%} ({shares.min():.2%} to {shares.max():.2%})")
        ratio = f"{medians[0] / medians[1]:.4f}" if peer and medians[1] else ""
        cells += [""] * (2 - len(cells))
        seconds = ", ".join(f"{t:.0f}" for t in took)
        print(f"{name:>9} {n:>5} {generations:>12} {cells[0]:>28} {cells[1]:>28} {ratio:>7}   {seconds}", flush=True)


if __name__ == "__main__":
    main()
