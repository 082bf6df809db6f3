"""Differential evolution, DE/rand/1/bin and DE/best/1/bin.

Storn & Price (1997), Journal of Global Optimization 11:341-359, doi:10.1023/A:1008202821328.
Differs from the paper: a gene that leaves the box is bounced back to a random point between its target and the wall.
With constraints, the comparison of a trial with its target puts feasibility first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
from jax import Array

from galapax.core.algorithm import Algorithm, static
from galapax.core.checks import check_integer, check_range
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import no_worse, tree_where
from galapax.operators.variation import breed_trials, rand_1


class DEState(NamedTuple):
    candidates: Array  # (n, d) trials, waiting for their evaluation
    parents: Population
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DE(Algorithm[DEState]):
    """Differential evolution for one objective on a box.

    population: number of individuals n, at least 4.
    mutation: how mutants arise; `rand_1` is the paper's, `best_1` makes this DE/best/1/bin.
    weight: length of the difference vector, F in the paper.
    crossover_rate: chance that a trial takes a gene from its mutant, CR in the paper.
    """

    population: int = static(100)
    mutation: Callable[..., Array] = static(rand_1)  # noqa: RUF009 (a field, like the others)
    weight: float = 0.5
    crossover_rate: float = 0.9

    def validate(self) -> None:
        check_integer(self.population, "population", 4, "DE needs three other individuals for each one")
        if not callable(self.mutation):
            raise InputError(
                f"mutation must be a function such as galapax.operators.variation.best_1, got {self.mutation!r}."
            )
        check_range(self.weight, "weight", 0.0, 2.0)
        check_range(self.crossover_rate, "crossover_rate", 0.0, 1.0)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> DEState:
        x = sample_uniform(key, bounds, self.population)
        return DEState(candidates=x, parents=empty_population(x, shape), bounds=bounds)

    def step(self, key: Array, state: DEState, evaluation: CandidateEvaluation) -> DEState:
        """Keep the better of each trial and its target, then breed the next trials."""
        trials = as_population(state.candidates, evaluation)
        parents = tree_where(no_worse(trials, state.parents), trials, state.parents)
        bred = breed_trials(key, parents, state.bounds, self.mutation, self.weight, self.crossover_rate)
        return DEState(bred, parents, state.bounds)
