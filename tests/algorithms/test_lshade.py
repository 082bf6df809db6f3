"""L-SHADE, jSO and L-SRTDE: their draws, the population that shrinks, the memory that moves, and a generation of
L-SHADE against a second one in NumPy, one individual at a time, on the same words.
"""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support.cases import params
from support.compilations import ON_CPU, compilations

import galapax as gx
from galapax.core.algorithm import Budget
from galapax.core.problem import Population, Shape
from galapax.numerics import devices, random
from galapax.objective.evaluation_log import summarise
from galapax.operators.adaptation import Horizon, add_to_archive, linear_population_size, share_of_run, success_gains
from galapax.operators.pairwise import argsort_rows

NAMES = ["lshade", "jso", "lsrtde"]
EVERY = pytest.mark.parametrize("name", NAMES)
D = 4
LOWER, UPPER = np.array([2.0, -9.0, 0.5, -3.0]), np.array([11.0, -1.0, 7.5, 30.0])
BOX = gx.Bounds(LOWER, UPPER)
OPTIMUM = np.array([3.0, -2.5, 6.0, -1.0])


def valley(x):
    y = x - OPTIMUM
    return (y[0] - y[1] ** 2) ** 2 + 3.0 * y[1] ** 2 + (y[2] + 0.5 * y[3]) ** 2 + 0.1 * y[3] ** 2


def valley_in_numpy(x):
    y = np.asarray(x) - OPTIMUM
    parts = (y[:, 0] - y[:, 1] ** 2) ** 2, 3.0 * y[:, 1] ** 2, (y[:, 2] + 0.5 * y[:, 3]) ** 2, 0.1 * y[:, 3] ** 2
    return sum(parts)


def told(values):
    return summarise(jnp.asarray(values)[:, None], None, None, 0.0)


class ByHand:
    """One run, a generation at a time; `meddle` changes what the problem says of rows that are not in use."""

    def __init__(self, algorithm, budget, seed=0, meddle=None, dtype="float64", values=valley_in_numpy):
        self.meddle, self.values, self.x64 = meddle, values, dtype == "float64"
        self.algorithm = algorithm.bind(D, Shape(), budget)
        self.key = random.run_keys(seed, 0, 1)[0]
        self.number = 0
        with jax.enable_x64(self.x64):
            self.state = jax.jit(self.algorithm.init)(random.fold_in(self.key, 0), BOX.round_inwards(np.dtype(dtype)))

    @property
    def size(self):
        return int(self.state.size)

    def step(self):
        self.number += 1
        values = np.asarray(self.values(np.asarray(self.state.candidates)), self.state.candidates.dtype).copy()
        if self.meddle is not None:
            values[self.size :] = self.meddle
        with jax.enable_x64(self.x64):
            self.state = stepped(self.algorithm, random.fold_in(self.key, self.number), self.state, values)
        return self.state


@jax.jit
def stepped(algorithm, key, state, values):
    return algorithm.step(key, state, told(values))


# --- sizes and schedule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dim", "expected"),
    [("lshade", 10, 180), ("lshade", 1, 18), ("jso", 10, 182), ("jso", 30, 466), ("jso", 1, 18), ("lsrtde", 10, 200)],
)
def test_the_first_population_is_that_of_the_papers(name, dim, expected):
    assert gx.algorithms.ALGORITHMS[name]().bind(dim, Shape(), Budget(1000)).population == expected
    assert gx.algorithms.ALGORITHMS[name]().bind(dim, Shape(), Budget(None, 10_000 * dim)).population == expected


@EVERY
def test_a_small_budget_gets_a_smaller_population_and_a_given_one_stays(name):
    kind = gx.algorithms.ALGORITHMS[name]
    assert kind().bind(10, Shape(), Budget(None, 2000)).population == 40
    assert kind().bind(10, Shape(), Budget(None, 100)).population == 18
    assert kind(population=77).bind(10, Shape(), Budget(None, 100)).population == 77


