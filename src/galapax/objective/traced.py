"""Traces the user's functions into JAX programs that are compared by their text, and checks how they index x.

A problem is also evaluated at a few points: before the run as a check, after it for what a Result says of the answers.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import weakref
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from galapax.core.errors import InputError, as_user_error, user_location, warn
from galapax.core.problem import (
    Bounds,
    CandidateEvaluation,
    EqTolerance,
    Evaluation,
    Function,
    Maximize,
    Problem,
    Shape,
    orient,
)
from galapax.numerics import compile_cache, trigonometry
from galapax.numerics.devices import CONFIG, compile_settings, on_cpu
from galapax.numerics.jaxpr import ClosedJaxpr, Jaxpr, Literal
from galapax.numerics.random import fold_in
from galapax.objective.evaluation_log import summarise
from galapax.objective.function_identity import Draws, NotHashable, check_arity, check_names, closure_fingerprint
from galapax.objective.hoist_constants import Constants, HoistedPrograms, call
from galapax.operators.constraint_handling import newton_repair


def check_indices(name: str, program: ClosedJaxpr, dim: int) -> None:
    """Raise an InputError if a function of one solution (d,), its first argument, reads it at an index out of range."""
    constants = {
        var: np.asarray(const)
        for var, const in zip(program.jaxpr.constvars, program.consts, strict=True)
        if jnp.issubdtype(const.dtype, jnp.integer) or const.dtype == bool
    }
    x = program.jaxpr.invars[0]

    def read(atom: object) -> np.ndarray | None:
        return np.asarray(atom.val) if isinstance(atom, Literal) else constants.get(atom)

    for equation in program.jaxpr.eqns:
        primitive, inputs = equation.primitive.name, equation.invars
        if primitive in ("dynamic_slice", "gather") and inputs[0] is x:
            index = read(inputs[1])
            if index is not None and index.size and not (index.min() >= 0 and index.max() < dim):
                wrong = index.max() if index.max() >= dim else index.min() - dim  # as it was written
                raise InputError(f"{name} reads x[{wrong}], and there are {dim} variables, x[0] to x[{dim - 1}].")
        elif primitive in FOLDED_PRIMITIVES:
            values = [read(atom) for atom in inputs]
            if all(value is not None for value in values):
                value = np.asarray(FOLDED_PRIMITIVES[primitive](*values))
                shape: tuple[int, ...] = equation.outvars[0].aval.shape
                if value.size == math.prod(shape):
                    constants[equation.outvars[0]] = value.reshape(shape)


# what stands between a written index and where it is read: negative ones count from the end
FOLDED_PRIMITIVES: dict[str, Any] = {
    "lt": np.less,
    "add": np.add,
    "select_n": lambda which, *cases: np.where(which, cases[1], cases[0]) if len(cases) == 2 else np.empty(0),
    "broadcast_in_dim": np.asarray,
    "convert_element_type": np.asarray,
}


KEY_WORDS = 4  # numbers below 2**16 that stand for a key behind a solution; any precision holds them exactly


def append_keys(x: Array, key: Array) -> Array:
    """Return solutions x (n, d) with a key of their own each, (n, d + KEY_WORDS), derived from `key` (2,)."""
    words = jax.vmap(lambda row: fold_in(key, row))(jnp.arange(x.shape[0]))
    halves = jnp.stack([words >> 16, words & 0xFFFF], axis=-1).reshape(x.shape[0], KEY_WORDS)
    return jnp.concatenate([x, halves.astype(x.dtype)], axis=1)


def _split_key(x_and_key: Array, dim: int) -> tuple[Array, Array]:
    """Return a solution (d,) and its JAX key, as `append_keys` joined them."""
    halves = x_and_key[dim:].astype(jnp.uint32).reshape(2, 2)
    return x_and_key[:dim], jax.random.wrap_key_data((halves[:, 0] << 16) | halves[:, 1], impl="threefry2x32")


def trace_one(
    name: str, function: Function, dim: int, dtype: DTypeLike, vectorized: int, takes_key: bool = False
) -> tuple[ClosedJaxpr, int]:
    """Trace a function; return its program and how many numbers it returns per solution, or raise an InputError.

    takes_key: its second argument is a JAX key; the program's x has the numbers of `append_keys` behind it.
    """
    check_arity(name, function, vectorized, 1 + takes_key)
    x_shape = (vectorized, dim) if vectorized else (dim,)
    if takes_key:
        return _trace_random(name, function, dim, dtype)

    def make() -> tuple[ClosedJaxpr, object]:
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
            f"{name} cannot be traced by JAX ({_first_line(error).rstrip('.')}{_location_of(error)}). Write it with "
            "jax.numpy and jnp.where in place of numpy, math and if; or pass blackbox=True to run it as plain Python."
        ) from as_user_error(error)
    except TypeError as error:
        if "not a valid JAX type" in str(error):
            raise InputError(f"{name} must return numbers{_returned_type(error)}.") from None
        raise _build_call_error(name, function, x_shape, error) from as_user_error(error)
    except InputError:
        raise
    except Exception as error:
        raise _build_call_error(name, function, x_shape, error) from as_user_error(error)
    if np.dtype(dtype) == np.float64 and any(getattr(const, "dtype", None) == np.float32 for const in traced.consts):
        warn(
            f"{name} uses float32 arrays made outside it in a float64 run: values computed from them have "
            "only 7 digits. Create them with NumPy, which has float64, or inside the function."
        )
    if isinstance(out, dict | Evaluation):
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


def _trace_random(name: str, function: Function, dim: int, dtype: Any) -> tuple[ClosedJaxpr, int]:
    """`trace_one` for a function of a solution and a key."""

    def of_both(x_and_key: Array) -> Any:
        return function(*_split_key(x_and_key, dim))

    program, n_values = trace_one(name, of_both, dim + KEY_WORDS, dtype, 0)
    x_spec, key_spec = jax.eval_shape(lambda: _split_key(jnp.zeros(dim + KEY_WORDS, dtype), dim))
    check_indices(name, jax.make_jaxpr(lambda x, key: function(x, key))(x_spec, key_spec), dim)
    return program, n_values


def _are_equal(one: ClosedJaxpr, other: ClosedJaxpr) -> bool:
    """Return whether two programs are the same, with their constants."""
    if text_of(one.jaxpr) != text_of(other.jaxpr) or len(one.consts) != len(other.consts):
        return False
    pairs = zip(one.consts, other.consts, strict=True)
    return all(a is b or np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def _count_outputs(name: str, shapes: list[tuple[int, ...]], vectorized: int) -> int:
    """Count the numbers that a function gives for one solution, from the shapes of what it returned."""
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


def _build_call_error(name: str, function: Function, x_shape: tuple[int, ...], error: Exception) -> InputError:
    space = getattr(function, "space", None)
    is_mapping = space is not None and space.is_mapping
    what = "a mapping of named values" if is_mapping else f"x of shape {x_shape}"
    hint = ""
    if "unhashable" in str(error):
        hint = " A compiled function cannot look up a dict by a value: index an array, jnp.array([...])[v['name']]."
    elif space is not None and is_mapping and (isinstance(error, KeyError | AttributeError) or "'dict'" in str(error)):
        hint = " It has " + ", ".join(f"v[{key!r}]" for key in space.names()) + "."
    return InputError(
        f"{name} raised {type(error).__name__} when called with {what}: "
        f"{_first_line(error).rstrip('.')}{_location_of(error)}.{hint}"
    )


def _location_of(error: Exception) -> str:
    """Say where in the user's code an exception was raised, as part of a sentence."""
    location = user_location(error)
    return f", {location}" if location else ""


