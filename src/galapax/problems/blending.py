"""Gasoline blending of Hu, Qi & Qian (2015), section 4.2: cost against octane giveaway under nine quality limits.

Differs from the paper: the aromatics coefficient 98 belongs to C9, not to MTBE (`blending_as_printed` keeps it), and
sulfur is limited to 480 ppm as in its numeric model, since its general limit of 50 leaves no feasible blend. Neither
choice moves the front, which only the antiknock index and the olefins shape.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.mixture import mixture
from galapax.core.problem import Function, Problem, as_bounds
from galapax.problems.multiobjective import HU, along_curve

Array = jax.Array

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
