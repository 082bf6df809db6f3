"""Differential evolution for constraints: relaxed at first, and with candidates moved onto the equalities.

The comparison at a level epsilon, its schedule and the Newton step on violated constraints are those of Takahama &
Sakai (2006), IEEE CEC, 1-8, doi:10.1109/CEC.2006.1688283. Mutation is current-to-pbest/1 with an archive, of Zhang &
Sanderson (2009), IEEE Trans. Evol. Comput. 13(5):945-958, doi:10.1109/TEVC.2009.2014613; the memory of weights and
rates that worked is that of Tanabe & Fukunaga (2013), IEEE CEC, 71-78, doi:10.1109/CEC.2013.6557555.

Differs from the papers: constraints are relaxed and candidates moved only where there are equalities, since without
them feasibility first does as well and sooner; every slot has a level of its own, from 0 in the first to epsilon in the
last, so that feasible points live beside relaxed ones that lead to better places; the p-best is the winner of a small
tournament, which needs no sorting; a slot's archive is the parent that lost it last; the memory's mean favours long
steps by one power more, since short ones succeed too often and the population would come to rest early; a search at
rest starts afresh, and the run has converged once two searches came to rest at the best point. The first slot keeps the
best point ever seen and takes no part in breeding the others, so that a new search is independent of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import (
    Algorithm,
    Budget,
    Traits,
    static,
)
from galapax.core.checks import check_integer, check_positive, check_range
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.numerics import random
from galapax.operators.adaptation import update_memory
from galapax.operators.constraint_handling import INITIAL_PASSING_SHARE, epsilon_level, initial_level, relax_violation
from galapax.operators.sampling import bounce_back, sample_uniform
from galapax.operators.selection import best_index, keep_best, no_worse, set_first, take_row, tree_where
from galapax.operators.variation import binomial_crossover, draw_partners

DEFAULT_POPULATION, LARGE_POPULATION, MIN_LARGE_DIM = (
    64,
    96,
    15,
)  # individuals, and the variables from which on there are more of them
MEMORIES = 5  # H of Tanabe & Fukunaga
PARAMETER_SPREAD = 0.1  # of weights and crossover rates around a remembered one, as there
MIN_WEIGHT = 0.05
NOTABLE_GAIN = 1e-6  # a smaller relative gain does not count as one: a search that crawls is at rest
MIN_AGREEING_RESTS = 2  # searches that must come to rest at the best point before a run has converged
AGREED_VALUE_TOLERANCE, AGREED_DISTANCE = (
    1e-5,
    1e-4,
)  # they do within this relative difference in value, or share of the box in x


class SearchProgress(NamedTuple):
    """Where the present search stands."""

    age: Array  # generations since it started
    first_epsilon: Array
    anchor: Population  # (1, ...) its best individual when it last gained notably
    rest: Array  # generations since then


class EpsilonDEState(NamedTuple):
    candidates: Array  # (n, d) trials, waiting for their evaluation
    parameters: Array  # (2, n) weight F and crossover rate CR of each trial
    parents: Population  # the first is the best ever seen
    lost: Array  # (n, d) the parent that lost each slot last
    memory: Array  # (2, MEMORIES) weights and crossover rates that worked, the latest first
    search: SearchProgress
    agreed: Array  # searches that came to rest at the best point ever
    before: Population  # (1, ...) the best ever when a search came to rest last
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EpsilonDE(Algorithm[EpsilonDEState]):
    """Adaptive differential evolution for one objective, made for constraints.

    population: number of individuals n, at least 4; None for 64, and 96 where more than 15 variables have inequalities
        only: in that many, smaller populations come to rest at lesser optima.
    repaired: with equalities, share of the candidates that are moved onto the constraints they violate before they are
        evaluated: by derivatives, or where JAX cannot derive the constraints as functions of one solution, by
        differences of values. Each counts as 1 + d evaluations.
    rivals: size of the tournament for the individual that a mutant is drawn towards.
    relaxed: with equalities, generations until the constraints hold in full, Tc in Takahama & Sakai. A shorter run
        returns the best feasible point that it met on the way.
    decay: power with which the level falls, cp there.
    patience: generations without a notable gain after which the search starts afresh.
    weight, crossover_rate: F and CR to start with; they adapt.
    """

    # two searches that agree take 1500 to 5000 generations; 40 by measurement, see benchmarks/mixed.py --few
    traits: ClassVar[Traits] = Traits(default_generations=6000, min_generations=40)

    population: int = static(None)
    repaired: float = static(0.25)
    rivals: int = static(4)
    relaxed: float = 400.0
    decay: float = 5.0
    patience: float = 500.0
    weight: float = 0.5
    crossover_rate: float = 0.5

    def n_repairs(self) -> int:
        return round(self.repaired * self.population)

    def validate(self) -> None:
        if self.population is not None:
            check_integer(self.population, "population", 4, "each individual needs two partners as well as the best")
        check_integer(self.rivals, "rivals", 1, "a tournament needs at least one")
        check_range(self.repaired, "repaired", 0.0, 1.0)
        check_positive(self.relaxed, "relaxed")
        check_positive(self.decay, "decay")
        check_positive(self.patience, "patience")
        check_range(self.weight, "weight", 0.0, 1.0)
        check_range(self.crossover_rate, "crossover_rate", 0.0, 1.0)

    def bind(self, dim: int, shape: Shape, budget: Budget) -> EpsilonDE:
        many = dim > MIN_LARGE_DIM and shape.ineq > 0 and not shape.eq
        return replace(self, population=self.population or (LARGE_POPULATION if many else DEFAULT_POPULATION))

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> EpsilonDEState:
        x = sample_uniform(key, bounds, self.population)
        parents, zero = empty_population(x, shape), jnp.zeros((), x.dtype)
        first = jnp.stack([jnp.asarray(self.weight, x.dtype), jnp.asarray(self.crossover_rate, x.dtype)])[:, None]
        parameters, memory = (jnp.broadcast_to(first, (2, size)) for size in (self.population, MEMORIES))
        search = SearchProgress(age=zero, first_epsilon=zero, anchor=take_row(parents, 0), rest=zero)
        return EpsilonDEState(x, parameters, parents, x, memory, search, zero, take_row(parents, 0), bounds)

    def step(self, key: Array, state: EpsilonDEState, evaluation: CandidateEvaluation) -> EpsilonDEState:
        """Judge each trial against its parent at the slot's level, learn from the winners, then breed."""
        key_breed, key_start = random.split(key)
        trials = as_population(state.candidates, evaluation)
        search = observe(state.search, trials, relax=evaluation.eq is not None)
        epsilon = self.levels(search)
        new, old = relax_violation(trials, epsilon), relax_violation(state.parents, epsilon)
        better = ~no_worse(old, new)
        parents = keep_best(tree_where(no_worse(new, old), trials, state.parents), state.parents, trials)
        lost = jnp.where(better[:, None], state.parents.x, state.lost)
        memory = update_memory(state.memory, state.parameters, better)
        candidates, parameters = self.breed(key_breed, parents, lost, memory, epsilon, state.bounds)
        state = state._replace(candidates=candidates, parameters=parameters, parents=parents, lost=lost, memory=memory)
        return self.renew(key_start, state._replace(search=search))

    def levels(self, search: SearchProgress) -> Array:
        """The level of each slot, (n,)."""
        share = jnp.linspace(0, 1, self.population, dtype=search.age.dtype) ** 2
        return share * epsilon_level(search.first_epsilon, search.age - 1, self.relaxed, self.decay)

    def breed(
        self, key: Array, parents: Population, lost: Array, memory: Array, epsilon: Array, bounds: Bounds
    ) -> tuple[Array, Array]:
        """A trial for each parent, with the weight and crossover rate that made it."""
        key_memory, key_weight, key_rate, key_rivals, key_partners, key_lost, key_cross, key_back = random.split(key, 8)
        x, n = parents.x, parents.x.shape[0]
        remembered = memory[:, random.integers(key_memory, (n,), MEMORIES)]
        weight = remembered[0] + PARAMETER_SPREAD * random.cauchy(key_weight, (n,), x.dtype)
        rate = remembered[1] + PARAMETER_SPREAD * random.normal(key_rate, (n,), x.dtype)
        parameters = jnp.stack([jnp.clip(weight, MIN_WEIGHT, 1), jnp.clip(rate, 0, 1)])
        # partners are drawn among all but the first slot, which shares those of the second
        plus, minus = (jnp.concatenate([p[:1], p]) + 1 for p in draw_partners(key_partners, n - 1, 2))
        ahead = self.winners(key_rivals, parents, epsilon)
        from_lost = random.bernoulli(key_lost, 0.5, (n, 1))
        difference = x[ahead] - x + x[plus] - jnp.where(from_lost, lost[minus], x[minus])
        crossed = binomial_crossover(key_cross, x, x + parameters[0][:, None] * difference, parameters[1][:, None])
        return bounce_back(key_back, crossed, x, bounds), parameters

    def winners(self, key: Array, parents: Population, epsilon: Array) -> Array:
        """For each slot the row that wins a tournament at its level among all but the first, (n,); for the first, 0."""
        n = parents.x.shape[0]
        rows = 1 + random.integers(key, (self.rivals, n), n - 1)
        rivals = jax.tree.map(lambda a: a[rows], parents._replace(x=jnp.arange(n, dtype=jnp.int32)))
        best = jax.tree.map(lambda a: a[0], rivals)
        for i in range(1, self.rivals):
            rival = jax.tree.map(lambda a: a[i], rivals)  # noqa: B023 (used at once)
            best = tree_where(no_worse(relax_violation(rival, epsilon), relax_violation(best, epsilon)), rival, best)
        return best.x.at[0].set(0)

    def renew(self, key: Array, state: EpsilonDEState) -> EpsilonDEState:
        """A new search, with the best ever seen in the first slot, where the present one is at rest."""
        shape = Shape(ineq=0 if state.parents.violation is None else 1)
        fresh = self.init(key, state.bounds, shape)
        best = take_row(state.parents, 0)
        agreed = count_agreements(state.agreed, state.before, best, state.search.anchor, state.bounds)
        fresh = fresh._replace(parents=set_first(fresh.parents, best), agreed=agreed, before=best)
        at_rest = (state.search.rest >= self.patience) & (state.search.age >= self.relaxed)
        return jax.tree.map(lambda new, old: old if new is old else jnp.where(at_rest, new, old), fresh, state)

    def termination(self, state: EpsilonDEState, bounds: Bounds, tolerance: Array) -> Array:
        """A search at rest starts afresh, so that one alone does not end the run."""
        return jnp.where(state.agreed >= MIN_AGREEING_RESTS, STOP_CODES[Stop.TOLERANCE], RUNNING)


