"""Prints the loop IR as C, in the functions and macros of prelude.py, by which a GPU and a CPU differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from galapax.fused.loop_ir import (
    Accumulate,
    Accumulator,
    Assign,
    Axis,
    Barrier,
    BarrierScope,
    Break,
    Call,
    Declare,
    Fold,
    For,
    If,
    Let,
    OneThread,
    Reduce,
    Statement,
    Store,
    Swap,
    Value,
)


def print_statements(statements: Iterable[Statement], indent: str = "") -> list[str]:
    """Return the lines of statements in C."""
    return [indent + line for statement in statements for line in _print_lines(statement)]


def _print_lines(statement: Statement) -> Iterator[str]:
    match statement:
        case For():
            yield f"{_loop_head(statement)} {{"
            if statement.element:  # the threads of a group take an element together
                q, threads = statement.variable, f"GROUP({statement.group})"
                yield f"  const int {statement.element} = (int)((u32){q} / {threads});"
                yield f"  const int lane = (int)((u32){q} % {threads});"
            yield from print_statements(statement.body, "  ")
            yield "}"
        case If():
            for number, (condition, body) in enumerate(statement.branches):
                keyword = "else " if number else ""
                yield f"{keyword}if ({condition}) {{" if condition else f"{keyword}{{"
                yield from print_statements(body, "  ")
                yield "}"
        case OneThread():
            yield f"{'LAST' if statement.is_last else 'FIRST'} {{"
            yield from print_statements(statement.body, "  ")
            yield "}"
        case _:
            yield _print_line(statement)


def _print_line(statement: Statement) -> str:
    match statement:
        case Let(c_type, name, value):
            return f"const {c_type} {name} = {_text(value)};"
        case Declare(c_type, name, initial, length):
            return f"{c_type} {name}{f'[{length}]' if length else ''}{f' = {initial}' if initial else ''};"
        case Assign(target, value, operator):
            return f"{target} {operator} {_text(value)};"
        case Store(array, offset, value, c_type, mask):
            guard = "" if mask is None else f"{'CHANGES' if mask.is_optional else 'if'} ({mask.condition}) "
            return f"{guard}{array}[{offset}] = {f'({c_type})' if c_type else ''}{_text(value)};"
        case Swap(a, b, c_type, temporary):
            return f"{{ {c_type} *{temporary} = {a}; {a} = {b}; {b} = {temporary}; }}"
        case Break(condition):
            return f"if ({condition}) break;"
        case Barrier(scope):
            return "BARRIER" if scope is BarrierScope.RUN else "BLOCK_BARRIER"
        case Call():
            result = f"{statement.result} = " if statement.result else ""
            return f"{result}{_call(statement.function, *statement.arguments)};"
        case Accumulator(c_type, name, identity, position):
            arguments = (c_type, name, position, identity) if position else (c_type, name, identity)
            return f"{_call('TOTAL_BEST' if position else 'TOTAL', *arguments)};"
        case Accumulate():
            return _print_accumulate(statement)
        case Reduce():
            return _print_reduce(statement)
    raise TypeError(f"no statement: {statement}")


def _text(value: Value) -> str:
    return value if isinstance(value, str) else value.text


def _call(function: str, *arguments: object) -> str:
    return f"{function}({', '.join(map(str, arguments))})"


def _loop_head(loop: For) -> str:
    i, n, group = loop.variable, str(loop.extent), f"GROUP({loop.group})"
    folds = [f"({', '.join(_print_fold(fold, i) for fold in loop.folds)})"] if loop.folds else []
    unrolled = "WRITTEN_OUT " if loop.is_unrolled else ""
    match loop.axis:
        case Axis.GENERATION:
            return "for (; g < count; g++)"
        case Axis.HISTORY:
            return "for (; g < rows; g++)"
        case Axis.TILE:
            return _call("OVER_PIECE", loop.turn, i, n, int(loop.is_redundant))
        case Axis.SERIAL if not i:
            return "for (;;)"
        case Axis.SERIAL if loop.end:
            return f"for (int {i} = {loop.start}; {i} <= {loop.end}; {i}++)"
        case Axis.SERIAL:
            return _call("STEPS_OF", i, n, folds[0][1:-1]) if folds else f"for (int {i} = 0; {i} < {n}; {i}++)"
        case Axis.GROUP if folds:
            return unrolled + _call("GROUP_STEPS_OF", i, n, group, folds[0][1:-1])
        case Axis.GROUP:
            return _call("FETCH_STEPS", i, n, group) if unrolled else _call("SHARED_OUT", i, n, "lane", group)
    suffix = "_OF" if folds else "_WORDS" if loop.whole_warps else "_ATOMIC" if loop.has_atomics else ""
    macro = "BLOCK_LOOP" if loop.axis is Axis.BLOCK else "LOOP_BACK" if loop.is_reversed else "LOOP"
    step = [] if loop.step == 1 else [loop.step]
    extent = n if loop.group == 1 else f"{n} * {group}"
    return unrolled + _call(("LOOP_BY" if step else macro) + suffix, i, extent, *step, *folds)


def _print_fold(fold: Fold, variable: str) -> str:
    if fold.position:
        return _call("FOLD_BEST", fold.operation, fold.accumulator, fold.position, variable)
    return _call("FOLD", fold.operation, fold.accumulator, variable)


def _print_accumulate(s: Accumulate) -> str:
    macro = "SEEN_BEST" if s.position else "SEEN"
    accumulators, values = (s.accumulator, s.position), (s.value, s.value_position)
    n = 2 if s.position else 1
    call = _call(macro + "_TOO" * s.is_repeated, s.operation, *accumulators[:n], s.variable, *values[:n])
    return f"if ({s.condition}) {call};" if s.condition else f"{call};"


def _print_reduce(s: Reduce) -> str:
    accumulator = [text for text in (s.accumulator, s.position) if text]
    identity = [s.identity] if s.identity else []
    turn = [] if s.accumulator else [s.turn]
    has_position = s.position or not (s.accumulator or s.identity)
    return (
        f"{_call(s.phase.value + '_BEST' * bool(has_position), s.operation, *accumulator, *identity, s.slot, *turn)};"
    )
