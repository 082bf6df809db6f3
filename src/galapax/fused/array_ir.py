"""The array IR: nodes, which are arrays of the program, regions of them, and what an operation is to the compiler.

An operation is described once, by the `OpSpec` in ops.py; every node carries that of its operation. The passes ask a
node for its kind and its rules, never for the name of a primitive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from galapax.fused.c_expressions import Expr, Index
    from galapax.fused.element_codegen import ElementEmitter
    from galapax.fused.loop_codegen import KernelBuilder

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
class OpSpec:
    """An operation, as the compiler knows it.

    cost: operations per element, about. expression: an elementwise operation in C, of its operands' C expressions.
    emit: emits one element, from its index. emit_collective: emits all elements, by all threads together. value_range:
    the range of an integer result. map_axes: see `iteration_domains.map_axes`. combiner: the C function that combines
    two elements, or two partial results. keeps_order: elements stay in row-major order. is_static: which elements are
    read depends on the index alone. forwards_loads: an element is one of the first operand's. is_unique:
    never merged with an equal node. is_stored: always an array in memory.
    """

    kind: Kind
    cost: float = 1.0
    expression: Callable[..., str] | None = None
    emit: Callable[[ElementEmitter, Node, tuple[Index, ...]], Expr] | None = None
    emit_collective: Callable[[KernelBuilder, Node], None] | None = None
    value_range: Callable[[Sequence[Node], tuple[int, ...], Params], ValueRange | None] | None = None
    map_axes: Callable[[Node, Node, Axes], Axes | None] | None = None
    combiner: str = ""
    keeps_order: bool = False
    is_static: bool = False
    forwards_loads: bool = False
    is_unique: bool = False
    is_stored: bool = False


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
