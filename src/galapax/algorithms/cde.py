"""Co-evolutionary differential evolution for constraints: x minimises what multipliers y maximise.

Fabris & Krohling (2012), Expert Systems with Applications 39(12), doi:10.1016/j.eswa.2011.10.015. x is judged by the
worst value that the other population y finds for it, y by the least value that any x reaches against it. In cycles, x
evolves for some generations while y stands still, then y while x stands still. `game.py` is the same between functions
of x and y.

y holds the multipliers of the augmented Lagrangian of Tahk & Sun (2000), IEEE Trans. Evol. Comput. 4(2):114-124. The
objective and the constraints are evaluated once for each x, whatever the number of multipliers.

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
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from galapax.core.algorithm import Algorithm, static
from galapax.core.checks import check_integer, check_positive, check_range
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.operators.constraint_handling import augmented_lagrangian
from galapax.operators.pairwise import all_pairs, map_in_tiles
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import no_worse, tree_where
from galapax.operators.variation import breed_trials, evolve_generation, rand_1

MAX_CDE_PENALTY = 1e9  # beyond it rounding hides the objective


class CDEState(NamedTuple):
    candidates: Array  # (n, d) trials of x, waiting for their evaluation
    x: Array  # (n, d)
    scored: Array  # (n, 1 + k) score of each x, then objective and constraints in their units
    parents: Population  # (n, ...) the best that each slot has tried
    rivals: Array  # (e, n) y, a column each, so that a GPU reads neighbours when it compares all of them with an x
    units: Array  # (k,) spread of the facts over the first population
    n_cycles: Array  # cycles completed
    penalty: Array  # r of this cycle
    switch: Array  # 1 / (2 r), since a division for every pair of x and y would take most of the time of many runs
    bounds: Bounds

    @property
    def scores(self) -> Array:
        """The worst value of each x, (n,)."""
        return self.scored[..., 0]

    @property
    def facts(self) -> Array:
        """Objective and constraints of each x, (n, k)."""
        return self.scored[..., 1:]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CoevolutionaryDE(Algorithm[CDEState]):
    """Co-evolutionary differential evolution, for constraints (augmented Lagrangian) and for min-max problems.

    population: number of individuals of x and of y, at least 4.
    mutation: how mutants arise, `rand_1` or `best_1`. weight, crossover_rate: F and CR of both populations.
    x_generations, y_generations: of a cycle. The run counts those of x; those of y evaluate no constraints.
    penalty: r of the augmented Lagrangian in the first cycle. growth: factor on it from cycle to cycle.
    multipliers: the largest, in units of the objective's spread over the constraint's.
    memory: in a min-max problem, so many worst y of earlier cycles stay opponents.
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
    memory: int = static(0)

    @property
    def period(self) -> int:
        return self.x_generations

    def validate(self) -> None:
        check_integer(self.population, "population", 4, "DE needs three other individuals for each one")
        check_integer(self.x_generations, "x_generations", 1)
        check_integer(self.y_generations, "y_generations", 1)
        if not callable(self.mutation):
            raise InputError(
                f"mutation must be a function such as galapax.operators.variation.best_1, got {self.mutation!r}."
            )
        check_range(self.weight, "weight", 0.0, 2.0)
        check_range(self.crossover_rate, "crossover_rate", 0.0, 1.0)
        check_positive(self.penalty, "penalty")
        check_positive(self.growth, "growth")
        check_positive(self.multipliers, "multipliers")
        check_integer(self.memory, "memory", 0)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> CDEState:
        key_x, key_y = random.split(key)
        n, dtype = self.population, bounds.lower.dtype
        x = sample_uniform(key_x, bounds, n)
        width = 1 + shape.ineq + shape.eq
        n_cycles = jnp.zeros((), dtype)
        penalty, switch = self.penalties(n_cycles)
        return CDEState(
            candidates=x,
            x=x,
            scored=jnp.full((n, 1 + width), jnp.inf, dtype),
            parents=empty_population(x, shape),
            rivals=sample_uniform(key_y, self.box(shape, dtype), n).T,
            units=jnp.ones(width, dtype),
            n_cycles=n_cycles,
            penalty=penalty,
            switch=switch,
            bounds=bounds,
        )

    def with_initial_points(self, state: CDEState, points: Array) -> CDEState:
        return state._replace(candidates=jnp.concatenate([points, state.candidates[points.shape[0] :]]))

    def box(self, shape: Shape, dtype: DTypeLike) -> Bounds:
        """The box of y: multipliers of inequalities are not negative."""
        upper = jnp.full(shape.ineq + shape.eq, self.multipliers, dtype)
        return Bounds(jnp.concatenate([jnp.zeros(shape.ineq, dtype), -upper[shape.ineq :]]), upper)

    def penalties(self, cycle: Array) -> tuple[Array, Array]:
        """r of a cycle, and 1 / (2 r)."""
        penalty = jnp.minimum(self.penalty * self.growth**cycle, MAX_CDE_PENALTY)
        return penalty, 0.5 / penalty

    def start(self, state: CDEState, evaluation: CandidateEvaluation, shape: Shape) -> CDEState:
        """The units, from the first population."""
        return state._replace(units=_spread(_facts(evaluation)))

    def step(self, key: Array, state: CDEState, evaluation: CandidateEvaluation) -> CDEState:
        """A trial that is no worse against all rivals takes its parent's place; then every parent has a new trial."""
        facts = _facts(evaluation) / state.units
        scores = self.worst(facts, state, _shape(evaluation))
        better = (scores <= state.scores)[:, None]
        x = jnp.where(better, state.candidates, state.x)
        scored = jnp.where(better, jnp.concatenate([scores[:, None], facts], axis=1), state.scored)
        judged = Population(x, scored[:, :1], None)
        bred = breed_trials(key, judged, state.bounds, self.mutation, self.weight, self.crossover_rate)
        trials = as_population(state.candidates, evaluation)
        kept = tree_where(no_worse(trials, state.parents), trials, state.parents)
        return state._replace(candidates=bred, x=x, scored=scored, parents=kept)

    def cost_hint(self, dim: int) -> int:
        return self.population * (self.population + dim)

    def cycle(self, key: Array, state: CDEState, shape: Shape) -> CDEState:
        """The generations of y, against x as it stands; then x is judged anew."""
        box, facts, rivals = self.box(shape, state.facts.dtype), state.facts.T, state.rivals.T

        def worth(y: Array) -> Array:
            return self.worth(y, facts, state, shape)

        def evolve(i: Array | int, rows: Array) -> Array:
            return evolve_generation(
                random.fold_in(key, i), rows, worth, box, self.mutation, self.weight, self.crossover_rate
            )

        rows = jnp.concatenate([rivals, worth(rivals)[:, None]], axis=1)
        if rivals.shape[1]:
            rows = lax.fori_loop(0, self.y_generations, evolve, rows)
        n_cycles = state.n_cycles + 1
        penalty, switch = self.penalties(n_cycles)
        state = state._replace(rivals=rows[:, :-1].T, n_cycles=n_cycles, penalty=penalty, switch=switch)
        scores = self.worst(state.facts, state, shape)
        return state._replace(scored=jnp.concatenate([scores[:, None], state.facts], axis=1))

    def worst(self, facts: Array, state: CDEState, shape: Shape) -> Array:
        """The largest value that the rivals find for each x, (n,); +inf where there is none."""

        def largest(some: Array) -> Array:
            table = all_pairs(lambda x, y: _value(x, y, state, shape), some, state.rivals)
            return jnp.max(jnp.where(jnp.isnan(table), jnp.inf, table), axis=1)

        return map_in_tiles(largest, facts, state.rivals.shape[1])

    def worth(self, rivals: Array, facts: Array, state: CDEState, shape: Shape) -> Array:
        """The least value of each y (m, e) against the facts (k, n), (m,), negative since it is to be large."""

        def least(some: Array) -> Array:
            table = all_pairs(lambda y, x: _value(x, y, state, shape), some, facts)
            return -jnp.min(jnp.where(jnp.isnan(table), jnp.inf, table), axis=1)

        return map_in_tiles(least, rivals, facts.shape[1])


def _value(facts: Array, y: Array, state: CDEState, shape: Shape) -> Array:
    """The value of one pair, from the facts (k,) of x."""
    return augmented_lagrangian(facts, y, state.penalty, state.switch, shape.ineq)


def _shape(evaluation: CandidateEvaluation) -> Shape:
    count = [0 if v is None else v.shape[-1] for v in (evaluation.ineq, evaluation.eq)]
    return Shape(1, *count)


def _facts(evaluation: CandidateEvaluation) -> Array:
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
