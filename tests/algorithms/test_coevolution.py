"""Co-evolution against NumPy, one pair at a time, on the same random words; and what it promises with constraints."""

import dataclasses
from functools import cache, partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params
from support.coevolution_in_numpy import evolve
from support.compilations import ON_CPU

import galapax as gx
from galapax.algorithms import cde
from galapax.algorithms.cde import CoevolutionaryDE
from galapax.core.problem import Bounds, Problem, Shape
from galapax.execution import compiled
from galapax.numerics import compile_cache, devices, random
from galapax.objective.evaluation_log import summarise
from galapax.operators import pairwise
from galapax.operators.constraint_handling import augmented_lagrangian
from galapax.operators.pairwise import all_pairs, map_in_tiles
from galapax.problems import get

SEED, N, PERIOD, Y_GENERATIONS, GENERATIONS = 3, 8, 4, 3, 30  # the last is no multiple of the period
SMALL = CoevolutionaryDE(population=N, x_generations=PERIOD, y_generations=Y_GENERATIONS, growth=1.5)
LOWER, UPPER = np.array([1.5, -7.0, -0.5]), np.array([4.0, -2.0, 9.5])
CENTRE = np.array([2.0, -2.5, 8.0])  # where the objective is least, neither in the middle of the box nor feasible
EDGE = 3.2


# --- the augmented Lagrangian -----------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=3)
def table(facts, multipliers, penalty, ineq):
    return augmented_lagrangian(facts[:, None], multipliers[None], penalty, 0.5 / penalty, ineq)


def lagrangian(facts, multipliers, penalty, ineq):
    with jax.enable_x64(True):
        rows = [np.atleast_2d(np.asarray(v, np.float64)) for v in (facts, multipliers)]
        return np.asarray(table(*rows, penalty, ineq))


def lagrangian_by_loops(facts, multipliers, penalty, ineq):
    """Tahk & Sun's, a pair at a time."""
    out = np.zeros((len(facts), len(multipliers)))
    for i, (f, *constraints) in enumerate(np.asarray(facts, np.float64).tolist()):
        for j, y in enumerate(np.asarray(multipliers, np.float64).tolist()):
            out[i, j] = f
            for k, (c, multiplier) in enumerate(zip(constraints, y, strict=True)):
                if k < ineq and c < -multiplier / (2 * penalty):
                    out[i, j] -= multiplier**2 / (4 * penalty)
                else:
                    out[i, j] += multiplier * c + penalty * c**2
    return out


@pytest.mark.parametrize(
    ("g", "added"),
    [(0.5, 2.5), (0.0, 0.0), (-0.5, -1.5), (-1.0, -2.0), (-1.5, -2.0), (-3.0, -2.0)],  # with mu = 4, r = 2: g = -1
)
def test_an_inequality_adds_the_values_worked_by_hand_on_both_sides_of_the_switch(g, added):
    assert lagrangian([10.0, g], [4.0], 2.0, 1) == 10.0 + added


@pytest.mark.parametrize(
    ("h", "multiplier", "added"), [(0.5, 3.0, 2.0), (0.5, -3.0, -1.0), (-2.0, 3.0, 2.0), (-2.0, -3.0, 14.0)]
)
def test_an_equality_adds_the_values_worked_by_hand_for_either_sign(h, multiplier, added):
    assert lagrangian([-1.0, h], [multiplier], 2.0, 0) == -1.0 + added


def test_constraints_of_both_kinds_add_up_and_keep_their_order():
    # f = 1, g = (0.5, -3), h = -2; mu = (4, 2), lambda = -3, r = 2: 1 + 2.5 - 0.5 + 14
    assert lagrangian([1.0, 0.5, -3.0, -2.0], [4.0, 2.0, -3.0], 2.0, 2) == 17.0


