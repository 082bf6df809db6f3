"""Reductions inside a loop, by one thread or a group of threads: along a row, over a few elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from galapax.fused.array_ir import Node, NotFusible
from galapax.fused.c_expressions import (
    TYPE_SUFFIXES,
    Expr,
    Index,
    c_literal,
    c_type,
    combine,
    element_key,
    identity_element,
    index_text,
)
from galapax.fused.iteration_domains import MAX_UNROLLED_STEPS, reduction_length
from galapax.fused.loop_ir import Accumulate, Accumulator, Assign, Axis, Declare, Fold, For, If, Statement

if TYPE_CHECKING:
    from galapax.fused.element_codegen import ElementEmitter

MAX_PREFETCHED_VALUES = 8  # loads of a reduction that a thread makes at once; more would take too many registers


def prefetch_reduction(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> None:
    """Emit a thread's loads for its share of a reduction before any of them is used, so that they overlap."""
    if e.thread_group is None or len(node.params["axes"]) != 1 or reduction_length(node) < e.min_group_steps:
        return
    operand, n_turns = node.inputs[0], -(-reduction_length(node) // e.thread_group[0])
    loads = [n for n in e.find_loads(operand) if n.shape == operand.shape]
    if not 1 < n_turns * len(loads) <= MAX_PREFETCHED_VALUES:
        return
    prefetched = []
    for load in loads:
        k, registers = e.new_name("k"), e.new_name("h")
        e.emit(Declare(c_type(load.dtype), registers, length=str(n_turns)))
        with e.loop(For(Axis.GROUP, k, reduction_length(node), group=e.thread_group[0], is_unrolled=True)):
            value = e.emit_element(load, _operand_index(node, index, [Expr(k, len(e.scopes) - 1)]))
            e.emit(Assign(f"{registers}[turn_{k}]", value.text))
        prefetched.append((load, registers))
    e.prefetched[element_key(node, index)] = prefetched


@contextmanager
def _open_step_loops(
    e: ElementEmitter,
    lengths: Sequence[int],
    is_shared: bool = False,
    fold: Fold | None = None,
    is_unrolled: bool = False,
) -> Iterator[list[Index]]:
    """Open the loops of a reduction over some axes; if it is shared, a group of threads splits the longest.

    fold: what the innermost accumulates. is_unrolled: unroll the innermost.
    """
    names, loops = [e.new_name("k") for _ in lengths], ExitStack()
    depths = []
    split_position = lengths.index(max(lengths)) if is_shared else -1
    for position, (name, n) in enumerate(zip(names, lengths, strict=True)):
        group_size = e.thread_group[0] if position == split_position and e.thread_group is not None else None
        loop = For(Axis.SERIAL if group_size is None else Axis.GROUP, name, n, group=group_size or 1)
        if fold is not None and position == len(names) - 1:
            loop.folds, loop.is_unrolled = (fold,), is_unrolled and group_size is not None
        loops.enter_context(e.loop(loop))
        depths.append(len(e.scopes) - 1)
    with loops:
        yield [Expr(name, depth) for name, depth in zip(names, depths, strict=True)]


def emit_reduction(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit a reduction: unrolled if short, split among a thread group if there is one, else a serial loop."""
    operand, axes = node.inputs[0], node.params["axes"]
    operation = node.spec.combiner
    lengths = [operand.shape[a] for a in axes]
    depth = e.index_depth(index)
    group_size, group_depth = e.thread_group or (1, -1)
    is_shared = group_depth == depth and reduction_length(node) >= e.min_group_steps
    if reduction_length(node) <= MAX_UNROLLED_STEPS and not is_shared:
        steps = [e.unflatten_index(i, lengths) for i in range(reduction_length(node))]
        terms = [e.emit_element(operand, _operand_index(node, index, step)) for step in steps]
        depth = max([depth, *(term.depth for term in terms)])
        if not terms:
            return e.declare(node.dtype, identity_element(operation, node.dtype), depth)
        text = terms[0].text
        for term in terms[1:]:
            text = combine(operation, node.dtype, text, term.text)
        return e.declare(node.dtype, text, depth)
    accumulator = e.new_name("s")
    with e.hoist_to(depth):
        c_operation = f"{operation}_{TYPE_SUFFIXES[node.dtype]}"
        e.emit(Accumulator(c_type(node.dtype), accumulator, identity_element(operation, node.dtype)))
        prefetched = e.prefetched.get(element_key(node, index), ()) if is_shared else ()
        is_short = is_shared and len(lengths) == 1 and max(lengths) <= MAX_PREFETCHED_VALUES * group_size
        is_unrolled = bool(prefetched) or (is_short and e.is_latency_bound)
        with _open_step_loops(e, lengths, is_shared, Fold(c_operation, accumulator), is_unrolled) as inner:
            element = _operand_index(node, index, inner)
            for load, registers in prefetched:
                value = f"FETCHED({registers}, {index_text(inner[-1])}, {e.emit_element(load, element).text})"
                e.scopes[-1].values[element_key(load, element)] = e.declare(load.dtype, value, len(e.scopes) - 1)
            term = e.emit_element(operand, element)
            e.emit(Accumulate(c_operation, accumulator, index_text(inner[-1]), term.text))
        if is_shared:
            e.emit(Assign(accumulator, f"group_{c_operation}({accumulator}, GROUP({group_size}))"))
    return Expr(accumulator, depth)


def emit_arg_extreme(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit an argmin or argmax over one axis as a serial loop."""
    operand, (axis,) = node.inputs[0], node.params["axes"]
    n, depth = operand.shape[axis], e.index_depth(index)
    extreme, position = e.new_name("s"), e.new_name("s")
    comparison = f"later_{node.spec.combiner}_{TYPE_SUFFIXES[operand.dtype]}"
    with e.hoist_to(depth):
        first = e.emit_element(operand, (*index[:axis], 0, *index[axis:]))
        e.emit(Declare(c_type(operand.dtype), extreme, first.text))
        e.emit(Declare("int", position, "0"))
        with _open_step_loops(e, [n]) as (k,):
            assert isinstance(k, Expr)
            other = e.emit_element(operand, (*index[:axis], k, *index[axis:]))
            update: list[Statement] = [Assign(extreme, other.text), Assign(position, k.text)]
            e.emit(If([(f"{comparison}({other.text}, {extreme}, {position})", update)]))
    return Expr(position, depth)


def emit_dot(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit an element of a dot product as a serial loop."""
    (left, right), (left_batch, right_batch) = node.params["dimension_numbers"]
    a, b = node.inputs
    if a.dtype != node.dtype or b.dtype != node.dtype:
        raise NotFusible(f"a product of {a.dtype} and {b.dtype}")
    batches = len(left_batch)
    free_a = [i for i in range(len(a.shape)) if i not in left and i not in left_batch]
    free_b = [i for i in range(len(b.shape)) if i not in right and i not in right_batch]
    index_a, index_b = index[batches : batches + len(free_a)], index[batches + len(free_a) :]
    lengths = [a.shape[i] for i in left]

    def emit_term(inner: Sequence[Index]) -> str:
        element_a: list[Index] = [0] * len(a.shape)
        element_b: list[Index] = [0] * len(b.shape)
        for axes, values, element in (
            (left_batch, index[:batches], element_a), (free_a, index_a, element_a), (left, inner, element_a),
            (right_batch, index[:batches], element_b), (free_b, index_b, element_b), (right, inner, element_b),
        ):  # fmt: skip
            for axis, value in zip(axes, values, strict=True):
                element[axis] = value
        return combine("mul", node.dtype, e.emit_element(a, element_a).text, e.emit_element(b, element_b).text)

    depth, accumulator = e.index_depth(index), e.new_name("s")
    with e.hoist_to(depth):
        c_operation = f"add_{TYPE_SUFFIXES[node.dtype]}"
        e.emit(Accumulator(c_type(node.dtype), accumulator, c_literal(0, node.dtype)))
        with _open_step_loops(e, lengths, fold=Fold(c_operation, accumulator)) as inner:
            term = emit_term(inner)
            e.emit(Accumulate(c_operation, accumulator, index_text(inner[-1]), term))
    return Expr(accumulator, depth)


def emit_serial_scan(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit an element of a short scan: each thread accumulates up to its own position."""
    operand, axis, operation = node.inputs[0], node.params["axis"], node.spec.combiner
    depth, accumulator, k = e.index_depth(index), e.new_name("s"), e.new_name("k")
    position = index_text(index[axis])
    start, end = (position, str(node.shape[axis] - 1)) if node.params["reverse"] else ("0", position)
    with e.hoist_to(depth):
        e.emit(Declare(c_type(node.dtype), accumulator, identity_element(operation, node.dtype)))
        with e.loop(For(Axis.SERIAL, k, start=start, end=end)):
            inner = Expr(k, len(e.scopes) - 1)
            term = e.emit_element(operand, (*index[:axis], inner, *index[axis + 1 :]))
            e.emit(Assign(accumulator, combine(operation, node.dtype, accumulator, term.text)))
    return Expr(accumulator, depth)


def _operand_index(node: Node, index: Sequence[Index], inner: Sequence[Index]) -> tuple[Index, ...]:
    """Return the index into the operand of one step of a reduction."""
    operand, axes = node.inputs[0], node.params["axes"]
    element: list[Index] = [0] * len(operand.shape)
    free = [a for a in range(len(operand.shape)) if a not in axes]
    for a, i in zip([*free, *axes], [*index, *inner], strict=True):
        element[a] = i
    return tuple(element)