def test_defaults_are_those_of_the_papers():
    one, other, third = gx.LSHADE(), gx.JSO(), gx.LSRTDE()
    assert (one.last_population, one.memories, one.archive, one.best_share) == (4, 6, 2.6, 0.11)
    assert (one.weight, one.crossover_rate) == (0.5, 0.5)
    assert (other.last_population, other.memories, other.archive, other.best_share) == (4, 5, 1.0, 0.25)
    assert (other.weight, other.crossover_rate) == (0.3, 0.8)
    assert (third.last_population, third.memories, third.crossover_rate) == (4, 5, 1.0)


@pytest.mark.parametrize("share", [0.0, 0.1234, 0.5, 0.999, 1.0])
def test_the_size_falls_linearly_and_is_rounded_to_the_nearest(share):
    for first in (5, 100, 181):
        expected = int(np.floor(first + (4 - first) * share + 0.5))
        with jax.enable_x64(True):
            assert int(linear_population_size(first, 4, jnp.asarray(share))) == expected


def test_progress_follows_the_nearer_limit_and_is_zero_without_one():
    def reached(*horizon):
        made = jnp.int32(30), jnp.int32(600)
        return float(share_of_run(Horizon(*horizon), *made, jnp.float32))

    assert reached(np.inf, np.inf) == 0.0
    assert reached(100.0, np.inf) == pytest.approx(0.3)
    assert reached(np.inf, 1000.0) == pytest.approx(0.6)
    assert reached(100.0, 1000.0) == pytest.approx(0.6) and reached(40.0, 1000.0) == pytest.approx(0.75)
    assert reached(10.0, 10.0) == 1.0
    assert float(share_of_run(None, jnp.int32(3), jnp.int32(5), jnp.float32)) == 0.0


@pytest.mark.parametrize("name", params(NAMES, quick={"jso"}))
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_the_population_shrinks_exactly_with_the_evaluations_spent(name, dtype):
    run = ByHand(gx.algorithms.ALGORITHMS[name](population=40), Budget(None, 1500), dtype=dtype)
    spent, sizes = 0, []
    while spent < 1500:
        sizes.append(run.size)
        assert run.algorithm.evaluations(run.state, run.number + 1) == run.size
        run.step()
        spent += sizes[-1]
        assert int(run.state.spent) == spent
        assert run.size == int(np.floor(40 - 36 * min(spent / 1500, 1.0) + 0.5))
    assert sizes[0] == 40 and run.size == 4 and np.all(np.diff(sizes) <= 0)


@pytest.mark.parametrize("name", params(NAMES, quick={"jso"}))
def test_without_a_limit_the_population_keeps_its_size(name):
    run = ByHand(gx.algorithms.ALGORITHMS[name](population=20), Budget())
    for _ in range(30):
        run.step()
    assert run.size == 20 and np.isfinite(run.state.parents.fitness).all()


@pytest.mark.slow
@EVERY
def test_nfev_and_history_count_what_was_in_use(name):
    res = gx.minimize(
        valley,
        list(zip(LOWER, UPPER, strict=True)),
        name,
        generations=50,
        population=30,
        compute=gx.Compute(dtype="float64"),
        polish=False,
    )
    sizes = np.concatenate([[30], [int(np.floor(30 - 26 * g / 50 + 0.5)) for g in range(1, 50)]])
    assert res.nfev == sizes.sum()
    np.testing.assert_array_equal(res.history.nfev, np.cumsum(sizes))
    finite = np.isfinite(res.population_fitness)
    assert finite.sum() == 4 and res.fun == res.population_fitness[finite].min() == res.history.best[-1]
    assert res.history.worst[-1] == res.population_fitness[finite].max()
    assert np.all(np.diff(res.history.best) <= 0)


@pytest.mark.slow
@EVERY
def test_an_ensemble_is_its_single_runs_while_the_population_shrinks(name):
    settings = {"generations": 30, "population": 20, "seed": 6, "compute": gx.Compute(dtype="float64")}
    box = list(zip(LOWER, UPPER, strict=True))
    ensemble = gx.minimize(valley, box, name, runs=5, polish=False, **settings)
    alone = gx.minimize(valley, box, name, runs=range(3, 4), polish=False, **settings)
    # on a GPU sums are rounded as the size of the batch has it
    np.testing.assert_allclose(ensemble.runs.x[3], alone.x, rtol=0 if devices.on_cpu() else 1e-6)
    assert ensemble.runs.nfev[3] == alone.nfev


