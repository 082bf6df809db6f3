"""The tolerance of equality constraints: relative to the spread of h by default, and never a way to a better value."""

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.problem import check_tolerance, derive_eq_tolerance


def surface(x):
    return 2 * (x[0] * x[1] + x[1] * x[2] + x[0] * x[2])


def one_cubic_centimetre(x):
    return x[0] * x[1] * x[2] - 1e-6


def ring(x):
    return x[0] ** 2 + x[1] ** 2 - 1


BOX_IN_METRES = [(1e-3, 0.1)] * 3


def test_a_box_in_metres_has_the_volume_that_was_asked_for():
    result = gx.minimize(surface, BOX_IN_METRES, eq=one_cubic_centimetre)
    assert result.feasible and np.prod(result.x) == pytest.approx(1e-6, rel=1e-9)
    assert result.fun == pytest.approx(6e-4, rel=1e-6)


def test_a_called_box_in_metres_has_it_to_the_tolerance_of_black_boxes():
    result = gx.minimize(surface, BOX_IN_METRES, eq=one_cubic_centimetre, blackbox=True, max_evaluations=1500)
    (tolerance,) = result.problem.eq_tolerance
    assert result.feasible and abs(float(result.eq[0])) <= tolerance < 1e-9


def test_the_answer_lies_on_the_constraint_and_not_at_the_edge_of_its_tolerance():
    result = gx.minimize(lambda x: x[0] + x[1], [(-2, 2)] * 2, eq=ring)
    assert abs(float(result.eq[0])) < 1e-14 and result.fun == pytest.approx(-np.sqrt(2), abs=1e-14)


def test_a_given_tolerance_is_made_use_of():
    result = gx.minimize(lambda x: x[0] + x[1], [(-2, 2)] * 2, eq=ring, eq_tolerance=1e-4)
    assert result.problem.eq_tolerance == 1e-4 and result.fun < -np.sqrt(2)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_the_default_does_not_depend_on_the_unit(unit):
    values = np.random.default_rng(0).normal(size=(64, 2)) * [1.0, 1000.0]
    here, there = derive_eq_tolerance(values), derive_eq_tolerance(values * unit)
    assert there == pytest.approx(tuple(unit * one for one in here)) and here[1] == pytest.approx(1000 * here[0])


def test_the_default_survives_failures_and_constants():
    assert derive_eq_tolerance(np.array([[np.nan, 5.0], [np.inf, 5.0]])) == pytest.approx((1e-8, 1e-7))


def test_a_tolerance_that_accepts_any_point_warns():
    with pytest.warns(UserWarning, match="within its eq_tolerance at all 64 points"):
        gx.minimize(surface, BOX_IN_METRES, eq=one_cubic_centimetre, eq_tolerance=0.01, generations=2, polish=False)


def test_each_equality_may_have_a_tolerance():
    def both(x):
        return jnp.stack([ring(x), 1e6 * (x[0] - x[1])])

    result = gx.minimize(lambda x: x[0], [(-2, 2)] * 2, eq=both, eq_tolerance=[1e-6, 1.0])
    assert result.problem.eq_tolerance == (1e-6, 1.0) and result.feasible
    assert (np.abs(result.eq) <= [1e-6, 1.0]).all()


@pytest.mark.parametrize("value", [-1.0, [1e-6, -1.0], [], "small", np.nan])
def test_what_is_no_tolerance_is_refused(value):
    with pytest.raises(gx.InputError, match="eq_tolerance must be"):
        check_tolerance(value)


def test_the_cec_problems_keep_the_tolerance_of_their_report():
    assert gx.problems.get("g03").eq_tolerance == 1e-4
