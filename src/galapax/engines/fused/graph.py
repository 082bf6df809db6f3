"""A traced program as a graph of arrays: nested calls are gone, equal expressions are one node."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from galapax.engines.fused import ranges
from galapax.numerics.jaxpr import ClosedJaxpr, Jaxpr, Literal
from galapax.numerics.random import INTRINSIC_PREFIX

INLINED = {"jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call",
           "custom_vjp_call_jaxpr"}  # fmt: skip
SAME = {"copy", "copy_p", "stop_gradient", "optimization_barrier", "reduce_precision"}
PLAIN_REDUCTIONS = {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"}
FRESH = {"while", "scan", "cond", "carried", "counter", "given", "fresh"}  # never the same as another
COMBINED = {"reduce_max": "max", "reduce_min": "min", "reduce_and": "and", "reduce_or": "or"}  # two parts of it as one
FILLED = 2**18  # scores by which every block finds for itself who stays
MOST_PLANES = 6  # bits that they have at most
LARGEST = 2**30  # elements of an array: places are counted in 32 bits


class NotFusible(Exception):
    """A program that the fused engine has no rule for; the message says which part, in words for the user."""


@dataclass(frozen=True, eq=False)
class Node:
    """An array of the program. `op` says how its elements follow from those of the inputs (see rules.py)."""

    number: int
    op: str
    inputs: tuple[Node, ...]
    params: dict[str, Any]
    shape: tuple[int, ...]
    kind: str  # dtype
    region: Region

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(eq=False)
class Region:
    """A piece of program that runs as a whole: a generation, a loop's body, a branch."""

    parent: Region | None = None
    carried: list[Node] = field(default_factory=list)  # what changes from round to round, as it is when one begins
    outputs: list[Node] = field(default_factory=list)

    branches: bool = False  # it runs or not, as a condition says
    counter: Node | None = None  # of a scan: the number of the round

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def branch(self) -> Region:
        """The innermost branch around it, or the whole."""
        return self if self.parent is None or self.branches else self.parent.branch


