"""Black boxes of which few evaluations can be had: the models, the searches, and what a user gets."""

import numpy as np
import pytest

import galapax as gx
from galapax.local.coordinate_search import CoordinateModel
from galapax.local.few_evaluations import COORDINATES, SURROGATE, FewEvaluations
from galapax.local.log import SampleLog
from galapax.local.sqp_by_differences import SQPByDifferences, update_symmetric
from galapax.local.surrogate_cmaes import SurrogateCMAES, kendall_tau
from galapax.local.trust_region import (
    Quadratic,
    TrustRegion,
    fit_minimum_change,
    minimize_in_box,
    minimize_with_constraints,
)

SEEDS = range(3)
BOX = [(-2.0, 3.0), (-1.0, 4.0), (-3.0, 2.5)]


def quadratic(seed, dim=4):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dim, dim))
    return rng.normal(), rng.normal(size=dim), root + root.T


def values_of(coefficients, s):
    c, g, H = coefficients
    return c + s @ g + 0.5 * np.sum((s @ H) * s, axis=-1)


def valley(x):
    return float(100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2 + 3 * (x[2] - 0.5) ** 2)


def bowl(u):
    """Its minimum is at 0.7 in every variable of the unit box."""
    scale = 10.0 ** np.linspace(0, 3, u.shape[-1])
    return np.sum(scale * (u - 0.7) ** 2, axis=-1)


def drive(moves, log, fun, most):
    """Run a search until it ends or has made so many evaluations."""
    points = next(moves)
    while log.n + len(points) <= most:
        values = fun(points)
        log.append(points, values, np.empty((len(points), 0)), np.empty((len(points), 0)))
        try:
            points = moves.send(np.arange(log.n - len(points), log.n))
        except StopIteration:
            return


def ask_and_tell(fun, dim, most, n=1, seed=0):
    search, asked = FewEvaluations(dim, seed), []
    while len(asked) < most:
        points = search.ask(n)
        asked += list(points)
        search.tell(np.array([fun(u) for u in points]))
    return np.array(asked), search


