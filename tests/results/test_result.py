"""What a Result, its Runs and its History hold."""

import copy
import dataclasses
import io
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from scipy.optimize import OptimizeResult
from scipy.stats import binomtest
from support.bowl import N, bowl, bowl_in_numpy, solve

import galapax as gx
from galapax.operators.variation import best_1
from galapax.view import terminal


@pytest.fixture(scope="module")
def single():
    return solve()


@pytest.fixture(scope="module")
def ensemble():
    """Six runs, of which three reach the target."""
    middle = float(np.median(solve(runs=6, generations=12).runs.fun))
    return solve(runs=6, target=middle, generations=12)


@pytest.fixture(scope="module")
def constrained():
    return solve(ineq=lambda x: jnp.stack([3.0 - x[0], x[1]]), eq=lambda x: x[0] + x[1])


def test_a_result_is_used_like_scipys(single):
    scipys = OptimizeResult(x=np.zeros(2), fun=1.0, success=True, message="", nit=1, nfev=1)
    assert isinstance(single, dict) and set(scipys) <= set(single)
    for name in single:
        assert single[name] is getattr(single, name)
        assert name in dir(single)
    assert list(single.keys()) == list(single) and len(single.values()) == len(single)
    assert "x" in single and single.get("jac") is None
    assert (lambda x, fun, **rest: fun)(**single) == single.fun


def test_an_unknown_attribute_of_a_result_is_an_attribute_error(single):
    with pytest.raises(AttributeError, match="jac"):
        single.jac  # noqa: B018
    assert not hasattr(single, "jac")
    with pytest.raises(KeyError):
        single["jac"]


def test_setting_an_attribute_of_a_result_sets_its_key(single):
    own = gx.Result(single)
    own.note = "mine"
    assert own["note"] == own.note == "mine" and "note" not in single


def test_a_result_shows_what_matters(single, ensemble):
    for res in (single, ensemble):
        text = repr(res)
        assert res.message in text and str(res.fun)[:6] in text
        for name in ("success", "fun", "x", "nit", "nfev", "seed"):
            assert f"{name}: " in text
    assert "runs: 6" in repr(ensemble) and "runs" not in repr(single)
    assert repr(gx.Result()) == ""


def test_a_result_says_what_was_asked_for():
    res = solve(algorithm=gx.DE(population=N, weight=0.7, mutation=best_1), seed=3, patience=9, target=0.5, runs=2)
    asked = res.settings
    assert (asked["algorithm"], asked["problem"]) == ("de", "bowl")
    assert asked["hyperparameters"] == {
        "population": N,
        "mutation": "best_1",
        "weight": 0.7,
        "crossover_rate": 0.9,
    }
    assert (asked["generations"], asked["seed"], asked["patience"], asked["target"]) == (20, 3, 9, 0.5)
    assert (asked["runs"], asked["first_run"]) == (2, 0)
    assert set(asked["versions"]) == {"galapax", "jax", "numpy", "python"}
    json.dumps(asked)


def test_timings_add_up_to_the_whole(clock):
    for seed in (1, 5):
        began = clock.now
        res = solve(lambda x: jnp.sum(x) * 1.125, seed=seed)
        whole = clock.now - began
        assert set(res.timings) == {"compile", "run", "device", "host"}
        assert all(seconds >= 0 for seconds in res.timings.values())
        assert 0 < res.timings["device"] <= res.timings["run"]
        total = sum(res.timings[part] for part in ("compile", "run", "host"))
        assert total == pytest.approx(whole, abs=0.05)  # of a clock that only its readers move on
    assert res.timings["compile"] == 0.0  # of the second call


def leaves(value):
    """Everything inside a Result, however deep."""
    if dataclasses.is_dataclass(value) and not isinstance(value, gx.Problem | gx.Bounds):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


