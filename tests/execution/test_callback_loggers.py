"""Callbacks: what they can read, when they are called, and the loggers, with real stores on disk."""

import logging

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx

BOX = [(-5, 5)] * 3


def bowl(x):
    return jnp.sum((x - 0.3) ** 2)


def collect(read, **settings):
    seen = []
    result = gx.minimize(**settings, callback=lambda progress: seen.append(read(progress)))
    return seen, result


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "de", "generations": 30},
        {"algorithm": "de", "generations": 30, "runs": 6},
        {"algorithm": "de", "generations": 30, "runs": 3, "islands": 2},
        {"max_evaluations": 3000},
        {"algorithm": "cmaes", "restarts": "plain", "max_evaluations": 6000, "runs": 2},
    ],
    ids=["one run", "runs", "islands", "default", "restarts"],
)
def test_x_is_the_point_of_fun(settings):
    seen, _ = collect(lambda p: (p.fun, p.x), fun=bowl, bounds=BOX, polish=False, **settings)
    for fun, x in seen:
        assert fun == pytest.approx(float(np.sum((x - 0.3) ** 2)), rel=1e-6, abs=1e-14)


def test_params_are_named_values_as_functions_get_them():
    space = {"width": gx.real(0.1, 10, log=True), "grade": gx.choice("soft", "hard"), "n": gx.integer(1, 9)}

    def strength(width, grade, n):
        return (width - 2) ** 2 + (grade == 1) + n

    seen, result = collect(
        lambda p: (p.fun, p.params), fun=lambda p: strength(**p), bounds=space, generations=20, maximize=True
    )
    assert seen[-1][1] == result.params
    for fun, params in seen:
        grade = ["soft", "hard"].index(params["grade"])
        assert fun == pytest.approx(strength(params["width"], grade, params["n"]))


def test_a_black_box_that_fails_everywhere_has_no_x_yet():
    calls = []

    def fails_at_first(x):
        calls.append(x)
        return float("nan") if len(calls) <= 10 else float(np.sum(x**2))

    seen, _ = collect(
        lambda p: p.x, fun=fails_at_first, bounds=BOX, algorithm="de", population=8, generations=4, blackbox=True
    )
    assert seen[0] is None and seen[-1] is not None


def test_the_front_of_several_objectives_can_be_read():
    def two(x):
        return jnp.array([jnp.sum(x**2), jnp.sum((x - 1) ** 2)])

    seen, result = collect(
        lambda p: (p.X, p.F, p.x), fun=two, bounds=BOX, algorithm="nsga2", population=20, generations=15
    )
    X, F, x = seen[-1]
    assert x is None and np.array_equal(F, result.F) and np.array_equal(X, result.X)


def test_x_is_refused_after_the_callback():
    kept = []
    gx.minimize(bowl, BOX, "de", generations=3, callback=kept.append)
    with pytest.raises(RuntimeError, match="inside the callback"):
        _ = kept[0].x


def test_a_callback_that_reads_x_changes_no_run():
    settings = {"fun": bowl, "bounds": BOX, "algorithm": "de", "generations": 25, "seed": 3}
    assert np.array_equal(collect(lambda p: p.x, **settings)[1].x, gx.minimize(**settings).x)


def test_stop_iteration_stops_the_run():
    def enough(progress):
        if progress.generation >= 5:
            raise StopIteration

    result = gx.minimize(bowl, BOX, "de", callback=gx.callbacks.Every(enough, generations=1))
    assert result.nit == 5 and "callback" in result.message


@pytest.mark.parametrize("restarts", [None, "plain"])
def test_every_so_many_generations_is_kept_to(restarts):
    seen = []
    every = gx.callbacks.Every(lambda p: seen.append(p.generation), generations=7)
    gx.minimize(bowl, BOX, "cmaes", restarts=restarts, generations=400, tolerance=1e-3, callback=every)
    assert seen[:3] == [7, 14, 21] and all(generation % 7 == 0 for generation in seen)


def test_every_so_many_seconds_calls_at_once_and_then_waits():
    seen = []
    every = gx.callbacks.Every(lambda p: seen.append(p.generation), seconds=3600)
    gx.minimize(bowl, BOX, "de", generations=50, callback=every)
    assert len(seen) == 1


@pytest.mark.parametrize("pace", [{}, {"generations": 3, "seconds": 1.0}, {"generations": 0}])
def test_a_pace_that_is_none_is_refused(pace):
    with pytest.raises(gx.InputError):
        gx.callbacks.Every(print, **pace)


def run_with(callback, **settings):
    space = {"a": gx.real(-1, 1), "kind": gx.choice("p", "q")}
    every = gx.callbacks.Every(callback, generations=10)
    return gx.minimize(
        lambda p: p["a"] ** 2 + p["kind"], space, "de", generations=30, polish=False, callback=every, **settings
    )


def test_mlflow_stores_metrics_and_labels(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is in the extra plugins")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'runs.db'}")
    mlflow.set_experiment("springs")
    with mlflow.start_run() as run:
        result = run_with(gx.callbacks.MLflow(prefix="search/"))
    client = mlflow.MlflowClient()
    history = client.get_metric_history(run.info.run_id, "search/fun")
    assert [m.step for m in history] == [10, 20, 30] and history[-1].value == pytest.approx(result.fun)
    stored = client.get_run(run.info.run_id).data
    assert stored.metrics["search/x/a"] == pytest.approx(result.params["a"])
    assert stored.tags["search/x/kind"] == "p"


def test_tensorboard_reads_the_scalars(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is in the extra plugins")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run_with(gx.callbacks.TensorBoard(tmp_path))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {"fun", "nfev", "x/a"} <= set(events.Tags()["scalars"])
    assert [e.step for e in events.Scalars("fun")] == [10, 20, 30]
    assert events.Scalars("fun")[-1].value == pytest.approx(result.fun, rel=1e-6)


def test_wandb_logs_to_a_run(tmp_path):
    wandb = pytest.importorskip("wandb", reason="wandb is in the extra plugins")
    logger = gx.callbacks.WandB(mode="offline", dir=str(tmp_path), project="springs")
    try:
        result = run_with(logger)
        with pytest.raises(gx.InputError, match="one is active"):
            gx.callbacks.WandB(project="another")
        stored = dict(wandb.run.summary)
    finally:
        wandb.finish()
    assert list(tmp_path.rglob("run-*.wandb"))
    assert stored["fun"] >= result.fun and stored["x/kind"] == "p" and stored["_step"] in (20, 30)


def test_python_logging_gets_a_line(caplog):
    with caplog.at_level(logging.INFO, logger="springs"):
        run_with(gx.callbacks.Logging("springs"))
    assert [record.args[0] for record in caplog.records] == [10, 20, 30]
    assert caplog.messages[0].startswith("generation 10: best ")


def test_numbers_that_are_not_finite_are_not_logged():
    progress = gx.Progress(1, None, 8, float("nan"), float("inf"), 0, 1, 0.5, read_best=lambda: None)
    assert "fun" not in gx.callbacks.measure_progress(progress, params=False)
