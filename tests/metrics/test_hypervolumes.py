"""Hypervolumes in JAX against moocore's, and what runs with three and more objectives make of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.problem import Columns, Record, Shape
from galapax.metrics import indicators
from galapax.numerics import devices
from galapax.storage import export

exact = jax.jit(indicators.hypervolume_3d)
estimate = jax.jit(indicators.hypervolume_estimate, static_argnames=("directions",))


def fronts(m, n, rng):
    """Spread on a sphere, a cloud with dominated points, a grid full of ties, copies, and points beyond the corner."""
    sphere = np.abs(rng.normal(size=(n, m)))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    cloud = rng.random((n, m))
    return {
        "sphere": sphere,
        "cloud": cloud,
        "ties": rng.integers(0, 4, (n, m)) / 4,
        "copies": np.concatenate([sphere[: n // 2], sphere[: n - n // 2]]),
        "beyond": 2 * cloud,
        "one": np.tile(cloud[:1], (n, 1)),
    }


@pytest.mark.parametrize("form", ["turns", "tiles"])
def test_three_objectives_are_measured_exactly(form, monkeypatch):
    rng = np.random.default_rng(0)
    measure = exact
    if form == "tiles":
        monkeypatch.setattr(devices, "on_cpu", lambda: False)
        monkeypatch.setattr(indicators, "MAX_HYPERVOLUME_PAIRS", 7 * 40)
        measure = jax.jit(lambda f, r: indicators.hypervolume_3d(f, r))
    with jax.enable_x64(True):
        for name, front in fronts(3, 40, rng).items():
            corner = np.array([1.1, 1.0, 1.2])
            assert float(measure(front, corner)) == pytest.approx(indicators.volume(front, corner), rel=1e-12), name


@pytest.mark.slow
def test_rows_that_failed_or_do_not_count_add_nothing():
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        front, corner = fronts(3, 40, rng)["sphere"], np.ones(3) * 1.1
        counted = rng.random(40) < 0.5
        broken = np.where(rng.random((40, 1)) < 0.2, [np.nan, 0.0, 0.0], front)
        sound = np.isfinite(broken).all(axis=1) & counted
        expected = indicators.volume(front[sound], corner)
        assert float(indicators.hypervolume_3d(broken, corner, counted)) == pytest.approx(expected, rel=1e-12)
        nothing = np.zeros(40, bool)
        assert float(indicators.hypervolume_3d(front, corner, nothing)) == 0
        assert [float(v) for v in indicators.hypervolume_estimate(front, corner, nothing)] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("m", [4, 2, 7])
def test_an_estimate_is_off_by_as_much_as_it_says(m):
    """z-scores over 60 seeds: a mean within 4 of its standard errors of 0, and a spread between 0.75 and 1.3 (the
    95 % range of 60 normal draws is 0.82 to 1.18)."""
    rng = np.random.default_rng(m)
    front, corner = fronts(m, 30, rng)["sphere"] * np.arange(1, m + 1), 1.2 * np.arange(1, m + 1)
    with jax.enable_x64(True):
        truth = indicators.volume(front, corner)
        found = jax.vmap(lambda seed: _seeded(front, corner, seed))(jnp.arange(60))
        z = (np.asarray(found[0]) - truth) / np.asarray(found[1])
    assert abs(z.mean()) < 4 / np.sqrt(60)
    assert 0.75 < z.std() < 1.3
    assert np.mean(np.asarray(found[1])) < 0.1 * truth


def _seeded(front, corner, seed):
    """As `hypervolume_estimate`, with a key that vmap can vary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indicators.random, "root_key", lambda given: jnp.stack([jnp.uint32(given), jnp.uint32(7)]))
        return indicators.hypervolume_estimate(front, corner, seed=seed, directions=512)


@pytest.mark.slow
def test_both_forms_of_an_estimate_agree(monkeypatch):
    front, corner = fronts(5, 50, np.random.default_rng(3))["cloud"], np.full(5, 1.1)
    with jax.enable_x64(True):
        turns = estimate(front, corner)
        monkeypatch.setattr(devices, "on_cpu", lambda: False)
        monkeypatch.setattr(indicators, "MAX_HYPERVOLUME_REDUCTION", 16)
        tiles = indicators.hypervolume_estimate(front, corner)
    np.testing.assert_allclose(turns, tiles, rtol=1e-6)  # normal draws differ when compiled


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(gx.InputError, match="of 3 objectives"):
        indicators.hypervolume_3d(np.zeros((4, 2)), [1.0, 1.0, 1.0])


