"""Independent searches for the worst y at given x, which check the answer of a min-max problem."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.evaluation import Population
from galapax.core.interrupts import Interrupts
from galapax.core.problem import Bounds
from galapax.numerics import compile_cache, random
from galapax.operators.differential import best_1, evolve_generation, rand_1
from galapax.operators.sampling import sample_uniform

if TYPE_CHECKING:
    from galapax.objective.game import Game, TracedGame
    from galapax.objective.hoist_constants import Constants

SEARCHES_PER_X = 8
POPULATION_SIZE = 100
MAX_GENERATIONS = 500  # for up to ten variables of y, proportionally more for more
# a search ends when its y lie within this share of the box, by bytes of the dtype
CONVERGED_SPREAD = {8: 1e-11, 4: 1e-6}
FLAT_SPREAD = 1e-5  # the same if their values are equal to rounding, as around a smooth maximum
BATCH_SIZE = 4  # x that are checked at once; a fixed number, so that each result is the same alone
AGREEMENT_TOLERANCE = 1e-3  # relative difference from the worst value within which searches agree


class WorstCaseCheck(NamedTuple):
    """The worst case found for the x of each of R runs."""

    value: np.ndarray  # (R,); NaN if it was not searched
    y: np.ndarray  # (R, dy)
    agreeing: np.ndarray  # (R,), share of the searches that found it
    is_confirmed: np.ndarray  # (R,) bool: more than one found it
    n_pairs: np.ndarray  # (R,) evaluations of all checks of the run

    @staticmethod
    def empty(runs: int, dim: int) -> WorstCaseCheck:
        """Create the table before anything is checked."""
        value, y = np.full(runs, np.nan), np.full((runs, dim), np.nan)
        return WorstCaseCheck(value, y, np.zeros(runs), np.zeros(runs, bool), np.zeros(runs, np.int64))

    def update_rows(self, rows: np.ndarray, new_check: WorstCaseCheck) -> None:
        """Replace the results of these runs, and add up the evaluations."""
        n_pairs = self.n_pairs[rows] + new_check.n_pairs
        for column, new_column in zip(self, new_check, strict=True):
            column[rows] = new_column
        self.n_pairs[rows] = n_pairs


def find_worst_cases(
    traced: TracedGame,
    x: np.ndarray,
    opponents: np.ndarray,
    box: Bounds,
    seed: int,
    numbers: np.ndarray,
    interrupts: Interrupts,
) -> WorstCaseCheck:
    """Search the worst y for each x (R, dx) from scratch; the worst opponent of (R, dy, k) counts if it is worse.

    numbers: of the runs, (R,). After Ctrl-C the remaining runs have their worst opponent.
    """
    runs = len(x)
    keys = np.concatenate([random.run_keys(seed, 2**31 + int(n), 1) for n in numbers])
    check = WorstCaseCheck.empty(runs, box.dim)
    for start in range(0, runs, BATCH_SIZE):
        rows = np.minimum(np.arange(start, start + BATCH_SIZE), runs - 1)
        batch_arguments = (traced.consts, x[rows], opponents[rows], box, keys[rows])
        n_generations = 0 if interrupts.seen else MAX_GENERATIONS * max(1, box.dim // 10)
        values, y, pairs = jax.device_get(compile_cache.call(_search, (traced.game, n_generations), *batch_arguments))
        for i, row in enumerate(rows[: min(BATCH_SIZE, runs - start)]):
            best = int(np.argmax(values[i]))
            check.value[row], check.y[row], check.n_pairs[row] = values[i, best], y[i, best], int(pairs[i])
            agrees = values[i, 1:] >= _agreement_threshold(values[i])
            check.agreeing[row], check.is_confirmed[row] = agrees.mean(), agrees.sum() > 1
    return check


def _agreement_threshold(values: np.ndarray) -> float:
    """Return the least value that agrees with the largest one, relative to its size or to the range of the values."""
    largest, finite = float(values.max()), values[np.isfinite(values)]
    if not np.isfinite(largest) or not finite.size:
        return largest
    return largest - AGREEMENT_TOLERANCE * max(abs(largest), float(np.ptp(finite)), 1e-6)


def _search(
    game: Game, generations: int, consts: Constants, x: Array, opponents: Array, box: Bounds, keys: Array
) -> tuple[Array, Array, Array]:
    """Return, for each x (k, dx), the worst values of its opponents and of each search, their y, and the
    evaluations.
    """

    def search_x(x: Array, opponents: Array, key: Array) -> tuple[Array, Array, Array]:
        values = game(consts, x[None], opponents.T)[0]
        values = jnp.where(jnp.isnan(values), -jnp.inf, values)
        y, worst, n_populations = jax.vmap(
            lambda i: _maximize_over_y(game, generations, consts, x, box, random.fold_in(key, i), i)
        )(jnp.arange(SEARCHES_PER_X))
        worst_opponent = jnp.argmax(values)
        all_values = jnp.append(values[worst_opponent][None], worst)
        all_y = jnp.concatenate([opponents[:, worst_opponent][None], y])
        return all_values, all_y, opponents.shape[1] + POPULATION_SIZE * jnp.sum(n_populations)

    return jax.vmap(search_x)(x, opponents, keys)


def _maximize_over_y(
    game: Game, generations: int, consts: Constants, x: Array, box: Bounds, key: Array, number: Array
) -> tuple[Array, Array, Array]:
    """Maximise over y for one x (dx,) by differential evolution; return y, its value and the populations evaluated.

    Half of the searches use DE/best/1, which is faster in many variables.
    """

    def loss(y: Array) -> Array:
        values = game(consts, x[None], y)[0]
        return jnp.where(jnp.isnan(values), jnp.inf, -values)

    def mutation(key: Array, parents: Population, weight: ArrayLike) -> Array:
        return jnp.where(number % 2 == 0, rand_1(key, parents, weight), best_1(key, parents, weight))

    first = sample_uniform(random.fold_in(key, generations), box, POPULATION_SIZE)
    if 2**box.dim <= POPULATION_SIZE // 2:  # the worst case is often a corner
        first = jnp.concatenate([box.lower + box.span * corners(box.dim), first])[:POPULATION_SIZE]
    rows = jnp.concatenate([first, loss(first)[:, None]], axis=1)
    float_info = jnp.finfo(box.lower.dtype)

    def is_running(carry: tuple[Array, Array]) -> Array:
        generation, rows = carry
        width = jnp.max(jnp.ptp(rows[:, :-1], axis=0) / box.span)
        is_flat = jnp.ptp(rows[:, -1]) <= 8 * float_info.eps * jnp.max(jnp.abs(rows[:, -1]))
        return (generation < generations) & (
            width > jnp.where(is_flat, FLAT_SPREAD, CONVERGED_SPREAD[float_info.bits // 8])
        )

    def evolve(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        i, rows = carry
        return i + 1, evolve_generation(random.fold_in(key, i), rows, loss, box, mutation, 0.5, 0.9)

    generation, rows = lax.while_loop(is_running, evolve, (jnp.int32(0), rows))
    best = jnp.argmin(rows[:, -1])
    return rows[best, :-1], -rows[best, -1], generation + 1


def corners(dim: int) -> np.ndarray:
    """Return the corners of the unit cube, (2**dim, dim)."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=dim)))
