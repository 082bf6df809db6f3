"""The constrained problems g14..g24 of the CEC 2006 special session.

Liang et al. (2006), see `cec2006_g01_g13`. Differs from the report: g17 and g22 have better optima than printed there,
and g20 has none, since no point satisfies its constraints.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from galapax.core.problem import Problem
from galapax.problems.cec2006_g01_g13 import cec2006

Array = jax.Array

G14_ENERGY = [-6.089, -17.164, -34.054, -5.914, -24.721, -14.986, -24.1, -10.708, -26.662, -22.179]


def _g14(x: Array) -> Array:
    total = jnp.sum(x)
    share = x / jnp.where(total > 0, total, 1)
    entropy = x * jnp.log(jnp.where(x == 0, 1, share))  # 0 at x = 0
    return jnp.sum(jnp.asarray(G14_ENERGY, x.dtype) * x + entropy)


def _g14_eq(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = x
    return jnp.stack(
        [
            x1 + 2 * x2 + 2 * x3 + x6 + x10 - 2,
            x4 + 2 * x5 + x6 + x7 - 1,
            x3 + x7 + x8 + 2 * x9 + x10 - 1,
        ]
    )


def g14() -> Problem:
    """g14 of Liang et al. (2006)."""
    best = [
        *(0.0406684113216282, 0.147721240492452, 0.783205732104114, 0.00141433931889084, 0.485293636780388),
        *(0.000693183051556082, 0.0274052040687766, 0.0179509660214818, 0.0373268186859717, 0.0968844604336845),
    ]
    return cec2006(
        "g14",
        "Chemical equilibrium by free energy",
        [(0, 10)] * 10,
        _g14,
        eq=_g14_eq,
        optimum=-47.7648884594915,
        solutions=[best],
    )


def _g15(x: Array) -> Array:
    x1, x2, x3 = x
    return 1000 - x1**2 - 2 * x2**2 - x3**2 - x1 * x2 - x1 * x3


def _g15_eq(x: Array) -> Array:
    x1, x2, x3 = x
    return jnp.stack([jnp.sum(x**2) - 25, 8 * x1 + 14 * x2 + 7 * x3 - 56])


def g15() -> Problem:
    """g15 of Liang et al. (2006)."""
    return cec2006(
        "g15",
        "Concave quadratic on the circle of a sphere and a plane",
        [(0, 10)] * 3,
        _g15,
        eq=_g15_eq,
        optimum=961.715022289961,
        solutions=[[3.5121281261179513, 0.21698751042955614, 3.552178549291799]],
    )


G16_LOWER = [
    *(213.1, 17.505, 11.275, 214.228, 7.458, 0.961, 1.612, 0.146, 107.99, 922.693, 926.832, 18.766, 1072.163),
    *(8961.448, 0.063, 71084.33, 2802713),
]
G16_UPPER = [
    *(405.23, 1053.6667, 35.03, 665.585, 584.463, 265.916, 7.046, 0.222, 273.366, 1286.105, 1444.046, 537.141),
    *(3247.039, 26844.086, 0.386, 140000, 12146108),
]


def _g16_chain(x: Array) -> tuple[list[Array], Array, Array, Array]:
    """The plant's seventeen outputs y1..y17, then c12, c15 / c16 and c17 of the report."""
    x1, x2, x3, x4, x5 = x
    y1 = x2 + x3 + 41.6
    y2 = 12.5 / (0.024 * x4 - 4.62) + 12
    c2 = 0.0003535 * x1**2 + 0.5311 * x1 + 0.08705 * y2 * x1
    y3 = c2 / (0.052 * x1 + 78 + 0.002377 * y2 * x1)
    y4 = 19 * y3
    c4 = 0.04782 * (x1 - y3) + 0.1956 * (x1 - y3) ** 2 / x2 + 0.6376 * y4 + 1.594 * y3
    y5 = (x1 - y3 - y4) * (0.95 - c4 / (100 * x2))
    y6 = x1 - y5 - y4 - y3
    c8 = 0.995 * (y5 + y4)
    y7 = c8 / y1
    y8 = c8 / 3798
    c9 = y7 - 0.0663 * 3798 / y1 - 0.3153  # y7 / y8 is 3798 / y1
    y9 = 96.82 / c9 + 0.321 * y1
    y10 = 1.29 * y5 + 1.258 * y4 + 2.29 * y3 + 1.71 * y6
    y11 = 1.71 * x1 - 0.452 * y4 + 0.58 * y3
    c12 = 0.995 * y10 + 1998
    y12 = 12.3 / 752.3 * x1 + 1.75 * y2 * 0.995 * x1 / c12
    y13 = c12 - 1.75 * y2
    c17 = y9 + x5
    y14 = 3623 + 64.4 * x2 + 58.4 * x3 + 146312 / c17
    c13 = 0.995 * y10 + 60.8 * x2 + 48 * x4 - 0.1121 * y14 - 5095
    y15 = y13 / c13
    y16 = 148000 - 331000 * y15 + 40 * y13 - 61 * y15 * y13
    y17 = 14130000 - 1328 * y10 - 531 * y11 + (2324 * y10 - 28740000 * y2) / c12
    loss = (c13 - y13 / 0.52) / (1.104 - 0.72 * y15)  # y13 / y15 is c13
    return [y1, y2, y3, y4, y5, y6, y7, y8, y9, y10, y11, y12, y13, y14, y15, y16, y17], c12, loss, c17


