"""Index maps: operations that only rearrange elements, as the operand's index for an index of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from galapax.fused import loop_ir as ir
from galapax.fused.array_ir import Node, NotFusible, value_range
from galapax.fused.c_expressions import Index, Storage, c_literal, c_type, combine
from galapax.fused.element_codegen import ElementEmitter
from galapax.fused.loop_ir import Expr, compose, variable
from galapax.fused.schedule import is_single_window_scatter, squeeze_shape

Case = tuple[Expr | None, Callable[[int], Expr]]  # a condition, and what emits the element at a scope's depth


def broadcast_in_dim(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand = node.inputs[0]
    return e.emit_element(operand, [index[int(a)] for a in node.params["broadcast_dimensions"]])


def reshape(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand = node.inputs[0]
    if node.params.get("dimensions") is not None:
        raise NotFusible("a reshape in another order")
    if squeeze_shape(node.shape) == squeeze_shape(operand.shape):
        indices = iter(i for i, n in zip(index, node.shape, strict=True) if n != 1)
        return e.emit_element(operand, [0 if n == 1 else next(indices) for n in operand.shape])
    flat_index = e.flatten_index(index, node.shape)
    if not isinstance(flat_index, int):
        flat_index = e.declare("int32", flat_index)
    return e.emit_element(operand, e.unflatten_index(flat_index, operand.shape))


def squeeze(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand, indices = node.inputs[0], iter(index)
    removed = {int(a) % len(operand.shape) for a in node.params["dimensions"]}
    return e.emit_element(operand, [0 if a in removed else next(indices) for a in range(len(operand.shape))])


def expand_dims(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    inserted = {int(a) for a in node.params["dimensions"]}
    return e.emit_element(node.inputs[0], [i for a, i in enumerate(index) if a not in inserted])


def transpose(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand_index: list[Index] = [0] * len(index)
    for i, axis in zip(index, node.params["permutation"], strict=True):
        operand_index[int(axis)] = i
    return e.emit_element(node.inputs[0], operand_index)


def slice_elements(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    steps = node.params["strides"] or [1] * len(index)
    starts = node.params["start_indices"]
    return e.emit_element(
        node.inputs[0],
        [e.add_index(e.scale_index(i, int(s)), int(a)) for i, s, a in zip(index, steps, starts, strict=True)],
    )


def reverse(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    flipped = {int(a) for a in node.params["dimensions"]}
    return e.emit_element(
        node.inputs[0], [_mirror_index(i, node.shape[a]) if a in flipped else i for a, i in enumerate(index)]
    )


def _mirror_index(i: Index, n: int) -> Index:
    return n - 1 - i if isinstance(i, int) else compose(f"({n - 1} - {i})", i)


def iota(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    i = index[node.params["dimension"]]
    if isinstance(i, int):
        return Expr(c_literal(i, node.dtype))
    return e.declare(node.dtype, compose(f"({c_type(node.dtype)}){i}", i))


def _emit_cases(e: ElementEmitter, node: Node, cases: Sequence[Case], depth: int) -> Expr:
    """Emit an element that one of several cases gives: (condition, emit) each, the last one without a condition."""
    result = e.new_name()
    with e.hoist_to(depth):
        bodies, values, negated = list[list[ir.Statement]](), list[Expr](), list[str]()
        tests = [test for test, _ in cases if test]
        for test, emit in cases:
            guard = compose(" && ".join([*negated, *([f"({test})"] if test else [])]), *tests)
            with e.detached_scope() as scope, e.guarded_loads(guard):
                values.append(emit(len(e.scopes) - 1))
            negated.append(f"!({test})")
            bodies.append(scope.body)
        e.emit(ir.Declare(c_type(node.dtype), result))
        if e.shape.for_cpu and all(isinstance(statement, ir.Let) for body in bodies for statement in body):
            _emit_branchless_cases(e, result, tests, values, bodies)
        else:
            for body, value in zip(bodies, values, strict=True):
                body.append(ir.Assign(result, value))
            e.emit(ir.If([(test or "", body) for (test, _), body in zip(cases, bodies, strict=True)]))
    return variable(result, depth)


def _emit_branchless_cases(
    e: ElementEmitter, result: str, tests: list[Expr], values: list[Expr], bodies: list[list[ir.Statement]]
) -> None:
    """Emit all cases and select among them without a branch, which would keep the C compiler from vectorising."""
    for body in bodies:
        for statement in body:
            e.emit(statement)
    text = values[-1].text
    for test, value in zip(reversed(tests), reversed(values[:-1]), strict=True):
        text = f"({test}) ? {value} : {text}"
    e.emit(ir.Assign(result, compose(text, *tests, *values)))


def concatenate(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    axis = int(node.params["dimension"])
    ends, total = [], 0
    for operand in node.inputs:
        total += operand.shape[axis]
        ends.append(total)
    i = index[axis]
    if isinstance(i, int):
        position = next(k for k, end in enumerate(ends) if i < end)
        start = ends[position] - node.inputs[position].shape[axis]
        return e.emit_element(node.inputs[position], (*index[:axis], i - start, *index[axis + 1 :]))
    cases: list[Case] = []
    for k, operand in enumerate(node.inputs):
        start = ends[k] - operand.shape[axis]
        if not operand.shape[axis]:
            continue

        def emit(depth: int, operand: Node = operand, start: int = start) -> Expr:
            offset: Index = e.declare("int32", compose(f"{i} - {start}", i), depth) if operand.shape[axis] > 1 else 0
            return e.emit_element(operand, (*index[:axis], offset, *index[axis + 1 :]))

        cases.append((compose(f"{i} < {ends[k]}", i) if ends[k] < total else None, emit))
    depth = e.index_depth(index)
    if len(cases) == 1:
        return cases[0][1](depth)
    if (
        not e.shape.for_cpu
        and math.prod(node.shape[:axis]) == 1
        and (load := _emit_concatenated_load(e, node, axis, index))
    ):
        return load
    return _emit_cases(e, node, cases, depth)


def _emit_concatenated_load(e: ElementEmitter, node: Node, axis: int, index: tuple[Index, ...]) -> Expr | None:
    """Emit an element of two concatenated arrays that both lie in memory as one load, without a branch.

    So loads of several elements overlap.
    """
    bases = [base for base in (_find_array(e, operand) for operand in node.inputs) if isinstance(base, str)]
    if len(node.inputs) != 2 or len(bases) != 2:
        return None
    i, flat, first = index[axis], e.flatten_index(index, node.shape), node.inputs[0]
    assert isinstance(i, Expr) and isinstance(flat, Expr)
    e.hazards.is_read = True
    pointer = compose(f"({i} < {first.shape[axis]} ? {bases[0]} : {bases[1]} - {first.size})", i, *bases)
    return e.declare(node.dtype, ir.Load(pointer, flat, (bases[0], bases[1])), max(flat.depth, e.region_depth))


def _find_array(e: ElementEmitter, node: Node) -> Storage | None:
    """Return the array in memory whose elements are this node's, in the same order."""
    while node.id not in e.bindings.storage and node.inputs and node.inputs[0].size == node.size:
        if not node.spec.keeps_order:
            break
        node = node.inputs[0]
    return e.bindings.storage.get(node.id)


