"""Digests of the kernels that the fused compiler writes: what a change of the compiler alters, without a GPU.

    python benchmarks/kernel_sources.py > before.txt     # in the tree before the change
    python benchmarks/kernel_sources.py > after.txt      # in the tree after it
    diff before.txt after.txt

A line for each kernel: algorithm, problem, type, launch shape, bytes of the body, and its digest. With --write FOLDER
the sources are written there, to compare their text. With --cubin the digest is that of the machine code that NVRTC
makes for compute capability 9.0, which stays the same where only names or lines of the text change; that needs NVRTC
(`pip install nvidia-cuda-nvrtc`), and no GPU. Names of algorithms restrict it to these.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

os.environ["GALAPAX_CACHE"] = "off"  # or a source from before the change would be read

import jax

import galapax as gx
from galapax.execution.search import Search
from galapax.fused import backend, cuda, kernel
from galapax.fused.array_ir import NotFusible
from galapax.fused.kernel_source import KernelSource
from galapax.fused.schedule import LaunchShape

SHAPES = {
    "block": LaunchShape(),
    "cluster": LaunchShape(16),
    "grid": LaunchShape(132),
    "many": LaunchShape(1, 32),
    "cpu": LaunchShape(for_cpu=True),
}
SINGLE_OBJECTIVE = ("ga", "de", "ep", "fep", "pso", "cmaes", "lshade", "jso", "lsrtde", "random", "epsilon_de")
CASES = [
    *((name, "rastrigin", 20) for name in SINGLE_OBJECTIVE),
    *((name, "rastrigin", 5000) for name in ("de", "fep")),
    *((name, "g07", 40) for name in ("de", "cde", "epsilon_de", "jso")),
    *((name, "gear_train", 40) for name in ("ga", "epsilon_de")),
    *((name, "zdt1", 24) for name in ("nsga2", "npga", "moead", "sms_emoa")),
]


class Captured(Exception):
    """Carries the search of a run out of the engine that would compile it."""

    def __init__(self, search: Search) -> None:
        super().__init__()
        self.search = search


def capture_search(algorithm: str, problem: str, population: int, dtype: str) -> Search:
    """Return the search of a run, without running it."""

    def capture(search: Search, *about: object) -> None:
        raise Captured(search)

    compile_kernel, backend.compile_kernel = backend.compile_kernel, capture
    try:
        gx.minimize(
            gx.problems.get(problem), gx.algorithms.ALGORITHMS[algorithm](population=population), generations=3,
            polish=False, compute=gx.Compute(engine="native", dtype=dtype),
        )  # fmt: skip
    except Captured as captured:
        return captured.search
    finally:
        backend.compile_kernel = compile_kernel
    raise RuntimeError(f"{algorithm} on {problem} did not ask for a kernel")


def list_kernels(algorithms: Collection[str] = ()) -> Iterator[tuple[str, KernelSource | str]]:
    """Yield the name and the source of each kernel of these algorithms, or of all, or the reason why there is none."""
    for algorithm, problem, population in CASES:
        if algorithms and algorithm not in algorithms:
            continue
        for dtype in ("float32", "float64"):
            with jax.enable_x64(dtype == "float64"):
                search = capture_search(algorithm, problem, population, dtype)
                for name, shape in SHAPES.items():
                    try:
                        source: KernelSource | str = kernel.generate_source(search, 1, shape)
                    except NotFusible as error:
                        source = str(error)
                    yield f"{algorithm} {problem} {population} {dtype} {name}", source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the sources there")
    parser.add_argument("algorithms", nargs="*", help="only these")
    parser.add_argument("--cubin", action="store_true", help="digests of machine code, of kernels for a GPU")
    options = parser.parse_args()
    folder: Path | None = options.write
    for name, source in list_kernels(options.algorithms):
        body = source if isinstance(source, str) else source.body
        content = body.encode()
        if options.cubin and isinstance(source, KernelSource):
            if source.for_cpu:
                continue
            content = cuda.compile_cubin(source.source, (9, 0))
        print(name, len(content), hashlib.sha256(content).hexdigest()[:16], flush=True)
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / (re.sub(r"\W+", "-", name) + ".c")).write_text(body)


if __name__ == "__main__":
    main()
