"""The DTLZ problems of Deb, Thiele, Laumanns & Zitzler (2005): 1 to 4 with any number of objectives, 5 to 7 with three.

Where a definition takes 1 - cos(2a), these functions take the equal 2 sin(a)^2, which keeps its digits near the front.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError
from galapax.core.problem import Function, Problem, box
from galapax.operators.niching import count_directions, lattice
from galapax.problems.multiobjective import along_curve

Array = jax.Array

DEB = "Deb, Thiele, Laumanns & Zitzler (2005), Scalable test problems for evolutionary multiobjective optimization"


def simplex(m: int, n: int) -> np.ndarray:
    """At most `n`, and at least m, evenly spaced points of the simplex, corners included."""
    divisions = 1
    while count_directions(m, (divisions + 1, 0)) <= n:
        divisions += 1
    return lattice(m, divisions)


def _flat_front(m: int, n: int) -> np.ndarray:
    return 0.5 * simplex(m, n)


def octant_front(m: int, n: int) -> np.ndarray:
    points = simplex(m, n)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def _arc_curve(t: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(t) / math.sqrt(2.0), np.cos(t) / math.sqrt(2.0), np.sin(t)], axis=1)


ARC_FRONT = partial(along_curve, _arc_curve, [(0.0, math.pi / 2)])
DTLZ7_SEGMENTS = [(0.0, 0.2514118360889171), (0.6316265307000613, 0.8594008566447239)]


def _four_patches_front(n: int) -> np.ndarray:
    """A grid of at most `n`, and at least 4, points over the four patches of DTLZ7."""
    ends = np.ravel(DTLZ7_SEGMENTS)
    position = np.array([0.0, ends[1], ends[1], ends[1] + ends[3] - ends[2]])
    t = np.interp(np.linspace(0.0, position[-1], max(2, math.isqrt(n))), position, ends)
    f1, f2 = (grid.ravel() for grid in np.meshgrid(t, t, indexing="ij"))
    return np.stack([f1, f2, 6.0 - sum(f * (1.0 + np.sin(3.0 * math.pi * f)) for f in (f1, f2))], axis=1)


def _dtlz(
    number: int,
    title: str,
    fun: Function,
    dim: int,
    *,
    front: Callable[[int], np.ndarray],
    reference_point: tuple[float, ...] = (1.1, 1.1, 1.1),
    hypervolume: float,
) -> Problem:
    """A DTLZ problem: its first m - 1 variables move along the front, the others towards it."""
    m = len(reference_point)
    if m < 2:
        raise InputError(f"dtlz{number} has several objectives: objectives must be at least 2, got {m}.")
    bounds = box(0.0, 1.0, dim)
    if dim < m:
        along = "two variables" if m == 3 else f"{m - 1} variables"
        raise InputError(
            f"dtlz{number} has {along} along the front, the rest towards it: dim must be at least {m}, got {dim}."
        )
    return Problem(
        fun,
        bounds,
        name=f"dtlz{number}",
        title=title,
        source=f"{DEB}, DTLZ{number}",
        front=front,
        reference_point=reference_point,
        hypervolume=hypervolume,
    )


def _rugged_distance(z: Array) -> Array:
    z = z - 0.5
    return 100.0 * jnp.sum(z**2 + 2.0 * jnp.sin(10.0 * math.pi * z) ** 2)


def _smooth(z: Array) -> Array:
    return jnp.sum((z - 0.5) ** 2)


def _products(keep: Array, leave: Array) -> Array:
    """Of k numbers each: all kept, all but the last kept and that left, ..., the first left, (k + 1,)."""
    k = keep.shape[0]
    parts = []
    for j in range(k + 1):
        factors = [keep[i] for i in range(k - j)] + ([leave[k - j]] if j else [])
        product = factors[0]
        for factor in factors[1:]:
            product = product * factor
        parts.append(product)
    return jnp.stack(parts)


def on_sphere(g: Array, turns: Array) -> Array:
    """The point of the sphere of radius 1 + g at these m - 1 angles, in quarter turns from 0 to 1."""

    def sine(turn: Array) -> Array:
        return jnp.sin(0.5 * math.pi * turn)

    # the cosine as the sine of 1 - a: at a = 1 a float32 cosine is not 0 but below it, off the front
    return (1.0 + g) * _products(sine(1.0 - turns), sine(turns))


def _on_arc(g: Array, x: Array) -> Array:
    """The second angle closes in on half a quarter turn as g falls to 0, so that the front is a curve."""
    return on_sphere(g, jnp.stack([x[0], 0.5 * (1.0 + 2.0 * g * x[1]) / (1.0 + g)]))


def _dtlz1(k: int, x: Array) -> Array:
    return 0.5 * (1.0 + _rugged_distance(x[k:])) * _products(x[:k], 1.0 - x[:k])


def dtlz1(dim: int = 0, objectives: int = 3) -> Problem:
    """DTLZ1 of Deb et al. (2005). dim: 0 for the paper's, four more than objectives."""
    m = objectives
    return _dtlz(
        1,
        "Flat triangular front behind very many local ones",
        partial(_dtlz1, m - 1),
        dim or m + 4,
        front=partial(_flat_front, m),
        reference_point=(1.0,) * m,
        hypervolume=1.0 - 0.5**m / math.factorial(m),
    )


