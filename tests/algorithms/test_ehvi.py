"""Gaussian processes, expected improvements, and the search by them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.live_runs import Run

import galapax as gx
from galapax.local.gaussian_process import (
    Sample,
    append,
    fit,
    judge_hyperparameters,
    noise_of,
    predict,
    prior_of,
    short_start,
    smooth,
    squared_differences,
    trend_products,
    unflatten,
)
from galapax.metrics.indicators import hypervolume_2d, hypervolume_3d
from galapax.operators.expected_improvement import (
    decompose,
    log_expected_excess,
    log_expected_hypervolume_improvement,
)

N, DIM = 24, 3
BOX = [(0.0, 1.0), (-2.0, 2.0), (0.0, 5.0)]


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def sample_of(n_evaluated, seed=0):
    u = np.random.default_rng(seed).uniform(size=(N, DIM))
    return Sample(jnp.asarray(u), jnp.array([False, False, True]), jnp.arange(N) < n_evaluated)


def covariance_in_numpy(vector, a, b):
    """Matern 5/2 with a length for each variable, a linear and a quadratic part; the last variable has no order."""
    out = np.empty((len(a), len(b)))
    for i, j in np.ndindex(out.shape):
        difference = (a[i] - b[j]) * [1, 1, 0] + [0, 0, float(a[i, 2] != b[j, 2])]
        r = np.sqrt(5 * np.sum((difference / np.exp(vector[:DIM])) ** 2))
        matern = np.exp(vector[DIM]) * (1 + r + r * r / 3) * np.exp(-r)
        p, q = 2 * a[i, :2] - 1, 2 * b[j, :2] - 1
        trends = 1 + p @ q, (p**2 - 1 / 3) @ (q**2 - 1 / 3)
        out[i, j] = matern + np.exp(vector[DIM + 1 : DIM + 3]) @ trends
    return out


def predict_in_numpy(vector, x, values, points):
    noise = np.exp(vector[-1]) + 1e-8 * (np.exp(vector[DIM]) + np.sum(np.exp(vector[DIM + 1 : DIM + 3])) * (1 + DIM))
    inverse = np.linalg.inv(covariance_in_numpy(vector, x, x) + noise * np.eye(len(x)))
    cross = covariance_in_numpy(vector, points, x)
    variance = np.diagonal(covariance_in_numpy(vector, points, points) - cross @ inverse @ cross.T)
    return cross @ inverse @ values, np.sqrt(variance)


def test_predictions_are_those_of_the_formula_and_rows_beyond_the_evaluated_ones_do_not_matter():
    n = 17
    sample, start = sample_of(n), jnp.array([-0.5, 0.2, 0.4, 0.3, -1.0, -2.0, -6.0])
    values = np.random.default_rng(1).normal(size=N)
    points = np.random.default_rng(2).uniform(size=(5, DIM))
    points[0, 2] = sample.u[3, 2]  # the same value without order, so distance 0 in it
    process = jax.jit(fit, static_argnums=3)(
        sample, jnp.asarray(values), start[None], 1
    )  # one evaluation, at the start
    np.testing.assert_array_equal(process.vector, start)
    mean, deviation = predict(process, sample, jnp.asarray(points))
    expected = predict_in_numpy(np.asarray(start), np.asarray(sample.u)[:n], values[:n], points)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-7)
    np.testing.assert_allclose(deviation, expected[1], rtol=1e-6)


def test_predictions_evidence_and_its_gradient_are_those_of_scikit_learn():
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels")
    from sklearn.gaussian_process import GaussianProcessRegressor

    class Squares(kernels.Kernel):
        """The products of centred squares."""

        def __init__(self):
            """Take no parameters: the base class reads them from this signature."""

        def __call__(self, X, Y=None, eval_gradient=False):
            products = (X**2 - 1 / 3) @ ((X if Y is None else Y) ** 2 - 1 / 3).T
            return (products, np.empty((*products.shape, 0))) if eval_gradient else products

        def diag(self, X):
            return np.sum((X**2 - 1 / 3) ** 2, axis=1)

        def is_stationary(self):
            return False

    n, vector = 17, np.array([-0.5, 0.2, 0.4, 0.3, -1.0, -2.0, -6.0])
    sample = sample_of(n)._replace(unordered=jnp.zeros(DIM, bool))
    values = np.random.default_rng(1).normal(size=N)
    z = 2 * np.asarray(sample.u) - 1  # where the linear part has its zero; lengths are twice as long there
    variance, slope, curvature, noise = np.exp(vector[DIM:])
    kernel = variance * kernels.Matern(2 * np.exp(vector[:DIM]), nu=2.5)
    kernel += slope * kernels.DotProduct(1.0, "fixed") + curvature * Squares()
    alpha = float(noise_of(unflatten(jnp.asarray(vector)), DIM))
    reference = GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None).fit(z[:n], values[:n])
    process = jax.jit(fit, static_argnums=3)(sample, jnp.asarray(values), jnp.asarray(vector)[None], 1)
    points = np.random.default_rng(2).uniform(size=(5, DIM))
    mean, deviation = predict(process, sample, jnp.asarray(points))
    expected = reference.predict(2 * points - 1, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-7)
    np.testing.assert_allclose(deviation, expected[1], rtol=1e-6)

    noisy = GaussianProcessRegressor(kernel + kernels.WhiteKernel(noise), alpha=alpha - noise, optimizer=None)
    evidence, slopes = noisy.fit(z[:n], values[:n]).log_marginal_likelihood(noisy.kernel_.theta, eval_gradient=True)
    arguments = sample.u, sample.u, sample.unordered
    known = jnp.where(sample.is_evaluated, values, 0.0)
    loss, gradient, _ = judge_hyperparameters(
        jnp.asarray(vector), sample, known, squared_differences(*arguments), trend_products(*arguments)
    )
    prior, spread = prior_of(DIM)
    shift = (vector - prior) / spread
    np.testing.assert_allclose(loss - 0.5 * np.sum(shift**2), -evidence - n / 2 * np.log(2 * np.pi), rtol=1e-9)
    order = [1, 2, 3, 0, 4, 5, 6]  # theirs: variance, lengths, slope, curvature, noise
    # ours has the slope of what is added to the noise for the factorisation, too, a share of 1e-8 of all variances
    np.testing.assert_allclose(gradient - shift / spread, -slopes[order], rtol=1e-4, atol=5e-4)


def test_a_point_appended_to_a_process_is_as_good_as_one_that_was_there_from_the_start():
    start, values = jnp.array([-0.5, 0.2, 0.4, 0.3, -1.0, -2.0, -6.0]), jnp.sin(jnp.arange(N))
    once = jax.jit(fit, static_argnums=3)
    whole = once(sample_of(18), values, start[None], 1)
    shorter = once(sample_of(17), values, start[None], 1)
    grown = append(shorter, sample_of(18), jnp.where(jnp.arange(N) < 18, values, 0), 17)
    points = sample_of(0).u
    for a, b in zip(predict(whole, sample_of(18), points), predict(grown, sample_of(18), points), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def test_fitting_finds_which_variables_matter_and_equal_points_do_no_harm():
    sample = sample_of(N)
    sample = sample._replace(u=sample.u.at[1].set(sample.u[0]))  # the same point twice
    values = jnp.sin(5 * sample.u[:, 1])
    starts = jnp.array([[1.5, 1.5, 1.5, 0.0, -2.0, -2.0, -10.0]])
    process = jax.jit(fit, static_argnums=3)(sample, values, starts, 40)
    lengths = np.exp(unflatten(process.vector).lengths)
    assert lengths[1] < 1.5 < min(lengths[0], lengths[2])
    others = np.random.default_rng(3).uniform(size=(50, DIM))
    mean, deviation = predict(process, sample, jnp.asarray(others))
    assert np.all(np.isfinite(deviation)) and np.sqrt(np.mean((mean - np.sin(5 * others[:, 1])) ** 2)) < 0.1


def test_the_best_of_several_starts_is_taken():
    """From the prior's mean the sine below is noise around a parabola."""
    u = np.random.default_rng(0).uniform(size=(20, 2))
    values = (4 * u[:, 0] - 2.3) ** 2 + 10 * (4 * u[:, 1] - 1.8) ** 2 + np.sin(20 * u[:, 0] - 10)
    values = jnp.asarray((values - values.mean()) / values.std())
    sample = Sample(jnp.asarray(u), jnp.zeros(2, bool), jnp.ones(20, bool))
    squares = squared_differences(sample.u, sample.u, sample.unordered)
    products = trend_products(sample.u, sample.u, sample.unordered)
    smooth, rough = prior_of(2)[0], short_start(2)
    losses = [
        float(judge_hyperparameters(fit(sample, values, starts, 40).vector, sample, values, squares, products)[0])
        for starts in (smooth[None], rough[None], jnp.stack([smooth, rough]))
    ]
    assert losses[1] < losses[0] - 1 and losses[2] == pytest.approx(losses[1])


