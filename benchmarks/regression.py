"""This tree beside another one, row by row: `python benchmarks/regression.py ../older [--only CDE] [--rounds 15]`.

Both are measured in processes of their own on the same machine, one call of each in turn, so that a busy neighbour
slows both; the least of all rounds counts. With JAX_PLATFORMS=cpu a process is bound to one core. A row is what a warm
call of `minimize` takes from call to Result, how long it waits for the device, which leaves out the fixed cost of a
call, and its CPU time, which a busy machine changes least; the last column is the median, over all rounds, of the ratio
of the two CPU times. Warm: the program of whole chunks is compiled, as it is after a few calls of a new objective
(docs/architecture.md); the calls before that are measured by start.py.

The rows are written in words that trees of different age share; `translate_options` turns them into the arguments that
a tree has. A row that one of the trees cannot compute is shown with its error, and the others are measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import harness

ROUNDS = 15
KINDS = ("call", "device", "CPU")
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


def serve(tree: str) -> None:
    """Measure the tree that is imported: for each row named on standard input, warm it up; for each empty line, call it
    once. Prints what came of it as JSON: the row's name, the seconds of a call (call, device, CPU), or an error.
    """
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        harness.bind_to_cores(1)
    import jax

    import galapax as gx

    if not Path(gx.__file__).is_relative_to(tree):
        raise SystemExit(f"{tree} holds no galapax: {gx.__file__} was imported. Name the src folder of a tree.")
    rows = list_rows(jax.default_backend() != "cpu")
    call: Callable[[], Any] = list
    for line in sys.stdin:
        answer: Any = line.strip()
        try:
            if answer:
                call = build_call(rows[answer])
                warm_up(call)
            else:
                wall, cpu, device = harness.time_call(call)
                answer = [wall, device, cpu]
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


class Tree:
    """A tree that is measured, in a process of its own, with a disk cache of its own."""

    def __init__(self, source: Path, cache: Path) -> None:
        paths = f"{source}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, "PYTHONPATH": paths, "GALAPAX_CACHE": str(cache)}
        command = [sys.executable, __file__, "--serve", str(source)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)

    def ask(self, line: str) -> Any:
        """Name a row, or nothing for a call of it; return the answer of `serve`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(other: Path, only: str, rounds: int) -> None:
    """Measure both trees call by call in turn, and print a line for each row as it is done."""
    import jax

    rows = [name for name in list_rows(jax.default_backend() != "cpu") if harness.is_selected(name, only)]
    print(f"{harness.describe_machine()}; milliseconds of a call, waiting for the device, and of the CPU")
    heads = (head for kind in KINDS for head in (f"{kind} before", "after", "ratio"))
    table = harness.Table("row", *heads, "median", widths=[28])
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        trees = [Tree(source, Path(folder) / name) for name, source in (("before", other), ("after", HERE))]
        for tree in trees:
            stack.callback(tree.close)
        for row in rows:
            answers = [tree.ask(row) for tree in trees]
            seconds: list[list[list[float]]] = [[], []]
            for k in range(rounds):
                for i in (0, 1) if k % 2 else (1, 0):
                    if all(answer == row for answer in answers):
                        seconds[i].append(trees[i].ask(""))
            for name, answer in zip(("before", "after"), answers, strict=True):
                if answer != row:
                    print(f"{row}, {name}: {answer['error']}", file=sys.stderr)
            table.add(row, *(_cells(*seconds) if seconds[0] else ()))


def _cells(before: list[list[float]], after: list[list[float]]) -> list[str]:
    """Return the cells of a row: of each kind the least and their ratio, and the median of all ratios of CPU time."""
    cells: list[str] = []
    for old, new in zip(map(min, zip(*before, strict=True)), map(min, zip(*after, strict=True)), strict=True):
        cells += [f"{1e3 * old:.2f}", f"{1e3 * new:.2f}", f"{new / old:.3f}"]
    pairs = [new[-1] / old[-1] for old, new in zip(before, after, strict=True)]
    return [*cells, f"{statistics.median(pairs):.3f}"]


def main() -> None:
    parser = harness.make_parser(__doc__, rounds=ROUNDS, only=True)
    parser.add_argument("other", nargs="?", type=Path, help="the other tree, or its src folder")
    parser.add_argument("--serve", metavar="TREE", help="measure the tree that is imported, as `compare` asks")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.other is None:
        parser.error("name the tree to compare with")
    other = options.other.resolve()
    compare(other / "src" if (other / "src").is_dir() else other, options.only, options.rounds)


if __name__ == "__main__":
    main()
