"""Problems of two objectives with known fronts: ZDT, and the ZDT variants of Hu, Qi & Qian (2015).

ZDT: Zitzler, Deb & Thiele (2000), Evol. Comput. 8(2):173-195. Where a definition takes 1 - cos(2a), these functions
take the equal 2 sin(a)^2, which keeps its digits near the front.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError
from galapax.core.problem import Bounds, Function, Problem, box

Array = jax.Array
Segments = Sequence[tuple[float, float]]

ZITZLER = "Zitzler, Deb & Thiele (2000), Evol. Comput. 8(2):173-195"
HU = "Hu, Qi & Qian (2015), Computers and Applied Chemistry 32(1):1-8, doi:10.11719/com.app.chem20150101"


def along_curve(curve: Callable[[np.ndarray], np.ndarray], segments: Segments, n: int) -> np.ndarray:
    """`n` points of `curve` (t -> (n, m)) over the `segments` of t, evenly spaced by arc length.

    Lengths are measured with each objective scaled to its range; the gaps between segments count for nothing.
    """
    resolution = 2001
    t = np.concatenate([np.linspace(start, end, resolution) for start, end in segments])
    points = curve(t)
    steps = np.linalg.norm(np.diff(points / np.ptp(points, axis=0), axis=0), axis=1)
    steps[resolution - 1 :: resolution] = 0.0
    length = np.concatenate([[0.0], np.cumsum(steps)])
    return curve(np.interp(np.linspace(0.0, length[-1], n), length, t))


def spread_over(points: np.ndarray, n: int) -> np.ndarray:
    """`n` of the points (k, 2) of a dense curve, evenly spaced along it; gaps between its pieces count for nothing."""
    points = points[np.lexsort(points.T[::-1])]
    steps = np.linalg.norm(np.diff(points / np.ptp(points, axis=0), axis=0), axis=1)
    length = np.concatenate([[0.0], np.cumsum(np.where(steps > 100 * np.median(steps), 0.0, steps))])
    rows = np.searchsorted(length, np.linspace(0.0, length[-1], n) * (1 - 1e-12))
    return points[np.unique(rows)]


# The two-objective fronts as curves of t; t is the square root of f1 where f2 falls vertically at f1 = 0.


def _convex_curve(t: np.ndarray) -> np.ndarray:
    return np.stack([t**2, 1.0 - t], axis=1)


def _concave_curve(t: np.ndarray) -> np.ndarray:
    return np.stack([t, 1.0 - t**2], axis=1)


def _disconnected_curve(t: np.ndarray) -> np.ndarray:
    return np.stack([t**2, 1.0 - t - t**2 * np.sin(10.0 * math.pi * t**2)], axis=1)


def _roots(segments: Segments) -> Segments:
    return [(math.sqrt(start), math.sqrt(end)) for start, end in segments]


# f2 as a function of f1 and the distance function g.


def _convex(f1: Array, g: Array) -> Array:
    return g * (1.0 - jnp.sqrt(f1 / g))


def _concave(f1: Array, g: Array) -> Array:
    return g * (1.0 - (f1 / g) ** 2)


def _disconnected_front(f1: Array, g: Array) -> Array:
    ratio = f1 / g
    return g * (1.0 - jnp.sqrt(ratio) - ratio * jnp.sin(10.0 * math.pi * f1))


def _two_objectives(
    name: str,
    title: str,
    source: str,
    fun: Function,
    first: tuple[float, float],
    others: tuple[float, float],
    dim: int,
    *,
    front: Callable[[int], np.ndarray],
    hypervolume: float,
) -> Problem:
    """A ZDT problem: its first variable moves along the front, the `others` towards it."""
    rest = box(*others, dim)
    if dim < 2:
        raise InputError(
            f"{name} has one variable along the front, the rest towards it: dim must be at least 2, got {dim}."
        )
    bounds = Bounds(
        np.concatenate([[first[0]], rest.lower[1:]]),
        np.concatenate([[first[1]], rest.upper[1:]]),
    )
    return Problem(
        fun,
        bounds,
        name=name,
        title=title,
        source=source,
        front=front,
        reference_point=(1.1, 1.1),
        hypervolume=hypervolume,
    )


CONVEX = "Convex front"
CONCAVE = "Concave front"
PIECEWISE_FRONT_TITLE = "Front in five pieces"
ZDT3_FIRST = (0.0, 0.08300153492691163)
ZDT3_REST = [
    (0.18222872802939977, 0.2577623633878302),
    (0.4093136748086568, 0.4538821040888302),
    (0.6183967944392658, 0.6525117038046625),
    (0.8233317983266327, 0.8518328654364139),
]


def _zdt1(x: Array) -> Array:
    return jnp.stack([x[0], _convex(x[0], 1.0 + 9.0 * jnp.mean(x[1:]))])


def zdt1(dim: int = 30) -> Problem:
    """ZDT1 of Zitzler, Deb & Thiele (2000), eq. 7."""
    front = partial(along_curve, _convex_curve, [(0.0, 1.0)])
    return _two_objectives(
        "zdt1",
        CONVEX,
        f"{ZITZLER}, T1",
        _zdt1,
        (0.0, 1.0),
        (0.0, 1.0),
        dim,
        front=front,
        hypervolume=0.8766666666666667,
    )


def _zdt2(x: Array) -> Array:
    return jnp.stack([x[0], _concave(x[0], 1.0 + 9.0 * jnp.mean(x[1:]))])


def zdt2(dim: int = 30) -> Problem:
    """ZDT2 of Zitzler, Deb & Thiele (2000), eq. 8."""
    front = partial(along_curve, _concave_curve, [(0.0, 1.0)])
    return _two_objectives(
        "zdt2",
        CONCAVE,
        f"{ZITZLER}, T2",
        _zdt2,
        (0.0, 1.0),
        (0.0, 1.0),
        dim,
        front=front,
        hypervolume=0.5433333333333333,
    )


def _zdt3(x: Array) -> Array:
    return jnp.stack([x[0], _disconnected_front(x[0], 1.0 + 9.0 * jnp.mean(x[1:]))])


def zdt3(dim: int = 30) -> Problem:
    """ZDT3 of Zitzler, Deb & Thiele (2000), eq. 9."""
    front = partial(along_curve, _disconnected_curve, _roots([ZDT3_FIRST, *ZDT3_REST]))
    return _two_objectives(
        "zdt3",
        PIECEWISE_FRONT_TITLE,
        f"{ZITZLER}, T3",
        _zdt3,
        (0.0, 1.0),
        (0.0, 1.0),
        dim,
        front=front,
        hypervolume=1.3317629086570202,
    )


def _zdt4(x: Array) -> Array:
    return jnp.stack([x[0], _convex(x[0], 1.0 + jnp.sum(x[1:] ** 2 + 20.0 * jnp.sin(2.0 * math.pi * x[1:]) ** 2))])


def zdt4(dim: int = 10) -> Problem:
    """ZDT4 of Zitzler, Deb & Thiele (2000), eq. 10."""
    return _two_objectives(
        "zdt4",
        "Convex front behind very many local ones",
        f"{ZITZLER}, T4",
        _zdt4,
        (0.0, 1.0),
        (-5.0, 5.0),
        dim,
        front=partial(along_curve, _convex_curve, [(0.0, 1.0)]),
        hypervolume=0.8766666666666667,
    )


def _zdt5(x: Array) -> Array:
    bits = (x >= 0.5).astype(x.dtype)
    f1 = 1.0 + jnp.sum(bits[:30])
    ones = jnp.sum(bits[30:].reshape(10, 5), axis=1)
    return jnp.stack([f1, jnp.sum(jnp.where(ones == 5, 1.0, 2.0 + ones)) / f1])


def _zdt5_front(n: int) -> np.ndarray:
    f1 = np.unique(np.round(np.linspace(1.0, 31.0, min(n, 31))))
    return np.stack([f1, 10.0 / f1], axis=1)


def zdt5() -> Problem:
    """ZDT5 of Zitzler, Deb & Thiele (2000), eq. 11: 80 bits, here reals of [0, 1] read as 1 from 0.5 on."""
    return Problem(
        _zdt5,
        box(0.0, 1.0, 80),
        name="zdt5",
        title="Deceptive bit string, a front of 31 points",
        source=f"{ZITZLER}, T5",
        front=_zdt5_front,
        reference_point=(35.0, 11.0),
        hypervolume=332.7598061101509,
    )


def _zdt6_first(x1: Array, waves: float) -> Array:
    return 1.0 - jnp.exp(-4.0 * x1) * jnp.sin(waves * math.pi * x1) ** 6


def _zdt6(x: Array) -> Array:
    f1 = _zdt6_first(x[0], 6.0)
    return jnp.stack([f1, _concave(f1, 1.0 + 9.0 * jnp.mean(x[1:]) ** 0.25)])


ZDT6_START = 0.2807753188153697  # the smallest f1 that x1 in [0, 1] can reach


def zdt6(dim: int = 10) -> Problem:
    """ZDT6 of Zitzler, Deb & Thiele (2000), eq. 12."""
    return _two_objectives(
        "zdt6",
        "Concave front, thinly and unevenly covered",
        f"{ZITZLER}, T6",
        _zdt6,
        (0.0, 1.0),
        (0.0, 1.0),
        dim,
        front=partial(along_curve, _concave_curve, [(ZDT6_START, 1.0)]),
        hypervolume=0.5078775146545906,
    )


# Hu, Qi & Qian: squares in g, a symmetric box around 0 and a first variable from 0.01 are the paper's own.


def _moea(
    name: str, title: str, fun: Function, dim: int, *, front: Callable[[int], np.ndarray], hypervolume: float
) -> Problem:
    source = f"{HU}, section 4.1"
    return _two_objectives(
        name, title, source, fun, (0.01, 1.0), (-1.0, 1.0), dim, front=front, hypervolume=hypervolume
    )


def _moea_zdt1(x: Array) -> Array:
    return jnp.stack([x[0], _convex(x[0], 1.0 + 9.0 * jnp.mean(x[1:] ** 2))])


def moea_zdt1(dim: int = 30) -> Problem:
    """ZDT1 as in Hu, Qi & Qian (2015), table 1."""
    front = partial(along_curve, _convex_curve, _roots([(0.01, 1.0)]))
    return _moea("moea_zdt1", CONVEX, _moea_zdt1, dim, front=front, hypervolume=0.875)


def _moea_zdt2(x: Array) -> Array:
    return jnp.stack([x[0], _concave(x[0], 1.0 + 9.0 * jnp.mean(x[1:] ** 2))])


def moea_zdt2(dim: int = 30) -> Problem:
    """ZDT2 as in Hu, Qi & Qian (2015), table 1."""
    front = partial(along_curve, _concave_curve, [(0.01, 1.0)])
    return _moea("moea_zdt2", CONCAVE, _moea_zdt2, dim, front=front, hypervolume=0.542333)


def _moea_zdt3(x: Array) -> Array:
    return jnp.stack([x[0], _disconnected_front(x[0], 1.0 + 9.0 * jnp.mean(x[1:] ** 2))])


def moea_zdt3(dim: int = 30) -> Problem:
    """ZDT3 as in Hu, Qi & Qian (2015), table 1."""
    front = partial(along_curve, _disconnected_curve, _roots([(0.01, ZDT3_FIRST[1]), *ZDT3_REST]))
    return _moea("moea_zdt3", PIECEWISE_FRONT_TITLE, _moea_zdt3, dim, front=front, hypervolume=1.330085873005453)


def _moea_zdt6(x: Array) -> Array:
    f1 = _zdt6_first(x[0], 4.0)
    return jnp.stack([f1, _concave(f1, 1.0 + 9.0 * jnp.mean(x[1:] ** 2) ** 0.25)])


def moea_zdt6(dim: int = 10) -> Problem:
    """ZDT6 as in Hu, Qi & Qian (2015), table 1, with 4 pi in the sine as printed."""
    front = partial(along_curve, _concave_curve, [(0.38832887858388054, 1.0)])
    return _moea("moea_zdt6", CONCAVE, _moea_zdt6, dim, front=front, hypervolume=0.48498053546570724)


def _moea_zdt6_6pi(x: Array) -> Array:
    f1 = _zdt6_first(x[0], 6.0)
    return jnp.stack([f1, _concave(f1, 1.0 + 9.0 * jnp.mean(x[1:] ** 2) ** 0.25)])


def moea_zdt6_6pi(dim: int = 10) -> Problem:
    """ZDT6 as in Hu, Qi & Qian (2015), table 1, but with the usual 6 pi in the sine."""
    front = partial(along_curve, _concave_curve, [(ZDT6_START, 1.0)])
    return _moea("moea_zdt6_6pi", CONCAVE, _moea_zdt6_6pi, dim, front=front, hypervolume=0.5078775146545906)
