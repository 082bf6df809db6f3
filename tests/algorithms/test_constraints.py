"""Claims about constraints: the comparison at a level, its schedule, the repair step, and EpsilonDE which uses them."""

import sys
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import galapax as gx
from galapax.algorithms.epsilon_de import count_agreements
from galapax.core.problem import Population, Shape
from galapax.core.stop import Stop
from galapax.numerics import random
from galapax.objective.evaluation_log import summarise
from galapax.objective.traced import trace
from galapax.operators.adaptation import update_memory
from galapax.operators.constraint_handling import (
    difference_jacobian,
    difference_points,
    epsilon_level,
    initial_level,
    minimum_norm_step,
    project_onto_constraints,
    relax_violation,
)
from galapax.operators.selection import best_index, no_worse

# --- the comparison ---------------------------------------------------------------------------------------------------

LEVELS = st.sampled_from([0.0, 1e-3, 0.5, 3.0])
VALUES = st.sampled_from([-2.0, 0.0, 0.25, 1.0, 7.0, np.inf])
VIOLATIONS = st.sampled_from([0.0, 1e-3, 0.4, 0.5, 2.0, 5.0, np.inf])
INDIVIDUALS = st.tuples(VALUES, VIOLATIONS)


def population(*individuals):
    fitness, violation = np.array(individuals).T
    return Population(np.zeros((len(fitness), 1)), fitness[:, None], violation)


@jax.jit
def no_worse_at(a, b, epsilon):
    return no_worse(relax_violation(a, epsilon), relax_violation(b, epsilon))


def beats_or_ties(a, b, epsilon):
    return bool(no_worse_at(population(a), population(b), epsilon)[0])


@given(INDIVIDUALS, INDIVIDUALS, INDIVIDUALS, LEVELS)
@settings(max_examples=60, deadline=None)
def test_comparison_at_a_level_is_total_and_transitive(a, b, c, epsilon):
    assert beats_or_ties(a, b, epsilon) or beats_or_ties(b, a, epsilon)
    if beats_or_ties(a, b, epsilon) and beats_or_ties(b, c, epsilon):
        assert beats_or_ties(a, c, epsilon)


@given(INDIVIDUALS, INDIVIDUALS)
@settings(max_examples=30, deadline=None)
def test_level_zero_is_feasibility_first(a, b):
    assert beats_or_ties(a, b, 0.0) == bool(no_worse(population(a), population(b))[0])


def test_within_the_level_the_objective_decides_and_beyond_it_the_violation():
    assert beats_or_ties((1.0, 0.4), (7.0, 0.0), 0.5) and not beats_or_ties((7.0, 0.0), (1.0, 0.4), 0.5)
    assert beats_or_ties((7.0, 0.5), (1.0, 2.0), 0.5) and not beats_or_ties((1.0, 5.0), (7.0, 2.0), 0.5)


def test_without_constraints_a_level_changes_nothing():
    free = Population(np.zeros((2, 1)), jnp.ones((2, 1)), None)
    assert relax_violation(free, 3.0) is free


def test_level_falls_from_the_first_to_zero_and_stays_there():
    levels = epsilon_level(8.0, jnp.arange(12.0), 10.0, 3.0)
    assert levels[0] == 8.0 and levels[5] == 1.0 and np.all(np.diff(levels[:11]) < 0)
    assert np.all(levels[10:] == 0)


def test_first_level_lets_the_given_share_pass_and_is_never_infinite():
    violation = jnp.asarray([5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0, jnp.inf])
    assert initial_level(violation, 0.2) == 3.0
    assert initial_level(jnp.full(10, jnp.inf), 0.2) == 0.0


# --- the repair step --------------------------------------------------------------------------------------------------

shortest = jax.jit(minimum_norm_step)


