"""What only the textbook genetic algorithm promises."""

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.problem import CandidateEvaluation, Shape, as_bounds
from galapax.numerics import random

BOUNDS = as_bounds([(-5.0, 5.0)] * 3)


def key(seed):
    return random.run_keys(seed, 0, 1)[0]


def evaluate(x, violation=None):
    values = jnp.sum(x**2, axis=1)
    return CandidateEvaluation(values[:, None], violation, ~jnp.isfinite(values), None, None)


def generations(algorithm, count):
    """The survivors of each generation, with the children that it evaluated."""
    state = algorithm.init(key(0), BOUNDS)
    for number in range(count):
        children = state.candidates
        before = state.parents
        state = algorithm.step(key(number + 1), state, evaluate(children))
        yield before, np.asarray(children), state.parents


@pytest.mark.parametrize("elites", [1, 4])
def test_the_elite_takes_the_places_of_the_worst_children_where_it_is_better(elites):
    for before, children, after in generations(gx.RealCodedGA(population=20, elites=elites), 12):
        old, new = np.sort(before.fitness)[:elites], np.sort(np.sum(children**2, axis=1))
        expected = [*new[: 20 - elites], *np.minimum(old, new[::-1][:elites])]
        np.testing.assert_allclose(np.sort(after.fitness), np.sort(expected), rtol=1e-6)


def test_without_an_elite_a_generation_is_its_children_and_may_be_worse():
    best = []
    for _, children, after in generations(gx.RealCodedGA(population=6, elites=0), 30):
        assert np.array_equal(after.x, children)
        best.append(float(after.fitness.min()))
    assert np.diff(best).max() > 0


def test_parents_breed_twice_as_often_if_best_and_never_if_worst():
    """Without crossover and mutation the candidates are the winners: each takes part in two tournaments."""
    algorithm = gx.RealCodedGA(population=10, crossover_rate=0.0, mutation_rate=0.0)
    state = algorithm.init(key(0), BOUNDS)
    state = algorithm.step(key(1), state, evaluate(state.candidates))
    order = np.argsort(state.parents.fitness)
    copies = [int((np.asarray(state.candidates) == x).all(axis=1).sum()) for x in np.asarray(state.parents.x)[order]]
    assert copies[0] == 2 and copies[-1] == 0 and sum(copies) == 10


def test_a_feasible_individual_beats_a_better_one_that_is_not():
    algorithm = gx.RealCodedGA(population=8, crossover_rate=0.0, mutation_rate=0.0)
    state = algorithm.init(key(0), BOUNDS, Shape(1, 1, 0))
    values = jnp.sum(state.candidates**2, axis=1)
    violation = jnp.where(values == values.max(), 0.0, 1.0 + values)
    state = algorithm.step(key(1), state, evaluate(state.candidates, violation))
    worst = np.asarray(state.parents.x)[int(np.argmax(state.parents.fitness))]
    assert int((np.asarray(state.candidates) == worst).all(axis=1).sum()) == 2


def test_it_solves_what_textbooks_solve_with_it():
    sphere = gx.minimize(
        lambda x: jnp.sum(x**2), [(-5, 5)] * 10, "real_coded_ga", generations=400, polish=False, runs=5
    )
    assert sphere.runs.fun.max() < 1e-2
    deb = gx.minimize(gx.problems.get("g06"), None, "real_coded_ga", generations=300, polish=False)
    assert deb.feasible


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"population": 1}, "two parents"), ({"population": 4, "elites": 4}, "fewer than the population of 4, got 4")],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(gx.InputError, match=message):
        gx.minimize(lambda x: jnp.sum(x**2), [(-5, 5)] * 2, gx.RealCodedGA(**settings))


def test_operators_of_the_users_take_the_place_of_sbx_and_polynomial_mutation():
    middles, steps = [], []

    def middle(key, a, b, bounds):
        middles.append(a.shape)
        return (a + b) / 2, (a + b) / 2

    def step(key, x, bounds, rate):
        steps.append(x.shape)
        return x + rate

    algorithm = gx.RealCodedGA(population=6, elites=0, crossover=middle, mutation=step, crossover_rate=1.0)
    for _, children, _ in list(generations(algorithm, 4))[1:]:  # each child has a twin, as both are the middle
        np.testing.assert_array_equal(children[:3], children[3:])
    assert set(middles) == {(3, 3)} and set(steps) == {(6, 3)}
    result = gx.minimize(lambda x: jnp.sum(x**2), [(-1, 1)] * 3, algorithm, generations=2, polish=False)
    assert result.settings["hyperparameters"]["crossover"] == "middle"


@pytest.mark.parametrize("kind", [gx.RealCodedGA, gx.NSGA2, gx.NSGA3, gx.SMSEMOA])
def test_an_operator_is_a_function(kind):
    for name in ("crossover", "mutation"):
        with pytest.raises(gx.InputError, match=rf"{name} must be a function {name}\(key, .*; got 'sbx'"):
            kind(population=8, **{name: "sbx"}).validate()
