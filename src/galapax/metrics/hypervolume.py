"""Hypervolumes in JAX, for `jit`, `vmap` and every generation of a run: exact for two and three objectives, estimated
for more. Memory stays O(n).
"""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.errors import InputError
from galapax.core.problem import MAX_EXACT_HYPERVOLUME_OBJECTIVES
from galapax.numerics import devices, random

ESTIMATE_DIRECTIONS = 2048  # along which an estimate measures a front
MAX_HYPERVOLUME_PAIRS = 2**24  # pairs compared in one go on a GPU
MAX_HYPERVOLUME_REDUCTION = 4096  # points that one reduction goes over; XLA takes minutes to compile longer ones
HYPERVOLUME_UNROLL = 8  # points that one step of a loop on a CPU takes


def hypervolume_2d(objectives: Array, reference: ArrayLike, counted: Array | None = None) -> Array:
    """The hypervolume of two objectives (n, 2), a scalar, by sorting.

    counted: (n,) bool, which rows take part, such as the feasible ones. Dominated rows may take part, they add nothing.
    """
    (f1, f2), corner, _ = _inside(objectives, reference, counted, 2)
    f1, f2 = lax.sort((f1, f2), num_keys=2)
    least = lax.cummin(f2)
    before = jnp.concatenate([corner[1:], least[:-1]])
    return jnp.sum((corner[0] - f1) * (before - least))


