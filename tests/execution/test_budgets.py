"""Limits that hold and counts that are true: no run exceeds max_evaluations, and nfev is how often a function was
called.
"""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.execution import arguments

slow = pytest.mark.slow


def vincent(x):
    """As in the CEC 2013 competition on niching: many minima of the same depth."""
    return -jnp.mean(jnp.sin(10 * jnp.log(x)))


def modified_rastrigin(x):
    return jnp.sum(10 + 9 * jnp.cos(2 * jnp.pi * jnp.array([3.0, 4.0]) * x))


@pytest.mark.parametrize("restarts", ["auto", pytest.param("bipop", marks=slow), pytest.param("ipop", marks=slow)])
def test_no_run_of_an_ensemble_exceeds_its_limit(restarts, monkeypatch):
    """Each run has spent something else when its next search begins, in every slice."""
    monkeypatch.setattr(arguments, "MAX_CPU_SLICE_RUNS", 4)
    res = gx.minimize(vincent, [(0.25, 10.0)] * 2, runs=12, max_evaluations=600, restarts=restarts, polish="auto",
                      algorithm=None if restarts == "auto" else "cmaes")  # fmt: skip
    assert res.runs.nfev.max() <= 600
    last = res.run(11)  # in the last slice
    assert last.nfev == res.runs.nfev[11] and np.array_equal(last.x, res.runs.x[11])


@slow
@pytest.mark.parametrize(
    ("fun", "bounds"),
    [(vincent, [(0.25, 10.0)] * 2), (vincent, [(0.25, 10.0)]), (modified_rastrigin, [(0.0, 1.0)] * 2)],
)
def test_no_run_of_many_exceeds_its_limit(fun, bounds):
    res = gx.minimize(fun, bounds, runs=200, max_evaluations=1000, polish="auto")
    assert res.runs.nfev.max() <= 1000 and res.nfev == res.runs.nfev.sum()


@pytest.mark.parametrize("blackbox", [False, True])
@pytest.mark.parametrize("algorithm", ["de", pytest.param("cmaes", marks=slow), pytest.param("lshade", marks=slow)])
def test_fresh_points_in_place_of_failed_ones_are_within_the_limit(algorithm, blackbox):
    def half(x):
        return jnp.where(x[0] > 0, jnp.nan, jnp.sum(x**2))

    options = {
        "max_evaluations": 300,
        "population": 30,
        "on_failure": "resample",
        "blackbox": blackbox,
        "polish": False,
        "tolerance": 0,
    }
    res = gx.minimize(half, [(-3.0, 4.0)] * 2, algorithm, runs=2, **options)
    assert res.n_failed > 0 and res.runs.nfev.min() > 200 and res.runs.nfev.max() <= 300


def test_the_message_gives_the_evaluations_that_were_made():
    def bowl(x):
        return float(np.sum((x - 0.3) ** 2))

    box = [(-3.0, 4.0)] * 20
    few = gx.minimize(bowl, box, blackbox=True, max_evaluations=30)
    assert few.nfev == 30 and few.message.startswith("Stopped: evaluation limit (30) reached")
    some = gx.minimize(bowl, box, "de", population=10, blackbox=True, max_evaluations=39)
    assert some.nfev == 39 and "evaluation limit (39) reached after 4 generations" in some.message
    exact = gx.minimize(bowl, box, "de", population=10, blackbox=True, max_evaluations=30)
    assert exact.nfev == 30 and exact.message == "Stopped: evaluation limit (30) reached after 3 generations."
    shared = gx.minimize(bowl, box, "de", population=10, islands=3, blackbox=True, max_evaluations=100)
    assert shared.nfev == 100 and "evaluation limit (100) reached after 4 generations" in shared.message


@pytest.mark.parametrize(
    ("kind", "budget"),
    [("islands", 13), ("islands", 40), ("asynchronous", 13), pytest.param("asynchronous", 7, marks=slow),
     ("asynchronous", 40)],
)  # fmt: skip
def test_islands_and_asynchronous_runs_call_a_black_box_as_often_as_they_may(kind, budget):
    def bowl(x):
        with lock:
            calls.append(x)
        return float(x @ x)

    lock, calls, options = threading.Lock(), [], {"algorithm": "de", "blackbox": True, "max_evaluations": budget}
    with ThreadPoolExecutor(3) as pool:
        if kind == "islands":
            options |= {"islands": gx.Islands(3, migrate_every=2), "population": 4}
        else:
            options |= {"workers": gx.Workers(pool, asynchronous=True)}
        result = gx.minimize(bowl, [(-1, 2)] * 3, **options)
    assert (len(calls), result.nfev, len(result.evaluations)) == (budget, budget, budget)
    assert result.history.nfev[-1] == budget and result.n_failed == 0


