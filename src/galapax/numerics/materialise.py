"""Where XLA should write an intermediate result down instead of computing it again wherever it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from galapax.numerics import devices


def stored(tree: Any) -> Any:
    """The same arrays, computed once.

    On a CPU XLA fuses gathers, concatenations and all that they read into each reader, so that a row drawn by a
    tournament is drawn again for each of its genes, and a generation of NSGA-II takes five times as long. It does not
    fuse across a loop, so here is one, which does nothing twice; an `optimization_barrier` is gone before XLA fuses.
    On a GPU this does nothing: there computing again is cheaper than another kernel.
    """
    if not devices.on_cpu():
        return tree

    def same(i: Any, held: Any) -> Any:  # XLA does not see that i is never negative
        return jax.tree.map(lambda a: jnp.where(i >= 0, a, jnp.zeros_like(a)), held)

    return lax.fori_loop(0, 2, same, tree)


def as_one_row(function: Callable[..., Any], *arrays: Any) -> Any:
    """function(*arrays) for a function of single elements; the arrays broadcast to the shape of its results.

    On a CPU XLA cuts each row into vectors, and takes what is left of it element by element: with logarithms, 30 genes
    in float32 take twice as long as 32. All rows as one have nothing left. In float64, whose vectors are shorter, that
    gains nothing.
    """
    if not devices.on_cpu() or jnp.result_type(*arrays) != jnp.float32:
        return function(*arrays)
    shape = jnp.broadcast_shapes(*map(jnp.shape, arrays))
    row = stored(tuple(jnp.broadcast_to(a, shape).reshape(-1) for a in arrays))
    return jax.tree.map(lambda a: a.reshape(shape), stored(function(*row)))
