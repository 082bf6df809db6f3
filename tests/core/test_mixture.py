"""Mixtures: amounts within bounds that add up to a total."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx

AMOUNTS = [(0.1, 0.7), (0.0, 0.5), (0.2, 0.6), (0.0, 0.4)]


def cost_and_waste(x):
    xp = np if isinstance(x, np.ndarray) else jnp
    return xp.stack([x @ np.array([1.0, 3.0, 2.0, 5.0]), x @ np.array([4.0, 1.0, 2.0, 0.5])], axis=-1)


def first_two(x):
    return x[..., 0] + x[..., 1] - 0.8


def each_at_most(x):
    return x[..., :2] - 0.6


@pytest.mark.slow
@pytest.mark.parametrize("ineq", [first_two, each_at_most], ids=["scalar", "vector"])
@pytest.mark.parametrize("how", [{"vectorized": True}, {}], ids=["all rows at once", "one by one"])
def test_a_mixture_adds_up_within_bounds_at_every_point(how, ineq):
    problem = gx.mixture(
        cost_and_waste, AMOUNTS, total=1.2, balance="c", ineq=ineq, variables=["a", "b", "c", "d"], name="mix"
    )
    assert problem.variable_names() == ["a", "b", "d"] and list(problem.derived) == ["c"]
    result = gx.minimize(problem, gx.NSGA2(population=12), generations=10, blackbox=True, **how)
    a, b, d = result.X.T
    amounts = np.stack([a, b, result.derived["c"], d], axis=1)
    assert len(amounts) > 1
    np.testing.assert_allclose(amounts.sum(axis=1), 1.2, rtol=1e-12)
    lower, upper = np.array(AMOUNTS).T
    assert np.all((amounts >= lower) & (amounts <= upper))
    np.testing.assert_allclose(result.F, cost_and_waste(amounts), rtol=1e-12)
    np.testing.assert_allclose(result.G[:, :-2], ineq(amounts).reshape(len(amounts), -1), atol=1e-12)
    assert (result.G <= 0).all()


def test_a_mixture_pickles_and_may_be_traced():
    problem = gx.mixture(cost_and_waste, AMOUNTS, balance=np.int64(1), ineq=first_two, derived={"sum": _total})
    copied = pickle.loads(pickle.dumps(problem))
    x = np.array([0.3, 0.4, 0.1])
    assert copied.derived["x2"](x) == pytest.approx(0.2) and copied.derived["sum"](x) == pytest.approx(1.0)
    for part in ("fun", "ineq"):
        np.testing.assert_allclose(getattr(copied, part)(x), getattr(problem, part)(jnp.asarray(x)), rtol=1e-6)


def _total(x):
    return x.sum()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"total": 3.0}, "no amounts within bounds add up to total = 3"),
        ({"total": 0.1}, "at least 0.3"),
        ({"total": np.nan}, "total must be"),
        ({"balance": "e", "variables": list("abcd")}, "balance must be one of a, b, c, d"),
        ({"balance": 4}, "balance must be the name or the number"),
        ({"balance": 1.5}, "balance must be the name or the number"),
        ({"variables": ["a", "b"]}, "variables has 2 names for 4 amounts"),
        ({"bounds": AMOUNTS[:1]}, "at least two amounts"),
        ({"units": {"e": "kg"}, "variables": list("abcd")}, "units names 'e'"),
        ({"eq": first_two, "constraint_names": ["one"]}, "constraint_names cannot be given"),
    ],
)
def test_mixtures_that_cannot_be(changes, why):
    bounds = changes.pop("bounds", AMOUNTS) if "bounds" in changes else AMOUNTS
    with pytest.raises(gx.InputError, match=why):
        gx.mixture(cost_and_waste, bounds, **changes)
