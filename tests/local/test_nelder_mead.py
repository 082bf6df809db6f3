"""The simplex search that black boxes with few evaluations get, against scipy's."""

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

import galapax as gx
from galapax.algorithms.nelder_mead import NelderMead
from galapax.algorithms.portfolio import Portfolio


def valley(x):
    return float(100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2 + 3 * (x[2] - 0.5) ** 2)


def corner(x):
    return float(x[0] - 2 * x[1] + x[2] ** 2)


def ripples(x):
    return float(np.sum(np.floor(4 * np.abs(x)) + np.abs(x)))


BOX = [(-2.0, 3.0), (-1.0, 4.0), (-3.0, 2.5)]


def points_of(fun, most, **options):
    seen = []

    def noted(x):
        seen.append(np.array(x))
        return fun(x)

    result = gx.minimize(noted, BOX, blackbox=True, max_evaluations=most, **options)
    return np.stack(seen), result


@pytest.mark.parametrize(
    "fun", [pytest.param(valley, marks=pytest.mark.slow), corner, ripples], ids=["a valley", "a corner", "steps"]
)
def test_it_makes_the_moves_that_scipy_makes(fun):
    """Reflections, expansions, both contractions and shrinks, also where points are clipped to the box."""
    seen, result = points_of(fun, 120, seed=5)
    drawn, want = [fun(x) for x in seen[:4]], []
    first = np.vstack([seen[np.argmin(drawn)], seen[4:7]])

    def noted(x):
        want.append(np.array(x))
        return fun(x)

    options = {"initial_simplex": first, "xatol": 0, "fatol": 0, "maxfev": 120}
    scipy_minimize(noted, first[0], method="Nelder-Mead", bounds=BOX, options=options)
    same = min(len(want), 100)
    np.testing.assert_allclose(seen[4 : 3 + same], np.stack(want)[1:same], rtol=0, atol=1e-9)
    assert result.nfev == len(seen) == 120 and result.fun == min(map(fun, seen))


def test_the_first_simplex_is_around_the_best_of_points_drawn_from_the_box():
    lower, upper = np.array(BOX).T
    for seed in range(5):
        seen, _ = points_of(corner, 10, seed=seed)
        assert np.all((seen >= lower) & (seen <= upper))
        best = seen[np.argmin([corner(x) for x in seen[:4]])]
        np.testing.assert_allclose(np.abs(seen[4:7] - best), 0.2 * np.diag(upper - lower), atol=1e-12)


def test_a_search_that_has_converged_begins_elsewhere_and_five_that_agree_end_the_run():
    seen, result = points_of(lambda x: float(np.sum((x - 0.3) ** 2)), 2000, restarts=Portfolio(few=1000))
    np.testing.assert_allclose(result.x, 0.3, atol=1e-6)
    assert result.success and result.stop == "tolerance" and result.nfev == len(seen) < 2000


def test_failed_points_are_the_worst():
    def holed(x):
        return float("nan") if x[0] > 0.5 else corner(x)

    _, result = points_of(holed, 150, seed=2)
    assert result.n_failed > 0 and result.x[0] <= 0.5 and np.isfinite(result.fun)


def test_it_is_for_black_boxes_with_few_evaluations_alone():
    few = Portfolio(few=100.0)
    for policy, simplex in (
        (few.with_serial_evaluation(5, 500), True),
        (few.with_serial_evaluation(5, 501), False),
        (few, False),
        (Portfolio().with_serial_evaluation(5, 100), False),
    ):
        leg = policy.next(gx.CMAES(), [], 400.0, lambda: 0.5)
        assert isinstance(leg.algorithm, NelderMead) == simplex
    assert gx.minimize(valley, BOX, blackbox=True, max_evaluations=40).nit == 35  # 4, 3, then one by one
    assert gx.minimize(valley, BOX, "cmaes", blackbox=True, max_evaluations=42).nit == 6
    assert gx.minimize(valley, BOX, blackbox=True, generations=6).nfev == 42
