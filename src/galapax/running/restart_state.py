"""The state of a run that restarts: its finished searches, and the outcome that they are merged into."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from galapax.core.record import HISTORY_FIRST_COLUMN, Columns, Record
from galapax.core.restarts import SearchSummary, count_agreeing_searches
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.engines.histories import to_host
from galapax.engines.outcome import Outcome, Survivors, Track
from galapax.numerics import random
from galapax.running.task import Task


@dataclass
class RestartState:
    """One run: its finished searches and their outcomes."""

    row: int  # among the runs of the task
    cell: int
    key: np.ndarray  # (2,)
    past: list[SearchSummary] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)  # of one run each
    sizes: list[int] = field(default_factory=list)  # runs of the slices
    stop: Stop | None = None

    @property
    def evaluations(self) -> int:
        return sum(search.evaluations for search in self.past)

    @property
    def generations(self) -> int:
        return sum(int(outcome.track.generations[0]) for outcome in self.outcomes)

    def next_key(self) -> np.ndarray:
        """Return the key of the next search; the first search has the run's."""
        return self.key if not self.past else random.search_key(self.key, len(self.past))

    def policy_rng(self) -> np.random.Generator:
        """Return the random generator for the restart policy, a new one after each search."""
        return np.random.default_rng([*map(int, self.key), len(self.past)])


def generations_since_best(run: RestartState) -> int:
    """Count the generations of the searches after the one with the best value."""
    best = min(range(len(run.past)), key=lambda i: (run.past[i].violation, run.past[i].best))
    return sum(int(outcome.track.generations[0]) for outcome in run.outcomes[best + 1 :])


def merge_tracks(run: RestartState) -> Track:
    """Merge the tracks of a run's finished searches."""
    track = Track.start(1)
    for outcome in run.outcomes:
        track = add_search(track, outcome.track)
    if run.stop in STOP_CODES:
        track.reason = np.array([STOP_CODES[run.stop]])
    return track


def add_search(earlier: Track, latest: Track) -> Track:
    """Merge the tracks of earlier searches with that of the latest one, run by run."""
    better = (latest.violation < earlier.violation) | (
        (latest.violation == earlier.violation) & (latest.best <= earlier.best)
    )
    reached_target = latest.reason == STOP_CODES[Stop.TARGET]
    return Track(
        generations=earlier.generations + latest.generations,
        evaluations=earlier.evaluations + latest.evaluations,
        best=np.where(better, latest.best, earlier.best),
        violation=np.where(better, latest.violation, earlier.violation),
        failed=earlier.failed + latest.failed,
        reason=np.where(reached_target, latest.reason, RUNNING),
        skipped=earlier.skipped + latest.skipped,
        feasible_share=latest.feasible_share,
        hypervolume=latest.hypervolume,
    )


def build_outcome(
    task: Task, runs: list[RestartState], populations: dict[int, Survivors], stopped: Stop | None, device_seconds: float
) -> Outcome:
    """Merge the searches of each run into the outcome of whole runs."""
    histories = [_merge_histories(task, run) for run in runs] if task.options.keep.history else []
    longest = max((len(rows) for rows in histories), default=0)
    padded = [np.pad(rows, ((0, longest - len(rows)), (0, 0)), "edge") for rows in histories]
    best = [min(run.outcomes, key=lambda outcome: (outcome.track.violation[0], outcome.track.best[0])) for run in runs]
    return Outcome(
        track=Track.join([merge_tracks(run) for run in runs]),
        history=np.stack(padded) if padded else None,
        x=np.concatenate([outcome.x for outcome in best]),
        populations=populations,
        fronts=[],
        opponents=None,
        stopped=stopped,
        device_seconds=device_seconds,
        sizes=[run.sizes for run in runs],
        searches=[(count_agreeing_searches(run.past), len(run.past)) for run in runs],
    )


def _merge_histories(task: Task, run: RestartState) -> np.ndarray:
    """Concatenate the histories of a run's searches to (G, columns), with the best so far in every row."""
    columns: Columns = task.columns
    merged: list[np.ndarray] = []
    for outcome in run.outcomes:
        history = to_host(outcome.history)
        assert history is not None
        rows = history[0].copy()
        if merged:
            previous, record = (Record.unpack(r, columns, HISTORY_FIRST_COLUMN) for r in (merged[-1][-1:], rows))
            worse = record.best[:, 0] >= previous.best[:, 0]  # of equals the earlier is the answer
            if record.violation is not None:
                worse = (record.violation > previous.violation) | ((record.violation == previous.violation) & worse)
            for name in ("best", "violation", "x"):
                values, best_so_far = getattr(record, name), getattr(previous, name)
                if values is not None:
                    values[worse] = best_so_far
        merged.append(rows)
    return np.concatenate(merged)
