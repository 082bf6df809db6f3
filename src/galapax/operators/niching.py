"""Reference directions, and the niches along them: the frame of NSGA-III in which they are measured, and its survivors.

Directions are points of the simplex w >= 0, sum w = 1 that say which parts of a front are looked for.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from galapax.core.algorithm import Shared
from galapax.core.checks import abbreviate, as_float_array
from galapax.core.errors import InputError
from galapax.numerics import devices, random
from galapax.operators.pairwise import argsort_rows

OFF_AXIS_WEIGHT = 1e-6  # weight of the other axes in the search for an axis's extreme point
ZERO_THRESHOLD = 1e-3  # what counts as 0 there, as in the authors' program, and in units of the range
MIN_INTERCEPT = 1e-6  # intercepts and ranges below it, in the same units, are none
MAX_COMPARED_PAIRS = 2**24  # pairs of points and lines compared in one go
UNROLLED_LINES = 8  # that one step of a loop on a CPU takes


# divisions of the outer and the inner layer that Deb & Jain (2014) use, or their like between their numbers
DEFAULT_DIVISIONS = {1: (99, 0), 2: (99, 0), 3: (12, 0), 4: (7, 0), 5: (6, 0), 6: (4, 2), 7: (3, 2), 8: (3, 2),
                     9: (3, 2), 10: (3, 2)}  # fmt: skip


def lattice(m: int, divisions: int) -> np.ndarray:
    """All w with w_i in {0, 1/p, .., 1} and sum 1, (C(m + p - 1, p), m); Das & Dennis (1998), SIAM J. Optim. 8(3)."""
    if divisions == 0:
        return np.zeros((0, m))
    bars = np.array(list(itertools.combinations(range(divisions + m - 1), m - 1)), float)
    bars = bars.reshape(math.comb(divisions + m - 1, m - 1), m - 1)
    ends = np.concatenate([np.full((len(bars), 1), -1.0), bars, np.full((len(bars), 1), divisions + m - 1.0)], axis=1)
    return (np.diff(ends, axis=1) - 1) / divisions


def count_directions(m: int, divisions: tuple[int, int]) -> int:
    """Return how many directions `two_layer_lattice` gives; of one objective, which is no front, so many that a
    population has a size.
    """
    if m == 1:
        return 100
    return sum(math.comb(p + m - 1, p) for p in divisions if p)


def two_layer_lattice(m: int, divisions: tuple[int, int]) -> np.ndarray:
    """Build a lattice on the outside and one shrunk halfway to the centre, (h, m); with (p, 0) the first alone.

    With fewer divisions than objectives a lattice has no point inside, and the second layer gives some.
    """
    outer, inner = (lattice(m, p) for p in divisions)
    return np.concatenate([outer, inner / 2 + 1 / (2 * m)])


def divisions_for(m: int, population: int | None) -> tuple[int, int]:
    """Choose the divisions with the most directions that a population has room for; the papers' if it is None."""
    if population is None or m == 1:
        return DEFAULT_DIVISIONS.get(m, (2, 1))
    outer = 1
    while count_directions(m, (outer + 1, 0)) <= population:
        outer += 1
    if outer >= m:
        return (outer, 0)
    fits = [(p, q) for p in range(1, outer + 1) for q in range(p + 1) if count_directions(m, (p, q)) <= population]
    return max(fits, key=lambda pair: count_directions(m, pair), default=(1, 0))


def fill_directions(m: int, population: int) -> np.ndarray:
    """Return as many directions as the population has members, (n, m): those of `divisions_for`, and random ones."""
    regular = two_layer_lattice(m, divisions_for(m, population))[:population]
    random_directions = np.random.default_rng(m).dirichlet(np.ones(m), population - len(regular))
    return np.concatenate([regular, random_directions])


def share_directions(directions: ArrayLike | Shared | None) -> Shared | None:
    """Directions that a user gave, if any, as all runs share them."""
    return directions if directions is None or isinstance(directions, Shared) else Shared(check_directions(directions))


def check_directions(directions: ArrayLike) -> np.ndarray:
    """Directions that a user gave, (h, m), scaled to sum 1."""
    try:
        w = as_float_array(directions)
    except ValueError:
        w = np.zeros(0)
    if w.ndim != 2 or w.shape[0] < 1 or not np.isfinite(w).all() or (w < 0).any() or (w.sum(axis=1) <= 0).any():
        raise InputError(
            "directions must be rows of numbers >= 0, one per objective and not all 0, such as [[1, 0], [0.5, 0.5], "
            f"[0, 1]]; got {abbreviate(directions)}."
        )
    return w / w.sum(axis=1, keepdims=True)


