"""Random search: fresh points every generation, the baseline that an algorithm has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
from jax import Array

from galapax.core.algorithm import Algorithm, static
from galapax.core.checks import check_integer
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import no_worse, tree_where


class RandomSearchState(NamedTuple):
    candidates: Array  # (n, d)
    parents: Population  # the best that each slot has seen
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RandomSearch(Algorithm[RandomSearchState]):
    """Uniform points in the box, each slot keeping its best.

    population: points drawn each generation.
    """

    population: int = static(100)

    def validate(self) -> None:
        check_integer(self.population, "population", 1, "random search draws this many points per generation")

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> RandomSearchState:
        x = sample_uniform(key, bounds, self.population)
        return RandomSearchState(x, empty_population(x, shape), bounds)

    def step(self, key: Array, state: RandomSearchState, evaluation: CandidateEvaluation) -> RandomSearchState:
        points = as_population(state.candidates, evaluation)
        parents = tree_where(no_worse(points, state.parents), points, state.parents)
        return RandomSearchState(sample_uniform(key, state.bounds, self.population), parents, state.bounds)
