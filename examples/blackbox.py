"""A plain Python objective that branches, loops and sometimes fails: `python examples/blackbox.py`."""

import math

import galapax as gx


def cost(x):
    """A simulation that breaks down for some inputs; a failure counts as worst and is reported."""
    if x[0] + x[1] > 3:
        raise RuntimeError("did not converge")
    total = 0.0
    for k in range(1, 4):
        total += math.sin(k * x[0]) ** 2 + (x[1] - 1 / k) ** 2
    return total


result = gx.minimize(cost, [(-1, 2), (-1, 2)], "de", blackbox=True, population=20, generations=40)
print(result)
