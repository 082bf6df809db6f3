"""Hierarchical reductions (thread, warp, block, cluster or grid) with broadcast, and other collective operations.

Within a block each warp leaves a partial result in shared memory. Several blocks combine theirs in one of four ways.
In a cluster each block writes its partial result into the shared memory of the others. In a grid blocks combine
them by atomics on one number in global memory if the order does not matter; else they write them side by side, and
each block gathers all of them. What only the history needs is gathered by a single warp, while the others continue.

Sorts, scatters and Cholesky factors are computed by all threads of a run with barriers of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from galapax.fused.array_ir import Kind, Node, NotFusible
from galapax.fused.c_expressions import (
    STORAGE_TYPES,
    TYPE_SUFFIXES,
    Index,
    c_type,
    identity_element,
    index_text,
    is_float,
)
from galapax.fused.index_maps import clamp_index
from galapax.fused.iteration_domains import (
    axis_lengths,
    is_cooperative_reduction,
    parallel_axes,
    squeeze_shape,
    thread_axes,
)
from galapax.fused.loop_ir import (
    Accumulate,
    Accumulator,
    Assign,
    Axis,
    Barrier,
    BarrierScope,
    Call,
    Declare,
    Fold,
    For,
    If,
    Let,
    Load,
    Lookup,
    Mask,
    Phase,
    Reduce,
    Store,
)

if TYPE_CHECKING:
    from galapax.fused.loop_codegen import KernelBuilder


Accumulators = list[tuple[str, str]]  # C variables of each output: the value, and the position of an argmin or argmax
Slots = dict[int, list[int]]  # by node id, where warps leave their partial results of each output


class Broadcast(Enum):
    """How all threads of a run get the result of a reduction."""

    PER_BLOCK = auto()  # every block has reduced all elements
    CLUSTER = auto()  # each block writes its partial result into the shared memory of the others
    ATOMIC = auto()  # blocks combine their partial results by atomics in global memory
    GATHER = auto()  # each block gathers the partial results of all blocks from global memory
    HISTORY_WARP = auto()  # a single warp gathers them, for the history alone


_TAKE_PREFIXES = {Broadcast.PER_BLOCK: "OWN_", Broadcast.HISTORY_WARP: "LATE_"}  # of the macros TAKE and TAKE_BEST


def is_order_independent(root: Node) -> bool:
    """True if partial results may be combined in any order with bitwise the same result."""
    is_integer = not root.inputs[0].dtype.startswith("float") and root.dtype != "bool"
    return root.spec.combiner in ("max", "min") or (root.spec.combiner == "add" and is_integer)


def _strip_reshapes(root: Node) -> Node:
    """Return the operand of a reduction without the reshapes around it."""
    node = root.inputs[0]
    while node.spec.keeps_order and node.inputs[0].size == node.size:
        node = node.inputs[0]
    return node


def pair_extremes_with_positions(stage: Sequence[Node]) -> dict[int, tuple[Node, Node]]:
    """Find minima and maxima whose position is computed too: the argmin or argmax yields both.

    Returns {id of the extreme: (extreme, position)}.
    """
    matching = {("min", "least"), ("max", "most")}
    scalars = [r for r in stage if r.size == 1 and is_cooperative_reduction(r)]
    pairs = [(a, b) for a, b in itertools.product(scalars, scalars) if (a.spec.combiner, b.spec.combiner) in matching]
    return {a.id: (a, b) for a, b in pairs if _strip_reshapes(a) is _strip_reshapes(b)}


def declare_accumulators(e: KernelBuilder, root: Node) -> Accumulators:
    """Declare each thread's accumulators: the value and, for argmin and argmax, its position."""
    dtype = root.inputs[0].dtype
    accumulators = []
    for _ in range(root.size):
        value, position = e.new_name("s"), e.new_name("s")
        e.emit(Accumulator(c_type(dtype), value, _identity(root), position if _has_position(root) else ""))
        accumulators.append((value, position))
    return accumulators


def list_folds(root: Node, accumulators: Accumulators) -> list[Fold]:
    """Return what a loop accumulates of a reduction."""
    has_position = _has_position(root)
    return [Fold(_c_operation(root), value, position if has_position else "") for value, position in accumulators]


def accumulate(
    e: KernelBuilder, root: Node, index: Sequence[Index], accumulators: Accumulators, guard: str, is_repeated: bool
) -> None:
    """Emit the accumulation of the elements at one point of a loop. is_repeated: the turn has accumulated others."""
    operand, axes = root.inputs[0], [int(a) for a in root.params["axes"]]
    if root.size == 1:
        for step, element in enumerate(e.thread_elements(operand.shape, thread_axes(root), index)):
            _accumulate_element(e, root, element, axes, guard, is_repeated or step > 0, *accumulators[0])
        return
    free = [a for a in range(len(operand.shape)) if a not in axes]
    reduced = axis_lengths(operand.shape, tuple(axes))
    for step, inner in enumerate(e.thread_elements(reduced, parallel_axes(reduced), index)):
        for position, accumulator in enumerate(accumulators):
            element = [0] * len(operand.shape)
            for a, i in zip([*axes, *free], [*inner, *e.unflatten_index(position, root.shape)], strict=True):
                element[a] = i
            _accumulate_element(e, root, element, axes, guard, is_repeated or step > 0, *accumulator)


