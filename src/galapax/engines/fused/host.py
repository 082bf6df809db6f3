"""Generated text built by the host's C compiler: the native engine, and how kernels are tested without a GPU."""

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

from galapax.engines.fused.graph import NotFusible
from galapax.engines.fused.kernel_source import KernelSource
from galapax.engines.threads import on_threads
from galapax.numerics import disk_cache

FLAGS = ("-std=gnu99", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-w")
PIECES = 4  # of the runs of a call, for each thread: some may take longer than others
PLAIN = ("-O2", "-fno-tree-vectorize")  # of a text for a GPU
VECTORS = (
    "-DVECTORS", "-O3", "-march=native",
    # nobody asks for errno or floating-point exceptions, and with them few loops could be vectorised
    "-fno-math-errno", "-fno-trapping-math",
    # GCC 12 reads wrong elements where it reads several of a row under one condition: it is not to make conditions
    "-fno-thread-jumps", "-fno-tree-sink", "-fno-tree-pre",
    "-fno-tree-vrp",  # else GCC makes truth values of numbers 0 and 1 in a way that it cannot vectorise
)  # fmt: skip


def compiler() -> str | None:
    """The C compiler of this machine, if it has one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@lru_cache(maxsize=64)
def _built(source: str, flags: tuple[str, ...]) -> Any:
    """The library of a text, from the disk cache if it was built before."""
    found = compiler()
    if found is None:
        raise NotFusible("no C compiler was found on this machine")
    key = disk_cache.key_of("library", _describe_compiler(found), FLAGS, flags, source)
    content = disk_cache.load(key, "library")
    # the system loads libraries by name: the bytes that the cache has checked go into a folder of this process alone
    with tempfile.TemporaryDirectory(prefix="galapax-") as folder:
        library = Path(folder, "run.so")
        if content is None:
            _build(found, source, flags, library)
            disk_cache.save(key, "library", library.read_bytes())
        else:
            library.write_bytes(content)
        try:
            return ctypes.CDLL(str(library))
        except OSError as error:  # such as a folder for temporary files from which nothing may be run
            raise NotFusible(f"what the C compiler built cannot be loaded: {error}") from None


@lru_cache(maxsize=4)
def _describe_compiler(path: str) -> tuple[Any, ...]:
    """What tells one C compiler from another; by what it says as well, as the file may be one that starts another."""
    real = Path(path).resolve()
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, errors="replace").stdout
    return str(real), real.stat().st_size, real.stat().st_mtime_ns, said


def _build(found: str, source: str, flags: tuple[str, ...], library: Path) -> None:
    text = library.with_suffix(".c")
    text.write_text(source, encoding="utf-8")
    for tried in (flags, PLAIN):  # another compiler may not know all of them
        done = subprocess.run(
            [found, *FLAGS, *tried, str(text), "-o", str(library), "-lm"],
            capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        if done.returncode == 0:
            return
    raise NotFusible(f"the C compiler refused it: {done.stderr[:2000]}")


class HostKernel:
    """A text as machine code of this machine. threads: that share out the runs of a call."""

    def __init__(self, text: KernelSource) -> None:
        self.text, self.threads = text, 1
        self._run = _built(text.source, VECTORS if text.for_cpu else PLAIN).galapax_run
        self._own = threading.local()  # what a run needs besides its arrays

    def __call__(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], runs: int = 1) -> None:
        arrays = [*inputs, *self.text.constants, *outputs]
        assert len(arrays) == self.text.n_pointers
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))

        def make(piece: np.ndarray) -> None:
            if not hasattr(self._own, "memory"):
                self._own.memory = np.zeros((self.text.shared_bytes + self.text.scratch_bytes) // 8 + 16)
            start = -(-self._own.memory.ctypes.data // 64) * 64
            first, end = int(piece[0]), int(piece[-1]) + 1
            self._run(
                pointers, first, end, runs, ctypes.c_void_p(start), ctypes.c_void_p(start + self.text.shared_bytes)
            )

        on_threads(self.threads, make, np.array_split(np.arange(runs), min(runs, PIECES * self.threads)))

    def call(self, context: Any, outputs: list[Any], *inputs: Any) -> None:
        """As `buffer_callback` calls it; the constants are among the inputs."""
        *results, _ = (np.asarray(a) for a in outputs)
        given = [np.asarray(a) for a in inputs]
        self(given[: len(given) - len(self.text.constants)], results, results[-1].shape[-1])
