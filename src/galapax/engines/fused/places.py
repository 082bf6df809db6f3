"""What an element is read by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from galapax.engines.fused.graph import Node


class Ref(NamedTuple):
    """A C expression, and how many scopes deep it is known."""

    text: str
    depth: int


Index = int | Ref


def known_by(node: Node, index: Sequence[Index]) -> tuple[int, tuple[int | str, ...]]:
    """What an element is remembered by."""
    return node.number, tuple(i if isinstance(i, int) else i.text for i in index)
