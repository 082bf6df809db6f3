"""Memory of arrays: which are updated in place, and which share bytes of shared memory.

A loop-carried array can be updated in place if no element is read after it is overwritten: readers in earlier stages
are separated by a barrier, and within the stage that writes it only the writing thread reads the element. It then needs
half the memory, and elements that keep their value are not stored at all.

Arrays whose live ranges do not overlap share the same bytes. Liveness is computed from the generated source: first to
last mention, widened to enclosing loops. Between the live ranges of two arrays at one address there must be a barrier.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from galapax.fused.array_ir import Node, postorder
from galapax.fused.c_expressions import ALIGNMENT_BYTES, ITEM_BYTES
from galapax.fused.element_codegen import Buffer
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


GENERATION_LOOP = "for (; g < count; g++)"
_FULL_STORE = r"\s*(?:if \((?:lane == 0|k\d+ < \d+)\) )?{}\[.*\] = "  # stores every element
_BUFFER_SWAP = re.compile(r"\s*\{ .*\*p\d+ = (b\d+); \1 = (b\d+); \2 = p\d+; \}")


@dataclass(eq=False)
class SourceScope:
    """A pair of braces, from line to line. barriers: the lines of those in it but in no scope inside it."""

    first: int
    parent: SourceScope | None
    is_loop: bool
    last: int
    barriers: list[int] = field(default_factory=list)

    def enclosing(self) -> list[SourceScope]:
        """Return this scope and those around it, innermost first."""
        return [self, *(self.parent.enclosing() if self.parent is not None else [])]


class LiveRange(NamedTuple):
    """The lines between which an array is live, and the innermost scope that contains them."""

    first: int
    last: int
    scope: SourceScope


def padded_bytes(buffer: Buffer) -> int:
    """Return the bytes of an array, padded to the alignment."""
    return -(-max(1, buffer.size) * ITEM_BYTES[buffer.dtype] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def allocate_shared_memory(lines: Sequence[str], buffers: Sequence[Buffer], start: int, end: int) -> dict[str, int]:
    """Return the offsets, in [start, end), of the arrays that fit: those of inner loops first, then small ones."""
    scopes = _parse_scopes(lines)  # of each line
    mentions = {b.name: [n for n, line in enumerate(lines) if re.search(rf"\b{b.name}\b", line)] for b in buffers}
    live_ranges = _find_live_ranges(lines, scopes, mentions)
    loop_depths = {name: max((_loop_depth(scopes[n]) for n in at), default=0) for name, at in mentions.items()}
    sizes, offsets = {b.name: padded_bytes(b) for b in buffers}, dict[str, int]()
    for name in sorted(mentions, key=lambda name: (-loop_depths[name], sizes[name])):
        occupied = [
            (offsets[other], offsets[other] + sizes[other])
            for other in offsets
            if not _can_share_memory(live_ranges.get(name), live_ranges.get(other))
        ]
        offset = start
        for first, limit in sorted(occupied):
            if offset + sizes[name] <= first:
                break
            offset = max(offset, limit)
        if offset + sizes[name] <= end:
            offsets[name] = offset
    return offsets


def _parse_scopes(lines: Sequence[str]) -> list[SourceScope]:
    """Return the innermost scope of each line; a line that opens one belongs to it."""
    scope, scopes = SourceScope(0, None, False, len(lines)), []
    for number, line in enumerate(lines):
        text = line.strip()
        if text in ("BARRIER", "BLOCK_BARRIER"):
            scope.barriers.append(number)
        opened = text.count("{") - text.count("}")
        if opened > 0:
            scope = SourceScope(number, scope, text.startswith(("for", "STEPS_OF")), len(lines))
        scopes.append(scope)
        if opened < 0 and scope.parent is not None:
            scope.last, scope = number, scope.parent
    return scopes


def _find_live_ranges(
    lines: Sequence[str], scopes: list[SourceScope], mentions: dict[str, list[int]]
) -> dict[str, LiveRange]:
    """Return the live ranges of arrays that hold no value from one generation to the next."""
    partners: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines):
        if swap := _BUFFER_SWAP.match(line):  # from then on either name may stand for either buffer
            a, b = swap.groups()
            partners |= {a: (b, number), b: (a, number)}
    live_ranges = {}
    for name, line_numbers in mentions.items():
        if not line_numbers:
            continue
        other, swap_line = partners.get(name, (name, line_numbers[0]))
        first, last = min(line_numbers[0], mentions[other][0]), max(line_numbers[-1], mentions[other][-1])
        inner_loops = [s for s in scopes[swap_line].enclosing() if s.is_loop and not _is_generation_loop(lines, s)]
        first_line = lines[line_numbers[0]]
        is_full_store = re.match(_FULL_STORE.format(name), first_line) and first_line.count(name) == 1
        if (other != name and not inner_loops) or (other == name and not is_full_store):
            continue
        mentioning = {s for n in (*line_numbers, *mentions[other]) for s in scopes[n].enclosing()}
        for scope in sorted(mentioning, key=lambda s: -s.first):
            if scope.is_loop and not _is_generation_loop(lines, scope):
                first, last = min(first, scope.first), max(last, scope.last)
        enclosing = [s for s in scopes[first].enclosing() if s.first <= first and last <= s.last]
        if any(_is_generation_loop(lines, s) for s in enclosing):
            live_ranges[name] = LiveRange(first, last, enclosing[0])
    return live_ranges


def _loop_depth(scope: SourceScope) -> int:
    """Return the number of loops around a scope, itself included."""
    return sum(s.is_loop for s in scope.enclosing())


def _is_generation_loop(lines: Sequence[str], scope: SourceScope) -> bool:
    """True if a scope is the loop over generations."""
    return lines[scope.first].strip().startswith(GENERATION_LOOP)


def _can_share_memory(a: LiveRange | None, b: LiveRange | None) -> bool:
    """True if a barrier separates two live ranges, in this generation and from the next."""
    if a is None or b is None:
        return False
    a, b = (a, b) if a.first < b.first else (b, a)
    scopes_a, scopes_b = a.scope.enclosing(), b.scope.enclosing()
    is_between = any(a.last < barrier < b.first for s in scopes_a if s in scopes_b for barrier in s.barriers)
    is_after = any(barrier > b.last for s in scopes_b[:-1] for barrier in s.barriers)
    is_before = any(barrier < a.first for s in scopes_a[:-1] for barrier in s.barriers)
    return is_between and (is_after or is_before)
