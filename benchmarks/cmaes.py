"""A generation of CMA-ES in 20 variables, alone and a thousand runs at once: `python benchmarks/cmaes.py`.

The objective is a rotated ellipsoid, whose matrix product a peer pays for, too. On a CPU a process is bound to one
core; pycma (pip install cma), where it is installed, makes the same generations beside it. On a GPU both engines do:
what XLA compiles, and one kernel for whole runs (engine="fused"). Times wait for the device.
"""

from __future__ import annotations

import time
from typing import Any

import harness

DIM, SAMPLES = 20, 12


def rotation(dim: int) -> Any:
    import numpy as np

    return np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]


def ours(runs: int, generations: int, dtype: str, engine: str, rounds: int, dim: int = DIM) -> float:
    """Microseconds a generation."""
    import jax.numpy as jnp
    import numpy as np

    import galapax as gx

    turned, scales = rotation(dim), 10.0 ** (6 * np.arange(dim) / (dim - 1))

    def ellipsoid(x: Any) -> Any:
        return jnp.sum(scales * (turned @ x) ** 2)

    def call() -> float:
        result = gx.minimize(
            ellipsoid,
            [(-5.0, 5.0)] * dim,
            "cmaes",
            generations=generations,
            runs=runs,
            tolerance=0,
            progress=False,
            keep=gx.Keep(history=False),
            compute=gx.Compute(dtype=dtype, engine=engine),
        )
        return float(result.timings["device"])

    return 1e6 * min(harness.time_calls(call, rounds).results) / generations


def pycma(generations: int) -> float | None:
    """Microseconds a generation of one run, ask and tell; None where it is not installed."""
    try:
        import cma
    except ImportError:
        return None
    import numpy as np

    turned, scales = rotation(DIM), 10.0 ** (6 * np.arange(DIM) / (DIM - 1))
    es = cma.CMAEvolutionStrategy(DIM * [1.0], 2.0, {"verbose": -9, "seed": 1, "popsize": SAMPLES, "bounds": [-5, 5]})
    start = time.perf_counter()
    for _ in range(generations):
        x = es.ask()
        es.tell(x, list((scales * (np.asarray(x) @ turned.T) ** 2).sum(axis=1)))
    return 1e6 * (time.perf_counter() - start) / generations


def main() -> None:
    options = harness.make_parser(__doc__, rounds=5).parse_args()
    import jax

    cpu = jax.default_backend() == "cpu"
    if cpu:
        harness.bind_to_cores(1)
    print(f"{harness.describe_machine('cma')}; {DIM} variables, {SAMPLES} samples, microseconds of a generation")
    table = harness.Table("", "all runs", "one run", widths=[28])
    for engine in ("xla",) if cpu else ("xla", "fused"):
        for dtype in ("float32", "float64"):
            for runs, generations in ((1, 3000), (1000, 100 if cpu else 1000)):
                took = ours(runs, generations, dtype, engine, options.rounds)
                table.add(f"{engine}, {dtype}, {runs} runs", f"{took:.1f}", f"{took / runs:.2f}")
    if cpu and (peer := pycma(1000)) is not None:
        table.add("pycma, one run", f"{peer:.1f}", f"{peer:.2f}")


if __name__ == "__main__":
    main()
