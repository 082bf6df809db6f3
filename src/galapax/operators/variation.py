"""Crossover and mutation: by differences, of real genes, and on the grid of codes of integers and choices.

Differential evolution after Storn & Price (1997), Journal of Global Optimization 11:341-359,
doi:10.1023/A:1008202821328; genes that leave the box are bounced back.

Codes make any algorithm one for integers and choices, see core/space.py. A code that arithmetic left between two whole
numbers is rounded at random, up with the chance of its fraction, so that a step of half a code is not lost; where codes
have no order it is drawn anew, since what lies between two of them means nothing. Some candidates then have one of
their codes moved by at least a step, as in Hansen (2011), INRIA research report 7751, section 3: differences between
individuals vanish in a code long before the real variables have settled, and nothing else would try another one. Where
all variables are codes, so is every candidate that is there already.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.checks import abbreviate, check_range
from galapax.core.errors import InputError
from galapax.core.problem import Population
from galapax.core.space import Bounds, DiscreteGrid
from galapax.numerics import random
from galapax.numerics.jaxpr import apply_flattened, materialise
from galapax.operators.sampling import bounce_back
from galapax.operators.selection import best_index, find_duplicates

Mutation = Callable[..., Array]
Crossover = Callable[..., tuple[Array, Array]]


def draw_partners(key: Array, n: int, count: int, besides: Array | None = None) -> Array:
    """Draw for each of n individuals `count` distinct others, none of them itself, (count, n).

    besides: a row, or one for each individual, that is not drawn; the individual's own unless given.

    Every such choice is equally likely. The j-th pick is drawn among the n - 1 - j that are left and moved past those
    already taken, in rising order: no rejection, no permutation, memory O(n).
    """
    words = random.bits(key, (count, n))
    excluded = [jnp.arange(n, dtype=jnp.int32) if besides is None else besides.astype(jnp.int32)]
    picks = []
    for j in range(count):
        pick = random.scale_to(words[j], n - 1 - j)
        for other in excluded:
            pick = skip_row(pick, other)
        picks.append(pick)
        excluded = _insert(excluded, pick)
    return jnp.stack(picks)


def skip_row(pick: Array, other: Array) -> Array:
    """Return a pick among rows without `other`, counted without it, as a row among all."""
    return pick + (pick >= other).astype(jnp.int32)


def _insert(rising: list[Array], value: Array) -> list[Array]:
    out = []
    for element in rising:
        out.append(jnp.minimum(element, value))
        value = jnp.maximum(element, value)
    return [*out, value]


def rand_1(key: Array, parents: Population, weight: ArrayLike) -> Array:
    """Return a random member plus the weighted difference of two others (DE/rand/1), (n, d)."""
    base, plus, minus = _gather_rows(parents.x, draw_partners(key, parents.x.shape[0], 3))
    return base + weight * (plus - minus)


def best_1(key: Array, parents: Population, weight: ArrayLike) -> Array:
    """Return the best member plus the weighted difference of two others (DE/best/1), (n, d)."""
    plus, minus = _gather_rows(parents.x, draw_partners(key, parents.x.shape[0], 2))
    return parents.x[best_index(parents)] + weight * (plus - minus)


def _gather_rows(x: Array, indices: Array) -> Array:
    # one gather for all partners, with indices known to be in range: a third faster on a CPU than one gather each
    return x.at[indices].get(mode="promise_in_bounds")


def add_difference(key: Array, x: Array, bounds: Bounds, weight: float = 0.5) -> Array:
    """Move each row of x (n, d) by `weight` times the difference of two random rows, and clip it to the box.

    Clipping and not bouncing back: solutions of constrained problems often lie on the box, and this reaches it.
    """
    n = x.shape[0]
    a, b = (x.at[rows].get(mode="promise_in_bounds") for rows in random.integers(key, (2, n), n))
    return jnp.clip(x + weight * (a - b), bounds.lower, bounds.upper)


def binomial_crossover(key: Array, target: Array, donor: Array, rate: ArrayLike) -> Array:
    """Take each gene from `donor` with probability `rate`, and at least one per row. All (n, d)."""
    return jnp.where(crossover_mask(key, target.shape, rate), donor, target)


def crossover_mask(key: Array, shape: tuple[int, ...], rate: ArrayLike) -> Array:
    """Draw the genes (n, d) that binomial crossover takes from the donor: each at `rate`, at least one a row."""
    key_gene, key_forced = random.split(key)
    n, d = shape
    forced = random.integers(key_forced, (n,), d)
    return random.bernoulli(key_gene, rate, (n, d)) | (lax.broadcasted_iota(jnp.int32, (n, d), 1) == forced[:, None])


def breed_trials(
    key: Array, parents: Population, bounds: Bounds, mutation: Mutation, weight: ArrayLike, rate: ArrayLike
) -> Array:
    """Breed a trial for each parent, (n, d): mutated, crossed with it, and brought back into the box."""
    key_mutate, key_cross, key_repair = random.split(key, 3)
    crossed = binomial_crossover(key_cross, parents.x, mutation(key_mutate, parents, weight), rate)
    return bounce_back(key_repair, crossed, parents.x, bounds)


def evolve_generation(
    key: Array,
    rows: Array,
    judge: Callable[[Array], Array],
    bounds: Bounds,
    mutation: Mutation,
    weight: ArrayLike,
    rate: ArrayLike,
) -> Array:
    """Rows (n, d + 1), genes and in the last column what `judge` (n, d) -> (n,) says of them, a generation later.

    One array, since on a GPU a second one of another shape is another kernel.
    """
    parents = Population(rows[:, :-1], rows[:, -1:], None)
    trials = breed_trials(key, parents, bounds, mutation, weight, rate)
    new = judge(trials)
    return jnp.where((new <= rows[:, -1])[:, None], jnp.concatenate([trials, new[:, None]], axis=1), rows)


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
    """Breed two children of each pair of rows of `a` and `b`, all (n, d), in the box.

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
    """Breed one child of each pair of rows, (n, d): alpha a + (1 - alpha) b with alpha uniform on [low, high) for each
    gene.

    A child may lie outside the box.
    """
    alpha = low + (high - low) * random.uniform(key, a.shape, a.dtype)
    return b + alpha * (a - b)


