"""A problem whose functions are called from Python."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from galapax.core.errors import EvaluationError, InputError, as_user_error
from galapax.core.options import Workers
from galapax.core.problem import (
    BLACK_BOX_EQ_TOLERANCE,
    OUTPUT_NAMES,
    Maximize,
    Problem,
    Shape,
    derive_eq_tolerance,
    orient,
    returned_by_fun,
)
from galapax.objective import pool
from galapax.objective.evaluation_log import EvaluationLog, Failed, WorkerTraceback
from galapax.objective.function_identity import check_arity, check_names
from galapax.objective.pool import Answer, CallOutcome, Failure, Functions
from galapax.objective.remote import RemoteEvaluator

MAX_SHOWN_FAILURES = 5  # failed points that are kept for the result
MAX_LOOKED_AT_FAILURES = 100  # failures among which penalties are looked for
FIRST_CALL_ADVICE = (
    ' An exception in the first call ends the run; with on_failure="worst" every exception is a failed evaluation.'
)


class BlackBox:
    """A problem whose functions are called from Python, one solution at a time or (vectorized) all at once; in this
    process, or by the workers of an executor.

    An exception, a value that is no finite number, an odd return, a worker that dies or takes too long: each is a
    failure of that solution. But an exception in the very first call is raised, unless the caller chose what a failure
    is worth: it is more often a mistake than a property of the point. Ctrl-C, or the end of the time there is, ends the
    evaluation there: the points not reached are left out, and what was evaluated still counts.

    on_failure: see `minimize`.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        dtype: str,
        maximize: Maximize,
        vectorized: bool,
        on_failure: str | None = None,
        workers: Workers = Workers(),
    ) -> None:
        self.problem = problem
        self.dtype = dtype  # in which the engine will compare what comes back
        self.maximize = maximize
        self.on_failure = on_failure
        self.workers = workers
        named = {name: getattr(problem, name) for name in OUTPUT_NAMES}
        self.functions = Functions(
            {name: f for name, f in named.items() if f is not None and f is not returned_by_fun}, vectorized
        )
        for name, function in self.functions.calls.items():
            check_arity(name, function, int(vectorized))
        self.remote = None if workers.pool is None else RemoteEvaluator(self.functions, workers)
        self.eq_tolerance = problem.eq_tolerance  # None until the first generation was evaluated
        self.log = EvaluationLog()
        self.late: Callable[[], bool] = lambda: False  # whether the time there was is over
        self.widths: dict[str, int] = {}  # numbers per solution by name, learnt from the first that come back
        self.missed = np.zeros(0, bool)  # points of the last call that were not reached
        self.calling = False  # inside the user's code, where Ctrl-C is raised at once
        self.interrupted = False  # whether it was, or the user's code raised it by itself
        self.probe_seconds = 0.0  # that calls took to learn `widths`
        self._under_way: tuple[np.ndarray, list[int], list[int | None]] | None = None  # points, places and their rows
        self._runs: np.ndarray = np.zeros(0, int)  # that the points of the last call belong to
        self._runs_of_generation: set[int] = set()  # whose points were asked for
        self._tries: list[int] = []  # failed attempts of each row of the stream

    @property
    def shape(self) -> Shape:
        """How many numbers one solution gives; a function that never succeeded counts as giving one."""
        width = {name: self.widths.get(name, int(getattr(self.problem, name) is not None)) for name in OUTPUT_NAMES}
        return Shape(width["fun"], width["ineq"], width["eq"])

    def _canonical(self, points: np.ndarray) -> np.ndarray:
        """Return the canonical form of points, by which they are cached: equal decoded values, equal points."""
        return points if self.problem.space is None else self.problem.space.round_codes(points)

    @property
    def first_error(self) -> str:
        failures = self.log.failures(1)
        return failures[0][1].error if failures else ""

    @property
    def failures(self) -> list[Failed]:
        """The first few failures, for the result."""
        return [Failed(x.copy(), f.error, f.traceback) for x, f in self.log.failures(MAX_SHOWN_FAILURES)]

    @property
    def returns_penalties(self) -> bool:
        """Whether its functions were seen to return infinite values, as a penalty."""
        return any(failure.is_penalty for _, failure in self.log.failures(MAX_LOOKED_AT_FAILURES))

    @property
    def halt_reason(self) -> str:
        """Why no more points can be evaluated, if so."""
        return self.remote.halt_reason if self.remote is not None else ""

    def memory(self) -> dict[str, object]:
        """Return the state for a checkpoint: the log, with the calls of the present generation that have ended."""
        under_way: list[tuple[np.ndarray, CallOutcome, int]] = []
        if self._under_way is not None and self.remote is not None:
            points, places, rows = self._under_way
            calls = zip(places, self.remote.calls, strict=False)
            open_calls = [(i, call) for i, call in calls if call is not None and rows[i] is None]
            under_way = [(points[i], call, int(self._runs[i])) for i, call in open_calls]
        state = {"eq_tolerance": self.eq_tolerance, "widths": dict(self.widths)}
        return state | {"log": self.log.to_plain(under_way)}

    def recall(self, saved: dict[str, Any] | None) -> None:
        """Restore what `memory` of an earlier process returned."""
        if saved is None:
            return
        self.eq_tolerance = saved["eq_tolerance"]
        self.widths = dict(saved["widths"])
        log = EvaluationLog.from_plain(saved["log"])
        if len(log) >= len(self.log):  # else more of the same calls were made since, to learn `widths`
            self.log = log

    def adapt(self, problem: Problem) -> None:
        """Take up the problem with the constraints that its fun was found to return; the log offers its calls again."""
        self.problem = problem
        self.log.reopen()

    def add_known(self, points: np.ndarray, answers: list[Answer], widths: dict[str, int]) -> None:
        """Add points (k, d) whose values were known before, so that none of them is called. widths: see there."""
        self.widths = dict(widths)
        self.log.add_known(self._canonical(points), answers, widths)

    def is_known(self, points: np.ndarray) -> np.ndarray:
        """Return whether the values of points (n, d) were known before, (n,)."""
        return np.array([self.log.find_known(x.tobytes()) is not None for x in self._canonical(points)], bool)

    def complete_generation(self) -> None:
        """Close a generation, once the search was given all of its values."""
        self.log.complete_generation(self.widths, self._runs_of_generation)
        self._runs_of_generation = set()

    def settle_eq_tolerance(self, equalities: np.ndarray) -> None:
        """Derive the tolerance of equalities from those of the first generation, (n, q), unless one was given."""
        if self.eq_tolerance is None:
            self.eq_tolerance = derive_eq_tolerance(equalities, BLACK_BOX_EQ_TOLERANCE)

    def check_workers(self, rows: int) -> None:
        """Once it is known how many points a generation has: say so where workers have nothing to do."""
        if self.remote is not None and not self.widths:
            self.remote.check_count(rows)

    def close(self) -> None:
        if self.remote is not None:
            self.remote.close()

    def probe(self, candidates: np.ndarray, runs: np.ndarray) -> None:
        """Call some of the first candidates (k, d), to learn how many numbers they give; `widths` stays empty where
        none has a value. The first generation takes what came of them from the log. runs: (k,).
        """
        self._runs = runs
        start, n_before = time.perf_counter(), len(self.log)
        answers = self._answers(self._canonical(candidates))
        calls = self.log.table(self.widths)
        seconds, worker = calls.seconds[n_before:], calls.worker[n_before:]
        busy = float(np.nansum(seconds)) / max(1, len(np.unique(worker[worker >= 0])))
        self.probe_seconds += min(busy, time.perf_counter() - start)  # without the start of the workers
        if not any(isinstance(answer, dict) for answer in answers):
            self.widths = {}
        self.log.reopen()

    def learn_widths_from_failures(self) -> None:
        """Take the numbers that failed calls gave, such as NaN, where no call had a value."""
        self._learn_widths([self.log.answer(row) for row in self.log.open_rows])

    def __call__(self, candidates: np.ndarray, runs: np.ndarray) -> dict[str, np.ndarray]:
        """Raw values {name: (N, width)} at candidates (N, d), NaN where a call failed or was not made.

        runs: (N,) the numbers of the runs that ask.
        """
        candidates, self._runs = self._canonical(candidates), runs
        self._runs_of_generation.update(np.unique(runs).tolist())
        self.missed = np.zeros(len(candidates), bool)
        if not len(candidates):
            return {name: np.zeros((0, self.widths.get(name, 1))) for name in self.widths or self.functions.calls}
        answers = self._answers(candidates)
        self.missed = np.array([answer is None for answer in answers])
        return self._raw(candidates, answers)

    def _raw(self, candidates: np.ndarray, answers: list[Answer | None]) -> dict[str, np.ndarray]:
        """Answers as arrays {name: (N, width)}."""
        if self.on_failure == "raise":
            for x, answer in zip(candidates, answers, strict=True):
                if isinstance(answer, Failure):
                    raise self._evaluation_error(x, answer)
        raw = {name: self._stack_values(name, answers) for name in self.widths}
        if "fun" in raw:
            raw["fun"] = orient(raw["fun"], self.maximize)
        return raw

    def start_stream(self, points: np.ndarray, n_sent: int, run: int) -> None:
        """Start evaluating the first points of a run one by one as workers become free, see `poll`."""
        assert self.remote is not None
        self._runs = np.full(len(points), run)
        self._tries = [0] * len(points)
        self.remote.start_stream(points, n_sent)

    def send(self, row: int) -> None:
        """Evaluate a row of the stream again, at its present point."""
        assert self.remote is not None
        self.remote.send(row)

    @property
    def under_way(self) -> list[int]:
        """Rows of the stream that must not change now: in flight or being retried."""
        assert self.remote is not None
        return self.remote.under_way + [row for row, tries in enumerate(self._tries) if tries]

    def poll(self, points: np.ndarray, max_rows: int) -> dict[int, dict[str, np.ndarray]]:
        """Wait for rows of the stream that were evaluated; return the raw values of at most `max_rows`."""
        assert self.remote is not None
        out: dict[int, dict[str, np.ndarray]] = {}
        try:
            while not out and not self.remote.halt_reason:
                self.calling = True
                results = self.remote.poll(self.late, max_rows)
                self.calling = False
                if not results:
                    break
                for row, call in results:
                    answer = self._find_wrong_size(call.answer) or call.answer
                    self._tries[row] = self._tries[row] + 1 if isinstance(answer, Failure) else 0
                    if 0 < self._tries[row] <= self.workers.retries:
                        self.remote.send(row)
                        continue
                    self._tries[row] = 0
                    run = int(self._runs[row])
                    self._runs_of_generation.add(run)
                    self.log.append(self._canonical(points[row]), call._replace(answer=answer), run)
                    out[row] = {name: values[0] for name, values in self._raw(points[row][None], [answer]).items()}
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self.calling = False
        return out

    def at(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return the constraints at the best point, or at one of the front, as they were when it was evaluated; or else
        call it again.
        """
        point = self._canonical(np.asarray(x, np.float64))
        row = self.log.find(point.tobytes())
        remembered = None if row is None else self.log.answer(row)
        if isinstance(remembered, dict):
            return remembered
        calls = self.functions.calls
        needed_functions = {
            name: f for name, f in calls.items() if name != "fun" or any(n not in calls for n in self.widths)
        }
        answer: Answer | None = None
        if self.remote is not None:  # once its workers are lost, nobody: what killed them may kill this process, too
            call = None if self.remote.halt_reason else self.remote(point[None], lambda: False)[0]
            answer = None if call is None else call.answer
        else:
            answer = (
                pool.evaluate_vectorized(needed_functions, point[None])[0]
                if self.functions.vectorized
                else pool.evaluate_point(needed_functions, point)
            )
        values = answer if isinstance(answer, dict) else {}
        names = [name for name in self.widths if name != "fun"]
        return {name: values.get(name, np.full(self.widths[name], np.nan)) for name in names}

    def _answers(self, points: np.ndarray) -> list[Answer | None]:
        """Return the answer of each point, from the log or by calling; None for those that were not reached."""
        keys = [x.tobytes() for x in points]
        is_first_call = len(self.log) == self.log.n_known
        rows = [self.log.find_known(key) for key in keys]
        rows = [self.log.claim(key) if row is None else row for key, row in zip(keys, rows, strict=True)]
        places = [i for i, row in enumerate(rows) if row is None]
        if self.workers.memoize:
            for i in places:
                rows[i] = self.log.find(keys[i])
            n_unknown = [i for i in places if rows[i] is None]
            to_call = sorted({keys[i]: i for i in reversed(n_unknown)}.values())  # a point that is there twice once
            self.log.count_cached(len(places) - len(to_call))
        else:
            to_call = places
        self._call(points, to_call, rows)
        if is_first_call and to_call:
            self._raise_first_error(points[to_call], [rows[i] for i in to_call])
            self._refuse_other_sizes([row for i in to_call if (row := rows[i]) is not None])
        if not self.widths:
            self._learn_widths([self.log.answer(row) for row in rows if row is not None])
            self._check_sizes([row for row in rows if row is not None])
        for _ in range(self.workers.retries):
            failed = [i for i in to_call if (row := rows[i]) is not None and self._is_failure(row)]
            if not failed or self.late() or self.halt_reason:
                break
            self._call(points, failed, rows)
        if self.workers.memoize:
            rows = [self.log.find(key) if row is None else row for key, row in zip(keys, rows, strict=True)]
        return [None if row is None else self.log.answer(row) for row in rows]

    def _is_failure(self, row: int) -> bool:
        return isinstance(self.log.answer(row), Failure)

    def _call(self, points: np.ndarray, places: list[int], rows: list[int | None]) -> None:
        """Call the functions with the points at these places, as far as time and Ctrl-C allow, and note their rows in
        the log; a point that has one is called again.
        """
        if self.interrupted or not places:
            return
        calls: list[CallOutcome | None] = []
        self._under_way = (points, places, rows)
        try:
            self.calling = True
            if self.remote is not None:
                calls = self.remote(points[places], self.late)
            elif self.functions.vectorized:
                calls = list(pool.call_functions(self.functions, points[places]))
            else:
                self._call_each(points, places, rows)
            self.calling = False
        except KeyboardInterrupt:
            self.interrupted = True
            calls = self.remote.calls if self.remote is not None else calls
        finally:
            self.calling = False
        self._under_way = None
        for i, call in zip(places, calls, strict=False):
            if call is not None:
                self._note_call(points[i], i, call, rows)
        if self.widths:
            self._check_sizes([row for i in places if (row := rows[i]) is not None])

    def _call_each(self, points: np.ndarray, places: list[int], rows: list[int | None]) -> None:
        ends_at_failure = not self.workers.retries and self.on_failure == "raise"
        is_first_call = len(self.log) == self.log.n_known
        raises_first = not self.workers.retries and self.on_failure is None and is_first_call
        for i in places:
            call = pool.call_point(self.functions.calls, points[i])
            self._note_call(points[i], i, call, rows)
            is_failure = isinstance(call.answer, Failure)
            has_raised = isinstance(call.answer, Failure) and bool(call.answer.traceback)
            is_first_error = raises_first and i == places[0] and has_raised
            if self.late() or (ends_at_failure and is_failure) or is_first_error:
                return

    def _note_call(self, point: np.ndarray, place: int, call: CallOutcome, rows: list[int | None]) -> None:
        row = rows[place]
        if row is None:
            rows[place] = self.log.append(point, call, int(self._runs[place]))
        else:
            self.log.amend(row, call)

    def _raise_first_error(self, points: np.ndarray, rows: list[int | None]) -> None:
        """Raise the exception of the very first call, unless a retry may still succeed or failures are expected."""
        answer = None if not len(rows) or rows[0] is None else self.log.answer(rows[0])
        if self.on_failure is None and not self.workers.retries and isinstance(answer, Failure) and answer.traceback:
            raise self._evaluation_error(points[0], answer, FIRST_CALL_ADVICE)

    def _evaluation_error(self, x: np.ndarray, failure: Failure, advice: str = "") -> EvaluationError:
        """Build the error of a failed call, caused by the exception that the user's function raised."""
        shown = x.tolist() if self.problem.space is None else self.problem.params(self.problem.space.decode(x))
        location = f" {failure.location}" if failure.location else ""
        error = EvaluationError(f"{failure.error}{location}, at x = {shown}.{advice}")
        if failure.cause is not None:
            error.__cause__ = as_user_error(failure.cause)
        elif failure.traceback:
            error.__cause__ = WorkerTraceback(failure.traceback)
        return error

    def _learn_widths(self, answers: list[Answer]) -> None:
        """Set `widths` to the names and sizes that most of the first points returned."""
        good = [answer for answer in answers if isinstance(answer, dict)]
        bad = [answer for answer in answers if isinstance(answer, Failure)]
        if not good and bad and all(failure.odd for failure in bad) and self.on_failure != "raise":
            raise InputError(bad[0].error)
        names = {name: 1 for name in OUTPUT_NAMES if getattr(self.problem, name) is not None}
        for failure in reversed(bad):
            names |= dict(failure.sizes)
        if good:
            sizes = Counter(tuple((name, values.size) for name, values in answer.items()) for answer in good)
            names |= dict(sizes.most_common(1)[0][0])
        self.widths = {name: names[name] for name in OUTPUT_NAMES if name in names}
        check_names(self.problem, self.shape, self.maximize)

    def _check_sizes(self, rows: list[int]) -> None:
        """Mark open calls that returned more or fewer numbers than the others as failed."""
        for row in rows:
            failure = self._find_wrong_size(self.log.answer(row))
            if failure is not None:
                self.log.reject(row, failure)

    def _refuse_other_sizes(self, rows: list[int]) -> None:
        """Refuse functions that do not give as many numbers as the known values have."""
        answers = [self.log.answer(row) for row in rows]
        odd = [answer for answer in answers if isinstance(answer, Failure) and answer.odd]
        if self.log.n_known and odd and len(odd) == len(answers):
            raise InputError(f"{odd[0].error}: those of initial. Give the values that fun, ineq and eq return.")

    def _find_wrong_size(self, answer: Answer) -> Failure | None:
        """Return the failure of an answer with more or fewer numbers than the others, if it is one."""
        widths = self.widths
        if isinstance(answer, Failure) or {n: values.size for n, values in answer.items()} == widths:
            return None
        name = next(n for n in OUTPUT_NAMES if widths.get(n, 0) != (answer[n].size if n in answer else 0))
        count = answer[name].size if name in answer else 0
        return Failure(
            f"{name} returned {count} numbers for one solution and {widths.get(name, 0)} for others", odd=True
        )

    def _stack_values(self, name: str, answers: list[Answer | None]) -> np.ndarray:
        """Stack the values of all points by this name, (N, width); NaN for failures."""
        nothing = np.full(self.widths[name], np.nan)
        return np.array([answer[name] if isinstance(answer, dict) else nothing for answer in answers])
