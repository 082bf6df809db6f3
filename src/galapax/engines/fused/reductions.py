"""Sums over the population: each thread's own part, each warp's, each block's, and how all learn the whole.

In a team of blocks there are several ways. In a cluster each block writes its part into the others' shared memory. On
a whole device parts are added to one number in memory, where the order does not matter; where it does, they are
written side by side, and each block fetches all of them. What only the history needs is fetched by one warp alone,
while the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from galapax.engines.fused.graph import Node
from galapax.engines.fused.loops import axes_of, lengths, loop_axes, reduces
from galapax.engines.fused.places import Index, Ref
from galapax.engines.fused.rules import REDUCTIONS, SHORT, ctype, neutral

if TYPE_CHECKING:
    from galapax.engines.fused.regions import Regions

OWN, SPREAD, MET, LATE, FETCHED = "own", "spread", "met", "late", "fetched"
Totals = list[tuple[str, str]]
Slots = dict[int, list[int]]


def meets(root: Node) -> bool:
    """Whether its parts may be put together in any order, with the same result to the bit."""
    whole = not root.inputs[0].kind.startswith("float") and root.kind != "bool"
    return root.op in ("reduce_max", "reduce_min") or (root.op == "reduce_sum" and whole)


def _content(root: Node) -> Node:
    """What it is about, whatever the shape."""
    node = root.inputs[0]
    while node.op in ("reshape", "squeeze", "expand_dims", "broadcast_in_dim") and node.inputs[0].size == node.size:
        node = node.inputs[0]
    return node


def values_of_places(level: Sequence[Node]) -> dict[int, tuple[Node, Node]]:
    """The least or greatest of numbers whose place is wanted, too: they are found with it. {number: (value, place)}."""
    both = {("reduce_min", "argmin"), ("reduce_max", "argmax")}
    whole = [r for r in level if r.size == 1 and reduces(r)]
    pairs = ((a, b) for a in whole for b in whole if (a.op, b.op) in both and _content(a) is _content(b))
    return {a.number: (a, b) for a, b in pairs}


def begun(e: Regions, root: Node) -> Totals:
    """Variables for what a thread has seen: the value, and for argmin the place."""
    kind = root.inputs[0].kind
    made = []
    for _ in range(root.size):
        value, place = e.name("s"), e.name("s")
        if root.op in REDUCTIONS:
            e.line(f"TOTAL({ctype(kind)}, {value}, {neutral(REDUCTIONS[root.op], kind)});")
        else:
            none = neutral("min" if root.op == "argmin" else "max", kind)
            e.line(f"TOTAL_BEST({ctype(kind)}, {value}, {place}, {none});")
        made.append((value, place))
    return made


def folds(root: Node, totals: Totals, turn: str) -> list[str]:
    """What the host does after some turns of a loop, see prelude.py."""
    if root.op in REDUCTIONS:
        return [f"FOLD({_name(root)}, {value}, {turn})" for value, _ in totals]
    return [f"FOLD_BEST({_name(root)}, {value}, {place}, {turn})" for value, place in totals]


def accumulate(e: Regions, root: Node, index: Sequence[Index], totals: Totals, guard: str, again: bool) -> None:
    """Add what a thread meets at a place of its loop. again: it is not the first place of this turn."""
    given, axes = root.inputs[0], [int(a) for a in root.params["axes"]]
    if root.size == 1:
        for number, full in enumerate(e.each(given.shape, axes_of(root), index)):
            _add(e, root, full, axes, guard, again or number > 0, *totals[0])
        return
    free = [a for a in range(len(given.shape)) if a not in axes]
    reduced = lengths(given.shape, tuple(axes))
    for turn, inner in enumerate(e.each(reduced, loop_axes(reduced), index)):
        for number, total in enumerate(totals):
            place: list[Index] = [0] * len(given.shape)
            for a, i in zip([*axes, *free], [*inner, *e.spread(number, root.shape)], strict=True):
                place[a] = i
            _add(e, root, place, axes, guard, again or turn > 0, *total)


def _add(
    e: Regions, root: Node, full: list[Index], axes: list[int], guard: str, again: bool, value: str, place: str
) -> None:
    part, too = e.at(root.inputs[0], full), "_TOO" if again else ""
    if root.op in REDUCTIONS:
        e.line(f"{guard}SEEN{too}({_name(root)}, {value}, {e.turn}, {part.text});")
        return
    here = full[axes[0]]
    assert isinstance(here, Ref)
    # a thread's places rise
    e.line(f"{guard}SEEN_BEST{too}({_name(root)}, {value}, {place}, {e.turn}, {part.text}, {here.text});")


def _name(root: Node) -> str:
    kind = SHORT[root.inputs[0].kind]
    if root.op in REDUCTIONS:
        return f"{REDUCTIONS[root.op]}_{kind}"
    return f"{'least' if root.op == 'argmin' else 'most'}_{kind}"


def _none(root: Node) -> str:
    return neutral(REDUCTIONS[root.op], root.inputs[0].kind)


def give(e: Regions, reductions: list[Node], slots: Slots, totals: dict[int, Totals]) -> None:
    """Each warp's part, for its block."""
    for root in reductions:
        for (value, place), slot in zip(totals[root.number], slots[root.number], strict=True):
            if root.op in REDUCTIONS:
                e.line(f"GIVE({_name(root)}, {value}, {slot});")
            else:
                e.line(f"GIVE_BEST({_name(root)}, {value}, {place}, {slot});")


