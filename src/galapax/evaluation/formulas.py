"""From a user's functions to an Evaluation: traced once, checked, and the one place where a failure becomes "worst"."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from galapax.core.algorithm import Algorithm, Evaluation, Shape
from galapax.core.checks import short
from galapax.core.errors import InputError
from galapax.core.problem import Bounds, Function, Problem
from galapax.numerics import trigonometry
from galapax.operators.constraints import onto_constraints

VECTOR_TRIGONOMETRY = os.environ.get("GALAPAX_TRIGONOMETRY") != "libm"  # see trigonometry.py
PROBES = 8  # points at which an objective is tried before the run is compiled


@dataclass(frozen=True, eq=False)
class Formulas:
    """A problem's functions as JAX programs, equal to another's when the programs are equal.

    Comparing programs and not function objects means that the same lambda written twice compiles once, and that a
    function which reads a changed global is seen to be another. Arrays that a function closes over are data (`consts`).
    """

    shape: Shape
    fun: ClosedJaxpr
    ineq: ClosedJaxpr | None
    eq: ClosedJaxpr | None
    eq_tolerance: float
    maximize: bool
    batched: bool  # the functions take a whole population (n, d)
    own_trigonometry: bool  # sines and the like are computed by trigonometry.py
    text: str

    @property
    def consts(self) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(f.consts) if f else () for f in (self.fun, self.ineq, self.eq))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formulas) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, consts: tuple[tuple[Array, ...], ...], x: Array) -> Evaluation:
        """Evaluate candidates x (n, d)."""
        n = x.shape[0]

        def values(closed: ClosedJaxpr, own: tuple[Array, ...]) -> Array:
            if self.batched:
                out = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, list(own)))(x)
            else:
                out = _each_row(closed, own, x, self.own_trigonometry)
            return _stack(out, n).astype(x.dtype)

        objectives = values(self.fun, consts[0])
        return summarise(
            -objectives if self.maximize else objectives,
            values(self.ineq, consts[1]) if self.ineq else None,
            values(self.eq, consts[2]) if self.eq else None,
            self.eq_tolerance,
        )

    def repair(self, consts: tuple[tuple[Array, ...], ...], x: Array, bounds: Bounds) -> Array:
        """x (d,) moved by a Newton step towards the constraints that it violates; as it came if it violates none.

        The step aims at half the tolerance of an equality, which leaves room for its curvature.
        """

        def values(x: Array) -> Array:
            named = zip((self.ineq, self.eq), consts[1:], strict=True)
            return jnp.concatenate([_values(closed, own, x) for closed, own in named if closed])

        now, jacobian = values(x), jax.jacfwd(values)(x)
        ineq, eq = now[: self.shape.ineq], now[self.shape.ineq :]
        within = jnp.clip(eq, -self.eq_tolerance / 2, self.eq_tolerance / 2)
        wanted = [jnp.minimum(ineq, 0), jnp.where(jnp.abs(eq) > self.eq_tolerance, within, eq)]
        return onto_constraints(x, now, jacobian, jnp.concatenate(wanted), bounds)


def _values(closed: ClosedJaxpr, consts: tuple[Array, ...], x: Array) -> Array:
    """The program's outputs for one solution x (d,) as one vector."""
    return _stack(jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, list(consts)))(x), 1)[0].astype(x.dtype)


@dataclass(frozen=True, eq=False)
class Game:
    """A function of x and y as a JAX program, equal to another's when the programs are equal; arrays are data."""

    program: ClosedJaxpr
    text: str

    @property
    def consts(self) -> tuple[Any, ...]:
        return tuple(self.program.consts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Game) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, consts: tuple[Array, ...], x: Array, y: Array) -> Array:
        """The values of all pairs of x (n, dx) and y (m, dy): (n, m)."""
        return jax.vmap(lambda one: jax.vmap(lambda other: self.one(consts, one, other))(y))(x)

    def one(self, consts: tuple[Array, ...], x: Array, y: Array) -> Array:
        """The value of one pair."""
        (out,) = jaxpr_as_fun(ClosedJaxpr(self.program.jaxpr, list(consts)))(jnp.concatenate([x, y]))
        return out.reshape(()).astype(x.dtype)


