"""Particle swarm optimisation, SPSO-2011.

Zambrano-Bigiarini, Clerc & Rojas (2013), IEEE CEC, 2337-2344, doi:10.1109/CEC.2013.6557848, and the program of its
authors: the radius of a move is uniform, which is not uniform in the volume of the ball.

Differs from the paper: all particles move at once; the ball is one in units of the box, so that variables of different
ranges are treated alike; of equally good informants a particle takes itself. With constraints, feasibility comes first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.algorithm import Algorithm, static
from galapax.core.checks import check_integer, check_positive, check_range
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population
from galapax.numerics import random
from galapax.numerics.jaxpr import materialise
from galapax.operators.sampling import sample_uniform
from galapax.operators.selection import best_index, no_worse, take, take_row, tree_where


class PSOState(NamedTuple):
    candidates: Array  # (n, d) where the particles are, waiting for their evaluation
    velocity: Array  # (n, d)
    parents: Population  # the best place of each particle so far
    informs: Array  # (n, n) bool, whether the particle of a row is an informant of that of a column
    bounds: Bounds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PSO(Algorithm[PSOState]):
    """Particle swarm optimisation (SPSO-2011) for one objective on a box.

    Simple and often quick at first. Bad at the last digits, at ill-conditioned and at rugged functions, where the
    adaptive differential evolutions find much better points.

    population: number of particles S, at least 4.
    informants: how many others a particle informs on average, about; K in the paper.
    inertia: share of the velocity that is kept, w in the paper.
    acceleration: how far beyond a best place it is drawn, c in the paper.
    """

    population: int = static(40)
    informants: float = 3.0
    inertia: float = 1 / (2 * math.log(2))
    acceleration: float = 0.5 + math.log(2)

    def validate(self) -> None:
        check_integer(self.population, "population", 4, "particles inform each other")
        check_positive(self.informants, "informants")
        check_range(self.inertia, "inertia", 0.0, 1.0)
        check_range(self.acceleration, "acceleration", 0.0, 4.0)

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> PSOState:
        x = sample_uniform(key, bounds, self.population)
        key_velocity, key_informants = random.split(random.fold_in(key, 2))
        velocity = sample_uniform(key_velocity, bounds, self.population) - x
        return PSOState(x, velocity, empty_population(x, shape), self.draw_informants(key_informants), bounds)

    def step(self, key: Array, state: PSOState, evaluation: CandidateEvaluation) -> PSOState:
        """Each particle remembers its best place; without a better one of all, others inform them; then they move."""
        key_informants, key_move = random.split(key)
        places = as_population(state.candidates, evaluation)
        parents = tree_where(no_worse(places, state.parents), places, state.parents)
        better = ~no_worse(_best(state.parents), _best(parents))
        informs = jnp.where(better, state.informs, self.draw_informants(key_informants))
        leader = materialise(best_informant(parents, informs))
        moved, velocity = self.move(key_move, state, parents.x, take(leader, parents.x), leader)
        return PSOState(moved, velocity, parents, informs, state.bounds)

    def draw_informants(self, key: Array) -> Array:
        """Who informs whom: each particle itself, and each of the others with the same chance."""
        n = self.population
        chance = 1 - (1 - 1 / n) ** jnp.asarray(self.informants, jnp.float32)
        return random.bernoulli(key, chance, (n, n)) | jnp.eye(n, dtype=bool)

    def move(
        self, key: Array, state: PSOState, personal_best: Array, informant_best: Array, leader: Array
    ) -> tuple[Array, Array]:
        """Where the particles are next, and their velocities. own, led: best places of each and its best informant."""
        key_direction, key_radius = random.split(key)
        x, bounds = state.candidates, state.bounds
        n = x.shape[0]
        to_own, to_led = self.acceleration * (personal_best - x), self.acceleration * (informant_best - x)
        alone = (leader == jnp.arange(n, dtype=jnp.int32))[:, None]
        centre = jnp.where(alone, to_own / 2, (to_own + to_led) / 3)  # from x
        reach = jnp.sqrt(jnp.sum((centre / bounds.span) ** 2, axis=1, keepdims=True))
        direction = materialise(random.normal(key_direction, x.shape, x.dtype))
        length = jnp.sqrt(jnp.sum(direction**2, axis=1, keepdims=True))
        radius = reach * random.uniform(key_radius, (n, 1), x.dtype)
        ball = bounds.span * direction * (radius / jnp.where(length > 0, length, 1))
        velocity = self.inertia * state.velocity + centre + ball
        moved = x + velocity
        inside = jnp.clip(moved, bounds.lower, bounds.upper)
        return inside, jnp.where(moved == inside, velocity, -velocity / 2)


def best_informant(places: Population, informs: Array) -> Array:
    """For each particle the row of the best of its informants (n, n), itself unless another is better, (n,) int32."""
    rows = jnp.arange(informs.shape[0], dtype=jnp.int32)

    def among(values: Array, counted: Array) -> Array:
        return jnp.where(counted, values[:, None], jnp.inf)

    counted = informs
    if places.violation is not None:
        least = jnp.min(among(places.violation, informs), axis=0)
        counted = informs & (places.violation[:, None] == least)
    best = jnp.argmin(among(places.fitness, counted), axis=0).astype(jnp.int32)
    return jnp.where(no_worse(places, take(best, places)), rows, best)


def _best(population: Population) -> Population:
    return take_row(population, best_index(population))
