"""Loop IR of regions: the loops of each stage, what they reduce and store, and the barriers between stages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from galapax.fused.array_ir import Kind, Node, Region
from galapax.fused.bitplane_selection import count_plane_words, emit_bitplanes
from galapax.fused.c_expressions import (
    ITEM_BYTES,
    Expr,
    Index,
    element_key,
)
from galapax.fused.cost_model import (
    MAX_BLOCK_THREADS,
    MAX_BRANCHLESS_RUNS,
    MAX_CLUSTER_BLOCKS,
    MAX_GROUPED_THREADS,
    MAX_REDUNDANT_ELEMENTS,
    MAX_REDUNDANT_LOOP_OPS,
    SECTOR_BYTES,
)
from galapax.fused.loop_codegen import LoopEmitter
from galapax.fused.loop_ir import Mask
from galapax.fused.reductions import (
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
    prefetch_reduction,
)
from galapax.fused.schedule import (
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


class KernelBuilder(LoopEmitter):
    """Emits regions stage by stage: parallel loops, reductions, collective operations and the barriers between them."""

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
        plan = plan_stages(
            region, outputs, set(targets) - self.bindings.available, self.bindings.available, self.shape.blocks_per_run
        )
        if self.resources.listings is not None and region is self.bindings.generation_region:
            self.resources.listings.append(("schedule", list(plan.describe())))
        candidates = {
            new.id: (old, array, find_last_reading_stage(plan, outputs, old, new))
            for old, array, new in in_place_candidates
        }
        barriers_before: list[int] = []  # barriers emitted before the end of each stage
        self.bindings.deferred_stores.update(dict.fromkeys(plan.deferred_stores))
        # with few threads, divergence costs more than it saves
        if self.shape.blocks_per_run > 1 or self.shape.runs_per_sm > MAX_BRANCHLESS_RUNS:
            self.branch_only |= plan.branch_only
        for stage in plan.stages:
            paired_extremes = pair_extremes_with_positions(stage) if self.shape.blocks_per_run == 1 else {}
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
            barriers_before.append(self.hazards.n_barriers)
            if loops:
                self.emit_barrier(all(is_redundant))
            bind_results(self, reductions, slots, accumulators, strategies)
            for extreme, position in paired_extremes.values():
                bind_extreme_value(self, extreme, position, slots, accumulators)
            for root in stage:
                if is_collective(root):
                    self._emit_collective(root)
        for number in plan.deferred_stores:
            stored = self.bindings.deferred_stores.pop(number)
            assert stored is not None
            self.bind(*stored)
        for node in outputs:  # those that are bound to another array already
            for name in targets.get(node.id, ()):
                if (node.id, name) not in self.bindings.written_targets:
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
            if last_stage < 0 or barriers_before[last_stage] < self.hazards.n_barriers:
                targets[root.id] = [array]
                self.bindings.in_place[array] = old

    def _choose_broadcast(self, root: Node, region: Region, is_per_block: bool) -> Broadcast:
        """Choose how all threads of a run get the result of a reduction, see reductions.py."""
        if self.shape.blocks_per_run == 1 or is_per_block:
            return Broadcast.PER_BLOCK
        if self.shape.blocks_per_run <= MAX_CLUSTER_BLOCKS:
            return Broadcast.CLUSTER
        if region is not self.bindings.generation_region:
            return Broadcast.GATHER
        if is_order_independent(root):
            return Broadcast.ATOMIC
        return Broadcast.HISTORY_WARP if root.id in self.bindings.history_only else Broadcast.GATHER

    def _group_into_loops(self, roots: list[Node]) -> list[list[Node]]:
        """Group the roots of a stage that one loop computes."""
        by_domain: dict[tuple[tuple[int, ...], bool, bool], list[Node]] = {}
        for root in roots:
            key = (loop_shape(root), self._is_redundant_scatter(root), root.op == "bitplanes")
            by_domain.setdefault(key, []).append(root)
        loops = []
        for group in by_domain.values():
            loops += (
                self._split_by_reductions(group) if self.shape.blocks_per_run > 1 or self.shape.for_cpu else [group]
            )
        return loops

    def _split_by_reductions(self, roots: list[Node]) -> list[list[Node]]:
        """Separate roots whose reductions a group of threads shares from the other roots.

        In one loop every thread of a group would repeat the others. On a CPU the reductions are vectorised, and the
        loop around them is not.
        """
        has_reductions = [
            longest_inner_reduction([r], self.bindings.available, self.shape.min_group_steps) > 1 for r in roots
        ]
        halves = [[r for r, has in zip(roots, has_reductions, strict=True) if has == flag] for flag in (True, False)]
        is_dependent = any(
            is_computed_by(a, b, self.bindings.available) or is_computed_by(b, a, self.bindings.available)
            for a, b in itertools.product(*halves)
        )
        return halves if all(halves) and not is_dependent else [roots]

    def _in_place_operand(self, name: str, root: Node) -> Node | None:
        """Return what a select stores into an array updated in place, if its other operand is the array's old value."""
        previous = self.bindings.in_place.get(name)
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
        if self.shape.blocks_per_run == 1 or math.prod(loop_shape(roots[0])) > MAX_REDUNDANT_ELEMENTS:
            return False
        return estimate_loop_ops(roots, self.bindings.available) <= MAX_REDUNDANT_LOOP_OPS

    def _is_redundant_scatter(self, root: Node) -> bool:
        """True if every block performs a scatter redundantly, and so initialises what it scatters into."""
        return root.op == "alloc" and root.size + root.params["updates"] <= self.shape.max_redundant_elements

    def _choose_unroll(self, shape: tuple[int, ...], group: int, per_block: bool) -> int:
        """Return how many elements a thread computes per turn: two hide the latency of each other's loads."""
        is_long = not per_block and math.prod(shape) * group >= 2 * self.shape.blocks_per_run * MAX_BLOCK_THREADS
        is_gpu_alone = self.shape.runs_per_sm == 1 and not self.shape.for_cpu
        return 2 if is_long and is_gpu_alone and (group == 1 or self.shape.blocks_per_run > 1) else 1

    def _choose_group_size(self, shape: tuple[int, ...], roots: list[Node], per_block: bool) -> int:
        """Return how many threads share an element of a loop with reductions."""
        if self.shape.for_cpu or roots[0].op == "bitplanes":
            return 1
        length, size = (
            longest_inner_reduction(roots, self.bindings.available, self.shape.min_group_steps),
            math.prod(shape),
        )
        has_float64 = any(root.dtype == "float64" for root in roots)  # which leaves large blocks too few registers
        block_threads = MAX_GROUPED_THREADS // (2 if has_float64 else 1) // self.shape.runs_per_sm
        max_threads = block_threads * (1 if per_block else self.shape.blocks_per_run)
        min_group, max_group = 1, min(32, length if self.shape.blocks_per_run > 1 else length // 2)
        if self.shape.blocks_per_run > 1 and not per_block:
            # all SMs load rows from global memory: a group loads at least a whole sector
            min_group = SECTOR_BYTES // max(ITEM_BYTES[root.dtype] for root in roots)
        group = 1
        while 2 * group <= max_group and (2 * group * size <= max_threads or 2 * group <= min_group):
            group *= 2
        return group

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
        reductions = [root for root in roots if is_cooperative_reduction(root)]
        folds = tuple(fold for root in reductions for fold in list_folds(root, accumulators[root.id]))
        with self.parallel_loop(
            shape,
            group,
            per_block,
            unroll=unroll,
            is_reversed=is_reversed and unroll == 1,
            folds=folds,
            whole_warps=whole_warps,
        ) as index:
            depth, stores, points = len(self.scopes) - 1, [], [(index, "" if leader is None else leader.condition)]
            for step in range(1, unroll):  # the last elements may be computed twice, but must not be accumulated twice
                n_turns = f"{math.prod(shape)}" if group == 1 else f"{math.prod(shape)} * GROUP({group})"
                i = turn = self.declare("int32", f"NEXT({self.current.variable}, {step}, {n_turns})", depth)
                if group > 1:
                    i = self.declare("int32", f"(int)((u32){turn.text} / GROUP({group}))", depth)
                leader_test = "lane == 0 && " if group > 1 else ""
                guard = f"{leader_test}{turn.text} != {self.current.variable}"
                points.append((self.unflatten_index(i, shape, is_loop_variable=group == 1), guard))
                self.record_row_counter(points[-1][0], turn.text)
            for index, _ in points if self.shape.blocks_per_run > 1 else ():
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
            self.bindings.written_targets.update((root.id, name) for name in names)
            if root.id in self.bindings.deferred_stores:
                self.bindings.deferred_stores[root.id] = root, names[0]
            else:
                self.bind(root, names[0])

    def _prefetch_loads(self, roots: list[Node], index: Sequence[Index], group: int) -> None:
        """Emit the loads of a turn before anything is computed: the compiler moves no load across a branch."""
        shape = loop_shape(roots[0])
        if group > 1:
            for node in find_loop_body(roots, self.bindings.available):
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
        self.bindings.available.add(node.id)
