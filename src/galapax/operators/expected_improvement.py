"""How much an evaluation promises, from a model's means and standard deviations: the expected hypervolume improvement.

Emmerich, Giannakoglou & Naujoks (2006), IEEE Trans. Evol. Comput. 10(4):421-439, doi:10.1109/TEVC.2005.859463, exactly,
over the boxes that no point dominates. As a logarithm, whose slope does not vanish far from the front: Ament et al.
(2023), NeurIPS, arXiv:2310.20708.

Objectives are minimised and independent of each other. A point that is not on the front, or does not exist, is put at
the reference point, where it dominates nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import erfc

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
SERIES_START = -12.0  # standard deviations below which the expected improvement is computed by its series
LEAST = 1e-300


def log_expected_excess(mean: Array, deviation: Array, level: Array) -> Array:
    """Return the logarithm of E[max(level - Y, 0)] for normal Y."""
    return jnp.log(deviation) + _log_standard_excess((level - mean) / deviation)


@jax.custom_jvp
def _log_standard_excess(z: Array) -> Array:
    """Return the logarithm of E[max(z - Z, 0)] for standard normal Z."""
    return _log_standard_excess_and_slope(z)[0]


@_log_standard_excess.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    value, slope = _log_standard_excess_and_slope(*primals)
    return value, slope * tangents[0]


def _log_standard_excess_and_slope(z: Array) -> tuple[Array, Array]:
    near = jnp.maximum(z, SERIES_START)
    below = 0.5 * erfc(-near / math.sqrt(2.0))
    excess = jnp.exp(-0.5 * near * near - LOG_SQRT_2PI) + near * below
    far = jnp.minimum(z, SERIES_START)
    inverse = 1 / (far * far)
    series = -0.5 * far * far - LOG_SQRT_2PI + jnp.log(inverse) + jnp.log1p(-3 * inverse + 15 * inverse * inverse)
    is_near = z > SERIES_START
    return jnp.where(is_near, jnp.log(excess), series), jnp.where(is_near, below / excess, -far * (1 + 2 * inverse))


class Boxes(NamedTuple):
    """What a front leaves undominated below the reference point: a grid of intervals, and how far each cell reaches.

    One objective: the best value is the only level. Two: intervals of f1, the first open below; each reaches up to its
    level in f2. Three: cells of f1 and f2, and which of the levels of f3 each reaches up to.
    """

    edges: tuple[Array, ...]  # (n + 1,) of all objectives but the last: upper ends of the intervals, rising
    levels: Array  # (n + 1,) of the last objective
    rows: Array | None  # (n + 1, n + 1) the level of each cell, with three objectives


def decompose(front: Array, reference: Array) -> Boxes:
    """Return the boxes between points (n, m) and the reference point (m,), for one to three objectives."""
    front = jnp.minimum(front, reference)
    if front.shape[1] == 1:
        return Boxes((), jnp.min(front, axis=0), None)
    if front.shape[1] == 2:
        f1, f2 = lax.sort((front[:, 0], front[:, 1]), num_keys=2)
        levels = jnp.concatenate([reference[1:], lax.cummin(f2)])
        return Boxes((jnp.append(f1, reference[0]),), levels, None)
    f1, f2, f3 = lax.sort((front[:, 0], front[:, 1], front[:, 2]), num_keys=3)
    order = jnp.argsort(f2)
    by_level = jnp.argsort(f3)
    rank = jnp.zeros(len(f3), jnp.int32).at[by_level].set(jnp.arange(len(f3), dtype=jnp.int32))
    # the interval after the i-th edge has the first i points to its left; with the j-th of f2 likewise
    place = jnp.zeros(len(f2), jnp.int32).at[order].set(jnp.arange(len(f2), dtype=jnp.int32))
    n = len(f1)
    rows = jnp.full((n + 1, n + 1), n, jnp.int32)
    rows = rows.at[jnp.arange(n) + 1, place + 1].set(rank)
    rows = lax.cummin(lax.cummin(rows, axis=0), axis=1)
    edges = (jnp.append(f1, reference[0]), jnp.append(f2[order], reference[1]))
    return Boxes(edges, jnp.append(f3[by_level], reference[2]), rows)


def log_expected_hypervolume_improvement(mean: Array, deviation: Array, boxes: Boxes) -> Array:
    """Return the logarithm of the expected hypervolume improvement of one point, from its predictions (m,).

    Over a box that reaches from l to u it is the product of E[max(u - Y, 0)] - E[max(l - Y, 0)] over the objectives.
    With one objective it is the expected improvement.
    """
    if not boxes.edges:
        return log_expected_excess(mean[0], deviation[0], boxes.levels[0])
    levels = jnp.stack([*boxes.edges, boxes.levels])
    excess = log_expected_excess(mean[:, None], deviation[:, None], levels)  # (m, n + 1)
    largest = lax.stop_gradient(jnp.max(excess, axis=1))
    scaled = jnp.exp(excess - largest[:, None])
    widths = jnp.diff(scaled[:-1], prepend=0.0, axis=1)
    last = scaled[-1] if boxes.rows is None else scaled[-1][boxes.rows] @ widths[1]
    total = jnp.sum(widths[0] * last)
    return jnp.sum(largest) + jnp.log(jnp.maximum(total, LEAST))
