"""The observers of a run: callback, progress line, live page. view/ is imported on first use.

Between two chunks an observer gets little: a `ChunkView`, thinned on the device that holds the data.
"""

from __future__ import annotations

import inspect
import ipaddress
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax import algorithms
from galapax.core.algorithm import Forecast, forecast_objectives
from galapax.core.checks import check_bool, check_integer, check_number
from galapax.core.errors import InputError, experimental
from galapax.core.problem import HISTORY_FIRST_COLUMN, Columns, Population, ProblemDescription, Record, Shape
from galapax.core.stop import Stop
from galapax.core.variables import Label
from galapax.execution.search import Carry, active_state
from galapax.execution.state import (
    CheckpointSession,
    MultiprocessCheckpoint,
    Outcome,
    Track,
    first_best,
    take_runs,
)
from galapax.execution.task import Task
from galapax.metrics.indicators import non_dominated
from galapax.numerics import devices
from galapax.operators.selection import best_index
from galapax.results.front import build_front

if TYPE_CHECKING:
    from galapax.execution.host_loop import Slice


MAX_INDIVIDUALS = 4096  # of a population, at most
MAX_VARIABLES = 64  # of an individual, at most
ROWS = 32  # generations of a chunk
MAX_RUNS = 4096  # of an ensemble, at most
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class PopulationSample(NamedTuple):
    """Some of one run's survivors, its best among them."""

    x: Array | np.ndarray  # (n, v) in float32, the first variables
    objectives: Array | np.ndarray  # (n, m)
    violation: Array | np.ndarray | None  # (n,), or None
    best: Array | np.ndarray  # (d,), the best one's variables, all of them
    forecast: Forecast | None = None  # of a run with models


class HistorySample(NamedTuple):
    """A few generations of history, of one run and over all runs."""

    record: Record[np.ndarray]  # (ROWS, ...), of that run
    median: np.ndarray  # (m,), over the survivors of that run after the chunk
    spread: np.ndarray | None  # (ROWS, 5): QUANTILES of the runs' best values; +inf for runs without a feasible point


class ProgressView(Protocol):
    """What the live page reads of the runs between two chunks."""

    @property
    def shape(self) -> Shape:
        """The number of objectives and constraints."""

    def survivors(self, run: int) -> PopulationSample:
        """Some of this run's survivors."""

    def rows(self, chosen: np.ndarray, run: int, before: Track, now: Track) -> HistorySample:
        """These rows (ROWS,) of the last chunk's history, which lies between the two tracks."""


class ChunkView:
    """A batch of runs after a chunk, to be looked at before the next chunk takes its memory."""

    def __init__(self, slices: list[Slice]) -> None:
        self._slices = slices
        self._ends = np.cumsum([len(slice_.active_rows) for slice_ in slices])

    @property
    def shape(self) -> Shape:
        return self._slices[0].search.shape

    def survivors(self, run: int) -> PopulationSample:
        """Some of this run's survivors."""
        slice_, place = self._find(run)
        assert slice_.carry is not None
        sample = _survivors(slice_.carry, np.int32(place))
        expected = forecast_objectives(slice_.search.algorithm, active_state(slice_.carry))
        of_run = None if expected is None else jax.tree.map(lambda rows: rows[place], expected)
        return jax.device_get(sample._replace(forecast=of_run))

    def population(self, run: int) -> Population:
        """All survivors of this run, in NumPy."""
        slice_, place = self._find(run)
        assert slice_.carry is not None
        return jax.device_get(_all_survivors(slice_.carry, np.int32(place)))

    def rows(self, chosen: np.ndarray, run: int, before: Track, now: Track) -> HistorySample:
        """Sample these rows (ROWS,) of the last chunk's history, which lies between the two tracks."""
        slice_, place = self._find(run)
        generations = (now.generations - before.generations).astype(np.int32)
        chosen = chosen.astype(np.int32)
        assert slice_.carry is not None
        rows_of_run, median = jax.device_get(
            _rows(slice_.carry, _last_rows(slice_), np.minimum(chosen, max(generations[run] - 1, 0)), np.int32(place))
        )
        record = Record.unpack(rows_of_run, slice_.columns, HISTORY_FIRST_COLUMN)
        if len(generations) == 1 or self.shape.objectives > 1:
            return HistorySample(record, median, None)
        ends = [0, *self._ends.tolist()]
        best_of_runs = [
            self._best_by_row(slice_, chosen, generations[a:b], take_runs(before, slice(a, b)))
            for slice_, a, b in zip(self._slices, ends[:-1], ends[1:], strict=True)
        ]
        sample = np.linspace(0, len(generations) - 1, min(len(generations), MAX_RUNS)).astype(int)
        ordered = np.sort(np.concatenate(best_of_runs, axis=1)[:, sample], axis=1)
        return HistorySample(record, median, ordered[:, np.rint(np.array(QUANTILES) * (len(sample) - 1)).astype(int)])

    def _find(self, run: int) -> tuple[Slice, int]:
        """Find the slice that has this run of the batch, and its row there."""
        i = int(np.searchsorted(self._ends, run, side="right"))
        slice_ = self._slices[i]
        return slice_, int(slice_.active_rows[run - int(self._ends[i - 1] if i else 0)])

    def _best_by_row(self, slice_: Slice, chosen: np.ndarray, generations: np.ndarray, before: Track) -> np.ndarray:
        """Return the best value of each run in these rows, (ROWS, R); a finished run's last one is repeated."""
        best, violation = before.best, before.violation
        if not generations.any():
            best = np.where(violation > 0, np.inf, best)
            return np.broadcast_to(best, (len(chosen), len(best)))
        generations_of_row = np.zeros(len(slice_.cells), np.int32)
        generations_of_row[slice_.active_rows] = generations
        rows_and_violation = jax.device_get(_best(slice_.columns, _last_rows(slice_), chosen, generations_of_row))
        rows, broken = (a[:, slice_.active_rows] for a in rows_and_violation)
        rows, broken = np.where(generations > 0, rows, best), np.where(generations > 0, broken, violation)
        return np.where(broken > 0, np.inf, rows)


