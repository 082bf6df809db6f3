"""Robust optimisation: functions of a solution and of uncertain quantities, judged by a measure over scenarios.

Uncertain quantities are distributions or scenarios, which are drawn here too.
"""

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
from galapax.metrics.statistics import Measure, as_measure, chance, wilson_interval
from galapax.numerics import devices, random
from galapax.results.result import Result, Robust, attach_replay, find_replay


@dataclass(frozen=True, eq=False)
class Normal:
    """Independent normal numbers, see `normal`."""

    mean: np.ndarray  # (k,)
    std: np.ndarray  # (k,)

    def quantiles(self, shares: np.ndarray) -> np.ndarray:
        """Return the values (n, k) below which these shares (n, k) of the probability lie."""
        from scipy.special import ndtri

        return self.mean + self.std * np.asarray(ndtri(shares))


@dataclass(frozen=True, eq=False)
class Uniform:
    """Independent numbers, uniform between bounds, see `uniform`."""

    lower: np.ndarray  # (k,)
    upper: np.ndarray  # (k,)

    def quantiles(self, shares: np.ndarray) -> np.ndarray:
        """Return the values (n, k) below which these shares (n, k) of the probability lie."""
        return self.lower + (self.upper - self.lower) * shares


Distribution = Normal | Uniform


@dataclass(frozen=True, eq=False)
class Scenarios:
    """All values that uncertain quantities can have, and their weights, see `scenarios`."""

    points: np.ndarray  # (s, k)
    weights: np.ndarray  # (s,), which add up to 1


def normal(mean: ArrayLike, std: ArrayLike) -> Normal:
    """An uncertain number that is normally distributed, or several independent ones, for `gx.robust`.

    mean, std: numbers, or arrays (k,).
    """
    centre, spread = _as_pair(mean, std, "normal(mean, std)")
    if not (spread > 0).all():
        raise InputError(f"the std of gx.normal must be above 0, got {abbreviate(std)}; a quantity that is known is no "
                         "uncertain one.")  # fmt: skip
    return Normal(centre, spread)


def uniform(lower: ArrayLike, upper: ArrayLike) -> Uniform:
    """An uncertain number that lies anywhere between two bounds, or several independent ones, for `gx.robust`.

    lower, upper: numbers, or arrays (k,).
    """
    low, high = _as_pair(lower, upper, "uniform(lower, upper)")
    if not (low < high).all():
        raise InputError(f"gx.uniform needs lower < upper, got {abbreviate(lower)} and {abbreviate(upper)}.")
    return Uniform(low, high)


def scenarios(points: ArrayLike, weights: ArrayLike | None = None) -> Scenarios:
    """All values that uncertain quantities can have, for `gx.robust`: a finite set, or samples of what was measured.

    points: (s, k), one scenario per row; (s,) for a single quantity. weights: (s,), how likely each is, in any unit; by
        default all alike.
    """
    rows = _as_numbers(points, "scenarios")
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or not rows.size:
        raise InputError(f"scenarios must be an array (s, k), one scenario per row; got shape {rows.shape}.")
    shares = np.ones(len(rows)) if weights is None else _as_numbers(weights, "weights")
    if shares.shape != (len(rows),) or (shares < 0).any() or not shares.sum() > 0:
        raise InputError(
            f"weights must be {len(rows)} numbers, one for each scenario, at least 0 and not all 0; got "
            f"{abbreviate(weights)}."
        )
    return Scenarios(rows, shares / shares.sum())


