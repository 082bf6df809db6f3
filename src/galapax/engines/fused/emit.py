"""C text from a graph: an element at a time, wherever it is read, and loops around that.

`Emitter.at` writes what it takes to know one element of an array, into the outermost place where all of it is known:
what is the same for every individual lands before the loop over them, what is the same for a row before its genes. What
was written once is not written again in the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from galapax.engines.fused import sums
from galapax.engines.fused.ahead import Ahead
from galapax.engines.fused.fillers import filler
from galapax.engines.fused.graph import Node, NotFusible, reach
from galapax.engines.fused.loops import WRITTEN_OUT
from galapax.engines.fused.moves import MOVES
from galapax.engines.fused.places import Index, Ref, known_by
from galapax.engines.fused.rules import ELEMENTWISE, REDUCTIONS, RUNNING, ctype, literal

MOVED = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "gather", "rev"}


@dataclass
class Scope:
    """A pair of braces in the text."""

    lines: list[str] = field(default_factory=list)
    known: dict[tuple[int, tuple[int | str, ...]], Ref] = field(default_factory=dict)


@dataclass
class Buffer:
    """An array that threads share. name: its C variable. local: each block has its own."""

    name: str
    size: int
    kind: str
    local: bool


@dataclass
class Loop:
    """A loop that all threads share out in order. rows: the variables of its rows, and by which ones they are found."""

    shape: tuple[int, ...]
    depth: int
    rows: dict[str, str] = field(default_factory=dict)
    lanes: dict[int, str] = field(default_factory=dict)  # what each thread of a warp knows of a turn, see fillers.py


class Emitter:
    """Writes elements. Where arrays lie (`places`) and the loops are the business of `Regions`."""

    def __init__(self) -> None:
        self.scopes = [Scope()]
        self.places: dict[int, str | list[str]] = {}  # a node's C array, or the C variables of a small one
        self.parts_of: dict[int, list[str | list[str]]] = {}  # of what has several outputs, where each lies
        self.tables: dict[int, tuple[str, str]] = {}  # of fillers: the array, and how many of the old ones stay
        self.fetched: dict[tuple[int, tuple[int | str, ...]], list[tuple[Node, str]]] = {}  # of sums, see `fetch`
        self.definitions: list[str] = []  # functions that the text needs before it begins
        self.rare: set[int] = set()  # nodes that are computed only where they are chosen
        self.ahead: Ahead | None = None
        self.loop: Loop | None = None  # the present one
        self.waits = False  # few threads have a processor to themselves, so that they wait for each result
        self.host = False  # for one thread, which makes several elements at once by vectors
        self.when: list[tuple[str, int]] = []  # conditions under which the present elements are read, and their depths
        self._names = 0

    def name(self, prefix: str = "t") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def line(self, text: str, depth: int | None = None) -> None:
        self.scopes[-1 if depth is None else depth].lines.append(text)

    @contextmanager
    def scope(self, head: str) -> Iterator[Scope]:
        """Braces after `head`, written into the present scope when they close."""
        self.scopes.append(Scope())
        yield self.scopes[-1]
        inner = self.scopes.pop()
        self.line(head + " {")
        self.scopes[-1].lines.extend("  " + line for line in inner.lines)
        self.line("}")

    @contextmanager
    def detached(self) -> Iterator[Scope]:
        """A scope that the caller writes later: what lands in the one around it must not come between branches."""
        self.scopes.append(Scope())
        yield self.scopes[-1]
        self.scopes.pop()

    def branches(self, cases: Sequence[tuple[str, Scope]]) -> None:
        """Write the branches of a condition, one after another."""
        for head, scope in cases:
            self.line(head + " {")
            self.scopes[-1].lines.extend("  " + line for line in scope.lines)
            self.line("}")

    @contextmanager
    def outside(self, depth: int) -> Iterator[None]:
        """Write into an outer scope, as if those inside it were not there yet."""
        inner, when = self.scopes[depth + 1 :], self.when
        del self.scopes[depth + 1 :]
        self.when = [(test, at) for test, at in when if at <= depth]
        yield
        self.scopes.extend(inner)
        self.when = when

    def variable(self, kind: str, text: str, depth: int) -> Ref:
        made, depth = self.name(), min(max(depth, self.floor), len(self.scopes) - 1)
        self.line(f"const {ctype(kind)} {made} = {text};", depth)
        return Ref(made, depth)

    # indices

    def plus(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if isinstance(b, int) and isinstance(a, Ref):
            return a if b == 0 else Ref(f"({a.text} + {b})" if b > 0 else f"({a.text} - {-b})", a.depth)
        if isinstance(a, int):
            return self.plus(b, a)
        assert isinstance(b, Ref)
        return Ref(f"({a.text} + {b.text})", max(a.depth, b.depth))

    def times(self, a: Index, b: int) -> Index:
        if isinstance(a, int):
            return a * b
        return 0 if b == 0 else a if b == 1 else Ref(f"{a.text} * {b}", a.depth)

    def flat(self, index: Sequence[Index], shape: Sequence[int]) -> Index:
        """The place of an element, in row-major order."""
        place: Index = 0
        stride = 1
        for i, n in zip(reversed(index), reversed(shape), strict=True):
            if n != 1:
                place = self.plus(self.times(i, stride), place)
            stride *= n
        return place

    def spread(self, place: Index, shape: Sequence[int], turning: bool = False) -> tuple[Index, ...]:
        """The index of the element at a place. turning: the variable of a loop that threads share out in order."""
        out: list[Index] = []
        rest = [i for i, n in enumerate(shape) if n != 1]
        stride = 1
        for axis in reversed(range(len(shape))):
            n = shape[axis]
            if n == 1:
                out.append(0)
                continue
            if isinstance(place, int):
                out.append(place // stride % n)
            else:
                # without a sign, for which the compiler need not care
                text = f"(u32){place.text}"
                text = text if stride == 1 else _over(text, stride)
                if turning and stride == 1 and axis != rest[0] and 32 % n == 0:
                    text = f"OF_LANE({place.text}, {n})"
                else:
                    text = text if axis == rest[0] else _within(text, n)
                whole = stride == 1 and axis == rest[0]
                out.append(place if whole else self.variable("int32", f"(int)({text})", place.depth))
            stride *= n
        return tuple(reversed(out))

    # elements

    def at(self, node: Node, index: Sequence[Index]) -> Ref:
        """An element of an array."""
        index = tuple(0 if n == 1 else i for i, n in zip(index, node.shape, strict=True))
        if node.op == "literal":
            return Ref(literal(node.params["value"], node.kind), 0)
        if node.number in self.chain:
            return self._element(node, index)
        key = known_by(node, index)
        for scope in reversed(self.scopes):
            if key in scope.known:
                return scope.known[key]
        made = self._element(node, index)
        self.scopes[made.depth].known[key] = made
        return made

    def _element(self, node: Node, index: tuple[Index, ...]) -> Ref:
        place = self.places.get(node.number)
        if node.op == "fillers":
            return filler(self, node, index)
        if node.op == "given":
            place = node.params["name"]
        elif node.op == "part":
            place = self.parts_of[node.inputs[0].number][node.params["place"]]
        if place is not None:
            return self._read(node, place, index)
        if node.op in ELEMENTWISE:
            if self.ahead is not None and self.ahead.holds(node, index):
                return self.ahead.read(self, node, index)
            if any(n.shape and len(n.shape) != len(node.shape) for n in node.inputs):  # a bitcast to another size
                raise NotFusible(f"the primitive {node.op} from one shape to another")
            if node.op == "select_n" and any(n.number in self.rare for n in node.inputs[1:]):
                return self._choice(node, index)
            if node.op == "select_n" and len(node.inputs) == 3 and (found := self._one_read(node, index)):
                return found
            given = [self.at(n, _of(index, n.shape)) for n in node.inputs]
            text = ELEMENTWISE[node.op](node, *(g.text for g in given))
            return self.variable(node.kind, text, max(g.depth for g in given))
        if node.op in REDUCTIONS:
            return sums.added(self, node, index)
        if node.op in ("argmin", "argmax"):
            return sums.best(self, node, index)
        if node.op == "dot_general":
            return sums.product(self, node, index)
        if node.op in RUNNING:
            return sums.run_up(self, node, index)
        rule = MOVES.get(node.op)
        if rule is None:
            raise NotFusible(f"the primitive {node.op}")
        return rule(self, node, index)

    def _choice(self, node: Node, index: tuple[Index, ...]) -> Ref:
        """One of two elements, computed only where it is chosen if that takes long."""
        which, *cases = node.inputs
        test = self.at(which, _of(index, which.shape))
        early = [None if n.number in self.rare else self.at(n, _of(index, n.shape)) for n in cases]
        depth = max([test.depth, self.depth(index), *(e.depth for e in early if e is not None)])
        made = self.name()
        with self.outside(depth):
            written = []
            for number, (head, case) in enumerate(zip((f"if (!{test.text})", "else"), cases, strict=True)):
                with self.detached() as scope:
                    before, self.floor = self.floor, len(self.scopes) - 1
                    value = early[number] or self.at(case, _of(index, case.shape))
                    self.line(f"{made} = {value.text};")
                    self.floor = before
                written.append((head, scope))
            self.line(f"{ctype(node.kind)} {made};")
            self.branches(written)
        return Ref(made, depth)

    def _one_read(self, node: Node, index: tuple[Index, ...]) -> Ref | None:
        """One of two elements that both lie in memory: only the chosen one is read."""
        which, *cases = node.inputs
        if self.host or node.size <= 1 or any(self._known(n, _of(index, n.shape)) for n in cases):
            return None
        bases = [self._base(n) for n in cases]
        if any(base is None for base in bases):
            return None
        test = self.at(which, _of(index, which.shape))
        places = []
        for case in cases:
            self.chain = self._chain(case)
            places.append(self._element(case, _of(index, case.shape)))
            self.chain = frozenset()
        arrays, indices = zip(*(p.text.removesuffix("]").split("[", 1) for p in places), strict=True)
        array, place = (_chosen_text(test.text, *texts) for texts in (arrays, indices))
        return self.variable(node.kind, f"{array}[{place}]", max(test.depth, *(p.depth for p in places)))

    chain: frozenset[int] = frozenset()  # nodes that are to be told as places in memory

    def reads(self, root: Node) -> list[Node]:
        """What is read of memory, at the place of an element, for that element in any case."""

        def moved(node: Node) -> bool:
            found = (node.number in self.places or node.op in MOVED) and self._base(node) is not None
            return found or node.op == "gather"

        def chosen(node: Node) -> bool:
            return node.op == "select_n" and len(node.inputs) == 3 and all(map(self._base, node.inputs[1:]))

        def inputs_of(node: Node) -> tuple[Node, ...]:
            if moved(node) or node.op not in ELEMENTWISE:
                return ()
            return node.inputs[:1] if chosen(node) else tuple(n for n in node.inputs if n.number not in self.rare)

        def same(node: Node) -> bool:
            along = all(n in (1, m) for n, m in zip(node.shape, root.shape, strict=False))
            return along and len(node.shape) == len(root.shape)

        return [n for n in reach([root], inputs_of) if same(n) and (moved(n) or chosen(n))]

    def _base(self, node: Node) -> str | None:
        """The array in memory whose elements a node only moves."""
        while node.number not in self.places and node.op in MOVED:
            if "FILL" in str(node.params.get("mode")).upper():
                return None
            node = node.inputs[0]
        place = self.places.get(node.number)
        return place if isinstance(place, str) and node.op != "given" else None

    def _chain(self, node: Node) -> frozenset[int]:
        found = {node.number}
        while node.number not in self.places:
            node = node.inputs[0]
            found.add(node.number)
        return frozenset(found)

    def _known(self, node: Node, index: tuple[Index, ...]) -> bool:
        key = known_by(node, tuple(0 if n == 1 else i for i, n in zip(index, node.shape, strict=True)))
        return any(key in scope.known for scope in self.scopes)

    def _read(self, node: Node, place: str | list[str], index: tuple[Index, ...]) -> Ref:
        flat = self.flat(index, node.shape)
        if isinstance(place, str):
            where = flat if isinstance(flat, Ref) else Ref(str(flat), 0)
            if tests := [test for test, depth in self.when if where.depth >= depth]:
                where = Ref(f"({' && '.join(tests)} ? {where.text} : 0)", where.depth)
            if node.op == "given":  # it never changes
                if isinstance(flat, int):
                    return self.variable(node.kind, f"{place}[{flat}]", 0)
                return self.variable(node.kind, f"{place}[{where.text}]", max(where.depth, self.base))
            self.looked = True
            if node.number in self.chain:
                return Ref(f"{place}[{where.text}]", max(where.depth, self.base))
            return self.variable(node.kind, f"{place}[{where.text}]", max(where.depth, self.base))
        if isinstance(flat, int):
            return Ref(place[flat], self.base)
        text = place[-1]
        for i in reversed(range(len(place) - 1)):
            text = f"({flat.text} == {i} ? {place[i]} : {text})"
        return self.variable(node.kind, text, max(flat.depth, self.base))

    @contextmanager
    def reading(self, test: str) -> Iterator[None]:
        """What is read within may be outside its array, unless a condition holds. On the host it is read all the same,
        at another place then: GCC makes mistakes where it reads several elements under conditions.
        """
        if not self.host:
            yield
            return
        self.when.append((test, len(self.scopes) - 1))
        yield
        self.when.pop()

    looked = False  # whether something that changes was read since the last barrier
    base = 0  # how deep the present region is: what is read from memory is read there at the earliest
    floor = 0  # how deep the present branch is: what is computed for it stays in it

    def depth(self, index: Sequence[Index]) -> int:
        return max([self.base, self.floor, *(i.depth for i in index if isinstance(i, Ref))])

    split = WRITTEN_OUT + 1  # steps of a sum that threads share, if there are enough of them
    group: tuple[int, int] | None = None  # threads that share an element of the present loop, and how deep it is


def _chosen_text(test: str, other: str, chosen: str) -> str:
    return chosen if other == chosen else f"({test} ? {chosen} : {other})"


def _over(text: str, n: int) -> str:
    return f"({text} >> {n.bit_length() - 1})" if n & (n - 1) == 0 else f"({text} / {n}u)"


def _within(text: str, n: int) -> str:
    return f"{text} & {n - 1}u" if n & (n - 1) == 0 else f"{text} % {n}u"


def _of(index: tuple[Index, ...], shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The index into an operand: numbers of no dimension go with every element, axes of length 1 with every place."""
    return () if not shape else tuple(0 if n == 1 else i for i, n in zip(index, shape, strict=True))
