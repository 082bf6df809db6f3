"""Classical unconstrained functions of one objective, and the same functions as two GPU papers set them.

Collected by Yao, Liu & Lin (1999) and by Laguna & Marti (2005); where the literature disagrees about a box or a
constant, the factory says which one is used.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError
from galapax.core.problem import Function, Problem, as_bounds, box

Array = jax.Array

YAO = "Yao, Liu & Lin (1999), IEEE Trans. Evol. Comput. 3(2):82-102"
LAGUNA = "Laguna & Marti (2005), J. Global Optim. 33(2):235-255"
FOK = "Fok, Wong & Wong (2007), Evolutionary Computing on Consumer-Level Graphics Hardware"
GAGPU = "Smith, GPU Accelerated Genetic Algorithm and Solver Information (GAGPU manual), version 1.1"


def _everywhere(
    name: str,
    title: str,
    source: str,
    fun: Function,
    low: float,
    high: float,
    dim: int,
    *,
    at: float,
    each: float = 0.0,
) -> Problem:
    """A problem on [low, high]^dim with its minimum, `each` per variable, at (at, ..., at)."""
    bounds = box(low, high, dim)
    solutions = np.full((1, dim), at)
    return Problem(fun, bounds, name=name, title=title, source=source, optimum=each * dim, solutions=solutions)


def _sphere(x: Array) -> Array:
    return jnp.sum(x**2)


def sphere(dim: int = 10) -> Problem:
    """f1 of Yao, Liu & Lin (1999)."""
    return _everywhere("sphere", "Sum of squares", f"{YAO}, f1", _sphere, -100.0, 100.0, dim, at=0.0)


def _ellipsoid(x: Array) -> Array:
    return jnp.sum(jnp.asarray(10.0 ** np.linspace(0.0, 6.0, x.shape[0]), x.dtype) * x**2)


def ellipsoid(dim: int = 10) -> Problem:
    """f_elli of Hansen & Ostermeier (2001), Evol. Comput. 9(2):159-195."""
    title = "Axis-parallel ellipsoid with axis ratio 1000"
    source = "Hansen & Ostermeier (2001), Evol. Comput. 9(2):159-195, f_elli"
    return _everywhere("ellipsoid", title, source, _ellipsoid, -100.0, 100.0, dim, at=0.0)


def _schwefel_1_2(x: Array) -> Array:
    return jnp.sum(jnp.cumsum(x) ** 2)


def schwefel_1_2(dim: int = 10) -> Problem:
    """f3 of Yao, Liu & Lin (1999): Schwefel's problem 1.2."""
    title = "Squares of the partial sums, a rotated ellipsoid"
    return _everywhere("schwefel_1_2", title, f"{YAO}, f3", _schwefel_1_2, -100.0, 100.0, dim, at=0.0)


def _rosenbrock(x: Array) -> Array:
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (x[:-1] - 1.0) ** 2)


def rosenbrock(dim: int = 10) -> Problem:
    """f5 of Yao, Liu & Lin (1999)."""
    problem = _everywhere(
        "rosenbrock", "Curved valley with a flat floor", f"{YAO}, f5", _rosenbrock, -30.0, 30.0, dim, at=1.0
    )
    if dim < 2:
        raise InputError(f"rosenbrock couples neighbouring variables: dim must be at least 2, got {dim}.")
    return problem


def _schwefel_2_26(x: Array) -> Array:
    return -jnp.sum(x * jnp.sin(jnp.sqrt(jnp.abs(x))))


def schwefel_2_26(dim: int = 10) -> Problem:
    """f8 of Yao, Liu & Lin (1999): Schwefel's problem 2.26, not shifted to an optimum of 0."""
    title = "Many minima, the best one far from the second best"
    return _everywhere(
        "schwefel_2_26",
        title,
        f"{YAO}, f8",
        _schwefel_2_26,
        -500.0,
        500.0,
        dim,
        at=420.96874635998205,
        each=-418.98288727243371,
    )


