"""Co-evolutionary differential evolution for min-max problems: x minimises the function that y maximises.

Fabris & Krohling (2012), Expert Systems with Applications 39(12), doi:10.1016/j.eswa.2011.10.015, as in `cde.py`: x is
judged by the worst value that y finds for it; in cycles x evolves while y stands still, then y while x stands still.

Differs from the paper, with `memory`: where min and max cannot be exchanged, y that hold against all x are not those
that x must fear. Then y look for the worst case of the best x, half of them start anew in each cycle, and the worst y
of earlier cycles stay opponents.

A pair whose value is not a finite number counts as failed, and its x loses to any other. y goes after +inf as after any
large value, and learns nothing from NaN and -inf.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.core.algorithm import Algorithm, Shared, static
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.operators.pairwise import all_pairs, map_in_tiles
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import no_worse, tree_where
from galapax.operators.variation import breed_trials, evolve_generation, rand_1


@runtime_checkable
class Payoff(Protocol):
    """A function of x and y, static; its arrays come as data."""

    def one(self, consts: Any, x: Array, y: Array) -> Array: ...  # the value of one pair


class Arena(NamedTuple):
    """The box of y, and the arrays that the function closes over."""

    bounds: Bounds
    consts: Any


class GameState(NamedTuple):
    candidates: Array  # (n, dx) trials of x, waiting for their evaluation
    parents: Population  # x with the worst values that are known
    rivals: Array  # (dy, n) y, a column each, so that a GPU reads neighbours when it compares all of them with an x
    archive: Array  # (dy, memory) earlier y that were the worst for the best x of their cycle
    n_cycles: Array  # cycles completed
    bounds: Bounds

    @property
    def opponents(self) -> Array:
        """All y that x are judged by, (dy, n + memory)."""
        return jnp.concatenate([self.rivals, self.archive], axis=-1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GameCDE(Algorithm[GameState]):
    """Co-evolution of x and y. Hyper-parameters as in CDE.

    payoff: the function. arena: a Shared Arena. memory: so many worst y of earlier cycles stay opponents.
    """

    payoff: Payoff = static(None)  # noqa: RUF009 (a field)
    arena: Shared = Shared(None)  # noqa: RUF009 (a field, like the others)
    population: int = static(50)
    mutation: Callable[..., Array] = static(rand_1)  # noqa: RUF009
    x_generations: int = static(20)
    y_generations: int = static(20)
    memory: int = static(0)
    weight: float = 0.7
    crossover_rate: float = 0.7

    @property
    def period(self) -> int:
        return self.x_generations

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> GameState:
        key_x, key_y, key_archive = random.split(key, 3)
        x, box = sample_uniform(key_x, bounds, self.population), self.arena.value.bounds
        return GameState(
            candidates=x,
            parents=empty_population(x, shape),
            rivals=sample_uniform(key_y, box, self.population).T,
            archive=sample_uniform(key_archive, box, self.memory).T,
            n_cycles=jnp.zeros((), bounds.lower.dtype),
            bounds=bounds,
        )

    def step(self, key: Array, state: GameState, evaluation: CandidateEvaluation) -> GameState:
        """A trial that is no worse takes its parent's place; then every parent has a new trial."""
        trials = as_population(state.candidates, evaluation)
        parents = tree_where(no_worse(trials, state.parents), trials, state.parents)
        bred = breed_trials(key, parents, state.bounds, self.mutation, self.weight, self.crossover_rate)
        return state._replace(candidates=bred, parents=parents)

    def cost_hint(self, dim: int) -> int:
        return self.population * (self.population + dim)

    def cycle(self, key: Array, state: GameState, shape: Shape) -> GameState:
        """The generations of y, against x as it stands; then x is judged anew."""
        box, x = self.arena.value.bounds, state.parents.x
        if self.memory:
            x = x[jnp.argmin(state.parents.fitness)][None]

        def worth(y: Array) -> Array:
            return self.worth(y, x.T)

        def evolve(i: Array | int, rows: Array) -> Array:
            return evolve_generation(
                random.fold_in(key, i), rows, worth, box, self.mutation, self.weight, self.crossover_rate
            )

        rivals = state.rivals.T
        if self.memory:  # half of them anew, as those that met the last x may all be in one place
            fresh = sample_uniform(random.fold_in(key, self.y_generations), box, self.population)
            rivals = jnp.where((jnp.arange(self.population) % 2 == 0)[:, None], fresh, rivals)
        rows = jnp.concatenate([rivals, worth(rivals)[:, None]], axis=1)
        rows = lax.fori_loop(0, self.y_generations, evolve, rows)
        rivals, archive = rows[:, :-1], state.archive
        if self.memory:
            place = state.n_cycles.astype(jnp.int32) % self.memory
            archive = jnp.where(jnp.arange(self.memory) == place, rivals[jnp.argmin(rows[:, -1])][:, None], archive)
        state = state._replace(rivals=rivals.T, archive=archive, n_cycles=state.n_cycles + 1)
        worst, _ = judge(self.payoff, self.arena.value.consts, state.parents.x, state.opponents)
        return state._replace(parents=state.parents._replace(objectives=worst[:, None]))

    def evaluations(self, state: GameState, number: Array | int) -> Array | int:
        """Pairs of x and y; at the end of a cycle those of y's generations, and all x judged anew, besides."""
        pairs = self.population * (self.population + self.memory)
        of_y = self.population * (1 if self.memory else self.population) * (self.y_generations + 1)
        return pairs + jnp.where(number % self.period == 0, of_y + pairs, 0)

    def evaluations_per_candidate(self) -> int:
        return self.population + self.memory

    def opponents(self, state: GameState) -> Array:
        return state.opponents

    def worth(self, rivals: Array, x: Array) -> Array:
        """The least value of each y (m, dy) against x (dx, n), (m,), negative since it is to be large; +inf where it
        has none.
        """

        def least(rows: Array) -> Array:
            table = all_pairs(lambda y, x: self.payoff.one(self.arena.value.consts, x, y), rows, x)
            finite = table > -jnp.inf  # NaN is not, either
            worth = -jnp.min(jnp.where(finite, table, jnp.inf), axis=1)
            return jnp.where(jnp.any(finite, axis=1), worth, jnp.inf)

        return map_in_tiles(least, rivals, x.shape[1])


def judge(payoff: Payoff, consts: Any, x: Array, opponents: Array) -> tuple[Array, Array]:
    """The worst value that opponents (dy, k) find for each x (n, dx), +inf where a pair failed; and the failed pairs of
    each; both (n,).
    """

    def judge_rows(rows: Array) -> Array:
        table = all_pairs(lambda x, y: payoff.one(consts, x, y), rows, opponents)
        bad = ~jnp.isfinite(table)
        worst = jnp.max(jnp.where(bad, jnp.inf, table), axis=1)
        return jnp.stack([worst, jnp.sum(bad.astype(table.dtype), axis=1)], axis=1)

    out = map_in_tiles(judge_rows, x, opponents.shape[1])
    return out[:, 0], out[:, 1]
