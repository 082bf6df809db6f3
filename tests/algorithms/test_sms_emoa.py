"""SMS-EMOA: what points add to a hypervolume, who leaves as if one at a time, and what it finds."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.algorithm import Budget
from galapax.core.problem import CandidateEvaluation, Shape
from galapax.metrics import indicators
from galapax.numerics import devices, random
from galapax.operators import contributions

CORNER = 1.3
without_least = jax.jit(partial(contributions.drop_least_contributors, corner=CORNER), static_argnums=2)
best_by_volume = jax.jit(partial(contributions.select_by_hypervolume, corner=CORNER), static_argnums=2)
TWO_AND_THREE = pytest.mark.parametrize("m", [2, 3])


def fronts(m, n=30, seed=0):
    """On a sphere, with copies, and of three objectives with equal values; in [0, 1], none dominates another."""
    rng = np.random.default_rng(seed)
    sphere = np.abs(rng.normal(size=(n, m)))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    found = {"sphere": sphere, "copies": sphere[np.arange(n) // 2]}
    if m == 3:
        found["ties"] = np.array([(i, j, 7 - i - j) for i in range(7) for j in range(7 - i)])
    return {name: (f - f.min(axis=0)) / np.ptp(f, axis=0) for name, f in found.items()}


def alone(points, rows):
    """What each of the rows adds to the volume of the others."""
    corner = np.full(points.shape[1], CORNER)
    whole = indicators.volume(points[rows], corner)
    return np.array([whole - indicators.volume(points[np.setdiff1d(rows, i)], corner) for i in rows])


@pytest.fixture(params=["turns", "tiles"])
def form(request, monkeypatch):
    """Both forms of the same work, the one for a GPU in several tiles."""
    monkeypatch.setattr(devices, "on_cpu", lambda: request.param == "turns")
    monkeypatch.setattr(contributions, "block_size", lambda n: 2)
    monkeypatch.setattr(contributions, "MAX_CELLS_IN_MEMORY", 8 * 30)
    return request.param


@TWO_AND_THREE
def test_what_points_add_is_exact(m, form):
    measure = jax.jit(lambda *given: contributions.contributions(*given, CORNER))
    with jax.enable_x64(True):
        for name, points in fronts(m).items():
            counted = np.arange(len(points)) % 5 != 2
            added, rows = np.asarray(measure(points, counted)), np.flatnonzero(counted)
            np.testing.assert_allclose(added[rows], alone(points, rows), atol=1e-13, err_msg=name)
            assert not added[~counted].any()


@TWO_AND_THREE
def test_those_who_stay_are_those_of_leaving_one_at_a_time(m, form):
    leave = jax.jit(lambda *given: contributions.drop_least_contributors(*given, CORNER))
    with jax.enable_x64(True):
        for seed in range(3):
            points = fronts(m, seed=seed)["sphere"]
            front = np.arange(30) % 7 != 3
            for drop in (0, 1, 6, 20):
                rows = np.flatnonzero(front)
                for _ in range(drop):
                    rows = np.delete(rows, np.argmin(alone(points, rows)))
                assert np.flatnonzero(leave(points, front, drop)).tolist() == rows.tolist()


@TWO_AND_THREE
def test_of_copies_one_stays(m):
    points = fronts(m)["copies"]
    with jax.enable_x64(True):
        stays = np.asarray(without_least(jnp.asarray(points), jnp.ones(30, bool), 15))
    assert len(np.unique(points[stays], axis=0)) == 15
    # equal in everything: so many as wanted stay, whoever they are
    equal = best_by_volume(jnp.ones((30, m)), jnp.zeros(30, jnp.int32), 10)
    assert len(set(equal.tolist())) == 10


def test_earlier_fronts_stay_whole_and_units_do_not_matter():
    points = fronts(3)["sphere"]
    rank = jnp.asarray(np.repeat([0, 1], [12, 18]), jnp.int32)
    with jax.enable_x64(True):
        rows, scaled = (
            np.asarray(best_by_volume(jnp.asarray(f), rank, 20)) for f in (points, points * [1e-3, 1.0, 1e6] - 5)
        )
    assert set(range(12)) <= set(rows) and sorted(rows) == sorted(scaled)


@pytest.mark.slow
@TWO_AND_THREE
def test_the_forms_for_a_cpu_and_for_a_gpu_make_the_same_run(m, monkeypatch):
    fun = gx.problems.get("dtlz2", dim=5, objectives=m).fun
    bounds = gx.Bounds(np.zeros(5), np.ones(5))
    algorithm = gx.SMSEMOA(population=21).bind(5, Shape(m), Budget())

    def run(key):
        def body(i, state):
            evaluation = CandidateEvaluation(jax.vmap(fun)(state.candidates), None, jnp.zeros(21, bool))
            return algorithm.step(random.fold_in(key, i), state, evaluation)

        return jax.lax.fori_loop(1, 8, body, algorithm.init(random.fold_in(key, 0), bounds, Shape(m))).parents.x

    with jax.enable_x64(True):
        one = np.asarray(jax.jit(run)(random.run_keys(0, 0, 1)[0]))
        monkeypatch.setattr(devices, "on_cpu", lambda: jax.default_backend() != "cpu")
        other = np.asarray(jax.jit(partial(run))(random.run_keys(0, 0, 1)[0]))
    np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.slow
@TWO_AND_THREE
def test_it_finds_more_than_other_methods_do(m):
    problem = gx.problems.get("dtlz2", objectives=m, dim=m + 5)
    options = {"generations": 100, "compute": gx.Compute(dtype="float64")}
    kinds = (gx.SMSEMOA(population=40), gx.NSGA2(population=40), gx.NSGA3(population=40))
    found = [gx.minimize(problem, kind, polish=False, **options).hypervolume / problem.hypervolume for kind in kinds]
    assert found[0] > max(found[1:])


@pytest.mark.slow
def test_constraints_come_first():
    problem = gx.problems.get("dtlz2", dim=5)
    limited = gx.Problem(problem.fun, problem.bounds, ineq=lambda x: 0.5 - problem.fun(x)[0])
    found = gx.minimize(limited, gx.SMSEMOA(population=36), generations=60, polish=False)
    assert len(found.F) > 20 and found.F[:, 0].min() >= 0.5 and np.ptp(found.F[:, 1]) > 0.3


@pytest.mark.parametrize("blackbox", [False, True])
def test_more_than_three_objectives_are_refused(blackbox):
    fun = (lambda x: np.repeat(x, 2)) if blackbox else (lambda x: jnp.repeat(x, 2))
    with pytest.raises(gx.InputError, match=r"two and three objectives, and this problem has 4; use NSGA3"):
        gx.minimize(fun, [(0.0, 1.0)] * 2, "sms_emoa", generations=3, blackbox=blackbox)