class NormalizationFrame(NamedTuple):
    """What the objectives are measured by."""

    ideal: Array  # (m,) the least of each objective so far, +inf before there is any
    worst: Array  # (m,) the greatest so far, -inf before
    nadir: Array  # (m,) where the axes of the normalised space end
    extremes: Array  # (m, m) by row: the point that reaches farthest along an axis; +inf before


def initial_frame(m: int, dtype: jnp.dtype) -> NormalizationFrame:
    inf = jnp.full(m, jnp.inf, dtype)
    return NormalizationFrame(inf, -inf, inf, jnp.full((m, m), jnp.inf, dtype))


def update_frame(frame: NormalizationFrame, objectives: Array, sound: Array, front: Array) -> NormalizationFrame:
    """Update the frame after a generation with these objectives (n, m); sound, front: (n,) bool, which rows count at
    all, and which of them nobody dominates. Without any the frame stays as it was.
    """
    ideal = jnp.minimum(frame.ideal, jnp.min(jnp.where(sound[:, None], objectives, jnp.inf), axis=0))
    worst = jnp.maximum(frame.worst, jnp.max(jnp.where(sound[:, None], objectives, -jnp.inf), axis=0))
    of_front = jnp.max(jnp.where(front[:, None], objectives, -jnp.inf), axis=0)
    of_all = jnp.max(jnp.where(sound[:, None], objectives, -jnp.inf), axis=0)
    unit = jnp.where(jnp.isfinite(frame.nadir), frame.nadir, of_front) - ideal
    unit = jnp.where(unit > 0, unit, 1)
    usable = jnp.concatenate([front, jnp.all(jnp.isfinite(frame.extremes), axis=1)])
    points = jnp.concatenate([objectives, frame.extremes])
    shifted = jnp.where(usable[:, None], (points - ideal) / unit, jnp.inf)
    m = objectives.shape[1]
    axes = jnp.where(jnp.eye(m, dtype=bool), 1.0, 1 / OFF_AXIS_WEIGHT).astype(points.dtype)
    rounded = jnp.where(shifted < ZERO_THRESHOLD, 0, shifted)
    reach = jnp.stack([jnp.max(rounded * axes[j], axis=1) for j in range(m)])  # (m, n + m)
    extremes = points[jnp.argmin(reach, axis=1)]
    intercepts = _intercepts((extremes - ideal) / unit)
    planar = jnp.all(intercepts > MIN_INTERCEPT) & jnp.all(jnp.isfinite(intercepts))
    nadir = jnp.where(planar, jnp.minimum(ideal + intercepts * unit, worst), of_front)
    nadir = jnp.where(nadir - ideal <= MIN_INTERCEPT * unit, of_all, nadir)
    has_front = jnp.any(front)
    return NormalizationFrame(
        ideal, worst, jnp.where(has_front, nadir, frame.nadir), jnp.where(has_front, extremes, frame.extremes)
    )


def _intercepts(extremes: Array) -> Array:
    """Return where the plane through these points (m, m) meets the axes, (m,); 0 where they span none.

    By elimination with pivots, written out: m is small, and a library's solver would be a call for each run.
    """
    m = extremes.shape[0]
    one = jnp.ones((m, 1), extremes.dtype)
    rows = jnp.concatenate([jnp.where(jnp.isfinite(extremes), extremes, 0), one], axis=1)
    scale = jnp.finfo(extremes.dtype).eps * m * jnp.maximum(jnp.max(jnp.abs(rows[:, :m])), 1)
    sound = jnp.array(True)
    for j in range(m):
        size = jnp.where(jnp.arange(m) >= j, jnp.abs(rows[:, j]), -1)
        p = jnp.argmax(size)
        sound &= size[p] > scale
        pivot, swapped = rows[p], rows[j]
        rows = rows.at[p].set(swapped).at[j].set(pivot)
        pivot = pivot / jnp.where(pivot[j] == 0, 1, pivot[j])
        rows = jnp.where((jnp.arange(m) == j)[:, None], pivot, rows - rows[:, j : j + 1] * pivot)
    plane = rows[:, m]
    usable = sound & (plane > 0)
    return jnp.where(usable, 1 / jnp.where(plane > 0, plane, 1), 0)


