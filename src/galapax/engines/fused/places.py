"""What an element is read by."""

from __future__ import annotations

from typing import NamedTuple


class Ref(NamedTuple):
    """A C expression, and how many scopes deep it is known."""

    text: str
    depth: int


Index = int | Ref
