"""A table of values that depend only on the generation number (RNG keys), computed 32 generations at a time.

Every thread needs these few numbers, and each takes a long chain of operations. Computed where they are read, all
threads would repeat the same work; for the table each thread computes those of one generation, and all threads read
them from shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from galapax.fused.array_ir import Node
from galapax.fused.c_expressions import ALIGNMENT_BYTES, ITEM_BYTES, Expr, Index, c_type
from galapax.fused.loop_ir import Assign, Axis, Barrier, BarrierScope, For, If, Let, Statement

if TYPE_CHECKING:
    from galapax.fused.element_codegen import ElementEmitter
    from galapax.fused.loop_codegen import KernelBuilder

TABLE_GENERATIONS = 32  # rows of the table: one per lane
MAX_TABLE_ELEMENTS = 64  # larger arrays are computed where they are read


class GenerationTable:
    """The table. generation: the node of the generation number; depth: of the scope in which elements are read."""

    def __init__(self, generation: Node, depth: int) -> None:
        self._generation, self._depth = generation, depth
        self._dependence: dict[int, tuple[bool, bool]] = {}
        self._offsets: dict[tuple[int, tuple[Index, ...]], int] = {}
        self._elements: list[tuple[Node, tuple[Index, ...]]] = []
        self._row_end = 0

    def can_hold(self, node: Node, index: tuple[Index, ...]) -> bool:
        """True if an element depends on the generation number and otherwise on constants only."""
        return all(isinstance(i, int) for i in index) and node.size <= MAX_TABLE_ELEMENTS and all(self._classify(node))

    def _classify(self, node: Node) -> tuple[bool, bool]:
        """Return whether a node depends on the generation number and constants only, and whether on the number."""
        if node.id not in self._dependence:
            if node.spec.is_static:
                operands = [self._classify(n) for n in node.inputs]
                is_derived = node.size <= MAX_TABLE_ELEMENTS and all(is_derived for is_derived, _ in operands)
                self._dependence[node.id] = is_derived, any(varies for _, varies in operands)
            else:
                varies = node is self._generation
                self._dependence[node.id] = varies or node.op in ("literal", "input"), varies
        return self._dependence[node.id]

    def emit_read(self, e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
        """Emit the read of an element, adding it to the table if it is new."""
        key = (node.id, index)
        if key not in self._offsets:
            size = max(4, ITEM_BYTES[node.dtype])
            self._offsets[key] = -(-self._row_end // size) * size
            self._row_end = self._offsets[key] + size
            self._elements.append((node, index))
        return e.declare(node.dtype, self._cell(self._offsets[key], node, f"g % {TABLE_GENERATIONS}"), self._depth)

    def _cell(self, offset: int, node: Node, row: str) -> str:
        return f"(*({c_type(node.dtype)} *)(ahead + ({row}) * AHEAD_ROW + {offset}))"

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, one generation's numbers side by side, so that several are loaded at once."""
        return -(-self._row_end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    def emit_fill(self, e: KernelBuilder) -> list[Statement]:
        """Return the statements that fill the table, for the start of a generation."""
        if not self._elements:
            return []
        with e.hoist_to(0), e.detached_scope() as scope:
            saved = e.generation_table, e.region_depth, e.storage[self._generation.id]
            q = e.new_name("q")
            with e.loop(For(Axis.BLOCK, q, TABLE_GENERATIONS)):
                depth = len(e.scopes) - 1
                e.generation_table, e.region_depth = None, depth
                e.emit(Let("int", "later", f"start + g + {q}"))
                e.storage[self._generation.id] = ["later"]
                for node, index in self._elements:
                    value, offset = e.emit_element(node, index), self._offsets[node.id, index]
                    e.emit(Assign(self._cell(offset, node, q), value.text))
            e.generation_table, e.region_depth, e.storage[self._generation.id] = saved
        return [If([(f"g % {TABLE_GENERATIONS} == 0", [*scope.body, Barrier(BarrierScope.BLOCK)])])]
