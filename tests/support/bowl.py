"""A bowl in a box whose centre it avoids, and short runs that search it."""

import numpy as np

import galapax as gx

BOX = [(1.5, 4.0), (-7.0, -2.0)]
LOWER, UPPER = np.array(BOX).T
N = 12


def bowl(x):
    return (x[0] - 2.0) ** 2 + (x[1] + 2.5) ** 2


def bowl_in_numpy(x):
    return (x[..., 0] - 2.0) ** 2 + (x[..., 1] + 2.5) ** 2


def solve(fun=bowl, bounds=BOX, **settings):
    """By DE with constraints too, where the default is EpsilonDE, which takes three times as long to compile."""
    settings = {
        "algorithm": "de",
        "population": N,
        "generations": 20,
        "compute": gx.Compute(dtype="float64"),
        **settings,
    }
    return gx.minimize(fun, bounds, polish=False, **settings)


def recording(fun=bowl_in_numpy):
    """A black box that keeps the points it was called with."""

    def call(x):
        call.points.append(x.copy())
        return fun(x)

    call.points = []
    return call
