"""Importances of variables: what is known of the function they are computed from."""

import numpy as np
import pytest

import galapax as gx
from galapax.metrics.importance import grow_tree, total_effects

RNG = np.random.default_rng(3)


def effects(x, y, lower, upper, unordered=()):
    mask = np.isin(np.arange(x.shape[1]), unordered)
    return total_effects(x, y, np.array(lower, float), np.array(upper, float), mask)


def test_a_tree_that_may_split_once_more_reproduces_its_points():
    x = RNG.random((64, 3))
    tree = grow_tree(RNG, np.repeat(x, 2, axis=0), np.repeat(x[:, 1], 2))  # two points a leaf at least
    assert tree.predict(x) == pytest.approx(x[:, 1], abs=0.05)


@pytest.mark.parametrize(("n", "error"), [(100, 0.12), (400, 0.06)])
def test_a_sum_has_the_shares_of_its_terms(n, error):
    x = RNG.random((n, 5))
    share, explained = effects(x, 10 * x[:, 0] + 5 * x[:, 1] + 2 * x[:, 2], [0] * 5, [1] * 5)
    assert share == pytest.approx(np.array([100, 25, 4, 0, 0]) / 129, abs=error)
    assert explained > 0.8


def test_points_near_the_optimum_do_not_hide_what_matters_in_the_box():
    x = np.concatenate([RNG.random((80, 3)), 0.5 + 0.01 * RNG.standard_normal((320, 3))])
    share, _ = effects(x, (x[:, 0] - 0.5) ** 2 + 0.1 * (x[:, 1] - 0.5) ** 2, [0] * 3, [1] * 3)
    assert share[0] > 0.85 and share[1] < 0.15 and share[2] < 0.03


def test_variables_that_interact_take_part_together():
    x = RNG.uniform(-1, 1, (400, 3))
    share, _ = effects(x, x[:, 0] * x[:, 1], [-1] * 3, [1] * 3)
    assert share[:2] == pytest.approx(1, abs=0.2) and share[2] < 0.03


def test_choices_need_no_order():
    x = RNG.random((300, 2))
    x[:, 0] = RNG.integers(0, 6, 300)
    y = np.array([0, 5, 0, 5, 0, 5.0])[x[:, 0].astype(int)] + x[:, 1]
    share, _ = effects(x, y, [-0.5, 0], [5.5, 1], unordered=[0])
    assert share[0] == pytest.approx(6.25 / (6.25 + 1 / 12), abs=0.05)


@pytest.mark.parametrize("unit", [2.0**531, 2.0**-664], ids=["1e160", "1e-200"])
def test_effects_do_not_depend_on_the_unit_of_the_values(unit):
    x = RNG.random((100, 3))
    y = x[:, 0] + 0.1 * x[:, 1]
    share, explained = effects(x, y * unit, [0] * 3, [1] * 3)
    expected = effects(x, y, [0] * 3, [1] * 3)
    assert np.array_equal(share, expected.effects) and explained == expected.explained


def test_values_of_chance_are_not_explained():
    x = RNG.random((300, 4))
    assert effects(x, RNG.random(300), [0] * 4, [1] * 4).explained < 0.1


def simulate(v):
    if v["speed"] > 9.9:
        raise RuntimeError("diverged")
    return {"fun": [10 * (v["speed"] - 3) ** 2 + (v["tool"] == "file"), v["idle"] + v["teeth"]], "ineq": v["idle"] - 2}


def test_a_black_box_names_what_matters_for_each_objective():
    space = {
        "speed": (0, 10),
        "tool": gx.choice("saw", "file"),
        "idle": (0, 0.1),
        "teeth": gx.integer(1, 9),
        "k": (2, 2),
    }
    result = gx.minimize(simulate, space, "nsga2", blackbox=True, population=20, max_evaluations=120)
    first, second = result.importances(), result.importances(objective=1)
    assert next(iter(first)) == "speed" and first["speed"] > 0.9 and next(iter(second)) == "teeth"
    assert set(first) == {"speed", "tool", "idle", "teeth"}  # k is fixed
    assert result.importances() == first
    with pytest.raises(gx.InputError, match="objective must be below 2"):
        result.importances(2)


def test_importances_are_refused_where_nothing_is_known():
    compiled = gx.minimize(lambda x: (x**2).sum(), [(-1, 1)] * 2, "de", generations=3)
    with pytest.raises(gx.InputError, match="evaluations of a black box"):
        compiled.importances()
    optimizer = gx.Optimizer([(0, 1)] * 2, "random", population=19)
    x = optimizer.ask_generation()
    optimizer.tell(x, x[:, 0])
    with pytest.raises(gx.InputError, match="at least 20 evaluations with a value; this result has 19"):
        optimizer.best.importances()
    x = optimizer.ask_generation()
    optimizer.tell(x, np.random.default_rng(0).random(len(x)))
    optimizer.tell(RNG.random((200, 2)), RNG.random(200))
    with pytest.warns(UserWarning, match="importances are uncertain"):
        optimizer.best.importances()


def weighted_sum(x):
    return 4 * (x[0] - 1) ** 2 + 2 * (x[1] - 1) ** 2 + (x[2] - 1) ** 2


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_search_that_saw_little_of_the_box_says_so_and_others_do_not(seed, recwarn):
    options = {"blackbox": True, "seed": seed, "max_evaluations": 60}
    gathered = gx.minimize(weighted_sum, [(-5, 5)] * 3, **options)
    with pytest.warns(UserWarning, match="60 evaluations cover the box no better than 20 uniform points"):
        gathered.importances()
    recwarn.clear()
    for algorithm in ("random", "de"):
        shares = gx.minimize(weighted_sum, [(-5, 5)] * 3, algorithm, population=20, **options).importances()
        assert shares["x1"] > shares["x3"] and not recwarn.list
