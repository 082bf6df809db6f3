"""Generated text built by the host's C compiler: how it is tested without a GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from galapax.engines.fused.graph import NotFusible
from galapax.engines.fused.program import Text

FLAGS = ("-O2", "-std=gnu99", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-w")


def compiler() -> str | None:
    """The C compiler of this machine, if it has one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@lru_cache(maxsize=64)
def _built(source: str) -> Any:
    found = compiler()
    if found is None:
        raise NotFusible("no C compiler was found on this machine")
    with tempfile.TemporaryDirectory(prefix="galapax-") as folder:
        text, library = Path(folder, "run.c"), Path(folder, "run.so")
        text.write_text(source, encoding="utf-8")
        done = subprocess.run(
            [found, *FLAGS, str(text), "-o", str(library), "-lm"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotFusible(f"the C compiler refused it: {done.stderr[:2000]}")
        return ctypes.CDLL(str(library))


class HostKernel:
    """A text as machine code of this machine."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self._run = _built(text.source).galapax_run
        self._memory = np.zeros((text.shared + text.scratch) // 8 + 4)

    def __call__(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], runs: int = 1) -> None:
        arrays = [*inputs, *self.text.arrays, *outputs]
        assert len(arrays) == self.text.pointers
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        start = -(-self._memory.ctypes.data // 16) * 16
        self._run(pointers, ctypes.c_int(runs), ctypes.c_void_p(start), ctypes.c_void_p(start + self.text.shared))

    def call(self, context: Any, outputs: list[Any], *inputs: Any) -> None:
        """As `buffer_callback` calls it; the constants are among the inputs."""
        *results, _ = (np.asarray(a) for a in outputs)
        given = [np.asarray(a) for a in inputs]
        self(given[: len(given) - len(self.text.arrays)], results, results[-1].shape[-1])
