"""SPSO-2011: its constants, who informs whom, the ball that particles move in, and a generation against NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import galapax as gx
from galapax.algorithms.pso import best_informant
from galapax.core.problem import Population, Shape
from galapax.numerics import random
from galapax.objective.evaluation_log import summarise

N, D = 12, 3
LOWER, UPPER = np.array([1.5, -7.0, -0.5]), np.array([4.0, -2.0, 9.5])
BOX = gx.Bounds(LOWER, UPPER)
OPTIMUM = np.array([2.0, -2.5, 8.0])


def bowl(x):
    return np.sum((np.asarray(x) - OPTIMUM) ** 2, axis=-1)


def said(values):
    return summarise(jnp.asarray(values)[:, None], None, None, 0.0)


def begun(algorithm, key, box=BOX):
    """Its first state; compiled as one, since operation by operation takes seconds."""
    return jax.jit(lambda key: algorithm.init(key, box))(key)


def test_constants_are_those_of_the_standard():
    assert gx.PSO().population == 40 and gx.PSO().informants == 3.0
    assert gx.PSO().inertia == pytest.approx(0.7213, abs=5e-5)
    assert gx.PSO().acceleration == pytest.approx(1.1931, abs=5e-5)


def test_velocities_lead_to_points_of_the_box_at_first():
    with jax.enable_x64(True):
        state = begun(gx.PSO(population=500), random.root_key(4))
    ends = np.asarray(state.candidates + state.velocity)
    assert np.all((ends >= LOWER - 1e-12) & (ends <= UPPER + 1e-12))
    for column, low, high in zip(ends.T, LOWER, UPPER, strict=True):
        assert stats.kstest(column, "uniform", (low, high - low)).pvalue > 1e-4
    assert abs(np.corrcoef(ends[:, 0], np.asarray(state.candidates)[:, 0])[0, 1]) < 0.2


def test_each_particle_informs_itself_and_others_with_one_chance():
    drawn = jax.jit(gx.PSO(population=20).draw_informants)
    draws = np.stack([drawn(random.root_key(seed)) for seed in range(100)])
    assert draws[:, np.arange(20), np.arange(20)].all()
    others = draws[:, ~np.eye(20, dtype=bool)]
    expected = 1 - (1 - 1 / 20) ** 3
    assert abs(others.mean() - expected) < 4 * math.sqrt(expected / others.size)


def test_the_best_informant_is_feasible_first_and_the_particle_itself_among_equals():
    informs = jnp.asarray([[True, False, True], [True, True, False], [False, True, True]])  # row informs column
    free = Population(jnp.zeros((3, 1)), jnp.asarray([[2.0], [1.0], [1.0]]), None)
    best_of = jax.jit(best_informant)
    assert best_of(free, informs).tolist() == [1, 1, 2]
    bound = free._replace(violation=jnp.asarray([0.0, 3.0, 1.0]))
    assert best_of(bound, informs).tolist() == [0, 2, 0]
    failed = Population(jnp.zeros((3, 1)), jnp.full((3, 1), jnp.inf), None)
    assert best_of(failed, informs).tolist() == [0, 1, 2]


def test_others_inform_only_after_a_generation_without_a_better_best():
    algorithm = gx.PSO(population=N)
    step = jax.jit(lambda state, values: algorithm.step(random.root_key(9), state, said(values)))
    with jax.enable_x64(True):
        first = begun(algorithm, random.root_key(0))
        state = step(first, np.linspace(1.0, 2.0, N))
        assert np.array_equal(state.informs, first.informs)
        better = step(state, np.r_[0.5, np.full(N - 1, 9.0)])
        assert np.array_equal(better.informs, state.informs)
        same = step(state, np.full(N, 1.0))  # as good is not better
        assert not np.array_equal(same.informs, state.informs)


@pytest.mark.slow
def test_particles_move_in_a_ball_with_uniform_radius_and_direction():
    n = 4000
    algorithm = gx.PSO(population=4, inertia=0.0)
    wide = gx.Bounds(np.full(2, -100.0), np.array([100.0, 900.0]))
    with jax.enable_x64(True):
        here = jnp.zeros((n, 2))
        state = begun(algorithm, random.root_key(0), wide)._replace(candidates=here, velocity=here)
        own, led = jnp.full((n, 2), 3.0), jnp.full((n, 2), 6.0)
        leader = jnp.where(jnp.arange(n) < n // 2, 0, jnp.arange(n)).at[0].set(1).astype(jnp.int32)
        moved, velocity = jax.jit(algorithm.move)(random.root_key(5), state, own, led, leader)
    np.testing.assert_array_equal(moved, velocity)
    c = 0.5 + math.log(2)
    for rows, centre in ((slice(0, n // 2), c * 9.0 / 3), (slice(n // 2, n), c * 3.0 / 2)):
        off = (np.asarray(moved)[rows] - centre) / (wide.upper - wide.lower)
        reach = centre * np.hypot(1 / 200, 1 / 1000)
        assert stats.kstest(np.hypot(*off.T) / reach, "uniform").pvalue > 1e-4
        assert stats.kstest(np.arctan2(*off.T), "uniform", (-math.pi, 2 * math.pi)).pvalue > 1e-4


@pytest.mark.slow
def test_a_wall_stops_a_particle_and_sends_it_back_at_half_speed():
    algorithm = gx.PSO(population=4, inertia=1.0, acceleration=0.0)
    with jax.enable_x64(True):
        state = begun(algorithm, random.root_key(0))
        x = jnp.asarray(np.tile((LOWER + UPPER) / 2, (4, 1)))
        state = state._replace(candidates=x, velocity=jnp.asarray(np.tile([10.0, -10.0, 1.0], (4, 1))))
        moved, velocity = jax.jit(algorithm.move)(random.root_key(1), state, x, x, jnp.arange(4, dtype=jnp.int32))
    np.testing.assert_allclose(moved, np.tile([4.0, -7.0, 5.5], (4, 1)))
    np.testing.assert_allclose(velocity, np.tile([-5.0, 5.0, 1.0], (4, 1)))


@pytest.mark.slow
def test_each_generation_equals_a_second_implementation():
    algorithm = gx.PSO(population=N)
    key = random.run_keys(5, 0, 1)[0]
    step = jax.jit(lambda key, state, values: algorithm.step(key, state, said(values)))
    span = UPPER - LOWER
    with jax.enable_x64(True):
        state = begun(algorithm, random.fold_in(key, 0))
        x, v = (np.asarray(a).copy() for a in (state.candidates, state.velocity))
        informs = np.asarray(state.informs)
        places, values, best, redrawn, walls = x.copy(), np.full(N, np.inf), np.inf, 0, 0
        for number in range(1, 61):
            found = bowl(x)
            state = step(random.fold_in(key, number), state, found)
            key_informants, key_move = random.split(random.fold_in(key, number))
            key_direction, key_radius = random.split(key_move)
            for i in range(N):
                if found[i] <= values[i]:
                    values[i], places[i] = found[i], x[i]
            if values.min() >= best:
                words = np.asarray(random.bits(key_informants, (N, N))) >> 8
                informs = (words < round((1 - (1 - 1 / N) ** 3) * 2**24)) | np.eye(N, dtype=bool)
                redrawn += 1
            best = values.min()
            directions = np.asarray(random.normal(key_direction, (N, D), "float64"))
            radii = np.asarray(random.uniform(key_radius, (N, 1), "float64"))[:, 0]
            for i in range(N):
                informants = [j for j in range(N) if informs[j, i]]
                lead = min(informants, key=lambda j: (values[j], j != i, j))
                c = 0.5 + math.log(2)
                corners = [x[i], x[i] + c * (places[i] - x[i])]
                if lead != i:
                    corners.append(x[i] + c * (places[lead] - x[i]))
                centre = np.mean(corners, axis=0)
                reach = np.linalg.norm((centre - x[i]) / span)
                goal = centre + span * radii[i] * reach * directions[i] / np.linalg.norm(directions[i])
                v[i] = v[i] / (2 * math.log(2)) + goal - x[i]
                x[i] = x[i] + v[i]
                for g in range(D):
                    if not LOWER[g] <= x[i, g] <= UPPER[g]:
                        x[i, g], v[i, g], walls = np.clip(x[i, g], LOWER[g], UPPER[g]), -v[i, g] / 2, walls + 1
            for ours, theirs in ((state.candidates, x), (state.velocity, v), (state.parents.x, places)):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
            x, v, informs = (np.asarray(a).copy() for a in (state.candidates, state.velocity, state.informs))
    assert redrawn > 3 and walls > 3


@pytest.mark.slow
def test_constraints_put_feasibility_first():
    res = gx.minimize(
        lambda x: jnp.sum(x**2),
        [(-4.0, 7.0)] * 2,
        "pso",
        ineq=lambda x: 2.0 - x[0] - x[1],
        generations=300,
        seed=2,
        polish=False,
    )
    assert res.feasible and res.fun == pytest.approx(2.0, abs=1e-4)


@pytest.mark.slow
def test_a_bowl_is_found_in_every_run_wherever_it_lies():
    for centre in (1.3, 90.0, -55.5):  # a box that does not contain 0, too
        runs = gx.minimize(
            lambda x, centre=centre: jnp.sum((x - centre) ** 2),
            [(centre - 3.0, centre + 8.0)] * 5,
            "pso",
            generations=300,
            runs=10,
            compute=gx.Compute(dtype="float64"),
            polish=False,
        ).runs
        assert np.all(runs.fun < 1e-8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"population": 3}, "population must be at least 4"),
        ({"informants": 0.0}, "informants must be greater than 0"),
        ({"inertia": 1.5}, "inertia must lie between 0 and 1"),
        ({"acceleration": -1.0}, "acceleration must lie between 0 and 4"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(gx.InputError, match=message):
        gx.PSO(**settings).validate()


def test_shape_of_the_state():
    state = jax.eval_shape(lambda key: gx.PSO(population=N).init(key, BOX, Shape(1, 2, 0)), random.root_key(0))
    assert state.informs.shape == (N, N) and state.parents.violation.shape == (N,)
