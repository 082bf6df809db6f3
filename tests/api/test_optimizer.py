"""Ask and tell: NumPy in, NumPy out."""

import doctest
import pickle

import jax
import numpy as np
import pytest

import galapax as gx
from galapax.api import optimizer
from galapax.api.trials import MedianRule

BOX = [(1.5, 4.0), (-7.0, -2.0), (-0.5, 9.5)]
LOWER, UPPER = np.array(BOX).T
OPTIMUM = np.array([2.0, -2.5, 8.0])
N = 12


def bowl(x):
    return np.sum((x - OPTIMUM) ** 2, axis=1)


def optimize(fun=bowl, generations=60, **settings):
    """An Optimizer after so many generations, and all points (G * n, d) that it asked for."""
    opt = gx.Optimizer(BOX, "de", **{"population": N, **settings})
    asked = []
    for _ in range(generations):
        x = opt.ask_generation()
        asked.append(x)
        opt.tell(x, fun(x))
    return opt, np.concatenate(asked)


def test_the_example_in_its_docstring_runs():
    found = doctest.DocTestFinder().find(optimizer.Optimizer, globs={"Optimizer": gx.Optimizer})
    runner = doctest.DocTestRunner()
    for example in found:
        runner.run(example)
    assert runner.tries > 0 and runner.failures == 0


@pytest.mark.parametrize("dtype", [pytest.param("float64", marks=pytest.mark.slow), "float32"])
def test_asking_and_telling_finds_the_optimum(dtype):
    opt, asked = optimize(generations=100, population=40, dtype=dtype)
    np.testing.assert_allclose(opt.best.x, OPTIMUM, atol=0.05)
    assert opt.best.fun < 0.01
    assert asked.dtype == dtype and type(asked) is np.ndarray
    assert opt.population.x.dtype == opt.population.objectives.dtype == dtype
    assert np.all((asked >= LOWER) & (asked <= UPPER))


@pytest.mark.parametrize("kind", [pytest.param(np.float64, marks=pytest.mark.slow), np.float32, list])
def test_values_may_be_any_numbers(kind):
    opt = gx.Optimizer(BOX, "de", population=N)
    for _ in range(3):
        x = opt.ask_generation()
        values = bowl(x).tolist() if kind is list else bowl(x).astype(kind)
        opt.tell(x.tolist() if kind is list else x, values)
    reference, _ = optimize(generations=3)
    np.testing.assert_allclose(opt.best.fun, reference.best.fun, rtol=1e-6)


def test_values_as_one_column_are_the_same():
    column, _ = optimize(lambda x: bowl(x)[:, None], generations=5)
    row, _ = optimize(generations=5)
    assert np.array_equal(column.population.x, row.population.x)


def test_ask_returns_the_same_points_until_tell():
    opt = gx.Optimizer(BOX, "de", population=N)
    first = opt.ask_generation()
    assert np.array_equal(opt.ask_generation(), first)
    opt.ask_generation()[:] = 0.0  # a copy, the caller's own
    assert np.array_equal(opt.ask_generation(), first)
    opt.tell(first, bowl(first))
    assert not np.any(np.all(opt.ask_generation() == first, axis=1))
    assert np.array_equal(opt.ask_generation(), opt.ask_generation())


def test_a_refused_tell_changes_nothing():
    opt, _ = optimize(generations=2)
    before, best = opt.ask_generation(), opt.best
    for wrong in ((before + 100.0, bowl(before)), (before, bowl(before)[:5]), (before, np.zeros((N, 2)))):
        with pytest.raises(gx.InputError):
            opt.tell(*wrong)
    assert np.array_equal(opt.ask_generation(), before)
    assert (opt.generation, opt.nfev, opt.best.fun) == (2, 2 * N, best.fun)


def test_best_is_the_best_point_passed_to_tell():
    opt, asked = optimize(generations=10)
    values = bowl(asked)
    assert opt.best.fun == values.min()
    assert np.array_equal(opt.best.x, asked[values.argmin()])
    assert not opt.best.success and opt.best.feasible and opt.best.violation == 0.0  # nobody knows yet
    assert (opt.best.nit, opt.best.nfev, opt.best.n_failed) == (10, 10 * N, 0)
    assert isinstance(opt.best, gx.Result) and "10 generations" in opt.best.message


