"""Time algorithms on an accelerator, by either engine: `python benchmarks/gpu.py [--engine both]`.

DE and FEP (Rastrigin in 32 variables, float32): each size is run twice with the same shapes; the second run is timed,
from the call of `minimize` to its Result, so that everything a user waits for is in it, divided by the number of
generations. The GA (Ackley in 2 variables, float32) and CDE (g07, float64, 200 cycles of 20 + 20 generations):
milliseconds of an ensemble, from call to Result, in the engine, and waiting for the device, the best of several calls.
Fronts (ZDT1, float32; "best" is the hypervolume) and mixed variables (float64): as DE, 200 generations.
"kernel" is the time of the fused kernels alone, by the device's own clock. "differs" compares the mean value over the
population in the first generations with those of the other engine, relative to it.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import galapax as gx
from galapax.fused.cuda import CudaKernel

FEP_SIZES = {400: 10_000, 6_400: 10_000, 65_536: 1_000, 1_000_000: 200}
GA_SIZES = (
    (1, 3840, 30, True),
    (1, 64, 100, True),
    (1_000, 64, 100, True),
    (1_000, 64, 100, False),
    (100_000, 64, 100, True),
    (100_000, 64, 100, False),
)
SIZES = {50: 20_000, 1_000: 20_000, 10_000: 10_000, 100_000: 4_000, 1_000_000: 500}
CDE_RUNS = (1, 20, 1_000)
FRONTS = (
    (gx.NSGA2, 100, 1),
    (gx.NSGA2, 1024, 1),
    (gx.NSGA2, 4096, 1),
    (gx.NSGA2, 100, 100),
    (gx.MOEAD, 100, 1),
    (gx.MOEAD, 1024, 1),
    (gx.MOEAD, 100, 100),
    (gx.NPGA, 1024, 1),
    (gx.SMSEMOA, 100, 1),
    (gx.SMSEMOA, 100, 100),
)
MIXED = (("gear_train", 1), ("gear_train", 100), ("pressure_vessel", 1), ("pressure_vessel", 100))
FIRST = 5  # generations that are compared; later ones differ by rounding that has grown


def rastrigin(x: jax.Array) -> jax.Array:
    return 10.0 * x.shape[0] + jnp.sum(x * x - 10.0 * jnp.cos(2 * jnp.pi * x))


def timed(engine: str, times: int, **options: Any) -> dict[str, Any]:
    """Seconds of a call of `minimize`, the best of several: "call", "engine", "device", "kernel" (NaN for xla)."""

    def solve() -> tuple[float, gx.Result]:
        start = time.perf_counter()
        result = gx.minimize(tolerance=0, progress=False, polish=False, compute=gx.Compute(engine=engine), **options)
        return time.perf_counter() - start, result

    cold = solve()[1]
    best = min((solve() for _ in range(times)), key=lambda both: both[0])
    CudaKernel.times = []  # in a call of its own, as the host waits for each kernel then
    if engine != "xla":
        solve()
    kernels = sum(CudaKernel.times) / 1e3 if CudaKernel.times else float("nan")
    CudaKernel.times = None
    several = None if cold.runs is None else cold.runs.history
    means = (None if cold.history is None else cold.history.mean) if several is None else several.mean[0]
    return {
        "call": best[0],
        "engine": best[1].timings["run"],
        "device": best[1].timings["device"],
        "kernel": kernels,
        "compile": cold.timings["compile"],
        "best": cold.fun if np.ndim(cold.fun) == 0 else float(cold.history.hypervolume[-1]),
        "first": None if means is None else np.asarray(means)[:FIRST],
    }


class Table:
    """Rows of one kind of work, an engine each."""

    def __init__(self, title: str, engines: list[str], generations: bool) -> None:
        self.engines, self.generations = engines, generations
        unit = "us/gen" if generations else "ms"
        names = ("call", "device", "kernel") if generations else ("call", "engine", "device", "kernel")
        self.names = names
        heads = " ".join(f"{name + ' ' + unit:>15}" for name in names)
        print(f"{title:>34} {'engine':>7} {heads} {'compile s':>10} {'best':>11} {'differs':>9}")

    def row(self, title: str, times: int, generations: int, **options: Any) -> None:
        first = None
        for engine in self.engines:
            try:
                found = timed(engine, times, generations=generations, **options)
            except gx.InputError as error:
                print(f"{title:>34} {engine:>7} {error}", flush=True)
                continue
            scale = 1e6 / generations if self.generations else 1e3
            numbers = " ".join(f"{found[name] * scale:>15.3f}" for name in self.names)
            differs = ""
            if first is not None and found["first"] is not None:
                differs = f"{np.max(np.abs(found['first'] / first - 1)):.1e}"
            first = found["first"] if first is None else first
            print(
                f"{title:>34} {engine:>7} {numbers} {found['compile']:>10.2f} {found['best']:>11.4g} {differs:>9}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the generations, and no million individuals")
    parser.add_argument("--only", choices=("de", "fep", "ga", "cde", "fronts", "mixed"), help="one of the tables")
    parser.add_argument("--engine", choices=("auto", "xla", "fused", "both"), default="auto")
    given = parser.parse_args()
    engines = ["xla", "fused"] if given.engine == "both" else [given.engine]
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    own = {"fun": rastrigin, "bounds": [(-5.12, 5.12)] * 32, "dtype": "float32"}
    for name, sizes, make in (
        ("DE", SIZES, lambda n: gx.DE(population=n, weight=0.7, crossover_rate=0.7)),
        ("FEP", FEP_SIZES, lambda n: gx.FEP(population=n)),
    ):
        if given.only in (None, name.lower()):
            table = Table(f"{name}, population", engines, generations=True)
            for n, generations in sizes.items():
                if not (given.quick and n > 100_000):
                    count = generations // 10 if given.quick else generations
                    table.row(str(n), 1 if given.quick else 3, count, algorithm=make(n), **own)
    if given.only in (None, "ga"):
        table = Table("GA, runs x children x generations", engines, generations=False)
        ackley = {"fun": gx.problems.get("gagpu_ackley"), "dtype": "float32"}
        for runs, n, generations, history in GA_SIZES:
            if runs <= 1_000 or jax.default_backend() != "cpu":
                title = f"{runs} x {n} x {generations}{'' if history else ', no history'}"
                ga = gx.ThreeParentGA(population=n, fr=2.0, sigma=0.5)
                table.row(title, 5, generations, algorithm=ga, runs=runs, history=history, **ackley)
    if given.only in (None, "cde"):
        table = Table("CDE on g07, runs", engines, generations=False)
        for runs in CDE_RUNS if jax.default_backend() != "cpu" else CDE_RUNS[:2]:
            table.row(str(runs), 2, 4_000, fun=gx.problems.get("g07"), algorithm="cde", runs=runs, history=False)
    if given.only in (None, "fronts"):
        table = Table("fronts, runs x population", engines, generations=True)
        for kind, n, runs in FRONTS:
            title, zdt1 = f"{kind.__name__} {runs} x {n}", gx.problems.get("zdt1")
            table.row(title, 2, 200, fun=zdt1, algorithm=kind(population=n), runs=runs, dtype="float32")
    if given.only in (None, "mixed"):
        table = Table("mixed variables, runs", engines, generations=True)
        for name, runs in MIXED:
            table.row(f"{name} {runs}", 2, 200, fun=gx.problems.get(name), runs=runs, dtype="float64")


if __name__ == "__main__":
    main()
