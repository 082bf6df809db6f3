"""Time co-evolutionary DE on g07 (200 cycles of 20 + 20, n = 50): `python benchmarks/cde.py`.

On a GPU: 1, 20 and 1000 runs. On a CPU: 1 and 20 runs, and scipy's differential_evolution with the same constraints,
population and generations beside them. Seconds after compilation, from the engine's start to its results.
"""

from __future__ import annotations

import time
from functools import partial

import harness
import jax
import numpy as np

import galapax as gx


def scipy_seconds() -> tuple[float, float]:
    """One run of scipy's DE with the same evaluations; and the value it found."""
    from scipy.optimize import NonlinearConstraint, differential_evolution

    problem = gx.problems.get("g07")
    with jax.enable_x64(True):
        fun = jax.jit(jax.vmap(problem.fun))
        ineq = jax.jit(jax.vmap(problem.ineq))
        start = time.perf_counter()
        found = differential_evolution(
            lambda x: np.asarray(fun(x.T)),
            list(zip(problem.bounds.lower, problem.bounds.upper, strict=True)),
            strategy="rand1bin",
            mutation=0.7,
            recombination=0.7,
            maxiter=4000,
            init=problem.bounds.lower + problem.bounds.span * np.random.default_rng(0).random((50, 10)),
            tol=0,
            atol=0,
            polish=False,
            updating="deferred",
            vectorized=True,
            constraints=NonlinearConstraint(
                lambda x: np.asarray(ineq(x.T)).T if x.ndim > 1 else np.asarray(ineq(x[None]))[0], -np.inf, 0.0
            ),
        )
    return time.perf_counter() - start, float(found.fun)


def main() -> None:
    options = harness.make_parser(__doc__, rounds=3).parse_args()
    print(f"{harness.describe_machine('scipy')}; float64, g07, 200 cycles of 20 + 20, n = 50")
    for runs in (1, 20) if jax.default_backend() == "cpu" else (1, 20, 1000):
        call = partial(
            gx.minimize, gx.problems.get("g07"), "cde", generations=4000, tolerance=0, polish=False, runs=runs,
            progress=False, keep=gx.Keep(history=False),
        )  # fmt: skip
        results = harness.time_calls(call, options.rounds).results
        result, seconds = results[-1], min(each.timings["run"] for each in results)
        median = np.median(result.runs.fun) if result.runs is not None else result.fun
        print(f"  galapax, {runs:>4} runs: {seconds:8.3f} s, median {median:.6f}", flush=True)
    if jax.default_backend() == "cpu":
        seconds, value = scipy_seconds()
        print(f"  scipy,      1 run : {seconds:8.3f} s, {value:.6f}")


if __name__ == "__main__":
    main()
