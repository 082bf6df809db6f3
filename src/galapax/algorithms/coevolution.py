"""Co-evolutionary differential evolution: one population minimises what the other maximises.

Fabris & Krohling (2012), Expert Systems with Applications 39(12), doi:10.1016/j.eswa.2011.10.015. x is judged by the
worst value that the other population y finds for it, y by the least value that any x reaches against it. In cycles, x
evolves for some generations while y stands still, then y while x stands still.

With constraints, y holds the multipliers of the augmented Lagrangian of Tahk & Sun (2000), IEEE Trans. Evol. Comput.
4(2):114-124. The objective and the constraints are evaluated once for each x, whatever the number of multipliers.

Differs from the paper: misprints are read as they must be (the switch is at g >= -mu / (2 r), multipliers of equalities
are free in sign, y is scored by the least value); objective and constraints are measured in units of their spread over
the first population, so that one box of multipliers and one r serve all problems; genes that leave the box are bounced
back; r may grow; the best individual that each slot has tried, feasible ones first, is kept beside the population, and
the best of them is returned.

On a GPU a generation takes as long as it has kernels, so what is alike in shape is one array here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.core.algorithm import Evaluation, Population, Shape, evaluated, static, unevaluated
from galapax.core.checks import in_range, positive, whole
from galapax.core.errors import InputError
from galapax.core.problem import Bounds
from galapax.numerics import random
from galapax.operators.constraints import augmented_lagrangian
from galapax.operators.crossover import binomial_crossover
from galapax.operators.mutation import rand_1
from galapax.operators.repair import bounce_back
from galapax.operators.sampling import uniform_in
from galapax.operators.selection import choose, no_worse

LARGEST_PENALTY = 1e9  # beyond it rounding hides the objective
PAIRS_AT_ONCE = 2**20  # values of a table that are held in memory


class CDEState(NamedTuple):
    candidates: Array  # (n, d) trials of x, waiting for their evaluation
    x: Array  # (n, d)
    known: Array  # (n, 1 + k) of each x the score and the facts, as below
    kept: Population | None  # (n, ...) the best that each slot has tried; a game has none, as its values move
    rivals: Array  # (e, n) y, a column each, so that a GPU reads neighbours when it compares all of them with an x
    archive: Array  # (e, a) earlier y that were the worst for the best x of their cycle
    units: Array  # (k,) spread of the facts over the first population
    cycle: Array  # cycles made so far
    penalty: Array  # r of this cycle
    switch: Array  # 1 / (2 r), since a division for every pair of x and y would take most of the time of many runs
    bounds: Bounds

    @property
    def scores(self) -> Array:
        """The worst value of each x, (n,)."""
        return self.known[..., 0]

    @property
    def facts(self) -> Array:
        """What a table needs to know of each x, (n, k): objective and constraints in their units, in a game x."""
        return self.known[..., 1:]

    @property
    def opponents(self) -> Array:
        """All y that x are judged by, (e, n + a)."""
        return jnp.concatenate([self.rivals, self.archive], axis=-1)

    @property
    def parents(self) -> Population:
        """The best individuals that the slots have tried; in a game, x with the worst values that are known."""
        return self.kept if self.kept is not None else Population(self.x, self.scores[..., None], None)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CDE:
    """Co-evolutionary differential evolution, for constraints (augmented Lagrangian) and for min-max problems.

    population: number of individuals of x and of y, at least 4.
    mutation: how mutants arise, `rand_1` or `best_1`. weight, crossover_rate: F and CR of both populations.
    x_generations, y_generations: of a cycle. The run counts those of x; those of y evaluate no constraints.
    penalty: r of the augmented Lagrangian in the first cycle. growth: factor on it from cycle to cycle.
    multipliers: the largest, in units of the objective's spread over the constraint's.
    """

    population: int = static(50)
    mutation: Callable[..., Array] = static(rand_1)  # noqa: RUF009 (a field, like the others)
    x_generations: int = static(20)
    y_generations: int = static(20)
    weight: float = 0.7
    crossover_rate: float = 0.7
    penalty: float = 100.0
    growth: float = 1.02
    multipliers: float = 10.0
    game: Any = static(None)  # noqa: RUF009 (a field); of `minimax`: a Game, whose arrays are in `arena`
    arena: Any = None
    memory: int = static(0)  # of `minimax`: so many worst y of earlier cycles stay opponents

    several_objectives: ClassVar[bool] = False

    @property
    def period(self) -> int:
        """After so many generations `interlude` is called."""
        return self.x_generations

    def check(self) -> None:
        whole(self.population, "population", 4, "DE draws three partners besides each individual")
        whole(self.x_generations, "x_generations", 1)
        whole(self.y_generations, "y_generations", 1)
        if not callable(self.mutation):
            raise InputError(f"mutation must be a function such as gx.rand_1 or gx.best_1, got {self.mutation!r}.")
        in_range(self.weight, "weight", 0.0, 2.0)
        in_range(self.crossover_rate, "crossover_rate", 0.0, 1.0)
        positive(self.penalty, "penalty")
        positive(self.growth, "growth")
        positive(self.multipliers, "multipliers")

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> CDEState:
        key_x, key_y, key_archive = random.split(key, 3)
        n, dtype = self.population, bounds.lower.dtype
        x = uniform_in(key_x, bounds, n)
        box = self.opponents(shape, dtype)
        width = bounds.dim if self.game else 1 + shape.ineq + shape.eq
        cycle = jnp.zeros((), dtype)
        penalty, switch = self.penalties(cycle)
        return CDEState(
            candidates=x,
            x=x,
            known=jnp.full((n, 1 + width), jnp.inf, dtype),
            kept=None if self.game else unevaluated(x, shape),
            rivals=uniform_in(key_y, box, n).T,
            archive=uniform_in(key_archive, box, self.memory).T,
            units=jnp.ones(width, dtype),
            cycle=cycle,
            penalty=penalty,
            switch=switch,
            bounds=bounds,
        )

    def opponents(self, shape: Shape, dtype: Any) -> Bounds:
        """The box of y."""
        if self.game:
            return self.arena.value.bounds
        upper = jnp.full(shape.ineq + shape.eq, self.multipliers, dtype)
        return Bounds(jnp.concatenate([jnp.zeros(shape.ineq, dtype), -upper[shape.ineq :]]), upper)

    def penalties(self, cycle: Array) -> tuple[Array, Array]:
        """r of a cycle, and 1 / (2 r)."""
        penalty = jnp.minimum(self.penalty * self.growth**cycle, LARGEST_PENALTY)
        return penalty, 0.5 / penalty

    def prelude(self, state: CDEState, evaluation: Evaluation, shape: Shape) -> CDEState:
        """The units, from the first population."""
        return state if self.game else state._replace(units=_spread(_facts(evaluation)))

    def step(self, key: Array, state: CDEState, evaluation: Evaluation) -> CDEState:
        """A trial that is no worse against all rivals takes its parent's place; then every parent has a new trial."""
        key_mutate, key_cross, key_repair = random.split(key, 3)
        facts = state.candidates if self.game else _facts(evaluation) / state.units
        scores = self.worst(facts, state, _shape(evaluation))
        better = (scores <= state.scores)[:, None]
        x = jnp.where(better, state.candidates, state.x)
        known = jnp.where(better, jnp.concatenate([scores[:, None], facts], axis=1), state.known)
        mutants = self.mutation(key_mutate, Population(x, known[:, :1], None), self.weight)
        crossed = binomial_crossover(key_cross, x, mutants, self.crossover_rate)
        kept = state.kept
        if kept is not None:
            trials = evaluated(state.candidates, evaluation)
            kept = choose(no_worse(trials, kept), trials, kept)
        return state._replace(candidates=bounce_back(key_repair, crossed, x, state.bounds), x=x, known=known, kept=kept)

    def interlude(self, key: Array, state: CDEState, shape: Shape) -> CDEState:
        """The generations of y in a cycle, against x as it stands; then x is judged anew."""
        box = self.opponents(shape, state.facts.dtype)
        # a game with memory asks for the worst y of the best x, since y that hold against all x are others where min
        # and max cannot be exchanged
        facts = (state.facts[jnp.argmin(state.scores)][None] if self.memory else state.facts).T

        def generation(i: Any, both: Array) -> Array:
            """Of y and, in the last column, its worth."""
            y, own = both[:, :-1], both[:, -1]
            key_mutate, key_cross, key_repair = random.split(random.fold(key, i), 3)
            mutants = self.mutation(key_mutate, Population(y, own[:, None], None), self.weight)
            crossed = binomial_crossover(key_cross, y, mutants, self.crossover_rate)
            trials = bounce_back(key_repair, crossed, y, box)
            new = self.worth(trials, facts, state, shape)
            return jnp.where((new <= own)[:, None], jnp.concatenate([trials, new[:, None]], axis=1), both)

        rivals = state.rivals.T
        if self.memory:  # half of them anew, as those that met the last x may all be in one place
            fresh = uniform_in(random.fold(key, self.y_generations), box, self.population)
            anew = jnp.arange(self.population) % 2 == 0
            rivals = jnp.where(anew[:, None], fresh, rivals)
        own = self.worth(rivals, facts, state, shape)
        both = jnp.concatenate([rivals, own[:, None]], axis=1)
        if rivals.shape[1]:
            both = lax.fori_loop(0, self.y_generations, generation, both)
        rivals, own = both[:, :-1], both[:, -1]
        archive = state.archive
        if self.memory:
            place = state.cycle.astype(jnp.int32) % self.memory
            archive = jnp.where(jnp.arange(self.memory) == place, rivals[jnp.argmin(own)][:, None], archive)
        cycle = state.cycle + 1
        penalty, switch = self.penalties(cycle)
        state = state._replace(rivals=rivals.T, archive=archive, cycle=cycle, penalty=penalty, switch=switch)
        scores = self.worst(state.facts, state, shape)
        return state._replace(known=jnp.concatenate([scores[:, None], state.facts], axis=1))

    def worst(self, facts: Array, state: CDEState, shape: Shape) -> Array:
        """The largest value that the rivals find for each x, (n,); +inf where there is none."""
        rivals = state.opponents

        def largest(some: Array) -> Array:
            table = all_pairs(lambda x, y: self.value(x, y, state, shape), some, rivals)
            return jnp.max(jnp.where(jnp.isnan(table), jnp.inf, table), axis=1)

        return in_tiles(largest, facts, rivals.shape[1])

    def worth(self, rivals: Array, facts: Array, state: CDEState, shape: Shape) -> Array:
        """The least value of each y (m, e) against the facts (k, n), (m,), negative since it is to be large; +inf where
        it has none.
        """

        def least(some: Array) -> Array:
            table = all_pairs(lambda y, x: self.value(x, y, state, shape), some, facts)
            known = ~jnp.isnan(table)
            found = -jnp.min(jnp.where(known, table, jnp.inf), axis=1)
            return jnp.where(jnp.any(known, axis=1), found, jnp.inf) if self.game else found

        return in_tiles(least, rivals, facts.shape[1])

    def value(self, facts: Array, y: Array, state: CDEState, shape: Shape) -> Array:
        """The value of one pair, from the facts (k,) of x."""
        if self.game:
            return self.game.one(self.arena.value.consts, facts, y)
        return augmented_lagrangian(facts, y, state.penalty, state.switch, shape.ineq)


