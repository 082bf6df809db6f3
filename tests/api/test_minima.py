"""gx.minima: all minima of a function, by value, place, share of the box and what is unknown."""

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.problems.cec2013_niching import NICHING_FUNCTIONS, count_optima


def count(function, result):
    return count_optima(function, result.minima.x, result.minima.fun, 1e-5)


def test_all_minima_of_himmelblau():
    result = gx.minima(gx.problems.niching(4))
    assert count(4, result) == len(result.minima) == 4
    assert result.success and result.stop == "tolerance" and result.unseen <= 0.01
    assert result.nfev < 20_000
    assert result.minima.verified.all() and (result.minima.found >= 1).all()
    assert np.isclose(result.minima.share.sum(), 1.0) and (result.minima.share > 0.1).all()  # four like basins
    assert result.fun == result.minima.fun[0] and np.array_equal(result.x, result.minima.x[0])


def test_all_global_minima_of_shubert():
    result = gx.minima(gx.problems.niching(6), global_only=True, max_evaluations=200_000)
    assert count(6, result) == len(result.minima) == 18
    assert np.ptp(result.minima.fun) < 1e-3  # the many local ones are left out


def test_the_share_of_a_minimum_is_that_of_its_basin():
    def uneven(x):  # minima at -1 and 1 with the ridge at 0.5
        return x[0] ** 4 / 4 - x[0] ** 3 / 6 - x[0] ** 2 / 2 + x[0] / 2 + x[1] ** 2

    table = gx.minima(uneven, [(-2, 2)] * 2, runs=8).minima
    np.testing.assert_allclose(table.x[:, 0], [-1, 1], atol=1e-5)
    # 800 samples: a standard error of 0.017; the straight way is not always the one that a descent takes
    np.testing.assert_allclose(table.share, [0.625, 0.375], atol=0.05)


def test_the_plain_call_finds_the_minima_of_textbook_functions():
    shubert = gx.minima(gx.problems.niching(6), global_only=True)
    assert count(6, shubert) == len(shubert.minima) == 18
    vincent = gx.minima(gx.problems.niching(7))
    assert count(7, vincent) == len(vincent.minima) == 36 and vincent.success
    camel = gx.minima(gx.problems.niching(5))
    assert count(5, camel) == 2 and len(camel.minima) == 6 and camel.success


def two_wells(x):
    return (x[0] ** 2 - 1) ** 2 + 0.3 * x[0] + x[1] ** 2


def test_within_leaves_out_what_is_worse():
    wells = gx.minima(two_wells, [(-2, 2)] * 2, max_evaluations=4000)
    assert len(wells.minima) == 2 and wells.minima.fun[0] < wells.minima.fun[1]
    assert len(gx.minima(two_wells, [(-2, 2)] * 2, within=0.1, max_evaluations=4000).minima) == 1
    best = gx.minima(lambda x: -two_wells(x), [(-2, 2)] * 2, maximize=True, max_evaluations=4000)
    np.testing.assert_allclose(best.minima.fun, -wells.minima.fun, atol=1e-9)


def test_the_same_seed_gives_the_same_table_and_never_more_evaluations():
    once, again = (gx.minima(two_wells, [(-2, 2)] * 2, max_evaluations=777, unseen=0, seed=3) for _ in range(2))
    assert np.array_equal(once.minima.x, again.minima.x) and once.nfev == again.nfev <= 777
    assert not once.success and once.stop == "budget"


def wells(x):
    return jnp.sum((x**2 - 1) ** 2) + 0.1 * jnp.sum(x)


def test_gradients_find_all_minima_with_fewer_evaluations():
    by_values, by_gradients = (gx.minima(wells, [(-2, 2)] * 6, polish=polish) for polish in (False, "auto"))
    assert len(by_gradients.minima) == len(by_values.minima) == 64 and by_gradients.success
    assert by_gradients.nfev < by_values.nfev / 1.5
    np.testing.assert_allclose(by_values.fun, by_gradients.fun, atol=1e-6)


