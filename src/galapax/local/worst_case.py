"""Independent searches for the worst y of given x: what the answer of a min-max problem is checked by."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.core.interrupts import Interrupts
from galapax.core.problem import Bounds
from galapax.numerics import compile_cache, random
from galapax.operators.differential import best_1, evolve_generation, rand_1
from galapax.operators.sampling import sample_uniform

if TYPE_CHECKING:
    from galapax.objective.game import Game, TracedGame

SEARCHES_PER_X = 8  # for each x
POPULATION_SIZE = 100
MAX_GENERATIONS = 500  # at most, and more where there are more than ten variables
# a search has ended whose y are this close to each other, as a share of the box; by the bytes of a number
CONVERGED_SPREAD = {8: 1e-11, 4: 1e-6}
FLAT_SPREAD = 1e-5  # or this close and their values the same but for rounding, as around a smooth maximum
BATCH_SIZE = 4  # x that are checked at once; always as many, so that each comes out the same alone
AGREEMENT_TOLERANCE = 1e-3  # searches agree that end so close to the worst, relative to how far they spread over y


class Check(NamedTuple):
    """Of R runs: the worst case of each one's x, as far as it was found."""

    value: np.ndarray  # (R,); NaN where it was not looked for
    y: np.ndarray  # (R, dy)
    agreeing: np.ndarray  # (R,), the share of the searches that came to it
    settled: np.ndarray  # (R,) bool: more than one did
    pairs: np.ndarray  # (R,) evaluations that it took, of all checks of the run together

    @staticmethod
    def none(runs: int, dim: int) -> Check:
        """Before anything was checked."""
        unknown = np.full(runs, np.nan), np.full((runs, dim), np.nan)
        return Check(*unknown, np.zeros(runs), np.zeros(runs, bool), np.zeros(runs, np.int64))

    def put(self, rows: np.ndarray, new_check: Check) -> None:
        """What was found for these runs."""
        spent = self.pairs[rows] + new_check.pairs
        for column, new_column in zip(self, new_check, strict=True):
            column[rows] = new_column
        self.pairs[rows] = spent


def worst_cases(
    traced: TracedGame,
    x: np.ndarray,
    opponents: np.ndarray,
    box: Bounds,
    seed: int,
    numbers: np.ndarray,
    interrupts: Interrupts,
) -> Check:
    """The worst y for each x (R, dx), by searches from scratch; or the worst of the opponents (R, dy, k), should one of
    them be worse. numbers: of the runs, (R,). Ctrl-C ends it; runs not reached have the worst opponent.
    """
    runs = len(x)
    keys = np.concatenate([random.run_keys(seed, 2**31 + int(n), 1) for n in numbers])
    check = Check.none(runs, box.dim)
    for start in range(0, runs, BATCH_SIZE):
        rows = np.minimum(np.arange(start, start + BATCH_SIZE), runs - 1)
        batch_arguments = (traced.consts, x[rows], opponents[rows], box, keys[rows])
        n_generations = 0 if interrupts.seen else MAX_GENERATIONS * max(1, box.dim // 10)
        values, y, pairs = jax.device_get(compile_cache.call(_search, (traced.game, n_generations), *batch_arguments))
        for i, row in enumerate(rows[: min(BATCH_SIZE, runs - start)]):
            best = int(np.argmax(values[i]))
            check.value[row], check.y[row], check.pairs[row] = values[i, best], y[i, best], int(pairs[i])
            agrees = values[i, 1:] >= _agreement_threshold(values[i])
            check.agreeing[row], check.settled[row] = agrees.mean(), agrees.sum() > 1
    return check


def _agreement_threshold(values: np.ndarray) -> float:
    """What counts as the largest of some values: as close to it as NEAR says, of its size or of their spread."""
    largest, finite = float(values.max()), values[np.isfinite(values)]
    if not np.isfinite(largest) or not finite.size:
        return largest
    return largest - AGREEMENT_TOLERANCE * max(abs(largest), float(np.ptp(finite)), 1e-6)


def _search(
    game: Game, generations: int, consts: Any, x: Array, opponents: Array, box: Bounds, keys: Array
) -> tuple[Array, Array, Array]:
    """For each x (k, dx) the worst values found, first among its opponents and then by each search; their y; and how
    many pairs were evaluated for it.
    """

    def one(x: Array, opponents: Array, key: Array) -> tuple[Array, Array, Array]:
        values = game(consts, x[None], opponents.T)[0]
        values = jnp.where(jnp.isnan(values), -jnp.inf, values)
        y, worst, made = jax.vmap(lambda i: _one_search(game, generations, consts, x, box, random.fold_in(key, i), i))(
            jnp.arange(SEARCHES_PER_X)
        )
        met = jnp.argmax(values)
        every = jnp.append(values[met][None], worst), jnp.concatenate([opponents[:, met][None], y])
        return *every, opponents.shape[1] + POPULATION_SIZE * jnp.sum(made)

    return jax.vmap(one)(x, opponents, keys)


def _one_search(
    game: Game, generations: int, consts: Any, x: Array, box: Bounds, key: Array, number: Array
) -> tuple[Array, Array, Array]:
    """The y that maximises against x (dx,), by differential evolution from scratch; its value; and how many
    populations were evaluated.

    Half of the searches follow their best, which is what gets on in many variables.
    """

    def worth(y: Array) -> Array:
        values = game(consts, x[None], y)[0]
        return jnp.where(jnp.isnan(values), jnp.inf, -values)

    def mutation(key: Array, parents: Any, weight: Any) -> Array:
        return jnp.where(number % 2 == 0, rand_1(key, parents, weight), best_1(key, parents, weight))

    first = sample_uniform(random.fold_in(key, generations), box, POPULATION_SIZE)
    if 2**box.dim <= POPULATION_SIZE // 2:  # the worst case is often a corner
        first = jnp.concatenate([box.lower + box.span * corners(box.dim), first])[:POPULATION_SIZE]
    rows = jnp.concatenate([first, worth(first)[:, None]], axis=1)
    float_info = jnp.finfo(box.lower.dtype)

    def is_running(both: tuple[Array, Array]) -> Array:
        generation, rows = both
        wide = jnp.max(jnp.ptp(rows[:, :-1], axis=0) / box.span)
        level = jnp.ptp(rows[:, -1]) <= 8 * float_info.eps * jnp.max(jnp.abs(rows[:, -1]))
        return (generation < generations) & (
            wide > jnp.where(level, FLAT_SPREAD, CONVERGED_SPREAD[float_info.bits // 8])
        )

    def evolve(both: tuple[Array, Array]) -> tuple[Array, Array]:
        i, rows = both
        return i + 1, evolve_generation(random.fold_in(key, i), rows, worth, box, mutation, 0.5, 0.9)

    generation, rows = lax.while_loop(is_running, evolve, (jnp.int32(0), rows))
    best = jnp.argmin(rows[:, -1])
    return rows[best, :-1], -rows[best, -1], generation + 1


def corners(dim: int) -> np.ndarray:
    """The corners of the unit cube, (2**dim, dim)."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=dim)))
