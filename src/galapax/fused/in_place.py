"""Which loop-carried arrays are updated in place.

A loop-carried array can be updated in place if no element is read after it is overwritten: readers in earlier stages
are separated by a barrier, and within the stage that writes it only the writing thread reads the element. It then needs
half the memory, and elements that keep their value are not stored at all.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from galapax.fused.array_ir import Node, postorder
from galapax.fused.iteration_domains import (
    axis_lengths,
    dependencies,
    is_collective,
    is_cooperative_reduction,
    loop_shape,
    map_axes,
    thread_axes,
)
from galapax.fused.stages import StagePlan


def find_last_reading_stage(plan: StagePlan, outputs: list[Node], old: Node, new: Node) -> int | None:
    """Return the last stage that reads `old` before the stage that writes `new`, -1 if none; None if not in place."""
    stage_of = {root.id: number for number, roots in enumerate(plan.stages) for root in roots}
    if new.id not in stage_of or is_collective(new) or is_cooperative_reduction(new) or new.op == "alloc":
        return None
    write_stage, stored = stage_of[new.id], stage_of.keys() - plan.deferred_stores
    if old in postorder([n for n in outputs if n.id not in stage_of], lambda n: _operands_until(n, stored)):
        return None  # read after the last stage
    last = -1
    for root in (root for roots in plan.stages for root in roots):
        if old not in postorder(list(dependencies(root)), lambda n: _operands_until(n, stored)):
            continue
        stage = stage_of[root.id]
        if stage > write_stage or (stage == write_stage and not _reads_only_same_element(root, old, new, stored)):
            return None
        last = max(last, stage if stage < write_stage else -1)
    return last


def _operands_until(node: Node, stored: AbstractSet[int]) -> tuple[Node, ...]:
    return () if node.id in stored else dependencies(node)


def _reads_only_same_element(root: Node, old: Node, new: Node, stored: AbstractSet[int]) -> bool:
    """True if a root reads only that element of the old array which its own thread overwrites."""
    if is_collective(root) or loop_shape(root) != loop_shape(new):
        return False
    shape, axes = loop_shape(root), thread_axes(root)
    stack = [(n, axes if is_cooperative_reduction(root) else map_axes(root, n, axes)) for n in dependencies(root)]
    visited = set()
    while stack:
        node, mapped_axes = stack.pop()
        if (node.id, mapped_axes) in visited or (node.id in stored and node is not old):
            continue
        visited.add((node.id, mapped_axes))
        if node is old:
            if mapped_axes is None or mapped_axes != thread_axes(old) or axis_lengths(old.shape, mapped_axes) != shape:
                return False
            continue
        stack.extend((n, None if mapped_axes is None else map_axes(node, n, mapped_axes)) for n in dependencies(node))
    return True