@pytest.mark.parametrize("polish", [False, "auto"])
def test_many_local_minima_do_not_hide_the_best_one(polish):
    # in 10 variables: descents alone end in some of the many others
    result = gx.minima("ackley", polish=polish, max_evaluations=100_000)
    assert result.fun < 1e-6


def test_every_hole_of_rastrigins_function():
    def rastrigin(x):
        return 10 * len(x) + jnp.sum(x**2 - 10 * jnp.cos(2 * jnp.pi * x))

    result = gx.minima(rastrigin, [(-3.5, 3.5)] * 2)
    holes = {tuple(row) for row in np.rint(result.minima.x).astype(int)}
    assert len(result.minima) == len(holes) == 49


def test_a_kink_is_no_minimum_and_a_minimum_at_a_kink_is_found():
    def kinked(x):  # the four corners of a square; everywhere else on the kinks the other variable still falls
        return jnp.sum(jnp.abs(jnp.abs(x) - 1)) + 0.01 * x[0]

    result = gx.minima(kinked, [(-2, 2)] * 2)
    assert len(result.minima) == 4 and result.minima.verified.all()
    np.testing.assert_allclose(np.abs(result.minima.x), 1, atol=1e-6)


def test_several_runs_have_a_table_of_all_and_one_each():
    result = gx.minima(two_wells, [(-2, 2)] * 2, runs=range(3, 6), max_evaluations=3000)
    singles = [result.run(number) for number in (3, 4, 5)]
    assert result.runs.number.tolist() == [3, 4, 5] and len(result.minima) == 2
    assert result.nfev == sum(single.nfev for single in singles) == result.runs.nfev.sum()
    assert result.minima.found.sum() == sum(single.minima.found.sum() for single in singles)
    alone = gx.minima(two_wells, [(-2, 2)] * 2, runs=range(4, 5), max_evaluations=3000)
    np.testing.assert_allclose(alone.minima.x, singles[1].minima.x, atol=1e-7)
    assert not np.array_equal(singles[0].minima.share, singles[1].minima.share)


@pytest.mark.parametrize("blackbox", [False, True])
def test_a_stopped_run_resumes_where_it_was(tmp_path, blackbox):
    calls = []

    def fun(x):
        calls.append(None)
        return two_wells(x)

    def minima(**options):
        calls.clear()
        return gx.minima(fun, [(-2, 2)] * 2, blackbox=blackbox, max_evaluations=1500, unseen=0, **options)

    whole, seen = minima(), []

    def stop(progress):
        seen.append((progress.nfev, progress.fun, progress.x))
        return progress.nfev > 400

    file = gx.Checkpoint(tmp_path / "minima.checkpoint", seconds=0)
    half = minima(checkpoint=file, callback=stop)
    assert half.stop == "callback" and 400 < half.nfev < 1500 and seen[-1][0] == half.nfev
    before = len(calls)
    resumed = minima(resume=tmp_path / "minima.checkpoint")
    np.testing.assert_array_equal(resumed.minima.x, whole.minima.x)
    assert 1500 - 15 < resumed.nfev == whole.nfev <= 1500  # a sample of the basins takes 15
    if blackbox:
        assert len(calls) == whole.nfev - before == whole.nfev - half.nfev
        assert len(resumed.evaluations.fun) == whole.nfev
    with pytest.raises(gx.InputError, match="written by a different run: unseen"):
        gx.minima(fun, [(-2, 2)] * 2, blackbox=blackbox, max_evaluations=1500, unseen=0.5,
                  resume=tmp_path / "minima.checkpoint")  # fmt: skip


def test_an_error_of_the_callback_carries_the_result():
    def fail(progress):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough") as caught:
        gx.minima(two_wells, [(-2, 2)] * 2, callback=fail)
    assert len(caught.value.result.minima) >= 1


