"""A generation of CMA-ES in 20 variables, alone and a thousand runs at once: `python benchmarks/cmaes.py`.

The objective is a rotated ellipsoid, whose matrix product a peer pays for, too. On a CPU a process is bound to one
core; pycma (pip install cma), where it is installed, makes the same generations beside it. On a GPU both engines do:
what XLA compiles, and one kernel for whole runs (engine="fused"). Times wait for the device.
"""

from __future__ import annotations

import os
import time
from typing import Any

DIM, SAMPLES = 20, 12


def rotation(dim: int) -> Any:
    import numpy as np

    return np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]


def ours(runs: int, generations: int, dtype: str, engine: str, dim: int = DIM) -> float:
    """Microseconds a generation."""
    import jax.numpy as jnp

    import galapax as gx

    turned, scales = rotation(dim), 10.0 ** (6 * jnp.arange(dim) / (dim - 1))

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

    call()
    return 1e6 * min(call() for _ in range(5)) / generations


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
    import jax

    cpu = jax.default_backend() == "cpu"
    if cpu:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"CMA-ES, {DIM} variables, {SAMPLES} samples, microseconds a generation on {jax.devices()[0].device_kind}")
    print(f"{'':24} {'all runs':>10} {'a run':>10}")
    for engine in ("xla",) if cpu else ("xla", "fused"):
        for dtype in ("float32", "float64"):
            for runs, generations in ((1, 3000), (1000, 100 if cpu else 1000)):
                took = ours(runs, generations, dtype, engine)
                print(f"{engine:6} {dtype}, {runs:4} runs {took:10.1f} {took / runs:10.2f}", flush=True)
    if cpu and (peer := pycma(1000)) is not None:
        print(f"pycma, one run           {peer:10.1f} {peer:10.2f}")


if __name__ == "__main__":
    main()
