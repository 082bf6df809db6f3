"""NSGA-II, the elitist non-dominated sorting genetic algorithm.

Deb, Pratap, Agarwal & Meyarivan (2002), IEEE Transactions on Evolutionary Computation 6(2):182-197,
doi:10.1109/4235.996017. Real genes with simulated binary crossover and polynomial mutation, both kept within the box as
in the authors' program; constraints by constrained domination.

Differs from the paper, unless `published` is set, in what measured better on ZDT4, WFG1, WFG4, MW2 and TNK
(`benchmarks/fronts.py`):
- A copy of another individual loses to everybody else, and a child that crossover left as it was mutates in one gene.
- Parents are found by tournaments in which who dominates the other wins, and else who is less crowded, not who is of
  an earlier front; each takes part in two. Fronts would let a few breed most children of an early population.
- Every pair is crossed, and two thirds of a gene mutate on average, with constraints half a gene: one gene is worse on
  ZDT4 and WFG4, half a gene on ZDT6.

With constraints, unless `differences` says otherwise, some of the children are parents moved by half the difference of
two others, as in differential evolution (Kukkonen & Lampinen 2005, GDE3, CEC 2005:443-450). Crossover and mutation gene
by gene cannot follow an edge of the feasible set that does not run along an axis: on `blending`, where a component can
only grow at the cost of others, they end at three quarters of the front's hypervolume and with differences at 99 %.
With two objectives a tenth of the children is made so at first, then more or fewer, as they survive: on MW2 and MW13,
whose variables have minima of their own each, crossover finds more, above all in the first generations. With more
objectives it is always half of them: learned, the share falls too early on C3-DTLZ1, and runs on it, on C1-DTLZ1 and
on MW4 end far from the front more often; MW8 is worse off with half.

Where the paper is silent: opponents in its tournament for parents are drawn with replacement; crowding distances are
those in the fronts of parents and offspring together, before the last front is cut; of an odd population's last pair
one child is dropped.
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
from galapax.core.checks import check_bool, check_integer, check_range
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.numerics.jaxpr import materialise
from galapax.operators.ranking import ranks_and_crowding, select_best_rows
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import (
    binary_tournament,
    concatenate_optional,
    domination_tournament,
    fail_duplicates,
    take,
    take_from_union,
)
from galapax.operators.variation import (
    Crossover,
    Mutation,
    adapt_difference_share,
    breed,
    check_variation,
    mix_in_differences,
    round_up_to_even,
)

# of the children are made by differences with constraints: where their share is learned, at first; and where it is not
AT_FIRST, HALF = 0.1, 0.5


class NSGA2State(NamedTuple):
    candidates: Array  # (n, d) offspring, waiting for their evaluation
    parents: Population
    bounds: Bounds
    moved: Array | None = None  # (n,) bool, which candidates were made by differences, where their share is learned
    share: Array | None = None  # of them


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NSGA2(Algorithm[NSGA2State]):
    """NSGA-II for several objectives on a box.

    population: number of parents n, and of offspring a generation, at least 2.
    crossover_rate: chance that two parents are crossed rather than copied, p_c in the paper; None for 1, and for the
        paper's 0.9 where `published` is set.
    crossover_index: how close children come to their parents, eta_c in the paper.
    mutation_rate: chance that a gene mutates, p_m in the paper; None for 2/(3d), with constraints 1/(2d), and for the
        paper's 1/d where `published` is set.
    mutation_index: how small mutations are, eta_m in the paper.
    crossover: your own operator in place of SBX: a function of (key, a, b, bounds) that returns two children of each
        pair of rows of a and b (k, d).
    mutation: your own operator in place of polynomial mutation: a function of (key, x, bounds, rate) that returns the
        mutants of x (k, d).
    differences: share of the children made by differences of parents; 0 for the paper's; None for 0 without constraints
        and, with them, 0.5; with two objectives 0.1 at first and then as those children survive, unless `published`.
    published: whether copies are kept and parents found as in the paper.
    """

    population: int = static(100)
    crossover_rate: float | None = None
    crossover_index: float = 20.0
    mutation_rate: float | None = None
    mutation_index: float = 20.0
    crossover: Crossover | None = static(None)  # noqa: RUF009 (a field, like the others)
    mutation: Mutation | None = static(None)  # noqa: RUF009 (a field, like the others)
    differences: float | None = None
    published: bool = static(False)

    traits: ClassVar[Traits] = Traits(multi_objective=True, max_fused_front=1024)

    def validate(self) -> None:
        check_integer(self.population, "population", 2, "each child needs two parents")
        check_variation(
            1.0 if self.crossover_rate is None else self.crossover_rate,
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
            self.crossover,
            self.mutation,
        )
        if self.differences is not None:
            check_range(self.differences, "differences", 0.0, 1.0)
        check_bool(self.published, "published")

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        crossover, genes = (0.9, 1.0) if self.published else (1.0, 1 / 2 if shape.constrained else 2 / 3)
        return replace(
            self,
            crossover_rate=crossover if self.crossover_rate is None else self.crossover_rate,
            mutation_rate=genes / dim if self.mutation_rate is None else self.mutation_rate,
        )

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> NSGA2State:
        x = sample_uniform(key, bounds, self.population)
        state = NSGA2State(candidates=x, parents=empty_population(x, shape), bounds=bounds)
        # here and not in `bind`, since a black box tells how many objectives it has when it is called
        if self.differences is not None or not shape.constrained or shape.objectives > 2 or self.published:
            return state
        return state._replace(moved=jnp.zeros(self.population, bool), share=jnp.asarray(AT_FIRST, x.dtype))

    def step(self, key: Array, state: NSGA2State, evaluation: CandidateEvaluation) -> NSGA2State:
        """Keep the better half of parents and offspring by front, then by crowding; tournaments choose who breeds."""
        key_choose, key_breed = random.split(key)
        old, new = state.parents, as_population(state.candidates, evaluation)
        objectives, violation = (
            jnp.concatenate([old.objectives, new.objectives]),
            concatenate_optional(old.violation, new.violation),
        )
        if not self.published:
            objectives = fail_duplicates(objectives, jnp.concatenate([old.x, new.x]))
        rank, crowding = ranks_and_crowding(objectives, violation, self.population)
        rows = select_best_rows(rank, crowding, self.population)
        parents, rank, crowding = materialise((take_from_union(rows, old, new), take(rows, rank), take(rows, crowding)))
        if self.published:
            chosen = binary_tournament(key_choose, rank, crowding, round_up_to_even(self.population))
        else:
            chosen = domination_tournament(key_choose, parents, crowding, round_up_to_even(self.population))
        chosen = materialise(chosen)
        x = take(chosen, parents.x)
        children = breed(
            key_breed,
            x,
            state.bounds,
            self.crossover_rate,  # type: ignore[arg-type]  # set by `bind`
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
            copies=self.published,
            crossover=self.crossover,
            mutation=self.mutation,
        )
        share = self._share(state, rows)
        if share is None:
            return NSGA2State(children[: self.population], parents, state.bounds)
        # `breed` draws from children 0 and 1 of its key; that the published form draws from 1 again is a slip kept,
        # so that `galapax reproduce moea` prints what it printed
        key_differ = random.fold_in(key_breed, 1 if self.published else 2)
        children, moved = mix_in_differences(key_differ, children, x, state.bounds, share)
        learned = (moved[: self.population], share) if state.moved is not None else (None, None)
        return NSGA2State(children[: self.population], parents, state.bounds, *learned)

    def _share(self, state: NSGA2State, rows: Array) -> Array | float | None:
        """Of the children to be made by differences, when these rows of parents and candidates have survived."""
        if state.moved is None or state.share is None:
            unasked = self.differences is None and state.parents.violation is not None
            return HALF if unasked else self.differences
        stays = jnp.zeros(2 * self.population, bool).at[materialise(rows)].set(True, unique_indices=True)
        return materialise(adapt_difference_share(state.share, state.moved, stays[self.population :]))