def all_pairs(function: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """function of every row of `a` (n, ...) with every column of `b` (..., m), (n, m).

    To be reduced along the last axis, which XLA does on a GPU without storing the table.
    """
    return jax.vmap(lambda one: jax.vmap(lambda other: function(one, other), in_axes=1)(b))(a)


def in_tiles(function: Callable[[Array], Array], rows: Array, others: int) -> Array:
    """function of all rows (n, k), which gives (n,); with blocks of rows one after another where a table with so many
    others is large.
    """
    n = rows.shape[0]
    size = max(1, PAIRS_AT_ONCE // others)
    if n <= size:
        return function(rows)
    blocks = -(-n // size)
    padded = jnp.concatenate([rows, jnp.broadcast_to(rows[:1], (blocks * size - n, rows.shape[1]))])
    return lax.map(function, padded.reshape(blocks, size, -1)).reshape(-1)[:n]


def _shape(evaluation: Evaluation) -> Shape:
    count = [0 if v is None else v.shape[-1] for v in (evaluation.ineq, evaluation.eq)]
    return Shape(1, *count)


def _facts(evaluation: Evaluation) -> Array:
    """Objective and constraints of each candidate, (n, 1 + p + q); where they failed, +inf and zeros."""
    parts = [v for v in (evaluation.ineq, evaluation.eq) if v is not None]
    constraints = [jnp.where(evaluation.failed[:, None], 0, v) for v in parts]
    return jnp.concatenate([evaluation.objectives[:, :1], *constraints], axis=1)


def _spread(facts: Array) -> Array:
    """The standard deviation of the first fact, the objective, and how large the others are on average; never 0."""
    found = jnp.isfinite(facts[:, :1])
    values = jnp.where(found & jnp.isfinite(facts), facts, 0)
    count = jnp.maximum(jnp.sum(found), 1)
    mean, size = jnp.sum(values, axis=0) / count, jnp.sum(jnp.abs(values), axis=0) / count
    deviation = jnp.sqrt(jnp.maximum(jnp.sum(values[:, 0] ** 2) / count - mean[0] ** 2, 0))
    spread = jnp.where(jnp.arange(facts.shape[1]) == 0, deviation, size)
    return jnp.where(spread > 0, spread, 1)