def count_agreements(agreed: Array, before: Population, best: Population, rested: Population, bounds: Bounds) -> Array:
    """How many searches came to rest at the best point ever, when one more did at `rested`; before: the best ever when
    they were counted last. Where it has become notably better since, those do not count any more.
    """
    return jnp.where(_is_same_answer(before, best, bounds), agreed, 0) + _is_same_answer(rested, best, bounds)


def _is_same_answer(one: Population, best: Population, bounds: Bounds) -> Array:
    """Whether two individuals (1, ...) are the same feasible answer."""
    alike = jnp.abs(one.fitness - best.fitness) <= AGREED_VALUE_TOLERANCE * jnp.abs(best.fitness)
    near = jnp.all(jnp.abs(one.x - best.x) <= AGREED_DISTANCE * bounds.span, axis=1)
    same = jnp.isfinite(one.fitness) & (alike | near)
    if one.violation is not None and best.violation is not None:
        same &= (one.violation <= 0) & (best.violation <= 0)
    return same[0]


def observe(search: SearchProgress, trials: Population, relax: bool) -> SearchProgress:
    """The search a generation later, with these trials evaluated. Unless it is to relax, its level stays 0."""
    searching = jax.tree.map(lambda a: a[1:], trials)  # the first slot is not part of the search
    best = take_row(searching, best_index(searching))
    gained = search.anchor.fitness - best.fitness > NOTABLE_GAIN * jnp.abs(best.fitness)
    first = search.first_epsilon
    if best.violation is not None and search.anchor.violation is not None:
        less = search.anchor.violation - best.violation > NOTABLE_GAIN * best.violation
        gained = jnp.where(best.violation == search.anchor.violation, gained, less)
    if relax and trials.violation is not None:
        first = jnp.where(search.age == 0, initial_level(trials.violation, INITIAL_PASSING_SHARE), first)
    generations_at_rest = jnp.where(gained[0], 0, search.rest + 1)
    return SearchProgress(search.age + 1, first, tree_where(gained, best, search.anchor), generations_at_rest)
