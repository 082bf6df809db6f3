"""An ensemble on the cores of a CPU: `JAX_PLATFORMS=cpu python benchmarks/cores.py`.

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
from collections.abc import Callable
from typing import Any

import numpy as np

INDIVIDUALS, GENERATIONS, WEIGHT, RATE = 64, 100, 0.5, 0.9


def least(call: Callable[[], Any], rounds: int = 3) -> float:
    """Seconds."""
    call()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


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
        return least(lambda: pool.map(numpy_runs, pieces, chunksize=1))


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

    return least(call, rounds=1)


def ours(runs: int, threads: int, engine: str, rounds: int = 5) -> float:
    import galapax as gx

    problem = gx.problems.get("goldstein_price")
    return least(
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
    )


def on_one_core(rows: list[tuple[int, str]]) -> list[float]:
    """The same in a process that may use one core."""
    here = os.path.dirname(os.path.abspath(__file__))
    code = (
        "import json, os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        f"sys.path.insert(0, {here!r}); import cores; print(json.dumps([cores.ours(n, 1, e) for n, e in {rows}]))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    found: list[float] = json.loads(out.splitlines()[-1])
    return found


def apart(cores: int, rounds: int = 20) -> list[float]:
    """What 1000 native runs take in processes that know nothing of each other, each bound to a core, all at once: no
    program that uses all cores can be faster than this. Seconds of a call, of each process.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    code = (
        "import os, sys, time; os.sched_setaffinity(0, {int(sys.argv[1])}); "
        f"sys.path.insert(0, {here!r}); import cores; cores.ours(1000, 1, 'native'); print('ready', flush=True); "
        f"sys.stdin.readline(); start = time.perf_counter(); "
        f"[cores.ours(1000, 1, 'native', 1) for _ in range({rounds // 2})]; "  # two calls each
        f"print((time.perf_counter() - start) / {rounds})"
    )
    places = sorted(os.sched_getaffinity(0))[:cores]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for place in places
    ]
    for process in started:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [float(process.communicate()[0]) for process in started]


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 16_000])
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    from galapax.fused.cpu_kernel import find_compiler
    from galapax.numerics import devices

    cores = devices.count_cores()
    counts = [2**k for k in range(cores.bit_length()) if 2**k < cores] + [cores]
    print(f"{cores} cores; seconds from call to Result, and how many times faster than on one core")
    print(f"{'runs':<8}{'engine':<8}{'one core':>10}" + "".join(f"{f'{t} threads':>18}" for t in counts))
    rows = [(runs, engine) for runs in options.runs for engine in ["xla", *(["native"] if find_compiler() else [])]]
    for (runs, engine), alone in zip(rows, on_one_core(rows), strict=True):
        taken = [ours(runs, t, engine) for t in counts]
        told = f"{alone:>10.3f}" + "".join(f"{f'{t:.3f} ({alone / t:.1f}x)':>18}" for t in taken)
        print(f"{runs:<8}{engine:<8}{told}", flush=True)
    if find_compiler():
        one, all_of = apart(1)[0], apart(cores)
        mean = sum(all_of) / cores
        print(
            f"1000 native runs in each of {cores} processes at once, a core each: {mean:.3f} s on average, at most "
            f"{max(all_of):.3f}; in one alone {one:.3f}: {cores * one / mean:.1f}x"
        )
    for runs in options.runs if options.peers else []:
        archipelago = pygmo_archipelago(runs)
        pygmo = "not installed" if archipelago is None else f"{archipelago:.2f} s"
        print(f"{runs:<8}NumPy, {cores} processes: {numpy_on_all_cores(runs, cores):.3f} s; pygmo: {pygmo}", flush=True)


if __name__ == "__main__":
    main()