def test_a_poor_starting_point_costs_one_evaluation_and_a_good_one_is_where_the_search_begins():
    alone, _ = ask_and_tell(bowl, 4, 30)

    def ask_from(x0, most):
        search, asked = FewEvaluations(4), []
        for i in range(most):
            points = search.ask() if i else np.array([x0])
            if not i:
                search.ask()
            asked.append(points[0])
            search.tell(np.array([bowl(u) for u in points]), points=points)
        return np.array(asked)

    np.testing.assert_allclose(ask_from(np.ones(4), 31)[1:], alone, atol=1e-12)
    good = ask_from(np.full(4, 0.69), 10)
    assert (np.abs(good[2:6] - 0.69).max(axis=1) < np.abs(good[2:6] - alone[0]).max(axis=1)).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_of_enough_points_is_the_quadratic_itself(seed):
    truth, rng = quadratic(seed), np.random.default_rng(seed)
    s = rng.normal(size=(25, 4))
    model = fit_minimum_change(s, values_of(truth, s)[:, None], np.zeros((1, 4, 4)), 1.0)
    np.testing.assert_allclose(model.hessian[0], truth[2], atol=1e-4)
    np.testing.assert_allclose(model.gradient[0], truth[1], atol=1e-4)
    other = rng.normal(size=(50, 4))
    np.testing.assert_allclose(model(other)[:, 0], values_of(truth, other), atol=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_of_few_points_fits_them_and_stays_closest_to_the_one_before(seed):
    truth, rng = quadratic(seed), np.random.default_rng(seed)
    s = rng.normal(size=(9, 4))
    values = values_of(truth, s)[:, None]
    prior = truth[2][None] + 0.1 * np.eye(4)
    model = fit_minimum_change(s, values, prior, 1.0)
    np.testing.assert_allclose(model(s), values, atol=1e-6)
    # the truth fits these points, too, so the nearest such matrix cannot be farther away than it is
    assert np.linalg.norm(model.hessian - prior) <= np.linalg.norm(truth[2] - prior) + 1e-6
    same = fit_minimum_change(s, values, truth[2][None], 1.0)
    np.testing.assert_allclose(same.hessian[0], truth[2], atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_the_minimiser_in_a_box_is_inside_and_no_random_point_is_better_by_much(seed):
    _, g, H = quadratic(seed)
    lower, upper, radius = np.full(4, -0.3), np.array([0.0, 0.2, 0.5, 2.0]), 0.6
    s = minimize_in_box(g, H, radius, lower, upper)
    assert np.all((lower <= s) & (s <= upper)) and np.linalg.norm(s) <= radius * (1 + 1e-6)
    others = np.random.default_rng(seed).uniform(lower, upper, (4000, 4))
    others = others[np.linalg.norm(others, axis=1) <= radius]
    best = values_of((0.0, g, H), others).min()
    assert values_of((0.0, g, H), s) <= 0.5 * best and (
        np.linalg.eigvalsh(H)[0] < 0 or values_of((0.0, g, H), s) <= best
    )


def test_constraints_of_models_hold_at_their_minimiser_and_the_least_violation_is_taken_where_they_cannot():
    gradient = np.array([[1.0, 1.0], [-1.0, 0.0]])
    hessian = np.zeros((2, 2, 2))
    box = np.full(2, -1.0), np.full(2, 1.0)
    possible = Quadratic(np.array([0.0, 0.5]), gradient, hessian)  # x >= 0.5
    s = minimize_with_constraints(possible, 1, np.ones(1), *box)
    np.testing.assert_allclose(s, [0.5, -1.0], atol=1e-6)
    assert possible(s)[1] <= 0
    impossible = Quadratic(np.array([0.0, 3.0]), gradient, hessian)  # x >= 3, outside
    np.testing.assert_allclose(minimize_with_constraints(impossible, 1, np.ones(1), *box), [1.0, -1.0], atol=1e-5)


def test_kendalls_tau_is_one_for_the_same_order_and_minus_one_for_the_opposite():
    a = np.array([3.0, 1.0, 2.0, 5.0])
    assert kendall_tau(a, np.exp(a)) == 1.0 and kendall_tau(a, -a) == -1.0 and kendall_tau(a, np.ones(4)) == 0.0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["trust region", "SQP", "surrogate"])
def test_each_search_finds_the_minimum_of_a_bowl(kind, seed):
    log, rng = SampleLog(4), np.random.default_rng(seed)
    start = rng.uniform(size=(1, 4))
    log.append(start, bowl(start), np.empty((1, 0)), np.empty((1, 0)))
    search = {
        "trust region": lambda: TrustRegion(log, 0),
        "SQP": lambda: SQPByDifferences(log, 0),
        "surrogate": lambda: SurrogateCMAES(log, start[0], 0.2, rng),
    }[kind]()
    drive(search.run(), log, bowl, 400)
    assert np.all((log.x >= 0) & (log.x <= 1))
    assert log.objective.min() < 1e-8


@pytest.mark.parametrize("n", [1, 3, 8])
def test_the_same_seed_asks_for_the_same_points_and_all_are_in_the_box(n):
    once, _ = ask_and_tell(lambda u: np.sin(9 * u).sum(), 3, 120, n, seed=4)
    again, _ = ask_and_tell(lambda u: np.sin(9 * u).sum(), 3, 120, n, seed=4)
    other, _ = ask_and_tell(lambda u: np.sin(9 * u).sum(), 3, 120, n, seed=5)
    np.testing.assert_array_equal(once, again)
    assert not np.array_equal(once, other) and once.min() >= 0 and once.max() <= 1


def test_points_of_a_batch_are_distinct_and_must_be_told_before_others_are_asked_for():
    search = FewEvaluations(3)
    points = search.ask(6)
    assert len(np.unique(points, axis=0)) == 6
    with pytest.raises(RuntimeError, match="not told"):
        search.ask(6)


def test_second_derivatives_of_a_quadratic_are_measured_and_turned_where_they_are_negative():
    _, _, H = quadratic(3)
    log = SampleLog(4)
    log.append(np.full((1, 4), 0.5), np.ones(1), np.empty((1, 0)), np.empty((1, 0)))
    search = SQPByDifferences(log, 0)
    search.hessian = np.eye(4)
    drive(search.differentiate_twice(), log, lambda u: values_of((1.0, np.zeros(4), H), u - 0.5), 15)
    assert log.n == 15
    eigenvalues, vectors = np.linalg.eigh(H)
    np.testing.assert_allclose(search.hessian, (vectors * np.abs(eigenvalues)) @ vectors.T, atol=1e-3)


def rugged(u):
    """A sum over the variables with ten valleys in each; the lowest are at 0.37."""
    return float(np.sum(100 * (u - 0.37) ** 2 + 5 * (1 - np.cos(20 * np.pi * (u - 0.37)))))


def test_a_sum_over_the_variables_is_recognised_and_its_lowest_valley_found():
    points, search = ask_and_tell(rugged, 3, 180)
    assert min(map(rugged, points)) < 1e-8
    assert search.evaluations[COORDINATES] > 100
    _, search = ask_and_tell(bowl, 3, 100)  # a sum, too, but no point contradicts that it is convex
    assert search.evaluations[COORDINATES] == 0


def test_two_evaluations_tell_that_an_objective_is_no_such_sum():
    _, search = ask_and_tell(lambda u: rugged(u) + 0.01 * u[0] * u[1], 4, 100)
    assert search.evaluations[COORDINATES] == 2


def test_a_surrogate_follows_the_first_descent_although_the_objective_was_found_to_be_no_sum():
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))

    def rugged(u):
        z = 8 * (u - 0.4) @ rotation
        return np.sum(z**2 - 10 * np.cos(2 * np.pi * z) + 10, axis=-1)

    search = FewEvaluations(5)
    for _ in range(400):
        search.tell(rugged(search.ask()))
    assert [member.name for member in search.members] == ["descent", "coordinates", "surrogate"]
    assert search.evaluations[SURROGATE] > 20