@given(st.integers(1, 6), st.integers(1, 6), st.randoms(use_true_random=False))
@settings(max_examples=12, deadline=None)
def test_shortest_step_is_that_of_the_pseudo_inverse_where_all_rows_can_hold(q, d, rng):
    draws = np.random.default_rng(rng.getrandbits(32))
    rows = draws.normal(size=(q, d)) * 10.0 ** draws.integers(-3, 4, size=(q, 1))
    wanted = rows @ draws.normal(size=d)
    if np.linalg.cond(rows / np.linalg.norm(rows, axis=1, keepdims=True)) > 1e4:
        return
    with jax.enable_x64(True):
        step = shortest(rows, wanted)
    best = np.linalg.pinv(rows) @ wanted
    np.testing.assert_allclose(step, best, atol=3e-8 * np.linalg.norm(best))  # rounding, times 1e4 squared


def test_zero_and_repeated_rows_are_left_out():
    rows = jnp.asarray([[0.0, 0.0, 0.0], [1.0, 2.0, 2.0], [2.0, 4.0, 4.0], [0.0, 1.0, -1.0]])
    step = shortest(rows, jnp.asarray([5.0, 9.0, 18.0, 0.0]))
    np.testing.assert_allclose(step, [1.0, 2.0, 2.0], rtol=1e-5)


PLANE = np.array([[1.0, -2.0, 0.5, 3.0], [4.0, 1.0, -1.0, 1.0]])
WIDE = gx.Bounds(np.full(4, -90.0), np.array([100.0, 110.0, 95.0, 130.0]))


def on_plane(x):
    return jnp.asarray(PLANE, x.dtype) @ x - jnp.asarray([3.0, -7.0], x.dtype)


def repaired(problem, x, dtype="float64"):
    (formulas, consts), box = trace(problem, dtype), problem.bounds.round_inwards(dtype)
    return np.asarray(jax.jit(jax.vmap(lambda p: formulas.repair(consts, p, box)))(x.astype(dtype)))


@pytest.mark.parametrize(("dtype", "rounding"), [("float32", 1e-4), ("float64", 1e-12)])
def test_repair_meets_linear_equalities_to_rounding(dtype, rounding):
    problem = gx.Problem(lambda x: x[0], WIDE, eq=on_plane, eq_tolerance=0.0)
    with jax.enable_x64(dtype == "float64"):
        x = np.random.default_rng(1).uniform(-20, 20, (50, 4))
        moved = repaired(problem, x, dtype)
        left = np.abs(moved.astype(np.float64) @ PLANE.T - [3.0, -7.0])
    assert moved.dtype == dtype and left.max() < rounding * 100


def test_repair_stays_in_the_box_and_leaves_feasible_points_alone():
    problem = gx.Problem(
        lambda x: x[0],
        [(1.5, 4.0), (-7.0, -2.0)],
        ineq=lambda x: jnp.stack([x[0] * x[1] + 10.0, x[0] - 100.0]),
        eq=lambda x: jnp.sin(x[0]) + x[1] ** 2 - 6.0,
    )
    with jax.enable_x64(True):
        x = np.random.default_rng(2).uniform([1.5, -7.0], [4.0, -2.0], (200, 2))
        moved = repaired(problem, x)
        assert np.all((moved >= [1.5, -7.0]) & (moved <= [4.0, -2.0])) and not np.array_equal(moved, x)
        feasible = np.array([[3.9, -np.sqrt(6.0 - np.sin(3.9))], [1.5, -np.sqrt(6.0 - np.sin(1.5))]])
        one = repaired(problem.with_(ineq=None), feasible)
    np.testing.assert_array_equal(one, feasible)


def test_repair_step_that_is_not_finite_is_not_made():
    x, box = jnp.asarray([0.5, 0.5]), gx.Bounds(np.zeros(2), np.ones(2))
    moved = jax.jit(project_onto_constraints)(x, np.array([1.0]), np.array([[np.nan, 1.0]]), np.array([0.0]), box)
    np.testing.assert_array_equal(moved, x)


# --- the algorithm ----------------------------------------------------------------------------------------------------


