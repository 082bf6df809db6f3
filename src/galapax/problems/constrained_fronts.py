"""Problems with constraints whose fronts are known by formula: TNK, some of MW, and DTLZ with constraints.

MW: Ma & Wang (2019), IEEE Trans. Evol. Comput. 23(6):972-986; of its 14 those of which 1, 2, 3 and 13 have two
objectives and 4 and 8 three. C-DTLZ: Jain & Deb (2014), IEEE Trans. Evol. Comput. 18(4):602-622.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.problem import Function, Problem, as_bounds, box
from galapax.metrics.indicators import non_dominated
from galapax.problems import scalable_fronts
from galapax.problems.multiobjective import spread_over
from galapax.problems.scalable_fronts import simplex

Array = jax.Array

MA = "Ma & Wang (2019), IEEE Trans. Evol. Comput. 23(6):972-986"
JAIN = "Jain & Deb (2014), IEEE Trans. Evol. Comput. 18(4):602-622"
ROOT2 = math.sqrt(2.0)
FINE = 100_001  # points of a curve from which a front is taken


# --- TNK -------------------------------------------------------------------------------------------------------------


def _itself(x: Array) -> Array:
    return x


def tnk_limits(x: Array) -> Array:
    wave = 0.1 * jnp.cos(16.0 * jnp.arctan(x[0] / x[1]))
    return jnp.stack([1.0 + wave - jnp.sum(x**2), 2.0 * jnp.sum((x - 0.5) ** 2) - 1.0])


def _tnk_curve() -> np.ndarray:
    angle = np.linspace(1e-9, 0.5 * math.pi - 1e-9, FINE)
    radius = np.sqrt(1.0 + 0.1 * np.cos(16.0 * angle))
    points = np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1)
    return points[2.0 * ((points - 0.5) ** 2).sum(axis=1) <= 1.0]


def tnk() -> Problem:
    """Front along a wavy edge, in three pieces: Tanaka et al. (1995), SMC 1995:1556-1561."""
    return Problem(
        _itself,
        as_bounds([(0.0, math.pi), (1e-30, math.pi)]),
        ineq=tnk_limits,
        name="tnk",
        title="Front along a wavy edge, in pieces",
        source="Tanaka, Watanabe, Furukawa & Tanino (1995), IEEE SMC 1995:1556-1561",
        front=partial(curve_front, "tnk"),
        reference_point=(1.1, 1.1),
        hypervolume=TNK_HYPERVOLUME,
    )


# --- MW --------------------------------------------------------------------------------------------------------------


def _bent(x: Array, m: int) -> Array:
    """The first distance function of the paper, with m - 1 variables along the front."""
    d = x.shape[0]
    i = np.arange(m - 1, d) / (2.0 * d)
    return 1.0 + jnp.sum(1.0 - jnp.exp(-10.0 * (x[m - 1 :] ** (d - m) - 0.5 - i.astype(x.dtype)) ** 2))


def _rugged_distance(x: Array, m: int) -> Array:
    """The second, with very many local minima."""
    d = x.shape[0]
    i = np.arange(m - 1, d) / d
    z = 1.0 - jnp.exp(-10.0 * (x[m - 1 :] - i.astype(x.dtype)) ** 2)
    return 1.0 + jnp.sum(0.1 / d * z**2 + 3.0 * jnp.sin(math.pi * z) ** 2)


def _linked_distance(x: Array, m: int) -> Array:
    """The third, in which every variable depends on the one before it."""
    return 1.0 + jnp.sum(2.0 * (x[m - 1 :] + (x[m - 2 : -1] - 0.5) ** 2 - 1.0) ** 2)


def _wave(along: Array, height: float, waves: float, power: int) -> Array:
    return height * jnp.sin(waves * math.pi * along) ** power


def mw1_objectives(x: Array) -> Array:
    return jnp.stack([x[0], _bent(x, 2) - 0.85 * x[0]])


def mw2_objectives(x: Array) -> Array:
    return jnp.stack([x[0], _rugged_distance(x, 2) - x[0]])


def mw3_objectives(x: Array) -> Array:
    return jnp.stack([x[0], _linked_distance(x, 2) - x[0]])


def mw4_objectives(x: Array) -> Array:
    return _bent(x, 3) * jnp.stack([(1.0 - x[0]) * (1.0 - x[1]), (1.0 - x[0]) * x[1], x[0]])


def mw8_objectives(x: Array) -> Array:
    return scalable_fronts.on_sphere(_rugged_distance(x, 3) - 1.0, x[:2])


def mw13_objectives(x: Array) -> Array:
    f2 = 5.0 - jnp.exp(x[0]) - 0.5 * jnp.abs(jnp.sin(3.0 * math.pi * x[0]))
    return _rugged_distance(x, 2) * jnp.stack([x[0], f2])


def mw1_limits(x: Array) -> Array:
    a, b = mw1_objectives(x)
    return jnp.stack([a + b - 1.0 - _wave(ROOT2 * (b - a), 0.5, 2.0, 8)])


def mw2_limits(x: Array) -> Array:
    a, b = mw2_objectives(x)
    return jnp.stack([a + b - 1.0 - _wave(ROOT2 * (b - a), 0.5, 3.0, 8)])


def mw3_limits(x: Array) -> Array:
    a, b = mw3_objectives(x)
    along = ROOT2 * (b - a)
    return jnp.stack([a + b - 1.05 - _wave(along, 0.45, 0.75, 6), 0.85 - a - b + _wave(along, 0.3, 0.75, 2)])


def mw4_limits(x: Array) -> Array:
    f = mw4_objectives(x)
    return jnp.stack([jnp.sum(f) - 1.0 - _wave(f[2] - f[0] - f[1], 0.4, 2.5, 8)])


def mw8_limits(x: Array) -> Array:
    f = mw8_objectives(x)
    square = jnp.sum(f**2)
    edge = 1.25 - 0.5 * jnp.sin(6.0 * jnp.arcsin(jnp.clip(f[2] / jnp.sqrt(square), 0.0, 1.0))) ** 2
    return jnp.stack([square - edge**2])


def mw13_limits(x: Array) -> Array:
    a, b = mw13_objectives(x)
    low = b + 0.5 * jnp.sin(3.0 * math.pi * a)
    outer = (5.0 - jnp.exp(a) - low) * (4.0 - 0.4 * a - low)
    inner = (4.0 - a - 0.5 * a**2 - low) * (4.0 - 0.7 * a - low)
    return jnp.stack([-inner, outer])


def _mw_line(number: int) -> np.ndarray:
    """MW1, 2 and 3, whose fronts are a line but for what constraints do to it."""
    f1 = np.linspace(0.0, 1.0, FINE)
    f2 = 1.0 - (0.85 if number == 1 else 1.0) * f1
    along = ROOT2 * (f2 - f1)
    if number == 1:
        inside = f1 + f2 - 1.0 <= 0.5 * np.sin(2.0 * math.pi * along) ** 8
        f1, f2 = f1[inside], f2[inside]
    if number == 3:  # where the lower edge lies above the line, a point moves to it along the diagonal
        above = np.maximum(0.0, 0.5 * (0.3 * np.sin(0.75 * math.pi * along) ** 2 - 0.15))
        f1, f2 = f1 + above, f2 + above
        f1, f2 = f1[f1 <= 1.0], f2[f1 <= 1.0]
    return np.stack([f1, f2], axis=1)


def _mw13_curve() -> np.ndarray:
    """For each x1 the least distance g that is feasible, found on a grid."""
    x1, g = np.meshgrid(np.linspace(0.0, 1.5, 6001), np.linspace(1.0, 2.0, 1001), indexing="ij")
    a = g * x1
    b = g * (5.0 - np.exp(x1) - 0.5 * np.abs(np.sin(3.0 * math.pi * x1)))
    low = b + 0.5 * np.sin(3.0 * math.pi * a)
    outer = (5.0 - np.exp(a) - low) * (4.0 - 0.4 * a - low)
    inner = (4.0 - a - 0.5 * a**2 - low) * (4.0 - 0.7 * a - low)
    inside = (outer <= 1e-9) & (inner >= -1e-9)
    return np.stack([a[inside], b[inside]], axis=1)


CURVES: dict[str, Callable[[], np.ndarray]] = {
    "tnk": _tnk_curve,
    **{f"mw{number}": partial(_mw_line, number) for number in (1, 2, 3)},
    "mw13": _mw13_curve,
}


@cache
def dense(name: str) -> np.ndarray:
    """Very many points of a front of two objectives."""
    points = CURVES[name]()
    return points[non_dominated(points)]


def curve_front(name: str, n: int) -> np.ndarray:
    return spread_over(dense(name), n)


def mw_front(number: int, n: int) -> np.ndarray:
    if number == 4:
        return simplex(3, n)
    if number == 8:
        return _cut(mw8_inside, n)
    return curve_front(f"mw{number}", n)


def mw8_inside(f: np.ndarray) -> np.ndarray:
    """Which points of the unit sphere (n, 3) are feasible."""
    return 0.5 * np.sin(6.0 * np.arcsin(np.minimum(f[:, 2], 1.0))) ** 2 <= 0.25


def _cut(inside: Callable[[np.ndarray], np.ndarray], n: int) -> np.ndarray:
    """About n points, and not more, of the part of the unit sphere's octant that is inside."""
    n_points = int(n / inside(scalable_fronts.octant_front(3, 2000)).mean())
    while True:
        points = scalable_fronts.octant_front(3, n_points)
        points = points[inside(points)]
        if len(points) <= n:
            return points
        n_points = int(n_points * 0.95)


