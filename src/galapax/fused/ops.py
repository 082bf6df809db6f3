"""The operations that the compiler knows: one entry each, with all that its passes ask about an operation.

A new elementwise operation is one line here: its C expression and, if it is dear, its cost. An operation that moves
elements needs an index map (index_maps.py), and gains by an axis map (schedule.py), by which the compiler sees
which elements stay with their thread. Names are those of JAX's primitives; further ones are of galapax's own functions
with C code (c/random.c, c/bitplanes.c) and of nodes that graph.py builds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from galapax.fused import array_ir as ranges
from galapax.fused import c_expressions as c
from galapax.fused import collectives, index_maps, reductions, region_codegen, schedule
from galapax.fused.array_ir import Kind, OpSpec, Packing
from galapax.fused.cost_model import DEAR


def _elementwise(expression: Callable[..., str], cost: float = 1.0, **rules: Any) -> OpSpec:
    return OpSpec(Kind.ELEMENTWISE, cost, expression=expression, map_axes=schedule.same_axes, is_static=True, **rules)


def _view(emit: Callable[..., Any], map_axes: Callable[..., Any], keeps_order: bool = True) -> OpSpec:
    return OpSpec(
        Kind.VIEW, 0.0, emit=emit, map_axes=map_axes, value_range=ranges.first_operand, keeps_order=keeps_order,
        is_static=True, forwards_loads=True,
    )  # fmt: skip


def _move(emit: Callable[..., Any], **rules: Any) -> OpSpec:
    return OpSpec(Kind.MOVE, **{"emit": emit, "value_range": ranges.first_operand} | rules)


def _join(emit: Callable[..., Any], map_axes: Callable[..., Any]) -> OpSpec:
    return OpSpec(Kind.JOIN, emit=emit, map_axes=map_axes, value_range=ranges.any_operand, is_static=True)


def _reduction(combiner: str, **rules: Any) -> OpSpec:
    return OpSpec(
        Kind.REDUCTION, emit=reductions.emit_reduction, map_axes=schedule.free_axes, combiner=combiner,
        **rules,
    )  # fmt: skip


def _arg_extreme(combiner: str) -> OpSpec:
    return OpSpec(
        Kind.ARG_EXTREME, emit=reductions.emit_arg_extreme, map_axes=schedule.free_axes,
        value_range=ranges.position, combiner=combiner,
    )  # fmt: skip


def _cumulative(combiner: str, **rules: Any) -> OpSpec:
    return OpSpec(
        Kind.CUMULATIVE,
        emit=reductions.emit_serial_scan,
        emit_collective=collectives.emit_scan,
        combiner=combiner,
        **rules,
    )


def _scatter(combiner: str, **rules: Any) -> OpSpec:
    return OpSpec(
        Kind.SCATTER, emit=index_maps.scatter, emit_collective=collectives.emit_scatter, combiner=combiner,
        **rules,
    )  # fmt: skip


def _control_flow(emit: Callable[..., Any]) -> OpSpec:
    return OpSpec(Kind.CONTROL_FLOW, emit_collective=emit, is_unique=True)


OPS: dict[str, OpSpec] = {
    # leaves
    "literal": OpSpec(Kind.LEAF, 0.0, value_range=ranges.literal),
    "input": OpSpec(Kind.LEAF, is_unique=True),
    "loop_carry": OpSpec(Kind.LEAF, is_unique=True),
    "loop_index": OpSpec(Kind.LEAF, is_unique=True),
    "tuple_element": OpSpec(Kind.OUTPUT),
    # arithmetic
    "add": _elementwise(c.arithmetic("+"), value_range=ranges.add),
    "add_any": _elementwise(c.arithmetic("+")),
    "sub": _elementwise(c.arithmetic("-"), value_range=ranges.subtract),
    "mul": _elementwise(c.arithmetic("*"), value_range=ranges.multiply),
    "div": _elementwise(c.division, DEAR),
    "rem": _elementwise(c.remainder, DEAR),
    "neg": _elementwise(c.negation),
    "abs": _elementwise(c.absolute),
    "sign": _elementwise(c.sign),
    "max": _elementwise(c.call_typed_function("max"), value_range=ranges.maximum),
    "min": _elementwise(c.call_typed_function("min"), value_range=ranges.minimum),
    "clamp": _elementwise(c.clamp),
    "square": _elementwise(c.square),
    "integer_pow": _elementwise(c.integer_power),
    "pow": _elementwise(c.power, DEAR),
    "sqrt": _elementwise(c.call_c_function("sqrt"), DEAR),
    "rsqrt": _elementwise(c.reciprocal_root),
    "cbrt": _elementwise(c.call_c_function("cbrt")),
    "floor": _elementwise(c.call_c_function("floor")),
    "ceil": _elementwise(c.call_c_function("ceil")),
    "round": _elementwise(c.rounding),
    "nextafter": _elementwise(c.call_c_function("nextafter")),
    # comparisons, choices and conversions
    "eq": _elementwise(c.infix("==")),
    "ne": _elementwise(c.infix("!=")),
    "lt": _elementwise(c.infix("<")),
    "le": _elementwise(c.infix("<=")),
    "gt": _elementwise(c.infix(">")),
    "ge": _elementwise(c.infix(">=")),
    "select_n": _elementwise(c.select, value_range=ranges.any_case),
    "is_finite": _elementwise(c.finite),
    "convert_element_type": _elementwise(c.conversion, value_range=ranges.first_operand),
    "bitcast_convert_type": _elementwise(c.bitcast),
    # bits
    "and": _elementwise(c.infix("&"), value_range=ranges.bitwise_and),
    "or": _elementwise(c.infix("|")),
    "xor": _elementwise(c.infix("^")),
    "not": _elementwise(c.complement),
    "shift_left": _elementwise(c.constant_shift),
    "shift_right_logical": _elementwise(c.constant_shift, value_range=ranges.shift_right),
    "shift_right_arithmetic": _elementwise(c.shift),
    "population_count": _elementwise(c.call_typed_function("popcount")),
    "clz": _elementwise(c.call_typed_function("clz")),
    # functions: of the C library, or faster ones of c/functions.c
    "exp": _elementwise(c.call_c_function("exp"), DEAR),
    "exp2": _elementwise(c.call_c_function("exp2")),
    "expm1": _elementwise(c.call_own_function("expm1"), DEAR),
    "log": _elementwise(c.call_c_function("log"), DEAR),
    "log1p": _elementwise(c.call_c_function("log1p"), DEAR),
    "logistic": _elementwise(c.logistic),
    "sin": _elementwise(c.call_own_function("sin"), DEAR),
    "cos": _elementwise(c.call_own_function("cos"), DEAR),
    "tan": _elementwise(c.call_c_function("tan"), DEAR),
    "asin": _elementwise(c.call_c_function("asin")),
    "acos": _elementwise(c.call_c_function("acos")),
    "atan": _elementwise(c.call_c_function("atan"), DEAR),
    "atan2": _elementwise(c.call_c_function("atan2"), DEAR),
    "sinh": _elementwise(c.call_c_function("sinh")),
    "cosh": _elementwise(c.call_c_function("cosh")),
    "tanh": _elementwise(c.call_c_function("tanh"), DEAR),
    "asinh": _elementwise(c.call_c_function("asinh")),
    "acosh": _elementwise(c.call_c_function("acosh")),
    "atanh": _elementwise(c.call_c_function("atanh")),
    "erf": _elementwise(c.call_c_function("erf"), DEAR),
    "erfc": _elementwise(c.call_c_function("erfc")),
    "erf_inv": _elementwise(c.call_typed_function("erf_inv"), DEAR),
    "lgamma": _elementwise(c.call_c_function("lgamma"), DEAR),
    # random numbers
    "drawn_word": _elementwise(c.call_intrinsic, 12),
    "mixed": _elementwise(c.call_intrinsic, 8),
    "high_product": _elementwise(c.call_intrinsic, 2, value_range=ranges.below_second),
    "normal_number": _elementwise(c.call_intrinsic, 30),
    "cauchy_number": _elementwise(c.call_intrinsic, 30),
    # the same elements in another shape
    "broadcast_in_dim": _view(index_maps.broadcast_in_dim, schedule.broadcast_axes),
    "reshape": _view(index_maps.reshape, schedule.squeezed_axes),
    "squeeze": _view(index_maps.squeeze, schedule.squeezed_axes),
    "expand_dims": _view(index_maps.expand_dims, schedule.squeezed_axes),
    "transpose": _view(index_maps.transpose, schedule.permuted_axes, keeps_order=False),
    # some elements, or at other places
    "slice": _move(
        index_maps.slice_elements, cost=0.0, map_axes=schedule.sliced_axes, is_static=True, forwards_loads=True
    ),
    "rev": _move(index_maps.reverse, is_static=True, forwards_loads=True),
    "tile": _move(index_maps.tile, is_static=True),
    "pad": _move(index_maps.pad, value_range=None, is_static=True),
    "iota": _move(index_maps.iota, value_range=ranges.iota, is_static=True),
    "scan_row": _move(index_maps.index_row),
    "dynamic_slice": _move(index_maps.dynamic_slice),
    "dynamic_update_slice": _move(index_maps.dynamic_update_slice, value_range=None),
    "concatenate": _join(index_maps.concatenate, schedule.joined_axes),
    "stack": _join(index_maps.stack, schedule.stacked_axes),
    "gather": OpSpec(Kind.GATHER, emit=index_maps.gather, value_range=ranges.gather, forwards_loads=True),
    "scatter": _scatter("", value_range=ranges.operand_or_update),
    "scatter-add": _scatter("add"),
    "scatter-max": _scatter("max"),
    "scatter-min": _scatter("min"),
    # reductions and scans
    "reduce_sum": _reduction("add", value_range=ranges.total),
    "reduce_prod": _reduction("mul"),
    "reduce_max": _reduction("max", value_range=ranges.first_operand),
    "reduce_min": _reduction("min", value_range=ranges.first_operand),
    "reduce_and": _reduction("and"),
    "reduce_or": _reduction("or"),
    "reduce_xor": _reduction("xor"),
    "argmin": _arg_extreme("least"),
    "argmax": _arg_extreme("most"),
    "dot_general": OpSpec(Kind.CONTRACTION, emit=reductions.emit_dot),
    "cumsum": _cumulative("add"),
    "cumprod": _cumulative("mul"),
    "cummax": _cumulative("max", value_range=ranges.first_operand),
    "cummin": _cumulative("min", value_range=ranges.first_operand),
    # by all threads together
    "sort": OpSpec(Kind.COLLECTIVE, emit_collective=collectives.emit_sort),
    "cholesky": OpSpec(Kind.COLLECTIVE, emit_collective=collectives.emit_cholesky),
    "front_numbers": OpSpec(
        Kind.COLLECTIVE, emit_collective=collectives.emit_front_numbers, value_range=ranges.row_number
    ),
    "replacement_index": OpSpec(
        Kind.COLLECTIVE,
        emit=collectives.emit_replacement_index,
        emit_collective=collectives.emit_replacement_table,
        value_range=ranges.replacement_index,
    ),
    "while": _control_flow(region_codegen.emit_while),
    "scan": _control_flow(region_codegen.emit_scan_loop),
    "cond": _control_flow(region_codegen.emit_cond),
    # arrays that are always stored
    "alloc": _elementwise(c.same, is_unique=True, is_stored=True),
    "bitplanes": _elementwise(
        c.same, is_stored=True, packing=Packing(collectives.count_plane_words, collectives.emit_bitplanes)
    ),
}
UNSUPPORTED = OpSpec(Kind.MOVE)  # an operation without an entry: refused if its elements are needed
