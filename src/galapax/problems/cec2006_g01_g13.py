"""The constrained problems g01..g13 of the CEC 2006 special session; `cec2006_g14_g24` has the rest.

Liang et al. (2006), Problem definitions and evaluation criteria for the CEC 2006 special session on constrained
real-parameter optimization. Optima are the best known with every equality within 1e-4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.problem import Function, Problem, as_bounds

Array = jax.Array

EQ_TOLERANCE = 1e-4  # of the report, by which its best known values are what they are
LIANG = "Liang et al. (2006), CEC 2006 special session on constrained real-parameter optimization"


def cec2006(
    name: str,
    title: str,
    bounds: Sequence[tuple[float, float]],
    fun: Function,
    ineq: Function | None = None,
    eq: Function | None = None,
    *,
    optimum: float | None,
    solutions: Sequence[Sequence[float]] | None,
) -> Problem:
    """A problem of the report, with one (low, high) pair per variable."""
    return Problem(
        fun,
        as_bounds(bounds),
        ineq=ineq,
        eq=eq,
        name=name,
        title=title,
        source=f"{LIANG}, {name}",
        eq_tolerance=EQ_TOLERANCE,
        optimum=optimum,
        solutions=None if solutions is None else np.array(solutions),
    )


def _g01(x: Array) -> Array:
    return 5 * jnp.sum(x[:4]) - 5 * jnp.sum(x[:4] ** 2) - jnp.sum(x[4:])


def _g01_ineq(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, _ = x
    return jnp.stack(
        [
            2 * x1 + 2 * x2 + x10 + x11 - 10,
            2 * x1 + 2 * x3 + x10 + x12 - 10,
            2 * x2 + 2 * x3 + x11 + x12 - 10,
            -8 * x1 + x10,
            -8 * x2 + x11,
            -8 * x3 + x12,
            -2 * x4 - x5 + x10,
            -2 * x6 - x7 + x11,
            -2 * x8 - x9 + x12,
        ]
    )


def g01() -> Problem:
    """g01 of Liang et al. (2006)."""
    return cec2006(
        "g01",
        "Concave quadratic over a polytope",
        [(0, 1)] * 9 + [(0, 100)] * 3 + [(0, 1)],
        _g01,
        _g01_ineq,
        optimum=-15.0,
        solutions=[[1.0] * 9 + [3.0] * 3 + [1.0]],
    )


def _g02(x: Array) -> Array:
    index = jnp.asarray(np.arange(1.0, x.shape[0] + 1.0), x.dtype)
    # The floor matters at the origin only: a corner of the box, infeasible, where the definition divides by 0.
    length = jnp.maximum(jnp.sqrt(jnp.sum(index * x**2)), 1e-10)
    return -jnp.abs(jnp.sum(jnp.cos(x) ** 4) - 2 * jnp.prod(jnp.cos(x) ** 2)) / length


def _g02_ineq(x: Array) -> Array:
    return jnp.stack([0.75 - jnp.prod(x), jnp.sum(x) - 7.5 * x.shape[0]])


def g02() -> Problem:
    """g02 of Liang et al. (2006)."""
    best = [
        *(3.16246061572185, 3.12833142812967, 3.09479212988791, 3.06145059523469, 3.02792915885555),
        *(2.9938260670173, 2.95866871765285, 2.9218422731245, 0.49482511456933, 0.4883571100549),
        *(0.48231642711865, 0.47664475092742, 0.47129550835493, 0.46623099264167, 0.46142004984199),
        *(0.45683664767217, 0.45245876903267, 0.44826762241853, 0.4442470095876, 0.44038285956317),
    ]
    return cec2006(
        "g02",
        "Bumpy peaks above a product",
        [(0, 10)] * 20,
        _g02,
        _g02_ineq,
        optimum=-0.80361910412559,
        solutions=[best],
    )


def _g03(x: Array) -> Array:
    return -jnp.prod(math.sqrt(x.shape[0]) * x)


def _g03_eq(x: Array) -> Array:
    return jnp.stack([jnp.sum(x**2) - 1])


def g03() -> Problem:
    """g03 of Liang et al. (2006)."""
    best = [math.sqrt(1.0001 / 10)] * 10  # all equal, the equality at its tolerance
    return cec2006(
        "g03", "Product on a sphere", [(0, 1)] * 10, _g03, eq=_g03_eq, optimum=-1.00050010001, solutions=[best]
    )


def _g04(x: Array) -> Array:
    x1, _, x3, _, x5 = x
    return 5.3578547 * x3**2 + 0.8356891 * x1 * x5 + 37.293239 * x1 - 40792.141


def _g04_ineq(x: Array) -> Array:
    x1, x2, x3, x4, x5 = x
    u = 85.334407 + 0.0056858 * x2 * x5 + 0.0006262 * x1 * x4 - 0.0022053 * x3 * x5
    v = 80.51249 + 0.0071317 * x2 * x5 + 0.0029955 * x1 * x2 + 0.0021813 * x3**2
    w = 9.300961 + 0.0047026 * x3 * x5 + 0.0012547 * x1 * x3 + 0.0019085 * x3 * x4
    return jnp.stack([u - 92, -u, v - 110, 90 - v, w - 25, 20 - w])


def g04() -> Problem:
    """g04 of Liang et al. (2006), Himmelblau's problem."""
    return cec2006(
        "g04",
        "Himmelblau's nonlinear process",
        [(78, 102), (33, 45), (27, 45), (27, 45), (27, 45)],
        _g04,
        _g04_ineq,
        optimum=-30665.53867178332,
        solutions=[[78.0, 33.0, 29.9952560256816, 45.0, 36.77581290578821]],
    )


