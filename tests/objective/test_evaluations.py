"""What is known of every call of a black box, and that budgets are used to the last of them."""

import traceback
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx

MIXED = {"rate": gx.real(1e-5, 1e-1, log=True), "layers": gx.integer(1, 4), "kind": gx.choice("relu", "tanh")}


def bowl(x):
    return float(np.sum(np.square(x)))


class Counted:
    def __init__(self, fun):
        self.fun, self.x = fun, []

    def __call__(self, x):
        self.x.append(x)
        return self.fun(x)


def train(v):
    if v["kind"] == "tanh" and v["layers"] > 2:
        raise FloatingPointError("the loss is inf")
    return {"fun": abs(np.log10(v["rate"]) + 3) + abs(v["layers"] - 2), "ineq": v["layers"] - 3}


@pytest.mark.parametrize("limit", [1, 4, 5, 7, 20, 30])
@pytest.mark.parametrize("algorithm", [None, "de", "cmaes"])
def test_a_budget_of_calls_is_used_to_the_last_one(algorithm, limit):
    fun = Counted(bowl)
    result = gx.minimize(fun, [(-1, 1)] * 10, algorithm, blackbox=True, max_evaluations=limit)
    assert len(fun.x) == result.nfev == result.history.nfev[-1] == len(result.evaluations) == limit
    assert result.fun == min(map(bowl, fun.x))


@pytest.mark.parametrize("limit", [3, 15, 30])
def test_a_budget_of_calls_is_used_with_mixed_variables_equalities_and_fronts(limit):
    runs = [
        (lambda v: v["layers"] + v["rate"], MIXED),
        (lambda x: {"fun": x[0], "eq": x[0] ** 2 + x[1] ** 2 - 1}, [(-2, 2)] * 2),
        (lambda x: [bowl(x), bowl(x - 1)], [(-2, 2)] * 2),
    ]
    for fun, bounds in runs:
        counted = Counted(fun)
        result = gx.minimize(counted, bounds, blackbox=True, max_evaluations=limit)
        assert len(counted.x) == result.nfev == len(result.evaluations) == limit


def test_a_generation_that_repairs_by_differences_uses_what_is_left():
    fun = Counted(lambda x: {"fun": x[0], "eq": x[0] ** 2 + x[1] ** 2 - 1})
    result = gx.minimize(fun, [(-2, 2)] * 2, "epsilon_de", population=10, blackbox=True, max_evaluations=303)
    assert len(fun.x) == result.nfev == 303


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
def test_a_population_may_be_any_integer_of_numpy(kind):
    assert (
        gx.minimize(lambda x: x @ x, [(-5, 5)] * 2, "de", generations=2, population=kind(10)).population.shape[0] == 10
    )
    assert gx.minimize(lambda x: x @ x, [(-5, 5)] * 2, gx.DE(kind(10)), generations=2).population.shape[0] == 10


def test_a_result_has_every_call_by_name_and_so_have_its_table_and_folder(tmp_path):
    fun = Counted(train)
    result = gx.minimize(fun, MIXED, blackbox=True, max_evaluations=60, on_failure="worst")
    calls = result.evaluations
    assert calls.params == [dict(v) for v in fun.x] and calls.generation.max() == result.nit
    assert calls.failed.sum() == result.n_failed > 0 and (calls.error[calls.failed] != "").all()
    assert np.nanmin(np.where(calls.violation <= 0, calls.fun, np.nan)) == result.fun
    table = result.to_dataframe("evaluations")
    assert list(table.columns[5:9]) == ["rate", "layers", "kind", "fun"] and set(table["kind"]) <= {"relu", "tanh"}
    assert (table["seconds"] >= 0).all() and (table["worker"] == 0).all()
    again = gx.load(result.save(tmp_path / "run"))
    assert "kind" in (tmp_path / "run" / "evaluations.csv").read_text().splitlines()[0]
    assert again.to_dataframe("evaluations").equals(table)


