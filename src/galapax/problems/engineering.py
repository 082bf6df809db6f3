"""Engineering problems: of two to five objectives, constrained ones of one, and gasoline blending.

The fronts of the first are known from long runs. They lie in `fronts/`, with the hypervolume in the first line, and
were made by `python benchmarks/reference_fronts.py`: the non-dominated points of long runs of NSGA-II and of NSGA-III
together.

The second are the spring, and P2 to P6 of Fabris & Krohling (2012). Their paper states each problem as min over x of
max over the multipliers of an augmented Lagrangian; here it is the constrained problem itself. Its misprints are
corrected to the CEC 2006 definitions, which its own results agree with.

Gasoline blending of Hu, Qi & Qian (2015), section 4.2: cost against octane giveaway under nine quality limits. Differs
from the paper: the aromatics coefficient 98 belongs to C9, not to MTBE (`blending_as_printed` keeps it), and sulfur is
limited to 480 ppm as in its numeric model, since its general limit of 50 leaves no feasible blend. Neither choice moves
the front, which only the antiknock index and the olefins shape.
"""

from __future__ import annotations

import math
from functools import cache, partial
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.mixture import mixture
from galapax.core.problem import Function, Problem, as_bounds
from galapax.problems.cec2006_g01_g13 import g01, g07, g09, g10
from galapax.problems.minmax import FABRIS
from galapax.problems.multiobjective import HU, along_curve

Array = jax.Array


@cache
def load_front(name: str) -> tuple[float, np.ndarray]:
    """Hypervolume and points (k, m) of a front in a file; the first of the points are spread over it for any number."""
    text = (resources.files("galapax.problems") / "fronts" / f"{name}.csv").read_text()
    head, *rows = text.splitlines()
    return float(head.split()[-1]), np.array([[float(v) for v in row.split(",")] for row in rows])


def known_front(name: str, n: int) -> np.ndarray:
    """At most n points of a stored front, in the order of the first objective."""
    points = load_front(name)[1][:n]
    return points[np.lexsort(points.T[::-1])]


def welded_beam_objectives(x: Array) -> Array:
    h, length, t, b = x
    cost = 1.10471 * h**2 * length + 0.04811 * t * b * (14.0 + length)
    return jnp.stack([cost, 2.1952 / (t**3 * b)])


def welded_beam_limits(x: Array) -> Array:
    h, length, t, b = x
    radius = jnp.sqrt(0.25 * (length**2 + (h + t) ** 2))
    direct = 6000.0 / (math.sqrt(2.0) * h * length)
    inertia = 2.0 * 0.707 * h * length * (length**2 / 12.0 + 0.25 * (h + t) ** 2)
    twist = 6000.0 * (14.0 + 0.5 * length) * radius / inertia
    shear = jnp.sqrt(direct**2 + twist**2 + length * direct * twist / radius)
    bending = 504_000.0 / (t**2 * b)
    buckling = 64_746.022 * (1.0 - 0.0282346 * t) * t * b**3
    return jnp.stack([shear / 13_600.0 - 1.0, bending / 30_000.0 - 1.0, (h - b) / 5.0, 1.0 - buckling / 6000.0])


def welded_beam() -> Problem:
    """Cost and deflection of a welded beam: Deb, Pratap & Moitra (2000), PPSN VI, LNCS 1917:859-868."""
    return Problem(
        welded_beam_objectives,
        as_bounds([(0.125, 5.0), (0.1, 10.0), (0.1, 10.0), (0.125, 5.0)]),
        ineq=welded_beam_limits,
        name="welded_beam",
        title="A welded beam: cheap or stiff",
        source="Deb, Pratap & Moitra (2000), PPSN VI, LNCS 1917:859-868",
        front=partial(known_front, "welded_beam"),
        reference_point=(40.0, 0.0166),
        hypervolume=load_front("welded_beam")[0],
        variables=("weld height", "weld length", "beam height", "beam width"),
        objectives=("cost", "deflection"),
        constraint_names=("shear stress", "bending stress", "weld thinner than beam", "buckling load"),
        units={"deflection": "in", **dict.fromkeys(("weld height", "weld length", "beam height", "beam width"), "in")},
    )


def _car_velocities(x: Array) -> tuple[Array, Array]:
    """Of the middle of the B-pillar and of the front door."""
    return 10.58 - 0.674 * x[0] * x[1] - 0.67275 * x[1], 16.45 - 0.489 * x[2] * x[6] - 0.843 * x[4] * x[5]


