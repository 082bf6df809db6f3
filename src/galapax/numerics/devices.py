"""Devices, platforms, cores, free memory and processes: only this module asks JAX or the system about them.

In a run of several processes `jax.distributed.initialize` connects them before anything is computed. All make the same
calls in the same order; batches of runs are divided among them, and they exchange small arrays of the host.
"""

from __future__ import annotations

import math
import os
import pickle
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import core, xla_bridge  # JAX has no public way to ask whether it has begun, or is tracing
from jax.core import Tracer
from jax.experimental import multihost_utils

from galapax.core.errors import InputError, LostProcess

CONFIG: Any = jax.config  # its settings have no types
GPU_PLATFORMS = {"cuda", "rocm", "gpu"}


def default_device() -> jax.Device:
    """Return the device that computations run on now: that of `jax.default_device`, or else JAX's first."""
    configured = CONFIG.jax_default_device  # None, a Device, or the name of a platform
    if isinstance(configured, str):
        return jax.devices(configured)[0]
    return configured if configured is not None else jax.devices()[0]


def local_devices() -> list[jax.Device]:
    """Return the devices that an ensemble is sharded over: all of this process's, unless `jax.default_device`
    is set.
    """
    return [default_device()] if CONFIG.jax_default_device is not None else jax.local_devices()


MESH_AXIS = "rows"  # name of the only axis of a mesh


def make_mesh(count: int) -> jax.sharding.Mesh:
    """Build a one-dimensional mesh of the first `count` local devices."""
    return jax.sharding.Mesh(np.array(local_devices()[:count]), (MESH_AXIS,))


def platform() -> str:
    """Return the kind of device that programs are traced for: "cpu", "gpu" or "tpu"."""
    target = _target_platform.get()
    if target is not None:
        return target
    kind = default_device().platform
    return "gpu" if kind in GPU_PLATFORMS else kind


_target_platform: ContextVar[str | None] = ContextVar("written", default=None)


@contextmanager
def tracing_for(platform: str) -> Iterator[None]:
    """Trace programs as for a device of this kind, whatever the present one is."""
    token = _target_platform.set(platform)
    try:
        yield
    finally:
        _target_platform.reset(token)


def tracing_for_fused() -> bool:
    """Return whether JAX traces for the fused backend, which has intrinsics of its own for random numbers."""
    return _target_platform.get() is not None


def is_tracing() -> bool:
    """Return whether the caller is being traced by JAX."""
    clean = getattr(core, "trace_state_clean", None)
    if clean is not None and clean():  # quick; the other way sends a number to the device
        return False
    return isinstance(jax.device_put(np.float32(0)), Tracer)


def on_cpu() -> bool:
    return platform() == "cpu"


def device_name() -> str:
    """Return the device's name for tables."""
    return "CPU" if on_cpu() else default_device().device_kind


def compile_settings() -> tuple[Hashable, ...]:
    """Return what a compiled program depends on besides its function and arguments: platform, device and float64."""
    return platform(), CONFIG.jax_default_device, bool(CONFIG.jax_enable_x64)


def capture_jax_config() -> Callable[[], AbstractContextManager[None]]:
    """Return a context manager factory with which another thread computes under this thread's JAX configuration."""
    x64, device = bool(CONFIG.jax_enable_x64), CONFIG.jax_default_device

    @contextmanager
    def use_jax_config() -> Iterator[None]:
        with jax.enable_x64(x64), jax.default_device(device):
            yield

    return use_jax_config


SYSTEM_FILES_MAX_AGE = 0.1  # seconds before files of the system are read again: reading takes as long as a short run
_cached_memory = (-math.inf, 0)  # when it was read, and bytes
_cached_cores = (-math.inf, 0)


def count_cores() -> int:
    """Count the cores that this process may use, by its affinity and its control groups."""
    global _cached_cores
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    now = time.monotonic()
    if now - _cached_cores[0] > SYSTEM_FILES_MAX_AGE:
        _cached_cores = now, min(_cgroup_cores(), default=usable)
    return max(1, min(usable, _cached_cores[1]))


def _cgroup_cores(root: str = "/sys/fs/cgroup", cgroup_file: str = "/proc/self/cgroup") -> list[int]:
    """Return the CPU quota, in cores, of each control group around the process that has one."""
    limits = []
    for controllers, path in _read_cgroups(cgroup_file):
        folders = [folder for folder in path.split("/") if folder not in ("", "..")]
        for depth in range(len(folders) + 1):
            if not controllers:
                quota = _read_words("/".join([root, *folders[:depth], "cpu.max"]))
            elif "cpu" in controllers.split(","):
                path_prefix = "/".join([root, "cpu", *folders[:depth]])
                quota = _read_words(f"{path_prefix}/cpu.cfs_quota_us") + _read_words(f"{path_prefix}/cpu.cfs_period_us")
            else:
                continue
            if len(quota) == 2 and all(word.isdigit() for word in quota):  # "max" and -1 are no limit
                limits.append(max(1, round(int(quota[0]) / max(1, int(quota[1])))))
    return limits


