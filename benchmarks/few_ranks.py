"""Mean ranks with 30, 100 and 300 evaluations, whatever the number of variables: 39 shifted and rotated problems.

    python benchmarks/few_ranks.py [--instances 1 2 3] [--methods default COBYQA lq-CMA-ES] [--processes 8]
        [--gaps FOLDER]

Ellipsoid (condition 1e6), Rosenbrock, Ackley, Rastrigin, Levy, Griewank, a smooth function with ripples of 1e-3
(`rippled`), a sum of absolute values (`piecewise`), and an ellipsoid with its minimum near a corner (`corner`) in 2, 5,
10 and 20 variables; Branin, Hartmann 3 and Hartmann 6. Each instance has a box of sides 5 to 20, a rotation, and its
minimum anywhere in the middle 60 % of the box, but for `corner`. The last three are fixed.
Prints the mean rank of each method and the median of log10(f - f_opt). All methods run with the largest budget, so one
that plans for its budget is not shown at its best with fewer; the default knows that it has 300. Instances are seeds;
nothing was tuned on 1 to 3. Random starts for scipy's and pycma's; Optuna, nevergrad (its NGOpt begins in the middle
of the box, as the default does) and pySOT where they are installed. A FOLDER keeps what each method reached, so that
methods that do not install together can be ranked together.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import optimize
from scipy.stats import rankdata

import galapax as gx

MARKS = (30, 100, 300)  # evaluations
DIMS = (2, 5, 10, 20)
PRECISION = 1e-8  # f - f_opt below which values count as the same


class Ended(Exception):
    """Raised when the budget is spent."""


def ellipsoid(z: np.ndarray) -> float:
    return float(np.sum(1e6 ** np.linspace(0, 1, len(z)) * z**2))


def rosenbrock(z: np.ndarray) -> float:
    z = z + 1.0
    return float(np.sum(100 * (z[1:] - z[:-1] ** 2) ** 2 + (1 - z[:-1]) ** 2))


def ackley(z: np.ndarray) -> float:
    mean = np.exp(-0.2 * np.sqrt(np.mean(z**2)))
    return float(20 - 20 * mean + math.e - np.exp(np.mean(np.cos(2 * np.pi * z))))


def rastrigin(z: np.ndarray) -> float:
    return float(np.sum(z**2 - 10 * np.cos(2 * np.pi * z) + 10))


def levy(z: np.ndarray) -> float:
    w = 1 + z / 4
    ends = np.sin(np.pi * w[0]) ** 2 + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)
    return float(ends + np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)))


def griewank(z: np.ndarray) -> float:
    z = 30.0 * z
    return float(np.sum(z**2) / 4000 - np.prod(np.cos(z / np.sqrt(np.arange(1, len(z) + 1)))) + 1)


def rippled(z: np.ndarray) -> float:
    return float(np.sum(z**2) + 1e-3 * np.sum(1 - np.cos(500 * z)))


def piecewise(z: np.ndarray) -> float:
    return float(np.sum(10.0 ** np.linspace(0, 1, len(z)) * np.abs(z)))


SHAPES: dict[str, Callable[[np.ndarray], float]] = {
    function.__name__: function
    for function in (ellipsoid, rosenbrock, ackley, rastrigin, levy, griewank, rippled, piecewise)
} | {"corner": ellipsoid}
FIXED = ("branin", "hartmann3", "hartmann6")
CASES = [(name, dim) for name in SHAPES for dim in DIMS] + [(name, 0) for name in FIXED]


class Problem(NamedTuple):
    fun: Callable[[np.ndarray], float]
    lower: np.ndarray
    upper: np.ndarray
    optimum: float


def build_problem(name: str, dim: int, instance: int) -> Problem:
    """An instance of a problem on its box."""
    if name in FIXED:
        problem = gx.problems.get(name)
        assert problem.optimum is not None
        lower, upper = (np.asarray(side, float) for side in (problem.bounds.lower, problem.bounds.upper))
        compiled = jax.jit(problem.fun)

        def evaluate(x: np.ndarray) -> float:
            with jax.enable_x64(True):
                return float(compiled(x))

        return Problem(evaluate, lower, upper, float(problem.optimum))
    random = np.random.default_rng([instance, dim, *name.encode()])
    span = random.uniform(5, 20, dim)
    lower = random.uniform(-10, 0, dim)
    place = random.uniform(0.2, 0.8, dim)
    if name == "corner":
        place = np.where(random.uniform(size=dim) < 0.5, 0.0, 1.0)
        place = np.abs(place - random.uniform(0.05, 0.15, dim))
    rotation, _ = np.linalg.qr(random.normal(size=(dim, dim)))
    center, shape = lower + place * span, SHAPES[name]
    return Problem(lambda x: shape(rotation @ (10 * (x - center) / span)), lower, lower + span, 0.0)


class Counted:
    """A problem that remembers the best value after each evaluation, and ends the run."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.bests = problem, [math.inf]

    def __call__(self, x: Any) -> float:
        if len(self.bests) > MARKS[-1]:
            raise Ended
        value = self.problem.fun(np.clip(np.asarray(x, float), self.problem.lower, self.problem.upper))
        self.bests.append(min(value, self.bests[-1]))
        return value