def test_memory_keeps_the_mean_of_what_worked_in_front_and_is_left_alone_without_success():
    memory = jnp.asarray([[0.5, 0.4], [0.9, 0.8]])
    tried = jnp.asarray([[0.2, 0.6, 0.9], [1.0, 0.0, 0.3]])
    kept = jax.jit(update_memory)
    after = kept(memory, tried, jnp.asarray([True, True, False]))
    lehmer = (0.2**3 + 0.6**3) / (0.2**2 + 0.6**2)
    np.testing.assert_allclose(after, [[lehmer, 0.5], [1.0, 0.9]], rtol=1e-6)
    np.testing.assert_array_equal(kept(memory, tried, jnp.zeros(3, bool)), memory)


def circle(x):
    return x[0] ** 2 + x[1] ** 2 - 1.0


@jax.jit
def judged(x):
    return summarise((x[:, :1] - 3.0) ** 2 + x[:, 1:], None, jax.vmap(circle)(x)[:, None], 1e-4)


first_state = jax.jit(gx.EpsilonDE.init, static_argnums=3)
next_state = jax.jit(gx.EpsilonDE.step)
row_of_best = jax.jit(best_index)


@pytest.mark.parametrize(
    "patience", [pytest.param(500.0, marks=pytest.mark.slow), 3.0], ids=["one search", "many searches"]
)
def test_the_best_ever_seen_feasible_first_is_always_among_the_parents(patience):
    algorithm = gx.EpsilonDE(population=20, relaxed=30.0, patience=patience)
    key, seen = random.run_keys(3, 0, 1)[0], (np.inf, np.inf)
    with jax.enable_x64(True):
        bounds = gx.Bounds(np.full(2, -2.0), np.full(2, 3.0))
        state = first_state(algorithm, random.fold_in(key, 0), bounds, Shape(eq=1))
        for number in range(1, 120):
            evaluation = judged(state.candidates)
            for pair in zip(np.asarray(evaluation.violation), np.asarray(evaluation.fitness), strict=True):
                seen = min(seen, (float(pair[0]), float(pair[1])))
            state = next_state(algorithm, random.fold_in(key, number), state, evaluation)
            row = int(row_of_best(state.parents))
            parents = jax.device_get(state.parents)
            assert (float(parents.violation[row]), float(parents.fitness[row])) == seen


@pytest.mark.slow
def test_while_relaxed_infeasible_points_are_kept_and_afterwards_feasible_ones_win():
    problem = gx.Problem(lambda x: (x[0] - 3.0) ** 2 + x[1], [(-2.0, 3.0)] * 2, eq=circle)
    res = gx.minimize(
        problem,
        gx.EpsilonDE(population=30, relaxed=60.0),
        generations=300,
        keep=gx.Keep(snapshots=[10, 300]),
        polish=False,
    )
    assert np.mean(res.snapshots[10].violation > 0) > 0.5
    assert np.mean(res.snapshots[300].violation > 0) < 0.1


@pytest.mark.slow
def test_a_search_at_rest_starts_afresh_and_the_best_stays():
    algorithm = gx.EpsilonDE(population=20, relaxed=10.0, patience=40.0)
    solve = partial(gx.minimize, lambda x: jnp.sum((x - 0.7) ** 4), [(-3.0, 2.0)] * 2, algorithm, generations=2000)
    res = solve(tolerance=0)
    assert res.nit == 2000 and np.count_nonzero(np.diff(res.history.mean) > 1.0) >= 3
    assert np.all(np.diff(res.history.best) <= 0)
    # the run is done when the second search has come to rest where the first did, and not before
    done = solve()
    assert done.success and done.stop is Stop.TOLERANCE and done.nit < 2000
    began = np.flatnonzero(np.diff(done.history.mean) > 1.0)
    assert len(began) == 2 and done.nit - began[1] <= 51
    np.testing.assert_array_equal(done.history.best, res.history.best[: done.nit])


