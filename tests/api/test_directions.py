"""Objectives with a direction each: the same run as with the signs changed by hand, everywhere."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import galapax as gx
from galapax.cli.app import app
from galapax.execution.observers import Facts, PopulationSample
from galapax.storage.result_format import result_from_json, result_to_json
from galapax.view.live.messages import describe_run, pack_frame
from galapax.view.summary_tables import front_points

BOX = [(-4.0, 4.0)] * 2
SIGNS = np.array([1.0, -1.0])
BUDGET = {"generations": 6, "population": 20, "algorithm": "nsga2"}


def cost_and_gain(x):
    return jnp.stack([jnp.sum(x**2), -jnp.sum((x - 2) ** 2)])


def cost_and_loss(x):
    return jnp.stack([jnp.sum(x**2), jnp.sum((x - 2) ** 2)])


PROBLEM = gx.Problem(cost_and_gain, BOX, objectives=["cost", "gain"], reference_point=(12.0, -12.0))
MINIMISED = gx.Problem(cost_and_loss, BOX, objectives=["cost", "gain"], reference_point=(12.0, 12.0))


@pytest.fixture(scope="module")
def pair():
    keep = gx.Keep(snapshots=[2, 4])
    result = gx.minimize(PROBLEM, maximize=[False, True], runs=2, keep=keep, **BUDGET)
    return result, gx.minimize(MINIMISED, runs=2, keep=keep, **BUDGET)


def test_one_maximised_objective_is_the_same_run_as_with_its_sign_changed_by_hand(pair):
    result, expected = pair
    assert np.array_equal(result.X, expected.X) and np.array_equal(result.F, SIGNS * expected.F)
    assert np.array_equal(result.fun, SIGNS * expected.fun) and np.array_equal(result.x, expected.x)
    assert np.array_equal(result.runs.hypervolume, expected.runs.hypervolume)
    assert np.array_equal(result.population_fitness, SIGNS * expected.population_fitness)
    for name in ("best", "mean", "worst"):
        assert np.array_equal(getattr(result.history, name), SIGNS * getattr(expected.history, name))
    assert np.array_equal(result.signs, SIGNS) and result.settings["maximize"] == [False, True]


def test_choices_and_indicators_look_in_the_direction_of_each_objective(pair):
    result, expected = pair
    for how in ("knee", "ideal", [1, 3]):
        assert result.choose(how) == expected.choose(how)
    assert result.choose(reference=[5.0, -5.0]) == expected.choose(reference=[5.0, 5.0])
    assert result.choose("ask", ask=lambda text: "a") == expected.choose("ask", ask=lambda text: "a")
    measures, others = gx.indicators.by_generation(result), gx.indicators.by_generation(expected)
    assert np.array_equal(measures["hypervolume"], others["hypervolume"])


def test_report_and_saved_result_name_the_direction_of_each_objective(pair, tmp_path):
    result, _ = pair
    result.save(tmp_path / "run")
    loaded = gx.load(tmp_path / "run")
    assert np.array_equal(loaded.signs, SIGNS) and loaded.knee == result.knee
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Minimise cost and maximise gain over 2 variables" in page
    assert "least cost" in page and "most gain" in page and "least gain" not in page
    assert result.plot.front().axes


def test_a_saved_result_whose_directions_do_not_fit_its_objectives_is_refused(pair):
    data = json.loads(json.dumps(result_to_json(pair[0])))
    data["settings"]["maximize"] = [False, True, True]
    with pytest.raises(gx.InputError, match="maximize has 3 entries"):
        result_from_json(data)


@pytest.mark.parametrize("directions", [(False, True), np.array([False, True])], ids=["tuple", "array"])
def test_directions_are_a_tuple_or_an_array_too(directions):
    result = gx.minimize(PROBLEM, maximize=directions, **BUDGET)
    assert result.settings["maximize"] == [False, True]


@pytest.mark.parametrize(
    ("directions", "sentence"),
    [
        ([True], "maximize and reference_point need an entry for each objective; they have 1 and 2."),
        ([True, False, True], "they have 3 and 2"),
        (["min", "max"], "True, False, or a list with one of them for each objective"),
        ([], "got \\[\\]"),
        ("max", "got 'max'"),
    ],
)
def test_wrong_directions_are_refused(directions, sentence):
    with pytest.raises(gx.InputError, match=sentence):
        gx.minimize(PROBLEM, maximize=directions, **BUDGET)


def test_directions_of_several_objectives_do_not_fit_one(recwarn):
    def call(x):
        raise AssertionError("the black box was called")

    for maximize, fun in (([True, False], lambda x: jnp.sum(x)), ([True] * 3, cost_and_gain)):
        with pytest.raises(gx.InputError, match="give one entry for each objective"):
            gx.minimize(fun, BOX, maximize=maximize)
    with pytest.raises(gx.InputError, match="has 2 objectives"):
        gx.minimize(gx.Problem(call, BOX, objectives=["a", "b"]), maximize=[True] * 3, blackbox=True)
    with pytest.raises(gx.InputError, match="has 1 objective"):
        gx.minimize(lambda x: float(x[0]), BOX, maximize=[True, False], blackbox=True)


def test_one_direction_for_one_objective_is_maximize_true():
    result = gx.minimize(lambda x: -jnp.sum(x**2), BOX, "de", maximize=[True], generations=5, target=-1e9)
    assert result.nit == 1 and result.fun <= 0


def test_a_black_box_has_as_many_objectives_as_directions():
    def fun(x):
        return [float(v) for v in cost_and_gain(x)]

    result = gx.minimize(fun, BOX, maximize=[False, True], blackbox=True, generations=4, population=12)
    assert result.settings["algorithm"] == "nsga2" and result.evaluations.fun[:, 1].max() <= 0
    assert result.F[:, 1].max() == result.evaluations.fun[:, 1].max()


def test_optimizer_maximises_what_it_is_told():
    results = []
    for fun, maximize in ((cost_and_gain, [False, True]), (cost_and_loss, False)):
        optimizer = gx.Optimizer(BOX, "nsga2", maximize=maximize, population=12)
        for _ in range(4):
            points = optimizer.ask_generation()
            optimizer.tell(points, [np.asarray(fun(x)) for x in points])
        results.append(optimizer.best)
    assert np.array_equal(results[0].F, SIGNS * results[1].F) and results[0].knee == results[1].knee
    assert np.array_equal(results[0].history.best, SIGNS * results[1].history.best)
    with pytest.raises(gx.InputError, match="maximize has 2 entries"):
        gx.Optimizer(BOX, maximize=[False, True]).tell([0.0, 0.0], [1.0, 2.0, 3.0])


@pytest.mark.slow
def test_sweep_measures_the_same_hypervolumes():
    options = {"crossover_rate": [0.5, 0.9], "runs": 2, "generations": 4, "population": 20}
    study = gx.sweep(PROBLEM, algorithm="nsga2", maximize=[False, True], **options)
    assert np.array_equal(study.values(), gx.sweep(MINIMISED, algorithm="nsga2", **options).values())


@pytest.mark.slow
def test_the_native_kernel_maximises_as_xla_does(pair):
    result = gx.minimize(PROBLEM, maximize=[False, True], runs=2, compute=gx.Compute(engine="native"), **BUDGET)
    assert np.allclose(result.F, pair[0].F, rtol=1e-9)


def test_a_checkpoint_belongs_to_its_directions(tmp_path):
    file = tmp_path / "run.ckpt"
    gx.minimize(PROBLEM, maximize=[False, True], checkpoint=file, **BUDGET)
    with pytest.raises(gx.InputError, match="maximize"):
        gx.minimize(PROBLEM, maximize=[True, True], resume=file, **BUDGET)


def test_the_live_page_draws_objectives_as_the_user_means_them(pair):
    result, expected = pair
    assert describe_run(Facts(PROBLEM, result.settings, 20, 6, False))["settings"]["maximize"] == [False, True]
    assert "most gain" in front_points(result) and "least cost" in front_points(result)
    sample = PopulationSample(np.zeros((3, 2)), expected.F[:3], np.zeros(3), 3)
    packed = pack_frame(1, 1, 0, sample, result.signs)
    assert result.F[:3].tobytes() in packed


def test_the_shell_takes_a_direction_for_each_objective(tmp_path):
    file = tmp_path / "design.py"
    file.write_text(
        "import jax.numpy as jnp\nbounds = [(-4, 4)] * 2\n"
        "def fun(x):\n    return jnp.stack([jnp.sum(x**2), -jnp.sum((x - 2)**2)])\n"
    )
    command = ["solve", str(file), "-g", "6", "-n", "20", "--json"]
    outcome = CliRunner().invoke(app, [*command, "--directions", "min,max"])
    assert outcome.exit_code == 0, outcome.output
    assert max(json.loads(outcome.stdout)["front"]["f2"]) <= 0
    for words, sentence in (("min,up", "min or max for each objective"), ("min", "give one entry for each")):
        outcome = CliRunner().invoke(app, [*command, "--directions", words])
        assert outcome.exit_code == 2 and sentence in outcome.output.replace("\n", " ")