def lower_than(front, reference):
    """The hypervolume of one objective."""
    return jnp.maximum(reference[0] - jnp.min(front), 0.0)


@pytest.mark.parametrize(("m", "hypervolume"), [(1, lower_than), (2, hypervolume_2d), (3, hypervolume_3d)])
def test_expected_hypervolume_improvement_is_the_mean_over_many_draws(m, hypervolume):
    rng, reference = np.random.default_rng(0), jnp.full(m, 1.1)
    front = rng.uniform(size=(12, m))
    dominated = [any((other <= f).all() and (other < f).any() for other in front) for f in front]
    front = jnp.where(jnp.array(dominated)[:, None], reference, front)
    boxes = decompose(front, reference)
    mean, deviation = jnp.array([0.5, 0.4, 0.6])[:m], jnp.array([0.2, 0.3, 0.1])[:m]
    draws = jnp.asarray(rng.normal(mean, deviation, (20_000, m)))
    volumes = jax.vmap(lambda y: hypervolume(jnp.concatenate([front, y[None]]), reference))(draws)
    gains = np.asarray(volumes - hypervolume(front, reference))
    exact = np.exp(log_expected_hypervolume_improvement(mean, deviation, boxes))
    assert abs(exact - gains.mean()) < 4 * gains.std() / np.sqrt(len(gains))


