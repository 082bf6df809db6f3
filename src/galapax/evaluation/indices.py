"""Reading a variable that is not there: JAX clamps such an index without a word, and the answer would be wrong."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError
from galapax.numerics.jaxpr import ClosedJaxpr, Literal


def check_indices(name: str, program: ClosedJaxpr, dim: int) -> None:
    """Refuse a function of one solution (d,) that reads x at an index known beforehand and outside of it."""
    known = {
        var: np.asarray(const)
        for var, const in zip(program.jaxpr.constvars, program.consts, strict=True)
        if jnp.issubdtype(const.dtype, jnp.integer) or const.dtype == bool
    }
    (x,) = program.jaxpr.invars

    def read(atom: Any) -> np.ndarray | None:
        return np.asarray(atom.val) if isinstance(atom, Literal) else known.get(atom)

    for equation in program.jaxpr.eqns:
        kind, given = equation.primitive.name, equation.invars
        if kind in ("dynamic_slice", "gather") and given[0] is x:
            at = read(given[1])
            if at is not None and at.size and not (at.min() >= 0 and at.max() < dim):
                wrong = at.max() if at.max() >= dim else at.min() - dim  # as it was written
                raise InputError(f"{name} reads x[{wrong}], and there are {dim} variables, x[0] to x[{dim - 1}].")
        elif kind in FOLDED:
            values = [read(atom) for atom in given]
            if all(value is not None for value in values):
                made = np.asarray(FOLDED[kind](*values))
                shape: tuple[int, ...] = equation.outvars[0].aval.shape
                if made.size == math.prod(shape):
                    known[equation.outvars[0]] = made.reshape(shape)


# what stands between a written index and where it is read: negative ones count from the end
FOLDED: dict[str, Any] = {
    "lt": np.less,
    "add": np.add,
    "select_n": lambda which, *cases: np.where(which, cases[1], cases[0]) if len(cases) == 2 else np.empty(0),
    "broadcast_in_dim": np.asarray,
    "convert_element_type": np.asarray,
}