@pytest.mark.slow
@ON_CPU
@EVERY
def test_other_budgets_compile_nothing(name):
    box = list(zip(LOWER, UPPER, strict=True))

    def solve(**limits):
        return gx.minimize(
            valley, box, name, population=20, compute=gx.Compute(dtype="float64"), polish=False, **limits
        )

    solve(generations=20)
    with compilations() as compiled:
        solve(generations=33)
        solve(max_evaluations=700)
        solve(generations=5, max_evaluations=700)
        solve(max_seconds=0.05)
    assert compiled == []


@pytest.mark.slow
@EVERY
def test_ask_and_tell_shrinks_too_when_it_knows_what_will_be_spent(name):
    opt = gx.Optimizer(BOX, name, population=20, max_evaluations=400)
    asked = 0
    while opt.nfev < 400:
        x = opt.ask_generation()
        opt.tell(x, valley_in_numpy(x))
        asked += 1
    assert asked > 400 / 20 + 5
    assert np.isfinite(opt.population.fitness).sum() == 4
    with pytest.raises(gx.InputError, match="max_evaluations must be at least 1"):
        gx.Optimizer(BOX, name, max_evaluations=0)


# --- rows that are not in use -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", params(NAMES, quick={"lsrtde"}))
@pytest.mark.parametrize(
    "meddle",
    [pytest.param(np.nan, marks=pytest.mark.slow), pytest.param(-1e9, marks=pytest.mark.slow), np.inf],
    ids=["NaN", "better than all", "inf"],
)
def test_nothing_that_is_said_of_rows_not_in_use_matters(name, meddle):
    kind = gx.algorithms.ALGORITHMS[name]
    plain, meddled = (ByHand(kind(population=16), Budget(40), meddle=m) for m in (None, meddle))
    for _ in range(40):
        plain.step()
        meddled.step()
        jax.tree.map(np.testing.assert_array_equal, plain.state, meddled.state)
        size, state = plain.size, plain.state
        assert np.isfinite(state.parents.fitness[:size]).all() and np.isinf(state.parents.fitness[size:]).all()
        assert np.all((state.candidates >= LOWER) & (state.candidates <= UPPER))
        np.testing.assert_array_equal(state.candidates[size:], np.tile(state.parents.x[0], (16 - size, 1)))


@pytest.mark.parametrize("name", params(NAMES, slow={"lshade"}))
def test_points_of_rows_not_in_use_are_never_partners(name):
    run = ByHand(gx.algorithms.ALGORITHMS[name](population=16), Budget(40))
    for _ in range(25):
        run.step()
    size = run.size
    assert 4 < size < 12

    def bred(far):
        """The next state with other points in the rows that are not in use."""
        state = run.state

        def moved(population):
            return population._replace(x=jnp.asarray(population.x).at[size:].set(far))

        changed = {"parents": moved(state.parents)}
        if hasattr(state, "newest"):
            changed["newest"] = moved(state.newest)
        if hasattr(state, "archive"):
            changed["archive"] = jnp.asarray(state.archive).at[int(state.filled) :].set(far)
        with jax.enable_x64(True):
            state = state._replace(**changed)
            return stepped(run.algorithm, run.key, state, valley_in_numpy(state.candidates)).candidates

    np.testing.assert_array_equal(bred(LOWER), bred(UPPER))


@pytest.mark.parametrize("name", params(NAMES, quick={"jso"}))
def test_the_best_is_never_lost_and_survivors_come_best_first(name):
    run, best = ByHand(gx.algorithms.ALGORITHMS[name](population=20), Budget(60), seed=3), np.inf
    for _ in range(60):
        best = min(best, valley_in_numpy(run.state.candidates)[: run.size].min())
        state = run.step()
        assert state.parents.fitness[0] == best
        assert np.all(np.diff(state.parents.fitness[: run.size]) >= 0)