@dataclass(frozen=True, eq=False)
class Uncertain:
    """The uncertain quantities of a problem: what a function gets as its second argument.

    names: of the distributions, if it gets them in a dict; each is then a number or an array, as it was declared.
    """

    parts: tuple[Distribution, ...]
    fixed: Scenarios | None = None  # in place of distributions
    names: tuple[str, ...] | None = None

    @property
    def sizes(self) -> list[int]:
        return [len(part.mean if isinstance(part, Normal) else part.lower) for part in self.parts]

    @property
    def is_box(self) -> bool:
        """Whether all are uniform, so that their range is a box."""
        return bool(self.parts) and all(isinstance(part, Uniform) for part in self.parts)

    def draw(self, count: int, rng: np.random.Generator, stratified: bool = False) -> Scenarios:
        """Draw scenarios; those that are fixed are all of them.

        stratified: one in each of `count` equally likely ranges of every number (Latin hypercube sampling), which makes
        means more precise; else independent ones, whose means have a confidence interval.
        """
        if self.fixed is not None:
            return self.fixed
        shares = rng.random((count, sum(self.sizes)))
        if stratified:
            ranks = np.argsort(rng.random(shares.shape), axis=0)
            shares = (ranks + shares) / count
        shares = np.clip(shares, 1e-12, 1 - 1e-12)
        columns = np.split(shares, np.cumsum(self.sizes)[:-1], axis=1)
        points = np.concatenate([p.quantiles(c) for p, c in zip(self.parts, columns, strict=True)], axis=1)
        return Scenarios(points, np.full(count, 1 / count))

    def arguments(self, y: np.ndarray) -> object:
        """Return what the function gets for a scenario y (k,): y itself, or a dict by name."""
        if self.names is None:
            return y
        ends = np.cumsum(self.sizes)
        values = [y[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]
        return {name: v[0] if len(v) == 1 else v for name, v in zip(self.names, values, strict=True)}


def as_uncertain(value: object) -> Uncertain:
    """Return uncertain quantities from a distribution, a list or a dict of them, scenarios, or an array of samples."""
    if isinstance(value, Scenarios):
        return Uncertain((), value)
    if isinstance(value, Normal | Uniform):
        return Uncertain((value,))
    is_mapping = isinstance(value, Mapping)
    parts = list(value.values()) if isinstance(value, Mapping) else value
    if isinstance(parts, Sequence) and len(parts) and all(isinstance(part, Normal | Uniform) for part in parts):
        names = tuple(map(str, value)) if isinstance(value, Mapping) else None
        return Uncertain(tuple(parts), None, names)
    if not is_mapping and isinstance(value, np.ndarray | Sequence) and not isinstance(value, str):
        return Uncertain((), scenarios(value))
    raise InputError(
        "uncertain must be gx.normal(mean, std), gx.uniform(lower, upper), a list or a dict of these, "
        f"gx.scenarios(points, weights), or an array of samples, one per row; got {abbreviate(value)}."
    )


def _as_numbers(value: ArrayLike, name: str) -> np.ndarray:
    try:
        numbers = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} must be finite numbers, got {abbreviate(value)}.")
    return numbers


def _as_pair(first: ArrayLike, second: ArrayLike, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays (k,) of one length."""
    one, other = (np.atleast_1d(_as_numbers(value, f"the arguments of gx.{what}")) for value in (first, second))
    if one.ndim > 1 or other.ndim > 1 or (len(one) != len(other) and 1 not in (len(one), len(other))):
        raise InputError(f"gx.{what} takes numbers, or arrays of one length; got shapes {one.shape} and {other.shape}.")
    a, b = np.broadcast_arrays(one, other)
    return a.copy(), b.copy()


# that are evaluated at once for each solution, so that memory does not grow with their number; on an accelerator more
TILE_SCENARIOS, ACCELERATOR_TILE_SCENARIOS = 128, 1024
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
            return np.array([self._call(x, y) for y in np.asarray(points)], np.float64)

        def one(y: Any) -> Array:
            parts = jax.tree.leaves(self._call(x, y))
            return jnp.concatenate([jnp.ravel(part) for part in parts]) if len(parts) > 1 else jnp.asarray(parts[0])

        y = jnp.asarray(points)
        tile = TILE_SCENARIOS if devices.on_cpu() else ACCELERATOR_TILE_SCENARIOS
        return jax.vmap(one)(y) if len(y) <= tile else jax.lax.map(one, y, batch_size=tile)

    def _call(self, x: Any, y: Any) -> Any:
        try:
            return self.function(x, self.uncertain.arguments(y))
        except KeyError as error:
            names, key = self.uncertain.names, error.args[0] if error.args else None
            if names is None or not isinstance(key, int | slice):
                raise
            listed = ", ".join(f"u[{name!r}]" for name in names)
            raise InputError(
                f"the uncertain quantities were given in a dict, so the function gets them in one, u: write {listed}, "
                f"not u[{key!r}]."
            ) from error


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
    fun: Callable[[Any, Any], Any],
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
