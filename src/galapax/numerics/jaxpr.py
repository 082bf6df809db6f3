"""Jaxprs: their types, and evaluation of a single equation for interpreters that replace some primitives."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax

try:  # what jax.extend.core offers, without the rest of jax.extend, which takes a third as long to import as galapax
    from jax._src.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
except ImportError:
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun


def evaluate_equation(jaxpr: Jaxpr, equation: JaxprEqn, inputs: list[Any]) -> list[Any]:
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