def test_population_holds_the_survivors_and_their_values():
    opt, asked = optimize(generations=10)
    survivors = opt.population
    assert survivors.x.shape == (N, 3) and survivors.objectives.shape == (N, 1) and survivors.violation is None
    assert np.array_equal(survivors.fitness, bowl(survivors.x))
    assert {tuple(x) for x in survivors.x} <= {tuple(x) for x in asked}
    assert not any(isinstance(part, jax.Array) for part in survivors)


def test_maximize_looks_for_the_largest_value():
    opt, asked = optimize(generations=100, population=40, maximize=True)
    values = bowl(asked)
    assert opt.best.fun == values.max()
    np.testing.assert_allclose(opt.best.x, [4.0, -7.0, -0.5], atol=0.1)
    assert np.array_equal(opt.population.fitness, bowl(opt.population.x))
    mirrored, _ = optimize(lambda x: -bowl(x), maximize=True)
    plain, _ = optimize()
    assert mirrored.best.fun == -plain.best.fun


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("maximize", [False, True])
def test_bad_values_are_failures(bad, maximize):
    opt, asked = optimize(lambda x: np.where(x[:, 0] > 2.75, bad, bowl(x)), generations=15, maximize=maximize)
    fine = asked[asked[:, 0] <= 2.75]
    assert opt.n_failed == opt.best.n_failed == len(asked) - len(fine) > 0
    assert opt.best.fun == (bowl(fine).max() if maximize else bowl(fine).min())


def test_nothing_but_failures_is_no_success():
    opt, asked = optimize(lambda x: np.full(len(x), np.nan), generations=2)
    best = opt.best
    assert not best.success and not best.feasible and np.isnan(best.fun)
    assert "No point has a finite value" in best.message
    assert opt.n_failed == len(asked)


def constrained(opt, generations):
    """Tell bowl's values with 3 - x0 <= 0 and x0 + x1 = 0; all points that were asked for."""
    asked = []
    for _ in range(generations):
        x = opt.ask_generation()
        asked.append(x)
        opt.tell(x, bowl(x), ineq=3.0 - x[:, 0], eq=(x[:, 0] + x[:, 1])[:, None])
    return np.concatenate(asked)


def test_tell_takes_constraints_with_the_values():
    opt = gx.Optimizer(BOX, "de", population=N, eq_tolerance=0.05)
    asked = constrained(opt, 100)
    violation = np.maximum(3.0 - asked[:, 0], 0) + np.maximum(np.abs(asked[:, 0] + asked[:, 1]) - 0.05, 0)
    assert np.any(violation == 0)
    assert opt.best.feasible and opt.best.violation == 0.0
    assert opt.best.fun == bowl(asked[violation == 0]).min()
    assert opt.population.violation.shape == (N,)


def test_the_least_infeasible_point_is_best_until_one_is_feasible():
    opt = gx.Optimizer(BOX, "de", population=N)
    x = opt.ask_generation()
    opt.tell(x, bowl(x), ineq=np.column_stack([6.0 - x[:, 0], x[:, 1]]))
    assert not opt.best.feasible and not opt.best.success
    assert opt.best.violation == pytest.approx(6.0 - x[:, 0].max())
    assert np.array_equal(opt.best.x, x[x[:, 0].argmax()])


def test_constraints_make_the_same_run_as_minimize():
    opt = gx.Optimizer(BOX, "de", population=N, seed=4, run=1)
    constrained(opt, 20)
    res = gx.minimize(
        lambda x: bowl(x[None])[0],
        BOX,
        "de",
        ineq=lambda x: 3.0 - x[0],
        eq=lambda x: x[0] + x[1],
        population=N,
        generations=20,
        seed=4,
        blackbox=True,
        runs=range(1, 2),
    )
    np.testing.assert_allclose(opt.population.x, res.population, rtol=1e-9)
    assert opt.best.violation == pytest.approx(res.violation)


