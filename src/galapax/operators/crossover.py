"""Children from several parents each."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from galapax import random
from galapax.algorithm import Population
from galapax.operators.mutation import partners
from galapax.operators.selection import best_index


def binomial_crossover(key: Array, target: Array, donor: Array, rate: Any) -> Array:
    """Take each gene from `donor` with probability `rate`, and at least one per row. All (n, d)."""
    key_gene, key_forced = random.split(key)
    n, d = target.shape
    forced = random.integers(key_forced, (n,), d)
    taken = random.bernoulli(key_gene, rate, (n, d)) | (lax.broadcasted_iota(jnp.int32, (n, d), 1) == forced[:, None])
    return jnp.where(taken, donor, target)


def three_parents(key: Array, parents: Population, fr: Any, sigma: Any) -> Array:
    """Children g * best + (1 - g) * second + sigma * N(0, 1) * (second - third), g = fr * max(u, 1 - u), (n, d).

    Second and third parent are two different members besides the best; u and the normal number are drawn for each gene.
    Smith et al. (2010), Computer Physics Communications 181(6).
    """
    key_partners, key_share, key_normal = random.split(key, 3)
    x, n = parents.x, parents.x.shape[0]
    first = best_index(parents).astype(jnp.int32)
    rows = jnp.concatenate([jnp.broadcast_to(first, (1, n)), partners(key_partners, n, 2, besides=first)])
    best, second, third = x.at[rows].get(mode="promise_in_bounds")  # one gather, which fuses with what follows
    u = random.uniform(key_share, x.shape, jnp.float32).astype(x.dtype)
    share = fr * jnp.maximum(u, 1 - u)
    step = sigma * random.normal(key_normal, x.shape, x.dtype)
    return share * best + (1 - share) * second + step * (second - third)
