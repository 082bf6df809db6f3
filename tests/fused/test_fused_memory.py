"""Which arrays of a kernel share a place in memory, read off its text."""

import numpy as np
import pytest

import galapax as gx
from galapax.fused import backend, cpu_kernel, kernel, kernel_source, shared_memory
from galapax.fused.element_codegen import Buffer
from galapax.numerics import devices

needs_cc = pytest.mark.skipif(
    cpu_kernel.find_compiler() is None or not devices.on_cpu(), reason="needs a C compiler and JAX on a CPU"
)


def offsets(text, sizes, end=10_000):
    """Where arrays of so many float32 lie, in a generation with these lines; | ends a line."""
    lines = [line.strip() for line in text.split("|")]
    buffers = [Buffer(name, size, "float32", True) for name, size in sizes.items()]
    return shared_memory.allocate_shared_memory(lines, buffers, 0, end)


def generation(inside, before="", after=""):
    return f"{before}|for (; g < count; g++) {{|{inside}|}}|{after}"


def share(text, first="b1", second="b2"):
    found = offsets(text, {first: 4, second: 4, "b3": 4})
    return found[first] == found[second]


def loop(line):
    return f"LOOP(i, 4) {{|{line}|}}"


FIRST = loop("b1[i] = t;") + "|BARRIER|" + loop("s = b1[i];")
SECOND = FIRST.replace("b1", "b2")
ROUNDS = "for (int c = 0; c < 9; c++) {|"


def test_arrays_that_are_used_one_after_the_other_share_a_place():
    assert share(generation(f"{FIRST}|BARRIER|{SECOND}|BARRIER"))
    assert share(generation(f"BARRIER|{FIRST}|BARRIER|{SECOND}"))
    assert share(generation(f"if (t) {{|{FIRST}|BARRIER|{SECOND}|BARRIER|}}"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(generation(f"{FIRST}|{SECOND}|BARRIER"), id="no barrier between them"),
        pytest.param(generation(f"{FIRST}|BARRIER|{SECOND}"), id="none before the next generation"),
        pytest.param(generation(f"{FIRST}|if (t) {{|BARRIER|}}|{SECOND}|BARRIER"), id="a barrier that may be left out"),
        pytest.param(
            generation(f"{loop('b1[i] = t;')}|BARRIER|{loop('b2[i] = b1[i];')}|BARRIER|{loop('s = b2[i];')}|BARRIER"),
            id="one is made of the other",
        ),
        pytest.param(generation(f"{loop('s = b1[i];')}|BARRIER|{loop('b1[i] = t;')}|BARRIER|{SECOND}|BARRIER"),
                     id="holds something of the generation before"),
        pytest.param(generation(f"{loop('if (t) b1[i] = t;')}|BARRIER|{SECOND}|BARRIER"), id="written in part"),
        pytest.param(generation(f"{FIRST}|BARRIER|{SECOND}|BARRIER", before=loop("b1[i] = 0;")), id="begun before"),
        pytest.param(generation(f"{FIRST}|BARRIER|{SECOND}|BARRIER", after=loop("a[i] = b2[i];")), id="wanted after"),
        pytest.param(
            generation(f"{FIRST}|BARRIER|{SECOND}|BARRIER|{{ float *p3 = b1; b1 = b3; b3 = p3; }}"),
            id="the next generation's",
        ),
        pytest.param(
            generation(f"{FIRST}|{ROUNDS}{loop('s = b1[i];')}|BARRIER|{SECOND}|BARRIER|}}|BARRIER"),
            id="read in every round of a loop",
        ),
    ],
)  # fmt: skip
def test_arrays_that_may_be_in_use_together_lie_apart(text):
    assert not share(text)


def test_arrays_that_change_places_in_a_loop_are_in_use_as_long_as_it_goes_on():
    inner = (
        "for (int c = 0; c < 9; c++) {|" + loop("b3[i] = b1[i];") + "|BARRIER|{ float *p9 = b1; b1 = b3; b3 = p9; }|}"
    )
    text = generation(f"{loop('b1[i] = t;')}|BARRIER|{inner}|{loop('s = b1[i];')}|BARRIER|{SECOND}|BARRIER")
    found = offsets(text, {"b1": 4, "b2": 4, "b3": 4})
    assert found["b1"] != found["b3"]
    assert found["b2"] in (found["b1"], found["b3"])  # when the loop is over
    within = generation(f"{loop('b1[i] = t;')}|BARRIER|{inner[:-1]}{SECOND}|BARRIER|}}|{loop('s = b1[i];')}|BARRIER")
    found = offsets(within, {"b1": 4, "b2": 4, "b3": 4})
    assert len(set(found.values())) == 3


def test_arrays_of_inner_loops_have_their_place_first_and_others_lie_beside_them():
    inner = ROUNDS + loop("b9[i] = t;") + "|BARRIER|" + loop("s = b9[i];") + "|BARRIER|}"
    text = generation(f"{FIRST}|{SECOND}|{inner}|BARRIER")
    sizes = {"b1": 8, "b2": 100, "b9": 60}
    assert offsets(text, sizes, end=300) == {"b9": 0, "b1": 0}  # 400 bytes are too much besides b9
    assert offsets(text, sizes) == {"b9": 0, "b1": 0, "b2": 240}
    assert offsets(text, sizes | {"b9": 61})["b2"] == 256  # a whole number of 16 bytes


@needs_cc
def test_runs_are_the_same_with_and_without_shared_places(monkeypatch):
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
        kernel_source, "allocate_shared_memory", lambda lines, *given: shared_memory.allocate_shared_memory((), *given)
    )
    apart = solve()
    assert texts[0].shared_bytes < 0.95 * texts[1].shared_bytes
    np.testing.assert_array_equal(shared.population, apart.population)
    assert shared.fun == apart.fun
    backend._kernel_cache.clear()
