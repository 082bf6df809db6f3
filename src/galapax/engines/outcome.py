"""Progress and outcome of a batch of runs as the host sees them; NumPy arrays with the runs first."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from galapax.core.evaluation import Population
from galapax.core.stop import Stop
from galapax.engines.chunk_summary import ChunkSummary
from galapax.engines.histories import LazyHistory, build_history, to_host
from galapax.engines.search import Finished

if TYPE_CHECKING:
    from galapax.engines.host_loop import Slice


@dataclass
class Track:
    """What the host knows of each run, all (R,), added up from tallies."""

    generations: np.ndarray
    evaluations: np.ndarray
    best: np.ndarray
    violation: np.ndarray
    failed: np.ndarray
    reason: np.ndarray  # why it is finished, see core/stop.py
    skipped: np.ndarray  # points of the last generation that Ctrl-C left unevaluated
    feasible_share: np.ndarray  # of the survivors; 1 without constraints
    hypervolume: np.ndarray  # NaN without a reference point

    @staticmethod
    def start(runs: int) -> Track:
        zeros, worst = _broadcast_scalar(0, runs), _broadcast_scalar(np.inf, runs)
        share, hypervolume = _broadcast_scalar(1.0, runs), _broadcast_scalar(np.nan, runs)
        return Track(zeros, zeros, worst, worst, zeros, zeros, zeros, share, hypervolume)

    @property
    def merit(self) -> np.ndarray:
        """What the runs of a batch are compared by at equal violation, the less the better."""
        without = np.isnan(self.hypervolume)
        return self.best if without.all() else np.where(without, self.best, -self.hypervolume)

    @property
    def best_run(self) -> int:
        """Which run has the best value, feasible ones first."""
        return first_best(self.violation, self.merit)

    def add(self, tally: np.ndarray) -> Track:
        """After a chunk with this packed Tally."""
        new = ChunkSummary.unpack(tally)
        moved = new.made > 0
        every = bool(moved.all())

        def latest(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            return _widen(new) if every else np.where(moved, new, old)

        return Track(
            generations=self.generations + new.made,
            evaluations=self.evaluations + new.evaluations,
            best=latest(new.best, self.best),
            violation=latest(new.violation, self.violation),
            failed=self.failed + new.failed,
            reason=_widen(new.reason),
            skipped=self.skipped,
            feasible_share=latest(new.feasible_share, self.feasible_share),
            hypervolume=latest(new.hypervolume, self.hypervolume),
        )

    def rows(self, chosen: slice | np.ndarray) -> Track:
        return Track(*(column[chosen] for column in vars(self).values()))

    @staticmethod
    def join(tracks: list[Track]) -> Track:
        if len(tracks) == 1:
            return tracks[0]
        return Track(*(np.concatenate([getattr(p, f.name) for p in tracks]) for f in fields(Track)))


MIN_RUNS_TO_BROADCAST = 1000  # runs from which memory counts


def _broadcast_scalar(value: float, runs: int) -> np.ndarray:
    """Return a read-only broadcast of a scalar to shape (runs,): touching new memory is most of what a hundred thousand
    runs cost between two chunks.
    """
    kind = np.int64 if isinstance(value, int) else np.float64
    return np.full(runs, value, kind) if runs < MIN_RUNS_TO_BROADCAST else np.broadcast_to(kind(value), runs)


def _widen(values: np.ndarray) -> np.ndarray:
    """Return integers or floats (R,) in 64 bits; a broadcast scalar where all runs agree."""
    wide = np.int64 if values.dtype.kind == "i" else np.float64
    if len(values) < MIN_RUNS_TO_BROADCAST:
        return values.astype(wide)
    first = values[0]
    all_equal = np.isnan(values) if np.isnan(first) else values == first
    return np.broadcast_to(first.astype(wide), len(values)) if all_equal.all() else values.astype(wide)


def first_best(violation: np.ndarray, merit: np.ndarray) -> int:
    """Which of R runs has the least violation and, among those, the least merit; the first of several. What is not a
    number comes last. A hundred thousand of them take long to sort.
    """
    among = _least(violation, np.ones(len(violation), bool))
    return int(np.argmax(_least(merit, among)))


def _least(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Where the least of these values (R,) is, among some of them."""
    least = np.fmin.reduce(values, where=mask, initial=np.nan)
    is_least: np.ndarray = mask & (values == least)
    return mask if np.isnan(least) else is_least


