"""A problem whose functions are called from Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from galapax.core.checks import reals, short
from galapax.core.errors import EvaluationError, InputError
from galapax.core.evaluation import Shape
from galapax.core.problem import Problem
from galapax.evaluation.failures import summarise
from galapax.evaluation.fit import check_arity, check_names

KNOWN = 20_000  # points whose constraints are remembered, so that they need not be called again for the result


class SeveralObjectives(Exception):
    """A black box that was taken for one objective gave several. box: remembers what it was asked."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__()
        self.box = box


class BlackBox:
    """A problem whose functions are called from Python, one solution at a time or (vectorized) all at once.

    An exception counts as a failure of that solution; the first is kept for the message. Ctrl-C inside a call ends the
    evaluation there: the points not reached are left out, and what was evaluated still counts.
    """

    def __init__(self, problem: Problem, *, dtype: str, maximize: bool, vectorized: bool, raise_failures: bool) -> None:
        self.problem = problem
        self.dtype = dtype  # in which the engine will compare what comes back
        self.maximize = maximize
        self.vectorized = vectorized
        self.raise_failures = raise_failures
        self.functions = {n: getattr(problem, n) for n in ("fun", "ineq", "eq") if getattr(problem, n) is not None}
        for name, function in self.functions.items():
            check_arity(name, function, int(vectorized))
        self.widths: dict[str, int] = {}  # numbers per solution, learnt from the first that comes back
        self.first_error = ""
        self.skipped = 0  # points not reached because of Ctrl-C
        self.calling = False  # inside the user's code, where Ctrl-C is raised at once
        self.first: dict[bytes, dict[str, np.ndarray | None]] = {}  # what came of the first points
        self._best: tuple[float, float] = (np.inf, np.inf)  # violation and value of the best so far
        self._known: dict[bytes, dict[str, np.ndarray]] = {}  # raw values of points that may be asked for once more

    @property
    def shape(self) -> Shape:
        """How many numbers one solution gives; a function that never succeeded counts as giving one."""
        width = {name: self.widths.get(name, 1) if name in self.functions else 0 for name in ("fun", "ineq", "eq")}
        return Shape(width["fun"], width["ineq"], width["eq"])

    def __call__(self, candidates: np.ndarray) -> dict[str, np.ndarray]:
        """Raw values {name: (N, width)} at candidates (N, d), NaN where a call failed."""
        if not len(candidates):
            return {name: np.zeros((0, self.widths.get(name, 1))) for name in self.functions}
        out: dict[str, list[np.ndarray | None]] = {name: [None] * len(candidates) for name in self.functions}
        reached = 0
        try:
            self.calling = True
            if self.vectorized:
                for name in self.functions:
                    out[name] = self._rows(name, candidates)
            else:
                for i, x in enumerate(candidates):
                    known = self.first.get(x.tobytes(), {}) if not self.widths else {}
                    for name in self.functions:
                        out[name][i] = known[name] if name in known else self._one(name, x)
                    reached = i + 1
            self.calling = False
        except KeyboardInterrupt:
            self.skipped = len(candidates) - reached
        finally:
            self.calling = False
        first = not self.widths
        for name, values in out.items():
            self.widths[name] = max([self.widths.get(name, 1), *(v.size for v in values if v is not None)])
        if first:
            check_names(self.problem, self.shape)
            self.first = {x.tobytes(): {n: v[i] for n, v in out.items()} for i, x in enumerate(candidates[:reached])}
        raw = {name: np.array([self._padded(name, v) for v in values]) for name, values in out.items()}
        if self.maximize:
            raw["fun"] = -raw["fun"]
        if self.problem.constrained:
            self._remember(candidates, raw)
        return raw

    def at(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The constraints at the best point, or at one of the front: as they were when it was evaluated, or else called
        again.
        """
        point = np.asarray(x, np.float64)
        known = self._known.get(point.tobytes())
        if known is not None:
            return known
        values = {}
        for name in (name for name in self.functions if name != "fun"):
            value = self._rows(name, point[None])[0] if self.vectorized else self._one(name, point)
            values[name] = self._padded(name, value)
        return values

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

    def _one(self, name: str, x: np.ndarray) -> np.ndarray | None:
        try:
            value = self.functions[name](x.copy())
        except Exception as error:
            self._failed(name, x, error)
            return None
        return self._numbers(name, value)

    def _rows(self, name: str, candidates: np.ndarray) -> list[np.ndarray | None]:
        try:
            returned = self.functions[name](candidates.copy())
        except Exception as error:
            self._failed(name, candidates[0], error)
            return [None] * len(candidates)
        values = self._reals(name, returned)
        if values.ndim not in (1, 2) or len(values) != len(candidates):
            raise InputError(
                f"{name} with vectorized=True is given x of shape {candidates.shape} and must return "
                f"{len(candidates)} values, shape (n,) or (n, m); it returned shape {values.shape}."
            )
        return list(values.reshape(len(candidates), -1))

    def _failed(self, name: str, x: np.ndarray, error: Exception) -> None:
        message = f"{name} raised {type(error).__name__}: {error}"
        if self.raise_failures:
            raise EvaluationError(f"{message}, at x = {x.tolist()}") from error
        self.first_error = self.first_error or message

    def _numbers(self, name: str, value: Any) -> np.ndarray:
        numbers = self._reals(name, value)
        if numbers.ndim > 1 or numbers.size == 0:
            raise InputError(f"{name} of one solution must return a number or a vector; got shape {numbers.shape}.")
        return numbers.ravel()

    def _reals(self, name: str, value: Any) -> np.ndarray:
        try:
            return reals(value)
        except ValueError:
            hint = " (did it end without `return`?)" if value is None else ""
            what = "a number or a vector of real numbers"
            raise InputError(f"{name} must return {what}; it returned {short(value)}{hint}.") from None

    def _padded(self, name: str, value: np.ndarray | None) -> np.ndarray:
        if value is None:
            return np.full(self.widths[name], np.nan)
        if value.size != self.widths[name]:
            raise InputError(
                f"{name} returned {value.size} numbers for one solution and {self.widths[name]} for another."
            )
        return value
