"""Loops over individuals, barriers between them, and what all threads of a block do together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from galapax.engines.fused.collective import write_collective
from galapax.engines.fused.control import write_control
from galapax.engines.fused.costs import cone, effort, inner_length, needs
from galapax.engines.fused.emit import Buffer, Emitter, Loop
from galapax.engines.fused.fillers import plane_words, write_planes
from galapax.engines.fused.graph import Node, Region
from galapax.engines.fused.inplace import last_reader
from galapax.engines.fused.loops import CONTROL, axes_of, collective, domain, loop_shape, reduces
from galapax.engines.fused.places import Index, Ref, known_by
from galapax.engines.fused.plan import planned
from galapax.engines.fused.reductions import (
    FETCHED,
    LATE,
    MET,
    OWN,
    SPREAD,
    Totals,
    accumulate,
    begun,
    folds,
    give,
    meets,
    pass_on,
    take,
    take_value,
    values_of_places,
)
from galapax.engines.fused.rules import BYTES, REDUCTIONS, STORED, ctype
from galapax.engines.fused.sums import fetch

LOCAL = 2**17  # operations that every block of a team rather makes itself
LOCAL_SIZE = (2**12, 2**15)  # and numbers that it rather adds up or moves itself, in a cluster and in a grid
GROUPED = 1024  # threads that loops with sums are spread over
THREADS = 1024  # of a block at most
SECTOR = 32  # bytes that a GPU reads from memory at once
SPLIT = 8  # steps of a sum that threads of a team share
ROW = 8  # elements of a row that the host makes by a loop of its own
SEVERAL = 8  # runs that share a processor; more keep it busy, so that less work is less time
CLUSTER = 16  # blocks that have a barrier of their own; more meet at a counter in memory


class Regions(Emitter):
    """Writes regions: a plan's levels one after another."""

    def __init__(self, team: int = 1, many: int = 1, host: bool = False) -> None:
        super().__init__()
        self.host = host
        self.team = team  # blocks that make a run together
        self.many = many  # runs that share a processor
        self.waits = team == 1 and many == 1
        self.split = SPLIT if team > 1 else self.split
        self.own = 0 if team == 1 else LOCAL_SIZE[team > CLUSTER]
        self.buffers: list[Buffer] = []
        self.parts = 0  # reductions, each with room for a part of every warp
        self.widest = 1  # the largest loop
        self.table = 0  # bytes of what is computed ahead
        self.barriers = 0  # of the present round of a loop
        self.unseen = False  # whether something was written since the last one
        self.rounds: Region | None = None  # the region of a generation, whose number in this chunk is `g`
        self.met = 0  # reductions, by their places, that meet at a number in memory
        self.unmet: list[int] = []  # those of them to be cleared before the next barrier
        self.late: set[int] = set()  # what only a generation's row of history needs
        self.stays: dict[str, Node] = {}  # arrays that are changed where they are, and what they were
        self.aside: dict[int, tuple[Node, str] | None] = {}  # what is written but not to be read yet, and where
        self._done: set[int] = set()
        self._written: set[tuple[int, str]] = set()

    def buffer(self, size: int, kind: str, local: bool = False) -> str:
        made = Buffer(self.name("b"), size, kind, local or self.team == 1)
        ctype(kind)
        self.buffers.append(made)
        return made.name

    def barrier(self, local: bool = False) -> None:
        """All threads of a run, or of a block, wait for each other."""
        if not local:
            self.clear_met()
        self.line("BLOCK_BARRIER" if local and self.team > 1 else "BARRIER")
        if not local or self.team == 1:
            self.barriers += 1
            self.unseen = self.looked = False

    def clear_met(self) -> None:
        """For the next generation: the other of two places of each reduction, which all have read."""
        if self.unmet:
            self.line("FIRST { " + " ".join(f"UNMEET({slot});" for slot in self.unmet) + " }")
        self.unmet = []

    def part(self) -> int:
        """Where the warps leave their parts of a reduction: the number of a place."""
        self.parts += 1
        return self.parts - 1

    def know(self, node: Node, place: str | list[str]) -> None:
        """From now on a node is read at a place."""
        self.places[node.number] = place
        self._done.add(node.number)

    def write(
        self,
        region: Region,
        outputs: list[Node],
        targets: dict[int, list[str]],
        turning: Sequence[tuple[Node, str, Node]] = (),
    ) -> None:
        """Write what it takes to know these outputs. targets: arrays for some of them, {number of the node: names}.

        turning: what a round changes, as it was, where that lies, and as it becomes: where it can, it is changed there.
        """
        plan = planned(region, outputs, set(targets) - self._done, self._done, self.team)
        turns = {new.number: (old, place, last_reader(plan, outputs, old, new)) for old, place, new in turning}
        waited: list[int] = []  # barriers before the end of each level
        self.aside.update(dict.fromkeys(plan.aside))
        if self.team > 1 or self.many > SEVERAL:  # a few threads that wait for each other lose more by branches
            self.rare |= plan.rare
        for level in plan.levels:
            same = values_of_places(level) if self.team == 1 else {}
            level = [root for root in level if root.number not in same]
            loops = self._loops([root for root in level if not collective(root)])
            reductions = [r for r in level if reduces(r)]
            slots = {r.number: [self.part() for _ in range(r.size)] for r in reductions}
            totals = {r.number: begun(self, r) for r in reductions}
            local = [self._apart(roots[0]) or self._local(roots) for roots in loops]
            alone = [r for roots, own in zip(loops, local, strict=True) if own for r in roots if reduces(r)]
            for number, roots in enumerate(loops):
                self._in_place(roots, local[number], turns, waited, targets)
                self._loop(loop_shape(roots[0]), roots, targets, totals, local[number], back=number % 2 == 1)
            ways = {r.number: self._way(r, region, r in alone) for r in reductions}
            give(self, reductions, slots, totals)
            pass_on(self, reductions, slots, ways)
            waited.append(self.barriers)
            if loops:
                self.barrier(all(local))
            take(self, reductions, slots, totals, ways)
            for value, place in same.values():
                take_value(self, value, place, slots, totals)
            for root in level:
                if collective(root):
                    self._collective(root)
        for number in plan.aside:
            written = self.aside.pop(number)
            assert written is not None
            self.know(*written)
        for node in outputs:  # those that are there already under another name
            for name in targets.get(node.number, ()):
                if (node.number, name) not in self._written:
                    self.copy(node, name)

    def _in_place(
        self,
        roots: list[Node],
        local: bool,
        turns: dict[int, tuple[Node, str, int | None]],
        waited: list[int],
        targets: dict[int, list[str]],
    ) -> None:
        """Have a loop change what it can where it is."""
        if local or self._group(loop_shape(roots[0]), roots, local) > 1:
            return
        for root in roots:
            old, place, last = turns.get(root.number, (None, "", None))
            if old is None or last is None or (last >= 0 and waited[last] >= self.barriers):
                continue
            targets[root.number] = [place]
            self.stays[place] = old

    def _way(self, root: Node, region: Region, alone: bool) -> str:
        """How the threads of a team learn a reduction, see reductions.py."""
        if self.team == 1 or alone:
            return OWN
        if self.team <= CLUSTER:
            return SPREAD
        if region is self.rounds and meets(root):
            return MET
        return LATE if region is self.rounds and root.number in self.late else FETCHED

    def _loops(self, roots: list[Node]) -> list[list[Node]]:
        """Roots of one level, those together that one loop makes."""
        together: dict[tuple[tuple[int, ...], bool, bool], list[Node]] = {}
        for root in roots:
            together.setdefault((loop_shape(root), self._apart(root), root.op == "planes"), []).append(root)
        found = []
        for same in together.values():
            found += self._summing(same) if self.team > 1 or self.host else [same]
        return found

    def _summing(self, roots: list[Node]) -> list[list[Node]]:
        """Roots whose sums threads share, and others: all threads that share a sum would compute these again. On the
        host sums are made by vectors, and what is in the loop around them is not.
        """
        sums = [inner_length([r], self._done, self.split) > 1 for r in roots]
        parts = [[r for r, s in zip(roots, sums, strict=True) if s == which] for which in (True, False)]
        tied = any(needs(a, b, self._done) or needs(b, a, self._done) for a, b in itertools.product(*parts))
        return parts if all(parts) and not tied else [roots]

    def copy(self, node: Node, name: str) -> None:
        with self.over(domain(node.shape)) as index:
            value = self.at(node, self.full(node.shape, index))
            self.store(name, node, self.full(node.shape, index), value)
        self.barrier()

    def _other(self, name: str, root: Node) -> Node | None:
        """What a choice brings to an array that is changed where it is, if it else leaves an element what it was."""
        old = self.stays.get(name)
        if old is None or root.op != "select_n" or len(root.inputs) != 3 or old not in root.inputs[1:]:
            return None
        return root.inputs[2 if root.inputs[1] is old else 1]

    def _news(self, name: str, root: Node, index: Sequence[Index], value: Ref) -> Ref:
        """What is written of an element that changes: where that is known, it need not be chosen."""
        other = self._other(name, root)
        if other is None or other.op == "literal" or other.shape != root.shape or not self._known(other, tuple(index)):
            return value
        return Ref(f"CHANGED({self.at(other, index).text}, {value.text})", value.depth)

    def store(self, name: str, node: Node, index: Sequence[Index], value: Ref, test: str = "") -> None:
        flat = self.flat(index, node.shape)
        place = flat if isinstance(flat, int) else flat.text
        self.line(f"{test}{name}[{place}] = ({STORED[node.kind]}){value.text};")

    def _changes(self, name: str, root: Node, index: Sequence[Index]) -> str:
        """When an element has to be written: not where it stays what it was."""
        other = self._other(name, root)
        if other is None:
            return ""
        which = root.inputs[0]
        test = self.at(which, tuple(index) if which.shape else ())
        when = "if" if test.depth < len(self.scopes) - 1 else "CHANGES"  # of a whole row
        return f"{when} ({'' if root.inputs[2] is other else '!'}{test.text}) "

    def _local(self, roots: list[Node]) -> bool:
        """Whether every block of a team rather does all of a loop itself than wait for the others."""
        small = math.prod(loop_shape(roots[0])) <= LOCAL_SIZE[0]
        return self.team > 1 and small and effort(roots, self._done) <= LOCAL

    def _apart(self, root: Node) -> bool:
        """Whether every block of a team makes a scatter for itself, and so what it scatters into."""
        return root.op == "fresh" and root.size + root.params["updates"] <= self.own

    @contextmanager
    def over(
        self,
        shape: tuple[int, ...],
        group: int = 1,
        local: bool = False,
        often: bool = True,
        times: int = 1,
        back: bool = False,
        atomic: bool = False,
        totals: Sequence[tuple[Node, Totals]] = (),
        words: bool = False,
    ) -> Iterator[tuple[Index, ...]]:
        """A loop of all threads over the elements of an array; gives the index.

        group: so many threads share an element, and split its sums among them. local: each block makes all of it.
        often: threads are worth having for it. times: so many elements in one turn of a thread, see `_times`. back: the
        last threads have the first elements, as those have less to do in the loop before. atomic: threads write to the
        same places. totals: of the reductions in it. words: a warp makes 32 neighbours, and all of its threads take
        part, those beyond the last element with that one.
        """
        size, loop = math.prod(shape), "BLOCK_LOOP" if local else "LOOP_BACK" if back and not words else "LOOP"
        self.unseen = True
        width = size if group == 1 else min(size * group, 256 * (1 if local else self.team))
        if often:
            self.widest = max(self.widest, width * self.team if local else width)
        i, q = self.name("i"), self.name("q")
        self.turn = i if group == 1 else q
        added = ", ".join(text for root, own in totals for text in folds(root, own, self.turn))
        kind, added = ("_OF", f", ({added})") if added else ("_WORDS" if words else "_ATOMIC" if atomic else "", "")
        if self.host and len(shape) > 1 and shape[-1] >= ROW:
            r = self.name("r")
            with self.scope(f"for (int {r} = 0; {r} < {size // shape[-1]}; {r}++)"):
                outer = self.spread(Ref(r, len(self.scopes) - 1), shape[:-1])
                with self.scope(f"{loop}{kind}({i}, {shape[-1]}{added})"):
                    yield *outer, Ref(i, len(self.scopes) - 1)
            return
        if group == 1:
            twice = self.many > 1 and size == 2 * max(32, THREADS // self.many)  # the compiler would not do so
            head = f"{'WRITTEN_OUT ' if twice and not words else ''}{loop}{kind}({i}, {size}{added})"
            with self.scope(head if times == 1 else f"LOOP_BY{kind}({i}, {size}, {times}{added})"):
                inside = len(self.scopes) - 1
                index = self.spread(Ref(i, inside), shape, turning=loop != "LOOP_BACK")
                self.loop = Loop(shape, inside) if loop == "LOOP" and self.team > 1 and not words else None
                self.in_turn(index, i)
                yield index
                self.loop = None
            return
        by = "" if times == 1 else f", {times}"
        with self.scope(f"{loop if times == 1 else 'LOOP_BY'}{kind}({q}, {size} * GROUP({group}){by}{added})"):
            depth = len(self.scopes) - 1
            self.line(f"const int {i} = (int)((u32){q} / GROUP({group})), lane = (int)((u32){q} % GROUP({group}));")
            self.group = (group, depth)
            yield self.spread(Ref(i, depth), shape)
            self.group = None
            self.fetched.clear()

    turn = ""  # the variable of the present loop

    def in_turn(self, index: Sequence[Index], turn: str) -> None:
        """Note by which variable of the present loop the row of an index is found."""
        if self.loop is not None and index and isinstance(index[0], Ref):
            self.loop.rows[index[0].text] = turn

    def _times(self, shape: tuple[int, ...], group: int, local: bool) -> int:
        """How many elements a thread makes in one turn: while it waits for one it goes on with another."""
        full = not local and math.prod(shape) * group >= 2 * self.team * THREADS
        return 2 if full and self.many == 1 and not self.host and (group == 1 or self.team > 1) else 1

    def _group(self, shape: tuple[int, ...], roots: list[Node], local: bool) -> int:
        """How many threads share an element of a loop that makes sums."""
        if self.host or roots[0].op == "planes":
            return 1
        length, size = inner_length(roots, self._done, self.split), math.prod(shape)
        wide = any(root.kind == "float64" for root in roots)  # for which a large block has too few registers
        group, room = 1, GROUPED // (2 if wide else 1) // self.many * (1 if local else self.team)
        # of rows in memory that all processors read, a whole sector at once
        least = 1 if self.team == 1 or local else SECTOR // max(BYTES[root.kind] for root in roots)
        while 2 * group <= min(32, length if self.team > 1 else length // 2) and (
            2 * group * size <= room or 2 * group <= least
        ):
            group *= 2
        return group

    def full(self, shape: tuple[int, ...], index: Sequence[Index]) -> list[Index]:
        """An index with the axes of length 1."""
        own = iter(index)
        return [0 if n == 1 else next(own) for n in shape]

    def each(self, shape: tuple[int, ...], axes: tuple[int, ...], index: Sequence[Index]) -> Iterator[list[Index]]:
        """The indices of the elements that a thread makes at a place of the loop over these axes of an array."""
        for place in itertools.product(*(range(n) for a, n in enumerate(shape) if a not in axes)):
            own, inner = iter(index), iter(place)
            yield [next(own) if a in axes else next(inner) for a in range(len(shape))]

    def _loop(
        self,
        shape: tuple[int, ...],
        roots: list[Node],
        targets: dict[int, list[str]],
        totals: dict[int, list[tuple[str, str]]],
        local: bool,
        back: bool,
    ) -> None:
        group = self._group(shape, roots, local)
        first = "" if group == 1 else "if (lane == 0) "
        written: dict[int, tuple[Node, list[str]]] = {}
        words = roots[0].op == "planes"
        times = 1 if words else self._times(shape, group, local)
        for root in roots:
            if not reduces(root):
                size = plane_words(root) if root.op == "planes" else root.size
                names = targets.get(root.number) or [self.buffer(size, root.kind, local)]
                written[root.number] = root, names
        added = [(root, totals[root.number]) for root in roots if reduces(root)]
        with self.over(shape, group, local, times=times, back=back and times == 1, totals=added, words=words) as index:
            depth, stores, places = len(self.scopes) - 1, [], [(index, first)]
            for more in range(1, times):  # the last ones may be made twice, but are not to be added twice
                turns = f"{math.prod(shape)}" if group == 1 else f"{math.prod(shape)} * GROUP({group})"
                i = turn = self.variable("int32", f"NEXT({self.turn}, {more}, {turns})", depth)
                if group > 1:
                    i = self.variable("int32", f"(int)((u32){turn.text} / GROUP({group}))", depth)
                where = "lane == 0 && " if group > 1 else ""
                places.append((self.spread(i, shape, turning=group == 1), f"if ({where}{turn.text} != {self.turn}) "))
                self.in_turn(places[-1][0], turn.text)
            for index, _ in places if self.team > 1 else ():
                self._read_first(roots, index, group)
            for (number, (index, guard)), root in itertools.product(enumerate(places), roots):
                if reduces(root):
                    accumulate(self, root, index, totals[root.number], guard, number > 0)
                    continue
                for here in self.each(root.shape, axes_of(root), index):
                    value = self._made(root, tuple(here))
                    if value.depth < depth and root.size > 1 and not value.text.isidentifier():
                        value = self.variable(root.kind, value.text, depth)
                    stores += [(name, root, here, value) for name in written[root.number][1]]
                    self.scopes[-1].known[known_by(root, here)] = value
            # at the end, so that the compiler may read ahead: it cannot tell which arrays are others
            for name, root, here, value in stores:
                if root.op == "planes":
                    write_planes(self, name, root, value)
                else:
                    test = first or self._changes(name, root, here)
                    self.store(name, root, here, self._news(name, root, here, value) if test else value, test)
        for root, names in written.values():
            self._written.update((root.number, name) for name in names)
            if root.number in self.aside:
                self.aside[root.number] = root, names[0]
            else:
                self.know(root, names[0])

    def _read_first(self, roots: list[Node], index: Sequence[Index], group: int) -> None:
        """Read what a turn needs of memory before anything is computed: the compiler moves no read across a branch."""
        shape = loop_shape(roots[0])
        if group > 1:
            for node in cone(roots, self._done):
                if node.op in REDUCTIONS and not reduces(node) and domain(node.shape) == shape:
                    fetch(self, node, tuple(self.full(node.shape, index)))
            return
        for root in roots:
            if not reduces(root) and len(index) == len(domain(root.shape)):
                full = self.full(root.shape, index)
                for node in self.reads(root):
                    self.at(node, full)

    def _made(self, root: Node, index: tuple[Index, ...]) -> Ref:
        """An element of a root, which may have been read already."""
        known = self.scopes[-1].known.get(known_by(root, index))
        return self._element(root, index) if known is None else known

    def _collective(self, node: Node) -> None:
        """What takes barriers of its own."""
        if node.op in CONTROL:
            self.parts_of[node.number] = write_control(self, node)
        else:
            write_collective(self, node)
        self._done.add(node.number)

    def in_memory(self, node: Node) -> str:
        """The array of a node that was written down."""
        place = self.places.get(node.number)
        if isinstance(place, str):
            return place
        name = self.buffer(node.size, node.kind)
        self.copy(node, name)
        return name
