"""What a user waits for before anything is computed: `python benchmarks/start.py`.

Starting: seconds of `import jax`, of `import galapax` after it, and of the command `galapax solve rastrigin -g 200`
with an empty folder of compiled programs and with the folder that it left. First answers: seconds of the first plain
call of a process, from Python to Result, with an empty folder, with what the same call for three other objectives left
there, and with what this one did; then of the next call in that process. Calling: milliseconds of a call that compiles
nothing. The least of several tries counts; all are made in one run on one machine.
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

CALLS = """
from time import perf_counter
import galapax as gx, jax.numpy as jnp
def call():
    start = perf_counter()
    gx.minimize(lambda x: {formula}, [(-5.12, 5.12)] * {dim}, seed=0)
    return perf_counter() - start
print(call(), min(call() for _ in range(5)))
"""
FIRST_ANSWERS = (  # name, variables, formula
    ("sphere", 5, "jnp.sum(x * x)"),
    ("Rosenbrock", 10, "jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)"),
    ("Rastrigin", 5, "10 * x.size + jnp.sum(x * x - 10 * jnp.cos(2 * jnp.pi * x))"),
    ("Griewank", 5, "1 + jnp.sum((100 * x) ** 2) / 4000 - jnp.prod(jnp.cos(100 * x / jnp.sqrt(jnp.arange(1, 6))))"),
    ("Ackley", 2, "-20 * jnp.exp(-0.2 * jnp.sqrt(jnp.mean(x * x))) - jnp.exp(jnp.mean(jnp.cos(2 * jnp.pi * x)))"),
)
OTHER_OBJECTIVES = (
    "jnp.sum(jnp.abs(x - 0.2) ** 3)",
    "jnp.sum(x**4 - 16 * x * x + 5 * x) / 2",
    "jnp.sum(2 - jnp.cos(9 * (x - 0.3)) + jnp.abs(x))",
)


def run_with_cache(arguments: list[str], folder: str) -> tuple[float, str]:
    """Seconds that a Python process takes, and what it printed."""
    start = time.perf_counter()
    printed = harness.run_python(*arguments, environment={"GALAPAX_CACHE": folder})
    return time.perf_counter() - start, printed


def measure_starting(rounds: int) -> None:
    solve = ["-m", "galapax", "solve", "rastrigin", "-g", "200", "--quiet"]
    imports, cold, warm = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            printed = run_with_cache(["-c", IMPORTS], folder)[1]
            imports.append([float(word) for word in printed.split()])
            cold.append(run_with_cache(solve, folder)[0])
            warm += [run_with_cache(solve, folder)[0] for _ in range(2)]
    for what, seconds in (
        ("import jax", min(row[0] for row in imports)),
        ("import galapax, after it", min(row[1] for row in imports)),
        ("galapax solve, programs on disk", min(warm)),
        ("galapax solve, nothing on disk", min(cold)),
    ):
        print(f"{what:<44}{seconds:>8.2f} s", flush=True)


def measure_first_answers(rounds: int) -> None:
    print(f"{'seconds of a call, on disk before it':<44}{'nothing':>9}{'others':>9}{'its own':>9}{'2nd call':>9}")
    for name, dim, formula in FIRST_ANSWERS:
        rows = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as folder:
                row = [measure_call(formula, dim, empty)[0]]
                for other in OTHER_OBJECTIVES:
                    measure_call(other, dim, folder)
                row.append(measure_call(formula, dim, folder)[0])
                rows.append([*row, *measure_call(formula, dim, folder)])
        least = [min(column) for column in zip(*rows, strict=True)]
        print(f"{f'{name}, {dim} variables':<44}" + "".join(f"{seconds:>9.3f}" for seconds in least), flush=True)


def measure_call(formula: str, dim: int, folder: str) -> list[float]:
    """Seconds of a first call in a process and of the next one."""
    printed = run_with_cache(["-c", CALLS.format(formula=formula, dim=dim)], folder)[1]
    return [float(word) for word in printed.split()]


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
    measure_first_answers(options.rounds)
    measure_calling(options.rounds)


if __name__ == "__main__":
    main()
