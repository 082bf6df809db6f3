"""Compute groups of runs in batches that fit into memory, each cut into slices of one size."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax import Array

from galapax.core.algorithm import TakesKnownValues, is_shared
from galapax.core.errors import InputError, OutOfMemory, format_bytes
from galapax.core.problem import Problem
from galapax.core.stop import Interrupts
from galapax.execution.arguments import (
    check_memory,
    is_out_of_memory,
    out_of_memory_message,
    pad_slice_width,
    slice_width,
)
from galapax.execution.compiled import build_engine
from galapax.execution.host import AsyncHostEngine, HostEngine
from galapax.execution.host_loop import BatchView, ChunkHook, Engine, RunContext, Slice, run_batch
from galapax.execution.search import Search
from galapax.execution.state import BatchCheckpoint, Outcome, to_host
from galapax.execution.task import Task, check_shape
from galapax.numerics import devices
from galapax.objective.blackbox import BlackBox

PROBE_POINTS = 4  # that are called at a time to learn the shape, as many as the smallest population has


@dataclass
class Group:
    """Runs whose next searches are the same program.

    task: of these searches. search: of all rows. Its hyper-parameters that differ have one value for each row.
    keys: (rows, 2). cells: (rows,), which rows share their hyper-parameters. run_numbers: (rows,). initial: starting
    points (k, d) or (rows, k, d). rows_per_run: rows that belong to one run; the rows are in order of these parts, then
    runs. width: rows of a slice; None chooses it. active_rows: where only some rows of the one slice are to be
    computed. exchange: builds what the slices do between chunks. is_local: this process computes all of them.
    """

    task: Task
    search: Search
    keys: np.ndarray
    cells: np.ndarray
    run_numbers: np.ndarray
    initial: np.ndarray | None
    rows_per_run: int = 1
    width: int | None = None
    active_rows: np.ndarray | None = None
    exchange: Callable[[devices.ProcessShard], ChunkHook] | None = None
    is_local: bool = False

    @property
    def n_runs(self) -> int:
        return len(self.keys) // self.rows_per_run

    def rows_of(self, runs: np.ndarray) -> np.ndarray:
        """Return the rows of these runs."""
        return np.concatenate([i * self.n_runs + runs for i in range(self.rows_per_run)])


class BatchRunner:
    """Computes the runs of a group in batches that fit into memory, each cut into slices of one size."""

    def __init__(self, group: Group, context: RunContext) -> None:
        task = group.task
        self.group, self.task, self.search, self.context = group, task, group.search, context
        self.runs_that_fit = check_memory(task)
        if group.width is not None:
            self.width = group.width
        elif task.is_single_run:
            self.width = 1
        else:
            is_native = task.engine == "native"
            self.width = slice_width(task.bound[0], task.problem.dim, task.total, self.runs_that_fit, is_native)
            if task.restarts is not None and not devices.on_cpu():
                self.width = min(pad_slice_width(self.width), self.runs_that_fit)
        self.engine: Engine
        if context.box is not None:
            engine_type = AsyncHostEngine if task.options.workers.asynchronous else HostEngine
            self.engine = engine_type(context.box, context.clock)
        else:
            self.engine = build_engine(task, self.search, context.clock, self.width, len(group.keys))
        if self.max_concurrent_rows < min(group.rows_per_run, len(group.keys)):
            raise InputError(
                f"{group.rows_per_run} islands with a population of {task.population} each do not fit into the "
                f"{format_bytes(devices.free_memory())} that are free: take fewer islands or a smaller population."
            )

    def _check_shape(self, box: BlackBox) -> None:
        """Refuse an algorithm that does not fit what a black box returned."""
        if box.shape.constrained and not self.task.problem.constrained:
            raise InputError(
                f"fun of {self.task.problem.name!r} returns constraints together with its value, which only a call can "
                "show: minimize takes them; for anything else give ineq and eq as functions."
            )
        check_shape(self.task, box.shape)

    @property
    def max_concurrent_rows(self) -> int:
        """How many rows are computed at once: whole slices, as many as memory allows."""
        return max(1, self.runs_that_fit // self.width) * self.width

    def iterate_batches(self, compute: Callable[[np.ndarray], Outcome]) -> Iterator[tuple[np.ndarray, Outcome]]:
        """Yield the runs and the outcome of each batch, with smaller batches after memory was exhausted."""
        start, total, journal = 0, self.group.n_runs, self.context.journal
        while start < total:
            # the batch size depends on the memory that is free now, so a resumed run takes it from its checkpoint
            saved_sizes = None if journal is None else journal.sizes()
            if saved_sizes is not None:
                self._set_width(saved_sizes[1])
            n_rows = self.max_concurrent_rows if saved_sizes is None else saved_sizes[0]
            runs = np.arange(start, min(start + max(1, n_rows // self.group.rows_per_run), total))
            try:
                outcome = compute(runs)
            except (jax.errors.JaxRuntimeError, OutOfMemory) as error:
                if not is_out_of_memory(error):
                    raise
                self._reduce_batch_size(error, saved_sizes is not None)
                if journal is not None:
                    journal.restart_batch()
                continue
            yield runs, outcome
            start += len(runs)

    def _set_width(self, width: int) -> None:
        """Use slices of this many rows from now on."""
        if width == self.width:
            return
        self.width = width
        if not self.task.options.blackbox:
            self.engine = build_engine(self.task, self.search, self.context.clock, width, len(self.group.keys))

    def _reduce_batch_size(self, error: Exception, is_resumed: bool) -> None:
        """Compute fewer runs at once after memory was exhausted; refuse where that is impossible.

        is_resumed: the batch continues from a checkpoint, whose slices cannot change.
        """
        rows, old_width = min(self.max_concurrent_rows, self.task.total), self.width
        if is_resumed or devices.is_distributed() or self.task.options.blackbox or rows == 1:
            raise InputError(
                out_of_memory_message(min(rows, old_width), self.task.population, error, is_resumed)
            ) from error
        if rows > old_width and not isinstance(error, OutOfMemory):
            self.runs_that_fit = rows // 2
        else:
            share = 0.8 * error.free / error.needed if isinstance(error, OutOfMemory) else 0.5
            new_width = max(1, int(min(rows, old_width) * min(0.5, share)))
            if old_width == 1:
                raise InputError(out_of_memory_message(old_width, self.task.population, error)) from error
            if devices.on_cpu():
                new_width = 2 ** int(math.log2(new_width))
            else:  # on an accelerator a slice is as large as memory allows
                self.runs_that_fit = new_width
            self._set_width(new_width)
        message = f"Not enough memory: continuing with {min(self.max_concurrent_rows, self.task.total)} runs at once"
        if self.width != old_width and devices.on_cpu():
            message += (
                f", in slices of {self.width} instead of {old_width}, so that a run may differ in its last bits from "
                "the same run on a machine with more memory"
            )
        warnings.warn(f"{message}.", stacklevel=2)

    def compute_batch(self, runs: np.ndarray, view: BatchView) -> Outcome:
        """Compute these runs in slices, which are shared among the processes, and return the outcome of their rows."""
        group = self.group
        if self.context.box is not None:
            with self.context.saving_calls():
                self.learn_shape(self.context.box)
                self._check_shape(self.context.box)
        rows = group.rows_of(runs)
        slice_rows = [rows[start : start + self.width] for start in range(0, len(rows), self.width)]
        share = devices.ProcessShard([len(r) for r in slice_rows], group.is_local)
        slices = [self._build_slice(slice_rows[i]) for i in share.slices]
        outcome = None
        if slices:
            outcome = run_batch(
                self.engine,
                slices,
                limit=int(self.task.rules.generations),
                context=self.context,
                keep_history=bool(self.task.options.keep.history),
                view=view,
                between=None if group.exchange is None else group.exchange(share),
            )
        if outcome is not None and not share.is_distributed:
            return outcome
        if outcome is not None:
            outcome = replace(outcome, history=to_host(outcome.history))
        gathered: list[Outcome | None] = devices.all_gather_object(outcome)
        return Outcome.join([process_outcome for process_outcome in gathered if process_outcome is not None])

    def precompile(self) -> Iterator[None]:
        """Compile the programs of its slices, one at each step of the iterator."""
        return self.engine.precompile(self._build_slice(np.arange(min(self.width, len(self.group.keys)))))

    def learn_shape(self, box: BlackBox) -> None:
        """Call first candidates of the runs until one has a value, so that `box.shape` is known.

        The first generation takes what came of them from the log: no call is made twice. Workers and vectorized
        functions are given all candidates at once.
        """
        if box.widths:
            return
        self.context.pending = lambda: BatchCheckpoint(0, [], [], [], {}, box=box.memory())
        self._call_first_candidates(box)
        if not box.widths:
            box.learn_widths_from_failures()

    def _call_first_candidates(self, box: BlackBox) -> None:
        """Call first candidates until one has a value, or the run ends."""
        n_rows = min(self.max_concurrent_rows, len(self.group.keys))
        box.check_workers(n_rows * self.task.population)
        first_candidates = self._first_candidates(n_rows)
        takes_all = box.remote is not None or box.functions.vectorized
        if takes_all:
            candidates, run_numbers = (np.concatenate(arrays) for arrays in zip(*first_candidates, strict=True))
            first_candidates = iter([(candidates, run_numbers)])
        n_called = 0
        for candidates, run_numbers in first_candidates:
            points, runs = candidates.reshape(-1, candidates.shape[-1]), np.repeat(run_numbers, candidates.shape[1])
            size = len(points) if takes_all else PROBE_POINTS
            for start in range(0, len(points), size):
                is_late = n_called > 0 and box.late()  # a run without time makes one generation
                if box.widths or box.interrupted or box.halt_reason or is_late:
                    return
                n_called += size
                box.probe(points[start : start + size], runs[start : start + size])

    def first_points(self) -> np.ndarray:
        """Return the first candidates of each run of the task, (runs, k, d): all of them, however many were called, so
        that a run is the same with workers and without.
        """
        return np.concatenate([candidates for candidates, _ in self._first_candidates(self.task.runs)])

    def _first_candidates(self, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the first candidates (r, k, d) of each slice's runs, within the budget, and the runs' numbers (r,)."""
        evaluations = self.task.rules.evaluations
        count = int(min(self.task.population, math.inf if evaluations is None else np.min(evaluations)))
        for start in range(0, n_rows, self.width):
            slice_ = self._build_slice(np.arange(start, min(start + self.width, n_rows)))
            carry = self.context.clock.call(Search.begin, (), slice_.search, slice_.keys, slice_.initial, slice_.known)
            rows = slice_.active_rows
            yield np.array(carry.state.candidates, np.float64)[rows, :count], slice_.run_numbers[rows]

    def _build_slice(self, rows: np.ndarray) -> Slice:
        group, count = self.group, len(rows)
        if count < self.width:
            rows = np.concatenate([rows, np.repeat(rows[-1:], self.width - count)])
        chosen = _as_slice(rows)
        initial = group.initial
        if initial is not None:
            bounds = self.search.bounds
            initial = (initial[chosen] if initial.ndim == 3 else initial).astype(self.task.dtype)
            initial = np.clip(initial, bounds.lower, bounds.upper)
        search, known = select_rows(self.search, chosen), group.task.known
        if known is not None:
            known = known.astype(self.task.dtype)
        if known is not None and not isinstance(search.algorithm, TakesKnownValues):
            first = known.choose_first(search.algorithm.population)
            initial, known = (first if len(first) else None), None
        columns = (group.keys[chosen], group.cells[chosen], group.run_numbers[chosen])
        active_rows = np.arange(count) if group.active_rows is None else group.active_rows
        return Slice(search, *columns, initial, known, active_rows)


