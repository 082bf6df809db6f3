"""A whole program as C text: arguments, memory, the loop over generations around the graph of one."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from galapax.engines.fused.ahead import GENERATIONS, Ahead
from galapax.engines.fused.control import Carried, Inside
from galapax.engines.fused.graph import Graph, Node, reach
from galapax.engines.fused.history import WRITTEN, Rows
from galapax.engines.fused.loops import inputs as inputs_of
from galapax.engines.fused.memory import placed, size_of
from galapax.engines.fused.prelude import PRELUDE
from galapax.engines.fused.regions import CLUSTER, THREADS, Regions
from galapax.engines.fused.rules import STORED
from galapax.numerics.jaxpr import ClosedJaxpr

SHARED = 200 * 1024  # bytes of memory that a block on a GPU shares, at most; the rest of its arrays lie in scratch
COUNTER = 256  # bytes for it, at the start of a team's scratch
MEETING = 256  # bytes from one number at which blocks meet to the next: each in another part of the memory


class Form(NamedTuple):
    """How runs are spread over a device.

    team: blocks that make a run together. many: runs that share a processor. host: for one thread, with vectors.
    """

    team: int = 1
    many: int = 1
    host: bool = False


@dataclass(frozen=True, eq=False)
class Text:
    """C text of a kernel, and what it takes to call it.

    arrays: constants that it reads besides its arguments. shared, scratch: bytes that a run needs. inputs, outputs:
    how many of each; the arrays come after the inputs.
    """

    body: str
    arrays: tuple[np.ndarray, ...]
    shared: int
    scratch: int
    threads: int  # of a block
    team: int  # blocks that make a run together
    inputs: int
    outputs: int
    host: bool  # for the host's vectors
    cleared: int  # bytes of scratch that are to be 0 at the start, where blocks meet in memory

    @cached_property
    def source(self) -> str:
        sizes = {"BLOCK": self.threads, "TEAM": self.team, "COUNTER": COUNTER, "MEETING": MEETING}
        return "".join(f"#define {name} {size}\n" for name, size in sizes.items()) + PRELUDE + self.body

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def pointers(self) -> int:
        return self.inputs + len(self.arrays) + self.outputs


@contextmanager
def _deep() -> Iterator[None]:
    """Formulas are nested deeper than Python's functions usually are."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 50_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def of_function(closed: ClosedJaxpr, form: Form = Form()) -> Text:
    """A kernel that computes what a traced function does, for tests and evaluations."""
    with _deep():
        graph, writer = Graph(form.host), Regions(*form)
        given = _given(graph, [(v.aval, False) for v in closed.jaxpr.invars])
        outputs = graph.inline(closed.jaxpr, closed.consts, given)
        _know(writer, given)
        first = len(given) + len(graph.arrays)
        targets: dict[int, list[str]] = {}
        for i, out in enumerate(outputs):
            writer.line(f"{STORED[out.kind]} *o{i} = ({STORED[out.kind]} *)p[{first + i}];")
            targets.setdefault(out.number, []).append(f"o{i}")
        with writer.scope(""), Inside(writer):
            writer.write(graph.top, outputs, targets)
        return _text(writer, graph, len(given), len(outputs))


def of_generation(
    closed: ClosedJaxpr,
    settings: Sequence[bool],
    carried: Sequence[bool],
    reason: int | None,
    running: int,
    form: Form,
) -> Text:
    """A kernel that makes generations of independent runs.

    closed: settings, carry, keys and the number of a generation to the new carry and a row of history (columns, 1), of
    one run. settings, carried: which of these arrays have one row for each run; others are the same for all. reason:
    among the parts of the carry, the marks that say why a run has ended, if it can; running: the code of one that goes
    on. The kernel's arguments: settings, carry, keys (R, 2), span (first number, count, rows of history, runs that are
    made: those after them stay as they are), constants; then the new carry and the history (rows, columns, R), whose
    rows that a run did not make are zeros.
    """
    with _deep():
        graph, writer = Graph(form.host), Regions(*form)
        avals = [v.aval for v in closed.jaxpr.invars]
        own = [*settings, *carried, True]
        given = _given(graph, list(zip(avals[:-1], own, strict=True)))
        number = graph.node("counter", (), (), "int32")
        parts = slice(len(settings), len(settings) + len(carried))
        state = [
            graph.node("carried", (), n.shape, n.kind) if o else n for n, o in zip(given[parts], carried, strict=True)
        ]
        outputs = graph.inline(closed.jaxpr, closed.consts, [*given[: parts.start], *state, given[-1], number])
        after, row = outputs[:-1], outputs[-1]
        for before, out, changes in zip(state, after, carried, strict=True):
            if not changes and out is not before:
                raise ValueError("a part of the state that all runs share was changed")
        _know(writer, given)
        _generations(writer, graph, given[parts], state, after, row, number, carried, reason, running, len(given))
        return _text(writer, graph, len(given) + 1, sum(carried) + 1)


