"""`galapax selftest`: whether galapax does on this machine what it is meant to, in under a minute."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from galapax import problems
from galapax.algorithms.de import DE
from galapax.api.minimize import minimize
from galapax.core.options import Compute
from galapax.execution.observers import Checkpoint
from galapax.numerics import devices, random
from galapax.operators.variation import binomial_crossover, draw_partners

SELFTEST_RUNS = 40
KILLED_PROGRAM = "import sys; from galapax.cli.selftest import run_resumable; run_resumable(sys.argv[1], slow=True)"


class Check(NamedTuple):
    """The outcome of one check; a row of the table."""

    what: str
    passed: bool
    found: str


def checks() -> Iterator[Check]:
    """Yield the outcome of each check as soon as it is known."""
    for name, check in CHECKS.items():
        try:
            passed, finding = check()
        except Exception as error:  # a check that cannot be made has failed, and the others go on
            passed, finding = False, f"{type(error).__name__}: {error}"
        yield Check(name, passed, finding)


def at_least(successes: int, runs: int, share: float) -> tuple[bool, float]:
    """Test whether the number of successes agrees with a success probability of at least `share`.

    Also return the lower limit of that probability, with 99.9 % confidence (Wilson).
    """
    z, p = 3.09, successes / runs
    middle, spread = p + z * z / (2 * runs), z * np.sqrt(p * (1 - p) / runs + z * z / (4 * runs * runs))
    return bool((middle + spread) / (1 + z * z / runs) >= share), float((middle - spread) / (1 + z * z / runs))


def _check_success_rate(name: str, algorithm: str, share: float, tolerance: float, **options: Any) -> tuple[bool, str]:
    problem = problems.get(name)
    result = minimize(
        problem,
        algorithm,
        runs=SELFTEST_RUNS,
        seed=1,
        polish=False,
        progress=False,
        compute=Compute(dtype="float64"),
        **options,
    )
    assert result.runs is not None
    is_success = (result.runs.violation <= 0) & (np.abs(result.runs.fun - problem.optimum) <= tolerance)
    passed, low = at_least(int(is_success.sum()), SELFTEST_RUNS, share)
    return passed, f"{int(is_success.sum())} of {SELFTEST_RUNS} runs, so at least {low:.0%}; {share:.0%} expected"


def _check_front() -> tuple[bool, str]:
    problem = problems.get("zdt1")
    result = minimize(problem, "nsga2", population=100, generations=250, seed=1, progress=False)
    share = result.hypervolume / problem.hypervolume
    return bool(share > 0.985), f"{share:.1%} of the hypervolume of the true front"


def _check_uniform_numbers() -> tuple[bool, str]:
    draws = np.asarray(
        jax.jit(lambda key: random.uniform(key, (1_000_000,), jnp.float32))(random.root_key(7)), np.float64
    )
    counts = np.histogram(draws, 256, (0.0, 1.0))[0]
    chi = float(np.sum((counts - draws.size / 256) ** 2) / (draws.size / 256))
    return bool(abs(chi - 255) < 4.0 * np.sqrt(2 * 255)), f"chi squared {chi:.0f} of 255 degrees of freedom"


def _check_operators() -> tuple[bool, str]:
    key = jnp.asarray(random.root_key(5))
    rows = np.asarray(jax.jit(lambda: jnp.stack(draw_partners(key, 2000, 3)))())
    distinct = all(len({i, *rows[:, i]}) == 4 for i in range(rows.shape[1]))
    zeros, ones = jnp.zeros((4000, 10)), jnp.ones((4000, 10))
    share = float(np.mean(np.asarray(binomial_crossover(key, zeros, ones, 0.7))))
    expected = 0.7 + 0.3 / 10  # one variable in any case
    return distinct and abs(
        share - expected
    ) < 0.015, f"partners differ: {distinct}; crossover {share:.3f} of {expected:.3f}"


def _check_cpu_agreement() -> tuple[bool, str]:
    """Compare the same run on the CPU and on the default device."""
    problem = problems.get("rosenbrock", dim=5)
    options: dict[str, Any] = {"generations": 5, "compute": Compute(dtype="float64"), "progress": False}
    on_device = minimize(problem, DE(population=30), polish=False, **options)
    with jax.default_device(jax.devices("cpu")[0]):
        on_cpu = minimize(problem, DE(population=30), polish=False, **options)
    difference = float(np.max(np.abs(on_device.x - on_cpu.x) / (1 + np.abs(on_cpu.x))))
    where = "only the CPU is available" if devices.on_cpu() else f"{devices.device_name()} and CPU"
    return difference < 1e-9, f"{where}: after 5 generations x differs by {difference:.1e}"


def run_resumable(file: str, slow: bool = False) -> np.ndarray:
    """Make a run that resumes from a checkpoint, if the file exists. slow: leave time to kill it."""
    checkpointing: dict[str, Any] = {} if not file else {"checkpoint": Checkpoint(file, seconds=0.0), "resume": True}
    slow_down = (lambda progress: time.sleep(0.05)) if slow else None
    problem = problems.get("rastrigin", dim=4)
    result = minimize(
        problem, "de", generations=3000, tolerance=0, polish=False, progress=False, callback=slow_down, **checkpointing
    )
    x: np.ndarray = result.x
    return x


def _check_resume() -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.ckpt"
        uninterrupted = run_resumable("")
        process = subprocess.Popen([sys.executable, "-c", KILLED_PROGRAM, str(file)], env=dict(os.environ))
        try:
            deadline = time.perf_counter() + 30
            while (
                process.poll() is None and not file.with_name("run.ckpt.1").exists() and time.perf_counter() < deadline
            ):
                time.sleep(0.01)
        finally:
            process.kill()
            process.wait()
        if not file.exists():
            return False, "the killed process had written no checkpoint"
        is_same = np.array_equal(run_resumable(str(file)), uninterrupted)
        return is_same, "the resumed run is identical, bit for bit" if is_same else "the resumed run differs"


def _measure_speed() -> tuple[bool, str]:
    problem = problems.get("rastrigin", dim=10)
    options: dict[str, Any] = {"runs": 200, "generations": 200, "progress": False}
    minimize(problem, "de", population=50, polish=False, tolerance=0, **options)
    start = time.perf_counter()
    result = minimize(problem, "de", population=50, polish=False, tolerance=0, **options)
    seconds = time.perf_counter() - start
    return True, f"{result.nfev / seconds / 1e6:.1f} million evaluations per second (rastrigin, 10 variables, 200 runs)"


CHECKS: dict[str, Callable[[], tuple[bool, str]]] = {
    "random numbers": _check_uniform_numbers,
    "operators": _check_operators,
    "DE on the sphere": lambda: _check_success_rate("sphere", "de", 0.99, 1e-6, generations=600),
    "CMA-ES on Rosenbrock": lambda: _check_success_rate("rosenbrock", "cmaes", 0.75, 1e-6, generations=4000),
    "constraints (g06)": lambda: _check_success_rate("g06", "epsilon_de", 0.99, 1e-3, generations=600),
    "NSGA-II on ZDT1": _check_front,
    "CPU and device": _check_cpu_agreement,
    "resume after a kill": _check_resume,
    "speed": _measure_speed,
}
