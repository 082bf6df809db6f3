"""The loop IR: the statements of a kernel, on which passes work before print_c.py writes them as C.

Scalar arithmetic stays a C expression, with the names of the variables that it reads. What passes ask about is
structure: loops and the axis that they run over, branches, barriers and their scope, reductions, which array a
statement loads from or stores to, and which variables it reads and sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import Enum, auto
from typing import NamedTuple


class Axis(Enum):
    """What the iterations of a loop are distributed over."""

    THREAD = auto()  # all threads of a run
    BLOCK = auto()  # the threads of each block, which executes the whole loop
    GROUP = auto()  # the threads that share an element
    SERIAL = auto()  # one thread makes all iterations in order
    TILE = auto()  # the elements of a scan: each warp has a tile of neighbours, 32 at a time
    GENERATION = auto()  # the loop over generations
    HISTORY = auto()  # the rows of history that no generation computed


class BarrierScope(Enum):
    """Which threads wait for each other."""

    RUN = auto()
    BLOCK = auto()


class Phase(Enum):
    """A step of a cooperative reduction, see reductions.py."""

    WARP = auto()  # each warp reduces, and leaves its partial result in a slot
    PUBLISH = auto()  # each block reduces its slot, and shows the others its partial result
    ATOMIC = auto()  # each block combines its partial result with that of the others by an atomic
    GATHER = auto()  # each block combines what all blocks have published


class Broadcast(Enum):
    """How all threads of a run get the result of a reduction."""

    PER_BLOCK = auto()  # every block has reduced all elements
    CLUSTER = auto()  # each block writes its partial result into the shared memory of the others
    ATOMIC = auto()  # blocks combine their partial results by atomics in global memory
    GATHER = auto()  # each block gathers the partial results of all blocks from global memory
    HISTORY_WARP = auto()  # a single warp gathers them, for the history alone


@dataclass
class Buffer:
    """An array shared by threads. name: its C variable. per_block: each block has its own copy.

    is_private: blocks write different values to their copies, which must not share an address.
    """

    name: str
    size: int
    dtype: str
    per_block: bool
    is_private: bool = False


Names = tuple[str, ...]  # of variables, each once


class Expr(NamedTuple):
    """A C expression. names: the variables that it reads. depth: of the innermost scope that it depends on.

    literal: the number that it is, if it is one. load: the load that it is, if it is that of an array in memory.
    """

    text: str
    names: Names = ()
    depth: int = 0
    literal: float | None = None
    load: Load | None = None

    def __str__(self) -> str:
        return self.text


Scalar = str | Expr  # a plain text is the name of a variable, or reads none


def names_of(*scalars: Scalar | int) -> Names:
    """Return the variables that expressions read."""
    texts = [s for s in scalars if s and not isinstance(s, int)]
    return tuple(dict.fromkeys(name for s in texts for name in (s.names if isinstance(s, Expr) else (s,))))


def variable(name: str, depth: int = 0) -> Expr:
    return Expr(name, (name,), depth)


def compose(text: str, *operands: Scalar | int) -> Expr:
    """Return an expression of operands."""
    return Expr(text, names_of(*operands), max((s.depth for s in operands if isinstance(s, Expr)), default=0))


class Load(NamedTuple):
    """An element of an array. pointer: a C expression; arrays: those that it may point to."""

    pointer: Scalar
    offset: Scalar
    arrays: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.pointer}[{self.offset}]"

    @property
    def names(self) -> Names:
        return names_of(self.pointer, self.offset)


class Lookup(NamedTuple):
    """A C expression that reads arrays otherwise, such as the call of a function."""

    text: str
    arrays: tuple[str, ...]
    names: Names = ()


class ByTarget(NamedTuple):
    """An expression that is another one on a GPU than on a CPU."""

    gpu: Expr
    cpu: Expr
    arrays: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        return names_of(self.gpu, self.cpu)


class Take(NamedTuple):
    """The result of a cooperative reduction, from its slot. accumulator: a thread's, which has it if it is alone.

    identity: of a reduction; empty for the position of an argmin or argmax. is_value: the extreme at that position.
    """

    broadcast: Broadcast
    operation: str
    slot: int
    accumulator: str
    identity: str = ""
    is_value: bool = False
    arrays: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        return names_of(self.accumulator)


Value = Scalar | Load | Lookup | ByTarget | Take  # of a statement


class Mask(NamedTuple):
    """The condition under which a thread stores. is_full: every element is stored by some thread all the same.

    is_optional: storing where it does not hold would change nothing.
    """

    condition: Scalar
    is_full: bool = False
    is_optional: bool = False


@dataclass
class Let:
    """A constant."""

    c_type: str
    name: str
    value: Value


@dataclass
class Declare:
    """A variable, or an array of `length` registers. value: its initial value, if any."""

    c_type: str
    name: str
    value: Scalar = ""
    length: str = ""


@dataclass
class Assign:
    """The assignment to a variable or a register. operator: as in C."""

    target: Scalar
    value: Value
    operator: str = "="


@dataclass
class Store:
    """The store of an element. c_type: what the value is converted to; empty if it has that type."""

    array: str
    offset: Scalar
    value: Value
    c_type: str = ""
    mask: Mask | None = None


@dataclass
class Swap:
    """Exchange two arrays: their names stand for each other's memory from then on."""

    first: str
    second: str
    c_type: str
    temporary: str


