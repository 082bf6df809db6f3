"""The archive of a run: no point of it is dominated by one that the run evaluated, whatever was dropped between."""

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.killed_runs import KINDS, assert_identical, collect_arrays, kill_repeatedly, start_process, wait_for

import galapax as gx
from galapax.algorithms import archive
from galapax.algorithms.archive import Archived
from galapax.core.algorithm import Algorithm, Traits
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape, as_population, empty_population

ALGORITHMS = ["nsga2", "nsga3", "moead", "sms_emoa", "npga", "sharing_moea", None]


def dominated_rows(points, others):
    """Which points (k, m) are dominated by one of the others."""
    points, others = np.asarray(points)[:, None], np.asarray(others)[None]
    return ((others <= points).all(axis=2) & (others < points).any(axis=2)).any(axis=1)


# --- the rule, on points that come from nowhere ---


class WaitingState(NamedTuple):
    candidates: Any
    parents: Population


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Waiting(Algorithm[WaitingState]):
    """Keeps the candidates that it began with."""

    population = 6
    traits = Traits(multi_objective=True)

    def init(self, key, bounds, shape=Shape()):
        x = jnp.zeros((6, 1))
        return WaitingState(x, empty_population(x, shape))

    def step(self, key, state, evaluation):
        return state._replace(parents=as_population(state.candidates, evaluation))


def streams(m, runs, generations, constrained, seed):
    """Objectives (runs, generations, 6, m) and violation of points that approach a front, with ties and failures."""
    rng = np.random.default_rng(seed)
    directions = np.abs(rng.normal(size=(runs, generations, 6, m))) + 0.01
    front = directions / np.linalg.norm(directions, axis=-1, keepdims=True)
    distance = np.linspace(2.0, 0.0, generations)[None, :, None, None] * rng.random((runs, generations, 6, 1))
    values = front * (1 + distance) * rng.choice([0.5, 1.0, 3.0], size=(runs, 1, 1, 1))
    rough = rng.random(runs) < 0.5
    values[rough] = np.round(values[rough], 1)
    values[rng.random(values.shape[:3]) < 0.05] = np.inf
    violation = np.maximum(rng.normal(size=values.shape[:3]) - 0.3, 0) if constrained else np.zeros(values.shape[:3])
    return values.astype(np.float32), violation.astype(np.float32)


def run_archive(values, violation, size, constrained):
    """Offer the points of each generation to an archive: the state after each one, runs and generations first."""
    solver = Archived(Waiting(), size)
    bounds = Bounds(np.zeros(1, np.float32), np.ones(1, np.float32))

    def one_run(values, violation):
        def generation(state, point):
            objectives, broken = point
            failed = ~jnp.isfinite(objectives).all(axis=1)
            worst = jnp.where(failed, jnp.inf, broken) if constrained else None
            state = solver.step(jnp.zeros(2, jnp.uint32), state, CandidateEvaluation(objectives, worst, failed))
            return state, (state.front.objectives, state.front.violation)

        first = solver.init(jnp.zeros(2, jnp.uint32), bounds, Shape(values.shape[-1], int(constrained), 0))
        return jax.lax.scan(generation, first, (values, violation))[1]

    return jax.jit(jax.vmap(one_run))(values, violation)


def check_rule(m, size, constrained, remembered, seed, monkeypatch, runs=30, generations=60):
    monkeypatch.setattr(archive, "MIN_STORED_DROPPED", remembered)
    values, violation = streams(m, runs, generations, constrained, seed)
    objectives, broken = (
        None if a is None else np.asarray(a) for a in run_archive(values, violation, size, constrained)
    )
    n_members, n_all = 0, 0
    for run in range(runs):
        for last in (0, 3, 10, 30, generations - 1):
            seen = values[run, : last + 1].reshape(-1, m)
            sound = np.isfinite(seen).all(axis=1) & (violation[run, : last + 1].reshape(-1) <= 0)
            feasible = np.isfinite(objectives[run, last]).all(axis=1)
            feasible &= broken[run, last] <= 0 if constrained else True
            members = objectives[run, last][feasible]
            members = members[~dominated_rows(members, members)] if len(members) else members
            assert len(members) or not sound.any()
            assert not len(members) or not dominated_rows(members, seen[sound]).any()
        n_members += len(members)
        n_all += min(size, (~dominated_rows(seen[sound], seen[sound])).sum())
    assert n_members >= 0.6 * n_all  # it is not empty for the sake of the rule


RULES = [(2, 5, False, 4), (2, 12, True, 256), (3, 8, False, 8), (3, 20, True, 4), (5, 10, False, 16)]


