"""An ensemble on the cores of a CPU: `JAX_PLATFORMS=cpu python benchmarks/thread_scaling.py`.

A thousand and sixteen thousand runs of DE/rand/1/bin on Goldstein and Price's function: 64 individuals, 100
generations, float32, from call to Result: in a process bound to one core, and by 1, 2, 4, ... threads on all of them
(XLA's own threads help a single one of ours), by the engines xla and, with a C compiler, native. Beside it the same
work in NumPy (all runs of a process as one array, a process on each core) and, if it is installed, pygmo's archipelago
(float64, a thread for each of a thousand runs at a time, its C++ Rastrigin function in two variables, as it would call
a Python function under one lock).
The least of five calls counts; each is made once before. All rows are measured in one run on one machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time

import harness
import numpy as np

INDIVIDUALS, GENERATIONS, WEIGHT, RATE = 64, 100, 0.5, 0.9


def numpy_runs(arguments: tuple[int, int]) -> float:
    """So many runs as one array; the best value of all."""
    runs, seed = arguments
    rng = np.random.default_rng(seed)

    def goldstein_price(x: np.ndarray) -> np.ndarray:
        a, b = x[..., 0], x[..., 1]
        first = 1 + (a + b + 1) ** 2 * (19 - 14 * a + 3 * a**2 - 14 * b + 6 * a * b + 3 * b**2)
        return first * (30 + (2 * a - 3 * b) ** 2 * (18 - 32 * a + 12 * a**2 + 48 * b - 36 * a * b + 27 * b**2))

    shape = (runs, INDIVIDUALS)
    x = rng.random((*shape, 2), np.float32) * 4 - 2
    value = goldstein_price(x)
    rows, here = np.arange(runs)[:, None], np.arange(INDIVIDUALS)
    for _ in range(GENERATIONS):
        # three different partners, none of them the individual itself: by steps around a circle
        steps = np.sort(rng.integers(1, INDIVIDUALS - 2, (3, *shape)), axis=0) + np.arange(3)[:, None, None]
        r1, r2, r3 = (x[rows, (here + step) % INDIVIDUALS] for step in rng.permuted(steps, axis=0))
        taken = rng.random((*shape, 2), np.float32) < RATE
        taken[rows, here, rng.integers(0, 2, shape)] = True
        trial = np.clip(np.where(taken, r1 + np.float32(WEIGHT) * (r2 - r3), x), -2, 2)
        tried = goldstein_price(trial)
        better = tried <= value
        x[better], value[better] = trial[better], tried[better]
    return float(value.min())


def numpy_on_all_cores(runs: int, cores: int) -> float:
    pieces = [(64, seed) for seed in range(runs // 64)]  # 64 runs at once fit the cache
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        return harness.time_calls(lambda: pool.map(numpy_runs, pieces, chunksize=1), 3).least


def pygmo_archipelago(runs: int) -> float | None:
    try:
        import pygmo
    except ImportError:
        return None

    algorithm = pygmo.algorithm(pygmo.de(gen=GENERATIONS, F=WEIGHT, CR=RATE, variant=7, ftol=0, xtol=0))

    def call() -> None:
        for start in range(0, runs, 1000):  # an island is a thread: a machine bears a thousand of them
            islands = pygmo.archipelago(
                n=min(1000, runs - start), t=pygmo.unconnected(), algo=algorithm,
                prob=pygmo.problem(pygmo.rastrigin(2)), pop_size=INDIVIDUALS, udi=pygmo.thread_island(),
            )  # fmt: skip
            islands.evolve()
            islands.wait_check()

    return harness.time_calls(call, 1).least


def ours(runs: int, threads: int, engine: str, rounds: int = 5) -> float:
    import galapax as gx

    problem = gx.problems.get("goldstein_price")
    return harness.time_calls(
        lambda: gx.minimize(
            problem,
            algorithm=gx.DE(population=INDIVIDUALS),
            generations=GENERATIONS,
            runs=runs,
            tolerance=0,
            polish=False,
            progress=False,
            keep=gx.Keep(history=False),
            compute=gx.Compute(dtype="float32", threads=threads, engine=engine),
        ),
        rounds,
    ).least


def measure_on_one_core(rows: list[tuple[int, str]], rounds: int) -> list[float]:
    """Seconds of these rows in a process that may use one core."""
    order = json.dumps({"rows": rows, "rounds": rounds})
    seconds: list[float] = json.loads(harness.run_python(__file__, "--one-core", order).splitlines()[-1])
    return seconds


def measure_apart(cores: int, rounds: int = 20) -> list[float]:
    """Seconds of a call in each of several processes that know nothing of each other, bound to a core each, at once.

    1000 native runs each: no program that uses all cores can be faster than this.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--apart", str(core), "--rounds", str(rounds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for core in harness.list_cores()[:cores]
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [float(process.communicate()[0]) for process in processes]


def run_apart(core: int, rounds: int) -> None:
    """What one process of `measure_apart` does: compile, say so, wait for the others, and measure."""
    os.sched_setaffinity(0, {core})
    ours(1000, 1, "native", 1)
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    calls = sum(2 for _ in range(rounds // 2) if ours(1000, 1, "native", 1))  # two calls each
    print((time.perf_counter() - start) / calls)


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    parser = harness.make_parser(__doc__, rounds=5)
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 16_000])
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--one-core", help=argparse.SUPPRESS)
    parser.add_argument("--apart", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_core:
        harness.bind_to_cores(1)
        order = json.loads(options.one_core)
        print(json.dumps([ours(runs, 1, engine, order["rounds"]) for runs, engine in order["rows"]]))
        return
    if options.apart is not None:
        run_apart(options.apart, options.rounds)
        return
    from galapax.fused.cpu_kernel import find_compiler

    cores = len(harness.list_cores())
    counts = [2**k for k in range(cores.bit_length()) if 2**k < cores] + [cores]
    print(f"{harness.describe_machine('pygmo')}; seconds of a call, and how many times faster than on one core")
    heads = (f"{count} thread{'s' if count > 1 else ''}" for count in counts)
    table = harness.Table("runs, engine", "one core", *heads, widths=[16, 9, *[14] * len(counts)])
    has_compiler = find_compiler() is not None
    rows = [(runs, engine) for runs in options.runs for engine in ["xla", *(["native"] if has_compiler else [])]]
    for (runs, engine), alone in zip(rows, measure_on_one_core(rows, options.rounds), strict=True):
        seconds = [ours(runs, count, engine, options.rounds) for count in counts]
        table.add(f"{runs}, {engine}", f"{alone:.3f}", *(f"{one:.3f} ({alone / one:.1f}x)" for one in seconds))
    if has_compiler:
        alone, together = measure_apart(1)[0], measure_apart(cores)
        mean = sum(together) / cores
        print(
            f"1000 native runs in each of {cores} processes at once, a core each: {mean:.3f} s on average, at most "
            f"{max(together):.3f}; in one alone {alone:.3f}: {cores * alone / mean:.1f}x"
        )
    for runs in options.runs if options.peers else []:
        archipelago = pygmo_archipelago(runs)
        pygmo = "not installed" if archipelago is None else f"{archipelago:.2f} s"
        print(
            f"{runs} runs, NumPy, {cores} processes: {numpy_on_all_cores(runs, cores):.3f} s; pygmo: {pygmo}",
            flush=True,
        )


if __name__ == "__main__":
    main()
