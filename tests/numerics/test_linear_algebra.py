"""Cholesky factors in blocks: they solve what LAPACK solves, and no block is so large that its threads wait."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from galapax.numerics import linear_algebra
from galapax.numerics.linear_algebra import MAX_FACTOR_ROWS, MAX_SOLVE_ROWS

solve_positive = jax.jit(linear_algebra.solve_positive)
invert_lower = jax.jit(linear_algebra.invert_lower)


def positive(n):
    rows = np.random.default_rng(n).normal(size=(2 * n, n))
    return rows.T @ rows


@pytest.mark.parametrize("n", [1, 31, 32, 97, 231])
def test_blocks_solve_what_numpy_solves(n):
    matrix, right = positive(n), np.arange(1.0, n + 1)
    with jax.enable_x64(True):
        x = solve_positive(jnp.asarray(matrix), jnp.asarray(right))
        inverse = np.asarray(invert_lower(jnp.asarray(np.linalg.cholesky(matrix))))
    np.testing.assert_allclose(x, np.linalg.solve(matrix, right), rtol=1e-9, atol=1e-12 * n)
    np.testing.assert_allclose(inverse @ np.linalg.cholesky(matrix), np.eye(n), atol=1e-10)


@pytest.mark.parametrize("n", [4, 120])
def test_a_matrix_that_is_not_positive_gives_nan(n):
    assert np.isnan(solve_positive(-jnp.eye(n), jnp.ones(n))).all()


def test_no_block_is_large_enough_for_the_threads_of_lapack():
    program = jax.make_jaxpr(linear_algebra.solve_positive)(jnp.eye(496), jnp.ones(496))
    rows = {"cholesky": [], "triangular_solve": []}
    for equation in program.jaxpr.eqns:
        if equation.primitive.name in rows:
            rows[equation.primitive.name].append(max(equation.invars[-1].aval.shape))
    assert max(rows["cholesky"]) <= MAX_FACTOR_ROWS and max(rows["triangular_solve"]) <= MAX_SOLVE_ROWS
