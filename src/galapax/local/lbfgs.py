"""Descent by a quasi-Newton method inside a box, one evaluation with its gradient at a time.

L-BFGS: Liu & Nocedal (1989), Mathematical Programming 45:503-528, doi:10.1007/BF01589116, on the variables that are not
held at a wall, with a search along the projected path: Bertsekas (1982), SIAM J. Control Optim. 20(2):221-246,
doi:10.1137/0320018. Differs from both: one asks for `trial` and tells what is there, so that many descents go on in
step, whoever evaluates; a step that ends where the function still falls steeply is taken, and the next one is longer.

Lengths and slopes are in units of the box, so that a variable in metres and one in millimetres weigh the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from galapax.core.problem import Bounds

MAX_STORED_PAIRS_LBFGS = 10  # pairs of step and turn that are remembered
MAX_LINE_SEARCH_POINTS = 20  # points of one search along a path
MAX_LOST_STEPS = 3  # steps in a row that are lost in rounding
MIN_STEP_SHARE = {8: 1e-11, 4: 1e-6}  # of the box: shorter steps count as lost, by the bytes of a number
SUFFICIENT_DECREASE, CURVATURE_CONDITION = (
    1e-4,
    0.9,
)  # of the decrease that the slope promises (Armijo), and of the slope (Wolfe)
FIRST_STEP_SHARE = 1e-2  # of the box: how far the first step goes where nothing is known of the curvature

NOT_STARTED, DESCENDING, ENDED = 0, 1, 2  # `status`: before the first evaluation, under way, no further


class Descent(NamedTuple):
    """One descent between two evaluations."""

    x: Array  # (d,) the best so far
    value: Array
    slope: Array  # (d,) partial derivatives at x
    trial: Array  # (d,) to be evaluated next
    way: Array  # (d,) the direction of this search
    step: Array  # how far along it the trial is
    length: Array  # of the last step taken, its largest part
    steps: Array  # (MEMORY, d) the last ones, newest first
    turns: Array  # (MEMORY, d) and how the slope changed over each; zeros where there is none
    tries: Array  # of this search
    idle: Array  # steps in a row that were lost in rounding
    status: Array


def begin(x: Array) -> Descent:
    """Before anything is known; x (d,) is the first trial."""
    zero, none = jnp.zeros((), x.dtype), jnp.zeros(x.shape, x.dtype)
    memory, count = jnp.zeros((MAX_STORED_PAIRS_LBFGS, *x.shape), x.dtype), jnp.int32(0)
    return Descent(
        x,
        zero + jnp.inf,
        none,
        x,
        none,
        zero + 1,
        zero + FIRST_STEP_SHARE,
        memory,
        memory,
        count,
        count,
        count + NOT_STARTED,
    )


def tell(was: Descent, value: Array, gradient: Array, bounds: Bounds, target: Any, tolerance: Any) -> Descent:
    """The descent, which has not ended, after the evaluation of its trial.

    gradient: (d,), as it is. It ends at a value of `target`, once no slope that leads on inside the box is larger than
    `tolerance`, and when its steps or what they gain are lost in rounding.
    """
    slope, fresh, eps = gradient * bounds.span, was.status == NOT_STARTED, jnp.finfo(value.dtype).eps
    moved = (was.trial - was.x) / bounds.span
    size, promised = jnp.max(jnp.abs(moved)), jnp.sum(was.slope * moved)
    sound = jnp.isfinite(value) & jnp.all(jnp.isfinite(slope))
    # a step over which rounding hides the decrease is no step: it would wander
    taken = sound & (fresh | ((value <= was.value + SUFFICIENT_DECREASE * promised) & (value < was.value)))
    # after many tries another way: straight down, and after that none
    spent = ~taken & ((was.tries + 1 >= MAX_LINE_SEARCH_POINTS) | (size <= eps))
    lost = (was.value - value <= 4 * eps * jnp.abs(value)) | (size <= MIN_STEP_SHARE[value.dtype.itemsize])
    known = store_pair(was, moved, slope - was.slope, taken & ~fresh)
    at = known._replace(
        x=jnp.where(taken, was.trial, was.x),
        value=jnp.where(taken, value, was.value),
        slope=jnp.where(taken, slope, was.slope),
        steps=jnp.where(spent, 0, known.steps),
        turns=jnp.where(spent, 0, known.turns),
        length=jnp.where(taken & ~fresh, size, was.length),
        idle=jnp.where(taken, jnp.where(fresh | ~lost, 0, was.idle + 1), was.idle),
    )
    anew = taken | spent
    way = jnp.where(anew, direction(at, bounds), was.way)
    step = jnp.where(anew, _max_step_length(was, slope, bounds, taken & ~fresh), _shorten_step(was, value, promised))
    flat = jnp.max(jnp.abs(jnp.where(is_at_bound(at.x, at.slope, bounds), 0, at.slope))) <= tolerance
    hopeless = -jnp.sum(way * at.slope) <= 0.25 * eps * jnp.abs(at.value)
    stuck = ~taken & (fresh | (spent & ~jnp.any(was.steps)))
    over = (at.value <= target) | flat | hopeless | stuck | (at.idle >= MAX_LOST_STEPS)
    return at._replace(
        trial=jnp.clip(at.x + step * way * bounds.span, bounds.lower, bounds.upper),
        way=way,
        step=step,
        tries=jnp.where(anew, 0, was.tries + 1),
        status=jnp.where(over, ENDED, DESCENDING).astype(was.status.dtype),
    )


def _max_step_length(was: Descent, slope: Array, bounds: Bounds, taken: Array) -> Array:
    """How far the next search looks first: further where the last step ended while the function still fell steeply."""
    inside = (was.trial > bounds.lower) & (was.trial < bounds.upper)
    before, after = (jnp.sum(jnp.where(inside, part * was.way, 0)) for part in (was.slope, slope))
    return jnp.where(taken & (after < CURVATURE_CONDITION * before), 2 * was.step, 1).astype(was.step.dtype)


def _shorten_step(was: Descent, value: Array, promised: Array) -> Array:
    """A shorter step along the same way: to the lowest point of the parabola through what is known."""
    excess = value - was.value - promised
    share = jnp.where(jnp.isfinite(excess) & (excess > 0), -promised / (2 * excess), 0.1)
    return was.step * jnp.clip(share, 0.1, 0.5)


def is_at_bound(x: Array, slope: Array, bounds: Bounds) -> Array:
    """Which variables (d,) are at a wall that the way down leads through."""
    return ((x <= bounds.lower) & (slope >= 0)) | ((x >= bounds.upper) & (slope <= 0))


def store_pair(was: Descent, step: Array, turn: Array, usable: Any = True) -> Descent:
    """With one more pair of step and turn (d,), if the function curves upwards along it."""
    bent = jnp.sum(step * turn)
    usable = usable & (bent > jnp.finfo(step.dtype).eps * jnp.sum(turn * turn)) & jnp.isfinite(bent)
    steps, turns = (
        jnp.where(usable, jnp.concatenate([new[None], old[:-1]]), old)
        for new, old in ((step, was.steps), (turn, was.turns))
    )
    return was._replace(steps=steps, turns=turns)


def clear_pairs(was: Descent) -> Descent:
    """Of a function that is another now: its trial is where it stands."""
    none = jnp.zeros_like(was.steps)
    zero = jnp.zeros_like(was.tries)
    return was._replace(trial=was.x, steps=none, turns=none, tries=zero, idle=zero, status=zero + NOT_STARTED)


def direction(at: Descent, bounds: Bounds) -> Array:
    """The way down (d,) that the remembered pairs suggest, over the variables that are free to move."""
    free = ~is_at_bound(at.x, at.slope, bounds)
    least = jnp.finfo(at.x.dtype).eps
    down = jnp.where(free, at.slope, 0)
    steps, turns = jnp.where(free, at.steps, 0), jnp.where(free, at.turns, 0)
    bent, size = jnp.sum(steps * turns, axis=1), jnp.sum(turns * turns, axis=1)
    usable = bent > least * size
    inverse = jnp.where(usable, 1 / jnp.where(usable, bent, 1), 0)

    # loops, as they compile many times faster than the same written out
    def back(i: Any, both: tuple[Array, Array]) -> tuple[Array, Array]:
        way, shares = both
        share = inverse[i] * jnp.sum(steps[i] * way)
        return way - share * turns[i], shares.at[i].set(share)

    way, shares = lax.fori_loop(0, MAX_STORED_PAIRS_LBFGS, back, (down, jnp.zeros(MAX_STORED_PAIRS_LBFGS, down.dtype)))
    largest, newest = jnp.max(jnp.abs(down)), jnp.argmax(usable)
    blind = jnp.maximum(at.length, least) / jnp.where(largest > 0, largest, 1)  # as long as the last step was
    way = way * jnp.where(jnp.any(usable), bent[newest] / jnp.where(usable[newest], size[newest], 1), blind)

    def forth(j: Any, way: Array) -> Array:
        i = MAX_STORED_PAIRS_LBFGS - 1 - j
        return way + steps[i] * (shares[i] - inverse[i] * jnp.sum(turns[i] * way))

    way = lax.fori_loop(0, MAX_STORED_PAIRS_LBFGS, forth, way)
    leads = jnp.sum(way * down) > least * jnp.sqrt(jnp.sum(way * way) * jnp.sum(down * down))
    return -jnp.where(leads & jnp.all(jnp.isfinite(way)), way, blind * down)
