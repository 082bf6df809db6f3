"""Compiled programs on disk: another process finds them, a key has all that they depend on, and damage is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax import execution
from galapax.execution.search import survivors
from galapax.numerics import compile_cache, devices, disk_cache
from galapax.numerics.compile_cache import CompileCache
from galapax.operators.variation import best_1, rand_1

BOX = [(-2.0, 3.0)] * 3
XLA = gx.Compute(engine="xla")
SCRIPT = """
import jax.numpy as jnp, numpy as np, galapax as gx
from galapax import Compute
from galapax.numerics import compile_cache
from galapax.numerics import compile_cache
lowered = []
save = compile_cache.save
compile_cache.save = lambda name, *program: (lowered.append(name), save(name, *program))
for problem in (PROBLEMS,):
    compile_cache.clear()
    before, missed = compile_cache.count_compiled(), len(lowered)
    res = gx.minimize(*problem, **CALL)
    answer = np.asarray(res.fun).tobytes().hex(), res.x.tobytes().hex(), res.nfev
    print(compile_cache.count_compiled() - before, len(lowered) - missed, *answer)
"""


def valley(shift):
    return f"lambda x: jnp.sum((x - {shift}) ** 2) + jnp.sum(x[:, None] * x) ** 2, [(-2, 3)] * 3"


def fresh(folder, call, *problems):
    """(programs made, of them not found on disk, the answer) of each call in a process of their own."""
    code = SCRIPT.replace("CALL", repr(call)).replace("PROBLEMS", ", ".join(f"({problem},)" for problem in problems))
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | {
        "GALAPAX_CACHE": str(folder)
    }
    out = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    lines = [line.split() for line in out.stdout.splitlines()]
    return [(int(made), int(missed), answer) for made, missed, *answer in lines]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Programs are kept here by this process too."""
    monkeypatch.setattr(disk_cache, "_chosen", tmp_path)
    return tmp_path / "programs"


def test_another_process_finds_every_program_and_gets_the_same_answer(tmp_path):
    """The default: CMA-ES, which calls LAPACK, restarts and a polish. Another number in the formula is data."""
    call = {"generations": 60, "compute": XLA}
    [first] = fresh(tmp_path, call, valley(0.5))
    second, other = fresh(tmp_path, call, valley(0.5), valley(0.75))
    assert first[1] == first[0] > 2 and second[0] == first[0] and second[1] == 0
    assert second[2] == first[2]
    # the second call of a process compiles the program of whole chunks; on an accelerator the clock chooses how many
    # generations a program makes: another number of them may be new
    assert other[1] <= 1 and other[2] != first[2]


PATHS = """
import warnings
from collections import Counter
import jax.numpy as jnp, numpy as np, galapax as gx
from galapax.numerics import compile_cache
from galapax.numerics import compile_cache

def bowl(x):
    return float(np.sum((x - 0.3) ** 2))

def waves(x):
    return jnp.sum((x - 0.3) ** 2) + jnp.sum(jnp.cos(5 * x))

def step_by_hand():
    opt = gx.Optimizer(box, "cmaes")
    for _ in range(20):
        x = opt.ask_generation()
        opt.tell(x, (x**2).sum(axis=1))
    opt.best

box = [(-2.0, 3.0)] * 3
paths = {
    "black box": lambda: gx.minimize(bowl, box, blackbox=True, max_evaluations=400),
    "black box, restarts": lambda: gx.minimize(bowl, box, "cmaes", blackbox=True, max_evaluations=1500,
                                               restarts="ipop"),
    "black box, runs": lambda: gx.minimize(bowl, box, "de", blackbox=True, runs=3, generations=30),
    "black box, islands": lambda: gx.minimize(bowl, box, "de", blackbox=True, islands=2, generations=30),
    "black box, stream": lambda: gx.minimize(bowl, box, "de", blackbox=True, generations=9,
                                             workers=gx.Workers(ThreadPoolExecutor(2), asynchronous=True)),
    "black box, fronts": lambda: gx.minimize(lambda x: [bowl(x), bowl(x - 1)], box, blackbox=True, max_evaluations=400),
    "Optimizer": step_by_hand,
    "restarts and polish": lambda: gx.minimize(waves, box, max_evaluations=3000),
    "ensemble": lambda: gx.minimize(waves, box, "de", runs=150, generations=300, callback=lambda progress: None),
    "islands": lambda: gx.minimize(waves, box, "de", islands=4, generations=100),
    "snapshots": lambda: gx.minimize(waves, box, "de", generations=60, keep=gx.Keep(snapshots=[5, 20])),
}
loads, load, save = Counter(), compile_cache.load, compile_cache.save
missed = set()

def counted(name, arguments):
    loads[name] += 1
    return load(name, arguments)

def compiled(name, *program):
    missed.add(name)
    save(name, *program)

compile_cache.load, compile_cache.save = counted, compiled
for path, call in paths.items():
    compile_cache.clear()
    loads.clear(), missed.clear()
    call()
    print(path, len(loads), loads.total(), len(missed), compile_cache.statistics().programs, sep="|")
"""


