"""CMA-MAE: CMA-ES searches that look for solutions better than a threshold in each cell of a grid over measures.

Fontaine & Nikolaidis (2023), Covariance matrix adaptation MAP-annealing, GECCO, 456-465, arXiv:2205.10752. The
threshold of a cell rises slowly with what is found there: at first the searches spread over the cells, as every one
pays; later they improve the elites. With a learning rate of 1 this is CMA-ME, with 0 plain CMA-ES.

Differs from the paper: the box is scaled to the unit cube; the first threshold is the worst value of the first
candidates unless it is given; a search restarts from an elite when its distribution has become too narrow or too long.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.algorithms.cmaes import CMAES, MAX_CONDITION, CMAESState
from galapax.algorithms.map_elites import MeasureGrid, best_elite, draw_elites, empty_archive, find_entrants, insert
from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Traits,
    static,
)
from galapax.core.checks import check_integer, check_positive, check_range
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population
from galapax.numerics import random

RESTART_WIDTH = 1e-10  # of a distribution, as a share of the box; a narrower one starts again
MIN_SAMPLES = 4  # whose better half updates a distribution


class CMAMAEState(NamedTuple):
    candidates: Array  # (e * n, d), of all searches
    parents: Population  # the archive, a row for each cell; +inf where it is empty
    thresholds: Array  # (cells,), a candidate must be better
    searches: CMAESState  # (e, ...)
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CMAMAE(Algorithm[CMAMAEState]):
    """Covariance matrix adaptation MAP-annealing, for `gx.illuminate`.

    searches: number of CMA-ES searches; emitters in the paper.
    samples: candidates of each search in a generation.
    cells: number of cells along each measure. ranges: (low, high) of each measure.
    learning_rate: how fast the threshold of a cell follows what is found there, alpha in the paper.
    worst: the first threshold, min_f in the paper; by default the worst value of the first candidates.
    sigma0: standard deviation of the first samples, as a share of the box.
    """

    searches: int = static(15)
    samples: int = static(36)
    cells: tuple[int, ...] = static((100, 100))
    ranges: tuple[tuple[float, float], ...] = static(((0.0, 1.0), (0.0, 1.0)))
    learning_rate: float = 0.01
    worst: float | None = None
    sigma0: float = 0.05
    search: CMAES | None = None  # follows from the others

    traits: ClassVar[Traits] = Traits(multi_objective=True, rounds_discrete=False)

    @property
    def grid(self) -> MeasureGrid:
        return MeasureGrid(self.cells, self.ranges)

    @property
    def population(self) -> int:
        return self.searches * self.samples

    def validate(self) -> None:
        check_integer(self.searches, "searches", 1)
        check_integer(self.samples, "samples", MIN_SAMPLES, "the better half of the samples updates a distribution")
        self.grid.validate()
        check_range(self.learning_rate, "learning_rate", 0.0, 1.0)
        check_positive(self.sigma0, "sigma0")

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        search = CMAES(population=self.samples, sigma0=self.sigma0)
        return dataclasses.replace(self, search=search.bind(dim, shape, budget))

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> CMAMAEState:
        assert self.search is not None
        search, inner = self.search, shape._replace(objectives=1)
        searches = jax.vmap(lambda key: search.init(key, bounds, inner))(_number(key, self.searches))
        first = jnp.inf if self.worst is None else self.worst
        thresholds = jnp.full(self.grid.size, first, bounds.lower.dtype)
        return CMAMAEState(
            _join(searches.candidates), empty_archive(self.grid, bounds, shape), thresholds, searches, bounds
        )

    def with_initial_points(self, state: CMAMAEState, points: Array) -> CMAMAEState:
        """The searches begin at these points in turn."""
        search, bounds = self.search, state.bounds
        assert search is not None
        starts = points[jnp.arange(self.searches) % points.shape[0]]
        now = state.searches.now._replace(mean=(starts - bounds.lower) / bounds.span)
        x = jax.vmap(lambda now, normals: search.place(now, normals, bounds))(now, state.searches.normals)
        return state._replace(candidates=_join(x), searches=state.searches._replace(candidates=x, now=now))

    def start(self, state: CMAMAEState, evaluation: CandidateEvaluation, shape: Shape) -> CMAMAEState:
        if self.worst is not None:
            return state
        values = evaluation.fitness
        worst = jnp.max(jnp.where(jnp.isfinite(values), values, -jnp.inf))
        return state._replace(
            thresholds=jnp.full_like(state.thresholds, jnp.where(jnp.isfinite(worst), worst, jnp.inf))
        )

    def step(self, key: Array, state: CMAMAEState, evaluation: CandidateEvaluation) -> CMAMAEState:
        """Insert the candidates, raise thresholds, and let each search learn from what its samples gained."""
        new, bounds, search = as_population(state.candidates, evaluation), state.bounds, self.search
        assert search is not None
        cell, enters = find_entrants(self.grid, new, state.parents.fitness)
        threshold = state.thresholds[jnp.minimum(cell, self.grid.size - 1)]
        loss = jnp.where(cell < self.grid.size, new.fitness - threshold, jnp.inf)
        archive = insert(state.parents, new, cell, enters)
        thresholds = self._raise_thresholds(state.thresholds, cell, new.fitness, loss < 0)
        gains = CandidateEvaluation(loss[:, None], evaluation.violation, evaluation.failed)
        gains = jax.tree.map(self._divide, gains)
        searches = state.searches._replace(candidates=self._divide(state.candidates))
        searches = jax.vmap(search.step)(_number(key, self.searches), searches, gains)
        is_done = jax.vmap(self._is_done)(searches)
        boxes = searches.bounds
        searches = lax.cond(
            jnp.any(is_done),
            lambda old: self._restart(random.fold_in(key, self.searches), old, is_done, archive, bounds),
            lambda old: old,
            searches,
        )._replace(bounds=boxes)  # which the runs share, and so may not come out of a choice
        return CMAMAEState(_join(searches.candidates), archive, thresholds, searches, bounds)

    def solutions(self, state: CMAMAEState) -> Population:
        return best_elite(state.parents)

    def _divide(self, rows: Array) -> Array:
        """Divide rows (e * n, ...) among the searches, (e, n, ...)."""
        return rows.reshape(self.searches, self.samples, *rows.shape[1:])

    def _raise_thresholds(self, thresholds: Array, cell: Array, fitness: Array, is_better: Array) -> Array:
        """Move the threshold of each cell towards the mean of what is better there, once for each such candidate."""
        place = jnp.where(is_better, cell, self.grid.size)
        count = jnp.zeros_like(thresholds).at[place].add(1, mode="drop")
        total = jnp.zeros_like(thresholds).at[place].add(jnp.where(is_better, fitness, 0), mode="drop")
        share = (1 - jnp.asarray(self.learning_rate, thresholds.dtype)) ** count
        raised = share * thresholds + (1 - share) * total / jnp.maximum(count, 1)
        return jnp.where((count > 0) & jnp.isfinite(raised), raised, thresholds)

    def _is_done(self, search: CMAESState) -> Array:
        """Whether a distribution is too narrow, too long, or no distribution."""
        now = search.now
        diagonal = now.root if now.root.ndim == 1 else jnp.diagonal(now.root)
        narrow = now.step * jnp.max(diagonal) < RESTART_WIDTH
        long = jnp.max(diagonal) > math.sqrt(MAX_CONDITION) * jnp.min(diagonal)
        return narrow | long | ~jnp.isfinite(now.step)

    def _restart(
        self, key: Array, searches: CMAESState, is_done: Array, archive: Population, bounds: Bounds
    ) -> CMAESState:
        """Begin the searches that are done again, around elites."""
        search = self.search
        assert search is not None

        def begin(key: Array, elite: Array, old: CMAESState) -> CMAESState:
            fresh = search.init(key, bounds)
            now = fresh.now._replace(mean=(elite - bounds.lower) / bounds.span)
            x, normals = search.sample(random.fold_in(key, 1), now, bounds)
            return fresh._replace(candidates=x, normals=normals, now=now, parents=old.parents)

        elites = draw_elites(random.fold_in(key, self.searches), archive, bounds, self.searches)
        fresh = jax.vmap(begin)(_number(key, self.searches), elites, searches)
        return jax.tree.map(
            lambda new, old: jnp.where(is_done.reshape((-1,) + (1,) * (new.ndim - 1)), new, old), fresh, searches
        )


def _join(rows: Array) -> Array:
    return rows.reshape(-1, rows.shape[-1])


def _number(key: Array, count: int) -> Array:
    """Return so many keys derived from one, (count, 2)."""
    return jax.vmap(lambda i: random.fold_in(key, i))(jnp.arange(count))
