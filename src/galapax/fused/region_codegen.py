"""Loop IR of regions: the loops of each stage, what they reduce and store, and the barriers between stages.

Then the control flow that holds regions: loop-carried values, `while`, `scan` and `cond` inside a generation.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from galapax.fused import loop_ir as ir
from galapax.fused.array_ir import Kind, Node, Region
from galapax.fused.c_expressions import (
    ITEM_BYTES,
    STORAGE_TYPES,
    Index,
    Storage,
    as_expr,
    c_type,
    element_key,
)
from galapax.fused.cost_model import (
    MAX_BLOCK_THREADS,
    MAX_BRANCHLESS_RUNS,
    MAX_CLUSTER_BLOCKS,
    MAX_GROUPED_THREADS,
    MAX_REDUNDANT_ELEMENTS,
    MAX_REDUNDANT_LOOP_OPS,
    MAX_REGISTER_ELEMENTS,
    SECTOR_BYTES,
)
from galapax.fused.loop_codegen import LoopEmitter
from galapax.fused.loop_ir import Expr, compose
from galapax.fused.reductions import (
    Accumulators,
    accumulate,
    bind_extreme_value,
    bind_results,
    declare_accumulators,
    emit_block_partials,
    emit_warp_partials,
    is_order_independent,
    list_folds,
    pair_extremes_with_positions,
    prefetch_reduction,
)
from galapax.fused.schedule import (
    LaunchShape,
    estimate_loop_ops,
    find_last_reading_stage,
    find_loop_body,
    is_collective,
    is_computed_by,
    is_cooperative_reduction,
    longest_inner_reduction,
    loop_shape,
    plan_stages,
    squeeze_shape,
    thread_axes,
)


class _RegionEmitter:
    """Emits the loops of each stage of a region, its collective operations, and the barriers that end the stages.

    targets: arrays for some of the nodes, by node id. in_place_candidates: by id of the new value: the old value, its
    array, and the last stage that reads it, see `find_last_reading_stage`.
    """

    def __init__(
        self,
        e: LoopEmitter,
        region: Region,
        outputs: list[Node],
        targets: dict[int, list[str]],
        in_place_candidates: Sequence[tuple[Node, str, Node]],
    ) -> None:
        self.e, self.region, self.outputs, self.targets = e, region, outputs, targets
        available, blocks = e.bindings.available, e.shape.blocks_per_run
        self.plan = plan_stages(region, outputs, set(targets) - available, available, blocks)
        self.in_place_candidates = {
            new.id: (old, array, find_last_reading_stage(self.plan, outputs, old, new))
            for old, array, new in in_place_candidates
        }
        self.barriers_before: list[int] = []  # barriers emitted before the end of each stage

    def emit(self) -> None:
        """Emit all stages."""
        e, plan = self.e, self.plan
        if e.resources.listings is not None and self.region is e.bindings.generation_region:
            e.resources.listings.append(("schedule", list(plan.describe())))
        e.bindings.deferred_stores.update(dict.fromkeys(plan.deferred_stores))
        # with few threads, divergence costs more than it saves
        if e.shape.blocks_per_run > 1 or e.shape.runs_per_sm > MAX_BRANCHLESS_RUNS:
            e.branch_only |= plan.branch_only
        for stage in plan.stages:
            self._emit_stage(stage)
        for number in plan.deferred_stores:
            stored = e.bindings.deferred_stores.pop(number)
            assert stored is not None
            e.bind(*stored)
        for node in self.outputs:  # those that are bound to another array already
            for name in self.targets.get(node.id, ()):
                if (node.id, name) not in e.bindings.written_targets:
                    e.emit_copy(node, name)

    def _emit_stage(self, roots: list[Node]) -> None:
        e = self.e
        paired_extremes = pair_extremes_with_positions(roots) if e.shape.blocks_per_run == 1 else {}
        stage = [root for root in roots if root.id not in paired_extremes]
        loops = group_into_loops(e, [root for root in stage if not is_collective(root)])
        reductions = [r for r in stage if is_cooperative_reduction(r)]
        slots = {r.id: [e.new_slot() for _ in range(r.size)] for r in reductions}
        accumulators = {r.id: declare_accumulators(e, r) for r in reductions}
        is_redundant = [is_redundant_scatter(e.shape, roots[0]) or is_redundant_loop(e, roots) for roots in loops]
        redundant = {root.id for number, roots in enumerate(loops) if is_redundant[number] for root in roots}
        for number, roots in enumerate(loops):
            self._choose_in_place(roots, is_redundant[number])
            self._emit_loop(roots, accumulators, is_redundant[number], is_reversed=number % 2 == 1)
        strategies = {r.id: self._choose_broadcast(r, r.id in redundant) for r in reductions}
        emit_warp_partials(e, reductions, slots, accumulators)
        emit_block_partials(e, reductions, slots, strategies)
        self.barriers_before.append(e.hazards.n_barriers)
        if loops:
            e.emit_barrier(all(is_redundant))
        bind_results(e, reductions, slots, accumulators, strategies)
        for extreme, position in paired_extremes.values():
            bind_extreme_value(e, extreme, position, slots, accumulators)
        for root in stage:
            if is_collective(root):
                assert root.spec.emit_collective is not None
                root.spec.emit_collective(e, root)
                e.bindings.available.add(root.id)

    def _choose_in_place(self, roots: list[Node], is_redundant: bool) -> None:
        """Let a loop update loop-carried arrays in place where all earlier reads are behind a barrier."""
        e = self.e
        if is_redundant or choose_group_size(e, loop_shape(roots[0]), roots, is_redundant) > 1:
            return
        for root in roots:
            old, array, last_stage = self.in_place_candidates.get(root.id, (None, "", None))
            if old is None or last_stage is None:
                continue
            if last_stage < 0 or self.barriers_before[last_stage] < e.hazards.n_barriers:
                self.targets[root.id] = [array]
                e.bindings.in_place[array] = old

    def _choose_broadcast(self, root: Node, is_per_block: bool) -> ir.Broadcast:
        """Choose how all threads of a run get the result of a reduction, see reductions.py."""
        e = self.e
        if e.shape.blocks_per_run == 1 or is_per_block:
            return ir.Broadcast.PER_BLOCK
        if e.shape.blocks_per_run <= MAX_CLUSTER_BLOCKS:
            return ir.Broadcast.CLUSTER
        if self.region is not e.bindings.generation_region:
            return ir.Broadcast.GATHER
        if is_order_independent(root):
            return ir.Broadcast.ATOMIC
        return ir.Broadcast.HISTORY_WARP if root.id in e.bindings.history_only else ir.Broadcast.GATHER

    def _emit_loop(
        self, roots: list[Node], accumulators: dict[int, Accumulators], per_block: bool, is_reversed: bool
    ) -> None:
        """Emit the loop that computes these roots and stores them or accumulates their reductions."""
        e, shape = self.e, loop_shape(roots[0])
        group = choose_group_size(e, shape, roots, per_block)
        leader = None if group == 1 else ir.Mask("lane == 0", is_full=True)
        targets_of: dict[int, tuple[Node, list[str]]] = {}
        whole_warps = roots[0].spec.packing is not None
        unroll = 1 if whole_warps else choose_unroll(e.shape, shape, group, per_block)
        for root in roots:
            if not is_cooperative_reduction(root):
                size = root.size if root.spec.packing is None else root.spec.packing.count_words(root)
                names = self.targets.get(root.id) or [e.allocate(size, root.dtype, per_block)]
                targets_of[root.id] = root, names
        reductions = [root for root in roots if is_cooperative_reduction(root)]
        folds = tuple(fold for root in reductions for fold in list_folds(root, accumulators[root.id]))
        with e.parallel_loop(
            shape,
            group,
            per_block,
            unroll=unroll,
            is_reversed=is_reversed and unroll == 1,
            folds=folds,
            whole_warps=whole_warps,
        ) as index:
            depth, stores = len(e.scopes) - 1, []
            points: list[tuple[tuple[Index, ...], ir.Scalar]] = [(index, "" if leader is None else leader.condition)]
            for step in range(1, unroll):  # the last elements may be computed twice, but must not be accumulated twice
                v, n = e.current.variable, math.prod(shape)
                i = turn = e.declare("int32", _next_turn(v, step, n, group), depth)
                if group > 1:
                    of_group = compose(f"(int)((u32){turn} / {group})", turn)
                    i = e.declare("int32", ir.ByTarget(gpu=of_group, cpu=turn), depth)
                test = f"{'lane == 0 && ' if group > 1 else ''}{turn} != {v}"
                points.append((e.unflatten_index(i, shape, is_loop_variable=group == 1), compose(test, turn, v)))
                e.record_row_counter(points[-1][0], turn.text)
            for index, _ in points if e.shape.blocks_per_run > 1 else ():
                prefetch_loads(e, roots, index, group)
            for (number, (index, guard)), root in itertools.product(enumerate(points), roots):
                if is_cooperative_reduction(root):
                    accumulate(e, root, index, accumulators[root.id], guard, number > 0)
                    continue
                for element in e.thread_elements(root.shape, thread_axes(root), index):
                    value = e.emit_root(root, tuple(element))
                    if value.depth < depth and root.size > 1 and value.literal is not None:
                        value = e.declare(root.dtype, value, depth)
                    stores += [(name, root, element, value) for name in targets_of[root.id][1]]
                    e.scopes[-1].values[element_key(root, element)] = value
            # stores come last, so that the compiler may move loads up: it cannot tell that arrays do not alias
            for name, root, element, value in stores:
                if root.spec.packing is not None:
                    root.spec.packing.emit_store(e, name, root, value)
                else:
                    mask = leader or in_place_mask(e, name, root, element)
                    changed = changed_value(e, name, root, element, value) if mask else value
                    e.emit_store(name, root, element, changed, mask)
        for root, names in targets_of.values():
            e.bindings.written_targets.update((root.id, name) for name in names)
            if root.id in e.bindings.deferred_stores:
                e.bindings.deferred_stores[root.id] = root, names[0]
            else:
                e.bind(root, names[0])


def _next_turn(v: str, step: int, n: int, group: int) -> ir.ByTarget:
    """Return what a loop variable is so many steps further, or the variable itself where that is beyond the end."""
    gpu, cpu = f"{v} + {step} * RUN_THREADS", f"{v} + {step}"
    return ir.ByTarget(
        gpu=compose(f"({gpu} < {n * group} ? {gpu} : {v})", v), cpu=compose(f"({cpu} < {n} ? {cpu} : {v})", v)
    )


def emit_region(
    e: LoopEmitter,
    region: Region,
    outputs: list[Node],
    targets: dict[int, list[str]],
    in_place_candidates: Sequence[tuple[Node, str, Node]] = (),
) -> None:
    """Emit the code that computes these outputs of a region. targets: arrays for some of them, by node id.

    in_place_candidates: (old value, its array, new value) of loop-carried arrays; updated in place where possible.
    """
    _RegionEmitter(e, region, outputs, targets, in_place_candidates).emit()


def group_into_loops(e: LoopEmitter, roots: list[Node]) -> list[list[Node]]:
    """Group the roots of a stage that one loop computes."""
    by_domain: dict[tuple[tuple[int, ...], bool, bool], list[Node]] = {}
    for root in roots:
        key = (loop_shape(root), is_redundant_scatter(e.shape, root), root.spec.packing is not None)
        by_domain.setdefault(key, []).append(root)
    is_split = e.shape.blocks_per_run > 1 or e.shape.for_cpu
    return [loop for group in by_domain.values() for loop in (split_by_reductions(e, group) if is_split else [group])]


def split_by_reductions(e: LoopEmitter, roots: list[Node]) -> list[list[Node]]:
    """Separate roots whose reductions a group of threads shares from the other roots.

    In one loop every thread of a group would repeat the others. On a CPU the reductions are vectorised, and the
    loop around them is not.
    """
    available = e.bindings.available
    has_reductions = [longest_inner_reduction([r], available, e.shape.min_group_steps) > 1 for r in roots]
    halves = [[r for r, has in zip(roots, has_reductions, strict=True) if has == flag] for flag in (True, False)]
    is_dependent = any(
        is_computed_by(a, b, available) or is_computed_by(b, a, available) for a, b in itertools.product(*halves)
    )
    return halves if all(halves) and not is_dependent else [roots]


def _in_place_operand(e: LoopEmitter, name: str, root: Node) -> Node | None:
    """Return what a select stores into an array updated in place, if its other operand is the array's old value."""
    previous = e.bindings.in_place.get(name)
    if previous is None or not root.is_binary_select or previous not in root.inputs[1:]:
        return None
    return root.inputs[2 if root.inputs[1] is previous else 1]


