"""Declared variables: reals, integers, choices and booleans; steps, logarithmic scales, fixed and conditional ones.

core/space.py has the maps between these values and the numbers that an algorithm searches.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from galapax.core.checks import abbreviate, check_finite, check_integer, check_positive, clean_name
from galapax.core.errors import InputError

MAX_INTEGER = 2**53  # whole numbers up to it are exact in float64
VALUE_DIGITS = 12  # significant digits of a value on a grid: 3 * 0.1 is shown as 0.3

Label = str | int | float | bool | None | tuple["Label", ...]
When = Mapping[str, Any]  # {name of another variable: the value, or list of values, for which a variable exists}
Condition = tuple[str, tuple[Label, ...]]


@dataclass(frozen=True)
class Variable:
    """One variable, declared by `real`, `integer`, `choice` or `boolean`.

    lower, upper: limits of its number in x, which is the index of a label. step: distance of the values of a real or
    integer; None for any value. when: conditions that must all hold for the variable to exist.
    """

    kind: str  # "real", "integer", "choice" or "boolean"
    lower: float
    upper: float
    log: bool = False
    labels: tuple[Label, ...] = ()
    name: str | None = None
    unit: str | None = None
    step: float | None = None
    when: tuple[Condition, ...] = ()

    @property
    def discrete(self) -> bool:
        return self.kind != "real" or self.step is not None

    @property
    def is_fixed(self) -> bool:
        """Whether it has only one value, and so nothing to search."""
        return self.lower == self.upper

    @property
    def numeric(self) -> bool:
        """Whether it is a choice among numbers: x then has the number, not its index."""
        return self.kind == "choice" and all(_is_number(label) for label in self.labels)

    @property
    def is_ordered(self) -> bool:
        """Whether neighbouring codes are alike: integers, and choices among ascending numbers."""
        if self.kind == "choice":
            return self.numeric and bool(np.all(np.diff(np.array(self.labels, np.float64)) > 0))
        return True

    @property
    def code_range(self) -> tuple[float, float]:
        """The first and the last code; 0 and 0 for a real number without a step."""
        if self.step is not None:
            return 0.0, float(round((self.upper - self.lower) / self.step))
        if self.kind == "integer":
            return self.lower, self.upper
        return 0.0, {"real": 0.0, "boolean": 1.0}.get(self.kind, len(self.labels) - 1.0)

    def all_values(self) -> list[Label]:
        """Return the values of a discrete variable in the order of their codes."""
        first, last = (int(code) for code in self.code_range)
        if self.kind == "choice":
            return list(self.labels)
        scale, offset = (1.0, 0.0) if self.step is None else (self.step, self.lower)
        return [self.value(offset + scale * code) for code in range(first, last + 1)]

    def value(self, number: float) -> Label:
        """Return the value of a number in x: a float, an int, a bool or the label."""
        if self.kind == "real" and self.step is not None and math.isfinite(number):
            return float(f"{number:.{VALUE_DIGITS}g}")
        if self.kind == "real" or math.isnan(number):
            return float(number)
        if self.kind == "integer":
            return round(number)
        if self.kind == "boolean":
            return number > 0.5
        return self.labels[int(np.argmin(np.abs(self._numbers - number)))]

    def number(self, value: Any) -> float:
        """Return the number in x of a user's value."""
        if self.kind == "choice" and not (self.numeric and _is_number(value)):
            index_by_label = {_label_key(label): i for i, label in enumerate(self.labels)}
            if _label_key(value) not in index_by_label:
                raise InputError(f"{value!r} is none of the choices {', '.join(map(repr, self.labels))}.")
            return float(self._numbers[index_by_label[_label_key(value)]])
        if not _is_number(value) and not isinstance(value, bool | np.bool_):
            raise InputError(f"{self.name or 'the variable'} must be a number; got {abbreviate(value)}.")
        return float(value)

    def show(self, number: float) -> str:
        """Return the value as text."""
        value = self.value(number)
        if self.kind == "boolean":
            return "yes" if value else "no"
        return f"{value:.8g}" if isinstance(value, float) else str(value)

    def range(self) -> tuple[str, str]:
        """Return its limits as text; of labels the first and the last."""
        if self.kind in ("choice", "boolean"):
            return self.show(self.lower), self.show(self.upper)
        return f"{self.lower:g}", f"{self.upper:g}"

    @property
    def _numbers(self) -> np.ndarray:
        return np.array(self.labels, np.float64) if self.numeric else np.arange(len(self.labels), dtype=np.float64)

    def __repr__(self) -> str:
        arguments = [repr(v) for v in self.labels] if self.kind == "choice" else []
        arguments += [f"{self.lower:g}", f"{self.upper:g}"] if self.kind in ("real", "integer") else []
        arguments += ["log=True"] * self.log
        arguments += [f"step={self.step:g}"] if self.step is not None else []
        arguments += [f"when={ {name: list(values) for name, values in self.when} }"] if self.when else []
        arguments += [
            f"{field}={getattr(self, field)!r}" for field in ("name", "unit") if getattr(self, field) is not None
        ]
        return f"{self.kind}({', '.join(arguments)})"


def real(
    lower: float,
    upper: float,
    *,
    log: bool = False,
    step: float | None = None,
    when: When | None = None,
    name: str | None = None,
    unit: str | None = None,
) -> Variable:
    """Declare a real number between two limits; equal limits fix it.

    log: search its logarithm, so that each order of magnitude gets the same share; both limits must be above 0.
    step: only lower, lower + step, lower + 2 step and so on, up to `upper`.
    when: {name of another variable: value, or list of values}: the variable exists only for these.
    """
    low, high = _check_limits("real", lower, upper)
    if log and low <= 0:
        raise InputError(f"real(..., log=True) needs limits above 0, got {low:g} and {high:g}.")
    if log and step is not None:
        raise InputError(
            "real takes log=True or step, not both: for a few values on a logarithmic scale use gx.choice."
        )
    variable = Variable("real", low, high, log=bool(log))
    return _with_details(_with_step(variable, step), when, name, unit)


