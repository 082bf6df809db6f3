"""This tree beside another one, row by row: `python benchmarks/regression.py ../older/src`.

Both are measured in turn, in processes of their own, on the same machine; the least of all rounds counts, so that a
busy neighbour does not. With JAX_PLATFORMS=cpu a process is bound to one core. A row is what a warm call of `minimize`
takes from call to Result, and how long it waits for the device, which leaves out the fixed cost of a call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

ROUNDS, CALLS = 3, 5
HERE = Path(__file__).resolve().parents[1] / "src"


def rows(gpu: bool) -> dict[str, Callable[[], Any]]:
    """What is measured: {name: a call of the library}."""
    import jax.numpy as jnp

    import galapax as gx

    def rastrigin(x: Any) -> Any:
        return 10.0 * x.shape[0] + jnp.sum(x * x - 10.0 * jnp.cos(2 * jnp.pi * x))

    box: list[tuple[float, float]] = [(-5.12, 5.12)] * 32
    quiet: dict[str, Any] = {"progress": False}
    known = signature(gx.minimize).parameters
    quiet |= {k: v for k, v in (("tolerance", 0), ("polish", False)) if k in known}  # as much work as older trees do
    made: dict[str, Callable[[], Any]] = {}

    def add(name: str, problem: Any, algorithm: Any, bounds: Any = None, **options: Any) -> None:
        made[name] = lambda: gx.minimize(problem, bounds, algorithm, **quiet, **options)

    kinds = ("float32",) if gpu else ("float32", "float64")
    sizes = {50: 20_000, 1_000: 20_000, 10_000: 10_000, 100_000: 4_000} if gpu else {50: 4000, 1_000: 500, 10_000: 60}
    for kind in kinds:
        for n, g in sizes.items():
            add(
                f"DE n = {n}, {kind}",
                rastrigin,
                gx.DE(population=n),
                box,
                generations=g,
                compute=gx.Compute(dtype=kind),
            )
    for n, g in ({400: 10_000, 6_400: 10_000} if gpu else {400: 500, 6_400: 40}).items():
        add(f"FEP n = {n}", rastrigin, gx.FEP(population=n), box, generations=g, compute=gx.Compute(dtype="float32"))
    zdt1 = gx.problems.get("zdt1")
    as_published = {"published": True} if "published" in signature(gx.NSGA2).parameters else {}  # as before
    for n, g in ({1024: 1000, 4096: 200} if gpu else {100: 1000, 1024: 60, 4096: 15}).items():
        add(
            f"NSGA-II n = {n}",
            zdt1,
            gx.NSGA2(population=n, **as_published),
            generations=g,
            compute=gx.Compute(dtype="float32"),
        )
        add(
            f"sharing MOEA n = {n}",
            zdt1,
            gx.SharingMOEA(population=n),
            generations=g if gpu else g // 3,
            compute=gx.Compute(dtype="float32"),
        )
    for runs in (1, 20, 1000) if gpu else (1, 20):
        g = 4000 if gpu or runs == 1 else 1000
        add(
            f"CDE g07, {runs} runs",
            gx.problems.get("g07"),
            "cde",
            generations=g,
            runs=runs,
            keep=gx.Keep(history=False),
        )
        add(f"epsilon DE g07, {runs} runs", gx.problems.get("g07"), "epsilon_de", generations=g // 4, runs=runs)
    two = gx.problems.get("goldstein_price")
    for runs in (1000, 100_000) if gpu else (30, 1000):
        add(
            f"DE 64 x 2, {runs} runs",
            two,
            gx.DE(population=64),
            generations=100,
            runs=runs,
            compute=gx.Compute(dtype="float32"),
        )
        ackley = gx.problems.get("gagpu_ackley")
        add(
            f"GA 64 x 2, {runs} runs",
            ackley,
            gx.ThreeParentGA(population=64),
            generations=100,
            runs=runs,
            compute=gx.Compute(dtype="float32"),
        )
    return made


def measure(only: str) -> dict[str, tuple[float, float]]:
    """Seconds of each row, the least of some calls: from call to Result, and waiting for the device."""
    import jax

    out = {}
    for name, call in rows(jax.default_backend() != "cpu").items():
        if only not in name:
            continue
        call()
        best = [float("inf")] * 2
        for _ in range(CALLS):
            start = time.perf_counter()
            result = call()
            best = list(map(min, best, (time.perf_counter() - start, result.timings["device"])))
        out[name] = (best[0], best[1])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", help="the src folder of the other tree")
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.only)))
        return
    found: dict[str, dict[str, list[float]]] = {"before": {}, "after": {}}
    trees = {"before": Path(given.other).resolve(), "after": HERE}
    bound = ["taskset", "-c", str(max(os.sched_getaffinity(0)))] if os.environ.get("JAX_PLATFORMS") == "cpu" else []
    for _ in range(given.rounds):
        for name, tree in trees.items():
            command = [*bound, sys.executable, __file__, "--measure", "--only", given.only]
            paths = f"{tree}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
            done = subprocess.run(
                command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True, check=True
            )
            for row, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                found[name][row] = list(map(min, seconds, found[name].get(row, seconds)))
    head = "milliseconds: call, device"
    print(f"{head:28} {'before':>9} {'after':>9} {'ratio':>6}   {'before':>9} {'after':>9} {'ratio':>6}")
    for row, before in found["before"].items():
        pairs = zip(before, found["after"][row], strict=True)
        cells = [f"{1e3 * old:9.2f} {1e3 * new:9.2f} {new / old:6.3f}" for old, new in pairs]
        print(f"{row:28} {'   '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
