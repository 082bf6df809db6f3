"""Kernels compiled by the C compiler of this machine: the native engine, and how kernels are tested without a GPU."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from galapax.fused.array_ir import NotFusible
from galapax.fused.kernel_source import KernelSource
from galapax.numerics import disk_cache
from galapax.numerics.devices import map_on_threads

_BASE_FLAGS = ("-std=gnu99", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-w")
PIECES_PER_THREAD = 4  # the runs of a call are cut into so many per thread, as some take longer than others
SCALAR_FLAGS = ("-O2", "-fno-tree-vectorize")  # for sources generated for a GPU
VECTOR_FLAGS = (
    "-DVECTORS", "-O3", "-march=native",
    # errno and floating-point exceptions are not used, and would keep most loops from being vectorised
    "-fno-math-errno", "-fno-trapping-math",
    # GCC 12 miscompiles vectorised loads under a condition: keep it from introducing conditions
    "-fno-thread-jumps", "-fno-tree-sink", "-fno-tree-pre",
    "-fno-tree-vrp",  # else GCC turns 0 and 1 into booleans in a way that it cannot vectorise
)  # fmt: skip


def find_compiler() -> str | None:
    """Return the path of the C compiler, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@lru_cache(maxsize=64)
def _load_library(source: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """Compile a source to a shared library, or load it from the disk cache."""
    compiler = find_compiler()
    if compiler is None:
        raise NotFusible("no C compiler was found on this machine")
    key = disk_cache.key_of("library", describe_compiler(), _BASE_FLAGS, flags, source)
    content = disk_cache.load(key, "library")
    # the system loads libraries by name: the bytes that the cache has checked go into a folder of this process alone
    with tempfile.TemporaryDirectory(prefix="galapax-") as folder:
        library = Path(folder, "run.so")
        if content is None:
            _compile_library(compiler, source, flags, library)
            disk_cache.save(key, "library", library.read_bytes())
        else:
            library.write_bytes(content)
        try:
            return ctypes.CDLL(str(library))
        except OSError as error:  # such as a folder for temporary files from which nothing may be run
            raise NotFusible(f"what the C compiler built cannot be loaded: {error}") from None


def describe_compiler() -> tuple[Any, ...]:
    """Return what identifies the C compiler: its file, and the version it reports, as the file may be a wrapper."""
    compiler = find_compiler()
    return () if compiler is None else _describe_compiler(compiler)


@lru_cache(maxsize=4)
def _describe_compiler(path: str) -> tuple[Any, ...]:
    real = Path(path).resolve()
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, errors="replace").stdout
    return str(real), real.stat().st_size, real.stat().st_mtime_ns, version


def _compile_library(compiler: str, source: str, flags: tuple[str, ...], library: Path) -> None:
    source_file = library.with_suffix(".c")
    source_file.write_text(source, encoding="utf-8")
    for target_flags in (flags, SCALAR_FLAGS):  # another compiler may not know all flags
        completed = subprocess.run(
            [compiler, *_BASE_FLAGS, *target_flags, str(source_file), "-o", str(library), "-lm"],
            capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        if completed.returncode == 0:
            return
    raise NotFusible(f"the C compiler refused it: {completed.stderr[:2000]}")


class CpuKernel:
    """A kernel as machine code for this CPU. threads: how many share the runs of a call."""

    def __init__(self, text: KernelSource) -> None:
        self.text, self.threads = text, 1
        self._run = _load_library(text.source, VECTOR_FLAGS if text.for_cpu else SCALAR_FLAGS).galapax_run
        self._thread_memory = threading.local()  # shared and scratch memory of a run

    def __call__(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], runs: int = 1) -> None:
        arrays = [*inputs, *self.text.constants, *outputs]
        assert len(arrays) == self.text.n_pointers
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))

        def run_piece(runs_of_piece: np.ndarray) -> None:
            if not hasattr(self._thread_memory, "memory"):
                self._thread_memory.memory = np.zeros((self.text.shared_bytes + self.text.scratch_bytes) // 8 + 16)
            start = -(-self._thread_memory.memory.ctypes.data // 64) * 64
            first, end = int(runs_of_piece[0]), int(runs_of_piece[-1]) + 1
            shared, scratch = ctypes.c_void_p(start), ctypes.c_void_p(start + self.text.shared_bytes)
            self._run(pointers, first, end, runs, shared, scratch)

        pieces = np.array_split(np.arange(runs), min(runs, PIECES_PER_THREAD * self.threads))
        map_on_threads(self.threads, run_piece, pieces)

    def call(self, context: Any, outputs: list[Any], *inputs: Any) -> None:
        """Run the kernel; called by `buffer_callback`. The constants are among the inputs."""
        *results, _ = (np.asarray(a) for a in outputs)
        arrays = [np.asarray(a) for a in inputs]
        self(arrays[: len(arrays) - len(self.text.constants)], results, results[-1].shape[-1])
