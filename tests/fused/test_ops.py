"""The table of operations: complete entries, and rules that hold, without a GPU or a C compiler."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from galapax.fused.array_ir import Kind, Node, Region, infer_range
from galapax.fused.ops import OPS
from galapax.fused.schedule import map_axes

NEEDS = {
    Kind.ELEMENTWISE: ("expression", "map_axes"),
    Kind.VIEW: ("emit", "map_axes"),
    Kind.MOVE: ("emit",),
    Kind.JOIN: ("emit", "map_axes"),
    Kind.GATHER: ("emit",),
    Kind.SCATTER: ("emit", "emit_collective"),
    Kind.REDUCTION: ("emit", "map_axes", "combiner"),
    Kind.ARG_EXTREME: ("emit", "map_axes", "combiner"),
    Kind.CONTRACTION: ("emit",),
    Kind.CUMULATIVE: ("emit", "emit_collective", "combiner"),
    Kind.COLLECTIVE: ("emit_collective",),
    Kind.CONTROL_FLOW: ("emit_collective",),
}
ARITHMETIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
    "shift_right_logical": np.right_shift,
}  # fmt: skip


def node(op, inputs=(), shape=(), dtype="uint32", value_range=None, **params):
    return Node(0, op, OPS[op], tuple(inputs), params, shape, dtype, Region(), value_range)


def number(low, high, dtype):
    return node("input", dtype=dtype, value_range=(low, high))


@pytest.mark.parametrize("op", OPS)
def test_an_entry_has_what_its_kind_needs(op):
    assert all(getattr(OPS[op], rule) for rule in NEEDS.get(OPS[op].kind, ()))


@pytest.mark.parametrize("op", ARITHMETIC)
@given(data=st.data())
def test_results_lie_in_the_range_that_is_inferred(op, data):
    is_shift = op.startswith("shift")
    dtype = "uint32" if is_shift or op == "and" else "int32"
    numbers = st.integers(0, 31) if is_shift else st.integers(0 if dtype == "uint32" else -1000, 1000)
    (a, low_a, high_a), (b, low_b, high_b) = (
        (draw[1], draw[0], draw[2]) for draw in (sorted(data.draw(st.tuples(*[numbers] * 3))) for _ in range(2))
    )
    if is_shift:  # by a known number of bits
        low_b = high_b = b
    operands = number(low_a, high_a, dtype), number(low_b, high_b, dtype)
    inferred = infer_range(OPS[op], operands, (), dtype, {})
    if inferred is None:  # outside the range of the type
        assert dtype == "uint32" or op == "mul"
        return
    result = int(ARITHMETIC[op](a, b))
    assert inferred[0] <= result <= inferred[1]


def test_a_range_beyond_the_type_is_none():
    operands = number(0, 2**31 - 1, "int32"), number(1, 1, "int32")
    assert infer_range(OPS["add"], operands, (), "int32", {}) is None


@pytest.mark.parametrize(
    ("op", "params", "shape", "operand_shape", "axes", "expected"),
    [
        ("transpose", {"permutation": (1, 0)}, (3, 4), (4, 3), (0,), (1,)),
        ("broadcast_in_dim", {"broadcast_dimensions": (1,)}, (3, 4), (4,), (1,), (0,)),
        ("broadcast_in_dim", {"broadcast_dimensions": (1,)}, (3, 4), (4,), (0,), None),
        ("reshape", {}, (3, 1, 4), (3, 4), (2,), (1,)),
        ("reshape", {}, (12,), (3, 4), (0,), None),
        ("slice", {"start_indices": (0, 1), "strides": None}, (3, 2), (3, 4), (0,), (0,)),
        ("slice", {"start_indices": (0, 1), "strides": None}, (3, 2), (3, 4), (1,), None),
        ("reduce_sum", {"axes": (0,)}, (4,), (3, 4), (0,), (1,)),
        ("stack", {"axis": 0}, (2, 5), (5,), (1,), (0,)),
        ("concatenate", {"dimension": 0}, (6, 5), (3, 5), (0,), None),
    ],
)
def test_elements_that_keep_their_index(op, params, shape, operand_shape, axes, expected):
    operand = node("input", shape=operand_shape, dtype="float32")
    assert map_axes(node(op, [operand], shape, "float32", **params), operand, axes) == expected
