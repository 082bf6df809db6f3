"""The formulas of the 24 noiseless BBOB functions, as functions of one solution x (d,) and an instance's arrays.

Hansen, Finck, Ros & Auger (2009), INRIA RR-6829. Each returns f(x) - f_opt, written so that nothing cancels near the
optimum: 1 - cos is a squared sine, exponentials less 1 are expm1, and Rosenbrock's valley is measured from its end.
Values keep their digits down to the smallest number, in float32 too. What an instance holds is in bbob_instances.py.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from galapax.problems.bbob_instances import conditioning, slope

Array = jax.Array

SCHWEFEL_AT = 420.96874635998205  # where z sin(sqrt(z)) is largest, and its root
SCHWEFEL_ROOT = math.sqrt(SCHWEFEL_AT)
SCHWEFEL_SHIFT = 100.0 * 4.2096874633 - SCHWEFEL_AT  # the report's x_opt has eleven digits


def _like(x: Array, values: np.ndarray) -> Array:
    return jnp.asarray(values, x.dtype)


def _slope(x: Array) -> Array:
    return _like(x, slope(x.shape[0]))


def _oscillating(x: Array) -> Array:
    """T_osz: waves, in the logarithm of |x|, of about a tenth of x."""
    log = jnp.log(jnp.where(x == 0.0, 1.0, jnp.abs(x)))
    first, second = jnp.where(x > 0.0, 10.0, 5.5), jnp.where(x > 0.0, 7.9, 3.1)
    return x * jnp.exp(0.049 * (jnp.sin(first * log) + jnp.sin(second * log)))


def _asymmetric(x: Array, beta: float) -> Array:
    """T_asy: positive coordinates grow faster, later ones more so."""
    positive = jnp.where(x > 0.0, x, 1.0)
    return x * jnp.exp(beta * _slope(x) * jnp.sqrt(positive) * jnp.log(positive))


def outside(x: Array) -> Array:
    """f_pen: squared distance from the box [-5, 5]^d."""
    return jnp.sum(jnp.maximum(jnp.abs(x) - 5.0, 0.0) ** 2)


def _ripples(z: Array) -> Array:
    """10 (D - sum cos(2 pi z))."""
    return 20.0 * jnp.sum(jnp.sin(math.pi * z) ** 2)


def _scale(x: Array) -> float:
    return max(1.0, math.sqrt(x.shape[0]) / 8.0)


def _valley(t: Array) -> tuple[Array, Array]:
    """Rosenbrock's terms (z_i^2 - z_(i+1))^2 and (z_i - 1)^2 at z = 1 + t, each (d - 1,)."""
    return (t[:-1] * (2.0 + t[:-1]) - t[1:]) ** 2, t[:-1] ** 2


# --- separable --------------------------------------------------------------------------------------------------------


def sphere(x: Array, x_opt: Array) -> Array:
    return jnp.sum((x - x_opt) ** 2)


def ellipsoid(x: Array, x_opt: Array) -> Array:
    return jnp.sum(_like(x, conditioning(1e12, x.shape[0])) * _oscillating(x - x_opt) ** 2)


def rastrigin(x: Array, x_opt: Array) -> Array:
    z = _like(x, conditioning(10.0, x.shape[0])) * _asymmetric(_oscillating(x - x_opt), 0.2)
    return _ripples(z) + jnp.sum(z**2)


def bueche_rastrigin(x: Array, x_opt: Array) -> Array:
    t, odd = _oscillating(x - x_opt), _like(x, 1.0 - np.arange(x.shape[0]) % 2)  # odd counted from 1
    z = _like(x, conditioning(10.0, x.shape[0])) * t * jnp.where(t > 0.0, 1.0 + 9.0 * odd, 1.0)
    return _ripples(z) + jnp.sum(z**2) + 100.0 * outside(x)


def linear_slope(x: Array, x_opt: Array, signs: Array, steepness: Array) -> Array:
    return jnp.sum(steepness * jnp.maximum(signs * (x_opt - x), 0.0))


