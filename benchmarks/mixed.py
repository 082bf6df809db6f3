"""Problems with integers and choices, beside scipy's differential evolution and pymoo's mixed-variable GA.

    python benchmarks/mixed.py [--runs 30] [--evaluations 10000] [--only galapax,scipy,pymoo]
    python benchmarks/mixed.py --few 100 [--problems gear_train,g04]

The same problems, the same number of evaluations, the same random seeds 0 to 29. A run succeeds when its best feasible
value lies within 1e-4 of the best known one, relatively; on gear_train when it is the best known one. A choice among
ascending numbers is given to the others as the integer that is its place, which they do better with than with a list.
A point whose constraints are evaluated counts as an evaluation, for all three. No polish by gradients.

--few: what so many evaluations per variable come to, the median over the runs of the best feasible value, and how many
runs found none; beside the default also EpsilonDE with the population that it has for longer runs. Problems without
integers may be named, too.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import harness
import jax
import numpy as np

import galapax as gx

PROBLEMS = ("gear_train", "pressure_vessel", "speed_reducer", "reinforced_beam", "coil_spring", "petrol", "knapsack",
            "machines")  # fmt: skip


def goal(problem: gx.Problem) -> float:
    allowed = 1e-16 if problem.name == "gear_train" else 1e-4 * abs(problem.optimum)
    return problem.optimum + allowed


def of_genes(problem: gx.Problem) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Values (n,) and inequalities (n, p) of genes (n, d), compiled."""
    coded = problem.coded()

    def one(x: Any) -> Any:
        return coded.fun(x), jax.numpy.atleast_1d(0.0 if coded.ineq is None else coded.ineq(x))

    many = jax.jit(jax.vmap(one))

    def call(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            f, g = many(np.asarray(x, np.float64))
        return np.asarray(f, np.float64), np.asarray(g, np.float64)

    return call


class Counter:
    """Evaluates, and notes when a feasible point first reaches the goal."""

    def __init__(self, problem: gx.Problem, most: int, call: Any) -> None:
        self.call, self.goal, self.most = call, goal(problem), most
        self.made, self.reached, self.best = 0, math.inf, math.inf

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        f, g = self.call(x)
        hits = np.flatnonzero((f <= self.goal) & (g <= 0).all(axis=1))
        if hits.size and self.reached == math.inf and self.made + hits[0] < self.most:
            self.reached = self.made + int(hits[0]) + 1
        counted = np.where((g <= 0).all(axis=1), f, math.inf)[: max(0, self.most - self.made)]
        self.best = min(self.best, counted.min(initial=math.inf))
        self.made += len(x)
        return f, g

    def done(self, intermediate_result: Any) -> bool:
        """scipy's callback: whether to stop."""
        return self.reached < math.inf


def ours(problem: gx.Problem, runs: int, most: int) -> np.ndarray:
    result = gx.minimize(problem, runs=runs, max_evaluations=most, target=goal(problem), polish=False)
    found = result.runs.feasible & (result.runs.fun <= goal(problem))
    return np.where(found, result.runs.nfev, np.inf)


def ours_after(algorithm: gx.Algorithm | None) -> Callable[..., np.ndarray]:
    """The best feasible values after so many evaluations, +inf where there is none."""

    def run(problem: gx.Problem, runs: int, most: int) -> np.ndarray:
        solver = algorithm
        if algorithm is not None and problem.space is not None:
            solver = gx.EpsilonDE(population=min(100, max(40, 6 * problem.dim)))
        found = gx.minimize(problem, solver, runs=runs, max_evaluations=most, polish=False, tolerance=0).runs
        return np.where(found.feasible, found.fun, np.inf)

    return run


def scipy_de(problem: gx.Problem, runs: int, most: int, after: bool = False) -> np.ndarray:
    from scipy.optimize import Bounds, NonlinearConstraint, differential_evolution

    call, space = of_genes(problem), problem.space
    box = problem.bounds if space is None else space.genes
    whole = np.zeros(problem.dim, bool) if space is None else space.discrete
    shrink = np.where(whole, 0.5, 0.0)
    bounds = Bounds(box.lower + shrink, box.upper - shrink)
    each, out = 15 * problem.dim, []
    for seed in range(runs):
        count = Counter(problem, most, call)
        # constraints are asked for every point, the objective only where they are met: those count
        limits = []
        if problem.ineq is not None:
            limits = [NonlinearConstraint(lambda x, c=count: c(x.reshape(len(x), -1).T)[1].T, -np.inf, 0)]
            fun = lambda x: call(x.T)[0]  # noqa: E731
        else:
            fun = lambda x, c=count: c(x.T)[0]  # noqa: E731
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"rng": seed, "polish": False, "tol": 0, "atol": 0, "maxiter": math.ceil(most / each)}
            differential_evolution(
                fun,
                bounds,
                constraints=limits,
                integrality=whole,
                vectorized=True,
                updating="deferred",
                callback=count.done,
                **options,
            )
        out.append(count.best if after else count.reached)
    return np.array(out)


