"""The contract of an algorithm: hyper-parameters in a frozen dataclass, the run in a state, a few pure functions.

`state.candidates` waits for its evaluation; `step` takes that evaluation, selects, and breeds the next candidates. An
engine needs no more, whether it evaluates on the device, in a process pool or by hand. `Algorithm` holds what every
algorithm has, `Traits` what a driver must know before it runs one, and the small protocols below what only some have;
the functions after them are the only place that asks for those.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.errors import UnknownArgument
from galapax.core.hints import HYPERPARAMETERS, find_answers
from galapax.core.problem import Bounds, CandidateEvaluation, Population, Shape
from galapax.core.stop import RUNNING, STOP_CODES, Stop


class State(Protocol):
    """What every algorithm's state shows to engines, a NamedTuple; its other fields are the algorithm's business."""

    @property
    def candidates(self) -> Array: ...  # (n, d), waiting for their evaluation

    @property
    def parents(self) -> Population: ...  # the survivors; with one objective the best individual so far is among them

    def _replace(self, *args: Any, **fields: Any) -> Self: ...  # as NamedTuples have it


S = TypeVar("S", bound=State)
A = TypeVar("A", bound="Algorithm")


class Budget(NamedTuple):
    """What a run may spend; None where nothing limits it."""

    generations: int | None = None
    evaluations: int | None = None


class Traits(NamedTuple):
    """What a driver must know of an algorithm before it runs.

    multi_objective: it is for several objectives, and not for one.
    fixed_evaluations: every generation evaluates all candidates; else `evaluations` says how many of the first ones.
    rounds_discrete: the driver rounds candidates to integers and choices, if the problem has some.
    fast_compile: on a CPU its program is as fast if less time goes into compiling it.
    termination_every: generations between two calls of `termination`, if the algorithm has no `period`.
    default_generations: of a run that nothing limits.
    min_generations: that few evaluations should last for; they make the population smaller.
    max_fused_front: the population up to which one kernel on a GPU is faster for two objectives without constraints.
    """

    multi_objective: bool = False
    fixed_evaluations: bool = True
    rounds_discrete: bool = True
    fast_compile: bool = False
    termination_every: int = 50
    default_generations: int = 1000
    min_generations: int = 10
    max_fused_front: int = 0


def format_algorithm(algorithm: Algorithm) -> str:
    """Write an algorithm as it is constructed, DE(population=100, mutation=rand_1, ...)."""
    values = [(field.name, getattr(algorithm, field.name)) for field in dataclasses.fields(algorithm) if field.repr]  # type: ignore[arg-type]
    arguments = [f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in values]
    return f"{type(algorithm).__name__}({', '.join(arguments)})"


class Algorithm(Generic[S]):
    """A frozen dataclass of hyper-parameters with `population`, `init` and `step`; the rest has defaults.

    A subclass names its state: `class DE(Algorithm[DEState])`.
    """

    traits: ClassVar[Traits] = Traits()

    def __init_subclass__(cls, **options: object) -> None:
        """Keep a dataclass from writing a repr that would show where functions lie in memory."""
        super().__init_subclass__(**options)
        cls.__repr__ = cls.__dict__.get("__repr__", format_algorithm)  # type: ignore[method-assign]

    def __new__(cls, *positional: object, **settings: object) -> Self:
        """Refuse hyper-parameters that it does not have, with the name that they have here."""
        names = [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else list(settings)
        for name in settings:
            if name not in names:
                matches = [answer for answer in find_answers(name, HYPERPARAMETERS) if answer in names]
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.65)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}."
                hint = f"write {' or '.join(matches)}." if matches else hint
                raise UnknownArgument(f"{cls.__name__} has no hyper-parameter {name!r}: {hint}")
        return super().__new__(cls)

    @property
    def population(self) -> int:
        """Number of candidates of a generation; a field of the dataclass."""
        raise NotImplementedError

    @property
    def period(self) -> int:
        """Generations between two calls of `cycle`; 0 for never."""
        return 0

    def validate(self) -> None:
        """Raise an InputError for hyper-parameters that cannot work."""

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        """Fill in the hyper-parameters that are left open and depend on the problem or the budget."""
        return self

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> S:
        """Create the first candidates and empty parents."""
        raise NotImplementedError

    def start(self, state: S, evaluation: CandidateEvaluation, shape: Shape) -> S:
        """Set what holds for the whole run, once, from the evaluation of the first candidates; these must not change.

        Called before the first `step`.
        """
        return state

    def step(self, key: Array, state: S, evaluation: CandidateEvaluation) -> S:
        """Select among parents and evaluated candidates, then breed the next candidates."""
        raise NotImplementedError

    def cycle(self, key: Array, state: S, shape: Shape) -> S:
        """Do what follows every `period` steps."""
        return state

    def termination(self, state: S, bounds: Bounds, tolerance: Array) -> Array:
        """Return why the search should end: RUNNING, or the code of Stop.TOLERANCE where it has converged and of
        Stop.STALL where it makes no progress.

        Converged means that the survivors lie within `tolerance` of the box in every variable, or within its square
        root where their values are the same to rounding.
        """
        if self.traits.multi_objective:
            return jnp.asarray(RUNNING)
        population = state.parents
        evaluated = jnp.isfinite(population.fitness)
        x = (population.x - bounds.lower) / bounds.span
        width = jnp.max(
            jnp.max(jnp.where(evaluated[:, None], x, -jnp.inf), axis=0)
            - jnp.min(jnp.where(evaluated[:, None], x, jnp.inf), axis=0)
        )
        least = jnp.min(population.fitness)
        greatest = jnp.max(jnp.where(evaluated, population.fitness, -jnp.inf))
        level = greatest - least <= 4 * jnp.finfo(x.dtype).eps * jnp.abs(least)
        converged = (width <= tolerance) | (level & (width <= jnp.sqrt(tolerance)))
        return jnp.where(converged & jnp.any(evaluated), STOP_CODES[Stop.TOLERANCE], RUNNING)


# What only some algorithms have. All members are methods, so that asking for them computes nothing.


@runtime_checkable
class CountsEvaluations(Protocol):
    """An algorithm whose generations do not all take one evaluation of each candidate."""

    def evaluations(self, state: State, number: Array | int) -> Array | int:
        """Count the evaluations of generation `number`, from its state before the step; repairs come on top.

        Where that is less than the population, the candidates beyond are not evaluated: they lose to any other.
        """


@runtime_checkable
class RepairsCandidates(Protocol):
    """An algorithm that has some candidates moved onto violated constraints, where there are equalities."""

    def n_repairs(self) -> int:
        """Count the candidates per generation that are repaired before evaluation."""


@runtime_checkable
class Restartable(Protocol):
    """An algorithm that grows its population for restarts in a way of its own."""

    def with_doubled_population(self, first: int, times: int) -> Self:
        """Copy it with a population of `first`, doubled that many times."""


@runtime_checkable
class HasInitialSpread(Protocol):
    """An algorithm that chooses how far apart its first candidates are."""

    def with_smaller_spread(self, factor: float) -> Self:
        """Copy it with the initial spread scaled by `factor`."""


@runtime_checkable
class TakesInitialPoints(Protocol):
    """An algorithm whose state depends on the first candidates in more than their places."""

    def with_initial_points(self, state: S, points: Array) -> S:
        """Put points (k, d) into the first state in the place of the first candidates."""


@runtime_checkable
class TakesKnownValues(Protocol):
    """An algorithm that learns from values that were known before; others get such points among their first ones."""

    def with_known_values(self, state: Any, x: Array, evaluation: CandidateEvaluation) -> Any:
        """Take up evaluated points (k, d) before the first generation."""


@runtime_checkable
class AcceptsImmigrants(Protocol):
    """An algorithm whose state must learn of candidates that come from elsewhere."""

    def with_immigrants(self, state: S, rows: Array, points: Array) -> S:
        """Put points (k, d) from elsewhere in the place of the candidates with these numbers (k,)."""


@runtime_checkable
class HasSurrogate(Protocol):
    """An algorithm that may have a model of the objective choose which of its candidates are evaluated next."""

    def with_more_candidates(self, state: S, n: Array | int) -> S:
        """Have at least n candidates evaluated next, or all that wait if these are fewer."""

    def with_archived_values(self, state: S, x: Array, evaluation: CandidateEvaluation) -> S:
        """Fit the model to these points (k, d), too, which are not among the candidates."""


@runtime_checkable
class CombinesMethods(Protocol):
    """An algorithm that shares its evaluations among several methods."""

    def methods(self) -> tuple[str, ...]:
        """Name the methods, for messages."""

    def evaluations_by_method(self, state: State) -> Array:
        """Return how many evaluations each of them had (k,)."""


@runtime_checkable
class HasArchive(Protocol):
    """An algorithm whose solutions are others than the survivors."""

    def solutions(self, state: State) -> Population:
        """Return the individuals among which the run's answer is."""


