"""Nelder-Mead simplex search, one point at a time, for black boxes with few evaluations.

Nelder & Mead (1965), The Computer Journal 7(4):308-313, doi:10.1093/comjnl/7.4.308, in the form of Lagarias, Reeds,
Wright & Wright (1998), SIAM J. Optim. 9(1):112-147, doi:10.1137/S1052623496303470.

Differs from the papers: points are clipped to the box, and the first simplex is built around the best of d + 1 random
points, a fifth of the box wide. The portfolio uses it. It evaluates one point after another, so it has no use for
parallel evaluations, and it is not registered by name.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import Algorithm, Budget, Traits, static
from galapax.core.evaluation import Evaluation, Population, Shape, as_population, empty_population
from galapax.core.problem import Bounds
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.operators.pairwise import argsort_rows
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import no_worse, take, take_row, tree_where

BEGIN, REFLECT, EXPAND, OUTSIDE, INSIDE, SHRINK = range(6)  # the move whose candidates wait for their evaluation
# step from the centroid away from the worst point: rho = 1, rho chi = 2, rho gamma = 0.5, -gamma = -0.5
MOVE_FACTORS = (0.0, 1.0, 2.0, 0.5, -0.5, 0.0)
CONVERGED_WIDTH = 1e-7  # share of the box: a simplex narrower than this has converged


class NelderMeadState(NamedTuple):
    candidates: Array  # (d + 1, d), the first of which wait for their evaluation
    parents: Population  # the simplex, the best first
    reflected: Population  # (1, ...) the reflected point, which an outside contraction must not exceed
    stage: Array  # int32, the move that waits
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NelderMead(Algorithm[NelderMeadState]):
    """Nelder-Mead simplex search, with rho = 1, chi = 2, gamma = sigma = 0.5 of Lagarias et al.

    population: number of points of the simplex, d + 1.
    spread: edge length of the first simplex, as a share of the box.
    """

    population: int = static(None)
    spread: float = 0.2

    traits: ClassVar[Traits] = Traits(fixed_evaluations=False, fast_compile=True, termination_every=1)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        return dataclasses.replace(self, population=dim + 1)

    def evaluations(self, state: NelderMeadState, number: Any) -> Any:
        count = jnp.where(state.stage == BEGIN, self.population, self.population - 1)
        return jnp.where((state.stage == BEGIN) | (state.stage == SHRINK), count, 1)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> NelderMeadState:
        x = sample_uniform(key, bounds, self.population)
        parents = empty_population(x, shape)
        return NelderMeadState(x, parents, take_row(parents, 0), jnp.int32(BEGIN), bounds)

    def step(self, key: Array, state: NelderMeadState, evaluation: Evaluation) -> NelderMeadState:
        """Accept or reject the evaluated point, and choose the next move."""
        stage, simplex_before, n = state.stage, state.parents, self.population
        trials = as_population(state.candidates, evaluation)
        new, is_reflection = take_row(trials, 0), stage == REFLECT
        best, second_worst, worst = (take_row(simplex_before, row) for row in (0, n - 2, n - 1))
        beats_best, beats_second_worst, beats_worst = (~no_worse(row, new)[0] for row in (best, second_worst, worst))
        outside_accepted = (stage == OUTSIDE) & no_worse(new, state.reflected)[0]
        contraction_accepted = outside_accepted | ((stage == INSIDE) & beats_worst)
        is_accepted = (is_reflection & beats_second_worst) | contraction_accepted
        simplex = tree_where(jnp.full(n, stage == BEGIN), trials, simplex_before)
        simplex = tree_where((jnp.arange(n) > 0) & (stage == SHRINK), _shift_rows(trials), simplex)
        simplex = tree_where((jnp.arange(n) == n - 1) & is_accepted, new, simplex)
        # a reflected point that is the best is in the simplex already; a better expanded one replaces it
        simplex = tree_where((jnp.arange(n) == 0) & (stage == EXPAND) & beats_best, new, simplex)
        simplex = take(argsort_rows(*_sort_keys(simplex)), simplex)
        next_stage = jnp.where(is_reflection & ~beats_second_worst, jnp.where(beats_worst, OUTSIDE, INSIDE), REFLECT)
        next_stage = jnp.where(is_reflection & beats_best, EXPAND, next_stage)
        is_contraction = (stage == OUTSIDE) | (stage == INSIDE)
        next_stage = jnp.where(is_contraction & ~contraction_accepted, SHRINK, next_stage).astype(jnp.int32)
        next_stage = jnp.where(stage == BEGIN, SHRINK, next_stage)  # the first simplex is evaluated like a shrunk one
        corners = jnp.where(next_stage == EXPAND, simplex_before.x, simplex.x)
        x = self.propose(corners, next_stage, state.bounds)
        x = jnp.where(stage == BEGIN, self.first_simplex(simplex.x[0], state.bounds), x)
        reflected = tree_where(is_reflection[None], new, state.reflected)
        return NelderMeadState(x, simplex, reflected, next_stage, state.bounds)

    def first_simplex(self, x: Array, bounds: Bounds) -> Array:
        """Build the first simplex (d + 1, d): x moved in one variable each, into the box, and x itself last."""
        step = self.spread * bounds.span
        offset = jnp.where(x + step > bounds.upper, -step, step)
        return jnp.concatenate([jnp.clip(x + jnp.diag(offset), bounds.lower, bounds.upper), x[None]])

    def propose(self, x: Array, stage: Array, bounds: Bounds) -> Array:
        """Compute the candidates of a move from a simplex (d + 1, d), the worst point last."""
        centroid = jnp.mean(x[:-1], axis=0)
        trial = centroid + jnp.asarray(MOVE_FACTORS, x.dtype)[stage] * (centroid - x[-1])
        shrunk = jnp.concatenate([x[0] + (x[1:] - x[0]) / 2, x[:1]])
        candidates = jnp.where(stage == SHRINK, shrunk, jnp.broadcast_to(trial, x.shape))
        return jnp.clip(candidates, bounds.lower, bounds.upper)

    def termination(self, state: NelderMeadState, bounds: Bounds, tolerance: Array) -> Array:
        width = jnp.max((jnp.max(state.parents.x, axis=0) - jnp.min(state.parents.x, axis=0)) / bounds.span)
        is_narrow = (state.stage != BEGIN) & (width <= jnp.maximum(tolerance, CONVERGED_WIDTH))
        return jnp.where(is_narrow, STOP_CODES[Stop.TOLERANCE], RUNNING)


def _sort_keys(population: Population) -> list[Array]:
    """Return the keys by which individuals are sorted, the best first."""
    by_value = [population.fitness]
    return by_value if population.violation is None else [population.violation, *by_value]


def _shift_rows(population: Population) -> Population:
    """Move each individual to the next row."""
    return jax.tree.map(lambda a: jnp.roll(a, 1, axis=0), population)