def _last_rows(slice_: Slice) -> Array:
    """Return the rows of the last chunk, (rows, columns, S)."""
    return slice_.last_rows[0] if len(slice_.last_rows) == 1 else jnp.concatenate(slice_.last_rows)


@jax.jit
def _survivors(carry: Carry, run: Array) -> PopulationSample:
    parents = _population_of_run(carry, run)
    best = best_index(parents)
    rows, x = _sample_rows(parents, best), parents.x[:, :MAX_VARIABLES]
    if rows is not None:
        parents = jax.tree.map(lambda a: a[rows], parents)
        x = x[rows]
    return PopulationSample(
        x.astype(jnp.float32), parents.objectives, parents.violation, _population_of_run(carry, run).x[best]
    )


@jax.jit
def _rows(carry: Carry, history: Array, chosen: Array, run: Array) -> tuple[Array, Array]:
    parents = _population_of_run(carry, run)
    rows = _sample_rows(parents, best_index(parents))
    values = parents.objectives if rows is None else parents.objectives[rows]
    return history[chosen, :, run], jnp.median(values, axis=0)


@partial(jax.jit, static_argnums=0)
def _best(columns: Columns, history: Array, chosen: Array, n_generations: Array) -> tuple[Array, Array]:
    last = jnp.clip(jnp.minimum(chosen[:, None], n_generations - 1), 0)
    record = Record.unpack(history, columns, HISTORY_FIRST_COLUMN, axis=1)
    best = jnp.take_along_axis(record.best[:, 0], last, axis=0)
    if record.violation is None:
        return best, jnp.zeros_like(best)
    return best, jnp.take_along_axis(record.violation, last, axis=0)


@jax.jit
def _all_survivors(carry: Carry, run: Array) -> Population:
    return _population_of_run(carry, run)


def _population_of_run(carry: Carry, run: Array) -> Population:
    return jax.tree.map(lambda a: a[run], active_state(carry).parents)


def _sample_rows(parents: Population, best: Array) -> Array | None:
    """Return the rows of some individuals, evenly spread over those that have a value, the best among them; None for
    all.
    """
    n = parents.x.shape[0]
    if n <= MAX_INDIVIDUALS:
        return None
    has_value = jnp.isfinite(parents.fitness)  # as not every cell of an archive has
    last = jnp.maximum(jnp.sum(has_value), MAX_INDIVIDUALS) - 1
    places = jnp.asarray(np.linspace(0, 1, MAX_INDIVIDUALS), jnp.float32) * last.astype(jnp.float32)
    places = places.astype(jnp.int32)
    rows = jnp.argsort(~has_value, stable=True)[places]
    place_of_best = jnp.sum(jnp.where(jnp.arange(n) < best, has_value, False))
    nearest = jnp.minimum(jnp.searchsorted(places, place_of_best), MAX_INDIVIDUALS - 1)
    return rows.at[nearest].set(best).astype(jnp.int32)


class Viewer(Protocol):
    """Observer called between the chunks of a batch; may pause or stop it. Called in the run's thread."""

    max_generations: int  # generations that the next chunk may have

    def on_chunk(self, generation: int, before: Track, now: Track, view: ProgressView, is_last: bool) -> None:
        """Called after a generation. before, now: tracks before and after the chunk. is_last: no chunk follows.

        The arrays of `view` may be on the device, and the next chunk overwrites them.
        """

    def wait_if_paused(self, interrupted: Callable[[], bool]) -> Stop | None:
        """Return when the run may continue or Ctrl-C was pressed; a Stop ends the run."""


