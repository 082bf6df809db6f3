"""The best of each run refined by its gradient: R runs as one program, pure. See local/lbfgs.py for how.

What it costs is counted as evaluations: 1 for the values at a point and 4 for a gradient there. Derivatives in reverse
take at most about that many times what the function takes, whatever the number of variables (Griewank & Walther,
Evaluating Derivatives (2008), section 4.6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.core.evaluation import Shape
from galapax.core.problem import Bounds
from galapax.local import augmented_lagrangian, lbfgs, sqp
from galapax.local.augmented_lagrangian import Interval
from galapax.local.lbfgs import ENDED
from galapax.operators.constraint_handling import minimum_norm_step

if TYPE_CHECKING:
    from galapax.objective.traced import Formulas

GRADIENT_COST = 4  # evaluations that a gradient counts for, besides the one of the value
CHECK_DISTANCE = {
    8: 1e-5,
    4: 1e-3,
}  # of the box: how far the points lie that the gradient is checked at, by bytes of a number
BINDING_STEPS = 4  # Newton steps onto the constraints that bind, in the end
MAX_MODEL_STEPS = 100  # steps by quadratic models, at most
MAX_MODEL_VARIABLES = 128  # variables and equalities, up to which there is such a model: it has matrices in full,
MIN_MODEL_VARIABLES = 8  # and from which on: for fewer the rest suffices, and compiling takes half as long
CORRECTIONS = 2
INITIAL_CURVATURES = np.array(
    [1.0, 10.0]
)  # that models begin with, one after the other: where one gets stuck, another may not
BINDING_DISTANCE = (
    1e-4  # in units of the box: a constraint with a multiplier and this close to its limit is one of them
)


class Refined(NamedTuple):
    """What became of R runs."""

    x: Array  # (R, d)
    value: Array  # (R,)
    violation: Array  # (R,), 0 without constraints
    evaluations: Array  # (R,), 0 for those that were not tried
    smooth: Array  # (R,) bool: the gradient agreed with the function


def least_evaluations(shape: Shape) -> int:
    """Below so many evaluations nothing can be gained."""
    return _overhead(shape) + 4 * (1 + GRADIENT_COST)


def _overhead(shape: Shape) -> int:
    """Evaluations before the first step and after the last one."""
    count = shape.ineq + shape.eq
    if not count:
        return 3 * (1 + GRADIENT_COST) + 1
    return 1 + GRADIENT_COST * (1 + count) + 2 * (1 + GRADIENT_COST) + BINDING_STEPS * (1 + GRADIENT_COST * count) + 3


def refine(formulas: Formulas, consts: Any, bounds: Bounds, x: Array, limit: Array, target: Array) -> Refined:
    """Refine x (R, d), each with at most limit (R,) evaluations; those with fewer than can help are left alone.

    Without constraints a run ends once its value is at most `target`.
    """
    work = _constrained if formulas.shape.constrained else _unconstrained
    tried = limit >= least_evaluations(formulas.shape)
    return work(formulas, consts, bounds, x, jnp.where(tried, limit, 0), target)


def _unconstrained(formulas: Formulas, consts: Any, bounds: Bounds, x: Array, limit: Array, target: Array) -> Refined:
    def look(points: Array) -> tuple[Array, Array]:
        pulled = jax.value_and_grad(_sum_rows(lambda p: formulas.facts(consts, p)[:, 0]), has_aux=True)
        (_, values), gradients = pulled(points)
        return values, gradients

    _, gradients = look(x)
    smooth, steps, turns = _check_gradient(look, x, gradients * bounds.span, bounds)
    start = jax.vmap(lbfgs.store_pair)(jax.vmap(lbfgs.begin)(x), steps, turns)

    def step(state: Any) -> Any:
        return jax.vmap(lambda s, v, g: lbfgs.tell(s, v, g, bounds, target, 0.0))(state, *look(state.trial))

    spent = jnp.where(limit > 0, _overhead(formulas.shape), 0).astype(jnp.int32)
    state, spent = _iterate_until_done(step, lambda s: s.status != ENDED, start, spent, limit, smooth)
    out = formulas(consts, state.x)
    return Refined(state.x, out.fitness, jnp.where(out.failed, jnp.inf, 0), spent, smooth)


def _constrained(formulas: Formulas, consts: Any, bounds: Bounds, x: Array, limit: Array, target: Array) -> Refined:
    """First by quadratic models, which come far but hold equalities exactly; then by the augmented Lagrangian, which
    also makes use of what their tolerance allows.
    """
    spent_by_models = jnp.zeros(x.shape[0], jnp.int32)
    if MIN_MODEL_VARIABLES <= x.shape[1] + formulas.shape.eq <= MAX_MODEL_VARIABLES:
        budget = limit - _overhead(formulas.shape)

        def again(i: Any, both: tuple[Array, Array]) -> tuple[Array, Array]:
            x, spent_by_models = both
            x, more = _refine_by_models(
                formulas, consts, bounds, x, budget - spent_by_models, jnp.asarray(INITIAL_CURVATURES, x.dtype)[i]
            )
            return x, spent_by_models + more

        x, spent_by_models = lax.fori_loop(0, INITIAL_CURVATURES.size, again, (x, spent_by_models))
    raw, jacobian = _facts_and_slopes(formulas, consts, bounds, x)
    size = jnp.sqrt(jnp.sum(jacobian**2, axis=2))
    units = jnp.where((size > 0) & jnp.isfinite(size), size, 1)  # (R, 1 + m)
    interval = jax.vmap(lambda unit: _interval(formulas, unit))(units[:, 1:])
    slopes, facts = jacobian / units[..., None], raw / units
    free = ~jax.vmap(lambda x, slope: lbfgs.is_at_bound(x, slope, bounds))(x, slopes[:, 0])
    multipliers = jax.vmap(augmented_lagrangian.first_multipliers)(
        slopes[:, 0], slopes[:, 1:], facts[:, 1:], interval, free
    )

    def look(points: Array, state: Any) -> tuple[Array, Array, Array]:
        def judged(points: Array) -> tuple[Array, tuple[Array, Array]]:
            facts = formulas.facts(consts, points) / units
            values = jax.vmap(augmented_lagrangian.value)(facts, state.multipliers, state.penalty, interval)
            return jnp.sum(values), (values, facts[:, 1:])

        (_, (values, constraints)), gradients = jax.value_and_grad(judged, has_aux=True)(points)
        return values, gradients, constraints

    def step(state: Any) -> Any:
        tell = jax.vmap(augmented_lagrangian.tell, in_axes=(0, 0, 0, 0, 0, None))
        return tell(state, *look(state.descent.trial, state), interval, bounds)

    start = jax.vmap(augmented_lagrangian.begin)(x, multipliers)
    weights = jax.vmap(jax.grad(augmented_lagrangian.value))(facts, multipliers, start.penalty, interval)
    slope = jnp.sum(weights[..., None] * slopes, axis=1)
    smooth, steps, turns = _check_gradient(lambda points: look(points, start)[:2], x, slope, bounds)
    start = start._replace(descent=jax.vmap(lbfgs.store_pair)(start.descent, steps, turns))
    spent = spent_by_models + jnp.where(limit > 0, _overhead(formulas.shape), 0).astype(jnp.int32)
    state, spent = _iterate_until_done(step, lambda s: ~s.ended, start, spent, limit, smooth)
    end = state.descent.x
    onto = _project_onto_binding(formulas, consts, bounds, end, state.multipliers != 0, units)
    best_x, value, violation = _best_of(formulas, consts, jnp.stack([x, end, onto]))
    if formulas.aims_at_zero and formulas.shape.eq:
        # a point at the edge of the tolerance gains about multiplier times width, which no one asked for
        width = jnp.where(jnp.isfinite(interval.lower), interval.upper - interval.lower, 0)
        gain = units[:, 0] * jnp.sum(jnp.abs(state.multipliers) * width, axis=1)
        exact, noise = formulas(consts, onto), 64 * jnp.finfo(x.dtype).eps * jnp.abs(value)
        assert exact.violation is not None
        is_exact = (exact.violation <= violation) & (exact.fitness <= value + 2 * gain + noise)
        best_x = jnp.where(is_exact[:, None], onto, best_x)
        value = jnp.where(is_exact, exact.fitness, value)
        violation = jnp.where(is_exact, exact.violation, violation)
    return Refined(best_x, value, violation, spent, smooth)


def _best_of(formulas: Formulas, consts: Any, points: Array) -> tuple[Array, Array, Array]:
    """Of points (k, R, d) the best of each run, the earlier one of two alike; with its value and violation."""
    each = lax.map(lambda some: formulas(consts, some), points)
    assert each.violation is not None
    x, value, violation = points[0], each.fitness[0], each.violation[0]
    for i in range(1, points.shape[0]):
        new, broken = each.fitness[i], each.violation[i]
        better = (broken < violation) | ((broken == violation) & (new < value))
        x, value = jnp.where(better[:, None], points[i], x), jnp.where(better, new, value)
        violation = jnp.where(better, broken, violation)
    return x, value, violation


def _refine_by_models(
    formulas: Formulas, consts: Any, bounds: Bounds, x: Array, limit: Array, bend: Array
) -> tuple[Array, Array]:
    """x (R, d) after steps by quadratic models, where that is better than it was; and the evaluations (R,) of it."""
    shape = formulas.shape
    count = 1 + shape.ineq + shape.eq
    order = np.r_[0, 1 + shape.ineq : count, 1 : 1 + shape.ineq]  # equalities first
    each = 1 + GRADIENT_COST * count + (1 + CORRECTIONS) * len(sqp.STEP_SHARES)

    def look(x: Array) -> tuple[Array, Array]:
        facts, slopes = _facts_and_slopes(formulas, consts, bounds, x)
        return facts[:, order], slopes[:, order]

    raw, slopes = look(x)
    size = jnp.sqrt(jnp.sum(slopes**2, axis=2))
    units = jnp.where((size > 0) & jnp.isfinite(size), size, 1)

    def facts_at(trials: Array) -> Array:
        """(R, k, 1 + m) of trials (R, k, d)."""
        points = jnp.swapaxes(bounds.lower + bounds.span * trials, 0, 1)
        facts = lax.map(lambda some: formulas.facts(consts, some)[:, order] / units, points)
        return jnp.swapaxes(facts, 0, 1)

    def body(both: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        old, spent, number = both
        active = going(old, spent, number)
        new, trials = jax.vmap(lambda model: sqp.ask(model, shape.eq))(old)
        trial_groups = [(trials, facts_at(trials))]
        for _ in range(CORRECTIONS):
            trials = jax.vmap(lambda m, t, f: sqp.correct(m, t, f, shape.eq))(new, *trial_groups[-1])
            trial_groups.append((trials, facts_at(trials)))
        trials, facts = (jnp.concatenate(arrays, axis=1) for arrays in zip(*trial_groups, strict=True))
        there, gained = jax.vmap(lambda m, t, f: sqp.choose_trial(m, t, f, shape.eq))(new, trials, facts)
        facts, slopes = look(bounds.lower + bounds.span * there)
        new = jax.vmap(sqp.tell)(new, there, gained, facts / units, slopes / units[..., None])
        merged = jax.tree.map(lambda a, b: jnp.where(active.reshape((-1,) + (1,) * (a.ndim - 1)), a, b), new, old)
        return merged, spent + jnp.where(active, each, 0).astype(spent.dtype), number + 1

    def going(model: Any, spent: Array, number: Array) -> Array:
        return ~jax.vmap(sqp.is_done)(model) & (spent + each <= limit) & (number < MAX_MODEL_STEPS)

    begin = jax.vmap(sqp.begin, in_axes=(0, 0, 0, None))
    start = begin((x - bounds.lower) / bounds.span, raw / units, slopes / units[..., None], bend)
    spent = jnp.where(limit >= each, each, 0).astype(jnp.int32)  # the first look, and what judges the answer
    model, spent, _ = lax.while_loop(lambda b: jnp.any(going(*b)), body, (start, spent, jnp.int32(0)))
    end = jnp.clip(bounds.lower + bounds.span * model.x, bounds.lower, bounds.upper)
    return _best_of(formulas, consts, jnp.stack([x, end]))[0], spent


def _sum_rows(function: Callable[[Array], Array]) -> Callable[[Array], tuple[Array, Array]]:
    """The sum over rows, whose gradient has every row's own: it serves functions of one solution and of many alike."""

    def total(points: Array) -> tuple[Array, Array]:
        values = function(points)
        return jnp.sum(values), values

    return total


