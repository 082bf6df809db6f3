"""Gaussian processes of expensive functions: hyper-parameters by maximum a posteriori, predictions with their error.

Rasmussen & Williams (2006), Gaussian Processes for Machine Learning, chapters 2 and 5. The covariance is Matern 5/2
with a length scale for each variable, a linear part, a quadratic one of the squares, and noise. The prior of the length
scales grows with the number of variables d, log-normal with median exp(sqrt(2)) sqrt(d): Hvarfner, Hellsten & Nardi
(2024), ICML, arXiv:2402.02229.

All is array code with fixed shapes, for `jit` and `vmap`: rows beyond the evaluated ones are masked. Points are in the
unit box, values standardised. A variable without order has distance 1 between any two of its values, as if it were
coded by one number for each, and no part in the linear and the quadratic term.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from galapax.core.problem import Bounds
from galapax.local import lbfgs
from galapax.numerics.linear_algebra import invert_factor

LENGTH_SPREAD = math.sqrt(3.0)  # standard deviation of the logarithm of a length scale, in its prior
VARIANCE_PRIOR = (0.0, 1.0)  # mean and standard deviation of the logarithm of the Matern part's variance
TREND_PRIOR = (-2.0, 2.0)  # the same for the coefficients of the linear and of the quadratic part
NOISE_PRIOR = (-12.0, 4.0)  # the same for the noise; wide, since most black boxes have none
SHORT_LENGTHS = 1.5  # standard deviations of the prior by which a second start of the fit has shorter length scales
LENGTH_LIMITS = (0.02, 1e4)
VARIANCE_LIMITS = (1e-4, 1e4)
TREND_LIMITS = (1e-6, 1e3)
NOISE_LIMITS = (1e-8, 1.0)
LEAST_NOISE_SHARE = 1e-8  # of the whole variance, so that covariance matrices can be factored
SQRT5 = math.sqrt(5.0)


class Hyperparameters(NamedTuple):
    """Logarithms of the hyper-parameters of one process; as a vector in this order."""

    lengths: Array  # (d,) in units of the box
    variance: Array  # of the Matern part
    slope: Array  # variance of the linear part's coefficients
    curvature: Array  # variance of the quadratic part's coefficients, those of the squares
    noise: Array  # variance


class Sample(NamedTuple):
    """Evaluated points, as covariances see them."""

    u: Array  # (n, d) in the unit box
    unordered: Array  # (d,) bool
    is_evaluated: Array  # (n,) bool; the other rows are ignored


class Process(NamedTuple):
    """A process that was conditioned on values."""

    vector: Array  # (d + 4,) hyper-parameters
    weights: Array  # (n,) inverse covariance times values
    inverse_root: Array  # (n, n) inverse of the covariance's lower Cholesky factor


def unflatten(vector: Array) -> Hyperparameters:
    """Read hyper-parameters from a vector (d + 4,)."""
    return Hyperparameters(vector[:-4], vector[-4], vector[-3], vector[-2], vector[-1])


def prior_of(dim: int) -> tuple[Array, Array]:
    """Mean and standard deviation of the hyper-parameters' prior, both as a vector (d + 4,)."""
    length = math.sqrt(2.0) + 0.5 * math.log(dim)
    priors = [(length, LENGTH_SPREAD)] * dim + [VARIANCE_PRIOR, TREND_PRIOR, TREND_PRIOR, NOISE_PRIOR]
    mean, spread = (jnp.array(side) for side in zip(*priors, strict=True))
    return mean, spread


def short_start(dim: int) -> Array:
    """Hyper-parameters (d + 4,) of a rough function without noise, from which a fit may reach another maximum."""
    mean, spread = prior_of(dim)
    return mean - jnp.append(jnp.full(dim, SHORT_LENGTHS), jnp.array([0.0, 0.0, 0.0, 1.0])) * spread


def box_of(dim: int) -> Bounds:
    """The limits of the hyper-parameters, as vectors (d + 4,)."""
    limits = [LENGTH_LIMITS] * dim + [VARIANCE_LIMITS, TREND_LIMITS, TREND_LIMITS, NOISE_LIMITS]
    lower, upper = (jnp.log(jnp.array(side)) for side in zip(*limits, strict=True))
    return Bounds(lower, upper)