def pymoo_ga(problem: gx.Problem, runs: int, most: int, after: bool = False) -> np.ndarray:
    from pymoo.core.mixed import MixedVariableGA
    from pymoo.core.problem import Problem
    from pymoo.core.variable import Binary, Choice, Integer, Real

    call, space = of_genes(problem), problem.space
    box = problem.bounds if space is None else space.genes
    kinds: dict[str, Any] = {}
    if space is None:
        kinds = {f"v{i}": Real(bounds=both) for i, both in enumerate(zip(box.lower, box.upper, strict=True))}
    for i, v in enumerate([] if space is None else space.variables):
        low, high = box.lower[i], box.upper[i]
        if v.kind == "boolean":
            kinds[f"v{i}"] = Binary()
        elif v.kind == "choice" and not v.is_ordered:
            kinds[f"v{i}"] = Choice(options=list(range(len(v.labels))))
        elif v.discrete:
            kinds[f"v{i}"] = Integer(bounds=(int(low + 0.5), int(high - 0.5)))
        else:
            kinds[f"v{i}"] = Real(bounds=(low, high))
    counts = 0 if problem.ineq is None else call(np.atleast_2d(box.lower + 0.5))[1].shape[1]

    class Mixed(Problem):
        def __init__(self, count: Counter) -> None:
            super().__init__(vars=kinds, n_obj=1, n_ieq_constr=counts)
            self.count = count

        def _evaluate(self, X: Any, out: Any, *args: Any, **more: Any) -> None:
            x = np.array([[float(row[name]) for name in kinds] for row in np.atleast_1d(X)])
            f, g = self.count(x)
            out["F"] = f[:, None]
            if counts:
                out["G"] = g

    reached = []
    for seed in range(runs):
        count = Counter(problem, most, call)
        search = MixedVariableGA(pop_size=50)
        search.setup(Mixed(count), termination=("n_evals", most), seed=seed)
        while search.has_next() and (after or count.reached == math.inf):
            search.next()
        reached.append(count.best if after else count.reached)
    return np.array(reached)


SOLVERS = {"galapax": ours, "scipy": scipy_de, "pymoo": pymoo_ga}


def few(problems: list[str], runs: int, each: int) -> None:
    """A table of what a few evaluations come to."""
    methods = {
        "default": ours_after(None),
        "EpsilonDE": ours_after(gx.EpsilonDE()),
        "scipy": functools.partial(scipy_de, after=True),
        "pymoo": functools.partial(pymoo_ga, after=True),
    }
    print(f"Median best feasible value of {runs} runs after {each} evaluations per variable (runs without one).\n")
    print("| problem | best known | " + " | ".join(methods) + " |")
    print("| --- | ---: |" + " ---: |" * len(methods))
    for name in problems:
        problem, cells = gx.problems.get(name), []
        for method in methods.values():
            found = method(problem, runs, each * problem.dim)
            none = int((~np.isfinite(found)).sum())
            cells.append(f"{np.median(found):.5g}" + (f" ({none})" if none else ""))
        print(f"| {name} | {problem.optimum:.5g} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = harness.make_parser(__doc__, runs=30)
    parser.add_argument("--evaluations", type=int, default=10_000)
    parser.add_argument("--only", default=",".join(SOLVERS))
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--few", type=int)
    given = parser.parse_args()
    if given.few is not None:
        few(given.problems.split(","), given.runs, given.few)
        return
    chosen = given.only.split(",")
    print(f"Runs of {given.runs} that reach the best known value within {given.evaluations:,} evaluations each,")
    print("and the median number of evaluations of those that do.\n")
    print("| problem | " + " | ".join(chosen) + " |")
    print("| --- |" + " ---: |" * len(chosen))
    for name in given.problems.split(","):
        cells = []
        for solver in chosen:
            found = SOLVERS[solver](gx.problems.get(name), given.runs, given.evaluations)
            hits = np.isfinite(found)
            cells.append(f"{hits.sum()} ({np.median(found[hits]):,.0f})" if hits.any() else "0")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
