"""Sequential quadratic programming with dense matrices, one step at a time (ask, correct, choose_trial, tell).

Each step minimises a quadratic model of the Lagrangian subject to the linearised constraints, inside the box; the merit
function, objective plus weighted violation, decides how much of the step is taken. Powell (1978), Lecture Notes in
Mathematics 630:144-157, doi:10.1007/BFb0067703, for the damped BFGS update; Nocedal & Wright, Numerical Optimization
(2006), chapters 16 (the interior-point method for the quadratic program) and 18. Where many equalities bind, as in a
flow sheet, it converges in some twenty steps, where an augmented Lagrangian needs far more.

The caller scales objective and constraints so that their slopes are about 1; x is in units of the box: 0 to 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.operators.constraint_handling import minimum_norm_step

INTERIOR_POINT_STEPS = 30  # each solves a linear system of n + q unknowns, with q equalities
EQUALITY_SLACK = 1e-9  # regularises equalities that contradict each other
SQP_STEP_SHARES = (1.0, 0.5, 0.2, 0.05, 0.01, 1e-3)  # shares of a step that are tried, all at once
MAX_IDLE_STEPS = 3  # steps in a row without a gain
MIN_MERIT_GAIN = 1e-12  # of the merit


class SQPState(NamedTuple):
    """State of one search: the point, its linearisation and the quasi-Newton Hessian."""

    x: Array  # (n,)
    outputs: Array  # (1 + m,) objective and constraints at x, equalities c = 0 before inequalities c <= 0
    slopes: Array  # (1 + m, n)
    hessian: Array  # (n, n) of the Lagrangian, approximated
    multipliers: Array  # (m,)
    weight: Array  # of violations in the merit function
    n_idle: Array  # steps in a row without a gain


def begin(x: Array, outputs: Array, slopes: Array, curvature: ArrayLike = 1.0) -> SQPState:
    """Create the state at x. curvature: the diagonal of the first Hessian."""
    zero, hessian = jnp.zeros((), x.dtype), jnp.asarray(curvature) * jnp.eye(x.shape[0], dtype=x.dtype)
    return SQPState(x, outputs, slopes, hessian, jnp.zeros_like(outputs[1:]), zero + 1, zero)


def _violation(constraints: Array, n_equalities: int) -> Array:
    return jnp.concatenate([jnp.abs(constraints[:n_equalities]), jnp.maximum(constraints[n_equalities:], 0)])


def ask(state: SQPState, n_equalities: int) -> tuple[SQPState, Array]:
    """Solve the quadratic program; return the state with its multipliers, and the trials (k, n) along the step."""
    step, multipliers = _solve_quadratic_program(state, n_equalities)
    is_finite = jnp.all(jnp.isfinite(step)) & jnp.all(jnp.isfinite(multipliers))
    step, multipliers = jnp.where(is_finite, step, 0), jnp.where(is_finite, multipliers, state.multipliers)
    largest = jnp.max(jnp.abs(multipliers), initial=0.0)
    weight = jnp.maximum(1.2 * largest, 0.5 * (state.weight + largest))
    trials = jnp.clip(state.x + jnp.asarray(SQP_STEP_SHARES, step.dtype)[:, None] * step, 0, 1)
    return state._replace(multipliers=multipliers, weight=weight), trials


def correct(state: SQPState, trials: Array, outputs: Array, n_equalities: int) -> Array:
    """Apply the second-order correction: move each trial back onto the constraints, linearised at x.

    A long step along curved constraints leaves them, and would be rejected although its direction is good.
    """
    rows = state.slopes[1:]

    def correct_one(trial: Array, constraints: Array) -> Array:
        violated = constraints.at[n_equalities:].set(jnp.maximum(constraints[n_equalities:], 0))
        is_active = (jnp.arange(rows.shape[0]) < n_equalities) | (violated > 0)
        is_free = (trial > 0) & (trial < 1)
        step = minimum_norm_step(jnp.where(is_active[:, None] & is_free, rows, 0), -violated)
        return jnp.clip(trial + jnp.where(jnp.all(jnp.isfinite(step)), step, 0), 0, 1)

    return jax.vmap(correct_one)(trials, outputs[:, 1:])


def choose_trial(state: SQPState, trials: Array, outputs: Array, n_equalities: int) -> tuple[Array, Array]:
    """Return the trial with the best merit, by its outputs (k, 1 + m), or x if none is better; and the gain."""
    merit = jax.vmap(lambda row: row[0] + state.weight * jnp.sum(_violation(row[1:], n_equalities)))
    merit_at_x, merits = merit(state.outputs[None])[0], merit(outputs)
    merits = jnp.where(jnp.isfinite(merits), merits, jnp.inf)
    best = jnp.argmin(merits)
    gain = merit_at_x - merits[best]
    return jnp.where(gain > 0, trials[best], state.x), gain


def tell(state: SQPState, x: Array, gain: Array, outputs: Array, slopes: Array) -> SQPState:
    """Move to x, with its outputs and slopes, and update the Hessian by damped BFGS."""
    step, gradient = x - state.x, _lagrangian_gradient(state.slopes, state.multipliers)
    change = _lagrangian_gradient(slopes, state.multipliers) - gradient
    hessian_step = state.hessian @ step
    curvature, modelled = step @ change, step @ hessian_step
    damping = jnp.where(
        curvature < 0.2 * modelled, 0.8 * modelled / jnp.where(modelled > curvature, modelled - curvature, 1), 1
    )
    change = damping * change + (1 - damping) * hessian_step
    curvature = step @ change
    is_usable = (modelled > 0) & (curvature > 0) & jnp.all(jnp.isfinite(change))
    update = jnp.outer(change, change) / jnp.where(is_usable, curvature, 1)
    update = update - jnp.outer(hessian_step, hessian_step) / jnp.where(is_usable, modelled, 1)
    scale = jnp.maximum(1, jnp.abs(outputs[0]))
    n_idle = jnp.where(gain > MIN_MERIT_GAIN * scale, 0, state.n_idle + 1)
    # a step that failed means that the Hessian is wrong: reset it
    reset = jnp.where(gain > 0, state.hessian, jnp.eye(x.shape[0]))
    hessian = jnp.where(is_usable, state.hessian + update, reset)
    return state._replace(x=x, outputs=outputs, slopes=slopes, hessian=hessian, n_idle=n_idle)


def is_done(state: SQPState) -> Array:
    """Whether steps no longer help, or the outputs are not finite."""
    return (state.n_idle >= MAX_IDLE_STEPS) | ~jnp.all(jnp.isfinite(state.outputs))


def _lagrangian_gradient(slopes: Array, multipliers: Array) -> Array:
    return slopes[0] + multipliers @ slopes[1:]


def _solve_quadratic_program(state: SQPState, n_equalities: int) -> tuple[Array, Array]:
    """Solve the quadratic program by a primal-dual interior-point method: the step (n,) and the multipliers (m,)."""
    n, dtype = state.x.shape[0], state.x.dtype
    equality_rows, equality_targets = state.slopes[1 : 1 + n_equalities], -state.outputs[1 : 1 + n_equalities]
    eye = jnp.eye(n, dtype=dtype)
    rows = jnp.concatenate([state.slopes[1 + n_equalities :], eye, -eye])  # inequalities and the box
    limits = jnp.concatenate([-state.outputs[1 + n_equalities :], 1 - state.x, state.x])

    def interior_point_step(_: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        step, equality_duals, slack, duals = carry
        mean = slack @ duals / slack.shape[0]
        residual = rows @ step + slack - limits
        dual_change = 0.1 * mean / slack - duals + duals * residual / slack
        gradient = (
            state.hessian @ step + state.slopes[0] + equality_duals @ equality_rows + (duals + dual_change) @ rows
        )
        matrix = state.hessian + (rows.T * (duals / slack)) @ rows + 1e-12 * eye
        equality_block = -EQUALITY_SLACK * jnp.eye(n_equalities, dtype=dtype)
        system = jnp.block([[matrix, equality_rows.T], [equality_rows, equality_block]])
        right_side = jnp.concatenate([-gradient, equality_targets - equality_rows @ step])
        move = jnp.linalg.solve(system, right_side)
        row_change = rows @ move[:n]
        slack_change, dual_change = -residual - row_change, dual_change + duals / slack * row_change
        limit = jnp.minimum(_largest_positive_step(slack, slack_change), _largest_positive_step(duals, dual_change))
        share = jnp.where(jnp.all(jnp.isfinite(move)), jnp.minimum(0.99 * limit, 1), 0)
        move, slack_change, dual_change = (jnp.where(share > 0, a, 0) for a in (move, slack_change, dual_change))
        return (
            step + share * move[:n],
            equality_duals + share * move[n:],
            slack + share * slack_change,
            duals + share * dual_change,
        )

    start = (
        jnp.zeros(n, dtype),
        jnp.zeros(n_equalities, dtype),
        jnp.maximum(limits, 1e-2),
        jnp.full(len(rows), 0.1, dtype),
    )
    step, equality_duals, _, duals = lax.fori_loop(0, INTERIOR_POINT_STEPS, interior_point_step, start)
    return step, jnp.concatenate([equality_duals, duals[: state.outputs.shape[0] - 1 - n_equalities]])


def _largest_positive_step(values: Array, change: Array) -> Array:
    """Return the share of a change after which the first of the values reaches zero."""
    return jnp.min(jnp.where(change < 0, -values / jnp.where(change < 0, change, -1), jnp.inf))
