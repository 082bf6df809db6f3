"""Names that users give, made safe for where they go: the one place for it.

A problem takes its names through `one_line` when it is made, so that everything after it deals with text that has one
line and can be written. What else a place needs is added where the name goes out: `for_csv`, `for_mathtext`, and in
pages `html.escape`. No file is called by a name that a user gave.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from typing import Any

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError

# columns of our own in the tables of a saved run, which come where a variable might
RESERVED_COLUMNS = ("violation", "feasible_share", "hypervolume", "hypervolume_error")
# ends of lines, other control characters, marks that turn the direction of what follows, halves of a character
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]+")
_SURROGATES = re.compile("[\ud800-\udfff]")
_FORMULA = re.compile(r"[=+\-@]|[＝＋－＠]")


def clean_name(text: Any, argument: str) -> str:
    """A name as one line of text that any file can hold; anything but text is refused."""
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
    """The text that `for_csv` made a cell of."""
    return cell.removeprefix("'")


def unique_headings(names: Iterable[str]) -> list[str]:
    """Headings of a table, safe as cells, and each one once."""
    out: dict[str, None] = {}  # keeps its order, and is looked up at once
    for name in map(escape_csv, names):
        again = (f"{name} ({number})" for number in count(2))
        out[name if name not in out else next(other for other in again if other not in out)] = None
    return list(out)


def escape_mathtext(text: str) -> str:
    """Text for a picture: a dollar sign is one, and does not begin a formula."""
    return text.replace("$", r"\$")


def pluralize(count: int, one: str, several: str | None = None) -> str:
    """ "1 generation", "2 generations"."""
    return f"{count} {one if count == 1 else several or one + 's'}"
