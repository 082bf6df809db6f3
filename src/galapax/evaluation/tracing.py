"""Traces a user's function to a JAX program, or raises an error that says what is wrong with it."""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.errors import InputError
from galapax.core.evaluation import Values
from galapax.core.problem import Function
from galapax.evaluation.compatibility import check_arity
from galapax.evaluation.impure import Draws
from galapax.evaluation.indices import check_indices
from galapax.numerics.devices import CONFIG
from galapax.numerics.jaxpr import ClosedJaxpr, Jaxpr


def trace_one(name: str, function: Function, dim: int, dtype: Any, vectorized: int) -> tuple[ClosedJaxpr, int]:
    """Trace a function; return its program and how many numbers it returns per solution, or raise an InputError."""
    check_arity(name, function, vectorized)
    x_shape = (vectorized, dim) if vectorized else (dim,)

    def make() -> tuple[ClosedJaxpr, Any]:
        # a new function each time: JAX keeps the trace of one it has seen, and what that read may have changed
        return jax.make_jaxpr(lambda x: function(x), return_shape=True)(jax.ShapeDtypeStruct(x_shape, dtype))

    draws = Draws(function)
    try:
        # a GPU would round what enters a product of float32 matrices to 10 bits, unless the user chose a precision
        with jax.default_matmul_precision(CONFIG.jax_default_matmul_precision or "highest"):
            traced, out = make()
            draws.warn(name, lambda: not _are_equal(traced, make()[0]))
    except (
        jax.errors.ConcretizationTypeError,
        jax.errors.TracerArrayConversionError,
        jax.errors.TracerBoolConversionError,
        jax.errors.TracerIntegerConversionError,
        jax.errors.NonConcreteBooleanIndexError,
    ) as error:
        raise InputError(
            f"{name} cannot be traced by JAX ({_first_line(error)}). Write it with jax.numpy and jnp.where in place of "
            "numpy, math and if; or pass blackbox=True to run it as plain Python."
        ) from error
    except TypeError as error:
        if "not a valid JAX type" in str(error):
            raise InputError(f"{name} must return numbers{_returned_type(error)}.") from None
        raise _build_call_error(name, x_shape, error) from error
    except InputError:
        raise
    except Exception as error:
        raise _build_call_error(name, x_shape, error) from error
    if np.dtype(dtype) == np.float64 and any(getattr(const, "dtype", None) == np.float32 for const in traced.consts):
        warnings.warn(
            f"{name} uses float32 arrays made outside it in a float64 run: values computed from them have "
            "only 7 digits. "
            "Create them with NumPy, which has float64, or inside the function.",
            stacklevel=2,
        )
    if isinstance(out, dict | Values):
        raise InputError(
            f"{name} returned a dict, which only a black box may do (blackbox=True); for functions that JAX "
            "compiles give fun, ineq and eq as functions: shared computations are still done only once."
        )
    if not vectorized:
        check_indices(name, traced, dim)
    outputs = traced.out_avals
    if not outputs:
        raise InputError(f"{name} returned nothing; it must return a number (is the `return` missing?).")
    for out in outputs:
        if jnp.issubdtype(out.dtype, jnp.complexfloating) or out.dtype == jnp.bool_:
            what = "the value to be minimised" if name == "fun" else "what must be 0" if name == "eq" else ""
            what = what or "what must be at most 0 (1 - x[0] for x[0] >= 1)"
            raise InputError(f"{name} must return real numbers, got {out.dtype}: return {what}.")
    return traced, _count_outputs(name, [tuple(o.shape) for o in outputs], vectorized)


def _are_equal(one: ClosedJaxpr, other: ClosedJaxpr) -> bool:
    """Whether two programs are the same, with their constants."""
    if text_of(one.jaxpr) != text_of(other.jaxpr) or len(one.consts) != len(other.consts):
        return False
    pairs = zip(one.consts, other.consts, strict=True)
    return all(a is b or np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def _count_outputs(name: str, shapes: list[tuple[int, ...]], vectorized: int) -> int:
    """How many numbers a function gives for one solution, from the shapes of what it returned."""
    if vectorized:
        if any(len(s) not in (1, 2) or s[0] != vectorized for s in shapes):
            raise InputError(
                f"{name} with vectorized=True is given x of shape (n, d) = ({vectorized}, d) and must return n values, "
                f"shape (n,) or (n, m); it returned shape {shapes[0]}. For a function of one solution remove "
                "vectorized."
            )
        shapes = [s[1:] for s in shapes]
    if any(len(s) > 1 for s in shapes):
        what = "a scalar, or a vector with one entry per objective" if name == "fun" else "a scalar or a vector"
        raise InputError(f"{name} of one solution must return {what}; it returned shape {shapes[0]}.")
    count = sum(math.prod(s) for s in shapes)
    if count == 0:
        raise InputError(f"{name} returned an empty array; it must return at least one number.")
    return count


def _build_call_error(name: str, x_shape: tuple[int, ...], error: Exception) -> InputError:
    return InputError(
        f"{name} raised {type(error).__name__} when called with x of shape {x_shape}: {_first_line(error)}"
    )


def _returned_type(error: TypeError) -> str:
    """Of JAX's sentence on a value that is none of its own, which type it was."""
    kind = re.search(r"a value of type <class '([\w.]+)'>", str(error))
    return "" if kind is None else f"; it returned a value of type {kind[1]}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def text_of(program: Jaxpr) -> str:
    """A program as text. What is not printed, arrays in nested programs and Python callbacks, is added as a hash."""
    digest = hashlib.sha256()
    for equation in equations(program):
        for name, value in equation.params.items():
            if "callback" in name:
                digest.update(str(hash(value)).encode())
            for inner in _programs_in(value):
                for const in getattr(inner, "consts", ()):
                    key = isinstance(const, jax.Array) and jnp.issubdtype(const.dtype, jax.dtypes.prng_key)
                    array = np.asarray(jax.random.key_data(const) if key else const)
                    digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return f"{program}\n{digest.hexdigest()}"


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a program and of all programs nested in it."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in _programs_in(value):
                yield from equations(getattr(inner, "jaxpr", inner))


def _programs_in(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _programs_in(item)
    elif isinstance(value, ClosedJaxpr) or hasattr(value, "eqns"):
        yield value


ASSUMED_LOOP_ROUNDS = 10_000  # of a while loop, whose length is unknown


def count_sequential_steps(jaxpr: Any) -> int:
    """How many rounds of loops a program takes one after another, about; what is not in a loop is fused and counts
    for nothing.
    """
    rounds = 0
    for equation in jaxpr.eqns:
        inner = sum(
            count_sequential_steps(getattr(p, "jaxpr", p))
            for value in equation.params.values()
            for p in _programs_in(value)
        )
        name = equation.primitive.name
        if name == "scan":
            rounds += int(equation.params["length"]) * max(1, inner)
        elif name == "while" or "callback" in name:
            rounds += ASSUMED_LOOP_ROUNDS * max(1, inner)
        else:
            rounds += inner
    return rounds