def polynomial_mutation(
    key: Array, x: Array, bounds: Bounds, index: ArrayLike, rate: ArrayLike, at_least_one: Array | None = None
) -> Array:
    """Mutate each gene of x (n, d) with probability `rate`, within the box.

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
    """Return the least even number of at least `count`."""
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
    crossover: Crossover | None = None,
    mutation: Mutation | None = None,
) -> Array:
    """Breed two children of each row in the first half of x (n, d), n even, and its like in the second half, (n, d).

    mutation_rate: None for one gene on average. copies: whether a child may be a copy of its parent; otherwise one gene
    of a child that crossover left as it was mutates in any case. crossover, mutation: operators in place of SBX and
    polynomial mutation: crossover(key, a, b, bounds) gives two children of each pair of rows, and mutation(key, x,
    bounds, rate) the mutants; what leaves the box is clipped to it.
    """
    key_cross, key_mutate = random.split(key)
    a, b = materialise(jnp.split(x, 2))
    if crossover is None:
        children = materialise(simulated_binary_crossover(key_cross, a, b, bounds, crossover_index, crossover_rate))
    else:
        children = materialise(_cross_pairs(key_cross, a, b, bounds, crossover, crossover_rate))
    rate = 1 / x.shape[1] if mutation_rate is None else mutation_rate
    crossed = jnp.concatenate(children)
    if mutation is not None:
        return _clip_bred(mutation(key_mutate, crossed, bounds, rate), crossed, bounds, "mutation")
    same = None if copies else jnp.all(crossed == x, axis=1)
    return polynomial_mutation(key_mutate, crossed, bounds, mutation_index, rate, same)


def _cross_pairs(
    key: Array, a: Array, b: Array, bounds: Bounds, crossover: Crossover, rate: ArrayLike
) -> tuple[Array, Array]:
    """Cross each pair of rows with probability `rate` by the user's operator; children are clipped to the box."""
    key_pair, key_children = random.split(key)
    is_crossed = random.bernoulli(key_pair, rate, (a.shape[0], 1))
    children = crossover(key_children, a, b, bounds)
    if not isinstance(children, tuple | list) or len(children) != 2:
        raise InputError(f"crossover must return two arrays of children, (first, second); got {abbreviate(children)}.")
    first, second = (_clip_bred(child, a, bounds, "crossover") for child in children)
    return jnp.where(is_crossed, first, a), jnp.where(is_crossed, second, b)


def _clip_bred(children: Array, parents: Array, bounds: Bounds, name: str) -> Array:
    """Clip what the user's operator bred of some parents to the box, (n, d)."""
    if jnp.shape(children) != parents.shape:
        raise InputError(f"{name} must return children of shape {parents.shape}; got {jnp.shape(children)}.")
    return jnp.clip(children.astype(parents.dtype), bounds.lower, bounds.upper)


def mix_in_differences(key: Array, children: Array, x: Array, bounds: Bounds, share: ArrayLike) -> tuple[Array, Array]:
    """Replace a share of the children (n, d) by their parents x (n, d) moved by differences of others.

    And which they are, (n,) bool.
    """
    key_which, key_move = random.split(key)
    moved = materialise(add_difference(key_move, materialise(x), bounds))
    which = random.bernoulli(key_which, share, (x.shape[0], 1))
    return jnp.where(which, moved, children), which[:, 0]


