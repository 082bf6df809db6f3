"""The fused engine on a GPU does what the other engine does in all that a user can ask of a run: `make test-gpu`."""

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.fused import backend as kernels
from galapax.fused import cuda, graph
from galapax.fused.array_ir import NotFusible


@pytest.fixture(scope="module", autouse=True)
def a_gpu():
    try:
        cuda.current_device()
    except NotFusible as error:
        pytest.skip(str(error))


pytestmark = pytest.mark.gpu
CENTRE = jnp.array([0.3, -0.2, 0.7])


def bowl(x):
    return jnp.sum((x - CENTRE) ** 2)


def run(engine="fused", algorithm="de", dtype="float32", polish=False, **options):
    common = {
        "population": 24,
        "seed": 5,
        "tolerance": 0,
        "progress": False,
    }
    options = {"generations": 40} | common | options
    return gx.minimize(
        bowl,
        [(-1.0, 2.0), (-3.0, 1.0), (-2.0, 2.0)],
        algorithm,
        compute=gx.Compute(engine=engine, dtype=dtype),
        polish=polish,
        **options,
    )


@pytest.mark.parametrize("population", [24, 900, 60_000], ids=["block", "cluster", "grid"])
@pytest.mark.parametrize("algorithm", ["de", "fep", "ga"])
def test_the_first_generations_are_those_of_xla(algorithm, population):
    options = {"algorithm": algorithm, "population": population, "generations": 6}
    xla, fused = run("xla", **options), run(**options)
    assert fused.engine == "fused: as asked"
    np.testing.assert_allclose(fused.history.mean, xla.history.mean, rtol=1e-3)
    np.testing.assert_allclose(fused.history.best, xla.history.best, rtol=1e-2, atol=1e-6)
    assert (fused.nfev, fused.nit) == (xla.nfev, xla.nit)


@pytest.mark.parametrize("algorithm", ["de", "fep", "ga", "lshade"])
def test_an_ensemble_of_many_runs_is_that_of_xla(algorithm):
    xla, fused = (run(e, algorithm, runs=700, generations=6) for e in ("xla", "fused"))
    np.testing.assert_allclose(fused.runs.history.mean, xla.runs.history.mean, rtol=1e-2, atol=1e-6)


def test_the_same_call_gives_the_same_result():
    first, second = run(runs=40), run(runs=40)
    np.testing.assert_array_equal(first.runs.x, second.runs.x)
    np.testing.assert_array_equal(first.runs.history.mean, second.runs.history.mean)


@pytest.mark.parametrize("population", [24, 900, 60_000], ids=["block", "cluster", "grid"])
@pytest.mark.parametrize("algorithm", ["de", "fep", "ga"])
def test_threads_that_race_would_show(algorithm, population):
    """An element that is written before all have read it, or read before it is written, differs from time to time."""
    options = {"algorithm": algorithm, "population": population, "generations": 60}
    first, second = run(**options), run(**options)
    np.testing.assert_array_equal(first.history.mean, second.history.mean)
    np.testing.assert_array_equal(first.x, second.x)


@pytest.mark.parametrize("dim", [3, 32])  # 32: a row is a warp's, which looks up several rows at once
@pytest.mark.parametrize("population", [5, 100, 401, 3001, 6400, 70_000])
@pytest.mark.parametrize("opponents", [2, 10, 40])
def test_who_stays_by_bits_is_who_stays_by_running_sums(population, opponents, dim, monkeypatch):
    algorithm = gx.FEP(population=population, opponents=min(opponents, 2 * population))
    options = {
        "seed": 5,
        "tolerance": 0,
        "polish": False,
        "progress": False,
        "generations": 15,
    }

    def solved():
        return gx.minimize(
            gx.problems.get("rastrigin", dim=dim),
            algorithm,
            compute=gx.Compute(engine="fused", dtype="float32"),
            **options,
        )

    bits = solved()
    monkeypatch.setattr(graph, "MAX_BITPLANE_POPULATION", 0)
    monkeypatch.setattr(kernels, "_kernel_cache", type(kernels._kernel_cache)())
    sums = solved()
    np.testing.assert_array_equal(bits.population, sums.population)
    np.testing.assert_array_equal(bits.history.mean, sums.history.mean)


@pytest.mark.parametrize("runs", [1, 40, 700])
@pytest.mark.parametrize("generations", [1, 31, 32, 33, 70])
def test_every_row_of_history_is_written_whenever_a_chunk_ends(runs, generations):
    xla, fused = (run(e, runs=runs, generations=generations, population=8) for e in ("xla", "fused"))
    for name in ("nfev", "best", "mean", "worst"):
        got, want = (getattr(r.history if runs == 1 else r.runs.history, name) for r in (fused, xla))
        assert got.shape == want.shape
        np.testing.assert_allclose(got[..., :5], want[..., :5], rtol=1e-3, atol=1e-6)
        assert np.isfinite(got).all() and (got[..., -1] != 0).all()
    assert (np.diff(fused.history.nfev if runs == 1 else fused.runs.history.nfev) == 8).all()