@pytest.mark.parametrize(("mu", "penalty"), [(4.0, 2.0), (0.7, 31.0), (10.0, 0.3)])
def test_value_and_slope_are_continuous_at_the_switch(mu, penalty):
    switch, far = -mu / (2 * penalty), 1e-6
    below, at, above = (lagrangian([0.0, switch + d], [mu], penalty, 1).item() for d in (-far, 0.0, far))
    assert at == pytest.approx(-(mu**2) / (4 * penalty), rel=1e-12)
    assert below == pytest.approx(at, abs=1e-14) and above == pytest.approx(at, abs=2 * penalty * far**2)


def test_its_slope_is_that_of_finite_differences():
    rng = np.random.default_rng(1)
    facts, y = rng.normal(size=(6, 4)), np.column_stack([rng.uniform(0, 5, (6, 2)), rng.normal(size=6) * 3])
    penalty, step = 1.7, 1e-6
    gradient = jax.jit(jax.grad(lambda row, m: augmented_lagrangian(row, m, penalty, 0.5 / penalty, 2)))
    for row, multipliers in zip(facts, y, strict=True):
        with jax.enable_x64(True):
            slope = np.asarray(gradient(row, multipliers))
        sides = [lagrangian(row + step * np.eye(4) * sign, multipliers, penalty, 2)[:, 0] for sign in (1, -1)]
        np.testing.assert_allclose(slope, (sides[0] - sides[1]) / (2 * step), atol=1e-7)
        np.testing.assert_allclose(slope[1:3], np.maximum(0, multipliers[:2] + 2 * penalty * row[1:3]), atol=1e-12)
    at_rest = facts[:, 1:3] < -y[:, :2] / (2 * penalty)
    assert 0 < at_rest.sum() < at_rest.size  # or one side was not seen


def test_the_worst_multiplier_is_the_largest_where_violated_and_zero_where_slack():
    mu, facts = np.linspace(0, 5, 101)[:, None], [[1.0, 0.3], [1.0, -0.3], [1.0, -1e-3]]
    violated, slack, nearly = lagrangian(facts, mu, 2.0, 1)
    assert np.all(np.diff(violated) > 0) and violated.argmax() == 100
    for values in (slack, nearly):
        assert values.max() == values[0] == 1.0 and np.all(values[1:] < 1.0)


def test_the_worst_multiplier_of_an_equality_has_the_sign_of_its_value():
    y = np.linspace(-5, 5, 101)[:, None]
    above, below = lagrangian([[1.0, 0.3], [1.0, -0.3]], y, 2.0, 0)
    assert above.argmax() == 100 and below.argmax() == 0


@pytest.mark.parametrize(
    ("n", "m", "p", "q"), [pytest.param(7, 5, 3, 2, marks=pytest.mark.slow), (4, 6, 0, 3), (3, 2, 0, 0)]
)
def test_the_table_is_that_of_a_double_loop(n, m, p, q):
    rng = np.random.default_rng(n)
    facts, y = rng.normal(size=(n, 1 + p + q)), rng.normal(size=(m, p + q)) * 3
    y[:, :p] = abs(y[:, :p])
    with jax.enable_x64(True):
        table = all_pairs(
            lambda a, b: augmented_lagrangian(a, b, 1.3, 0.5 / 1.3, p), jnp.asarray(facts), jnp.asarray(y.T)
        )
    np.testing.assert_allclose(table, lagrangian_by_loops(facts, y, 1.3, p), rtol=1e-12, atol=1e-14)


def test_a_constraint_without_a_lower_end_is_slack():
    assert lagrangian([1.0, -np.inf], [4.0], 2.0, 1) == -1.0


