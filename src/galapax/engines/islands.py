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
from galapax.engines.search import REASON, Carry, Search, run_axes, settle
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
        own, number = self.islands, np.int32(made + 1)
        fixed = (own.migrants, own.send == "best")
        sent = jax.device_get(
            [clock.call(_leave, fixed, batch.search, batch.keys, batch.carry, number) for batch in batches]
        )
        every = self.share.gather([rows[batch.wanted] for rows, batch in zip(sent, batches, strict=True)])
        leaving = every.reshape(own.count, -1, *every.shape[1:])  # (islands, runs, m, d)
        source, rank = own.routes(made // own.migrate_every, self.seed)
        runs = np.arange(leaving.shape[1])
        arriving = leaving[source[:, None, :], runs[None, :, None], rank[:, None, :]].reshape(every.shape)
        over = self._over(batches)
        at = self.share.first
        for batch in batches:
            here = np.minimum(
                at + np.arange(len(batch.cells)), at + len(batch.wanted) - 1
            )  # the last fills the slice up
            arguments = (batch.search, batch.keys, batch.carry, arriving[here], over[here], number)
            batch.carry = clock.call(_arrive, (own.replace == "worst",), *arguments)
            at += len(batch.wanted)

    def local_part(self, known: FinishedBatch | BatchCheckpoint | None) -> FinishedBatch | BatchCheckpoint | None:
        if known is None or not self.share.is_distributed:
            return known
        pieces = self.share.batches
        taken = {g: kept[pieces.start : pieces.stop] for g, kept in known.taken.items()}
        if isinstance(known, FinishedBatch):
            rows = slice(self.share.first, self.share.first + self.share.local)
            return FinishedBatch(known.outcome.of_runs(rows), taken)
        carries, tracks, history = (
            getattr(known, name)[pieces.start : pieces.stop] for name in ("carries", "tracks", "history")
        )
        return known._replace(carries=carries, tracks=tracks, history=history, taken=taken)

    def all_gather(self, track: Track) -> Track:
        return Track.join(processes.all_gather_object(track)) if self.share.is_distributed else track

    def agree_on_stop(self, stopped: Stop | None) -> Stop | None:
        told = processes.all_gather_object(stopped) if self.share.is_distributed else [stopped]
        return next((why for why in told if why is not None), None)

    def _over(self, batches: list[Slice]) -> np.ndarray:
        """Which rows belong to a run of which some island has reached the target."""
        hit = [batch.known.reason == STOP_CODES[Stop.TARGET] for batch in batches]
        if not math.isfinite(self.target):
            return np.zeros(self.share.total, bool)
        every = self.share.gather(hit).reshape(self.islands.count, -1)
        return np.broadcast_to(every.any(axis=0), every.shape).reshape(-1)


def _leave(count: int, best: bool, search: Search, keys: Array, carry: Carry, number: Array) -> Array:
    """Those who leave each island, (S, m, d)."""
    state = settle(carry)

    def one(key: Array, population: Any) -> Array:
        return migration.select_emigrants(
            random.fold_in(random.fold_in(key, number), random.Stream.EMIGRATION), population, count, best
        )

    return jax.vmap(one)(keys, state.parents)


def _arrive(
    worst: bool, search: Search, keys: Array, carry: Carry, arriving: Array, over: Array, number: Array
) -> Carry:
    """The carry with arrivals (S, m, d) among the next candidates; runs that are over are marked so."""
    state = carry.state
    in_use = search.counts(carry, number)
    count = arriving.shape[1]

    def one(algorithm: Algorithm, key: Array, state: Any, arrivals: Array, used: Array) -> Any:
        key = random.fold_in(random.fold_in(key, number), random.Stream.IMMIGRATION)
        rows = migration.select_replaced_rows(key, state.parents, state.candidates.shape[0], used, count, worst)
        return insert_immigrants(algorithm, state, rows, arrivals)

    axes = run_axes(state)
    every = jax.vmap(one, in_axes=(search.setting_axes, 0, axes, 0, 0), out_axes=axes)
    joined = every(search.algorithm, keys, state, arriving, in_use)
    frozen = carry.frozen
    if frozen is not None:
        running = frozen.marks[:, REASON] == RUNNING
        reason = jnp.where(over & running, STOP_CODES[Stop.TARGET], frozen.marks[:, REASON])
        frozen = frozen._replace(marks=frozen.marks.at[:, REASON].set(reason))
    return Carry(joined, frozen)
