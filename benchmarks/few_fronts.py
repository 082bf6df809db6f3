"""Fronts from few evaluations: expensive functions with two or three objectives, called point by point.

    python benchmarks/few_fronts.py [zdt1 welded_beam ...] [--seeds 5] [--methods default nsga2 tpe gp pymoo]
        [--processes 8] [--records runs.jsonl] [--ensemble 1000]

Prints the median over the seeds of the share of the front's hypervolume that all points evaluated so far cover
together, after 50, 100 and 150 evaluations, the least of the seeds at the end, and the seconds of CPU that the quickest
and the slowest of them took besides the objective: the default, which is EHVI here; galapax's NSGA-II with a population
of 20; Optuna's TPE and its Gaussian processes (needs torch); pymoo's NSGA-II, on real variables. A line `front`
compares with the best known front, a line `best` with what three runs of NSGA-II with 20 000 evaluations each find. The
reference point's rule was found on ZDT1 and ZDT3, and the quadratic part of the models on DTLZ2 of two objectives.

Each run is appended to the file of records, and a run that is in it is not made again. --ensemble makes so many runs of
EHVI in one call instead, compiled together with the problem, twice, and prints the seconds and quantiles of the shares.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
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


def disc_brake(x: Any) -> Any:
    """Mass and stopping time of a disc brake, RE33 of the same paper with its limits as constraints."""
    inner, outer, force, surfaces = x
    area, cube = outer**2 - inner**2, outer**3 - inner**3
    return jnp.stack([4.9e-5 * area * (surfaces - 1), 9.82e6 * area / (force * surfaces * cube)])


def disc_brake_limits(x: Any) -> Any:
    inner, outer, force, surfaces = x
    area, cube = outer**2 - inner**2, outer**3 - inner**3
    return jnp.stack(
        [
            1 - (outer - inner) / 20,  # thickness of the discs
            force / (3.14 * area) / 0.4 - 1,  # pressure
            2.22e-3 * force * cube / area**2 - 1,  # temperature
            1 - 2.66e-2 * force * surfaces * cube / area / 900,  # torque
        ]
    )


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
BRAKE = gx.Problem(
    disc_brake,
    [(55, 80), (75, 110), (1000, 3000), (11, 20)],
    ineq=disc_brake_limits,
    name="disc_brake",
    reference_point=(5.8, 3.4),
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
    "disc_brake": lambda: BRAKE,
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


class Run(NamedTuple):
    """One run of a method on a problem; a line of the file of records."""

    problem: str
    method: str
    seed: int
    hypervolumes: tuple[float, ...] = ()  # after as many evaluations as MARKS says
    seconds: float = 0.0


def make_run(run: Run) -> Run:
    calls, method = Calls(PROBLEMS[run.problem]()), METHODS[run.method]
    for module in method.needs:
        importlib.import_module(module)
    warnings.simplefilter("ignore")
    began = time.process_time()
    method.run(calls, run.seed)
    seconds = time.process_time() - began - calls.seconds
    return run._replace(hypervolumes=tuple(map(calls.hypervolume, MARKS)), seconds=seconds)


def make_runs(runs: list[Run], processes: int) -> Iterator[Run]:
    if processes == 1:
        yield from map(make_run, runs)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), max_tasks_per_child=10) as pool:
        for future in as_completed([pool.submit(make_run, run) for run in runs]):
            yield future.result()


def is_possible(problem: str, method: Method) -> bool:
    has_modules = all(importlib.util.find_spec(module) for module in method.needs)
    return has_modules and (method.takes_integers or PROBLEMS[problem]().space is None)


def format_rows(runs: Iterable[Run]) -> Iterator[str]:
    """The rows of the table, one for a problem and a method."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: (list(PROBLEMS).index(run.problem), list(METHODS).index(run.method))):
        groups.setdefault(run.problem, {}).setdefault(run.method, []).append(run)
    yield f"| problem | | method | seeds | {' / '.join(map(str, MARKS))} evaluations | least at the end | s |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for problem, methods in groups.items():
        truth, hypervolume = measure_front(PROBLEMS[problem]())
        for method, group in methods.items():
            shares = np.array([run.hypervolumes for run in group]) / hypervolume
            seconds = [run.seconds for run in group]
            median = " / ".join(f"{share:.3f}" for share in np.median(shares, axis=0))
            spread = f"{min(seconds):.1f} to {max(seconds):.1f}"
            yield f"| {problem} | {truth} | {method} | {len(group)} | {median} | {shares[:, -1].min():.3f} | {spread} |"


def ensemble_rows(names: list[str], runs: int) -> Iterator[str]:
    yield "| problem | runs | device | seconds | share at the end: median | 5 % | least |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in names:
        problem = PROBLEMS[name]()
        _, hypervolume = measure_front(problem)
        for seed in range(2):  # the first call compiles
            began = time.perf_counter()
            result = gx.minimize(
                problem, gx.EHVI(), max_evaluations=MARKS[-1], runs=runs, seed=seed, compute=gx.Compute(dtype="float64")
            )
            seconds = time.perf_counter() - began
            shares = np.quantile(np.asarray(result.runs.hypervolume) / hypervolume, [0.5, 0.05, 0.0])
            quantiles = " | ".join(f"{share:.4f}" for share in shares)
            yield f"| {name} | {runs} | {jax.devices()[0].device_kind} | {seconds:.1f} | {quantiles} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="problem", help=", ".join(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--ensemble", type=int, metavar="RUNS")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.ensemble is not None:
        for row in ensemble_rows(options.problems or ["zdt1", "zdt3"], options.ensemble):
            print(row, flush=True)
        return
    runs = [
        Run(problem, method, seed)
        for seed in range(options.seeds)
        for method in options.methods
        for problem in options.problems or PROBLEMS
        if is_possible(problem, METHODS[method])
    ]
    records = []
    if options.records is not None and options.records.exists():
        records = [Run(**json.loads(line)) for line in options.records.read_text().splitlines()]
    past = {run[:3] for run in records}
    for run in make_runs([run for run in runs if run[:3] not in past], options.processes):
        records.append(run)
        if options.records is not None:
            with options.records.open("a") as file:
                print(json.dumps(run._asdict()), file=file)
    wanted = {run[:3] for run in runs}
    for row in format_rows(run for run in records if run[:3] in wanted):
        print(row, flush=True)


if __name__ == "__main__":
    main()
