"""A multi-objective evolutionary algorithm with fitness sharing, made for graphics hardware.

Hu, Qi & Qian (2015), Computers and Applied Chemistry 32(1):1-8, doi:10.11719/com.app.chem20150101. Binary tournaments
fill a pool of half the population's size. A child is with probability 0.9 an arithmetic mixture of two members of the
pool, alpha x + (1 - alpha) y with alpha uniform on [-0.5, 1.5], and otherwise one member mutated polynomially. Parents
and offspring are compared all with all, and crowding is measured by niche counts m with sh(d) = 1 - d / sigma_share,
sigma_share being half the mean distance between two individuals in the space of the objectives, each generation anew.

Where the paper is silent or leaves a choice:
- The fitness that is shared. Here the number of others that dominate an individual comes first, 0 for the non-dominated
  set; at equal numbers the shared fitness 1/m decides.
- How parents and offspring are cut back to the population's size. Here by that number, and where some of those with
  equal numbers must go, survivors are drawn without replacement with chances proportional to 1/m (Efraimidis & Spirakis
  2006, Information Processing Letters 97(5):181-185). To keep strictly those with the least m empties whole stretches
  of the front at once, since sigma_share is wide, and the next generation overshoots the other way.
- Who breeds. The paper's figure 1 copies the non-dominated set into the population and goes on with that. Here the
  tournaments are among the non-dominated; where these are less than a quarter of the population, among the best
  quarter by number of dominators, since a handful would breed their likes. With tournaments among all, moea_zdt6 is a
  little too slow for 100 generations: 98.3 % of the exact hypervolume in float32 rather than 99.5 %.
- Over whom m is summed: over the feasible among parents and offspring, the individual itself included as in the paper's
  equation 7 (its program leaves it out, and would divide by 0).
- Distances: each objective is divided by its range among those individuals, so that units do not matter.
- alpha is drawn for each gene, as equation 4 can be read. The paper's program draws one for a child, and then the front
  of moea_zdt6 is not reached in its 100 generations. A mutation moves every gene.
- Children that leave the box are clipped to it. Constraints are handled by constrained domination. The index of the
  polynomial mutation is 20.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import Algorithm, Traits, static
from galapax.core.checks import check_integer, check_positive, check_range
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.numerics.jaxpr import materialise
from galapax.operators.ranking import dominance_counts, is_feasible, mean_distance, niche_counts, scale_to_range
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import binary_tournament, concatenate_optional, take, take_from_union
from galapax.operators.variation import arithmetic_crossover, polynomial_mutation


class SharingMOEAState(NamedTuple):
    candidates: Array  # (n, d) offspring, waiting for their evaluation
    parents: Population
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SharingMOEA(Algorithm[SharingMOEAState]):
    """Fitness sharing for several objectives on a box.

    population: number of parents n, and of offspring a generation, at least 2.
    crossover_rate: chance that a child mixes two parents rather than being a mutant of one.
    mutation_index: how small mutations are, eta in the paper.
    radius: niche radius sigma_share in units of the mean distance between two individuals.
    """

    population: int = static(100)
    crossover_rate: float = 0.9
    mutation_index: float = 20.0
    radius: float = 0.5

    traits: ClassVar[Traits] = Traits(multi_objective=True)

    def validate(self) -> None:
        check_integer(self.population, "population", 2, "each child needs two parents")
        check_range(self.crossover_rate, "crossover_rate", 0.0, 1.0)
        check_range(self.mutation_index, "mutation_index", 0.0, 1000.0)
        check_positive(self.radius, "radius")

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> SharingMOEAState:
        x = sample_uniform(key, bounds, self.population)
        return SharingMOEAState(candidates=x, parents=empty_population(x, shape), bounds=bounds)

    def step(self, key: Array, state: SharingMOEAState, evaluation: CandidateEvaluation) -> SharingMOEAState:
        """Keep the better half of parents and offspring by domination, then by niche; tournaments choose who breeds."""
        key_cut, key_breed = random.split(key)
        old, new = state.parents, as_population(state.candidates, evaluation)
        objectives, violation = (
            jnp.concatenate([old.objectives, new.objectives]),
            concatenate_optional(old.violation, new.violation),
        )
        dominators = dominance_counts(objectives, violation)
        counted = is_feasible(objectives, violation)
        points = scale_to_range(objectives, counted)
        radius = self.radius * mean_distance(points, counted)
        dominators, niche = materialise((dominators, niche_counts(points, radius, counted=counted)))
        niche = jnp.maximum(niche, 1)  # infeasible ones do not count themselves
        rows = survivors(key_cut, dominators, niche, self.population)
        parents, dominators, niche = materialise(
            (take_from_union(rows, old, new), take(rows, dominators), take(rows, niche))
        )
        children = self.breed(key_breed, parents.x, dominators, niche, state.bounds)
        return SharingMOEAState(children, parents, state.bounds)

    def breed(self, key: Array, x: Array, dominators: Array, niche: Array, bounds: Bounds) -> Array:
        """As many children as there are parents x (n, d), which come in order of their dominators."""
        key_pool, key_pair, key_which, key_mix, key_mutate = random.split(key, 5)
        n = x.shape[0]
        best = jnp.maximum(jnp.sum(dominators == 0, dtype=jnp.int32), (n + 3) // 4)  # rows are in order of dominators
        pool = materialise(binary_tournament(key_pool, dominators, 1 / niche, (n + 1) // 2, among=best))
        pairs = take(random.integers(key_pair, (2, n), pool.shape[0]), pool)
        first, second = materialise((take(pairs[0], x), take(pairs[1], x)))
        mixed = arithmetic_crossover(key_mix, first, second)
        mutant = polynomial_mutation(key_mutate, first, bounds, self.mutation_index, 1.0)
        children = jnp.where(random.bernoulli(key_which, self.crossover_rate, (n, 1)), mixed, mutant)
        return jnp.clip(children, bounds.lower, bounds.upper)


def survivors(key: Array, dominators: Array, niche: Array, count: int) -> Array:
    """The `count` rows with the fewest dominators, those first; of equals some may have to go, by chances 1 / niche.

    An exponential variate times niche, smallest first, is such a draw without replacement. It goes into the fraction of
    one number, whose whole part are the dominators, so that one selection does both.
    """
    wait = -jnp.log1p(-random.uniform(key, dominators.shape, jnp.float32)) * niche.astype(jnp.float32)
    return jax.lax.top_k(-(dominators.astype(jnp.float32) + wait / (1 + wait)), count)[1]
