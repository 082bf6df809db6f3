"""L-BFGS inside a box, one evaluation with its gradient at a time (ask and tell).

L-BFGS: Liu & Nocedal (1989), Mathematical Programming 45:503-528, doi:10.1007/BF01589116, on the variables that are not
held at a bound, with a line search along the projected path: Bertsekas (1982), SIAM J. Control Optim. 20(2):221-246,
doi:10.1137/0320018. Differs from both: the caller evaluates `trial` and passes value and gradient to `tell`, so that
many descents advance together, whoever evaluates; a step after which the function still falls steeply is accepted, and
the next one is longer.

Steps and slopes are in units of the box, so that a variable in metres and one in millimetres weigh the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.problem import Bounds

MAX_STORED_PAIRS_LBFGS = 10  # pairs (s, y) of steps and changes of slope
MAX_LINE_SEARCH_POINTS = 20
MAX_LOST_STEPS = 3  # steps in a row whose length or gain is within rounding
MIN_STEP_SHARE = {8: 1e-11, 4: 1e-6}  # of the box: shorter steps count as lost, by bytes of the dtype
SUFFICIENT_DECREASE = 1e-4  # c_1 of Armijo's condition, as a share of the predicted decrease
CURVATURE_CONDITION = 0.9  # c_2 of Wolfe's condition, as a share of the slope
FIRST_STEP_SHARE = 1e-2  # of the box: length of the first step, when no curvature is known

NOT_STARTED, DESCENDING, ENDED = 0, 1, 2  # values of `status`


class Descent(NamedTuple):
    """State of one descent between two evaluations."""

    x: Array  # (d,) the best point so far
    value: Array
    slope: Array  # (d,) partial derivatives at x, in units of the box
    trial: Array  # (d,) to be evaluated next
    path: Array  # (d,) direction of this line search
    step_size: Array  # of the trial along it
    length: Array  # largest component of the last accepted step
    steps: Array  # (MAX_STORED_PAIRS_LBFGS, d) s of the pairs, newest first
    slope_changes: Array  # (MAX_STORED_PAIRS_LBFGS, d) y of the pairs; zeros where there is none
    n_trials: Array  # of this line search
    n_lost_steps: Array  # in a row
    status: Array


def begin(x: Array) -> Descent:
    """Create the state before the first evaluation; x (d,) is the first trial."""
    zero, zeros = jnp.zeros((), x.dtype), jnp.zeros(x.shape, x.dtype)
    pairs, count = jnp.zeros((MAX_STORED_PAIRS_LBFGS, *x.shape), x.dtype), jnp.int32(0)
    return Descent(
        x=x,
        value=zero + jnp.inf,
        slope=zeros,
        trial=x,
        path=zeros,
        step_size=zero + 1,
        length=zero + FIRST_STEP_SHARE,
        steps=pairs,
        slope_changes=pairs,
        n_trials=count,
        n_lost_steps=count,
        status=count + NOT_STARTED,
    )


def tell(
    state: Descent, value: Array, gradient: Array, bounds: Bounds, target: ArrayLike, tolerance: ArrayLike
) -> Descent:
    """Accept or reject the trial, and choose the next one. The descent must not have ended.

    gradient: (d,), not scaled. The descent ends at a value of `target`, when no slope towards the inside of the box is
    larger than `tolerance`, and when steps or gains are within rounding.
    """
    slope, is_first, eps = gradient * bounds.span, state.status == NOT_STARTED, jnp.finfo(value.dtype).eps
    step = (state.trial - state.x) / bounds.span
    length, predicted = jnp.max(jnp.abs(step)), jnp.sum(state.slope * step)
    is_finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(slope))
    # a decrease that rounding hides is rejected: the descent would wander
    decreases = (value <= state.value + SUFFICIENT_DECREASE * predicted) & (value < state.value)
    is_accepted = is_finite & (is_first | decreases)
    # a failed line search is followed by steepest descent, and when that fails, too, by the end
    has_failed = ~is_accepted & ((state.n_trials + 1 >= MAX_LINE_SEARCH_POINTS) | (length <= eps))
    is_lost = (state.value - value <= 4 * eps * jnp.abs(value)) | (length <= MIN_STEP_SHARE[value.dtype.itemsize])
    updated = store_pair(state, step, slope - state.slope, is_accepted & ~is_first)
    updated = updated._replace(
        x=jnp.where(is_accepted, state.trial, state.x),
        value=jnp.where(is_accepted, value, state.value),
        slope=jnp.where(is_accepted, slope, state.slope),
        steps=jnp.where(has_failed, 0, updated.steps),
        slope_changes=jnp.where(has_failed, 0, updated.slope_changes),
        length=jnp.where(is_accepted & ~is_first, length, state.length),
        n_lost_steps=jnp.where(
            is_accepted, jnp.where(is_first | ~is_lost, 0, state.n_lost_steps + 1), state.n_lost_steps
        ),
    )
    starts_search = is_accepted | has_failed
    path = jnp.where(starts_search, quasi_newton_direction(updated, bounds), state.path)
    step_size = jnp.where(
        starts_search,
        _first_step_size(state, slope, bounds, is_accepted & ~is_first),
        _shorten_step(state, value, predicted),
    )
    largest_slope = jnp.max(jnp.abs(jnp.where(is_at_bound(updated.x, updated.slope, bounds), 0, updated.slope)))
    is_flat = -jnp.sum(path * updated.slope) <= 0.25 * eps * jnp.abs(updated.value)
    is_stuck = ~is_accepted & (is_first | (has_failed & ~jnp.any(state.steps)))
    has_ended = (updated.value <= target) | (largest_slope <= tolerance) | is_flat | is_stuck
    has_ended |= updated.n_lost_steps >= MAX_LOST_STEPS
    return updated._replace(
        trial=jnp.clip(updated.x + step_size * path * bounds.span, bounds.lower, bounds.upper),
        path=path,
        step_size=step_size,
        n_trials=jnp.where(starts_search, 0, state.n_trials + 1),
        status=jnp.where(has_ended, ENDED, DESCENDING).astype(state.status.dtype),
    )


def _first_step_size(state: Descent, slope: Array, bounds: Bounds, is_accepted: Array) -> Array:
    """Return the first step size of a line search: twice the last one if the function still fell steeply there."""
    is_inside = (state.trial > bounds.lower) & (state.trial < bounds.upper)
    before, after = (jnp.sum(jnp.where(is_inside, side * state.path, 0)) for side in (state.slope, slope))
    return jnp.where(is_accepted & (after < CURVATURE_CONDITION * before), 2 * state.step_size, 1).astype(
        state.step_size.dtype
    )


def _shorten_step(state: Descent, value: Array, predicted: Array) -> Array:
    """Return a smaller step size: the minimum of the parabola through value, slope and the trial's value."""
    excess = value - state.value - predicted
    share = jnp.where(jnp.isfinite(excess) & (excess > 0), -predicted / (2 * excess), 0.1)
    return state.step_size * jnp.clip(share, 0.1, 0.5)


