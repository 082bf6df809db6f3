"""Success-history based adaptive differential evolution with a population that shrinks: L-SHADE, and jSO after it.

Tanabe & Fukunaga (2014), IEEE CEC, 1658-1665, doi:10.1109/CEC.2014.6900380; without a known end of the run this is
their SHADE 1.1, whose population keeps its size. jSO: Brest, Maucec & Boskovic (2017), IEEE CEC, 1311-1318,
doi:10.1109/CEC.2017.7969456.

Differs from the papers: a run ends with a whole generation. Of individuals that enter a full archive in one generation
two may be given the same place, and then one stays. An individual that failed teaches nothing when it is replaced, and
does not enter the archive. With constraints, feasibility comes first, and what a success gains is its gain in the
objective, or in the violation where that differs, each in units of its mean. With equalities the comparison is relaxed
at first as in EpsilonDE (Takahama & Sakai 2006, doi:10.1109/CEC.2006.1688283), and the first row keeps the best point
ever seen.
"""

from __future__ import annotations

import math
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
from galapax.core.checks import check_positive, check_range, check_size
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.numerics.jaxpr import materialise
from galapax.operators.adaptation import (
    Horizon,
    add_to_archive,
    argsort_by_quality,
    check_sizes,
    horizon_from_budget,
    initial_population_size,
    lehmer_mean,
    linear_population_size,
    mask_unused,
    relaxation_levels,
    round_half_up,
    share_of_run,
    success_gains,
)
from galapax.operators.constraint_handling import relax_violation
from galapax.operators.sampling import move_halfway, sample_uniform
from galapax.operators.selection import keep_best, no_worse, take, tree_where
from galapax.operators.variation import binomial_crossover, skip_row

MEMORY_SPREAD = 0.1  # of weights and crossover rates around a remembered one
TERMINAL = -1.0  # in the memory of crossover rates: 0 from now on


