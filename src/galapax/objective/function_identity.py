"""What functions read and return: which need no second tracing, which look impure, which fit together."""

from __future__ import annotations

import builtins
import datetime
import dis
import functools
import inspect
import math
import os
import random
import sys
import time
import types
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.algorithm import Algorithm
from galapax.core.checks import abbreviate
from galapax.core.errors import InputError, ObjectiveCountError, warn
from galapax.core.problem import Function, Maximize, Problem, Shape, check_direction_count

LIBRARIES = ("jax", "numpy", "math", "galapax")
# names that suggest hidden state or randomness; such functions are always retraced
IMPURE_NAMES = {"random", "default_rng", "rand", "randn", "open", "input", "globals", "eval", "exec", "getattr", "vars"}
IMMUTABLE = (bool, int, float, complex, str, bytes, type(None), np.generic)
MAX_DEPTH = 8


class NotHashable(Exception):
    """Raised for a function that may read something mutable."""


def closure_fingerprint(function: object) -> Hashable:
    """Return a key that is equal only for functions with equal code that read equal values; else raise NotHashable."""
    return _fingerprint_function(function, 0)


def _fingerprint_value(value: object, depth: int) -> Hashable:
    if depth > MAX_DEPTH:
        raise NotHashable
    if isinstance(value, IMMUTABLE):
        return type(value), repr(value)  # 0.0 and -0.0, 1 and True differ
    if isinstance(value, tuple):
        return "tuple", tuple(_fingerprint_value(item, depth + 1) for item in value)
    if isinstance(value, types.ModuleType):
        return "module", _require_library(value.__name__)
    if isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] not in LIBRARIES:
        return _fingerprint_function(value, depth + 1)
    module, name = _require_library(getattr(value, "__module__", None)), getattr(value, "__name__", "")
    if getattr(sys.modules.get(module), name, None) is value:  # and nothing that somebody made with the library
        return module, name
    raise NotHashable


def _fingerprint_function(function: object, depth: int) -> Hashable:
    if type(function) is not types.FunctionType:
        raise NotHashable
    code, keyword_defaults = function.__code__, function.__kwdefaults__ or {}
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # not assigned yet
        raise NotHashable from None
    names = sorted(set(_code_names(code)))
    if IMPURE_NAMES.intersection(names):
        raise NotHashable
    globals_read = {name: function.__globals__[name] for name in names if name in function.__globals__}
    values = [*(function.__defaults__ or ()), *keyword_defaults.values(), *cells, *globals_read.values()]
    return (
        code,
        tuple(keyword_defaults),
        tuple(globals_read),
        tuple(_fingerprint_value(value, depth) for value in values),
    )


