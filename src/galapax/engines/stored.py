"""Compiled programs on disk, found by the next process without tracing or compiling anything.

JAX's own cache is asked once a program has been traced and lowered, and that is most of what a short run waits for.
Here a program is known by what goes into it: the versions of galapax and JAX, the machine, the function and its fixed
arguments, the settings of the algorithm, the text of the user's formula, and the kinds of all arrays. A program that
cannot be named so (an algorithm of the user's own, an objective that calls back into Python) is not kept.

A file holds machine code and is loaded only from a folder that nobody but its owner can write to. It is checked before
use; one that is damaged or does not load counts as absent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import os
import pickle
import platform
import secrets
import threading
import types
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jaxlib
import jaxlib.lapack
import numpy as np
from jax.experimental import serialize_executable

from galapax.numerics import cache, devices, lapack
from galapax.version import __version__

MARK = b"galapax program 1\n"
SUFFIX = ".program"
LIMIT_MIB = 1024.0  # of files; the least recently used go first
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic, enum.Enum)


class _Seen(threading.local):
    hits = 0  # programs that JAX has found in its own cache, in this thread


_seen = _Seen()


def _note(event: str, **facts: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _seen.hits += 1


jax.monitoring.register_event_listener(_note)


def hits() -> int:
    """How many programs JAX has taken from its own cache in this thread: such a program cannot be written again (on a
    CPU it would not find its own functions).
    """
    return _seen.hits


class Unnamed(Exception):
    """Something that no name can be given which means the same in another process."""


@runtime_checkable
class Textual(Protocol):
    """An objective that is known by its text."""

    @property
    def text(self) -> str: ...


def name_of(function: Any, fixed: Any, arguments: Any, rest: Any) -> str | None:
    """The name of a program's file; None where it has none. rest: what else tells programs apart, as plain values.

    With several devices, of one process or of many, there is none: JAX would load a program for all of them.
    """
    if jax.device_count() > 1:
        return None
    try:
        parts = [_surroundings(), _named(function), _named(fixed), _named(rest)]
        leaves, tree = jax.tree.flatten(arguments)
        parts += [_shape_of(tree), *map(_kind, leaves)]
    except Unnamed:
        return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def load(name: str, arguments: Any) -> tuple[jax.stages.Compiled, tuple[int, int]] | None:
    """The program of that name, for arguments like these, and what was saved with it."""
    folder = _folder()
    if folder is None:
        return None
    try:
        payload, out_tree, sizes, calls_lapack = _read(folder, name)
        if calls_lapack:
            _ready_lapack()
        in_tree = jax.tree.structure((arguments, {}))
        compiled = serialize_executable.deserialize_and_load(payload, in_tree, out_tree)
    except Exception:  # whatever is wrong with it, compiling mends it
        return None
    return compiled, sizes


def noted(name: str) -> Any:
    """What was kept under a name besides programs; None if there is nothing."""
    folder = _folder()
    try:
        return None if folder is None else _read(folder, name)
    except Exception:
        return None


def note(name: str, value: Any) -> None:
    """Keep a plain value for other processes, where that is possible."""
    folder = _folder()
    if folder is not None:
        _write(folder, name, lambda: value)


def _read(folder: Path, name: str) -> Any:
    path = folder / f"{name}{SUFFIX}"
    content = path.read_bytes()
    head, body = content[: len(MARK) + 32], content[len(MARK) + 32 :]
    if head != MARK + hashlib.sha256(body).digest():
        raise ValueError("damaged")
    os.utime(path)
    return pickle.loads(body)


def _write(folder: Path, name: str, value: Callable[[], Any]) -> None:
    part = folder / f"{secrets.token_hex(8)}.part"
    try:
        body = pickle.dumps(value())
        part.write_bytes(MARK + hashlib.sha256(body).digest() + body)
        part.replace(folder / f"{name}{SUFFIX}")
        _make_room(folder)
    except Exception:  # a full disk, a program that cannot be written
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def save(name: str, compiled: jax.stages.Compiled, sizes: tuple[int, int]) -> None:
    """Keep a program for other processes, where that is possible; nothing depends on it. sizes: of the program and of
    its working memory.
    """
    folder = _folder()
    if folder is None:
        return

    def content() -> Any:
        payload, _, out_tree = serialize_executable.serialize(compiled)
        return payload, out_tree, sizes, "lapack_" in (compiled.as_text() or "")

    _write(folder, name, content)


@lru_cache(maxsize=1)
def _ready_lapack() -> None:
    """JAX tells its LAPACK calls where the routines are when it first lowers one; a program that was loaded would jump
    to nowhere.
    """
    lapack.preload()
    try:
        jaxlib.lapack.prepare_lapack_call("potrf_ffi", np.float32)
    except Exception:  # of another version: what it does is what lowering does, in a tenth of the time
        jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), jnp.float32))


def _folder() -> Path | None:
    """Where programs are kept; made if it is not there, and None unless it is this user's alone."""
    kept = cache.folder()
    return None if kept is None else _private(kept / "programs")