def _g05(x: Array) -> Array:
    x1, x2, _, _ = x
    return 3 * x1 + 1e-6 * x1**3 + 2 * x2 + 2e-6 / 3 * x2**3


def _g05_ineq(x: Array) -> Array:
    _, _, x3, x4 = x
    return jnp.stack([x3 - x4 - 0.55, x4 - x3 - 0.55])


def _g05_eq(x: Array) -> Array:
    x1, x2, x3, x4 = x
    return jnp.stack(
        [
            1000 * jnp.sin(-x3 - 0.25) + 1000 * jnp.sin(-x4 - 0.25) + 894.8 - x1,
            1000 * jnp.sin(x3 - 0.25) + 1000 * jnp.sin(x3 - x4 - 0.25) + 894.8 - x2,
            1000 * jnp.sin(x4 - 0.25) + 1000 * jnp.sin(x4 - x3 - 0.25) + 1294.8,
        ]
    )


def g05() -> Problem:
    """g05 of Liang et al. (2006)."""
    return cec2006(
        "g05",
        "Power flow: cubic cost under three sine equalities",
        [(0, 1200), (0, 1200), (-0.55, 0.55), (-0.55, 0.55)],
        _g05,
        _g05_ineq,
        _g05_eq,
        optimum=5126.4967140071,
        solutions=[[679.9451482970287, 1026.066976000047, 0.11887636909441043, -0.39623348521517826]],
    )


def _g06(x: Array) -> Array:
    x1, x2 = x
    return (x1 - 10) ** 3 + (x2 - 20) ** 3


def _g06_ineq(x: Array) -> Array:
    x1, x2 = x
    return jnp.stack([100 - (x1 - 5) ** 2 - (x2 - 5) ** 2, (x1 - 6) ** 2 + (x2 - 5) ** 2 - 82.81])


def g06() -> Problem:
    """g06 of Liang et al. (2006)."""
    return cec2006(
        "g06",
        "Cubics in the thin crescent between two circles",
        [(13, 100), (0, 100)],
        _g06,
        _g06_ineq,
        optimum=-6961.81387558015,
        solutions=[[14.095, 0.8429607892154796]],
    )


