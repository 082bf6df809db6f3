"""Running sums, sorts, scatters, Cholesky factors: made by all threads of a run, with barriers of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from galapax.engines.fused.graph import Node, NotFusible
from galapax.engines.fused.moves import clamped
from galapax.engines.fused.places import Index, Ref
from galapax.engines.fused.plan import domain
from galapax.engines.fused.ranges import span
from galapax.engines.fused.rules import RUNNING, SHORT, STORED, combine, ctype, neutral

if TYPE_CHECKING:
    from galapax.engines.fused.regions import Regions

LOCAL = 2**17  # comparisons that every block of a team rather makes itself
SORTED = 4096  # more are not ranked by comparing all pairs
AT_ONCE = 4  # numbers of a running sum that a thread reads before it goes on
ROWS = 4  # running sums that are made in one pass


def write_collective(e: Regions, node: Node) -> None:
    if node.op in RUNNING:
        _scanned(e, node)
    elif node.op == "sort":
        _sorted(e, node)
    elif node.op == "cholesky":
        _factored(e, node)
    else:
        _scattered(e, node)


def _scanned(e: Regions, node: Node) -> None:
    """Running sums: each warp adds up a piece, learns what comes before it, and adds up again."""
    axis = node.params["axis"]
    if node.kind == "bool":
        raise NotFusible(f"{node.op} of truth values")
    local = node.size <= e.own
    target = e.buffer(node.size, node.kind, local)
    e.unseen = True
    n, rest = node.shape[axis], (*node.shape[:axis], *node.shape[axis + 1 :])
    e.widest = max(e.widest, n * e.team if local else n)
    if math.prod(rest) <= ROWS:
        _pieces(e, node, target, [e.spread(i, rest) for i in range(math.prod(rest))], local)
    else:
        i = e.name("o")
        with e.scope(f"for (int {i} = 0; {i} < {math.prod(rest)}; {i}++)"):
            _pieces(e, node, target, [e.spread(Ref(i, len(e.scopes) - 1), rest)], local)
    e.barrier(local)
    e.know(node, target)


def _pieces(e: Regions, node: Node, target: str, rows: list[tuple[Index, ...]], local: bool) -> None:
    given, axis, n = node.inputs[0], node.params["axis"], node.shape[node.params["axis"]]
    operation, kind = RUNNING[node.op], ctype(node.kind)
    what, none, alone = f"{operation}_{SHORT[node.kind]}", neutral(operation, node.kind), int(local)
    slots = [e.part() for _ in rows]
    sums, befores = ([e.name("s") for _ in rows] for _ in range(2))
    bounds = span(given)
    run = "run_bit_i32" if node.kind == "int32" and operation == "add" and bounds == (0, 1) else f"run_{what}"
    if len(rows) == 1 and math.prod(node.shape) > n:  # the next row must not meet what this one still reads
        e.line("BLOCK_BARRIER" if local or e.team == 1 else "BARRIER")

    def values(here: str) -> list[tuple[tuple[Index, ...], Ref]]:
        """The elements at a place of each row, in the present scope."""
        place = e.variable("int32", f"{n - 1} - {here}" if node.params["reverse"] else here, len(e.scopes) - 1)
        index = [(*r[:axis], place, *r[axis:]) for r in rows]
        return [(i, e.at(given, i)) for i in index]

    for total in sums:
        e.line(f"{kind} {total} = {none};")
    k = e.name("k")
    with e.scope(f"for (int {k} = PIECE({n}, {alone}) + OWN; {k} < PIECE_END({n}, {alone}); {k} += STEP)"):
        for total, (_, value) in zip(sums, values(k), strict=True):
            e.line(f"{total} = {combine(operation, node.kind, total, value.text)};")
    for total, slot in zip(sums, slots, strict=True):
        e.line(f"PIECE_GIVE({what}, {total}, {slot});")
    e.line("BLOCK_BARRIER")
    if e.team > 1 and not local:
        for number, slot in enumerate(slots):
            e.line(f"PASS({what}, {none}, {slot}, {number});")
        e.barrier()
    for before, slot in zip(befores, slots, strict=True):
        e.line(f"{kind} {before} = PIECE_BEFORE({what}, {none}, {slot}, {alone});")
    k, times = e.name("k"), AT_ONCE if n > AT_ONCE * 1024 else 1
    with e.scope(f"for (int {k} = PIECE({n}, {alone}); {k} < PIECE_END({n}, {alone}); {k} += {times} * STEP)"):
        found = []
        for more in range(times):  # read first, and written afterwards, as the compiler keeps their order
            place = e.name("k")
            e.line(f"const int {place} = {k} + {more} * STEP + OWN;")
            found.append((place, values(f"({place} < {n} ? {place} : {n - 1})")))
        for place, row in found:
            for before, (index, value) in zip(befores, row, strict=True):
                total = e.name("s")
                e.line(f"const {kind} {total} = {run}(&{before}, {place} < {n} ? {value.text} : {none});")
                e.store(target, node, index, Ref(total, len(e.scopes) - 1), f"if ({place} < PIECE_END({n}, {alone})) ")


def _sorted(e: Regions, node: Node) -> None:
    """By counting who comes before: no more than a few thousand are sorted in a run that fits a block."""
    axis, keys = int(node.params["dimension"]), int(node.params["num_keys"])
    operands = node.inputs
    shape = operands[0].shape
    if shape[axis] > SORTED:
        raise NotFusible(f"sorting {shape[axis]} numbers")
    sources = [e.in_memory(n) for n in operands]
    local = e.team > 1 and operands[0].size * shape[axis] <= LOCAL
    targets = [e.buffer(n.size, n.kind, local) for n in operands]
    inner = math.prod(shape[axis + 1 :])
    with e.over(domain(shape), local=local) as index:
        here = e.full(shape, index)
        own = e.flat(here, shape)
        start = e.flat([0 if a == axis else i for a, i in enumerate(here)], shape)
        j, rank = e.name("k"), e.name("s")
        mine, first = (v if isinstance(v, int) else v.text for v in (own, start))
        place = here[axis] if isinstance(here[axis], int) else here[axis].text  # type: ignore[union-attr]
        e.line(f"int {rank} = 0;")
        test = f"{j} < {place}"
        for source, operand in reversed(list(zip(sources[:keys], operands, strict=False))):
            a, b = f"{source}[{first} + {j} * {inner}]", f"{source}[{mine}]"
            less = f"({a} < {b} || ({b} != {b} && {a} == {a}))" if operand.kind[0] == "f" else f"({a} < {b})"
            more = f"({b} < {a} || ({a} != {a} && {b} == {b}))" if operand.kind[0] == "f" else f"({b} < {a})"
            test = f"({less} || (!{more} && {test}))"
        e.line(f"for (int {j} = 0; {j} < {shape[axis]}; {j}++) {rank} += {test};")
        for source, target in zip(sources, targets, strict=True):
            e.line(f"{target}[{first} + {rank} * {inner}] = {source}[{mine}];")
    e.barrier(local)
    if node.params.get("multiple"):
        e.parts_of[node.number] = list(targets)
    else:
        e.know(node, targets[0])


def _factored(e: Regions, node: Node) -> None:
    """Each matrix by one warp: its columns follow from each other, and a warp waits for nobody."""
    target = e.buffer(node.size, node.kind)
    e.copy(node.inputs[0], target)
    count, dim = math.prod(node.shape[:-2]), node.shape[-1]
    e.line(f"cholesky_{SHORT[node.kind]}({target}, {count}, {dim});")
    e.barrier()
    e.know(node, target)


def _scattered(e: Regions, node: Node) -> None:
    given, indices, updates = node.inputs
    numbers = node.params["dimension_numbers"]
    mode, target = str(node.params["mode"]).upper(), e.places[given.number]
    assert given.op == "fresh" and isinstance(target, str)
    local = e.team > 1 and next(b.local for b in e.buffers if b.name == target)
    scatter_dims = [a for a in range(len(updates.shape)) if a not in numbers.update_window_dims]
    inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    kept = [a for a in range(len(given.shape)) if a not in inserted]
    sizes = {a: updates.shape[w] for a, w in zip(kept, numbers.update_window_dims, strict=True)}
    with e.over(domain(updates.shape), local=local) as index:
        here = e.full(updates.shape, index)
        batch = [here[a] for a in scatter_dims]
        own: list[Index] = [0] * len(given.shape)
        for axis, window in zip(kept, numbers.update_window_dims, strict=True):
            own[axis] = here[window]
        for axis, place in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
            own[axis] = batch[place]
        tests = []
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            start = e.at(indices, (*batch, k))
            most = given.shape[axis] - sizes.get(axis, 1)
            if "CLIP" in mode:
                begin: Index = clamped(e, start, most, indices)
            else:
                begin = e.variable("int32", f"(int){start.text}", start.depth)
                tests.append(f"{start.text} >= 0 && {start.text} <= {most}")
            own[axis] = e.plus(own[axis], begin)
        value = e.at(updates, here)
        flat = e.flat(own, given.shape)
        where = f"{target}[{flat if isinstance(flat, int) else flat.text}]"
        if node.op == "scatter":
            action = f"{where} = ({STORED[node.kind]}){value.text};"
        elif node.kind in ("float32", "float64", "int32", "uint32"):
            action = f"ATOMIC_ADD(&{where}, {value.text});"
        else:
            raise NotFusible(f"scatter-add of {node.kind}")
        e.line(f"if ({' && '.join(tests) or '1'}) {action}")
    e.barrier(local)
    e.know(node, target)