def free_memory() -> int:
    """Return the bytes that are free on the device."""
    device = default_device()
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return host_memory()


def host_memory() -> int:
    """Return the bytes of host memory that this process can still allocate, by the machine and its control groups."""
    global _cached_memory
    now = time.monotonic()
    if now - _cached_memory[0] > SYSTEM_FILES_MAX_AGE:
        _cached_memory = now, min(_machine_memory(), *_cgroup_memory(), 2**62)
    return _cached_memory[1]


def _machine_memory() -> int:
    try:  # what the system would give, files in its cache included; free pages alone are far fewer
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = {name: value for name, _, value in (line.partition(":") for line in lines)}
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * 2**30


def _cgroup_memory(root: str = "/sys/fs/cgroup", cgroup_file: str = "/proc/self/cgroup") -> list[int]:
    """Return the free bytes of each control group around the process that has a limit."""
    available = []
    for controllers, path in _read_cgroups(cgroup_file):
        if controllers not in ("", "memory"):
            continue
        folder, names = (
            (f"{root}/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
            if controllers
            else (root, ("memory.max", "memory.current", "inactive_file"))
        )
        folders = [folder for folder in path.split("/") if folder not in ("", "..")]
        for depth in range(len(folders) + 1):
            group = "/".join([folder, *folders[:depth]])
            limit, used = (_read_number(f"{group}/{name}") for name in names[:2])
            if limit is not None and used is not None:
                available.append(max(0, limit - used + (_read_number(f"{group}/memory.stat", names[2]) or 0)))
    return available


def _read_cgroups(cgroup_file: str) -> list[tuple[str, str]]:
    """Return (controllers, path) of each control group that the process is in."""
    try:
        with open(cgroup_file, encoding="utf-8") as lines:
            entries = [line.rstrip("\n").split(":", 2) for line in lines]
    except OSError:
        return []
    return [(group[1], group[2]) for group in entries if len(group) == 3]


def _read_words(file: str) -> list[str]:
    try:
        with open(file, encoding="ascii") as lines:
            return lines.read().split()
    except (OSError, ValueError):
        return []


def _read_number(file: str, field: str | None = None) -> int | None:
    """Read the number in a file, or the one after `field` at the start of a line; None if there is none."""
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


def _remember_fork() -> None:
    global _forked
    _forked = is_jax_initialized()


def is_jax_initialized() -> bool:
    """Return whether JAX has initialised its backends, and with them threads, in this process or the one it was forked
    from.
    """
    return bool(xla_bridge.backends_are_initialized())


def is_forked() -> bool:
    """Return whether this process was forked after JAX started threads; they do not exist here, and waiting for them
    hangs.
    """
    return _forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_remember_fork)


MAX_CACHED_TRANSFER_BYTES = 1024  # of one array; larger ones are sent each time
MAX_CACHED_ARRAYS = 1024  # least recently used ones are dropped


def device_put_cached(tree: object, device: jax.Device | jax.sharding.Sharding | None = None) -> Any:
    """Put a tree of arrays onto a device, like `jax.device_put`; the arrays must not be donated, as they are shared."""
    leaves, structure = jax.tree.flatten(tree)
    settings = compile_settings()
    out: list[jax.Array | None] = [None] * len(leaves)
    uncached = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, np.ndarray | np.generic) and leaf.nbytes <= MAX_CACHED_TRANSFER_BYTES:
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
def _put_array(
    content: bytes,
    dtype: np.dtype,
    shape: tuple[int, ...],
    device: jax.Device | jax.sharding.Sharding | None,
    settings: Hashable,
) -> jax.Array:
    return jax.device_put(np.frombuffer(content, dtype).reshape(shape), device)


@lru_cache(maxsize=MAX_CACHED_ARRAYS)
def _put_number(
    kind: str, value: Any, device: jax.Device | jax.sharding.Sharding | None, settings: Hashable
) -> jax.Array:
    return jax.device_put(float.fromhex(value) if kind == "float" else value, device)


CONNECT_TIMEOUT = 300  # seconds to wait for the other processes
HEARTBEAT_TIMEOUT = 30  # seconds of silence after which a process counts as lost


