import math

import numpy as np
import pytest

from galapax.local.noise import choose_best, find_answer, fit_quadratic, mean_and_interval, minimise_model


def drive(plan, function):
    """Return what a plan returns, and the points that it asked for."""
    points = []
    try:
        asked = next(plan)
        while True:
            points.append(asked)
            asked = plan.send(np.array([function(x) for x in asked]))
    except StopIteration as end:
        return end.value, np.concatenate(points)


def test_interval_covers_the_mean_in_95_percent_of_samples():
    rng = np.random.default_rng(0)
    intervals = [mean_and_interval(rng.standard_normal(10) + 2.0)[1] for _ in range(2000)]
    assert np.mean([low <= 2.0 <= high for low, high in intervals]) == pytest.approx(0.95, abs=0.02)


def test_interval_leaves_failures_out_and_one_value_has_none():
    assert mean_and_interval(np.array([1.0, np.nan, 3.0]))[0] == 2.0
    mean, interval = mean_and_interval(np.array([1.0, np.nan]))
    assert mean == 1.0 and all(map(math.isnan, interval))


@pytest.mark.parametrize("count", [200, 30])
def test_quadratic_is_recovered_where_it_is_one(count):
    rng = np.random.default_rng(1)
    z = rng.standard_normal((count, 6))
    scales = np.arange(1.0, 7.0)
    model = fit_quadratic(z, z**2 @ scales - z[:, 0] + 0.01 * rng.standard_normal(count))
    np.testing.assert_allclose(np.diag(model.hessian), 2 * scales, atol=0.1)
    assert model.gradient[0] == pytest.approx(-1.0, abs=0.05) and model.fits


@pytest.mark.parametrize("power", [3, 4])
def test_terms_of_higher_order_are_noticed(power):
    rng = np.random.default_rng(1)
    z = rng.standard_normal((200, 4))
    noise = rng.standard_normal(200)
    assert fit_quadratic(z, z[:, 0] ** 2 + noise).fits
    assert not fit_quadratic(z, z[:, 0] ** power + noise).fits


@pytest.mark.parametrize("centre", [0.4, 0.0])
def test_model_finds_the_minimum_inside_the_cube_or_on_its_edge(centre):
    rng = np.random.default_rng(2)
    wanted = np.array([centre, 0.6, 0.5])
    scales = np.array([1.0, 10.0, 100.0])

    def noisy(x):
        return scales @ (x - wanted) ** 2 + (x[0] if centre == 0.0 else 0.0) + 0.01 * rng.standard_normal()

    found, points = drive(minimise_model(np.full(3, 0.45), 0.02 * np.eye(3), 500, rng), noisy)
    np.testing.assert_allclose(found, wanted, atol=0.02)
    assert points.min() >= 0 and points.max() <= 1 and len(points) == 500


def test_the_better_candidate_wins_and_the_first_yields_only_to_more_than_chance():
    rng = np.random.default_rng(3)
    candidates = np.linspace(0, 1, 5)[:, None]
    (best, compared, count), points = drive(
        choose_best(candidates, 400, prefers_first=False), lambda x: x[0] + 0.1 * rng.standard_normal()
    )
    assert best[0] == 0.0 and count == len(points) <= 400 and len(compared) < count
    (kept, _, _), _ = drive(choose_best(candidates, 100, prefers_first=True), lambda x: rng.standard_normal())
    assert kept[0] == 0.0


@pytest.mark.parametrize("count", [1, 5, 40, 300])
def test_every_budget_is_used_to_the_last_evaluation(count):
    rng = np.random.default_rng(4)
    answer, points = drive(
        find_answer(np.full(4, 0.5), 0.1 * np.eye(4), np.full((1, 4), 0.2), count, rng),
        lambda x: np.sum(x**2) + 0.01 * rng.standard_normal(),
    )
    assert len(points) == count and math.isfinite(answer.mean)
