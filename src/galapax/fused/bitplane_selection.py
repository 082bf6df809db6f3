"""Truncation selection by bit planes: which parents survive, and which offspring replaces each that does not.

Scores of a few bits are stored as bit planes: a warp ballot puts the lowest bits of 32 neighbours into one word,
the next bits into another, and so on. So each block reads the scores of the whole population cheaply and computes
the survivor mask redundantly, which avoids a barrier of all blocks: bit by bit the threshold score, masks of
those above and at it, and by population counts how many survive before each word. No row is written either: the
offspring that replaces a parent is looked up where the row is read. operators/selection.py defines the result.
"""

from __future__ import annotations

import math

from galapax.fused.array_ir import Node
from galapax.fused.c_expressions import Expr, Index, index_text
from galapax.fused.element_codegen import ElementEmitter, ThreadLoop
from galapax.fused.loop_codegen import LoopEmitter
from galapax.fused.loop_ir import Call, Let, Lookup


def _count_words(size: int) -> int:
    return -(-size // 32)


def _plane_stride(bitplanes: Node) -> int:
    """Return the words from the planes of 32 neighbours to those of the next 32."""
    return 4 if bitplanes.params["bits"] <= 4 else 8


def count_plane_words(bitplanes: Node) -> int:
    """Return the words that all planes take."""
    return _count_words(bitplanes.size) * _plane_stride(bitplanes)


def emit_bitplanes(e: LoopEmitter, name: str, bitplanes: Node, value: Expr) -> None:
    """Emit the store of the scores of 32 neighbours as bit planes."""
    bits, stride = bitplanes.params["bits"], _plane_stride(bitplanes)
    e.emit(Call("KEEP_BITS", (name, str(bits), str(stride), e.current.variable, value.text), writes=(name,)))


def emit_replacement_table(e: LoopEmitter, node: Node) -> None:
    """Emit the table from which `emit_replacement_index` looks up rows; each block computes its own."""
    (bitplanes,) = node.inputs
    size, bits = bitplanes.size, bitplanes.params["bits"]
    array = e.bindings.storage[bitplanes.id]
    assert isinstance(array, str)
    slots = [e.new_slot() for _ in range(bits + 2)]
    function, n_survivors = e.new_name("fill"), e.new_name("r")
    e.resources.definitions.append(f"FILLERS({function}, {size}, {bits}, {_plane_stride(bitplanes)}, {slots[0]})")
    table = e.allocate(2 * (_count_words(size) + 1) + _count_words(size // 2), "uint32", per_block=True)
    arguments = (f"(const u32 *){array}", table, "parts")
    e.emit(Call(function, arguments, reads=(array,), writes=(table,), result=f"const int {n_survivors}"))
    e.hazards.is_written = e.hazards.is_read = True
    e.bindings.replacement_tables[node.id] = table, n_survivors


def emit_replacement_index(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit the lookup of the offspring that replaces a parent, or -1 if the parent survives.

    In a long loop whose warps each have one row, each lane looks it up for one turn of its warp, before the loop.
    """
    size, (table, n_survivors) = node.inputs[0].size, e.bindings.replacement_tables[node.id]
    row = e.flatten_index(index, node.shape)
    arguments = f"{table}, {_count_words(size)}, {size // 2}, {n_survivors}"
    text = f"filler({arguments}, {index_text(row)})"
    loop = e.current.thread_loop
    if loop is not None and _is_warp_uniform(e, loop) and isinstance(row, Expr) and row.text in loop.row_counters:
        count, row_elements = math.prod(loop.shape), math.prod(loop.shape[1:])
        if node.id not in loop.lane_values:
            loop.lane_values[node.id] = e.new_name("h")
            before_loop = f"FILLERS_OF_TURNS({count}, {row_elements}, {arguments})"
            e.emit(Let("int", loop.lane_values[node.id], Lookup(before_loop, (table,))), loop.depth - 1)
        text = f"OF_TURN({count}, {loop.lane_values[node.id]}, {loop.row_counters[row.text]}, {text})"
    return e.declare(node.dtype, Lookup(text, (table,)), e.index_depth(index))


def _is_warp_uniform(e: ElementEmitter, loop: ThreadLoop) -> bool:
    """True if all lanes of a warp have the same row, and none is in a branch."""
    return len(loop.shape) > 1 and loop.shape[-1] % 32 == 0 and len(e.scopes) - 1 == loop.depth