# --- draws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("centre", [0.05, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_are_cauchy_numbers_given_that_they_are_positive(centre, dtype):
    with jax.enable_x64(dtype == "float64"):
        drawn = np.asarray(jax.jit(random.positive_cauchy)(random.root_key(3), jnp.full(40_000, centre, dtype), 0.1))
    assert drawn.dtype == dtype and drawn.min() > 0
    whole = stats.cauchy(centre, 0.1)
    beyond = whole.sf(0)
    assert stats.kstest(drawn, lambda x: (whole.cdf(x) - whole.cdf(0)) / beyond).pvalue > 1e-4


def test_whole_numbers_below_a_limit_that_only_the_device_knows():
    words = random.bits(random.root_key(1), (5000,))
    for limit in (1, 2, 7, 60_000, 2**20 + 3):
        np.testing.assert_array_equal(random.scale_to(words, jnp.int32(limit)), random.scale_to(words, limit))
    each = jnp.arange(1, 5001, dtype=jnp.int32)
    picks = np.asarray(random.scale_to(words, each))
    assert np.all((picks >= 0) & (picks < each))


@pytest.mark.parametrize(("kind", "reached"), [(gx.LSHADE, 0.2), (gx.JSO, 0.2), (gx.JSO, 0.8)])
def test_the_best_share_is_drawn_evenly(kind, reached):
    n, size, draws = 60, 40, 400
    algorithm, rows = kind(population=n), jnp.arange(n, dtype=jnp.int32)
    each = jax.jit(jax.vmap(lambda key: algorithm.ahead(key, rows, jnp.int32(size), jnp.float32(reached))))
    picks = np.asarray(each(random.run_keys(0, 0, draws)))
    share = 0.11 if kind is gx.LSHADE else 0.25 * (1 - 0.5 * reached)
    best = max(2, int(np.floor(share * size + 0.5)))
    assert picks.min() == 0 and picks.max() == best - 1
    late = picks[:, best:size]  # of rows that are not among the best themselves
    assert stats.chisquare(np.bincount(late.ravel(), minlength=best)).pvalue > 1e-4
    itself = np.mean(picks[:, :best] == np.arange(best))
    assert itself == 0.0 if kind is gx.JSO and reached < 0.5 else itself > 0.5 / best


def test_jso_holds_weights_and_rates_back_and_draws_harder_later():
    weight, rate = jnp.asarray([0.2, 0.65, 0.95]), jnp.asarray([0.1, 0.65, 0.9])

    def held(reached):
        limited = gx.JSO().limit_parameters(weight, rate, jnp.float32(reached))
        return np.concatenate([*limited, np.ravel(gx.JSO().pull(jnp.float32(reached)))])

    low, high = [0.2, 0.65, 0.7], [0.2, 0.65, 0.95]
    np.testing.assert_allclose(held(0.1), [*low, 0.7, 0.7, 0.9, 0.7], rtol=1e-6)
    np.testing.assert_allclose(held(0.3), [*low, 0.6, 0.65, 0.9, 0.8], rtol=1e-6)
    np.testing.assert_allclose(held(0.55), [*low, 0.1, 0.65, 0.9, 1.2], rtol=1e-6)
    np.testing.assert_allclose(held(0.7), [*high, 0.1, 0.65, 0.9, 1.2], rtol=1e-6)
    np.testing.assert_allclose(gx.JSO().centres(jnp.full((2, 5), 0.3))[:, -1], 0.9)


def test_ranks_by_several_keys_are_the_same_by_sorting_and_by_counting(monkeypatch):
    draws = np.random.default_rng(0)
    keys = [jnp.asarray(draws.integers(0, 4, 50).astype(np.float32)) for _ in range(3)]
    keys[1] = keys[1].at[7:20].set(jnp.inf)
    expected = np.lexsort([np.asarray(k) for k in reversed(keys)])
    np.testing.assert_array_equal(argsort_rows(*keys), expected)
    monkeypatch.setattr("galapax.numerics.devices.on_cpu", lambda: False)
    np.testing.assert_array_equal(argsort_rows(*keys), expected)


