"""C expressions of elements and indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from galapax.fused.graph import Node


class Expr(NamedTuple):
    """A C expression, and the depth of the innermost scope that it depends on."""

    text: str
    depth: int


Index = int | Expr
Storage = str | list[str]  # the C array that holds a node, or the registers of a small one
ElementKey = tuple[int, tuple[int | str, ...]]  # node id and index


def element_key(node: Node, index: Sequence[Index]) -> ElementKey:
    """Return the key by which an element that was already emitted is found again."""
    return node.id, tuple(i if isinstance(i, int) else i.text for i in index)


def index_text(index: Index) -> str:
    return str(index) if isinstance(index, int) else index.text
