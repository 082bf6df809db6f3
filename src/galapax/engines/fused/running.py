"""Running sums: each warp adds up a piece of a row, learns what comes before it, and goes over it again.

A short piece is kept in registers. Of zeros and ones a warp knows 32 at once, as the bits of a word.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from galapax.engines.fused.graph import Node, NotFusible
from galapax.engines.fused.places import Index, Ref
from galapax.engines.fused.ranges import span
from galapax.engines.fused.rules import RUNNING, SHORT, combine, ctype, neutral

if TYPE_CHECKING:
    from galapax.engines.fused.regions import Regions

ROWS = 4  # running sums that are made in one pass


def write_running(e: Regions, node: Node) -> None:
    axis = node.params["axis"]
    if node.kind == "bool":
        raise NotFusible(f"{node.op} of truth values")
    local = node.size <= e.own
    target = e.buffer(node.size, node.kind, local)
    e.unseen = True
    n, rest = node.shape[axis], (*node.shape[:axis], *node.shape[axis + 1 :])
    e.widest = max(e.widest, n * e.team if local else n)
    if math.prod(rest) <= ROWS:
        _Rows(e, node, target, [e.spread(i, rest) for i in range(math.prod(rest))], local).write()
    else:
        i = e.name("o")
        with e.scope(f"for (int {i} = 0; {i} < {math.prod(rest)}; {i}++)"):
            _Rows(e, node, target, [e.spread(Ref(i, len(e.scopes) - 1), rest)], local).write()
    e.barrier(local)
    e.know(node, target)


class _Rows:
    """A few running sums side by side. local: each block makes all of it for itself."""

    def __init__(self, e: Regions, node: Node, target: str, rows: list[tuple[Index, ...]], local: bool) -> None:
        self.e, self.node, self.target, self.rows, self.local = e, node, target, rows, local
        self.given, self.axis = node.inputs[0], node.params["axis"]
        self.n = node.shape[self.axis]
        self.operation = RUNNING[node.op]
        self.what, self.none = f"{self.operation}_{SHORT[node.kind]}", neutral(self.operation, node.kind)
        self.about = f"{self.n}, {int(local)}"
        self.bits = node.kind == "int32" and self.operation == "add" and span(self.given) == (0, 1)
        self.held = [e.name("h") for _ in rows]
        self.sums, self.befores = ([e.name("s") for _ in rows] for _ in range(2))

    def write(self) -> None:
        e, kind = self.e, ctype(self.node.kind)
        slots = [e.part() for _ in self.rows]
        if len(self.rows) == 1 and self.node.size > self.n:  # the next row must not meet what this one still reads
            e.line("BLOCK_BARRIER" if self.local or e.team == 1 else "BARRIER")
        word = "u32" if self.bits else kind
        for total, held in zip(self.sums, self.held, strict=True):
            e.line(f"{kind} {total} = {self.none}; {word} {held}[HELD({self.about})];")
        with e.scope(f"if (HOLDS({self.about}))"):  # all are read before the first is looked at, not one after another
            self._over(self._fetch)
        self._over(self._count)
        for total, slot in zip(self.sums, slots, strict=True):
            e.line(f"PIECE_GIVE{'_BITS' if self.bits else ''}({self.what}, {total}, {slot});")
        e.line("BLOCK_BARRIER")
        if e.team > 1 and not self.local:
            for number, slot in enumerate(slots):
                e.line(f"PASS({self.what}, {self.none}, {slot}, {number});")
            e.barrier()
        for before, slot in zip(self.befores, slots, strict=True):
            e.line(f"{kind} {before} = PIECE_BEFORE({self.what}, {self.none}, {slot}, {int(self.local)});")
        self._over(self._again)

    def _over(self, each: Callable[[str, str], None]) -> None:
        """A loop of each warp over its piece, 32 numbers in a turn; those beyond the end are `none`."""
        e, k, turn = self.e, self.e.name("k"), self.e.name("q")
        with e.scope(f"OVER_PIECE({turn}, {k}, {self.about})"):
            each(k, turn)

    def _values(self, k: str) -> list[str]:
        """The elements at a place of each row."""
        e, inside = self.e, f"({k} < {self.n} ? {k} : {self.n - 1})"
        place = e.variable("int32", f"{self.n - 1} - {inside}" if self.node.params["reverse"] else inside, 10**9)
        index = [(*r[: self.axis], place, *r[self.axis :]) for r in self.rows]
        return [f"({k} < {self.n} ? {e.at(self.given, i).text} : {self.none})" for i in index]

    def _fetch(self, k: str, turn: str) -> None:
        for held, text in zip(self.held, self._values(k), strict=True):
            self.e.line(f"{held}[{turn}] = {text};")

    def _count(self, k: str, turn: str) -> None:
        for total, held, own in zip(self.sums, self.held, self._held(k, turn), strict=True):
            part = own
            if self.bits:
                self.e.line(f"{own} = voted({own});")
                self.e.line(f"if (HOLDS({self.about})) {held}[{turn}] = {own};")
                part = f"(int)popcount_u32({own})"
            self.e.line(f"{total} = {combine(self.operation, self.node.kind, total, part)};")

    def _held(self, k: str, turn: str) -> list[str]:
        """Variables with what is held at a turn, or where there is too much to hold it, with what is read again."""
        e, names = self.e, [self.e.name() for _ in self.rows]
        word = "u32" if self.bits else ctype(self.node.kind)
        for name, held in zip(names, self.held, strict=True):
            e.line(f"{word} {name} = {held}[HOLDS({self.about}) ? {turn} : 0];")
        with e.scope(f"if (!HOLDS({self.about}))"):
            for name, text in zip(names, self._values(k), strict=True):
                e.line(f"{name} = {text};")
        return names

    def _again(self, k: str, turn: str) -> None:
        e, names = self.e, self._held(k, turn)
        if self.bits:
            for name in names:
                e.line(f"if (!HOLDS({self.about})) {name} = voted({name});")
        place = Ref(f"({self.n - 1} - {k})" if self.node.params["reverse"] else k, len(e.scopes) - 1)
        run = "run_bits" if self.bits else f"run_{self.what}"
        for row, name, before in zip(self.rows, names, self.befores, strict=True):
            total = e.name("s")
            e.line(f"const {ctype(self.node.kind)} {total} = {run}(&{before}, {name});")
            index = (*row[: self.axis], place, *row[self.axis :])
            e.store(self.target, self.node, index, Ref(total, len(e.scopes) - 1), f"if ({k} < {self.n}) ")
