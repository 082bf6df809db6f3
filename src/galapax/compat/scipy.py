"""scipy.optimize.differential_evolution by its name and arguments, computed by ours.

    from galapax.compat.scipy import differential_evolution

takes the place of scipy's import. The function is called as scipy calls it, with NumPy arrays. What differs:

- The strategies are best1bin and rand1bin.
- A generation is always evaluated together (`updating="deferred"`), whatever `updating` says.
- Constraints are met to the last digit, equalities to 1e-4 (`maxcv` says how far): scipy's are, too, except equalities,
  which it takes as intervals without width.
- nfev counts every call of the function, those of the polish included. As in scipy a point that violates constraints
  costs none.

Several equalities need the polish, here as in scipy (its test problem L8): without it give such a problem to
`galapax.minimize`.

A function written with jax.numpy is better given to `galapax.minimize`, which compiles it.
"""

from __future__ import annotations

import importlib.util
import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jax import Array

from galapax.algorithms.de import DE
from galapax.core.checks import finite, positive, reals, short, whole
from galapax.core.errors import InputError
from galapax.core.evaluation import Population
from galapax.core.problem import EQ_TOLERANCE
from galapax.core.space import with_integers
from galapax.core.variables import Variable, real
from galapax.evaluation.dispatch import pickled
from galapax.evaluation.worker import Functions
from galapax.numerics import devices, random
from galapax.operators.mutation import best_1, rand_1
from galapax.optimizer import Optimizer

STRATEGIES = {"best1bin": best_1, "rand1bin": rand_1}
CONVERGED = "Optimization terminated successfully."
SPENT = "Maximum number of iterations has been exceeded."
STOPPED = "callback function requested stop early"


def differential_evolution(
    func: Callable[..., Any],
    bounds: Any,
    args: tuple[Any, ...] = (),
    strategy: str = "best1bin",
    maxiter: int = 1000,
    popsize: int = 15,
    tol: float = 0.01,
    mutation: Any = (0.5, 1),
    recombination: float = 0.7,
    rng: Any = None,
    callback: Callable[..., Any] | None = None,
    disp: bool = False,
    polish: Any = True,
    init: Any = "latinhypercube",
    atol: float = 0,
    updating: str = "immediate",
    workers: Any = 1,
    constraints: Any = (),
    x0: Any = None,
    *,
    integrality: Any = None,
    vectorized: bool = False,
    seed: Any = None,
) -> Any:
    """scipy's differential evolution: the same arguments, and an OptimizeResult with the same entries."""
    from scipy.optimize import OptimizeResult

    if strategy not in STRATEGIES:
        raise InputError(f"strategy must be {' or '.join(map(repr, STRATEGIES))} here; got {strategy!r}.")
    number = _seed(rng if rng is not None else seed)
    space, fixed = _variables(bounds, integrality)
    calls = _Calls(func, args, constraints, fixed, vectorized)
    with _mapping(workers) as calls.map:
        size = max(5, int(positive(popsize, "popsize") * len(space)))
        first = _first(init, x0, size, space, fixed, np.random.default_rng(number))
        size = max(size, len(first)) if isinstance(init, str) else max(5, len(first))
        move, weight = _mutation(STRATEGIES[strategy], mutation)
        solver = DE(size, move, weight, finite(recombination, "recombination"))
        opt = Optimizer(solver, space, seed=number, initial=first)
        message, convergence, told = SPENT, 0.0, whole(maxiter, "maxiter", 1)
        for generation in range(told + 1):  # scipy counts the first population as none
            x = opt.ask()
            fun, violation = calls(x)
            opt.tell(x, fun, ineq=violation if calls.limits else None)
            energies = np.where(_violation(opt) > 0, np.inf, opt.population.objectives[:, 0])
            state = OptimizeResult(
                x=fixed.whole(opt.best.x), fun=float(np.min(energies)), nfev=calls.made, nit=generation,
                population=fixed.whole(np.asarray(opt.population.x)), population_energies=energies,
            )  # fmt: skip
            with np.errstate(invalid="ignore"):
                spread, level = float(np.std(energies)), abs(float(np.mean(energies)))
            convergence = (atol + tol * level) / spread if spread > 0 else np.inf
            if disp:
                print(f"differential_evolution step {generation}: f(x)= {state.fun:g}")
            if generation and callback is not None and _stops(callback, state, convergence):
                message = STOPPED
                break
            if generation and np.isfinite(energies).all() and spread <= atol + tol * level:
                message = CONVERGED
                break
        state.message, state.success = message, message == CONVERGED
        if polish is not False and polish is not None and message != STOPPED:
            _polish(state, calls, fixed, space, polish)
        _judge(state, calls)
        state.nfev = calls.made
    return state