def test_a_bad_constraint_value_is_a_failure():
    opt = gx.Optimizer(BOX, "de", population=N)
    x = opt.ask_generation()
    opt.tell(x, bowl(x), ineq=np.where(x[:, 0] > 2.75, np.nan, -1.0))
    assert opt.n_failed == np.sum(x[:, 0] > 2.75) > 0
    assert opt.best.x[0] <= 2.75


def test_seed_and_run_number_choose_the_draws():
    first, again, seed, run = (
        gx.Optimizer(BOX, "de", population=N, **settings).ask_generation()
        for settings in ({}, {}, {"seed": 1}, {"run": 1})
    )
    assert np.array_equal(first, again)
    assert not np.any(first == seed) and not np.any(first == run) and not np.any(seed == run)


def test_algorithm_may_be_a_name_an_instance_or_left_to_the_library():
    by_name = gx.Optimizer(BOX, "random", population=N)
    by_instance = gx.Optimizer(BOX, gx.RandomSearch(population=N))
    assert np.array_equal(by_name.ask_generation(), by_instance.ask_generation())
    assert gx.Optimizer(BOX).ask_generation().shape[1] == 3


@pytest.mark.parametrize("x64", [False, True])
def test_precision_of_jax_is_left_alone(x64):
    with jax.enable_x64(x64):
        for dtype in ("float32", "float64"):
            opt, _ = optimize(generations=2, dtype=dtype)
            assert opt.best.fun > 0 and opt.ask_generation().dtype == dtype
            assert jax.config.jax_enable_x64 == x64


# --- repairs ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_with_a_problem_candidates_are_moved_onto_the_equalities_as_in_minimize():
    problem = gx.problems.get("g11")
    solver = gx.EpsilonDE(population=8)
    res = gx.minimize(problem, algorithm=solver, generations=20, seed=3, polish=False)
    opt = gx.Optimizer(problem, solver, seed=3)
    for _ in range(20):
        x = opt.ask_generation()
        values = {name: np.array([np.asarray(getattr(problem, name)(p)) for p in x]) for name in ("fun", "eq")}
        opt.tell(x, values["fun"], eq=values["eq"])
    assert opt.nfev == res.nfev == 20 * (8 + 2 * 3)  # two of the eight are moved, each at 1 + d evaluations
    np.testing.assert_allclose(opt.population.x, res.population, rtol=1e-6)


@pytest.mark.slow
def test_without_formulas_the_optimizer_says_that_it_cannot_repair():
    opt = gx.Optimizer([(-1.0, 1.0)] * 2, gx.EpsilonDE(population=8))
    x = opt.ask_generation()
    with pytest.warns(UserWarning, match="cannot do without their formulas.*give it the Problem"):
        opt.tell(x, x.sum(axis=1), eq=x[:, :1] - 0.5)
    assert opt.nfev == 8


def test_tell_takes_parts_of_a_generation_in_any_order():
    """And what comes of it is what comes of whole generations."""
    whole, parts = (gx.Optimizer(BOX, "de", population=12, seed=5) for _ in range(2))
    rng = np.random.default_rng(1)
    for generation in range(4):
        x = whole.ask_generation()
        whole.tell(x, (x**2).sum(axis=1))
        taken = [np.array([trial.x for trial in parts.ask(5)]).reshape(-1, 3) for _ in range(4)]
        assert [len(part) for part in taken] == [5, 5, 2, 0] and np.array_equal(np.concatenate(taken), x)
        points = rng.permutation(x)
        for part in np.array_split(points, 4):
            assert parts.generation == generation and len(parts.ask_generation()) >= len(part)
            parts.tell(part, (part**2).sum(axis=1))
    assert (
        np.array_equal(whole.ask_generation(), parts.ask_generation())
        and whole.best.fun == parts.best.fun
        and parts.nfev == 48
    )


