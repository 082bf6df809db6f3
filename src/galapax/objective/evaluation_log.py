"""The log of a black box: every call that was made, once, in the order of its generation; and what a failure means.

All that a run remembers of its calls is looked up here. A call belongs to the generation that asked for it, and is open
until that generation is complete. A generation that begins again, after a crash or because the first calls showed that
the problem needs another algorithm, takes its open calls from the log and makes the others. With `memoize` any call of
the same point will do. The constraints of the answer, the failures and `result.evaluations` are read from here too.
A failed evaluation becomes +inf in one place, by the policy that the user chose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from galapax.core.problem import OUTPUT_NAMES, CandidateEvaluation, EqTolerance
from galapax.objective.pool import Answer, CallOutcome, Failure

RESAMPLES = 3  # fresh points that may take the place of one that failed


class Failed(NamedTuple):
    """A point that could not be evaluated, and why. traceback: the user's lines, where a function raised."""

    x: np.ndarray  # (d,)
    error: str
    traceback: str = ""


class WorkerTraceback(Exception):
    """The traceback of an exception in a worker process, as text: the cause of an EvaluationError."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def summarise(
    objectives: Any, ineq: Any, eq: Any, eq_tolerance: EqTolerance | None, xp: Any = jnp
) -> CandidateEvaluation:
    """Return the Evaluation of raw values (n, m), (n, p), (n, q): violations added up, failures marked and made worst.

    eq_tolerance: None where it is not known yet, which counts as 0. xp: the array library, jax.numpy or numpy.
    """
    failed = ~xp.all(xp.isfinite(objectives), axis=1)
    violation = None
    if ineq is not None or eq is not None:
        violation = xp.zeros(objectives.shape[0], objectives.dtype)
        if ineq is not None:
            violation = violation + xp.sum(xp.maximum(ineq, 0), axis=1)
        if eq is not None:
            violation = violation + xp.sum(
                xp.maximum(xp.abs(eq) - xp.asarray(eq_tolerance or 0.0, eq.dtype), 0), axis=1
            )
        failed = failed | ~xp.isfinite(violation)
        violation = xp.where(failed, xp.inf, violation)
    return CandidateEvaluation(xp.where(failed[:, None], xp.inf, objectives), violation, failed, ineq, eq)


MAX_LOG_BYTES = 2**30  # of completed generations; the oldest calls are dropped beyond
NO_RUN = -1  # the number of no run
MAX_LOOSE_CALLS = 8192  # completed calls that are not packed into arrays yet


class LogEntry(NamedTuple):
    """A call: the point in its canonical form, what came of it, and where it was made."""

    point: bytes  # (d,) float64
    answer: Answer
    seconds: float  # NaN where nobody knows
    worker: int  # numbered from 0 by their first answers; -1 where the worker was lost
    run: int
    generation: int  # counted over all searches of the run, from 1


class CallTable(NamedTuple):
    """Calls as arrays. values: as the functions returned them, {name: (n, width)}, NaN for failures."""

    points: np.ndarray  # (n, d)
    values: dict[str, np.ndarray]
    failures: dict[int, Failure]  # by row
    seconds: np.ndarray  # (n,)
    worker: np.ndarray  # (n,) int
    run: np.ndarray  # (n,) int
    generation: np.ndarray  # (n,) int

    @property
    def n_bytes(self) -> int:
        arrays = (self.points, *self.values.values(), self.seconds, self.worker, self.run, self.generation)
        return sum(array.nbytes for array in arrays)

    def answer(self, row: int) -> Answer:
        return self.failures.get(row) or {name: values[row] for name, values in self.values.items()}

    def to_plain(self) -> dict[str, Any]:
        return {**self._asdict(), "failures": [(row, f._replace(cause=None)) for row, f in self.failures.items()]}

    @staticmethod
    def from_plain(data: dict[str, Any]) -> CallTable:
        return CallTable(**{**data, "failures": dict(data["failures"])})


class EvaluationLog:
    """Every call of a black box. Only open calls change: by a retry, or when their number of values is checked.

    Values that were known before belong to generation 0.

    n_cached: points of completed generations that needed no call.
    """

    def __init__(self) -> None:
        self.n_completed: Counter[int] = Counter()  # generations of each run
        self.n_cached = 0
        self.n_dropped = 0  # the oldest calls, see MAX_LOG_BYTES
        self._tables: list[CallTable] = []  # of completed generations
        self._entries: list[LogEntry] = []  # the later ones
        self._n_packed = 0  # calls before the entries, dropped ones included
        self._n_closed = 0  # rows below belong to completed generations
        self._n_cached_now = 0  # points of the present generation that needed no call
        self._unclaimed: dict[bytes, list[int]] = {}  # open calls that no generation of this process has used
        self._latest: dict[bytes, int] = {}  # the last row of each point
        self._n_indexed = 0
        self._known: dict[bytes, int] = {}  # the last row of each point whose value was known before
        self.n_known = 0  # values that were
        self._widths: dict[str, int] = {}  # how many numbers a call gives, by name
        self._worker_numbers: dict[int, int] = {}  # by process
        self._first_worker_number = 0  # of this process; an earlier one may have had some

    def __len__(self) -> int:
        return self._n_packed + len(self._entries)

    # --- what the black box writes ---

    def add_known(self, points: np.ndarray, answers: list[Answer], widths: dict[str, int]) -> None:
        """Begin the log with points (k, d) whose values were known before; they belong to generation 0 of no run."""
        if not len(self):
            for point, answer in zip(points, answers, strict=True):
                self.append(point, CallOutcome(answer), NO_RUN, generation=0)
            self._n_closed, self._widths = len(self), dict(widths)

    def append(self, point: np.ndarray, call: CallOutcome, run: int, generation: int | None = None) -> int:
        """Add a call and return its row. generation: that it belongs to, if not to the present one of its run."""
        entry = self._entry(point, call, run, generation)
        self._entries.append(entry)
        if generation == 0:
            self._known[entry.point] = len(self) - 1
            self.n_known += 1
        return len(self) - 1

    def _entry(self, point: np.ndarray, call: CallOutcome, run: int, generation: int | None = None) -> LogEntry:
        generation = self.n_completed[run] + 1 if generation is None else generation
        return LogEntry(point.tobytes(), call.answer, call.seconds, self._worker_number(call), run, generation)

    def amend(self, row: int, call: CallOutcome) -> None:
        """Replace what came of an open call, after a retry."""
        entry = self._entries[row - self._n_packed]
        seconds = call.seconds if np.isnan(entry.seconds) else entry.seconds + np.nan_to_num(call.seconds)
        worker = self._worker_number(call)
        self._entries[row - self._n_packed] = entry._replace(answer=call.answer, seconds=seconds, worker=worker)

    def reject(self, row: int, failure: Failure) -> None:
        """Turn an answer that cannot be used into a failure."""
        self._entries[row - self._n_packed] = self._entries[row - self._n_packed]._replace(answer=failure)

    def complete_generation(self, widths: dict[str, int], runs: Iterable[int]) -> None:
        """Close the calls of the present generation of these runs. widths: how many numbers a call gives, by name."""
        self._widths = dict(widths)
        self._n_closed = len(self)
        self._unclaimed = {}
        self.n_cached, self._n_cached_now = self.n_cached + self._n_cached_now, 0
        self.n_completed.update(runs)
        if len(self._entries) >= MAX_LOOSE_CALLS:
            self._tables.append(_tabulate(self._entries, self._widths))
            self._n_packed, self._entries = len(self), []
            while sum(table.n_bytes for table in self._tables) > MAX_LOG_BYTES and len(self._tables) > 1:
                self.n_dropped += len(self._tables.pop(0).points)

    def reopen(self) -> None:
        """Offer all calls of the present generation again, to a generation that begins anew."""
        self._n_cached_now = 0
        self._unclaimed = {}
        for row in self.open_rows:
            self._unclaimed.setdefault(self._entries[row - self._n_packed].point, []).append(row)

    # --- what is looked up ---

    @property
    def open_rows(self) -> range:
        """The calls of the present generation."""
        return range(self._n_closed, len(self))

    def answer(self, row: int) -> Answer:
        if row >= self._n_packed:
            return self._entries[row - self._n_packed].answer
        first = self.n_dropped
        for table in self._tables:
            if row < first + len(table.points):
                return table.answer(row - first)
            first += len(table.points)
        raise IndexError(row)

    def claim(self, point: bytes) -> int | None:
        """Return an open call of this point that no generation has used yet; each serves once."""
        rows = self._unclaimed.get(point)
        return rows.pop(0) if rows else None

    def find(self, point: bytes) -> int | None:
        """Return the last call of this point."""
        first = max(self._n_indexed, self.n_dropped)
        for row, key in enumerate(self._keys(first), first):
            self._latest[key] = row
        self._n_indexed = len(self)
        last = self._latest.get(point)
        return None if last is None or last < self.n_dropped else last

    def find_known(self, point: bytes) -> int | None:
        """Return the row of a point whose value was known before."""
        row = self._known.get(point)
        return None if row is None or row < self.n_dropped else row

    def count_cached(self, n_points: int) -> None:
        """Count points of the present generation that needed no call."""
        self._n_cached_now += n_points

    def failures(self, limit: int) -> list[tuple[np.ndarray, Failure]]:
        """Return the first points that failed when they were called, and why."""
        failures: list[tuple[np.ndarray, Failure]] = []
        for table in self._tables:
            called = [(row, failure) for row, failure in table.failures.items() if table.generation[row] > 0]
            failures += [(table.points[row], failure) for row, failure in called]
            if len(failures) >= limit:
                return failures[:limit]
        for entry in self._entries:
            if isinstance(entry.answer, Failure) and entry.generation > 0:
                failures.append((np.frombuffer(entry.point), entry.answer))
                if len(failures) >= limit:
                    break
        return failures[:limit]

    def table(self, widths: dict[str, int]) -> CallTable:
        """Return all calls as arrays."""
        return _concatenate([*self._tables, _tabulate(self._entries, widths)], widths)

    # --- checkpoints ---

    def to_plain(self, under_way: Iterable[tuple[np.ndarray, CallOutcome, int]] = ()) -> dict[str, Any]:
        """Return the log as plain data. under_way: calls of runs that have ended and are not in it yet."""
        n_loose = self._n_closed - self._n_packed
        completed = _concatenate([*self._tables, _tabulate(self._entries[:n_loose], self._widths)], self._widths)
        open_entries = self._entries[n_loose:]
        open_entries += [self._entry(*call) for call in under_way]
        groups: dict[tuple[tuple[str, int], ...], list[int]] = {}  # before their number is known, sizes may differ
        for i, entry in enumerate(open_entries):
            groups.setdefault(_sizes_of(entry.answer), []).append(i)
        return {
            "generations": dict(self.n_completed),
            "n_cached": self.n_cached,
            "n_dropped": self.n_dropped,
            "n_closed": self._n_closed,
            "widths": dict(self._widths),
            "completed": completed.to_plain(),
            "open": [
                (rows, _tabulate([open_entries[i] for i in rows], dict(sizes)).to_plain())
                for sizes, rows in groups.items()
            ],
        }

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> EvaluationLog:
        """Restore a log; the calls of the generation that was not complete are open, and unclaimed."""
        log = cls()
        log.n_completed = Counter(data["generations"])
        log.n_cached, log.n_dropped = data["n_cached"], data["n_dropped"]
        log._n_closed = log._n_packed = data["n_closed"]
        log._widths = dict(data["widths"])
        completed = CallTable.from_plain(data["completed"])
        log._tables = [completed] if len(completed.points) else []
        entries = {}
        for rows, plain in data["open"]:
            table = CallTable.from_plain(plain)
            columns = zip(table.points, table.seconds, table.worker, table.run, table.generation, strict=True)
            for i, (point, seconds, *numbers) in enumerate(columns):
                entries[rows[i]] = LogEntry(point.tobytes(), table.answer(i), float(seconds), *map(int, numbers))
        log._entries = [entries[i] for i in sorted(entries)]
        workers = [*completed.worker.tolist(), *(entry.worker for entry in log._entries)]
        log._first_worker_number = max(workers, default=-1) + 1
        generations = [*completed.generation.tolist(), *(entry.generation for entry in log._entries)]
        known = [row for row, generation in enumerate(generations, log.n_dropped) if generation == 0]
        keys = list(log._keys(log.n_dropped))
        log._known, log.n_known = {keys[row - log.n_dropped]: row for row in known}, len(known)
        log.reopen()
        return log

    def _keys(self, first: int) -> Iterator[bytes]:
        """Yield the points of the rows from `first` on."""
        start = self.n_dropped
        for table in self._tables:
            for i in range(max(0, first - start), len(table.points)):
                yield table.points[i].tobytes()
            start += len(table.points)
        for entry in self._entries[max(0, first - self._n_packed) :]:
            yield entry.point

    def _worker_number(self, call: CallOutcome) -> int:
        if call.process is None:
            return -1
        return self._worker_numbers.setdefault(call.process, self._first_worker_number + len(self._worker_numbers))


def _sizes_of(answer: Answer) -> tuple[tuple[str, int], ...]:
    return () if isinstance(answer, Failure) else tuple((name, values.size) for name, values in answer.items())


def _tabulate(entries: list[LogEntry], widths: dict[str, int]) -> CallTable:
    values = {}
    for name in OUTPUT_NAMES:
        if name in widths:
            missing = np.full(widths[name], np.nan)
            rows = [missing if isinstance(entry.answer, Failure) else entry.answer[name] for entry in entries]
            values[name] = np.array(rows).reshape(len(entries), widths[name])
    points = [np.frombuffer(entry.point) for entry in entries]
    return CallTable(
        points=np.array(points) if points else np.zeros((0, 0)),
        values=values,
        failures={i: entry.answer for i, entry in enumerate(entries) if isinstance(entry.answer, Failure)},
        seconds=np.array([entry.seconds for entry in entries], np.float64),
        worker=np.array([entry.worker for entry in entries], np.int64),
        run=np.array([entry.run for entry in entries], np.int64),
        generation=np.array([entry.generation for entry in entries], np.int64),
    )


def _concatenate(tables: list[CallTable], widths: dict[str, int]) -> CallTable:
    tables = [table for table in tables if len(table.points)] or tables[-1:]
    failures: dict[int, Failure] = {}
    first = 0
    for table in tables:
        failures |= {first + row: failure for row, failure in table.failures.items()}
        first += len(table.points)
    return CallTable(
        points=np.concatenate([table.points for table in tables]),
        values={name: np.concatenate([table.values[name] for table in tables]) for name in widths},
        failures=failures,
        seconds=np.concatenate([table.seconds for table in tables]),
        worker=np.concatenate([table.worker for table in tables]),
        run=np.concatenate([table.run for table in tables]),
        generation=np.concatenate([table.generation for table in tables]),
    )