def _accumulate_element(
    e: KernelBuilder,
    root: Node,
    element: list[Index],
    axes: list[int],
    guard: str,
    is_repeated: bool,
    best: str,
    best_position: str,
) -> None:
    term = e.emit_element(root.inputs[0], element)
    # a thread visits positions in ascending order
    positions = (best_position, index_text(element[axes[0]])) if _has_position(root) else ("", "")
    e.emit(Accumulate(_c_operation(root), best, e.loop_variable, term.text, *positions, guard, is_repeated))


def _c_operation(root: Node) -> str:
    """Return the name under which the prelude defines the operation for the operand's type."""
    return f"{root.spec.combiner}_{TYPE_SUFFIXES[root.inputs[0].dtype]}"


def _has_position(root: Node) -> bool:
    return root.kind is Kind.ARG_EXTREME


def _identity(root: Node) -> str:
    return identity_element(root.spec.combiner, root.inputs[0].dtype)


def emit_warp_partials(
    e: KernelBuilder, reductions: list[Node], slots: Slots, accumulators: dict[int, Accumulators]
) -> None:
    """Emit the reduction within each warp, and the store of its partial result."""
    for root in reductions:
        for (value, position), slot in zip(accumulators[root.id], slots[root.id], strict=True):
            position = position if _has_position(root) else ""
            e.emit(Reduce(Phase.WARP, _c_operation(root), slot, value, position))


def emit_block_partials(
    e: KernelBuilder, reductions: list[Node], slots: Slots, strategies: dict[int, Broadcast]
) -> None:
    """Emit the reduction within each block and its publication to the others, each reduction by another warp."""
    shared_slots = [(r, slot) for r in reductions if strategies[r.id] != Broadcast.PER_BLOCK for slot in slots[r.id]]
    if shared_slots:
        e.emit(Barrier(BarrierScope.BLOCK))
    for number, (root, slot) in enumerate(shared_slots):
        phase = Phase.ATOMIC if strategies[root.id] == Broadcast.ATOMIC else Phase.PUBLISH
        identity = "" if _has_position(root) else _identity(root)
        e.emit(Reduce(phase, _c_operation(root), slot, identity=identity, turn=number))
        if strategies[root.id] == Broadcast.ATOMIC:
            e.n_atomic_slots = max(e.n_atomic_slots, slot + 1)


def bind_extreme_value(
    e: KernelBuilder, extreme: Node, position: Node, slots: Slots, accumulators: dict[int, Accumulators]
) -> None:
    """Bind the extreme that a block has found together with its position."""
    name = e.new_name("r")
    text = f"OWN_VALUE({_c_operation(position)}, {slots[position.id][0]}, {accumulators[position.id][0][0]})"
    e.emit(Let(c_type(extreme.dtype), name, text))
    e.bind(extreme, [name])


def bind_results(
    e: KernelBuilder,
    reductions: list[Node],
    slots: Slots,
    accumulators: dict[int, Accumulators],
    strategies: dict[int, Broadcast],
) -> None:
    """After the barrier, combine the partial results and bind the reductions to registers of every thread."""
    gathered = [(r, slot) for r in reductions if strategies[r.id] == Broadcast.GATHER for slot in slots[r.id]]
    for number, (root, slot) in enumerate(gathered):
        identity = "" if _has_position(root) else _identity(root)
        e.emit(Reduce(Phase.GATHER, _c_operation(root), slot, identity=identity, turn=number))
    if gathered:
        e.emit(Barrier(BarrierScope.BLOCK))
    for root in reductions:
        names, prefix = [], _TAKE_PREFIXES.get(strategies[root.id], "")
        for slot, (value, position) in zip(slots[root.id], accumulators[root.id], strict=True):
            names.append(e.new_name("r"))
            if strategies[root.id] == Broadcast.ATOMIC:
                text = f"MET({_c_operation(root)}, {slot})"
            elif root.kind is Kind.REDUCTION:
                text = f"{prefix}TAKE({_c_operation(root)}, {_identity(root)}, {slot}, {value})"
            else:
                text = f"{prefix}TAKE_BEST({_c_operation(root)}, {slot}, {position})"
            e.emit(Let(c_type(root.dtype), names[-1], text))
        e.bind(root, names)
    e.pending_resets += [slot for r in reductions if strategies[r.id] == Broadcast.ATOMIC for slot in slots[r.id]]


MAX_REDUNDANT_COMPARISONS = 2**17  # each block sorts redundantly where it takes no more comparisons than this
MAX_SORTED_LENGTH = 4096  # comparing all pairs of more would take too long


