"""The CEC 2017 suite of single-objective problems, judged as there: mean error f - f* after 10 000 D evaluations.

python benchmarks/cec2017.py --dims 10 --runs 25 --save cec.json
python benchmarks/cec2017.py --algorithm de --set population=50 --functions 1 3 10

Awad, Ali, Suganthan, Liang & Qu (2016), Problem definitions and evaluation criteria for the CEC 2017 special session.
The functions are minionpy's (`pip install minionpy`), called as a black box: their shifts and rotations are compiled
into it. Beside ours stand published results: the mean of 51 runs of jSO (Brest, Maucec & Boskovic 2017), median and
mean of 25 runs of L-SRTDE (Stanovov & Semenkin 2024, from the authors' files). Errors below 1e-8 are 0; f2 is left out,
as the organisers did.
"""

from __future__ import annotations

import csv
import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import harness
import numpy as np

PUBLISHED = Path(__file__).parent / "data" / "cec2017_published.csv"
FUNCTIONS = [1, *range(3, 31)]


def solve(function: int, dim: int, seeds: list[int], plan: dict[str, Any]) -> dict[str, Any]:
    """Errors of the runs with these seeds, and the seconds that they took together."""
    from minionpy import CEC2017Functions

    import galapax as gx
    from galapax import algorithms

    gx.cache.enable()
    values = CEC2017Functions(function, dim)
    problem = gx.Problem(
        lambda x: np.asarray(values(x)) - 100.0 * function, gx.box(-100.0, 100.0, dim), name=f"cec2017_f{function}"
    )
    name = plan["algorithm"]
    began, errors = time.perf_counter(), []
    for seed in seeds:
        result = gx.minimize(
            problem,
            algorithm=None if name == "default" else algorithms.get(name, **plan["settings"]),
            max_evaluations=plan["budget"] * dim,
            target=1e-8,
            seed=seed,
            vectorized=True,
            blackbox=True,
            progress=False,
            keep=gx.Keep(history=False),
        )
        errors.append(float(result.fun) if result.fun >= 1e-8 else 0.0)
    return {"function": function, "dim": dim, "errors": errors, "seconds": time.perf_counter() - began}


def published() -> dict[tuple[int, int], dict[str, float]]:
    """{(dim, function): {algorithm: error}}."""
    with PUBLISHED.open(newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    return {(int(row.pop("dim")), int(row.pop("function"))): row for row in rows}


def table(results: list[dict[str, Any]], dim: int) -> str:
    known = published()
    names = list(next(iter(known.values())))
    lines = [
        f"{dim}-D, error f - f*",
        "",
        "|  f | galapax mean |     median |        std | " + " | ".join(f"{n:>14}" for n in names) + " |",
        "| -: | -----------: | ---------: | ---------: | " + " | ".join("-" * 13 + ":" for _ in names) + " |",
    ]
    better = dict.fromkeys(names, 0)
    rows = sorted((r for r in results if r["dim"] == dim), key=lambda r: r["function"])
    for row in rows:
        errors, others = np.array(row["errors"]), known.get((dim, row["function"]), {})
        cells = " | ".join(f"{others[n]:14.4g}" if n in others else " " * 14 for n in names)
        own = f"{errors.mean():12.4g} | {np.median(errors):10.4g} | {errors.std():10.4g}"
        lines.append(f"| {row['function']:2d} | {own} | {cells} |")
        for n in others:
            better[n] += (np.median(errors) if "median" in n else errors.mean()) <= others[n]
    lines += ["", *(f"no worse than {n} on {count} of {len(rows)} functions" for n, count in better.items())]
    return "\n".join([*lines, f"{sum(row['seconds'] for row in rows):.0f} s on one core"])


def main() -> None:
    parser = harness.make_parser(__doc__, runs=25, settings=True)
    parser.add_argument("--algorithm", default="default", help="a name of `galapax list`; default: minimize's choice")
    parser.add_argument("--dims", type=int, nargs="+", default=[10, 30], help="of 10, 20, 30, 50, 100")
    parser.add_argument("--functions", type=int, nargs="+", default=FUNCTIONS)
    parser.add_argument("--budget", type=int, default=10_000, help="evaluations of a run, times the dimension")
    parser.add_argument("--jobs", type=int, default=len(harness.list_cores()), help="processes, one core each")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="keep the errors")
    given = parser.parse_args()
    if find_spec("minionpy") is None:
        raise SystemExit("The functions are minionpy's: pip install minionpy.")
    settings = harness.parse_settings(given.set)
    plan = {"algorithm": given.algorithm, "settings": settings, "budget": given.budget}
    seeds = list(range(1, given.runs + 1))
    work = [(f, dim, seeds, plan) for dim in sorted(given.dims, reverse=True) for f in reversed(given.functions)]
    results = []
    for number, ((function, dim, _, _), row) in enumerate(harness.map_on_cores(solve, work, given.jobs), 1):
        results.append(row)
        print(
            f"[{number}/{len(work)}] {dim}-D f{function}: {np.mean(row['errors']):.4g}, {row['seconds']:.1f} s",
            flush=True,
        )
        if given.save:
            given.save.write_text(json.dumps({**plan, "results": results}))
    for dim in given.dims:
        print(f"\n{table(results, dim)}")


if __name__ == "__main__":
    main()
