"""Every combination of some hyper-parameters, many runs each, as one batched computation."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from galapax import algorithms
from galapax.core.algorithm import Algorithm
from galapax.core.checks import finite
from galapax.core.errors import InputError
from galapax.core.islands import islands_of
from galapax.core.problem import Problem
from galapax.core.stop import Stop
from galapax.engines.interrupts import interrupts
from galapax.minimize import minimize
from galapax.numerics import random
from galapax.results.result import Result
from galapax.results.study import Study, measure_hypervolumes
from galapax.running.calls import is_called
from galapax.running.habits import WORDS, answered, described, starting
from galapax.running.observers import observers
from galapax.running.solve import solve
from galapax.running.task import archived, check_comparable, fitting, prepare, problem_of


def sweep(
    fun: Problem | Callable[..., Any],
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
    if not isinstance(bounds, str | Algorithm | type):
        further = {n: settings.pop(n) for n in ("args", "constraints", "integrality") if n in settings}
        fun, bounds, ineq, eq = described(fun, bounds, ineq, eq, **further)
    problem, algorithm = problem_of(fun, bounds, algorithm, ineq, eq)
    if "x0" in settings:
        settings["initial"] = starting(settings.get("initial"), settings.pop("x0"))
    settings["seed"] = random.resolve_seed(settings.get("seed", 0))
    known_class = isinstance(algorithm, type) and issubclass(algorithm, Algorithm)
    for name in ("blackbox", "vectorized"):
        if getattr(problem, name):
            settings.setdefault(name, True)
    if algorithm is None:
        called = is_called(*(settings.get(name) for name in ("blackbox", "executor", "workers")))
        algorithm = fitting(problem, called, settings.get("vectorized"), settings.get("dtype"))
    template = algorithm() if known_class else algorithms.resolve(algorithm)
    axes, labels, solvers = cells(template, settings)
    options = {name: value for name, value in settings.items() if name not in _fields(template)}
    known = set(inspect.signature(minimize).parameters) - {"fun", "bounds", "algorithm", "ineq", "eq", "population"}
    for name in options:
        if name not in known:
            if name in WORDS:
                raise answered(name, known, "sweep")
            raise InputError(
                f"sweep got {name!r}, which is neither a hyper-parameter of {type(template).__name__} "
                f"({', '.join(_fields(template))}) nor an option of minimize."
            )
    if options.get("target") is not None:
        finite(options["target"], "target")
    if (archive := options.pop("archive", None)) is not None:
        solvers = [archived(solver, archive) for solver in solvers]
    results: list[Result | None] = [None] * len(solvers)
    groups: dict[Any, list[int]] = {}
    for i, solver in enumerate(solvers):
        groups.setdefault(jax.tree.structure(solver), []).append(i)  # what shapes the program is part of the structure
    watchers = observers(
        *(options.pop(name, None) for name in ("callback", "progress", "live", "checkpoint", "resume"))
    )
    began = time.perf_counter()
    options["islands"] = islands_of(options.get("islands"))
    options["restarts"] = algorithms.restarts_of(options.get("restarts", "auto"))
    tasks = {key: prepare(problem, tuple(solvers[i] for i in rows), **options) for key, rows in groups.items()}
    for task in tasks.values():  # before anything is run
        check_comparable(task)
    stopped: Stop | None = None
    study = partial(_study, axes, labels, results, options.get("target"))

    def take(rows: list[int], found: list[Result]) -> Study:
        for i, result in zip(rows, found, strict=False):
            results[i] = result
        return study(Stop.CALLBACK)

    with interrupts() as noted:
        for key, rows in groups.items():
            task = tasks[key]
            if task.max_seconds is not None:
                left = task.max_seconds - (time.perf_counter() - began)
                stopped = Stop.TIME if left <= 0 else None
                task = dataclasses.replace(task, max_seconds=left)
            stopped = Stop.INTERRUPT if noted.seen else stopped
            if stopped is not None:
                break
            found, stopped = solve(task, watchers.about(task), so_far=partial(take, rows))
            take(rows, found)
            if stopped is not None:
                break
    return study(stopped)


def _study(
    axes: dict[str, list[Any]], labels: list[Any], results: list[Result | None], target: Any, stopped: Stop | None
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


def cells(template: Algorithm, settings: dict[str, Any]) -> tuple[dict[str, list[Any]], list[Any], list[Algorithm]]:
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


def _is_list(value: Any) -> bool:
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