def test_a_trial_has_its_values_by_name_and_may_be_told_in_any_way():
    variables = {"a": gx.real(1e-3, 1.0, log=True), "n": gx.integer(1, 9), "kind": gx.choice("x", "y")}
    opt = gx.Optimizer(variables, population=8)
    first, second, third = opt.ask(3)
    assert set(first.params) == set(variables) and isinstance(first.params["n"], int)
    opt.tell(first, 3.0)
    opt.tell(second.params, 1.0)
    opt.tell(third.x, {"fun": 2.0})
    assert opt.best.fun == 1.0 and opt.best.params == second.params and opt.nfev == 3 and len(opt.ask(9)) == 5
    opt.tell(opt.ask(), None)
    opt.tell(opt.ask(), ValueError("no convergence"))
    assert opt.n_failed == 2 and [f.error for f in opt.best.failures] == [
        "None in place of a value",
        "ValueError: no convergence",
    ]
    assert repr(opt) == "Optimizer(3 variables, 'epsilon_de': 5 values, 0 generations, 3 pending points, best 1)"


@pytest.mark.parametrize("algorithm", [gx.ModelSearch, gx.EHVI])
def test_models_choose_as_many_points_at_a_time_as_are_asked_for_first(algorithm):
    """They are those that a run asks for whose workers are as many."""

    def fun(x):
        values = [float((x[0] - 0.3) ** 2 + x[1] ** 2), float(x[0] ** 2 + (x[1] - 1) ** 2)]
        return values if algorithm is gx.EHVI else values[0]

    box = [(-1.0, 2.0)] * 2
    opt = gx.Optimizer(box, max_evaluations=12, maximize=[False, False] if algorithm is gx.EHVI else False)
    for _ in range(3):
        trials = opt.ask(4)
        assert len(trials) == 4
        for trial in reversed(trials):
            opt.tell(trial, fun(trial.x))
    assert isinstance(opt.algorithm, algorithm)
    run = gx.minimize(fun, box, algorithm(population=4), blackbox=True, max_evaluations=12)
    told, called = (sorted(result.evaluations.x.tolist()) for result in (opt.best, run))
    assert told == called


def test_ask_without_a_number_repeats_what_is_out_longest_and_with_one_does_not():
    opt = gx.Optimizer(BOX, "de", population=6)
    trials = opt.ask(4) + opt.ask(4)
    assert len(trials) == 6 and opt.ask(1) == [] and np.array_equal(opt.ask().x, trials[0].x)
    assert np.array_equal(opt.ask().x, trials[1].x)
    with pytest.raises(gx.InputError, match="k must be at least 1"):
        opt.ask(0)


@pytest.mark.parametrize("algorithm", [None, "de", "cmaes", "pso"])
def test_known_points_cost_nothing_and_the_search_begins_with_the_best(algorithm):
    opt = gx.Optimizer(BOX, algorithm, population=8)
    known = np.random.default_rng(1).uniform(LOWER, UPPER, (20, 3))
    opt.tell(known, bowl(known))
    assert opt.nfev == 0 and opt.best.fun == bowl(known).min() and len(opt.evaluations) == 20
    while opt.generation < 2:
        trial = opt.ask()
        opt.tell(trial, bowl(trial.x[None])[0])
    assert np.min(opt.population.fitness) <= bowl(known).min() and (opt.evaluations.generation[:20] == 0).all()


def test_a_known_point_that_is_better_is_taken_up_later_on():
    opt, _ = optimize(generations=3, population=10)
    opt.tell(OPTIMUM, 0.0)
    assert opt.best.fun == 0.0 and opt.nfev == 30
    while opt.generation < 6:
        x = opt.ask_generation()
        opt.tell(x, bowl(x))
    assert np.min(opt.population.fitness) == 0.0


def test_points_that_were_rounded_on_their_way_are_recognised():
    opt = gx.Optimizer(BOX, "de", population=6)
    for trial in opt.ask(6):
        opt.tell([round(float(v), 7) for v in trial.x], bowl(trial.x[None])[0])
    assert opt.generation == 1
    with pytest.raises(gx.InputError, match="points must lie inside the bounds"):
        opt.tell([0.0, 0.0, 0.0], 1.0)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (
            {"x": 5.0, "n": 3},
            r"inside the bounds, and 1 of 1 points do not: x of point 0 is 5, and its bounds are -1 and",
        ),
        ({"x": 0.5, "n": 9}, "n of point 0 is 9, and its bounds are 1 and 5"),
        ({"x": 0.5, "n": 3.4}, "n of point 0 is 3.4, and its nearest value is 3. Leave these points out"),
        ([0.5, 3.4], "n of point 0 is 3.4, and its nearest value is 3"),
    ],
    ids=["outside", "integer outside", "no integer", "no integer in an array"],
)
def test_a_known_point_that_no_search_may_ask_for_is_refused(point, message):
    opt = gx.Optimizer({"x": (-1.0, 1.0), "n": gx.integer(1, 5)}, "de", population=6)
    with pytest.raises(gx.InputError, match=message):
        opt.tell(point, 1.0)
    assert opt.nfev == 0 and not opt.evaluations.x.size


