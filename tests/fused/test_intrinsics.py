"""Intrinsics of the fused compiler: selection by the bits of scores, sorting, and fronts of two objectives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from galapax.fused import cpu_kernel, kernel_source
from galapax.numerics import devices, random
from galapax.operators import ranking, selection

needs_cc = pytest.mark.skipif(
    cpu_kernel.find_compiler() is None or not devices.on_cpu(), reason="needs a C compiler and JAX on a CPU"
)
FORMS = (1, 1), (1, 32), (16, 1), (132, 1)  # a block, many of them, a cluster, a grid
SHAPES = (
    *(kernel_source.LaunchShape(*form, is_emulated=True) for form in FORMS),
    kernel_source.LaunchShape(for_cpu=True),
)


def compute(function, shape, *arguments):
    """What the C generated for a launch shape computes, and its source."""
    with devices.tracing_for("gpu"):
        closed = jax.make_jaxpr(function)(*arguments)
    source = kernel_source.lower_function(closed, shape)
    outputs = [np.full(a.shape, 77).astype(a.dtype) for a in closed.out_avals]
    cpu_kernel.CpuKernel(source)(arguments, outputs)
    return outputs, source.body


def filled(scores):
    """Who takes the row of an old one that goes, in plain Python."""
    n = len(scores) // 2
    stay = set(sorted(range(2 * n), key=lambda i: (-scores[i], i))[:n])
    new = iter(i - n for i in range(n, 2 * n) if i in stay)
    return [-1 if i in stay else next(new) for i in range(n)]


@needs_cc
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_who_stays_is_found_by_bits_of_the_scores(data):
    n = data.draw(st.sampled_from([1, 2, 15, 16, 17, 33, 64, 500]))
    most = data.draw(st.sampled_from([1, 3, 13, 43]))
    draws = np.random.default_rng(data.draw(st.integers(0, 99)))
    scores = np.minimum(draws.integers(0, most + 1, 2 * n), draws.integers(0, most + 1)).astype(np.int32)

    def fillers(scores):
        scores = jnp.clip(scores, 0, most)
        return random.as_intrinsic(lambda s: selection.replacement_index(s, most), "replacement_index")(scores)

    for form in FORMS:
        with devices.tracing_for("gpu"):
            closed = jax.make_jaxpr(fillers)(scores)
        text = kernel_source.lower_function(closed, kernel_source.LaunchShape(*form, is_emulated=True))
        assert "REPLACEMENT_TABLE(fill" in text.body and "TILE_PREFIX" not in text.body
        out = np.full(n, 77, np.int32)
        cpu_kernel.CpuKernel(text)([scores], [out])
        assert out.tolist() == filled(scores.tolist())
    assert np.asarray(selection.replacement_index(jnp.asarray(scores), most)).tolist() == filled(scores.tolist())


@needs_cc
def test_scores_without_bounds_are_not_kept_as_bits():
    scores = np.arange(40, dtype=np.int32) % 7
    with devices.tracing_for("gpu"):
        closed = jax.make_jaxpr(random.as_intrinsic(lambda s: selection.replacement_index(s, 6), "replacement_index"))(
            scores
        )
    text = kernel_source.lower_function(closed, kernel_source.LaunchShape(is_emulated=True))
    assert "REPLACEMENT_TABLE(" not in text.body
    out = np.full(20, 77, np.int32)
    cpu_kernel.CpuKernel(text)([scores], [out])
    assert out.tolist() == filled(scores.tolist())


@needs_cc
@pytest.mark.parametrize("n", [20, 513, 3000])
def test_rows_are_sorted_as_by_jax(n):
    draws = np.random.default_rng(n)
    x, i = draws.normal(size=n).astype(np.float32), draws.integers(0, 9, n).astype(np.int32)
    x[:3] = np.nan, np.inf, -0.0

    def sort(x, i):
        return (*lax.sort((i, x, jnp.arange(n)), num_keys=2, is_stable=True), jnp.sort(x), jnp.argsort(i))

    for shape in SHAPES:
        outputs, body = compute(sort, shape, x, i)
        assert ("SORTED(sort" in body) == (n > (16 if shape.for_cpu else 512))
        for actual, expected in zip(outputs, jax.jit(sort)(x, i), strict=True):
            np.testing.assert_array_equal(actual, expected)


@needs_cc
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("n", [2, 33, 200])
def test_fronts_are_those_of_comparing_all_pairs(n, copies):
    draws = np.random.default_rng(n)
    objectives = draws.normal(size=(n, 2)).astype(np.float32)
    if copies:
        objectives = np.round(2 * objectives)
        objectives[draws.random(n) < 0.2] = np.inf
    expected = np.asarray(ranking.ranks_by_chains(objectives))
    for shape in SHAPES:
        (all_ranks, best), body = compute(
            lambda o: (ranking.ranks(o), ranking.ranks(o, enough=n // 2)), shape, objectives
        )
        assert "FRONTS(" in body
        np.testing.assert_array_equal(all_ranks, expected)
        margin = np.sort(expected)[n // 2 - 1]  # the last front of which some are needed
        np.testing.assert_array_equal(np.minimum(best, margin + 1), np.minimum(expected, margin + 1))
