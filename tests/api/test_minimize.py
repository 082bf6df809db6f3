"""What `minimize` makes of functions as people have them: signs, batches, black boxes, failures, constraints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.bowl import BOX, LOWER, UPPER, N, bowl, bowl_in_numpy, recording, solve

import galapax as gx

# --- maximize, vectorized, blackbox -----------------------------------------------------------------------------------


def test_maximize_finds_the_largest_value_and_keeps_its_sign():
    res = solve(maximize=True, population=40, generations=200)
    corner = np.array([4.0, -7.0])
    np.testing.assert_allclose(res.x, corner, atol=1e-2)
    assert res.fun == pytest.approx(bowl_in_numpy(corner), rel=1e-2)
    assert np.all(np.diff(res.history.best) >= 0) and res.history.best[-1] == res.fun
    assert np.all(res.history.worst <= res.history.mean) and np.all(res.history.mean <= res.history.best)
    np.testing.assert_allclose(res.population_fitness, bowl_in_numpy(res.population))
    assert res.population_fitness.max() == res.fun


def test_maximize_is_minimizing_the_negative():
    largest, least = solve(lambda x: -bowl(x), maximize=True), solve()
    assert largest.fun == -least.fun
    assert np.array_equal(largest.x, least.x)
    assert np.array_equal(largest.history.worst, -least.history.worst)


def test_target_when_maximizing_is_a_value_to_rise_to():
    res = solve(maximize=True, target=20.0, generations=300)
    assert res.success and res.fun >= 20.0 and np.all(res.history.best[:-1] < 20.0)
    assert res.settings["target"] == 20.0
    assert not solve(maximize=True, target=30.0).success  # the corner has 24.25


def test_maximize_reports_the_runs_with_their_signs():
    res = solve(maximize=True, runs=4)
    assert res.fun == res.runs.fun.max()
    np.testing.assert_allclose(res.runs.fun, bowl_in_numpy(res.runs.x))
    assert np.all(np.diff(res.runs.history.best, axis=1) >= 0)


@pytest.mark.parametrize("runs", [1, 3])
def test_vectorized_is_the_same_as_one_at_a_time(runs):
    shapes = []

    def rows(x):
        shapes.append(x.shape)
        return (x[:, 0] - 2.0) ** 2 + (x[:, 1] + 2.5) ** 2

    single, many = solve(runs=runs), solve(rows, vectorized=True, runs=runs)
    assert set(shapes) == {(N, 2)}
    np.testing.assert_allclose(many.x, single.x, rtol=1e-9)
    np.testing.assert_allclose(many.history.best, single.history.best, rtol=1e-9)


@pytest.mark.slow
def test_vectorized_with_constraints_is_the_same_as_one_at_a_time():
    # DE, since EpsilonDE repairs by differences where it takes many solutions, which differ in the last digits
    single = solve(algorithm="de", ineq=lambda x: 3.0 - x[0], eq=lambda x: x[0] + x[1], generations=40)
    many = solve(
        lambda x: jax.vmap(bowl)(x),
        algorithm="de",
        ineq=lambda x: 3.0 - x[:, 0],
        eq=lambda x: x[:, :1] + x[:, 1:],
        vectorized=True,
        generations=40,
    )
    np.testing.assert_allclose(many.x, single.x, rtol=1e-9)
    np.testing.assert_allclose(many.ineq, single.ineq, rtol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"runs": 3}, {"maximize": True}, {"target": 0.1}], ids=str)
def test_a_black_box_makes_the_same_run_as_a_compiled_objective(settings):
    compiled, black = solve(**settings), solve(bowl_in_numpy, blackbox=True, **settings)
    rows = solve(bowl_in_numpy, blackbox=True, vectorized=True, **settings)
    for res in (black, rows):
        assert (res.nit, res.nfev, res.message) == (compiled.nit, compiled.nfev, compiled.message)
        np.testing.assert_allclose(res.x, compiled.x, rtol=1e-9)
        np.testing.assert_allclose(res.population, compiled.population, rtol=1e-9)
        np.testing.assert_allclose(res.history.mean, compiled.history.mean, rtol=1e-9)


def test_a_black_box_is_called_with_one_numpy_point_that_it_may_change():
    def fun(x):
        assert type(x) is np.ndarray and x.shape == (2,) and x.dtype == np.float64
        value = bowl_in_numpy(x)
        x[:] = np.nan
        return value

    def ineq(x):
        assert np.isfinite(x).all()
        return -1.0

    res = solve(fun, algorithm="de", ineq=ineq, blackbox=True, on_failure="raise")
    np.testing.assert_allclose(res.x, solve(algorithm="de").x, rtol=1e-9)


def test_a_black_box_is_called_once_for_each_evaluation():
    fun = recording()
    res = solve(fun, blackbox=True, runs=3, target=0.1, generations=50)
    assert len(set(res.runs.nit)) > 1
    assert len(fun.points) == res.nfev == res.runs.nfev.sum()


# --- failures ---------------------------------------------------------------------------------------------------------


def test_exceptions_are_failures_and_the_message_has_the_first():
    def fun(x):
        calls.append(x)
        if x[0] > 3.0:
            raise ValueError(f"valve {len(calls)} is shut")
        return bowl_in_numpy(x)

    calls = []
    res = solve(fun, blackbox=True)
    bad = [i for i, x in enumerate(calls) if x[0] > 3.0]
    assert res.feasible and res.n_failed == len(bad) > 1 and res.nfev == len(calls)
    assert f"First failure: fun raised ValueError: valve {bad[0] + 1} is shut." in res.message
    assert res.fun == min(bowl_in_numpy(x) for x in calls if x[0] <= 3.0)


def test_a_constraint_that_raises_is_a_failure_too():
    def ineq(x):
        if x[0] > 3.0:
            raise RuntimeError("no pressure")
        return x[1] + 3.0

    res = solve(bowl_in_numpy, ineq=ineq, blackbox=True)
    assert res.n_failed > 0 and res.feasible and "ineq raised RuntimeError: no pressure" in res.message


def test_failures_raise_with_on_failure_raise():
    def fun(x):
        raise ValueError("the valve is shut")

    match = r"fun raised ValueError: the valve is shut in fun \(test_minimize.py:\d+\), at x = \["
    with pytest.raises(gx.EvaluationError, match=match) as caught:
        solve(fun, blackbox=True, on_failure="raise")
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "bad", [np.nan, pytest.param(np.inf, marks=pytest.mark.slow), pytest.param(-np.inf, marks=pytest.mark.slow)]
)
def test_bad_values_raise_with_on_failure_raise(bad):
    with pytest.raises(gx.EvaluationError, match=r"NaN or inf at \d+ of (the )?\d+ points"):
        solve(lambda x: jnp.where(x[0] > 3.0, bad, bowl(x)), on_failure="raise")
    with pytest.raises(gx.EvaluationError, match=rf"fun returned {bad}, at x = \[3"):
        solve(lambda x: bad if x[0] > 3.0 else bowl_in_numpy(x), on_failure="raise", blackbox=True)


def test_nothing_raises_when_nothing_fails():
    assert solve(on_failure="raise").n_failed == 0


def test_worst_searches_on_where_a_point_tried_first_would_be_refused():
    def needle(x):
        return jnp.where((x[0] < 1.501) & (x[1] > -2.5), x[0], jnp.nan)

    with pytest.raises(gx.InputError, match="on_failure"):
        solve(needle)
    res = solve(needle, algorithm="random", population=4000, on_failure="worst")
    assert res.feasible and 1.5 <= res.fun < 1.501 and res.n_failed > 0.9 * res.nfev


def test_a_run_without_any_finite_value_says_so():
    res = solve(lambda x: x[0] * jnp.nan, on_failure="worst", generations=3)
    assert not res.success and not res.feasible and np.isnan(res.fun)
    assert (res.nit, res.nfev, res.n_failed) == (3, 3 * N, 3 * N)
    assert "No point has a finite value" in res.message
    assert np.all((res.x >= LOWER) & (res.x <= UPPER))


def test_history_of_no_finite_value_claims_no_mean():
    res = solve(lambda x: x[0] * jnp.nan, on_failure="worst", generations=3)
    assert not np.isfinite(res.history.mean).any()


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_black_box_whose_first_twenty_points_fail_ends_there(vectorized):
    fun = recording(lambda x: np.full(len(x) if vectorized else (), np.nan))
    res = solve(fun, blackbox=True, vectorized=vectorized, generations=100_000)
    assert not res.success and np.isnan(res.fun) and res.nit == 2
    assert res.nfev == res.n_failed == 2 * N == sum(np.atleast_2d(x).shape[0] for x in fun.points)
    assert "every evaluation failed (NaN, inf or an exception)" in res.message and "worst" in res.message


def test_a_first_generation_that_fails_is_no_end_where_there_are_values():
    """A sixteenth of the box is defined, and the first eight points of the default are often outside."""

    def root(x):
        return jnp.sum(jnp.sqrt(x) + (x - 1.0) ** 2)

    res = gx.minimize(
        root, [(-5.0, 5.0)] * 4, "cmaes", population=8, restarts="plain", max_evaluations=4000, polish=False
    )
    first = np.asarray(res.history.best)[0]
    assert not np.isfinite(first) and res.n_failed > 8 and abs(res.fun - 3.70663287) < 1e-3


def test_a_black_box_that_always_raises_tells_the_exception():
    def fun(x):
        raise OSError("solver not found")

    with pytest.raises(gx.EvaluationError, match="fun raised OSError: solver not found in fun"):
        solve(fun, blackbox=True)
    res = solve(fun, blackbox=True, on_failure="worst", generations=2)
    assert not res.success and res.nit == 2 and "OSError: solver not found" in res.message


# --- constraints ------------------------------------------------------------------------------------------------------


def spring_in_numpy(x):
    wire, coil, turns = x
    shear = (4 * coil**2 - wire * coil) / (12566 * (coil * wire**3 - wire**4)) + 1 / (5108 * wire**2)
    limits = [
        1 - coil**3 * turns / (71785 * wire**4),
        shear - 1,
        1 - 140.45 * wire / (coil**2 * turns),
        (wire + coil) / 1.5 - 1,
    ]
    return (turns + 2) * coil * wire**2, np.array(limits)


def g06_in_numpy(x):
    limits = [-((x[0] - 5) ** 2) - (x[1] - 5) ** 2 + 100, (x[0] - 6) ** 2 + (x[1] - 5) ** 2 - 82.81]
    return (x[0] - 10) ** 3 + (x[1] - 20) ** 3, np.array(limits)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "formula"), [("spring", spring_in_numpy), ("g06", g06_in_numpy)])
def test_inequalities_hold_at_the_solution(name, formula):
    problem = gx.problems.get(name)
    res = gx.minimize(problem, population=100, generations=600, polish=False)
    value, limits = formula(res.x)
    assert res.feasible and res.violation == 0.0
    assert np.all(limits <= 1e-12)
    np.testing.assert_allclose(res.ineq, limits, rtol=1e-9, atol=1e-12)
    assert res.eq is None
    assert res.fun == pytest.approx(value, rel=1e-12)
    assert problem.optimum - 1e-9 <= res.fun <= problem.optimum + 0.05 * abs(problem.optimum)


@pytest.mark.slow
def test_equalities_hold_to_the_tolerance():
    # the nearest point of the line x1 = -x0 - 0.2 to (2, -2.5) is (2.15, -2.35)
    res = solve(eq=lambda x: x[0] + x[1] + 0.2, algorithm=None, population=40, generations=300)
    assert res.feasible and res.violation == 0.0 and res.ineq is None
    np.testing.assert_allclose(res.eq, [res.x.sum() + 0.2], atol=1e-12)
    assert abs(res.eq[0]) <= 1e-4
    np.testing.assert_allclose(res.x, [2.15, -2.35], atol=2e-2)
    assert res.fun == pytest.approx(0.045, rel=1e-2)


@pytest.mark.slow
def test_the_tolerance_of_equalities_is_the_problems():
    problem = gx.Problem(bowl, BOX, eq=lambda x: x[0] + x[1] + 0.2, eq_tolerance=0.1)
    res = gx.minimize(problem, population=40, generations=300, polish=False)
    assert res.feasible and 0.05 < abs(res.eq[0]) <= 0.1  # the cheapest side of the strip
    assert res.fun < 0.045


def test_violation_adds_up_what_each_constraint_lacks():
    # x0 >= 6 is out of reach by 2 or more, x1 >= 0 by 2 or more: the best is the upper corner, 4 in all
    res = solve(
        lambda x: x[0], ineq=lambda x: jnp.stack([6.0 - x[0], -x[1], x[0] - 50.0]), population=40, generations=200
    )
    assert not res.success and not res.feasible
    np.testing.assert_allclose(res.x, UPPER, atol=1e-3)
    np.testing.assert_allclose(res.ineq, [6.0 - res.x[0], -res.x[1], res.x[0] - 50.0])
    assert res.violation == pytest.approx(6.0 - res.x[0] - res.x[1], rel=1e-12)
    assert res.violation == pytest.approx(4.0, abs=1e-3)
    assert "No feasible point was found" in res.message and "4" in res.message
    assert res.fun == pytest.approx(res.x[0])


def test_no_target_is_reached_outside_the_feasible_region():
    res = solve(ineq=lambda x: 6.0 - x[0], target=100.0)
    assert not res.success and res.nit == 20


def test_feasible_comes_before_the_better_value():
    fun, points = recording(), None
    res = solve(fun, ineq=lambda x: 3.0 - x[0], blackbox=True)
    points = np.array(fun.points)
    allowed = points[points[:, 0] >= 3.0]
    assert res.fun == bowl_in_numpy(allowed).min() > bowl_in_numpy(points).min()
    assert res.feasible


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"runs": 3}, marks=pytest.mark.slow),
        {"compute": gx.Compute(dtype="float32")},
        {"maximize": True},
    ],
    ids=str,
)
def test_a_black_box_tells_its_constraints_at_the_solution_too(settings):
    res = solve(bowl_in_numpy, ineq=lambda x: [3.0 - x[0], x[1]], blackbox=True, generations=150, **settings)
    assert res.feasible and res.eq is None
    np.testing.assert_allclose(res.ineq, [3.0 - res.x[0], res.x[1]], rtol=1e-6, atol=1e-6)


def test_a_black_box_tells_its_equalities_at_the_solution_too():
    res = solve(bowl_in_numpy, eq=lambda x: x[0] + x[1], blackbox=True)
    np.testing.assert_allclose(res.eq, [res.x.sum()], rtol=1e-9)


def test_history_has_constraints():
    res = solve(ineq=lambda x: 3.0 - x[0], generations=40)
    assert res.history.violation.shape == res.history.feasible_share.shape == (40,)
    assert np.all(np.diff(res.history.violation) <= 0) and res.history.violation[-1] == 0
    assert np.all((res.history.feasible_share >= 0) & (res.history.feasible_share <= 1))
    assert res.history.feasible_share[-1] == np.mean(res.population[:, 0] >= 3.0)
    assert solve().history.violation is None and solve().history.feasible_share is None


def test_constraints_compute_in_float64_unless_dtype_says_otherwise():
    assert solve(ineq=lambda x: 3.0 - x[0], compute=gx.Compute(dtype=None)).settings["dtype"] == "float64"
    assert solve(ineq=lambda x: 3.0 - x[0], compute=gx.Compute(dtype="float32")).settings["dtype"] == "float32"