def test_the_first_values_choose_the_default_algorithm():
    opt = gx.Optimizer([(0.0, 1.0)] * 3)
    for _ in range(60):
        trial = opt.ask()
        opt.tell(trial, [trial.x[0], 1 - trial.x[0] + trial.x[1] ** 2])
    assert opt.best.F.shape[1] == 2 and opt.best.settings["algorithm"] == "nsga2"
    opt = gx.Optimizer([(-1.0, 1.0)] * 2)
    for _ in range(60):
        trial = opt.ask()
        opt.tell(trial, trial.x[0], ineq=trial.x[0] ** 2 + trial.x[1] ** 2 - 1)
    assert opt.best.settings["algorithm"] == "epsilon_de" and opt.best.feasible and opt.best.ineq.shape == (1,)


@pytest.mark.parametrize("n_told", [2, 30])
def test_the_result_draws_saves_and_becomes_a_table_like_any_other(tmp_path, n_told):
    for objectives in (1, 2):
        opt = gx.Optimizer({"a": (0, 1), "b": gx.integer(0, 5)}, population=8)
        for _ in range(n_told):
            trial = opt.ask()
            opt.tell(trial, [trial.params["a"], trial.params["b"] - trial.params["a"]][:objectives])
        again = gx.load(opt.best.save(tmp_path / f"run{objectives}"))
        assert np.array_equal(again.x, opt.best.x) and len(again.evaluations) == n_told
        assert len(opt.best.to_dataframe("evaluations")) == n_told and len(opt.best.to_dataframe()) > 0
        if n_told > 8:
            opt.best.plot.convergence()
            assert opt.best.history.nfev[-1] <= n_told


def test_words_of_other_libraries_are_answered():
    with pytest.raises(TypeError, match="Optimizer has no 'popsize': write population"):
        gx.Optimizer(BOX, popsize=3)
    opt, _ = optimize(generations=1)
    with pytest.raises(AttributeError, match="a Result has no 'named': write params"):
        _ = opt.best.named


def test_a_point_that_waits_twice_is_told_twice():
    opt = gx.Optimizer([(0.0, 1.0)], gx.RandomSearch(population=4), seed=1)
    opt._points[1] = opt._points[0]
    opt.tell(opt.ask_generation()[[1, 0]], [1.0, 2.0])
    assert opt.generation == 0 and len(opt.ask_generation()) == 2


# --- restarts ---------------------------------------------------------------------------------------------------------


def bumps(x):
    """Rastrigin's function of rows x (n, d), off centre."""
    moved = np.atleast_2d(x) - 0.4
    return 10 * moved.shape[1] + np.sum(moved**2 - 10 * np.cos(2 * np.pi * moved), axis=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "restarts", "most"),
    [("cmaes", "ipop", 1500), (None, "auto", 8000)],
)
def test_it_restarts_as_minimize_does(algorithm, restarts, most):
    """The same points in the same order, over several searches."""
    box, seen, asked = [(-5.0, 5.3)] * 2, [], []

    def one(x):
        seen.append(np.array(x))
        return float(bumps(x)[0])

    options = {"restarts": restarts, "seed": 4}
    want = gx.minimize(one, box, algorithm, blackbox=True, target=-1.0, max_evaluations=most + 1, **options)
    seen.pop()  # the answer, once more: minimize looks whether the values are random
    opt = gx.Optimizer(box, algorithm, max_evaluations=most, **options)
    while opt.nfev < most:
        asked.append(opt.ask_generation())
        opt.tell(asked[-1], bumps(asked[-1]))
        assert opt.best.fun <= bumps(asked[-1]).min()
    np.testing.assert_allclose(np.concatenate(asked), np.stack(seen), rtol=0, atol=1e-9)
    assert opt.best.fun == want.fun and opt.best.nfev == want.nfev - 1 and opt.best.nit == want.nit
    assert len({len(x) for x in asked}) > 1 and "searches" in opt.best.message


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [({"max_evaluations": 15}, "limit of 15 evaluations"), ({"generations": 2}, "limit of 2 generations")],
    ids=["evaluations", "generations"],
)
def test_the_result_says_when_a_limit_is_spent_and_more_may_be_asked_for(limits, sentence):
    opt = gx.Optimizer(BOX, "de", population=10, **limits)
    for generation in range(3):
        points = opt.ask_generation()
        opt.tell(points, bowl(points))
        assert (f"The {sentence} is spent." in opt.best.message) == (generation > 0)
    assert opt.best.stop == "budget" and opt.generation == 3


