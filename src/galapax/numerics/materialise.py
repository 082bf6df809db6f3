"""Makes XLA materialise an intermediate result instead of recomputing it in every consumer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.numerics import devices

Tree = TypeVar("Tree")  # of arrays


def materialise(tree: Tree) -> Tree:
    """Return the same arrays, computed once.

    On a CPU XLA fuses gathers, concatenations and all that they read into each reader, so that a row drawn by a
    tournament is drawn again for each of its genes, and a generation of NSGA-II takes five times as long. It does not
    fuse across a loop, so here is one, which does nothing twice; an `optimization_barrier` is gone before XLA fuses.
    On a GPU this does nothing: there computing again is cheaper than another kernel.
    """
    if not devices.on_cpu():
        return tree

    def identity(i: Array, arrays: Tree) -> Tree:  # XLA does not see that i is never negative
        return jax.tree.map(lambda a: jnp.where(i >= 0, a, jnp.zeros_like(a)), arrays)

    once: Tree = lax.fori_loop(0, 2, identity, tree)
    return once


def apply_flattened(function: Callable[..., Tree], *arrays: ArrayLike) -> Tree:
    """Apply an elementwise function to arrays that broadcast together, as one long row.

    On a CPU XLA cuts each row into vectors, and takes the remainder element by element: with logarithms, 30 genes
    in float32 take twice as long as 32. One long row has no such remainder. In float64, whose vectors are shorter, that
    gains nothing.
    """
    if not devices.on_cpu() or jnp.result_type(*arrays) != jnp.float32:
        return function(*arrays)
    shape = jnp.broadcast_shapes(*map(jnp.shape, arrays))
    row = materialise(tuple(jnp.broadcast_to(a, shape).reshape(-1) for a in arrays))
    out: Tree = jax.tree.map(lambda a: a.reshape(shape), materialise(function(*row)))
    return out
