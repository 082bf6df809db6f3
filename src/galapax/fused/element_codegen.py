"""C code of single elements, emitted wherever they are read.

`ElementEmitter.emit_element` emits the code of one element into the outermost scope where all of its operands are
known (loop-invariant code motion): what is the same for all individuals lands before the loop over them, what is
the same for a row before the loop over its genes. Elements that a scope already has are not emitted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from galapax.fused.array_ir import Kind, Node, NotFusible, postorder
from galapax.fused.c_expressions import (
    ElementKey,
    Expr,
    Index,
    Storage,
    c_literal,
    c_type,
    element_key,
)
from galapax.fused.generation_table import GenerationTable
from galapax.fused.iteration_domains import MAX_UNROLLED_STEPS
from galapax.fused.loop_ir import Assign, Declare, For, If, Let, Load, Statement, Value


@dataclass
class Scope:
    """The body of a loop or a branch: its statements, and the elements that they compute."""

    body: list[Statement] = field(default_factory=list)
    values: dict[ElementKey, Expr] = field(default_factory=dict)


@dataclass
class ThreadLoop:
    """A parallel loop whose iterations are distributed over threads in order.

    row_counters: for each variable that indexes rows, the loop variable that it is computed from. lane_values: by node
    id, the register in which each lane holds the replacement index of one turn, see bitplane_selection.py.
    """

    shape: tuple[int, ...]
    depth: int
    row_counters: dict[str, str] = field(default_factory=dict)
    lane_values: dict[int, str] = field(default_factory=dict)


class ElementEmitter:
    """Emits elements; `KernelBuilder` decides where arrays are stored and emits the loops.

    All dictionaries of nodes are by node id.
    """

    def __init__(self) -> None:
        self.scopes = [Scope()]
        self.storage: dict[int, Storage] = {}
        self.output_storage: dict[int, list[Storage]] = {}  # of each output of an operation with several
        self.replacement_tables: dict[int, tuple[str, str]] = {}  # the table, and how many parents survive
        self.prefetched: dict[ElementKey, list[tuple[Node, str]]] = {}  # loads of a reduction, and their registers
        self.definitions: list[str] = []  # functions emitted before the kernel
        self.branch_only: set[int] = set()  # nodes that are computed only where a select takes them
        self.generation_table: GenerationTable | None = None
        self.thread_loop: ThreadLoop | None = None  # the innermost one, if threads share it
        self.is_latency_bound = False  # few threads per SM: latency is not hidden by other warps
        self.for_cpu = False  # code for one CPU thread, written to be vectorised
        self.guards: list[tuple[str, int]] = []  # conditions under which current loads are in bounds, their depths
        self.read_since_barrier = False  # whether mutable memory was read since the last barrier
        self.region_depth = 0  # depth of the current region: loads are not hoisted out of it
        self.branch_depth = 0  # depth of the current branch: nothing is hoisted out of it
        self.min_group_steps = MAX_UNROLLED_STEPS + 1  # of a reduction that a group of threads shares
        self.thread_group: tuple[int, int] | None = None  # threads that share an element of a loop, and its depth
        self.address_only: frozenset[int] = frozenset()  # nodes to return as addresses, not as loaded values
        self._n_names = 0

    def new_name(self, prefix: str = "t") -> str:
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def emit(self, statement: Statement, depth: int | None = None) -> None:
        self.scopes[-1 if depth is None else depth].body.append(statement)

    @contextmanager
    def loop(self, loop: For) -> Iterator[None]:
        """Open a loop, which is emitted into the enclosing scope when it closes."""
        with self.detached_scope() as scope:
            yield
        loop.body = scope.body
        self.emit(loop)

    @contextmanager
    def branch(self, condition: str) -> Iterator[None]:
        """Open what is executed under a condition."""
        with self.detached_scope() as scope:
            yield
        self.emit(If([(condition, scope.body)]))

    @contextmanager
    def detached_scope(self) -> Iterator[Scope]:
        """Open a scope that the caller emits later: code hoisted out of it must not land between branches."""
        self.scopes.append(Scope())
        yield self.scopes[-1]
        self.scopes.pop()

    @contextmanager
    def hoist_to(self, depth: int) -> Iterator[None]:
        """Emit into an outer scope, as if the scopes inside it were not open yet."""
        inner, guards = self.scopes[depth + 1 :], self.guards
        del self.scopes[depth + 1 :]
        self.guards = [(test, guard_depth) for test, guard_depth in guards if guard_depth <= depth]
        yield
        self.scopes.extend(inner)
        self.guards = guards

    def declare(self, dtype: str, value: Value, depth: int) -> Expr:
        """Declare a constant of this value, in the scope of this depth, and return it."""
        name, depth = self.new_name(), min(max(depth, self.branch_depth), len(self.scopes) - 1)
        self.emit(Let(c_type(dtype), name, value), depth)
        return Expr(name, depth)

    # indices

    def add_index(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if isinstance(b, int) and isinstance(a, Expr):
            return a if b == 0 else Expr(f"({a.text} + {b})" if b > 0 else f"({a.text} - {-b})", a.depth)
        if isinstance(a, int):
            return self.add_index(b, a)
        assert isinstance(b, Expr)
        return Expr(f"({a.text} + {b.text})", max(a.depth, b.depth))

    def scale_index(self, a: Index, b: int) -> Index:
        if isinstance(a, int):
            return a * b
        return 0 if b == 0 else a if b == 1 else Expr(f"{a.text} * {b}", a.depth)

    def flatten_index(self, index: Sequence[Index], shape: Sequence[int]) -> Index:
        """Return the row-major offset of an element."""
        offset: Index = 0
        stride = 1
        for i, n in zip(reversed(index), reversed(shape), strict=True):
            if n != 1:
                offset = self.add_index(self.scale_index(i, stride), offset)
            stride *= n
        return offset

    def unflatten_index(self, offset: Index, shape: Sequence[int], is_loop_variable: bool = False) -> tuple[Index, ...]:
        """Return the index of the element at an offset.

        is_loop_variable: the offset is that of a loop whose iterations are distributed over threads in order.
        """
        out: list[Index] = []
        long_axes = [i for i, n in enumerate(shape) if n != 1]
        stride = 1
        for axis in reversed(range(len(shape))):
            n = shape[axis]
            if n == 1:
                out.append(0)
                continue
            if isinstance(offset, int):
                out.append(offset // stride % n)
            else:
                # unsigned, which divides faster
                text = f"(u32){offset.text}"
                text = text if stride == 1 else _divide_text(text, stride)
                if is_loop_variable and stride == 1 and axis != long_axes[0] and 32 % n == 0:
                    text = f"OF_LANE({offset.text}, {n})"
                else:
                    text = text if axis == long_axes[0] else _modulo_text(text, n)
                is_offset = stride == 1 and axis == long_axes[0]
                out.append(offset if is_offset else self.declare("int32", f"(int)({text})", offset.depth))
            stride *= n
        return tuple(reversed(out))

    # elements

    def emit_element(self, node: Node, index: Sequence[Index]) -> Expr:
        """Emit an element of an array, unless an open scope already has it."""
        index = tuple(0 if n == 1 else i for i, n in zip(index, node.shape, strict=True))
        if node.op == "literal":
            return Expr(c_literal(node.params["value"], node.dtype), 0, node.params["value"])
        if node.id in self.address_only:
            return self._emit_uncached(node, index)
        key = element_key(node, index)
        for scope in reversed(self.scopes):
            if key in scope.values:
                return scope.values[key]
        value = self._emit_uncached(node, index)
        self.scopes[value.depth].values[key] = value
        return value

    def _emit_uncached(self, node: Node, index: tuple[Index, ...]) -> Expr:
        storage = self.storage.get(node.id)
        if node.op == "input":
            storage = node.params["name"]
        elif node.kind is Kind.OUTPUT:
            storage = self.output_storage[node.inputs[0].id][node.params["position"]]
        if storage is not None:
            return self._emit_load(node, storage, index)
        if node.kind is Kind.ELEMENTWISE:
            return self._emit_expression(node, index)
        if node.spec.emit is None:
            raise NotFusible(f"the primitive {node.op}")
        return node.spec.emit(self, node, index)

    def _emit_expression(self, node: Node, index: tuple[Index, ...]) -> Expr:
        """Emit an element of an elementwise operation."""
        if self.generation_table is not None and self.generation_table.can_hold(node, index):
            return self.generation_table.emit_read(self, node, index)
        if any(n.shape and len(n.shape) != len(node.shape) for n in node.inputs):  # a bitcast to another item size
            raise NotFusible(f"the primitive {node.op} from one shape to another")
        if node.op == "select_n" and any(n.id in self.branch_only for n in node.inputs[1:]):
            return self._emit_branching_select(node, index)
        if node.is_binary_select and (load := self._emit_select_of_loads(node, index)):
            return load
        assert node.spec.expression is not None
        operands = [self.emit_element(n, _operand_index(index, n.shape)) for n in node.inputs]
        text = node.spec.expression(node, *(operand.text for operand in operands))
        return self.declare(node.dtype, text, max(operand.depth for operand in operands))

    def _emit_branching_select(self, node: Node, index: tuple[Index, ...]) -> Expr:
        """Emit a select with branches, so that an expensive operand is computed only where it is taken."""
        condition, *cases = node.inputs
        test = self.emit_element(condition, _operand_index(index, condition.shape))
        unconditional = [
            None if n.id in self.branch_only else self.emit_element(n, _operand_index(index, n.shape)) for n in cases
        ]
        depths = [value.depth for value in unconditional if value is not None]
        depth = max([test.depth, self.index_depth(index), *depths])
        result = self.new_name()
        with self.hoist_to(depth):
            branches = []
            for number, (head, case) in enumerate(zip((f"!{test.text}", ""), cases, strict=True)):
                with self.detached_scope() as scope:
                    outer_branch_depth, self.branch_depth = self.branch_depth, len(self.scopes) - 1
                    value = unconditional[number] or self.emit_element(case, _operand_index(index, case.shape))
                    self.emit(Assign(result, value.text))
                    self.branch_depth = outer_branch_depth
                branches.append((head, scope.body))
            self.emit(Declare(c_type(node.dtype), result))
            self.emit(If(branches))
        return Expr(result, depth)

    def _emit_select_of_loads(self, node: Node, index: tuple[Index, ...]) -> Expr | None:
        """Emit a select of two elements that both lie in memory as a single load of the selected one."""
        condition, *cases = node.inputs
        if self.for_cpu or node.size <= 1 or any(self._is_emitted(n, _operand_index(index, n.shape)) for n in cases):
            return None
        bases = [self._base_array(n) for n in cases]
        if any(base is None for base in bases):
            return None
        test = self.emit_element(condition, _operand_index(index, condition.shape))
        loads: list[Load] = []
        depth = test.depth
        for case in cases:
            self.address_only = self._load_chain(case)
            element = self._emit_uncached(case, _operand_index(index, case.shape))
            self.address_only = frozenset()
            assert element.load is not None
            loads.append(element.load)
            depth = max(depth, element.depth)
        other, chosen = loads
        pointer = _select_text(test.text, other.pointer, chosen.pointer)
        load = Load(pointer, _select_text(test.text, other.offset, chosen.offset), other.arrays + chosen.arrays)
        return self.declare(node.dtype, load, depth)

    def find_loads(self, root: Node) -> list[Node]:
        """Return the loads, at an element's own index, that computing this element of the root always needs."""

        def is_moved_load(node: Node) -> bool:
            is_load = (node.id in self.storage or node.spec.forwards_loads) and self._base_array(node) is not None
            return is_load or node.kind is Kind.GATHER

        def is_select_of_loads(node: Node) -> bool:
            return node.is_binary_select and all(map(self._base_array, node.inputs[1:]))

        def inputs_of(node: Node) -> tuple[Node, ...]:
            if is_moved_load(node) or node.kind is not Kind.ELEMENTWISE:
                return ()
            if is_select_of_loads(node):
                return node.inputs[:1]
            return tuple(n for n in node.inputs if n.id not in self.branch_only)

        def has_root_shape(node: Node) -> bool:
            is_broadcastable = all(n in (1, m) for n, m in zip(node.shape, root.shape, strict=False))
            return is_broadcastable and len(node.shape) == len(root.shape)

        nodes = [n for n in postorder([root], inputs_of) if has_root_shape(n)]
        return [n for n in nodes if is_moved_load(n) or is_select_of_loads(n)]

    def _base_array(self, node: Node) -> str | None:
        """Return the array in memory that a node only rearranges, or None."""
        while node.id not in self.storage and node.spec.forwards_loads:
            if "FILL" in str(node.params.get("mode")).upper():
                return None
            node = node.inputs[0]
        storage = self.storage.get(node.id)
        return storage if isinstance(storage, str) and node.op != "input" else None

    def _load_chain(self, node: Node) -> frozenset[int]:
        """Return the ids of the nodes from this one down to the array that it rearranges."""
        chain = {node.id}
        while node.id not in self.storage:
            node = node.inputs[0]
            chain.add(node.id)
        return frozenset(chain)

    def _is_emitted(self, node: Node, index: tuple[Index, ...]) -> bool:
        key = element_key(node, tuple(0 if n == 1 else i for i, n in zip(index, node.shape, strict=True)))
        return any(key in scope.values for scope in self.scopes)

    def _emit_load(self, node: Node, storage: Storage, index: tuple[Index, ...]) -> Expr:
        """Emit the load of an element from an array, or its selection among registers."""
        flat = self.flatten_index(index, node.shape)
        if isinstance(storage, str):
            offset = flat if isinstance(flat, Expr) else Expr(str(flat), 0)
            if tests := [test for test, depth in self.guards if offset.depth >= depth]:
                offset = Expr(f"({' && '.join(tests)} ? {offset.text} : 0)", offset.depth)
            load = Load(storage, offset.text, (storage,))
            if node.op == "input" and isinstance(flat, int):  # read-only
                return self.declare(node.dtype, load, 0)
            depth = max(offset.depth, self.region_depth)
            self.read_since_barrier |= node.op != "input"
            if node.id in self.address_only:
                return Expr(load.text, depth, load=load)
            return self.declare(node.dtype, load, depth)
        if isinstance(flat, int):
            return Expr(storage[flat], self.region_depth)
        text = storage[-1]
        for i in reversed(range(len(storage) - 1)):
            text = f"({flat.text} == {i} ? {storage[i]} : {text})"
        return self.declare(node.dtype, text, max(flat.depth, self.region_depth))

    @contextmanager
    def guarded_loads(self, test: str) -> Iterator[None]:
        """Loads inside may be out of bounds unless a condition holds.

        Code for a CPU loads anyway, from offset 0 then: GCC 12 miscompiles vectorised loads under conditions.
        """
        if not self.for_cpu:
            yield
            return
        self.guards.append((test, len(self.scopes) - 1))
        yield
        self.guards.pop()

    def index_depth(self, index: Sequence[Index]) -> int:
        """Return the depth of the outermost scope in which code that depends on this index may be emitted."""
        return max([self.region_depth, self.branch_depth, *(i.depth for i in index if isinstance(i, Expr))])


def _select_text(test: str, other: str, chosen: str) -> str:
    return chosen if other == chosen else f"({test} ? {chosen} : {other})"


def _divide_text(text: str, n: int) -> str:
    return f"({text} >> {n.bit_length() - 1})" if n & (n - 1) == 0 else f"({text} / {n}u)"


def _modulo_text(text: str, n: int) -> str:
    return f"{text} & {n - 1}u" if n & (n - 1) == 0 else f"{text} % {n}u"


def _operand_index(index: tuple[Index, ...], shape: tuple[int, ...]) -> tuple[Index, ...]:
    """Return the index into an operand: scalars have none, axes of length 1 are broadcast."""
    return () if not shape else tuple(0 if n == 1 else i for i, n in zip(index, shape, strict=True))
