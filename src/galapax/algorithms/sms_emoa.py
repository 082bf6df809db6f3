"""SMS-EMOA: keep the points without which the front would lose the most hypervolume. For two and three objectives.

Beume, Naujoks & Emmerich (2007), European Journal of Operational Research 181(3):1653-1669,
doi:10.1016/j.ejor.2006.08.008. Fronts come first, as in NSGA-II; of the last one that does not fit, who adds the least
hypervolume leaves, again and again. Constraints by constrained domination.

Differs from the paper:
- Not one child a generation but as many as there are parents, so that a device has something to do. The last front
  loses its least contributors one after another all the same: several leave in one round, but only those who would
  leave anyway (`operators/contributions.py`).
- Volumes reach half the range of the front beyond its worst values (`corner`), not 1 in units of the objectives,
  so that units do not matter. The paper keeps the ends of a front of two objectives in any case.
- A front that others dominate is cut by hypervolume, too, and not by the number of those who dominate each point.
- Parents are found by tournaments in which who dominates the other wins, and else who is less crowded, as in our
  NSGA-II; the paper's are drawn by chance. With what they add in place of crowding, or without either, the median run
  on DTLZ4 ends on an edge of the front, and that on ZDT4 has less of the hypervolume.
- A copy of another individual loses to everybody else, and a child that crossover left as it was mutates in one gene.
- With constraints, unless `differences` says otherwise, half of the children are parents moved by half the difference
  of two others, as in our NSGA-II.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Traits,
    static,
)
from galapax.core.checks import check_integer, check_range
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.numerics.jaxpr import materialise
from galapax.operators.contributions import MAX_EXACT_OBJECTIVES, select_by_hypervolume
from galapax.operators.ranking import crowding_distance, ranks
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import (
    concatenate_optional,
    domination_tournament,
    fail_duplicates,
    take,
    take_from_union,
)
from galapax.operators.variation import (
    Crossover,
    Mutation,
    breed,
    check_variation,
    mix_in_differences,
    round_up_to_even,
)


class SMSEMOAState(NamedTuple):
    candidates: Array  # (n, d) offspring, waiting for their evaluation
    parents: Population
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SMSEMOA(Algorithm[SMSEMOAState]):
    """SMS-EMOA for two or three objectives on a box.

    population: number of parents n, mu in the paper, and of offspring a generation, at least 2.
    crossover_rate: chance that two parents are crossed rather than copied, p_c.
    crossover_index: how close children come to their parents, eta_c.
    mutation_rate: chance that a gene mutates, p_m; None for 1/d, one gene on average.
    mutation_index: how small mutations are, eta_m.
    crossover: your own operator in place of SBX: a function of (key, a, b, bounds) that returns two children of each
        pair of rows of a and b (k, d).
    mutation: your own operator in place of polynomial mutation: a function of (key, x, bounds, rate) that returns the
        mutants of x (k, d).
    differences: share of the children made by differences of parents; None for 0 without constraints and 0.5 with them.
    corner: where volumes end, in units of the front's range from its best values on: more than 1.
    """

    population: int = static(100)
    crossover_rate: float = 1.0
    crossover_index: float = 20.0
    mutation_rate: float | None = None
    mutation_index: float = 20.0
    crossover: Crossover | None = static(None)  # noqa: RUF009 (a field, like the others)
    mutation: Mutation | None = static(None)  # noqa: RUF009 (a field, like the others)
    differences: float | None = None
    corner: float = 1.5

    traits: ClassVar[Traits] = Traits(multi_objective=True)

    def validate(self) -> None:
        check_integer(self.population, "population", 2, "each child needs two parents")
        check_variation(
            self.crossover_rate,
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
            self.crossover,
            self.mutation,
        )
        check_range(self.corner, "corner", 1.0, 1e6)
        if self.differences is not None:
            check_range(self.differences, "differences", 0.0, 1.0)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        return replace(self, differences=0.5 if self.differences is None and shape.constrained else self.differences)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> SMSEMOAState:
        if (
            shape.objectives > MAX_EXACT_OBJECTIVES
        ):  # here and not in `bind`, since a black box tells how many when it is called
            raise InputError(
                f"SMSEMOA measures hypervolumes of two and three objectives, and this problem has {shape.objectives}; "
                "use NSGA3."
            )
        x = sample_uniform(key, bounds, self.population)
        return SMSEMOAState(candidates=x, parents=empty_population(x, shape), bounds=bounds)

    def step(self, key: Array, state: SMSEMOAState, evaluation: CandidateEvaluation) -> SMSEMOAState:
        """Keep the first fronts, of the last one those who add most; tournaments choose who breeds."""
        key_choose, key_breed = random.split(key)
        old, new = state.parents, as_population(state.candidates, evaluation)
        objectives, violation = (
            jnp.concatenate([old.objectives, new.objectives]),
            concatenate_optional(old.violation, new.violation),
        )
        objectives = materialise(fail_duplicates(objectives, jnp.concatenate([old.x, new.x])))
        rank = materialise(ranks(objectives, violation))
        rows = materialise(select_by_hypervolume(objectives, rank, self.population, self.corner))
        parents = materialise(take_from_union(rows, old, new))
        crowding = materialise(take(rows, crowding_distance(objectives, rank)))
        x = take(
            materialise(domination_tournament(key_choose, parents, crowding, round_up_to_even(self.population))),
            parents.x,
        )
        children = breed(
            key_breed,
            x,
            state.bounds,
            self.crossover_rate,
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
            copies=False,
            crossover=self.crossover,
            mutation=self.mutation,
        )
        if self.differences is not None:
            key_differ = random.fold_in(key_breed, 2)
            children, _ = mix_in_differences(key_differ, children, x, state.bounds, self.differences)
        return SMSEMOAState(children[: self.population], parents, state.bounds)
