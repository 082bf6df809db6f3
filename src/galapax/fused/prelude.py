"""The C before every kernel: functions and macros in which a GPU and a CPU differ, and the intrinsics.

The C is in the folder c/. Where a file is a template, this module fills in types or coefficients.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

from galapax.fused.c_expressions import c_literal
from galapax.numerics import random

# sin(r) / r in powers of r^2 for r in [-pi/2, pi/2], fitted at Chebyshev nodes, relative error 4e-9
SINE_RATIO_COEFFICIENTS = (2.60893148e-06, -0.000198111122, 0.00833308816, -0.166666605)
# exp(r) = 1 + r + r^2 * (...) for r in [-ln(2)/2, ln(2)/2], fitted likewise, relative error 2e-8
EXPM1_COEFFICIENTS = (0.00139262504, 0.00836323295, 0.0416665524, 0.166665763, 0.5)
INTEGERS = (  # suffix, C type, unsigned type, and the bounds, as a double and as an integer
    ("i32", "int", "u32", "-2147483648.0", "2147483647.0", "LEAST_i32", "MOST_i32"),
    ("u32", "u32", "u32", "0.0", "4294967295.0", "0", "4294967295u"),
    ("i64", "long long", "u64", "-9223372036854775808.0", "9223372036854775807.0", "LEAST_i64", "MOST_i64"),
    ("u64", "u64", "u64", "0.0", "18446744073709551615.0", "0", "18446744073709551615ULL"),
)
FLOATS = (("f32", "float"), ("f64", "double"))


@cache
def read_c(name: str) -> str:
    """Return a file of the folder c/."""
    return Path(__file__).with_name("c").joinpath(name).read_text(encoding="utf-8")


def _write_polynomial(coefficients: tuple[float, ...], x: str, factor: float = 1.0) -> str:
    """Write a polynomial by Horner's rule, highest power first."""
    text, *others = (c_literal(factor * coefficient, "float32") for coefficient in coefficients)
    for coefficient in others:
        text = f"fmaf({text}, {x}, {coefficient})"
    return text


def _arithmetic() -> str:
    """Return the functions of whole numbers for each type."""
    texts = []
    for suffix, c_type, unsigned, low, high, lowest, highest in INTEGERS:
        text = read_c("integers.c").replace("LOWEST", lowest).replace("HIGHEST", highest)
        text = text.replace("SIGNED", str(int(suffix[0] == "i"))).replace("LOW", low).replace("HIGH", high)
        text = text.replace("_S(", f"_{suffix}(").replace("(U)", f"({unsigned})")
        texts.append(text.replace("T ", f"{c_type} ").replace("(T)", f"({c_type})"))
    return "".join(texts)


def _random() -> str:
    """Return random numbers as numerics/random.py defines them, and a few functions of float32.

    Normal numbers differ from the inverse error function by the square root of 2.
    """
    return (
        (read_c("random.c") + read_c("functions.c"))
        .replace("CENTRE", _write_polynomial(random.ERFINV_CENTRE, "c", math.sqrt(2)))
        .replace("TAIL", _write_polynomial(random.ERFINV_TAIL, "c", math.sqrt(2)))
        .replace("POWERS", _write_polynomial(EXPM1_COEFFICIENTS, "r"))
        .replace("COSINE", _write_polynomial(random.COSINE_COEFFICIENTS, "q"))
        .replace("SINE", _write_polynomial(random.SINE_COEFFICIENTS, "q"))
        .replace("WAVE", _write_polynomial(SINE_RATIO_COEFFICIENTS, "q"))
    )


def _reductions() -> str:
    """Return the macro calls that define reductions and scans for each type."""
    lines = []
    for suffix, c_type in (*FLOATS, *((suffix, c_type) for suffix, c_type, *_ in INTEGERS)):
        for op in ["add", "mul", "max", "min"] + (["and", "or", "xor"] if suffix[0] != "f" else []):
            name = f"{op}_{suffix}"
            in_warp = f"WARP_BY_SHUFFLES({c_type}, {name}, {name})"
            if op in ("max", "min"):
                in_warp = f"WARP_{op.upper()}IMUM({c_type}, {name})"
            elif op == "add" and suffix in ("i32", "u32"):
                in_warp = f"WARP_SUM({c_type}, {name}, {name})"
            lines.append(f"REDUCTION({c_type}, {name}, {name}, {in_warp})")
            if op in ("add", "mul", "max", "min"):
                lines.append(f"SCAN({c_type}, {name}, {name})")
            if op == "add" and suffix[0] != "f":
                lines.append(f"ATOMIC_SUM({c_type}, {'u32' if suffix[1:] == '32' else 'u64'}, {name})")
            elif op in ("max", "min"):
                lines.append(f"ATOMIC_{op.upper()}IMUM({c_type}, {name})")
        lines.append(f"ARG_EXTREME({c_type}, least_{suffix}, <, FIRST_LEAST({c_type}, least_{suffix}))")
        lines.append(f"ARG_EXTREME({c_type}, most_{suffix}, >, FIRST_MOST({c_type}, most_{suffix}))")
    return "\n".join(lines) + "\n"


PRELUDE = "".join(
    (
        read_c("targets.c"),
        _arithmetic(),
        _random(),
        read_c("reductions.c"),
        read_c("scan.c"),
        _reductions(),
        read_c("cholesky.c"),
        read_c("sorting.c"),
        read_c("bitplanes.c"),
        "\n",
    )
)