def test_a_search_by_variables_goes_round_points_that_fail():
    def holed(u):
        return np.nan if 0.5 < u[0] < 0.6 else rugged(u)

    points, _ = ask_and_tell(holed, 3, 180, seed=1)
    assert min(map(rugged, points)) < 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_a_search_by_variables_finds_a_minimum_where_evaluations_begin_to_fail(seed):
    points, search = ask_and_tell(lambda u: np.nan if u[0] > 0.6 else bowl(u), 3, 180, seed=seed)
    assert search.evaluations[COORDINATES] > 0
    best = points[np.argmin(np.where(points[:, 0] > 0.6, np.inf, bowl(points)))]
    np.testing.assert_allclose(best, [0.6, 0.7, 0.7], atol=1e-3)


def test_descents_that_agree_end_the_search():
    _, search = ask_and_tell(bowl, 3, 400)
    assert search.is_done
    _, search = ask_and_tell(lambda u: np.sin(25 * u).sum(), 3, 200)
    assert not search.is_done


@pytest.mark.parametrize("seed", SEEDS)
def test_a_black_box_with_few_evaluations_gets_models_and_its_minimum(seed):
    result = gx.minimize(valley, BOX, blackbox=True, max_evaluations=200, seed=seed)
    assert result.settings["algorithm"] == "model_search"
    assert result.fun < 1e-8 and result.nfev <= 200


@pytest.mark.parametrize(
    "options",
    [{"max_evaluations": 301}, {"generations": 5}, {"max_evaluations": 90, "population": 6}, {"restarts": "bipop"}],
    ids=str,
)
def test_whoever_chooses_something_else_gets_it(options):
    result = gx.minimize(
        valley, BOX, blackbox=True, **({"max_evaluations": 90} | options if "restarts" in options else options)
    )
    assert result.settings["algorithm"] == "cmaes"


@pytest.mark.parametrize(
    "name",
    ["g04", "g06", "g07", "g10", "spring", *(pytest.param(name, marks=pytest.mark.slow) for name in ("g01", "g09"))],
)
def test_constrained_problems_are_solved_with_25_evaluations_a_variable(name):
    problem = gx.problems.get(name)
    most = 25 * problem.dim
    result = gx.minimize(problem, blackbox=True, max_evaluations=most, seed=1)
    assert result.feasible and result.nfev <= most
    assert result.fun <= problem.optimum + 1e-4 * abs(problem.optimum)


def test_the_update_of_second_derivatives_agrees_with_new_slopes_and_changes_nothing_across_them():
    random = np.random.default_rng(1)
    H, s, y = np.array([np.eye(4), np.ones((4, 4))]), random.normal(size=4), random.normal(size=(2, 4))
    updated = update_symmetric(H, s, y)
    np.testing.assert_allclose(updated @ s, y)
    np.testing.assert_allclose(updated, np.swapaxes(updated, 1, 2))
    across = np.linalg.svd(s[None])[2][1:]
    np.testing.assert_allclose(across @ (updated - H) @ across.T, 0.0, atol=1e-12)