# --- low or moderate conditioning -------------------------------------------------------------------------------------


def attractive_sector(x: Array, x_opt: Array, stretch: Array) -> Array:
    z = stretch @ (x - x_opt)
    return _oscillating(jnp.sum((jnp.where(z * x_opt > 0.0, 100.0, 1.0) * z) ** 2)) ** 0.9


def step_ellipsoid(x: Array, x_opt: Array, stretch: Array, q: Array, penalty: float = 1.0) -> Array:
    t = stretch @ (x - x_opt)
    z = q @ jnp.where(jnp.abs(t) > 0.5, jnp.floor(0.5 + t), jnp.floor(0.5 + 10.0 * t) / 10.0)
    steps = jnp.sum(_like(x, conditioning(1e4, x.shape[0])) * z**2)
    return 0.1 * jnp.maximum(jnp.abs(t[0]) / 1e4, steps) + penalty * outside(x)


def rosenbrock(x: Array, x_opt: Array) -> Array:
    bend, length = _valley(_scale(x) * (x - x_opt))
    return jnp.sum(100.0 * bend + length)


def rotated_rosenbrock(x: Array, x_opt: Array, r: Array) -> Array:
    bend, length = _valley(_scale(x) * (r @ (x - x_opt)))
    return jnp.sum(100.0 * bend + length)


# --- high conditioning, one minimum -----------------------------------------------------------------------------------


def rotated_ellipsoid(x: Array, x_opt: Array, r: Array, condition: float = 1e6) -> Array:
    return jnp.sum(_like(x, conditioning(condition**2, x.shape[0])) * _oscillating(r @ (x - x_opt)) ** 2)


def discus(x: Array, x_opt: Array, r: Array) -> Array:
    z = _oscillating(r @ (x - x_opt))
    return 1e6 * z[0] ** 2 + jnp.sum(z[1:] ** 2)


def bent_cigar(x: Array, x_opt: Array, r: Array) -> Array:
    z = r @ _asymmetric(r @ (x - x_opt), 0.5)
    return z[0] ** 2 + 1e6 * jnp.sum(z[1:] ** 2)


def sharp_ridge(x: Array, x_opt: Array, stretch: Array) -> Array:
    z = stretch @ (x - x_opt)
    return z[0] ** 2 + 100.0 * jnp.sqrt(jnp.sum(z[1:] ** 2))


def different_powers(x: Array, x_opt: Array, r: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.abs(r @ (x - x_opt)) ** (2.0 + 4.0 * _slope(x))))


# --- many minima, with a structure ------------------------------------------------------------------------------------


def rotated_rastrigin(x: Array, x_opt: Array, r: Array, stretch: Array) -> Array:
    z = stretch @ _asymmetric(_oscillating(r @ (x - x_opt)), 0.2)
    return _ripples(z) + jnp.sum(z**2)


def weierstrass(x: Array, x_opt: Array, r: Array, stretch: Array) -> Array:
    z = stretch @ _oscillating(r @ (x - x_opt))
    # cos(2 pi 3^k (z + 1/2)) is -cos(2 pi 3^k z), and f_0 is the sum of these at z = 0. Of three waves, each three
    # times as fast as the last, two follow from the first: sin(3 a) = sin(a) (3 - 4 sin(a)^2).
    k = np.arange(0.0, 12.0, 3.0)
    turns = _like(x, 3.0**k) * z[:, None]
    first = jnp.sin(math.pi * (turns - jnp.round(turns))) ** 2
    second = first * (3.0 - 4.0 * first) ** 2
    third = second * (3.0 - 4.0 * second) ** 2
    waves = jnp.mean(first + second / 2.0 + third / 4.0, axis=0)
    return 10.0 * jnp.sum(waves * _like(x, 2.0 ** (1.0 - k))) ** 3 + 10.0 / x.shape[0] * outside(x)


