"""Cholesky factors in blocks, and their inverses.

On a CPU JAX calls LAPACK, whose threads wait for each other: on a busy machine a factor of 128 rows took 30 to 60 ms
in the mean, and 0.1 ms on one thread. These blocks are so small that LAPACK uses one; the rest is matrix products.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

MAX_FACTOR_ROWS = 96  # that OpenBLAS factorises on one thread; from 128 on it uses more
MAX_SOLVE_ROWS = 31  # of a square right side that it solves for on one thread; from 32 on it uses more


def solve_positive(matrix: Array, right: Array) -> Array:
    """Solve matrix @ x = right for x (n,), by a Cholesky factor; NaN where the matrix (n, n) is not positive."""
    inverse = invert_factor(matrix)
    return _product(_product(inverse, right), inverse)


def invert_factor(matrix: Array) -> Array:
    """Compute the inverse of the lower Cholesky factor of a positive matrix (n, n), whose lower half is read."""
    n = matrix.shape[0]
    if n <= MAX_FACTOR_ROWS:
        return invert_lower(lax.linalg.cholesky(matrix, symmetrize_input=False))
    first = invert_factor(matrix[: n // 2, : n // 2])
    below = _product(matrix[n // 2 :, : n // 2], first.T)
    second = invert_factor(matrix[n // 2 :, n // 2 :] - _product(below, below.T))
    return _join(first, below, second)


def invert_lower(factor: Array) -> Array:
    """Compute the inverse of a lower triangular matrix (n, n)."""
    n = factor.shape[0]
    if n <= MAX_SOLVE_ROWS:
        return lax.linalg.triangular_solve(factor, jnp.eye(n, dtype=factor.dtype), left_side=True, lower=True)
    first, second = invert_lower(factor[: n // 2, : n // 2]), invert_lower(factor[n // 2 :, n // 2 :])
    return _join(first, factor[n // 2 :, : n // 2], second)


def _join(first: Array, below: Array, second: Array) -> Array:
    """Build the inverse of a lower triangular matrix from those of its diagonal blocks and the block below them."""
    corner = -_product(_product(second, below), first)
    above = jnp.zeros((first.shape[0], second.shape[0]), first.dtype)
    return jnp.concatenate([jnp.concatenate([first, above], axis=1), jnp.concatenate([corner, second], axis=1)])


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)  # a GPU would round what enters it to 10 bits
