"""The algorithms for several objectives: NSGA-II, sharing MOEA and NPGA; and the operators that only they use."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support.cases import params, product

import galapax as gx
from galapax.algorithms.npga import NPGA
from galapax.algorithms.nsga2 import NSGA2
from galapax.algorithms.sharing_moea import SharingMOEA, survivors
from galapax.core.algorithm import Budget
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape
from galapax.metrics.indicators import hypervolume_2d
from galapax.numerics import devices, random
from galapax.objective.traced import trace
from galapax.operators.ranking import first_front
from galapax.operators.selection import domination_tournament, find_duplicates
from galapax.operators.variation import (
    adapt_difference_share,
    arithmetic_crossover,
    polynomial_mutation,
    simulated_binary_crossover,
)

SIGNIFICANCE = 1e-4
MOEAS = pytest.mark.parametrize("kind", [NSGA2, SharingMOEA, NPGA])
ELITISTS = pytest.mark.parametrize("kind", [NSGA2, SharingMOEA])
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


def key(seed=3):
    return random.run_keys(seed, 0, 1)[0]


@cache
def stepper(problem, dtype):
    traced = trace(problem, jnp.dtype(dtype))
    bounds = problem.bounds.round_inwards(np.dtype(dtype))

    @jax.jit
    def run(algorithm, key, generations):
        algorithm = algorithm.bind(problem.dim, traced.shape, Budget())

        def body(i, state):
            return algorithm.step(random.fold_in(key, i), state, traced(state.candidates))

        state = algorithm.init(random.fold_in(key, 0), bounds, traced.shape)
        return jax.lax.fori_loop(1, generations + 1, body, state)

    return run


def evolve(algorithm, problem, generations, seed=0, dtype="float32"):
    with jax.enable_x64(dtype == "float64"):
        return jax.tree.map(np.asarray, stepper(problem, dtype)(algorithm, key(seed), generations))


def shape_of_state(algorithm, problem):
    """What the state of a run has, which is the same in every generation: nothing is compiled."""
    return jax.eval_shape(partial(stepper(problem, "float32"), algorithm), key(0), 2)


def volume(population, problem):
    with jax.enable_x64(True):
        return float(hypervolume_2d(population.objectives.astype(np.float64), problem.reference_point))


PUBLISHED_RUN = 0.6685337361896079  # hypervolume
ZDT1 = gx.problems.get("zdt1")
BLENDING = gx.problems.get("blending")


# ---------------------------------------------------------------------------------------------------------------------
# What they find


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zdt1", "zdt2", "zdt3", "zdt6"])
def test_nsga2_reaches_the_front(name):
    problem = gx.problems.get(name)
    shares = [volume(evolve(NSGA2(), problem, 250, seed).parents, problem) / problem.hypervolume for seed in range(3)]
    assert np.median(shares) > 0.97


def test_children_made_as_those_who_survive_become_more():
    moved, learned = jnp.arange(40) < 20, jax.jit(adapt_difference_share)
    grown, shrunk, same = (
        float(learned(jnp.asarray(0.5), moved, stays)) for stays in (moved, ~moved, jnp.arange(40) % 2 == 0)
    )
    assert grown > 0.54 and shrunk < 0.46 and same == pytest.approx(0.5)
    share = jnp.asarray(0.5)
    for _ in range(200):
        share = learned(share, moved, ~moved)
    assert float(share) == pytest.approx(0.05)


def test_the_share_of_differences_is_learned_unless_it_is_given():
    learned = evolve(NSGA2(population=20), BLENDING, 30)
    assert 0.05 <= learned.share <= 0.95 and learned.share != 0.5 and 0 < learned.moved.sum() < 20
    for fixed in (NSGA2(population=20, differences=0.3), NSGA2(population=20, published=True)):
        assert shape_of_state(fixed, BLENDING).share is None
    assert shape_of_state(NSGA2(population=20), ZDT1).share is None


def test_few_children_are_made_by_differences_before_it_is_known_how_they_survive():
    first = evolve(NSGA2(population=400), BLENDING, 1)
    assert first.share < 0.15 and 10 < first.moved.sum() < 80


def test_with_three_objectives_half_of_the_children_are_made_by_differences():
    # survival says little there, and the share learned from it lost on C3-DTLZ1
    problem = gx.problems.get("c3_dtlz1")
    unasked, half, none = (evolve(NSGA2(population=20, differences=d), problem, 3) for d in (None, 0.5, 0.0))
    assert unasked.share is None and np.array_equal(unasked.candidates, half.candidates)
    assert not np.array_equal(unasked.candidates, none.candidates)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "peer"),
    [("zdt1", 0.869696), ("zdt2", 0.536384), ("zdt3", 1.327541), ("zdt4", 0.867251), ("zdt6", 0.494205)],
)
def test_nsga2_finds_as_much_as_another_implementation(name, peer):
    # medians of 20 runs of pymoo 0.6.2, population 100, 250 generations
    problem = gx.problems.get(name)
    found = [volume(evolve(NSGA2(), problem, 250, seed, "float64").parents, problem) for seed in range(20)]
    assert np.median(found) > 0.99 * peer


@pytest.mark.slow
@pytest.mark.parametrize("name", ["moea_zdt1", "moea_zdt2", "moea_zdt3", "moea_zdt6", "moea_zdt6_6pi"])
def test_the_sharing_moea_covers_the_fronts_of_its_paper(name):
    problem = gx.problems.get(name)
    algorithm = SharingMOEA(population=1024)
    found = [volume(evolve(algorithm, problem, 100, seed).parents, problem) for seed in range(20)]
    assert np.median(found) > 0.99 * problem.hypervolume


@pytest.mark.slow
def test_the_sharing_moea_reaches_the_front():
    problem = gx.problems.get("moea_zdt1")
    parents = evolve(SharingMOEA(population=256), problem, 120).parents
    assert volume(parents, problem) > 0.99 * problem.hypervolume


@pytest.mark.slow
def test_npga_moves_towards_the_front_and_stays_spread():
    problem = gx.problems.get("moea_zdt1")
    start, end = (evolve(NPGA(population=200), problem, g).parents for g in (1, 300))
    assert volume(start, problem) < 0.1 * problem.hypervolume
    assert volume(end, problem) > 0.5 * problem.hypervolume
    front = end.objectives[np.asarray(first_front(end.objectives))]
    assert np.ptp(front[:, 0]) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NSGA2, SharingMOEA])
def test_constraints_are_met_and_the_front_approached(kind):
    parents = evolve(kind(population=200), BLENDING, 200, dtype="float64").parents
    assert np.all(parents.violation == 0)
    assert volume(parents, BLENDING) > 0.3 * BLENDING.hypervolume


@pytest.mark.slow
@MOEAS
def test_three_objectives(kind):
    problem = gx.problems.get("dtlz2")
    start, end = (evolve(kind(), problem, g, dtype="float64").parents for g in (1, 150))
    far = [np.median(np.sum(p.objectives**2, axis=1)) - 1 for p in (start, end)]  # the front is the unit sphere
    assert far[1] < far[0] / 3
    assert np.all(np.ptp(end.objectives, axis=0) > 0.5)


# ---------------------------------------------------------------------------------------------------------------------
# What they promise


@pytest.mark.slow
@ELITISTS
def test_no_survivor_on_the_front_is_dominated_by_a_parent_that_went(kind):
    run, algorithm = stepper(ZDT1, "float32"), kind(population=30)
    earlier = np.full((1, 2), np.inf)
    for generation in range(1, 80):
        objectives = np.asarray(run(algorithm, key(1), generation).parents.objectives)
        front = objectives[np.asarray(jax.jit(first_front)(objectives))]
        beaten = (earlier[:, None] <= front[None]).all(axis=2) & (earlier[:, None] < front[None]).any(axis=2)
        assert not beaten.any()
        if kind is NSGA2:  # the ends of the front are never crowded
            assert np.all(objectives.min(axis=0) <= earlier.min(axis=0))
        earlier = objectives


FORMS = [
    pytest.param(kind, problem, id=f"{kind.__name__}-{problem.name}")
    for kind in (NSGA2, NPGA, SharingMOEA)
    for problem in (ZDT1, BLENDING, gx.problems.get("dtlz2"))
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "problem"), FORMS)
def test_the_forms_for_a_cpu_and_for_a_gpu_make_the_same_run(kind, problem, monkeypatch):
    algorithm = kind(population=40)
    here = evolve(algorithm, problem, 6, dtype="float64")
    monkeypatch.setattr(devices, "on_cpu", lambda: jax.default_backend() != "cpu")  # the other form
    with jax.enable_x64(True):
        there = jax.tree.map(np.asarray, stepper.__wrapped__(problem, "float64")(algorithm, key(0), 6))
    if kind is NPGA:  # its comparison sets are drawn in another order
        assert here.parents.x.shape == there.parents.x.shape and np.isfinite(there.candidates).all()
        return
    np.testing.assert_allclose(here.parents.x, there.parents.x, rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "n"),
    params(
        product([NSGA2, SharingMOEA, NPGA], [2, 3, 7, 31]),
        quick={"NPGA-7"},
    ),
)
def test_odd_and_tiny_populations_are_handled(kind, n):
    algorithm = kind(population=n)
    algorithm.validate()
    state = evolve(algorithm, ZDT1, 10)
    assert state.candidates.shape == state.parents.x.shape == (n, 30)
    assert np.isfinite(state.parents.objectives).all()
    assert np.all((state.candidates >= 0) & (state.candidates <= 1))


def failing(x):
    return jnp.where(x[0] > 0.5, jnp.nan, jnp.stack([x[0], 1 - x[0] + x[1] ** 2]))


@pytest.mark.parametrize("kind", params([NSGA2, SharingMOEA], quick={"NSGA2"}))
def test_what_failed_does_not_survive_what_did_not(kind):
    problem = gx.Problem(failing, gx.box(0.0, 1.0, 3))
    parents = evolve(kind(population=40), problem, 15).parents
    assert np.isfinite(parents.objectives).all() and parents.x[:, 0].max() <= 0.5


@pytest.mark.slow
@MOEAS
def test_all_failing_is_survived(kind):
    problem = gx.Problem(lambda x: jnp.stack([x[0], x[1]]) * jnp.nan, gx.box(0.0, 1.0, 3))
    state = evolve(kind(population=10), problem, 5)
    assert np.all((state.candidates >= 0) & (state.candidates <= 1))
    assert np.isinf(state.parents.objectives).all()


def stretched(x):
    objectives = ZDT1.fun(x)
    return jnp.stack([objectives[0] * 2.0**20, objectives[1] * 2.0**-12])


@pytest.mark.slow
@MOEAS
def test_units_of_the_objectives_do_not_matter(kind):
    other = gx.Problem(stretched, ZDT1.bounds)
    one, two = (evolve(kind(population=50), problem, 8) for problem in (ZDT1, other))
    assert np.array_equal(one.parents.x, two.parents.x)


def test_nsga2_keeps_the_first_fronts_and_cuts_the_last_by_crowding():
    # eight points on one front and a worse one for each: of 16, eight stay, and all are of the first front
    t = jnp.linspace(0.0, 1.0, 8)
    good = jnp.stack([t, 1 - t], axis=1)
    bounds = Bounds(np.zeros(2, np.float32), np.ones(2, np.float32))
    algorithm = NSGA2(population=8).bind(2, Shape(2), Budget())
    state = jax.jit(partial(algorithm.init, shape=Shape(2)))(key(), bounds)
    step = jax.jit(algorithm.step)
    state = state._replace(parents=Population(1 - state.candidates, good, None))
    evaluation = CandidateEvaluation(good + 0.5, None, jnp.zeros(8, bool))
    after = step(key(), state, evaluation)
    assert sorted(map(tuple, np.asarray(after.parents.objectives))) == sorted(map(tuple, np.asarray(good)))
    # offspring between the last two: the crowded end loses, the ends stay
    dense = jnp.stack([0.9 + 0.005 * t, 0.1 - 0.005 * t], axis=1)
    after = step(key(), state, evaluation._replace(objectives=dense))
    kept = np.asarray(after.parents.objectives)
    assert {0.0, 1.0} <= set(kept[:, 0].tolist()) and np.sum((kept[:, 0] >= 0.9) & (kept[:, 0] < 0.95)) <= 2


def repeated_in_numpy(x, counted):
    seen, out = set(), []
    for row, known in zip(x.tolist(), counted, strict=True):
        out.append(bool(known) and tuple(row) in seen)
        if known:
            seen.add(tuple(row))
    return np.array(out)


@pytest.mark.parametrize("on_cpu", [True, False])
@DTYPES
def test_rows_that_repeat_an_earlier_one_are_found(dtype, on_cpu, monkeypatch):
    monkeypatch.setattr(devices, "on_cpu", lambda: on_cpu)
    draw = np.random.default_rng(4)
    x = draw.choice([0.0, -0.0, 0.1, 0.3, 1e-30], (300, 3)).astype(dtype)
    counted = draw.random(300) < 0.8
    with jax.enable_x64(dtype == "float64"):
        found = np.asarray(jax.jit(lambda x, counted: find_duplicates(x, counted))(x, counted))
    assert np.array_equal(found, repeated_in_numpy(x, counted)) and 50 < found.sum() < 240


@pytest.mark.slow
def test_copies_lose_unless_the_published_form_is_asked_for():
    # two variables, of which crossover often moves neither; TNK of Tanaka et al. (1995)
    def ineq(x):
        wave = 0.1 * jnp.cos(16 * jnp.arctan(x[0] / x[1]))
        return jnp.stack([1 + wave - jnp.sum(x**2), 2 * jnp.sum((x - 0.5) ** 2) - 1])

    problem = gx.Problem(lambda x: x, [(0, np.pi), (1e-30, np.pi)], ineq=ineq)
    ours, paper = (
        evolve(NSGA2(population=100, published=p), problem, 100, dtype="float64").parents.x for p in (False, True)
    )
    assert len(np.unique(ours, axis=0)) == 100 > len(np.unique(paper, axis=0))


def test_who_dominates_wins_a_tournament_then_who_is_less_crowded():
    # 0 dominates 1; 2 and 3 stand apart, of which 3 is less crowded
    objectives = jnp.array([[0.0, 1.0], [0.5, 1.5], [1.0, 0.0], [-1.0, 3.0]])
    everyone = Population(jnp.zeros((4, 1)), objectives, None)
    spread = jnp.array([1.0, 9.0, 2.0, 3.0])
    pick = jax.jit(jax.vmap(lambda k: domination_tournament(k, everyone, spread, 4)))
    chosen = np.asarray(pick(random.run_keys(0, 0, 6000)))
    # each meets each of the others in a third of the pairs, and everybody is in two of the four tournaments
    beaten_by = {0: [2, 3], 1: [0], 2: [1, 3], 3: [1]}
    share = np.bincount(chosen.ravel(), minlength=4) / len(chosen)
    expected = [2 * (3 - len(beaten_by[row])) / 3 for row in range(4)]
    np.testing.assert_allclose(share, expected, atol=0.04)


@pytest.mark.slow
def test_the_published_form_makes_the_run_it_always_made():
    # of this library before copies lost: what `galapax reproduce moea` prints must not change
    found = gx.minimize(gx.problems.get("moea_zdt1"), NSGA2(population=64, published=True), generations=30,
                        compute=gx.Compute(dtype="float64"), polish=False)  # fmt: skip
    assert found.hypervolume == pytest.approx(PUBLISHED_RUN, rel=1e-9)


def test_survivors_are_those_with_fewest_dominators_then_drawn_by_niche():
    dominators = jnp.array([0, 0, 0, 5, 2], jnp.int32)
    niche = jnp.array([1.0, 2.0, 4.0, 1.0, 1.0])
    keys = random.run_keys(0, 0, 20_000)
    rows = np.asarray(jax.jit(jax.vmap(lambda k: survivors(k, dominators, niche, 4)))(keys))
    assert np.all(np.sort(rows, axis=1) == [0, 1, 2, 4])
    first = np.asarray(jax.jit(jax.vmap(lambda k: survivors(k, dominators, niche, 1)))(keys))[:, 0]
    chance = len(keys) * np.array([4, 2, 1]) / 7
    assert stats.chisquare(np.bincount(first, minlength=3), chance).pvalue > SIGNIFICANCE


def test_pareto_tournaments_choose_the_non_dominated_then_the_lonely():
    # row 0 dominates all; the rest are equal but for row 9, which stands apart
    objectives = np.ones((10, 2), np.float32)
    objectives[0], objectives[9] = 0.0, (0.5, 3.0)
    everyone = Population(jnp.zeros((10, 1)), jnp.asarray(objectives), None)
    algorithm = NPGA(population=10, comparison=1.0, portions=10)
    pick = jax.jit(jax.vmap(lambda k: algorithm.tournaments(k, everyone)))
    chosen = np.asarray(pick(random.run_keys(0, 0, 4000)))
    share = np.bincount(chosen.ravel(), minlength=10) / chosen.size
    assert chosen.shape == (4000, 10)
    # it wins each of the 19 in 100 pairs it is in, but for comparison sets without it, and equal crowds
    assert 0.15 < share[0] < 0.19 + 0.01
    assert share[9] > 1.2 * share[1:9].mean()


@pytest.mark.slow
def test_niches_are_counted_among_those_chosen_so_far():
    # two equally good clusters, one of nine tenths: choices in one go follow the drawing, in portions the niches
    spot = np.where(np.arange(100)[:, None] < 90, [[0.0, 1.0]], [[1.0, 0.0]]).astype(np.float32)
    everyone = Population(jnp.zeros((100, 1)), jnp.asarray(spot), None)

    def share_of_small(portions):
        algorithm = NPGA(population=100, portions=portions)
        pick = jax.jit(jax.vmap(lambda k: algorithm.tournaments(k, everyone)))
        return np.mean(np.asarray(pick(random.run_keys(0, 0, 100))) >= 90)

    assert abs(share_of_small(1) - 0.1) < 0.02
    assert share_of_small(100) > 0.17  # of pairs, 18 in 100 are mixed and 1 is of two from the small one


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (NSGA2(population=1), "population must be at least 2"),
        (NSGA2(crossover_rate=1.5), "crossover_rate must lie between 0 and 1"),
        (NSGA2(mutation_rate=-0.1), "mutation_rate must lie between 0 and 1"),
        (NSGA2(differences=1.5), "differences must lie between 0 and 1"),
        (NSGA2(crossover_index=-1.0), "crossover_index must lie between"),
        (SharingMOEA(radius=0.0), "radius must be greater than 0"),
        (NPGA(comparison=0.0), "comparison must be greater than 0"),
        (NPGA(portions=0), "portions must be at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(algorithm, message):
    with pytest.raises(gx.InputError, match=message):
        algorithm.validate()


# ---------------------------------------------------------------------------------------------------------------------
# Operators

BOX = Bounds(np.array([2.0]), np.array([5.0]))


def in_box(dtype):
    return Bounds(BOX.lower.astype(dtype), BOX.upper.astype(dtype))


def sbx(p, q, index, dtype, n=100_000, rate=1.0):
    """Genes of both children of parents p and q, (n,) each."""
    with jax.enable_x64(dtype == "float64"):
        a, b = (np.full((n, 1), v, dtype) for v in (p, q))
        first, second = jax.jit(simulated_binary_crossover)(key(), a, b, in_box(dtype), index, rate)
        assert first.dtype == second.dtype == dtype
        return np.asarray(first)[:, 0].astype(np.float64), np.asarray(second)[:, 0].astype(np.float64)


def spread_cdf(beta, index, most):
    """Of the spread factor beta up to `most`: polynomial on either side of 1, with half the weight on each uncut."""

    def uncut(b):
        return np.where(b <= 1, 0.5 * b ** (index + 1), 1 - 0.5 / np.maximum(b, 1) ** (index + 1))

    return uncut(np.asarray(beta, float)) / uncut(np.asarray(most, float))


@DTYPES
@pytest.mark.parametrize("index", [2.0, 20.0])
@pytest.mark.parametrize(("p", "q"), [(3.0, 4.0), (2.05, 4.5), (2.0, 5.0), (4.8, 4.9)])
def test_children_of_sbx_spread_as_the_density_says(p, q, index, dtype):
    first, second = sbx(p, q, index, dtype)
    crossed = (first != np.dtype(dtype).type(p)) | (second != np.dtype(dtype).type(q))
    low, high = np.minimum(first, second)[crossed], np.maximum(first, second)[crossed]
    for beta, most in (((p + q - 2 * low) / (q - p), 1 + 2 * (p - 2) / (q - p)),
                       ((2 * high - p - q) / (q - p), 1 + 2 * (5 - q) / (q - p))):  # fmt: skip
        assert beta.max() <= most + 1e-5
        assert stats.kstest(beta, lambda b, most=most: spread_cdf(b, index, most)).pvalue > SIGNIFICANCE
    assert stats.binomtest(int(crossed.sum()), len(first), 0.5).pvalue > SIGNIFICANCE
    swapped = int(np.sum(first[crossed] > second[crossed]))
    assert stats.binomtest(swapped, int(crossed.sum()), 0.5).pvalue > SIGNIFICANCE


def test_pairs_are_crossed_at_their_rate_and_equal_genes_stay():
    n, d, rate = 20_000, 12, 0.7
    bounds = Bounds(np.zeros(d, np.float32), np.ones(d, np.float32))
    a, b = np.full((n, d), 0.4, np.float32), np.full((n, d), 0.6, np.float32)
    b[:, 0] = 0.4
    first, second = (np.asarray(c) for c in jax.jit(simulated_binary_crossover)(key(), a, b, bounds, 20.0, rate))
    assert np.all(first[:, 0] == np.float32(0.4)) and np.all(second[:, 0] == np.float32(0.4))
    changed = np.any((first != a) | (second != b), axis=1)
    assert stats.binomtest(int(changed.sum()), n, rate * (1 - 0.5**11)).pvalue > SIGNIFICANCE
    one, two = (np.asarray(c) for c in jax.jit(simulated_binary_crossover)(key(), a, b, bounds, 20.0, 0.0))
    assert np.array_equal(one, a) and np.array_equal(two, b)


@DTYPES
@pytest.mark.parametrize("index", [1.0, 20.0])
@pytest.mark.parametrize("x", [3.1, 2.0, 5.0, 2.02, 4.99])
def test_polynomial_mutations_move_as_the_density_says(x, index, dtype):
    n = 100_000
    with jax.enable_x64(dtype == "float64"):
        given = np.full((n, 1), x, dtype)
        moved = np.asarray(jax.jit(polynomial_mutation)(key(), given, in_box(dtype), index, 1.0))
    assert moved.dtype == dtype and moved.min() >= 2 and moved.max() <= 5
    exact = float(given[0, 0])
    move = (moved[:, 0].astype(np.float64) - exact) / 3
    for side, room in ((-move[move < 0], (exact - 2) / 3), (move[move > 0], (5 - exact) / 3)):
        if room <= 0:
            assert len(side) == 0
            continue
        whole = 1 - (1 - room) ** (index + 1)
        # steps near the last digit of x are rounded, so those that round to none are left out: a few in a thousand
        assert abs(len(side) / n - 0.5) < 0.01
        assert stats.kstest(side, lambda t, whole=whole: (1 - (1 - t) ** (index + 1)) / whole).statistic < 0.01


def test_mutations_near_a_wall_still_move_towards_it_in_float32():
    bounds = Bounds(np.zeros(1, np.float32), np.ones(1, np.float32))
    moved = np.asarray(jax.jit(polynomial_mutation)(key(), np.full((1000, 1), 1e-12, np.float32), bounds, 20.0, 1.0))
    down = moved[moved < np.float32(1e-12)]
    assert 400 < len(down) < 600 and len(np.unique(down)) > 390 and down.min() >= 0


def test_genes_mutate_at_their_rate():
    n, d, rate = 4000, 30, 1 / 30
    bounds = Bounds(np.zeros(d, np.float32), np.ones(d, np.float32))
    x = np.full((n, d), 0.5, np.float32)
    changed = np.asarray(jax.jit(polynomial_mutation)(key(), x, bounds, 20.0, rate)) != x
    assert stats.binomtest(int(changed.sum()), n * d, rate).pvalue > SIGNIFICANCE
    assert np.array_equal(jax.jit(polynomial_mutation)(key(), x, bounds, 20.0, 0.0), x)


@pytest.mark.parametrize("dtype", params(["float32", "float64"], slow={"float64"}))
def test_arithmetic_children_lie_evenly_along_the_line_through_their_parents(dtype):
    n = 100_000
    with jax.enable_x64(dtype == "float64"):
        a, b = np.full((n, 2), 3.0, dtype), np.full((n, 2), 1.0, dtype)
        child = np.asarray(jax.jit(arithmetic_crossover)(key(), a, b))
    assert child.dtype == dtype
    alpha = (child.astype(np.float64) - 1) / 2
    for column in alpha.T:
        assert stats.kstest(column, stats.uniform(-0.5, 2).cdf).pvalue > SIGNIFICANCE
    assert abs(np.corrcoef(alpha.T)[0, 1]) * np.sqrt(n) < stats.norm.isf(SIGNIFICANCE / 2)  # each gene has its own
