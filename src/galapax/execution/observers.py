"""The observers of a run: callback, progress line, live page, checkpoint. view/ is imported on first use."""

from __future__ import annotations

import inspect
import ipaddress
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from galapax import algorithms
from galapax.core.checks import check_bool, check_integer, check_number
from galapax.core.errors import InputError
from galapax.core.evaluation import Population
from galapax.core.problem import ProblemDescription
from galapax.core.stability import experimental
from galapax.execution.host_loop import Viewer
from galapax.execution.state import BatchCheckpoint, CheckpointWriter, Outcome, Track, first_best
from galapax.execution.task import Task
from galapax.metrics.indicators import non_dominated
from galapax.numerics import processes
from galapax.results.front import build_front

LOOPBACK = "127.0.0.1"
MIN_MEASURED_SECONDS = 0.5  # seconds of generations from which the time left is estimated
MIN_FIRST_SECONDS = 5.0  # seconds of the first generation from which it is estimated from that one alone


def to_stderr(sentence: str) -> None:
    """The library itself never prints: what a program writes to stdout is its own."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=2)


@experimental
@dataclass(frozen=True)
class Live:
    """How a run is shown in the browser while it is running.

    port: of the page; 0 chooses a free one.
    host: the address to listen on. An address that other machines can reach makes the page require a token.
    open_browser: open the page, if there is a browser.
    paused: pause after the first generation, until the viewer continues the run.
    slow_start: while somebody watches, begin slowly and get faster for some seconds, so that a short run can be seen;
        the viewer may choose another speed at any time.
    say: called with the sentence that gives the page's address. warn: called with the reason if there is no page.
    """

    port: int = 0
    host: str = LOOPBACK
    open_browser: bool = True
    paused: bool = False
    slow_start: bool = True
    say: Callable[[str], Any] = to_stderr
    warn: Callable[[str], Any] = _warn

    def __post_init__(self) -> None:
        if check_integer(self.port, "port", 0) > 65535:
            raise InputError(f"port must be a number from 0 (any free one) to 65535, got {self.port}.")
        if not isinstance(self.host, str) or not self.host.strip():
            raise InputError(f'host must be an address such as "{LOOPBACK}", got {self.host!r}.')

    @property
    def served(self) -> bool:
        """Whether the page is up now."""
        from galapax.view.live import is_served

        return is_served(self)

    @property
    def private(self) -> bool:
        """Whether only this machine can reach the page."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def as_live(live: Any) -> Live | None:
    """Parse `live=`; None for no page."""
    if live is None or live is False:
        return None
    if live is True:
        return Live()
    if isinstance(live, Live):
        return live
    if isinstance(live, int):
        return Live(port=live)
    raise InputError(f"live must be True, False, a port number or a galapax.Live, got {live!r}.")


@dataclass(frozen=True)
class Checkpoint:
    """How a run is saved to a file from which it can continue.

    path: of the file. The previous one is kept next to it, with .1 added to its name.
    seconds: minimum time between checkpoints; longer if writing is slow, so that it takes at most 2 % of the time.
    generations: write after this many generations instead.
    about: further information to store in the file, plain values by name.
    """

    path: str | os.PathLike[str]
    seconds: float = 60.0
    generations: int | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not str(self.path).strip():
            raise InputError(f"checkpoint must be the path of a file, got {self.path!r}.")
        if check_number(self.seconds, "seconds") < 0:
            raise InputError(f"seconds between two checkpoints must be at least 0, got {self.seconds:g}.")
        if self.generations is not None:
            check_integer(self.generations, "generations", 1)


