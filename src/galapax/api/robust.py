"""Robust optimisation: functions of a solution and of uncertain quantities, judged by a measure over scenarios."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from galapax.api.minimax import minimax
from galapax.api.minimize import minimize
from galapax.core.checks import abbreviate, check_integer
from galapax.core.errors import InputError
from galapax.core.problem import Function, Problem, stack_constraints
from galapax.core.uncertainty import Distribution, Scenarios, Uncertain, as_uncertain
from galapax.metrics.risk import Measure, as_measure, chance
from galapax.metrics.statistics import wilson_interval
from galapax.numerics import random
from galapax.results.result import Result, Robust, attach_replay, find_replay

TILE_SCENARIOS = 128  # that are evaluated at once for each solution, so that memory does not grow with their number
CHECKS_PER_SAMPLE = 10  # fresh scenarios for each of the search, by default
MAX_CHECKS, MIN_CHECKS = 100_000, 1000
PERCENTILES = np.linspace(0, 1, 101)


@dataclass(frozen=True)
class OverScenarios:
    """Values of a function of x and y in all scenarios y, (s,) or (s, p). called: as plain Python, one by one."""

    function: Function
    uncertain: Uncertain
    called: bool

    def __call__(self, x: Any, points: np.ndarray | Array) -> Any:
        if self.called:
            return np.array([self.function(x, self.uncertain.arguments(y)) for y in np.asarray(points)], np.float64)

        def one(y: Any) -> Array:
            parts = jax.tree.leaves(self.function(x, self.uncertain.arguments(y)))
            return jnp.concatenate([jnp.ravel(part) for part in parts]) if len(parts) > 1 else jnp.asarray(parts[0])

        y = jnp.asarray(points)
        return jax.vmap(one)(y) if len(y) <= TILE_SCENARIOS else jax.lax.map(one, y, batch_size=TILE_SCENARIOS)


@dataclass(frozen=True)
class MeasuredObjective:
    """An objective of x: one or several measures of a function over scenarios."""

    values: OverScenarios
    scenarios: Scenarios
    measures: tuple[Measure, ...]

    def __call__(self, x: Any) -> Any:
        values = jnp.asarray(self.values(x, self.scenarios.points))
        if values.ndim > 1 and values.size == len(values):
            values = values[:, 0]
        if values.ndim != 1:
            raise InputError(
                f"fun must return one number for x and y; it returned an array of shape {values.shape[1:]}."
            )
        weights = jnp.asarray(self.scenarios.weights, values.dtype)
        numbers = [measure(values, weights) for measure in self.measures]
        out = numbers[0] if len(numbers) == 1 else jnp.stack(numbers)
        return np.asarray(out) if self.values.called else out

    @property
    def __name__(self) -> str:
        return str(getattr(self.values.function, "__name__", "fun"))


@dataclass(frozen=True)
class MeasuredConstraint:
    """Constraints of x: a measure of each constraint over scenarios, or of the largest of all."""

    values: OverScenarios
    scenarios: Scenarios
    measure: Measure

    def __call__(self, x: Any) -> Any:
        values = jnp.asarray(self.values(x, self.scenarios.points))
        values = values.reshape(len(values), -1)
        if self.measure.kind == "chance":  # all of them together, with this probability
            values = jnp.max(values, axis=1, keepdims=True)
        weights = jnp.asarray(self.scenarios.weights, values.dtype)
        out = jax.vmap(lambda column: self.measure(column, weights), in_axes=1)(values)
        return np.asarray(out) if self.values.called else out


def robust(
    fun: Callable[..., Any],
    bounds: Any,
    uncertain: Distribution | Scenarios | Sequence[Distribution] | Mapping[str, Distribution] | ArrayLike,
    measure: str | Measure | Sequence[str | Measure] = "mean",
    *,
    ineq: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    ineq_measure: str | Measure = chance(0.95),
    samples: int = 1000,
    check_samples: int | None = None,
    seed: int | None = 0,
    **options: Any,
) -> Result:
    """Find the x inside the bounds whose outcomes under uncertainty are best, and check it on fresh samples.

    fun: a function of one solution x and of uncertain quantities y to a number, written with jax.numpy; or a black box,
        with blackbox=True, which is called for every scenario.
    bounds: as in `minimize`.
    uncertain: what y is: gx.normal, gx.uniform, a list of them (y is then an array), or a dict (y is then a dict of
        named values); or samples as an array, one per row, or gx.scenarios(points, weights): those are then all.
    measure: what is minimised: "mean"; gx.mean_std(k), mean plus k standard deviations; gx.cvar(0.9), the mean of the
        worst tenth; gx.chance(0.95), the value that is exceeded with a probability of 5 %; "worst", the largest. A list
        of measures gives a front. With "worst" and uniform quantities alone, y takes its worst value in their box, by
        `minimax`.
    ineq: constraints, a function or a list, of x and y, or of x alone. ineq_measure: what of those with y must be at
        most 0; with gx.chance(0.95) all hold together with a probability of 95 %.
    samples: scenarios of the search, the same ones for every x (Latin hypercube). check_samples: independent scenarios
        for the check; by default ten times as many, at most 100 000, and of a black box as many.
    seed: of the scenarios and the search. options: any of `minimize`, such as max_evaluations, runs or eq. nfev counts
        x, each of which meets every scenario.
    Returns a Result: `fun` is the measure over the scenarios of the search, which flatters x a little, and
    `result.robust` what the fresh samples say: `value` with its 95 % `interval`, `probability` of keeping the
    constraints with `probability_interval`, and `outcomes`, the percentiles of fun at x. Of fixed scenarios the value
    is exact. Of several measures `robust` is a tuple, at the knee of the front.
    """
    quantities = as_uncertain(uncertain)
    measures = tuple(map(as_measure, measure)) if isinstance(measure, list | tuple) else (as_measure(measure),)
    if not measures:
        raise InputError("measure is an empty list: give at least one.")
    check_integer(samples, "samples", 2)
    called = bool(options.get("blackbox") or options.get("workers") is not None)
    if options.get("maximize"):
        raise InputError("a measure of risk is minimised: minimise the negative of fun and leave maximize out.")
    _check_two_arguments("fun", fun)
    run_seed = random.resolve_seed(seed)
    rng = np.random.default_rng([run_seed, int(random.Stream.SCENARIOS)])
    if measures == (Measure("worst"),) and quantities.is_box and not called:
        return _over_box(fun, bounds, quantities, ineq, run_seed, options)
    drawn = quantities.draw(samples, rng, stratified=True)
    values = OverScenarios(fun, quantities, called)
    certain, random_constraints = _split_constraints(ineq)
    constraint_values = [OverScenarios(function, quantities, called) for function in random_constraints]
    limit = as_measure(ineq_measure, "ineq_measure")
    joint = [OverScenarios(_Together(tuple(random_constraints)), quantities, called)] if random_constraints else []
    constraints = [*certain, *(MeasuredConstraint(each, drawn, limit) for each in joint)]
    names = [str(each) for each in measures] if len(measures) > 1 else None
    problem = Problem(
        MeasuredObjective(values, drawn, measures),
        bounds,
        ineq=stack_constraints("ineq", constraints),
        eq=stack_constraints("eq", options.pop("eq", None)),
        eq_tolerance=options.pop("eq_tolerance", None),
        objectives=names,
    )
    result = minimize(problem, seed=run_seed, **options)
    if check_samples is None:
        check_samples = samples if called else min(MAX_CHECKS, max(MIN_CHECKS, CHECKS_PER_SAMPLE * samples))
    fresh = quantities.draw(check_integer(check_samples, "check_samples", 2), rng)

    def check(answer: Result) -> Result:
        with jax.enable_x64(answer.settings["dtype"] == "float64"):
            _add_check(answer, problem, values, constraint_values, measures, limit, fresh, quantities.fixed is not None)
        return answer

    replay = find_replay(result)
    if replay is not None:
        attach_replay(result, lambda number: check(replay(number)))
    return check(result)


@dataclass(frozen=True)
class _Together:
    """Several constraints of x and y as one."""

    functions: tuple[Function, ...]

    def __call__(self, x: Any, y: Any) -> Any:
        parts = [np.ravel(f(x, y)) if isinstance(x, np.ndarray) else jnp.ravel(f(x, y)) for f in self.functions]
        return (np if isinstance(x, np.ndarray) else jnp).concatenate(parts)


def _check_two_arguments(name: str, function: Any) -> None:
    try:
        inspect.signature(function).bind(None, None)
    except ValueError:
        return  # a builtin without a signature
    except TypeError:
        raise InputError(
            f"{name} of gx.robust must take two arguments, a solution x and the uncertain quantities y; got "
            f"{abbreviate(function)}."
        ) from None


def _split_constraints(ineq: Any) -> tuple[list[Function], list[Function]]:
    """Return the constraints of x alone and those of x and y."""
    functions = list(ineq) if isinstance(ineq, list | tuple) else [] if ineq is None else [ineq]
    certain, of_both = [], []
    for function in functions:
        try:
            inspect.signature(function).bind(None)
        except (TypeError, ValueError):
            _check_two_arguments("ineq", function)
            of_both.append(function)
        else:
            certain.append(function)
    return certain, of_both


def _over_box(
    fun: Function, bounds: Any, quantities: Uncertain, ineq: Any, seed: int, options: dict[str, Any]
) -> Result:
    """Minimise the worst case over the box of uniform quantities."""
    if ineq is not None or "eq" in options:
        raise InputError(
            'measure="worst" over a box takes no constraints: give scenarios as an array, or another measure.'
        )
    lower, upper = (np.concatenate([getattr(part, end) for part in quantities.parts]) for end in ("lower", "upper"))

    def of_vectors(x: Any, y: Any) -> Any:
        return fun(x, quantities.arguments(y))

    result = minimax(of_vectors, bounds, np.stack([lower, upper], axis=1), seed=seed, **options)
    value = float(result.worst_case)
    result["robust"] = Robust("worst", value, np.array([value, math.inf]), 0, np.zeros(0), None, None)
    return result


def _add_check(
    result: Result,
    problem: Problem,
    values: OverScenarios,
    constraints: list[OverScenarios],
    measures: tuple[Measure, ...],
    limit: Measure,
    fresh: Scenarios,
    is_exact: bool,
) -> None:
    """Evaluate the answer in fresh scenarios and report its measures."""
    space = problem.space
    x = result.x if values.called else jnp.asarray(result.x)
    x = x if space is None else space.to_arguments(x)
    outcomes = np.asarray(values(x, fresh.points), np.float64).reshape(len(fresh.points))
    probability = probability_interval = None
    if constraints:
        holds = np.ones(len(fresh.points), bool)
        for constraint in constraints:
            rows = np.asarray(constraint(x, fresh.points), np.float64).reshape(len(holds), -1)
            holds &= (rows <= 0).all(axis=1)
        probability = float(np.sum(fresh.weights[holds]))
        interval = (probability, probability) if is_exact else wilson_interval(int(holds.sum()), len(holds))
        probability_interval = np.array(interval)
    order = np.argsort(outcomes)
    shares = np.cumsum(fresh.weights[order])
    percentiles = outcomes[order][np.minimum(np.searchsorted(shares, PERCENTILES - 1e-12), len(order) - 1)]
    reports = []
    for measure in measures:
        if is_exact:
            value = float(measure(jnp.asarray(outcomes), jnp.asarray(fresh.weights)))
            ends = (value, value)
        else:
            value, ends = measure.estimate(outcomes)
        reports.append(
            Robust(str(measure), value, np.array(ends), len(outcomes), percentiles, probability, probability_interval)
        )
    result["robust"] = reports[0] if len(reports) == 1 else tuple(reports)
    if limit.kind == "chance" and probability_interval is not None and probability_interval[1] < limit.level:
        result["message"] += (
            f" On fresh samples the constraints hold with a probability of {probability:.4g} only, instead of "
            f"{limit.level:g}: take more samples."
        )
        result["success"] = False
