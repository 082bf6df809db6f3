"""Runs of every kind that are killed with SIGKILL while they save checkpoints, and resumed.

Imports nothing of the other tests: the tier as shipped uses it too.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np

import galapax as gx
from support.paths import with_test_modules

BOX = [(-5.0, 5.0)] * 3


def waves(x):
    return jnp.sum(x**2 + 3 * jnp.sin(5 * x))


def ring(x):
    return jnp.sum(x**2) - 9.0


def two_bowls(x):
    return jnp.stack([jnp.sum(x**2), jnp.sum((x - 1) ** 2)])


CALLS = {
    "ensemble": lambda **o: gx.minimize(waves, BOX, "de", runs=70, generations=40, target=-8.65, **o),
    "restarts": lambda **o: gx.minimize(waves, BOX, max_evaluations=4000, **o),
    "constraints": lambda **o: gx.minimize(waves, BOX, eq=ring, generations=80, **o),
    "front": lambda **o: gx.minimize(
        gx.problems.get("zdt1"), generations=40, population=20, keep=gx.Keep(archive=30), **o
    ),
    "cycles": lambda **o: gx.minimize(gx.problems.get("g11"), "cde", generations=90, **o),
    "sweep": lambda **o: gx.sweep(waves, BOX, gx.DE, weight=[0.4, 0.8], population=[10, 20], generations=40, **o),
}


def call_of_algorithm(name):
    fun = two_bowls if gx.algorithms.ALGORITHMS[name].traits.multi_objective else waves
    return lambda **o: gx.minimize(
        fun, BOX, name, generations=60, runs=3, tolerance=0, keep=gx.Keep(snapshots=[2, 40]), **o
    )


KINDS = CALLS | {name: call_of_algorithm(name) for name in gx.algorithms.ALGORITHMS}
KINDS["islands"] = lambda **o: gx.minimize(waves, BOX, islands=3, population=20, generations=60, tolerance=0, **o)
KINDS["black box"] = lambda **o: gx.minimize(
    lambda x: float(np.sum(x**2)),
    BOX,
    "de",
    population=12,
    generations=40,
    blackbox=True,
    workers=gx.Workers(memoize=True),
    **o,
)
KINDS["front of a black box"] = lambda **o: gx.minimize(
    lambda x: {"fun": [float(np.sum(x**2)), float(np.sum((x - 1) ** 2))], "ineq": 0.5 - float(x[0])},
    BOX, keep=gx.Keep(archive=15), population=12, generations=40, blackbox=True, **o,
)  # fmt: skip

PROGRAM = """
import sys, time
import numpy as np
import galapax as gx
from support.killed_runs import KINDS, collect_arrays

name, file, pause, polish = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
options = {"checkpoint": gx.Checkpoint(file, seconds=0.0), "resume": True, "seed": 2}
if pause:
    options["callback"] = lambda p: time.sleep(pause)
if not polish:
    options["polish"] = False
np.savez(file + ".npz", **collect_arrays(KINDS[name](**options)))
"""


def collect_arrays(result):
    """Return all numbers and arrays that a result holds, by name; of a study, those of its last cell."""
    result = result.results[-1] if hasattr(result, "results") else result
    arrays = {k: v for k, v in result.items() if isinstance(v, np.ndarray | float | int)}
    for name in ("history", "runs"):
        fields = {} if result[name] is None else vars(result[name])
        arrays |= {f"{name}_{k}": v for k, v in fields.items() if isinstance(v, np.ndarray)}
    return arrays


def start_process(name, file, pause=0.0, polish=True):
    """Start a process that makes a run of this kind, or resumes it. pause: seconds that it waits after each chunk."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, name, str(file), str(pause), str(int(polish))]
    return subprocess.Popen(command, env=with_test_modules(), stderr=subprocess.PIPE, text=True)


def wait_for(process):
    _, stderr = process.communicate(timeout=3600)
    assert process.returncode == 0, stderr


def modification_time(file):
    return file.stat().st_mtime_ns if file.exists() else 0


def kill_repeatedly(name, file, times, seed, polish=True):
    """Kill a run after its first checkpoints and resume it, at most so many times; return how many times it was."""
    rng = random.Random(seed)
    for kills in range(times):
        before, process = modification_time(file), start_process(name, file, 0.05, polish)
        while process.poll() is None and modification_time(file) == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.4))
        if process.poll() is not None:
            wait_for(process)
            return kills
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return times


def assert_identical(arrays, others):
    assert set(arrays) == set(others)
    for name, value in arrays.items():
        value = np.asarray(value)
        assert np.array_equal(value, others[name], equal_nan=value.dtype.kind == "f"), name


def compare_with_killed(name, folder, times, seed):
    """Compare a run that nobody killed with one that was; return how many times it was."""
    wait_for(start_process(name, folder / "a"))
    kills = kill_repeatedly(name, folder / "b", times, seed)
    wait_for(start_process(name, folder / "b"))
    assert_identical(*(dict(np.load(folder / f"{file}.npz")) for file in "ab"))
    return kills