def _mw(number: int, title: str, fun: Function, limits: Function, reference: tuple[float, ...], dim: int) -> Problem:
    return Problem(
        fun,
        box(0.0, 1.5 if number == 13 else 1.0, dim),
        ineq=limits,
        name=f"mw{number}",
        title=title,
        source=f"{MA}, MW{number}",
        front=partial(mw_front, number),
        reference_point=reference,
        hypervolume=MW_HYPERVOLUMES[number],
    )


def mw1() -> Problem:
    """MW1 of Ma & Wang (2019): a line in pieces."""
    return _mw(1, "Front of a line in pieces", mw1_objectives, mw1_limits, (1.1, 1.1), 15)


def mw2() -> Problem:
    """MW2 of Ma & Wang (2019): a line behind very many local fronts."""
    return _mw(2, "Front of a line behind very many local ones", mw2_objectives, mw2_limits, (1.1, 1.1), 15)


def mw3() -> Problem:
    """MW3 of Ma & Wang (2019): a line, and edges of the feasible set."""
    return _mw(3, "Front of a line and edges of the feasible set", mw3_objectives, mw3_limits, (1.1, 1.1), 15)


def mw4() -> Problem:
    """MW4 of Ma & Wang (2019), three objectives: a triangle that sheets of feasible points lead to."""
    title = "Flat triangular front at the foot of thin feasible sheets"
    return _mw(4, title, mw4_objectives, mw4_limits, (1.1, 1.1, 1.1), 15)