class Survivors(NamedTuple):
    """The last population of a cell's best run."""

    rank: tuple[float, float]  # violation and merit of that run
    population: Population  # (n, ...)


class Polish(NamedTuple):
    """What came of refining the best of R runs by its gradient, see running/polish.py. It adds a row to history."""

    evaluations: np.ndarray  # (R,) that it took; 0 for runs that were not tried
    better: np.ndarray  # (R,) bool
    smooth: np.ndarray  # (R,) bool: the gradient agreed with the function
    converged: np.ndarray  # (R,) bool: it ended by itself and not for want of evaluations

    def rows(self, chosen: slice | np.ndarray) -> Polish:
        return Polish(*(column[chosen] for column in self))

    def __str__(self) -> str:
        n_better, n_evaluations = int(self.better.sum()), int(self.evaluations.sum())
        text = f"{n_better} of {len(self.better)} runs refined, in {n_evaluations} evaluations"
        n_rough = int(((self.evaluations > 0) & ~self.smooth).sum())
        return text + (f"; for {n_rough} of them the gradient does not agree with the function" if n_rough else "")


@dataclass
class Outcome:
    """What a batch of runs gives."""

    track: Track
    history: np.ndarray | LazyHistory | None  # (R, G, columns), from the column KEPT of a Record on
    x: np.ndarray  # (R, d), best of each run
    populations: dict[int, Survivors]  # of each cell's best run
    fronts: list[Population]  # of several objectives: of each run the feasible non-dominated individuals, (k, ...)
    opponents: np.ndarray | None  # (R, ...), what an algorithm played against in the end, if it does
    stopped: Stop | None = None  # what ended it before the runs' own rules did
    device_seconds: float = 0.0  # spent waiting for chunks of generations
    sizes: list[list[int]] = field(default_factory=list)  # of each run: how many runs the slices of its searches had
    searches: list[tuple[int, int]] = field(default_factory=list)  # and how many agreed on the best, of how many
    polish: Polish | str | None = None  # what it came to, or why it was not tried; None if it was not asked for

    def of_runs(self, chosen: slice | np.ndarray) -> Outcome:
        """These runs alone. The history ends with the longest of them."""
        track = self.track.rows(chosen)
        fronts = [self.fronts[r] for r in np.arange(len(self.x))[chosen]] if self.fronts else []
        polish, rows = self.polish, int(track.generations.max(initial=0))
        if isinstance(polish, Polish):
            polish, rows = polish.rows(chosen), rows + 1
        whole_history = to_host(self.history)
        history = None if whole_history is None else whole_history[chosen, :rows]
        opponents = None if self.opponents is None else self.opponents[chosen]
        fields: dict[str, Any] = {"x": self.x[chosen], "fronts": fronts, "opponents": opponents, "polish": polish}
        for name in ("sizes", "searches"):
            per_run = getattr(self, name)
            fields[name] = [per_run[r] for r in np.arange(len(self.x))[chosen]] if per_run else []
        return replace(self, track=track, history=history, **fields)

    @staticmethod
    def join(batches: list[Outcome], stopped: Stop | None = None, device_seconds: float = 0.0) -> Outcome:
        """One outcome of several; what stopped it and the time are added to theirs."""
        stopped = stopped or next((b.stopped for b in batches if b.stopped is not None), None)
        seconds = device_seconds + sum(b.device_seconds for b in batches)
        if len(batches) == 1:
            return replace(batches[0], stopped=stopped, device_seconds=seconds)
        populations: dict[int, Survivors] = {}
        for batch in batches:
            for cell, survivors_of_cell in batch.populations.items():
                populations[cell] = min(
                    populations.get(cell, survivors_of_cell), survivors_of_cell, key=lambda survivors: survivors.rank
                )
        opponents = [b.opponents for b in batches if b.opponents is not None]
        return Outcome(
            track=Track.join([b.track for b in batches]),
            history=_merge_histories([history for b in batches if (history := to_host(b.history)) is not None]),
            x=np.concatenate([b.x for b in batches]),
            populations=populations,
            fronts=[front for b in batches for front in b.fronts],
            opponents=np.concatenate(opponents) if opponents else None,
            stopped=stopped,
            device_seconds=seconds,
            sizes=[widths for b in batches for widths in b.sizes],
        )


