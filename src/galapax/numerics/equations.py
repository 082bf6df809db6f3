"""JAX programs as data: their parts, and one equation at a time for interpreters that replace some of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax

try:  # what jax.extend.core offers, without the rest of jax.extend, which takes a third as long to import as galapax
    from jax._src.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
except ImportError:
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun


def run_one(jaxpr: Jaxpr, equation: JaxprEqn, inputs: list[Any]) -> list[Any]:
    """What an equation of the program gives for these inputs; one in the place of a literal is taken instead of it.

    It runs as a program of its own, since how primitives are bound differs between versions of JAX.
    """
    atoms = list(equation.invars)
    for i, (atom, value) in enumerate(zip(equation.invars, inputs, strict=True)):
        if isinstance(atom, Literal) and isinstance(value, jax.core.Tracer):
            atoms[i] = _spare(len(atoms))[i]
    known = {atom: value for atom, value in zip(atoms, inputs, strict=True) if not isinstance(atom, Literal)}
    about = jaxpr.debug_info.with_unknown_names()
    one = equation.replace(invars=atoms)
    program = Jaxpr((), list(known), one.outvars, [one], one.effects, about)
    return jaxpr_as_fun(ClosedJaxpr(program, []))(*known.values())


@cache
def _spare(count: int) -> list[Var]:
    """Names that no program uses."""
    return jax.make_jaxpr(lambda *values: values)(*[0.0] * count).jaxpr.invars
