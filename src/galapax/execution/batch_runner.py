"""Compute the runs of a task in batches, cut into slices of one size."""

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
from galapax.core.interrupts import Interrupts
from galapax.core.problem import Problem
from galapax.execution.assemble import SolutionEvaluator
from galapax.execution.engine_selection import build_engine
from galapax.execution.host import AsyncHostEngine, HostEngine
from galapax.execution.host_loop import ChunkHook, Engine, Slice, Watch, run_batch
from galapax.execution.memory import check_memory, is_out_of_memory, out_of_memory_message
from galapax.execution.search import Search
from galapax.execution.slices import width
from galapax.execution.state import CheckpointWriter, Outcome, to_host
from galapax.execution.task import Task, check_shape
from galapax.numerics import devices, processes, random
from galapax.numerics.compile_cache import CompileTimer
from galapax.objective.blackbox import BlackBox, ObjectiveShapeMismatch


class BatchRunner:
    """Computes the runs of a task in batches that fit into memory, each cut into slices of one size.

    clock: measures compile time. box: evaluates a black box. search, keys, cells: of all runs, where they do not follow
    from the task. size: runs of a slice, instead of the usual number.
    """

    def __init__(
        self,
        task: Task,
        interrupts: Interrupts,
        clock: CompileTimer,
        box: BlackBox | None,
        *,
        search: Search | None = None,
        keys: np.ndarray | None = None,
        cells: np.ndarray | None = None,
        size: int | None = None,
    ) -> None:
        self.task, self.clock = task, clock
        self.search = task.search() if search is None else search
        n_cells = task.total // task.runs
        self.runs = np.tile(np.arange(task.runs), n_cells)
        if keys is None:
            keys = np.tile(random.run_keys(task.seed, task.first_run, task.runs), (n_cells, 1))
        self.keys = keys
        self.cells = np.repeat(np.arange(n_cells), task.runs) if cells is None else cells
        self.runs_that_fit = check_memory(task)
        is_native = task.engine == "native"
        if size is not None:
            self.width = size
        elif task.is_single_run:
            self.width = 1
        else:
            self.width = width(task.bound[0], task.problem.dim, task.total, self.runs_that_fit, is_native)
        self.engine: Engine
        if box is not None:

            def check_objective_shape(shape: Shape) -> None:
                expected = 2 if task.solvers[0].traits.multi_objective else 1
                has_other_objectives = task.objectives_unknown and shape.objectives > 1 and shape.objectives != expected
                if has_other_objectives or (shape.constrained and not task.problem.constrained):
                    raise ObjectiveShapeMismatch(box, self._first_points(box.n_probed) if box.n_probed else None)
                check_shape(task, shape)

            self.engine = (AsyncHostEngine if task.options.workers.asynchronous else HostEngine)(
                box, self.clock, interrupts, check_objective_shape, task.n_probes
            )
        else:
            self.engine = build_engine(task, self.search, self.clock, self.width, len(self.keys))
        self.evaluator = SolutionEvaluator(task, box)

    @property
    def max_concurrent_runs(self) -> int:
        """How many runs are computed at once: whole slices, as many as memory allows."""
        return max(1, self.runs_that_fit // self.width) * self.width

    def iterate_batches(
        self, journal: CheckpointWriter | None, compute: Callable[[np.ndarray], Outcome], rows_each: int = 1
    ) -> Iterator[tuple[np.ndarray, Outcome]]:
        """Yield the rows and the outcome of each batch, with smaller batches after memory was exhausted.

        rows_each: rows of the computation that belong to one run.
        """
        start, total = 0, self.task.total // rows_each
        while start < total:
            # the batch size depends on the memory that is free now, so a resumed run takes it from its checkpoint
            saved_sizes = None if journal is None else journal.sizes()
            if saved_sizes is not None:
                self._set_width(saved_sizes[1])
            n_runs = max(1, (self.max_concurrent_runs if saved_sizes is None else saved_sizes[0]) // rows_each)
            rows = np.arange(start, min(start + n_runs, total))
            try:
                outcome = compute(rows)
            except (jax.errors.JaxRuntimeError, OutOfMemory) as error:
                if not is_out_of_memory(error):
                    raise
                self._reduce_batch_size(error, saved_sizes is not None)
                if journal is not None:
                    journal.restart_batch()
                continue
            yield rows, outcome
            start += len(rows)

    def _set_width(self, width: int) -> None:
        """Use slices of this many runs from now on."""
        if width == self.width:
            return
        self.width = width
        if not self.task.options.blackbox:
            self.engine = build_engine(self.task, self.search, self.clock, width, len(self.keys))

    def _reduce_batch_size(self, error: Exception, is_resumed: bool) -> None:
        """Compute fewer runs at once after memory was exhausted; refuse where that is impossible.

        is_resumed: the batch continues from a checkpoint, whose slices cannot change.
        """
        runs, old_width = min(self.max_concurrent_runs, self.task.total), self.width
        if is_resumed or processes.is_distributed() or self.task.options.blackbox or runs == 1:
            raise InputError(
                out_of_memory_message(min(runs, old_width), self.task.population, error, is_resumed)
            ) from error
        if runs > old_width and not isinstance(error, OutOfMemory):
            self.runs_that_fit = runs // 2
        else:
            share = 0.8 * error.free / error.needed if isinstance(error, OutOfMemory) else 0.5
            new_width = max(1, int(min(runs, old_width) * min(0.5, share)))
            if old_width == 1:
                raise InputError(out_of_memory_message(old_width, self.task.population, error)) from error
            if devices.on_cpu():
                new_width = 2 ** int(math.log2(new_width))
            else:  # on an accelerator a slice is as large as memory allows
                self.runs_that_fit = new_width
            self._set_width(new_width)
        message = f"Not enough memory: continuing with {min(self.max_concurrent_runs, self.task.total)} runs at once"
        if self.width != old_width and devices.on_cpu():
            message += (
                f", in slices of {self.width} instead of {old_width}, so that a run may differ in its last bits from "
                "the same run on a machine with more memory"
            )
        warnings.warn(f"{message}.", stacklevel=2)

    def compute_batch(
        self,
        rows: np.ndarray,
        watch: Watch,
        active_rows: np.ndarray | None = None,
        exchange: Callable[[processes.ProcessShard], ChunkHook] | None = None,
        is_local: bool = False,
    ) -> Outcome:
        """Compute these runs in slices, which are shared among the processes, and return their outcome.

        active_rows: only these rows of the (one) slice. exchange: builds what the slices do between chunks. is_local:
        this process computes all of them.
        """
        slice_rows = [rows[start : start + self.width] for start in range(0, len(rows), self.width)]
        share = processes.ProcessShard([len(r) for r in slice_rows], is_local or active_rows is not None)
        slices = [self._build_slice(slice_rows[i]) for i in share.batches]
        if active_rows is not None:
            slices[0].wanted = active_rows
        outcome = None
        if slices:
            outcome = run_batch(
                self.engine,
                slices,
                limit=int(self.task.rules.generations),
                watch=watch,
                keep_history=bool(self.task.options.keep.history),
                between=None if exchange is None else exchange(share),
            )
        if outcome is not None and not share.is_distributed:
            return outcome
        if outcome is not None:
            outcome = replace(outcome, history=to_host(outcome.history))
        gathered: list[tuple[Outcome | None, Any]] = processes.all_gather_object((outcome, watch.taken))
        watch.taken = _merge_snapshots([snapshots for _, snapshots in gathered])
        return Outcome.join([process_outcome for process_outcome, _ in gathered if process_outcome is not None])

    def precompile(self) -> Iterator[None]:
        """Compile the programs of its slices, one at each step of the iterator."""
        return self.engine.precompile(self._build_slice(np.arange(min(self.width, len(self.keys)))))

    def _first_points(self, count: int) -> np.ndarray:
        """Return the first `count` candidates of each run of the task, (runs, count, d)."""
        points = []
        for start in range(0, self.task.runs, self.width):
            slice_ = self._build_slice(np.arange(start, min(start + self.width, self.task.runs)))
            carry = self.clock.call(Search.begin, (), slice_.search, slice_.keys, slice_.initial)
            points.append(np.asarray(carry.state.candidates, np.float64)[slice_.wanted, :count])
        return np.concatenate(points)

    def _build_slice(self, rows: np.ndarray) -> Slice:
        task, count = self.task, len(rows)
        if count < self.width:
            rows = np.concatenate([rows, np.repeat(rows[-1:], self.width - count)])
        rows = _as_slice(rows)
        initial, dtype = task.initial, np.dtype(task.dtype)
        if initial is not None:
            bounds = self.search.bounds
            initial = (initial[self.runs[rows]] if initial.ndim == 3 else initial).astype(dtype)
            initial = np.clip(initial, bounds.lower, bounds.upper)
        rules = self.search.rules
        if np.ndim(rules.evaluations):
            rules = rules._replace(evaluations=rules.evaluations[rows])
        search = replace(self.search, algorithm=_select_hyperparameters(self.search.algorithm, rows), rules=rules)
        return Slice(search, self.keys[rows], self.cells[rows], initial, np.arange(count))


@contextmanager
def open_black_box(task: Task, previous: BlackBox | None = None) -> Iterator[BlackBox | None]:
    """Open the evaluator of a black box, None for a traced task. previous: that of an earlier attempt."""
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
        remote=None if previous is None else previous.remote,
        log=None if previous is None else previous.log,
    )
    if previous is not None:
        box.interrupted = previous.interrupted
        box.log.reopen()
    try:
        yield box
    except ObjectiveShapeMismatch:  # its workers serve the next attempt
        raise
    except BaseException:
        box.close()
        raise
    box.close()


def _merge_snapshots(snapshots: list[dict[int, list[Any]]]) -> dict[int, list[Any]]:
    """Merge the snapshots of all processes, by generation."""
    generations = sorted({g for by_generation in snapshots for g in by_generation})  # a process may have no slices
    return {g: [p for by_generation in snapshots for p in by_generation.get(g, [])] for g in generations}


def _as_slice(rows: np.ndarray) -> Any:
    """Return consecutive rows as a slice, so that indexing a hundred thousand copies nothing."""
    return slice(int(rows[0]), int(rows[-1]) + 1) if (np.diff(rows) == 1).all() else rows


def _select_hyperparameters(algorithm: Any, rows: Any) -> Any:
    """Select the hyper-parameters of these runs."""

    def pick(leaf: Any) -> Any:
        return leaf if is_shared(leaf) or not leaf.ndim else leaf[rows]

    return jax.tree.map(pick, algorithm, is_leaf=is_shared)
