"""Reductions: inside a loop by one thread or a group of threads, or hierarchical ones by all threads of a run.

Of a hierarchical reduction each warp leaves a partial result in shared memory. Several blocks combine theirs in one of
four ways. In a cluster each block writes its partial result into the shared memory of the others. In a grid blocks
combine them by atomics on one number in global memory if the order does not matter; else they write them side by side,
and each block gathers all of them. What only the history needs is gathered by a single warp, while the others continue.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce

from galapax.fused import loop_ir as ir
from galapax.fused.array_ir import Kind, Node, NotFusible
from galapax.fused.c_expressions import (
    TYPE_SUFFIXES,
    Index,
    as_expr,
    c_literal,
    c_type,
    combine,
    element_key,
    identity_element,
)
from galapax.fused.cost_model import MAX_PREFETCHED_VALUES, MAX_UNROLLED_STEPS
from galapax.fused.element_codegen import ElementEmitter
from galapax.fused.loop_codegen import LoopEmitter
from galapax.fused.loop_ir import Expr, compose, variable
from galapax.fused.schedule import (
    axis_lengths,
    is_cooperative_reduction,
    parallel_axes,
    reduction_length,
    thread_axes,
)


def prefetch_reduction(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> None:
    """Emit a thread's loads for its share of a reduction before any of them is used, so that they overlap."""
    if e.current.group is None or len(node.params["axes"]) != 1 or reduction_length(node) < e.shape.min_group_steps:
        return
    operand, n_turns = node.inputs[0], -(-reduction_length(node) // e.current.group[0])
    loads = [n for n in e.find_loads(operand) if n.shape == operand.shape]
    if not 1 < n_turns * len(loads) <= MAX_PREFETCHED_VALUES:
        return
    prefetched = []
    for load in loads:
        k, registers = e.new_name("k"), e.new_name("h")
        e.emit(ir.Declare(c_type(load.dtype), registers, length=str(n_turns)))
        with e.loop(ir.For(ir.Axis.GROUP, k, reduction_length(node), group=e.current.group[0], is_unrolled=True)):
            value = e.emit_element(load, _operand_index(node, index, [variable(k, len(e.scopes) - 1)]))
            e.emit(ir.Assign(compose(f"{registers}[turn_{k}]", registers, k), value))
        prefetched.append((load, registers))
    e.bindings.prefetched[element_key(node, index)] = prefetched


@contextmanager
def _open_step_loops(
    e: ElementEmitter,
    lengths: Sequence[int],
    is_shared: bool = False,
    fold: ir.Fold | None = None,
    is_unrolled: bool = False,
) -> Iterator[list[Index]]:
    """Open the loops of a reduction over some axes; if it is shared, a group of threads splits the longest.

    fold: what the innermost accumulates. is_unrolled: unroll the innermost.
    """
    names, loops = [e.new_name("k") for _ in lengths], ExitStack()
    depths = []
    split_position = lengths.index(max(lengths)) if is_shared else -1
    for position, (name, n) in enumerate(zip(names, lengths, strict=True)):
        group_size = e.current.group[0] if position == split_position and e.current.group is not None else None
        loop = ir.For(ir.Axis.SERIAL if group_size is None else ir.Axis.GROUP, name, n, group=group_size or 1)
        if fold is not None and position == len(names) - 1:
            loop.folds, loop.is_unrolled = (fold,), is_unrolled and group_size is not None
        loops.enter_context(e.loop(loop))
        depths.append(len(e.scopes) - 1)
    with loops:
        yield [variable(name, depth) for name, depth in zip(names, depths, strict=True)]


def emit_reduction(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit a reduction: unrolled if short, split among a thread group if there is one, else a serial loop."""
    operand, axes = node.inputs[0], node.params["axes"]
    operation = node.spec.combiner
    lengths = [operand.shape[a] for a in axes]
    depth = e.index_depth(index)
    group_size, group_depth = e.current.group or (1, -1)
    is_shared = group_depth == depth and reduction_length(node) >= e.shape.min_group_steps
    if reduction_length(node) <= MAX_UNROLLED_STEPS and not is_shared:
        steps = [e.unflatten_index(i, lengths) for i in range(reduction_length(node))]
        terms = [e.emit_element(operand, _operand_index(node, index, step)) for step in steps]
        depth = max([depth, *(term.depth for term in terms)])
        if not terms:
            return e.declare(node.dtype, Expr(identity_element(operation, node.dtype)), depth)
        return e.declare(node.dtype, reduce(partial(combine, operation, node.dtype), terms), depth)
    accumulator = e.new_name("s")
    with e.hoist_to(depth):
        c_operation = f"{operation}_{TYPE_SUFFIXES[node.dtype]}"
        e.emit(ir.Accumulator(c_type(node.dtype), accumulator, identity_element(operation, node.dtype)))
        prefetched = e.bindings.prefetched.get(element_key(node, index), ()) if is_shared else ()
        is_short = is_shared and len(lengths) == 1 and max(lengths) <= MAX_PREFETCHED_VALUES * group_size
        is_unrolled = bool(prefetched) or (is_short and e.shape.is_latency_bound)
        with _open_step_loops(e, lengths, is_shared, ir.Fold(c_operation, accumulator), is_unrolled) as inner:
            element = _operand_index(node, index, inner)
            for load, registers in prefetched:
                loaded = e.emit_element(load, element)
                register = compose(f"{registers}[turn_{inner[-1]}]", registers, inner[-1])
                value = ir.ByTarget(gpu=register, cpu=loaded)
                e.scopes[-1].values[element_key(load, element)] = e.declare(load.dtype, value, len(e.scopes) - 1)
            term = e.emit_element(operand, element)
            e.emit(ir.Accumulate(c_operation, accumulator, str(inner[-1]), term))
        if is_shared:
            total = compose(f"group_{c_operation}({accumulator}, {group_size})", accumulator)
            e.emit(ir.Assign(accumulator, total))
    return variable(accumulator, depth)


def emit_arg_extreme(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit an argmin or argmax over one axis as a serial loop."""
    operand, (axis,) = node.inputs[0], node.params["axes"]
    n, depth = operand.shape[axis], e.index_depth(index)
    extreme, position = e.new_name("s"), e.new_name("s")
    comparison = f"later_{node.spec.combiner}_{TYPE_SUFFIXES[operand.dtype]}"
    with e.hoist_to(depth):
        first = e.emit_element(operand, (*index[:axis], 0, *index[axis:]))
        e.emit(ir.Declare(c_type(operand.dtype), extreme, first))
        e.emit(ir.Declare("int", position, "0"))
        with _open_step_loops(e, [n]) as (k,):
            assert isinstance(k, Expr)
            other = e.emit_element(operand, (*index[:axis], k, *index[axis:]))
            update: list[ir.Statement] = [ir.Assign(extreme, other), ir.Assign(position, k)]
            is_better = compose(f"{comparison}({other}, {extreme}, {position})", other, extreme, position)
            e.emit(ir.If([(is_better, update)]))
    return variable(position, depth)


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

    def emit_term(inner: Sequence[Index]) -> Expr:
        element_a: list[Index] = [0] * len(a.shape)
        element_b: list[Index] = [0] * len(b.shape)
        for axes, values, element in (
            (left_batch, index[:batches], element_a), (free_a, index_a, element_a), (left, inner, element_a),
            (right_batch, index[:batches], element_b), (free_b, index_b, element_b), (right, inner, element_b),
        ):  # fmt: skip
            for axis, value in zip(axes, values, strict=True):
                element[axis] = value
        return combine("mul", node.dtype, e.emit_element(a, element_a), e.emit_element(b, element_b))

    depth, accumulator = e.index_depth(index), e.new_name("s")
    with e.hoist_to(depth):
        c_operation = f"add_{TYPE_SUFFIXES[node.dtype]}"
        e.emit(ir.Accumulator(c_type(node.dtype), accumulator, c_literal(0, node.dtype)))
        with _open_step_loops(e, lengths, fold=ir.Fold(c_operation, accumulator)) as inner:
            term = emit_term(inner)
            e.emit(ir.Accumulate(c_operation, accumulator, str(inner[-1]), term))
    return variable(accumulator, depth)


def emit_serial_scan(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit an element of a short scan: each thread accumulates up to its own position."""
    operand, axis, operation = node.inputs[0], node.params["axis"], node.spec.combiner
    depth, accumulator, k = e.index_depth(index), e.new_name("s"), e.new_name("k")
    position, last = as_expr(index[axis]), Expr(str(node.shape[axis] - 1))
    start, end = (position, last) if node.params["reverse"] else (Expr("0"), position)
    with e.hoist_to(depth):
        e.emit(ir.Declare(c_type(node.dtype), accumulator, identity_element(operation, node.dtype)))
        with e.loop(ir.For(ir.Axis.SERIAL, k, start=start, end=end)):
            inner = variable(k, len(e.scopes) - 1)
            term = e.emit_element(operand, (*index[:axis], inner, *index[axis + 1 :]))
            e.emit(ir.Assign(accumulator, combine(operation, node.dtype, accumulator, term)))
    return variable(accumulator, depth)


def _operand_index(node: Node, index: Sequence[Index], inner: Sequence[Index]) -> tuple[Index, ...]:
    """Return the index into the operand of one step of a reduction."""
    operand, axes = node.inputs[0], node.params["axes"]
    element: list[Index] = [0] * len(operand.shape)
    free = [a for a in range(len(operand.shape)) if a not in axes]
    for a, i in zip([*free, *axes], [*index, *inner], strict=True):
        element[a] = i
    return tuple(element)


Accumulators = list[tuple[str, str]]  # C variables of each output: the value, and the position of an argmin or argmax
Slots = dict[int, list[int]]  # by node id, where warps leave their partial results of each output


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


def declare_accumulators(e: LoopEmitter, root: Node) -> Accumulators:
    """Declare each thread's accumulators: the value and, for argmin and argmax, its position."""
    dtype = root.inputs[0].dtype
    accumulators = []
    for _ in range(root.size):
        value, position = e.new_name("s"), e.new_name("s")
        e.emit(ir.Accumulator(c_type(dtype), value, _identity(root), position if _has_position(root) else ""))
        accumulators.append((value, position))
    return accumulators


def list_folds(root: Node, accumulators: Accumulators) -> list[ir.Fold]:
    """Return what a loop accumulates of a reduction."""
    has_position = _has_position(root)
    return [ir.Fold(_c_operation(root), value, position if has_position else "") for value, position in accumulators]


def accumulate(
    e: LoopEmitter, root: Node, index: Sequence[Index], accumulators: Accumulators, guard: ir.Scalar, is_repeated: bool
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
    e: LoopEmitter,
    root: Node,
    element: list[Index],
    axes: list[int],
    guard: ir.Scalar,
    is_repeated: bool,
    best: str,
    best_position: str,
) -> None:
    term = e.emit_element(root.inputs[0], element)
    # a thread visits positions in ascending order
    update = ir.Accumulate(_c_operation(root), best, e.current.variable, term, condition=guard, is_repeated=is_repeated)
    if _has_position(root):
        update.position, update.value_position = best_position, as_expr(element[axes[0]])
    e.emit(update)


def _c_operation(root: Node) -> str:
    """Return the name under which the prelude defines the operation for the operand's type."""
    return f"{root.spec.combiner}_{TYPE_SUFFIXES[root.inputs[0].dtype]}"


def _has_position(root: Node) -> bool:
    return root.kind is Kind.ARG_EXTREME


def _identity(root: Node) -> str:
    return identity_element(root.spec.combiner, root.inputs[0].dtype)


def emit_warp_partials(
    e: LoopEmitter, reductions: list[Node], slots: Slots, accumulators: dict[int, Accumulators]
) -> None:
    """Emit the reduction within each warp, and the store of its partial result."""
    for root in reductions:
        for (value, position), slot in zip(accumulators[root.id], slots[root.id], strict=True):
            position = position if _has_position(root) else ""
            e.emit(ir.Reduce(ir.Phase.WARP, _c_operation(root), slot, value, position))


def emit_block_partials(
    e: LoopEmitter, reductions: list[Node], slots: Slots, strategies: dict[int, ir.Broadcast]
) -> None:
    """Emit the reduction within each block and its publication to the others, each reduction by another warp."""
    shared_slots = [(r, slot) for r in reductions if strategies[r.id] != ir.Broadcast.PER_BLOCK for slot in slots[r.id]]
    if shared_slots:
        e.emit(ir.Barrier(ir.BarrierScope.BLOCK))
    for number, (root, slot) in enumerate(shared_slots):
        phase = ir.Phase.ATOMIC if strategies[root.id] == ir.Broadcast.ATOMIC else ir.Phase.PUBLISH
        identity = "" if _has_position(root) else _identity(root)
        e.emit(ir.Reduce(phase, _c_operation(root), slot, identity=identity, turn=number))
        if strategies[root.id] == ir.Broadcast.ATOMIC:
            e.resources.n_atomic_slots = max(e.resources.n_atomic_slots, slot + 1)


def bind_extreme_value(
    e: LoopEmitter, extreme: Node, position: Node, slots: Slots, accumulators: dict[int, Accumulators]
) -> None:
    """Bind the extreme that a block has found together with its position."""
    name = e.new_name("r")
    operation, slot, value = _c_operation(position), slots[position.id][0], accumulators[position.id][0][0]
    take = ir.Take(ir.Broadcast.PER_BLOCK, operation, slot, value, is_value=True)
    e.emit(ir.Let(c_type(extreme.dtype), name, take))
    e.bind(extreme, [name])


def bind_results(
    e: LoopEmitter,
    reductions: list[Node],
    slots: Slots,
    accumulators: dict[int, Accumulators],
    strategies: dict[int, ir.Broadcast],
) -> None:
    """After the barrier, combine the partial results and bind the reductions to registers of every thread."""
    gathered = [(r, slot) for r in reductions if strategies[r.id] == ir.Broadcast.GATHER for slot in slots[r.id]]
    for number, (root, slot) in enumerate(gathered):
        identity = "" if _has_position(root) else _identity(root)
        e.emit(ir.Reduce(ir.Phase.GATHER, _c_operation(root), slot, identity=identity, turn=number))
    if gathered:
        e.emit(ir.Barrier(ir.BarrierScope.BLOCK))
    for root in reductions:
        names, has_position = [], _has_position(root)
        for slot, (value, position) in zip(slots[root.id], accumulators[root.id], strict=True):
            names.append(e.new_name("r"))
            identity, accumulator = ("", position) if has_position else (_identity(root), value)
            take = ir.Take(strategies[root.id], _c_operation(root), slot, accumulator, identity)
            e.emit(ir.Let(c_type(root.dtype), names[-1], take))
        e.bind(root, names)
    e.hazards.pending_resets += [
        slot for r in reductions if strategies[r.id] == ir.Broadcast.ATOMIC for slot in slots[r.id]
    ]