def octant_hypervolume(m: int) -> float:
    """A box of 1.1 less the part of the unit ball in it."""
    return 1.1**m - math.pi ** (m / 2) / math.gamma(m / 2 + 1) / 2**m


ARC_HYPERVOLUME = 0.4425405253397826


def _spherical(number: int, title: str, fun: Callable[[int, Array], Array], dim: int, m: int) -> Problem:
    return _dtlz(
        number,
        title,
        partial(fun, m - 1),
        dim or m + 9,
        front=partial(octant_front, m),
        reference_point=(1.1,) * m,
        hypervolume=octant_hypervolume(m),
    )


def _dtlz2(k: int, x: Array) -> Array:
    return on_sphere(_smooth(x[k:]), x[:k])


def dtlz2(dim: int = 0, objectives: int = 3) -> Problem:
    """DTLZ2 of Deb et al. (2005). dim: 0 for the paper's, nine more than objectives."""
    return _spherical(2, "Spherical front", _dtlz2, dim, objectives)


def _dtlz3(k: int, x: Array) -> Array:
    return on_sphere(_rugged_distance(x[k:]), x[:k])


def dtlz3(dim: int = 0, objectives: int = 3) -> Problem:
    """DTLZ3 of Deb et al. (2005). dim: 0 for the paper's, nine more than objectives."""
    return _spherical(3, "Spherical front behind very many local ones", _dtlz3, dim, objectives)


def _dtlz4(k: int, x: Array) -> Array:
    return on_sphere(_smooth(x[k:]), x[:k] ** 100)


def dtlz4(dim: int = 0, objectives: int = 3) -> Problem:
    """DTLZ4 of Deb et al. (2005), alpha = 100. dim: 0 for the paper's, nine more than objectives."""
    return _spherical(4, "Spherical front, very unevenly covered", _dtlz4, dim, objectives)


def _dtlz5(x: Array) -> Array:
    return _on_arc(_smooth(x[2:]), x)


def dtlz5(dim: int = 12) -> Problem:
    """DTLZ5 of Deb et al. (2005), three objectives."""
    return _dtlz(5, "Front shrunk to a curve", _dtlz5, dim, front=ARC_FRONT, hypervolume=ARC_HYPERVOLUME)


def _dtlz6(x: Array) -> Array:
    return _on_arc(jnp.sum(x[2:] ** 0.1), x)


def dtlz6(dim: int = 12) -> Problem:
    """DTLZ6 of Deb et al. (2005), three objectives."""
    title = "Front shrunk to a curve, hard to get near"
    return _dtlz(6, title, _dtlz6, dim, front=ARC_FRONT, hypervolume=ARC_HYPERVOLUME)


def _dtlz7(x: Array) -> Array:
    f, g = x[:2], 1.0 + 9.0 * jnp.mean(x[2:])
    f3 = 3.0 * (1.0 + g) - jnp.sum(f * (1.0 + jnp.sin(3.0 * math.pi * f)))
    return jnp.append(f, f3)


def dtlz7(dim: int = 22) -> Problem:
    """DTLZ7 of Deb et al. (2005), three objectives."""
    return _dtlz(
        7,
        "Front in four separate patches",
        _dtlz7,
        dim,
        front=_four_patches_front,
        reference_point=(1.1, 1.1, 6.6),
        hypervolume=2.7018951431543745,
    )
