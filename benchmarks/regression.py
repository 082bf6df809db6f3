"""This tree beside another one, row by row: `python benchmarks/regression.py ../older [--only CDE] [--rounds 3]`.

Both are measured in turn, in processes of their own, on the same machine; the least of all rounds counts, so that a
busy neighbour does not. With JAX_PLATFORMS=cpu a process is bound to one core. A row is what a warm call of `minimize`
takes from call to Result, how long it waits for the device, which leaves out the fixed cost of a call, and its CPU
time, which a busy machine changes least. Warm: the program of whole chunks is compiled, as it is after a few calls of
a new objective (docs/architecture.md); the calls before that are measured by start.py.

The rows are written in words that trees of different age share; `translate_options` turns them into the arguments that
a tree has. A row that one of the trees cannot compute is shown with its error, and the others are measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import harness

ROUNDS, CALLS = 3, 5
HERE = Path(__file__).resolve().parents[1] / "src"
GROUPS = {"compute": ("Compute", ("dtype", "engine")), "keep": ("Keep", ("history",))}  # newer trees group options
NEWER_SETTINGS = ("published",)  # what an older tree does anyway
OPTIONAL = {"tolerance": 0, "polish": False}  # so that a tree that has them does as much work as one that has not

Row = dict[str, Any]  # "problem", "algorithm", "settings" of it, and options of minimize


def list_rows(gpu: bool) -> dict[str, Row]:
    """What is measured, by name."""
    rows: dict[str, Row] = {}

    def add(name: str, problem: str, algorithm: str, settings: dict[str, Any] | None = None, **options: Any) -> None:
        rows[name] = {"problem": problem, "algorithm": algorithm, "settings": settings or {}, **options}

    sizes = {50: 20_000, 1_000: 20_000, 10_000: 10_000, 100_000: 4_000} if gpu else {50: 4000, 1_000: 500, 10_000: 60}
    for dtype in ("float32",) if gpu else ("float32", "float64"):
        for n, g in sizes.items():
            add(f"DE n = {n}, {dtype}", "rastrigin32", "de", {"population": n}, generations=g, dtype=dtype)
    for n, g in ({400: 10_000, 6_400: 10_000} if gpu else {400: 500, 6_400: 40}).items():
        add(f"FEP n = {n}", "rastrigin32", "fep", {"population": n}, generations=g, dtype="float32")
    for n, g in ({1024: 1000, 4096: 200} if gpu else {100: 1000, 1024: 60, 4096: 15}).items():
        published = {"population": n, "published": True}
        add(f"NSGA-II n = {n}", "zdt1", "nsga2", published, generations=g, dtype="float32")
        short = g if gpu else g // 3
        add(f"sharing MOEA n = {n}", "zdt1", "sharing_moea", {"population": n}, generations=short, dtype="float32")
    for runs in (1, 20, 1000) if gpu else (1, 20):
        g = 4000 if gpu or runs == 1 else 1000
        add(f"CDE g07, {runs} runs", "g07", "cde", generations=g, runs=runs, history=False)
        add(f"epsilon DE g07, {runs} runs", "g07", "epsilon_de", generations=g // 4, runs=runs)
    for runs in (1000, 100_000) if gpu else (30, 1000):
        ensemble: dict[str, Any] = {"generations": 100, "runs": runs, "dtype": "float32"}
        add(f"DE 64 x 2, {runs} runs", "goldstein_price", "de", {"population": 64}, **ensemble)
        add(f"GA 64 x 2, {runs} runs", "gagpu_ackley", "ga", {"population": 64}, **ensemble)
    return rows


def build_call(row: Row) -> Callable[[], Any]:
    """The row as a call of the `minimize` that is imported, which returns how long it waited for the device."""
    import jax.numpy as jnp

    import galapax as gx

    def rastrigin(x: Any) -> Any:
        return 10.0 * x.shape[0] + jnp.sum(x * x - 10.0 * jnp.cos(2 * jnp.pi * x))

    name, algorithm, settings = row["problem"], row["algorithm"], row["settings"]
    is_own = name == "rastrigin32"
    problem = rastrigin if is_own else gx.problems.get(name)
    bounds = [(-5.12, 5.12)] * 32 if is_own else None
    kind = type(gx.algorithms.get(algorithm))
    known = signature(kind.__init__).parameters
    settings = {key: value for key, value in settings.items() if key in known or key not in NEWER_SETTINGS}
    solver = kind(**settings) if settings else algorithm
    options = {key: value for key, value in row.items() if key not in ("problem", "algorithm", "settings")}
    options = translate_options(gx, options)
    return lambda: gx.minimize(problem, bounds, solver, progress=False, **options).timings["device"]


def translate_options(gx: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options in the arguments that this tree's `minimize` has: grouped, or one by one."""
    known = signature(gx.minimize).parameters
    for group, (kind, names) in GROUPS.items():
        if group in known and any(name in options for name in names):
            members = {name: options[name] for name in names if name in options}
            options = {name: value for name, value in options.items() if name not in members}
            options[group] = getattr(gx, kind)(**members)
    return options | {name: value for name, value in OPTIONAL.items() if name in known}