class LSHADEState(NamedTuple):
    candidates: Array  # (n, d) trials, waiting for their evaluation; beyond `size` copies of the best parent
    parameters: Array  # (2, n) weight F and crossover rate CR of each trial
    parents: Population  # the best first; beyond `size` as if never evaluated
    size: Array  # how many rows are in use
    archive: Array  # (c, d) parents that lost their place
    filled: Array  # how many rows of the archive are in use
    memory: Array  # (2, h) weights and crossover rates that worked
    turn: Array  # which column of the memory is the next to change
    generations: Array  # made so far
    spent: Array  # evaluations made so far
    first_epsilon: Array  # what the constraints were relaxed by at first
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LSHADE(Algorithm[LSHADEState]):
    """L-SHADE, adaptive differential evolution with a shrinking population, for one objective on a box.

    Strong with a budget of thousands of evaluations a variable, which it must know: without generations or
    max_evaluations the population stays as large as it was. Slow where tens of evaluations a variable must do, and
    on ill-conditioned valleys beside methods that learn a covariance; with equalities EpsilonDE is better.

    population: number of individuals at the start, at least 4; None for 18 d, N_init in the paper, and less where
        max_evaluations would be spent in fewer than 50 such generations.
    last_population: number of individuals at the end, N_min in the paper, at least 4.
    memories: how many weights and crossover rates that worked are remembered, H in the paper.
    archive: parents that lost their place and are still drawn from, per individual, r_arc in the paper.
    best_share: share of the population that mutants are drawn towards, p in the paper.
    weight, crossover_rate: F and CR to start with; they adapt.
    relaxed: with equalities, generations until the constraints hold in full, or half of the run if that is less.
    decay: power with which the level of relaxation falls.
    horizon: when the run ends; the problem's budget says so.
    """

    population: int | None = static(None)  # type: ignore[assignment]
    last_population: int = static(4)
    memories: int = static(6)
    archive: float = static(2.6)
    best_share: float = 0.11
    weight: float = 0.5
    crossover_rate: float = 0.5
    relaxed: float = 400.0
    decay: float = 5.0
    horizon: Horizon | None = None

    traits: ClassVar[Traits] = Traits(fixed_evaluations=False)

    def validate(self) -> None:
        check_sizes(self.population, self.last_population)
        check_size(self.memories, "memories", 1)
        check_range(self.archive, "archive", 0.0, 100.0)
        check_range(self.best_share, "best_share", 0.0, 1.0)
        check_range(self.weight, "weight", 0.0, 1.0)
        check_range(self.crossover_rate, "crossover_rate", 0.0, 1.0)
        check_positive(self.relaxed, "relaxed")
        check_positive(self.decay, "decay")

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        n = self.population or initial_population_size(self.default_population(dim), self.last_population, budget)
        return replace(self, population=n, horizon=horizon_from_budget(budget))

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> LSHADEState:
        n = self.population
        assert n is not None  # it was bound
        x = sample_uniform(key, bounds, n)
        zero, nothing = jnp.zeros((), x.dtype), jnp.zeros((), jnp.int32)
        first = jnp.stack([jnp.asarray(self.weight, x.dtype), jnp.asarray(self.crossover_rate, x.dtype)])[:, None]
        parameters, memory = (jnp.broadcast_to(first, (2, size)) for size in (n, self.memories))
        return LSHADEState(
            candidates=x,
            parameters=parameters,
            parents=empty_population(x, shape),
            size=jnp.full((), n, jnp.int32),
            archive=jnp.broadcast_to(bounds.lower, (max(1, round(self.archive * n)), bounds.dim)),
            filled=nothing,
            memory=memory,
            turn=nothing,
            generations=nothing,
            spent=nothing,
            first_epsilon=zero,
            bounds=bounds,
        )

    def evaluations(self, state: LSHADEState, number: Array | int) -> Array | int:
        return state.size

    def step(self, key: Array, state: LSHADEState, evaluation: CandidateEvaluation) -> LSHADEState:
        """Each trial against its parent; learn from the winners, let the worst go, then breed."""
        key_archive, key_breed = random.split(key)
        relax = evaluation.eq is not None
        rows = jnp.arange(state.parents.x.shape[0], dtype=jnp.int32)
        trials = mask_unused(rows < state.size, as_population(state.candidates, evaluation))
        generations, spent = state.generations + 1, state.spent + state.size
        progress = share_of_run(self.horizon, generations, spent, state.parents.x.dtype)
        first = level = state.first_epsilon
        if relax:
            first, level = relaxation_levels(first, generations, trials, progress, self.relaxed, self.decay)
        new, old = relax_violation(trials, level), relax_violation(state.parents, level)
        better = ~no_worse(old, new) & jnp.isfinite(old.fitness)
        archive, filled = add_to_archive(
            key_archive, state.archive, state.filled, self.capacity(state.size), state.parents.x, better
        )
        memory, turn = self.learn(state, success_gains(old, new, better), better)
        parents = tree_where(no_worse(new, old), trials, state.parents)
        if relax:
            parents = keep_best(parents, state.parents, trials)
        size = linear_population_size(len(rows), self.last_population, progress)
        parents = materialise(mask_unused(rows < size, take(argsort_by_quality(parents, level, relax), parents)))
        filled = jnp.minimum(filled, self.capacity(size))
        candidates, parameters = self.breed(key_breed, parents, size, archive, filled, memory, progress, state.bounds)
        return LSHADEState(
            candidates,
            parameters,
            parents,
            size,
            archive,
            filled,
            memory,
            turn,
            generations,
            spent,
            first,
            state.bounds,
        )

    def capacity(self, size: Array) -> Array:
        """Places in the archive of a population of that size."""
        return round_half_up(jnp.asarray(self.archive, jnp.float32) * size)

    def learn(self, state: LSHADEState, gains: Array, better: Array) -> tuple[Array, Array]:
        """The memory with what worked in the column whose turn it is, and the next one's turn, where anything did."""
        mean, none = lehmer_mean(state.parameters, gains, 2)
        place = (jnp.arange(self.memories, dtype=jnp.int32) == state.turn)[None, :]
        over = jnp.stack([jnp.zeros((), bool), none[1]])[:, None] | (state.memory < 0)
        learned = jnp.where(over, TERMINAL, self.blend_memory(state.memory, mean[:, None]))
        any_worked = jnp.any(better)
        memory = jnp.where(place & any_worked, learned, state.memory)
        return memory, jnp.where(any_worked, (state.turn + 1) % self.memories, state.turn)

    def breed(
        self,
        key: Array,
        parents: Population,
        size: Array,
        archive: Array,
        filled: Array,
        memory: Array,
        progress: Array,
        bounds: Bounds,
    ) -> tuple[Array, Array]:
        """A trial for each of the first `size` parents, with the weight and crossover rate that made it."""
        key_memory, key_weight, key_rate, key_best, key_partners, key_cross = random.split(key, 6)
        x, n = parents.x, parents.x.shape[0]
        rows = jnp.arange(n, dtype=jnp.int32)
        around = self.centres(memory)[:, random.integers(key_memory, (n,), self.memories)]
        weight = jnp.minimum(random.positive_cauchy(key_weight, around[0], MEMORY_SPREAD), 1)
        rate = jnp.clip(around[1] + MEMORY_SPREAD * random.normal(key_rate, (n,), x.dtype), 0, 1)
        weight, rate = self.limit_parameters(weight, jnp.where(around[1] < 0, 0, rate), progress)
        weight, rate = materialise((weight, rate))
        ahead = self.ahead(key_best, rows, size, progress)
        words = random.bits(key_partners, (2, n))
        plus = skip_row(random.scale_to(words[0], size - 1), rows)
        minus = random.scale_to(words[1], size + filled - 2)  # of the population or the archive
        minus = skip_row(skip_row(minus, jnp.minimum(rows, plus)), jnp.maximum(rows, plus))
        ahead, plus, minus = materialise((ahead, plus, minus))
        from_population = x.at[jnp.minimum(minus, n - 1)].get(mode="promise_in_bounds")
        from_archive = archive.at[jnp.clip(minus - size, 0, archive.shape[0] - 1)].get(mode="promise_in_bounds")
        x_ahead, x_plus = x.at[jnp.stack([ahead, plus])].get(mode="promise_in_bounds")
        x_minus = jnp.where((minus < size)[:, None], from_population, from_archive)
        pull = (weight * self.pull(progress))[:, None]
        mutants = materialise(x + pull * (x_ahead - x) + weight[:, None] * (x_plus - x_minus))
        trials = move_halfway(binomial_crossover(key_cross, x, mutants, rate[:, None]), x, bounds)
        return jnp.where((rows < size)[:, None], trials, x[0]), jnp.stack([weight, rate])

    def ahead(self, key: Array, rows: Array, size: Array, progress: Array) -> Array:
        """For each row one of the best that its mutant is drawn towards, (n,)."""
        best = jnp.maximum(round_half_up(self.share(progress) * size), 2)
        besides = self.besides_itself(progress) & (rows < best)
        pick = random.scale_to(random.bits(key, rows.shape), best - besides.astype(jnp.int32))
        return jnp.where(besides, skip_row(pick, rows), pick)

    # --- where jSO differs

    @staticmethod
    def default_population(dim: int) -> int:
        return 18 * dim

    def share(self, progress: Array) -> Array | float:
        """The share of the population that mutants are drawn towards."""
        return self.best_share

    def pull(self, progress: Array) -> Array | float:
        """How much stronger they are drawn there than along the difference."""
        return 1.0

    def limit_parameters(self, weight: Array, rate: Array, progress: Array) -> tuple[Array, Array]:
        """Weights and crossover rates within the limits of this part of the run."""
        return weight, rate

    def besides_itself(self, progress: Array) -> Array:
        """Whether an individual among the best is drawn towards the others only."""
        return jnp.zeros((), bool)

    def centres(self, memory: Array) -> Array:
        """What weights and crossover rates are drawn around."""
        return memory

    def blend_memory(self, old: Array, mean: Array) -> Array:
        """What a column of the memory becomes."""
        return jnp.broadcast_to(mean, old.shape)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JSO(LSHADE):
    """jSO, an L-SHADE whose weights and rates are held back in the first part of the run.

    The better of the two with ten thousand evaluations a variable, the worse with few; it must know when the run ends:
    without generations or max_evaluations it searches as if it had just begun.

    population: as in LSHADE, but None for 25 ln(d) sqrt(d).
    best_share: at the start; it falls to half of that.
    last_population, memories, archive, weight, crossover_rate, relaxed, decay, horizon: as in LSHADE.
    """

    memories: int = static(5)
    archive: float = static(1.0)
    best_share: float = 0.25
    weight: float = 0.3
    crossover_rate: float = 0.8

    @staticmethod
    def default_population(dim: int) -> int:
        return round(25 * math.log(dim) * math.sqrt(dim))

    def share(self, progress: Array) -> Array | float:
        return self.best_share * (1 - 0.5 * progress)

    def pull(self, progress: Array) -> Array | float:
        return jnp.where(progress < 0.2, 0.7, jnp.where(progress < 0.4, 0.8, 1.2)).astype(progress.dtype)

    def limit_parameters(self, weight: Array, rate: Array, progress: Array) -> tuple[Array, Array]:
        least = jnp.where(progress < 0.25, 0.7, jnp.where(progress < 0.5, 0.6, 0.0)).astype(rate.dtype)
        most = jnp.where(progress < 0.6, 0.7, 1.0).astype(weight.dtype)
        return jnp.minimum(weight, most), jnp.maximum(rate, least)

    def besides_itself(self, progress: Array) -> Array:
        return progress < 0.5

    def centres(self, memory: Array) -> Array:
        return memory.at[:, -1].set(0.9)

    def blend_memory(self, old: Array, mean: Array) -> Array:
        return (old + mean) / 2