def mw8() -> Problem:
    """MW8 of Ma & Wang (2019), three objectives: stripes of a sphere."""
    title = "Stripes of a sphere behind very many local fronts"
    return _mw(8, title, mw8_objectives, mw8_limits, (1.1, 1.1, 1.1), 15)


def mw13() -> Problem:
    """MW13 of Ma & Wang (2019): pieces of a curve and of edges."""
    return _mw(13, "Front in pieces, some along edges", mw13_objectives, mw13_limits, (1.65, 4.4), 15)


# --- DTLZ with constraints -------------------------------------------------------------------------------------------


def c1_dtlz1_limits(fun: Function, x: Array) -> Array:
    f = fun(x)
    return jnp.stack([f[-1] / 0.6 + jnp.sum(f[:-1]) / 0.5 - 1.0])


def c1_dtlz3_limits(fun: Function, x: Array) -> Array:
    square = jnp.sum(fun(x) ** 2)
    return jnp.stack([-(square / 16.0 - 1.0) * (square / 81.0 - 1.0)])


def c2_dtlz2_limits(fun: Function, x: Array) -> Array:
    f = fun(x)
    m = f.shape[0]
    corners = jnp.min((f - 1.0) ** 2 + jnp.sum(f**2) - f**2)
    return jnp.stack([jnp.minimum(corners, jnp.sum((f - 1.0 / math.sqrt(m)) ** 2)) - 0.16])


