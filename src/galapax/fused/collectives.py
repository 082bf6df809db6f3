"""Operations that all threads of a run execute together, with barriers of their own.

Sorts, fronts, scatters, Cholesky factors, and scans: cumulative sums, products, maxima and minima. In a scan each warp
reduces a tile of the row, gets the reduction of all tiles before it, and goes over its tile again. Short tiles stay in
registers in between. Of zeros and ones a warp ballot gives 32 at once, as the bits of a word.

Truncation selection by bit planes: which parents survive, and which offspring replaces each that does not. Scores of a
few bits are stored as bit planes: a warp ballot puts the lowest bits of 32 neighbours into one word, the next bits into
another, and so on. So each block reads the scores of the whole population cheaply and computes the survivor mask
redundantly, which avoids a barrier of all blocks: bit by bit the threshold score, masks of those above and at it, and
by population counts how many survive before each word. No row is written either: the offspring that replaces a parent
is looked up where the row is read. operators/selection.py defines the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from galapax.fused import loop_ir as ir
from galapax.fused.array_ir import Node, NotFusible, value_range
from galapax.fused.c_expressions import (
    STORAGE_TYPES,
    TYPE_SUFFIXES,
    Index,
    as_expr,
    c_type,
    combine,
    identity_element,
    is_float,
)
from galapax.fused.cost_model import (
    MAX_JOINT_SCANS,
    MAX_RANK_SORTED,
    MAX_RANK_SORTED_ON_CPU,
    MAX_RANKED_POINTS,
    MAX_REDUNDANT_COMPARISONS,
    MAX_SORTED_ROWS,
)
from galapax.fused.element_codegen import ElementEmitter, ThreadLoop
from galapax.fused.index_maps import clamp_index
from galapax.fused.loop_codegen import LoopEmitter
from galapax.fused.loop_ir import Expr, compose, variable
from galapax.fused.schedule import squeeze_shape


def emit_sort(e: LoopEmitter, node: Node) -> None:
    """Emit a sort: of a few numbers or of several rows by comparing all pairs, else of row numbers by each block."""
    operands = node.inputs
    shape, axis = operands[0].shape, int(node.params["dimension"])
    is_single_row = shape[axis] == operands[0].size
    if is_single_row and shape[axis] > (MAX_RANK_SORTED_ON_CPU if e.shape.for_cpu else MAX_RANK_SORTED):
        targets = _emit_block_sort(e, node)
    elif shape[axis] <= MAX_SORTED_ROWS:
        targets = _emit_rank_sort(e, node, axis)
    else:
        raise NotFusible(f"sorting {shape[axis]} numbers")
    if node.params.get("multiple"):
        e.bindings.output_storage[node.id] = list(targets)
    else:
        e.bind(node, targets[0])


def _is_ahead(sources: Sequence[str], operands: Sequence[Node], i: str, j: str, tie: str) -> str:
    """Return the condition under which element i of arrays comes before element j; tie: where all are equal."""
    condition = tie
    for source, operand in reversed(list(zip(sources, operands, strict=True))):
        a, b = f"{source}[{i}]", f"{source}[{j}]"
        less = f"({a} < {b} || ({b} != {b} && {a} == {a}))" if is_float(operand.dtype) else f"({a} < {b})"
        more = f"({b} < {a} || ({a} != {a} && {b} == {b}))" if is_float(operand.dtype) else f"({b} < {a})"
        condition = f"({less} || (!{more} && {condition}))"
    return condition


def _emit_rank_sort(e: LoopEmitter, node: Node, axis: int) -> list[str]:
    """Emit a rank sort, which compares all pairs: O(n^2) work, but no barrier before its end."""
    operands, keys = node.inputs, int(node.params["num_keys"])
    shape = operands[0].shape
    sources = [e.materialise(n) for n in operands]
    per_block = e.shape.blocks_per_run > 1 and operands[0].size * shape[axis] <= MAX_REDUNDANT_COMPARISONS
    targets = [e.allocate(n.size, n.dtype, per_block) for n in operands]
    inner = math.prod(shape[axis + 1 :])
    with e.parallel_loop(squeeze_shape(shape), per_block=per_block) as index:
        element = e.full_index(shape, index)
        offset = as_expr(e.flatten_index(element, shape))
        first = as_expr(e.flatten_index([0 if a == axis else i for a, i in enumerate(element)], shape))
        j, rank = e.new_name("k"), e.new_name("s")
        e.emit(ir.Declare("int", rank, "0"))
        tie = f"{j} < {element[axis]}"
        condition = _is_ahead(sources[:keys], operands[:keys], f"{first} + {j} * {inner}", offset.text, tie)
        with e.loop(ir.For(ir.Axis.SERIAL, j, shape[axis])):
            names = ir.names_of(j, element[axis], first, offset)
            e.emit(ir.Assign(rank, ir.Lookup(condition, tuple(sources[:keys]), names), "+="))
        place = compose(f"{first} + {rank} * {inner}", first, rank)
        for source, target in zip(sources, targets, strict=True):
            e.emit(ir.Store(target, place, ir.Load(source, offset, (source,))))
    e.emit_barrier(per_block)
    return targets


def _emit_block_sort(e: LoopEmitter, node: Node) -> list[str]:
    """Emit the sort of row numbers by each block, in shared memory, and the gathering of the rows in that order."""
    operands, n, n_keys = node.inputs, node.inputs[0].size, int(node.params["num_keys"])
    sources = [e.materialise(operand) for operand in operands]
    per_block = e.shape.blocks_per_run > 1
    keys = list(sources[:n_keys])
    for number, operand in enumerate(operands[:n_keys] if per_block else ()):  # of a cluster: sources are far away
        keys[number] = e.allocate(n, operand.dtype, per_block)
        with e.parallel_loop((n,), per_block=True) as (i,):
            load = ir.Load(sources[number], as_expr(i), (sources[number],))
            e.emit(ir.Store(keys[number], as_expr(i), load))
    padded = 2 ** (n - 1).bit_length()
    order = e.allocate(padded, "int32", per_block, is_private=True)
    function, names = e.new_name("sort"), [f"k{number}" for number in range(n_keys)]
    types = [STORAGE_TYPES[operand.dtype] for operand in operands[:n_keys]]
    e.resources.definitions += [
        f"#define KEYS_{function} {', '.join(f'const {t} *{k}' for t, k in zip(types, names, strict=True))}",
        f"#define AHEAD_{function}(i, j) {_is_ahead(names, operands[:n_keys], 'i', 'j', '(i) < (j)')}",
        f"SORTED({function}, {n}, {padded}, KEYS_{function}, AHEAD_{function})",
    ]
    if per_block:
        e.emit(ir.Barrier(ir.BarrierScope.BLOCK))
    e.emit(ir.Call(function, (order, *keys), reads=tuple(keys), writes=(order,)))
    targets = [e.allocate(n, operand.dtype, per_block) for operand in operands]
    with e.parallel_loop((n,), per_block=per_block) as (i,):
        row = e.declare("int32", ir.Load(order, as_expr(i), (order,)), len(e.scopes) - 1)
        for source, target in zip(sources, targets, strict=True):
            e.emit(ir.Store(target, as_expr(i), ir.Load(source, row, (source,))))
    e.emit_barrier(per_block)
    return targets


def emit_front_numbers(e: LoopEmitter, node: Node) -> None:
    """Emit the ranking of points with two objectives, front after front; each block ranks all of them."""
    (values,) = node.inputs
    if values.size > MAX_RANKED_POINTS:
        raise NotFusible(f"ranking {values.size} points")
    array, per_block = e.materialise(values), e.shape.blocks_per_run > 1
    target, function = e.allocate(node.size, node.dtype, per_block), e.new_name("fronts")
    slots = [e.new_slot(), e.new_slot()]
    value_type, least = c_type(values.dtype), f"min_{TYPE_SUFFIXES[values.dtype]}"
    infinity = identity_element("min", values.dtype)
    e.resources.definitions.append(
        f"FRONTS({function}, {value_type}, {least}, {values.size}, {node.params['enough']}, {infinity}, {slots[0]})"
    )
    e.resources.widest_loop = max(e.resources.widest_loop, min(values.size, 256) * e.shape.blocks_per_run)
    e.emit(ir.Call(function, (array, target, "warp_partials"), reads=(array,), writes=(target,)))
    e.hazards.is_written = e.hazards.is_read = True
    e.emit_barrier(per_block)
    e.bind(node, target)


def emit_cholesky(e: LoopEmitter, node: Node) -> None:
    """Emit Cholesky factorisations, one matrix per warp: columns depend on each other, and a warp needs no barrier."""
    target = e.allocate(node.size, node.dtype)
    e.emit_copy(node.inputs[0], target)
    count, dim = math.prod(node.shape[:-2]), node.shape[-1]
    arguments = (target, str(count), str(dim))
    e.emit(ir.Call(f"cholesky_{TYPE_SUFFIXES[node.dtype]}", arguments, reads=(target,), writes=(target,)))
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
        tests = list[Expr]()
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            start = e.emit_element(indices, (*batch, k))
            limit = operand.shape[axis] - sizes.get(axis, 1)
            if "CLIP" in mode:
                start_index: Index = clamp_index(e, start, limit, indices)
            else:
                start_index = e.declare("int32", compose(f"(int){start}", start))
                tests.append(compose(f"{start} >= 0 && {start} <= {limit}", start))
            operand_index[axis] = e.add_index(operand_index[axis], start_index)
        value = e.emit_element(updates, element)
        offset = as_expr(e.flatten_index(operand_index, operand.shape))
        condition = compose(" && ".join(map(str, tests)) or "1", *tests)
        if not node.spec.combiner:
            e.emit(ir.Store(target, offset, value, STORAGE_TYPES[node.dtype], ir.Mask(condition)))
        elif node.dtype in ("int32", "uint32") or (
            node.spec.combiner == "add" and node.dtype in ("float32", "float64")
        ):
            function = f"ATOMIC_{node.spec.combiner.upper()}"
            address = compose(f"&{target}[{offset}]", offset)
            update = ir.Call(function, (address, value), reads=(target,), writes=(target,))
            e.emit(ir.If([(condition, [update])]))
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
        with e.loop(ir.For(ir.Axis.SERIAL, i, n_rows)):
            row = e.unflatten_index(variable(i, len(e.scopes) - 1), row_shape)
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
        self.holds_registers = f"FITS_REGISTERS({self.size_arguments})"
        self.is_boolean = node.dtype == "int32" and self.operation == "add" and value_range(self.operand) == (0, 1)
        self.registers = [e.new_name("h") for _ in rows]
        self.totals, self.prefixes = ([e.new_name("s") for _ in rows] for _ in range(2))

    def emit(self) -> None:
        """Emit the three passes: reduce each tile, combine the tiles before it, scan the tile."""
        e, value_type = self.e, c_type(self.node.dtype)
        slots = [e.new_slot() for _ in self.rows]
        if len(self.rows) == 1 and self.node.size > self.n:  # the next row reuses the slots that this one still reads
            e.emit(
                ir.Barrier(
                    ir.BarrierScope.BLOCK if self.per_block or e.shape.blocks_per_run == 1 else ir.BarrierScope.RUN
                )
            )
        register_type = "u32" if self.is_boolean else value_type
        for total, registers in zip(self.totals, self.registers, strict=True):
            e.emit(ir.Declare(value_type, total, self.identity))
            e.emit(ir.Declare(register_type, registers, length=f"TILE_REGISTERS({self.size_arguments})"))
        with e.branch(self.holds_registers):  # all loads are issued before the first result is used
            self._emit_tile_loop(self._emit_prefetch)
        self._emit_tile_loop(self._emit_totals)
        for total, slot in zip(self.totals, slots, strict=True):
            e.emit(ir.Call(f"STORE_TILE{'_BITS' if self.is_boolean else ''}", (self.c_operation, total, str(slot))))
        e.emit(ir.Barrier(ir.BarrierScope.BLOCK))
        if e.shape.blocks_per_run > 1 and not self.per_block:
            for number, slot in enumerate(slots):
                e.emit(ir.Reduce(ir.Phase.PUBLISH, self.c_operation, slot, identity=self.identity, turn=number))
            e.emit_barrier()
        for prefix, slot in zip(self.prefixes, slots, strict=True):
            arguments = f"{self.c_operation}, {self.identity}, {slot}, {int(self.per_block)}"
            e.emit(ir.Declare(value_type, prefix, f"TILE_PREFIX({arguments})"))
        self._emit_tile_loop(self._emit_prefixes)

    def _emit_tile_loop(self, emit_body: Callable[[str, str], None]) -> None:
        """Emit a loop of each warp over its tile, 32 elements per turn; those beyond the end are the identity."""
        e, k, turn = self.e, self.e.new_name("k"), self.e.new_name("q")
        with e.loop(ir.For(ir.Axis.TILE, k, self.n, turn=turn, is_redundant=self.per_block)):
            emit_body(k, turn)

    def _load_values(self, k: str) -> list[Expr]:
        """Return the elements of each row at one position."""
        e, clamped = self.e, f"({k} < {self.n} ? {k} : {self.n - 1})"
        text = f"{self.n - 1} - {clamped}" if self.node.params["reverse"] else clamped
        position = e.declare("int32", compose(text, k), 10**9)
        elements = [e.emit_element(self.operand, (*r[: self.axis], position, *r[self.axis :])) for r in self.rows]
        return [compose(f"({k} < {self.n} ? {x} : {self.identity})", k, x) for x in elements]

    def _emit_prefetch(self, k: str, turn: str) -> None:
        """Emit the loads of a tile into registers."""
        for registers, value in zip(self.registers, self._load_values(k), strict=True):
            self.e.emit(ir.Assign(compose(f"{registers}[{turn}]", registers, turn), value))

    def _emit_totals(self, k: str, turn: str) -> None:
        """Emit the reduction of a tile."""
        for total, registers, value in zip(self.totals, self.registers, self._reload_values(k, turn), strict=True):
            term: ir.Scalar = value
            if self.is_boolean:
                register = compose(f"{registers}[{turn}]", registers, turn)
                self.e.emit(ir.Assign(value, compose(f"ballot({value})", value)))
                self.e.emit(ir.If([(self.holds_registers, [ir.Assign(register, value)])]))
                term = compose(f"(int)popcount_u32({value})", value)
            self.e.emit(ir.Assign(total, combine(self.operation, self.node.dtype, total, term)))

    def _reload_values(self, k: str, turn: str) -> list[str]:
        """Return variables with the elements of a turn: from registers or, where a tile has too many, loaded again."""
        e, names = self.e, [self.e.new_name() for _ in self.rows]
        register_type = "u32" if self.is_boolean else c_type(self.node.dtype)
        for name, registers in zip(names, self.registers, strict=True):
            register = compose(f"{registers}[{self.holds_registers} ? {turn} : 0]", registers, turn)
            e.emit(ir.Declare(register_type, name, register))
        with e.branch(f"!{self.holds_registers}"):
            for name, value in zip(names, self._load_values(k), strict=True):
                e.emit(ir.Assign(name, value))
        return names

    def _emit_prefixes(self, k: str, turn: str) -> None:
        """Emit the scan of a tile from its prefix, and the stores."""
        e, names = self.e, self._reload_values(k, turn)
        if self.is_boolean:
            for name in names:
                bits = compose(f"ballot({name})", name)
                e.emit(ir.If([(f"!{self.holds_registers}", [ir.Assign(name, bits)])]))
        position = variable(k, len(e.scopes) - 1)
        if self.node.params["reverse"]:
            position = compose(f"({self.n - 1} - {k})", position)
        function = "scan_bits" if self.is_boolean else f"scan_{self.c_operation}"
        for row, name, prefix in zip(self.rows, names, self.prefixes, strict=True):
            total = e.new_name("s")
            e.emit(ir.Let(c_type(self.node.dtype), total, compose(f"{function}(&{prefix}, {name})", prefix, name)))
            index = (*row[: self.axis], position, *row[self.axis :])
            is_inside = ir.Mask(compose(f"{k} < {self.n}", k), is_full=True)
            e.emit_store(self.target, self.node, index, variable(total, len(e.scopes) - 1), is_inside)


def _count_words(size: int) -> int:
    return -(-size // 32)


def _plane_stride(bitplanes: Node) -> int:
    """Return the words from the planes of 32 neighbours to those of the next 32."""
    return 4 if bitplanes.params["bits"] <= 4 else 8


def count_plane_words(bitplanes: Node) -> int:
    """Return the words that all planes take."""
    return _count_words(bitplanes.size) * _plane_stride(bitplanes)


def emit_bitplanes(e: LoopEmitter, name: str, bitplanes: Node, value: Expr) -> None:
    """Emit the store of the scores of 32 neighbours as bit planes."""
    bits, stride = bitplanes.params["bits"], _plane_stride(bitplanes)
    e.emit(ir.Call("STORE_BITPLANES", (name, str(bits), str(stride), e.current.variable, value), writes=(name,)))


def emit_replacement_table(e: LoopEmitter, node: Node) -> None:
    """Emit the table from which `emit_replacement_index` looks up rows; each block computes its own."""
    (bitplanes,) = node.inputs
    size, bits = bitplanes.size, bitplanes.params["bits"]
    array = e.bindings.storage[bitplanes.id]
    assert isinstance(array, str)
    slots = [e.new_slot() for _ in range(bits + 2)]
    function, n_survivors = e.new_name("fill"), e.new_name("r")
    e.resources.definitions.append(
        f"REPLACEMENT_TABLE({function}, {size}, {bits}, {_plane_stride(bitplanes)}, {slots[0]})"
    )
    table = e.allocate(2 * (_count_words(size) + 1) + _count_words(size // 2), "uint32", per_block=True)
    arguments = (f"(const u32 *){array}", table, "warp_partials")
    e.emit(ir.Call(function, arguments, reads=(array,), writes=(table,), result=n_survivors))
    e.hazards.is_written = e.hazards.is_read = True
    e.bindings.replacement_tables[node.id] = table, n_survivors


def emit_replacement_index(e: ElementEmitter, node: Node, index: tuple[Index, ...]) -> Expr:
    """Emit the lookup of the offspring that replaces a parent, or -1 if the parent survives.

    In a long loop whose warps each have one row, each lane looks it up for one turn of its warp, before the loop.
    """
    size, (table, n_survivors) = node.inputs[0].size, e.bindings.replacement_tables[node.id]
    row = e.flatten_index(index, node.shape)
    arguments = f"{table}, {_count_words(size)}, {size // 2}, {n_survivors}"
    text = f"find_replacement({arguments}, {row})"
    names = ir.names_of(n_survivors, row)
    loop = e.current.thread_loop
    if loop is not None and _is_warp_uniform(e, loop) and isinstance(row, Expr) and row.text in loop.row_counters:
        count, row_elements = math.prod(loop.shape), math.prod(loop.shape[1:])
        if node.id not in loop.lane_values:
            loop.lane_values[node.id] = e.new_name("h")
            before_loop = f"REPLACEMENTS_OF_TURNS({count}, {row_elements}, {arguments})"
            lookup = ir.Lookup(before_loop, (table,), ir.names_of(n_survivors))
            e.emit(ir.Let("int", loop.lane_values[node.id], lookup), loop.depth - 1)
        text = f"OF_TURN({count}, {loop.lane_values[node.id]}, {loop.row_counters[row.text]}, {text})"
        names += loop.lane_values[node.id], loop.row_counters[row.text]
    return e.declare(node.dtype, ir.Lookup(text, (table,), names), e.index_depth(index))


def _is_warp_uniform(e: ElementEmitter, loop: ThreadLoop) -> bool:
    """True if all lanes of a warp have the same row, and none is in a branch."""
    return len(loop.shape) > 1 and loop.shape[-1] % 32 == 0 and len(e.scopes) - 1 == loop.depth