def test_islands_need_a_generation_each():
    with pytest.raises(gx.InputError, match=r"max_evaluations of each of the 3 islands must be at least 4 .*; got 2"):
        gx.minimize(
            lambda x: float(x @ x), [(-1, 2)] * 3, "de", blackbox=True, max_evaluations=7, population=4,
            islands=gx.Islands(3, migrate_every=2),
        )  # fmt: skip


class Counted:
    """A black box that counts its calls. kind: what it returns besides its value, and how."""

    def __init__(self, kind, vectorized=False, fails=False):
        self.kind, self.vectorized, self.fails, self.calls = kind, vectorized, fails, 0

    def one(self, x):
        self.calls += 1
        value = float(np.sum((x - 0.4) ** 2))
        if self.fails and np.sin(40 * np.sum(x)) > 0.3:
            raise ArithmeticError("no value here")
        two = [value, float(np.sum((x + 0.2) ** 2))]
        edge, arc = float(0.5 - x[0]), float(x[0] * x[1] - 0.3)
        return {
            "plain": value,
            "ineq": {"fun": value, "ineq": edge},
            "eq": {"fun": value, "eq": arc},
            "both": {"fun": value, "ineq": [edge, edge - 0.1], "eq": arc},
            "two": two,
            "three": [*two, float(x[1])],
            "two, ineq": {"fun": two, "ineq": edge},
        }[self.kind]

    def __call__(self, x):
        if not self.vectorized:
            return self.one(x)
        rows = [self.one(row) for row in x]
        if isinstance(rows[0], dict):
            return {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return np.array(rows)


KINDS = ["plain", "ineq", "eq", "both", "two", "three", "two, ineq"]
OPTIONS = [
    {},
    {"runs": 3},
    {"x0": [[0.1, 0.2, 0.3]] * 6},
    {"population": 6},
    {"objectives": True},
    {"on_failure": "resample", "fails": True},
    {"on_failure": "worst", "fails": True},
    {"vectorized": True},
    {"integer": True},
    {"workers": gx.Workers(memoize=True)},
    {"algorithm": "de", "runs": 2},
    {"algorithm": "cmaes", "restarts": "bipop"},
    {"islands": 2},
    {"keep": gx.Keep(archive=10)},
]
ALWAYS = [("ineq", 0), ("two", 0)]
CASES = [
    pytest.param(kind, i, id=f"{kind} {i}", marks=() if (kind, i) in ALWAYS else slow)
    for kind, i in itertools.product(KINDS, range(len(OPTIONS)))
]


@pytest.mark.parametrize(("kind", "which"), CASES)
def test_a_black_box_is_called_as_often_as_nfev_says(kind, which):
    options = dict(OPTIONS[which])
    several = kind.startswith(("two", "three"))
    if "algorithm" in options and several:
        options["algorithm"], options["restarts"] = "nsga2", None
    if "keep" in options and not several:
        return
    fun = Counted(kind, options.get("vectorized", False), options.pop("fails", False))
    bounds = [(-1.0, 2.0)] * 3
    if options.pop("integer", False):
        bounds = [gx.real(-1.0, 2.0), gx.integer(-10, 10), gx.real(-1.0, 2.0)]
    if options.pop("objectives", False):
        bounds = gx.Problem(fun, bounds, objectives=["a", "b", "c"][: {"t": 2 + (kind == "three")}.get(kind[0], 1)])
    arguments = (bounds,) if isinstance(bounds, gx.Problem) else (fun, bounds)
    res = gx.minimize(*arguments, blackbox=True, max_evaluations=400, **options)
    runs = options.get("runs", 1)
    assert fun.calls == res.nfev - res.get("n_cached", 0) and res.nfev <= 400 * runs


def test_a_run_that_ended_among_its_first_points_makes_no_call_twice(tmp_path):
    """It was not known yet that the function returns constraints."""
    fun = Counted("both")
    options = {"blackbox": True, "max_evaluations": 200, "checkpoint": tmp_path / "run"}
    whole = gx.minimize(fun, [(-1.0, 2.0)] * 3, **options | {"checkpoint": None})
    calls, fun.calls, one = fun.calls, 0, fun.one

    def interrupted(x):
        if fun.calls == after:
            raise KeyboardInterrupt
        return one(x)

    for after in (2, 6):
        fun.calls, fun.one = 0, interrupted
        path = tmp_path / f"after {after}"
        gx.minimize(fun, [(-1.0, 2.0)] * 3, **options | {"checkpoint": path})
        assert fun.calls == after
        fun.one = one
        res = gx.minimize(fun, [(-1.0, 2.0)] * 3, **options | {"checkpoint": path, "resume": True})
        assert fun.calls == calls == res.nfev and np.array_equal(res.x, whole.x)
