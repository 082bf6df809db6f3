"""The simplex search of Nelder and Mead: a point at a time, for black boxes of which few evaluations can be had.

Nelder & Mead (1965), The Computer Journal 7(4):308-313, doi:10.1093/comjnl/7.4.308, in the form of Lagarias, Reeds,
Wright & Wright (1998), SIAM J. Optim. 9(1):112-147, doi:10.1137/S1052623496303470.

Differs from the papers: points are clipped to the box, and the first simplex is around the best of d + 1 points drawn
from the box, a fifth of it wide, or around a starting point, a twentieth of it wide. The portfolio makes searches of
it; as it evaluates one point after another, it is no use where several can be evaluated at once, and it is not among
the algorithms that have names.
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

BEGIN, REFLECT, EXPAND, OUTSIDE, INSIDE, SHRINK, SIMPLEX = range(7)  # what waits for its evaluation
REACH = (0.0, 1.0, 2.0, 0.5, -0.5, 0.0, 0.0)  # from the centroid, away from the worst point
START_SPREAD = 0.05  # share of the box, between the points of a first simplex around a starting point
CONVERGED_WIDTH = 1e-7  # share of the box: a simplex so narrow has converged


class NelderMeadState(NamedTuple):
    candidates: Array  # (d + 1, d), of which the first ones wait for their evaluation
    parents: Population  # the simplex, the best first
    reflected: Population  # (1, ...) what a contraction must not be worse than
    stage: Array  # int32, what waits
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NelderMead(Algorithm[NelderMeadState]):
    """A simplex that walks downhill.

    population: its points, one more than there are variables.
    spread: distance of the first ones, as a share of the box.
    """

    population: int = static(None)
    spread: float = 0.2

    traits: ClassVar[Traits] = Traits(fixed_evaluations=False, fast_compile=True, termination_every=1)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        return dataclasses.replace(self, population=dim + 1)

    def evaluations(self, state: NelderMeadState, number: Any) -> Any:
        begins = (state.stage == BEGIN) | (state.stage == SIMPLEX)
        count = jnp.where(begins, self.population, self.population - 1)
        return jnp.where(begins | (state.stage == SHRINK), count, 1)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> NelderMeadState:
        x = sample_uniform(key, bounds, self.population)
        nothing = empty_population(x, shape)
        return NelderMeadState(x, nothing, take_row(nothing, 0), jnp.int32(BEGIN), bounds)

    def with_initial_points(self, state: NelderMeadState, points: Array) -> NelderMeadState:
        """One point becomes a corner of the first simplex, d + 1 points are one; of others the best decides."""
        k, bounds = points.shape[0], state.bounds
        x = jnp.concatenate([points, state.candidates[k:]])
        if k == 1:
            x = jnp.roll(self.around(points[0], bounds, START_SPREAD), 1, axis=0)
        stage = jnp.int32(SIMPLEX if k in (1, self.population) else BEGIN)
        return state._replace(candidates=x, parents=state.parents._replace(x=x), stage=stage)

    def step(self, key: Array, state: NelderMeadState, evaluation: Evaluation) -> NelderMeadState:
        """Put the point that was tried into its place, or turn to another move."""
        stage, old, n = state.stage, state.parents, self.population
        trials = as_population(state.candidates, evaluation)
        new, reflects = take_row(trials, 0), stage == REFLECT
        first, second, worst = (take_row(old, row) for row in (0, n - 2, n - 1))
        leads, passes, helps = (~no_worse(row, new)[0] for row in (first, second, worst))
        nearer = ((stage == OUTSIDE) & no_worse(new, state.reflected)[0]) | ((stage == INSIDE) & helps)
        accepted = (reflects & passes) | nearer
        simplex = tree_where(jnp.full(n, (stage == BEGIN) | (stage == SIMPLEX)), trials, old)
        simplex = tree_where((jnp.arange(n) > 0) & (stage == SHRINK), _one_down(trials), simplex)
        simplex = tree_where((jnp.arange(n) == n - 1) & accepted, new, simplex)
        # a reflected point that leads is in already, and gives way to one further on that is better
        simplex = tree_where((jnp.arange(n) == 0) & (stage == EXPAND) & leads, new, simplex)
        simplex = take(argsort_rows(*_keys(simplex)), simplex)
        following = jnp.where(reflects & ~passes, jnp.where(helps, OUTSIDE, INSIDE), REFLECT)
        following = jnp.where(reflects & leads, EXPAND, following)
        contracts = (stage == OUTSIDE) | (stage == INSIDE)
        following = jnp.where(contracts & ~nearer, SHRINK, following).astype(jnp.int32)
        following = jnp.where(stage == BEGIN, SHRINK, following)  # its other points come as a shrunk one's do
        x = self.next_move(jnp.where(following == EXPAND, old.x, simplex.x), following, state.bounds)
        x = jnp.where(stage == BEGIN, self.around(simplex.x[0], state.bounds, self.spread), x)
        reflected = tree_where(reflects[None], new, state.reflected)
        return NelderMeadState(x, simplex, reflected, following, state.bounds)

    def around(self, x: Array, bounds: Bounds, spread: Any) -> Array:
        """Points (d + 1, d) that make a simplex with x, each moved in one variable, into the box; and x itself."""
        step = spread * bounds.span
        ahead = jnp.where(x + step > bounds.upper, -step, step)
        return jnp.concatenate([jnp.clip(x + jnp.diag(ahead), bounds.lower, bounds.upper), x[None]])

    def next_move(self, x: Array, stage: Array, bounds: Bounds) -> Array:
        """The next candidates from a simplex (d + 1, d), the worst point last."""
        centre = jnp.mean(x[:-1], axis=0)
        tried = centre + jnp.asarray(REACH, x.dtype)[stage] * (centre - x[-1])
        shrunk = jnp.concatenate([x[0] + (x[1:] - x[0]) / 2, x[:1]])
        candidates = jnp.where(stage == SHRINK, shrunk, jnp.broadcast_to(tried, x.shape))
        return jnp.clip(candidates, bounds.lower, bounds.upper)

    def termination(self, state: NelderMeadState, bounds: Bounds, tolerance: Array) -> Array:
        width = jnp.max((jnp.max(state.parents.x, axis=0) - jnp.min(state.parents.x, axis=0)) / bounds.span)
        narrow = (state.stage != BEGIN) & (state.stage != SIMPLEX) & (width <= jnp.maximum(tolerance, CONVERGED_WIDTH))
        return jnp.where(narrow, STOP_CODES[Stop.TOLERANCE], RUNNING)


def _keys(population: Population) -> list[Array]:
    """What orders individuals, the best first."""
    by_value = [population.fitness]
    return by_value if population.violation is None else [population.violation, *by_value]


def _one_down(population: Population) -> Population:
    """Each individual in the row after its own."""
    return jax.tree.map(lambda a: jnp.roll(a, 1, axis=0), population)