def is_at_bound(x: Array, slope: Array, bounds: Bounds) -> Array:
    """Whether each variable (d,) is at a bound and descent would leave the box there."""
    return ((x <= bounds.lower) & (slope >= 0)) | ((x >= bounds.upper) & (slope <= 0))


def store_pair(state: Descent, step: Array, slope_change: Array, is_usable: ArrayLike = True) -> Descent:
    """Add a pair (s, y), both (d,), if the function has positive curvature along the step."""
    curvature = jnp.sum(step * slope_change)
    threshold = jnp.finfo(step.dtype).eps * jnp.sum(slope_change * slope_change)
    is_usable = is_usable & (curvature > threshold) & jnp.isfinite(curvature)
    steps, slope_changes = (
        jnp.where(is_usable, jnp.concatenate([new[None], old[:-1]]), old)
        for new, old in ((step, state.steps), (slope_change, state.slope_changes))
    )
    return state._replace(steps=steps, slope_changes=slope_changes)


def clear_pairs(state: Descent) -> Descent:
    """Restart at x without pairs, for a function that has changed."""
    zeros, zero = jnp.zeros_like(state.steps), jnp.zeros_like(state.n_trials)
    return state._replace(
        trial=state.x, steps=zeros, slope_changes=zeros, n_trials=zero, n_lost_steps=zero, status=zero + NOT_STARTED
    )


def quasi_newton_direction(state: Descent, bounds: Bounds) -> Array:
    """Compute the descent direction (d,) by the two-loop recursion, over the variables that are free to move."""
    is_free = ~is_at_bound(state.x, state.slope, bounds)
    eps = jnp.finfo(state.x.dtype).eps
    slope = jnp.where(is_free, state.slope, 0)
    steps, changes = jnp.where(is_free, state.steps, 0), jnp.where(is_free, state.slope_changes, 0)
    curvature, size = jnp.sum(steps * changes, axis=1), jnp.sum(changes * changes, axis=1)
    is_usable = curvature > eps * size
    inverse = jnp.where(is_usable, 1 / jnp.where(is_usable, curvature, 1), 0)  # rho

    # loops, because they compile many times faster than the same unrolled
    def first_loop(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        vector, alphas = carry
        alpha = inverse[i] * jnp.sum(steps[i] * vector)
        return vector - alpha * changes[i], alphas.at[i].set(alpha)

    vector, alphas = lax.fori_loop(
        0, MAX_STORED_PAIRS_LBFGS, first_loop, (slope, jnp.zeros(MAX_STORED_PAIRS_LBFGS, slope.dtype))
    )
    largest, newest = jnp.max(jnp.abs(slope)), jnp.argmax(is_usable)
    # without pairs: a step as long as the last one
    steepest_scale = jnp.maximum(state.length, eps) / jnp.where(largest > 0, largest, 1)
    newest_scale = curvature[newest] / jnp.where(is_usable[newest], size[newest], 1)
    vector = vector * jnp.where(jnp.any(is_usable), newest_scale, steepest_scale)

    def second_loop(j: Array, vector: Array) -> Array:
        i = MAX_STORED_PAIRS_LBFGS - 1 - j
        return vector + steps[i] * (alphas[i] - inverse[i] * jnp.sum(changes[i] * vector))

    vector = lax.fori_loop(0, MAX_STORED_PAIRS_LBFGS, second_loop, vector)
    descends = jnp.sum(vector * slope) > eps * jnp.sqrt(jnp.sum(vector * vector) * jnp.sum(slope * slope))
    return -jnp.where(descends & jnp.all(jnp.isfinite(vector)), vector, steepest_scale * slope)


def descend(
    value_and_gradient: Callable[[Array], tuple[Array, Array]], x: Array, bounds: Bounds, n_evaluations: int
) -> tuple[Array, Array]:
    """Minimise a function from x (d,) with at most so many evaluations; return the best point and its value."""

    def proceeds(carry: tuple[Array, Descent]) -> Array:
        return (carry[0] < n_evaluations) & (carry[1].status != ENDED)

    def evaluate(carry: tuple[Array, Descent]) -> tuple[Array, Descent]:
        value, gradient = value_and_gradient(carry[1].trial)
        return carry[0] + 1, tell(carry[1], value, gradient, bounds, -jnp.inf, 0.0)

    state = lax.while_loop(proceeds, evaluate, (jnp.int32(0), begin(x)))[1]
    return state.x, state.value
