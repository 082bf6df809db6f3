"""Evolutionary programming: classical (Gaussian) and fast (Cauchy).

Yao, Liu & Lin (1999), IEEE Transactions on Evolutionary Computation 3(2):82-102, doi:10.1109/4235.771163, and its
implementation on graphics hardware by Fok, Wong & Wong (2007). Each individual carries a step length eta per gene.
Order of updating, as in both papers: x moves with the parent's eta, and the child's own eta is drawn besides.

Where the papers are silent or the text slips: a gene that leaves the box is bounced back between its parent and the
wall; the factors are 1/sqrt(2 k) for the normal number that an individual's genes share and 1/sqrt(2 sqrt(k)) for each
gene's own; an individual as good as the best of the union counts one win more than a tournament can give, so that the
best is never lost, however many tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import Algorithm, static
from galapax.core.checks import check_integer, check_number, check_positive
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.operators.sampling import bounce_back, sample_uniform
from galapax.operators.selection import replace_losers, score_by_tournaments


class EPState(NamedTuple):
    candidates: Array  # (n, d) offspring, waiting for their evaluation
    candidate_steps: Array  # (n, d) their step lengths, eta in the papers
    parents: Population
    steps: Array  # (n, d) of the parents
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EP(Algorithm[EPState]):
    """Evolutionary programming with Gaussian mutation.

    population: number of parents mu, and of offspring a generation.
    opponents: opponents that each individual meets in its tournament, q in the papers.
    initial_step: first step length of every gene.
    least_step: step lengths do not fall below this. The papers name no such floor, yet without one the steps die out
        long before the minimum; with 1e-3 the published results are repeated (docs/evolutionary-programming.md).
    """

    population: int = static(100)
    opponents: int = static(10)
    initial_step: float = 1.0
    least_step: float = 1e-3

    draw: ClassVar[Callable[..., Array]] = staticmethod(random.normal)

    def validate(self) -> None:
        n = check_integer(self.population, "population", 2, "offspring and parents compete")
        if check_integer(self.opponents, "opponents", 1, "each individual needs at least one opponent") > 2 * n:
            raise InputError(
                f"opponents must be at most {2 * n}, the parents and offspring together; got {self.opponents}."
            )
        check_positive(self.initial_step, "initial_step")
        if check_number(self.least_step, "least_step") < 0:
            raise InputError(f"least_step must be at least 0, got {self.least_step:g}.")

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> EPState:
        x = sample_uniform(key, bounds, self.population)
        steps = jnp.full_like(x, self.initial_step)
        return EPState(x, steps, empty_population(x, shape), steps, bounds)

    def step(self, key: Array, state: EPState, evaluation: CandidateEvaluation) -> EPState:
        """Parents and offspring compete, the winners stay, and each has one child."""
        key_compete, key_breed = random.split(key)
        parents, steps = self.select(key_compete, state, as_population(state.candidates, evaluation))
        candidates, candidate_steps = self.breed(key_breed, parents.x, steps, state.bounds)
        return EPState(candidates, candidate_steps, parents, steps, state.bounds)

    def select(self, key: Array, state: EPState, offspring: Population) -> tuple[Population, Array]:
        """The half of parents and offspring that wins most tournaments, with its step lengths."""
        scores = score_by_tournaments(key, state.parents, offspring, self.opponents)
        old, new = (state.parents, state.steps), (offspring, state.candidate_steps)
        return replace_losers(scores, self.opponents + 3, old, new)

    def breed(self, key: Array, x: Array, steps: Array, bounds: Bounds) -> tuple[Array, Array]:
        """A child of each parent x (n, d), with the child's own step lengths."""
        key_x, key_own, key_shared, key_repair = random.split(key, 4)
        n, d = x.shape
        moved = x + steps * type(self).draw(key_x, (n, d), steps.dtype)
        gene_factor = random.normal(key_own, (n, d), steps.dtype) / math.sqrt(2 * math.sqrt(d))
        shared = random.normal(key_shared, (n, 1), steps.dtype) / math.sqrt(2 * d)
        child_steps = jnp.maximum(steps * jnp.exp(shared + gene_factor), self.least_step)
        return bounce_back(key_repair, moved, x, bounds), child_steps


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FEP(EP):
    """Fast evolutionary programming: Cauchy mutation, whose long steps leave local minima.

    population, opponents, initial_step, least_step: as in EP.
    """

    draw: ClassVar[Callable[..., Array]] = staticmethod(random.cauchy)
