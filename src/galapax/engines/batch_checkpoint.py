"""Checkpoint protocol: the state needed to resume a killed run; storage/checkpoint.py implements it.

A task is computed in batches, one after the other, each by a call of `run_batch`; all else follows from their outcomes.
So a checkpoint holds the outcomes of the finished batches and the state of the present one: resuming returns the
outcomes in the same order and restores the present batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from galapax.core.errors import InputError
from galapax.core.evaluation import Population
from galapax.engines.outcome import Outcome, Track


class FinishedBatch(NamedTuple):
    """The outcome of a batch whose runs have all ended."""

    outcome: Outcome
    taken: dict[int, list[Population]]  # its snapshots


class BatchCheckpoint(NamedTuple):
    """The state of a batch between two generations; a list has an entry for each of its slices."""

    made: int  # generations
    carries: list[list[np.ndarray]]  # the arrays of each carry, in order
    tracks: list[Track]
    history: list[np.ndarray | None]  # rows (made, columns, S)
    taken: dict[int, list[Population]]
    box: Any = None  # what a black box remembers
    runs: int = 0  # of the batch
    width: int = 0  # runs of a slice: on an accelerator it depends on the memory that was free, and so do the last bits


class CheckpointWriter(Protocol):
    """Saves the state of a task's batches so that a killed run can resume bit for bit."""

    def begin_batch(self) -> FinishedBatch | BatchCheckpoint | None:
        """Return what the checkpoint knows of the batch that begins now."""

    def sizes(self) -> tuple[int, int] | None:
        """Return the runs of the batch that begins next and the width of its slices, if the checkpoint has it."""

    def restart_batch(self) -> None:
        """Begin the present batch once more, with fewer runs."""

    def due(self, made: int) -> bool:
        """Return whether to save after `made` generations."""

    def save(self, standing: BatchCheckpoint) -> None:
        """Save the state of the present batch."""

    def finish_batch(self, done: FinishedBatch) -> None:
        """Record the outcome of the present batch, which ended by its own rules."""


def arrays_to_host(carry: Any) -> list[np.ndarray]:
    """The arrays of a carry, copied from the device."""
    return [np.array(leaf) for leaf in jax.device_get(jax.tree.leaves(carry))]


def restore_arrays(
    carry: Any, arrays: list[np.ndarray], device: jax.Device | jax.sharding.Sharding | None = None
) -> Any:
    """A carry of the same structure, or of shapes alone, with the arrays that were kept. place: where it is."""
    leaves, structure = jax.tree.flatten(carry)
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(array.shape, array.dtype) for array in arrays]:
        raise InputError(
            "the checkpoint does not match this run: its arrays have different sizes. It was written by another "
            "version or with other settings."
        )
    return jax.tree.unflatten(structure, jax.device_put(arrays, device))
