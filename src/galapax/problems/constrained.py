"""Spring design, and the constrained problems P2..P6 of Fabris & Krohling (2012).

Their paper states each problem as min over x of max over the multipliers of an augmented Lagrangian; here it is the
constrained problem itself. Its misprints are corrected to the CEC 2006 definitions, which its own results agree with.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.problem import Problem, as_bounds
from galapax.problems.cec2006_g01_g13 import g01, g07, g09, g10
from galapax.problems.minmax import FABRIS

Array = jax.Array


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
