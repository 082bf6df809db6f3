"""galapax as a sampler of Optuna, against the real package."""

import math

import numpy as np
import pytest

import galapax as gx

optuna = pytest.importorskip("optuna", reason="optuna is in the extra plugins")
pytest_samplers = pytest.importorskip(
    "optuna.testing.pytest_samplers", reason="this version of Optuna does not ship its tests of samplers"
)
from optuna.trial import TrialState  # noqa: E402

from galapax.compat.optuna import ATTRIBUTE, EXTRA, GalapaxSampler  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


class TestOptunasOwnRequirements(pytest_samplers.BasicSamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return GalapaxSampler


@pytest.mark.slow
class TestOptunasRequirementsOnRelativeSamplers(
    pytest_samplers.RelativeSamplerTestCase, pytest_samplers.MultiObjectiveSamplerTestCase
):
    @pytest.fixture
    def sampler(self):
        return GalapaxSampler


def sphere(trial):
    return sum((trial.suggest_float(f"x{i}", -5, 5) - 1.3) ** 2 for i in range(3))


def mixed(trial):
    rate = trial.suggest_float("rate", 1e-5, 1.0, log=True)
    units = trial.suggest_int("units", 1, 512, log=True)
    layers = trial.suggest_int("layers", 2, 20, step=2)
    dropout = trial.suggest_float("dropout", 0.0, 0.9, step=0.05)
    kind = trial.suggest_categorical("kind", ["relu", None, True])
    away = (math.log10(rate) + 2) ** 2 + (math.log2(units) - 6) ** 2 + (layers - 8) ** 2 / 4 + (dropout - 0.35) ** 2
    return away + (kind is not True)


def run(objective, trials, *, directions=("minimize",), storage=None, n_jobs=1, **settings):
    study = optuna.create_study(
        directions=list(directions), sampler=GalapaxSampler(**settings), storage=storage, study_name="s",
        load_if_exists=True,
    )  # fmt: skip
    study.optimize(objective, n_trials=trials, n_jobs=n_jobs)
    return study


def params(study):
    return [t.params for t in study.trials]


def rows(study):
    return [t.system_attrs.get(ATTRIBUTE, (None, None, EXTRA))[2] for t in study.trials]


def test_two_lines_find_a_minimum_that_random_search_does_not():
    assert run(sphere, 100, seed=1).best_value < 1e-4


def test_models_choose_the_trials_where_some_parameters_are_integers_and_categories():
    def objective(trial):
        x, k = trial.suggest_float("x", -5, 5), trial.suggest_int("k", 0, 9)
        return (x - 1) ** 2 + k + (trial.suggest_categorical("c", ["a", "b", "d"]) == "a")

    assert np.median([run(objective, 60, seed=seed).best_value for seed in range(3)]) < 1e-6


def test_every_kind_of_parameter_is_optimised():
    study = run(mixed, 200, seed=1, n_trials=200)
    assert study.best_value < 0.5
    assert study.best_params["kind"] is True and study.best_params["layers"] % 2 == 0


@pytest.mark.parametrize("objective", [sphere, mixed])
def test_the_seed_repeats_a_study(objective):
    assert params(run(objective, 40, seed=3)) == params(run(objective, 40, seed=3))
    assert params(run(objective, 40, seed=3)) != params(run(objective, 40, seed=4))


def test_another_session_continues_the_search_from_the_storage(tmp_path):
    """The search is computed again from the trials, also where no seed was given."""
    space = {f"x{i}": optuna.distributions.FloatDistribution(-5, 5) for i in range(3)}
    settings = {"algorithm": "de", "population": 8, "search_space": space}
    whole = run(sphere, 42, seed=3, **settings)
    for seed in (3, None):
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / f"{seed}"))
        for _ in range(3):
            study = run(sphere, 14, seed=seed, storage=optuna.storages.JournalStorage(backend), **settings)
        assert rows(study) == rows(whole)
        assert (params(study) == params(whole)) == (seed == 3)


def test_maximising_is_minimising_with_another_sign():
    down = run(sphere, 40, seed=2)
    up = run(lambda trial: -sphere(trial), 40, seed=2, directions=["maximize"])
    assert params(down) == params(up)


