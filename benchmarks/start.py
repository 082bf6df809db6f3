"""What a user waits for before anything is computed: `python benchmarks/start.py`.

Starting: seconds of `import jax`, of `import galapax` after it, and of the command `galapax solve rastrigin -g 200`
with an empty folder of compiled programs and with the folder that it left. First answers: seconds of the first plain
call of a process, from Python to Result, with an empty folder, with what the same call for three other objectives left
there, and with what this one did; then of the next calls in that process; and the seconds of CPU that the first one
took, in all threads, which count where others use the machine. Calling: milliseconds of a call that compiles nothing.
The least of several tries counts; all are made in one run on one machine. --only: first answers of these rows alone.
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
from time import perf_counter, process_time
import galapax as gx, jax.numpy as jnp
def call():
    start = perf_counter()
    gx.minimize(lambda x: {formula}, [(-5.12, 5.12)] * {dim}, seed=0, runs={runs})
    return perf_counter() - start
begin = process_time()
first = call()
print(first, process_time() - begin, min(call() for _ in range({repeats})))
"""
ROSENBROCK = "jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)"
FIRST_ANSWERS = (  # name, variables, runs, formula
    ("sphere", 5, 1, "jnp.sum(x * x)"),
    ("Rosenbrock", 10, 1, ROSENBROCK),
    ("Rastrigin", 5, 1, "10 * x.size + jnp.sum(x * x - 10 * jnp.cos(2 * jnp.pi * x))"),
    ("Griewank", 5, 1, "1 + jnp.sum((100 * x) ** 2) / 4000 - jnp.prod(jnp.cos(100 * x / jnp.sqrt(jnp.arange(1, 6))))"),
    ("Ackley", 2, 1, "-20 * jnp.exp(-0.2 * jnp.sqrt(jnp.mean(x * x))) - jnp.exp(jnp.mean(jnp.cos(2 * jnp.pi * x)))"),
    ("Rosenbrock ensemble", 10, 100, ROSENBROCK),
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


def measure_first_answers(rounds: int, only: list[str] | None) -> None:
    columns = "".join(f"{name:>9}" for name in ("nothing", "others", "its own", "2nd call"))
    print(f"{'seconds of a call, on disk before it':<44}{columns}   CPU of the first three")
    for name, dim, runs, formula in FIRST_ANSWERS:
        if only and name not in only:
            continue
        rows = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as folder:
                nothing = measure_call(formula, dim, runs, empty, 1)
                for other in OTHER_OBJECTIVES if runs == 1 else [ROSENBROCK + " + 0.1 * x[0]"]:
                    measure_call(other, dim, runs, folder, 1)
                others = measure_call(formula, dim, runs, folder, 1)
                own = measure_call(formula, dim, runs, folder, 5)
                rows.append([nothing[0], others[0], own[0], own[2], nothing[1], others[1], own[1]])
        least = [f"{min(column):>9.3f}" for column in zip(*rows, strict=True)]
        title = f"{name}, {dim} variables" + (f", {runs} runs" if runs > 1 else "")
        print(f"{title:<44}{''.join(least[:4])}   CPU{''.join(least[4:])}", flush=True)


def measure_call(formula: str, dim: int, runs: int, folder: str, repeats: int) -> list[float]:
    """Seconds of a first call in a process, and of CPU in it, and the least of the next calls."""
    printed = run_with_cache(["-c", CALLS.format(formula=formula, dim=dim, runs=runs, repeats=repeats)], folder)[1]
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
    parser = harness.make_parser(__doc__, rounds=5)
    parser.add_argument("--only", nargs="+", choices=[row[0] for row in FIRST_ANSWERS])
    options = parser.parse_args()
    if not options.only:
        measure_starting(options.rounds)
    measure_first_answers(options.rounds, options.only)
    if not options.only:
        measure_calling(options.rounds)


if __name__ == "__main__":
    main()
