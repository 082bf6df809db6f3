"""History that stays on an accelerator until somebody asks for it."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.execution import host_loop, state
from galapax.numerics import devices

BOX = [(-2.0, 3.0)] * 2


def valley(x):
    return jnp.sum((x - 0.4) ** 2)


def solve(polish=False, **options):
    return gx.minimize(valley, BOX, "de", population=8, generations=30, runs=64, seed=2, polish=polish, **options)


@pytest.fixture
def left(monkeypatch):
    """Every chunk stays where it is; what was fetched is counted."""
    fetched = []
    rows = state.DeviceChunk.rows.fget

    def noted(kept):
        fetched.append(kept.length)
        return rows(kept)

    monkeypatch.setattr(state.DeviceChunk, "rows", property(noted))
    monkeypatch.setattr(host_loop, "keep_on_device", lambda latest, earlier: True)
    return fetched


def same(one, other):
    names = ("generation", "nfev", "best", "mean", "worst")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("options", [{"tolerance": 0}, {"target": 0.01}], ids=["all generations", "to a target"])
def test_history_is_fetched_once_and_only_when_it_is_read(left, monkeypatch, options):
    result = solve(**options)
    assert not left  # not even for the best run's
    alone, whole = result.history, result.runs.history
    assert sum(left) >= result.runs.nit.max() and result.runs.history is whole
    number = len(left)
    assert pickle.loads(pickle.dumps(result.runs)).history.best.shape == whole.best.shape and len(left) == number
    monkeypatch.undo()
    at_once = solve(**options)
    assert same(alone, at_once.history) and same(whole, at_once.runs.history)
    if "target" in options:
        assert len(set(result.runs.nit)) > 1


def test_what_is_pickled_or_saved_has_it(left, tmp_path):
    assert pickle.loads(pickle.dumps(solve().runs)).history.best.shape[0] == 64
    result = solve()
    result.save(tmp_path / "run")
    assert same(gx.load(tmp_path / "run").runs.history, result.runs.history)


def test_a_checkpoint_and_a_polish_have_it(left, tmp_path):
    whole = solve(polish=True, tolerance=0)
    again = solve(polish=True, tolerance=0, checkpoint=gx.Checkpoint(tmp_path / "run.ckpt", generations=5))
    assert left and same(whole.runs.history, again.runs.history)


def test_little_is_fetched_at_once_and_much_where_there_is_no_room(monkeypatch):
    chunk = [[jnp.zeros((4, 3, 10))]]
    monkeypatch.setattr(devices, "on_cpu", lambda: False)
    monkeypatch.setattr(devices, "free_memory", lambda: 10**9)
    assert not state.keep_on_device(chunk, [])
    monkeypatch.setattr(state, "MAX_BYTES_FETCHED_AT_ONCE", 100)
    kept = state.DeviceChunk(chunk[0], 3)
    assert state.keep_on_device(chunk, [[kept]]) and kept.rows.shape == (3, 3, 10)
    assert not state.keep_on_device(chunk, [[kept] * 10**6])  # with those before, too much
    monkeypatch.setattr(devices, "free_memory", lambda: 10**3)
    assert not state.keep_on_device(chunk, [])


def test_a_history_belongs_to_the_user():
    """What comes from a device is not to be written to; a chunk of just the right length is not copied."""
    history = gx.minimize(valley, BOX, "de", generations=64, population=8, runs=2, seed=2, polish=False).runs.history
    history.best[:] = history.mean[:] = 0