def car_side_impact_objectives(x: Array) -> Array:
    weight = np.array([4.9, 6.67, 6.98, 4.01, 1.78, 1e-5, 2.73])
    force = 4.72 - 0.5 * x[3] - 0.19 * x[1] * x[2]
    return jnp.stack([1.98 + jnp.sum(weight.astype(x.dtype) * x), force, 0.5 * sum(_car_velocities(x))])


def car_side_impact_limits(x: Array) -> Array:
    x1, x2, x3, x4, x5, x6, x7 = x
    pillar, door = _car_velocities(x)
    viscous = (
        0.261 - 0.0159 * x1 * x2 - 0.06486 * x1 - 0.019 * x2 * x7 + 0.0144 * x3 * x5 + 0.0154464 * x6,
        0.214 + 0.00817 * x5 - 0.0587118 * x1 + 0.03099 * x2 * x6 - 0.018 * x2 * x7 + 0.030408 * x3
        - 0.00364 * x5 * x6 - 0.018 * x2**2,
        0.74 - 0.61 * x2 - 0.031296 * x3 - 0.031872 * x7 + 0.227 * x2**2,
    )  # fmt: skip
    ribs = (
        28.98 + 3.818 * x3 - 4.2 * x1 * x2 + 1.27296 * x6 - 2.68065 * x7,
        35.31728 + 2.95 * x3 - 5.057 * x1 * x2 - 3.795 * x2 - 3.4431 * x7,
        46.36 - 9.9 * x2 - 4.4505 * x1,
    )
    return jnp.stack([
        0.16 - 0.3717 * x2 * x4 - 0.0092928 * x3,
        *(v / 0.32 - 1.0 for v in viscous),
        *(d / 32.0 - 1.0 for d in ribs),
        (4.72 - 0.5 * x4 - 0.19 * x2 * x3) / 4.0 - 1.0,
        pillar / 9.9 - 1.0,
        door / 15.7 - 1.0,
    ])  # fmt: skip


def car_side_impact() -> Problem:
    """Weight, force on the pubis and velocity of the side: Jain & Deb (2014), IEEE Trans. Evol. Comput. 18(4):602-622.

    Limits are divided by their bounds.
    """
    return Problem(
        car_side_impact_objectives,
        as_bounds([(0.5, 1.5), (0.45, 1.35), (0.5, 1.5), (0.5, 1.5), (0.875, 2.625), (0.4, 1.2), (0.4, 1.2)]),
        ineq=car_side_impact_limits,
        name="car_side_impact",
        title="The side of a car: light or safe",
        source="Jain & Deb (2014), IEEE Trans. Evol. Comput. 18(4):602-622, section V",
        front=partial(known_front, "car_side_impact"),
        reference_point=(45.0, 4.05, 12.85),
        hypervolume=load_front("car_side_impact")[0],
        variables=("B-pillar inner", "B-pillar reinforcement", "floor side", "cross members", "door beam",
                   "door belt line", "roof rail"),
        objectives=("weight", "pubic force", "velocity"),
        constraint_names=("abdomen load", "upper viscous", "middle viscous", "lower viscous", "upper rib",
                          "middle rib", "lower rib", "pubic force limit", "pillar velocity", "door velocity"),
        units={"weight": "kg", "pubic force": "kN", "velocity": "mm/ms"},
    )  # fmt: skip


def water_resources_objectives(x: Array) -> Array:
    x1, x2, x3 = x
    return jnp.stack([
        106_780.37 * (x2 + x3) + 61_704.67,
        3000.0 * x1,
        305_700.0 * 2289.0 / (0.06 * 2289.0) ** 0.65 * x2,
        250.0 * 2289.0 * jnp.exp(-39.75 * x2 + 9.9 * x3 + 2.74),
        25.0 * (1.39 / (x1 * x2) + 4940.0 * x3 - 80.0),
    ])  # fmt: skip


def water_resources_limits(x: Array) -> Array:
    turn = 1.0 / (x[0] * x[1])
    rows = np.array([
        [0.00139, 4.94, -0.08, 1.0],
        [0.000306, 1.082, -0.0986, 1.0],
        [12.307, 49_408.24, 4051.02, 50_000.0],
        [2.098, 8046.33, -696.71, 16_000.0],
        [2.138, 7883.39, -705.04, 10_000.0],
        [0.417, 1721.26, -136.54, 2000.0],
        [0.164, 631.13, -54.48, 550.0],
    ])  # fmt: skip
    a, b, c, bound = (column.astype(x.dtype) for column in rows.T)
    return (a * turn + b * x[2] + c) / bound - 1.0


