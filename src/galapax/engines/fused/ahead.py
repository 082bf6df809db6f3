"""What follows from a generation's number alone, such as its keys, is computed for several generations at once.

Every thread needs these few numbers, and each takes a long chain of operations. Computed where they are read, all
threads would compute the same; ahead, each thread computes those of one generation, and all read them from a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from galapax.engines.fused.graph import Node
from galapax.engines.fused.places import Index, Ref
from galapax.engines.fused.rules import ALIGNED, BYTES, ELEMENTWISE, ctype

if TYPE_CHECKING:
    from galapax.engines.fused.emit import Emitter
    from galapax.engines.fused.regions import Regions

GENERATIONS = 32  # of a table
LARGEST = 64  # numbers of an array that is computed ahead
MOVES = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "stack", "concatenate", "iota"}


class Ahead:
    """A table of numbers by generation. number: the node that is a generation's number; depth: of its scope."""

    def __init__(self, number: Node, depth: int) -> None:
        self._number, self._depth = number, depth
        self._known: dict[int, tuple[bool, bool]] = {}
        self._slots: dict[tuple[int, tuple[Index, ...]], int] = {}
        self._nodes: list[tuple[Node, tuple[Index, ...]]] = []
        self.row = 0  # bytes of a generation

    def holds(self, node: Node, index: tuple[Index, ...]) -> bool:
        return all(isinstance(i, int) for i in index) and node.size <= LARGEST and all(self._follows(node))

    def _follows(self, node: Node) -> tuple[bool, bool]:
        """Whether it follows from the number and from what does not change; and whether it changes with the number."""
        if node.number not in self._known:
            if node.op in ELEMENTWISE or node.op in MOVES:
                below = [self._follows(n) for n in node.inputs]
                found = node.size <= LARGEST and all(follows for follows, _ in below)
                self._known[node.number] = found, any(changes for _, changes in below)
            else:
                self._known[node.number] = node is self._number or node.op in ("literal", "given"), node is self._number
        return self._known[node.number]

    def read(self, writer: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
        key = (node.number, index)
        if key not in self._slots:
            size = max(4, BYTES[node.kind])
            self._slots[key] = -(-self.row // size) * size
            self.row = self._slots[key] + size
            self._nodes.append((node, index))
        return writer.variable(node.kind, self._cell(self._slots[key], node, f"g % {GENERATIONS}"), self._depth)

    def _cell(self, slot: int, node: Node, place: str) -> str:
        return f"(*({ctype(node.kind)} *)(ahead + ({place}) * AHEAD_ROW + {slot}))"

    @property
    def size(self) -> int:
        """Bytes of a generation in the table: its numbers lie side by side, so that several are read at once."""
        return -(-self.row // ALIGNED) * ALIGNED

    def write(self, writer: Regions) -> list[str]:
        """The lines that fill the table, at the start of a generation."""
        if not self._nodes:
            return []
        with writer.outside(0), writer.detached() as scope:
            before = writer.ahead, writer.base, writer.places[self._number.number]
            q = writer.name("q")
            with writer.scope(f"BLOCK_LOOP({q}, {GENERATIONS})"):
                depth = len(writer.scopes) - 1
                writer.ahead, writer.base = None, depth
                writer.line(f"const int later = start + g + {q};")
                writer.places[self._number.number] = ["later"]
                for node, index in self._nodes:
                    value, slot = writer.at(node, index), self._slots[node.number, index]
                    writer.line(f"{self._cell(slot, node, q)} = {value.text};")
            writer.ahead, writer.base, writer.places[self._number.number] = before
        return [f"if (g % {GENERATIONS} == 0) {{", *("  " + line for line in scope.lines), "  BLOCK_BARRIER", "}"]