def _g16(x: Array) -> Array:
    y, c12, loss, _ = _g16_chain(x)
    y2, y5, y12, y13, y14, y16, y17 = y[1], y[4], y[11], y[12], y[13], y[15], y[16]
    costs = 0.000117 * y14 + 0.1365 + 0.00002358 * y13 + 0.000001502 * y16 + 0.0321 * y12 + 0.004324 * y5
    return costs + 0.0001 * loss + 37.48 * y2 / c12 - 0.0000005843 * y17


def _g16_ineq(x: Array) -> Array:
    y, c12, _, c17 = _g16_chain(x)
    y1, y2, y4, y5 = y[0], y[1], y[3], y[4]
    limits = jnp.stack(
        [0.28 / 0.72 * y5 - y4, x[2] - 1.5 * x[1], 3496 * y2 / c12 - 21, 110.6 + y1 - 62212 / c17],
    )
    outputs = jnp.stack(y)
    lower, upper = jnp.asarray(G16_LOWER, x.dtype), jnp.asarray(G16_UPPER, x.dtype)
    return jnp.concatenate([limits, jnp.stack([lower - outputs, outputs - upper], axis=1).ravel()])


def g16() -> Problem:
    """g16 of Liang et al. (2006)."""
    return cec2006(
        "g16",
        "Profit of a pulp plant, seventeen outputs kept in range",
        [(704.4148, 906.3855), (68.6, 288.88), (0, 134.75), (193, 287.0966), (25, 84.1988)],
        _g16,
        _g16_ineq,
        optimum=-1.90515525853479,
        solutions=[[705.1745370700905, 68.6, 102.89999999999999, 282.3249315936603, 37.58411642580548]],
    )


def _g17(x: Array) -> Array:
    x1, x2 = x[0], x[1]
    return x1 * jnp.where(x1 < 300, 30, 31) + x2 * jnp.where(x2 < 100, 28, jnp.where(x2 < 200, 29, 30))


