"""A run that several processes compute: one of them shows and writes, and a checkpoint holds what all of them know."""

from __future__ import annotations

from dataclasses import replace

from galapax.core.errors import InputError
from galapax.core.evaluation import Population
from galapax.engines.journal import Done, Standing
from galapax.engines.outcome import Outcome
from galapax.numerics import processes
from galapax.running.observers import Keeper, Observers
from galapax.running.task import Task


def of_this_process(task: Task, observers: Observers) -> Observers:
    """Who watches here: the first process shows how the run goes on and keeps its checkpoint."""
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
        observers = replace(observers, journal=Together(observers.journal))
    if processes.process_index():
        observers = replace(observers, callback=None, progress=False, live=None)
    return observers


class Together:
    """A Keeper in the first process, which is told by all of them."""

    def __init__(self, inner: Keeper) -> None:
        self.inner, self.memory = inner, None

    def open(self, task: dict[str, str], title: str) -> None:
        self.inner.open(task, title)

    def close(self) -> None:
        self.inner.close()

    def enter(self) -> Done | Standing | None:
        return self.inner.enter()

    def sizes(self) -> tuple[int, int] | None:
        return self.inner.sizes()

    def again(self) -> None:
        self.inner.again()

    def due(self, made: int) -> bool:
        return bool(processes.all_gather_object(self.inner.due(made))[0])

    def note(self, standing: Standing) -> None:
        told: list[Standing] = processes.all_gather_object(standing)
        carries, tracks, history = (
            [part for own in told for part in getattr(own, name)] for name in ("carries", "tracks", "history")
        )
        taken, runs = _taken([own.taken for own in told]), sum(own.runs for own in told)
        self.inner.note(standing._replace(carries=carries, tracks=tracks, history=history, taken=taken, runs=runs))

    def leave(self, done: Done) -> None:
        told: list[Done] = processes.all_gather_object(done)
        self.inner.leave(Done(Outcome.join([own.outcome for own in told]), _taken([own.taken for own in told])))


def _taken(parts: list[dict[int, list[Population]]]) -> dict[int, list[Population]]:
    return {g: [kept for own in parts for kept in own[g]] for g in parts[0]}