def _rastrigin(x: Array) -> Array:
    # 10 - 10 cos(2 pi x) as 20 sin(pi x)^2: no cancellation near the optimum, where float32 would lose it all.
    return jnp.sum(x**2 + 20.0 * jnp.sin(math.pi * x) ** 2)


def rastrigin(dim: int = 10) -> Problem:
    """f9 of Yao, Liu & Lin (1999)."""
    title = "Bowl with a minimum near every integer point"
    return _everywhere("rastrigin", title, f"{YAO}, f9", _rastrigin, -5.12, 5.12, dim, at=0.0)


def _ackley(x: Array) -> Array:
    # The usual form with 20 + e written into two expm1, so that values near the optimum keep their digits.
    slope = -20.0 * jnp.expm1(-0.2 * jnp.sqrt(jnp.mean(x**2)))
    return slope - math.e * jnp.expm1(-2.0 * jnp.mean(jnp.sin(math.pi * x) ** 2))


def ackley(dim: int = 10) -> Problem:
    """f10 of Yao, Liu & Lin (1999), on the wider box of +-32.768 that later collections use."""
    title = "Nearly flat plain of small minima around one deep hole"
    return _everywhere("ackley", title, f"{YAO}, f10", _ackley, -32.768, 32.768, dim, at=0.0)


def _griewank(x: Array) -> Array:
    scale = jnp.asarray(np.sqrt(np.arange(1.0, x.shape[0] + 1.0)), x.dtype)
    return jnp.sum(x**2) / 4000.0 - jnp.prod(jnp.cos(x / scale)) + 1.0


def griewank(dim: int = 10) -> Problem:
    """f11 of Yao, Liu & Lin (1999)."""
    title = "Wide bowl with a fine ripple of products of cosines"
    return _everywhere("griewank", title, f"{YAO}, f11", _griewank, -600.0, 600.0, dim, at=0.0)


def _levy(x: Array) -> Array:
    w = 1.0 + (x - 1.0) / 4.0
    first = jnp.sin(math.pi * w[0]) ** 2
    inner = jnp.sum((w[:-1] - 1.0) ** 2 * (1.0 + 10.0 * jnp.sin(math.pi * w[:-1] + 1.0) ** 2))
    return first + inner + (w[-1] - 1.0) ** 2 * (1.0 + jnp.sin(2.0 * math.pi * w[-1]) ** 2)


def levy(dim: int = 10) -> Problem:
    """Levy function of Laguna & Marti (2005)."""
    title = "Parabola under squared sines"
    return _everywhere("levy", title, f"{LAGUNA}, Levy", _levy, -10.0, 10.0, dim, at=1.0)


def _zakharov(x: Array) -> Array:
    q = jnp.sum(jnp.asarray(0.5 * np.arange(1.0, x.shape[0] + 1.0), x.dtype) * x)
    return jnp.sum(x**2) + q**2 + q**4


def zakharov(dim: int = 10) -> Problem:
    """Zakharov function of Laguna & Marti (2005)."""
    title = "Bowl with a quartic wall along one direction"
    return _everywhere("zakharov", title, f"{LAGUNA}, Zakharov", _zakharov, -5.0, 10.0, dim, at=0.0)


def _michalewicz(x: Array) -> Array:
    index = jnp.asarray(np.arange(1.0, x.shape[0] + 1.0), x.dtype)
    return -jnp.sum(jnp.sin(x) * jnp.sin(index * x**2 / math.pi) ** 20)