def is_distributed() -> bool:
    """Return whether this process is one of several that compute together."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def process_count() -> int:
    return jax.process_count() if is_distributed() else 1


def process_index() -> int:
    """Return the number of this process, from 0. Process 0 writes files and shows progress."""
    return jax.process_index() if is_distributed() else 0


def connect(coordinator: str | None, process_id: int | None, processes: int | None) -> None:
    """Connect to the other processes. coordinator: "host:port" of process 0; "auto" asks SLURM or the MPI launcher for
    everything.
    """
    if coordinator is None:
        if process_id is not None or processes is not None:
            raise InputError("process-id and num-processes need the coordinator, host:port of process 0.")
        return
    options: dict[str, Any] = {}
    if coordinator != "auto":
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdigit():
            raise InputError(f'the coordinator must be host:port of process 0, or "auto"; got {coordinator!r}.')
        if process_id is None or processes is None or not 0 <= process_id < processes:
            raise InputError(
                f"with a coordinator, give process-id and num-processes, such as 0 and 4; "
                f"got {process_id} and {processes}."
            )
        options = {"coordinator_address": coordinator, "process_id": process_id, "num_processes": processes}
    elif process_id is not None or processes is not None:
        raise InputError('with the coordinator "auto", leave process-id and num-processes out.')
    try:
        jax.distributed.initialize(
            **options, initialization_timeout=CONNECT_TIMEOUT, heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT
        )
    except (ValueError, RuntimeError) as error:
        raise InputError(f"the processes could not be connected: {str(error).splitlines()[0]}") from error


class ProcessShard:
    """The rows that this process computes, of all that the processes compute together.

    sizes: rows of each slice; a slice belongs to one process, and neighbours stay together.
    alone: this process takes them all.
    """

    def __init__(self, sizes: Sequence[int], alone: bool = False) -> None:
        processes, me = (1, 0) if alone else (process_count(), process_index())
        ends = [len(sizes) * (p + 1) // processes for p in range(processes)]
        starts = [0, *ends[:-1]]
        self.slices = range(starts[me], ends[me])
        self.counts = [sum(sizes[a:b]) for a, b in zip(starts, ends, strict=True)]  # rows of each process
        self.first, self.local, self.total = sum(self.counts[:me]), self.counts[me], sum(sizes)

    @property
    def is_distributed(self) -> bool:
        return len(self.counts) > 1

    def gather(self, pieces: list[np.ndarray]) -> np.ndarray:
        """Gather the rows of all processes, in their order, from the pieces of this one."""
        rows = np.concatenate(pieces)
        if not self.is_distributed:
            return rows
        dtype = rows.dtype
        rows = rows.astype(np.uint8) if dtype.kind == "b" else rows
        padded = np.zeros((max(self.counts), *rows.shape[1:]), rows.dtype)
        padded[: len(rows)] = rows
        gathered = _all_gather(padded)
        return np.concatenate([block[:n] for block, n in zip(gathered, self.counts, strict=True)]).astype(dtype)


Item = TypeVar("Item")


def all_gather_object(value: Item) -> list[Item]:
    """Gather a pickled object from every process, in their order. The processes run one program and trust each
    other.
    """
    if not is_distributed():
        return [value]
    payload = np.frombuffer(pickle.dumps(value), np.uint8)
    sizes = _all_gather(np.array([len(payload)], np.int32))[:, 0]
    capacity = 1 << int(sizes.max() - 1).bit_length()  # a power of two: each size is a program
    padded = np.zeros(capacity, np.uint8)
    padded[: len(payload)] = payload
    gathered = _all_gather(padded)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(gathered, sizes, strict=True)]


def _all_gather(array: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(multihost_utils.process_allgather(array))
    except (ValueError, RuntimeError) as error:  # of a connection that was closed
        raise LostProcess(
            "another process of this run has ended, so this one cannot go on: start all of them again; with a "
            f"checkpoint, resume=True goes on from the last one. ({str(error).splitlines()[0][:200]})"
        ) from None


# --- threads ----------------------------------------------------------------------------------------------------------

Output = TypeVar("Output")
_pools_lock = threading.Lock()
_pools: dict[tuple[str, int], ThreadPoolExecutor] = {}


def map_on_threads(
    count: int, work: Callable[[Item], Output], items: Iterable[Item], name: str = "galapax"
) -> list[Output]:
    """Return [work(item) for item in items], computed by at most `count` threads; the first error ends it.

    name: of the thread pool. Work that calls this function needs a pool of another name, or all threads could wait.
    """
    all_items = list(items)
    if count == 1 or len(all_items) < 2:
        return [work(item) for item in all_items]
    settings = capture_jax_config()
    queue = iter(enumerate(all_items))
    results: dict[int, Output] = {}
    queue_lock, failed = threading.Lock(), threading.Event()

    def run_worker() -> None:
        with settings():
            while not failed.is_set():
                with queue_lock:
                    entry = next(queue, None)
                if entry is None:
                    return
                try:
                    results[entry[0]] = work(entry[1])
                except BaseException:
                    failed.set()
                    raise

    pool = _pool(name, count)
    futures = [pool.submit(run_worker) for _ in range(min(count, len(all_items)))]
    try:
        wait(futures)
    finally:
        failed.set()  # if Ctrl-C ended the wait
    for future in futures:
        future.result()
    return [results[i] for i in range(len(all_items))]


def _pool(name: str, count: int) -> ThreadPoolExecutor:
    """Return a thread pool, which is kept: starting threads takes longer than a short chunk."""
    with _pools_lock:
        if (name, count) not in _pools:
            _pools[name, count] = ThreadPoolExecutor(count, name)
        return _pools[name, count]
