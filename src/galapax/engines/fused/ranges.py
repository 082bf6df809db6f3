"""Between which bounds whole numbers lie, where the program shows it.

Indices that are drawn lie within their array, so that what JAX does with negative ones, and the kernel with those
outside, need not be computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from galapax.engines.fused.graph import Node

Span = tuple[int, int]
_TYPES = {"bool": (0, 1), "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1)}
_SAME = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "rev", "dynamic_slice", "copy",
         "same", "fresh", "row", "reduce_max", "reduce_min", "cummax", "cummin", "tile"}  # fmt: skip
_UNION = {"concatenate", "stack"}


def _added(a: Span, b: Span) -> Span:
    return a[0] + b[0], a[1] + b[1]


def _less(a: Span, b: Span) -> Span:
    return a[0] - b[1], a[1] - b[0]


def _times(a: Span, b: Span) -> Span:
    every = [x * y for x in a for y in b]
    return min(every), max(every)


_RULES: dict[str, Callable[[Span, Span], Span]] = {
    "add": _added,
    "sub": _less,
    "mul": _times,
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
}


def span(node: Node) -> Span | None:
    """The least and the greatest that an element of an array of whole numbers can be."""
    known = node.params.get("span")
    return known if known is not None else _TYPES.get(node.kind)


def of(op: str, inputs: Sequence[Node], shape: tuple[int, ...], kind: str, params: dict[str, Any]) -> Span | None:
    """The bounds of a node to be made, or None."""
    whole = _TYPES.get(kind)
    if whole is None:
        return None
    spans = [span(n) for n in inputs]
    found: Span | None = None
    if op == "literal":
        value = int(params["value"])
        found = value, value
    elif op == "fillers":
        found = -1, inputs[0].size // 2 - 1
    elif op == "iota":
        found = 0, shape[params["dimension"]] - 1
    elif op in ("argmin", "argmax"):
        found = 0, max(0, inputs[0].shape[params["axes"][0]] - 1)
    elif any(s is None for s in spans):
        return None
    elif op in _SAME or op == "convert_element_type" or (op == "gather" and "FILL" not in str(params["mode"]).upper()):
        found = spans[0]
    elif op == "scatter" and spans[0] is not None and spans[2] is not None:
        found = min(spans[0][0], spans[2][0]), max(spans[0][1], spans[2][1])
    elif op in _UNION or op == "select_n":
        cases = [s for s in (spans[1:] if op == "select_n" else spans) if s is not None]
        found = min(s[0] for s in cases), max(s[1] for s in cases)
    elif op == "reduce_sum" and spans[0] is not None:
        count = math.prod(inputs[0].shape[a] for a in params["axes"])
        found = count * spans[0][0], count * spans[0][1]
    elif op in _RULES and spans[0] is not None and spans[1] is not None:
        found = _RULES[op](spans[0], spans[1])
    elif op == "high_product" and spans[1] is not None:
        found = 0, max(0, spans[1][1] - 1)
    elif op == "and" and kind == "uint32" and spans[0] is not None and spans[1] is not None:
        found = 0, min(spans[0][1], spans[1][1])
    elif op == "shift_right_logical" and kind == "uint32" and spans[0] is not None and spans[1] is not None:
        by = spans[1]
        found = (spans[0][0] >> by[0], spans[0][1] >> by[0]) if by[0] == by[1] < 32 else None
    return found if found is not None and whole[0] <= found[0] and found[1] <= whole[1] else None


def decided(op: str, inputs: Sequence[Node]) -> bool | None:
    """Whether a comparison of whole numbers always holds, or never, if the bounds say so."""
    if op not in ("lt", "le", "gt", "ge"):
        return None
    a, b = (span(n) for n in inputs)
    if a is None or b is None:
        return None
    if op in ("gt", "ge"):
        a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
    if a[1] < b[0] or (op == "le" and a[1] == b[0]):
        return True
    return False if a[0] > b[1] or (op == "lt" and a[0] == b[1]) else None