def _generations(
    writer: Regions,
    graph: Graph,
    before: Sequence[Node],
    state: Sequence[Node],
    after: Sequence[Node],
    row: Node,
    number: Node,
    carried: Sequence[bool],
    reason: int | None,
    running: int,
    inputs: int,
) -> None:
    """The loop over generations, and what comes before and after it."""
    writer.line(f"const int *span = (const int *)p[{inputs}];")
    writer.line("const int start = span[0], count = RUN < span[3] ? span[1] : 0, rows = span[2];")
    first = inputs + 1 + len(graph.arrays)
    moving = [i for i, own in enumerate(carried) if own]
    loop = Carried(writer, [state[i] for i in moving])
    loop.begin([before[i] for i in moving])
    kind = STORED[row.kind]
    writer.line(f"{kind} *history = ({kind} *)p[{first + len(moving)}] + RUN;")
    writer.line(f"const long long row = {row.size}LL * RUNS;")
    writer.line("int g = 0;")
    with writer.scope("for (; g < count; g++)") as scope, Inside(writer):
        loop.enter()
        writer.ahead = Ahead(number, len(writer.scopes) - 1)
        writer.know(number, ["number"])
        writer.line("const int number = start + g;")
        if reason is not None:
            marks = loop.places[moving.index(reason)]
            writer.line(f"if ({marks[running]} != 0) break;")
        outputs = [after[i] for i in moving]
        writer.rounds = graph.top
        if row.size <= WRITTEN:
            writer.late = {n.number for n in reach([row], inputs_of)} - {n.number for n in reach(outputs, inputs_of)}
        writer.write(graph.top, [*outputs, row], loop.targets(outputs), loop.turning(outputs))
        written = Rows(writer, row, number)
        written.keep()
        loop.turn(outputs)
        writer.rounds = None
        scope.lines[:0] = writer.ahead.write(writer)
        writer.definitions.append(f"#define AHEAD_ROW {writer.ahead.size}")
        writer.table, writer.ahead = GENERATIONS * writer.ahead.size, None
    written.finish()
    for k, (i, place) in enumerate(zip(moving, loop.places, strict=True)):
        node = state[i]
        out = f"(({STORED[node.kind]} *)p[{first + k}] + (long long)RUN * {node.size})"
        if isinstance(place, list):
            writer.line("FIRST { " + " ".join(f"{out}[{j}] = {name};" for j, name in enumerate(place)) + " }")
        else:
            c = writer.name("i")
            writer.line(f"LOOP({c}, {node.size}) {out}[{c}] = {place}[{c}];")


def _given(graph: Graph, arguments: Sequence[tuple[Any, bool]]) -> list[Node]:
    return [
        graph.node("given", (), aval.shape, aval.dtype, name=f"a{i}", own=own)
        for i, (aval, own) in enumerate(arguments)
    ]


def _know(writer: Regions, given: Sequence[Node]) -> None:
    """Declare the arrays that come from outside."""
    for i, node in enumerate(given):
        kind = STORED[node.kind]
        offset = f" + (long long)RUN * {node.size}" if node.params["own"] else ""
        writer.line(f"const {kind} *a{i} = (const {kind} *)p[{i}]{offset};")
        writer.know(node, f"a{i}")


