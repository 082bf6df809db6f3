"""GD, additive epsilon and R2: against moocore, loops of their definitions, and what they promise."""

import numpy as np
import pytest

import galapax as gx
from galapax.metrics.indicators import simplex_lattice

RNG = np.random.default_rng(3)


def front(n, m, shift=0.0):
    points = np.abs(RNG.normal(size=(n, m)))
    return points / np.linalg.norm(points, axis=1, keepdims=True) + shift


CASES = [(front(17, m, 0.2), front(40, m)) for m in (2, 3, 5)]


@pytest.mark.parametrize(("points", "true"), CASES, ids=["2", "3", "5"])
def test_indicators_are_their_definitions(points, true):
    distances = [min(np.linalg.norm(p - t) for t in true) for p in points]
    assert gx.indicators.gd(points, true) == pytest.approx(np.mean(distances))
    worse = [min(np.linalg.norm(np.maximum(p - t, 0)) for t in true) for p in points]
    assert gx.indicators.gd_plus(points, true) == pytest.approx(np.mean(worse))
    assert gx.indicators.gd_plus(true - 0.1, true) == 0  # no worse than the true front
    epsilon = max(min(max(p - t) for p in points) for t in true)
    assert gx.indicators.epsilon_additive(points, true) == pytest.approx(epsilon)
    ideal, weights = np.zeros(points.shape[1]), RNG.random((11, points.shape[1]))
    r2 = np.mean([min(max(w * p) for p in points) for w in weights])
    assert gx.indicators.r2(points, ideal, weights) == pytest.approx(r2)


@pytest.mark.parametrize(("points", "true"), CASES, ids=["2", "3", "5"])
def test_epsilon_is_that_of_moocore(points, true):
    moocore = pytest.importorskip("moocore")
    assert gx.indicators.epsilon_additive(points, true) == pytest.approx(moocore.epsilon_additive(points, ref=true))


def test_r2_of_two_objectives_approaches_the_exact_integral():
    moocore = pytest.importorskip("moocore")
    if not hasattr(moocore, "r2_exact"):
        pytest.skip("moocore has r2_exact since version 0.2")
    points = CASES[0][0]
    assert gx.indicators.r2(points, [0, 0]) == pytest.approx(moocore.r2_exact(points, ref=[0, 0]), rel=1e-3)


def test_the_indicators_are_those_of_pymoo():
    gd = pytest.importorskip("pymoo.indicators.gd", reason="pymoo is in the extra peers").GD
    for points, true in CASES:
        assert gx.indicators.gd(points, true) == pytest.approx(gd(true)(points))


def test_the_true_front_is_perfect_and_a_dominated_one_is_worse():
    true = CASES[0][1]
    assert gx.indicators.gd(true, true) == 0 and gx.indicators.epsilon_additive(true, true) == 0
    assert gx.indicators.epsilon_additive(true + 0.3, true) == pytest.approx(0.3)
    assert gx.indicators.r2(true + 0.3, [0, 0]) > gx.indicators.r2(true, [0, 0])


def test_rows_that_failed_are_left_out():
    points, true = CASES[0]
    failed = np.vstack([points, [np.nan, 0.0], [np.inf, 0.0]])
    assert gx.indicators.gd(failed, true) == gx.indicators.gd(points, true)
    assert gx.indicators.r2(failed, [0, 0]) == gx.indicators.r2(points, [0, 0])


@pytest.mark.parametrize("m", [1, 2, 3, 6])
def test_default_weights_are_a_lattice_on_the_simplex(m):
    weights = simplex_lattice(m, 500)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights >= 0).all() and len(np.unique(weights, axis=0)) == len(weights)
    assert m == 1 or len(weights) >= 500
    corners = {tuple(row) for row in np.eye(m)}
    assert corners <= {tuple(row) for row in weights}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: gx.indicators.gd(f, np.ones((3, 3))), "front has 2 objectives and true_front 3"),
        (lambda f: gx.indicators.r2(f, [0.9, 0.9]), "better than ideal"),
        (lambda f: gx.indicators.r2(f, [0.0]), "ideal must be 2 finite numbers"),
        (lambda f: gx.indicators.r2(f, [0, 0], [[1, -1]]), "weights must have one row per vector and 2 columns"),
        (lambda f: gx.indicators.epsilon_additive(f[:0], f), "front has no point"),
    ],
)
def test_input_that_cannot_be_measured_is_refused(call, message):
    with pytest.raises(gx.InputError, match=message):
        call(CASES[0][0])
