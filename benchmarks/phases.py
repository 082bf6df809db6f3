"""Where the time of a fused kernel goes: `python benchmarks/phases.py [fep|de|ga|cde] [SIZE]`, on an NVIDIA GPU.

Clock cycles of a generation, as one thread of the block in the middle of the device sees them: in each stretch of the
generation between loops and barriers, and waiting at each barrier. Reading the clock takes some itself, and the
compiler moves reads of memory across it: stretches tell where to look, `benchmarks/gpu.py` how long it takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

os.environ["GALAPAX_CACHE"] = "off"  # or a source without clocks would be read

import gpu
import harness
import jax

import galapax as gx
from galapax.fused import backend, kernel_source
from galapax.fused.cuda import CudaKernel
from galapax.fused.kernel_source import KernelSource
from galapax.fused.loop_ir import Axis, Barrier, Call, Declare, For, If, Statement
from galapax.fused.print_c import print_statements

MAX_STAMPS = 256
HEAD = f"""
__device__ unsigned long long stamps[{MAX_STAMPS}];
#define STAMP(n) if (threadIdx.x == 0 && blockIdx.x == gridDim.x / 2) {{ \\
    long long now = clock64(); stamps[n] += now - last_stamp; last_stamp = now; }}
"""


def add_stamps(statements: Sequence[Statement], names: list[str], inside: bool = False) -> list[Statement]:
    """Return the statements with clocks in the loop over generations. names: receives what each of them measures."""
    result: list[Statement] = []

    def stamp(name: str) -> None:
        result.append(Call("STAMP", (str(len(names)),)))
        names.append(name)

    for statement in statements:
        is_generation = isinstance(statement, For) and statement.axis is Axis.GENERATION
        is_parallel = isinstance(statement, For) and statement.axis in (Axis.THREAD, Axis.BLOCK, Axis.TILE)
        first_line = print_statements([statement])[0]
        if is_generation:
            result.append(Declare("long long", "last_stamp", "clock64()"))
        if inside and (is_parallel or isinstance(statement, Barrier)):
            stamp(f"before {first_line[:80]}")
        if isinstance(statement, For | If) and (inside or is_generation) and not is_parallel:
            statement = copy(statement)
            if isinstance(statement, For):
                statement.body = add_stamps(statement.body, names, True)
            else:
                branches = statement.branches
                statement.branches = [(test, add_stamps(body, names, True)) for test, body in branches]
        result.append(statement)
        if inside and isinstance(statement, Barrier):
            stamp(f"waiting at {first_line}")
    return result


def phases(generations: int, dtype: str | None = None, **options: Any) -> None:
    """Print the cycles of each stretch in a run of `generations` generations."""
    kernels: list[CudaKernel] = []
    names: list[str] = []

    def print_stamped(statements: Sequence[Statement]) -> list[str]:
        names.clear()
        lines = print_statements(add_stamps(statements, names))
        assert len(names) < MAX_STAMPS
        return lines

    def build_kernel(digest: str, text: KernelSource, for_cpu: bool) -> CudaKernel:
        kernels.append(CudaKernel(replace(text, body=HEAD + text.body)))
        return kernels[-1]

    kernel_source.print_statements = print_stamped  # type: ignore[assignment]
    backend.build_kernel = build_kernel  # type: ignore[assignment]
    gx.minimize(
        tolerance=0,
        progress=False,
        polish=False,
        generations=generations,
        compute=gx.Compute(engine="fused", dtype=dtype),
        **options,
    )
    kernel = kernels[-1]
    jax.effects_barrier()
    cycles = kernel.read_symbol("stamps", len(names))
    text = kernel.text
    print(f"{text.blocks_per_run} blocks of {text.block_threads} threads, {text.shared_bytes} bytes shared")
    for name, count in zip(names, cycles, strict=True):
        print(f"{count / generations:>10.0f}  {name}")
    print(f"{sum(cycles) / generations:>10.0f}  in all")


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("what", choices=("fep", "de", "ga", "cde"), nargs="?", default="fep")
    parser.add_argument("size", type=int, nargs="?", help="individuals, of GA and CDE runs")
    options = parser.parse_args()
    print(harness.describe_machine())
    size = options.size or {"fep": 6400, "de": 10_000, "ga": 100_000, "cde": 1}[options.what]
    waves: dict[str, Any] = {"fun": gpu.rastrigin, "bounds": [(-5.12, 5.12)] * 32, "dtype": "float32"}
    if options.what == "fep":
        phases(1000, algorithm=gx.FEP(population=size), **waves)
    elif options.what == "de":
        phases(1000, algorithm=gx.DE(population=size, weight=0.7, crossover_rate=0.7), **waves)
    elif options.what == "ga":
        ga = gx.ThreeParentGA(population=64, fr=2.0, sigma=0.5)
        phases(
            100,
            fun=gx.problems.get("gagpu_ackley"),
            algorithm=ga,
            runs=size,
            keep=gx.Keep(history=False),
            dtype="float32",
        )
    else:
        phases(1000, fun=gx.problems.get("g07"), algorithm="cde", runs=size, keep=gx.Keep(history=False))


if __name__ == "__main__":
    main()