def _threads(writer: Regions) -> tuple[int, int]:
    """How many threads a block has, and how many blocks share a processor."""
    wide = any(b.kind == "float64" for b in writer.buffers)  # these take twice the registers
    room = THREADS // 2 if wide and writer.many > 1 else THREADS
    # of many runs each has fewer threads: what every thread does for itself is then done less often
    threads = max(32, min(-(-writer.widest // (32 * writer.team)) * 32, room // writer.many))
    return threads, min(writer.many, room // threads)


def _read(writer: Regions) -> list[str]:
    """The lines without those that write arrays which nobody reads: a loop's own values were at hand in it."""
    lines = writer.scopes[0].lines
    words = Counter(re.findall(r"\bb\d+\b", "\n".join(lines)))
    stores: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        found = re.match(r"\s*(?:if \(lane == 0\) )?(b\d+)\[[^;]*\] = \(", line)
        if found and line.count(found[1]) == 1:
            stores.setdefault(found[1], []).append(number)
    unread = {name for name, places in stores.items() if words[name] == len(places)}
    unread |= {b.name for b in writer.buffers if not words[b.name]}
    gone = {number for name in unread for number in stores.get(name, ())}
    writer.buffers = [b for b in writer.buffers if b.name not in unread]
    return [line for number, line in enumerate(lines) if number not in gone]


def _text(writer: Regions, graph: Graph, inputs: int, outputs: int) -> Text:
    code = _read(writer)
    threads, blocks = _threads(writer)
    lines = []
    for i, array in enumerate(graph.arrays):
        kind = STORED[array.dtype.name]
        lines.append(f"const {kind} *k{i} = (const {kind} *)p[{inputs + i}];")
    parts = 16 * (threads // 32) * writer.parts  # prelude.py: PART and TEAM_PART
    shared, scratch = parts + writer.table, 0
    others, cleared = 16 * writer.team * writer.parts, COUNTER + 2 * MEETING * writer.met
    if 1 < writer.team <= CLUSTER:
        place, shared = f"shared + {shared}", shared + others
    else:
        place, scratch = f"scratch + {cleared}", cleared + others if writer.team > 1 else 0
    lines.append(f"char *parts = shared, *ahead = shared + {parts}, *team_parts = {place};")
    lines.append("(void)parts; (void)ahead; (void)team_parts;")
    local = [b for b in writer.buffers if b.local]
    together = writer.team == 1  # in a team not every block's threads meet at every barrier
    offsets = placed(code if together else (), local, shared, SHARED // blocks)
    shared = max((offsets[b.name] + size_of(b) for b in local if b.name in offsets), default=shared)
    for buffer in sorted(writer.buffers, key=size_of):
        kind = STORED[buffer.kind]
        if buffer.name in offsets:
            place = f"shared + {offsets[buffer.name]}"
        else:  # where it was to be each block's own, all blocks write the same there
            place, scratch = f"scratch + {scratch}", scratch + size_of(buffer)
        lines.append(f"{kind} *{buffer.name} = ({kind} *)({place});")
    own = "\n".join("  " + line for line in (*lines, *code))
    count = inputs + len(graph.arrays) + outputs
    scratch = -(-scratch // 256) * 256
    body = _FRAME.replace("POINTERS", str(count)).replace("CODE", own).replace("SCRATCH", str(scratch))
    body = body.replace("RESIDENT", str(blocks)).replace("DEFINITIONS", "\n".join(writer.definitions))
    return Text(body, tuple(graph.arrays), shared, scratch, threads, writer.team, inputs, outputs, writer.host, cleared)


_FRAME = """
struct Arguments { void *p[POINTERS]; };
DEFINITIONS

FN void one(void *const *p, int RUN, int RUNS, char *shared, char *scratch) {
  (void)RUN; (void)RUNS; (void)scratch;
CODE
}

#ifdef __CUDACC__
#if TEAM > 1 && TEAM <= 16
#define AS_CLUSTER __cluster_dims__(TEAM, 1, 1)
#else
#define AS_CLUSTER
#endif
extern "C" __global__ void AS_CLUSTER __launch_bounds__(BLOCK, RESIDENT)
galapax_run(const __grid_constant__ struct Arguments a, int runs, char *scratch) {
  extern __shared__ __align__(16) char shared[];
  int run = blockIdx.x / TEAM;
  char *own = scratch + (long long)run * SCRATCH;
#if TEAM > 16
  if (threadIdx.x == 0) { team_phase = 0; team_counter = (u32 *)own; }
  __syncthreads();
#endif
  one(a.p, run, runs, shared, own);
}
#else
void galapax_run(const struct Arguments *a, int first, int end, int runs, char *shared, char *scratch) {
  for (int run = first; run < end; run++) one(a->p, run, runs, shared, scratch);
}
#endif
"""