def test_expected_improvement_has_a_slope_far_away_and_its_series_meets_the_formula():
    z = jnp.array([-60.0, -12.01, -11.99, -3.0, 0.0, 4.0])
    value = jax.vmap(lambda level: log_expected_excess(jnp.zeros(()), jnp.ones(()), level))
    slopes = jax.vmap(jax.grad(lambda level: log_expected_excess(jnp.zeros(()), jnp.ones(()), level)))(z)
    np.testing.assert_allclose(slopes, (value(z + 1e-4) - value(z - 1e-4)) / 2e-4, rtol=1e-3)
    np.testing.assert_allclose(value(z)[4], 0.5 * np.log(1 / (2 * np.pi)), rtol=1e-9)


def two_costs(x):
    """Its front is x[0] in [0, 1] with x[1] = 1 and x[2] = 2."""
    off = (x[1] - 1) ** 2 + (x[2] - 2) ** 2
    return [float(x[0] + off), float((1 - x[0]) ** 2 + off)]


def test_a_front_is_followed_with_few_evaluations_and_again_with_the_same_seed(tmp_path):
    settings = {"blackbox": True, "max_evaluations": 30, "seed": 4}
    result = gx.minimize(two_costs, BOX, gx.EHVI(), **settings)
    exact = np.linspace(0, 1, 200)
    best = gx.indicators.hypervolume(np.column_stack([exact, (1 - exact) ** 2]), (1.2, 1.2))
    assert result.nfev == 30
    assert gx.indicators.hypervolume(result.F[(result.F < 1.2).all(1)], (1.2, 1.2)) > 0.9 * best
    file = tmp_path / "run.gx"
    stops = gx.minimize(two_costs, BOX, gx.EHVI(), checkpoint=file, callback=lambda p: p.nfev >= 20, **settings)
    assert stops.nfev < 30
    again = gx.minimize(two_costs, BOX, gx.EHVI(), checkpoint=file, resume=True, **settings)
    np.testing.assert_array_equal(again.evaluations.x, result.evaluations.x)


