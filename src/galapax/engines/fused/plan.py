"""Which arrays of a region are written down, and between which barriers.

An array that is not written down is computed wherever one of its elements is read: that is how chains of elementwise
operations, slices and small reductions become one loop. Written down are those that others than the thread which
computed an element read, and those that would otherwise be computed again and again. Loops of the same level need no
barrier between them; each level ends with one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from galapax.engines.fused.costs import CHEAP, DEAR, ENOUGH, costs, weight_of
from galapax.engines.fused.graph import Node, Region, reach
from galapax.engines.fused.loops import (
    BASE,
    CONTROL,
    SCATTERS,
    SHAPING,
    SMALL,
    axes_of,
    collective,
    inputs,
    lengths,
    loop_axes,
    loop_shape,
    reduced_length,
    reduces,
    through,
)
from galapax.engines.fused.rules import ELEMENTWISE, RUNNING

ROW = 64  # steps of a sum that a thread makes on the way; a longer one is written down
RARE = 14  # operations that are worth a branch
# operations that all threads of a block make while it waits once for itself, and for other blocks
WAIT = (2**12, 2**16)


@dataclass
class Plan:
    """stored: numbers of nodes that are written down. levels: the roots of each, in order. rare: nodes that are worth
    computing only where they are chosen. aside: those that are written down for later only, as whoever reads them now
    rather computes them again than waits.
    """

    stored: set[int] = field(default_factory=set)
    levels: list[list[Node]] = field(default_factory=list)
    rare: set[int] = field(default_factory=set)
    aside: set[int] = field(default_factory=set)


def is_root(node: Node, stored: set[int]) -> bool:
    return node.number in stored or node.op in ("fresh", "planes") or reduces(node) or collective(node)


def planned(region: Region, outputs: list[Node], wanted: set[int], done: set[int], team: int = 1) -> Plan:
    """The plan of these outputs of a region.

    wanted: nodes that are to be written down in any case. done: those that already are, or need not be (numbers).
    team: blocks that make a run together; the more, the longer they wait for each other.
    """

    def inputs_of(node: Node) -> tuple[Node, ...]:
        return () if node.number in done or node.region is not region else inputs(node)

    order = [n for n in reach(outputs, inputs_of) if n.region is region and n.number not in done]
    stored = _stored(order, set(wanted))
    stored = _as_chosen(order, stored, wanted, done)
    levels = _levels(order, stored, done)
    # what is written down only to save work is computed again where that saves a barrier worth more
    for node in reversed(order):
        if node.number in stored and node.number not in wanted:
            fewer = stored - {node.number}
            trial = _levels(order, fewer, done)
            if _barriers(trial) < _barriers(levels) and _again(node, order, fewer, trial) <= WAIT[team > 1] * team:
                stored, levels = fewer, trial
    aside: set[int] = set()
    for node in order:
        if node.number in wanted and node.op == "select_n":
            trial = _levels(order, stored, done, aside | {node.number})
            again = _again(node, order, stored - {node.number}, trial)
            if _barriers(trial) < _barriers(levels) and again <= WAIT[team > 1] * team:
                aside, levels = aside | {node.number}, trial
    return Plan(stored, levels, _rare(order, stored), aside)


def _as_chosen(order: list[Node], stored: set[int], wanted: set[int], done: set[int]) -> set[int]:
    """Where a later loop only wants the choice between what is to be written down and something else, such as a value
    that is infinite where there is none, that choice is written down instead: who reads it needs no test.
    """
    users = _users(order)
    for node in order:
        for choice in users.get(node.number, ()):
            same = choice.op == "select_n" and (choice.shape, choice.kind) == (node.shape, node.kind)
            if node.number not in stored - wanted or not same or is_root(choice, stored):
                continue
            trial = stored - {node.number} | {choice.number}
            levels = _levels(order, trial, done)
            place = {root.number: number for number, level in enumerate(levels) for root in level}
            others = _sinks(node, choice, users, trial)
            together = all(
                (place[o.number], loop_shape(o)) == (place[choice.number], loop_shape(choice)) for o in others
            )
            if together and not collective(node) and _barriers(levels) <= _barriers(_levels(order, stored, done)):
                stored = trial
    return stored


def _users(order: list[Node]) -> dict[int, list[Node]]:
    """Who reads each node."""
    users: dict[int, list[Node]] = {node.number: [] for node in order}
    for node in order:
        for given in inputs(node):
            users.setdefault(given.number, []).append(node)
    return users


def _sinks(node: Node, but: Node, users: dict[int, list[Node]], stored: set[int]) -> list[Node]:
    """The roots that read a node otherwise than through another one."""
    found: dict[int, Node] = {}
    seen, stack = {but.number}, [node]
    while stack:
        for user in users.get(stack.pop().number, ()):
            if user.number in seen:
                continue
            seen.add(user.number)
            if is_root(user, stored):
                found[user.number] = user
            else:
                stack.append(user)
    return list(found.values())


def _rare(order: list[Node], stored: set[int]) -> set[int]:
    """What only one case of a choice needs, and takes long."""
    users: dict[int, set[int]] = {}
    for node in order:
        for given in inputs(node):
            users.setdefault(given.number, set()).add(node.number)
    found = set()
    for choice in order:
        if choice.op != "select_n" or len(choice.inputs) != 3 or choice.size <= 1:
            continue
        for case in choice.inputs[1:]:
            own = {choice.number} if choice.inputs.count(case) == 1 else set()
            cost = 0.0
            for node in _below(case):
                if not own or node.op in BASE or is_root(node, stored) or not users.get(node.number, set()) <= own:
                    continue
                if reduced_length(node) > 1 or node.op in RUNNING or node.op == "part":  # loops are not for a branch
                    cost = -math.inf
                own.add(node.number)
                cost += weight_of(node)
            if cost >= RARE:
                found.add(case.number)
    return found


def _below(node: Node) -> list[Node]:
    """A node and what it needs, each before its inputs, as far as it has the same elements."""
    return reach([node], lambda n: n.inputs if n.op in ELEMENTWISE or n.op in SHAPING or n.op == "slice" else ())[::-1]


def _levels(
    order: list[Node], stored: set[int], done: set[int], aside: AbstractSet[int] = frozenset()
) -> list[list[Node]]:
    """aside: see `Plan`."""
    roots = [n for n in order if is_root(n, stored)]
    own = {n.number for n in roots} - aside
    level: dict[int, int] = {}
    for root in roots:
        level[root.number] = _level(root, own, level, done)
    levels: list[list[Node]] = [[] for _ in range(1 + max(level.values(), default=-1))]
    for root in roots:
        levels[level[root.number]].append(root)
    return levels


def _barriers(levels: list[list[Node]]) -> int:
    """How often all threads wait for each other."""
    each = [1 if n.op in SCATTERS else 2 for level in levels for n in level if collective(n)]
    return sum(each) + sum(any(not collective(n) for n in level) for level in levels)


def _again(node: Node, order: list[Node], stored: set[int], levels: list[list[Node]]) -> float:
    """About how many operations it takes to compute a node wherever it is read: once in each loop."""
    users = _users(order)
    level = {root.number: number for number, roots in enumerate(levels) for root in roots}
    reads: dict[int, dict[Hashable, float]] = {}  # of each node, how many of its elements each loop reads

    def read(node: Node) -> dict[Hashable, float]:
        if node.number not in reads:
            found: dict[Hashable, float] = {}
            for user in users.get(node.number, ()):
                root = is_root(user, stored)
                own = {(level[user.number], loop_shape(user)): float(user.size)} if root else read(user)
                others = user.op == "gather" and user.inputs[0] is node  # elements of its own, not those of other users
                for loop, count in own.items():
                    more, before = reduced_length(user) * count, found.get(loop, 0.0)
                    found[loop] = before + more if others else max(before, more)
            reads[node.number] = found
        return reads[node.number]

    cost = costs(order, stored)[node.number]
    if cost >= ENOUGH or any(u.op in CONTROL for u in users.get(node.number, ())):
        return math.inf
    return sum(read(node).values()) * cost


def _level(root: Node, roots: set[int], level: dict[int, int], done: set[int]) -> int:
    apart = collective(root)
    own, axes = loop_shape(root), axes_of(root)
    found = 0
    seen: set[tuple[int, tuple[int, ...] | None]] = set()
    stack = [(n, None if apart else axes if reduces(root) else through(root, n, axes)) for n in inputs(root)]
    while stack:
        node, along = stack.pop()
        if (node.number, along) in seen or node.number in done:
            continue
        seen.add((node.number, along))
        if node.op == "part":
            node, along = node.inputs[0], None
        if node.number in level and node.number in roots:
            # an element that the same thread has made needs no barrier
            same = along == axes_of(node) and loop_shape(node) == own and not (collective(node) or reduces(node))
            same = same and "planes" not in (root.op, node.op)  # their loop is one of its own
            found = max(found, level[node.number] + (0 if apart or same else 1))
            continue
        stack.extend((n, None if along is None else through(node, n, along)) for n in inputs(node))
    return found


def _stored(order: list[Node], stored: set[int]) -> set[int]:
    """Those to be written down: where others read them, or where it saves work."""
    wanted = set(stored)
    cost = costs(order, stored)
    users = _users(order)
    sinks: dict[int, dict[int, tuple[int, ...]]] = {}  # of each node: the roots that read it, and their loops
    for node in reversed(order):
        found: dict[int, tuple[int, ...]] = {}
        worth = False
        for user in users[node.number]:
            found |= {user.number: loop_shape(user)} if is_root(user, stored) else sinks[user.number]
            worth = worth or _expands(user, node, cost[node.number])
        sinks[node.number] = found
        if node.op in BASE or node.op == "part" or is_root(node, stored) or node.size <= 1:
            continue
        dear = cost[node.number]
        if node.size > SMALL and (
            worth
            or (dear > CHEAP and len(set(found.values())) > 1)
            or (dear > DEAR and len(found) > 1)
            or reduced_length(node) > ROW
        ):
            stored.add(node.number)
    # what a loop or a branch reads is worth it, however little it takes
    inside = {n.number for n in order if n.op not in SHAPING and any(u.op in CONTROL for u in users[n.number])}
    costs(order, stored, wanted | inside)
    return stored


def _expands(user: Node, node: Node, cost: float) -> bool:
    """Whether the user would compute elements of the node several times over."""
    if user.op in ("sort", "cholesky"):
        return True
    if user.op in CONTROL:  # a loop reads it in each round
        return cost > 1
    if user.op == "gather":
        if node is user.inputs[0]:
            return cost > 2 and user.size >= node.size // 2
        return cost > CHEAP and _loop_size(user) >= 2 * _loop_size(node)
    if user.op == "dot_general":
        return cost > 2
    if user.op in RUNNING:
        return cost > (CHEAP if collective(user) else 2)
    if user.size <= SMALL and reduced_length(user) > 1 and not reduces(user):
        return cost > DEAR  # a short sum, which every thread makes for itself
    return cost > CHEAP and _loop_size(user) >= 2 * _loop_size(node) and user.op not in ("concatenate", "stack")


def _loop_size(node: Node) -> int:
    return math.prod(lengths(node.shape, loop_axes(node.shape)))
