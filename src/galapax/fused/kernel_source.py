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

from galapax.fused import loop_ir as ir
from galapax.fused.array_ir import Node, NotFusible, describe_nodes, postorder
from galapax.fused.c_expressions import STORAGE_TYPES, as_expr
from galapax.fused.cost_model import (
    MAX_BLOCK_THREADS,
    MAX_CLUSTER_BLOCKS,
    MAX_SERIAL_ROW,
    MAX_SHARED_BYTES,
)
from galapax.fused.element_codegen import TABLE_GENERATIONS, GenerationTable, Resources
from galapax.fused.graph import Graph
from galapax.fused.loop_codegen import LoopEmitter
from galapax.fused.loop_ir import compose
from galapax.fused.passes import (
    HISTORY_ROW,
    buffer_history,
    eliminate_dead_stores,
    padded_bytes,
    plan_shared_memory,
)
from galapax.fused.prelude import PRELUDE, read_c
from galapax.fused.print_c import CudaTarget, HostTarget, print_statements
from galapax.fused.region_codegen import LoopCarry, RegionBindings, emit_region
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
            "BLOCK_THREADS": self.block_threads,
            "RUN_BLOCKS": self.blocks_per_run,
            "COUNTER_BYTES": COUNTER_BYTES,
            "ATOMIC_SLOT_BYTES": ATOMIC_SLOT_BYTES,
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
        graph, builder = Graph(shape.for_cpu), LoopEmitter(shape)
        inputs = _add_inputs(graph, [(cast(ShapedArray, v.aval), False) for v in closed.jaxpr.invars])
        outputs = graph.inline(closed.jaxpr, closed.consts, inputs)
        _declare_inputs(builder, inputs)
        first = len(inputs) + len(graph.constants)
        targets: dict[int, list[str]] = {}
        for i, out in enumerate(outputs):
            pointer = f"{STORAGE_TYPES[out.dtype]} *"
            builder.emit(ir.Declare(pointer, f"o{i}", f"({pointer})p[{first + i}]"))
            targets.setdefault(out.id, []).append(f"o{i}")
        with builder.branch("1"), RegionBindings(builder):
            emit_region(builder, graph.top, outputs, targets)
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
        graph, builder = Graph(shape.for_cpu), LoopEmitter(shape)
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
        stop = None if stop_part is None else (stop_part, reason_column)
        body = _GenerationBody(generation, inputs[carry_slice], state, updated, row, carried, stop)
        _emit_generation_loop(builder, graph, body, len(inputs))
        return _assemble(builder, graph, len(inputs) + 1, sum(carried) + 1)


@dataclass(frozen=True)
class _GenerationBody:
    """A generation in the array IR. number: of the generation; row: of the history.

    initial, state, updated: the parts of the state before the first generation, before this one and after it.
    is_carried: which of them generations change. stop: the part and the column that is 0 while a run goes on, if any.
    """

    number: Node
    initial: Sequence[Node]
    state: Sequence[Node]
    updated: Sequence[Node]
    row: Node
    is_carried: Sequence[bool]
    stop: tuple[int, int] | None


def _emit_generation_loop(builder: LoopEmitter, graph: Graph, body: _GenerationBody, n_inputs: int) -> None:
    """Emit the loop over generations, its initialisation and its results."""
    row, state = body.row, body.state
    builder.emit(ir.Declare("const int *", "span", f"(const int *)p[{n_inputs}]"))
    builder.emit(ir.Let("int", "start", compose("span[0]", "span")))
    builder.emit(ir.Let("int", "count", compose("RUN < span[3] ? span[1] : 0", "span")))
    builder.emit(ir.Let("int", "rows", compose("span[2]", "span")))
    first_output = n_inputs + 1 + len(graph.constants)
    carried_parts = [i for i, varies in enumerate(body.is_carried) if varies]
    loop_carry = LoopCarry(builder, [state[i] for i in carried_parts])
    loop_carry.emit_initial_values([body.initial[i] for i in carried_parts])
    c_type = STORAGE_TYPES[row.dtype]
    pointer = f"({c_type} *)p[{first_output + len(carried_parts)}] + RUN"
    builder.emit(ir.Declare(f"{c_type} *", "history", pointer))
    builder.emit(ir.Let("long long", "row", f"{row.size}LL * RUNS"))
    builder.emit(ir.Declare("int", "g", "0"))
    with builder.loop(ir.For(ir.Axis.GENERATION)), RegionBindings(builder):
        loop_carry.bind_current()
        builder.generation_table = GenerationTable(body.number, len(builder.scopes) - 1)
        builder.bind(body.number, ["number"])
        builder.emit(ir.Let("int", "number", compose("start + g", "start", "g")))
        if body.stop is not None:
            part, column = body.stop
            reason = loop_carry.storage[carried_parts.index(part)][column]
            builder.emit(ir.Break(compose(f"{reason} != 0", reason)))
        outputs = [body.updated[i] for i in carried_parts]
        builder.bindings.generation_region = graph.top
        if row.size <= MAX_SERIAL_ROW:
            row_ids, output_ids = ({n.id for n in postorder(of, dependencies)} for of in ([row], outputs))
            builder.bindings.history_only = row_ids - output_ids
        targets, candidates = loop_carry.find_store_targets(outputs), loop_carry.find_in_place_candidates(outputs)
        emit_region(builder, graph.top, [*outputs, row], targets, candidates)
        table, builder.generation_table = builder.generation_table, None
        _emit_history_row(builder, row)
        builder.generation_table = table
        loop_carry.emit_update(outputs)
        builder.bindings.generation_region = builder.generation_table = None
        builder.scopes[-1].body[:0] = table.emit_fill(builder)
        builder.resources.definitions.append(f"#define AHEAD_ROW {table.row_bytes}")
        builder.resources.table_bytes = TABLE_GENERATIONS * table.row_bytes
    with builder.loop(ir.For(ir.Axis.HISTORY)):  # of generations that were not computed
        c = builder.new_name("i")
        with builder.loop(ir.For(ir.Axis.THREAD, c, row.size)):
            builder.emit(ir.Store("history", compose(f"g * row + (long long){c} * RUNS", "g", "row", c), "0"))
    for k, (i, storage) in enumerate(zip(carried_parts, loop_carry.storage, strict=True)):
        node = state[i]
        address = f"(({STORAGE_TYPES[node.dtype]} *)p[{first_output + k}] + (long long)RUN * {node.size})"
        if isinstance(storage, list):
            builder.emit(ir.OneThread([ir.Store(address, str(j), name) for j, name in enumerate(storage)]))
        else:
            c = builder.new_name("i")
            with builder.loop(ir.For(ir.Axis.THREAD, c, node.size)):
                builder.emit(ir.Store(address, c, ir.Load(storage, c, (storage,))))


