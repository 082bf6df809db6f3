"""Drop-in replacements for scipy.optimize: differential_evolution, computed by galapax's DE, and minimize.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from galapax.algorithms.de import DE
from galapax.api.optimizer import Optimizer
from galapax.compat.scipy_minimize import minimize
from galapax.core.checks import abbreviate, as_float_array, check_finite, check_integer, check_positive
from galapax.core.errors import InputError
from galapax.core.evaluation import Population
from galapax.core.problem import EQ_TOLERANCE
from galapax.core.variables import Variable, real, variables_from_integrality
from galapax.numerics import devices, random
from galapax.objective.remote import pickle_functions
from galapax.objective.worker import Functions
from galapax.operators.differential import best_1, rand_1

if TYPE_CHECKING:
    from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint, OptimizeResult

    Constraint: TypeAlias = NonlinearConstraint | LinearConstraint | Bounds
    Seed: TypeAlias = int | np.integer | np.random.Generator | np.random.RandomState | None
    Map: TypeAlias = Callable[..., Iterable[Any]]  # as the builtin

__all__ = ["differential_evolution", "minimize"]

STRATEGIES = {"best1bin": best_1, "rand1bin": rand_1}
CONVERGED_MESSAGE = "Optimization terminated successfully."
MAXITER_MESSAGE = "Maximum number of iterations has been exceeded."
CALLBACK_MESSAGE = "callback function requested stop early"


def differential_evolution(
    func: Callable[..., Any],
    bounds: Bounds | ArrayLike,
    args: tuple[Any, ...] = (),
    strategy: str = "best1bin",
    maxiter: int = 1000,
    popsize: int = 15,
    tol: float = 0.01,
    mutation: float | tuple[float, float] = (0.5, 1),
    recombination: float = 0.7,
    rng: Seed = None,
    callback: Callable[..., Any] | None = None,
    disp: bool = False,
    polish: bool | Callable[..., OptimizeResult] = True,
    init: str | ArrayLike = "latinhypercube",
    atol: float = 0,
    updating: str = "immediate",
    workers: int | Map = 1,
    constraints: Constraint | Sequence[Constraint] = (),
    x0: ArrayLike | None = None,
    *,
    integrality: ArrayLike | None = None,
    vectorized: bool = False,
    seed: Seed = None,
) -> OptimizeResult:
    """Minimise by differential evolution with scipy's arguments; returns an OptimizeResult with the same entries."""
    from scipy.optimize import OptimizeResult

    if strategy not in STRATEGIES:
        raise InputError(f"strategy must be {' or '.join(map(repr, STRATEGIES))} here; got {strategy!r}.")
    seed_number = _parse_seed(rng if rng is not None else seed)
    space, fixed = _parse_bounds(bounds, integrality)
    objective = _Objective(func, args, constraints, fixed, vectorized)
    with _open_map(workers) as objective.map:
        size = max(5, int(check_positive(popsize, "popsize") * len(space)))
        initial = _initial_population(init, x0, size, space, fixed, np.random.default_rng(seed_number))
        size = max(size, len(initial)) if isinstance(init, str) else max(5, len(initial))
        mutate, weight = _parse_mutation(STRATEGIES[strategy], mutation)
        solver = DE(size, mutate, weight, check_finite(recombination, "recombination"))
        opt = Optimizer(space, solver, seed=seed_number, x0=initial)
        message, convergence, n_iterations = MAXITER_MESSAGE, 0.0, check_integer(maxiter, "maxiter", 1)
        for generation in range(n_iterations + 1):  # scipy counts the first population as none
            x = opt.ask_generation()
            fun, violation = objective(x)
            opt.tell(x, fun, ineq=violation if objective.constraints else None)
            energies = np.where(_violation(opt) > 0, np.inf, opt.population.objectives[:, 0])
            state = OptimizeResult(
                x=fixed.add_fixed(_best_point(opt)), fun=float(np.min(energies)), nfev=objective.n_calls,
                nit=generation, population=fixed.add_fixed(np.asarray(opt.population.x)), population_energies=energies,
            )  # fmt: skip
            with np.errstate(invalid="ignore"):
                spread, level = float(np.std(energies)), abs(float(np.mean(energies)))
            convergence = (atol + tol * level) / spread if spread > 0 else np.inf
            if disp:
                print(f"differential_evolution step {generation}: f(x)= {state.fun:g}")
            if generation and callback is not None and _callback_stops(callback, state, convergence):
                message = CALLBACK_MESSAGE
                break
            if generation and np.isfinite(energies).all() and spread <= atol + tol * level:
                message = CONVERGED_MESSAGE
                break
        state.message, state.success = message, message == CONVERGED_MESSAGE
        if polish is not False and polish is not None and message != CALLBACK_MESSAGE:
            _polish(state, objective, fixed, space, polish)
        _report_constraints(state, objective)
        state.nfev = objective.n_calls
    return state