def _returned_type(error: TypeError) -> str:
    """Of JAX's sentence on a value that is none of its own, which type it was."""
    kind = re.search(r"a value of type <class '([\w.]+)'>", str(error))
    return "" if kind is None else f"; it returned a value of type {kind[1]}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def text_of(program: Jaxpr) -> str:
    """Write a program as text, with a hash of what is not printed: arrays in nested programs and Python callbacks."""
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
    """Iterate over the equations of a program and of all programs nested in it."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in _programs_in(value):
                yield from equations(getattr(inner, "jaxpr", inner))


def _programs_in(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _programs_in(item)
    elif isinstance(value, ClosedJaxpr) or hasattr(value, "eqns"):
        yield value


MAX_CONSTANT_WORK = 1000  # numbers that an evaluation may compute for nothing


def _count_constant_work(program: Jaxpr) -> float:
    """Count the numbers that a program computes from its constants alone; inf for products and loops among them."""
    depends_on_x, work = {program.invars[-1]}, 0.0
    for equation in program.eqns:
        if any(not isinstance(atom, Literal) and atom in depends_on_x for atom in equation.invars):
            depends_on_x.update(equation.outvars)
            continue
        nested = [inner for value in equation.params.values() for inner in _programs_in(value)]
        if nested or equation.primitive.name == "dot_general":
            return math.inf
        for out in equation.outvars:
            aval: Any = out.aval
            work += math.prod(aval.shape)
    return work


ASSUMED_LOOP_ROUNDS = 10_000  # of a while loop, whose length is unknown


def count_sequential_steps(jaxpr: Any) -> int:
    """Count the rounds of loops that a program takes one after another, about; what is not in a loop is fused and
    counts for nothing.
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


