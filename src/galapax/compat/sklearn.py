"""A hyper-parameter search for scikit-learn.

    import galapax as gx
    from galapax.compat.sklearn import GalapaxSearchCV

    search = GalapaxSearchCV(SVC(), {"C": gx.real(1e-3, 1e3, log=True), "kernel": ["rbf", "poly"]}, n_iter=60)
    search.fit(X, y)

It takes the place of RandomizedSearchCV, with its arguments and attributes. RandomizedSearchCV draws all candidates at
once; this one learns from the scores of each generation.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from galapax.compat.ask_tell import create_optimizer
from galapax.core.algorithm import Algorithm
from galapax.core.errors import InputError
from galapax.core.variables import Variable, choice, real

try:
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.utils import check_random_state
    from sklearn.utils._param_validation import Interval
except ImportError as error:
    raise ImportError('galapax.compat.sklearn needs scikit-learn: pip install "galapax[sklearn]".') from error

TAIL_PROBABILITY = 1e-3  # probability that is cut off at an end of a distribution without limit there


class GalapaxSearchCV(BaseSearchCV):
    """Cross-validated search of hyper-parameters by an evolutionary algorithm.

    param_distributions: what may be searched, by parameter: gx.real, gx.integer, gx.choice or gx.boolean; a
        distribution of scipy.stats, whose quantiles are searched; or a list of values of any kind. Numbers in ascending
        order are searched as steps of a ladder.
    n_iter: candidates that are evaluated.
    algorithm: a name, such as "cmaes" or "de", an instance, or None for a default: quadratic
        models; where n_jobs evaluates several candidates at once, CMA-ES for real parameters, and differential
        evolution where one is an integer or a choice.
    population: candidates of a generation, if not the algorithm's default. n_jobs evaluates all their folds at once.

    The other arguments and the attributes are those of RandomizedSearchCV. Every candidate is scored on the same
    splits, also where `cv` shuffles without a seed. With several metrics, the one that `refit` names is optimised. A
    generation of which all candidates fail is left out of `cv_results_`.
    """

    _parameter_constraints: ClassVar[dict[str, object]] = {
        **BaseSearchCV._parameter_constraints,
        "param_distributions": [dict],
        "n_iter": [Interval(numbers.Integral, 1, None, closed="left")],
        "algorithm": [str, Algorithm, None],
        "population": [Interval(numbers.Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: object,
        param_distributions: Mapping[str, object],
        *,
        n_iter: int = 50,
        algorithm: str | Algorithm | None = None,
        population: int | None = None,
        scoring: object = None,
        n_jobs: int | None = None,
        refit: object = True,
        cv: object = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        random_state: object = None,
        error_score: object = np.nan,
        return_train_score: bool = False,
    ) -> None:
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.algorithm = algorithm
        self.population = population
        self.random_state = random_state
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )

    def _run_search(self, evaluate_candidates: Any) -> None:
        """Evaluate generation by generation, n_iter candidates in all."""
        parameters = [_Parameter(name, spec) for name, spec in self.param_distributions.items()]
        searched = [p for p in parameters if p.variable is not None]
        cv = _FixedSplits(self._checked_cv_orig)
        if not searched:
            evaluate_candidates([{p.name: p.value(0.0) for p in parameters}], cv=cv)
            return
        optimizer = create_optimizer(
            [p.variable for p in searched if p.variable is not None],
            self.algorithm,
            maximize=(True,),
            is_parallel=self.n_jobs not in (None, 1),
            population=self.population,
            max_evaluations=self.n_iter,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        n_left = self.n_iter
        while n_left > 0:
            points = optimizer.ask_generation()
            rows = [dict(zip((p.name for p in searched), row, strict=True)) for row in points[:n_left].tolist()]
            candidates = [{p.name: p.value(row.get(p.name, 0.0)) for p in parameters} for row in rows]
            scores = np.full(len(candidates), np.nan)
            try:
                results = evaluate_candidates(candidates, cv=cv)
                scores = self._scores(results)[-len(candidates) :]
            except ValueError:  # scikit-learn refuses candidates that fail all together
                if n_left == self.n_iter or self.error_score == "raise":
                    raise
            n_left -= len(candidates)
            if len(candidates) == len(points):
                optimizer.tell(points, scores)

    def _scores(self, results: Mapping[str, object]) -> np.ndarray:
        name = f"mean_test_{self.refit if isinstance(self.refit, str) else 'score'}"
        if name not in results:
            metrics = [key.removeprefix("mean_test_") for key in results if key.startswith("mean_test_")]
            raise InputError(f"several metrics are scored: say by refit= which to optimise: {', '.join(metrics)}.")
        return np.asarray(results[name], np.float64)


class _Parameter:
    """A hyper-parameter as a variable; without one if it has a single value."""

    def __init__(self, name: str, spec: Any) -> None:
        self.name = name
        self.variable: Variable | None
        self._distribution = self._values = None
        if isinstance(spec, Variable):
            self.variable = spec
        elif hasattr(spec, "ppf"):
            self._distribution = spec
            low, high = spec.support()
            self.variable = real(
                0.0 if np.isfinite(low) else TAIL_PROBABILITY, 1.0 if np.isfinite(high) else 1.0 - TAIL_PROBABILITY
            )
        elif isinstance(spec, Iterable) and not isinstance(spec, str | Mapping):
            self._values = list(spec)
            if not self._values:
                raise InputError(f"the parameter {name!r} has an empty list of values: give at least one.")
            self.variable = _choice_of(self._values)
        else:
            raise InputError(
                f"the parameter {name!r} has {spec!r}; give gx.real, gx.integer, gx.choice or gx.boolean, a "
                "distribution of scipy.stats, or a list of values."
            )

    def value(self, number: float) -> Any:
        """The value that stands for the number in x."""
        if self._distribution is not None:
            # at probability 0 a discrete distribution answers with the number before its first
            value = self._distribution.ppf(max(number, np.finfo(float).tiny)).item()
            return int(value) if hasattr(self._distribution, "pmf") else value
        if self._values is None:
            assert self.variable is not None
            return self.variable.value(number)
        if self.variable is None:
            return self._values[0]
        return self._values[int(np.argmin(np.abs(self.variable._numbers - number)))]


def _choice_of(values: list[object]) -> Variable | None:
    """A choice of these values, of their places if they are not different numbers; None for a single value."""
    if len(values) == 1:
        return None
    is_numeric = all(
        isinstance(v, numbers.Real) and not isinstance(v, bool | np.bool_) and math.isfinite(float(v)) for v in values
    )
    return choice(*(values if is_numeric and len(set(values)) == len(values) else map(str, range(len(values)))))


class _FixedSplits:
    """A splitter that gives the same splits again."""

    def __init__(self, cv: Any) -> None:
        self._cv = cv
        self._splits: list[Any] | None = None

    def split(self, X: Any, y: Any = None, **params: Any) -> list[Any]:
        if self._splits is None:
            self._splits = list(self._cv.split(X, y, **params))
        return self._splits

    def get_n_splits(self, X: Any = None, y: Any = None, **params: Any) -> int:
        return self._cv.get_n_splits(X, y, **params)