@pytest.mark.parametrize(("m", "size", "constrained", "remembered"), RULES)
def test_no_point_is_dominated_by_one_that_was_offered_before(m, size, constrained, remembered, monkeypatch):
    check_rule(m, size, constrained, remembered, 1, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize(("m", "size", "constrained", "remembered"), [*RULES, (2, 1, False, 1), (4, 30, True, 30)])
def test_no_point_of_many_is_dominated_by_one_that_was_offered_before(
    m, size, constrained, remembered, seed, monkeypatch
):
    check_rule(m, size, constrained, remembered, seed, monkeypatch, runs=200, generations=150)


# --- runs ---


def black_box(m, dim, constrained, fails, seed):
    """A function of m objectives that notes the objectives of every feasible point, and the list of them."""
    rng = np.random.default_rng(seed)
    centres, weights = rng.uniform(-1, 1, size=(m, dim)), rng.uniform(0.5, 3, size=(m, dim))
    seen = []

    def fun(x):
        values = (weights * np.abs(x - centres) ** 1.5).sum(axis=1) + 0.2 * np.sin(5 * x).sum()
        if fails and np.sin(37 * x[0]) > 0.8:
            values = np.full(m, np.nan)
        limit = 0.3 - float((x**2).mean())
        if np.isfinite(values).all() and (not constrained or limit <= 0):
            seen.append(values)
        return {"fun": values, "ineq": limit} if constrained else values

    return fun, seen


def check_run(algorithm, m, dim, constrained, fails, size, seed):
    fun, seen = black_box(m, dim, constrained, fails, seed)
    options = {} if algorithm in ("nsga3", "moead") else {"population": 24}
    box = [(-2.0, 2.0)] * dim
    result = gx.minimize(
        fun,
        box,
        algorithm,
        keep=gx.Keep(archive=size),
        max_evaluations=1200,
        seed=seed,
        blackbox=True,
        compute=gx.Compute(dtype="float64"),
        **options,
    )
    assert 0 < len(result.F) <= size and len(seen) <= result.nfev <= 1200
    assert not dominated_rows(result.F, seen).any()


CASES = [(2, 3, False, False, 10), (3, 2, True, True, 20)]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_no_point_that_a_run_evaluated_dominates_its_front(algorithm):
    check_run(algorithm, *CASES[ALGORITHMS.index(algorithm) % 2], seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_no_point_that_a_run_of_any_kind_evaluated_dominates_its_front(algorithm, seed):
    rng = np.random.default_rng(seed)
    m, dim, size = int(rng.integers(2, 4)), int(rng.integers(2, 6)), int(rng.choice([10, 20, 50, 100, 300]))
    check_run(algorithm, m, dim, bool(rng.integers(2)), bool(rng.random() < 0.3), size, seed)


def test_a_traced_run_has_the_same_property():
    problem = gx.problems.get("zdt1", dim=5)
    result = gx.minimize(
        problem,
        "nsga2",
        keep=gx.Keep(archive=10),
        population=20,
        generations=60,
        compute=gx.Compute(dtype="float64"),
        seed=2,
    )
    again = gx.minimize(
        problem,
        "nsga2",
        keep=gx.Keep(archive=10, snapshots=range(1, 61)),
        population=20,
        generations=60,
        compute=gx.Compute(dtype="float64"),
        seed=2,
    )
    seen = np.concatenate([each.objectives for each in again.snapshots.values()])  # survivors of each generation
    assert len(result.F) == 10 and not dominated_rows(result.F, seen).any()


def test_the_archive_keeps_both_ends_of_the_front_and_is_full():
    result = gx.minimize(
        gx.problems.get("zdt1", dim=5), "nsga2", keep=gx.Keep(archive=30), population=40, generations=150, seed=1
    )
    assert len(result.F) == 30 and result.F[:, 0].min() < 1e-3 and result.F[:, 1].min() < 1e-2


# --- black boxes whose objectives nobody named ---


@pytest.mark.parametrize(
    ("m", "constrained", "options"),
    [
        (2, False, {}),
        (3, False, {}),
        (2, True, {}),
        (3, True, {}),
        (2, False, {"runs": 3}),
        (3, True, {"runs": 3}),
        (2, True, {"islands": 2}),
    ],
)
def test_an_archive_of_a_black_box_needs_no_names_of_objectives(m, constrained, options):
    fun, seen = black_box(m, 2, constrained, False, seed=5)
    result = gx.minimize(
        fun, [(-2.0, 2.0)] * 2, keep=gx.Keep(archive=15), population=12, generations=20, blackbox=True, **options
    )
    runs = options.get("runs", 1)
    assert result.F.shape[1] == m and 0 < len(result.F) <= 15 * runs * options.get("islands", 1)
    assert result.settings["archive"] == 15 and (result.G is not None) == constrained
    assert len(seen) <= result.nfev == 12 * 20 * runs * options.get("islands", 1)
    if runs > 1:
        assert len(result.runs.fronts) == runs and all(0 < len(front) <= 15 for front in result.runs.fronts)
    if not options:
        assert not dominated_rows(result.F, seen).any()


@pytest.mark.parametrize("constrained", [False, True])
def test_an_archive_of_one_objective_is_refused(constrained):
    fun, _ = black_box(1, 2, constrained, False, seed=5)
    refusal = r"archive applies to several objectives, and fun of .* returns one number"
    with pytest.raises(gx.InputError, match=refusal):
        gx.minimize(fun, [(-2.0, 2.0)] * 2, keep=gx.Keep(archive=15), population=12, generations=3, blackbox=True)
    with pytest.raises(gx.InputError, match=refusal):
        gx.minimize(lambda x: jnp.sum(x**2), [(-2.0, 2.0)] * 2, keep=gx.Keep(archive=15))
    with pytest.raises(gx.InputError, match="and de minimises one"):
        gx.minimize(fun, [(-2.0, 2.0)] * 2, "de", keep=gx.Keep(archive=15), blackbox=True)


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_black_box_with_an_archive_that_is_killed_comes_to_the_same_end(tmp_path):
    file = tmp_path / "a"
    assert kill_repeatedly("front of a black box", file, 1, seed=1, polish=False) == 1
    wait_for(start_process("front of a black box", file, polish=False))
    whole = collect_arrays(KINDS["front of a black box"](seed=2, polish=False))
    assert_identical(whole, dict(np.load(f"{file}.npz")))
