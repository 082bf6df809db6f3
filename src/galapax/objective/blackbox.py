"""A problem whose functions are called from Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from galapax.core.errors import EvaluationError, InputError
from galapax.core.evaluation import OUTPUT_NAMES, Shape, returned_by_fun
from galapax.core.options import Workers
from galapax.core.problem import BLACK_BOX_EQ_TOLERANCE, Problem, derive_eq_tolerance
from galapax.objective import worker
from galapax.objective.compatibility import check_arity, check_names
from galapax.objective.failures import Failed, summarise
from galapax.objective.remote import RemoteEvaluator
from galapax.objective.worker import Answer, Failure, Functions

MAX_REMEMBERED_POINTS = (
    20_000  # points whose constraints are remembered, so that they need not be called again for the result
)
MAX_SHOWN_FAILURES = 5  # failed points that are kept for the result


class ObjectiveShapeMismatch(InputError):
    """Raised when calling a black box shows other objectives or constraints than the task was prepared for.

    box: remembers what came of its points. points: (runs, k, d), the first candidates of each run, of which the first
    run's were called; None if the attempt that follows begins with the same ones anyway.
    """

    def __init__(self, box: BlackBox, points: np.ndarray | None = None) -> None:
        super().__init__(
            f"fun of {box.problem.name!r} returns constraints together with its value, which only a call can show: "
            "minimize takes them; for anything else give ineq and eq as functions."
        )
        self.box, self.points = box, points


class BlackBox:
    """A problem whose functions are called from Python, one solution at a time or (vectorized) all at once; in this
    process, or by the workers of an executor.

    An exception, a value that is no finite number, an odd return, a worker that dies or takes too long: each is a
    failure of that solution, and the first few are kept for the result. Ctrl-C, or the end of the time there is, ends
    the evaluation there: the points not reached are left out, and what was evaluated still counts.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        dtype: str,
        maximize: bool,
        vectorized: bool,
        raise_failures: bool,
        workers: Workers = Workers(),
        remote: RemoteEvaluator | None = None,
    ) -> None:
        self.problem = problem
        self.dtype = dtype  # in which the engine will compare what comes back
        self.maximize = maximize
        self.raise_failures = raise_failures
        self.workers = workers
        named = {name: getattr(problem, name) for name in OUTPUT_NAMES}
        self.functions = Functions(
            {name: f for name, f in named.items() if f is not None and f is not returned_by_fun}, vectorized
        )
        for name, function in self.functions.calls.items():
            check_arity(name, function, int(vectorized))
        self.remote = remote
        if workers.pool is not None and remote is None:
            self.remote = RemoteEvaluator(self.functions, workers)
        self.eq_tolerance = problem.eq_tolerance  # None until the first generation was evaluated
        self.late: Callable[[], bool] = lambda: False  # whether the time there was is over
        self.widths: dict[str, int] = {}  # numbers per solution by name, learnt from the first that come back
        self.failures: list[Failed] = []
        self.missed = np.zeros(0, bool)  # points of the last call that were not reached
        self.n_cached = 0  # points whose values were known
        self.calling = False  # inside the user's code, where Ctrl-C is raised at once
        self.interrupted = False  # whether it was, or the user's code raised it by itself
        self.cache: dict[bytes, Answer] = {}  # answers of the first points, or with `memoize` of all
        self.reusable_answers: dict[bytes, Answer] = {}  # of an earlier attempt at the first points, each for one call
        self.n_probed = 0  # candidates of the first run that were called to learn `widths`
        self.probed: set[bytes] = set()  # points called before the first generation, which has them among its own
        self._is_first_generation = True  # the first points are still being asked for, and remembered
        self._resumed_answers: dict[bytes, Answer] = {}  # of the generation in which a run ended that goes on now
        self._earlier_answers: dict[bytes, Answer] = {}  # of this generation, from calls before the last
        self._under_way: tuple[np.ndarray, list[int], list[Answer | None]] | None = None  # points, rows and answers
        self._tries: list[int] = []  # failed attempts of each row of the stream
        self._best: tuple[float, float] = (np.inf, np.inf)  # violation and value of the best so far
        self._best_values: dict[bytes, dict[str, np.ndarray]] = {}  # raw values of points that may become the result

    @property
    def shape(self) -> Shape:
        """How many numbers one solution gives; a function that never succeeded counts as giving one."""
        width = {name: self.widths.get(name, int(getattr(self.problem, name) is not None)) for name in OUTPUT_NAMES}
        return Shape(width["fun"], width["ineq"], width["eq"])

    @property
    def returned_constraints(self) -> dict[str, Any]:
        """The constraints that its fun was found to return."""
        return {
            name: returned_by_fun for name in ("ineq", "eq") if name in self.widths and name not in self.functions.calls
        }

    def _canonical(self, points: np.ndarray) -> np.ndarray:
        """Return the canonical form of points, by which they are cached: equal decoded values, equal points."""
        return points if self.problem.space is None else self.problem.space.round_codes(points)

    @property
    def first_error(self) -> str:
        return self.failures[0].error if self.failures else ""

    @property
    def halted(self) -> str:
        """Why no more points can be evaluated, if so."""
        return self.remote.halted if self.remote is not None else ""

    def memory(self) -> dict[str, Any]:
        """Return the state for a checkpoint: caches, failures, and the answers of the generation in progress."""
        last: dict[bytes, Answer] = self._resumed_answers | self._earlier_answers
        if self._under_way is not None:
            points, rows, finished = self._under_way
            finished = finished if self.remote is None else self.remote.answers
            last |= {
                points[i].tobytes(): answer for i, answer in zip(rows, finished, strict=False) if answer is not None
            }
        return {
            "eq_tolerance": self.eq_tolerance,
            "widths": dict(self.widths),
            "failures": list(self.failures),
            "n_cached": self.n_cached,
            "best": self._best,
            "opening": self._is_first_generation,
            "first": serialize_answers(self.cache),
            "n_probed": self.n_probed,
            "probed": serialize_answers({point: self.cache[point] for point in self.probed if point in self.cache}),
            "known": serialize_answers(dict(self._best_values)),
            "last": serialize_answers(last),
        }

    def recall(self, saved: dict[str, Any] | None) -> None:
        """Restore what `memory` of an earlier process returned."""
        if saved is None:
            return
        self.eq_tolerance = saved["eq_tolerance"]
        self.widths, self.failures, self.n_cached = dict(saved["widths"]), list(saved["failures"]), saved["n_cached"]
        self._best, self.cache = saved["best"], self.cache | deserialize_answers(saved["first"])
        self.reusable_answers |= self.cache  # a run that ended among the first points begins with them
        self.n_probed = saved.get("n_probed", 0)
        self.probed = set(deserialize_answers(saved["probed"])) if "probed" in saved else set()
        self._best_values = {p: a for p, a in deserialize_answers(saved["known"]).items() if isinstance(a, dict)}
        self._resumed_answers = deserialize_answers(saved["last"])
        self._is_first_generation = saved.get("opening", not self.widths)

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

    def probe(self, candidates: np.ndarray) -> None:
        """Call some of the first candidates (k, d), to learn how many numbers they give; `widths` stays empty where
        none has a value. The first generation takes what came of them from memory.
        """
        self.n_probed += len(candidates)
        candidates = self._canonical(candidates)
        candidates = candidates[np.sort(np.unique(candidates, axis=0, return_index=True)[1])]  # each once, in order
        answers = self._answers(candidates)
        if not any(isinstance(answer, dict) for answer in answers):
            self.widths = {}
        answered = {x.tobytes(): answer for x, answer in zip(candidates, answers, strict=True) if answer is not None}
        self.reusable_answers |= answered
        self.probed |= set(answered)

    def __call__(self, candidates: np.ndarray, more: bool = False) -> dict[str, np.ndarray]:
        """Raw values {name: (N, width)} at candidates (N, d), NaN where a call failed or was not made.

        more: others of the same generation follow.
        """
        candidates = self._canonical(candidates)
        self.missed = np.zeros(len(candidates), bool)
        if not len(candidates):
            return {name: np.zeros((0, self.widths.get(name, 1))) for name in self.widths or self.functions.calls}
        answers = self._answers(candidates)
        self.missed = np.array([answer is None for answer in answers])
        if more:
            pairs = zip(candidates, answers, strict=True)
            self._earlier_answers = {x.tobytes(): answer for x, answer in pairs if answer is not None}
        elif not self.missed.any():
            self._resumed_answers, self._earlier_answers, self.reusable_answers = {}, {}, {}
            self._under_way, self._is_first_generation = None, False
            self.n_probed, self.probed = 0, set()
        return self._raw(candidates, answers, may_win=not more)

    def _raw(self, candidates: np.ndarray, answers: list[Answer | None], may_win: bool = True) -> dict[str, np.ndarray]:
        """Answers as arrays {name: (N, width)}; failures are noted. may_win: one of the points may be the answer."""
        for x, answer in zip(candidates, answers, strict=True):
            if isinstance(answer, Failure):
                self._note_failure(x, answer)
        raw = {name: self._stack_values(name, answers) for name in self.widths}
        if self.maximize:
            raw["fun"] = -raw["fun"]
        if self.problem.constrained and may_win:
            self._remember_best(candidates, raw)
        return raw

    def start_stream(self, points: np.ndarray) -> None:
        """Start evaluating points one by one as workers become free, see `poll`."""
        assert self.remote is not None
        self._tries = [0] * len(points)
        self.remote.start_stream(points)

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
            while not out and not self.remote.halted:
                self.calling = True
                results = self.remote.poll(self.late, max_rows)
                self.calling = False
                if not results:
                    break
                for row, answer in results:
                    answers: list[Answer | None] = [answer]
                    self._check_sizes(answers, [0])
                    failed = isinstance(answers[0], Failure)
                    self._tries[row] = self._tries[row] + 1 if failed else 0
                    if 0 < self._tries[row] <= self.workers.retries:
                        self.remote.send(row)
                        continue
                    self._tries[row] = 0
                    out[row] = {name: values[0] for name, values in self._raw(points[row][None], answers).items()}
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self.calling = False
        return out

    def at(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The constraints at the best point, or at one of the front: as they were when it was evaluated, or else called
        again.
        """
        point = self._canonical(np.asarray(x, np.float64))
        remembered = self._best_values.get(point.tobytes())
        if remembered is not None:
            return remembered
        calls = self.functions.calls
        needed_functions = {
            name: f for name, f in calls.items() if name != "fun" or any(n not in calls for n in self.widths)
        }
        answer: Answer | None = None
        if self.remote is not None:  # once its workers are lost, nobody: what killed them may kill this process, too
            answer = None if self.remote.halted else self.remote(point[None], lambda: False)[0]
        else:
            answer = (
                worker.evaluate_vectorized(needed_functions, point[None])[0]
                if self.functions.vectorized
                else worker.evaluate_point(needed_functions, point)
            )
        values = answer if isinstance(answer, dict) else {}
        names = [name for name in self.widths if name != "fun"]
        return {name: values.get(name, np.full(self.widths[name], np.nan)) for name in names}

    def _answers(self, points: np.ndarray) -> list[Answer | None]:
        """Return the answer of each point, from memory or by calling; None for those that were not reached."""
        remembers = self.workers.memoize or self._is_first_generation
        keys = [x.tobytes() for x in points] if remembers or self.reusable_answers else []
        answers: list[Answer | None] = [None] * len(points)
        if keys:
            answers = [
                self.cache.get(key) if self.workers.memoize else self.reusable_answers.pop(key, None) for key in keys
            ]
        # also those that an earlier process has called
        fresh = len({key for key in keys if key not in self.cache or key in self.probed})
        if self._resumed_answers:
            answers = [
                self._resumed_answers.get(x.tobytes(), answered) for x, answered in zip(points, answers, strict=True)
            ]
        rows = [i for i, answer in enumerate(answers) if answer is None]
        if self.workers.memoize:  # a point that is there twice is called once
            rows = sorted({keys[i]: i for i in reversed(rows)}.values())
        self._fill(answers, points, rows)
        if not self.widths:
            self._learn_widths([answer for answer in answers if answer is not None])
            self._check_sizes(answers, range(len(points)))
        for _ in range(self.workers.retries):
            failed = [i for i in rows if isinstance(answers[i], Failure)]
            if not failed or self.late() or self.halted:
                break
            previous_failures = [answers[i] for i in failed]
            self._fill(answers, points, failed)
            for i, failure in zip(failed, previous_failures, strict=True):  # not reached again: it failed as it did
                answers[i] = failure if answers[i] is None else answers[i]
        if remembers:
            answered = {key: answer for key, answer in zip(keys, answers, strict=True) if answer is not None}
            is_complete = all(
                answers[i] is not None for i in rows
            )  # else it is asked for once more when the run goes on
            if is_complete or not self.workers.memoize:
                self.cache |= answered
            if is_complete:
                self.n_cached += len(points) - fresh if self.workers.memoize else 0
            if self.workers.memoize:
                answers = [answered.get(key) for key in keys]
        return answers

    def _fill(self, answers: list[Answer | None], points: np.ndarray, rows: list[int]) -> None:
        """Call the functions with these points, as far as time and Ctrl-C allow."""
        for i in rows:
            answers[i] = None
        collected: list[Answer | None] = []
        if self.interrupted:
            return
        if rows:
            self._under_way = (points, rows, collected)
        try:
            self.calling = True
            if not rows:
                pass
            elif self.remote is not None:
                collected.extend(self.remote(points[rows], self.late))
            elif self.functions.vectorized:
                collected.extend(worker.evaluate_vectorized(self.functions.calls, points[rows]))
            else:
                self._call_each(points, rows, collected)
            self.calling = False
        except KeyboardInterrupt:
            self.interrupted = True
            collected[:] = self.remote.answers if self.remote is not None else collected
        finally:
            self.calling = False
        for i, answer in zip(rows, collected, strict=False):
            answers[i] = answer
        if self.widths:
            self._check_sizes(answers, rows)

    def _call_each(self, points: np.ndarray, rows: list[int], collected: list[Answer | None]) -> None:
        calls, late = self.functions.calls, self.late
        ends = self.raise_failures and not self.workers.retries
        for i in rows:
            answer = worker.evaluate_point(calls, points[i])
            collected.append(answer)
            if late() or (ends and isinstance(answer, Failure)):
                return

    def _learn_widths(self, answers: list[Answer]) -> None:
        """Set `widths` to the names and sizes that most of the first points returned."""
        good = [answer for answer in answers if isinstance(answer, dict)]
        bad = [answer for answer in answers if isinstance(answer, Failure)]
        if not good and bad and all(failure.odd for failure in bad) and not self.raise_failures:
            raise InputError(bad[0].error)
        names = {name: 1 for name in OUTPUT_NAMES if getattr(self.problem, name) is not None}
        for failure in reversed(bad):
            names |= dict(failure.sizes)
        if good:
            sizes = Counter(tuple((name, values.size) for name, values in answer.items()) for answer in good)
            names |= dict(sizes.most_common(1)[0][0])
        self.widths = {name: names[name] for name in OUTPUT_NAMES if name in names}
        check_names(self.problem, self.shape)

    def _check_sizes(self, answers: list[Answer | None], rows: Any) -> None:
        """Mark points that returned more or fewer numbers than the others as failed."""
        widths = self.widths
        for i in rows:
            answer = answers[i]
            if not isinstance(answer, dict) or {n: values.size for n, values in answer.items()} == widths:
                continue
            name = next(n for n in OUTPUT_NAMES if widths.get(n, 0) != (answer[n].size if n in answer else 0))
            count = answer[name].size if name in answer else 0
            error = f"{name} returned {count} numbers for one solution and {widths.get(name, 0)} for others"
            answers[i] = Failure(error, odd=True)

    def _stack_values(self, name: str, answers: list[Answer | None]) -> np.ndarray:
        """Stack the values of all points by this name, (N, width); NaN for failures."""
        nothing = np.full(self.widths[name], np.nan)
        return np.array([answer[name] if isinstance(answer, dict) else nothing for answer in answers])

    def _note_failure(self, x: np.ndarray, failure: Failure) -> None:
        if self.raise_failures:
            where = x.tolist() if self.problem.space is None else self.problem.params(self.problem.space.decode(x))
            raise EvaluationError(f"{failure.error}, at x = {where}") from failure.cause
        if len(self.failures) < MAX_SHOWN_FAILURES:
            self.failures.append(Failed(x.copy(), failure.error))

    def _remember_best(self, candidates: np.ndarray, raw: dict[str, np.ndarray]) -> None:
        rounded = {name: values.astype(self.dtype) for name, values in raw.items()}
        evaluation = summarise(rounded["fun"], rounded.get("ineq"), rounded.get("eq"), (self.eq_tolerance or 0.0), np)
        violation: Any = evaluation.violation
        is_multi_objective = raw["fun"].shape[1] > 1
        for i in np.flatnonzero(~evaluation.failed):
            # of several objectives any feasible point may be on the front in the end: the latest are kept
            merit = (float(violation[i]), 0.0 if is_multi_objective else float(evaluation.fitness[i]))
            if merit < self._best:
                self._best = merit
                self._best_values.clear()
            if merit == self._best:
                if len(self._best_values) >= MAX_REMEMBERED_POINTS:  # on a plateau every point is as good
                    del self._best_values[next(iter(self._best_values))]
                self._best_values[candidates[i].tobytes()] = {name: values[i] for name, values in raw.items()}


def serialize_answers(answers: dict[bytes, Answer]) -> dict[str, Any]:
    """Convert answers by point to a few arrays, one for all answers with the same names and sizes."""
    groups: dict[tuple[tuple[str, int], ...], list[bytes]] = {}
    failures: list[tuple[bytes, Failure]] = []
    for point, answer in answers.items():
        if isinstance(answer, Failure):
            failures.append((point, answer._replace(cause=None)))
        else:
            groups.setdefault(tuple((name, values.size) for name, values in answer.items()), []).append(point)
    return {
        "values": [
            (_stack_points(points), {name: np.array([_values(answers[p], name) for p in points]) for name, _ in names})
            for names, points in groups.items()
        ],
        "failures": [(np.frombuffer(point), failure) for point, failure in failures],
    }


def deserialize_answers(data: dict[str, Any]) -> dict[bytes, Answer]:
    """Convert the output of `serialize_answers` back to answers by point."""
    answers: dict[bytes, Answer] = {}
    for points, columns in data["values"]:
        for i, point in enumerate(points):
            answers[point.tobytes()] = {name: values[i] for name, values in columns.items()}
    return answers | {point.tobytes(): failure for point, failure in data["failures"]}


def _stack_points(points: list[bytes]) -> np.ndarray:
    return np.array([np.frombuffer(point) for point in points])


def _values(answer: Answer, name: str) -> np.ndarray:
    assert isinstance(answer, dict)
    return answer[name]