def c3_dtlz1_limits(fun: Function, x: Array) -> Array:
    f = fun(x)
    return 1.0 - f - jnp.sum(f)


def c3_dtlz4_limits(fun: Function, x: Array) -> Array:
    f = fun(x)
    return 1.0 + 0.75 * f**2 - jnp.sum(f**2)


def c2_dtlz2_inside(f: np.ndarray) -> np.ndarray:
    """Which points of the unit sphere (n, 3) are feasible."""
    corners = ((f - 1.0) ** 2 + (f**2).sum(axis=1, keepdims=True) - f**2).min(axis=1)
    return np.minimum(corners, ((f - 1.0 / math.sqrt(3.0)) ** 2).sum(axis=1)) <= 0.16 + 1e-12


def c2_dtlz2_front(n: int) -> np.ndarray:
    return _cut(c2_dtlz2_inside, n)


def c3_dtlz1_front(n: int) -> np.ndarray:
    w = simplex(3, n)
    return w / (w.sum(axis=1) + w.min(axis=1))[:, None]


def c3_dtlz4_front(n: int) -> np.ndarray:
    w = simplex(3, n) ** 2
    return np.sqrt(w / (w.sum(axis=1) - 0.75 * w.max(axis=1))[:, None])


def _c_dtlz(
    name: str,
    title: str,
    plain: Problem,
    limits: Callable[[Function, Array], Array],
    reference: float,
    front: Callable[[int], np.ndarray] | None = None,
) -> Problem:
    """A DTLZ problem of three objectives with constraints; the front is its own unless they move it."""
    return plain.with_(
        ineq=partial(limits, plain.fun),
        name=name,
        title=title,
        source=f"{JAIN}, {name.upper().replace('_', '-')}",
        front=front or plain.front,
        reference_point=(reference,) * 3,
        hypervolume=C_DTLZ_HYPERVOLUMES[name],
    )


def c1_dtlz1() -> Problem:
    """C1-DTLZ1 of Jain & Deb (2014): DTLZ1 with a feasible region close to its front."""
    plain = scalable_fronts.dtlz1()
    return _c_dtlz("c1_dtlz1", "Flat front with little room to approach it", plain, c1_dtlz1_limits, 1.0)


def c1_dtlz3() -> Problem:
    """C1-DTLZ3 of Jain & Deb (2014): DTLZ3 behind a band without feasible points."""
    return _c_dtlz(
        "c1_dtlz3", "Spherical front behind an infeasible band", scalable_fronts.dtlz3(), c1_dtlz3_limits, 1.1
    )


def c2_dtlz2() -> Problem:
    """C2-DTLZ2 of Jain & Deb (2014): four separate patches of DTLZ2's front."""
    return _c_dtlz("c2_dtlz2", "Patches of a sphere", scalable_fronts.dtlz2(), c2_dtlz2_limits, 1.1, c2_dtlz2_front)


def c3_dtlz1() -> Problem:
    """C3-DTLZ1 of Jain & Deb (2014): the front lies on the edges of three linear constraints."""
    return _c_dtlz("c3_dtlz1", "Front on three planes", scalable_fronts.dtlz1(), c3_dtlz1_limits, 1.1, c3_dtlz1_front)


def c3_dtlz4() -> Problem:
    """C3-DTLZ4 of Jain & Deb (2014): the front lies on the edges of three quadratic constraints."""
    return _c_dtlz(
        "c3_dtlz4", "Front on three ellipsoids", scalable_fronts.dtlz4(), c3_dtlz4_limits, 2.2, c3_dtlz4_front
    )


# of dense samples of the fronts, by `python benchmarks/reference_fronts.py --formulas`, or exact
TNK_HYPERVOLUME = 0.433391
MW_HYPERVOLUMES = {1: 0.594021, 2: 0.71, 3: 0.664981, 4: 1.331 - 1 / 6, 8: 0.7750, 13: 3.477889}
C_DTLZ_HYPERVOLUMES = {
    "c1_dtlz1": 1.0 - 1.0 / 48.0,
    "c1_dtlz3": scalable_fronts.octant_hypervolume(3),
    "c2_dtlz2": 0.7294,
    "c3_dtlz1": 1.331 - 0.125,
    "c3_dtlz4": 8.7908,
}
