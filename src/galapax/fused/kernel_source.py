"""Kernel source: arguments, memory, and the loop over generations around the body of one."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from jax.core import ShapedArray

from galapax.fused.array_ir import Node, describe_nodes, postorder
from galapax.fused.c_expressions import STORAGE_TYPES, c_type, index_text
from galapax.fused.collectives import LoopCarry, RegionBindings
from galapax.fused.cost_model import (
    MAX_BLOCK_THREADS,
    MAX_BUFFERED_VALUES,
    MAX_CLUSTER_BLOCKS,
    MAX_SERIAL_ROW,
    MAX_SHARED_BYTES,
)
from galapax.fused.element_codegen import TABLE_GENERATIONS, GenerationTable
from galapax.fused.graph import Graph
from galapax.fused.loop_ir import (
    Assign,
    Axis,
    Break,
    Declare,
    For,
    If,
    Let,
    Load,
    OneThread,
    Statement,
    Store,
    describe_statements,
)
from galapax.fused.passes import eliminate_dead_stores, padded_bytes, plan_shared_memory
from galapax.fused.prelude import PRELUDE, read_c
from galapax.fused.print_c import print_statements
from galapax.fused.region_codegen import KernelBuilder
from galapax.fused.schedule import LaunchShape, dependencies, squeeze_shape
from galapax.numerics.jaxpr import ClosedJaxpr

COUNTER_BYTES = 256  # for the barrier of a grid, at the start of its scratch memory
ATOMIC_SLOT_BYTES = 256  # from one atomic slot to the next: on cache lines and in memory partitions of their own


@dataclass(frozen=True, eq=False)
class KernelSource:
    """The C source of a kernel, and what it takes to launch it.

    constants: arrays that it reads besides its arguments, passed after the inputs. shared_bytes, scratch_bytes: shared
    memory per block, and global memory per run.
    """

    body: str
    constants: tuple[np.ndarray, ...]
    shared_bytes: int
    scratch_bytes: int
    block_threads: int
    blocks_per_run: int
    n_inputs: int
    n_outputs: int
    for_cpu: bool
    cleared_bytes: int  # scratch memory to be zeroed before the launch, where blocks synchronise through it

    @cached_property
    def source(self) -> str:
        sizes = {
            "BLOCK": self.block_threads,
            "TEAM": self.blocks_per_run,
            "COUNTER": COUNTER_BYTES,
            "MEETING": ATOMIC_SLOT_BYTES,
        }
        return "".join(f"#define {name} {size}\n" for name, size in sizes.items()) + PRELUDE + self.body

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def n_pointers(self) -> int:
        return self.n_inputs + len(self.constants) + self.n_outputs


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit: nested expressions recurse deeper than ordinary functions."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 50_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def lower_function(closed: ClosedJaxpr, shape: LaunchShape = LaunchShape()) -> KernelSource:
    """Generate a kernel that computes a traced function, for tests and evaluations."""
    with _deep_recursion():
        graph, builder = Graph(shape.for_cpu), KernelBuilder(shape)
        inputs = _add_inputs(graph, [(cast(ShapedArray, v.aval), False) for v in closed.jaxpr.invars])
        outputs = graph.inline(closed.jaxpr, closed.consts, inputs)
        _declare_inputs(builder, inputs)
        first = len(inputs) + len(graph.constants)
        targets: dict[int, list[str]] = {}
        for i, out in enumerate(outputs):
            pointer = f"{STORAGE_TYPES[out.dtype]} *"
            builder.emit(Declare(pointer, f"o{i}", f"({pointer})p[{first + i}]"))
            targets.setdefault(out.id, []).append(f"o{i}")
        with builder.branch("1"), RegionBindings(builder):
            builder.emit_region(graph.top, outputs, targets)
        return _assemble(builder, graph, len(inputs), len(outputs))


def lower_generation(
    closed: ClosedJaxpr,
    settings: Sequence[bool],
    carried: Sequence[bool],
    stop_part: int | None,
    reason_column: int,
    shape: LaunchShape,
    listings: list[tuple[str, list[str]]] | None = None,
) -> KernelSource:
    """Generate a kernel that computes generations of independent runs.

    closed: maps settings, carry, keys and the number of a generation to the new carry and a history row (columns, 1),
    for one run. settings, carried: which of these arrays have a row per run; all runs share the others. stop_part: the
    position in the carry of the array whose column `reason_column` is 0 while a run goes on, None if runs cannot end.
    Arguments of the kernel: settings, carry, keys (R, 2), span (first generation, count, history rows, number of runs
    to compute: those after them are left unchanged), constants; then the new carry and the history (rows, columns, R),
    whose rows for generations that a run did not compute are zeros. listings: receives the title and the lines of a
    listing of the program after each step.
    """
    with _deep_recursion():
        graph, builder = Graph(shape.for_cpu), KernelBuilder(shape)
        builder.resources.listings = listings
        avals = [cast(ShapedArray, v.aval) for v in closed.jaxpr.invars]
        is_per_run = [*settings, *carried, True]
        inputs = _add_inputs(graph, list(zip(avals[:-1], is_per_run, strict=True)))
        generation = graph.add_node("loop_index", (), (), "int32")
        carry_slice = slice(len(settings), len(settings) + len(carried))
        state = [
            graph.add_node("loop_carry", (), n.shape, n.dtype) if varies else n
            for n, varies in zip(inputs[carry_slice], carried, strict=True)
        ]
        arguments = [*inputs[: carry_slice.start], *state, inputs[-1], generation]
        *updated, row = graph.inline(closed.jaxpr, closed.consts, arguments)
        for value, new, varies in zip(state, updated, carried, strict=True):
            if not varies and new is not value:
                raise ValueError("a part of the state that all runs share was changed")
        if listings is not None:
            listings.append(("array IR of a generation", list(describe_nodes([*updated, row]))))
        _declare_inputs(builder, inputs)
        initial = inputs[carry_slice]
        _emit_generation_loop(
            builder, graph, initial, state, updated, row, generation, carried, stop_part, reason_column, len(inputs)
        )
        return _assemble(builder, graph, len(inputs) + 1, sum(carried) + 1)


def _emit_generation_loop(
    builder: KernelBuilder,
    graph: Graph,
    initial: Sequence[Node],
    state: Sequence[Node],
    updated: Sequence[Node],
    row: Node,
    generation: Node,
    is_carried: Sequence[bool],
    stop_part: int | None,
    reason_column: int,
    n_inputs: int,
) -> None:
    """Emit the loop over generations, its initialisation and its results."""
    builder.emit(Declare("const int *", "span", f"(const int *)p[{n_inputs}]"))
    builder.emit(Let("int", "start", "span[0]"))
    builder.emit(Let("int", "count", "RUN < span[3] ? span[1] : 0"))
    builder.emit(Let("int", "rows", "span[2]"))
    first_output = n_inputs + 1 + len(graph.constants)
    carried_parts = [i for i, varies in enumerate(is_carried) if varies]
    loop_carry = LoopCarry(builder, [state[i] for i in carried_parts])
    loop_carry.emit_initial_values([initial[i] for i in carried_parts])
    c_type = STORAGE_TYPES[row.dtype]
    pointer = f"({c_type} *)p[{first_output + len(carried_parts)}] + RUN"
    builder.emit(Declare(f"{c_type} *", "history", pointer))
    builder.emit(Let("long long", "row", f"{row.size}LL * RUNS"))
    builder.emit(Declare("int", "g", "0"))
    with builder.loop(For(Axis.GENERATION)), RegionBindings(builder):
        loop_carry.bind_current()
        builder.generation_table = GenerationTable(generation, len(builder.scopes) - 1)
        builder.bind(generation, ["number"])
        builder.emit(Let("int", "number", "start + g"))
        if stop_part is not None:
            stop_registers = loop_carry.storage[carried_parts.index(stop_part)]
            builder.emit(Break(f"{stop_registers[reason_column]} != 0"))
        outputs = [updated[i] for i in carried_parts]
        builder.bindings.generation_region = graph.top
        if row.size <= MAX_SERIAL_ROW:
            row_ids, output_ids = ({n.id for n in postorder(of, dependencies)} for of in ([row], outputs))
            builder.bindings.history_only = row_ids - output_ids
        targets, candidates = loop_carry.find_store_targets(outputs), loop_carry.find_in_place_candidates(outputs)
        builder.emit_region(graph.top, [*outputs, row], targets, candidates)
        history = HistoryBuffer(builder, row, generation)
        history.emit_row()
        loop_carry.emit_update(outputs)
        builder.bindings.generation_region = None
        builder.scopes[-1].body[:0] = builder.generation_table.emit_fill(builder)
        builder.resources.definitions.append(f"#define AHEAD_ROW {builder.generation_table.row_bytes}")
        builder.resources.table_bytes, builder.generation_table = (
            TABLE_GENERATIONS * builder.generation_table.row_bytes,
            None,
        )
    history.emit_end()
    for k, (i, storage) in enumerate(zip(carried_parts, loop_carry.storage, strict=True)):
        node = state[i]
        address = f"(({STORAGE_TYPES[node.dtype]} *)p[{first_output + k}] + (long long)RUN * {node.size})"
        if isinstance(storage, list):
            builder.emit(OneThread([Store(address, str(j), name) for j, name in enumerate(storage)]))
        else:
            c = builder.new_name("i")
            with builder.loop(For(Axis.THREAD, c, node.size)):
                builder.emit(Store(address, c, Load(storage, c, (storage,))))


def _add_inputs(graph: Graph, arguments: Sequence[tuple[ShapedArray, bool]]) -> list[Node]:
    """Add the kernel's inputs to the graph."""
    return [
        graph.add_node("input", (), aval.shape, aval.dtype, name=f"a{i}", is_per_run=is_per_run)
        for i, (aval, is_per_run) in enumerate(arguments)
    ]


