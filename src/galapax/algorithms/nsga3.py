"""NSGA-III, non-dominated sorting with reference directions, for three objectives and more.

Deb & Jain (2014), IEEE Transactions on Evolutionary Computation 18(4):577-601, doi:10.1109/TEVC.2013.2281535, with
constraints as in Jain & Deb (2014), 18(4):602-622: less violation comes first, for parents too. Normalisation as in
the authors' program (Blank, Deb & Roy 2019, EMO 2019, LNCS 11411:31-43): extreme points are kept from generation to
generation, and where they span no plane the worst of the first front takes the place of the intercepts.

Differs from the paper:
- The members of the last front are chosen without its loop. A niche that holds c members gives its candidates the
  levels c, c + 1, ...: the closest first if c is 0, the others in random order; those of the lowest levels stay, and
  at equal levels chance decides. That is the same distribution, by one sort.
- Values below 1e-3 that count as 0 in the search for extreme points, and the extreme points themselves, are in units
  of the range found so far and not absolute, so that units of the objectives do not matter.
- With constraints everybody takes part in two tournaments: of equals a quarter is left without children, and not 37 %
  as with opponents drawn by chance, with whom the median run on MW8 ends with less of the hypervolume.
- A copy of another individual loses to everybody else, and a child that crossover left as it was mutates in one gene.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Shared,
    Traits,
    static,
)
from galapax.core.checks import abbreviate, check_integer
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.numerics.jaxpr import materialise
from galapax.operators import niching
from galapax.operators.niching import (
    NormalizationFrame,
    initial_frame,
    nearest_line,
    normalize,
    select_by_niche,
    update_frame,
)
from galapax.operators.pairwise import argsort_rows
from galapax.operators.ranking import is_feasible, ranks
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import (
    concatenate_optional,
    fail_duplicates,
    least_value_tournament,
    take,
    take_from_union,
)
from galapax.operators.variation import Crossover, Mutation, breed, check_variation, round_up_to_even


class NSGA3State(NamedTuple):
    candidates: Array  # (n, d) offspring, waiting for their evaluation
    parents: Population
    frame: NormalizationFrame  # ideal and extreme points so far
    lines: Shared  # (h, m) the reference directions
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NSGA3(Algorithm[NSGA3State]):
    """NSGA-III for several objectives on a box.

    population: number of parents n, and of offspring a generation, at least 2; None for as many as there are
        directions, rounded up to a multiple of four as in the paper: 92 for three objectives, 212 for five.
    divisions: of the reference directions' outer and inner layer, p in the paper; None for as many as the population
        has room for.
    directions: reference directions (h, m) of your own, in place of those.
    crossover_rate: chance that two parents are crossed rather than copied, p_c in the paper.
    crossover_index: how close children come to their parents, eta_c in the paper.
    mutation_rate: chance that a gene mutates, p_m in the paper; None for its 1/d, one gene on average.
    mutation_index: how small mutations are, eta_m in the paper.
    crossover: your own operator in place of SBX: a function of (key, a, b, bounds) that returns two children of each
        pair of rows of a and b (k, d).
    mutation: your own operator in place of polynomial mutation: a function of (key, x, bounds, rate) that returns the
        mutants of x (k, d).
    """

    population: int = static(None)
    divisions: tuple[int, int] = static(None)
    directions: Any = None
    crossover_rate: float = 1.0
    crossover_index: float = 30.0
    mutation_rate: float | None = None
    mutation_index: float = 20.0
    crossover: Crossover | None = static(None)  # noqa: RUF009 (a field, like the others)
    mutation: Mutation | None = static(None)  # noqa: RUF009 (a field, like the others)

    traits: ClassVar[Traits] = Traits(multi_objective=True)

    def validate(self) -> None:
        if self.population is not None:
            check_integer(self.population, "population", 2, "each child needs two parents")
        if self.divisions is not None:
            both = self.divisions
            if not isinstance(both, tuple) or len(both) != 2:
                raise InputError(
                    f"divisions must be a pair, of the outer and of the inner layer; got {abbreviate(both)}."
                )
            check_integer(both[0], "divisions", 1)
            check_integer(both[1], "divisions", 0)
        if self.directions is not None and not isinstance(self.directions, Shared):
            niching.check_directions(self.directions)
        check_variation(
            self.crossover_rate,
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
            self.crossover,
            self.mutation,
        )

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        """With a population for the directions."""
        shared, population = niching.share_directions(self.directions), self.population
        if population is None:
            count = niching.count_directions(shape.objectives, self._divisions(shape.objectives))
            population = -(-(count if shared is None else shared.value.shape[0]) // 4) * 4
        return replace(self, population=population, directions=shared)

    def _divisions(self, m: int) -> tuple[int, int]:
        return self.divisions or niching.divisions_for(m, self.population)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> NSGA3State:
        x, m = sample_uniform(key, bounds, self.population), shape.objectives
        # here and not in `bind`, since a black box tells how many objectives it has when it is called
        lines = niching.two_layer_lattice(m, self._divisions(m)) if self.directions is None else self.directions.value
        if lines.shape[1] != m and m > 1:
            raise InputError(f"directions have {lines.shape[1]} columns and the problem has {m} objectives.")
        own = Shared(jnp.asarray(lines, x.dtype))
        return NSGA3State(x, empty_population(x, shape), initial_frame(m, x.dtype), own, bounds)

    def step(self, key: Array, state: NSGA3State, evaluation: CandidateEvaluation) -> NSGA3State:
        """Keep the first fronts, of the last one those in the emptiest niches; everybody breeds."""
        key_cut, key_choose, key_breed = random.split(key, 3)
        old, new = state.parents, as_population(state.candidates, evaluation)
        objectives, violation = (
            jnp.concatenate([old.objectives, new.objectives]),
            concatenate_optional(old.violation, new.violation),
        )
        distinct = fail_duplicates(objectives, jnp.concatenate([old.x, new.x]))
        rank = materialise(ranks(distinct, violation, self.population))
        sound = is_feasible(objectives, violation)
        frame = materialise(update_frame(state.frame, objectives, sound, sound & (rank == 0)))
        points = normalize(frame, objectives, sound)
        lines = state.lines.value
        niche, distance = materialise(nearest_line(points, lines))
        rows = materialise(select_by_niche(key_cut, rank, niche, distance, lines.shape[0], self.population))
        parents = materialise(take_from_union(rows, old, new))
        children = breed(
            key_breed,
            take(self._pairs(key_choose, parents), parents.x),
            state.bounds,
            self.crossover_rate,
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
            copies=False,
            crossover=self.crossover,
            mutation=self.mutation,
        )
        return NSGA3State(children[: self.population], parents, frame, state.lines, state.bounds)

    def _pairs(self, key: Array, parents: Population) -> Array:
        """Who breeds: everybody once, in random order; with constraints the winners of tournaments by violation."""
        count = round_up_to_even(self.population)
        if parents.violation is not None:
            return materialise(least_value_tournament(key, parents.violation, count))
        order = argsort_rows(random.bits(key, (self.population,)))
        return materialise(jnp.concatenate([order, order[: count - self.population]]))
