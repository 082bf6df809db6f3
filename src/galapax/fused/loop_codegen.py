"""Kernel code generation: parallel loops, barriers between stages, and arrays in memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from galapax.fused.array_ir import Kind, Node, Region
from galapax.fused.bitplane_selection import count_plane_words, emit_bitplanes
from galapax.fused.c_expressions import (
    ITEM_BYTES,
    STORAGE_TYPES,
    Expr,
    Index,
    Storage,
    c_type,
    element_key,
    index_text,
)
from galapax.fused.cooperative_reductions import (
    Accumulators,
    Broadcast,
    accumulate,
    bind_extreme_value,
    bind_results,
    declare_accumulators,
    emit_block_partials,
    emit_warp_partials,
    is_order_independent,
    list_folds,
    pair_extremes_with_positions,
)
from galapax.fused.cost_model import estimate_loop_ops, find_loop_body, is_computed_by, longest_inner_reduction
from galapax.fused.element_codegen import ElementEmitter, ThreadLoop
from galapax.fused.in_place import find_last_reading_stage
from galapax.fused.iteration_domains import (
    is_collective,
    is_cooperative_reduction,
    loop_shape,
    squeeze_shape,
    thread_axes,
)
from galapax.fused.loop_ir import Axis, Barrier, BarrierScope, Call, For, Mask, OneThread, Store
from galapax.fused.passes import Buffer
from galapax.fused.stages import plan_stages
from galapax.fused.thread_reductions import prefetch_reduction

MAX_REDUNDANT_LOOP_OPS = 2**17  # each block computes cheaper loops redundantly, instead of a barrier of all blocks
MAX_REDUNDANT_ELEMENTS = (2**12, 2**15)  # that each block scans or scatters redundantly: in a cluster, in a grid
MAX_GROUPED_THREADS = 1024  # groups of threads share the reductions of a loop up to this many threads
MAX_BLOCK_THREADS = 1024  # the hardware's limit
SECTOR_BYTES = 32  # a GPU loads memory in sectors of so many bytes
MIN_GROUP_STEPS = 8  # shorter reductions are not split among the threads of a group, where several blocks share a run
MIN_VECTOR_ROW = 8  # on a CPU, longer rows are an inner loop that can be vectorised
MAX_BRANCHLESS_RUNS = 8  # with more runs per SM it is busy anyway, so that branches which save work save time
MAX_CLUSTER_BLOCKS = 16  # larger grids synchronise through a counter in global memory


class KernelBuilder(ElementEmitter):
    """Emits regions stage by stage: parallel loops, reductions, collective operations and the barriers between them.

    blocks_per_run: 1, a cluster of up to 16, or a grid. runs_per_sm: how many runs share a streaming multiprocessor.
    """

    def __init__(self, blocks_per_run: int = 1, runs_per_sm: int = 1, for_cpu: bool = False) -> None:
        super().__init__()
        self.for_cpu = for_cpu
        self.blocks_per_run = blocks_per_run
        self.runs_per_sm = runs_per_sm
        self.is_latency_bound = blocks_per_run == 1 and runs_per_sm == 1
        self.min_group_steps = MIN_GROUP_STEPS if blocks_per_run > 1 else self.min_group_steps
        is_grid = blocks_per_run > MAX_CLUSTER_BLOCKS
        self.max_redundant_elements = MAX_REDUNDANT_ELEMENTS[is_grid] if blocks_per_run > 1 else 0
        self.buffers: list[Buffer] = []
        self.n_reduction_slots = 0  # each has memory for one partial result per warp
        self.widest_loop = 1  # iterations of the longest loop, from which the block size follows
        self.table_bytes = 0  # of the generation table
        self.n_barriers = 0  # in the current iteration of a loop
        self.written_since_barrier = False  # whether memory was written since the last barrier
        self.generation_region: Region | None = None  # the body of a generation, whose number in the chunk is `g`
        self.n_atomic_slots = 0  # slots of reductions that blocks combine by atomics in global memory
        self.pending_resets: list[int] = []  # those to be reset before the next barrier
        self.history_only: set[int] = set()  # nodes that only the history row of a generation needs
        self.in_place: dict[str, Node] = {}  # arrays updated in place, and their old values
        self.deferred_stores: dict[int, tuple[Node, str] | None] = {}  # where, but not to be read in this iteration
        self.loop_variable = ""  # of the current loop
        self._available: set[int] = set()
        self._written_targets: set[tuple[int, str]] = set()

    def allocate(self, size: int, dtype: str, per_block: bool = False) -> str:
        """Allocate an array; per_block: each block has its own copy."""
        buffer = Buffer(self.new_name("b"), size, dtype, per_block or self.blocks_per_run == 1)
        c_type(dtype)
        self.buffers.append(buffer)
        return buffer.name

    def emit_barrier(self, per_block: bool = False) -> None:
        """Emit a barrier of all threads of a run, or of a block."""
        if not per_block:
            self.reset_atomic_slots()
        self.emit(Barrier(BarrierScope.BLOCK if per_block and self.blocks_per_run > 1 else BarrierScope.RUN))
        if not per_block or self.blocks_per_run == 1:
            self.n_barriers += 1
            self.written_since_barrier = self.read_since_barrier = False

    def reset_atomic_slots(self) -> None:
        """Reset the atomic slots of the next generation: each reduction has two that alternate."""
        if self.pending_resets:
            self.emit(OneThread([Call("UNMEET", (str(slot),)) for slot in self.pending_resets]))
        self.pending_resets = []

    def new_slot(self) -> int:
        """Reserve memory for the partial results that warps leave of a reduction, and return its slot."""
        self.n_reduction_slots += 1
        return self.n_reduction_slots - 1

    def bind(self, node: Node, storage: Storage) -> None:
        """Bind a node to its array or registers."""
        self.storage[node.id] = storage
        self._available.add(node.id)

    def emit_region(
        self,
        region: Region,
        outputs: list[Node],
        targets: dict[int, list[str]],
        in_place_candidates: Sequence[tuple[Node, str, Node]] = (),
    ) -> None:
        """Emit the code that computes these outputs of a region. targets: arrays for some of them, by node id.

        in_place_candidates: (old value, its array, new value) of loop-carried arrays; updated in place where possible.
        """
        plan = plan_stages(region, outputs, set(targets) - self._available, self._available, self.blocks_per_run)
        candidates = {
            new.id: (old, array, find_last_reading_stage(plan, outputs, old, new))
            for old, array, new in in_place_candidates
        }
        barriers_before: list[int] = []  # barriers emitted before the end of each stage
        self.deferred_stores.update(dict.fromkeys(plan.deferred_stores))
        # with few threads, divergence costs more than it saves
        if self.blocks_per_run > 1 or self.runs_per_sm > MAX_BRANCHLESS_RUNS:
            self.branch_only |= plan.branch_only
        for stage in plan.stages:
            paired_extremes = pair_extremes_with_positions(stage) if self.blocks_per_run == 1 else {}
            stage = [root for root in stage if root.id not in paired_extremes]
            loops = self._group_into_loops([root for root in stage if not is_collective(root)])
            reductions = [r for r in stage if is_cooperative_reduction(r)]
            slots = {r.id: [self.new_slot() for _ in range(r.size)] for r in reductions}
            accumulators = {r.id: declare_accumulators(self, r) for r in reductions}
            is_redundant = [self._is_redundant_scatter(roots[0]) or self._is_redundant_loop(roots) for roots in loops]
            redundant = {root.id for number, roots in enumerate(loops) if is_redundant[number] for root in roots}
            for number, roots in enumerate(loops):
                self._choose_in_place(roots, is_redundant[number], candidates, barriers_before, targets)
                self._emit_loop(roots, targets, accumulators, is_redundant[number], is_reversed=number % 2 == 1)
            strategies = {r.id: self._choose_broadcast(r, region, r.id in redundant) for r in reductions}
            emit_warp_partials(self, reductions, slots, accumulators)
            emit_block_partials(self, reductions, slots, strategies)
            barriers_before.append(self.n_barriers)
            if loops:
                self.emit_barrier(all(is_redundant))
            bind_results(self, reductions, slots, accumulators, strategies)
            for extreme, position in paired_extremes.values():
                bind_extreme_value(self, extreme, position, slots, accumulators)
            for root in stage:
                if is_collective(root):
                    self._emit_collective(root)
        for number in plan.deferred_stores:
            stored = self.deferred_stores.pop(number)
            assert stored is not None
            self.bind(*stored)
        for node in outputs:  # those that are bound to another array already
            for name in targets.get(node.id, ()):
                if (node.id, name) not in self._written_targets:
                    self.emit_copy(node, name)

    def _choose_in_place(
        self,
        roots: list[Node],
        is_redundant: bool,
        candidates: dict[int, tuple[Node, str, int | None]],
        barriers_before: list[int],
        targets: dict[int, list[str]],
    ) -> None:
        """Let a loop update loop-carried arrays in place where all earlier reads are behind a barrier."""
        if is_redundant or self._choose_group_size(loop_shape(roots[0]), roots, is_redundant) > 1:
            return
        for root in roots:
            old, array, last_stage = candidates.get(root.id, (None, "", None))
            if old is None or last_stage is None:
                continue
            if last_stage < 0 or barriers_before[last_stage] < self.n_barriers:
                targets[root.id] = [array]
                self.in_place[array] = old

    def _choose_broadcast(self, root: Node, region: Region, is_per_block: bool) -> Broadcast:
        """Choose how all threads of a run get the result of a reduction, see cooperative_reductions.py."""
        if self.blocks_per_run == 1 or is_per_block:
            return Broadcast.PER_BLOCK
        if self.blocks_per_run <= MAX_CLUSTER_BLOCKS:
            return Broadcast.CLUSTER
        if region is not self.generation_region:
            return Broadcast.GATHER
        if is_order_independent(root):
            return Broadcast.ATOMIC
        return Broadcast.HISTORY_WARP if root.id in self.history_only else Broadcast.GATHER

    def _group_into_loops(self, roots: list[Node]) -> list[list[Node]]:
        """Group the roots of a stage that one loop computes."""
        by_domain: dict[tuple[tuple[int, ...], bool, bool], list[Node]] = {}
        for root in roots:
            key = (loop_shape(root), self._is_redundant_scatter(root), root.op == "bitplanes")
            by_domain.setdefault(key, []).append(root)
        loops = []
        for group in by_domain.values():
            loops += self._split_by_reductions(group) if self.blocks_per_run > 1 or self.for_cpu else [group]
        return loops

    def _split_by_reductions(self, roots: list[Node]) -> list[list[Node]]:
        """Separate roots whose reductions a group of threads shares from the other roots.

        In one loop every thread of a group would repeat the others. On a CPU the reductions are vectorised, and the
        loop around them is not.
        """
        has_reductions = [longest_inner_reduction([r], self._available, self.min_group_steps) > 1 for r in roots]
        halves = [[r for r, has in zip(roots, has_reductions, strict=True) if has == flag] for flag in (True, False)]
        is_dependent = any(
            is_computed_by(a, b, self._available) or is_computed_by(b, a, self._available)
            for a, b in itertools.product(*halves)
        )
        return halves if all(halves) and not is_dependent else [roots]

    def emit_copy(self, node: Node, name: str) -> None:
        """Emit a loop that copies a node into an array, and a barrier."""
        with self.parallel_loop(squeeze_shape(node.shape)) as index:
            value = self.emit_element(node, self.full_index(node.shape, index))
            self.emit_store(name, node, self.full_index(node.shape, index), value)
        self.emit_barrier()

    def _in_place_operand(self, name: str, root: Node) -> Node | None:
        """Return what a select stores into an array updated in place, if its other operand is the array's old value."""
        previous = self.in_place.get(name)
        if previous is None or not root.is_binary_select or previous not in root.inputs[1:]:
            return None
        return root.inputs[2 if root.inputs[1] is previous else 1]

    def _changed_value(self, name: str, root: Node, index: Sequence[Index], value: Expr) -> Expr:
        """Return the changed element itself if it was emitted: storing it under the condition needs no select."""
        operand = self._in_place_operand(name, root)
        if operand is None or operand.op == "literal" or operand.shape != root.shape:
            return value
        if not self._is_emitted(operand, tuple(index)):
            return value
        return Expr(f"CHANGED({self.emit_element(operand, index).text}, {value.text})", value.depth)

    def emit_store(self, name: str, node: Node, index: Sequence[Index], value: Expr, mask: Mask | None = None) -> None:
        """Emit the store of an element."""
        offset = index_text(self.flatten_index(index, node.shape))
        self.emit(Store(name, offset, value.text, STORAGE_TYPES[node.dtype], mask))

    def _store_mask(self, name: str, root: Node, index: Sequence[Index]) -> Mask | None:
        """Return the condition under which an element updated in place must be stored, or None if always."""
        operand = self._in_place_operand(name, root)
        if operand is None:
            return None
        condition = root.inputs[0]
        test = self.emit_element(condition, tuple(index) if condition.shape else ())
        is_uniform = test.depth < len(self.scopes) - 1  # the same for a whole row
        return Mask(f"{'' if root.inputs[2] is operand else '!'}{test.text}", is_optional=not is_uniform)

    def _is_redundant_loop(self, roots: list[Node]) -> bool:
        """True if every block computes the whole loop redundantly rather than wait for a barrier of all blocks."""
        if self.blocks_per_run == 1 or math.prod(loop_shape(roots[0])) > MAX_REDUNDANT_ELEMENTS[0]:
            return False
        return estimate_loop_ops(roots, self._available) <= MAX_REDUNDANT_LOOP_OPS

    def _is_redundant_scatter(self, root: Node) -> bool:
        """True if every block performs a scatter redundantly, and so initialises what it scatters into."""
        return root.op == "alloc" and root.size + root.params["updates"] <= self.max_redundant_elements

    @contextmanager
    def parallel_loop(
        self,
        shape: tuple[int, ...],
        group: int = 1,
        per_block: bool = False,
        counts_for_width: bool = True,
        unroll: int = 1,
        is_reversed: bool = False,
        has_atomics: bool = False,
        accumulators: Sequence[tuple[Node, Accumulators]] = (),
        whole_warps: bool = False,
    ) -> Iterator[tuple[Index, ...]]:
        """Open a parallel loop over the elements of an array and yield the index.

        group: so many threads share an element and split its reductions. per_block: each block executes the whole loop.
        counts_for_width: the loop counts for the choice of the block size. unroll: elements per thread and turn, see
        `_choose_unroll`. is_reversed: the last threads take the first elements, since the first ones have more to do in
        the loop before. has_atomics: threads write to the same elements. accumulators: of the reductions inside.
        whole_warps: a warp takes 32 neighbours with all of its lanes active; those beyond the end repeat the last one.
        """
        size = math.prod(shape)
        axis = Axis.BLOCK if per_block else Axis.THREAD
        is_reversed = is_reversed and axis is Axis.THREAD and not whole_warps
        self.written_since_barrier = True
        width = size if group == 1 else min(size * group, 256 * (1 if per_block else self.blocks_per_run))
        if counts_for_width:
            self.widest_loop = max(self.widest_loop, width * self.blocks_per_run if per_block else width)
        i, q = self.new_name("i"), self.new_name("q")
        self.loop_variable = i if group == 1 else q
        folds = tuple(fold for root, names in accumulators for fold in list_folds(root, names))
        loop = For(axis, self.loop_variable, size, step=unroll, group=group, folds=folds, is_reversed=is_reversed)
        loop.has_atomics, loop.whole_warps = has_atomics, whole_warps
        if self.for_cpu and len(shape) > 1 and shape[-1] >= MIN_VECTOR_ROW:
            r = self.new_name("r")
            with self.loop(For(Axis.SERIAL, r, size // shape[-1])):
                outer = self.unflatten_index(Expr(r, len(self.scopes) - 1), shape[:-1])
                loop.variable, loop.extent = i, shape[-1]
                with self.loop(loop):
                    yield *outer, Expr(i, len(self.scopes) - 1)
            return
        if group == 1:
            # the compiler would not unroll two turns by itself
            is_two_turns = self.runs_per_sm > 1 and size == 2 * max(32, MAX_BLOCK_THREADS // self.runs_per_sm)
            loop.is_unrolled = is_two_turns and not whole_warps and unroll == 1
            with self.loop(loop):
                inside = len(self.scopes) - 1
                index = self.unflatten_index(Expr(i, inside), shape, is_loop_variable=not is_reversed)
                is_shared = axis is Axis.THREAD and not is_reversed and self.blocks_per_run > 1 and not whole_warps
                self.thread_loop = ThreadLoop(shape, inside) if is_shared else None
                self.record_row_counter(index, i)
                yield index
                self.thread_loop = None
            return
        loop.element = i
        with self.loop(loop):
            depth = len(self.scopes) - 1
            self.thread_group = (group, depth)
            yield self.unflatten_index(Expr(i, depth), shape)
            self.thread_group = None
            self.prefetched.clear()

    def record_row_counter(self, index: Sequence[Index], loop_variable: str) -> None:
        """Record which variable of the current loop gives the row of an index."""
        if self.thread_loop is not None and index and isinstance(index[0], Expr):
            self.thread_loop.row_counters[index[0].text] = loop_variable

    def _choose_unroll(self, shape: tuple[int, ...], group: int, per_block: bool) -> int:
        """Return how many elements a thread computes per turn: two hide the latency of each other's loads."""
        is_long = not per_block and math.prod(shape) * group >= 2 * self.blocks_per_run * MAX_BLOCK_THREADS
        is_gpu_alone = self.runs_per_sm == 1 and not self.for_cpu
        return 2 if is_long and is_gpu_alone and (group == 1 or self.blocks_per_run > 1) else 1

    def _choose_group_size(self, shape: tuple[int, ...], roots: list[Node], per_block: bool) -> int:
        """Return how many threads share an element of a loop with reductions."""
        if self.for_cpu or roots[0].op == "bitplanes":
            return 1
        length, size = longest_inner_reduction(roots, self._available, self.min_group_steps), math.prod(shape)
        has_float64 = any(root.dtype == "float64" for root in roots)  # which leaves large blocks too few registers
        block_threads = MAX_GROUPED_THREADS // (2 if has_float64 else 1) // self.runs_per_sm
        max_threads = block_threads * (1 if per_block else self.blocks_per_run)
        min_group, max_group = 1, min(32, length if self.blocks_per_run > 1 else length // 2)
        if self.blocks_per_run > 1 and not per_block:
            # all SMs load rows from global memory: a group loads at least a whole sector
            min_group = SECTOR_BYTES // max(ITEM_BYTES[root.dtype] for root in roots)
        group = 1
        while 2 * group <= max_group and (2 * group * size <= max_threads or 2 * group <= min_group):
            group *= 2
        return group

    def full_index(self, shape: tuple[int, ...], index: Sequence[Index]) -> list[Index]:
        """Insert the axes of length 1 into an index."""
        indices = iter(index)
        return [0 if n == 1 else next(indices) for n in shape]

    def thread_elements(
        self, shape: tuple[int, ...], axes: tuple[int, ...], index: Sequence[Index]
    ) -> Iterator[list[Index]]:
        """Yield the indices of all elements that a thread computes at one point of the loop over these axes."""
        for serial_index in itertools.product(*(range(n) for a, n in enumerate(shape) if a not in axes)):
            outer, inner = iter(index), iter(serial_index)
            yield [next(outer) if a in axes else next(inner) for a in range(len(shape))]

    def _emit_loop(
        self,
        roots: list[Node],
        targets: dict[int, list[str]],
        accumulators: dict[int, Accumulators],
        per_block: bool,
        is_reversed: bool,
    ) -> None:
        """Emit the loop that computes these roots and stores them or accumulates their reductions."""
        shape = loop_shape(roots[0])
        group = self._choose_group_size(shape, roots, per_block)
        leader = None if group == 1 else Mask("lane == 0", is_full=True)
        targets_of: dict[int, tuple[Node, list[str]]] = {}
        whole_warps = roots[0].op == "bitplanes"
        unroll = 1 if whole_warps else self._choose_unroll(shape, group, per_block)
        for root in roots:
            if not is_cooperative_reduction(root):
                size = count_plane_words(root) if root.op == "bitplanes" else root.size
                names = targets.get(root.id) or [self.allocate(size, root.dtype, per_block)]
                targets_of[root.id] = root, names
        loop_accumulators = [(root, accumulators[root.id]) for root in roots if is_cooperative_reduction(root)]
        with self.parallel_loop(
            shape,
            group,
            per_block,
            unroll=unroll,
            is_reversed=is_reversed and unroll == 1,
            accumulators=loop_accumulators,
            whole_warps=whole_warps,
        ) as index:
            depth, stores, points = len(self.scopes) - 1, [], [(index, "" if leader is None else leader.condition)]
            for step in range(1, unroll):  # the last elements may be computed twice, but must not be accumulated twice
                n_turns = f"{math.prod(shape)}" if group == 1 else f"{math.prod(shape)} * GROUP({group})"
                i = turn = self.declare("int32", f"NEXT({self.loop_variable}, {step}, {n_turns})", depth)
                if group > 1:
                    i = self.declare("int32", f"(int)((u32){turn.text} / GROUP({group}))", depth)
                leader_test = "lane == 0 && " if group > 1 else ""
                guard = f"{leader_test}{turn.text} != {self.loop_variable}"
                points.append((self.unflatten_index(i, shape, is_loop_variable=group == 1), guard))
                self.record_row_counter(points[-1][0], turn.text)
            for index, _ in points if self.blocks_per_run > 1 else ():
                self._prefetch_loads(roots, index, group)
            for (number, (index, guard)), root in itertools.product(enumerate(points), roots):
                if is_cooperative_reduction(root):
                    accumulate(self, root, index, accumulators[root.id], guard, number > 0)
                    continue
                for element in self.thread_elements(root.shape, thread_axes(root), index):
                    value = self._emit_root(root, tuple(element))
                    if value.depth < depth and root.size > 1 and value.literal is not None:
                        value = self.declare(root.dtype, value.text, depth)
                    stores += [(name, root, element, value) for name in targets_of[root.id][1]]
                    self.scopes[-1].values[element_key(root, element)] = value
            # stores come last, so that the compiler may move loads up: it cannot tell that arrays do not alias
            for name, root, element, value in stores:
                if root.op == "bitplanes":
                    emit_bitplanes(self, name, root, value)
                else:
                    mask = leader or self._store_mask(name, root, element)
                    changed = self._changed_value(name, root, element, value) if mask else value
                    self.emit_store(name, root, element, changed, mask)
        for root, names in targets_of.values():
            self._written_targets.update((root.id, name) for name in names)
            if root.id in self.deferred_stores:
                self.deferred_stores[root.id] = root, names[0]
            else:
                self.bind(root, names[0])

    def _prefetch_loads(self, roots: list[Node], index: Sequence[Index], group: int) -> None:
        """Emit the loads of a turn before anything is computed: the compiler moves no load across a branch."""
        shape = loop_shape(roots[0])
        if group > 1:
            for node in find_loop_body(roots, self._available):
                is_inner = node.kind is Kind.REDUCTION and not is_cooperative_reduction(node)
                if is_inner and squeeze_shape(node.shape) == shape:
                    prefetch_reduction(self, node, tuple(self.full_index(node.shape, index)))
            return
        for root in roots:
            if not is_cooperative_reduction(root) and len(index) == len(squeeze_shape(root.shape)):
                full = self.full_index(root.shape, index)
                for node in self.find_loads(root):
                    self.emit_element(node, full)

    def _emit_root(self, root: Node, index: tuple[Index, ...]) -> Expr:
        """Return an element of a root, emitting it unless it was already loaded."""
        value = self.scopes[-1].values.get(element_key(root, index))
        return self._emit_uncached(root, index) if value is None else value

    def _emit_collective(self, node: Node) -> None:
        """Emit an operation with barriers of its own."""
        assert node.spec.emit_collective is not None
        node.spec.emit_collective(self, node)
        self._available.add(node.id)

    def materialise(self, node: Node) -> str:
        """Return the array of a node, storing it first if it has none."""
        storage = self.storage.get(node.id)
        if isinstance(storage, str):
            return storage
        name = self.allocate(node.size, node.dtype)
        self.emit_copy(node, name)
        return name
