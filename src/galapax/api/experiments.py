"""Experiments of many runs: `sweep` over hyper-parameters in one batched computation, and `compare` of algorithms.

`compare` runs several algorithms on several problems, with the statistics to tell them apart.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from galapax import algorithms
from galapax import algorithms as registry
from galapax.api.minimize import minimize
from galapax.core.algorithm import Algorithm
from galapax.core.checks import check_bool, check_finite, check_integer, clean_name, items, pluralize
from galapax.core.errors import InputError
from galapax.core.hints import KEYWORDS, find_answers, unknown_keyword_error
from galapax.core.options import Compute, Options, suggest_keywords
from galapax.core.problem import MinMaxProblem, Problem, stack_constraints
from galapax.core.stop import Stop, interrupts
from galapax.execution.observers import observers
from galapax.execution.solve import solve
from galapax.execution.task import (
    Task,
    as_problem,
    check_comparable,
    default_algorithm,
    prepare_task,
    problem_of,
    resolve_options,
    with_archive,
)
from galapax.numerics import random
from galapax.results.result import Result
from galapax.results.study import Study, measure_hypervolumes


def sweep(
    fun: str | Problem | Callable[[Any], Any],
    bounds: Any = None,
    algorithm: Any = None,
    *,
    ineq: Any = None,
    eq: Any = None,
    **settings: Any,
) -> Study:
    """Run an algorithm with every combination of the hyper-parameters that are given as lists.

    >>> study = sweep(problem, GA, fr=[1.0, 1.5], sigma=[0.1, 0.5, 1.0], runs=1000)  # doctest: +SKIP

    fun, bounds, ineq, eq: as in `minimize`. algorithm: a class, an instance or a name.
    settings: hyper-parameters of the algorithm, a list each for those to sweep; and options of `minimize` (runs, seed,
        generations, max_evaluations, target, ...), which apply to all cells. Each cell makes the same random draws as
        `minimize` with the same settings.
    All cells that share the same population and functions are one computation, in parts if memory requires it.
    """
    stacked = stack_constraints("ineq", ineq), stack_constraints("eq", eq)
    problem, algorithm = problem_of(fun, bounds, algorithm, *stacked, settings.pop("eq_tolerance", None))
    if settings.get("initial") is not None:
        raise InputError("initial is for one run of a black box, by minimize: leave it out, or give points as x0.")
    is_class = isinstance(algorithm, type) and issubclass(algorithm, Algorithm)
    if algorithm is None:
        algorithm = default_algorithm(problem, resolve_options(problem, Options.parse(settings | {"population": None})))
    template = algorithm() if is_class else algorithms.resolve_algorithm(algorithm)
    axes, labels, solvers = cells(template, settings)
    arguments = {name: value for name, value in settings.items() if name not in _fields(template)}
    known = set(inspect.signature(minimize).parameters) - {"fun", "bounds", "algorithm", "ineq", "eq", "population"}
    for name in arguments:
        if name not in known:
            if find_answers(name, KEYWORDS):
                raise unknown_keyword_error(name, known, "sweep")
            raise InputError(
                f"sweep got {name!r}, which is neither a hyper-parameter of {type(template).__name__} "
                f"({', '.join(_fields(template))}) nor an option of minimize."
            )
    if arguments.get("target") is not None:
        check_finite(arguments["target"], "target")
    options = resolve_options(problem, Options.parse({"polish": False} | arguments))
    if options.keep.archive is not None:
        solvers = [with_archive(solver, options.keep.archive) for solver in solvers]
    results: list[Result | None] = [None] * len(solvers)
    groups: dict[Hashable, list[int]] = {}
    for i, solver in enumerate(solvers):
        groups.setdefault(jax.tree.structure(solver), []).append(i)  # what shapes the program is part of the structure
    watchers = observers(*(arguments.get(name) for name in ("callback", "progress", "live", "checkpoint", "resume")))
    began = time.perf_counter()
    strategy = algorithms.parse_restarts(options.restarts)
    tasks = {
        key: prepare_task(problem, tuple(solvers[i] for i in rows), options, strategy) for key, rows in groups.items()
    }
    for task in tasks.values():  # before anything is run
        check_comparable(task)
    stopped: Stop | None = None
    study = partial(_study, axes, labels, results, options.target)

    def take(rows: list[int], batch_results: list[Result]) -> Study:
        for i, result in zip(rows, batch_results, strict=False):
            results[i] = result
        return study(Stop.CALLBACK)

    with interrupts() as interrupt_state:
        for key, rows in groups.items():
            task = tasks[key]
            if task.options.max_seconds is not None:
                remaining = task.options.max_seconds - (time.perf_counter() - began)
                if remaining <= 0:
                    stopped = Stop.TIME
                    break
                task = task.with_options(max_seconds=remaining)
            stopped = Stop.INTERRUPT if interrupt_state.seen else stopped
            if stopped is not None:
                break
            batch_results, stopped = solve(task, watchers.about(task), partial_result=partial(take, rows))
            take(rows, batch_results)
            if stopped is not None:
                break
    return study(stopped)


def _study(
    axes: dict[str, list[Any]],
    labels: list[dict[str, object]],
    results: list[Result | None],
    target: float | None,
    stopped: Stop | None,
) -> Study:
    """Build the study of the cells that have a result."""
    computed = [i for i, result in enumerate(results) if result is not None]
    return Study(
        kind="sweep",
        axes=axes,
        labels=[labels[i] for i in computed],
        results=[measure_hypervolumes(result) for result in results if result is not None],
        targets=[None if target is None else float(target)] * len(computed),
        message=message(stopped, len(computed), len(results), "setting", "settings"),
        stop=stopped or Stop.BUDGET,
    )


def cells(
    template: Algorithm, settings: dict[str, Any]
) -> tuple[dict[str, list[Any]], list[dict[str, object]], list[Algorithm]]:
    """Return the axes, and for each combination its labels and its algorithm."""
    fields = _fields(template)
    parameters = {name: settings.get(name, getattr(template, name)) for name in fields}
    # in the order in which the user named them, then those that came with an instance
    order = [name for name in settings if name in fields] + [name for name in fields if name not in settings]
    axes = {name: _values(name, parameters[name]) for name in order if _is_list(parameters[name])}
    if not axes:
        raise InputError(
            f"nothing to sweep: give at least one hyper-parameter of {type(template).__name__} "
            f"({', '.join(fields)}) as a list of values."
        )
    fixed = {name: value for name, value in parameters.items() if name not in axes}
    combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    solvers = [dataclasses.replace(template, **fixed, **swept) for swept in combinations]  # type: ignore[type-var]
    axis_labels = {name: [_label(v) for v in values] for name, values in axes.items()}
    return axis_labels, [{name: _label(v) for name, v in swept.items()} for swept in combinations], solvers


def message(stopped: Stop | None, n_started: int, n_total: int, singular: str, plural: str) -> str:
    """Say how a study ended."""
    if stopped is None:
        return f"{'All ' if n_total > 1 else ''}{pluralize(n_total, singular, plural)} completed."
    return f"Stopped by {stopped.by}: {n_started} of {n_total} {plural} were started; the last one may be incomplete."


def _fields(algorithm: Algorithm) -> list[str]:
    return [f.name for f in dataclasses.fields(algorithm)]  # type: ignore[arg-type]


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | range) or (
        hasattr(value, "ndim") and not isinstance(value, type) and value.ndim > 0
    )


def _values(name: str, values: Any) -> list[Any]:
    if hasattr(values, "ndim") and values.ndim != 1:
        raise InputError(f"{name} must be a list of values, got an array of shape {values.shape}.")
    out = [v.item() if isinstance(v, np.generic | jax.Array) else v for v in values]
    if not out:
        raise InputError(f"{name} is an empty list; give the values to try.")
    repeated = [v for i, v in enumerate(out) if v in out[:i]]
    if repeated:
        raise InputError(f"{name} contains {repeated[0]!r} twice; give each value once.")
    return out


def _label(value: Any) -> Any:
    return value.__name__ if callable(value) else value


# --- comparisons ------------------------------------------------------------------------------------------------------


@suggest_keywords
def compare(
    problems: Sequence[str | Problem],
    algorithms: Sequence[str | Algorithm[Any]] | Mapping[str, str | Algorithm[Any]],
    *,
    max_evaluations: int = 20_000,
    runs: int = 30,
    within: float | Mapping[str, float] | None = None,
    paired: bool = False,
    seed: int | None = 0,
    progress: bool | None = None,
    checkpoint: object = None,
    resume: object = None,
    compute: Compute | None = None,
) -> Study:
    """Run every algorithm on every problem with the same number of evaluations.

    problems: names or Problems. algorithms: names or instances; a mapping gives them names of your own.
    max_evaluations: limit per run, for any population; a last generation that would exceed it is skipped.
    runs: of each algorithm on each problem, computed together.
    within: a run succeeds once it is this close to the problem's best known value; or {problem: value to reach}.
        With several objectives the value of a run is the hypervolume of its front up to the problem's reference_point.
    paired: compare run r of one algorithm with run r of the other (they share their seed; algorithms with equal
        populations start from the same points), with Wilcoxon's signed-rank test instead of Mann-Whitney.
    checkpoint, resume, compute: as in `minimize`.
    """
    arguments = locals()
    problems_by_name, seed = _problems(problems), random.resolve_seed(seed)
    solvers = _algorithms(algorithms)
    check_integer(runs, "runs", 2, "a single run does not show how much runs vary")
    if isinstance(within, Mapping):
        for name in within:
            if name not in problems_by_name:
                raise InputError(
                    f"within names {name!r}, which is not among the problems {', '.join(problems_by_name)}."
                )
    paired = check_bool(paired, "paired")
    targets = {name: _target(problem, within) for name, problem in problems_by_name.items()}
    watchers = observers(progress=progress, checkpoint=checkpoint, resume=resume)
    tasks: dict[tuple[str, str], Task] = {}
    for name, problem in problems_by_name.items():
        for label, solver in solvers.items():
            options = resolve_options(problem, Options.parse(arguments | {"seed": seed, "polish": False}))
            tasks[name, label] = prepare_task(problem, (solver,), options)
    for task in tasks.values():  # refused before anything is run
        check_comparable(task)
    labels: list[dict[str, Any]] = []
    results: list[Result] = []
    stopped: Stop | None = None
    with interrupts() as interrupt_state:
        for number, ((name, label), task) in enumerate(tasks.items(), 1):
            if interrupt_state.seen:
                stopped = Stop.INTERRUPT
                break
            task_results, stopped = solve(task, watchers.about(task, f"[{number}/{len(tasks)}] ", label))
            labels += [{"problem": name, "algorithm": label}] * len(task_results)
            results += map(measure_hypervolumes, task_results)
            if stopped is not None:
                break
    return Study(
        kind="comparison",
        axes={"problem": list(problems_by_name), "algorithm": list(solvers)},
        labels=labels,
        results=results,
        targets=[targets[labels_of_cell["problem"]] for labels_of_cell in labels],
        message=message(
            stopped, len(results), len(tasks), "pair of problem and algorithm", "pairs of problem and algorithm"
        ),
        paired=paired,
        stop=stopped or Stop.BUDGET,
    )


def _problems(problems: Sequence[str | Problem]) -> dict[str, Problem]:
    """Return the problems of a comparison by name."""
    if isinstance(problems, str | Problem | MinMaxProblem):
        problems = [problems]
    out: dict[str, Problem] = {}
    for one in items(problems, "compare needs a list of problems, names or Problems"):
        problem = as_problem(one)
        if isinstance(problem, MinMaxProblem) or not isinstance(problem, Problem):
            raise InputError(f"compare takes names or Problem objects (no min-max problems); got {one!r}.")
        if problem.name in out:
            raise InputError(f"the problem {problem.name!r} is given twice; rename one with with_(name=).")
        out[problem.name] = problem
    if not out:
        raise InputError("compare needs at least one problem.")
    return out


def _algorithms(algorithms: object) -> dict[str, Algorithm]:
    """Return the algorithms of a comparison by label."""
    if isinstance(algorithms, Mapping) and algorithms:
        return {clean_name(str(name), "a name"): registry.resolve_algorithm(one) for name, one in algorithms.items()}
    if isinstance(algorithms, str | Algorithm):
        algorithms = [algorithms]
    listed = items(algorithms, "compare needs a list of algorithms, names or instances")
    solvers = [registry.resolve_algorithm(one) for one in listed]
    if not solvers:
        raise InputError("compare needs at least one algorithm.")
    names = [registry.algorithm_name(s) for s in solvers]
    out: dict[str, Algorithm] = {}
    for name, solver in zip(names, solvers, strict=True):
        label = name if names.count(name) == 1 else _describe(name, solver)
        if label in out:
            raise InputError(f"{label} is given twice; label them with a mapping such as {{'a': gx.DE(), ...}}.")
        out[label] = solver
    return out


def _describe(name: str, solver: Algorithm) -> str:
    """Return the name with the hyper-parameters that differ from the default."""
    defaults, settings = registry.plain_settings(type(solver)()), registry.plain_settings(solver)
    names = [k for k in defaults | settings if settings.get(k) != defaults.get(k)]  # what is None has no entry
    changed = [f"{k}={settings.get(k)}" for k in names]
    return f"{name} ({', '.join(changed)})" if changed else name


def _target(problem: Problem, within: float | Mapping[str, float] | None) -> float | None:
    """Return the value that a run on this problem has to reach."""
    if within is None:
        return None
    if isinstance(within, Mapping):
        return check_finite(within[problem.name], "within") if problem.name in within else None
    distance = check_finite(within, "within")
    if distance < 0:
        raise InputError(f"within is a distance to the best known value, at least 0; got {distance:g}.")
    known = problem.hypervolume if problem.optimum is None else problem.optimum
    if known is None:
        field = "optimum" if problem.reference_point is None else "hypervolume"
        raise InputError(
            f"{problem.name!r} has no best known value to measure a distance from: "
            f"use problem.with_({field}=...), or within={{{problem.name!r}: value}}."
        )
    return float(known) + distance if problem.optimum is not None else float(known) - distance