def test_large_populations_go_on_growing():
    opt, sizes = gx.Optimizer([(-5.0, 5.3)] * 2, "cmaes", restarts="bipop", seed=4), set()
    while opt.nfev < 12_000 and 24 not in sizes:  # the first has 6
        points = opt.ask_generation()
        sizes.add(len(points))
        opt.tell(points, bumps(points))
    assert {6, 12, 24} <= sizes


def test_the_last_generation_of_a_budget_is_a_part_of_one():
    opt, asked = optimize(generations=4, max_evaluations=3 * N + 5)
    assert opt.nfev == len(asked) == 3 * N + 5 and opt.n_failed == 0
    assert opt.best.fun == bowl(asked).min()
    for _ in range(2):  # who asks for more decides when to end
        x = opt.ask_generation()
        assert x.shape == (N, 3)
        opt.tell(x, bowl(x))
    assert opt.nfev == 5 * N + 5


def test_a_named_algorithm_does_not_restart_unless_asked():
    opt = gx.Optimizer([(-5.0, 5.3)] * 2, "cmaes", seed=4)
    while opt.generation < 400:
        x = opt.ask_generation()
        assert len(x) == 6
        opt.tell(x, bumps(x))
    assert np.abs(x - x[0]).max() < 1e-6 and opt.best.message == "400 generations so far."


def test_searches_that_agree_make_the_answer_sure():
    opt = gx.Optimizer([(-5.0, 5.3)] * 2, "cmaes", restarts="plain")
    assert opt.ask_generation().shape == (6, 2)
    while opt.generation < 2000 and (opt.generation == 0 or opt.best.stop != "tolerance"):
        x = opt.ask_generation()
        opt.tell(x, np.sum((x - 1.0) ** 2, axis=1))
    assert opt.best.stop == "tolerance" and opt.best.message.endswith("of 4 searches.")
    assert opt.best.success and opt.best.confidence == pytest.approx(0.95)
    np.testing.assert_allclose(opt.best.x, 1.0, atol=1e-8)


def test_restarts_of_several_objectives_are_refused():
    opt = gx.Optimizer([(0.0, 1.0)] * 2, "nsga2", population=8, restarts="plain")
    x = opt.ask_generation()
    with pytest.raises(gx.InputError, match="restarts apply to one objective, and values has 2 columns"):
        opt.tell(x, x)


# --- trials -----------------------------------------------------------------------------------------------------------


def test_a_trial_is_told_once():
    opt = gx.Optimizer(BOX, "de", population=N)
    first, second = opt.ask(2)
    opt.tell(first, 1.0)
    for points, values in ((first, 2.0), ([second, second], [2.0, 3.0]), ([second, first], [2.0, 3.0])):
        with pytest.raises(gx.InputError, match=r"trial [01] is told twice.*tell trial\.x"):
            opt.tell(points, values)
    assert opt.nfev == 1 and opt.best.fun == 1.0  # what was refused left nothing behind
    opt.tell(first.x, 0.5)  # as a point that was evaluated elsewhere
    assert opt.best.fun == 0.5 and opt.nfev == 1
    other = gx.Optimizer(BOX, "de", population=N, seed=5).ask()
    opt.tell(other, 0.25)  # another Optimizer's trial has this number, too
    assert opt.best.fun == 0.25


