"""Ask and tell: the same algorithms for people whose objective lives elsewhere. NumPy in, NumPy out."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax import algorithms
from galapax.core.algorithm import Algorithm, Population, Shape
from galapax.core.checks import reals, short, whole
from galapax.core.errors import InputError
from galapax.core.problem import EQ_TOLERANCE, Bounds, as_bounds, check_tolerance
from galapax.engines.loop import INTERLUDE, prelude
from galapax.evaluation.failures import summarise
from galapax.numerics import random
from galapax.operators.dominance import first_front
from galapax.operators.selection import best_index
from galapax.results.front import front_of
from galapax.results.result import Result


class Optimizer:
    """One run of an algorithm, a generation at a time.

    >>> opt = Optimizer("de", [(-5, 5)] * 2, seed=1)
    >>> for _ in range(50):
    ...     x = opt.ask()                        # (n, d)
    ...     opt.tell(x, (x**2).sum(axis=1))      # (n,)
    >>> bool(opt.best.fun < 1e-6)
    True

    It makes the same draws as `minimize` with the same seed and run number. ineq and eq values, where the problem has
    constraints, go to `tell` too. With several objectives `tell` takes (n, m), and `best` has the front.
    """

    def __init__(
        self,
        algorithm: str | Algorithm | None,
        bounds: Any,
        *,
        seed: int = 0,
        run: int = 0,
        population: int | None = None,
        maximize: bool = False,
        eq_tolerance: float = EQ_TOLERANCE,
        dtype: str = "float64",
    ) -> None:
        solver = algorithms.resolve(algorithm)
        if population is not None:
            solver = dataclasses.replace(solver, population=population)  # type: ignore[type-var]
        solver.check()
        if dtype not in ("float32", "float64"):
            raise InputError(f'dtype must be "float32" or "float64", got {dtype!r}.')
        if whole(run, "run", 0) >= 2**32:
            raise InputError(f"run must be below 2**32, got {run}.")
        check_tolerance(eq_tolerance)
        self.algorithm = solver
        self.bounds = as_bounds(bounds)
        self.maximize = maximize
        self.generation = 0  # told so far
        self.nfev = 0
        self.n_failed = 0
        self.seed = seed
        self._eq_tolerance = eq_tolerance
        self._dtype = dtype
        self._shape: Shape | None = None
        with self._precision():
            box = self.bounds.rounded(dtype)
            self._numeric = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), solver)
            self._key = random.run_keys(seed, int(run), 1)[0]
            self._box = box
            self._state = _init(Shape(), self._numeric, self._key, box)

    def ask(self) -> np.ndarray:
        """The points (n, d) that wait for their values; the same ones until they are told."""
        return np.array(self._state.candidates)

    def tell(self, x: Any, values: Any, *, ineq: Any = None, eq: Any = None) -> None:
        """Give the values of the points last asked for: (n,), or (n, m) for m objectives. NaN or inf means failed."""
        asked = np.asarray(self._state.candidates)
        try:
            told = reals(x)
        except ValueError:
            told = np.zeros(0)
        if told.shape != asked.shape or not np.array_equal(told.astype(asked.dtype), asked):
            raise InputError(
                f"tell takes the points of the last ask, unchanged and in order, shape {asked.shape}; got others, "
                f"{short(x)}. Call ask() and evaluate those."
            )
        raw = {"fun": self._rows("values", values), "ineq": self._rows("ineq", ineq), "eq": self._rows("eq", eq)}
        if raw["fun"] is None:
            raise InputError("values is missing: give one value per point.")
        shape = Shape(*(0 if r is None else r.shape[1] for r in raw.values()))
        if self._shape is None:
            name = type(self.algorithm).__name__
            if shape.objectives > 1 and not self.algorithm.several_objectives:
                raise InputError(
                    f"values has {shape.objectives} columns, and {name} minimises one objective: take an algorithm for "
                    'several, such as "nsga2".'
                )
            if shape.objectives == 1 and self.algorithm.several_objectives:
                raise InputError(
                    f"values has one number per point, and {name} is for several objectives: give one column for each, "
                    'or take an algorithm for one, such as "de".'
                )
            self._shape = shape
            with self._precision():  # the same candidates again, now with room for this many objectives
                self._state = _init(shape, self._numeric, self._key, self._box)
        elif shape != self._shape:
            raise InputError(f"this generation came with {shape} numbers per point, earlier ones with {self._shape}.")
        if self.maximize:
            raw["fun"] = -raw["fun"]
        with self._precision():
            rows = {name: None if r is None else jnp.asarray(r, self._dtype) for name, r in raw.items()}
            self.generation += 1
            self._state, failed = _tell(
                self._eq_tolerance, self._numeric, self._key, np.uint32(self.generation), self._state, rows
            )
        self.nfev += len(asked)
        self.n_failed += int(failed)

    @property
    def population(self) -> Population:
        """The survivors: x (n, d), objectives (n, m) and violation (n,), in NumPy."""
        parents = jax.tree.map(np.asarray, self._state.parents)
        return parents._replace(objectives=-parents.objectives) if self.maximize else parents

    @property
    def best(self) -> Result:
        """The best point told so far.

        With several objectives X, F and CV are the survivors' front and x, fun its knee, as in the result of
        `minimize`; without G and H, as the values of constraints are not kept.
        """
        if self.generation == 0:
            raise InputError("nothing has been told yet, so there is no best point: ask, evaluate, tell.")
        with self._precision():
            row = int(_best_row(self._state.parents))
        parents = self.population
        found = bool(np.isfinite(parents.fitness[row]))
        violation = math.inf if not found else 0.0 if parents.violation is None else float(parents.violation[row])
        result = Result(
            x=parents.x[row].astype(np.float64),
            fun=float(parents.fitness[row]) if found else math.nan,
            success=found and violation <= 0,
            message=f"Told {self.generation} generations." if found else "No point gave a finite value.",
            nit=self.generation,
            nfev=self.nfev,
            n_failed=self.n_failed,
            seed=self.seed,
            feasible=found and violation <= 0,
            violation=violation,
            settings={"maximize": self.maximize},
        )
        if parents.objectives.shape[1] > 1:
            self._add_front(result, parents)
        return result

    def _add_front(self, result: Result, parents: Population) -> None:
        sign = -1.0 if self.maximize else 1.0
        with self._precision():
            rows = np.asarray(_first_front(self._state.parents))
        front = front_of(Population(parents.x[rows], sign * parents.objectives[rows], None), sign, None)
        result.update({name: getattr(front, name) for name in ("X", "F", "G", "H", "CV")})
        result.fun = np.full(parents.objectives.shape[1], np.nan)
        if len(front):
            knee = result.choose("knee")
            result.x, result.fun = front.X[knee], front.F[knee]
        elif result.violation < math.inf:
            result.message += " No feasible point was told."

    def _precision(self) -> Any:
        return jax.enable_x64(self._dtype == "float64")

    def _rows(self, name: str, values: Any) -> Any:
        if values is None:
            return None
        try:
            rows = reals(values)
        except ValueError:
            raise InputError(f"{name} must be numbers, one row per point; got {type(values).__name__}.") from None
        n = self._state.candidates.shape[0]
        if rows.ndim not in (1, 2) or len(rows) != n or rows.size == 0:
            raise InputError(f"{name} must have one row for each of the {n} points; got shape {rows.shape}.")
        return rows.reshape(n, -1)


@partial(jax.jit, static_argnums=0)
def _init(shape: Shape, algorithm: Algorithm, key: Array, bounds: Bounds) -> Any:
    return algorithm.init(random.fold(key, 0), bounds, shape)


@partial(jax.jit, static_argnums=0)
def _tell(eq_tolerance: float, algorithm: Algorithm, key: Array, number: Array, state: Any, rows: Any) -> Any:
    evaluation = summarise(rows["fun"], rows["ineq"], rows["eq"], eq_tolerance)
    shape = Shape(*(0 if rows[name] is None else rows[name].shape[1] for name in ("fun", "ineq", "eq")))
    own = random.fold(key, number)
    state = algorithm.step(own, prelude(algorithm, number, state, evaluation, shape), evaluation)
    period = getattr(algorithm, "period", 0)
    if period:
        state = jax.lax.cond(
            number % period == 0,
            lambda s: algorithm.interlude(random.fold(own, INTERLUDE), s, shape),  # type: ignore[attr-defined]
            lambda s: s,
            state,
        )
    return state, jnp.sum(evaluation.failed)


@jax.jit
def _first_front(parents: Population) -> Array:
    return first_front(parents.objectives, parents.violation)


@jax.jit
def _best_row(parents: Population) -> Array:
    return best_index(parents)
