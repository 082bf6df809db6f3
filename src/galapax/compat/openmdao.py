"""A driver for OpenMDAO: galapax's algorithms on a model of components.

    import openmdao.api as om
    from galapax.compat.openmdao import GalapaxDriver

    problem.driver = GalapaxDriver(max_evaluations=2000, seed=1)
    problem.setup()
    problem.run_driver()

The model is run as a black box: no derivatives are needed, and the objective may have many minima. OpenMDAO lists the
driver by its entry point (`openmdao list_installed driver`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from galapax.api.minimize import minimize
from galapax.compat.ask_tell import FirstError
from galapax.core.errors import InputError
from galapax.core.options import Workers
from galapax.core.problem import Evaluation, Problem, returned_by_fun
from galapax.core.variables import Variable, integer, real
from galapax.results.result import Result

try:
    from openmdao.core.analysis_error import AnalysisError
    from openmdao.core.driver import Driver, RecordingDebugging
except ImportError as error:
    raise ImportError(
        'galapax.compat.openmdao needs OpenMDAO 3.45 or later: pip install "galapax[openmdao]".'
    ) from error

INFINITE_BOUND = 1e30  # OpenMDAO's earlier number for no bound


class GalapaxDriver(Driver):
    """Optimises a model by an evolutionary algorithm: constraints, integers, several objectives, worker processes.

    Options:
    algorithm: a name, such as "de", an instance, such as gx.DE(weight=0.7), or None for a default.
    max_evaluations: the most runs of the model during the search.
    seed: repeats a search.
    workers: processes that run the model, -1 for one per core. They need `build_problem`.
    build_problem: a function without arguments that returns the om.Problem, set up and with a GalapaxDriver, as your
        program does it. Each worker calls it once for a model of its own.
    disp: print how the search ended.

    Further arguments of `galapax.minimize`, such as population, target, max_seconds or checkpoint, go into the dict
    `run_settings`. Design variables need bounds; discrete ones are integers, and keep their type. A model that raises
    om.AnalysisError counts as a failed evaluation; any other exception ends the run, except in a worker, where it is a
    failed evaluation too. The search begins with the model's present values, if they are inside the bounds.

    With one objective the model is left at the best design. With several, it is left at the knee of the front, and
    `pareto` has the front: {"X": {name: values of each point}, "F": {name: values of each point}}. `galapax_result` is
    the `galapax.Result`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for feature in (
            "optimization",
            "inequality_constraints",
            "equality_constraints",
            "two_sided_constraints",
            "linear_constraints",
            "linear_only_designvars",
            "multiple_objectives",
            "integer_design_vars",
        ):
            self.supports[feature] = True
        for feature in ("gradients", "active_set", "distributed_design_vars"):
            self.supports[feature] = False
        self.supports._read_only = True
        self.run_settings: dict[str, Any] = {}
        self.pareto: dict[str, dict[str, np.ndarray]] | None = None
        self.galapax_result: Result | None = None

    def _declare_options(self) -> None:
        self.options.declare("algorithm", default=None, desc="Name or instance of an algorithm; None for a default.")
        self.options.declare(
            "max_evaluations", default=None, types=int, allow_none=True, desc="Most runs of the model."
        )
        self.options.declare("seed", default=0, types=int, allow_none=True, desc="Repeats a search.")
        self.options.declare("workers", default=None, types=(int, Workers), allow_none=True, desc="Worker processes.")
        self.options.declare("build_problem", default=None, allow_none=True, desc="Builds the om.Problem in a worker.")
        self.options.declare("disp", default=True, types=bool, desc="Print how the search ended.")

    def _get_name(self) -> str:
        return "galapax"

    def run(self) -> bool:
        """Optimise the model; True if no feasible design was found."""
        self.result.reset()
        self.iter_count = 0
        self.pareto = None
        self._check_for_missing_objective()
        self._check_for_invalid_desvar_values()
        self.run_model()
        names, variables = self._variables()
        workers, build = self.options["workers"], self.options["build_problem"]
        if workers is not None and build is None:
            raise InputError(
                "each worker needs a model of its own: give GalapaxDriver a build_problem, a function that returns the "
                "om.Problem, set up and with a GalapaxDriver."
            )
        objectives = self._objective_names()
        equalities = [name for name, meta in self._cons.items() if meta["equals"] is not None]
        evaluate = FirstError(self.evaluate)
        problem = Problem(
            evaluate if workers is None else WorkerModel(build),
            variables,
            ineq=returned_by_fun if len(equalities) < len(self._cons) else None,
            eq=returned_by_fun if equalities else None,
            name=self._problem()._name or "model",
            objectives=objectives if len(objectives) > 1 else None,
            blackbox=True,
        )
        settings = {
            "algorithm": self.options["algorithm"],
            "max_evaluations": self.options["max_evaluations"],
            "seed": self.options["seed"],
            "workers": workers,
            "x0": self._initial_point(variables),
            "callback": evaluate.is_raised,
        }
        try:
            result = minimize(problem, **settings | self.run_settings)
        finally:
            self._problem().model._clear_iprint()
            evaluate.reraise()
        self.galapax_result = result
        if len(objectives) > 1:
            self.pareto = {
                "X": {name: result.X[:, place] for name, place in names.items()},
                "F": dict(zip(objectives, result.F.T, strict=True)),
            }
        self._set_designs(result.x)
        self.run_model()
        if self.options["disp"]:
            print(f"{result.message} {result.nfev} runs of the model.")
        return not result.feasible

    def run_model(self) -> None:
        """Run the model once, as an iteration of the driver."""
        with RecordingDebugging(self._get_name(), self.iter_count, self):
            self.iter_count += 1
            self._run_solve_nonlinear()

    def evaluate(self, x: np.ndarray) -> Evaluation:
        """Run the model at x (d,), and return objectives and constraints as the driver scales them."""
        self._set_designs(x)
        try:
            self.run_model()
        except AnalysisError:
            self._problem().model._clear_iprint()
            values = (self._objectives(), *self._constraints())
            return Evaluation(*(None if v is None else np.full(v.shape, np.nan) for v in values))
        return Evaluation(self._objectives(), *self._constraints())

    def _variables(self) -> tuple[dict[str, slice], Any]:
        """The place of each design variable in x, and the variables of x."""
        names: dict[str, slice] = {}
        variables: list[Variable] = []
        values = self.get_design_var_values(driver_scaling=False)
        for name, meta in self._designvars.items():
            size = np.size(values[name])
            sides = []
            for side in ("lower", "upper"):
                bound = np.full(size, np.inf) if meta[side] is None else np.broadcast_to(meta[side], (size,))
                if not (np.abs(bound) < INFINITE_BOUND).all():
                    raise InputError(f"the design variable {name!r} has no {side} bound: give one in add_design_var.")
                sides.append(bound.tolist())
            make = integer if name in self._designvars_discrete else real
            for i, (low, high) in enumerate(zip(*sides, strict=True)):
                variables.append(make(low, high, name=name if size == 1 else f"{name}[{i}]"))
            names[name] = slice(len(variables) - size, len(variables))
        return names, variables

    def _initial_point(self, variables: list[Variable]) -> np.ndarray | None:
        values = self.get_design_var_values(driver_scaling=False)
        x = np.concatenate([np.ravel(values[name]) for name in self._designvars]).astype(np.float64)
        is_inside = all(v.lower <= value <= v.upper for v, value in zip(variables, x.tolist(), strict=True))
        return x if is_inside else None

    def _set_designs(self, x: np.ndarray) -> None:
        values = self.get_design_var_values(driver_scaling=False)
        first = 0
        for name, meta in self._designvars.items():
            end = first + np.size(values[name])
            numbers = x[first:end]
            if name in self._designvars_discrete:
                numbers = np.round(numbers).astype(int).reshape(np.shape(values[name]))
                self._set_design_var(name, numbers.item() if numbers.ndim == 0 else numbers)
            else:
                self._set_design_var(name, numbers, units=meta["units"])
            first = end

    def _objective_names(self) -> list[str]:
        """One name for each objective; an array is several."""
        sizes = {name: np.size(value) for name, value in self.get_objective_values().items()}
        return [name if n == 1 else f"{name}[{i}]" for name, n in sizes.items() for i in range(n)]

    def _objectives(self) -> np.ndarray:
        return np.concatenate([np.ravel(value) for value in self.get_objective_values().values()]).astype(np.float64)

    def _constraints(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Inequalities, at most 0 where feasible, and equalities; None for none."""
        if not self._cons:
            return None, None
        values, bounds = self.get_constraint_values(), self.autoscaler.get_bounds_scaling("constraint")
        inequalities, equalities = [], []
        for name, meta in self._cons.items():
            value = np.ravel(values[name]).astype(np.float64)
            if meta["equals"] is not None:
                equalities.append(value - bounds[name].equals)
                continue
            for bound, sign in ((bounds[name].lower, -1.0), (bounds[name].upper, 1.0)):
                if bound is not None:
                    bound = np.broadcast_to(bound, value.shape)
                    is_finite = np.abs(bound) < INFINITE_BOUND
                    inequalities.append(sign * (value - bound)[is_finite])
        groups = (np.concatenate(group) if group else None for group in (inequalities, equalities))
        return tuple(groups)  # type: ignore[return-value]


class WorkerModel:
    """The model in a worker process, built there at the first call."""

    def __init__(self, build_problem: Callable[[], Any]) -> None:
        self.build_problem = build_problem
        self._problem: Any = None

    def __getstate__(self) -> dict[str, object]:
        return {"build_problem": self.build_problem, "_problem": None}

    def __call__(self, x: np.ndarray) -> Evaluation:
        if self._problem is None:
            problem = self.build_problem()
            if not isinstance(problem.driver, GalapaxDriver):
                kind = type(problem.driver).__name__
                raise InputError(f"build_problem must return a problem with a GalapaxDriver; got {kind}.")
            problem.final_setup()
            problem.driver.run_model()
            self._problem = problem
        return self._problem.driver.evaluate(x)
