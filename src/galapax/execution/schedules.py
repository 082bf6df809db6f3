"""Schedules: which runs are computed next, and how their outcomes become those of whole runs.

Independent runs are one group; runs that restart (restart_schedule.py) are computed search after search, runs on
islands (island_schedule.py) with a row for each island. `run_schedule` computes all of them, and a run is replayed by
the schedule `schedule.only(row, sizes)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from galapax.execution.batch_runner import BatchRunner, Group, RunContext, select_rows
from galapax.execution.host_loop import BatchView, Watch
from galapax.execution.state import Outcome
from galapax.execution.task import Task
from galapax.numerics import random


class Schedule(Protocol):
    """Decides which groups of runs are computed next, and merges what came of them."""

    def next_groups(self) -> list[Group]:
        """Return the groups that can be computed now; none when all runs are over."""

    def first_run(self, group: Group, runs: np.ndarray) -> int | None:
        """Return the number of the first run of a batch, for the live page; None where it shows these runs already."""

    def view(self, group: Group, runs: np.ndarray) -> BatchView:
        """Return how a batch of the group is reported to the observers."""

    def record(self, group: Group, runs: np.ndarray, outcome: Outcome) -> Outcome:
        """Record the outcome of a batch and return it, refined where the schedule does so."""

    def merge(self) -> Outcome:
        """Return the outcome of all runs that were started."""

    def only(self, row: int, sizes: list[int]) -> Schedule:
        """Return the schedule of one run alone, in slices of the sizes that it was computed in."""


def run_schedule(schedule: Schedule, context: RunContext, watch: Watch) -> Outcome:
    """Compute the groups of a schedule until all runs are over or something asks to stop."""
    stopped = None
    while stopped is None and (groups := schedule.next_groups()):
        for group in groups:
            stopped = _run_group(schedule, group, context, watch).stopped
            if stopped is not None:
                break
    return schedule.merge()


def _run_group(schedule: Schedule, group: Group, context: RunContext, watch: Watch) -> Outcome:
    """Compute a group in batches; return the outcome of the last."""
    runner = BatchRunner(group, context)

    def compute(runs: np.ndarray) -> Outcome:
        first_run = schedule.first_run(group, runs)
        if first_run is not None:
            watch.on_batch_start(first_run)
        return runner.compute_batch(runs, watch, schedule.view(group, runs))

    for runs, outcome in runner.iterate_batches(watch.journal, compute):
        outcome = schedule.record(group, runs, outcome)
        if outcome.stopped is not None:
            break
    return outcome


@dataclass
class IndependentSchedule:
    """Every run is computed once, apart from the others."""

    task: Task
    row: int | None = None  # the only run
    width: int | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    def next_groups(self) -> list[Group]:
        if self.outcomes:
            return []
        task, n_cells = self.task, self.task.total // self.task.runs
        keys = np.tile(random.run_keys(task.seed, task.first_run, task.runs), (n_cells, 1))
        cells = np.repeat(np.arange(n_cells), task.runs)
        initial = task.initial
        if initial is not None and initial.ndim == 3 and n_cells > 1:
            initial = np.tile(initial, (n_cells, 1, 1))
        group = Group(task, task.search(), keys, cells, initial, width=self.width)
        return [group if self.row is None else self._group_of_run(group, self.row)]

    def _group_of_run(self, group: Group, row: int) -> Group:
        """Return the slice that a run was computed in, with the other runs inactive."""
        assert self.width is not None
        first = row // self.width * self.width
        rows = slice(first, min(first + self.width, self.task.total))
        initial = group.initial
        if initial is not None and initial.ndim == 3:
            initial = initial[rows]
        return replace(
            group,
            search=select_rows(group.search, rows),
            keys=group.keys[rows],
            cells=group.cells[rows],
            initial=initial,
            active_rows=np.array([row - first]),
            is_local=True,
        )

    def first_run(self, group: Group, runs: np.ndarray) -> int:
        return self.task.first_run + int(runs[0]) % self.task.runs

    def view(self, group: Group, runs: np.ndarray) -> BatchView:
        return BatchView(finished=tuple(self.outcomes))

    def record(self, group: Group, runs: np.ndarray, outcome: Outcome) -> Outcome:
        self.outcomes.append(outcome)
        return outcome

    def merge(self) -> Outcome:
        return Outcome.join(self.outcomes)

    def only(self, row: int, sizes: list[int]) -> IndependentSchedule:
        return IndependentSchedule(self.task, row, sizes[0])