@pytest.mark.parametrize("how", ["constraints_func", "set_constraint"])
def test_constraints_are_met(how):
    if how == "set_constraint" and not hasattr(optuna.trial.Trial, "set_constraint"):
        pytest.skip("Optuna has set_constraint since version 5")

    def objective(trial):
        x, y = (trial.suggest_float(name, -2, 2) for name in "xy")
        if how == "set_constraint":
            trial.set_constraint("sum", 1 - x - y)
        return x**2 + y**2

    func = (lambda t: [1 - t.params["x"] - t.params["y"]]) if how == "constraints_func" else None
    study = run(objective, 200, seed=1, constraints_func=func)
    x, y = study.best_params["x"], study.best_params["y"]
    assert x + y >= 1 and study.best_value == pytest.approx(0.5, abs=0.02)


def test_two_objectives_have_a_better_front_than_random_search():
    def objective(trial):
        x = [trial.suggest_float(f"x{i}", 0, 1) for i in range(5)]
        g = 1 + 9 * sum(x[1:]) / 4
        return x[0], g * (1 - math.sqrt(x[0] / g))

    ours = run(objective, 60, seed=1, n_trials=60, directions=["minimize", "minimize"])
    random = optuna.create_study(directions=["minimize", "minimize"], sampler=optuna.samplers.RandomSampler(seed=1))
    random.optimize(objective, n_trials=60)
    fronts = [np.array([t.values for t in study.best_trials]) for study in (ours, random)]
    ours, theirs = (gx.indicators.hypervolume(front, [1.01, 10.0]) for front in fronts)
    assert ours > theirs + 0.2 * (10.1 - 1 / 3 - theirs)  # of the volume that random search misses


def test_jobs_evaluate_the_points_of_one_search():
    study = run(sphere, 80, seed=1, n_jobs=4, population=12)
    claims = [tuple(t.system_attrs[ATTRIBUTE]) for t in study.trials if ATTRIBUTE in t.system_attrs]
    points = [claim for claim in claims if claim[2] != EXTRA]
    assert len(set(points)) == len(points) > 50  # each once
    assert max(number for _, number, _ in points) >= 4


def test_a_trial_that_never_ends_does_not_stop_the_search():
    study = run(sphere, 3, seed=1, algorithm="de", population=8)
    dead = study.ask()
    sphere(dead)
    study.optimize(sphere, n_trials=40)
    search, number, row = study.trials[dead.number].system_attrs[ATTRIBUTE]
    again = [t for t in study.trials if t.system_attrs.get(ATTRIBUTE) == [search, number, row]]
    assert len(again) == 2 and again[0].params == again[1].params
    assert study.trials[-1].system_attrs[ATTRIBUTE][1] > number


def test_a_search_starts_from_enqueued_trials_without_evaluating_them_again():
    study = optuna.create_study(sampler=GalapaxSampler("de", population=8, seed=1))
    study.enqueue_trial({f"x{i}": 1.25 for i in range(3)})
    study.optimize(sphere, n_trials=8)
    assert [t.params["x0"] == 1.25 for t in study.trials] == [True] + [False] * 7
    study.optimize(sphere, n_trials=1)
    assert study.trials[-1].system_attrs[ATTRIBUTE][1] == 1  # the first generation is complete


def test_models_learn_from_all_trials_that_were_there_before():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(sphere, n_trials=12)
    study.sampler = GalapaxSampler(seed=1)
    study.optimize(sphere, n_trials=8)
    assert study.best_value < 0.01


def test_parameters_that_some_trials_lack_are_sampled_independently():
    def objective(trial):
        x = trial.suggest_float("x", -5, 5)
        return x**2 + (trial.suggest_float("y", 0, 1) if trial.suggest_categorical("deep", [True, False]) else 0.5)

    study = run(objective, 60, seed=1)
    assert study.best_value < 0.5 and {len(p) for p in params(study)} == {2, 3}


def test_failed_and_pruned_trials_do_not_stop_a_generation():
    def objective(trial):
        value = sphere(trial)
        if trial.number % 5 == 1:
            return math.nan
        if trial.number % 5 == 2:
            trial.report(value, 1)
            raise optuna.TrialPruned
        return value

    study = run(objective, 60, seed=1, algorithm="de", population=6)
    assert {t.state for t in study.trials} == {TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED}
    assert study.trials[-1].system_attrs[ATTRIBUTE][1] == 9 and EXTRA not in rows(study)[1:]


def test_an_algorithm_for_another_number_of_objectives_is_refused():
    with pytest.raises(gx.InputError, match="NSGA2 is for several: choose another algorithm"):
        run(sphere, 3, algorithm="nsga2")
    with pytest.raises(gx.InputError, match="no algorithm called 'tpe'"):
        GalapaxSampler("tpe")
