"""C expressions: elements and indices, types and literals, and what elementwise operations (ops.py) are in C."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from galapax.fused.array_ir import Node, NotFusible
from galapax.fused.loop_ir import Expr, Scalar, compose

Index = int | Expr
Storage = str | list[str]  # the C array that holds a node, or the registers of a small one
ElementKey = tuple[int, tuple[int | str, ...]]  # node id and index


def element_key(node: Node, index: Sequence[Index]) -> ElementKey:
    """Return the key by which an element that was already emitted is found again."""
    return node.id, tuple(i if isinstance(i, int) else i.text for i in index)


def as_expr(index: Index) -> Expr:
    return Expr(str(index)) if isinstance(index, int) else index


C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "bool": "int",
}
STORAGE_TYPES = C_TYPES | {"bool": "unsigned char"}
ITEM_BYTES = {"float32": 4, "float64": 8, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "bool": 1}
ALIGNMENT_BYTES = 16  # of arrays in memory
TYPE_SUFFIXES = {"float32": "f32", "float64": "f64", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
                 "bool": "i32"}  # fmt: skip
_UNSIGNED = {"int32": "unsigned int", "int64": "unsigned long long"}


def is_float(dtype: str) -> bool:
    """True for floating-point types."""
    return dtype.startswith("float")


def c_type(dtype: str) -> str:
    """Return the C type of a dtype, or raise NotFusible."""
    if dtype not in C_TYPES:
        raise NotFusible(f"numbers of type {dtype}")
    return C_TYPES[dtype]


def c_literal(value: float, dtype: str) -> str:
    """Return a number as a C literal with all its digits."""
    c_type(dtype)
    if dtype == "bool":
        return "1" if value else "0"
    if not is_float(dtype):
        suffix = {"int32": "", "uint32": "u", "int64": "LL", "uint64": "ULL"}[dtype]
        text = f"{int(value)}{suffix}"
        return f"({text})" if value < 0 else text
    size = dtype[-2:]
    if math.isnan(value):
        return f"NAN{size}"
    if math.isinf(value):
        return f"INF{size}" if value > 0 else f"(-INF{size})"
    text = f"{value:.9g}" if dtype == "float32" else f"{value:.17g}"
    if "." not in text and "e" not in text:
        text += ".0"
    text += "f" if dtype == "float32" else ""
    return f"({text})" if value < 0 or text.startswith("-") else text


def arithmetic(sign: str) -> Callable[..., str]:
    def rule(node: Node, a: str, b: str) -> str:
        dtype = node.dtype
        if dtype == "bool":
            return f"({a} {'|' if sign == '+' else '&'} {b})"
        if dtype in _UNSIGNED:  # integers wrap around
            return f"({c_type(dtype)})(({_UNSIGNED[dtype]}){a} {sign} ({_UNSIGNED[dtype]}){b})"
        return f"{a} {sign} {b}"

    return rule


def infix(sign: str) -> Callable[..., str]:
    return lambda node, a, b: f"({a} {sign} {b})"


def division(node: Node, a: str, b: str) -> str:
    return f"{a} / {b}" if is_float(node.dtype) else f"div_{TYPE_SUFFIXES[node.dtype]}({a}, {b})"


def remainder(node: Node, a: str, b: str) -> str:
    return _call("fmod", node.dtype, a, b) if is_float(node.dtype) else f"rem_{TYPE_SUFFIXES[node.dtype]}({a}, {b})"


def _call(name: str, dtype: str, *arguments: str) -> str:
    if not is_float(dtype):
        raise NotFusible(f"{name} of whole numbers")
    return f"{name}{'f' if dtype == 'float32' else ''}({', '.join(arguments)})"


def _call_integer_power(node: Node, a: str) -> str:
    """Multiply repeatedly, since pow is not defined for negative bases on every device."""
    y = node.params["y"]
    return f"{'' if y >= 0 else '1 / '}ipow_{TYPE_SUFFIXES[node.dtype]}({a}, {abs(y)})"


def _expand_power(a: str, y: int) -> str | None:
    """Write a small integer power as multiplications, or return None."""
    expansions = {1: a, 2: f"{a} * {a}", 3: f"{a} * {a} * {a}", 4: f"({a} * {a}) * ({a} * {a})"}
    return expansions.get(y)


def integer_power(node: Node, a: str) -> str:
    return _expand_power(a, node.params["y"]) or _call_integer_power(node, a)


def power(node: Node, a: str, b: str) -> str:
    exponent = node.inputs[1].dtype
    return _call("pow", node.dtype, a, b if is_float(exponent) else f"({c_type(node.dtype)}){b}")


def rounding(node: Node, a: str) -> str:
    is_half_even = "EVEN" in str(node.params["rounding_method"])
    return _call("rint" if is_half_even else "round", node.dtype, a)


def absolute(node: Node, a: str) -> str:
    return _call("fabs", node.dtype, a) if is_float(node.dtype) else f"({a} < 0 ? -{a} : {a})"


def sign(node: Node, a: str) -> str:
    if is_float(node.dtype):
        return f"({a} != {a} ? {a} : ({c_type(node.dtype)})(({a} > 0) - ({a} < 0)))"
    return f"(({a} > 0) - ({a} < 0))"


def conversion(node: Node, a: str) -> str:
    source, target = node.inputs[0].dtype, node.dtype
    if target == "bool":
        return f"({a} != 0)"
    if is_float(source) and not is_float(target):
        return f"to_{TYPE_SUFFIXES[target]}((double){a})"
    return f"({c_type(target)}){a}"


def bitcast(node: Node, a: str) -> str:
    source, target = node.inputs[0].dtype, node.dtype
    if ITEM_BYTES[source] != ITEM_BYTES[target]:
        raise NotFusible("bitcast_convert_type between sizes")
    if is_float(source) == is_float(target):
        return f"({c_type(target)}){a}"
    name = f"bits_{TYPE_SUFFIXES[source]}" if is_float(source) else f"from_bits_{TYPE_SUFFIXES[target]}"
    return f"({c_type(target)}){name}({a})"


def shift(node: Node, a: str, b: str) -> str:
    bits = 8 * ITEM_BYTES[node.dtype]
    unsigned = "unsigned int" if bits == 32 else "unsigned long long"
    result_type, op = c_type(node.dtype), node.op
    if op == "shift_left":
        return f"(({unsigned}){b} < {bits} ? ({result_type})(({unsigned}){a} << {b}) : 0)"
    if op == "shift_right_logical":
        return f"(({unsigned}){b} < {bits} ? ({result_type})(({unsigned}){a} >> {b}) : 0)"
    return f"({result_type})({a} >> (({unsigned}){b} < {bits} ? {b} : {bits - 1}))"


def constant_shift(node: Node, a: str, b: str) -> str:
    """Shift by a constant without the test that C needs for shifts beyond the number of bits."""
    amount = node.inputs[1]
    if amount.op == "broadcast_in_dim":
        amount = amount.inputs[0]
    if amount.op == "literal" and node.dtype.startswith("u"):
        n_bits = amount.params["value"]
        if 0 <= n_bits < 8 * ITEM_BYTES[node.dtype]:
            return f"({a} {'<<' if node.op == 'shift_left' else '>>'} {n_bits})"
    return shift(node, a, b)


def select(node: Node, condition: str, *cases: str) -> str:
    if len(cases) == 2:
        return f"({condition} ? {cases[1]} : {cases[0]})"
    text = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        text = f"({condition} <= {i} ? {cases[i]} : {text})"
    return text


def clamp(node: Node, low: str, x: str, high: str) -> str:
    s = TYPE_SUFFIXES[node.dtype]
    return f"min_{s}(max_{s}({x}, {low}), {high})"


def complement(node: Node, a: str) -> str:
    return f"(!{a})" if node.dtype == "bool" else f"(~{a})"


def call_c_function(name: str) -> Callable[..., str]:
    return lambda node, *arguments: _call(name, node.dtype, *arguments)


def call_own_function(name: str) -> Callable[..., str]:
    """Call the float32 version of c/functions.c, since the C library's takes up to twice as long."""
    return lambda node, a: f"{name}_f32({a})" if node.dtype == "float32" else _call(name, node.dtype, a)


