"""Control flow inside a generation (`while`, `scan`, `cond`), which all threads of a run go through together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from galapax.fused.array_ir import Node, Region
from galapax.fused.c_expressions import STORAGE_TYPES, Storage, c_type, index_text
from galapax.fused.iteration_domains import MAX_REGISTER_ELEMENTS, squeeze_shape
from galapax.fused.loop_ir import Assign, Axis, Break, Declare, For, If, Let, Store, Swap

if TYPE_CHECKING:
    from galapax.fused.loop_codegen import KernelBuilder


class LoopCarry:
    """Loop-carried values: small ones in registers, arrays double-buffered."""

    def __init__(self, e: KernelBuilder, nodes: Sequence[Node]) -> None:
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
            if isinstance(a, str) and out is not node and a not in e.in_place:
                assert isinstance(b, str)
                e.emit(Swap(a, b, STORAGE_TYPES[node.dtype], e.new_name("p")))
        e.reset_atomic_slots()
        # with two barriers in an iteration, all threads have seen its stores, and read every array before it is
        # overwritten
        if e.written_since_barrier or e.read_since_barrier or e.n_barriers < 2:
            e.emit_barrier()


class RegionBindings:
    """Restores the bindings of nodes to storage when a region ends."""

    def __init__(self, e: KernelBuilder) -> None:
        self.e = e

    def __enter__(self) -> None:
        e = self.e
        self.saved = (dict(e.storage), set(e._available), e.region_depth, e.n_barriers)
        e.region_depth, e.n_barriers = len(e.scopes) - 1, 0

    def __exit__(self, *exception: object) -> None:
        self.e.storage, self.e._available, self.e.region_depth, self.e.n_barriers = self.saved


def emit_while(e: KernelBuilder, node: Node) -> None:
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
    e.output_storage[node.id] = loop_carry.storage


def emit_scan_loop(e: KernelBuilder, node: Node) -> None:
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
    e.output_storage[node.id] = [*loop_carry.storage, *(name for _, name in rows)]


def emit_cond(e: KernelBuilder, node: Node) -> None:
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
    e.output_storage[node.id] = storage
