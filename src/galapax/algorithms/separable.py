"""Sums of functions of single variables: a test for them, and a search that minimises each function on its line.

Such a sum has its minimum where each of its functions has: d searches along lines, side by side. Select the Easiest
Point (Langerman, Seront & Bersini 1994, IEEE CEC, 519-524) and Brent-STEP (Baudis & Posik 2015, EvoApplications,
doi:10.1007/978-3-319-16549-3_12) use this, one line after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Traits,
    static,
)
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.numerics import random
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import best_index, no_worse, set_first, take_row, tree_where

ADDITIVE_ROUNDING = 1e3  # error of a sum of values, in units of the last place of the largest
FLAT_ULPS = 4  # difference of values on a line that is rounding, in units of the last place of the value
SCAN_GENERATIONS = 6  # of 20 points on each line: 120 cells, and a point in each
N_BRACKETS = 4  # that are refined on each line at first,
SELECTION_GENERATIONS = 5  # and then the best of them alone
POINTS_PER_BRACKET = 5  # a generation
VERTEX_MARGIN = 0.02  # distance of two points from the vertex of a parabola, as a share of its bracket


class SeparabilityState(NamedTuple):
    candidates: Array  # (n, d) two points, then pairs that exchange some of their variables
    parents: Population
    is_separable: Array
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SeparabilityTest(Algorithm[SeparabilityState]):
    """Tests whether the objective is a sum of functions of single variables; it converges if it is.

    Two random points exchange the variables of a set S. If the objective is a sum, the values of the two new points add
    up to those of the old ones. Each pair of variables is divided by one of ceil(log2 d) sets.

    population: 2 + 2 ceil(log2 d).
    """

    population: int = static(None)

    traits: ClassVar[Traits] = Traits(rounds_discrete=True, fast_compile=True, termination_every=1)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        return type(self)(2 + 2 * math.ceil(math.log2(dim)))

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> SeparabilityState:
        key_points, key_codes = random.split(key)
        points = sample_uniform(key_points, bounds, 2)
        codes = jnp.argsort(random.uniform(key_codes, (bounds.dim,), bounds.lower.dtype)).astype(jnp.int32)
        in_set = (codes[None, :] >> jnp.arange(self.population // 2 - 1, dtype=jnp.int32)[:, None]) & 1
        pairs = jnp.where(in_set[:, None, :] == jnp.array([0, 1])[None, :, None], points[0], points[1])
        x = jnp.concatenate([points, pairs.reshape(-1, bounds.dim)])
        return SeparabilityState(x, empty_population(x, shape), jnp.zeros((), bool), bounds)

    def step(self, key: Array, state: SeparabilityState, evaluation: CandidateEvaluation) -> SeparabilityState:
        points = as_population(state.candidates, evaluation)
        sums = points.fitness.reshape(-1, 2).sum(axis=1)
        largest = jnp.max(jnp.abs(points.fitness))
        rounding = ADDITIVE_ROUNDING * jnp.finfo(sums.dtype).eps * largest
        is_separable = jnp.all(jnp.abs(sums - sums[0]) <= rounding)  # False if one is NaN
        return state._replace(parents=points, is_separable=is_separable)

    def termination(self, state: SeparabilityState, bounds: Bounds, tolerance: Array) -> Array:
        del bounds, tolerance
        return jnp.where(state.is_separable, STOP_CODES[Stop.TOLERANCE], STOP_CODES[Stop.STALL])


class Lines(NamedTuple):
    """What is known of each variable's function: points t in the unit interval, and values relative to the base's."""

    cells: Array  # (2, d, cells): t and value of the scan, ordered by t
    brackets: Array  # (2, d, k, 3): t and value of three points, of which the middle one is the best


class SeparableState(NamedTuple):
    candidates: Array  # (1 + m d, d): the base, then m times a point on the line through it along each variable
    parents: Population
    base: Array  # (d,), in the unit cube: the best of each line
    expected: Array  # value of the base if the objective is a sum
    rounding: Array  # error of that
    lines: Lines
    age: Array
    is_sum: Array  # whether all bases had the expected value
    width: Array  # of the widest of the best brackets whose values differ by more than rounding
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SeparableSearch(Algorithm[SeparableState]):
    """Minimises a sum of functions of single variables, all lines at once.

    A scan evaluates a random point in each of 120 cells of every line. The four lowest minima of these are enclosed and
    refined, by parabolas and by halves, after five generations the best of them alone. The base, which all lines go
    through, moves to the best point of each line; the search ends without success once its value is not what a sum
    would have there.

    population: 1 + 20 d.
    """

    population: int = static(None)

    traits: ClassVar[Traits] = Traits(
        fixed_evaluations=False, rounds_discrete=True, fast_compile=True, termination_every=1
    )

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        return type(self)(1 + dim * N_BRACKETS * POINTS_PER_BRACKET)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> SeparableState:
        key_base, key_scan = random.split(key)
        dim, dtype = bounds.dim, bounds.lower.dtype
        per_line = (self.population - 1) // dim
        base = random.uniform(key_base, (dim,), dtype)
        unknown = jnp.full((2, dim, per_line * SCAN_GENERATIONS), jnp.inf, dtype)
        lines = Lines(unknown, jnp.full((2, dim, N_BRACKETS, 3), jnp.inf, dtype))
        age, zero = jnp.zeros((), jnp.int32), jnp.zeros((), dtype)
        x = self.place(base, scan_points(key_scan, dim, per_line, age, dtype), bounds)
        return SeparableState(
            x, empty_population(x, shape), base, zero, zero, lines, age, jnp.ones((), bool), zero + 1, bounds
        )

    def evaluations(self, state: SeparableState, number: Array | int) -> Array | int:
        """Count all candidates, or once the best bracket of each line is known, those in these."""
        selects = state.age < SCAN_GENERATIONS + SELECTION_GENERATIONS
        return jnp.where(selects, self.population, 1 + state.bounds.dim * POINTS_PER_BRACKET)

    def place(self, base: Array, t: Array, bounds: Bounds) -> Array:
        """Return the base and, for each of the points t (d, m), the base with one variable changed."""
        unit = jnp.where(jnp.eye(bounds.dim, dtype=bool), t.T[:, :, None], base).reshape(-1, bounds.dim)
        unit = jnp.concatenate([base[None], unit])
        return jnp.clip(bounds.lower + bounds.span * unit, bounds.lower, bounds.upper)

    def step(self, key: Array, state: SeparableState, evaluation: CandidateEvaluation) -> SeparableState:
        """Add the values to the lines, move the base to the best of each, and choose the next points."""
        bounds, dim = state.bounds, state.bounds.dim
        samples = as_population(state.candidates, evaluation)
        value, eps = samples.fitness[0], jnp.finfo(samples.x.dtype).eps
        unit = ((samples.x[1:] - bounds.lower) / bounds.span).reshape(-1, dim, dim)
        t, g = jnp.diagonal(unit, axis1=1, axis2=2).T, (samples.fitness[1:] - value).reshape(-1, dim).T
        is_sum = state.is_sum & ((state.age == 0) | (jnp.abs(value - state.expected) <= state.rounding))
        largest = jnp.max(jnp.where(jnp.isfinite(samples.fitness), jnp.abs(samples.fitness), 0))

        scans = state.age < SCAN_GENERATIONS
        columns = jnp.arange(t.shape[1]) * SCAN_GENERATIONS + jnp.minimum(state.age, SCAN_GENERATIONS - 1)
        cells = jnp.where(scans, state.lines.cells.at[:, :, columns].set(jnp.stack([t, g])), state.lines.cells)
        refined = refine_brackets(state.lines.brackets, jnp.stack([t, g]).reshape(2, dim, N_BRACKETS, -1))
        brackets = jnp.where(scans, enclose_minima(cells), refined)
        order = jnp.argsort(brackets[1, :, :, 1], axis=1)  # the best bracket is the first
        brackets = jnp.take_along_axis(brackets, order[None, :, :, None], axis=2)
        middle = brackets[:, :, 0, 1]
        gains = jnp.minimum(middle[1], 0)
        base = jnp.where(middle[1] < 0, middle[0], state.base)
        lines = Lines(cells.at[1].add(-gains[:, None]), brackets.at[1].add(-gains[:, None, None]))

        chosen = brackets[:, :, 0]
        is_flat = jnp.max(chosen[1], axis=1) - chosen[1, :, 1] <= FLAT_ULPS * eps * jnp.abs(value)
        width = jnp.max(jnp.where(is_flat, 0, chosen[0, :, 2] - chosen[0, :, 0]))
        gained = take_row(samples, best_index(samples))
        in_best = scans | (jnp.arange(self.population) <= dim * POINTS_PER_BRACKET)
        parents = set_first(tree_where(in_best, samples, take_row(samples, 0)), gained)
        old = take_row(state.parents, 0)
        parents = set_first(parents, tree_where(no_worse(gained, old), gained, old))

        age = state.age + 1
        scanned = scan_points(key, dim, t.shape[1], age, t.dtype)
        t = jnp.where(age < SCAN_GENERATIONS, scanned, bracket_points(lines.brackets).reshape(dim, -1))
        expected = value + jnp.sum(gains)
        rounding = jnp.maximum(state.rounding, ADDITIVE_ROUNDING * eps * largest)  # values stay on lines
        x = self.place(base, t, bounds)
        return SeparableState(
            x, parents, base, expected, rounding, lines, age, is_sum, jnp.where(scans, 1, width), bounds
        )

    def termination(self, state: SeparableState, bounds: Bounds, tolerance: Array) -> Array:
        del bounds
        done = jnp.where(state.width <= tolerance, STOP_CODES[Stop.TOLERANCE], RUNNING)
        return jnp.where(state.is_sum, done, STOP_CODES[Stop.STALL])


def scan_points(key: Array, dim: int, per_line: int, age: Array, dtype: jnp.dtype) -> Array:
    """Return a random point in every sixth cell of each line, (d, m); those of the outer cells are the bounds."""
    count = per_line * SCAN_GENERATIONS
    cell = jnp.arange(per_line) * SCAN_GENERATIONS + age
    t = (cell + random.uniform(key, (dim, per_line), dtype)) / count
    return jnp.where(cell == 0, 0, jnp.where(cell == count - 1, 1, t)).astype(dtype)


def enclose_minima(cells: Array) -> Array:
    """Return brackets (2, d, k, 3) around the lowest minima of a scan (2, d, cells)."""
    t, g = cells
    padded_t, padded_g = (jnp.pad(a, ((0, 0), (1, 1)), mode="edge") for a in (t, g))
    is_minimum = (g <= padded_g[:, :-2]) & (g < padded_g[:, 2:]) | (g == jnp.min(g, axis=1, keepdims=True))
    is_minimum &= jnp.isfinite(g)
    lowest = lax.top_k(jnp.where(is_minimum, -g, -jnp.inf), N_BRACKETS)[1]
    index = lowest[:, :, None] + jnp.arange(3)
    rows = jnp.arange(t.shape[0])[:, None, None]
    brackets = jnp.stack([padded_t[rows, index], padded_g[rows, index]])
    is_one = jnp.take_along_axis(is_minimum, lowest, axis=1)
    return brackets.at[1].set(jnp.where(is_one[:, :, None], brackets[1], jnp.inf))


def refine_brackets(brackets: Array, points: Array) -> Array:
    """Return the brackets (2, d, k, 3) around the best of their points and of new ones (2, d, k, m)."""
    t, g = jnp.concatenate([brackets, points], axis=-1)
    best = jnp.argmin(g, axis=-1, keepdims=True)
    middle_t, middle_g = (jnp.take_along_axis(a, best, axis=-1) for a in (t, g))
    below = jnp.argmax(jnp.where(t < middle_t, t, -jnp.inf), axis=-1, keepdims=True)
    above = jnp.argmin(jnp.where(t > middle_t, t, jnp.inf), axis=-1, keepdims=True)
    ends = []
    for end, is_beyond in ((below, t < middle_t), (above, t > middle_t)):
        place = jnp.where(jnp.any(is_beyond, axis=-1, keepdims=True), end, best)
        ends.append(jnp.stack([jnp.take_along_axis(a, place, axis=-1) for a in (t, g)]))
    return jnp.concatenate([ends[0], jnp.stack([middle_t, middle_g]), ends[1]], axis=-1)


def bracket_points(brackets: Array) -> Array:
    """Return the next points in each bracket (2, d, k, 3): the middle of both halves, and three around the vertex of
    the parabola through its points.
    """
    (a, b, c), (g_a, g_b, g_c) = (jnp.moveaxis(values, -1, 0) for values in brackets)
    left, right = (b - a) * (g_b - g_c), (b - c) * (g_b - g_a)
    vertex = b - ((b - a) * left - (b - c) * right) / (2 * (left - right))
    vertex = jnp.where((vertex > a) & (vertex < c), vertex, b)  # b where the parabola has none
    margin = VERTEX_MARGIN * (c - a)
    points = [(a + b) / 2, (b + c) / 2, vertex - margin, vertex, vertex + margin]
    return jnp.clip(jnp.nan_to_num(jnp.stack(points, axis=-1), posinf=0.0), 0, 1)
