"""The BBOB functions against pycma's own, which are NumPy and share no line with ours."""

import pickle
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params
from support.compilations import ON_CPU, compilations

import galapax as gx
from galapax.objective.traced import trace
from galapax.problems.bbob import BBOB_FUNCTIONS, optimal_value

EVERY_FUNCTION = pytest.mark.parametrize("function", BBOB_FUNCTIONS)


@cache
def compiled(function):
    """Values of the rows of x (n, d), of an instance's arrays."""
    formula = BBOB_FUNCTIONS[function].formula
    return jax.jit(lambda x, arrays: jax.vmap(lambda row: formula(row, *arrays))(x))


def arrays_of(problem):
    return problem.fun.args[1]


def evaluate(function, dim, instance, x):
    """f - f_opt of the rows of x, in float64; one program serves all instances."""
    with jax.enable_x64(True):
        return np.asarray(compiled(function)(x, arrays_of(gx.problems.bbob(function, dim, instance))))


def check_against_pycma(function, dim, instances):
    benchmarks = pytest.importorskip("cma.bbobbenchmarks")
    for instance in instances:
        random = np.random.default_rng([function, dim, instance])
        x_opt = gx.problems.bbob(function, dim, instance).solutions[0]
        around, anywhere = random.normal(x_opt, 0.01, (3, dim)), random.uniform(-6.0, 6.0, (5, dim))
        x = np.concatenate([anywhere, around, x_opt[None]])
        oracle, f_opt = benchmarks.instantiate(function, instance)
        expected = np.array([oracle(row) for row in x])
        assert optimal_value(function, instance) == f_opt
        computed = evaluate(function, dim, instance, x)
        # pycma adds f_opt, which costs it what is below the second term
        tolerance = 1e-9 * np.abs(expected - f_opt) + 1e-12 * (1.0 + np.abs(f_opt))
        assert np.all(np.abs(computed + f_opt - expected) <= tolerance)
        assert 0.0 <= computed[-1] <= 1e-15


@EVERY_FUNCTION
def test_agrees_with_pycma(function):
    check_against_pycma(function, 5, (1, 2, 15))


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 3, 20, 40])
@EVERY_FUNCTION
def test_agrees_with_pycma_in_other_dimensions(function, dim):
    check_against_pycma(function, dim, (1, 3, 7, 110))


@EVERY_FUNCTION
def test_one_program_serves_all_instances(function):
    with jax.enable_x64(True):
        first, other = (trace(gx.problems.bbob(function, 4, instance), "float64") for instance in (1, 6))
    assert first.formulas == other.formulas
    assert not all(np.array_equal(a, b) for a, b in zip(first.consts.arrays, other.consts.arrays, strict=True))


@pytest.mark.slow
@ON_CPU
def test_the_second_instance_compiles_nothing():
    gx.minimize(gx.problems.bbob(21, 3, 1), gx.DE(population=10), generations=5, polish=False)
    with compilations() as programs:
        gx.minimize(gx.problems.bbob(21, 3, 2), gx.DE(population=10), generations=5, polish=False)
    assert not programs


@pytest.mark.parametrize(
    "function", params(BBOB_FUNCTIONS, quick={"1", "2", "5", "8", "9", "12", "13", "14", "18", "19", "24"})
)
def test_nothing_cancels_near_the_optimum(function):
    """float32 and float64 agree 1e-4 away from x_opt, where f - f_opt is down to 1e-8, on the same arrays."""
    arrays = [array.astype(np.float32) for array in arrays_of(gx.problems.bbob(function, 3, 1))]
    x = (arrays[0] + np.random.default_rng(0).uniform(-1e-4, 1e-4, (20, 3))).astype(np.float32)
    with jax.enable_x64(True):  # for float32 too: a float64 constant in a formula would show
        single = compiled(function)(x, arrays)
        double = compiled(function)(x.astype(np.float64), [array.astype(np.float64) for array in arrays])
    assert single.dtype == jnp.float32
    assert np.asarray(single) == pytest.approx(np.asarray(double), rel=2e-3)


@pytest.mark.slow
def test_float32_is_close_to_float64_anywhere():
    """But for f16, f19 and f23, whose finest ripples lie below the digits of float32."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        for function in set(BBOB_FUNCTIONS) - {16, 19, 23}:
            problem = gx.problems.bbob(function, 5, 2)
            x = np.random.default_rng(1).uniform(-5.0, 5.0, (20, 5))
            values = [np.asarray(compiled(function)(x.astype(t), [a.astype(t) for a in arrays_of(problem)]))
                      for t in (np.float32, np.float64)]  # fmt: skip
            assert values[0] == pytest.approx(values[1], rel=1e-2), function


def test_a_problem_says_what_it_is():
    problem = gx.problems.bbob(function=8, dim=4, instance=3)
    assert (problem.name, problem.dim, problem.optimum) == ("bbob_f8_i3", 4, 0.0)
    assert np.all(problem.bounds.lower == -5.0) and np.all(problem.bounds.upper == 5.0)
    assert "RR-6829, f8, instance 3" in problem.source
    assert problem is gx.problems.bbob(8, np.int64(4), 3)
    copy = pickle.loads(pickle.dumps(problem))
    assert copy.fun(problem.solutions[0]) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), "function must be at least 1; got 0"),
        ((25, 5), "function must be 1 to 24, the number of a BBOB function; got 25"),
        ((1.0, 5), "function must be a whole number"),
        ((1, 1), "dim must be at least 2 .*; got 1"),
        ((1, 10**6), "dim must be at most 1000"),
        ((1, "5"), "dim must be a whole number"),
        ((1, 5, 0), "instance must be at least 1; got 0"),
        ((1, 5, True), "instance must be a whole number"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(gx.InputError, match=message):
        gx.problems.bbob(*arguments)