def _iterate_until_done(
    step: Callable[[Any], Any], goes_on: Callable[[Any], Array], start: Any, spent: Array, limit: Array, smooth: Array
) -> tuple[Any, Array]:
    """Evaluate and tell until every run has ended, or spent its evaluations; and how many each has spent."""
    each = 1 + GRADIENT_COST

    def going(state: Any, spent: Array) -> Array:
        return goes_on(state) & (spent + each <= limit) & smooth

    def body(both: tuple[Any, Array]) -> tuple[Any, Array]:
        state, spent = both
        active = going(state, spent)
        new = step(state)

        def pick(new: Array, old: Array) -> Array:
            return jnp.where(active.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

        return jax.tree.map(pick, new, state), spent + jnp.where(active, each, 0).astype(spent.dtype)

    state, spent = lax.while_loop(lambda both: jnp.any(going(*both)), body, (start, spent))
    return state, spent


def _check_gradient(
    look: Callable[[Array], tuple[Array, Array]], x: Array, slopes: Array, bounds: Bounds
) -> tuple[Array, Array, Array]:
    """Whether the slopes at x (R, d) agree with the values on both sides of it, (R,); and the step from one side to the
    other with its turn (R, d), a first pair for the quasi-Newton method.

    A gradient that is zero, wrong or not a number (of a rounded, counted or stopped quantity) is found out here.
    """
    dim, kind = x.shape[1], x.dtype
    at_bound = jax.vmap(lambda x, slope: lbfgs.is_at_bound(x, slope, bounds))(x, slopes)
    slopes_inside = jnp.where(at_bound, 0, slopes)
    largest = jnp.max(jnp.abs(slopes_inside), axis=1, keepdims=True)
    zigzag = jnp.where(jnp.arange(dim) % 2 == 0, 1.0, -1.0).astype(kind)
    direction = jnp.where(largest > 0, slopes_inside / jnp.where(largest > 0, largest, 1), zigzag)
    offset = CHECK_DISTANCE[kind.itemsize] * bounds.span * direction
    sides = jnp.clip(jnp.stack([x + offset, x - offset]), bounds.lower, bounds.upper)
    values, gradients = lax.map(look, sides)  # a loop, as it is one copy of the functions to compile
    step, gradient_change = (sides[0] - sides[1]) / bounds.span, (gradients[0] - gradients[1]) * bounds.span
    along = jnp.sum(gradients * bounds.span * step, axis=2)
    measured, expected = values[0] - values[1], 0.5 * (along[0] + along[1])
    noise = 64 * jnp.finfo(kind).eps * jnp.sum(jnp.abs(values), axis=0)
    tolerance = 0.05 * jnp.sum(jnp.abs(along), axis=0) + noise
    agrees = jnp.abs(measured - expected) <= tolerance  # never for NaN
    return agrees & jnp.all(jnp.isfinite(slopes), axis=1) & jnp.any(slopes != 0, axis=1), step, gradient_change


def _facts_and_slopes(formulas: Formulas, consts: Any, bounds: Bounds, x: Array) -> tuple[Array, Array]:
    """Objective and constraints (R, 1 + m), and their slopes in units of the box (R, 1 + m, d)."""
    facts, pull = jax.vjp(lambda p: formulas.facts(consts, p), x)

    def one(row: Array) -> Array:
        (slopes,) = pull(jnp.broadcast_to(row, facts.shape))
        return slopes

    slopes = jax.vmap(one)(jnp.eye(facts.shape[1], dtype=x.dtype))
    return facts, jnp.swapaxes(slopes, 0, 1) * bounds.span


def _interval(formulas: Formulas, units: Array) -> Interval:
    """Where the constraints are to be, in these units (m,)."""
    shape = formulas.shape
    open_below = jnp.full(shape.ineq, -jnp.inf, units.dtype)
    within = jnp.broadcast_to(jnp.asarray(formulas.eq_tolerance or 0.0, units.dtype), shape.eq)
    lower = jnp.concatenate([open_below, -within]) / units
    upper = jnp.concatenate([jnp.zeros(shape.ineq, units.dtype), within]) / units
    return Interval(lower, upper)


def _project_onto_binding(
    formulas: Formulas, consts: Any, bounds: Bounds, x: Array, binding: Array, units: Array
) -> Array:
    """Move x (R, d) onto the constraints that bind (R, m) or are violated, by Newton steps.

    Inequalities are met with a margin of rounding; equalities, too, or exactly where their tolerance is the default.

    A descent leaves them violated by rounding, and by more where it was cut short; feasible is what violates nothing.
    """
    eps = jnp.finfo(x.dtype).eps

    def one(x: Array, raw: Array, jacobian: Array, binding: Array, units: Array) -> tuple[Array, Array]:
        interval = _interval(formulas, jnp.ones_like(raw))
        hair = 8 * eps * jnp.sum(jnp.abs(jacobian) * jnp.abs(x) / bounds.span, axis=1)
        hair = jnp.minimum(hair, (interval.upper - interval.lower) / 4)
        lower, upper = interval.lower + hair, interval.upper - hair
        near_top = upper - raw <= raw - lower
        edge = jnp.where(near_top, upper, lower)
        if formulas.aims_at_zero:
            edge = jnp.where(jnp.isfinite(interval.lower), 0, edge)
        close = jnp.abs(raw - edge) <= BINDING_DISTANCE * units
        outside = (raw > upper) | (raw < lower)
        is_active = outside | (binding & close)
        free = (x > bounds.lower) & (x < bounds.upper)
        rows = jnp.where(is_active[:, None] & free, jacobian, 0)
        step = minimum_norm_step(rows, jnp.where(is_active, edge - raw, 0))
        x_new = jnp.clip(x + bounds.span * step, bounds.lower, bounds.upper)
        return jnp.where(jnp.all(jnp.isfinite(step)), x_new, x), binding | outside

    def body(_: Any, both: tuple[Array, Array]) -> tuple[Array, Array]:
        x, binding = both
        raw, jacobian = _facts_and_slopes(formulas, consts, bounds, x)
        return jax.vmap(one)(x, raw[:, 1:], jacobian[:, 1:], binding, units[:, 1:])

    return lax.fori_loop(0, BINDING_STEPS, body, (x, binding))[0]