def best_of_run(outcome: Outcome, row: int) -> Population:
    """The best point of a run that is over, or its front."""
    if outcome.fronts:
        return outcome.fronts[row]
    track = outcome.track
    return Population(outcome.x[[row]], track.best[[row], None], track.violation[[row]])  # type: ignore[arg-type]


def merge_populations(populations: list[Population]) -> Population:
    """Concatenate populations, in NumPy; without constraints the violation is 0."""
    violations = [np.zeros(len(p.x)) if p.violation is None else p.violation for p in populations]
    x, objectives = (np.concatenate(parts) for parts in zip(*((p.x, p.objectives) for p in populations), strict=True))
    return Population(x, objectives, np.concatenate(violations))  # type: ignore[arg-type]


def _merge_histories(histories: list[np.ndarray]) -> np.ndarray | None:
    """Concatenate the histories of several batches; shorter ones repeat their last row."""
    longest = max((h.shape[1] for h in histories), default=0)
    padded = [
        h if h.shape[1] == longest else np.pad(h, ((0, 0), (0, longest - h.shape[1]), (0, 0)), "edge")
        for h in histories
    ]
    return np.concatenate(padded) if padded else None


def build_outcome(batch: Slice, finished: Finished) -> Outcome:
    """Build the outcome of a slice's runs from what `Search.finish` returned."""
    track, cells = batch.track, batch.cells
    survivors_by_cell, fronts = {}, []
    for i, cell in enumerate(range(int(cells[0]), int(cells[-1]) + 1)):
        rows_of_cell = batch.wanted[cells[batch.wanted] == cell]
        if not len(rows_of_cell):
            continue
        row = track.best_run if len(rows_of_cell) == len(cells) else rows_of_cell[track.rows(rows_of_cell).best_run]
        rank = (float(track.violation[row]), float(track.merit[row]))
        index = i if finished.found is None else row
        survivors = jax.tree.map(lambda a: a[index], finished.survivors)  # noqa: B023 (used at once)
        if not batch.search.algorithm.traits.fixed_evaluations:  # rows that are not in use were never evaluated
            in_use = np.isfinite(survivors.objectives).all(axis=-1)
            survivors = jax.tree.map(lambda a: np.asarray(a)[in_use], survivors) if in_use.any() else survivors  # noqa: B023
        survivors_by_cell[cell] = Survivors(rank, survivors)
    if finished.found is not None and finished.belongs is not None:
        individuals, on_front = finished.found, finished.belongs
        fronts = [jax.tree.map(lambda a: a[r][on_front[r]], individuals) for r in range(len(cells))]  # noqa: B023
    history = build_history(batch.history, track.generations) if batch.history else None
    x, opponents = np.asarray(finished.x), None if finished.opponents is None else np.asarray(finished.opponents)
    total = Outcome(track, history, x, survivors_by_cell, fronts, opponents, sizes=[[len(cells)]] * len(cells))
    return total.of_runs(batch.wanted) if len(batch.wanted) < len(cells) else total