# --- archive and memory -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_archive_fills_and_then_replaces_at_random():
    losers = jnp.arange(8.0)[:, None] + 100
    lost = jnp.asarray([True, False, True, True, False, False, True, False])
    archive, filled = add_to_archive(random.root_key(0), jnp.zeros((6, 1)), jnp.int32(1), jnp.int32(5), losers, lost)
    assert int(filled) == 5
    np.testing.assert_array_equal(archive[:, 0], [0.0, 100.0, 102.0, 103.0, 106.0, 0.0])
    hits = np.zeros(5)
    for seed in range(300):
        archive, filled = add_to_archive(
            random.root_key(seed), jnp.zeros((6, 1)), jnp.int32(5), jnp.int32(5), losers, lost
        )
        assert int(filled) == 5 and archive[5, 0] == 0 and {*np.unique(archive)} <= {0.0, 100.0, 102.0, 103.0, 106.0}
        hits += np.asarray(archive[:5, 0]) > 0
    assert stats.chisquare(hits).pvalue > 1e-4 and hits.sum() > 2 * 300


def test_the_archive_holds_only_parents_that_lost():
    run = ByHand(gx.LSHADE(population=12), Budget(60), seed=1)
    lost = []
    for _ in range(60):
        before, trials = run.state, valley_in_numpy(run.state.candidates)
        won = (trials < before.parents.fitness) & (np.arange(12) < run.size) & np.isfinite(before.parents.fitness)
        lost += np.asarray(before.parents.x)[won].tolist()
        state = run.step()
        held = np.asarray(state.archive)[: int(state.filled)].tolist()
        assert all(point in lost for point in held)
        assert int(state.filled) <= np.floor(2.6 * run.size + 0.5)
    assert held


def test_gains_are_in_units_of_their_kind_and_those_without_constraints_are_plain():
    def of(fitness, violation=None):
        return Population(np.zeros((4, 1)), jnp.asarray(fitness)[:, None], violation)

    better = jnp.asarray([True, True, False, True])
    old, new = of([5.0, 9.0, 1.0, np.inf]), of([4.0, 6.0, 0.0, 1.0])
    measured = jax.jit(success_gains)
    gained = np.asarray(measured(old, new, better & np.isfinite(old.fitness)))
    assert gained[2] == gained[3] == 0 and gained[1] == pytest.approx(3 * gained[0])
    was, now = jnp.asarray([0.0, 6e9, 0.0, 2e9]), jnp.asarray([0.0, 2e9, 0.0, 0.0])
    mixed = np.asarray(measured(of([5.0, 9.0, 1.0, 2.0], was), of([4.0, 99.0, 0.0, 1.0], now), better))
    np.testing.assert_allclose(mixed, [1.0, 4 / 3, 0.0, 2 / 3], rtol=1e-6)


@EVERY
def test_the_memory_moves_one_place_at_a_time_and_only_with_success(name):
    run = ByHand(gx.algorithms.ALGORITHMS[name](population=16), Budget())
    first = np.asarray(run.state.memory)
    run.step()
    np.testing.assert_array_equal(run.state.memory, first)  # the first candidates have no parents to beat
    for _ in range(40):
        before = run.state
        after = run.step()
        changed = np.atleast_2d(np.asarray(after.memory != before.memory)).any(axis=0)
        assert changed.sum() <= 1 and (not changed.any() or changed[int(before.turn)])
        memories = run.algorithm.memories
        assert int(after.turn) in (int(before.turn), (int(before.turn) + 1) % memories)
    assert not np.array_equal(run.state.memory, first)
    before = run.state
    with jax.enable_x64(True):
        worse = stepped(run.algorithm, run.key, before, np.full(16, 1e9))
    np.testing.assert_array_equal(worse.memory, before.memory)
    assert int(worse.turn) == int(before.turn)


@pytest.mark.slow
def test_a_rate_that_only_worked_at_zero_is_zero_for_good():
    algorithm = gx.LSHADE(population=4).bind(D, Shape(), Budget())
    with jax.enable_x64(True):
        state = algorithm.init(random.root_key(0), BOX)
        state = state._replace(parameters=jnp.asarray([[0.5, 0.6, 0.7, 0.8], [0.0, 0.0, 0.9, 0.9]]))
        worked = jnp.asarray([True, True, False, False])
        memory, turn = algorithm.learn(state, worked * 1.0, worked)
        assert memory[1, 0] == -1.0 and memory[0, 0] == pytest.approx((0.5**2 + 0.6**2) / 1.1) and int(turn) == 1
        again, _ = algorithm.learn(state._replace(memory=memory), jnp.ones(4), jnp.ones(4, bool))
        assert again[1, 0] == -1.0 and again[0, 0] != memory[0, 0]
        run = ByHand(gx.LSHADE(population=8), Budget())
        run.state = run.state._replace(memory=jnp.stack([jnp.full(6, 0.5), jnp.full(6, -1.0)]))
        run.step()
        assert np.all(np.asarray(run.state.parameters)[1] == 0)
        assert np.all(np.sum(np.asarray(run.state.candidates != run.state.parents.x), axis=1) <= 1)


