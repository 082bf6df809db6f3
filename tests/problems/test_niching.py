"""The CEC 2013 niching suite against values of another implementation (IOHexperimenter) and its published optima."""

import json
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.problems.cec2013_niching import ACCURACIES, NICHING_FUNCTIONS, count_optima

DATA = Path(__file__).parent.parent / "support" / "data" / "cec2013_niching.json"
QUICK = (*range(1, 11), 12, 20)
EVERY_FUNCTION = pytest.mark.parametrize(
    "function", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NICHING_FUNCTIONS]
)


@cache
def heights():
    return json.loads(DATA.read_text())


def evaluate(problem, x):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.vmap(problem.fun))(jnp.asarray(x, "float64")))


@EVERY_FUNCTION
def test_values_and_optima_agree_with_the_suite(function):
    definition, problem, expected = NICHING_FUNCTIONS[function], gx.problems.niching(function), heights()[str(function)]
    n_optima = len(problem.solutions)
    assert n_optima == definition.n_optima
    values = evaluate(problem, np.concatenate([problem.solutions, expected["x"]]))
    np.testing.assert_allclose(values[n_optima:], -np.array(expected["height"]), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(values[:n_optima], problem.optimum, atol=2e-7)  # F3 is below its stated height by that
    inside = (problem.solutions >= problem.bounds.lower) & (problem.solutions <= problem.bounds.upper)
    assert inside.all()
    for accuracy in ACCURACIES:
        assert count_optima(function, problem.solutions, values[:n_optima], accuracy) == n_optima


def test_an_optimum_counts_once_and_only_within_the_accuracy():
    x = np.array([[3.0, 2.0], [3.0, 2.005], [-2.805118, 3.131312], [0.0, 0.0]])
    fun = np.array([-200.0, -199.9995, -199.995, -30.0])
    assert count_optima(4, x, fun, 1e-1) == 2
    assert count_optima(4, x, fun, 1e-3) == 1


def test_a_function_beyond_the_suite_is_refused():
    with pytest.raises(gx.InputError, match="function must be 1 to 20"):
        gx.problems.niching(21)