def water_resources() -> Problem:
    """Storm drainage of a city, five costs: Ray, Tai & Seow (2001), Engineering Optimization 33(4):399-424.

    Limits are divided by their bounds; the sixth as printed there, with 1 / (x1 x2).
    """
    return Problem(
        water_resources_objectives,
        as_bounds([(0.01, 0.45), (0.01, 0.10), (0.01, 0.10)]),
        ineq=water_resources_limits,
        name="water_resources",
        title="Storm drainage of a city at five costs",
        source="Ray, Tai & Seow (2001), Engineering Optimization 33(4):399-424",
        front=partial(known_front, "water_resources"),
        reference_point=(75_100.0, 1485.0, 3_110_000.0, 7_500_000.0, 27_500.0),
        hypervolume=load_front("water_resources")[0],
        variables=("local detention storage", "maximum treatment rate", "maximum overflow rate"),
        objectives=("drainage network", "storage facility", "treatment facility", "flood damage", "flood loss"),
        constraint_names=tuple(f"water quality {i}" for i in range(1, 8)),
    )


def crashworthiness_objectives(x: Array) -> Array:
    x1, x2, x3, x4, x5 = x
    mass = 1640.2823 + 2.3573285 * x1 + 2.3220035 * x2 + 4.5688768 * x3 + 7.7213633 * x4 + 4.4559504 * x5
    acceleration = (
        6.5856 + 1.15 * x1 - 1.0427 * x2 + 0.9738 * x3 + 0.8364 * x4 - 0.3695 * x1 * x4 + 0.0861 * x1 * x5
        + 0.3628 * x2 * x4 - 0.1106 * x1**2 - 0.3437 * x3**2 + 0.1764 * x4**2
    )  # fmt: skip
    intrusion = (
        -0.0551 + 0.0181 * x1 + 0.1024 * x2 + 0.0421 * x3 - 0.0073 * x1 * x2 + 0.024 * x2 * x3 - 0.0118 * x2 * x4
        - 0.0204 * x3 * x4 - 0.008 * x3 * x5 - 0.0241 * x2**2 + 0.0109 * x4**2
    )  # fmt: skip
    return jnp.stack([mass, acceleration, intrusion])


def crashworthiness() -> Problem:
    """The front of a car in a crash: Liao, Li, Yang, Zhang & Li (2008), Struct. Multidisc. Optim. 35:561-569."""
    return Problem(
        crashworthiness_objectives,
        as_bounds([(1.0, 3.0)] * 5),
        name="crashworthiness",
        title="The front of a car: mass, acceleration and intrusion in a crash",
        source="Liao, Li, Yang, Zhang & Li (2008), Struct. Multidisc. Optim. 35:561-569",
        front=partial(known_front, "crashworthiness"),
        reference_point=(1700.0, 12.0, 0.29),
        hypervolume=load_front("crashworthiness")[0],
        variables=("bumper", "bumper reinforcement", "front rail", "front rail outer", "rear rail"),
        objectives=("mass", "acceleration", "intrusion"),
        units={"mass": "kg", "intrusion": "m", **dict.fromkeys(
            ("bumper", "bumper reinforcement", "front rail", "front rail outer", "rear rail"), "mm")},
    )  # fmt: skip


def osy_objectives(x: Array) -> Array:
    centre, weight = np.array([2.0, 2.0, 1.0, 4.0, 1.0]), np.array([25.0, 1.0, 1.0, 1.0, 1.0])
    return jnp.stack([-jnp.sum(weight.astype(x.dtype) * (x[:5] - centre.astype(x.dtype)) ** 2), jnp.sum(x**2)])


def osy_limits(x: Array) -> Array:
    return -jnp.stack([
        (x[0] + x[1] - 2.0) / 2.0,
        (6.0 - x[0] - x[1]) / 6.0,
        (2.0 - x[1] + x[0]) / 2.0,
        (2.0 - x[0] + 3.0 * x[1]) / 2.0,
        (4.0 - (x[2] - 3.0) ** 2 - x[3]) / 4.0,
        ((x[4] - 3.0) ** 2 + x[5] - 4.0) / 4.0,
    ])  # fmt: skip


def osy() -> Problem:
    """Two quadratics and six limits: Osyczka & Kundu (1995), Structural Optimization 10:94-99."""
    return Problem(
        osy_objectives,
        as_bounds([(0.0, 10.0), (0.0, 10.0), (1.0, 5.0), (0.0, 6.0), (1.0, 5.0), (0.0, 10.0)]),
        ineq=osy_limits,
        name="osy",
        title="Front along five edges of the feasible set",
        source="Osyczka & Kundu (1995), Structural Optimization 10:94-99",
        front=partial(known_front, "osy"),
        reference_point=(-18.8, 83.2),
        hypervolume=load_front("osy")[0],
    )


