"""Points in the box: drawing them, and moving back those that left it."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from galapax.core.problem import Bounds
from galapax.numerics import random


def sample_uniform(key: Array, bounds: Bounds, n: int) -> Array:
    """Sample n points uniformly in the box, (n, d)."""
    x = bounds.lower + bounds.span * random.uniform(key, (n, bounds.dim), bounds.lower.dtype)
    return jnp.minimum(x, bounds.upper)  # rounding of the sum could step over the wall


def bounce_back(key: Array, x: Array, inside: Array, bounds: Bounds) -> Array:
    """Replace each gene that left the box by a random point between its place in `inside` and the wall it crossed.

    Price, Storn & Lampinen (2005), Differential Evolution, section 4.3. Clipping would pile the population up on the
    walls, where differences vanish; this keeps the spread and still approaches an optimum that lies on a wall.
    """
    share = random.uniform(key, x.shape, jnp.float32).astype(x.dtype)
    wall = jnp.where(x < bounds.lower, bounds.lower, bounds.upper)
    outside = (x < bounds.lower) | (x > bounds.upper)
    # rounding of the sum could step over the far wall by one unit, hence the clip
    back = jnp.clip(wall + share * (inside - wall), bounds.lower, bounds.upper)
    return jnp.where(outside, back, x)


def move_halfway(x: Array, inside: Array, bounds: Bounds) -> Array:
    """Replace each gene that left the box by the middle between its place in `inside` and the wall it crossed.

    Zhang & Sanderson (2009), IEEE Trans. Evol. Comput. 13(5):945-958, doi:10.1109/TEVC.2009.2014613.
    """
    wall = jnp.where(x < bounds.lower, bounds.lower, bounds.upper)
    outside = (x < bounds.lower) | (x > bounds.upper)
    return jnp.where(outside, 0.5 * wall + 0.5 * inside, x)


def resample_outside(key: Array, x: Array, bounds: Bounds) -> Array:
    """Replace each gene that left the box by a random one in it."""
    fresh = sample_uniform(key, bounds, x.shape[0])
    return jnp.where((x < bounds.lower) | (x > bounds.upper), fresh, x)
