"""Run a task: choose the engine, compute its runs, polish the best points and assemble the Results."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax import Array

from galapax import algorithms
from galapax.algorithms.archive import Archived
from galapax.algorithms.minmax_cde import Payoff
from galapax.core.algorithm import Algorithm, Shared
from galapax.core.errors import EvaluationError
from galapax.core.options import LEAVES, read
from galapax.core.problem import MinMaxProblem, Problem, Shape
from galapax.core.space import VectorFunction
from galapax.core.stop import RUNNING, UNLIMITED, Interrupts, Stop, interrupts
from galapax.execution.assemble import SolutionEvaluator, result_of, settings_of, validate_derived
from galapax.execution.batch_runner import BatchRunner, open_black_box
from galapax.execution.compiled import select_engine
from galapax.execution.host_loop import RunContext
from galapax.execution.island_schedule import IslandSchedule
from galapax.execution.observers import (
    Best,
    Facts,
    Observers,
    Progress,
    Waiting,
    observers_for_process,
    open_observers,
    read_best,
)
from galapax.execution.polish import (
    check_polish,
    estimate_answers,
    polish_answers,
    precompile_if_expected,
    recheck_answers,
)
from galapax.execution.schedules import IndependentSchedule, RestartSchedule, Schedule, run_schedule
from galapax.execution.state import CheckpointSession, Outcome, Polish, Track, best_of_run
from galapax.execution.task import NOISY_SEARCH_SHARE, Task
from galapax.numerics import devices
from galapax.numerics.compile_cache import PROGRAMS, CompileTimer
from galapax.objective.blackbox import BlackBox
from galapax.results.result import Result, record_late_interrupt, record_start
from galapax.version import __version__

MAX_INITIAL_FAILURES = 20  # evaluations of a black box, all failed, that stop the run


def solve(
    task: Task,
    observers: Observers = Observers(),
    began: float | None = None,
    adapt: Callable[[Shape, Callable[[], np.ndarray]], Task | None] | None = None,
    partial_result: Callable[[list[Result]], object] = lambda results: results[0],
) -> tuple[list[Result], Stop | None]:
    """Run a task; return the Result of each solver, and why it stopped early, if it did.

    Fewer results than solvers come back when it was stopped before a solver's first run. began: when the call did.
    adapt: of a black box, returns the task that fits the numbers its first calls gave, None if this one does; the other
    argument returns the first candidates that were drawn until then, (runs, k, d). partial_result: builds, from the
    results, the `result` that an exception of the callback carries.
    """
    began = time.perf_counter() if began is None else began
    observers = observers_for_process(task, observers)
    # float64 is switched on for this run alone: importing or using galapax changes no setting of JAX
    with (
        interrupts() as interrupt_state,
        jax.enable_x64(task.dtype == "float64"),
        ExitStack() as viewers,
        open_black_box(task, interrupt_state) as box,
        open_checkpoint(task, observers, interrupt_state) as journal,
        PROGRAMS.precompiling(),
    ):
        clock = CompileTimer()
        context = RunContext(interrupt_state, clock, box, snapshots=task.options.keep.snapshots, journal=journal)
        if task.options.max_seconds is not None:
            share = NOISY_SEARCH_SHARE if task.options.noisy else 1.0
            context.deadline = began + share * task.options.max_seconds
        show, session = viewers.enter_context(open_observers(observers, lambda: _page_facts(task)))
        if box is not None:
            box.late = context.poll
            box.recall(None if journal is None else journal.memory)
            if box.remote is not None:
                box.remote.liveness.on_wait = lambda seconds: show(Waiting(seconds))
            adapted = None if adapt is None else _adapt_to_shape(task, context, box, adapt)
            if adapted is not None:
                task, observers = adapted, observers.about(adapted)
                viewers.close()
                show, session = viewers.enter_context(open_observers(observers, lambda: _page_facts(task)))
                if journal is not None:
                    journal.open(fingerprint(task), observers.title)
                    box.recall(journal.memory)
        engine = select_engine(task, clock)
        task = replace(task, engine=engine.name)
        check_polish(task)
        precompile_if_expected(task)
        validate_derived(task)
        # as if kernels, which are tried first, were compiled later, and first points called in the first generation
        ready = time.perf_counter() - clock.compile_seconds - (0.0 if box is None else box.probe_seconds)
        context.viewer, context.callback = session, observers.callback is not None
        context.pace = getattr(observers.callback, "generations_between_calls", None)
        if session is not None:
            context.on_batch_start, context.on_search = session.on_batch_start, session.on_search
        timings = _Timings(began, ready, clock, context)
        context.notify = notifier = _Notifier(task, observers, timings, show, box)
        schedule = build_schedule(task, context)
        total = run_schedule(schedule, context)
        if task.options.max_seconds is not None:
            context.deadline = began + task.options.max_seconds
        total = polish_answers(task, clock, total, context.may_continue)
        numbers = task.first_run + np.arange(len(total.x)) % task.runs
        total = recheck_answers(task, total, numbers, box)
        total = estimate_answers(task, total, numbers, box, context.may_continue)
        if session is not None and (isinstance(total.polish, Polish) or total.estimate is not None):
            session.on_answers(total)
        timings.done = time.perf_counter()
        results = _build_results(task, schedule, total, SolutionEvaluator(task, box))
        _add_timings(results, task, total, timings, str(engine))
        stopped = total.stopped
        if interrupt_state.seen and stopped is None:
            stopped = Stop.INTERRUPT
            for result in results:
                record_late_interrupt(result)
        if session is not None:
            session.finish(results[0].message)
        if notifier.callback_error is not None:
            notifier.callback_error.result = partial_result(results)  # type: ignore[attr-defined]
            raise notifier.callback_error
        return results, stopped


def _adapt_to_shape(
    task: Task,
    context: RunContext,
    box: BlackBox,
    adapt: Callable[[Shape, Callable[[], np.ndarray]], Task | None],
) -> Task | None:
    """Call first points of a black box, to know how many numbers it gives; return the task it needs, if another."""
    runner = BatchRunner(build_schedule(task, context).next_groups()[0], context)
    runner.learn_shape(box)
    adapted = adapt(box.shape, runner.first_points)
    if adapted is None:
        return None
    assert isinstance(adapted.problem, Problem)
    if context.journal is not None:
        context.journal.save(context.pending())  # so that a resumed run need not call these points again
    box.adapt(adapted.problem)
    return adapted


def build_schedule(task: Task, context: RunContext) -> Schedule:
    """Return the schedule of a task's runs: independent, with restarts, or on islands."""
    if task.restarts is not None:
        return RestartSchedule(task, context)
    if task.options.islands is not None:
        return IslandSchedule(task)
    return IndependentSchedule(task)


