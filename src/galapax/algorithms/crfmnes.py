"""CR-FM-NES: a natural evolution strategy with a diagonal and one direction, for hundreds of variables.

Nomura & Ono (2022), Fast moving natural evolution strategy for high-dimensional problems, IEEE CEC,
doi:10.1109/CEC55065.2022.9870206. The covariance is sigma^2 D (I + v v^T) D with a diagonal D and a vector v, so that a
generation takes O(n d).

Differs from the paper: the box is scaled to the unit cube; its walls and the end of a search are those of `CMAES`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from galapax.algorithms.cmaes import CMAES, CMAESState, Distribution, StrategyParameters
from galapax.core.algorithm import static
from galapax.core.problem import Bounds, Shape
from galapax.numerics import random


def _distance_exponent(dim: int) -> float:
    """Solve (1 + a^2) exp(a^2 / 2) / 0.24 = 10 + dim for a, by Newton's method."""
    a = 1.0
    for _ in range(200):
        value = (1 + a * a) * math.exp(a * a / 2) / 0.24 - 10 - dim
        a -= 0.5 * value / (a * math.exp(a * a / 2) * (3 + a * a) / 0.24)
    return a


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CRFMNES(CMAES):
    """CR-FM-NES for one objective in many variables: variances and one direction are learnt, fast.

    population: samples a generation, lambda; by default 4 + 3 ln d. They come in pairs, z and -z.
    samples, sigma0: as in CMAES.
    """

    diagonal: bool = static(True)  # `root` is D and `matrix` is v

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> CMAESState:
        key_state, key_v = random.split(key)
        state = super().init(key_state, bounds, shape)
        v = random.normal(key_v, (bounds.dim,), bounds.lower.dtype) / math.sqrt(bounds.dim)
        return state._replace(now=state.now._replace(matrix=v))

    def sample(self, key: Array, now: Distribution, bounds: Bounds) -> tuple[Array, Array]:
        """Draw new candidates in pairs around the mean."""
        half = random.normal(key, ((self.population + 1) // 2, bounds.dim), bounds.lower.dtype)
        normals = jnp.stack([half, -half], axis=1).reshape(-1, bounds.dim)[: self.population]
        return self.place(now, normals, bounds), normals

    def transform(self, now: Distribution, normals: Array) -> Array:
        return self._stretch(now, normals) * now.root

    def _stretch(self, now: Distribution, normals: Array) -> Array:
        v = now.matrix
        square = jnp.sum(v**2)
        return normals + (jnp.sqrt(1 + square) - 1) / square * (normals @ v)[:, None] * v

    def variances(self, now: Distribution) -> Array:
        return now.root**2 * (1 + now.matrix**2)

    def update_distribution(
        self, k: StrategyParameters, state: CMAESState, moves: Array, rank: Array
    ) -> tuple[Distribution, Array]:
        now, z, dim = state.now, state.normals, moves.shape[1]
        place, count = (rank + 1).astype(moves.dtype), k.count
        is_used = place <= count
        raw = jnp.where(is_used, jnp.maximum(jnp.log(count / 2 + 1) - jnp.log(place), 0), 0)
        positive = raw / jnp.sum(raw)
        mueff = 1 / jnp.sum(positive**2)
        uniform = jnp.where(is_used, 1 / count, 0)
        ranked = positive - uniform
        c_s = (mueff + 2) / (dim + mueff + 5)
        c_c = (4 + mueff / dim) / (dim + 4 + 2 * mueff / dim)
        step_path = (1 - c_s) * now.step_path + jnp.sqrt(c_s * (2 - c_s) * mueff) * (ranked @ z)
        length = jnp.sqrt(jnp.sum(step_path**2))
        usual = math.sqrt(dim) * (1 - 1 / (4 * dim) + 1 / (21 * dim**2))
        alpha = _distance_exponent(dim) * jnp.minimum(1, jnp.sqrt(count / dim))
        norms = jnp.sqrt(jnp.sum(z**2, axis=1))
        distant = raw * jnp.exp(alpha * (norms - jnp.max(norms)))
        is_moving = length >= usual
        weights = jnp.where(is_moving, distant / jnp.sum(distant) - uniform, ranked)
        stagnation = jnp.tanh((0.024 * count + 0.7 * dim + 20) / (dim + 12))
        convergence = 2 * jnp.tanh((0.025 * count + 0.75 * dim + 10) / (dim + 4))
        rate = jnp.where(is_moving, 1.0, jnp.where(length >= 0.1 * usual, stagnation, convergence))
        move = weights @ moves
        path = (1 - c_c) * now.path + jnp.sqrt(c_c * (2 - c_c) * mueff) * move
        # natural gradient of v and D, appendix of Akimoto, Auger & Hansen (2014), GECCO, 373-380
        v, d = now.matrix, now.root
        v2 = jnp.sum(v**2)
        norm = jnp.sqrt(v2)
        unit = v / norm
        unit2 = unit**2
        gamma = 1 + v2
        y = jnp.concatenate([moves / d, (path / d)[None]])
        along = (y @ unit)[:, None]
        a = jnp.minimum(1, jnp.sqrt(v2**2 + (2 * gamma - jnp.sqrt(gamma)) / jnp.max(unit2)) / (2 + v2))
        t = y * along - unit * (along**2 + gamma) / 2
        b = -(1 - a**2) * v2**2 / gamma + 2 * a**2
        inverse = 1 / (2 - (b + 2 * a**2) * unit2)
        s = y**2 - v2 / gamma * (y * unit * along) - 1
        s = s - a / gamma * ((2 + v2) * (t * unit) - v2 * unit2 * (t @ unit)[:, None])
        scaled = inverse * unit2
        s = s * inverse - b / (1 + b * (unit2 @ scaled)) * scaled * (s @ scaled)[:, None]
        t = t - a * ((2 + v2) * (s * unit) - unit * (s @ unit2)[:, None])
        c_1 = 2 / ((dim + 1.3) ** 2 + mueff) * max(dim - 5, 0) / 6
        learning = jnp.tanh((jnp.minimum(0.02 * count, 3 * math.log(dim)) + 5) / (0.23 * dim + 25))
        extended = jnp.concatenate([learning * weights, jnp.asarray(c_1, weights.dtype)[None]])
        new_v = v + (extended @ t) / norm
        new_d = d * (1 + extended @ s)
        log_volume = jnp.sum(jnp.log(new_d)) / dim + jnp.log1p(jnp.sum(new_v**2)) / (2 * dim)
        new_d = new_d / jnp.exp(log_volume)
        growth = jnp.exp(rate / 2 * jnp.sum(weights[:, None] * (z**2 - 1)) / dim)
        new = Distribution(now.mean + now.step * move, now.step * growth, new_v, new_d, path, step_path)
        sound = jnp.all(jnp.isfinite(new_d)) & jnp.all(jnp.isfinite(new_v)) & jnp.all(new_d > 0)
        return jax.tree.map(lambda x, old: jnp.where(sound, x, old), new, now), sound
