"""NSGA-II, the elitist non-dominated sorting genetic algorithm.

Deb, Pratap, Agarwal & Meyarivan (2002), IEEE Transactions on Evolutionary Computation 6(2):182-197,
doi:10.1109/4235.996017. Real genes with simulated binary crossover and polynomial mutation, both kept within the box as
in the authors' program; constraints by constrained domination.

Differs from the paper where there are constraints: unless `differences` says otherwise, half of the children are then
parents moved by half the difference of two others, as in differential evolution (Kukkonen & Lampinen 2005, GDE3, CEC
2005:443-450). Crossover and mutation gene by gene cannot follow an edge of the feasible set that does not run along an
axis: on `blending`, where a component can only grow at the cost of others, they end at three quarters of the front's
hypervolume and with differences at 99 %.

Where the paper is silent: opponents in the tournament for parents are drawn with replacement; crowding distances are
those in the fronts of parents and offspring together, before the last front is cut; of an odd population's last pair
one child is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import Evaluation, Population, Shape, evaluated, static, unevaluated
from galapax.core.checks import in_range, whole
from galapax.core.problem import Bounds
from galapax.numerics import random
from galapax.numerics.materialise import stored
from galapax.operators.crossover import simulated_binary_crossover
from galapax.operators.dominance import best_rows, ranks_and_crowding
from galapax.operators.mutation import add_difference, polynomial_mutation
from galapax.operators.sampling import uniform_in
from galapax.operators.selection import binary_tournament, join, take, take_from_both


class NSGA2State(NamedTuple):
    candidates: Array  # (n, d) offspring, waiting for their evaluation
    parents: Population
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NSGA2:
    """NSGA-II for several objectives on a box.

    population: number of parents n, and of offspring a generation, at least 2.
    crossover_rate: chance that two parents are crossed rather than copied, p_c in the paper.
    crossover_index: how close children come to their parents, eta_c in the paper.
    mutation_rate: chance that a gene mutates, p_m in the paper; None for its 1/d, one gene on average.
    mutation_index: how small mutations are, eta_m in the paper.
    differences: share of the children made by differences of parents; 0 for the paper's; None for 0 without constraints
        and 0.5 with them.
    """

    population: int = static(100)
    crossover_rate: float = 0.9
    crossover_index: float = 20.0
    mutation_rate: float | None = None
    mutation_index: float = 20.0
    differences: float | None = None

    several_objectives: ClassVar[bool] = True

    def check(self) -> None:
        whole(self.population, "population", 2, "children have two parents")
        check_variation(self.crossover_rate, self.crossover_index, self.mutation_rate, self.mutation_index)
        if self.differences is not None:
            in_range(self.differences, "differences", 0.0, 1.0)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> NSGA2State:
        x = uniform_in(key, bounds, self.population)
        return NSGA2State(candidates=x, parents=unevaluated(x, shape), bounds=bounds)

    def step(self, key: Array, state: NSGA2State, evaluation: Evaluation) -> NSGA2State:
        """Keep the better half of parents and offspring by front, then by crowding; tournaments choose who breeds."""
        key_choose, key_breed = random.split(key)
        old, new = state.parents, evaluated(state.candidates, evaluation)
        rank, crowding = ranks_and_crowding(
            jnp.concatenate([old.objectives, new.objectives]), join(old.violation, new.violation)
        )
        rows = best_rows(rank, crowding, self.population)
        parents, rank, crowding = stored((take_from_both(rows, old, new), take(rows, rank), take(rows, crowding)))
        chosen = stored(binary_tournament(key_choose, rank, crowding, even(self.population)))
        x = take(chosen, parents.x)
        children = breed(
            key_breed,
            x,
            state.bounds,
            self.crossover_rate,
            self.crossover_index,
            self.mutation_rate,
            self.mutation_index,
        )
        share = self.differences
        if share is None and evaluation.violation is not None:
            share = 0.5
        if share is not None:
            key_which, key_move = random.split(random.fold(key_breed, 1))
            moved = stored(add_difference(key_move, stored(x), state.bounds))
            children = jnp.where(random.bernoulli(key_which, share, (x.shape[0], 1)), moved, children)
        return NSGA2State(children[: self.population], parents, state.bounds)


def even(count: int) -> int:
    """The least even number of at least `count`."""
    return count + count % 2


def breed(
    key: Array,
    x: Array,
    bounds: Bounds,
    crossover_rate: Any,
    crossover_index: Any,
    mutation_rate: Any,
    mutation_index: Any,
) -> Array:
    """Two children of each row in the first half of x (n, d), n even, and its like in the second half, (n, d)."""
    key_cross, key_mutate = random.split(key)
    a, b = stored(jnp.split(x, 2))
    children = stored(simulated_binary_crossover(key_cross, a, b, bounds, crossover_index, crossover_rate))
    rate = 1 / x.shape[1] if mutation_rate is None else mutation_rate
    return polynomial_mutation(key_mutate, jnp.concatenate(children), bounds, mutation_index, rate)


def check_variation(crossover_rate: Any, crossover_index: Any, mutation_rate: Any, mutation_index: Any) -> None:
    """Refuse what `breed` cannot use."""
    in_range(crossover_rate, "crossover_rate", 0.0, 1.0)
    if mutation_rate is not None:
        in_range(mutation_rate, "mutation_rate", 0.0, 1.0)
    in_range(crossover_index, "crossover_index", 0.0, 1000.0)
    in_range(mutation_index, "mutation_index", 0.0, 1000.0)
