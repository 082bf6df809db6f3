"""Prints the loop IR as C for a target: barriers, loops and reductions differ between a GPU and a CPU.

A target prints a barrier, the condition for a single thread, the head of a loop that threads share or that is folded,
what stands before a masked store, and accumulators and phases of reductions. That calls the functions of the folder c/,
which define each operation for each type; macros remain for what stands inside expressions, such as a thread's number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from galapax.fused import loop_ir as ir
from galapax.fused.cost_model import MAX_CLUSTER_BLOCKS

HOST_TILE = 128  # iterations of a loop whose results a CPU combines together


@dataclass(frozen=True)
class CudaTarget:
    """A GPU, where `blocks` blocks of `threads` threads compute a run."""

    blocks: int
    threads: int

    @property
    def is_one_warp(self) -> bool:
        """True if a warp computes a run: it knows the result of a reduction at once."""
        return self.blocks == 1 and self.threads == 32

    @property
    def is_grid(self) -> bool:
        return self.blocks > MAX_CLUSTER_BLOCKS

    def choose(self, value: ir.ByTarget) -> ir.Expr:
        return value.gpu

    def count_group(self, threads: int) -> int:
        return threads

    def print_barrier(self, scope: ir.BarrierScope) -> str:
        if scope is ir.BarrierScope.RUN and self.blocks > 1:
            return "run_barrier();"
        return "__syncwarp();" if self.threads == 32 else "__syncthreads();"

    def print_one_thread(self, is_last: bool) -> str:
        return "if (THE_LAST && LANE == 0) " if is_last else "if (THREAD == 0) "

    def print_loop(self, loop: ir.For) -> str:
        i, n = loop.variable, loop.extent
        unrolled = '_Pragma("unroll") ' if loop.is_unrolled else ""
        if loop.axis is ir.Axis.TILE:
            block, turns = (
                "" if loop.is_redundant else "RUN_BLOCK * WARPS + ",
                f"TILE_TURNS({n}, {int(loop.is_redundant)})",
            )
            turn, first = loop.turn, f"({block}WARP) * {turns} * 32 + LANE"
            return f"for (int {turn} = 0, {i} = {first}; {turn} < {turns}; {turn}++, {i} += 32)"
        if loop.axis is ir.Axis.SERIAL:
            return f"for (int {i} = 0; {i} < {n}; {i}++)"
        if loop.axis is ir.Axis.GROUP:
            return unrolled + self._print_turns(i, n, "lane", loop.group)
        total = self.blocks * self.threads
        first, step = ("(int)threadIdx.x", self.threads) if loop.axis is ir.Axis.BLOCK else ("THREAD", total)
        if loop.whole_warps:  # lanes beyond the end repeat the last element
            end = -(-n // 32) * 32
            repeat = f"{i} = turn_{i} < {n} ? turn_{i} : {n - 1}"
            return f"for (int {i}, turn_{i} = {first}; turn_{i} < {end} && ({repeat}, 1); turn_{i} += {step})"
        if loop.is_reversed:
            first = f"{total} - 1 - {first}"
        if loop.step > 1:
            return f"{unrolled}for (int {i} = {first}; {i} < {n * loop.group}; {i} += {loop.step * total})"
        return unrolled + self._print_turns(i, n * loop.group, first, step)

    @staticmethod
    def _print_turns(i: str, n: int, first: str, step: int) -> str:
        """Return a loop whose number of turns is known when it is compiled, so that a short one can be unrolled."""
        is_inside = "" if n % step == 0 else f" && {i} < {n}"
        turns = f"turn_{i} < {-(-n // step)}{is_inside}"
        return f"for (int {i} = {first}, turn_{i} = 0; {turns}; turn_{i}++, {i} += {step})"

    def print_store_mask(self, mask: ir.Mask) -> str:
        return f"if ({mask.condition}) "

    def print_accumulator(self, s: ir.Accumulator) -> str:
        position = f" int {s.position} = MOST_i32;" if s.position else ""
        return f"{s.c_type} {s.name} = {s.identity};{position}"

    def print_accumulate(self, s: ir.Accumulate) -> str:
        if not s.position:
            return f"{s.accumulator} = {_call(s.operation, s.accumulator, s.value)};"
        later = _call(f"later_{s.operation}", s.value, s.accumulator, s.position)
        return f"if ({later}) {{ {s.accumulator} = {s.value}; {s.position} = {s.value_position}; }}"

    def print_reduce(self, s: ir.Reduce) -> str:
        n, slot, shared = s.operation, _slot(s.slot), f"BLOCK_SLOT({s.slot})"
        if s.phase is ir.Phase.WARP:
            value = (s.accumulator, s.position) if s.position else (s.accumulator,)
            if not self.is_one_warp:
                return f"{_call(f'store_warp_{n}', *value, slot)};"
            return f"{value[-1]} = {_call(f'reduce_warp_{n}', *(f'&{v}' for v in value[:-1]), value[-1])};"
        of_block = slot if s.has_position else _call(f"gather_{n}", s.identity, slot, "WARPS")
        match s.phase:
            case ir.Phase.PUBLISH:
                action = f"{_call(f'publish_{n}', of_block, shared)};"
            case ir.Phase.ATOMIC:
                action = f"{_call(f'atomic_{n}', of_block, f'ATOMIC_SLOT({s.slot}, g)')};"
            case ir.Phase.GATHER if s.has_position:
                position = _call(f"gather_{n}", shared, "RUN_BLOCKS", "8 * RUN_BLOCKS")
                action = f"{{ int i = {position}; if (LANE == 0) *(int *){slot} = i; }}"
            case _:
                action = (
                    f"{_call(f'store_block_{n}', _call(f'gather_{n}', s.identity, shared, 'RUN_BLOCKS'), slot, 0)};"
                )
        return f"if (WARP == {s.turn} % WARPS) {action}"

    def print_take(self, take: ir.Take) -> str:
        n, slot = take.operation, _slot(take.slot)
        match take.broadcast:
            case ir.Broadcast.PER_BLOCK if self.is_one_warp:
                return take.accumulator
            case ir.Broadcast.PER_BLOCK if take.is_value:
                return _call(f"value_{n}", slot, "WARPS", "8 * WARPS")
            case ir.Broadcast.PER_BLOCK if take.identity:
                return _call(f"gather_{n}", take.identity, slot, "WARPS")
            case ir.Broadcast.PER_BLOCK:
                return _call(f"gather_{n}", slot, "WARPS", "8 * WARPS")
            case ir.Broadcast.ATOMIC:
                return f"atomic_result_{n}(ATOMIC_SLOT({take.slot}, g))"
            case ir.Broadcast.GATHER:
                return f"load_{n}({slot})" if take.identity else f"(*(const int *){slot})"
        shared = f"BLOCK_SLOT({take.slot})"
        count = ("RUN_BLOCKS",) if take.identity else ("RUN_BLOCKS", "8 * RUN_BLOCKS")
        whole = _call(f"gather_{n}", *([take.identity] if take.identity else []), shared, *count)
        return whole if not self.is_grid else f"(THE_LAST ? {whole} : {take.identity or 0})"


class HostTarget:
    """A CPU, where one thread takes the place of all of a run's.

    What a loop accumulates it stores, a tile of iterations at a time, and a function then combines the tile by vector
    instructions: accumulated in the loop itself, it would keep the iterations in order.
    """

    def choose(self, value: ir.ByTarget) -> ir.Expr:
        return value.cpu

    def count_group(self, threads: int) -> int:
        return 1

    def print_barrier(self, scope: ir.BarrierScope) -> str:
        return ""

    def print_one_thread(self, is_last: bool) -> str:
        return ""

    def print_loop(self, loop: ir.For) -> str:
        i, n = loop.variable, loop.extent
        if loop.axis is ir.Axis.TILE:
            return f"for (int {loop.turn} = 0, {i} = 0; {i} < {n}; {i}++)"
        if loop.axis is ir.Axis.GROUP and loop.is_unrolled and not loop.folds:  # loads in advance, which none reads
            return f"for (int {i} = 0, turn_{i} = 0; {i} < 0; {i}++)"
        if loop.folds:
            folds = ", ".join(self._print_fold(fold, i) for fold in loop.folds)
            end = f"end_{i} = {n} - tile_{i} < {HOST_TILE} ? {n} : tile_{i} + {HOST_TILE}"
            tiles = f"for (int tile_{i} = 0, by_{i} = {loop.step}, end_{i}; tile_{i} < {n} && ({end}, 1);"
            inner = f"APART for (int {i} = tile_{i}; {i} < end_{i}; {i} += {loop.step})"
            return f"{tiles} {folds}, tile_{i} += {HOST_TILE}) {inner}"
        is_apart = loop.axis in (ir.Axis.THREAD, ir.Axis.BLOCK) and loop.step == 1
        apart = "APART " if is_apart and not (loop.has_atomics or loop.whole_warps) else ""
        turn = f", turn_{i} = 0" if loop.axis is ir.Axis.GROUP else ""
        step = f"{i}++" if loop.step == 1 else f"{i} += {loop.step}"
        return f"{apart}for (int {i} = 0{turn}; {i} < {n}; {step})"

    def _print_fold(self, fold: ir.Fold, i: str) -> str:
        count = f"(end_{i} - tile_{i} + by_{i} - 1) / by_{i}"
        s, at = fold.accumulator, fold.position
        if at:
            return f"{at} = {_call(f'fold_{fold.operation}', f'&{s}', at, f'{s}_of', f'{at}_of', count)}"
        return f"{s} = {_call(f'fold_{fold.operation}', s, f'{s}_of', count)}"

    def print_store_mask(self, mask: ir.Mask) -> str:
        return "" if mask.is_optional else f"if ({mask.condition}) "  # an element that stays is written again

    def print_accumulator(self, s: ir.Accumulator) -> str:
        position = f" int {s.position} = MOST_i32, {s.position}_of[{HOST_TILE}];" if s.position else ""
        return f"{s.c_type} {s.name} = {s.identity}, {s.name}_of[{HOST_TILE}];{position}"

    def print_accumulate(self, s: ir.Accumulate) -> str:
        place = f"[(({s.variable} - tile_{s.variable}) / by_{s.variable})]"
        element, position = f"{s.accumulator}_of{place}", f"{s.position}_of{place}"
        if not s.position:
            value = _call(s.operation, element, s.value) if s.is_repeated else s.value
            return f"{element} = {value};"
        update = f"{{ {element} = {s.value}; {position} = {s.value_position}; }}"
        return f"if ({_call(f'later_{s.operation}', s.value, element, 0)}) {update}" if s.is_repeated else update

    def print_reduce(self, s: ir.Reduce) -> str:
        if s.phase is not ir.Phase.WARP:
            return ""
        value = (s.accumulator, s.position) if s.position else (s.accumulator,)
        return f"{_call(f'store_warp_{s.operation}', *value, _slot(s.slot))};"

    def print_take(self, take: ir.Take) -> str:
        return take.accumulator if take.is_value else f"load_result_{take.operation}({_slot(take.slot)})"


Target = CudaTarget | HostTarget


def print_statements(statements: Iterable[ir.Statement], target: Target, indent: str = "") -> list[str]:
    """Return the lines of statements in C."""
    return [indent + line for statement in statements for line in _print_lines(statement, target) if line]


def _print_lines(statement: ir.Statement, target: Target) -> Iterator[str]:
    match statement:
        case ir.For():
            yield f"{_loop_head(statement, target)} {{"
            if statement.element:  # the threads of a group take an element together
                q, threads = statement.variable, target.count_group(statement.group)
                yield f"  const int {statement.element} = (int)((u32){q} / {threads});"
                yield f"  const int lane = (int)((u32){q} % {threads});"
            yield from print_statements(statement.body, target, "  ")
            yield "}"
        case ir.If():
            for number, (condition, body) in enumerate(statement.branches):
                keyword = "else " if number else ""
                yield f"{keyword}if ({condition}) {{" if condition else f"{keyword}{{"
                yield from print_statements(body, target, "  ")
                yield "}"
        case ir.OneThread():
            yield f"{target.print_one_thread(statement.is_last)}{{"
            yield from print_statements(statement.body, target, "  ")
            yield "}"
        case _:
            yield _print_line(statement, target)


def _print_line(statement: ir.Statement, target: Target) -> str:
    match statement:
        case ir.Let(c_type, name, value):
            return f"const {c_type} {name} = {_print_value(value, target)};"
        case ir.Declare(c_type, name, initial, length):
            return f"{c_type} {name}{f'[{length}]' if length else ''}{f' = {initial}' if initial else ''};"
        case ir.Assign(assigned, value, operator):
            return f"{assigned} {operator} {_print_value(value, target)};"
        case ir.Store(array, offset, value, c_type, mask):
            guard = "" if mask is None else target.print_store_mask(mask)
            return f"{guard}{array}[{offset}] = {f'({c_type})' if c_type else ''}{_print_value(value, target)};"
        case ir.Swap(a, b, c_type, temporary):
            return f"{{ {c_type} *{temporary} = {a}; {a} = {b}; {b} = {temporary}; }}"
        case ir.Break(condition):
            return f"if ({condition}) break;"
        case ir.Barrier(scope):
            return target.print_barrier(scope)
        case ir.Call():
            result = f"const int {statement.result} = " if statement.result else ""
            return f"{result}{_call(statement.function, *statement.arguments)};"
        case ir.Accumulator():
            return target.print_accumulator(statement)
        case ir.Accumulate(condition=condition):
            update = target.print_accumulate(statement)
            return f"if ({condition}) {{ {update} }}" if condition else update
        case ir.Reduce():
            return target.print_reduce(statement)
    raise TypeError(f"no statement: {statement}")


def _print_value(value: ir.Value, target: Target) -> str:
    if isinstance(value, ir.Take):
        return target.print_take(value)
    if isinstance(value, ir.ByTarget):
        return target.choose(value).text
    return value if isinstance(value, str) else value.text


def _call(function: str, *arguments: object) -> str:
    return f"{function}({', '.join(map(str, arguments))})"


def _slot(number: int) -> str:
    """Return the address at which warps leave their partial results."""
    return f"WARP_SLOT({number})"


def _loop_head(loop: ir.For, target: Target) -> str:
    i = loop.variable
    match loop.axis:
        case ir.Axis.GENERATION:
            return "for (; g < count; g++)"
        case ir.Axis.HISTORY:
            return "for (; g < rows; g++)"
        case ir.Axis.SERIAL if not i:
            return "for (;;)"
        case ir.Axis.SERIAL if loop.end:
            return f"for (int {i} = {loop.start}; {i} <= {loop.end}; {i}++)"
    return target.print_loop(loop)