def test_compiled_functions_have_no_calls_to_show():
    result = gx.minimize(lambda x: x @ x, [(-1, 1)], "de", generations=2)
    with pytest.raises(AttributeError, match="a Result has no 'evaluations'"):
        _ = result.evaluations
    with pytest.raises(gx.InputError, match="only a black box has a table of its evaluations"):
        result.to_dataframe("evaluations")


def test_a_resumed_run_has_the_calls_of_before(tmp_path):
    options = {"blackbox": True, "population": 10, "max_evaluations": 95, "seed": 3}

    def solve(last, **checkpoint):
        calls = []

        def fun(x):
            calls.append(x)
            if len(calls) > last:
                raise KeyboardInterrupt
            return bowl(x)

        return gx.minimize(fun, [(-1, 1)] * 3, "de", **options, **checkpoint)

    whole = solve(1000)
    assert len(solve(47, checkpoint=tmp_path / "a").evaluations) == 47
    resumed = solve(1000, resume=tmp_path / "a")
    assert np.array_equal(resumed.evaluations.x, whole.evaluations.x)
    assert np.array_equal(resumed.evaluations.fun, whole.evaluations.fun)
    assert np.array_equal(resumed.evaluations.generation, whole.evaluations.generation)
    assert not resumed.evaluations.run.any()


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "de", "population": 10, "generations": 3},
        {"algorithm": "cmaes", "restarts": "ipop", "max_evaluations": 150, "population": 6},
        {"algorithm": "de", "islands": 2, "population": 6, "generations": 3},
    ],
    ids=["independent", "restarts", "islands"],
)
def test_every_call_of_an_ensemble_names_its_run(options):
    result = gx.minimize(bowl, [(-1, 1)] * 2, blackbox=True, runs=range(3, 6), **options)
    calls = result.evaluations
    assert np.unique(calls.run).tolist() == [3, 4, 5]
    for number, x, nfev, nit in zip(result.runs.number, result.runs.x, result.runs.nfev, result.runs.nit, strict=True):
        rows = calls.run == number
        assert rows.sum() == nfev and (calls.x[rows] == x).all(axis=1).any()
        assert np.array_equal(np.unique(calls.generation[rows]), np.arange(1, nit + 1))
    frame = result.to_dataframe("evaluations")
    assert frame.columns[0] == "run" and frame["run"].tolist() == calls.run.tolist()


def test_workers_are_numbered_and_their_calls_timed():
    result = gx.minimize(bowl, [(-1, 1)] * 3, "de", workers=2, population=12, generations=3)
    assert set(result.evaluations.worker) <= {0, 1} and np.isfinite(result.evaluations.seconds).all()
    alone = gx.minimize(bowl, [(-1, 1)] * 3, "de", blackbox=True, population=12, generations=3)
    assert np.array_equal(result.evaluations.x, alone.evaluations.x)


# --- exceptions ---------------------------------------------------------------------------------------------------


def typo(x):
    return undefined + x[0]  # noqa: F821


@pytest.mark.parametrize("options", [{"blackbox": True}, {"workers": 2}], ids=["here", "workers"])
def test_an_exception_in_the_first_call_is_raised_with_its_file_and_line(options):
    fun = Counted(typo)
    with pytest.raises(
        gx.EvaluationError, match=r"NameError: .*'undefined'.* in typo \(test_evaluations.py:\d+\)"
    ) as raised:
        gx.minimize(fun if "blackbox" in options else typo, [(-1, 1)] * 3, **options)
    assert len(fun.x) <= 1
    cause = raised.value.__cause__
    assert isinstance(cause, NameError) or "undefined + x[0]" in str(cause)


def test_later_exceptions_are_failures_that_keep_their_traceback():
    calls = []

    def fun(x):
        calls.append(x)
        return typo(x) if len(calls) % 5 == 0 else bowl(x)

    result = gx.minimize(fun, [(-1, 1)] * 3, "de", population=10, generations=4, blackbox=True)
    assert result.n_failed == 8 and "undefined + x[0]" in result.failures[0].traceback
    assert "galapax/objective" not in result.failures[0].traceback


