"""Every question about the device that computations run on, and about memory."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax._src import core, xla_bridge  # JAX has no public way to ask whether it has begun, or is tracing
from jax.core import Tracer

CONFIG: Any = jax.config  # its settings have no types
GPUS = {"cuda", "rocm", "gpu"}


def device() -> jax.Device:
    """The device that computations run on now: that of `jax.default_device`, or else JAX's first."""
    chosen = CONFIG.jax_default_device  # None, a Device, or the name of a platform
    if isinstance(chosen, str):
        return jax.devices(chosen)[0]
    return chosen if chosen is not None else jax.devices()[0]


def several() -> list[jax.Device]:
    """The devices that the slices of an ensemble are spread over: all of this process's, unless one was chosen."""
    return [device()] if CONFIG.jax_default_device is not None else jax.local_devices()


ROWS = "rows"  # the only axis of a mesh


def mesh(count: int) -> jax.sharding.Mesh:
    """The first of several devices in a row."""
    return jax.sharding.Mesh(np.array(several()[:count]), (ROWS,))


def platform() -> str:
    """Its kind: "cpu", "gpu" or "tpu"."""
    written = _written.get()
    if written is not None:
        return written
    found = device().platform
    return "gpu" if found in GPUS else found


_written: ContextVar[str | None] = ContextVar("written", default=None)


@contextmanager
def written_for(kind: str) -> Iterator[None]:
    """Programs that are traced here are written as for a device of this kind, whatever the present one is."""
    token = _written.set(kind)
    try:
        yield
    finally:
        _written.reset(token)


def whole() -> bool:
    """Whether a whole run becomes one kernel, which has C text of its own for what is drawn."""
    return _written.get() is not None


def tracing() -> bool:
    """Whether this is called by a function that JAX is tracing."""
    clean = getattr(core, "trace_state_clean", None)
    if clean is not None and clean():  # quick; the other way sends a number to the device
        return False
    return isinstance(jax.device_put(np.float32(0)), Tracer)


def on_cpu() -> bool:
    return platform() == "cpu"


def name() -> str:
    """What it is called in tables."""
    return "CPU" if on_cpu() else device().device_kind


def settings() -> tuple[Any, ...]:
    """What a compiled program depends on besides its function and arguments: where it runs, and whether in float64."""
    return platform(), CONFIG.jax_default_device, bool(CONFIG.jax_enable_x64)


def surroundings() -> Callable[[], AbstractContextManager[None]]:
    """What another thread enters to compute as this one does: JAX keeps these settings for each thread."""
    wide, where = bool(CONFIG.jax_enable_x64), CONFIG.jax_default_device

    @contextmanager
    def entered() -> Iterator[None]:
        with jax.enable_x64(wide), jax.default_device(where):
            yield

    return entered


FRESH = 0.1  # seconds for which the system's files are not read again, as that takes as long as a short run
_memory = (-math.inf, 0)  # when it was asked for, and the answer
_quota = (-math.inf, 0)


def cores() -> int:
    """How many cores this process may use: of the machine, and of the control group that it is in."""
    global _quota
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    now = time.monotonic()
    if now - _quota[0] > FRESH:
        _quota = now, min(_quotas(), default=found)
    return max(1, min(found, _quota[1]))


def _quotas(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> list[int]:
    """Cores that each group which the process is in, and each one around it, allows."""
    allowed = []
    for controllers, path in _groups(own):
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            if not controllers:
                numbers = _words_in("/".join([root, *parts[:depth], "cpu.max"]))
            elif "cpu" in controllers.split(","):
                place = "/".join([root, "cpu", *parts[:depth]])
                numbers = _words_in(f"{place}/cpu.cfs_quota_us") + _words_in(f"{place}/cpu.cfs_period_us")
            else:
                continue
            if len(numbers) == 2 and all(word.isdigit() for word in numbers):  # "max" and -1 are no limit
                allowed.append(max(1, round(int(numbers[0]) / max(1, int(numbers[1])))))
    return allowed


def free_memory() -> int:
    """Bytes that can still be had on the device."""
    here = device()
    stats = here.memory_stats() if here.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return host_memory()


def host_memory() -> int:
    """Bytes that this process can still have: of the machine, and of the control group that it is in."""
    global _memory
    now = time.monotonic()
    if now - _memory[0] > FRESH:
        _memory = now, min(_of_the_machine(), *_of_its_groups(), 2**62)
    return _memory[1]


def _of_the_machine() -> int:
    try:  # what the system would give, files in its cache included; free pages alone are far fewer
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = {name: value for name, _, value in (line.partition(":") for line in lines)}
        return int(found["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * 2**30


def _of_its_groups(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> list[int]:
    """What each group that the process is in, and each one around it, still allows."""
    left = []
    for controllers, path in _groups(own):
        if controllers not in ("", "memory"):
            continue
        folder, names = (
            (f"{root}/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
            if controllers
            else (root, ("memory.max", "memory.current", "inactive_file"))
        )
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            place = "/".join([folder, *parts[:depth]])
            limit, used = (_number_in(f"{place}/{name}") for name in names[:2])
            if limit is not None and used is not None:
                left.append(max(0, limit - used + (_number_in(f"{place}/memory.stat", names[2]) or 0)))
    return left


def _groups(own: str) -> list[tuple[str, str]]:
    """(controllers, path) of each control group that the process is in."""
    try:
        with open(own, encoding="utf-8") as lines:
            found = [line.rstrip("\n").split(":", 2) for line in lines]
    except OSError:
        return []
    return [(group[1], group[2]) for group in found if len(group) == 3]


def _words_in(file: str) -> list[str]:
    try:
        with open(file, encoding="ascii") as lines:
            return lines.read().split()
    except (OSError, ValueError):
        return []


def _number_in(file: str, field: str | None = None) -> int | None:
    """The number in a file, or after a name at the start of one of its lines; None if there is none."""
    try:
        with open(file, encoding="ascii") as lines:
            for line in lines:
                words = line.split()
                if field is None or words[0] == field:
                    return int(words[-1])
    except (OSError, ValueError, IndexError):
        pass
    return None


_forked = False


def _note_fork() -> None:
    global _forked
    _forked = started()


def started() -> bool:
    """Whether JAX has set up its devices, and with them threads, in this process or the one that it was forked from."""
    return bool(xla_bridge.backends_are_initialized())


def forked() -> bool:
    """Whether this process was forked from one in which JAX had threads: they are not here, and waiting for them would
    never end.
    """
    return _forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
