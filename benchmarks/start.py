"""What a user waits for before anything is computed: `python benchmarks/start.py`.

Starting: seconds of `import jax`, of `import galapax` after it, and of the command `galapax solve rastrigin -g 200`
with an empty folder of compiled programs and with the folder that it left; and of the first plain call of a process, in
five variables, with one minimum and with many. Calling: milliseconds of a call that compiles nothing, from Python to
Result. The least of several tries counts; all are made in one run on one machine.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import harness

IMPORTS = """
from time import perf_counter
start = perf_counter()
import jax, jax.numpy
between = perf_counter()
import galapax
print(between - start, perf_counter() - between)
"""

CALL = """
from time import perf_counter
import galapax as gx, jax.numpy as jnp
start = perf_counter()
gx.minimize(lambda x: {}, [(-5.12, 5.12)] * 5)
print(perf_counter() - start)
"""
BOWL, WAVES = "jnp.sum(x * x)", "50 + jnp.sum(x * x - 10 * jnp.cos(2 * jnp.pi * x))"


def run_with_cache(arguments: list[str], folder: str) -> tuple[float, str]:
    """Seconds that a Python process takes, and what it printed."""
    start = time.perf_counter()
    printed = harness.run_python(*arguments, environment={"GALAPAX_CACHE": folder})
    return time.perf_counter() - start, printed


def measure_starting(rounds: int) -> None:
    solve = ["-m", "galapax", "solve", "rastrigin", "-g", "200", "--quiet"]
    imports, cold, warm, bowl, waves = [], [], [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            printed = run_with_cache(["-c", IMPORTS], folder)[1]
            imports.append([float(word) for word in printed.split()])
            cold.append(run_with_cache(solve, folder)[0])
            warm += [run_with_cache(solve, folder)[0] for _ in range(2)]
        for calls, formula in ((bowl, BOWL), (waves, WAVES)):
            with tempfile.TemporaryDirectory() as folder:
                calls.append(float(run_with_cache(["-c", CALL.format(formula)], folder)[1]))
    for what, seconds in (
        ("import jax", min(row[0] for row in imports)),
        ("import galapax, after it", min(row[1] for row in imports)),
        ("galapax solve, programs on disk", min(warm)),
        ("galapax solve, nothing on disk", min(cold)),
        ("first call, one minimum, nothing on disk", min(bowl)),
        ("first call, many minima, nothing on disk", min(waves)),
    ):
        print(f"{what:<44}{seconds:>8.2f} s", flush=True)


def measure_calling(rounds: int) -> None:
    import jax
    import jax.numpy as jnp

    import galapax as gx

    def bowl(x: Any) -> Any:
        return jnp.sum(x**2)

    box = [(-1.0, 2.0)] * 2
    ackley = gx.problems.get("ackley")
    short = {"algorithm": gx.DE(population=20), "generations": 10, "polish": False}
    many = {
        "algorithm": gx.ThreeParentGA(population=64),
        "generations": 100,
        "polish": False,
        "tolerance": 0,
        "compute": gx.Compute(dtype="float32"),
    }
    for what, call, times in (
        ("DE, 2 variables, 10 generations", lambda: gx.minimize(bowl, box, **short), 10 * rounds),
        ("the default, 2 variables", lambda: gx.minimize(bowl, box), 3 * rounds),
        ("1000 GA runs", lambda: gx.minimize(ackley, runs=1000, **many), rounds),
        ("100 000 GA runs, with their history", lambda: gx.minimize(ackley, runs=100_000, **many), 1),
    ):
        if times == 1 and jax.default_backend() == "cpu":  # minutes there
            continue
        print(f"{what:<44}{1e3 * harness.time_calls(call, times).least:>8.1f} ms", flush=True)


def main() -> None:
    options = harness.make_parser(__doc__, rounds=5).parse_args()
    measure_starting(options.rounds)
    measure_calling(options.rounds)


if __name__ == "__main__":
    main()