def normalize(frame: NormalizationFrame, objectives: Array, sound: Array) -> Array:
    """Scale the objectives (n, m) to 0 at the ideal and 1 at the nadir; 0 for rows that are not sound."""
    span = frame.nadir - frame.ideal
    usable = jnp.isfinite(span) & (span > 0)
    ideal = jnp.where(jnp.isfinite(frame.ideal), frame.ideal, 0)
    return jnp.where(sound[:, None], (objectives - ideal) / jnp.where(usable, span, 1), 0)


def nearest_line(points: Array, directions: Array) -> tuple[Array, Array]:
    """For each of points (n, m) which line from 0 along a direction (h, m) is the nearest, and its distance, (n,) each.

    As |f - (f.w) w|, since |f|^2 - (f.w)^2 loses all digits of a short distance in float32.
    """
    units = directions / jnp.sqrt(jnp.sum(directions**2, axis=1, keepdims=True))
    w = [units[None, :, k] for k in range(units.shape[1])]

    def nearest(rows: Array) -> tuple[Array, Array]:
        f = [rows[:, None, k] for k in range(rows.shape[1])]
        along = sum((p * q for p, q in zip(f, w, strict=True)), start=jnp.zeros((), rows.dtype))
        squares = sum(((p - along * q) ** 2 for p, q in zip(f, w, strict=True)), start=jnp.zeros((), rows.dtype))
        niche = jnp.argmin(squares, axis=1).astype(jnp.int32)
        return niche, jnp.sqrt(jnp.min(squares, axis=1))

    n, h = points.shape[0], directions.shape[0]
    if devices.on_cpu():
        return _nearest_line_by_loop(points, units)
    tile = max(1, MAX_COMPARED_PAIRS // h)
    if tile >= n:
        return nearest(points)
    padded = jnp.pad(points, ((0, -n % tile), (0, 0))).reshape(-1, tile, points.shape[1])
    niche, distance = lax.map(nearest, padded)
    return niche.reshape(-1)[:n], distance.reshape(-1)[:n]


def _nearest_line_by_loop(points: Array, units: Array) -> tuple[Array, Array]:
    """`nearest_line` by a loop over the lines, each step a vector operation: a CPU's argmin is slow."""
    n, h = points.shape[0], units.shape[0]
    f = [points[:, k] for k in range(points.shape[1])]

    def look(j: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        w = units[j]
        along = sum((p * w[k] for k, p in enumerate(f)), start=jnp.zeros((), points.dtype))
        square = sum(((p - along * w[k]) ** 2 for k, p in enumerate(f)), start=jnp.zeros((), points.dtype))
        nearer = square < best[1]
        return jnp.where(nearer, j, best[0]), jnp.where(nearer, square, best[1])

    start = (jnp.zeros(n, jnp.int32), jnp.full(n, jnp.inf, points.dtype))
    niche, square = lax.fori_loop(0, h, look, start, unroll=min(UNROLLED_LINES, h))
    return niche, jnp.sqrt(square)


def select_by_niche(key: Array, rank: Array, niche: Array, distance: Array, niches: int, count: int) -> Array:
    """Select the `count` rows that NSGA-III keeps, (count,) int32: the first fronts whole, of the last by niche.

    rank, niche, distance: (n,). See the docstring of `algorithms/nsga3.py` for the levels.
    """
    n = rank.shape[0]
    margin = jnp.sort(rank)[count - 1]
    inside, last = rank < margin, rank == margin
    niche_count = jnp.zeros(niches, jnp.int32).at[niche].add(inside.astype(jnp.int32))
    far = jnp.where(last, distance, jnp.inf)
    closest = jnp.full(niches, jnp.inf, distance.dtype).at[niche].min(far)
    key_order, key_level = random.split(key)
    first = last & (niche_count[niche] == 0) & (far == closest[niche])
    # the closest of an empty niche before all others, who come in random order
    turn = jnp.where(first, 0, (random.bits(key_order, (n,)) >> 8).astype(jnp.int32) + 1)
    order = argsort_rows(jnp.where(last, niche, niches), turn)
    sorted_niche = jnp.where(last, niche, niches)[order]
    places = jnp.arange(n, dtype=jnp.int32)
    starts = jnp.concatenate([jnp.ones(1, bool), sorted_niche[1:] != sorted_niche[:-1]])
    within = places - lax.cummax(jnp.where(starts, places, 0))
    level = (
        jnp.zeros(n, jnp.int32).at[order].set(within, unique_indices=True, mode="promise_in_bounds")
        + niche_count[niche]
    )
    level = jnp.where(inside, -1, jnp.where(last, level, 2 * n))
    return argsort_rows(level, random.bits(key_level, (n,)))[:count]
