"""The native engine beside xla on this machine's CPU: `JAX_PLATFORMS=cpu python benchmarks/native.py`.

Seconds from call to Result, the least of several calls, each made once before, on all cores that the process may use
(--threads); what the first call took, with nothing on disk, is said besides: tracing, and compiling by XLA or by the C
compiler. Both engines draw the same random numbers and make the same generations.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import jax
import jax.numpy as jnp

import galapax as gx


def rastrigin(x: jax.Array) -> jax.Array:
    return 10.0 * x.shape[0] + jnp.sum(x * x - 10.0 * jnp.cos(2 * jnp.pi * x))


def cases() -> dict[str, dict[str, Any]]:
    get = gx.problems.get
    long = {"fun": rastrigin, "bounds": [(-5.12, 5.12)] * 32, "dtype": "float32"}
    de = gx.DE(weight=0.7, crossover_rate=0.7)
    return {
        "DE, 2 variables, 1000 runs, float32": {
            "fun": get("goldstein_price"), "algorithm": gx.DE(population=64), "runs": 1000, "dtype": "float32",
        },
        "DE, 2 variables, 1000 runs, float64": {
            "fun": get("goldstein_price"), "algorithm": gx.DE(population=64), "runs": 1000, "dtype": "float64",
        },
        "GA, 2 variables, 1000 runs, float32": {
            "fun": get("gagpu_ackley"), "algorithm": gx.ThreeParentGA(population=64, fr=2.0, sigma=0.5), "runs": 1000,
            "dtype": "float32",
        },
        "PSO, 10 variables, 100 runs, float32": {
            "fun": get("rastrigin"), "algorithm": gx.PSO(population=40), "runs": 100, "dtype": "float32",
        },
        "L-SHADE, 10 variables, 100 runs, float32": {
            "fun": get("rastrigin"), "algorithm": "lshade", "runs": 100, "dtype": "float32",
        },
        "CMA-ES, 10 variables, 100 runs, float32": {
            "fun": get("rastrigin"), "algorithm": "cmaes", "runs": 100, "dtype": "float32",
        },
        "CDE, g07, 20 runs, float64": {"fun": get("g07"), "algorithm": "cde", "runs": 20},
        "FEP, 32 variables, 100 individuals, 100 runs": {
            "algorithm": gx.FEP(population=100), "runs": 100, **long,
        },
        "DE, 32 variables, 50 individuals, 100 runs": {"algorithm": de, "population": 50, "runs": 100, **long},
        "DE, 32 variables, 1000 individuals, 1 run": {"algorithm": de, "population": 1000, **long},
        "NSGA-II, 30 variables, 100 individuals, 1 run": {
            "fun": get("zdt1"), "algorithm": "nsga2", "population": 100, "dtype": "float32",
        },
    }  # fmt: skip


def timed(engine: str, threads: int | None, options: dict[str, Any]) -> tuple[float, float]:
    """Seconds of a call and of the first one."""

    def solve() -> float:
        start = time.perf_counter()
        gx.minimize(
            generations=100, tolerance=0, polish=False, progress=False,
            keep=gx.Keep(history=False), compute=gx.Compute(engine=engine, threads=threads), **options,
        )  # fmt: skip
        return time.perf_counter() - start

    first = solve()
    return min(solve() for _ in range(5)), first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    given = parser.parse_args()
    from galapax.numerics import devices, disk_cache

    print(f"{given.threads or devices.count_cores()} threads, jax {jax.__version__}; milliseconds of 100 generations")
    print(f"{'':<46}{'xla':>9}{'native':>9}{'ratio':>7}{'first xla':>11}{'first native':>14}")
    with tempfile.TemporaryDirectory() as folder:
        disk_cache.enable(folder)
        for name, options in cases().items():
            if given.only in name:
                (xla, first), (native, other) = (timed(e, given.threads, options) for e in ("xla", "native"))
                row = f"{1e3 * xla:>9.1f}{1e3 * native:>9.1f}{xla / native:>7.2f}{first:>9.2f} s{other:>12.2f} s"
                print(f"{name:<46}{row}", flush=True)


if __name__ == "__main__":
    main()
