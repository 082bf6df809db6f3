"""The BBOB suite, judged as COCO does: evaluations until f - f_opt falls below each of 51 targets from 1e2 to 1e-8.

python benchmarks/bbob.py --dims 5 20 --save default.json         minimize's default, 24 functions x 15 instances
python benchmarks/bbob.py --algorithm de --set population=50 --dims 10 --functions 1 8 15
python benchmarks/bbob.py --peer pycma-bipop --dims 5 20 --save pycma.json
python benchmarks/bbob.py --compare default.json pycma.json --ecdf ecdf.png --coco coco
python -m cocopp -o ppdata coco/default coco/pycma-bipop         COCO's own tables and figures

One run an instance, each a single call of `gx.minimize`, on one core; functions are spread over processes. With --batch
all instances of a function are one computation, on the device that JAX finds: one search each, which does not restart,
so that it says how fast a device gets through a suite rather than what `minimize` would find. galapax's evaluations are
counted at the ends of generations, a peer's one by one. Run lengths are as they were, not bootstrapped. A run's seed is
the number of its instance plus --seed.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import bbob_report as report
import harness
from bbob_runs import FINAL, PEERS, TARGETS, solve

LONGEST = [24, 23, 21, 22, 16, 19, 20, 15, 4, 3, 18, 17, 7, 12, 13]  # these begin


def pieces(dims: list[int], functions: list[int], instances: list[int], jobs: int) -> list[tuple[int, int, list[int]]]:
    """(function, dim, instances) for one process each, the longest first.

    Instances of a function stay together, since they share a program, unless there are more processes than functions.
    """
    ranked = sorted(functions, key=lambda f: LONGEST.index(f) if f in LONGEST else len(LONGEST) + f)
    cuts = min(math.ceil(jobs / (len(dims) * len(functions))), len(instances))
    return [(f, dim, instances[i::cuts]) for dim in sorted(dims, reverse=True) for f in ranked for i in range(cuts)]


def run_all(plan: dict[str, Any], work: list[tuple[int, int, list[int]]], jobs: int, save: Path | None) -> Any:
    """The result of all pieces of work, kept on disk as it grows. jobs: processes; 0 for batches on the device."""
    result: dict[str, Any] = {**plan, "targets": TARGETS, "versions": _versions(), "runs": []}
    began, saved = time.perf_counter(), 0.0
    given = [(*piece, plan) for piece in work]
    made = harness.map_on_cores(solve, given, jobs) if jobs else _one_by_one(given)
    for number, ((function, dim, instances, _), runs) in enumerate(made, 1):
        result["runs"] += runs
        hits = sum(run["final"] <= FINAL for run in runs)
        print(
            f"[{number}/{len(work)}] {dim}-D f{function}: {hits} of {len(instances)} at 1e-8, "
            f"{sum(run['evaluations'] for run in runs)} evaluations, {sum(run['seconds'] for run in runs):.1f} s",
            flush=True,
        )
        now = time.perf_counter() - began
        if save is not None and (now - saved > 10.0 or number == len(work)):
            saved = now
            save.write_text(json.dumps(result))
    result["runs"].sort(key=lambda run: (run["dim"], run["function"], run["instance"]))
    print(f"{time.perf_counter() - began:.0f} s with {jobs or 1} process{'es' * (jobs > 1)}\n")
    return result


def _one_by_one(work: list[tuple[Any, ...]]) -> Iterator[tuple[Any, Any]]:
    """In this process, a batch after the other."""
    from bbob_batch import solve_together

    for arguments in work:
        yield arguments, solve_together(*arguments)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("galapax", "jax", "numpy", "cma", "scipy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _plan(given: argparse.Namespace) -> dict[str, Any]:
    """What every process needs to know."""
    settings = harness.parse_settings(given.set)
    if given.peer is not None:
        if find_spec("cma") is None:
            raise SystemExit("--peer runs on pycma's functions: pip install cma.")
        name = given.peer
    else:
        from galapax import algorithms

        if given.algorithm != "default":
            algorithms.get(given.algorithm, **settings)  # refuses what it does not know
        elif settings:
            raise SystemExit("--set needs --algorithm NAME.")
        name = given.algorithm + "".join(f"-{key}={value}" for key, value in settings.items())
        name += "-one-search" if given.batch else ""
    kind = f"peer {name}" if given.peer else f"galapax {name} {settings or ''}".strip()
    return {
        "label": given.label or name,
        "about": f"{kind}, {given.budget} evaluations x dimension",
        "algorithm": given.algorithm,
        "settings": settings,
        "restarts": given.restarts,
        "polish": given.polish,
        "peer": given.peer,
        "budget": given.budget,
        "seed": given.seed,
        "dtype": given.dtype,
    }


def main() -> None:
    parser = harness.make_parser(__doc__, seed=0, settings=True)
    parser.add_argument("--algorithm", default="default", help="a name of `galapax list`; default: minimize's choice")
    parser.add_argument(
        "--restarts", default="auto", help="auto, none, plain, ipop, bipop, or portfolio:NAME=VALUE,..."
    )
    parser.add_argument("--polish", action="store_true", help="let gradients help, which no peer here has")
    parser.add_argument("--peer", choices=PEERS, help="run this instead, on pycma's functions (pip install cma)")
    parser.add_argument("--dims", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--functions", type=int, nargs="+", default=list(range(1, 25)))
    parser.add_argument("--instances", type=int, nargs="+", default=list(range(1, 16)))
    parser.add_argument("--budget", type=int, default=10_000, help="evaluations of a run, times the dimension")
    parser.add_argument("--dtype", default="float64", help="in float32 the steps of x are too coarse for f2, f10-f13")
    parser.add_argument("--jobs", type=int, default=len(harness.list_cores()), help="processes, one core each")
    parser.add_argument("--batch", action="store_true", help="all instances at once, one search each")
    parser.add_argument("--label", help="how tables and folders call it")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="keep the runs")
    parser.add_argument("--compare", type=Path, nargs="+", metavar="FILE.json", help="show kept runs, run nothing")
    parser.add_argument("--ecdf", type=Path, metavar="FILE.png", help="draw the share of targets by evaluations")
    parser.add_argument("--coco", type=Path, metavar="FOLDER", help="write COCO data, FOLDER/LABEL each")
    given = parser.parse_args()
    if given.compare:
        results = [json.loads(file.read_text()) for file in given.compare]
        if len({result["label"] for result in results}) < len(results):
            for result, file in zip(results, given.compare, strict=True):
                result["label"] = file.stem
    else:
        if given.batch and given.peer:
            raise SystemExit("--batch is for galapax, not for a --peer.")
        if given.batch and given.restarts not in ("auto", "none"):
            raise SystemExit("--batch makes one search an instance: leave --restarts out.")
        if given.batch:
            given.restarts = "none"
        jobs = 0 if given.batch else max(1, min(given.jobs, len(harness.list_cores())))
        work = pieces(given.dims, given.functions, given.instances, max(1, jobs))
        results = [run_all(_plan(given), work, jobs, given.save)]
    print(report.tables(results))
    if given.ecdf:
        report.draw(results, given.ecdf)
    if given.coco:
        for result in results:
            report.write_coco(result, given.coco / result["label"])


if __name__ == "__main__":
    main()
