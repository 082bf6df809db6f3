"""Runs shared by several processes: one of them shows and writes, and a checkpoint holds the state of all."""

from __future__ import annotations

from dataclasses import replace

from galapax.core.errors import InputError
from galapax.core.evaluation import Population
from galapax.engines.batch_checkpoint import BatchCheckpoint, FinishedBatch
from galapax.engines.outcome import Outcome
from galapax.numerics import processes
from galapax.running.observers import Keeper, Observers
from galapax.running.task import Task


def observers_for_process(task: Task, observers: Observers) -> Observers:
    """Return the observers of this process: only the first one shows progress and writes the checkpoint."""
    if not processes.is_distributed():
        return observers
    if task.options.blackbox:
        raise InputError(
            "a black box is called by one process, which may have workers=; several processes share runs "
            "of functions that JAX traces."
        )
    if observers.journal is not None:
        if task.options.islands is None:
            raise InputError(
                "a checkpoint of runs without islands is written by one process: leave checkpoint out, or give each "
                "process runs of its own, such as runs=range(100, 200), and a file of its own."
            )
        observers = replace(observers, journal=MultiprocessCheckpoint(observers.journal))
    if processes.process_index():
        observers = replace(observers, callback=None, progress=False, live=None)
    return observers


class MultiprocessCheckpoint:
    """A Keeper that gathers the state of all processes and writes it in the first."""

    def __init__(self, inner: Keeper) -> None:
        self.inner, self.memory = inner, None

    def open(self, task: dict[str, str], title: str) -> None:
        self.inner.open(task, title)

    def close(self) -> None:
        self.inner.close()

    def begin_batch(self) -> FinishedBatch | BatchCheckpoint | None:
        return self.inner.begin_batch()

    def sizes(self) -> tuple[int, int] | None:
        return self.inner.sizes()

    def restart_batch(self) -> None:
        self.inner.restart_batch()

    def due(self, generation: int) -> bool:
        return bool(processes.all_gather_object(self.inner.due(generation))[0])

    def save(self, standing: BatchCheckpoint) -> None:
        gathered: list[BatchCheckpoint] = processes.all_gather_object(standing)
        carries, tracks, history = (
            [item for each in gathered for item in getattr(each, name)] for name in ("carries", "tracks", "history")
        )
        snapshots, runs = _merge_snapshots([each.taken for each in gathered]), sum(each.runs for each in gathered)
        self.inner.save(standing._replace(carries=carries, tracks=tracks, history=history, taken=snapshots, runs=runs))

    def finish_batch(self, done: FinishedBatch) -> None:
        gathered: list[FinishedBatch] = processes.all_gather_object(done)
        snapshots = _merge_snapshots([each.taken for each in gathered])
        self.inner.finish_batch(FinishedBatch(Outcome.join([each.outcome for each in gathered]), snapshots))


def _merge_snapshots(snapshots: list[dict[int, list[Population]]]) -> dict[int, list[Population]]:
    """Merge the snapshots of all processes, by generation."""
    return {g: [p for by_generation in snapshots for p in by_generation[g]] for g in snapshots[0]}