def _add_inputs(graph: Graph, arguments: Sequence[tuple[ShapedArray, bool]]) -> list[Node]:
    """Add the kernel's inputs to the graph."""
    return [
        graph.add_node("input", (), aval.shape, aval.dtype, name=f"a{i}", is_per_run=is_per_run)
        for i, (aval, is_per_run) in enumerate(arguments)
    ]


def _declare_inputs(builder: LoopEmitter, inputs: Sequence[Node]) -> None:
    """Declare the input arrays, and bind their nodes."""
    for i, node in enumerate(inputs):
        c_type = STORAGE_TYPES[node.dtype]
        offset = f" + (long long)RUN * {node.size}" if node.params["is_per_run"] else ""
        builder.emit(ir.Declare(f"const {c_type} *", f"a{i}", f"(const {c_type} *)p[{i}]{offset}"))
        builder.bind(node, f"a{i}")


def _choose_block_size(builder: LoopEmitter) -> tuple[int, int]:
    """Return the threads of a block, and how many blocks share a streaming multiprocessor."""
    has_float64 = any(b.dtype == "float64" for b in builder.resources.buffers)  # which take twice the registers
    max_threads = MAX_BLOCK_THREADS // 2 if has_float64 and builder.shape.runs_per_sm > 1 else MAX_BLOCK_THREADS
    # Many runs get fewer threads each, so that work which every thread repeats is repeated less often.
    useful_threads = -(-builder.resources.widest_loop // (32 * builder.shape.blocks_per_run)) * 32
    threads = max(32, min(useful_threads, max_threads // builder.shape.runs_per_sm))
    return threads, min(builder.shape.runs_per_sm, max_threads // threads)


@dataclass
class _MemoryPlan:
    """Where arrays are: the declarations of their pointers, and the bytes that a launch needs, see `KernelSource`."""

    declarations: list[str]
    shared_bytes: int
    scratch_bytes: int
    cleared_bytes: int


def _plan_memory(
    builder: LoopEmitter, statements: list[ir.Statement], block_threads: int, blocks_per_sm: int
) -> _MemoryPlan:
    """Place partial results of reductions, the generation table and all arrays in shared and in scratch memory."""
    resources, blocks = builder.resources, builder.shape.blocks_per_run
    slot_bytes = 16 * (block_threads // 32) * resources.n_reduction_slots  # c/reductions.c: WARP_SLOT_BYTES
    shared_bytes, scratch_bytes = slot_bytes + resources.table_bytes, 0
    partial_bytes = 16 * blocks * resources.n_reduction_slots  # that blocks publish
    cleared_bytes = COUNTER_BYTES + 2 * ATOMIC_SLOT_BYTES * resources.n_atomic_slots
    if 1 < blocks <= MAX_CLUSTER_BLOCKS:
        address, shared_bytes = f"shared + {shared_bytes}", shared_bytes + partial_bytes
    else:
        address = f"scratch + {cleared_bytes}"
        scratch_bytes = cleared_bytes + partial_bytes if blocks > 1 else 0
    lines = [
        f"char *warp_partials = shared, *ahead = shared + {slot_bytes}, *block_partials = {address};",
        "(void)warp_partials; (void)ahead; (void)block_partials;",
    ]
    block_buffers = [b for b in resources.buffers if b.per_block]
    # with several blocks not every block's threads meet at every barrier, so that no arrays share an address
    shared_code = statements if blocks == 1 else ()
    offsets = plan_shared_memory(shared_code, block_buffers, shared_bytes, MAX_SHARED_BYTES // blocks_per_sm)
    ends = [offsets[b.name] + padded_bytes(b) for b in block_buffers if b.name in offsets]
    for buffer in sorted(resources.buffers, key=padded_bytes):
        c_type = STORAGE_TYPES[buffer.dtype]
        if buffer.name in offsets:
            address = f"shared + {offsets[buffer.name]}"
        elif buffer.is_private and blocks > 1:
            raise NotFusible(f"sorting {buffer.size} numbers, for which a block has too little memory")
        else:  # a per-block array that does not fit: all blocks write the same values there
            address, scratch_bytes = f"scratch + {scratch_bytes}", scratch_bytes + padded_bytes(buffer)
        lines.append(f"{c_type} *{buffer.name} = ({c_type} *)({address});")
    if resources.listings is not None:
        places = sorted((offsets.get(b.name), b.name, padded_bytes(b)) for b in block_buffers if b.name in offsets)
        listing = [f"{name}: {size} bytes at {offset}" for offset, name, size in places]
        resources.listings.append(("shared memory", listing))
    return _MemoryPlan(lines, max(ends, default=shared_bytes), -(-scratch_bytes // 256) * 256, cleared_bytes)


def _list_statements(resources: Resources, title: str, statements: list[ir.Statement]) -> None:
    if resources.listings is not None:
        resources.listings.append((title, list(ir.describe_statements(statements))))


def _assemble(builder: LoopEmitter, graph: Graph, n_inputs: int, n_outputs: int) -> KernelSource:
    """Run the passes, place arrays in memory, and print the source for its target."""
    shape, resources = builder.shape, builder.resources
    _list_statements(resources, "loop IR", builder.scopes[0].body)
    statements, resources.buffers = eliminate_dead_stores(builder.scopes[0].body, resources.buffers)
    _list_statements(resources, "loop IR without dead stores", statements)
    is_for_gpu = not (shape.for_cpu or shape.is_emulated)
    if not shape.for_cpu:
        statements = buffer_history(statements, 32 if is_for_gpu else 1)
        _list_statements(resources, "loop IR with buffered history", statements)
    block_threads, blocks_per_sm = _choose_block_size(builder)
    memory = _plan_memory(builder, statements, block_threads, blocks_per_sm)
    target = CudaTarget(shape.blocks_per_run, block_threads) if is_for_gpu else HostTarget()
    code = print_statements(statements, target)
    if resources.listings is not None:
        resources.listings.append(("C", code))
    constants = [
        f"const {STORAGE_TYPES[array.dtype.name]} *k{i} = (const {STORAGE_TYPES[array.dtype.name]} *)p[{n_inputs + i}];"
        for i, array in enumerate(graph.constants)
    ]
    body = read_c("kernel.c")
    for placeholder, text in (
        ("POINTERS", str(n_inputs + len(graph.constants) + n_outputs)),
        ("CODE", "\n".join("  " + line for line in (*constants, *memory.declarations, *code))),
        ("SCRATCH", str(memory.scratch_bytes)),
        ("RESIDENT", str(blocks_per_sm)),
        ("DEFINITIONS", "\n".join(resources.definitions)),
    ):
        body = body.replace(placeholder, text)
    return KernelSource(
        body,
        tuple(graph.constants),
        memory.shared_bytes,
        memory.scratch_bytes,
        block_threads,
        shape.blocks_per_run,
        n_inputs,
        n_outputs,
        shape.for_cpu,
        memory.cleared_bytes,
    )


def _emit_history_row(e: LoopEmitter, row: Node) -> None:
    """Emit the stores of a generation's row: by one thread or, if it is long, by all."""
    if row.size > MAX_SERIAL_ROW:
        with e.parallel_loop(squeeze_shape(row.shape)) as index:
            full = e.full_index(row.shape, index)
            value, column = e.emit_element(row, full), as_expr(e.flatten_index(full, row.shape))
            e.emit(ir.Store("history", compose(f"g * row + (long long){column} * RUNS", "g", "row", column), value))
        return
    values = [e.emit_element(row, e.unflatten_index(c, row.shape)) for c in range(row.size)]
    address = ir.Declare(
        f"{STORAGE_TYPES[row.dtype]} *",
        HISTORY_ROW,
        compose("history + (number - start) * row", "history", "number", "start", "row"),
    )
    stores = [ir.Store(HISTORY_ROW, f"{c}LL * RUNS", value) for c, value in enumerate(values)]
    e.emit(ir.OneThread([address, *stores], is_last=bool(e.bindings.history_only)))