def test_ask_and_tell_finds_what_minima_finds():
    opt = gx.MinimaOptimizer([(-2, 2)] * 2, seed=3, max_evaluations=3000)
    trial = opt.ask()
    assert trial.params == {"x1": trial.x[0], "x2": trial.x[1]}
    opt.tell(trial, two_wells(trial.x))
    while not opt.is_done:
        x = opt.ask_generation()[::-1]  # in any order
        opt.tell(x, [two_wells(row) for row in x])
    asked = gx.minima(two_wells, [(-2, 2)] * 2, seed=3, max_evaluations=3000, polish=False)
    np.testing.assert_allclose(opt.best.minima.x, asked.minima.x, atol=1e-5)
    assert opt.nfev == opt.best.nfev == asked.nfev and opt.best.stop == asked.stop and not len(opt.ask_generation())
    with pytest.raises(gx.InputError, match="the search is done"):
        opt.ask()


def test_the_best_so_far_is_of_all_values_that_were_told():
    opt = gx.MinimaOptimizer([(-2, 2)] * 2, seed=3, max_evaluations=3000)
    trials = opt.ask(4)
    opt.tell(trials, [3.0, float("nan"), 1.0, 2.0])
    best = opt.best
    assert best.fun == 1.0 and best.nfev == 4 and best.n_failed == 1
    np.testing.assert_allclose(best.x, trials[2].x)
    with pytest.raises(gx.InputError, match=r"must be at least 6 \(a search evaluates at least one generation\)"):
        gx.minima(two_wells, [(-2, 2)] * 2, max_evaluations=5)


def test_told_constraints_and_failures():
    opt = gx.MinimaOptimizer({"n": gx.integer(0, 10), "x": (0.0, 1.0)}, maximize=True, max_evaluations=1000)
    first = opt.ask(5)
    opt.tell(first, [None] * 5)
    assert len(opt.best.minima) == 0 and np.isnan(opt.best.fun) and "So far 0 minima" in opt.best.message
    with pytest.raises(gx.InputError, match="was not asked for, or its value is known"):
        opt.tell(first[0], 1.0)
    while not opt.is_done:
        p = (trial := opt.ask()).params
        value = -((p["n"] - 3) ** 2) * (p["n"] - 7) ** 2 - (p["x"] - 0.5) ** 2
        opt.tell(trial, value, ineq=p["n"] - 6)
    assert opt.best.minima.x[:, 0].tolist() == [3, 6] and opt.best.n_failed == 5 and opt.best.feasible
    nowhere = gx.MinimaOptimizer([(0, 1)], max_evaluations=50)
    while not nowhere.is_done:
        nowhere.tell(trial := nowhere.ask(), 0.0, ineq=1 + trial.x)
    assert not nowhere.best.feasible and nowhere.best.violation == pytest.approx(1, abs=0.1)


def test_constraints_make_minima_on_their_boundary():
    # on the ring 1 <= |x| the least |x - (0, 0.5)|... the height x1 is least and largest where the ring is thickest
    result = gx.minima(
        lambda x: x[1] ** 2 - x[0] ** 2,
        [(-2, 2)] * 2,
        ineq=lambda x: jnp.sum(x**2) - 1,
        max_evaluations=6000,
    )
    assert result.feasible and (result.minima.violation <= 0).all()
    np.testing.assert_allclose(np.sort(result.minima.x[:, 0])[[0, -1]], [-1, 1], atol=1e-4)


@pytest.mark.parametrize(("name", "seed"), [("g06", 0), ("g06", 3), ("g08", 0), ("g08", 1), ("g08", 3)])
def test_a_minimum_is_listed_once_where_the_first_sample_is_infeasible(name, seed):
    problem = gx.problems.get(name)
    result = gx.minima(problem, seed=seed, progress=False)
    x = result.minima.x / np.asarray(problem.bounds.span)
    distances = np.linalg.norm(x[:, None] - x, axis=2)[np.triu_indices(len(x), 1)]
    assert len(x) <= 6 and np.all(distances > 1e-6)
    assert result.success and result.fun == pytest.approx(problem.optimum, rel=1e-6)


