"""Fronts from few evaluations: expensive functions with two or three objectives, called point by point.

    python benchmarks/few_fronts.py [zdt1 welded_beam ...] [--seeds 5] [--methods default nsga2 tpe gp pymoo]

Prints the median over the seeds of the share of the front's hypervolume that all points evaluated so far cover
together, after 50, 100 and 150 evaluations, the least of the seeds at the end, and the seconds of CPU that the quickest
of them took besides the objective (the first one of the default also compiles): the default, which is EHVI here;
galapax's NSGA-II with a population of 20; Optuna's TPE and its Gaussian processes (needs torch); pymoo's NSGA-II, on
real variables. A line `front` compares with the best known front, a line `best` with what three runs of NSGA-II with
20 000 evaluations each find. The reference point's rule was found on ZDT1 and ZDT3, and the quadratic part of the
models on DTLZ2 of two objectives.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import galapax as gx

MARKS = (50, 100, 150)
POPULATION = 20
BEST_GENERATIONS = 200  # of 100 individuals, where no front is known


def four_bar_truss(x: Any) -> Any:
    """RE21 of Tanabe & Ishibuchi (2020), Applied Soft Computing 89:106078, doi:10.1016/j.asoc.2020.106078."""
    volume = 200 * (2 * x[0] + np.sqrt(2) * x[1] + jnp.sqrt(x[2]) + x[3])
    joint = 0.01 * (2 / x[0] + 2 * np.sqrt(2) / x[1] - 2 * np.sqrt(2) / x[2] + 2 / x[3])
    return jnp.stack([volume, joint])


def pressure_vessel(x: Any) -> Any:
    """The cost of a pressure vessel, Kannan & Kramer (1994), with sheets of 1/16 inch; its volume is to be large."""
    shell, head = 0.0625 * x["shell"], 0.0625 * x["head"]
    r, length = x["radius"], x["length"]
    cost = 0.6224 * shell * r * length + 1.7781 * head * r**2 + 3.1661 * shell**2 * length + 19.84 * shell**2 * r
    return jnp.stack([cost, -jnp.pi * r**2 * (length + 4 / 3 * r)])


def pressure_vessel_limits(x: Any) -> Any:
    return jnp.stack([0.0193 * x["radius"] - 0.0625 * x["shell"], 0.00954 * x["radius"] - 0.0625 * x["head"]])


TRUSS = gx.Problem(
    four_bar_truss,
    [(1, 3), (2**0.5, 3), (2**0.5, 3), (1, 3)],
    name="truss",
    reference_point=(3000.0, 0.05),
)
VESSEL = gx.Problem(
    pressure_vessel,
    {
        "shell": gx.integer(1, 32),
        "head": gx.integer(1, 32),
        "radius": gx.real(10, 60),
        "length": gx.real(10, 200),
    },
    ineq=pressure_vessel_limits,
    name="vessel",
    reference_point=(20_000.0, 0.0),
)
PROBLEMS: dict[str, Callable[[], gx.Problem]] = {
    **{name: lambda name=name: gx.problems.get(name, dim=10) for name in ("zdt1", "zdt2", "zdt3", "zdt4", "zdt6")},
    "dtlz2 of two": lambda: gx.problems.get("dtlz2", dim=10, objectives=2),
    "dtlz2": lambda: gx.problems.get("dtlz2", dim=6),
    "dtlz7": lambda: gx.problems.get("dtlz7", dim=6),
    "truss": lambda: TRUSS,
    "crashworthiness": lambda: gx.problems.get("crashworthiness"),
    "welded_beam": lambda: gx.problems.get("welded_beam"),
    "osy": lambda: gx.problems.get("osy"),
    "car_side_impact": lambda: gx.problems.get("car_side_impact"),
    "vessel": lambda: VESSEL,
}


class Calls:
    """A problem's functions as a black box that remembers its calls; one point at a time."""

    def __init__(self, problem: gx.Problem) -> None:
        self.problem, self.seconds = problem, 0.0
        self.objectives: list[np.ndarray] = []
        self.violations: list[float] = []
        with jax.enable_x64(True):
            self._functions = [jax.jit(f) for f in (problem.fun, problem.ineq) if f is not None]

    def __call__(self, x: Any) -> dict[str, Any]:
        began = time.process_time()
        point = dict(x) if isinstance(x, Mapping) else np.asarray(x, float)
        with jax.enable_x64(True):
            fun, *ineq = (np.asarray(f(point)) for f in self._functions)
        self.objectives.append(fun)
        self.violations.append(float(np.maximum(ineq[0], 0).sum()) if ineq else 0.0)
        self.seconds += time.process_time() - began
        return {"fun": fun} | ({"ineq": ineq[0]} if ineq else {})

    def shares(self, hypervolume: float) -> list[float]:
        return [self.hypervolume(mark) / hypervolume for mark in MARKS]

    def hypervolume(self, count: int) -> float:
        reference = np.asarray(self.problem.reference_point)
        objectives, feasible = np.array(self.objectives[:count]), np.array(self.violations[:count]) <= 0
        inside = objectives[feasible & (objectives < reference).all(axis=1)]
        return float(gx.indicators.hypervolume(inside, reference)) if len(inside) else 0.0


