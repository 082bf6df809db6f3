"""Value-range analysis: bounds of integer arrays, so that indices known to be in range need no check.

Random indices lie within their array by construction, so neither JAX's handling of negative indices nor the
kernel's clamping has to be emitted for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from galapax.fused.graph import Node, Params

ValueRange = tuple[int, int]
_DTYPE_RANGES = {"bool": (0, 1), "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1)}
_RANGE_PRESERVING = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "rev", "copy",
                     "dynamic_slice", "alloc", "scan_row", "reduce_max", "reduce_min", "cummax", "cummin",
                     "tile"}  # fmt: skip
_RANGE_JOINING = {"concatenate", "stack"}


def _add_ranges(a: ValueRange, b: ValueRange) -> ValueRange:
    return a[0] + b[0], a[1] + b[1]


def _subtract_ranges(a: ValueRange, b: ValueRange) -> ValueRange:
    return a[0] - b[1], a[1] - b[0]


def _multiply_ranges(a: ValueRange, b: ValueRange) -> ValueRange:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


_ARITHMETIC_RANGES: dict[str, Callable[[ValueRange, ValueRange], ValueRange]] = {
    "add": _add_ranges,
    "sub": _subtract_ranges,
    "mul": _multiply_ranges,
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
}


def value_range(node: Node) -> ValueRange | None:
    """Return the smallest and largest value that an element of an integer array can have, or None if unbounded."""
    inferred = node.params.get("range")
    return inferred if inferred is not None else _DTYPE_RANGES.get(node.dtype)


def infer_range(
    op: str, inputs: Sequence[Node], shape: tuple[int, ...], dtype: str, params: Params
) -> ValueRange | None:
    """Infer the value range of a node about to be built, or None."""
    limits = _DTYPE_RANGES.get(dtype)
    if limits is None:
        return None
    ranges = [value_range(n) for n in inputs]
    result: ValueRange | None = None
    if op == "literal":
        value = int(params["value"])
        result = value, value
    elif op == "replacement_index":
        result = -1, inputs[0].size // 2 - 1
    elif op == "iota":
        result = 0, shape[params["dimension"]] - 1
    elif op in ("argmin", "argmax"):
        result = 0, max(0, inputs[0].shape[params["axes"][0]] - 1)
    elif any(s is None for s in ranges):
        return None
    elif (
        op in _RANGE_PRESERVING
        or op == "convert_element_type"
        or (op == "gather" and "FILL" not in str(params["mode"]).upper())
    ):
        result = ranges[0]
    elif op == "scatter" and ranges[0] is not None and ranges[2] is not None:
        result = min(ranges[0][0], ranges[2][0]), max(ranges[0][1], ranges[2][1])
    elif op in _RANGE_JOINING or op == "select_n":
        cases = [s for s in (ranges[1:] if op == "select_n" else ranges) if s is not None]
        result = min(s[0] for s in cases), max(s[1] for s in cases)
    elif op == "reduce_sum" and ranges[0] is not None:
        count = math.prod(inputs[0].shape[a] for a in params["axes"])
        result = count * ranges[0][0], count * ranges[0][1]
    elif op in _ARITHMETIC_RANGES and ranges[0] is not None and ranges[1] is not None:
        result = _ARITHMETIC_RANGES[op](ranges[0], ranges[1])
    elif op == "high_product" and ranges[1] is not None:
        result = 0, max(0, ranges[1][1] - 1)
    elif op == "and" and dtype == "uint32" and ranges[0] is not None and ranges[1] is not None:
        result = 0, min(ranges[0][1], ranges[1][1])
    elif op == "shift_right_logical" and dtype == "uint32" and ranges[0] is not None and ranges[1] is not None:
        shift = ranges[1]
        result = (ranges[0][0] >> shift[0], ranges[0][1] >> shift[0]) if shift[0] == shift[1] < 32 else None
    return result if result is not None and limits[0] <= result[0] and result[1] <= limits[1] else None


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
