"""Loops and branches inside a generation: all threads of a block go through them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from galapax.engines.fused.graph import Node, Region
from galapax.engines.fused.loops import SMALL, domain
from galapax.engines.fused.rules import STORED, ctype

if TYPE_CHECKING:
    from galapax.engines.fused.regions import Regions

Place = str | list[str]


def write_control(e: Regions, node: Node) -> list[Place]:
    """Write a loop or a branch; where its outputs lie."""
    return {"while": _while, "scan": _scan, "cond": _cond}[node.op](e, node)


class Carried:
    """What a loop changes from round to round: small parts in variables, others in two arrays that take turns."""

    def __init__(self, e: Regions, nodes: Sequence[Node]) -> None:
        self.e, self.nodes = e, nodes
        self.places: list[Place] = []
        self.following: list[Place] = []
        for node in nodes:
            if node.size <= SMALL:
                names = [e.name("c") for _ in range(node.size)]
                for name in names:
                    e.line(f"{ctype(node.kind)} {name};")
                self.places.append(names)
                self.following.append(names)
            else:
                self.places.append(e.buffer(node.size, node.kind))
                self.following.append(e.buffer(node.size, node.kind))

    def begin(self, start: Sequence[Node]) -> None:
        """Write what the first round begins with."""
        for node, given, place in zip(self.nodes, start, self.places, strict=True):
            if isinstance(place, list):
                for i, name in enumerate(place):
                    self.e.line(f"{name} = {self.e.at(given, self.e.spread(i, node.shape)).text};")
            else:
                with self.e.over(domain(given.shape), often=False) as index:
                    full = self.e.full(given.shape, index)
                    self.e.store(place, given, full, self.e.at(given, full))
        self.e.barrier()

    def enter(self) -> None:
        for node, place in zip(self.nodes, self.places, strict=True):
            self.e.know(node, place)

    def targets(self, outputs: Sequence[Node]) -> dict[int, list[str]]:
        """Arrays for what a round ends with."""
        found: dict[int, list[str]] = {}
        for node, place, out in zip(self.nodes, self.following, outputs, strict=True):
            if isinstance(place, str) and out is not node:
                found.setdefault(out.number, []).append(place)
        return found

    def turning(self, outputs: Sequence[Node]) -> list[tuple[Node, str, Node]]:
        """What may be changed where it is: as it was, where it lies, as it becomes. Not what becomes several others."""
        numbers = Counter(out.number for out in outputs)
        return [
            (node, place, out)
            for node, place, out in zip(self.nodes, self.places, outputs, strict=True)
            if isinstance(place, str) and out is not node and numbers[out.number] == 1
        ]

    def turn(self, outputs: Sequence[Node]) -> None:
        """The end of a round."""
        e = self.e
        values = []
        for node, place, out in zip(self.nodes, self.places, outputs, strict=True):
            if isinstance(place, list) and out is not node:
                values.append([e.at(out, e.spread(i, out.shape)).text for i in range(len(place))])
            else:
                values.append([])
        news = []
        for node, place, texts in zip(self.nodes, self.places, values, strict=True):
            for name, text in zip(place if texts else (), texts, strict=True):
                new = e.name("n")
                e.line(f"const {ctype(node.kind)} {new} = {text};")
                news.append(f"{name} = {new};")
        for text in news:
            e.line(text)
        for node, place, other, out in zip(self.nodes, self.places, self.following, outputs, strict=True):
            if isinstance(place, str) and out is not node and place not in e.stays:
                t = e.name("p")
                e.line(f"{{ {STORED[node.kind]} *{t} = {place}; {place} = {other}; {other} = {t}; }}")
        e.clear_met()
        # what a round wrote is seen already, and no array is written again before all have read it
        if e.unseen or e.looked or e.barriers < 2:
            e.barrier()


class Inside:
    """What is known inside a region is forgotten after it."""

    def __init__(self, e: Regions) -> None:
        self.e = e

    def __enter__(self) -> None:
        e = self.e
        self.before = (dict(e.places), set(e._done), e.base, e.barriers)
        e.base, e.barriers = len(e.scopes) - 1, 0

    def __exit__(self, *about: object) -> None:
        self.e.places, self.e._done, self.e.base, self.e.barriers = self.before


def _while(e: Regions, node: Node) -> list[Place]:
    region: Region = node.params["region"]
    carried = Carried(e, region.carried)
    carried.begin(node.inputs)
    with e.scope("for (;;)"), Inside(e):
        carried.enter()
        test, *outputs = region.outputs
        e.write(region, [test], {})
        e.line(f"if (!{e.at(test, ()).text}) break;")
        e.write(region, outputs, carried.targets(outputs))
        carried.turn(outputs)
    e.barrier()
    return carried.places


def _scan(e: Regions, node: Node) -> list[Place]:
    region: Region = node.params["region"]
    count, length = node.params["carries"], node.params["length"]
    carried = Carried(e, region.carried)
    carried.begin(node.inputs)
    rows = [(out, e.buffer(max(1, length * out.size), out.kind)) for out in region.outputs[count:]]
    c = e.name("c")
    with e.scope(f"for (int {c} = 0; {c} < {length}; {c}++)"), Inside(e):
        carried.enter()
        if region.counter is not None:
            e.know(region.counter, [c])
        outputs = region.outputs[:count]
        e.write(region, region.outputs, carried.targets(outputs), carried.turning(outputs))
        for out, name in rows:
            place = f"{length - 1} - {c}" if node.params["reverse"] else c
            with e.over(domain(out.shape)) as index:
                full = e.full(out.shape, index)
                value = e.at(out, full)
                flat = e.flat(full, out.shape)
                where = flat if isinstance(flat, int) else flat.text
                e.line(f"{name}[({place}) * {out.size} + {where}] = ({STORED[out.kind]}){value.text};")
        carried.turn(outputs)
    return [*carried.places, *(name for _, name in rows)]


def _cond(e: Regions, node: Node) -> list[Place]:
    regions: list[Region] = node.params["regions"]
    shapes = regions[0].outputs
    places: list[Place] = []
    for out in shapes:
        if out.size <= SMALL:
            names = [e.name("c") for _ in range(out.size)]
            for name in names:
                e.line(f"{ctype(out.kind)} {name};")
            places.append(names)
        else:
            places.append(e.buffer(out.size, out.kind))
    which = e.at(node.inputs[0], ())
    last = len(regions) - 1
    written = []
    for number, region in enumerate(regions):
        head = "else" if number == last else f"{'else ' if number else ''}if ({which.text} <= {number})"
        with e.detached() as scope, Inside(e):
            targets: dict[int, list[str]] = {}
            for out, place in zip(region.outputs, places, strict=True):
                if isinstance(place, str):
                    targets.setdefault(out.number, []).append(place)
            e.write(region, region.outputs, targets)
            for out, place in zip(region.outputs, places, strict=True):
                for i, name in enumerate(place if isinstance(place, list) else ()):
                    e.line(f"{name} = {e.at(out, e.spread(i, out.shape)).text};")
        written.append((head, scope))
    e.branches(written)
    e.barrier()
    return places
