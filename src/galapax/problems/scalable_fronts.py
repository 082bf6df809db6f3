"""Problems with any number of objectives and variables: DTLZ and WFG.

DTLZ of Deb, Thiele, Laumanns & Zitzler (2005): 1 to 4 with any number of objectives, 5 to 7 with three. Where a
definition takes 1 - cos(2a), these functions take the equal 2 sin(a)^2, which keeps its digits near the front.

WFG of Huband, Hingston, Barone & While (2006), IEEE Trans. Evol. Comput. 10(5):477-506. The k variables along the front
come first, those towards it after them; variable i goes from 0 to 2i. WFG3 is left out: its front is not the line that
its authors meant (Ishibuchi, Masuda & Nojima 2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError
from galapax.core.problem import Function, Problem, as_bounds, box
from galapax.core.space import NumberArray
from galapax.metrics.indicators import non_dominated
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


# --- WFG --------------------------------------------------------------------------------------------------------------


HUBAND = "Huband, Hingston, Barone & While (2006), IEEE Trans. Evol. Comput. 10(5):477-506"
DISTANCE = 20  # variables towards the front, unless dim says otherwise


def _limit(y: Array) -> Array:
    return jnp.clip(y, 0.0, 1.0)


# --- transformations of numbers in [0, 1] ----------------------------------------------------------------------------


def _shift_linear(y: Array) -> Array:
    return _limit(jnp.abs(y - 0.35) / jnp.abs(jnp.floor(0.35 - y) + 0.35))


def _bias_flat(y: Array) -> Array:
    low = jnp.minimum(0.0, jnp.floor(y - 0.75)) * 0.8 * (0.75 - y) / 0.75
    high = jnp.minimum(0.0, jnp.floor(0.85 - y)) * 0.2 * (y - 0.85) / 0.15
    return _limit(0.8 + low - high)


def _shift_multimodal(y: Array, waves: float, hill: float) -> Array:
    far = jnp.abs(y - 0.35) / (2.0 * (jnp.floor(0.35 - y) + 0.35))
    return _limit((1.0 + jnp.cos((4.0 * waves + 2.0) * math.pi * (0.5 - far)) + 4.0 * hill * far**2) / (hill + 2.0))


def _shift_deceptive(y: Array) -> Array:
    a, b, c = 0.35, 0.001, 0.05
    left = jnp.floor(y - a + b) * (1.0 - c + (a - b) / b) / (a - b)
    right = jnp.floor(a + b - y) * (1.0 - c + (1.0 - a - b) / b) / (1.0 - a - b)
    return _limit(1.0 + (jnp.abs(y - a) - b) * (left + right + 1.0 / b))


def _bias_by(y: Array, by: Array) -> Array:
    """Bias that depends on other variables."""
    a, b, c = 0.98 / 49.98, 0.02, 50.0
    exponent = b + (c - b) * (a - (1.0 - 2.0 * by) * jnp.abs(jnp.floor(0.5 - by) + a))
    return _limit(y**exponent)


def _mean_after(y: Array) -> Array:
    """For each variable the mean of those after it, (d - 1,)."""
    d = y.shape[0]
    after = jnp.cumsum(y[::-1])[::-1][1:]
    return after / np.arange(d - 1, 0, -1).astype(y.dtype)


def _reduce_together(y: Array, degree: int) -> Array:
    """One number of several that cannot be improved one by one."""
    n = y.shape[0]
    total = jnp.sum(y)
    for step in range(1, degree):
        total = total + jnp.sum(jnp.abs(y - jnp.roll(y, -step)))
    half = math.ceil(degree / 2)
    return _limit(total / (n * half * (1.0 + 2.0 * degree - 2.0 * half) / degree))


# --- what a problem makes of y in [0, 1]: m numbers, the distance last -----------------------------------------------


def _groups(y: Array, k: int, m: int) -> list[Array]:
    gap = k // (m - 1)
    return [*(y[j * gap : (j + 1) * gap] for j in range(m - 1)), y[k:]]


def _means(y: Array, k: int, m: int) -> Array:
    return jnp.stack([jnp.mean(part) for part in _groups(y, k, m)])


def _with_front(y: Array, k: int, towards: Array) -> Array:
    return jnp.concatenate([y[:k], towards])


def _transform1(y: Array, k: int, m: int) -> Array:
    y = _with_front(y, k, _bias_flat(_shift_linear(y[k:]))) ** 0.02
    weights = 2.0 * np.arange(1, y.shape[0] + 1)
    parts = zip(_groups(y, k, m), np.split(weights, [k // (m - 1) * j for j in range(1, m)]), strict=True)
    return jnp.stack([jnp.sum(part * (w / w.sum()).astype(y.dtype)) for part, w in parts])


def _transform2(y: Array, k: int, m: int) -> Array:
    pairs = _shift_linear(y[k:]).reshape(-1, 2)
    joined = _limit((pairs[:, 0] + pairs[:, 1] + 2.0 * jnp.abs(pairs[:, 0] - pairs[:, 1])) / 3.0)
    return _means(_with_front(y, k, joined), k, m)


def _transform4(y: Array, k: int, m: int) -> Array:
    return _means(_shift_multimodal(y, 30.0, 10.0), k, m)


def _transform5(y: Array, k: int, m: int) -> Array:
    return _means(_shift_deceptive(y), k, m)


def _transform6(y: Array, k: int, m: int) -> Array:
    y = _with_front(y, k, _shift_linear(y[k:]))
    return jnp.stack([_reduce_together(part, part.shape[0]) for part in _groups(y, k, m)])


def _transform7(y: Array, k: int, m: int) -> Array:
    front = _bias_by(y[:k], _mean_after(y)[:k])
    return _means(jnp.concatenate([front, _shift_linear(y[k:])]), k, m)


def _transform8(y: Array, k: int, m: int) -> Array:
    before = jnp.cumsum(y)[k - 1 : -1] / np.arange(k, y.shape[0]).astype(y.dtype)
    return _means(_with_front(y, k, _shift_linear(_bias_by(y[k:], before))), k, m)


def _transform9(y: Array, k: int, m: int) -> Array:
    y = jnp.concatenate([_bias_by(y[:-1], _mean_after(y)), y[-1:]])
    y = jnp.concatenate([_shift_deceptive(y[:k]), _shift_multimodal(y[k:], 30.0, 95.0)])
    return jnp.stack([_reduce_together(part, part.shape[0]) for part in _groups(y, k, m)])


TRANSFORMS: dict[int, Callable[[Array, int, int], Array]] = {
    1: _transform1,
    2: _transform2,
    4: _transform4,
    5: _transform5,
    6: _transform6,
    7: _transform7,
    8: _transform8,
    9: _transform9,
}


def shape(number: int, p: NumberArray) -> list[NumberArray]:
    """The front over p (..., m - 1) in [0, 1], before its axes are stretched; NumPy in, NumPy out, and JAX likewise."""
    m, xp = p.shape[-1] + 1, jnp if isinstance(p, jax.Array) else np
    quarter = 0.5 * math.pi
    a, b = xp.sin(quarter * p), xp.cos(quarter * p)
    if number < 4:
        a, b = 1.0 - b, 1.0 - a
    parts = []
    for j in range(m):
        part = b[..., m - 1 - j] if j else xp.ones_like(p[..., 0])
        for i in range(m - 1 - j):
            part = part * a[..., i]
        parts.append(part)
    first = p[..., 0]
    if number == 1:
        parts[-1] = 1.0 - first - xp.cos(10.0 * math.pi * first + quarter) / (10.0 * math.pi)
    if number == 2:
        parts[-1] = 1.0 - first * xp.cos(5.0 * math.pi * first) ** 2
    return parts


def _wfg(number: int, m: int, k: int, upper: tuple[float, ...], x: Array) -> Array:
    t = TRANSFORMS[number](_limit(x / np.array(upper).astype(x.dtype)), k, m)
    p = jnp.maximum(t[-1], 1.0) * (t[:-1] - 0.5) + 0.5
    return t[-1] + 2.0 * np.arange(1, m + 1).astype(x.dtype) * jnp.stack(shape(number, p))


@cache
def _sample_front(number: int, m: int, per_axis: int) -> np.ndarray:
    """Of WFG1 and 2 a grid of the front."""
    axes = np.meshgrid(*[np.linspace(0.0, 1.0, per_axis)] * (m - 1), indexing="ij")
    p = np.stack([axis.ravel() for axis in axes], axis=1)
    points = np.unique(2.0 * np.arange(1, m + 1) * np.stack(shape(number, p), axis=1), axis=0)
    return points[non_dominated(points)]


def wfg_front(number: int, m: int, n: int) -> np.ndarray:
    """About n points of the front, and not more."""
    if number >= 4:
        return 2.0 * np.arange(1, m + 1) * octant_front(m, n)
    per_axis = 2
    while per_axis < 2 * n and len(_sample_front(number, m, per_axis + 1)) <= n:
        per_axis += 1
    return _sample_front(number, m, per_axis)


def _problem(number: int, title: str, dim: int, objectives: int) -> Problem:
    m = objectives
    if m < 2:
        raise InputError(f"wfg{number} has several objectives: objectives must be at least 2, got {m}.")
    k = 4 if m == 2 else 2 * (m - 1)
    d = dim or k + DISTANCE
    if d <= k or (number == 2 and (d - k) % 2):
        even = " and differ from it by an even number" if number == 2 else ""
        raise InputError(
            f"wfg{number} has {k} variables along the front of {m} objectives: dim must be more than that{even}, "
            f"got {d}."
        )
    upper = tuple(2.0 * i for i in range(1, d + 1))
    volume = HYPERVOLUMES.get((number, m))
    if number >= 4:
        volume = math.prod(2.0 * i for i in range(1, m + 1)) * octant_hypervolume(m)
    return Problem(
        partial(_wfg, number, m, k, upper),
        as_bounds([(0.0, u) for u in upper]),
        name=f"wfg{number}",
        title=title,
        source=f"{HUBAND}, WFG{number}",
        front=partial(wfg_front, number, m),
        reference_point=tuple(2.2 * i for i in range(1, m + 1)),
        hypervolume=volume,
    )


def wfg1(dim: int = 0, objectives: int = 3) -> Problem:
    """WFG1 of Huband et al. (2006). dim: 0 for 20 variables towards the front."""
    return _problem(1, "Mixed front that flat regions and a strong bias hide", dim, objectives)


def wfg2(dim: int = 0, objectives: int = 3) -> Problem:
    """WFG2 of Huband et al. (2006). dim: 0 for 20 variables towards the front."""
    return _problem(2, "Front in pieces; variables depend on each other", dim, objectives)


def wfg4(dim: int = 0, objectives: int = 3) -> Problem:
    """WFG4 of Huband et al. (2006). dim: 0 for 20 variables towards the front."""
    return _problem(4, "Concave front behind many local ones", dim, objectives)


def wfg5(dim: int = 0, objectives: int = 3) -> Problem:
    """WFG5 of Huband et al. (2006). dim: 0 for 20 variables towards the front."""
    return _problem(5, "Concave front; every variable deceives", dim, objectives)


def wfg6(dim: int = 0, objectives: int = 3) -> Problem:
    """WFG6 of Huband et al. (2006). dim: 0 for 20 variables towards the front."""
    return _problem(6, "Concave front; all variables depend on each other", dim, objectives)


def wfg7(dim: int = 0, objectives: int = 3) -> Problem:
    """WFG7 of Huband et al. (2006). dim: 0 for 20 variables towards the front."""
    return _problem(7, "Concave front; variables along it are biased by the others", dim, objectives)


def wfg8(dim: int = 0, objectives: int = 3) -> Problem:
    """WFG8 of Huband et al. (2006). dim: 0 for 20 variables towards the front."""
    return _problem(8, "Concave front; variables towards it are biased by the others", dim, objectives)


def wfg9(dim: int = 0, objectives: int = 3) -> Problem:
    """WFG9 of Huband et al. (2006). dim: 0 for 20 variables towards the front."""
    return _problem(9, "Concave front; bias, deception and many local fronts", dim, objectives)


# of dense samples of the fronts, by `python benchmarks/reference_fronts.py --formulas`
HYPERVOLUMES = {(1, 2): 6.785713, (1, 3): 61.5817, (2, 2): 6.151107, (2, 3): 60.6819}
