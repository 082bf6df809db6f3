"""The polish of min-max answers: x that minimises the worst of a few y, and y that follow it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.problem import MinMaxProblem
from galapax.core.stop import Stop, interrupts
from galapax.local import minmax_refinement
from galapax.objective.game import trace_game


def cubic_for_exp(x, y):
    """How far a cubic is from exp on [0, 1]: five y are equally bad at the best x."""
    t = y[0]
    return (x[0] + x[1] * t + x[2] * t**2 + x[3] * t**3 - jnp.exp(t)) ** 2


def waves(x, y):
    """Many local maxima over y, which move with x; three y to five x."""
    return 3 * jnp.sum((x - 0.3) ** 2) + jnp.sum(jnp.cos(4 * (y - x[:2].sum()))) + 0.1 * jnp.sum(y * x[2])


CUBIC = MinMaxProblem(cubic_for_exp, [(-3.0, 3.0)] * 4, [(0.0, 1.0)], name="cubic")
WAVES = MinMaxProblem(waves, [(-2.0, 2.0)] * 5, [(-2.0, 2.0)] * 3, name="waves")


@pytest.fixture(scope="module")
def solved():
    """Results by name, each made when it is first asked for."""

    class Solved(dict):
        def __missing__(self, name):
            self[name] = gx.minimax({"cubic": CUBIC, "waves": WAVES}[name], runs=4, keep=gx.Keep(history=False))
            return self[name]

    return Solved()


def remez():
    """The least largest error of a cubic on [0, 1], by Remez's exchange, which shares nothing with what is tested."""
    nodes, grid = 0.5 - 0.5 * np.cos(np.pi * np.arange(5) / 4), np.linspace(0, 1, 100_001)
    for _ in range(20):
        table = np.column_stack([nodes**k for k in range(4)] + [(-1.0) ** np.arange(5)])
        *factors, error = np.linalg.solve(table, np.exp(nodes))
        wrong = np.polynomial.polynomial.polyval(grid, factors) - np.exp(grid)
        ends = np.flatnonzero(np.diff(np.sign(wrong)) != 0)
        parts = np.split(np.arange(grid.size), ends + 1)
        nodes = np.array([grid[part[np.argmax(np.abs(wrong[part]))]] for part in parts])
    return abs(error)


@pytest.mark.slow
def test_a_best_approximation_is_that_of_remez(solved):
    result, least = solved["cubic"], remez() ** 2
    assert least == pytest.approx(2.968e-7, rel=1e-3)
    assert result.worst_case == pytest.approx(least, rel=1e-6) and result.success
    assert least * (1 - 1e-6) < np.median(result.worst_cases) < 1.2 * least  # one run of four is checked to the end


@pytest.mark.slow
def test_several_runs_come_to_the_same_worst_case(solved):
    result = solved["waves"]
    assert np.ptp(result.worst_cases) < 1e-9
    assert result.stop is Stop.TOLERANCE and result.success and result.runs.success.all()


@pytest.mark.slow
def test_it_spends_a_tenth_of_what_the_search_alone_would(solved):
    for problem in (CUBIC, WAVES):
        each = solved[problem.name].runs.nfev
        plain = gx.minimax(problem, generations=20, polish=False, keep=gx.Keep(history=False)).nfev * 4000 // 20
        assert each.max() < 0.25 * plain and np.median(each) < 0.2 * plain


@pytest.mark.slow
def test_a_run_is_replayed_with_its_polish(solved):
    result = solved["waves"]
    again = result.run(2)
    for name in ("x", "fun", "nfev"):
        assert np.array_equal(again[name], getattr(result.runs, name)[2]), name
    assert again.worst_case == result.worst_cases[2]
    assert result.nfev == result.runs.nfev.sum() and "4 of 4 runs refined" in result.polish


@pytest.mark.slow
def test_never_worse_than_before():
    """From poor x, smooth or not: what comes out has no worse case than what went in, by a fine grid of y."""

    def kinked(x, y):
        return jnp.abs(x[0] - jnp.sin(3 * y[0])) + jnp.floor(2 * y[0]) * x[1]

    problem = MinMaxProblem(kinked, [(-1, 1)] * 2, [(-1, 1)])
    rng, grid = np.random.default_rng(3), np.linspace(-1, 1, 4001)[:, None]
    x, met = rng.uniform(-1, 1, (4, 2)), rng.uniform(-1, 1, (4, 1, 30))
    with jax.enable_x64(True), interrupts() as noted:
        traced = trace_game(kinked, 2, 1, "float64")
        boxes = (problem.x_bounds.round_inwards("float64"), problem.y_bounds.round_inwards("float64"))
        answer = minmax_refinement.refine_minmax(traced, x, met, boxes, 0, np.arange(4), noted)
        values = [np.asarray(traced.game(traced.consts, jnp.asarray(some), jnp.asarray(grid))).max(axis=1)
                  for some in (x, answer.x)]  # fmt: skip
    assert np.all(values[1] <= values[0] + 1e-9)
    assert np.all(answer.x[~answer.is_better] == x[~answer.is_better])


def test_what_polish_can_be_is_checked():
    with pytest.raises(gx.InputError, match='polish must be True, False or "auto"'):
        gx.minimax(WAVES, polish="always")