def finite(node: Node, a: str) -> str:
    return f"({_call('fabs', node.inputs[0].dtype, a)} < INF{node.inputs[0].dtype[-2:]})"


def call_typed_function(name: str) -> Callable[..., str]:
    return lambda node, *arguments: f"{name}_{TYPE_SUFFIXES[node.dtype]}({', '.join(arguments)})"


def negation(node: Node, a: str) -> str:
    return f"(-{a})" if is_float(node.dtype) else f"({c_type(node.dtype)})(0u - {a})"


def square(node: Node, a: str) -> str:
    return f"{a} * {a}"


def reciprocal_root(node: Node, a: str) -> str:
    return f"1 / {_call('sqrt', node.dtype, a)}"


def logistic(node: Node, a: str) -> str:
    return f"1 / (1 + {_call('exp', node.dtype, f'-{a}')})"


def call_intrinsic(node: Node, *arguments: str) -> str:
    """Call the function of c/random.c that has the operation's name."""
    return f"{node.op}({', '.join(arguments)})"


def same(node: Node, a: str) -> str:
    return a


def identity_element(operation: str, dtype: str) -> str:
    """Return the identity element of a reduction, as a C expression."""
    if operation in ("add", "or", "xor"):
        return c_literal(0, dtype)
    if operation == "mul":
        return c_literal(1, dtype)
    if operation == "and":
        return "1" if dtype == "bool" else "-1"
    is_largest = operation in ("max", "most")
    if is_float(dtype):
        return c_literal(-math.inf if is_largest else math.inf, dtype)
    if dtype == "bool":
        return "0" if is_largest else "1"
    size = 8 * ITEM_BYTES[dtype]
    if dtype.startswith("u"):
        return c_literal(0 if is_largest else 2**size - 1, dtype)
    s = TYPE_SUFFIXES[dtype]
    return f"LEAST_{s}" if is_largest else f"MOST_{s}"


def combine(operation: str, dtype: str, a: Scalar, b: Scalar) -> Expr:
    """Combine two partial results of a reduction."""
    return compose(f"{operation}_{TYPE_SUFFIXES[dtype]}({a}, {b})", a, b)
