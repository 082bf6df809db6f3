"""L-SRTDE: differential evolution whose weights follow the rate of success, with a newest and a top population.

Stanovov & Semenkin (2024), IEEE CEC, doi:10.1109/CEC60901.2024.10611907, first of the CEC 2024 competition; constants
as in the authors' program.

Differs from the paper: all trials of a generation are made from the populations at its start, and those that succeed
are written to the ring of the newest one after another at its end; the only partners kept apart are the two from the
top, since the program compares the other numbers across populations. A run ends with a whole generation. Constraints,
failures and equalities are treated as in LSHADE: feasibility first, relaxed at first where there are equalities.
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
    argsort_by_quality,
    check_sizes,
    horizon_from_budget,
    initial_population_size,
    lehmer_mean,
    linear_population_size,
    mask_unused,
    relaxation_levels,
    share_of_run,
    success_gains,
)
from galapax.operators.constraint_handling import relax_violation
from galapax.operators.sampling import resample_outside, sample_uniform
from galapax.operators.selection import keep_best, no_worse, take, tree_where
from galapax.operators.variation import crossover_mask, skip_row

FIRST_RATE = 0.5  # of success, before any is known
SPREAD_WEIGHT, SPREAD_RATE = 0.02, 0.05
PRESSURE = 3.0  # the chance of the newest falls with their rank to exp(-3)


class LSRTDEState(NamedTuple):
    candidates: Array  # (n, d) trials, waiting for their evaluation; beyond `size` copies of the best parent
    targets: Array  # (n,) the rows of the newest that they were made from
    crossed: Array  # (n,) the share of genes in which they may differ
    parents: Population  # the top, the best first; beyond `size` as if never evaluated
    newest: Population  # the latest successes, in a ring; beyond `size` as if never evaluated
    ring: Array  # the row of the newest that is overwritten next
    size: Array  # how many rows of both are in use
    success: Array  # the share of trials that succeeded in the last generation
    memory: Array  # (h,) crossover rates that worked
    turn: Array  # which of them is the next to change
    generations: Array  # made so far
    spent: Array  # evaluations made so far
    first_epsilon: Array  # what the constraints were relaxed by at first
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LSRTDE(Algorithm[LSRTDEState]):
    """L-SRTDE, differential evolution led by its success rate with a shrinking population, for one objective on a box.

    The strongest here with ten thousand evaluations a variable; it must know when the run ends. Slow with a few
    hundred a variable, where LSHADE is ahead; with equalities EpsilonDE is better.

    population: number of individuals at the start, at least 4; None for 20 d, and less where max_evaluations would be
        spent in fewer than 50 such generations.
    last_population: number of individuals at the end, at least 4.
    memories: how many crossover rates that worked are remembered, H in the paper.
    crossover_rate: Cr to start with; it adapts.
    relaxed: with equalities, generations until the constraints hold in full, or half of the run if that is less.
    decay: power with which the level of relaxation falls.
    horizon: when the run ends; the problem's budget says so.
    """

    population: int | None = static(None)  # type: ignore[assignment]
    last_population: int = static(4)
    memories: int = static(5)
    crossover_rate: float = 1.0
    relaxed: float = 400.0
    decay: float = 5.0
    horizon: Horizon | None = None

    traits: ClassVar[Traits] = Traits(fixed_evaluations=False)

    def validate(self) -> None:
        check_sizes(self.population, self.last_population)
        check_size(self.memories, "memories", 1)
        check_range(self.crossover_rate, "crossover_rate", 0.0, 1.0)
        check_positive(self.relaxed, "relaxed")
        check_positive(self.decay, "decay")

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        n = self.population or initial_population_size(20 * dim, self.last_population, budget)
        return replace(self, population=n, horizon=horizon_from_budget(budget))

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> LSRTDEState:
        n = self.population
        assert n is not None  # it was bound
        x = sample_uniform(key, bounds, n)
        zero, nothing = jnp.zeros((), x.dtype), jnp.zeros((), jnp.int32)
        return LSRTDEState(
            candidates=x,
            targets=jnp.arange(n, dtype=jnp.int32),
            crossed=jnp.ones(n, x.dtype),
            parents=empty_population(x, shape),
            newest=empty_population(x, shape),
            ring=nothing,
            size=jnp.full((), n, jnp.int32),
            success=jnp.full((), FIRST_RATE, x.dtype),
            memory=jnp.broadcast_to(jnp.asarray(self.crossover_rate, x.dtype), (self.memories,)),
            turn=nothing,
            generations=nothing,
            spent=nothing,
            first_epsilon=zero,
            bounds=bounds,
        )

    def evaluations(self, state: LSRTDEState, number: Array | int) -> Array | int:
        return state.size

    def step(self, key: Array, state: LSRTDEState, evaluation: CandidateEvaluation) -> LSRTDEState:
        """Trials no worse than their targets enter both populations; learn from them, let the worst go, then breed."""
        relax = evaluation.eq is not None
        rows = jnp.arange(state.parents.x.shape[0], dtype=jnp.int32)
        trials = mask_unused(rows < state.size, as_population(state.candidates, evaluation))
        generations, spent = state.generations + 1, state.spent + state.size
        progress = share_of_run(self.horizon, generations, spent, state.parents.x.dtype)
        first = level = state.first_epsilon
        if relax:
            first, level = relaxation_levels(first, generations, trials, progress, self.relaxed, self.decay)
        new, old = relax_violation(trials, level), relax_violation(take(state.targets, state.newest), level)
        won = no_worse(new, old) & jnp.isfinite(new.fitness)
        learns = won & jnp.isfinite(old.fitness)
        memory, turn = self.learn(state, success_gains(old, new, ~no_worse(old, new) & learns), learns)
        share = jnp.sum(won.astype(memory.dtype)) / state.size.astype(memory.dtype)
        success = jnp.where(generations == 1, state.success, share)  # of the first ones there is nothing to learn
        size = linear_population_size(len(rows), self.last_population, progress)
        newest, ring = write_to_ring(state.newest, state.ring, state.size, trials, won)
        newest, order = keep_best_of_ring(newest, size, level)
        top = keep_best(state.parents, state.parents, trials) if relax else state.parents
        union = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), top, mask_unused(won, trials))
        parents = mask_unused(rows < size, take(argsort_by_quality(union, level, relax)[: len(rows)], union))
        parents, newest, order = materialise((parents, newest, order))
        candidates, targets, crossed = self.breed(key, parents, newest, order, size, success, memory, state.bounds)
        return LSRTDEState(
            candidates=candidates,
            targets=targets,
            crossed=crossed,
            parents=parents,
            newest=newest,
            ring=ring % size,
            size=size,
            success=success,
            memory=memory,
            turn=turn,
            generations=generations,
            spent=spent,
            first_epsilon=first,
            bounds=state.bounds,
        )

    def learn(self, state: LSRTDEState, gains: Array, learns: Array) -> tuple[Array, Array]:
        """The memory with what worked in the place whose turn it is, and the next one's turn, where anything did."""
        mean, none = lehmer_mean(state.crossed, gains, 2)
        place = jnp.arange(self.memories, dtype=jnp.int32) == state.turn
        any_worked = jnp.any(learns)
        learned = (state.memory + jnp.where(none, 1, mean)) / 2  # 1 where nothing was gains, as in the program
        memory = jnp.where(place & any_worked, learned, state.memory)
        return memory, jnp.where(any_worked, (state.turn + 1) % self.memories, state.turn)

    def breed(
        self,
        key: Array,
        parents: Population,
        newest: Population,
        order: Array,
        size: Array,
        success: Array,
        memory: Array,
        bounds: Bounds,
    ) -> tuple[Array, Array, Array]:
        """Trials, their targets among the newest, and the shares of genes that were crossed.

        order: the rows of the newest, the best first.
        """
        key_memory, key_weight, key_rate, key_picks, key_rank, key_cross, key_back = random.split(key, 7)
        n, d = parents.x.shape
        dtype = parents.x.dtype
        mean = 0.4 + 0.25 * jnp.tanh(5 * success)
        weight = jnp.clip(mean + SPREAD_WEIGHT * random.normal(key_weight, (n,), dtype), 0, 1)
        around = memory[random.integers(key_memory, (n,), self.memories)]
        rate = jnp.clip(around + SPREAD_RATE * random.normal(key_rate, (n,), dtype), 0, 1)
        best = jnp.maximum((0.7 * size * jnp.exp(-7 * success)).astype(jnp.int32), 2)
        words = random.bits(key_picks, (3, n))
        targets = random.scale_to(words[0], size)
        ahead = random.scale_to(words[1], best)
        minus = skip_row(random.scale_to(words[2], size - 1), ahead)
        # by inversion: the chance of rank k is proportional to exp(-PRESSURE k / size)
        u = random.uniform(key_rank, (n,), dtype)
        rank = -jnp.log1p(u * math.expm1(-PRESSURE)) * (size / PRESSURE).astype(dtype)
        plus = take(jnp.clip(rank.astype(jnp.int32), 0, size - 1), order)
        targets, ahead, minus, plus = materialise((targets, ahead, minus, plus))
        x, x_plus = take(jnp.stack([targets, plus]), newest.x)
        x_ahead, x_minus = take(jnp.stack([ahead, minus]), parents.x)
        mutants = materialise(x + weight[:, None] * (x_ahead - x + x_plus - x_minus))
        crossed = crossover_mask(key_cross, (n, d), rate[:, None])
        trials = resample_outside(key_back, jnp.where(crossed, mutants, x), bounds)
        active = (jnp.arange(n, dtype=jnp.int32) < size)[:, None]
        return jnp.where(active, trials, parents.x[0]), targets, jnp.mean(crossed.astype(dtype), axis=1)