def individual(x, value, violation=0.0):
    return Population(jnp.array([x]), jnp.array([[value]]), jnp.array([violation]))


@pytest.mark.parametrize(
    ("before", "best", "rested", "agreed"),
    [
        (individual([0.5, 9.0], np.inf, np.inf), individual([1.0, 2.0], 3.0), individual([1.0, 2.0], 3.0), 1),
        (individual([1.0, 2.0], 3.0), individual([1.0, 2.0], 3.0), individual([1.0004, 2.004], 3.5), 2),  # near
        (individual([1.0, 2.0], 3.0), individual([1.0, 2.0], 3.0), individual([4.0, 2.0], 3.00002), 2),  # as good
        (individual([1.0, 2.0], 3.0), individual([1.0, 2.0], 3.0), individual([1.0, 2.1], 3.1), 1),  # elsewhere
        (individual([1.0, 2.0], 3.0), individual([4.0, 2.0], 2.9), individual([4.0, 2.0], 2.9), 1),  # a better one
        (
            individual([1.0, 2.0], 3.0),
            individual([4.0, 2.0], 2.9),
            individual([7.0, 2.0], 3.0),
            0,
        ),  # by no search
        (individual([1.0, 2.0], 3.0, 0.1), individual([1.0, 2.0], 3.0, 0.1), individual([1.0, 2.0], 3.0, 0.1), 0),
    ],
)
def test_searches_agree_that_came_to_rest_at_the_best_feasible_point(before, best, rested, agreed):
    bounds = gx.Bounds(np.array([0.0, 0.0]), np.array([10.0, 100.0]))
    assert jax.jit(count_agreements)(jnp.array(1.0), before, best, rested, bounds) == agreed


REPAIRING = gx.EpsilonDE(population=20, repaired=0.25, relaxed=20.0)


def on_the_circle(fun=lambda x: x[0], **settings):
    return gx.minimize(
        fun, [(-2.0, 3.0)] * 2, REPAIRING, **{"eq": circle, "generations": 10, "polish": False, **settings}
    )


@pytest.mark.slow
def test_evaluations_of_repaired_candidates_are_counted():
    res = on_the_circle()
    assert res.nfev == res.history.nfev[-1] == 10 * (20 + 5 * (1 + 2))
    assert on_the_circle(generations=None, max_evaluations=100).nit == 2
    with pytest.raises(gx.InputError, match="one generation needs 35 evaluations for the population of 20"):
        on_the_circle(generations=None, max_evaluations=30)


@pytest.mark.slow
def test_inequalities_are_not_repaired():
    assert on_the_circle(eq=None, ineq=circle).nfev == 200


def numpy_circle(x):
    return float(x[0] ** 2 + x[1] ** 2 - 1.0)


def backwards():
    function = jax.custom_vjp(circle)
    function.defvjp(lambda x: (circle(x), x), lambda x, g: (2 * x * g,))
    return function


