"""Operations that all threads of a run execute together, with barriers of their own.

Sorts, scatters, Cholesky factors, scans (cumulative sums, products, maxima and minima), and the control flow inside a
generation: `while`, `scan` and `cond`. In a scan each warp reduces a tile of the row, gets the reduction of all tiles
before it, and goes over its tile again. Short tiles stay in registers in between. Of zeros and ones a warp ballot
gives 32 at once, as the bits of a word.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from galapax.fused.array_ir import Node, NotFusible, Region, value_range
from galapax.fused.c_expressions import (
    STORAGE_TYPES,
    TYPE_SUFFIXES,
    Expr,
    Index,
    Storage,
    c_type,
    combine,
    identity_element,
    index_text,
    is_float,
)
from galapax.fused.cost_model import (
    MAX_JOINT_SCANS,
    MAX_REDUNDANT_COMPARISONS,
    MAX_REGISTER_ELEMENTS,
    MAX_SORTED_LENGTH,
)
from galapax.fused.index_maps import clamp_index
from galapax.fused.loop_codegen import LoopEmitter
from galapax.fused.loop_ir import (
    Assign,
    Axis,
    Barrier,
    BarrierScope,
    Break,
    Call,
    Declare,
    For,
    If,
    Let,
    Load,
    Lookup,
    Mask,
    Phase,
    Reduce,
    Store,
    Swap,
)
from galapax.fused.schedule import (
    squeeze_shape,
)


def emit_rank_sort(e: LoopEmitter, node: Node) -> None:
    """Emit a rank sort, which compares all pairs: O(n^2) work, but no barrier before its end."""
    axis, keys = int(node.params["dimension"]), int(node.params["num_keys"])
    operands = node.inputs
    shape = operands[0].shape
    if shape[axis] > MAX_SORTED_LENGTH:
        raise NotFusible(f"sorting {shape[axis]} numbers")
    sources = [e.materialise(n) for n in operands]
    per_block = e.shape.blocks_per_run > 1 and operands[0].size * shape[axis] <= MAX_REDUNDANT_COMPARISONS
    targets = [e.allocate(n.size, n.dtype, per_block) for n in operands]
    inner = math.prod(shape[axis + 1 :])
    with e.parallel_loop(squeeze_shape(shape), per_block=per_block) as index:
        element = e.full_index(shape, index)
        offset = index_text(e.flatten_index(element, shape))
        first = index_text(e.flatten_index([0 if a == axis else i for a, i in enumerate(element)], shape))
        j, rank = e.new_name("k"), e.new_name("s")
        e.emit(Declare("int", rank, "0"))
        condition = f"{j} < {index_text(element[axis])}"
        for source, operand in reversed(list(zip(sources[:keys], operands, strict=False))):
            a, b = f"{source}[{first} + {j} * {inner}]", f"{source}[{offset}]"
            less = f"({a} < {b} || ({b} != {b} && {a} == {a}))" if is_float(operand.dtype) else f"({a} < {b})"
            more = f"({b} < {a} || ({a} != {a} && {b} == {b}))" if is_float(operand.dtype) else f"({b} < {a})"
            condition = f"({less} || (!{more} && {condition}))"
        with e.loop(For(Axis.SERIAL, j, shape[axis])):
            e.emit(Assign(rank, Lookup(condition, tuple(sources[:keys])), "+="))
        for source, target in zip(sources, targets, strict=True):
            e.emit(Store(target, f"{first} + {rank} * {inner}", Load(source, offset, (source,))))
    e.emit_barrier(per_block)
    if node.params.get("multiple"):
        e.bindings.output_storage[node.id] = list(targets)
    else:
        e.bind(node, targets[0])


def emit_cholesky(e: LoopEmitter, node: Node) -> None:
    """Emit Cholesky factorisations, one matrix per warp: columns depend on each other, and a warp needs no barrier."""
    target = e.allocate(node.size, node.dtype)
    e.emit_copy(node.inputs[0], target)
    count, dim = math.prod(node.shape[:-2]), node.shape[-1]
    arguments = (target, str(count), str(dim))
    e.emit(Call(f"cholesky_{TYPE_SUFFIXES[node.dtype]}", arguments, reads=(target,), writes=(target,)))
    e.emit_barrier()
    e.bind(node, target)


def emit_scatter(e: LoopEmitter, node: Node) -> None:
    """Emit a scatter of many windows into the array allocated for it."""
    operand, indices, updates = node.inputs
    numbers = node.params["dimension_numbers"]
    mode, target = str(node.params["mode"]).upper(), e.bindings.storage[operand.id]
    assert operand.op == "alloc" and isinstance(target, str)
    per_block = e.shape.blocks_per_run > 1 and next(b.per_block for b in e.resources.buffers if b.name == target)
    scatter_dims = [a for a in range(len(updates.shape)) if a not in numbers.update_window_dims]
    inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window_axes = [a for a in range(len(operand.shape)) if a not in inserted]
    sizes = {a: updates.shape[w] for a, w in zip(window_axes, numbers.update_window_dims, strict=True)}
    with e.parallel_loop(
        squeeze_shape(updates.shape), per_block=per_block, has_atomics=bool(node.spec.combiner)
    ) as index:
        element = e.full_index(updates.shape, index)
        batch = [element[a] for a in scatter_dims]
        operand_index: list[Index] = [0] * len(operand.shape)
        for axis, window in zip(window_axes, numbers.update_window_dims, strict=True):
            operand_index[axis] = element[window]
        for axis, position in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
            operand_index[axis] = batch[position]
        tests = []
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            start = e.emit_element(indices, (*batch, k))
            limit = operand.shape[axis] - sizes.get(axis, 1)
            if "CLIP" in mode:
                start_index: Index = clamp_index(e, start, limit, indices)
            else:
                start_index = e.declare("int32", f"(int){start.text}", start.depth)
                tests.append(f"{start.text} >= 0 && {start.text} <= {limit}")
            operand_index[axis] = e.add_index(operand_index[axis], start_index)
        value = e.emit_element(updates, element)
        offset = index_text(e.flatten_index(operand_index, operand.shape))
        condition = " && ".join(tests) or "1"
        if not node.spec.combiner:
            e.emit(Store(target, offset, value.text, STORAGE_TYPES[node.dtype], Mask(condition)))
        elif node.dtype in ("int32", "uint32") or (
            node.spec.combiner == "add" and node.dtype in ("float32", "float64")
        ):
            function = f"ATOMIC_{node.spec.combiner.upper()}"
            update = Call(function, (f"&{target}[{offset}]", value.text), reads=(target,), writes=(target,))
            e.emit(If([(condition, [update])]))
        else:
            raise NotFusible(f"{node.op} of {node.dtype}")
    e.emit_barrier(per_block)
    e.bind(node, target)


def emit_scan(e: LoopEmitter, node: Node) -> None:
    """Emit a scan along one axis, and bind its result."""
    axis = node.params["axis"]
    if node.dtype == "bool":
        raise NotFusible(f"{node.op} of truth values")
    per_block = node.size <= e.shape.max_redundant_elements
    target = e.allocate(node.size, node.dtype, per_block)
    e.hazards.is_written = True
    n, row_shape = node.shape[axis], (*node.shape[:axis], *node.shape[axis + 1 :])
    e.resources.widest_loop = max(e.resources.widest_loop, n * e.shape.blocks_per_run if per_block else n)
    n_rows = math.prod(row_shape)
    if n_rows <= MAX_JOINT_SCANS:
        rows = [e.unflatten_index(i, row_shape) for i in range(n_rows)]
        _ScanEmitter(e, node, target, rows, per_block).emit()
    else:
        i = e.new_name("o")
        with e.loop(For(Axis.SERIAL, i, n_rows)):
            row = e.unflatten_index(Expr(i, len(e.scopes) - 1), row_shape)
            _ScanEmitter(e, node, target, [row], per_block).emit()
    e.emit_barrier(per_block)
    e.bind(node, target)


class _ScanEmitter:
    """Emits a few scans side by side. per_block: each block scans all of it redundantly."""

    def __init__(self, e: LoopEmitter, node: Node, target: str, rows: list[tuple[Index, ...]], per_block: bool) -> None:
        self.e, self.node, self.target, self.rows, self.per_block = e, node, target, rows, per_block
        self.operand, self.axis = node.inputs[0], node.params["axis"]
        self.n = node.shape[self.axis]
        self.operation = node.spec.combiner
        self.c_operation = f"{self.operation}_{TYPE_SUFFIXES[node.dtype]}"
        self.identity = identity_element(self.operation, node.dtype)
        self.size_arguments = f"{self.n}, {int(per_block)}"
        self.holds_registers = f"HOLDS({self.size_arguments})"
        self.is_boolean = node.dtype == "int32" and self.operation == "add" and value_range(self.operand) == (0, 1)
        self.registers = [e.new_name("h") for _ in rows]
        self.totals, self.prefixes = ([e.new_name("s") for _ in rows] for _ in range(2))

    def emit(self) -> None:
        """Emit the three passes: reduce each tile, combine the tiles before it, scan the tile."""
        e, value_type = self.e, c_type(self.node.dtype)
        slots = [e.new_slot() for _ in self.rows]
        if len(self.rows) == 1 and self.node.size > self.n:  # the next row reuses the slots that this one still reads
            e.emit(Barrier(BarrierScope.BLOCK if self.per_block or e.shape.blocks_per_run == 1 else BarrierScope.RUN))
        register_type = "u32" if self.is_boolean else value_type
        for total, registers in zip(self.totals, self.registers, strict=True):
            e.emit(Declare(value_type, total, self.identity))
            e.emit(Declare(register_type, registers, length=f"HELD({self.size_arguments})"))
        with e.branch(self.holds_registers):  # all loads are issued before the first result is used
            self._emit_tile_loop(self._emit_prefetch)
        self._emit_tile_loop(self._emit_totals)
        for total, slot in zip(self.totals, slots, strict=True):
            e.emit(Call(f"PIECE_GIVE{'_BITS' if self.is_boolean else ''}", (self.c_operation, total, str(slot))))
        e.emit(Barrier(BarrierScope.BLOCK))
        if e.shape.blocks_per_run > 1 and not self.per_block:
            for number, slot in enumerate(slots):
                e.emit(Reduce(Phase.PUBLISH, self.c_operation, slot, identity=self.identity, turn=number))
            e.emit_barrier()
        for prefix, slot in zip(self.prefixes, slots, strict=True):
            arguments = f"{self.c_operation}, {self.identity}, {slot}, {int(self.per_block)}"
            e.emit(Declare(value_type, prefix, f"PIECE_BEFORE({arguments})"))
        self._emit_tile_loop(self._emit_prefixes)

    def _emit_tile_loop(self, emit_body: Callable[[str, str], None]) -> None:
        """Emit a loop of each warp over its tile, 32 elements per turn; those beyond the end are the identity."""
        e, k, turn = self.e, self.e.new_name("k"), self.e.new_name("q")
        with e.loop(For(Axis.TILE, k, self.n, turn=turn, is_redundant=self.per_block)):
            emit_body(k, turn)

    def _load_values(self, k: str) -> list[str]:
        """Return the elements of each row at one position."""
        e, clamped = self.e, f"({k} < {self.n} ? {k} : {self.n - 1})"
        position = e.declare("int32", f"{self.n - 1} - {clamped}" if self.node.params["reverse"] else clamped, 10**9)
        index = [(*r[: self.axis], position, *r[self.axis :]) for r in self.rows]
        return [f"({k} < {self.n} ? {e.emit_element(self.operand, i).text} : {self.identity})" for i in index]

    def _emit_prefetch(self, k: str, turn: str) -> None:
        """Emit the loads of a tile into registers."""
        for registers, text in zip(self.registers, self._load_values(k), strict=True):
            self.e.emit(Assign(f"{registers}[{turn}]", text))

    def _emit_totals(self, k: str, turn: str) -> None:
        """Emit the reduction of a tile."""
        for total, registers, value in zip(self.totals, self.registers, self._reload_values(k, turn), strict=True):
            term = value
            if self.is_boolean:
                self.e.emit(Assign(value, f"voted({value})"))
                self.e.emit(If([(self.holds_registers, [Assign(f"{registers}[{turn}]", value)])]))
                term = f"(int)popcount_u32({value})"
            self.e.emit(Assign(total, combine(self.operation, self.node.dtype, total, term)))

    def _reload_values(self, k: str, turn: str) -> list[str]:
        """Return variables with the elements of a turn: from registers or, where a tile has too many, loaded again."""
        e, names = self.e, [self.e.new_name() for _ in self.rows]
        register_type = "u32" if self.is_boolean else c_type(self.node.dtype)
        for name, registers in zip(names, self.registers, strict=True):
            e.emit(Declare(register_type, name, f"{registers}[{self.holds_registers} ? {turn} : 0]"))
        with e.branch(f"!{self.holds_registers}"):
            for name, text in zip(names, self._load_values(k), strict=True):
                e.emit(Assign(name, text))
        return names

    def _emit_prefixes(self, k: str, turn: str) -> None:
        """Emit the scan of a tile from its prefix, and the stores."""
        e, names = self.e, self._reload_values(k, turn)
        if self.is_boolean:
            for name in names:
                e.emit(If([(f"!{self.holds_registers}", [Assign(name, f"voted({name})")])]))
        position = Expr(f"({self.n - 1} - {k})" if self.node.params["reverse"] else k, len(e.scopes) - 1)
        function = "run_bits" if self.is_boolean else f"run_{self.c_operation}"
        for row, name, prefix in zip(self.rows, names, self.prefixes, strict=True):
            total = e.new_name("s")
            e.emit(Let(c_type(self.node.dtype), total, f"{function}(&{prefix}, {name})"))
            index = (*row[: self.axis], position, *row[self.axis :])
            is_inside = Mask(f"{k} < {self.n}", is_full=True)
            e.emit_store(self.target, self.node, index, Expr(total, len(e.scopes) - 1), is_inside)


class LoopCarry:
    """Loop-carried values: small ones in registers, arrays double-buffered."""

    def __init__(self, e: LoopEmitter, nodes: Sequence[Node]) -> None:
        self.e, self.nodes = e, nodes
        self.storage: list[Storage] = []
        self.next_storage: list[Storage] = []
        for node in nodes:
            if node.size <= MAX_REGISTER_ELEMENTS:
                names = [e.new_name("c") for _ in range(node.size)]
                for name in names:
                    e.emit(Declare(c_type(node.dtype), name))
                self.storage.append(names)
                self.next_storage.append(names)
            else:
                self.storage.append(e.allocate(node.size, node.dtype))
                self.next_storage.append(e.allocate(node.size, node.dtype))

    def emit_initial_values(self, initial: Sequence[Node]) -> None:
        """Emit the loop-carried values of the first iteration, and a barrier."""
        for node, value, storage in zip(self.nodes, initial, self.storage, strict=True):
            if isinstance(storage, list):
                for i, name in enumerate(storage):
                    element = self.e.emit_element(value, self.e.unflatten_index(i, node.shape))
                    self.e.emit(Assign(name, element.text))
            else:
                with self.e.parallel_loop(squeeze_shape(value.shape), counts_for_width=False) as index:
                    full = self.e.full_index(value.shape, index)
                    self.e.emit_store(storage, value, full, self.e.emit_element(value, full))
        self.e.emit_barrier()

    def bind_current(self) -> None:
        """Bind the loop-carried nodes to their current storage."""
        for node, storage in zip(self.nodes, self.storage, strict=True):
            self.e.bind(node, storage)

    def find_store_targets(self, outputs: Sequence[Node]) -> dict[int, list[str]]:
        """Return the arrays that the outputs of an iteration are stored in, by node id."""
        targets: dict[int, list[str]] = {}
        for node, array, out in zip(self.nodes, self.next_storage, outputs, strict=True):
            if isinstance(array, str) and out is not node:
                targets.setdefault(out.id, []).append(array)
        return targets

    def find_in_place_candidates(self, outputs: Sequence[Node]) -> list[tuple[Node, str, Node]]:
        """Return (old value, its array, new value) of each array that may be updated in place.

        That excludes arrays whose new value is also that of another one.
        """
        uses = Counter(out.id for out in outputs)
        return [
            (node, array, out)
            for node, array, out in zip(self.nodes, self.storage, outputs, strict=True)
            if isinstance(array, str) and out is not node and uses[out.id] == 1
        ]

    def emit_update(self, outputs: Sequence[Node]) -> None:
        """Emit the end of an iteration: assign the registers, swap the buffers, and a barrier if needed."""
        e = self.e
        new_texts = []
        for node, storage, out in zip(self.nodes, self.storage, outputs, strict=True):
            if isinstance(storage, list) and out is not node:
                indices = [e.unflatten_index(i, out.shape) for i in range(len(storage))]
                new_texts.append([e.emit_element(out, index).text for index in indices])
            else:
                new_texts.append([])
        assignments: list[Assign] = []
        for node, storage, texts in zip(self.nodes, self.storage, new_texts, strict=True):
            for name, text in zip(storage if texts else (), texts, strict=True):
                new = e.new_name("n")
                e.emit(Let(c_type(node.dtype), new, text))
                assignments.append(Assign(name, new))
        for assignment in assignments:
            e.emit(assignment)
        for node, a, b, out in zip(self.nodes, self.storage, self.next_storage, outputs, strict=True):
            if isinstance(a, str) and out is not node and a not in e.bindings.in_place:
                assert isinstance(b, str)
                e.emit(Swap(a, b, STORAGE_TYPES[node.dtype], e.new_name("p")))
        e.reset_atomic_slots()
        # with two barriers in an iteration, all threads have seen its stores, and read every array before it is
        # overwritten
        if e.hazards.is_written or e.hazards.is_read or e.hazards.n_barriers < 2:
            e.emit_barrier()


class RegionBindings:
    """Restores the bindings of nodes to storage when a region ends."""

    def __init__(self, e: LoopEmitter) -> None:
        self.e = e

    def __enter__(self) -> None:
        e = self.e
        self.saved = (dict(e.bindings.storage), set(e.bindings.available), e.region_depth, e.hazards.n_barriers)
        e.region_depth, e.hazards.n_barriers = len(e.scopes) - 1, 0

    def __exit__(self, *exception: object) -> None:
        self.e.bindings.storage, self.e.bindings.available, self.e.region_depth, self.e.hazards.n_barriers = self.saved


def emit_while(e: LoopEmitter, node: Node) -> None:
    region: Region = node.params["region"]
    loop_carry = LoopCarry(e, region.loop_carry)
    loop_carry.emit_initial_values(node.inputs)
    with e.loop(For(Axis.SERIAL)), RegionBindings(e):
        loop_carry.bind_current()
        condition, *outputs = region.outputs
        e.emit_region(region, [condition], {})
        e.emit(Break(f"!{e.emit_element(condition, ()).text}"))
        e.emit_region(region, outputs, loop_carry.find_store_targets(outputs))
        loop_carry.emit_update(outputs)
    e.emit_barrier()
    e.bindings.output_storage[node.id] = loop_carry.storage


def emit_scan_loop(e: LoopEmitter, node: Node) -> None:
    region: Region = node.params["region"]
    n_carry, length = node.params["n_carry"], node.params["length"]
    loop_carry = LoopCarry(e, region.loop_carry)
    loop_carry.emit_initial_values(node.inputs)
    rows = [(out, e.allocate(max(1, length * out.size), out.dtype)) for out in region.outputs[n_carry:]]
    c = e.new_name("c")
    with e.loop(For(Axis.SERIAL, c, length)), RegionBindings(e):
        loop_carry.bind_current()
        if region.loop_index is not None:
            e.bind(region.loop_index, [c])
        outputs = region.outputs[:n_carry]
        targets, candidates = loop_carry.find_store_targets(outputs), loop_carry.find_in_place_candidates(outputs)
        e.emit_region(region, region.outputs, targets, candidates)
        for out, name in rows:
            position = f"{length - 1} - {c}" if node.params["reverse"] else c
            with e.parallel_loop(squeeze_shape(out.shape)) as index:
                full = e.full_index(out.shape, index)
                value = e.emit_element(out, full)
                offset = f"({position}) * {out.size} + {index_text(e.flatten_index(full, out.shape))}"
                e.emit(Store(name, offset, value.text, STORAGE_TYPES[out.dtype]))
        loop_carry.emit_update(outputs)
    e.bindings.output_storage[node.id] = [*loop_carry.storage, *(name for _, name in rows)]


def emit_cond(e: LoopEmitter, node: Node) -> None:
    regions: list[Region] = node.params["regions"]
    storage: list[Storage] = []
    for out in regions[0].outputs:
        if out.size <= MAX_REGISTER_ELEMENTS:
            names = [e.new_name("c") for _ in range(out.size)]
            for name in names:
                e.emit(Declare(c_type(out.dtype), name))
            storage.append(names)
        else:
            storage.append(e.allocate(out.size, out.dtype))
    branch_index = e.emit_element(node.inputs[0], ())
    last = len(regions) - 1
    branches = []
    for number, region in enumerate(regions):
        test = "" if number == last else f"{branch_index.text} <= {number}"
        with e.detached_scope() as scope, RegionBindings(e):
            targets: dict[int, list[str]] = {}
            for out, target in zip(region.outputs, storage, strict=True):
                if isinstance(target, str):
                    targets.setdefault(out.id, []).append(target)
            e.emit_region(region, region.outputs, targets)
            for out, target in zip(region.outputs, storage, strict=True):
                for i, name in enumerate(target if isinstance(target, list) else ()):
                    e.emit(Assign(name, e.emit_element(out, e.unflatten_index(i, out.shape)).text))
        branches.append((test, scope.body))
    e.emit(If(branches))
    e.emit_barrier()
    e.bindings.output_storage[node.id] = storage