def _code_names(code: types.CodeType) -> Iterator[str]:
    """Yield the global and attribute names in a code object and those nested in it."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _code_names(const)


def _require_library(module: str | None) -> str:
    if module is None or module.partition(".")[0] not in (*LIBRARIES, builtins.__name__):
        raise NotHashable
    if module.startswith("numpy.random"):
        raise NotHashable
    return module


GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
CLOCKS = {
    f: f"{module.__name__}.{f.__name__}()"
    for module, names in (
        (time, ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time")),
        (os, ("urandom",)),
        (uuid, ("uuid1", "uuid4")),
    )
    for f in (getattr(module, name) for name in names)
}
DATES = {"now": datetime.datetime, "utcnow": datetime.datetime, "today": datetime.date}
MAX_FUNCTIONS = 100  # that are looked into
MAX_ATTRIBUTES = 50  # of an object
INSTALLED = ("site-packages", "dist-packages")  # folders of code that is not the user's

_warned: weakref.WeakSet[object] = weakref.WeakSet()


class Reach:
    """What a function can reach through globals, closures, defaults and attributes, as far as that is the user's code.

    generators: by a name for the user. clocks: names of the clocks that it calls. makes_generators: whether it makes
    generators itself, with a seed or without.
    """

    def __init__(self, function: object) -> None:
        self.generators: list[tuple[str, object]] = []
        self.clocks: list[str] = []
        self.makes_generators = False
        self._seen: dict[int, object] = {}  # holds them, so that no other object gets the same id
        self._visit(function, getattr(function, "__name__", "it"))

    def _visit(self, value: Any, name: str) -> None:
        if id(value) in self._seen or len(self._seen) > MAX_FUNCTIONS * MAX_ATTRIBUTES:
            return
        self._seen[id(value)] = value
        if value is np.random.default_rng:
            self.makes_generators = True
        elif isinstance(value, GENERATORS):
            self.generators.append((f"the random generator {name}", value))
        elif isinstance(value, types.FunctionType):
            self._visit_function(value)
        elif isinstance(value, types.MethodType):
            self._visit(value.__func__, name)
            self._visit(value.__self__, name)
        elif isinstance(value, types.BuiltinFunctionType):
            self._visit_builtin(value, name)
        elif isinstance(value, functools.partial):
            for item in (value.func, *value.args, *value.keywords.values()):
                self._visit(item, "of a partial")
        elif isinstance(value, tuple | list) and len(value) <= MAX_ATTRIBUTES:
            for item in value:
                self._visit(item, name)
        elif isinstance(value, type):
            self.makes_generators |= issubclass(value, GENERATORS)
        elif not isinstance(value, types.ModuleType) and (_is_users(type(value)) or _is_ours(type(value))):
            if callable(value):
                self._visit(type(value).__call__, name)
            for key, item in list(_attributes(value).items())[:MAX_ATTRIBUTES]:
                self._visit(item, f"{name}.{key}")
        elif "__wrapped__" in _attributes(value):  # a jitted or decorated function
            self._visit(value.__wrapped__, name)

    def _visit_builtin(self, value: Any, name: str) -> None:
        if value in CLOCKS:
            self.clocks.append(CLOCKS[value])
        elif value.__name__ in DATES and isinstance(value.__self__, type):
            kind = DATES[value.__name__]
            if issubclass(value.__self__, kind):
                self.clocks.append(f"{value.__self__.__name__}.{value.__name__}()")
        elif isinstance(value.__self__, GENERATORS):  # rng.normal, by itself
            self._visit(value.__self__, name)

    def _visit_function(self, function: types.FunctionType) -> None:
        if function in CLOCKS:
            self.clocks.append(CLOCKS[function])
        if not (_is_users(function) or _is_ours(function)):
            return
        try:
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # not assigned yet
            return
        closure = dict(zip(function.__code__.co_freevars, cells, strict=True))
        for name, value in closure.items():
            self._visit(value, name)
        parameters = function.__code__.co_varnames[: function.__code__.co_argcount][::-1]
        defaults = dict(zip(parameters, (function.__defaults__ or ())[::-1], strict=False))
        for name, value in (defaults | (function.__kwdefaults__ or {})).items():
            self._visit(value, name)
        if _is_ours(function):  # it may hold functions of the user, and names none of its own that change
            return
        for name, value in _names_in(function.__code__, function.__globals__ | closure):
            self._visit(value, name)


def _is_users(thing: object) -> bool:
    """Return whether a function or class is the user's, and not part of Python, galapax or an installed package."""
    name = getattr(thing, "__module__", None) or ""
    top, file = name.partition(".")[0], str(getattr(sys.modules.get(name), "__file__", None) or "")
    is_stdlib = top in sys.stdlib_module_names and top != "__main__"
    return not (is_stdlib or _is_ours(thing) or any(folder in file for folder in INSTALLED))


def _is_ours(thing: object) -> bool:
    return (getattr(thing, "__module__", None) or "").partition(".")[0] == "galapax"


def _attributes(value: object) -> dict[str, object]:
    attributes = getattr(value, "__dict__", None)
    return attributes if isinstance(attributes, dict) else {}


_NOTHING = object()


def _names_in(code: types.CodeType, scope: dict[str, object]) -> Iterator[tuple[str, object]]:
    """Return the objects to which the names and dotted names in bytecode refer, those of nested functions too."""
    local: dict[str, object] = {}
    value: Any = _NOTHING
    path = ""
    for step in dis.get_instructions(code):
        name = step.argval
        if step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")):
            path, value = name, scope.get(name, _NOTHING)
        elif step.opname.startswith("LOAD_FAST"):
            path = name[-1] if isinstance(name, tuple) else name
            value = local.get(path, _NOTHING)
        elif step.opname == "IMPORT_NAME":
            path, value = name, sys.modules.get(name, _NOTHING)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            path, value = f"{path}.{name}", _attribute(value, name)
        elif step.opname.startswith("STORE_FAST") and isinstance(name, str) and value is not _NOTHING:
            local[name] = value
            continue
        else:
            value = _NOTHING
            continue
        if value is not _NOTHING and not isinstance(value, types.ModuleType):
            yield path, value
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names_in(const, scope | local)


def _attribute(value: object, name: str) -> Any:
    """That of a module or class, which runs no code of the user; of an object only what it has by itself."""
    if value is _NOTHING:
        return value
    if isinstance(value, types.ModuleType | type):
        return getattr(value, name, _NOTHING)
    return _attributes(value).get(name, _NOTHING)


