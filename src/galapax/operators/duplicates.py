"""Which individuals are there already: rows equal to an earlier one, found by sorting hashes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.numerics import random
from galapax.numerics.materialise import materialise
from galapax.operators.reductions import rows_by

_U32 = np.uint32


def repeated(x: Array, counted: Array) -> Array:
    """Which rows of x (n, d) equal an earlier one, (n,) bool, in O(n d + n log n) with memory O(n).

    counted: (n,) bool, which rows take part; the others repeat nobody and nobody repeats them.
    Rows are compared by two hashes of 32 bits: that two different ones pass for equal has a chance of 2**-64.
    """
    n = x.shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    own = rows.astype(jnp.uint32)
    first, second = (
        jnp.where(counted, _hash(x, seed), own * _U32(seed) + _U32(seed)) for seed in (0x9E3779B9, 0x85EBCA6B)
    )
    order = rows_by(first, second)  # of equals the earlier row comes first
    a, b = first[order], second[order]
    same = jnp.concatenate([jnp.zeros(1, bool), (a[1:] == a[:-1]) & (b[1:] == b[:-1])])
    return jnp.zeros(n, bool).at[order].set(same, unique_indices=True, mode="promise_in_bounds") & counted


def copies_fail(objectives: Array, x: Array) -> Array:
    """The objectives (n, m) with those of a copy of an earlier row of x (n, d) as if it had failed.

    So that it stays only where there is nobody else.
    """
    known = jnp.all(jnp.isfinite(objectives), axis=1)
    return jnp.where(materialise(repeated(x, known))[:, None], jnp.inf, objectives)


def _hash(x: Array, seed: int) -> Array:
    """A word (n,) of the bits of each row; of two rows that differ it is the same with a chance of 2**-32."""
    # -0.0 equals 0.0; adding 0 would do, but XLA leaves that out
    words = lax.bitcast_convert_type(jnp.where(x == 0, jnp.zeros_like(x), x), jnp.uint32)
    words = words.reshape(x.shape[0], -1)
    place = lax.broadcasted_iota(jnp.uint32, words.shape, 1) + _U32(1)
    # a sum of mixed words, each mixed with its place: XLA fuses it, and the order of summation does not matter
    return jnp.sum(
        random.mix_word(words ^ (place * _U32(seed))) * (place * _U32(2) + _U32(1)), axis=1, dtype=jnp.uint32
    )
