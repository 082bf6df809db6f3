"""Decides which arrays are materialised and partitions the loops into barrier-separated stages.

An array that is not materialised is recomputed wherever one of its elements is read: that is how chains of
elementwise operations, slices and short reductions fuse into one loop. Materialised are arrays that threads other
than the one that computed an element read, and those that would be recomputed too often. The loops of a stage need
no barrier between them; each stage ends with one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from galapax.fused.array_ir import Kind, Node, Region, postorder
from galapax.fused.cost_model import (
    COST_CAP,
    MAX_RECOMPUTE_OPS,
    MAX_RECOMPUTE_OPS_IN_LOOP,
    estimate_element_ops,
    op_weight,
)
from galapax.fused.iteration_domains import (
    MAX_REGISTER_ELEMENTS,
    axis_lengths,
    dependencies,
    is_collective,
    is_cooperative_reduction,
    loop_shape,
    map_axes,
    parallel_axes,
    reduction_length,
    thread_axes,
)

MAX_INLINE_REDUCTION = 64  # longer reductions are materialised, not computed inline by one thread
MIN_BRANCH_OPS = 14  # cheaper select operands are always computed: a branch costs about as much
# operations that a block executes in the time of one barrier: of its own threads, and of several blocks
BARRIER_COST_OPS = (2**12, 2**16)


@dataclass
class StagePlan:
    """The stages of a region and what they store.

    materialised: ids of the nodes that are stored in memory. stages: the roots of each stage, in order. branch_only:
    nodes that are worth computing only where a select takes them. deferred_stores: nodes that are stored for the next
    iteration only, as readers in this one recompute them rather than wait for a barrier.
    """

    materialised: set[int] = field(default_factory=set)
    stages: list[list[Node]] = field(default_factory=list)
    branch_only: set[int] = field(default_factory=set)
    deferred_stores: set[int] = field(default_factory=set)


def is_root(node: Node, materialised: set[int]) -> bool:
    """True if a parallel loop or a collective operation computes the node."""
    is_stored = node.id in materialised or node.spec.is_stored
    return is_stored or is_cooperative_reduction(node) or is_collective(node)


def plan_stages(
    region: Region, outputs: list[Node], required: set[int], available: set[int], blocks_per_run: int = 1
) -> StagePlan:
    """Plan the stages that compute these outputs of a region.

    required: ids of nodes that must be materialised. available: ids of those that already are, or need not be.
    blocks_per_run: the more blocks share a run, the dearer a barrier is.
    """

    def inputs_of(node: Node) -> tuple[Node, ...]:
        return () if node.id in available or node.region is not region else dependencies(node)

    order = [n for n in postorder(outputs, inputs_of) if n.region is region and n.id not in available]
    materialised = _choose_materialised(order, set(required))
    materialised = _materialise_selects(order, materialised, required, available)
    stages = _assign_stages(order, materialised, available)
    barrier_ops = BARRIER_COST_OPS[blocks_per_run > 1] * blocks_per_run
    # recompute what was materialised only to save work, where that removes a barrier that costs more
    for node in reversed(order):
        if node.id in materialised and node.id not in required:
            fewer = materialised - {node.id}
            trial = _assign_stages(order, fewer, available)
            saves_barrier = _count_barriers(trial) < _count_barriers(stages)
            if saves_barrier and _recompute_cost(node, order, fewer, trial) <= barrier_ops:
                materialised, stages = fewer, trial
    deferred: set[int] = set()
    for node in order:
        if node.id in required and node.op == "select_n":
            trial = _assign_stages(order, materialised, available, deferred | {node.id})
            saves_barrier = _count_barriers(trial) < _count_barriers(stages)
            if saves_barrier and _recompute_cost(node, order, materialised - {node.id}, trial) <= barrier_ops:
                deferred, stages = deferred | {node.id}, trial
    return StagePlan(materialised, stages, _find_branch_only(order, materialised), deferred)


def _materialise_selects(
    order: list[Node], materialised: set[int], required: set[int], available: set[int]
) -> set[int]:
    """If every consumer in a later stage reads `select(c, a, b)`, materialise the select instead of `a`.

    An example is a value replaced by infinity where there is none: its readers then need no test.
    """
    users = _find_users(order)
    for node in order:
        for select in users.get(node.id, ()):
            is_interchangeable = select.op == "select_n" and (select.shape, select.dtype) == (node.shape, node.dtype)
            if node.id not in materialised - required or not is_interchangeable or is_root(select, materialised):
                continue
            trial_set = materialised - {node.id} | {select.id}
            stages = _assign_stages(order, trial_set, available)
            stage_of = {root.id: number for number, roots in enumerate(stages) for root in roots}
            other_roots = _find_sinks(node, select, users, trial_set)
            is_same_loop = all(
                (stage_of[o.id], loop_shape(o)) == (stage_of[select.id], loop_shape(select)) for o in other_roots
            )
            n_barriers = _count_barriers(_assign_stages(order, materialised, available))
            if is_same_loop and not is_collective(node) and _count_barriers(stages) <= n_barriers:
                materialised = trial_set
    return materialised


def _find_users(order: list[Node]) -> dict[int, list[Node]]:
    """Return the users of each node, by id."""
    users: dict[int, list[Node]] = {node.id: [] for node in order}
    for node in order:
        for operand in dependencies(node):
            users.setdefault(operand.id, []).append(node)
    return users


def _find_sinks(node: Node, excluded: Node, users: dict[int, list[Node]], materialised: set[int]) -> list[Node]:
    """Return the roots that read a node on a path that avoids `excluded`."""
    sinks: dict[int, Node] = {}
    visited, stack = {excluded.id}, [node]
    while stack:
        for user in users.get(stack.pop().id, ()):
            if user.id in visited:
                continue
            visited.add(user.id)
            if is_root(user, materialised):
                sinks[user.id] = user
            else:
                stack.append(user)
    return list(sinks.values())


def _find_branch_only(order: list[Node], materialised: set[int]) -> set[int]:
    """Return the ids of select operands that no other node needs and that are dear enough for a branch."""
    users: dict[int, set[int]] = {}
    for node in order:
        for operand in dependencies(node):
            users.setdefault(operand.id, set()).add(node.id)
    branch_only = set()
    for select in order:
        if not select.is_binary_select or select.size <= 1:
            continue
        for case in select.inputs[1:]:
            exclusive = {select.id} if select.inputs.count(case) == 1 else set()
            cost = 0.0
            for node in _elementwise_operands(case):
                if not exclusive or node.kind is Kind.LEAF or is_root(node, materialised):
                    continue
                if not users.get(node.id, set()) <= exclusive:
                    continue
                if reduction_length(node) > 1 or node.kind in (Kind.CUMULATIVE, Kind.OUTPUT):
                    cost = -math.inf  # a branch must not contain loops
                exclusive.add(node.id)
                cost += op_weight(node)
            if cost >= MIN_BRANCH_OPS:
                branch_only.add(case.id)
    return branch_only


def _elementwise_operands(node: Node) -> list[Node]:
    """Return a node and its elementwise operands, each before its inputs."""

    def inputs_of(node: Node) -> tuple[Node, ...]:
        return node.inputs if node.kind in (Kind.ELEMENTWISE, Kind.VIEW) or node.op == "slice" else ()

    return postorder([node], inputs_of)[::-1]


def _assign_stages(
    order: list[Node], materialised: set[int], available: set[int], deferred: AbstractSet[int] = frozenset()
) -> list[list[Node]]:
    """Assign each root to the earliest stage in which its operands are available. deferred: see `StagePlan`."""
    roots = [n for n in order if is_root(n, materialised)]
    stored_roots = {n.id for n in roots} - deferred
    stage_of: dict[int, int] = {}
    for root in roots:
        stage_of[root.id] = _find_stage(root, stored_roots, stage_of, available)
    stages: list[list[Node]] = [[] for _ in range(1 + max(stage_of.values(), default=-1))]
    for root in roots:
        stages[stage_of[root.id]].append(root)
    return stages


def _count_barriers(stages: list[list[Node]]) -> int:
    """Count the barriers of a plan."""
    collective_barriers = [1 if n.kind is Kind.SCATTER else 2 for stage in stages for n in stage if is_collective(n)]
    return sum(collective_barriers) + sum(any(not is_collective(n) for n in stage) for stage in stages)


def _recompute_cost(node: Node, order: list[Node], materialised: set[int], stages: list[list[Node]]) -> float:
    """Estimate how many operations it takes to recompute a node in every loop that reads it."""
    users = _find_users(order)
    stage_of = {root.id: number for number, roots in enumerate(stages) for root in roots}
    reads: dict[int, dict[Hashable, float]] = {}  # for each node, how many of its elements each loop reads

    def read(node: Node) -> dict[Hashable, float]:
        if node.id not in reads:
            counts: dict[Hashable, float] = {}
            for user in users.get(node.id, ()):
                root = is_root(user, materialised)
                user_reads = {(stage_of[user.id], loop_shape(user)): float(user.size)} if root else read(user)
                is_table = (
                    user.kind is Kind.GATHER and user.inputs[0] is node
                )  # a gather reads elements of its own choice
                for loop, count in user_reads.items():
                    elements, previous = reduction_length(user) * count, counts.get(loop, 0.0)
                    counts[loop] = previous + elements if is_table else max(previous, elements)
            reads[node.id] = counts
        return reads[node.id]

    cost = estimate_element_ops(order, materialised)[node.id]
    if cost >= COST_CAP or any(u.kind is Kind.CONTROL_FLOW for u in users.get(node.id, ())):
        return math.inf
    return sum(read(node).values()) * cost


def _find_stage(root: Node, roots: set[int], stage_of: dict[int, int], available: set[int]) -> int:
    """Return the earliest stage of a root: that of operands which its own thread computes, one after all others."""
    is_separate = is_collective(root)
    shape, axes = loop_shape(root), thread_axes(root)
    stage = 0
    visited: set[tuple[int, tuple[int, ...] | None]] = set()
    stack = [
        (n, None if is_separate else axes if is_cooperative_reduction(root) else map_axes(root, n, axes))
        for n in dependencies(root)
    ]
    while stack:
        node, mapped_axes = stack.pop()
        if (node.id, mapped_axes) in visited or node.id in available:
            continue
        visited.add((node.id, mapped_axes))
        if node.kind is Kind.OUTPUT:
            node, mapped_axes = node.inputs[0], None
        if node.id in stage_of and node.id in roots:
            # no barrier is needed for an element that the same thread computed; bit planes have a loop of their own
            is_same_loop = mapped_axes == thread_axes(node) and loop_shape(node) == shape
            is_thread_local = not (is_collective(node) or is_cooperative_reduction(node))
            is_same_thread = is_same_loop and is_thread_local and "bitplanes" not in (root.op, node.op)
            stage = max(stage, stage_of[node.id] + (0 if is_separate or is_same_thread else 1))
            continue
        stack.extend((n, None if mapped_axes is None else map_axes(node, n, mapped_axes)) for n in dependencies(node))
    return stage


def _choose_materialised(order: list[Node], materialised: set[int]) -> set[int]:
    """Choose the nodes to materialise: those in `materialised`, and those whose recomputation would cost more."""
    required = set(materialised)
    cost = estimate_element_ops(order, materialised)
    users = _find_users(order)
    sinks: dict[int, dict[int, tuple[int, ...]]] = {}  # for each node, the roots that read it and their loops
    for node in reversed(order):
        loops: dict[int, tuple[int, ...]] = {}
        repeats_work = False
        for user in users[node.id]:
            loops |= {user.id: loop_shape(user)} if is_root(user, materialised) else sinks[user.id]
            repeats_work = repeats_work or _repeats_work(user, node, cost[node.id])
        sinks[node.id] = loops
        if node.kind in (Kind.LEAF, Kind.OUTPUT) or is_root(node, materialised) or node.size <= 1:
            continue
        ops = cost[node.id]
        if node.size > MAX_REGISTER_ELEMENTS and (
            repeats_work
            or (ops > MAX_RECOMPUTE_OPS and len(set(loops.values())) > 1)
            or (ops > MAX_RECOMPUTE_OPS_IN_LOOP and len(loops) > 1)
            or reduction_length(node) > MAX_INLINE_REDUCTION
        ):
            materialised.add(node.id)
    # materialise what a loop or branch reads, however cheap it is
    read_by_control_flow = {
        n.id for n in order if n.kind is not Kind.VIEW and any(u.kind is Kind.CONTROL_FLOW for u in users[n.id])
    }
    estimate_element_ops(order, materialised, required | read_by_control_flow)
    return materialised


def _repeats_work(user: Node, node: Node, cost: float) -> bool:
    """True if the user would compute elements of the node several times over."""
    if user.kind is Kind.COLLECTIVE:
        return True
    if user.kind is Kind.CONTROL_FLOW:  # read in each iteration
        return cost > 1
    if user.kind is Kind.GATHER:
        if node is user.inputs[0]:
            return cost > 2 and user.size >= node.size // 2
        return cost > MAX_RECOMPUTE_OPS and _loop_size(user) >= 2 * _loop_size(node)
    if user.kind is Kind.CONTRACTION:
        return cost > 2
    if user.kind is Kind.CUMULATIVE:
        return cost > (MAX_RECOMPUTE_OPS if is_collective(user) else 2)
    if user.size <= MAX_REGISTER_ELEMENTS and reduction_length(user) > 1 and not is_cooperative_reduction(user):
        return cost > MAX_RECOMPUTE_OPS_IN_LOOP  # a short reduction, repeated by every thread
    if user.kind is Kind.JOIN:
        return False
    return cost > MAX_RECOMPUTE_OPS and _loop_size(user) >= 2 * _loop_size(node)


def _loop_size(node: Node) -> int:
    return math.prod(axis_lengths(node.shape, parallel_axes(node.shape)))
