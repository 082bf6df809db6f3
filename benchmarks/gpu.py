"""Time a generation of DE and FEP on an accelerator, float32, Rastrigin in 32 variables: `python benchmarks/gpu.py`.

Each size is run twice with the same shapes; the second run is timed, from the call of `minimize` to its Result, so
that everything a user waits for is in it, divided by the number of generations.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp

import galapax as gx

FEP_SIZES = {400: 10_000, 6_400: 10_000, 100_000: 1_000, 1_000_000: 200}
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
            dtype="float32",
            progress=False,
            **options,
        )

    compile_seconds = solve().timings["compile"]
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        result = solve()
        best = min(best, time.perf_counter() - start)
    return best / generations * 1e6, compile_seconds, result.fun


def time_ensemble(runs: int) -> tuple[float, float]:
    """Seconds for that many runs of DE on Goldstein-Price, 64 individuals, 100 generations; and compile seconds."""
    problem = gx.problems.get("goldstein_price")

    def solve() -> gx.Result:
        return gx.minimize(
            problem, algorithm=gx.DE(population=64), generations=100, runs=runs, dtype="float32", progress=False
        )

    compile_seconds = solve().timings["compile"]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        solve()
        times.append(time.perf_counter() - start)
    return min(times), compile_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the generations")
    quick = parser.parse_args().quick
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, float32")
    print(f"{'DE n':>10} {'us/generation':>14} {'with a target':>14} {'compile s':>10} {'best':>10}")
    for population, generations in SIZES.items():
        generations = generations // 10 if quick else generations
        algorithm = gx.DE(population=population, weight=0.7, crossover_rate=0.7)
        plain, seconds, best = time_of(algorithm, generations)
        masked, _, _ = time_of(algorithm, generations, target=-1.0)
        print(f"{population:>10} {plain:>14.1f} {masked:>14.1f} {seconds:>10.2f} {best:>10.4g}", flush=True)
    print(f"{'FEP mu':>10} {'us/generation':>14} {'compile s':>25} {'best':>10}")
    for population, generations in FEP_SIZES.items():
        generations = generations // 10 if quick else generations
        plain, seconds, best = time_of(gx.FEP(population=population), generations)
        print(f"{population:>10} {plain:>14.1f} {seconds:>25.2f} {best:>10.4g}", flush=True)
    for runs in (1, 1_000, 100_000):
        taken, seconds = time_ensemble(runs)
        print(f"{runs:>7} runs of 64 x 2 x 100: {taken * 1e3:8.2f} ms, compile {seconds:.2f} s", flush=True)


if __name__ == "__main__":
    main()
