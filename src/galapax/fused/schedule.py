"""The schedule: which arrays are materialised, and the stages of loops between barriers that compute them.

An array that is not materialised is recomputed wherever one of its elements is read: that is how chains of
elementwise operations, slices and short reductions fuse into one loop. Materialised are arrays that threads other
than the one that computed an element read, and those that would be recomputed too often. The loops of a stage need
no barrier between them; each stage ends with one.

A root is an array that a parallel loop computes; its iteration domain is the shape of that loop. A cooperative
reduction is one that all threads of a run compute together; a collective operation needs barriers of its own.

A loop-carried array can be updated in place if no element is read after it is overwritten: readers in earlier stages
are separated by a barrier, and within the stage that writes it only the writing thread reads the element. It then needs
half the memory, and elements that keep their value are not stored at all.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from galapax.fused.array_ir import Axes, Kind, Node, Region, postorder
from galapax.fused.cost_model import (
    BARRIER_OPS,
    COST_CAP,
    MAX_CLUSTER_BLOCKS,
    MAX_INLINE_REDUCTION,
    MAX_JOINT_REDUCTIONS,
    MAX_RECOMPUTE_OPS,
    MAX_RECOMPUTE_OPS_IN_LOOP,
    MAX_REDUNDANT_ELEMENTS,
    MAX_REDUNDANT_GRID_ELEMENTS,
    MAX_REGISTER_ELEMENTS,
    MAX_SERIAL_AXIS,
    MAX_SERIAL_ELEMENTS,
    MAX_SERIAL_SCAN,
    MAX_STACKED_ARRAYS,
    MAX_UNROLLED_STEPS,
    MIN_BRANCH_OPS,
    MIN_GROUP_STEPS,
    MIN_PARALLEL_ELEMENTS,
    RUN_BARRIER_OPS,
)


class LaunchShape(NamedTuple):
    """How runs are distributed over a device.

    blocks_per_run: thread blocks that share a run: one, a cluster, or a grid. runs_per_sm: runs that share a streaming
    multiprocessor. for_cpu: code for one CPU thread, written to be vectorised. is_emulated: the code of a GPU's
    schedule in C for one CPU thread, for tests.
    """

    blocks_per_run: int = 1
    runs_per_sm: int = 1
    for_cpu: bool = False
    is_emulated: bool = False

    @property
    def is_latency_bound(self) -> bool:
        """True if an SM has few threads, so that latency is not hidden by other warps."""
        return self.blocks_per_run == 1 and self.runs_per_sm == 1

    @property
    def min_group_steps(self) -> int:
        """The shortest reduction that a group of threads shares."""
        return MIN_GROUP_STEPS if self.blocks_per_run > 1 else MAX_UNROLLED_STEPS + 1

    @property
    def max_redundant_elements(self) -> int:
        """The longest scan or scatter that each block executes redundantly."""
        is_grid = self.blocks_per_run > MAX_CLUSTER_BLOCKS
        return 0 if self.blocks_per_run == 1 else MAX_REDUNDANT_GRID_ELEMENTS if is_grid else MAX_REDUNDANT_ELEMENTS


def reduction_length(node: Node) -> int:
    """Return how many elements a reduction, argmin, argmax or dot product combines into one; 1 for other operations."""
    if node.kind in (Kind.REDUCTION, Kind.ARG_EXTREME):
        return math.prod(node.inputs[0].shape[a] for a in node.params["axes"])
    if node.kind is Kind.CONTRACTION:
        (axes, _), _ = node.params["dimension_numbers"]
        return math.prod(node.inputs[0].shape[a] for a in axes)
    return 1


def is_cooperative_reduction(node: Node) -> bool:
    """True if all threads of a run compute a reduction together and each of them then knows the result."""
    length = reduction_length(node)
    if node.kind is Kind.ARG_EXTREME:
        return node.size <= MAX_REGISTER_ELEMENTS and length > MAX_UNROLLED_STEPS
    return node.kind is Kind.REDUCTION and (
        (node.size <= MAX_REGISTER_ELEMENTS and length > MAX_UNROLLED_STEPS)
        or (node.size <= MAX_JOINT_REDUCTIONS and length > MAX_JOINT_REDUCTIONS * node.size)
    )


def is_single_window_scatter(node: Node) -> bool:
    """True if a scatter writes a single window."""
    return count_scatter_windows(node) == 1


def count_scatter_windows(node: Node) -> int:
    return math.prod(node.inputs[1].shape[:-1])


def is_collective(node: Node) -> bool:
    """True if an operation is executed by all threads together, with barriers of its own."""
    if node.kind is Kind.CUMULATIVE:
        return node.shape[node.params["axis"]] > MAX_SERIAL_SCAN
    is_scatter = node.kind is Kind.SCATTER and not is_single_window_scatter(node)
    return is_scatter or node.kind in (Kind.CONTROL_FLOW, Kind.COLLECTIVE)


def squeeze_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop the axes of length 1 from a shape."""
    return tuple(n for n in shape if n != 1)


