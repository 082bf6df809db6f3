"""Lists of constraint functions as one function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.core.problem import Function


@dataclass(frozen=True)
class Stacked:
    """Several constraint functions as one. A class and not a closure, so that a problem can be sent to processes."""

    functions: tuple[Function, ...]

    def __call__(self, x: Any) -> Any:
        values = [function(x) for function in self.functions]
        xp = jnp if any(not isinstance(v, int | float | np.ndarray | np.generic | list | tuple) for v in values) else np
        return xp.concatenate([xp.ravel(xp.asarray(value)) for value in values])


def stack_constraints(name: str, functions: Any) -> Any:
    """Return one constraint function for a list of them; a single one unchanged. name: for messages."""
    if not isinstance(functions, list | tuple):
        return functions
    for function in functions:
        if not callable(function):
            raise InputError(
                f"{name} must be a function of one solution, or a list of them; it has {abbreviate(function)}."
            )
    return Stacked(tuple(functions)) if functions else None
