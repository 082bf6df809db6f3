"""The answer of a run whose objective is random: a point of low mean, and an honest estimate of its mean.

A search ends with a distribution around its answer and with values that are lucky draws. What follows here spends fresh
evaluations in three parts: a quadratic model is fitted by least squares to points around the answer, which averages the
noise over all of them, and its minimiser is the next centre; the minimiser is then compared with the other candidates;
and the one that is chosen is evaluated again and again. Only these last values enter the estimate, so that nothing
about it was selected.

The points lie as far apart as the model allows: a gradient is estimated from values whose differences grow with the
distance and whose noise does not. They are moved further apart until the model explains clearly more than the noise,
and closer together where cubic or quartic terms would explain more than chance does (an F test). For trust regions
with regression models under noise see Chang, Hong & Wan (2013), INFORMS J. Computing 25(2):230-243,
doi:10.1287/ijoc.1120.0498.

The functions are generators: each yields points (n, d) and is sent their values (n,), NaN where one failed.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize, stats

Evaluations = Generator[np.ndarray, np.ndarray, "Answer"]

CONFIDENCE = 0.95
MODEL_SHARE = 0.7  # of the evaluations, for the model; the others compare candidates and estimate the mean
COMPARISON_SHARE = 0.4  # of those
MAX_MODEL_ROUNDS = 100  # of the model
SIGNAL_TO_NOISE = (
    5.0  # standard deviation of the model's values over that of the noise, from which points lie far enough
)
SAMPLING_RADIUS = 2.0  # of the points, in standard deviations of the search's last samples
MAX_STRETCH = 4.0  # of an axis or of the radius, in one round
NEAR = 2.0  # radii within which points belong to the model
LACK_OF_FIT = 1e-4  # level of the test for cubic and quartic terms
MAX_QUADRATIC_DIM = 60  # variables up to which the model has products of two variables


class Answer(NamedTuple):
    """A point with the mean of its fresh values."""

    x: np.ndarray  # (d,)
    mean: float
    interval: tuple[float, float]
    compared_mean: float  # of the values by which it was chosen, none of which is in `mean`; NaN without any


class NoisyQuadratic(NamedTuple):
    """A quadratic model of values around 0, fitted by least squares."""

    gradient: np.ndarray  # (d,)
    hessian: np.ndarray  # (d, d)
    noise: float  # standard deviation of the residuals
    signal: float  # standard deviation of the model's values, without what noise contributes
    fits: bool  # whether cubic and quartic terms explain no more than chance


def mean_and_interval(values: np.ndarray, confidence: float = CONFIDENCE) -> tuple[float, tuple[float, float]]:
    """Return the mean of independent values and its confidence interval, by Student's t; NaN values are left out."""
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return (float(values.mean()) if len(values) else math.nan), (math.nan, math.nan)
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    half = half_width(error, len(values) - 1, confidence)
    return mean, (mean - half, mean + half)


