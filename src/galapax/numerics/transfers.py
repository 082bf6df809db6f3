"""Host-to-device transfers with a cache: a small array that was sent before is still there.

A call much like an earlier one, with its bounds, rules and settings, sends next to nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np

from galapax.numerics import devices

MAX_CACHED_BYTES = 1024  # of one array; larger ones are sent each time
MAX_CACHED_ARRAYS = 1024  # least recently used ones are dropped


def device_put_cached(tree: Any, device: Any = None) -> Any:
    """Put a tree of arrays onto a device, like `jax.device_put`; the arrays must not be donated, as they are shared."""
    leaves, structure = jax.tree.flatten(tree)
    settings = devices.compile_settings()
    out: list[Any] = [None] * len(leaves)
    uncached = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, np.ndarray | np.generic) and leaf.nbytes <= MAX_CACHED_BYTES:
            out[i] = _put_array(leaf.tobytes(), leaf.dtype, leaf.shape, device, settings)
        elif type(leaf) in (bool, int, float):
            out[i] = _put_number(type(leaf).__name__, leaf.hex() if isinstance(leaf, float) else leaf, device, settings)
        else:
            uncached.append(i)
    if uncached:
        moved = jax.device_put([leaves[i] for i in uncached], device)
        for i, leaf in zip(uncached, moved, strict=True):
            out[i] = leaf
    return jax.tree.unflatten(structure, out)


@lru_cache(maxsize=MAX_CACHED_ARRAYS)
def _put_array(content: bytes, dtype: np.dtype, shape: tuple[int, ...], device: Any, settings: Any) -> jax.Array:
    return jax.device_put(np.frombuffer(content, dtype).reshape(shape), device)


@lru_cache(maxsize=MAX_CACHED_ARRAYS)
def _put_number(kind: str, value: Any, device: Any, settings: Any) -> jax.Array:
    return jax.device_put(float.fromhex(value) if kind == "float" else value, device)
