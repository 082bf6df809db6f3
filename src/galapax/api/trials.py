"""What a user asks for and tells: trials, and values in the many ways in which people give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from galapax.core.checks import abbreviate, as_float_array
from galapax.core.errors import InputError
from galapax.core.evaluation import OUTPUT_NAMES, Shape, Values
from galapax.core.user_code import describe_traceback
from galapax.objective.worker import Answer, Failure


@dataclass(frozen=True)
class Trial:
    """A point that waits for its value. number: counts the trials of an Optimizer, from 0."""

    number: int
    x: np.ndarray  # (d,) of declared variables their numbers
    params: dict[str, Any]  # x by name


def parse_values(values: Any, ineq: Any, eq: Any, n: int, is_one: bool) -> list[Answer]:
    """Return what came of each of n points: their numbers by name, or why they failed."""
    if values is None and not is_one:
        raise InputError("values is missing: give one value per point.")
    constraints = {name: _rows(name, rows, n, is_one) for name, rows in (("ineq", ineq), ("eq", eq))}
    constraints = {name: rows for name, rows in constraints.items() if rows is not None}
    per_point = _entries(values, n, is_one)
    if isinstance(per_point, np.ndarray):
        columns = {"fun": per_point, **constraints}
        return [{name: rows[i] for name, rows in columns.items()} for i in range(n)]
    answers: list[Answer] = []
    for i, value in enumerate(per_point):
        if value is None or isinstance(value, BaseException):
            answers.append(_failure(value))
            continue
        named = value._asdict() if isinstance(value, Values) else value
        named = dict(named) if isinstance(named, Mapping) else {"fun": named}
        if "fun" not in named or set(named) - set(OUTPUT_NAMES):
            raise InputError(f'a dict of values has "fun", "ineq" and "eq"; got {abbreviate(named)}.')
        named |= {name: rows[i] for name, rows in constraints.items()}
        answers.append({name: _numbers(name, named[name]) for name in OUTPUT_NAMES if named.get(name) is not None})
    return answers


def shape_of(answer: Mapping[str, np.ndarray]) -> Shape:
    return Shape(*(answer[name].size if name in answer else 0 for name in OUTPUT_NAMES))


def _failure(error: BaseException | None) -> Failure:
    """Return why a point failed that was told with None or an exception."""
    if error is None:
        return Failure("told None")
    traceback, location = describe_traceback(error)
    return Failure(f"{type(error).__name__}: {error}", traceback=traceback, location=location)


def _entries(values: Any, n: int, is_one: bool) -> list[Any] | np.ndarray:
    """Return what was told of each of n points: an array (n, m) of numbers, or a list with anything else among them."""
    if is_one and (values is None or isinstance(values, BaseException | Mapping | Values)):
        return [values]
    is_list = isinstance(values, list | tuple) and not isinstance(values, Values) and not is_one
    if is_list and any(value is None or isinstance(value, BaseException | Mapping | Values) for value in values):
        if len(values) != n:
            raise InputError(f"values must have one entry for each of the {n} points; got {len(values)}.")
        return list(values)
    return _rows("values", values, n, is_one)


def _rows(name: str, values: Any, n: int, is_one: bool) -> Any:
    """Return numbers as (n, k), from one number or several for each point; None stays None."""
    if values is None:
        return None
    try:
        rows = as_float_array(values)
    except ValueError:
        raise InputError(f"{name} must be numbers, one row per point; got {abbreviate(values)}.") from None
    if is_one or (n == 1 and rows.ndim == 0):
        rows = rows.reshape(1, -1)
    if rows.ndim not in (1, 2) or len(rows) != n or rows.size == 0:
        raise InputError(f"{name} must have one row for each of the {n} points; got shape {rows.shape}.")
    return rows.reshape(n, -1)


def _numbers(name: str, value: Any) -> np.ndarray:
    """Return one point's numbers as (k,)."""
    rows: np.ndarray = _rows(name, value, 1, True)
    return rows[0]


def find_row(rows: np.ndarray, point: np.ndarray) -> int | None:
    """Return which row (n, d) is this point, if one is."""
    equal = np.flatnonzero((rows == point).all(axis=1))
    return int(equal[0]) if len(equal) else None
