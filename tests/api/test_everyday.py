"""The plainest call, `gx.minimize(f, bounds)`, on objectives as people have them: it tells the truth about each."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.stop import Stop

SOLVED = {  # objective, box, best value, how close
    "one variable": (lambda x: jnp.sin(3 * x[0]) + 0.1 * x[0] ** 2, [(-5, 5)], -0.9731796, 1e-6),
    "a boundary": (jnp.sum, [(-2, 7)] * 3, -6.0, 1e-12),
    "jump": (lambda x: jnp.sum(x**2) - jnp.where(x[0] > 1, 30.0, 0.0), [(-5, 5)] * 3, -29.0, 1e-9),
    "kinks": (lambda x: jnp.sum(jnp.abs(x - 0.3)), [(-5, 5)] * 3, 0.0, 1e-8),
    "large values": (lambda x: 1e12 * (1 + jnp.sum((x - 0.3) ** 2)), [(-1, 1)] * 3, 1e12, 1.0),
    "small values": (lambda x: 1e-12 * jnp.sum((x - 0.3) ** 2), [(-1, 1)] * 3, 0.0, 1e-24),
    "large variables": (lambda x: jnp.sum((x / 1e12 - 0.3) ** 2), [(-1e12, 1e12)] * 3, 0.0, 1e-14),
    "small variables": (lambda x: jnp.sum((x - 3e-13) ** 2), [(-1e-12, 1e-12)] * 3, 0.0, 1e-36),
    "flat near the optimum": (lambda x: jnp.sum((x - 0.5) ** 20), [(-1, 1)] * 3, 0.0, 1e-30),
    "a needle": (lambda x: -jnp.exp(-1e4 * jnp.sum((x - 0.3) ** 2)), [(-1, 1)] * 2, -1.0, 1e-9),
    "not defined in most of the box": (
        lambda x: jnp.sum(jnp.sqrt(x) + (x - 1) ** 2), [(-5, 5)] * 3, 2.7799747, 1e-5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["one variable", *(pytest.param(n, marks=pytest.mark.slow) for n in list(SOLVED)[1:])])
def test_what_is_called_a_success_is_one(name):
    fun, box, best, close = SOLVED[name]
    found = gx.minimize(fun, box, polish=False)
    assert found.success and found.stop is Stop.TOLERANCE and found.message.startswith("Converged: ")
    assert abs(found.fun - best) <= close
    assert found.nfev < 10_000 * len(box)  # it did not go on for nothing


@pytest.mark.slow
def test_a_constant_is_no_success_and_is_named():
    found = gx.minimize(lambda x: 0 * x[0] + 3.0, [(-1, 1)] * 2, max_evaluations=300, polish=False)
    assert not found.success and found.nfev < 300 and "Converged" not in found.message
    assert found.message.endswith("Every evaluation returned 3: check that the objective depends on x.")


@pytest.mark.slow
def test_values_that_differ_once_are_not_called_constant():
    found = gx.minimize(lambda x: jnp.where(x[0] > 0.5, -1.0, 0.0), [(-1, 1)] * 2, max_evaluations=300, polish=False)
    assert found.fun == -1.0 and "Every evaluation" not in found.message


@pytest.mark.slow
def test_noise_is_never_taken_for_convergence():
    random = np.random.default_rng(3)
    found = gx.minimize(lambda x: float(x @ x + 0.01 * random.normal()), [(-2, 3)] * 2, blackbox=True)
    assert not found.success and found.stop is Stop.BUDGET and abs(found.fun) < 0.1


@pytest.mark.slow
def test_infeasible_constraints_are_reported_with_their_violation():
    found = gx.minimize(lambda x: jnp.sum(x**2), [(-5, 5)] * 4, ineq=lambda x: 100 - jnp.sum(x), polish=False)
    assert not found.success and not found.feasible
    assert "No feasible point was found; the total constraint violation of x is 80." in found.message


def test_a_budget_that_is_too_small_names_the_smallest_that_is_not():
    with pytest.raises(gx.InputError, match=r"at least 4 \(the first generation needs 4 evaluations\); got 1"):
        gx.minimize(lambda x: jnp.sum(x**2), [(-5, 5)] * 2, max_evaluations=1)
    assert gx.minimize(lambda x: jnp.sum(x**2), [(-5, 5)] * 2, max_evaluations=4, polish=False).nfev == 4
