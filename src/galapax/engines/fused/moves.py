"""Where an element comes from: operations that move elements and compute none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from galapax.engines.fused.graph import Node, NotFusible
from galapax.engines.fused.loops import single
from galapax.engines.fused.places import Index, Ref
from galapax.engines.fused.ranges import span
from galapax.engines.fused.rules import combine, ctype, literal

if TYPE_CHECKING:
    from galapax.engines.fused.emit import Emitter

Rule = Callable[["Emitter", Node, tuple[Any, ...]], Any]


def broadcast(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given = node.inputs[0]
    return e.at(given, [index[int(a)] for a in node.params["broadcast_dimensions"]])


def reshape(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given = node.inputs[0]
    if node.params.get("dimensions") is not None:
        raise NotFusible("a reshape in another order")
    own, theirs = [n for n in node.shape if n != 1], [n for n in given.shape if n != 1]
    if own == theirs:
        kept = iter(i for i, n in zip(index, node.shape, strict=True) if n != 1)
        return e.at(given, [0 if n == 1 else next(kept) for n in given.shape])
    place = e.flat(index, node.shape)
    if not isinstance(place, int):
        place = e.variable("int32", place.text, place.depth)
    return e.at(given, e.spread(place, given.shape))


def squeeze(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given, own = node.inputs[0], iter(index)
    gone = {int(a) % len(given.shape) for a in node.params["dimensions"]}
    return e.at(given, [0 if a in gone else next(own) for a in range(len(given.shape))])


def expand_dims(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    added = {int(a) for a in node.params["dimensions"]}
    return e.at(node.inputs[0], [i for a, i in enumerate(index) if a not in added])


def transpose(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    full: list[Any] = [0] * len(index)
    for i, axis in zip(index, node.params["permutation"], strict=True):
        full[int(axis)] = i
    return e.at(node.inputs[0], full)


def cut(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    steps = node.params["strides"] or [1] * len(index)
    starts = node.params["start_indices"]
    return e.at(
        node.inputs[0],
        [e.plus(e.times(i, int(s)), int(a)) for i, s, a in zip(index, steps, starts, strict=True)],
    )


def reverse(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    flipped = {int(a) for a in node.params["dimensions"]}
    return e.at(node.inputs[0], [_mirrored(e, i, node.shape[a]) if a in flipped else i for a, i in enumerate(index)])


def _mirrored(e: Emitter, i: Index, n: int) -> Index:
    return n - 1 - i if isinstance(i, int) else type(i)(f"({n - 1} - {i.text})", i.depth)


def iota(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    i = index[node.params["dimension"]]
    if isinstance(i, int):
        return Ref(literal(i, node.kind), 0)
    return e.variable(node.kind, f"({ctype(node.kind)}){i.text}", i.depth)


def _either(e: Emitter, node: Node, cases: Sequence[tuple[str | None, int, Callable[[int], Ref]]], depth: int) -> Ref:
    """An element that comes from one place or another, each read only if it is the one: (condition, ...)."""
    made = e.name()
    with e.outside(depth):
        written, texts, before = [], [], list[str]()
        for number, (test, _, write) in enumerate(cases):
            head = "else" if test is None else f"{'else ' if number else ''}if ({test})"
            with e.detached() as scope, e.reading(" && ".join([*before, *([f"({test})"] if test else [])])):
                texts.append(write(len(e.scopes) - 1).text)
            before.append(f"!({test})")
            written.append((head, scope))
        e.line(f"{ctype(node.kind)} {made};")
        if e.host and all(line.startswith("const ") for _, scope in written for line in scope.lines):
            _chosen(e, made, [test for test, _, _ in cases], texts, [scope.lines for _, scope in written])
        else:
            for (_, scope), text in zip(written, texts, strict=True):
                scope.lines.append(f"{made} = {text};")
            e.branches(written)
    return Ref(made, depth)


def _chosen(e: Emitter, made: str, tests: list[str | None], texts: list[str], lines: list[list[str]]) -> None:
    """All cases without a branch, which would keep the compiler from making several elements at once."""
    for own in lines:
        for line in own:
            e.line(line)
    value = texts[-1]
    for test, text in zip(reversed(tests[:-1]), reversed(texts[:-1]), strict=True):
        value = f"({test}) ? {text} : {value}"
    e.line(f"{made} = {value};")


def concatenate(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    axis = int(node.params["dimension"])
    ends, total = [], 0
    for part in node.inputs:
        total += part.shape[axis]
        ends.append(total)
    i = index[axis]
    if isinstance(i, int):
        which = next(k for k, end in enumerate(ends) if i < end)
        start = ends[which] - node.inputs[which].shape[axis]
        return e.at(node.inputs[which], (*index[:axis], i - start, *index[axis + 1 :]))
    cases: list[tuple[str | None, int, Callable[[int], Ref]]] = []
    for k, part in enumerate(node.inputs):
        start = ends[k] - part.shape[axis]
        if not part.shape[axis]:
            continue

        def write(depth: int, part: Node = part, start: int = start) -> Ref:
            own: Index = e.variable("int32", f"{i.text} - {start}", depth) if part.shape[axis] > 1 else 0
            return e.at(part, (*index[:axis], own, *index[axis + 1 :]))

        cases.append((f"{i.text} < {ends[k]}" if ends[k] < total else None, k, write))
    depth = e.depth(index)
    if len(cases) == 1:
        return cases[0][2](depth)
    if not e.host and math.prod(node.shape[:axis]) == 1 and (found := _one_of_two(e, node, axis, index)):
        return found
    return _either(e, node, cases, depth)


def _one_of_two(e: Emitter, node: Node, axis: int, index: tuple[Index, ...]) -> Ref | None:
    """An element of two arrays one after the other, both in memory: read without a branch, so that several are read at
    the same time.
    """
    bases = [_in_memory(e, part) for part in node.inputs]
    if len(bases) != 2 or not all(isinstance(base, str) for base in bases):
        return None
    i, flat, first = index[axis], e.flat(index, node.shape), node.inputs[0]
    assert isinstance(i, Ref) and isinstance(flat, Ref)
    e.looked = True
    text = f"({i.text} < {first.shape[axis]} ? {bases[0]} : {bases[1]} - {first.size})[{flat.text}]"
    return e.variable(node.kind, text, max(flat.depth, e.base))


def _in_memory(e: Emitter, node: Node) -> str | list[str] | None:
    """Where an array lies whose elements have the same order as this one's."""
    while node.number not in e.places and node.inputs and node.inputs[0].size == node.size:
        if node.op not in ("reshape", "squeeze", "expand_dims", "broadcast_in_dim"):
            break
        node = node.inputs[0]
    return e.places.get(node.number)


