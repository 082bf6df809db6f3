"""What a call that compiles nothing costs the host: programs, transfers, looks; and small things done for many runs."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compilations import ON_CPU

import galapax as gx
from galapax.execution import compiled, state
from galapax.execution.state import Track, first_best
from galapax.numerics import compile_cache, devices

BOX = [(-1.0, 2.0)] * 2
SHORT = {"algorithm": gx.DE(population=20), "generations": 10, "polish": False, "tolerance": 0}


def bowl(x):
    return jnp.sum((x - 0.3) ** 2)


@pytest.fixture
def counted(monkeypatch):
    """How often what takes the host its time is done."""
    counts = {"programs": 0, "put": 0, "get": 0}

    def note(owner, name, what):
        work = getattr(owner, name)

        def noted(*arguments, **options):
            counts[what] += 1
            return work(*arguments, **options)

        monkeypatch.setattr(owner, name, noted)

    note(compile_cache.Program, "__call__", "programs")
    note(jax, "device_put", "put")
    note(jax, "device_get", "get")
    return counts


def test_a_later_call_is_three_programs_and_one_transfer(counted, monkeypatch):
    monkeypatch.setattr(compile_cache, "MAX_STEPPED_SECONDS", -1.0)  # the program of whole chunks is compiled soon
    first = gx.minimize(bowl, BOX, **SHORT)
    gx.minimize(bowl, BOX, **SHORT)  # learns its pace
    counted.update(dict.fromkeys(counted, 0))
    again = gx.minimize(bowl, BOX, **SHORT)
    assert counted == {"programs": 3, "put": 0, "get": 1}  # begin, all generations, finish
    assert np.array_equal(first.x, again.x) and np.array_equal(first.history.best, again.history.best)


MAX_FILES_OF_A_CALL = 30  # that a reader of a plain call has to open


def test_a_plain_warm_call_visits_few_files():
    package, files = Path(gx.__file__).parent, set()

    def note(frame, event, _):
        if event == "call":
            files.add(frame.f_code.co_filename)

    for hook in (None, note):
        sys.setprofile(hook)
        try:
            gx.minimize(bowl, [(-1, 1)] * 3, max_evaluations=3000, progress=False)
        finally:
            sys.setprofile(None)
    visited = sorted(str(Path(file).relative_to(package)) for file in files if Path(file).is_relative_to(package))
    assert 0 < len(visited) <= MAX_FILES_OF_A_CALL, visited


def test_an_objective_with_arrays_is_tried_before_the_first_call_only(counted, monkeypatch):
    monkeypatch.setattr(compile_cache, "MAX_STEPPED_SECONDS", -1.0)
    table = np.array([0.3, -0.2])

    def fun(x):
        return jnp.sum((x - table) ** 2)

    for _ in range(2):
        gx.minimize(fun, BOX, **SHORT)
    counted.update(dict.fromkeys(counted, 0))
    gx.minimize(fun, BOX, **SHORT)
    assert (counted["programs"], counted["get"]) == (3, 1)
    table = np.full(2, np.nan)
    with pytest.raises(gx.InputError, match="returned NaN or inf at all 512 points"):
        gx.minimize(fun, BOX, **SHORT)


@ON_CPU
def test_a_callback_hears_of_the_first_generation_whenever_it_is_asked():
    heard = []
    for _ in range(2):
        gx.minimize(bowl, BOX, **SHORT, callback=lambda state: heard.append(state.generation))
    assert heard.count(1) == 2


def test_the_quickest_chunk_of_a_program_is_its_pace(monkeypatch):
    monkeypatch.setattr(compiled, "_paces", {})
    for length, seconds in ((1, 2.0), (8, 0.4), (4, 0.4)):
        compiled._remember_pace("this", length, seconds)
    assert compiled._paces == {"this": (8, 0.4)}
    monkeypatch.setattr(compiled, "MAX_PACES", 1)
    compiled._remember_pace("that", 1, 1.0)
    assert list(compiled._paces) == ["that"]


def test_the_best_run_is_the_first_that_sorting_would_find():
    rng = np.random.default_rng(0)
    values = np.array([0.0, -0.0, 1.0, 2.0, np.inf, -np.inf, np.nan])
    for _ in range(500):
        violation, merit = rng.choice(values, (2, rng.integers(1, 6)))
        assert first_best(violation, merit) == np.lexsort((merit, violation))[0]


def test_tracks_of_runs_that_agree_and_of_those_that_do_not(monkeypatch):
    """A number that all runs share is stored once, and the result shows it for each."""
    monkeypatch.setattr(state, "MIN_RUNS_TO_BROADCAST", 3)
    tally = np.zeros((9, 3))
    tally[:4].view(np.int64)[:] = [[5, 5, 5], [0, 1, 0], [50, 50, 50], [0, 0, 0]]
    tally[4:] = [[3.0, 1.0, 2.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [np.nan] * 3, [4.0, 2.0, 3.0]]
    once = Track.start(3).add(tally)
    tally[:1].view(np.int64)[:] = [[2, 0, 2]]  # the second run has ended
    tally[4] = [2.5, 9.0, 2.0]
    twice = once.add(tally)
    assert once.violation.strides == (0,) and once.best_run == 1
    assert twice.best.tolist() == [2.5, 1.0, 2.0] and twice.generations.tolist() == [7, 5, 7]
    assert twice.failed.tolist() == [0, 2, 0] and np.isnan(twice.hypervolume).all()
    assert {column.dtype for column in twice} == {np.dtype("int64"), np.dtype("float64")}


def test_small_arrays_are_sent_once_and_distinguished(counted):
    large = np.arange(devices.MAX_CACHED_TRANSFER_BYTES)
    sent = [np.float32(7.25), np.array([7.25], np.float32), 7.25, 0.0, -0.0, float("nan"), large, None]
    first, again = devices.device_put_cached(sent), devices.device_put_cached(sent)
    assert [one is other for one, other in zip(first, again, strict=True)] == [True] * 6 + [False, True]
    assert [np.asarray(a).tobytes() for a in first[3:5]] == [np.asarray(a, first[3].dtype).tobytes() for a in sent[3:5]]
    assert first[0].shape == () and first[1].shape == (1,) and jnp.isnan(first[5])
    changed = sent[1]
    changed[0] = 8
    assert float(devices.device_put_cached(changed)[0]) == 8 and float(first[1][0]) == 7.25
    with jax.enable_x64(True):
        assert devices.device_put_cached(np.float64(1)).dtype == "float64"
    with jax.enable_x64(False):
        assert devices.device_put_cached(np.float64(1)).dtype == "float32"


def test_whether_jax_is_tracing_is_known():
    seen = []
    jax.jit(lambda x: seen.append(devices.is_tracing()) or x)(1.0)
    assert seen == [True] and not devices.is_tracing()
