"""Success on the constrained problems of CEC 2006, judged as there: feasible, and f - f* at most 1e-4.

python benchmarks/cec2006.py                         all of them but g20, which has no feasible point
python benchmarks/cec2006.py --polish                what gx.minimize(problem) does, but for the evaluations
python benchmarks/cec2006.py g13 --without-derivatives
python benchmarks/cec2006.py g02 g10 --runs 100 --evaluations 200000 --set population=80 --set relaxed=200
"""

from __future__ import annotations

import time
from typing import Any

import harness
import jax
import numpy as np

import galapax as gx
from galapax import algorithms

CLOSE = 1e-4
NAMES = [f"g{i:02d}" for i in range(1, 25) if i != 20]


def vectorized(problem: gx.Problem) -> gx.Problem:
    """The same problem as functions of many solutions, whose constraints are repaired by differences, like a black
    box's.
    """

    def many(function: Any) -> Any:
        return None if function is None else jax.vmap(function)

    return problem.with_(fun=many(problem.fun), ineq=many(problem.ineq), eq=many(problem.eq))


def solve(
    name: str, algorithm: Any, runs: int, evaluations: int, seed: int, polish: bool, derivatives: bool
) -> dict[str, Any]:
    """One row of the table."""
    problem = gx.problems.get(name) if derivatives else vectorized(gx.problems.get(name))
    began = time.perf_counter()
    res = gx.minimize(
        problem, algorithm, runs=runs, max_evaluations=evaluations, tolerance=0, polish=polish, seed=seed,
        progress=False, vectorized=not derivatives,
    compute=gx.Compute(dtype="float64"),
    )  # fmt: skip
    took = time.perf_counter() - began
    feasible = res.runs.violation <= 0
    error = res.runs.fun - problem.optimum
    history = res.runs.history
    reached = (history.best - problem.optimum <= CLOSE) & (history.violation <= 0)
    counts = np.broadcast_to(history.nfev, reached.shape)  # of every run, or for all of them
    first = np.take_along_axis(counts, np.argmax(reached, axis=1)[:, None], axis=1)[reached.any(axis=1)]
    return {
        "problem": name,
        "d": problem.dim,
        "runs": runs,
        "feasible": feasible.mean(),
        "success": (feasible & (error <= CLOSE)).mean(),
        "median": np.median(error[feasible]) if feasible.any() else np.nan,
        "worst": np.max(error[feasible]) if feasible.any() else np.nan,
        "until": np.median(first) if len(first) else np.nan,
        "spent": int(res.runs.nfev.max()),
        "seconds": took,
    }


def main() -> None:
    parser = harness.make_parser(__doc__, runs=25, seed=0, settings=True)
    parser.add_argument("problems", nargs="*", default=NAMES)
    parser.add_argument("--algorithm", default="epsilon_de")
    parser.add_argument("--evaluations", type=int, default=500_000, help="per run")
    parser.add_argument("--polish", action="store_true", help="refine the best of each run by its gradient")
    parser.add_argument("--without-derivatives", action="store_true", help="repair by differences of values")
    given = parser.parse_args()
    settings = harness.parse_settings(given.set)
    algorithm = algorithms.get(given.algorithm, **settings)
    print(
        f"{given.algorithm} {algorithms.plain_settings(algorithm)}; {given.runs} runs, {given.evaluations} evaluations"
    )
    print("problem   d  feasible  success  median f-f*   worst f-f*   evaluations until success / spent   seconds")
    solved = 0
    for name in given.problems:
        size = (given.runs, given.evaluations, given.seed)
        r = solve(name, algorithm, *size, given.polish, not given.without_derivatives)
        solved += r["success"] >= 0.9
        print(
            f"{r['problem']:7s} {r['d']:3d}  {r['feasible']:7.0%}  {r['success']:7.0%}  {r['median']:11.2e}  "
            f"{r['worst']:11.2e}  {r['until']:18.0f} / {r['spent']:<14d}  {r['seconds']:7.1f}",
            flush=True,
        )
    print(f"success in at least 90 % of the runs: {solved} of {len(given.problems)} problems")


if __name__ == "__main__":
    main()
