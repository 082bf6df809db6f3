"""The BBOB functions of the COCO platform: 24 noiseless, 30 noisy, each in as many instances as one likes.

Hansen, Finck, Ros & Auger (2009), INRIA RR-6829, https://inria.hal.science/inria-00362633; Hansen et al. (2021), COCO:
a platform for comparing continuous optimizers in a black-box setting, Optim. Methods Softw. 36(1):114-144. The noisy
ones, f101 to f130, are ten functions with three kinds of noise: Finck, Hansen, Ros & Auger (2010), INRIA RR-6869. Their
noise depends on the value, and ends below 1e-8, so that targets down to 1e-8 are found. Differs from the reports: f(x)
- f_opt is returned, since float32 could not hold 1e-8 beside an f_opt of up to 1000.
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

Array = jax.Array

BBOB_REPORT = "Hansen, Finck, Ros & Auger (2009), INRIA RR-6829"
MAX_BBOB_DIM = 1000  # variables, since a rotation has their square


class Definition(NamedTuple):
    title: str
    formula: Callable[..., Array]  # of x and the instance's arrays
    instance: Callable[[int, int], tuple[np.ndarray, ...]]  # of seed and dim: x_opt, then the other arrays


BBOB_FUNCTIONS = {
    1: Definition("Sphere", functions.sphere, instances.shifted),
    2: Definition("Separable ellipsoid", functions.ellipsoid, instances.shifted),
    3: Definition("Separable Rastrigin", functions.rastrigin, instances.shifted),
    4: Definition("Bueche-Rastrigin", functions.bueche_rastrigin, instances.shifted_oddly),
    5: Definition("Linear slope", functions.linear_slope, instances.corner),
    6: Definition("Attractive sector", functions.attractive_sector, partial(instances.stretched, 10.0)),
    7: Definition("Step ellipsoid", functions.step_ellipsoid, instances.steps),
    8: Definition("Rosenbrock", functions.rosenbrock, instances.shrunk),
    9: Definition("Rotated Rosenbrock", functions.rotated_rosenbrock, instances.rotated_valley),
    10: Definition("Rotated ellipsoid", functions.rotated_ellipsoid, instances.rotated),
    11: Definition("Discus", functions.discus, instances.rotated),
    12: Definition("Bent cigar", functions.bent_cigar, instances.rotated_cigar),
    13: Definition("Sharp ridge", functions.sharp_ridge, partial(instances.stretched, 10.0)),
    14: Definition("Different powers", functions.different_powers, instances.rotated),
    15: Definition("Rotated Rastrigin", functions.rotated_rastrigin, partial(instances.twice_rotated, 10.0)),
    16: Definition("Weierstrass", functions.weierstrass, partial(instances.twice_rotated, 0.01)),
    17: Definition("Schaffers F7", functions.schaffers, partial(instances.rotated_stretched, 10.0)),
    18: Definition("Schaffers F7, ill-conditioned", functions.schaffers, partial(instances.rotated_stretched, 1e3)),
    19: Definition("Griewank-Rosenbrock", functions.griewank_rosenbrock, instances.rotated_valley),
    20: Definition("Schwefel", functions.schwefel, instances.schwefel),
    21: Definition("Gallagher, 101 peaks", functions.gallagher, partial(instances.peaks, 101, 5.0, 1e3)),
    22: Definition("Gallagher, 21 peaks", functions.gallagher, partial(instances.peaks, 21, 4.9, 1e6)),
    23: Definition("Katsuura", functions.katsuura, partial(instances.stretched, 100.0)),
    24: Definition("Lunacek bi-Rastrigin", functions.lunacek, instances.lunacek),
}


def bbob(function: int, dim: int, instance: int = 1) -> Problem:
    """Function 1 to 24 of the BBOB suite in `dim` variables on [-5, 5], as f(x) - f_opt: its best value is 0.

    instance: which optimum, rotations and peaks, the same as COCO's of that number; one program serves them all.
    """
    if check_integer(function, "function", 1) not in BBOB_FUNCTIONS:
        raise InputError(f"function must be 1 to {len(BBOB_FUNCTIONS)}, the number of a BBOB function; got {function}.")
    check_size(dim)
    return _build(int(function), int(dim), check_integer(instance, "instance", 1))


def check_size(dim: int) -> None:
    """Raise an InputError unless the suite's functions exist in so many variables."""
    if check_integer(dim, "dim", 2, "the functions grade their variables from a first to a last") > MAX_BBOB_DIM:
        raise InputError(f"dim must be at most {MAX_BBOB_DIM}, since the rotations are dim x dim; got {dim}.")


def suite(dim: int, instance: int = 1) -> list[Problem]:
    """All 24 functions in one size and instance."""
    return [bbob(function, dim, instance) for function in BBOB_FUNCTIONS]


def optimal_value(function: int, instance: int = 1) -> float:
    """f_opt, which COCO adds to what `bbob` returns."""
    return instances.optimal_value(function, instance)


@cache
def _build(function: int, dim: int, instance: int) -> Problem:
    title, formula, make = BBOB_FUNCTIONS[function]
    arrays = make(instances.seed_of(function, instance), dim)
    return Problem(
        partial(_evaluate, formula, arrays),
        box(-5.0, 5.0, dim),
        name=f"bbob_f{function}_i{instance}",
        title=title,
        source=f"{BBOB_REPORT}, f{function}, instance {instance}",
        optimum=0.0,
        solutions=arrays[0][None],
    )


def _evaluate(formula: Callable[..., Array], arrays: tuple[np.ndarray, ...], x: ArrayLike) -> Array:
    x = jnp.asarray(x)
    return formula(x, *(jnp.asarray(array, x.dtype) for array in arrays))


# --- the noisy functions ----------------------------------------------------------------------------------------------


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
    return _build_noisy(int(function), int(dim), check_integer(instance, "instance", 1), bool(noise))


@cache
def _build_noisy(number: int, dim: int, instance: int, is_noisy: bool) -> Problem:
    function, formula, noise = NOISY_FUNCTIONS[number]
    definition = BBOB_FUNCTIONS[function]
    arrays = definition.instance(instances.seed_of(function, instance), dim)
    evaluate = (
        partial(_evaluate_noisy, formula, arrays, noise)
        if is_noisy
        else partial(_evaluate_without_noise, formula, arrays)
    )
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


def _evaluate_without_noise(formula: Callable[..., Array], arrays: tuple[np.ndarray, ...], x: ArrayLike) -> Array:
    f, penalty = _value_and_penalty(formula, arrays, x)
    return f + penalty


def _value_and_penalty(
    formula: Callable[..., Array], arrays: tuple[np.ndarray, ...], x: ArrayLike
) -> tuple[Array, Array]:
    x = jnp.asarray(x)
    f = formula(x, *(jnp.asarray(array, x.dtype) for array in arrays))
    return f, BOX_PENALTY * functions.outside(x)
