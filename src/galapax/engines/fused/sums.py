"""Sums that a thread, or a group of threads, makes on the way to an element: along a row, over a few others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from galapax.engines.fused.graph import Node, NotFusible
from galapax.engines.fused.loops import WRITTEN_OUT, reduced_length
from galapax.engines.fused.places import Index, Ref, known_by
from galapax.engines.fused.rules import REDUCTIONS, RUNNING, SHORT, combine, ctype, literal, neutral

if TYPE_CHECKING:
    from galapax.engines.fused.emit import Emitter

HELD = 8  # numbers that a thread reads at once for a sum


def fetch(e: Emitter, node: Node, index: tuple[Index, ...]) -> None:
    """Read what a thread needs for its steps of a sum that a group shares, before it adds up anything."""
    if e.group is None or len(node.params["axes"]) != 1 or reduced_length(node) < e.split:
        return
    given, turns = node.inputs[0], -(-reduced_length(node) // e.group[0])
    reads = [n for n in e.reads(given) if n.shape == given.shape]
    if not 1 < turns * len(reads) <= HELD:
        return
    made = []
    for read in reads:
        k, held = e.name("k"), e.name("h")
        e.line(f"{ctype(read.kind)} {held}[{turns}];")
        with e.scope(f"FETCH_STEPS({k}, {reduced_length(node)}, GROUP({e.group[0]}))"):
            value = e.at(read, _whole(node, index, [Ref(k, len(e.scopes) - 1)]))
            e.line(f"{held}[turn_{k}] = {value.text};")
        made.append((read, held))
    e.fetched[known_by(node, index)] = made


@contextmanager
def _steps(
    e: Emitter, lengths: Sequence[int], shared: bool = False, fold: str = "", written: bool = False
) -> Iterator[list[Index]]:
    """Loops of one thread over some axes, the longest split among the threads of a group if it is shared.

    fold: what the innermost adds up, see prelude.py: the operation and the name of the total. written: its turns
    are written one after another.
    """
    names = [e.name("k") for _ in lengths]
    opened = []
    split = lengths.index(max(lengths)) if shared else -1
    for place, (name, n) in enumerate(zip(names, lengths, strict=True)):
        within = e.group[0] if place == split and e.group is not None else None
        if fold and place == len(names) - 1:
            folds = f"FOLD({fold}, {name})"
            head = f"STEPS_OF({name}, {n}, {folds})"
            if within is not None:
                head = f"{'WRITTEN_OUT ' * written}GROUP_STEPS_OF({name}, {n}, GROUP({within}), {folds})"
        elif within is not None:
            head = f"SHARED_OUT({name}, {n}, lane, GROUP({within}))"
        else:
            head = f"for (int {name} = 0; {name} < {n}; {name}++)"
        manager = e.scope(head)
        manager.__enter__()
        opened.append((manager, len(e.scopes) - 1))
    yield [Ref(name, depth) for name, (_, depth) in zip(names, opened, strict=True)]
    for manager, _ in reversed(opened):
        manager.__exit__(None, None, None)


def added(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given, axes = node.inputs[0], node.params["axes"]
    operation = REDUCTIONS[node.op]
    lengths = [given.shape[a] for a in axes]
    depth = e.depth(index)
    shared = e.group is not None and e.group[1] == depth and reduced_length(node) >= e.split
    if reduced_length(node) <= WRITTEN_OUT and not shared:
        parts = [e.at(given, _whole(node, index, e.spread(i, lengths))) for i in range(reduced_length(node))]
        depth = max([depth, *(p.depth for p in parts)])
        if not parts:
            return e.variable(node.kind, neutral(operation, node.kind), depth)
        text = parts[0].text
        for part in parts[1:]:
            text = combine(operation, node.kind, text, part.text)
        return e.variable(node.kind, text, depth)
    total = e.name("s")
    with e.outside(depth):
        what = f"{operation}_{SHORT[node.kind]}"
        e.line(f"TOTAL({ctype(node.kind)}, {total}, {neutral(operation, node.kind)});")
        fetched = e.fetched.get(known_by(node, index), ()) if shared else ()
        few = shared and e.group is not None and max(lengths) <= HELD * e.group[0] and len(lengths) == 1
        with _steps(e, lengths, shared, f"{what}, {total}", bool(fetched) or (few and e.waits)) as inner:
            here = _whole(node, index, inner)
            for read, held in fetched:
                value = f"FETCHED({held}, {_text_of(inner[-1])}, {e.at(read, here).text})"
                e.scopes[-1].known[known_by(read, here)] = e.variable(read.kind, value, len(e.scopes) - 1)
            part = e.at(given, here)
            e.line(f"SEEN({what}, {total}, {_text_of(inner[-1])}, {part.text});")
        if shared:
            assert e.group is not None
            e.line(f"{total} = group_{operation}_{SHORT[node.kind]}({total}, GROUP({e.group[0]}));")
    return Ref(total, depth)


def best(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    given, (axis,) = node.inputs[0], node.params["axes"]
    n, depth = given.shape[axis], e.depth(index)
    best, where = e.name("s"), e.name("s")
    test = f"later_{'least' if node.op == 'argmin' else 'most'}_{SHORT[given.kind]}"
    with e.outside(depth):
        first = e.at(given, (*index[:axis], 0, *index[axis:]))
        e.line(f"{ctype(given.kind)} {best} = {first.text}; int {where} = 0;")
        with _steps(e, [n]) as (k,):
            assert isinstance(k, Ref)
            other = e.at(given, (*index[:axis], k, *index[axis:]))
            e.line(f"if ({test}({other.text}, {best}, {where})) "
                      f"{{ {best} = {other.text}; {where} = {k.text}; }}")  # fmt: skip
    return Ref(where, depth)


def product(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    (left, right), (left_batch, right_batch) = node.params["dimension_numbers"]
    a, b = node.inputs
    if a.kind != node.kind or b.kind != node.kind:
        raise NotFusible(f"a product of {a.kind} and {b.kind}")
    batches = len(left_batch)
    free_a = [i for i in range(len(a.shape)) if i not in left and i not in left_batch]
    free_b = [i for i in range(len(b.shape)) if i not in right and i not in right_batch]
    own_a, own_b = index[batches : batches + len(free_a)], index[batches + len(free_a) :]
    lengths = [a.shape[i] for i in left]

    def term(inner: Sequence[Index]) -> str:
        at_a: list[Index] = [0] * len(a.shape)
        at_b: list[Index] = [0] * len(b.shape)
        for axes, values, out in (
            (left_batch, index[:batches], at_a), (free_a, own_a, at_a), (left, inner, at_a),
            (right_batch, index[:batches], at_b), (free_b, own_b, at_b), (right, inner, at_b),
        ):  # fmt: skip
            for axis, value in zip(axes, values, strict=True):
                out[axis] = value
        return combine("mul", node.kind, e.at(a, at_a).text, e.at(b, at_b).text)

    depth, total = e.depth(index), e.name("s")
    with e.outside(depth):
        what = f"add_{SHORT[node.kind]}"
        e.line(f"TOTAL({ctype(node.kind)}, {total}, {literal(0, node.kind)});")
        with _steps(e, lengths, fold=f"{what}, {total}") as inner:
            text = term(inner)
            e.line(f"SEEN({what}, {total}, {_text_of(inner[-1])}, {text});")
    return Ref(total, depth)


def run_up(e: Emitter, node: Node, index: tuple[Index, ...]) -> Ref:
    """A short running sum: each thread adds up to its own place."""
    given, axis, operation = node.inputs[0], node.params["axis"], RUNNING[node.op]
    depth, total, k = e.depth(index), e.name("s"), e.name("k")
    here = index[axis]
    here = here if isinstance(here, Ref) else Ref(str(here), 0)
    start, end = (here.text, str(node.shape[axis] - 1)) if node.params["reverse"] else ("0", here.text)
    with e.outside(depth):
        e.line(f"{ctype(node.kind)} {total} = {neutral(operation, node.kind)};")
        with e.scope(f"for (int {k} = {start}; {k} <= {end}; {k}++)"):
            inner = Ref(k, len(e.scopes) - 1)
            part = e.at(given, (*index[:axis], inner, *index[axis + 1 :]))
            e.line(f"{total} = {combine(operation, node.kind, total, part.text)};")
    return Ref(total, depth)


def _whole(node: Node, index: Sequence[Index], inner: Sequence[Index]) -> tuple[Index, ...]:
    """The place, in what a node adds up, of a step to its element."""
    given, axes = node.inputs[0], node.params["axes"]
    full: list[Index] = [0] * len(given.shape)
    free = [a for a in range(len(given.shape)) if a not in axes]
    for a, i in zip([*free, *axes], [*index, *inner], strict=True):
        full[a] = i
    return tuple(full)


def _text_of(index: Index) -> str:
    return str(index) if isinstance(index, int) else index.text