@pytest.mark.parametrize("which", ["single", "ensemble", "constrained"])
def test_nothing_in_a_result_is_a_jax_array(which, request):
    res = request.getfixturevalue(which)
    found = list(leaves(res))
    assert any(isinstance(value, np.ndarray) for value in found)
    assert not any(isinstance(value, jax.Array) for value in found)
    assert type(res.x) is np.ndarray and type(res.fun) is float and type(res.success) is bool
    assert type(res.nit) is int and type(res.nfev) is int and type(res.n_failed) is int


def test_jax_numbers_as_hyper_parameters_stay_out_of_the_result():
    res = solve(algorithm=gx.DE(population=N, weight=jnp.asarray(0.5)))
    assert not any(isinstance(value, jax.Array) for value in leaves(res))


@pytest.mark.parametrize("which", ["single", "ensemble", "constrained"])
def test_a_result_can_be_pickled(which, request):
    res = request.getfixturevalue(which)
    again = pickle.loads(pickle.dumps(res))
    assert isinstance(again, gx.Result)
    assert again.message == res.message and again.fun == res.fun and again.timings == res.timings
    assert np.array_equal(again.x, res.x) and np.array_equal(again.history.best, res.history.best)
    if res.runs is not None:
        assert np.array_equal(again.runs.fun, res.runs.fun)
    with pytest.raises(gx.InputError, match=r"runs=range\(0, 1\)"):
        again.run(0)


def test_a_copied_result_is_complete(single, tmp_path):
    for again in (copy.copy(single), copy.deepcopy(single), pickle.loads(pickle.dumps(single))):
        assert set(again) == set(single) and again.problem.name == "bowl"
    assert np.array_equal(gx.load(again.save(tmp_path)).x, single.x)


def test_a_run_is_replayed_by_its_number(ensemble):
    assert ensemble.run(4).fun == pytest.approx(ensemble.runs.fun[4])
    assert ensemble.run(np.int64(4)).settings["first_run"] == 4
    later = solve(runs=range(7, 8))
    assert later.run(7).fun == later.fun
    for wrong in (6, -1, "a", None, 1.5):
        with pytest.raises(gx.InputError, match=r"run must be one of 0 to 5"):
            ensemble.run(wrong)


def test_a_run_that_was_stopped_from_outside_is_replayed_to_the_same_generation():
    res = solve(runs=6, generations=3000, callback=lambda state: True)
    assert 0 < res.nit < 3000
    again = res.run(2)
    assert again.nit == res.runs.nit[2]
    np.testing.assert_allclose(again.fun, res.runs.fun[2], rtol=1e-9)


# --- Runs and History -------------------------------------------------------------------------------------------------


def runs_with(success, fun=None, nfev=None):
    n = len(success)
    zeros = np.zeros(n)
    fun = zeros if fun is None else fun
    nfev = np.full(n, 100) if nfev is None else nfev
    return gx.Runs(np.arange(n), zeros[:, None], fun, zeros, zeros, nfev, zeros, np.array(success, bool), None)


@pytest.mark.parametrize("hits", [0, 1, 4, 9, 10])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_success_rate_comes_with_wilsons_interval(hits, confidence):
    rate, low, high = runs_with([True] * hits + [False] * (10 - hits)).success_rate(confidence)
    expected = binomtest(hits, 10).proportion_ci(confidence_level=confidence, method="wilson")
    assert rate == hits / 10
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_success_rate_has_a_95_percent_interval_by_default(ensemble):
    assert ensemble.runs.success_rate() == ensemble.runs.success_rate(0.95)
    assert ensemble.runs.success_rate()[0] == 0.5


def test_quantiles_are_of_the_final_values():
    fun = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    runs = runs_with([True] * 5, fun=fun)
    assert runs.quantiles().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert runs.quantiles((0.5, 0.9)).tolist() == np.quantile(fun, [0.5, 0.9]).tolist()
    assert runs.quantiles(0.5) == 3.0


