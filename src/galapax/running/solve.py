"""Run a task in slices of its runs, in batches as large as memory allows, and make Results of what comes out."""

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
from galapax.core.problem import Problem
from galapax.core.stop import RUNNING, UNLIMITED, Stop
from galapax.engines.drive import Watch
from galapax.engines.interrupts import Interrupts, interrupts
from galapax.engines.outcome import Outcome, Polish, Track
from galapax.engines.programs import PROGRAMS, Clock
from galapax.evaluation.blackbox import BlackBox
from galapax.results.result import Result
from galapax.running.archipelago import archipelago
from galapax.running.assemble import Answers, result_of, settings_of, try_derived
from galapax.running.computation import Computation, black_box
from galapax.running.engines import choice
from galapax.running.fingerprint import fingerprint
from galapax.running.observers import Facts, Keeper, Observers, Progress, Waiting, watching
from galapax.running.polish import check_polish, compile_ahead, polish
from galapax.running.searches import searches
from galapax.running.task import Task
from galapax.running.together import of_this_process

FAILURES = 20  # points of a black box, all of them failed, from which there is a mistake in it


def solve(
    task: Task,
    observers: Observers = Observers(),
    began: float | None = None,
    known: BlackBox | None = None,
    so_far: Callable[[list[Result]], Any] = lambda results: results[0],
) -> tuple[list[Result], Stop | None]:
    """Run a task: the Result of each solver, and what stopped it early.

    Fewer results than solvers come back when it was stopped before a solver's first run. began: when the call did.
    known: the black box of an earlier attempt, which remembers what it was asked first. so_far: what an exception of
    the callback carries as its `result`, from these results.
    """
    began = time.perf_counter() if began is None else began
    observers = of_this_process(task, observers)
    # float64 is switched on for this run alone: importing or using galapax changes no setting of JAX
    with (
        interrupts() as noted,
        jax.enable_x64(task.dtype == "float64"),
        watching(observers, lambda: _facts(task)) as (show, session),
        black_box(task, known) as box,
        _kept(task, observers, noted) as journal,
        PROGRAMS.helped(),
    ):
        clock = Clock()
        engine = choice(task, clock)
        task = replace(task, engine=engine.name)
        check_polish(task)
        compile_ahead(task)
        try_derived(task)
        ready = time.perf_counter() - clock.compile_seconds  # as if a kernel, which is tried first, were compiled later
        watch = Watch(noted, snapshots=task.options.keep.snapshots, viewer=session, journal=journal)
        watch.callback = observers.callback is not None
        raised: list[Exception] = []
        if session is not None:
            watch.starts = session.on_batch_start
        if task.options.max_seconds is not None:
            watch.deadline = began + task.options.max_seconds
        if box is not None:
            box.late = watch.look
            box.recall(None if journal is None else journal.memory)
            if box.remote is not None:
                box.remote.liveness.on_wait = lambda seconds: show(Waiting(seconds))
        notifier = partial(_notifier, task, observers, _Clocks(began, ready, clock, watch), show, raised, box)
        if task.restarts is not None:
            watch.notify = notifier([])
            total, answers = searches(task, noted, clock, box, watch), Answers(task, box)
        elif task.options.islands is not None:
            watch.notify = notifier([])
            total, answers = archipelago(task, noted, clock, box, watch), Answers(task, box)
        else:
            run = Computation(task, noted, clock, box)
            total, answers = _every_run(run, watch, notifier), run.answers
        total = polish(task, clock, total, lambda: not (noted.seen or watch.late))
        done = time.perf_counter()
        starts = range(0, len(total.x), task.runs)
        cells = [total] if len(starts) == 1 else [total.of_runs(slice(k, k + task.runs)) for k in starts]
        compiled = clock.compile_seconds
        timings = {"compile": compiled, "run": done - ready - compiled - watch.held, "device": total.device_seconds}
        results = []
        for i, cell in enumerate(cells):
            own = task.of_cell(i)
            chosen = slice(i * task.runs, (i + 1) * task.runs)
            kept = {g: _snapshot(own, parts, chosen) for g, parts in sorted(watch.taken.items())}
            replay = partial(_replay, task, i * task.runs - task.first_run, total)
            results.append(result_of(own, cell, total.populations[i].population, kept, answers, replay))
        timings["host"] = time.perf_counter() - began - compiled - timings["run"] - watch.held
        timings |= {"held": watch.held} if watch.held else {}
        if (
            total.stopped is Stop.TIME
            and task.options.max_seconds is not None
            and compiled > task.options.max_seconds / 2
        ):
            for result in results:
                result["message"] = f"{result.message} Compiling alone took {compiled:.2g} s."
        for result in results:
            result["timings"] = dict(timings)
            result["engine"] = str(engine)
        stopped = total.stopped
        if noted.seen and stopped is None:
            stopped = Stop.INTERRUPT
            for result in results:
                result.late_interrupt()
        if session is not None:
            session.finish(results[0].message)
        if raised:
            raised[0].result = so_far(results)  # type: ignore[attr-defined]
            raise raised[0]
        return results, stopped