def ours(*algorithm: Any) -> Callable[[Calls, int], None]:
    def run(calls: Calls, seed: int) -> None:
        space = calls.problem.space
        bounds = calls.problem.bounds if space is None else dict(zip(space.names(), space.variables, strict=True))
        gx.minimize(calls, bounds, *algorithm, blackbox=True, max_evaluations=MARKS[-1], seed=seed, progress=False)

    return run


def optuna(kind: str) -> Callable[[Calls, int], None]:
    def run(calls: Calls, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        problem = calls.problem

        def limits(trial: Any) -> list[float]:
            return list(trial.user_attrs["ineq"])

        settings: dict[str, Any] = {"seed": seed}
        if problem.ineq is not None:
            settings["constraints_func"] = limits
        sampler = getattr(optuna.samplers, kind)(**settings)

        def objective(trial: Any) -> tuple[float, ...]:
            values = calls(suggest(trial, problem))
            trial.set_user_attr("ineq", [float(v) for v in values.get("ineq", ())])
            return tuple(float(v) for v in values["fun"])

        directions = ["minimize"] * len(problem.reference_point or ())
        optuna.create_study(directions=directions, sampler=sampler).optimize(objective, n_trials=MARKS[-1])

    return run


def suggest(trial: Any, problem: gx.Problem) -> Any:
    """A point by Optuna's distributions, for real numbers and integers."""
    if problem.space is None:
        box = zip(problem.bounds.lower.tolist(), problem.bounds.upper.tolist(), strict=True)
        return np.array([trial.suggest_float(f"x{i}", low, high) for i, (low, high) in enumerate(box)])
    point = {}
    for name, v in zip(problem.space.names(), problem.space.variables, strict=True):
        kind = trial.suggest_int if v.kind == "integer" else trial.suggest_float
        point[name] = kind(name, v.lower, v.upper)
    return point


def pymoo(calls: Calls, seed: int) -> None:
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import ElementwiseProblem
    from pymoo.optimize import minimize

    problem = calls.problem

    class Described(ElementwiseProblem):
        def __init__(self) -> None:
            n_constraints = 0 if problem.ineq is None else len(problem.ineq(problem.bounds.lower))
            super().__init__(
                n_var=problem.dim,
                n_obj=len(problem.reference_point or ()),
                n_ieq_constr=n_constraints,
                xl=problem.bounds.lower,
                xu=problem.bounds.upper,
            )

        def _evaluate(self, x: np.ndarray, out: dict[str, Any], *_: Any, **__: Any) -> None:
            values = calls(x)
            out["F"] = values["fun"]
            if "ineq" in values:
                out["G"] = values["ineq"]

    minimize(Described(), NSGA2(pop_size=POPULATION), ("n_eval", MARKS[-1]), seed=seed)


class Method(NamedTuple):
    run: Callable[[Calls, int], None]
    needs: tuple[str, ...] = ()
    takes_integers: bool = True


METHODS = {
    "default": Method(ours()),
    "nsga2": Method(ours(gx.NSGA2(population=POPULATION))),
    "tpe": Method(optuna("TPESampler"), ("optuna",)),
    "gp": Method(optuna("GPSampler"), ("optuna", "torch")),
    "pymoo": Method(pymoo, ("pymoo",), takes_integers=False),
}


def measure_front(problem: gx.Problem) -> tuple[str, float]:
    """The hypervolume that counts as 1, and where it comes from."""
    if problem.hypervolume is not None:
        return "front", float(problem.hypervolume)
    if problem.front is not None:
        return "front", float(gx.indicators.hypervolume(problem.front(2000), problem.reference_point))
    result = gx.minimize(problem, gx.NSGA2(), generations=BEST_GENERATIONS, runs=3, keep=gx.Keep(archive=400), seed=9)
    return "best", float(gx.indicators.hypervolume(result.F, problem.reference_point))


def rows(names: list[str], methods: list[str], seeds: int) -> Iterator[str]:
    for name in names:
        problem = PROBLEMS[name]()
        truth, hypervolume = measure_front(problem)
        for key in methods:
            method = METHODS[key]
            if not all(importlib.util.find_spec(module) for module in method.needs):
                continue
            if problem.space is not None and not method.takes_integers:
                continue
            shares, seconds = [], []
            for seed in range(seeds):
                calls, began = Calls(problem), time.process_time()
                method.run(calls, seed)
                seconds.append(time.process_time() - began - calls.seconds)
                shares.append(calls.shares(hypervolume))
            median = " / ".join(f"{share:.3f}" for share in np.median(shares, axis=0))
            least = np.min(shares, axis=0)[-1]
            yield f"| {name} | {truth} | {key} | {median} | {least:.3f} | {np.min(seconds):.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="problem", help=", ".join(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| problem | | method | {' / '.join(map(str, MARKS))} evaluations | least at the end | s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows(options.problems or list(PROBLEMS), options.methods, options.seeds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
