"""The compilation cache on disk: what one process compiled, the next one loads.

The command line switches it on; a program calls `galapax.numerics.cache.enable()`. The environment variable
GALAPAX_CACHE names another folder, or says "off".
"""

from __future__ import annotations

import os
from pathlib import Path

import jax


def default_folder() -> Path | None:
    """Where compiled programs are kept; None when GALAPAX_CACHE says "off"."""
    wanted = os.environ.get("GALAPAX_CACHE", "")
    if wanted.lower() in ("off", "0", "no"):
        return None
    if wanted:
        return Path(wanted)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "galapax" / "compiled"


def enable(folder: str | Path | None = None) -> Path | None:
    """Keep compiled programs in a folder from now on; return it, or None where it is off or cannot be written."""
    path = Path(folder) if folder is not None else default_folder()
    if path is None:
        return None
    path = path.resolve()  # a program may change its folder later
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(path, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(path))
    # every program of ours is worth keeping: the small ones are what a short run waits for
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path
