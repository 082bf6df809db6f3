"""Limits of memory: known before the run where they can be, and halved where they were not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.execution import arguments, batch_runner, compiled
from galapax.execution import task as tasks
from galapax.execution.compiled import XlaBackend
from galapax.execution.host import HostEngine
from galapax.numerics import compile_cache, devices

BOX = [(-1.0, 1.0)] * 2


def bowl(x):
    return jnp.sum(x**2)


def test_free_memory_is_what_the_system_would_give(tmp_path):
    with open("/proc/meminfo") as lines:
        known = dict(line.split(":") for line in lines)
    available = int(known["MemAvailable"].split()[0]) * 1024
    assert devices._machine_memory() == pytest.approx(available, rel=0.2)
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
    assert devices._cgroup_memory(str(root), str(own)) == []
    (inner.parent / limit).write_text("1000\n")
    (inner.parent / used).write_text("700\n")
    (inner.parent / "memory.stat").write_text(f"anon 5\n{cached} 200\n")
    assert devices._cgroup_memory(str(root), str(own)) == [500]
    assert devices._cgroup_memory(str(root), str(tmp_path / "none")) == []


def test_snapshots_and_black_boxes_that_do_not_fit_are_refused_before_the_run(monkeypatch):
    calls = []
    monkeypatch.setattr(devices, "host_memory", lambda: 10**7)
    monkeypatch.setattr(devices, "free_memory", lambda: 10**7)
    with pytest.raises(gx.InputError, match=r"snapshots of 1 x 1000 individuals take 29.8 GiB and 9.5 MiB"):
        gx.minimize(
            bowl,
            BOX,
            "de",
            population=1000,
            generations=10**6,
            keep=gx.Keep(snapshots=range(1, 10**6)),
            compute=gx.Compute(dtype="float64"),
        )
    with pytest.raises(gx.InputError, match="one run with a population of 1000000 needs"):
        gx.minimize(calls.append, BOX, "de", population=10**6, generations=2, blackbox=True)
    with pytest.raises(gx.InputError, match=r"calls of one generation of 30000 points take 29.2 MiB .*smaller pop"):
        gx.minimize(calls.append, BOX, "de", population=30_000, generations=2, blackbox=True)
    with pytest.raises(gx.InputError, match=r"a cache of 1000000 points takes .*memoize=False"):
        gx.minimize(
            calls.append, BOX, "de", population=1000, generations=1000, blackbox=True, workers=gx.Workers(memoize=True)
        )
    assert not calls


class Small:
    """A device that runs out of memory with more than so many slices at once."""

    def __init__(self, monkeypatch, slices):
        advance, self.tried = XlaBackend.advance, []

        def limited(engine, parts, first, count):
            self.tried.append(len(parts))
            if len(parts) > slices:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 81 GiB.")
            return advance(engine, parts, first, count)

        monkeypatch.setattr(XlaBackend, "advance", limited)


def roomy(x):
    """An objective with 8 kB of its own for each point."""
    return jnp.sum(jax.lax.optimization_barrier(jnp.sin(jnp.arange(1000.0) * x[0] + x[1])))


@pytest.fixture
def free(monkeypatch):
    """Sets how much memory is free on the device, as a share of what the most demanding program needs."""
    for module in (compile_cache, compiled):
        monkeypatch.setattr(module, "UNCHECKED_BYTES", 2**16)
    monkeypatch.setattr(arguments, "MAX_CPU_SLICE_RUNS", 8)
    needs = []

    def so_much(share):
        if not needs:
            needs.append(max(program.working_bytes for program in compile_cache.PROGRAMS._programs.values()))
        monkeypatch.setattr(devices, "free_memory", lambda: int(share * needs[0]))

    compile_cache.clear()
    return so_much


cpu_only = pytest.mark.skipif(not devices.on_cpu(), reason="on an accelerator a slice is as large as memory allows")
LITTLE = {"population": 10, "generations": 2, "tolerance": 0, "polish": False}


@cpu_only
def test_what_an_objective_needs_is_counted_before_it_runs(monkeypatch, free, tmp_path):
    """On a CPU slices keep their size, and with it runs their bits, as long as one of them fits."""
    made = gx.minimize(roomy, BOX, "de", runs=20, compute=gx.Compute(threads=2), **LITTLE)
    used, widths, init = [], [], XlaBackend.__init__

    def noted(engine, search, clock, width, *others):
        widths.append(width)
        init(engine, search, clock, width, *others)

    monkeypatch.setattr(XlaBackend, "__init__", noted)
    monkeypatch.setattr(
        compiled, "map_on_threads", lambda count, work, items: used.append(count) or [work(i) for i in items]
    )
    free(1.5)
    again = gx.minimize(roomy, BOX, "de", runs=20, compute=gx.Compute(threads=2), **LITTLE)
    assert used[:2] == [2, 1] and widths == [8]  # threads for the first populations, and for the generations
    assert np.array_equal(again.runs.x, made.runs.x)

    free(0.8)
    with pytest.warns(UserWarning, match=r"in slices of 4 instead of 8, .* last bits"):
        narrow = gx.minimize(roomy, BOX, "de", runs=20, **LITTLE, checkpoint=tmp_path / "a")
    free(100)
    assert np.array_equal(narrow.run(19).x, narrow.runs.x[19])
    again = gx.minimize(roomy, BOX, "de", runs=20, **LITTLE, resume=tmp_path / "a")
    assert np.array_equal(again.runs.x, narrow.runs.x)
    assert widths[1:] == [8, 4, 4, 8, 4]  # of the run, of the replayed one, and as in the checkpoint
    with pytest.raises(gx.InputError, match=r"first \d+ runs .* ended at their limit of 2 generations"):
        gx.minimize(roomy, BOX, "de", runs=20, **LITTLE | {"generations": 4}, resume=tmp_path / "a")


@cpu_only
def test_one_run_that_needs_too_much_is_refused_with_numbers(free):
    gx.minimize(roomy, BOX, "de", **LITTLE)
    free(0.9)
    with pytest.raises(gx.InputError, match=r"one run with a population of 10 does not fit .* It needs .* MiB"):
        gx.minimize(roomy, BOX, "de", **LITTLE)


@cpu_only
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
    advance, tried = XlaBackend.advance, []

    def limited(engine, parts, first, count):
        tried.append(len(parts[0].cells))
        if tried[-1] > 3:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 81 GiB.")
        return advance(engine, parts, first, count)

    monkeypatch.setattr(XlaBackend, "advance", limited)
    with pytest.warns(UserWarning, match="Not enough memory: continuing with 3 runs at once"):
        result = gx.minimize(bowl, BOX, "de", compute=gx.Compute(engine="xla"), **options)
    assert tried[:3] == [12, 6, 3] and len(result.runs) == 12


@pytest.mark.parametrize("options", [{}, {"islands": 2}, {"restarts": "plain"}], ids=str)
def test_a_checkpoint_goes_on_in_slices_as_wide_as_they_were(monkeypatch, tmp_path, options):
    """On an accelerator they are as wide as the memory that was free allowed."""
    kept = {"population": 10, "runs": 6, "generations": 12, "tolerance": 0, "polish": False, **options}
    if "restarts" in options:
        kept["max_evaluations"] = 120
    widths = []

    def wide(runs):
        monkeypatch.setattr(batch_runner, "slice_width", lambda *arguments: runs)
        monkeypatch.setattr(arguments, "NEGLIGIBLE_SHARE", 0.0)
        monkeypatch.setattr(arguments, "runs_that_fit", lambda *given: runs)

    def noted(run, rows):
        widths.append(run.width)
        return cut(run, rows)

    cut = batch_runner.BatchRunner._build_slice
    monkeypatch.setattr(batch_runner.BatchRunner, "_build_slice", noted)
    wide(4)
    whole = gx.minimize(bowl, BOX, "de", **kept)
    monkeypatch.setattr(XlaBackend, "plan", lambda engine, length, seconds: 4)
    gx.minimize(bowl, BOX, "de", **kept, checkpoint=tmp_path / "a", callback=lambda p: p.runs_done > 1)
    wide(8)
    result = gx.minimize(bowl, BOX, "de", **kept, resume=tmp_path / "a")
    assert set(widths) <= {4, 8} and np.array_equal(result.runs.x, whole.runs.x)
    number = len(widths)
    assert np.array_equal(result.run(0).x, whole.runs.x[0]) and set(widths[number:]) == {4}


def test_the_error_of_a_batch_that_does_not_fit_has_numbers(monkeypatch):
    Small(monkeypatch, 0)
    with pytest.raises(gx.InputError, match=r"does not fit into the .* GiB that are free on the .*use a smaller"):
        gx.minimize(bowl, BOX, "de", generations=5, compute=gx.Compute(engine="xla"))


def exhausted(*given):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 81 GiB.")


def test_what_cannot_be_split_says_with_numbers_what_to_reduce(monkeypatch, tmp_path):
    """Black boxes, runs that go on from a checkpoint, and runs that several processes share."""
    free = r"with a population of 10 does not fit into the .*B that are free on the .*"
    called = {"blackbox": True, "runs": 3, **LITTLE}
    with monkeypatch.context() as patch:
        patch.setattr(HostEngine, "advance", exhausted)
        with pytest.raises(gx.InputError, match=f"a slice of 3 runs {free}fewer runs than 3 at a time .*81 GiB"):
            gx.minimize(lambda x: float(x @ x), BOX, "de", **called)

    def call(**options):
        return gx.minimize(
            bowl, BOX, "de", runs=3, compute=gx.Compute(engine="xla"), **LITTLE | {"generations": 9}, **options
        )

    monkeypatch.setattr(XlaBackend, "plan", lambda engine, length, seconds: 4)
    call(checkpoint=tmp_path / "a", callback=lambda p: p.generation >= 4)
    monkeypatch.setattr(XlaBackend, "advance", exhausted)
    with pytest.raises(gx.InputError, match=f"a slice of 3 runs {free}slices as large as they were, so end other"):
        call(resume=tmp_path / "a")
    monkeypatch.setattr(batch_runner.devices, "is_distributed", lambda: True)
    with pytest.raises(gx.InputError, match=f"a slice of 3 runs {free}fewer runs than 3"):
        call()


def test_a_forked_process_fails_instead_of_hanging(monkeypatch):
    monkeypatch.setattr(devices, "_forked", True)
    with pytest.raises(gx.InputError, match="forked after JAX had started"):
        gx.minimize(bowl, BOX)


@pytest.mark.parametrize("name", [pytest.param("cmaes", marks=pytest.mark.slow), "pso", "lshade", "nsga2"])
def test_the_estimate_of_a_state_s_memory_is_an_upper_bound(name, monkeypatch):
    """So that the exact size is asked for only where it matters; these four have the largest states for their sizes."""
    seen = []
    own = arguments.check_memory
    monkeypatch.setattr(tasks, "check_memory", lambda task: seen.append(task) or own(task))
    monkeypatch.setattr(batch_runner, "check_memory", lambda task: 1 / 0)  # nothing needs to run
    for dim, population in ((2, 8), (2, 300), (60, 8), (60, 300)):
        problem = gx.problems.get("zdt1" if name == "nsga2" else "ackley", dim=dim)
        with pytest.raises(ZeroDivisionError):
            gx.minimize(problem, algorithm=name, population=population, generations=3, polish=False)
    assert len(seen) == 4
    for task in seen:
        assert arguments._state_size(task) < arguments.max_state_size(task) / 3
