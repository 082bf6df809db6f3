"""Passes on the loop IR: dead stores, history in registers, and which arrays share bytes of shared memory."""

import ast
import dataclasses
import graphlib
import re
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

import galapax as gx
from galapax.fused import backend, cpu_kernel, kernel, kernel_source, passes
from galapax.fused.kernel import explain_kernel
from galapax.fused.loop_ir import (
    Accumulate,
    Accumulator,
    Assign,
    Axis,
    Barrier,
    BarrierScope,
    Broadcast,
    Buffer,
    Declare,
    Fold,
    For,
    If,
    Let,
    Load,
    Mask,
    OneThread,
    Phase,
    Reduce,
    Store,
    Swap,
    Take,
    compose,
)
from galapax.fused.print_c import CudaTarget, HostTarget, print_statements
from galapax.numerics import devices

needs_cc = pytest.mark.skipif(
    cpu_kernel.find_compiler() is None or not devices.on_cpu(), reason="needs a C compiler and JAX on a CPU"
)
BARRIER = Barrier(BarrierScope.RUN)


def allocate(statements, sizes, end=10_000):
    """Return where arrays of so many float32 lie."""
    buffers = [Buffer(name, size, "float32", True) for name, size in sizes.items()]
    return passes.plan_shared_memory(statements, buffers, 0, end)


def generation(*inside, before=(), after=()):
    return [*before, For(Axis.GENERATION, body=deepcopy([*inside])), *after]


def share(statements, first="b1", second="b2"):
    offsets = allocate(statements, {first: 4, second: 4, "b3": 4})
    return offsets[first] == offsets[second]


def write(array, value="t", mask=None):
    return For(Axis.THREAD, "i", 4, [Store(array, "i", value, mask=mask)])


def read(array):
    return For(Axis.THREAD, "i", 4, [Let("float", "s", Load(array, "i", (array,)))])


def copy(source, target):
    return write(target, Load(source, "i", (source,)))


def repeat(*body):
    return For(Axis.SERIAL, "c", 9, [*body])


FIRST, SECOND = ([write(array), BARRIER, read(array)] for array in ("b1", "b2"))
SWAP = Swap("b1", "b3", "float", "p3")


def test_arrays_that_are_used_one_after_the_other_share_memory():
    assert share(generation(*FIRST, BARRIER, *SECOND, BARRIER))
    assert share(generation(BARRIER, *FIRST, BARRIER, *SECOND))
    assert share(generation(If([("t", [*FIRST, BARRIER, *SECOND, BARRIER])])))


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(generation(*FIRST, *SECOND, BARRIER), id="no barrier between them"),
        pytest.param(generation(*FIRST, BARRIER, *SECOND), id="none before the next generation"),
        pytest.param(generation(*FIRST, If([("t", [BARRIER])]), *SECOND, BARRIER), id="a barrier under a condition"),
        pytest.param(
            generation(write("b1"), BARRIER, copy("b1", "b2"), BARRIER, read("b2"), BARRIER),
            id="one is a copy of the other",
        ),
        pytest.param(
            generation(read("b1"), BARRIER, write("b1"), BARRIER, *SECOND, BARRIER),
            id="live from the generation before",
        ),
        pytest.param(
            generation(write("b1", mask=Mask("t")), BARRIER, *SECOND, BARRIER), id="written under a condition"
        ),
        pytest.param(generation(*FIRST, BARRIER, *SECOND, BARRIER, before=[write("b1")]), id="live before"),
        pytest.param(generation(*FIRST, BARRIER, *SECOND, BARRIER, after=[read("b2")]), id="live after"),
        pytest.param(generation(*FIRST, BARRIER, *SECOND, BARRIER, SWAP), id="the next generation's"),
        pytest.param(
            generation(*FIRST, repeat(read("b1"), BARRIER, *SECOND, BARRIER), BARRIER), id="read in every iteration"
        ),
    ],
)
def test_arrays_that_may_be_live_together_lie_apart(statements):
    assert not share(statements)


