"""What the benchmark scripts share: arguments, timing, tables, the line that names the machine, and processes.

Importing this module imports neither JAX nor galapax, so that a script can limit XLA's threads before it does.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# --- arguments --------------------------------------------------------------------------------------------------------


def make_parser(
    doc: str | None,
    *,
    rounds: int | None = None,
    runs: int | None = None,
    seed: int | None = None,
    only: bool = False,
    settings: bool = False,
) -> argparse.ArgumentParser:
    """Create a parser that shows a script's docstring, with the options that several scripts have.

    rounds, runs, seed: the default of the option, or None for no such option. only: add --only, for `is_selected`.
    settings: add --set, for `parse_settings`.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="timed calls of each row (%(default)s)")
    if runs is not None:
        parser.add_argument("--runs", type=int, default=runs, help="runs of each row (%(default)s)")
    if seed is not None:
        parser.add_argument("--seed", type=int, default=seed, help="the first seed (%(default)s)")
    if only:
        parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains this")
    if settings:
        parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a hyper-parameter")
    return parser


def is_selected(name: str, only: str) -> bool:
    """Whether a row with this name is wanted by --only."""
    return only.lower() in name.lower()


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read the values of --set, `population=80` each."""
    return {name: ast.literal_eval(value) for name, value in (pair.split("=") for pair in pairs)}


# --- timing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated calls, and what they returned.

    first: wall seconds of the first call, which pays for tracing and compiling.
    wall, cpu: seconds of each timed call, by the clock and of this process's CPU time.
    results: what these calls returned, all of which stays in memory: return little from them.
    """

    first: float
    wall: list[float]
    cpu: list[float]
    results: list[Any]

    @property
    def least(self) -> float:
        """Wall seconds of the fastest call: other work on the machine only adds."""
        return min(self.wall)

    @property
    def median(self) -> float:
        return statistics.median(self.wall)

    @property
    def fastest(self) -> Any:
        """The result of the fastest call."""
        return self.results[self.wall.index(self.least)]


def time_calls(call: Callable[[], Any], rounds: int) -> Timing:
    """Call once to warm up, then `rounds` times by the clock."""
    return time_alternately({"": call}, rounds)[""]


def time_alternately(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Timing]:
    """Warm up each of several calls, then time them in turn, so that a busy neighbour slows all of them alike."""
    timings = {name: Timing(time_call(call)[0], [], [], []) for name, call in calls.items()}
    for _ in range(rounds):
        for name, call in calls.items():
            for values, value in zip(_fields(timings[name]), time_call(call), strict=True):
                values.append(value)
    return timings


def time_call(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return wall seconds, CPU seconds and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def _fields(timing: Timing) -> tuple[list[Any], ...]:
    return timing.wall, timing.cpu, timing.results


# --- the machine ------------------------------------------------------------------------------------------------------


def describe_machine(*packages: str) -> str:
    """Write the line that every table begins with: the device, the cores, and the versions of JAX and of `packages`."""
    import jax

    device = jax.devices()[0]
    kind = name_cpu() if device.platform == "cpu" else device.device_kind
    versions = (f"{package} {read_version(package)}" for package in ("jax", *packages))
    return f"{kind}, {len(list_cores())} cores, Python {platform.python_version()}, {', '.join(versions)}"


def name_cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def read_version(package: str) -> str:
    """The installed version of a package, or that there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def list_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def bind_to_cores(count: int) -> None:
    """Keep this process on its last `count` cores, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, list_cores()[-count:])


def limit_threads(count: int) -> dict[str, str]:
    """The environment variables that keep XLA and BLAS at `count` threads, for a process that is about to start.

    XLA has a switch for one thread only; for more, `bind_to_cores` limits it.
    """
    limits = {f"{name}_NUM_THREADS": str(count) for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}
    flags = os.environ.get("XLA_FLAGS", "")
    return limits | ({"XLA_FLAGS": f"{flags} --xla_cpu_multi_thread_eigen=false".strip()} if count == 1 else {})


# --- tables -----------------------------------------------------------------------------------------------------------


class Table:
    """A Markdown table that is printed row by row, with columns that line up in a terminal too."""

    def __init__(self, *heads: str, widths: Sequence[int] = ()) -> None:
        """widths: of the first columns, at least; a column is never narrower than its head."""
        least = [*widths, *[9] * (len(heads) - len(widths))]
        self._widths = [max(len(head), width) for head, width in zip(heads, least, strict=True)]
        self.add(*heads)
        dashes = ["-" * width for width in self._widths]
        self._print([dashes[0], *(f"{dash[1:]}:" for dash in dashes[1:])])

    def add(self, *cells: Any) -> None:
        """Print a row; cells that are missing at its end stay empty."""
        text = [*map(str, cells), *[""] * (len(self._widths) - len(cells))]
        first, *others = (cell.rjust(width) for cell, width in zip(text, self._widths, strict=True))
        self._print([text[0].ljust(len(first)), *others])

    def _print(self, cells: Sequence[str]) -> None:
        print(f"| {' | '.join(cells)} |", flush=True)


# --- processes --------------------------------------------------------------------------------------------------------


def run_python(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run Python in a process of its own and return what it printed; its errors appear as they come."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env={**os.environ, **(environment or {})}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def map_on_cores(function: Callable[..., Any], work: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[tuple[Any, Any]]:
    """Yield (arguments, function(*arguments)) of all `work` as it is done, by processes bound to a core each."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.update({name: value for name, value in limit_threads(1).items() if name != "XLA_FLAGS"})
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    for core in list_cores():
        queue.put(core)
    with ProcessPoolExecutor(max(1, min(jobs, len(list_cores()), len(work))), context, _bind, (queue,)) as pool:
        pending = {pool.submit(function, *arguments): arguments for arguments in work}
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                yield pending.pop(future), future.result()


def _bind(queue: Any) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {queue.get()})
