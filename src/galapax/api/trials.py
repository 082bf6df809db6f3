"""What a user asks for and tells: trials, and values in the many ways in which people give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from galapax.core.checks import abbreviate, as_float_array
from galapax.core.direction import Maximize, orient
from galapax.core.errors import InputError
from galapax.core.evaluation import OUTPUT_NAMES, Shape, Values
from galapax.core.problem import EqTolerance, Problem
from galapax.core.user_code import describe_traceback
from galapax.objective.failures import summarise
from galapax.objective.worker import Answer, Failure

MATCH_DISTANCE = 1e-6  # share of the box within which a point counts as one that was asked for: text and float32 round


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


def parse_points(points: Any, problem: Problem, out: Iterable[Trial]) -> tuple[np.ndarray, bool]:
    """Return points as (n, d), and whether there is one. out: the trials that were handed out."""
    d, bounds = problem.dim, problem.bounds
    is_one = isinstance(points, Trial | Mapping)
    entries = [points] if is_one else points
    if isinstance(entries, list | tuple) and entries and all(isinstance(p, Trial | Mapping) for p in entries):
        return np.array(
            [p.x if isinstance(p, Trial) else _parse_named(p, problem, out) for p in entries], np.float64
        ), is_one
    try:
        x = as_float_array(points) if problem.space is None else problem.space.parse_points(points)
    except InputError:
        raise
    except (ValueError, TypeError):
        x = np.zeros(0)
    is_one = x.ndim == 1 and x.shape == (d,) and d > 0
    x = x[None] if is_one else x
    if x.ndim != 2 or x.shape[1] != d or not len(x):
        raise InputError(
            f"tell takes a trial, a dict of named values, a point of {d} numbers, or a list of these; "
            f"got {abbreviate(points)}."
        )
    slack = MATCH_DISTANCE * bounds.span
    if not ((x >= bounds.lower - slack) & (x <= bounds.upper + slack)).all():
        raise InputError(f"tell takes points inside the bounds; got {abbreviate(points)}.")
    return np.clip(x, bounds.lower, bounds.upper), is_one


def _parse_named(point: Mapping[str, Any], problem: Problem, out: Iterable[Trial]) -> np.ndarray:
    for trial in out:
        if trial.params == point:
            return np.asarray(trial.x, np.float64)
    if problem.space is not None:
        return problem.space.parse_points(point)[0]
    names = problem.variable_names()
    if set(point) != set(names):
        raise InputError(f"a point needs a value for each of {', '.join(names)}; got {', '.join(map(str, point))}.")
    return np.array([float(point[name]) for name in names])


def match_points(x: np.ndarray, asked: np.ndarray, waiting: list[int], span: np.ndarray) -> list[int | None]:
    """Return which of the waiting points each of the points (n, d) is; None for one that was not asked for.

    asked: (k, d) the points of the generation. waiting: the places of those without a value.
    """
    waiting = list(waiting)
    if len(waiting) == len(x) and np.array_equal(asked[waiting], x.astype(asked.dtype)):
        return list(waiting)
    places: list[int | None] = []
    for point in x:
        place = None
        if waiting:
            away = np.max(np.abs(asked[waiting] - point) / span, axis=1)
            nearest = int(np.argmin(away))
            if away[nearest] <= MATCH_DISTANCE:
                place = waiting.pop(nearest)
        places.append(place)
    return places


def judge_answers(
    answers: list[Answer], shape: Shape, maximize: Maximize, eq_tolerance: EqTolerance | None
) -> list[tuple[float, float]]:
    """Return violation and (first) value of each answer, to be minimised; refuse answers of other shapes, and turn
    those that are not finite into failures.
    """
    for answer in answers:
        if isinstance(answer, dict) and (answer_shape := shape_of(answer)) != shape:
            raise InputError(
                f"these points came with {sum(answer_shape)} numbers per point {tuple(answer_shape)}, earlier ones "
                f"with {sum(shape)} {tuple(shape)}: of objectives, inequalities and equalities."
            )
    raw = stack_answers(answers, shape)
    fun = orient(raw["fun"], maximize)
    judged = summarise(fun, raw.get("ineq"), raw.get("eq"), eq_tolerance, np)
    violation = np.zeros(len(answers)) if judged.violation is None else np.asarray(judged.violation)
    for i in np.flatnonzero(judged.failed):
        answer = answers[i]
        if isinstance(answer, dict):
            answers[i] = Failure(f"told {', '.join(f'{name} = {v}' for name, v in answer.items())}")
    return list(zip(violation.tolist(), np.asarray(judged.objectives)[:, 0].tolist(), strict=True))


def stack_answers(answers: Sequence[Answer | None], shape: Shape) -> dict[str, np.ndarray]:
    """Return the numbers of answers by name, (n, width); NaN for failures."""
    raw = {}
    for name, width in widths_of(shape).items():
        missing = np.full(width, np.nan)
        rows = [answer[name] if isinstance(answer, dict) else missing for answer in answers]
        raw[name] = np.array(rows, np.float64).reshape(len(answers), width)
    return raw


def widths_of(shape: Shape) -> dict[str, int]:
    """Return how many numbers a point gives, by name."""
    return {name: width for name, width in zip(OUTPUT_NAMES, shape, strict=True) if width}
