"""Fingerprints of functions and all that they read: with equal fingerprints a function need not be traced again.

Tracing a function takes as long as a short run. Tracing it each time is what makes a changed global or an array that
was written to count, so only functions are remembered that can read nothing of the kind: numbers, strings, other such
functions, and the libraries that formulas are written with.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

LIBRARIES = ("jax", "numpy", "math", "galapax")
# names that suggest hidden state or randomness; such functions are always retraced
IMPURE_NAMES = {"random", "default_rng", "rand", "randn", "open", "input", "globals", "eval", "exec", "getattr", "vars"}
IMMUTABLE = (bool, int, float, complex, str, bytes, type(None), np.generic)
MAX_DEPTH = 8


class NotHashable(Exception):
    """Raised for a function that may read something mutable."""


def closure_fingerprint(function: Any) -> Hashable:
    """Return a key that is equal only for functions with equal code that read equal values; else raise NotHashable."""
    return _fingerprint_function(function, 0)


def _fingerprint_value(value: Any, depth: int) -> Hashable:
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


def _fingerprint_function(function: Any, depth: int) -> Hashable:
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
