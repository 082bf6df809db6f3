"""What XLA calls a library for, as programs of operations that have rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax


def cholesky(matrix: Array) -> Array:
    """The lower factor of a positive definite matrix (d, d), zeros above it; NaN if it is not positive definite.

    Column by column, each taken from all that follow: a round is a loop over the elements, which threads share.
    """
    rows = jnp.arange(matrix.shape[0])

    def column(k: Any, left: Array) -> Array:
        root = jnp.where(rows >= k, left[:, k] / jnp.sqrt(left[k, k]), 0)
        later = (rows > k)[:, None] & (rows > k)
        return jnp.where(rows == k, root[:, None], jnp.where(later, left - root[:, None] * root, left))

    factor = jnp.tril(lax.fori_loop(0, matrix.shape[0], column, matrix))
    return jnp.where(jnp.isnan(factor[-1, -1]), jnp.nan, factor)


INSTEAD: dict[str, Callable[[Array], Array]] = {"cholesky": cholesky}


def written_out(name: str, aval: Any) -> Any:
    """The program that takes the place of a primitive, for one matrix or batches of them."""
    function = INSTEAD[name]
    for _ in aval.shape[:-2]:
        function = jax.vmap(function)
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