def pass_on(e: Regions, reductions: list[Node], slots: Slots, ways: dict[int, str]) -> None:
    """Each block's part, for the others of a team: the warps of a block share out its reductions."""
    every = [(r, slot) for r in reductions if ways[r.number] != OWN for slot in slots[r.number]]
    if every:
        e.line("BLOCK_BARRIER")
    for number, (root, slot) in enumerate(every):
        if root.op not in REDUCTIONS:
            e.line(f"PASS_BEST({_name(root)}, {slot}, {number});")
        else:
            action = "MEET" if ways[root.number] == MET else "PASS"
            e.line(f"{action}({_name(root)}, {_none(root)}, {slot}, {number});")
        e.met = max(e.met, slot + 1) if ways[root.number] == MET else e.met


def take_value(e: Regions, value: Node, place: Node, slots: Slots, totals: dict[int, Totals]) -> None:
    """What lies at the place that a reduction of one block has found."""
    name = e.name("r")
    found = f"OWN_VALUE({_name(place)}, {slots[place.number][0]}, {totals[place.number][0][0]})"
    e.line(f"const {ctype(value.kind)} {name} = {found};")
    e.know(value, [name])


def take(e: Regions, reductions: list[Node], slots: Slots, totals: dict[int, Totals], ways: dict[int, str]) -> None:
    """After a barrier: the whole, for every thread."""
    fetched = [(r, slot) for r in reductions if ways[r.number] == FETCHED for slot in slots[r.number]]
    for number, (root, slot) in enumerate(fetched):
        if root.op in REDUCTIONS:
            e.line(f"FETCH({_name(root)}, {_none(root)}, {slot}, {number});")
        else:
            e.line(f"FETCH_BEST({_name(root)}, {slot}, {number});")
    if fetched:
        e.line("BLOCK_BARRIER")
    for root in reductions:
        names, way = [], {OWN: "OWN_", LATE: "LATE_"}.get(ways[root.number], "")
        for slot, (value, place) in zip(slots[root.number], totals[root.number], strict=True):
            names.append(e.name("r"))
            if ways[root.number] == MET:
                text = f"MET({_name(root)}, {slot})"
            elif root.op in REDUCTIONS:
                text = f"{way}TAKE({_name(root)}, {_none(root)}, {slot}, {value})"
            else:
                text = f"{way}TAKE_BEST({_name(root)}, {slot}, {place})"
            e.line(f"const {ctype(root.kind)} {names[-1]} = {text};")
        e.know(root, names)
    e.unmet += [slot for r in reductions if ways[r.number] == MET for slot in slots[r.number]]
