"""Runs that restart: which search follows, what a run of several searches adds up to, and when it is over."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.algorithms import portfolio
from galapax.algorithms.portfolio import MAX_SEPARABLE_SEARCHES, Portfolio
from galapax.algorithms.separable import SeparabilityTest, SeparableSearch
from galapax.core.errors import InputError
from galapax.core.restarts import (
    BIPOP,
    IPOP,
    IndependentRestarts,
    NextSearch,
    SearchSummary,
    estimate_confidence,
    find_agreeing_searches,
    search_with_doubled_population,
    summarize_search,
    value_resolution,
)
from galapax.core.stop import Stop
from galapax.execution import schedules
from galapax.fused import backend as kernel_backend
from galapax.fused import cpu_kernel
from galapax.numerics import compile_cache, devices

BOX = [(-5.0, 5.0)] * 3


def past(kind="first", spent=100, best=1.0, x=0.5, stop=Stop.TOLERANCE, population=10):
    return SearchSummary(kind, population, spent, best, 0.0, np.full(2, x), stop)


def test_ipop_doubles_the_population():
    own = gx.CMAES()
    legs = [IPOP().next(own, [past()] * made, math.inf, lambda: 0.5) for made in range(1, 5)]
    assert [leg.algorithm.samples for leg in legs] == [20, 40, 80, 160]
    assert [leg.algorithm.population for leg in legs] == [40, 40, 160, 160]  # few programs serve them


def test_bipop_gives_the_turn_to_the_regime_that_spent_less():
    own = gx.CMAES()
    first = BIPOP().next(own, [], math.inf, lambda: 0.5)
    assert first.algorithm is own
    doubled = BIPOP().next(own, [past()], math.inf, lambda: 0.5)
    assert doubled.kind == "large" and doubled.algorithm.samples == 20
    small = BIPOP().next(own, [past(), large(1, 500, 1.0)], math.inf, lambda: 0.99)
    assert small.kind == "small" and small.evaluations == 250
    assert small.algorithm.sigma0 < 0.03
    after = BIPOP().next(own, [past(), large(1, 500, 1.0), past("small", 500)], math.inf, lambda: 0.5)
    assert after.kind == "large" and after.algorithm.samples == 40
    grown = [past(), *(large(k, 900, 1.0) for k in range(1, 6))]
    sizes = {BIPOP().next(own, grown, math.inf, lambda d=d: d).algorithm.samples for d in np.linspace(0, 0.99, 50)}
    assert sizes == {10, 20, 40, 80, 160}  # from the first to half of the largest


def large(doublings, spent, best, stop=Stop.TOLERANCE):
    return past("large", spent, best, x=best, stop=stop)._replace(doublings=doublings)


def test_the_portfolio_repeats_the_first_search_while_all_agree():
    here = past(best=1.0, spent=3000)
    search = Portfolio().next(gx.CMAES(), [here], 20_000.0, lambda: 0.5)
    assert search.kind == "repeat" and search.evaluations == 6000 and search.algorithm.sigma0 < 0.02
    assert Portfolio().next(gx.CMAES(), [here, here], 20_000.0, lambda: 0.5).kind == "repeat"


def test_the_portfolio_gives_differential_evolution_its_turn_where_the_objective_is_a_sum():
    own, draw, left = gx.CMAES(), lambda: 0.5, 90_000.0
    here, there = past(best=1.0, x=0.1, spent=5000), past("repeat", best=2.0, x=0.9, spent=5000)
    test = Portfolio().next(own, [here, there], left, draw)
    assert test.kind == "probe" and isinstance(test.algorithm, SeparabilityTest)
    tested = [here, there, past("probe", 4, best=9.0)]
    lines = Portfolio().next(own, tested, left, draw)
    assert isinstance(lines.algorithm, SeparableSearch)
    ends = [past("separable", 500, best=float(k), x=k / 10) for k in range(1, 1 + MAX_SEPARABLE_SEARCHES)]
    assert Portfolio().next(own, [*tested, ends[0]], left, draw).kind == "separable"  # is it found again?
    separable = [*tested, *ends]
    search = Portfolio().next(own, separable, left, draw)
    assert isinstance(search.algorithm, gx.LSHADE) and search.evaluations == pytest.approx(25_000, rel=0.03)
    no_sum = [*tested, past("separable", 500, best=0.5, stop=Stop.STALL)]  # at other points than those of the test
    assert Portfolio().next(own, no_sum, left, draw).kind == "multistart"
    best = [*separable, past("evolution", 25_000, 0.5, 0.7)]
    assert Portfolio().next(own, best, 65_000.0, draw).kind == "evolution"  # verified by another one
    done = [*separable, past("evolution", 25_000, 3.0, 0.7)]
    assert Portfolio().next(own, done, 65_000.0, draw).kind in ("large", "small")
    assert Portfolio().next(own, separable, 1000.0, draw).kind != "evolution"  # too little is left for it


def test_populations_grow_as_long_as_the_last_one_ends_below_all_others():
    own, draw, left = gx.CMAES(), lambda: 0.5, 90_000.0
    searches = [past(best=3.0, x=0.1, spent=4000), past("repeat", best=9.0, x=0.9, spent=4000)]
    searches += [past(kind, 4, best=99.0, stop=Stop.STALL) for kind in ("probe", "multistart")]
    doubled = Portfolio().next(own, searches, left, draw)
    assert doubled.doublings == 1 and doubled.algorithm.samples == 20
    gained, lost = large(1, 6000, 1.0), large(1, 6000, 5.0)
    larger = Portfolio().next(own, [*searches, gained], left, draw)
    assert larger.kind == "large" and larger.doublings == 4  # 4000 x 2 ** (0.75 x 4) is 0.36 of what is left
    assert Portfolio().next(own, [*searches, lost], left, draw).kind == "evolution"
    confirmed = [*searches, large(1, 6000, 1.0), large(2, 9000, 1.0)]
    assert Portfolio().next(own, confirmed, left, draw).doublings == 1  # the cheapest that finds it
    last_shot = [*searches, large(1, 6000, 2.0), large(4, 30_000, 1.0)]
    assert Portfolio().next(own, last_shot, 35_000.0, draw).doublings == 4  # a larger one would not fit
    cut_short = gained._replace(stop=Stop.BUDGET)
    assert Portfolio().next(own, [*searches, cut_short], left, draw).kind == "evolution"
    assert Portfolio().next(own, [*searches, gained], math.inf, draw).doublings == 2  # nothing to fill


def test_descents_from_many_places_go_on_while_they_find_the_same_minima():
    own, draw, left = gx.CMAES(), lambda: 0.5, 90_000.0
    searches = [past(best=3.0, x=0.1, spent=4000), past("repeat", best=2.0, x=0.9, spent=4000)]
    searches.append(past("probe", 4, best=99.0, stop=Stop.STALL))
    descents = Portfolio().next(own, searches, left, draw)
    assert descents.kind == "multistart" and descents.evaluations == pytest.approx(9800, rel=0.01)
    better, worse = past("multistart", 5000, 1.0, 0.3), past("multistart", 5000, 9.0, 0.3)
    refinement = Portfolio().next(own, [*searches, better], left, draw)
    assert refinement.kind == "refinement" and refinement.start.tolist() == [0.3, 0.3]
    assert Portfolio().next(own, [*searches, worse], left, draw).kind == "multistart"
    all_different = worse._replace(stop=Stop.STALL)
    assert Portfolio().next(own, [*searches, all_different], left, draw).kind == "large"
    assert Portfolio().next(own, [*searches, worse, all_different], left, draw).kind == "multistart"
    assert Portfolio().next(own, [*searches, worse, *[all_different] * 2], left, draw).kind == "large"
    assert Portfolio().next(own, [*searches, *[worse] * 8], left, draw).kind == "large"
    assert Portfolio().next(own, searches, 500.0, draw).kind != "multistart"


def test_an_evolution_that_its_limit_has_ended_is_refined():
    own, draw = gx.CMAES(), lambda: 0.5
    searches = [past(best=3.0, x=0.1, spent=4000), past("repeat", best=2.0, x=0.9, spent=4000)]
    searches += [past(kind, 4, best=99.0, stop=Stop.STALL) for kind in ("probe", "multistart")]
    searches += [large(1, 6000, 5.0), past("evolution", 20_000, 1e-3, 0.4, stop=Stop.BUDGET)]
    refinement = Portfolio().next(own, searches, 60_000.0, draw)
    assert refinement.kind == "refinement" and refinement.start.tolist() == [0.4, 0.4]


@pytest.mark.parametrize("dim", [2, 5, 16])
def test_the_separability_test_tells_sums_over_the_variables_from_others(dim):
    test = SeparabilityTest(population=2 + 2 * math.ceil(math.log2(dim)))

    def stop_of(function):
        box = [(-2.0, 3.0)] * dim
        return gx.minimize(function, box, test, restarts=None, polish=False, generations=1, seed=3).stop

    assert stop_of(lambda x: jnp.sum(jnp.cos(9 * x) + x**2)) is Stop.TOLERANCE
    assert stop_of(lambda x: jnp.sum(jnp.cos(9 * x)) + 1e-6 * x[0] * x[-1]) is not Stop.TOLERANCE
    assert stop_of(lambda x: jnp.sum(x) ** 2) is not Stop.TOLERANCE


def sum_agreeing(searches):
    return sum(find_agreeing_searches(searches))


def end_search(value, mean, scale=1.0, constant=0.0, x=0.5):
    """A converged search with values scaled and shifted."""
    best = scale * value + constant
    resolution = value_resolution(best, scale * mean + constant, np.finfo(float).eps)
    return past(best=best, x=x)._replace(resolution=resolution)


def test_found_counts_searches_that_converged_to_the_best():
    assert sum_agreeing([past(best=1.0)]) == 1
    ends = [end_search(1.0, 1.0), end_search(1.0 + 1e-14, 1.0 + 1e-14, x=0.9), end_search(2.0, 2.0, x=0.1)]
    assert sum_agreeing(ends) == 2  # as good, elsewhere
    at_zero = [past(best=1e-20), past(best=3e-21), past(best=1e-21, stop=Stop.STALL)]
    assert sum_agreeing(at_zero) == 3  # the same place


@pytest.mark.parametrize(("scale", "constant"), [(1.0, 0.0), (1e-6, 0.0), (1e9, 0.0), (1.0, 1.0), (1.0, -300.0)])
def test_a_constant_or_a_factor_does_not_change_which_searches_agree(scale, constant):
    ends = [(2e-13, 5e-13, 0.2), (1e-14, 6e-14, 0.8), (3e-3, 3e-3 + 1e-13, 0.4)]
    searches = [end_search(value, mean, scale, constant, x) for value, mean, x in ends]
    assert sum_agreeing(searches) == 2


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_several_minima_of_value_zero_end_a_run(constant):
    def himmelblau(x):
        return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2 + constant

    result = gx.minimize(himmelblau, BOX[:2], polish=False)
    assert result.success and result.stop is Stop.TOLERANCE and result.nfev < 5000


def test_confidence_is_the_chance_that_nothing_was_missed():
    here, elsewhere = past("repeat", best=1.0, x=0.1), past("repeat", best=2.0, x=0.9)
    assert estimate_confidence([]) == 0 and estimate_confidence([here]) == 0.5
    assert estimate_confidence([here] * 3) == pytest.approx(1 - 1 / 20)
    assert estimate_confidence([here] * 2 + [elsewhere] * 8) == pytest.approx(1 - 45 / 190)
    # kinds of search are evidence of their own; one that its limit cut short says nothing
    evolution, grown = here._replace(kind="evolution"), here._replace(kind="large")
    assert estimate_confidence([evolution, grown, elsewhere]) == pytest.approx(1 - 1 / 4)
    too_small, same = elsewhere._replace(kind="large", doublings=1), here._replace(kind="large", doublings=3)
    assert estimate_confidence([too_small, same, same]) == estimate_confidence([grown, grown])
    cut_short = elsewhere._replace(kind="small", stop=Stop.BUDGET)
    assert estimate_confidence([here, here, cut_short]) == estimate_confidence([here, here])
    # a refinement is no evidence of its own
    assert estimate_confidence([here, here, here._replace(kind="refinement")]) == estimate_confidence([here, here])
    # descents end near the best minimum
    near = past("multistart", best=1.001, x=0.105)
    assert estimate_confidence([here, elsewhere, near]) == pytest.approx(1 - 1 / 2 / 2)
    far_away = past("repeat", best=1e6, x=0.5)  # it does not make the others the same
    higher = near._replace(best=1.1)
    assert estimate_confidence([here, elsewhere, far_away, higher]) == estimate_confidence([here, elsewhere, far_away])
    all_different = near._replace(stop=Stop.STALL)
    assert estimate_confidence([here, elsewhere, all_different]) == estimate_confidence([here, elsewhere])
    # by simulation: a better minimum, as easy to find as the best one, is missed by n searches
    rng, n, k = np.random.default_rng(1), 6, 3
    shares = rng.beta(k, n - k + 1, 100_000)
    missed = float(np.mean((1 - shares) ** n))
    assert 1 - estimate_confidence([here] * k + [elsewhere] * (n - k)) == pytest.approx(missed, abs=0.003)


def test_confidence_of_descents_counts_the_minima_that_they_found():
    def descents(*ends):
        return [past("descent", 50, best, x) for best, x in ends]

    assert estimate_confidence(descents((1.0, 0.1))) == 0
    assert estimate_confidence(descents(*[(1.0, 0.1)] * 5)) == pytest.approx(0.95)
    two = [(1.0, 0.1)] * 5 + [(2.0, 0.9)]  # a minimum not seen yet is the best of three with a chance of one third
    assert estimate_confidence(descents(*two)) == pytest.approx(1 - 2 / 30)
    equal = [(1.0, 0.1)] * 3 + [(1.0, 0.9)] * 3  # two minima, though of one value
    assert estimate_confidence(descents(*equal)) == pytest.approx(1 - 2 / 30)
    continuum = [(1.0, x) for x in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert estimate_confidence(descents(*continuum)) == pytest.approx(0.95)
    on_a_plateau = [end._replace(stop=Stop.BUDGET) for end in descents(*continuum)]
    assert sum_agreeing(on_a_plateau) == 1 and estimate_confidence(on_a_plateau) == 0
    stuck = [*descents(*[(1.0, 0.1)] * 5), past("descent", 50, 2.0, 0.9, stop=Stop.BUDGET)]
    assert estimate_confidence(stuck) == pytest.approx(0.95)
    # by simulation: the posterior that this rests on, of minima with uniformly distributed shares of the box
    rng, n, w, better = np.random.default_rng(2), 6, 2, []
    while len(better) < 2000:
        shares = rng.dirichlet(np.ones(rng.integers(1, 40)))
        seen = set(rng.choice(len(shares), n, p=shares).tolist())
        if len(seen) == w:
            unseen = 1 - shares[list(seen)].sum()
            better.append(unseen / (w + 1))
    assert np.mean(better) == pytest.approx(w / (n * (n - 1)), abs=0.01)


def test_a_search_ends_when_its_population_is_that_of_the_known_point():
    result = gx.minimize(bowl, BOX, polish=False, seed=4)
    assert result.success and result.confidence == pytest.approx(0.95)
    whole = gx.minimize(bowl, BOX, polish=False, seed=4, restarts="plain")
    assert result.fun <= 1e-15 and result.nfev < 0.8 * whole.nfev


@pytest.mark.parametrize(("dtype", "agree"), [("float32", [True, True, False]), ("float64", [False, True, False])])
def test_ends_are_the_same_point_to_the_precision_of_the_run(dtype, agree):
    """A search in float32 leaves errors of x that no rounding of the value explains."""
    ends, eps = [], float(np.finfo(dtype).eps)
    for best, x in ((2e-4, 0.5 + 2e-6), (3e-5, 0.5), (4.0, 0.7)):
        search = NextSearch(gx.CMAES(), "repeat")
        mean = best + 1e-6
        ends.append(summarize_search(ends, search, 10, 1000, np.full(5, x), best, 0, mean, Stop.TOLERANCE, eps))
    assert find_agreeing_searches(ends) == agree


def test_what_descents_from_many_places_span_says_nothing_about_values():
    """Their last points belong to several descents: searches that ended elsewhere do not agree."""
    worse = [past(best=-700.0, x=0.2), past("repeat", best=-600.0, x=0.8)]
    search = NextSearch(gx.CMAES(), "multistart")
    end = summarize_search(worse, search, 80, 1000, np.full(2, 0.5), -930.0, 0, -200.0, Stop.TOLERANCE, 2e-16)
    assert find_agreeing_searches([*worse, end]) == [False, False, True]


def test_a_large_population_goes_on_where_no_point_is_known():
    """The known point is then NaN, which XLA's maximum over many rows drops on a CPU."""

    def steps(x):
        return jnp.floor(jnp.sum(jnp.abs(x)) / 2)

    @dataclass(frozen=True)
    class Once(Portfolio):
        def next(self, algorithm, past, evaluations_left, draw):
            return Stop.STALL if past else NextSearch(gx.CMAES(population=4096), "large")

    result = gx.minimize(steps, [(-10.0, 10.0)] * 2, restarts=Once(), polish=False, max_evaluations=50_000)
    assert result.nit > 1


