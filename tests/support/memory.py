"""The memory of the test process: how much it holds, and giving back what nothing refers to."""

import ctypes
import gc
import os
import sys
from pathlib import Path

import jax

from galapax.numerics import compile_cache


def resident():
    """Bytes of memory that this process holds; 0 where that is not known."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def forget_programs():
    """Drop every compiled program, JAX's and galapax's own."""
    compile_cache.clear()
    jax.clear_caches()
    return_memory()


def return_memory():
    """Memory that nothing refers to any more, to the system: C's library would keep it, and it would seem in use."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
        if trim is not None:
            trim(0)