def test_expected_running_time_is_all_evaluations_per_success():
    assert runs_with([True, False, True], nfev=np.array([30, 100, 20])).ert() == 75.0
    assert runs_with([False, False]).ert() == np.inf


def test_an_ensemble_reports_each_run(ensemble):
    runs = ensemble.runs
    assert len(runs) == 6 and runs.x.shape == (6, 2)
    for part in (runs.fun, runs.violation, runs.nit, runs.nfev, runs.n_failed, runs.success, runs.feasible):
        assert part.shape == (6,)
    assert runs.feasible.all() and runs.success.dtype == bool
    np.testing.assert_allclose(runs.fun, bowl_in_numpy(runs.x))
    assert np.array_equal(runs.success, runs.fun <= ensemble.settings["target"])
    assert np.array_equal(runs.nfev, runs.nit * N) and ensemble.nfev == runs.nfev.sum()
    assert ensemble.nit == runs.nit[np.argmin(runs.fun)]
    assert ensemble.success == runs.success[np.argmin(runs.fun)]


def test_the_best_of_runs_is_the_best_feasible_one():
    res = solve(lambda x: x[0], ineq=lambda x: 3.9 - x[0], runs=8, generations=1)
    assert 0 < res.runs.feasible.sum() < 8 and not res.runs.success.any()
    assert res.feasible and res.fun == res.runs.fun[res.runs.feasible].min()


def test_runs_without_target_succeed_when_they_converged_to_a_feasible_point():
    res = solve(runs=8, generations=300)
    assert 0 < res.runs.success.sum() < 8  # some take longer
    assert np.array_equal(res.runs.success, res.runs.nit < 300)
    nowhere = solve(lambda x: x[0], ineq=lambda x: 1.0 + bowl(x), generations=2000)  # least violated at one point
    assert nowhere.stop == "tolerance" and not nowhere.feasible and not nowhere.success


def test_history_shapes(single, ensemble):
    assert single.runs is None and len(single.history) == 20
    for part in ("generation", "nfev", "best", "mean", "worst"):
        assert getattr(single.history, part).shape == (20,)
    longest = ensemble.runs.nit.max()
    assert ensemble.runs.history.generation.shape == ensemble.runs.history.nfev.shape == (longest,)
    for part in ("best", "mean", "worst"):
        assert getattr(ensemble.runs.history, part).shape == (6, longest)
        assert getattr(ensemble.history, part).shape == (longest,)
        best = int(np.argmin(ensemble.runs.fun))
        assert np.array_equal(getattr(ensemble.history, part), getattr(ensemble.runs.history, part)[best])


def test_history_is_left_out_when_not_wanted():
    assert solve(keep=gx.Keep(history=False)).history is None
    res = solve(runs=3, keep=gx.Keep(history=False))
    assert res.history is None and res.runs.history is None
    assert np.array_equal(res.runs.fun, solve(runs=3).runs.fun)


def test_what_only_models_forecast_is_answered_with_their_name():
    result = solve()
    with pytest.raises(AttributeError, match=r'no \'forecast\': write algorithm="ehvi"'):
        result.forecast  # noqa: B018


def test_the_objective_of_importances_is_a_number():
    result = gx.minimize(lambda x: float(x @ x), [(-1, 1)] * 2, "random", blackbox=True, max_evaluations=100)
    with pytest.raises(gx.InputError, match="objective must be a whole number, got 'fun'"):
        result.importances("fun")


def test_one_generation_is_one():
    result = gx.minimize(lambda x: jnp.sum(x**2), [(-1, 1)] * 2, "de", generations=1, polish=False)
    assert repr(result.history).startswith("History(1 generation:")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(terminal.result_table(result))
    assert "1 generation, 100 evaluations" in console.export_text()


def test_a_single_run_has_no_runs():
    assert all(solve(runs=runs).runs is None for runs in (1, range(3, 4)))
