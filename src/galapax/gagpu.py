"""The files of GAGPU (manual, version 1.1), so that its users' settings and scripts go on working.

config.h holds the settings as #define lines. History.txt has a row for each generation: its number from 0, the best x,
the best fitness. TestHist.txt has a row for each test (run) with the best fitness of every generation. Both are
separated by tabs, with numbers as C's %g prints them.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from galapax.algorithms.ga import GA
from galapax.errors import InputError
from galapax.result import Result, all_runs

NEEDED = {"NO_GEN": int, "NO_KIDS": int, "NO_VAR": int, "FR": float, "SIG": float, "NO_TESTS": int}
_OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
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
    defined = dict(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\S.*?)[ \t]*$", text, flags=re.MULTILINE))
    missing = [name for name in NEEDED if name not in defined]
    if missing:
        raise InputError(
            f"{path} does not #define {', '.join(missing)}; a GAGPU configuration has {', '.join(NEEDED)}."
        )
    settings: dict[str, Any] = {}
    for name, kind in NEEDED.items():
        value = _number(name, defined, path, ())
        if kind is int and value != int(value):
            raise InputError(f"{name} in {path} must be a whole number, got {value:g}.")
        settings[name] = kind(value)
    return settings


def _number(name: str, defined: dict[str, str], path: Path, seen: tuple[str, ...]) -> float:
    """What a name stands for; expressions such as (TPB*BPG) are worked out from the other names."""
    if name not in defined or name in seen:
        raise InputError(f"{path} uses {name}, whose value it does not give as a number.")
    text = re.sub(r"(?<=[\d.])[fFlLuU]+\b", "", defined[name])  # C's suffixes, as in 2.0f
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise InputError(f"{name} in {path} must be a number, got {defined[name]!r}.") from None

    def value(node: ast.AST) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=other):
                return _number(other, defined, path, (*seen, name))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(operand))
        raise InputError(f"{name} in {path} must be a number, got {defined[name]!r}.")

    try:
        return value(tree)
    except ZeroDivisionError:
        raise InputError(f"{name} in {path} divides by zero: {defined[name]!r}.") from None


def algorithm_of(settings: dict[str, Any]) -> GA:
    """The GA that a configuration asks for."""
    return GA(population=settings["NO_KIDS"], fr=settings["FR"], sigma=settings["SIG"], bounds_at_start_only=True)


def export(result: Result, folder: str | Path) -> list[Path]:
    """Write History.txt (of the best run) and TestHist.txt (of all runs) to a folder."""
    runs = all_runs(result)
    if result.history is None or runs.history is None:
        raise InputError("this run was made or loaded without its history, so there is nothing to export.")
    if result.history.x is None:
        raise InputError(
            "History.txt has the best x of every generation, which this run did not keep: run it again with "
            'history="x" (on the command line --history-x).'
        )
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    table = np.column_stack([np.arange(len(result.history)), result.history.x, result.history.best])
    history, tests = path / "History.txt", path / "TestHist.txt"
    np.savetxt(history, table, fmt=["%d"] + ["%g"] * (table.shape[1] - 1), delimiter="\t")
    np.savetxt(tests, runs.history.best, fmt="%g", delimiter="\t")
    return [history, tests]