def _declare_inputs(builder: KernelBuilder, inputs: Sequence[Node]) -> None:
    """Declare the input arrays, and bind their nodes."""
    for i, node in enumerate(inputs):
        c_type = STORAGE_TYPES[node.dtype]
        offset = f" + (long long)RUN * {node.size}" if node.params["is_per_run"] else ""
        builder.emit(Declare(f"const {c_type} *", f"a{i}", f"(const {c_type} *)p[{i}]{offset}"))
        builder.bind(node, f"a{i}")


def _choose_block_size(builder: KernelBuilder) -> tuple[int, int]:
    """Return the threads of a block, and how many blocks share a streaming multiprocessor."""
    has_float64 = any(b.dtype == "float64" for b in builder.resources.buffers)  # which take twice the registers
    max_threads = MAX_BLOCK_THREADS // 2 if has_float64 and builder.shape.runs_per_sm > 1 else MAX_BLOCK_THREADS
    # Many runs get fewer threads each, so that work which every thread repeats is repeated less often.
    useful_threads = -(-builder.resources.widest_loop // (32 * builder.shape.blocks_per_run)) * 32
    threads = max(32, min(useful_threads, max_threads // builder.shape.runs_per_sm))
    return threads, min(builder.shape.runs_per_sm, max_threads // threads)


def _assemble(builder: KernelBuilder, graph: Graph, n_inputs: int, n_outputs: int) -> KernelSource:
    """Lay out shared and scratch memory, and assemble the source."""
    listings = builder.resources.listings
    if listings is not None:
        listings.append(("loop IR", list(describe_statements(builder.scopes[0].body))))
    statements, builder.resources.buffers = eliminate_dead_stores(builder.scopes[0].body, builder.resources.buffers)
    block_threads, blocks_per_sm = _choose_block_size(builder)
    lines = []
    for i, array in enumerate(graph.constants):
        c_type = STORAGE_TYPES[array.dtype.name]
        lines.append(f"const {c_type} *k{i} = (const {c_type} *)p[{n_inputs + i}];")
    slot_bytes = 16 * (block_threads // 32) * builder.resources.n_reduction_slots  # prelude.py: PART and TEAM_PART
    shared_bytes, scratch_bytes = slot_bytes + builder.resources.table_bytes, 0
    partial_bytes = 16 * builder.shape.blocks_per_run * builder.resources.n_reduction_slots  # that blocks publish
    cleared_bytes = COUNTER_BYTES + 2 * ATOMIC_SLOT_BYTES * builder.resources.n_atomic_slots
    if 1 < builder.shape.blocks_per_run <= MAX_CLUSTER_BLOCKS:
        address, shared_bytes = f"shared + {shared_bytes}", shared_bytes + partial_bytes
    else:
        address = f"scratch + {cleared_bytes}"
        scratch_bytes = cleared_bytes + partial_bytes if builder.shape.blocks_per_run > 1 else 0
    lines.append(f"char *parts = shared, *ahead = shared + {slot_bytes}, *team_parts = {address};")
    lines.append("(void)parts; (void)ahead; (void)team_parts;")
    block_buffers = [b for b in builder.resources.buffers if b.per_block]
    # with several blocks not every block's threads meet at every barrier, so that no arrays share an address
    shared_code = statements if builder.shape.blocks_per_run == 1 else ()
    offsets = plan_shared_memory(shared_code, block_buffers, shared_bytes, MAX_SHARED_BYTES // blocks_per_sm)
    ends = [offsets[b.name] + padded_bytes(b) for b in block_buffers if b.name in offsets]
    shared_bytes = max(ends, default=shared_bytes)
    if listings is not None:
        listings.append(("loop IR without dead stores", list(describe_statements(statements))))
        places = [(offsets.get(b.name), b.name, padded_bytes(b)) for b in builder.resources.buffers]
        lines_of = [f"{name}: {size} bytes at {at}" for at, name, size in sorted(places, key=str)]
        listings.append(("shared memory", lines_of))
    for buffer in sorted(builder.resources.buffers, key=padded_bytes):
        c_type = STORAGE_TYPES[buffer.dtype]
        if buffer.name in offsets:
            address = f"shared + {offsets[buffer.name]}"
        else:  # a per-block array that does not fit: all blocks write the same values there
            address, scratch_bytes = f"scratch + {scratch_bytes}", scratch_bytes + padded_bytes(buffer)
        lines.append(f"{c_type} *{buffer.name} = ({c_type} *)({address});")
    scratch_bytes = -(-scratch_bytes // 256) * 256
    code = print_statements(statements)
    if listings is not None:
        listings.append(("C", code))
    body = read_c("kernel.c")
    for placeholder, text in (
        ("POINTERS", str(n_inputs + len(graph.constants) + n_outputs)),
        ("CODE", "\n".join("  " + line for line in (*lines, *code))),
        ("SCRATCH", str(scratch_bytes)),
        ("RESIDENT", str(blocks_per_sm)),
        ("DEFINITIONS", "\n".join(builder.resources.definitions)),
    ):
        body = body.replace(placeholder, text)
    return KernelSource(
        body,
        tuple(graph.constants),
        shared_bytes,
        scratch_bytes,
        block_threads,
        builder.shape.blocks_per_run,
        n_inputs,
        n_outputs,
        builder.shape.for_cpu,
        cleared_bytes,
    )


class HistoryBuffer:
    """The history of a loop over generations numbered `g` in this chunk. row: the node of one row, (columns, 1)."""

    def __init__(self, e: KernelBuilder, row: Node, generation: Node) -> None:
        self.e, self.row, self.generation = e, row, generation
        self._flush: list[Statement] = []  # statements that write the buffered rows

    def emit_row(self) -> None:
        """Emit the end of a generation: buffer its row, or write it at once if it has too many inputs."""
        e, row = self.e, self.row
        row_inputs = None if e.shape.for_cpu or row.size > MAX_SERIAL_ROW else self._find_row_inputs()
        if row_inputs is not None and sum(n.size for n in row_inputs) <= MAX_BUFFERED_VALUES:
            self._buffer_row(row_inputs)
        elif row.size <= MAX_SERIAL_ROW:
            e.emit(OneThread(self._row_stores("history + g * row"), is_last=bool(e.bindings.history_only)))
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
            if isinstance(e.bindings.storage.get(node.id), list):
                row_inputs += [node] if node is not self.generation else []
            elif node.id in e.bindings.storage or not node.spec.is_static:
                return None
            else:
                stack.extend(dependencies(node))
        return row_inputs

    def _buffer_row(self, row_inputs: list[Node]) -> None:
        """Emit the buffering of a row's inputs, and its flush after every 32nd generation."""
        e = self.e
        storage, registers = dict(e.bindings.storage), dict[int, list[str]]()
        for node in row_inputs:
            names = [e.new_name("w") for _ in range(node.size)]
            registers[node.id] = names
            for name, current in zip(names, e.bindings.storage[node.id], strict=True):
                e.emit(Declare(c_type(node.dtype), name, "0"), 0)
                e.emit(If([("LANE == g % KEEPS", [Assign(name, current)])]))
        with e.hoist_to(0), e.detached_scope() as scope:
            table, depth = e.generation_table, e.region_depth
            e.generation_table, e.region_depth = None, len(e.scopes) - 1
            e.bindings.storage = storage | registers | {self.generation.id: ["number"]}
            e.emit(Let("int", "number", "start + end - kept + LANE"))
            e.emit(If([("THE_LAST && LANE < kept", self._row_stores("history + (number - start) * row"))]))
            e.generation_table, e.region_depth, e.bindings.storage = table, depth, storage
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