def test_a_constraint_that_stays_near_zero_keeps_its_scale():
    log = SampleLog(2)
    for k in range(30):  # a descent along the constraint
        u = np.array([[k / 30, 0.5]])
        log.append(u, u[:, 0], np.array([[5.0 if k == 0 else 1e-9]]), np.empty((1, 0)))
    np.testing.assert_allclose(log.constraint_scale(), 5.0)


def test_the_better_of_two_minima_of_the_models_is_taken_where_no_step_improves():
    # x^2 >= 1 from x = 0: the first derivative is 0, and only points away from there show a way
    model = Quadratic(np.array([0.0, 1.0]), np.array([[1.0], [0.0]]), np.array([[[0.0]], [[-2.0]]]))
    s = minimize_with_constraints(model, 1, np.ones(1), np.array([-2.0]), np.array([2.0]))
    np.testing.assert_allclose(s, [-2.0], atol=1e-6)


def test_constraints_that_fun_returns_are_modelled_too():
    result = gx.minimize(
        lambda x: {"fun": x[0] + x[1] ** 2, "ineq": 1 - x[0] * x[1]}, [(-5, 5)] * 2, blackbox=True, max_evaluations=60
    )
    assert result.settings["algorithm"] == "model_search" and result.feasible


def test_a_step_that_a_failure_does_not_turn_is_not_evaluated_again():
    search, start = FewEvaluations(3, seed=1), np.array([0.64, 0.56, 0.62])  # in the corner of a small sound box
    asked = []
    for k in range(30):
        u = search.ask()[0]
        u = u if k else start  # as x0 is evaluated before the middle of the box
        asked.append(u)
        is_sound = np.all(np.abs(u - 0.6) < 0.05)
        search.tell(np.array([bowl(u) if is_sound else np.nan]), points=u[None])
    failed = np.array([u for u in asked if not np.all(np.abs(u - 0.6) < 0.05)])
    assert len(np.unique(failed, axis=0)) == len(failed)


def test_failures_are_avoided_and_the_minimum_beside_them_is_found():
    def holed(x):
        if x[0] > 0.5:
            raise RuntimeError("no mesh")
        return float(np.sum((x - 0.4) ** 2))

    result = gx.minimize(holed, BOX, blackbox=True, max_evaluations=120, seed=2, on_failure="worst")
    assert result.fun < 1e-6 and 0 < result.n_failed < 60


def test_optimizer_asks_for_the_points_of_minimize():
    seen = []

    def noted(x):
        seen.append(np.array(x))
        return valley(x)

    gx.minimize(noted, BOX, blackbox=True, max_evaluations=60, seed=3)
    opt, asked = gx.Optimizer(BOX, seed=3, max_evaluations=60), []
    while len(asked) < 60:
        x = opt.ask_generation()
        asked += list(x)
        opt.tell(x, np.array([valley(point) for point in x]))
    np.testing.assert_array_equal(np.array(asked), np.array(seen))


def test_a_batch_can_be_told_in_any_order():
    best = []
    for order in (slice(None), slice(None, None, -1)):
        opt = gx.Optimizer(BOX, gx.ModelSearch(population=4), seed=3)
        for _ in range(10):
            x = opt.ask_generation()[order]
            for point in x:
                opt.tell(point[None], np.array([valley(point)]))
        best.append(opt.best.fun)
    assert best[0] == best[1]


def test_a_run_resumes_from_its_checkpoint_with_the_points_of_one_that_was_not_stopped(tmp_path):
    file, points = tmp_path / "run.gx", []

    def noted(x):
        points.append(tuple(x))
        return valley(x)

    options = {"blackbox": True, "max_evaluations": 80, "seed": 6}
    whole = gx.minimize(noted, BOX, **options)
    straight, points[:] = list(points), []
    gx.minimize(noted, BOX, checkpoint=file, callback=lambda p: p.nfev >= 30, **options)
    resumed = gx.minimize(noted, BOX, resume=file, **options)
    assert resumed.fun == whole.fun and resumed.nfev == 80 and points == straight


def test_as_many_points_as_there_are_workers_are_evaluated_at_a_time():
    result = gx.minimize(valley, BOX, workers=2, max_evaluations=40, seed=3)
    assert result.nfev == 40 and result.nit == 20


def test_runs_of_an_ensemble_begin_at_different_points():
    result = gx.minimize(valley, BOX, blackbox=True, max_evaluations=5, runs=3)
    assert len(set(result.runs.fun)) == 3
    assert result.run(1).fun == result.runs.fun[1]


