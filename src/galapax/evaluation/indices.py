"""Detects constant indices of x that are out of range, which JAX would silently clamp."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError
from galapax.numerics.jaxpr import ClosedJaxpr, Literal


def check_indices(name: str, program: ClosedJaxpr, dim: int) -> None:
    """Raise an InputError if a function of one solution (d,) reads x at a constant index out of range."""
    constants = {
        var: np.asarray(const)
        for var, const in zip(program.jaxpr.constvars, program.consts, strict=True)
        if jnp.issubdtype(const.dtype, jnp.integer) or const.dtype == bool
    }
    (x,) = program.jaxpr.invars

    def read(atom: Any) -> np.ndarray | None:
        return np.asarray(atom.val) if isinstance(atom, Literal) else constants.get(atom)

    for equation in program.jaxpr.eqns:
        primitive, inputs = equation.primitive.name, equation.invars
        if primitive in ("dynamic_slice", "gather") and inputs[0] is x:
            index = read(inputs[1])
            if index is not None and index.size and not (index.min() >= 0 and index.max() < dim):
                wrong = index.max() if index.max() >= dim else index.min() - dim  # as it was written
                raise InputError(f"{name} reads x[{wrong}], and there are {dim} variables, x[0] to x[{dim - 1}].")
        elif primitive in FOLDED_PRIMITIVES:
            values = [read(atom) for atom in inputs]
            if all(value is not None for value in values):
                value = np.asarray(FOLDED_PRIMITIVES[primitive](*values))
                shape: tuple[int, ...] = equation.outvars[0].aval.shape
                if value.size == math.prod(shape):
                    constants[equation.outvars[0]] = value.reshape(shape)


# what stands between a written index and where it is read: negative ones count from the end
FOLDED_PRIMITIVES: dict[str, Any] = {
    "lt": np.less,
    "add": np.add,
    "select_n": lambda which, *cases: np.where(which, cases[1], cases[0]) if len(cases) == 2 else np.empty(0),
    "broadcast_in_dim": np.asarray,
    "convert_element_type": np.asarray,
}
