"""Which loop makes an array, and what all threads of a run make together."""

from __future__ import annotations

import math
from functools import lru_cache

from galapax.engines.fused.graph import Node, Region, reach
from galapax.engines.fused.rules import ELEMENTWISE, REDUCTIONS, RUNNING

SMALL = 6  # numbers that every thread keeps for itself, in registers
SEVERAL = 20  # sums over many elements that all threads make in one pass
WRITTEN_OUT = 16  # steps of a sum that are written one after another
SCANNED = 32  # longer running sums are made by all threads together
AXIS, AXES, LOOP = 4, 8, 16  # a thread makes all elements along an axis or several this short, if enough are left
TOGETHER = 12  # arrays that one thread puts side by side
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
    return node.op in CONTROL | {"sort", "cholesky", "fillers"} or (node.op in SCATTERS and not single(node))


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
