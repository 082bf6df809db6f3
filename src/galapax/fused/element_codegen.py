"""C code of single elements, emitted wherever they are read.

`ElementEmitter.emit_element` emits the code of one element into the outermost scope where all of its operands are
known (loop-invariant code motion): what is the same for all individuals lands before the loop over them, what is
the same for a row before the loop over its genes. Elements that a scope already has are not emitted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from galapax.fused import loop_ir as ir
from galapax.fused.array_ir import Kind, Node, NotFusible, Region, postorder
from galapax.fused.c_expressions import (
    ALIGNMENT_BYTES,
    ITEM_BYTES,
    ElementKey,
    Index,
    Storage,
    as_expr,
    c_literal,
    c_type,
    element_key,
)
from galapax.fused.cost_model import MAX_TABLE_ELEMENTS
from galapax.fused.loop_ir import Expr, compose, variable
from galapax.fused.schedule import LaunchShape


@dataclass
class Scope:
    """The body of a loop or a branch: its statements, and the elements that they compute."""

    body: list[ir.Statement] = field(default_factory=list)
    values: dict[ElementKey, Expr] = field(default_factory=dict)


@dataclass
class ThreadLoop:
    """A parallel loop whose iterations are distributed over threads in order.

    row_counters: for each variable that indexes rows, the loop variable that it is computed from. lane_values: by node
    id, the register in which each lane holds the replacement index of one turn, see collectives.py.
    """

    shape: tuple[int, ...]
    depth: int
    row_counters: dict[str, str] = field(default_factory=dict)
    lane_values: dict[int, str] = field(default_factory=dict)


@dataclass
class CurrentLoop:
    """The parallel loop that statements are emitted into. group: threads that share an element, and the loop's depth.

    thread_loop: the loop, if threads of several blocks share it.
    """

    variable: str = ""
    thread_loop: ThreadLoop | None = None
    group: tuple[int, int] | None = None


@dataclass
class Bindings:
    """Where the elements of nodes are; all dictionaries of nodes are by node id.

    output_storage: of each output of an operation with several. replacement_tables: the table, and how many parents
    survive. prefetched: loads of a reduction, and their registers. available: nodes that are stored. in_place: arrays
    updated in place, and their old values. deferred_stores: where, but not to be read in this iteration.
    history_only: nodes that only the history row of a generation needs. generation_region: the body of a generation,
    whose number in the chunk is `g`.
    """

    storage: dict[int, Storage] = field(default_factory=dict)
    output_storage: dict[int, list[Storage]] = field(default_factory=dict)
    replacement_tables: dict[int, tuple[str, str]] = field(default_factory=dict)
    prefetched: dict[ElementKey, list[tuple[Node, str]]] = field(default_factory=dict)
    available: set[int] = field(default_factory=set)
    in_place: dict[str, Node] = field(default_factory=dict)
    deferred_stores: dict[int, tuple[Node, str] | None] = field(default_factory=dict)
    written_targets: set[tuple[int, str]] = field(default_factory=set)
    history_only: set[int] = field(default_factory=set)
    generation_region: Region | None = None


@dataclass
class Resources:
    """What a kernel needs besides its statements.

    definitions: functions emitted before the kernel. n_reduction_slots: each has memory for one partial result per
    warp. n_atomic_slots: of reductions that blocks combine by atomics in global memory. widest_loop: iterations of the
    longest loop, from which the block size follows. table_bytes: of the generation table. listings: of the program
    after each step of the compiler, if they are asked for.
    """

    n_names: int = 0
    definitions: list[str] = field(default_factory=list)
    buffers: list[ir.Buffer] = field(default_factory=list)
    n_reduction_slots: int = 0
    n_atomic_slots: int = 0
    widest_loop: int = 1
    table_bytes: int = 0
    listings: list[tuple[str, list[str]]] | None = None


@dataclass
class Hazards:
    """What happened since the last barrier. pending_resets: atomic slots to be reset before the next one.

    n_barriers: in the current iteration of a loop.
    """

    is_written: bool = False
    is_read: bool = False
    n_barriers: int = 0
    pending_resets: list[int] = field(default_factory=list)


class ElementEmitter:
    """Emits elements; region_codegen.py decides where arrays are stored and emits the loops."""

    def __init__(self, shape: LaunchShape = LaunchShape()) -> None:
        self.shape = shape
        self.scopes = [Scope()]
        self.bindings = Bindings()
        self.resources = Resources()
        self.hazards = Hazards()
        self.current = CurrentLoop()
        self.generation_table: GenerationTable | None = None
        self.branch_only: set[int] = set()  # nodes that are computed only where a select takes them
        self.guards: list[tuple[Expr, int]] = []  # conditions under which current loads are in bounds, their depths
        self.region_depth = 0  # depth of the current region: loads are not hoisted out of it
        self.branch_depth = 0  # depth of the current branch: nothing is hoisted out of it
        self.address_only: frozenset[int] = frozenset()  # nodes to return as addresses, not as loaded values

    def new_name(self, prefix: str = "t") -> str:
        self.resources.n_names += 1
        return f"{prefix}{self.resources.n_names}"

    def emit(self, statement: ir.Statement, depth: int | None = None) -> None:
        self.scopes[-1 if depth is None else depth].body.append(statement)

    @contextmanager
    def loop(self, loop: ir.For) -> Iterator[None]:
        """Open a loop, which is emitted into the enclosing scope when it closes."""
        with self.detached_scope() as scope:
            yield
        loop.body = scope.body
        self.emit(loop)

    @contextmanager
    def branch(self, condition: ir.Scalar) -> Iterator[None]:
        """Open what is executed under a condition."""
        with self.detached_scope() as scope:
            yield
        self.emit(ir.If([(condition, scope.body)]))

    @contextmanager
    def detached_scope(self) -> Iterator[Scope]:
        """Open a scope that the caller emits later: code hoisted out of it must not land between branches."""
        self.scopes.append(Scope())
        yield self.scopes[-1]
        self.scopes.pop()

    @contextmanager
    def stay_in_branch(self) -> Iterator[None]:
        """Keep what is emitted in the innermost scope: it is executed only under a condition."""
        outer_depth, self.branch_depth = self.branch_depth, len(self.scopes) - 1
        yield
        self.branch_depth = outer_depth

    @contextmanager
    def hoist_to(self, depth: int) -> Iterator[None]:
        """Emit into an outer scope, as if the scopes inside it were not open yet."""
        inner, guards = self.scopes[depth + 1 :], self.guards
        del self.scopes[depth + 1 :]
        self.guards = [(test, guard_depth) for test, guard_depth in guards if guard_depth <= depth]
        yield
        self.scopes.extend(inner)
        self.guards = guards

    def declare(self, dtype: str, value: Expr | ir.Load | ir.Lookup | ir.ByTarget, depth: int | None = None) -> Expr:
        """Declare a constant of this value, in the scope of this depth or that of its operands, and return it."""
        if depth is None:
            assert isinstance(value, Expr)
            depth = value.depth
        name, depth = self.new_name(), min(max(depth, self.branch_depth), len(self.scopes) - 1)
        self.emit(ir.Let(c_type(dtype), name, value), depth)
        return variable(name, depth)

    # indices

    def add_index(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if isinstance(b, int) and isinstance(a, Expr):
            return a if b == 0 else compose(f"({a} + {b})" if b > 0 else f"({a} - {-b})", a)
        if isinstance(a, int):
            return self.add_index(b, a)
        return compose(f"({a} + {b})", a, b)

    def scale_index(self, a: Index, b: int) -> Index:
        if isinstance(a, int):
            return a * b
        return 0 if b == 0 else a if b == 1 else compose(f"{a} * {b}", a)

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
                text = f"(u32){offset}"
                text = text if stride == 1 else _divide_text(text, stride)
                if is_loop_variable and stride == 1 and axis != long_axes[0] and 32 % n == 0:
                    text = f"OF_LANE({offset}, {n})"
                else:
                    text = text if axis == long_axes[0] else _modulo_text(text, n)
                is_offset = stride == 1 and axis == long_axes[0]
                out.append(offset if is_offset else self.declare("int32", compose(f"(int)({text})", offset)))
            stride *= n
        return tuple(reversed(out))

    # elements

    def emit_element(self, node: Node, index: Sequence[Index]) -> Expr:
        """Emit an element of an array, unless an open scope already has it."""
        index = tuple(0 if n == 1 else i for i, n in zip(index, node.shape, strict=True))
        if node.op == "literal":
            return Expr(c_literal(node.params["value"], node.dtype), literal=node.params["value"])
        if node.id in self.address_only:
            return self._emit_uncached(node, index)
        key = element_key(node, index)
        for scope in reversed(self.scopes):
            if key in scope.values:
                return scope.values[key]
        value = self._emit_uncached(node, index)
        self.scopes[value.depth].values[key] = value
        return value

    def emit_root(self, root: Node, index: tuple[Index, ...]) -> Expr:
        """Return an element of a root, emitting it unless it was already loaded."""
        value = self.scopes[-1].values.get(element_key(root, index))
        return self._emit_uncached(root, index) if value is None else value

    def _emit_uncached(self, node: Node, index: tuple[Index, ...]) -> Expr:
        storage = self.bindings.storage.get(node.id)
        if node.op == "input":
            storage = node.params["name"]
        elif node.kind is Kind.OUTPUT:
            storage = self.bindings.output_storage[node.inputs[0].id][node.params["position"]]
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
        return self.declare(node.dtype, compose(text, *operands))

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
            branches = list[tuple[ir.Scalar, list[ir.Statement]]]()
            heads: tuple[ir.Scalar, ...] = compose(f"!{test}", test), ""
            for number, (head, case) in enumerate(zip(heads, cases, strict=True)):
                with self.detached_scope() as scope, self.stay_in_branch():
                    value = unconditional[number] or self.emit_element(case, _operand_index(index, case.shape))
                    self.emit(ir.Assign(result, value))
                branches.append((head, scope.body))
            self.emit(ir.Declare(c_type(node.dtype), result))
            self.emit(ir.If(branches))
        return variable(result, depth)

    def _emit_select_of_loads(self, node: Node, index: tuple[Index, ...]) -> Expr | None:
        """Emit a select of two elements that both lie in memory as a single load of the selected one."""
        condition, *cases = node.inputs
        if (
            self.shape.for_cpu
            or node.size <= 1
            or any(self.is_emitted(n, _operand_index(index, n.shape)) for n in cases)
        ):
            return None
        bases = [self._base_array(n) for n in cases]
        if any(base is None for base in bases):
            return None
        test = self.emit_element(condition, _operand_index(index, condition.shape))
        loads: list[ir.Load] = []
        depth = test.depth
        for case in cases:
            self.address_only = self._load_chain(case)
            element = self._emit_uncached(case, _operand_index(index, case.shape))
            self.address_only = frozenset()
            assert element.load is not None
            loads.append(element.load)
            depth = max(depth, element.depth)
        other, chosen = loads
        pointer = _select(test, other.pointer, chosen.pointer)
        load = ir.Load(pointer, _select(test, other.offset, chosen.offset), other.arrays + chosen.arrays)
        return self.declare(node.dtype, load, depth)

    def find_loads(self, root: Node) -> list[Node]:
        """Return the loads, at an element's own index, that computing this element of the root always needs."""

        def is_moved_load(node: Node) -> bool:
            is_load = (node.id in self.bindings.storage or node.spec.forwards_loads) and self._base_array(
                node
            ) is not None
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
        while node.id not in self.bindings.storage and node.spec.forwards_loads:
            if "FILL" in str(node.params.get("mode")).upper():
                return None
            node = node.inputs[0]
        storage = self.bindings.storage.get(node.id)
        return storage if isinstance(storage, str) and node.op != "input" else None

    def _load_chain(self, node: Node) -> frozenset[int]:
        """Return the ids of the nodes from this one down to the array that it rearranges."""
        chain = {node.id}
        while node.id not in self.bindings.storage:
            node = node.inputs[0]
            chain.add(node.id)
        return frozenset(chain)

    def is_emitted(self, node: Node, index: tuple[Index, ...]) -> bool:
        """True if an open scope has an element."""
        key = element_key(node, tuple(0 if n == 1 else i for i, n in zip(index, node.shape, strict=True)))
        return any(key in scope.values for scope in self.scopes)

    def _emit_load(self, node: Node, storage: Storage, index: tuple[Index, ...]) -> Expr:
        """Emit the load of an element from an array, or its selection among registers."""
        flat = self.flatten_index(index, node.shape)
        if isinstance(storage, str):
            offset = as_expr(flat)
            if tests := [test for test, depth in self.guards if offset.depth >= depth]:
                guarded = compose(f"({' && '.join(map(str, tests))} ? {offset} : 0)", offset, *tests)
                offset = guarded._replace(depth=offset.depth)
            load = ir.Load(storage, offset, (storage,))
            if node.op == "input" and isinstance(flat, int):  # read-only
                return self.declare(node.dtype, load, 0)
            depth = max(offset.depth, self.region_depth)
            self.hazards.is_read |= node.op != "input"
            if node.id in self.address_only:
                return Expr(load.text, load.names, depth, load=load)
            return self.declare(node.dtype, load, depth)
        if isinstance(flat, int):
            return variable(storage[flat], self.region_depth)
        text = storage[-1]
        for i in reversed(range(len(storage) - 1)):
            text = f"({flat} == {i} ? {storage[i]} : {text})"
        return self.declare(node.dtype, compose(text, flat, *storage), max(flat.depth, self.region_depth))

    @contextmanager
    def guarded_loads(self, test: Expr) -> Iterator[None]:
        """Loads inside may be out of bounds unless a condition holds.

        Code for a CPU loads anyway, from offset 0 then: GCC 12 miscompiles vectorised loads under conditions.
        """
        if not self.shape.for_cpu:
            yield
            return
        self.guards.append((test, len(self.scopes) - 1))
        yield
        self.guards.pop()

    def index_depth(self, index: Sequence[Index]) -> int:
        """Return the depth of the outermost scope in which code that depends on this index may be emitted."""
        return max([self.region_depth, self.branch_depth, *(i.depth for i in index if isinstance(i, Expr))])