def test_no_infeasible_point_is_a_minimum():
    problem = {"fun": lambda x: (x[0] - 0.1) ** 2 + x[1], "bounds": [(-1, 1)] * 2, "progress": False}
    curve = gx.minima(**problem, eq=lambda x: x[0] - x[1] ** 2, max_evaluations=20_000)
    assert curve.feasible and np.isfinite(curve.minima.fun).all()
    nowhere = gx.minima(**problem, ineq=lambda x: 1 + x[0] ** 2, max_evaluations=4000, runs=2)
    assert len(nowhere.minima) == 1 and np.isnan(nowhere.fun) and not nowhere.success
    assert nowhere.violation == pytest.approx(1, abs=1e-3) and "no feasible point" in nowhere.message


def test_integers_and_black_boxes():
    calls = []

    def fun(v):
        calls.append(v["n"])
        return (v["n"] - 3) ** 2 * (v["n"] - 7) ** 2 + (v["x"] - 0.5) ** 2

    variables = {"n": gx.integer(0, 10), "x": (0.0, 1.0)}
    result = gx.minima(fun, variables, blackbox=True, max_evaluations=2000)
    assert set(result.minima.x[:, 0]) == {3.0, 7.0} and len(result.minima) == 2
    assert result.nfev == len(calls) <= 2000 and all(isinstance(n, int) for n in calls)
    assert len(result.evaluations.fun) == len(calls)


def test_failed_points_are_no_minima():
    def fun(x):
        if x[0] < 0:
            raise ValueError("no value here")
        return (x[0] - 1) ** 2 + x[1] ** 2

    result = gx.minima(gx.Problem(fun, [(-2, 2)] * 2, blackbox=True), workers=None, max_evaluations=1500, seed=1)
    assert len(result.minima) == 1 and result.n_failed > 0
    np.testing.assert_allclose(result.x, [1, 0], atol=1e-3)


def test_a_table_survives_saving(tmp_path):
    result = gx.minima(two_wells, [(-2, 2)] * 2, max_evaluations=3000)
    loaded = gx.load(result.save(tmp_path / "run"))
    for name in ("x", "fun", "violation", "share", "found", "verified"):
        assert np.array_equal(getattr(loaded.minima, name), getattr(result.minima, name)), name
    assert loaded.unseen == result.unseen and "share" in repr(loaded.minima)
    assert (tmp_path / "run" / "report.html").exists()
    assert result.plot() is not None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"global_only": True, "within": 0.1}, "give global_only or within, not both"),
        ({"within": -1.0}, "within must lie between 0"),
        ({"unseen": 2.0}, "unseen must lie between 0 and 1"),
        ({"generations": 5}, "generations"),
        ({"polish": True, "blackbox": True}, "a black box has no gradient"),
    ],
)
def test_what_cannot_work_is_refused(arguments, sentence):
    with pytest.raises(gx.InputError, match=sentence):
        gx.minima(two_wells, [(-2, 2)] * 2, **arguments)


def test_several_objectives_are_refused():
    with pytest.raises(gx.InputError, match="objective"):
        gx.minima(lambda x: x, [(-2, 2)] * 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "share"),
    [(1, 1), (2, 1), (3, 1), (5, 1), (7, 1), (8, 0.95), (9, 0.95), (10, 1), (11, 1), (12, 1), (13, 0.8), (14, 0.6)],
)
def test_most_optima_of_the_suite(function, share):
    limit = NICHING_FUNCTIONS[function].max_evaluations
    result = gx.minima(gx.problems.niching(function), global_only=True, unseen=0.0, max_evaluations=limit, seed=5)
    assert count(function, result) >= share * NICHING_FUNCTIONS[function].n_optima