def test_a_policy_chooses_where_a_search_starts():
    """minimize and the Optimizer ask for the same points, the second time around the corner."""

    @dataclass(frozen=True)
    class InCorner(IndependentRestarts):
        def next(self, algorithm, past, evaluations_left, draw):
            return NextSearch(algorithm, "again", start=np.full(2, 0.9) if past else None)

    seen, asked, own = [], [], gx.CMAES(sigma0=1e-3)
    options = {"restarts": InCorner(), "seed": 4, "max_evaluations": 700}

    def count(x):
        seen.append(np.array(x))
        return float(np.sum((x - 0.7) ** 2))

    gx.minimize(count, BOX[:2], own, blackbox=True, target=-1.0, **options)
    optimizer = gx.Optimizer(BOX[:2], own, **options)
    while optimizer.nfev < 690:
        asked.append(optimizer.ask_generation())
        optimizer.tell(asked[-1], np.sum((asked[-1] - 0.7) ** 2, axis=1))
    asked = np.concatenate(asked)
    np.testing.assert_allclose(asked, np.stack(seen[: len(asked)]), rtol=0, atol=1e-9)
    in_corner = np.abs(asked - 4.0).max(axis=1) < 0.05  # 0.9 of the box
    assert not in_corner[:50].any() and in_corner[100:].sum() >= 6