LOOPBACK = "127.0.0.1"
MIN_MEASURED_SECONDS = 0.5  # seconds of generations from which the time left is estimated
MIN_FIRST_SECONDS = 5.0  # seconds of the first generation from which it is estimated from that one alone


def to_stderr(sentence: str) -> None:
    """Write a sentence to stderr: the library itself never prints, since what a program writes to stdout is its own."""
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
    say: Callable[[str], object] = to_stderr
    warn: Callable[[str], object] = _warn

    def __post_init__(self) -> None:
        if check_integer(self.port, "port", 0) > 65535:
            raise InputError(f"port must be a number from 0 (any free one) to 65535, got {self.port}.")
        if not isinstance(self.host, str) or not self.host.strip():
            raise InputError(f'host must be an address such as "{LOOPBACK}", got {self.host!r}.')

    @property
    def is_served(self) -> bool:
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


def as_live(live: object) -> Live | None:
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
    about: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not str(self.path).strip():
            raise InputError(f"checkpoint must be the path of a file, got {self.path!r}.")
        if check_number(self.seconds, "seconds") < 0:
            raise InputError(f"seconds between two checkpoints must be at least 0, got {self.seconds:g}.")
        if self.generations is not None:
            check_integer(self.generations, "generations", 1)


def as_checkpoint(checkpoint: object) -> Checkpoint | None:
    """Parse `checkpoint=`; None for no checkpoint."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if isinstance(checkpoint, str | os.PathLike):
        return Checkpoint(checkpoint)
    raise InputError(f"checkpoint must be the path of a file or a galapax.Checkpoint, got {checkpoint!r}.")


class Best(NamedTuple):
    """The best of the runs so far, as the user means it: a point, or the front of several objectives."""

    x: np.ndarray | None = None  # (d,)
    params: dict[str, Label] | None = None  # x by name
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
    def params(self) -> dict[str, Label] | None:
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
        """Estimate the time to the nearest limit, at the speed since an earlier Progress, or else since the first
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
        return Best(X=task.decode(front.X), F=front.F)
    row = first_best(violation, objectives[:, 0])
    if not np.isfinite(objectives[row, 0]):
        return Best()
    x = task.decode(genes[row])
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

    callback: Callable[[Progress], object] | None = None
    progress: bool | None = None  # a line on the terminal: yes, no, or None for "on a terminal, after a while"
    live: Live | None = None
    title: str = ""  # of the progress line
    journal: CheckpointSession | None = None

    def about(self, task: Task, label: str = "", solver: str | None = None) -> Observers:
        """Return these observers with a title for this task. label: put before it. solver: in place of its name."""
        solver = solver or algorithms.algorithm_name(task.solvers[0])
        return replace(self, title=f"{label}{task.problem.name} · {solver}")


def observers(
    callback: Callable[[Progress], object] | None = None,
    progress: bool | None = None,
    live: object = None,
    checkpoint: object = None,
    resume: object = None,
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
    from galapax.storage.checkpoint import open_checkpoint_file

    return Observers(callback, progress, as_live(live), journal=open_checkpoint_file(policy, resume))


def _check_callback(callback: object) -> None:
    """Refuse a callback that does not take one argument."""
    if not callable(callback):
        raise InputError(f"callback must be a function of one Progress, got {callback!r}.")
    try:
        inspect.signature(callback).bind(None)
    except ValueError:
        pass  # a builtin without a signature
    except TypeError:
        signature = inspect.signature(callback)
        raise InputError(
            f"callback must take one argument, a Progress, with x, fun, nfev and more; it is defined as {signature}."
        ) from None


class Session(Viewer, Protocol):
    """The live page, as a run sees it."""

    def on_batch_start(self, first_run: int) -> None:
        """Called when a batch of runs begins, the first of them with this number."""

    def on_search(self, algorithm: str, generation: int) -> None:
        """Called when a run that restarts begins another search, after this many generations."""

    def on_answers(self, outcome: Outcome) -> None:
        """Called when the best points were refined by their gradients, or the means at them estimated."""

    def on_progress(self, state: Progress) -> None:
        """Called with the Progress that the callback gets, before `on_chunk`."""

    def finish(self, message: str) -> None:
        """Called when the run has ended, for this reason."""


def _open_page(live: Live, facts: Callable[[], Facts]) -> AbstractContextManager[Session | None]:
    from galapax.view.live import watch_run

    return watch_run(live, facts)


@contextmanager
def open_observers(
    observers: Observers, facts: Callable[[], Facts]
) -> Iterator[tuple[Callable[[Progress | Waiting], None], Session | None]]:
    """Open progress line and live page; yield what shows a Progress or a Waiting, and the page's session."""
    line: AbstractContextManager[Callable[[Progress | Waiting], None]] = nullcontext(lambda state: None)
    if observers.progress is not False:
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
    if not devices.is_distributed():
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
    if devices.process_index():
        observers = replace(observers, callback=None, progress=False, live=None)
    return observers
