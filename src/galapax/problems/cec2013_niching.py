"""The 20 functions of the CEC 2013 niching suite, whose task is to find all global optima.

Li, Engelbrecht & Epitropakis (2013), Benchmark functions for CEC'2013 special session and competition on niching
methods for multimodal function optimization, RMIT University. Rotations and optima of the composition functions are
the suite's data (`cec2013_niching.npz`).
Differs from the report: everything is minimised, so that a peak of height h is a minimum of value -h.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import resources
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.checks import check_integer, check_positive
from galapax.core.errors import InputError
from galapax.core.problem import Problem, as_bounds

Array = jax.Array

NICHING_REPORT = "Li, Engelbrecht & Epitropakis (2013), RMIT University"
COMPOSITION_HEIGHT = 2000.0  # C in the report
ACCURACIES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of the value, at which the suite counts optima


# --- functions with a formula -----------------------------------------------------------------------------------------


def uneven_peak_trap(x: Array) -> Array:
    knots = np.array([0.0, 2.5, 5.0, 7.5, 12.5, 17.5, 22.5, 27.5, 30.0])
    heights = np.array([200.0, 0.0, 160.0, 0.0, 140.0, 0.0, 160.0, 0.0, 200.0])
    return -jnp.interp(x[0], jnp.asarray(knots, x.dtype), jnp.asarray(heights, x.dtype))


def equal_maxima(x: Array) -> Array:
    return -(jnp.sin(5 * math.pi * x[0]) ** 6)


def uneven_decreasing_maxima(x: Array) -> Array:
    decay = jnp.exp(-2 * math.log(2) * ((x[0] - 0.08) / 0.854) ** 2)
    return -decay * jnp.sin(5 * math.pi * (x[0] ** 0.75 - 0.05)) ** 6


def himmelblau(x: Array) -> Array:
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2 - 200


def six_hump_camel(x: Array) -> Array:
    a, b = x[0] ** 2, x[1] ** 2
    return (4 - 2.1 * a + a**2 / 3) * a + x[0] * x[1] + (4 * b - 4) * b


def shubert_factor(x: Array) -> Array:
    j = jnp.arange(1.0, 6.0, dtype=x.dtype)
    return jnp.sum(j * jnp.cos((j + 1) * x[..., None] + j), axis=-1)


def shubert(x: Array) -> Array:
    return jnp.prod(shubert_factor(x))


def vincent(x: Array) -> Array:
    return -jnp.mean(jnp.sin(10 * jnp.log(x)))


def modified_rastrigin(x: Array) -> Array:
    return jnp.sum(10 + 9 * jnp.cos(2 * math.pi * jnp.asarray((3.0, 4.0), x.dtype) * x))


# --- composition functions --------------------------------------------------------------------------------------------


def sphere(z: Array) -> Array:
    return jnp.sum(z**2)


def rastrigin(z: Array) -> Array:
    return jnp.sum(z**2 - 10 * jnp.cos(2 * math.pi * z) + 10)


def griewank(z: Array) -> Array:
    root = jnp.sqrt(jnp.arange(1.0, z.shape[0] + 1, dtype=z.dtype))
    return jnp.sum(z**2) / 4000 - jnp.prod(jnp.cos(z / root)) + 1


def weierstrass(z: Array) -> Array:
    k = np.arange(21)
    height, frequency = jnp.asarray(0.5**k, z.dtype), jnp.asarray(2 * math.pi * 3.0**k, z.dtype)
    # cos(pi 3^k) = -1, so the constant of the report is the sum of all heights for each variable
    return jnp.sum(height * (jnp.cos(frequency * (z[:, None] + 0.5)) + 1))


def griewank_rosenbrock(z: Array) -> Array:
    """F8F2 of the report: Griewank's function of Rosenbrock's, over neighbours in a circle."""
    u = z + 1
    valley = 100 * (u**2 - jnp.roll(u, -1)) ** 2 + (1 - u) ** 2
    return jnp.sum(1 + valley**2 / 4000 - jnp.cos(valley))


class Composition(NamedTuple):
    """The parts of a composition function; lambda and sigma of the report are `stretch` and `width`."""

    parts: tuple[Callable[[Array], Array], ...]
    stretch: tuple[float, ...]
    width: tuple[float, ...]


CF1 = Composition((griewank,) * 2 + (weierstrass,) * 2 + (sphere,) * 2, (1, 1, 8, 8, 1 / 5, 1 / 5), (1,) * 6)
CF2 = Composition(
    (rastrigin,) * 2 + (weierstrass,) * 2 + (griewank,) * 2 + (sphere,) * 2,
    (1, 1, 10, 10, 1 / 10, 1 / 10, 1 / 7, 1 / 7),
    (1,) * 8,
)
CF3 = Composition(
    (griewank_rosenbrock,) * 2 + (weierstrass,) * 2 + (griewank,) * 2,
    (1 / 4, 1 / 10, 2, 1, 2, 5),
    (1, 1, 2, 2, 2, 2),
)
CF4 = Composition(
    (rastrigin,) * 2 + (griewank_rosenbrock,) * 2 + (weierstrass,) * 2 + (griewank,) * 2,
    (4, 1, 4, 1, 1 / 10, 1 / 5, 1 / 10, 1 / 40),
    (1, 1, 1, 1, 1, 2, 2, 2),
)


def compose(
    composition: Composition, optima: np.ndarray, rotations: np.ndarray, heights: np.ndarray, x: Array
) -> Array:
    """The weighted sum of the parts at x; each has its optimum (n, d), rotation (n, d, d) and normalising height."""
    like = partial(jnp.asarray, dtype=x.dtype)
    moves = x - like(optima)
    weights = jnp.exp(-jnp.sum(moves**2, axis=1) / (2 * x.shape[0] * like(composition.width) ** 2))
    largest = jnp.max(weights)
    weights = jnp.where(weights == largest, weights, weights * (1 - largest**10))
    total = jnp.sum(weights)
    n_parts = len(composition.parts)
    weights = jnp.where(total > 0, weights / jnp.where(total > 0, total, 1), 1 / n_parts)
    z = jnp.einsum("ni,nij->nj", moves / like(composition.stretch)[:, None], like(rotations))
    values = jnp.stack([part(z[i]) for i, part in enumerate(composition.parts)])
    return jnp.sum(weights * COMPOSITION_HEIGHT * values / like(heights))


@cache
def _data() -> dict[str, np.ndarray]:
    with resources.files(__package__).joinpath("cec2013_niching.npz").open("rb") as file, np.load(file) as arrays:
        return dict(arrays)


def build_composition(number: int, composition: Composition, dim: int) -> tuple[Callable[[Array], Array], np.ndarray]:
    """Return a composition function of `dim` variables and its optima."""
    n_parts = len(composition.parts)
    optima = _data()["optima"][:n_parts, :dim]
    rotations = _data().get(f"rotations_{number}", np.tile(np.eye(dim), (n_parts, 1, 1)))
    return partial(compose, composition, optima, rotations, normalise(composition, rotations)), optima


def normalise(composition: Composition, rotations: np.ndarray) -> np.ndarray:
    """Return the heights of the parts (n,) at a corner of the box, with rotations (n, d, d)."""
    corner = np.full(rotations.shape[:2], 5.0) / np.array(composition.stretch)[:, None]
    far = np.einsum("ni,nij->nj", corner, rotations)
    with jax.enable_x64(True):
        return np.array([float(part(jnp.asarray(z))) for part, z in zip(composition.parts, far, strict=True)])


# --- the optima of the functions with a formula -----------------------------------------------------------------------


def shubert_optima(dim: int) -> np.ndarray:
    """One factor is at its least value and the others at their largest, or, of three, all at their least."""
    least, largest = (
        np.array([x + 2 * math.pi * turn for turn in (-1, 0, 1) if abs(x + 2 * math.pi * turn) <= 10])
        for x in (-1.4251284283197613, -0.8003211004719731)
    )
    # of dim = 2 and 3, the lowest product has exactly one negative factor
    return np.array(
        [
            point
            for place in range(dim)
            for point in itertools.product(*(least if i == place else largest for i in range(dim)))
        ]
    )


def vincent_optima(dim: int) -> np.ndarray:
    peaks = np.exp((math.pi / 2 + 2 * math.pi * np.arange(-2, 4)) / 10)
    return np.array(list(itertools.product(peaks, repeat=dim)))


HIMMELBLAU_OPTIMA = (
    (3.0, 2.0),
    (-2.805118086952745, 3.131312518250573),
    (-3.779310253377747, -3.283185991286170),
    (3.584428340330492, -1.848126526964404),
)
CAMEL_OPTIMUM = (0.08984201310031806, -0.7126564030207396)
RASTRIGIN_OPTIMA = list(itertools.product((np.arange(3) + 0.5) / 3, (np.arange(4) + 0.5) / 4))


# --- the suite --------------------------------------------------------------------------------------------------------


class NichingFunction(NamedTuple):
    """A function of the suite."""

    title: str
    fun: Callable[[Array], Array] | Composition
    bounds: Sequence[tuple[float, float]]
    peak: float  # height of the global optima
    optima: Callable[[], Sequence[Sequence[float]] | np.ndarray] | None  # None: those of the composition
    n_optima: int
    radius: float  # within which two points count as one optimum
    max_evaluations: int


def _plane(low: float, high: float, dim: int) -> list[tuple[float, float]]:
    return [(low, high)] * dim


NICHING_FUNCTIONS = {
    1: NichingFunction(
        "Five-uneven-peak trap", uneven_peak_trap, [(0, 30)], 200.0, lambda: [[0.0], [30.0]], 2, 0.01, 50_000
    ),
    2: NichingFunction(
        "Equal maxima", equal_maxima, [(0, 1)], 1.0, lambda: np.arange(0.1, 1, 0.2)[:, None], 5, 0.01, 50_000
    ),
    3: NichingFunction(
        "Uneven decreasing maxima",
        uneven_decreasing_maxima,
        [(0, 1)],
        1.0,
        lambda: [[0.07969977961179582]],
        1,
        0.01,
        50_000,
    ),
    4: NichingFunction("Himmelblau", himmelblau, _plane(-6, 6, 2), 200.0, lambda: HIMMELBLAU_OPTIMA, 4, 0.01, 50_000),
    5: NichingFunction(
        "Six-hump camel back",
        six_hump_camel,
        [(-1.9, 1.9), (-1.1, 1.1)],
        1.031628453489877,
        lambda: [CAMEL_OPTIMUM, tuple(-x for x in CAMEL_OPTIMUM)],
        2,
        0.5,
        50_000,
    ),
    6: NichingFunction(
        "Shubert 2-D", shubert, _plane(-10, 10, 2), 186.7309088310239, partial(shubert_optima, 2), 18, 0.5, 200_000
    ),
    7: NichingFunction("Vincent 2-D", vincent, _plane(0.25, 10, 2), 1.0, partial(vincent_optima, 2), 36, 0.2, 200_000),
    8: NichingFunction(
        "Shubert 3-D", shubert, _plane(-10, 10, 3), 2709.093505572820, partial(shubert_optima, 3), 81, 0.5, 400_000
    ),
    9: NichingFunction("Vincent 3-D", vincent, _plane(0.25, 10, 3), 1.0, partial(vincent_optima, 3), 216, 0.2, 400_000),
    10: NichingFunction(
        "Modified Rastrigin", modified_rastrigin, _plane(0, 1, 2), -2.0, lambda: RASTRIGIN_OPTIMA, 12, 0.01, 200_000
    ),
}
NICHING_FUNCTIONS |= {
    number: NichingFunction(
        f"Composition {name}, {dim}-D", parts, _plane(-5, 5, dim), 0.0, None, len(parts.parts), 0.01, budget
    )
    for number, name, parts, dim, budget in (
        (11, "CF1", CF1, 2, 200_000),
        (12, "CF2", CF2, 2, 200_000),
        (13, "CF3", CF3, 2, 200_000),
        (14, "CF3", CF3, 3, 400_000),
        (15, "CF4", CF4, 3, 400_000),
        (16, "CF3", CF3, 5, 400_000),
        (17, "CF4", CF4, 5, 400_000),
        (18, "CF3", CF3, 10, 400_000),
        (19, "CF4", CF4, 10, 400_000),
        (20, "CF4", CF4, 20, 400_000),
    )
}


def niching(function: int) -> Problem:
    """Function 1 to 20 of the CEC 2013 niching suite, minimised; `solutions` (k, d) has all its global optima.

    `galapax.problems.cec2013_niching.NICHING_FUNCTIONS` has the suite's budgets and radii.
    """
    if check_integer(function, "function", 1) not in NICHING_FUNCTIONS:
        raise InputError(f"function must be 1 to {len(NICHING_FUNCTIONS)}, a function of the suite; got {function}.")
    return _build(int(function))


@cache
def _build(number: int) -> Problem:
    definition = NICHING_FUNCTIONS[number]
    fun, optima = definition.fun, definition.optima
    if isinstance(fun, Composition):
        formula, points = build_composition(number, fun, len(definition.bounds))
    else:
        assert optima is not None
        formula, points = fun, np.array(optima(), float)
    return Problem(
        formula,
        as_bounds(definition.bounds),
        name=f"niching_f{number}",
        title=definition.title,
        source=f"{NICHING_REPORT}, F{number}",
        optimum=-definition.peak,
        solutions=points,
    )


def count_optima(function: int | NichingFunction, x: np.ndarray, fun: np.ndarray, accuracy: float) -> int:
    """Count the distinct global optima among the points x (n, d) with values fun (n,), by the rule of the suite.

    From the best to the worst, a point within the radius of a better one is the same optimum as that.
    """
    definition = NICHING_FUNCTIONS[function] if isinstance(function, int) else function
    check_positive(accuracy, "accuracy")
    seeds: list[np.ndarray] = []
    for row in np.argsort(fun, kind="stable"):
        if abs(fun[row] + definition.peak) > accuracy:
            break  # all others are worse
        if all(np.linalg.norm(x[row] - seed) > definition.radius for seed in seeds):
            seeds.append(x[row])
    return min(len(seeds), definition.n_optima)