class Forecast(NamedTuple):
    """What models expect of the objectives: in the middle, and the ends of a 95 % interval."""

    x: Any  # (k, d) points that would be evaluated next
    next: Any  # (k, 3, m) their lower ends, middles and upper ends; NaN where nothing is expected yet
    front: Any  # (s, 3, m) the same between neighbours of the front, where it is expected to continue; NaN elsewhere


@runtime_checkable
class HasForecast(Protocol):
    """An algorithm whose models say what they expect."""

    def forecast(self, state: Any) -> Forecast:
        """Return what is expected of the candidates and of the front."""


@runtime_checkable
class SamplesDistribution(Protocol):
    """An algorithm whose candidates are samples of a normal distribution."""

    def distribution(self, state: Any) -> tuple[Array, Array]:
        """Return its mean (d,) and a root of its covariance (d, d), where the box is the unit cube."""


@runtime_checkable
class HasOpponents(Protocol):
    """An algorithm that evaluates each candidate against several opponents."""

    def opponents(self, state: State) -> Array:
        """Return the opponents that the individuals were evaluated against."""

    def evaluations_per_candidate(self) -> int:
        """Count the evaluations that one candidate takes."""


@runtime_checkable
class HasCostHint(Protocol):
    """An algorithm that handles more numbers at once than its population has genes."""

    def cost_hint(self, dim: int) -> int:
        """Estimate the numbers that a generation of one run handles at once; it decides how many runs share a batch."""


