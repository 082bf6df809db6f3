"""A problem whose functions are called from Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from galapax.core.errors import EvaluationError, InputError
from galapax.core.evaluation import OUTPUT_NAMES, Shape, returned_by_fun
from galapax.core.options import Workers
from galapax.core.problem import Problem
from galapax.evaluation import memory, worker
from galapax.evaluation.dispatch import Remote
from galapax.evaluation.failures import Failed, summarise
from galapax.evaluation.fit import check_arity, check_names
from galapax.evaluation.worker import Answer, Failure, Functions

KNOWN = 20_000  # points whose constraints are remembered, so that they need not be called again for the result
SHOWN = 5  # failed points that are kept for the result


class Discovered(InputError):
    """A black box gave several objectives or constraints that only calling it could show.

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
        remote: Remote | None = None,
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
            self.remote = Remote(self.functions, workers)
        self.late: Callable[[], bool] = lambda: False  # whether the time there was is over
        self.widths: dict[str, int] = {}  # numbers per solution by name, learnt from the first that come back
        self.failures: list[Failed] = []
        self.missed = np.zeros(0, bool)  # points of the last call that were not reached
        self.n_cached = 0  # points whose values were known
        self.calling = False  # inside the user's code, where Ctrl-C is raised at once
        self.interrupted = False  # whether it was, or the user's code raised it by itself
        self.first: dict[bytes, Answer] = {}  # what came of the first points, or with `cache` of all
        self.given: dict[bytes, Answer] = {}  # what an earlier attempt at the first points brought, each for one call
        self.n_probed = 0  # candidates of the first run that were called to learn `widths`
        self.probed: set[bytes] = set()  # points called before the first generation, which has them among its own
        self._opening = True  # the first points are still being asked for, and remembered
        self._again: dict[bytes, Answer] = {}  # of the generation in which a run ended that goes on now
        self._before: dict[bytes, Answer] = {}  # of this generation, from calls before the last
        self._under_way: tuple[np.ndarray, list[int], list[Answer | None]] | None = None  # points, rows and answers
        self._tries: list[int] = []  # of each row of a flow, that failed
        self._best: tuple[float, float] = (np.inf, np.inf)  # violation and value of the best so far
        self._known: dict[bytes, dict[str, np.ndarray]] = {}  # raw values of points that may be asked for once more

    @property
    def shape(self) -> Shape:
        """How many numbers one solution gives; a function that never succeeded counts as giving one."""
        width = {name: self.widths.get(name, int(getattr(self.problem, name) is not None)) for name in OUTPUT_NAMES}
        return Shape(width["fun"], width["ineq"], width["eq"])

    @property
    def found(self) -> dict[str, Any]:
        """The constraints that its fun was found to return."""
        return {
            name: returned_by_fun for name in ("ineq", "eq") if name in self.widths and name not in self.functions.calls
        }

    def _known_by(self, points: np.ndarray) -> np.ndarray:
        """Points as they are remembered: those that mean the same are the same."""
        return points if self.problem.space is None else self.problem.space.round_codes(points)

    @property
    def first_error(self) -> str:
        return self.failures[0].error if self.failures else ""

    @property
    def halted(self) -> str:
        """Why no more points can be evaluated, if so."""
        return self.remote.halted if self.remote is not None else ""

    def memory(self) -> dict[str, Any]:
        """What it remembers, as plain data; and the answers of the generation under way."""
        last: dict[bytes, Answer] = self._again | self._before
        if self._under_way is not None:
            points, rows, made = self._under_way
            made = made if self.remote is None else self.remote.answers
            last |= {points[i].tobytes(): answer for i, answer in zip(rows, made, strict=False) if answer is not None}
        return {
            "widths": dict(self.widths),
            "failures": list(self.failures),
            "n_cached": self.n_cached,
            "best": self._best,
            "opening": self._opening,
            "first": memory.kept(self.first),
            "n_probed": self.n_probed,
            "probed": memory.kept({point: self.first[point] for point in self.probed if point in self.first}),
            "known": memory.kept(dict(self._known)),
            "last": memory.kept(last),
        }

    def recall(self, kept: dict[str, Any] | None) -> None:
        """Remember what an earlier process did."""
        if kept is None:
            return
        self.widths, self.failures, self.n_cached = dict(kept["widths"]), list(kept["failures"]), kept["n_cached"]
        self._best, self.first = kept["best"], self.first | memory.recalled(kept["first"])
        self.given |= self.first  # a run that ended among the first points begins with them
        self.n_probed = kept.get("n_probed", 0)
        self.probed = set(memory.recalled(kept["probed"])) if "probed" in kept else set()
        self._known = {p: a for p, a in memory.recalled(kept["known"]).items() if isinstance(a, dict)}
        self._again, self._opening = memory.recalled(kept["last"]), kept.get("opening", not self.widths)

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
        candidates = self._known_by(candidates)
        candidates = candidates[np.sort(np.unique(candidates, axis=0, return_index=True)[1])]  # each once, in order
        answers = self._answers(candidates)
        if not any(isinstance(answer, dict) for answer in answers):
            self.widths = {}
        known = {x.tobytes(): answer for x, answer in zip(candidates, answers, strict=True) if answer is not None}
        self.given |= known
        self.probed |= set(known)

    def __call__(self, candidates: np.ndarray, more: bool = False) -> dict[str, np.ndarray]:
        """Raw values {name: (N, width)} at candidates (N, d), NaN where a call failed or was not made.

        more: others of the same generation follow.
        """
        candidates = self._known_by(candidates)
        self.missed = np.zeros(len(candidates), bool)
        if not len(candidates):
            return {name: np.zeros((0, self.widths.get(name, 1))) for name in self.widths or self.functions.calls}
        answers = self._answers(candidates)
        self.missed = np.array([answer is None for answer in answers])
        if more:
            made = zip(candidates, answers, strict=True)
            self._before = {x.tobytes(): answer for x, answer in made if answer is not None}
        elif not self.missed.any():
            self._again, self._before, self.given, self._under_way, self._opening = {}, {}, {}, None, False
            self.n_probed, self.probed = 0, set()
        return self._raw(candidates, answers, may_win=not more)

    def _raw(self, candidates: np.ndarray, answers: list[Answer | None], may_win: bool = True) -> dict[str, np.ndarray]:
        """Answers as arrays {name: (N, width)}; failures are noted. may_win: one of the points may be the answer."""
        for x, answer in zip(candidates, answers, strict=True):
            if isinstance(answer, Failure):
                self._note(x, answer)
        raw = {name: self._column(name, answers) for name in self.widths}
        if self.maximize:
            raw["fun"] = -raw["fun"]
        if self.problem.constrained and may_win:
            self._remember(candidates, raw)
        return raw

    def flow(self, points: np.ndarray) -> None:
        """Have points evaluated as workers are free, see `arrivals`."""
        assert self.remote is not None
        self._tries = [0] * len(points)
        self.remote.flow(points)

    def send(self, row: int) -> None:
        """Have a row of a flow evaluated once more, with its point as it then is."""
        assert self.remote is not None
        self.remote.send(row)

    @property
    def under_way(self) -> list[int]:
        """Rows of a flow that must not change now: workers have them, or they are tried again."""
        assert self.remote is not None
        return self.remote.under_way + [row for row, tries in enumerate(self._tries) if tries]

    def arrivals(self, points: np.ndarray, most: int) -> dict[int, dict[str, np.ndarray]]:
        """Rows of a flow that were evaluated, with their raw values, at most so many; none once it is late."""
        assert self.remote is not None
        out: dict[int, dict[str, np.ndarray]] = {}
        try:
            while not out and not self.remote.halted:
                self.calling = True
                came = self.remote.arrivals(self.late, most)
                self.calling = False
                if not came:
                    break
                for row, answer in came:
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
        point = self._known_by(np.asarray(x, np.float64))
        known = self._known.get(point.tobytes())
        if known is not None:
            return known
        calls = self.functions.calls
        own = {name: f for name, f in calls.items() if name != "fun" or any(n not in calls for n in self.widths)}
        answer: Answer | None = None
        if self.remote is not None:  # once its workers are lost, nobody: what killed them may kill this process, too
            answer = None if self.remote.halted else self.remote(point[None], lambda: False)[0]
        else:
            answer = worker.at_once(own, point[None])[0] if self.functions.vectorized else worker.one(own, point)
        values = answer if isinstance(answer, dict) else {}
        names = [name for name in self.widths if name != "fun"]
        return {name: values.get(name, np.full(self.widths[name], np.nan)) for name in names}

    def _answers(self, points: np.ndarray) -> list[Answer | None]:
        """What came of each point, from memory or by calling; None for those that were not reached."""
        remembers = self.workers.memoize or self._opening
        keys = [x.tobytes() for x in points] if remembers or self.given else []
        answers: list[Answer | None] = [None] * len(points)
        if keys:
            answers = [self.first.get(key) if self.workers.memoize else self.given.pop(key, None) for key in keys]
        # also those that an earlier process has called
        fresh = len({key for key in keys if key not in self.first or key in self.probed})
        if self._again:
            answers = [self._again.get(x.tobytes(), known) for x, known in zip(points, answers, strict=True)]
        rows = [i for i, answer in enumerate(answers) if answer is None]
        if self.workers.memoize:  # a point that is there twice is called once
            rows = sorted({keys[i]: i for i in reversed(rows)}.values())
        self._fill(answers, points, rows)
        if not self.widths:
            self._learn([answer for answer in answers if answer is not None])
            self._check_sizes(answers, range(len(points)))
        for _ in range(self.workers.retries):
            failed = [i for i in rows if isinstance(answers[i], Failure)]
            if not failed or self.late() or self.halted:
                break
            before = [answers[i] for i in failed]
            self._fill(answers, points, failed)
            for i, failure in zip(failed, before, strict=True):  # not reached again: it failed as it did
                answers[i] = failure if answers[i] is None else answers[i]
        if remembers:
            known = {key: answer for key, answer in zip(keys, answers, strict=True) if answer is not None}
            whole = all(answers[i] is not None for i in rows)  # else it is asked for once more when the run goes on
            if whole or not self.workers.memoize:
                self.first |= known
            if whole:
                self.n_cached += len(points) - fresh if self.workers.memoize else 0
            if self.workers.memoize:
                answers = [known.get(key) for key in keys]
        return answers

    def _fill(self, answers: list[Answer | None], points: np.ndarray, rows: list[int]) -> None:
        """Call the functions with these points, as far as time and Ctrl-C allow."""
        for i in rows:
            answers[i] = None
        made: list[Answer | None] = []
        if self.interrupted:
            return
        if rows:
            self._under_way = (points, rows, made)
        try:
            self.calling = True
            if not rows:
                pass
            elif self.remote is not None:
                made.extend(self.remote(points[rows], self.late))
            elif self.functions.vectorized:
                made.extend(worker.at_once(self.functions.calls, points[rows]))
            else:
                self._one_by_one(points, rows, made)
            self.calling = False
        except KeyboardInterrupt:
            self.interrupted = True
            made[:] = self.remote.answers if self.remote is not None else made
        finally:
            self.calling = False
        for i, answer in zip(rows, made, strict=False):
            answers[i] = answer
        if self.widths:
            self._check_sizes(answers, rows)

    def _one_by_one(self, points: np.ndarray, rows: list[int], made: list[Answer | None]) -> None:
        calls, late = self.functions.calls, self.late
        ends = self.raise_failures and not self.workers.retries
        for i in rows:
            answer = worker.one(calls, points[i])
            made.append(answer)
            if late() or (ends and isinstance(answer, Failure)):
                return

    def _learn(self, answers: list[Answer]) -> None:
        """Which names there are and how many numbers each has: what most of the first points say."""
        good = [answer for answer in answers if isinstance(answer, dict)]
        bad = [answer for answer in answers if isinstance(answer, Failure)]
        if not good and bad and all(failure.odd for failure in bad) and not self.raise_failures:
            raise InputError(bad[0].error)
        names = {name: 1 for name in OUTPUT_NAMES if getattr(self.problem, name) is not None}
        for failure in reversed(bad):
            names |= dict(failure.sizes)
        if good:
            sizes = Counter(tuple((name, own.size) for name, own in answer.items()) for answer in good)
            names |= dict(sizes.most_common(1)[0][0])
        self.widths = {name: names[name] for name in OUTPUT_NAMES if name in names}
        check_names(self.problem, self.shape)

    def _check_sizes(self, answers: list[Answer | None], rows: Any) -> None:
        """A point with more or fewer numbers than the others has failed."""
        widths = self.widths
        for i in rows:
            answer = answers[i]
            if not isinstance(answer, dict) or {n: own.size for n, own in answer.items()} == widths:
                continue
            name = next(n for n in OUTPUT_NAMES if widths.get(n, 0) != (answer[n].size if n in answer else 0))
            count = answer[name].size if name in answer else 0
            error = f"{name} returned {count} numbers for one solution and {widths.get(name, 0)} for others"
            answers[i] = Failure(error, odd=True)

    def _column(self, name: str, answers: list[Answer | None]) -> np.ndarray:
        """The numbers of all points by this name, (N, width)."""
        nothing = np.full(self.widths[name], np.nan)
        return np.array([answer[name] if isinstance(answer, dict) else nothing for answer in answers])

    def _note(self, x: np.ndarray, failure: Failure) -> None:
        if self.raise_failures:
            where = x.tolist() if self.problem.space is None else self.problem.named(self.problem.space.decode(x))
            raise EvaluationError(f"{failure.error}, at x = {where}") from failure.cause
        if len(self.failures) < SHOWN:
            self.failures.append(Failed(x.copy(), failure.error))

    def _remember(self, candidates: np.ndarray, raw: dict[str, np.ndarray]) -> None:
        seen = {name: values.astype(self.dtype) for name, values in raw.items()}
        judged = summarise(seen["fun"], seen.get("ineq"), seen.get("eq"), self.problem.eq_tolerance, np)
        violation: Any = judged.violation
        several = raw["fun"].shape[1] > 1
        for i in np.flatnonzero(~judged.failed):
            # of several objectives any feasible point may be on the front in the end: the latest are kept
            found = (float(violation[i]), 0.0 if several else float(judged.fitness[i]))
            if found < self._best:
                self._best = found
                self._known.clear()
            if found == self._best:
                if len(self._known) >= KNOWN:  # on a plateau every point is as good
                    del self._known[next(iter(self._known))]
                self._known[candidates[i].tobytes()] = {name: values[i] for name, values in raw.items()}
