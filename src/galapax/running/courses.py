"""What is known of a run that is a row of searches: how far it is, and in the end its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from galapax.core.record import HISTORY_FIRST_COLUMN, Columns, Record
from galapax.core.restarts import SearchSummary, count_agreeing_searches
from galapax.core.stop import RUNNING, STOP_CODES, Stop
from galapax.engines.histories import fetched
from galapax.engines.outcome import Outcome, Survivors, Track
from galapax.numerics import random
from galapax.running.task import Task


@dataclass
class Course:
    """One run: the searches that it made, and what came of them."""

    row: int  # among the runs of the task
    cell: int
    key: np.ndarray  # (2,)
    past: list[SearchSummary] = field(default_factory=list)
    parts: list[Outcome] = field(default_factory=list)  # of one run each
    sizes: list[int] = field(default_factory=list)  # runs of the slices
    stop: Stop | None = None

    @property
    def evaluations(self) -> int:
        return sum(p.evaluations for p in self.past)

    @property
    def generations(self) -> int:
        return sum(int(part.track.generations[0]) for part in self.parts)

    def own_key(self) -> np.ndarray:
        """Of its next search; the first has the run's."""
        return self.key if not self.past else random.search_key(self.key, len(self.past))

    def draws(self) -> np.random.Generator:
        """Numbers for the policy, other ones after each search."""
        return np.random.default_rng([*map(int, self.key), len(self.past)])


def since_better(course: Course) -> int:
    """Generations that the searches after the one that found the best took."""
    best = min(range(len(course.past)), key=lambda i: (course.past[i].violation, course.past[i].best))
    return sum(int(part.track.generations[0]) for part in course.parts[best + 1 :])


def track_of(course: Course) -> Track:
    """What is known of a run from the searches that are over."""
    track = Track.start(1)
    for part in course.parts:
        track = together(track, part.track)
    if course.stop in STOP_CODES:
        track.reason = np.array([STOP_CODES[course.stop]])
    return track


def together(before: Track, now: Track) -> Track:
    """Runs whose searches so far, and then the present one, came to this."""
    better = (now.violation < before.violation) | ((now.violation == before.violation) & (now.best <= before.best))
    hit = now.reason == STOP_CODES[Stop.TARGET]
    return Track(
        generations=before.generations + now.generations,
        evaluations=before.evaluations + now.evaluations,
        best=np.where(better, now.best, before.best),
        violation=np.where(better, now.violation, before.violation),
        failed=before.failed + now.failed,
        reason=np.where(hit, now.reason, RUNNING),
        skipped=before.skipped + now.skipped,
        feasible_share=now.feasible_share,
        hypervolume=now.hypervolume,
    )


def joined(
    task: Task, courses: list[Course], populations: dict[int, Survivors], stopped: Stop | None, seconds: float
) -> Outcome:
    """The outcome of whole runs."""
    histories = [_history(task, course) for course in courses] if task.options.keep.history else []
    longest = max((len(rows) for rows in histories), default=0)
    padded = [np.pad(rows, ((0, longest - len(rows)), (0, 0)), "edge") for rows in histories]
    best = [min(course.parts, key=lambda part: (part.track.violation[0], part.track.best[0])) for course in courses]
    return Outcome(
        track=Track.join([track_of(course) for course in courses]),
        history=np.stack(padded) if padded else None,
        x=np.concatenate([part.x for part in best]),
        populations=populations,
        fronts=[],
        opponents=None,
        stopped=stopped,
        device_seconds=seconds,
        sizes=[course.sizes for course in courses],
        searches=[(count_agreeing_searches(course.past), len(course.past)) for course in courses],
    )


def _history(task: Task, course: Course) -> np.ndarray:
    """The rows (G, columns) of a run's searches, in which the best is the best so far."""
    columns: Columns = task.columns
    done: list[np.ndarray] = []
    for part in course.parts:
        every = fetched(part.history)
        assert every is not None
        rows = every[0].copy()
        if done:
            last, own = (Record.unpack(r, columns, HISTORY_FIRST_COLUMN) for r in (done[-1][-1:], rows))
            worse = own.best[:, 0] >= last.best[:, 0]  # of equals the earlier is the answer
            if own.violation is not None:
                worse = (own.violation > last.violation) | ((own.violation == last.violation) & worse)
            for name in ("best", "violation", "x"):
                now, before = getattr(own, name), getattr(last, name)
                if now is not None:
                    now[worse] = before
        done.append(rows)
    return np.concatenate(done)