def test_runs_with_three_objectives_follow_the_exact_volume():
    problem = gx.problems.get("dtlz2", dim=5)
    options = {"generations": 12, "progress": False, "runs": 2, "compute": gx.Compute(dtype="float64")}
    result = gx.minimize(problem, gx.NSGA3(), keep=gx.Keep(snapshots=[3, 12]), polish=False, **options)
    assert result.history.hypervolume.shape == (12,) and len(result.runs.hypervolume) == 2
    for r, front in enumerate(result.runs.fronts):
        assert result.runs.hypervolume[r] == pytest.approx(indicators.hypervolume(front.F, [1.1] * 3), rel=1e-12)
    measured = indicators.by_generation(result)["hypervolume"]
    np.testing.assert_allclose(measured[:, 0], result.runs.history.hypervolume[:, 2], rtol=1e-12)


@pytest.mark.slow
def test_a_target_of_three_objectives_is_a_hypervolume():
    problem = gx.problems.get("dtlz2", dim=5)
    options = {"generations": 12, "progress": False, "runs": 2, "compute": gx.Compute(dtype="float64")}
    goal = float(gx.minimize(problem, gx.NSGA3(), polish=False, **options).runs.history.hypervolume[:, 5].max())
    reached = gx.minimize(problem, gx.NSGA3(), target=goal, polish=False, **options)
    assert reached.success and reached.hypervolume >= goal and reached.runs.nit.min() == 6


@pytest.mark.slow
def test_runs_with_five_objectives_follow_an_estimate_and_keep_its_error(tmp_path):
    problem = gx.problems.get("dtlz2", objectives=5, dim=7)
    result = gx.minimize(
        problem,
        gx.NSGA3(population=40),
        generations=8,
        progress=False,
        keep=gx.Keep(history="x"),
        compute=gx.Compute(dtype="float64"),
        polish=False,
    )
    with jax.enable_x64(True):
        found, error = (float(v) for v in indicators.hypervolume_estimate(result.F, [1.1] * 5))
    assert result.hypervolume == pytest.approx(found, rel=1e-6)
    assert result.hypervolume == result.history.hypervolume[-1]
    assert abs(found - indicators.hypervolume(result.F, [1.1] * 5)) < 4 * error < 0.2 * found
    assert result.hypervolume_error == result.history.hypervolume_error[-1] == pytest.approx(error, rel=1e-6)
    assert result.history.x.shape == (8, 7) and (result.history.hypervolume_error > 0).all()
    loaded = gx.load(result.save(tmp_path / "run"))
    assert loaded.hypervolume_error == result.hypervolume_error
    for name in ("hypervolume", "hypervolume_error", "x", "best"):
        np.testing.assert_array_equal(getattr(loaded.history, name), getattr(result.history, name))
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"± {1.96 * error:.2g} with 95 % confidence" in page and '"name":"95 % interval"' in page


@pytest.mark.parametrize("m", [2, 3, 4, 5])
@pytest.mark.parametrize("x", [0, 2])
def test_a_record_has_room_for_the_error_of_an_estimate(m, x):
    columns = Columns(Shape(objectives=m), True, x)
    estimated, values = m > 3, jnp.arange(float(m))
    record = Record(1.0, 2.0, 3.0, values, values + 10, values + 20, hypervolume=7.0,
                    hypervolume_error=0.5 if estimated else None, x=jnp.ones(x) if x else None)  # fmt: skip
    row = record.pack(jnp.float32)
    back = Record.unpack(row, columns)
    assert row.shape == (columns.width,) and back.hypervolume == 7
    assert (back.hypervolume_error == 0.5) if estimated else back.hypervolume_error is None
    assert (back.x is None) == (x == 0)


def test_the_error_of_an_estimate_has_a_column():
    rng = np.random.default_rng(0)
    estimates = {"hypervolume": rng.random(6), "hypervolume_error": rng.random(6)}
    history = gx.History(
        np.arange(1, 7), 10 * np.arange(1, 7), *rng.random((3, 6, 4)), x=rng.random((6, 2)), **estimates
    )
    table = export.history_table(history, ["a", "b"], list("wxyz"))
    for name, values in estimates.items():
        np.testing.assert_array_equal(table.rows[:, table.names.index(name)], values)
    np.testing.assert_array_equal(table.rows[:, table.first_variable :], history.x)
