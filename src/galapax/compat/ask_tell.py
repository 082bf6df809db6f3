"""The search behind the libraries that evaluate points themselves and tell their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from galapax import algorithms
from galapax.algorithms.cmaes import CMAES
from galapax.algorithms.ehvi import EHVI, is_for_front_models
from galapax.algorithms.model_search import ModelSearch, is_for_models
from galapax.api.optimizer import Optimizer
from galapax.core.algorithm import Algorithm, Budget
from galapax.core.checks import pluralize
from galapax.core.errors import InputError
from galapax.core.problem import Shape
from galapax.core.variables import Variable
from galapax.execution.arguments import shrink_population_to_budget
from galapax.execution.observers import Progress


class FirstError:
    """A function that is called until it raises, and keeps the exception."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.error: Exception | None = None

    def __call__(self, x: np.ndarray) -> Any:
        if self.error is not None:
            raise self.error
        try:
            return self.function(x)
        except Exception as error:
            self.error = error
            raise

    def is_raised(self, progress: Progress) -> bool:
        """A callback that stops the run after an exception."""
        return self.error is not None

    def reraise(self) -> None:
        """Raise the exception, if there is one."""
        if self.error is not None:
            raise self.error


PLANNED_EVALUATIONS = 100  # for which the default algorithm is chosen if nobody says how many
MIN_PLANNED_EVALUATIONS = 50  # for which a search is planned: it may end earlier


def create_optimizer(
    variables: Sequence[Variable],
    algorithm: str | Algorithm | None,
    *,
    maximize: Sequence[bool] = (False,),
    is_constrained: bool = False,
    is_parallel: bool = False,
    population: int | None = None,
    max_evaluations: int | None = None,
    seed: int | None = 0,
    x0: object = None,
) -> Optimizer:
    """Create an Optimizer for few evaluations, with the default algorithm that suits them.

    maximize: the direction of each objective. is_parallel: several points are evaluated at once, so that a search that
        proposes one after another does not suit. x0: points to start from, which a search by models does not take.
    """
    dim, n_objectives = len(variables), len(maximize)
    mixed = dim if any(v.discrete for v in variables) else 0
    solver = algorithms.resolve_algorithm(algorithm, is_constrained, n_objectives, mixed, population)
    if solver.traits.multi_objective != (n_objectives > 1):
        raise InputError(
            f"there {'are' if n_objectives > 1 else 'is'} {pluralize(n_objectives, 'objective')}, and "
            f"{type(solver).__name__} is for {'several' if solver.traits.multi_objective else 'one'}: choose another "
            "algorithm, or None."
        )
    if is_parallel and isinstance(solver, CMAES) and solver.surrogate is None:
        solver = replace(solver, surrogate=False)  # its generations, which these libraries evaluate, have one point
    if max_evaluations is not None:
        max_evaluations = max(max_evaluations, MIN_PLANNED_EVALUATIONS)
    restarts = None
    if algorithm is None:
        max_evaluations = PLANNED_EVALUATIONS if max_evaluations is None else max_evaluations
        restarts = algorithms.parse_restarts("auto", solver)
        is_left_open = population is None and not is_parallel
        is_simple = n_objectives == 1 and not is_constrained
        if is_left_open and is_simple and is_for_models(max_evaluations, dim):
            solver, restarts = ModelSearch(), None
        elif is_left_open and is_for_front_models(max_evaluations, dim, n_objectives):
            solver = EHVI()
    if population is None and not isinstance(algorithm, Algorithm) and restarts is None:
        shape = Shape(n_objectives, int(is_constrained), 0)
        solver = shrink_population_to_budget(solver, dim, shape, Budget(None, max_evaluations))
    return Optimizer(
        list(variables),
        solver,
        seed=seed,
        maximize=maximize,
        population=population,
        max_evaluations=max_evaluations,
        x0=None if isinstance(solver, ModelSearch) else x0,
        restarts=restarts,
    )
