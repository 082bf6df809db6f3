"""A sampler for Optuna: galapax's algorithms inside `study.optimize`.

    import optuna
    from galapax.compat.optuna import GalapaxSampler

    study = optuna.create_study(sampler=GalapaxSampler(seed=1))
    study.optimize(objective, n_trials=200)

An evolutionary algorithm proposes a generation of points at a time, and Optuna needs one trial at a time. The sampler
hands out the points of a generation one by one and notes in each trial which point it has. The state of the search is
stored nowhere: it is a function of the seed and of the values in the study, so another sampler, process or session with
the same seed computes the same search again from the study's storage, and continues it.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import numpy as np

from galapax import algorithms
from galapax.algorithms.model_search import ModelSearch
from galapax.api.optimizer import Optimizer
from galapax.compat.ask_tell import create_optimizer
from galapax.core.algorithm import Algorithm
from galapax.core.checks import check_integer
from galapax.core.errors import InputError
from galapax.core.variables import Variable, choice, integer, real

try:
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
        distribution_to_json,
    )
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.search_space import IntersectionSearchSpace
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise ImportError('galapax.compat.optuna needs Optuna: pip install "galapax[optuna]".') from error

ATTRIBUTE = "galapax"  # under which a trial and a study keep what the search needs
EXTRA = -1  # the row of a trial that has no point of the generation
MAX_STARTING_POINTS = 10  # trials that were there before the search, from which it starts


class GalapaxSampler(BaseSampler):
    """Samples the parameters that all trials have in common by an evolutionary algorithm, and the others independently.

    algorithm: a name, such as "cmaes" or "nsga2", an instance such as gx.DE(weight=0.7), or None for a default. For one
        objective these are quadratic models for up to 100 trials per parameter, one trial after another; for more, or
        with n_jobs, CMA-ES with restarts where all parameters are floats, and differential evolution where one is
        categorical, an integer or has a step. Differential evolution where trials have constraints, too; NSGA-II for
        two objectives.
    population: trials of a generation. n_jobs keeps all jobs busy with a population of two to four times as many.
    n_trials: how many trials you plan, for algorithms that plan with it. Without it the default algorithm plans 100.
    seed: repeats a study of the same objective, as long as n_jobs is 1; None draws one, which the study keeps.
    search_space: the parameters and their distributions, if known: else the first trial finds them.
    constraints_func: as Optuna's samplers have it: called with each finished trial, at most 0 where feasible. What
        `trial.set_constraint` sets counts as well.
    independent_sampler: samples the parameters that are not in every trial, and the first trial; random by default.

    While a generation waits for its last trials, which happens with n_jobs or several processes, a further trial takes
    each of its parameters from one of the generation's points. A point whose trial never ends (its process died) is
    handed out again after as many of those as the generation has points. Trials that failed count as the worst of their
    generation; pruned ones have their last reported value.
    """

    def __init__(
        self,
        algorithm: str | Algorithm | None = None,
        *,
        population: int | None = None,
        n_trials: int | None = None,
        seed: int | None = None,
        search_space: dict[str, BaseDistribution] | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        independent_sampler: BaseSampler | None = None,
    ) -> None:
        if algorithm is not None:
            algorithms.resolve_algorithm(algorithm)
        limits = {"population": population, "n_trials": n_trials, "seed": seed}
        self._population, self._n_trials, self._seed = (
            None if limit is None else check_integer(limit, name, 0 if name == "seed" else 1)
            for name, limit in limits.items()
        )
        self._algorithm = algorithm
        self._declared = search_space
        self._constraints_func = constraints_func
        self._independent_sampler = independent_sampler or RandomSampler(seed=seed)
        self._intersection = IntersectionSearchSpace()
        self._generation: _Generation | None = None
        self._is_parallel = False
        self._lock = RLock()

    def __getstate__(self) -> dict[str, object]:
        """Without the search, which is computed again from the study."""
        return {name: v for name, v in self.__dict__.items() if name != "_lock"} | {"_generation": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=RLock())

    def reseed_rng(self) -> None:
        """Reseed the independent sampler alone: the trials of all jobs belong to one search."""
        self._is_parallel = True  # Optuna calls this only with n_jobs
        self._independent_sampler.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        space = self._declared if self._declared is not None else self._intersection.calculate(study)
        supported = (FloatDistribution, IntDistribution, CategoricalDistribution)
        return {name: d for name, d in sorted(space.items()) if isinstance(d, supported) and not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, object]:
        if not search_space:
            return {}
        with self._lock:
            trials = study._get_trials(deepcopy=False, use_cache=False)
            generation = self._open(study, trials, search_space)
            generation.advance(trials)
            row = generation.choose_row(trials)
            claim = [generation.search, generation.number, row]
            study._storage.set_trial_system_attr(trial._trial_id, ATTRIBUTE, claim)
            return generation.params(row, trial.number)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._independent_sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._independent_sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        if self._constraints_func is not None and state in (TrialState.COMPLETE, TrialState.PRUNED):
            constraints = [float(c) for c in self._constraints_func(trial)]
            if any(map(math.isnan, constraints)):
                raise InputError(f"constraints_func must return numbers, and trial {trial.number} has {constraints}.")
            study._storage.set_trial_system_attr(trial._trial_id, "constraints", constraints)
        self._independent_sampler.after_trial(study, trial, state, values)

    def _open(self, study: Study, trials: list[FrozenTrial], space: dict[str, BaseDistribution]) -> _Generation:
        """The present generation of the search in this space, which may begin now."""
        is_constrained = self._constraints_func is not None or any(constraint_values(t) for t in trials)
        description = {
            "space": {name: json.loads(distribution_to_json(d)) for name, d in space.items()},
            "algorithm": repr(self._algorithm),
            "population": self._population,
            "n_trials": self._n_trials,
            "constrained": is_constrained,
            "parallel": self._is_parallel,
            "seed": self._seed,
        }
        search = hashlib.sha1(json.dumps(description, sort_keys=True).encode()).hexdigest()[:12]
        if self._generation is not None and self._generation.belongs_to(study, search):
            return self._generation
        key = f"{ATTRIBUTE}:{search}"
        start = study._storage.get_study_system_attrs(study._study_id).get(key)
        if start is None:
            seed = random.SystemRandom().getrandbits(32) if self._seed is None else self._seed
            start = {"seed": seed, "trials": starting_trials(study, trials, space)}
            study._storage.set_study_system_attr(study._study_id, key, start)
        codes = [_Code(name, distribution) for name, distribution in space.items()]
        maximize = tuple(direction == StudyDirection.MAXIMIZE for direction in study.directions)
        known_trials = [trials[number] for number in start["trials"]]
        x0 = [[code.encode(t.params[code.name]) for code in codes] for t in known_trials]
        optimizer = create_optimizer(
            [code.variable for code in codes],
            self._algorithm,
            maximize=maximize,
            is_constrained=is_constrained,
            is_parallel=self._is_parallel,
            population=self._population,
            max_evaluations=self._n_trials,
            seed=start["seed"],
            x0=x0 or None,
        )
        self._generation = _Generation(study, search, optimizer, codes, len(maximize), is_constrained, known_trials)
        return self._generation


@dataclass
class _Generation:
    """The present generation of a search: its points, and which trials evaluate them."""

    study: Study
    search: str  # identifies the search among those of the study
    optimizer: Optimizer
    codes: list[_Code]
    n_objectives: int
    is_constrained: bool
    known_trials: list[FrozenTrial]  # whose points the first generation contains
    number: int = 0
    points: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        if self.known_trials and isinstance(self.optimizer.algorithm, ModelSearch):  # it learns from their values
            points = [[code.encode(trial.params[code.name]) for code in self.codes] for trial in self.known_trials]
            self._tell(np.array(points, float), self.known_trials)
        self.points = self.optimizer.ask_generation()

    def belongs_to(self, study: Study, search: str) -> bool:
        same_study = self.study._storage is study._storage and self.study._study_id == study._study_id
        return same_study and self.search == search

    def advance(self, trials: list[FrozenTrial]) -> None:
        """Make the next generations, as far as their values are known."""
        while True:
            rows = self._finished_rows(trials)
            if len(rows) < len(self.points) or not any(t.state == TrialState.COMPLETE for t in rows.values()):
                return
            self._tell(self.points, [rows[i] for i in range(len(self.points))])
            self.number += 1
            self.points = self.optimizer.ask_generation()

    def _tell(self, points: np.ndarray, trials: list[FrozenTrial]) -> None:
        """Tell the search the values of these trials, which have these points (k, d)."""
        values = np.array([self._objectives(trial) for trial in trials])
        ineq = np.array([sum(max(c, 0.0) for c in constraint_values(trial)) for trial in trials])
        if self.n_objectives == 1:
            values = values[:, 0]
        self.optimizer.tell(points, values, ineq=ineq if self.is_constrained else None)

    def choose_row(self, trials: list[FrozenTrial]) -> int:
        """The point for a new trial: one that no trial has, else EXTRA, else one whose trial takes long."""
        claims = self._claims(trials)
        finished = self._finished_rows(trials)
        counts = [len(claims.get(row, ())) for row in range(len(self.points))]
        free = [row for row, count in enumerate(counts) if count == 0 and row not in finished]
        if free:
            return free[0]
        unfinished = [row for row in range(len(self.points)) if row not in finished]
        if not unfinished or len(claims.get(EXTRA, ())) < len(self.points):
            return EXTRA
        return min(unfinished, key=lambda row: counts[row])

    def params(self, row: int, trial_number: int) -> dict[str, Any]:
        """The parameters of a point; for EXTRA, each from one of the points."""
        if row != EXTRA:
            return {code.name: code.decode(v) for code, v in zip(self.codes, self.points[row], strict=True)}
        rng = np.random.default_rng([self.optimizer.seed, self.number, trial_number])
        rows = rng.integers(len(self.points), size=len(self.codes))
        return {
            code.name: code.decode(self.points[i, k]) for k, (code, i) in enumerate(zip(self.codes, rows, strict=True))
        }

    def _claims(self, trials: list[FrozenTrial]) -> dict[int, list[FrozenTrial]]:
        """The trials of this generation by their row. One whose parameters the user fixed has none."""
        claims: dict[int, list[FrozenTrial]] = {}
        for trial in trials:
            search, number, row = trial.system_attrs.get(ATTRIBUTE, (None, None, None))
            if search != self.search or number != self.number:
                continue
            expected = self.params(row, trial.number)
            if all(trial.params[name] == value for name, value in expected.items() if name in trial.params):
                claims.setdefault(row, []).append(trial)
        return claims

    def _finished_rows(self, trials: list[FrozenTrial]) -> dict[int, FrozenTrial]:
        """The first finished trial of each row that has one."""
        rows = {}
        if self.number == 0 and self.known_trials:
            names = [code.name for code in self.codes]
            by_params = {tuple(t.params[name] for name in names): t for t in reversed(self.known_trials)}
            for row in range(len(self.points)):
                trial = by_params.get(tuple(self.params(row, 0).values()))
                if trial is not None:
                    rows[row] = trial
        for row, claims in self._claims(trials).items():
            finished = [t for t in claims if t.state.is_finished()]
            if row != EXTRA and finished:
                rows.setdefault(row, finished[0])
        return rows

    def _objectives(self, trial: FrozenTrial) -> list[float]:
        """The values of a trial; NaN for one that failed."""
        if trial.state == TrialState.COMPLETE:
            return list(trial.values)
        if trial.state == TrialState.PRUNED and self.n_objectives == 1 and trial.intermediate_values:
            return [trial.intermediate_values[max(trial.intermediate_values)]]
        return [math.nan] * self.n_objectives


@dataclass(frozen=True)
class _Code:
    """A parameter of Optuna as a variable: steps and logarithmic integers, which galapax has not, become others."""

    name: str
    distribution: BaseDistribution

    @property
    def variable(self) -> Variable:
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return choice(*map(str, range(len(d.choices))))
        if isinstance(d, IntDistribution) and d.log:
            return real(d.low - 0.5, d.high + 0.5, log=True)
        if d.step is not None:
            return integer(0, round((d.high - d.low) / d.step))
        return real(d.low, d.high, log=d.log)

    def decode(self, number: float) -> object:
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return d.choices[round(number)]
        if isinstance(d, IntDistribution):
            return min(max(round(number), d.low), d.high) if d.log else d.low + round(number) * d.step
        if d.step is not None:
            return min(d.low + round(number) * d.step, d.high)
        return min(max(float(number), d.low), d.high)

    def encode(self, value: Any) -> float:
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return d.to_internal_repr(value)
        if d.step is not None and not d.log:
            return round((value - d.low) / d.step)
        return float(value)


def constraint_values(trial: FrozenTrial) -> list[float]:
    """The constraints of a trial: those of `set_constraint`, which Optuna has since version 5, and of a sampler."""
    if hasattr(trial, "constraints"):
        return list(trial.constraints.values())
    return list(trial.system_attrs.get("constraints") or ())


def starting_trials(study: Study, trials: list[FrozenTrial], space: dict[str, BaseDistribution]) -> list[int]:
    """The numbers of the trials from which a search starts: those that were enqueued, or else, of many, the best."""
    complete = [
        t
        for t in trials
        if t.state == TrialState.COMPLETE and all(t.distributions.get(name) == d for name, d in space.items())
    ]
    enqueued = [t for t in complete if "fixed_params" in t.system_attrs]
    if len(study.directions) > 1 or len(enqueued) == len(complete) or len(complete) < 2:
        candidates = enqueued
    else:
        is_maximised = study.direction == StudyDirection.MAXIMIZE
        complete.sort(key=lambda trial: trial.value, reverse=is_maximised)
        candidates = sorted(complete, key=lambda trial: sum(max(c, 0) for c in constraint_values(trial)))
    return [t.number for t in candidates[:MAX_STARTING_POINTS]]