@pytest.mark.parametrize("mask", [Mask("lane == 0", is_full=True), Mask("k < n", is_full=True)])
def test_a_mask_under_which_some_thread_stores_every_element_begins_a_live_range(mask):
    assert share(generation(write("b1", mask=mask), BARRIER, read("b1"), BARRIER, *SECOND, BARRIER))


def test_arrays_that_are_exchanged_in_a_loop_are_live_as_long_as_it_goes_on():
    exchange = [copy("b1", "b3"), BARRIER, SWAP]
    statements = generation(write("b1"), BARRIER, repeat(*exchange), read("b1"), BARRIER, *SECOND, BARRIER)
    offsets = allocate(statements, {"b1": 4, "b2": 4, "b3": 4})
    assert offsets["b1"] != offsets["b3"]
    assert offsets["b2"] in (offsets["b1"], offsets["b3"])  # after the loop
    inside = generation(write("b1"), BARRIER, repeat(*exchange, *SECOND, BARRIER), read("b1"), BARRIER)
    assert len(set(allocate(inside, {"b1": 4, "b2": 4, "b3": 4}).values())) == 3


def test_arrays_of_inner_loops_are_placed_first():
    statements = generation(*FIRST, *SECOND, repeat(write("b9"), BARRIER, read("b9"), BARRIER), BARRIER)
    sizes = {"b1": 8, "b2": 100, "b9": 60}
    assert allocate(statements, sizes, end=300) == {"b9": 0, "b1": 0}  # 400 bytes are too many besides b9
    assert allocate(statements, sizes) == {"b9": 0, "b1": 0, "b2": 240}
    assert allocate(statements, sizes | {"b9": 61})["b2"] == 256  # a multiple of 16 bytes


def test_stores_are_dead_where_nothing_reads_the_array():
    buffers = [Buffer(name, 4, "float32", True) for name in ("b1", "b2", "b3", "b4")]
    statements = generation(write("b1"), If([("t", [write("b2")])]), copy("b1", "b3"), BARRIER, Assign("c", "1"))
    statements, live = passes.eliminate_dead_stores(statements, buffers)
    assert [b.name for b in live] == ["b1"]  # b2 is only written, so is b3, and nothing mentions b4
    assert print_statements(statements, HostTarget()) == [
        "for (; g < count; g++) {",
        "  APART for (int i = 0; i < 4; i++) {",
        "    b1[i] = t;",
        "  }",
        "  if (t) {",
        "    APART for (int i = 0; i < 4; i++) {",
        "    }",
        "  }",
        "  APART for (int i = 0; i < 4; i++) {",
        "  }",
        "  c = 1;",
        "}",
    ]


@pytest.mark.parametrize(
    ("blocks", "threads", "barrier", "loop"),
    [
        (1, 32, "__syncwarp();", "turn_i < 4 && i < 100; turn_i++, i += 32"),
        (1, 128, "__syncthreads();", "turn_i < 1 && i < 100; turn_i++, i += 128"),
        (16, 128, "run_barrier();", "turn_i < 1 && i < 100; turn_i++, i += 2048"),
    ],
)
def test_a_target_prints_its_own_barriers_loops_and_reductions(blocks, threads, barrier, loop):
    fold = Fold("max_f32", "s")
    statements = [
        Accumulator("float", "s", "-INF32"),
        For(Axis.THREAD, "i", 100, [Accumulate("max_f32", "s", "i", "x")], folds=(fold,)),
        Reduce(Phase.WARP, "max_f32", 2, "s"),
        BARRIER,
        Let("float", "r", Take(Broadcast.PER_BLOCK, "max_f32", 2, "s", "-INF32")),
    ]
    reduce, result = "store_warp_max_f32(s, WARP_SLOT(2));", "gather_max_f32(-INF32, WARP_SLOT(2), WARPS)"
    if threads == 32:  # a warp knows the result at once
        reduce, result = "s = reduce_warp_max_f32(s);", "s"
    assert print_statements(statements, CudaTarget(blocks, threads)) == [
        "float s = -INF32;",
        f"for (int i = THREAD, turn_i = 0; {loop}) {{",
        "  s = max_f32(s, x);",
        "}",
        reduce,
        barrier,
        f"const float r = {result};",
    ]
    host = print_statements(statements, HostTarget())
    assert host[0] == "float s = -INF32, s_of[128];"
    assert "s = fold_max_f32(s, s_of, " in host[1] and host[2] == "  s_of[((i - tile_i) / by_i)] = x;"
    assert host[4:] == ["store_warp_max_f32(s, WARP_SLOT(2));", "const float r = load_result_max_f32(WARP_SLOT(2));"]