def write_to_ring(
    ring: Population, place: Array, size: Array, new: Population, chosen: Array
) -> tuple[Population, Array]:
    """The ring, of which the first `size` rows are in use, with those of `new` that are chosen (n,) in the rows from
    `place` on; and the row that comes next.
    """
    n = chosen.shape[0]
    count = jnp.cumsum(chosen, dtype=jnp.int32)
    source = (
        jnp.zeros(n, jnp.int32).at[jnp.where(chosen, count - 1, n)].set(jnp.arange(n, dtype=jnp.int32), mode="drop")
    )
    ahead = (jnp.arange(n, dtype=jnp.int32) - place) % size  # how many rows after the first one to be written
    hit = (ahead < count[-1]) & (jnp.arange(n, dtype=jnp.int32) < size)
    return tree_where(hit, take(take(jnp.minimum(ahead, n - 1), source), new), ring), place + count[-1]


def keep_best_of_ring(ring: Population, size: Array, level: Array) -> tuple[Population, Array]:
    """The ring with its best `size` rows, which keep their order, and these rows from best to worst, (n,)."""
    n = ring.x.shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    order = argsort_by_quality(ring, level, first_stays=False)
    rank = jnp.zeros(n, jnp.int32).at[order].set(rows, unique_indices=True)
    stays = rank < size
    place = jnp.where(stays, jnp.cumsum(stays, dtype=jnp.int32) - 1, rank)
    source = jnp.zeros(n, jnp.int32).at[place].set(rows, unique_indices=True)
    return mask_unused(rows < size, take(source, ring)), take(order, place)