# --- tables in tiles --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 6])
@pytest.mark.parametrize("at_once", [1, 9, 20])
def test_tiles_are_the_whole_table(n, at_once, monkeypatch):
    rows, others, asked = np.arange(3.0 * n).reshape(n, 3) ** 2, np.arange(12.0).reshape(4, 3) - 5, []

    def largest(some):
        asked.append(some.shape[0])
        return jnp.max(some @ others.T, axis=1)

    monkeypatch.setattr(pairwise, "MAX_STORED_PAIRS", at_once)
    found = map_in_tiles(largest, jnp.asarray(rows), 4)
    assert np.array_equal(found, (rows @ others.T).max(axis=1)) and found.shape == (n,)
    assert set(asked) == {min(n, max(1, at_once // 4))}


# --- a small problem, generation by generation ------------------------------------------------------------------------


def bowl(x):
    return (x[0] - 2.0) ** 2 + (x[1] + 2.5) ** 2 + 0.3 * (x[2] - 8.0) ** 2


def two_sides(x):
    """The first is active at the optimum, the second nearly so."""
    return jnp.stack([2.6 - x[0], x[0] + x[1] - 0.2])


def plane(x):
    return x[1] + 0.5 * x[2] - 1.0


def bowl_of_rows(x):
    return (x[:, 0] - 2.0) ** 2 + (x[:, 1] + 2.5) ** 2 + 0.3 * (x[:, 2] - 8.0) ** 2


def two_sides_of_rows(x):
    return np.stack([2.6 - x[:, 0], x[:, 0] + x[:, 1] - 0.2], axis=1)


def plane_of_rows(x):
    return x[:, 1] + 0.5 * x[:, 2] - 1.0


def fails_on_one_side(x):
    return jnp.where(x[0] > EDGE, jnp.nan, bowl(x))


BOX = Bounds(LOWER, UPPER)
CASES = {
    "inequalities": Problem(bowl, BOX, ineq=two_sides),
    "equality": Problem(bowl, BOX, eq=plane, eq_tolerance=0.05),
    "everything": Problem(fails_on_one_side, BOX, ineq=two_sides, eq=plane, eq_tolerance=0.05),
}
EVERY_CASE = pytest.mark.parametrize("case", ["inequalities", "everything"])


def shape_of(problem):
    return Shape(1, 2 if problem.ineq else 0, 1 if problem.eq else 0)


def facts_of(problem, x):
    """Objective and constraints of the rows of x in NumPy; +inf and zeros where the objective fails."""
    failed = (x[:, 0] > EDGE) & (problem.fun is fails_on_one_side)
    parts = [two_sides_of_rows(x)] * bool(problem.ineq) + [plane_of_rows(x)[:, None]] * bool(problem.eq)
    rest = np.where(failed[:, None], 0.0, np.concatenate(parts, axis=1))
    return np.column_stack([np.where(failed, np.inf, bowl_of_rows(x)), rest])


@cache
def trace(case):
    """Every state of a run made by hand: (generation, "step" or "cycle", state before, state after)."""
    problem, told = CASES[case], []
    shape, key = shape_of(problem), random.run_keys(SEED, 0, 1)[0]

    @partial(jax.jit, static_argnums=0)
    def step(first, key, state):
        def of_all(function):
            return None if function is None else jax.vmap(function)(state.candidates).reshape(N, -1)

        evaluation = summarise(*map(of_all, (problem.fun, problem.ineq, problem.eq)), problem.eq_tolerance)
        return SMALL.step(key, SMALL.start(state, evaluation, shape) if first else state, evaluation)

    cycle = jax.jit(partial(SMALL.cycle, shape=shape))
    with jax.enable_x64(True):
        state = jax.device_get(jax.jit(partial(SMALL.init, shape=shape))(random.fold_in(key, 0), problem.bounds))
        for generation in range(1, GENERATIONS + 1):
            own = random.fold_in(key, generation)
            before, state = state, jax.device_get(step(generation == 1, own, state))
            told.append((generation, "step", before, state))
            if generation % PERIOD == 0:
                before, state = state, jax.device_get(cycle(random.fold_in(own, random.Stream.CYCLE), state))
                told.append((generation, "cycle", before, state))
    return told


def penalty_of(state):
    return SMALL.penalty * SMALL.growth ** float(state.n_cycles)


def table_of(case, state, facts=None):
    facts = state.facts if facts is None else facts
    return lagrangian_by_loops(facts, state.rivals.T, penalty_of(state), shape_of(CASES[case]).ineq)


@pytest.mark.parametrize("case", params(["inequalities", "everything"], slow={"everything"}))
def test_scores_are_the_worst_values_over_all_rivals(case):
    for _, kind, before, after in trace(case):
        facts = facts_of(CASES[case], after.x)
        np.testing.assert_allclose(after.facts * after.units, facts, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(after.scores, table_of(case, after).max(axis=1), rtol=1e-9, err_msg=kind)
        if kind == "step":
            trials = table_of(case, after, facts_of(CASES[case], before.candidates) / after.units).max(axis=1)
            wins = trials <= before.scores
            assert np.array_equal(after.x, np.where(wins[:, None], before.candidates, before.x))


@pytest.mark.parametrize("case", params(["inequalities", "everything"], slow={"everything"}))
def test_units_are_the_spread_over_the_first_population_and_stay(case):
    told = trace(case)
    first = facts_of(CASES[case], told[0][2].candidates)
    first = first[np.isfinite(first[:, 0])]
    for *_, after in told:
        assert 0.5 < after.units[0] / first[:, 0].std() < 1 + 1e-9  # a mean deviation is somewhat less
        np.testing.assert_allclose(after.units[1:], np.abs(first[:, 1:]).mean(axis=0), rtol=1e-12)
        assert np.array_equal(after.units, told[0][3].units)


@EVERY_CASE
def test_multipliers_stay_in_their_box_and_move_in_it(case):
    shape, seen = shape_of(CASES[case]), []
    for *_, after in trace(case):
        assert after.rivals.shape == (shape.ineq + shape.eq, N)
        assert np.all(np.abs(after.rivals) <= SMALL.multipliers) and np.all(after.rivals[: shape.ineq] >= 0)
        seen.append(after.rivals.T)
    seen = np.concatenate(seen)
    assert np.all(seen[:, shape.ineq :].min(axis=0) < -1) and np.all(seen.max(axis=0) > 1)


@EVERY_CASE
def test_rivals_change_in_cycles_alone_and_x_in_steps_alone(case):
    kinds = []
    for generation, kind, before, after in trace(case):
        kinds.append((generation, kind))
        if kind == "step":
            assert np.array_equal(before.rivals, after.rivals) and before.n_cycles == after.n_cycles
        else:
            assert np.any(before.rivals != after.rivals) and after.n_cycles == before.n_cycles + 1
            old, new = ((s.candidates, s.x, s.facts, s.units, *s.parents) for s in (before, after))
            assert all(np.array_equal(a, b) for a, b in zip(old, new, strict=True))
    assert sum(kind == "cycle" for _, kind in kinds) == GENERATIONS // PERIOD


@EVERY_CASE
def test_a_failed_trial_takes_nobody_s_place(case):
    failed = 0
    for _, kind, before, after in trace(case):
        if kind == "step":
            fails = np.isinf(facts_of(CASES[case], before.candidates)[:, 0])
            settled = fails & np.isfinite(before.scores)
            failed += settled.sum()
            assert np.array_equal(after.x[settled], before.x[settled])
            assert np.array_equal(after.parents.x[settled], before.parents.x[settled])
            assert np.all(np.isfinite(after.scores[np.isfinite(before.scores)]))
    assert (failed > 0) == (CASES[case].fun is fails_on_one_side)


@EVERY_CASE
def test_the_survivors_are_the_best_that_each_slot_has_tried(case):
    best, differ = [((np.inf, np.inf), None)] * N, 0
    for _, kind, before, after in trace(case):
        if kind == "step":
            facts = facts_of(CASES[case], before.candidates)
            tried = zip(violation_of(CASES[case], facts), facts[:, 0], strict=True)
            rows = zip(tried, before.candidates.tolist(), best, strict=True)
            best = [(new, x) if new <= old[0] else old for new, x, old in rows]
        found = np.column_stack([after.parents.violation, after.parents.fitness])
        np.testing.assert_allclose(found, [rank for rank, _ in best], rtol=1e-12, atol=1e-12)
        sound = np.isfinite(after.parents.fitness)
        assert after.parents.x[sound].tolist() == [x for (_, value), x in best if np.isfinite(value)]
        differ += np.any(after.parents.x != after.x)
    assert differ or case == "inequalities"  # where they are simply x


@EVERY_CASE
def test_the_penalty_grows_from_cycle_to_cycle_and_stops_at_the_largest(case):
    for *_, after in trace(case):
        np.testing.assert_allclose(
            [after.penalty, after.switch], [penalty_of(after), 0.5 / penalty_of(after)], rtol=1e-12
        )
    with jax.enable_x64(True):
        assert SMALL.penalties(jnp.asarray(1e3)) == (cde.MAX_CDE_PENALTY, 0.5 / cde.MAX_CDE_PENALTY)


def violation_of(problem, facts):
    """Of rows of facts in NumPy; +inf where they failed."""
    ineq = shape_of(problem).ineq
    g, h = facts[:, 1 : 1 + ineq], facts[:, 1 + ineq :]
    total = np.maximum(g, 0).sum(axis=1) + np.maximum(np.abs(h) - problem.eq_tolerance, 0).sum(axis=1)
    return np.where(np.isinf(facts[:, 0]), np.inf, total)


@EVERY_CASE
def test_a_cycle_is_that_of_the_reference(case):
    key, moved = random.run_keys(SEED, 0, 1)[0], 0
    ineq, eq = shape_of(CASES[case])[1:]
    high = np.full(ineq + eq, SMALL.multipliers)
    low = np.array([0.0] * ineq + [-SMALL.multipliers] * eq)
    for generation, kind, before, after in trace(case):
        if kind == "cycle":

            def least(y, state=before):
                return lagrangian_by_loops(state.facts, [y], penalty_of(state), ineq).min()

            with jax.enable_x64(True):
                own = random.fold_in(random.fold_in(key, generation), random.Stream.CYCLE)
                y, _ = evolve(SMALL, own, before.rivals.T, low, high, least)
            np.testing.assert_allclose(after.rivals.T, y, rtol=1e-9, atol=1e-9, err_msg=f"generation {generation}")
            moved += np.sum(np.any(y != before.rivals.T, axis=1))
    assert moved > N


# --- whole runs -------------------------------------------------------------------------------------------------------


@cache
def solved(case, **settings):
    return gx.minimize(
        CASES[case],
        algorithm=SMALL,
        polish=False,
        **{"generations": GENERATIONS, "seed": SEED, "compute": gx.Compute(dtype="float64"), **settings},
    )


def same(a, b, rtol=1e-9):
    assert (a.nit, a.nfev, a.n_failed, a.success, a.message) == (b.nit, b.nfev, b.n_failed, b.success, b.message)
    pairs = [(a.x, b.x), (a.fun, b.fun), (a.violation, b.violation), (a.population, b.population)]
    pairs += [(getattr(a.history, part), getattr(b.history, part)) for part in ("best", "mean", "violation")]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


@pytest.mark.slow
@EVERY_CASE
def test_minimize_makes_the_run_that_is_made_by_hand(case):
    result, last = solved(case), trace(case)[-1][3].parents
    best = np.lexsort((last.fitness, last.violation))[0]
    np.testing.assert_allclose(result.population, last.x, rtol=1e-9)
    np.testing.assert_allclose(result.x, last.x[best], rtol=1e-9)
    np.testing.assert_allclose((result.violation, result.fun), (last.violation[best], last.fitness[best]))


@pytest.mark.slow
def test_asking_and_telling_makes_the_same_run():
    optimizer = gx.Optimizer(BOX, SMALL, seed=SEED)
    for _ in range(GENERATIONS):
        x = optimizer.ask_generation()
        optimizer.tell(x, bowl_of_rows(x), ineq=two_sides_of_rows(x))
    np.testing.assert_allclose(optimizer.population.x, solved("inequalities").population, rtol=1e-9)


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize("generations", [GENERATIONS, 28])
def test_the_result_does_not_depend_on_how_the_chunks_fall(generations, monkeypatch):
    long = solved("everything", generations=generations)
    monkeypatch.setattr(compiled, "CHUNK_SECONDS", 0.0)  # one generation at a time
    same(solved.__wrapped__("everything", generations=generations), long, rtol=0)
    monkeypatch.setattr(compiled, "_max_cpu_chunk", lambda runs, population: 7)  # not a multiple of the period
    monkeypatch.setattr(compiled, "CHUNK_SECONDS", 1e9)
    same(solved.__wrapped__("everything", generations=generations), long)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Repaired(CoevolutionaryDE):
    """Some candidates are moved onto the constraints before they are evaluated, the first ones too."""

    repairs: ClassVar[int] = 3


@pytest.mark.slow
@ON_CPU
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (CoevolutionaryDE, {}),
        (Repaired, {"runs": 3, "target": 3.0}),
        (Repaired, {}),
        (CoevolutionaryDE, {"runs": 3, "target": 3.0}),
    ],
)
def test_chunks_of_known_length_make_the_same_run(kind, settings, monkeypatch):
    """As on a GPU, in loops of known length: 30 generations in chunks of 4 and, at the end, of 1."""
    algorithm = kind(**{f.name: getattr(SMALL, f.name) for f in dataclasses.fields(SMALL)})
    settings = {"algorithm": algorithm, "generations": GENERATIONS, "seed": SEED, **settings}
    within = gx.minimize(CASES["equality"], polish=False, **settings)
    made = []
    static = compiled._static_chunk
    monkeypatch.setattr(compiled, "_static_chunk", lambda length, *rest: made.append(length) or static(length, *rest))
    monkeypatch.setattr(devices, "on_cpu", lambda: False)
    before = gx.minimize(CASES["equality"], polish=False, **settings)
    assert made and set(made) <= {1, PERIOD}
    same(before, within)
    if "runs" in settings:
        assert before.runs.nit.tolist() == within.runs.nit.tolist() and len(set(within.runs.nit)) > 1


@pytest.mark.slow
def test_each_run_of_an_ensemble_is_that_run_alone():
    together = solved("everything", runs=4)
    for number in range(4):
        alone = solved("everything", runs=range(number, number + 1))
        np.testing.assert_allclose(together.runs.x[number], alone.x, rtol=1e-9)
        np.testing.assert_allclose(together.runs.fun[number], alone.fun, rtol=1e-9)
        np.testing.assert_allclose(together.runs.violation[number], alone.violation, rtol=1e-9, atol=1e-12)
        assert together.runs.n_failed[number] == alone.n_failed
    assert len({tuple(x) for x in together.runs.x}) == 4


@pytest.mark.slow  # test_contract.py asks that of every algorithm
def test_a_run_that_stops_early_is_the_start_of_the_longer_one():
    best, feasible = solved("everything").history.best, solved("everything").history.violation <= 0
    goal = 0.5 * (best[feasible][0] + best[-1])
    stopped = solved("everything", target=goal)
    assert stopped.success and PERIOD < stopped.nit < GENERATIONS
    assert stopped.nit == np.argmax(feasible & (best <= goal)) + 1
    np.testing.assert_allclose(stopped.history.best, best[: stopped.nit], rtol=1e-9)


@pytest.mark.slow
def test_tiny_tiles_make_the_same_run(monkeypatch):
    whole, mapped = solved("inequalities"), []
    lax_map = jax.lax.map

    def counting(function, rows):
        mapped.append(rows.shape)
        return lax_map(function, rows)

    monkeypatch.setattr(pairwise, "MAX_STORED_PAIRS", 3 * N + 1)
    monkeypatch.setattr(jax.lax, "map", counting)
    compile_cache.clear()  # a generation's program is the same for every objective
    another = CASES["inequalities"].with_(fun=lambda x: 1.0 * bowl(x))
    tiled = gx.minimize(another, algorithm=SMALL, generations=GENERATIONS, seed=SEED, polish=False)
    compile_cache.clear()
    # 8 rows in 3 blocks of 3: facts of x (three numbers) in step and cycle, y (two numbers) in the cycle
    assert {(3, 3, 3), (3, 3, 2)} <= set(mapped)
    same(tiled, whole)


@pytest.mark.parametrize(
    ("objective", "constraints", "offset"),
    [
        pytest.param(1e6, 1e6, 0.0, marks=pytest.mark.slow),
        pytest.param(1e-6, 1e-6, 0.0, marks=pytest.mark.slow),
        pytest.param(1e6, 1e-6, 0.0, marks=pytest.mark.slow),
        pytest.param(2.0**-60, 2.0**50, 0.0, marks=pytest.mark.slow),
        # ten digits are left: with seven, rounding decides some comparisons
        pytest.param(1.0, 1.0, -1e6, marks=pytest.mark.slow),
        (1e-6, 1.0, 1.0),
    ],
)
def test_units_and_origin_of_objective_and_constraints_make_no_difference(objective, constraints, offset):
    scale, shift, sizes = np.array([objective]), np.array([offset]), np.array([constraints])  # arrays: compiled once
    problem = CASES["inequalities"].with_(fun=lambda x: scale * bowl(x) + shift, ineq=lambda x: sizes * two_sides(x))
    result = gx.minimize(problem, algorithm=SMALL, generations=GENERATIONS, seed=SEED, polish=False)
    known = solved("inequalities")
    np.testing.assert_allclose(result.population, known.population, rtol=1e-12)
    np.testing.assert_allclose(result.x, known.x, rtol=1e-12)
    assert result.fun == pytest.approx(objective * known.fun + offset, rel=1e-12)


def recorded(fun, ineq=None, eq=None, eq_tolerance=1e-4, **settings):
    """The result for NumPy functions of rows, and for all points asked about, in order: x, violation and value."""
    seen = []

    def recording(x):
        seen.append(x.copy())
        return fun(x)

    problem = Problem(recording, BOX, ineq=ineq, eq=eq, eq_tolerance=eq_tolerance)
    settings = {"generations": GENERATIONS, "seed": SEED, **settings}
    result = gx.minimize(problem, algorithm=SMALL, blackbox=True, vectorized=True, **settings)
    x = np.concatenate(seen)
    value, violation = fun(x), np.zeros(len(x))
    if ineq is not None:
        violation = violation + np.maximum(ineq(x), 0).sum(axis=1)
    if eq is not None:
        violation = violation + np.maximum(np.abs(eq(x)) - eq_tolerance, 0)
    bad = ~(np.isfinite(value) & np.isfinite(violation))
    return result, x, np.where(bad, np.inf, violation), np.where(bad, np.inf, value)


def nowhere(x):
    """Violated everywhere, least so along a line through the box that the objective does not ask for."""
    return np.stack([0.5 + np.abs(x[:, 0] - 3.0), 6.0 + x[:, 1] ** 2], axis=1)


RECORDED = {
    "inequalities": {"fun": bowl_of_rows, "ineq": two_sides_of_rows},
    "equality": {"fun": bowl_of_rows, "eq": plane_of_rows, "eq_tolerance": 0.05},
    "objective fails": {"fun": lambda x: np.where(x[:, 0] > EDGE, np.nan, bowl_of_rows(x)), "ineq": two_sides_of_rows},
    "objective is -inf": {
        "fun": lambda x: np.where(x[:, 0] > EDGE, -np.inf, bowl_of_rows(x)),
        "ineq": two_sides_of_rows,
    },
    "constraint fails": {
        "fun": lambda x: -x[:, 0],  # leads into the failures
        "ineq": lambda x: np.where(x[:, :1] > EDGE, np.nan, two_sides_of_rows(x)),
    },
    "nothing feasible": {"fun": bowl_of_rows, "ineq": nowhere},
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", params(RECORDED, slow={"inequalities", "equality", "objective fails"}))
def test_the_best_point_ever_evaluated_is_returned(name, seed):
    result, x, violation, value = recorded(**RECORDED[name], seed=seed)
    best = np.lexsort((value, violation))[0]
    as_good = (violation == violation[best]) & (value == value[best])
    assert result.x.tolist() in x[as_good].tolist()
    assert result.fun == value[best] and result.violation == pytest.approx(violation[best], rel=1e-12)
    assert result.feasible == (violation[best] <= 0) and not result.success  # the budget ended it
    assert result.nfev == len(x) == N * GENERATIONS and result.n_failed == np.isinf(value).sum()
    assert np.all((x >= LOWER) & (x <= UPPER))
    order = [np.lexsort((value[: N * g], violation[: N * g]))[0] for g in range(1, GENERATIONS + 1)]
    assert np.array_equal(result.history.best, value[order])
    if "fail" in name or "inf" in name.split():
        assert result.n_failed > 0 and result.x[0] <= EDGE and np.isfinite(result.population_fitness).all()


def test_a_black_box_makes_the_compiled_run():
    result, *_ = recorded(**RECORDED["inequalities"])
    same(result, solved("inequalities"))


def test_where_nothing_is_feasible_it_says_so():
    result, _, violation, _ = recorded(**RECORDED["nothing feasible"])
    assert not result.success and not result.feasible
    assert (
        f"No feasible point was found; the total constraint violation of x is {violation.min():.3g}." in result.message
    )


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["negative multiplier", "positive multiplier"])
def test_an_equality_is_met_whatever_the_sign_of_its_multiplier(sign):
    """The bowl with x0 = 2.6 asked for by an equality of either sign: its multiplier is -1.2 / sign."""
    signs = np.array([sign])
    runs = gx.minimize(
        Problem(bowl, BOX, eq=lambda x: signs * (x[0] - 2.6), eq_tolerance=1e-4), "cde", generations=400, runs=6,
        polish=False,
    ).runs  # fmt: skip
    np.testing.assert_allclose(runs.x, np.tile([2.6, -2.5, 8.0], (6, 1)), atol=0.02)
    assert np.all(np.abs(runs.x[:, 0] - 2.6) <= 1e-4 * (1 + 1e-9)) and runs.feasible.all()
    assert np.all(np.abs(runs.fun - 0.36) < 3e-4)


QUALITY = {  # generations, and by how much the best value of each of three runs may exceed the optimum, relative
    "g07": (1500, 1e-2),
    "g09": (600, 1e-4),
    "spring": (400, 1e-5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUALITY)
def test_known_problems_are_solved(name):
    generations, gap = QUALITY[name]
    problem = get(name)
    result = gx.minimize(problem, "cde", generations=generations, runs=3, seed=1, polish=False)
    assert result.runs.feasible.all()
    for x, value in zip(result.runs.x, result.runs.fun, strict=True):
        with jax.enable_x64(True):
            constraints, again = np.asarray(problem.ineq(jnp.asarray(x))), float(problem.fun(jnp.asarray(x)))
        assert np.all(constraints <= 1e-12 * max(1.0, abs(again))) and value == pytest.approx(again, rel=1e-12)
        assert -1e-9 < (value - problem.optimum) / problem.optimum < gap


@pytest.mark.slow  # test_contract.py asks that of every algorithm
def test_without_constraints_it_minimises():
    result = gx.minimize(bowl, BOX, CoevolutionaryDE(population=12), generations=150, polish=False)
    np.testing.assert_allclose(result.x, CENTRE, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"population": 3}, "population must be at least 4 .*three other individuals"),
        ({"x_generations": 0}, "x_generations must be at least 1"),
        ({"y_generations": 2.5}, "y_generations must be a whole number"),
        ({"mutation": "rand_1"}, "mutation must be a function such as galapax.operators.variation.best_1"),
        ({"weight": 2.1}, "weight must lie between 0 and 2"),
        ({"crossover_rate": -0.1}, "crossover_rate must lie between 0 and 1"),
        ({"penalty": 0.0}, "penalty must be"),
        ({"growth": 0.0}, "growth must be"),
        ({"multipliers": -1.0}, "multipliers must be"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(gx.InputError, match=message):
        gx.minimize(CASES["inequalities"], algorithm=dataclasses.replace(SMALL, **settings), generations=1)
