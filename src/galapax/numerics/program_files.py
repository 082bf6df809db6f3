"""Compiled programs on disk, so that the next process neither traces nor compiles them.

JAX's own cache is consulted only after a program was traced and lowered, which is most of the latency of a short run.
Here the key of a program is computed from its inputs: the versions of galapax and JAX, the machine, the function and
its static arguments, the hyper-parameters, the text of the objective's jaxpr, and shape, dtype and device of all
arrays. A program without such a key (a user's own algorithm, an objective that calls back into Python) is not saved.

numerics/disk_cache.py describes where the files are and which may be loaded. A file that cannot be loaded counts as
absent.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
import pickle
import threading
import types
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jaxlib
import jaxlib.lapack
import numpy as np
from jax.experimental import serialize_executable

from galapax.numerics import devices, disk_cache, lapack

REPR_TYPES = (  # whose `repr` is the same in every process
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    np.dtype,
    np.generic,
    enum.Enum,
)


class _JaxCache(threading.local):
    hits = 0  # programs that JAX loaded from its own cache in this thread


_jax_cache = _JaxCache()


def _count_cache_hits(event: str, **_: object) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _jax_cache.hits += 1


jax.monitoring.register_event_listener(_count_cache_hits)


def jax_cache_hits() -> int:
    """Count the programs that JAX loaded from its own cache in this thread.

    Such a program cannot be serialised again: on a CPU it would not find its own functions.
    """
    return _jax_cache.hits


class NotCacheable(Exception):
    """Raised for a value that has no description which is the same in every process."""


@runtime_checkable
class HasSource(Protocol):
    """An objective that its text identifies."""

    @property
    def text(self) -> str: ...


def program_name(
    function: Callable[..., Any], static: tuple[Any, ...], arguments: tuple[Any, ...], settings: tuple[Any, ...]
) -> str | None:
    """Compute the name of a program's file; None for a program that cannot be saved.

    settings: everything else that the program depends on. With several devices, in one process or in many, no program
    is saved: JAX would load it for all of them.
    """
    if jax.device_count() > 1:
        return None
    try:
        descriptions = [_describe_environment(), _describe(function), _describe(static), _describe(settings)]
        leaves, tree = jax.tree.flatten(arguments)
        descriptions += [_describe_structure(tree), *map(_describe_leaf, leaves)]
    except NotCacheable:
        return None
    return hashlib.sha256("\n".join(descriptions).encode()).hexdigest()


def load(name: str, arguments: Any) -> tuple[jax.stages.Compiled, tuple[int, int]] | None:
    """Load the program of that name, for arguments like these, and the sizes saved with it; None if absent."""
    content = disk_cache.load(name, "program")
    if content is None:
        return None
    try:
        payload, out_tree, sizes, calls_lapack = pickle.loads(content)
        if calls_lapack:
            _prepare_lapack()
        in_tree = jax.tree.structure((arguments, {}))
        compiled = serialize_executable.deserialize_and_load(payload, in_tree, out_tree)
    except Exception:  # whatever is wrong with the file, the program is compiled again
        return None
    return compiled, sizes


def save(name: str, compiled: jax.stages.Compiled, sizes: tuple[int, int]) -> None:
    """Save a program for other processes if it can be serialised. sizes: of the program and of its working memory."""
    if disk_cache.folder() is None:
        return
    try:
        payload, _, out_tree = serialize_executable.serialize(compiled)
        content = pickle.dumps((payload, out_tree, sizes, "lapack_" in (compiled.as_text() or "")))
    except Exception:  # it cannot be serialised
        return
    disk_cache.save(name, "program", content)


@lru_cache(maxsize=1)
def _prepare_lapack() -> None:
    """Register the addresses of the LAPACK routines, which JAX does when it first lowers a LAPACK call.

    A program loaded from disk was lowered elsewhere, and its calls would have no target.
    """
    lapack.preload()
    try:
        jaxlib.lapack.prepare_lapack_call("potrf_ffi", np.float32)
    except Exception:  # another version of jaxlib: lowering does the same, in ten times the time
        jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), jnp.float32))


def _describe_environment() -> str:
    """Describe what every program depends on: versions, flags, configuration and device."""
    flags = {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")}
    config = {
        k: v for k, v in jax.config.values.items() if not any(word in k for word in ("cache", "log", "traceback"))
    }
    device = (devices.platform(), devices.default_device().device_kind, len(jax.local_devices()), jax.process_count())
    return repr((disk_cache.environment(), sorted(flags.items()), sorted(config.items(), key=str), device))


def leaf_kind(leaf: object) -> tuple[Hashable, ...]:
    """Return what a program depends on in an argument: shape, dtype and device.

    Not the whole abstract value and not the layout: results of a program from disk differ in these from results of the
    same program compiled here, although the next program accepts both.
    """
    if isinstance(leaf, jax.Array):
        sharding = leaf.sharding
        device = sharding if len(sharding.device_set) > 1 else next(iter(sharding.device_set))
        return leaf.shape, leaf.dtype, leaf.aval.weak_type, device
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.shape, leaf.dtype
    return (leaf.__class__.__name__,)


def _describe_leaf(leaf: object) -> str:
    if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1:
        raise NotCacheable  # loading programs for several devices is untested
    return repr(leaf_kind(leaf))


def _describe_structure(tree: jax.tree_util.PyTreeDef) -> str:
    """Describe the structure of the arguments, and the static fields in it."""
    node = tree.node_data()
    if node is None:
        return "*" if tree.num_leaves else "None"
    kind, static_fields = node
    children = ",".join(map(_describe_structure, tree.children()))
    return f"{_type_name(kind)}<{_describe(static_fields)}>({children})"


def _describe(value: object) -> str:
    if isinstance(value, HasSource):
        if not isinstance(value.text, str) or " at 0x" in value.text or "callback" in value.text:
            raise NotCacheable
        return f"{_type_name(type(value))}: {value.text}"
    if isinstance(value, REPR_TYPES):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, type):
        return _type_name(value)
    if isinstance(value, types.FunctionType):
        return _qualified_name(value)
    return f"{_type_name(type(value))}({','.join(_describe_fields(value))})"


def _describe_fields(value: object) -> Iterator[str]:
    if isinstance(value, tuple | list):
        yield from map(_describe, value)
    elif isinstance(value, dict):
        yield from (f"{_describe(key)}={_describe(item)}" for key, item in value.items())
    elif dataclasses.is_dataclass(value):
        yield from (f"{field.name}={_describe(getattr(value, field.name))}" for field in dataclasses.fields(value))
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    else:
        raise NotCacheable


def _type_name(kind: type) -> str:
    if kind.__module__ in ("builtins", "numpy", "collections"):
        return f"{kind.__module__}.{kind.__qualname__}"
    return _qualified_name(kind)


def _qualified_name(thing: Any) -> str:
    """Return module and name of a class or function of galapax; code outside may change unnoticed and is refused."""
    if not thing.__module__.startswith("galapax.") or "<" in thing.__qualname__:
        raise NotCacheable
    return f"{thing.__module__}.{thing.__qualname__}"
