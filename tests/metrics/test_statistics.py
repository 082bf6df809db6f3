"""The statistics of repeated runs: against scipy, against examples worked by hand, and against their definitions."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from galapax.core.errors import InputError
from galapax.metrics.statistics import (
    Comparison,
    critical_difference,
    describe,
    ecdf,
    ecdf_over_targets,
    ert_interval,
    ert_to,
    expected_running_time,
    friedman,
    hits,
    holm,
    log_targets,
    mann_whitney,
    pairwise,
    quantile_curves,
    vargha_delaney,
    wilcoxon,
    wilson_interval,
)

pytestmark = pytest.mark.filterwarnings("error")  # a number that came with a warning was not meant

NAN, INF = math.nan, math.inf
CHECK = settings(max_examples=100, deadline=None, derandomize=True, database=None)

# Few different values, so that ties are the rule, and both spellings of "found nothing".
TIED = st.lists(st.sampled_from([-1.5, 0.0, 0.25, 1.0, 3.0, INF, NAN]), min_size=1, max_size=12)
FINITE = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


@st.composite
def some_histories(draw, values=(-1.5, 0.0, 0.25, 1.0, 3.0, INF, NAN)):
    runs, generations = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    flat = draw(st.lists(st.sampled_from(values), min_size=runs * generations, max_size=runs * generations))
    return np.array(flat).reshape(runs, generations)


def worst_for_nan(values):
    return np.where(np.isnan(values), INF, values)


# --- one sample of values ---------------------------------------------------------------------------------------------


def test_describe_gives_the_usual_numbers():
    # By hand: mean 20/5, squared deviations 9 + 4 + 1 + 0 + 36 = 50, so a variance of 50/4.
    assert describe([2, 1, 3, 10, 4]) == {
        "best": 1, "median": 3, "iqr": 2, "mean": 4, "std": math.sqrt(12.5), "worst": 10, "count": 5, "missing": 0,
    }  # fmt: skip


def test_describe_shows_no_spread_for_one_run():
    summary = describe([7.0])
    assert summary["best"] == summary["median"] == summary["mean"] == summary["worst"] == 7.0
    assert math.isnan(summary["std"]) and math.isnan(summary["iqr"])


@pytest.mark.parametrize("nothing", [NAN, INF])
def test_describe_ranks_runs_that_found_nothing_as_worst_and_counts_them(nothing):
    summary = describe([4.0, nothing, 1.0])
    assert (summary["best"], summary["median"], summary["mean"]) == (1.0, 4.0, 2.5)
    assert (summary["count"], summary["missing"]) == (3, 1)
    assert math.isnan(summary["worst"])


@pytest.mark.parametrize(("found", "missing", "known"), [(3, 2, True), (3, 3, False), (2, 3, False), (4, 3, True)])
def test_describe_has_no_median_once_half_the_runs_found_nothing(found, missing, known):
    assert math.isnan(describe([1.0] * found + [NAN] * missing)["median"]) is not known


def test_describe_of_runs_that_all_found_nothing_is_only_a_count():
    summary = describe([NAN, INF])
    assert (summary.pop("count"), summary.pop("missing")) == (2, 2)
    assert all(math.isnan(value) for value in summary.values())


@CHECK
@given(FINITE)
def test_ecdf_is_that_of_scipy(values):
    x, share = ecdf(values)
    known = stats.ecdf(values).cdf
    assert_array_equal(x, known.quantiles)
    assert_allclose(share, known.probabilities)


def test_ecdf_ends_below_one_when_something_is_missing():
    x, share = ecdf([5.0, NAN, 2.0, 5.0, INF])
    assert_array_equal(x, [2.0, 5.0])
    assert_allclose(share, [1 / 5, 3 / 5])


# --- histories and running times --------------------------------------------------------------------------------------


@CHECK
@given(some_histories(values=(-1.5, 0.0, 0.25, 1.0, 3.0, 1e5)), st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_quantile_curves_of_finite_histories_are_those_of_numpy(histories, q):
    assert_allclose(quantile_curves(histories, q), np.quantile(histories, q, axis=0), rtol=1e-9, atol=1e-9)


def test_quantile_curves_count_nothing_found_as_worst():
    histories = [[NAN, 8.0, 8.0], [INF, INF, 6.0], [4.0, 2.0, 1.0], [INF, NAN, INF]]
    # Sorted columns: 4 - - -, 2 8 - -, 1 6 8 -. Numpy's own quantiles would be NaN wherever they touch inf.
    assert_array_equal(
        quantile_curves(histories, [0, 1 / 3, 0.5, 1]), [[4, 2, 1], [INF, 8, 6], [INF, INF, 7], [INF] * 3]
    )


def test_quantile_that_falls_on_one_run_does_not_see_the_next():
    values = np.full((101, 1), INF)
    values[:56] = 0.0
    assert 0.55 * 100 > 55  # rounding alone would let the 57th value take part
    assert quantile_curves(values, [0.55]) == 0.0
    assert quantile_curves(values, [0.555]) == INF


@CHECK
@given(some_histories(values=(-INF, -1.5, 0.0, 0.1, 3.0, INF, NAN)))
def test_quantile_curves_are_never_nan_and_rise_with_q(histories):
    curves = quantile_curves(histories)
    assert not np.isnan(curves).any()
    assert np.all(curves[1:] >= curves[:-1])
    assert_array_equal(curves[0], worst_for_nan(histories).min(axis=0))


HISTORIES = [[9.0, 5.0, 2.0, 2.0], [NAN, 4.0, 4.0, 3.0], [8.0, 8.0, 8.0, 8.0], [2.0, 1.0, 1.0, 0.0]]
NFEV = [10, 20, 30, 40]


def test_hits_are_the_first_evaluations_with_the_target_or_less():
    assert_array_equal(hits(HISTORIES, NFEV, 2.0), [30, INF, INF, 10])
    assert_array_equal(hits(HISTORIES, NFEV, 1.999), [INF, INF, INF, 20])


def test_hits_count_the_first_time_even_if_the_value_rises_again():
    assert_array_equal(hits([[5.0, 1.0, NAN, 4.0]], NFEV, 1.0), [20])


def test_expected_running_time_charges_the_failures_to_the_successes():
    assert expected_running_time(np.array([10, 20, 30]), np.array([True, True, False])) == 60 / 2
    assert expected_running_time(np.array([10, 20]), np.array([False, False])) == INF


def test_ert_to_a_target_charges_all_evaluations_of_runs_that_missed_it():
    assert ert_to(HISTORIES, NFEV, 2.0) == (30 + 40 + 40 + 10) / 2
    assert ert_to(HISTORIES, NFEV, 100.0) == (10 + 20 + 10 + 10) / 4
    assert ert_to(HISTORIES, NFEV, -1.0) == INF


def test_ert_to_a_target_charges_only_what_a_run_that_gave_up_early_had_spent():
    assert ert_to(HISTORIES, NFEV, 2.0, spent=[40, 40, 20, 40]) == (30 + 40 + 20 + 10) / 2


def test_ert_interval_is_the_percentile_interval_of_scipys_bootstrap():
    generator = np.random.default_rng(3)
    cost, success = generator.integers(50, 1000, 30), generator.random(30) < 0.7
    peer = stats.bootstrap(
        (cost, success), lambda c, s, axis: c.sum(axis=axis) / s.sum(axis=axis), paired=True, method="percentile",
        n_resamples=20000, random_state=1,
    ).confidence_interval  # fmt: skip
    low, high = ert_interval(cost, success, samples=20000)
    assert_allclose([low, high], [peer.low, peer.high], rtol=0.03)  # about 4 standard errors of a percentile
    assert low < expected_running_time(cost, success) < high


def test_ert_interval_covers_the_truth_about_as_often_as_it_says():
    # A run hits with chance p per evaluation and gives up after `budget`; with restarts that takes 1/p on average.
    p, budget, runs, trials = 0.01, 120, 40, 300
    time = np.random.default_rng(11).geometric(p, (trials, runs))
    covered = 0
    for row in time:
        low, high = ert_interval(np.minimum(row, budget), row <= budget, confidence=0.9, samples=300)
        covered += low <= 1 / p <= high
    assert 0.84 <= covered / trials <= 0.95


def test_ert_interval_widens_with_confidence_and_narrows_with_runs():
    cost, success = np.arange(1, 41), np.arange(40) % 3 > 0

    def width(repeats, confidence):
        low, high = ert_interval(np.tile(cost, repeats), np.tile(success, repeats), confidence)
        return high - low

    assert width(1, 0.5) < width(1, 0.9) < width(1, 0.99)
    assert 0.4 < width(4, 0.9) / width(1, 0.9) < 0.6  # as 1 / sqrt(runs)


def test_ert_interval_repeats_by_seed():
    cost, success = np.arange(1, 21), np.arange(20) % 2 == 0
    assert ert_interval(cost, success, seed=5) == ert_interval(cost, success, seed=5)
    assert ert_interval(cost, success, seed=5) != ert_interval(cost, success, seed=6)


def test_ert_interval_has_no_upper_limit_when_resamples_without_success_reach_it():
    # One success among four: (3/4)^4 = 32 % of the resamples have none, more than the 2.5 % above the limit.
    low, high = ert_interval([10, 10, 10, 10], [True, False, False, False])
    assert 10 <= low < 40 and high == INF
    # At 30 %, 35 % lie above the upper limit, and that is finite.
    assert ert_interval([10, 10, 10, 10], [True, False, False, False], confidence=0.3)[1] == 40


def test_ert_interval_without_any_success_is_infinite_and_of_equal_runs_a_point():
    assert ert_interval([10, 20], [False, False]) == (INF, INF)
    assert ert_interval([10], [True]) == (10, 10)


def test_log_targets_divide_the_distance_by_a_constant():
    assert_allclose(log_targets(0.0, 100.0, count=6, precision=1e-5), [100, 10, 1, 0.1, 0.01, 0.001])
    assert_allclose(log_targets(-7.0, 93.0, count=3, precision=1e-2), [93, 3, -6])


@CHECK
@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12))
def test_log_targets_fall_from_the_start_and_stay_above_the_reference(reference, distance):
    start = reference + distance
    if start == reference:
        start = np.nextafter(reference, INF)
    targets = log_targets(reference, start)
    assert len(targets) == 51 and targets[0] == start
    assert np.all(np.diff(targets) <= 0) and targets[-1] > reference


def test_log_targets_begin_at_the_start_to_the_last_bit():
    assert log_targets(-1.0, 1e-17)[0] == 1e-17  # -1 + (1e-17 - -1) is 0


def test_log_targets_follow_the_scale_and_the_offset_of_the_objective():
    plain = log_targets(0.0, 1.0)
    assert plain[-1] == pytest.approx(1e-8)
    assert_allclose(log_targets(0.0, 1e20), 1e20 * plain)
    assert_allclose(log_targets(-3.0, -2.0) + 3.0, plain, atol=1e-15)


def test_ecdf_over_targets_counts_the_pairs_reached_so_far():
    # Runs reach (of targets 8, 4, 2): 0 1 3 3, 0 2 2 2, 1 1 1 1 and 3 3 3 3 of three.
    assert_allclose(ecdf_over_targets(HISTORIES, NFEV, [8.0, 2.0, 4.0]), np.array([4, 7, 9, 9]) / 12)


@CHECK
@given(some_histories(), st.lists(st.sampled_from([-2.0, -1.5, 0.25, 0.3, 3.0]), min_size=1, max_size=5))
def test_ecdf_over_targets_agrees_with_the_hits_of_each_target(histories, targets):
    nfev = 7 * np.arange(1, histories.shape[1] + 1)
    times = np.array([hits(histories, nfev, target) for target in targets]).ravel()
    assert_allclose(ecdf_over_targets(histories, nfev, targets), [np.mean(times <= spent) for spent in nfev])


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (1, 29), (15, 148), (81, 263), (20, 20)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_wilson_interval_is_that_of_scipy(successes, trials, confidence):
    known = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert_allclose(wilson_interval(successes, trials, confidence), known, atol=1e-12)


# --- one algorithm against another ------------------------------------------------------------------------------------


def test_mann_whitney_of_separated_samples_is_two_orders_among_all():
    assert mann_whitney([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / math.comb(6, 3))


@CHECK
@given(FINITE, FINITE)
def test_mann_whitney_is_that_of_scipy(a, b):
    if len({*a, *b}) > 1:
        assert mann_whitney(a, b) == pytest.approx(stats.mannwhitneyu(a, b).pvalue)


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("value", [0.0, INF, NAN])
def test_samples_that_are_all_equal_do_not_differ(n, value):
    same = [value] * n
    assert mann_whitney(same, [value]) == 1.0
    assert wilcoxon(same, same) == 1.0
    assert vargha_delaney(same, [value]) == 0.5


@pytest.mark.parametrize("nothing", [NAN, INF])
def test_nothing_found_ranks_behind_every_number(nothing):
    assert mann_whitney([1, 2, 3], [4, 5, nothing]) == mann_whitney([1, 2, 3], [4, 5, 1e300])
    assert vargha_delaney([1e300], [nothing]) == 1.0
    assert wilcoxon([1, 2, 3, 4, 1e9], [2, 4, 6, 8, nothing]) == pytest.approx(2 / 2**5)
    assert_array_equal(friedman([[nothing, 1e300, -3.0]]).average_ranks, [3, 2, 1])


@pytest.mark.slow
@CHECK
@given(TIED, TIED)
def test_tests_never_give_nan_and_do_not_mind_the_order(a, b):
    n = min(len(a), len(b))
    for test, one, other in ((mann_whitney, a, b), (wilcoxon, a[:n], b[:n])):
        assert 0 <= test(one, other) <= 1
        assert test(one, other) == pytest.approx(test(other, one))


def test_wilcoxon_of_seeds_that_all_favour_one_side_is_two_signs_among_all():
    assert wilcoxon([1, 2, 3, 4, 5], [2, 4, 6, 8, 10]) == pytest.approx(2 / 2**5)


def test_wilcoxon_leaves_out_seeds_that_tie():
    assert wilcoxon([1, 2, 3, 4, 5, 0, NAN, INF], [2, 4, 6, 8, 10, 0, INF, NAN]) == pytest.approx(2 / 2**5)


@pytest.mark.parametrize("n", [6, 20, 80])  # exact, and approximate above 50
def test_wilcoxon_is_that_of_scipy(n):
    a, b = np.random.default_rng(n).normal(size=(2, n))
    assert wilcoxon(a, b + 0.2) == pytest.approx(stats.wilcoxon(a, b + 0.2).pvalue)


def test_wilcoxon_sees_what_mann_whitney_misses_in_paired_seeds():
    seeds = np.linspace(0, 100, 20)  # easy and hard ones
    better = seeds - np.linspace(0.1, 0.2, 20)
    assert wilcoxon(better, seeds) < 1e-4 < 0.5 < mann_whitney(better, seeds)


@CHECK
@given(TIED, TIED)
def test_vargha_delaney_is_the_chance_to_be_better_over_all_pairs(a, b):
    one, other = worst_for_nan(a)[:, None], worst_for_nan(b)
    assert vargha_delaney(a, b) == pytest.approx(np.mean((one < other) + 0.5 * (one == other)), abs=1e-12)
    assert vargha_delaney(a, b) + vargha_delaney(b, a) == pytest.approx(1)


def test_vargha_delaney_is_one_when_the_first_always_finds_the_smaller_value():
    assert vargha_delaney([1, 2], [3, 4, 5]) == 1.0
    assert vargha_delaney([1, 3], [2]) == 0.5


def test_holm_multiplies_the_smallest_by_the_number_and_never_falls():
    # By hand: 4 * 0.005, 3 * 0.01, 2 * 0.03, and 1 * 0.04 is lifted to the one before.
    assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert_allclose(holm([0.01, 0.02, 0.03, 0.04]), [0.04, 0.06, 0.06, 0.06])  # R: p.adjust(1:4 / 100, "holm")
    assert_allclose(holm([0.9, 0.5, 0.2]), [1.0, 1.0, 0.6])
    assert_array_equal(holm([0.3]), [0.3])


@CHECK
@given(st.lists(st.floats(0, 1), min_size=1, max_size=10), st.floats(0.001, 0.999))
def test_holm_rejects_what_his_step_down_procedure_rejects(p_values, level):
    rejected = np.zeros(len(p_values), bool)
    for step, i in enumerate(np.argsort(p_values)):
        if p_values[i] * (len(p_values) - step) > level:
            break
        rejected[i] = True
    adjusted = holm(p_values)
    assert_array_equal(adjusted <= level, rejected)
    assert np.all(adjusted >= p_values) and np.all(adjusted <= 1)


# Demšar (2006), JMLR 7:1-30, table 6: AUC of C4.5 and three variants on 14 data sets; larger is better.
DEMSAR = [
    [0.763, 0.768, 0.771, 0.798],
    [0.599, 0.591, 0.590, 0.569],
    [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657],
    [0.882, 0.888, 0.886, 0.898],
    [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685],
    [0.583, 0.583, 0.563, 0.625],
    [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000],
    [0.940, 0.962, 0.965, 0.962],
    [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.9751, 0.975],  # printed alike, yet ranked 2 and 3: he ranked before rounding
    [0.957, 0.978, 0.946, 0.970],
]


@pytest.mark.parametrize(("k", "quantile"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_critical_differences_are_demsars(k, quantile):
    """Table 5a of Demšar (2006); with four classifiers on 14 data sets the difference is 1.25 there."""
    assert critical_difference(14, k) == pytest.approx(quantile * (k * (k + 1) / (6 * 14)) ** 0.5, abs=1e-3)
    assert critical_difference(14, 4) == pytest.approx(1.25, abs=0.005)


def test_friedman_ranks_are_those_of_demsars_example():
    scores = -np.array(DEMSAR)
    result = friedman(scores)
    assert_allclose(result.average_ranks, [3.143, 2.000, 2.893, 1.964], atol=5e-4)
    assert result.p == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)
    # His 9.28 takes no notice of ties. They shrink its scale by 1 - (4^3 - 4 + 3 (2^3 - 2)) / (14 (4^3 - 4)): one row
    # has four alike and three have two.
    assert result.p == pytest.approx(stats.chi2.sf(9.28 / (1 - 78 / 840), 3), rel=2e-3)


def test_friedman_by_hand():
    # Rank sums 3, 6, 9 on three problems: 12/(3*3*4) * (9 + 36 + 81) - 3*3*4 = 6, and with 2 degrees p = exp(-6/2).
    p, ranks = friedman([[1.0, 2.0, 3.0], [-5.0, 0.0, 1e9], [0.1, 0.2, NAN]])
    assert p == pytest.approx(math.exp(-3))
    assert_array_equal(ranks, [1, 2, 3])


@pytest.mark.parametrize("k", [2, 3, 5])
def test_friedman_of_ties_alone_finds_no_difference(k):
    p, ranks = friedman([[1.0] * k, [NAN] * k, [INF] * k])
    assert p == 1.0
    assert_array_equal(ranks, [(k + 1) / 2] * k)


def test_friedman_of_two_is_the_exact_sign_test_without_ties():
    # Seven wins, one loss, two ties: 2 * (1 + 8) / 2^8, however large the one loss.
    table = [[0.0, 1.0]] * 7 + [[1e9, 0.0]] + [[2.0, 2.0], [NAN, INF]]
    p, ranks = friedman(table)
    assert p == pytest.approx(18 / 256)
    assert_allclose(ranks, [(7 * 1 + 2 + 2 * 1.5) / 10, (7 * 2 + 1 + 2 * 1.5) / 10])


@CHECK
@given(some_histories())
def test_friedman_is_never_nan_and_its_ranks_add_up(table):
    k = table.shape[1]
    if k > 1:
        p, ranks = friedman(table)
        assert 0 <= p <= 1
        assert ranks.sum() == pytest.approx(k * (k + 1) / 2)


SAMPLES = {
    "DE": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    "EP": [2.0, 2.5, 3.5, 9.0, 9.5, 9.6, 9.7, NAN],
    "GA": [11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, NAN],
}


def test_pairwise_compares_all_pairs_and_corrects_for_their_number():
    found = pairwise(SAMPLES)
    assert [(c.first, c.second) for c in found] == [("DE", "EP"), ("DE", "GA"), ("EP", "GA")]
    assert [c.p for c in found] == [mann_whitney(SAMPLES[c.first], SAMPLES[c.second]) for c in found]
    assert [c.effect for c in found] == [vargha_delaney(SAMPLES[c.first], SAMPLES[c.second]) for c in found]
    assert_allclose([c.adjusted for c in found], holm([c.p for c in found]))
    assert found[1].effect == 1.0 and found[1].adjusted == pytest.approx(3 * 2 / math.comb(16, 8))


def test_pairwise_by_seed_tests_and_counts_the_seeds():
    found = pairwise(SAMPLES, paired=True)
    assert [c.p for c in found] == [wilcoxon(SAMPLES[c.first], SAMPLES[c.second]) for c in found]
    assert [c.effect for c in found] == [1.0, 1.0, 7.5 / 8]  # the last seed of EP and GA ties at nothing


def test_pairwise_of_two_needs_no_correction():
    (only,) = pairwise({"a": [1, 2, 3], "b": [4, 5, 6]})
    assert only == Comparison("a", "b", 0.1, 0.1, 1.0)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: describe([]), "values must be a list of at least one number"),
        (lambda: describe([[1.0, 2.0]]), r"values .*shape \(1, 2\)"),
        (lambda: describe(["a"]), "values must hold real numbers"),
        (lambda: ecdf([]), "values must be a list"),
        (lambda: quantile_curves([1.0, 2.0]), r"histories must be \(runs, generations\), got shape \(2,\)"),
        (lambda: quantile_curves(np.zeros((0, 5))), r"histories must be .*\(0, 5\)"),
        (lambda: quantile_curves([[1.0], [1.0, 2.0]]), "histories must hold real numbers in a regular shape"),
        (lambda: quantile_curves(HISTORIES, [50]), r"q must contain fractions between 0 and 1, got \[50\]"),
        (lambda: quantile_curves(HISTORIES, [NAN]), "q must contain fractions"),
        (lambda: hits(HISTORIES, NFEV[:3], 1.0), "one entry per generation of histories, 4, got 3"),
        (lambda: hits(HISTORIES, [10, 20, 15, 40], 1.0), "nfev must count .* never decrease"),
        (lambda: hits(HISTORIES, [10, 20, 30, NAN], 1.0), "nfev must count"),
        (lambda: hits(HISTORIES, NFEV, INF), "target must be finite, got inf"),
        (lambda: hits(HISTORIES, NFEV, "low"), "target must be a number"),
        (lambda: ert_to(HISTORIES, NFEV, NAN), "target must be a number, got NaN"),
        (lambda: ert_to(HISTORIES, NFEV, 1.0, spent=[40, 40]), "spent must hold .* each of the 4 runs"),
        (lambda: ert_to(HISTORIES, NFEV, 1.0, spent=[40, 40, 40, INF]), "spent must hold"),
        (lambda: ert_interval([1, 2], [True]), "one entry per run, got 2 and 1"),
        (lambda: ert_interval([], []), "evaluations must be a list"),
        (lambda: ert_interval([1, INF], [True, False]), "evaluations must be finite"),
        (lambda: ert_interval([1, 2], [0.5, 1]), "success must hold True or False"),
        (lambda: ert_interval([1], [True], confidence=95), "confidence must lie between 0 and 1, got 95"),
        (lambda: ert_interval([1], [True], confidence=1.0), "confidence must lie between 0 and 1"),
        (lambda: ert_interval([1], [True], confidence=NAN), "confidence must be a number"),
        (lambda: ert_interval([1], [True], samples=0), "samples must be at least 1"),
        (lambda: ert_interval([1], [True], seed=-1), "seed must be at least 0"),
        (lambda: log_targets(1.0, 1.0), "start must be greater than reference"),
        (lambda: log_targets(0.0, INF), "start must be finite"),
        (lambda: log_targets(-1.7e308, 1.7e308), "at a finite distance"),
        (lambda: log_targets(0.0, 1.0, count=1), "count must be at least 2"),
        (lambda: log_targets(0.0, 1.0, precision=0.0), "precision must lie between 0 and 1"),
        (lambda: ecdf_over_targets(HISTORIES, NFEV, [1.0, INF]), "targets must be finite"),
        (lambda: ecdf_over_targets(HISTORIES, NFEV, []), "targets must be a list"),
        (lambda: ecdf_over_targets(HISTORIES, NFEV[:2], [1.0]), "one entry per generation"),
        (lambda: mann_whitney([], [1.0]), "a must be a list"),
        (lambda: mann_whitney([1.0], []), "b must be a list"),
        (lambda: vargha_delaney([1.0], []), "b must be a list"),
        (lambda: wilcoxon([1.0, 2.0], [1.0]), "same length, got 2 and 1"),
        (lambda: holm([0.1, 1.1]), "p_values must lie between 0 and 1"),
        (lambda: holm([0.1, NAN]), "p_values must lie between 0 and 1"),
        (lambda: holm([[0.1, 0.2]]), "p_values must be a list"),
        (lambda: friedman([[1.0], [2.0]]), r"at least two algorithms, got shape \(2, 1\)"),
        (lambda: friedman([1.0, 2.0]), r"table must be \(problems, algorithms\)"),
        (lambda: pairwise({"a": [1.0]}), "samples must contain at least two"),
        (lambda: pairwise([[1.0], [2.0]]), "samples must contain at least two"),
        (lambda: pairwise({"a": [1.0], "b": []}), r"samples\['b'\] must be a list"),
        (lambda: pairwise({"a": [1.0, 2.0], "b": [1.0]}, paired=True), "got a: 2, b: 1"),
    ],
)
def test_bad_input_is_refused_with_what_was_needed_and_what_came(call, match):
    with pytest.raises(InputError, match=match):
        call()


@pytest.mark.slow
def test_importing_the_statistics_does_not_load_scipys():
    code = "import sys, galapax.metrics.statistics; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
