"""Elementwise operations in C: the table from a primitive to the text of its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from galapax.engines.fused.graph import Node, NotFusible

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "bool": "int",
}
STORED = C_TYPES | {"bool": "unsigned char"}
BYTES = {"float32": 4, "float64": 8, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "bool": 1}
ALIGNED = 16  # bytes, to which arrays are
SHORT = {"float32": "f32", "float64": "f64", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
         "bool": "i32"}  # fmt: skip
_UNSIGNED = {"int32": "unsigned int", "int64": "unsigned long long"}
_NAMES = {"log": "log", "exp": "exp", "tan": "tan", "asin": "asin", "acos": "acos",
          "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh",
          "atanh": "atanh", "sqrt": "sqrt", "cbrt": "cbrt", "log1p": "log1p", "exp2": "exp2",
          "floor": "floor", "ceil": "ceil", "erf": "erf", "erfc": "erfc", "lgamma": "lgamma", "pow": "pow",
          "atan2": "atan2", "nextafter": "nextafter"}  # fmt: skip
# operations of C that one of the library's own stands for
LONG = {"drawn_word": 12, "mixed": 8, "high_product": 2, "normal_number": 30, "cauchy_number": 30}
HEAVY = {"log", "exp", "sin", "cos", "tan", "pow", "atan", "atan2", "tanh", "log1p", "expm1", "erf", "erf_inv",
         "lgamma", "sqrt", "div", "rem"}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def floating(kind: str) -> bool:
    return kind.startswith("float")


def ctype(kind: str) -> str:
    if kind not in C_TYPES:
        raise NotFusible(f"numbers of type {kind}")
    return C_TYPES[kind]


def literal(value: Any, kind: str) -> str:
    """A number as C text, with all its digits."""
    ctype(kind)
    if kind == "bool":
        return "1" if value else "0"
    if not floating(kind):
        suffix = {"int32": "", "uint32": "u", "int64": "LL", "uint64": "ULL"}[kind]
        text = f"{int(value)}{suffix}"
        return f"({text})" if value < 0 else text
    size = kind[-2:]
    if math.isnan(value):
        return f"NAN{size}"
    if math.isinf(value):
        return f"INF{size}" if value > 0 else f"(-INF{size})"
    text = f"{value:.9g}" if kind == "float32" else f"{value:.17g}"
    if "." not in text and "e" not in text:
        text += ".0"
    text += "f" if kind == "float32" else ""
    return f"({text})" if value < 0 or text.startswith("-") else text


def _arithmetic(sign: str) -> Callable[..., str]:
    def rule(node: Node, a: str, b: str) -> str:
        kind = node.kind
        if kind == "bool":
            return f"({a} {'|' if sign == '+' else '&'} {b})"
        if kind in _UNSIGNED:  # whole numbers wrap around
            return f"({ctype(kind)})(({_UNSIGNED[kind]}){a} {sign} ({_UNSIGNED[kind]}){b})"
        return f"{a} {sign} {b}"

    return rule


def _compare(sign: str) -> Callable[..., str]:
    return lambda node, a, b: f"({a} {sign} {b})"


def _bits(sign: str) -> Callable[..., str]:
    return lambda node, a, b: f"({a} {sign} {b})"


def _division(node: Node, a: str, b: str) -> str:
    return f"{a} / {b}" if floating(node.kind) else f"div_{SHORT[node.kind]}({a}, {b})"


def _remainder(node: Node, a: str, b: str) -> str:
    return _call("fmod", node.kind, a, b) if floating(node.kind) else f"rem_{SHORT[node.kind]}({a}, {b})"


def _call(name: str, kind: str, *arguments: str) -> str:
    if not floating(kind):
        raise NotFusible(f"{name} of whole numbers")
    return f"{name}{'f' if kind == 'float32' else ''}({', '.join(arguments)})"


def _whole_power(node: Node, a: str) -> str:
    """By multiplications, since pow has no rule for negative bases on every device."""
    y = node.params["y"]
    return f"ipow_{SHORT[node.kind]}({a}, {abs(y)})" if y >= 0 else f"1 / ipow_{SHORT[node.kind]}({a}, {abs(y)})"


def power(a: str, y: int) -> str | None:
    """Small whole powers written out."""
    written = {1: a, 2: f"{a} * {a}", 3: f"{a} * {a} * {a}", 4: f"({a} * {a}) * ({a} * {a})"}
    return written.get(y)


def _integer_pow(node: Node, a: str) -> str:
    return power(a, node.params["y"]) or _whole_power(node, a)


def _power(node: Node, a: str, b: str) -> str:
    exponent = node.inputs[1].kind
    return _call("pow", node.kind, a, b if floating(exponent) else f"({ctype(node.kind)}){b}")


def _round(node: Node, a: str) -> str:
    even = "EVEN" in str(node.params["rounding_method"])
    return _call("rint" if even else "round", node.kind, a)


def _absolute(node: Node, a: str) -> str:
    return _call("fabs", node.kind, a) if floating(node.kind) else f"({a} < 0 ? -{a} : {a})"


def _sign(node: Node, a: str) -> str:
    if floating(node.kind):
        return f"({a} != {a} ? {a} : ({ctype(node.kind)})(({a} > 0) - ({a} < 0)))"
    return f"(({a} > 0) - ({a} < 0))"


def _convert(node: Node, a: str) -> str:
    source, target = node.inputs[0].kind, node.kind
    if target == "bool":
        return f"({a} != 0)"
    if floating(source) and not floating(target):
        return f"to_{SHORT[target]}((double){a})"
    return f"({ctype(target)}){a}"


def _bitcast(node: Node, a: str) -> str:
    source, target = node.inputs[0].kind, node.kind
    if BYTES[source] != BYTES[target]:
        raise NotFusible("bitcast_convert_type between sizes")
    if floating(source) == floating(target):
        return f"({ctype(target)}){a}"
    name = f"bits_{SHORT[source]}" if floating(source) else f"from_bits_{SHORT[target]}"
    return f"({ctype(target)}){name}({a})"


def _shift(node: Node, a: str, b: str) -> str:
    bits = 8 * BYTES[node.kind]
    wide = "unsigned int" if bits == 32 else "unsigned long long"
    kind, name = ctype(node.kind), node.op
    if name == "shift_left":
        return f"(({wide}){b} < {bits} ? ({kind})(({wide}){a} << {b}) : 0)"
    if name == "shift_right_logical":
        return f"(({wide}){b} < {bits} ? ({kind})(({wide}){a} >> {b}) : 0)"
    return f"({kind})({a} >> (({wide}){b} < {bits} ? {b} : {bits - 1}))"


def _constant_shift(node: Node, a: str, b: str) -> str:
    amount = node.inputs[1]
    if amount.op == "broadcast_in_dim":
        amount = amount.inputs[0]
    if amount.op == "literal" and node.kind.startswith("u") and 0 <= amount.params["value"] < 8 * BYTES[node.kind]:
        return f"({a} {'<<' if node.op == 'shift_left' else '>>'} {amount.params['value']})"
    return _shift(node, a, b)


def _select(node: Node, which: str, *cases: str) -> str:
    if len(cases) == 2:
        return f"({which} ? {cases[1]} : {cases[0]})"
    text = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        text = f"({which} <= {i} ? {cases[i]} : {text})"
    return text


def _extreme(name: str) -> Callable[..., str]:
    return lambda node, a, b: f"{name}_{SHORT[node.kind]}({a}, {b})"


def _clamp(node: Node, low: str, x: str, high: str) -> str:
    s = SHORT[node.kind]
    return f"min_{s}(max_{s}({x}, {low}), {high})"


def _not(node: Node, a: str) -> str:
    return f"(!{a})" if node.kind == "bool" else f"(~{a})"


def _named(name: str) -> Callable[..., str]:
    return lambda node, *arguments: _call(name, node.kind, *arguments)


def _by_hand(name: str) -> Callable[..., str]:
    """In float32 as drawn.py has it, since the C library's takes up to twice as long."""
    return lambda node, a: f"{name}_f32({a})" if node.kind == "float32" else _call(name, node.kind, a)


