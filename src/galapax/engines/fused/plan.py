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
from functools import lru_cache

from galapax.engines.fused.graph import Node, Region, reach
from galapax.engines.fused.rules import ELEMENTWISE, HEAVY, LONG, REDUCTIONS, RUNNING

SMALL = 6  # numbers that every thread keeps for itself, in registers
SEVERAL = 20  # sums over many elements that all threads make in one pass
WRITTEN_OUT = 16  # steps of a sum that are written one after another
ROW = 64  # steps of a sum that a thread makes on the way; a longer one is written down
SCANNED = 32  # longer running sums are made by all threads together
DEAR, CHEAP = 40, 6  # operations that an element takes
AXIS, AXES, LOOP = 4, 8, 16  # a thread makes all elements along an axis or several this short, if enough are left
ENOUGH = 1000  # it does not matter how much more
RARE = 14  # operations that are worth a branch
TOGETHER = 12  # arrays that one thread puts side by side
# operations that all threads of a block make while it waits once for itself, and for other blocks
WAIT = (2**12, 2**16)
CONTROL = {"while", "scan", "cond"}
SCATTERS = {"scatter", "scatter-add", "scatter-max", "scatter-min"}
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
    return node.op in CONTROL or node.op in ("sort", "cholesky") or (node.op in SCATTERS and not single(node))


def domain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a loop over an array: those of length 1 do not count."""
    return tuple(n for n in shape if n != 1)


@lru_cache(maxsize=4096)
def loop_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that threads share out. Along the others, which are short, a thread makes all elements: so the genes of
    a short individual, its value and its parents are all one thread's, which need not wait for others.
    """
    axes = [a for a, n in enumerate(shape) if n != 1]
    left, written = math.prod(shape), 1
    for a in sorted(axes, key=lambda a: shape[a]):
        if 0 < shape[a] <= AXIS and written * shape[a] <= AXES and left // shape[a] >= LOOP:
            written, left = written * shape[a], left // shape[a]
            axes.remove(a)
    return tuple(axes)


def lengths(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[a] for a in axes)


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
    """stored: numbers of nodes that are written down. levels: the roots of each, in order. rare: nodes that are worth
    computing only where they are chosen. aside: those that are written down for later only, as whoever reads them now
    rather computes them again than waits.
    """

    stored: set[int] = field(default_factory=set)
    levels: list[list[Node]] = field(default_factory=list)
    rare: set[int] = field(default_factory=set)
    aside: set[int] = field(default_factory=set)


def is_root(node: Node, stored: set[int]) -> bool:
    return node.number in stored or node.op == "fresh" or reduces(node) or collective(node)


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
                cost += _weight(node)
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

    cost = _costs(order, stored)[node.number]
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
            found = max(found, level[node.number] + (0 if apart or same else 1))
            continue
        stack.extend((n, None if along is None else through(node, n, along)) for n in inputs(node))
    return found


def through(node: Node, given: Node, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of an input along which an element's place is the same as along these axes of the node."""
    op, params, found = node.op, node.params, None
    if op in ELEMENTWISE:
        found = axes if len(given.shape) == len(node.shape) else None
    elif op == "broadcast_in_dim":
        dims = [int(a) for a in params["broadcast_dimensions"]]
        found = tuple(dims.index(a) for a in axes) if all(a in dims for a in axes) else None
    elif op in ("reshape", "squeeze", "expand_dims"):
        mine, theirs = ([a for a, n in enumerate(shape) if n != 1] for shape in (node.shape, given.shape))
        if domain(node.shape) == domain(given.shape):
            found = tuple(theirs[mine.index(a)] for a in axes)
    elif op == "transpose":
        found = tuple(int(params["permutation"][a]) for a in axes)
    elif op == "slice":
        begins, steps = params["start_indices"], params["strides"] or [1] * len(node.shape)
        found = axes if all(begins[a] == 0 and steps[a] == 1 for a in axes) else None
    elif op == "concatenate":
        found = axes if int(params["dimension"]) not in axes else None
    elif op == "stack":
        axis = int(params["axis"]) % len(node.shape)
        found = tuple(a - (a > axis) for a in axes) if axis not in axes else None
    elif op in REDUCTIONS or op in ("argmin", "argmax"):
        free = [a for a in range(len(given.shape)) if a not in params["axes"]]
        found = tuple(free[a] for a in axes)
    if found is None or lengths(given.shape, found) != lengths(node.shape, axes):
        return None
    return found


def axes_of(root: Node) -> tuple[int, ...]:
    """The axes that threads share out: of a root, or of what it adds up."""
    if not reduces(root):
        apart = put_together(root)
        return tuple(a for a in loop_axes(root.shape) if a != apart)
    if root.size == 1:
        return loop_axes(root.inputs[0].shape)
    axes = tuple(int(a) for a in root.params["axes"])
    return tuple(axes[a] for a in loop_axes(lengths(root.inputs[0].shape, axes)))


@lru_cache(maxsize=4096)
def put_together(node: Node) -> int | None:
    """The axis along which an array is a few others side by side. Threads that made one each would wait for each other,
    so a thread makes all.
    """
    if node.op == "stack" and len(node.inputs) <= TOGETHER and node.size >= LOOP * len(node.inputs):
        return int(node.params["axis"]) % len(node.shape)
    if node.op == "transpose":
        found = put_together(node.inputs[0])
        return None if found is None else [int(a) for a in node.params["permutation"]].index(found)
    if node.op in ELEMENTWISE:
        every = {put_together(n) for n in node.inputs if n.shape == node.shape}
        return next((a for a in every if a is not None), None)
    return None


def loop_shape(root: Node) -> tuple[int, ...]:
    """The loop that makes a root."""
    return lengths(root.inputs[0].shape if reduces(root) else root.shape, axes_of(root))


def _stored(order: list[Node], stored: set[int]) -> set[int]:
    """Those to be written down: where others read them, or where it saves work."""
    wanted = set(stored)
    cost = _costs(order, stored)
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
    _costs(order, stored, wanted | inside)
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


def _cone(roots: list[Node], stored: set[int]) -> list[Node]:
    """What a loop over these roots computes."""

    def inputs_of(node: Node) -> tuple[Node, ...]:
        if node not in roots and (node.number in stored or node.op in BASE or node.op == "part" or reduces(node)):
            return ()
        return inputs(node)

    return [n for n in reach(roots, inputs_of) if n in roots or n.number not in stored]


def needs(root: Node, other: Node, stored: set[int]) -> bool:
    """Whether a loop over a root computes another one on the way."""
    return other in _cone([root], stored)


def inner_length(roots: list[Node], stored: set[int], least: int) -> int:
    """The longest sum, of at least so many steps, that a loop over these roots makes on the way."""
    lengths = [reduced_length(n) for n in _cone(roots, stored) if n.op in REDUCTIONS and not reduces(n)]
    return max((n for n in lengths if n >= least), default=1)


def effort(roots: list[Node], stored: set[int]) -> float:
    """About how many operations a loop over these roots takes in all."""
    cone = _cone(roots, stored)
    steps = max((reduced_length(n) for n in cone if not reduces(n)), default=1)
    own = sum(max(1.0, _weight(n)) for n in cone if n.op in ELEMENTWISE and n.size > 1)
    outputs = max((r.size for r in roots if reduces(r)), default=1)
    size = max(r.inputs[0].size // r.size if reduces(r) else r.size for r in roots)
    return size * own * steps * outputs


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
    if node.op in LONG:
        return float(LONG[node.op])
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
