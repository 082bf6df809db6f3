"""Reference directions: points of the simplex w >= 0, sum w = 1 that say which parts of a front are looked for."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from galapax.core.algorithm import Shared
from galapax.core.checks import reals, short
from galapax.core.errors import InputError

# divisions of the outer and the inner layer that Deb & Jain (2014) use, or their like between their numbers
DIVISIONS = {1: (99, 0), 2: (99, 0), 3: (12, 0), 4: (7, 0), 5: (6, 0), 6: (4, 2), 7: (3, 2), 8: (3, 2), 9: (3, 2),
             10: (3, 2)}  # fmt: skip


def lattice(m: int, divisions: int) -> np.ndarray:
    """All w with w_i in {0, 1/p, .., 1} and sum 1, (C(m + p - 1, p), m); Das & Dennis (1998), SIAM J. Optim. 8(3)."""
    if divisions == 0:
        return np.zeros((0, m))
    bars = np.array(list(itertools.combinations(range(divisions + m - 1), m - 1)), float)
    bars = bars.reshape(math.comb(divisions + m - 1, m - 1), m - 1)
    ends = np.concatenate([np.full((len(bars), 1), -1.0), bars, np.full((len(bars), 1), divisions + m - 1.0)], axis=1)
    return (np.diff(ends, axis=1) - 1) / divisions


def size(m: int, divisions: tuple[int, int]) -> int:
    """How many directions `layers` gives; of one objective, which is no front, so many that a population has a size."""
    if m == 1:
        return 100
    return sum(math.comb(p + m - 1, p) for p in divisions if p)


def layers(m: int, divisions: tuple[int, int]) -> np.ndarray:
    """A lattice on the outside and one shrunk halfway to the centre, (h, m); with (p, 0) the first alone.

    With fewer divisions than objectives a lattice has no point inside, and the second layer gives some.
    """
    outer, inner = (lattice(m, p) for p in divisions)
    return np.concatenate([outer, inner / 2 + 1 / (2 * m)])


def divisions_for(m: int, population: int | None) -> tuple[int, int]:
    """The divisions with the most directions that a population has room for; the papers' where it is left open."""
    if population is None or m == 1:
        return DIVISIONS.get(m, (2, 1))
    outer = 1
    while size(m, (outer + 1, 0)) <= population:
        outer += 1
    if outer >= m:
        return (outer, 0)
    fits = [(p, q) for p in range(1, outer + 1) for q in range(p + 1) if size(m, (p, q)) <= population]
    return max(fits, key=lambda pair: size(m, pair), default=(1, 0))


def filled(m: int, population: int) -> np.ndarray:
    """As many directions as the population has members, (n, m): those of `divisions_for`, and random ones."""
    regular = layers(m, divisions_for(m, population))[:population]
    rest = np.random.default_rng(m).dirichlet(np.ones(m), population - len(regular))
    return np.concatenate([regular, rest])


def shared(given: Any) -> Shared | None:
    """Directions that a user gave, if any, as all runs share them."""
    return given if given is None or isinstance(given, Shared) else Shared(checked(given))


def checked(directions: Any) -> np.ndarray:
    """Directions that a user gave, (h, m), scaled to sum 1."""
    try:
        w = reals(directions)
    except ValueError:
        w = np.zeros(0)
    if w.ndim != 2 or w.shape[0] < 1 or not np.isfinite(w).all() or (w < 0).any() or (w.sum(axis=1) <= 0).any():
        raise InputError(
            "directions must be rows of numbers >= 0, one per objective and not all 0, such as [[1, 0], [0.5, 0.5], "
            f"[0, 1]]; got {short(directions)}."
        )
    return w / w.sum(axis=1, keepdims=True)
