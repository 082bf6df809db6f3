"""Descents along differences from many places, for objectives with few minima that are wide.

Each is BFGS within the box (Nocedal & Wright 2006, Numerical Optimization, chapter 6), with forward differences and
eight step lengths at a time, from the best of a few random points. The search ends once another minimum is unlikely by
the rule of Boender & Rinnooy Kan (1987), Mathematical Programming 37:59-80, doi:10.1007/BF02591684; or without success
if the first descents have all found different ones: on a rugged objective that goes on for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.core.algorithm import Algorithm, Budget, Traits, static
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.numerics import random
from galapax.operators.selection import best_index, no_worse, set_first, take_row, tree_where

N_DESCENTS = 10  # side by side
MAX_ENDS = 20  # of a search
MAX_ITERATIONS = 40  # of a descent
STEP_LENGTHS = (4.0, 2.0, 1.0, 0.5, 0.25, 0.1, 0.03, 0.01)  # of quasi-Newton steps; the last ones where H is wrong
FIRST_LENGTH = 0.1  # share of the box, of the first step
SAME_MINIMUM_DISTANCE = 1e-2  # share of the box within which two ends are the same minimum
MIN_GAIN_SHARE = 1e-8  # of what the descent has gained, of a step after which it goes on


class MultistartState(NamedTuple):
    candidates: Array  # (n, d): those to be evaluated come first
    order: Array  # (n,) where the candidates stand among the points of the descents
    n_next: Array  # of the candidates to be evaluated
    parents: Population
    x: Array  # (k, d) in the unit cube
    value: Array  # (k,)
    first_value: Array  # (k,) of the descents
    gradient: Array  # (k, d)
    inverse: Array  # (k, d, d) of the Hessian, as BFGS has it
    move: Array  # (k, d) the last one
    phase: Array  # (k,) SAMPLE, DIFFERENCE, or STEP
    iteration: Array  # (k,)
    minima: Array  # (e, d) found so far, the first `n_minima` rows
    n_minima: Array
    n_ends: Array
    bounds: Bounds


SAMPLE, DIFFERENCE, STEP = 0, 1, 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Multistart(Algorithm[MultistartState]):
    """Ten descents side by side, which begin anew elsewhere when they end, until 20 have ended.

    population: points of all descents, max(8, d) each; a generation evaluates as many as it needs.
    """

    population: int = static(None)

    traits: ClassVar[Traits] = Traits(fixed_evaluations=False, rounds_discrete=True, termination_every=1)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        return type(self)(N_DESCENTS * max(len(STEP_LENGTHS), dim))

    def evaluations(self, state: MultistartState, number: Array | int) -> Array | int:
        return state.n_next

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> MultistartState:
        dim, dtype, k = bounds.dim, bounds.lower.dtype, N_DESCENTS
        none, flat = jnp.zeros(k, dtype), jnp.zeros((k, dim), dtype)
        x = jnp.clip(
            bounds.lower + bounds.span * random.uniform(key, (self.population, dim), dtype), bounds.lower, bounds.upper
        )
        phase, zero = jnp.full(k, SAMPLE, jnp.int32), jnp.zeros((), jnp.int32)
        return MultistartState(
            x, jnp.arange(self.population, dtype=jnp.int32), jnp.full((), self.population, jnp.int32),
            empty_population(x, shape), flat, none, none, flat, jnp.zeros((k, dim, dim), dtype), flat, phase,
            jnp.zeros(k, jnp.int32), jnp.full((MAX_ENDS + k, dim), jnp.inf, dtype), zero, zero, bounds,
        )  # fmt: skip

    def step(self, key: Array, state: MultistartState, evaluation: CandidateEvaluation) -> MultistartState:
        """Advance each descent by what it had evaluated: samples, differences, or steps of several lengths."""
        bounds, dim, k = state.bounds, state.bounds.dim, N_DESCENTS
        samples = as_population(state.candidates, evaluation)
        best, old = take_row(samples, best_index(samples)), take_row(state.parents, 0)
        parents = set_first(samples, tree_where(no_worse(old, best), old, best))

        n = self.population
        is_evaluated = jnp.arange(n) < state.n_next
        values = (
            jnp.full(n, jnp.inf, samples.x.dtype).at[state.order].set(jnp.where(is_evaluated, samples.fitness, jnp.inf))
        )
        unit = jnp.zeros((n, dim), samples.x.dtype).at[state.order].set((samples.x - bounds.lower) / bounds.span)
        values, unit = values.reshape(k, -1), unit.reshape(k, -1, dim)
        values = jnp.where(jnp.isnan(values), jnp.inf, values)

        # the best of samples or of steps
        place = jnp.argmin(values, axis=1)
        lowest = jnp.min(values, axis=1)
        chosen = jnp.take_along_axis(unit, place[:, None, None], axis=1)[:, 0]
        was_sample, was_difference = state.phase == SAMPLE, state.phase == DIFFERENCE
        gained = jnp.where(was_sample, jnp.isfinite(lowest), lowest < state.value) & ~was_difference
        moved = gained[:, None]
        x, value = jnp.where(moved, chosen, state.x), jnp.where(gained, lowest, state.value)
        move = jnp.where(
            moved & ~was_sample[:, None], chosen - state.x, jnp.where(was_difference[:, None], state.move, 0)
        )
        first_value = jnp.where(was_sample, value, state.first_value)
        goes_on = state.value - value > MIN_GAIN_SHARE * (first_value - value)
        iteration = jnp.where(was_sample, 0, state.iteration + (state.phase == STEP))
        was_newton = jnp.any(state.inverse != 0, axis=(1, 2))
        is_over = jnp.where(was_newton, gained & ~goes_on, ~gained)  # else once more along the gradient
        has_ended = (state.phase == STEP) & (is_over | (iteration >= MAX_ITERATIONS))

        # the differences
        measured = (values[:, :dim] - state.value[:, None]) / (difference_signs(state.x) * difference_step(x.dtype))
        is_sound = jnp.all(jnp.isfinite(measured), axis=1)
        has_ended |= was_difference & ~is_sound
        gradient = jnp.where((was_difference & is_sound)[:, None], measured, state.gradient)
        updated = jax.vmap(update_inverse)(state.inverse, state.move, gradient - state.gradient)
        inverse = jnp.where((was_difference & is_sound)[:, None, None], updated, state.inverse)
        inverse = jnp.where((~was_difference & ~(gained & ~was_sample))[:, None, None], 0, inverse)

        minima, n_minima, n_ends = record_ends(state, x, has_ended)
        phase = jnp.where(gained, DIFFERENCE, jnp.where(was_sample, SAMPLE, STEP))
        phase = jnp.where(has_ended, SAMPLE, phase)

        width = n // k
        drawn = random.uniform(key, (k, width, dim), x.dtype)
        signed_steps = difference_signs(x) * difference_step(x.dtype)
        differences = x[:, None, :] + signed_steps[:, :, None] * jnp.eye(dim, dtype=x.dtype)
        directions = jax.vmap(find_direction)(x, gradient, inverse)
        lengths = jnp.asarray(STEP_LENGTHS, x.dtype)
        steps = jnp.clip(x[:, None, :] + lengths[:, None] * directions[:, None, :], 0, 1)

        def pad(points: Array) -> Array:
            return jnp.pad(points, ((0, 0), (0, width - points.shape[1]), (0, 0)))

        where = phase[:, None, None]
        points = jnp.where(where == SAMPLE, drawn, jnp.where(where == DIFFERENCE, pad(differences), pad(steps)))
        counts = jnp.where(phase == SAMPLE, width, jnp.where(phase == DIFFERENCE, dim, len(STEP_LENGTHS)))
        is_needed = (jnp.arange(width) < counts[:, None]).reshape(-1)
        order = jnp.argsort(~is_needed, stable=True).astype(jnp.int32)
        candidates = jnp.clip(bounds.lower + bounds.span * points.reshape(n, dim)[order], bounds.lower, bounds.upper)
        return MultistartState(
            candidates, order, jnp.sum(is_needed, dtype=jnp.int32), parents, x, value, first_value, gradient, inverse,
            move, phase.astype(jnp.int32), iteration.astype(jnp.int32), minima, n_minima, n_ends, bounds,
        )  # fmt: skip

    def termination(self, state: MultistartState, bounds: Bounds, tolerance: Array) -> Array:
        del bounds, tolerance
        n, w = state.n_ends, state.n_minima
        is_rugged = (n >= N_DESCENTS) & (w >= n)
        are_known = (n > w + 2) & (w * (n - 1) < (w + 0.5) * (n - w - 2))  # fewer than w + 1/2 are expected
        is_done = are_known | (n >= MAX_ENDS)
        done = jnp.where(is_done, STOP_CODES[Stop.TOLERANCE], RUNNING)
        return jnp.where(is_rugged, STOP_CODES[Stop.STALL], done)


def difference_step(dtype: jnp.dtype) -> float:
    return float(jnp.finfo(dtype).eps) ** 0.5


def difference_signs(x: Array) -> Array:
    """Return 1, or -1 where a difference upwards would leave the box."""
    return jnp.where(x + difference_step(x.dtype) > 1, -1, 1).astype(x.dtype)


def update_inverse(inverse: Array, move: Array, change: Array) -> Array:
    """Return the inverse Hessian of BFGS after a move that has changed the gradient; 0 where none is known yet."""
    curvature = move @ change
    is_sound = curvature > 1e-10 * jnp.sqrt(jnp.sum(move**2) * jnp.sum(change**2))
    curvature = jnp.where(is_sound, curvature, 1)
    scale = curvature / jnp.where(is_sound, jnp.sum(change**2), 1)
    old = jnp.where(jnp.any(inverse != 0), inverse, scale * jnp.eye(move.shape[0], dtype=move.dtype))
    mapped = old @ change
    second = (1 + change @ mapped / curvature) / curvature * jnp.outer(move, move)
    new = old + second - (jnp.outer(mapped, move) + jnp.outer(move, mapped)) / curvature
    return jnp.where(is_sound, new, inverse)


def find_direction(x: Array, gradient: Array, inverse: Array) -> Array:
    """Return the quasi-Newton step in the variables that do not press against their bound, or one down the gradient."""
    is_free = ~(((x <= 0) & (gradient > 0)) | ((x >= 1) & (gradient < 0)))
    slope = jnp.where(is_free, gradient, 0)
    steepest = -FIRST_LENGTH * slope / jnp.maximum(jnp.sqrt(jnp.sum(slope**2)), jnp.finfo(x.dtype).tiny)
    newton = jnp.where(is_free, -inverse @ slope, 0)
    is_usable = (newton @ slope < 0) & jnp.all(jnp.isfinite(newton))
    return jnp.where(is_usable, newton, steepest)


def record_ends(state: MultistartState, x: Array, has_ended: Array) -> tuple[Array, Array, Array]:
    """Return the minima, how many they are, and how many descents have ended, after these ends."""

    def add(found: tuple[Array, Array], end: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        (minima, n), (point, is_end) = found, end
        distance = jnp.min(jnp.max(jnp.abs(minima - point), axis=1))
        is_new = is_end & ~(distance <= SAME_MINIMUM_DISTANCE)
        minima = jnp.where(is_new & (jnp.arange(minima.shape[0]) == n)[:, None], point, minima)
        return (minima, n + is_new), None

    (minima, n_minima), _ = lax.scan(add, (state.minima, state.n_minima), (x, has_ended))
    return minima, n_minima, state.n_ends + jnp.sum(has_ended, dtype=jnp.int32)