def hypervolume_3d(objectives: Array, reference: ArrayLike, counted: Array | None = None) -> Array:
    """The hypervolume of three objectives (n, 3), a scalar, exactly, by O(n^2) work. counted: as for two.

    Points come in order of f3. Each adds the area over f1 and f2 that it dominates and none before it does, times the
    height that is left above it. Along f1 that area's upper edge is the least f2 of those before it that begin farther
    left.
    """
    columns, corner, _ = _inside(objectives, reference, counted, 3)
    x, y, z = lax.sort(columns, num_keys=3)
    n = x.shape[0]
    rows = jnp.arange(n, dtype=jnp.int32)
    widths = jnp.concatenate([x[1:], corner[:1]]) - x

    def edge(k: Array | int, y_k: Array, z_k: Array, z_i: Array, i: Array) -> Array:
        """f2 of the point k, where it comes before i in the order of f3; else the corner's."""
        before = (z_k < z_i) | ((z_k == z_i) & (k < i))
        return jnp.where(before, y_k, corner[1])

    if devices.on_cpu():

        def add(k: Array | int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            least, area = carry
            least = jnp.minimum(least, edge(k, y[k], z[k], z, rows))
            return least, area + jnp.where(rows <= k, widths[k], 0) * jnp.maximum(least - y, 0)

        start = (jnp.full(n, corner[1]), jnp.zeros(n, x.dtype))
        _, area = lax.fori_loop(0, n, add, start, unroll=min(HYPERVOLUME_UNROLL, n))
        return jnp.sum(area * (corner[2] - z))

    def volumes(tile: tuple[Array, Array, Array]) -> Array:
        i, y_i, z_i = (c[:, None] for c in tile)
        least = lax.cummin(edge(rows, y, z, z_i, i), axis=1)
        area = jnp.sum(jnp.where(i <= rows, widths, 0) * jnp.maximum(least - y_i, 0), axis=1)
        return area * (corner[2] - tile[2])

    tile = min(n, max(1, MAX_HYPERVOLUME_PAIRS // n))
    if tile == n:
        return jnp.sum(volumes((rows, y, z)))
    extra = -n % tile
    padded = (jnp.pad(rows, (0, extra)), *(jnp.pad(c, (0, extra), constant_values=jnp.inf) for c in (y, z)))
    tiles = lax.map(volumes, tuple(c.reshape(-1, tile) for c in padded))
    return jnp.sum(jnp.where(jnp.arange(n + extra) < n, tiles.reshape(-1), 0))


def hypervolume_estimate(
    objectives: Array,
    reference: ArrayLike,
    counted: Array | None = None,
    seed: int = 0,
    directions: int = ESTIMATE_DIRECTIONS,
) -> tuple[Array, Array]:
    """An unbiased estimate of the hypervolume of any number of objectives (n, m), and its standard error.

    From the reference point the dominated part is seen along random directions w, and reaches
    l = max over the points of min over k of (r_k - f_k) / w_k; the volume is that of a ball's orthant of radius 1 times
    the mean of l^m (Deng & Zhang 2019, IEEE Trans. Evol. Comput. 23(5):913-918). Objectives are in units of the range
    from their least to the reference point. The directions are the same in every call with this seed, so that a front
    that is nowhere worse never measures less, but for a change of those units.
    """
    m = objectives.shape[1]
    columns, corner, inside = _inside(objectives, reference, counted, m)
    dtype = corner.dtype
    reach = [corner[k] - c for k, c in enumerate(columns)]  # (n,) each, 0 for those that do not count
    span = [jnp.maximum(jnp.max(r), jnp.finfo(dtype).tiny) for r in reach]
    w = jnp.abs(random.normal(jnp.asarray(random.root_key(seed)), (directions, m), dtype))
    w = w / jnp.sqrt(jnp.sum(w**2, axis=1, keepdims=True))
    inverse = [1 / jnp.maximum(w[:, k], jnp.finfo(dtype).tiny ** 0.25) for k in range(m)]
    scaled = [r / s for r, s in zip(reach, span, strict=True)]

    if devices.on_cpu():

        def farther(i: Array | int, best: Array) -> Array:
            least = scaled[0][i] * inverse[0]
            for r, v in zip(scaled[1:], inverse[1:], strict=True):
                least = jnp.minimum(least, r[i] * v)
            return jnp.maximum(best, least)

        n = objectives.shape[0]
        length = lax.fori_loop(0, n, farther, jnp.zeros(directions, dtype), unroll=min(HYPERVOLUME_UNROLL, n))
    else:
        length = jnp.zeros(directions, dtype)
        for start in range(0, objectives.shape[0], MAX_HYPERVOLUME_REDUCTION):
            some = [
                r[None, start : start + MAX_HYPERVOLUME_REDUCTION] * v[:, None]
                for r, v in zip(scaled, inverse, strict=True)
            ]
            length = jnp.maximum(length, jnp.max(functools.reduce(jnp.minimum, some), axis=1))
    powers = length**m
    unit = math.pi ** (m / 2) / (2**m * math.gamma(m / 2 + 1))
    volume = unit * math.prod(span[1:], start=span[0])
    is_any_inside = jnp.any(inside)
    error = jnp.std(powers) / math.sqrt(directions)
    return jnp.where(is_any_inside, volume * jnp.mean(powers), 0), jnp.where(is_any_inside, volume * error, 0)


def hypervolume_by_generation(objectives: Array, reference: Array, counted: Array) -> tuple[Array, Array | None]:
    """What a run follows: the exact hypervolume of up to three objectives, and None; an estimate of more, and its
    standard error.
    """
    m = objectives.shape[1]
    if m <= MAX_EXACT_HYPERVOLUME_OBJECTIVES:
        return {2: hypervolume_2d, 3: hypervolume_3d}[m](objectives, reference, counted), None
    return hypervolume_estimate(objectives, reference, counted)


def _inside(
    objectives: Array, reference: ArrayLike, counted: Array | None, m: int
) -> tuple[tuple[Array, ...], Array, Array]:
    """The objectives as columns, with the corner's values for rows that do not count; the corner (m,), and who counts.

    A row counts that is finite, dominates the corner, and is not left out by `counted`.
    """
    objectives = jnp.asarray(objectives)
    corner = jnp.asarray(reference, objectives.dtype)
    if objectives.ndim != 2 or objectives.shape[1] != m or corner.shape != (m,):
        raise InputError(
            f"this hypervolume is of {m} objectives: front must be (n, {m}) and reference ({m},); got shapes "
            f"{objectives.shape} and {corner.shape}."
        )
    inside = jnp.all(objectives < corner, axis=1) & jnp.all(jnp.isfinite(objectives), axis=1)
    if counted is not None:
        inside &= counted
    return tuple(jnp.where(inside, objectives[:, k], corner[k]) for k in range(m)), corner, inside
