"""About how many operations it takes to know an element, or to go through a loop."""

from __future__ import annotations

from galapax.engines.fused.graph import Node, reach
from galapax.engines.fused.loops import BASE, SHAPING, collective, inputs, reduced_length, reduces
from galapax.engines.fused.rules import ELEMENTWISE, HEAVY, LONG, REDUCTIONS, RUNNING

DEAR, CHEAP = 40, 6  # operations that an element takes
ENOUGH = 1000  # it does not matter how much more


def cone(roots: list[Node], stored: set[int]) -> list[Node]:
    """What a loop over these roots computes."""

    def inputs_of(node: Node) -> tuple[Node, ...]:
        if node not in roots and (node.number in stored or node.op in BASE or node.op == "part" or reduces(node)):
            return ()
        return inputs(node)

    return [n for n in reach(roots, inputs_of) if n in roots or n.number not in stored]


def needs(root: Node, other: Node, stored: set[int]) -> bool:
    """Whether a loop over a root computes another one on the way."""
    return other in cone([root], stored)


def inner_length(roots: list[Node], stored: set[int], least: int) -> int:
    """The longest sum, of at least so many steps, that a loop over these roots makes on the way."""
    lengths = [reduced_length(n) for n in cone(roots, stored) if n.op in REDUCTIONS and not reduces(n)]
    return max((n for n in lengths if n >= least), default=1)


def effort(roots: list[Node], stored: set[int]) -> float:
    """About how many operations a loop over these roots takes in all."""
    every = cone(roots, stored)
    steps = max((reduced_length(n) for n in every if not reduces(n)), default=1)
    own = sum(max(1.0, weight_of(n)) for n in every if n.op in ELEMENTWISE and n.size > 1)
    outputs = max((r.size for r in roots if reduces(r)), default=1)
    size = max(r.inputs[0].size // r.size if reduces(r) else r.size for r in roots)
    return size * own * steps * outputs


def costs(order: list[Node], stored: set[int], wanted: set[int] | None = None) -> dict[int, float]:
    """About how many operations an element takes, where nothing on the way is written down but what is stored.

    wanted: given, what is stored but neither wanted nor worth it is taken out of `stored`.
    """
    weight: list[float] = []
    cone: dict[int, int] = {}
    cost: dict[int, float] = {}
    for node in order:
        bit = len(weight)
        own, below = weight_of(node), 0
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


def weight_of(node: Node) -> float:
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