def with_python_integers(algorithm: A) -> A:
    """Copy an algorithm with sizes as Python's integers: NumPy's small ones overflow in products."""
    names: list[str] = [f.name for f in dataclasses.fields(algorithm)]  # type: ignore[arg-type]
    sizes = {name: int(v) for name in names if isinstance(v := getattr(algorithm, name), np.integer)}
    return dataclasses.replace(algorithm, **sizes) if sizes else algorithm  # type: ignore[type-var]


def count_evaluations(algorithm: Algorithm, state: State, number: Array | int) -> Array | int:
    """Count the evaluations of generation `number`, without repairs."""
    return algorithm.evaluations(state, number) if isinstance(algorithm, CountsEvaluations) else algorithm.population


def count_repairs(algorithm: Algorithm) -> int:
    """Count the candidates per generation that are repaired before evaluation."""
    return algorithm.n_repairs() if isinstance(algorithm, RepairsCandidates) else 0


def double_population(algorithm: A, first: int, times: int) -> A:
    """Copy an algorithm with a population of `first`, doubled that many times."""
    if isinstance(algorithm, Restartable):
        return algorithm.with_doubled_population(first, times)
    return dataclasses.replace(algorithm, population=first * 2**times)  # type: ignore[type-var]


def scale_spread(algorithm: A, factor: float) -> A:
    """Copy an algorithm with the initial spread scaled by `factor`, if it has one."""
    return algorithm.with_smaller_spread(factor) if isinstance(algorithm, HasInitialSpread) else algorithm


