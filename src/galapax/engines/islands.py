"""Migration between the islands of a run, which are rows of an ensemble like any others.

An island's best survivors come to another island as candidates and are evaluated there, so no algorithm knows of it.
Between two chunks the host carries them from slice to slice, wherever those are: on another thread, device or machine.
That takes a few numbers an island, and each island is computed as it would be without the others.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.algorithm import Algorithm, insert_immigrants
from galapax.core.island_model import Islands
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.engines.batch_checkpoint import BatchCheckpoint, FinishedBatch
from galapax.engines.host_loop import Slice
from galapax.engines.outcome import Track
from galapax.engines.programs import CompileTimer
from galapax.engines.search import REASON, Carry, Search, active_state, run_axes
from galapax.numerics import processes, random
from galapax.operators import migration


class Migration:
    """The migrations of a batch of runs, whose rows are in order of islands, then runs.

    share: which of the processes' slices these are, see numerics/processes.py.
    """

    def __init__(self, islands: Islands, seed: int, target: float, share: processes.ProcessShard) -> None:
        self.islands, self.seed, self.target, self.share = islands, seed, target, share
        self.lockstep = share.is_distributed

    def generations_until(self, made: int) -> int:
        """Generations until the next migration."""
        return self.islands.migrate_every - made % self.islands.migrate_every

    def is_due(self, made: int) -> bool:
        return made > 0 and made % self.islands.migrate_every == 0 and self.islands.count > 1

    def migrate(self, clock: CompileTimer, batches: list[Slice], made: int) -> None:
        """Send migrants between the islands, after generation `made`."""
        islands, number = self.islands, np.int32(made + 1)
        fixed = (islands.migrants, islands.send == "best")
        sent_by_batch = jax.device_get(
            [clock.call(_select_emigrants, fixed, batch.search, batch.keys, batch.carry, number) for batch in batches]
        )
        emigrants = self.share.gather([rows[batch.wanted] for rows, batch in zip(sent_by_batch, batches, strict=True)])
        leaving = emigrants.reshape(islands.count, -1, *emigrants.shape[1:])  # (islands, runs, m, d)
        source, rank = islands.routes(made // islands.migrate_every, self.seed)
        runs = np.arange(leaving.shape[1])
        arriving = leaving[source[:, None, :], runs[None, :, None], rank[:, None, :]].reshape(emigrants.shape)
        is_over = self._rows_of_finished_runs(batches)
        first_row = self.share.first
        for batch in batches:
            rows_here = np.minimum(
                first_row + np.arange(len(batch.cells)), first_row + len(batch.wanted) - 1
            )  # the last fills the slice up
            arguments = (batch.search, batch.keys, batch.carry, arriving[rows_here], is_over[rows_here], number)
            batch.carry = clock.call(_insert_immigrants, (islands.replace == "worst",), *arguments)
            first_row += len(batch.wanted)

    def local_part(self, checkpoint: FinishedBatch | BatchCheckpoint | None) -> FinishedBatch | BatchCheckpoint | None:
        if checkpoint is None or not self.share.is_distributed:
            return checkpoint
        pieces = self.share.batches
        snapshots = {g: populations[pieces.start : pieces.stop] for g, populations in checkpoint.taken.items()}
        if isinstance(checkpoint, FinishedBatch):
            rows = slice(self.share.first, self.share.first + self.share.local)
            return FinishedBatch(checkpoint.outcome.of_runs(rows), snapshots)
        carries, tracks, history = (
            getattr(checkpoint, name)[pieces.start : pieces.stop] for name in ("carries", "tracks", "history")
        )
        return checkpoint._replace(carries=carries, tracks=tracks, history=history, taken=snapshots)

    def all_gather(self, track: Track) -> Track:
        return Track.join(processes.all_gather_object(track)) if self.share.is_distributed else track

    def agree_on_stop(self, stop: Stop | None) -> Stop | None:
        reasons = processes.all_gather_object(stop) if self.share.is_distributed else [stop]
        return next((reason for reason in reasons if reason is not None), None)

    def _rows_of_finished_runs(self, batches: list[Slice]) -> np.ndarray:
        """Which rows belong to a run of which some island has reached the target."""
        hit_target = [batch.known.reason == STOP_CODES[Stop.TARGET] for batch in batches]
        if not math.isfinite(self.target):
            return np.zeros(self.share.total, bool)
        all_hit = self.share.gather(hit_target).reshape(self.islands.count, -1)
        return np.broadcast_to(all_hit.any(axis=0), all_hit.shape).reshape(-1)


def _select_emigrants(count: int, best: bool, search: Search, keys: Array, carry: Carry, number: Array) -> Array:
    """Those who leave each island, (S, m, d)."""
    state = active_state(carry)

    def one(key: Array, population: Any) -> Array:
        return migration.select_emigrants(
            random.fold_in(random.fold_in(key, number), random.Stream.EMIGRATION), population, count, best
        )

    return jax.vmap(one)(keys, state.parents)


def _insert_immigrants(
    worst: bool, search: Search, keys: Array, carry: Carry, arriving: Array, over: Array, number: Array
) -> Carry:
    """The carry with arrivals (S, m, d) among the next candidates; runs that are over are marked so."""
    state = carry.state
    in_use = search.counts(carry, number)
    count = arriving.shape[1]

    def one(algorithm: Algorithm, key: Array, state: Any, arrivals: Array, n_used: Array) -> Any:
        key = random.fold_in(random.fold_in(key, number), random.Stream.IMMIGRATION)
        rows = migration.select_replaced_rows(key, state.parents, state.candidates.shape[0], n_used, count, worst)
        return insert_immigrants(algorithm, state, rows, arrivals)

    axes = run_axes(state)
    insert = jax.vmap(one, in_axes=(search.setting_axes, 0, axes, 0, 0), out_axes=axes)
    new_state = insert(search.algorithm, keys, state, arriving, in_use)
    frozen = carry.frozen
    if frozen is not None:
        running = frozen.marks[:, REASON] == RUNNING
        reason = jnp.where(over & running, STOP_CODES[Stop.TARGET], frozen.marks[:, REASON])
        frozen = frozen._replace(marks=frozen.marks.at[:, REASON].set(reason))
    return Carry(new_state, frozen)
