"""Comparison, tournaments, survivor selection and duplicates.

With one objective, feasible beats infeasible, less violation beats more, then the objective decides.
"""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.core.problem import Population
from galapax.numerics import random
from galapax.numerics.jaxpr import Tree, materialise
from galapax.operators.pairwise import argsort_rows
from galapax.operators.ranking import dominates


def no_worse(a: Population, b: Population) -> Array:
    """Slot by slot, whether `a` is at least as good as `b`, (n,). Ties count, so that plateaus can be crossed."""
    if a.violation is None or b.violation is None:
        return a.fitness <= b.fitness
    return (a.violation < b.violation) | ((a.violation == b.violation) & (a.fitness <= b.fitness))


def tree_where(first: Array, a: Population, b: Population) -> Population:
    """Slot by slot the individual of `a` where `first` holds, else that of `b`."""
    return jax.tree.map(lambda p, q: jnp.where(first.reshape(first.shape + (1,) * (p.ndim - 1)), p, q), a, b)


def best_index(population: Population) -> Array:
    """Return the row of the best individual for one objective, a scalar."""
    if population.violation is None:
        return jnp.argmin(population.fitness)
    least = jnp.min(population.violation)
    return jnp.argmin(jnp.where(population.violation == least, population.fitness, jnp.inf))


def take_row(population: Population, row: Array | int) -> Population:
    """Return one individual as a population, (1, ...)."""
    return jax.tree.map(lambda a: a[row][None], population)


def set_first(population: Population, first: Population) -> Population:
    """Return the population with this individual (1, ...) in its first slot."""
    return jax.tree.map(lambda a, b: a.at[0].set(b[0]), population, first)


def keep_best(population: Population, before: Population, trials: Population) -> Population:
    """Return the population with the best of these trials and of the first individual before, in its first slot."""
    new, old = take_row(trials, best_index(trials)), take_row(before, 0)
    return set_first(population, tree_where(no_worse(new, old), new, old))


MAX_PAIRWISE_RANKED = 256  # up to so many values are ranked by comparing all pairs, which is fused; more are sorted


def rank_by_fitness(fitness: Array, violation: Array | None = None) -> Array:
    """Rank the individuals from the best, 0, to the worst, (n,) int32; of equals the earlier is better."""
    n = fitness.shape[0]
    if n <= MAX_PAIRWISE_RANKED:
        ahead = fitness[None, :] < fitness[:, None]
        tied = fitness[None, :] == fitness[:, None]
        if violation is not None:
            less, same = violation[None, :] < violation[:, None], violation[None, :] == violation[:, None]
            ahead, tied = less | (same & ahead), same & tied
        earlier = jnp.arange(n)[None, :] < jnp.arange(n)[:, None]
        return jnp.sum(ahead | (tied & earlier), axis=1, dtype=jnp.int32)
    order = jnp.lexsort((fitness,) if violation is None else (fitness, violation))
    return jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32))


