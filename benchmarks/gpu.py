"""Time DE, FEP and ensembles of the GA on an accelerator, float32: `python benchmarks/gpu.py`.

DE and FEP (Rastrigin in 32 variables): each size is run twice with the same shapes; the second run is timed, from the
call of `minimize` to its Result, so that everything a user waits for is in it, divided by the number of generations.
The GA (Ackley in 2 variables): milliseconds of an ensemble, from call to Result, in the engine, and waiting for the
device, the best of ten calls.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp

import galapax as gx

FEP_SIZES = {400: 10_000, 6_400: 10_000, 100_000: 1_000, 1_000_000: 200}
GA_SIZES = (
    (1, 3840, 30, True),
    (1, 64, 100, True),
    (1_000, 64, 100, True),
    (1_000, 64, 100, False),
    (100_000, 64, 100, True),
    (100_000, 64, 100, False),
)
SIZES = {50: 20_000, 1_000: 20_000, 10_000: 10_000, 100_000: 4_000, 1_000_000: 500}


def rastrigin(x: jax.Array) -> jax.Array:
    return 10.0 * x.shape[0] + jnp.sum(x * x - 10.0 * jnp.cos(2 * jnp.pi * x))


def time_of(algorithm: gx.DE | gx.FEP, generations: int, **options: object) -> tuple[float, float, float]:
    """Microseconds a generation, compile seconds, and the best value."""

    def solve() -> gx.Result:
        return gx.minimize(
            rastrigin,
            [(-5.12, 5.12)] * 32,
            algorithm,
            generations=generations,
            tolerance=0,
            dtype="float32",
            progress=False,
            polish=False,
            **options,
        )

    compile_seconds = solve().timings["compile"]
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        result = solve()
        best = min(best, time.perf_counter() - start)
    return best / generations * 1e6, compile_seconds, result.fun


def time_ga(runs: int, population: int, generations: int, history: bool) -> tuple[float, float, float, float]:
    """Seconds of runs of the three-parent GA on Ackley in 2 variables: from call to result, in the engine, waiting for
    the device, compiling.
    """
    problem = gx.problems.get("gagpu_ackley")

    def solve() -> tuple[float, gx.Result]:
        start = time.perf_counter()
        result = gx.minimize(
            problem,
            algorithm=gx.GA(population=population, fr=2.0, sigma=0.5),
            generations=generations,
            tolerance=0,
            runs=runs,
            dtype="float32",
            progress=False,
            history=history,
            polish=False,
        )
        return time.perf_counter() - start, result

    compiling = solve()[1].timings["compile"]
    whole, timings = min(
        ((seconds, r.timings) for seconds, r in (solve() for _ in range(10))), key=lambda both: both[0]
    )
    return whole, timings["run"], timings["device"], compiling


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the generations")
    parser.add_argument("--only", choices=("de", "fep", "ga"), help="one of the three tables")
    options = parser.parse_args()
    quick, only = options.quick, options.only
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, float32")
    print(f"{'DE n':>10} {'us/generation':>14} {'with a target':>14} {'compile s':>10} {'best':>10}")
    for population, generations in SIZES.items() if only in (None, "de") else ():
        generations = generations // 10 if quick else generations
        algorithm = gx.DE(population=population, weight=0.7, crossover_rate=0.7)
        plain, seconds, best = time_of(algorithm, generations)
        masked, _, _ = time_of(algorithm, generations, target=-1.0)
        print(f"{population:>10} {plain:>14.1f} {masked:>14.1f} {seconds:>10.2f} {best:>10.4g}", flush=True)
    print(f"{'FEP mu':>10} {'us/generation':>14} {'compile s':>25} {'best':>10}")
    for population, generations in FEP_SIZES.items() if only in (None, "fep") else ():
        generations = generations // 10 if quick else generations
        plain, seconds, best = time_of(gx.FEP(population=population), generations)
        print(f"{population:>10} {plain:>14.1f} {seconds:>25.2f} {best:>10.4g}", flush=True)
    print(f"{'GA runs x children x generations':>34} {'call ms':>9} {'engine':>9} {'device':>9} {'compile s':>10}")
    sizes = [size for size in GA_SIZES if size[0] <= 1_000 or jax.default_backend() != "cpu"]
    for runs, population, generations, history in sizes if only in (None, "ga") else ():
        whole, engine, device, seconds = time_ga(runs, population, generations, history)
        size = f"{runs} x {population} x {generations}{'' if history else ', no history'}"
        print(f"{size:>34} {whole * 1e3:>9.3f} {engine * 1e3:>9.3f} {device * 1e3:>9.3f} {seconds:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