def test_a_penalty_does_not_make_the_values_of_minima_the_same():
    minima = [past("repeat", best=best, x=x) for best, x in ((1.0, 0.1), (2.0, 0.4), (3.0, 0.7))]
    on_the_penalty = past("repeat", best=1e20, x=0.9, stop=Stop.STALL)._replace(resolution=1e6)
    assert sum_agreeing([*minima, on_the_penalty]) == 1


def test_lines_that_refuted_the_sum_are_no_evidence():
    here = past("repeat", best=1.0)
    refuted = past("separable", best=1.0, stop=Stop.STALL)
    assert estimate_confidence([here, here, refuted]) == estimate_confidence([here, here])


@pytest.mark.parametrize("seed", range(4))
def test_plateaus_are_not_taken_for_minima(seed):
    """Descents have no slope there, and did not look for a better value."""

    def bowl_in_a_plain(x):
        return jnp.where(x[0] > 0, 1.0, 0.0) + jnp.minimum(0.0, 4 * jnp.sum((x - jnp.array([-2.0, 1.0])) ** 2) - 9.0)

    result = gx.minimize(bowl_in_a_plain, [(-10.0, 10.0)] * 2, seed=seed, max_evaluations=20_000)
    assert result.success and result.fun == pytest.approx(-9.0)


