"""Black boxes: what may come back from a call, what counts as a failure, and what becomes of it."""

import re
import time
from collections import UserDict

import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params
from support.simulators import LOWER, UPPER, bowl, raises, simulate

import galapax as gx

BOX = [(LOWER, UPPER)] * 3
N = 12


def solve(fun=bowl, algorithm="de", bounds=BOX, **settings):
    return gx.minimize(fun, bounds, algorithm, **{"population": N, "generations": 8, "blackbox": True, **settings})


def at_call(number, value, otherwise=bowl):
    """An objective whose call of that number returns `value`."""

    def fun(x):
        calls.append(x.copy())
        return value if len(calls) == number else otherwise(x)

    calls = []
    fun.calls = calls
    return fun


ODD = {
    "nothing": (None, r"fun must return a number .*None \(is the `return` missing\?\)"),
    "text": ("high", "fun must return a number .*'high'"),
    "complex": (1 + 2j, "fun must return a number .*complex|fun must return a number .*2j"),
    "empty": (np.zeros(0), r"got shape \(0,\)"),
    "two numbers": (np.zeros(2), "fun returned 2 numbers for one solution and 1 for others"),
    "a matrix": (np.zeros((2, 2)), r"got shape \(2, 2\)"),
    "masked": (np.ma.masked, "fun returned a masked value"),
    "masked array": (np.ma.masked_array([-5.0], mask=[True]), "fun returned a masked value"),
    "masked in a list": ([np.ma.masked_array(-5.0, mask=True)], "fun returned"),
    "an object": (object(), "fun must return a number"),
    "NaN": (np.nan, "fun returned nan"),
    "infinite": (-np.inf, "fun returned -inf"),
}


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("case", ODD)
def test_one_odd_return_is_a_failed_evaluation_that_the_result_names(case):
    value, why = ODD[case]
    fun = at_call(57, value)
    result = solve(fun)
    assert result.nfev == len(fun.calls) == 8 * N and result.n_failed == 1
    ((x, error, _),) = result.failures
    assert np.array_equal(x, fun.calls[56])
    assert re.search(why, error) and "First failure: fun" in result.message
    assert result.fun == min(bowl(x) for i, x in enumerate(fun.calls) if i != 56)


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Torn(UserDict):
    """A mapping that cannot be read."""

    def __iter__(self):
        raise RuntimeError("torn")


@pytest.mark.parametrize("what", [SystemExit(2), Silent(), Torn(fun=1.0)], ids=lambda what: type(what).__name__)
def test_a_function_that_exits_or_is_odd_in_its_own_way_costs_one_evaluation(what):
    def fun(x):
        calls.append(x)
        if len(calls) == 57 and isinstance(what, BaseException):
            raise what
        return what if len(calls) == 57 else bowl(x)

    calls = []
    result = solve(fun)
    assert result.n_failed == 1 and result.nfev == 8 * N and result.failures[0].error.startswith("fun raised")


def test_what_every_first_point_returns_is_refused_with_a_sentence():
    with pytest.raises(gx.InputError, match=r"fun must return a number .*None"):
        solve(lambda x: None)
    with pytest.raises(gx.InputError, match="masked"):
        solve(lambda x: np.ma.masked)


@pytest.mark.parametrize("value", [None, np.zeros(3), np.ma.masked_all(N)], ids=["nothing", "wrong length", "masked"])
def test_an_odd_return_for_a_whole_generation_costs_that_generation(value):
    def fun(x):
        calls.append(len(x))
        return value if len(calls) == 3 else ((x - 1.0) ** 2).sum(axis=1)

    calls = []
    result = solve(fun, vectorized=True)
    assert result.nit == 8 and result.n_failed == N and 0 < len(result.failures) < N and result.feasible


def test_masked_values_are_failures():
    opt = gx.Optimizer(BOX, "de", population=N)
    x = opt.ask_generation()
    values = np.ma.masked_array(np.zeros(N), mask=np.arange(N) == 3)
    values[3:4].data[:] = -100.0
    opt.tell(x, values)
    assert opt.n_failed == 1 and opt.best.fun == 0.0


def test_the_first_few_failures_are_recorded_shown_and_saved(tmp_path):
    result = solve(raises, "random", generations=20)
    assert result.n_failed > len(result.failures) == 5
    assert all(x[0] > 2.0 and error == "fun raised ValueError: no convergence" for x, error, _ in result.failures)
    assert "failed: fun raised ValueError: no convergence, at x = [" in str(result)
    again = gx.load(result.save(tmp_path / "run"))
    for before, after in zip(result.failures, again.failures, strict=True):
        assert np.array_equal(before.x, after.x) and before.error == after.error