def squared_differences(a: Array, b: Array, unordered: Array) -> Array:
    """Squared differences of points (n, d) and (k, d) in each variable, (d, n, k)."""
    difference = a.T[:, :, None] - b.T[:, None, :]
    return jnp.where(unordered[:, None, None], (difference != 0).astype(a.dtype), difference * difference)


def trend_features(u: Array, unordered: Array) -> Array:
    """What the linear and the quadratic part are sums of, at points (k, d): (2, k, d + 1), a constant first."""
    centred = jnp.where(unordered, 0.0, 2 * u - 1)
    squares = jnp.where(unordered, 0.0, centred * centred - 1 / 3)  # of mean 0
    ones = jnp.ones((len(u), 1), u.dtype)
    return jnp.stack([jnp.append(ones, centred, axis=1), jnp.append(0 * ones, squares, axis=1)])


def trend_products(a: Array, b: Array, unordered: Array) -> Array:
    """Products of the features of points (n, d) and (k, d), for the linear and the quadratic part (2, n, k)."""
    return jnp.einsum("pni,pki->pnk", trend_features(a, unordered), trend_features(b, unordered))


def trend_weights(hyperparameters: Hyperparameters) -> Array:
    """The variances of the coefficients of the linear and the quadratic part (2,)."""
    return jnp.exp(jnp.stack([hyperparameters.slope, hyperparameters.curvature]))


def covariance(hyperparameters: Hyperparameters, squares: Array, products: Array) -> Array:
    """The covariance without noise (n, k), from `squared_differences` (d, n, k) and `trend_products` (2, n, k)."""
    weights = jnp.exp(-2 * hyperparameters.lengths)
    distance = jnp.tensordot(weights, squares, axes=1)
    # the square root has no slope at 0, but the whole has: 1 - 5/6 r^2 + ...
    root = SQRT5 * jnp.sqrt(jnp.maximum(distance, 1e-30))
    matern = (1 + root + root * root / 3) * jnp.exp(-root)
    trend = jnp.tensordot(trend_weights(hyperparameters), products, axes=1)
    return jnp.exp(hyperparameters.variance) * matern + trend


def masked_covariance(hyperparameters: Hyperparameters, sample: Sample, squares: Array, products: Array) -> Array:
    """The covariance of the evaluated points with noise, (n, n); the identity for the other rows."""
    matrix = covariance(hyperparameters, squares, products)
    both = sample.is_evaluated[:, None] & sample.is_evaluated[None, :]
    noise = noise_of(hyperparameters, sample.u.shape[1])
    return jnp.where(both, matrix, 0.0) + jnp.diag(jnp.where(sample.is_evaluated, noise, 1.0))


def noise_of(hyperparameters: Hyperparameters, dim: int) -> Array:
    """The variance of the noise, with what it takes for covariances to be factored."""
    scale = jnp.exp(hyperparameters.variance) + jnp.sum(trend_weights(hyperparameters)) * (1 + dim)
    return jnp.exp(hyperparameters.noise) + LEAST_NOISE_SHARE * scale


def fit(sample: Sample, values: Array, starts: Array, n_evaluations: int) -> Process:
    """Return the process with the best hyper-parameters that L-BFGS reaches from `starts` (s, d + 4), conditioned.

    values: (n,) of the points, standardised. n_evaluations: of the posterior density from each start, at most. Where no
    covariance can be factored, the process knows no values.
    """
    box = box_of(sample.u.shape[1])
    squares = squared_differences(sample.u, sample.u, sample.unordered)
    products = trend_products(sample.u, sample.u, sample.unordered)
    values = jnp.where(sample.is_evaluated, values, 0.0)

    def proceeds(carry: tuple[Array, lbfgs.Descent, Array]) -> Array:
        return (carry[0] < n_evaluations) & (carry[1].status != lbfgs.ENDED)

    def evaluate(carry: tuple[Array, lbfgs.Descent, Array]) -> tuple[Array, lbfgs.Descent, Array]:
        number, state, best_root = carry
        loss, gradient, inverse_root = judge_hyperparameters(state.trial, sample, values, squares, products)
        after = lbfgs.tell(state, loss, gradient, box, -jnp.inf, 1e-6)
        return number + 1, after, jnp.where(after.value < state.value, inverse_root, best_root)

    def descend(start: Array) -> tuple[Array, Array, Array]:
        first = lbfgs.begin(jnp.clip(start, box.lower, box.upper))
        _, state, inverse_root = lax.while_loop(proceeds, evaluate, (jnp.int32(0), first, jnp.zeros_like(products[0])))
        return state.value, state.x, inverse_root

    losses, ends, inverse_roots = jax.vmap(descend)(starts)
    best = jnp.argmin(losses)
    inverse_root = inverse_roots[best]
    return Process(ends[best], inverse_root.T @ (inverse_root @ values), inverse_root)


