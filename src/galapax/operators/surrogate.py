"""A quadratic model of an objective, fitted to the latest evaluations: it ranks candidates that are not evaluated.

Hansen (2019), "A global surrogate assisted CMA-ES", GECCO, 664-672, doi:10.1145/3321707.3321842.

Differs from the paper: the regression is solved by normal equations with a ridge, in coordinates that the caller
chooses. Points are (k, d) in these; `local.surrogate_cmaes` has the same model in NumPy.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.numerics.linear_algebra import solve_positive

AGREEMENT = 0.85  # Kendall's tau of model and objective from which on the model ranks the rest
MIN_COMPARED, MAX_COMPARED = 15, 128  # latest points that are compared
BEST_WEIGHT = 20.0  # of the best point in the regression; the worst has 1
MORE_POINTS = 1.1  # points for each coefficient, from which on a model has so many
MAX_PRODUCTS_DIM = 30  # variables up to which the model has their products: solving for them takes O(d^6)
RIDGE = {4: 1e-5, 8: 1e-9}  # share of the mean diagonal, by the bytes of a number
BISECTIONS = 60


class SampleArchive(NamedTuple):
    """The latest evaluated points, in a ring."""

    x: Array  # (capacity, d)
    values: Array  # (capacity,), +inf where the evaluation failed
    n_points: Array  # int32, appended so far


def create_archive(capacity: int, dim: int, dtype: np.dtype) -> SampleArchive:
    """Create an archive without points."""
    return SampleArchive(jnp.zeros((capacity, dim), dtype), jnp.full(capacity, jnp.inf, dtype), jnp.int32(0))


def append_samples(archive: SampleArchive, x: Array, values: Array, chosen: Array) -> SampleArchive:
    """Add the chosen ones (k,) of points (k, d) with values (k,); the latest stay."""
    capacity = archive.x.shape[0]
    place = jnp.cumsum(chosen, dtype=jnp.int32) - 1
    n_chosen = place[-1] + 1
    rows = jnp.where(chosen & (place >= n_chosen - capacity), (archive.n_points + place) % capacity, capacity)
    return SampleArchive(
        archive.x.at[rows].set(x, mode="drop"), archive.values.at[rows].set(values, mode="drop"),
        archive.n_points + n_chosen,
    )  # fmt: skip


def latest_rows(archive: SampleArchive, n: int) -> Array:
    """Rows (n,) of the latest points, the last one first; those beyond `n_points` hold +inf."""
    return (archive.n_points - 1 - jnp.arange(n, dtype=jnp.int32)) % archive.x.shape[0]


def count_coefficients(dim: int) -> int:
    """Count the coefficients of the richest model."""
    return (dim + 1) * (dim + 2) // 2 if dim <= MAX_PRODUCTS_DIM else 2 * dim + 1


class Surrogate(NamedTuple):
    """A model c + g.u + u.H.u / 2 of values."""

    coefficients: Array  # (k,), of 1, u, u^2 and products u_i u_j
    offset: Array
    scale: Array  # of the values
    is_fitted: Array  # bool, whether there were enough points

    def predict(self, u: Array) -> Array:
        """Predict the values (n,) of points (n, d)."""
        return self.offset + self.scale * (_features(u) @ self.coefficients)


def fit_surrogate(u: Array, values: Array) -> Surrogate:
    """Fit points (n, d) with values (n,), +inf where there is none: linear, then with squares, then with products.

    The better a point, the heavier its weight.
    """
    n, dim = u.shape
    sound = jnp.isfinite(values)
    n_sound = jnp.sum(sound)
    least = jnp.min(values)
    spread = jnp.max(jnp.where(sound, values, -jnp.inf)) - least
    offset = jnp.where(jnp.isfinite(least), least, 0)
    scale = jnp.where((spread > 0) & jnp.isfinite(spread), spread, 1)
    order = jnp.argsort(values)
    rank = jnp.zeros(n, u.dtype).at[order].set(jnp.arange(n, dtype=u.dtype))
    weights = jnp.where(sound, BEST_WEIGHT - (BEST_WEIGHT - 1) * rank / jnp.maximum(n_sound - 1, 1), 0)
    degree = jnp.repeat(jnp.arange(3), jnp.array([1 + dim, dim, count_coefficients(dim) - 1 - 2 * dim]),
                        total_repeat_length=count_coefficients(dim))  # fmt: skip
    needed = jnp.array([0, MORE_POINTS * (2 * dim + 1), MORE_POINTS * count_coefficients(dim)])[degree]
    columns = jnp.where(sound[:, None], _features(u), 0) * (n_sound >= needed)
    weighted = (weights[:, None] * columns).T
    normal = _product(weighted, columns)
    size = normal.shape[0]
    ridge = RIDGE[u.dtype.itemsize] * jnp.trace(normal) / size
    right = weighted @ jnp.where(sound, (values - offset) / scale, 0)
    coefficients = solve_positive(normal + ridge * jnp.eye(size, dtype=u.dtype), right)
    is_fitted = (n_sound >= dim + 3) & (spread > 0) & jnp.all(jnp.isfinite(coefficients))
    return Surrogate(jnp.where(is_fitted, coefficients, 0), offset, scale, is_fitted)


def create_unfitted(dim: int, dtype: np.dtype) -> Surrogate:
    """Create the model that there is before any points."""
    zero = jnp.zeros((), dtype)
    return Surrogate(jnp.zeros(count_coefficients(dim), dtype), zero, zero + 1, jnp.zeros((), bool))


def minimize_in_ball(model: Surrogate, dim: int, radius: float) -> Array:
    """Find the point (d,) at which the model is least, at most `radius` from the origin."""
    gradient, squares = model.coefficients[1 : dim + 1], model.coefficients[dim + 1 : 2 * dim + 1]
    if dim <= MAX_PRODUCTS_DIM:
        half = jnp.zeros((dim, dim), gradient.dtype).at[jnp.triu_indices(dim, 1)].set(
            model.coefficients[2 * dim + 1 :]
        )  # fmt: skip
        curvature, axes = jnp.linalg.eigh(half + half.T + jnp.diag(2 * squares))
        slope = axes.T @ gradient
    else:
        curvature, slope = 2 * squares, gradient
    tiny = jnp.finfo(gradient.dtype).tiny
    steepness = jnp.sqrt(jnp.sum(slope**2))
    low = jnp.maximum(0, -jnp.min(curvature))  # the multiplier of the radius lies between
    high = low + steepness / radius + tiny

    def step(multiplier: Array) -> Array:
        return -slope / jnp.maximum(curvature + multiplier, tiny)

    def halve(_: Array, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = interval
        middle = (low + high) / 2
        is_long = jnp.sum(step(middle) ** 2) > radius**2
        return jnp.where(is_long, middle, low), jnp.where(is_long, high, middle)

    is_inside = (jnp.min(curvature) > 0) & (jnp.sum(step(jnp.zeros_like(low)) ** 2) <= radius**2)
    _, multiplier = lax.fori_loop(0, BISECTIONS, halve, (low, high))
    point = step(jnp.where(is_inside, 0, multiplier))
    return axes @ point if dim <= MAX_PRODUCTS_DIM else point


def rank_correlation(a: Array, b: Array, chosen: Array) -> Array:
    """Compute Kendall's tau-b of the chosen ones (n,) of two lists of numbers; 0 where one of them is constant."""
    pairs = chosen[:, None] & chosen

    def order(values: Array) -> Array:
        above = (values[:, None] > values).astype(jnp.int32) - (values[:, None] < values)
        return jnp.where(pairs, above, 0).astype(jnp.float32)

    first, second = order(a), order(b)
    size = jnp.sqrt(jnp.sum(first**2) * jnp.sum(second**2))
    return jnp.where(size > 0, jnp.sum(first * second) / jnp.maximum(size, 1), 0)


def agrees(model: Surrogate, u: Array, values: Array, n: Array) -> Array:
    """Whether the model ranks the first n of the points u (k, d) with values (k,) well enough."""
    tau = rank_correlation(model.predict(u), values, jnp.arange(len(u)) < n)
    return model.is_fitted & (tau >= AGREEMENT)


def _features(u: Array) -> Array:
    """The columns that the coefficients belong to, (n, k)."""
    n, dim = u.shape
    columns = [jnp.ones((n, 1), u.dtype), u, u**2]
    if dim <= MAX_PRODUCTS_DIM:
        i, j = np.triu_indices(dim, 1)
        columns.append(u[:, i] * u[:, j])
    return jnp.concatenate(columns, axis=1)


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)  # a GPU would round what enters it to 10 bits