def _g17_eq(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6 = x
    impedance, angle, loss, loss_angle = 131.078, 1.48477, 0.90798, 1.47588
    product = x3 * x4 / impedance
    cosine, sine = loss * math.cos(loss_angle) / impedance, loss * math.sin(loss_angle) / impedance
    return jnp.stack(
        [
            -x1 + 300 - product * jnp.cos(angle - x6) + cosine * x3**2,
            -x2 - product * jnp.cos(angle + x6) + cosine * x4**2,
            -x5 - product * jnp.sin(angle + x6) + sine * x4**2,
            200 - product * jnp.sin(angle - x6) + sine * x3**2,
        ]
    )


def g17() -> Problem:
    """g17 of Liang et al. (2006); the report's optimum is not the value of its own point, this one is lower."""
    best = [201.78446249374912, 99.99999999999957, 383.07103485273336, 419.9999999999999]
    return cec2006(
        "g17",
        "Electrical network with stepwise prices",
        [(0, 400), (0, 1000), (340, 420), (340, 420), (-1000, 1000), (0, 0.5236)],
        _g17,
        eq=_g17_eq,
        optimum=8853.533874812461,
        solutions=[[*best, -10.907633794167186, 0.0731482312083458]],
    )


def _g18(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7, x8, x9 = x
    return -0.5 * (x1 * x4 - x2 * x3 + x3 * x9 - x5 * x9 + x5 * x8 - x6 * x7)


def _g18_ineq(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7, x8, x9 = x
    return jnp.stack(
        [
            x3**2 + x4**2 - 1,
            x9**2 - 1,
            x5**2 + x6**2 - 1,
            x1**2 + (x2 - x9) ** 2 - 1,
            (x1 - x5) ** 2 + (x2 - x6) ** 2 - 1,
            (x1 - x7) ** 2 + (x2 - x8) ** 2 - 1,
            (x3 - x5) ** 2 + (x4 - x6) ** 2 - 1,
            (x3 - x7) ** 2 + (x4 - x8) ** 2 - 1,
            x7**2 + (x8 - x9) ** 2 - 1,
            x2 * x3 - x1 * x4,
            -x3 * x9,
            x5 * x9,
            x6 * x7 - x5 * x8,
        ]
    )


def g18() -> Problem:
    """g18 of Liang et al. (2006)."""
    best = [
        *(-0.6577761924279432, -0.15341877348243854, 0.32341387167524094, -0.9462576116513044, -0.6577761943767989),
        *(-0.7532134346326914, 0.32341387412357697, -0.34646294796233174, 0.5997946628521754),
    ]
    return cec2006(
        "g18",
        "Largest hexagon of diameter 1",
        [(-10, 10)] * 8 + [(0, 20)],
        _g18,
        _g18_ineq,
        optimum=-0.866025403784439,
        solutions=[best],
    )


G19_B = [-40, -2, -0.25, -4, -4, -1, -40, -60, 5, 1]
G19_D = [4, 8, 10, 6, 2]
G19_E = [-15, -27, -36, -18, -12]
G19_C = [
    [30, -20, -10, 32, -10],
    [-20, 39, -6, -31, 32],
    [-10, -6, 10, -6, -10],
    [32, -31, -6, 39, -20],
    [-10, 32, -10, -20, 30],
]
G19_A = [
    [-16, 2, 0, 1, 0],
    [0, -2, 0, 0.4, 2],
    [-3.5, 0, 2, 0, 0],
    [0, -2, 0, -4, -1],
    [0, -9, -2, 1, -2.8],
    [2, 0, -4, 0, 0],
    [-1, -1, -1, -1, -1],
    [-1, -2, -3, -2, -1],
    [1, 2, 3, 4, 5],
    [1, 1, 1, 1, 1],
]


def _g19(x: Array) -> Array:
    z = x[10:]
    b, c, d = (jnp.asarray(table, x.dtype) for table in (G19_B, G19_C, G19_D))
    # Sums rather than matrix products, which a GPU may compute in reduced precision.
    return jnp.sum(c * z[:, None] * z) + 2 * jnp.sum(d * z**3) - jnp.sum(b * x[:10])


def _g19_ineq(x: Array) -> Array:
    z = x[10:]
    a, c, d, e = (jnp.asarray(table, x.dtype) for table in (G19_A, G19_C, G19_D, G19_E))
    return -2 * jnp.sum(c * z, axis=1) - 3 * d * z**2 - e + jnp.sum(a * x[:10, None], axis=0)


def g19() -> Problem:
    """g19 of Liang et al. (2006), Colville's second problem in its dual form."""
    best = [
        *(0.0, 0.0, 3.945990451432338, 0.0, 3.283177345845416, 10.0, 0.0, 0.0, 0.0, 0.0),
        *(0.370764847417014, 0.27845602494295557, 0.5238384876722412, 0.3886201525103228, 0.2981567649746786),
    ]
    return cec2006(
        "g19",
        "Cubic program with five quadratic constraints, all active",
        [(0, 10)] * 15,
        _g19,
        _g19_ineq,
        optimum=32.6555929502463,
        solutions=[best],
    )


G20_A = [0.0693, 0.0577, 0.05, 0.2, 0.26, 0.55, 0.06, 0.1, 0.12, 0.18, 0.1, 0.09]
G20_B = [44.094, 58.12, 58.12, 137.4, 120.9, 170.9, 62.501, 84.94, 133.425, 82.507, 46.07, 60.097]
G20_C = [123.7, 31.7, 45.7, 14.7, 84.7, 27.7, 49.7, 7.1, 2.1, 17.7, 0.85, 0.64]
G20_D = [31.244, 36.12, 34.784, 92.7, 82.7, 91.6, 56.708, 82.7, 80.8, 64.517, 49.4, 49.1]
G20_E = [0.1, 0.3, 0.4, 0.3, 0.6, 0.3]


def _g20(x: Array) -> Array:
    return jnp.sum(jnp.asarray(G20_A, x.dtype) * (x[:12] + x[12:]))


def _g20_ineq(x: Array) -> Array:
    pairs = x[:12] + x[12:]
    return jnp.concatenate([pairs[:3], pairs[6:9]]) / (jnp.sum(x) + jnp.asarray(G20_E, x.dtype))


def _g20_eq(x: Array) -> Array:
    b, c, d = (jnp.asarray(table, x.dtype) for table in (G20_B, G20_C, G20_D))
    first, second = x[:12] / b, x[12:] / b
    # A group that is all 0 divides 0 by 0; its shares count as 0.
    first_share = first / jnp.maximum(jnp.sum(first), 1e-30)
    second_share = second / jnp.maximum(jnp.sum(second), 1e-30)
    balance = jnp.sum(x[:12] / d) + 0.7302 * 530 * 14.7 / 40 * jnp.sum(second) - 1.671
    return jnp.concatenate([second_share - c / 40 * first_share, jnp.stack([jnp.sum(x) - 1, balance])])


def g20() -> Problem:
    """g20 of Liang et al. (2006), whose constraints contradict each other: a test of infeasibility only."""
    return cec2006(
        "g20",
        "Blending of 24 flows; the feasible set is empty",
        [(0, 10)] * 24,
        _g20,
        _g20_ineq,
        _g20_eq,
        optimum=None,
        solutions=None,
    )


def _g21(x: Array) -> Array:
    return x[0]


def _g21_ineq(x: Array) -> Array:
    return jnp.stack([-x[0] + 35 * x[1] ** 0.6 + 35 * x[2] ** 0.6])


def _g21_eq(x: Array) -> Array:
    _, x2, x3, x4, x5, x6, x7 = x
    return jnp.stack(
        [
            -300 * x3 + 7500 * x5 - 7500 * x6 - 25 * x4 * x5 + 25 * x4 * x6 + x3 * x4,
            100 * x2 + 155.365 * x4 + 2500 * x7 - x2 * x4 - 25 * x4 * x7 - 15536.5,
            -x5 + jnp.log(900 - x4),
            -x6 + jnp.log(x4 + 300),
            -x7 + jnp.log(700 - 2 * x4),
        ]
    )


def g21() -> Problem:
    """g21 of Liang et al. (2006)."""
    best = [
        *(193.72451007003497, 5.569441315533684e-27, 17.31918872940849, 100.04789780138684),
        *(6.684451853623779, 5.991684284442648, 6.2145164888607045),
    ]
    return cec2006(
        "g21",
        "Two heat exchangers, five equalities",
        [(0, 1000), (0, 40), (0, 40), (100, 300), (6.3, 6.7), (5.9, 6.4), (4.5, 6.25)],
        _g21,
        _g21_ineq,
        _g21_eq,
        optimum=193.724510070035,
        solutions=[best],
    )


def _g22_ineq(x: Array) -> Array:
    return jnp.stack([-x[0] + jnp.sum(x[1:4] ** 0.6)])


def _g22_eq(x: Array) -> Array:
    _, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15, x16, x17, x18, x19, x20, x21, x22 = x
    return jnp.stack(
        [
            x5 - 1e5 * x8 + 1e7,
            x6 + 1e5 * x8 - 1e5 * x9,
            x7 + 1e5 * x9 - 5e7,
            x5 + 1e5 * x10 - 3.3e7,
            x6 + 1e5 * x11 - 4.4e7,
            x7 + 1e5 * x12 - 6.6e7,
            x5 - 120 * x2 * x13,
            x6 - 80 * x3 * x14,
            x7 - 40 * x4 * x15,
            x8 - x11 + x16,
            x9 - x12 + x17,
            -x18 + jnp.log(x10 - 100),
            -x19 + jnp.log(300 - x8),
            -x20 + jnp.log(x16),
            -x21 + jnp.log(400 - x9),
            -x22 + jnp.log(x17),
            -x8 - x10 + x13 * x18 - x13 * x19 + 400,
            x8 - x9 - x11 + x14 * x20 - x14 * x21 + 400,
            x9 - x12 - 4.60517 * x15 + x15 * x22 + 100,
        ]
    )


def g22() -> Problem:
    """g22 of Liang et al. (2006); the report's 236.43 is not optimal, eliminating its equalities gives this."""
    best = [
        *(236.3703133145658, 135.43244124814578, 200.42831259397434, 6462.552459465113, 3e6, 4e6, 33e6),
        *(130.0, 170.0, 300.0, 400.0, 330.0, 184.59388141866103, 249.46575338030956, 127.65853819750392),
        *(270.0, 160.0, 5.298317366548036, 5.135798437050262, 5.598421958998375, 5.438079308923196, 5.075173815233827),
    ]
    bounds = [(0, 20000), *[(0, 1e6)] * 3, *[(0, 4e7)] * 3, (100, 299.99), (100, 399.99), (100.01, 300), (100, 400)]
    bounds += [(100, 600), *[(0, 500)] * 3, (0.01, 300), (0.01, 400), *[(-4.7, 6.25)] * 5]
    return cec2006(
        "g22",
        "Three heat exchangers, nineteen equalities",
        bounds,
        _g21,
        _g22_ineq,
        _g22_eq,
        optimum=236.3703133145658,
        solutions=[best],
    )


def _g23(x: Array) -> Array:
    x1, x2, _, _, x5, x6, x7, x8, _ = x
    return -9 * x5 - 15 * x8 + 6 * x1 + 16 * x2 + 10 * (x6 + x7)


def _g23_ineq(x: Array) -> Array:
    _, _, x3, x4, x5, x6, x7, x8, x9 = x
    return jnp.stack([x9 * x3 + 0.02 * x6 - 0.025 * x5, x9 * x4 + 0.02 * x7 - 0.015 * x8])


def _g23_eq(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7, x8, x9 = x
    return jnp.stack([x1 + x2 - x3 - x4, 0.03 * x1 + 0.01 * x2 - x9 * (x3 + x4), x3 + x6 - x5, x4 + x7 - x8])


def g23() -> Problem:
    """g23 of Liang et al. (2006), Haverly's pooling problem."""
    best = [
        *(0.005100000000002595, 99.99470000000005, 9.019201629960459e-18, 99.99990000000005, 0.00010000000002708609),
        *(2.7570068338958454e-14, 99.99999999999996, 200.0, 0.01000001000001),
    ]
    return cec2006(
        "g23",
        "Haverly's pooling of two blends",
        [(0, 300), (0, 300), (0, 100), (0, 200), (0, 100), (0, 300), (0, 100), (0, 200), (0.01, 0.03)],
        _g23,
        _g23_ineq,
        _g23_eq,
        optimum=-400.0550999999996,
        solutions=[best],
    )


def _g24(x: Array) -> Array:
    return -jnp.sum(x)


def _g24_ineq(x: Array) -> Array:
    x1, x2 = x
    return jnp.stack(
        [
            -2 * x1**4 + 8 * x1**3 - 8 * x1**2 + x2 - 2,
            -4 * x1**4 + 32 * x1**3 - 88 * x1**2 + 96 * x1 + x2 - 36,
        ]
    )


def g24() -> Problem:
    """g24 of Liang et al. (2006)."""
    return cec2006(
        "g24",
        "Linear objective over two separate regions",
        [(0, 3), (0, 4)],
        _g24,
        _g24_ineq,
        optimum=-5.50801327159536,
        solutions=[[2.32952019747762, 3.17849307411774]],
    )