def judge_hyperparameters(
    vector: Array, sample: Sample, values: Array, squares: Array, products: Array
) -> tuple[Array, Array, Array]:
    """The negative logarithm of the posterior density of hyper-parameters (d + 4,) up to a constant, its gradient, and
    the inverse of the covariance's Cholesky factor.

    By Rasmussen & Williams, equation 5.9: the gradient in the covariance is (inverse - weights weights') / 2.
    """
    mean, spread = prior_of(sample.u.shape[1])
    matrix, pull_back = jax.vjp(lambda v: masked_covariance(unflatten(v), sample, squares, products), vector)
    inverse_root = invert_factor(matrix)
    whitened = inverse_root @ values
    weights = inverse_root.T @ whitened
    shift = (vector - mean) / spread
    loss = 0.5 * jnp.sum(whitened**2) - jnp.sum(jnp.log(jnp.diagonal(inverse_root))) + 0.5 * jnp.sum(shift**2)
    (gradient,) = pull_back(0.5 * (inverse_root.T @ inverse_root - jnp.outer(weights, weights)))
    return jnp.where(jnp.isnan(loss), jnp.inf, loss), gradient + shift / spread, inverse_root


def append(process: Process, sample: Sample, values: Array, row: Array) -> Process:
    """The process with one more point, that of a row which was not evaluated yet.

    sample, values: with the point in its place, and marked as evaluated. A row is added to the inverse factor.
    """
    hyperparameters = unflatten(process.vector)
    squares = squared_differences(sample.u[row][None], sample.u, sample.unordered)
    products = trend_products(sample.u[row][None], sample.u, sample.unordered)
    cross = jnp.where(sample.is_evaluated, covariance(hyperparameters, squares, products)[0], 0.0)
    noise = noise_of(hyperparameters, sample.u.shape[1])
    others = cross.at[row].set(0.0)
    below = process.inverse_root @ others
    pivot = jnp.sqrt(jnp.maximum(cross[row] + noise - jnp.sum(below**2), noise))
    new_row = (-(below @ process.inverse_root)).at[row].set(1.0) / pivot
    inverse_root = process.inverse_root.at[row].set(new_row)
    return Process(process.vector, inverse_root.T @ (inverse_root @ values), inverse_root)


def smooth(process: Process, sample: Sample, values: Array) -> Array:
    """Mean of the function (n,) at the evaluated points, where values have noise."""
    return jnp.where(
        sample.is_evaluated, values - noise_of(unflatten(process.vector), sample.u.shape[1]) * process.weights, 0.0
    )


def predict(process: Process, sample: Sample, u: Array) -> tuple[Array, Array]:
    """Mean and standard deviation (k,) of the function, without noise, at points (k, d)."""
    hyperparameters = unflatten(process.vector)
    squares = squared_differences(u, sample.u, sample.unordered)
    products = trend_products(u, sample.u, sample.unordered)
    cross = jnp.where(sample.is_evaluated, covariance(hyperparameters, squares, products), 0.0)
    features = trend_features(u, sample.unordered)
    prior = jnp.exp(hyperparameters.variance) + trend_weights(hyperparameters) @ jnp.sum(features**2, axis=2)
    explained = jnp.sum((cross @ process.inverse_root.T) ** 2, axis=1)
    variance = jnp.maximum(prior - explained, LEAST_NOISE_SHARE**2 * prior)
    return cross @ process.weights, jnp.sqrt(variance)