def _build_results(task: Task, schedule: Schedule, total: Outcome, evaluator: SolutionEvaluator) -> list[Result]:
    """Return the Result of each solver whose runs were started."""
    starts = range(0, len(total.x), task.runs)
    cells = [total] if len(starts) == 1 else [total.of_runs(slice(k, k + task.runs)) for k in starts]
    return [
        result_of(
            task.of_cell(i),
            cell,
            total.populations[i].population,
            evaluator,
            partial(_replay, task, i * task.runs - task.first_run, total),
        )
        for i, cell in enumerate(cells)
    ]


@contextmanager
def open_checkpoint(
    task: Task, observers: Observers, interrupt_state: Interrupts, facts: Mapping[str, str] = MappingProxyType({})
) -> Iterator[CheckpointSession | None]:
    """Open the checkpoint of a task, if there is to be one. facts: what else decides its results.

    SIGTERM, which batch systems send before they kill a process, then stops the run like Ctrl-C, with its last state in
    the file.
    """
    journal = observers.journal
    if journal is None:
        yield None
        return
    is_terminated = False

    def on_terminate(signum: int, frame: object) -> None:
        nonlocal is_terminated
        is_terminated = interrupt_state.seen = True
        if interrupt_state.raises():
            raise KeyboardInterrupt

    handles_signal = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
    if handles_signal:
        signal.signal(signal.SIGTERM, on_terminate)
    try:
        journal.open({**fingerprint(task), **facts}, observers.title)
        yield journal
    finally:
        journal.close()
        if handles_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if is_terminated:
            os.kill(os.getpid(), signal.SIGTERM)


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
    with (
        interrupts() as interrupt_state,
        jax.enable_x64(task.dtype == "float64"),
        open_black_box(task, interrupt_state) as box,
    ):
        began = time.perf_counter()
        context = RunContext(interrupt_state, clock, box, snapshots=task.options.keep.snapshots)
        schedule = build_schedule(replay_task, context).only(row, total.sizes[row])
        outcome = run_schedule(schedule, context)
        if isinstance(total.polish, Polish) and total.polish.evaluations[row]:
            outcome = polish_answers(task, clock, outcome)
        elif total.polish is not None:
            outcome = replace(outcome, polish="not tried" if isinstance(total.polish, Polish) else total.polish)
        outcome = recheck_answers(replay_task, outcome, np.array([number]), box)
        outcome = estimate_answers(replay_task, outcome, np.array([number]), box)
        seconds = time.perf_counter() - began
        run_task = replace(task.of_cell(row // task.runs), rules=rules).with_options(runs=range(number, number + 1))
        (survivors,) = outcome.populations.values()
        result = result_of(
            run_task,
            outcome,
            survivors.population,
            SolutionEvaluator(replay_task, box),
            partial(_replay, task, offset, total),
        )
    compile_seconds = clock.compile_seconds
    result["timings"] = {
        "compile": compile_seconds,
        "run": seconds - compile_seconds,
        "device": outcome.device_seconds,
        "host": 0.0,
    }
    return result


@dataclass
class _Timings:
    """The clocks of a run, to tell how much of its time was spent without computing generations."""

    began: float
    ready: float  # when the first program could be compiled
    compiler: CompileTimer
    context: RunContext
    done: float = math.nan  # when the last generation and the polish were over

    def overhead(self) -> float:
        return self.ready - self.began + self.compiler.compile_seconds + self.context.paused_seconds

    def summarize(self, total: Outcome) -> dict[str, float]:
        """Return the seconds of each part of the call, as a Result has them."""
        compiling, paused = self.compiler.compile_seconds, self.context.paused_seconds
        running = self.done - self.ready - compiling - paused
        host = time.perf_counter() - self.began - compiling - running - paused
        seconds = {"compile": compiling, "run": running, "device": total.device_seconds, "host": host}
        return seconds | ({"held": paused} if paused else {})


def _add_timings(results: list[Result], task: Task, total: Outcome, timings: _Timings, engine: str) -> None:
    """Add to the results when they began, how long each part of the call took, and which engine computed them."""
    seconds, limit = timings.summarize(total), task.options.max_seconds
    started = datetime.now(UTC) - timedelta(seconds=time.perf_counter() - timings.began)
    is_mostly_compiling = limit is not None and seconds["compile"] > limit / 2
    for result in results:
        result["timings"], result["engine"] = dict(seconds), engine
        record_start(result, f"{started:%Y-%m-%dT%H:%M:%SZ}")
        if total.stopped is Stop.TIME and is_mostly_compiling:
            result["message"] = f"{result.message} Compiling alone took {seconds['compile']:.2g} s."


@dataclass
class _Notifier:
    """Called between chunks: reports progress to the observers and returns why to stop, if so."""

    task: Task
    observers: Observers
    timings: _Timings
    show: Callable[[Progress | Waiting], None]
    box: BlackBox | None
    callback_error: Exception | None = None  # what the callback raised; raised again once the result is assembled

    def __call__(self, generation: int, track: Track, finished: Sequence[Outcome]) -> Stop | None:
        progress = self._measure_progress(generation, track, finished)
        self.show(progress)
        stop = self._find_failure(track, progress.nfev) or self._call_back(progress)
        progress.read_best = None  # the next chunk takes the memory of the survivors
        return stop

    def _measure_progress(self, generation: int, track: Track, finished: Sequence[Outcome]) -> Progress:
        """Return how far all runs are. finished: outcomes of runs that are over and not in the track."""
        task, context = self.task, self.timings.context
        has_ended = (track.reason != RUNNING) | (track.generations >= task.rules.generations)
        tracks = [*(outcome.track for outcome in finished), track]
        states = [_best_state(each) for each in tracks]
        violation, _, best, volume = min(states)
        runs_before = sum(len(outcome.x) for outcome in finished)
        progress = Progress(
            generation=generation,
            generations=None if task.rules.generations == UNLIMITED else int(task.rules.generations),
            nfev=sum(int(each.evaluations.sum()) for each in tracks),
            fun=task.sign * best,
            hypervolume=None if math.isnan(volume) else volume,
            violation=violation,
            runs_done=runs_before + int(has_ended.sum()),
            runs=task.total,
            seconds=time.perf_counter() - self.timings.began,
            overhead=self.timings.overhead(),
            max_seconds=task.options.max_seconds,
            feasible_share=float(track.feasible_share.mean()) if task.problem.constrained else None,
            max_evaluations=None if task.evaluation_limit is None else task.evaluation_limit * task.total,
            restored=context.restored,
            runs_before=runs_before,
            runs_together=len(track.best),
        )
        i = states.index(min(states))
        if i < len(finished):
            survivors = partial(best_of_run, finished[i], finished[i].track.best_run)
        else:
            assert context.read_survivors is not None
            survivors = partial(context.read_survivors, track.best_run)
        is_readable = jax.process_count() == 1  # else the best run may be another process's
        progress.read_best = partial(read_best, task, survivors) if is_readable else Best
        return progress

    def _find_failure(self, track: Track, nfev: int) -> Stop | None:
        """Return why the evaluations so far end the runs, if they do; raise an error where that was asked for."""
        options, box, failed = self.task.options, self.box, int(track.failed.sum())
        if options.on_failure == "raise" and failed:
            raise EvaluationError(
                f"fun or a constraint returned NaN or inf at {failed} of the {nfev} points evaluated so far."
            )
        if box is None:  # what is traced was tried before, and had a value somewhere
            return None
        if box.interrupted:
            return Stop.INTERRUPT
        if box.halt_reason:
            return Stop.WORKERS
        has_failed_throughout = failed >= MAX_INITIAL_FAILURES and not np.isfinite(track.best).any()
        is_surprising = options.on_failure is None and not box.returns_penalties
        return Stop.FAILURES if has_failed_throughout and is_surprising else None

    def _call_back(self, progress: Progress) -> Stop | None:
        """Call the user's callback; return a stop if it asks for one or raises."""
        if self.observers.callback is None:
            return None
        try:
            reply = self.observers.callback(progress)
        except StopIteration:
            return Stop.CALLBACK
        except Exception as error:  # goes on when the result is put together
            self.callback_error = self.callback_error or error
            return Stop.CALLBACK
        return Stop.CALLBACK if isinstance(reply, bool | np.bool_) and reply else None


def _best_state(track: Track) -> tuple[float, ...]:
    """Return violation, merit, value and hypervolume of the best run."""
    row = track.best_run
    return tuple(float(values[row]) for values in (track.violation, track.merit, track.best, track.hypervolume))


def _page_facts(task: Task) -> Facts:
    """Return the facts of a task that the live page shows."""
    return Facts(
        problem=task.problem,
        settings=settings_of(task),
        population=task.population,
        generations=None if task.rules.generations == UNLIMITED else int(task.rules.generations),
        contours=not task.options.blackbox and isinstance(task.problem, Problem),
    )


# --- the fingerprint of a task: a checkpoint resumes a task with an equal one -----------------------------------------


def fingerprint(task: Task) -> dict[str, str]:
    """Return {name: value} of all that decides the results of a task.

    The rest may change when it is resumed: max_seconds, the observers, and for runs that do not restart and whose
    algorithm does not plan ahead, the limit of generations.
    """
    solver, problem, rules, options = task.solvers[0], task.problem, task.rules, task.options
    facts = {
        "version of galapax": __version__,
        "version of jax": jax.__version__,
        "device": devices.platform(),
        "precision": task.dtype,
        "problem": problem.name,
        "box": _digest([problem.bounds.lower, problem.bounds.upper]),
        "variables": "" if problem.space is None else repr(problem.space.variables),
        "functions": _functions(task),
        "algorithm": algorithms.algorithm_name(solver),
        "hyper-parameters": str([_settings(one) for one in task.bound]),
        "archive": str(solver.size if isinstance(solver, Archived) else None),
        "runs": f"{task.runs} from number {task.first_run}",
        "x0": "none" if task.initial is None else _digest([task.initial]),
        "initial": "none" if task.known is None else _digest(jax.tree.leaves(task.known)),
        "target": str(rules.target),
        "patience": str(rules.stall),
        "tolerance": str(rules.tolerance),
        "reference point": _digest([] if rules.reference is None else [rules.reference]),
    }
    facts |= {name: str(read(options, name)) for name, leaf in LEAVES.items() if leaf.spec.identifies}
    if options.islands is not None:
        facts["islands"] = str(options.islands)
    if task.engine in ("fused", "native"):  # where it was left to us, the file may go to another machine
        facts["engine"] = task.engine
    if task.restarts is not None:
        facts["restarts"] = task.restarts.name
        facts["limits"] = f"{rules.generations} generations, {rules.evaluations} evaluations"
    return facts


def _settings(bound: Algorithm) -> str:
    values = {f.name: getattr(bound, f.name) for f in dataclasses.fields(bound)}  # type: ignore[arg-type]
    return f"{type(bound).__name__}({', '.join(f'{name}={_setting(value)}' for name, value in values.items())})"


def _setting(value: Any) -> str:
    if isinstance(value, Algorithm):
        return _settings(value)
    if isinstance(value, Shared) or hasattr(value, "dtype"):
        return _digest(jax.tree.leaves(value))
    if isinstance(value, Payoff):
        return "fun"  # which is among the functions
    return value.__qualname__ if callable(value) else repr(value)


def _functions(task: Task) -> str:
    if task.objective is not None:
        return hashlib.sha256(task.objective.text.encode()).hexdigest()[:16] + _digest(jax.tree.leaves(task.consts))
    if isinstance(task.problem, MinMaxProblem):
        return ""
    # of a black box only its name is known: what it computes may have changed, and that is the user's business
    functions = [getattr(task.problem, name) for name in ("fun", "ineq", "eq")]
    functions = [f.function if isinstance(f, VectorFunction) else f for f in functions]
    return " ".join(getattr(f, "__qualname__", type(f).__name__) for f in functions if f is not None)


def _digest(arrays: Iterable[Array | np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        values = np.asarray(array)
        digest.update(f"{values.dtype.str}{values.shape}".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]