def test_success_rate_leads_the_weights_of_lsrtde():
    run = ByHand(gx.LSRTDE(population=400), Budget())
    run.step()
    assert float(run.state.success) == 0.5
    with jax.enable_x64(True):
        none = stepped(run.algorithm, run.key, run.state, np.full(400, 1e9))
        every = stepped(run.algorithm, run.key, run.state, np.full(400, -1e9))
    assert float(none.success) == 0.0 and float(every.success) == 1.0
    np.testing.assert_array_equal(none.newest.x, run.state.newest.x)
    np.testing.assert_array_equal(every.newest.x, run.state.candidates)


def test_the_newest_of_lsrtde_are_the_latest_successes_in_a_ring():
    run = ByHand(gx.LSRTDE(population=10), Budget(), seed=2)
    ring, place = None, 0
    for _ in range(30):
        before = run.state
        values = valley_in_numpy(before.candidates)
        state = run.step()
        if ring is None:
            ring = np.asarray(before.candidates).tolist()
        else:
            known = np.asarray(before.newest.fitness)[np.asarray(before.targets)]
            for row in np.flatnonzero(values <= known):
                ring[place % 10] = np.asarray(before.candidates)[row].tolist()
                place += 1
        assert np.asarray(state.newest.x).tolist() == ring
        assert int(state.ring) == place % 10
    assert place > 30


# --- a generation against another implementation ----------------------------------------------------------------------