UNDERIVED = {
    "called": lambda: on_the_circle(generations=5, eq=numpy_circle, blackbox=True),
    "of many": lambda: on_the_circle(
        generations=5, fun=lambda x: x[:, 0], eq=jax.vmap(circle), vectorized=True, polish=False
    ),
    "backwards only": lambda: on_the_circle(generations=5, eq=backwards(), polish=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNDERIVED)
def test_what_jax_cannot_derive_is_repaired_by_differences_of_as_many_values(kind):
    """Black boxes, functions of many solutions, and functions that JAX differentiates backwards only: the same points
    to the digits that differences leave.
    """
    derived, other = on_the_circle(generations=5, polish=False), UNDERIVED[kind]()
    assert other.nfev == derived.nfev == 5 * 35
    np.testing.assert_allclose(other.history.mean, derived.history.mean, rtol=1e-4)


def test_a_black_box_is_called_as_often_as_is_counted():
    calls = []

    def counted(x):
        calls.append(x)
        return numpy_circle(x)

    assert on_the_circle(generations=5, eq=counted, blackbox=True).nfev == len(calls) == 5 * 35


def test_points_tried_for_differences_that_fail_are_counted():
    failed = []

    def moody(x):
        if x[0] > 1.0:
            failed.append(x)
            raise RuntimeError("no mesh")
        return numpy_circle(x)

    told = on_the_circle(generations=5, eq=moody, blackbox=True, on_failure="worst")
    assert told.n_failed == len(failed) > 5

    def traced(x):
        return jax.vmap(lambda one: jnp.where(one[0] > 1.0, jnp.nan, circle(one)))(x)

    same = on_the_circle(generations=5, fun=lambda x: x[:, 0], eq=traced, vectorized=True, polish=False)
    assert same.n_failed == told.n_failed


@pytest.mark.parametrize("last", [3, 40, 64], ids=["among the first", "in a generation", "before a generation"])
def test_an_interrupt_among_points_tried_for_differences_ends_the_run_at_once(last):
    calls = []

    def fun(x):
        calls.append(x)
        if len(calls) > last:
            raise KeyboardInterrupt
        return {"fun": x[0], "eq": numpy_circle(x)}

    told = on_the_circle(generations=5, fun=fun, eq=None, blackbox=True)
    assert told.stop == "interrupt" and len(calls) == last + 1  # nor is one called for the result
    assert told.n_failed == 0 and told.nfev == last


def test_constraints_that_come_with_the_objective_cost_no_call_twice():
    calls = []

    def fun(x):
        calls.append(x)
        return {"fun": x[0], "eq": numpy_circle(x)}

    assert on_the_circle(generations=5, fun=fun, eq=None, blackbox=True).nfev == len(calls) == 5 * 35


def test_few_evaluations_of_a_black_box_are_not_spent_on_differences():
    few = on_the_circle(generations=None, max_evaluations=19 * 35, blackbox=True, eq=numpy_circle)
    assert (few.nit, few.nfev) == (19 * 35 // 20 + 1, 19 * 35)  # the last generation is a part of one
    assert on_the_circle(generations=None, max_evaluations=20 * 35 + 1, blackbox=True, eq=numpy_circle).nit == 20


def test_differences_are_derivatives_and_stay_in_the_box():
    with jax.enable_x64(True):
        box = gx.Bounds(np.array([0.0, -1.0, 2.0]), np.array([4.0, 1.0, 2.0]))
        x = jnp.asarray([4.0, -1.0, 2.0])
        points = jax.jit(difference_points)(x, box)
        assert points.shape == (4, 3) and jnp.all((points >= box.lower) & (points <= box.upper))
        values = jax.vmap(lambda x: jnp.stack([x[0] ** 2 * x[1], x[2] + x[0]]))(points)
        np.testing.assert_allclose(
            jax.jit(difference_jacobian)(points, values), [[-8.0, 16.0, 0.0], [1.0, 0.0, 0.0]], rtol=1e-5
        )


@pytest.mark.slow
def test_runs_of_an_ensemble_repair_as_they_do_alone():
    together = on_the_circle(runs=3, generations=60)
    for run in range(3):
        alone = on_the_circle(generations=60, runs=range(run, run + 1))
        np.testing.assert_allclose(alone.x, together.runs.x[run], rtol=1e-6)


@cache
def five_runs(name):
    return gx.minimize(gx.problems.get(name), runs=5, max_evaluations=50_000, polish=False)


@pytest.mark.slow
def test_it_is_the_default_with_constraints():
    assert five_runs("g11").settings["algorithm"] == "epsilon_de"
    assert gx.minimize(lambda x: x[0], [(0.0, 1.0)], generations=2, polish=False).settings["algorithm"] == "cmaes"


@pytest.mark.slow
def test_float32_finds_a_feasible_point_near_the_optimum():
    problem = gx.problems.get("g11")
    res = gx.minimize(problem, generations=200, compute=gx.Compute(dtype="float32"), polish=False)
    assert res.feasible and res.fun == pytest.approx(problem.optimum, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["g11", "g06", "g15", "g24"])
def test_small_problems_of_cec_2006_are_solved_every_time(name):
    res = five_runs(name)
    assert np.all(res.runs.violation <= 0) and np.all(res.runs.fun - res.problem.optimum <= 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"g{i:02d}" for i in range(1, 25) if i not in (20, 22)])
def test_cec_2006_is_solved_in_nine_runs_of_ten(name):
    problem = gx.problems.get(name)
    res = gx.minimize(problem, runs=25, max_evaluations=500_000, polish=False)
    solved = (res.runs.violation <= 0) & (res.runs.fun - problem.optimum <= 1e-4)
    assert np.mean(solved) >= 0.9


# --- what is said of the answer ---------------------------------------------------------------------------------------


def large_scale(x):
    return x[0] * 1e6 - 123456.789  # float32 holds seven digits of it


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_feasibility_is_what_float64_says_whatever_the_run_computed_in(dtype):
    problem = gx.Problem(lambda x: x[1] - x[0], [(0.0, 1.0), (0.0, 1.0)], ineq=large_scale)
    res = gx.minimize(
        problem, algorithm="de", population=16, generations=60, runs=4, compute=gx.Compute(dtype=dtype), polish=False
    )
    exact = np.maximum([float(large_scale(x)) for x in res.runs.x.astype(np.float64)], 0)
    np.testing.assert_allclose(res.runs.violation, exact, rtol=1e-9, atol=1e-12)
    assert np.array_equal(res.runs.feasible, exact <= 0)
    assert res.feasible == (large_scale(res.x) <= 0) and res.violation == max(float(large_scale(res.x)), 0.0)
    assert float(res.ineq[0]) == pytest.approx(float(large_scale(res.x)), abs=1e-9)
    if not res.feasible:
        assert "in float64 its total" in res.message and not res.success


@pytest.mark.slow
def test_the_front_of_a_float32_run_tells_its_violation_in_float64():
    problem = gx.Problem(lambda x: jnp.stack([-x[0], x[0] + x[1]]), [(0.0, 1.0), (0.0, 1.0)], ineq=large_scale)
    res = gx.minimize(
        problem, algorithm="nsga2", population=16, generations=40, compute=gx.Compute(dtype="float32"), polish=False
    )
    exact = np.maximum([float(large_scale(x)) for x in res.X], 0)
    np.testing.assert_allclose(res.CV, exact, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(res.G[:, 0], [float(large_scale(x)) for x in res.X], rtol=1e-9)


def test_few_evaluations_get_a_smaller_population(monkeypatch):
    """Unless it was chosen; 64 individuals have no time to evolve in two hundred evaluations."""

    def solve(**options):
        return gx.minimize(gx.problems.get("g06"), polish=False, tolerance=0, **options)

    def population(**options):
        """Of what is to be run; to compile it takes seconds."""
        with pytest.raises(Prepared) as told:
            solve(**options)
        return told.value.args[0].population

    def raised(task, *_):
        raise Prepared(task)

    assert len(solve(max_evaluations=200).population) == 8
    monkeypatch.setattr(sys.modules["galapax.api.minimize"], "solve", raised)
    assert population(max_evaluations=200) == population(algorithm="epsilon_de", max_evaluations=200) == 8
    assert population(generations=2, max_evaluations=10**6) == 64
    assert population(algorithm=gx.EpsilonDE(), max_evaluations=200) == 64


class Prepared(Exception):
    """With the task that would have been run."""


@pytest.mark.slow
def test_few_evaluations_come_further_with_it():
    few = {"runs": 30, "max_evaluations": 200, "polish": False}
    own, other = (gx.minimize(gx.problems.get("g06"), a, **few).runs for a in (None, gx.EpsilonDE()))
    assert own.feasible.sum() >= 20 > 5 >= other.feasible.sum()