def select_rows(search: Search, rows: slice | np.ndarray) -> Search:
    """Return the search of these rows: their hyper-parameters and rules."""

    def pick(leaf: Array) -> Array:
        return leaf if is_shared(leaf) or not leaf.ndim else leaf[rows]

    algorithm = jax.tree.map(pick, search.algorithm, is_leaf=is_shared)
    return replace(search, algorithm=algorithm, rules=search.rules.of_runs(rows))


@contextmanager
def open_black_box(task: Task, interrupts: Interrupts) -> Iterator[BlackBox | None]:
    """Open the evaluator of a black box, None for a traced task. interrupts: raise at once in the user's code."""
    if not task.options.blackbox:
        yield None
        return
    assert isinstance(task.problem, Problem)
    box = BlackBox(
        task.problem,
        dtype=task.dtype,
        maximize=task.options.maximize,
        vectorized=task.options.vectorized,
        on_failure=task.options.on_failure,
        workers=task.options.workers,
    )
    if task.known is not None:
        box.add_known(task.known.x, task.options.initial.answers(), task.options.initial.widths)
    interrupts.raises = lambda: box.calling
    try:
        yield box
    finally:
        box.close()


def _as_slice(rows: np.ndarray) -> slice | np.ndarray:
    """Return consecutive rows as a slice, so that indexing a hundred thousand copies nothing."""
    return slice(int(rows[0]), int(rows[-1]) + 1) if (np.diff(rows) == 1).all() else rows