def schaffers(x: Array, x_opt: Array, r: Array, stretch: Array, penalty: float = 10.0) -> Array:
    z = stretch @ _asymmetric(r @ (x - x_opt), 0.5)
    square = z[:-1] ** 2 + z[1:] ** 2
    waves = 1.0 + jnp.sin(50.0 * square**0.1) ** 2
    return jnp.mean(jnp.sqrt(jnp.sqrt(square)) * waves) ** 2 + penalty * outside(x)


def griewank_rosenbrock(x: Array, x_opt: Array, r: Array, factor: float = 10.0) -> Array:
    bend, length = _valley(_scale(x) * (r @ (x - x_opt)))
    s = 100.0 * bend + length
    return factor * jnp.mean(s / 4000.0 + 2.0 * jnp.sin(s / 2.0) ** 2)


# --- many minima, little structure ------------------------------------------------------------------------------------


def schwefel(x: Array, x_opt: Array, signs: Array) -> Array:
    t = 2.0 * signs * (x - x_opt)
    w = 100.0 * _like(x, conditioning(10.0, x.shape[0])) * (t + 0.25 * jnp.roll(t, 1).at[0].set(0.0))
    z = w + 100.0 * 4.2096874633
    far = jnp.mean(_below_schwefel(z, w + SCHWEFEL_SHIFT)) / 100.0
    return far + 0.01 * jnp.sum(jnp.maximum(jnp.abs(z) - 500.0, 0.0) ** 2)


def _below_schwefel(z: Array, w: Array) -> Array:
    """By how much z sin(sqrt(|z|)) is smaller than at its top w away, (d,).

    With u the root of z, u* that of the top and h = u - u*, what is of first order in h vanishes since the slope does,
    2 sin u* = -u* cos u*; it is left out, and what remains does not cancel.
    """
    top, u = SCHWEFEL_ROOT, jnp.sqrt(jnp.abs(z))
    h = w / (u + top)
    sine, cosine = jnp.sin(h), jnp.cos(h)
    bend = top**2 * (h * cosine - sine) + top * h * (0.5 * h * cosine - 2.0 * sine) - h**2 * sine
    value = SCHWEFEL_AT * math.sin(top)
    right = value * 2.0 * jnp.sin(0.5 * h) ** 2 + math.cos(top) * bend
    return jnp.where(z >= 0.0, right, value + u**2 * jnp.sin(u))


def gallagher(
    x: Array, x_opt: Array, r: Array, width: Array, terms: Array, offset: Array, heights: Array, penalty: float = 1.0
) -> Array:
    away = r @ (x - x_opt)
    # the peaks around as one matrix product: what cancels in it is far below the 0.9 that their heights differ from 10
    distance = terms @ jnp.concatenate([away**2, away]) + offset
    around = 10.0 - jnp.max(heights * jnp.exp(-distance))
    return _oscillating(jnp.minimum(-10.0 * jnp.expm1(-jnp.sum(width * away**2)), around)) ** 2 + penalty * outside(x)


def katsuura(x: Array, x_opt: Array, stretch: Array) -> Array:
    d = x.shape[0]
    scaled = _like(x, 2.0 ** np.arange(1, 33)) * (stretch @ (x - x_opt))[:, None]
    rough = jnp.abs(scaled - jnp.round(scaled)) @ _like(x, 2.0 ** -np.arange(1.0, 33.0))
    log = jnp.sum(jnp.log1p(_like(x, np.arange(1.0, d + 1.0)) * rough))
    return 10.0 / d**2 * jnp.expm1(10.0 / d**1.2 * log) + outside(x)


def lunacek(x: Array, x_opt: Array, signs: Array, stretch: Array) -> Array:
    d = x.shape[0]
    s = 1.0 - 1.0 / (2.0 * math.sqrt(d + 20.0) - 8.2)
    second = -math.sqrt((2.5**2 - 1.0) / s)
    t = 2.0 * signs * (x - x_opt)
    funnels = jnp.minimum(jnp.sum(t**2), d + s * jnp.sum((t + (2.5 - second)) ** 2))
    return funnels + _ripples(stretch @ t) + 1e4 * outside(x)
