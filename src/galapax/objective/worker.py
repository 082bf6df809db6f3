"""Calls the user's functions, in this process or in a worker, and returns an answer for each point.

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
from galapax.core.problem import OUTPUT_NAMES, Evaluation
from galapax.core.user_code import describe_traceback

MAX_FUNCTIONS_IN_WORKER = 8  # each entry holds the functions of one run


class Failure(NamedTuple):
    """Why a point has no values. odd: what came is nothing that a black box may return, rather than bad luck.
    sizes: how many numbers came by which name, if they did and were not finite.
    traceback: the user's lines, where a function raised an exception. location: the last of them, in a few words.
    is_penalty: the function returned an infinite value, which is how many write a penalty.
    """

    error: str
    odd: bool = False
    sizes: tuple[tuple[str, int], ...] = ()
    cause: Exception | SystemExit | None = None  # in this process
    traceback: str = ""
    location: str = ""
    is_penalty: bool = False


Answer = dict[str, np.ndarray] | Failure  # of one point: the numbers by name ("fun", "ineq", "eq")


class Call(NamedTuple):
    """An evaluation of one point. seconds: in the functions. process: that made it, None if it was lost."""

    answer: Answer
    seconds: float = math.nan
    process: int | None = None


class Functions(NamedTuple):
    """The functions of a problem. vectorized: they take several points (n, d) at once."""

    calls: dict[str, Callable[..., object]]
    vectorized: bool = False


class TaskResult(NamedTuple):
    """The result of a task.

    process: that did it. missing: the worker does not know the functions. unloadable: what went wrong when it tried to
    load them.
    """

    calls: list[Call]
    process: int
    missing: bool = False
    unloadable: str = ""


_functions: dict[str, Functions] = {}


def register_functions(key: str, functions: Functions) -> None:
    """Register functions in this process, where threads find them without pickling."""
    _functions[key] = functions
    while len(_functions) > MAX_FUNCTIONS_IN_WORKER:
        del _functions[next(iter(_functions))]


def forget_functions(key: str) -> None:
    _functions.pop(key, None)


def prepare() -> None:
    """In a worker process that we started: leave the accelerator alone, and Ctrl-C to the process that waits."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    jax.config.update("jax_platforms", "cpu")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def work(key: str, payload: bytes | None, rows: np.ndarray, serial: int) -> TaskResult:
    """Evaluate the rows of a task. serial: makes tasks distinct, since some schedulers compute equal ones once."""
    if key not in _functions:
        if payload is None:
            return TaskResult([], os.getpid(), missing=True)
        try:
            register_functions(key, Functions(*pickle.loads(payload)))
        except Exception as error:
            return TaskResult([], os.getpid(), unloadable=f"{type(error).__name__}: {error}")
    calls = call_functions(_functions[key], rows)
    # an exception may hold what cannot be pickled
    return TaskResult([call._replace(answer=_without_cause(call.answer)) for call in calls], os.getpid())


def _without_cause(answer: Answer) -> Answer:
    return answer._replace(cause=None) if isinstance(answer, Failure) else answer


def call_functions(functions: Functions, points: np.ndarray) -> list[Call]:
    """Evaluate points (n, d) in this process."""
    if not functions.vectorized:
        return [call_point(functions.calls, x) for x in points]
    start = time.perf_counter()
    answers = evaluate_vectorized(functions.calls, points)
    seconds = (time.perf_counter() - start) / max(1, len(points))
    return [Call(answer, seconds, os.getpid()) for answer in answers]


def call_point(calls: Mapping[str, Callable[..., object]], x: np.ndarray) -> Call:
    """Evaluate one point (d,) in this process."""
    start = time.perf_counter()
    answer = evaluate_point(calls, x)
    return Call(answer, time.perf_counter() - start, os.getpid())


def evaluate_point(calls: Mapping[str, Callable[..., object]], x: np.ndarray) -> Answer:
    """Evaluate one point (d,) by calling the functions."""
    answer: dict[str, np.ndarray] = {}
    failure: Failure | None = None
    for name, function in calls.items():
        try:
            value = function(x.copy())
        except (Exception, SystemExit) as error:  # a program that is called as a function may want to exit
            return _exception_failure(name, error)
        values = _split_values(name, value, calls)
        if isinstance(values, Failure):
            return values
        for key, raw in values:
            numbers = _parse_point(key, raw)
            if not isinstance(numbers, Failure):
                answer[key] = numbers
            elif numbers.odd:
                return numbers
            else:  # what else came back says how many numbers there are
                sizes = numbers.sizes if failure is None else (*failure.sizes, *numbers.sizes)
                failure = (failure or numbers)._replace(sizes=sizes)
        if failure is not None:
            return failure._replace(sizes=(*((key, values.size) for key, values in answer.items()), *failure.sizes))
    return answer


