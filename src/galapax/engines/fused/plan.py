"""Which arrays of a region are written down, and between which barriers.

An array that is not written down is computed wherever one of its elements is read: that is how chains of elementwise
operations, slices and small reductions become one loop. Written down are those that others than the thread which
computed an element read, and those that would otherwise be computed again and again. Loops of the same level need no
barrier between them; each level ends with one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

from galapax.engines.fused.graph import Node, Region, reach
from galapax.engines.fused.rules import ELEMENTWISE, HEAVY, REDUCTIONS, RUNNING

SMALL = 6  # numbers that every thread keeps for itself, in registers
SEVERAL = 20  # sums over many elements that all threads make in one pass
WRITTEN_OUT = 16  # steps of a sum that are written one after another
ROW = 64  # steps of a sum that a thread makes on the way; a longer one is written down
SCANNED = 32  # longer running sums are made by all threads together
DEAR, CHEAP = 40, 6  # operations that an element takes
ENOUGH = 1000  # it does not matter how much more
CONTROL = {"while", "scan", "cond"}
BASE = {"given", "carried", "counter", "literal"}
SHAPING = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose"}


def reduced_length(node: Node) -> int:
    if node.op in REDUCTIONS or node.op in ("argmin", "argmax"):
        return math.prod(node.inputs[0].shape[a] for a in node.params["axes"])
    if node.op == "dot_general":
        (axes, _), _ = node.params["dimension_numbers"]
        return math.prod(node.inputs[0].shape[a] for a in axes)
    return 1


def reduces(node: Node) -> bool:
    """Whether all threads together make it, for all of them to know."""
    length = reduced_length(node)
    if node.op in ("argmin", "argmax"):
        return node.size <= SMALL and length > WRITTEN_OUT
    return node.op in REDUCTIONS and (
        (node.size <= SMALL and length > WRITTEN_OUT) or (node.size <= SEVERAL and length > SEVERAL * node.size)
    )


def single(node: Node) -> bool:
    """Whether a scatter writes one window, at one place."""
    return scatter_count(node) == 1


def scatter_count(node: Node) -> int:
    return math.prod(node.inputs[1].shape[:-1])


def collective(node: Node) -> bool:
    """Whether making it takes barriers of its own."""
    if node.op in RUNNING:
        return node.shape[node.params["axis"]] > SCANNED
    return (
        node.op in CONTROL
        or node.op in ("sort", "cholesky")
        or (node.op in ("scatter", "scatter-add") and not single(node))
    )


def domain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a loop over an array: those of length 1 do not count."""
    return tuple(n for n in shape if n != 1)


@lru_cache(maxsize=256)
def captured(region: Region) -> tuple[Node, ...]:
    """What a region inside another reads of those around it."""
    found: dict[int, Node] = {}

    def inputs_of(node: Node) -> list[Node]:
        if node.region.depth < region.depth:
            found[node.number] = node
            return []
        return list(inputs(node))

    reach(region.outputs, inputs_of)
    return tuple(found.values())


def regions_of(node: Node) -> list[Region]:
    return [node.params["region"]] if "region" in node.params else list(node.params.get("regions", ()))


def inputs(node: Node) -> tuple[Node, ...]:
    """What must be known before a node, for loops and branches with what they read from outside."""
    if node.op not in CONTROL:
        return node.inputs
    inner = [c for region in regions_of(node) for c in captured(region)]
    return (*node.inputs, *inner)


@dataclass
class Plan:
    """stored: numbers of nodes that are written down. levels: the roots of each, in order."""

    stored: set[int] = field(default_factory=set)
    levels: list[list[Node]] = field(default_factory=list)


def is_root(node: Node, stored: set[int]) -> bool:
    return node.number in stored or reduces(node) or collective(node)


def planned(region: Region, outputs: list[Node], wanted: set[int], done: set[int]) -> Plan:
    """The plan of these outputs of a region.

    wanted: nodes that are to be written down in any case. done: those that already are, or need not be (numbers).
    """

    def inputs_of(node: Node) -> tuple[Node, ...]:
        return () if node.number in done or node.region is not region else inputs(node)

    order = [n for n in reach(outputs, inputs_of) if n.region is region and n.number not in done]
    stored = _stored(order, set(wanted))
    roots = [n for n in order if is_root(n, stored)]
    own = {n.number for n in roots}
    level: dict[int, int] = {}
    for root in roots:
        level[root.number] = _level(root, own, level, done)
    levels: list[list[Node]] = [[] for _ in range(1 + max(level.values(), default=-1))]
    for root in roots:
        levels[level[root.number]].append(root)
    return Plan(stored, levels)


def _level(root: Node, roots: set[int], level: dict[int, int], done: set[int]) -> int:
    apart = collective(root)
    own = loop_shape(root)
    found = 0
    seen: set[tuple[int, bool]] = set()
    first = inputs(root)
    aligned = not apart and (root.op in ELEMENTWISE or root.op in SHAPING)
    aligned = aligned or (reduces(root) and root.size == 1)
    stack = [(n, aligned and domain(n.shape) == own and _keeps(root, n)) for n in first]
    while stack:
        node, along = stack.pop()
        if (node.number, along) in seen or node.number in done:
            continue
        seen.add((node.number, along))
        if node.op == "part":
            node = node.inputs[0]
            along = False
        if node.number in level and node.number in roots:
            at = level[node.number]
            if apart or (along and not collective(node) and not reduces(node)):
                found = max(found, at)
            else:
                found = max(found, at + 1)
            continue
        step = along and (node.op in ELEMENTWISE or node.op in SHAPING)
        stack.extend((n, step and domain(n.shape) == own and _keeps(node, n)) for n in inputs(node))
    return found


