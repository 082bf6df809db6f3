"""The three-parent genetic algorithm of GAGPU.

Smith, Kuo, Hsieh, Yu, Wu & Ferguson (2010), Computer Physics Communications 181(6), and the GAGPU manual, version 1.1.
A child lies between a random second parent and the best individual (with fr above 1 also beyond the best), disturbed in
proportion to the distance of second and third parent. It takes the place of the individual in its slot if it is better.

Differs from the manual: children stay in the box (`bounds_at_start_only` gives the original, whose box serves for the
first generation alone), and "better" means a smaller value, not a smaller absolute value; the two agree where no value
is negative. As in the public code, the parents are three different individuals and each gene draws its own numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
from jax import Array

from galapax.core.algorithm import Algorithm, static
from galapax.core.checks import check_finite, check_integer
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.operators.sampling import bounce_back, sample_uniform
from galapax.operators.selection import no_worse, tree_where
from galapax.operators.variation import three_parent_crossover


class GAState(NamedTuple):
    candidates: Array  # (n, d) children, waiting for their evaluation
    parents: Population
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ThreeParentGA(Algorithm[GAState]):
    """The three-parent genetic algorithm of GAGPU, for one objective.

    population: number of individuals, at least 3.
    fr: how far a child goes from its second parent to the best one; above 1 it may go beyond. FR in the manual.
    sigma: weight of the random step, in units of the distance of second and third parent. SIG in the manual.
    bounds_at_start_only: as in the original, the box holds for the first generation alone.
    """

    population: int = static(100)
    fr: float = 1.0
    sigma: float = 1.0
    bounds_at_start_only: bool = static(False)

    def validate(self) -> None:
        check_integer(self.population, "population", 3, "a child needs three different parents")
        check_finite(self.fr, "fr")
        if check_finite(self.sigma, "sigma") < 0:
            raise InputError(f"sigma must be at least 0, got {self.sigma:g}.")
        if not isinstance(self.bounds_at_start_only, bool):
            raise InputError(f"bounds_at_start_only must be True or False, got {self.bounds_at_start_only!r}.")

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> GAState:
        x = sample_uniform(key, bounds, self.population)
        return GAState(x, empty_population(x, shape), bounds)

    def step(self, key: Array, state: GAState, evaluation: CandidateEvaluation) -> GAState:
        """A child that is better takes its slot, then every slot has a new child."""
        key_breed, key_repair = random.split(key)
        children = as_population(state.candidates, evaluation)
        parents = tree_where(no_worse(state.parents, children), state.parents, children)
        candidates = three_parent_crossover(key_breed, parents, self.fr, self.sigma)
        if not self.bounds_at_start_only:
            candidates = bounce_back(key_repair, candidates, parents.x, state.bounds)
        return GAState(candidates, parents, state.bounds)