VECTOR_TRIGONOMETRY = os.environ.get("GALAPAX_TRIGONOMETRY") != "libm"  # see trigonometry.py


@dataclass(frozen=True, eq=False)
class Formulas:
    """A problem's functions as JAX programs, equal to another's when the programs are equal.

    Comparing programs and not function objects means that the same lambda written twice compiles once, and that a
    function which reads a changed global is seen to be another. The programs close over nothing: arrays and numbers are
    data (`Constants`, see hoist_constants.py), so that a cache of compiled programs keeps none of the user's.
    """

    shape: Shape
    fun: Jaxpr
    ineq: Jaxpr | None
    eq: Jaxpr | None
    eq_tolerance: EqTolerance | None  # None until it is derived from the values of eq
    aims_at_zero: bool  # whether the refinement aims at eq = 0; else it makes use of the tolerance, which was given
    maximize: Maximize
    together: int  # the functions take so many solutions at once, (n, d); 0 for functions of one, (d,)
    is_random: bool  # fun takes a key behind each solution, see `append_keys`
    own_trigonometry: bool  # sines and the like are computed by trigonometry.py
    text: str

    @property
    def is_batched(self) -> bool:
        return self.together > 0

    @cached_property
    def digest(self) -> str:
        """A short name, for those who remember something about formulas but need not keep them."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def with_eq_tolerance(self, tolerance: EqTolerance) -> Formulas:
        """Return the same functions with a tolerance that was derived from their values."""
        _, programs = self.text.split("\n", 1)
        return replace(self, eq_tolerance=tolerance, text=f"eq_tolerance {tolerance}\n{programs}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formulas) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, consts: Constants, x: Array) -> CandidateEvaluation:
        """Evaluate candidates x (n, d), of a random objective (n, d + KEY_WORDS)."""
        return summarise(*self._values(consts, x, self.own_trigonometry), self.eq_tolerance)

    def _values(self, consts: Constants, x: Array, own_trigonometry: bool) -> tuple[Array, Array | None, Array | None]:
        """Objectives (n, m) to be minimised, inequalities (n, p) and equalities (n, q) as they are."""

        def values(program: Jaxpr, x: Array) -> Array:
            out = _each_row(program, consts, x, own_trigonometry) if not self.is_batched else call(program, consts, x)
            return _stack(out, x.shape[0]).astype(x.dtype)

        objectives = values(self.fun, x)
        x = x[:, :-KEY_WORDS] if self.is_random else x
        ineq, eq = (values(program, x) if program else None for program in (self.ineq, self.eq))
        return orient(objectives, self.maximize), ineq, eq

    def facts(self, consts: Constants, x: Array) -> Array:
        """Objective, inequalities and equalities at x (n, d) as one array (n, 1 + p + q), to be differentiated."""
        columns = self._values(consts, x, own_trigonometry=False)
        return jnp.concatenate([column for column in columns if column is not None], axis=1)

    def evaluate(self, consts: Constants, state: Any) -> CandidateEvaluation:
        """Evaluate `state.candidates` (R, n, d), the candidates of several runs."""
        candidates = state.candidates
        if not self.own_trigonometry:
            return jax.vmap(lambda x: self(consts, x))(candidates)
        # all solutions of all runs as one batch, since trigonometry.py decides something for a whole batch
        runs, n = candidates.shape[:2]
        flat = self(consts, candidates.reshape(runs * n, -1))
        return jax.tree.map(lambda a: a.reshape(runs, n, *a.shape[1:]), flat)

    @cached_property
    def steps(self) -> int:
        """How many rounds of loops an evaluation takes one after another on a device, as far as can be seen."""
        return sum(count_sequential_steps(program) for program in (self.fun, self.ineq, self.eq) if program is not None)

    @cached_property
    def primitives(self) -> frozenset[str]:
        """The operations that the functions are made of."""
        programs = [program for program in (self.fun, self.ineq, self.eq) if program is not None]
        return frozenset(e.primitive.name for program in programs for e in equations(program))

    @cached_property
    def has_large_constants(self) -> bool:
        """Whether the functions compute something large that does not depend on x; XLA does so once in a loop."""
        programs = [program for program in (self.fun, self.ineq, self.eq) if program is not None]
        return any(_count_constant_work(program) > MAX_CONSTANT_WORK for program in programs)

    def repair(self, consts: Constants, x: Array, bounds: Bounds) -> Array:
        """x (d,) moved by a Newton step towards the constraints that it violates; as it came if it violates none."""

        def values(x: Array) -> Array:
            programs = [program for program in (self.ineq, self.eq) if program]
            return jnp.concatenate([_stack(call(program, consts, x), 1)[0].astype(x.dtype) for program in programs])

        return newton_repair(x, values(x), jax.jacfwd(values)(x), self.shape.ineq, self.eq_tolerance or 0.0, bounds)

    def constraints(self, consts: Constants, x: Array) -> Array:
        """Inequalities and equalities (k, p + q) at points x (k, d)."""
        programs = [program for program in (self.ineq, self.eq) if program]
        if not self.is_batched:
            columns = [_stack(_each_row(program, consts, x, False), len(x)) for program in programs]
            return jnp.concatenate(columns, axis=1).astype(x.dtype)
        size, (count, dim) = self.together, x.shape
        padded = jnp.concatenate([x, jnp.broadcast_to(x[:1], (-count % size, dim))]).reshape(-1, size, dim)

        def evaluate_block(x: Array) -> Array:
            return jnp.concatenate([_stack(call(p, consts, x), size).astype(x.dtype) for p in programs], axis=1)

        return jax.vmap(evaluate_block)(padded).reshape(-1, self.shape.ineq + self.shape.eq)[:count]


class Traced(NamedTuple):
    """A problem's functions, and the arrays and numbers that they close over."""

    formulas: Formulas
    consts: Constants

    @property
    def shape(self) -> Shape:
        return self.formulas.shape

    def __call__(self, x: Array) -> CandidateEvaluation:
        """Evaluate candidates x (n, d)."""
        return self.formulas(self.consts, x)


