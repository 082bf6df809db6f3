"""Survivors that are evaluated again compete by the means of their values."""

import jax
import jax.numpy as jnp
import numpy as np

from galapax.algorithms.cmaes import CMAES
from galapax.algorithms.de import DE
from galapax.algorithms.nsga2 import NSGA2
from galapax.algorithms.reevaluated import Reevaluated, reevaluates
from galapax.core.problem import Bounds, CandidateEvaluation, Shape

N = 8


def run(generations):
    """The state after so many generations with noise, and all values that each point has had."""
    algorithm = Reevaluated(NSGA2(population=N).bind(2, Shape(objectives=2), None))
    state = algorithm.init(jax.random.PRNGKey(0), Bounds(jnp.zeros(2), jnp.ones(2)), Shape(objectives=2))
    rng, seen = np.random.default_rng(0), {}
    for number in range(1, generations + 1):
        count = int(algorithm.evaluations(state, number))
        x = np.asarray(state.candidates)[:, 0]
        values = np.stack([x, 1 - x], axis=1) + 0.02 * rng.standard_normal((algorithm.population, 2))
        values[count:] = np.inf
        for point, value in zip(np.asarray(state.candidates)[:count], values[:count], strict=True):
            seen.setdefault(point.tobytes(), []).append(value)
        evaluation = CandidateEvaluation(jnp.asarray(values), None, jnp.zeros(algorithm.population, bool))
        state = algorithm.step(jax.random.PRNGKey(number), state, evaluation)
    return algorithm, state, seen


def test_objectives_of_survivors_are_means_of_all_their_values():
    _, state, seen = run(6)
    for x, objectives, count in zip(np.asarray(state.parents.x), state.parents.objectives, state.counts, strict=True):
        values = seen[x.tobytes()]
        assert len(values) == count
        np.testing.assert_allclose(objectives, np.mean(values, axis=0), rtol=1e-5)
    assert state.counts.max() > 1


def test_answers_have_several_values_if_any_survivor_has():
    algorithm, state, _ = run(2)
    for counts in (np.arange(N), np.ones(N, int)):
        answers = algorithm.solutions(state._replace(counts=jnp.asarray(counts)))
        expected = counts >= 3 if (counts >= 3).any() else np.ones(N, bool)
        np.testing.assert_array_equal(np.isfinite(answers.objectives[:, 0]), expected)


def test_those_of_the_fewest_values_are_evaluated_next():
    _, state, _ = run(6)
    chosen = np.asarray(state.counts)[np.asarray(state.rows)]
    assert chosen.max() <= np.sort(state.counts)[len(chosen) - 1]
    np.testing.assert_array_equal(state.candidates[N:], state.parents.x[state.rows])


def test_only_what_selects_survivors_is_wrapped():
    assert reevaluates(NSGA2()) and reevaluates(DE()) and not reevaluates(CMAES())