def _select(test: Expr, other: ir.Scalar, chosen: ir.Scalar) -> ir.Scalar:
    return chosen if str(other) == str(chosen) else compose(f"({test} ? {chosen} : {other})", test, chosen, other)


def _divide_text(text: str, n: int) -> str:
    return f"({text} >> {n.bit_length() - 1})" if n & (n - 1) == 0 else f"({text} / {n}u)"


def _modulo_text(text: str, n: int) -> str:
    return f"{text} & {n - 1}u" if n & (n - 1) == 0 else f"{text} % {n}u"


def _operand_index(index: tuple[Index, ...], shape: tuple[int, ...]) -> tuple[Index, ...]:
    """Return the index into an operand: scalars have none, axes of length 1 are broadcast."""
    return () if not shape else tuple(0 if n == 1 else i for i, n in zip(index, shape, strict=True))


TABLE_GENERATIONS = 32  # rows of the table: one per lane


class GenerationTable:
    """The table. generation: the node of the generation number; depth: of the scope in which elements are read."""

    def __init__(self, generation: Node, depth: int) -> None:
        self._generation, self._depth = generation, depth
        self._dependence: dict[int, tuple[bool, bool]] = {}
        self._offsets: dict[tuple[int, tuple[Index, ...]], int] = {}
        self._elements: list[tuple[Node, tuple[Index, ...]]] = []
        self._row_end = 0

    def can_hold(self, node: Node, index: tuple[Index, ...]) -> bool:
        """True if an element depends on the generation number and otherwise on constants only."""
        return all(isinstance(i, int) for i in index) and node.size <= MAX_TABLE_ELEMENTS and all(self._classify(node))

    def _classify(self, node: Node) -> tuple[bool, bool]:
        """Return whether a node depends on the generation number and constants only, and whether on the number."""
        if node.id not in self._dependence:
            if node.spec.is_static:
                operands = [self._classify(n) for n in node.inputs]
                is_derived = node.size <= MAX_TABLE_ELEMENTS and all(is_derived for is_derived, _ in operands)
                self._dependence[node.id] = is_derived, any(varies for _, varies in operands)
            else:
                varies = node is self._generation
                self._dependence[node.id] = varies or node.op in ("literal", "input"), varies
        return self._dependence[node.id]

    def emit_read(self, e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
        """Emit the read of an element, adding it to the table if it is new."""
        key = (node.id, index)
        if key not in self._offsets:
            size = max(4, ITEM_BYTES[node.dtype])
            self._offsets[key] = -(-self._row_end // size) * size
            self._row_end = self._offsets[key] + size
            self._elements.append((node, index))
        cell = self._cell(self._offsets[key], node, compose(f"g % {TABLE_GENERATIONS}", "g"))
        return e.declare(node.dtype, cell, self._depth)

    def _cell(self, offset: int, node: Node, row: ir.Scalar) -> Expr:
        return compose(f"(*({c_type(node.dtype)} *)(ahead + ({row}) * AHEAD_ROW + {offset}))", row, "ahead")

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, one generation's numbers side by side, so that several are loaded at once."""
        return -(-self._row_end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    def emit_fill(self, e: ElementEmitter) -> list[ir.Statement]:
        """Return the statements that fill the table, for the start of a generation."""
        if not self._elements:
            return []
        with e.hoist_to(0), e.detached_scope() as scope:
            saved = e.generation_table, e.region_depth, e.bindings.storage[self._generation.id]
            q = e.new_name("q")
            with e.loop(ir.For(ir.Axis.BLOCK, q, TABLE_GENERATIONS)):
                depth = len(e.scopes) - 1
                e.generation_table, e.region_depth = None, depth
                e.emit(ir.Let("int", "later", compose(f"start + g + {q}", "start", "g", q)))
                e.bindings.storage[self._generation.id] = ["later"]
                for node, index in self._elements:
                    value, offset = e.emit_element(node, index), self._offsets[node.id, index]
                    e.emit(ir.Assign(self._cell(offset, node, q), value))
            e.generation_table, e.region_depth, e.bindings.storage[self._generation.id] = saved
        is_first = compose(f"g % {TABLE_GENERATIONS} == 0", "g")
        return [ir.If([(is_first, [*scope.body, ir.Barrier(ir.BarrierScope.BLOCK)])])]