def test_a_complete_trial_without_a_value_at_a_step_does_not_end_pruning():
    rule = MedianRule(False, [{0: value} for value in (1.0, 2.0, 3.0, 4.0, 5.0)])
    assert rule.prunes({0: 9.0}) and not rule.prunes({0: 2.0})
    rule.complete.append({0: np.nan})
    assert rule.prunes({0: 9.0}) and not rule.prunes({0: 2.0})
    rule.complete[:2] = [{0: np.nan}, {0: np.nan}]
    assert not rule.prunes({0: 9.0})  # three values are too few


@pytest.mark.parametrize("value", ["a", None, [1.0, 2.0]])
def test_a_step_reports_a_number(value):
    trial = gx.Optimizer(BOX, "de", population=6).ask()
    trial.report(np.nan, 0)
    with pytest.raises(gx.InputError, match="the value of a step must be a number, got"):
        trial.report(value, 1)


@pytest.mark.parametrize("maximize", [False, True])
def test_a_trial_behind_the_median_of_complete_ones_is_pruned(maximize):
    sign = -1 if maximize else 1
    opt = gx.Optimizer(BOX, "de", population=N, maximize=maximize)
    for value in (5.0, 1.0, 4.0, 2.0, 3.0):
        trial = opt.ask()
        trial.report(sign * (value + 10), 0)
        assert not trial.should_prune()  # none before five are complete
        trial.report(sign * value, 1)
        opt.tell(trial, sign * value)
    trial = pickle.loads(pickle.dumps(opt.ask()))  # as workers get it
    assert not trial.should_prune()  # nothing was reported
    trial.report(sign * 12.9, 0)
    assert not trial.should_prune()  # the median there is 13
    trial.report(sign * 3.1, 1)
    assert trial.should_prune()
    trial.report(sign * 99, 2)
    assert not trial.should_prune()  # no complete trial has got so far
    opt.tell(trial, None)
    assert opt.n_failed == 1 and opt.evaluations.error[-1] == "pruned after step 2"
    better = opt.ask()
    better.report(sign * 2.9, 1)
    better.report(sign * 50, 1)
    assert better.should_prune()  # a step has one value, the last
    worst = opt.ask()
    worst.report(float("nan"), 1)
    assert worst.should_prune()


@pytest.mark.parametrize(("algorithm", "share"), [("random", 0.6), ("de", 0.97)])
def test_pruning_saves_steps_and_still_finds_the_optimum(algorithm, share):
    def search(prunes):
        opt, n_steps = gx.Optimizer(BOX, algorithm, population=N, seed=1), 0
        for _ in range(360):
            trial = opt.ask()
            for step in range(10):
                value = bowl(trial.x[None])[0] + 50 * 0.5**step
                trial.report(value, step)
                n_steps += 1
                if prunes and trial.should_prune():
                    opt.tell(trial, None)
                    break
            else:
                opt.tell(trial, value)
        return opt.best.fun - 50 * 0.5**9, n_steps

    (plain, all_steps), (pruned, n_steps) = search(False), search(True)
    assert all_steps == 3600 and n_steps < share * all_steps
    assert pruned == plain if algorithm == "random" else pruned < 10 * plain + 0.01  # the best is never pruned here


def test_best_is_drawn_and_saved_from_the_first_value_on(tmp_path):
    opt = gx.Optimizer({"x": (-5, 5), "n": gx.integer(0, 3)})
    opt.tell(opt.ask(), 1.0)
    assert opt.best.plot().axes[0].get_xlabel() == "variable"
    with pytest.raises(gx.InputError, match="no generation is complete yet"):
        opt.best.plot.convergence()
    assert len(opt.best.to_dataframe()) == 1 and gx.load(opt.best.save(tmp_path / "best")).fun == 1.0


def test_trials_without_one_objective_report_nothing():
    opt = gx.Optimizer(BOX, "nsga2", population=N, maximize=[True, False])
    with pytest.raises(gx.InputError, match="one objective"):
        opt.ask().report(1.0, 0)
