"""Sine, cosine and tangent as array code, for CPUs.

XLA calls the C library for these, one number at a time: 10 ns each in float32, 20 in float64, and most of the time of
objectives such as Rastrigin's. The polynomials here are vectorised and take a tenth of that, to within one unit in the
last place of 1. Arguments beyond a limit, where the reduction by pi/2 would lose digits, still go to the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.numerics.jaxpr import ClosedJaxpr, Literal, evaluate_equation


class _Coefficients(NamedTuple):
    half_pi: tuple[
        float, float, float
    ]  # pi/2 as a sum of three numbers, the first two short enough for exact multiples
    limit: float
    sine: tuple[float, ...]
    cosine: tuple[float, ...]


# coefficients of Moshier's Cephes library (single precision) and of fdlibm (double precision)
_SINGLE = _Coefficients(
    half_pi=(1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),
    limit=8192.0,
    sine=(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    cosine=(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
)
_DOUBLE = _Coefficients(
    half_pi=(1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624871116645580e-21),
    limit=1e6,
    sine=(1.58969099521155010221e-10, -2.50507602534068634195e-8, 2.75573137070700676789e-6,
          -1.98412698298579493134e-4, 8.33333333332248946124e-3, -1.66666666666666324348e-1),
    cosine=(-1.13596475577881948265e-11, 2.08757232129817482790e-9, -2.75573143513906633035e-7,
            2.48015872894767294178e-5, -1.38888888888741095749e-3, 4.16666666666666019037e-2),
)  # fmt: skip


def sine(x: Array) -> Array:
    return _fast_within_limit(x, jnp.sin, lambda x: _select_quadrant(*_reduce_argument(x), turn=0))


def cosine(x: Array) -> Array:
    return _fast_within_limit(x, jnp.cos, lambda x: _select_quadrant(*_reduce_argument(x), turn=1))


def tangent(x: Array) -> Array:
    def ratio(x: Array) -> Array:
        s, c, quadrant = _reduce_argument(x)
        odd = quadrant & 1 == 1
        return jnp.where(odd, -c, s) / jnp.where(odd, s, c)

    return _fast_within_limit(x, jnp.tan, ratio)


def _fast_within_limit(x: Array, exact: Callable[[Array], Array], fast: Callable[[Array], Array]) -> Array:
    """Evaluate `fast`, and `exact` for the elements beyond the limit: no element's value depends on the others."""
    far = jnp.abs(x) > _coefficients_for(x).limit
    return jax.lax.cond(
        jnp.any(far), lambda x: jnp.where(jnp.abs(x) > _coefficients_for(x).limit, exact(x), fast(x)), fast, x
    )


def _coefficients_for(x: Array) -> _Coefficients:
    return _DOUBLE if x.dtype == jnp.float64 else _SINGLE


def _reduce_argument(x: Array) -> tuple[Array, Array, Array]:
    """Reduce x by quarter turns: sine and cosine of the remainder, and the number of quarter turns."""
    constants = _coefficients_for(x)
    turns = jnp.round(x * (2 / math.pi))
    remainder = x
    for piece in constants.half_pi:
        remainder = remainder - turns * piece
    z = remainder * remainder
    s = remainder + remainder * z * horner(constants.sine, z)
    c = 1 - 0.5 * z + z * z * horner(constants.cosine, z)
    return s, c, turns.astype(jnp.int32)


def _select_quadrant(s: Array, c: Array, quadrant: Array, turn: int) -> Array:
    """Return the sine of the angle plus `turn` quarter turns, from its sine and cosine."""
    quadrant = quadrant + turn
    value = jnp.where(quadrant & 1 == 0, s, c)
    return jnp.where(quadrant & 2 == 0, value, -value)


def horner(coefficients: tuple[float, ...], z: Array) -> Array:
    """Evaluate the polynomial with these coefficients, highest power first."""
    total = jnp.full_like(z, coefficients[0])
    for c in coefficients[1:]:
        total = total * z + c
    return total


FAST_VERSIONS = {"sin": sine, "cos": cosine, "tan": tangent}


def evaluate_fast(closed: ClosedJaxpr, *arguments: object) -> list[Array]:
    """Evaluate a jaxpr with the sines, cosines and tangents of this module; loops inside it are left alone."""
    values: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(closed.jaxpr.invars, arguments, strict=True))

    def value_of(atom: object) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in closed.jaxpr.eqns:
        primitive, parameters = equation.primitive, equation.params
        inputs = [value_of(atom) for atom in equation.invars]
        if primitive.name in FAST_VERSIONS and equation.invars[0].aval.dtype in (jnp.float32, jnp.float64):
            outputs = [FAST_VERSIONS[primitive.name](jnp.asarray(inputs[0]))]
        elif primitive.name in ("jit", "pjit") and isinstance(parameters.get("jaxpr"), ClosedJaxpr):
            outputs = evaluate_fast(parameters["jaxpr"], *inputs)
        else:
            outputs = evaluate_equation(closed.jaxpr, equation, inputs)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [value_of(atom) for atom in closed.jaxpr.outvars]
