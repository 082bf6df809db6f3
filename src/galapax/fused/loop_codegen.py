"""Loop IR of parallel loops and of what they need: arrays in memory, barriers, stores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from galapax.fused import loop_ir as ir
from galapax.fused.array_ir import Node
from galapax.fused.c_expressions import STORAGE_TYPES, Index, Storage, as_expr, c_type
from galapax.fused.cost_model import MAX_BLOCK_THREADS, MIN_VECTOR_ROW
from galapax.fused.element_codegen import ElementEmitter, ThreadLoop
from galapax.fused.loop_ir import Expr, variable
from galapax.fused.schedule import squeeze_shape


class LoopEmitter(ElementEmitter):
    """Emits parallel loops, on which reductions and collective operations are built."""

    def allocate(self, size: int, dtype: str, per_block: bool = False, is_private: bool = False) -> str:
        """Allocate an array; see `Buffer`."""
        is_per_block = per_block or self.shape.blocks_per_run == 1
        buffer = ir.Buffer(self.new_name("b"), size, dtype, is_per_block, is_private)
        c_type(dtype)
        self.resources.buffers.append(buffer)
        return buffer.name

    def emit_barrier(self, per_block: bool = False) -> None:
        """Emit a barrier of all threads of a run, or of a block."""
        if not per_block:
            self.reset_atomic_slots()
        self.emit(
            ir.Barrier(ir.BarrierScope.BLOCK if per_block and self.shape.blocks_per_run > 1 else ir.BarrierScope.RUN)
        )
        if not per_block or self.shape.blocks_per_run == 1:
            self.hazards.n_barriers += 1
            self.hazards.is_written = self.hazards.is_read = False

    def reset_atomic_slots(self) -> None:
        """Reset the atomic slots of the next generation: each reduction has two that alternate."""
        if self.hazards.pending_resets:
            self.emit(
                ir.OneThread([ir.Call("CLEAR_ATOMIC_SLOT", (str(slot),)) for slot in self.hazards.pending_resets])
            )
        self.hazards.pending_resets = []

    def new_slot(self) -> int:
        """Reserve memory for the partial results that warps leave of a reduction, and return its slot."""
        self.resources.n_reduction_slots += 1
        return self.resources.n_reduction_slots - 1

    def bind(self, node: Node, storage: Storage) -> None:
        """Bind a node to its array or registers."""
        self.bindings.storage[node.id] = storage
        self.bindings.available.add(node.id)

    def emit_copy(self, node: Node, name: str) -> None:
        """Emit a loop that copies a node into an array, and a barrier."""
        with self.parallel_loop(squeeze_shape(node.shape)) as index:
            value = self.emit_element(node, self.full_index(node.shape, index))
            self.emit_store(name, node, self.full_index(node.shape, index), value)
        self.emit_barrier()

    def emit_store(
        self, name: str, node: Node, index: Sequence[Index], value: Expr | ir.ByTarget, mask: ir.Mask | None = None
    ) -> None:
        """Emit the store of an element."""
        offset = as_expr(self.flatten_index(index, node.shape))
        self.emit(ir.Store(name, offset, value, STORAGE_TYPES[node.dtype], mask))

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
        folds: tuple[ir.Fold, ...] = (),
        whole_warps: bool = False,
    ) -> Iterator[tuple[Index, ...]]:
        """Open a parallel loop over the elements of an array and yield the index.

        group: so many threads share an element and split its reductions. per_block: each block executes the whole loop.
        counts_for_width: the loop counts for the choice of the block size. unroll: elements per thread and turn, see
        `_choose_unroll`. is_reversed: the last threads take the first elements, since the first ones have more to do in
        the loop before. has_atomics: threads write to the same elements. folds: see `For`.
        whole_warps: a warp takes 32 neighbours with all of its lanes active; those beyond the end repeat the last one.
        """
        size = math.prod(shape)
        axis = ir.Axis.BLOCK if per_block else ir.Axis.THREAD
        is_reversed = is_reversed and axis is ir.Axis.THREAD and not whole_warps
        self.hazards.is_written = True
        width = size if group == 1 else min(size * group, 256 * (1 if per_block else self.shape.blocks_per_run))
        if counts_for_width:
            self.resources.widest_loop = max(
                self.resources.widest_loop, width * self.shape.blocks_per_run if per_block else width
            )
        i, q = self.new_name("i"), self.new_name("q")
        self.current.variable = i if group == 1 else q
        loop = ir.For(axis, self.current.variable, size, step=unroll, group=group, folds=folds, is_reversed=is_reversed)
        loop.has_atomics, loop.whole_warps = has_atomics, whole_warps
        if self.shape.for_cpu and len(shape) > 1 and shape[-1] >= MIN_VECTOR_ROW:
            r = self.new_name("r")
            with self.loop(ir.For(ir.Axis.SERIAL, r, size // shape[-1])):
                outer = self.unflatten_index(variable(r, len(self.scopes) - 1), shape[:-1])
                loop.variable, loop.extent = i, shape[-1]
                with self.loop(loop):
                    yield *outer, variable(i, len(self.scopes) - 1)
            return
        if group == 1:
            # the compiler would not unroll two turns by itself
            is_two_turns = self.shape.runs_per_sm > 1 and size == 2 * max(
                32, MAX_BLOCK_THREADS // self.shape.runs_per_sm
            )
            loop.is_unrolled = is_two_turns and not whole_warps and unroll == 1
            with self.loop(loop):
                inside = len(self.scopes) - 1
                index = self.unflatten_index(variable(i, inside), shape, is_loop_variable=not is_reversed)
                is_shared = (
                    axis is ir.Axis.THREAD and not is_reversed and self.shape.blocks_per_run > 1 and not whole_warps
                )
                self.current.thread_loop = ThreadLoop(shape, inside) if is_shared else None
                self.record_row_counter(index, i)
                yield index
                self.current.thread_loop = None
            return
        loop.element = i
        with self.loop(loop):
            depth = len(self.scopes) - 1
            self.current.group = (group, depth)
            yield self.unflatten_index(variable(i, depth), shape)
            self.current.group = None
            self.bindings.prefetched.clear()

    def record_row_counter(self, index: Sequence[Index], loop_variable: str) -> None:
        """Record which variable of the current loop gives the row of an index."""
        if self.current.thread_loop is not None and index and isinstance(index[0], Expr):
            self.current.thread_loop.row_counters[index[0].text] = loop_variable

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

    def materialise(self, node: Node) -> str:
        """Return the array of a node, storing it first if it has none."""
        storage = self.bindings.storage.get(node.id)
        if isinstance(storage, str):
            return storage
        name = self.allocate(node.size, node.dtype)
        self.emit_copy(node, name)
        return name
