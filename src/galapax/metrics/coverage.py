"""How well points cover a box, compared with uniform ones.

A search gathers its points, so that their number says little: what counts is how far a place in the box is from the
nearest of them. Opposite faces of the box are joined. Otherwise a cluster at the centre of a box of many variables,
which is closer to every place than a uniform point is on average, would pass for many points.
"""

from __future__ import annotations

import numpy as np

MAX_COVERING_POINTS = 1000  # a random choice of more
N_PLACES = 512  # uniform ones, from which distances are measured
N_DESIGNS = 5  # uniform ones, of which the distances are averaged


def covers_as_uniform(
    x: np.ndarray, lower: np.ndarray, upper: np.ndarray, discrete: np.ndarray, n_points: int, seed: int = 0
) -> bool:
    """Judge whether points cover a box as well as `n_points` uniform ones, by the mean distance to the nearest one.

    x: (n, d). lower, upper: the box, (d,). discrete: whether values are codes, each with half a code around it, (d,).
    """
    rng = np.random.default_rng(seed)
    if len(x) > MAX_COVERING_POINTS:
        x = x[rng.choice(len(x), MAX_COVERING_POINTS, replace=False)]
    x = x + discrete * (rng.random(x.shape) - 0.5)  # anywhere on its code, as the uniform points are
    places = rng.random((N_PLACES, x.shape[1]))
    designs = [rng.random((n_points, x.shape[1])) for _ in range(N_DESIGNS)]
    uniform = np.mean([_mean_distance(places, design) for design in designs])
    return bool(_mean_distance(places, (x - lower) / np.where(upper > lower, upper - lower, 1.0)) <= uniform)


def _mean_distance(places: np.ndarray, points: np.ndarray) -> float:
    """Average the distance of places in the unit cube to the nearest point; opposite faces are joined."""
    from scipy.spatial import KDTree

    return float(KDTree(points % 1.0, boxsize=1.0).query(places)[0].mean())
