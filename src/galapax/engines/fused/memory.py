"""Where the arrays of a run lie in its block's shared memory: those that are never in use together share a place.

Read off the text: an array is in use from the first line that names it to the last, and in a loop from its beginning to
its end. Between the uses of two arrays at one place all threads must have met.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from galapax.engines.fused.emit import Buffer
from galapax.engines.fused.rules import ALIGNED, BYTES

ROUNDS = "for (; g < count; g++)"  # the loop over generations
_WHOLE = r"\s*(?:if \((?:lane == 0|k\d+ < \d+)\) )?{}\[.*\] = "  # every element is written
_TURN = re.compile(r"\s*\{ .*\*p\d+ = (b\d+); \1 = (b\d+); \2 = p\d+; \}")


@dataclass(eq=False)
class Scope:
    """A pair of braces, from line to line. meetings: where, in it and in none inside it, all threads meet."""

    first: int
    around: Scope | None
    repeats: bool
    last: int
    meetings: list[int] = field(default_factory=list)

    def outwards(self) -> list[Scope]:
        """Itself and those around it."""
        return [self, *(self.around.outwards() if self.around is not None else [])]


class Use(NamedTuple):
    """The lines between which an array is in use, and the innermost scope that holds them."""

    first: int
    last: int
    scope: Scope


def size_of(buffer: Buffer) -> int:
    """Bytes that an array takes."""
    return -(-max(1, buffer.size) * BYTES[buffer.kind] // ALIGNED) * ALIGNED


def placed(lines: Sequence[str], buffers: Sequence[Buffer], start: int, end: int) -> dict[str, int]:
    """Offsets, from `start` to `end`, of those arrays that find a place there: those of inner loops and small ones."""
    scopes = _scopes(lines)  # of each line
    named = {b.name: [n for n, line in enumerate(lines) if re.search(rf"\b{b.name}\b", line)] for b in buffers}
    uses = _uses(lines, scopes, named)
    rank = {name: max((_loops(scopes[n]) for n in at), default=0) for name, at in named.items()}
    sizes, found = {b.name: size_of(b) for b in buffers}, dict[str, int]()
    for name in sorted(named, key=lambda name: (-rank[name], sizes[name])):
        taken = [(found[o], found[o] + sizes[o]) for o in found if not _apart(uses.get(name), uses.get(o))]
        here = start
        for begin, until in sorted(taken):
            if here + sizes[name] <= begin:
                break
            here = max(here, until)
        if here + sizes[name] <= end:
            found[name] = here
    return found


def _scopes(lines: Sequence[str]) -> list[Scope]:
    """The innermost scope of each line; a line that opens one is in it."""
    here, found = Scope(0, None, False, len(lines)), []
    for number, line in enumerate(lines):
        text = line.strip()
        if text in ("BARRIER", "BLOCK_BARRIER"):
            here.meetings.append(number)
        more = text.count("{") - text.count("}")
        if more > 0:
            here = Scope(number, here, text.startswith(("for", "STEPS_OF")), len(lines))
        found.append(here)
        if more < 0 and here.around is not None:
            here.last, here = number, here.around
    return found


def _uses(lines: Sequence[str], scopes: list[Scope], named: dict[str, list[int]]) -> dict[str, Use]:
    """Of the arrays that hold nothing from one generation to the next."""
    partner: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines):
        if turn := _TURN.match(line):  # from then on either name may stand for either place
            a, b = turn.groups()
            partner |= {a: (b, number), b: (a, number)}
    uses = {}
    for name, at in named.items():
        if not at:
            continue
        other, where = partner.get(name, (name, at[0]))
        first, last = min(at[0], named[other][0]), max(at[-1], named[other][-1])
        inner = [s for s in scopes[where].outwards() if s.repeats and not _rounds(lines, s)]
        whole = re.match(_WHOLE.format(name), lines[at[0]]) and lines[at[0]].count(name) == 1
        if (other != name and not inner) or (other == name and not whole):
            continue
        for scope in sorted({s for n in (*at, *named[other]) for s in scopes[n].outwards()}, key=lambda s: -s.first):
            if scope.repeats and not _rounds(lines, scope):
                first, last = min(first, scope.first), max(last, scope.last)
        holds = [s for s in scopes[first].outwards() if s.first <= first and last <= s.last]
        if any(_rounds(lines, s) for s in holds):
            uses[name] = Use(first, last, holds[0])
    return uses


def _loops(scope: Scope) -> int:
    return sum(s.repeats for s in scope.outwards())


def _rounds(lines: Sequence[str], scope: Scope) -> bool:
    return lines[scope.first].strip().startswith(ROUNDS)


def _apart(a: Use | None, b: Use | None) -> bool:
    """Whether all threads meet after one use and before the other begins, in this generation and in the next."""
    if a is None or b is None:
        return False
    a, b = (a, b) if a.first < b.first else (b, a)
    both = [s for s in a.scope.outwards() if s in b.scope.outwards()]
    between = any(a.last < m < b.first for s in both for m in s.meetings)
    after = any(m > b.last for s in b.scope.outwards()[:-1] for m in s.meetings)
    return between and (after or any(m < a.first for s in a.scope.outwards()[:-1] for m in s.meetings))
