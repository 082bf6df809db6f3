"""How good a front is, and which point of it to take; hypervolumes in JAX. All objectives are minimised.

Fronts are arrays (n, m). Rows with NaN or an infinity, which failed, are left out everywhere. Hypervolumes for `jit`,
`vmap` and every generation of a run are exact for two and three objectives and estimated for more; memory stays O(n).
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike as JaxArrayLike
from numpy.typing import ArrayLike

from galapax.core.checks import abbreviate, as_float_array
from galapax.core.errors import InputError, MissingPackage
from galapax.core.problem import MAX_EXACT_HYPERVOLUME_OBJECTIVES
from galapax.numerics import devices, random

__all__ = [
    "achieving",
    "by_generation",
    "closest_to",
    "closest_to_ideal",
    "epsilon_additive",
    "gd",
    "gd_plus",
    "hypervolume",
    "hypervolume_2d",
    "hypervolume_3d",
    "hypervolume_estimate",
    "igd",
    "igd_plus",
    "knee",
    "non_dominated",
    "r2",
    "spread",
    "weighted",
]


def __dir__() -> list[str]:
    """List the indicators, and not what their module imports, for tab completion."""
    return __all__


OTHER_NAMES = {"hv": "hypervolume", "wfg": "hypervolume", "epsilon": "epsilon_additive", "eps": "epsilon_additive"}


def __getattr__(name: str) -> NoReturn:
    """Answer the names of indicators in other libraries, such as HV and IGDPlus."""
    plain = name.lower().replace("_", "")
    public = OTHER_NAMES.get(plain) or next((word for word in __all__ if word.replace("_", "") == plain), None)
    raise AttributeError(f"module 'galapax.indicators' has no {name!r}" + (f": write {public}." if public else "."))


MIN_KNEE_DEPTH = 0.05  # a concave front whose ends are not reached yet has corners a little before the plane
ESTIMATE_DIRECTIONS = 2048  # along which an estimate measures a front
MAX_HYPERVOLUME_PAIRS = 2**24  # pairs compared in one go on a GPU
MAX_HYPERVOLUME_REDUCTION = 4096  # points that one reduction goes over; XLA takes minutes to compile longer ones
HYPERVOLUME_UNROLL = 8  # points that one step of a loop on a CPU takes


def hypervolume_2d(objectives: Array, reference: JaxArrayLike, counted: Array | None = None) -> Array:
    """The hypervolume of two objectives (n, 2), a scalar, by sorting.

    counted: (n,) bool, which rows take part, such as the feasible ones. Dominated rows may take part, they add nothing.
    """
    (f1, f2), corner, _ = _inside(objectives, reference, counted, 2)
    f1, f2 = lax.sort((f1, f2), num_keys=2)
    least = lax.cummin(f2)
    before = jnp.concatenate([corner[1:], least[:-1]])
    return jnp.sum((corner[0] - f1) * (before - least))


def hypervolume_3d(objectives: Array, reference: JaxArrayLike, counted: Array | None = None) -> Array:
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
    reference: JaxArrayLike,
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
    objectives: Array, reference: JaxArrayLike, counted: Array | None, m: int
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


def hypervolume(front: ArrayLike, reference: ArrayLike) -> float:
    """The volume that the front dominates up to the reference point (m,), exactly; needs the package `moocore`.

    Zitzler & Thiele (1999), IEEE Trans. Evol. Comput. 3(4):257-271. Points that do not dominate the reference point add
    nothing, and a warning tells how many there are.
    """
    points, corner = _front(front), _corner(reference, front)
    outside = int((points >= corner).any(axis=1).sum())
    if outside:
        warnings.warn(
            f"{outside} of {len(points)} points do not dominate the reference point {abbreviate(corner.tolist())} and "
            "add nothing to the hypervolume: choose one that is worse than all points of interest in every objective.",
            stacklevel=2,
        )
    return volume(points, corner)


def volume(points: np.ndarray, corner: np.ndarray) -> float:
    """The hypervolume of finite points (n, m) up to the corner (m,), as it is."""
    inside = points[(points < corner).all(axis=1)]
    return float(moocore().hypervolume(inside, ref=corner)) if len(inside) else 0.0


def moocore(purpose: str = "hypervolume") -> ModuleType:
    """The package that measures hypervolumes of any number of objectives exactly."""
    try:
        return importlib.import_module("moocore")
    except ImportError:
        raise MissingPackage(
            f"{purpose} needs the package moocore: pip install moocore; hypervolume_2d, hypervolume_3d and "
            "hypervolume_estimate need nothing."
        ) from None


def igd(front: ArrayLike, true_front: ArrayLike) -> float:
    """The mean distance from each point of the true front (k, m) to the nearest of this front (n, m).

    Inverted generational distance: Coello Coello & Reyes Sierra (2004), MICAI 2004, LNCS 2972:688-697.
    """
    return float(np.mean(_nearest(*_two(front, true_front), lambda difference: difference)))


def igd_plus(front: ArrayLike, true_front: ArrayLike) -> float:
    """As `igd`, where only the objectives in which the front is worse than the true point count towards a distance.

    Ishibuchi, Masuda, Tanigaki & Nojima (2015), EMO 2015, LNCS 9019:110-125. Unlike `igd` it never calls a dominated
    front the better one.
    """
    return float(np.mean(_nearest(*_two(front, true_front), lambda difference: np.maximum(difference, 0))))


def gd(front: ArrayLike, true_front: ArrayLike) -> float:
    """The mean distance from each point of this front (n, m) to the nearest of the true front (k, m).

    Generational distance: Van Veldhuizen & Lamont (2000), CEC 2000:204-211, doi:10.1109/CEC.2000.870296, with the mean
    of the distances instead of the root of their sum of squares over n, as later papers have it. It says how close the
    points are, not whether they cover the true front.
    """
    points, true = _two(front, true_front)
    return float(np.mean(_nearest(true, points, lambda difference: difference)))


def gd_plus(front: ArrayLike, true_front: ArrayLike) -> float:
    """As `gd`, where only the objectives in which a point is worse than the true one count (Ishibuchi et al. 2015)."""
    points, true = _two(front, true_front)
    return float(np.mean(_nearest(true, points, lambda difference: np.maximum(-difference, 0))))


def epsilon_additive(front: ArrayLike, true_front: ArrayLike) -> float:
    """The least number that, subtracted from every objective of this front (n, m), makes it cover the true one (k, m).

    Additive epsilon: Zitzler, Thiele, Laumanns, Fonseca & Grunert da Fonseca (2003), IEEE Trans. Evol. Comput.
    7(2):117-132, doi:10.1109/TEVC.2003.810758. 0 for the true front itself; in the units of the objectives, so scale
    these where they differ.
    """
    points, true = _two(front, true_front)
    size = max(1, 2**22 // max(1, points.size))
    pieces = (true[i : i + size] for i in range(0, len(true), size))
    return float(max((points[None] - piece[:, None]).max(axis=2).min(axis=1).max() for piece in pieces))


MIN_R2_WEIGHTS = 500  # weight vectors where none are given


def r2(front: ArrayLike, ideal: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The mean over weight vectors of the best weighted Chebyshev distance to the ideal point (m,); less is better.

    R2: Hansen & Jaszkiewicz (1998), IMM-REP-1998-7, in the unary form of Brockhoff, Wagner & Trautmann (2012), GECCO
    2012:465-472, doi:10.1145/2330163.2330230. ideal: no point of a front may be better than it in any objective.
    weights: (w, m), at least 0; by default all vectors with m equally spaced parts that add up to 1, at least 500.
    """
    points, corner = _front(front), _corner(ideal, front, "ideal")
    m = points.shape[1]
    if not len(points):
        raise InputError("front has no point that is finite in every objective; the indicator needs at least one.")
    if (points < corner).any():
        raise InputError(
            f"a point of the front is better than ideal {abbreviate(corner.tolist())}: give the least values."
        )
    vectors = simplex_lattice(m, MIN_R2_WEIGHTS) if weights is None else as_float_array(weights)
    if vectors.ndim != 2 or vectors.shape[1] != m or not np.isfinite(vectors).all() or (vectors < 0).any():
        raise InputError(
            f"weights must have one row per vector and {m} columns of at least 0; got {abbreviate(weights)}."
        )
    size = max(1, 2**22 // points.size)
    pieces = (vectors[i : i + size] for i in range(0, len(vectors), size))
    best = [(piece[:, None] * (points - corner)[None]).max(axis=2).min(axis=1) for piece in pieces]
    return float(np.mean(np.concatenate(best)))


def simplex_lattice(m: int, count: int) -> np.ndarray:
    """At least `count` vectors (w, m) of equally spaced parts that add up to 1: Das & Dennis (1998), SIAM J. Optim.
    8(3):631-657.
    """
    if m == 1:
        return np.ones((1, 1))
    divisions = next(h for h in itertools.count(1) if math.comb(h + m - 1, m - 1) >= count)
    bars = np.array(list(itertools.combinations(range(divisions + m - 1), m - 1)))
    ends = np.column_stack([np.full(len(bars), -1), bars, np.full(len(bars), divisions + m - 1)])
    return (np.diff(ends, axis=1) - 1) / divisions


def spread(front: ArrayLike, true_front: ArrayLike) -> float:
    """Deb's Delta of two objectives: how uneven the gaps along the front are, and how far its ends from the true ends.

    Deb, Pratap, Agarwal & Meyarivan (2002), equation 1: (d_f + d_l + sum |d_i - mean d|) / (d_f + d_l + (n - 1) mean d)
    with the n - 1 gaps d_i between neighbours. 0 is perfect, 1 and more is bad; 1 for a single point.
    """
    points, true = _two(front, true_front)
    if points.shape[1] != 2:
        raise InputError(f"spread is for two objectives, got {points.shape[1]}; use igd_plus or hypervolume.")
    points, true = (a[np.lexsort((a[:, 1], a[:, 0]))] for a in (points, true))
    ends = np.linalg.norm(points[0] - true[0]) + np.linalg.norm(points[-1] - true[-1])
    gaps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    whole = ends + gaps.sum()
    if len(points) == 1 or whole == 0:
        return 1.0
    return float((ends + np.abs(gaps - gaps.mean()).sum()) / whole)


TRUE_POINTS = 1000  # of a problem's true front, where it is known


def by_generation(
    result: Any, reference: ArrayLike | None = None, true_front: ArrayLike | None = None
) -> dict[str, np.ndarray]:
    """How good the front was at each generation that `snapshots` kept, for any number of objectives.

    result: of `minimize` with snapshots. reference: (m,), by default the problem's reference_point. true_front: (k, m),
    by default about 1000 points of the problem's own, if it has one. Both as the user means them, where objectives are
    maximised.
    Returns "generation" (G,), and (G,) each, or (R, G) for R runs: "hypervolume" if there is a reference point, and
    "igd" and "igd_plus" if there is a true front. The front of a generation are the feasible individuals of its
    population that none dominates; without one the hypervolume is 0 and the distances are NaN.

    >>> res = minimize(problem, "nsga2", generations=100, keep=Keep(snapshots=range(10, 101, 10)))  # doctest: +SKIP
    >>> indicators.by_generation(res)["igd_plus"]  # doctest: +SKIP
    """
    if "F" not in result:
        raise InputError("by_generation measures fronts of several objectives; this result has one objective.")
    if not result.get("snapshots"):
        raise InputError("no population was kept by generation: run it again with keep=gx.Keep(snapshots=[...]).")
    problem, signs = result.problem, result.signs
    reference = problem.reference_point if reference is None else reference
    if true_front is None and problem.front is not None:
        true_front = problem.front(TRUE_POINTS)
    if reference is None and true_front is None:
        raise InputError(
            "by_generation needs a reference point for the hypervolume or a true front for the distances: give "
            "reference= or true_front=."
        )
    measures: dict[str, Callable[[np.ndarray], float]] = {}
    if reference is not None:
        corner = signs * _corner(reference, result.F)
        measures["hypervolume"] = lambda points: volume(points, corner)
    if true_front is not None:
        true = signs * _two(np.zeros((1, result.F.shape[1])), true_front)[1]
        measures["igd"] = lambda points: igd(points, true) if len(points) else np.nan
        measures["igd_plus"] = lambda points: igd_plus(points, true) if len(points) else np.nan
    out: dict[str, list[list[float]]] = {name: [] for name in measures}
    for front in result.snapshots.values():
        objectives = signs * np.asarray(front.objectives, np.float64)
        sound: Any = np.isfinite(objectives).all(axis=-1)
        if front.violation is not None:
            sound &= np.asarray(front.violation) <= 0
        runs = [(objectives, sound)] if objectives.ndim == 2 else list(zip(objectives, sound, strict=True))
        fronts = [values[rows][non_dominated(values[rows])] for values, rows in runs]
        for name, measure in measures.items():
            out[name].append([measure(points) for points in fronts])
    tables = {name: np.array(rows, np.float64).T for name, rows in out.items()}
    if result.runs is None:
        tables = {name: table[0] for name, table in tables.items()}
    return {"generation": np.array(list(result.snapshots)), **tables}


def non_dominated(objectives: np.ndarray) -> np.ndarray:
    """Which rows (n, m) no other dominates, (n,) bool. In NumPy, for what has left the device.

    Among different points in lexicographic order nobody is dominated by a later one. With two objectives a point is
    dominated if an earlier one has no greater f2; with more, each is compared with those kept before it.
    """
    points, row = np.unique(objectives, axis=0, return_inverse=True)
    stay = np.ones(len(points), bool)
    if points.shape[1] == 2:
        stay[1:] = points[1:, 1] < np.minimum.accumulate(points[:-1, 1])
    else:
        selected, count = np.empty_like(points), 0
        for i, point in enumerate(points):
            stay[i] = not (selected[:count] <= point).all(axis=1).any()
            if stay[i]:
                selected[count] = point
                count += 1
    return stay[row.ravel()]


def knee(front: ArrayLike) -> int:
    """The row of the front's knee: the point that lies farthest towards the origin from the plane through its ends.

    Each objective is scaled to [0, 1] over the front, so that the ends lie on the plane where the scaled objectives add
    up to 1 (Das 1999, Structural Optimization 18:107-115). On a concave front no point lies before that plane by more
    than MIN_KNEE_DEPTH; then the knee is the most balanced point, whose worst objective is least.
    """
    points, failed = _scale(front)
    totals = np.sum(points, axis=1)
    if totals[~failed].min() < 1 - MIN_KNEE_DEPTH:
        return _least(totals, failed)
    return _least(np.max(points, axis=1), failed)


def weighted(front: ArrayLike, weights: ArrayLike) -> int:
    """The row with the least weighted sum of the objectives, each scaled to [0, 1] over the front.

    weights: (m,), at least 0, not all 0; only their ratios matter.
    """
    points, failed = _scale(front)
    w = as_float_array(weights)
    if w.shape != points.shape[1:] or not np.isfinite(w).all() or (w < 0).any() or w.sum() == 0:
        raise InputError(
            f"weights must be {points.shape[1]} numbers of at least 0, one per objective and not all 0; "
            f"got {abbreviate(weights)}."
        )
    return _least(points @ (w / w.sum()), failed)


def closest_to_ideal(front: ArrayLike) -> int:
    """The row closest to the ideal point, the least of each objective, each scaled to [0, 1] over the front."""
    points, failed = _scale(front)
    return _least(np.linalg.norm(points, axis=1), failed)


def closest_to(front: ArrayLike, point: np.ndarray) -> int:
    """The row closest to a point (m,), distances in units of the front's range."""
    points, failed = _scale(front)
    return _least(np.linalg.norm(points - _place(front, point), axis=1), failed)


def achieving(front: ArrayLike, levels: np.ndarray, weights: ArrayLike | None = None) -> int:
    """The row that comes closest to reaching all levels (m,), or exceeds them by the most in its worst objective.

    By the achievement function of Wierzbicki (1980), LNEMS 177:468-486: the greatest of weighted distances to the
    levels, in units of the front's range, and a thousandth of their sum, which leaves out points that another
    dominates. weights: (m,), above 0; all alike if left out.
    """
    points, failed = _scale(front)
    m = points.shape[1]
    w = np.ones(m) if weights is None else as_float_array(weights)
    if w.shape != (m,) or not np.isfinite(w).all() or (w <= 0).any():
        raise InputError(f"weights must be {m} numbers above 0, one per objective; got {abbreviate(weights)}.")
    short_of = w / w.sum() * (points - _place(front, levels))
    return _least(short_of.max(axis=1) + 1e-3 * short_of.sum(axis=1), failed)


def _front(front: ArrayLike, name: str = "front") -> np.ndarray:
    """Rows without failures, checked."""
    try:
        points = as_float_array(front)
    except ValueError:
        raise InputError(f"{name} must be numbers, one row per point and one column per objective.") from None
    if points.ndim != 2 or points.shape[1] == 0:
        raise InputError(f"{name} must have one row per point and one column per objective; got shape {points.shape}.")
    return points[np.isfinite(points).all(axis=1)]


def _corner(reference: ArrayLike, front: ArrayLike, name: str = "reference") -> np.ndarray:
    """A reference point for this front, checked."""
    m = np.shape(front)[-1]
    try:
        corner = as_float_array(reference)
    except ValueError:
        corner = np.zeros(0)
    if corner.shape != (m,) or not np.isfinite(corner).all():
        raise InputError(f"{name} must be {m} finite numbers, one per objective; got {abbreviate(reference)}.")
    return corner


def _two(front: ArrayLike, true_front: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    points, true = _front(front), _front(true_front, "true_front")
    if points.shape[1] != true.shape[1]:
        raise InputError(f"front has {points.shape[1]} objectives and true_front {true.shape[1]}; both must agree.")
    if not len(points) or not len(true):
        which = "true_front" if len(points) else "front"
        raise InputError(f"{which} has no point that is finite in every objective; the indicator needs at least one.")
    return points, true


def _nearest(points: np.ndarray, true: np.ndarray, part: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """For each row of `true` the least length of part(point - true row), in pieces so that memory stays O(n + k)."""
    size = max(1, 2**22 // max(1, points.size))
    pieces = [true[i : i + size] for i in range(0, len(true), size)]
    return np.concatenate(
        [np.sqrt((part(points[None] - piece[:, None]) ** 2).sum(axis=2)).min(axis=1) for piece in pieces]
    )


def _scale(front: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The front with each objective scaled to [0, 1], and which rows failed (n,)."""
    points = _front(front)
    if not len(points):
        raise InputError("front has no point that is finite in every objective, so there is none to choose.")
    whole = as_float_array(front)
    low, span = points.min(axis=0), np.ptp(points, axis=0)
    failed = ~np.isfinite(whole).all(axis=1)
    return (np.where(failed[:, None], low, whole) - low) / np.where(span > 0, span, 1), failed


def _place(front: ArrayLike, point: np.ndarray) -> np.ndarray:
    """A point (m,) in the units of `_scaled`."""
    points = _front(front)
    span = np.ptp(points, axis=0)
    return (point - points.min(axis=0)) / np.where(span > 0, span, 1)


def _least(values: np.ndarray, failed: np.ndarray) -> int:
    return int(np.argmin(np.where(failed, np.inf, values)))
