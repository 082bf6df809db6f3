"""Multi-process runs with `jax.distributed`: process indices, shards of rows, and exchange of host objects.

The processes are connected by `jax.distributed.initialize` before anything is computed. All make the same calls in the
same order; batches of runs are divided among them, and they exchange small arrays of the host.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from galapax.core.errors import InputError, LostProcess

CONNECT_TIMEOUT = 300  # seconds to wait for the other processes
HEARTBEAT_TIMEOUT = 30  # seconds of silence after which a process counts as lost


def is_distributed() -> bool:
    """Whether this process is one of several that compute together."""
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

    sizes: rows of each batch; a batch belongs to one process, and neighbours stay together.
    alone: this process takes them all.
    """

    def __init__(self, sizes: Sequence[int], alone: bool = False) -> None:
        processes, me = (1, 0) if alone else (process_count(), process_index())
        ends = [len(sizes) * (p + 1) // processes for p in range(processes)]
        starts = [0, *ends[:-1]]
        self.batches = range(starts[me], ends[me])
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


def all_gather_object(value: Any) -> list[Any]:
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
