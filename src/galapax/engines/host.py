"""The host engine: the same generations around a plain Python or NumPy objective, called in this process."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax import random
from galapax.algorithm import Algorithm, Evaluation, Shape
from galapax.engines import loop
from galapax.engines.loop import Carry, Outcome, Rules, Watch
from galapax.errors import EvaluationError, InputError
from galapax.evaluate import check_arity, check_fit, check_names, summarise
from galapax.problem import Problem


class BlackBox:
    """A problem whose functions are called from Python, one solution at a time or (vectorized) all at once.

    An exception counts as a failure of that solution; the first is kept for the message. Ctrl-C inside a call ends the
    evaluation there: the points not reached are left out, and what was evaluated still counts.
    """

    def __init__(self, problem: Problem, *, maximize: bool, vectorized: bool, raise_failures: bool) -> None:
        self.problem = problem
        self.maximize = maximize
        self.vectorized = vectorized
        self.raise_failures = raise_failures
        self.functions = {n: getattr(problem, n) for n in ("fun", "ineq", "eq") if getattr(problem, n) is not None}
        for name, function in self.functions.items():
            check_arity(name, function, int(vectorized))
        self.widths: dict[str, int] = {}  # numbers per solution, learnt from the first that comes back
        self.first_error = ""
        self.skipped = 0  # points not reached because of Ctrl-C
        self.interrupted = False

    @property
    def shape(self) -> Shape:
        """How many numbers one solution gives; a function that never succeeded counts as giving one."""
        width = {name: self.widths.get(name, 1) if name in self.functions else 0 for name in ("fun", "ineq", "eq")}
        return Shape(width["fun"], width["ineq"], width["eq"])

    def __call__(self, candidates: np.ndarray) -> dict[str, np.ndarray]:
        """Raw values {name: (N, width)} at candidates (N, d), NaN where a call failed."""
        out: dict[str, list[np.ndarray | None]] = {name: [None] * len(candidates) for name in self.functions}
        reached = 0
        try:
            if self.vectorized:
                for name in self.functions:
                    out[name] = self._rows(name, candidates)
            else:
                for i, x in enumerate(candidates):
                    for name in self.functions:
                        out[name][i] = self._one(name, x)
                    reached = i + 1
        except KeyboardInterrupt:
            self.interrupted = True
            self.skipped = len(candidates) - reached
        first = not self.widths
        for name, values in out.items():
            self.widths[name] = max([self.widths.get(name, 1), *(v.size for v in values if v is not None)])
        if first:
            check_names(self.problem, self.shape)
        return {name: np.array([self._padded(name, v) for v in values]) for name, values in out.items()}

    def _one(self, name: str, x: np.ndarray) -> np.ndarray | None:
        try:
            value = self.functions[name](x.copy())
        except Exception as error:
            self._failed(name, x, error)
            return None
        return self._numbers(name, value)

    def _rows(self, name: str, candidates: np.ndarray) -> list[np.ndarray | None]:
        try:
            values = np.asarray(self.functions[name](candidates.copy()), np.float64)
        except Exception as error:
            self._failed(name, candidates[0], error)
            return [None] * len(candidates)
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
        try:
            numbers = np.asarray(value, np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{name} must return a number or a vector of numbers; it returned {value!r}.") from None
        if numbers.ndim > 1 or numbers.size == 0:
            raise InputError(f"{name} of one solution must return a number or a vector; got shape {numbers.shape}.")
        return numbers.ravel()

    def _padded(self, name: str, value: np.ndarray | None) -> np.ndarray:
        if value is None:
            return np.full(self.widths[name], np.nan)
        if value.size != self.widths[name]:
            raise InputError(
                f"{name} returned {value.size} numbers for one solution and {self.widths[name]} for another."
            )
        return value


def run(
    box: BlackBox, algorithm: Algorithm, bounds: Any, rules: Rules, *, keys: Any, watch: Watch, keep_history: bool
) -> Outcome:
    """Run a batch, one run per key, calling the objective from here."""
    runs, dtype = keys.shape[0], bounds.lower.dtype
    device_rules = rules.as_arrays(dtype)

    def measure(candidates: Array) -> Any:
        flat = np.asarray(candidates, np.float64).reshape(-1, candidates.shape[-1])
        raw = box(flat)
        if box.maximize:
            raw["fun"] = -raw["fun"]
        return {name: jnp.asarray(v.reshape(runs, -1, v.shape[1]), dtype) for name, v in raw.items()}

    # the first candidates do not depend on how many numbers the objective gives: evaluate them, then begin for real
    candidates = _begin(Shape(), False, algorithm, keys, bounds).proposed.candidates
    waiting: Any = measure(candidates)
    check_fit(algorithm, box.problem, box.shape)
    carry = _begin(box.shape, True, algorithm, keys, bounds)

    def chunk(carry: Carry, first: int, count: int) -> tuple[Carry, np.ndarray]:
        nonlocal waiting
        raw = measure(loop.settle(carry).candidates) if waiting is None else waiting
        waiting = None
        carry, row = _generation(box.problem.eq_tolerance, algorithm, device_rules, keys, np.int32(first), carry, raw)
        return carry, np.asarray(row)[None]

    carry, track, history, stopped = loop.drive(
        chunk,
        lambda length, seconds: 1,
        carry,
        shape=box.shape,
        runs=runs,
        limit=int(rules.generations),
        watch=watch,
        keep_history=keep_history,
        interrupted=lambda: box.interrupted,
    )
    x, population = loop.finish(carry, jnp.asarray(loop.best_run(track)))
    return Outcome(
        track=track,
        history=loop.history_of(history, track) if keep_history else None,
        x=np.asarray(x),
        population=jax.tree.map(np.asarray, population),
        stopped=stopped,
        skipped=box.skipped,
    )


@partial(jax.jit, static_argnums=(0, 1))
def _begin(shape: Shape, freeze: bool, algorithm: Algorithm, keys: Array, bounds: Any) -> Carry:
    return loop.begin(algorithm, keys, bounds, shape, freeze)


@partial(jax.jit, static_argnums=0)
def _generation(
    eq_tolerance: float, algorithm: Algorithm, rules: Rules, keys: Array, number: Array, carry: Carry, raw: Any
) -> tuple[Carry, Array]:
    def evaluate(_: Array) -> Evaluation:
        return jax.vmap(lambda v: summarise(v["fun"], v.get("ineq"), v.get("eq"), eq_tolerance))(raw)

    own = jax.vmap(random.fold, in_axes=(0, None))(keys, number)
    return loop.generation(algorithm, rules, own, number, carry, evaluate)
