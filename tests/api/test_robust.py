"""Robust optimisation: measures over scenarios, checked on fresh samples."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import galapax as gx
from galapax.api.robust import as_uncertain
from galapax.metrics.statistics import as_measure

RETURNS = np.random.default_rng(1).normal([0.05, 0.08, 0.03], [0.1, 0.2, 0.05], (100, 3))
WEIGHTS = np.linspace(1, 3, 100)


def loss(x, returns):
    return -jnp.dot(jnp.append(x, 1 - jnp.sum(x)), returns)


def least_cvar(returns, weights, level):
    """The portfolio of least conditional value at risk, as a linear program (Rockafellar & Uryasev)."""
    n, d = returns.shape
    weights = weights / weights.sum()
    cost = np.r_[np.zeros(d), 1, weights / (1 - level)]
    above = np.c_[-returns, -np.ones(n), -np.eye(n)]
    limits = [(0, None)] * d + [(None, None)] + [(0, None)] * n
    return linprog(cost, above, np.zeros(n), [np.r_[np.ones(d), np.zeros(n + 1)]], [1], limits)


@pytest.mark.parametrize("weights", [pytest.param(None, marks=pytest.mark.slow), WEIGHTS], ids=["alike", "weighted"])
def test_portfolio_of_least_cvar_is_that_of_the_linear_program(weights):
    result = gx.robust(
        loss, [(0, 1)] * 2, gx.scenarios(RETURNS, weights), gx.cvar(0.9), ineq=lambda x: jnp.sum(x) - 1,
        max_evaluations=4000,
    )  # fmt: skip
    exact = least_cvar(RETURNS, np.ones(100) if weights is None else weights, 0.9)
    assert result.fun == pytest.approx(exact.fun, abs=1e-5)
    assert result.robust.value == pytest.approx(exact.fun, abs=1e-5)
    assert result.robust.interval[0] == result.robust.interval[1] == result.robust.value


def bounded(x, y):
    """Wants a small x; must not be below y."""
    return x[0] + 0 * y["a"]


def test_chance_constraint_holds_with_its_probability(tmp_path):
    result = gx.robust(
        bounded, [(-3, 3)], {"a": gx.normal(0, 1)}, ineq=lambda x, y: y["a"] - x[0], samples=200, max_evaluations=1000
    )
    report = result.robust
    assert result.x[0] == pytest.approx(1.645, abs=0.1)  # the 95 % quantile
    low, high = report.probability_interval
    assert low < report.probability < high and abs(report.probability - 0.95) < 0.02
    loaded = gx.load(result.save(tmp_path / "run"))
    assert repr(loaded.robust) == repr(report) and np.array_equal(loaded.robust.outcomes, report.outcomes)
    lines = loaded.plot.outcomes().axes[0].lines
    assert np.array_equal(lines[0].get_xdata(), report.outcomes) and lines[1].get_xdata()[0] == report.value
    assert "fresh samples" in (tmp_path / "run" / "report.html").read_text("utf-8")


def distance(x, y):
    return (x[0] - y[0]) ** 2


def test_the_check_is_on_fresh_samples_and_repeats_with_the_seed():
    result, again = (
        gx.robust(distance, [(-3, 3)], gx.uniform(-1, 2), samples=50, runs=3, max_evaluations=300) for _ in range(2)
    )
    assert result.x[0] == pytest.approx(0.5, abs=0.01)
    low, high = result.robust.interval
    assert low < 0.75 < high and result.robust.n_samples == 1000
    assert result.robust.value == again.robust.value
    assert result.run(1).robust.n_samples == 1000
    other = gx.robust(distance, [(-3, 3)], gx.uniform(-1, 2), samples=50, max_evaluations=300, seed=1)
    assert other.robust.value != result.robust.value


@pytest.mark.slow
def test_worst_case_over_a_box_is_minimax():
    result = gx.robust(distance, [(-3, 3)], gx.uniform(-1, 2), "worst", generations=20)
    assert result.x[0] == pytest.approx(0.5, abs=1e-3) and result.robust.value == result.worst_case


def test_a_list_of_measures_gives_a_front():
    def asymmetric(x, y):
        return (x[0] - y[0]) ** 2 + 5 * jnp.maximum(y[0] - x[0], 0)

    result = gx.robust(
        asymmetric, [(-3, 3)], gx.normal(0, 1), ["mean", gx.cvar(0.95)], samples=200, population=20, generations=20
    )
    assert len(result.F) > 3 and [report.measure for report in result.robust] == ["mean", "cvar(0.95)"]
    assert result.problem.objectives == ["mean", "cvar(0.95)"]


def test_a_black_box_meets_every_scenario():
    seen = []

    def measured(x, y):
        seen.append(float(y[0]))
        return float((x[0] - y[0]) ** 2)

    result = gx.robust(measured, [(-3, 3)], gx.uniform(-1, 2), blackbox=True, samples=20, max_evaluations=60)
    assert len(seen) == 20 * result.nfev + 20  # and the check
    assert result.x[0] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("measure", ["mean", gx.mean_std(2), gx.cvar(0.8), gx.chance(0.9)], ids=str)
def test_intervals_hold_in_95_percent_of_samples(measure):
    measure, rng = as_measure(measure), np.random.default_rng(7)
    large = rng.exponential(size=400_000)
    truth = float(measure(jnp.asarray(large), jnp.full(len(large), 1 / len(large))))
    held = 0
    for _ in range(400):
        value, (low, high) = measure.estimate(rng.exponential(size=2000))
        assert low <= value <= high
        held += low <= truth <= high
    assert 360 <= held <= 396


def test_measures_of_weighted_values_are_those_of_repeated_ones():
    values, counts = np.array([3.0, -1.0, 7.0, 2.0]), np.array([1, 5, 2, 2])
    repeated = np.repeat(values, counts)
    for measure in (gx.mean_std(1.5), gx.cvar(0.7), gx.chance(0.8), as_measure("worst"), as_measure("mean")):
        weighted = measure(jnp.asarray(values), jnp.asarray(counts / 10))
        assert float(weighted) == pytest.approx(float(measure(jnp.asarray(repeated), jnp.full(10, 0.1))), rel=1e-6)


def test_stratified_samples_have_one_in_each_range():
    uncertain = as_uncertain([gx.uniform(0, 10), gx.normal([1, 2], 0.5)])
    points = uncertain.draw(10, np.random.default_rng(0), stratified=True).points
    assert points.shape == (10, 3) and sorted(points[:, 0].astype(int)) == list(range(10))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gx.normal(0, 0), "std of gx.normal must be above 0"),
        (lambda: gx.uniform(2, 1), "lower < upper"),
        (lambda: gx.normal([1, 2], [1, 2, 3]), "arrays of one length"),
        (lambda: gx.scenarios([[1.0], [2.0]], [1.0]), "2 numbers, one for each scenario"),
        (lambda: gx.cvar(1.0), "below 1"),
        (lambda: gx.robust(distance, [(0, 1)], "normal"), "uncertain must be"),
        (lambda: gx.robust(distance, [(0, 1)], gx.normal(0, 1), "median"), "measure must be"),
        (lambda: gx.robust(lambda x: x[0], [(0, 1)], gx.normal(0, 1)), "must take two arguments"),
        (lambda: gx.robust(distance, [(0, 1)], gx.normal(0, 1), maximize=True), "a measure of risk is minimised"),
        (lambda: gx.robust(distance, [(0, 1)], gx.uniform(0, 1), "worst", ineq=distance), "takes no constraints"),
        (
            lambda: gx.robust(lambda x, u: x[0] - u[0], [(0, 1)], {"load": gx.normal(0, 1)}),
            r"write u\['load'\], not u\[0\]",
        ),
        (lambda: gx.robust(lambda x, y: x * y, [(0, 1)] * 2, gx.normal([0, 1], 1)), "must return one number"),
    ],
)
def test_what_cannot_work_is_refused(make, words):
    with pytest.raises(gx.InputError, match=words):
        make()
