"""scipy.optimize.minimize by its name and arguments, as a global search by galapax.

    from galapax.compat.scipy import minimize

takes the place of scipy's import where a local method gets stuck. The function is called as scipy calls it, with NumPy
arrays and without derivatives; `blackbox=False` compiles one that is written with jax.numpy. `bounds` are needed: a
global search has to know where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from galapax.algorithms import ALGORITHMS
from galapax.api.minimize import minimize as minimize_global
from galapax.compat.scipy_problem import convert_problem
from galapax.core.errors import InputError, unknown_name_error
from galapax.execution.observers import Progress

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

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
METHODS = {"differential_evolution": "de", "cma": "cmaes", "cma-es": "cmaes"}


def minimize(
    fun: Callable[..., Any],
    x0: Any = None,
    args: Any = (),
    method: str | None = None,
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
) -> OptimizeResult:
    """Minimise fun(x, *args) inside bounds; an OptimizeResult with scipy's entries, and galapax's as `result`.

    method: a galapax algorithm by name ("cmaes", "de", ...); None for the default. A local method of scipy's is refused
        with a sentence: keep scipy's own `minimize` for these.
    jac, hess, hessp: not needed, and ignored. tol: the fraction of the box within which a population has converged.
    callback: called with an intermediate OptimizeResult (fun, nit, nfev); StopIteration or True stops the run.
    options: maxiter, maxfev or maxfun, popsize (individuals), seed and disp; or any argument of `galapax.minimize`.
    """
    from scipy.optimize import OptimizeResult

    if bounds is None:
        raise InputError("a global search needs bounds: give one (lower, upper) pair per variable.")
    limits = None if isinstance(constraints, tuple | list) and not constraints else constraints
    fun, bounds, ineq, eq = convert_problem(fun, bounds, args, limits, integrality)
    arguments = {OPTIONS.get(name, name): value for name, value in (options or {}).items()}
    if tol is not None:
        arguments.setdefault("tolerance", tol)
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
    return OptimizeResult(
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


def _parse_method(method: str | None) -> str | None:
    if method is None:
        return None
    name = METHODS.get(str(method).lower(), str(method).lower())
    if name in ALGORITHMS:
        return name
    raise InputError(f"{unknown_name_error('algorithm', str(method), ALGORITHMS)} Local methods are scipy's own.")


def _adapt_callback(callback: Callable[..., Any]) -> Callable[[Progress], bool]:
    from scipy.optimize import OptimizeResult

    def report(progress: Progress) -> bool:
        state = OptimizeResult(fun=progress.fun, nit=progress.generation, nfev=progress.nfev)
        try:
            return callback(state) is True
        except StopIteration:
            return True

    return report
