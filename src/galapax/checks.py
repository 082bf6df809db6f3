"""Checks of plain arguments, one sentence each: what was needed, what came, what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from galapax.errors import InputError


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
        out = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r} of type {type(value).__name__}.") from None
    if math.isnan(out):
        raise InputError(f"{name} must be a number, got NaN.")
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