@lru_cache(maxsize=4096)
def parallel_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of an array that are distributed over threads; along the others, which are short, a thread loops.

    So the genes of a short individual, its fitness and its parents belong to one thread, which needs no barrier.
    """
    axes = [a for a, n in enumerate(shape) if n != 1]
    n_parallel, n_serial = math.prod(shape), 1
    for a in sorted(axes, key=lambda a: shape[a]):
        if (
            0 < shape[a] <= MAX_SERIAL_AXIS
            and n_serial * shape[a] <= MAX_SERIAL_ELEMENTS
            and n_parallel // shape[a] >= MIN_PARALLEL_ELEMENTS
        ):
            n_serial, n_parallel = n_serial * shape[a], n_parallel // shape[a]
            axes.remove(a)
    return tuple(axes)


def axis_lengths(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[a] for a in axes)


@lru_cache(maxsize=256)
def find_captures(region: Region) -> tuple[Node, ...]:
    """Return the values that a nested region reads from the regions around it."""
    captures: dict[int, Node] = {}

    def inputs_of(node: Node) -> list[Node]:
        if node.region.depth < region.depth:
            captures[node.id] = node
            return []
        return list(dependencies(node))

    postorder(region.outputs, inputs_of)
    return tuple(captures.values())


def subregions(node: Node) -> list[Region]:
    return [node.params["region"]] if "region" in node.params else list(node.params.get("regions", ()))


def dependencies(node: Node) -> tuple[Node, ...]:
    """Return everything a node depends on: its inputs and, for loops and branches, what their bodies capture."""
    if node.kind is not Kind.CONTROL_FLOW:
        return node.inputs
    captures = [c for region in subregions(node) for c in find_captures(region)]
    return (*node.inputs, *captures)


def map_axes(node: Node, operand: Node, axes: Axes) -> Axes | None:
    """Map axes of a node to the axes of an operand along which elements keep their index, or None if there are none."""
    mapped = None if node.spec.map_axes is None else node.spec.map_axes(node, operand, axes)
    if mapped is None or axis_lengths(operand.shape, mapped) != axis_lengths(node.shape, axes):
        return None
    return mapped


def same_axes(node: Node, operand: Node, axes: Axes) -> Axes | None:
    return axes if len(operand.shape) == len(node.shape) else None


def broadcast_axes(node: Node, operand: Node, axes: Axes) -> Axes | None:
    dims = [int(a) for a in node.params["broadcast_dimensions"]]
    return tuple(dims.index(a) for a in axes) if all(a in dims for a in axes) else None


def squeezed_axes(node: Node, operand: Node, axes: Axes) -> Axes | None:
    """The axes of a shape that differs by axes of length 1."""
    if squeeze_shape(node.shape) != squeeze_shape(operand.shape):
        return None
    node_axes, operand_axes = ([a for a, n in enumerate(shape) if n != 1] for shape in (node.shape, operand.shape))
    return tuple(operand_axes[node_axes.index(a)] for a in axes)


def permuted_axes(node: Node, operand: Node, axes: Axes) -> Axes:
    return tuple(int(node.params["permutation"][a]) for a in axes)


def sliced_axes(node: Node, operand: Node, axes: Axes) -> Axes | None:
    starts, steps = node.params["start_indices"], node.params["strides"] or [1] * len(node.shape)
    return axes if all(starts[a] == 0 and steps[a] == 1 for a in axes) else None


def joined_axes(node: Node, operand: Node, axes: Axes) -> Axes | None:
    return axes if int(node.params["dimension"]) not in axes else None


def stacked_axes(node: Node, operand: Node, axes: Axes) -> Axes | None:
    axis = int(node.params["axis"]) % len(node.shape)
    return tuple(a - (a > axis) for a in axes) if axis not in axes else None


def free_axes(node: Node, operand: Node, axes: Axes) -> Axes:
    """The axes that a reduction leaves."""
    free = [a for a in range(len(operand.shape)) if a not in node.params["axes"]]
    return tuple(free[a] for a in axes)


def thread_axes(root: Node) -> tuple[int, ...]:
    """Return the axes that are distributed over threads: of a root, or of the operand that it reduces."""
    if not is_cooperative_reduction(root):
        serial_axis = stacked_axis(root)
        return tuple(a for a in parallel_axes(root.shape) if a != serial_axis)
    if root.size == 1:
        return parallel_axes(root.inputs[0].shape)
    axes = tuple(int(a) for a in root.params["axes"])
    return tuple(axes[a] for a in parallel_axes(axis_lengths(root.inputs[0].shape, axes)))


@lru_cache(maxsize=4096)
def stacked_axis(node: Node) -> int | None:
    """Return the axis along which an array is a stack of a few others, or None.

    Threads that each computed one of them would diverge, so a thread computes all of them.
    """
    if (
        node.op == "stack"
        and len(node.inputs) <= MAX_STACKED_ARRAYS
        and node.size >= MIN_PARALLEL_ELEMENTS * len(node.inputs)
    ):
        return int(node.params["axis"]) % len(node.shape)
    if node.op == "transpose":
        axis = stacked_axis(node.inputs[0])
        return None if axis is None else [int(a) for a in node.params["permutation"]].index(axis)
    if node.kind is Kind.ELEMENTWISE:
        axes = {stacked_axis(n) for n in node.inputs if n.shape == node.shape}
        return next((a for a in axes if a is not None), None)
    return None


def loop_shape(root: Node) -> tuple[int, ...]:
    """Return the shape of the parallel loop that computes a root."""
    return axis_lengths(root.inputs[0].shape if is_cooperative_reduction(root) else root.shape, thread_axes(root))


def find_loop_body(roots: list[Node], materialised: set[int]) -> list[Node]:
    """Return the nodes that a loop over these roots computes."""

    def inputs_of(node: Node) -> tuple[Node, ...]:
        if node in roots:
            return dependencies(node)
        is_stored = node.id in materialised or is_cooperative_reduction(node)
        return () if is_stored or node.kind in (Kind.LEAF, Kind.OUTPUT) else dependencies(node)

    return [n for n in postorder(roots, inputs_of) if n in roots or n.id not in materialised]


def is_computed_by(root: Node, other: Node, materialised: set[int]) -> bool:
    """True if a loop over `root` also computes `other`."""
    return other in find_loop_body([root], materialised)


def longest_inner_reduction(roots: list[Node], materialised: set[int], min_length: int) -> int:
    """Return the steps of the longest reduction inside a loop over these roots, or 1 if none has `min_length`."""
    lengths = [
        reduction_length(n)
        for n in find_loop_body(roots, materialised)
        if n.kind is Kind.REDUCTION and not is_cooperative_reduction(n)
    ]
    return max((n for n in lengths if n >= min_length), default=1)


def estimate_loop_ops(roots: list[Node], materialised: set[int]) -> float:
    """Estimate the operations of a whole loop over these roots."""
    body = find_loop_body(roots, materialised)
    steps = max((reduction_length(n) for n in body if not is_cooperative_reduction(n)), default=1)
    ops = sum(max(1.0, op_weight(n)) for n in body if n.kind is Kind.ELEMENTWISE and n.size > 1)
    outputs = max((r.size for r in roots if is_cooperative_reduction(r)), default=1)
    size = max(r.inputs[0].size // r.size if is_cooperative_reduction(r) else r.size for r in roots)
    return size * ops * steps * outputs


def estimate_element_ops(
    order: list[Node], materialised: set[int], required: set[int] | None = None
) -> dict[int, float]:
    """Estimate the operations per element of each node, if nothing but `materialised` is stored.

    required: if given, nodes that are neither required nor dear enough are removed from `materialised`.
    """
    weight: list[float] = []
    masks: dict[int, int] = {}
    cost: dict[int, float] = {}
    for node in order:
        bit = len(weight)
        ops, operands_mask = op_weight(node), 0
        is_separate = node.kind in (Kind.LEAF, Kind.OUTPUT) or is_cooperative_reduction(node) or is_collective(node)
        if not is_separate:
            for operand in node.inputs:
                operands_mask |= masks.get(operand.id, 0)
            steps = node.shape[node.params["axis"]] / 2 if node.kind is Kind.CUMULATIVE else reduction_length(node)
            if steps > 1:
                ops = steps * (1 + sum(cost.get(i.id, 1.0) for i in node.inputs))
                operands_mask = 0
        weight.append(1.0 if is_separate else ops)
        total = 1.0 if is_separate else _sum_weights(operands_mask | (1 << bit), weight)
        if node.id in materialised and required is not None and node.id not in required and total <= MAX_RECOMPUTE_OPS:
            materialised.discard(node.id)
        if node.id in materialised or is_separate:
            weight[bit] = total = 1.0
            operands_mask = 0
        masks[node.id] = operands_mask | (1 << bit)
        cost[node.id] = total
    return cost


def op_weight(node: Node) -> float:
    """Return the estimated operations of a node by itself, per element."""
    return 0.0 if node.spec.cost <= 1 and node.size <= 1 else node.spec.cost  # a cheap number is not worth an array


def _sum_weights(mask: int, weight: list[float]) -> float:
    """Sum the weights of the nodes in a bit mask, up to the cap."""
    total = 0.0
    while mask:
        low = mask & -mask
        total += weight[low.bit_length() - 1]
        mask ^= low
        if total > COST_CAP:
            break
    return total


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

    def describe(self) -> Iterator[str]:
        """Yield the lines of a listing of the stages and their roots."""
        for number, roots in enumerate(self.stages):
            yield f"stage {number}, then a barrier"
            for root in roots:
                how = "collective" if is_collective(root) else f"loop over {list(loop_shape(root))}"
                if is_cooperative_reduction(root):
                    how += ", reduced by all threads"
                where = ", stored for the next generation" if root.id in self.deferred_stores else ""
                yield f"  %{root.id} = {root.op} : {root.dtype}{list(root.shape)}, {how}{where}"


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
    barrier_ops = BARRIER_OPS if blocks_per_run == 1 else RUN_BARRIER_OPS * blocks_per_run
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
            # no barrier is needed for what the same thread computed; packed elements have a loop of their own
            is_same_loop = mapped_axes == thread_axes(node) and loop_shape(node) == shape
            is_thread_local = not (is_collective(node) or is_cooperative_reduction(node))
            is_packed = root.spec.packing is not None or node.spec.packing is not None
            is_same_thread = is_same_loop and is_thread_local and not is_packed
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
