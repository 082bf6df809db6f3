"""Every combination of some hyper-parameters, many runs each, as one batched computation."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
import numpy as np

from galapax import algorithms
from galapax.api.minimize import minimize
from galapax.core.algorithm import Algorithm
from galapax.core.checks import check_finite
from galapax.core.errors import InputError
from galapax.core.hints import KEYWORDS, find_answers, unknown_keyword_error
from galapax.core.options import Options
from galapax.core.problem import Problem, stack_constraints
from galapax.core.stop import Stop, interrupts
from galapax.execution.observers import observers
from galapax.execution.solve import solve
from galapax.execution.task import (
    check_comparable,
    default_algorithm,
    prepare_task,
    problem_of,
    resolve_options,
    with_archive,
)
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
    """Of the cells that have a result."""
    made = [i for i, result in enumerate(results) if result is not None]
    return Study(
        kind="sweep",
        axes=axes,
        labels=[labels[i] for i in made],
        results=[measure_hypervolumes(result) for result in results if result is not None],
        targets=[None if target is None else float(target)] * len(made),
        message=message(stopped, len(made), len(results), "settings"),
        stop=stopped or Stop.BUDGET,
    )


def cells(
    template: Algorithm, settings: dict[str, Any]
) -> tuple[dict[str, list[Any]], list[dict[str, object]], list[Algorithm]]:
    """The axes, and for each combination its labels and its algorithm."""
    fields = _fields(template)
    given = {name: settings.get(name, getattr(template, name)) for name in fields}
    # in the order in which the user named them, then those that came with an instance
    order = [name for name in settings if name in fields] + [name for name in fields if name not in settings]
    axes = {name: _values(name, given[name]) for name in order if _is_list(given[name])}
    if not axes:
        raise InputError(
            f"nothing to sweep: give at least one hyper-parameter of {type(template).__name__} "
            f"({', '.join(fields)}) as a list of values."
        )
    fixed = {name: value for name, value in given.items() if name not in axes}
    combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    solvers = [dataclasses.replace(template, **fixed, **own) for own in combinations]  # type: ignore[type-var]
    named = {name: [_label(v) for v in values] for name, values in axes.items()}
    return named, [{name: _label(v) for name, v in own.items()} for own in combinations], solvers


def message(stopped: Stop | None, made: int, wanted: int, what: str) -> str:
    """How a study ended."""
    if stopped is None:
        return f"All {wanted} {what} completed."
    return f"Stopped by {stopped.by}: {made} of {wanted} {what} were started; the last one may be incomplete."


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