def adapt_difference_share(share: Array, moved: Array, stays: Array) -> Array:
    """Return the share of children to make by differences next, as they survive more or less often than the others.

    share: of late. moved, stays: (n,) bool, which children of this generation were made so, and which survived.
    A tenth of the way to the fourth power of the two chances beside each other; the power makes a difference of chances
    count. Neither kind is given up.
    """
    chances = [(jnp.sum(stays & mask) + 1) / (jnp.sum(mask) + 2) for mask in (moved, ~moved)]
    ours, theirs = (chance.astype(share.dtype) ** 4 for chance in chances)
    return jnp.clip(share + (ours / (ours + theirs) - share) / 10, 0.05, 0.95)


def check_variation(
    crossover_rate: object,
    crossover_index: object,
    mutation_rate: object,
    mutation_index: object,
    crossover: object = None,
    mutation: object = None,
) -> None:
    """Refuse what `breed` cannot use."""
    for operator, name, call in (
        (crossover, "crossover", "crossover(key, a, b, bounds), which returns two arrays of children"),
        (mutation, "mutation", "mutation(key, x, bounds, rate), which returns the mutants"),
    ):
        if operator is not None and not callable(operator):
            raise InputError(f"{name} must be a function {call}; got {abbreviate(operator)}.")
    check_range(crossover_rate, "crossover_rate", 0.0, 1.0)
    if mutation_rate is not None:
        check_range(mutation_rate, "mutation_rate", 0.0, 1.0)
    check_range(crossover_index, "crossover_index", 0.0, 1000.0)
    check_range(mutation_index, "mutation_index", 0.0, 1000.0)


# --- candidates on the grid of codes ----------------------------------------------------------------------------------


CODE_MUTATION_RATE = 0.2  # chance that a candidate has a code moved


def round_codes(x: Array, bounds: Bounds) -> Array:
    """Round the codes of x (..., d)."""
    grid = bounds.grid
    if grid is None:
        return x
    return jnp.where(grid.discrete, jnp.clip(jnp.round(x), grid.first, grid.last), x)


def snap_to_grid(key: Array, x: Array, individuals: Array, bounds: Bounds, all_discrete: bool) -> Array:
    """Round candidates x (n, d) to codes, and move some of them. individuals: (k, d), those that are there already.

    all_discrete: whether all variables are codes, so that equal candidates are common; those are moved, too.
    """
    grid = bounds.grid
    assert grid is not None
    key_round, key_draw, key_which, key_move, key_again = random.split(key, 5)
    below = jnp.floor(x)
    up = random.uniform(key_round, x.shape, jnp.float32).astype(x.dtype) < x - below
    random_code = grid.first + jnp.floor((grid.last - grid.first + 1) * random.uniform(key_draw, x.shape, x.dtype))
    code = jnp.where(grid.unordered & (x != below), random_code, below + up)
    x = jnp.where(grid.discrete, jnp.clip(code, grid.first, grid.last), x)
    moved = random.bernoulli(key_which, CODE_MUTATION_RATE, (x.shape[0],))
    x = jnp.where(moved[:, None], move_one_code(key_move, x, grid), x)
    if not all_discrete:
        return x
    rows = jnp.concatenate([individuals, x])
    copies = find_duplicates(rows, jnp.ones(rows.shape[0], bool))[individuals.shape[0] :]
    return jnp.where(copies[:, None], move_one_code(key_again, x, grid), x)


def move_one_code(key: Array, x: Array, grid: DiscreteGrid) -> Array:
    """x (n, d) with one code of each row moved: to any other where codes have no order, else up or down by a number of
    steps whose logarithm is uniform, at least one.
    """
    key_gene, key_far, key_way = random.split(key, 3)
    n, d = x.shape
    lot = jnp.where(grid.discrete, random.uniform(key_gene, (n, d), jnp.float32), -1.0)
    chosen = jnp.arange(d) == jnp.argmax(lot, axis=1)[:, None]
    count = grid.last - grid.first + 1
    share = random.uniform(key_far, (n, 1), x.dtype)
    # of c codes the others are 1 to c - 1 away
    far = jnp.clip(jnp.floor(jnp.exp(share * jnp.log(count))), 1, jnp.maximum(count - 1, 1))
    other = grid.first + (x - grid.first + 1 + jnp.floor(share * (count - 1))) % count
    up = random.bernoulli(key_way, 0.5, (n, 1))
    fits_up, fits_down = x + far <= grid.last, x - far >= grid.first
    way = jnp.where((up & fits_up) | ~fits_down, far, -far)
    ordered = jnp.clip(x + way, grid.first, grid.last)
    return jnp.where(chosen & grid.discrete, jnp.where(grid.unordered, other, ordered), x)
