"""The vectorised sine, cosine and tangent against the C library in higher precision, and where they are used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params

import galapax as gx
from galapax.numerics import trigonometry
from galapax.objective import traced as evaluate

FUNCTIONS = {"sin": trigonometry.sine, "cos": trigonometry.cosine, "tan": trigonometry.tangent}
REACH = {"float32": 8192.0, "float64": 1e6}
EVERY_FUNCTION = pytest.mark.parametrize("name", FUNCTIONS)
EVERY_DTYPE = pytest.mark.parametrize("dtype", REACH)


def compute(name, x):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(FUNCTIONS[name])(x))


@EVERY_DTYPE
@EVERY_FUNCTION
@pytest.mark.parametrize("share", [1e-4, 1e-2, 1.0])
def test_within_a_unit_in_the_last_place(name, dtype, share):
    x = np.random.default_rng(3).uniform(-1, 1, 200_000).astype(dtype) * np.array(REACH[dtype] * share, dtype)
    exact = getattr(np, name)(x.astype(np.longdouble))
    scale = np.maximum(1, np.abs(exact)) if name != "tan" else 1 + exact**2  # what an error in x does to it
    assert np.max(np.abs(compute(name, x) - exact) / scale) < 2 * np.finfo(dtype).eps


@EVERY_DTYPE
@EVERY_FUNCTION
def test_beyond_its_reach_the_library_s_own_is_used(name, dtype):
    x = np.array([1.0, 1e7, -3e8, 1e30, 0.5], dtype)
    exact = getattr(np, name)(x.astype(np.longdouble))
    got = compute(name, x)
    np.testing.assert_allclose(got[1:4], np.asarray(exact[1:4], dtype), rtol=4 * np.finfo(dtype).eps)
    # and what is near does not change because something else is far
    assert np.array_equal(got[[0, 4]], compute(name, x[[0, 4]]))


@EVERY_DTYPE
@EVERY_FUNCTION
def test_nan_and_infinity_give_nan(name, dtype):
    assert np.isnan(compute(name, np.array([np.nan, np.inf, -np.inf], dtype))).all()
    assert compute(name, np.zeros(1, dtype))[0] == (1 if name == "cos" else 0)


def objective(x):
    inner = jax.jit(lambda y: jnp.sin(y) + jnp.tan(0.1 * y))
    loop = jax.lax.fori_loop(0, 3, lambda i, total: total + jnp.cos(total), x[0])
    return jnp.sum(jnp.cos(x) * inner(x)) + loop + jnp.where(x[1] > 0, 1.0, jnp.exp(x[1]))


@pytest.mark.parametrize("dtype", params(REACH, slow={"float32"}))
def test_an_objective_means_the_same_with_and_without(dtype, monkeypatch):
    with jax.enable_x64(dtype == "float64"):
        problem = gx.Problem(objective, [(-3, 4)] * 3)
        x = np.random.default_rng(0).uniform(-3, 4, (50, 3)).astype(dtype)
        monkeypatch.setattr(evaluate, "on_cpu", lambda: True)  # elsewhere the device's own functions serve
        with_own = evaluate.trace(problem, dtype)
        monkeypatch.setattr(evaluate, "VECTOR_TRIGONOMETRY", False)
        without = evaluate.trace(problem, dtype)
        assert with_own.formulas.own_trigonometry and not without.formulas.own_trigonometry
        a, b = (np.asarray(f(x).fitness) for f in (with_own, without))
    np.testing.assert_allclose(a, b, rtol=50 * np.finfo(dtype).eps, atol=50 * np.finfo(dtype).eps)
    assert not np.array_equal(a, b)  # else the replacement did not take place


def test_an_objective_without_trigonometry_is_left_alone():
    problem = gx.Problem(lambda x: jnp.sum(x**2), [(-3, 4)] * 3)
    assert not evaluate.trace(problem, "float32").formulas.own_trigonometry
