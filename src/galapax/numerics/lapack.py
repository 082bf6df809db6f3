"""Loads the LAPACK routines that JAX needs on a CPU without importing all of scipy.linalg.

JAX asks two modules of scipy.linalg where the routines are. Importing them in the usual way first imports all of
scipy.linalg, which takes as long as compiling a small program does. They need none of it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from functools import lru_cache
from pathlib import Path

LAPACK_MODULES = ("cython_blas", "cython_lapack")


@lru_cache(maxsize=1)
def preload() -> None:
    """Import the two modules, once. Where that does not work JAX imports them in its own way."""
    if "scipy.linalg" in sys.modules:
        return
    scipy = importlib.util.find_spec("scipy")
    if scipy is None or scipy.origin is None:
        return
    folder = Path(scipy.origin).parent / "linalg"
    for name in LAPACK_MODULES:
        files = [folder / f"{name}{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
        file = next((f for f in files if f.is_file()), None)
        if file is None or f"scipy.linalg.{name}" in sys.modules:
            return
        full = f"scipy.linalg.{name}"
        loader = importlib.machinery.ExtensionFileLoader(full, str(file))
        spec = importlib.util.spec_from_loader(full, loader)
        assert spec is not None
        try:
            sys.modules[full] = module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except Exception:  # a SciPy with another layout
            sys.modules.pop(full, None)
            return