def warm_up(call: Callable[[], Any]) -> None:
    """Call until nothing is left to compile.

    The first call of a new objective computes generation by generation. The second compiles the program of whole
    chunks, beside its generations where there is a core for it; on one core only once that pays, which is waited for.
    """
    with contextlib.suppress(ImportError):  # an older tree compiles it at once
        from galapax.numerics import compile_cache

        compile_cache.MAX_STEPPED_SECONDS = 0.0
    for _ in range(2):
        call()
        for thread in threading.enumerate():
            if thread.name.startswith("galapax"):
                thread.join()


def measure(only: str, tree: str) -> dict[str, Any]:
    """The least seconds of each row, [call, device, CPU], or the error that it ended with."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        harness.bind_to_cores(1)
    import jax

    import galapax as gx

    if not Path(gx.__file__).is_relative_to(tree):
        raise SystemExit(f"{tree} holds no galapax: {gx.__file__} was imported. Name the src folder of a tree.")
    seconds: dict[str, Any] = {}
    for name, row in list_rows(jax.default_backend() != "cpu").items():
        if not harness.is_selected(name, only):
            continue
        try:
            call = build_call(row)
            warm_up(call)
            timing = harness.time_calls(call, CALLS)
            seconds[name] = [timing.least, min(timing.results), min(timing.cpu)]
        except Exception as error:
            seconds[name] = f"{type(error).__name__}: {error}"
    return seconds


def compare(other: Path, only: str, rounds: int) -> None:
    """Measure both trees in turn and print the table."""
    best: dict[str, dict[str, Any]] = {"before": {}, "after": {}}
    trees = {"before": other, "after": HERE}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, tree in trees.items():
                paths = f"{tree}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
                # a cache for each: neither finds what the other has compiled
                environment = {"PYTHONPATH": paths, "GALAPAX_CACHE": str(Path(folder) / name)}
                printed = harness.run_python(__file__, "--measure", str(tree), "--only", only, environment=environment)
                for row, seconds in json.loads(printed.splitlines()[-1]).items():
                    known = best[name].get(row, seconds)
                    failed = isinstance(seconds, str) or isinstance(known, str)
                    best[name][row] = seconds if failed else list(map(min, seconds, known))
    print(f"{harness.describe_machine()}; milliseconds of a call, waiting for the device, and of the CPU")
    heads = (head for kind in ("call", "device", "CPU") for head in (f"{kind} before", "after", "ratio"))
    table = harness.Table("row", *heads, widths=[28])
    for row, before in best["before"].items():
        after = best["after"].get(row, "no such row")
        cells: list[str] = []
        if not isinstance(before, str) and not isinstance(after, str):
            for old, new in zip(before, after, strict=True):
                cells += [f"{1e3 * old:.2f}", f"{1e3 * new:.2f}", f"{new / old:.3f}"]
        table.add(row, *cells)
        for tree, seconds in (("before", before), ("after", after)):
            if isinstance(seconds, str):
                print(f"{row}, {tree}: {seconds}", file=sys.stderr)


def main() -> None:
    parser = harness.make_parser(__doc__, rounds=ROUNDS, only=True)
    parser.add_argument("other", nargs="?", type=Path, help="the other tree, or its src folder")
    parser.add_argument("--measure", metavar="TREE", help="measure the tree that is imported, and print JSON")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.only, options.measure)))
        return
    if options.other is None:
        parser.error("name the tree to compare with")
    other = options.other.resolve()
    compare(other / "src" if (other / "src").is_dir() else other, options.only, options.rounds)


if __name__ == "__main__":
    main()
