"""Problems with integers and choices among their variables, whose optima are known: published, or found by enumeration.

`tests/core/test_variables.py` finds each optimum again, by trying every combination of the discrete variables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.problem import Function, Problem
from galapax.core.variables import boolean, choice, integer, real

Values = Mapping[str, Array]


def _problem(fun: Function, variables: Any, **described: Any) -> Problem:
    return Problem(fun, variables, **described)


SANDGREN = "Sandgren (1990), Journal of Mechanical Design 112(2):223-229, doi:10.1115/1.2912596"
WIRES = (0.009, 0.0095, 0.0104, 0.0118, 0.0128, 0.0132, 0.014, 0.015, 0.0162, 0.0173, 0.018, 0.02, 0.023, 0.025, 0.028,
         0.032, 0.035, 0.041, 0.047, 0.054, 0.063, 0.072, 0.08, 0.092, 0.105, 0.12, 0.135, 0.148, 0.162, 0.177, 0.192,
         0.207, 0.225, 0.244, 0.263, 0.283, 0.307, 0.331, 0.362, 0.394, 0.4375, 0.5)  # fmt: skip
BARS = (6.0, 6.16, 6.32, 6.6, 7.0, 7.11, 7.2, 7.8, 7.9, 8.0, 8.4)


def _gear_train(v: Values) -> Array:
    ratio = v["driver 1"] * v["driver 2"] / (v["driven 1"] * v["driven 2"])
    return (1 / 6.931 - ratio) ** 2


def gear_train() -> Problem:
    """The gear train of Sandgren (1990): four numbers of teeth for a ratio as close to 1/6.931 as can be."""
    return _problem(
        _gear_train,
        {name: integer(12, 60) for name in ("driver 1", "driver 2", "driven 1", "driven 2")},
        name="gear_train",
        title="Numbers of teeth for a given gear ratio",
        source=SANDGREN,
        optimum=2.7008571488865134e-12,
        solutions=np.array([[16, 19, 43, 49], [19, 16, 43, 49], [16, 19, 49, 43], [19, 16, 49, 43]], np.float64),
    )


def _vessel(v: Values) -> Array:
    shell, head, radius, length = v["shell"], v["head"], v["radius"], v["length"]
    walls = 0.6224 * shell * radius * length + 1.7781 * head * radius**2
    return walls + 3.1661 * shell**2 * length + 19.84 * shell**2 * radius


def _vessel_ineq(v: Values) -> Array:
    shell, head, radius, length = v["shell"], v["head"], v["radius"], v["length"]
    volume = math.pi * radius**2 * length + 4 / 3 * math.pi * radius**3
    return jnp.stack([0.0193 * radius - shell, 0.00954 * radius - head, 1296000 - volume, length - 240])


def pressure_vessel() -> Problem:
    """The pressure vessel of Sandgren (1990): plates come in multiples of 1/16 inch, up to 99 of them."""
    plates = tuple(0.0625 * np.arange(1, 100))
    return _problem(
        _vessel,
        {
            "shell": choice(*plates, unit="in"),
            "head": choice(*plates, unit="in"),
            "radius": real(10, 200, unit="in"),
            "length": real(10, 200, unit="in"),
        },
        ineq=_vessel_ineq,
        name="pressure_vessel",
        title="Cheapest pressure vessel from standard plates",
        source=SANDGREN,
        optimum=6059.714335048436,
        solutions=np.array([[0.8125, 0.4375, 42.0984455958549, 176.636595842439]]),
        constraint_names=("shell thickness", "head thickness", "volume", "length"),
    )


def _reducer_parts(v: Values) -> tuple[Array, ...]:
    names = ("face width", "module", "teeth", "length 1", "length 2", "shaft 1", "shaft 2")
    return tuple(v[name] for name in names)


def _reducer(v: Values) -> Array:
    width, module, teeth, first, second, shaft, other = _reducer_parts(v)
    gears = 0.7854 * width * module**2 * (3.3333 * teeth**2 + 14.9334 * teeth - 43.0934)
    shafts = 7.4777 * (shaft**3 + other**3) + 0.7854 * (first * shaft**2 + second * other**2)
    return gears - 1.508 * width * (shaft**2 + other**2) + shafts


def _reducer_ineq(v: Values) -> Array:
    width, module, teeth, first, second, shaft, other = _reducer_parts(v)
    bending = jnp.sqrt((745 * first / (module * teeth)) ** 2 + 16.9e6) / (110 * shaft**3)
    torsion = jnp.sqrt((745 * second / (module * teeth)) ** 2 + 157.5e6) / (85 * other**3)
    return jnp.stack(
        [
            27 / (width * module**2 * teeth) - 1,
            397.5 / (width * module**2 * teeth**2) - 1,
            1.93 * first**3 / (module * teeth * shaft**4) - 1,
            1.93 * second**3 / (module * teeth * other**4) - 1,
            bending - 1,
            torsion - 1,
            module * teeth / 40 - 1,
            5 * module / width - 1,
            width / (12 * module) - 1,
            (1.5 * shaft + 1.9) / first - 1,
            (1.1 * other + 1.9) / second - 1,
        ]
    )


def speed_reducer() -> Problem:
    """The speed reducer of Golinski (1973), with a whole number of teeth on the pinion."""
    return _problem(
        _reducer,
        {
            "face width": real(2.6, 3.6, unit="cm"),
            "module": real(0.7, 0.8, unit="cm"),
            "teeth": integer(17, 28),
            "length 1": real(7.3, 8.3, unit="cm"),
            "length 2": real(7.3, 8.3, unit="cm"),
            "shaft 1": real(2.9, 3.9, unit="cm"),
            "shaft 2": real(5.0, 5.5, unit="cm"),
        },
        ineq=_reducer_ineq,
        name="speed_reducer",
        title="Lightest gear box of a small aircraft",
        source="Golinski (1973), Mechanism and Machine Theory 8(4):419-436, doi:10.1016/0094-114X(73)90024-9",
        optimum=2994.471066146818,
        solutions=np.array([[3.5, 0.7, 17, 7.3, 7.715319911478238, 3.3502146660964516, 5.286654464980217]]),
    )


def _beam(v: Values) -> Array:
    return 29.4 * v["steel"] + 0.6 * v["width"] * v["depth"]


def _beam_ineq(v: Values) -> Array:
    steel, width, depth = v["steel"], v["width"], v["depth"]
    return jnp.stack([width / depth - 4, 180 + 7.375 * steel**2 / depth - steel * width])


def reinforced_beam() -> Problem:
    """The reinforced concrete beam of Amir & Hasegawa (1989): bars from a list, a whole number of inches."""
    return _problem(
        _beam,
        {"steel": choice(*BARS, unit="in2"), "width": integer(28, 40, unit="in"), "depth": real(5, 10, unit="in")},
        ineq=_beam_ineq,
        name="reinforced_beam",
        title="Cheapest reinforced concrete beam",
        source="Amir & Hasegawa (1989), Journal of Structural Engineering 115(3):626-646",
        optimum=359.208,
        solutions=np.array([[6.32, 34, 8.5]]),
        constraint_names=("slenderness", "moment"),
    )


def _coil_spring(v: Values) -> Array:
    return math.pi**2 * v["coil"] * v["wire"] ** 2 * (v["turns"] + 2) / 4


def _coil_spring_ineq(v: Values) -> Array:
    wire, coil, turns = v["wire"], v["coil"], v["turns"]
    index = coil / wire
    stress = (4 * index - 1) / (4 * index - 4) + 0.615 / index
    stiffness = 11.5e6 * wire**4 / (8 * turns * coil**3)
    return jnp.stack(
        [
            8 * stress * 1000 * coil / (math.pi * wire**3) / 189000 - 1,
            (1000 / stiffness + 1.05 * (turns + 2) * wire) / 14 - 1,
            0.2 - wire,
            coil - 3,
            3 - index,
            300 / stiffness - 6,
            1.25 - 700 / stiffness,
        ]
    )


def coil_spring() -> Problem:
    """The compression spring of Sandgren (1990): wire from a list, a whole number of turns.

    Two constraints are divided by their limits. The seventh of the original, that deflections add up, holds for every
    spring and is left out.
    """
    return _problem(
        _coil_spring,
        {"turns": integer(1, 70), "coil": real(0.6, 3, unit="in"), "wire": choice(*WIRES, unit="in")},
        ineq=_coil_spring_ineq,
        name="coil_spring",
        title="Least wire for a compression spring",
        source=SANDGREN,
        optimum=2.6585591659695993,
        solutions=np.array([[9, 1.2230410099638072, 0.283]]),
        constraint_names=("stress", "length", "wire", "coil", "index", "deflection", "working deflection"),
    )


STOCKS = ("light naphtha", "heavy naphtha", "isomerate", "cracked")
STOCK = {"cost": (400.0, 380.0, 520.0, 450.0), "octane": (68.0, 62.0, 85.0, 90.0), "sulphur": (20.0, 35.0, 2.0, 90.0)}


def _petrol_quality(v: Values, quantity: str, reformate: float, alkylate: float) -> Array:
    """Of the blend: what is not reformate or alkylate is the stock."""
    stock = jnp.asarray(STOCK[quantity], v["reformate"].dtype)[v["stock"]]
    rest = 1 - v["reformate"] - v["alkylate"]
    return reformate * v["reformate"] + alkylate * v["alkylate"] + stock * rest


def _petrol(v: Values) -> Array:
    dosing = 6.0 * v["doses"] + jnp.where(v["stabiliser"], 6.0, 0.0)
    return _petrol_quality(v, "cost", 610.0, 660.0) + dosing


def _petrol_ineq(v: Values) -> Array:
    octane = _petrol_quality(v, "octane", 98.0, 95.0) + 0.8 * v["doses"] - 0.04 * v["doses"] ** 2
    sulphur = _petrol_quality(v, "sulphur", 1.0, 5.0)
    # reformate beyond 45 % and more than three doses each need the stabiliser
    aged = jnp.where(v["stabiliser"], 0.3, 0.0)
    return jnp.stack(
        [
            95 - octane,
            (sulphur - 10) / 10,
            v["reformate"] + v["alkylate"] - 1,
            v["reformate"] - 0.45 - aged,
            0.1 * (v["doses"] - 3) - aged,
        ]
    )


def petrol() -> Problem:
    """A blend of our own: two components in any amount, one of four base stocks, doses of an additive, a stabiliser."""
    return _problem(
        _petrol,
        {
            "stock": choice(*STOCKS),
            "reformate": real(0, 1),
            "alkylate": real(0, 1),
            "doses": integer(0, 8),
            "stabiliser": boolean(),
        },
        ineq=_petrol_ineq,
        name="petrol",
        title="Cheapest petrol of 95 octane",
        source="galapax",
        optimum=595.9692307692307,
        solutions=np.array([[2, 9.24 / 13, 0, 1, 1]]),
        constraint_names=("octane", "sulphur", "amounts", "reformate", "doses"),
    )


WEIGHTS = (21, 53, 38, 12, 44, 29, 60, 35, 17, 50, 26, 41, 33, 58, 15, 47)
WORTHS = (33, 71, 49, 20, 62, 37, 80, 52, 22, 66, 40, 51, 47, 75, 24, 60)
CAPACITY = 260.0


def _knapsack(x: Array) -> Array:
    return -jnp.sum(jnp.asarray(WORTHS, x.dtype) * x)


def _knapsack_ineq(x: Array) -> Array:
    return jnp.sum(jnp.asarray(WEIGHTS, x.dtype) * x, keepdims=True) - CAPACITY


def knapsack() -> Problem:
    """Sixteen things to take or to leave: the most worth within a weight."""
    return _problem(
        _knapsack,
        [boolean() for _ in WEIGHTS],
        ineq=_knapsack_ineq,
        name="knapsack",
        title="The most worth within a weight",
        source="galapax",
        optimum=-371.0,
        solutions=np.array([[1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0]], np.float64),
    )


def _machines(x: Array) -> Array:
    cost = jnp.asarray((7, 9, 4, 12, 6), x.dtype)
    wear = jnp.asarray((0.3, 0.1, 0.5, 0.05, 0.2), x.dtype)
    return jnp.sum(cost * x + wear * x**2) + 0.2 * x[0] * x[1] - 0.3 * x[2] * x[3]


def _machines_ineq(x: Array) -> Array:
    return jnp.stack(
        [
            60 - (5 * x[0] + 8 * x[1] + 3 * x[2] + 11 * x[3] + 4 * x[4]),
            20 - (2 * x[0] + 1 * x[1] + 3 * x[2] + 2 * x[3] + 2 * x[4]),
            jnp.abs(x[0] - x[3]) - 3,
            x[1] * x[4] - 12,
        ]
    )


def machines() -> Problem:
    """An integer program of our own with products of the variables: how many machines of each of five kinds."""
    return _problem(
        _machines,
        [integer(0, 9) for _ in range(5)],
        ineq=_machines_ineq,
        name="machines",
        title="Cheapest set of machines for two tasks",
        source="galapax",
        optimum=74.95,
        solutions=np.array([[2, 1, 3, 3, 0]], np.float64),
    )
