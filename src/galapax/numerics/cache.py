"""The compilation cache on disk: what one process compiled, the next one loads.

It is on unless `disable()` is called or the environment variable GALAPAX_CACHE says "off"; that variable, or `enable`,
names another folder. What is in the folder: see engines/stored.py. JAX's own cache is left as the user has set it.
"""

from __future__ import annotations

import os
from pathlib import Path

_DEFAULT = Path()  # stands for `default_folder()`, as the environment may change
_chosen: Path | None = _DEFAULT


def default_folder() -> Path | None:
    """Where compiled programs are kept; None when GALAPAX_CACHE says "off"."""
    wanted = os.environ.get("GALAPAX_CACHE", "")
    if wanted.lower() in ("off", "0", "no"):
        return None
    if wanted:
        return Path(wanted)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "galapax" / "compiled"


def folder() -> Path | None:
    """Where programs of runs are kept; None for nowhere."""
    return default_folder() if _chosen is _DEFAULT else _chosen


def disable() -> None:
    """Neither load nor keep programs of runs from now on, whatever GALAPAX_CACHE says."""
    global _chosen
    _chosen = None


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
    global _chosen
    _chosen = path
    return path
