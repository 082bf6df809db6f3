"""Several processes that compute one run together, on one machine or many: who they are, and what they tell each other.

They are started by `jax.distributed.initialize` before anything is computed. Every one makes the same calls in the same
order; slices of runs are dealt out among them, and what they say to each other are small arrays of the host.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from galapax.core.errors import InputError, LostProcess

START_SECONDS = 300  # to wait for the others
BEAT_SECONDS = 30  # after which a process that is not heard of counts as lost


def together() -> bool:
    """Whether this process is one of several."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def count() -> int:
    return jax.process_count() if together() else 1


def index() -> int:
    """The number of this process, from 0. Process 0 writes files and shows progress."""
    return jax.process_index() if together() else 0


def start(coordinator: str | None, number: int | None, processes: int | None) -> None:
    """Join the others. coordinator: "host:port" of process 0; "auto" asks SLURM or the MPI launcher for everything."""
    if coordinator is None:
        if number is not None or processes is not None:
            raise InputError("process-id and num-processes need the coordinator, host:port of process 0.")
        return
    options: dict[str, Any] = {}
    if coordinator != "auto":
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdigit():
            raise InputError(f'the coordinator must be host:port of process 0, or "auto"; got {coordinator!r}.')
        if number is None or processes is None or not 0 <= number < processes:
            raise InputError(
                f"with a coordinator, give process-id and num-processes, such as 0 and 4; got {number} and {processes}."
            )
        options = {"coordinator_address": coordinator, "process_id": number, "num_processes": processes}
    elif number is not None or processes is not None:
        raise InputError('with the coordinator "auto", leave process-id and num-processes out.')
    try:
        jax.distributed.initialize(
            **options, initialization_timeout=START_SECONDS, heartbeat_timeout_seconds=BEAT_SECONDS
        )
    except (ValueError, RuntimeError) as error:
        raise InputError(f"the processes could not be connected: {str(error).splitlines()[0]}") from error


class Share:
    """Which of all rows are this process's.

    sizes: rows of the pieces that all processes share, each of which one process takes; neighbours go together.
    alone: this process takes them all.
    """

    def __init__(self, sizes: Sequence[int], alone: bool = False) -> None:
        processes, me = (1, 0) if alone else (count(), index())
        ends = [len(sizes) * (p + 1) // processes for p in range(processes)]
        starts = [0, *ends[:-1]]
        self.pieces = range(starts[me], ends[me])
        self.counts = [sum(sizes[a:b]) for a, b in zip(starts, ends, strict=True)]  # rows of each process
        self.first, self.own, self.total = sum(self.counts[:me]), self.counts[me], sum(sizes)

    @property
    def shared(self) -> bool:
        return len(self.counts) > 1

    def gather(self, own: list[np.ndarray]) -> np.ndarray:
        """The rows of all processes in order, from this one's."""
        rows = np.concatenate(own)
        if not self.shared:
            return rows
        kind = rows.dtype
        rows = rows.astype(np.uint8) if kind.kind == "b" else rows
        padded = np.zeros((max(self.counts), *rows.shape[1:]), rows.dtype)
        padded[: len(rows)] = rows
        every = _all_gather(padded)
        return np.concatenate([part[:n] for part, n in zip(every, self.counts, strict=True)]).astype(kind)


def tell_all(value: Any) -> list[Any]:
    """What every process has to say, in their order. The processes are parts of one program and trust each other."""
    if not together():
        return [value]
    told = np.frombuffer(pickle.dumps(value), np.uint8)
    sizes = _all_gather(np.array([len(told)], np.int32))[:, 0]
    room = 1 << int(sizes.max() - 1).bit_length()  # few sizes, as each is a program
    padded = np.zeros(room, np.uint8)
    padded[: len(told)] = told
    every = _all_gather(padded)
    return [pickle.loads(own[:size].tobytes()) for own, size in zip(every, sizes, strict=True)]


def _all_gather(array: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(multihost_utils.process_allgather(array))
    except (ValueError, RuntimeError) as error:  # of a connection that was closed
        raise LostProcess(
            "another process of this run has ended, so this one cannot go on: start all of them again; with a "
            f"checkpoint, resume=True goes on from the last one. ({str(error).splitlines()[0][:200]})"
        ) from None
