"""Generations computed one by one, by programs that objectives share, until the program of whole chunks takes over.

Which of them computes a generation depends on the clock and on what lies on disk, so it must not change a bit.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.algorithms import ALGORITHMS
from galapax.algorithms.multistart import Multistart
from galapax.core.stop import Stop
from galapax.execution import compiled
from galapax.numerics import compile_cache, devices

pytestmark = pytest.mark.skipif(devices.platform() != "cpu", reason="a GPU computes chunks")
BOX = [(-2.0, 3.0), (-1.0, 4.0), (0.5, 1.5)]
TARGETS = np.array([0.25, 1.5, 0.75])


def waves(x):
    return jnp.sum((x - TARGETS * 0.9) ** 2 - jnp.cos(5 * x + TARGETS * 0.3)) + jnp.exp(-x[0]) * x[1]


def conflict(x):
    return jnp.array([jnp.sum((x - 0.3 * TARGETS) ** 2), jnp.sum((x + TARGETS) ** 2 * 0.7)])


@pytest.fixture
def programs(monkeypatch):
    """Call minimize with a limit of the seconds that are stepped; return the Result and the names of its programs."""
    compile_program = compile_cache._compile_program
    monkeypatch.setattr(compile_cache.disk_cache, "_chosen", None)  # a program on disk would not be compiled

    def call(stepped_seconds, fun, box=BOX, **arguments):
        names = []

        def note(call):
            names.append(call.function.__name__)
            return compile_program(call)

        monkeypatch.setattr(compile_cache, "MAX_STEPPED_SECONDS", stepped_seconds)
        monkeypatch.setattr(compile_cache, "_compile_program", note)
        for thread in [*compile_cache.PROGRAMS._threads]:  # it would put programs of the call before into the new cache
            thread.join()
        compile_cache.clear()
        compiled._paces.clear()
        return gx.minimize(fun, box, seed=5, **arguments), names

    return call


def assert_same_bits(one, other):
    assert np.asarray(one.fun).tobytes() == np.asarray(other.fun).tobytes()
    assert one.x.tobytes() == other.x.tobytes() and one.nfev == other.nfev and one.message == other.message
    assert one.population.tobytes() == other.population.tobytes()
    if one.runs is not None:
        assert one.runs.x.tobytes() == other.runs.x.tobytes() and (one.runs.nfev == other.runs.nfev).all()
    for name in ("best", "mean", "worst", "nfev"):
        assert getattr(one.history, name).tobytes() == getattr(other.history, name).tobytes(), name


def compare_stepped_and_whole(programs, fun, **arguments):
    stepped, names = programs(math.inf, fun, **arguments)
    assert not {"_chunk", "refine_in_box"} & set(names)
    both, names = programs(-1.0, fun, **arguments)  # after the first chunk, of one generation
    assert "_step_generation" in names and (stepped.nit < 3 or {"_chunk", "refine_in_box"} & set(names))
    assert_same_bits(stepped, both)


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_evaluations": 3000, "polish": False},
        {"max_evaluations": 1500},
        {"algorithm": gx.DE(population=20), "generations": 40},
        {"algorithm": "lshade", "max_evaluations": 2000, "compute": gx.Compute(dtype="float32")},
        {"algorithm": "cmaes", "max_evaluations": 1000, "ineq": lambda x: x[0] + 0.1 - x[1]},
        {"algorithm": Multistart(), "restarts": None, "polish": False},
        {"runs": 70, "max_evaluations": 400, "polish": False, "compute": gx.Compute(threads=2)},  # in two slices
    ],
    ids=["default", "default with gradients", "de", "lshade", "constraint", "multistart", "ensemble"],
)
def test_stepping_and_whole_chunks_agree_to_the_bit(programs, arguments):
    compare_stepped_and_whole(programs, waves, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_agrees_to_the_bit(programs, name, dtype):
    fun = conflict if ALGORITHMS[name].traits.multi_objective else waves
    compare_stepped_and_whole(programs, fun, algorithm=name, generations=70, compute=gx.Compute(dtype=dtype))


def test_another_objective_compiles_its_evaluation_alone(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache.disk_cache, "_chosen", tmp_path)
    compile_program = compile_cache._compile_program
    for polish in ("auto", False):  # with descents, and without
        programs(math.inf, waves, max_evaluations=400, polish=polish)
    lowered = []
    save = compile_cache.save
    monkeypatch.setattr(compile_cache, "_compile_program", compile_program)
    monkeypatch.setattr(compile_cache, "save", lambda name, *rest: (lowered.append(name), save(name, *rest)))
    _, names = programs(math.inf, lambda x: jnp.sum(jnp.abs(x - 0.2) ** 1.7), max_evaluations=400)
    assert len(lowered) == sum(
        name in ("evaluate_rows", "_evaluate_candidates", "evaluate_gradients") for name in names
    )


@pytest.mark.skipif(devices.count_cores() < 2, reason="one core compiles nothing beside the generations")
def test_a_program_compiled_beside_the_generations_takes_over(programs, monkeypatch):
    monkeypatch.setenv("GALAPAX_PRECOMPILE", "on")
    chunks, advance = [], compiled.map_slices
    monkeypatch.setattr(compiled, "map_slices", lambda *work: chunks.append(work) or advance(*work))
    arguments = {"algorithm": gx.DE(population=20), "tolerance": 0, "polish": False, "generations": 10**7}

    def stop_when_taken_over(progress):
        return len(chunks) > 3

    both, names = programs(-1.0, waves, callback=stop_when_taken_over, **arguments)
    assert names.count("_chunk") == 1 and both.stop is Stop.CALLBACK
    stepped, names = programs(math.inf, waves, **arguments | {"generations": both.nit})
    assert "_chunk" not in names and stepped.x.tobytes() == both.x.tobytes()
    assert stepped.population.tobytes() == both.population.tobytes()


def test_stepping_stops_where_the_run_ends(programs):
    stepped, _ = programs(math.inf, waves, algorithm="de", target=0.0, generations=500, polish=False)
    whole, _ = programs(-1.0, waves, algorithm="de", target=0.0, generations=500, polish=False)
    assert stepped.stop is whole.stop is Stop.TARGET and stepped.nit == whole.nit < 500
    assert_same_bits(stepped, whole)


def test_before_a_descent_no_generation_is_compiled(programs, monkeypatch):
    searches, step = [], compiled._step_generation

    def note(search, *rest):
        searches.append(search)
        return step(search, *rest)

    monkeypatch.setattr(compiled, "_step_generation", note)
    result, _ = programs(math.inf, lambda x: jnp.sum((x - TARGETS) ** 2))
    assert result.success and result.fun < 1e-20
    assert searches and all(search.only_evaluates for search in searches)