class Reference:
    """L-SHADE as its paper tells it, with lists and loops; of the library nothing but keys and random words."""

    def __init__(self, n, budget, seed):
        self.n = self.first = n
        self.budget, self.spent, self.number = budget, 0, 0
        self.key = random.run_keys(seed, 0, 1)[0]
        share = np.asarray(random.uniform(random.fold_in(self.key, 0), (n, D), "float64"))
        self.trials = [LOWER + (UPPER - LOWER) * row for row in share]
        self.population = [(np.inf, x) for x in self.trials]
        self.tried = [(0.5, 0.5)] * n
        self.archive, self.memory, self.turn = [], [[0.5] * 6, [0.5] * 6], 0

    def words(self, key, *shape):
        return np.asarray(random.bits(key, shape)).tolist()

    def step(self):
        values = valley_in_numpy(np.array(self.trials)).tolist()
        self.number += 1
        key_archive, key_breed = random.split(random.fold_in(self.key, self.number))
        self.select(values, self.words(key_archive, self.first))
        self.spent += self.n
        self.n = int(np.floor(self.first + (4 - self.first) * min(self.spent / self.budget, 1) + 0.5))
        self.population.sort(key=lambda one: one[0])  # stable
        del self.population[self.n :], self.archive[int(np.floor(2.6 * self.n + 0.5)) :]
        self.breed(key_breed)

    def select(self, values, words):
        capacity = int(np.floor(2.6 * self.n + 0.5))
        gained, filled, comes = [], len(self.archive), {}
        for i, (value, trial) in enumerate(zip(values, self.trials, strict=True)):
            old, x = self.population[i]
            if value < old < np.inf:
                gained.append((old - value, *self.tried[i]))
                if filled + len(comes) < capacity and not any(slot < filled for slot in comes):
                    comes[filled + len(comes)] = x
                else:
                    comes[words[i] * capacity >> 32] = x
            if value <= old:
                self.population[i] = value, trial
        for slot, x in comes.items():
            if slot < len(self.archive):
                self.archive[slot] = x
            else:
                self.archive.append(x)
        if gained:
            for k in (0, 1):
                lower = sum(g * both[k] for g, *both in gained)
                mean = sum(g * both[k] ** 2 for g, *both in gained) / lower if lower > 0 else -1.0
                over = k == 1 and (self.memory[1][self.turn] < 0 or lower == 0)
                self.memory[k][self.turn] = -1.0 if over else mean
            self.turn = (self.turn + 1) % 6

    def breed(self, key):
        key_memory, key_weight, key_rate, key_best, key_partners, key_cross = random.split(key, 6)
        key_gene, key_forced = random.split(key_cross)
        n, first = self.n, self.first
        slots, shares = self.words(key_memory, first), self.words(key_weight, first)
        normal = np.asarray(random.normal(key_rate, (first,), "float64"))
        ahead, partners = self.words(key_best, first), self.words(key_partners, 2, first)
        genes, forced = self.words(key_gene, first, D), self.words(key_forced, first)
        best = max(2, int(np.floor(0.11 * n + 0.5)))
        xs = [x for _, x in self.population]
        self.trials, self.tried = [], []
        for i in range(n):
            slot = slots[i] * 6 >> 32
            whole = stats.cauchy(self.memory[0][slot], 0.1)
            weight = min(1.0, whole.isf(((shares[i] >> 8) + 0.5) / 2**24 * whole.sf(0)))
            rate = float(np.clip(self.memory[1][slot] + 0.1 * normal[i], 0, 1)) if self.memory[1][slot] >= 0 else 0.0
            left = [j for j in range(n) if j != i]
            plus = left[partners[0][i] * len(left) >> 32]
            left = [x for j, x in enumerate(xs) if j not in (i, plus)] + self.archive
            minus = left[partners[1][i] * len(left) >> 32]
            mutant = xs[i] + weight * (xs[ahead[i] * best >> 32] - xs[i]) + weight * (xs[plus] - minus)
            trial = xs[i].copy()
            for g in range(D):
                if genes[i][g] >> 8 < round(float(np.float32(rate)) * 2**24) or g == forced[i] * D >> 32:
                    trial[g] = mutant[g]
                    if not LOWER[g] <= trial[g] <= UPPER[g]:
                        trial[g] = ((LOWER[g] if trial[g] < LOWER[g] else UPPER[g]) + xs[i][g]) / 2
            self.trials.append(trial)
            self.tried.append((weight, rate))


@pytest.mark.slow
def test_each_generation_equals_the_reference():
    n, budget = 16, 500
    run = ByHand(gx.LSHADE(population=n), Budget(None, budget), seed=5)
    with jax.enable_x64(True):
        known = Reference(n, budget, seed=5)
        while known.spent < budget:
            known.step()
            state = run.step()
            size = run.size
            assert size == known.n and int(state.filled) == len(known.archive) and int(state.turn) == known.turn
            for ours, theirs in (
                (state.parents.fitness[:size], [value for value, _ in known.population]),
                (state.parents.x[:size], [x for _, x in known.population]),
                (state.archive[: len(known.archive)], np.reshape(known.archive, (-1, D))),
                (state.memory, known.memory),
                (state.parameters[:, :size], np.transpose(known.tried)),
                (state.candidates[:size], known.trials),
            ):
                # the library's Cauchy numbers have nine digits, and differences of close values lose some
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert known.archive and known.number > 40


# --- constraints ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@EVERY
def test_with_equalities_the_best_ever_seen_feasible_first_stays(name):
    @jax.jit
    def evaluate(x):
        return summarise((x[:, :1] - 3.0) ** 2 + x[:, 1:2], None, (x[:, 0] ** 2 + x[:, 1] ** 2 - 1.0)[:, None], 1e-2)

    box = gx.Bounds(np.full(2, -2.0), np.full(2, 2.5))
    algorithm = gx.algorithms.ALGORITHMS[name](population=20).bind(2, Shape(1, 0, 1), Budget(80))
    step = jax.jit(algorithm.step)
    best = (np.inf, np.inf)
    relaxed = 0
    with jax.enable_x64(True):
        state = algorithm.init(random.root_key(1), box, Shape(1, 0, 1))
        for number in range(1, 81):
            said = evaluate(state.candidates)
            rows = range(int(state.size))
            best = min(best, *((float(said.violation[i]), float(said.fitness[i])) for i in rows))
            state = step(random.fold_in(random.root_key(1), number), state, said)
            assert (float(state.parents.violation[0]), float(state.parents.fitness[0])) == best
            relaxed += bool(np.any(np.asarray(state.parents.violation[: int(state.size)]) > 0))
    assert relaxed > 5 and best[0] == 0.0 and best[1] < 4.2 and float(state.first_epsilon) > 0


