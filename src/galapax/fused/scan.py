"""Scans (cumulative sums, products, maxima and minima) by all threads of a run.

Each warp reduces a tile of the row, gets the reduction of all tiles before it, and goes over its tile again. Short
tiles stay in registers in between. Of zeros and ones a warp ballot gives 32 at once, as the bits of a word.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from galapax.fused.array_ir import Node, NotFusible
from galapax.fused.c_expressions import TYPE_SUFFIXES, Expr, Index, c_type, combine, identity_element
from galapax.fused.loop_ir import (
    Assign,
    Axis,
    Barrier,
    BarrierScope,
    Call,
    Declare,
    For,
    If,
    Let,
    Mask,
    Phase,
    Reduce,
)
from galapax.fused.value_ranges import value_range

if TYPE_CHECKING:
    from galapax.fused.loop_codegen import KernelBuilder

MAX_JOINT_SCANS = 4  # more rows are scanned one after another


def emit_scan(e: KernelBuilder, node: Node) -> None:
    """Emit a scan along one axis, and bind its result."""
    axis = node.params["axis"]
    if node.dtype == "bool":
        raise NotFusible(f"{node.op} of truth values")
    per_block = node.size <= e.max_redundant_elements
    target = e.allocate(node.size, node.dtype, per_block)
    e.written_since_barrier = True
    n, row_shape = node.shape[axis], (*node.shape[:axis], *node.shape[axis + 1 :])
    e.widest_loop = max(e.widest_loop, n * e.blocks_per_run if per_block else n)
    n_rows = math.prod(row_shape)
    if n_rows <= MAX_JOINT_SCANS:
        rows = [e.unflatten_index(i, row_shape) for i in range(n_rows)]
        _ScanEmitter(e, node, target, rows, per_block).emit()
    else:
        i = e.new_name("o")
        with e.loop(For(Axis.SERIAL, i, n_rows)):
            row = e.unflatten_index(Expr(i, len(e.scopes) - 1), row_shape)
            _ScanEmitter(e, node, target, [row], per_block).emit()
    e.emit_barrier(per_block)
    e.bind(node, target)


class _ScanEmitter:
    """Emits a few scans side by side. per_block: each block scans all of it redundantly."""

    def __init__(
        self, e: KernelBuilder, node: Node, target: str, rows: list[tuple[Index, ...]], per_block: bool
    ) -> None:
        self.e, self.node, self.target, self.rows, self.per_block = e, node, target, rows, per_block
        self.operand, self.axis = node.inputs[0], node.params["axis"]
        self.n = node.shape[self.axis]
        self.operation = node.spec.combiner
        self.c_operation = f"{self.operation}_{TYPE_SUFFIXES[node.dtype]}"
        self.identity = identity_element(self.operation, node.dtype)
        self.size_arguments = f"{self.n}, {int(per_block)}"
        self.holds_registers = f"HOLDS({self.size_arguments})"
        self.is_boolean = node.dtype == "int32" and self.operation == "add" and value_range(self.operand) == (0, 1)
        self.registers = [e.new_name("h") for _ in rows]
        self.totals, self.prefixes = ([e.new_name("s") for _ in rows] for _ in range(2))

    def emit(self) -> None:
        """Emit the three passes: reduce each tile, combine the tiles before it, scan the tile."""
        e, value_type = self.e, c_type(self.node.dtype)
        slots = [e.new_slot() for _ in self.rows]
        if len(self.rows) == 1 and self.node.size > self.n:  # the next row reuses the slots that this one still reads
            e.emit(Barrier(BarrierScope.BLOCK if self.per_block or e.blocks_per_run == 1 else BarrierScope.RUN))
        register_type = "u32" if self.is_boolean else value_type
        for total, registers in zip(self.totals, self.registers, strict=True):
            e.emit(Declare(value_type, total, self.identity))
            e.emit(Declare(register_type, registers, length=f"HELD({self.size_arguments})"))
        with e.branch(self.holds_registers):  # all loads are issued before the first result is used
            self._emit_tile_loop(self._emit_prefetch)
        self._emit_tile_loop(self._emit_totals)
        for total, slot in zip(self.totals, slots, strict=True):
            e.emit(Call(f"PIECE_GIVE{'_BITS' if self.is_boolean else ''}", (self.c_operation, total, str(slot))))
        e.emit(Barrier(BarrierScope.BLOCK))
        if e.blocks_per_run > 1 and not self.per_block:
            for number, slot in enumerate(slots):
                e.emit(Reduce(Phase.PUBLISH, self.c_operation, slot, identity=self.identity, turn=number))
            e.emit_barrier()
        for prefix, slot in zip(self.prefixes, slots, strict=True):
            arguments = f"{self.c_operation}, {self.identity}, {slot}, {int(self.per_block)}"
            e.emit(Declare(value_type, prefix, f"PIECE_BEFORE({arguments})"))
        self._emit_tile_loop(self._emit_prefixes)

    def _emit_tile_loop(self, emit_body: Callable[[str, str], None]) -> None:
        """Emit a loop of each warp over its tile, 32 elements per turn; those beyond the end are the identity."""
        e, k, turn = self.e, self.e.new_name("k"), self.e.new_name("q")
        with e.loop(For(Axis.TILE, k, self.n, turn=turn, is_redundant=self.per_block)):
            emit_body(k, turn)

    def _load_values(self, k: str) -> list[str]:
        """Return the elements of each row at one position."""
        e, clamped = self.e, f"({k} < {self.n} ? {k} : {self.n - 1})"
        position = e.declare("int32", f"{self.n - 1} - {clamped}" if self.node.params["reverse"] else clamped, 10**9)
        index = [(*r[: self.axis], position, *r[self.axis :]) for r in self.rows]
        return [f"({k} < {self.n} ? {e.emit_element(self.operand, i).text} : {self.identity})" for i in index]

    def _emit_prefetch(self, k: str, turn: str) -> None:
        """Emit the loads of a tile into registers."""
        for registers, text in zip(self.registers, self._load_values(k), strict=True):
            self.e.emit(Assign(f"{registers}[{turn}]", text))

    def _emit_totals(self, k: str, turn: str) -> None:
        """Emit the reduction of a tile."""
        for total, registers, value in zip(self.totals, self.registers, self._reload_values(k, turn), strict=True):
            term = value
            if self.is_boolean:
                self.e.emit(Assign(value, f"voted({value})"))
                self.e.emit(If([(self.holds_registers, [Assign(f"{registers}[{turn}]", value)])]))
                term = f"(int)popcount_u32({value})"
            self.e.emit(Assign(total, combine(self.operation, self.node.dtype, total, term)))

    def _reload_values(self, k: str, turn: str) -> list[str]:
        """Return variables with the elements of a turn: from registers or, where a tile has too many, loaded again."""
        e, names = self.e, [self.e.new_name() for _ in self.rows]
        register_type = "u32" if self.is_boolean else c_type(self.node.dtype)
        for name, registers in zip(names, self.registers, strict=True):
            e.emit(Declare(register_type, name, f"{registers}[{self.holds_registers} ? {turn} : 0]"))
        with e.branch(f"!{self.holds_registers}"):
            for name, text in zip(names, self._load_values(k), strict=True):
                e.emit(Assign(name, text))
        return names

    def _emit_prefixes(self, k: str, turn: str) -> None:
        """Emit the scan of a tile from its prefix, and the stores."""
        e, names = self.e, self._reload_values(k, turn)
        if self.is_boolean:
            for name in names:
                e.emit(If([(f"!{self.holds_registers}", [Assign(name, f"voted({name})")])]))
        position = Expr(f"({self.n - 1} - {k})" if self.node.params["reverse"] else k, len(e.scopes) - 1)
        function = "run_bits" if self.is_boolean else f"run_{self.c_operation}"
        for row, name, prefix in zip(self.rows, names, self.prefixes, strict=True):
            total = e.new_name("s")
            e.emit(Let(c_type(self.node.dtype), total, f"{function}(&{prefix}, {name})"))
            index = (*row[: self.axis], position, *row[self.axis :])
            is_inside = Mask(f"{k} < {self.n}", is_full=True)
            e.emit_store(self.target, self.node, index, Expr(total, len(e.scopes) - 1), is_inside)
