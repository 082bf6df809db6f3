"""How well points cover a box: uniform ones do, clusters do not, wherever they are."""

import numpy as np
import pytest

from galapax.metrics.coverage import covers_as_uniform

RNG = np.random.default_rng(8)


def covers(x, discrete=False):
    d = x.shape[1]
    low, high = (-0.5, 4.5) if discrete else (0.0, 1.0)
    return covers_as_uniform(x, np.full(d, low), np.full(d, high), np.full(d, discrete), n_points=20)


@pytest.mark.parametrize("d", [1, 3, 12, 40])
def test_uniform_points_cover_more_than_half_as_many_and_less_than_twice(d):
    assert all(covers(RNG.random((40, d))) for _ in range(20))
    assert not any(covers(RNG.random((8, d))) for _ in range(20))


@pytest.mark.parametrize("d", [2, 3, 12, 40])
@pytest.mark.parametrize("centre", [0.5, 0.9])
def test_a_cluster_counts_as_few_points_whatever_its_size(d, centre):
    cluster = np.clip(centre + 0.01 * RNG.standard_normal((900, d)), 0, 1)
    assert not covers(np.concatenate([cluster, RNG.random((10, d))]))


def test_codes_cover_their_grid():
    assert covers(RNG.integers(0, 5, (60, 3)).astype(float), discrete=True)
    assert not covers(RNG.integers(0, 2, (60, 3)).astype(float), discrete=True)
