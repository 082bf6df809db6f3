"""What is kept of runs so that they can go on after a crash; who keeps it is in storage/, see core/hooks.py.

A task is computed in batches, one after the other, each by a call of `drive`; what lies between them follows from their
outcomes. So it is enough to keep the outcomes of the batches that are over, and where the present one stands: going on
means to hand out the outcomes in the same order, and to put the present batch where it stood.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from galapax.core.errors import InputError
from galapax.core.evaluation import Population
from galapax.engines.outcome import Outcome, Track


class Done(NamedTuple):
    """A batch that is over."""

    outcome: Outcome
    taken: dict[int, list[Population]]  # its snapshots


class Standing(NamedTuple):
    """A batch between two generations; a list has an entry for each of its slices."""

    made: int  # generations
    carries: list[list[np.ndarray]]  # the arrays of each carry, in order
    tracks: list[Track]
    history: list[np.ndarray | None]  # rows (made, columns, S)
    taken: dict[int, list[Population]]
    box: Any = None  # what a black box remembers
    runs: int = 0  # of the batch
    width: int = 0  # runs of a slice: on an accelerator it depends on the memory that was free, and so do the last bits


class Journal(Protocol):
    """Keeps where the batches of a task stand."""

    def enter(self) -> Done | Standing | None:
        """What is known of the batch that begins now."""

    def sizes(self) -> tuple[int, int] | None:
        """How many runs the batch that begins next, and each of its slices, had, if it was begun before."""

    def again(self) -> None:
        """The present batch is begun once more, with fewer runs."""

    def due(self, made: int) -> bool:
        """Whether to note where it stands after `made` generations."""

    def note(self, standing: Standing) -> None:
        """Where the present batch stands."""

    def leave(self, done: Done) -> None:
        """The present batch is over by its own rules."""


def arrays_of(carry: Any) -> list[np.ndarray]:
    """The arrays of a carry, copied from the device."""
    return [np.array(leaf) for leaf in jax.device_get(jax.tree.leaves(carry))]


def with_arrays(carry: Any, kept: list[np.ndarray], place: jax.Device | jax.sharding.Sharding | None = None) -> Any:
    """A carry of the same structure, or of shapes alone, with the arrays that were kept. place: where it is."""
    leaves, structure = jax.tree.flatten(carry)
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(own.shape, own.dtype) for own in kept]:
        raise InputError(
            "the checkpoint does not match this run: its arrays have different sizes. It was written by another "
            "version or with other settings."
        )
    return jax.tree.unflatten(structure, jax.device_put(kept, place))
