"""What somebody who watches a run is given between its chunks: little, thinned where the data lie."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.evaluation import HISTORY_FIRST_COLUMN, Columns, Population, Record, Shape
from galapax.execution.search import Carry, active_state
from galapax.operators.selection import best_index

if TYPE_CHECKING:
    from galapax.execution.host_loop import Slice
    from galapax.execution.state import Track

MAX_INDIVIDUALS = 4096  # of a population, at most
MAX_VARIABLES = 64  # of an individual, at most
ROWS = 32  # generations of a chunk
MAX_RUNS = 4096  # of an ensemble, at most
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class PopulationSample(NamedTuple):
    """Some of one run's survivors, its best among them."""

    x: Array | np.ndarray  # (n, v) in float32, the first variables
    objectives: Array | np.ndarray  # (n, m)
    violation: Array | np.ndarray | None  # (n,), or None
    best: Array | np.ndarray  # (d,), the best one's variables, all of them


class HistorySample(NamedTuple):
    """A few generations of history, of one run and over all runs."""

    own: Record[np.ndarray]  # (ROWS, ...), of that run
    median: np.ndarray  # (m,), over the survivors of that run after the chunk
    spread: np.ndarray | None  # (ROWS, 5): QUANTILES of the runs' best values; +inf for runs without a feasible point


class ChunkView:
    """A batch of runs after a chunk, to be looked at before the next chunk takes its memory."""

    def __init__(self, batches: list[Slice]) -> None:
        self._batches = batches
        self._ends = np.cumsum([len(batch.active_rows) for batch in batches])

    @property
    def shape(self) -> Shape:
        return self._batches[0].search.shape

    def survivors(self, run: int) -> PopulationSample:
        """Some of this run's survivors."""
        batch, place = self._find(run)
        assert batch.carry is not None
        return jax.device_get(_survivors(batch.carry, np.int32(place)))

    def population(self, run: int) -> Population:
        """All survivors of this run, in NumPy."""
        batch, place = self._find(run)
        assert batch.carry is not None
        return jax.device_get(_all_survivors(batch.carry, np.int32(place)))

    def rows(self, chosen: np.ndarray, run: int, before: Track, now: Track) -> HistorySample:
        """These rows (ROWS,) of the last chunk's history, which lies between the two tracks."""
        batch, place = self._find(run)
        generations = (now.generations - before.generations).astype(np.int32)
        chosen = chosen.astype(np.int32)
        assert batch.carry is not None
        rows_of_run, median = jax.device_get(
            _rows(batch.carry, _last_rows(batch), np.minimum(chosen, max(generations[run] - 1, 0)), np.int32(place))
        )
        record = Record.unpack(rows_of_run, batch.columns, HISTORY_FIRST_COLUMN)
        if len(generations) == 1 or self.shape.objectives > 1:
            return HistorySample(record, median, None)
        ends = [0, *self._ends.tolist()]
        best_of_runs = [
            self._best_by_row(batch, chosen, generations[a:b], before.rows(slice(a, b)))
            for batch, a, b in zip(self._batches, ends[:-1], ends[1:], strict=True)
        ]
        sample = np.linspace(0, len(generations) - 1, min(len(generations), MAX_RUNS)).astype(int)
        ordered = np.sort(np.concatenate(best_of_runs, axis=1)[:, sample], axis=1)
        return HistorySample(record, median, ordered[:, np.rint(np.array(QUANTILES) * (len(sample) - 1)).astype(int)])

    def _find(self, run: int) -> tuple[Slice, int]:
        """The slice that has this run of the batch, and its place there."""
        i = int(np.searchsorted(self._ends, run, side="right"))
        batch = self._batches[i]
        return batch, int(batch.active_rows[run - int(self._ends[i - 1] if i else 0)])

    def _best_by_row(self, batch: Slice, chosen: np.ndarray, generations: np.ndarray, before: Track) -> np.ndarray:
        """The best value of each run in these rows, (ROWS, R); a finished run's last one is repeated."""
        best, violation = before.best, before.violation
        if not generations.any():
            best = np.where(violation > 0, np.inf, best)
            return np.broadcast_to(best, (len(chosen), len(best)))
        generations_of_row = np.zeros(len(batch.cells), np.int32)
        generations_of_row[batch.active_rows] = generations
        rows_and_violation = jax.device_get(_best(batch.columns, _last_rows(batch), chosen, generations_of_row))
        rows, broken = (a[:, batch.active_rows] for a in rows_and_violation)
        rows, broken = np.where(generations > 0, rows, best), np.where(generations > 0, broken, violation)
        return np.where(broken > 0, np.inf, rows)


def _last_rows(batch: Slice) -> Array:
    """The rows of the last chunk, (rows, columns, S)."""
    return batch.last_rows[0] if len(batch.last_rows) == 1 else jnp.concatenate(batch.last_rows)


@jax.jit
def _survivors(carry: Carry, run: Array) -> PopulationSample:
    parents = _population_of_run(carry, run)
    best = best_index(parents)
    some, x = _sample_rows(parents, best), parents.x[:, :MAX_VARIABLES]
    if some is not None:
        parents = jax.tree.map(lambda a: a[some], parents)
        x = x[some]
    return PopulationSample(
        x.astype(jnp.float32), parents.objectives, parents.violation, _population_of_run(carry, run).x[best]
    )


@jax.jit
def _rows(carry: Carry, history: Array, chosen: Array, run: Array) -> tuple[Array, Array]:
    parents = _population_of_run(carry, run)
    some = _sample_rows(parents, best_index(parents))
    values = parents.objectives if some is None else parents.objectives[some]
    return history[chosen, :, run], jnp.median(values, axis=0)


@partial(jax.jit, static_argnums=0)
def _best(columns: Columns, history: Array, chosen: Array, made: Array) -> tuple[Array, Array]:
    last = jnp.clip(jnp.minimum(chosen[:, None], made - 1), 0)
    record = Record.unpack(history, columns, HISTORY_FIRST_COLUMN, axis=1)
    best = jnp.take_along_axis(record.best[:, 0], last, axis=0)
    if record.violation is None:
        return best, jnp.zeros_like(best)
    return best, jnp.take_along_axis(record.violation, last, axis=0)


@jax.jit
def _all_survivors(carry: Carry, run: Array) -> Population:
    return _population_of_run(carry, run)


def _population_of_run(carry: Carry, run: Array) -> Population:
    return jax.tree.map(lambda a: a[run], active_state(carry).parents)


def _sample_rows(parents: Population, best: Array) -> Array | None:
    """Rows of some individuals, evenly spread, the best among them; None for all."""
    n = parents.x.shape[0]
    if n <= MAX_INDIVIDUALS:
        return None
    return jnp.asarray(np.linspace(0, n - 1, MAX_INDIVIDUALS).astype(np.int32)).at[0].set(best.astype(jnp.int32))