def score_by_tournaments(key: Array, old: Population, new: Population, opponents: int) -> Array:
    """Scores (2n,) of the members of the union, the old ones first, from 0 to opponents + 3.

    A member scores two more than it has wins: of `opponents` random members of the union, those it beats or equals. One
    as good as the best of the union scores one more than a tournament can give, so that who keeps the best by score
    keeps the best. Failed or unevaluated ones score less than any other, new ones 1 and old ones 0.
    """
    fitness = jnp.concatenate([old.fitness, new.fitness])
    size = fitness.shape[0]
    opponent_rows = random.integers(key, (opponents, size), size)
    met = fitness.at[opponent_rows].get(mode="promise_in_bounds")
    if old.violation is None or new.violation is None:
        won = fitness <= met
        best = fitness == jnp.min(fitness)
    else:
        violation = jnp.concatenate([old.violation, new.violation])
        theirs = violation.at[opponent_rows].get(mode="promise_in_bounds")
        won = (violation < theirs) | ((violation == theirs) & (fitness <= met))
        least = violation == jnp.min(violation)
        best = least & (fitness == jnp.min(jnp.where(least, fitness, jnp.inf)))
    wins = jnp.where(best, opponents + 1, jnp.sum(won, axis=0, dtype=jnp.int32))
    failed = (jnp.arange(size, dtype=jnp.int32) >= size // 2).astype(jnp.int32)
    return jnp.where(jnp.isfinite(fitness), wins + 2, failed)


def replace_losers(scores: Array, most: int, old: Tree, new: Tree) -> Tree:
    """Keep the n individuals with the highest scores out of `old` and `new`, n each, in linear time, without sorting.

    scores: (2n,), of the old ones first, whole numbers from 0 to `most`. old, new: trees of arrays with n rows. Among
    equals at the margin the earlier stay. Old ones that stay keep their rows; new ones fill the losers' rows in order.
    """
    n = scores.shape[0] // 2
    source = random.as_intrinsic(partial(replacement_index, most=most), "replacement_index")(scores)

    def merge(p: Array, q: Array) -> Array:
        keep = (source < 0).reshape((n,) + (1,) * (p.ndim - 1))
        return jnp.where(keep, p, q.at[jnp.maximum(source, 0)].get(mode="promise_in_bounds"))

    return jax.tree.map(merge, old, new)


def replacement_index(scores: Array, most: int) -> Array:
    """Return the row of the new individual that takes each old one's row, -1 where the old one stays, (n,) int32; see
    `replace_losers`.

    One number says it of a row, so that a kernel need not decide it for every gene again.
    """
    n = scores.shape[0] // 2
    levels = jnp.arange(most + 2, dtype=jnp.int32)
    counts = jnp.sum(scores[None, :] >= levels[:, None], axis=1, dtype=jnp.int32)
    # the highest score that at least n individuals reach, and how many exceed it; sums written out are fused, a
    # reduction of a dozen numbers is a kernel of its own on a GPU
    enough = [counts[w] >= n for w in range(most + 2)]
    margin = sum(e.astype(jnp.int32) for e in enough) - 1
    above = sum(jnp.where(a & ~b, counts[w + 1], 0) for w, (a, b) in enumerate(itertools.pairwise(enough)))
    # one running sum for all ranks, since each is several kernels on a GPU: members above the margin, and at it
    tied = scores == margin
    sums = jnp.cumsum(jnp.stack([scores > margin, tied]), axis=1, dtype=jnp.int32)
    stay = (scores > margin) | (tied & (sums[1] <= n - above))
    stayed = sums[0] + jnp.minimum(sums[1], n - above)  # up to and with each member
    # the r-th new one that stays goes to the r-th row that falls free; in all n stay, so that it comes r after those
    # of the old ones
    rows = jnp.arange(n, dtype=jnp.int32)
    place = jnp.where(stay[n:], stayed[n:] - 1, n)
    chosen = jnp.zeros(n, jnp.int32).at[place].set(rows, mode="drop")
    free = jnp.minimum(rows + stayed[n - 1] - stayed[:n], n - 1)
    return jnp.where(stay[:n], -1, chosen.at[free].get(mode="promise_in_bounds"))


def binary_tournament(key: Array, rank: Array, spread: Array, count: int, among: Array | None = None) -> Array:
    """Select the winners of `count` tournaments between two random rows, (count,) int32: lower rank, then greater
    spread.

    rank, spread: (n,). A tie goes to the one drawn first. among: a number of rows, int32; only the first so many take
    part.
    """
    if among is None:
        pairs = random.integers(key, (2, count), rank.shape[0])
    else:  # a number known only on the device; rounding up must not reach it
        share = random.uniform(key, (2, count), jnp.float32)
        pairs = jnp.minimum((share * among).astype(jnp.int32), among - 1)
    (rank_a, rank_b), (spread_a, spread_b) = (v.at[pairs].get(mode="promise_in_bounds") for v in (rank, spread))
    second = (rank_b < rank_a) | ((rank_b == rank_a) & (spread_b > spread_a))
    return jnp.where(second, pairs[1], pairs[0])


def take(rows: Array, tree: Tree) -> Tree:
    """Return these rows of every array."""
    return jax.tree.map(lambda a: a.at[rows].get(mode="promise_in_bounds"), tree)


def take_from_union(rows: Array, a: Tree, b: Tree) -> Tree:
    """Take rows of every array of `a` followed by its like in `b`, n rows each, without concatenating them."""

    def pick(p: Array, q: Array) -> Array:
        n = p.shape[0]
        first = (rows < n).reshape((-1,) + (1,) * (p.ndim - 1))
        return jnp.where(first, take(jnp.minimum(rows, n - 1), p), take(jnp.maximum(rows - n, 0), q))

    return jax.tree.map(pick, a, b)


def concatenate_optional(a: Array | None, b: Array | None) -> Array | None:
    """Concatenate two arrays; None for two of None."""
    return None if a is None or b is None else jnp.concatenate([a, b])


def domination_tournament(key: Array, parents: Population, spread: Array, count: int) -> Array:
    """Select the winners of `count` tournaments of two, (count,) int32: who dominates the other, or else has greater
    spread.

    spread: (n,). Of equals the first wins.
    """
    a, b = _draw_pairs(key, spread.shape[0], count)
    first, second = (take(rows, (parents.objectives, parents.violation)) for rows in (a, b))
    wins, loses = dominates(*second, *first), dominates(*first, *second)
    crowded = take(b, spread) > take(a, spread)
    return jnp.where(wins | (crowded & ~loses), b, a)


def least_value_tournament(key: Array, values: Array, count: int) -> Array:
    """Select the winners of `count` tournaments of two, (count,) int32: who has the lesser value (n,); of equals the
    first.
    """
    a, b = _draw_pairs(key, values.shape[0], count)
    return jnp.where(take(b, values) < take(a, values), b, a)


def _draw_pairs(key: Array, n: int, count: int) -> tuple[Array, Array]:
    """Of n rows, who meets whom in `count` tournaments.

    Rows meet in random orders of all of them, the first with the second and so on: every row takes part as often as any
    other, and those who breed with each other are rarely one and the same.
    """
    orders = [argsort_rows(random.bits(k, (n,))) for k in random.split(key, -(-2 * count // n))]
    pairs = jnp.concatenate(orders)[: 2 * count].reshape(count, 2)
    return pairs[:, 0], pairs[:, 1]


def find_duplicates(x: Array, counted: Array) -> Array:
    """Find which rows of x (n, d) equal an earlier one, (n,) bool, in O(n d + n log n) with memory O(n).

    counted: (n,) bool, which rows take part; the others repeat nobody and nobody repeats them.
    Rows are compared by two hashes of 32 bits: that two different ones pass for equal has a chance of 2**-64.
    """
    n = x.shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    row_words = rows.astype(jnp.uint32)
    first, second = (
        jnp.where(counted, _hash(x, seed), row_words * np.uint32(seed) + np.uint32(seed))
        for seed in (0x9E3779B9, 0x85EBCA6B)
    )
    order = argsort_rows(first, second)  # of equals the earlier row comes first
    a, b = first[order], second[order]
    same = jnp.concatenate([jnp.zeros(1, bool), (a[1:] == a[:-1]) & (b[1:] == b[:-1])])
    return jnp.zeros(n, bool).at[order].set(same, unique_indices=True, mode="promise_in_bounds") & counted


def fail_duplicates(objectives: Array, x: Array) -> Array:
    """Return the objectives (n, m) with those of a copy of an earlier row of x (n, d) as if it had failed.

    So that it stays only where there is nobody else.
    """
    evaluated = jnp.all(jnp.isfinite(objectives), axis=1)
    return jnp.where(materialise(find_duplicates(x, evaluated))[:, None], jnp.inf, objectives)


def _hash(x: Array, seed: int) -> Array:
    """Return a word (n,) of the bits of each row; of two rows that differ it is the same with a chance of 2**-32."""
    # -0.0 equals 0.0; adding 0 would do, but XLA leaves that out
    words = lax.bitcast_convert_type(jnp.where(x == 0, jnp.zeros_like(x), x), jnp.uint32)
    words = words.reshape(x.shape[0], -1)
    place = lax.broadcasted_iota(jnp.uint32, words.shape, 1) + np.uint32(1)
    # a sum of mixed words, each mixed with its place: XLA fuses it, and the order of summation does not matter
    return jnp.sum(
        random.mix_word(words ^ (place * np.uint32(seed))) * (place * np.uint32(2) + np.uint32(1)),
        axis=1,
        dtype=jnp.uint32,
    )
