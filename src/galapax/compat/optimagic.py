"""An algorithm for optimagic: a global search by galapax.

import optimagic as om
from galapax.compat.optimagic import Galapax

om.minimize(fun, params, algorithm=Galapax(seed=1), bounds=bounds)
"""

# without `from __future__ import annotations`: optimagic converts options by their types
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from galapax.api.minimize import minimize
from galapax.compat.ask_tell import FirstError
from galapax.core.errors import InputError
from galapax.core.problem import Evaluation, Problem, as_bounds, returned_by_fun

try:
    from optimagic import mark
    from optimagic.optimization.algorithm import Algorithm, InternalOptimizeResult
    from optimagic.optimization.internal_optimization_problem import InternalOptimizationProblem
    from optimagic.typing import AggregationLevel, NonNegativeFloat, PositiveFloat, PositiveInt
except ImportError as error:
    raise ImportError('galapax.compat.optimagic needs optimagic: pip install "galapax[optimagic]".') from error


@mark.minimizer(
    name="galapax",
    solver_type=AggregationLevel.SCALAR,
    is_available=True,
    is_global=True,
    needs_jac=False,
    needs_hess=False,
    needs_bounds=True,
    supports_parallelism=True,
    supports_bounds=True,
    supports_infinite_bounds=False,
    supports_linear_constraints=False,
    supports_nonlinear_constraints=True,
    disable_history=False,
)
@dataclass(frozen=True)
class Galapax(Algorithm):
    """Minimise a scalar function inside bounds by an evolutionary algorithm, with nonlinear constraints.

    algorithm: a galapax algorithm by name ("cmaes", "lshade", "de", ...), an instance such as gx.DE(weight=0.7), or
        None for a default.
    population_size: individuals, if not the algorithm's default.
    stopping_maxfun, stopping_maxiter: the most evaluations and generations; stopping_maxtime: seconds.
    convergence_xtol_rel: the search has converged when its population is narrower than this share of the bounds.
    stopping_target: end as soon as a feasible value is at most this.
    n_cores: evaluates each generation by optimagic's batch evaluator on so many cores.
    seed: repeats a search; None draws one.
    """

    algorithm: Any = None
    population_size: PositiveInt | None = None
    stopping_maxfun: PositiveInt | None = None
    stopping_maxiter: PositiveInt | None = None
    stopping_maxtime: PositiveFloat | None = None
    stopping_target: float | None = None
    convergence_xtol_rel: NonNegativeFloat | None = None
    n_cores: PositiveInt = 1
    seed: int | None = 0

    def _solve_internal_problem(
        self, problem: InternalOptimizationProblem, x0: NDArray[np.float64]
    ) -> InternalOptimizeResult:
        bounds = (problem.bounds.lower, problem.bounds.upper)
        if any(side is None or not np.isfinite(side).all() for side in bounds):
            raise InputError("galapax needs a finite lower and upper bound for every parameter: give bounds.")
        constraints = problem.nonlinear_constraints or []
        equalities = [c for c in constraints if c["type"] == "eq"]
        inequalities = [c for c in constraints if c["type"] != "eq"]

        def evaluate(x: NDArray[np.float64]) -> Evaluation:
            """The values of one point (d,), or of many (n, d)."""
            points = np.atleast_2d(x)
            if self.n_cores > 1:
                fun = np.array(problem.batch_fun(list(points), n_cores=self.n_cores))
            else:
                fun = np.array([problem.fun(point) for point in points])
            ineq, eq = (
                np.array([np.concatenate([np.ravel(c["fun"](point)) for c in group]) for point in points])
                if group
                else None
                for group in (inequalities, equalities)
            )
            ineq = None if ineq is None else -ineq  # at least 0 in optimagic
            return (
                Evaluation(fun, ineq, eq)
                if x.ndim == 2
                else Evaluation(*(v if v is None else v[0] for v in (fun, ineq, eq)))
            )

        fun = FirstError(evaluate)
        tolerance = {"eq_tolerance": min(c["tol"] for c in equalities)} if equalities else {}
        try:
            result = minimize(
                Problem(
                    fun,
                    as_bounds(np.column_stack(bounds)),
                    ineq=returned_by_fun if inequalities else None,
                    eq=returned_by_fun if equalities else None,
                    name="optimagic",
                    blackbox=True,
                    vectorized=self.n_cores > 1,
                    **tolerance,
                ),
                None,
                self.algorithm,
                x0=x0,
                population=self.population_size,
                max_evaluations=self.stopping_maxfun,
                generations=self.stopping_maxiter,
                max_seconds=self.stopping_maxtime,
                target=self.stopping_target,
                tolerance=self.convergence_xtol_rel,
                seed=self.seed,
                callback=fun.is_raised,
            )
        finally:
            fun.reraise()
        return InternalOptimizeResult(
            x=result.x,
            fun=result.fun,
            success=bool(result.success),
            message=result.message,
            n_fun_evals=int(result.nfev),
            n_iterations=int(result.nit),
            max_constraint_violation=float(result.violation),
        )
