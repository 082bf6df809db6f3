"""Slices of an ensemble on several threads: the same bits, one program, and errors reach the caller."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.errors import InputError
from galapax.execution import arguments, compiled
from galapax.numerics import compile_cache, devices
from galapax.numerics.devices import map_on_threads

BOX = [(-3.0, 4.0), (-2.0, 5.0)]


def bumpy(x):
    return jnp.sum(x * x + jnp.cos(3 * x))


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setattr(arguments, "MAX_CPU_SLICE_RUNS", 4)


def ensemble(threads, dtype=None, **options):
    compute = gx.Compute(threads=threads, dtype=dtype)
    return gx.minimize(
        bumpy, BOX, gx.DE(population=8), generations=30, runs=22, compute=compute, polish=False, **options
    )


@pytest.mark.slow
@pytest.mark.skipif(not devices.on_cpu(), reason="threads are for a CPU")
def test_any_number_of_threads_gives_the_same_result_to_the_bit(narrow):
    """Six slices, in which runs end at generations of their own."""
    target = float(np.median(ensemble(1).runs.fun)) + 1e-3
    before = compile_cache.count_compiled()
    one, *others = [ensemble(count, target=target) for count in (1, 2, 3, 16)]
    assert compile_cache.count_compiled() - before <= 3  # begin, chunk, finish
    assert len(set(one.runs.nfev)) > 1
    for other in others:
        for name in ("x", "fun", "nfev", "nit"):
            assert np.array_equal(getattr(one.runs, name), getattr(other.runs, name))
        assert np.array_equal(one.runs.history.best, other.runs.history.best)
        assert np.array_equal(one.population, other.population)


@pytest.mark.skipif(not devices.on_cpu(), reason="threads are for a CPU")
def test_threads_work_in_the_precision_of_the_run(narrow):
    """JAX keeps that for each thread."""
    for kind in ("float32", "float64"):
        assert np.array_equal(ensemble(1, dtype=kind).runs.x, ensemble(3, dtype=kind).runs.x)


def test_work_is_shared_and_comes_back_in_order():
    together, names = threading.Barrier(3, timeout=20), set()

    def work(item):
        if item < 3:
            together.wait()  # three at once, or nobody gets on
        names.add(threading.current_thread().name)
        return item * item

    assert map_on_threads(3, work, range(10)) == [i * i for i in range(10)]
    assert len(names) == 3
    assert map_on_threads(1, lambda item: threading.current_thread() is threading.main_thread(), [1, 2]) == [True, True]


def test_the_first_error_ends_the_work():
    begun = []

    def work(item):
        begun.append(item)
        if item == 1:
            raise RuntimeError("item 1")
        return item

    with pytest.raises(RuntimeError, match="item 1"):
        map_on_threads(2, work, range(10_000))
    assert len(begun) < 10_000


def test_threads_compute_as_their_caller_does():
    def kind(_):
        return jnp.asarray(1.0).dtype, devices.CONFIG.jax_default_device

    here = jax.devices()[0]
    with jax.enable_x64(True), jax.default_device(here):
        assert map_on_threads(2, kind, range(4)) == [(np.dtype("float64"), here)] * 4
    assert map_on_threads(2, kind, range(4)) == [(jnp.asarray(1.0).dtype, devices.CONFIG.jax_default_device)] * 4


def test_how_many_is_asked_for_set_or_the_cores(monkeypatch):
    monkeypatch.delenv("GALAPAX_THREADS", raising=False)
    seen = []
    monkeypatch.setattr(
        compiled, "map_on_threads", lambda count, work, items: seen.append(count) or [work(i) for i in items]
    )
    monkeypatch.setattr(devices, "count_cores", lambda: 5)
    few = {"generations": 2, "runs": 2, "population": 4, "algorithm": "de", "compute": gx.Compute(engine="xla")}
    gx.minimize(bumpy, BOX, polish=False, **few)
    monkeypatch.setenv("GALAPAX_THREADS", "3")
    gx.minimize(bumpy, BOX, polish=False, **few)
    gx.minimize(bumpy, BOX, polish=False, **few | {"compute": gx.Compute(engine="xla", threads=2)})
    memory = [count for count in seen if count != 1]  # 1: an accelerator's chunks go by device
    assert set(memory) == {5, 3, 2} and memory == sorted(memory, key=[5, 3, 2].index)
    monkeypatch.setenv("GALAPAX_THREADS", "many")
    with pytest.raises(InputError, match="GALAPAX_THREADS must be a number of threads, at least 1; it is 'many'"):
        gx.minimize(bumpy, BOX, polish=False, **few)


@pytest.mark.parametrize("given", [0, -1, 1.5, "two", True])
def test_an_odd_number_of_threads_is_refused(given):
    with pytest.raises(InputError, match="threads"):
        gx.minimize(bumpy, BOX, compute=gx.Compute(threads=given), polish=False)


def test_a_black_box_has_workers_instead():
    with pytest.raises(InputError, match="workers="):
        gx.minimize(bumpy, BOX, blackbox=True, compute=gx.Compute(threads=2))


@pytest.mark.parametrize(
    ("files", "groups", "expected"),
    [
        ({}, "0::/\n", []),
        ({"a/cpu.max": "250000 100000\n", "cpu.max": "max 100000\n"}, "0::/a\n", [2]),
        ({"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "50000 100000\n"}, "0::/a/b\n", [4, 1]),
        ({"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/a\n", [3]),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu:/\n5:memory:/\n", []),
    ],
    ids=["no limit", "a group", "groups within groups", "the older kind", "the older kind without a limit"],
)
def test_cores_are_those_that_control_groups_allow(tmp_path, files, groups, expected):
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    own = tmp_path / "own"
    own.write_text(groups)
    assert sorted(devices._cgroup_cores(str(tmp_path), str(own))) == sorted(expected)
    assert devices.count_cores() >= 1


def test_many_slices_make_long_calls():
    """What calling a slice takes must not weigh: with few generations in a chunk it would."""
    backend = compiled.XlaBackend.__new__(compiled.XlaBackend)
    backend.on_cpu, backend.rows, backend.n_slices, backend.threads, backend.program_key = True, 1000, 250, 1, None
    backend.is_stepping = False
    assert backend.plan(0, 0.0) == 1
    assert backend.plan(10, 0.1) == 50  # half a second, although 250 calls of 8 ms would take two
    backend.threads = 16
    assert backend.plan(10, 0.1) == 12  # sixteen at once: 0.125 s
    backend.n_slices = 1
    assert backend.plan(10, 0.1) == 10
    assert backend.plan(10, 1e-6) == 80