def trace(
    problem: Problem, dtype: str, *, maximize: Maximize = False, vectorized: int = 0, is_random: bool = False
) -> Traced:
    """Turn a problem's functions into JAX programs, or say what is wrong with them.

    vectorized: 0 for functions of one solution (d,), else the number n of rows they are given at once. is_random: fun
        takes a JAX key.
    """
    try:
        functions: Any = [f if f is None else closure_fingerprint(f) for f in (problem.fun, problem.ineq, problem.eq)]
    except NotHashable:
        functions = None
    if functions is None:
        return _trace_functions(problem, dtype, maximize, vectorized, is_random)
    sizes = (problem.dim, str(dtype), problem.eq_tolerance, maximize, vectorized, is_random)
    cache_key = (*functions, sizes, compile_settings(), CONFIG.jax_default_matmul_precision, VECTOR_TRIGONOMETRY)
    traced = _traced_by_identity.get(cache_key)
    if traced is None:
        traced = _trace_functions(problem, dtype, maximize, vectorized, is_random)
        if (
            sum(array.nbytes for array in traced.consts.arrays) < MAX_CACHED_BYTES
        ):  # those that the functions make themselves
            _cache(_traced_by_identity, cache_key, traced)
    else:
        check_names(problem, traced.shape, maximize)
    return traced