def trace_game(fun: Function, x_dim: int, y_dim: int, dtype: Any) -> Game:
    """Turn a function of x and y into a JAX program, or say what is wrong with it."""
    if not callable(fun):
        raise InputError(f"fun must be a function of x and y, got {fun!r}.")
    try:
        inspect.signature(fun).bind(None, None)
    except ValueError:
        pass  # a builtin without a signature
    except TypeError:
        given = inspect.signature(fun)
        raise InputError(f"fun must take two arguments, x and y; it is defined as {given}.") from None
    program, count = _trace_one("fun", lambda both: fun(both[:x_dim], both[x_dim:]), x_dim + y_dim, dtype, 0)
    if count != 1:
        raise InputError(
            f"fun must return one number, the value that x minimises and y maximises; it returned {count}."
        )
    return Game(program, f"{x_dim} {y_dim} {_text_of(program)}")


def differentiable(problem: Problem) -> bool:
    """Whether JAX can differentiate the constraints as functions of one solution."""
    functions = [f for f in (problem.ineq, problem.eq) if f is not None]
    x = jax.ShapeDtypeStruct((problem.dim,), jnp.float32)
    try:
        for function in functions:
            jax.eval_shape(jax.jacfwd(lambda x, f=function: f(x)), x)
    except Exception:
        return False
    return bool(functions)


def _each_row(closed: ClosedJaxpr, consts: tuple[Array, ...], x: Array, own_trigonometry: bool) -> list[Array]:
    """The program's outputs for every row of x."""

    def program(consts: tuple[Array, ...], row: Array) -> Any:
        return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, list(consts)))(row)

    rows = jax.vmap(program, in_axes=(None, 0))
    if not own_trigonometry:
        return rows(consts, x)
    return trigonometry.run(jax.make_jaxpr(rows)(consts, x), *consts, x)


def summarise(objectives: Any, ineq: Any, eq: Any, eq_tolerance: float, xp: Any = jnp) -> Evaluation:
    """An Evaluation from raw values (n, m), (n, p), (n, q): violations added up, failures marked and made worst.

    xp: the array library, jax.numpy or numpy.
    """
    failed = ~xp.all(xp.isfinite(objectives), axis=1)
    violation = None
    if ineq is not None or eq is not None:
        violation = xp.zeros(objectives.shape[0], objectives.dtype)
        if ineq is not None:
            violation = violation + xp.sum(xp.maximum(ineq, 0), axis=1)
        if eq is not None:
            violation = violation + xp.sum(xp.maximum(xp.abs(eq) - eq_tolerance, 0), axis=1)
        failed = failed | ~xp.isfinite(violation)
        violation = xp.where(failed, xp.inf, violation)
    return Evaluation(xp.where(failed[:, None], xp.inf, objectives), violation, failed, ineq, eq)


def _stack(out: Any, n: int) -> Array:
    """The outputs of a program, one or several, as (n, k)."""
    columns = [o.reshape(n, -1) for o in out]
    return columns[0] if len(columns) == 1 else jnp.concatenate(columns, axis=1)


def trace(problem: Problem, dtype: Any, *, maximize: bool = False, vectorized: int = 0) -> Formulas:
    """Turn a problem's functions into JAX programs, or say what is wrong with them.

    vectorized: 0 for functions of one solution (d,), else the number n of rows they are given at once.
    """
    closed: dict[str, ClosedJaxpr | None] = {}
    counts: dict[str, int] = {}
    for name in ("fun", "ineq", "eq"):
        function = getattr(problem, name)
        if function is None:
            closed[name], counts[name] = None, 0
        else:
            closed[name], counts[name] = _trace_one(name, function, problem.dim, dtype, vectorized)
    shape = Shape(counts["fun"], counts["ineq"], counts["eq"])
    check_names(problem, shape)
    programs = {name: program for name, program in closed.items() if program is not None}
    text = "\n".join(
        [f"{shape} {problem.eq_tolerance} {maximize} {vectorized}"]
        + [f"{name}: {_text_of(program)}" for name, program in programs.items()]
    )
    return Formulas(
        shape,
        programs["fun"],
        closed["ineq"],
        closed["eq"],
        problem.eq_tolerance,
        maximize,
        batched=vectorized > 0,
        own_trigonometry=_replaces_trigonometry(list(programs.values())) and not vectorized,
        text=text,
    )


