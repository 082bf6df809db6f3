"""The array IR: nodes, which are arrays of the program, regions of them, and what an operation is to the compiler.

An operation is described once, by the `OpSpec` in ops.py; every node carries that of its operation. The passes ask a
node for its kind and its rules, never for the name of a primitive.

Value ranges are bounds of integer arrays, so that indices known to be in range need no check: random indices lie
within their array by construction, so neither JAX's handling of negative indices nor the kernel's clamping has to be
emitted for them. Their rules get the operands, the shape and the parameters of the node that is about to be built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

Params = dict[str, Any]  # of a primitive, by name
ValueRange = tuple[int, int]  # the smallest and the largest value
Axes = tuple[int, ...]


class NotFusible(Exception):
    """The compiler has no rule for some part of the program; the message names it in the user's words."""


class Kind(Enum):
    """What an operation does with elements, which decides how loops compute it."""

    LEAF = auto()  # nothing: an input, a literal, a value that a loop carries
    ELEMENTWISE = auto()  # a C expression of the operands' elements at the same index
    VIEW = auto()  # the operand's elements in another shape
    MOVE = auto()  # elements of the operands, at indices that an index map gives
    JOIN = auto()  # operands side by side
    GATHER = auto()  # elements at indices that the program computes
    SCATTER = auto()
    REDUCTION = auto()
    ARG_EXTREME = auto()  # argmin and argmax
    CONTRACTION = auto()  # a dot product
    CUMULATIVE = auto()
    COLLECTIVE = auto()  # always by all threads together, with barriers of its own
    CONTROL_FLOW = auto()
    OUTPUT = auto()  # one output of an operation that has several


@dataclass(frozen=True)
class Packing:
    """How whole warps store elements other than one by one, in a loop of their own.

    count_words: the words that an array takes. emit_store: emits the store of an element's value into an array.
    """

    count_words: Callable[[Node], int]
    emit_store: Callable[[Any, str, Node, Any], None]


@dataclass(frozen=True)
class OpSpec:
    """An operation, as the compiler knows it.

    cost: operations per element, about. expression: an elementwise operation in C, of its operands' C expressions.
    emit: emits one element, from its index. emit_collective: emits all elements, by all threads together. value_range:
    the range of an integer result. map_axes: see `schedule.map_axes`. combiner: the C function that combines
    two elements, or two partial results. keeps_order: elements stay in row-major order. is_static: which elements are
    read depends on the index alone. forwards_loads: an element is one of the first operand's. is_unique:
    never merged with an equal node. is_stored: always an array in memory. packing: see there.
    """

    kind: Kind
    cost: float = 1.0
    expression: Callable[..., str] | None = None
    emit: Callable[..., Any] | None = None
    emit_collective: Callable[..., None] | None = None
    value_range: Callable[[Sequence[Node], tuple[int, ...], Params], ValueRange | None] | None = None
    map_axes: Callable[[Node, Node, Axes], Axes | None] | None = None
    combiner: str = ""
    keeps_order: bool = False
    is_static: bool = False
    forwards_loads: bool = False
    is_unique: bool = False
    is_stored: bool = False
    packing: Packing | None = None


@dataclass(frozen=True, eq=False)
class Node:
    """One array of the program. value_range: of an integer array, where it is known to be narrower than its type."""

    id: int
    op: str
    spec: OpSpec
    inputs: tuple[Node, ...]
    params: Params
    shape: tuple[int, ...]
    dtype: str
    region: Region
    value_range: ValueRange | None = None

    @property
    def kind(self) -> Kind:
        return self.spec.kind

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_binary_select(self) -> bool:
        """True for a choice between two arrays by a condition."""
        return self.op == "select_n" and len(self.inputs) == 3


@dataclass(eq=False)
class Region:
    """A straight-line piece of the program: the body of a generation, of a loop, or of a branch."""

    parent: Region | None = None
    loop_carry: list[Node] = field(default_factory=list)  # values at the start of an iteration
    outputs: list[Node] = field(default_factory=list)

    is_branch: bool = False  # executed only where a condition selects it
    loop_index: Node | None = None  # of a scan: the number of the iteration

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def enclosing_branch(self) -> Region:
        """The innermost branch that encloses this region, or the top region."""
        return self if self.parent is None or self.is_branch else self.parent.enclosing_branch


def postorder(outputs: Iterable[Node], inputs_of: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """Return all nodes that the outputs depend on, each after its inputs."""
    order: list[Node] = []
    visited: set[int] = set()
    stack: list[tuple[Node, bool]] = [(n, False) for n in reversed(list(outputs))]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            order.append(node)
        elif node.id not in visited:
            visited.add(node.id)
            stack.append((node, True))
            stack.extend((i, False) for i in inputs_of(node) if i.id not in visited)
    return order


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


def row_number(inputs: Sequence[Node], shape: tuple[int, ...], params: Params) -> ValueRange:
    return 0, inputs[0].size


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


def describe_nodes(outputs: Iterable[Node]) -> Iterator[str]:
    """Yield the lines of a listing of the nodes that outputs of a region depend on."""
    for node in postorder(outputs, lambda n: n.inputs):
        operands = ", ".join(f"%{n.id}" for n in node.inputs)
        params = {name: p for name, p in node.params.items() if isinstance(p, int | float | str | tuple) and p != ()}
        texts = [f"{name}={_plain(p)}" for name, p in params.items() if name not in ("shape", "weak_type")]
        attributes = f" {' '.join(texts)}" if texts else ""
        in_range = f" in {list(node.value_range)}" if node.value_range else ""
        yield f"%{node.id} = {node.op}({operands}) : {node.dtype}{list(node.shape)}{in_range}{attributes}"


def _plain(param: object) -> object:
    """Return a parameter of a primitive as Python's own numbers and lists."""
    if isinstance(param, tuple):
        return [_plain(p) for p in param]
    return param.item() if isinstance(param, np.generic) else param
