"""Run a task: choose the engine, compute its runs, polish the best points and assemble the Results."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from galapax.core.errors import EvaluationError
from galapax.core.evaluation import Population
from galapax.core.interrupts import Interrupts, interrupts
from galapax.core.problem import Problem
from galapax.core.stop import RUNNING, UNLIMITED, Stop
from galapax.execution.assemble import SolutionEvaluator, result_of, settings_of, validate_derived
from galapax.execution.batch_runner import BatchRunner, open_black_box
from galapax.execution.engine_selection import select_engine
from galapax.execution.fingerprint import fingerprint
from galapax.execution.host_loop import Watch
from galapax.execution.island_runs import run_islands
from galapax.execution.observers import (
    Facts,
    Keeper,
    Observers,
    Progress,
    Waiting,
    observers_for_process,
    open_observers,
)
from galapax.execution.polish import check_polish, polish, precompile_if_expected
from galapax.execution.restart_runs import run_with_restarts
from galapax.execution.state import Outcome, Polish, Track
from galapax.execution.task import Task
from galapax.numerics.compile_cache import PROGRAMS, CompileTimer
from galapax.objective.blackbox import BlackBox
from galapax.results.result import Result

MAX_INITIAL_FAILURES = 20  # evaluations of a black box, all failed, that stop the run


def solve(
    task: Task,
    observers: Observers = Observers(),
    began: float | None = None,
    previous: BlackBox | None = None,
    partial_result: Callable[[list[Result]], Any] = lambda results: results[0],
) -> tuple[list[Result], Stop | None]:
    """Run a task; return the Result of each solver, and why it stopped early, if it did.

    Fewer results than solvers come back when it was stopped before a solver's first run. began: when the call did.
    previous: the black box of an earlier attempt, with the points that it has evaluated. partial_result: builds, from
    these results, the `result` that an exception of the callback carries.
    """
    began = time.perf_counter() if began is None else began
    observers = observers_for_process(task, observers)
    # float64 is switched on for this run alone: importing or using galapax changes no setting of JAX
    with (
        interrupts() as interrupt_state,
        jax.enable_x64(task.dtype == "float64"),
        open_observers(observers, lambda: _page_facts(task)) as (show, session),
        open_black_box(task, previous) as box,
        _open_checkpoint(task, observers, interrupt_state) as journal,
        PROGRAMS.precompiling(),
    ):
        clock = CompileTimer()
        engine = select_engine(task, clock)
        task = replace(task, engine=engine.name)
        check_polish(task)
        precompile_if_expected(task)
        validate_derived(task)
        ready = time.perf_counter() - clock.compile_seconds  # as if a kernel, which is tried first, were compiled later
        watch = Watch(interrupt_state, snapshots=task.options.keep.snapshots, viewer=session, journal=journal)
        watch.callback = observers.callback is not None
        callback_errors: list[Exception] = []
        if session is not None:
            watch.starts = session.on_batch_start
        if task.options.max_seconds is not None:
            watch.deadline = began + task.options.max_seconds
        if box is not None:
            box.late = watch.look
            box.recall(None if journal is None else journal.memory)
            if box.remote is not None:
                box.remote.liveness.on_wait = lambda seconds: show(Waiting(seconds))
        build_notifier = partial(
            _build_notifier, task, observers, _Timings(began, ready, clock, watch), show, callback_errors, box
        )
        if task.restarts is not None:
            watch.notify = build_notifier([])
            total, evaluator = run_with_restarts(task, interrupt_state, clock, box, watch), SolutionEvaluator(task, box)
        elif task.options.islands is not None:
            watch.notify = build_notifier([])
            total, evaluator = run_islands(task, interrupt_state, clock, box, watch), SolutionEvaluator(task, box)
        else:
            runner = BatchRunner(task, interrupt_state, clock, box)
            total, evaluator = _run_independent(runner, watch, build_notifier), runner.evaluator
        total = polish(task, clock, total, lambda: not (interrupt_state.seen or watch.late))
        done = time.perf_counter()
        starts = range(0, len(total.x), task.runs)
        cells = [total] if len(starts) == 1 else [total.of_runs(slice(k, k + task.runs)) for k in starts]
        compile_seconds = clock.compile_seconds
        timings = {
            "compile": compile_seconds,
            "run": done - ready - compile_seconds - watch.held,
            "device": total.device_seconds,
        }
        results = []
        for i, cell in enumerate(cells):
            cell_task = task.of_cell(i)
            cell_rows = slice(i * task.runs, (i + 1) * task.runs)
            snapshots = {
                g: _merge_snapshot(cell_task, populations, cell_rows) for g, populations in sorted(watch.taken.items())
            }
            replay = partial(_replay, task, i * task.runs - task.first_run, total)
            results.append(result_of(cell_task, cell, total.populations[i].population, snapshots, evaluator, replay))
        timings["host"] = time.perf_counter() - began - compile_seconds - timings["run"] - watch.held
        timings |= {"held": watch.held} if watch.held else {}
        if (
            total.stopped is Stop.TIME
            and task.options.max_seconds is not None
            and compile_seconds > task.options.max_seconds / 2
        ):
            for result in results:
                result["message"] = f"{result.message} Compiling alone took {compile_seconds:.2g} s."
        for result in results:
            result["timings"] = dict(timings)
            result["engine"] = str(engine)
        stopped = total.stopped
        if interrupt_state.seen and stopped is None:
            stopped = Stop.INTERRUPT
            for result in results:
                result.late_interrupt()
        if session is not None:
            session.finish(results[0].message)
        if callback_errors:
            callback_errors[0].result = partial_result(results)  # type: ignore[attr-defined]
            raise callback_errors[0]
        return results, stopped


@contextmanager
def _open_checkpoint(task: Task, observers: Observers, interrupt_state: Interrupts) -> Iterator[Keeper | None]:
    """Open the checkpoint of a task, if there is to be one.

    SIGTERM, which batch systems send before they kill a process, then stops the run like Ctrl-C, with its last state in
    the file.
    """
    journal = observers.journal
    if journal is None:
        yield None
        return
    is_terminated = False

    def on_terminate(signum: int, frame: Any) -> None:
        nonlocal is_terminated
        is_terminated = interrupt_state.seen = True
        if interrupt_state.at_once():
            raise KeyboardInterrupt

    handles_signal = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
    if handles_signal:
        signal.signal(signal.SIGTERM, on_terminate)
    try:
        journal.open(fingerprint(task), observers.title)
        yield journal
    finally:
        journal.close()
        if handles_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if is_terminated:
            os.kill(os.getpid(), signal.SIGTERM)


def _run_independent(runner: BatchRunner, watch: Watch, build_notifier: Callable[[list[Outcome]], Any]) -> Outcome:
    """Compute independent runs, in batches as large as memory allows."""
    outcomes: list[Outcome] = []

    def compute(rows: np.ndarray) -> Outcome:
        watch.notify = build_notifier(outcomes)
        watch.starts(runner.task.first_run + int(rows[0]) % runner.task.runs)
        return runner.compute_batch(rows, watch)

    for _, outcome in runner.iterate_batches(watch.journal, compute):
        outcomes.append(outcome)
        if outcome.stopped is not None:
            break
    return Outcome.join(outcomes)


def _replay(task: Task, offset: int, total: Outcome, number: int) -> Result:
    """Repeat one run, in a slice of the same size; if time, Ctrl-C or a callback stopped it, to the same generation.

    offset: the row of the cell's first run in the task, less the number of that run.
    """
    row = number + offset
    rules = task.rules
    if total.stopped is not None:
        rules = rules._replace(generations=int(total.track.generations[row]))
    replay_task = replace(task, rules=rules).with_options(max_seconds=None)
    clock = CompileTimer()
    with interrupts() as interrupt_state, jax.enable_x64(task.dtype == "float64"), open_black_box(task) as box:
        began = time.perf_counter()
        watch = Watch(interrupt_state, snapshots=task.options.keep.snapshots)
        if task.restarts is not None:
            outcome, evaluator = (
                run_with_restarts(replay_task, interrupt_state, clock, box, watch, row, total.sizes[row]),
                SolutionEvaluator(replay_task, box),
            )
        elif task.options.islands is not None:
            outcome, evaluator = (
                run_islands(replay_task, interrupt_state, clock, box, watch, row, total.sizes[row]),
                SolutionEvaluator(replay_task, box),
            )
        else:
            runner = BatchRunner(replay_task, interrupt_state, clock, box, size=total.sizes[row][0])
            evaluator = runner.evaluator
            first = row // runner.width * runner.width
            rows = np.arange(first, min(first + runner.width, task.total))
            outcome = runner.compute_batch(rows, watch, active_rows=np.array([row - first]))
        if isinstance(total.polish, Polish) and total.polish.evaluations[row]:
            outcome = polish(task, clock, outcome)
        elif total.polish is not None:
            outcome = replace(outcome, polish="not tried" if isinstance(total.polish, Polish) else total.polish)
        seconds = time.perf_counter() - began
        run_task = replace(task.of_cell(row // task.runs), rules=rules).with_options(runs=range(number, number + 1))
        snapshots = {
            g: _merge_snapshot(run_task, populations, slice(0, 1)) for g, populations in sorted(watch.taken.items())
        }
        (survivors,) = outcome.populations.values()
        result = result_of(
            run_task, outcome, survivors.population, snapshots, evaluator, partial(_replay, task, offset, total)
        )
    compile_seconds = clock.compile_seconds
    result["timings"] = {
        "compile": compile_seconds,
        "run": seconds - compile_seconds,
        "device": outcome.device_seconds,
        "host": 0.0,
    }
    return result


def _merge_snapshot(task: Task, slices: list[Population], rows: slice) -> Population:
    """Return the populations of these rows of all slices: (n, ...) for a single run, else (R, n, ...)."""
    populations = jax.tree.map(lambda *a: np.concatenate(a)[rows], *slices)
    populations = populations._replace(objectives=task.sign * populations.objectives)
    return jax.tree.map(lambda a: a[0], populations) if task.runs == 1 else populations


@dataclass(frozen=True)
class _Timings:
    """The clocks of a run, to tell how much of its time was spent without computing generations."""

    began: float
    ready: float  # when the first program could be compiled
    compiler: CompileTimer
    watch: Watch

    def overhead(self) -> float:
        return self.ready - self.began + self.compiler.compile_seconds + self.watch.held


def _build_notifier(
    task: Task,
    observers: Observers,
    timings: _Timings,
    show: Callable[[Progress | Waiting], None],
    callback_errors: list[Exception],
    box: BlackBox | None,
    earlier: list[Outcome],
) -> Callable[[int, Track], Stop | None]:
    """Build the function that is called between chunks: it reports progress and returns why to stop, if so.

    callback_errors: receives what the callback raises; it is raised again once the result is assembled.
    """

    def best_state(track: Track) -> tuple[float, ...]:
        row = track.best_run
        return tuple(float(values[row]) for values in (track.violation, track.merit, track.best, track.hypervolume))

    earlier_evaluations = sum(int(outcome.track.evaluations.sum()) for outcome in earlier)
    earlier_best = [best_state(o.track) for o in earlier]

    def notify(generation: int, track: Track) -> Stop | None:
        has_ended = (track.reason != RUNNING) | (track.generations >= task.rules.generations)
        violation, _, best, volume = min([*earlier_best, best_state(track)])
        state = Progress(
            generation=generation,
            generations=None if task.rules.generations == UNLIMITED else int(task.rules.generations),
            nfev=earlier_evaluations + int(track.evaluations.sum()),
            fun=task.sign * best,
            hypervolume=None if math.isnan(volume) else volume,
            violation=violation,
            runs_done=sum(len(o.x) for o in earlier) + int(has_ended.sum()),
            runs=task.total,
            seconds=time.perf_counter() - timings.began,
            overhead=timings.overhead(),
            max_seconds=task.options.max_seconds,
            feasible_share=float(track.feasible_share.mean()) if task.problem.constrained else None,
            max_evaluations=None if task.evaluation_limit is None else task.evaluation_limit * task.total,
            restored=timings.watch.restored,
            runs_before=sum(len(o.x) for o in earlier),
            runs_together=len(track.best),
        )
        show(state)
        failed = int(track.failed.sum())
        if task.options.on_failure == "raise" and failed:
            raise EvaluationError(
                f"fun or a constraint returned NaN or inf at {failed} of the {state.nfev} points evaluated so far."
            )
        if box is not None and box.interrupted:
            return Stop.INTERRUPT
        if box is not None and box.halted:
            return Stop.WORKERS
        # what is traced was tried before, and had a value somewhere
        if (
            task.options.on_failure is None
            and task.options.blackbox
            and not np.isfinite(track.best).any()
            and failed >= MAX_INITIAL_FAILURES
            and not (box is not None and box.returns_penalties)
        ):
            return Stop.FAILURES
        try:
            reply = observers.callback(state) if observers.callback is not None else None
        except Exception as error:  # goes on when the result is put together
            callback_errors.append(error)
            return Stop.CALLBACK
        return Stop.CALLBACK if isinstance(reply, bool | np.bool_) and reply else None

    return notify


def _page_facts(task: Task) -> Facts:
    """Return the facts of a task that the live page shows."""
    return Facts(
        problem=task.problem,
        settings=settings_of(task),
        population=task.population,
        generations=None if task.rules.generations == UNLIMITED else int(task.rules.generations),
        contours=not task.options.blackbox and isinstance(task.problem, Problem),
    )