def let(name, text, *operands):
    return Let("int", name, compose(text, *operands))


def load(name, array, offset):
    return Let("int", name, Load(array, offset, (array,)))


def result(name):
    return Let("float", name, Take(Broadcast.PER_BLOCK, "min_f32", 2, "s", "INF32"))


def history_row(*values):
    address = Declare("float *", passes.HISTORY_ROW, compose("history + (number - start) * row", "number", "start"))
    return OneThread([address, *(Store(passes.HISTORY_ROW, str(c), value) for c, value in enumerate(values))])


def test_rows_of_history_are_written_32_at_a_time():
    body = [
        result("r1"),
        let("t2", "r1 + 1", "r1"),
        let("t3", "c4 + 1", "c4"),
        history_row("t2", "r1"),
        Assign("c4", "t3"),
    ]
    assert print_statements(passes.buffer_history([For(Axis.GENERATION, body=body)]), CudaTarget(1, 64)) == [
        "float w_r1 = 0;",
        "for (; g < count; g++) {",
        "  const float r1 = gather_min_f32(INF32, WARP_SLOT(2), WARPS);",
        "  const int t3 = c4 + 1;",
        "  if (LANE == g % 32) {",
        "    w_r1 = r1;",
        "  }",
        "  if (g % 32 == 31) {",
        "    const int kept = 32;",
        "    const int end = g + 1;",
        "    const int number = start + end - kept + LANE;",
        "    const float r1 = w_r1;",
        "    const int t2 = r1 + 1;",
        "    if (THE_LAST && LANE < kept) {",
        "      float * columns = history + (number - start) * row;",
        "      columns[0] = t2;",
        "      columns[1] = r1;",
        "    }",
        "  }",
        "  c4 = t3;",
        "}",
        "if (g % 32 != 0) {",
        "  const int kept = g % 32;",
        "  const int end = g;",
        "  const int number = start + end - kept + LANE;",
        "  const float r1 = w_r1;",
        "  const int t2 = r1 + 1;",
        "  if (THE_LAST && LANE < kept) {",
        "    float * columns = history + (number - start) * row;",
        "    columns[0] = t2;",
        "    columns[1] = r1;",
        "  }",
        "}",
    ]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([load("t1", "b1", "0"), history_row("t1")], id="reads an array"),
        pytest.param([let("t1", "c4 + 1", "c4"), history_row("t1"), Assign("c4", "5")], id="reads the state"),
        pytest.param([*map(result, "abcdefghi"), history_row(*"abcdefghi")], id="needs too many registers"),
        pytest.param(
            [result("r1"), For(Axis.THREAD, "i", 99, [Store("history", "i", "r1")])], id="written by all threads"
        ),
    ],
)
def test_other_rows_of_history_are_written_at_once(body):
    statements = [For(Axis.GENERATION, body=body)]
    assert passes.buffer_history(deepcopy(statements)) == statements