def integer(
    lower: int,
    upper: int,
    *,
    step: int | None = None,
    when: When | None = None,
    name: str | None = None,
    unit: str | None = None,
) -> Variable:
    """Declare a whole number between two limits, both included; equal limits fix it. step, when: as in `real`."""
    low, high = _check_limits("integer", lower, upper)
    if low != round(low) or high != round(high):
        raise InputError(f"integer needs whole numbers as limits, got {low:g} and {high:g}.")
    if max(abs(low), abs(high)) > MAX_INTEGER:
        raise InputError(f"integer takes limits of up to 2**53, which floats hold exactly; got {low:g} and {high:g}.")
    if step is not None:
        check_integer(step, "step of integer", 1)
    variable = Variable("integer", low, high)
    return _with_details(_with_step(variable, None if step == 1 else step), when, name, unit)


def choice(*labels: object, when: When | None = None, name: str | None = None, unit: str | None = None) -> Variable:
    """Declare one of some labels: text, numbers such as stock sizes, True, False, None, or tuples of these.

    Numbers in ascending order are searched as ordered steps, all other labels as values without an order. A single
    label fixes the variable. when: as in `real`.
    """
    if len(labels) == 1 and isinstance(labels[0], Sequence | np.ndarray) and not isinstance(labels[0], str):
        labels = tuple(labels[0])
    if not labels:
        raise InputError("choice needs at least one label, got none.")
    values = tuple(_check_label(label) for label in labels)
    index_by_label: dict[Hashable, int] = {}
    for i, label in enumerate(values):
        first = index_by_label.setdefault(_label_key(label), i)
        if first != i and labels[first] != labels[i]:
            raise InputError(
                f"choice has {labels[first]!r} and {labels[i]!r}, which are the same on one line of text: "
                f"{label!r}; give each label once."
            )
        if first != i:
            raise InputError(f"choice has {label!r} twice; give each label once.")
    variable = Variable("choice", 0.0, len(values) - 1.0, labels=values)
    if variable.numeric:
        numbers = np.array(values, np.float64)
        variable = replace(variable, lower=float(numbers.min()), upper=float(numbers.max()))
    return _with_details(variable, when, name, unit)


def boolean(*, when: When | None = None, name: str | None = None) -> Variable:
    """Declare True or False. when: as in `real`."""
    return _with_details(Variable("boolean", 0.0, 1.0), when, name, None)


def _check_limits(kind: str, lower: object, upper: object) -> tuple[float, float]:
    for limit in (lower, upper):
        if limit is None or (isinstance(limit, int | float) and math.isinf(limit)):
            raise InputError(
                f"{kind}({lower}, {upper}) has no limit on a side: the search starts from points spread over the box, "
                "so both limits must be finite; give the widest range that makes sense."
            )
    low, high = check_finite(lower, f"the lower limit of {kind}"), check_finite(upper, f"the upper limit of {kind}")
    if low > high:
        raise InputError(f"the limits of {kind} are reversed: lower {low:g} > upper {high:g}; swap them.")
    return low, high


def _with_step(variable: Variable, step: object) -> Variable:
    """Put a variable on a grid that starts at its lower limit; its upper limit becomes the last value."""
    if step is None:
        return variable
    size, span = check_positive(step, f"step of {variable.kind}"), variable.upper - variable.lower
    n_steps = math.floor(span / size * (1 + 4 * np.finfo(float).eps)) if math.isfinite(size) else 0
    if n_steps < 1:
        raise InputError(
            f"step of {variable.kind} must be at most the range of the variable, {span:g}; got {size:g}. "
            "For a fixed value give equal limits."
        )
    if n_steps > MAX_INTEGER:
        raise InputError(f"step of {variable.kind} gives more than 2**53 values; leave it out.")
    last = float(f"{variable.lower + n_steps * size:.{VALUE_DIGITS}g}")
    return replace(variable, upper=min(last, variable.upper), step=size)


def _with_details(variable: Variable, when: object, name: object, unit: object) -> Variable:
    """Add conditions, name and unit."""
    if when is not None and (not isinstance(when, Mapping) or not when):
        raise InputError(f'when must be a dict such as {{"kernel": "rbf"}}, got {abbreviate(when)}.')
    conditions = []
    for other, values in (when or {}).items():
        listed = values if isinstance(values, list | set | frozenset) else [values]
        conditions.append((clean_name(other, "each name in when"), tuple(_check_label(value) for value in listed)))
    clean = None if name is None else clean_name(name, "name")
    unit = None if unit is None else clean_name(unit, "unit")
    return replace(variable, name=clean, unit=unit, when=tuple(conditions))


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_real and math.isfinite(value)


def _check_label(label: Any) -> Label:
    """Return a label in Python's own types, text as one line."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, str):
        return clean_name(label, "a label")
    if isinstance(label, tuple):
        return tuple(_check_label(item) for item in label)
    if label is None or isinstance(label, bool) or _is_number(label):
        return label
    raise InputError(
        f"choice takes text, finite numbers, True, False, None and tuples of them as labels, got {abbreviate(label)}."
    )


def _label_key(label: object) -> Hashable:
    """Return a key that tells True from 1, which Python does not."""
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, tuple):
        return tuple(_label_key(item) for item in label)
    return (bool, label) if isinstance(label, bool) else label
