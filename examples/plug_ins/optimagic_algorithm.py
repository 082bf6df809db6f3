"""A fit with many local minima: `python examples/plug_ins/optimagic_algorithm.py`."""

import numpy as np
import optimagic as om

from galapax.compat.optimagic import Galapax

TIMES = np.linspace(0, 4, 60)
DATA = 1.5 * np.sin(5.2 * TIMES + 0.4)


def misfit(params):
    """The sum of squares; in the frequency it has a minimum in every valley of the data."""
    model = params["amplitude"] * np.sin(params["frequency"] * TIMES + params["phase"])
    return float(np.sum((model - DATA) ** 2))


result = om.minimize(
    misfit,
    params={"amplitude": 1.0, "frequency": 2.0, "phase": 0.0},
    bounds=om.Bounds(
        lower={"amplitude": 0.1, "frequency": 0.5, "phase": -1.5},
        upper={"amplitude": 5.0, "frequency": 10.0, "phase": 1.5},
    ),
    algorithm=Galapax(stopping_maxfun=6000, seed=1),
)
print({name: round(float(value), 3) for name, value in result.params.items()})