def _michalewicz_solution(dim: int) -> tuple[np.ndarray, float]:
    """The minimiser (dim,) and its value: each coordinate is a one-dimensional problem of its own.

    Coordinate i has ridges where i x^2 / pi is an odd multiple of pi / 2, under the envelope sin(x). The best is one of
    those next to x = pi / 2; Newton steps on the logarithm of the term take each from its ridge to its maximum.
    """
    i = np.arange(1.0, dim + 1.0)[:, None]
    ridge = np.clip(np.floor(i / 4.0 - 0.5) + np.arange(-1.0, 3.0), 0.0, i - 1.0)
    x = math.pi * np.sqrt((ridge + 0.5) / i)
    for _ in range(8):
        angle, rate = i * x**2 / math.pi, 2.0 * i * x / math.pi
        slope = 1.0 / np.tan(x) + 20.0 * rate / np.tan(angle)
        bend = -1.0 / np.sin(x) ** 2 + 20.0 * (2.0 * i / math.pi / np.tan(angle) - (rate / np.sin(angle)) ** 2)
        x = x - slope / bend
    term = np.sin(x) * np.sin(i * x**2 / math.pi) ** 20
    best = np.argmax(term, axis=1)[:, None]
    return np.take_along_axis(x, best, axis=1)[:, 0], -float(np.sum(np.take_along_axis(term, best, axis=1)))


def michalewicz(dim: int = 10) -> Problem:
    """Michalewicz (1992), Genetic Algorithms + Data Structures = Evolution Programs, with steepness m = 10."""
    source = "Michalewicz (1992), Genetic Algorithms + Data Structures = Evolution Programs, Springer; m = 10"
    bounds = box(0.0, math.pi, dim)
    x, value = _michalewicz_solution(dim)
    return Problem(
        _michalewicz,
        bounds,
        name="michalewicz",
        title="Steep narrow valleys crossing a plateau",
        source=source,
        optimum=value,
        solutions=x[None],
    )


def _styblinski_tang(x: Array) -> Array:
    return 0.5 * jnp.sum(x**4 - 16.0 * x**2 + 5.0 * x)


def styblinski_tang(dim: int = 10) -> Problem:
    """Styblinski & Tang (1990), Neural Networks 3(4):467-483."""
    return _everywhere(
        "styblinski_tang",
        "Two wells per variable, one slightly deeper",
        "Styblinski & Tang (1990), Neural Networks 3(4):467-483",
        _styblinski_tang,
        -5.0,
        5.0,
        dim,
        at=-2.903534027771177,
        each=-39.16616570377141,
    )


def _goldstein_price(x: Array) -> Array:
    a, b = x
    left = 1 + (a + b + 1) ** 2 * (19 - 14 * a + 3 * a**2 - 14 * b + 6 * a * b + 3 * b**2)
    right = 30 + (2 * a - 3 * b) ** 2 * (18 - 32 * a + 12 * a**2 + 48 * b - 36 * a * b + 27 * b**2)
    return left * right


def goldstein_price() -> Problem:
    """f18 of Yao, Liu & Lin (1999)."""
    return Problem(
        _goldstein_price,
        box(-2.0, 2.0, 2),
        name="goldstein_price",
        title="Eighth-degree polynomial of two variables with four minima",
        source=f"{YAO}, f18",
        optimum=3.0,
        solutions=np.array([[0.0, -1.0]]),
    )


def _branin(x: Array) -> Array:
    a, b = x
    valley = b - 5.1 / (4.0 * math.pi**2) * a**2 + 5.0 / math.pi * a - 6.0
    return valley**2 + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * jnp.cos(a) + 10.0


def branin() -> Problem:
    """f17 of Yao, Liu & Lin (1999)."""
    return Problem(
        _branin,
        as_bounds([(-5.0, 10.0), (0.0, 15.0)]),
        name="branin",
        title="Three equal minima in two variables",
        source=f"{YAO}, f17",
        optimum=5.0 / (4.0 * math.pi),
        solutions=np.array([[-math.pi, 12.275], [math.pi, 2.275], [3.0 * math.pi, 2.475]]),
    )


def _six_hump_camel(x: Array) -> Array:
    a, b = x
    return (4.0 - 2.1 * a**2 + a**4 / 3.0) * a**2 + a * b + (4.0 * b**2 - 4.0) * b**2


def six_hump_camel() -> Problem:
    """f16 of Yao, Liu & Lin (1999), on the smaller box [-3, 3] x [-2, 2]."""
    best = np.array([0.08984201310031806, -0.7126564030207396])
    return Problem(
        _six_hump_camel,
        as_bounds([(-3.0, 3.0), (-2.0, 2.0)]),
        name="six_hump_camel",
        title="Six minima in two variables, two of them global",
        source=f"{YAO}, f16",
        optimum=-1.0316284534898774,
        solutions=np.array([best, -best]),
    )