def test_the_default_takes_the_kernel():
    auto, fused = run("auto"), run("fused")
    assert auto.engine == "fused: one kernel is faster"
    np.testing.assert_array_equal(auto.x, fused.x)


def test_a_replayed_run_of_an_ensemble_is_the_same():
    for engine in ("auto", "fused"):
        several = run(engine, runs=700)
        again = several.run(13)
        np.testing.assert_array_equal(again.x, several.runs.x[13])
        np.testing.assert_array_equal(again.history.mean, several.runs.history.mean[13])


def test_the_default_search_is_made_by_kernels():
    """CMA-ES that restarts, and L-SHADE between."""
    found = gx.minimize(bowl, [(-1.0, 2.0), (-3.0, 1.0), (-2.0, 2.0)], max_evaluations=3000, seed=1, polish=False)
    assert found.engine == "fused: one kernel is faster"
    assert found.fun < 1e-6


def test_a_run_of_an_ensemble_is_the_one_made_alone():
    several, alone = run(runs=3), run(runs=range(2, 3))
    np.testing.assert_array_equal(several.runs.x[2], alone.x)


@pytest.mark.parametrize("algorithm", ["de", "fep", "ga"])
def test_cut_into_chunks_it_is_the_same_run(algorithm):
    """A snapshot ends a chunk, and so does a callback that a long chunk would keep waiting."""
    whole, cut = run(algorithm=algorithm), run(algorithm=algorithm, keep=gx.Keep(snapshots=[1, 2, 7, 33, 39]))
    np.testing.assert_array_equal(whole.x, cut.x)
    np.testing.assert_array_equal(whole.history.mean, cut.history.mean)
    assert sorted(cut.snapshots) == [1, 2, 7, 33, 39]


def test_callbacks_see_what_was_made_and_can_stop_it():
    seen = []
    whole = run(generations=3000, callback=lambda p: seen.append((p.generation, p.fun)))
    assert seen[-1] == (3000, whole.fun)
    assert [g for g, _ in seen] == sorted({g for g, _ in seen})
    stopped = run(generations=10**7, callback=lambda p: True)
    assert stopped.nit < 10**7
    assert stopped.nit == len(stopped.history.best)


def test_a_checkpoint_goes_on_where_it_stood(tmp_path):
    whole = run(keep=gx.Keep(snapshots=[15]))
    stopped = run(callback=lambda p: p.generation >= 15, checkpoint=tmp_path / "run", keep=gx.Keep(snapshots=[15]))
    assert stopped.nit == 15
    resumed = run(checkpoint=tmp_path / "run", resume=True, keep=gx.Keep(snapshots=[15]))
    np.testing.assert_array_equal(resumed.x, whole.x)
    np.testing.assert_array_equal(resumed.history.mean, whole.history.mean)


def test_each_run_stops_at_its_target_inside_the_kernel():
    xla, fused = (run(e, runs=30, target=1e-4, generations=400) for e in ("xla", "fused"))
    assert fused.runs.success.all()
    assert len(set(fused.runs.nit)) > 1
    assert (np.asarray(fused.runs.fun) <= 1e-4).all()
    np.testing.assert_allclose(np.mean(fused.runs.nit), np.mean(xla.runs.nit), rtol=0.1)
    for row, nit in zip(fused.runs.history.best, fused.runs.nit, strict=True):
        assert (np.asarray(row)[: nit - 1] > 1e-4).all()


def test_budgets_of_evaluations_hold():
    xla, fused = (run(e, max_evaluations=24 * 17, generations=None) for e in ("xla", "fused"))
    assert (fused.nfev, fused.nit) == (xla.nfev, xla.nit)


def test_a_time_limit_holds():
    late = run(generations=10**8, max_seconds=0.5, keep=gx.Keep(history=False))  # which would take minutes
    assert 0 < late.nit < 10**8
    assert "time limit" in late.message


def test_hyper_parameters_and_settings_of_each_run_are_its_own():
    box = [(-1.0, 2.0), (-3.0, 1.0), (-2.0, 2.0)]
    options = {
        "weight": [0.3, 0.9],
        "runs": 5,
        "generations": 6,
        "tolerance": 0,
        "seed": 1,
    }
    cells = [
        gx.sweep(bowl, box, gx.DE(population=24), compute=gx.Compute(engine=e, dtype="float32"), **options)
        for e in ("xla", "fused")
    ]
    for xla, fused in zip(cells[0].results, cells[1].results, strict=True):
        np.testing.assert_allclose(fused.runs.history.mean, xla.runs.history.mean, rtol=1e-2, atol=1e-6)


def test_failures_are_counted_and_never_win():
    def fails(x):
        return jnp.where(x[0] > 0.5, jnp.nan, bowl(x))

    options = {
        "generations": 6,
        "population": 24,
        "seed": 5,
        "tolerance": 0,
        "polish": False,
    }
    xla, fused = (
        gx.minimize(fails, [(-1.0, 2.0)] * 3, "de", compute=gx.Compute(engine=e, dtype="float32"), **options)
        for e in ("xla", "fused")
    )
    assert fused.n_failed == xla.n_failed > 0
    assert np.isfinite(fused.fun)
