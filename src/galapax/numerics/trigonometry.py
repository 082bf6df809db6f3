"""Sine, cosine and tangent as array code, for CPUs.

XLA calls the C library for these, one number at a time: 10 ns each in float32, 20 in float64, and most of the time of
objectives such as Rastrigin's. The polynomials here are vectorised and take a tenth of that, to within one unit in the
last place of 1. Arguments beyond LIMIT, where the reduction by pi/2 would lose digits, still go to the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.numerics.equations import ClosedJaxpr, Literal, run_one


class _Table(NamedTuple):
    half_pi: tuple[float, float, float]  # pi/2 in three parts, the first two short enough for exact multiples
    limit: float
    sine: tuple[float, ...]
    cosine: tuple[float, ...]


# coefficients of Moshier's Cephes library (single precision) and of fdlibm (double precision)
_SINGLE = _Table(
    half_pi=(1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),
    limit=8192.0,
    sine=(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    cosine=(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
)
_DOUBLE = _Table(
    half_pi=(1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624871116645580e-21),
    limit=1e6,
    sine=(1.58969099521155010221e-10, -2.50507602534068634195e-8, 2.75573137070700676789e-6,
          -1.98412698298579493134e-4, 8.33333333332248946124e-3, -1.66666666666666324348e-1),
    cosine=(-1.13596475577881948265e-11, 2.08757232129817482790e-9, -2.75573143513906633035e-7,
            2.48015872894767294178e-5, -1.38888888888741095749e-3, 4.16666666666666019037e-2),
)  # fmt: skip


def sine(x: Array) -> Array:
    return _within(x, jnp.sin, lambda x: _turned(*_parts(x), turn=0))


def cosine(x: Array) -> Array:
    return _within(x, jnp.cos, lambda x: _turned(*_parts(x), turn=1))


def tangent(x: Array) -> Array:
    def ratio(x: Array) -> Array:
        s, c, quadrant = _parts(x)
        odd = quadrant & 1 == 1
        return jnp.where(odd, -c, s) / jnp.where(odd, s, c)

    return _within(x, jnp.tan, ratio)


def _within(x: Array, exact: Callable[[Array], Array], fast: Callable[[Array], Array]) -> Array:
    """`fast`, but `exact` for the elements beyond the limit: no element's value depends on the others."""
    far = jnp.abs(x) > _table(x).limit
    return jax.lax.cond(jnp.any(far), lambda x: jnp.where(jnp.abs(x) > _table(x).limit, exact(x), fast(x)), fast, x)


def _table(x: Array) -> _Table:
    return _DOUBLE if x.dtype == jnp.float64 else _SINGLE


def _parts(x: Array) -> tuple[Array, Array, Array]:
    """Sine and cosine of what is left of x after whole quarter turns, and how many those were."""
    table = _table(x)
    turns = jnp.round(x * (2 / math.pi))
    rest = x
    for part in table.half_pi:
        rest = rest - turns * part
    z = rest * rest
    s = rest + rest * z * horner(table.sine, z)
    c = 1 - 0.5 * z + z * z * horner(table.cosine, z)
    return s, c, turns.astype(jnp.int32)


def _turned(s: Array, c: Array, quadrant: Array, turn: int) -> Array:
    """The sine of the angle plus `turn` quarter turns."""
    quadrant = quadrant + turn
    value = jnp.where(quadrant & 1 == 0, s, c)
    return jnp.where(quadrant & 2 == 0, value, -value)


def horner(coefficients: tuple[float, ...], z: Array) -> Array:
    """The polynomial with these coefficients, highest power first."""
    total = jnp.full_like(z, coefficients[0])
    for c in coefficients[1:]:
        total = total * z + c
    return total


INSTEAD = {"sin": sine, "cos": cosine, "tan": tangent}


def run(closed: ClosedJaxpr, *arguments: Any) -> list[Any]:
    """What the program gives, with its sines, cosines and tangents computed here; loops inside it are left alone."""
    values: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(closed.jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in closed.jaxpr.eqns:
        primitive, parameters = equation.primitive, equation.params
        inputs = [read(atom) for atom in equation.invars]
        if primitive.name in INSTEAD and equation.invars[0].aval.dtype in (jnp.float32, jnp.float64):
            outputs = [INSTEAD[primitive.name](jnp.asarray(inputs[0]))]
        elif primitive.name in ("jit", "pjit") and isinstance(parameters.get("jaxpr"), ClosedJaxpr):
            outputs = run(parameters["jaxpr"], *inputs)
        else:
            outputs = run_one(closed.jaxpr, equation, inputs)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in closed.jaxpr.outvars]
