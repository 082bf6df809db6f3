"""Running sums, sorts, scatters, Cholesky factors: made by all threads of a run, with barriers of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from galapax.engines.fused.fillers import write_fillers
from galapax.engines.fused.graph import Node, NotFusible
from galapax.engines.fused.loops import domain
from galapax.engines.fused.moves import clamped
from galapax.engines.fused.places import Index
from galapax.engines.fused.rules import RUNNING, SHORT, STORED
from galapax.engines.fused.running import write_running

if TYPE_CHECKING:
    from galapax.engines.fused.regions import Regions

LOCAL = 2**17  # comparisons that every block of a team rather makes itself
SORTED = 4096  # more are not ranked by comparing all pairs


def write_collective(e: Regions, node: Node) -> None:
    if node.op in RUNNING:
        write_running(e, node)
    elif node.op == "sort":
        _sorted(e, node)
    elif node.op == "cholesky":
        _factored(e, node)
    elif node.op == "fillers":
        write_fillers(e, node)
    else:
        _scattered(e, node)


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
    with e.over(domain(updates.shape), local=local, atomic=node.op != "scatter") as index:
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
        elif node.kind in ("int32", "uint32") or (node.op == "scatter-add" and node.kind in ("float32", "float64")):
            action = f"ATOMIC_{node.op.removeprefix('scatter-').upper()}(&{where}, {value.text});"
        else:
            raise NotFusible(f"{node.op} of {node.kind}")
        e.line(f"if ({' && '.join(tests) or '1'}) {action}")
    e.barrier(local)
    e.know(node, target)