@dataclass
class Break:
    condition: Scalar


@dataclass
class Barrier:
    scope: BarrierScope


@dataclass
class Call:
    """A call of a function in C. reads, writes: the arrays that it loads from and stores to."""

    function: str
    arguments: tuple[Scalar, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    result: str = ""  # name of a constant of type int that receives its value


@dataclass
class Accumulator:
    """A thread's accumulator of a reduction. position: of an argmin or argmax, else empty."""

    c_type: str
    name: str
    identity: str
    position: str = ""


@dataclass
class Accumulate:
    """Combine a value with an accumulator, in the loop over `variable`. is_repeated: not the first time in a turn."""

    operation: str
    accumulator: str
    variable: str
    value: Scalar
    position: str = ""  # the accumulator of the position of an argmin or argmax
    value_position: Scalar = ""
    condition: Scalar = ""
    is_repeated: bool = False


@dataclass
class Reduce:
    """A phase of a cooperative reduction. slot: where partial results are; turn: chooses the warp that does it."""

    phase: Phase
    operation: str
    slot: int
    accumulator: str = ""
    position: str = ""
    identity: str = ""
    turn: int = 0

    @property
    def has_position(self) -> bool:
        """True for an argmin or argmax."""
        return bool(self.position) or not (self.accumulator or self.identity)


class Fold(NamedTuple):
    """What a loop accumulates, which a CPU combines a tile of iterations at a time."""

    operation: str
    accumulator: str
    position: str = ""


@dataclass
class For:
    """A loop. extent: the number of iterations.

    step: elements that a thread takes in a turn. group: threads that share an element, whose number is `element`, if
    any. folds: see `Fold`. is_reversed: the last threads take the first elements. is_unrolled: all turns are written
    out. has_atomics: iterations store to the same elements. whole_warps: all lanes are active in every turn. start,
    end: of a serial loop that does not begin at 0, or ends with `end`. turn: the number of a turn, in a tile.
    is_redundant: of a tile: each block scans all elements.
    """

    axis: Axis
    variable: str = ""
    extent: int = 0
    body: list[Statement] = field(default_factory=list)
    step: int = 1
    group: int = 1
    element: str = ""
    folds: tuple[Fold, ...] = ()
    is_reversed: bool = False
    is_unrolled: bool = False
    has_atomics: bool = False
    whole_warps: bool = False
    start: Scalar = "0"
    end: Scalar = ""
    turn: str = ""
    is_redundant: bool = False

    @property
    def is_serial(self) -> bool:
        """True if a thread makes iterations one after another that may depend on each other."""
        return self.axis in (Axis.SERIAL, Axis.GENERATION, Axis.HISTORY)


@dataclass
class If:
    """Branches: a condition and what it guards; the condition of an `else` is empty."""

    branches: list[tuple[Scalar, list[Statement]]]


@dataclass
class OneThread:
    """What a single thread of a run executes. is_last: the one that has least to do in most loops."""

    body: list[Statement]
    is_last: bool = False


Statement = (
    Let | Declare | Assign | Store | Swap | Break | Barrier | Call | Accumulator | Accumulate | Reduce | For | If
    | OneThread
)  # fmt: skip


def describe_statements(statements: Iterable[Statement], indent: str = "") -> Iterator[str]:
    """Yield the lines of a listing of statements: their fields that are not the default, and their bodies."""
    for statement in statements:
        bodies = statement.branches if isinstance(statement, If) else [("", getattr(statement, "body", []))]
        texts = [type(statement).__name__]
        for f in fields(statement):
            value = getattr(statement, f.name)
            if f.name not in ("body", "branches") and value != f.default:
                texts.append(f"{f.name}={_describe_value(value)}")
        yield indent + " ".join(texts)
        for condition, body in bodies:
            if condition or isinstance(statement, If):
                yield f"{indent}  {f'when {condition}' if condition else 'else'}"
            yield from describe_statements(body, indent + ("    " if isinstance(statement, If) else "  "))


def _describe_value(value: object) -> str:
    match value:
        case Enum():
            return value.name.lower()
        case Load():
            return f"load {value.text}"
        case Lookup():
            return value.text
        case Expr():
            return value.text
        case ByTarget():
            return value.gpu.text
        case Mask():
            return str(value.condition)
        case Take():
            return f"{value.operation} from slot {value.slot}, {value.broadcast.name.lower()}"
        case tuple():
            return "(" + ", ".join(map(_describe_value, value)) + ")"
    return str(value)
