"""Loops over individuals, barriers between them, and what all threads of a block do together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from galapax.engines.fused.control import write_control
from galapax.engines.fused.emit import Buffer, Emitter, known_by
from galapax.engines.fused.graph import Node, NotFusible, Region
from galapax.engines.fused.moves import clamped
from galapax.engines.fused.places import Index, Ref
from galapax.engines.fused.plan import CONTROL, collective, domain, effort, inner_length, loop_shape, planned, reduces
from galapax.engines.fused.rules import REDUCTIONS, RUNNING, SHORT, STORED, combine, ctype, neutral

LOCAL = 2**17  # operations that every block of a team rather makes itself
LOCAL_SIZE = 2**12  # and numbers that it rather adds up or moves itself
PART = 512  # bytes for the parts that warps make of a reduction
GROUPED = 1024  # threads that loops with sums are spread over
SORTED = 4096  # more are not ranked by comparing all pairs


class Regions(Emitter):
    """Writes regions: a plan's levels one after another."""

    def __init__(self, team: int = 1) -> None:
        super().__init__()
        self.team = team  # blocks that make a run together
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
            self.unseen = False

    def part(self) -> int:
        """Where the warps leave their parts of a reduction, as an offset."""
        self.parts += 1
        return PART * (self.parts - 1)

    def know(self, node: Node, place: str | list[str]) -> None:
        """From now on a node is read at a place."""
        self.places[node.number] = place
        self._done.add(node.number)

    def write(self, region: Region, outputs: list[Node], targets: dict[int, list[str]]) -> None:
        """Write what it takes to know these outputs. targets: arrays for some of them, {number of the node: names}."""
        plan = planned(region, outputs, set(targets) - self._done, self._done)
        for level in plan.levels:
            together: dict[tuple[int, ...], list[Node]] = {}
            for root in level:
                if not collective(root):
                    together.setdefault(loop_shape(root), []).append(root)
            reductions = [r for r in level if reduces(r)]
            slots = {r.number: [self.part() for _ in range(r.size)] for r in reductions}
            totals = {r.number: self._totals(r) for r in reductions}
            local = {shape: self._local(roots) for shape, roots in together.items()}
            for shape, roots in together.items():
                self._loop(shape, roots, targets, totals, local[shape])
            for root in reductions:
                self._give(root, totals[root.number], slots[root.number])
            self._pass([r for r in reductions if not local[loop_shape(r)]], slots)
            if together:
                self.barrier(all(local.values()))
            for root in reductions:
                self._take(root, slots[root.number], local[loop_shape(root)])
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
        small = math.prod(loop_shape(roots[0])) <= LOCAL_SIZE
        return self.team > 1 and small and effort(roots, self._done) <= LOCAL

    @contextmanager
    def over(self, shape: tuple[int, ...], group: int = 1, local: bool = False) -> Iterator[tuple[Index, ...]]:
        """A loop of all threads over the elements of an array; gives the index.

        group: so many threads share an element, and split its sums among them. local: each block makes all of it.
        """
        size, loop = math.prod(shape), "BLOCK_LOOP" if local else "LOOP"
        self.unseen = True
        width = size if group == 1 else min(size * group, 256 * (1 if local else self.team))
        self.widest = max(self.widest, width * self.team if local else width)
        i = self.name("i")
        if group == 1:
            with self.scope(f"{loop}({i}, {size})"):
                yield self.spread(Ref(i, len(self.scopes) - 1), shape)
            return
        q = self.name("q")
        with self.scope(f"{loop}({q}, {size} * GROUP({group}))"):
            depth = len(self.scopes) - 1
            self.line(f"const int {i} = {q} / GROUP({group}), lane = {q} % GROUP({group});")
            self.group = (group, depth)
            yield self.spread(Ref(i, depth), shape)
            self.group = None

    def _group(self, shape: tuple[int, ...], roots: list[Node], local: bool) -> int:
        """How many threads share an element of a loop that makes sums."""
        length, size = inner_length(roots, self._done), math.prod(shape)
        group, room = 1, GROUPED * (1 if local else self.team)
        while 2 * group <= min(32, length // 2) and 2 * group * size <= room:
            group *= 2
        return group

    def full(self, shape: tuple[int, ...], index: Sequence[Index]) -> list[Index]:
        """An index with the axes of length 1."""
        own = iter(index)
        return [0 if n == 1 else next(own) for n in shape]

    def _loop(
        self,
        shape: tuple[int, ...],
        roots: list[Node],
        targets: dict[int, list[str]],
        totals: dict[int, list[tuple[str, str]]],
        local: bool,
    ) -> None:
        fresh: list[tuple[Node, str]] = []
        group = self._group(shape, roots, local)
        with self.over(shape, group, local) as index:
            depth = len(self.scopes) - 1
            for root in roots:
                if reduces(root):
                    self._accumulate(root, index, totals[root.number])
                    continue
                here = self.full(root.shape, index)
                value = self._element(root, tuple(here))
                if value.depth < depth and root.size > 1 and not value.text.isidentifier():
                    value = self.variable(root.kind, value.text, depth)
                names = targets.get(root.number) or [self.buffer(root.size, root.kind, local)]
                for name in names:
                    self.store(name, root, here, value, "" if group == 1 else "if (lane == 0) ")
                    self._written.add((root.number, name))
                fresh.append((root, names[0]))
                self.scopes[-1].known[known_by(root, here)] = value
        for root, name in fresh:
            self.know(root, name)

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

    def _accumulate(self, root: Node, index: Sequence[Index], totals: list[tuple[str, str]]) -> None:
        given, axes = root.inputs[0], list(root.params["axes"])
        free = [a for a in range(len(given.shape)) if a not in axes]
        for number, (value, place) in enumerate(totals):
            if root.size == 1:
                full = self.full(given.shape, index)
            else:
                full = [0] * len(given.shape)
                inner = self.full(tuple(given.shape[a] for a in axes), index)
                for a, i in zip([*axes, *free], [*inner, *self.spread(number, root.shape)], strict=True):
                    full[a] = i
            part = self.at(given, full)
            first = "if (lane == 0) " if self.group else ""
            if root.op in REDUCTIONS:
                self.line(f"{first}{value} = {combine(REDUCTIONS[root.op], given.kind, value, part.text)};")
                continue
            here = full[axes[0]]
            assert isinstance(here, Ref)
            test = f"ahead_{self._best_name(root)}({part.text}, {here.text}, {value}, {place})"
            self.line(f"{first}if ({test}) {{ {value} = {part.text}; {place} = {here.text}; }}")

    def _best_name(self, root: Node) -> str:
        return f"{'least' if root.op == 'argmin' else 'most'}_{SHORT[root.inputs[0].kind]}"

    def _give(self, root: Node, totals: list[tuple[str, str]], slots: list[int]) -> None:
        for (value, place), slot in zip(totals, slots, strict=True):
            if root.op in REDUCTIONS:
                self.line(f"give_{REDUCTIONS[root.op]}_{SHORT[root.inputs[0].kind]}({value}, ROOM({slot}));")
            else:
                self.line(f"give_{self._best_name(root)}({value}, {place}, ROOM({slot}));")

    def _pass(self, reductions: list[Node], slots: dict[int, list[int]]) -> None:
        """In a team, each block adds up its parts before it meets the others."""
        if not reductions or self.team == 1:
            return
        self.line("BLOCK_BARRIER")
        every = [(root, slot) for root in reductions for slot in slots[root.number]]
        for number, (root, slot) in enumerate(every):
            if root.op in REDUCTIONS:
                operation, kind = REDUCTIONS[root.op], root.inputs[0].kind
                none = neutral(operation, kind)
                self.line(f"PASS({operation}_{SHORT[kind]}, {none}, {slot}, {number});")
            else:
                self.line(f"PASS_BEST({self._best_name(root)}, {slot}, {number});")

    def _take(self, root: Node, slots: list[int], local: bool) -> None:
        names = []
        kind, own = root.inputs[0].kind, "OWN_" if local else ""
        for slot in slots:
            names.append(self.name("r"))
            if root.op in REDUCTIONS:
                none = neutral(REDUCTIONS[root.op], kind)
                text = f"{own}TAKE({REDUCTIONS[root.op]}_{SHORT[kind]}, {none}, {slot})"
            else:
                text = f"{own}TAKE_BEST({self._best_name(root)}, {slot})"
            self.line(f"const {ctype(root.kind)} {names[-1]} = {text};")
        self.know(root, names)

    # what takes barriers of its own

    def _collective(self, node: Node) -> None:
        if node.op in RUNNING:
            self._scanned(node)
        elif node.op == "sort":
            self._sorted(node)
        elif node.op == "cholesky":
            self._factored(node)
        elif node.op in CONTROL:
            self.parts_of[node.number] = write_control(self, node)
        else:
            self._scattered(node)
        self._done.add(node.number)

    def _in_memory(self, node: Node) -> str:
        """The array of a node that was written down."""
        place = self.places.get(node.number)
        if isinstance(place, str):
            return place
        name = self.buffer(node.size, node.kind)
        self._copy(node, name)
        return name

    def _scanned(self, node: Node) -> None:
        given, axis = node.inputs[0], node.params["axis"]
        if node.kind == "bool":
            raise NotFusible(f"{node.op} of truth values")
        local = self.team > 1 and node.size <= LOCAL_SIZE
        source, target = self._in_memory(given), self.buffer(node.size, node.kind, local)
        n, inner = node.shape[axis], math.prod(node.shape[axis + 1 :])
        operation, short = RUNNING[node.op], SHORT[node.kind]
        none, slot, o, i = neutral(operation, node.kind), self.part(), self.name("o"), self.name("o")
        reverse = int(node.params["reverse"])
        self.line(
            f"for (int {o} = 0; {o} < {math.prod(node.shape[:axis])}; {o}++) "
            f"for (int {i} = 0; {i} < {inner}; {i}++) "
            f"scan_{operation}_{short}({source} + {o} * {n * inner} + {i}, {target} + {o} * {n * inner} + {i}, "
            f"{n}, {inner}, {reverse}, {none}, ROOM({slot}), team_parts + {4 * slot}, {int(local)});"
        )
        self.know(node, target)

    def _sorted(self, node: Node) -> None:
        """By counting who comes before: no more than a few thousand are sorted in a run that fits a block."""
        axis, keys = int(node.params["dimension"]), int(node.params["num_keys"])
        operands = node.inputs
        shape = operands[0].shape
        if shape[axis] > SORTED:
            raise NotFusible(f"sorting {shape[axis]} numbers")
        sources = [self._in_memory(n) for n in operands]
        local = self.team > 1 and operands[0].size * shape[axis] <= LOCAL
        targets = [self.buffer(n.size, n.kind, local) for n in operands]
        inner = math.prod(shape[axis + 1 :])
        with self.over(domain(shape), local=local) as index:
            here = self.full(shape, index)
            own = self.flat(here, shape)
            start = self.flat([0 if a == axis else i for a, i in enumerate(here)], shape)
            j, rank = self.name("k"), self.name("s")
            mine, first = (v if isinstance(v, int) else v.text for v in (own, start))
            place = here[axis] if isinstance(here[axis], int) else here[axis].text  # type: ignore[union-attr]
            self.line(f"int {rank} = 0;")
            test = f"{j} < {place}"
            for source, operand in reversed(list(zip(sources[:keys], operands, strict=False))):
                a, b = f"{source}[{first} + {j} * {inner}]", f"{source}[{mine}]"
                less = f"({a} < {b} || ({b} != {b} && {a} == {a}))" if operand.kind[0] == "f" else f"({a} < {b})"
                more = f"({b} < {a} || ({a} != {a} && {b} == {b}))" if operand.kind[0] == "f" else f"({b} < {a})"
                test = f"({less} || (!{more} && {test}))"
            self.line(f"for (int {j} = 0; {j} < {shape[axis]}; {j}++) {rank} += {test};")
            for source, target in zip(sources, targets, strict=True):
                self.line(f"{target}[{first} + {rank} * {inner}] = {source}[{mine}];")
        self.barrier(local)
        if node.params.get("multiple"):
            self.parts_of[node.number] = list(targets)
        else:
            self.know(node, targets[0])

    def _factored(self, node: Node) -> None:
        """Each matrix by one warp: its columns follow from each other, and a warp waits for nobody."""
        target = self.buffer(node.size, node.kind)
        self._copy(node.inputs[0], target)
        count, dim = math.prod(node.shape[:-2]), node.shape[-1]
        self.line(f"cholesky_{SHORT[node.kind]}({target}, {count}, {dim});")
        self.barrier()
        self.know(node, target)

    def _scattered(self, node: Node) -> None:
        given, indices, updates = node.inputs
        numbers = node.params["dimension_numbers"]
        local = self.team > 1 and node.size + updates.size <= LOCAL_SIZE
        mode, target = str(node.params["mode"]).upper(), self.buffer(node.size, node.kind, local)
        with self.over(domain(given.shape), local=local) as index:
            full = self.full(given.shape, index)
            self.store(target, node, full, self.at(given, full))
        self.barrier(local)
        scatter_dims = [a for a in range(len(updates.shape)) if a not in numbers.update_window_dims]
        inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        kept = [a for a in range(len(given.shape)) if a not in inserted]
        sizes = {a: updates.shape[w] for a, w in zip(kept, numbers.update_window_dims, strict=True)}
        with self.over(domain(updates.shape), local=local) as index:
            here = self.full(updates.shape, index)
            batch = [here[a] for a in scatter_dims]
            own: list[Index] = [0] * len(given.shape)
            for axis, window in zip(kept, numbers.update_window_dims, strict=True):
                own[axis] = here[window]
            for axis, place in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
                own[axis] = batch[place]
            tests = []
            for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
                start = self.at(indices, (*batch, k))
                most = given.shape[axis] - sizes.get(axis, 1)
                if "CLIP" in mode:
                    begin: Index = clamped(self, start, most)
                else:
                    begin = self.variable("int32", f"(int){start.text}", start.depth)
                    tests.append(f"{start.text} >= 0 && {start.text} <= {most}")
                own[axis] = self.plus(own[axis], begin)
            value = self.at(updates, here)
            flat = self.flat(own, given.shape)
            where = f"{target}[{flat if isinstance(flat, int) else flat.text}]"
            if node.op == "scatter":
                action = f"{where} = ({STORED[node.kind]}){value.text};"
            elif node.kind in ("float32", "float64", "int32", "uint32"):
                action = f"ATOMIC_ADD(&{where}, {value.text});"
            else:
                raise NotFusible(f"scatter-add of {node.kind}")
            self.line(f"if ({' && '.join(tests) or '1'}) {action}")
        self.barrier(local)
        self.know(node, target)