# --- constrained designs of one objective -----------------------------------------------------------------------------


def _spring(x: Array) -> Array:
    wire, coil, turns = x
    return (turns + 2.0) * coil * wire**2


def _spring_ineq(x: Array) -> Array:
    wire, coil, turns = x
    shear = (4.0 * coil**2 - wire * coil) / (12566.0 * (coil * wire**3 - wire**4)) + 1.0 / (5108.0 * wire**2)
    return jnp.stack(
        [
            1.0 - coil**3 * turns / (71785.0 * wire**4),
            shear - 1.0,
            1.0 - 140.45 * wire / (coil**2 * turns),
            (wire + coil) / 1.5 - 1.0,
        ]
    )


def spring() -> Problem:
    """Tension/compression spring of Arora (1989), Introduction to Optimum Design, with wire diameter from 0.05."""
    return Problem(
        _spring,
        as_bounds([(0.05, 2.0), (0.25, 1.3), (2.0, 15.0)]),
        ineq=_spring_ineq,
        name="spring",
        title="Lightest tension/compression spring",
        source="Arora (1989), Introduction to Optimum Design, McGraw-Hill",
        optimum=0.012665232788319417,
        solutions=np.array([[0.05168906108276346, 0.3567177397994408, 11.28896575161334]]),
        variables=("wire diameter", "coil diameter", "active turns"),
        constraint_names=("deflection", "shear stress", "surge frequency", "outer diameter"),
    )


def cde_p2() -> Problem:
    """P2 of Fabris & Krohling (2012), section 6.1: g01."""
    return g01().with_(name="cde_p2", source=f"{FABRIS}, P2")


def cde_p3() -> Problem:
    """P3 of Fabris & Krohling (2012), section 6.1: g07, its constraints in the order of g07."""
    return g07().with_(name="cde_p3", source=f"{FABRIS}, P3")


def cde_p4() -> Problem:
    """P4 of Fabris & Krohling (2012), section 6.1: g09."""
    return g09().with_(name="cde_p4", source=f"{FABRIS}, P4")


def cde_p5() -> Problem:
    """P5 of Fabris & Krohling (2012), section 6.1: g10."""
    return g10().with_(name="cde_p5", source=f"{FABRIS}, P5")


def cde_p6() -> Problem:
    """P6 of Fabris & Krohling (2012), section 6.1: the spring."""
    return spring().with_(name="cde_p6", source=f"{FABRIS}, P6")


# --- gasoline blending ------------------------------------------------------------------------------------------------


COMPONENTS = (
    "catalytic gasoline 1",
    "catalytic gasoline 2",
    "non-aromatic gasoline",
    "hydrotreated or straight-run",
    "MTBE",
    "C9 aromatics",
    "reformate",
)
RANGES = [(0.3, 0.6), (0.2, 0.5), (0.0, 0.1), (0.0, 0.1), (0.0, 0.1), (0.0, 0.1), (0.0, 0.15)]

# Per component, in the order above.
PRICE = np.array([4200.0, 4300.0, 3900.0, 4200.0, 6000.0, 6500.0, 5000.0])
RESEARCH_OCTANE = np.array([92.0, 94.0, 78.0, 60.0, 108.0, 108.0, 95.7])
MOTOR_OCTANE = np.array([82.0, 83.0, 69.0, 54.0, 96.0, 96.0, 84.3])
VAPOUR_PRESSURE = np.array([69.0, 72.0, 82.5, 110.0, 44.0, 7.0, 44.0])
AROMATICS = np.array([20.0, 18.0, 1.5, 8.48, 0.0, 98.0, 63.6])
AROMATICS_AS_PRINTED = np.array([20.0, 18.0, 1.5, 8.48, 98.0, 0.0, 63.6])
BENZENE = np.array([0.6, 0.55, 0.0, 0.2, 0.0, 0.0, 0.0])
DENSITY = np.array([0.73, 0.75, 0.67, 0.73, 0.73, 0.86, 0.73])
OLEFINS = np.array([40.0, 42.0, 5.0, 5.0, 5.0, 0.0, 1.38])
SULFUR = np.array([408.8, 270.0, 16.75, 16.75, 36.5, 4.3, 36.5])  # ppm times density

RON_TARGET = 93.2
OBJECTIVES = ("cost", "octane giveaway")
LIMITS = (
    "research octane >= 93.2",
    "motor octane >= 81",
    "antiknock index >= 88.1",
    "vapour pressure <= 74 kPa",
    "aromatics <= 40 vol%",
    "benzene <= 2.3 vol%",
    "density <= 0.743 g/cm3",
    "olefins <= 34 vol%",
    "sulfur <= 480 ppm",
)