def _trace_functions(problem: Problem, dtype: str, maximize: Maximize, vectorized: int, is_random: bool) -> Traced:
    closed: dict[str, ClosedJaxpr] = {}
    counts = {"fun": 0, "ineq": 0, "eq": 0}
    for name in counts:
        function = getattr(problem, name)
        if function is not None:
            takes_key = is_random and name == "fun"
            closed[name], counts[name] = trace_one(name, function, problem.dim, dtype, vectorized, takes_key)
    shape = Shape(counts["fun"], counts["ineq"], counts["eq"])
    check_names(problem, shape, maximize)
    hoisted = HoistedPrograms(list(closed.values()))
    own_trigonometry = not vectorized and _replaces_trigonometry([program.jaxpr for program in closed.values()])
    is_given = problem.eq_tolerance is not None
    flags = f"{is_given} {maximize} {vectorized} {is_random} {own_trigonometry}"
    header = f"eq_tolerance {problem.eq_tolerance}\n{shape} {flags}"
    program_texts = tuple(f"{name}: {text_of(program.jaxpr)}" for name, program in closed.items())
    cache_key = (header, program_texts, hoisted.pattern)
    if cache_key not in _formulas_by_trace:
        programs = dict(zip(closed, hoisted.programs(), strict=True))
        text = "\n".join([header, *(f"{name}: {text_of(program)}" for name, program in programs.items())])
        formulas = Formulas(
            shape,
            programs["fun"],
            programs.get("ineq"),
            programs.get("eq"),
            problem.eq_tolerance,
            not is_given,
            maximize,
            together=vectorized,
            is_random=is_random,
            own_trigonometry=own_trigonometry,
            text=text,
        )
        _cache(_formulas_by_trace, cache_key, formulas)
    return Traced(_formulas_by_trace[cache_key], hoisted.constants)


Cached = TypeVar("Cached")
MAX_CACHED_TRACES = 256
MAX_CACHED_BYTES = 2**16  # bytes of arrays that are not kept for that
_formulas_by_trace: dict[
    Hashable, Formulas
] = {}  # by what was traced, since lifting numbers out of it takes as long as tracing it
_traced_by_identity: dict[Hashable, Traced] = {}  # by what the functions are and read


def _cache(cache: dict[Hashable, Cached], key: Hashable, value: Cached) -> None:
    cache[key] = value
    while len(cache) > MAX_CACHED_TRACES:
        del cache[next(iter(cache))]


def _replaces_trigonometry(programs: list[Jaxpr]) -> bool:
    if not (VECTOR_TRIGONOMETRY and on_cpu()):
        return False
    return any(e.primitive.name in trigonometry.FAST_VERSIONS for program in programs for e in equations(program))


def _each_row(program: Jaxpr, consts: Constants, x: Array, own_trigonometry: bool) -> list[Array]:
    """Return the program's outputs for every row of x."""
    rows = jax.vmap(lambda consts, row: call(program, consts, row), in_axes=(None, 0))
    if not own_trigonometry:
        return rows(consts, x)
    return trigonometry.evaluate_fast(jax.make_jaxpr(rows)(consts, x), *jax.tree.leaves(consts), x)


def _stack(out: Any, n: int) -> Array:
    """Return the outputs of a program, one or several, as (n, k)."""
    columns = [o.reshape(n, -1) for o in out]
    return columns[0] if len(columns) == 1 else jnp.concatenate(columns, axis=1)


PROBE_ROWS = 8  # points at which an objective is tried before the run is compiled
MAX_PROBES = 512  # points at which one is tried that has no value at the first ones: most of the box may be a penalty


def evaluate_rows(formulas: Formulas, consts: Constants, x: Array, key: Array) -> CandidateEvaluation:
    return formulas(consts, append_keys(x, key) if formulas.is_random else x)