@contextmanager
def _kept(task: Task, observers: Observers, noted: Interrupts) -> Iterator[Keeper | None]:
    """What keeps the task in a file, if it is to be kept. It is then also ended like by Ctrl-C, with its last state in
    the file, when the system asks the process to end: batch systems do so before they kill it.
    """
    journal = observers.journal
    if journal is None:
        yield None
        return
    asked = False

    def note(signum: int, frame: Any) -> None:
        nonlocal asked
        asked = noted.seen = True
        if noted.at_once():
            raise KeyboardInterrupt

    alone = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if alone:
        signal.signal(signal.SIGTERM, note)
    try:
        journal.open(fingerprint(task), observers.title)
        yield journal
    finally:
        journal.close()
        if alone:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if asked:
            os.kill(os.getpid(), signal.SIGTERM)


def _every_run(run: Computation, watch: Watch, notifier: Callable[[list[Outcome]], Any]) -> Outcome:
    """All runs, those that memory has room for together."""
    outcomes: list[Outcome] = []

    def compute(rows: np.ndarray) -> Outcome:
        watch.notify = notifier(outcomes)
        watch.starts(run.task.first_run + int(rows[0]) % run.task.runs)
        return run.batch(rows, watch)

    for _, outcome in run.batches(watch.journal, compute):
        outcomes.append(outcome)
        if outcome.stopped is not None:
            break
    return Outcome.join(outcomes)