def _finite(node: Node, a: str) -> str:
    return f"({_call('fabs', node.inputs[0].kind, a)} < INF{node.inputs[0].kind[-2:]})"


def _helper(name: str) -> Callable[..., str]:
    return lambda node, *arguments: f"{name}_{SHORT[node.kind]}({', '.join(arguments)})"


ELEMENTWISE: dict[str, Callable[..., str]] = {
    "add": _arithmetic("+"),
    "add_any": _arithmetic("+"),
    "sub": _arithmetic("-"),
    "mul": _arithmetic("*"),
    "div": _division,
    "rem": _remainder,
    "neg": lambda node, a: f"(-{a})" if floating(node.kind) else f"({ctype(node.kind)})(0u - {a})",
    "abs": _absolute,
    "sign": _sign,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "clamp": _clamp,
    "and": _bits("&"),
    "or": _bits("|"),
    "xor": _bits("^"),
    "not": _not,
    "shift_left": _constant_shift,
    "shift_right_logical": _constant_shift,
    "shift_right_arithmetic": _shift,
    "select_n": _select,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "integer_pow": _integer_pow,
    "pow": _power,
    "square": lambda node, a: f"{a} * {a}",
    "rsqrt": lambda node, a: f"1 / {_call('sqrt', node.kind, a)}",
    "logistic": lambda node, a: f"1 / (1 + {_call('exp', node.kind, f'-{a}')})",
    "round": _round,
    "is_finite": _finite,
    "erf_inv": _helper("erf_inv"),
    "population_count": _helper("popcount"),
    "clz": _helper("clz"),
    **{name: lambda node, *arguments: f"{node.op}({', '.join(arguments)})" for name in LONG},
    "same": lambda node, a: a,
    "fresh": lambda node, a: a,
    "planes": lambda node, a: a,
    **{name: _compare(sign) for name, sign in _COMPARE.items()},
    **{name: _named(c) for name, c in _NAMES.items() if name != "pow"},
    **{name: _by_hand(name) for name in ("sin", "cos", "expm1")},
}
REDUCTIONS = {"reduce_sum": "add", "reduce_prod": "mul", "reduce_max": "max", "reduce_min": "min", "reduce_and": "and",
              "reduce_or": "or", "reduce_xor": "xor"}  # fmt: skip
RUNNING = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def neutral(operation: str, kind: str) -> str:
    """What a reduction begins with."""
    if operation in ("add", "or", "xor"):
        return literal(0, kind)
    if operation == "mul":
        return literal(1, kind)
    if operation == "and":
        return "1" if kind == "bool" else "-1"
    if floating(kind):
        return literal(-math.inf if operation == "max" else math.inf, kind)
    if kind == "bool":
        return "0" if operation == "max" else "1"
    size = 8 * BYTES[kind]
    if kind.startswith("u"):
        return literal(0 if operation == "max" else 2**size - 1, kind)
    s = SHORT[kind]
    return f"LEAST_{s}" if operation == "max" else f"MOST_{s}"


def combine(operation: str, kind: str, a: str, b: str) -> str:
    """Two parts of a reduction as one."""
    return f"{operation}_{SHORT[kind]}({a}, {b})"