@pytest.mark.parametrize(("algorithm", "problem"), [("cmaes", "sphere"), ("nsga2", "zdt1")])
def test_statements_know_the_variables_that_their_text_names(monkeypatch, algorithm, problem):
    """Passes move statements by what they read and set: a name that is missing would let them break the program."""
    captured = []
    monkeypatch.setattr(kernel_source, "eliminate_dead_stores", lambda s, b: captured.append(s) or (s, b))
    explain_kernel(gx.problems.get(problem), gx.algorithms.ALGORITHMS[algorithm](population=20))
    statements = list(passes.walk(captured[0]))
    declared = {s.name for s in statements if isinstance(s, Let | Declare | Accumulator)}
    for statement in statements:
        copy = dataclasses.replace(statement, **{name: [] for name in ("body", "branches") if hasattr(statement, name)})
        names = passes._own_reads(statement) + passes._own_sets(statement) + passes._own_declarations(statement)
        text = " ".join([*print_statements([copy], CudaTarget(1, 64)), *heads_of(statement)])
        assert set(re.findall(r"[A-Za-z_]\w*", text)) & declared <= {*names, "lane"}, text


def heads_of(statement):
    return [str(test) for test, _ in statement.branches] if isinstance(statement, If) else []


def test_exchanged_arrays_are_not_dead():
    buffers = [Buffer(name, 4, "float32", True) for name in ("b1", "b3")]
    _, live = passes.eliminate_dead_stores(generation(write("b3"), BARRIER, SWAP), buffers)
    assert live == buffers


def test_each_step_of_the_compiler_is_listed():
    """Without a GPU; the listings of one generation of DE are those of docs/fused.md."""
    problem = gx.Problem(lambda x: (x**2).sum(), [(-5.0, 5.0)] * 8)
    steps = dict(explain_kernel(problem, gx.DE(population=64)))
    assert list(steps) == [
        "array IR of a generation",
        "schedule",
        "loop IR",
        "loop IR without dead stores",
        "loop IR with buffered history",
        "shared memory",
        "C",
    ]
    assert "  %277 = select_n : float32[1, 64, 8], loop over [64, 8]" in steps["schedule"]
    stores = [sum(" array=b" in line for line in steps[title]) for title in list(steps)[2:4]]
    assert stores[0] >= stores[1] > 0
    n_barriers = sum("Barrier scope=" in line for line in steps["loop IR without dead stores"])
    assert n_barriers == sum(line.strip() == "__syncthreads();" for line in steps["C"]) > 0


def test_modules_of_the_compiler_import_each_other_without_a_cycle():
    """Not even for types; and none of them reads generated code by regular expressions."""
    folder = Path(passes.__file__).parent
    imports = {}
    for file in folder.glob("*.py"):
        nodes = [n for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
        assert "\nimport re\n" not in file.read_text(encoding="utf-8")
        inner = [n for n in nodes if (n.module or "").startswith("galapax.fused")]
        names = [n.module.split(".")[2:] or [a.name for a in n.names] for n in inner]
        imports[file.stem] = {name for found in names for name in found}
    order = list(graphlib.TopologicalSorter(imports).static_order())  # raises CycleError
    assert order.index("loop_ir") < order.index("passes") < order.index("kernel_source")


@needs_cc
def test_runs_are_the_same_with_and_without_shared_memory(monkeypatch):
    """Co-evolution has most arrays, and inner loops whose arrays change places."""
    texts, written = [], kernel._trace_and_lower

    def kept(*given):
        texts.append(written(*given))
        return texts[-1]

    def solve():
        backend._kernel_cache.clear()
        options = {
            "generations": 45,
            "population": 10,
            "seed": 2,
            "compute": gx.Compute(dtype="float64", engine="native"),
        }
        return gx.minimize(gx.problems.get("g07"), "cde", polish=False, **options)

    monkeypatch.setattr(kernel, "_trace_and_lower", kept)
    monkeypatch.setattr(kernel.compile_cache, "program_name", lambda *given: None)
    shared = solve()
    monkeypatch.setattr(
        kernel_source, "plan_shared_memory", lambda statements, *given: passes.plan_shared_memory((), *given)
    )
    apart = solve()
    assert texts[0].shared_bytes < 0.95 * texts[1].shared_bytes
    np.testing.assert_array_equal(shared.population, apart.population)
    assert shared.fun == apart.fun
    backend._kernel_cache.clear()