def _hartmann(x: Array, steepness: np.ndarray, centres: np.ndarray) -> Array:
    weights = jnp.asarray([1.0, 1.2, 3.0, 3.2], x.dtype)
    distance = jnp.sum(jnp.asarray(steepness, x.dtype) * (x - jnp.asarray(centres, x.dtype)) ** 2, axis=1)
    return -jnp.sum(weights * jnp.exp(-distance))


HARTMANN3_STEEPNESS = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
HARTMANN3_CENTRES = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381.5, 5743, 8828]])
HARTMANN6_STEEPNESS = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
HARTMANN6_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def _hartmann3(x: Array) -> Array:
    return _hartmann(x, HARTMANN3_STEEPNESS, HARTMANN3_CENTRES)


def hartmann3() -> Problem:
    """f19 of Yao, Liu & Lin (1999), with the last centre at 0.03815, which many copies round to 0.0381."""
    return Problem(
        _hartmann3,
        box(0.0, 1.0, 3),
        name="hartmann3",
        title="Four Gaussian wells in three variables",
        source=f"{YAO}, f19",
        optimum=-3.8627821478207554,
        solutions=np.array([[0.11461433858967197, 0.5556488499718569, 0.8525469535208657]]),
    )


def _hartmann6(x: Array) -> Array:
    return _hartmann(x, HARTMANN6_STEEPNESS, HARTMANN6_CENTRES)


def hartmann6() -> Problem:
    """f20 of Yao, Liu & Lin (1999)."""
    best = [
        *(0.20168951100670543, 0.15001069182345797, 0.476873974221897),
        *(0.2753324304940561, 0.31165161660011326, 0.6573005340656203),
    ]
    return Problem(
        _hartmann6,
        box(0.0, 1.0, 6),
        name="hartmann6",
        title="Four Gaussian wells in six variables",
        source=f"{YAO}, f20",
        optimum=-3.3223680114155147,
        solutions=np.array([best]),
    )


# Fok, Wong & Wong print no boxes; these are the ones of the fast-EP literature they build on.


def fep_f1(dim: int = 32) -> Problem:
    """f1 of Fok, Wong & Wong (2007), section 5.1: sphere."""
    return sphere(dim).with_(name="fep_f1", source=f"{FOK}, section 5.1, f1")


def fep_f2(dim: int = 32) -> Problem:
    """f2 of Fok, Wong & Wong (2007), section 5.1: Schwefel 1.2."""
    return schwefel_1_2(dim).with_(name="fep_f2", source=f"{FOK}, section 5.1, f2")


def fep_f3(dim: int = 32) -> Problem:
    """f3 of Fok, Wong & Wong (2007), section 5.1: Rosenbrock."""
    return rosenbrock(dim).with_(name="fep_f3", source=f"{FOK}, section 5.1, f3")


def fep_f4(dim: int = 32) -> Problem:
    """f4 of Fok, Wong & Wong (2007), section 5.1: Schwefel 2.26, which has a minimum only because of its box."""
    return schwefel_2_26(dim).with_(name="fep_f4", source=f"{FOK}, section 5.1, f4")


def fep_f5(dim: int = 32) -> Problem:
    """f5 of Fok, Wong & Wong (2007), section 5.1: Rastrigin."""
    return rastrigin(dim).with_(name="fep_f5", source=f"{FOK}, section 5.1, f5")


def gagpu_ackley(dim: int = 2) -> Problem:
    """Ackley of the GAGPU manual, section Testing; its fixed factors 1/2 are read as 1/dim."""
    return ackley(dim).with_(name="gagpu_ackley", source=f"{GAGPU}, section Testing", bounds=box(-2.0, 2.0, dim))


def gagpu_goldstein_price() -> Problem:
    """Goldstein-Price of the GAGPU manual, section Testing."""
    return goldstein_price().with_(name="gagpu_goldstein_price", source=f"{GAGPU}, section Testing")
