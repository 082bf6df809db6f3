"""Rows of history: what each generation tells of itself.

A row follows from a few numbers that all threads of a warp know. Each of them keeps those of one generation, and when
all have some, they compute and write their rows at the same time: one at a time, a single thread would do so in every
generation, and the others would wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from galapax.engines.fused.ahead import MOVES
from galapax.engines.fused.graph import Node
from galapax.engines.fused.loops import SMALL, domain
from galapax.engines.fused.loops import inputs as inputs_of
from galapax.engines.fused.rules import ELEMENTWISE, ctype

if TYPE_CHECKING:
    from galapax.engines.fused.regions import Regions

WRITTEN = 4 * SMALL  # numbers of a row that one thread writes
KEPT = 8  # numbers that a row is computed from later; more would take too many registers


class Rows:
    """The rows of a loop over generations, whose numbers in this chunk are `g`. row: of one, (columns, 1)."""

    def __init__(self, e: Regions, row: Node, number: Node) -> None:
        self.e, self.row, self.number = e, row, number
        self._late: list[str] = []  # lines that write the rows which are kept

    def keep(self) -> None:
        """At the end of a generation."""
        e, row = self.e, self.row
        leaves = None if e.host or row.size > WRITTEN else self._leaves()
        if leaves is not None and sum(n.size for n in leaves) <= KEPT:
            self._keep(leaves)
        elif row.size <= WRITTEN:
            who = "LAST" if e.late else "FIRST"
            e.line(f"{who} {{ {self._stores('history + g * row')} }}")
        else:
            with e.over(domain(row.shape)) as index:
                full = e.full(row.shape, index)
                value, flat = e.at(row, full), e.flat(full, row.shape)
                here = flat if isinstance(flat, int) else flat.text
                e.line(f"history[g * row + (long long){here} * RUNS] = {value.text};")

    def _stores(self, where: str) -> str:
        e, row = self.e, self.row
        values = [e.at(row, e.spread(c, row.shape)).text for c in range(row.size)]
        return " ".join(f"({where})[{c}LL * RUNS] = {v};" for c, v in enumerate(values))

    def _leaves(self) -> list[Node] | None:
        """The numbers that a row follows from, or None where it needs more than that."""
        e, found, seen, stack = self.e, list[Node](), set[int](), [self.row]
        while stack:
            node = stack.pop()
            if node.number in seen or node.op in ("literal", "given"):
                continue
            seen.add(node.number)
            if isinstance(e.places.get(node.number), list):
                found += [node] if node is not self.number else []
            elif node.number in e.places or node.op not in ELEMENTWISE.keys() | MOVES:
                return None
            else:
                stack.extend(inputs_of(node))
        return found

    def _keep(self, leaves: list[Node]) -> None:
        e = self.e
        before, kept = dict(e.places), dict[int, list[str]]()
        for node in leaves:
            names = [e.name("w") for _ in range(node.size)]
            kept[node.number] = names
            for name, now in zip(names, e.places[node.number], strict=True):
                e.line(f"{ctype(node.kind)} {name} = 0;", 0)
                e.line(f"if (LANE == g % KEEPS) {name} = {now};")
        with e.outside(0), e.detached() as scope:
            ahead, base, e.ahead, e.base = e.ahead, e.base, None, len(e.scopes) - 1
            e.places = before | kept | {self.number.number: ["number"]}
            e.line("const int number = start + end - kept + LANE;")
            stores = self._stores("history + (number - start) * row")
            e.line(f"if (THE_LAST && LANE < kept) {{ {stores} }}")
            e.ahead, e.base, e.places = ahead, base, before
        self._late = ["  " + line for line in scope.lines]
        self._write("g % KEEPS == KEEPS - 1", "KEEPS", "g + 1")

    def _write(self, when: str, kept: str, end: str) -> None:
        self.e.line(f"if ({when}) {{")
        for line in (f"  const int kept = {kept}, end = {end};", *self._late):
            self.e.line(line)
        self.e.line("}")

    def finish(self) -> None:
        """After the last generation; the rows of those that are not made are zeros."""
        e = self.e
        if self._late:
            self._write("g % KEEPS != 0", "g % KEEPS", "g")
        with e.scope("for (; g < rows; g++)"):
            c = e.name("i")
            with e.scope(f"LOOP({c}, {self.row.size})"):
                e.line(f"history[g * row + (long long){c} * RUNS] = 0;")