def test_without_failures_there_are_none():
    assert solve().failures == () and gx.minimize(lambda x: x @ x, BOX, "de", generations=2).failures == ()


# --- retries and cache ------------------------------------------------------------------------------------------------


def test_a_failed_evaluation_is_tried_again():
    def fun(x):
        seen.append(x.tobytes())
        if seen.count(seen[-1]) <= 2 and x[0] > 1.0:
            raise OSError("the licence server is busy")
        return bowl(x)

    seen = []
    plain, once = solve(), solve(fun, workers=gx.Workers(retries=1))
    assert once.n_failed > 0
    seen.clear()
    twice = solve(fun, workers=gx.Workers(retries=2))
    assert twice.n_failed == 0 and np.array_equal(twice.x, plain.x) and twice.nfev == plain.nfev < len(seen)


def test_a_cache_calls_each_point_once_and_changes_nothing():
    def fun(x):
        calls.append(x.tobytes())
        return bowl(x)

    calls = []
    settings = {"algorithm": gx.DE(population=N, crossover_rate=0.0), "generations": 30, "population": None}
    settings["x0"] = np.tile([[0.5, 2.0, -1.5]], (N, 1))  # twelve times the same point
    plain = solve(**settings)
    cached = solve(fun, workers=gx.Workers(memoize=True), **settings)
    assert np.array_equal(plain.x, cached.x) and len(set(calls)) == len(calls) == cached.nfev - cached.n_cached
    assert cached.n_cached >= N - 1


# --- objective and constraints from one call --------------------------------------------------------------------------


def apart():
    return {"fun": bowl, "ineq": lambda x: simulate(x)["ineq"], "eq": lambda x: simulate(x)["eq"]}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [None, "epsilon_de", "de"])
def test_constraints_may_come_with_the_objective(algorithm):
    """The default begins with the points that were drawn before it was known that there are constraints."""
    calls = []

    def fun(x):
        calls.append(x.copy())
        return simulate(x)

    together = solve(fun, algorithm, seed=3)
    x0 = together.settings["x0"][0] if algorithm is None else None
    alone = solve(**apart(), algorithm=algorithm or "epsilon_de", seed=3, x0=x0)
    assert np.array_equal(together.x, alone.x) and together.fun == alone.fun
    assert np.array_equal(together.ineq, alone.ineq) and np.array_equal(together.eq, alone.eq)
    assert together.violation == alone.violation
    assert len(calls) == together.nfev  # not even the first generation is called twice


@pytest.mark.slow
def test_several_objectives_may_come_with_constraints():
    def fun(x):
        return gx.Evaluation(fun=[x[0], 1.0 - x[0] + x[1] ** 2], ineq=0.5 - x[0])

    result = solve(fun, None, generations=30)
    assert result.settings["algorithm"] == "nsga2" and len(result.F) > 1 and (result.X[:, 0] >= 0.5).all()
    assert result.G.shape == (len(result.F), 1)


def test_a_vectorized_simulator_returns_columns_by_name():
    def fun(x):
        return {"fun": ((x - 1.0) ** 2).sum(axis=1), "ineq": x[:, 0] - 0.5}

    result = solve(fun, vectorized=True, generations=60)
    assert result.feasible and result.x[0] <= 0.5 and result.ineq.shape == (1,)


def test_one_answer_without_its_constraints_has_failed():
    result = solve(at_call(30, {"fun": -100.0}, simulate))
    assert result.n_failed == 1 and "ineq returned 0 numbers for one solution and 2 for others" in result.message


def test_wrong_names_in_a_dict_of_values_are_errors():
    with pytest.raises(gx.InputError, match="a dict with 'cost'; it may have"):
        solve(lambda x: {"fun": 1.0, "cost": 2.0})
    with pytest.raises(gx.InputError, match="a function ineq was given as well"):
        solve(simulate, ineq=lambda x: x[0])
    with pytest.raises(gx.InputError, match="a dict, which only a black box may do"):
        gx.minimize(lambda x: {"fun": x @ x, "ineq": x[0]}, BOX)
    with pytest.raises(gx.InputError, match=r"returns constraints together with its value.*give ineq and eq"):
        gx.sweep(simulate, BOX, gx.ThreeParentGA(population=4), sigma=[0.1, 0.2], blackbox=True, generations=2)


