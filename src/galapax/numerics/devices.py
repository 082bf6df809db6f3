"""Every question about the device that computations run on, and about memory."""

from __future__ import annotations

import os
from typing import Any

import jax

CONFIG: Any = jax.config  # its settings have no types
GPUS = {"cuda", "rocm", "gpu"}


def device() -> jax.Device:
    """The device that computations run on now: that of `jax.default_device`, or else JAX's first."""
    chosen = CONFIG.jax_default_device  # None, a Device, or the name of a platform
    if isinstance(chosen, str):
        return jax.devices(chosen)[0]
    return chosen if chosen is not None else jax.devices()[0]


def platform() -> str:
    """Its kind: "cpu", "gpu" or "tpu"."""
    found = device().platform
    return "gpu" if found in GPUS else found


def on_cpu() -> bool:
    return platform() == "cpu"


def name() -> str:
    """What it is called in tables."""
    return "CPU" if on_cpu() else device().device_kind


def settings() -> tuple[Any, ...]:
    """What a compiled program depends on besides its function and arguments: where it runs, and whether in float64."""
    return platform(), CONFIG.jax_default_device, bool(CONFIG.jax_enable_x64)


def free_memory() -> int:
    """Bytes that can still be had on the device."""
    here = device()
    stats = here.memory_stats() if here.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return host_memory()


def host_memory() -> int:
    """Bytes that can still be had on this machine."""
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * 2**30
