"""The engine of a task, and how its runs are cut into slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from galapax.core.algorithm import is_shared
from galapax.core.evaluation import Shape
from galapax.core.problem import Problem
from galapax.engines.drive import Between, Engine, Slice, Watch, drive
from galapax.engines.host import Host
from galapax.engines.interrupts import Interrupts
from galapax.engines.outcome import Outcome
from galapax.engines.programs import Clock
from galapax.engines.search import Search
from galapax.engines.slices import width
from galapax.engines.steady import Steady
from galapax.evaluation.blackbox import BlackBox, Discovered
from galapax.numerics import devices, processes, random
from galapax.running.assemble import Answers
from galapax.running.engines import engine_of
from galapax.running.memory import check_memory
from galapax.running.task import Task, check_shape


class Computation:
    """The runs of a task, computed in slices.

    clock: is told how long compiling takes. box: what calls the functions of a black box.
    search, keys, cells: of all its runs, if not those that follow from the task. size: runs of a slice, if not as many
    as usual.
    """

    def __init__(
        self,
        task: Task,
        noted: Interrupts,
        clock: Clock,
        box: BlackBox | None,
        *,
        search: Search | None = None,
        keys: np.ndarray | None = None,
        cells: np.ndarray | None = None,
        size: int | None = None,
    ) -> None:
        self.task, self.clock = task, clock
        self.search = task.search() if search is None else search
        runs = np.arange(task.total) % task.runs
        self.keys = random.run_keys(task.seed, task.first_run, task.runs)[runs] if keys is None else keys
        self.cells = np.arange(task.total) // task.runs if cells is None else cells
        self.runs = runs
        self.fit = check_memory(task)
        self.width = 1 if task.alone else width(task.bound[0], task.problem.dim, task.total, self.fit)
        if size is not None:
            self.width = size
        self.engine: Engine
        if box is not None:

            def check(shape: Shape) -> None:
                if (task.guessed and shape.objectives > 1) or (shape.constrained and not task.problem.constrained):
                    raise Discovered(box)
                check_shape(task, shape)

            self.engine = (Steady if task.calls.asynchronous else Host)(box, self.clock, noted, check)
        else:
            self.engine = engine_of(task, self.search, self.clock, self.width, len(self.keys))
        self.answers = Answers(task, box)

    @property
    def together(self) -> int:
        """So many runs go on at once: whole slices, as many as memory allows."""
        return max(1, self.fit // self.width) * self.width

    def batches(self) -> Iterator[np.ndarray]:
        """Its runs, those that go on at once together."""
        for start in range(0, self.task.total, self.together):
            yield np.arange(start, min(start + self.together, self.task.total))

    def smaller(self) -> bool:
        """Let fewer runs go on at once, as memory was not enough; False if that cannot be."""
        runs = min(self.together, self.task.total)
        if runs > self.width:
            self.fit = runs // 2
            return True
        if runs == 1 or devices.on_cpu() or self.task.blackbox:
            return False
        self.width = self.fit = math.ceil(runs / 2)  # on an accelerator a slice is as large as memory allows
        self.engine = engine_of(self.task, self.search, self.clock, self.width, len(self.keys))
        return True

    def batch(
        self,
        rows: np.ndarray,
        watch: Watch,
        wanted: np.ndarray | None = None,
        exchange: Callable[[processes.Share], Between] | None = None,
        alone: bool = False,
    ) -> Outcome:
        """The outcome of these runs, in slices, which several processes share.

        wanted: only these places of the (one) slice. exchange: makes what the slices do between chunks. alone: this
        process computes all of them.
        """
        pieces = [rows[start : start + self.width] for start in range(0, len(rows), self.width)]
        share = processes.Share([len(piece) for piece in pieces], alone or wanted is not None)
        parts = [self._slice(pieces[i]) for i in share.pieces]
        if wanted is not None:
            parts[0].wanted = wanted
        own = None
        if parts:
            own = drive(
                self.engine,
                parts,
                limit=int(self.task.rules.generations),
                watch=watch,
                keep_history=bool(self.task.history),
                between=None if exchange is None else exchange(share),
            )
        if own is not None and not share.shared:
            return own
        told: list[tuple[Outcome | None, Any]] = processes.tell_all((own, watch.taken))
        watch.taken = _joined([taken for _, taken in told])
        return Outcome.join([found for found, _ in told if found is not None])

    def _slice(self, rows: np.ndarray) -> Slice:
        task, count = self.task, len(rows)
        rows = np.concatenate([rows, np.repeat(rows[-1:], self.width - count)])
        initial, kind = task.initial, np.dtype(task.dtype)
        if initial is not None:
            box = self.search.bounds
            initial = (initial[self.runs[rows]] if initial.ndim == 3 else initial).astype(kind)
            initial = np.clip(initial, box.lower, box.upper)
        rules = self.search.rules
        if np.ndim(rules.evaluations):
            rules = rules._replace(evaluations=rules.evaluations[rows])
        search = replace(self.search, algorithm=_of_rows(self.search.algorithm, rows), rules=rules)
        return Slice(search, self.keys[rows], self.cells[rows], initial, np.arange(count))


@contextmanager
def black_box(task: Task, known: BlackBox | None = None) -> Iterator[BlackBox | None]:
    """What calls the functions of a task, if it is a black box. known: that of an earlier attempt."""
    if not task.blackbox:
        yield None
        return
    assert isinstance(task.problem, Problem)
    box = BlackBox(
        task.problem,
        dtype=task.dtype,
        maximize=task.maximize,
        vectorized=task.vectorized,
        raise_failures=task.on_failure == "raise",
        calls=task.calls,
        remote=None if known is None else known.remote,
    )
    if known is not None:
        box.first = known.first
    try:
        yield box
    except Discovered:  # its workers serve the next attempt
        raise
    except BaseException:
        box.close()
        raise
    box.close()


def _joined(taken: list[dict[int, list[Any]]]) -> dict[int, list[Any]]:
    """The snapshots of all processes."""
    known = sorted({g for own in taken for g in own})  # a process without slices knows none
    return {g: [part for own in taken for part in own.get(g, [])] for g in known}


def _of_rows(algorithm: Any, rows: np.ndarray) -> Any:
    """The hyper-parameters of these runs."""

    def pick(leaf: Any) -> Any:
        return leaf if is_shared(leaf) or not leaf.ndim else leaf[rows]

    return jax.tree.map(pick, algorithm, is_leaf=is_shared)
