"""Where the time of a fused kernel goes: `python benchmarks/phases.py [fep|de|ga|cde|nsga2|memory] [SIZE]`, on a GPU.

Clock cycles of a generation, as one thread of the block in the middle of the device sees them: in each stretch of the
generation between loops and barriers, and waiting at each barrier. Reading the clock takes some itself, and the
compiler moves reads of memory across it: stretches tell where to look, `benchmarks/gpu.py` how long it takes.

`memory`: what memory allows in a large population, by kernels that do nothing else with SIZE rows of 32 float32: copy
them, and read each row and three others, neighbours or random ones as in the mutants of DE, and write one.
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
import jax.numpy as jnp
from jax.experimental import buffer_callback

import galapax as gx
from galapax.fused import backend, kernel_source
from galapax.fused.cuda import CudaKernel
from galapax.fused.kernel_source import KernelSource
from galapax.fused.loop_ir import Axis, Barrier, Call, Declare, For, If, Statement
from galapax.fused.print_c import Target, print_statements

MAX_STAMPS = 256
HEAD = f"""
__device__ unsigned long long stamps[{MAX_STAMPS}];
#define STAMP(n) if (threadIdx.x == 0 && blockIdx.x == gridDim.x / 2) {{ \\
    long long now = clock64(); stamps[n] += now - last_stamp; last_stamp = now; }}
"""


def add_stamps(
    statements: Sequence[Statement], names: list[str], target: Target, inside: bool = False
) -> list[Statement]:
    """Return the statements with clocks in the loop over generations. names: receives what each of them measures."""
    result: list[Statement] = []

    def stamp(name: str) -> None:
        result.append(Call("STAMP", (str(len(names)),)))
        names.append(name)

    for statement in statements:
        is_generation = isinstance(statement, For) and statement.axis is Axis.GENERATION
        is_parallel = isinstance(statement, For) and statement.axis in (Axis.THREAD, Axis.BLOCK, Axis.TILE)
        first_line = print_statements([statement], target)[0]
        if is_generation:
            result.append(Declare("long long", "last_stamp", "clock64()"))
        if inside and (is_parallel or isinstance(statement, Barrier)):
            stamp(f"before {first_line[:80]}")
        if isinstance(statement, For | If) and (inside or is_generation) and not is_parallel:
            statement = copy(statement)
            if isinstance(statement, For):
                statement.body = add_stamps(statement.body, names, target, True)
            else:
                branches = statement.branches
                statement.branches = [(test, add_stamps(body, names, target, True)) for test, body in branches]
        result.append(statement)
        if inside and isinstance(statement, Barrier):
            stamp(f"waiting at {first_line}")
    return result


def phases(generations: int, dtype: str | None = None, **options: Any) -> None:
    """Print the cycles of each stretch in a run of `generations` generations."""
    kernels: list[CudaKernel] = []
    names: list[str] = []

    def print_stamped(statements: Sequence[Statement], target: Target) -> list[str]:
        names.clear()
        lines = print_statements(add_stamps(statements, names, target), target)
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


ROW_KERNEL = """
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2)
galapax_run(const __grid_constant__ struct Arguments a, int runs, char *scratch) {
    const float *x = (const float *)a.p[0]; float *y = (float *)a.p[1];
    const int warps = runs * WARPS;
    for (int row = (int)blockIdx.x * WARPS + WARP; row < ROWS; row += ABREAST * warps) {
        float sum[ABREAST];
        #pragma unroll
        for (int k = 0; k < ABREAST; k++) {
            const int i = row + k * warps < ROWS ? row + k * warps : ROWS - 1;
            sum[k] = x[(long long)i * 32 + LANE];
            #pragma unroll
        for (int other = 1; other <= OTHERS; other++) {
                const u32 j = IS_RANDOM ? high_product(mixed((u32)i * 4 + other), ROWS) : (u32)(i + other) % ROWS;
                sum[k] += x[(long long)j * 32 + LANE]; } }
        #pragma unroll
        for (int k = 0; k < ABREAST; k++) {
            if (row + k * warps < ROWS) y[(long long)(row + k * warps) * 32 + LANE] = sum[k]; } } }
"""


def measure_memory(rows: int, n_blocks: int = 2 * 132, rounds: int = 20) -> None:
    """Print the microseconds in which kernels read and write rows, and the bytes a second that the program sees."""
    x = jnp.ones((rows, 32), jnp.float32)
    for title, others, is_random in (("copy", 0, 0), ("3 neighbours", 3, 0), ("3 random rows", 3, 1)):
        for abreast in (1, 2, 4):
            sizes = {"ROWS": rows, "OTHERS": others, "IS_RANDOM": is_random, "ABREAST": abreast}
            head = "".join(f"#define {name} {size}\n" for name, size in sizes.items())
            body = f"{head}struct Arguments {{ void *p[3]; }};\n{ROW_KERNEL}"
            kernel = CudaKernel(KernelSource(body, (), 0, 0, 1024, 1, 1, 2, False, 0))
            shapes = [x, jax.ShapeDtypeStruct((n_blocks,), jnp.float32), jax.ShapeDtypeStruct((16,), jnp.uint8)]
            call = jax.jit(buffer_callback.buffer_callback(kernel.call, shapes))
            jax.block_until_ready(call(x))
            CudaKernel.times = []
            for _ in range(rounds):
                jax.block_until_ready(call(x))
            microseconds, CudaKernel.times = 1e3 * min(CudaKernel.times), None
            gigabytes = (2 + others) * rows * 128 / 1e9
            print(f"{title:>14}, {abreast} abreast: {microseconds:7.1f} us, {gigabytes / microseconds * 1e3:5.2f} TB/s")


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("what", choices=("fep", "de", "ga", "cde", "nsga2", "memory"), nargs="?", default="fep")
    parser.add_argument("size", type=int, nargs="?", help="individuals; of GA and CDE runs")
    options = parser.parse_args()
    print(harness.describe_machine())
    size = (
        options.size
        or {"fep": 6400, "de": 10_000, "ga": 100_000, "cde": 1, "nsga2": 100, "memory": 1_000_000}[options.what]
    )
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
    elif options.what == "memory":
        measure_memory(size)
    elif options.what == "nsga2":
        phases(200, fun=gx.problems.get("zdt1"), algorithm=gx.NSGA2(population=size), dtype="float32")
    else:
        phases(1000, fun=gx.problems.get("g07"), algorithm="cde", runs=size, keep=gx.Keep(history=False))


if __name__ == "__main__":
    main()