class _Fixed:
    """Variables whose limits are equal, which scipy allows: they are no part of the search."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self.free, self.values = lower < upper, lower.copy()

    def whole(self, x: np.ndarray) -> np.ndarray:
        """All variables (..., d) of the free ones."""
        out = np.broadcast_to(self.values, (*x.shape[:-1], self.values.size)).copy()
        out[..., self.free] = x
        return out


class _Calls:
    """The user's function and constraints, and how often the function was called."""

    def __init__(self, func: Any, args: Any, constraints: Any, fixed: _Fixed, vectorized: bool) -> None:
        if not callable(func):
            raise InputError(f"func must be a function of x, got {short(func)}.")
        given = tuple(args) if isinstance(args, tuple | list) else (args,)
        self.func = (lambda x: func(x, *given)) if given else func
        several = isinstance(constraints, Sequence)
        self.limits = list(constraints) if several else [] if constraints is None else [constraints]
        for one in self.limits:
            if not (hasattr(one, "lb") and hasattr(one, "ub")):
                raise InputError(
                    "constraints must be scipy's NonlinearConstraint, LinearConstraint or Bounds, as in "
                    f"differential_evolution; got {short(one)}."
                )
        self.fixed, self.vectorized = fixed, vectorized
        self.made = 0
        self.map: Callable[..., Any] = map

    def __call__(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (n,) and violation (n, 1) at points (n, free); the function is called where nothing is violated."""
        x = self.fixed.whole(points)
        broken = np.array([self.broken(row).sum() for row in x]) if self.limits else np.zeros(len(x))
        met, fun = broken <= 0, np.zeros(len(x))
        if met.any():
            fun[met] = self.values(x[met])
        return fun, broken[:, None]

    def values(self, x: np.ndarray) -> np.ndarray:
        self.made += len(x)
        if self.vectorized:
            return np.asarray(self.func(x.T), np.float64).ravel()
        return np.array([float(np.squeeze(value)) for value in self.map(self.func, x)])

    def value(self, x: np.ndarray) -> float:
        return float(self.values(np.asarray(x)[None])[0])

    def broken(self, x: np.ndarray) -> np.ndarray:
        """How far each constraint is violated at x, all of them in a row; equalities have a tolerance."""
        parts = []
        for one in self.limits:
            value = np.atleast_1d(constraint_values(one, x)).astype(np.float64).ravel()
            lower, upper = (np.broadcast_to(np.asarray(side, np.float64), value.shape) for side in (one.lb, one.ub))
            room = np.where(lower == upper, EQ_TOLERANCE, 0.0)
            gap = np.maximum(np.maximum(lower - value, value - upper) - room, 0)
            parts.append(np.where(np.isnan(value), np.inf, gap))
        return np.concatenate(parts)


def constraint_values(constraint: Any, x: np.ndarray) -> Any:
    """What a constraint of scipy's computes of x."""
    if hasattr(constraint, "fun"):
        return constraint.fun(x)
    return constraint.A @ x if hasattr(constraint, "A") else x


def _seed(given: Any) -> int:
    if given is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        return int(given)
    return int(np.random.default_rng(given).integers(2**32)) if not hasattr(given, "randint") else given.randint(2**31)


def _variables(bounds: Any, integrality: Any) -> tuple[list[Variable], _Fixed]:
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        lower, upper = np.broadcast_arrays(np.asarray(bounds.lb, np.float64), np.asarray(bounds.ub, np.float64))
    else:
        try:
            lower, upper = reals(bounds).T
        except ValueError:
            raise InputError(f"bounds must be (lower, upper) pairs of finite numbers; got {short(bounds)}.") from None
    fixed = _Fixed(np.array(lower), np.array(upper))
    if not fixed.free.any():
        raise InputError("all limits are equal, so that there is nothing to search for.")
    pairs = np.stack([lower, upper], axis=1)[fixed.free].tolist()
    if integrality is None or not np.any(integrality):
        return [real(*pair) for pair in pairs], fixed
    mask = np.broadcast_to(np.asarray(integrality, bool), lower.shape)[fixed.free]
    return with_integers(pairs, mask), fixed


@dataclass(frozen=True)
class Dithered:
    """A mutation whose weight is drawn anew in each generation, uniformly from [lower, upper), as scipy's dithering."""

    mutation: Callable[..., Array]
    lower: float
    upper: float

    def __call__(self, key: Array, parents: Population, weight: Any) -> Array:
        key_weight, key_move = random.split(key)
        drawn = self.lower + (self.upper - self.lower) * random.uniform(key_weight, (), parents.x.dtype)
        return self.mutation(key_move, parents, drawn)


def _mutation(strategy: Callable[..., Array], given: Any) -> tuple[Callable[..., Array], float]:
    """How mutants arise, and the weight: of a pair its middle, which is not used."""
    values = np.sort(np.atleast_1d(np.asarray(given, np.float64)).ravel())
    if values.size not in (1, 2) or not ((values >= 0) & (values < 2)).all():
        raise InputError(f"mutation must be a number, or a pair of them, of at least 0 and below 2; got {given!r}.")
    if values.size == 1:
        return strategy, float(values[0])
    return Dithered(strategy, float(values[0]), float(values[1])), float(values.mean())


def _first(
    init: Any, x0: Any, size: int, space: list[Variable], fixed: _Fixed, draws: np.random.Generator
) -> np.ndarray:
    """The first population (n, free), as `init` and `x0` ask for."""
    lower, upper = (np.array([getattr(v, side) for v in space]) for side in ("lower", "upper"))
    if not isinstance(init, str):
        given = np.asarray(init, np.float64)
        if given.ndim != 2 or given.shape[1] != fixed.values.size or len(given) < 5:
            raise InputError(f"init must have at least 5 rows of {fixed.values.size} numbers; got shape {given.shape}.")
        points = given[:, fixed.free]
    else:
        if init not in ("latinhypercube", "sobol", "halton", "random"):
            raise InputError(f'init must be "latinhypercube", "sobol", "halton", "random" or points; got {init!r}.')
        points = lower + (upper - lower) * _spread(init, size, len(space), draws)
    if x0 is not None:
        points[0] = np.asarray(x0, np.float64)[fixed.free]
    return np.clip(points, lower, upper)


def _spread(init: str, size: int, dim: int, draws: np.random.Generator) -> np.ndarray:
    if init == "random":
        return draws.random((size, dim))
    if init == "latinhypercube":
        cells = np.stack([draws.permutation(size) for _ in range(dim)], axis=1)
        return (cells + draws.random((size, dim))) / size
    from scipy.stats import qmc

    kind = qmc.Sobol if init == "sobol" else qmc.Halton
    return kind(dim, rng=draws).random(size)


def _violation(opt: Optimizer) -> Any:
    violation = opt.population.violation
    return np.zeros(1) if violation is None else np.asarray(violation)


def _stops(callback: Callable[..., Any], state: Any, convergence: float) -> bool:
    """Whether the callback asks to stop; scipy knows two ways to call it."""
    try:
        modern = set(inspect.signature(callback).parameters) == {"intermediate_result"}
    except (TypeError, ValueError):
        modern = False
    try:
        return bool(
            callback(intermediate_result=state) if modern else callback(state.x.copy(), convergence=convergence)
        )
    except StopIteration:
        return True


def _polish(state: Any, calls: _Calls, fixed: _Fixed, space: list[Variable], polish: Any) -> None:
    """Refine the best by scipy's local method, as scipy does: never to a worse or an infeasible point."""
    from scipy.optimize import Bounds, minimize

    start = state.x
    still = np.flatnonzero(fixed.free)[[v.kind == "integer" for v in space]]
    lower, upper = fixed.values.copy(), fixed.values.copy()
    lower[fixed.free], upper[fixed.free] = [v.lower for v in space], [v.upper for v in space]
    lower[still] = upper[still] = start[still]
    if (lower == upper).all():
        return
    box = Bounds(lower, upper)
    if callable(polish):
        found = polish(calls.value, start, bounds=box, constraints=calls.limits)
    elif calls.limits:
        found = minimize(calls.value, start, method="trust-constr", bounds=box, constraints=calls.limits)
    else:
        found = minimize(calls.value, start, method="L-BFGS-B", bounds=box)
    inside = (found.x >= lower).all() and (found.x <= upper).all()
    met = not calls.limits or calls.broken(found.x).sum() <= 0
    if np.isfinite(found.fun) and found.fun < state.fun and inside and met:
        state.x, state.fun = found.x, float(found.fun)
        if "jac" in found:
            state.jac = found.jac
        best = int(np.argmin(state.population_energies))
        state.population[best], state.population_energies[best] = found.x, found.fun


def _judge(state: Any, calls: _Calls) -> None:
    """The constraints at x, as scipy reports them."""
    if not calls.limits:
        return
    state.constr = [np.atleast_1d(constraint_values(one, state.x)) for one in calls.limits]
    sides = [(np.asarray(one.lb), np.asarray(one.ub)) for one in calls.limits]
    state.constr_violation = [
        np.maximum(np.maximum(low - value, value - high), 0.0)
        for value, (low, high) in zip(state.constr, sides, strict=True)
    ]
    state.maxcv = float(max(np.max(part) for part in state.constr_violation))
    if calls.broken(state.x).sum() > 0:
        state.success = False
        state.fun = calls.value(state.x)
        state.message = f"The solution does not satisfy the constraints, MAXCV = {state.maxcv}"


@contextmanager
def _mapping(workers: Any) -> Iterator[Callable[..., Any]]:
    """What maps the function over points: a user's own, or processes."""
    if callable(workers):
        yield workers
    elif workers == 1:
        yield map
    else:
        count = devices.cores() if workers == -1 else whole(workers, "workers", 1, "-1 for all cores")
        # an executor says when its processes end, where multiprocessing.Pool would replace them for ever
        pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
        with pool:
            try:
                yield lambda function, x: pool.map(_Sent(function), x, chunksize=-(-len(x) // (4 * count)))
            except BrokenProcessPool as error:
                raise InputError(
                    'the worker processes ended: put the call under `if __name__ == "__main__":`, unless the function '
                    "itself ends them."
                ) from error


class _Sent:
    """A function on its way to processes: by value where they might not find it, if cloudpickle is installed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        by_value = importlib.util.find_spec("cloudpickle") is not None
        self.payload, _ = pickled(Functions({"func": function}), by_value)

    def __call__(self, x: np.ndarray) -> Any:
        return _loaded(self.payload)(x)


@lru_cache(maxsize=1)
def _loaded(payload: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = pickle.loads(payload)[0]["func"]
    return function
