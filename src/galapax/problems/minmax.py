"""Min-max problems: one vector minimises what another maximises."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from galapax.problem import MinMaxProblem, box

FABRIS = "Fabris & Krohling (2012), Expert Systems with Applications 39(12):10324-10333"


def _cde_p1(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum(x**2 - y**2)


def cde_p1(dim: int = 100) -> MinMaxProblem:
    """P1 of Fabris & Krohling (2012), section 6.1, with `dim` variables on each side."""
    return MinMaxProblem(
        _cde_p1,
        x_bounds=box(-1.0, 1.0, dim),
        y_bounds=box(-1.0, 1.0, dim),
        name="cde_p1",
        title="Saddle: squares of x against squares of y",
        source=f"{FABRIS}, P1",
        optimum=0.0,
        solutions=np.zeros((1, 2 * dim)),
    )