def as_checkpoint(checkpoint: Any) -> Checkpoint | None:
    """Parse `checkpoint=`; None for no checkpoint."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if isinstance(checkpoint, str | os.PathLike):
        return Checkpoint(checkpoint)
    raise InputError(f"checkpoint must be the path of a file or a galapax.Checkpoint, got {checkpoint!r}.")


class CheckpointSession(CheckpointWriter, Protocol):
    """Writes the checkpoints of a call; see storage/checkpoint.py."""

    memory: Any  # what the black box of the present task remembered

    def open(self, task: dict[str, str], title: str) -> None:
        """Begin a task with this fingerprint."""

    def close(self) -> None:
        """End the task."""


class Best(NamedTuple):
    """The best of the runs so far, as the user means it: a point, or the front of several objectives."""

    x: np.ndarray | None = None  # (d,)
    params: dict[str, Any] | None = None  # x by name
    X: np.ndarray | None = None  # (k, d)
    F: np.ndarray | None = None  # (k, m)


@dataclass
class Progress:
    """What a callback and the progress line are told between chunks."""

    generation: int
    generations: int | None  # the limit, if there is one
    nfev: int  # evaluations so far, all runs together
    fun: float  # best value so far, as the user means it (maximised values keep their sign)
    violation: float
    runs_done: int
    runs: int
    seconds: float
    max_seconds: float | None = None
    hypervolume: float | None = (
        None  # of several objectives with a reference point; `fun` is then the first objective's
    )
    feasible_share: float | None = None  # of the individuals of all runs; None for a problem without constraints
    max_evaluations: int | None = None  # the limit of all runs together, if there is one
    overhead: float = 0.0  # of `seconds`: before the first generation, for compilation, and held up by the live page
    restored: bool = False  # some of it was read from a checkpoint and took no time now
    runs_before: int = 0  # runs that were over before this batch, where memory has no room for all at once
    runs_together: int | None = None  # runs of this batch; None for all of them
    read_best: Callable[[], Best] | None = field(default=None, repr=False, compare=False)  # until the next chunk

    @cached_property
    def best(self) -> Best:
        """The best point so far, or the front. It is read from the device when the callback first uses it."""
        if self.read_best is None:
            raise RuntimeError(
                "x, params, X and F of a Progress can be read only inside the callback: copy them there."
            )
        return self.read_best()

    @property
    def x(self) -> np.ndarray | None:
        """The best point so far (d,); None with several objectives, and while every value has failed."""
        return self.best.x

    @property
    def params(self) -> dict[str, Any] | None:
        """The best point by the names of its variables: floats, ints, bools and labels."""
        return self.best.params

    @property
    def X(self) -> np.ndarray | None:
        """The points (k, d) of the front of several objectives, of the run with the best front."""
        return self.best.X

    @property
    def F(self) -> np.ndarray | None:
        """The objectives (k, m) of the points X."""
        return self.best.F

    @property
    def shares(self) -> list[float]:
        """How much of the generations and of the evaluations are over, of those that are limited."""
        shares = []
        if self.generations:
            n_runs = self.runs if self.runs_together is None else self.runs_together
            shares.append((self.runs_before + n_runs * self.generation / self.generations) / self.runs)
        if self.max_evaluations:
            shares.append(self.nfev / self.max_evaluations)
        return shares

    @property
    def working(self) -> float:
        """Seconds in which generations were made."""
        return self.seconds - self.overhead

    def seconds_left(self, since: Progress | None = None) -> float | None:
        """An estimate of the time to the nearest limit, at the speed since an earlier Progress, or else since the first
        generation; None if nothing limits the run or nothing was measured. A run may end earlier.
        """
        earlier = since.shares if since is not None else [1.0, 1.0] if self.restored else [0.0, 0.0]
        seconds = self.working - (0.0 if since is None else since.working)
        estimates = [
            max(0.0, seconds * (1.0 - now) / (now - before))
            for now, before in zip(self.shares, earlier, strict=False)
            if now > before and seconds > 0
        ]
        if self.max_seconds is not None:
            estimates.append(max(0.0, self.max_seconds - self.seconds))
        return min(estimates) if estimates else None


class Waiting(NamedTuple):
    """What the progress line is told while a generation waits for workers."""

    seconds: float  # for which none has been alive


def time_left(state: Progress, first: Progress | None) -> float | None:
    """Estimate the time left at the speed since the first Progress; None until that is reliable.

    The first generation alone counts where it is slow; otherwise it tells more of what happens once.
    """
    if first is not None and state.working - first.working >= MIN_MEASURED_SECONDS:
        return state.seconds_left(first)
    return state.seconds_left() if state.working >= MIN_FIRST_SECONDS else None


def read_best(task: Task, read_survivors: Callable[[], Population]) -> Best:
    """Read the best point, or the front, from the survivors of a run, which are genes."""
    survivors = read_survivors()
    objectives = np.asarray(survivors.objectives, np.float64)
    violation = np.zeros(len(objectives)) if survivors.violation is None else np.asarray(survivors.violation)
    genes = np.asarray(survivors.x, np.float64)
    if objectives.shape[1] > 1:
        feasible = np.isfinite(objectives).all(axis=1) & (violation <= 0)
        genes, objectives = genes[feasible], objectives[feasible]
        on_front = non_dominated(objectives) if len(objectives) else np.zeros(0, bool)
        front = build_front(Population(genes[on_front], objectives[on_front], None), task.signs, None)
        return Best(X=task.decoded(front.X), F=front.F)
    row = first_best(violation, objectives[:, 0])
    if not np.isfinite(objectives[row, 0]):
        return Best()
    x = task.decoded(genes[row])
    return Best(x, task.problem.params(x))


@dataclass(frozen=True)
class Facts:
    """The facts of a run that the live page shows."""

    problem: ProblemDescription
    settings: dict[str, Any]  # as in a Result
    population: int
    generations: int | None  # the limit, if there is one
    contours: bool  # whether the objective can be called beside the run


@dataclass(frozen=True)
class Observers:
    """The observers of a run."""

    callback: Callable[[Progress], Any] | None = None
    progress: bool | None = None  # a line on the terminal: yes, no, or None for "on a terminal, after a while"
    live: Live | None = None
    title: str = ""  # of the progress line
    journal: CheckpointSession | None = None

    def about(self, task: Task, label: str = "") -> Observers:
        """Return these observers with a title for this task. label: put before it."""
        return replace(self, title=f"{label}{task.problem.name} · {algorithms.algorithm_name(task.solvers[0])}")


def observers(
    callback: Any = None, progress: Any = None, live: Any = None, checkpoint: Any = None, resume: Any = None
) -> Observers:
    """Parse and check the arguments of `minimize` and its like that concern observers."""
    if callback is not None:
        _check_callback(callback)
    if not (resume is None or isinstance(resume, bool | str | os.PathLike)):
        raise InputError(f"resume must be a checkpoint's file, True or False, got {resume!r}.")
    if progress is not None:
        progress = check_bool(progress, "progress")
    policy = as_checkpoint(checkpoint)
    if policy is None and not resume:
        return Observers(callback, progress, as_live(live))
    from galapax.storage.checkpoint import keeper

    return Observers(callback, progress, as_live(live), journal=keeper(policy, resume))


def _check_callback(callback: Any) -> None:
    """Refuse a callback that does not take one argument."""
    if not callable(callback):
        raise InputError(f"callback must be a function of one Progress, got {callback!r}.")
    try:
        inspect.signature(callback).bind(None)
    except ValueError:
        pass  # a builtin without a signature
    except TypeError:
        signature = inspect.signature(callback)
        raise InputError(f"callback must take one argument, a Progress; it is defined as {signature}.") from None


class Session(Viewer, Protocol):
    """The live page, as a run sees it."""

    def on_batch_start(self, first_run: int) -> None:
        """A batch of runs begins, the first of them with this number."""

    def on_search(self, algorithm: str, generation: int) -> None:
        """A run that restarts begins another search, after this many generations."""

    def on_polish(self, track: Track) -> None:
        """The gradient refined the best points, which are these now."""

    def on_progress(self, state: Progress) -> None:
        """The Progress that the callback gets, before `on_chunk`."""

    def finish(self, message: str) -> None:
        """The run ended, for this reason."""


def _open_page(live: Live, facts: Callable[[], Facts]) -> AbstractContextManager[Session | None]:
    from galapax.view.live import watch_run

    return watch_run(live, facts)


@contextmanager
def open_observers(
    observers: Observers, facts: Callable[[], Facts]
) -> Iterator[tuple[Callable[[Progress | Waiting], None], Session | None]]:
    """Open progress line and live page; yield what shows a Progress or a Waiting, and the page's session."""
    from galapax.view.progress import progress_line

    line = progress_line(observers.progress, observers.title)
    page = nullcontext(None) if observers.live is None else _open_page(observers.live, facts)
    with line as show, page as session:

        def show_all(state: Progress | Waiting) -> None:
            show(state)
            if session is not None and isinstance(state, Progress):
                session.on_progress(state)

        yield show_all, session


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
    """A CheckpointSession that gathers the state of all processes and writes it in the first."""

    def __init__(self, inner: CheckpointSession) -> None:
        self.inner, self.memory = inner, None

    def open(self, task: dict[str, str], title: str) -> None:
        self.inner.open(task, title)

    def close(self) -> None:
        self.inner.close()

    def begin_batch(self) -> Outcome | BatchCheckpoint | None:
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
        snapshots, runs = _merge_snapshots([each.snapshots for each in gathered]), sum(each.runs for each in gathered)
        self.inner.save(
            standing._replace(carries=carries, tracks=tracks, history=history, snapshots=snapshots, runs=runs)
        )

    def finish_batch(self, outcome: Outcome) -> None:
        self.inner.finish_batch(Outcome.join(processes.all_gather_object(outcome)))


def _merge_snapshots(snapshots: list[dict[int, list[Population]]]) -> dict[int, list[Population]]:
    """Merge the snapshots of all processes, by generation."""
    return {g: [p for by_generation in snapshots for p in by_generation[g]] for g in snapshots[0]}
