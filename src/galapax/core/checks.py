"""Checks of arguments, one sentence each (what was needed, what came, what to do), and names made safe for their place.

A problem cleans its names with `clean_name` when it is made, so that everything after it deals with text that has one
line and can be written. What else a place needs is added where the name goes out: `escape_csv`, `escape_mathtext`, and
in pages `html.escape`. No file is named by text that a user gave.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np

from galapax.core.errors import InputError


def as_float_array(values: object) -> np.ndarray:
    """`values` as float64; a ValueError for what is not real numbers: text, complex, ragged rows, None, too large.

    Masked entries, which hold numbers that nobody meant, are NaN.
    """
    try:
        if isinstance(values, np.ma.MaskedArray):
            values = np.ma.filled(values.astype(np.float64), np.nan)
        array = np.asarray(values)
        if array.dtype.kind == "O" and None not in array.ravel().tolist():
            array = np.array(values, dtype=np.float64)  # mixed kinds of numbers arrive as objects
    except Exception:  # whatever a class raises whose values are none
        raise ValueError("not real numbers") from None
    if array.dtype.kind not in "bifu":
        raise ValueError("not real numbers")
    return array.astype(np.float64)


def abbreviate(value: object) -> str:
    """Write a value for a message, cut to a line."""
    try:
        text = repr(value)
    except Exception:  # of a class that somebody wrote, or a number of many thousand digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


MAX_SIZE = 2**31 - 1  # individuals, memories and whatever else has a size


def check_size(value: Any, name: str, least: int, why: str = "") -> int:
    """Return a whole number that is at least `least` and can be the size of an array, or raise an InputError."""
    if check_integer(value, name, least, why) > MAX_SIZE:
        raise InputError(f"{name} must be at most {MAX_SIZE}, got {abbreviate(value)}.")
    return int(value)


def as_integer_if_whole(value: object) -> Any:
    """Convert a number of generations or evaluations to an int, if it was written like 1e5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_integer(value: object, name: str, least: int, why: str = "") -> int:
    """Return a whole number that is at least `least`, or raise an InputError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be a whole number, got {abbreviate(value)} of type {type(value).__name__}.")
    if value < least:
        raise InputError(f"{name} must be at least {least}{' (' + why + ')' if why else ''}; got {abbreviate(value)}.")
    return int(value)


def check_bool(value: object, name: str) -> bool:
    """True or False, also as 1, 0 or None."""
    if value is None or isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise InputError(f"{name} must be True or False, got {abbreviate(value)}.")


def items(values: Any, sentence: str) -> list[Any]:
    """Return the items of a list or its like, or raise an InputError of this sentence, with what came."""
    try:
        if not isinstance(values, str | bytes):
            return list(values)
    except TypeError:  # also of an array without dimensions
        pass
    raise InputError(f"{sentence}; got {abbreviate(values)}.")


def check_number(value: Any, name: str, allow_nan: bool = False) -> float:
    """Return a real number that is not NaN, unless that is allowed, or raise an InputError."""
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        out = float(value)
    except OverflowError:
        raise InputError(f"{name} must be a number that float64 holds, got {abbreviate(value)}.") from None
    except Exception:  # whatever a class raises that is none
        raise InputError(f"{name} must be a number, got {abbreviate(value)} of type {type(value).__name__}.") from None
    if math.isnan(out) and not allow_nan:
        raise InputError(f"{name} must be a number, got NaN.")
    return out


def check_finite(value: object, name: str) -> float:
    out = check_number(value, name)
    if math.isinf(out):
        raise InputError(f"{name} must be a finite number, got {out:g}.")
    return out


def check_positive(value: object, name: str) -> float:
    out = check_number(value, name)
    if out <= 0:
        raise InputError(f"{name} must be greater than 0, got {out:g}.")
    return out


def check_range(value: object, name: str, low: float, high: float) -> float:
    out = check_number(value, name)
    if not low <= out <= high:
        raise InputError(f"{name} must lie between {low:g} and {high:g}, got {out:g}.")
    return out


# columns of our own in the tables of a saved run, which come where a variable might
RESERVED_COLUMNS = ("violation", "feasible_share", "hypervolume", "hypervolume_error")
# ends of lines, other control characters, marks that turn the direction of what follows, halves of a character
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]+")
_SURROGATES = re.compile("[\ud800-\udfff]")
_FORMULA = re.compile(r"[=+\-@]|[＝＋－＠]")


def clean_name(text: object, argument: str) -> str:
    """Return a name as one line of text that any file can hold, or raise an InputError if it is no text."""
    if not isinstance(text, str):
        raise InputError(f"{argument} must be text, got {abbreviate(text)} of type {type(text).__name__}.")
    return _SURROGATES.sub("\ufffd", _UNPRINTABLE.sub(" ", text))


def escape_csv(value: Any) -> Any:
    """Make a cell of a table: text that a spreadsheet would take for a formula gets an apostrophe in front.

    So does text that begins with an apostrophe, so that `from_csv` has the text back, whatever it was.
    """
    if not isinstance(value, str):
        return value
    text = clean_name(value, "a cell")
    return f"'{text}" if text.startswith("'") or _FORMULA.match(text.lstrip()) else text


def from_csv(cell: str) -> str:
    """Return the text from which `for_csv` made a cell."""
    return cell.removeprefix("'")


def unique_headings(names: Iterable[str]) -> list[str]:
    """Headings of a table, safe as cells, and each one once."""
    out: dict[str, None] = {}  # keeps its order, and is looked up at once
    for name in map(escape_csv, names):
        numbered = (f"{name} ({number})" for number in count(2))
        out[name if name not in out else next(other for other in numbered if other not in out)] = None
    return list(out)


def escape_mathtext(text: str) -> str:
    """Text for a picture: a dollar sign is one, and does not begin a formula."""
    return text.replace("$", r"\$")


def pluralize(count: int, singular: str, plural: str | None = None) -> str:
    """ "1 generation", "2,000 generations"."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


class HTMLRepr:
    """A base class whose instances notebooks show as a small table with a picture."""

    def _repr_html_(self) -> str:
        from galapax.view.notebook import to_html  # only notebooks need it

        return to_html(self)
