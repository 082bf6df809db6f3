"""Questions about the device that computations run on."""

from __future__ import annotations

import jax


def platform() -> str:
    """The platform that computations run on now: that of `jax.default_device`, or else JAX's first device."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]  # which JAX adds as it runs
    if isinstance(chosen, str):  # a platform itself
        return jax.devices(chosen)[0].platform
    return chosen.platform if chosen is not None else jax.devices()[0].platform


def on_cpu() -> bool:
    """Whether that is a CPU."""
    return platform() == "cpu"