def changed_value(e: LoopEmitter, name: str, root: Node, index: Sequence[Index], value: Expr) -> Expr | ir.ByTarget:
    """Return the changed element itself if it was emitted: storing it under the condition needs no select.

    A CPU stores an element that stays again, without a condition.
    """
    operand = _in_place_operand(e, name, root)
    if operand is None or operand.op == "literal" or operand.shape != root.shape:
        return value
    if not e.is_emitted(operand, tuple(index)):
        return value
    return ir.ByTarget(gpu=e.emit_element(operand, index), cpu=value)


def in_place_mask(e: LoopEmitter, name: str, root: Node, index: Sequence[Index]) -> ir.Mask | None:
    """Return the condition under which an element updated in place must be stored, or None if always."""
    operand = _in_place_operand(e, name, root)
    if operand is None:
        return None
    condition = root.inputs[0]
    test = e.emit_element(condition, tuple(index) if condition.shape else ())
    is_uniform = test.depth < len(e.scopes) - 1  # the same for a whole row
    return ir.Mask(compose(f"{'' if root.inputs[2] is operand else '!'}{test}", test), is_optional=not is_uniform)


def is_redundant_loop(e: LoopEmitter, roots: list[Node]) -> bool:
    """True if every block computes the whole loop redundantly rather than wait for a barrier of all blocks."""
    if e.shape.blocks_per_run == 1 or math.prod(loop_shape(roots[0])) > MAX_REDUNDANT_ELEMENTS:
        return False
    return estimate_loop_ops(roots, e.bindings.available) <= MAX_REDUNDANT_LOOP_OPS