def rugged(x):
    """Five minima along the first variable, of which the one at 0.58 is the best; x[2] = 3."""
    return float(np.cos(5 * np.pi * x[0] + 0.2) + 4 * (x[0] - 0.6) ** 2 + 0.3 * (x[1] - 1) ** 2 + 0.1 * (x[2] - 3) ** 2)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_best_of_several_minima_of_one_objective_is_found_with_few_evaluations(seed):
    result = gx.minimize(rugged, BOX, gx.EI(), blackbox=True, max_evaluations=50, seed=seed)
    assert result.nfev == 50 and result.fun < -0.99 and abs(result.x[0] - 0.587) < 0.05
    assert result.get("forecast") is None
    opt = gx.Optimizer(BOX, gx.EI(population=2), max_evaluations=50, seed=seed)
    for _ in range(20):
        trials = opt.ask(2)
        opt.tell(trials, [rugged(trial.x) for trial in trials])
    assert opt.best.fun < -0.9


def test_expected_improvement_is_for_one_objective_and_that_of_the_hypervolume_for_several():
    with pytest.raises(gx.InputError, match="EI minimises one objective"):
        gx.minimize(two_costs, BOX, gx.EI(), blackbox=True, max_evaluations=20)
    with pytest.raises(gx.InputError, match="EHVI is for several objectives"):
        gx.minimize(rugged, BOX, gx.EHVI(), blackbox=True, max_evaluations=20)


def test_single_precision_is_refused():
    with pytest.raises(gx.InputError, match="float64"):
        gx.minimize(two_costs, BOX, gx.EHVI(), blackbox=True, generations=5, compute=gx.Compute(dtype="float32"))


def engine(point):
    """A cost and a weight of mixed variables; designs that are long and soft fail, stiff ones are required."""
    length, cylinders, material = point["length"], point["cylinders"], point["material"]
    stiffness = {"steel": 2.0, "foam": 0.4, "wood": 1.0}[material]
    if material == "foam" and length > 1.5:
        raise ValueError("it breaks")
    cost = (length - 1) ** 2 + 0.1 * cylinders + 0.3 * stiffness
    return {"fun": [cost, stiffness * length + 1 / cylinders], "ineq": 2.0 - stiffness * cylinders}


ENGINE = {"length": (0.5, 2.0), "cylinders": gx.integer(1, 8), "material": gx.choice("steel", "foam", "wood")}


def test_mixed_variables_constraints_and_failures_in_batches_are_the_same_by_minimize_and_by_optimizer():
    result = gx.minimize(engine, ENGINE, gx.EHVI(population=3), blackbox=True, max_evaluations=36, seed=2)
    assert result.feasible and result.CV.max() == 0 and result.nfev == 36
    true = [
        engine({"length": length, "cylinders": n, "material": m})
        for length in np.linspace(0.5, 2, 61)
        for n in range(1, 9)
        for m in ("steel", "wood")
    ]
    best = np.array([value["fun"] for value in true if value["ineq"] <= 0])
    reference = (3.0, 6.0)
    assert gx.indicators.hypervolume(result.F, reference) > 0.95 * gx.indicators.hypervolume(best, reference)
    opt = gx.Optimizer(ENGINE, gx.EHVI(population=3), max_evaluations=36, seed=2)
    while opt.nfev < 36:
        forecast = opt.best.forecast if opt.nfev > 12 else None
        trials = opt.ask(3)
        assert len(trials) == 3
        if forecast is not None:
            np.testing.assert_array_equal(forecast.x, [trial.x for trial in trials])
        for trial in reversed(trials):
            try:
                opt.tell(trial, engine(trial.params))
            except ValueError as error:
                opt.tell(trial, error)
    np.testing.assert_array_equal(opt.best.F, result.F)


