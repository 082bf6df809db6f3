"""Descent under constraints: a quasi-Newton method on the augmented Lagrangian, whose multipliers and penalty follow.

Every constraint is an interval, lower <= c <= upper: c <= 0 for an inequality, |c| <= tolerance for an equality, as
feasibility is judged. With multipliers m and penalty r it adds r e^2 to the objective, e being how far c + m / (2 r)
lies outside its interval; after each descent the multipliers are 2 r e. For inequalities this is, but for a constant,
`augmented_lagrangian` of constraints.py. Nocedal & Wright, Numerical Optimization (2006), chapter 17.

The caller hands over objective and constraints in units in which their slopes are about 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.problem import Bounds
from galapax.local import lbfgs
from galapax.local.lbfgs import ENDED, Descent

MAX_DESCENTS = 25  # descents, at most
MAX_DESCENT_EVALUATIONS = 200  # evaluations of one descent, at most
FIRST_PENALTY, MAX_LAGRANGIAN_PENALTY = 10.0, 1e7  # beyond it rounding hides the objective
CONSTRAINT_TOLERANCE = 1e-12  # how far constraints, in their units, may be from where they are to be
FIRST_DESCENT_TOLERANCE, LAST_DESCENT_TOLERANCE = 1e-2, 1e-10  # slopes at which the first descent ends, and the last
BINDING_DISTANCE = 0.01  # constraints further than about this from binding get small multipliers at first


class Interval(NamedTuple):
    """Where constraints (m,) are to be."""

    lower: Array
    upper: Array


class Ascent(NamedTuple):
    """A descent in x, and what is learnt of the multipliers over several of them."""

    descent: Descent
    multipliers: Array  # (m,)
    penalty: Array
    constraints: Array  # (m,) at the descent's x
    gap: Array  # how far the constraints were from where they are to be after the last descent
    tolerance: Array  # slope at which this descent ends
    trials: Array  # of this descent
    rounds: Array
    ended: Array  # bool


def begin(x: Array, multipliers: Array) -> Ascent:
    zero = jnp.zeros((), x.dtype)
    count = jnp.int32(0)
    return Ascent(
        lbfgs.begin(x),
        multipliers,
        zero + FIRST_PENALTY,
        jnp.zeros_like(multipliers),
        zero + jnp.inf,
        zero + FIRST_DESCENT_TOLERANCE,
        count,
        count,
        jnp.zeros((), bool),
    )


def value(facts: Array, multipliers: Array, penalty: Any, interval: Interval) -> Array:
    """The augmented Lagrangian of facts (1 + m,), the objective and the constraints."""
    return facts[0] + penalty * jnp.sum(_excess(facts[1:], multipliers, penalty, interval) ** 2)


def _excess(constraints: Array, multipliers: Array, penalty: Any, interval: Interval) -> Array:
    shifted = constraints + multipliers / (2 * penalty)
    return shifted - jnp.clip(shifted, interval.lower, interval.upper)


def tell(was: Ascent, value: Array, gradient: Array, constraints: Array, interval: Interval, bounds: Bounds) -> Ascent:
    """After the evaluation of its trial, unless it has ended. After a descent multipliers follow and another begins."""
    descent = lbfgs.tell(was.descent, value, gradient, bounds, -jnp.inf, was.tolerance)
    moved = jnp.any(descent.x != was.descent.x) | (was.descent.status == lbfgs.NOT_STARTED)
    current = jnp.where(moved, constraints, was.constraints)
    now = was._replace(descent=descent, constraints=current, trials=was.trials + 1)
    after = _round(now, interval)
    over = (descent.status == ENDED) | (now.trials >= MAX_DESCENT_EVALUATIONS)
    return jax.tree.map(lambda a, b: jnp.where(over, a, b), after, now)


def _round(now: Ascent, interval: Interval) -> Ascent:
    """Between two descents."""
    excess = _excess(now.constraints, now.multipliers, now.penalty, interval)
    gap = jnp.max(jnp.abs(excess - now.multipliers / (2 * now.penalty)))
    slow = gap > 0.25 * now.gap
    penalty = jnp.where(slow, jnp.minimum(10 * now.penalty, MAX_LAGRANGIAN_PENALTY), now.penalty)
    rounds = now.rounds + 1
    least = jnp.maximum(LAST_DESCENT_TOLERANCE, jnp.finfo(gap.dtype).eps * now.penalty)
    done = (gap <= CONSTRAINT_TOLERANCE) & (now.tolerance <= 10 * least)
    fresh = lbfgs.clear_pairs(now.descent)
    return now._replace(
        descent=fresh,
        multipliers=2 * now.penalty * excess,
        penalty=penalty,
        gap=gap,
        tolerance=jnp.maximum(0.1 * now.tolerance, least),
        trials=jnp.zeros_like(now.trials),
        rounds=rounds,
        ended=done | (rounds >= MAX_DESCENTS) | ~jnp.isfinite(gap),
    )


def first_multipliers(slope: Array, jacobian: Array, constraints: Array, interval: Interval, free: Array) -> Array:
    """Multipliers (m,) that come closest to balancing the objective's slope (d,), from the constraints near to binding.

    jacobian (m, d). free (d,): the variables that are not held at a wall.
    """
    count = constraints.shape[0]
    rows = jnp.where(free, jacobian, 0)
    slack = jnp.maximum(jnp.maximum(interval.lower - constraints, constraints - interval.upper), 0)
    inner = jnp.minimum(interval.upper - constraints, constraints - interval.lower)
    far = jnp.maximum(jnp.where(jnp.isfinite(inner), inner, interval.upper - constraints), 0)
    weight = jnp.where(slack > 0, 0, (far / BINDING_DISTANCE) ** 2)
    table = rows @ rows.T + jnp.diag(weight + 1e-9)
    estimate = -jnp.linalg.solve(table, rows @ jnp.where(free, slope, 0)) if count else jnp.zeros(0, slope.dtype)
    at_top = interval.upper - constraints <= constraints - interval.lower
    signed = jnp.where(at_top, jnp.maximum(estimate, 0), jnp.minimum(estimate, 0))
    return jnp.where(jnp.isfinite(signed), signed, 0)
