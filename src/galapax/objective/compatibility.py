"""Checks that functions, names and algorithm match the number of objectives and constraints."""

from __future__ import annotations

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.algorithm import Algorithm
from galapax.core.checks import abbreviate
from galapax.core.direction import Maximize, check_direction_count
from galapax.core.errors import InputError
from galapax.core.evaluation import Shape
from galapax.core.problem import Function, Problem


def check_names(problem: Problem, shape: Shape, maximize: Maximize) -> None:
    """Raise an InputError unless names and directions are as many as objectives and constraints."""
    check_direction_count(maximize, shape.objectives, problem.name)
    for field, count in (("objectives", shape.objectives), ("constraint_names", shape.ineq + shape.eq)):
        names = getattr(problem, field)
        if names is not None and len(names) != count:
            raise InputError(
                f"{field} of problem {problem.name!r} has {len(names)} names for {count}; give one name for each."
            )


def check_compatibility(algorithm: Algorithm, problem: Problem, shape: Shape) -> None:
    """Raise an InputError if the algorithm or the reference point does not suit the number of objectives."""
    if shape.objectives > 1 and not algorithm.traits.multi_objective:
        raise InputError(
            f"fun of {problem.name!r} returns {shape.objectives} numbers, one per objective, and "
            f"{type(algorithm).__name__} minimises one objective: return a single number, such as their jnp.sum, or "
            'choose an algorithm for several objectives, such as "nsga2".'
        )
    if shape.objectives == 1 and algorithm.traits.multi_objective:
        raise InputError(
            f"fun of {problem.name!r} returns one number and {type(algorithm).__name__} is for several objectives: "
            'return a vector, one number per objective, or choose an algorithm for one objective, such as "de".'
        )
    reference = problem.reference_point
    if shape.objectives == 1 and reference is not None:
        raise InputError(
            f"reference_point applies to several objectives, and fun of {problem.name!r} returns one number: remove it."
        )
    if reference is not None and len(reference) != shape.objectives:
        raise InputError(
            f"reference_point must be {shape.objectives} numbers, one per objective of {problem.name!r}; "
            f"got {abbreviate(reference)}."
        )


def count_objectives(problem: Problem, dtype: str, vectorized: int) -> int:
    """Count the objectives by tracing; 1 if that fails, in which case tracing for the run reports the error.

    dtype: the precision of the run, since JAX remembers arrays that a function closes over in the one it saw first.
    vectorized: how many solutions the function takes at once, or 0.
    """
    for names_or_point in (problem.objectives, problem.reference_point):
        if names_or_point is not None:
            return int(np.size(names_or_point))
    shape = (vectorized, problem.dim) if vectorized else (problem.dim,)
    try:
        with jax.enable_x64(dtype == "float64"):
            out = jax.eval_shape(lambda x: problem.fun(x), jax.ShapeDtypeStruct(shape, dtype))
        shapes = [leaf.shape for leaf in jax.tree.leaves(out)]  # a list or tuple may be returned as well as an array
        return sum(math.prod(shape[1:] if vectorized else shape) for shape in shapes)
    except Exception:
        return 1


def check_arity(name: str, function: Function, vectorized: int = 0) -> None:
    """Raise an InputError unless the function can be called with one positional argument."""
    try:
        inspect.signature(function).bind(None)
    except ValueError:
        return  # a builtin without a signature
    except TypeError:
        signature = inspect.signature(function)
        expected = "all solutions x of shape (n, d)" if vectorized else "one solution x of shape (d,)"
        raise InputError(f"{name} must take one argument, {expected}; it is defined as {signature}.") from None


def is_differentiable(problem: Problem) -> bool:
    """Whether JAX can differentiate the constraints as functions of one solution."""
    functions = [f for f in (problem.ineq, problem.eq) if f is not None]
    x = jax.ShapeDtypeStruct((problem.dim,), jnp.float32)
    try:
        for function in functions:
            jax.eval_shape(jax.jacfwd(lambda x, f=function: f(x)), x)
    except Exception:
        return False
    return bool(functions)
