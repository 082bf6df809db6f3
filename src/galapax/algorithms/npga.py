"""NPGA, the niched Pareto genetic algorithm.

Horn, Nafpliotis & Goldberg (1994), Proc. First IEEE Conference on Evolutionary Computation, pp. 82-87,
doi:10.1109/ICEC.1994.350037. To choose a parent two candidates are drawn, and a comparison set besides. If the set
dominates one of them and not the other, the other is chosen. Else the one with the smaller niche count is, counted as
Oei, Goldberg & Chang (1991) would have it: among the parents chosen so far and not in the old population, since
tournaments by the old counts make the population swing from niche to niche. There is no elitism: children replace the
population.

Differs from the paper: genes are real numbers, with the crossover and mutation of NSGA-II. The comparison set is drawn
with replacement. Parents are chosen in `portions` equal parts, and niche counts are renewed after each part; with as
many portions as individuals they are renewed after every choice. The niche radius is half the mean distance between
two individuals, as in Hu, Qi & Qian (2015), each objective in units of its range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.core.algorithm import Algorithm, Traits, static
from galapax.core.checks import check_integer, check_positive, check_range
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.numerics.jaxpr import materialise
from galapax.operators.ranking import dominated_by_sample, is_feasible, mean_distance, niche_counts, scale_to_range
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import take
from galapax.operators.variation import breed, check_variation, round_up_to_even


class NPGAState(NamedTuple):
    candidates: Array  # (n, d) children, waiting for their evaluation
    parents: Population  # the last generation evaluated
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NPGA(Algorithm[NPGAState]):
    """The niched Pareto genetic algorithm for several objectives on a box.

    population: number of individuals n, at least 2.
    comparison: size of the comparison set as a share of the population, t_dom / n in the paper.
    portions: in how many parts the next generation's parents are chosen, at most n; more than n means n.
    radius: niche radius sigma_share in units of the mean distance between two individuals.
    crossover_rate, crossover_index, mutation_rate, mutation_index: as in NSGA2.
    """

    population: int = static(100)
    comparison: float = static(0.1)
    portions: int = static(16)
    radius: float = 0.5
    crossover_rate: float = 0.9
    crossover_index: float = 20.0
    mutation_rate: float | None = None
    mutation_index: float = 20.0

    traits: ClassVar[Traits] = Traits(multi_objective=True)

    def validate(self) -> None:
        check_integer(self.population, "population", 2, "each child needs two parents")
        if check_range(self.comparison, "comparison", 0.0, 1.0) == 0:
            raise InputError("comparison must be greater than 0: it is the comparison set's share of the population.")
        check_integer(self.portions, "portions", 1)
        check_positive(self.radius, "radius")
        check_variation(self.crossover_rate, self.crossover_index, self.mutation_rate, self.mutation_index)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> NPGAState:
        x = sample_uniform(key, bounds, self.population)
        return NPGAState(candidates=x, parents=empty_population(x, shape), bounds=bounds)

    def step(self, key: Array, state: NPGAState, evaluation: CandidateEvaluation) -> NPGAState:
        """Children become the population; Pareto domination tournaments choose who breeds."""
        key_choose, key_breed = random.split(key)
        population = as_population(state.candidates, evaluation)
        chosen = materialise(self.tournaments(key_choose, population))
        children = breed(
            key_breed,
            take(chosen, population.x),
            state.bounds,
            self.crossover_rate,
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
        )
        return NPGAState(children[: self.population], population, state.bounds)

    def tournaments(self, key: Array, population: Population) -> Array:
        """The rows of n parents, or n + 1 if n is odd."""
        key_candidates, key_compare = random.split(key)
        objectives, violation = population.objectives, population.violation
        n = objectives.shape[0]
        part = -(-round_up_to_even(n) // min(self.portions, round_up_to_even(n)))
        parts = -(-round_up_to_even(n) // part)
        pairs = random.integers(key_candidates, (2, parts * part), n)
        drawn = max(1, round(self.comparison * n))
        worse = dominated_by_sample(key_compare, objectives, violation, pairs, drawn)
        counted = is_feasible(objectives, violation)
        points = scale_to_range(objectives, counted)
        radius = self.radius * mean_distance(points, counted)
        pairs, worse, points, radius = materialise((pairs, worse, points, radius))
        slots = jnp.arange(parts * part, dtype=jnp.int32)

        def fill(p: Array | int, chosen: Array) -> Array:
            (a, b), (worse_a, worse_b) = (lax.dynamic_slice_in_dim(v, p * part, part, axis=1) for v in (pairs, worse))
            both = take(jnp.concatenate([a, b]), points)
            crowd = niche_counts(both, radius, take(chosen, points), slots < p * part)
            second = jnp.where(worse_a == worse_b, crowd[part:] < crowd[:part], worse_a)
            return lax.dynamic_update_slice_in_dim(chosen, jnp.where(second, b, a), p * part, axis=0)

        chosen = lax.fori_loop(0, parts, fill, jnp.zeros(parts * part, jnp.int32))
        return chosen[: round_up_to_even(n)]
