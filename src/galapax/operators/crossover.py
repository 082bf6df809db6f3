"""Children from several parents each."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from galapax.core.evaluation import Population
from galapax.core.problem import Bounds
from galapax.numerics import random
from galapax.numerics.materialise import apply_flattened, materialise
from galapax.operators.mutation import partners
from galapax.operators.selection import best_index


def binomial_crossover(key: Array, target: Array, donor: Array, rate: Any) -> Array:
    """Take each gene from `donor` with probability `rate`, and at least one per row. All (n, d)."""
    return jnp.where(crossed_genes(key, target.shape, rate), donor, target)


def crossed_genes(key: Array, shape: tuple[int, ...], rate: Any) -> Array:
    """Which genes (n, d) binomial crossover takes from the donor: each with probability `rate`, and at least one."""
    key_gene, key_forced = random.split(key)
    n, d = shape
    forced = random.integers(key_forced, (n,), d)
    return random.bernoulli(key_gene, rate, (n, d)) | (lax.broadcasted_iota(jnp.int32, (n, d), 1) == forced[:, None])


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
    # beside a gather XLA on a CPU computes number by number; what is drawn apart is drawn in vectors
    step = sigma * materialise(random.normal(key_normal, x.shape, x.dtype))
    return share * best + (1 - share) * second + step * (second - third)


def simulated_binary_crossover(
    key: Array, a: Array, b: Array, bounds: Bounds, index: Any, rate: Any
) -> tuple[Array, Array]:
    """Two children of each pair of rows of `a` and `b`, all (n, d), in the box.

    SBX of Deb & Agrawal (1995), Complex Systems 9:115-148, with the density cut at the walls as in the program of the
    authors of NSGA-II: of u uniform and the parents p < q of a gene, the children are (p + q -+ beta (q - p)) / 2. A
    pair is crossed with probability `rate`, each gene of it with probability 1/2, and the children of a gene are
    swapped with probability 1/2. index: the greater, the closer to the parents; eta_c.
    """
    key_pair, key_gene, key_spread = random.split(key, 3)
    n, d = a.shape
    words = random.bits(key_gene, (n, d))
    crossed = random.bernoulli(key_pair, rate, (n, 1)) & ((words >> 31) == 0) & (a != b)
    swapped = ((words >> 30) & 1) == 0
    u = random.uniform(key_spread, (n, d), a.dtype)

    def children(a: Array, b: Array, u: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
        p, q = jnp.minimum(a, b), jnp.maximum(a, b)
        apart = jnp.where(a != b, q - p, 1)
        low = p - apart / 2 * _beyond(u, 2 * (p - lower) / apart, index)
        high = q + apart / 2 * _beyond(u, 2 * (upper - q) / apart, index)
        return jnp.clip(low, lower, upper), jnp.clip(high, lower, upper)  # the sums' rounding could step over a wall

    low, high = apply_flattened(children, a, b, u, bounds.lower, bounds.upper)
    first = jnp.where(crossed, jnp.where(swapped, high, low), a)
    second = jnp.where(crossed, jnp.where(swapped, low, high), b)
    return first, second


def _beyond(u: Array, most: Array, index: Any) -> Array:
    """beta - 1 of SBX for u uniform on [0, 1), at most `most` >= 0.

    beta has density (eta + 1) / 2 beta^eta up to 1 and (eta + 1) / 2 beta^-(eta + 2) beyond, cut and scaled up to
    compensate. `log1p` and `expm1` keep the digits of children that come close to a parent or a wall.
    """
    power = index + 1
    scaled = u * (1 - jnp.expm1(-power * jnp.log1p(most)))
    within = scaled <= 1
    logarithm = jnp.log(jnp.where(within, scaled, 2 - scaled))
    return jnp.expm1(jnp.where(within, logarithm, -logarithm) / power)


def arithmetic_crossover(key: Array, a: Array, b: Array, low: Any = -0.5, high: Any = 1.5) -> Array:
    """One child of each pair of rows, (n, d): alpha a + (1 - alpha) b with alpha uniform on [low, high) for each gene.

    A child may lie outside the box.
    """
    alpha = low + (high - low) * random.uniform(key, a.shape, a.dtype)
    return b + alpha * (a - b)
