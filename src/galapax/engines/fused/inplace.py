"""Which arrays a round of a loop may change where they are, instead of writing the next ones beside them.

That holds where nobody reads an element any more once it is written: earlier readers are on the other side of a
barrier, and in the loop that writes it only the thread that does so reads it. Then a half of the memory suffices, and
an element that stays as it was need not be written at all.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from galapax.engines.fused.graph import Node, reach
from galapax.engines.fused.loops import axes_of, collective, inputs, lengths, loop_shape, reduces, through
from galapax.engines.fused.plan import Plan


def last_reader(plan: Plan, outputs: list[Node], old: Node, new: Node) -> int | None:
    """The last level that reads `old` before the one that writes `new`, -1 if none; None if they must lie apart."""
    roots = {root.number: level for level, every in enumerate(plan.levels) for root in every}
    if new.number not in roots or collective(new) or reduces(new) or new.op == "fresh":
        return None
    written, stops = roots[new.number], roots.keys() - plan.aside
    if old in reach([n for n in outputs if n.number not in roots], lambda n: _until(n, stops)):
        return None  # read when all is done
    last = -1
    for root in (root for every in plan.levels for root in every):
        if old not in reach(list(inputs(root)), lambda n: _until(n, stops)):
            continue
        level = roots[root.number]
        if level > written or (level == written and not _same_element(root, old, new, stops)):
            return None
        last = max(last, level if level < written else -1)
    return last


def _until(node: Node, stops: AbstractSet[int]) -> tuple[Node, ...]:
    return () if node.number in stops else inputs(node)


def _same_element(root: Node, old: Node, new: Node, stops: AbstractSet[int]) -> bool:
    """Whether a root reads of an array only the element whose place in the loop is its own."""
    if collective(root) or loop_shape(root) != loop_shape(new):
        return False
    own, axes = loop_shape(root), axes_of(root)
    stack = [(n, axes if reduces(root) else through(root, n, axes)) for n in inputs(root)]
    seen = set()
    while stack:
        node, along = stack.pop()
        if (node.number, along) in seen or (node.number in stops and node is not old):
            continue
        seen.add((node.number, along))
        if node is old:
            if along is None or along != axes_of(old) or lengths(old.shape, along) != own:
                return False
            continue
        stack.extend((n, None if along is None else through(node, n, along)) for n in inputs(node))
    return True