@pytest.mark.parametrize("dim", [2, 7])
@pytest.mark.parametrize("constant", [0.0, 300.0])
def test_sums_of_rugged_functions_are_solved_line_by_line(dim, constant):
    shift = np.linspace(-1.3, 2.1, dim)

    def rugged(x):
        z = x - shift
        return jnp.sum(jnp.abs(z) + 0.3 * z**2 + 2 - 2 * jnp.cos(5 * z)) + constant

    result = gx.minimize(rugged, [(-10.0, 9.0)] * dim, SeparableSearch(), restarts=None, polish=False, runs=20)
    assert result.runs.success.mean() >= 0.9
    np.testing.assert_allclose(result.runs.fun[result.runs.success].min(), constant, atol=1e-9)
    assert np.median(result.runs.fun) <= constant + 1e-9 and np.median(result.runs.nfev) < 600 * dim


def test_the_search_along_lines_knows_that_its_objective_is_no_sum():
    result = gx.minimize(valley, [(-5.0, 10.0)] * 3, SeparableSearch(), restarts=None, polish=False, generations=50)
    assert not result.success and result.nfev < 200


def test_minima_at_the_bounds_are_found_along_lines():
    box = [(-1.0, 2.0), (0.0, 5.0)]
    result = gx.minimize(lambda x: x[0] - 3 * x[1], box, SeparableSearch(), restarts=None, polish=False)
    assert result.success and result.x.tolist() == [-1.0, 5.0]


