"""Lines through a minimum on which the variables that interact follow each other, for a way to other minima.

Near a minimum the objective is a quadratic with some Hessian H = J^T J: in the coordinates z = J x it is a sum. If J is
triangular, each variable has an effect of its own and one that those before it have, as in a chain of decisions. The
objective may then be a sum over the z all over the box, with many minima on the line along which one of them changes
and the others stay, though along the variables themselves there is none that is better.

The order of the variables is that of the Fiedler vector of the graph of their interactions, in which neighbours
interact most (Atkins, Boman & Hendrickson 1998, SIAM J. Comput. 28:297-310, doi:10.1137/S0097539795285771), from either
end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.core.algorithm import Algorithm, Budget, Traits, static
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.numerics import random
from galapax.numerics.linear_algebra import invert_lower
from galapax.operators.selection import best_index, no_worse, set_first, take_row, tree_where

POINTS_PER_LINE = 20  # a generation,
SCAN_GENERATIONS = 5  # of so many
MIN_GAIN_ULPS = 1e4  # that counts as one, in units of the last place of the value


class LinkedLinesState(NamedTuple):
    candidates: Array  # (n, d)
    parents: Population
    center: Array  # (d,), in the unit cube
    lines: Array  # (2 d, d) their directions; those of the second half are for the opposite order
    steps: Array  # (2 d,) along each line to its best point
    gains: Array  # (2 d,) of these points
    value: Array  # of the center
    age: Array
    stop: Array
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LinkedLines(Algorithm[LinkedLinesState]):
    """Scans lines through its first starting point, on which variables that interact follow each other.

    Differences tell the Hessian there, the Hessian the lines. Then a random point in each of 100 cells of every line is
    evaluated, and the moves to the best points of the lines are combined, the best two, three, ... of each order. It
    ends with success if a combination is better than any point on a line; elsewhere if a point on a line is better than
    the start; without a gain it has stalled.

    population: enough for the differences, and for 20 points on each of the 2 d lines.
    """

    population: int = static(None)

    traits: ClassVar[Traits] = Traits(fixed_evaluations=False, rounds_discrete=True, termination_every=1)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        return type(self)(max(_count_differences(dim), 2 * dim * POINTS_PER_LINE))

    @staticmethod
    def total_evaluations(dim: int) -> int:
        """Count the evaluations of the whole scan."""
        return _count_differences(dim) + 2 * dim * (POINTS_PER_LINE * SCAN_GENERATIONS + 1)

    def evaluations(self, state: LinkedLinesState, number: Array | int) -> Array | int:
        dim = state.bounds.dim
        combines = state.age > SCAN_GENERATIONS
        scanned = jnp.where(combines, 2 * dim, 2 * dim * POINTS_PER_LINE)
        return jnp.where(state.age == 0, _count_differences(dim), scanned)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> LinkedLinesState:
        dim, dtype = bounds.dim, bounds.lower.dtype
        center, zero = jnp.full(dim, 0.5, dtype), jnp.zeros((), dtype)
        x = self.place(difference_points(center), bounds)
        none = jnp.zeros(2 * dim, dtype)
        return LinkedLinesState(
            x, empty_population(x, shape), center, jnp.zeros((2 * dim, dim), dtype), none, none, zero,
            jnp.zeros((), jnp.int32), jnp.full((), RUNNING, jnp.int32), bounds,
        )  # fmt: skip

    def with_initial_points(self, state: LinkedLinesState, points: Array) -> LinkedLinesState:
        """The lines go through the first point."""
        center = (points[0] - state.bounds.lower) / state.bounds.span
        x = self.place(difference_points(center), state.bounds)
        return state._replace(candidates=x, parents=state.parents._replace(x=x), center=center)

    def place(self, unit: Array, bounds: Bounds) -> Array:
        """Return candidates for these points of the unit cube, with copies of the last one for those that lack."""
        missing = self.population - unit.shape[0]
        unit = jnp.concatenate([unit, jnp.broadcast_to(unit[-1], (missing, unit.shape[1]))])
        return jnp.clip(bounds.lower + bounds.span * unit, bounds.lower, bounds.upper)

    def step(self, key: Array, state: LinkedLinesState, evaluation: CandidateEvaluation) -> LinkedLinesState:
        """Find the lines, scan them, combine what was gained."""
        bounds, dim, center = state.bounds, state.bounds.dim, state.center
        samples = as_population(state.candidates, evaluation)
        values, unit = samples.fitness, (samples.x - bounds.lower) / bounds.span
        new, old = take_row(samples, best_index(samples)), take_row(state.parents, 0)
        parents = set_first(samples, tree_where(no_worse(new, old), new, old))
        is_first, combines = state.age == 0, state.age > SCAN_GENERATIONS

        hessian = estimate_hessian(values[: _count_differences(dim)], center.dtype)
        lines = jnp.where(is_first, find_lines(hessian), state.lines)
        value = jnp.where(is_first, values[0], state.value)
        is_sound = jnp.all(jnp.isfinite(lines))
        lines = jnp.where(is_sound, lines, 0)

        n_points = 2 * dim * POINTS_PER_LINE
        moves = (unit[:n_points] - center).reshape(2 * dim, POINTS_PER_LINE, dim)
        place = jnp.argmin(values[:n_points].reshape(2 * dim, POINTS_PER_LINE), axis=1)
        gains = value - jnp.min(values[:n_points].reshape(2 * dim, POINTS_PER_LINE), axis=1)
        gains = jnp.where(jnp.isnan(gains) | is_first | combines, -jnp.inf, gains)
        move = jnp.take_along_axis(moves, place[:, None, None], axis=1)[:, 0]
        steps = jnp.sum(move * lines, axis=1) / jnp.maximum(jnp.sum(lines**2, axis=1), 1e-30)
        better = gains > state.gains
        gains, steps = jnp.where(better, gains, state.gains), jnp.where(better, steps, state.steps)

        age = state.age + 1
        cells = jnp.arange(POINTS_PER_LINE) * SCAN_GENERATIONS + age - 1
        t = (cells + random.uniform(key, (2 * dim, POINTS_PER_LINE), center.dtype)) / cells_per_line()
        least, most = find_extent(center, lines)
        scan = center + (least[:, None] + (most - least)[:, None] * t)[:, :, None] * lines[:, None, :]
        combinations = combine_moves(center, lines * steps[:, None], gains)
        chosen = jnp.where(
            age > SCAN_GENERATIONS, self.place(combinations, bounds), self.place(scan.reshape(-1, dim), bounds)
        )

        eps = jnp.finfo(center.dtype).eps
        margin = MIN_GAIN_ULPS * eps * jnp.abs(value)
        combined = jnp.min(jnp.where(jnp.arange(self.population) < 2 * dim, values, jnp.inf))
        best_single = value - jnp.maximum(jnp.max(gains), 0)
        done = jnp.where(best_single < value - margin, STOP_CODES[Stop.ELSEWHERE], STOP_CODES[Stop.STALL])
        done = jnp.where(combined < best_single - margin, STOP_CODES[Stop.TOLERANCE], done)
        stop = jnp.where(combines, done, jnp.where(is_sound, RUNNING, STOP_CODES[Stop.STALL]))
        stop = stop.astype(jnp.int32)
        return LinkedLinesState(chosen, parents, center, lines, steps, gains, value, age, stop, bounds)

    def termination(self, state: LinkedLinesState, bounds: Bounds, tolerance: Array) -> Array:
        del bounds, tolerance
        return state.stop


def cells_per_line() -> int:
    return POINTS_PER_LINE * SCAN_GENERATIONS


def _count_differences(dim: int) -> int:
    return 1 + 2 * dim + dim * (dim - 1) // 2


def difference_step(dtype: jnp.dtype) -> float:
    return float(jnp.finfo(dtype).eps) ** 0.25


def difference_points(center: Array) -> Array:
    """Return the points whose values tell the Hessian: the center, one on either side of it along each variable, and
    one for each pair of variables.
    """
    dim, step = center.shape[0], difference_step(center.dtype)
    base = jnp.clip(center, step, 1 - step)
    moves = step * jnp.eye(dim, dtype=center.dtype)
    i, j = np.triu_indices(dim, 1)
    return jnp.concatenate([base[None], base + moves, base - moves, base + moves[i] + moves[j]])


def estimate_hessian(values: Array, dtype: jnp.dtype) -> Array:
    """Return the Hessian (d, d) from the values at `difference_points`."""
    n = values.shape[0]
    dim = round((np.sqrt(1 + 8 * n) - 3) / 2)
    step, value = difference_step(dtype), values[0]
    above, below, pairs = values[1 : dim + 1], values[dim + 1 : 2 * dim + 1], values[2 * dim + 1 :]
    i, j = np.triu_indices(dim, 1)
    mixed = (pairs - above[i] - above[j] + value) / step**2
    hessian = jnp.diag((above + below - 2 * value) / step**2)
    return hessian.at[i, j].set(mixed).at[j, i].set(mixed)


def find_lines(hessian: Array) -> Array:
    """Return the directions (2 d, d) of the lines, for the variables in the order of their interactions and in the
    opposite one; not finite if the Hessian is not positive definite.
    """
    scale = lax.rsqrt(jnp.diagonal(hessian))
    coupling = jnp.where(jnp.eye(hessian.shape[0], dtype=bool), 0, jnp.abs(hessian) * scale[:, None] * scale)
    is_sound = jnp.all(jnp.isfinite(coupling))
    coupling = jnp.where(is_sound, coupling, 0)
    laplacian = jnp.diag(jnp.sum(coupling, axis=1)) - coupling
    order = jnp.argsort(jnp.linalg.eigh(laplacian)[1][:, 1])
    lines = jnp.concatenate([follow_lines(hessian, order), follow_lines(hessian, order[::-1])])
    return jnp.where(is_sound, lines / jnp.max(jnp.abs(lines), axis=1, keepdims=True), jnp.nan)


def follow_lines(hessian: Array, order: Array) -> Array:
    """Return the columns of the inverse of J, H = J^T J, with J lower triangular for the variables in this order.

    Along column k the variables before k keep their values and those after it follow.
    """
    last_first = order[::-1]
    root = lax.linalg.cholesky(hessian[last_first][:, last_first])  # its transpose is J, in reversed order
    return jnp.zeros_like(hessian).at[:, last_first].set(invert_lower(root))


def find_extent(center: Array, lines: Array) -> tuple[Array, Array]:
    """Return the least and greatest step along each line (n, d) that stay in the unit cube."""
    moves = lines != 0
    to_lower, to_upper = (jnp.where(moves, (end - center) / jnp.where(moves, lines, 1), jnp.nan) for end in (0, 1))
    least = jnp.nanmax(jnp.minimum(to_lower, to_upper), axis=1)
    most = jnp.nanmin(jnp.maximum(to_lower, to_upper), axis=1)
    return jnp.nan_to_num(least), jnp.nan_to_num(most)  # 0 where there is no line


def combine_moves(center: Array, moves: Array, gains: Array) -> Array:
    """Return for each half of the moves (2 d, d) the center after the best of them, the best two, three, ..."""
    dim = center.shape[0]
    halves, gains = moves.reshape(2, dim, dim), gains.reshape(2, dim)
    order = jnp.argsort(-gains, axis=1)
    sorted_moves = jnp.take_along_axis(jnp.where(gains[:, :, None] > 0, halves, 0), order[:, :, None], axis=1)
    return (center + jnp.cumsum(sorted_moves, axis=1)).reshape(2 * dim, dim)