def _replaces_trigonometry(programs: list[ClosedJaxpr]) -> bool:
    if jax.default_backend() != "cpu" or not VECTOR_TRIGONOMETRY:
        return False
    return any(e.primitive.name in trigonometry.INSTEAD for p in programs for e in _equations(p.jaxpr))


def check_names(problem: Problem, shape: Shape) -> None:
    """Names given for objectives and constraints must be as many as there are."""
    for field, count in (("objectives", shape.objectives), ("constraint_names", shape.ineq + shape.eq)):
        names = getattr(problem, field)
        if names is not None and len(names) != count:
            raise InputError(f"{field} of problem {problem.name!r} has {len(names)} names for {count}; name each one.")


def check_fit(algorithm: Algorithm, problem: Problem, shape: Shape) -> None:
    """One objective for the algorithms that minimise one, several for the others."""
    if shape.objectives > 1 and not algorithm.several_objectives:
        raise InputError(
            f"fun of {problem.name!r} returns {shape.objectives} numbers, one objective each, and "
            f"{type(algorithm).__name__} minimises one objective: return a single number, such as their jnp.sum, or "
            'take an algorithm for several objectives, such as "nsga2".'
        )
    if shape.objectives == 1 and algorithm.several_objectives:
        raise InputError(
            f"fun of {problem.name!r} returns one number and {type(algorithm).__name__} is for several objectives: "
            'return a vector, one number per objective, or take an algorithm for one, such as "de".'
        )
    reference = problem.reference_point
    if shape.objectives == 1 and reference is not None:
        raise InputError(
            f"reference_point is for several objectives, and fun of {problem.name!r} returns one number: leave it out."
        )
    if reference is not None and len(reference) != shape.objectives:
        raise InputError(
            f"reference_point must be {shape.objectives} numbers, one per objective of {problem.name!r}; "
            f"got {short(reference)}."
        )


def objective_count(problem: Problem, kind: str, vectorized: int) -> int:
    """How many objectives the problem has, if JAX can tell; else 1, and tracing it for the run will say what is wrong.

    kind: the precision of the run, since JAX remembers arrays that a function closes over in the one it saw first.
    vectorized: how many solutions the function takes at once, or 0.
    """
    for known in (problem.objectives, problem.reference_point):
        if known is not None:
            return int(np.size(known))
    shape = (vectorized, problem.dim) if vectorized else (problem.dim,)
    try:
        with jax.enable_x64(kind == "float64"):
            out = jax.eval_shape(lambda x: problem.fun(x), jax.ShapeDtypeStruct(shape, kind))
        return int(np.prod(out.shape[1:] if vectorized else out.shape))
    except Exception:
        return 1


def check_arity(name: str, function: Function, vectorized: int = 0) -> None:
    """One positional argument must be enough to call it, and possible."""
    try:
        inspect.signature(function).bind(None)
    except ValueError:
        return  # a builtin without a signature
    except TypeError:
        given = inspect.signature(function)
        what = "all solutions x of shape (n, d)" if vectorized else "one solution x of shape (d,)"
        raise InputError(f"{name} must take one argument, {what}; it is defined as {given}.") from None


def _trace_one(name: str, function: Function, dim: int, dtype: Any, vectorized: int) -> tuple[ClosedJaxpr, int]:
    check_arity(name, function, vectorized)
    given = (vectorized, dim) if vectorized else (dim,)
    try:
        # a new function each time: JAX remembers the trace of one it has seen, and what that one read may have changed
        traced = jax.make_jaxpr(lambda x: function(x))(jax.ShapeDtypeStruct(given, dtype))
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
            raise InputError(f"{name} must return numbers; {_first_line(error)}") from None
        raise _called_and_raised(name, given, error) from error
    except InputError:
        raise
    except Exception as error:
        raise _called_and_raised(name, given, error) from error
    # copies of NumPy arrays: while JAX's own converted one lives, it stands for the user's array in either precision
    consts = [c if isinstance(c, jax.Array) else np.array(np.asarray(c)) for c in traced.consts]
    closed = ClosedJaxpr(traced.jaxpr, consts)
    outputs = closed.out_avals
    if not outputs:
        raise InputError(f"{name} returned nothing; it must return a number (did it end without `return`?).")
    for out in outputs:
        if jnp.issubdtype(out.dtype, jnp.complexfloating) or out.dtype == jnp.bool_:
            raise InputError(f"{name} must return real numbers, got {out.dtype}; convert the value to a float.")
    return closed, _count(name, [tuple(o.shape) for o in outputs], vectorized)


