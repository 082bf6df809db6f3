"""Where the time of a fused kernel goes: `python benchmarks/phases.py [fep|de|ga|cde] [SIZE]`, on an NVIDIA GPU.

Clock cycles of a generation, as one thread of the block in the middle of the device sees them: in each stretch of the
generated text between loops and barriers, and waiting at each barrier. Reading the clock takes some itself, and the
compiler moves reads of memory across it: stretches tell where to look, `benchmarks/gpu.py` how long it takes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import gpu
import harness
import jax

import galapax as gx
from galapax.fused import backend
from galapax.fused.cuda import CudaKernel
from galapax.fused.kernel_source import KernelSource

STAMPS = 256
HEAD = f"""
__device__ unsigned long long stamps[{STAMPS}];
#define STAMP(n) if (threadIdx.x == 0 && blockIdx.x == gridDim.x / 2) {{ \\
    long long now = clock64(); stamps[n] += now - last_stamp; last_stamp = now; }}
"""


def stamped(text: KernelSource) -> tuple[KernelSource, list[str]]:
    """The text with clocks in its loop over generations, and what each of them measures."""
    lines, names, inside = list[str](), list[str](), False
    for line in text.body.split("\n"):
        word = line.strip()
        if word.startswith("for (; g < count"):
            inside, lines = True, [*lines, "long long last_stamp = clock64();"]
        inside = inside and not word.startswith("for (; g < rows")
        meets = inside and word in ("BARRIER", "BLOCK_BARRIER")
        if meets or (inside and re.match(r"(WRITTEN_OUT )?(LOOP|BLOCK_LOOP|OVER_PIECE)", word)):
            lines.append(f"STAMP({len(names)})")
            names.append(f"before {word[:80]}")
        lines.append(line)
        if meets:
            lines.append(f"STAMP({len(names)})")
            names.append(f"waiting at {word}")
    assert len(names) < STAMPS
    return replace(text, body=HEAD + "\n".join(lines)), names


def phases(generations: int, dtype: str | None = None, **options: Any) -> None:
    """Print the cycles of each stretch in a run of `generations` generations."""
    made: list[tuple[CudaKernel, list[str]]] = []

    def build_kernel(digest: str, text: KernelSource, for_cpu: bool) -> CudaKernel:
        changed, names = stamped(text)
        made.append((CudaKernel(changed), names))
        return made[-1][0]

    usual, backend.build_kernel = backend.build_kernel, build_kernel  # type: ignore[assignment]
    gx.minimize(
        tolerance=0,
        progress=False,
        polish=False,
        generations=generations,
        compute=gx.Compute(engine="fused", dtype=dtype),
        **options,
    )
    backend.build_kernel = usual
    kernel, names = made[-1]
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
