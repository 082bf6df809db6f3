"""The native engine beside xla on this machine's CPU: `JAX_PLATFORMS=cpu python benchmarks/native.py`.

Seconds from call to Result, the least of several calls, each made once before, on all cores that the process may use
(--threads); what the first call took, with nothing on disk, is said besides: tracing, and compiling by XLA or by the C
compiler. Both engines draw the same random numbers and make the same generations.
"""

from __future__ import annotations

import tempfile
from typing import Any

import harness
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


def measure(engine: str, threads: int | None, rounds: int, dtype: str | None = None, **options: Any) -> harness.Timing:
    compute = gx.Compute(engine=engine, threads=threads, dtype=dtype)
    keep = gx.Keep(history=False)
    return harness.time_calls(
        lambda: gx.minimize(
            generations=100, tolerance=0, polish=False, progress=False, keep=keep, compute=compute, **options
        ),
        rounds,
    )


def main() -> None:
    parser = harness.make_parser(__doc__, rounds=5, only=True)
    parser.add_argument("--threads", type=int, help="by default all cores")
    options = parser.parse_args()

    print(f"{harness.describe_machine()}; milliseconds of 100 generations")
    table = harness.Table("", "xla", "native", "ratio", "first xla", "first native", widths=[46])
    with tempfile.TemporaryDirectory() as folder:
        gx.cache.enable(folder)
        for name, case in cases().items():
            if harness.is_selected(name, options.only):
                xla, native = (measure(engine, options.threads, options.rounds, **case) for engine in ("xla", "native"))
                milliseconds = (f"{1e3 * timing.least:.1f}" for timing in (xla, native))
                firsts = (f"{timing.first:.2f} s" for timing in (xla, native))
                table.add(name, *milliseconds, f"{xla.least / native.least:.2f}", *firsts)


if __name__ == "__main__":
    main()
