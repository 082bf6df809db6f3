"""MAP-Elites: of many kinds of solutions the best of each, in a grid over what they are like.

Mouret & Clune (2015), Illuminating search spaces by mapping elites, arXiv:1504.04909; variation by line and isotropic
noise after Vassiliades & Mouret (2018), GECCO, 149-156, doi:10.1145/3205455.3205602.

The objective gives its value and then the measures of a solution, which say in which cell of the grid it lies. A
solution beyond the ranges belongs to the cell at the border. Differs from the papers: of several candidates for a cell
the best enters, so that their order does not matter; an infeasible or failed one enters nowhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.algorithm import Algorithm, Traits, static
from galapax.core.checks import check_integer, check_positive
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import best_index, take_row

MAX_CELLS = 2**24  # more would not fit into memory with their solutions


@dataclass(frozen=True)
class MeasureGrid:
    """Cells over the measures: `cells` along each, between the limits of its range.

    cells: (k,) integers. ranges: (k,) pairs (low, high).
    """

    cells: tuple[int, ...]
    ranges: tuple[tuple[float, float], ...]

    @property
    def size(self) -> int:
        return math.prod(self.cells)

    def validate(self) -> None:
        if len(self.cells) != len(self.ranges):
            raise InputError(
                f"cells and ranges must have an entry for each measure, got {len(self.cells)} and {len(self.ranges)}."
            )
        for count in self.cells:
            check_integer(count, "cells", 1)
        if self.size > MAX_CELLS:
            raise InputError(f"a grid of {self.size:,} cells is too large: at most {MAX_CELLS:,} cells.")
        for low, high in self.ranges:
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise InputError(f"each range must be a pair (low, high) of finite numbers, got ({low}, {high}).")

    def index(self, measures: Array) -> Array:
        """Return the numbers of the cells in which measures (n, k) lie, (n,); of NaN the number of cells."""
        low, high = (jnp.asarray(np.array(self.ranges)[:, i], measures.dtype) for i in (0, 1))
        cells = jnp.asarray(self.cells, jnp.int32)
        place = jnp.floor((measures - low) / (high - low) * cells.astype(measures.dtype))
        place = jnp.clip(jnp.nan_to_num(place), 0, cells - 1).astype(jnp.int32)
        strides = jnp.asarray([math.prod(self.cells[i + 1 :]) for i in range(len(self.cells))], jnp.int32)
        return jnp.where(jnp.any(jnp.isnan(measures), axis=1), self.size, jnp.sum(place * strides, axis=1))


def find_entrants(grid: MeasureGrid, new: Population, least: Array) -> tuple[Array, Array]:
    """Return the cell of each candidate, and whether it is the best of its cell and better than `least` (cells,) there.

    new: objectives (n, 1 + k), value and measures.
    """
    fitness, rows = new.fitness, jnp.arange(new.fitness.shape[0], dtype=jnp.int32)
    cell = grid.index(new.objectives[:, 1:])
    feasible = jnp.isfinite(fitness) if new.violation is None else jnp.isfinite(fitness) & (new.violation <= 0)
    cell = jnp.where(feasible, cell, grid.size)  # one that no cell has is dropped
    best = least.at[cell].min(fitness, mode="drop")
    is_best = feasible & (fitness < least[jnp.minimum(cell, grid.size - 1)]) & (fitness == best[cell])
    # of equal ones the first
    first = jnp.full(grid.size, rows.shape[0], jnp.int32).at[jnp.where(is_best, cell, grid.size)].min(rows, mode="drop")
    return cell, is_best & (first[jnp.minimum(cell, grid.size - 1)] == rows)


def insert(archive: Population, new: Population, cell: Array, enters: Array) -> Population:
    """Put the candidates that enter into their cells, in the place of the elites there."""
    place = jnp.where(enters, cell, archive.fitness.shape[0])
    return jax.tree.map(lambda old, rows: old.at[place].set(rows, mode="drop"), archive, new)


def draw_elites(key: Array, archive: Population, bounds: Bounds, n: int) -> Array:
    """Draw n elites evenly, (n, d); points of the box while there are none."""
    key_row, key_point = random.split(key)
    is_filled = jnp.isfinite(archive.fitness)
    order = jnp.cumsum(is_filled.astype(jnp.int32))
    place = random.scale_to(random.bits(key_row, (n,)), order[-1]).astype(jnp.int32)
    rows = jnp.searchsorted(order, place, side="right")
    return jnp.where(order[-1] > 0, archive.x[rows], sample_uniform(key_point, bounds, n))


class MAPElitesState(NamedTuple):
    candidates: Array  # (n, d), waiting for their evaluation
    parents: Population  # the archive, a row for each cell; +inf where it is empty, and x any point of the box
    filled: Array  # (cells,) int32, numbers of the cells that have an elite, in the order in which they got one
    n_filled: Array  # int32
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MAPElites(Algorithm[MAPElitesState]):
    """MAP-Elites with the variation operator "iso+line", for `gx.illuminate`.

    population: candidates of a generation.
    cells: number of cells along each measure. ranges: (low, high) of each measure.
    iso: standard deviation of the isotropic noise, as a share of the box; sigma_1 in the paper.
    line: standard deviation along the line to another elite, in its length; sigma_2 in the paper.
    """

    population: int = static(512)
    cells: tuple[int, ...] = static((100, 100))
    ranges: tuple[tuple[float, float], ...] = static(((0.0, 1.0), (0.0, 1.0)))
    iso: float = 0.01
    line: float = 0.2

    traits: ClassVar[Traits] = Traits(multi_objective=True)

    @property
    def grid(self) -> MeasureGrid:
        return MeasureGrid(self.cells, self.ranges)

    def validate(self) -> None:
        check_integer(self.population, "population", 1)
        self.grid.validate()
        check_positive(self.iso, "iso")
        check_positive(self.line, "line")

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> MAPElitesState:
        key_candidates, key_cells = random.split(key)
        size = self.grid.size
        archive = empty_population(sample_uniform(key_cells, bounds, size), shape)
        candidates = sample_uniform(key_candidates, bounds, self.population)
        return MAPElitesState(candidates, archive, jnp.arange(size, dtype=jnp.int32), jnp.int32(0), bounds)

    def with_initial_points(self, state: MAPElitesState, points: Array) -> MAPElitesState:
        return state._replace(candidates=jnp.concatenate([points, state.candidates[points.shape[0] :]]))

    def step(self, key: Array, state: MAPElitesState, evaluation: CandidateEvaluation) -> MAPElitesState:
        """Insert the candidates, then vary elites by noise and along the line to another one."""
        bounds, n, grid = state.bounds, self.population, self.grid
        new = as_population(state.candidates, evaluation)
        cell, enters = find_entrants(grid, new, state.parents.fitness)
        is_first = enters & jnp.isinf(state.parents.fitness[jnp.minimum(cell, grid.size - 1)])
        position = state.n_filled + jnp.cumsum(is_first, dtype=jnp.int32) - 1
        places = jnp.where(is_first, position, grid.size)
        filled = state.filled.at[places].set(cell.astype(jnp.int32), mode="drop")
        n_filled = state.n_filled + jnp.sum(is_first, dtype=jnp.int32)
        archive = insert(state.parents, new, cell, enters)
        key_elites, key_noise, key_line = random.split(key, 3)
        # while there is no elite, any point of the box
        choices = jnp.where(n_filled > 0, n_filled, grid.size)
        first, second = jnp.split(archive.x[filled[random.scale_to(random.bits(key_elites, (2 * n,)), choices)]], 2)
        noise = self.iso * bounds.span * random.normal(key_noise, first.shape, first.dtype)
        along = self.line * random.normal(key_line, (n, 1), first.dtype)
        x = first + noise + along * (second - first)
        return MAPElitesState(jnp.clip(x, bounds.lower, bounds.upper), archive, filled, n_filled, bounds)

    def solutions(self, state: MAPElitesState) -> Population:
        return best_elite(state.parents)


def empty_archive(grid: MeasureGrid, bounds: Bounds, shape: Shape) -> Population:
    return empty_population(jnp.broadcast_to(bounds.lower, (grid.size, bounds.dim)), shape)


def best_elite(archive: Population) -> Population:
    """The archive's best elite: a population of one."""
    return take_row(archive, best_index(archive))