def insert_initial_points(algorithm: Algorithm, state: S, points: Array) -> S:
    """Put points (k, d) into the first state in the place of the first candidates."""
    if isinstance(algorithm, TakesInitialPoints):
        return algorithm.with_initial_points(state, points)
    k = points.shape[0]

    def put(x: Array) -> Array:
        return jnp.concatenate([points, x[k:]])

    return state._replace(candidates=put(state.candidates), parents=state.parents._replace(x=put(state.parents.x)))


def insert_immigrants(algorithm: Algorithm, state: S, rows: Array, points: Array) -> S:
    """Put points (k, d) from elsewhere in the place of the candidates with these numbers (k,)."""
    if isinstance(algorithm, AcceptsImmigrants):
        return algorithm.with_immigrants(state, rows, points)
    return state._replace(candidates=state.candidates.at[rows].set(points))


def select_solutions(algorithm: Algorithm, state: State) -> Population:
    """Return the individuals among which the run's answer is: the survivors, or an archive."""
    return algorithm.solutions(state) if isinstance(algorithm, HasArchive) else state.parents


def forecast_objectives(algorithm: Algorithm, state: State) -> Forecast | None:
    """Return what the algorithm's models expect, if it has some."""
    return algorithm.forecast(state) if isinstance(algorithm, HasForecast) else None


def orient_forecast(forecast: Forecast, signs: Any, decode: Callable[[Any], Any] = np.asarray) -> Forecast | None:
    """Return the user's view of one run's forecast: with their signs and variables; None if nothing is expected."""

    def orient_rows(rows: Any) -> Any:
        rows = np.asarray(rows, np.float64)
        rows = np.where(np.asarray(signs) > 0, rows, -rows[:, ::-1])
        return rows[np.isfinite(rows).all(axis=(1, 2))]

    rows = orient_rows(forecast.next)
    if len(rows) < len(forecast.next):
        return None
    return Forecast(decode(np.asarray(forecast.x, np.float64)), rows, orient_rows(forecast.front))


def estimate_distribution(algorithm: Algorithm, state: State, bounds: Bounds) -> tuple[Array, Array]:
    """Return mean (d,) and root of the covariance (d, d) of the search in the unit cube.

    Of an algorithm that samples none, the mean of the survivors and their standard deviations.
    """
    if isinstance(algorithm, SamplesDistribution):
        return algorithm.distribution(state)
    unit = (state.parents.x - bounds.lower) / bounds.span
    return jnp.mean(unit, axis=0), jnp.diag(jnp.std(unit, axis=0))


def select_opponents(algorithm: Algorithm, state: State) -> Array | None:
    """Return the opponents that the individuals were evaluated against, if there are any."""
    return algorithm.opponents(state) if isinstance(algorithm, HasOpponents) else None


def name_methods(algorithm: Algorithm) -> tuple[str, ...]:
    """Return the names of the methods that the algorithm combines, if it does."""
    return algorithm.methods() if isinstance(algorithm, CombinesMethods) else ()


def count_by_method(algorithm: Algorithm, state: State) -> Array | None:
    """Return the evaluations of each method that the algorithm combines, if it does."""
    return algorithm.evaluations_by_method(state) if isinstance(algorithm, CombinesMethods) else None


def count_candidate_evaluations(algorithm: Algorithm) -> int:
    """Count the evaluations that one candidate takes."""
    return algorithm.evaluations_per_candidate() if isinstance(algorithm, HasOpponents) else 1


def estimate_cost(algorithm: Algorithm, dim: int) -> int:
    """Estimate the numbers that a generation of one run handles at once; it decides how many runs share a batch."""
    return algorithm.cost_hint(dim) if isinstance(algorithm, HasCostHint) else algorithm.population * dim


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Shared:
    """Arrays among hyper-parameters or in a state that all runs of a batch share; any other has one value per run."""

    value: Any


def is_shared(leaf: object) -> bool:
    """Return whether all runs of a batch share this leaf: the box, and what is wrapped in Shared."""
    return isinstance(leaf, Bounds | Shared)


def static(default: object) -> Any:
    """Declare a hyper-parameter that shapes the program (a size, a function) rather than being data in it."""
    return dataclasses.field(default=default, metadata={"static": True})