def rastrigin(x):
    return jnp.sum((x - 0.7) ** 2 - 10 * jnp.cos(2 * jnp.pi * (x - 0.7)) + 10)


def dimpled(x):
    return jnp.sum((x - 0.7) ** 2 - 3 * jnp.cos(2 * jnp.pi * (x - 0.7)) + 3)


def bowl(x):
    return jnp.sum((x - 0.7) ** 2)


def test_descents_into_different_minima_do_not_agree():
    def coupled(x):  # no sum over the variables
        return rastrigin(x) + 0.01 * jnp.sum(x) ** 2

    result = gx.minimize(coupled, [(-5.0, 6.0)] * 30, max_evaluations=25_000)
    assert not result.success and result.fun > 1.0


@pytest.mark.parametrize("dim", [5, 30])
def test_rastrigin_is_solved_with_success(dim):
    result = gx.minimize(rastrigin, [(-5.0, 6.0)] * dim)
    assert result.success and result.fun < 1e-9 and result.nfev < 2000 * dim


def valley(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_a_descent_that_an_infinite_slope_stops_has_not_converged():
    result = gx.minimize(lambda x: jnp.sqrt(x[0] - 1) + x[1] ** 2, [(-5.0, 5.0)] * 2, max_evaluations=2000)
    assert not result.success and result.fun < 1e-3  # on the line x[0] = 1, where descents end, the value is x[1]**2


@pytest.mark.parametrize("dim", [10, 100])
def test_descents_answer_smooth_functions(dim):
    result = gx.minimize(valley, [(-5.0, 10.0)] * dim, max_evaluations=100 * dim if dim == 100 else None, seed=1)
    assert result.success and result.fun < 1e-10 and result.nfev <= (4000 if dim == 10 else 10_000)
    assert np.allclose(result.x, 1.0, atol=1e-4)


SPENT = 3000  # evaluations: enough for several searches of different sizes


@pytest.fixture(scope="module")
def several():
    return gx.minimize(
        rastrigin,
        BOX,
        "cmaes",
        restarts="bipop",
        runs=5,
        max_evaluations=SPENT,
        keep=gx.Keep(history="x"),
        polish=False,
    )


@pytest.mark.slow
def test_a_run_of_several_searches_adds_up(several):
    runs = several.runs
    assert np.all(runs.nfev <= SPENT) and np.all(runs.nfev > 5 / 6 * SPENT)
    for r in range(5):
        own = several.run(r)
        assert own.fun == runs.fun[r] and np.array_equal(own.x, runs.x[r]) and own.nfev == runs.nfev[r]
        best = own.history.best
        assert len(best) == own.nit and np.all(np.diff(best) <= 0) and best[-1] == own.fun
        assert np.array_equal(own.history.x[-1], own.x)
        assert own.history.nfev[-1] == own.nfev and np.all(np.diff(own.history.nfev) > 0)
        assert np.asarray(rastrigin(jnp.asarray(own.x))) == pytest.approx(own.fun, rel=1e-5, abs=1e-6)


def test_a_run_is_the_same_in_every_ensemble(several):
    fewer = gx.minimize(
        rastrigin,
        BOX,
        "cmaes",
        restarts="bipop",
        max_evaluations=SPENT,
        keep=gx.Keep(history="x"),
        runs=range(3, 5),
        polish=False,
    )
    assert np.array_equal(fewer.runs.fun, several.runs.fun[3:]) and np.array_equal(fewer.runs.x, several.runs.x[3:])


@pytest.mark.slow
def test_restarts_find_what_one_search_misses():
    options = {"target": 1e-8, "runs": 5, "max_evaluations": 30_000, "polish": False}
    once = gx.minimize(dimpled, BOX, "cmaes", **options).runs.success
    again = gx.minimize(dimpled, BOX, "cmaes", restarts="bipop", **options).runs.success
    assert again.sum() >= 4 > once.sum() + 1


@pytest.mark.slow
def test_a_run_ends_when_the_same_point_was_found_again_and_again():
    result = gx.minimize(bowl, BOX, polish=False)
    assert result.stop is Stop.TOLERANCE and result.success and result.nfev < 20_000
    alone = gx.minimize(bowl, BOX, "cmaes", polish=False)
    assert 1.8 < result.nfev / alone.nfev < 4.8
    assert "3 of 3" in result.message and result.confidence == pytest.approx(0.95)
    wanted = gx.minimize(bowl, BOX, target=-1.0, max_evaluations=6000, polish=False)
    assert wanted.stop is Stop.BUDGET and not wanted.success and wanted.nfev > 5500  # a target is looked for to the end


@pytest.mark.slow
def test_a_black_box_restarts_too():
    calls = []

    def counted(x):
        calls.append(x)
        return float(((x - 0.7) ** 2 - 3 * np.cos(6 * (x - 0.7))).sum())

    result = gx.minimize(counted, BOX, "cmaes", restarts="ipop", blackbox=True, max_evaluations=1500)
    assert len(calls) == result.nfev <= 1500 and result.nfev > 1300


@pytest.mark.slow
def test_generations_and_callbacks_hold_for_the_whole_run():
    seen = []
    options = {"restarts": "plain", "generations": 250, "polish": False}
    result = gx.minimize(bowl, BOX, "cmaes", **options, callback=lambda p: seen.append(p.nfev))
    assert result.nit == 250 and result.stop is Stop.BUDGET
    assert seen == sorted(seen) and seen[-1] == result.nfev
    stopped = gx.minimize(
        bowl, BOX, "cmaes", restarts="plain", target=-1.0, callback=lambda p: p.generation > 250, polish=False
    )
    assert stopped.stop is Stop.CALLBACK and not stopped.success


@pytest.mark.slow
def test_an_algorithm_without_a_spread_restarts():
    result = gx.minimize(bowl, BOX, gx.DE(population=30), restarts="plain", max_evaluations=30_000, polish=False)
    assert result.success and result.nfev <= 30_000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"restarts": "often"}, "restarts must be"),
        ({"restarts": 3}, "restarts must be"),
        ({"restarts": "plain", "algorithm": "nsga2"}, "one objective"),
        (
            {"restarts": "plain", "algorithm": "cmaes", "runs": 2, "keep": gx.Keep(snapshots=[1])},
            "snapshots of several restarting runs",
        ),
        ({"tolerance": -1.0}, "tolerance is a fraction of the box"),
        ({"tolerance": 1.5}, "tolerance is a fraction of the box"),
    ],
)
def test_what_cannot_be_done_is_refused(options, sentence):
    fun = (lambda x: jnp.stack([x[0], 1 - x[0]])) if options.get("algorithm") == "nsga2" else bowl
    with pytest.raises(InputError, match=sentence):
        gx.minimize(fun, BOX, **options)


