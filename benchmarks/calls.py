"""What a call that compiles nothing takes, and what the host does in it: `python benchmarks/calls.py`.

The GA on Goldstein and Price's function, 64 individuals, 100 generations, by each engine that the machine has:
milliseconds from call to Result, the least and the median of several calls, those of waiting for the device, and how
many programs are called, transfers are made and bytes come back. With --timeline, when each of them begins and how long
it takes; programs go on while the host does the next thing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jax
import numpy as np

import galapax as gx
from galapax.numerics import compile_cache

Event = tuple[float, float, str, int]  # begin and end in seconds, what, bytes that came back
EVENTS: list[Event] = []


def call(runs: int, engine: str, history: bool) -> Any:
    return gx.minimize(
        gx.problems.get("goldstein_price"), algorithm=gx.ThreeParentGA(population=64), generations=100,
        runs=runs, tolerance=0,
        polish=False, progress=False, keep=gx.Keep(history=history), compute=gx.Compute(engine=engine),
    )  # fmt: skip


def note(owner: Any, name: str, what: str) -> None:
    """Have calls of `owner.name` noted."""
    work = getattr(owner, name)

    def noted(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        out = work(*arguments, **options)
        end = time.perf_counter()
        back = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(out)) if what == "get" else 0
        EVENTS.append((start, end, what, back))
        return out

    setattr(owner, name, noted)


def measure(runs: int, engine: str, history: bool, rounds: int, timeline: bool) -> None:
    try:
        call(runs, engine, history)
    except gx.InputError as error:
        print(f"{engine}: {error}")
        return
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = call(runs, engine, history)
        taken.append(1e3 * (time.perf_counter() - start))
    EVENTS.clear()
    start = time.perf_counter()
    call(runs, engine, history)
    count = {what: sum(event[2] == what for event in EVENTS) for what in ("program", "put", "get")}
    back = sum(event[3] for event in EVENTS)
    told = f"{runs}{'' if history else ', no history'}"
    print(
        f"{engine:<7}{told:>20}{min(taken):>9.2f}{statistics.median(taken):>9.2f}{1e3 * result.timings['device']:>9.2f}"
        f"{count['program']:>10}{count['put']:>6}{count['get']:>6}{back:>12}",
        flush=True,
    )
    for begin, end, what, size in EVENTS if timeline else []:
        print(f"    {1e3 * (begin - start):>8.2f} +{1e3 * (end - begin):>6.2f} ms  {what}{f' {size}' if size else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    on_gpu = jax.default_backend() == "gpu"
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 1000, 100_000] if on_gpu else [1])
    parser.add_argument("--engines", nargs="+", default=["xla", "fused"] if on_gpu else ["xla"])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--timeline", action="store_true")
    options = parser.parse_args()
    note(compile_cache.Program, "__call__", "program")
    note(jax, "device_put", "put")
    note(jax, "device_get", "get")
    print("engine                 runs    least   median   device  programs  puts  gets  bytes back")
    for engine in options.engines:
        for runs in options.runs:
            measure(runs, engine, True, options.rounds, options.timeline)
        measure(options.runs[-1], engine, False, options.rounds, options.timeline)


if __name__ == "__main__":
    main()