def ours(algorithm: gx.EI | None = None) -> Callable[[Counted, int], None]:
    def run(fun: Counted, seed: int) -> None:
        box = list(zip(fun.problem.lower.tolist(), fun.problem.upper.tolist(), strict=True))
        gx.minimize(fun, box, algorithm, blackbox=True, max_evaluations=MARKS[-1], seed=seed, progress=False)

    return run


def scipys(method: str) -> Callable[[Counted, int], None]:
    def run(fun: Counted, seed: int) -> None:
        random, bounds = np.random.default_rng(seed), list(zip(fun.problem.lower, fun.problem.upper, strict=True))
        while True:
            start = random.uniform(fun.problem.lower, fun.problem.upper)
            optimize.minimize(fun, start, method=method, bounds=bounds)

    return run


def scipy_global(method: Callable[..., Any], **options: Any) -> Callable[[Counted, int], None]:
    def run(fun: Counted, seed: int) -> None:
        bounds = list(zip(fun.problem.lower, fun.problem.upper, strict=True))
        while True:
            method(fun, bounds, **(options if method is optimize.direct else options | {"rng": seed}))

    return run


def random_search(fun: Counted, seed: int) -> None:
    random = np.random.default_rng(seed)
    while True:
        fun(random.uniform(fun.problem.lower, fun.problem.upper))


def pycma(surrogate: bool) -> Callable[[Counted, int], None]:
    def run(fun: Counted, seed: int) -> None:
        import cma

        lower, span, random = fun.problem.lower, fun.problem.upper - fun.problem.lower, np.random.default_rng(seed)
        for restart in range(10**6):
            options = {"verbose": -9, "seed": 1000 * seed + restart + 1, "bounds": [0, 1], "maxfevals": 10**9}
            search = cma.fmin_lq_surr2 if surrogate else cma.fmin2
            arguments = {"options": options} if surrogate else {"options": options, "restarts": 0}
            search(lambda u: fun(lower + np.asarray(u) * span), random.uniform(size=len(span)), 0.2, **arguments)

    return run


