"""Iteration domains of arrays, and which operations are thread-local, cooperative or collective.

A root is an array that a parallel loop computes; its iteration domain is the shape of that loop. A cooperative
reduction is one that all threads of a run compute together; a collective operation needs barriers of its own.
"""

from __future__ import annotations

import math
from functools import lru_cache

from galapax.fused.array_ir import Axes, Kind, Node, Region, postorder

MAX_REGISTER_ELEMENTS = 6  # arrays up to this size are held in registers by every thread
MAX_JOINT_REDUCTIONS = 20  # reductions over a long axis that share one pass of all threads
MAX_UNROLLED_STEPS = 16  # shorter reductions are unrolled
MAX_SERIAL_SCAN = 32  # longer scans are computed by all threads together
# a thread computes all elements along axes this short, together no more than that, if so many remain for other threads
MAX_SERIAL_AXIS = 4
MAX_SERIAL_ELEMENTS = 8
MIN_PARALLEL_ELEMENTS = 16
MAX_STACKED_ARRAYS = 12  # longer stacks are distributed over threads


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
