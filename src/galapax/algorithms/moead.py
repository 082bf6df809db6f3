"""MOEA/D: a front as many problems of one objective that help their neighbours.

Zhang & Li (2007), IEEE Transactions on Evolutionary Computation 11(6):712-731, doi:10.1109/TEVC.2007.892759. Parents
from the neighbourhood with probability delta, and replacement limited to n_r, are of Li & Zhang (2009), 13(2):284-302,
doi:10.1109/TEVC.2008.925798.

Differs from the papers:
- All subproblems breed at once. Then each looks at the children of its neighbours, takes the one that is best for it,
  and a child that several would take goes to the `replaced` that gain most.
- One parent is the subproblem's own and the other a neighbour's, not two neighbours', and eta_c is 30 and not 20: on
  DTLZ2 with three objectives the median IGD is then 6.4e-4, and 1.0e-3 as in the paper (published: 6.4e-4).
- Constraints, which the papers have none of: less violation is better, and at equal violation the subproblem decides.

As in the papers objectives are not scaled: give them like units. Scaled by the range of the population, all runs on
DTLZ1 and DTLZ3 with eight objectives ended in a point, since what nobody has is then worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Shared,
    Traits,
    static,
)
from galapax.core.checks import abbreviate, check_integer, check_positive, check_range
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.numerics.jaxpr import materialise
from galapax.operators import niching
from galapax.operators.pairwise import argsort_rows
from galapax.operators.ranking import is_feasible
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import take, tree_where
from galapax.operators.variation import check_variation, polynomial_mutation, simulated_binary_crossover

MIN_SCALAR_WEIGHT = 1e-4  # weight in place of 0, where an objective would not count at all


def tchebycheff(points: Array, weights: Array, penalty: ArrayLike) -> Array:
    """max_i w_i f_i of points (..., m) measured from the ideal; penalty is not used."""
    return jnp.max(jnp.maximum(weights, MIN_SCALAR_WEIGHT) * points, axis=-1)


def boundary_intersection(points: Array, weights: Array, penalty: ArrayLike) -> Array:
    """d1 + penalty d2: how far points (..., m) lie along the direction, and how far from it (PBI in the paper)."""
    units = weights / jnp.sqrt(jnp.sum(weights**2, axis=-1, keepdims=True))
    along = jnp.sum(points * units, axis=-1)
    aside = points - along[..., None] * units
    return along + penalty * jnp.sqrt(jnp.sum(aside**2, axis=-1))


class MOEADState(NamedTuple):
    candidates: Array  # (n, d) one child of each subproblem, waiting for its evaluation
    parents: Population  # the best for each subproblem so far
    ideal: Array  # (m,) the least of each objective so far
    weights: Shared  # (n, m)
    neighbours: Shared  # (n, T) int32, the subproblem itself first
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MOEAD(Algorithm[MOEADState]):
    """MOEA/D for several objectives on a box.

    population: number of subproblems n, at least 3; None for as many as there are directions: 100, 91 or 210 for two,
        three or five objectives.
    directions: weights (n, m) of your own, in place of a lattice.
    scalar: what a subproblem minimises: `boundary_intersection` or `tchebycheff`.
    neighbours: how many subproblems are neighbours, itself included, T in the paper.
    local: chance that parents are neighbours rather than anybody, delta in the second paper, which has 0.9;
        with crossover and not differential evolution 1 measured better.
    replaced: to how many subproblems a child may go, n_r in the paper.
    penalty: how much lying off the direction counts, theta in the paper.
    crossover_rate, crossover_index, mutation_rate, mutation_index: as in NSGA3.
    """

    population: int = static(None)
    directions: Any = None
    scalar: Callable[..., Array] = static(boundary_intersection)  # noqa: RUF009 (a field)
    neighbours: int = static(20)
    local: float = 1.0
    replaced: int = static(2)
    penalty: float = 5.0
    crossover_rate: float = 1.0
    crossover_index: float = 30.0
    mutation_rate: float | None = None
    mutation_index: float = 20.0

    traits: ClassVar[Traits] = Traits(multi_objective=True)

    def validate(self) -> None:
        if self.population is not None:
            check_integer(self.population, "population", 3, "a subproblem breeds from two neighbours")
        check_integer(self.neighbours, "neighbours", 2, "each child needs two parents")
        check_integer(self.replaced, "replaced", 1)
        check_range(self.local, "local", 0.0, 1.0)
        check_positive(self.penalty, "penalty")
        if not callable(self.scalar):
            raise InputError(
                f"scalar must be a function of values, weights and penalty, got {abbreviate(self.scalar)}."
            )
        if self.directions is not None and not isinstance(self.directions, Shared):
            count = len(niching.check_directions(self.directions))
            if self.population not in (None, count):
                raise InputError(
                    f"{count} directions do not match a population of {self.population}: give only one of the two."
                )
        check_variation(self.crossover_rate, self.crossover_index, self.mutation_rate, self.mutation_index)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        """With a population for the directions."""
        shared, population = niching.share_directions(self.directions), self.population
        if population is None:
            m = shape.objectives
            population = (
                niching.count_directions(m, niching.divisions_for(m, None)) if shared is None else shared.value.shape[0]
            )
        return replace(self, population=population, directions=shared)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> MOEADState:
        x, m = sample_uniform(key, bounds, self.population), shape.objectives
        weights = niching.fill_directions(m, self.population) if self.directions is None else self.directions.value
        if weights.shape[1] != m and m > 1:
            raise InputError(f"directions have {weights.shape[1]} columns and the problem has {m} objectives.")
        return MOEADState(
            candidates=x,
            parents=empty_population(x, shape),
            ideal=jnp.full(m, jnp.inf, x.dtype),
            weights=Shared(jnp.asarray(weights, x.dtype)),
            neighbours=Shared(self._nearest(weights)),
            bounds=bounds,
        )

    def _nearest(self, weights: np.ndarray) -> Array:
        """The neighbours of each direction, (n, T)."""
        count = min(self.neighbours, self.population)
        if isinstance(weights, np.ndarray):
            from scipy.spatial import cKDTree  # takes as long to import as half of galapax

            return jnp.asarray(cKDTree(weights).query(weights, count)[1].reshape(-1, count), jnp.int32)
        distance = jnp.sum((weights[:, None] - weights[None]) ** 2, axis=2)  # given ones, which only the device knows
        return lax.top_k(-distance, count)[1]

    def step(self, key: Array, state: MOEADState, evaluation: CandidateEvaluation) -> MOEADState:
        """Each subproblem takes the best child of its neighbours, if that is better; then all breed."""
        old, new = state.parents, as_population(state.candidates, evaluation)
        sound = is_feasible(new.objectives, new.violation)
        ideal = jnp.minimum(state.ideal, jnp.min(jnp.where(sound[:, None], new.objectives, jnp.inf), axis=0))
        source, is_replaced = materialise(self._replacements(state, old, new, ideal))
        parents = materialise(tree_where(is_replaced, take(source, new), old))
        children = self._breed(key, parents.x, state)
        return state._replace(candidates=children, parents=parents, ideal=ideal)

    def _replacements(self, state: MOEADState, old: Population, new: Population, ideal: Array) -> tuple[Array, Array]:
        """The row of the child that each subproblem would take, (n,), and whether it gets it, (n,) bool."""
        n, near, weights = self.population, state.neighbours.value, state.weights.value
        ideal = jnp.where(jnp.isfinite(ideal), ideal, 0)

        def value(objectives: Array, weight: Array) -> Array:
            points = objectives - ideal
            failed = ~jnp.all(jnp.isfinite(points), axis=-1)
            return jnp.where(
                failed, jnp.inf, self.scalar(jnp.where(failed[..., None], 0, points), weight, self.penalty)
            )

        offered = value(take(near, new.objectives), weights[:, None, :])  # (n, T)
        mine = value(old.objectives, weights)
        if old.violation is None or new.violation is None:
            best = jnp.argmin(offered, axis=1)
            least, better = jnp.min(offered, axis=1), jnp.min(offered, axis=1) < mine
            gain = mine - least
        else:
            lacks = take(near, new.violation)
            fewest = jnp.min(lacks, axis=1)
            offered = jnp.where(lacks == fewest[:, None], offered, jnp.inf)
            best, least = jnp.argmin(offered, axis=1), jnp.min(offered, axis=1)
            better = (fewest < old.violation) | ((fewest == old.violation) & (least < mine))
            gain = jnp.where(fewest < old.violation, jnp.inf, mine - least)
        source = jnp.take_along_axis(near, best[:, None], axis=1)[:, 0]
        # who has nobody yet takes its own child, as in the papers' first generation
        empty = ~jnp.all(jnp.isfinite(old.objectives), axis=1)
        rows = jnp.arange(n, dtype=jnp.int32)
        claimed = jnp.where(better & ~empty, source, n)
        order = argsort_rows(claimed, -jnp.where(better & ~empty, gain, 0))
        ordered = claimed[order]
        starts = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
        place = rows - lax.cummax(jnp.where(starts, rows, 0))
        gets = jnp.zeros(n, bool).at[order].set((place < self.replaced) & (ordered < n), unique_indices=True)
        return jnp.where(empty, rows, source), gets | empty

    def _breed(self, key: Array, x: Array, state: MOEADState) -> Array:
        """One child for each subproblem, (n, d)."""
        key_pick, key_anybody, key_local, key_cross, key_mutate = random.split(key, 5)
        near = state.neighbours.value
        n, count = near.shape
        other = jnp.minimum(1 + random.integers(key_pick, (n, 1), max(count - 1, 1)), count - 1)
        inside = jnp.concatenate([near[:, :1], jnp.take_along_axis(near, other, axis=1)], axis=1)
        local = random.bernoulli(key_local, self.local, (n, 1))
        pairs = materialise(jnp.where(local, inside, random.integers(key_anybody, (n, 2), n)))
        a, b = materialise((take(pairs[:, 0], x), take(pairs[:, 1], x)))
        bounds = state.bounds
        child = materialise(
            simulated_binary_crossover(key_cross, a, b, bounds, self.crossover_index, self.crossover_rate)[0]
        )
        rate = 1 / x.shape[1] if self.mutation_rate is None else self.mutation_rate
        return polynomial_mutation(key_mutate, child, bounds, self.mutation_index, rate, jnp.all(child == a, axis=1))