def is_redundant_scatter(launch: LaunchShape, root: Node) -> bool:
    """True if every block performs a scatter redundantly, and so initialises what it scatters into."""
    return root.op == "alloc" and root.size + root.params["updates"] <= launch.max_redundant_elements


def choose_unroll(launch: LaunchShape, shape: tuple[int, ...], group: int, per_block: bool) -> int:
    """Return how many elements a thread computes per turn: two hide the latency of each other's loads."""
    is_long = not per_block and math.prod(shape) * group >= 2 * launch.blocks_per_run * MAX_BLOCK_THREADS
    is_gpu_alone = launch.runs_per_sm == 1 and not launch.for_cpu
    return 2 if is_long and is_gpu_alone and (group == 1 or launch.blocks_per_run > 1) else 1


def choose_group_size(e: LoopEmitter, shape: tuple[int, ...], roots: list[Node], per_block: bool) -> int:
    """Return how many threads share an element of a loop with reductions."""
    launch = e.shape
    if launch.for_cpu or roots[0].spec.packing is not None:
        return 1
    length = longest_inner_reduction(roots, e.bindings.available, launch.min_group_steps)
    size = math.prod(shape)
    has_float64 = any(root.dtype == "float64" for root in roots)  # which leaves large blocks too few registers
    block_threads = MAX_GROUPED_THREADS // (2 if has_float64 else 1) // launch.runs_per_sm
    max_threads = block_threads * (1 if per_block else launch.blocks_per_run)
    min_group, max_group = 1, min(32, length if launch.blocks_per_run > 1 else length // 2)
    if launch.blocks_per_run > 1 and not per_block:
        # all SMs load rows from global memory: a group loads at least a whole sector
        min_group = SECTOR_BYTES // max(ITEM_BYTES[root.dtype] for root in roots)
    group = 1
    while 2 * group <= max_group and (2 * group * size <= max_threads or 2 * group <= min_group):
        group *= 2
    return group


def prefetch_loads(e: LoopEmitter, roots: list[Node], index: Sequence[Index], group: int) -> None:
    """Emit the loads of a turn before anything is computed: the compiler moves no load across a branch."""
    shape = loop_shape(roots[0])
    if group > 1:
        for node in find_loop_body(roots, e.bindings.available):
            is_inner = node.kind is Kind.REDUCTION and not is_cooperative_reduction(node)
            if is_inner and squeeze_shape(node.shape) == shape:
                prefetch_reduction(e, node, tuple(e.full_index(node.shape, index)))
        return
    for root in roots:
        if not is_cooperative_reduction(root) and len(index) == len(squeeze_shape(root.shape)):
            full = e.full_index(root.shape, index)
            for node in e.find_loads(root):
                e.emit_element(node, full)


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
                    e.emit(ir.Declare(c_type(node.dtype), name))
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
                    self.e.emit(ir.Assign(name, element))
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
        new_values = list[list[Expr]]()
        for node, storage, out in zip(self.nodes, self.storage, outputs, strict=True):
            if isinstance(storage, list) and out is not node:
                indices = [e.unflatten_index(i, out.shape) for i in range(len(storage))]
                new_values.append([e.emit_element(out, index) for index in indices])
            else:
                new_values.append([])
        assignments: list[ir.Assign] = []
        for node, storage, values in zip(self.nodes, self.storage, new_values, strict=True):
            for name, value in zip(storage if values else (), values, strict=True):
                new = e.new_name("n")
                e.emit(ir.Let(c_type(node.dtype), new, value))
                assignments.append(ir.Assign(name, new))
        for assignment in assignments:
            e.emit(assignment)
        for node, a, b, out in zip(self.nodes, self.storage, self.next_storage, outputs, strict=True):
            if isinstance(a, str) and out is not node and a not in e.bindings.in_place:
                assert isinstance(b, str)
                e.emit(ir.Swap(a, b, STORAGE_TYPES[node.dtype], e.new_name("p")))
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
    with e.loop(ir.For(ir.Axis.SERIAL)), RegionBindings(e):
        loop_carry.bind_current()
        condition, *outputs = region.outputs
        emit_region(e, region, [condition], {})
        goes_on = e.emit_element(condition, ())
        e.emit(ir.Break(compose(f"!{goes_on}", goes_on)))
        emit_region(e, region, outputs, loop_carry.find_store_targets(outputs))
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
    with e.loop(ir.For(ir.Axis.SERIAL, c, length)), RegionBindings(e):
        loop_carry.bind_current()
        if region.loop_index is not None:
            e.bind(region.loop_index, [c])
        outputs = region.outputs[:n_carry]
        targets, candidates = loop_carry.find_store_targets(outputs), loop_carry.find_in_place_candidates(outputs)
        emit_region(e, region, region.outputs, targets, candidates)
        for out, name in rows:
            position = f"{length - 1} - {c}" if node.params["reverse"] else c
            with e.parallel_loop(squeeze_shape(out.shape)) as index:
                full = e.full_index(out.shape, index)
                value = e.emit_element(out, full)
                column = as_expr(e.flatten_index(full, out.shape))
                offset = compose(f"({position}) * {out.size} + {column}", c, column)
                e.emit(ir.Store(name, offset, value, STORAGE_TYPES[out.dtype]))
        loop_carry.emit_update(outputs)
    e.bindings.output_storage[node.id] = [*loop_carry.storage, *(name for _, name in rows)]


def emit_cond(e: LoopEmitter, node: Node) -> None:
    regions: list[Region] = node.params["regions"]
    storage: list[Storage] = []
    for out in regions[0].outputs:
        if out.size <= MAX_REGISTER_ELEMENTS:
            names = [e.new_name("c") for _ in range(out.size)]
            for name in names:
                e.emit(ir.Declare(c_type(out.dtype), name))
            storage.append(names)
        else:
            storage.append(e.allocate(out.size, out.dtype))
    branch_index = e.emit_element(node.inputs[0], ())
    last = len(regions) - 1
    branches = list[tuple[ir.Scalar, list[ir.Statement]]]()
    for number, region in enumerate(regions):
        test: ir.Scalar = "" if number == last else compose(f"{branch_index} <= {number}", branch_index)
        with e.detached_scope() as scope, RegionBindings(e):
            targets: dict[int, list[str]] = {}
            for out, target in zip(region.outputs, storage, strict=True):
                if isinstance(target, str):
                    targets.setdefault(out.id, []).append(target)
            emit_region(e, region, region.outputs, targets)
            for out, target in zip(region.outputs, storage, strict=True):
                for i, name in enumerate(target if isinstance(target, list) else ()):
                    e.emit(ir.Assign(name, e.emit_element(out, e.unflatten_index(i, out.shape))))
        branches.append((test, scope.body))
    e.emit(ir.If(branches))
    e.emit_barrier()
    e.bindings.output_storage[node.id] = storage
