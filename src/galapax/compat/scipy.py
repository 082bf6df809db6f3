"""Drop-in replacements for scipy.optimize: minimize and differential_evolution, computed by `galapax.minimize`.

    from galapax.compat.scipy import differential_evolution, minimize

take the place of scipy's imports. The function is called as scipy calls it, with NumPy arrays. A function written with
jax.numpy is better given to `galapax.minimize`, which compiles it.

`minimize` is a global search by any algorithm of galapax, for where a local method gets stuck.

`differential_evolution` differs from scipy's in this:

- The strategies are best1bin and rand1bin.
- A generation is always evaluated together (`updating="deferred"`), whatever `updating` says.
- Constraints are met to the last digit, equalities to 1e-4 (`maxcv` says how far): scipy's are, too, except equalities,
  which it takes as intervals without width.
- nfev counts every call of the function, those of the polish included. As in scipy a point that violates constraints
  costs none.

Several equalities need the polish, here as in scipy (its test problem L8): without it give such a problem to
`galapax.minimize`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, TypeAlias

import numpy as np
from jax import Array
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from galapax import algorithms
from galapax.algorithms.de import DE
from galapax.api.minimize import minimize as minimize_global
from galapax.compat.scipy_problem import (
    FirstOfPair,
    FixedVariables,
    PopulationObjective,
    constraint_values,
    convert_problem,
    open_map,
)
from galapax.core.algorithm import Algorithm
from galapax.core.checks import abbreviate, as_float_array, check_finite, check_integer, check_positive
from galapax.core.errors import EvaluationError, InputError, ObjectiveCountError
from galapax.core.options import Workers
from galapax.core.problem import Population, Problem, returned_by_fun
from galapax.core.space import variables_from_integrality
from galapax.core.stop import Stop
from galapax.core.variables import Variable, real
from galapax.execution.observers import Progress
from galapax.numerics import random
from galapax.operators.variation import best_1, rand_1

if TYPE_CHECKING:
    from scipy.optimize import Bounds

    from galapax.compat.scipy_problem import Constraint, Map
    from galapax.results.result import Result

    Seed: TypeAlias = int | np.integer | np.random.Generator | np.random.RandomState | None

__all__ = ["differential_evolution", "minimize"]

# --- minimize ---------------------------------------------------------------------------------------------------------

# scipy's options, of whichever method, by what they mean here
OPTIONS = {
    "maxiter": "generations",
    "maxfev": "max_evaluations",
    "maxfun": "max_evaluations",
    "seed": "seed",
    "rng": "seed",
    "popsize": "population",
    "disp": "progress",
}


class SearchResult(OptimizeResult):
    """scipy's OptimizeResult with galapax's as `result`, which is left out where it is printed."""

    x: np.ndarray
    fun: float
    success: bool
    message: str
    nit: int
    nfev: int
    maxcv: float
    result: Result

    def __repr__(self) -> str:
        return repr(OptimizeResult({name: value for name, value in self.items() if name != "result"}))


def minimize(
    fun: Callable[Concatenate[Any, ...], Any],
    x0: object = None,
    args: Any = (),
    method: str | Algorithm[Any] | None = None,
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    integrality: Any = None,
    blackbox: bool = True,
) -> SearchResult:
    """Minimise fun(x, *args) inside bounds; an OptimizeResult with scipy's entries, and galapax's as `result`.

    method: a galapax algorithm by name ("cmaes", "de", ...) or as an object; None for the default. A local method is
        refused: call scipy's own `minimize` for it.
    jac, hess, hessp: not needed, and ignored; with jac=True fun returns (value, gradient), as in scipy.
    tol: the fraction of the box within which a population has converged.
    callback: called as scipy calls it: callback(intermediate_result=...) with an OptimizeResult (x, fun, nit, nfev) if
        that is the name of its only parameter, else callback(xk) with the best x. StopIteration or True stops the run.
    options: maxiter, maxfev or maxfun, popsize (individuals), seed and disp; or any argument of `galapax.minimize`.
    """
    if bounds is None:
        raise InputError("a global search needs bounds: give one (lower, upper) pair per variable.")
    limits = None if isinstance(constraints, tuple | list) and not constraints else constraints
    fun = FirstOfPair(fun) if jac is True else fun
    fun, bounds, ineq, eq = convert_problem(fun, _fit_bounds(bounds, x0), args, limits, integrality)
    arguments: dict[str, Any] = {OPTIONS.get(name, name): value for name, value in (options or {}).items()}
    if tol is not None:
        arguments.setdefault("tolerance", tol)
    arguments["maximize"] = np.atleast_1d(arguments.get("maximize", False)).tolist()  # of one objective
    try:
        result = minimize_global(
            fun,
            bounds,
            _parse_method(method),
            ineq=ineq,
            eq=eq,
            x0=x0,
            blackbox=blackbox,
            callback=None if callback is None else _adapt_callback(callback),
            **arguments,
        )
    except ObjectiveCountError as error:
        raise InputError(
            f"fun must return one number, as for scipy's minimize; it returned {error.n_objectives}. For residuals "
            "return the sum of their squares, np.sum(r**2); for several objectives call galapax.minimize."
        ) from None
    return SearchResult(
        x=result.x,
        fun=result.fun,
        success=result.success,
        status=0 if result.success else 1,
        message=result.message,
        nit=result.nit,
        nfev=result.nfev,
        maxcv=result.violation,
        result=result,
    )


def _fit_bounds(bounds: Any, x0: Any) -> Any:
    """Repeat the limits of a scipy Bounds that has one pair of numbers for all variables, which x0 counts."""
    if x0 is None or not hasattr(bounds, "lb") or np.size(bounds.lb) * np.size(bounds.ub) != 1:
        return bounds
    return [(np.ravel(bounds.lb)[0], np.ravel(bounds.ub)[0])] * np.shape(np.atleast_1d(x0))[-1]


def _parse_method(method: str | Algorithm[Any] | None) -> str | Algorithm[Any] | None:
    if method is None or isinstance(method, Algorithm):
        return method
    if not isinstance(method, str):
        raise InputError(f"method must be the name of an algorithm, such as 'de'; got {abbreviate(method)}.")
    if method.lower() in LOCAL_METHODS:
        raise InputError(
            f"{method} is a local method: call scipy.optimize.minimize for it, perhaps from the x of a global search. "
            "Here leave method out, or name an algorithm such as 'de'."
        )
    if method in ELSEWHERE:
        raise InputError(f"There is no method {method!r} here: {ELSEWHERE[method]}.")
    return algorithms.find_name(method)


def _adapt_callback(callback: Callable[..., object]) -> Callable[[Progress], bool]:
    takes_result = _takes_result(callback)

    def report(progress: Progress) -> bool:
        x = progress.x
        if x is None:  # no point has a finite value yet
            return False
        state = OptimizeResult(x=x, fun=progress.fun, nit=progress.generation, nfev=progress.nfev)
        try:
            return (callback(intermediate_result=state) if takes_result else callback(x.copy())) is True
        except StopIteration:
            return True

    return report


# --- scipy's other global searches ------------------------------------------------------------------------------------

_SEARCH = "write minimize(fun, bounds=bounds, options={'maxfev': 10_000}): its default search "
LOCAL_METHODS = {
    *("nelder-mead", "powell", "cg", "bfgs", "newton-cg", "l-bfgs-b", "tnc", "cobyla", "cobyqa", "slsqp"),
    *("trust-constr", "dogleg", "trust-ncg", "trust-exact", "trust-krylov"),
}
_SQUARES = "write minimize(lambda p: np.sum(residuals(p) ** 2), bounds=bounds), and refine its x by scipy's "
ELSEWHERE = {
    "dual_annealing": _SEARCH + "is for many local minima, too",
    "direct": _SEARCH + "needs bounds alone, too",
    "shgo": _SEARCH + "finds the global minimum; gx.minima lists all of them",
    "basinhopping": _SEARCH + "needs bounds in place of a step size, and x0 is optional",
    "brute": _SEARCH + "needs no grid",
    "least_squares": _SQUARES + "least_squares",
    "curve_fit": _SQUARES + "curve_fit",
}


def __getattr__(name: str) -> Any:
    """Answer the names of scipy's other searches, which are not here: see `ELSEWHERE`."""
    if name in ELSEWHERE:  # an AttributeError would lose the sentence in `from galapax.compat.scipy import ...`
        raise ImportError(f"galapax.compat.scipy has no {name}: {ELSEWHERE[name]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# --- differential_evolution -------------------------------------------------------------------------------------------

STRATEGIES = {"best1bin": best_1, "rand1bin": rand_1}
CONVERGED_MESSAGE = "Optimization terminated successfully."
MAXITER_MESSAGE = "Maximum number of iterations has been exceeded."
CALLBACK_MESSAGE = "callback function requested stop early"


def differential_evolution(
    func: Callable[Concatenate[Any, ...], Any],
    bounds: Bounds | ArrayLike,
    args: tuple[object, ...] = (),
    strategy: str = "best1bin",
    maxiter: int = 1000,
    popsize: int = 15,
    tol: float = 0.01,
    mutation: float | tuple[float, float] = (0.5, 1),
    recombination: float = 0.7,
    rng: Seed = None,
    callback: Callable[..., object] | None = None,
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
    if strategy not in STRATEGIES:
        raise InputError(f"strategy must be {' or '.join(map(repr, STRATEGIES))} here; got {strategy!r}.")
    seed_number = _parse_seed(rng if rng is not None else seed)
    space, fixed = _parse_bounds(bounds, integrality)
    objective = PopulationObjective(func, args, constraints, fixed, vectorized)
    with open_map(workers) as objective.map:
        size = max(5, int(check_positive(popsize, "popsize") * len(space)))
        initial = _initial_population(init, x0, size, space, fixed, np.random.default_rng(seed_number))
        size = max(size, len(initial)) if isinstance(init, str) else max(5, len(initial))
        mutate, weight = _parse_mutation(STRATEGIES[strategy], mutation)
        watcher = _Watcher(objective, callback, disp, atol, tol)
        variables: Any = space
        ineq = returned_by_fun if objective.constraints else None
        try:
            result = minimize_global(
                Problem(objective, variables, ineq=ineq, name="func", blackbox=True, vectorized=True),
                algorithm=DE(size, mutate, weight, check_finite(recombination, "recombination")),
                x0=initial,
                generations=check_integer(maxiter, "maxiter", 1) + 1,  # scipy counts the first population as none
                tolerance=0,
                polish=False,
                seed=seed_number,
                workers=Workers(memoize=False),
                on_failure="worst",
                callback=watcher,
                progress=False,
            )
        except (InputError, EvaluationError):
            if objective.error is None:
                raise
        if objective.error is not None:
            raise objective.error
        if result.stop is Stop.INTERRUPT:
            raise KeyboardInterrupt
        state = watcher.state
        state.message, state.success = watcher.message, watcher.message == CONVERGED_MESSAGE
        if polish is not False and polish is not None and watcher.message != CALLBACK_MESSAGE:
            _polish(state, objective, fixed, space, polish)
        _report_constraints(state, objective)
        state.nfev = objective.n_calls
    return state


class _Watcher:
    """Ends a run as scipy would: when its population has converged, or the user's callback asks for it."""

    def __init__(
        self,
        objective: PopulationObjective,
        callback: Callable[..., object] | None,
        disp: bool,
        atol: float,
        tol: float,
    ) -> None:
        self.objective, self.callback, self.disp, self.atol, self.tol = objective, callback, disp, atol, tol
        self.message = MAXITER_MESSAGE
        self.state: OptimizeResult

    def __call__(self, progress: Progress) -> bool:
        """Describe the last generation, and return whether it is to be the last one."""
        survivors = self.objective.survivors
        if self.objective.error is not None or survivors is None:
            return True
        violation = np.zeros(1) if survivors.violation is None else np.asarray(survivors.violation)
        fitness = np.asarray(survivors.fitness)
        energies = np.where(violation > 0, np.inf, fitness)
        best = np.lexsort((fitness, np.broadcast_to(violation, fitness.shape)))[0]
        nit = progress.generation - 1
        self.state = OptimizeResult(
            x=np.array(survivors.x[best]), fun=float(np.min(energies)), nfev=self.objective.n_calls, nit=nit,
            population=np.array(survivors.x), population_energies=energies,
        )  # fmt: skip
        with np.errstate(invalid="ignore"):
            spread, level = float(np.std(energies)), abs(float(np.mean(energies)))
        if self.disp:
            print(f"differential_evolution step {nit}: f(x)= {self.state.fun:g}")
        if not nit:
            return False
        convergence = (self.atol + self.tol * level) / spread if spread > 0 else np.inf
        if self.callback is not None and _callback_stops(self.callback, self.state, convergence):
            self.message = CALLBACK_MESSAGE
        elif np.isfinite(energies).all() and spread <= self.atol + self.tol * level:
            self.message = CONVERGED_MESSAGE
        return self.message != MAXITER_MESSAGE


def _parse_seed(value: Seed) -> int:
    if value is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    return int(np.random.default_rng(value).integers(2**32)) if not hasattr(value, "randint") else value.randint(2**31)


def _parse_bounds(bounds: Bounds | ArrayLike, integrality: ArrayLike | None) -> tuple[list[Variable], FixedVariables]:
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        lower, upper = np.broadcast_arrays(np.asarray(bounds.lb, np.float64), np.asarray(bounds.ub, np.float64))
    else:
        try:
            lower, upper = as_float_array(bounds).T
        except ValueError:
            raise InputError(
                f"bounds must be (lower, upper) pairs of finite numbers; got {abbreviate(bounds)}."
            ) from None
    fixed = FixedVariables(np.array(lower), np.array(upper))
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
    fixed: FixedVariables,
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


def _takes_result(callback: Callable[..., object]) -> bool:
    """Whether a callback has one parameter, `intermediate_result`, which is how scipy tells its two kinds apart."""
    try:
        return set(inspect.signature(callback).parameters) == {"intermediate_result"}
    except (TypeError, ValueError):
        return False


def _callback_stops(callback: Callable[..., object], state: OptimizeResult, convergence: float) -> bool:
    """Call the callback, in either of scipy's two ways, and return whether it asks to stop."""
    takes_result = _takes_result(callback)
    try:
        return bool(
            callback(intermediate_result=state) if takes_result else callback(state.x.copy(), convergence=convergence)
        )
    except StopIteration:
        return True


def _polish(
    state: OptimizeResult,
    objective: PopulationObjective,
    fixed: FixedVariables,
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


def _report_constraints(state: OptimizeResult, objective: PopulationObjective) -> None:
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