def test_two_descents_from_far_apart_end_the_search_where_nothing_contradicts_a_convex_problem():
    result = gx.minimize(lambda x: float(np.sum((x - 0.3) ** 2)), BOX, blackbox=True, max_evaluations=300, seed=1)
    assert result.success and result.nfev < 200 and result.fun < 1e-12
    _, search = ask_and_tell(bowl, 2, 40)
    assert search.log.looks_convex()
    dent = np.array([[0.2, 0.2]])  # a second valley, which no descent has seen
    search.log.append(dent, np.array([-1.0]), np.empty((1, 0)), np.empty((1, 0)))
    assert not search.log.looks_convex()


def test_a_convex_problem_has_linear_equalities():
    u = np.array([[0.0], [0.5], [1.0]])
    for eq, is_convex in ((2 * u - 1, True), ((u - 0.5) ** 2, False)):
        log = SampleLog(1)
        log.append(u, u[:, 0] ** 2, np.empty((3, 0)), eq)
        log.tangents.append((1, np.array([[1.0], [2.0 if is_convex else 0.0]])))
        assert log.looks_convex() is is_convex


@pytest.mark.parametrize("size", [1e-220, 1e200])
def test_the_size_of_the_values_does_not_matter(size):
    result = gx.minimize(lambda x: size * float(np.sum((x - 0.3) ** 2)), BOX, blackbox=True, max_evaluations=60, seed=1)
    assert result.fun < 1e-8 * size


@pytest.mark.parametrize("answer", [np.nan, {"fun": np.nan, "ineq": [np.nan, 1.0]}], ids=["plain", "constrained"])
def test_a_search_in_which_nothing_has_a_value_tries_other_places(answer):
    points = []

    def fail(x):
        points.append(x.copy())
        return answer

    result = gx.minimize(fail, BOX, blackbox=True, max_evaluations=60, seed=1, on_failure="worst")
    assert result.n_failed == 60 and not result.success
    assert np.ptp(points[:60], axis=0).min() > 2 and len(np.unique(points[:60], axis=0)) == 60


@pytest.mark.parametrize("seed", SEEDS)
def test_constraints_are_known_when_the_first_point_fails_as_not_a_number(seed):
    def cut(x):
        if x[0] + x[1] < 1.6:  # the middle of the box and 40 % of it
            return {"fun": np.nan, "ineq": np.nan}
        return {"fun": float(np.sum((x - 2) ** 2)), "ineq": x[2] - 1}

    result = gx.minimize(cut, [(-2, 3)] * 3, blackbox=True, max_evaluations=100, seed=seed, on_failure="worst")
    assert result.feasible and result.fun <= 1 + 1e-6 and result.n_failed >= 1


def test_the_message_says_which_methods_ran():
    result = gx.minimize(valley, BOX, blackbox=True, max_evaluations=150, seed=1)
    counts = [int(share.split()[0]) for share in result.message.split("Evaluations: ")[1].split(", ")]
    assert sum(counts) == 150 and counts == sorted(counts, reverse=True)
    assert "SQP by differences" in result.message and "quadratic models" not in result.message
    constrained = gx.minimize(gx.problems.get("g06"), blackbox=True, max_evaluations=20, seed=1)
    assert "for quadratic models" in constrained.message
    runs = gx.minimize(valley, BOX, blackbox=True, max_evaluations=30, seed=1, runs=2)
    assert runs.run(1).message.startswith("Stopped: evaluation limit (30)") and " for SQP" in runs.run(1).message


@pytest.mark.parametrize("tolerance", [1e-10, 1e-2])
def test_an_equality_holds_within_the_tolerance_that_was_given(tolerance):
    def fun(x):
        return {"fun": float(np.sum((x - 0.3) ** 2)), "eq": x[0] * x[1] - 1}  # 0.98 at (1, 1, 0.3)

    options = {"max_evaluations": 150, "seed": 1, "eq_tolerance": tolerance}
    result = gx.minimize(fun, BOX, blackbox=True, **options)
    assert result.feasible and abs(result.eq[0]) <= tolerance
    assert result.fun <= 0.98 + 1e-6
    opt = gx.Optimizer(BOX, **options)
    assert opt.algorithm.eq_tolerance == tolerance


def test_it_can_be_named_and_needs_double_precision():
    result = gx.minimize(valley, BOX, gx.ModelSearch(), blackbox=True, max_evaluations=200, seed=0)
    assert result.fun < 1e-8 and result.settings["algorithm"] == "model_search"
    with pytest.raises(gx.InputError, match="float64"):
        gx.minimize(valley, BOX, gx.ModelSearch(), blackbox=True, generations=5, compute=gx.Compute(dtype="float32"))


