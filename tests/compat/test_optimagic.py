"""galapax as an algorithm of optimagic, against the real package."""

import numpy as np
import pytest

om = pytest.importorskip("optimagic")

from galapax.compat.optimagic import Galapax  # noqa: E402

BOUNDS = om.Bounds(lower=np.full(3, -5.0), upper=np.full(3, 5.0))


def rastrigin(x):
    return float(np.sum(x**2 - 10 * np.cos(2 * np.pi * x) + 10))


def test_it_finds_a_global_minimum_that_a_local_search_misses():
    start, bounds = np.array([3.1, -2.2]), om.Bounds(lower=np.full(2, -5.0), upper=np.full(2, 5.0))
    res = om.minimize(rastrigin, start, algorithm=Galapax("lshade", stopping_maxfun=1500), bounds=bounds)
    assert res.fun < 1e-6 < om.minimize(rastrigin, start, algorithm="scipy_lbfgsb", bounds=bounds).fun
    assert res.n_fun_evals <= 1500 and res.algorithm == "galapax"
    assert len(res.history.fun) == res.n_fun_evals


def test_parameters_are_any_tree_and_can_be_fixed_or_maximised():
    res = om.maximize(
        lambda p: -((p["a"] - 1) ** 2) - np.sum((p["b"] - 0.5) ** 2),
        {"a": 0.0, "b": np.zeros(2)},
        algorithm=Galapax(stopping_maxfun=600),
        bounds=om.Bounds(lower={"a": -2.0, "b": np.full(2, -1.0)}, upper={"a": 2.0, "b": np.full(2, 1.0)}),
        constraints=om.FixedConstraint(lambda p: p["b"][:1]),
    )
    np.testing.assert_allclose([res.params["a"], *res.params["b"]], [1.0, 0.0, 0.5], atol=1e-3)


def test_nonlinear_constraints_are_met():
    res = om.minimize(
        lambda x: float(np.sum(x**2)),
        np.ones(2),
        algorithm=Galapax(stopping_maxfun=2500, seed=1),
        bounds=om.Bounds(lower=np.full(2, -2.0), upper=np.full(2, 2.0)),
        constraints=[
            om.NonlinearConstraint(func=lambda x: x[0] + x[1], lower_bound=1.0),
            om.NonlinearConstraint(func=lambda x: x[0] - x[1], value=0.2),
        ],
    )
    np.testing.assert_allclose(res.params, [0.6, 0.4], atol=1e-2)
    assert res.params.sum() >= 1 - 1e-9 and res.params[0] - res.params[1] == pytest.approx(0.2, abs=2e-5)


def test_options_are_converted_and_seeds_repeat():
    def run(**options):
        return om.minimize(rastrigin, np.ones(3), algorithm=Galapax("de", **options), bounds=BOUNDS)

    first, again = (run(population_size=10, stopping_maxiter=5, seed=s, n_cores=1.0) for s in (4, 4))
    assert first.n_fun_evals == 50 and np.array_equal(first.params, again.params)
    assert run(stopping_target=5.0, stopping_maxfun=5000).n_fun_evals < 5000


@pytest.mark.slow
def test_several_cores_evaluate_the_same_points():
    alone, apart = (
        om.minimize(
            rastrigin,
            np.ones(3),
            algorithm=Galapax("de", stopping_maxfun=100, n_cores=n),
            bounds=BOUNDS,
        )
        for n in (1, 2)
    )
    assert np.array_equal(alone.params, apart.params)


def test_an_exception_of_the_function_is_raised():
    calls = []

    def fun(x):
        calls.append(x)
        if len(calls) > 30:
            raise ZeroDivisionError("a mistake")
        return rastrigin(x)

    with pytest.raises(Exception, match="error occurred when evaluating fun") as caught:
        om.minimize(fun, np.ones(3), algorithm=Galapax(), bounds=BOUNDS)
    assert len(calls) == 31 and "a mistake" in str(caught.value.__cause__)


def test_bounds_are_needed():
    with pytest.raises(Exception, match="bounds"):
        om.minimize(rastrigin, np.ones(3), algorithm=Galapax())
