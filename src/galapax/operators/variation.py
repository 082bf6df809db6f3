"""Crossover and mutation of real genes, alone and together, as genetic algorithms and NSGA-II breed."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.checks import check_range
from galapax.core.problem import Bounds, Population
from galapax.numerics import random
from galapax.numerics.jaxpr import apply_flattened, materialise
from galapax.operators.differential import add_difference, draw_partners
from galapax.operators.selection import best_index


def three_parent_crossover(key: Array, parents: Population, fr: ArrayLike, sigma: ArrayLike) -> Array:
    """Children g * best + (1 - g) * second + sigma * N(0, 1) * (second - third), g = fr * max(u, 1 - u), (n, d).

    Second and third parent are two different members besides the best; u and the normal number are drawn for each gene.
    Smith et al. (2010), Computer Physics Communications 181(6).
    """
    key_partners, key_share, key_normal = random.split(key, 3)
    x, n = parents.x, parents.x.shape[0]
    first = best_index(parents).astype(jnp.int32)
    rows = jnp.concatenate([jnp.broadcast_to(first, (1, n)), draw_partners(key_partners, n, 2, besides=first)])
    best, second, third = x.at[rows].get(mode="promise_in_bounds")  # one gather, which fuses with what follows
    u = random.uniform(key_share, x.shape, jnp.float32).astype(x.dtype)
    share = fr * jnp.maximum(u, 1 - u)
    # beside a gather XLA on a CPU computes number by number; what is drawn apart is drawn in vectors
    step = sigma * materialise(random.normal(key_normal, x.shape, x.dtype))
    return share * best + (1 - share) * second + step * (second - third)


def simulated_binary_crossover(
    key: Array, a: Array, b: Array, bounds: Bounds, index: ArrayLike, rate: ArrayLike
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
        distance = jnp.where(a != b, q - p, 1)
        low = p - distance / 2 * _spread_beyond(u, 2 * (p - lower) / distance, index)
        high = q + distance / 2 * _spread_beyond(u, 2 * (upper - q) / distance, index)
        return jnp.clip(low, lower, upper), jnp.clip(high, lower, upper)  # the sums' rounding could step over a wall

    low, high = apply_flattened(children, a, b, u, bounds.lower, bounds.upper)
    first = jnp.where(crossed, jnp.where(swapped, high, low), a)
    second = jnp.where(crossed, jnp.where(swapped, low, high), b)
    return first, second


def _spread_beyond(u: Array, most: Array, index: ArrayLike) -> Array:
    """beta - 1 of SBX for u uniform on [0, 1), at most `most` >= 0.

    beta has density (eta + 1) / 2 beta^eta up to 1 and (eta + 1) / 2 beta^-(eta + 2) beyond, cut and scaled up to
    compensate. `log1p` and `expm1` keep the digits of children that come close to a parent or a wall.
    """
    power = index + 1
    scaled = u * (1 - jnp.expm1(-power * jnp.log1p(most)))
    within = scaled <= 1
    logarithm = jnp.log(jnp.where(within, scaled, 2 - scaled))
    return jnp.expm1(jnp.where(within, logarithm, -logarithm) / power)


def arithmetic_crossover(key: Array, a: Array, b: Array, low: Array | float = -0.5, high: Array | float = 1.5) -> Array:
    """One child of each pair of rows, (n, d): alpha a + (1 - alpha) b with alpha uniform on [low, high) for each gene.

    A child may lie outside the box.
    """
    alpha = low + (high - low) * random.uniform(key, a.shape, a.dtype)
    return b + alpha * (a - b)


def polynomial_mutation(
    key: Array, x: Array, bounds: Bounds, index: ArrayLike, rate: ArrayLike, at_least_one: Array | None = None
) -> Array:
    """Each gene of x (n, d) moved with probability `rate`, within the box.

    at_least_one: (n,) bool, rows of which one gene, a random one, moves in any case.

    Deb & Goyal (1996), Computer Science and Informatics 26(4):30-45, in the form of the program of the authors of
    NSGA-II: the move, in units of the gene's range, has density proportional to (1 - |move|)^index on either side, up
    to the wall, each side being chosen with probability 1/2. index: the greater, the smaller the moves; eta_m.
    """
    key_gene, key_move = random.split(key)
    u = random.uniform(key_move, x.shape, x.dtype)
    power = index + 1

    def move_gene(x: Array, u: Array, lower: Array, upper: Array) -> Array:
        down, span = u < 0.5, upper - lower
        tail = 2 * jnp.where(down, u, 1 - u)  # in (0, 1]: 0 is a move to the wall, 1 none
        room = jnp.where(down, x - lower, upper - x) / span
        # `log1p` and `expm1`, since near a wall the moves towards it are tiny, and in float32 they would vanish
        cut = -jnp.expm1(power * jnp.log1p(-jnp.clip(room, 0, 1)))
        move = -jnp.expm1(jnp.log1p(-(1 - tail) * cut) / power)
        return jnp.clip(x + jnp.where(down, -move, move) * span, lower, upper)

    moves = random.bernoulli(key_gene, rate, x.shape)
    if at_least_one is not None:
        forced = random.integers(random.fold_in(key, 2), (x.shape[0], 1), x.shape[1])
        moves |= at_least_one[:, None] & (lax.broadcasted_iota(jnp.int32, x.shape, 1) == forced)
    return jnp.where(moves, apply_flattened(move_gene, x, u, bounds.lower, bounds.upper), x)


def round_up_to_even(count: int) -> int:
    """The least even number of at least `count`."""
    return count + count % 2


def breed(
    key: Array,
    x: Array,
    bounds: Bounds,
    crossover_rate: ArrayLike,
    crossover_index: ArrayLike,
    mutation_rate: ArrayLike | None,
    mutation_index: ArrayLike,
    copies: bool = True,
) -> Array:
    """Two children of each row in the first half of x (n, d), n even, and its like in the second half, (n, d).

    mutation_rate: None for one gene on average. copies: whether a child may be a copy of its parent; otherwise one gene
    of a child that crossover left as it was mutates in any case.
    """
    key_cross, key_mutate = random.split(key)
    a, b = materialise(jnp.split(x, 2))
    children = materialise(simulated_binary_crossover(key_cross, a, b, bounds, crossover_index, crossover_rate))
    rate = 1 / x.shape[1] if mutation_rate is None else mutation_rate
    crossed = jnp.concatenate(children)
    same = None if copies else jnp.all(crossed == x, axis=1)
    return polynomial_mutation(key_mutate, crossed, bounds, mutation_index, rate, same)


def mix_in_differences(key: Array, children: Array, x: Array, bounds: Bounds, share: ArrayLike) -> tuple[Array, Array]:
    """The children (n, d), a share of them replaced by their parents x (n, d) moved by differences of others.

    And which they are, (n,) bool.
    """
    key_which, key_move = random.split(key)
    moved = materialise(add_difference(key_move, materialise(x), bounds))
    which = random.bernoulli(key_which, share, (x.shape[0], 1))
    return jnp.where(which, moved, children), which[:, 0]


def adapt_difference_share(share: Array, moved: Array, stays: Array) -> Array:
    """The share of children to make by differences next, as they survive more or less often than the others.

    share: of late. moved, stays: (n,) bool, which children of this generation were made so, and which survived.
    A tenth of the way to the fourth power of the two chances beside each other; the power makes a difference of chances
    count. Neither kind is given up.
    """
    chances = [(jnp.sum(stays & mask) + 1) / (jnp.sum(mask) + 2) for mask in (moved, ~moved)]
    ours, theirs = (chance.astype(share.dtype) ** 4 for chance in chances)
    return jnp.clip(share + (ours / (ours + theirs) - share) / 10, 0.05, 0.95)


def check_variation(
    crossover_rate: object, crossover_index: object, mutation_rate: object, mutation_index: object
) -> None:
    """Refuse what `breed` cannot use."""
    check_range(crossover_rate, "crossover_rate", 0.0, 1.0)
    if mutation_rate is not None:
        check_range(mutation_rate, "mutation_rate", 0.0, 1.0)
    check_range(crossover_index, "crossover_index", 0.0, 1000.0)
    check_range(mutation_index, "mutation_index", 0.0, 1000.0)
