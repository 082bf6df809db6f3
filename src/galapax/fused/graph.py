"""Builds the array IR of a jaxpr, with calls inlined and common subexpressions merged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NoReturn, cast

import numpy as np
from jax.core import ShapedArray
from numpy.typing import ArrayLike, DTypeLike

from galapax.fused.array_ir import (
    Kind,
    Node,
    NotFusible,
    OpSpec,
    Params,
    Region,
    fold_comparison,
    infer_range,
    value_range,
)
from galapax.fused.cost_model import MAX_BITPLANE_POPULATION, MAX_SCORE_BITS
from galapax.fused.ops import OPS, UNSUPPORTED
from galapax.numerics.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from galapax.numerics.random import INTRINSIC_PREFIX

INLINED_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call",
                 "custom_vjp_call_jaxpr"}  # fmt: skip
IDENTITY_OPS = {"copy", "copy_p", "stop_gradient", "optimization_barrier", "reduce_precision"}
IDEMPOTENT_COMBINERS = {"max", "min", "and", "or"}  # of reductions whose parts may be reduced by themselves
MAX_ARRAY_ELEMENTS = 2**30  # kernels index arrays with 32-bit integers


class Graph:
    """Builds nodes and merges equal ones: the same operation on the same inputs is one node per region."""

    def __init__(self, for_cpu: bool = False) -> None:
        self.for_cpu = for_cpu  # generate code for CPU vectors, without the bit-plane intrinsic
        self.top = Region()
        self._region = self.top
        self._cse: dict[tuple[Hashable, Region], Node] = {}
        self._n_nodes = 0
        self.constants: list[np.ndarray] = []  # non-scalar constants, passed to the kernel as data

    def add_node(
        self, op: str, inputs: Sequence[Node], shape: Iterable[int], dtype: DTypeLike, /, **params: Any
    ) -> Node:
        """Add a node, or return the equal node that this region or an enclosing one already has."""
        shape = tuple(int(n) for n in shape)
        if math.prod(shape) > MAX_ARRAY_ELEMENTS:
            raise NotFusible(f"an array of {math.prod(shape)} numbers")
        try:
            dtype = np.dtype(dtype).name
        except TypeError:  # of JAX's own
            raise NotFusible(f"an array of type {dtype}, such as a random key") from None
        spec = OPS.get(op, UNSUPPORTED)
        if spec.is_unique:
            return self._new_node(op, spec, inputs, params, shape, dtype, self._region)
        simplified = self._simplify(op, inputs, shape)
        if simplified is not None:
            return simplified
        # Hoist the node to the innermost region that it depends on, so that a loop does not recompute invariants; but
        # not out of a branch, which may not be taken.
        region = max((self._region.enclosing_branch, *(i.region for i in inputs)), key=lambda r: r.depth)
        key = (op, tuple(i.id for i in inputs), shape, dtype, repr(sorted(params.items())))
        enclosing: Region | None = region
        while enclosing is not None:
            if (key, enclosing) in self._cse:
                return self._cse[key, enclosing]
            enclosing = enclosing.parent
        return self._cse.setdefault((key, region), self._new_node(op, spec, inputs, params, shape, dtype, region))

    def _simplify(self, op: str, inputs: Sequence[Node], shape: tuple[int, ...]) -> Node | None:
        """Return the constant or input that an operation reduces to, where the value ranges of its inputs decide it."""
        outcome = fold_comparison(op, inputs)
        if outcome is not None:
            return self.add_constant(np.full(shape, outcome), "bool")
        if op == "select_n" and len(inputs) == 3:
            condition_range = value_range(inputs[0])
            if condition_range is not None and condition_range[0] == condition_range[1]:
                case = inputs[1 + condition_range[0]]
                return case if case.shape == shape else None
        return None

    def _new_node(
        self,
        op: str,
        spec: OpSpec,
        inputs: Sequence[Node],
        params: Params,
        shape: tuple[int, ...],
        dtype: str,
        region: Region,
    ) -> Node:
        self._n_nodes += 1
        inferred = infer_range(spec, inputs, shape, dtype, params)
        return Node(self._n_nodes, op, spec, tuple(inputs), params, shape, dtype, region, inferred)

    def add_constant(self, value: ArrayLike, dtype: DTypeLike) -> Node:
        """Add a constant: a literal, broadcast if all elements are equal, else an array passed to the kernel."""
        value = np.asarray(value)
        dtype = np.dtype(dtype)
        if (value.size and (value == value.flat[0]).all()) or (value.size == 1):
            scalar = self.add_node("literal", (), (), dtype, value=value.astype(dtype).flat[0].item())
            if value.shape == ():
                return scalar
            return self.add_node("broadcast_in_dim", (scalar,), value.shape, dtype, broadcast_dimensions=())
        self.constants.append(np.ascontiguousarray(value.astype(dtype)))
        return self.add_node("input", (), value.shape, dtype, name=f"k{len(self.constants) - 1}", is_per_run=False)

    def inline(self, jaxpr: Jaxpr, consts: Sequence[ArrayLike], inputs: Sequence[Node]) -> list[Node]:
        """Add the equations of a jaxpr applied to these inputs, and return its outputs."""
        values: dict[Var, Node] = dict(zip(jaxpr.invars, inputs, strict=True))
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            values[var] = self.add_constant(const, _aval_of(var).dtype)

        def read(atom: Var | Literal) -> Node:
            if not isinstance(atom, Literal):
                return values[atom]
            return self.add_constant(atom.val, _aval_of(atom).dtype)

        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            results = self._lower_equation(equation, operands)
            values.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _lower_equation(self, equation: JaxprEqn, operands: list[Node]) -> list[Node]:
        name, params = equation.primitive.name, equation.params
        avals = [_aval_of(v) for v in equation.outvars]
        if str(params.get("name")).startswith(INTRINSIC_PREFIX):
            intrinsic = self._lower_intrinsic(params["name"].removeprefix(INTRINSIC_PREFIX), operands, avals[0])
            if intrinsic is not None:
                return [intrinsic]
        if name in INLINED_CALLS:
            nested = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
            if isinstance(nested, ClosedJaxpr):
                return self.inline(nested.jaxpr, nested.consts, operands)
            if isinstance(nested, Jaxpr):
                return self.inline(nested, (), operands)
            _raise_unsupported(name)
        if name in IDENTITY_OPS:
            return operands
        if name == "platform_index":  # for JAX this compiler is an unlisted platform: take the default branch
            platforms = params["platforms"]
            if None not in platforms:
                _raise_unsupported(name)
            return [self.add_constant(platforms.index(None), avals[0].dtype)]
        control = {"while": self._lower_while, "scan": self._lower_scan, "cond": self._lower_cond}.get(name)
        if control is not None:
            return control(params, operands, avals)
        if name == "split":
            starts = np.cumsum([0, *params["sizes"]])
            axis = params["axis"]
            shape = operands[0].shape
            return [self._slice(operands[0], axis, int(a), int(b), shape) for a, b in itertools.pairwise(starts)]
        spec = OPS.get(name, UNSUPPORTED)
        if spec.kind is Kind.REDUCTION:
            return [self._reduce(name, operands[0], tuple(int(a) for a in params["axes"]), avals[0].shape)]
        if name == "unstack":
            axis = params["axis"] % len(operands[0].shape)
            slices = [self._slice(operands[0], axis, i, i + 1, operands[0].shape) for i in range(len(avals))]
            return [
                self.add_node("squeeze", (piece,), a.shape, piece.dtype, dimensions=(axis,))
                for piece, a in zip(slices, avals, strict=True)
            ]
        if name == "bitcast_convert_type" and avals[0].shape != operands[0].shape:
            return [self._bitcast_to_words(operands[0], avals[0])]
        if name != "sort" and len(avals) != 1:
            _raise_unsupported(name)
        if spec.kind is Kind.SCATTER and math.prod(operands[1].shape[:-1]) > 1:
            # updated in place: a copy of the operand that can be initialised long before
            initial = operands[0]
            target = self.add_node("alloc", (initial,), initial.shape, initial.dtype, updates=operands[2].size)
            operands = [target, *operands[1:]]
        if len(avals) == 1:
            return [self.add_node(name, operands, avals[0].shape, avals[0].dtype, **params)]
        bundle = self.add_node(name, operands, (len(avals),), avals[0].dtype, **params, multiple=True)
        return self._unpack_outputs(bundle, avals)

    def _lower_intrinsic(self, name: str, operands: list[Node], aval: ShapedArray) -> Node | None:
        """Lower a call of a library function to its intrinsic, or return None if it has none for such arrays."""
        if name == "replacement_index":
            bits = 0 if self.for_cpu else count_score_bits(operands[0])
            if not bits:
                return None
            bitplanes = self.add_node("bitplanes", operands, operands[0].shape, operands[0].dtype, bits=bits)
            return self.add_node(name, (bitplanes,), aval.shape, aval.dtype)
        if name == "front_numbers":
            values, enough = operands
            is_single_row = values.size == values.shape[-1]
            if not is_single_row or enough.op != "literal":
                return None
            return self.add_node(name, (values,), aval.shape, aval.dtype, enough=int(enough.params["value"]))
        widened = [self._widen_scalar(n, aval.shape) for n in operands]
        if any(n.shape != aval.shape for n in widened):
            return None
        return self.add_node(name, widened, aval.shape, aval.dtype)

    def _reduce(self, name: str, operand: Node, axes: tuple[int, ...], shape: tuple[int, ...]) -> Node:
        if all(operand.shape[a] == 1 for a in axes):  # nothing to reduce
            return self.add_node("reshape", (operand,), shape, operand.dtype)
        combiner = OPS[name].combiner
        is_joined = operand.op == "concatenate" and operand.params["dimension"] in axes
        if is_joined and combiner in IDEMPOTENT_COMBINERS:
            # reduce each input of the concatenation by itself: a partial result is ready as soon as its input is
            partials = [self._reduce(name, piece, axes, shape) for piece in operand.inputs if piece.size]
            total = partials[0]
            for partial in partials[1:]:
                total = self.add_node(combiner, (total, partial), shape, operand.dtype)
            return total
        is_count = name == "reduce_sum" and operand.op == "convert_element_type" and operand.inputs[0].dtype == "bool"
        if is_count and operand.dtype in ("float32", "float64") and operand.size < 2**24:
            # integers add up faster, and in float32 too the sum is exact up to 2**24
            integers = self._convert(operand.inputs[0], "int32")
            return self._convert(self.add_node(name, (integers,), shape, "int32", axes=axes), operand.dtype)
        return self.add_node(name, (operand,), shape, operand.dtype, axes=axes)

    def _convert(self, x: Node, dtype: str) -> Node:
        return self.add_node("convert_element_type", (x,), x.shape, dtype, new_dtype=np.dtype(dtype))

    def _widen_scalar(self, x: Node, shape: tuple[int, ...]) -> Node:
        """Broadcast a scalar, which a batch of runs has without the batch axis, to this shape."""
        if x.op != "broadcast_in_dim" or x.inputs[0].shape:
            return x
        return self.add_node("broadcast_in_dim", x.inputs, shape, x.dtype, broadcast_dimensions=())

    def _bitcast_to_words(self, x: Node, aval: ShapedArray) -> Node:
        """Split 64-bit values into two 32-bit words each, the low one first."""
        if aval.shape != (*x.shape, 2) or aval.dtype.itemsize != 4:
            raise NotFusible("the primitive bitcast_convert_type from one shape to another")
        bits = self.add_node("bitcast_convert_type", (x,), x.shape, np.uint64)
        high = self.add_node(
            "shift_right_logical", (bits, self.add_constant(np.full(x.shape, 32), np.uint64)), x.shape, bits.dtype
        )
        words = [self.add_node("convert_element_type", (b,), x.shape, aval.dtype) for b in (bits, high)]
        return self.add_node("stack", words, aval.shape, aval.dtype, axis=len(x.shape))

    def _slice(self, x: Node, axis: int, start: int, stop: int, shape: tuple[int, ...]) -> Node:
        starts = [start if i == axis else 0 for i in range(len(shape))]
        stops = [stop if i == axis else n for i, n in enumerate(shape)]
        return self.add_node(
            "slice", (x,), [b - a for a, b in zip(starts, stops, strict=True)], x.dtype,
            start_indices=tuple(starts), limit_indices=tuple(stops), strides=None,
        )  # fmt: skip

    def build_region(self, build: Callable[[Region], list[Node]], is_branch: bool = False) -> Region:
        """Build a nested region: `build` adds its nodes and returns its outputs."""
        outer, region = self._region, Region(self._region, is_branch=is_branch)
        self._region = region
        try:
            region.outputs = build(region)
        finally:
            self._region = outer
        return region

    def add_loop_carry(self, region: Region, initial: Sequence[Node]) -> list[Node]:
        """Add the loop-carried values of a region, one for each initial value."""
        region.loop_carry = [self.add_node("loop_carry", (), n.shape, n.dtype) for n in initial]
        return region.loop_carry

    def _unpack_outputs(self, bundle: Node, avals: Sequence[ShapedArray]) -> list[Node]:
        """Add one node for each output of an operation that has several."""
        return [self.add_node("tuple_element", (bundle,), a.shape, a.dtype, position=i) for i, a in enumerate(avals)]

    def _lower_while(self, params: Params, operands: list[Node], avals: list[ShapedArray]) -> list[Node]:
        first_body, first_carry = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        cond_consts, body_consts = operands[:first_body], operands[first_body:first_carry]
        initial = operands[first_carry:]
        cond, body = params["cond_jaxpr"], params["body_jaxpr"]

        def build(region: Region) -> list[Node]:
            loop_carry = self.add_loop_carry(region, initial)
            (condition,) = self.inline(cond.jaxpr, cond.consts, [*cond_consts, *loop_carry])
            outputs = self.inline(body.jaxpr, body.consts, [*body_consts, *loop_carry])
            if condition.shape:  # each element of a batch continues by itself; the loop ends with the last one
                outputs = [self._select_rows(condition, new, old) for new, old in zip(outputs, loop_carry, strict=True)]
                axes = tuple(range(len(condition.shape)))
                condition = self.add_node("reduce_or", (condition,), (), "bool", axes=axes)
            return [condition, *outputs]

        region = self.build_region(build)
        return self._unpack_outputs(self.add_node("while", initial, (len(avals),), "int32", region=region), avals)

    def _select_rows(self, mask: Node, new: Node, old: Node) -> Node:
        """Select `new` where the mask over the leading axes holds, else `old`."""
        axes = tuple(range(len(mask.shape)))
        wide_mask = self.add_node("broadcast_in_dim", (mask,), new.shape, "bool", broadcast_dimensions=axes)
        return self.add_node("select_n", (wide_mask, old, new), new.shape, new.dtype)

    def _lower_scan(self, params: Params, operands: list[Node], avals: list[ShapedArray]) -> list[Node]:
        if "num_consts" in params:
            n_consts, n_carry = params["num_consts"], params["num_carry"]
        else:  # from jax 0.11 on
            n_consts, n_carry, _ = (len(list(group)) for group in params["ft_in"].unpack())
        closed = params["jaxpr"]
        initial, xs = operands[n_consts : n_consts + n_carry], operands[n_consts + n_carry :]
        length, reverse = params["length"], params["reverse"]

        def build(region: Region) -> list[Node]:
            loop_carry = self.add_loop_carry(region, initial)
            loop_index = self.add_node("loop_index", (), (), "int32")
            position = self._reverse_index(loop_index, length) if reverse else loop_index
            rows = [self.add_node("scan_row", (x, position), x.shape[1:], x.dtype) for x in xs]
            region.loop_index = loop_index
            return self.inline(closed.jaxpr, closed.consts, [*operands[:n_consts], *loop_carry, *rows])

        region = self.build_region(build)
        attributes = {"region": region, "length": length, "reverse": reverse, "n_carry": n_carry}
        return self._unpack_outputs(self.add_node("scan", initial, (len(avals),), "int32", **attributes), avals)

    def _reverse_index(self, loop_index: Node, length: int) -> Node:
        return self.add_node("sub", (self.add_constant(length - 1, "int32"), loop_index), (), "int32")

    def _lower_cond(self, params: Params, operands: list[Node], avals: list[ShapedArray]) -> list[Node]:
        branch_index, inputs = operands[0], operands[1:]
        if branch_index.op == "literal":
            branch = params["branches"][branch_index.params["value"]]
            return self.inline(branch.jaxpr, branch.consts, inputs)
        regions = [
            self.build_region(lambda region, b=branch: self.inline(b.jaxpr, b.consts, inputs), True)  # type: ignore[misc]
            for branch in params["branches"]
        ]
        bundle = self.add_node("cond", (branch_index,), (len(avals),), "int32", regions=regions)
        return self._unpack_outputs(bundle, avals)


def count_score_bits(scores: Node) -> int:
    """Return how many bits the scores of a selection have, or 0 if the bit-plane intrinsic cannot be used."""
    score_range = value_range(scores)
    if scores.dtype != "int32" or score_range is None or not 0 <= score_range[0] <= score_range[1] < 2**MAX_SCORE_BITS:
        return 0
    is_vector = max(scores.shape) == scores.size
    return max(1, score_range[1].bit_length()) if is_vector and 2 <= scores.size <= MAX_BITPLANE_POPULATION else 0


def _aval_of(atom: Var | Literal) -> ShapedArray:
    return cast(ShapedArray, atom.aval)


def _raise_unsupported(primitive: str) -> NoReturn:
    raise NotFusible(f"the primitive {primitive}")
