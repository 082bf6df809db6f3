"""Passes on the loop IR: dead stores, history in registers, and which arrays share bytes of shared memory.

Arrays whose live ranges do not overlap share the same bytes. A live range goes from the first to the last access,
widened to enclosing loops. Between the live ranges of two arrays at one address there must be a barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from galapax.fused import loop_ir as ir
from galapax.fused.c_expressions import ALIGNMENT_BYTES, ITEM_BYTES
from galapax.fused.cost_model import MAX_BUFFERED_VALUES

HISTORY_ROW = "columns"  # the address of a generation's row, in the statements that store it


def padded_bytes(buffer: ir.Buffer) -> int:
    """Return the bytes of an array, padded to the alignment."""
    return -(-max(1, buffer.size) * ITEM_BYTES[buffer.dtype] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def bodies_of(statement: ir.Statement) -> list[list[ir.Statement]]:
    """Return the bodies of a loop or of branches."""
    if isinstance(statement, ir.If):
        return [body for _, body in statement.branches]
    return [statement.body] if isinstance(statement, ir.For | ir.OneThread) else []


def walk(statements: Sequence[ir.Statement]) -> Iterator[ir.Statement]:
    """Yield all statements, those of a body after the loop or branch."""
    for statement in statements:
        yield statement
        for body in bodies_of(statement):
            yield from walk(body)


def arrays_read(statement: ir.Statement) -> tuple[str, ...]:
    """Return the arrays that a statement itself loads from."""
    match statement:
        case ir.Let() | ir.Assign() | ir.Store():
            return _arrays_of(statement.value)
        case ir.Call():
            return statement.reads
        case ir.Swap():
            return statement.first, statement.second
    return ()


def arrays_written(statement: ir.Statement) -> tuple[str, ...]:
    """Return the arrays that a statement itself stores to."""
    match statement:
        case ir.Store():
            return (statement.array,)
        case ir.Call():
            return statement.writes
        case ir.Swap():
            return statement.first, statement.second
    return ()


def _arrays_of(value: ir.Value) -> tuple[str, ...]:
    return () if isinstance(value, ir.Scalar) else value.arrays


def eliminate_dead_stores(
    statements: Sequence[ir.Statement], buffers: Sequence[ir.Buffer]
) -> tuple[list[ir.Statement], list[ir.Buffer]]:
    """Remove stores into arrays that nothing reads, and these arrays: a loop often has their elements in registers."""
    accesses = list(walk(statements))
    used = {name for s in accesses for name in arrays_read(s)}
    used |= {name for s in accesses if not isinstance(s, ir.Store) for name in arrays_written(s)}
    dead = {b.name for b in buffers} - used
    live = [b for b in buffers if b.name not in dead]
    return filter_statements(statements, lambda s: not (isinstance(s, ir.Store) and s.array in dead)), live


def filter_statements(statements: Sequence[ir.Statement], keep: Callable[[ir.Statement], bool]) -> list[ir.Statement]:
    """Return the statements that pass a test, with bodies filtered too."""
    result = []
    for statement in statements:
        if isinstance(statement, ir.If):
            statement.branches = [(test, filter_statements(body, keep)) for test, body in statement.branches]
        elif isinstance(statement, ir.For | ir.OneThread):
            statement.body = filter_statements(statement.body, keep)
        if keep(statement):
            result.append(statement)
    return result


def names_read(statements: Sequence[ir.Statement]) -> ir.Names:
    """Return the variables that statements read, but for those that they declare."""
    return _free_names(statements, _own_reads)


def names_set(statements: Sequence[ir.Statement]) -> ir.Names:
    """Return the variables that statements declare or assign, but for those inside loops and branches."""
    return _free_names(statements, _own_sets) + tuple(name for s in statements for name in _own_declarations(s))


def _free_names(statements: Sequence[ir.Statement], own_names: Callable[[ir.Statement], ir.Names]) -> ir.Names:
    names, declared = dict[str, None](), set[str]()
    for statement in statements:
        names |= dict.fromkeys(own_names(statement))
        declared.update(_own_declarations(statement))
        hidden = (statement.variable, statement.element, statement.turn) if isinstance(statement, ir.For) else ()
        for body in bodies_of(statement):
            names |= dict.fromkeys(name for name in _free_names(body, own_names) if name not in hidden)
    return tuple(name for name in names if name not in declared)


def _own_declarations(statement: ir.Statement) -> ir.Names:
    match statement:
        case ir.Let() | ir.Declare():
            return ir.names_of(statement.name)
        case ir.Accumulator():
            return ir.names_of(statement.name, statement.position)
        case ir.Call():
            return ir.names_of(statement.result)
    return ()


def _own_sets(statement: ir.Statement) -> ir.Names:
    match statement:
        case ir.Assign():
            return ir.names_of(statement.target)
        case ir.Accumulate() | ir.Reduce():
            return ir.names_of(statement.accumulator, statement.position)
        case ir.Swap():
            return ir.names_of(statement.first, statement.second)
        case ir.For(axis=ir.Axis.GENERATION | ir.Axis.HISTORY):
            return ("g",)
    return ()


def _own_reads(statement: ir.Statement) -> ir.Names:
    match statement:
        case ir.Let() | ir.Declare():
            return _value_names(statement.value)
        case ir.Assign():
            return _value_names(statement.value) + ir.names_of(statement.target)
        case ir.Store():
            condition = "" if statement.mask is None else statement.mask.condition
            return _value_names(statement.value) + ir.names_of(statement.array, statement.offset, condition)
        case ir.Swap():
            return ir.names_of(statement.first, statement.second)
        case ir.Break():
            return ir.names_of(statement.condition)
        case ir.Call():
            return ir.names_of(*statement.arguments)
        case ir.Accumulate():
            s = statement
            return ir.names_of(s.accumulator, s.position, s.variable, s.value, s.value_position, s.condition)
        case ir.Reduce():
            return ir.names_of(statement.accumulator, statement.position)
        case ir.For(axis=ir.Axis.GENERATION):
            return "g", "count"
        case ir.For(axis=ir.Axis.HISTORY):
            return "g", "rows"
        case ir.For():
            return ir.names_of(statement.start, statement.end)
        case ir.If():
            return ir.names_of(*(condition for condition, _ in statement.branches))
    return ()


def _value_names(value: ir.Value) -> ir.Names:
    return ir.names_of(value) if isinstance(value, str) else value.names


def buffer_history(statements: Sequence[ir.Statement], lanes: int = 32) -> list[ir.Statement]:
    """Keep what 32 rows of history are computed from in registers, one generation a lane, and write the rows together.

    That needs a row which one thread computes from a few constants of its generation, such as results of reductions.
    """
    loop = next((s for s in statements if isinstance(s, ir.For) and s.axis is ir.Axis.GENERATION), None)
    inner = [] if loop is None else loop.body
    row = next((s for s in inner if isinstance(s, ir.OneThread) and _stores_history(s)), None)
    if loop is None or row is None:
        return list(statements)
    arithmetic = {s.name: s for s in loop.body if isinstance(s, ir.Let) and isinstance(s.value, ir.Scalar)}
    types = {
        s.name: s.c_type
        for s in loop.body
        if isinstance(s, ir.Declare) or (isinstance(s, ir.Let) and isinstance(s.value, ir.Take))
    }
    varying, names, stack = names_set(loop.body), dict[str, None](), list(names_read(row.body))
    while stack:  # what the row is computed from
        name = stack.pop()
        if name in varying and name not in names:
            names[name] = None
            stack.extend(names_read([arithmetic[name]]) if name in arithmetic else ())
    inputs = [name for name in names if name not in arithmetic]
    if len(inputs) > MAX_BUFFERED_VALUES or not types.keys() >= set(inputs):
        return list(statements)
    registers = {name: f"w_{name}" for name in inputs}
    declarations = [ir.Declare(types[name], register, "0") for name, register in registers.items()]
    computed = [s for name, s in arithmetic.items() if name in names and name != "number"]
    is_own = ir.compose(f"LANE == g % {lanes}", "g")
    keep = [ir.If([(is_own, [ir.Assign(register, name)])]) for name, register in registers.items()]
    # there the names of the row mean the generation of each lane
    renamed = [ir.Let("int", "number", ir.compose("start + end - kept + LANE", "start", "end", "kept"))]
    if any("g" in names_read([s]) for s in computed):
        renamed.append(ir.Let("int", "g", ir.compose("number - start", "number", "start")))
    renamed += [ir.Let(types[name], name, register) for name, register in registers.items()]

    def flush(condition: str, n_rows: str, end: str) -> ir.If:
        span = [ir.Let("int", "kept", ir.compose(n_rows, "g")), ir.Let("int", "end", ir.compose(end, "g"))]
        rows = ir.If([(ir.compose("THE_LAST && LANE < kept", "kept"), row.body)])
        return ir.If([(ir.compose(condition, "g"), [*span, *renamed, *computed, rows])])

    is_full = flush(f"g % {lanes} == {lanes - 1}", str(lanes), "g + 1")
    rest = flush(f"g % {lanes} != 0", f"g % {lanes}", "g")
    loop.body = _replace_statement(loop.body, row, [*keep, is_full])
    for statement in reversed(computed):  # what only the row needs
        if not any(statement.name in names_read([s]) for s in loop.body):
            loop.body = _replace_statement(loop.body, statement, [])
    return _replace_statement(statements, loop, [*declarations, loop, rest])


def _replace_statement(
    statements: Sequence[ir.Statement], old: ir.Statement, new: Sequence[ir.Statement]
) -> list[ir.Statement]:
    return [t for s in statements for t in (new if s is old else (s,))]


def _stores_history(statement: ir.OneThread) -> bool:
    return any(isinstance(s, ir.Store) and s.array == HISTORY_ROW for s in statement.body)


@dataclass(eq=False)
class Extent:
    """The body of a loop or a branch, from position to position. barriers: those in it but in no body inside it."""

    first: int
    parent: Extent | None
    loop: ir.For | None
    last: int = 0
    barriers: list[int] = field(default_factory=list)

    def enclosing(self) -> list[Extent]:
        """Return this body and those around it, innermost first."""
        return [self, *(self.parent.enclosing() if self.parent is not None else [])]

    @property
    def is_serial(self) -> bool:
        return self.loop is not None and self.loop.is_serial

    @property
    def is_generation(self) -> bool:
        return self.loop is not None and self.loop.axis is ir.Axis.GENERATION

    @property
    def is_inner_loop(self) -> bool:
        return self.is_serial and not self.is_generation


class Access(NamedTuple):
    """An access to an array: where, and whether it is a store after which all elements have new values."""

    position: int
    extent: Extent
    is_full_store: bool


class LiveRange(NamedTuple):
    """The positions between which an array is live, and the innermost body that contains them."""

    first: int
    last: int
    extent: Extent


class Liveness:
    """Positions of statements, the accesses to each array, and the live ranges that follow from them."""

    def __init__(self, statements: Sequence[ir.Statement]) -> None:
        self.accesses: dict[str, list[Access]] = {}
        self._partners: dict[str, tuple[str, Access]] = {}  # arrays whose names are exchanged, and where
        self._position = 0
        self._visit(statements, Extent(0, None, None))

    def _visit(self, statements: Sequence[ir.Statement], extent: Extent) -> None:
        for statement in statements:
            self._position += 1
            if isinstance(statement, ir.Barrier):
                extent.barriers.append(self._position)
            self._record_accesses(statement, extent)
            for body in bodies_of(statement):
                self._position += 1
                self._visit(body, Extent(self._position, extent, statement if isinstance(statement, ir.For) else None))
        self._position += 1
        extent.last = self._position

    def _record_accesses(self, statement: ir.Statement, extent: Extent) -> None:
        reads, writes = arrays_read(statement), arrays_written(statement)
        is_full_store = isinstance(statement, ir.Store) and (statement.mask is None or statement.mask.is_full)
        for name in dict.fromkeys((*reads, *writes)):
            access = Access(self._position, extent, is_full_store and name in writes and name not in reads)
            self.accesses.setdefault(name, []).append(access)
            if isinstance(statement, ir.Swap):  # from then on either name may stand for either array
                other = statement.second if name == statement.first else statement.first
                self._partners[name] = other, access

    def loop_depth(self, name: str) -> int:
        """Return the number of loops around the accesses to an array."""
        depths = (sum(e.is_serial for e in access.extent.enclosing()) for access in self.accesses.get(name, ()))
        return max(depths, default=0)

    def live_range(self, name: str) -> LiveRange | None:
        """Return the live range of an array within a generation, or None if it has values from before."""
        accesses = self.accesses.get(name, [])
        if not accesses:
            return None
        other, swap = self._partners.get(name, (name, accesses[0]))
        if other == name and not accesses[0].is_full_store:
            return None
        if other != name and not any(extent.is_inner_loop for extent in swap.extent.enclosing()):
            return None
        joint = [*accesses, *self.accesses[other]]
        first, last = min(a.position for a in joint), max(a.position for a in joint)
        for extent in sorted({e for a in joint for e in a.extent.enclosing()}, key=lambda e: -e.first):
            if extent.is_inner_loop:
                first, last = min(first, extent.first), max(last, extent.last)
        first_extent = min(joint, key=lambda a: a.position).extent
        enclosing = [e for e in first_extent.enclosing() if e.first <= first and last <= e.last]
        return LiveRange(first, last, enclosing[0]) if any(e.is_generation for e in enclosing) else None


def plan_shared_memory(
    statements: Sequence[ir.Statement], buffers: Sequence[ir.Buffer], start: int, end: int
) -> dict[str, int]:
    """Return the offsets, in [start, end), of the arrays that fit: private, in inner loops, then small ones."""
    liveness = Liveness(statements)
    ranges = {b.name: liveness.live_range(b.name) for b in buffers}
    sizes, offsets = {b.name: padded_bytes(b) for b in buffers}, dict[str, int]()
    private = {b.name for b in buffers if b.is_private}
    for name in sorted(sizes, key=lambda name: (name not in private, -liveness.loop_depth(name), sizes[name])):
        occupied = [
            (offset, offset + sizes[other])
            for other, offset in offsets.items()
            if not _can_share_memory(ranges[name], ranges[other])
        ]
        offset = start
        for first, limit in sorted(occupied):
            if offset + sizes[name] <= first:
                break
            offset = max(offset, limit)
        if offset + sizes[name] <= end:
            offsets[name] = offset
    return offsets


def _can_share_memory(a: LiveRange | None, b: LiveRange | None) -> bool:
    """True if a barrier separates two live ranges, in this generation and from the next."""
    if a is None or b is None:
        return False
    a, b = (a, b) if a.first < b.first else (b, a)
    around_a, around_b = a.extent.enclosing(), b.extent.enclosing()
    is_between = any(a.last < barrier < b.first for e in around_a if e in around_b for barrier in e.barriers)
    is_after = any(barrier > b.last for e in around_b[:-1] for barrier in e.barriers)
    is_before = any(barrier < a.first for e in around_a[:-1] for barrier in e.barriers)
    return is_between and (is_after or is_before)