@pytest.mark.parametrize("name", ["lshade", "jso"])
@pytest.mark.parametrize("problem", ["g05", "g06", "g07", "g11"])
@pytest.mark.slow
def test_constrained_problems_are_solved(name, problem):
    known = gx.problems.get(problem)
    runs = gx.minimize(known, algorithm=name, generations=2000, runs=10, keep=gx.Keep(history=False), polish=False).runs
    assert np.all(runs.violation <= 0) and np.all(runs.fun - known.optimum < 1e-4)


# --- what it is for ---------------------------------------------------------------------------------------------------


def rastrigin(x):
    z = x - jnp.linspace(-2.3, 3.1, 10, dtype=x.dtype)
    return jnp.sum(z**2 - 10 * jnp.cos(2 * jnp.pi * z) + 10)


@cache
def on_rastrigin(name):
    return gx.minimize(
        rastrigin, [(-5.12, 5.12)] * 10, name, generations=900, runs=20, keep=gx.Keep(history=False), polish=False
    ).runs


@pytest.mark.slow
@pytest.mark.parametrize(("name", "solved"), [("lshade", 19), ("jso", 15), ("lsrtde", 8)])
def test_rastrigin_in_ten_variables_is_solved_where_de_fails(name, solved):
    runs = on_rastrigin(name)
    assert np.sum(runs.fun < 1e-2) >= solved and runs.nfev.max() < 100_000
    de = gx.minimize(
        rastrigin,
        [(-5.12, 5.12)] * 10,
        gx.DE(),
        max_evaluations=100_000,
        runs=20,
        keep=gx.Keep(history=False),
        polish=False,
    ).runs
    assert np.sum(de.fun < 1e-2) == 0


@pytest.mark.slow
@EVERY
def test_a_bowl_is_searched_to_the_last_digits(name):
    res = gx.minimize(
        lambda x: jnp.sum((x - 1.3) ** 2),
        [(-4.0, 7.0)] * 3,
        name,
        generations=300,
        compute=gx.Compute(dtype="float64"),
        polish=False,
    )
    assert res.fun < 1e-20


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (gx.LSHADE, {"population": 3}, "population must be at least 4 .*two partners"),
        (gx.LSHADE, {"population": 20, "last_population": 21}, "last_population must be at most population, 20"),
        (gx.JSO, {"last_population": 3}, "last_population must be at least 4"),
        (gx.LSHADE, {"memories": 0}, "memories must be at least 1"),
        (gx.LSHADE, {"archive": -1.0}, "archive must lie between 0 and 100"),
        (gx.LSHADE, {"best_share": 1.5}, "best_share must lie between 0 and 1"),
        (gx.LSRTDE, {"crossover_rate": 2.0}, "crossover_rate must lie between 0 and 1"),
        (gx.LSRTDE, {"relaxed": 0.0}, "relaxed must be greater than 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(kind, settings, message):
    with pytest.raises(gx.InputError, match=message):
        dataclasses.replace(kind(), **settings).validate()


def test_no_archive_is_possible():
    run = ByHand(gx.LSHADE(population=12, archive=0.0), Budget(30))
    for _ in range(30):
        assert int(run.step().filled) == 0


def test_a_failed_evaluation_teaches_nothing():
    def half(x):
        return np.where(np.asarray(x)[:, 0] > 6.0, np.nan, valley_in_numpy(x))

    for name in NAMES:
        run = ByHand(gx.algorithms.ALGORITHMS[name](population=16), Budget(40), values=half)
        for _ in range(40):
            state = run.step()
            fine = np.isfinite(state.parents.fitness)
            assert np.all(np.asarray(state.parents.x)[fine, 0] <= 6.0) and np.isfinite(state.memory).all()
        assert fine.sum() == 4