# The front is convex and piecewise linear between these blends, from cheap to exact in octane.
RECIPES = np.array(
    [
        [0.5923575757575757, 0.23812121212121212, 0.0, 0.0, 0.01952121212121212, 0.0, 0.15],
        [0.6, 0.23076673362144176, 0.0, 0.0, 0.020512508369346885, 0.0, 0.14872075800921136],
        [0.6, 0.21843110709987967, 0.058930505415162454, 0.0, 0.1, 0.0, 0.022638387484957882],
        [0.6, 0.21801682160247898, 0.06865869853917662, 0.0, 0.1, 0.013324479858344401, 0.0],
        [0.6, 0.22112482853223595, 0.0, 0.04255144032921811, 0.1, 0.03632373113854595, 0.0],
        [0.6, 0.2, 0.0, 0.04888888888888889, 0.1, 0.051111111111111114, 0.0],
    ]
)


def _mix(property_: np.ndarray, blend: Array) -> Array:
    return jnp.sum(jnp.asarray(property_, blend.dtype) * blend)


def _objectives(blend: Array) -> Array:
    return jnp.stack([_mix(PRICE, blend), _mix(RESEARCH_OCTANE, blend) - RON_TARGET])


def _limits(blend: Array, aromatics: np.ndarray) -> Array:
    research, motor = _mix(RESEARCH_OCTANE, blend), _mix(MOTOR_OCTANE, blend)
    density = _mix(DENSITY, blend)
    return jnp.stack(
        [
            RON_TARGET - research,
            81.0 - motor,
            88.1 - (research + motor) / 2.0,
            _mix(VAPOUR_PRESSURE, jnp.abs(blend) ** 1.14) - 74.0,  # reformate is negative where the six exceed 1
            _mix(aromatics, blend) - 40.0,
            _mix(BENZENE, blend) - 2.3,
            density - 0.743,
            _mix(OLEFINS, blend) - 34.0,
            _mix(SULFUR, blend) / density - 480.0,
        ]
    )


def _ineq(x: Array) -> Array:
    return _limits(x, AROMATICS)


def _as_printed_ineq(x: Array) -> Array:
    return _limits(x, AROMATICS_AS_PRINTED)


def _balance(x: Array) -> Array:
    return jnp.stack([jnp.sum(x) - 1.0])


def _recipe_curve(t: np.ndarray) -> np.ndarray:
    """The front (n, 2) at t in [0, 5], whole numbers being the vertices."""
    vertices = np.stack([RECIPES @ PRICE, RECIPES @ RESEARCH_OCTANE - RON_TARGET], axis=1)
    knots = np.arange(len(vertices))
    return np.stack([np.interp(t, knots, vertices[:, 0]), np.interp(t, knots, vertices[:, 1])], axis=1)


def blending() -> Problem:
    """Gasoline blending of Hu, Qi & Qian (2015), section 4.2; six fractions, reformate being the rest."""
    return _six(_ineq, "blending", "Gasoline blending: cost against octane giveaway")


def blending_as_printed() -> Problem:
    """The same as `blending`, with the aromatics coefficient of Hu, Qi & Qian (2015) where it is printed, on MTBE."""
    return _six(_as_printed_ineq, "blending_as_printed", "Gasoline blending with aromatics as printed")


def blending7() -> Problem:
    """The same as `blending` with all seven fractions of Hu, Qi & Qian (2015) and their balance as an equality."""
    return Problem(
        _objectives,
        as_bounds(RANGES),
        ineq=_ineq,
        eq=_balance,
        name="blending7",
        title="Gasoline blending with the mass balance as an equality",
        variables=COMPONENTS,
        constraint_names=(*LIMITS, "fractions add up to 1"),
        eq_tolerance=1e-4,  # of fractions: a hundredth of a percent
        **SHARED,
    )


SHARED: dict[str, Any] = {
    "source": f"{HU}, section 4.2",
    "front": partial(along_curve, _recipe_curve, [(k, k + 1) for k in range(len(RECIPES) - 1)]),
    "reference_point": (4550.0, 0.16),
    "hypervolume": 14.646677190619567,
    "objectives": OBJECTIVES,
    "units": dict.fromkeys(COMPONENTS, "fraction") | {"cost": "per unit", "octane giveaway": "RON"},
}


def _six(ineq: Function, name: str, title: str) -> Problem:
    return mixture(
        _objectives,
        RANGES,
        ineq=ineq,
        balance="reformate",
        name=name,
        title=title,
        variables=COMPONENTS,
        constraint_names=LIMITS,
        **SHARED,
    )
