"""The real-coded genetic algorithm of the textbooks: binary tournaments, SBX, polynomial mutation, elitism.

Deb (2001), Multi-Objective Optimization using Evolutionary Algorithms, Wiley, chapter 4; crossover of Deb & Agrawal
(1995), Complex Systems 9:115-148; constraints by the tournament of Deb (2000), Computer Methods in Applied Mechanics
and Engineering 186:311-338, doi:10.1016/S0045-7825(99)00389-8: a feasible individual beats an infeasible one, then less
violation wins, then the objective.

Each generation is new, except for the elite: the best parents take the places of the worst children where they are
better. Every parent takes part in two tournaments. Of an odd population's last pair one child is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import Algorithm, static
from galapax.core.checks import check_integer
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.numerics.jaxpr import materialise
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import least_value_tournament, no_worse, rank_by_fitness, take, tree_where
from galapax.operators.variation import Crossover, Mutation, breed, check_variation, round_up_to_even


class RealCodedGAState(NamedTuple):
    candidates: Array  # (n, d) children, waiting for their evaluation
    parents: Population
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RealCodedGA(Algorithm[RealCodedGAState]):
    """The textbook genetic algorithm with real genes, for one objective on a box.

    population: number of individuals n, at least 2.
    elites: parents that survive if they are better than the worst children; 0 gives a purely generational algorithm.
    crossover_rate: chance that two parents are crossed rather than copied, p_c.
    crossover_index: how close children come to their parents, eta_c of SBX.
    mutation_rate: chance that a gene mutates, p_m; None for 1/d.
    mutation_index: how small mutations are, eta_m of polynomial mutation.
    crossover: your own operator in place of SBX: a function of (key, a, b, bounds) that returns two children of each
        pair of rows of a and b (k, d).
    mutation: your own operator in place of polynomial mutation: a function of (key, x, bounds, rate) that returns the
        mutants of x (k, d).
    """

    population: int = static(100)
    elites: int = static(1)
    crossover_rate: float = 0.9
    crossover_index: float = 15.0
    mutation_rate: float | None = None
    mutation_index: float = 20.0
    crossover: Crossover | None = static(None)  # noqa: RUF009 (a field, like the others)
    mutation: Mutation | None = static(None)  # noqa: RUF009 (a field, like the others)

    def validate(self) -> None:
        check_integer(self.population, "population", 2, "each child needs two parents")
        if check_integer(self.elites, "elites", 0) >= self.population:
            raise InputError(f"elites must be fewer than the population of {self.population}, got {self.elites}.")
        check_variation(
            self.crossover_rate,
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
            self.crossover,
            self.mutation,
        )

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> RealCodedGAState:
        x = sample_uniform(key, bounds, self.population)
        return RealCodedGAState(x, empty_population(x, shape), bounds)

    def step(self, key: Array, state: RealCodedGAState, evaluation: CandidateEvaluation) -> RealCodedGAState:
        """Replace all but the elite by their children, then breed the winners of binary tournaments."""
        key_choose, key_breed = random.split(key)
        children = as_population(state.candidates, evaluation)
        parents = materialise(self._replace_worst(children, state.parents))
        place = rank_by_fitness(parents.fitness, parents.violation)
        chosen = materialise(least_value_tournament(key_choose, place, round_up_to_even(self.population)))
        candidates = breed(
            key_breed,
            take(chosen, parents.x),
            state.bounds,
            self.crossover_rate,
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
            crossover=self.crossover,
            mutation=self.mutation,
        )
        return RealCodedGAState(candidates[: self.population], parents, state.bounds)

    def _replace_worst(self, children: Population, parents: Population) -> Population:
        """The children, of which the worst have given way to better ones of the elite: the best meets the worst."""
        if self.elites == 0:
            return children
        n = self.population
        place, rows = rank_by_fitness(parents.fitness, parents.violation), jnp.arange(n, dtype=jnp.int32)
        row_by_place = jnp.zeros(n, jnp.int32).at[place].set(rows)
        from_worst = n - 1 - rank_by_fitness(children.fitness, children.violation)
        rivals = take(take(jnp.minimum(from_worst, self.elites - 1), row_by_place), parents)
        stays = (from_worst >= self.elites) | no_worse(children, rivals)
        return tree_where(stays, children, rivals)