class Graph:
    """Builds nodes; the same operation on the same inputs is built once in each region."""

    def __init__(self, host: bool = False) -> None:
        self.host = host  # for the host's vectors
        self.top = Region()
        self._region = self.top
        self._known: dict[Any, Node] = {}
        self._count = 0
        self.arrays: list[np.ndarray] = []  # constants that are more than a number: handed over as data

    def node(self, op: str, inputs: Sequence[Node], shape: Iterable[int], kind: Any, /, **params: Any) -> Node:
        shape = tuple(int(n) for n in shape)
        if math.prod(shape) > LARGEST:
            raise NotFusible(f"an array of {math.prod(shape)} numbers")
        kind = np.dtype(kind).name
        if op in FRESH:
            return self._made(op, inputs, params, shape, kind, self._region)
        simpler = self._simpler(op, inputs, shape)
        if simpler is not None:
            return simpler
        # in the innermost region that it depends on, so that a loop does not compute again what stays the same; but a
        # branch keeps its own, which is not to be computed where another one is taken
        region = max((self._region.branch, *(i.region for i in inputs)), key=lambda r: r.depth)
        key = (op, tuple(i.number for i in inputs), shape, kind, repr(sorted(params.items())))
        around: Region | None = region
        while around is not None:
            if (key, around) in self._known:
                return self._known[key, around]
            around = around.parent
        bounds = ranges.of(op, inputs, shape, kind, params)
        params = params if bounds is None else params | {"span": bounds}
        return self._known.setdefault((key, region), self._made(op, inputs, params, shape, kind, region))

    def _simpler(self, op: str, inputs: Sequence[Node], shape: tuple[int, ...]) -> Node | None:
        """What an operation comes to, where the bounds of its inputs say so."""
        holds = ranges.decided(op, inputs)
        if holds is not None:
            return self.constant(np.full(shape, holds), "bool")
        if op == "select_n" and len(inputs) == 3:
            bounds = ranges.span(inputs[0])
            chosen = inputs[1 + bounds[0]] if bounds is not None and bounds[0] == bounds[1] else None
            return chosen if chosen is not None and chosen.shape == shape else None
        return None

    def _made(self, op: str, inputs: Sequence[Node], params: Any, shape: Any, kind: str, region: Region) -> Node:
        self._count += 1
        return Node(self._count, op, tuple(inputs), params, shape, kind, region)

    def constant(self, value: Any, kind: Any) -> Node:
        value = np.asarray(value)
        kind = np.dtype(kind)
        if (value.size and (value == value.flat[0]).all()) or (value.size == 1):
            one = self.node("literal", (), (), kind, value=value.astype(kind).flat[0].item())
            return (
                one
                if value.shape == ()
                else self.node("broadcast_in_dim", (one,), value.shape, kind, broadcast_dimensions=())
            )
        self.arrays.append(np.ascontiguousarray(value.astype(kind)))
        return self.node("given", (), value.shape, kind, name=f"k{len(self.arrays) - 1}", own=False)

    def inline(self, jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Node]) -> list[Node]:
        """The outputs of a program for these inputs."""
        values: dict[Any, Node] = dict(zip(jaxpr.invars, inputs, strict=True))
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            kind: Any = var.aval
            values[var] = self.constant(const, kind.dtype)

        def read(atom: Any) -> Node:
            if not isinstance(atom, Literal):
                return values[atom]
            kind: Any = atom.aval
            return self.constant(atom.val, kind.dtype)

        for equation in jaxpr.eqns:
            given = [read(atom) for atom in equation.invars]
            made = self._equation(equation, given)
            values.update(zip(equation.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, given: list[Node]) -> list[Node]:
        name, params = equation.primitive.name, equation.params
        avals = [v.aval for v in equation.outvars]
        if str(params.get("name")).startswith(INTRINSIC_PREFIX):
            found = self._named(params["name"].removeprefix(INTRINSIC_PREFIX), given, avals[0])
            if found is not None:
                return [found]
        if name in INLINED:
            nested = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
            if isinstance(nested, ClosedJaxpr):
                return self.inline(nested.jaxpr, nested.consts, given)
            if isinstance(nested, Jaxpr):
                return self.inline(nested, (), given)
            _unknown(name)
        if name in SAME:
            return given
        if name == "platform_index":  # this engine is a platform that JAX does not know: what is meant for all others
            platforms = params["platforms"]
            return [self.constant(platforms.index(None), avals[0].dtype)] if None in platforms else _unknown(name)
        control = {"while": self._while, "scan": self._scan, "cond": self._cond}.get(name)
        if control is not None:
            return control(params, given, avals)
        if name == "split":
            starts = np.cumsum([0, *params["sizes"]])
            axis = params["axis"]
            whole = given[0].shape
            return [self._slice(given[0], axis, int(a), int(b), whole) for a, b in itertools.pairwise(starts)]
        if name in PLAIN_REDUCTIONS:
            return [self._reduced(name, given[0], tuple(int(a) for a in params["axes"]), avals[0].shape)]
        if name == "unstack":
            axis = params["axis"] % len(given[0].shape)
            pieces = [self._slice(given[0], axis, i, i + 1, given[0].shape) for i in range(len(avals))]
            return [
                self.node("squeeze", (p,), a.shape, p.kind, dimensions=(axis,))
                for p, a in zip(pieces, avals, strict=True)
            ]
        if name == "bitcast_convert_type" and avals[0].shape != given[0].shape:
            return [self._words(given[0], avals[0])]
        if name != "sort" and len(avals) != 1:
            _unknown(name)
        if name.startswith("scatter") and math.prod(given[1].shape[:-1]) > 1:
            # written in place over an array of its own, which can be filled long before
            own = self.node("fresh", given[:1], given[0].shape, given[0].kind, updates=given[2].size)
            given = [own, *given[1:]]
        if len(avals) == 1:
            return [self.node(name, given, avals[0].shape, avals[0].dtype, **params)]
        several = self.node(name, given, (len(avals),), avals[0].dtype, **params, multiple=True)
        return self._parts(several, avals)

    def _named(self, name: str, given: list[Node], aval: Any) -> Node | None:
        """One of the library's own functions as an operation, if it is written by hand for such arrays."""
        if name == "fillers":
            bits = 0 if self.host else planes_of(given[0])
            if not bits:
                return None
            planes = self.node("planes", given, given[0].shape, given[0].kind, bits=bits)
            return self.node(name, (planes,), aval.shape, aval.dtype)
        wide = [self._widened(n, aval.shape) for n in given]
        return self.node(name, wide, aval.shape, aval.dtype) if all(n.shape == aval.shape for n in wide) else None

    def _reduced(self, name: str, given: Node, axes: tuple[int, ...], shape: tuple[int, ...]) -> Node:
        if all(given.shape[a] == 1 for a in axes):  # nothing to add up
            return self.node("reshape", (given,), shape, given.kind)
        if name in COMBINED and given.op == "concatenate" and given.params["dimension"] in axes:
            # of each part for itself, so that it is known as soon as they are
            parts = [self._reduced(name, part, axes, shape) for part in given.inputs if part.size]
            whole = parts[0]
            for part in parts[1:]:
                whole = self.node(COMBINED[name], (whole, part), shape, given.kind)
            return whole
        counts = name == "reduce_sum" and given.op == "convert_element_type" and given.inputs[0].kind == "bool"
        if counts and given.kind in ("float32", "float64") and given.size < 2**24:  # whole numbers add up faster
            ones = self.node("convert_element_type", given.inputs, given.shape, "int32", new_dtype=np.dtype("int32"))
            count = self.node(name, (ones,), shape, "int32", axes=axes)
            return self.node("convert_element_type", (count,), shape, given.kind, new_dtype=np.dtype(given.kind))
        return self.node(name, (given,), shape, given.kind, axes=axes)

    def _widened(self, x: Node, shape: tuple[int, ...]) -> Node:
        """One number for all elements, which a batch of runs has without its axis, as an array of this shape."""
        if x.op != "broadcast_in_dim" or x.inputs[0].shape:
            return x
        return self.node("broadcast_in_dim", x.inputs, shape, x.kind, broadcast_dimensions=())

    def _words(self, x: Node, aval: Any) -> Node:
        """The bits of numbers of 64 bits, as two words each, the lower one first."""
        if aval.shape != (*x.shape, 2) or aval.dtype.itemsize != 4:
            raise NotFusible("the primitive bitcast_convert_type from one shape to another")
        bits = self.node("bitcast_convert_type", (x,), x.shape, np.uint64)
        upper = self.node(
            "shift_right_logical", (bits, self.constant(np.full(x.shape, 32), np.uint64)), x.shape, bits.kind
        )
        words = [self.node("convert_element_type", (b,), x.shape, aval.dtype) for b in (bits, upper)]
        return self.node("stack", words, aval.shape, aval.dtype, axis=len(x.shape))

    def _slice(self, x: Node, axis: int, start: int, stop: int, shape: tuple[int, ...]) -> Node:
        starts = [start if i == axis else 0 for i in range(len(shape))]
        stops = [stop if i == axis else n for i, n in enumerate(shape)]
        return self.node(
            "slice", (x,), [b - a for a, b in zip(starts, stops, strict=True)], x.kind,
            start_indices=tuple(starts), limit_indices=tuple(stops), strides=None,
        )  # fmt: skip

    def within(self, build: Callable[[Region], list[Node]], branches: bool = False) -> Region:
        """A region inside the present one; build adds to it and gives its outputs."""
        before, own = self._region, Region(self._region, branches=branches)
        self._region = own
        try:
            own.outputs = build(own)
        finally:
            self._region = before
        return own

    def carried(self, region: Region, like: Sequence[Node]) -> list[Node]:
        region.carried = [self.node("carried", (), n.shape, n.kind) for n in like]
        return region.carried

    def _parts(self, whole: Node, avals: Sequence[Any]) -> list[Node]:
        return [self.node("part", (whole,), a.shape, a.dtype, place=i) for i, a in enumerate(avals)]

    def _while(self, params: dict[str, Any], given: list[Node], avals: list[Any]) -> list[Node]:
        tests, bodies = params["cond_nconsts"], params["body_nconsts"]
        test_consts, body_consts, start = given[:tests], given[tests : tests + bodies], given[tests + bodies :]
        test, body = params["cond_jaxpr"], params["body_jaxpr"]

        def build(region: Region) -> list[Node]:
            carried = self.carried(region, start)
            (goes_on,) = self.inline(test.jaxpr, test.consts, [*test_consts, *carried])
            outputs = self.inline(body.jaxpr, body.consts, [*body_consts, *carried])
            if goes_on.shape:  # each of a batch goes on for itself, until the last one has ended
                outputs = [self._chosen(goes_on, new, old) for new, old in zip(outputs, carried, strict=True)]
                goes_on = self.node("reduce_or", (goes_on,), (), "bool", axes=tuple(range(len(goes_on.shape))))
            return [goes_on, *outputs]

        region = self.within(build)
        return self._parts(self.node("while", start, (len(avals),), "int32", region=region), avals)

    def _chosen(self, which: Node, new: Node, old: Node) -> Node:
        """Elements of `new` where `which`, over the first axes, holds; else of `old`."""
        axes = tuple(range(len(which.shape)))
        spread = self.node("broadcast_in_dim", (which,), new.shape, "bool", broadcast_dimensions=axes)
        return self.node("select_n", (spread, old, new), new.shape, new.kind)

    def _scan(self, params: dict[str, Any], given: list[Node], avals: list[Any]) -> list[Node]:
        if "num_consts" in params:
            consts, carries = params["num_consts"], params["num_carry"]
        else:  # from jax 0.11 on
            consts, carries, _ = (len(list(part)) for part in params["ft_in"].unpack())
        closed = params["jaxpr"]
        start, xs = given[consts : consts + carries], given[consts + carries :]
        length, reverse = params["length"], params["reverse"]

        def build(region: Region) -> list[Node]:
            carried = self.carried(region, start)
            counter = self.node("counter", (), (), "int32")
            place = self._mirrored(counter, length) if reverse else counter
            rows = [self.node("row", (x, place), x.shape[1:], x.kind) for x in xs]
            region.counter = counter
            return self.inline(closed.jaxpr, closed.consts, [*given[:consts], *carried, *rows])

        region = self.within(build)
        whole = self.node("scan", start, (len(avals),), "int32", region=region, length=length, reverse=reverse,
                          carries=carries)  # fmt: skip
        return self._parts(whole, avals)

    def _mirrored(self, counter: Node, length: int) -> Node:
        return self.node("sub", (self.constant(length - 1, "int32"), counter), (), "int32")

    def _cond(self, params: dict[str, Any], given: list[Node], avals: list[Any]) -> list[Node]:
        which, inputs = given[0], given[1:]
        if which.op == "literal":
            branch = params["branches"][which.params["value"]]
            return self.inline(branch.jaxpr, branch.consts, inputs)
        regions = [
            self.within(lambda region, b=branch: self.inline(b.jaxpr, b.consts, inputs), True)  # type: ignore[misc]
            for branch in params["branches"]
        ]
        return self._parts(self.node("cond", (which,), (len(avals),), "int32", regions=regions), avals)


def planes_of(scores: Node) -> int:
    """How many bits the scores of `fillers` have, or 0 where that has no text of its own."""
    bounds = ranges.span(scores)
    if scores.kind != "int32" or bounds is None or not 0 <= bounds[0] <= bounds[1] < 2**MOST_PLANES:
        return 0
    return max(1, bounds[1].bit_length()) if 2 <= scores.size <= FILLED and max(scores.shape) == scores.size else 0


def _unknown(name: str) -> NoReturn:
    raise NotFusible(f"the primitive {name}")


def reach(outputs: Iterable[Node], inputs_of: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """The nodes that these need, each after its inputs."""
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(n, False) for n in reversed(list(outputs))]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node.number not in seen:
            seen.add(node.number)
            stack.append((node, True))
            stack.extend((i, False) for i in inputs_of(node) if i.number not in seen)
    return order