def evaluate_points(
    traced: Traced, points: np.ndarray, dtype: DTypeLike, rows: int = PROBE_ROWS, key: np.ndarray | None = None
) -> CandidateEvaluation:
    """Evaluate some points, in NumPy; always so many rows at once, so that it compiles once.

    key: (2,), from which each row of a random objective gets its key.
    """
    key = np.zeros(2, np.uint32) if key is None else key
    formulas, consts = traced
    rows = formulas.together or rows
    evaluations = []
    for i in range(0, len(points), rows):
        rows_now = points[i : i + rows]
        block_key = np.array([key[0], np.uint32((int(key[1]) + i) % 2**32)], np.uint32)
        padded = np.concatenate([rows_now, np.repeat(rows_now[:1], rows - len(rows_now), axis=0)])
        out = jax.device_get(compile_cache.call(evaluate_rows, (formulas,), consts, padded.astype(dtype), block_key))
        evaluations.append(jax.tree.map(lambda a: a[: len(rows_now)], out))  # noqa: B023 (used at once)
    return jax.tree.map(lambda *a: np.concatenate(a), *evaluations)


MAX_REMEMBERED = 256
MAX_COMPARED_BYTES = 2**16  # bytes of arrays that are too many to be compared
# formulas with their numbers, arrays and points at which they gave a value; arrays on a device are known by identity
_passed: dict[Hashable, list[weakref.ref[object]]] = {}


def _dead_reference() -> None:
    """As a reference to what is no more."""


@lru_cache(maxsize=16)
def _probe_shares(dim: int, count: int = PROBE_ROWS) -> np.ndarray:
    """Return the points tried, in shares of the box."""
    share = np.random.default_rng(0).random((count, dim))
    share[0] = 0.5
    return share


TOLERANCE_POINTS = 64  # at which equalities are evaluated to choose their tolerance


def sample_equalities(traced: Traced, bounds: Bounds, dtype: DTypeLike) -> np.ndarray:
    """Return the values of the equalities at points spread over the box, (n, q)."""
    shares = np.random.default_rng(0).random((TOLERANCE_POINTS, bounds.dim))
    points = np.asarray(bounds.lower) + shares * np.asarray(bounds.span)
    return np.asarray(evaluate_points(traced, points, dtype).eq, np.float64)


def probe(traced: Traced, bounds: Bounds, dtype: str) -> None:
    """Refuse a problem that fails at each of a few points: the middle of the box and some spread over it."""
    points = np.asarray(bounds.lower) + _probe_shares(bounds.dim) * np.asarray(bounds.span)
    numbers = tuple(values.tobytes() for values in traced.consts.numbers.values())
    arrays = traced.consts.arrays
    is_small = sum(array.nbytes for array in arrays) <= MAX_COMPARED_BYTES
    array_keys = tuple(a.tobytes() if isinstance(a, np.ndarray) else id(a) for a in arrays) if is_small else ()
    key = (traced.formulas.digest, numbers, array_keys, points.tobytes(), str(dtype))
    if is_small and all(reference() is not None for reference in _passed.get(key, [_dead_reference])):
        return
    out = evaluate_points(traced, points, dtype)
    if not out.failed.all():
        if len(_passed) >= MAX_REMEMBERED:
            _passed.clear()
        if is_small:
            _passed[key] = [weakref.ref(a) for a in arrays if not isinstance(a, np.ndarray)]
        return
    points = np.asarray(bounds.lower) + _probe_shares(bounds.dim, MAX_PROBES) * np.asarray(bounds.span)
    for start in range(PROBE_ROWS, MAX_PROBES, PROBE_ROWS):
        more = evaluate_points(traced, points[start : start + PROBE_ROWS], dtype)
        if not more.failed.all():
            return
    raw = {name: getattr(out, name) for name in ("ineq", "eq") if getattr(out, name) is not None}
    broken = next((name for name, values in raw.items() if not np.isfinite(values).all(axis=1).any()), "fun")
    raise InputError(
        f"{broken} returned NaN or inf at all {MAX_PROBES} points tried in the box, for example at x = "
        f"{np.array2string(points[0], precision=4, threshold=6)}: check the formula there. If only a small part of the "
        'box is defined, pass on_failure="worst" to search for it.'
    )