def _g07(x: Array) -> Array:
    x1, x2 = x[0], x[1]
    weights = jnp.asarray([1, 4, 1, 2, 5, 7, 2, 1], x.dtype)
    centres = jnp.asarray([10, 5, 3, 1, 0, 11, 10, 7], x.dtype)
    return x1**2 + x2**2 + x1 * x2 - 14 * x1 - 16 * x2 + jnp.sum(weights * (x[2:] - centres) ** 2) + 45


def _g07_ineq(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = x
    return jnp.stack(
        [
            4 * x1 + 5 * x2 - 3 * x7 + 9 * x8 - 105,
            10 * x1 - 8 * x2 - 17 * x7 + 2 * x8,
            -8 * x1 + 2 * x2 + 5 * x9 - 2 * x10 - 12,
            3 * (x1 - 2) ** 2 + 4 * (x2 - 3) ** 2 + 2 * x3**2 - 7 * x4 - 120,
            5 * x1**2 + 8 * x2 + (x3 - 6) ** 2 - 2 * x4 - 40,
            x1**2 + 2 * (x2 - 2) ** 2 - 2 * x1 * x2 + 14 * x5 - 6 * x6,
            0.5 * (x1 - 8) ** 2 + 2 * (x2 - 4) ** 2 + 3 * x5**2 - x6 - 30,
            -3 * x1 + 6 * x2 + 12 * (x9 - 8) ** 2 - 7 * x10,
        ]
    )


def g07() -> Problem:
    """g07 of Liang et al. (2006)."""
    best = [
        *(2.17199634142692, 2.3636830416034, 8.77392573913157, 5.09598443745173, 0.990654756560493),
        *(1.43057392853463, 1.32164415364306, 9.82872576524495, 8.2800915887356, 8.3759266477347),
    ]
    return cec2006(
        "g07",
        "Convex quadratic, six of eight constraints active",
        [(-10, 10)] * 10,
        _g07,
        _g07_ineq,
        optimum=24.30620906818,
        solutions=[best],
    )


def _g08(x: Array) -> Array:
    x1, x2 = x
    # sin(2 pi x1) / x1 as a sinc, and a divisor of 1 at the origin, where the numerator is 0: finite in the whole box.
    ratio = 2 * math.pi * jnp.sinc(2 * x1)
    total = x1 + x2
    return -(ratio**3) * jnp.sin(2 * math.pi * x2) / jnp.where(total > 0, total, 1)


def _g08_ineq(x: Array) -> Array:
    x1, x2 = x
    return jnp.stack([x1**2 - x2 + 1, 1 - x1 + (x2 - 4) ** 2])


def g08() -> Problem:
    """g08 of Liang et al. (2006)."""
    return cec2006(
        "g08",
        "Damped product of sines, optimum inside the feasible set",
        [(0, 10)] * 2,
        _g08,
        _g08_ineq,
        optimum=-0.0958250414180359,
        solutions=[[1.227971352607526, 4.245373366122749]],
    )


def _g09(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7 = x
    quadratic = (x1 - 10) ** 2 + 5 * (x2 - 12) ** 2 + 3 * (x4 - 11) ** 2 + 7 * x6**2
    return quadratic + x3**4 + 10 * x5**6 + x7**4 - 4 * x6 * x7 - 10 * x6 - 8 * x7


def _g09_ineq(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7 = x
    return jnp.stack(
        [
            2 * x1**2 + 3 * x2**4 + x3 + 4 * x4**2 + 5 * x5 - 127,
            7 * x1 + 3 * x2 + 10 * x3**2 + x4 - x5 - 282,
            23 * x1 + x2**2 + 6 * x6**2 - 8 * x7 - 196,
            4 * x1**2 + x2**2 - 3 * x1 * x2 + 2 * x3**2 + 5 * x6 - 11 * x7,
        ]
    )


def g09() -> Problem:
    """g09 of Liang et al. (2006)."""
    best = [
        *(2.3304993514740517, 1.951372368471146, -0.4775413995106158, 4.365726249236259),
        *(-0.624486959100389, 1.0381309941096217, 1.594226678067152),
    ]
    return cec2006(
        "g09",
        "Sixth-degree polynomial in seven variables",
        [(-10, 10)] * 7,
        _g09,
        _g09_ineq,
        optimum=680.630057374402,
        solutions=[best],
    )


def _g10(x: Array) -> Array:
    return jnp.sum(x[:3])


def _g10_ineq(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7, x8 = x
    return jnp.stack(
        [
            0.0025 * (x4 + x6) - 1,
            0.0025 * (x5 + x7 - x4) - 1,
            0.01 * (x8 - x5) - 1,
            -x1 * x6 + 833.33252 * x4 + 100 * x1 - 83333.333,
            -x2 * x7 + 1250 * x5 + x2 * x4 - 1250 * x4,
            -x3 * x8 + 1250000 + x3 * x5 - 2500 * x5,
        ]
    )


def g10() -> Problem:
    """g10 of Liang et al. (2006), a heat exchanger design."""
    best = [
        *(579.3066850179796, 1359.970678079356, 5109.970657431333, 182.01769963061534),
        *(295.6011737027468, 217.98230036938463, 286.4165259278685, 395.60117370274673),
    ]
    return cec2006(
        "g10",
        "Heat exchanger network, all constraints active",
        [(100, 10000)] + [(1000, 10000)] * 2 + [(10, 1000)] * 5,
        _g10,
        _g10_ineq,
        optimum=7049.24802052867,
        solutions=[best],
    )


def _g11(x: Array) -> Array:
    x1, x2 = x
    return x1**2 + (x2 - 1) ** 2


def _g11_eq(x: Array) -> Array:
    x1, x2 = x
    return jnp.stack([x2 - x1**2])


def g11() -> Problem:
    """g11 of Liang et al. (2006)."""
    best = [0.7070360700371706, 0.5000000043336068]
    return cec2006(
        "g11",
        "Nearest points of a parabola",
        [(-1, 1)] * 2,
        _g11,
        eq=_g11_eq,
        optimum=0.7499,
        solutions=[[-best[0], best[1]], best],
    )


def _g12(x: Array) -> Array:
    return -(100 - jnp.sum((x - 5) ** 2)) / 100


def _g12_ineq(x: Array) -> Array:
    # The nearest of the 9 x 9 x 9 centres is nearest in each coordinate.
    centre = jnp.clip(jnp.round(x), 1, 9)
    return jnp.stack([jnp.sum((x - centre) ** 2) - 0.0625])


def g12() -> Problem:
    """g12 of Liang et al. (2006)."""
    return cec2006(
        "g12",
        "Paraboloid over 729 separate balls",
        [(0, 10)] * 3,
        _g12,
        _g12_ineq,
        optimum=-1.0,
        solutions=[[5.0, 5.0, 5.0]],
    )


def _g13(x: Array) -> Array:
    return jnp.exp(jnp.prod(x))


def _g13_eq(x: Array) -> Array:
    x1, x2, x3, x4, x5 = x
    return jnp.stack([jnp.sum(x**2) - 10, x2 * x3 - 5 * x4 * x5, x1**3 + x2**3 + 1])


def g13() -> Problem:
    """g13 of Liang et al. (2006)."""
    a, b, c, d, e = -1.71714224003, 1.59572124049468, 1.8272502406271, 0.763659881912867, 0.76365986736498
    return cec2006(
        "g13",
        "Exponential of a product, four sign variants of the optimum",
        [(-2.3, 2.3)] * 2 + [(-3.2, 3.2)] * 3,
        _g13,
        eq=_g13_eq,
        optimum=0.053941514041898,
        solutions=[[a, b, c, -d, -e], [a, b, -c, d, -e], [a, b, -c, -d, e], [a, b, c, d, e]],
    )