def _keeps(node: Node, given: Node) -> bool:
    """Whether an element is computed from the one at the same place."""
    if node.op == "transpose":
        axes = [a for a in node.params["permutation"] if given.shape[a] != 1]
        return axes == sorted(axes)
    return True


def loop_shape(root: Node) -> tuple[int, ...]:
    """The loop that makes a root."""
    if reduces(root):
        if root.size == 1:
            return domain(root.inputs[0].shape)
        return domain(tuple(root.inputs[0].shape[a] for a in root.params["axes"]))
    return domain(root.shape)


def _stored(order: list[Node], stored: set[int]) -> set[int]:
    """Those to be written down: where others read them, or where it saves work."""
    wanted = set(stored)
    cost = _costs(order, stored)
    users: dict[int, list[Node]] = {n.number: [] for n in order}
    for node in order:
        for given in inputs(node):
            if given.number in users:
                users[given.number].append(node)
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
    _costs(order, stored, wanted)
    return stored


def _expands(user: Node, node: Node, cost: float) -> bool:
    """Whether the user would compute elements of the node several times over."""
    if user.op in ("sort", "cholesky") or user.op in RUNNING:
        return collective(user) or cost > CHEAP
    if user.op in CONTROL:  # a loop reads it in each round
        return cost > 1
    if user.op == "gather":
        if node is user.inputs[0]:
            return cost > 2 and user.size >= node.size // 2
        return cost > CHEAP and user.size >= 2 * node.size
    if user.op == "dot_general":
        return cost > 2
    if user.size <= SMALL and reduced_length(user) > 1 and not reduces(user):
        return cost > DEAR  # a short sum, which every thread makes for itself
    return cost > CHEAP and user.size >= 2 * node.size and user.op not in ("concatenate", "stack")


def _cone(roots: list[Node], stored: set[int]) -> list[Node]:
    """What a loop over these roots computes."""

    def inputs_of(node: Node) -> tuple[Node, ...]:
        if node not in roots and (node.number in stored or node.op in BASE or node.op == "part" or reduces(node)):
            return ()
        return inputs(node)

    return [n for n in reach(roots, inputs_of) if n in roots or n.number not in stored]


def inner_length(roots: list[Node], stored: set[int]) -> int:
    """The longest sum that a loop over these roots makes on the way."""
    lengths = [reduced_length(n) for n in _cone(roots, stored) if n.op in REDUCTIONS and not reduces(n)]
    return max((n for n in lengths if n > WRITTEN_OUT), default=1)


def effort(roots: list[Node], stored: set[int]) -> float:
    """About how many operations a loop over these roots takes in all."""
    cone = _cone(roots, stored)
    steps = max((reduced_length(n) for n in cone if not reduces(n)), default=1)
    own = sum(8.0 if n.op in HEAVY else 1.0 for n in cone if n.op in ELEMENTWISE and n.size > 1)
    outputs = max((r.size for r in roots if reduces(r)), default=1)
    return math.prod(loop_shape(roots[0])) * own * steps * outputs


def _costs(order: list[Node], stored: set[int], wanted: set[int] | None = None) -> dict[int, float]:
    """About how many operations an element takes, where nothing on the way is written down but what is stored.

    wanted: given, what is stored but neither wanted nor worth it is taken out of `stored`.
    """
    weight: list[float] = []
    cone: dict[int, int] = {}
    cost: dict[int, float] = {}
    for node in order:
        bit = len(weight)
        own, below = _weight(node), 0
        apart = node.op in BASE or node.op == "part" or reduces(node) or collective(node)
        if not apart:
            for given in node.inputs:
                below |= cone.get(given.number, 0)
            steps = node.shape[node.params["axis"]] / 2 if node.op in RUNNING else reduced_length(node)
            if steps > 1:
                own = steps * (1 + sum(cost.get(i.number, 1.0) for i in node.inputs))
                below = 0
        weight.append(1.0 if apart else own)
        total = 1.0 if apart else _total(below | (1 << bit), weight)
        if node.number in stored and wanted is not None and node.number not in wanted and total <= CHEAP:
            stored.discard(node.number)
        if node.number in stored or apart:
            weight[bit] = total = 1.0
            below = 0
        cone[node.number] = below | (1 << bit)
        cost[node.number] = total
    return cost


def _weight(node: Node) -> float:
    if node.op in HEAVY:
        return 8.0
    return 0.0 if node.op in SHAPING or node.op in ("slice", "literal") or node.size <= 1 else 1.0


def _total(mask: int, weight: list[float]) -> float:
    total = 0.0
    while mask:
        low = mask & -mask
        total += weight[low.bit_length() - 1]
        mask ^= low
        if total > ENOUGH:
            break
    return total