def stack(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    axis = int(node.params["axis"]) % len(node.shape)
    i, rest = index[axis], (*index[:axis], *index[axis + 1 :])
    if isinstance(i, int):
        return e.at(node.inputs[i], rest)
    last = len(node.inputs) - 1
    cases = [
        (f"{i.text} == {k}" if k < last else None, k, lambda depth, part=part: e.at(part, rest))
        for k, part in enumerate(node.inputs)
    ]
    return _either(e, node, cases, e.depth(index))


def pad(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given, value = node.inputs
    tests, own = [], []
    for i, n, (low, _, inner) in zip(index, given.shape, node.params["padding_config"], strict=True):
        if inner:
            raise NotFusible("padding between elements")
        own.append(e.plus(i, -int(low)))
        text = own[-1] if isinstance(own[-1], int) else own[-1].text
        tests.append(f"{text} >= 0 && {text} < {n}")
    depth = e.depth(index)

    def inside(depth: int) -> Ref:
        here = [i if isinstance(i, int) else e.variable("int32", i.text, depth) for i in own]
        return e.at(given, here)

    return _either(e, node, [(" && ".join(tests), 0, inside), (None, 1, lambda depth: e.at(value, ()))], depth)


def tile(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given = node.inputs[0]
    own: list[Index] = []
    for i, n, m in zip(index, given.shape, node.shape, strict=True):
        if isinstance(i, int):
            own.append(i % n)
        else:
            own.append(i if n == m else e.variable("int32", f"{i.text} % {n}", i.depth))
    return e.at(given, own)


def row(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given, place = node.inputs
    return e.at(given, (e.at(place, ()), *index))


def clamped(e: Emitter, start: Ref, most: int, node: Node) -> Index:
    """An index within bounds; node: the array that it is an element of."""
    if most == 0:
        return 0
    bounds = span(node)
    if bounds is not None and 0 <= bounds[0] <= bounds[1] <= most:
        return start if node.kind == "int32" else e.variable("int32", f"(int){start.text}", start.depth)
    if start.text.isdigit():
        return min(int(start.text), most)
    return e.variable(
        "int32", f"(int)({start.text} < 0 ? 0 : {start.text} > {most} ? {most} : {start.text})", start.depth
    )


def dynamic_slice(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given, starts = node.inputs[0], node.inputs[1:]
    own = [
        e.plus(clamped(e, e.at(s, ()), n - m, s), i)
        for s, n, m, i in zip(starts, given.shape, node.shape, index, strict=True)
    ]
    return e.at(given, own)


def dynamic_update_slice(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given, update, starts = node.inputs[0], node.inputs[1], node.inputs[2:]
    begins = [clamped(e, e.at(s, ()), n - m, s) for s, n, m in zip(starts, given.shape, update.shape, strict=True)]
    return _window(e, node, index, begins, list(update.shape), lambda own: e.at(update, own), None)


def _window(
    e: Emitter,
    node: Node,
    index: tuple[Index, ...],
    begins: Sequence[Index],
    sizes: Sequence[int],
    read: Callable[[list[Index]], Ref],
    valid: str | None,
) -> Ref:
    """An element of the first input, or within a window one of another array."""
    tests = [valid] if valid else []
    depth = e.depth([*index, *begins])
    differences: list[Index] = []
    for i, begin, n, size in zip(index, begins, node.shape, sizes, strict=True):
        if isinstance(i, int) and isinstance(begin, int):
            differences.append(i - begin)
            if not 0 <= i - begin < size:
                return e.at(node.inputs[0], index)
            continue
        a, b = (v if isinstance(v, int) else v.text for v in (i, begin))
        if size == n and begin == 0:
            differences.append(i)
            continue
        d = e.variable("int32", f"{a} - {b}", depth)
        differences.append(d)
        tests.append(f"{d.text} >= 0 && {d.text} < {size}")
    if not tests:
        return read(differences)

    def inside(depth: int) -> Ref:
        own = [d if isinstance(d, int) else e.variable("int32", d.text, depth) for d in differences]
        value = read(own)
        if node.op != "scatter" and node.op.startswith("scatter"):
            before, operation = e.at(node.inputs[0], index), node.op.removeprefix("scatter-")
            return e.variable(node.kind, combine(operation, node.kind, before.text, value.text), depth)
        return value

    return _either(
        e, node, [(" && ".join(tests), 0, inside), (None, 1, lambda depth: e.at(node.inputs[0], index))], depth
    )


def gather(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given, indices = node.inputs
    numbers = node.params["dimension_numbers"]
    sizes, mode = node.params["slice_sizes"], str(node.params["mode"]).upper()
    offset_dims = list(numbers.offset_dims)
    batch = [index[a] for a in range(len(index)) if a not in offset_dims]
    removed = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    offsets = iter(index[a] for a in offset_dims)
    own: list[Index] = [0 if a in removed else next(offsets) for a in range(len(given.shape))]
    for a, b in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        own[a] = batch[b]
    outside = []
    for k, axis in enumerate(numbers.start_index_map):
        most = given.shape[axis] - int(sizes[axis])
        start = e.at(indices, (*batch, k))
        # what was promised is not relied on: XLA clamps, too, and here a wrong index would end the process
        own[axis] = e.plus(own[axis], clamped(e, start, most, indices))
        if "FILL" in mode:
            outside.append(f"{start.text} < 0 || {start.text} > {most}")
    if not outside:
        return e.at(given, own)
    value = e.at(given, own)
    tests = e.depth([*own, *index])
    fill = node.params.get("fill_value")
    if fill is None:
        fill = math.nan if node.kind.startswith("float") else _least(node.kind)
    return e.variable(
        node.kind, f"({' || '.join(outside)} ? {literal(fill, node.kind)} : {value.text})", max(tests, value.depth)
    )


def _promised(e: Emitter, start: Ref) -> Index:
    if start.text.isdigit():
        return int(start.text)
    return e.variable("int32", f"(int){start.text}", start.depth)


def _least(kind: str) -> int:
    if kind == "bool":
        return 1
    return -(2 ** (int(kind[3:]) - 1)) if kind.startswith("i") else 2 ** int(kind[4:]) - 1


def scatter(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    """A scatter of one window."""
    if not single(node):
        raise NotFusible("a scatter where none was planned")  # never: collective.py makes it
    given, indices, updates = node.inputs
    numbers = node.params["dimension_numbers"]
    batch_axes = [a for a in range(len(updates.shape)) if a not in numbers.update_window_dims]
    inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    sizes, window = [], iter(numbers.update_window_dims)
    for axis in range(len(given.shape)):
        sizes.append(1 if axis in inserted else updates.shape[next(window)])
    begins: list[Index] = [0] * len(given.shape)
    valid = []
    for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
        start = e.at(indices, (*[0] * (len(indices.shape) - 1), k))
        most = given.shape[axis] - sizes[axis]
        mode = str(node.params["mode"]).upper()
        if "CLIP" in mode:
            begins[axis] = clamped(e, start, most, indices)
        else:
            begins[axis] = _promised(e, start)
            if isinstance(begins[axis], int):
                if not 0 <= begins[axis] <= most:
                    return e.at(given, index)
            elif "PROMISE" not in mode:
                valid.append(f"{start.text} >= 0 && {start.text} <= {most}")

    def read(own: list[Index]) -> Ref:
        full: list[Any] = [0] * len(updates.shape)
        kept = [i for axis, i in enumerate(own) if axis not in inserted]
        for axis, i in zip(numbers.update_window_dims, kept, strict=True):
            full[axis] = i
        assert all(updates.shape[a] == 1 for a in batch_axes)
        return e.at(updates, full)

    return _window(e, node, index, begins, sizes, read, " && ".join(valid) or None)


MOVES: dict[str, Rule] = {
    "broadcast_in_dim": broadcast,
    "reshape": reshape,
    "squeeze": squeeze,
    "expand_dims": expand_dims,
    "transpose": transpose,
    "slice": cut,
    "rev": reverse,
    "iota": iota,
    "concatenate": concatenate,
    "stack": stack,
    "pad": pad,
    "tile": tile,
    "row": row,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    "scatter": scatter,
    "scatter-add": scatter,
    "scatter-max": scatter,
    "scatter-min": scatter,
}
