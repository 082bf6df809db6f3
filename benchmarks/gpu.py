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

from typing import Any

import harness
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


def measure(engine: str, rounds: int, keep: gx.Keep | None, dtype: str, **options: Any) -> dict[str, Any]:
    """Seconds of a call of `minimize`, the best of several: "call", "engine", "device", "kernel" (NaN for xla)."""

    def solve() -> gx.Result:
        compute = gx.Compute(engine=engine, dtype=dtype)
        return gx.minimize(tolerance=0, progress=False, polish=False, keep=keep, compute=compute, **options)

    cold = solve()
    timing = harness.time_calls(lambda: solve().timings, rounds)
    CudaKernel.times = []  # in a call of its own, as the host waits for each kernel then
    if engine != "xla":
        solve()
    kernels = sum(CudaKernel.times) / 1e3 if CudaKernel.times else float("nan")
    CudaKernel.times = None
    history = None if cold.history is None else cold.history.mean
    if cold.runs is not None:
        history = None if cold.runs.history is None else cold.runs.history.mean[0]
    return {
        "call": timing.least,
        "engine": timing.fastest["run"],
        "device": timing.fastest["device"],
        "kernel": kernels,
        "compile": cold.timings["compile"],
        "best": cold.fun if np.ndim(cold.fun) == 0 else float(cold.history.hypervolume[-1]),
        "first": None if history is None else np.asarray(history)[:FIRST],
    }


class EngineTable:
    """Rows of one kind of work, an engine each."""

    def __init__(self, title: str, engines: list[str], per_generation: bool, match: str = "") -> None:
        self.engines, self.per_generation, self.match = engines, per_generation, match
        unit = "us/gen" if per_generation else "ms"
        self.names = ("call", "device", "kernel") if per_generation else ("call", "engine", "device", "kernel")
        heads = (f"{name} {unit}" for name in self.names)
        print()
        self.table = harness.Table(title, "engine", *heads, "compile s", "best", "differs", widths=[34])

    def row(
        self, title: str, rounds: int, generations: int, dtype: str, keep: gx.Keep | None = None, **options: Any
    ) -> None:
        first = None
        for engine in self.engines if self.match in title else ():
            try:
                measured = measure(engine, rounds, keep, dtype, generations=generations, **options)
            except gx.InputError as error:
                print(f"{title}, {engine}: {error}", flush=True)
                continue
            scale = 1e6 / generations if self.per_generation else 1e3
            differs = ""
            if first is not None and measured["first"] is not None:
                differs = f"{np.max(np.abs(measured['first'] / first - 1)):.1e}"
            first = measured["first"] if first is None else first
            seconds = (f"{measured[name] * scale:.3f}" for name in self.names)
            self.table.add(title, engine, *seconds, f"{measured['compile']:.2f}", f"{measured['best']:.4g}", differs)


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the generations, and no million individuals")
    parser.add_argument("--only", choices=("de", "fep", "ga", "cde", "fronts", "mixed"), help="one of the tables")
    parser.add_argument("--match", default="", metavar="TEXT", help="only the rows of fronts with this in their title")
    parser.add_argument("--engine", choices=("auto", "xla", "fused", "both"), default="auto")
    options = parser.parse_args()
    engines = ["xla", "fused"] if options.engine == "both" else [options.engine]
    no_history, on_cpu = gx.Keep(history=False), jax.default_backend() == "cpu"
    print(harness.describe_machine())
    waves: dict[str, Any] = {"fun": rastrigin, "bounds": [(-5.12, 5.12)] * 32, "dtype": "float32"}
    for name, sizes, build in (
        ("DE", SIZES, lambda n: gx.DE(population=n, weight=0.7, crossover_rate=0.7)),
        ("FEP", FEP_SIZES, lambda n: gx.FEP(population=n)),
    ):
        if options.only in (None, name.lower()):
            table = EngineTable(f"{name}, population", engines, per_generation=True)
            for n, generations in sizes.items():
                if not (options.quick and n > 100_000):
                    count = generations // 10 if options.quick else generations
                    table.row(str(n), 1 if options.quick else 3, count, algorithm=build(n), **waves)
    if options.only in (None, "ga"):
        table = EngineTable("GA, runs x children x generations", engines, per_generation=False)
        ackley: dict[str, Any] = {"fun": gx.problems.get("gagpu_ackley"), "dtype": "float32"}
        for runs, n, generations, history in GA_SIZES:
            if runs <= 1_000 or not on_cpu:
                title = f"{runs} x {n} x {generations}{'' if history else ', no history'}"
                ga = gx.ThreeParentGA(population=n, fr=2.0, sigma=0.5)
                keep = None if history else no_history
                table.row(title, 5, generations, algorithm=ga, runs=runs, keep=keep, **ackley)
    if options.only in (None, "cde"):
        table = EngineTable("CDE on g07, runs", engines, per_generation=False)
        g07: dict[str, Any] = {"fun": gx.problems.get("g07"), "dtype": "float64", "keep": no_history}
        for runs in CDE_RUNS[:2] if on_cpu else CDE_RUNS:
            table.row(str(runs), 2, 4_000, algorithm="cde", runs=runs, **g07)
    if options.only in (None, "fronts"):
        table = EngineTable("fronts, runs x population", engines, per_generation=True, match=options.match)
        for kind, n, runs in FRONTS:
            title, zdt1 = f"{kind.__name__} {runs} x {n}", gx.problems.get("zdt1")
            table.row(title, 2, 200, "float32", fun=zdt1, algorithm=kind(population=n), runs=runs)
    if options.only in (None, "mixed"):
        table = EngineTable("mixed variables, runs", engines, per_generation=True)
        for name, runs in MIXED:
            table.row(f"{name} {runs}", 2, 200, "float64", fun=gx.problems.get(name), runs=runs)


if __name__ == "__main__":
    main()
