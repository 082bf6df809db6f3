"""The 30 noisy BBOB functions of the COCO platform, f101 to f130: ten functions with three kinds of noise.

Finck, Hansen, Ros & Auger (2010), Real-parameter black-box optimization benchmarking 2010: presentation of the noisy
functions, INRIA RR-6869. The noise depends on the value, and ends below 1e-8, so that targets down to 1e-8 are found.
Differs from the report: values are less f_opt, as those of `bbob` are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from galapax.core.checks import check_integer
from galapax.core.errors import InputError
from galapax.core.problem import Problem, box
from galapax.problems import bbob_functions as functions
from galapax.problems import bbob_instances as instances
from galapax.problems.bbob import BBOB_FUNCTIONS, check_size

Array = jax.Array

NOISY_REPORT = "Finck, Hansen, Ros & Auger (2010), INRIA RR-6869"
NOISELESS_BELOW = 1e-8  # of a value
BOX_PENALTY = 100.0  # of the squared distance from the box, without noise


class Noise(NamedTuple):
    """One kind of noise. distort: maps a value, a key and the number of variables to a random value."""

    title: str
    distort: Callable[[Array, Array, int], Array]


class NoisyDefinition(NamedTuple):
    function: int  # of the BBOB suite, whose instances are shared
    formula: Callable[..., Array]
    noise: Noise


def distort_by_gauss(f: Array, key: Array, dim: int, beta: float) -> Array:
    """f_GN: log-normal factors."""
    return f * jnp.exp(beta * jax.random.normal(key, dtype=f.dtype))


def distort_by_uniform(f: Array, key: Array, dim: int, strength: float) -> Array:
    """f_UN: a factor below 1, and one that is the larger the smaller f is."""
    shrink, grow = jax.random.uniform(key, (2,), f.dtype)
    alpha = strength * (0.49 + 1.0 / dim)
    return f * shrink**strength * jnp.maximum(1.0, (1e9 / jnp.maximum(f, NOISELESS_BELOW)) ** (alpha * grow))


def distort_by_cauchy(f: Array, key: Array, dim: int, alpha: float, probability: float) -> Array:
    """f_CN: now and then a Cauchy variate, cut off below; 1000 alpha is added to every value."""
    chance, over, under = jax.random.split(key, 3)
    is_disturbed = jax.random.bernoulli(chance, probability)
    ratio = jax.random.normal(over, dtype=f.dtype) / jnp.abs(jax.random.normal(under, dtype=f.dtype))
    return f + alpha * jnp.maximum(0.0, 1000.0 + jnp.where(is_disturbed, ratio, 0.0))


MODERATE = (
    Noise("moderate Gaussian noise", partial(distort_by_gauss, beta=0.01)),
    Noise("moderate uniform noise", partial(distort_by_uniform, strength=0.01)),
    Noise("moderate, seldom Cauchy noise", partial(distort_by_cauchy, alpha=0.01, probability=0.05)),
)
SEVERE = (
    Noise("Gaussian noise", partial(distort_by_gauss, beta=1.0)),
    Noise("uniform noise", partial(distort_by_uniform, strength=1.0)),
    Noise("seldom Cauchy noise", partial(distort_by_cauchy, alpha=1.0, probability=0.2)),
)
FAMILIES: list[tuple[int, Callable[..., Array], tuple[Noise, ...]]] = [
    (1, functions.sphere, MODERATE),
    (8, functions.rosenbrock, MODERATE),
    (1, functions.sphere, SEVERE),
    (8, functions.rosenbrock, SEVERE),
    (7, partial(functions.step_ellipsoid, penalty=0.0), SEVERE),
    (10, partial(functions.rotated_ellipsoid, condition=1e4), SEVERE),
    (14, functions.different_powers, SEVERE),
    (17, partial(functions.schaffers, penalty=0.0), SEVERE),
    (19, partial(functions.griewank_rosenbrock, factor=1.0), SEVERE),
    (21, partial(functions.gallagher, penalty=0.0), SEVERE),
]
NOISY_FUNCTIONS = {
    number: NoisyDefinition(function, formula, noise)
    for number, (function, formula, noise) in enumerate(
        ((function, formula, noise) for function, formula, kinds in FAMILIES for noise in kinds), 101
    )
}


def bbob_noisy(function: int, dim: int, instance: int = 1, noise: bool = True) -> Problem:
    """Function 101 to 130 of the noisy BBOB suite in `dim` variables on [-5, 5], as f(x, key) - f_opt.

    instance: which optimum, rotations and peaks, the same as COCO's of that number.
    noise: False for the function under the noise, f(x) - f_opt, by which answers are judged: its best value is 0.
    """
    if check_integer(function, "function", 1) not in NOISY_FUNCTIONS:
        raise InputError(f"function must be 101 to 130, the number of a noisy BBOB function; got {function}.")
    check_size(dim)
    return _build(int(function), int(dim), check_integer(instance, "instance", 1), bool(noise))


@cache
def _build(number: int, dim: int, instance: int, is_noisy: bool) -> Problem:
    function, formula, noise = NOISY_FUNCTIONS[number]
    definition = BBOB_FUNCTIONS[function]
    arrays = definition.instance(instances.seed_of(function, instance), dim)
    evaluate = partial(_evaluate_noisy, formula, arrays, noise) if is_noisy else partial(_evaluate, formula, arrays)
    return Problem(
        evaluate,
        box(-5.0, 5.0, dim),
        name=f"bbob_f{number}_i{instance}",
        title=f"{definition.title}, {noise.title if is_noisy else 'without its noise'}",
        source=f"{NOISY_REPORT}, f{number}, instance {instance}",
        optimum=None if is_noisy else 0.0,
        solutions=arrays[0][None],
    )


def _evaluate_noisy(
    formula: Callable[..., Array], arrays: tuple[np.ndarray, ...], noise: Noise, x: ArrayLike, key: Array
) -> Array:
    f, penalty = _value_and_penalty(formula, arrays, x)
    distorted = noise.distort(f, key, np.shape(x)[0]) + 1.01 * NOISELESS_BELOW
    return jnp.where(f < NOISELESS_BELOW, f, distorted) + penalty


def _evaluate(formula: Callable[..., Array], arrays: tuple[np.ndarray, ...], x: ArrayLike) -> Array:
    f, penalty = _value_and_penalty(formula, arrays, x)
    return f + penalty


def _value_and_penalty(
    formula: Callable[..., Array], arrays: tuple[np.ndarray, ...], x: ArrayLike
) -> tuple[Array, Array]:
    x = jnp.asarray(x)
    f = formula(x, *(jnp.asarray(array, x.dtype) for array in arrays))
    return f, BOX_PENALTY * functions.outside(x)