def test_plain_takes_the_same_again():
    own = gx.DE()
    assert IndependentRestarts().next(own, [past()], 10.0, lambda: 0.5).algorithm is own


# --- programs of searches to come -------------------------------------------------------------------------------------


def test_once_searches_disagree_evolution_and_the_next_size_are_expected():
    own, doubled = gx.CMAES(), search_with_doubled_population(gx.CMAES(), 10, 1)
    here, there = past(best=1.0, x=0.1, spent=3000), past("repeat", best=2.0, x=0.9, spent=3000)
    assert Portfolio().predict_next(own, [], NextSearch(own, "first"), 50_000.0) == []
    assert Portfolio().predict_next(own, [here, here], NextSearch(own, "repeat"), 50_000.0) == []
    evolution, larger = Portfolio().predict_next(own, [here, there], doubled, 44_000.0)
    gained = large(1, int(3000 * 2**0.75), 0.5)
    tested = [here, there, *(past(kind, 4, best=9.0, stop=Stop.STALL) for kind in ("probe", "multistart"))]
    assert larger == Portfolio().next(own, [*tested, gained], 44_000.0 - gained.evaluations, lambda: 0.5)
    assert evolution.kind == "evolution" and larger.kind == "large"
    evolved = [here, there, past("evolution", 5000)]
    assert [leg.kind for leg in Portfolio().predict_next(own, evolved, doubled, 44_000.0)] == ["large"]  # once
    assert BIPOP().predict_next(own, [here], doubled, 3999.0) == []  # a hundred generations of 40 cannot be had
    (same,) = BIPOP().predict_next(own, [here], NextSearch(own, "small"), 40_000.0)
    assert same.algorithm.samples == 20
    assert IndependentRestarts().predict_next(own, [here, there], doubled, 44_000.0) == []


