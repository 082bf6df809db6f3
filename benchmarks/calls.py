"""What a call that compiles nothing takes, and what the host does in it: `python benchmarks/calls.py`.

The GA on Goldstein and Price's function, 64 individuals, 100 generations, by each engine that the machine has:
milliseconds from call to Result, the least and the median of several calls, those of waiting for the device, and how
many programs are called, transfers are made and bytes come back. With --timeline, when each of them begins and how long
it takes; programs go on while the host does the next thing.
"""

from __future__ import annotations

import time
from typing import Any

import harness
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


def record_calls(owner: Any, name: str, what: str) -> None:
    """Replace `owner.name` by a function that also records each call."""
    work = getattr(owner, name)

    def recorded(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        out = work(*arguments, **options)
        end = time.perf_counter()
        back = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(out)) if what == "get" else 0
        EVENTS.append((start, end, what, back))
        return out

    setattr(owner, name, recorded)


def measure(table: harness.Table, runs: int, engine: str, history: bool, rounds: int, timeline: bool) -> None:
    try:
        timing = harness.time_calls(lambda: call(runs, engine, history).timings, rounds)
    except gx.InputError as error:
        print(f"{engine}: {error}")
        return
    EVENTS.clear()
    start = time.perf_counter()
    call(runs, engine, history)
    count = {what: sum(event[2] == what for event in EVENTS) for what in ("program", "put", "get")}
    back = sum(event[3] for event in EVENTS)
    seconds = timing.least, timing.median, timing.results[-1]["device"]
    title = f"{engine}, {runs} runs{'' if history else ', no history'}"
    table.add(title, *(f"{1e3 * value:.2f}" for value in seconds), *count.values(), back)
    for begin, end, what, size in EVENTS if timeline else []:
        print(f"    {1e3 * (begin - start):>8.2f} +{1e3 * (end - begin):>6.2f} ms  {what}{f' {size}' if size else ''}")


def main() -> None:
    parser = harness.make_parser(__doc__, rounds=12)
    on_gpu = jax.default_backend() == "gpu"
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 1000, 100_000] if on_gpu else [1])
    parser.add_argument("--engines", nargs="+", default=["xla", "fused"] if on_gpu else ["xla"])
    parser.add_argument("--timeline", action="store_true")
    options = parser.parse_args()
    record_calls(compile_cache.Program, "__call__", "program")
    record_calls(jax, "device_put", "put")
    record_calls(jax, "device_get", "get")
    print(f"{harness.describe_machine()}; milliseconds of a call")
    table = harness.Table("", "least", "median", "device", "programs", "puts", "gets", "bytes back", widths=[34])
    for engine in options.engines:
        for runs in options.runs:
            measure(table, runs, engine, True, options.rounds, options.timeline)
        measure(table, options.runs[-1], engine, False, options.rounds, options.timeline)


if __name__ == "__main__":
    main()
