"""Problems of two and three objectives with known fronts: ZDT, DTLZ, and the ZDT variants of Hu, Qi & Qian (2015).

ZDT: Zitzler, Deb & Thiele (2000), Evol. Comput. 8(2):173-195. DTLZ: Deb, Thiele, Laumanns & Zitzler (2005), with three
objectives. Where a definition takes 1 - cos(2a), these functions take the equal 2 sin(a)^2, which keeps its digits
near the front.
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
DEB = "Deb, Thiele, Laumanns & Zitzler (2005), Scalable test problems for evolutionary multiobjective optimization"
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


def _disconnected(f1: Array, g: Array) -> Array:
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
PIECES = "Front in five pieces"
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
    return jnp.stack([x[0], _disconnected(x[0], 1.0 + 9.0 * jnp.mean(x[1:]))])


def zdt3(dim: int = 30) -> Problem:
    """ZDT3 of Zitzler, Deb & Thiele (2000), eq. 9."""
    front = partial(along_curve, _disconnected_curve, _roots([ZDT3_FIRST, *ZDT3_REST]))
    return _two_objectives(
        "zdt3",
        PIECES,
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
    return jnp.stack([x[0], _disconnected(x[0], 1.0 + 9.0 * jnp.mean(x[1:] ** 2))])


def moea_zdt3(dim: int = 30) -> Problem:
    """ZDT3 as in Hu, Qi & Qian (2015), table 1."""
    front = partial(along_curve, _disconnected_curve, _roots([(0.01, ZDT3_FIRST[1]), *ZDT3_REST]))
    return _moea("moea_zdt3", PIECES, _moea_zdt3, dim, front=front, hypervolume=1.330085873005453)


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


def _lattice(n: int) -> np.ndarray:
    """At most `n`, and at least 3, evenly spaced points of the triangle a + b + c = 1, corners included."""
    divisions = max(1, int((math.sqrt(8 * n + 1) - 3) / 2))
    a, b = np.mgrid[0 : divisions + 1, 0 : divisions + 1]
    inside = a + b <= divisions
    a, b = a[inside], b[inside]
    return np.stack([a, b, divisions - a - b], axis=1) / divisions


def _triangle_front(n: int) -> np.ndarray:
    return 0.5 * _lattice(n)


def _octant_front(n: int) -> np.ndarray:
    lattice = _lattice(n)
    return lattice / np.linalg.norm(lattice, axis=1, keepdims=True)


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


def _three_objectives(
    number: int,
    title: str,
    fun: Function,
    dim: int,
    *,
    front: Callable[[int], np.ndarray],
    reference_point: tuple[float, float, float] = (1.1, 1.1, 1.1),
    hypervolume: float,
) -> Problem:
    """A DTLZ problem: its first two variables move along the front, the others towards it."""
    bounds = box(0.0, 1.0, dim)
    if dim < 3:
        raise InputError(
            f"dtlz{number} has two variables along the front, the rest towards it: dim must be at least 3, got {dim}."
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


def _rugged(x: Array) -> Array:
    z = x[2:] - 0.5
    return 100.0 * jnp.sum(z**2 + 2.0 * jnp.sin(10.0 * math.pi * z) ** 2)


def _smooth(x: Array) -> Array:
    return jnp.sum((x[2:] - 0.5) ** 2)


def _on_sphere(g: Array, a: Array, b: Array) -> Array:
    """The point of the sphere of radius 1 + g at the angles a and b, in quarter turns from 0 to 1."""

    def sine(turn: Array) -> Array:
        return jnp.sin(0.5 * math.pi * turn)

    # the cosine of a as the sine of 1 - a: at a = 1 a float32 cosine is not 0 but below it, off the front
    return (1.0 + g) * jnp.stack([sine(1.0 - a) * sine(1.0 - b), sine(1.0 - a) * sine(b), sine(a)])


def _on_arc(g: Array, x: Array) -> Array:
    """The second angle closes in on half a quarter turn as g falls to 0, so that the front is a curve."""
    return _on_sphere(g, x[0], 0.5 * (1.0 + 2.0 * g * x[1]) / (1.0 + g))


def _dtlz1(x: Array) -> Array:
    x1, x2 = x[0], x[1]
    return 0.5 * (1.0 + _rugged(x)) * jnp.stack([x1 * x2, x1 * (1.0 - x2), 1.0 - x1])


def dtlz1(dim: int = 7) -> Problem:
    """DTLZ1 of Deb et al. (2005), three objectives."""
    return _three_objectives(
        1,
        "Flat triangular front behind very many local ones",
        _dtlz1,
        dim,
        front=_triangle_front,
        reference_point=(1.0, 1.0, 1.0),
        hypervolume=1.0 - 1.0 / 48.0,
    )


OCTANT_HYPERVOLUME = 1.331 - math.pi / 6.0  # a box of 1.1 less one eighth of the unit ball
ARC_HYPERVOLUME = 0.4425405253397826


def _dtlz2(x: Array) -> Array:
    return _on_sphere(_smooth(x), x[0], x[1])


def dtlz2(dim: int = 12) -> Problem:
    """DTLZ2 of Deb et al. (2005), three objectives."""
    return _three_objectives(2, "Spherical front", _dtlz2, dim, front=_octant_front, hypervolume=OCTANT_HYPERVOLUME)


def _dtlz3(x: Array) -> Array:
    return _on_sphere(_rugged(x), x[0], x[1])


def dtlz3(dim: int = 12) -> Problem:
    """DTLZ3 of Deb et al. (2005), three objectives."""
    title = "Spherical front behind very many local ones"
    return _three_objectives(3, title, _dtlz3, dim, front=_octant_front, hypervolume=OCTANT_HYPERVOLUME)


def _dtlz4(x: Array) -> Array:
    return _on_sphere(_smooth(x), x[0] ** 100, x[1] ** 100)


def dtlz4(dim: int = 12) -> Problem:
    """DTLZ4 of Deb et al. (2005), three objectives, alpha = 100."""
    title = "Spherical front, very unevenly covered"
    return _three_objectives(4, title, _dtlz4, dim, front=_octant_front, hypervolume=OCTANT_HYPERVOLUME)


def _dtlz5(x: Array) -> Array:
    return _on_arc(_smooth(x), x)


def dtlz5(dim: int = 12) -> Problem:
    """DTLZ5 of Deb et al. (2005), three objectives."""
    return _three_objectives(5, "Front shrunk to a curve", _dtlz5, dim, front=ARC_FRONT, hypervolume=ARC_HYPERVOLUME)


def _dtlz6(x: Array) -> Array:
    return _on_arc(jnp.sum(x[2:] ** 0.1), x)


def dtlz6(dim: int = 12) -> Problem:
    """DTLZ6 of Deb et al. (2005), three objectives."""
    title = "Front shrunk to a curve, hard to get near"
    return _three_objectives(6, title, _dtlz6, dim, front=ARC_FRONT, hypervolume=ARC_HYPERVOLUME)


def _dtlz7(x: Array) -> Array:
    f, g = x[:2], 1.0 + 9.0 * jnp.mean(x[2:])
    f3 = 3.0 * (1.0 + g) - jnp.sum(f * (1.0 + jnp.sin(3.0 * math.pi * f)))
    return jnp.append(f, f3)


def dtlz7(dim: int = 22) -> Problem:
    """DTLZ7 of Deb et al. (2005), three objectives."""
    return _three_objectives(
        7,
        "Front in four separate patches",
        _dtlz7,
        dim,
        front=_four_patches_front,
        reference_point=(1.1, 1.1, 6.6),
        hypervolume=2.7018951431543745,
    )
