"""Checks of plain arguments, one sentence each: what was needed, what came, what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from galapax.core.errors import InputError


def reals(values: Any) -> np.ndarray:
    """`values` as float64; a ValueError for what is not real numbers: text, complex, ragged rows, None, too large.

    Masked entries, which hold numbers that nobody meant, are NaN.
    """
    try:
        if isinstance(values, np.ma.MaskedArray):
            values = np.ma.filled(values.astype(np.float64), np.nan)
        array = np.asarray(values)
        if array.dtype.kind == "O" and None not in array.ravel().tolist():
            array = np.array(values, dtype=np.float64)  # mixed kinds of numbers arrive as objects
    except (TypeError, ValueError, OverflowError):
        raise ValueError("not real numbers") from None
    if array.dtype.kind not in "bifu":
        raise ValueError("not real numbers")
    return array.astype(np.float64)


def short(value: Any) -> str:
    """A value for a message, cut to a line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def whole(value: Any, name: str, least: int, why: str = "") -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be a whole number, got {value!r} of type {type(value).__name__}.")
    if value < least:
        raise InputError(f"{name} must be at least {least}{' (' + why + ')' if why else ''}; got {value}.")
    return int(value)


def number(value: Any, name: str) -> float:
    """A real number, not NaN."""
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        out = float(value)
    except OverflowError:
        raise InputError(f"{name} must be a number that float64 holds, got {short(value)}.") from None
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {short(value)} of type {type(value).__name__}.") from None
    if math.isnan(out):
        raise InputError(f"{name} must be a number, got NaN.")
    return out


def finite(value: Any, name: str) -> float:
    out = number(value, name)
    if math.isinf(out):
        raise InputError(f"{name} must be a finite number, got {out:g}.")
    return out


def positive(value: Any, name: str) -> float:
    out = number(value, name)
    if out <= 0:
        raise InputError(f"{name} must be greater than 0, got {out:g}.")
    return out


def in_range(value: Any, name: str, low: float, high: float) -> float:
    out = number(value, name)
    if not low <= out <= high:
        raise InputError(f"{name} must lie between {low:g} and {high:g}, got {out:g}.")
    return out