@pytest.mark.parametrize(
    ("library", "generations", "engine"),
    [
        pytest.param(jnp, "_step_generation", "auto", id="traced"),
        pytest.param(jnp, "_run_chunk", "native", id="kernels", marks=pytest.mark.slow),
        pytest.param(np, "_tell", "auto", id="blackbox"),
    ],
)
def test_programs_that_are_made_ahead_are_those_that_searches_need(library, generations, engine, monkeypatch):
    """Made from shapes alone: nobody compiles them again."""
    compile_cache.clear()  # of another engine the same test has made some
    made, expected, every, searches = [], [], [], []
    compiled = compile_cache._compile_program

    def noted(call):
        kind = getattr(call.arguments[0], "algorithm", None)
        made.append((call.function.__name__, type(kind).__name__, getattr(kind, "population", 0)))
        shapes = [getattr(leaf, "shape", ()) for leaf in jax.tree.leaves(call.arguments)]
        only_evaluates = getattr(call.arguments[0], "only_evaluates", False)
        every.append((*made[-1], call.static, only_evaluates, *shapes))
        return compiled(call)

    def at_once(steps, when_compiling=False):
        before = len(made)
        list(steps())
        expected.extend(made[before:])
        return True

    record_search = schedules._record_search

    def record(task, run, search, *rest):
        searches.append(search)
        record_search(task, run, search, *rest)

    def waves(x):
        return library.sum(x * x - 9.7 * library.cos(6.1 * x))

    monkeypatch.setattr(compile_cache, "_compile_program", noted)
    monkeypatch.setattr(compile_cache.PROGRAMS, "precompile", at_once)
    monkeypatch.setattr(schedules, "MIN_COMPILE_SECONDS", -1.0)
    monkeypatch.setattr(kernel_backend, "CHECKED_GENERATIONS", 0)  # whose programs are others
    monkeypatch.setattr(schedules, "_record_search", record)
    monkeypatch.setattr(portfolio, "MAX_SEPARABLE_SEARCHES", 0)  # differential evolution is next
    most = 30_000 if library is jnp else 12_000
    if engine == "native" and (cpu_kernel.find_compiler() is None or not devices.on_cpu()):
        pytest.skip("needs a C compiler and JAX on a CPU")
    wavy = gx.minimize(
        waves, BOX, max_evaluations=most, polish="auto", blackbox=library is np, compute=gx.Compute(engine=engine)
    )
    assert "evolution" in {search.kind for search in searches}, wavy.message
    population = most // 4 // 150  # a quarter of the budget for 50 generations per variable
    assert {(generations, "LSHADE", population), ("finish", "LSHADE", population)} < set(expected)
    assert {kind for name, kind, _ in expected if name == generations} == {"LSHADE", "CMAES"}
    assert ("evaluate_gradients" in {name for name, _, _ in made}) == (library is jnp)  # descents come first
    assert len(set(every)) == len(every), "a program was made twice"
