"""History rows: what each generation records.

Each lane of a warp buffers in registers the inputs of one generation's row; every 32 generations the warp computes
and writes the rows coalesced. Otherwise a single thread would write one row in every generation while all others
wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from galapax.fused.array_ir import Node
from galapax.fused.c_expressions import c_type, index_text
from galapax.fused.iteration_domains import MAX_REGISTER_ELEMENTS, dependencies, squeeze_shape
from galapax.fused.loop_ir import Assign, Axis, Declare, For, If, Let, OneThread, Statement, Store

if TYPE_CHECKING:
    from galapax.fused.loop_codegen import KernelBuilder

MAX_SERIAL_ROW = 4 * MAX_REGISTER_ELEMENTS  # longer rows are written by all threads
MAX_BUFFERED_VALUES = 8  # inputs of a row; more would take too many registers


class HistoryBuffer:
    """The history of a loop over generations numbered `g` in this chunk. row: the node of one row, (columns, 1)."""

    def __init__(self, e: KernelBuilder, row: Node, generation: Node) -> None:
        self.e, self.row, self.generation = e, row, generation
        self._flush: list[Statement] = []  # statements that write the buffered rows

    def emit_row(self) -> None:
        """Emit the end of a generation: buffer its row, or write it at once if it has too many inputs."""
        e, row = self.e, self.row
        row_inputs = None if e.for_cpu or row.size > MAX_SERIAL_ROW else self._find_row_inputs()
        if row_inputs is not None and sum(n.size for n in row_inputs) <= MAX_BUFFERED_VALUES:
            self._buffer_row(row_inputs)
        elif row.size <= MAX_SERIAL_ROW:
            e.emit(OneThread(self._row_stores("history + g * row"), is_last=bool(e.history_only)))
        else:
            with e.parallel_loop(squeeze_shape(row.shape)) as index:
                full = e.full_index(row.shape, index)
                value, offset = e.emit_element(row, full), index_text(e.flatten_index(full, row.shape))
                e.emit(Store("history", f"g * row + (long long){offset} * RUNS", value.text))

    def _row_stores(self, row_address: str) -> list[Statement]:
        """Return the stores of a row at an address."""
        e, row = self.e, self.row
        values = [e.emit_element(row, e.unflatten_index(c, row.shape)).text for c in range(row.size)]
        return [Store(f"({row_address})", f"{c}LL * RUNS", value) for c, value in enumerate(values)]

    def _find_row_inputs(self) -> list[Node] | None:
        """Return the numbers that a row is computed from, or None if it needs arrays."""
        e, row_inputs, visited, stack = self.e, list[Node](), set[int](), [self.row]
        while stack:
            node = stack.pop()
            if node.id in visited or node.op in ("literal", "input"):
                continue
            visited.add(node.id)
            if isinstance(e.storage.get(node.id), list):
                row_inputs += [node] if node is not self.generation else []
            elif node.id in e.storage or not node.spec.is_static:
                return None
            else:
                stack.extend(dependencies(node))
        return row_inputs

    def _buffer_row(self, row_inputs: list[Node]) -> None:
        """Emit the buffering of a row's inputs, and its flush after every 32nd generation."""
        e = self.e
        storage, registers = dict(e.storage), dict[int, list[str]]()
        for node in row_inputs:
            names = [e.new_name("w") for _ in range(node.size)]
            registers[node.id] = names
            for name, current in zip(names, e.storage[node.id], strict=True):
                e.emit(Declare(c_type(node.dtype), name, "0"), 0)
                e.emit(If([("LANE == g % KEEPS", [Assign(name, current)])]))
        with e.hoist_to(0), e.detached_scope() as scope:
            table, depth = e.generation_table, e.region_depth
            e.generation_table, e.region_depth = None, len(e.scopes) - 1
            e.storage = storage | registers | {self.generation.id: ["number"]}
            e.emit(Let("int", "number", "start + end - kept + LANE"))
            e.emit(If([("THE_LAST && LANE < kept", self._row_stores("history + (number - start) * row"))]))
            e.generation_table, e.region_depth, e.storage = table, depth, storage
        self._flush = scope.body
        self._emit_flush("g % KEEPS == KEEPS - 1", "KEEPS", "g + 1")

    def _emit_flush(self, condition: str, n_rows: str, end: str) -> None:
        """Emit the flush of the buffered rows, under a condition."""
        self.e.emit(If([(condition, [Let("int", "kept", n_rows), Let("int", "end", end), *self._flush])]))

    def emit_end(self) -> None:
        """Emit what follows the last generation: the last flush, and zeros for generations that were not computed."""
        e = self.e
        if self._flush:
            self._emit_flush("g % KEEPS != 0", "g % KEEPS", "g")
        with e.loop(For(Axis.HISTORY)):
            c = e.new_name("i")
            with e.loop(For(Axis.THREAD, c, self.row.size)):
                e.emit(Store("history", f"g * row + (long long){c} * RUNS", "0"))
