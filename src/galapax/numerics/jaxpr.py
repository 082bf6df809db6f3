"""Jaxprs: their types, and evaluation of a single equation for interpreters that replace some primitives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.numerics import devices

try:  # what jax.extend.core offers, without the rest of jax.extend, which takes a third as long to import as galapax
    from jax._src.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
except ImportError:
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun


def evaluate_equation(jaxpr: Jaxpr, equation: JaxprEqn, inputs: list[object]) -> list[Array]:
    """Evaluate one equation of a jaxpr; a traced input in the place of a literal replaces the literal.

    It runs as a jaxpr of one equation, since how primitives are bound differs between versions of JAX.
    """
    atoms = list(equation.invars)
    for i, (atom, value) in enumerate(zip(equation.invars, inputs, strict=True)):
        if isinstance(atom, Literal) and isinstance(value, jax.core.Tracer):
            atoms[i] = _unused_variables(len(atoms))[i]
    bindings = {atom: value for atom, value in zip(atoms, inputs, strict=True) if not isinstance(atom, Literal)}
    debug_info = jaxpr.debug_info.with_unknown_names()
    single = equation.replace(invars=atoms)
    program = Jaxpr((), list(bindings), single.outvars, [single], single.effects, debug_info)
    return jaxpr_as_fun(ClosedJaxpr(program, []))(*bindings.values())


@cache
def _unused_variables(count: int) -> list[Var]:
    """Return variables that no other jaxpr uses."""
    return jax.make_jaxpr(lambda *values: values)(*[0.0] * count).jaxpr.invars


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


def isolate(number: Array | int, function: Callable[..., Tree], *arguments: Any) -> Tree:
    """Call a function so that XLA neither fuses nor hoists operations across its border.

    How an operation is fused decides how it rounds: a product and a sum in one loop become one operation. A branch that
    depends on a number is compiled by itself, whatever is around it. number: positive, which XLA must not know.
    """
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(function, *arguments))
    out: Tree = lax.cond(jnp.asarray(number) > 0, function, lambda *_: zeros, *arguments)
    return out