def test_it_is_the_default_of_black_boxes_with_two_or_three_objectives_and_few_evaluations():
    result = gx.minimize(two_costs, BOX, blackbox=True, max_evaluations=14, seed=4)
    assert result.settings["algorithm"] == "ehvi" and result.nfev == len(result.evaluations.x) == 14
    known = gx.minimize(two_costs, BOX, blackbox=True, max_evaluations=14, seed=5, initial=result.evaluations)
    assert known.settings["algorithm"] == "ehvi" and len(known.evaluations.x) == 28
    assert gx.indicators.hypervolume(known.F, (15, 15)) > gx.indicators.hypervolume(result.F, (15, 15))
    assert gx.minimize(two_costs, BOX, blackbox=True, max_evaluations=160).settings["algorithm"] == "nsga2"
    opt = gx.Optimizer(BOX, max_evaluations=14)
    opt.tell(opt.ask(), [1.0, 2.0])
    assert isinstance(opt.algorithm, gx.EHVI)


def test_the_means_of_a_process_at_its_own_points_are_its_predictions_there():
    sample, values = sample_of(17), jnp.sin(jnp.arange(N) * 1.7)
    start = jnp.array([-0.5, 0.2, 0.4, 0.3, -1.0, -2.0, -2.0])
    process = jax.jit(fit, static_argnums=3)(sample, values, start[None], 1)
    expected, _ = predict(process, sample, sample.u)
    np.testing.assert_allclose(smooth(process, sample, values)[:17], expected[:17], rtol=1e-8)
    assert np.max(np.abs(expected[:17] - values[:17])) > 0.01  # there is noise to be smoothed


@pytest.mark.slow
def test_with_noise_the_front_is_that_of_means_and_every_evaluation_is_of_a_new_point():
    rng = np.random.default_rng(0)

    def measure(x):
        return [value + 0.1 * rng.standard_normal() for value in two_costs(x)]

    result = gx.minimize(measure, BOX, blackbox=True, noisy=True, max_evaluations=45, seed=4)
    assert result.settings["algorithm"] == "ehvi" and 30 < result.nfev <= 45
    searched = result.evaluations.x[:30]
    assert len(np.unique(searched, axis=0)) == 30
    found = np.array([two_costs(x) for x in result.X])
    exact = np.linspace(0, 1, 200)
    best = gx.indicators.hypervolume(np.column_stack([exact, (1 - exact) ** 2]), (1.5, 1.5))
    assert gx.indicators.hypervolume(found[(found < 1.5).all(1)], (1.5, 1.5)) > 0.8 * best


def test_what_is_forecast_of_the_next_points_and_of_the_front_is_what_comes_out(tmp_path):
    def gain_and_cost(x):
        cost, other = two_costs(x)
        return [-other, cost]

    run = Run(gain_and_cost, BOX, blackbox=True, max_evaluations=24, seed=4, maximize=[True, False])
    run.thread.join(300)
    result = run.result
    forecast = result.forecast
    frame = run.session.frame()
    header = json.loads(frame[4 : 4 + int.from_bytes(frame[:4], "little")])
    np.testing.assert_array_equal(header["forecast"]["next"], forecast.next)
    assert forecast.next.shape == (1, 3, 2) and np.all(forecast.next[:, 0] <= forecast.next[:, 2])
    np.testing.assert_allclose(forecast.next[0, 1], gain_and_cost(forecast.x[0]), atol=0.05)
    low, middle, high = np.moveaxis(forecast.front, 1, 0)
    assert len(middle) > 20 and np.all((low <= middle) & (middle <= high))
    np.testing.assert_allclose(-middle[:, 0], (1 - middle[:, 1]) ** 2, atol=0.05)  # the true front
    result.save(tmp_path)
    for name, rows in forecast._asdict().items():
        np.testing.assert_array_equal(getattr(gx.load(tmp_path).forecast, name), rows)
    labels = [text.get_text() for text in result.plot.front().axes[0].get_legend().get_texts()]
    assert {"the models between, 95 %", "next evaluations, 95 %"} <= set(labels)
    assert '"forecast"' in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_three_objectives_and_a_memory_that_is_full():
    problem = gx.problems.get("dtlz2", dim=6)
    shares = []
    for seed in (1, 2, 3):
        result = gx.minimize(problem, gx.EHVI(capacity=48), blackbox=True, max_evaluations=80, seed=seed)
        shares.append(gx.indicators.hypervolume(result.F, problem.reference_point) / problem.hypervolume)
        assert result.nfev == 80
    assert np.median(shares) > 0.5
