"""Variables that are more than a range: integers, choices, switches, logarithmic scales, each with a name and a unit.

A search moves in genes, one float per variable, so that every algorithm works on every kind of variable:

- a real number is its own gene; on a logarithmic scale the gene is its logarithm;
- an integer, a switch and a choice have a whole number as gene, the code: the integer itself, or the place among the
  choices. The box of such a gene goes half a step beyond its codes, so that rounding gives each code the same share.

`Space.decode` in `core/space.py` is the one way from genes to x, the numbers that a user sees: codes are rounded there,
whatever an algorithm did to them, so a function is never called between two codes and no answer lies there.
`Space.given` makes of x what the functions are called with. Candidates are put onto the grid of codes by
`operators/discrete.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from galapax.core.checks import abbreviate, check_finite
from galapax.core.errors import InputError
from galapax.core.names import clean_name

MAX_INTEGER = 2**53  # whole numbers up to it are exact in float64


@dataclass(frozen=True)
class Variable:
    """One variable; made by `real`, `integer`, `choice` and `flag`.

    lower, upper: of the number that stands for it in x: of labels their places, from 0 on.
    """

    kind: str  # "real", "integer", "choice" or "flag"
    lower: float
    upper: float
    log: bool = False
    labels: tuple[Any, ...] = ()
    name: str | None = None
    unit: str | None = None

    @property
    def discrete(self) -> bool:
        return self.kind != "real"

    @property
    def numeric(self) -> bool:
        """Whether it is a choice among numbers: x then has the number, not its place."""
        return self.kind == "choice" and all(_is_number(label) for label in self.labels)

    @property
    def ordered(self) -> bool:
        """Whether neighbours have something in common: integers, and choices among ascending numbers."""
        if self.kind == "choice":
            return self.numeric and all(a < b for a, b in zip(self.labels, self.labels[1:], strict=False))
        return True

    def value(self, number: float) -> Any:
        """What the number in x stands for: a float, an int, a bool or the label."""
        if self.kind == "real" or math.isnan(number):
            return float(number)
        if self.kind == "integer":
            return round(number)
        if self.kind == "flag":
            return number > 0.5
        return self.labels[int(np.argmin(np.abs(self._numbers - number)))]

    def number(self, value: Any) -> float:
        """The number in x that stands for a value of the user's."""
        known = {_key(label): i for i, label in enumerate(self.labels)}
        if self.kind == "choice" and not (self.numeric and _is_number(value)):
            if _key(value) not in known:
                raise InputError(f"{value!r} is none of the choices {', '.join(map(repr, self.labels))}.")
            return float(self._numbers[known[_key(value)]])
        if not _is_number(value) and not isinstance(value, bool | np.bool_):
            raise InputError(f"{abbreviate(value)} is no number, and {self.name or 'the variable'} needs one.")
        return float(value)

    def show(self, number: float) -> str:
        """The value as text."""
        value = self.value(number)
        if self.kind == "flag":
            return "yes" if value else "no"
        return f"{value:.8g}" if isinstance(value, float) else str(value)

    def range(self) -> tuple[str, str]:
        """Its limits as text; of labels the first and the last."""
        if self.kind in ("choice", "flag"):
            return self.show(self.lower), self.show(self.upper)
        return f"{self.lower:g}", f"{self.upper:g}"

    @property
    def _numbers(self) -> np.ndarray:
        return np.array(self.labels, np.float64) if self.numeric else np.arange(len(self.labels), dtype=np.float64)

    def __repr__(self) -> str:
        own = [repr(v) for v in self.labels] if self.kind == "choice" else []
        own += [f"{self.lower:g}", f"{self.upper:g}"] if self.kind in ("real", "integer") else []
        own += ["log=True"] * self.log
        own += [f"{part}={getattr(self, part)!r}" for part in ("name", "unit") if getattr(self, part) is not None]
        return f"{self.kind}({', '.join(own)})"


def real(
    lower: float, upper: float, *, log: bool = False, name: str | None = None, unit: str | None = None
) -> Variable:
    """A real number between two limits.

    log: search its logarithm, so that each order of magnitude gets the same share; both limits must be above 0.
    """
    low, high = _limits("real", lower, upper)
    if log and low <= 0:
        raise InputError(f"real(..., log=True) needs limits above 0, got {low:g} and {high:g}.")
    return _with_name(Variable("real", low, high, log=bool(log)), name, unit)


def integer(lower: int, upper: int, *, name: str | None = None, unit: str | None = None) -> Variable:
    """A whole number between two limits, both included."""
    low, high = _limits("integer", lower, upper)
    if low != round(low) or high != round(high):
        raise InputError(f"integer needs whole numbers as limits, got {low:g} and {high:g}.")
    if max(abs(low), abs(high)) > MAX_INTEGER:
        raise InputError(f"integer takes limits of up to 2**53, which floats hold exactly; got {low:g} and {high:g}.")
    return _with_name(Variable("integer", low, high), name, unit)


def choice(*labels: Any, name: str | None = None, unit: str | None = None) -> Variable:
    """One of some labels: text, or numbers such as the sizes that a shop has.

    Numbers in ascending order are searched as steps of a ladder, everything else as values that have no order.
    """
    if len(labels) == 1 and isinstance(labels[0], Sequence | np.ndarray) and not isinstance(labels[0], str):
        labels = tuple(labels[0])
    given = tuple(label.item() if isinstance(label, np.generic) else label for label in labels)
    if len(given) < 2:
        raise InputError(f"choice needs at least two labels, got {len(given)}.")
    for i, label in enumerate(given):
        if not isinstance(label, str) and not _is_number(label):
            raise InputError(f"choice takes text or finite numbers as labels, got {abbreviate(label)}.")
        if label in given[:i]:
            raise InputError(f"choice has {label!r} twice; give each label once.")
    texts = tuple(clean_name(label, "a label") if isinstance(label, str) else label for label in given)
    for i, label in enumerate(texts):
        if label in texts[:i]:
            raise InputError(
                f"choice has {given[texts.index(label)]!r} and {given[i]!r}, which are the same on one line of text: "
                f"{label!r}; give each label once."
            )
    given = texts
    made = Variable("choice", 0.0, len(given) - 1.0, labels=given)
    if made.numeric:
        made = replace(made, lower=float(min(given)), upper=float(max(given)))
    return _with_name(made, name, unit)


def flag(*, name: str | None = None) -> Variable:
    """True or False."""
    return _with_name(Variable("flag", 0.0, 1.0), name, None)


def _limits(kind: str, lower: Any, upper: Any) -> tuple[float, float]:
    low, high = check_finite(lower, f"the lower limit of {kind}"), check_finite(upper, f"the upper limit of {kind}")
    if low > high:
        raise InputError(f"the limits of {kind} are reversed: lower {low:g} > upper {high:g}; swap them.")
    if low == high:
        raise InputError(
            f"the limits of {kind} are equal ({low:g}): a fixed value is no variable; use it as a constant."
        )
    return low, high


def _with_name(variable: Variable, name: Any, unit: Any) -> Variable:
    own = None if name is None else clean_name(name, "name")
    return replace(variable, name=own, unit=None if unit is None else clean_name(unit, "unit"))


def _is_number(value: Any) -> bool:
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return plain and math.isfinite(value)


def _key(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label
