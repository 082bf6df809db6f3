"""Value-range analysis: bounds of integer arrays, so that indices known to be in range need no check.

Random indices lie within their array by construction, so neither JAX's handling of negative indices nor the
kernel's clamping has to be emitted for them. The rules here are those of single operations, see ops.py; each gets the
operands, the shape and the parameters of the node that is about to be built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from galapax.fused.array_ir import Node, OpSpec, Params, ValueRange

DTYPE_RANGES = {"bool": (0, 1), "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1)}
Rule = Callable[[Sequence[Node], tuple[int, ...], Params], ValueRange | None]


def value_range(node: Node) -> ValueRange | None:
    """Return the smallest and largest value that an element of an integer array can have, or None if unbounded."""
    return node.value_range if node.value_range is not None else DTYPE_RANGES.get(node.dtype)


def infer_range(
    spec: OpSpec, inputs: Sequence[Node], shape: tuple[int, ...], dtype: str, params: Params
) -> ValueRange | None:
    """Infer the value range of a node about to be built, or None."""
    limits = DTYPE_RANGES.get(dtype)
    if limits is None or spec.value_range is None:
        return None
    result = spec.value_range(inputs, shape, params)
    return result if result is not None and limits[0] <= result[0] and result[1] <= limits[1] else None


def of_ranges(combine: Callable[..., ValueRange]) -> Rule:
    """Return the rule that combines the ranges of the operands."""

    def rule(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange | None:
        ranges = [value_range(n) for n in inputs]
        return None if any(r is None for r in ranges) else combine(*ranges)

    return rule


def _multiply(a: ValueRange, b: ValueRange) -> ValueRange:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _join(*ranges: ValueRange) -> ValueRange:
    return min(r[0] for r in ranges), max(r[1] for r in ranges)


add = of_ranges(lambda a, b: (a[0] + b[0], a[1] + b[1]))
subtract = of_ranges(lambda a, b: (a[0] - b[1], a[1] - b[0]))
multiply = of_ranges(_multiply)
maximum = of_ranges(lambda a, b: (max(a[0], b[0]), max(a[1], b[1])))
minimum = of_ranges(lambda a, b: (min(a[0], b[0]), min(a[1], b[1])))
first_operand = of_ranges(lambda first, *others: first)
any_operand = of_ranges(_join)
any_case = of_ranges(lambda condition, *cases: _join(*cases))
operand_or_update = of_ranges(lambda operand, indices, update: _join(operand, update))
below_second = of_ranges(lambda a, b: (0, max(0, b[1] - 1)))


def literal(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange:
    value = int(params["value"])
    return value, value


def iota(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange:
    return 0, shape[params["dimension"]] - 1


def position(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange:
    """The range of a position along the reduced axis."""
    return 0, max(0, inputs[0].shape[params["axes"][0]] - 1)


def replacement_index(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange:
    return -1, inputs[0].size // 2 - 1


def gather(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange | None:
    return None if "FILL" in str(params["mode"]).upper() else first_operand(inputs, shape, params)


def total(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange | None:
    """The range of a sum over axes."""
    operand = value_range(inputs[0])
    count = math.prod(inputs[0].shape[a] for a in params["axes"])
    return None if operand is None else (count * operand[0], count * operand[1])


def bitwise_and(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange | None:
    a, b = (value_range(n) for n in inputs)
    is_unsigned = inputs[0].dtype == "uint32"
    return (0, min(a[1], b[1])) if is_unsigned and a is not None and b is not None else None


def shift_right(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange | None:
    a, amount = (value_range(n) for n in inputs)
    if inputs[0].dtype != "uint32" or a is None or amount is None or not amount[0] == amount[1] < 32:
        return None
    return a[0] >> amount[0], a[1] >> amount[0]


def fold_comparison(op: str, inputs: Sequence[Node]) -> bool | None:
    """Return the outcome of an integer comparison if the value ranges decide it, else None."""
    if op not in ("lt", "le", "gt", "ge"):
        return None
    a, b = (value_range(n) for n in inputs)
    if a is None or b is None:
        return None
    if op in ("gt", "ge"):
        a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
    if a[1] < b[0] or (op == "le" and a[1] == b[0]):
        return True
    return False if a[0] > b[1] or (op == "lt" and a[0] == b[1]) else None
