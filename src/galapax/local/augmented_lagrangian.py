"""Descent under constraints: L-BFGS on the augmented Lagrangian, with updates of multipliers and penalty.

Every constraint is an interval, lower <= c <= upper: c <= 0 for an inequality, |c| <= tolerance for an equality, as
feasibility is defined. With multipliers m and penalty r the function is f + r sum(e^2), where e is how far
c + m / (2 r) lies outside its interval; after each descent the multipliers become 2 r e. For inequalities this is, up
to a constant, `augmented_lagrangian` of operators/constraint_handling.py. Nocedal & Wright, Numerical Optimization
(2006), chapter 17.

The caller scales objective and constraints so that their slopes are about 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from galapax.core.problem import Bounds
from galapax.local import lbfgs
from galapax.local.lbfgs import ENDED, Descent

MAX_DESCENTS = 25
MAX_EVALUATIONS_PER_DESCENT = 200
FIRST_PENALTY, MAX_LAGRANGIAN_PENALTY = 10.0, 1e7  # beyond it rounding hides the objective
CONSTRAINT_TOLERANCE = 1e-12  # scaled distance of the constraints from where they belong
FIRST_DESCENT_TOLERANCE, LAST_DESCENT_TOLERANCE = 1e-2, 1e-10  # slopes at which the first and the last descent end
NEAR_BINDING_DISTANCE = 0.01  # constraints further than about this from their limit start with small multipliers


class Interval(NamedTuple):
    """Feasible ranges of the constraints, each (m,)."""

    lower: Array
    upper: Array


class LagrangianDescent(NamedTuple):
    """A descent in x, with the multipliers and the penalty that the descents before it led to."""

    descent: Descent
    multipliers: Array  # (m,)
    penalty: Array
    constraints: Array  # (m,) at the descent's x
    gap: Array  # how far the constraints were from where they belong after the last descent
    tolerance: Array  # slope at which this descent ends
    n_trials: Array  # of this descent
    n_descents: Array
    ended: Array  # bool


def begin(x: Array, multipliers: Array) -> LagrangianDescent:
    """Create the state before the first evaluation."""
    zero, count = jnp.zeros((), x.dtype), jnp.int32(0)
    return LagrangianDescent(
        descent=lbfgs.begin(x),
        multipliers=multipliers,
        penalty=zero + FIRST_PENALTY,
        constraints=jnp.zeros_like(multipliers),
        gap=zero + jnp.inf,
        tolerance=zero + FIRST_DESCENT_TOLERANCE,
        n_trials=count,
        n_descents=count,
        ended=jnp.zeros((), bool),
    )


def lagrangian_value(outputs: Array, multipliers: Array, penalty: ArrayLike, interval: Interval) -> Array:
    """Compute the augmented Lagrangian from outputs (1 + m,), the objective and the constraints."""
    return outputs[0] + penalty * jnp.sum(_excess(outputs[1:], multipliers, penalty, interval) ** 2)


def _excess(constraints: Array, multipliers: Array, penalty: ArrayLike, interval: Interval) -> Array:
    shifted = constraints + multipliers / (2 * penalty)
    return shifted - jnp.clip(shifted, interval.lower, interval.upper)


def tell(
    state: LagrangianDescent, value: Array, gradient: Array, constraints: Array, interval: Interval, bounds: Bounds
) -> LagrangianDescent:
    """Advance by the evaluation of the trial; when a descent ends, update the multipliers and begin another one."""
    descent = lbfgs.tell(state.descent, value, gradient, bounds, -jnp.inf, state.tolerance)
    has_moved = jnp.any(descent.x != state.descent.x) | (state.descent.status == lbfgs.NOT_STARTED)
    current = jnp.where(has_moved, constraints, state.constraints)
    state = state._replace(descent=descent, constraints=current, n_trials=state.n_trials + 1)
    has_ended = (descent.status == ENDED) | (state.n_trials >= MAX_EVALUATIONS_PER_DESCENT)
    following = _update_multipliers(state, interval)
    return jax.tree.map(lambda after, now: jnp.where(has_ended, after, now), following, state)


def _update_multipliers(state: LagrangianDescent, interval: Interval) -> LagrangianDescent:
    """Update multipliers, penalty and tolerance between two descents."""
    excess = _excess(state.constraints, state.multipliers, state.penalty, interval)
    gap = jnp.max(jnp.abs(excess - state.multipliers / (2 * state.penalty)))
    is_slow = gap > 0.25 * state.gap
    penalty = jnp.where(is_slow, jnp.minimum(10 * state.penalty, MAX_LAGRANGIAN_PENALTY), state.penalty)
    n_descents = state.n_descents + 1
    least = jnp.maximum(LAST_DESCENT_TOLERANCE, jnp.finfo(gap.dtype).eps * state.penalty)
    has_converged = (gap <= CONSTRAINT_TOLERANCE) & (state.tolerance <= 10 * least)
    return state._replace(
        descent=lbfgs.clear_pairs(state.descent),
        multipliers=2 * state.penalty * excess,
        penalty=penalty,
        gap=gap,
        tolerance=jnp.maximum(0.1 * state.tolerance, least),
        n_trials=jnp.zeros_like(state.n_trials),
        n_descents=n_descents,
        ended=has_converged | (n_descents >= MAX_DESCENTS) | ~jnp.isfinite(gap),
    )


def estimate_multipliers(slope: Array, jacobian: Array, constraints: Array, interval: Interval, free: Array) -> Array:
    """Estimate first multipliers (m,): least squares on the objective's slope (d,), by constraints close to binding.

    jacobian (m, d). free (d,): the variables that are not held at a bound.
    """
    count = constraints.shape[0]
    rows = jnp.where(free, jacobian, 0)
    excess = jnp.maximum(jnp.maximum(interval.lower - constraints, constraints - interval.upper), 0)
    inner = jnp.minimum(interval.upper - constraints, constraints - interval.lower)
    distance = jnp.maximum(jnp.where(jnp.isfinite(inner), inner, interval.upper - constraints), 0)
    damping = jnp.where(excess > 0, 0, (distance / NEAR_BINDING_DISTANCE) ** 2)
    matrix = rows @ rows.T + jnp.diag(damping + 1e-9)
    estimate = -jnp.linalg.solve(matrix, rows @ jnp.where(free, slope, 0)) if count else jnp.zeros(0, slope.dtype)
    is_near_upper = interval.upper - constraints <= constraints - interval.lower
    signed = jnp.where(is_near_upper, jnp.maximum(estimate, 0), jnp.minimum(estimate, 0))
    return jnp.where(jnp.isfinite(signed), signed, 0)