@pytest.mark.slow  # `tests_as_shipped` has a quicker one for each supported Python
def test_a_second_process_loads_each_program_once(tmp_path):
    """What a program from disk returns must be to the next call what the same program returned when it was compiled:
    with JAX 0.11 it differs in layout, and each generation once loaded its programs again.
    """
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | {
        "GALAPAX_CACHE": str(tmp_path)
    }
    code = "from concurrent.futures import ThreadPoolExecutor\n" + PATHS
    for process in ("first", "second"):
        out = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
        rows = [line.split("|") for line in out.stdout.splitlines()]
        assert len(rows) == 11
        for path, *numbers in rows:
            n_programs, n_loads, n_missed, n_cached = map(int, numbers)
            assert n_programs > 2 and n_loads == n_programs and n_cached <= n_programs, (process, path)
            assert process == "first" or n_missed == 0, path


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(gx.algorithms.ALGORITHMS))
def test_programs_of_every_algorithm_work_from_disk(tmp_path, algorithm):
    is_multi_objective = gx.algorithms.ALGORITHMS[algorithm].traits.multi_objective
    name = "zdt1" if is_multi_objective else "g06" if algorithm == "cde" else "ackley"
    call = {"algorithm": algorithm, "generations": 30, "runs": 3, "compute": XLA}
    [first], [second] = (fresh(tmp_path, call, f"gx.problems.get({name!r})") for _ in range(2))
    assert first[1] == first[0] > 2 and (second[0], second[1]) == (first[0], 0)
    assert second[2] == first[2]


def named(call, *arguments, fixed=(), rest=()):
    return compile_cache.program_name(call, fixed, arguments, rest)


class Enough(Exception):
    """Compiling the rest would take long."""


@pytest.fixture
def names(folder, monkeypatch):
    """The name of the program that computes chunks of generations in a call of minimize."""

    def of(fun=lambda x: jnp.sum(x**2), box=BOX, **call):
        seen = []

        def note(function, *given):
            seen.append(named(function, *given))
            if function is execution.compiled._chunk:
                raise Enough
            return named(function, *given)

        compile_cache.STEPS._stepped.clear()  # else it is not looked for on disk
        given = {"algorithm": "de", "generations": 2, "population": 8, "compute": XLA, "polish": False} | call
        named = compile_cache.program_name
        compile_cache.clear()
        with monkeypatch.context() as patch:
            patch.setattr(compile_cache, "program_name", note)
            with pytest.raises(Enough):
                gx.minimize(fun, box, **given)
        return seen[-1]

    return of


def test_names_are_the_same_for_the_same_and_differ_where_programs_do(names):
    first = names()
    assert first is not None and names() == first
    assert names(seed=5, generations=3, target=1.0) == first  # data
    assert names(algorithm=gx.DE(population=8, weight=0.7)) == first  # data too
    for other in (
        names(fun=lambda x: jnp.sum(x**4)),
        names(box=[(0.0, 1.0)] * 2),
        names(population=9),
        names(compute=gx.Compute(engine="xla", dtype="float32" if devices.platform() == "cpu" else "float64")),
        names(algorithm=gx.DE(population=8, mutation=best_1)),
        names(algorithm="pso"),
        names(ineq=lambda x: x[0]),
    ):
        assert other is not None and other != first


