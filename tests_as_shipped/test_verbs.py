"""One small call of each verb and of each engine, black boxes with workers among them."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.numerics import devices

BOX = [(-2.0, 3.0)] * 3


def bowl(x):
    return jnp.sum((x - 0.5) ** 2)


def call_bowl(x):
    return float(np.sum((x - 0.5) ** 2))


def test_minimize_converges_and_load_gives_back_what_was_saved(tmp_path):
    result = gx.minimize(bowl, BOX)
    assert result.success and result.fun < 1e-12 and result.feasible
    loaded = gx.load(result.save(tmp_path / "run"))
    assert loaded.fun == result.fun and np.array_equal(loaded.x, result.x) and loaded.nfev == result.nfev
    assert "<html" in (tmp_path / "run/report.html").read_text(encoding="utf-8")


def test_minimax_finds_the_saddle():
    result = gx.minimax(lambda x, y: (x[0] - 0.5) ** 2 - (y[0] - x[0]) ** 2, [(-1, 2)], [(-1, 2)], generations=100)
    assert abs(result.x[0] - 0.5) < 1e-2 and abs(result.worst_case) < 1e-3


def test_sweep_has_a_cell_for_each_combination(tmp_path):
    study = gx.sweep(bowl, BOX, gx.DE, weight=[0.4, 0.8], population=12, runs=4, generations=40)
    assert len(study.results) == 2 and all(cell.fun < 0.1 for cell in study.results)
    assert gx.load(study.save(tmp_path / "study")).labels == study.labels


def test_compare_runs_every_algorithm_on_every_problem():
    study = gx.compare(["branin"], ["de", "random"], runs=4, max_evaluations=800)
    assert len(study.results) == 2 and {len(cell.runs) for cell in study.results} == {4}


def test_optimizer_makes_the_run_of_minimize():
    optimizer = gx.Optimizer(BOX, "de", population=16, seed=0)
    for _ in range(30):
        x = optimizer.ask_generation()
        optimizer.tell(x, ((x - 0.5) ** 2).sum(axis=1))
    result = gx.minimize(call_bowl, BOX, "de", population=16, generations=30, seed=0, blackbox=True)
    assert abs(optimizer.best.fun - result.fun) < 1e-12


def test_a_run_of_an_ensemble_is_repeated_to_the_bit():
    result = gx.minimize(bowl, BOX, "de", population=16, generations=30, runs=100, compute=gx.Compute(engine="xla"))
    again = result.run(17)
    assert np.array_equal(again.x, result.runs.x[17]) and again.fun == result.runs.fun[17]


@pytest.mark.parametrize("engine", ["xla", "native", "fused"])
def test_engine(engine):
    if engine == "native" and not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        pytest.skip("needs a C compiler")
    if engine == "fused" and devices.platform() not in ("gpu", "cuda"):
        pytest.skip("needs an NVIDIA GPU")
    result = gx.minimize(
        bowl, BOX, "de", population=32, generations=150, runs=20, compute=gx.Compute(engine=engine, dtype="float32")
    )
    assert result.fun < 1e-6 and result.engine.startswith(engine), result.engine


def test_a_black_box_is_the_same_run_with_workers():
    calls = {"population": 16, "generations": 12, "seed": 3}
    alone = gx.minimize(call_bowl, BOX, "de", blackbox=True, **calls)
    shared = gx.minimize(call_bowl, BOX, "de", workers=2, **calls)
    assert np.array_equal(shared.x, alone.x) and (shared.fun, shared.nfev) == (alone.fun, alone.nfev)
    assert shared.n_failed == 0


def test_what_a_worker_raises_is_counted_and_never_the_best():
    def fail_on_the_left(x):
        if x[0] < 0:
            raise ValueError("left")
        return call_bowl(x)

    result = gx.minimize(fail_on_the_left, BOX, "de", workers=2, population=16, generations=5, on_failure="worst")
    assert result.n_failed > 0 and result.x[0] >= 0 and "left" in str(result.failures[0].error)
