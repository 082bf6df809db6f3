"""Loops over individuals, barriers between them, and what all threads of a block do together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from galapax.engines.fused.collective import write_collective
from galapax.engines.fused.control import write_control
from galapax.engines.fused.emit import Buffer, Emitter, known_by
from galapax.engines.fused.graph import Node, Region
from galapax.engines.fused.places import Index, Ref
from galapax.engines.fused.plan import (
    CONTROL,
    axes_of,
    collective,
    domain,
    effort,
    inner_length,
    lengths,
    loop_axes,
    loop_shape,
    planned,
    reduces,
)
from galapax.engines.fused.rules import REDUCTIONS, SHORT, STORED, combine, ctype, neutral

LOCAL = 2**17  # operations that every block of a team rather makes itself
LOCAL_SIZE = (2**12, 2**15)  # and numbers that it rather adds up or moves itself, in a cluster and in a grid
GROUPED = 1024  # threads that loops with sums are spread over
THREADS = 1024  # of a block at most
SPLIT = 8  # steps of a sum that threads of a team share
SEVERAL = 8  # runs that share a processor; more keep it busy, so that less work is less time
CLUSTER = 16  # blocks that have a barrier of their own; more meet at a counter in memory


class Regions(Emitter):
    """Writes regions: a plan's levels one after another."""

    def __init__(self, team: int = 1, many: int = 1) -> None:
        super().__init__()
        self.team = team  # blocks that make a run together
        self.many = many  # runs that share a processor
        self.split = SPLIT if team > 1 else self.split
        self.own = 0 if team == 1 else LOCAL_SIZE[team > CLUSTER]
        self.buffers: list[Buffer] = []
        self.parts = 0  # reductions, each with room for a part of every warp
        self.widest = 1  # the largest loop
        self.table = 0  # bytes of what is computed ahead
        self.barriers = 0  # of the present round of a loop
        self.unseen = False  # whether something was written since the last one
        self._done: set[int] = set()
        self._written: set[tuple[int, str]] = set()

    def buffer(self, size: int, kind: str, local: bool = False) -> str:
        made = Buffer(self.name("b"), size, kind, local or self.team == 1)
        ctype(kind)
        self.buffers.append(made)
        return made.name

    def barrier(self, local: bool = False) -> None:
        """All threads of a run, or of a block, wait for each other."""
        self.line("BLOCK_BARRIER" if local and self.team > 1 else "BARRIER")
        if not local or self.team == 1:
            self.barriers += 1
            self.unseen = self.looked = False

    def part(self) -> int:
        """Where the warps leave their parts of a reduction: the number of a place."""
        self.parts += 1
        return self.parts - 1

    def know(self, node: Node, place: str | list[str]) -> None:
        """From now on a node is read at a place."""
        self.places[node.number] = place
        self._done.add(node.number)

    def write(self, region: Region, outputs: list[Node], targets: dict[int, list[str]]) -> None:
        """Write what it takes to know these outputs. targets: arrays for some of them, {number of the node: names}."""
        plan = planned(region, outputs, set(targets) - self._done, self._done, self.team)
        if self.team > 1 or self.many > SEVERAL:  # a few threads that wait for each other lose more by branches
            self.rare |= plan.rare
        for level in plan.levels:
            together: dict[tuple[tuple[int, ...], bool], list[Node]] = {}
            for root in level:
                if not collective(root):
                    together.setdefault((loop_shape(root), self._apart(root)), []).append(root)
            reductions = [r for r in level if reduces(r)]
            slots = {r.number: [self.part() for _ in range(r.size)] for r in reductions}
            totals = {r.number: self._totals(r) for r in reductions}
            local = {key: key[1] or self._local(roots) for key, roots in together.items()}
            for key, roots in together.items():
                self._loop(key[0], roots, targets, totals, local[key])
            for root in reductions:
                self._give(root, totals[root.number], slots[root.number])
            alone = [r for r in reductions if local[loop_shape(r), False]]
            self._shared("PASS", [r for r in reductions if r not in alone], slots)
            if together:
                self.barrier(all(local.values()))
            self._take(reductions, slots, totals, alone)
            for root in level:
                if collective(root):
                    self._collective(root)
        for node in outputs:  # those that are there already under another name
            for name in targets.get(node.number, ()):
                if (node.number, name) not in self._written:
                    self._copy(node, name)

    def _copy(self, node: Node, name: str) -> None:
        with self.over(domain(node.shape)) as index:
            value = self.at(node, self.full(node.shape, index))
            self.store(name, node, self.full(node.shape, index), value)
        self.barrier()

    def store(self, name: str, node: Node, index: Sequence[Index], value: Ref, test: str = "") -> None:
        flat = self.flat(index, node.shape)
        place = flat if isinstance(flat, int) else flat.text
        self.line(f"{test}{name}[{place}] = ({STORED[node.kind]}){value.text};")

    def _local(self, roots: list[Node]) -> bool:
        """Whether every block of a team rather does all of a loop itself than wait for the others."""
        small = math.prod(loop_shape(roots[0])) <= LOCAL_SIZE[0]
        return self.team > 1 and small and effort(roots, self._done) <= LOCAL

    def _apart(self, root: Node) -> bool:
        """Whether every block of a team makes a scatter for itself, and so what it scatters into."""
        return root.op == "fresh" and root.size + root.params["updates"] <= self.own

    @contextmanager
    def over(
        self, shape: tuple[int, ...], group: int = 1, local: bool = False, often: bool = True, times: int = 1
    ) -> Iterator[tuple[Index, ...]]:
        """A loop of all threads over the elements of an array; gives the index.

        group: so many threads share an element, and split its sums among them. local: each block makes all of it.
        often: threads are worth having for it. times: so many elements in one turn of a thread, see `_more`.
        """
        size, loop = math.prod(shape), "BLOCK_LOOP" if local else "LOOP"
        self.unseen = True
        width = size if group == 1 else min(size * group, 256 * (1 if local else self.team))
        if often:
            self.widest = max(self.widest, width * self.team if local else width)
        i = self.name("i")
        if group == 1:
            with self.scope(f"{loop}({i}, {size})" if times == 1 else f"LOOP_BY({i}, {size}, {times})"):
                self.here = i
                yield self.spread(Ref(i, len(self.scopes) - 1), shape)
            return
        q = self.name("q")
        with self.scope(f"{loop}({q}, {size} * GROUP({group}))"):
            depth = len(self.scopes) - 1
            self.line(f"const int {i} = {q} / GROUP({group}), lane = {q} % GROUP({group});")
            self.group = (group, depth)
            yield self.spread(Ref(i, depth), shape)
            self.group = None

    def _times(self, shape: tuple[int, ...], group: int, local: bool) -> int:
        """How many elements a thread makes in one turn: while it waits for one it goes on with another."""
        full = not local and group == 1 and math.prod(shape) >= 2 * self.team * THREADS
        return 2 if full and self.many == 1 else 1

    def _group(self, shape: tuple[int, ...], roots: list[Node], local: bool) -> int:
        """How many threads share an element of a loop that makes sums."""
        length, size = inner_length(roots, self._done, self.split), math.prod(shape)
        group, room = 1, GROUPED * (1 if local else self.team)
        while 2 * group <= min(32, length // 2) and 2 * group * size <= room:
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
    ) -> None:
        group = self._group(shape, roots, local)
        first = "" if group == 1 else "if (lane == 0) "
        written: dict[int, tuple[Node, list[str]]] = {}
        times = self._times(shape, group, local)
        for root in roots:
            if not reduces(root):
                names = targets.get(root.number) or [self.buffer(root.size, root.kind, local)]
                written[root.number] = root, names
        with self.over(shape, group, local, times=times) as index:
            depth, stores, places = len(self.scopes) - 1, [], [(index, first)]
            for more in range(1, times):  # the last ones may be made twice, but are not to be added twice
                i = self.variable("int32", f"NEXT({self.here}, {more}, {math.prod(shape)})", depth)
                places.append((self.spread(i, shape), f"if ({i.text} != {self.here}) "))
            for (index, guard), root in itertools.product(places, roots):
                if reduces(root):
                    self._accumulate(root, index, totals[root.number], guard)
                    continue
                for here in self.each(root.shape, axes_of(root), index):
                    value = self._element(root, tuple(here))
                    if value.depth < depth and root.size > 1 and not value.text.isidentifier():
                        value = self.variable(root.kind, value.text, depth)
                    stores += [(name, root, here, value) for name in written[root.number][1]]
                    self.scopes[-1].known[known_by(root, here)] = value
            # at the end, so that the compiler may read ahead: it cannot tell which arrays are others
            for name, root, here, value in stores:
                self.store(name, root, here, value, first)
        for root, names in written.values():
            self._written.update((root.number, name) for name in names)
            self.know(root, names[0])

    # reductions

    def _totals(self, root: Node) -> list[tuple[str, str]]:
        """Variables for what a thread has seen: the value, and for argmin the place."""
        kind = root.inputs[0].kind
        made = []
        for _ in range(root.size):
            value, place = self.name("s"), self.name("s")
            if root.op in REDUCTIONS:
                self.line(f"{ctype(kind)} {value} = {neutral(REDUCTIONS[root.op], kind)};")
            else:
                none = neutral("min" if root.op == "argmin" else "max", kind)
                self.line(f"{ctype(kind)} {value} = {none}; int {place} = 2147483647;")
            made.append((value, place))
        return made

    def _accumulate(self, root: Node, index: Sequence[Index], totals: list[tuple[str, str]], guard: str) -> None:
        given, axes = root.inputs[0], [int(a) for a in root.params["axes"]]
        if root.size == 1:
            for full in self.each(given.shape, axes_of(root), index):
                self._add(root, full, axes, guard, *totals[0])
            return
        free = [a for a in range(len(given.shape)) if a not in axes]
        reduced = lengths(given.shape, tuple(axes))
        for inner in self.each(reduced, loop_axes(reduced), index):
            for number, total in enumerate(totals):
                place: list[Index] = [0] * len(given.shape)
                for a, i in zip([*axes, *free], [*inner, *self.spread(number, root.shape)], strict=True):
                    place[a] = i
                self._add(root, place, axes, guard, *total)

    def _add(self, root: Node, full: list[Index], axes: list[int], guard: str, value: str, place: str) -> None:
        given = root.inputs[0]
        part = self.at(given, full)
        if root.op in REDUCTIONS:
            self.line(f"{guard}{value} = {combine(REDUCTIONS[root.op], given.kind, value, part.text)};")
            return
        here = full[axes[0]]
        assert isinstance(here, Ref)
        test = f"ahead_{self._best_name(root)}({part.text}, {here.text}, {value}, {place})"
        self.line(f"{guard}if ({test}) {{ {value} = {part.text}; {place} = {here.text}; }}")

    def _best_name(self, root: Node) -> str:
        return f"{'least' if root.op == 'argmin' else 'most'}_{SHORT[root.inputs[0].kind]}"

    def _give(self, root: Node, totals: list[tuple[str, str]], slots: list[int]) -> None:
        for (value, place), slot in zip(totals, slots, strict=True):
            if root.op in REDUCTIONS:
                self.line(f"GIVE({REDUCTIONS[root.op]}_{SHORT[root.inputs[0].kind]}, {value}, {slot});")
            else:
                self.line(f"GIVE_BEST({self._best_name(root)}, {value}, {place}, {slot});")

    def _shared(self, action: str, reductions: list[Node], slots: dict[int, list[int]]) -> None:
        """In a team the warps of a block share out what it does with its parts: PASS on to others, or FETCH theirs."""
        if not reductions or self.team == 1:
            return
        if action == "PASS":
            self.line("BLOCK_BARRIER")
        every = [(root, slot) for root in reductions for slot in slots[root.number]]
        for number, (root, slot) in enumerate(every):
            if root.op in REDUCTIONS:
                operation, kind = REDUCTIONS[root.op], root.inputs[0].kind
                self.line(f"{action}({operation}_{SHORT[kind]}, {neutral(operation, kind)}, {slot}, {number});")
            else:
                self.line(f"{action}_BEST({self._best_name(root)}, {slot}, {number});")
        if action == "FETCH":
            self.line("BLOCK_BARRIER")

    def _take(
        self,
        reductions: list[Node],
        slots: dict[int, list[int]],
        totals: dict[int, list[tuple[str, str]]],
        local: list[Node],
    ) -> None:
        self._shared("FETCH", [r for r in reductions if r not in local], slots)
        for root in reductions:
            names = []
            kind, own = root.inputs[0].kind, "OWN_" if root in local else ""
            for slot, (value, place) in zip(slots[root.number], totals[root.number], strict=True):
                names.append(self.name("r"))
                if root.op in REDUCTIONS:
                    none = neutral(REDUCTIONS[root.op], kind)
                    text = f"{own}TAKE({REDUCTIONS[root.op]}_{SHORT[kind]}, {none}, {slot}, {value})"
                else:
                    text = f"{own}TAKE_BEST({self._best_name(root)}, {slot}, {place})"
                self.line(f"const {ctype(root.kind)} {names[-1]} = {text};")
            self.know(root, names)

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
        self._copy(node, name)
        return name