# --- one policy for failures ------------------------------------------------------------------------------------------


def broken(x):
    return jnp.where(x[0] > 1.0, jnp.nan, jnp.sum((x - 0.5) ** 2))


def broken_in_numpy(x):
    return np.nan if x[0] > 1.0 else float(((x - 0.5) ** 2).sum())


def two(x):
    return jnp.stack([x[1], 1 - x[1] + (x[0] - 0.5) ** 2]) * jnp.where(x[0] > 1.0, jnp.nan, 1.0)


def two_in_numpy(x):
    return np.asarray([x[1], 1 - x[1] + (x[0] - 0.5) ** 2]) * (np.nan if x[0] > 1.0 else 1.0)


PATHS = {
    "compiled": lambda **settings: gx.minimize(broken, BOX, "de", population=N, generations=6, **settings),
    "called": lambda **settings: gx.minimize(
        broken_in_numpy, BOX, "de", population=N, generations=6, blackbox=True, **settings
    ),
    "several objectives": lambda **settings: gx.minimize(two, BOX, "nsga2", population=N, generations=6, **settings),
    "several, called": lambda **settings: gx.minimize(
        two_in_numpy, BOX, "nsga2", population=N, generations=6, blackbox=True, **settings
    ),
    "min-max": lambda **settings: gx.minimax(
        lambda x, y: broken(x) + y[0] * x[1], BOX, [(-1.0, 1.0)], population=N, generations=6, **settings
    ),
    "scenarios": lambda **settings: gx.minimax(
        lambda x, y: broken(x) + y[0] * x[1], BOX, scenarios=[-1.0, 1.0], algorithm="de", population=N, generations=6,
        **settings,
    ),
    "a population that shrinks": lambda **settings: gx.minimize(
        broken, BOX, "lshade", population=N, generations=6, **settings
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", params(PATHS, quick={"called"}))
def test_worst_counts_failures_and_never_chooses_them(path):
    result = PATHS[path](on_failure="worst")
    assert 0 < result.n_failed < result.nfev and np.isfinite(result.fun).all() and result.x[0] <= 1.0


@pytest.mark.parametrize("path", params(PATHS, slow={"several objectives", "min-max", "a population that shrinks"}))
def test_raise_ends_the_run(path):
    with pytest.raises(gx.EvaluationError, match=r"NaN or inf|fun returned .*nan.*, at x = "):
        PATHS[path](on_failure="raise")


@pytest.mark.parametrize("path", params(PATHS, quick={"scenarios"}))
def test_resample_puts_other_points_in_place_of_failed_ones_and_counts_them(path):
    worst, again = PATHS[path](on_failure="worst"), PATHS[path](on_failure="resample")
    assert again.n_failed > 0 and again.x[0] <= 1.0
    if path != "min-max":  # whose refinement takes as many evaluations as it needs
        assert again.nfev > worst.nfev
    assert (again.population[:, 0] <= 1.0).mean() > (worst.population[:, 0] <= 1.0).mean() - 1e-9
    if "min-max" not in path and "shrinks" not in path:  # each fresh point follows one that failed
        final = again.n_failed - (again.nfev - worst.nfev)
        assert 0 <= final < again.n_failed


@pytest.mark.slow
@pytest.mark.parametrize("pair", [("compiled", "called"), ("several objectives", "several, called")])
def test_the_fresh_points_are_the_same_compiled_and_called(pair):
    settings = {"on_failure": "resample", "polish": False, "compute": gx.Compute(dtype="float64")}
    compiled, called = (PATHS[path](**settings) for path in pair)
    assert (compiled.nfev, compiled.n_failed) == (called.nfev, called.n_failed)
    assert np.allclose(compiled.x, called.x, atol=1e-12)


def test_a_point_is_replaced_three_times_at_most():
    result = solve(lambda x: np.nan, on_failure="resample", generations=2)
    assert result.nfev == result.n_failed == 2 * N * 4 and "No point has a finite value" in result.message
    compiled = gx.minimize(lambda x: x[0] * jnp.nan, BOX, "de", population=N, generations=2, on_failure="resample")
    assert compiled.nfev == compiled.n_failed == 2 * N * 4


# --- time -------------------------------------------------------------------------------------------------------------


def test_the_clock_is_looked_at_between_points(clock):
    def slow(x):
        calls.append(x)
        clock.wait(0.1)
        return bowl(x)

    calls = []
    result = solve(slow, population=40, generations=None, max_seconds=1.0)
    assert len(calls) == result.nfev <= 11 and result.n_failed == 0 and result.stop == "time"
    assert result.fun == min(map(bowl, calls))


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"workers": 0}, "workers must be at least 1 .*-1 for all cores"),
        ({"workers": 1.5}, "workers must be a number of processes, a concurrent.futures executor"),
        ({"workers": [1]}, "workers must be a number of processes, a concurrent.futures executor"),
        ({"workers": lambda: 3}, "must return an executor with a submit method; it returned 3"),
        ({"workers": lambda: gx.Workers(timeout=1.0)}, "timeout needs worker processes.*Workers"),
        ({"workers": lambda: gx.Workers(1, timeout=0)}, "timeout must be greater than 0"),
        ({"workers": lambda: gx.Workers(retries=-1)}, "retries must be at least 0"),
        ({"blackbox": False, "workers": gx.Workers(retries=1)}, "retries and memoize apply to black boxes only"),
        ({"blackbox": False, "workers": gx.Workers(memoize=True)}, "retries and memoize apply to black boxes only"),
        ({"workers": lambda: gx.Workers(memoize="yes")}, "memoize must be True or False"),
        ({"workers": lambda: gx.Workers(asynchronous=True)}, "asynchronous=True needs workers: also give their number"),
        (
            {"workers": lambda: gx.Workers(1, workers_timeout=0)},
            "workers_timeout must be a positive number of seconds, 'auto' or None, got 0",
        ),
        ({"workers": lambda: gx.Workers(workers_timeout=60.0)}, "also give their number, or an executor"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_argument_is_named(settings, why):
    workers = settings.get("workers")
    is_late = callable(workers) and "3" not in why  # made when it is called, where its own refusal is expected

    def call():
        solve(**settings | ({"workers": workers()} if is_late else {}))

    with pytest.raises(gx.InputError, match=why):
        call()


def test_the_library_prints_nothing_by_itself(capsys):
    solve(raises, progress=False)
    gx.Live().say("Live page: here")
    said = capsys.readouterr()
    assert said.out == "" and said.err == "Live page: here\n"


@pytest.mark.parametrize("calls", [1, 30], ids=["at once", "later"])
def test_an_interrupt_that_the_function_raises_itself_ends_the_run(calls):
    count = 0

    def fun(x):
        nonlocal count
        count += 1
        if count >= calls:
            raise KeyboardInterrupt
        return float(x @ x)

    res = gx.minimize(fun, [(-2.0, 2.0)] * 3, "de", population=20, blackbox=True, max_evaluations=600)
    assert res.stop == "interrupt" and not res.success and count == calls and res.nfev == calls - 1


@pytest.mark.parametrize("stop_at", [3, 30])  # among the first points, which tell that there are two objectives; later
def test_a_resumed_run_calls_no_point_twice_to_learn_what_the_function_returns(tmp_path, stop_at):
    points = []

    def two(x):
        points.append(tuple(x))
        if len(points) == stop_at:
            raise KeyboardInterrupt
        return [float(np.sum(x**2)), float(np.sum((x - 1) ** 2))]

    box, budget = [(-2.0, 2.0)] * 3, {"max_evaluations": 120, "population": 24, "blackbox": True}
    first = gx.minimize(two, box, checkpoint=tmp_path / "run.ckpt", **budget)
    assert first.nfev == stop_at - 1
    result = gx.minimize(two, box, resume=tmp_path / "run.ckpt", **budget)
    calls = [*points[: stop_at - 1], *points[stop_at:]]  # that one had no answer
    assert result.nfev == len(calls) == len(set(calls)) == 120
    points.clear()
    stop_at = 0
    assert np.array_equal(gx.minimize(two, box, **budget).F, result.F)


@pytest.mark.parametrize("workers", [None, 2])
def test_first_points_count_as_time_of_the_run(workers):
    """What is called to learn how many numbers a function gives belongs to the first generation: for the time left."""
    states = []
    result = gx.minimize(
        sleep_a_little, [(-1, 1)] * 2, "de", blackbox=True, population=10, max_evaluations=30, workers=workers,
        callback=lambda p: states.append((p.nfev, p.working)),
    )  # fmt: skip
    seconds = result.evaluations.seconds.sum() / (workers or 1)
    assert result.timings["run"] >= 0.9 * seconds
    nfev, working = states[0]
    assert working >= 0.9 * result.evaluations.seconds[:nfev].sum() / (workers or 1)


def sleep_a_little(x):
    time.sleep(0.02)
    return float(np.sum(np.square(x)))
