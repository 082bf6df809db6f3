"""Survivors of evolutionary programming, selected as a kernel does it: by the bits of their scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galapax.fused import cpu_kernel, kernel_source
from galapax.numerics import devices, random
from galapax.operators import selection

needs_cc = pytest.mark.skipif(
    cpu_kernel.find_compiler() is None or not devices.on_cpu(), reason="needs a C compiler and JAX on a CPU"
)
FORMS = (1, 1), (1, 32), (16, 1), (132, 1)  # a block, many of them, a cluster, a grid


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
        text = kernel_source.lower_function(closed, kernel_source.LaunchShape(*form))
        assert "FILLERS(fill" in text.body and "OVER_PIECE" not in text.body
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
    text = kernel_source.lower_function(closed, kernel_source.LaunchShape())
    assert "FILLERS(" not in text.body
    out = np.full(20, 77, np.int32)
    cpu_kernel.CpuKernel(text)([scores], [out])
    assert out.tolist() == filled(scores.tolist())
