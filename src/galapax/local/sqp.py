"""Descent under constraints by quadratic models: sequential quadratic programming, with every matrix in full.

Each step minimises a quadratic model of the Lagrangian over the constraints made linear, inside the box; how far it is
followed is judged by objective plus weighted violation. Powell (1978), Lecture Notes in Mathematics 630:144-157,
doi:10.1007/BFb0067703, for the damped update of the model; Nocedal & Wright, Numerical Optimization (2006), chapters 16
(the interior-point method for the model) and 18. Where many equalities bind, as in a flow sheet, it comes to the answer
in some twenty steps, where an augmented Lagrangian crawls.

Objective and constraints come in units in which their slopes are about 1, x in units of the box: 0 to 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.operators.constraint_handling import minimum_norm_step

INTERIOR_POINT_STEPS = 30  # steps of the interior-point method, each a system of n + equalities unknowns
EQUALITY_SLACK = 1e-9  # how far equalities give way that contradict each other
STEP_SHARES = (1.0, 0.5, 0.2, 0.05, 0.01, 1e-3)  # of a step that are tried, all at once
MAX_IDLE_STEPS = 3  # steps in a row that brought nothing
MIN_MERIT_GAIN = 1e-12  # of the merit


class Model(NamedTuple):
    """Where a descent stands, and what it has learnt."""

    x: Array  # (n,)
    facts: Array  # (1 + m,) objective and constraints at x: the first are equalities, c = 0, the others c <= 0
    slopes: Array  # (1 + m, n)
    hessian: Array  # (n, n) of the Lagrangian, as far as it is known
    multipliers: Array  # (m,)
    weight: Array  # of violations in the merit
    idle: Array  # steps in a row that brought nothing


def begin(x: Array, facts: Array, slopes: Array, bend: Any = 1.0) -> Model:
    """bend: how much the Lagrangian is taken to be bent in every direction, before anything is known about it."""
    zero, hessian = jnp.zeros((), x.dtype), bend * jnp.eye(x.shape[0], dtype=x.dtype)
    return Model(x, facts, slopes, hessian, jnp.zeros_like(facts[1:]), zero + 1, zero)


def violation(constraints: Array, equalities: int) -> Array:
    """How far each constraint (m,) is from holding."""
    return jnp.concatenate([jnp.abs(constraints[:equalities]), jnp.maximum(constraints[equalities:], 0)])


def ask(was: Model, equalities: int) -> tuple[Model, Array]:
    """With the multipliers of its next step; and the points (len(SHARES), n) to be tried along it."""
    step, multipliers = _solve_quadratic_program(was, equalities)
    sound = jnp.all(jnp.isfinite(step)) & jnp.all(jnp.isfinite(multipliers))
    step, multipliers = jnp.where(sound, step, 0), jnp.where(sound, multipliers, was.multipliers)
    largest = jnp.max(jnp.abs(multipliers), initial=0.0)
    weight = jnp.maximum(1.2 * largest, 0.5 * (was.weight + largest))
    trials = jnp.clip(was.x + jnp.asarray(STEP_SHARES, step.dtype)[:, None] * step, 0, 1)
    return was._replace(multipliers=multipliers, weight=weight), trials


def correct(was: Model, trials: Array, facts: Array, equalities: int) -> Array:
    """Trials moved back to where the constraints hold, as far as the slopes at x know: a long step along curved
    constraints leaves them, and would be refused though it leads the right way (the second-order correction).
    """
    rows = was.slopes[1:]

    def one(trial: Array, constraints: Array) -> Array:
        broken = constraints.at[equalities:].set(jnp.maximum(constraints[equalities:], 0))
        kept = (jnp.arange(rows.shape[0]) < equalities) | (broken > 0)
        free = (trial > 0) & (trial < 1)
        step = minimum_norm_step(jnp.where(kept[:, None] & free, rows, 0), -broken)
        return jnp.clip(trial + jnp.where(jnp.all(jnp.isfinite(step)), step, 0), 0, 1)

    return jax.vmap(one)(trials, facts[:, 1:])


def choose_trial(was: Model, trials: Array, facts: Array, equalities: int) -> tuple[Array, Array]:
    """Of the trials with their facts (k, 1 + m), or where it stands, the best; and what its merit gained."""
    merit = jax.vmap(lambda f: f[0] + was.weight * jnp.sum(violation(f[1:], equalities)))
    here, there = merit(was.facts[None])[0], merit(facts)
    there = jnp.where(jnp.isfinite(there), there, jnp.inf)
    best = jnp.argmin(there)
    gained = here - there[best]
    return jnp.where(gained > 0, trials[best], was.x), gained


def tell(was: Model, x: Array, gained: Array, facts: Array, slopes: Array) -> Model:
    """After the move to x, whose facts and slopes are these."""
    step, old = x - was.x, _gradient(was.slopes, was.multipliers)
    turn, along = _gradient(slopes, was.multipliers) - old, was.hessian @ step
    bent, usual = step @ turn, step @ along
    share = jnp.where(bent < 0.2 * usual, 0.8 * usual / jnp.where(usual > bent, usual - bent, 1), 1)
    turn = share * turn + (1 - share) * along
    bent = step @ turn
    useful = (usual > 0) & (bent > 0) & jnp.all(jnp.isfinite(turn))
    parts = jnp.outer(turn, turn) / jnp.where(useful, bent, 1) - jnp.outer(along, along) / jnp.where(useful, usual, 1)
    size = jnp.maximum(1, jnp.abs(facts[0]))
    idle = jnp.where(gained > MIN_MERIT_GAIN * size, 0, was.idle + 1)
    # a step that failed leaves a model that is wrong: begin it anew
    hessian = jnp.where(useful, was.hessian + parts, jnp.where(gained > 0, was.hessian, jnp.eye(x.shape[0])))
    return was._replace(x=x, facts=facts, slopes=slopes, hessian=hessian, idle=idle)


def is_done(state: Model) -> Array:
    return (state.idle >= MAX_IDLE_STEPS) | ~jnp.all(jnp.isfinite(state.facts))


def _gradient(slopes: Array, multipliers: Array) -> Array:
    """Of the Lagrangian."""
    return slopes[0] + multipliers @ slopes[1:]


def _solve_quadratic_program(model: Model, equalities: int) -> tuple[Array, Array]:
    """The step (n,) to the minimum of the model, and the multipliers (m,) there."""
    n, kind = model.x.shape[0], model.x.dtype
    hard, hard_at = model.slopes[1 : 1 + equalities], -model.facts[1 : 1 + equalities]
    eye = jnp.eye(n, dtype=kind)
    soft = jnp.concatenate([model.slopes[1 + equalities :], eye, -eye])
    soft_at = jnp.concatenate([-model.facts[1 + equalities :], 1 - model.x, model.x])

    def inside(_: Any, now: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        step, forces, room, pressure = now
        mean = room @ pressure / room.shape[0]
        over = soft @ step + room - soft_at
        wanted = 0.1 * mean / room - pressure + pressure * over / room
        left = model.hessian @ step + model.slopes[0] + forces @ hard + (pressure + wanted) @ soft
        table = model.hessian + (soft.T * (pressure / room)) @ soft + 1e-12 * eye
        whole = jnp.block([[table, hard.T], [hard, -EQUALITY_SLACK * jnp.eye(equalities, dtype=kind)]])
        right = jnp.concatenate([-left, hard_at - hard @ step])
        move = jnp.linalg.solve(whole, right)
        along = soft @ move[:n]
        room_by, pressure_by = -over - along, wanted + pressure / room * along
        reach = 0.99 * jnp.minimum(_largest_positive_step(room, room_by), _largest_positive_step(pressure, pressure_by))
        reach = jnp.where(jnp.all(jnp.isfinite(move)), jnp.minimum(reach, 1), 0)
        move, room_by, pressure_by = (jnp.where(reach > 0, a, 0) for a in (move, room_by, pressure_by))
        return (
            step + reach * move[:n],
            forces + reach * move[n:],
            room + reach * room_by,
            pressure + reach * pressure_by,
        )

    start = (
        jnp.zeros(n, kind),
        jnp.zeros(equalities, kind),
        jnp.maximum(soft_at, 1e-2),
        jnp.full(len(soft), 0.1, kind),
    )
    step, forces, _, pressure = lax.fori_loop(0, INTERIOR_POINT_STEPS, inside, start)
    return step, jnp.concatenate([forces, pressure[: model.facts.shape[0] - 1 - equalities]])


def _largest_positive_step(now: Array, by: Array) -> Array:
    """How much of a change can be made before one of these is zero."""
    return jnp.min(jnp.where(by < 0, -now / jnp.where(by < 0, by, -1), jnp.inf))
