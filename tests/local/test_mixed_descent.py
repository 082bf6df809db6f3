"""Integers and choices with few evaluations: every point on the grid, models and neighbours to the best of them."""

import numpy as np
import pytest

import galapax as gx
from galapax.local.few_evaluations import FewEvaluations
from galapax.local.mixed_descent import Grid

GRID = Grid(np.array([2, 8, 5, 0, 0]), np.array([False, False, True, False, False]))
BEST = np.array([0.75, 0.3125, 0.5, 0.37, 0.81])  # on the grid
MIXED = {"n": gx.integer(1, 16), "kind": gx.choice("a", "b", "c"), "x": gx.real(-2, 3), "y": gx.real(-2, 3)}


def rotated_bowl(u):
    """Its variables depend on each other; the choice costs the same wherever it is not the best."""
    s = u - BEST
    mix = s[[0, 1, 3, 4]] @ (np.eye(4) + 0.4 * np.ones((4, 4)))
    return float(mix @ mix + (abs(s[2]) > 1e-9))


def design(v):
    return (v["n"] - 11) ** 2 + {"a": 1.0, "b": 0.0, "c": 3.0}[v["kind"]] + (v["x"] - 0.1 * v["n"]) ** 2 + v["y"] ** 2


def run(fun, grid, budget, seed=0, n=1):
    search = FewEvaluations(len(grid.levels), seed, grid=grid)
    while search.log.n < budget:
        search.tell(np.array([fun(u) for u in search.ask(n)]))
    return search


@pytest.mark.parametrize("seed", range(3))
def test_a_bowl_on_a_grid_is_solved_and_every_point_lies_on_the_grid(seed):
    search = run(rotated_bowl, GRID, 150, seed)
    np.testing.assert_allclose(search.log.x, GRID.snap(search.log.x), atol=1e-12)
    assert search.log.objective.min() < 1e-4
    assert len(np.unique(np.round(search.log.x, 9), axis=0)) == 150  # nothing twice


def test_batches_are_on_the_grid_too_and_repeatable():
    once, again = (run(rotated_bowl, GRID, 60, 3, n=4).log.x for _ in range(2))
    np.testing.assert_array_equal(once, again)
    np.testing.assert_allclose(once, GRID.snap(once), atol=1e-12)


def test_a_space_of_few_points_ends_by_its_budget():
    search = run(lambda u: float(np.sum((u - 0.2) ** 2)), Grid(np.array([2, 3]), np.array([False, True])), 30)
    assert search.log.n == 30 and len(np.unique(search.log.x, axis=0)) == 6


def test_a_black_box_with_integers_and_few_evaluations_gets_them_by_default():
    result = gx.minimize(design, MIXED, blackbox=True, max_evaluations=100, seed=2)
    assert result.settings["algorithm"] == "model_search" and "models and neighbours" in result.message
    assert result.params["n"] == 11 and result.params["kind"] == "b" and result.fun < 1e-8
    opt = gx.Optimizer(MIXED, max_evaluations=100, seed=2)
    while opt.nfev < 100:
        trial = opt.ask()
        opt.tell(trial, design(trial.params))
    assert np.array_equal(opt.evaluations.x, result.evaluations.x)


def test_a_constraint_on_integers_is_kept():
    def weight(v):
        return {"fun": v["n"] + v["x"] ** 2, "ineq": 7.5 - v["n"] - v["x"]}

    result = gx.minimize(
        weight, {"n": gx.integer(0, 20), "x": gx.real(-1, 1)}, blackbox=True, max_evaluations=60, seed=1
    )
    assert result.feasible and result.fun == pytest.approx(7.25, abs=1e-4)