class _FixedVariables:
    """Variables whose bounds are equal, which scipy allows: they are excluded from the search."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self.free, self.values = lower < upper, lower.copy()

    def add_fixed(self, x: np.ndarray) -> np.ndarray:
        """Complete the free variables (..., free) to all of them, (..., d)."""
        out = np.broadcast_to(self.values, (*x.shape[:-1], self.values.size)).copy()
        out[..., self.free] = x
        return out


class _Objective:
    """The user's function and constraints, with a count of calls of the function."""

    def __init__(
        self,
        func: Callable[..., Any],
        args: object,
        constraints: Constraint | Sequence[Constraint] | None,
        fixed: _FixedVariables,
        vectorized: bool,
    ) -> None:
        if not callable(func):
            raise InputError(f"func must be a function of x, got {abbreviate(func)}.")
        extra_args = tuple(args) if isinstance(args, tuple | list) else (args,)
        self.func = (lambda x: func(x, *extra_args)) if extra_args else func
        self.constraints: list[Constraint] = [constraints]
        if constraints is None or isinstance(constraints, Sequence):
            self.constraints = list(constraints or ())
        for constraint in self.constraints:
            if not (hasattr(constraint, "lb") and hasattr(constraint, "ub")):
                raise InputError(
                    "constraints must be scipy's NonlinearConstraint, LinearConstraint or Bounds, as in "
                    f"differential_evolution; got {abbreviate(constraint)}."
                )
        self.fixed, self.vectorized = fixed, vectorized
        self.n_calls = 0
        self.map: Map = map

    def __call__(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (n,) and violation (n, 1) at points (n, free); the function is called where nothing is violated."""
        x = self.fixed.add_fixed(points)
        violations = np.array([self.violations(row).sum() for row in x]) if self.constraints else np.zeros(len(x))
        is_feasible, fun = violations <= 0, np.zeros(len(x))
        if is_feasible.any():
            fun[is_feasible] = self.values(x[is_feasible])
        return fun, violations[:, None]

    def values(self, x: np.ndarray) -> np.ndarray:
        self.n_calls += len(x)
        if self.vectorized:
            return np.asarray(self.func(x.T), np.float64).ravel()
        return np.array([float(np.squeeze(value)) for value in self.map(self.func, x)])

    def value(self, x: np.ndarray) -> float:
        return float(self.values(np.asarray(x)[None])[0])

    def violations(self, x: np.ndarray) -> np.ndarray:
        """Violation of each constraint at x, concatenated; equalities have a tolerance."""
        gaps = []
        for constraint in self.constraints:
            value = np.atleast_1d(constraint_values(constraint, x)).astype(np.float64).ravel()
            lower, upper = (
                np.broadcast_to(np.asarray(side, np.float64), value.shape) for side in (constraint.lb, constraint.ub)
            )
            tolerance = np.where(lower == upper, EQ_TOLERANCE, 0.0)
            gap = np.maximum(np.maximum(lower - value, value - upper) - tolerance, 0)
            gaps.append(np.where(np.isnan(value), np.inf, gap))
        return np.concatenate(gaps)


def constraint_values(constraint: Constraint, x: np.ndarray) -> np.ndarray:
    """Evaluate a scipy constraint at x."""
    if hasattr(constraint, "fun"):
        return constraint.fun(x)
    return constraint.A @ x if hasattr(constraint, "A") else x


def _parse_seed(value: Seed) -> int:
    if value is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    return int(np.random.default_rng(value).integers(2**32)) if not hasattr(value, "randint") else value.randint(2**31)


def _parse_bounds(bounds: Bounds | ArrayLike, integrality: ArrayLike | None) -> tuple[list[Variable], _FixedVariables]:
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        lower, upper = np.broadcast_arrays(np.asarray(bounds.lb, np.float64), np.asarray(bounds.ub, np.float64))
    else:
        try:
            lower, upper = as_float_array(bounds).T
        except ValueError:
            raise InputError(
                f"bounds must be (lower, upper) pairs of finite numbers; got {abbreviate(bounds)}."
            ) from None
    fixed = _FixedVariables(np.array(lower), np.array(upper))
    if not fixed.free.any():
        raise InputError("all limits are equal, so that there is nothing to search for.")
    pairs = np.stack([lower, upper], axis=1)[fixed.free].tolist()
    if integrality is None or not np.any(integrality):
        return [real(*pair) for pair in pairs], fixed
    mask = np.broadcast_to(np.asarray(integrality, bool), lower.shape)[fixed.free]
    return variables_from_integrality(pairs, mask), fixed


@dataclass(frozen=True)
class DitheredMutation:
    """A mutation whose weight is drawn in each generation, uniformly from [lower, upper), as scipy's dithering."""

    mutation: Callable[..., Array]
    lower: float
    upper: float

    def __call__(self, key: Array, parents: Population, weight: ArrayLike) -> Array:
        key_weight, key_move = random.split(key)
        dithered_weight = self.lower + (self.upper - self.lower) * random.uniform(key_weight, (), parents.x.dtype)
        return self.mutation(key_move, parents, dithered_weight)


def _parse_mutation(strategy: Callable[..., Array], value: ArrayLike) -> tuple[Callable[..., Array], float]:
    """Return the mutation operator and its weight; of a pair the mean, which dithering does not use."""
    values = np.sort(np.atleast_1d(np.asarray(value, np.float64)).ravel())
    if values.size not in (1, 2) or not ((values >= 0) & (values < 2)).all():
        raise InputError(f"mutation must be a number, or a pair of them, of at least 0 and below 2; got {value!r}.")
    if values.size == 1:
        return strategy, float(values[0])
    return DitheredMutation(strategy, float(values[0]), float(values[1])), float(values.mean())


def _initial_population(
    init: str | ArrayLike,
    x0: ArrayLike | None,
    size: int,
    space: list[Variable],
    fixed: _FixedVariables,
    rng: np.random.Generator,
) -> np.ndarray:
    """Sample or check the initial population (n, free), as `init` and `x0` ask for."""
    lower, upper = (np.array([getattr(v, side) for v in space]) for side in ("lower", "upper"))
    if not isinstance(init, str):
        rows = np.asarray(init, np.float64)
        if rows.ndim != 2 or rows.shape[1] != fixed.values.size or len(rows) < 5:
            raise InputError(f"init must have at least 5 rows of {fixed.values.size} numbers; got shape {rows.shape}.")
        points = rows[:, fixed.free]
    else:
        if init not in ("latinhypercube", "sobol", "halton", "random"):
            raise InputError(f'init must be "latinhypercube", "sobol", "halton", "random" or points; got {init!r}.')
        points = lower + (upper - lower) * _sample_unit_cube(init, size, len(space), rng)
    if x0 is not None:
        points[0] = np.asarray(x0, np.float64)[fixed.free]
    return np.clip(points, lower, upper)


def _sample_unit_cube(init: str, size: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    if init == "random":
        return rng.random((size, dim))
    if init == "latinhypercube":
        strata = np.stack([rng.permutation(size) for _ in range(dim)], axis=1)
        return (strata + rng.random((size, dim))) / size
    from scipy.stats import qmc

    sampler = qmc.Sobol if init == "sobol" else qmc.Halton
    return sampler(dim, rng=rng).random(size)


def _best_point(opt: Optimizer) -> np.ndarray:
    """Return the best survivor, which is the best point so far; `opt.best` would assemble a whole result each time."""
    survivors = opt.population
    keys = (survivors.fitness,) if survivors.violation is None else (survivors.fitness, survivors.violation)
    x: np.ndarray = np.asarray(survivors.x)[np.lexsort(keys)[0]]
    return x


def _violation(opt: Optimizer) -> np.ndarray:
    violation = opt.population.violation
    return np.zeros(1) if violation is None else np.asarray(violation)


def _callback_stops(callback: Callable[..., Any], state: OptimizeResult, convergence: float) -> bool:
    """Call the callback, in either of scipy's two ways, and return whether it asks to stop."""
    try:
        takes_result = set(inspect.signature(callback).parameters) == {"intermediate_result"}
    except (TypeError, ValueError):
        takes_result = False
    try:
        return bool(
            callback(intermediate_result=state) if takes_result else callback(state.x.copy(), convergence=convergence)
        )
    except StopIteration:
        return True


def _polish(
    state: OptimizeResult,
    objective: _Objective,
    fixed: _FixedVariables,
    space: list[Variable],
    polish: bool | Callable[..., OptimizeResult],
) -> None:
    """Refine the best by scipy's local method, as scipy does: never to a worse or an infeasible point."""
    from scipy.optimize import Bounds, minimize

    start = state.x
    integer_columns = np.flatnonzero(fixed.free)[[v.kind == "integer" for v in space]]
    lower, upper = fixed.values.copy(), fixed.values.copy()
    lower[fixed.free], upper[fixed.free] = [v.lower for v in space], [v.upper for v in space]
    lower[integer_columns] = upper[integer_columns] = start[integer_columns]
    if (lower == upper).all():
        return
    box = Bounds(lower, upper)
    if callable(polish):
        polished = polish(objective.value, start, bounds=box, constraints=objective.constraints)
    elif objective.constraints:
        polished = minimize(
            objective.value, start, method="trust-constr", bounds=box, constraints=objective.constraints
        )
    else:
        polished = minimize(objective.value, start, method="L-BFGS-B", bounds=box)
    is_inside = (polished.x >= lower).all() and (polished.x <= upper).all()
    is_feasible = not objective.constraints or objective.violations(polished.x).sum() <= 0
    if np.isfinite(polished.fun) and polished.fun < state.fun and is_inside and is_feasible:
        state.x, state.fun = polished.x, float(polished.fun)
        if "jac" in polished:
            state.jac = polished.jac
        best = int(np.argmin(state.population_energies))
        state.population[best], state.population_energies[best] = polished.x, polished.fun


def _report_constraints(state: OptimizeResult, objective: _Objective) -> None:
    """Set the constraint values and violations at x, as scipy reports them."""
    if not objective.constraints:
        return
    state.constr = [np.atleast_1d(constraint_values(constraint, state.x)) for constraint in objective.constraints]
    sides = [(np.asarray(constraint.lb), np.asarray(constraint.ub)) for constraint in objective.constraints]
    state.constr_violation = [
        np.maximum(np.maximum(low - value, value - high), 0.0)
        for value, (low, high) in zip(state.constr, sides, strict=True)
    ]
    state.maxcv = float(max(np.max(violation) for violation in state.constr_violation))
    if objective.violations(state.x).sum() > 0:
        state.success = False
        state.fun = objective.value(state.x)
        state.message = f"The solution does not satisfy the constraints, MAXCV = {state.maxcv}"


@contextmanager
def _open_map(workers: int | Map) -> Iterator[Map]:
    """Open the map-like callable that evaluates points: the user's, the builtin, or a process pool's."""
    if callable(workers):
        yield workers
    elif workers == 1:
        yield map
    else:
        n_workers = devices.count_cores() if workers == -1 else check_integer(workers, "workers", 1, "-1 for all cores")
        # an executor says when its processes end, where multiprocessing.Pool would replace them for ever
        pool = ProcessPoolExecutor(n_workers, mp_context=multiprocessing.get_context("spawn"))
        with pool:
            try:
                yield lambda function, x: pool.map(
                    _PickledFunction(function), x, chunksize=-(-len(x) // (4 * n_workers))
                )
            except BrokenProcessPool as error:
                raise InputError(
                    'the worker processes ended: put the call under `if __name__ == "__main__":`, unless the function '
                    "itself ends them."
                ) from error


class _PickledFunction:
    """A function pickled for worker processes: by value where they cannot import it, if cloudpickle is installed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        by_value = importlib.util.find_spec("cloudpickle") is not None
        self.payload, _ = pickle_functions(Functions({"func": function}), by_value)

    def __call__(self, x: np.ndarray) -> Any:
        return _unpickle(self.payload)(x)


@lru_cache(maxsize=1)
def _unpickle(payload: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = pickle.loads(payload)[0]["func"]
    return function