def stack(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    axis = int(node.params["axis"]) % len(node.shape)
    i, operand_index = index[axis], (*index[:axis], *index[axis + 1 :])
    if isinstance(i, int):
        return e.emit_element(node.inputs[i], operand_index)
    last = len(node.inputs) - 1

    def emit(depth: int, operand: Node) -> Expr:
        return e.emit_element(operand, operand_index)

    cases: list[Case] = [
        (compose(f"{i} == {k}", i) if k < last else None, partial(emit, operand=operand))
        for k, operand in enumerate(node.inputs)
    ]
    return _emit_cases(e, node, cases, e.index_depth(index))


def pad(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand, value = node.inputs
    tests = list[str]()
    operand_index: list[Index] = []
    for i, n, (low, _, inner) in zip(index, operand.shape, node.params["padding_config"], strict=True):
        if inner:
            raise NotFusible("padding between elements")
        operand_index.append(e.add_index(i, -int(low)))
        tests.append(f"{operand_index[-1]} >= 0 && {operand_index[-1]} < {n}")
    depth = e.index_depth(index)

    def emit(depth: int) -> Expr:
        indices = [i if isinstance(i, int) else e.declare("int32", i, depth) for i in operand_index]
        return e.emit_element(operand, indices)

    is_inside = compose(" && ".join(tests), *operand_index)
    return _emit_cases(e, node, [(is_inside, emit), (None, lambda depth: e.emit_element(value, ()))], depth)


def tile(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand = node.inputs[0]
    operand_index: list[Index] = []
    for i, n, m in zip(index, operand.shape, node.shape, strict=True):
        if isinstance(i, int):
            operand_index.append(i % n)
        else:
            operand_index.append(i if n == m else e.declare("int32", compose(f"{i} % {n}", i)))
    return e.emit_element(operand, operand_index)


def index_row(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand, position = node.inputs
    return e.emit_element(operand, (e.emit_element(position, ()), *index))


def clamp_index(e: ElementEmitter, start: Expr, limit: int, node: Node) -> Index:
    """Clamp an index to [0, limit]; node: the array that it is an element of."""
    if limit == 0:
        return 0
    index_range = value_range(node)
    if index_range is not None and 0 <= index_range[0] <= index_range[1] <= limit:
        return start if node.dtype == "int32" else e.declare("int32", compose(f"(int){start}", start))
    if _is_natural(start, node):
        return min(int(start.text), limit)
    return e.declare("int32", compose(f"(int)({start} < 0 ? 0 : {start} > {limit} ? {limit} : {start})", start))


def dynamic_slice(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand, starts = node.inputs[0], node.inputs[1:]
    operand_index = [
        e.add_index(clamp_index(e, e.emit_element(s, ()), n - m, s), i)
        for s, n, m, i in zip(starts, operand.shape, node.shape, index, strict=True)
    ]
    return e.emit_element(operand, operand_index)


def dynamic_update_slice(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand, update = node.inputs[0], node.inputs[1]
    starts = [
        clamp_index(e, e.emit_element(s, ()), n - m, s)
        for s, n, m in zip(node.inputs[2:], operand.shape, update.shape, strict=True)
    ]
    return _emit_window(e, node, index, starts, list(update.shape), lambda offsets: e.emit_element(update, offsets))


def _emit_window(
    e: ElementEmitter,
    node: Node,
    index: tuple[Index, ...],
    starts: Sequence[Index],
    sizes: Sequence[int],
    read: Callable[[list[Index]], Expr],
    bounds_tests: Sequence[Expr] = (),
) -> Expr:
    """Emit an element of the first input or, within a window, of the update."""
    tests = list(bounds_tests)
    depth = e.index_depth([*index, *starts])
    offsets: list[Index] = []
    for i, start, n, size in zip(index, starts, node.shape, sizes, strict=True):
        if isinstance(i, int) and isinstance(start, int):
            offsets.append(i - start)
            if not 0 <= i - start < size:
                return e.emit_element(node.inputs[0], index)
            continue
        if size == n and start == 0:
            offsets.append(i)
            continue
        offset = e.declare("int32", compose(f"{i} - {start}", i, start), depth)
        offsets.append(offset)
        tests.append(compose(f"{offset} >= 0 && {offset} < {size}", offset))
    if not tests:
        return read(offsets)

    def emit(depth: int) -> Expr:
        indices = [d if isinstance(d, int) else e.declare("int32", d, depth) for d in offsets]
        value = read(indices)
        if node.spec.combiner:
            current = e.emit_element(node.inputs[0], index)
            return e.declare(node.dtype, combine(node.spec.combiner, node.dtype, current, value), depth)
        return value

    outside: Case = (None, lambda depth: e.emit_element(node.inputs[0], index))
    return _emit_cases(e, node, [(compose(" && ".join(map(str, tests)), *tests), emit), outside], depth)


def gather(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    operand, indices = node.inputs
    numbers = node.params["dimension_numbers"]
    sizes, mode = node.params["slice_sizes"], str(node.params["mode"]).upper()
    offset_dims = list(numbers.offset_dims)
    batch = [index[a] for a in range(len(index)) if a not in offset_dims]
    removed = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    offsets = iter(index[a] for a in offset_dims)
    operand_index: list[Index] = [0 if a in removed else next(offsets) for a in range(len(operand.shape))]
    for a, b in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        operand_index[a] = batch[b]
    out_of_bounds = list[Expr]()
    for k, axis in enumerate(numbers.start_index_map):
        limit = operand.shape[axis] - int(sizes[axis])
        start = e.emit_element(indices, (*batch, k))
        # even promised indices are clamped, as XLA does: here one out of bounds would end the process
        operand_index[axis] = e.add_index(operand_index[axis], clamp_index(e, start, limit, indices))
        if "FILL" in mode:
            out_of_bounds.append(compose(f"{start} < 0 || {start} > {limit}", start))
    if not out_of_bounds:
        return e.emit_element(operand, operand_index)
    value = e.emit_element(operand, operand_index)
    depth = e.index_depth([*operand_index, *index])
    fill = node.params.get("fill_value")
    if fill is None:
        fill = math.nan if node.dtype.startswith("float") else _out_of_bounds_fill(node.dtype)
    text = f"({' || '.join(map(str, out_of_bounds))} ? {c_literal(fill, node.dtype)} : {value})"
    return e.declare(node.dtype, compose(text, value, *out_of_bounds), max(depth, value.depth))


def _is_natural(start: Expr, node: Node) -> bool:
    """True if an element of an array of indices is a constant of at least 0."""
    return node.dtype == "int32" and start.literal is not None and start.literal >= 0


def _trust_index(e: ElementEmitter, start: Expr, node: Node) -> Index:
    if _is_natural(start, node):
        return int(start.text)
    return e.declare("int32", compose(f"(int){start}", start))


def _out_of_bounds_fill(dtype: str) -> int:
    if dtype == "bool":
        return 1
    return -(2 ** (int(dtype[3:]) - 1)) if dtype.startswith("i") else 2 ** int(dtype[4:]) - 1


def scatter(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit an element of a scatter of a single window."""
    if not is_single_window_scatter(node):
        raise NotFusible("a scatter where none was planned")  # unreachable: reductions.py emits those
    operand, indices, updates = node.inputs
    numbers = node.params["dimension_numbers"]
    batch_axes = [a for a in range(len(updates.shape)) if a not in numbers.update_window_dims]
    inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    sizes, window = [], iter(numbers.update_window_dims)
    for axis in range(len(operand.shape)):
        sizes.append(1 if axis in inserted else updates.shape[next(window)])
    starts: list[Index] = [0] * len(operand.shape)
    bounds_tests = list[Expr]()
    for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
        start = e.emit_element(indices, (*[0] * (len(indices.shape) - 1), k))
        limit = operand.shape[axis] - sizes[axis]
        mode = str(node.params["mode"]).upper()
        if "CLIP" in mode:
            starts[axis] = clamp_index(e, start, limit, indices)
        else:
            starts[axis] = _trust_index(e, start, indices)
            if isinstance(starts[axis], int):
                if not 0 <= starts[axis] <= limit:
                    return e.emit_element(operand, index)
            elif "PROMISE" not in mode:
                bounds_tests.append(compose(f"{start} >= 0 && {start} <= {limit}", start))

    def read(offsets: list[Index]) -> Expr:
        update_index: list[Index] = [0] * len(updates.shape)
        window_offsets = [i for axis, i in enumerate(offsets) if axis not in inserted]
        for axis, i in zip(numbers.update_window_dims, window_offsets, strict=True):
            update_index[axis] = i
        assert all(updates.shape[a] == 1 for a in batch_axes)
        return e.emit_element(updates, update_index)

    return _emit_window(e, node, index, starts, sizes, read, bounds_tests)