@lru_cache(maxsize=8)
def _private(folder: Path) -> Path | None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022):
        return None
    return folder


@lru_cache(maxsize=8)
def _make_room(folder: Path) -> None:
    """Remove the files that were not used for longest, once in a process, as far as they are too much together."""
    limit = float(os.environ.get("GALAPAX_CACHE_MIB", LIMIT_MIB)) * 2**20
    found = sorted(((file, file.stat()) for file in folder.iterdir()), key=lambda both: -both[1].st_mtime)
    total = 0
    for file, facts in found:
        total += facts.st_size
        if total > limit:
            file.unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _own_code() -> str:
    """Changes when any file of the package does."""
    root = Path(__file__).parents[1]
    facts = sorted((str(f.relative_to(root)), f.stat().st_size, f.stat().st_mtime_ns) for f in root.rglob("*.py"))
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@lru_cache(maxsize=1)
def processor() -> str:
    """The kind of processor, as compiled code uses all it can do."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0].splitlines()
        return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
    return platform.processor()


def _surroundings() -> str:
    """What every program depends on."""
    flags = {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")}
    config = {
        k: v for k, v in jax.config.values.items() if not any(word in k for word in ("cache", "log", "traceback"))
    }
    versions = (__version__, jax.__version__, jaxlib.__version__, platform.platform())
    where = (devices.platform(), devices.default_device().device_kind, len(jax.local_devices()), jax.process_count())
    return repr((_own_code(), processor(), versions, sorted(flags.items()), sorted(config.items(), key=str), where))


def kind_of(leaf: Any) -> tuple[Hashable, ...]:
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


def _kind(leaf: Any) -> str:
    if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1:
        raise Unnamed  # loading programs for several devices was not tried
    return repr(kind_of(leaf))


def _shape_of(tree: Any) -> str:
    """The structure of arguments, and what is fixed in it."""
    node = tree.node_data()
    if node is None:
        return "*" if tree.num_leaves else "None"
    kind, fixed = node
    children = ",".join(map(_shape_of, tree.children()))
    return f"{_type_name(kind)}<{_named(fixed)}>({children})"


def _named(value: Any) -> str:
    if isinstance(value, Textual):
        if not isinstance(value.text, str) or " at 0x" in value.text or "callback" in value.text:
            raise Unnamed
        return f"{_type_name(type(value))}: {value.text}"
    if isinstance(value, PLAIN):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, type):
        return _type_name(value)
    if isinstance(value, types.FunctionType):
        return _of_ours(value)
    return f"{_type_name(type(value))}({','.join(_parts(value))})"


def _parts(value: Any) -> Iterator[str]:
    if isinstance(value, tuple | list):
        yield from map(_named, value)
    elif isinstance(value, dict):
        yield from (f"{_named(key)}={_named(each)}" for key, each in value.items())
    elif dataclasses.is_dataclass(value):
        yield from (f"{field.name}={_named(getattr(value, field.name))}" for field in dataclasses.fields(value))
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    else:
        raise Unnamed


def _type_name(kind: type) -> str:
    if kind.__module__ in ("builtins", "numpy", "collections"):
        return f"{kind.__module__}.{kind.__qualname__}"
    return _of_ours(kind)


def _of_ours(thing: Any) -> str:
    """Where in the package a class or function is; others may change without anybody noticing."""
    if not thing.__module__.startswith("galapax.") or "<" in thing.__qualname__:
        raise Unnamed
    return f"{thing.__module__}.{thing.__qualname__}"
