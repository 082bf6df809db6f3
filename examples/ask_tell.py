"""Ask and tell, for an objective that lives elsewhere: `python examples/ask_tell.py`."""

import numpy as np

import galapax as gx


def measure(settings):
    """Stands for a laboratory, a simulator or another program: one value for each row of settings."""
    return np.sum((settings - np.array([0.3, -1.2])) ** 2, axis=1)


optimizer = gx.Optimizer([(-2, 2), (-2, 2)], "de", population=20, seed=3)
for _ in range(60):
    settings = optimizer.ask_generation()
    optimizer.tell(settings, measure(settings))
print(optimizer.best)
