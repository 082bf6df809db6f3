"""The files of GAGPU (manual, version 1.1), so that its users' settings and scripts go on working.

config.h holds the settings as #define lines. History.txt has a row for each generation: its number from 0, the best x,
the best fitness. TestHist.txt has a row for each test (run) with the best fitness of every generation. Both are
separated by tabs, with numbers as C's %g prints them.
"""

from __future__ import annotations

import ast
import io
import math
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from galapax.algorithms.ga import ThreeParentGA
from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.results.result import Result, all_runs
from galapax.storage.atomic import write_bytes

REQUIRED_SETTINGS = {"NO_GEN": int, "NO_KIDS": int, "NO_VAR": int, "FR": float, "SIG": float, "NO_TESTS": int}
_OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def read_config(file: str | Path) -> dict[str, Any]:
    """The settings in a config.h: NO_GEN, NO_KIDS, NO_VAR, FR, SIG and NO_TESTS as numbers."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror or error}.") from None
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text.replace("\\\n", " "), flags=re.DOTALL)
    macros = dict(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\S.*?)[ \t]*$", text, flags=re.MULTILINE))
    missing = [name for name in REQUIRED_SETTINGS if name not in macros]
    if missing:
        raise InputError(
            f"{path} does not #define {', '.join(missing)}; a GAGPU configuration has {', '.join(REQUIRED_SETTINGS)}."
        )
    settings: dict[str, object] = {}
    for name, kind in REQUIRED_SETTINGS.items():
        try:
            value = _evaluate(_expand_macros(macros[name], macros, path, (name,)))
            if not math.isfinite(value):
                raise ValueError
            settings[name] = kind(value)
        except InputError:
            raise
        except ZeroDivisionError:
            raise InputError(f"{name} in {path} divides by zero: {abbreviate(macros[name])}.") from None
        except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
            raise InputError(f"{name} in {path} must be a number, got {abbreviate(macros[name])}.") from None
        if settings[name] != value:
            raise InputError(f"{name} in {path} must be a whole number, got {value:g}.")
    return settings


_NUMBER = r"0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


# other signs than those of sums and products, attributes, words of Python, numbers that run into letters
_FORBIDDEN = rf"[^\w\s.+\-*/()]|(?<!\d)\.\s*[A-Za-z_]|\b(?:if|else)\b|(?<![\w.])(?>(?:{_NUMBER})[fFlLuU]*)[A-Za-z_]"


def _expand_macros(text: str, macros: dict[str, str], path: Path, expanding: tuple[str, ...]) -> str:
    """Expand macros as C's preprocessor does, and remove the suffixes of C's numbers."""

    if re.search(_FORBIDDEN, text):
        raise ValueError

    def token(match: re.Match[str]) -> str:
        if match["number"]:
            return match["number"]
        name = match["name"]
        if name not in macros or name in expanding:
            raise InputError(f"{path} uses {name}, which it does not define as a number.")
        return _expand_macros(macros[name], macros, path, (*expanding, name))

    expanded = re.sub(rf"(?P<number>{_NUMBER})[fFlLuU]*(?!\w)|(?P<name>[A-Za-z_]\w*)", token, text)
    if len(expanded) > 1000:
        raise ValueError
    return expanded


def _evaluate(text: str) -> int | float:
    """An expression of numbers, signs, sums, products and brackets; the quotient of whole numbers is whole, as in C."""

    def value(node: ast.AST) -> int | float:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                a, b = value(left), value(right)
                return int(a / b) if isinstance(a, int) and isinstance(b, int) else a / b
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(operand))
        raise ValueError

    return value(ast.parse(text.strip(), mode="eval").body)


def build_algorithm(settings: dict[str, Any]) -> ThreeParentGA:
    """Build the GA that a configuration describes."""
    return ThreeParentGA(
        population=settings["NO_KIDS"], fr=settings["FR"], sigma=settings["SIG"], bounds_at_start_only=True
    )


def export(result: Result, folder: str | Path) -> list[Path]:
    """Write History.txt (of the best run) and TestHist.txt (of all runs) to a folder."""
    runs = all_runs(result)
    if result.history is None or runs.history is None:
        raise InputError("this run has no history, so there is nothing to export.")
    if result.history.x is None:
        raise InputError(
            "History.txt has the best x of every generation, which this run did not keep: run it again with "
            'history="x" (on the command line --history-x).'
        )
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    table = np.column_stack([np.arange(len(result.history)), result.history.x, result.history.best])
    history, tests = path / "History.txt", path / "TestHist.txt"
    for file, rows, number_format in (
        (history, table, ["%d"] + ["%g"] * (table.shape[1] - 1)),
        (tests, runs.history.best, "%g"),
    ):
        text = io.StringIO()
        np.savetxt(text, rows, fmt=number_format, delimiter="\t")
        write_bytes(file, text.getvalue().encode())
    return [history, tests]