def evaluate_vectorized(calls: Mapping[str, Callable[..., object]], points: np.ndarray) -> list[Answer]:
    """Evaluate points (n, d) by one call of each vectorized function."""
    columns: dict[str, np.ndarray] = {}
    failures: dict[int, Failure] = {}
    for name, function in calls.items():
        try:
            value = function(points.copy())
        except (Exception, SystemExit) as error:
            return [_exception_failure(name, error)] * len(points)
        values = _split_values(name, value, calls)
        if isinstance(values, Failure):
            return [values] * len(points)
        for key, raw in values:
            rows = _parse_points(key, raw, points)
            if isinstance(rows, Failure):
                return [rows] * len(points)
            columns[key] = rows
            for i in np.flatnonzero(~_is_usable(key, rows)):
                failures.setdefault(int(i), _non_finite_failure(key, rows[i]))
    return [failures.get(i) or {name: rows[i] for name, rows in columns.items()} for i in range(len(points))]


def _exception_failure(name: str, error: Exception | SystemExit) -> Failure:
    try:
        text = str(error)
    except Exception:  # of a class that somebody wrote
        text = "an exception without a text"
    trace, location = describe_traceback(error)
    return Failure(f"{name} raised {type(error).__name__}: {text}", cause=error, traceback=trace, location=location)


def _split_values(name: str, value: Any, calls: Mapping[str, object]) -> Sequence[tuple[str, object]] | Failure:
    """Split a returned value by name: fun may return objective and constraints together."""
    if isinstance(value, Evaluation):
        value = value._asdict()
    try:
        value = dict(value) if name == "fun" and isinstance(value, Mapping) else value
    except Exception as error:  # of a class that somebody wrote
        return _exception_failure(name, error)
    if name != "fun" or not isinstance(value, dict) or "fun" not in value:
        return ((name, value),)
    entries = [(key, raw) for key, raw in value.items() if raw is not None or key == "fun"]
    for key, _ in entries:
        if key not in OUTPUT_NAMES:
            return Failure(f'fun returned a dict with {key!r}; it may have "fun", "ineq" and "eq".', odd=True)
        if key != "fun" and key in calls:
            return Failure(
                f"fun returned {key}, and a function {key} was given as well: give only one of them.", odd=True
            )
    return entries


def _parse_point(name: str, value: object) -> np.ndarray | Failure:
    """Convert the value of one point to an array (k,), or return a Failure."""
    if isinstance(value, float) and math.isfinite(value):  # NumPy's float64 is one; the usual case, quickly
        return np.array([value])
    if np.ma.is_masked(value):
        return Failure(f"{name} returned a masked value: {abbreviate(value)}", odd=True)
    try:
        numbers = as_float_array(value)
    except ValueError:
        return _type_failure(name, value)
    if numbers.ndim > 1 or numbers.size == 0:
        return Failure(f"{name} of one solution must return a number or a vector; got shape {numbers.shape}.", odd=True)
    numbers = numbers.ravel()
    return numbers if _is_usable(name, numbers[None])[0] else _non_finite_failure(name, numbers)


def _parse_points(name: str, value: object, points: np.ndarray) -> np.ndarray | Failure:
    """Convert the values of several points to an array (n, k), or return a Failure."""
    try:
        values = as_float_array(value)  # masked entries are NaN
    except ValueError:
        return _type_failure(name, value)
    if values.ndim not in (1, 2) or len(values) != len(points) or not values.size:
        return Failure(
            f"{name} with vectorized=True is given x of shape {points.shape} and must return {len(points)} values, "
            f"shape (n,) or (n, m); it returned shape {values.shape}.",
            odd=True,
        )
    return values.reshape(len(points), -1)


def _is_usable(name: str, rows: np.ndarray) -> np.ndarray:
    """Which rows (n, k) have usable values: finite, or -inf for an inequality, which is satisfied."""
    return (np.isfinite(rows) | ((name == "ineq") & (rows == -np.inf))).all(axis=1)


def _non_finite_failure(name: str, numbers: np.ndarray) -> Failure:
    is_penalty = bool(np.isinf(numbers).any() and not np.isnan(numbers).any())
    return Failure(f"{name} returned {_format_numbers(numbers)}", sizes=((name, numbers.size),), is_penalty=is_penalty)


def _format_numbers(numbers: np.ndarray) -> str:
    return f"{numbers[0]:g}" if numbers.size == 1 else abbreviate([float(v) for v in numbers])


def _type_failure(name: str, value: object) -> Failure:
    hint = " (is the `return` missing?)" if value is None else ""
    what = "a number or a vector of real numbers"
    return Failure(f"{name} must return {what}; it returned {abbreviate(value)}{hint}.", odd=True)
