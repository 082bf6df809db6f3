"""Limits of memory: known before the run where they can be, and halved where they were not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.engines.xla import Xla
from galapax.numerics import devices

BOX = [(-1.0, 1.0)] * 2


def bowl(x):
    return jnp.sum(x**2)


def test_free_memory_is_what_the_system_would_give(tmp_path):
    with open("/proc/meminfo") as lines:
        known = dict(line.split(":") for line in lines)
    available = int(known["MemAvailable"].split()[0]) * 1024
    assert devices._of_the_machine() == pytest.approx(available, rel=0.2)
    assert 0 < devices.host_memory() <= 1.2 * available


@pytest.mark.parametrize("version", [1, 2])
def test_a_control_group_limits_what_can_be_had(tmp_path, version):
    root, own = tmp_path / "cgroup", tmp_path / "self"
    inner = root / "memory/a/b" if version == 1 else root / "a/b"
    inner.mkdir(parents=True)
    limit, used, cached = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        if version == 1
        else ("memory.max", "memory.current", "inactive_file")
    )
    own.write_text("4:memory:/a/b\n2:cpu:/x\n" if version == 1 else "0::/a/b\n")
    (inner / limit).write_text("max\n")
    assert devices._of_its_groups(str(root), str(own)) == []
    (inner.parent / limit).write_text("1000\n")
    (inner.parent / used).write_text("700\n")
    (inner.parent / "memory.stat").write_text(f"anon 5\n{cached} 200\n")
    assert devices._of_its_groups(str(root), str(own)) == [500]
    assert devices._of_its_groups(str(root), str(tmp_path / "none")) == []


def test_snapshots_and_black_boxes_that_do_not_fit_are_refused_before_the_run(monkeypatch):
    calls = []
    monkeypatch.setattr(devices, "host_memory", lambda: 10**7)
    monkeypatch.setattr(devices, "free_memory", lambda: 10**7)
    with pytest.raises(gx.InputError, match=r"snapshots of 1 x 1000 individuals take .* GiB"):
        gx.minimize(bowl, BOX, "de", population=1000, generations=10**6, snapshots=range(1, 10**6))
    with pytest.raises(gx.InputError, match="one run with a population of 1000000 needs"):
        gx.minimize(calls.append, BOX, "de", population=10**6, generations=2, blackbox=True)
    assert not calls


class Small:
    """A device that runs out of memory with more than so many slices at once."""

    def __init__(self, monkeypatch, slices):
        advance, self.tried = Xla.advance, []

        def limited(engine, parts, first, count):
            self.tried.append(len(parts))
            if len(parts) > slices:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 81 GiB.")
            return advance(engine, parts, first, count)

        monkeypatch.setattr(Xla, "advance", limited)


@pytest.mark.skipif(not devices.on_cpu(), reason="on an accelerator a slice is as large as memory allows")
def test_a_batch_that_runs_out_of_memory_is_halved_and_the_runs_are_the_same(monkeypatch, tmp_path):
    options = {"runs": 300, "generations": 5, "tolerance": 0, "polish": False}
    whole = gx.minimize(bowl, BOX, "de", **options)
    small = Small(monkeypatch, 2)
    with pytest.warns(UserWarning, match="Not enough memory: continuing with"):
        result = gx.minimize(bowl, BOX, "de", **options, checkpoint=tmp_path / "a")
    assert max(small.tried) > 2 and np.array_equal(result.runs.x, whole.runs.x)
    assert np.array_equal(gx.minimize(bowl, BOX, "de", **options, resume=tmp_path / "a").runs.x, whole.runs.x)


def test_a_slice_on_an_accelerator_is_halved(monkeypatch):
    monkeypatch.setattr(devices, "on_cpu", lambda: False)
    options = {"runs": 12, "generations": 5, "tolerance": 0, "polish": False}
    advance, tried = Xla.advance, []

    def limited(engine, parts, first, count):
        tried.append(len(parts[0].cells))
        if tried[-1] > 3:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 81 GiB.")
        return advance(engine, parts, first, count)

    monkeypatch.setattr(Xla, "advance", limited)
    with pytest.warns(UserWarning, match="Not enough memory: continuing with 3 runs at once"):
        result = gx.minimize(bowl, BOX, "de", **options)
    assert tried[:3] == [12, 6, 3] and len(result.runs) == 12


def test_a_single_slice_that_does_not_fit_is_told_with_numbers(monkeypatch):
    Small(monkeypatch, 0)
    with pytest.raises(gx.InputError, match=r"does not fit into the .* GiB that are free on the .*use a smaller"):
        gx.minimize(bowl, BOX, "de", generations=5)


def test_a_forked_process_is_told_not_to_hang(monkeypatch):
    monkeypatch.setattr(devices, "_forked", True)
    with pytest.raises(gx.InputError, match="forked after JAX had started"):
        gx.minimize(bowl, BOX)
