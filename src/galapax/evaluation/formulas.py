"""From a user's functions to an Evaluation: traced once, checked, and compared by what they compute."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.evaluation import Evaluation, Shape
from galapax.core.problem import Bounds, Problem
from galapax.evaluation.compatibility import check_names
from galapax.evaluation.failures import summarise
from galapax.evaluation.function_identity import NotHashable, closure_fingerprint
from galapax.evaluation.hoist_constants import Constants, HoistedPrograms, call
from galapax.evaluation.tracing import count_sequential_steps, equations, text_of, trace_one
from galapax.numerics import trigonometry
from galapax.numerics.devices import CONFIG, compile_settings, on_cpu
from galapax.numerics.jaxpr import ClosedJaxpr, Jaxpr
from galapax.operators.constraint_handling import newton_repair

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
    eq_tolerance: float
    maximize: bool
    together: int  # the functions take so many solutions at once, (n, d); 0 for functions of one, (d,)
    own_trigonometry: bool  # sines and the like are computed by trigonometry.py
    text: str

    @property
    def batched(self) -> bool:
        return self.together > 0

    @cached_property
    def digest(self) -> str:
        """A short name, for those who remember something about formulas but need not keep them."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formulas) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, consts: Constants, x: Array) -> Evaluation:
        """Evaluate candidates x (n, d)."""
        return summarise(*self._values(consts, x, self.own_trigonometry), self.eq_tolerance)

    def _values(self, consts: Constants, x: Array, own_trigonometry: bool) -> tuple[Array, Array | None, Array | None]:
        """Objectives (n, m) to be minimised, inequalities (n, p) and equalities (n, q) as they are."""

        def values(program: Jaxpr) -> Array:
            out = _each_row(program, consts, x, own_trigonometry) if not self.batched else call(program, consts, x)
            return _stack(out, x.shape[0]).astype(x.dtype)

        objectives = values(self.fun)
        ineq, eq = (values(program) if program else None for program in (self.ineq, self.eq))
        return -objectives if self.maximize else objectives, ineq, eq

    def facts(self, consts: Constants, x: Array) -> Array:
        """Objective, inequalities and equalities at x (n, d) as one array (n, 1 + p + q), to be differentiated."""
        columns = self._values(consts, x, own_trigonometry=False)
        return jnp.concatenate([column for column in columns if column is not None], axis=1)

    def evaluate(self, consts: Constants, state: Any) -> Evaluation:
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

    def repair(self, consts: Constants, x: Array, bounds: Bounds) -> Array:
        """x (d,) moved by a Newton step towards the constraints that it violates; as it came if it violates none."""

        def values(x: Array) -> Array:
            programs = [program for program in (self.ineq, self.eq) if program]
            return jnp.concatenate([_stack(call(program, consts, x), 1)[0].astype(x.dtype) for program in programs])

        return newton_repair(x, values(x), jax.jacfwd(values)(x), self.shape.ineq, self.eq_tolerance, bounds)

    def constraints(self, consts: Constants, x: Array) -> Array:
        """Inequalities and equalities (k, p + q) at points x (k, d)."""
        programs = [program for program in (self.ineq, self.eq) if program]
        if not self.batched:
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

    def __call__(self, x: Array) -> Evaluation:
        """Evaluate candidates x (n, d)."""
        return self.formulas(self.consts, x)


def trace(problem: Problem, dtype: Any, *, maximize: bool = False, vectorized: int = 0) -> Traced:
    """Turn a problem's functions into JAX programs, or say what is wrong with them.

    vectorized: 0 for functions of one solution (d,), else the number n of rows they are given at once.
    """
    try:
        functions = [f if f is None else closure_fingerprint(f) for f in (problem.fun, problem.ineq, problem.eq)]
    except NotHashable:
        return _trace_functions(problem, dtype, maximize, vectorized)
    sizes = (problem.dim, str(dtype), problem.eq_tolerance, maximize, vectorized)
    cache_key = (*functions, sizes, compile_settings(), CONFIG.jax_default_matmul_precision, VECTOR_TRIGONOMETRY)
    traced = _traced_by_identity.get(cache_key)
    if traced is None:
        traced = _trace_functions(problem, dtype, maximize, vectorized)
        if (
            sum(array.nbytes for array in traced.consts.arrays) < MAX_CACHED_BYTES
        ):  # those that the functions make themselves
            _cache(_traced_by_identity, cache_key, traced)
    else:
        check_names(problem, traced.shape)
    return traced


def _trace_functions(problem: Problem, dtype: Any, maximize: bool, vectorized: int) -> Traced:
    closed: dict[str, ClosedJaxpr] = {}
    counts = {"fun": 0, "ineq": 0, "eq": 0}
    for name in counts:
        function = getattr(problem, name)
        if function is not None:
            closed[name], counts[name] = trace_one(name, function, problem.dim, dtype, vectorized)
    shape = Shape(counts["fun"], counts["ineq"], counts["eq"])
    check_names(problem, shape)
    hoisted = HoistedPrograms(list(closed.values()))
    own_trigonometry = not vectorized and _replaces_trigonometry([program.jaxpr for program in closed.values()])
    header = f"{shape} {problem.eq_tolerance} {maximize} {vectorized} {own_trigonometry}"
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
            maximize,
            together=vectorized,
            own_trigonometry=own_trigonometry,
            text=text,
        )
        _cache(_formulas_by_trace, cache_key, formulas)
    return Traced(_formulas_by_trace[cache_key], hoisted.constants)


MAX_CACHED_TRACES = 256
MAX_CACHED_BYTES = 2**16  # bytes of arrays that are not kept for that
_formulas_by_trace: dict[
    Any, Formulas
] = {}  # by what was traced, since lifting numbers out of it takes as long as tracing it
_traced_by_identity: dict[Any, Traced] = {}  # by what the functions are and read


def _cache(cache: dict[Any, Any], key: Any, value: Any) -> None:
    cache[key] = value
    while len(cache) > MAX_CACHED_TRACES:
        del cache[next(iter(cache))]


def _replaces_trigonometry(programs: list[Jaxpr]) -> bool:
    if not (VECTOR_TRIGONOMETRY and on_cpu()):
        return False
    return any(e.primitive.name in trigonometry.FAST_VERSIONS for program in programs for e in equations(program))


def _each_row(program: Jaxpr, consts: Constants, x: Array, own_trigonometry: bool) -> list[Array]:
    """The program's outputs for every row of x."""
    rows = jax.vmap(lambda consts, row: call(program, consts, row), in_axes=(None, 0))
    if not own_trigonometry:
        return rows(consts, x)
    return trigonometry.evaluate_fast(jax.make_jaxpr(rows)(consts, x), *jax.tree.leaves(consts), x)


def _stack(out: Any, n: int) -> Array:
    """The outputs of a program, one or several, as (n, k)."""
    columns = [o.reshape(n, -1) for o in out]
    return columns[0] if len(columns) == 1 else jnp.concatenate(columns, axis=1)