@pytest.mark.parametrize("seed", range(20, 23))
def test_a_half_space_separates_the_points_that_failed(seed):
    rng = np.random.default_rng(seed)
    normal, points = rng.normal(size=3), rng.uniform(size=(40, 3))
    normal /= np.linalg.norm(normal)
    failed = (points - 0.5) @ normal > 0.1
    log = SampleLog(3)
    log.append(points, np.where(failed, np.nan, 1.0), np.empty((40, 0)), np.empty((40, 0)))
    x = points[np.flatnonzero(~failed)[0]]
    offset, g = log.separate_failures(x)
    assert offset < 0  # x did not fail
    predicted = offset + (points - x) @ g > 0
    assert np.mean(predicted == failed) >= 0.9 and g @ normal / np.linalg.norm(g) > 0.8


def slope_that_fails(seed, dim=4):
    """A bowl whose minimum lies where evaluations fail, its least value where they do not, and its value at 1/2."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=dim)
    normal /= np.linalg.norm(normal)
    root = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    H, center = (root * 10.0 ** np.linspace(0, 2, dim)) @ root.T, 0.5 + 0.35 * normal

    def fun(u):
        return np.nan if normal @ (u - 0.5) > 0.15 else float((u - center) @ H @ (u - center))

    inverse = np.linalg.inv(H)
    least = 0.2**2 / float(normal @ inverse @ normal)
    return fun, least, fun(np.full(dim, 0.5))


def test_a_descent_slides_along_the_border_beyond_which_evaluations_fail():
    gaps = []
    for seed in range(30, 35):
        fun, least, start = slope_that_fails(seed)
        asked, _ = ask_and_tell(fun, 4, 120, seed=seed)
        gaps.append((np.nanmin([fun(u) for u in asked]) - least) / start)
    assert min(gaps) >= -1e-9 and np.median(gaps) <= 0.02  # 0.1 with a wall of inf


def test_a_difference_that_fails_is_taken_on_the_other_side():
    log = SampleLog(2)
    log.append(np.array([[0.5, 0.5]]), np.array([1.0]), np.empty((1, 0)), np.empty((1, 0)))
    moves = SQPByDifferences(log, 0).differentiate()
    points = next(moves)
    log.append(points, np.array([np.nan, 2.0]), np.empty((2, 0)), np.empty((2, 0)))
    opposite = moves.send(np.array([1, 2]))
    np.testing.assert_allclose(opposite, [[1.0 - points[0, 0], 0.5]])


def count_rounds(n, goal, dim=5):
    """Rounds of n evaluations until a valley is solved."""
    search, best, rounds = FewEvaluations(dim, 4, n_parallel=n), np.inf, 0
    while best > goal and rounds < 150 * dim:
        x = 4.0 * search.ask(n) - 2.0
        values = np.sum(100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2, axis=1)
        search.tell(values)
        best, rounds = min(best, values.min()), rounds + 1
    return rounds


def test_evaluations_at_the_same_time_save_time():
    one, four, eight = (count_rounds(n, 1e-6) for n in (1, 4, 8))
    assert four <= 0.65 * one and eight <= 0.45 * one


def test_a_step_onto_curved_constraints_is_corrected_until_it_meets_them():
    # minimise -y where y <= 1 - 4 (x - 0.3)^2 and y <= 0.9 + x^2 - x / 2: whole steps along tangents break both
    def constraints(u):
        x, y = u.T
        return np.column_stack([y - 1 + 4 * (x - 0.3) ** 2, y - 0.9 - x**2 + x / 2])

    search, best = FewEvaluations(2, 5), np.inf
    for _ in range(60):
        u = search.ask()
        search.tell(-u[:, 1], constraints(u))
        if (constraints(u) <= 0).all():
            best = min(best, float(-u[0, 1]))
    x = np.linspace(0, 1, 200001)
    assert best <= -np.max(np.minimum(1 - 4 * (x - 0.3) ** 2, 0.9 + x**2 - x / 2)) + 1e-6


def test_a_variable_with_points_everywhere_still_has_a_next_one():
    model = CoordinateModel(0.5)
    for t in np.linspace(0, 1, 700):
        model.add(float(t), float(np.sin(9 * t)))
    assert 0.0 <= model.maximize_improvement() <= 1.0
