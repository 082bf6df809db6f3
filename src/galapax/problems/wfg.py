"""The WFG problems of Huband, Hingston, Barone & While (2006), IEEE Trans. Evol. Comput. 10(5):477-506, but for WFG3.

The k variables along the front come first, those towards it after them; variable i goes from 0 to 2i. WFG3 is left out:
its front is not the line that its authors meant (Ishibuchi, Masuda & Nojima 2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError
from galapax.core.problem import Problem, as_bounds
from galapax.core.space import NumberArray
from galapax.metrics.indicators import non_dominated
from galapax.problems.dtlz import octant_front, octant_hypervolume

Array = jax.Array

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