def _state(generator: Any) -> Any:
    """Return the state of a generator, to be compared."""
    if isinstance(generator, random.SystemRandom):
        return None
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        kind, words, *others = generator.get_state()
        return kind, np.asarray(words).tobytes(), *others
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    return repr(bits.state)


class Draws:
    """Notices what a function draws or reads while it is traced.

    Make it before the trace, and call `warn` after it.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._reach = Reach(function)
        shared = [("np.random", np.random.mtrand._rand), ("random", random._inst)]
        captured = [(name, g) for name, g in self._reach.generators if all(g is not other for _, other in shared)]
        self._generators = shared + captured
        self._before = self._states()

    def _states(self) -> list[object]:
        return [_state(generator) for _, generator in self._generators]

    def warn(self, name: str, differs: Callable[[], bool]) -> None:
        """Warn if the trace used a draw or a clock. differs: traces again, and says whether the program is another. It
        tells a generator with a fixed seed, whose numbers are the same each time, from one without.
        """
        if _is_warned(self._function):
            return
        after = self._states()
        changed = [i for i, state in enumerate(after) if state != self._before[i]]
        sources = list(dict.fromkeys(self._reach.clocks))
        if changed or self._reach.makes_generators:
            is_different = differs()
            states = self._states()
            sources += [self._generators[i][0] for i in changed if states[i] != after[i]]
            if not sources and is_different:
                sources.append("a random generator without a seed")
        if not sources:
            return
        _remember(self._function)
        warn(
            f"{name} uses {' and '.join(sources)}: JAX traces it once, so that the value of that moment stays the same "
            "in all evaluations. Pass blackbox=True to have the function called for each point, or compute such "
            "values outside of it."
        )


def _is_warned(function: object) -> bool:
    try:
        return function in _warned
    except TypeError:  # it has no hash
        return False


def _remember(function: object) -> None:
    try:
        _warned.add(function)
    except TypeError:
        return


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
        raise ObjectiveCountError(
            f"fun of {problem.name!r} returns {shape.objectives} numbers, one per objective, and "
            f"{type(algorithm).__name__} minimises one objective: return a single number, such as their jnp.sum, or "
            'choose an algorithm for several objectives, such as "nsga2".',
            shape.objectives,
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
    arguments = (jax.random.key(0),) if has_key_parameter(problem.fun) else ()
    for names_or_point in (problem.objectives, problem.reference_point):
        if names_or_point is not None:
            return int(np.size(names_or_point))
    shape = (vectorized, problem.dim) if vectorized else (problem.dim,)
    try:
        with jax.enable_x64(dtype == "float64"):
            out = jax.eval_shape(lambda x: problem.fun(x, *arguments), jax.ShapeDtypeStruct(shape, dtype))
        shapes = [leaf.shape for leaf in jax.tree.leaves(out)]  # a list or tuple may be returned as well as an array
        return sum(math.prod(shape[1:] if vectorized else shape) for shape in shapes)
    except Exception:
        return 1


KEY_PARAMETERS = ("key", "rng_key")  # names of the second parameter of a random objective


def has_key_parameter(function: Function) -> bool:
    """Return whether a function takes a JAX key as its second parameter, by the name of that."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    is_positional = len(parameters) > 1 and parameters[1].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    return is_positional and parameters[1].name in KEY_PARAMETERS


def check_arity(name: str, function: Function, vectorized: int = 0, n_arguments: int = 1) -> None:
    """Raise an InputError unless the function can be called with so many positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * n_arguments)
    except ValueError:
        return  # a builtin without a signature
    except TypeError:
        signature = inspect.signature(function)
        expected = "all solutions x of shape (n, d)" if vectorized else "one solution x of shape (d,)"
        if n_arguments == 2:
            raise InputError(
                f"{name} of a noisy objective that JAX compiles must take two arguments, {expected} and a JAX key; it "
                f"is defined as {signature}. Write fun(x, key), or pass blackbox=True for one that draws by itself."
            ) from None
        advice = "" if vectorized else " Write lambda x: fun(*x), or with named variables lambda v: fun(**v)."
        raise InputError(f"{name} must take one argument, {expected}; it is defined as {signature}.{advice}") from None


def is_differentiable(problem: Problem) -> bool:
    """Return whether JAX can differentiate the constraints as functions of one solution."""
    functions = [f for f in (problem.ineq, problem.eq) if f is not None]
    x = jax.ShapeDtypeStruct((problem.dim,), jnp.float32)
    try:
        for function in functions:
            jax.eval_shape(jax.jacfwd(lambda x, f=function: f(x)), x)
    except Exception:
        return False
    return bool(functions)
