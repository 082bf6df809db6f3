"""Arrays on their way to a device. A small one that was sent before is there still: a call much like an earlier one,
with its bounds, rules and settings, sends next to nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np

from galapax.numerics import devices

SMALL = 1024  # bytes of an array that is kept
KEPT = 1024  # such arrays


def put(tree: Any, place: Any = None) -> Any:
    """As `jax.device_put`: the arrays are not to be donated, as others may be given the same ones."""
    leaves, structure = jax.tree.flatten(tree)
    settings = devices.settings()
    out: list[Any] = [None] * len(leaves)
    rest = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, np.ndarray | np.generic) and leaf.nbytes <= SMALL:
            out[i] = _array(leaf.tobytes(), leaf.dtype, leaf.shape, place, settings)
        elif type(leaf) in (bool, int, float):
            out[i] = _number(type(leaf).__name__, leaf.hex() if isinstance(leaf, float) else leaf, place, settings)
        else:
            rest.append(i)
    if rest:
        sent = jax.device_put([leaves[i] for i in rest], place)
        for i, leaf in zip(rest, sent, strict=True):
            out[i] = leaf
    return jax.tree.unflatten(structure, out)


@lru_cache(maxsize=KEPT)
def _array(content: bytes, dtype: np.dtype, shape: tuple[int, ...], place: Any, settings: Any) -> jax.Array:
    return jax.device_put(np.frombuffer(content, dtype).reshape(shape), place)


@lru_cache(maxsize=KEPT)
def _number(kind: str, value: Any, place: Any, settings: Any) -> jax.Array:
    return jax.device_put(float.fromhex(value) if kind == "float" else value, place)
