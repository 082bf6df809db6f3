"""What a chunk of generations leaves: rows of history, and for the host a tally of each run."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from galapax.core.record import FAILED_COLUMN, HISTORY_FIRST_COLUMN, Record
from galapax.core.stop import RUNNING
from galapax.engines.search import REASON, Carry, Search

N_INTEGER_COLUMNS = 4  # parts of a Tally: whole numbers in the bits of a float, as one array is fetched faster than two


class ChunkSummary(NamedTuple):
    """What the host must know of each run after a chunk, (R,), so that the history itself need not leave the device."""

    made: Any  # generations
    failed: Any
    evaluations: Any
    reason: Any  # see core/stop.py
    best: Any
    violation: Any
    feasible_share: Any  # of the survivors; 1 without constraints
    hypervolume: Any  # NaN without a reference point

    def pack(self, dtype: Any) -> Array:
        whole = f"int{8 * dtype.itemsize}"
        counts = [lax.bitcast_convert_type(c.astype(whole), dtype) for c in self[:N_INTEGER_COLUMNS]]
        return jnp.stack([*counts, *self[N_INTEGER_COLUMNS:]])

    @staticmethod
    def unpack(rows: Any) -> ChunkSummary:
        """In NumPy, from what was packed (8, R)."""
        counts = rows[:N_INTEGER_COLUMNS].view(f"int{8 * rows.itemsize}")
        return ChunkSummary(*counts, *rows[N_INTEGER_COLUMNS:])


def summarize_chunk(search: Search, history: Array, n_generations: Any, carry: Carry) -> tuple[Array, Array]:
    """The rows of a chunk's history (g, columns, R) that are for the user, and its packed Tally.

    made: how many of the rows were made by all runs that did not finish. Rows that a finished run did not make have
    `active` 0; those beyond `made` are zeros.
    """
    dtype, columns = history.dtype, search.columns
    records = Record.unpack(history, columns, axis=1)
    if carry.frozen is None:  # the usual case in fewer kernels
        counts = jnp.sum(history[:, FAILED_COLUMN : FAILED_COLUMN + 2].astype(jnp.int32), axis=0, dtype=jnp.int32)
        row = lax.dynamic_index_in_dim(history, n_generations - 1, keepdims=False)
        n_generations, reason = jnp.broadcast_to(n_generations, counts[0].shape), jnp.full_like(counts[0], RUNNING)
    else:
        active = records.active > 0
        n_generations = jnp.sum(active, axis=0, dtype=jnp.int32)
        counts_active = jnp.where(active[:, None], history[:, FAILED_COLUMN : FAILED_COLUMN + 2], 0)
        counts = jnp.sum(counts_active.astype(jnp.int32), axis=0, dtype=jnp.int32)
        reason = carry.frozen.marks[:, REASON].astype(jnp.int32)
        last_index = jnp.broadcast_to(jnp.maximum(n_generations - 1, 0), (1, *history.shape[1:]))
        row = jnp.take_along_axis(history, last_index, axis=0)[0]
    last = Record.unpack(row, columns, axis=0)
    best = last.best[0]
    violation, feasible_share = last.violation, last.feasible_share
    if not columns.shape.constrained:
        violation, feasible_share = jnp.where(jnp.isfinite(best), 0.0, jnp.inf).astype(dtype), jnp.ones_like(best)
    hypervolume = jnp.full_like(best, jnp.nan) if last.hypervolume is None else last.hypervolume
    packed = ChunkSummary(
        n_generations, counts[0], counts[1], reason, best, violation, feasible_share, hypervolume
    ).pack(dtype)
    return history[:, HISTORY_FIRST_COLUMN:], packed
