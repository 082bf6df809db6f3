"""Gradient-based refinement of the best points of R runs, pure: as one program, and in the box also step by step.

local/lbfgs.py describes the descent.

The cost is counted in evaluations: 1 for the values at a point and 4 for a gradient there. Reverse-mode derivatives
cost at most about that multiple of the function, for any number of variables (Griewank & Walther, Evaluating
Derivatives (2008), section 4.6).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.problem import Bounds, Shape
from galapax.local import augmented_lagrangian, lbfgs, sqp
from galapax.local.augmented_lagrangian import Interval, LagrangianDescent
from galapax.local.lbfgs import ENDED, Descent
from galapax.local.sqp import SQPState
from galapax.numerics.jaxpr import isolate
from galapax.operators.constraint_handling import minimum_norm_step

if TYPE_CHECKING:
    from galapax.objective.hoist_constants import Constants
    from galapax.objective.traced import Formulas

GRADIENT_COST = 4  # evaluations that a gradient counts for, besides the 1 of the value
STEP_COST = 1 + GRADIENT_COST
PROBES = 3  # evaluations that check a gradient: at x, and on both sides of it
CHECK_DISTANCE = {8: 1e-5, 4: 1e-3}  # of the box: distance of the points that check the gradient, by bytes of the dtype
BINDING_STEPS = 4  # final Newton steps onto the binding constraints
MAX_SQP_STEPS = 100
# sequential quadratic programming, whose matrices are dense, is used for this many variables and equalities; for fewer
# the augmented Lagrangian suffices, and compiling takes half as long
MIN_SQP_VARIABLES, MAX_SQP_VARIABLES = 8, 128
SQP_CORRECTIONS = 2  # second-order corrections of each step
FIRST_CURVATURES = np.array([1.0, 10.0])  # first Hessians of two searches: where one gets stuck, the other may not
BINDING_DISTANCE = 1e-4  # scaled distance within which a constraint with a multiplier counts as binding


class RefinedRuns(NamedTuple):
    """The refined points of R runs."""

    x: Array | np.ndarray  # (R, d)
    value: Array | np.ndarray  # (R,)
    violation: Array | np.ndarray  # (R,), 0 without constraints
    evaluations: Array | np.ndarray  # (R,), 0 for runs that were left alone
    smooth: Array | np.ndarray  # (R,) bool: the gradient agreed with the function
    expected_gain: Array | np.ndarray  # (R,), decrease of the value that the next step would predict


def min_evaluations(shape: Shape) -> int:
    """Return the smallest number of evaluations with which a refinement can improve anything."""
    return _fixed_cost(shape) + 4 * STEP_COST


def _fixed_cost(shape: Shape) -> int:
    """Return the evaluations before the first step and after the last one."""
    count = shape.ineq + shape.eq
    if not count:
        return PROBES * (1 + GRADIENT_COST) + 1
    return 1 + GRADIENT_COST * (1 + count) + 2 * (1 + GRADIENT_COST) + BINDING_STEPS * (1 + GRADIENT_COST * count) + 3


class BoxDescents(NamedTuple):
    """Descents of R runs inside the box, between two evaluations of their trials.

    The first evaluations are at x and on both sides of it: they check the gradient there. Then the descents begin.
    """

    descent: Descent  # of each run
    spent: Array  # (R,) evaluations
    is_active: Array  # (R,) bool
    smooth: Array  # (R,) bool: the gradient agreed with the function
    n_probes: Array  # evaluated so far, of `PROBES`
    probe_values: Array  # (PROBES, R): at x, and on both sides of it
    probe_gradients: Array  # (PROBES, R, d)


def evaluate_gradients(formulas: Formulas, consts: Constants, points: Array, limit: Array) -> tuple[Array, Array]:
    """Return values (R,) and gradients (R, d) at points (R, d), with the same bits in every program."""

    def evaluate(points: Array) -> tuple[Array, Array]:
        with_gradient = jax.value_and_grad(_sum_rows(lambda p: formulas.facts(consts, p)[:, 0]), has_aux=True)
        (_, values), gradients = with_gradient(points)
        return values, gradients

    return isolate(jnp.max(limit) + 1, evaluate, points)


def begin_in_box(x: Array, limit: Array) -> BoxDescents:
    """Create the state before the first evaluation of x (R, d); runs have at most limit (R,) evaluations."""
    runs, is_affordable = x.shape[0], limit >= min_evaluations(Shape())
    return BoxDescents(
        descent=jax.vmap(lbfgs.begin)(x),
        spent=jnp.where(is_affordable, _fixed_cost(Shape()), 0).astype(jnp.int32),
        is_active=is_affordable,
        smooth=jnp.ones(runs, bool),
        n_probes=jnp.int32(0),
        probe_values=jnp.zeros((PROBES, runs), x.dtype),
        probe_gradients=jnp.zeros((PROBES, *x.shape), x.dtype),
    )


def refine_in_box(
    formulas: Formulas, consts: Constants, bounds: Bounds, x: Array, limit: Array, target: Array
) -> BoxDescents:
    """Descend from x (R, d), each with at most limit (R,) evaluations, or until its value is at most `target`.

    Runs with fewer than `min_evaluations` stay as they are.
    """

    def evaluate(points: Array) -> tuple[Array, Array]:
        return evaluate_gradients(formulas, consts, points, limit)

    return _descend_in_box(begin_in_box(x, limit), evaluate, bounds, limit, target, jnp.iinfo(jnp.int32).max)


def step_in_box(
    state: BoxDescents, evaluation: tuple[Array, Array], bounds: Bounds, limit: Array, target: Array, n_steps: Array
) -> BoxDescents:
    """Compute one step of `refine_in_box` after another program evaluated the trials; the bits are the same.

    n_steps: 1, as data, so that XLA compiles the same loop.
    """

    def evaluate(_: Array) -> tuple[Array, Array]:
        return isolate(jnp.max(limit) + 1, lambda *values: values, *evaluation)

    return _descend_in_box(state, evaluate, bounds, limit, target, n_steps)


def _descend_in_box(
    state: BoxDescents,
    evaluate: Callable[[Array], tuple[Array, Array]],
    bounds: Bounds,
    limit: Array,
    target: Array,
    n_steps: ArrayLike,
) -> BoxDescents:
    """Evaluate and continue at most `n_steps` times, until no run is active."""

    def body(carry: tuple[Array, BoxDescents]) -> tuple[Array, BoxDescents]:
        i, state = carry
        return i + 1, _tell_in_box(state, *evaluate(state.descent.trial), bounds, limit, target)

    def goes_on(carry: tuple[Array, BoxDescents]) -> Array:
        i, state = carry
        return (i < n_steps) & jnp.any(state.is_active)

    return lax.while_loop(goes_on, body, (jnp.int32(0), state))[1]


def _tell_in_box(
    state: BoxDescents, values: Array, gradients: Array, bounds: Bounds, limit: Array, target: Array
) -> BoxDescents:
    """Continue with the values and gradients of the trials."""

    def probe(state: BoxDescents, values: Array, gradients: Array) -> tuple[BoxDescents, Array, Array]:
        """Record a probe; return values and gradients at x, too, with which the descents begin after the last one."""
        probe_values = state.probe_values.at[state.n_probes].set(values)
        probe_gradients = state.probe_gradients.at[state.n_probes].set(gradients)
        x, slopes = state.descent.x, probe_gradients[0] * bounds.span
        sides = _points_on_both_sides(x, slopes, bounds)
        smooth, step, slope_change = _compare_sides(sides, probe_values[1:], probe_gradients[1:], slopes, bounds)
        n_probes = state.n_probes + 1
        is_checked = n_probes == PROBES
        descent = jax.tree.map(
            partial(jnp.where, is_checked), jax.vmap(lbfgs.store_pair)(state.descent, step, slope_change), state.descent
        )
        trial = jnp.where(is_checked, x, sides[jnp.minimum(state.n_probes, 1)])
        checked = state._replace(
            descent=descent._replace(trial=trial),
            is_active=state.is_active & (smooth | ~is_checked),
            smooth=smooth | ~is_checked,
            n_probes=n_probes,
            probe_values=probe_values,
            probe_gradients=probe_gradients,
        )
        return checked, probe_values[0], probe_gradients[0]

    was_checked = state.n_probes == PROBES
    state, values, gradients = lax.cond(was_checked, lambda *unchanged: unchanged, probe, state, values, gradients)
    tell = jax.vmap(lambda state, value, gradient: lbfgs.tell(state, value, gradient, bounds, target, 0.0))
    descends = state.is_active & (state.n_probes == PROBES)
    descent = _select_runs(descends, tell(state.descent, values, gradients), state.descent)
    spent = state.spent + jnp.where(state.is_active & was_checked, STEP_COST, 0).astype(jnp.int32)
    is_active = state.is_active & (descent.status != ENDED) & (spent + STEP_COST <= limit)
    return state._replace(descent=descent, spent=spent, is_active=is_active)


def refine_under_constraints(
    formulas: Formulas, consts: Constants, bounds: Bounds, x: Array, limit: Array
) -> RefinedRuns:
    """Refine x (R, d) by sequential quadratic programming, then by the augmented Lagrangian.

    The first makes long steps but satisfies equalities exactly; the second also uses their tolerance. Each run has at
    most limit (R,) evaluations; those with fewer than `min_evaluations` stay as they are.
    """
    limit = jnp.where(limit >= min_evaluations(formulas.shape), limit, 0)
    sqp_spent = jnp.zeros(x.shape[0], jnp.int32)
    if MIN_SQP_VARIABLES <= x.shape[1] + formulas.shape.eq <= MAX_SQP_VARIABLES:
        budget = limit - _fixed_cost(formulas.shape)
        curvatures = jnp.asarray(FIRST_CURVATURES, x.dtype)

        def run_sqp(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            x, sqp_spent = carry
            x, evaluations = _refine_by_sqp(formulas, consts, bounds, x, budget - sqp_spent, curvatures[i])
            return x, sqp_spent + evaluations

        x, sqp_spent = lax.fori_loop(0, FIRST_CURVATURES.size, run_sqp, (x, sqp_spent))
    raw, jacobian = _outputs_and_slopes(formulas, consts, bounds, x)
    size = jnp.sqrt(jnp.sum(jacobian**2, axis=2))
    units = jnp.where((size > 0) & jnp.isfinite(size), size, 1)  # (R, 1 + m)
    interval = jax.vmap(lambda unit: _feasible_interval(formulas, unit))(units[:, 1:])
    slopes, outputs = jacobian / units[..., None], raw / units
    is_free = ~jax.vmap(lambda x, slope: lbfgs.is_at_bound(x, slope, bounds))(x, slopes[:, 0])
    multipliers = jax.vmap(augmented_lagrangian.estimate_multipliers)(
        slopes[:, 0], slopes[:, 1:], outputs[:, 1:], interval, is_free
    )

    def evaluate(points: Array, state: LagrangianDescent) -> tuple[Array, Array, Array]:
        def lagrangian_sum(points: Array) -> tuple[Array, tuple[Array, Array]]:
            outputs = formulas.facts(consts, points) / units
            lagrangian = jax.vmap(augmented_lagrangian.lagrangian_value)
            values = lagrangian(outputs, state.multipliers, state.penalty, interval)
            return jnp.sum(values), (values, outputs[:, 1:])

        (_, (values, constraints)), gradients = jax.value_and_grad(lagrangian_sum, has_aux=True)(points)
        return values, gradients, constraints

    def is_running(state: LagrangianDescent, spent: Array) -> Array:
        return ~state.ended & (spent + STEP_COST <= limit) & smooth

    def body(carry: tuple[LagrangianDescent, Array]) -> tuple[LagrangianDescent, Array]:
        state, spent = carry
        is_active = is_running(state, spent)
        tell = jax.vmap(augmented_lagrangian.tell, in_axes=(0, 0, 0, 0, 0, None))
        new = tell(state, *evaluate(state.descent.trial, state), interval, bounds)
        return _select_runs(is_active, new, state), spent + jnp.where(is_active, STEP_COST, 0).astype(spent.dtype)

    start = jax.vmap(augmented_lagrangian.begin)(x, multipliers)
    weights = jax.vmap(jax.grad(augmented_lagrangian.lagrangian_value))(outputs, multipliers, start.penalty, interval)
    slope = jnp.sum(weights[..., None] * slopes, axis=1)
    sides = _points_on_both_sides(x, slope, bounds)
    # a loop, as it is one copy of the functions to compile
    side_values, side_gradients, _ = lax.map(lambda points: evaluate(points, start), sides)
    smooth, steps, changes = _compare_sides(sides, side_values, side_gradients, slope, bounds)
    start = start._replace(descent=jax.vmap(lbfgs.store_pair)(start.descent, steps, changes))
    spent = sqp_spent + jnp.where(limit > 0, _fixed_cost(formulas.shape), 0).astype(jnp.int32)
    state, spent = lax.while_loop(lambda carry: jnp.any(is_running(*carry)), body, (start, spent))
    end = state.descent.x
    projected = _project_onto_binding(formulas, consts, bounds, end, state.multipliers != 0, units)
    best_x, value, violation = _select_best(formulas, consts, jnp.stack([x, end, projected]))
    if formulas.aims_at_zero and formulas.shape.eq:
        # a point at the edge of the tolerance gains about multiplier times width, which no one asked for
        width = jnp.where(jnp.isfinite(interval.lower), interval.upper - interval.lower, 0)
        gain = units[:, 0] * jnp.sum(jnp.abs(state.multipliers) * width, axis=1)
        exact, noise = formulas(consts, projected), 64 * jnp.finfo(x.dtype).eps * jnp.abs(value)
        assert exact.violation is not None
        is_exact = (exact.violation <= violation) & (exact.fitness <= value + 2 * gain + noise)
        best_x = jnp.where(is_exact[:, None], projected, best_x)
        value = jnp.where(is_exact, exact.fitness, value)
        violation = jnp.where(is_exact, exact.violation, violation)
    return RefinedRuns(best_x, value, violation, spent, smooth, jnp.zeros_like(value))


def _select_best(formulas: Formulas, consts: Constants, points: Array) -> tuple[Array, Array, Array]:
    """Select the best of points (k, R, d) for each run, the earlier one of equals; with its value and violation."""
    evaluations = lax.map(lambda rows: formulas(consts, rows), points)
    assert evaluations.violation is not None
    x, value, violation = points[0], evaluations.fitness[0], evaluations.violation[0]
    for i in range(1, points.shape[0]):
        new_value, new_violation = evaluations.fitness[i], evaluations.violation[i]
        is_better = (new_violation < violation) | ((new_violation == violation) & (new_value < value))
        x, value = jnp.where(is_better[:, None], points[i], x), jnp.where(is_better, new_value, value)
        violation = jnp.where(is_better, new_violation, violation)
    return x, value, violation


def _refine_by_sqp(
    formulas: Formulas, consts: Constants, bounds: Bounds, x: Array, limit: Array, curvature: Array
) -> tuple[Array, Array]:
    """Return x (R, d) after sequential quadratic programming, if that is better, and the evaluations spent (R,)."""
    shape = formulas.shape
    count = 1 + shape.ineq + shape.eq
    order = np.r_[0, 1 + shape.ineq : count, 1 : 1 + shape.ineq]  # equalities first
    step_cost = 1 + GRADIENT_COST * count + (1 + SQP_CORRECTIONS) * len(sqp.SQP_STEP_SHARES)

    def linearise(x: Array) -> tuple[Array, Array]:
        outputs, slopes = _outputs_and_slopes(formulas, consts, bounds, x)
        return outputs[:, order], slopes[:, order]

    raw, slopes = linearise(x)
    size = jnp.sqrt(jnp.sum(slopes**2, axis=2))
    units = jnp.where((size > 0) & jnp.isfinite(size), size, 1)

    def evaluate_trials(trials: Array) -> Array:
        """Return the outputs (R, k, 1 + m) of trials (R, k, d)."""
        points = jnp.swapaxes(bounds.lower + bounds.span * trials, 0, 1)
        outputs = lax.map(lambda rows: formulas.facts(consts, rows)[:, order] / units, points)
        return jnp.swapaxes(outputs, 0, 1)

    def body(carry: tuple[SQPState, Array, Array]) -> tuple[SQPState, Array, Array]:
        old, spent, number = carry
        is_active = is_running(old, spent, number)
        new, trials = jax.vmap(lambda state: sqp.ask(state, shape.eq))(old)
        trial_groups = [(trials, evaluate_trials(trials))]
        for _ in range(SQP_CORRECTIONS):
            trials = jax.vmap(lambda s, t, f: sqp.correct(s, t, f, shape.eq))(new, *trial_groups[-1])
            trial_groups.append((trials, evaluate_trials(trials)))
        trials, outputs = (jnp.concatenate(arrays, axis=1) for arrays in zip(*trial_groups, strict=True))
        x, gain = jax.vmap(lambda s, t, f: sqp.choose_trial(s, t, f, shape.eq))(new, trials, outputs)
        outputs, slopes = linearise(jnp.asarray(bounds.lower) + bounds.span * x)
        new = jax.vmap(sqp.tell)(new, x, gain, outputs / units, slopes / units[..., None])
        return (
            _select_runs(is_active, new, old),
            spent + jnp.where(is_active, step_cost, 0).astype(spent.dtype),
            number + 1,
        )

    def is_running(state: SQPState, spent: Array, number: Array) -> Array:
        return ~jax.vmap(sqp.is_done)(state) & (spent + step_cost <= limit) & (number < MAX_SQP_STEPS)

    begin = jax.vmap(sqp.begin, in_axes=(0, 0, 0, None))
    start = begin((x - bounds.lower) / bounds.span, raw / units, slopes / units[..., None], curvature)
    spent = jnp.where(limit >= step_cost, step_cost, 0).astype(jnp.int32)  # of linearising x, and of the selection
    state, spent, _ = lax.while_loop(lambda carry: jnp.any(is_running(*carry)), body, (start, spent, jnp.int32(0)))
    end = jnp.clip(bounds.lower + bounds.span * state.x, bounds.lower, bounds.upper)
    return _select_best(formulas, consts, jnp.stack([x, end]))[0], spent


Tree = TypeVar("Tree")


def _select_runs(chosen: Array, new: Tree, old: Tree) -> Tree:
    """Take the arrays of `new` for the chosen runs (R,), and those of `old` for the others."""
    selected: Tree = jax.tree.map(lambda a, b: jnp.where(chosen.reshape((-1,) + (1,) * (a.ndim - 1)), a, b), new, old)
    return selected


def _sum_rows(function: Callable[[Array], Array]) -> Callable[[Array], tuple[Array, Array]]:
    """Return the sum over rows: its gradient has the gradient of each row, also for functions of the whole array."""

    def total(points: Array) -> tuple[Array, Array]:
        values = function(points)
        return jnp.sum(values), values

    return total


def _points_on_both_sides(x: Array, slopes: Array, bounds: Bounds) -> Array:
    """Return two points (2, R, d) beside x (R, d), along the slopes; the values there check the gradient."""
    dim, dtype = x.shape[1], x.dtype
    at_bound = jax.vmap(lambda x, slope: lbfgs.is_at_bound(x, slope, bounds))(x, slopes)
    slopes_inside = jnp.where(at_bound, 0, slopes)
    largest = jnp.max(jnp.abs(slopes_inside), axis=1, keepdims=True)
    zigzag = jnp.where(jnp.arange(dim) % 2 == 0, 1.0, -1.0).astype(dtype)
    direction = jnp.where(largest > 0, slopes_inside / jnp.where(largest > 0, largest, 1), zigzag)
    offset = CHECK_DISTANCE[dtype.itemsize] * bounds.span * direction
    return jnp.clip(jnp.stack([x + offset, x - offset]), bounds.lower, bounds.upper)


def _compare_sides(
    sides: Array, values: Array, gradients: Array, slopes: Array, bounds: Bounds
) -> tuple[Array, Array, Array]:
    """Check the slopes between two sides (2, R, d) against the values there; return whether they agree (R,) and a pair.

    The pair for L-BFGS is the step from one side to the other and the change of slope over it, both (R, d). A gradient
    that is zero, wrong or NaN (of a rounded, counted or stopped quantity) is found here.
    """
    step, slope_change = (sides[0] - sides[1]) / bounds.span, (gradients[0] - gradients[1]) * bounds.span
    directional = jnp.sum(gradients * bounds.span * step, axis=2)
    measured, expected = values[0] - values[1], 0.5 * (directional[0] + directional[1])
    noise = 64 * jnp.finfo(values.dtype).eps * jnp.sum(jnp.abs(values), axis=0)
    tolerance = 0.05 * jnp.sum(jnp.abs(directional), axis=0) + noise
    agrees = jnp.abs(measured - expected) <= tolerance  # never for NaN
    return agrees & jnp.all(jnp.isfinite(slopes), axis=1) & jnp.any(slopes != 0, axis=1), step, slope_change


def _outputs_and_slopes(formulas: Formulas, consts: Constants, bounds: Bounds, x: Array) -> tuple[Array, Array]:
    """Compute objective and constraints (R, 1 + m), and their slopes in units of the box (R, 1 + m, d)."""
    outputs, pull_back = jax.vjp(lambda p: formulas.facts(consts, p), x)

    def slopes_of_output(row: Array) -> Array:
        (slopes,) = pull_back(jnp.broadcast_to(row, outputs.shape))
        return slopes

    slopes = jax.vmap(slopes_of_output)(jnp.eye(outputs.shape[1], dtype=x.dtype))
    return outputs, jnp.swapaxes(slopes, 0, 1) * bounds.span


def _feasible_interval(formulas: Formulas, units: Array) -> Interval:
    """Return the feasible ranges of the constraints in these units (m,)."""
    shape = formulas.shape
    open_below = jnp.full(shape.ineq, -jnp.inf, units.dtype)
    within = jnp.broadcast_to(jnp.asarray(formulas.eq_tolerance or 0.0, units.dtype), shape.eq)
    lower = jnp.concatenate([open_below, -within]) / units
    upper = jnp.concatenate([jnp.zeros(shape.ineq, units.dtype), within]) / units
    return Interval(lower, upper)


def _project_onto_binding(
    formulas: Formulas, consts: Constants, bounds: Bounds, x: Array, binding: Array, units: Array
) -> Array:
    """Move x (R, d) onto the constraints that bind (R, m) or are violated, by Newton steps.

    Inequalities are met with a margin of rounding; equalities, too, or exactly where their tolerance is the default.

    A descent leaves them violated by rounding, or by more if it was cut short, and only a point without any violation
    is feasible.
    """
    eps = jnp.finfo(x.dtype).eps

    def newton_step(x: Array, raw: Array, jacobian: Array, binding: Array, units: Array) -> tuple[Array, Array]:
        interval = _feasible_interval(formulas, jnp.ones_like(raw))
        margin = 8 * eps * jnp.sum(jnp.abs(jacobian) * jnp.abs(x) / bounds.span, axis=1)
        margin = jnp.minimum(margin, (interval.upper - interval.lower) / 4)
        lower, upper = interval.lower + margin, interval.upper - margin
        is_near_upper = upper - raw <= raw - lower
        limit = jnp.where(is_near_upper, upper, lower)
        if formulas.aims_at_zero:
            limit = jnp.where(jnp.isfinite(interval.lower), 0, limit)
        is_close = jnp.abs(raw - limit) <= BINDING_DISTANCE * units
        is_outside = (raw > upper) | (raw < lower)
        is_active = is_outside | (binding & is_close)
        is_free = (x > bounds.lower) & (x < bounds.upper)
        rows = jnp.where(is_active[:, None] & is_free, jacobian, 0)
        step = minimum_norm_step(rows, jnp.where(is_active, limit - raw, 0))
        x_new = jnp.clip(x + bounds.span * step, bounds.lower, bounds.upper)
        return jnp.where(jnp.all(jnp.isfinite(step)), x_new, x), binding | is_outside

    def body(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        x, binding = carry
        raw, jacobian = _outputs_and_slopes(formulas, consts, bounds, x)
        return jax.vmap(newton_step)(x, raw[:, 1:], jacobian[:, 1:], binding, units[:, 1:])

    return lax.fori_loop(0, BINDING_STEPS, body, (x, binding))[0]
