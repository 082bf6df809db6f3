"""Points in the box."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from galapax.core.problem import Bounds
from galapax.numerics import random


def uniform_in(key: Array, bounds: Bounds, n: int) -> Array:
    """n points spread evenly over the box, (n, d)."""
    x = bounds.lower + bounds.span * random.uniform(key, (n, bounds.dim), bounds.lower.dtype)
    return jnp.minimum(x, bounds.upper)  # rounding of the sum could step over the wall
