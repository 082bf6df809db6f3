"""Which kind of device computes, and by which of JAX's settings."""

from __future__ import annotations

from typing import Any

import jax

CONFIG: Any = jax.config  # its settings have no types
GPUS = {"cuda", "rocm", "gpu"}


def platform() -> str:
    """The kind of device that programs run on: "cpu", "gpu" or "tpu"; that of `jax.default_device`, if it is set."""
    chosen = CONFIG.jax_default_device  # None, a Device, or the name of a platform
    found = jax.default_backend() if chosen is None else chosen if isinstance(chosen, str) else chosen.platform
    return "gpu" if found in GPUS else found


def on_cpu() -> bool:
    return platform() == "cpu"


def settings() -> tuple[Any, ...]:
    """What a compiled program depends on besides its function and arguments: where it runs, and whether in float64."""
    return platform(), CONFIG.jax_default_device, bool(CONFIG.jax_enable_x64)
