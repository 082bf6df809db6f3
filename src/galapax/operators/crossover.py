"""Children from two parents each."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from galapax import random


def binomial_crossover(key: Array, target: Array, donor: Array, rate: Any) -> Array:
    """Take each gene from `donor` with probability `rate`, and at least one per row. All (n, d)."""
    key_gene, key_forced = random.split(key)
    n, d = target.shape
    forced = random.integers(key_forced, (n,), d)
    taken = random.bernoulli(key_gene, rate, (n, d)) | (lax.broadcasted_iota(jnp.int32, (n, d), 1) == forced[:, None])
    return jnp.where(taken, donor, target)