def test_who_expects_failures_gets_them_from_the_first_call_on():
    result = gx.minimize(typo, [(-1, 1)] * 3, "de", population=10, generations=2, blackbox=True, on_failure="worst")
    assert result.n_failed == 20 and np.isnan(result.fun)


def bad_helper(p):
    return jnp.ones((3, 3)) @ p


def bad_objective(p):
    return jnp.sum(bad_helper(p) ** 2)


def numpy_objective(p):
    return np.sum(np.exp(p))


def test_a_mistake_in_a_traced_objective_shows_the_users_lines_alone():
    for fun, where in ((bad_objective, "bad_helper"), (numpy_objective, "numpy_objective")):
        with pytest.raises(gx.InputError, match=rf"in {where} \(test_evaluations.py:\d+\)") as raised:
            gx.minimize(fun, [(0, 10), (0, 5)])
        text = "".join(traceback.format_exception(raised.value))
        assert len(text.splitlines()) < 30 and "During handling" not in text and "jax/_src" not in text
        assert 'galapax/objective/traced.py", line' not in text


def test_a_function_of_named_values_is_said_to_have_been_called_with_them():
    with pytest.raises(gx.InputError, match=r"KeyError .*called with a mapping of named values: 'q'"):
        gx.minimize(lambda v: v["q"], {"a": (0, 1)})


def test_warnings_point_at_the_call():
    single = jnp.ones(3, jnp.float32)
    with pytest.warns(UserWarning, match="float32 arrays") as caught:
        gx.minimize(lambda x: jnp.sum((x - single) ** 2), [(-1, 1)] * 3, "de", generations=2)
    assert {Path(warning.filename).name for warning in caught} == {"test_evaluations.py"}


def basin(x, xp=np):
    distance = xp.sum((x - 0.4) ** 2)
    return xp.where(distance < 0.02, distance, xp.inf)


def test_penalties_of_inf_over_most_of_the_box_are_searched():
    traced = gx.minimize(lambda x: basin(x, jnp), [(-1, 1)] * 2, max_evaluations=5000)
    called = gx.minimize(lambda x: float(basin(x)), [(-1, 1)] * 2, blackbox=True, max_evaluations=500)
    assert traced.fun < 1e-6 and called.fun < 1e-6


# --- starting points ----------------------------------------------------------------------------------------------


def valley(x):
    return float(100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2 + (x[2] - 0.5) ** 2)


@pytest.mark.parametrize("algorithm", [None, "cmaes"])
def test_a_short_run_begins_at_its_starting_point_and_improves_on_it(algorithm):
    start = [0.8, 0.6, 0.4]
    for seed in range(4):
        result = gx.minimize(valley, [(-2, 2)] * 3, algorithm, x0=start, blackbox=True, max_evaluations=60, seed=seed)
        first = result.evaluations.x[:4]
        assert np.array_equal(first[0], start) and np.abs(first - start).max() < 1.0
        assert result.fun < 0.5 * valley(start)


@pytest.mark.parametrize("budget", [6, 30])
def test_a_run_from_a_corner_of_the_box_begins_there_and_improves_on_it(budget):
    for corner in ([-2.0, -2.0, -2.0], [-2.0, 2.0, -2.0]):
        result = gx.minimize(valley, [(-2, 2)] * 3, x0=corner, blackbox=True, max_evaluations=budget)
        assert result.evaluations.x[0].tolist() == corner and result.nfev == budget
        assert result.fun < valley(corner)


def test_a_whole_simplex_may_be_given():
    corners = np.vstack([np.zeros(3), np.eye(3)])
    result = gx.minimize(valley, [(-2, 2)] * 3, x0=corners, blackbox=True, max_evaluations=20)
    assert np.array_equal(result.evaluations.x[:4], corners) and len(result.evaluations) == 20
