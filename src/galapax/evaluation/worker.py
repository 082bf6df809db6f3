"""What calls the user's functions, in this process or wherever a task is sent, and says what came of each point.

The functions are sent once to each worker and kept there by a key; a task brings the key and some rows. A worker that
does not know the key says so, and is sent the functions with the rows.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from galapax.core.checks import abbreviate, as_float_array
from galapax.core.evaluation import OUTPUT_NAMES, Values

KEPT = 8  # functions of so many runs are kept in a worker


class Failure(NamedTuple):
    """Why a point has no values. odd: what came is nothing that a black box may return, rather than bad luck.
    sizes: how many numbers came by which name, if they did and were not finite.
    """

    error: str
    odd: bool = False
    sizes: tuple[tuple[str, int], ...] = ()
    cause: Exception | SystemExit | None = None  # in this process


Answer = dict[str, np.ndarray] | Failure  # of one point: the numbers by name ("fun", "ineq", "eq")


class Functions(NamedTuple):
    """The functions of a problem. vectorized: they take several points (n, d) at once."""

    calls: dict[str, Callable[..., Any]]
    vectorized: bool = False


class Told(NamedTuple):
    """What came of a task.

    process: that did it. seconds: that it took. missing: the worker does not know the functions. unloadable: what went
    wrong when it tried to load them.
    """

    answers: list[Answer]
    process: int
    seconds: float = 0.0
    missing: bool = False
    unloadable: str = ""


_functions: dict[str, Functions] = {}


def keep(key: str, functions: Functions) -> None:
    """Know these functions in this process, where threads find them without any pickling."""
    _functions[key] = functions
    while len(_functions) > KEPT:
        del _functions[next(iter(_functions))]


def forget(key: str) -> None:
    _functions.pop(key, None)


def prepare() -> None:
    """In a worker process that we started: leave the accelerator alone, and Ctrl-C to the process that waits."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    jax.config.update("jax_platforms", "cpu")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def work(key: str, payload: bytes | None, rows: np.ndarray, serial: int) -> Told:
    """A task. serial: makes every task another, since some schedulers compute equal ones once."""
    if key not in _functions:
        if payload is None:
            return Told([], os.getpid(), missing=True)
        try:
            keep(key, Functions(*pickle.loads(payload)))
        except Exception as error:
            return Told([], os.getpid(), unloadable=f"{type(error).__name__}: {error}")
    functions = _functions[key]
    start = time.perf_counter()
    answers = at_once(functions.calls, rows) if functions.vectorized else [one(functions.calls, x) for x in rows]
    seconds = time.perf_counter() - start
    # an exception may hold what cannot be pickled
    return Told([a._replace(cause=None) if isinstance(a, Failure) else a for a in answers], os.getpid(), seconds)


def one(calls: Mapping[str, Callable[..., Any]], x: np.ndarray) -> Answer:
    """Call the functions with one point (d,)."""
    found: dict[str, np.ndarray] = {}
    for name, function in calls.items():
        try:
            value = function(x.copy())
        except (Exception, SystemExit) as error:  # a program that is called as a function may want to exit
            return _raised(name, error)
        parts = _parts(name, value, calls)
        if isinstance(parts, Failure):
            return parts
        for part, own in parts:
            numbers = _numbers(part, own)
            if isinstance(numbers, Failure):
                return numbers
            found[part] = numbers
    return found


def at_once(calls: Mapping[str, Callable[..., Any]], points: np.ndarray) -> list[Answer]:
    """Call functions that take several points with all of points (n, d)."""
    found: dict[str, np.ndarray] = {}
    bad: dict[int, Failure] = {}
    for name, function in calls.items():
        try:
            value = function(points.copy())
        except (Exception, SystemExit) as error:
            return [_raised(name, error)] * len(points)
        parts = _parts(name, value, calls)
        if isinstance(parts, Failure):
            return [parts] * len(points)
        for part, own in parts:
            rows = _rows(part, own, points)
            if isinstance(rows, Failure):
                return [rows] * len(points)
            found[part] = rows
            for i in np.flatnonzero(~_sound(part, rows)):
                bad.setdefault(int(i), _not_finite(part, rows[i]))
    return [bad.get(i) or {name: rows[i] for name, rows in found.items()} for i in range(len(points))]


def _raised(name: str, error: Exception | SystemExit) -> Failure:
    try:
        said = str(error)
    except Exception:  # of a class that somebody wrote
        said = "an exception without a text"
    return Failure(f"{name} raised {type(error).__name__}: {said}", cause=error)


def _parts(name: str, value: Any, calls: Mapping[str, Any]) -> Sequence[tuple[str, Any]] | Failure:
    """What a function returned, by name: fun may return objective and constraints together."""
    if isinstance(value, Values):
        value = value._asdict()
    try:
        value = dict(value) if name == "fun" and isinstance(value, Mapping) else value
    except Exception as error:  # of a class that somebody wrote
        return _raised(name, error)
    if name != "fun" or not isinstance(value, dict) or "fun" not in value:
        return ((name, value),)
    named = [(part, own) for part, own in value.items() if own is not None or part == "fun"]
    for part, _ in named:
        if part not in OUTPUT_NAMES:
            return Failure(f'fun returned a dict with {part!r}; it may have "fun", "ineq" and "eq".', odd=True)
        if part != "fun" and part in calls:
            return Failure(
                f"fun returned {part}, and a function {part} was given as well: give only one of them.", odd=True
            )
    return named


def _numbers(name: str, value: Any) -> np.ndarray | Failure:
    """What a function said of one point, (k,)."""
    if isinstance(value, float) and math.isfinite(value):  # NumPy's float64 is one; the usual case, quickly
        return np.array([value])
    if np.ma.is_masked(value):
        return Failure(f"{name} returned a masked value: {abbreviate(value)}", odd=True)
    try:
        numbers = as_float_array(value)
    except ValueError:
        return _no_reals(name, value)
    if numbers.ndim > 1 or numbers.size == 0:
        return Failure(f"{name} of one solution must return a number or a vector; got shape {numbers.shape}.", odd=True)
    numbers = numbers.ravel()
    return numbers if _sound(name, numbers[None])[0] else _not_finite(name, numbers)


def _rows(name: str, value: Any, points: np.ndarray) -> np.ndarray | Failure:
    """What a function said of several points, (n, k)."""
    try:
        values = as_float_array(value)  # masked entries are NaN
    except ValueError:
        return _no_reals(name, value)
    if values.ndim not in (1, 2) or len(values) != len(points) or not values.size:
        return Failure(
            f"{name} with vectorized=True is given x of shape {points.shape} and must return {len(points)} values, "
            f"shape (n,) or (n, m); it returned shape {values.shape}.",
            odd=True,
        )
    return values.reshape(len(points), -1)


def _sound(name: str, rows: np.ndarray) -> np.ndarray:
    """Which rows (n, k) hold values to go on with; an inequality of -inf is met."""
    return (np.isfinite(rows) | ((name == "ineq") & (rows == -np.inf))).all(axis=1)


def _not_finite(name: str, numbers: np.ndarray) -> Failure:
    return Failure(f"{name} returned {_shown(numbers)}", sizes=((name, numbers.size),))


def _shown(numbers: np.ndarray) -> str:
    return f"{numbers[0]:g}" if numbers.size == 1 else abbreviate([float(v) for v in numbers])


def _no_reals(name: str, value: Any) -> Failure:
    hint = " (is the `return` missing?)" if value is None else ""
    what = "a number or a vector of real numbers"
    return Failure(f"{name} must return {what}; it returned {abbreviate(value)}{hint}.", odd=True)