def _replay(task: Task, offset: int, total: Outcome, number: int) -> Result:
    """One run again, in a slice as large as it was computed in; where time, Ctrl-C or a callback ended it, to the same
    generation. offset: of the cell's first run among the task's, less the number of its first run.
    """
    row = number + offset
    rules = task.rules
    if total.stopped is not None:
        rules = rules._replace(generations=int(total.track.generations[row]))
    again = replace(task, rules=rules).with_options(max_seconds=None)
    clock = Clock()
    with interrupts() as noted, jax.enable_x64(task.dtype == "float64"), black_box(task) as box:
        began = time.perf_counter()
        watch = Watch(noted, snapshots=task.options.keep.snapshots)
        if task.restarts is not None:
            outcome, answers = searches(again, noted, clock, box, watch, row, total.sizes[row]), Answers(again, box)
        elif task.options.islands is not None:
            outcome, answers = archipelago(again, noted, clock, box, watch, row, total.sizes[row]), Answers(again, box)
        else:
            run = Computation(again, noted, clock, box, size=total.sizes[row][0])
            answers = run.answers
            first = row // run.width * run.width
            rows = np.arange(first, min(first + run.width, task.total))
            outcome = run.batch(rows, watch, wanted=np.array([row - first]))
        if isinstance(total.polish, Polish) and total.polish.evaluations[row]:
            outcome = polish(task, clock, outcome)
        elif total.polish is not None:
            outcome = replace(outcome, polish="not tried" if isinstance(total.polish, Polish) else total.polish)
        taken = time.perf_counter() - began
        alone = replace(task.of_cell(row // task.runs), rules=rules).with_options(runs=range(number, number + 1))
        kept = {g: _snapshot(alone, parts, slice(0, 1)) for g, parts in sorted(watch.taken.items())}
        (left,) = outcome.populations.values()
        result = result_of(alone, outcome, left.population, kept, answers, partial(_replay, task, offset, total))
    compiled = clock.compile_seconds
    result["timings"] = {"compile": compiled, "run": taken - compiled, "device": outcome.device_seconds, "host": 0.0}
    return result


def _snapshot(task: Task, parts: list[Population], chosen: slice) -> Population:
    """The populations of these runs out of all slices: (n, ...) for a single run, else (R, n, ...)."""
    populations = jax.tree.map(lambda *a: np.concatenate(a)[chosen], *parts)
    populations = populations._replace(objectives=task.sign * populations.objectives)
    return jax.tree.map(lambda a: a[0], populations) if task.runs == 1 else populations


@dataclass(frozen=True)
class _Clocks:
    """What tells the time of a run, and what of it went by without generations."""

    began: float
    ready: float  # when the first program could be compiled
    compiler: Clock
    watch: Watch

    def overhead(self) -> float:
        return self.ready - self.began + self.compiler.compile_seconds + self.watch.held


def _notifier(
    task: Task,
    observers: Observers,
    clocks: _Clocks,
    show: Callable[[Progress | Waiting], None],
    raised: list[Exception],
    box: BlackBox | None,
    earlier: list[Outcome],
) -> Callable[[int, Track], Stop | None]:
    """What the engine calls between chunks: tells progress line and callback, and says why to stop, if so.

    raised: gets what a callback raises, once the run has ended with what it has.
    """

    def state_of(track: Track) -> tuple[float, ...]:
        row = track.best_run
        return tuple(float(part[row]) for part in (track.violation, track.merit, track.best, track.hypervolume))

    before = sum(int(outcome.track.evaluations.sum()) for outcome in earlier)
    best_before = [state_of(o.track) for o in earlier]

    def notify(generation: int, track: Track) -> Stop | None:
        ended = (track.reason != RUNNING) | (track.generations >= task.rules.generations)
        violation, _, best, volume = min([*best_before, state_of(track)])
        state = Progress(
            generation=generation,
            generations=None if task.rules.generations == UNLIMITED else int(task.rules.generations),
            nfev=before + int(track.evaluations.sum()),
            fun=task.sign * best,
            hypervolume=None if math.isnan(volume) else volume,
            violation=violation,
            runs_done=sum(len(o.x) for o in earlier) + int(ended.sum()),
            runs=task.total,
            seconds=time.perf_counter() - clocks.began,
            overhead=clocks.overhead(),
            max_seconds=task.options.max_seconds,
            feasible_share=float(track.feasible_share.mean()) if task.problem.constrained else None,
            max_evaluations=None if task.evaluation_limit is None else task.evaluation_limit * task.total,
            restored=clocks.watch.restored,
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
            and failed >= FAILURES
        ):
            return Stop.FAILURES
        try:
            answer = observers.callback(state) if observers.callback is not None else None
        except Exception as error:  # goes on when the result is put together
            raised.append(error)
            return Stop.CALLBACK
        return Stop.CALLBACK if isinstance(answer, bool | np.bool_) and answer else None

    return notify


def _facts(task: Task) -> Facts:
    """What the live page must know of a task."""
    return Facts(
        problem=task.problem,
        settings=settings_of(task),
        population=task.population,
        generations=None if task.rules.generations == UNLIMITED else int(task.rules.generations),
        contours=not task.options.blackbox and isinstance(task.problem, Problem),
    )