def half_width(error: float, freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return half the width of a confidence interval. error: standard error, from so many degrees of freedom."""
    return float(stats.t.ppf((1 + confidence) / 2, freedom)) * error


def find_answer(
    centre: np.ndarray,
    root: np.ndarray | None,
    others: np.ndarray,
    count: int,
    rng: np.random.Generator,
    rivals: np.ndarray | None = None,
) -> Evaluations:
    """Choose a point of low mean near the end of a search and estimate its mean, with `count` evaluations.

    Everything is in the unit cube. centre (d,): of the search's last samples. root (d, d): their covariance is root @
    root.T; None for no model, where the variables are discrete or constrained. others (k, d): further candidates.
    rivals (k, d): where other searches ended, with which the answer is compared.
    """
    candidates, is_modelled, n_comparison = others, False, 0
    n_model = int(MODEL_SHARE * count)
    if root is not None:
        candidates = np.concatenate([centre[None], others[:1], others[:0] if rivals is None else rivals])
        if n_model >= min_model_points(len(centre)):
            minimiser = yield from minimise_model(centre, root, n_model, rng)
            candidates, is_modelled, count = np.concatenate([minimiser[None], candidates]), True, count - n_model
    if len(candidates) > 1:
        n_comparison = int(COMPARISON_SHARE * count)
    chosen, compared, n_compared = yield from choose_best(candidates, n_comparison, prefers_first=is_modelled)
    values = yield np.repeat(chosen[None], max(1, count - n_compared), axis=0)
    return Answer(chosen, *mean_and_interval(values), mean_and_interval(compared)[0])


def choose_best(
    candidates: np.ndarray, count: int, prefers_first: bool
) -> Generator[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray, int]]:
    """Choose among candidates (k, d) by the means of at most `count` evaluations, the better half going on each time.

    Returns the one that was chosen, its values, and how many evaluations all took. prefers_first: whether the first is
    replaced only by one that is better by more than chance.
    """
    values, n_evaluations = [np.zeros(0) for _ in candidates], 0
    alive = list(range(len(candidates)))
    n_rounds = max(1, math.ceil(math.log2(max(2, len(candidates)))))
    for _ in range(n_rounds):
        each = count // n_rounds // len(alive)
        if each == 0 or len(alive) == 1:
            break
        drawn = yield np.repeat(candidates[alive], each, axis=0)
        n_evaluations += len(drawn)
        for row, fresh in zip(alive, drawn.reshape(len(alive), each), strict=True):
            values[row] = np.concatenate([values[row], fresh[np.isfinite(fresh)]])
        by_mean = sorted(alive, key=lambda row: values[row].mean() if len(values[row]) else math.inf)
        alive = sorted(by_mean[: max(1, len(alive) // 2)])
        if prefers_first and 0 not in alive:
            alive = [0, *alive]
    by_mean = sorted(alive, key=lambda row: values[row].mean() if len(values[row]) else math.inf)
    best = by_mean[0]
    if prefers_first and best != 0 and len(values[0]) > 1 and len(values[best]) > 1:
        gain = values[0].mean() - values[best].mean()
        error = math.sqrt(sum(values[row].var(ddof=1) / len(values[row]) for row in (0, best)))
        best = best if gain > 2 * error else 0
    return candidates[best], values[best], n_evaluations


def min_model_points(dim: int) -> int:
    """Return the evaluations from which on a model is worth making."""
    return 4 * (2 * dim + 1)


def minimise_model(
    centre: np.ndarray, root: np.ndarray, count: int, rng: np.random.Generator
) -> Generator[np.ndarray, np.ndarray, np.ndarray]:
    """Move a centre to the minimiser of models of the points around it, with `count` evaluations in all."""
    dim = len(centre)
    n_terms = (dim + 1) * (dim + 2) // 2 if dim <= MAX_QUADRATIC_DIM else 2 * dim + 1
    n_rounds = int(np.clip(count / n_terms, 4, MAX_MODEL_ROUNDS))
    root = SAMPLING_RADIUS * root
    points, values = np.zeros((0, dim)), np.zeros(0)
    for batch in np.array_split(np.arange(count), n_rounds):
        x = np.clip(centre + rng.standard_normal((len(batch), dim)) @ root.T, 0, 1)
        drawn = yield x
        is_finite = np.isfinite(drawn)
        points, values = np.concatenate([points, x[is_finite]]), np.concatenate([values, drawn[is_finite]])
        z = np.linalg.solve(root, (points - centre).T).T
        near = np.sum(z**2, axis=1) <= NEAR**2 * dim
        if near.sum() < min_model_points(dim):
            continue
        model = fit_quadratic(z[near], values[near])
        curvature, axes = np.linalg.eigh(model.hessian)
        step = restrict_step(model, curvature, axes, math.sqrt(dim))
        centre = move_within_cube(centre, root, model, step)
        # along each axis as far as gives the same change of value; a curvature below its error is not known
        known = np.maximum(curvature, 2 * model.noise * math.sqrt(2 / near.sum()) + 1e-300)
        stretch = np.clip(np.sqrt(np.median(known) / known), 1 / MAX_STRETCH, MAX_STRETCH)
        root = root @ (axes * (stretch * _radius_factor(model)))
        # no wider than the cube, beyond which all points are clipped to its faces
        root *= min(1.0, 0.5 / max(1e-300, float(np.sqrt(np.sum(root**2, axis=1)).max())))
    return centre


def _radius_factor(model: NoisyQuadratic) -> float:
    """Return the factor of the radius for the next round."""
    if not model.fits:
        return 0.5
    ratio = model.signal / max(model.noise, 1e-300)
    return 1.0 if ratio >= SIGNAL_TO_NOISE else min(MAX_STRETCH, math.sqrt(SIGNAL_TO_NOISE / max(ratio, 0.01)))


def fit_quadratic(z: np.ndarray, values: np.ndarray) -> NoisyQuadratic:
    """Fit a quadratic to values at points z (n, d), without mixed terms for few points or many variables."""
    n, dim = z.shape
    i, j = np.triu_indices(dim)
    if dim > MAX_QUADRATIC_DIM or n < 1.5 * (1 + dim + len(i)):
        i = j = np.arange(dim)
    terms = np.concatenate([np.ones((n, 1)), z, z[:, i] * z[:, j]], axis=1)
    coefficients = solve_least_squares(terms, values[:, None])[:, 0]
    predicted = terms @ coefficients
    residuals = values - predicted
    variance = float(residuals @ residuals) / max(1, n - terms.shape[1])
    signal = float(predicted.var()) - variance * terms.shape[1] / n
    hessian = np.zeros((dim, dim))
    hessian[i, j] = coefficients[1 + dim :]
    gradient, hessian = coefficients[1 : 1 + dim], hessian + hessian.T
    higher = np.concatenate([z**3, z**4], axis=1)
    higher -= terms @ solve_least_squares(terms, higher)
    unexplained = residuals - higher @ solve_least_squares(higher, residuals[:, None])[:, 0]
    freedom = n - terms.shape[1] - 2 * dim
    fits = True
    if freedom > 0:
        least = float(unexplained @ unexplained)
        ratio = (float(residuals @ residuals) - least) / (2 * dim) / max(least / freedom, 1e-300)
        fits = bool(stats.f.sf(ratio, 2 * dim, freedom) > LACK_OF_FIT)
    return NoisyQuadratic(gradient, hessian, math.sqrt(variance), math.sqrt(max(0.0, signal)), fits)


def solve_least_squares(terms: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the coefficients (p, k) of terms (n, p) for values (n, k), by normal equations."""
    normal = terms.T @ terms
    normal[np.diag_indices(len(normal))] *= 1 + 1e-10
    normal[np.diag_indices(len(normal))] += 1e-300
    try:
        return np.asarray(linalg.cho_solve(linalg.cho_factor(normal), terms.T @ values))
    except np.linalg.LinAlgError:  # points on a face of the cube
        return np.linalg.lstsq(normal, terms.T @ values, rcond=1e-12)[0]


def restrict_step(model: NoisyQuadratic, curvature: np.ndarray, axes: np.ndarray, radius: float) -> float:
    """Return what must be added to the curvatures so that the model's minimiser lies within `radius`."""
    slope = axes.T @ model.gradient

    def length(shift: float) -> float:
        return float(np.linalg.norm(slope / np.maximum(curvature + shift, 1e-300)))

    low = max(0.0, -float(curvature[0])) + 1e-9 * float(np.abs(curvature).max()) + 1e-300
    if curvature[0] > 0 and length(0.0) <= radius:
        return 0.0
    high = low + float(np.linalg.norm(slope)) / radius
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if length(middle) > radius else (low, middle)
    return high


def move_within_cube(centre: np.ndarray, root: np.ndarray, model: NoisyQuadratic, shift: float) -> np.ndarray:
    """Return the minimiser of the model, with `shift` added to its curvatures, in the unit cube."""
    hessian = model.hessian + shift * np.eye(len(centre))
    moved = centre + root @ np.linalg.lstsq(hessian, -model.gradient, rcond=1e-12)[0]
    if ((moved >= 0) & (moved <= 1)).all():
        return moved
    # as bounded least squares: |factor.T z + factor^-1 gradient|^2 with z = root^-1 (x - centre)
    try:
        factor = np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError:
        return np.clip(moved, 0, 1)
    matrix = factor.T @ np.linalg.inv(root)
    target = matrix @ centre - np.linalg.solve(factor, model.gradient)
    scale = np.linalg.norm(matrix)
    inside = optimize.lsq_linear(matrix / scale, target / scale, bounds=(0, 1), max_iter=200).x
    return np.clip(inside, 0, 1)
