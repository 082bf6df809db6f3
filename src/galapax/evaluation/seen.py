"""What a function reads besides its argument: where all of that is immutable, it need not be traced again.

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
# names of what may give something else each time, or hides what is read
MOODS = {"random", "default_rng", "rand", "randn", "open", "input", "globals", "eval", "exec", "getattr", "vars"}
IMMUTABLE = (bool, int, float, complex, str, bytes, type(None), np.generic)
DEPTH = 8


class Unsure(Exception):
    """It may read something that changes."""


def what_it_reads(function: Any) -> Hashable:
    """Equal for two functions, or for one at two times, only if they are equal and read the same; or Unsure."""
    return _of_function(function, 0)


def _of_value(value: Any, depth: int) -> Hashable:
    if depth > DEPTH:
        raise Unsure
    if isinstance(value, IMMUTABLE):
        return type(value), repr(value)  # 0.0 and -0.0, 1 and True differ
    if isinstance(value, tuple):
        return "tuple", tuple(_of_value(each, depth + 1) for each in value)
    if isinstance(value, types.ModuleType):
        return "module", _trusted(value.__name__)
    if isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] not in LIBRARIES:
        return _of_function(value, depth + 1)
    module, name = _trusted(getattr(value, "__module__", None)), getattr(value, "__name__", "")
    if getattr(sys.modules.get(module), name, None) is value:  # and nothing that somebody made with the library
        return module, name
    raise Unsure


def _of_function(function: Any, depth: int) -> Hashable:
    if type(function) is not types.FunctionType:
        raise Unsure
    code, given = function.__code__, function.__kwdefaults__ or {}
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # not assigned yet
        raise Unsure from None
    names = sorted(set(_names(code)))
    if MOODS.intersection(names):
        raise Unsure
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    read = [*(function.__defaults__ or ()), *given.values(), *cells, *found.values()]
    return code, tuple(given), tuple(found), tuple(_of_value(value, depth) for value in read)


def _names(code: types.CodeType) -> Iterator[str]:
    """Globals and attributes that a function and those within it name."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names(const)


def _trusted(module: str | None) -> str:
    if module is None or module.partition(".")[0] not in (*LIBRARIES, builtins.__name__):
        raise Unsure
    if module.startswith("numpy.random"):
        raise Unsure
    return module