def _count(name: str, shapes: list[tuple[int, ...]], vectorized: int) -> int:
    """How many numbers a function gives for one solution, from the shapes of what it returned."""
    if vectorized:
        if any(len(s) not in (1, 2) or s[0] != vectorized for s in shapes):
            raise InputError(
                f"{name} with vectorized=True is given x of shape (n, d) = ({vectorized}, d) and must return n values, "
                f"shape (n,) or (n, m); it returned shape {shapes[0]}. For a function of one solution leave "
                "vectorized out."
            )
        shapes = [s[1:] for s in shapes]
    if any(len(s) > 1 for s in shapes):
        what = "a scalar, or a vector with one entry per objective" if name == "fun" else "a scalar or a vector"
        raise InputError(f"{name} of one solution must return {what}; it returned shape {shapes[0]}.")
    count = sum(int(np.prod(s)) for s in shapes)
    if count == 0:
        raise InputError(f"{name} returned an empty array; it must return at least one number.")
    return count


def _called_and_raised(name: str, given: tuple[int, ...], error: Exception) -> InputError:
    return InputError(f"{name} raised {type(error).__name__} when called with x of shape {given}: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _text_of(closed: ClosedJaxpr) -> str:
    """A program as text. What is not printed, arrays in nested programs and Python callbacks, is added as a hash."""
    digest = hashlib.sha256()
    for equation in _equations(closed.jaxpr):
        for name, value in equation.params.items():
            if "callback" in name:
                digest.update(str(hash(value)).encode())
            for inner in _programs_in(value):
                for const in getattr(inner, "consts", ()):
                    key = isinstance(const, jax.Array) and jnp.issubdtype(const.dtype, jax.dtypes.prng_key)
                    array = np.asarray(jax.random.key_data(const) if key else const)
                    digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return f"{closed.jaxpr}\n{digest.hexdigest()}"


def _equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a program and of all programs nested in it."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in _programs_in(value):
                yield from _equations(getattr(inner, "jaxpr", inner))


def _programs_in(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _programs_in(item)
    elif isinstance(value, ClosedJaxpr) or hasattr(value, "eqns"):
        yield value


@partial(jax.jit, static_argnums=0)
def _evaluate_rows(formulas: Formulas, consts: Any, x: Array) -> Evaluation:
    return formulas(consts, x)


def evaluate_points(formulas: Formulas, points: np.ndarray, dtype: Any) -> Evaluation:
    """The Evaluation of some points, in NumPy; always the same number of rows at once, so that it compiles once."""
    rows = formulas.fun.in_avals[0].shape[0] if formulas.batched else PROBES
    parts = []
    for some in (points[i : i + rows] for i in range(0, len(points), rows)):
        padded = np.concatenate([some, np.repeat(some[:1], rows - len(some), axis=0)])
        out = _evaluate_rows(formulas, formulas.consts, padded.astype(dtype))
        parts.append(jax.tree.map(lambda a: np.asarray(a)[: len(some)], out))  # noqa: B023 (used at once)
    return jax.tree.map(lambda *a: np.concatenate(a), *parts)


def probe(formulas: Formulas, bounds: Bounds, dtype: Any) -> None:
    """Refuse a problem that fails at each of a few points: the middle of the box and some spread over it."""
    share = np.random.default_rng(0).random((PROBES, bounds.dim))
    share[0] = 0.5
    points = np.asarray(bounds.lower) + share * np.asarray(bounds.span)
    out = evaluate_points(formulas, points, dtype)
    if not out.failed.all():
        return
    raw = {name: getattr(out, name) for name in ("ineq", "eq") if getattr(out, name) is not None}
    broken = next((name for name, values in raw.items() if not np.isfinite(values).all(axis=1).any()), "fun")
    raise InputError(
        f"{broken} returned NaN or inf at all {len(out.failed)} points tried in the box, for example at x = "
        f"{np.array2string(points[0], precision=4, threshold=6)}: check the formula there. If only a small part of the "
        'box is defined, pass on_failure="worst" to search for it.'
    )
