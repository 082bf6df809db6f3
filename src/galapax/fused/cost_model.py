"""Cost model: estimated operations per element and per loop."""

from __future__ import annotations

from galapax.fused.array_ir import Kind, Node, postorder
from galapax.fused.iteration_domains import (
    dependencies,
    is_collective,
    is_cooperative_reduction,
    reduction_length,
)

MAX_RECOMPUTE_OPS = 6  # per element: what takes no more is recomputed by every loop that reads it
MAX_RECOMPUTE_OPS_IN_LOOP = 40  # the same where several roots of one loop read it
COST_CAP = 1000  # estimates stop here: anything dearer is materialised anyway


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
