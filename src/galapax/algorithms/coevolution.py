"""Co-evolutionary differential evolution: one population minimises what the other maximises.

Fabris & Krohling (2012), Expert Systems with Applications 39(12), doi:10.1016/j.eswa.2011.10.015. x is judged by the
worst value that the other population y finds for it, y by the least value that any x reaches against it. In cycles, x
evolves for some generations while y stands still, then y while x stands still.

With constraints, y holds the multipliers of the augmented Lagrangian of Tahk & Sun (2000), IEEE Trans. Evol. Comput.
4(2):114-124. The objective and the constraints are evaluated once for each x, whatever the number of multipliers.

Differs from the paper: misprints are read as they must be (the switch is at g >= -mu / (2 r), multipliers of equalities
are free in sign, y is scored by the least value); objective and constraints are measured in units of their spread over
the first population, so that one box of multipliers and one r serve all problems; genes that leave the box are bounced
back; r may grow; the best individual ever seen, feasible ones first, is kept beside the population and returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax import random
from galapax.algorithm import Evaluation, Population, Shape, evaluated, static, unevaluated
from galapax.checks import in_range, positive, whole
from galapax.errors import InputError
from galapax.operators.constraints import augmented_lagrangian
from galapax.operators.crossover import binomial_crossover
from galapax.operators.mutation import rand_1
from galapax.operators.repair import bounce_back
from galapax.operators.sampling import uniform_in
from galapax.operators.selection import best_index, choose, no_worse
from galapax.problem import Bounds

LARGEST_PENALTY = 1e9  # beyond it rounding hides the objective
PAIRS_AT_ONCE = 2**20  # values of a table that are held in memory


class CDEState(NamedTuple):
    candidates: Array  # (n, d) trials of x, waiting for their evaluation
    x: Array  # (n, d)
    facts: Array  # (n, k) what a table needs to know of each x: objective and constraints, or in a game x itself
    violation: Array | None  # (n,) of each x
    scores: Array  # (n,) the worst value of each x
    best: Population | None  # (1, ...) the best individual ever seen; a game has none, as its values move
    rivals: Array  # (n, e) y
    archive: Array  # (a, e) earlier y that were the worst for the best x of their cycle
    units: Array  # (k,) spread of the facts over the first population
    cycle: Array  # cycles made so far, -1 before the first generation
    bounds: Bounds

    @property
    def parents(self) -> Population:
        """x with their values, and last the best individual ever seen; not stored, since the loop needs few of them."""
        if self.best is None:
            return Population(self.x, self.scores[..., None], None)
        now = Population(self.x, self.facts[..., :1], self.violation)
        individuals = self.scores.ndim - 1  # the axis; in a batch the runs come first
        return jax.tree.map(lambda *a: jnp.concatenate(a, axis=individuals), now, self.best)


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
        worst = unevaluated(x, shape)
        return CDEState(
            candidates=x,
            x=x,
            facts=jnp.full((n, width), jnp.inf, dtype),
            violation=worst.violation,
            scores=jnp.full(n, jnp.inf, dtype),
            best=None if self.game else _rows(worst, slice(0, 1)),
            rivals=uniform_in(key_y, box, n),
            archive=uniform_in(key_archive, box, self.memory),
            units=jnp.ones(width, dtype),
            cycle=jnp.full((), -1, dtype),
            bounds=bounds,
        )

    def opponents(self, shape: Shape, dtype: Any) -> Bounds:
        """The box of y."""
        if self.game:
            return self.arena.value.bounds
        upper = jnp.full(shape.ineq + shape.eq, self.multipliers, dtype)
        return Bounds(jnp.concatenate([jnp.zeros(shape.ineq, dtype), -upper[shape.ineq :]]), upper)

    def step(self, key: Array, state: CDEState, evaluation: Evaluation) -> CDEState:
        """A trial that is no worse against all rivals takes its parent's place; then every parent has a new trial."""
        key_mutate, key_cross, key_repair = random.split(key, 3)
        shape = _shape(evaluation)
        facts = state.candidates if self.game else _facts(evaluation)
        units = state.units if self.game else jnp.where(state.cycle < 0, _spread(facts), state.units)
        state = state._replace(units=units, cycle=jnp.maximum(state.cycle, 0))
        scores = self.worst(facts, state, shape)
        better = scores <= state.scores
        x = jnp.where(better[:, None], state.candidates, state.x)
        scores = jnp.where(better, scores, state.scores)
        mutants = self.mutation(key_mutate, Population(x, scores[:, None], None), self.weight)
        crossed = binomial_crossover(key_cross, x, mutants, self.crossover_rate)
        violation, best = state.violation, state.best
        if violation is not None and evaluation.violation is not None:
            violation = jnp.where(better, evaluation.violation, violation)
        if best is not None:
            best = _best_of(evaluated(state.candidates, evaluation), best)
        return state._replace(
            candidates=bounce_back(key_repair, crossed, x, state.bounds),
            x=x,
            facts=jnp.where(better[:, None], facts, state.facts),
            violation=violation,
            scores=scores,
            best=best,
        )

    def interlude(self, key: Array, state: CDEState, shape: Shape) -> CDEState:
        """The generations of y in a cycle, against x as it stands; then x is judged anew."""
        box = self.opponents(shape, state.facts.dtype)
        # a game with memory asks for the worst y of the best x, since y that hold against all x are others where min
        # and max cannot be exchanged
        facts = state.facts[jnp.argmin(state.scores)][None] if self.memory else state.facts

        def worth(y: Array) -> Array:
            """The least value of each y, negative since it is to be large; +inf where it has none."""
            return in_tiles(lambda some: _least(self.table(facts, some, state, shape)), y, facts.shape[0])

        def generation(i: Any, both: tuple[Array, Array]) -> tuple[Array, Array]:
            y, own = both
            key_mutate, key_cross, key_repair = random.split(random.fold(key, i), 3)
            mutants = self.mutation(key_mutate, Population(y, own[:, None], None), self.weight)
            crossed = binomial_crossover(key_cross, y, mutants, self.crossover_rate)
            trials = bounce_back(key_repair, crossed, y, box)
            new = worth(trials)
            return jnp.where((new <= own)[:, None], trials, y), jnp.minimum(new, own)

        rivals = state.rivals
        if self.memory:  # half of them anew, as those that met the last x may all be in one place
            fresh = uniform_in(random.fold(key, self.y_generations), box, self.population)
            anew = jnp.arange(self.population) % 2 == 0
            rivals = jnp.where(anew[:, None], fresh, rivals)
        own = worth(rivals)
        if rivals.shape[1]:
            rivals, own = lax.fori_loop(0, self.y_generations, generation, (rivals, own))
        archive = state.archive
        if self.memory:
            place = state.cycle.astype(jnp.int32) % self.memory
            archive = jnp.where(jnp.arange(self.memory)[:, None] == place, rivals[jnp.argmin(own)], archive)
        state = state._replace(rivals=rivals, archive=archive, cycle=state.cycle + 1)
        return state._replace(scores=self.worst(state.facts, state, shape))

    def worst(self, facts: Array, state: CDEState, shape: Shape) -> Array:
        """The largest value that the rivals find for each x, (n,); +inf where there is none."""
        rivals = jnp.concatenate([state.rivals, state.archive])
        return in_tiles(lambda some: _largest(self.table(some, rivals, state, shape)), facts, rivals.shape[0])

    def table(self, facts: Array, rivals: Array, state: CDEState, shape: Shape) -> Array:
        """The values of all pairs of x and y, (n, m)."""
        if self.game:
            return self.game(self.arena.value.consts, facts, rivals)
        penalty = jnp.minimum(self.penalty * self.growth**state.cycle, LARGEST_PENALTY)
        return augmented_lagrangian(facts / state.units, rivals, penalty, shape.ineq)


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
    """The standard deviation of the first fact, the objective, and how large the others are on average; never 0.

    Sums alone, since this is one kernel of a GPU in every generation although only the first one needs it.
    """
    found = jnp.isfinite(facts[:, :1])
    values = jnp.where(found, facts, 0)
    count = jnp.maximum(jnp.sum(found), 1)
    mean, size = jnp.sum(values, axis=0) / count, jnp.sum(jnp.abs(values), axis=0) / count
    deviation = jnp.sqrt(jnp.maximum(jnp.sum(values[:, 0] ** 2) / count - mean[0] ** 2, 0))
    spread = jnp.where(jnp.arange(facts.shape[1]) == 0, deviation, size)
    return jnp.where(spread > 0, spread, 1)


def _largest(table: Array) -> Array:
    return jnp.max(jnp.where(jnp.isnan(table), jnp.inf, table), axis=1)


def _least(table: Array) -> Array:
    known = ~jnp.isnan(table)
    return jnp.where(jnp.any(known, axis=0), -jnp.min(jnp.where(known, table, jnp.inf), axis=0), jnp.inf)


def _best_of(trials: Population, before: Population) -> Population:
    """The best of the trials or the one before, as one row."""
    new = jax.tree.map(lambda a: a[best_index(trials)][None], trials)
    return choose(no_worse(new, before), new, before)


def _rows(population: Population, rows: slice) -> Population:
    return jax.tree.map(lambda a: a[rows], population)
