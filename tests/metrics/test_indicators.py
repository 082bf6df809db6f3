"""Indicators against exact values, against moocore, and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.metrics import indicators

INF, NAN = np.inf, np.nan

# the front's exact hypervolume, and that of 1000 points spread evenly along it, up to (1.1, 1.1)
EXACT = {
    "zdt1": (0.876666666666667, 0.8762089887581923),
    "zdt2": (0.543333333333333, 0.5428760595347017),
    "zdt3": (1.33176290865702, 1.331535723432939),
    "zdt4": (0.876666666666667, 0.8762089887581923),
    "zdt6": (0.507877514654591, 0.5075548516190098),
    "moea_zdt1": (0.875, 0.874580347993599),
    "moea_zdt2": (0.542333, 0.5418788868567233),
    "moea_zdt3": (1.33008587300545, 1.3298802676704107),
    "moea_zdt6": (0.484980535465707, 0.48472462972227176),
}
hypervolume_2d = jax.jit(indicators.hypervolume_2d)


@pytest.mark.parametrize("name", EXACT)
def test_the_hypervolume_of_a_sampled_front_is_the_published_one(name):
    front = gx.problems.get(name).front(1000)
    exact, sampled = EXACT[name]
    found = indicators.hypervolume(front, (1.1, 1.1))
    assert found == pytest.approx(sampled, rel=5e-5) and found < exact
    with jax.enable_x64(True):
        assert float(indicators.hypervolume_2d(front, (1.1, 1.1))) == pytest.approx(found, rel=1e-12)
    assert float(hypervolume_2d(front.astype(np.float32), np.float32([1.1, 1.1]))) == pytest.approx(found, rel=1e-4)


def test_the_hypervolume_of_three_objectives_is_exact():
    # three unit cubes' corners towards (2, 2, 2): by inclusion and exclusion 3 * 2 - 3 * 1 + 1
    assert indicators.hypervolume([[0, 1, 1], [1, 0, 1], [1, 1, 0]], (2, 2, 2)) == pytest.approx(4.0)
    assert indicators.hypervolume([[0.5, 0.5, 0.5]], (1, 1, 1)) == pytest.approx(0.125)


def random_fronts():
    rng = np.random.default_rng(0)
    cloud = rng.random((8, 30, 2)) * 1.5
    cloud[1] = rng.integers(0, 3, (30, 2)) * 0.5  # equal points and ties
    cloud[2, ::2] = NAN
    cloud[3, 5:, 1] = INF
    cloud[4] = 2.0  # all beyond the reference point
    cloud[5, 1:] = cloud[5, 0]
    cloud[6] -= 3.0
    cloud[7] = [[1.0, 1.0]]  # on the reference point
    return cloud


@pytest.mark.filterwarnings("ignore:.*do not dominate")
def test_the_hypervolume_in_jax_is_that_of_moocore_with_dominated_failed_and_outer_points():
    fronts = random_fronts()
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(jax.vmap(indicators.hypervolume_2d, in_axes=(0, None)))(fronts, np.ones(2)))
    assert np.allclose(found, [indicators.hypervolume(front, (1.0, 1.0)) for front in fronts], rtol=1e-12)
    assert found[4] == found[7] == 0


def test_the_hypervolume_counts_the_rows_asked_for():
    front = jnp.array([[0.0, 0.5], [0.5, 0.0], [-9.0, -9.0]])
    assert float(hypervolume_2d(front, jnp.ones(2), jnp.array([True, True, False]))) == pytest.approx(0.75)
    assert float(hypervolume_2d(front, jnp.ones(2), jnp.zeros(3, bool))) == 0


def test_a_reference_of_the_wrong_length_is_refused():
    with pytest.raises(gx.InputError, match="reference must be 2 finite numbers"):
        indicators.hypervolume([[0.0, 1.0]], (1.0, 1.0, 1.0))


def test_igd_by_hand():
    true, front = [[0.0, 4.0], [3.0, 0.0]], [[0.0, 0.0], [NAN, 0.0]]
    assert indicators.igd(front, true) == pytest.approx((4 + 3) / 2)
    assert indicators.igd_plus(front, true) == 0  # the one point dominates both
    assert indicators.igd_plus([[3.0, 4.0]], true) == pytest.approx((3 + 4) / 2)
    assert indicators.igd(true, true) == indicators.igd_plus(true, true) == 0


def test_igd_in_pieces_is_igd_at_once():
    rng = np.random.default_rng(0)
    front, true = rng.random((900, 3)), rng.random((7000, 3))
    distance = np.concatenate([np.linalg.norm(front - t, axis=1)[None] for t in true])
    assert indicators.igd(front, true) == pytest.approx(distance.min(axis=1).mean(), rel=1e-12)


def test_igd_plus_never_prefers_a_dominated_front():
    rng = np.random.default_rng(1)
    true = np.stack([np.linspace(0, 1, 50), 1 - np.linspace(0, 1, 50)], axis=1)
    for _ in range(50):
        front = rng.random((10, 2)) + 0.2
        worse = front + rng.random((10, 2)) * 0.5
        assert indicators.igd_plus(front, true) <= indicators.igd_plus(worse, true)


def test_spread_by_hand():
    even = np.stack([np.linspace(0, 1, 11), 1 - np.linspace(0, 1, 11)], axis=1)
    assert indicators.spread(even[::-1], even) == pytest.approx(0, abs=1e-12)
    uneven = [[0.0, 1.0], [0.25, 0.75], [1.0, 0.0]]  # gaps 1 and 3 quarters of the diagonal, mean 2
    assert indicators.spread(uneven, even) == pytest.approx((1 + 1) / 4)
    short = [[0.25, 0.75], [0.5, 0.5], [0.75, 0.25]]  # even, but a quarter of the diagonal missing at either end
    assert indicators.spread(short, even) == pytest.approx(0.5 / 1.0)
    assert indicators.spread([[0.5, 0.5]], even) == 1


def test_fronts_that_cannot_be_compared_are_refused():
    with pytest.raises(gx.InputError, match="2 objectives and true_front 3"):
        indicators.igd([[0.0, 1.0]], [[0.0, 1.0, 2.0]])
    with pytest.raises(gx.InputError, match="no point that is finite"):
        indicators.igd([[NAN, 1.0]], [[0.0, 1.0]])
    with pytest.raises(gx.InputError, match="two objectives"):
        indicators.spread(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(gx.InputError, match="one row per point"):
        indicators.igd([0.0, 1.0], [[0.0, 1.0]])


BENT = [[0.0, 1000.0], [0.1, 300.0], [0.2, 200.0], [0.6, 100.0], [1.0, 0.0], [NAN, NAN]]


def test_choosing_from_a_front_does_not_depend_on_units():
    assert indicators.knee(BENT) == 1  # 0.1 + 0.3 and 0.2 + 0.2 tie, the first is taken
    assert indicators.closest_to_ideal(BENT) == 2
    assert indicators.weighted(BENT, (1, 0)) == 0
    assert indicators.weighted(BENT, (0, 5)) == 4
    assert indicators.weighted(BENT, (3, 1)) == 1
    stretched = np.array(BENT) * [1e-6, 1e6] + [7.0, -3.0]
    assert indicators.closest_to_ideal(stretched) == 2 and indicators.weighted(stretched, (3, 1)) == 1


def test_a_front_without_range_or_points():
    assert indicators.knee([[1.0, 2.0], [1.0, 2.0]]) == 0
    assert indicators.closest_to_ideal([[5.0, 5.0]]) == 0
    with pytest.raises(gx.InputError, match="none to choose"):
        indicators.knee([[INF, 1.0]])


@pytest.mark.parametrize("weights", [(1, 2, 3), (-1, 2), (0, 0), (NAN, 1)])
def test_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(gx.InputError, match="weights must be 2 numbers"):
        indicators.weighted([[0.0, 1.0]], weights)


def test_completion_lists_indicators_and_not_imports():
    names = dir(gx.indicators)
    assert {"hypervolume", "igd_plus", "gd"} <= set(names) and not {"np", "Any", "importlib"} & set(names)


@pytest.mark.parametrize(
    ("name", "own"), [("HV", "hypervolume"), ("IGDPlus", "igd_plus"), ("R2", "r2"), ("eps", "epsilon_additive")]
)
def test_names_of_other_libraries_are_answered(name, own):
    with pytest.raises(AttributeError, match=rf"has no '{name}': write {own}\.$"):
        getattr(gx.indicators, name)
    with pytest.raises(AttributeError, match=r"has no 'nothing_like_it'\.$"):
        _ = gx.indicators.nothing_like_it
