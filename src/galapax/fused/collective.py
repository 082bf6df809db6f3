"""Collective operations, by all threads of a run with barriers of their own: sorts, scatters, Cholesky factors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from galapax.fused.bitplane_selection import emit_replacement_table
from galapax.fused.c_expressions import CUMULATIVE_OPS, STORAGE_TYPES, TYPE_SUFFIXES, is_float
from galapax.fused.expr import Index, index_text
from galapax.fused.graph import Node, NotFusible
from galapax.fused.index_maps import clamp_index
from galapax.fused.iteration_domains import squeeze_shape
from galapax.fused.scan import emit_scan

if TYPE_CHECKING:
    from galapax.fused.loop_codegen import KernelBuilder

MAX_REDUNDANT_COMPARISONS = 2**17  # each block sorts redundantly where it takes no more comparisons than this
MAX_SORTED_LENGTH = 4096  # comparing all pairs of more would take too long


def emit_collective(e: KernelBuilder, node: Node) -> None:
    """Emit a collective operation and bind its result."""
    if node.op in CUMULATIVE_OPS:
        emit_scan(e, node)
    elif node.op == "sort":
        _emit_rank_sort(e, node)
    elif node.op == "cholesky":
        _emit_cholesky(e, node)
    elif node.op == "replacement_index":
        emit_replacement_table(e, node)
    else:
        _emit_scatter(e, node)


def _emit_rank_sort(e: KernelBuilder, node: Node) -> None:
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
        e.emit_line(f"int {rank} = 0;")
        condition = f"{j} < {index_text(element[axis])}"
        for source, operand in reversed(list(zip(sources[:keys], operands, strict=False))):
            a, b = f"{source}[{first} + {j} * {inner}]", f"{source}[{offset}]"
            less = f"({a} < {b} || ({b} != {b} && {a} == {a}))" if is_float(operand.dtype) else f"({a} < {b})"
            more = f"({b} < {a} || ({a} != {a} && {b} == {b}))" if is_float(operand.dtype) else f"({b} < {a})"
            condition = f"({less} || (!{more} && {condition}))"
        e.emit_line(f"for (int {j} = 0; {j} < {shape[axis]}; {j}++) {rank} += {condition};")
        for source, target in zip(sources, targets, strict=True):
            e.emit_line(f"{target}[{first} + {rank} * {inner}] = {source}[{offset}];")
    e.emit_barrier(per_block)
    if node.params.get("multiple"):
        e.output_storage[node.id] = list(targets)
    else:
        e.bind(node, targets[0])


def _emit_cholesky(e: KernelBuilder, node: Node) -> None:
    """Emit Cholesky factorisations, one matrix per warp: columns depend on each other, and a warp needs no barrier."""
    target = e.allocate(node.size, node.dtype)
    e.emit_copy(node.inputs[0], target)
    count, dim = math.prod(node.shape[:-2]), node.shape[-1]
    e.emit_line(f"cholesky_{TYPE_SUFFIXES[node.dtype]}({target}, {count}, {dim});")
    e.emit_barrier()
    e.bind(node, target)


def _emit_scatter(e: KernelBuilder, node: Node) -> None:
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
    with e.parallel_loop(squeeze_shape(updates.shape), per_block=per_block, has_atomics=node.op != "scatter") as index:
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
        address = f"{target}[{index_text(e.flatten_index(operand_index, operand.shape))}]"
        if node.op == "scatter":
            update = f"{address} = ({STORAGE_TYPES[node.dtype]}){value.text};"
        elif node.dtype in ("int32", "uint32") or (node.op == "scatter-add" and node.dtype in ("float32", "float64")):
            update = f"ATOMIC_{node.op.removeprefix('scatter-').upper()}(&{address}, {value.text});"
        else:
            raise NotFusible(f"{node.op} of {node.dtype}")
        e.emit_line(f"if ({' && '.join(tests) or '1'}) {update}")
    e.emit_barrier(per_block)
    e.bind(node, target)
