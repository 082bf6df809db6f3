"""The engine of a task, and how its runs are cut into slices."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from galapax.core.algorithm import is_shared
from galapax.core.errors import InputError, OutOfMemory
from galapax.core.evaluation import Shape
from galapax.core.problem import Problem
from galapax.engines.drive import Between, Engine, Slice, Watch, drive
from galapax.engines.histories import fetched
from galapax.engines.host import Host
from galapax.engines.interrupts import Interrupts
from galapax.engines.journal import Journal
from galapax.engines.outcome import Outcome
from galapax.engines.programs import Clock
from galapax.engines.search import Search
from galapax.engines.slices import width
from galapax.engines.steady import Steady
from galapax.evaluation.blackbox import BlackBox, Discovered
from galapax.numerics import devices, processes, random
from galapax.running.assemble import Answers
from galapax.running.engines import engine_of
from galapax.running.memory import check_memory, exhausted, too_large
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
        count = task.total // task.runs
        self.runs = np.tile(np.arange(task.runs), count)
        if keys is None:
            keys = np.tile(random.run_keys(task.seed, task.first_run, task.runs), (count, 1))
        self.keys = keys
        self.cells = np.repeat(np.arange(count), task.runs) if cells is None else cells
        self.fit = check_memory(task)
        native = task.engine == "native"
        self.width = 1 if task.is_single_run else width(task.bound[0], task.problem.dim, task.total, self.fit, native)
        if size is not None:
            self.width = size
        self.engine: Engine
        if box is not None:

            def check(shape: Shape) -> None:
                expected = 2 if task.solvers[0].traits.multi_objective else 1
                other = task.objectives_unknown and shape.objectives > 1 and shape.objectives != expected
                if other or (shape.constrained and not task.problem.constrained):
                    raise Discovered(box, self._first_points(box.n_probed) if box.n_probed else None)
                check_shape(task, shape)

            self.engine = (Steady if task.options.workers.asynchronous else Host)(
                box, self.clock, noted, check, task.n_probes
            )
        else:
            self.engine = engine_of(task, self.search, self.clock, self.width, len(self.keys))
        self.answers = Answers(task, box)

    @property
    def together(self) -> int:
        """So many runs go on at once: whole slices, as many as memory allows."""
        return max(1, self.fit // self.width) * self.width

    def batches(
        self, kept: Journal | None, compute: Callable[[np.ndarray], Outcome], rows_each: int = 1
    ) -> Iterator[tuple[np.ndarray, Outcome]]:
        """Its runs, those that go on at once together, each batch with what `compute` makes of it; where memory is not
        enough, with fewer of them. rows_each: rows of the computation that belong to one run.
        """
        start, total = 0, self.task.total // rows_each
        while start < total:
            # how many go on at once depends on the memory that is free now: a run that goes on has them as they were
            known = None if kept is None else kept.sizes()
            if known is not None:
                self._cut(known[1])
            together = max(1, (self.together if known is None else known[0]) // rows_each)
            rows = np.arange(start, min(start + together, total))
            try:
                outcome = compute(rows)
            except (jax.errors.JaxRuntimeError, OutOfMemory) as error:
                if not exhausted(error):
                    raise
                self._make_smaller(error, known is not None)
                if kept is not None:
                    kept.again()
                continue
            yield rows, outcome
            start += len(rows)

    def _cut(self, width: int) -> None:
        """Slices of this many runs from now on."""
        if width == self.width:
            return
        self.width = width
        if not self.task.options.blackbox:
            self.engine = engine_of(self.task, self.search, self.clock, width, len(self.keys))

    def _make_smaller(self, error: Exception, begun: bool) -> None:
        """Let fewer runs go on at once, as memory was not enough; refuse where that cannot be. begun: the batch goes on
        from a checkpoint.
        """
        runs, before = min(self.together, self.task.total), self.width
        if begun or processes.is_distributed() or self.task.options.blackbox or runs == 1:
            raise InputError(too_large(min(runs, before), self.task.population, error, begun)) from error
        if runs > before and not isinstance(error, OutOfMemory):
            self.fit = runs // 2
        else:
            share = 0.8 * error.free / error.needed if isinstance(error, OutOfMemory) else 0.5
            fewer = max(1, int(min(runs, before) * min(0.5, share)))
            if before == 1:
                raise InputError(too_large(before, self.task.population, error)) from error
            if devices.on_cpu():
                fewer = 2 ** int(math.log2(fewer))
            else:  # on an accelerator a slice is as large as memory allows
                self.fit = fewer
            self._cut(fewer)
        told = f"Not enough memory: continuing with {min(self.together, self.task.total)} runs at once"
        if self.width != before and devices.on_cpu():
            told += (
                f", in slices of {self.width} instead of {before}, so that a run may differ in its last bits from "
                "the same run on a machine with more memory"
            )
        warnings.warn(f"{told}.", stacklevel=2)

    def batch(
        self,
        rows: np.ndarray,
        watch: Watch,
        wanted: np.ndarray | None = None,
        exchange: Callable[[processes.ProcessShard], Between] | None = None,
        alone: bool = False,
    ) -> Outcome:
        """The outcome of these runs, in slices, which several processes share.

        wanted: only these places of the (one) slice. exchange: makes what the slices do between chunks. alone: this
        process computes all of them.
        """
        pieces = [rows[start : start + self.width] for start in range(0, len(rows), self.width)]
        share = processes.ProcessShard([len(piece) for piece in pieces], alone or wanted is not None)
        parts = [self._slice(pieces[i]) for i in share.batches]
        if wanted is not None:
            parts[0].wanted = wanted
        own = None
        if parts:
            own = drive(
                self.engine,
                parts,
                limit=int(self.task.rules.generations),
                watch=watch,
                keep_history=bool(self.task.options.keep.history),
                between=None if exchange is None else exchange(share),
            )
        if own is not None and not share.is_distributed:
            return own
        if own is not None:
            own = replace(own, history=fetched(own.history))
        told: list[tuple[Outcome | None, Any]] = processes.all_gather_object((own, watch.taken))
        watch.taken = _joined([taken for _, taken in told])
        return Outcome.join([found for found, _ in told if found is not None])

    def ahead(self) -> Iterator[None]:
        """Make the programs of its slices, one after the other."""
        return self.engine.ahead(self._slice(np.arange(min(self.width, len(self.keys)))))

    def _first_points(self, count: int) -> np.ndarray:
        """The first so many candidates of each run of the task, (runs, count, d)."""
        points = []
        for start in range(0, self.task.runs, self.width):
            part = self._slice(np.arange(start, min(start + self.width, self.task.runs)))
            carry = self.clock.call(Search.begin, (), part.search, part.keys, part.initial)
            points.append(np.asarray(carry.state.candidates, np.float64)[part.wanted, :count])
        return np.concatenate(points)

    def _slice(self, rows: np.ndarray) -> Slice:
        task, count = self.task, len(rows)
        if count < self.width:
            rows = np.concatenate([rows, np.repeat(rows[-1:], self.width - count)])
        rows = _span(rows)
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
    if not task.options.blackbox:
        yield None
        return
    assert isinstance(task.problem, Problem)
    box = BlackBox(
        task.problem,
        dtype=task.dtype,
        maximize=task.options.maximize,
        vectorized=task.options.vectorized,
        raise_failures=task.options.on_failure == "raise",
        workers=task.options.workers,
        remote=None if known is None else known.remote,
    )
    if known is not None:
        box.first, box.given, box.interrupted = dict(known.first), dict(known.first), known.interrupted
        box.probed = set(known.first)
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


def _span(rows: np.ndarray) -> Any:
    """The same rows, as a slice where they follow one another: of a hundred thousand no copy is made."""
    return slice(int(rows[0]), int(rows[-1]) + 1) if (np.diff(rows) == 1).all() else rows


def _of_rows(algorithm: Any, rows: Any) -> Any:
    """The hyper-parameters of these runs."""

    def pick(leaf: Any) -> Any:
        return leaf if is_shared(leaf) or not leaf.ndim else leaf[rows]

    return jax.tree.map(pick, algorithm, is_leaf=is_shared)