def emit_rank_sort(e: KernelBuilder, node: Node) -> None:
    """Emit a rank sort, which compares all pairs: O(n^2) work, but no barrier before its end."""
    axis, keys = int(node.params["dimension"]), int(node.params["num_keys"])
    operands = node.inputs
    shape = operands[0].shape
    if shape[axis] > MAX_SORTED_LENGTH:
        raise NotFusible(f"sorting {shape[axis]} numbers")
    sources = [e.materialise(n) for n in operands]
    per_block = e.blocks_per_run > 1 and operands[0].size * shape[axis] <= MAX_REDUNDANT_COMPARISONS
    targets = [e.allocate(n.size, n.dtype, per_block) for n in operands]
    inner = math.prod(shape[axis + 1 :])
    with e.parallel_loop(squeeze_shape(shape), per_block=per_block) as index:
        element = e.full_index(shape, index)
        offset = index_text(e.flatten_index(element, shape))
        first = index_text(e.flatten_index([0 if a == axis else i for a, i in enumerate(element)], shape))
        j, rank = e.new_name("k"), e.new_name("s")
        e.emit(Declare("int", rank, "0"))
        condition = f"{j} < {index_text(element[axis])}"
        for source, operand in reversed(list(zip(sources[:keys], operands, strict=False))):
            a, b = f"{source}[{first} + {j} * {inner}]", f"{source}[{offset}]"
            less = f"({a} < {b} || ({b} != {b} && {a} == {a}))" if is_float(operand.dtype) else f"({a} < {b})"
            more = f"({b} < {a} || ({a} != {a} && {b} == {b}))" if is_float(operand.dtype) else f"({b} < {a})"
            condition = f"({less} || (!{more} && {condition}))"
        with e.loop(For(Axis.SERIAL, j, shape[axis])):
            e.emit(Assign(rank, Lookup(condition, tuple(sources[:keys])), "+="))
        for source, target in zip(sources, targets, strict=True):
            e.emit(Store(target, f"{first} + {rank} * {inner}", Load(source, offset, (source,))))
    e.emit_barrier(per_block)
    if node.params.get("multiple"):
        e.output_storage[node.id] = list(targets)
    else:
        e.bind(node, targets[0])


def emit_cholesky(e: KernelBuilder, node: Node) -> None:
    """Emit Cholesky factorisations, one matrix per warp: columns depend on each other, and a warp needs no barrier."""
    target = e.allocate(node.size, node.dtype)
    e.emit_copy(node.inputs[0], target)
    count, dim = math.prod(node.shape[:-2]), node.shape[-1]
    arguments = (target, str(count), str(dim))
    e.emit(Call(f"cholesky_{TYPE_SUFFIXES[node.dtype]}", arguments, reads=(target,), writes=(target,)))
    e.emit_barrier()
    e.bind(node, target)


def emit_scatter(e: KernelBuilder, node: Node) -> None:
    """Emit a scatter of many windows into the array allocated for it."""
    operand, indices, updates = node.inputs
    numbers = node.params["dimension_numbers"]
    mode, target = str(node.params["mode"]).upper(), e.storage[operand.id]
    assert operand.op == "alloc" and isinstance(target, str)
    per_block = e.blocks_per_run > 1 and next(b.per_block for b in e.buffers if b.name == target)
    scatter_dims = [a for a in range(len(updates.shape)) if a not in numbers.update_window_dims]
    inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window_axes = [a for a in range(len(operand.shape)) if a not in inserted]
    sizes = {a: updates.shape[w] for a, w in zip(window_axes, numbers.update_window_dims, strict=True)}
    with e.parallel_loop(
        squeeze_shape(updates.shape), per_block=per_block, has_atomics=bool(node.spec.combiner)
    ) as index:
        element = e.full_index(updates.shape, index)
        batch = [element[a] for a in scatter_dims]
        operand_index: list[Index] = [0] * len(operand.shape)
        for axis, window in zip(window_axes, numbers.update_window_dims, strict=True):
            operand_index[axis] = element[window]
        for axis, position in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
            operand_index[axis] = batch[position]
        tests = []
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            start = e.emit_element(indices, (*batch, k))
            limit = operand.shape[axis] - sizes.get(axis, 1)
            if "CLIP" in mode:
                start_index: Index = clamp_index(e, start, limit, indices)
            else:
                start_index = e.declare("int32", f"(int){start.text}", start.depth)
                tests.append(f"{start.text} >= 0 && {start.text} <= {limit}")
            operand_index[axis] = e.add_index(operand_index[axis], start_index)
        value = e.emit_element(updates, element)
        offset = index_text(e.flatten_index(operand_index, operand.shape))
        condition = " && ".join(tests) or "1"
        if not node.spec.combiner:
            e.emit(Store(target, offset, value.text, STORAGE_TYPES[node.dtype], Mask(condition)))
        elif node.dtype in ("int32", "uint32") or (
            node.spec.combiner == "add" and node.dtype in ("float32", "float64")
        ):
            function = f"ATOMIC_{node.spec.combiner.upper()}"
            update = Call(function, (f"&{target}[{offset}]", value.text), reads=(target,), writes=(target,))
            e.emit(If([(condition, [update])]))
        else:
            raise NotFusible(f"{node.op} of {node.dtype}")
    e.emit_barrier(per_block)
    e.bind(node, target)