def test_what_may_change_unseen_has_no_name(names):
    def mine(*given):
        return rand_1(*given)

    def calls_back(x):
        return jax.pure_callback(
            lambda a: np.float64(a.sum()), jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential"
        )

    @jax.tree_util.register_dataclass
    @dataclass(frozen=True)
    class Own(gx.DE):
        pass

    assert names(algorithm=gx.DE(population=8, mutation=mine)) is None
    assert names(fun=calls_back, on_failure="worst") is None
    assert names(algorithm=Own(population=8)) is None


def test_the_surroundings_are_part_of_the_name(monkeypatch):
    a = np.zeros(3)
    first = named(compile_cache.call, a)
    assert first == named(compile_cache.call, np.ones(3)) and first != named(compile_cache.call, np.zeros(4))
    assert (
        len(
            {
                first,
                named(compile_cache.call, a, fixed=(1,)),
                named(compile_cache.call, a, rest=(2,)),
                named(compile_cache.clear, a),
            }
        )
        == 4
    )
    for change in (("__version__", "9.9.9"), ("code_version", lambda: "edited"), ("processor", lambda: "another")):
        with monkeypatch.context() as patch:
            patch.setattr(disk_cache, *change)
            assert named(compile_cache.call, a) != first
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    assert named(compile_cache.call, a) != first


def kept(folder):
    return sorted(folder.glob("*.program"))


def evaluated(factor=2.0):
    """Something small, compiled anew: what it gives, and whether it came from disk."""
    own, x = CompileCache(), jnp.arange(3.0)
    loads = []
    load = compile_cache.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_cache, "load", lambda *given: loads.append(load(*given)) or loads[-1])
        made = own.call(stored_example, (factor,), x)
    return made.tolist(), loads[0] is not None


def stored_example(factor, x):
    return factor * jnp.sort(x)[::-1]


stored_example.__module__ = "galapax.execution.search"  # counts as ours


def test_damaged_files_are_replaced(folder):
    assert evaluated(7.0) == ([14.0, 7.0, 0.0], False) and evaluated(7.0) == ([14.0, 7.0, 0.0], True)
    (file,) = kept(folder)
    whole = file.read_bytes()
    for damaged in (b"", whole[:20], whole[:-1], whole[:200] + b"?" + whole[201:], os.urandom(1000), disk_cache.MARK):
        file.write_bytes(damaged)
        assert evaluated(7.0) == ([14.0, 7.0, 0.0], False), damaged[:30]
    file.write_bytes(whole)
    assert evaluated(7.0) == ([14.0, 7.0, 0.0], True) and kept(folder) == list(folder.iterdir())


def test_what_jax_took_from_its_own_cache_is_not_written_again(folder):
    """XLA writes such a program without the functions that a sort calls."""
    assert not evaluated(3.0)[1]
    (file,) = kept(folder)
    file.unlink()
    assert not evaluated(3.0)[1] and not kept(folder)


def test_fresh_functions_with_fresh_numbers_leave_no_more_files(folder):
    def call(shift):
        where = jnp.full(3, shift)
        return gx.minimize(lambda x: shift * jnp.sum((x - where) ** 2), BOX, "de", generations=2, polish=False)

    compile_cache.clear()
    call(0.25), call(0.5)
    files = kept(folder)
    assert files
    for shift in (0.75, 1.5, 1.25):  # a factor of 1 would be another formula
        call(shift)
        compile_cache.clear()
    assert kept(folder) == files


def test_with_several_devices_nothing_is_cached(monkeypatch):
    """JAX loads a program for all devices, whichever it was compiled for."""
    about = survivors, (), (np.ones(3),), ()
    assert compile_cache.program_name(*about) is not None
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert compile_cache.program_name(*about) is None


LAPACK = """
import sys
import jax, jax.numpy as jnp, numpy as np
from galapax.numerics import compile_cache
compile_cache.preload_lapack()
assert jax.jit(jnp.linalg.cholesky)(4 * jnp.eye(2))[1, 1] == 2
print("scipy.linalg" in sys.modules)
import scipy.linalg  # as a user may, afterwards
from scipy.linalg import cython_blas
assert scipy.linalg.cho_factor(np.array([[4.0]]))[0] == 2
"""


@pytest.mark.skipif(not devices.on_cpu(), reason="LAPACK is for a CPU")
def test_jax_finds_lapack_without_the_package_around_it():
    done = subprocess.run([sys.executable, "-c", LAPACK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
