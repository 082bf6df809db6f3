"""Compiled programs on disk, found by the next process without tracing or compiling anything.

JAX's own cache is asked once a program has been traced and lowered, and that is most of what a short run waits for.
Here a program is known by what goes into it: the versions of galapax and JAX, the machine, the function and its fixed
arguments, the settings of the algorithm, the text of the user's formula, and the kinds of all arrays. A program that
cannot be named so (an algorithm of the user's own, an objective that calls back into Python) is not kept.

Where the files are and which of them may be loaded: see numerics/disk_cache.py. A program that does not load counts as
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
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jaxlib
import jaxlib.lapack
import numpy as np
from jax.experimental import serialize_executable

from galapax.numerics import devices, disk_cache, lapack

PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic, enum.Enum)


class _JaxCache(threading.local):
    hits = 0  # programs that JAX has found in its own cache, in this thread


_jax_cache = _JaxCache()


def _count_cache_hits(event: str, **facts: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _jax_cache.hits += 1


jax.monitoring.register_event_listener(_count_cache_hits)


def jax_cache_hits() -> int:
    """How many programs JAX has taken from its own cache in this thread: such a program cannot be written again (on a
    CPU it would not find its own functions).
    """
    return _jax_cache.hits


class NotCacheable(Exception):
    """Something that no name can be given which means the same in another process."""


@runtime_checkable
class HasSource(Protocol):
    """An objective that is known by its text."""

    @property
    def text(self) -> str: ...


def program_name(function: Any, fixed: Any, arguments: Any, rest: Any) -> str | None:
    """The name of a program's file; None where it has none. rest: what else tells programs apart, as plain values.

    With several devices, of one process or of many, there is none: JAX would load a program for all of them.
    """
    if jax.device_count() > 1:
        return None
    try:
        descriptions = [_describe_environment(), _describe(function), _describe(fixed), _describe(rest)]
        leaves, tree = jax.tree.flatten(arguments)
        descriptions += [_describe_structure(tree), *map(_describe_leaf, leaves)]
    except NotCacheable:
        return None
    return hashlib.sha256("\n".join(descriptions).encode()).hexdigest()


def load(name: str, arguments: Any) -> tuple[jax.stages.Compiled, tuple[int, int]] | None:
    """The program of that name, for arguments like these, and what was saved with it."""
    content = disk_cache.load(name, "program")
    if content is None:
        return None
    try:
        payload, out_tree, sizes, calls_lapack = pickle.loads(content)
        if calls_lapack:
            _prepare_lapack()
        in_tree = jax.tree.structure((arguments, {}))
        compiled = serialize_executable.deserialize_and_load(payload, in_tree, out_tree)
    except Exception:  # whatever is wrong with it, it is compiled again
        return None
    return compiled, sizes


def save(name: str, compiled: jax.stages.Compiled, sizes: tuple[int, int]) -> None:
    """Keep a program for other processes, where that is possible; nothing depends on it. sizes: of the program and of
    its working memory.
    """
    if disk_cache.folder() is None:
        return
    try:
        payload, _, out_tree = serialize_executable.serialize(compiled)
        content = pickle.dumps((payload, out_tree, sizes, "lapack_" in (compiled.as_text() or "")))
    except Exception:  # a program that cannot be written
        return
    disk_cache.save(name, "program", content)


@lru_cache(maxsize=1)
def _prepare_lapack() -> None:
    """JAX tells its LAPACK calls where the routines are when it first lowers one; a program that was loaded would jump
    to nowhere.
    """
    lapack.preload()
    try:
        jaxlib.lapack.prepare_lapack_call("potrf_ffi", np.float32)
    except Exception:  # of another version: what it does is what lowering does, in a tenth of the time
        jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), jnp.float32))


def _describe_environment() -> str:
    """What every program depends on."""
    flags = {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")}
    config = {
        k: v for k, v in jax.config.values.items() if not any(word in k for word in ("cache", "log", "traceback"))
    }
    where = (devices.platform(), devices.default_device().device_kind, len(jax.local_devices()), jax.process_count())
    return repr((disk_cache.environment(), sorted(flags.items()), sorted(config.items(), key=str), where))


def leaf_kind(leaf: Any) -> tuple[Hashable, ...]:
    """What a program depends on of an argument: shape, type and device.

    Not its abstract value as a whole, nor its layout: what a program from disk returns differs in them from what the
    same program returns when it was compiled here, and yet is the same to the next program.
    """
    if isinstance(leaf, jax.Array):
        sharding = leaf.sharding
        place = sharding if len(sharding.device_set) > 1 else next(iter(sharding.device_set))
        return leaf.shape, leaf.dtype, leaf.aval.weak_type, place
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.shape, leaf.dtype
    return (leaf.__class__.__name__,)


def _describe_leaf(leaf: Any) -> str:
    if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1:
        raise NotCacheable  # loading programs for several devices was not tried
    return repr(leaf_kind(leaf))


def _describe_structure(tree: Any) -> str:
    """The structure of arguments, and what is fixed in it."""
    node = tree.node_data()
    if node is None:
        return "*" if tree.num_leaves else "None"
    kind, fixed = node
    children = ",".join(map(_describe_structure, tree.children()))
    return f"{_type_name(kind)}<{_describe(fixed)}>({children})"


def _describe(value: Any) -> str:
    if isinstance(value, HasSource):
        if not isinstance(value.text, str) or " at 0x" in value.text or "callback" in value.text:
            raise NotCacheable
        return f"{_type_name(type(value))}: {value.text}"
    if isinstance(value, PLAIN_TYPES):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, type):
        return _type_name(value)
    if isinstance(value, types.FunctionType):
        return _qualified_name(value)
    return f"{_type_name(type(value))}({','.join(_describe_fields(value))})"


def _describe_fields(value: Any) -> Iterator[str]:
    if isinstance(value, tuple | list):
        yield from map(_describe, value)
    elif isinstance(value, dict):
        yield from (f"{_describe(key)}={_describe(each)}" for key, each in value.items())
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
    """Where in the package a class or function is; others may change without anybody noticing."""
    if not thing.__module__.startswith("galapax.") or "<" in thing.__qualname__:
        raise NotCacheable
    return f"{thing.__module__}.{thing.__qualname__}"