def optuna_tpe(fun: Counted, seed: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
    sides = list(zip(fun.problem.lower, fun.problem.upper, strict=True))
    study.optimize(
        lambda trial: fun(np.array([trial.suggest_float(f"x{i}", *side) for i, side in enumerate(sides)])),
        n_trials=MARKS[-1],
    )


def ngopt(fun: Counted, seed: int) -> None:
    import nevergrad as ng

    lower, upper = fun.problem.lower, fun.problem.upper
    box = ng.p.Array(init=(lower + upper) / 2, lower=lower, upper=upper)
    box.random_state.seed(seed)
    ng.optimizers.NGOpt(box, budget=MARKS[-1]).minimize(fun)


def pysot(fun: Counted, seed: int) -> None:
    """DYCORS with a cubic radial basis function, pySOT's usual choice, from a symmetric Latin hypercube."""
    from poap.controller import SerialController
    from pySOT.experimental_design import SymmetricLatinHypercube
    from pySOT.optimization_problems import OptimizationProblem
    from pySOT.strategy import DYCORSStrategy
    from pySOT.surrogate import CubicKernel, LinearTail, RBFInterpolant

    class Box(OptimizationProblem):
        def __init__(self) -> None:
            self.lb, self.ub, self.dim = fun.problem.lower, fun.problem.upper, len(fun.problem.lower)
            self.int_var, self.cont_var = np.array([]), np.arange(self.dim)

        def eval(self, x: np.ndarray) -> float:
            return fun(x)

    np.random.seed(seed)  # noqa: NPY002 (it draws from the global generator)
    box = Box()
    surrogate = RBFInterpolant(dim=box.dim, lb=box.lb, ub=box.ub, kernel=CubicKernel(), tail=LinearTail(box.dim))
    controller = SerialController(box.eval)
    controller.strategy = DYCORSStrategy(
        max_evals=MARKS[-1], opt_prob=box, surrogate=surrogate, asynchronous=True, batch_size=1,
        exp_design=SymmetricLatinHypercube(dim=box.dim, num_pts=2 * (box.dim + 1)),
    )  # fmt: skip
    controller.run()


METHODS: dict[str, Callable[[Counted, int], None]] = {
    "default": ours(),
    "EI": ours(gx.EI()),
    "COBYQA": scipys("COBYQA"),
    "SLSQP": scipys("SLSQP"),
    "L-BFGS-B": scipys("L-BFGS-B"),
    "Nelder-Mead": scipys("Nelder-Mead"),
    "lq-CMA-ES": pycma(surrogate=True),
    "pycma": pycma(surrogate=False),
    "Optuna TPE": optuna_tpe,
    "NGOpt": ngopt,
    "pySOT": pysot,
    "direct": scipy_global(optimize.direct, maxfun=10**6),
    "dual_annealing": scipy_global(optimize.dual_annealing),
    "differential_evolution": scipy_global(optimize.differential_evolution),
    "random": random_search,
}


def run_case(method: str, name: str, dim: int, instance: int) -> list[float]:
    """The best f - f_opt after each number of evaluations."""
    fun = Counted(build_problem(name, dim, instance))
    with warnings.catch_warnings(), suppress(Ended, gx.EvaluationError):
        warnings.simplefilter("ignore")
        METHODS[method](fun, instance)
    bests = fun.bests + [fun.bests[-1]] * (MARKS[-1] + 1 - len(fun.bests))
    return [max(bests[mark] - fun.problem.optimum, PRECISION) for mark in MARKS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--gaps", type=Path, help="folder of what methods reached, read and written")
    options = parser.parse_args()
    cases = [(*case, instance) for case in CASES for instance in options.instances]
    by_method = []
    with ProcessPoolExecutor(options.processes) as pool:
        for method in options.methods:
            file = options.gaps and options.gaps / f"{method}-{'-'.join(map(str, options.instances))}.txt"
            if file is None or not file.exists():
                method_gaps = list(pool.map(run_case, repeat(method), *zip(*cases, strict=True), chunksize=4))
                if file is not None:
                    np.savetxt(file, method_gaps)
            by_method.append(method_gaps if file is None else np.loadtxt(file))
    gaps = np.array(by_method)
    print(f"{len(cases)} runs: mean rank (median log10 gap)")
    print("| | " + " | ".join(f"{mark} evaluations" for mark in MARKS) + " |")
    print("| --- |" + " --- |" * len(MARKS))
    ranks = rankdata(gaps, axis=0)
    medians = np.median(np.log10(gaps), axis=1)
    for i, name in enumerate(options.methods):
        cells = [f"{ranks[i, :, k].mean():.1f} ({medians[i, k]:.2f})" for k in range(len(MARKS))]
        print(f"| {name} | " + " | ".join(cells) + " |")
    for dims in ((0, 2), (5,), (10,), (20,)):
        chosen = np.isin([dim for _, dim, _ in cases], dims)
        mean = ranks[:, chosen].mean(axis=1)
        cells = [
            f"{name} " + " / ".join(f"{rank:.1f}" for rank in row)
            for name, row in zip(options.methods, mean, strict=True)
        ]
        print(f"{' and '.join(map(str, dims))} variables: " + ", ".join(cells))


if __name__ == "__main__":
    main()
